#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/times.h"
#include "train/data.h"
#include "train/private.h"
#include "train/state.h"
#include "train/steps.h"

/* An evaluation predicts at most about so many tokens, evenly spread over the held-out part. */
#define VAL_TOKENS 131072

/* The status of reading the file at `path`, which the message names. */
static enum status in_file(enum status s, const char *path, struct err *e)
{
    if (s == STATUS_BAD_FILE && path)
        err_prefix(e, path);
    return s;
}

/* --- the plan -------------------------------------------------------------------------------- */

/* The held-out windows that an evaluation scores. */
static struct windows val_windows(const struct trainer *t)
{
    const size_t length = t->spec.length, most = VAL_TOKENS / length + 1;
    const size_t all = t->spec.val_fraction > 0 ? (t->data.val.n - 1) / length : 0;
    return trainer_windows(&t->data.val, MIN(all, most), t->spec.length);
}

static enum status make_plan(struct trainer *t, struct err *e)
{
    const struct tokens *train = &t->data.train, *val = &t->data.val;
    const size_t n = train->n + val->n;
    trainer_take(t);
    struct train_plan *p = &t->plan;
    *p = (struct train_plan){.config = t->config,
                             .n_params = t->list.n_params,
                             .train_tokens = train->n,
                             .val_tokens = val->n,
                             .val_scored = val_windows(t).n * t->spec.length,
                             .bytes_per_token = n ? (double)(train->n_bytes + val->n_bytes) / n : 0,
                             .bits_per_nat =
                                 val->n_bytes ? (double)val->n / val->n_bytes / log(2) : 0,
                             .seed = t->spec.seed,
                             .resumed_step = t->progress.step,
                             .best_loss = t->progress.best,
                             .best_step = t->progress.best_step,
                             .parameter_bytes = t->arena.used,
                             .token_bytes = n * sizeof(int32_t)};
    for (size_t i = 0; i < t->gguf->n_tensors; i++)
        p->widened |= t->gguf->tensors[i].type->type != TENSOR_F32;
    struct backprop_spec params = {.config = &t->config,
                                   .n_sequences = t->spec.batch,
                                   .length = t->spec.length,
                                   .dropping = t->spec.dropout > 0,
                                   .taught = t->spec.teacher != NULL,
                                   .kernels = t->spec.kernels,
                                   .pool = t->spec.pool};
    TRY(backprop_create(&params, &t->engine, e));
    p->activation_bytes = backprop_bytes(t->engine);
    if (!t->spec.teacher)
        return STATUS_OK;
    params.config = &t->teacher_config;
    params.forward_only = true;
    params.dropping = params.taught = false;
    TRY(backprop_create(&params, &t->teacher, e));
    p->teacher_bytes = backprop_bytes(t->teacher);
    return STATUS_OK;
}

static enum status open_run(struct trainer *t, struct err *e)
{
    struct train_spec *spec = &t->spec;
    const struct config *c = &t->config;
    const struct train_progress *found = &t->state.header.progress, *p = &t->progress;
    enum status s;
    if (spec->resume && access(t->state_path, F_OK) != 0)
        return err_usage(e, "--resume: there is no %s to go on with", t->state_path);
    if (spec->resume) {
        TRY(file_map_open(&t->state.file, t->state_path, e));
        TRY(state_parse(&t->state, t->state_path, e));
        if (!spec->seed_given)
            spec->seed = t->state.header.identity[STATE_SEED];
    }
    TRY(in_file(train_template_make(t, e), spec->from_path, e));
    if (spec->length > c->n_ctx)
        return err_usage(e, "--ctx %d: the checkpoint's context has %d tokens", spec->length,
                         c->n_ctx);
    if (spec->warmup >= spec->n_steps)
        return err_usage(e, "--warmup %d: expected fewer than the %d steps of --steps",
                         spec->warmup, spec->n_steps);
    TRY(in_file(param_list_create(&t->list, c, spec->from, e), spec->from_path, e));
    if (spec->teacher) {
        s = train_teacher_check(t, e);
        if (s == STATUS_OK)
            s = param_list_create(&t->teacher_list, &t->teacher_config, spec->teacher, e);
        TRY(in_file(s, spec->teacher_path, e));
    }
    TRY(train_data_read(t, e));
    state_identify(t);
    if (!spec->resume)
        return make_plan(t, e);

    TRY(state_compare(t, e));
    t->progress = *found;
    const bool unrated = spec->lr == 0 && p->rate == 0 && p->step > 0 && p->step < spec->n_steps;
    if (p->step > spec->n_steps || unrated)
        return err_bad_file(e, "%s: damaged: it claims %d steps of %d%s", t->state_path,
                            (int)p->step, spec->n_steps, unrated ? " without a rate" : "");
    t->out_written = !spec->keep_last && isfinite(p->best);
    if (t->out_written && access(spec->out, F_OK) != 0)
        return err_failed(e,
                          "%s is missing, which had the best checkpoint so far (of step %d); bring "
                          "it back, or begin anew without --resume",
                          spec->out, (int)p->best_step);
    return make_plan(t, e);
}

enum status trainer_open(const struct train_spec *spec, struct trainer **out, struct err *e)
{
    *out = NULL;
    struct trainer *t = calloc(1, sizeof *t);
    const size_t path_size = strlen(spec->out) + sizeof ".state";
    if (t)
        t->state_path = malloc(path_size);
    if (!t || !t->state_path) {
        free(t);
        return err_no_memory(e, "the trainer", sizeof *t + path_size);
    }
    snprintf(t->state_path, path_size, "%s.state", spec->out);
    t->spec = *spec;
    t->grad = spec->kernels->grad;
    t->spec.keep_last = spec->keep_last || spec->val_fraction <= 0;
    t->progress.best = HUGE_VAL;
    const enum status s = open_run(t, e);
    t->spec.texts = NULL;
    if (s == STATUS_OK)
        *out = t;
    else
        trainer_free(t);
    return s;
}

const struct train_plan *trainer_plan(const struct trainer *t)
{
    return &t->plan;
}

void trainer_free(struct trainer *t)
{
    if (!t)
        return;
    backprop_free(t->engine);
    backprop_free(t->teacher);
    arena_free(&t->arena);
    param_list_free(&t->list);
    param_list_free(&t->teacher_list);
    free(t->data.train.ids);
    free(t->data.val.ids);
    tokenizer_free(t->tokenizer);
    gguf_free(t->owned_gguf);
    free(t->bytes);
    file_map_close(&t->state.file);
    free(t->state_path);
    free(t);
}

/* --- saving ---------------------------------------------------------------------------------- */

static void report_event(const struct trainer *t, struct train_event ev)
{
    ev.step = t->progress.step;
    train_tell(&t->spec, ev);
}

/* Whether OUT has the length and hash that t->progress says, so that this run has written it. They
 * are then set to those that it has. */
static enum status look_at_out(struct trainer *t, bool *is_ours, struct err *e)
{
    struct train_progress *p = &t->progress;
    struct file_map f;
    *is_ours = false;
    const enum status s = file_map_open(&f, t->spec.out, e);
    if (s != STATUS_OK) /* it is this run's own: no bad input */
        return s == STATUS_BAD_FILE ? STATUS_FAILED : s;
    const uint64_t hash = hash_bytes(HASH_START, f.data, f.len);
    *is_ours = p->out_len == f.len && p->out_hash == hash;
    p->out_len = f.len;
    p->out_hash = hash;
    file_map_close(&f);
    return STATUS_OK;
}

static enum status write_out(struct trainer *t, struct err *e)
{
    bool is_ours;
    TRY(train_model_write(t, e));
    TRY(look_at_out(t, &is_ours, e));
    t->out_written = true;
    return STATUS_OK;
}

/* Writes OUT, if it is to have the present weights, and then the state. */
static enum status save(struct trainer *t, struct err *e)
{
    if (t->saved_step == t->progress.step)
        return STATUS_OK;
    const enum status s = t->spec.keep_last || !t->out_written ? write_out(t, e) : STATUS_OK;
    report_event(t, (struct train_event){.kind = TRAIN_SAVING});
    TRY(s);
    TRY(state_write(t, e));
    t->saved_step = t->progress.step;
    report_event(t, (struct train_event){.kind = TRAIN_SAVED});
    return STATUS_OK;
}

/* --- running --------------------------------------------------------------------------------- */

/* Takes the memory and sets weights, moments and random generator as the first step is to find
 * them. */
static enum status start_run(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    TRY(arena_allocate(&t->arena, "parameters and moments", e));
    trainer_take(t);
    t->saved_step = -1;
    if (spec->resume) {
        t->saved_step = t->progress.step;
        TRY(state_read(t, e));
        file_map_close(&t->state.file);
    } else if (spec->from) {
        trainer_rewind(t);
    } else {
        trainer_initialise(t);
        rng_seed(&t->progress.rng, spec->seed, STREAM_WINDOWS);
    }
    TRY(backprop_start(t->engine, t->weights.w[ROLE_ROPE_FREQS].weight, e));
    if (!spec->teacher)
        return STATUS_OK;
    param_list_read(&t->teacher_list, spec->teacher, t->teacher_weights.flat);
    return backprop_start(t->teacher, t->teacher_weights.w[ROLE_ROPE_FREQS].weight, e);
}

static bool step_is_due(const struct trainer *t, int every)
{
    return t->progress.step == t->spec.n_steps || t->progress.step % every == 0;
}

/* Evaluates and saves where it is time to. The best so far becomes OUT; where that cannot be
 * written, the old best stays to be beaten. In the middle of a run a failure to save is no reason
 * to lose what is in memory: it is told, and tried again at the next save. */
static enum status after_step(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    struct train_progress *p = &t->progress;
    struct err failure = {""};
    enum status saved = STATUS_OK;
    if (spec->val_fraction > 0 && spec->eval_every > 0 && step_is_due(t, spec->eval_every)) {
        const uint64_t before = clock_ns();
        const struct windows held_out = val_windows(t);
        const double loss = trainer_loss(t, &held_out);
        if (!isfinite(loss))
            return trainer_not_finite(t, "held-out loss", loss, e);
        const bool best = loss < p->best;
        report_event(t, (struct train_event){.kind = TRAIN_EVALUATED,
                                             .loss = t->loss_steps ? t->loss_sum / t->loss_steps
                                                                   : (double)NAN,
                                             .val_loss = loss,
                                             .val_bits = loss * t->plan.bits_per_nat,
                                             .best = best,
                                             .ns = clock_ns() - before});
        t->loss_sum = 0;
        t->loss_steps = 0;
        if (best) {
            t->plan.best_loss = loss;
            t->plan.best_step = p->step;
        }
        if (best && !spec->keep_last)
            saved = write_out(t, &failure);
        if (best && saved == STATUS_OK) {
            p->best = loss;
            p->best_step = p->step;
        }
    }
    if (saved == STATUS_OK && p->step > 0 && step_is_due(t, spec->save_every))
        saved = save(t, &failure);
    if (saved == STATUS_OK)
        return STATUS_OK;
    if (p->step == spec->n_steps) {
        *e = failure;
        return saved;
    }
    report_event(t, (struct train_event){.kind = TRAIN_NOT_SAVED, .message = failure.text});
    return STATUS_OK;
}

static enum status run_to_the_end(struct trainer *t, struct err *e)
{
    struct train_spec *spec = &t->spec;
    struct train_progress *p = &t->progress;
    bool is_ours;
    TRY(start_run(t, e));
    /* A run that is done and resumed makes no step: where OUT is the last state, and not there as
     * it was written, it is written again. */
    if (spec->resume && p->step == spec->n_steps && !t->out_written) {
        look_at_out(t, &is_ours, NULL);
        t->saved_step = is_ours ? t->saved_step : -1;
        TRY(save(t, e));
    }
    /* A checkpoint that is trained further is evaluated before its first step. */
    if (spec->from && !spec->resume)
        TRY(after_step(t, e));
    /* Where no rate is given, it is the state's or is found by trials, after which everything is as
     * before the first step. If no rate helps, the run ends here. */
    if (spec->lr > 0) {
        p->rate = spec->lr;
    } else if (p->rate == 0 && p->step == 0) {
        const enum status s = trainer_probe(t, e);
        trainer_rewind(t);
        TRY(s);
        if (p->rate == 0) {
            p->step = spec->n_steps;
            TRY(after_step(t, e));
        }
    }
    spec->lr = p->rate;
    while (p->step < spec->n_steps) {
        if (train_stopped(spec))
            return STATUS_INTERRUPTED;
        const uint64_t before = clock_ns();
        struct train_event event = {.kind = TRAIN_STEP};
        TRY(trainer_step(t, &event, e));
        event.ns = clock_ns() - before;
        t->loss_sum += event.loss;
        t->loss_steps++;
        report_event(t, event);
        TRY(after_step(t, e));
    }
    /* Not before: a run that was killed between OUT and OUT.state has an OUT that is newer than
     * its state, and writes it again on its way here. */
    if (spec->keep_last || !isfinite(p->best))
        return STATUS_OK;
    TRY(look_at_out(t, &is_ours, e));
    if (is_ours)
        return STATUS_OK;
    return err_failed(e,
                      "%s is not the best checkpoint of this run (of step %d), but another file; "
                      "bring it back, or begin anew without --resume",
                      spec->out, (int)p->best_step);
}

enum status trainer_run(struct trainer *t, struct err *e)
{
    const enum status s = run_to_the_end(t, e);
    if (s == STATUS_INTERRUPTED)
        TRY(save(t, e));
    return s;
}
