#include "measure/paths.h"

#include <math.h>

#include "model/pack.h"

/* --- a layer --------------------------------------------------------------------------------- */

static void take_layer(struct path_layer *l, struct arena *a, const struct config *c)
{
    const uint64_t n = l->n_tokens;
    ARENA_TAKE(l->x, a, n * c->d_model);
    ARENA_TAKE(l->q, a, n * config_q_dim(c));
    ARENA_TAKE(l->keys, a, n * config_k_dim(c, l->layer));
    ARENA_TAKE(l->values, a, n * config_v_dim(c, l->layer));
    ARENA_TAKE(l->results, a, n * config_heads_dim(c));
}

/* The result [value_dim] of a head at row r: values, weighted. */
static void sum_values(const struct path_layer *l, const struct config *c,
                       const struct attention_weights *w, int r, int head, float *result)
{
    const int dim = config_value_dim(c), group = config_group(c, l->layer);
    const size_t v_dim = config_v_dim(c, l->layer);
    const float *weights = w->weights + (r * w->n_heads + head) * w->stride;
    for (int i = 0; i < dim; i++) {
        double sum = 0;
        for (int j = 0; j <= w->rows[r].position; j++)
            sum += (double)weights[j] * (double)l->values[j * v_dim + head / group * dim + i];
        result[i] = (float)sum;
    }
    head_ablation_end(w->without, c, l->layer, head, result);
}

static void add_rows(struct path_layer *l, const struct config *c,
                     const struct attention_weights *w)
{
    const size_t d = c->d_model, dim = config_value_dim(c), k_dim = c->head_dim;
    const int heads = c->n_heads, kv_heads = config_kv_heads(c, l->layer);
    for (int r = 0; r < w->n_rows && w->rows[r].position < l->n_tokens; r++) {
        const size_t t = w->rows[r].position;
        memcpy(l->x + t * d, w->input + r * d, d * sizeof *l->x);
        for (int h = 0; h < heads; h++)
            positions_turn(&w->q_turn, t, w->queries + r * w->qkv_stride + h * k_dim, 1,
                           l->q + (t * heads + h) * k_dim);
        for (int h = 0; h < kv_heads; h++)
            kv_cache_get(w->kv, (struct kv_slot){w->rows[r].sequence, l->layer, h}, t,
                         l->keys + (t * kv_heads + h) * k_dim,
                         l->values + (t * kv_heads + h) * dim);
        for (int h = 0; h < heads; h++)
            sum_values(l, c, w, r, h, l->results + (t * heads + h) * dim);
    }
}

static double product(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* --- all tokens ------------------------------------------------------------------------------ */

void paths_take(struct attend_paths *p, struct arena *a, const struct config *c)
{
    const uint64_t n = p->layers[0].n_tokens, n_next = n * p->n_next;
    for (int i = 0; i < p->n_layers; i++) {
        struct path_layer *l = &p->layers[i];
        take_layer(l, a, c);
        ARENA_TAKE(l->written, a, n * c->n_heads);
        ARENA_TAKE(l->direct, a, n_next * c->n_heads);
    }
    ARENA_TAKE(p->scales, a, n);
    ARENA_TAKE(p->row, a, MAX(config_heads_dim(c), c->d_model));
    ARENA_TAKE(p->counts, a, n_next * c->d_model);
}

/* Puts a number among the largest, if it is one of them. */
static void put_largest(struct path_written *to, int place, float number)
{
    int at = PATHS_LARGEST;
    while (at > 0 &&
           (to->largest[at - 1].place < 0 || fabsf(number) > fabsf(to->largest[at - 1].number)))
        at--;
    if (at == PATHS_LARGEST)
        return;
    memmove(&to->largest[at + 1], &to->largest[at],
            (PATHS_LARGEST - 1 - at) * sizeof to->largest[0]);
    to->largest[at].place = (float)place;
    to->largest[at].number = number;
}

void paths_add(struct attend_paths *p, const struct model *m, const struct attention_weights *w)
{
    for (int i = 0; i < p->n_layers; i++)
        if (p->layers[i].layer == w->layer)
            add_rows(&p->layers[i], &m->config, w);
}

void paths_add_streams(struct attend_paths *p, const struct config *c, const struct batch_row *rows,
                       int n_rows, const float *streams)
{
    const int d = c->d_model;
    for (int r = 0; r < n_rows; r++) {
        const float *x = streams + (size_t)r * d;
        double mean = 0, squares = 0;
        for (int o = 0; o < d; o++)
            mean += c->norm == NORM_LAYER ? (double)x[o] / d : 0;
        for (int o = 0; o < d; o++)
            squares += ((double)x[o] - mean) * ((double)x[o] - mean);
        p->scales[rows[r].position] = 1 / sqrt(squares / d + (double)c->norm_eps);
    }
}

/* What a number of each token's stream counts in the logits of its next tokens. The last norm is
 * the stream (of a layer norm less its mean) times a scale and the gain. */
static void count_streams(struct attend_paths *p, const struct model *m,
                          const struct token_score *next)
{
    const struct config *c = &m->config;
    const int d = c->d_model, n_next = p->n_next, n = p->layers[0].n_tokens * n_next;
    const float *gain = m->w[ROLE_OUTPUT_NORM].norm.gain;
    for (int i = 0; i < n; i++) {
        double mean = 0;
        pack_read_row(&m->w[ROLE_OUTPUT].matrix, next[i].id, p->row);
        for (int o = 0; o < d; o++) {
            p->row[o] *= gain ? gain[o] : 1;
            mean += c->norm == NORM_LAYER ? (double)p->row[o] / d : 0;
        }
        for (int o = 0; o < d; o++)
            p->counts[(size_t)o * n + i] =
                (float)(((double)p->row[o] - mean) * p->scales[i / n_next]);
    }
}

/* What the heads write: their results times Wo, row by row. */
static void write_parts(struct attend_paths *p, struct path_layer *l, const struct model *m)
{
    const struct config *c = &m->config;
    const struct matrix *output = &m->blocks[l->layer].w[ROLE_ATTN_OUTPUT].matrix;
    const int dim = config_value_dim(c), heads = c->n_heads, n_next = p->n_next;
    const int n_parts = l->n_tokens * heads;
    for (int i = 0; i < n_parts; i++)
        for (int k = 0; k < PATHS_LARGEST; k++)
            l->written[i].largest[k].place = -1;
    for (int o = 0; o < c->d_model; o++) {
        pack_read_row(output, o, p->row);
        for (int i = 0; i < n_parts; i++) {
            const double sum = product(p->row + i % heads * dim, l->results + (size_t)i * dim, dim);
            const float *counts = p->counts + ((size_t)o * l->n_tokens + i / heads) * n_next;
            l->written[i].length += (float)(sum * sum);
            put_largest(&l->written[i], o, (float)sum);
            for (int k = 0; k < n_next; k++)
                l->direct[(size_t)i * n_next + k] += (float)(sum * (double)counts[k]);
        }
    }
    for (int i = 0; i < n_parts; i++)
        l->written[i].length = sqrtf(l->written[i].length);
}

void paths_finish(struct attend_paths *p, const struct model *m, const struct token_score *next)
{
    if (paths_are_direct(&m->config))
        count_streams(p, m, next);
    for (int i = 0; i < p->n_layers; i++)
        write_parts(p, &p->layers[i], m);
}

/* --- one token in one head ------------------------------------------------------------------- */

void trace_take(struct attend_trace *t, struct arena *a, const struct config *c)
{
    const uint64_t n = t->path.n_tokens = t->query + 1;
    take_layer(&t->path, a, c);
    ARENA_TAKE(t->scores, a, n);
    ARENA_TAKE(t->weights, a, n);
    ARENA_TAKE(t->parts, a, (uint64_t)c->n_heads * c->d_model);
    ARENA_TAKE(t->out, a, c->d_model);
    ARENA_TAKE(t->sum, a, c->d_model);
    ARENA_TAKE(t->normed, a, c->d_model);
    ARENA_TAKE(t->row, a, config_heads_dim(c));
}

/* The score of the key at position j. */
static double score_of(const struct attend_trace *t, const struct config *c, const struct block *b,
                       int j)
{
    const int layer = t->path.layer, dim = c->head_dim;
    const float *q = t->path.q + (size_t)t->query * config_q_dim(c) + t->head * dim;
    const float *k =
        t->path.keys + (size_t)j * config_k_dim(c, layer) + t->head / config_group(c, layer) * dim;
    const float *table = b->w[ROLE_ATTN_SCORE].table;
    double score = 0;
    if (table)
        for (int i = 0; i < dim; i++)
            score += (double)table[t->head * dim + i] * tanh((double)q[i] + (double)k[i]);
    else
        score = (double)config_score_scale(c) * product(q, k, dim);
    if (b->bias) {
        const struct attend_bias *bias = &b->bias[t->head];
        const double x = t->query - j - (double)bias->centre;
        score += (double)bias->linear * x + (double)bias->square * x * x;
    }
    return score;
}

/* All that follows from row r, the query's, with the keys and values before it and its own. */
static void finish(struct attend_trace *t, const struct model *m, const struct attention_weights *w,
                   int r)
{
    const struct config *c = &m->config;
    const struct block *b = &m->blocks[t->path.layer];
    const struct matrix *output = &b->w[ROLE_ATTN_OUTPUT].matrix;
    const int dim = config_value_dim(c), d = c->d_model;
    const float *results = t->path.results + (size_t)t->query * output->n_in;
    memcpy(t->weights, w->weights + (r * w->n_heads + t->head) * w->stride,
           t->path.n_tokens * sizeof *t->weights);
    for (int j = 0; j <= t->query; j++)
        t->scores[j] = (float)score_of(t, c, b, j);
    for (int o = 0; o < d; o++) {
        pack_read_row(output, o, t->row);
        const double sum = product(t->row, results, output->n_in);
        t->out[o] = (float)(sum + (output->bias ? (double)output->bias[o] : 0));
        for (int h = 0; h * dim < output->n_in; h++)
            t->parts[h * d + o] = (float)product(t->row + h * dim, results + h * dim, dim);
    }
    const float *stream = w->stream + (size_t)r * d;
    const bool parallel = c->placement == PLACEMENT_PARALLEL;
    const struct norm *norm = &b->w[layout_ffn_norm(c)].norm;
    const struct norm *added = &b->w[ROLE_ATTN_POST_NORM].norm;
    memcpy(t->sum, t->out, d * sizeof *t->sum);
    if (c->parts.added_norms)
        w->kernels->norm(c->norm, t->sum, t->sum, added->gain, added->bias, d, c->norm_eps);
    for (int o = 0; o < d && config_adds(c); o++)
        t->sum[o] += stream[o];
    w->kernels->norm(c->norm, t->normed, parallel ? stream : t->sum, norm->gain, norm->bias, d,
                     c->norm_eps);
}

void trace_add(struct attend_trace *t, const struct model *m, const struct attention_weights *w)
{
    if (t->path.layer != w->layer)
        return;
    add_rows(&t->path, &m->config, w);
    for (int r = 0; r < w->n_rows; r++)
        if (w->rows[r].position == t->query)
            finish(t, m, w, r);
}
