#include "measure/trace.h"

#include <math.h>

#include "model/pack.h"

void trace_take(struct attend_trace *t, struct arena *a, const struct config *c)
{
    const uint64_t n = t->query + 1, width = config_heads_dim(c, t->layer);
    t->x = arena_take(a, n, c->d_model * sizeof *t->x);
    t->q = arena_take(a, c->head_dim, sizeof *t->q);
    t->keys = arena_take(a, n, c->head_dim * sizeof *t->keys);
    t->values = arena_take(a, n, config_v_dim(c, t->layer) * sizeof *t->values);
    t->scores = arena_take(a, n, sizeof *t->scores);
    t->weights = arena_take(a, n, sizeof *t->weights);
    t->heads = arena_take(a, width, sizeof *t->heads);
    t->parts = arena_take(a, config_heads(c, t->layer), c->d_model * sizeof *t->parts);
    t->out = arena_take(a, c->d_model, sizeof *t->out);
    t->sum = arena_take(a, c->d_model, sizeof *t->sum);
    t->normed = arena_take(a, c->d_model, sizeof *t->normed);
    t->row = arena_take(a, width, sizeof *t->row);
}

void trace_rotate(const struct attention_weights *w, const struct config *c, int position,
                  const float *x, float *out)
{
    const float *rotation = positions_rotation(w->positions, position);
    if (rotation)
        w->kernels->rotate(out, x, rotation, c->rope.n_dims, c->head_dim, 1, false);
    else
        memcpy(out, x, c->head_dim * sizeof *out);
}

static double product(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* All that follows from row r, the query's, with the keys and values before it and its own. */
static void finish(struct attend_trace *t, const struct model *m, const struct attention_weights *w,
                   int r)
{
    const struct config *c = &m->config;
    const struct block *b = &m->blocks[t->layer];
    const struct matrix *output = &b->w[ROLE_ATTN_OUTPUT].matrix;
    const int n = t->query + 1, dim = config_value_dim(c), group = config_group(c, t->layer);
    const size_t v_dim = config_v_dim(c, t->layer);
    const float *table = b->w[ROLE_ATTN_SCORE].table;
    const float *additive = table ? table + (size_t)t->head * c->head_dim : NULL;
    const float *of_row = w->weights + r * w->n_heads * w->stride;
    memcpy(t->weights, of_row + t->head * w->stride, n * sizeof *t->weights);
    trace_rotate(w, c, t->query, w->queries + r * w->qkv_stride + (size_t)t->head * c->head_dim,
                 t->q);
    for (int j = 0; j < n; j++) {
        const float *k = t->keys + (size_t)j * c->head_dim;
        double score = (double)config_score_scale(c) * product(t->q, k, additive ? 0 : c->head_dim);
        if (additive)
            for (int i = 0; i < c->head_dim; i++)
                score += (double)additive[i] * tanh((double)t->q[i] + (double)k[i]);
        if (b->bias) {
            const struct attend_bias *bias = &b->bias[t->head];
            const double x = t->query - j - (double)bias->centre;
            score += (double)bias->linear * x + (double)bias->square * x * x;
        }
        t->scores[j] = (float)score;
    }
    for (int h = 0; h < config_heads(c, t->layer); h++)
        for (int i = 0; i < dim; i++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += (double)of_row[h * w->stride + j] *
                       (double)t->values[j * v_dim + h / group * dim + i];
            t->heads[h * dim + i] = (float)sum;
        }
    for (int o = 0; o < c->d_model; o++) {
        pack_read_row(output, o, t->row);
        const double sum = product(t->row, t->heads, output->n_in);
        t->out[o] = (float)(sum + (output->bias ? (double)output->bias[o] : 0));
        t->sum[o] = w->stream[(size_t)r * c->d_model + o] + t->out[o];
        for (int h = 0; h < config_heads(c, t->layer); h++)
            t->parts[(size_t)h * c->d_model + o] =
                (float)product(t->row + h * dim, t->heads + h * dim, dim);
    }
    const enum tensor_role role =
        c->placement == PLACEMENT_BEFORE ? ROLE_FFN_NORM : ROLE_ATTN_OUTPUT_NORM;
    const struct norm *norm = &b->w[role].norm;
    w->kernels->norm[c->norm](t->normed, t->sum, norm->gain, norm->bias, c->d_model, c->norm_eps);
}

void trace_add(struct attend_trace *t, const struct model *m, const struct attention_weights *w)
{
    const struct config *c = &m->config;
    const size_t d = c->d_model, v_dim = config_v_dim(c, t->layer);
    const size_t kv_head = t->head / config_group(c, t->layer);
    for (int r = 0; r < w->n_rows && w->rows[r].position <= t->query; r++) {
        const int j = w->rows[r].position;
        memcpy(t->x + j * d, w->input + r * d, d * sizeof *t->x);
        trace_rotate(w, c, j, w->keys + r * w->qkv_stride + kv_head * c->head_dim,
                     t->keys + (size_t)j * c->head_dim);
        memcpy(t->values + j * v_dim, w->values + r * w->qkv_stride, v_dim * sizeof *t->values);
        if (j == t->query)
            finish(t, m, w, r);
    }
}
