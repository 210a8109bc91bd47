#include "plain_model.h"

#include <math.h>
#include <string.h>

#include "train/backprop_pass.h"

float dropout_factor(const struct dropout *d, int site, uint64_t element)
{
    float factor = 1;
    dropout_apply(d, site, &factor, NULL, element, 1);
    return factor;
}

/* NULL where there is none; of the first layer's where all share it. */
static const double *tensor(const struct plain_model *m, int l, enum tensor_role role, bool is_bias)
{
    const int layer = role_in_block(role) && !m->config->shared ? l : 0;
    for (int i = 0; i < m->list->n; i++) {
        const struct tensor_spec *spec = &m->list->items[i].spec;
        if (spec->role == role && spec->layer == layer && spec->is_bias == is_bias)
            return m->flat + m->list->items[i].offset;
    }
    return NULL;
}

/* out := w x (+ bias), w [n_out, n_in]. */
static void multiply(double *out, const double *w, const double *bias, const double *x, int n_out,
                     int n_in)
{
    for (int r = 0; r < n_out; r++) {
        out[r] = bias ? bias[r] : 0;
        for (int i = 0; i < n_in; i++)
            out[r] += w[r * n_in + i] * x[i];
    }
}

static void apply(const struct plain_model *m, int l, enum tensor_role role, const double *x,
                  int n_out, int n_in, double *out)
{
    multiply(out, tensor(m, l, role, false), tensor(m, l, role, true), x, n_out, n_in);
}

static void norm_row(const struct plain_model *m, int l, enum tensor_role role, const double *x,
                     int n, double *out)
{
    const struct config *c = m->config;
    const double *gain = tensor(m, l, role, false), *bias = tensor(m, l, role, true);
    double mean = 0, variance = 0;
    for (int i = 0; i < n && c->norm == NORM_LAYER; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(variance + (double)c->norm_eps) * (gain ? gain[i] : 1) +
                 (bias ? bias[i] : 0);
}

static void norm(const struct plain_model *m, int l, enum tensor_role role, const double *x,
                 double *out)
{
    norm_row(m, l, role, x, m->config->d_model, out);
}

struct row {
    double q[PLAIN_WIDTH], k[PLAIN_WIDTH], v[PLAIN_WIDTH];
};

static void project(const struct plain_model *m, int l, const double *x, struct row *out)
{
    const struct config *c = m->config;
    const int q = config_q_dim(c), k = config_k_dim(c, l), v = config_v_dim(c, l), d = c->d_model;
    double all[3 * PLAIN_WIDTH];
    if (tensor(m, l, ROLE_ATTN_QKV, false)) {
        apply(m, l, ROLE_ATTN_QKV, x, q + k + v, d, all);
        memcpy(out->q, all, (size_t)q * sizeof *all);
        memcpy(out->k, all + q, (size_t)k * sizeof *all);
        memcpy(out->v, all + q + k, (size_t)v * sizeof *all);
        return;
    }
    apply(m, l, ROLE_ATTN_Q, x, q, d, out->q);
    apply(m, l, ROLE_ATTN_K, x, k, d, out->k);
    apply(m, l, ROLE_ATTN_V, x, v, d, out->v);
}

/* Norms and rotates n_heads heads of queries or keys at position t. */
static void turn(const struct plain_model *m, int l, enum tensor_role role, double *x, int n_heads,
                 int t)
{
    const struct config *c = m->config;
    const double *factors = tensor(m, 0, ROLE_ROPE_FREQS, false);
    const int n_dims = c->rope.n_dims, half = c->parts.rope_halves ? n_dims / 2 : 1;
    const bool local = c->layer_window[l] && c->rope.window_base > 0;
    for (int h = 0; h < n_heads; h++, x += c->head_dim) {
        double row[PLAIN_WIDTH];
        norm_row(m, l, role, x, c->head_dim, row);
        if (c->parts.qk_norms)
            memcpy(x, row, (size_t)c->head_dim * sizeof *x);
        for (int i = 0; i < n_dims && c->position == POSITION_ROPE; i += 2) {
            double *a = x + (half > 1 ? i / 2 : i), *b = a + half, first = *a;
            const double angle =
                t * (local ? 1 : c->rope.scale) /
                pow(local ? c->rope.window_base : c->rope.base, (double)i / n_dims) /
                (factors ? factors[i / 2] : 1);
            *a = first * cos(angle) - *b * sin(angle);
            *b = first * sin(angle) + *b * cos(angle);
        }
    }
}

/* Returns ALiBi's slope, as its authors' program computes it. */
static double slope(int head, int n_heads)
{
    const int closest = 1 << (int)floor(log2(n_heads));
    if (head < closest)
        return pow(pow(2, -pow(2, -(log2(closest) - 3))), head + 1);
    return slope(2 * (head - closest), 2 * closest);
}

static double score_bias(const struct plain_model *m, int l, int head, int distance)
{
    const double *rel = tensor(m, l, ROLE_ATTN_REL, false);
    if (m->config->position == POSITION_ALIBI)
        return -slope(head, m->config->n_heads) * distance;
    if (m->config->position == POSITION_QUADRATIC)
        return -rel[2 * head] * pow(distance - rel[2 * head + 1], 2);
    return 0;
}

/* Returns 0 if dropout leaves out the probability of key s for query t, or the factor by which it
 * grows. */
static double kept(const struct plain_model *m, int l, int window, int head, int t, int s)
{
    const int padded = (m->length + 31) / 32 * 32;
    const uint64_t row = (uint64_t)((window * m->config->n_heads + head) * m->length + s);
    return (double)dropout_factor(&m->attn_dropout, 2 * m->config->n_layers + 1 + l,
                                  row * (uint64_t)padded + (uint64_t)t);
}

/* Computes one head of one token; rows has all tokens up to t. */
static void attend(const struct plain_model *m, int l, int window, const struct row *rows, int t,
                   int h, double *out)
{
    const struct config *c = m->config;
    const int g = h / (c->n_heads / config_kv_heads(c, l));
    const int dim = c->head_dim, v_dim = config_value_dim(c);
    const double scale = c->score_scale != 0 ? (double)c->score_scale : 1 / sqrt(c->head_dim);
    double p[PLAIN_LENGTH], max = -1e300, sum = 0;
    const double *w = tensor(m, l, ROLE_ATTN_SCORE, false); /* of additive scores */
    const double *q = rows[t].q + h * dim;
    const int first =
        c->layer_window[l] && t >= c->layer_window[l] ? t - c->layer_window[l] + 1 : 0;
    for (int s = first; s <= t; s++) {
        p[s] = score_bias(m, l, h, t - s);
        for (int i = 0; i < dim; i++) {
            const double k = rows[s].k[g * dim + i];
            p[s] += w ? w[h * dim + i] * tanh(q[i] + k) : q[i] * k * scale;
        }
        max = p[s] > max ? p[s] : max;
    }
    for (int s = first; s <= t; s++)
        sum += p[s] = exp(p[s] - max);
    for (int i = 0; i < v_dim; i++) {
        out[i] = 0;
        for (int s = first; s <= t; s++)
            out[i] += p[s] / sum * kept(m, l, window, h, t, s) * rows[s].v[g * v_dim + i];
    }
}

/* Adds y of token t, without what dropout leaves out, to x or, without residual connections, to 0.
 */
static void add(const struct plain_model *m, int site, int window, int t, const double *y,
                double *x)
{
    const int d = m->config->d_model, row = window * m->length + t;
    for (int i = 0; i < d; i++)
        x[i] = (m->config->placement == PLACEMENT_ALONE ? 0 : x[i]) +
               y[i] * (double)dropout_factor(&m->dropout, site, (uint64_t)(row * d + i));
}

double plain_activation(enum ffn_kind kind, double x)
{
    switch (kind) {
    case FFN_GELU:
    case FFN_GEGLU:
        return x * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case FFN_GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2));
    case FFN_RELU:
        return x > 0 ? x : 0;
    default:
        return x / (1 + exp(-x));
    }
}

static void feed_forward(const struct plain_model *m, int l, const double *x, double *out)
{
    const struct config *c = m->config;
    const bool gated = tensor(m, l, ROLE_FFN_GATE, false) != NULL;
    double up[PLAIN_WIDTH], gate[PLAIN_WIDTH];
    apply(m, l, ROLE_FFN_UP, x, c->d_ff, c->d_model, up);
    if (gated)
        apply(m, l, ROLE_FFN_GATE, x, c->d_ff, c->d_model, gate);
    for (int i = 0; i < c->d_ff; i++)
        up[i] = gated ? plain_activation(c->ffn, gate[i]) * up[i] : plain_activation(c->ffn, up[i]);
    apply(m, l, ROLE_FFN_DOWN, up, c->d_model, c->d_ff, out);
}

static void layer(const struct plain_model *m, int l, int window, double x[][PLAIN_WIDTH])
{
    const struct config *c = m->config;
    static struct row rows[PLAIN_LENGTH];
    const bool after = c->placement == PLACEMENT_AFTER;
    const bool parallel = c->placement == PLACEMENT_PARALLEL;
    double normed[PLAIN_WIDTH], heads[PLAIN_WIDTH], out[PLAIN_WIDTH];
    for (int t = 0; t < m->length; t++) {
        if (!after)
            norm(m, l, ROLE_ATTN_NORM, x[t], normed);
        project(m, l, after ? x[t] : normed, &rows[t]);
        turn(m, l, ROLE_ATTN_Q_NORM, rows[t].q, c->n_heads, t);
        turn(m, l, ROLE_ATTN_K_NORM, rows[t].k, config_kv_heads(c, l), t);
    }
    for (int t = 0; t < m->length; t++) {
        double input[PLAIN_WIDTH];
        memcpy(input, x[t], sizeof input);
        for (int h = 0; h < c->n_heads; h++)
            attend(m, l, window, rows, t, h, heads + h * c->value_dim);
        apply(m, l, ROLE_ATTN_OUTPUT, heads, c->d_model, config_heads_dim(c), out);
        if (c->parts.added_norms)
            norm(m, l, ROLE_ATTN_POST_NORM, out, out);
        add(m, 2 * l + 1, window, t, out, x[t]);
        norm(m, l,
             after                           ? ROLE_ATTN_OUTPUT_NORM
             : parallel && c->parts.one_norm ? ROLE_ATTN_NORM
                                             : ROLE_FFN_NORM,
             parallel ? input : x[t], normed);
        if (after)
            memcpy(x[t], normed, sizeof normed);
        feed_forward(m, l, normed, out);
        if (c->parts.added_norms)
            norm(m, l, ROLE_FFN_POST_NORM, out, out);
        add(m, 2 * l + 2, window, t, out, x[t]);
        if (!after)
            continue;
        norm(m, l, ROLE_LAYER_OUTPUT_NORM, x[t], normed);
        memcpy(x[t], normed, sizeof normed);
    }
}

static double position_element(const struct plain_model *m, int t, int i)
{
    const int d = m->config->d_model;
    const double angle = t / pow(10000, (double)(i - i % 2) / d);
    if (m->config->position == POSITION_LEARNED)
        return tensor(m, 0, ROLE_POSITION_EMBD, false)[t * d + i];
    if (m->config->position != POSITION_SINUSOIDAL)
        return 0;
    return i % 2 ? cos(angle) : sin(angle);
}

void plain_log_probabilities(const struct plain_model *m, int window, const int32_t *inputs,
                             double *out)
{
    const struct config *c = m->config;
    const int d = c->d_model;
    const double *embed = tensor(m, 0, ROLE_TOKEN_EMBD, false);
    const double *output = tensor(m, 0, ROLE_OUTPUT, false);
    const double scale = c->embedding_scale > 0 ? (double)c->embedding_scale : 1;
    static double x[PLAIN_LENGTH][PLAIN_WIDTH];
    for (int t = 0; t < m->length; t++) {
        double sum[PLAIN_WIDTH];
        memset(x[t], 0, sizeof x[t]);
        for (int i = 0; i < d; i++)
            sum[i] = embed[inputs[t] * d + i] * scale + position_element(m, t, i);
        if (c->parts.embedding_norm)
            norm(m, 0, ROLE_TOKEN_EMBD_NORM, sum, sum);
        add(m, 0, window, t, sum, x[t]);
    }
    const size_t of_point = (size_t)(m->length * d), first = (size_t)(window * (c->n_layers + 1));
    for (int l = 0; l <= c->n_layers; l++) {
        for (int t = 0; t < m->length && m->streams; t++)
            memcpy(m->streams + (first + (size_t)l) * of_point + (size_t)(t * d), x[t],
                   (size_t)d * sizeof *x[t]);
        if (l < c->n_layers)
            layer(m, l, window, x);
    }
    for (int t = 0; t < m->length; t++) {
        double last[PLAIN_WIDTH], *logits = out + t * c->n_vocab, max = -1e300, sum = 0;
        memcpy(last, x[t], sizeof last);
        if (c->placement != PLACEMENT_AFTER)
            norm(m, 0, ROLE_OUTPUT_NORM, x[t], last);
        multiply(logits, output ? output : embed, tensor(m, 0, ROLE_OUTPUT, true), last, c->n_vocab,
                 d);
        for (int v = 0; v < c->n_vocab; v++)
            max = logits[v] > max ? logits[v] : max;
        for (int v = 0; v < c->n_vocab; v++)
            sum += exp(logits[v] - max);
        for (int v = 0; v < c->n_vocab; v++)
            logits[v] -= max + log(sum);
    }
}
