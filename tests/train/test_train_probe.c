/*
 * The probe that finds the rate of a further training: what it tries and tells, that the held-out
 * part and the number of threads decide nothing, that a run interrupted in it goes on, that what it
 * takes is in no way another run than one given that rate.
 */
#include "train_run.h"

#define MOST_TRIALS 8

#define PROBE_TEST(name, ...)                                                                      \
    TEST(name, .before_all = make_source, .after_all = scratch_remove, __VA_ARGS__)

/* A run from a checkpoint, and what its probe told. */
struct probed {
    struct run run; /* first: the events' argument is both */
    int n, n_steps, n_chosen;
    double rates[MOST_TRIALS], losses[MOST_TRIALS], chosen;
    int stop_in_trial; /* stop once so many were told; -1: never */
};

static void hear(void *arg, const struct train_event *ev)
{
    struct probed *p = arg;
    if (ev->kind == TRAIN_TRIED) {
        ck_assert_int_lt(p->n, MOST_TRIALS);
        ck_assert_int_eq(p->n_chosen, 0);
        p->rates[p->n] = ev->lr;
        p->losses[p->n++] = ev->loss;
        p->n_steps = ev->step;
    } else if (ev->kind == TRAIN_CHOSEN) {
        p->n_chosen++;
        p->chosen = ev->lr;
    } else {
        event(&p->run, ev);
    }
}

static bool stop_early(void *arg)
{
    struct probed *p = arg;
    return (p->stop_in_trial >= 0 && p->n >= p->stop_in_trial) || stop(&p->run);
}

/* The checkpoint of a short training that has more to learn. */
static void make_source(void)
{
    struct run source = make_run("source.gguf");
    source.spec.n_steps = 30;
    run_well(&source);
}

static struct probed make_probed(const char *out)
{
    struct probed p = {.run = make_run(out), .stop_in_trial = -1};
    p.run.spec.from = opened_checkpoint(scratch_path("source.gguf"), CHECKPOINT_TOKENIZER).gguf;
    p.run.spec.lr = 0;
    p.run.spec.dropout = 0;
    p.run.spec.n_steps = 24;
    p.run.spec.event = hear;
    p.run.spec.stop = stop_early;
    return p;
}

/* The best is taken, of a run of no more steps than its trials the smallest that comes near. */
PROBE_TEST(the_best_trial_is_taken, .loops = 2, .tags = ONE_THREAD, .left_out = SANITIZED)
{
    struct probed p = make_probed("out.gguf");
    const int n_steps = _i ? 8 : 24;
    p.run.spec.n_steps = n_steps;
    run_well(&p.run);
    ck_assert_int_ge(p.n, 4); /* the checkpoint, two rates, and one at least on the better side */
    ck_assert(p.rates[0] == 0 && p.rates[1] == 3e-5 && p.rates[2] == 1e-4);
    ck_assert_int_eq(p.n_steps, _i ? 8 : 10);
    ck_assert_int_eq(p.n_chosen, 1);
    ck_assert_int_eq(p.run.steps, n_steps); /* those of the trials are none of the run's */
    double best = 0, expected = HUGE_VAL;
    for (int i = 1; i < p.n; i++)
        best = fmax(best, p.losses[0] - p.losses[i]);
    for (int i = 1; i < p.n; i++)
        if (p.losses[0] - p.losses[i] >= (_i ? 0.8 : 1) * best)
            expected = fmin(expected, p.rates[i]);
    ck_assert_double_gt(best, 0);
    ck_assert_double_eq(p.chosen, expected);
}

/* The weights are those of a run that is given what the probe found. */
PROBE_TEST(taken_is_as_good_as_given, .tags = TAKES_LONG)
{
    struct probed p = make_probed("probed.gguf"), given = make_probed("given.gguf");
    run_well(&p.run);
    given.run.spec.lr = p.chosen;
    run_well(&given.run);
    ck_assert(given.n == 0 && given.n_chosen == 0);
    assert_same_file(p.run.out, given.run.out);
}

/* Where the loss cannot fall nothing is changed: the weights of what was given, and a run at its
 * end. A share of 1 for a teacher that is the checkpoint itself leaves no gradient, and decay alone
 * makes it worse. */
PROBE_TEST(none_is_taken_where_none_helps, .tags = ONE_THREAD, .left_out = SANITIZED)
{
    struct probed p = make_probed("out.gguf"), given = make_probed("given.gguf");
    p.run.spec.teacher = p.run.spec.from;
    p.run.spec.teacher_share = 1;
    p.run.spec.weight_decay = 10;
    p.run.spec.clip = 1e-12;
    p.run.spec.keep_last = given.run.spec.keep_last = true;
    run_well(&p.run);
    ck_assert_int_eq(p.n_chosen, 1);
    ck_assert_msg(p.chosen == 0, "%g is better by %g", p.chosen, p.losses[0] - p.losses[1]);
    ck_assert_int_eq(p.run.steps, 0);
    given.run.spec.lr = 1e-30; /* moves no weight */
    given.run.spec.n_steps = 1;
    given.run.spec.warmup = 0;
    run_well(&given.run);
    assert_same_file(p.run.out, given.run.out);
    p.run.spec.resume = true;
    p.n = p.n_chosen = 0;
    run_well(&p.run);
    ck_assert(p.n == 0 && p.n_chosen == 0 && p.run.steps == 0);
}

/* A text without a window to spare: a small rate, without a trial. */
PROBE_TEST(short_text_is_not_probed, .tags = ONE_THREAD)
{
    struct probed p = make_probed("out.gguf");
    const struct text few = {words, 300};
    p.run.spec.texts = &few;
    run_well(&p.run);
    ck_assert_int_eq(p.n, 0);
    ck_assert_int_eq(p.n_chosen, 1);
    ck_assert_double_eq(p.chosen, 3e-5);
}

/* Windows that were drawn, where the probe keeps some aside, and what comes before this. */
struct seen {
    struct probed probed; /* first: the argument of both */
    int n_aside, n_drawn;
};

/* The last batch of a trial is none of those that are held out. */
static bool see_batch(void *arg)
{
    struct seen *seen = arg;
    const struct trainer *t = seen->probed.run.trainer;
    const struct windows *aside = &t->aside;
    const size_t length = (size_t)t->spec.length;
    if (aside->n == 0 || t->progress.step == 0)
        return false;
    seen->n_aside = (int)aside->n;
    for (int row = 0; row < t->spec.batch; row++) {
        size_t at = 0;
        while (memcmp(t->inputs + (size_t)row * length, t->data.train.ids + at,
                      length * sizeof *t->inputs) != 0)
            at++;
        for (size_t i = 0; i < aside->n; i++) {
            const size_t other = aside->n > 1 ? i * aside->last / (aside->n - 1) : 0;
            ck_assert_msg(at > other + length || other > at + length,
                          "a window at %zu, and the one at %zu is aside", at, other);
        }
        seen->n_drawn++;
    }
    return false;
}

/* One window, and several. */
PROBE_TEST(trials_leave_out_what_is_aside, .loops = SANITIZED ? 1 : 2, .tags = ONE_THREAD)
{
    static const size_t lengths[] = {600, 2000};
    struct seen seen = {.probed = make_probed("out.gguf")};
    const struct text some = {words, lengths[_i]};
    for (unsigned i = 0; i + 4 < TEXT_LEN; i += 4) /* each window is at one place only */
        snprintf(words + i, 5, "%03u ", i / 4 % 1000);
    seen.probed.run.spec.texts = &some;
    seen.probed.run.spec.stop = see_batch;
    run_well(&seen.probed.run);
    ck_assert_int_eq(seen.n_aside, _i ? 6 : 1);
    ck_assert_int_gt(seen.n_drawn, 80);
}

/* In the probe, before each trial's end, and after some steps; OUT best and last. */
PROBE_TEST(interrupted_probe_goes_on, .loops = 2, .tags = TAKES_LONG)
{
    struct probed whole = make_probed("whole.gguf");
    whole.run.spec.keep_last = _i;
    run_well(&whole.run);
    for (int told = whole.n; told >= 0; told -= 5) {
        struct probed parts = make_probed("parts.gguf");
        parts.run.spec.keep_last = _i;
        parts.stop_in_trial = told;
        if (told == whole.n) { /* all were told: in the steps that follow */
            parts.stop_in_trial = -1;
            parts.run.stop_at = 7;
        }
        ck_assert_int_eq(run(&parts.run, &err), STATUS_INTERRUPTED);
        parts.run.spec.resume = true;
        parts.stop_in_trial = parts.run.stop_at = -1;
        parts.n = parts.n_chosen = 0;
        const enum status s = run(&parts.run, &err);
        ck_assert_msg(s == STATUS_OK, "stopped after %d: %s", told, err.text);
        assert_same_run(&whole.run, &parts.run);
        ck_assert_int_eq(parts.n_chosen, told < whole.n); /* one that was chosen is kept */
    }
}

PROBE_TEST(impossible_rate_in_a_state_is_refused, .tags = ONE_THREAD)
{
    static const double rates[] = {-1e-4, (double)NAN, HUGE_VAL, 11, 0};
    struct probed p = make_probed("out.gguf");
    char *path;
    size_t n;
    const unsigned char *bytes = state_of(&p.run, 3, &path, &n);
    for (size_t i = 0; i < COUNT(rates); i++)
        refused_with(&p.run, path, bytes, n, 2 + STATE_FIELDS + 8, rates[i]);
}
