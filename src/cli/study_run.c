#include "cli/study_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figures.h"
#include "cli/progress.h"
#include "cli/study_args.h"
#include "cli/study_records.h"
#include "cli/train_steps.h"
#include "model/kv_cache.h"
#include "json/read.h"

/* What is not training, in steps, so that it can be told how much is left. */
#define COST_CONVERT 5
#define COST_FIT     40
#define COST_PROBE   50
/* A token that is evaluated, in tokens that are trained on. */
#define COST_EVALUATED 0.35

/* What an eval prints is no longer. */
#define PRINTED_MAX ((size_t)1 << 20)

struct study_job {
    const struct study_setting *setting;
    struct progress progress;
    double cost, all_cost; /* of what is done, and of all that is to be done */
    double current;        /* of the cell that is made */
    int n_done, n_all;
};

/* --- command lines --------------------------------------------------------------------------- */

/* What the further training does not take from the first: it has its own, see decode help train. */
static const char *const first_only[] = {
    "steps", "lr", "warmup", "dropout", "attn-dropout", "label-smoothing", NULL};
static const char *const steps_only[] = {"steps", NULL};
static const char *const nothing[] = {NULL};

static struct study_args begin_args(const struct study_setting *s, const char *command,
                                    const char *input)
{
    struct study_args a = {.n = 0};
    study_args_add(&a, "%s", command);
    study_args_add(&a, "%s", input);
    study_args_add(&a, "-q");
    if (s->common->binary)
        study_args_add(&a, "--binary");
    if (s->threads)
        study_args_pair(&a, "threads", "%s", s->threads);
    return a;
}

static void add_training(struct study_args *a, const struct study_setting *s,
                         const struct study_cell *cell, const char *out, const char *const *without)
{
    study_args_pair(a, "output", "%s", out);
    study_args_pair(a, "steps", "%d", cell->steps);
    study_args_given(a, train_step_options, s->steps, without);
    study_args_given(a, train_held_out_options, s->steps, nothing);
    study_args_pair(a, "seed", "%" PRIu64, cell->seed);
    study_args_pair(a, "eval-every", "-1");
}

static void add_new_model(struct study_args *a, const struct study_setting *s,
                          const struct study_cell *cell)
{
    study_args_given(a, train_size_options, s->shape, nothing);
    study_args_given(a, train_kind_options, s->shape, nothing);
    if (cell->method == STUDY_SCRATCH)
        study_args_pair(a, "kv-heads", "%d", cell->kv_heads);
}

/* --- files ----------------------------------------------------------------------------------- */

/* Those of a cell, and of what it is made from. */
struct cell_files {
    char *whole, *part, *state, *origin, *base, *calib;
};

static void free_files(struct cell_files *f)
{
    char *const paths[] = {f->whole, f->part, f->state, f->origin, f->base, f->calib};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        free(paths[i]);
}

static enum status name_files(const struct study_setting *s, const struct study_cell *cell,
                              struct cell_files *f, struct err *e)
{
    const struct study_cell *origin = study_origin(s->plan, cell);
    *f = (struct cell_files){.whole = NULL};
    TRY(study_path(s->dir, cell->name, ".gguf", &f->whole, e));
    TRY(study_path(s->dir, cell->name, ".part.gguf", &f->part, e));
    TRY(study_path(s->dir, cell->name, ".part.gguf.state", &f->state, e));
    TRY(study_path(s->dir, STUDY_CALIB, "", &f->calib, e));
    if (origin)
        TRY(study_path(s->dir, origin->name, ".gguf", &f->origin, e));
    return study_path(s->dir, study_base(s->plan, cell)->name, ".gguf", &f->base, e);
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* --- making a checkpoint --------------------------------------------------------------------- */

static void hear(void *arg, double share)
{
    struct study_job *job = arg;
    progress_show_share(&job->progress, (uint64_t)job->n_done, (uint64_t)job->n_all,
                        (job->cost + share * job->current) / job->all_cost);
}

static enum status run_args(struct study_job *job, struct study_args *a, struct bytes *printed,
                            struct err *e)
{
    const struct listener listener = {hear, job};
    return study_args_run(a, job->setting->common, listener, printed, e);
}

static enum status train_cell(struct study_job *job, const struct study_cell *cell,
                              const struct cell_files *f, struct err *e)
{
    const struct study_setting *s = job->setting;
    struct study_args a = begin_args(s, "train", s->text);
    add_training(&a, s, cell, f->part, f->origin ? first_only : steps_only);
    if (!f->origin) {
        add_new_model(&a, s, cell);
    } else {
        study_args_pair(&a, "from", "%s", f->origin);
        if (s->shape->n_ctx)
            study_args_pair(&a, "ctx", "%d", s->shape->n_ctx);
    }
    if (cell->taught)
        study_args_pair(&a, "teacher", "%s", f->base);
    if (is_there(f->part) || is_there(f->state))
        study_args_add(&a, is_there(f->state) ? "--resume" : "--force");
    TRY(run_args(job, &a, NULL, e));
    if (rename(f->part, f->whole) != 0)
        return err_set(e, STATUS_FAILED, "%.200s: cannot be renamed: %s", f->part, strerror(errno));
    unlink(f->state);
    return STATUS_OK;
}

/* To the calibration text. */
static bool is_fitted(const struct study_cell *cell)
{
    return cell->method == STUDY_FIT || cell->method == STUDY_LATENT;
}

static enum status convert_cell(struct study_job *job, const struct study_cell *cell,
                                const struct cell_files *f, struct err *e)
{
    struct study_args a = begin_args(job->setting, "convert", f->origin);
    study_args_pair(&a, "output", "%s", f->whole);
    study_args_pair(&a, cell->latent ? "latent" : "kv-heads", "%d",
                    cell->latent ? cell->latent : cell->kv_heads);
    if (!cell->latent)
        study_args_pair(&a, "method", "%s", cell->method_name);
    if (is_fitted(cell))
        study_args_pair(&a, "calib", "%s", f->calib);
    if (cell->method == STUDY_RANDOM)
        study_args_pair(&a, "seed", "%" PRIu64, cell->seed);
    return run_args(job, &a, NULL, e);
}

static enum status make_checkpoint(struct study_job *job, struct study_cell *cell,
                                   const struct cell_files *f, struct err *e)
{
    if (is_there(f->whole))
        return STATUS_OK;
    const uint64_t before = clock_ns();
    const bool converts = study_converts(cell->method) && cell->alpha == 0;
    TRY(converts ? convert_cell(job, cell, f, e) : train_cell(job, cell, f, e));
    cell->seconds = (double)(clock_ns() - before) * 1e-9;
    return STATUS_OK;
}

/* --- measuring one --------------------------------------------------------------------------- */

/* A number in the line of JSON that a command printed. */
static enum status printed_number(const struct bytes *printed, const char *key, double *out,
                                  struct err *e)
{
    static const struct json_limits limits = {.bytes = PRINTED_MAX, .values = 4096, .depth = 4};
    struct json_reader r = {.nodes = NULL};
    const struct json_node *root, *node;
    enum status s = json_read(&r, bytes_text(printed), &limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    if (s == STATUS_OK)
        s = json_require(root, key, JSON_NUMBER, &node, e);
    if (s == STATUS_OK)
        s = json_node_double(node, out, e);
    json_reader_free(&r);
    return s == STATUS_BAD_FILE ? STATUS_FAILED : s;
}

/* Runs a command for one number of what it prints. */
static enum status ask(struct study_job *job, struct study_args *a, const char *key, double *out,
                       struct err *e)
{
    struct bytes printed = {.data = NULL};
    study_args_pair(a, "format", "jsonl");
    enum status s = run_args(job, a, &printed, e);
    if (s == STATUS_OK)
        s = printed_number(&printed, key, out, e);
    bytes_free(&printed);
    return s;
}

/* The held-out part as training has it: the same product in both commands. */
static enum status measure_bits(struct study_job *job, struct study_cell *cell,
                                const struct cell_files *f, struct err *e)
{
    const struct study_setting *s = job->setting;
    struct study_args a = begin_args(s, "eval", f->whole);
    study_args_pair(&a, "text", "%s", s->text);
    char from[40];
    study_args_number(1 - s->steps->val_fraction, from, sizeof from);
    study_args_pair(&a, "range", "%s:1", from);
    return ask(job, &a, "bits_per_byte", &cell->bits_per_byte, e);
}

static enum status count_cache(struct study_cell *cell, const char *path, struct err *e)
{
    struct checkpoint c;
    struct config config;
    TRY(common_open(path, 0, &c, e));
    const enum status s = common_config(path, &c, &config, e);
    if (s == STATUS_OK)
        cell->cache_bytes_per_token =
            kv_cache_bytes_per_token(&config, config.n_kv_heads, STORAGE_F32);
    checkpoint_close(&c);
    return s;
}

/* --- cells ----------------------------------------------------------------------------------- */

static double cost_of(const struct study_setting *s, const struct study_cell *cell)
{
    const double step = (double)s->steps->batch * s->length;
    const double evaluated = s->steps->val_fraction * (double)s->text_bytes / 2 / step;
    double making = cell->steps;
    if (s->given && !study_origin(s->plan, cell))
        making = 0;
    else if (study_converts(cell->method) && cell->alpha == 0)
        making = is_fitted(cell) ? COST_FIT : COST_CONVERT;
    else if (study_origin(s->plan, cell))
        making += COST_PROBE;
    return making + COST_EVALUATED * evaluated;
}

enum status study_lock(const struct study_setting *s, const char *name, struct err *e)
{
    bool taken = false, told = false;
    for (; !taken; told = true) {
        if (progress_stop(NULL))
            return STATUS_INTERRUPTED;
        TRY(study_lock_try(s->lock, name, &taken, e));
        if (!taken && !told)
            say(s->common, "%s: waiting for another run in '%.200s'", name[0] ? name : "study",
                s->dir);
        if (!taken)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return STATUS_OK;
}

/* What another run has made in the meantime is taken as it is. */
static enum status finish_cell(struct study_job *job, struct study_cell *cell,
                               const struct cell_files *f, struct err *e)
{
    TRY(study_record_read(job->setting->dir, cell, e));
    if (cell->done && is_there(f->whole))
        return STATUS_OK;
    cell->done = false;
    TRY(make_checkpoint(job, cell, f, e));
    TRY(measure_bits(job, cell, f, e));
    TRY(count_cache(cell, f->whole, e));
    TRY(study_record_write(job->setting->dir, cell, e));
    return study_results_write(job->setting->dir, e);
}

static void tell_cell(struct study_job *job, const struct study_cell *cell)
{
    char left[64] = "";
    const double elapsed = (double)(clock_ns() - job->progress.started_ns);
    const double rest = elapsed * (job->all_cost - job->cost) / job->cost;
    if (job->n_done < job->n_all)
        snprintf(left, sizeof left, ", %s left", figure_duration(rest).text);
    progress_end(&job->progress);
    say(job->setting->common, "%s: %.4f bits a byte, %s; %d of %d cells%s", cell->name,
        cell->bits_per_byte, figure_duration(cell->seconds * 1e9).text, job->n_done, job->n_all,
        left);
}

static enum status make_cell(struct study_job *job, struct study_cell *cell, struct err *e)
{
    struct cell_files f;
    job->current = cost_of(job->setting, cell);
    enum status s = progress_stop(NULL) ? STATUS_INTERRUPTED : STATUS_OK;
    if (s != STATUS_OK)
        return s;
    s = name_files(job->setting, cell, &f, e);
    if (s == STATUS_OK)
        s = study_lock(job->setting, cell->name, e);
    if (s == STATUS_OK) {
        s = finish_cell(job, cell, &f, e);
        study_unlock(job->setting->lock, cell->name);
    }
    free_files(&f);
    progress_end(&job->progress);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        err_prefix(e, cell->name);
    if (s != STATUS_OK)
        return s;
    cell->done = true;
    job->cost += job->current;
    job->n_done++;
    tell_cell(job, cell);
    return STATUS_OK;
}

/* Something is to be made from this one: it is made again where its checkpoint is gone. */
static void mark_origin(const struct study_setting *s, bool *marked, struct study_cell *origin)
{
    char *path = NULL;
    if (study_path(s->dir, origin->name, ".gguf", &path, NULL) == STATUS_OK && !is_there(path))
        origin->done = false;
    free(path);
    marked[origin - s->plan->cells] = true;
}

/* What is to be made: the shard's, and what that is made from. */
static bool *mark_cells(const struct study_setting *s)
{
    bool *marked = calloc((size_t)s->plan->n, sizeof *marked);
    for (int i = s->plan->n - 1; marked && i >= 0; i--) {
        const struct study_cell *cell = &s->plan->cells[i];
        if (i % s->shard.n == s->shard.index)
            marked[i] = true;
        if (!marked[i] || cell->done)
            continue;
        struct study_cell *origin = study_origin(s->plan, cell);
        if (origin)
            mark_origin(s, marked, origin);
        if (cell->taught)
            mark_origin(s, marked, study_base(s->plan, cell));
    }
    return marked;
}

static void begin_job(struct study_job *job, const bool *marked)
{
    const struct study_plan *plan = job->setting->plan;
    job->progress = progress_start(job->setting->common, "cells");
    for (int i = 0; i < plan->n; i++)
        if (marked[i] && !plan->cells[i].done) {
            job->all_cost += cost_of(job->setting, &plan->cells[i]);
            job->n_all++;
        }
}

enum status study_run(const struct study_setting *setting, struct err *e)
{
    struct study_job job = {.setting = setting};
    struct study_plan *plan = setting->plan;
    enum status s = STATUS_OK;
    for (int i = 0; i < plan->n && s == STATUS_OK; i++)
        s = study_record_read(setting->dir, &plan->cells[i], e);
    if (s != STATUS_OK)
        return s;
    bool *marked = mark_cells(setting);
    if (!marked)
        return err_no_memory(e, "the study's cells", (size_t)plan->n);
    begin_job(&job, marked);
    for (int i = 0; i < plan->n && s == STATUS_OK; i++)
        if (marked[i] && !plan->cells[i].done)
            s = make_cell(&job, &plan->cells[i], e);
    free(marked);
    if (s == STATUS_INTERRUPTED)
        say(setting->common, "interrupted; %d of %d cells are done; the same command goes on",
            job.n_done, job.n_all);
    return s;
}
