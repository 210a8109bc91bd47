/* Signals, each in a child process: what it exits with and what it says. */
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
        signal(SIGHUP, SIG_DFL); /* the suite may run under nohup */
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
    (void)path;
    signals_defer();
    raise(SIGINT);
    raise(SIGTERM);
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
}

/* By one, at every call: test_interrupts.c. */
TEST(a_second_interrupt_kills)
{
    ck_assert_int_eq(run(be_interrupted_twice, ""), -SIGTERM);
    ck_assert_str_eq(said, "");
}
