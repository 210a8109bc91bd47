#include "train/private.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/times.h"

const char *const train_optimizers[] = {"adamw", "muon", NULL};
const char *const train_parts[] = {"all", "attention", NULL};

static enum status make_plan(struct trainer *t, struct err *e)
{
    const struct tokens *train = &t->train, *val = &t->val;
    const size_t n = train->n + val->n;
    trainer_take(t);
    struct train_plan *p = &t->plan;
    *p = (struct train_plan){
        .config = t->config,
        .n_params = t->list.n_params,
        .train_tokens = train->n,
        .val_tokens = val->n,
        .val_scored = trainer_val_windows(t) * t->spec.length,
        .bytes_per_token = n ? (double)(train->n_bytes + val->n_bytes) / n : 0,
        .bits_per_nat = val->n_bytes ? (double)val->n / val->n_bytes / log(2) : 0,
        .resumed_step = t->progress.step,
        .best_loss = t->progress.best,
        .best_step = t->progress.best_step,
        .parameter_bytes = t->arena.used,
        .token_bytes = n * sizeof(int32_t),
        .state_bytes = (t->list.n_floats + 2 * t->list.n_trained) * sizeof(float)};
    for (size_t i = 0; i < t->gguf->n_tensors; i++)
        p->widened |= t->gguf->tensors[i].type->type != TENSOR_F32;
    struct backprop_spec params = {.config = &t->config,
                                   .list = &t->list,
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
    params.keeps_streams = train_compares_streams(&t->spec);
    TRY(backprop_create(&params, &t->teacher, e));
    p->teacher_bytes = backprop_bytes(t->teacher);
    return STATUS_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

static enum status check_sizes(const struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    if (spec->length > t->config.n_ctx)
        return err_usage(e, "--ctx %d: the checkpoint's context has %d tokens", spec->length,
                         t->config.n_ctx);
    if (spec->warmup >= spec->n_steps)
        return err_usage(e, "--warmup %d: expected fewer than the %d steps of --steps",
                         spec->warmup, spec->n_steps);
    return STATUS_OK;
}

/* The length and hash of OUT; 0 if there is none. */
static enum status hash_out(const struct trainer *t, struct written *out, struct err *e)
{
    struct file_map f;
    *out = (struct written){0};
    if (access(t->spec.out, F_OK) != 0)
        return STATUS_OK;
    const enum status s = file_map_open(&f, t->spec.out, e);
    if (s != STATUS_OK) /* it is this run's own: no bad input */
        return s == STATUS_BAD_FILE ? STATUS_FAILED : s;
    *out = (struct written){f.len, hash_bytes(HASH_START, f.data, f.len)};
    file_map_close(&f);
    return STATUS_OK;
}

static bool same_written(struct written a, struct written b)
{
    return a.len == b.len && a.hash == b.hash;
}

/* Checks that OUT is what this run wrote last, or the one before, because the run was killed
 * between the state and it; then it is stale. */
static enum status check_out(struct trainer *t, struct err *e)
{
    const struct train_progress *p = &t->progress;
    struct written found;
    TRY(hash_out(t, &found, e));
    t->out_is_stale = same_written(found, p->before) && !same_written(p->before, p->out);
    if (t->out_is_stale || same_written(found, p->out))
        return STATUS_OK;
    return err_failed(e,
                      "%s %s the checkpoint that this run wrote last; bring that back, or begin "
                      "anew with another OUT",
                      t->spec.out, found.len == 0 ? "is missing," : "is not");
}

static enum status open_run(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    const enum param_order order =
        spec->only == TRAINED_ATTENTION ? PARAMS_ATTENTION_FIRST : PARAMS_OF_FILE;
    if (spec->resume)
        TRY(state_open(&t->state, t->state_path, e));
    TRY(err_in_file(e, train_template_make(t, e), spec->from_path));
    TRY(check_sizes(t, e));
    TRY(err_in_file(e, param_list_create(&t->list, &t->config, spec->from, order, e),
                    spec->from_path));
    TRY(err_in_file(e, train_teacher_open(t, e), spec->teacher_path));
    TRY(train_data_read(t, e));
    TRY(state_identify(t, e));
    if (spec->resume) {
        TRY(state_compare(t, e));
        t->progress = t->state.header.progress;
        TRY(check_out(t, e));
    }
    return make_plan(t, e);
}

/* *path is the caller's to free; NULL on failure. */
static enum status make_state_path(char **path, const char *out, struct err *e)
{
    const size_t size = strlen(out) + sizeof ".state";
    TRY_ZEROED(*path, size, "a path", e);
    snprintf(*path, size, "%s.state", out);
    return STATUS_OK;
}

enum status train_saved_options(const char *out, struct bytes *options, struct err *e)
{
    struct state_file state = {.options = {0}};
    char *path;
    *options = (struct bytes){0};
    TRY(make_state_path(&path, out, e));
    enum status s = state_open(&state, path, e);
    if (s == STATUS_OK && !bytes_put(options, state.options))
        s = err_no_memory(e, "the options of a run", state.options.len);
    file_map_close(&state.file);
    free(path);
    return s;
}

enum status trainer_open(const struct train_spec *spec, struct trainer **out, struct err *e)
{
    struct trainer *t;
    *out = NULL;
    TRY_ZEROED(t, 1, "the trainer", e);
    t->spec = *spec;
    t->grad = spec->kernels->grad;
    t->spec.keep_last = spec->keep_last || spec->val_fraction <= 0;
    t->progress.best = HUGE_VAL;
    enum status s = make_state_path(&t->state_path, spec->out, e);
    if (s == STATUS_OK)
        s = open_run(t, e);
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
    free(t->train.ids);
    free(t->val.ids);
    tokenizer_free(t->tokenizer);
    gguf_free(t->owned_gguf);
    free(t->bytes);
    file_map_close(&t->state.file);
    free(t->state_path);
    free(t);
}

/* --- OUT and OUT.state ----------------------------------------------------------------------- */

/*
 * Both are replaced atomically, OUT.state first. It knows length and hash of the OUT that belongs
 * to it, and of the one before: a run that is killed between the two files has the weights of its
 * OUT in the state, and writes it when it is resumed. With keep_last OUT has the weights of the
 * state and is written with it at every save; else it has those of the best evaluation, and both
 * are written when that is made, the state at other saves, too.
 */

/* Reports an event of the present step to the caller, if it wants any. */
static void report_event(const struct trainer *t, struct train_event ev)
{
    ev.step = t->progress.step;
    if (t->spec.event)
        t->spec.event(t->spec.callbacks.arg, &ev);
}

static enum status write_out(const struct trainer *t, struct err *e)
{
    struct gguf_writer *w;
    TRY(train_model_writer(t, &w, e));
    const enum status s = gguf_write(w, t->spec.out, e);
    gguf_writer_free(w);
    return s;
}

/* Writes the state and, if it is to have the present weights, OUT. */
static enum status save(struct trainer *t, bool with_out, struct err *e)
{
    struct train_progress *p = &t->progress;
    struct gguf_writer *w = NULL;
    size_t len;
    if (t->saved_step == p->step && !with_out)
        return STATUS_OK;
    with_out |= t->spec.keep_last || p->out.len == 0;
    p->before = p->out;
    if (with_out) {
        TRY(train_model_writer(t, &w, e));
        const enum status s = gguf_write_hash(w, &p->out.hash, &len, e);
        gguf_writer_free(w);
        TRY(s);
        p->out.len = len;
    }
    TRY(state_write(t, e));
    if (with_out)
        TRY(write_out(t, e));
    t->saved_step = p->step;
    return STATUS_OK;
}

/* --- running --------------------------------------------------------------------------------- */

/* Takes the memory and sets weights, moments and random generator for the first step. */
static enum status start_run(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    TRY(arena_allocate(&t->arena, "parameters and moments", e));
    trainer_take(t);
    t->saved_step = -1;
    if (spec->resume) {
        t->saved_step = t->progress.step;
        state_read(t);
        file_map_close(&t->state.file);
        if (t->out_is_stale)
            TRY(write_out(t, e));
    } else {
        if (spec->from)
            param_list_read(&t->list, spec->from, t->weights.flat);
        else
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

/* Measures the held-out loss, *loss; *best: it is the lowest so far. */
static enum status evaluate(struct trainer *t, double *loss, bool *best, struct err *e)
{
    const uint64_t before = clock_ns();
    TRY(trainer_val_loss(t, loss, e));
    *best = *loss < t->progress.best;
    report_event(
        t, (struct train_event){.kind = TRAIN_EVALUATED,
                                .loss = t->loss_steps ? t->loss_sum / t->loss_steps : (double)NAN,
                                .val_loss = *loss,
                                .val_bits = *loss * t->plan.bits_per_nat,
                                .best = *best,
                                .ns = clock_ns() - before});
    t->loss_sum = 0;
    t->loss_steps = 0;
    return STATUS_OK;
}

/* Evaluates and saves where it is time to. */
static enum status after_step(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    struct train_progress *p = &t->progress;
    double loss = 0;
    bool best = false;
    if (spec->val_fraction > 0 && spec->eval_every > 0 && step_is_due(t, spec->eval_every))
        TRY(evaluate(t, &loss, &best, e));
    if (best) {
        p->best = t->plan.best_loss = loss;
        p->best_step = t->plan.best_step = p->step;
    }
    const bool writes_best = best && !spec->keep_last;
    return writes_best || (p->step > 0 && step_is_due(t, spec->save_every))
               ? save(t, writes_best, e)
               : STATUS_OK;
}

static enum status make_step(struct trainer *t, struct err *e)
{
    const uint64_t before = clock_ns();
    struct train_event event = {.kind = TRAIN_STEP};
    TRY(trainer_step(t, &event, e));
    event.ns = clock_ns() - before;
    t->loss_sum += event.loss;
    t->loss_steps++;
    report_event(t, event);
    return STATUS_OK;
}

enum status trainer_run(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    TRY(start_run(t, e));
    if (spec->from && !spec->resume) /* what is to be improved */
        TRY(after_step(t, e));
    while (t->progress.step < spec->n_steps) {
        if (callbacks_stop(&spec->callbacks)) {
            TRY(save(t, false, e));
            return STATUS_INTERRUPTED;
        }
        TRY(make_step(t, e));
        TRY(after_step(t, e));
    }
    return check_out(t, e);
}
