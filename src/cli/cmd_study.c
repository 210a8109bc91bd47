/*
 * cmd_study - decode study: the GQA paper's experiment on one text.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/output.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/paths.h"
#include "cli/runtime.h"
#include "cli/signals.h"
#include "cli/study_args.h"
#include "cli/study_records.h"
#include "cli/study_report.h"
#include "cli/study_run.h"
#include "cli/train_steps.h"
#include "model/checkpoint.h"
#include "train/train.h"

/* More text than this is refused before it is read. */
#define TEXT_MAX ((size_t)1 << 30)

struct study_options {
    struct common_options common; /* its positional is TEXT, its model stays NULL */
    const char *dir, *from, *kv_heads, *methods, *latent, *alphas, *scratch, *shard, *plot,
        *frontier, *threads, *columns;
    int n_seeds, format;
    struct option_u64 first_seed;
    bool teacher;
    struct train_shape shape;
    struct train_spec steps;
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
               .otherwise = "the largest of --alpha; none with --from"),
    OPT_INT("seeds", n_seeds, "N", 1, 1000, "seeds: each has an MHA checkpoint of its own",
            .otherwise = "3, or 1 with --from"),
    OPT_U64("seed", first_seed, "S", "the first of them; the others follow", .otherwise = "1"),
    OPT_FLAG("teacher", teacher,
             "train conversions further with their MHA checkpoint as the teacher, too"),
    OPT_BINARY,
    OPT_STRING("shard", shard, "I/N",
               "every N-th cell only, from I (0 to N - 1) on, and what it is made from",
               .fallback = "0/1"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("plot", plot, "FILE.svg", "draw bits per byte over the percents", .writes = true),
    OPT_STRING("frontier", frontier, "FILE.svg",
               "draw bits per byte over the cache's bytes a token, as converted and after 1% (or "
               "the least percent of --alpha)",
               .writes = true),
    OPT_FORMAT,
    OPT_COLUMNS,
    OPT_END,
};

static const struct option general_options[] = {
    OPT_THREADS("threads; any number gives the same cells"),
    OPT_FLAG("quiet", common.quiet, "nothing on standard error but errors", .letter = 'q'),
    OPT_FLAG("verbose", common.verbose, "also the command of each cell", .letter = 'v'),
    OPT_END,
};

/* --- what is compared ------------------------------------------------------------------------ */

static enum status list_kv_heads(const struct study_options *o, const struct config *c,
                                 struct int_list *list, struct err *e)
{
    if (o->kv_heads)
        TRY(list_heads("--kv-heads", o->kv_heads, c->n_heads, list, e));
    for (int g = c->n_heads / 2; !o->kv_heads && g >= 1; g--)
        if (c->n_heads % g == 0)
            TRY(list_add("--kv-heads", g, list, e));
    for (int i = 0; i < list->n; i++)
        if (c->n_heads % list->items[i] != 0 || list->items[i] == c->n_heads)
            return err_set(e, STATUS_USAGE,
                           "--kv-heads: expected divisors of the %d query heads below them, found "
                           "%d",
                           c->n_heads, list->items[i]);
    return STATUS_OK;
}

static enum status list_methods(const struct study_options *o, struct int_list *list, struct err *e)
{
    const char *names[STUDY_N_METHODS] = {NULL};
    for (int m = STUDY_MHA + 1; m < STUDY_LATENT; m++)
        names[m - STUDY_MHA - 1] = study_methods[m];
    TRY(list_names("--method", o->methods, names, list, e));
    for (int i = 0; i < list->n; i++)
        list->items[i] += STUDY_MHA + 1;
    return STATUS_OK;
}

/* What convert would refuse only when the MHA checkpoint is trained. */
static enum status list_ranks(const struct study_options *o, const struct config *c,
                              struct int_list *list, struct err *e)
{
    if (!o->latent)
        return STATUS_OK;
    if (c->position == POSITION_ROPE)
        return err_set(e, STATUS_USAGE,
                       "--latent: expected another --position than rope, which turns every key by "
                       "its own position: one cached vector for all heads cannot be turned");
    return list_ints("--latent", o->latent, 1, c->d_model, list, e);
}

static enum status list_percents(const struct study_options *o, struct study_wanted *w,
                                 struct err *e)
{
    double most = 0;
    TRY(study_list_shares("--alpha", o->alphas, &w->alphas, e));
    bool has_none = false;
    for (int i = 0; i < w->alphas.n; i++) {
        has_none |= w->alphas.items[i] == 0;
        most = w->alphas.items[i] > most ? w->alphas.items[i] : most;
    }
    if (!has_none)
        TRY(study_list_shares("--alpha", "0", &w->alphas, e));
    if (!o->scratch && !o->from)
        w->scratch = (struct study_shares){{most}, 1};
    else if (o->scratch && strcmp(o->scratch, "none") != 0)
        TRY(study_list_shares("--scratch", o->scratch, &w->scratch, e));
    return STATUS_OK;
}

static int count_seeds(const struct study_options *o)
{
    return o->n_seeds ? o->n_seeds : o->from ? 1 : 3;
}

static enum status specify_study(const struct study_options *o, const struct config *c,
                                 struct study_wanted *w, struct err *e)
{
    *w = (struct study_wanted){.config = c,
                               .first_seed = o->first_seed.given ? o->first_seed.value : 1,
                               .n_seeds = count_seeds(o),
                               .n_steps = o->steps.n_steps,
                               .taught = o->teacher};
    TRY(list_kv_heads(o, c, &w->kv_heads, e));
    TRY(list_methods(o, &w->methods, e));
    TRY(list_ranks(o, c, &w->latent, e));
    if (w->first_seed > UINT64_MAX - (uint64_t)w->n_seeds)
        return err_set(e, STATUS_USAGE, "--seed: %d seeds from %" PRIu64 " on are beyond the last",
                       w->n_seeds, w->first_seed);
    return list_percents(o, w, e);
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

/* What all cells of a folder have in common: the text, the given checkpoint and the options of
 * training. */
static enum status keep_settings(const struct study_options *o, const struct file_map *from,
                                 struct text text, struct err *e)
{
    static const char *const nothing[] = {NULL};
    struct study_args a = {.n = 0};
    struct bytes line = {.data = NULL};
    study_args_add(&a, "text %zu bytes %016" PRIx64, text.len,
                   train_hash(TRAIN_HASH_START, text.data, text.len));
    if (o->from)
        study_args_add(&a, "from %zu bytes %016" PRIx64, from->len,
                       train_hash(TRAIN_HASH_START, from->data, from->len));
    study_args_given(&a, train_size_options, &o->shape, nothing);
    study_args_given(&a, train_kind_options, &o->shape, nothing);
    study_args_given(&a, train_step_options, &o->steps, nothing);
    study_args_given(&a, train_held_out_options, &o->steps, nothing);
    enum status s = study_args_join(&a, &line, e);
    if (s == STATUS_OK)
        s = study_settings_keep(o->dir, bytes_text(&line), e);
    bytes_free(&line);
    return s;
}

/* Written once: that it is not there whole cannot be, as it is replaced as a whole. */
static enum status keep_file(const struct study_options *o, const char *name, const char *suffix,
                             const void *data, size_t len, struct err *e)
{
    char *path;
    struct stat st;
    struct file_writer *w;
    TRY(study_path(o->dir, name, suffix, &path, e));
    enum status s = STATUS_OK;
    if (stat(path, &st) != 0 || (uint64_t)st.st_size != len) {
        s = file_writer_open(&w, path, e);
        if (s == STATUS_OK) {
            file_writer_put(w, data, len);
            s = file_writer_commit(w, e);
        }
    }
    free(path);
    return s;
}

/* The given checkpoint as the one that each seed would have trained. */
static enum status keep_given(const struct study_options *o, const struct study_plan *plan,
                              const struct file_map *from, struct err *e)
{
    for (int i = 0; o->from && i < plan->n; i++)
        if (plan->cells[i].method == STUDY_MHA && plan->cells[i].alpha == 0)
            TRY(keep_file(o, plan->cells[i].name, ".gguf", from->data, from->len, e));
    return STATUS_OK;
}

/* What is called as a study's own file where there is none: somebody else's, to be left alone. */
static enum status refuse_foreign(const char *dir, struct err *e)
{
    static const char *const own[] = {STUDY_CALIB, "results.jsonl"};
    char *path;
    TRY(study_path(dir, "study.json", "", &path, e));
    const bool is_study = access(path, F_OK) == 0;
    free(path);
    for (size_t i = 0; i < sizeof own / sizeof *own && !is_study; i++) {
        TRY(study_path(dir, own[i], "", &path, e));
        const bool is_there = access(path, F_OK) == 0;
        free(path);
        if (is_there)
            return err_set(e, STATUS_USAGE,
                           "-o: '%.200s' has a %s that no study has made, which would be "
                           "overwritten; expected a new folder, or a study's",
                           dir, own[i]);
    }
    return STATUS_OK;
}

static enum status keep_all(const struct study_options *o, const struct study_plan *plan,
                            const struct file_map *from, struct text text, struct err *e)
{
    TRY(refuse_foreign(o->dir, e));
    TRY(keep_settings(o, from, text, e));
    TRY(keep_file(o, STUDY_CALIB, "", text.data, train_part(o->steps.val_fraction, text.len), e));
    return keep_given(o, plan, from, e);
}

static enum status prepare_folder(const struct study_options *o, struct study_setting *setting,
                                  const struct file_map *from, struct err *e)
{
    char *bytes = NULL;
    struct text text;
    TRY(input_await(o->common.positional, TEXT_MAX, &bytes, &text.len, e));
    text.data = bytes;
    setting->text_bytes = text.len;
    enum status s = input_check_text(&o->common, o->common.positional, text, e);
    if (s == STATUS_OK)
        s = make_folder(o->dir, e);
    if (s == STATUS_OK)
        s = study_lock_open(o->dir, &setting->lock, e);
    if (s == STATUS_OK)
        s = study_lock(setting, "", e);
    if (s == STATUS_OK) {
        s = keep_all(o, setting->plan, from, text, e);
        study_unlock(setting->lock, "");
    }
    free(bytes);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status check_study_options(const struct study_options *o, struct study_shard *shard,
                                       struct err *e)
{
    struct stat st;
    const char *text = o->common.positional;
    if (!text)
        return err_set(e, STATUS_USAGE, "no text is named; expected TEXT");
    if (!o->dir || !o->dir[0])
        return err_set(e, STATUS_USAGE, "no folder is named; expected -o DIR");
    if (strcmp(text, "-") == 0 || (stat(text, &st) == 0 && !S_ISREG(st.st_mode)))
        return err_set(e, STATUS_USAGE,
                       "'%.200s': every cell reads the text again; expected a file", text);
    if (o->steps.val_fraction <= 0)
        return err_set(e, STATUS_USAGE,
                       "--val-fraction: the held-out part is what cells are compared on; expected "
                       "more than 0");
    TRY(study_check_columns(o->columns, (enum table_format)o->format, e));
    TRY(path_writable(o->plot, e));
    TRY(path_writable(o->frontier, e));
    return study_read_shard(o->shard, shard, e);
}

static enum status show_study(const struct study_options *o, const struct study_setting *s,
                              const struct study_mean *means, int n, struct output *out,
                              struct err *e)
{
    char subtitle[320];
    const int n_seeds = count_seeds(o);
    snprintf(subtitle, sizeof subtitle,
             "%.100s%s%d steps, %d seed%s, %zu bytes of text, the last %g%% held out",
             o->from ? path_name(o->from) : "", o->from ? ", " : "", o->steps.n_steps, n_seeds,
             plural((uint64_t)n_seeds), s->text_bytes, 100 * o->steps.val_fraction);
    TRY(study_report_print(s->plan, means, n, (enum table_format)o->format, o->columns, out, e));
    if (o->plot)
        TRY(study_write_plot(means, n, subtitle, o->plot, e));
    return o->frontier ? study_write_frontier(means, n, subtitle, o->frontier, e) : STATUS_OK;
}

static enum status conclude_study(const struct study_options *o, const struct study_setting *s,
                                  struct output *out, struct err *e)
{
    struct study_mean *means;
    int n;
    TRY(study_means(s->plan, &means, &n, e));
    const enum status status = show_study(o, s, means, n, out, e);
    free(means);
    return status;
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
    TRY(common_open(o->from, COMMON_TEXTS, from, e));
    TRY(common_config(o->from, from, c, e));
    if (config_is_latent(c) || config_all_kv_heads(c) != (int64_t)c->n_layers * c->n_heads) {
        char variant[16];
        config_variant_name(c, c->n_kv_heads, variant);
        return err_set(e, STATUS_USAGE, "--from: expected an MHA checkpoint, found %s in '%.200s'",
                       variant, o->from);
    }
    return STATUS_OK;
}

static enum status run_plan(const struct study_options *o, const struct config *c,
                            const struct file_map *from, struct study_shard shard,
                            struct output *out, struct err *e)
{
    struct study_wanted wanted;
    struct study_plan plan;
    struct study_setting setting = {.common = &o->common,
                                    .dir = o->dir,
                                    .text = o->common.positional,
                                    .threads = o->threads,
                                    .shape = &o->shape,
                                    .steps = &o->steps,
                                    .shard = shard,
                                    .given = o->from,
                                    .lock = -1,
                                    .plan = &plan,
                                    .length = c->n_ctx};
    TRY(specify_study(o, c, &wanted, e));
    TRY(study_plan_make(&wanted, &plan, e));
    enum status s = prepare_folder(o, &setting, from, e);
    if (s == STATUS_OK) {
        s = study_run(&setting, e);
        /* Whatever the end: a record whose line an earlier run was kept from writing gets it. */
        const enum status written = study_results_write(o->dir, s == STATUS_OK ? e : NULL);
        s = s == STATUS_OK ? written : s;
    }
    if (s == STATUS_OK)
        s = conclude_study(o, &setting, out, e);
    if (setting.lock >= 0)
        close(setting.lock);
    study_plan_free(&plan);
    return s;
}

static enum status run_study(const struct invocation *inv, const void *values, struct err *e)
{
    const struct study_options *o = values;
    struct study_shard shard;
    struct checkpoint from = {.gguf = NULL};
    struct config config;
    signals_defer();
    TRY(check_study_options(o, &shard, e));
    enum status s = read_shape(o, &from, &config, e);
    if (s == STATUS_OK)
        s = run_plan(o, &config, &from.file, shard, inv->out, e);
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
                        {"General", general_options, 0}},
             .positionals = {OPT_STRING("TEXT", common.positional, NULL, NULL,
                                        .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .run = run_study,
};
