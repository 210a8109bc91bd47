/*
 * cmd_study - decode study: the GQA paper's experiment on one text.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/study.h"
#include "convert/convert.h"
#include "show/plot.h"

_Static_assert(STUDY_FIT - STUDY_MEAN == CONVERT_FIT, "methods are in the order of convert's");

/* Percents of the steps: no study needs more, and the steps stay within an int. */
#define MOST_ALPHA 10000
#define MOST_SHARD 100000

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

/* --- the folder ------------------------------------------------------------------------------ */

/* Written once: that it is not there whole cannot be, as it is replaced as a whole. */
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
    static const char *const own[] = {STUDY_CALIB, "results.jsonl"};
    const struct study_options *o = job->options;
    const struct text text = job->run->text;
    const struct text hashed[] = {text, {(const char *)from->data, from->len}};
    struct stat st = {.st_mode = S_IFDIR};
    struct study_line line = {.n = 0};
    char items[2][64], settings[2048];
    if (mkdir(o->dir, 0777) != 0 && stat(o->dir, &st) != 0)
        return file_failure(e, STATUS_FAILED, o->dir, "make", errno);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, STATUS_USAGE, "-o: expected a folder, found the file '%.200s'", o->dir);
    TRY(study_lock_open(o->dir, &job->lock, e));
    TRY(study_lock(job, "", e));
    const bool is_new = access(study_path(o->dir, "study.json", "").text, F_OK) != 0;
    for (int i = 0; i < 2; i++) {
        if (is_new && access(study_path(o->dir, own[i], "").text, F_OK) == 0)
            return err_set(e, STATUS_USAGE,
                           "-o: '%.200s' has a %s that no study has made, which would be "
                           "overwritten; expected a new folder, or a study's",
                           o->dir, own[i]);
        snprintf(items[i], sizeof *items, "%s %zu bytes %016" PRIx64, i == 0 ? "text" : "from",
                 hashed[i].len, train_hash(TRAIN_HASH_START, hashed[i].data, hashed[i].len));
        study_line_add(&line, NULL, i == 0 || o->from ? items[i] : NULL);
    }
    study_line_add_given(&line, &o->shape, &o->steps);
    study_line_print(&line, settings, sizeof settings);
    TRY(study_settings_keep(o->dir, settings, e));
    TRY(keep_file(study_path(o->dir, STUDY_CALIB, ""), text.data,
                  train_part(o->steps.val_fraction, text.len), e));
    for (int i = 0; o->from && i < job->plan.n; i++) {
        const struct study_cell *cell = &job->plan.cells[i];
        if (cell->method == STUDY_MHA && cell->alpha == 0)
            TRY(keep_file(study_path(o->dir, cell->name, ".gguf"), from->data, from->len, e));
    }
    study_unlock(job->lock, "");
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

/*
 * Prints the cells that are done, then their means, and draws --plot. CSV has the means under a
 * header of their own after an empty line, JSON in an object {"cells": [], "means": []}, JSON lines
 * in lines of their own.
 */
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
    const struct table tables[] = {TABLE_OF(study_fields, cells, n_cells),
                                   TABLE_OF(mean_fields, job->plan.means, job->plan.n_means)};
    output_puts(out, json ? "{\"cells\": " : "");
    TRY(job_print(job->run, &tables[0], e));
    output_puts(out, json ? ", \"means\": " : format == TABLE_JSONL ? "" : "\n");
    TRY(job_print(job->run, &tables[1], e));
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
    const enum status s = study_run(job, e);
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
