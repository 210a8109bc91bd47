/*
 * The cells of a study, each made by the commands that -v shows.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/file.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/study.h"
#include "measure/eval.h"
#include "model/kv_cache.h"

/* --- command lines --------------------------------------------------------------------------- */

void study_line_add(struct study_line *line, const char *option, const char *value)
{
    if (value && option)
        line->items[line->n++] = option;
    if (value)
        line->items[line->n++] = value;
}

void study_line_add_given(struct study_line *line, const struct train_shape *shape,
                          const struct train_spec *steps)
{
    const struct {
        const struct option *rows;
        const void *values;
    } tables[] = {{train_size_options, shape},
                  {train_kind_options, shape},
                  {train_step_options, steps},
                  {train_held_out_options, steps}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct option *o = tables[i].rows; o->kind != OPTION_END; o++) {
            const void *at = (const char *)tables[i].values + o->offset;
            const double x = o->kind == OPTION_FLAG     ? *(const bool *)at
                             : o->kind == OPTION_DOUBLE ? *(const double *)at
                                                        : *(const int *)at;
            double otherwise = 0; /* without a fallback: 0 is none given */
            if (o->fallback)
                parse_double(o->fallback, &otherwise);
            if (x == otherwise)
                continue;
            struct figure *name = &line->own[line->n_own++], *value = &line->own[line->n_own++];
            snprintf(name->text, sizeof name->text, "--%s", o->name);
            *value = figure_exact(x);
            study_line_add(line, NULL, name->text);
            if (o->kind != OPTION_FLAG)
                study_line_add(line, NULL,
                               o->kind == OPTION_CHOICE ? o->choices[(int)x - 1] : value->text);
        }
}

void study_line_print(const struct study_line *line, char *out, size_t size)
{
    /* Bytes that mean nothing but themselves to a shell. */
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+-";
    FILE *f = fmemopen(out, size - 1, "w");
    memset(out, 0, size);
    for (int i = 0; f && i < line->n; i++) {
        const char *at = line->items[i], *quote = *at && !at[strspn(at, plain)] ? "" : "'";
        fprintf(f, "%s%s", i > 0 ? " " : "", quote);
        for (; *at; at++) /* the text's own quotes are taken out of ours */
            fprintf(f, *at == '\'' ? "'\\%c'" : "%c", *at);
        fputs(quote, f);
    }
    if (f)
        fclose(f);
}

/* Runs a command, which -v shows, without what it prints. */
static enum status run_command(const struct study_job *job, const struct command *command,
                               struct study_line *line, struct err *e)
{
    char shown[4096];
    struct file_output nowhere;
    file_output_init(&nowhere);
    study_line_add(line, NULL, "-q");
    study_line_print(line, shown, sizeof shown);
    say_verbose(&job->options->common, "%s %s", command->name, shown);
    return job_run(command, (char **)(uintptr_t)line->items, &nowhere.out, clock_ns(), e);
}

/* --- a cell ---------------------------------------------------------------------------------- */

static struct study_path path_of(const struct study_job *job, const struct study_cell *cell,
                                 const char *suffix)
{
    return study_path(job->options->dir, cell->name, suffix);
}

static bool is_there(struct study_path path)
{
    return access(path.text, F_OK) == 0;
}

/* Makes the cell's checkpoint from its origin, or from nothing. */
static enum status make_checkpoint(const struct study_job *job, const struct study_cell *cell,
                                   const char *whole, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_cell *origin = study_origin(&job->plan, cell);
    const bool converts = study_converts(cell->method) && cell->alpha == 0;
    const bool latent = cell->method == STUDY_LATENT, scratch = cell->method == STUDY_SCRATCH;
    const struct study_path part = path_of(job, cell, ".part.gguf"),
                            state = path_of(job, cell, ".part.gguf.state"),
                            from = path_of(job, origin ? origin : cell, ".gguf"),
                            base = path_of(job, study_base(&job->plan, cell), ".gguf"),
                            calib = study_path(o->dir, STUDY_CALIB, "");
    struct study_line line = {.n = 0};
    char kv_heads[12], rank[12], seed[24];
    snprintf(kv_heads, sizeof kv_heads, "%d", cell->kv_heads);
    snprintf(rank, sizeof rank, "%d", cell->latent);
    snprintf(seed, sizeof seed, "%" PRIu64, cell->seed);
    const char *const given[][2] = {
        {NULL, converts ? from.text : o->common.file},
        {"--threads", o->common.threads},
        {"--output", converts ? whole : part.text},
        {"--from", origin && !converts ? from.text : NULL},
        {"--teacher", cell->taught ? base.text : NULL},
        {"--kv-heads", scratch || (converts && !latent) ? kv_heads : NULL},
        {"--latent", converts && latent ? rank : NULL},
        {"--method", converts && !latent ? cell->method_name : NULL},
        {"--calib", converts && (latent || cell->method == STUDY_FIT) ? calib.text : NULL},
        {"--seed", !converts || cell->method == STUDY_RANDOM ? seed : NULL},
        {"--eval-every", converts ? NULL : "-1"},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        study_line_add(&line, given[i][0], given[i][1]);
    if (converts)
        return run_command(job, &command_convert, &line, e);
    struct train_shape shape = o->shape;
    struct train_spec steps = o->steps;
    steps.n_steps = cell->steps;
    if (origin) { /* has a shape, and the rate and the rest are of the first training alone */
        steps.lr = steps.dropout = steps.attn_dropout = steps.label_smoothing = 0;
        steps.warmup = -1;
        shape = (struct train_shape){.n_ctx = o->shape.n_ctx};
    }
    study_line_add_given(&line, &shape, &steps);
    study_line_add(&line, NULL, is_there(state) ? "--resume" : is_there(part) ? "--force" : NULL);
    TRY(run_command(job, &command_train, &line, e));
    if (rename(part.text, whole) != 0)
        return file_failure(e, STATUS_FAILED, part.text, "rename", errno);
    unlink(state.text);
    return STATUS_OK;
}

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

/* Makes the cell's checkpoint, unless it is there, and its record: the bits per byte of the
 * held-out part, and the cache. What another run has made in the meantime is taken as it is. After
 * a failure all that is open ends with the job. */
static enum status make_cell(struct study_job *job, struct study_cell *cell, struct err *e)
{
    const char *dir = job->options->dir;
    const struct study_path whole = path_of(job, cell, ".gguf");
    struct job *run = job->run;
    struct checkpoint *c = &run->checkpoint;
    struct progress *p = &run->progress;
    TRY(study_lock(job, cell->name, e));
    TRY(study_record_read(dir, cell, e));
    if (!is_there(whole)) {
        const uint64_t before = clock_ns();
        TRY(make_checkpoint(job, cell, whole.text, e));
        cell->seconds = (double)(clock_ns() - before) * 1e-9;
        cell->done = false;
    }
    if (!cell->done) {
        const size_t cut = train_part(job->options->steps.val_fraction, run->text.len);
        const struct text held_out = {run->text.data + cut, run->text.len - cut};
        struct eval_result result;
        TRY(job_open(whole.text, CHECKPOINT_MODEL | JOB_TOKENIZES, c, e));
        TRY(tokens_of_text(c->tokenizer, held_out, tokenizer_adds_bos(c->tokenizer), &run->tokens,
                           &run->n_tokens, e));
        const struct eval_spec spec = {.model = c->model,
                                       .params = {.kernels = run->kernels},
                                       .pool = run->pool,
                                       .tokens = run->tokens,
                                       .n_tokens = run->n_tokens,
                                       .tokenizer = c->tokenizer,
                                       .stop = progress_stop};
        TRY(eval_run(&spec, &result, e));
        cell->bits_per_byte = result.bits_per_byte;
        cell->cache_bytes_per_token =
            kv_cache_bytes_per_token(&c->model->config, c->model->config.n_kv_heads, STORAGE_F32);
        free(run->tokens);
        run->tokens = NULL;
        checkpoint_close(c);
        TRY(study_record_write(dir, cell, e));
        TRY(study_results_write(dir, e));
        cell->done = true;
    }
    study_unlock(job->lock, cell->name);
    progress_show(p, p->done + 1, p->all);
    say(&job->options->common, "%s: %.4f bits a byte, %s; %d of %d cells", cell->name,
        cell->bits_per_byte, figure_duration(cell->seconds * 1e9).text, (int)p->done, (int)p->all);
    return STATUS_OK;
}

enum status study_run(struct study_job *job, struct err *e)
{
    const struct study_plan *plan = &job->plan;
    uint64_t n_wanted = 0;
    for (int i = 0; i < plan->n; i++)
        TRY(study_record_read(job->options->dir, &plan->cells[i], e));
    /* The shard's, and what these are made from, which comes before them. */
    for (int i = plan->n - 1; i >= 0; i--) {
        struct study_cell *cell = &plan->cells[i];
        struct study_cell *from[] = {study_origin(plan, cell),
                                     cell->taught ? study_base(plan, cell) : NULL};
        cell->wanted = (cell->wanted || i % job->n_shards == job->shard) && !cell->done;
        n_wanted += cell->wanted;
        for (int f = 0; f < 2 && cell->wanted; f++)
            if (from[f]) { /* made again where its checkpoint is gone */
                from[f]->wanted = true;
                from[f]->done = from[f]->done && is_there(path_of(job, from[f], ".gguf"));
            }
    }
    if (n_wanted == 0)
        return STATUS_OK;
    TRY(job_start_threads(job->run, e));
    job_progress(job->run, "cells")->all = n_wanted;
    for (int i = 0; i < plan->n; i++)
        if (plan->cells[i].wanted)
            TRY(err_in(e, make_cell(job, &plan->cells[i], e), "%s", plan->cells[i].name));
    return STATUS_OK;
}
