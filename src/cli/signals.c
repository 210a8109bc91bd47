#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

/* Any thread may take a signal, so these are atomics; lock-free ones are safe in handlers. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal flags must be lock-free");
static atomic_int deferred;
static atomic_int interrupted;
static const char *volatile mapped_path;

static void on_interrupt(int number)
{
    (void)number;
    if (!deferred)
        _exit(STATUS_INTERRUPTED);
    interrupted = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static void write_error(const char *s)
{
    if (write(STDERR_FILENO, s, strlen(s)) < 0)
        return; /* there is nowhere left to say so */
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* not a missing page of a file: a bug, to be seen as one */
        signal(number, SIG_DFL);
        return;
    }
    const char *path = mapped_path;
    write_error("decode: ");
    write_error(path ? path : "a mapped file");
    write_error(": the file was cut short, or could not be read, while it was in use\n");
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
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        handle(SIGHUP, on_interrupt);
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&bus.sa_mask);
    sigaction(SIGBUS, &bus, NULL);
}

void signals_defer(void)
{
    deferred = 1;
}

bool signals_end_at_once(void)
{
    deferred = 0;
    return interrupted;
}

bool signals_interrupted(void)
{
    return interrupted;
}

void signals_mapping(const char *path)
{
    mapped_path = path;
}
