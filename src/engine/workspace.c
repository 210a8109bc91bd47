#include "engine/workspace.h"

#include "compute/kernels.h"
#include "engine/attention.h"
#include "model/layout.h"

static int largest(int a, int b)
{
    return a > b ? a : b;
}

/* What products by head write, and read quantised. */
static void take_latent(struct workspace *w, struct arena *a, const struct config *c)
{
    const uint64_t rows = (uint64_t)w->max_rows, rank = (uint64_t)config_most_latent(c);
    w->head_quants_bytes = quant_row_bytes(largest((int)rank, c->head_dim));
    w->mapped = arena_take(a, rows * (uint64_t)c->n_heads * rank, sizeof(float));
    w->head_quants = arena_take(a, (uint64_t)w->max_threads * rows, w->head_quants_bytes);
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
    if (config_is_latent(c))
        take_latent(w, a, c);
    w->hidden = arena_take(a, rows * (uint64_t)c->d_ff, sizeof(float));
    w->input = arena_take(a, read * (uint64_t)w->input_dim, sizeof(float));
    w->attend = arena_take(a, threads * w->attend_floats, sizeof(float));
    w->quants = arena_take(a, read, w->quants_bytes);
    w->spans = arena_take(a, rows, sizeof *w->spans);
}
