/* Signals, each in a child process: what it exits with and what it says. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/signals.h"
#include "support.h"

/* Runs `body` in a child with its standard error in `said`; gives the wait status. */
static int run(void (*body)(const char *path), const char *path, char *said, size_t size)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGHUP, SIG_DFL); /* the suite may run under nohup */
        signals_install();
        body(path);
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
    return status;
}

static void read_beyond_the_cut(const char *path)
{
    struct file_map f;
    struct err e;
    if (file_map_open(&f, path, &e) != STATUS_OK || truncate(path, 0) != 0)
        _exit(78);
    signals_mapping(path);
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < f.len; i += 512)
        sum = (unsigned char)(sum + f.data[i]);
}

START_TEST(a_file_cut_short_while_mapped)
{
    char said[512];
    char path[512];
    strcpy(path, scratch_path("mapped"));
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < 20000; i++)
        fputc('x', f);
    fclose(f);
    const int status = run(read_beyond_the_cut, path, said, sizeof said);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), STATUS_BAD_FILE);
    ck_assert_msg(strstr(said, path) && strstr(said, "cut short"), "%s", said);
    ck_assert_ptr_eq(strchr(said, '\n'), said + strlen(said) - 1);
    scratch_remove();
}
END_TEST

static int number_of(const char *which)
{
    return which[0] == 'I' ? SIGINT : which[0] == 'T' ? SIGTERM : SIGHUP;
}

static void raise_at_once(const char *which)
{
    raise(number_of(which));
}

static void raise_deferred(const char *which)
{
    signals_defer();
    if (signals_interrupted())
        _exit(78);
    raise(number_of(which));
    _exit(signals_interrupted() ? 42 : 79);
}

static void raise_twice(const char *which)
{
    signals_defer();
    raise(number_of(which));
    raise(which[0] == 'I' ? SIGTERM : SIGINT);
}

static const char *const names[] = {"INT", "TERM", "HUP"};

START_TEST(interrupts)
{
    char said[512];
    int status = run(raise_at_once, names[_i], said, sizeof said);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_INTERRUPTED);
    status = run(raise_deferred, names[_i], said, sizeof said);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = run(raise_twice, names[_i], said, sizeof said);
    ck_assert(WIFSIGNALED(status));
    ck_assert_str_eq(said, "");
}
END_TEST

static void hang_up_under_nohup(const char *unused)
{
    (void)unused;
    signal(SIGHUP, SIG_IGN);
    signals_install();
    raise(SIGHUP);
    _exit(42);
}

START_TEST(an_ignored_hangup_stays_ignored)
{
    char said[512];
    const int status = run(hang_up_under_nohup, NULL, said, sizeof said);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}
END_TEST

static void write_to_closed_pipe(const char *unused)
{
    (void)unused;
    int ends[2];
    if (pipe(ends) != 0)
        _exit(78);
    close(ends[0]);
    _exit(write(ends[1], "x", 1) < 0 ? 42 : 79);
}

START_TEST(a_closed_pipe_is_a_failed_write)
{
    char said[512];
    const int status = run(write_to_closed_pipe, NULL, said, sizeof said);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("signals");
    TCase *t = tcase_create("signals");
    tcase_add_test(t, a_file_cut_short_while_mapped);
    tcase_add_loop_test(t, interrupts, 0, 3);
    tcase_add_test(t, an_ignored_hangup_stays_ignored);
    tcase_add_test(t, a_closed_pipe_is_a_failed_write);
    suite_add_tcase(s, t);
    return run_suite(s);
}
