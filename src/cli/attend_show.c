#include "cli/attend.h"

#include "formats/json_write.h"

/* Columns of a token in a cell of a table. */
#define LABEL_COLUMNS 10
/* Bytes of a key with its weight. */
#define KEY_BYTES 128

/* A token, and the weight that the query gives to its key. */
struct key_row {
    int position, id;
    struct text text; /* without data: there is no tokenizer */
    double weight;
};

static const struct report_field key_fields[] = {
    {"position", NULL, MEMBER(key_row, position)},
    {"id", NULL, MEMBER(key_row, id)},
    {"text", NULL, MEMBER(key_row, text), .bytes = true},
    {"weight", NULL, MEMBER(key_row, weight)},
};

static struct key_row key_row(const struct attend_view *v, int position, double weight)
{
    const int id = v->spec.tokens[position];
    return (struct key_row){position, id, job_token(v->job, id), weight};
}

/* A head with its figures, or with what a query looks at most. */
struct attend_row {
    struct attend_head of;
    int kv_head;
    const char *variant;
    char pair[192];              /* the strongest: "sat: cat .61"; "" for none */
    char role[ATTEND_ROLE_SIZE]; /* "previous", "offset 5" */
    double role_share;
    char role_text[64];  /* for people: "previous .61" */
    double alpha, delta; /* of quadratic positions; else NaN */
    int query;
    struct report_list top; /* of struct key_row */
    struct text joined;     /* for people: "cat .61, The .20" */
};

/* When fields are shown. */
enum {
    SHARED = 1,    /* where heads share keys and values */
    FIGURES = 2,   /* where no query is asked for */
    QUADRATIC = 4, /* where positions are quadratic */
    KEYS = 8,      /* where a query is asked for */
    PROGRAMS = SHARED | FIGURES | QUADRATIC,
};

static const struct report_field fields[] = {
    {"layer", "layer", MEMBER(attend_row, of.layer)},
    {"head", "head", MEMBER(attend_row, of.head)},
    {"variant", NULL, MEMBER(attend_row, variant)},
    {"kv_head", "K/V", MEMBER(attend_row, kv_head), .when = SHARED, .detail = true},
    {"entropy", "entropy", MEMBER(attend_row, of.entropy), "%.2f", .when = FIGURES, .detail = true},
    {"distance", "distance", MEMBER(attend_row, of.distance), "%.1f", .when = FIGURES,
     .detail = true},
    {"first", "first", MEMBER(attend_row, of.first), "%.3f", .none = "–", .when = FIGURES},
    {"previous", "prev", MEMBER(attend_row, of.previous), "%.3f", .none = "–", .when = FIGURES},
    {"self", "self", MEMBER(attend_row, of.self), "%.3f", .when = FIGURES, .detail = true},
    {"induction", "induct", MEMBER(attend_row, of.induction), "%.3f", .none = "–", .when = FIGURES},
    {NULL, "strongest", MEMBER(attend_row, pair), .when = FIGURES, .detail = true},
    {"strongest_query", NULL, MEMBER(attend_row, of.query), .when = FIGURES},
    {"strongest_key", NULL, MEMBER(attend_row, of.key), .when = FIGURES},
    {"strongest", NULL, MEMBER(attend_row, of.strongest), .when = FIGURES},
    {"score_sd", "score_sd", MEMBER(attend_row, of.score_sd), "%.2f", .when = FIGURES,
     .detail = true},
    {"gradient", "gradient", MEMBER(attend_row, of.gradient), "%.2f", .when = FIGURES,
     .detail = true},
    {"max_weight", "max", MEMBER(attend_row, of.max_weight), "%.2f", .when = FIGURES,
     .detail = true},
    {"alpha", "alpha", MEMBER(attend_row, alpha), "%.3g", .when = QUADRATIC},
    {"delta", "delta", MEMBER(attend_row, delta), "%.2f", .when = QUADRATIC},
    {"role", NULL, MEMBER(attend_row, role), .when = FIGURES},
    {"role_share", NULL, MEMBER(attend_row, role_share), .when = FIGURES},
    {NULL, "role", MEMBER(attend_row, role_text), .when = FIGURES},
    {"query", NULL, MEMBER(attend_row, query), .when = KEYS},
    {"top", NULL, MEMBER(attend_row, top), .items = key_fields, .n_items = LENGTH(key_fields),
     .item_size = sizeof(struct key_row), .when = KEYS},
    {NULL, "", MEMBER(attend_row, joined), .list = true, .when = KEYS},
};
enum { N_FIELDS = LENGTH(fields), FIELD_JOINED = N_FIELDS - 1, FIELD_TOP = N_FIELDS - 2 };

static struct attend_row figures_of(const struct attend_view *v, int at)
{
    const struct attend_head *h = &v->spec.heads[at];
    struct attend_row row = {.of = *h,
                             .kv_head = h->head / config_group(v->config, h->layer),
                             .variant = v->variant,
                             .alpha = NO_FIGURE,
                             .delta = NO_FIGURE};
    if (h->query >= 0)
        chars_printf(row.pair, "%s: %s %s", attend_label(v, h->query, LABEL_COLUMNS, false).text,
                     attend_label(v, h->key, LABEL_COLUMNS, false).text,
                     figure_weight(h->strongest).text);
    row.role_share = attend_role(h, row.role);
    chars_printf(row.role_text, "%s %s", row.role, figure_weight(row.role_share).text);
    if (v->config->position == POSITION_QUADRATIC) {
        const struct attend_bias *bias = &v->spec.model->blocks[h->layer].bias[h->head];
        row.alpha = -(double)bias->square;
        row.delta = (double)bias->centre;
    }
    return row;
}

/* A row of the table with the keys that --query asks for. */
struct head_row {
    struct attend_row row;
    struct key_row keys[TOP_KEYS];
    struct token_score top[TOP_KEYS];
    uint64_t sorted[TOP_KEYS]; /* scratch memory */
    char joined[TOP_KEYS * KEY_BYTES];
};

/* Makes row `at` with the n_top keys that have the largest weights; 0: no query is asked for. */
static void make_row(const struct attend_view *v, int at, int n_top, struct head_row *r)
{
    const int n_keys = v->spec.query + 1;
    size_t used = 0;
    r->row = figures_of(v, at);
    if (n_top > 0)
        logits_top(v->found.query + (size_t)at * n_keys, n_keys, 0, n_top, r->sorted, r->top);
    for (int k = 0; k < n_top; k++) { /* "cat[4] .61" where there are several cats */
        const int position = r->top[k].id;
        char place[16] = "";
        for (int i = 0; i < n_keys; i++)
            if (i != position && v->spec.tokens[i] == v->spec.tokens[position])
                chars_printf(place, "[%d]", position);
        r->keys[k] = key_row(v, position, r->top[k].logprob);
        used += snprintf(r->joined + used, KEY_BYTES, "%s%s%s %s", k ? ", " : "",
                         attend_label(v, position, LABEL_COLUMNS, false).text, place,
                         figure_weight(r->keys[k].weight).text);
    }
    r->row.query = v->spec.query;
    r->row.top = (struct report_list){r->keys, n_top};
    r->row.joined = text_span(r->joined, used);
}

enum status attend_print(const struct attend_view *v, struct err *e)
{
    const enum table_format format = v->options->common.format;
    const int n_top = MIN(TOP_KEYS, v->spec.query + 1);
    struct report_field own[N_FIELDS];
    struct head_row at_hand;
    struct report report;
    unsigned shown = FIGURES;
    char name[192];
    memcpy(own, fields, sizeof fields);
    if (v->config->position == POSITION_QUADRATIC)
        shown |= QUADRATIC;
    if (!table_is_for_people(format))
        shown = PROGRAMS;
    if (n_top > 0) {
        chars_printf(name, "%s: (token %d, %s)",
                     text_label(text_of(v->options->query), LABEL_COLUMNS, true).text,
                     v->spec.query, attend_label(v, v->spec.query, LABEL_COLUMNS, true).text);
        own[FIELD_TOP].most = n_top;
        own[FIELD_JOINED].heading = name;
        shown = KEYS | (shown & SHARED);
    }
    for (int l = 0; l < v->layers.n; l++)
        if (config_group(v->config, v->layers.items[l]) > 1)
            shown |= SHARED;
    report_begin(&report, format, own, N_FIELDS, shown, v->job->out);
    for (int at = 0; at < v->spec.n_heads; at++) {
        make_row(v, at, n_top, &at_hand);
        report_row(&report, &at_hand.row);
    }
    return report_end(&report, e);
}

/* --- files ----------------------------------------------------------------------------------- */

enum status attend_write_json(const struct attend_view *v, struct err *e)
{
    struct file_output file;
    struct json j;
    file_output_init(&file);
    TRY(file_output_open(&file, v->options->json, e));
    json_init(&j, &file.out, 2);
    json_begin_object(&j, NULL);
    json_ints(&j, "layers", v->layers.items, v->layers.n);
    json_ints(&j, "heads", v->heads.items, v->heads.n);
    json_begin_array(&j, "tokens");
    for (int i = 0; i < v->spec.n_tokens; i++) {
        const struct key_row token = key_row(v, i, 0);
        report_object(&j, key_fields, LENGTH(key_fields) - 1, 0, &token);
    }
    json_end(&j);
    json_begin_array(&j, "figures");
    for (int at = 0; at < v->spec.n_heads; at++) {
        const struct attend_row row = figures_of(v, at);
        report_object(&j, fields, N_FIELDS, PROGRAMS, &row);
    }
    json_end(&j);
    if (v->options->trace_head)
        attend_put_trace(v, &j);
    json_end(&j);
    output_puts(&file.out, "\n");
    return file_output_commit(&file, e);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* Returns the scale of n maps, whose top is their largest weight. */
static struct heatmap_scale scale_of(const struct attend_map *maps, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++) {
        const struct attend_map *m = &maps[i];
        for (size_t k = 0; k < (size_t)m->cells * m->cells; k++)
            most = MAX(m->cell[k], most);
    }
    return heatmap_scale((double)most, false);
}

enum status attend_write_picture(const struct attend_view *v, struct err *e)
{
    const int cells = v->pictures->cells, n = v->spec.n_tokens, n_heads = v->spec.n_heads;
    const bool large = n_heads == 1;
    const size_t n_names = large ? cells : v->layers.n;
    const double side = (double)n / cells; /* tokens */
    char title[256], subtitle[512], size[80] = "";
    struct heatmap_map *maps = array_zeroed(
        1, n_heads * sizeof *maps + n_names * sizeof(struct text_label), "the picture", e);
    if (!maps)
        return STATUS_NO_MEMORY;
    struct text_label *names = (void *)(maps + n_heads); /* of cells, or of layers */
    for (int i = 0; i < n_heads; i++) {
        attend_describe(v, i, &maps[i]);
        maps[i].cells = v->pictures[i].cell;
    }
    for (size_t i = 0; i < n_names; i++)
        if (large)
            names[i] = attend_label(v, attend_cell_begin(i, cells, n), LARGE_LABEL, true);
        else
            chars_printf(names[i].text, "layer %d", v->layers.items[i]);
    if (large)
        maps->name[0] = 0; /* the text says it */
    if (cells < n)
        chars_printf(size, " A cell is the largest weight of %.1f by %.1f tokens.", side, side);
    attend_title(v, title, sizeof title);
    chars_printf(subtitle, "Queries from top to bottom, keys from left to right: %d token%s.%s%s%s",
                 n, plural(n), size, large ? " This is " : "", large ? maps->note : "");
    const struct heatmap_picture picture = {.title = title,
                                            .subtitle = subtitle,
                                            .what = "weight",
                                            .scale = scale_of(v->pictures, n_heads),
                                            .maps = maps,
                                            .n_rows = v->layers.n,
                                            .n_columns = v->heads.n,
                                            .map_rows = cells,
                                            .map_columns = cells,
                                            .triangle = true,
                                            .row_names = names,
                                            .column_names = large ? names : NULL};
    const enum status s = heatmap_write(&picture, v->options->svg, e);
    free(maps);
    return s;
}

/* A line is a row: its position, the cells up to the diagonal, and there the token, which names row
 * and column. */
void attend_draw(const struct attend_view *v)
{
    struct output *out = v->job->out;
    const enum heatmap_ink ink = terminal_ink();
    const struct attend_map *m = v->shown;
    const struct heatmap_scale scale = scale_of(m, 1);
    const int n = v->spec.n_tokens, digits = snprintf(NULL, 0, "%d", n - 1);
    unsigned char levels[MOST_SHOWN];
    output_printf(out, "head %s\n", v->options->show);
    for (int r = 0; r < m->cells; r++) {
        const int token = attend_cell_begin(r, m->cells, n);
        heatmap_levels(&scale, m->cell + r * m->cells, r + 1, levels);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, 2 * m->cells <= v->room ? 2 : 1);
        output_printf(out, " %s\n", attend_label(v, token, TERMINAL_LABEL, true).text);
    }
    if (m->cells < n)
        output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells, n);
    heatmap_put_legend(out, ink, &scale, "weight");
}
