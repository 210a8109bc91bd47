#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/status.h"
#include "base/times.h"

/* Any thread may take a signal, so these are atomics; lock-free ones are safe in handlers. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal flags must be lock-free");
static atomic_int deferred;
static atomic_int interrupted; /* the first signal; 0: none */
static atomic_uint came_at;    /* when, in ms */

/* timeout(1) sends a signal to the program and at once to its group, and so to the program again.
 */
#define SAME_SIGNAL_MS 100

static void on_interrupt(int number)
{
    if (!deferred)
        _exit(STATUS_INTERRUPTED);
    const unsigned now = clock_ns() / 1000000;
    if (interrupted && number == SIGXCPU)
        return; /* it comes every second, while the work is being ended */
    if (interrupted == number && now - came_at < SAME_SIGNAL_MS)
        return;
    if (interrupted) { /* the second one */
        signal(number, SIG_DFL);
        raise(number); /* on return from the handler, for it is blocked until then */
    }
    came_at = now;
    interrupted = number;
}

/* Ends the program if a mapped file was cut short. Any other bus error is a bug, and stays one. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char message[] =
        "decode: a file was cut short, or its disk failed, while it was read\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        return;
    }
    const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    (void)written; /* there is nowhere else to say so */
    _exit(STATUS_BAD_FILE);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void signals_install(void)
{
    struct sigaction hangup, bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    handle(SIGXCPU, on_interrupt);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        handle(SIGHUP, on_interrupt);
    sigemptyset(&bus.sa_mask);
    sigaction(SIGBUS, &bus, NULL);
}

void signals_defer(void)
{
    deferred = 1;
}

bool signals_end_at_once(void)
{
    return atomic_exchange(&deferred, 0);
}

bool signals_interrupted(void)
{
    return interrupted;
}

bool signals_forgive(void)
{
    int came = SIGINT;
    return atomic_compare_exchange_strong(&interrupted, &came, 0);
}

void signals_end_by_pipe(void)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &pipe, NULL); /* it may have been inherited blocked */
    raise(SIGPIPE);
}
