/*
 * cmd_heads - decode heads: what each head is worth.
 */
#include "cli/help_texts.h"
#include "cli/job.h"
#include "cli/paths.h"
#include "measure/attend.h"
#include "measure/heads.h"
#include "show/heatmap.h"

/* The options; the run; and the row that is printed. */
struct heads_view {
    struct common_options common;
    const char *svg;
    int tokens, ablation;
    bool curve;

    struct job *job;
    const struct config *config;
    struct heads_result result;

    struct head_worth worth;

    struct heads_point point;
    char *names;       /* [all heads, HEAD_BYTES] malloc'd: "0.3,1.2", of result.by_worth */
    struct text added; /* of it, to the point before */
};

/* In the order of enum heads_ablation. */
static const char *const ablations[] = {"zero", "mean", NULL};

#define VALUES     struct heads_view
#define HEAD_BYTES 16 /* of "0.3,", whatever the head */

static const struct option text_options[] = {
    OPT_RANGE,
    OPT_INT("tokens", tokens, "N", 1, INT_MAX - 1, "how many of its tokens are predicted, at most",
            .fallback = "4096"),
    OPT_CHOICE("ablate", ablation, "HOW", ablations,
               "what a head's result becomes: zero, or its mean over the text", .fallback = "zero"),
    OPT_FLAG("curve", curve,
             "instead of the heads the loss without the 1, 2, 4, ... of them together that cost "
             "least one by one; the order is not measured anew between"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_FORMAT,
    OPT_THREADS(THREADS_HELP),
    OPT_STRING("svg", svg, "FILE.svg", "draw delta_nll, layers down and heads across",
               .writes = WRITES_FILE),
    OPT_END,
};

/* --- what is shown --------------------------------------------------------------------------- */

static const struct report_field fields[] = {
    {"layer", "layer", MEMBER(heads_view, worth.layer)},
    {"head", "head", MEMBER(heads_view, worth.head)},
    {"delta_nll", "delta_nll", MEMBER(heads_view, worth.delta_nll), "%.5f"},
    {"delta_nll_stderr", "stderr", MEMBER(heads_view, worth.delta_nll_stderr), "%.5f",
     .detail = true},
    {"delta_bits_per_byte", "bits/byte", MEMBER(heads_view, worth.delta_bits_per_byte), "%.5f",
     .detail = true},
    {"written", "written", MEMBER(heads_view, worth.written), "%.3f", .detail = true},
    {"stream", "stream", MEMBER(heads_view, worth.stream), "%.3f", .detail = true},
};

static const void *next_head(void *arg, int i)
{
    struct heads_view *v = arg;
    if (i >= v->result.n_done)
        return NULL;
    v->worth = v->result.heads[i];
    return v;
}

static const struct report_field curve_fields[] = {
    {"heads_left_out", "left out", MEMBER(heads_view, point.n)},
    {"nll", "nll", MEMBER(heads_view, point.nll), "%.4f"},
    {"delta_nll", "delta_nll", MEMBER(heads_view, point.delta_nll), "%.4f"},
    {"bits_per_byte", "bits/byte", MEMBER(heads_view, point.bits_per_byte), "%.4f"},
    {"added", "added", MEMBER(heads_view, added), .list = true},
};

/* Which heads a point of the curve leaves out beyond those of the one before it. */
static const void *next_point(void *arg, int i)
{
    struct heads_view *v = arg;
    const struct heads_result *r = &v->result;
    size_t used = 0;
    if (i >= r->n_points)
        return NULL;
    v->point = r->points[i];
    for (int k = i > 0 ? r->points[i - 1].n : 0; k < v->point.n; k++)
        used += snprintf(v->names + used, HEAD_BYTES, "%s%d.%d", used ? "," : "",
                         r->by_worth[k].layer, r->by_worth[k].head);
    v->added = text_span(v->names, used);
    return v;
}

/* "N of M heads DO ...: 0.2,0.4", as --without takes them, and "..." where there is no more room.
 * One standard error would find harm in every sixth head that is worth nothing. */
static void say_heads(const struct heads_view *v, bool harmful, const char *what)
{
    const struct heads_result *r = &v->result;
    char names[512] = "";
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < r->n_done; i++) {
        const struct head_worth *w = &r->heads[i];
        const bool does_harm = w->delta_nll < -2 * w->delta_nll_stderr;
        if (does_harm != harmful || !(w->delta_nll <= w->delta_nll_stderr))
            continue;
        if (used + 32 < sizeof names)
            used += snprintf(names + used, sizeof names - used, "%s%d.%d", n ? "," : ": ", w->layer,
                             w->head);
        else
            snprintf(names + used, sizeof names - used, ",...");
        n++;
    }
    log_info(&v->common, "%d of %d heads %s%s", n, r->n_done, what, names);
}

/* delta_nll of the heads that are done, at least one: layers down and heads across. */
static enum status write_picture(const struct heads_view *v, struct err *e)
{
    const struct heads_result *r = &v->result;
    const int n_heads = v->config->n_heads; /* a row has */
    struct text_label layers[HEATMAP_LARGE], heads[HEATMAP_LARGE];
    char title[256], subtitle[256];
    double most = 0;
    int n_rows = 0;
    float *cells;
    TRY_ZEROED(cells, (size_t)v->config->n_layers * n_heads, "the picture", e);
    for (int i = 0; i < r->n_done; i++) {
        const struct head_worth *w = &r->heads[i];
        n_rows += w->head == 0;
        cells[(n_rows - 1) * n_heads + w->head] = fmax(w->delta_nll, 0);
        most = fmax(most, w->delta_nll);
        chars_printf(layers[n_rows - 1].text, "layer %d", w->layer);
    }
    for (int i = 0; i < n_heads; i++)
        chars_printf(heads[i].text, "%d", i);
    chars_printf(title, "%.160s: loss without each head", path_name(v->job->path));
    chars_printf(subtitle,
                 "%" PRIu64 " tokens, %.4f nats each with all heads; blank: less, or a gain",
                 r->whole.tokens, r->whole.nll);
    const struct heatmap_map map = {.cells = cells, .group = -1};
    const struct heatmap_picture picture = {.title = title,
                                            .subtitle = subtitle,
                                            .what = "nats a token",
                                            .scale = heatmap_scale(most, true),
                                            .maps = &map,
                                            .n_rows = 1,
                                            .n_columns = 1,
                                            .map_rows = n_rows,
                                            .map_columns = n_heads,
                                            .row_names = layers,
                                            .column_names = heads};
    const enum status s = heatmap_write(&picture, v->svg, e);
    free(cells);
    if (s == STATUS_OK)
        log_info(&v->common, "%s is written", v->svg);
    return s;
}

/* What is done is shown also after Ctrl-C, the heads if there is no curve yet. */
static enum status print_heads(struct heads_view *v, struct err *e)
{
    const struct heads_result *r = &v->result;
    const struct table heads = {fields, .n = LENGTH(fields), .row = next_head, .arg = v};
    const struct table curve = {curve_fields, .n = LENGTH(curve_fields), .row = next_point,
                                .arg = v};
    if (r->n_done == 0)
        return STATUS_OK;
    TRY(job_print(v->job, r->n_points > 0 ? &curve : &heads, e));
    log_info(&v->common, "%.4f nats a token and %.4f bits per byte with all heads", r->whole.nll,
             r->whole.bits_per_byte);
    say_heads(v, false, "cannot be told from zero on this text, within the standard error");
    say_heads(v, true, "do harm, beyond two standard errors");
    return v->svg ? write_picture(v, e) : STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status measure_heads(struct heads_view *v, struct err *e)
{
    struct job *j = v->job;
    const struct checkpoint *k = &j->checkpoint;
    const size_t n_heads = v->config->n_heads;
    struct job_memory memory = {.weights = k->model->weights.cap,
                                .advice = "fewer --tokens and -t 1 take less"};
    struct heads_spec spec = {
        .eval = job_eval_spec(j, k), .ablation = v->ablation, .curve = v->curve};
    char what[32];
    chars_printf(what, "%zu tokens", j->n_tokens);
    TRY(heads_plan(&spec, &memory.scratch, e));
    TRY(job_check_memory(j, &memory, what, e));
    TRY_ZEROED(v->names, v->config->n_layers * n_heads * HEAD_BYTES, "the names of heads", e);
    spec.eval.callbacks = job_callbacks(j, "tokens");
    return heads_run(&spec, &v->result, e);
}

static enum status run_heads(struct job *j, void *values, struct err *e)
{
    struct heads_view *v = values;
    const struct config *c = v->config = &j->checkpoint.model->config;
    const int most = MAX(c->n_heads, c->n_layers);
    v->job = j;
    TRY(job_tokenize(j, e));
    if (j->n_tokens > (size_t)v->tokens + 1)
        j->n_tokens = v->tokens + 1;
    if (v->svg && most > HEATMAP_LARGE)
        return err_usage(e, "--svg: expected at most %d layers, and heads in each, found %d",
                         HEATMAP_LARGE, most);
    TRY(job_start_threads(j, e));
    enum status s = measure_heads(v, e);
    if (s == STATUS_INTERRUPTED)
        log_info(j->common, "interrupted after %d heads", v->result.n_done);
    j->progress.unit = NULL; /* how far it came is said */
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        const enum status printed = print_heads(v, e);
        s = printed == STATUS_OK ? s : printed;
    }
    heads_free(&v->result);
    free(v->names);
    return s;
}

const struct command command_heads = {
    .name = "heads",
    .summary = "what each head is worth: loss without it",
    .usage = "MODEL TEXT [options]",
    .examples = "./decode heads models/shakespeare-mha.gguf README.md --tokens 256\n"
                "./decode heads models/shakespeare-mha.gguf LICENSE --svg worth.svg\n",
    .notes = help_of_heads,
    .spec = {.groups = {{"Text", text_options, 0}, {"Results", result_options, 0}, GENERAL_GROUP},
             .everyday = "tokens range ablate curve svg format",
             .positionals = {MODEL_POSITIONAL, TEXT_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .no_text = "there is no text to predict; expected TEXT, a file",
    .run = run_heads,
};
