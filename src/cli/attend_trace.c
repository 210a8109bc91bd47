#include "cli/attend_trace.h"

/* A row shows so many numbers, each in NUMBER_COLUMNS, behind its token's TOKEN_COLUMNS. */
#define MOST_NUMBERS   8
#define NUMBER_COLUMNS 9
#define TOKEN_COLUMNS  12

/* A step: of the whole its shape, and the numbers of the query's row, or of all rows that the query
 * looks at. */
struct trace_step {
    const char *name;     /* with what makes it: "Q = X Wq" */
    int heads, n_columns; /* of the whole, beside the tokens; 0 heads: of all together */
    const float *x;       /* [n_rows, n] in rows `stride` apart, */
    const float *times;   /* each multiplied by one of these; NULL: by none */
    int n_rows, n;
    size_t stride;
};

static float number_at(const struct trace_step *s, int row, int i)
{
    return s->x[row * s->stride + i] * (s->times ? s->times[row] : 1);
}

static void put_step(const struct attend_view *v, const struct trace_step *s)
{
    struct output *out = v->job->out;
    const int room = (out->columns - TOKEN_COLUMNS) / NUMBER_COLUMNS - 1;
    const int fit = out->columns == 0 ? MOST_NUMBERS : MAX(room, 1), most = MIN(fit, MOST_NUMBERS);
    output_printf(out, s->heads > 0 ? "%s: %d x " : "%s: ", s->name, s->heads);
    output_printf(out, "%d x %d\n", v->spec.n_tokens, s->n_columns);
    for (int r = 0; r < s->n_rows; r++) {
        const int position = s->n_rows > 1 ? r : v->trace.query;
        const struct text_label token = attend_label(v, position, TOKEN_COLUMNS - 2, true);
        output_printf(out, "  %s", token.text);
        output_repeat(out, ' ', TOKEN_COLUMNS - 2 - text_columns(text_of(token.text)));
        for (int i = 0; i < s->n && i < most; i++) {
            const double x = (double)number_at(s, r, i);
            output_printf(out, fabs(x) < 1000 ? " %8.4f" : " %8.3g", x);
        }
        output_printf(out, s->n > most ? " ... of %d\n" : "\n", s->n);
    }
}

static void write_step(const struct attend_view *v, const struct trace_step *s, struct json *j)
{
    json_begin_object(j, NULL);
    json_string(j, "step", s->name);
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
            json_double(j, NULL, (double)number_at(s, r, i));
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

void attend_put_trace(const struct attend_view *v, struct json *json)
{
    const struct attend_trace *t = &v->trace;
    const struct config *c = v->config;
    const struct block *b = &v->spec.model->blocks[t->layer];
    const struct attend_bias *bias = b->bias ? &b->bias[t->head] : NULL;
    const char *rotated = c->position == POSITION_ROPE ? ", rotated by their positions" : "";
    const char *b_in = b->w[ROLE_ATTN_QKV].matrix.bias ? " + b" : "";
    const char *b_out = b->w[ROLE_ATTN_OUTPUT].matrix.bias ? " + b" : "";
    const char *x = c->placement == PLACEMENT_BEFORE ? "X = norm of the stream" : "X = the stream";
    const int n = v->spec.n_tokens, keys = t->query + 1, d = c->d_model, k_dim = c->head_dim;
    const int heads = config_heads(c, t->layer), kv_heads = config_kv_heads(c, t->layer);
    const int dim = config_value_dim(c), width = heads * dim, v_dim = kv_heads * dim;
    const float *values = t->values + t->head / config_group(c, t->layer) * dim;
    char q[64], k[64], value[64], out[64], scores[160];
    chars_printf(q, "Q = X Wq%s%s", b_in, rotated);
    chars_printf(k, "K = X Wk%s%s", b_in, rotated);
    chars_printf(value, "V = X Wv%s", b_in);
    chars_printf(out, "A Wo%s, added to the stream", b_out);
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
    const struct trace_step steps[] = {
        {x, 0, d, t->x, NULL, keys, d, d},
        {q, heads, k_dim, t->q, NULL, 1, k_dim, k_dim},
        {k, kv_heads, k_dim, t->keys, NULL, keys, k_dim, k_dim},
        {scores, heads, n, t->scores, NULL, 1, keys, keys},
        {"weights = softmax of the scores", heads, n, t->weights, NULL, 1, keys, keys},
        {value, kv_heads, dim, values, NULL, keys, dim, v_dim},
        {"weight times value", heads, dim, values, t->weights, keys, dim, v_dim},
        {"their sum", heads, dim, t->heads + t->head * dim, NULL, 1, dim, dim},
        {"A = all heads side by side", 0, width, t->heads, NULL, 1, width, width},
        {out, 0, d, t->out, NULL, 1, d, d},
    };
    if (json)
        json_begin_array(json, "trace");
    else
        output_printf(v->job->out, "head %s (%s), token %d: %s\n", v->options->trace_head,
                      v->variant, t->query, attend_label(v, t->query, TERMINAL_LABEL, true).text);
    for (size_t i = 0; i < LENGTH(steps); i++)
        if (json)
            write_step(v, &steps[i], json);
        else
            put_step(v, &steps[i]);
    if (json)
        json_end(json);
}
