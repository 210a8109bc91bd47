#include "cli/attend.h"

/* A row shows its token in TOKEN_COLUMNS and behind it numbers of NUMBER_COLUMNS each: as many as
 * the terminal has room for, or USUAL_NUMBERS where there is none. */
#define USUAL_NUMBERS  8
#define MOST_NUMBERS   64
#define NUMBER_COLUMNS 9
#define TOKEN_COLUMNS  12

/* What the rows of a step are: the query alone, the tokens that it looks at, or heads. */
enum trace_rows { ROWS_QUERY, ROWS_KEYS, ROWS_HEADS };

/* A step: the shape of the whole, and the numbers of some of its rows. */
struct trace_step {
    const char *name;     /* with what makes it: "Q = X Wq" */
    int heads, n_columns; /* of the whole, beside the tokens; 0 heads: of all together */
    const float *x;       /* [n_rows, n] in rows `stride` apart; NULL: the mask */
    const float *times;   /* [n_rows] what each row is multiplied by; NULL: 1 */
    int n_rows, n;        /* 0: one row, and all columns */
    size_t stride;        /* 0: n */
    enum trace_rows rows;
    bool of_keys; /* whether a column is a token that may be looked at */
    int window;   /* of the mask, as config's layer_window */
};

/* The tokens that are shown: all up to the query, or as many as there is room for, those with the
 * largest weights. Where there is more room, tokens behind the query follow. */
struct shown_keys {
    int at[MOST_NUMBERS], n; /* ascending positions */
    int n_seen;              /* how many of them are up to the query */
    double share;            /* of the query's weight that they have together */
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

/* Returns number i of a row. Row `row` of the mask is added to the scores of the query at that
 * position. */
static double number_at(const struct trace_step *s, int row, int i)
{
    if (!s->x)
        return i > row || (s->window && i <= row - s->window) ? -HUGE_VAL : 0;
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

static int numbers_of_a_line(const struct output *out)
{
    const int room = (out->columns - TOKEN_COLUMNS) / NUMBER_COLUMNS - 1;
    return out->columns == 0 ? USUAL_NUMBERS : MIN(MAX(room, 1), MOST_NUMBERS);
}

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
        for (int i = 0; i < n_numbers; i++) {
            const double x = number_at(s, row, s->of_keys ? shown->at[i] : i);
            output_printf(out, fabs(x) < 1000 || isinf(x) ? " %8.4f" : " %8.3g", x);
        }
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

/* The step names that depend on the model. */
struct step_names {
    const char *x, *sum, *normed;
    char q[64], k[96], value[64], scores[160], out[64];
};

static struct step_names step_names(const struct attend_view *v)
{
    const struct attend_trace *t = &v->trace;
    const struct config *c = v->config;
    const struct block *b = &v->spec.model->blocks[t->path.layer];
    const struct attend_bias *bias = b->bias ? &b->bias[t->head] : NULL;
    const bool norm_first = c->placement != PLACEMENT_AFTER;
    const char *rotated = c->position == POSITION_ROPE ? ", rotated by their positions" : "";
    const char *head_norm = c->parts.qk_norms ? ", normed" : "";
    const char *b_in = b->w[ROLE_ATTN_QKV].matrix.bias ? " + b" : "";
    const char *b_out = b->w[ROLE_ATTN_OUTPUT].matrix.bias ? " + b" : "";
    const char *normed =
        c->placement == PLACEMENT_PARALLEL
            ? "norm of the stream before, which the feed-forward layer reads in parallel"
        : norm_first ? "norm of that, which the feed-forward layer reads"
                     : "norm of that, which the stream becomes";
    struct step_names names = {.x = norm_first ? "X = norm of the stream" : "X = the stream",
                               .sum = !config_adds(c) ? "that is the stream now"
                                      : c->parts.added_norms
                                          ? "the stream with the norm of that added"
                                          : "the stream with that added",
                               .normed = normed};
    const struct kv_type cached = v->spec.params.kv_type;
    chars_printf(names.q, "Q = X Wq%s%s%s", b_in, head_norm, rotated);
    chars_printf(names.k, "K = X Wk%s%s%s", b_in, head_norm, rotated);
    chars_printf(names.value, "V = X Wv%s", b_in);
    if (cached.keys != CACHE_F32)
        chars_append(names.k, ", cached as %s", cache_type_names[cached.keys]);
    if (cached.values != CACHE_F32)
        chars_append(names.value, ", cached as %s", cache_type_names[cached.values]);
    chars_printf(names.out, "A Wo%s: the parts' sum%s", b_out, *b_out ? " and b" : "");
    if (c->score == SCORE_ADDITIVE)
        chars_printf(names.scores, "scores = w·tanh(q + k)");
    else if (c->score_scale == 0)
        chars_printf(names.scores, "scores = q·k / √%d", c->head_dim);
    else
        chars_printf(names.scores, "scores = %g q·k", (double)c->score_scale);
    if (bias && bias->linear != 0)
        chars_append(names.scores, " - %.4g distance", -(double)bias->linear);
    else if (bias)
        chars_append(names.scores, " - %.4g (distance - %.4g)²", -(double)bias->square,
                     (double)bias->centre);
    return names;
}

/* Prints what stands before the steps on a terminal. */
static void put_heading(const struct attend_view *v, const struct shown_keys *shown)
{
    const struct attend_trace *t = &v->trace;
    struct output *out = v->job->out;
    output_printf(out, "head %s (%s), token %d: %s\n", v->options->trace_head, v->variant, t->query,
                  attend_label(v, t->query, TERMINAL_LABEL, true).text);
    if (shown->n_seen <= t->query)
        output_printf(out, "shown are %d of the %d tokens so far, with %.4f of the weight\n",
                      shown->n_seen, t->query + 1, shown->share);
}

void attend_put_trace(const struct attend_view *v, struct json *json)
{
    const struct attend_trace *t = &v->trace;
    const struct config *c = v->config;
    const int n = v->spec.n_tokens, keys = t->query + 1, d = c->d_model, k_dim = c->head_dim;
    const int heads = c->n_heads, kv_heads = config_kv_heads(c, t->path.layer);
    const int dim = config_value_dim(c), width = heads * dim;
    const size_t kv_head = t->head / config_group(c, t->path.layer);
    const size_t keys_dim = kv_heads * k_dim, v_dim = kv_heads * dim;
    const float *values = t->path.values + kv_head * dim;
    const float *results = t->path.results + (size_t)t->query * width;
    const struct step_names name = step_names(v);
    struct trace_step steps[] = {
        {name.x, 0, d, t->path.x, .n_rows = keys, .rows = ROWS_KEYS},
        {name.q, heads, k_dim, .x = t->path.q + ((size_t)t->query * heads + t->head) * k_dim},
        {name.k, kv_heads, k_dim, t->path.keys + kv_head * k_dim, .n_rows = keys,
         .stride = keys_dim, .rows = ROWS_KEYS},
        {name.scores, heads, n, t->scores, .n = keys, .of_keys = true},
        {"mask, added to the scores", 0, n, .of_keys = true,
         .window = c->layer_window[t->path.layer]},
        {"weights = softmax of that", heads, n, t->weights, .n = keys, .of_keys = true},
        {name.value, kv_heads, dim, values, .n_rows = keys, .stride = v_dim, .rows = ROWS_KEYS},
        {"weight times value", heads, dim, values, .times = t->weights, .n_rows = keys,
         .stride = v_dim, .rows = ROWS_KEYS},
        {"their sum", heads, dim, .x = results + t->head * dim},
        {"A = all heads side by side", 0, width, .x = results},
        {"each head's part of A Wo", heads, d, t->parts, .n_rows = heads, .rows = ROWS_HEADS},
        {name.out, 0, d, .x = t->out},
        {name.sum, 0, d, .x = t->sum},
        {name.normed, 0, d, .x = t->normed},
    };
    const struct shown_keys shown = shown_keys(v, numbers_of_a_line(v->job->out));
    if (json)
        json_begin_array(json, "trace");
    else
        put_heading(v, &shown);
    for (struct trace_step *s = steps; s < steps + LENGTH(steps); s++) {
        s->n_rows = MAX(s->n_rows, 1);
        s->n = s->n ? s->n : s->n_columns;
        s->stride = s->stride ? s->stride : (size_t)s->n;
        if (json)
            write_step(v, s, json);
        else
            put_step(v, s, &shown);
    }
    if (json)
        json_end(json);
}
