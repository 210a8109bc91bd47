#include "cli/child.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child leaves in memory that both processes see. */
struct answer {
    bool complete;
    enum status status;
    struct err err;
    unsigned char result[];
};

/* The child: nothing of the parent's is closed or flushed on the way out. */
static void answer_and_exit(child_work *work, const void *arg, void *result, size_t result_size,
                            struct answer *a)
{
    a->status = work(arg, result, &a->err);
    memcpy(a->result, result, result_size);
    a->complete = true;
    _exit(STATUS_OK);
}

/* Waits for the child's end; returns what it left of STATUS_OK, or that it died. */
static enum status take_answer(pid_t pid, const struct answer *a, void *result, size_t result_size,
                               uint64_t *peak_rss_bytes, struct err *e)
{
    struct rusage usage = {0};
    int ended = 0;
    while (wait4(pid, &ended, 0, &usage) < 0 && errno == EINTR)
        continue;
    /* A mapped file was cut short: the child has said which. */
    if (!a->complete && WIFEXITED(ended) && WEXITSTATUS(ended) == STATUS_BAD_FILE)
        _exit(STATUS_BAD_FILE);
    if (!a->complete)
        return err_set(e, STATUS_FAILED,
                       "the process that measures memory was ended; was it out of memory?");
    memcpy(result, a->result, result_size);
    *peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (a->status != STATUS_OK && e)
        *e = a->err;
    return a->status;
}

enum status child_run(child_work *work, const void *arg, void *result, size_t result_size,
                      uint64_t *peak_rss_bytes, struct err *e)
{
    const size_t bytes = sizeof(struct answer) + result_size;
    struct answer *a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED)
        return err_no_memory(e, "the answer of the process that measures memory", bytes);
    const pid_t pid = fork();
    if (pid == 0)
        answer_and_exit(work, arg, result, result_size, a);
    const enum status s =
        pid > 0 ? take_answer(pid, a, result, result_size, peak_rss_bytes, e)
                : err_set(e, STATUS_FAILED, "cannot start a process to measure memory: %s",
                          strerror(errno));
    munmap(a, bytes);
    return s;
}
