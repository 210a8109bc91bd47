/*
 * cmd_study - decode study: the GQA paper's experiment on one text, and how many query heads are
 * best: what is compared, and what is printed. study_cells makes the cells.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "cli/study_cells.h"
#include "model/cost.h"

_Static_assert(STUDY_FIT - STUDY_MEAN == CONVERT_FIT, "methods are in the order of convert's");

/* Percents of the steps: no study needs more, and the steps stay within an int. */
#define MOST_ALPHA 10000
#define MOST_SHARD 100000

/* With which a text of 1 MB takes less than ten minutes of two processors. */
#define STUDY_STEPS 250
#define STUDY_SEEDS 2

const char *const study_matches[] = {"params", "flops", NULL};

#define VALUES struct study_options

static const struct option study_options[] = {
    OPT_TEXT("the text, as TEXT"),
    OPT_STRING("output", dir, "DIR", "the folder of the cells; required", .letter = 'o',
               .reads = "the study"),
    OPT_STRING("from", from, "MODEL",
               "an MHA checkpoint to study in place of new ones; --steps is what it was trained "
               "for, and nothing is trained from scratch",
               .reads = "the checkpoint"),
    OPT_STRING("heads", heads, "H,H,...",
               "query heads; several are compared at the same width and steps, trained from "
               "scratch, without conversions unless --kv-heads asks for some",
               .otherwise = "8", .excludes = "from"),
    OPT_CHOICE(
        "match", match, "WHAT", study_matches,
        "widen or narrow the feed-forward layer of what is trained from scratch, until it has the "
        "parameters, or a token takes the operations, of the first of --heads as MHA",
        .otherwise = "the same layer for all", .excludes = "from"),
    OPT_STRING("kv-heads", kv_heads, "G,G,...", "numbers of K/V heads to convert to",
               .otherwise = "every divisor of the query heads below them"),
    OPT_STRING("method", methods, "M,M,...", "how heads are converted, see decode help convert",
               .fallback = "mean,fit", .choices = convert_methods),
    OPT_STRING("alpha", alphas, "P,P,...",
               "percents of the steps for which each conversion, and the MHA checkpoint itself, is "
               "trained further; 0 is always among them",
               .fallback = "0,5"),
    OPT_STRING(
        "scratch", scratch, "P,P,...|none",
        "percents more than all steps for which each number of K/V heads is trained from scratch",
        .otherwise = "the largest of --alpha; none with --from", .excludes = "from"),
    OPT_INT("seeds", n_seeds, "N", 1, 1000, "seeds: each has an MHA checkpoint of its own",
            .otherwise = "2, or 1 with --from"),
    OPT_U64("seed", first_seed, "S", "the first of them; the others follow", .otherwise = "1"),
    OPT_FLAG("teacher", teacher,
             "train conversions further with their MHA checkpoint as the teacher, too"),
    OPT_STRING("shard", shard, "I/N",
               "every N-th cell only, from I (0 to N - 1) on, and what it is made from",
               .fallback = "0/1"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("plot", plot, "FILE.svg", "draw bits per byte over the percents, or over --heads",
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
    for (char item[48]; list_item(&text, item, sizeof item);) {
        char name[32];
        double x = 0, named;
        const bool is_number = parse_double(item, &x);
        chars_printf(name, "%g", x);
        if (!is_number || x < 0 || x > MOST_ALPHA || !parse_double(name, &named) || named != x)
            return err_usage(e,
                             "%s: expected percents of the steps from 0 to %d, of no more than six "
                             "digits, found '%.60s'",
                             option, MOST_ALPHA, item);
        for (int i = 0; i < list->n; i++)
            if (list->items[i] == x)
                return err_usage(e, "%s: %s is there twice", option, item);
        if (list->n == LIST_MAX)
            return err_usage(e, "%s: expected at most %d percents", option, LIST_MAX);
        list->items[list->n++] = x;
    }
    return STATUS_OK;
}

/* What --match makes equal, of a shape: parameters, or operations of a token that sees half the
 * context. */
static double amount_of(const struct study_options *o, const struct config *c)
{
    const struct cost_shape shape = {
        .config = c, .n_kv_heads = c->n_kv_heads, .tied = !c->arch->own_output};
    const struct cost_flops flops = cost_of(&shape, STORAGE_F32, c->n_ctx / 2).flops;
    return o->match == 1 ? cost_weights(&shape).parameters : flops.floats + flops.attention;
}

/* With --match, widens or narrows the feed-forward layer of c until it has as much as `like`; every
 * element of the width is as much as the next. */
static enum status match_ff(const struct study_options *o, const struct config *like,
                            struct config *c, struct err *e)
{
    if (!o->match)
        return STATUS_OK;
    struct config wider = *c;
    wider.d_ff++;
    const double now = amount_of(o, c), each = amount_of(o, &wider) - now;
    const double width = c->d_ff + round((amount_of(o, like) - now) / each);
    if (!(width >= 1 && width <= CONFIG_MAX_FF))
        return err_usage(e,
                         "--match: %d heads (%d K/V heads) would need a feed-forward layer %.0f "
                         "wide; expected 1 to %d",
                         c->n_heads, c->n_kv_heads, width, CONFIG_MAX_FF);
    c->d_ff = width;
    return STATUS_OK;
}

/* The lists of the options. */
struct lists {
    struct int_list kv_heads, methods;
    struct share_list alphas, scratch;
    struct config first; /* of --heads, that --match is about */
};

/* --kv-heads are of the most query heads that there are, `most`. */
static enum status read_lists(const struct study_job *job, const struct config *c, int most,
                              struct lists *l, struct err *e)
{
    const struct study_options *o = job->options;
    l->first = *c;
    if (o->kv_heads)
        TRY(list_heads("--kv-heads", o->kv_heads, most, &l->kv_heads, e));
    for (int g = most / 2; !o->kv_heads && job->heads.n < 2 && g >= 1; g--)
        if (most % g == 0)
            TRY(list_add("--kv-heads", g, &l->kv_heads, e));
    FOR_EACH (const int, g, l->kv_heads.items, l->kv_heads.n)
        if (most % *g != 0 || *g == most)
            return err_usage(
                e, "--kv-heads: expected divisors of the %d query heads below them, found %d", most,
                *g);
    TRY(list_names("--method", o->methods, convert_methods, &l->methods, e));
    /* 0 is always among the alphas; without --scratch it is as long as the longest. */
    bool has_0 = false;
    TRY(list_shares("--alpha", o->alphas, &l->alphas, e));
    FOR_EACH (const double, alpha, l->alphas.items, l->alphas.n) {
        has_0 |= *alpha == 0;
        l->scratch.items[0] = fmax(l->scratch.items[0], *alpha);
    }
    if (!has_0)
        l->alphas.items[l->alphas.n++] = 0;
    if (l->kv_heads.n == 0) /* there is nothing that a control would be for */
        l->alphas = (struct share_list){.n = 1};
    if (!o->scratch)
        l->scratch.n = !o->from;
    else if (!str_is(o->scratch, "none"))
        TRY(list_shares("--scratch", o->scratch, &l->scratch, e));
    if (o->teacher && l->alphas.n == 1)
        return err_usage(e, "--teacher: no conversion is trained further; expected percents above "
                            "0 in --alpha, and K/V heads to convert to");
    if (o->match && job->heads.n < 2 && (l->kv_heads.n == 0 || l->scratch.n == 0))
        return err_usage(e, "--match: there is nothing to be made equal; expected several --heads, "
                            "or --kv-heads that are trained from --scratch");
    return STATUS_OK;
}

/* Adds the cells of one number of query heads, those of an MHA shape. */
static enum status plan_heads(struct study_job *job, struct config mha, const struct lists *l,
                              struct err *e)
{
    const struct study_options *o = job->options;
    struct study_plan *plan = &job->plan;
    struct study_cell cell = {.kv_heads = mha.n_heads, .by_heads = job->heads.n > 1};
    plan->config = &mha;
    TRY(match_ff(o, &l->first, &mha, e));
    TRY(study_plan_add(plan, cell, l->alphas.items, l->alphas.n, e));
    for (int i = 0; i < l->kv_heads.n; i++) {
        struct config scratch = mha;
        cell.kv_heads = scratch.n_kv_heads = l->kv_heads.items[i];
        if (mha.n_heads % cell.kv_heads != 0 || mha.n_heads == cell.kv_heads)
            continue; /* of other query heads */
        TRY(match_ff(o, &l->first, &scratch, e));
        cell.method = STUDY_SCRATCH;
        plan->config = &scratch;
        TRY(study_plan_add(plan, cell, l->scratch.items, l->scratch.n, e));
        plan->config = &mha;
        for (int m = 0; m < l->methods.n; m++) {
            cell.method = STUDY_MEAN + l->methods.items[m];
            TRY(study_plan_add(plan, cell, l->alphas.items, l->alphas.n, e));
        }
    }
    return STATUS_OK;
}

/* All cells: of the checkpoint --from, which is opened, or of every number of query heads. */
static enum status plan_study(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    struct int_list *heads = &job->heads;
    struct train_shape shape = o->shape;
    struct lists lists = {.kv_heads = {.n = 0}};
    struct config c;
    int most = 0;
    if (o->heads)
        TRY(list_ints("--heads", o->heads, 1, CONFIG_MAX_WIDTH, heads, e));
    FOR_EACH (const int, n_heads, heads->items, heads->n)
        most = MAX(*n_heads, most);
    for (int i = 0; i == 0 || i < heads->n; i++) {
        shape.n_heads = heads->n > 0 ? heads->items[i] : 0;
        TRY(train_origin_open(o->from, &shape, &job->run->checkpoint, &c, e));
        if (o->from && config_all_kv_heads(&c) != (int64_t)c.n_layers * c.n_heads) {
            char variant[16];
            config_variant_name(&c, c.n_kv_heads, variant);
            return err_usage(e, "--from: expected an MHA checkpoint, found %s in '%.200s'", variant,
                             o->from);
        }
        if (i == 0)
            TRY(read_lists(job, &c, most ? most : c.n_heads, &lists, e));
        TRY(plan_heads(job, c, &lists, e));
    }
    return STATUS_OK;
}

/* --- the report ------------------------------------------------------------------------------ */

static const struct report_field mean_fields[] = {
    {"heads", "heads", MEMBER(study_mean, of.heads), .rank = 6},
    {"d_ff", "d_ff", MEMBER(study_mean, of.d_ff), .rank = 7},
    {"kv_heads", NULL, MEMBER(study_mean, of.kv_heads)},
    {"variant", "variant", MEMBER(study_mean, of.variant)},
    {"method", "method", MEMBER(study_mean, of.method_name)},
    {"taught", "taught", MEMBER(study_mean, of.taught), .rank = 2},
    {"alpha", "% of steps", MEMBER(study_mean, of.alpha), "%g"},
    {"seeds", "seeds", MEMBER(study_mean, n_seeds), .rank = 4},
    {"bits_per_byte", "bits/byte", MEMBER(study_mean, of.bits_per_byte), "%.4f"},
    {COLUMN(study_mean, deviation), "%.4f"},
    {COLUMN(study_mean, least), "%.4f", .rank = 3},
    {COLUMN(study_mean, most), "%.4f", .rank = 3},
    {"over_mha", "over MHA", MEMBER(study_mean, over_mha), "%+.4f"},
    {"cache_bytes_per_token", NULL, MEMBER(study_mean, of.cache_bytes_per_token)},
};

/* Whether two means are points of one line: of the same kind, and, where lines run over the query
 * heads, of the same share. */
static bool same_line(const struct study_mean *a, const struct study_mean *b)
{
    return str_is(a->line, b->line) && (!a->of.by_heads || a->of.alpha == b->of.alpha);
}

/* Bits per byte over alpha, or over the query heads, a line for K/V heads and method, a band from
 * the least seed to the most. */
static enum status draw_means(const struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_plan *p = &job->plan;
    /* A colour for each method, of MHA the darkest; a marker for each variant. */
    static const int colours[STUDY_N_METHODS] = {6, 1, 2, 3, 4, 0, 7};
    const bool by_heads = job->heads.n > 1;
    char subtitle[320];
    chars_printf(subtitle, "%.100s%s%d steps, %d seed%s, %zu bytes of text, the last %g%% held out",
                 o->from ? path_name(o->from) : "", o->from ? ", " : "", p->n_steps, p->n_seeds,
                 plural(p->n_seeds), job->run->text.len, 100 * o->steps.val_fraction);
    /* A series for each mean at most: one block, which no request for nothing may leave NULL. */
    struct plot_series *series =
        calloc((size_t)p->n_means + 1, sizeof *series + sizeof(struct plot_point));
    if (!series)
        return err_no_memory(e, "the plot", p->n_means * sizeof *series);
    struct plot_point *points = (struct plot_point *)(series + p->n_means);
    struct plot plot = {.title = by_heads ? "Query heads at the same width"
                                          : "Uptraining after conversion",
                        .subtitle = subtitle,
                        .x_label = by_heads ? "query heads" : "uptraining (% of the steps)",
                        .y_label = "bits per byte of the held-out part",
                        .y_near = true,
                        .x_doubles = by_heads,
                        .x_crowds = !by_heads,
                        .mid_label = "mean of the seeds",
                        .band_label = "least to most",
                        .series = series};
    int n_markers = 0;
    for (const struct study_mean *first = p->means, *end = first + p->n_means; first < end;
         first++) {
        struct plot_series *line = &series[plot.n_series], *other = series;
        const struct study_mean *m = p->means;
        while (!same_line(m, first))
            m++;
        if (m < first) /* drawn */
            continue;
        while (other < line && !str_is(other->marker_name, first->of.variant))
            other++;
        *line = (struct plot_series){.name = first->line,
                                     .points = points,
                                     .colour = colours[first->of.method],
                                     .colour_name = strstr(first->line, ", ") + 2,
                                     .marker = other < line ? other->marker : n_markers++,
                                     .marker_name = first->of.variant,
                                     .dashed = first->of.taught};
        plot.n_series++;
        for (; m < end; m++) {
            const bool band = m->n_seeds > 1;
            if (!same_line(m, first))
                continue;
            line->n_points++;
            *points++ = (struct plot_point){by_heads ? m->of.heads : m->of.alpha,
                                            band ? m->least : NO_FIGURE, m->of.bits_per_byte,
                                            band ? m->most : NO_FIGURE, NO_FIGURE};
        }
    }
    const enum status s = plot_write(&plot, o->plot, e);
    free(series);
    return s;
}

/* Prints the cells that are done, then their means, and draws --plot. JSON is an object
 * {"cells": [], "means": []}; CSV, which has one header, has the cells alone. */
static enum status report_study(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    const enum table_format format = o->common.format;
    const bool json = format == TABLE_JSON;
    struct output *out = job->run->out;
    struct study_cell *cells = job->plan.cells;
    int n_cells = 0;
    TRY(study_means(&job->plan, e));
    FOR_EACH (const struct study_cell, cell, cells, job->plan.n)
        if (cell->done)
            cells[n_cells++] = *cell;
    output_puts(out, json ? "{\"cells\": " : "");
    TRY(job_print(job->run, &TABLE_OF(study_fields, cells, n_cells), e));
    if (format != TABLE_CSV) {
        const struct table means = TABLE_OF(mean_fields, job->plan.means, job->plan.n_means);
        output_puts(out, json ? ", \"means\": " : format == TABLE_JSONL ? "" : "\n");
        TRY(job_print(job->run, &means, e));
        output_puts(out, json ? "}\n" : "");
    }
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
        return err_usage(e, "no folder is named; expected -o DIR");
    if (strlen(o->dir) > STUDY_DIR_MAX)
        return err_usage(e, "-o: expected a path of at most %d bytes", STUDY_DIR_MAX);
    if (str_is(text, "-") || (stat(text, &st) == 0 && !S_ISREG(st.st_mode)))
        return err_usage(e, "'%.200s': every cell reads the text again; expected a file", text);
    if (o->steps.val_fraction <= 0)
        return err_usage(e, "--val-fraction: the held-out part is what cells are compared on; "
                            "expected more than 0");
    return STATUS_OK;
}

static enum status make_study(struct study_job *job, struct err *e)
{
    const struct study_options *o = job->options;
    struct checkpoint *from = &job->run->checkpoint;
    const char *rest = o->shard;
    char index[24];
    if (list_next(&rest, "/", index, sizeof index) != '/' ||
        !parse_int(rest, 1, MOST_SHARD, &job->n_shards) ||
        !parse_int(index, 0, job->n_shards - 1, &job->shard))
        return err_usage(
            e, "--shard: expected I/N, I from 0 to N - 1, as 0/2 and 1/2; found '%.60s'", o->shard);
    TRY(plan_study(job, e));
    TRY(study_prepare(job, &from->file, e));
    checkpoint_close(from);
    const enum status s = study_make_cells(job, e);
    /* Whatever the end: a record whose line an earlier run was kept from writing gets it. */
    const enum status written = study_results_write(o->dir, s == STATUS_OK ? e : NULL);
    TRY(s);
    TRY(written);
    return report_study(job, e);
}

static enum status run_study(struct job *j, void *values, struct err *e)
{
    struct study_options *o = values;
    if (o->steps.n_steps == 0)
        o->steps.n_steps = o->from ? TRAIN_STEPS : STUDY_STEPS;
    struct study_job job = {.options = o,
                            .run = j,
                            .plan = {.first_seed = o->first_seed.given ? o->first_seed.value : 1,
                                     .n_seeds = o->n_seeds ? o->n_seeds
                                                : o->from  ? 1
                                                           : STUDY_SEEDS,
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
    .examples = "./decode study LICENSE -o cells --embd 32 --ctx 32 --steps 9 --seeds 1\n"
                "./decode study LICENSE -o m --ctx 32 --steps 9 --alpha 0 --method mean\n",
    .notes =
        "For each seed an MHA checkpoint is trained, or that of --from is taken, and converted by\n"
        "each method to each number of K/V heads; each\n"
        "conversion, and the MHA checkpoint itself as the control, is trained further for each\n"
        "percent of the steps, with a learning rate that train --from finds; and each number of\n"
        "K/V heads is trained from scratch for as many steps in all. All are evaluated on the\n"
        "held-out part, which training and calibration do not see. Cells are printed, then their\n"
        "means over the seeds with their deviation (not in CSV).\n"
        "Several --heads ask another question: how many are best. Each number is trained from\n"
        "scratch, and nothing is converted; with --kv-heads each is then a study of\n"
        "its own, of those K/V heads that divide it. With --head-dim they differ in size, which\n"
        "--match makes up for. What is to be made, and about how long it takes, is said before.\n"
        "\n"
        "A cell is DIR/NAME.gguf, which the commands that -v shows make alone, bit for bit, and\n"
        "DIR/NAME.json with its figures. DIR/results.jsonl has a line for every cell that is\n"
        "done, without times: the same study gives the same bytes. Seconds are what the cell's\n"
        "own training or conversion took, in the run that ended it. What is there is not made\n"
        "again, Ctrl-C saves, and the same command goes on; other options of training need\n"
        "another DIR. Several runs may share a DIR, shards of one study, too: a cell that one of\n"
        "them makes the others wait for.\n"
        "The options of training are those of the MHA checkpoints and from scratch; further\n"
        "training takes batch, window, optimizer, clip and weight decay of them.\n",
    .spec = {.groups = {{"Study", study_options, 0},
                        {"Results", result_options, 0},
                        {"The model", train_size_options, offsetof(VALUES, shape)},
                        {"What it is made of", train_kind_options, offsetof(VALUES, shape)},
                        {"Steps", train_step_options, offsetof(VALUES, steps)},
                        {"Held-out text", train_held_out_options, offsetof(VALUES, steps)},
                        {"Run", run_options, 0},
                        {"", general_options + 1, 0}},
             .everyday = "output kv-heads method alpha seeds layers embd heads steps plot",
             .positionals = {TEXT_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_TEXT | JOB_STOPS | JOB_WORKERS,
    .no_text = "no text is named; expected TEXT",
    .check = check_study,
    .run = run_study,
};
