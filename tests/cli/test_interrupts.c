/*
 * Raises a signal before the n-th call into the system, for one n after the other until the command
 * ends before that call. The exit code must be 130, or 0 with the work done; no temporary file may
 * be left, files must be the old or the whole new ones, and a training must be able to go on.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/signals.h"
#include "scenarios.h"
#include "support.h"

/* --- a signal at every call ------------------------------------------------------------------ */

static void judge(const struct ran *r, const struct fault_plan *plan)
{
    const char *where = scenario_where(plan);
    ck_assert_msg(r->signal == 0, "%s: ended by %s", where, strsignal(r->signal));
    ck_assert_msg(r->code == 0 || r->code == STATUS_INTERRUPTED, "%s: exit %d: %s", where, r->code,
                  r->err);
    ck_assert_msg(!r->err[0], "%s: it says %s", where, r->err);
    if (r->code == 0)
        scenario_expect_done(r, plan);
    if (scenario_is(TRAINS) && scenario_changed(0)) /* its state is saved, too */
        ck_assert_msg(access(scenario_output(1), F_OK) == 0, "%s: no state", where);
    scenario_expect_kept(r, plan, faults_report()->returned);
}

/* Raises the signal before the calls first, first + step and so on, without those that faults_next
 * leaves out. */
static void interrupt_each(int number, long first, long step, long few)
{
    const long calls = scenario_all_calls / step;
    for (long n = faults_next(-1, calls, few);; n = faults_next(n, calls, few)) {
        const struct fault_plan plan = {.at = first + n * step, .signal = number};
        struct ran r;
        scenario_run(&r, &plan);
        if (!faults_report()->met) {
            scenario_expect_done(&r, &plan);
            return;
        }
        judge(&r, &plan);
    }
}

/* The three signals have one handler, so SIGINT comes at every call, and the others at every
 * seventh. */
TEST(at_every_call, .loops = faults_drawn(n_scenarios), .seconds = 300)
{
    signal(SIGHUP, SIG_DFL); /* the suite may run under nohup */
    scenario_begin(faults_scenario(_i, n_scenarios));
    interrupt_each(SIGINT, 0, 1, 10);
    interrupt_each(SIGTERM, 0, 7, 3);
    interrupt_each(SIGHUP, 3, 7, 3);
    scenario_end();
}

/* --- while a text is waited for -------------------------------------------------------------- */

/* Nothing comes from standard input, and SIGINT comes while the program waits for it. */
static void wait_and_interrupt(void *context)
{
    (void)context;
    int ends[2];
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGINT};
    const struct itimerspec soon = {.it_value = {.tv_nsec = 150000000}};
    if (pipe(ends) != 0 || dup2(ends[0], STDIN_FILENO) != 0 ||
        timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &soon, NULL) != 0)
        _exit(77);
}

/* Once --calib - was read after signals were deferred, so that Ctrl-C did nothing during the wait.
 */
TEST(while_standard_input_is_waited_for, .seconds = 300)
{
    static const char *const lines[] = {
        "generate model.gguf -f -",
        "generate model.gguf --prompts -",
        "generate model.gguf --prompts - --batch 2 -t 2",
        "score model.gguf -f -",
        "eval model.gguf -",
        "convert model.gguf -o out.gguf --force --kv-heads 1 --calib -",
        "convert model.gguf -o out.gguf --force --kv-heads 1 --calib none --eval -",
        "tokenize model.gguf -f -",
    };
    scenario_begin(6); /* convert; for its files */
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct ran r;
        const struct fault_plan none = {.at = 0};
        run_program(&r, lines[i], wait_and_interrupt, NULL);
        ck_assert_msg(r.code == STATUS_INTERRUPTED, "%s: exit %d, signal %d: %s", lines[i], r.code,
                      r.signal, r.err);
        scenario_expect_kept(&r, &none, false);
    }
    scenario_end();
}

/* --- in a session ---------------------------------------------------------------------------- */

static void hold_a_session_from_a_file(void *plan)
{
    const int fd = open("lines.txt", O_RDONLY);
    if (fd < 0 || dup2(fd, STDIN_FILENO) != STDIN_FILENO)
        _exit(77);
    close(fd);
    faults_arm(plan);
}

static void run_session(struct ran *r, const struct fault_plan *plan)
{
    struct fault_plan copy = *plan;
    run_program(r, "generate model.gguf -i -p abc -t 2 -n 3 --shift --seed 1 -q",
                hold_a_session_from_a_file, &copy);
    ck_assert_msg(r->signal == 0, "%s: ended by %s: %s", scenario_where(plan), strsignal(r->signal),
                  r->err);
    ck_assert_msg(r->code == 0 || r->code == STATUS_INTERRUPTED, "%s: exit %d: %s",
                  scenario_where(plan), r->code, r->err);
    scenario_expect_kept(r, plan, faults_report()->returned);
}

/* Once a Ctrl-C before the first token of the first answer left a session without a text. */
TEST(in_a_session, .seconds = 300)
{
    static const char lines[] = "to be\n\nor\nnot\n\n";
    scenario_begin(0); /* generate; for its files */
    write_file("lines.txt", lines, sizeof lines - 1);
    struct ran r;
    struct fault_plan plan = {.at = 0};
    run_session(&r, &plan);
    ck_assert_int_eq(r.code, 0);
    plan.signal = SIGINT;
    const long calls = faults_report()->all;
    for (long n = faults_next(-1, calls, 20); n < calls; n = faults_next(n, calls, 20)) {
        plan.at = n;
        run_session(&r, &plan);
    }
    scenario_end();
}

/* --- what ends it at once ----------------------------------------------------------------------
 */

/* A write of this many bytes goes past the writer's buffer. */
#define LONG_WRITE 1000000

static void write_from_the_mapping(void *path)
{
    struct file_map map;
    struct file_writer *writer;
    signals_install();
    if (file_map_open(&map, path, &err) != STATUS_OK ||
        file_writer_open(&writer, scratch_path("out"), &err) != STATUS_OK ||
        truncate(path, 4096) != 0)
        _exit(78);
    file_writer_put(writer, map.data, map.len);
    file_writer_commit(writer, &err);
}

static void be_interrupted_twice(void *unused)
{
    (void)unused;
    signals_install();
    signals_defer();
    raise(SIGINT);
    raise(SIGTERM);
}

/* Once a file that was cut while a tensor was copied from it was called a failure of the output
 * ("cannot write: Bad address", exit code 1). (Class 12 of bad input cuts a file while weights are
 * read.) */
TEST(a_file_that_is_cut_while_it_is_copied)
{
    struct ran r;
    char path[512];
    strcpy(path, scratch_path("cut\033"));
    write_file(path, memset(allocated(LONG_WRITE), 'x', LONG_WRITE), LONG_WRITE);
    run_child(&r, write_from_the_mapping, path);
    expect_refusal(&r, STATUS_BAD_FILE,
                   "a file was cut short, or its disk failed, while it was read\n");
}

TEST(a_second_interrupt_kills)
{
    struct ran r;
    run_child(&r, be_interrupted_twice, NULL);
    ck_assert_int_eq(r.signal, SIGTERM);
    ck_assert_str_eq(r.err, "");
}
