/*
 * cmd_study - decode study: the GQA paper's experiment on one text. Its cells are made by the
 * commands that -v shows.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/file.h"
#include "cli/job.h"
#include "cli/train_options.h"
#include "measure/eval.h"
#include "model/kv_cache.h"
#include "show/plot.h"
#include "study/study.h"
#include "train/train.h"

_Static_assert(STUDY_FIT - STUDY_MEAN == CONVERT_FIT, "methods are in the order of convert's");

/* Percents of the steps: no study needs more, and the steps stay within an int. */
#define MOST_ALPHA 10000
#define MOST_SHARD 100000

/* The part of the text that is not held out, as a file in DIR: what conversions are calibrated on.
 */
#define CALIB "calib.txt"

struct study_options {
    struct common_options common; /* its text is TEXT */
    const char *dir, *from, *kv_heads, *methods, *latent, *alphas, *scratch, *shard, *plot;
    int n_seeds;
    struct option_u64 first_seed;
    bool teacher;
    struct train_shape shape;
    struct train_spec steps; /* as the options of training say */
};

#define VALUES struct study_options

static const struct option study_options[] = {
    OPT_STRING("output", dir, "DIR", "the folder of the cells; required", .letter = 'o',
               .reads = "the study"),
    OPT_STRING("from", from, "MODEL",
               "an MHA checkpoint to study in place of new ones; --steps is what it was trained "
               "for, and nothing is trained from scratch",
               .reads = "the checkpoint"),
    OPT_STRING("kv-heads", kv_heads, "G,G,...", "numbers of K/V heads to convert to",
               .otherwise = "every divisor of the query heads below them"),
    OPT_STRING("method", methods, "M,M,...", "how heads are converted, see decode help convert",
               .fallback = "mean,first,random,procrustes,fit", .choices = convert_methods),
    OPT_STRING("latent", latent, "R,R,...",
               "ranks of latent caches to convert to as well, see decode help convert",
               .otherwise = "none"),
    OPT_STRING("alpha", alphas, "P,P,...",
               "percents of the steps for which each conversion, and the MHA checkpoint itself, is "
               "trained further; 0 is always among them",
               .fallback = "0,1,2,5,10"),
    OPT_STRING("scratch", scratch, "P,P,...|none",
               "percents more than all steps for which each number of K/V heads is trained from "
               "scratch",
               .otherwise = "the largest of --alpha; none with --from", .excludes = "from"),
    OPT_INT("seeds", n_seeds, "N", 1, 1000, "seeds: each has an MHA checkpoint of its own",
            .otherwise = "3, or 1 with --from"),
    OPT_U64("seed", first_seed, "S", "the first of them; the others follow", .otherwise = "1"),
    OPT_FLAG("teacher", teacher,
             "train conversions further with their MHA checkpoint as the teacher, too"),
    OPT_STRING("shard", shard, "I/N",
               "every N-th cell only, from I (0 to N - 1) on, and what it is made from",
               .fallback = "0/1"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("plot", plot, "FILE.svg", "draw bits per byte over the percents",
               .writes = WRITES_FILE),
    OPT_FORMAT,
    OPT_END,
};

static const struct option run_options[] = {
    OPT_THREADS("threads; any number gives the same cells"),
    OPT_END,
};

/* One run of the command; how many cells are done of those that are to be made is run->progress. */
struct study_job {
    const struct study_options *options;
    struct job *run;
    struct study_plan plan;
    int shard, n_shards; /* every n_shards-th cell from that one on */
    int lock;            /* of study_lock_open; -1: none yet */
};

/* --- what is compared ------------------------------------------------------------------------ */

struct share_list {
    double items[LIST_MAX + 1];
    int n;
};

/* Appends the percents of a list "0,1,2.5". A cell's name has them with the digits of "%g", which
 * must tell them from all others. */
static enum status list_shares(const char *option, const char *text, struct share_list *list,
                               struct err *e)
{
    char end;
    do {
        char item[48], name[32];
        double x = 0, named;
        end = list_next(&text, ",", item, sizeof item);
        const bool is_number = parse_double(item, &x);
        snprintf(name, sizeof name, "%g", x);
        if (!is_number || x < 0 || x > MOST_ALPHA || !parse_double(name, &named) || named != x)
            return err_set(e, STATUS_USAGE,
                           "%s: expected percents of the steps from 0 to %d, of no more than six "
                           "digits, found '%.60s'",
                           option, MOST_ALPHA, item);
        for (int i = 0; i < list->n; i++)
            if (list->items[i] == x)
                return err_set(e, STATUS_USAGE, "%s: %s is there twice", option, item);
        if (list->n == LIST_MAX)
            return err_set(e, STATUS_USAGE, "%s: expected at most %d percents", option, LIST_MAX);
        list->items[list->n++] = x;
    } while (end);
    return STATUS_OK;
}

/* The cells for an MHA checkpoint of this shape. */
static enum status plan_study(struct study_job *job, const struct config *c, struct err *e)
{
    const struct study_options *o = job->options;
    struct study_plan *plan = &job->plan;
    struct int_list kv_heads = {.n = 0}, methods = {.n = 0}, ranks = {.n = 0};
    struct share_list alphas = {.n = 0}, scratch = {.n = 0};
    if (o->kv_heads)
        TRY(list_heads("--kv-heads", o->kv_heads, c->n_heads, &kv_heads, e));
    for (int g = c->n_heads / 2; !o->kv_heads && g >= 1; g--)
        if (c->n_heads % g == 0)
            TRY(list_add("--kv-heads", g, &kv_heads, e));
    for (int i = 0; i < kv_heads.n; i++)
        if (c->n_heads % kv_heads.items[i] != 0 || kv_heads.items[i] == c->n_heads)
            return err_set(e, STATUS_USAGE,
                           "--kv-heads: expected divisors of the %d query heads below them, found "
                           "%d",
                           c->n_heads, kv_heads.items[i]);
    TRY(list_names("--method", o->methods, convert_methods, &methods, e));
    /* What convert would refuse only when the MHA checkpoint is trained. */
    if (o->latent && c->position == POSITION_ROPE)
        return err_set(e, STATUS_USAGE,
                       "--latent: expected another --position than rope, which turns every key by "
                       "its own position: one cached vector for all heads cannot be turned");
    if (o->latent)
        TRY(list_ints("--latent", o->latent, 1, c->d_model, &ranks, e));
    /* 0 is always among the alphas; without --scratch it is as long as the longest. */
    bool has_0 = false;
    TRY(list_shares("--alpha", o->alphas, &alphas, e));
    for (int i = 0; i < alphas.n; i++) {
        has_0 |= alphas.items[i] == 0;
        scratch.items[0] = fmax(scratch.items[0], alphas.items[i]);
    }
    if (!has_0)
        alphas.items[alphas.n++] = 0;
    if (!o->scratch)
        scratch.n = !o->from;
    else if (strcmp(o->scratch, "none") != 0)
        TRY(list_shares("--scratch", o->scratch, &scratch, e));

    plan->config = c;
    struct study_cell cell = {.kv_heads = c->n_heads, .method = STUDY_MHA};
    TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
    for (int i = 0; i < kv_heads.n; i++) {
        cell.kv_heads = kv_heads.items[i];
        cell.method = STUDY_SCRATCH;
        TRY(study_plan_add(plan, cell, scratch.items, scratch.n, e));
        for (int m = 0; m < methods.n; m++) {
            cell.method = (enum study_method)(STUDY_MEAN + methods.items[m]);
            TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
        }
    }
    cell = (struct study_cell){.kv_heads = 1, .method = STUDY_LATENT};
    for (int i = 0; i < ranks.n; i++) {
        cell.latent = ranks.items[i];
        TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
    }
    return STATUS_OK;
}

/* --- command lines --------------------------------------------------------------------------- */

/* A command's arguments as they are put together; borrowed. */
struct line {
    const char *items[80];
    int n;
    struct figure own[64]; /* names and numbers of add_given */
    int n_own;
};

/* Adds an option (NULL: none) and its value (NULL: neither). */
static void add(struct line *line, const char *option, const char *value)
{
    if (value && option)
        line->items[line->n++] = option;
    if (value)
        line->items[line->n++] = value;
}

/* Adds the options of a training that are not the default. */
static void add_given(struct line *line, const struct train_shape *shape,
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
            const char *text = o->kind == OPTION_STRING ? *(const char *const *)at : NULL;
            const double x = o->kind == OPTION_STRING   ? text != NULL
                             : o->kind == OPTION_FLAG   ? *(const bool *)at
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
            add(line, NULL, name->text);
            if (o->kind != OPTION_FLAG)
                add(line, NULL,
                    o->kind == OPTION_CHOICE ? o->choices[(int)x - 1]
                    : text                   ? text
                                             : value->text);
        }
}

/* As a shell reads it back: "--embd 8 'a name'". What is longer than out is cut. */
static void print_line(const struct line *line, char *out, size_t size)
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
                               struct line *line, struct err *e)
{
    char shown[4096];
    struct file_output nowhere;
    file_output_init(&nowhere);
    add(line, NULL, "-q");
    print_line(line, shown, sizeof shown);
    say_verbose(&job->options->common, "%s %s", command->name, shown);
    return job_run(command, (char **)(uintptr_t)line->items, &nowhere.out, clock_ns(), e);
}

/* --- the folder ------------------------------------------------------------------------------ */

static bool is_there(struct study_path path)
{
    return access(path.text, F_OK) == 0;
}

/* Takes the lock of that name, waiting for another run that has it, which is said.
 * STATUS_INTERRUPTED. */
static enum status take_lock(const struct study_job *job, const char *name, struct err *e)
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

/* Written once: files are replaced as a whole, so that one of this size is whole. */
static enum status keep_file(struct study_path path, const void *data, size_t len, struct err *e)
{
    struct stat st;
    struct file_writer *w;
    if (stat(path.text, &st) == 0 && (uint64_t)st.st_size == len)
        return STATUS_OK;
    TRY(file_writer_open(&w, path.text, e));
    file_writer_put(w, data, len);
    return file_writer_commit(w, e);
}

/* What a run needs in its folder beside the cells: its settings, which are what all cells have in
 * common (the text, the given checkpoint and the options of training), the text to calibrate on,
 * and the given checkpoint as the one that each seed would have trained. */
static enum status prepare_folder(struct study_job *job, const struct file_map *from, struct err *e)
{
    static const char *const own[] = {CALIB, "results.jsonl"}, *const hashed[] = {"text", "from"};
    const struct study_options *o = job->options;
    const struct text text = job->run->text;
    const struct text contents[] = {text, {(const char *)from->data, from->len}};
    struct stat st = {.st_mode = S_IFDIR};
    struct line line = {.n = 0};
    char items[2][64], settings[2048];
    if (mkdir(o->dir, 0777) != 0 && stat(o->dir, &st) != 0)
        return file_failure(e, STATUS_FAILED, o->dir, "make", errno);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, STATUS_USAGE, "-o: expected a folder, found the file '%.200s'", o->dir);
    TRY(study_lock_open(o->dir, &job->lock, e));
    TRY(take_lock(job, "", e));
    const bool is_new = !is_there(study_path(o->dir, "study.json", ""));
    for (int i = 0; i < 2; i++) {
        const struct text t = contents[i];
        if (is_new && is_there(study_path(o->dir, own[i], "")))
            return err_set(e, STATUS_USAGE,
                           "-o: '%.200s' has a %s that no study has made, which would be "
                           "overwritten; expected a new folder, or a study's",
                           o->dir, own[i]);
        snprintf(items[i], sizeof *items, "%s %zu bytes %016" PRIx64, hashed[i], t.len,
                 train_hash(TRAIN_HASH_START, t.data, t.len));
        add(&line, NULL, i == 0 || o->from ? items[i] : NULL);
    }
    add_given(&line, &o->shape, &o->steps);
    print_line(&line, settings, sizeof settings);
    TRY(study_settings_keep(o->dir, settings, e));
    TRY(keep_file(study_path(o->dir, CALIB, ""), text.data,
                  train_part(o->steps.val_fraction, text.len), e));
    for (const struct study_cell *cell = job->plan.cells; cell < job->plan.cells + job->plan.n;
         cell++)
        if (o->from && cell->method == STUDY_MHA && cell->alpha == 0)
            TRY(keep_file(study_path(o->dir, cell->name, ".gguf"), from->data, from->len, e));
    study_unlock(job->lock, "");
    return STATUS_OK;
}

/* --- a cell ---------------------------------------------------------------------------------- */

/* Makes the cell's checkpoint from its origin, or from nothing. */
static enum status make_checkpoint(const struct study_job *job, const struct study_cell *cell,
                                   const char *whole, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_cell *origin = study_origin(&job->plan, cell);
    const bool converts = study_converts(cell->method) && cell->alpha == 0;
    const bool latent = cell->method == STUDY_LATENT, scratch = cell->method == STUDY_SCRATCH;
    const struct study_path part = study_path(o->dir, cell->name, ".part.gguf"),
                            state = study_path(o->dir, cell->name, ".part.gguf.state"),
                            from = study_path(o->dir, (origin ? origin : cell)->name, ".gguf"),
                            base = study_path(o->dir, study_base(&job->plan, cell)->name, ".gguf"),
                            calib = study_path(o->dir, CALIB, "");
    struct line line = {.n = 0};
    char kv_heads[12], rank[12], seed[24];
    snprintf(kv_heads, sizeof kv_heads, "%d", cell->kv_heads);
    snprintf(rank, sizeof rank, "%d", cell->latent);
    snprintf(seed, sizeof seed, "%" PRIu64, cell->seed);
    add(&line, NULL, converts ? from.text : o->common.file);
    add(&line, "--threads", o->common.threads);
    add(&line, "--output", converts ? whole : part.text);
    add(&line, "--from", origin && !converts ? from.text : NULL);
    add(&line, "--teacher", cell->taught ? base.text : NULL);
    add(&line, "--kv-heads", scratch || (converts && !latent) ? kv_heads : NULL);
    add(&line, "--latent", converts && latent ? rank : NULL);
    add(&line, "--method", converts && !latent ? cell->method_name : NULL);
    add(&line, "--calib", converts && (latent || cell->method == STUDY_FIT) ? calib.text : NULL);
    add(&line, "--seed", !converts || cell->method == STUDY_RANDOM ? seed : NULL);
    if (converts)
        return run_command(job, &command_convert, &line, e);
    add(&line, "--eval-every", "-1");
    struct train_shape shape = o->shape;
    struct train_spec steps = o->steps;
    steps.n_steps = cell->steps;
    if (origin) { /* has a shape, and the rate and the rest are of the first training alone */
        steps.lr = steps.dropout = steps.attn_dropout = steps.label_smoothing = 0;
        steps.warmup = -1;
        shape = (struct train_shape){.n_ctx = o->shape.n_ctx};
    }
    add_given(&line, &shape, &steps);
    add(&line, NULL, is_there(state) ? "--resume" : is_there(part) ? "--force" : NULL);
    TRY(run_command(job, &command_train, &line, e));
    if (rename(part.text, whole) != 0)
        return file_failure(e, STATUS_FAILED, part.text, "rename", errno);
    unlink(state.text);
    return STATUS_OK;
}

/* The bits per byte of the held-out part, and the cache. After a failure all that is open ends with
 * the job. */
static enum status evaluate(const struct study_job *job, const char *path, struct study_cell *cell,
                            struct err *e)
{
    struct job *run = job->run;
    struct checkpoint *c = &run->checkpoint;
    const size_t cut = train_part(job->options->steps.val_fraction, run->text.len);
    const struct text held_out = {run->text.data + cut, run->text.len - cut};
    struct eval_result result;
    TRY(job_open(path, CHECKPOINT_MODEL | JOB_TOKENIZES, c, e));
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
    return STATUS_OK;
}

/* Makes the cell's checkpoint, DIR/NAME.gguf, unless it is there, and its record. While it is
 * trained it is DIR/NAME.part.gguf, with the state that an interrupted training goes on from. What
 * another run has made in the meantime is taken as it is. */
static enum status make_cell(const struct study_job *job, struct study_cell *cell, struct err *e)
{
    const char *dir = job->options->dir;
    const struct study_path whole = study_path(dir, cell->name, ".gguf");
    struct progress *p = &job->run->progress;
    TRY(take_lock(job, cell->name, e));
    TRY(study_record_read(dir, cell, e));
    if (!is_there(whole)) {
        const uint64_t before = clock_ns();
        TRY(make_checkpoint(job, cell, whole.text, e));
        cell->seconds = (double)(clock_ns() - before) * 1e-9;
        cell->done = false;
    }
    if (!cell->done) {
        TRY(evaluate(job, whole.text, cell, e));
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

/* Makes all cells of the shard, and those that they are made from, which come before them. Fails
 * with the cell's name. */
static enum status make_cells(const struct study_job *job, struct err *e)
{
    const struct study_plan *plan = &job->plan;
    const char *dir = job->options->dir;
    uint64_t n_wanted = 0;
    for (int i = 0; i < plan->n; i++)
        TRY(study_record_read(dir, &plan->cells[i], e));
    for (int i = plan->n - 1; i >= 0; i--) {
        struct study_cell *cell = &plan->cells[i];
        struct study_cell *from[] = {study_origin(plan, cell),
                                     cell->taught ? study_base(plan, cell) : NULL};
        cell->wanted = (cell->wanted || i % job->n_shards == job->shard) && !cell->done;
        n_wanted += cell->wanted;
        for (int f = 0; f < 2 && cell->wanted; f++)
            if (from[f]) { /* made again where its checkpoint is gone */
                from[f]->wanted = true;
                from[f]->done &= is_there(study_path(dir, from[f]->name, ".gguf"));
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

/* --- the report ------------------------------------------------------------------------------ */

static const struct report_field mean_fields[] = {
    {"kv_heads", NULL, MEMBER(study_mean, of.kv_heads)},
    {"variant", "variant", MEMBER(study_mean, of.variant)},
    {"method", "method", MEMBER(study_mean, of.method_name)},
    {"taught", "taught", MEMBER(study_mean, of.taught), .rank = 2},
    {"alpha", "% of steps", MEMBER(study_mean, of.alpha), "%g"},
    {"seeds", "seeds", MEMBER(study_mean, n_seeds), .rank = 4},
    {"bits_per_byte", "bits/byte", MEMBER(study_mean, of.bits_per_byte), "%.4f"},
    {"deviation", "deviation", MEMBER(study_mean, deviation), "%.4f"},
    {"least", "least", MEMBER(study_mean, least), "%.4f", .rank = 3},
    {"most", "most", MEMBER(study_mean, most), "%.4f", .rank = 3},
    {"over_mha", "over MHA", MEMBER(study_mean, over_mha), "%+.4f"},
    {"latent", NULL, MEMBER(study_mean, of.latent)},
    {"cache_bytes_per_token", NULL, MEMBER(study_mean, of.cache_bytes_per_token)},
};

/* Bits per byte over alpha, a line for K/V heads and method, a band from the least seed to the
 * most. */
static enum status draw_means(const struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_plan *p = &job->plan;
    char subtitle[320];
    snprintf(subtitle, sizeof subtitle,
             "%.100s%s%d steps, %d seed%s, %zu bytes of text, the last %g%% held out",
             o->from ? path_name(o->from) : "", o->from ? ", " : "", p->n_steps, p->n_seeds,
             plural((uint64_t)p->n_seeds), job->run->text.len, 100 * o->steps.val_fraction);
    /* A series for each mean at most: one block, which no request for nothing may leave NULL. */
    struct plot_series *series =
        calloc((size_t)p->n_means + 1, sizeof *series + sizeof(struct plot_point));
    if (!series)
        return err_no_memory(e, "the plot", (size_t)p->n_means * sizeof *series);
    struct plot_point *points = (struct plot_point *)(series + p->n_means);
    struct plot plot = {.title = "Uptraining after conversion",
                        .subtitle = subtitle,
                        .x_label = "uptraining (% of the steps)",
                        .y_label = "bits per byte of the held-out part",
                        .y_near = true,
                        .mid_label = "mean of the seeds",
                        .band_label = "least to most",
                        .series = series};
    for (int i = 0; i < p->n_means; i++) {
        const struct study_mean *m = &p->means[i];
        const bool band = m->n_seeds > 1;
        points[i] =
            (struct plot_point){m->of.alpha, band ? m->least : (double)NAN, m->of.bits_per_byte,
                                band ? m->most : (double)NAN, (double)NAN};
        if (i == 0 || strcmp(m[-1].line, m->line) != 0)
            series[plot.n_series++] = (struct plot_series){.name = m->line, .points = &points[i]};
        series[plot.n_series - 1].n_points++;
    }
    const enum status s = plot_write(&plot, o->plot, e);
    free(series);
    return s;
}

/* Prints the cells that are done, then their means, and draws --plot. JSON is an object
 * {"cells": [], "means": []}. */
static enum status report_study(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    const enum table_format format = (enum table_format)o->common.format;
    const bool json = format == TABLE_JSON;
    struct output *out = job->run->out;
    struct study_cell *cells = job->plan.cells;
    int n_cells = 0;
    TRY(study_means(&job->plan, e));
    for (int i = 0; i < job->plan.n; i++)
        if (cells[i].done)
            cells[n_cells++] = cells[i];
    const struct table table = TABLE_OF(study_fields, cells, n_cells);
    const struct table means = TABLE_OF(mean_fields, job->plan.means, job->plan.n_means);
    output_puts(out, json ? "{\"cells\": " : "");
    TRY(job_print(job->run, &table, e));
    output_puts(out, json ? ", \"means\": " : format == TABLE_JSONL ? "" : "\n");
    TRY(job_print(job->run, &means, e));
    output_puts(out, json ? "}\n" : "");
    return o->plot ? draw_means(job, e) : STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status check_study(struct job *j, void *values, struct err *e)
{
    const struct study_options *o = values;
    const char *text = o->common.file;
    struct stat st;
    (void)j;
    if (!text) /* which is said later */
        return STATUS_OK;
    if (!o->dir || !o->dir[0])
        return err_set(e, STATUS_USAGE, "no folder is named; expected -o DIR");
    if (strlen(o->dir) > STUDY_DIR_MAX)
        return err_set(e, STATUS_USAGE, "-o: expected a path of at most %d bytes", STUDY_DIR_MAX);
    if (strcmp(text, "-") == 0 || (stat(text, &st) == 0 && !S_ISREG(st.st_mode)))
        return err_set(e, STATUS_USAGE,
                       "'%.200s': every cell reads the text again; expected a file", text);
    if (o->steps.val_fraction <= 0)
        return err_set(e, STATUS_USAGE,
                       "--val-fraction: the held-out part is what cells are compared on; expected "
                       "more than 0");
    return STATUS_OK;
}

static enum status make_study(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    struct checkpoint *from = &job->run->checkpoint;
    struct config c;
    const char *rest = o->shard;
    char index[24];
    if (list_next(&rest, "/", index, sizeof index) != '/' ||
        !parse_int(rest, 1, MOST_SHARD, &job->n_shards) ||
        !parse_int(index, 0, job->n_shards - 1, &job->shard))
        return err_set(e, STATUS_USAGE,
                       "--shard: expected I/N, I from 0 to N - 1, as 0/2 and 1/2; found '%.60s'",
                       o->shard);
    TRY(train_origin_open(o->from, &o->shape, from, &c, e));
    if (o->from &&
        (config_is_latent(&c) || config_all_kv_heads(&c) != (int64_t)c.n_layers * c.n_heads)) {
        char variant[16];
        config_variant_name(&c, c.n_kv_heads, variant);
        return err_set(e, STATUS_USAGE, "--from: expected an MHA checkpoint, found %s in '%.200s'",
                       variant, o->from);
    }
    TRY(plan_study(job, &c, e));
    TRY(prepare_folder(job, &from->file, e));
    checkpoint_close(from);
    const enum status s = make_cells(job, e);
    /* Whatever the end: a record whose line an earlier run was kept from writing gets it. */
    const enum status written = study_results_write(o->dir, s == STATUS_OK ? e : NULL);
    TRY(s);
    TRY(written);
    return report_study(job, e);
}

static enum status run_study(struct job *j, void *values, struct err *e)
{
    const struct study_options *o = values;
    struct study_job job = {.options = o,
                            .run = j,
                            .plan = {.first_seed = o->first_seed.given ? o->first_seed.value : 1,
                                     .n_seeds = o->n_seeds ? o->n_seeds
                                                : o->from  ? 1
                                                           : 3,
                                     .n_steps = o->steps.n_steps,
                                     .taught = o->teacher},
                            .lock = -1};
    const enum status s = make_study(&job, e);
    if (job.lock >= 0)
        close(job.lock);
    study_plan_free(&job.plan);
    return s;
}

const struct command command_study = {
    .name = "study",
    .summary = "the GQA paper's experiment on one text: train, convert, uptrain, compare",
    .usage = "TEXT -o DIR [options]",
    .notes =
        "For each seed an MHA checkpoint is trained, or that of --from is taken, and converted by\n"
        "each method to each number of K/V heads and to a latent cache of each rank; each\n"
        "conversion, and the MHA checkpoint itself as the control, is trained further for each\n"
        "percent of the steps, with a learning rate that train --from finds; and each number of\n"
        "K/V heads is trained from scratch for as many steps in all. All are evaluated on the\n"
        "held-out part, which training and calibration do not see. Cells are printed, then their\n"
        "means over the seeds with their deviation.\n"
        "\n"
        "A cell is DIR/NAME.gguf, which the commands that -v shows make alone, bit for bit, and\n"
        "DIR/NAME.json with its figures. DIR/results.jsonl has a line for every cell that is "
        "done,\n"
        "without times: the same study gives the same bytes. Seconds are what the cell's own\n"
        "training or conversion took, in the run that ended it. What is there is not made again,\n"
        "Ctrl-C saves, and the same command goes on; other options of training need another DIR.\n"
        "Several runs may share a DIR, shards of one study, too: a cell that one of them makes "
        "the\n"
        "others wait for.\n"
        "The options of training are those of the MHA checkpoints and from scratch; further\n"
        "training takes batch, window, clip, weight decay and beta2 of them.\n",
    .spec = {.groups = {{"Study", study_options, 0},
                        {"Results", result_options, 0},
                        {"The model", train_size_options, offsetof(VALUES, shape)},
                        {"What it is made of", train_kind_options, offsetof(VALUES, shape)},
                        {"Steps", train_step_options, offsetof(VALUES, steps)},
                        {"Held-out text", train_held_out_options, offsetof(VALUES, steps)},
                        {"Run", run_options, 0},
                        {"", general_options + 1, 0}},
             .positionals = {TEXT_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_TEXT | JOB_STOPS | JOB_WORKERS,
    .no_text = "no text is named; expected TEXT",
    .check = check_study,
    .run = run_study,
};
