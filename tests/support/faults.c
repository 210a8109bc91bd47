#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "cli/job.h"
#include "cli/program.h"
#include "support.h"

#define CLOCK_STEP_NS  20000000
#define MAX_DESCRIPTOR 64

const char *const fault_names[FAULT_KINDS] = {"memory", "map",     "open",   "read",
                                              "write",  "fsync",   "rename", "close",
                                              "thread", "process", "release"};

/* What every process of the run writes to. */
struct shared {
    atomic_long calls[FAULT_KINDS], all;
    atomic_bool met;
    struct fault_report report;
};

static struct shared *shared;
static bool armed;
static struct fault_plan plan;
static pid_t program;    /* the process of the whole run */
static long seed, share; /* which faults are made: see faults_next */

/* Of this process alone: a child has its parent's blocks, too. */
static atomic_long blocks, mapped_bytes, threads, faked_ns;
static bool was_open[MAX_DESCRIPTOR];

/* Declares a wrapped function: the library's own, and the one that takes its place. FAIL_OR_PASS
 * below defines most of them. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
WRAP(int, program_run, int argc, char **argv);
WRAP(void *, realloc, void *p, size_t n);
WRAP(void, free, void *p);
WRAP(void *, mmap, void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, int64_t offset);
WRAP(int, munmap, void *at, size_t n);
WRAP(int, open, const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
FILE *__wrap_fopen64(const char *path, const char *mode);
WRAP(int, fclose, FILE *f);
WRAP(ssize_t, read, int fd, void *to, size_t n);
WRAP(ssize_t, write, int fd, const void *from, size_t n);
WRAP(int, close, int fd);
WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
     void *arg);
WRAP(int, pthread_join, pthread_t thread, void **result);
WRAP(int, clock_gettime, clockid_t clock, struct timespec *now);

/* Defines a function that returns `failed` if it is to fail, and else calls the library's. */
#define FAIL_OR_PASS(type, name, params, strikes, failed, passed)                                  \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        return strikes ? failed : passed;                                                          \
    }

/* To the process, as from a terminal or kill: workers block signals, and a raise would stay with
 * them. A terminal's goes to the child that measures memory too. */
static void interrupt(void)
{
    atomic_store(&shared->met, true);
    kill(program, plan.signal);
    if (getpid() != program)
        kill(getpid(), plan.signal);
}

/* Counts a call; returns true, with errno set, if it is to fail. */
static bool strikes(enum fault_kind kind)
{
    if (!armed)
        return false;
    const long of_all = atomic_fetch_add(&shared->all, 1);
    const long of_kind = atomic_fetch_add(&shared->calls[kind], 1);
    if (plan.signal && of_all == plan.at)
        interrupt();
    if (!plan.error || plan.kind != kind ||
        !(plan.from_then_on ? of_kind >= plan.at : of_kind == plan.at))
        return false;
    atomic_store(&shared->met, true);
    errno = plan.error;
    return true;
}

/* Notes what the first call that failed was about. */
static void note(const char *what)
{
    char *to = shared->report.what;
    const int error = errno;
    if (!to[0])
        snprintf(to, sizeof shared->report.what, "%s", what);
    errno = error;
}

static bool strikes_path(enum fault_kind kind, const char *path)
{
    if (!strikes(kind))
        return false;
    note(path);
    return true;
}

static bool strikes_fd(enum fault_kind kind, int fd)
{
    if (!strikes(kind))
        return false;
    const int error = errno;
    char link[64], path[sizeof shared->report.what];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    note(fd == 0 ? "standard input" : fd == 1 ? "standard output" : path);
    errno = error;
    return true;
}

static void *counted(void *block)
{
    if (block)
        blocks++;
    return block;
}

#define MEMORY(type, name, params, args)                                                           \
    FAIL_OR_PASS(type, name, params, strikes(FAULT_MEMORY), NULL, counted(__real_##name args))
MEMORY(void *, malloc, (size_t n), (n))
MEMORY(void *, calloc, (size_t n, size_t size), (n, size))
MEMORY(void *, aligned_alloc, (size_t align, size_t n), (align, n))
MEMORY(char *, strdup, (const char *s), (s))
MEMORY(char *, strndup, (const char *s, size_t n), (s, n))

void *__wrap_realloc(void *p, size_t n)
{
    if (strikes(FAULT_MEMORY)) {
        note("realloc");
        return NULL;
    }
    void *grown = __real_realloc(p, n);
    if (!p)
        counted(grown);
    return grown;
}

void __wrap_free(void *p)
{
    if (p) {
        strikes(FAULT_RELEASE);
        blocks--;
    }
    __real_free(p);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (strikes_fd(FAULT_MAP, fd))
        return MAP_FAILED;
    void *mapped = __real_mmap(at, n, prot, flags, fd, offset);
    if (mapped != MAP_FAILED)
        mapped_bytes += (long)n;
    return mapped;
}

void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, int64_t offset)
{
    return __wrap_mmap(at, n, prot, flags, fd, (off_t)offset);
}

int __wrap_munmap(void *at, size_t n)
{
    strikes(FAULT_RELEASE);
    mapped_bytes -= (long)n;
    return __real_munmap(at, n);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return strikes_path(FAULT_OPEN, path) ? -1 : __real_open(path, flags, mode);
}

/* What open is called where _FILE_OFFSET_BITS is 64. */
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return __wrap_open(path, flags | O_LARGEFILE, mode);
}

FAIL_OR_PASS(FILE *, fopen, (const char *path, const char *mode), strikes_path(FAULT_OPEN, path),
             NULL, __real_fopen(path, mode))

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    return __wrap_fopen(path, mode);
}

int __wrap_fclose(FILE *f)
{
    const bool fails = strikes_fd(FAULT_CLOSE, fileno(f));
    const int error = errno, closed = __real_fclose(f);
    errno = fails ? error : errno;
    return fails ? EOF : closed;
}

ssize_t __wrap_read(int fd, void *to, size_t n)
{
    if (strikes_fd(FAULT_READ, fd))
        return -1;
    return __real_read(fd, to, armed && plan.one_byte && n > 1 ? 1 : n);
}

/* A closed pipe also raises the signal. */
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    if (strikes_fd(FAULT_WRITE, fd)) {
        const int error = errno;
        if (error == EPIPE)
            raise(SIGPIPE);
        errno = error;
        return -1;
    }
    return __real_write(fd, from, armed && plan.one_byte && n > 1 ? 1 : n);
}

FAIL_OR_PASS(int, fsync, (int fd), strikes_fd(FAULT_SYNC, fd), -1, __real_fsync(fd))
FAIL_OR_PASS(int, rename, (const char *from, const char *to), strikes_path(FAULT_RENAME, to), -1,
             __real_rename(from, to))
FAIL_OR_PASS(int, fchmod, (int fd, mode_t mode), strikes_fd(FAULT_RENAME, fd), -1,
             __real_fchmod(fd, mode))

int __wrap_close(int fd)
{
    const bool fails = strikes_fd(FAULT_CLOSE, fd);
    const int error = errno, closed = __real_close(fd);
    errno = fails ? error : errno;
    return fails ? -1 : closed;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (strikes(FAULT_THREAD))
        return errno;
    const int error = __real_pthread_create(thread, attr, start, arg);
    threads += error == 0;
    return error;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    strikes(FAULT_RELEASE);
    threads--;
    return __real_pthread_join(thread, result);
}

FAIL_OR_PASS(int, pipe, (int ends[2]), strikes(FAULT_PROCESS), -1, __real_pipe(ends))
FAIL_OR_PASS(pid_t, fork, (void), strikes(FAULT_PROCESS), -1, __real_fork())

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!armed)
        return __real_clock_gettime(clock, now);
    const long ns = atomic_fetch_add(&faked_ns, CLOCK_STEP_NS);
    *now = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

static bool is_thinned(void)
{
    return SANITIZED && share < 100;
}

int faults_drawn(int n)
{
    return is_thinned() ? n / 4 : n;
}

int faults_scenario(int i, int n)
{
    return is_thinned() ? (4 * i + (int)(seed & 3)) % n : i;
}

/* One call of each `step`. */
long faults_next(long n, long calls, long few)
{
    const long wanted = is_thinned() ? 0 : calls * share / 100, made = MAX(wanted, few);
    const long step = calls > made ? calls / made : 1, next = n < 0 ? 0 : n / step + 1;
    struct rng random;
    rng_seed(&random, (uint64_t)seed, (uint64_t)next);
    return next * step + (long)(rng_u32(&random) % (unsigned)step);
}

/* This runs before the tests are registered, which count the scenarios. */
__attribute__((constructor(101))) static void create(void)
{
    const char *percent = getenv("DECODE_FAULT_SHARE");
    share = percent ? atol(percent) : 8;
    seed = test_seed();
    shared = __real_mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
    if (shared == MAP_FAILED)
        abort();
}

void faults_arm(void *how)
{
    plan = *(const struct fault_plan *)how;
    for (int i = 0; i < FAULT_KINDS; i++)
        shared->calls[i] = 0;
    shared->all = 0;
    shared->met = false;
    shared->report = (struct fault_report){.met = false};
    for (int fd = 0; fd < MAX_DESCRIPTOR; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    program = getpid();
    blocks = mapped_bytes = threads = 0;
    armed = true;
}

void faults_disarm(void)
{
    struct fault_report *r = &shared->report;
    armed = false;
    r->blocks = blocks;
    r->mapped_bytes = mapped_bytes;
    r->threads = threads;
    for (int fd = STDERR_FILENO + 1; fd < MAX_DESCRIPTOR; fd++)
        r->descriptors += !was_open[fd] && fcntl(fd, F_GETFD) >= 0;
    r->returned = true;
}

const struct fault_report *faults_report(void)
{
    struct fault_report *r = &shared->report;
    for (int i = 0; i < FAULT_KINDS; i++)
        r->calls[i] = shared->calls[i];
    r->all = shared->all;
    r->met = shared->met;
    return r;
}

int __wrap_program_run(int argc, char **argv)
{
    const int code = __real_program_run(argc, argv);
    if (!armed)
        return code;
    faults_disarm();
    /* Without this the leak sanitizer would look for leaks, which are counted here, at each of
     * thousands of exits. */
    if (ADDRESS_SANITIZED)
        _exit(code);
    return code;
}
