#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/file.h"

/* Any thread may take a signal, so these are atomics; lock-free ones are safe in handlers. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal flags must be lock-free");
static atomic_int deferred;
static atomic_int interrupted; /* the first signal; 0: none */

/* --- interruption -------------------------------------------------------------------------- */

/* Any other signal that ends the process. */
static void on_end(int number)
{
    file_remove_temporaries();
    signal(number, SIG_DFL);
    raise(number); /* on return from the handler, for it is blocked until then */
}

static void on_interrupt(int number)
{
    if (interrupted && number == SIGXCPU)
        return; /* time runs out once a second, and the work is to be ended well within that time */
    if (!deferred) {
        file_remove_temporaries();
        _exit(STATUS_INTERRUPTED);
    }
    if (interrupted) /* the second one */
        on_end(number);
    interrupted = number;
}

/* --- a mapped file that was cut short ------------------------------------------------------ */

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char message[] =
        "decode: a file was cut short, or its disk failed, while it was read\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) { /* not a missing page of a file: a bug, to be seen as one */
        signal(number, SIG_DFL);
        return;
    }
    file_remove_temporaries();
    const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    (void)written; /* there is nowhere else to say so */
    _exit(STATUS_BAD_FILE);
}

/* --- installing ---------------------------------------------------------------------------- */

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void signals_install(void)
{
    /* Those that end no process that does nothing about them, or cannot be handled. */
    static const int others[] = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
                                 SIGCONT, SIGCHLD, SIGURG,  SIGWINCH};
    /* What somebody handles or ignores already stays so. */
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction old;
        bool ends = sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            ends &= number != others[i];
        if (ends)
            handle(number, on_end);
    }
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    handle(SIGXCPU, on_interrupt);
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
