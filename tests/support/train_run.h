/*
 * train_run - training runs of a tiny model on a made-up text, for the suites of training.
 */
#ifndef TESTS_TRAIN_RUN_H
#define TESTS_TRAIN_RUN_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "kernel_data.h"
#include "support.h"
#include "train/private.h"

#define TEXT_LEN 3000

/* Words that follow one another by a rule, so that there is something to learn. */
static char words[TEXT_LEN];
static struct text text = {words, TEXT_LEN};

struct run {
    struct train_spec spec;
    char out[512];
    struct trainer *trainer;
    int stop_at;      /* the run stops after so many steps; -1: never */
    int steps, evals; /* events */
    double first_loss, last_loss, best;
    char folder[512], moved[528]; /* OUT's folder, and its name while it is moved away; else "" */
};

static inline bool stop(void *arg)
{
    const struct run *r = arg;
    return r->stop_at >= 0 && r->steps >= r->stop_at;
}

static inline void event(void *arg, const struct train_event *ev)
{
    struct run *r = arg;
    if (ev->kind == TRAIN_STEP) {
        r->first_loss = r->steps == 0 ? ev->loss : r->first_loss;
        r->last_loss = ev->loss;
        r->steps++;
    } else if (ev->kind == TRAIN_EVALUATED) {
        r->evals++;
        ck_assert(ev->best == (ev->val_loss < r->best));
        r->best = ev->best ? ev->val_loss : r->best;
    }
}

static inline void make_text(void)
{
    static const char *const parts[] = {"the ", "cat ",   "sat ", "on ",
                                        "a ",   "mat.\n", "dog ", "ran "};
    struct rng r;
    rng_seed(&r, 3, 3);
    size_t used = 0;
    unsigned last = 0;
    while (used + 8 < TEXT_LEN) {
        last = (last + 1 + rng_u32(&r) % 2) % 8;
        memcpy(words + used, parts[last], strlen(parts[last]));
        used += strlen(parts[last]);
    }
    memset(words + used, '.', TEXT_LEN - used);
}

static inline struct run make_run(const char *out)
{
    make_text();
    struct run r = {.stop_at = -1, .best = HUGE_VAL};
    snprintf(r.out, sizeof r.out, "%s", scratch_path(out));
    r.spec = (struct train_spec){
        .texts = &text,
        .n_texts = 1,
        .shape = {SIZES(2, 2, 1, 8, 32, 24, 256), .arch = arch_preset(text_of("gpt2")),
                  .d_model = 16, .norm_eps = 1e-5f},
        .n_steps = 12,
        .batch = 3,
        .length = 24,
        .warmup = 2,
        .lr = 3e-3,
        .weight_decay = 0.1,
        .clip = 1,
        .dropout = 0.1,
        .loss = {.text = 1},
        .val_fraction = 0.1,
        .eval_every = 5,
        .save_every = 4,
        .seed = 9,
        /* ThreadSanitizer sees every load and store of scalar kernels. */
        .kernels = THREAD_SANITIZED ? &kernels_scalar : fastest_kernels(),
        .callbacks = {.stop = stop},
        .event = event,
    };
    return r;
}

/* Opens and runs the training. Its spec points into *r, which must stay where it is. */
static inline enum status run(struct run *r, struct err *e)
{
    r->spec.out = r->out;
    r->spec.callbacks.arg = r;
    enum status s = trainer_open(&r->spec, &r->trainer, e);
    if (s == STATUS_OK)
        s = trainer_run(r->trainer, e);
    trainer_free(r->trainer);
    r->trainer = NULL;
    return s;
}

static inline void run_well(struct run *r)
{
    expect_ok(run(r, &err));
}

static inline void run_until(struct run *r, int stop_at)
{
    r->stop_at = stop_at;
    expect_status(run(r, &err), STATUS_INTERRUPTED, "");
}

static inline enum status resume(struct run *r, struct err *e)
{
    r->spec.resume = true;
    r->stop_at = -1;
    return run(r, e);
}

/* Returns the path with the suffix. Freed when the test ends. */
static inline char *with_suffix(const char *out, const char *suffix)
{
    char *path = allocated(strlen(out) + strlen(suffix) + 1);
    return strcat(strcpy(path, out), suffix);
}

static inline void assert_same_file(const char *a, const char *b)
{
    size_t n;
    const char *bytes = file_text(a, &n);
    expect_bytes(b, bytes, n);
}

static inline void assert_same_run(const struct run *a, const struct run *b)
{
    enum {
        BEFORE = 15 * 8,
        BEFORE_END = 17 * 8
    }; /* of the OUT before, which tells how often was saved */
    size_t n, m;
    const char *x = file_text(with_suffix(a->out, ".state"), &n);
    const char *y = file_text(with_suffix(b->out, ".state"), &m);
    assert_same_file(a->out, b->out);
    ck_assert_uint_eq(n, m);
    ck_assert_int_eq(memcmp(x, y, BEFORE), 0);
    ck_assert_int_eq(memcmp(x + BEFORE_END, y + BEFORE_END, n - 8 - BEFORE_END), 0); /* no hash */
}

/* Expects that the run fails in this way before its first step. */
static inline void refused(struct run *r, enum status expected, const char *message)
{
    r->steps = 0;
    expect_status(run(r, &err), expected, message);
    ck_assert_int_eq(r->steps, 0);
}

/* Runs up to a step; returns the bytes of the state that is saved then, and sets its path. The next
 * run resumes. */
static inline unsigned char *state_of(struct run *r, int stop_at, char **path, size_t *n)
{
    run_until(r, stop_at);
    r->spec.resume = true;
    *path = with_suffix(r->out, ".state");
    return (unsigned char *)file_text(*path, n);
}

/* Expects that a state in which one number has another value is refused as damaged. */
static inline void refused_with(struct run *r, const char *path, const unsigned char *bytes,
                                size_t n, size_t number, double value)
{
    unsigned char *other = memcpy(allocated(n), bytes, n);
    memcpy(other + number * sizeof value, &value, sizeof value);
    write_file(path, other, n);
    refused(r, STATUS_BAD_FILE, "damaged: it claims");
}

#endif
