#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

/* Descriptors looked at for temporary files, at most: many may have been inherited. */
#define MAX_FDS 65536

/* Any thread may take a signal, so these are atomics; lock-free ones are safe in handlers. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal flags must be lock-free");
static atomic_int deferred;
static atomic_int interrupted; /* the first signal; 0: none */

/* Writes n in decimal, terminated, and returns the end. printf is not for signal handlers. */
static char *put_number(char *to, unsigned long n)
{
    char digits[24];
    int len = 0;
    do
        digits[len++] = '0' + n % 10;
    while (n /= 10);
    while (len > 0)
        *to++ = digits[--len];
    *to = 0;
    return to;
}

/*
 * Removes the files that are being written. A handler cannot ask a writer in the middle of its
 * work, so the system is asked which are open, with nothing but system calls, as opendir takes
 * memory. Where it does not tell, they stay. Their names are those of base/replace.h.
 */
static void remove_temporaries(void)
{
    struct rlimit limit = {.rlim_cur = MAX_FDS};
    char start[48] = "/.decode-", link[48] = "/proc/self/fd/", path[4096];
    char *const number = link + strlen(link);
    strcpy(put_number(start + strlen(start), (unsigned long)getpid()), "-");
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = STDERR_FILENO + 1; fd < MAX_FDS && (rlim_t)fd < limit.rlim_cur; fd++) {
        put_number(number, (unsigned long)fd);
        const ssize_t n = readlink(link, path, sizeof path - 1);
        if (n < 4 || memcmp(path + n - 4, ".tmp", 4) != 0)
            continue;
        path[n] = 0;
        const char *slash = strrchr(path, '/');
        if (slash && strncmp(slash, start, strlen(start)) == 0)
            unlink(path);
    }
}

/* Any signal that ends the process. */
static void on_end(int number)
{
    remove_temporaries();
    signal(number, SIG_DFL);
    raise(number); /* on return from the handler, for it is blocked until then */
}

static void on_interrupt(int number)
{
    if (interrupted && number == SIGXCPU)
        return; /* it comes every second, while the work is being ended */
    if (!deferred) {
        remove_temporaries();
        _exit(STATUS_INTERRUPTED);
    }
    if (interrupted) /* the second one */
        on_end(number);
    interrupted = number;
}

/* A mapped file that was cut short; what is no missing page of a file is a bug, to be seen as one.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char message[] =
        "decode: a file was cut short, or its disk failed, while it was read\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        return;
    }
    remove_temporaries();
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
    /* Those that end no process that does nothing about them; two more cannot be handled. */
    static const int others[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD, SIGURG, SIGWINCH};
    /* What somebody handles or ignores already stays so, such as the SIGHUP of nohup. */
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction old;
        bool ends = sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL;
        for (int i = 0; i < LENGTH(others); i++)
            ends &= number != others[i];
        if (ends)
            handle(number, number == SIGHUP ? on_interrupt : on_end);
    }
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    handle(SIGXCPU, on_interrupt);
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
