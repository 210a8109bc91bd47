#include "engine/workspace.h"

#include "compute/kernels.h"
#include "engine/attention.h"
#include "model/layout.h"

static int largest(int a, int b)
{
    return a > b ? a : b;
}

void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap)
{
    const uint64_t rows = (uint64_t)w->max_rows, threads = (uint64_t)w->max_threads;
    const uint64_t own = threads * WORKSPACE_OWN_ROWS, read = rows > own ? rows : own;
    int qkv = 0;
    for (int l = 0; l < c->n_layers; l++)
        qkv = largest(qkv, config_qkv_dim(c, l));
    w->input_dim = largest(c->d_model, config_heads_dim(c));
    w->quants_bytes = quant_row_bytes(layout_longest_row(c));
    w->attend_floats = attention_scratch(c);
    w->x = arena_take(a, rows * (uint64_t)c->d_model, sizeof(float));
    w->qkv = arena_take(a, rows * (uint64_t)qkv, sizeof(float));
    w->positions = positions_take(a, c, rope_factors, cap);
    w->parts = arena_take(a, attention_parts(c, w->max_rows, cap), sizeof(float));
    if (w->watches)
        w->weights = arena_take(a, rows * (uint64_t)c->n_heads * (uint64_t)cap, sizeof(float));
    if (config_is_latent(c)) {
        w->mapped = arena_take(a, rows * (uint64_t)c->n_heads * (uint64_t)config_most_latent(c),
                               sizeof(float));
        w->head_quants = arena_take(a, threads * rows, w->quants_bytes);
    }
    w->hidden = arena_take(a, rows * (uint64_t)c->d_ff, sizeof(float));
    w->input = arena_take(a, read * (uint64_t)w->input_dim, sizeof(float));
    w->attend = arena_take(a, threads * w->attend_floats, sizeof(float));
    w->quants = arena_take(a, read, w->quants_bytes);
    w->spans = arena_take(a, rows, sizeof *w->spans);
}
