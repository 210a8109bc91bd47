#include "cli/alone.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What precedes the result in the pipe. */
struct answer {
    enum status status;
    struct err err;
};

static bool write_whole(int fd, const void *data, size_t n)
{
    for (const char *p = data; n > 0;) {
        const ssize_t wrote = write(fd, p, n);
        if (wrote < 0 && errno != EINTR)
            return false;
        if (wrote > 0) {
            p += wrote;
            n -= (size_t)wrote;
        }
    }
    return true;
}

static bool read_whole(int fd, void *data, size_t n)
{
    for (char *p = data; n > 0;) {
        const ssize_t got = read(fd, p, n);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        }
    }
    return true;
}

/* The child: nothing of the parent's is closed or flushed on the way out. */
static void answer_and_exit(alone_work *work, const void *arg, void *result, size_t result_size,
                            int fd)
{
    struct answer a = {.err = {{0}}};
    a.status = work(arg, result, &a.err);
    const bool sent = write_whole(fd, &a, sizeof a) && write_whole(fd, result, result_size);
    _exit(sent ? 0 : 1);
}

static enum status system_failure(const char *what, struct err *e)
{
    return err_set(e, STATUS_FAILED, "cannot %s to measure memory: %s", what, strerror(errno));
}

enum status alone_run(alone_work *work, const void *arg, void *result, size_t result_size,
                      uint64_t *peak_rss_bytes, struct err *e)
{
    int ends[2];
    if (pipe(ends) != 0)
        return system_failure("make a pipe", e);
    const pid_t pid = fork();
    if (pid < 0) {
        const enum status s = system_failure("start a process", e);
        close(ends[0]);
        close(ends[1]);
        return s;
    }
    if (pid == 0)
        answer_and_exit(work, arg, result, result_size, ends[1]);
    close(ends[1]);
    struct answer a;
    const bool whole =
        read_whole(ends[0], &a, sizeof a) && read_whole(ends[0], result, result_size);
    close(ends[0]);
    struct rusage usage = {0};
    int ended = 0;
    while (wait4(pid, &ended, 0, &usage) < 0 && errno == EINTR)
        continue;
    /* A mapped file was cut short: the child has said which. */
    if (!whole && WIFEXITED(ended) && WEXITSTATUS(ended) == STATUS_BAD_FILE)
        _exit(STATUS_BAD_FILE);
    if (!whole)
        return err_set(e, STATUS_FAILED,
                       "the process that measures memory was ended; was it out of memory?");
    *peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (a.status != STATUS_OK && e)
        *e = a.err;
    return a.status;
}
