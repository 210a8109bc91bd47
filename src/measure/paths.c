#include "measure/paths.h"

#include <math.h>

#include "model/pack.h"

void paths_take(struct attend_paths *p, struct arena *a, const struct config *c)
{
    const uint64_t n = p->n_tokens;
    uint64_t most = 0; /* of the layers' heads_dim */
    for (int i = 0; i < p->n_layers; i++) {
        struct path_layer *l = &p->layers[i];
        l->x = arena_take(a, n, c->d_model * sizeof *l->x);
        l->q = arena_take(a, n, config_q_dim(c, l->layer) * sizeof *l->q);
        l->keys = arena_take(a, n, config_k_dim(c, l->layer) * sizeof *l->keys);
        l->values = arena_take(a, n, config_v_dim(c, l->layer) * sizeof *l->values);
        l->written = arena_take(a, n, config_heads(c, l->layer) * sizeof *l->written);
        most = MAX(most, (uint64_t)config_heads_dim(c, l->layer));
    }
    p->row = arena_take(a, most, sizeof *p->row);
    p->parts = arena_take(a, u64_product(most, n), sizeof *p->parts);
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

/* The results [n_rows, heads_dim] of all heads: values, weighted. */
static void sum_values(const struct path_layer *l, const struct config *c,
                       const struct attention_weights *w, float *results)
{
    const int dim = config_value_dim(c), group = config_group(c, l->layer);
    const int heads = config_heads(c, l->layer);
    const size_t v_dim = config_v_dim(c, l->layer);
    for (int r = 0; r < w->n_rows; r++)
        for (int h = 0; h < heads; h++) {
            const float *weights = w->weights + (r * w->n_heads + h) * w->stride;
            for (int i = 0; i < dim; i++) {
                double sum = 0;
                for (int j = 0; j <= w->rows[r].position; j++)
                    sum += (double)weights[j] * (double)l->values[j * v_dim + h / group * dim + i];
                results[((size_t)r * heads + h) * dim + i] = (float)sum;
            }
        }
}

/* What the heads of the rows write: their results, times a row of Wo after the other. */
static void write_parts(struct attend_paths *p, struct path_layer *l, const struct model *m,
                        const struct attention_weights *w)
{
    const struct config *c = &m->config;
    const struct matrix *output = &m->blocks[l->layer].w[ROLE_ATTN_OUTPUT].matrix;
    const int dim = config_value_dim(c), heads = config_heads(c, l->layer);
    const int n_parts = w->n_rows * heads;
    struct path_written *written = l->written + (size_t)w->rows[0].position * heads;
    for (int i = 0; i < n_parts; i++) {
        written[i].length = 0;
        for (int k = 0; k < PATHS_LARGEST; k++)
            written[i].largest[k].place = -1;
    }
    for (int o = 0; o < c->d_model; o++) {
        pack_read_row(output, o, p->row);
        for (int i = 0; i < n_parts; i++) {
            const float *result = p->parts + (size_t)i * dim, *columns = p->row + i % heads * dim;
            double sum = 0;
            for (int k = 0; k < dim; k++)
                sum += (double)columns[k] * (double)result[k];
            written[i].length += (float)(sum * sum);
            put_largest(&written[i], o, (float)sum);
        }
    }
    for (int i = 0; i < n_parts; i++)
        written[i].length = sqrtf(written[i].length);
}

void paths_add(struct attend_paths *p, const struct model *m, const struct attention_weights *w)
{
    const struct config *c = &m->config;
    struct path_layer *l = p->layers;
    while (l < p->layers + p->n_layers && l->layer != w->layer)
        l++;
    if (l == p->layers + p->n_layers)
        return;
    const size_t d = c->d_model, key = c->head_dim, v_dim = config_v_dim(c, l->layer);
    const int heads = config_heads(c, l->layer), kv_heads = config_kv_heads(c, l->layer);
    for (int r = 0; r < w->n_rows; r++) {
        const size_t t = w->rows[r].position, qkv = r * w->qkv_stride;
        memcpy(l->x + t * d, w->input + r * d, d * sizeof *l->x);
        memcpy(l->values + t * v_dim, w->values + qkv, v_dim * sizeof *l->values);
        for (int h = 0; h < heads; h++)
            trace_rotate(w, c, t, w->queries + qkv + h * key, l->q + (t * heads + h) * key);
        for (int h = 0; h < kv_heads; h++)
            trace_rotate(w, c, t, w->keys + qkv + h * key, l->keys + (t * kv_heads + h) * key);
    }
    sum_values(l, c, w, p->parts);
    write_parts(p, l, m, w);
}
