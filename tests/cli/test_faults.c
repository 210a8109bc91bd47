/*
 * Makes the n-th call into the system fail, once or from then on, for one n after the other until
 * the command ends before the fault comes. Each time the exit code must be right, one line must say
 * what failed, nothing may leak, no file may be half written, and old files must be as they were.
 * Where there are many calls some are left out (faults_next); `make test-all` makes every one fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenarios.h"
#include "support.h"

/* A way in which all calls of a kind fail. */
struct way {
    enum fault_kind kind;
    int error;
    bool from_then_on;
};

/* The program can do without some files: those that say how many processors there are, and a folder
 * that is synchronised so that a rename lasts. */
static bool is_optional(const char *what)
{
    return (what[0] == '/' || what[0] == '.') && !scenario_is_input(what) &&
           !scenario_is_output(what);
}

static bool benches(void)
{
    return strncmp(scenario->name, "bench", 5) == 0;
}

/* Returns the exit code if the first call that failed was about `what`. */
static int code_expected(const struct way *w, const char *what)
{
    const enum fault_kind kind = w->kind;
    switch (kind) {
    case FAULT_MEMORY:
    case FAULT_MAP:
        return STATUS_NO_MEMORY;
    case FAULT_THREAD: /* all but bench do with fewer */
        return benches() ? STATUS_FAILED : STATUS_OK;
    case FAULT_PROCESS:
    case FAULT_RENAME:
        return STATUS_FAILED;
    default:
        break;
    }
    if (strcmp(what, "standard output") == 0)
        return STATUS_FAILED;
    if (scenario_is_input(what) && kind == FAULT_CLOSE)
        return STATUS_OK;
    if (scenario_is_input(what)) /* no more descriptors: that is not the file's fault */
        return w->error == EMFILE ? STATUS_FAILED : STATUS_BAD_FILE;
    if (scenario_is_output(what))
        return STATUS_FAILED;
    if (strncmp(what, "pipe:", 5) == 0)
        return kind == FAULT_CLOSE ? STATUS_OK : STATUS_FAILED;
    return STATUS_OK; /* a folder, or is_optional */
}

/* Returns whether the run may go on after the fault. */
static bool may_go_on(const struct way *w, const char *what)
{
    if (strcmp(what, "standard output") == 0)
        return false;
    /* A list that cannot shrink stays as it is. A training that cannot save tries again the next
     * time. A file that is only read for a description, or is given up, may fail to close. */
    return strcmp(what, "realloc") == 0 || scenario_is(TRAINS) || w->kind == FAULT_CLOSE;
}

static bool is_allowed(int code, const struct way *w, const char *what)
{
    if (w->from_then_on && is_optional(what)) /* then it met one that counts */
        return code == STATUS_OK || code == STATUS_FAILED || code == STATUS_BAD_FILE;
    if (scenario_is(RESUMES) && strstr(what, ".state") && w->kind == FAULT_OPEN &&
        code == STATUS_BAD_FILE)
        return true; /* the state that it goes on from */
    return code == code_expected(w, what) || (code == STATUS_OK && may_go_on(w, what));
}

static bool names_an_output(const char *line)
{
    for (int i = 0; scenario_output(i); i++)
        if (strstr(line, scenario_output(i)))
            return true;
    return false;
}

static void expect_one_line(const struct ran *r, const struct way *w, const char *where)
{
    const char *what = faults_report()->what, *slash = strrchr(what, '/');
    ck_assert_msg(strncmp(r->err, "decode: ", 8) == 0 &&
                      strchr(r->err, '\n') == r->err + strlen(r->err) - 1,
                  "%s: expected one line, found \"%s\"", where, r->err);
    if (r->code == STATUS_NO_MEMORY) {
        ck_assert_msg(strstr(r->err, "memory"), "%s: %s", where, r->err);
    } else if (w->kind == FAULT_THREAD) {
        ck_assert_msg(strstr(r->err, "only 1 of 2 threads"), "%s: %s", where, r->err);
    } else if (strstr(what, ".decode-") ||
               (w->from_then_on && (scenario_is_output(what) || names_an_output(r->err)))) {
        /* A message names the file that a temporary would have become, and the last of several
         * faults. */
        ck_assert_msg(names_an_output(r->err), "%s: %s", where, r->err);
    } else if (!is_optional(what) && w->kind != FAULT_PROCESS && strncmp(what, "pipe:", 5) != 0) {
        ck_assert_msg(strstr(r->err, slash ? slash + 1 : what), "%s: it does not name it: %s",
                      where, r->err);
        ck_assert_msg(strstr(r->err, strerror(w->error)), "%s: it does not say why: %s", where,
                      r->err);
    }
}

static void judge(const struct ran *r, const struct way *w, const struct fault_plan *plan)
{
    const char *what = faults_report()->what, *where = scenario_where(plan);
    if (w->error == EPIPE && strcmp(what, "standard output") == 0) { /* as it ends cat */
        ck_assert_msg(r->signal == SIGPIPE && !strstr(r->err, "standard output"),
                      "%s: expected a silent SIGPIPE, found exit %d: %s", where, r->code, r->err);
        scenario_expect_kept(r, plan, false);
        return;
    }
    ck_assert_msg(r->signal == 0, "%s: ended by %s", where, strsignal(r->signal));
    ck_assert_msg(is_allowed(r->code, w, what), "%s: expected exit %d, found %d: %s", where,
                  code_expected(w, what), r->code, r->err);
    if (r->code == STATUS_OK)
        scenario_expect_done(r, plan);
    else
        expect_one_line(r, w, where);
    scenario_expect_kept(r, plan, true);
}

/* Lets the calls of the kind fail in their turn (see faults_next), and returns how many failed. */
static long fail_each(struct way w)
{
    long done = 0;
    const long calls = scenario_calls[w.kind], few = 6;
    for (long n = faults_next(-1, calls, few);; n = faults_next(n, calls, few), done++) {
        const struct fault_plan plan = {
            .kind = w.kind, .at = n, .from_then_on = w.from_then_on, .error = w.error};
        struct ran r;
        scenario_run(&r, &plan);
        if (!faults_report()->met) {
            scenario_expect_done(&r, &plan);
            return done;
        }
        judge(&r, &w, &plan);
    }
}

static void begin(int drawn)
{
    scenario_begin(faults_scenario(drawn, n_scenarios));
}

TEST(memory, .loops = faults_drawn(n_scenarios), .seconds = 300)
{
    begin(_i);
    const long once = fail_each((struct way){FAULT_MEMORY, ENOMEM, false});
    ck_assert_int_ge(once, 4); /* the faults did reach the program */
    fail_each((struct way){FAULT_MEMORY, ENOMEM, true});
    fail_each((struct way){FAULT_MAP, ENOMEM, false});
    scenario_end();
}

/* Calls for files, threads and processes fail. */
static const struct way groups[3][8] = {
    {{FAULT_OPEN, EIO, false},
     {FAULT_OPEN, EMFILE, true},
     {FAULT_READ, EIO, false},
     {FAULT_READ, EIO, true}},
    {{FAULT_WRITE, ENOSPC, false},
     {FAULT_WRITE, ENOSPC, true},
     {FAULT_WRITE, EPIPE, false},
     {FAULT_SYNC, EIO, false},
     {FAULT_SYNC, EIO, true},
     {FAULT_RENAME, EACCES, false},
     {FAULT_RENAME, EACCES, true},
     {FAULT_CLOSE, EIO, false}},
    {{FAULT_THREAD, EAGAIN, false},
     {FAULT_THREAD, EAGAIN, true},
     {FAULT_PROCESS, EAGAIN, false},
     {FAULT_PROCESS, EMFILE, true}},
};

TEST(calls_that_fail, .loops = 3 * faults_drawn(n_scenarios), .seconds = 300)
{
    begin(_i / 3);
    for (size_t i = 0; i < COUNT(*groups) && groups[_i % 3][i].error; i++)
        fail_each(groups[_i % 3][i]);
    scenario_end();
}

/* Blocks of 2 MiB and more are mapped, which takes more than the scenarios need. */
TEST(memory_that_is_mapped, .seconds = 300)
{
    static const char line[] = "bench --shape 1x16x2,ff=16,vocab=32768,ctx=16 --kv-heads 1 -t 1 "
                               "-n 1 --repeat 1 --warmup 0 --prompt 0";
    struct fault_plan plan = {.kind = FAULT_MAP, .error = ENOMEM};
    struct ran r;
    for (;; plan.at++) {
        run_program(&r, line, faults_arm, &plan);
        const struct fault_report *f = faults_report();
        ck_assert(f->returned && !f->blocks && !f->mapped_bytes && !f->threads && !f->descriptors);
        if (!f->met)
            break;
        expect_refusal(&r, STATUS_NO_MEMORY, "out of memory");
    }
    expect_success(&r);
    ck_assert_int_ge(plan.at, 2); /* the model, and the bandwidth's measurement */
}

static void expect_no_difference(const struct fault_plan *plan)
{
    struct ran r;
    scenario_run(&r, plan);
    scenario_expect_done(&r, plan);
    scenario_expect_kept(&r, plan, true);
}

/* These calls do not fail: an interrupted one has to be made again, and a short one to be
 * continued. */
TEST(interrupted_and_short_calls, .loops = faults_drawn(n_scenarios), .seconds = 300)
{
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC};
    begin(_i);
    for (int i = 0; i < 4; i++) {
        const long calls = scenario_calls[kinds[i]];
        for (long n = faults_next(-1, calls, 3); n < calls; n = faults_next(n, calls, 3)) {
            const struct fault_plan plan = {.kind = kinds[i], .at = n, .error = EINTR};
            expect_no_difference(&plan);
            ck_assert(faults_report()->met);
        }
    }
    expect_no_difference(&(struct fault_plan){.one_byte = true});
    scenario_end();
}

/* No file says how much memory there is. */
TEST(unknown_memory)
{
    struct fault_plan plan = {.kind = FAULT_OPEN, .from_then_on = true, .error = ENOENT};
    struct ran r;
    run_program(&r, "info --shape 1x16x2 --depth 1 --format json", faults_arm, &plan);
    expect_success(&r);
    expect_says(r.out, "\"memory_available_bytes\": null");
    run_program(&r, "info --shape 1x16x2 --depth 1", faults_arm, &plan);
    expect_success(&r);
    expect_says(r.out, "memory_available_bytes  unknown");
}

/* The scenario's command without -q. */
static const char *loud_line(void)
{
    static char line[1024];
    strcpy(line, scenario->line);
    char *quiet = strstr(line, " -q");
    if (quiet)
        memmove(quiet, quiet + 3, strlen(quiet + 3) + 1);
    return line;
}

/* Writing to standard error fails. */
static void fill_standard_error(void *unused)
{
    (void)unused;
    const int full = open("/dev/full", O_WRONLY);
    if (full < 0 || dup2(full, STDERR_FILENO) < 0)
        _exit(77);
}

static void break_standard_error(void *unused)
{
    (void)unused;
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
        _exit(77);
    close(ends[0]);
    close(ends[1]);
}

/* Lines are lost, and nothing else. A line for a crowded machine, which once ended the run with
 * exit 1, is lost as well. */
TEST(standard_error, .loops = faults_drawn(n_scenarios), .seconds = 300)
{
    static program_setup *const ways[] = {fill_standard_error, break_standard_error};
    const struct fault_plan none = {.at = 0};
    struct fault_plan threads = {.kind = FAULT_THREAD, .error = EAGAIN};
    struct ran r;
    begin(_i);
    for (int i = 0; i < 2; i++) {
        scenario_reset();
        run_program(&r, loud_line(), ways[i], NULL);
        scenario_expect_done(&r, &none);
        scenario_expect_kept(&r, &none, false);
        run_program(&r, "info missing.gguf", ways[i], NULL);
        ck_assert_int_eq(r.code, STATUS_BAD_FILE);
    }
    if (strstr(scenario->line, " -q") && !benches() && scenario_calls[FAULT_THREAD] > 0) {
        scenario_reset();
        run_program(&r, loud_line(), faults_arm, &threads);
        expect_success(&r);
        expect_says(r.err, "decode: only 1 of 2 threads could be started; ");
    }
    scenario_end();
}
