/* The program runs in a thread with a stack of fixed size. `ulimit -s` may leave the first thread
 * less than a command needs, which would end in a signal. */
#include <pthread.h>
#include <signal.h>

#include "cli/program.h"

#define STACK_BYTES ((size_t)8 << 20)

struct run {
    int argc;
    char **argv;
    int code;
};

static void *run(void *arg)
{
    struct run *r = arg;
    r->code = program_run(r->argc, r->argv);
    return NULL;
}

int main(int argc, char **argv)
{
    struct run r = {argc, argv, 0};
    sigset_t all;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, run, &r) != 0)
        return program_run(argc, argv);
    pthread_attr_destroy(&attributes);
    /* This thread blocks all signals, so that the other one gets them and its reads return. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_join(thread, NULL);
    return r.code;
}
