#include "cli/attend_trace.h"

/* A row shows as many numbers as the terminal has room for, or so many, each in NUMBER_COLUMNS,
 * behind its token's TOKEN_COLUMNS. */
#define USUAL_NUMBERS  8
#define MOST_NUMBERS   64
#define NUMBER_COLUMNS 9
#define TOKEN_COLUMNS  12

/* What the rows of a step stand for: the query alone, the tokens that it looks at, heads. */
enum trace_rows { ROWS_QUERY, ROWS_KEYS, ROWS_HEADS };

/* A step: of the whole its shape, and the numbers of its rows. */
struct trace_step {
    const char *name;     /* with what makes it: "Q = X Wq" */
    int heads, n_columns; /* of the whole, beside the tokens; 0 heads: of all together */
    const float *x;       /* [n_rows, n] in rows `stride` apart; NULL: the mask */
    const float *times;   /* each multiplied by one of these; NULL: by none */
    int n_rows, n;
    size_t stride;
    enum trace_rows rows;
    bool of_keys; /* whether a column is a token that may be looked at */
};

/* The tokens that are shown where there is no room for all: those with the largest weights, by
 * position, and if there is room those behind the query. */
struct shown_keys {
    int at[MOST_NUMBERS], n;
    int n_seen;   /* of them up to the query */
    double share; /* of the weight */
};

static struct shown_keys shown_keys(const struct attend_view *v, int most)
{
    const struct attend_trace *t = &v->trace;
    struct shown_keys shown = {.n = 0};
    for (int j = 0; j <= t->query; j++) {
        int at = shown.n;
        if (shown.n == most) { /* the smallest gives way */
            at = 0;
            for (int i = 1; i < shown.n; i++)
                at = t->weights[shown.at[i]] < t->weights[shown.at[at]] ? i : at;
            if (t->weights[j] <= t->weights[shown.at[at]])
                continue;
            memmove(shown.at + at, shown.at + at + 1, (--shown.n - at) * sizeof *shown.at);
        }
        shown.at[shown.n++] = j;
    }
    shown.n_seen = shown.n;
    for (int i = 0; i < shown.n; i++)
        shown.share += (double)t->weights[shown.at[i]];
    for (int j = t->query + 1; j < v->spec.n_tokens && shown.n < most; j++)
        shown.at[shown.n++] = j;
    return shown;
}

/* Row `row` of a mask is what is added to the scores of the query at that position. */
static double number_at(const struct trace_step *s, int row, int i)
{
    if (!s->x)
        return i > row ? -HUGE_VAL : 0;
    return i < s->n ? (double)(s->x[row * s->stride + i] * (s->times ? s->times[row] : 1)) : 0;
}

static void put_label(const struct attend_view *v, const struct trace_step *s, int row)
{
    struct output *out = v->job->out;
    if (s->rows == ROWS_HEADS) {
        output_printf(out, "  head %-*d", TOKEN_COLUMNS - 7, row);
        return;
    }
    const struct text_label token = attend_label(v, row, TOKEN_COLUMNS - 2, true);
    output_printf(out, "  %s", token.text);
    output_repeat(out, ' ', TOKEN_COLUMNS - 2 - text_columns(text_of(token.text)));
}

static void put_number(struct output *out, double x)
{
    output_printf(out, fabs(x) < 1000 || isinf(x) ? " %8.4f" : " %8.3g", x);
}

static int numbers_of_a_line(const struct output *out)
{
    const int room = (out->columns - TOKEN_COLUMNS) / NUMBER_COLUMNS - 1;
    return out->columns == 0 ? USUAL_NUMBERS : MIN(MAX(room, 1), MOST_NUMBERS);
}

/* The names of the tokens over their columns. */
static void put_names(const struct attend_view *v, const int *keys, int n)
{
    struct output *out = v->job->out;
    output_repeat(out, ' ', TOKEN_COLUMNS);
    for (int i = 0; i < n; i++) {
        const struct text_label token = attend_label(v, keys[i], NUMBER_COLUMNS - 1, true);
        output_repeat(out, ' ', NUMBER_COLUMNS - text_columns(text_of(token.text)));
        output_printf(out, "%s", token.text);
    }
    output_puts(out, "\n");
}

static void put_step(const struct attend_view *v, const struct trace_step *s,
                     const struct shown_keys *shown)
{
    struct output *out = v->job->out;
    const int most = numbers_of_a_line(out);
    const bool is_mask = !s->x;
    /* Scores of later tokens are never computed; their weights are 0. */
    const int n_keys = s->x == v->trace.scores ? shown->n_seen : shown->n;
    const int n_numbers = s->of_keys ? n_keys : MIN(s->n, most);
    output_printf(out, s->heads > 0 ? "%s: %d x " : "%s: ", s->name, s->heads);
    output_printf(out, "%d x %d\n", v->spec.n_tokens, s->n_columns);
    if (s->of_keys)
        put_names(v, shown->at, n_keys);
    const int n_rows = is_mask ? shown->n : s->rows == ROWS_KEYS ? shown->n_seen : s->n_rows;
    for (int r = 0; r < n_rows; r++) {
        const int row = is_mask || s->rows == ROWS_KEYS ? shown->at[r] : r;
        put_label(v, s, s->rows == ROWS_QUERY && !is_mask ? v->trace.query : row);
        for (int i = 0; i < n_numbers; i++)
            put_number(out, number_at(s, row, s->of_keys ? shown->at[i] : i));
        output_printf(out, !s->of_keys && s->n > n_numbers ? " ... of %d\n" : "\n", s->n);
    }
}

static void write_step(const struct attend_view *v, const struct trace_step *s, struct json *j)
{
    json_begin_object(j, NULL);
    json_text(j, "step", text_of(s->name));
    json_begin_array(j, "shape");
    if (s->heads > 0)
        json_int(j, NULL, s->heads);
    json_int(j, NULL, v->spec.n_tokens);
    json_int(j, NULL, s->n_columns);
    json_end(j);
    json_begin_array(j, "rows");
    for (int r = 0; r < s->n_rows; r++) {
        json_begin_array(j, NULL);
        for (int i = 0; i < s->n; i++)
            json_double(j, NULL, number_at(s, s->x ? r : v->trace.query, i)); /* infinite: null */
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

void attend_put_trace(const struct attend_view *v, struct json *json)
{
    const struct attend_trace *t = &v->trace;
    const struct config *c = v->config;
    const int layer = t->path.layer;
    const struct block *b = &v->spec.model->blocks[layer];
    const struct attend_bias *bias = b->bias ? &b->bias[t->head] : NULL;
    const char *rotated = c->position == POSITION_ROPE ? ", rotated by their positions" : "";
    const char *b_in = b->w[ROLE_ATTN_QKV].matrix.bias ? " + b" : "";
    const char *b_out = b->w[ROLE_ATTN_OUTPUT].matrix.bias ? " + b" : "";
    const char *x = c->placement == PLACEMENT_BEFORE ? "X = norm of the stream" : "X = the stream";
    const int n = v->spec.n_tokens, keys = t->query + 1, d = c->d_model, k_dim = c->head_dim;
    const int heads = c->n_heads, kv_heads = config_kv_heads(c, layer);
    const int kv_head = t->head / config_group(c, layer), keys_dim = kv_heads * k_dim;
    const int dim = config_value_dim(c), width = heads * dim, v_dim = kv_heads * dim;
    const float *q_of_head = t->path.q + ((size_t)t->query * heads + t->head) * k_dim;
    const float *k_of_head = t->path.keys + kv_head * k_dim;
    const float *v_of_head = t->path.values + kv_head * dim;
    const float *results = t->path.results + (size_t)t->query * width;
    char q[64], k[64], value[64], out[64], scores[160];
    chars_printf(q, "Q = X Wq%s%s", b_in, rotated);
    chars_printf(k, "K = X Wk%s%s", b_in, rotated);
    chars_printf(value, "V = X Wv%s", b_in);
    chars_printf(out, "A Wo%s: the parts' sum%s", b_out, *b_out ? " and b" : "");
    if (c->score == SCORE_ADDITIVE)
        chars_printf(scores, "scores = w·tanh(q + k)");
    else if (c->score_scale == 0)
        chars_printf(scores, "scores = q·k / √%d", k_dim);
    else
        chars_printf(scores, "scores = %g q·k", (double)c->score_scale);
    if (bias && bias->linear != 0)
        chars_append(scores, " - %.4g distance", -(double)bias->linear);
    else if (bias)
        chars_append(scores, " - %.4g (distance - %.4g)²", -(double)bias->square,
                     (double)bias->centre);
    const char *normed = c->placement == PLACEMENT_BEFORE
                             ? "norm of that, which the feed-forward layer reads"
                             : "norm of that, which the stream becomes";
    const struct trace_step steps[] = {
        {x, 0, d, t->path.x, NULL, keys, d, d, ROWS_KEYS, false},
        {q, heads, k_dim, q_of_head, NULL, 1, k_dim, k_dim, ROWS_QUERY, false},
        {k, kv_heads, k_dim, k_of_head, NULL, keys, k_dim, keys_dim, ROWS_KEYS, false},
        {scores, heads, n, t->scores, NULL, 1, keys, keys, ROWS_QUERY, true},
        {"mask, added to the scores", 0, n, NULL, NULL, 1, n, n, ROWS_QUERY, true},
        {"weights = softmax of that", heads, n, t->weights, NULL, 1, keys, keys, ROWS_QUERY, true},
        {value, kv_heads, dim, v_of_head, NULL, keys, dim, v_dim, ROWS_KEYS, false},
        {"weight times value", heads, dim, v_of_head, t->weights, keys, dim, v_dim, ROWS_KEYS,
         false},
        {"their sum", heads, dim, results + t->head * dim, NULL, 1, dim, dim, ROWS_QUERY, false},
        {"A = all heads side by side", 0, width, results, NULL, 1, width, width, ROWS_QUERY, false},
        {"each head's part of A Wo", heads, d, t->parts, NULL, heads, d, d, ROWS_HEADS, false},
        {out, 0, d, t->out, NULL, 1, d, d, ROWS_QUERY, false},
        {"the stream with that added", 0, d, t->sum, NULL, 1, d, d, ROWS_QUERY, false},
        {normed, 0, d, t->normed, NULL, 1, d, d, ROWS_QUERY, false},
    };
    const struct shown_keys shown = shown_keys(v, numbers_of_a_line(v->job->out));
    if (json) {
        json_begin_array(json, "trace");
    } else {
        output_printf(v->job->out, "head %s (%s), token %d: %s\n", v->options->trace_head,
                      v->variant, t->query, attend_label(v, t->query, TERMINAL_LABEL, true).text);
        if (shown.n_seen < keys)
            output_printf(v->job->out,
                          "shown are %d of the %d tokens so far, with %.4f of the weight\n",
                          shown.n_seen, keys, shown.share);
    }
    for (size_t i = 0; i < LENGTH(steps); i++)
        if (json)
            write_step(v, &steps[i], json);
        else
            put_step(v, &steps[i], &shown);
    if (json)
        json_end(json);
}
