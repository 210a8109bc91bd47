/*
 * cmd_study - decode study: the GQA paper's experiment on one text.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/columns.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/signals.h"
#include "cli/study.h"
#include "cli/train_steps.h"
#include "convert/convert.h"
#include "train/train.h"

/* More text than this is refused before it is read. */
#define TEXT_MAX ((size_t)1 << 30)
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
               .otherwise = "the largest of --alpha; none with --from"),
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
    OPT_COLUMNS,
    OPT_END,
};

static const struct option run_options[] = {
    OPT_THREADS("threads; any number gives the same cells"),
    OPT_END,
};

/* --- what is compared ------------------------------------------------------------------------ */

struct share_list {
    double items[LIST_MAX];
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

/* 0 is always among the alphas; without --scratch it is as long as the longest. */
static enum status list_alphas(const struct study_options *o, struct share_list *alphas,
                               struct share_list *scratch, struct err *e)
{
    double least = HUGE_VAL, most = 0;
    TRY(list_shares("--alpha", o->alphas, alphas, e));
    for (int i = 0; i < alphas->n; i++) {
        least = fmin(least, alphas->items[i]);
        most = fmax(most, alphas->items[i]);
    }
    if (least > 0)
        TRY(list_shares("--alpha", "0", alphas, e));
    if (!o->scratch && !o->from)
        *scratch = (struct share_list){{most}, 1};
    else if (o->scratch && strcmp(o->scratch, "none") != 0)
        TRY(list_shares("--scratch", o->scratch, scratch, e));
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
    if (plan->first_seed > UINT64_MAX - (uint64_t)plan->n_seeds)
        return err_set(e, STATUS_USAGE, "--seed: %d seeds from %" PRIu64 " on are beyond the last",
                       plan->n_seeds, plan->first_seed);
    TRY(list_alphas(o, &alphas, &scratch, e));

    plan->config = c;
    struct study_cell cell = {.kv_heads = c->n_heads, .method = STUDY_MHA};
    TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
    for (int g = 0; g < kv_heads.n; g++) {
        cell = (struct study_cell){.kv_heads = kv_heads.items[g], .method = STUDY_SCRATCH};
        TRY(study_plan_add(plan, cell, scratch.items, scratch.n, e));
        for (int m = 0; m < methods.n; m++) {
            cell.method = (enum study_method)(STUDY_MEAN + methods.items[m]);
            TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
        }
    }
    for (int r = 0; r < ranks.n; r++) {
        cell = (struct study_cell){.kv_heads = 1, .latent = ranks.items[r], .method = STUDY_LATENT};
        TRY(study_plan_add(plan, cell, alphas.items, alphas.n, e));
    }
    study_plan_sort(plan);
    return STATUS_OK;
}

/* --- the folder ------------------------------------------------------------------------------ */

static enum status make_folder(const char *dir, struct err *e)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0)
        return STATUS_OK;
    if (stat(dir, &st) != 0)
        return err_set(e, STATUS_FAILED, "-o: the folder '%.200s' cannot be made", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, STATUS_USAGE, "-o: expected a folder, found the file '%.200s'", dir);
    return STATUS_OK;
}

/* What is called as a study's own file where there is none: somebody else's, to be left alone. */
static enum status refuse_foreign(const char *dir, struct err *e)
{
    static const char *const own[] = {STUDY_CALIB, "results.jsonl"};
    if (access(study_path(dir, "study.json", "").text, F_OK) == 0)
        return STATUS_OK;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (access(study_path(dir, own[i], "").text, F_OK) == 0)
            return err_set(e, STATUS_USAGE,
                           "-o: '%.200s' has a %s that no study has made, which would be "
                           "overwritten; expected a new folder, or a study's",
                           dir, own[i]);
    return STATUS_OK;
}

/* What all cells of a folder have in common: the text, the given checkpoint and the options of
 * training. */
static enum status keep_settings(const struct study_job *job, const struct file_map *from,
                                 struct err *e)
{
    const struct study_options *o = job->options;
    const struct text text = job->text;
    char given[64] = "", settings[4096];
    if (o->from)
        snprintf(given, sizeof given, " 'from %zu bytes %016" PRIx64 "'", from->len,
                 train_hash(TRAIN_HASH_START, from->data, from->len));
    snprintf(settings, sizeof settings, "'text %zu bytes %016" PRIx64 "'%s%s%s%s%s", text.len,
             train_hash(TRAIN_HASH_START, text.data, text.len), given,
             study_given(train_size_options, &o->shape).text,
             study_given(train_kind_options, &o->shape).text,
             study_given(train_step_options, &o->steps).text,
             study_given(train_held_out_options, &o->steps).text);
    return study_settings_keep(o->dir, text_of(settings), e);
}

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

static enum status keep_all(const struct study_job *job, const struct file_map *from, struct err *e)
{
    const struct study_options *o = job->options;
    TRY(refuse_foreign(o->dir, e));
    TRY(keep_settings(job, from, e));
    TRY(keep_file(study_path(o->dir, STUDY_CALIB, ""), job->text.data,
                  train_part(o->steps.val_fraction, job->text.len), e));
    /* The given checkpoint as the one that each seed would have trained. */
    for (int i = 0; o->from && i < job->plan.n; i++) {
        const struct study_cell *cell = &job->plan.cells[i];
        if (cell->method == STUDY_MHA && cell->alpha == 0)
            TRY(keep_file(study_path(o->dir, cell->name, ".gguf"), from->data, from->len, e));
    }
    return STATUS_OK;
}

static enum status prepare_folder(struct study_job *job, const struct file_map *from, struct err *e)
{
    const struct study_options *o = job->options;
    char *text = NULL;
    TRY(input_await(o->common.positional, TEXT_MAX, &text, &job->text.len, e));
    job->text.data = text;
    TRY(input_check_text(o->common.positional, job->text, e));
    TRY(make_folder(o->dir, e));
    TRY(study_lock_open(o->dir, &job->lock, e));
    TRY(study_lock(job, "", e));
    const enum status s = keep_all(job, from, e);
    study_unlock(job->lock, "");
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

/* "I/N" */
static enum status read_shard(const char *text, struct study_job *job, struct err *e)
{
    const char *rest = text;
    char index[24];
    if (list_next(&rest, "/", index, sizeof index) != '/' ||
        !parse_int(rest, 1, MOST_SHARD, &job->n_shards) ||
        !parse_int(index, 0, job->n_shards - 1, &job->shard))
        return err_set(e, STATUS_USAGE,
                       "--shard: expected I/N, I from 0 to N - 1, as 0/2 and 1/2; found '%.60s'",
                       text);
    return STATUS_OK;
}

static enum status check_study_options(const struct study_options *o, struct err *e)
{
    struct stat st;
    const char *text = o->common.positional;
    if (!text)
        return err_set(e, STATUS_USAGE, "no text is named; expected TEXT");
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
    TRY(study_check_columns(o, e));
    return path_writable(o->plot, e);
}

/* The MHA checkpoints' shape; *from is open where one is given. */
static enum status read_shape(const struct study_options *o, struct checkpoint *from,
                              struct config *c, struct err *e)
{
    const char *given =
        o->scratch && strcmp(o->scratch, "none") != 0 ? "scratch" : train_shape_given(&o->shape);
    if (!o->from)
        return train_shape_config(&o->shape, c, e);
    if (given)
        return err_set(e, STATUS_USAGE,
                       "--%s and --from are both given: the checkpoint has its own shape and "
                       "vocabulary, and no new one is made",
                       given);
    TRY(job_open(o->from, JOB_TOKENIZES, from, e));
    TRY(job_config(o->from, from, c, e));
    if (config_is_latent(c) || config_all_kv_heads(c) != (int64_t)c->n_layers * c->n_heads) {
        char variant[16];
        config_variant_name(c, c->n_kv_heads, variant);
        return err_set(e, STATUS_USAGE, "--from: expected an MHA checkpoint, found %s in '%.200s'",
                       variant, o->from);
    }
    return STATUS_OK;
}

static enum status run_study(struct job *j, void *values, struct err *e)
{
    const struct study_options *o = values;
    struct study_job job = {.options = o,
                            .quiet = {.quiet = true},
                            .plan = {.first_seed = o->first_seed.given ? o->first_seed.value : 1,
                                     .n_seeds = o->n_seeds ? o->n_seeds
                                                : o->from  ? 1
                                                           : 3,
                                     .n_steps = o->steps.n_steps,
                                     .taught = o->teacher},
                            .job = j,
                            .lock = -1};
    struct checkpoint from = {.gguf = NULL};
    struct config config;
    TRY(check_study_options(o, e));
    TRY(read_shard(o->shard, &job, e));
    enum status s = read_shape(o, &from, &config, e);
    if (s == STATUS_OK)
        s = plan_study(&job, &config, e);
    if (s == STATUS_OK)
        s = prepare_folder(&job, &from.file, e);
    if (s == STATUS_OK) {
        s = study_run(&job, e);
        /* Whatever the end: a record whose line an earlier run was kept from writing gets it. */
        const enum status written = study_results_write(o->dir, s == STATUS_OK ? e : NULL);
        s = s == STATUS_OK ? written : s;
    }
    if (s == STATUS_OK)
        s = study_report(&job, j->out, e);
    if (job.lock >= 0)
        close(job.lock);
    free((char *)(uintptr_t)job.text.data);
    study_plan_free(&job.plan);
    checkpoint_close(&from);
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
                        {"General", general_options + 1, 0, true}},
             .positionals = {OPT_STRING("TEXT", common.positional, NULL, NULL,
                                        .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_STOPS | JOB_WORKERS,
    .run = run_study,
};
