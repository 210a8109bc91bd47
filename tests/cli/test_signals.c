/* Signals, each in a child process: what it exits with and what it says. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/replace.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "support.h"

static char said[1024], cut_path[512];

/* Runs `body` in a child with its standard error in `said`; gives its exit code, or -1 and below:
 * the signal that ended it. */
static int run(void (*body)(const char *path), const char *argument)
{
    const size_t size = sizeof said;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGHUP, SIG_DFL);  /* the suite may run under nohup */
        signal(SIGALRM, SIG_DFL); /* which Check handles */
        signals_install();
        body(argument);
        _exit(77);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; len + 1 < size && (n = read(ends[0], said + len, size - 1 - len)) > 0;)
        len += (size_t)n;
    said[len] = 0;
    close(ends[0]);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void fill_file(const char *path, size_t n)
{
    write_file(path, memset(allocated(n), 'x', n), n);
}

/* Two mapped files and an output; `path` is the folder's first file. */
struct open_files {
    struct file_map cut, whole;
    struct file_writer *writer;
};

static const char *beside(const char *path, const char *name)
{
    static char out[600];
    snprintf(out, sizeof out, "%.*s/%s", (int)(strrchr(path, '/') - path), path, name);
    return out;
}

static void open_files(struct open_files *f, const char *path)
{
    if (file_map_open(&f->cut, path, &err) != STATUS_OK ||
        file_map_open(&f->whole, beside(path, "whole"), &err) != STATUS_OK ||
        file_writer_open(&f->writer, beside(path, "out"), &err) != STATUS_OK ||
        truncate(path, 4096) != 0)
        _exit(78);
}

/* A write of this many bytes goes past the writer's buffer. */
#define LONG_WRITE 1000000

static void write_from_the_mapping(const char *path)
{
    struct open_files f;
    open_files(&f, path);
    file_writer_put(f.writer, f.cut.data, f.cut.len);
    file_writer_commit(f.writer, &err);
}

static void be_interrupted_twice(const char *path)
{
    struct open_files f;
    open_files(&f, path);
    signals_defer();
    raise(SIGINT);
    raise(SIGTERM);
}

/* With 80 descriptors that somebody left open, and by a signal that nobody thinks of. */
static int end_signal;

static void be_ended_among_descriptors(const char *path)
{
    struct open_files f;
    for (int i = 0; i < 80; i++)
        if (dup(STDERR_FILENO) < 0)
            _exit(78);
    open_files(&f, path);
    raise(end_signal);
}

static int files_in_folder_of(const char *path)
{
    int n = 0;
    DIR *d = opendir(beside(path, ""));
    for (const struct dirent *entry; (entry = readdir(d));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* A copied tensor's file that was cut short was called a failure of the output ("cannot write: Bad
 * address"), exit code 1. (While weights are read: class 12 of bad input.) */
TEST(a_file_that_is_cut_while_it_is_copied)
{
    strcpy(cut_path, scratch_path("cut\033"));
    fill_file(beside(cut_path, "whole"), LONG_WRITE);
    fill_file(cut_path, LONG_WRITE);
    ck_assert_int_eq(run(write_from_the_mapping, cut_path), STATUS_BAD_FILE);
    ck_assert_msg(
        strstr(said, "decode: a file was cut short, or its disk failed, while it was read\n"), "%s",
        said);
    ck_assert_int_eq(files_in_folder_of(cut_path), 2);
}

/* A change of types was ended by a second Ctrl-C, and left its .decode-PID-0.tmp. (By one, at every
 * call: test_interrupts.c.) */
TEST(a_second_interrupt_leaves_no_temporary)
{
    strcpy(cut_path, scratch_path("cut"));
    fill_file(beside(cut_path, "whole"), LONG_WRITE);
    fill_file(cut_path, LONG_WRITE);
    ck_assert_int_lt(run(be_interrupted_twice, cut_path), 0);
    ck_assert_str_eq(said, "");
    ck_assert_int_eq(files_in_folder_of(cut_path), 2);
}

TEST(every_signal_that_ends_it_leaves_no_temporary)
{
    enum { OTHERS = 11 }; /* before the faults */
    const int signals[] = {SIGINT,  SIGQUIT, SIGALRM, SIGUSR1,   SIGUSR2,      SIGIO,
                           SIGPROF, SIGPWR,  SIGSYS,  SIGVTALRM, SIGRTMIN + 3, SIGABRT,
                           SIGTRAP, SIGFPE,  SIGILL,  SIGSEGV};
    strcpy(cut_path, scratch_path("cut"));
    fill_file(beside(cut_path, "whole"), LONG_WRITE);
    for (size_t i = 0; i < COUNT(signals); i++) {
        /* A sanitizer's own handlers stay. */
        if (SANITIZED && i >= OTHERS)
            continue;
        end_signal = signals[i];
        signal(end_signal, SIG_DFL); /* a shell ignores some for what it runs in the background */
        fill_file(cut_path, LONG_WRITE);
        const int expected = signals[i] == SIGINT ? STATUS_INTERRUPTED : -signals[i];
        ck_assert_int_eq(run(be_ended_among_descriptors, cut_path), expected);
        ck_assert_msg(files_in_folder_of(cut_path) == 2, "signal %d", signals[i]);
    }
}
