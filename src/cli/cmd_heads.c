/* decode heads: what each head is worth. */
#include "cli/job.h"
#include "measure/heads.h"
#include "show/heatmap.h"

struct heads_options {
    struct common_options common;
    const char *svg;
    int tokens, ablation;
    bool curve;
};

static const char *const ablations[] = {"zero", "mean", NULL};

#define VALUES     struct heads_options
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
               .writes = WRITES_SVG),
    OPT_END,
};

/* --- what is shown --------------------------------------------------------------------------- */

static const struct report_field fields[] = {
    {"layer", "layer", MEMBER(head_worth, layer)},
    {"head", "head", MEMBER(head_worth, head)},
    {"delta_nll", "delta_nll", MEMBER(head_worth, delta_nll), "%.5f"},
    {"delta_nll_stderr", "stderr", MEMBER(head_worth, delta_nll_stderr), "%.5f", .detail = true},
    {"delta_bits_per_byte", "bits/byte", MEMBER(head_worth, delta_bits_per_byte), "%.5f",
     .detail = true},
    {"written", "written", MEMBER(head_worth, written), "%.3f", .detail = true},
};

/* A point of the curve, with the heads that the point before it keeps and it leaves out. */
struct curve_row {
    struct heads_point at;
    struct text added; /* "0.3,1.2" */
};

static const struct report_field curve_fields[] = {
    {"heads_left_out", "left out", MEMBER(curve_row, at.n)},
    {"nll", "nll", MEMBER(curve_row, at.nll), "%.4f"},
    {"delta_nll", "delta_nll", MEMBER(curve_row, at.delta_nll), "%.4f"},
    {"bits_per_byte", "bits/byte", MEMBER(curve_row, at.bits_per_byte), "%.4f"},
    {"added", "added", MEMBER(curve_row, added), .list = true},
};
/* Makes the rows of the curve, malloc'd; their names stand behind them. */
static enum status make_rows(const struct heads_result *r, struct curve_row **out, struct err *e)
{
    const size_t names_bytes = (size_t)r->n_heads * HEAD_BYTES;
    struct curve_row *rows =
        array_zeroed(1, r->n_points * sizeof *rows + names_bytes, "the rows of the curve", e);
    if (!rows)
        return STATUS_NO_MEMORY;
    char *name = (char *)(rows + r->n_points);
    for (int i = 0, head = 0; i < r->n_points; i++) {
        char *first = name;
        for (; head < r->points[i].n; head++)
            name += snprintf(name, HEAD_BYTES, "%s%d.%d", name > first ? "," : "",
                             r->heads[head].layer, r->heads[head].head);
        rows[i] = (struct curve_row){r->points[i], text_span(first, name - first)};
    }
    *out = rows;
    return STATUS_OK;
}

/* Draws delta_nll, layers down and heads across. */
static enum status write_picture(const struct job *j, const struct heads_options *o,
                                 const struct heads_result *r, struct err *e)
{
    const struct config *c = &j->checkpoint.model->config;
    struct text_label layers[HEATMAP_LARGE], heads[HEATMAP_LARGE];
    char title[256], subtitle[256];
    double most = 0;
    float *cells;
    TRY_ZEROED(cells, (size_t)c->n_layers * c->n_heads, "the picture", e);
    for (int i = 0; i < r->n_heads; i++) {
        const struct head_worth *w = &r->heads[i];
        cells[w->layer * c->n_heads + w->head] = fmax(w->delta_nll, 0);
        most = fmax(most, w->delta_nll);
    }
    for (int i = 0; i < c->n_layers; i++)
        chars_printf(layers[i].text, "layer %d", i);
    for (int i = 0; i < c->n_heads; i++)
        chars_printf(heads[i].text, "%d", i);
    chars_printf(title, "%.160s: loss without each head", path_name(j->path));
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
                                            .map_rows = c->n_layers,
                                            .map_columns = c->n_heads,
                                            .row_names = layers,
                                            .column_names = heads};
    const enum status s = heatmap_write(&picture, o->svg, e);
    free(cells);
    if (s == STATUS_OK)
        log_info(j->common, "%s is written", o->svg);
    return s;
}

static enum status print_heads(struct job *j, const struct heads_result *r, struct err *e)
{
    struct table table = TABLE_OF(fields, r->heads, r->n_heads);
    struct curve_row *rows = NULL;
    if (r->n_points > 0) {
        TRY(make_rows(r, &rows, e));
        table = TABLE_OF(curve_fields, rows, r->n_points);
    }
    const enum status s = job_print(j, &table, e);
    free(rows);
    if (s == STATUS_OK)
        log_info(j->common, "%.4f nats a token and %.4f bits per byte with all heads", r->whole.nll,
                 r->whole.bits_per_byte);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status measure_heads(struct job *j, const struct heads_options *o,
                                 struct heads_result *result, struct err *e)
{
    const struct checkpoint *k = &j->checkpoint;
    struct job_memory memory = {.weights = k->model->weights.cap,
                                .advice = "fewer --tokens and -t 1 take less"};
    struct heads_spec spec = {
        .eval = job_eval_spec(j, k), .to_mean = o->ablation, .curve = o->curve};
    char what[32];
    chars_printf(what, "%zu tokens", j->n_tokens);
    TRY(heads_plan(&spec, &memory.scratch, e));
    TRY(job_check_memory(j, &memory, what, e));
    spec.eval.callbacks = job_callbacks(j, "token");
    return heads_run(&spec, result, e);
}

static enum status run_heads(struct job *j, void *values, struct err *e)
{
    const struct heads_options *o = values;
    const struct config *c = &j->checkpoint.model->config;
    const int most = MAX(c->n_heads, c->n_layers);
    struct heads_result result;
    TRY(job_tokenize(j, e));
    if (j->n_tokens > (size_t)o->tokens + 1)
        j->n_tokens = o->tokens + 1;
    if (o->svg && most > HEATMAP_LARGE)
        return err_usage(e, "--svg: expected at most %d layers, and heads in each, found %d",
                         HEATMAP_LARGE, most);
    TRY(measure_heads(j, o, &result, e));
    enum status s = print_heads(j, &result, e);
    if (s == STATUS_OK && o->svg)
        s = write_picture(j, o, &result, e);
    heads_free(&result);
    return s;
}

const struct command command_heads = {
    .name = "heads",
    .summary = "what each head is worth: loss without it",
    .usage = "MODEL TEXT [options]",
    .examples = "./decode heads models/shakespeare-mha.gguf README.md --tokens 256\n"
                "./decode heads models/shakespeare-mha.gguf LICENSE --svg worth.svg\n",
    .notes = help_of_heads,
    .spec = {.groups = {{"Text", text_options, 0},
                        {"Results", result_options, 0},
                        {"", general_options, 0}},
             .everyday = "tokens range ablate curve svg format",
             .positionals = {MODEL_POSITIONAL,
                             OPT_STRING("TEXT", common.file, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .no_text = "there is no text to predict; expected TEXT, a file",
    .run = run_heads,
};
