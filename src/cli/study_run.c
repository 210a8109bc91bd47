/*
 * The cells of a study, each made as the commands that -v shows would make it alone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figures.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/study.h"
#include "cli/train_options.h"
#include "cli/variant.h"
#include "measure/eval.h"
#include "model/kv_cache.h"
#include "train/train.h"

_Static_assert(STUDY_FIT - STUDY_MEAN == CONVERT_FIT, "methods are in the order of convert's");

/* --- command lines --------------------------------------------------------------------------- */

struct study_given study_given(const struct option *table, const void *values)
{
    struct study_given s = {""};
    size_t len = 0;
    for (const struct option *o = table; o->kind != OPTION_END; o++) {
        const void *at = (const char *)values + o->offset;
        const double given = o->kind == OPTION_FLAG     ? *(const bool *)at
                             : o->kind == OPTION_DOUBLE ? *(const double *)at
                                                        : *(const int *)at;
        double otherwise = 0; /* without a fallback: 0 is none given */
        if (o->fallback)
            parse_double(o->fallback, &otherwise);
        if (given == otherwise || len >= sizeof s.text)
            continue;
        const struct figure number = figure_exact(given);
        len += (size_t)snprintf(s.text + len, sizeof s.text - len, " --%s%s%s", o->name,
                                o->kind == OPTION_FLAG ? "" : " ",
                                o->kind == OPTION_FLAG     ? ""
                                : o->kind == OPTION_CHOICE ? o->choices[(int)given - 1]
                                                           : number.text);
    }
    return s;
}

/* With -v, the command that makes what comes now, as a shell reads it back: its options (one
 * without a value is not given, one without a name the last), then others as a text. */
struct shown {
    const char *option, *value;
};
static void show_command(const struct study_job *job, const char *name, const struct shown *options,
                         const char *more)
{
    /* Bytes that mean nothing but themselves to a shell. */
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+-";
    const struct common_options *common = &job->options->common;
    char line[4096] = "";
    FILE *f = common->verbose ? fmemopen(line, sizeof line, "w") : NULL;
    if (!f)
        return;
    for (; options->option; options++) {
        const char *value = options->value;
        if (!value)
            continue;
        const char *quote = value[0] && !value[strspn(value, plain)] ? "" : "'";
        fprintf(f, "%s %s", options->option, quote);
        for (; *value; value++) /* the text's own quotes are taken out of ours */
            fprintf(f, *value == '\'' ? "'\\%c'" : "%c", *value);
        fputs(quote, f);
    }
    fclose(f);
    say(common, "%s%s -q%s", name, line, more);
}

/* --- training -------------------------------------------------------------------------------- */

static struct study_path path_of(const struct study_job *job, const struct study_cell *cell,
                                 const char *suffix)
{
    return study_path(job->options->dir, cell->name, suffix);
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The trainer's `event`. */
static void hear(void *arg, const struct train_event *ev)
{
    struct study_job *job = arg;
    if (ev->kind == TRAIN_STEP)
        progress_show_share(&job->progress, (uint64_t)job->n_done, (uint64_t)job->n_all,
                            (job->n_done + (double)ev->step / job->current->steps) / job->n_all);
}

static enum status run_training(struct train_spec *spec, const struct train_shape *shape,
                                struct err *e)
{
    struct checkpoint from = {.gguf = NULL}, teacher = {.gguf = NULL};
    struct trainer *t = NULL;
    enum status s = train_spec_complete(spec, shape, &from, &teacher, e);
    if (s == STATUS_OK)
        s = trainer_open(spec, &t, e);
    if (s == STATUS_OK)
        s = trainer_run(t, e);
    trainer_free(t);
    checkpoint_close(&from);
    checkpoint_close(&teacher);
    return s;
}

static enum status train_cell(struct study_job *job, const struct study_cell *cell,
                              const char *whole, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_cell *origin = study_origin(&job->plan, cell);
    const struct study_path part = path_of(job, cell, ".part.gguf"),
                            state = path_of(job, cell, ".part.gguf.state"),
                            from = path_of(job, origin ? origin : cell, ".gguf"),
                            base = path_of(job, study_base(&job->plan, cell), ".gguf");
    struct train_shape shape = o->shape;
    struct train_spec spec = o->steps;
    char kv_heads[12], seed[24], more[5 * sizeof(struct study_given)];
    if (origin) { /* has a shape, and the rate and the rest are of the first training alone */
        spec.from_path = from.text;
        spec.lr = spec.dropout = spec.attn_dropout = spec.label_smoothing = 0;
        spec.warmup = -1;
        shape = (struct train_shape){.n_ctx = o->shape.n_ctx};
    } else if (cell->method == STUDY_SCRATCH) {
        snprintf(kv_heads, sizeof kv_heads, "%d", cell->kv_heads);
        shape.kv_heads = kv_heads;
    }
    spec.texts = &job->run->text;
    spec.n_texts = 1;
    spec.out = part.text;
    spec.teacher_path = cell->taught ? base.text : NULL;
    spec.n_steps = cell->steps;
    spec.eval_every = -1;
    spec.keep_last = spec.seed_given = true;
    spec.resume = is_there(state.text);
    spec.seed = cell->seed;
    spec.kernels = job->run->kernels;
    spec.pool = job->run->pool;
    spec.stop = progress_stop;
    spec.event = hear;
    spec.arg = job;
    snprintf(seed, sizeof seed, "%" PRIu64, spec.seed);
    snprintf(more, sizeof more, " --eval-every -1%s%s%s%s%s",
             study_given(train_step_options, &spec).text,
             study_given(train_held_out_options, &spec).text,
             study_given(train_size_options, &shape).text,
             study_given(train_kind_options, &shape).text,
             spec.resume           ? " --resume"
             : is_there(part.text) ? " --force"
                                   : "");
    show_command(job, "train",
                 (const struct shown[]){{"", o->common.file},
                                        {" --threads", o->common.threads},
                                        {" --output", part.text},
                                        {" --seed", seed},
                                        {" --from", spec.from_path},
                                        {" --kv-heads", shape.kv_heads},
                                        {" --teacher", spec.teacher_path},
                                        {NULL, NULL}},
                 more);
    if (path_same(part.text, o->common.file))
        return err_set(e, STATUS_USAGE, "'%.200s' is the text itself, which would be overwritten",
                       part.text);
    TRY(path_writable(part.text, e));
    TRY(run_training(&spec, &shape, e));
    if (rename(part.text, whole) != 0)
        return err_set(e, STATUS_FAILED, "%.200s: cannot be renamed: %s", part.text,
                       strerror(errno));
    unlink(state.text);
    return STATUS_OK;
}

/* --- conversion ------------------------------------------------------------------------------ */

static enum status convert_cell(struct study_job *job, const struct study_cell *cell,
                                const char *whole, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_path origin = path_of(job, study_origin(&job->plan, cell), ".gguf"),
                            calib = study_path(o->dir, STUDY_CALIB, "");
    const bool is_latent = cell->method == STUDY_LATENT;
    char number[12], seed[24];
    snprintf(number, sizeof number, "%d", is_latent ? cell->latent : cell->kv_heads);
    snprintf(seed, sizeof seed, "%" PRIu64, cell->seed);
    const struct variant_options v = {
        .kv_heads = is_latent ? NULL : number,
        .latent = is_latent ? number : NULL,
        .method = is_latent ? CONVERT_FIT : (int)cell->method - STUDY_MEAN,
        .calib = is_latent || cell->method == STUDY_FIT ? calib.text : NULL,
        .calib_tokens = VARIANT_CALIB_TOKENS};
    show_command(job, "convert",
                 (const struct shown[]){{"", origin.text},
                                        {" --threads", o->common.threads},
                                        {" --output", whole},
                                        {" --kv-heads", v.kv_heads},
                                        {" --latent", v.latent},
                                        {" --method", is_latent ? NULL : cell->method_name},
                                        {" --calib", v.calib},
                                        {" --seed", cell->method == STUDY_RANDOM ? seed : NULL},
                                        {NULL, NULL}},
                 "");
    struct convert_spec spec;
    struct convert converted;
    struct job source = {.common = &job->quiet,
                         .path = origin.text,
                         .kernels = job->run->kernels,
                         .pool = job->run->pool,
                         .seed = cell->seed};
    TRY(path_writable(whole, e));
    TRY(job_open(origin.text, 0, &source.checkpoint, e));
    enum status s = variant_check_types(source.checkpoint.gguf, origin.text, e);
    if (s == STATUS_OK)
        s = variant_convert(&source, &v, &spec, &converted, e);
    if (s == STATUS_OK) {
        s = gguf_write(converted.writer, whole, e);
        if (s == STATUS_BAD_FILE)
            err_prefix(e, origin.text);
        convert_free(&converted);
    }
    checkpoint_close(&source.checkpoint);
    return s;
}

/* --- measuring ------------------------------------------------------------------------------- */

/* The bits per byte of the held-out part, and the cache. */
static enum status measure_cell(struct study_job *job, struct study_cell *cell, const char *whole,
                                struct err *e)
{
    const struct study_options *o = job->options;
    const size_t cut = train_part(o->steps.val_fraction, job->run->text.len);
    const struct text held_out = {job->run->text.data + cut, job->run->text.len - cut};
    char range[48];
    snprintf(range, sizeof range, "%s:1", figure_exact(1 - o->steps.val_fraction).text);
    show_command(job, "eval",
                 (const struct shown[]){{"", whole},
                                        {" --threads", o->common.threads},
                                        {" --text", o->common.file},
                                        {" --range", range},
                                        {" --format", "jsonl"},
                                        {NULL, NULL}},
                 "");
    struct checkpoint c;
    struct eval_result result;
    int32_t *tokens = NULL;
    size_t n;
    TRY(job_open(whole, CHECKPOINT_MODEL | JOB_TOKENIZES, &c, e));
    enum status s =
        tokens_of_text(c.tokenizer, held_out, tokenizer_adds_bos(c.tokenizer), &tokens, &n, e);
    if (s == STATUS_OK) {
        const struct eval_spec spec = {.model = c.model,
                                       .params = {.kernels = job->run->kernels},
                                       .pool = job->run->pool,
                                       .tokens = tokens,
                                       .n_tokens = n,
                                       .tokenizer = c.tokenizer,
                                       .stop = progress_stop};
        s = eval_run(&spec, &result, e);
    }
    if (s == STATUS_OK) {
        cell->bits_per_byte = result.bits_per_byte;
        cell->cache_bytes_per_token =
            kv_cache_bytes_per_token(&c.model->config, c.model->config.n_kv_heads, STORAGE_F32);
    }
    free(tokens);
    checkpoint_close(&c);
    return s;
}

/* --- cells ----------------------------------------------------------------------------------- */

enum status study_lock(const struct study_job *job, const char *name, struct err *e)
{
    const struct study_options *o = job->options;
    for (bool taken, told = false;; told = true) {
        if (progress_stop(NULL))
            return STATUS_INTERRUPTED;
        TRY(study_lock_try(job->lock, name, &taken, e));
        if (taken)
            return STATUS_OK;
        if (!told)
            say(&o->common, "%s: waiting for another run in '%.200s'", name[0] ? name : "study",
                o->dir);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

/* What another run has made in the meantime is taken as it is. */
static enum status finish_cell(struct study_job *job, struct study_cell *cell, struct err *e)
{
    const struct study_path whole = path_of(job, cell, ".gguf");
    TRY(study_record_read(job->options->dir, cell, e));
    if (cell->done && is_there(whole.text))
        return STATUS_OK;
    cell->done = false;
    if (!is_there(whole.text)) {
        const uint64_t before = clock_ns();
        TRY(study_converts(cell->method) && cell->alpha == 0
                ? convert_cell(job, cell, whole.text, e)
                : train_cell(job, cell, whole.text, e));
        cell->seconds = (double)(clock_ns() - before) * 1e-9;
    }
    TRY(measure_cell(job, cell, whole.text, e));
    TRY(study_record_write(job->options->dir, cell, e));
    return study_results_write(job->options->dir, e);
}

static enum status make_cell(struct study_job *job, struct study_cell *cell, struct err *e)
{
    char left[64] = "";
    job->current = cell;
    enum status s = study_lock(job, cell->name, e);
    if (s == STATUS_OK) {
        s = finish_cell(job, cell, e);
        study_unlock(job->lock, cell->name);
    }
    progress_end(&job->progress);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        err_prefix(e, cell->name);
    if (s != STATUS_OK)
        return s;
    cell->done = true;
    job->n_done++;
    const double elapsed = (double)(clock_ns() - job->progress.started_ns);
    if (job->n_done < job->n_all)
        snprintf(left, sizeof left, ", %s left",
                 figure_duration(elapsed / job->n_done * (job->n_all - job->n_done)).text);
    say(&job->options->common, "%s: %.4f bits a byte, %s; %d of %d cells%s", cell->name,
        cell->bits_per_byte, figure_duration(cell->seconds * 1e9).text, job->n_done, job->n_all,
        left);
    return STATUS_OK;
}

/* Something is to be made from this one: it is made again where its checkpoint is gone. */
static void want_origin(const struct study_job *job, struct study_cell *origin)
{
    origin->wanted = true;
    if (!is_there(path_of(job, origin, ".gguf").text))
        origin->done = false;
}

/* What is to be made: the shard's, and what that is made from. Returns how many. */
static int want_cells(struct study_job *job)
{
    int n = 0;
    for (int i = job->plan.n - 1; i >= 0; i--) {
        struct study_cell *cell = &job->plan.cells[i];
        cell->wanted = (cell->wanted || i % job->n_shards == job->shard) && !cell->done;
        if (!cell->wanted)
            continue;
        struct study_cell *origin = study_origin(&job->plan, cell);
        if (origin)
            want_origin(job, origin);
        if (cell->taught)
            want_origin(job, study_base(&job->plan, cell));
        n++;
    }
    return n;
}

enum status study_run(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    struct study_cell *cells = job->plan.cells, *end = cells + job->plan.n;
    for (struct study_cell *cell = cells; cell < end; cell++)
        TRY(study_record_read(o->dir, cell, e));
    job->n_all = want_cells(job);
    if (job->n_all == 0)
        return STATUS_OK;
    TRY(job_start_threads(job->run, e));
    job->progress = progress_start(&o->common, "cells");
    enum status s = STATUS_OK;
    for (struct study_cell *cell = cells; cell < end && s == STATUS_OK; cell++)
        if (cell->wanted)
            s = make_cell(job, cell, e);
    if (s == STATUS_INTERRUPTED)
        say(&o->common, "interrupted; %d of %d cells are done; the same command goes on",
            job->n_done, job->n_all);
    return s;
}
