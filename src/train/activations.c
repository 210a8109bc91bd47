#include "train/activations.h"

#include <assert.h>

#include "engine/causal.h"

static float *take_rows(struct arena *arena, uint64_t rows, int n)
{
    return arena_take(arena, rows, (uint64_t)n * sizeof(float));
}

/* The layer whose tensors and activations are the largest. */
static int widest_layer(const struct config *c)
{
    int widest = 0;
    for (int l = 1; l < c->n_layers; l++)
        if (config_qkv_dim(c, l) > config_qkv_dim(c, widest))
            widest = l;
    return widest;
}

/* Room for a matrix, or those of the heads, in panels along either dimension. */
static float *take_panels(struct arena *arena, const struct tensor_spec *spec)
{
    const int n = spec->n_matrices, rows = spec->rows / n;
    const uint64_t forward = (uint64_t)kernel_padded(rows) * (uint64_t)spec->cols;
    const uint64_t backward = (uint64_t)kernel_padded(spec->cols) * (uint64_t)rows;
    return arena_take(arena, (uint64_t)n * (forward > backward ? forward : backward),
                      sizeof(float));
}

static struct saved take_saved(struct arena *arena, const struct backprop *b, int l, uint64_t rows)
{
    const struct config *c = &b->config;
    return (struct saved){
        .x = take_rows(arena, rows, c->d_model),
        .qkv = take_rows(arena, rows, config_qkv_dim(c, l)),
        .kv = config_is_latent(c) ? take_rows(arena, rows, activations_kv_dim(c)) : NULL,
        .heads = take_rows(arena, rows, config_heads_dim(c)),
        .mid = take_rows(arena, rows, c->d_model),
        .up = take_rows(arena, rows, c->d_ff),
        .gate = ffn_is_gated(c->ffn) ? take_rows(arena, rows, c->d_ff) : NULL,
        .softmax = take_rows(arena, (uint64_t)b->n_sequences * (uint64_t)c->n_heads,
                             2 * causal_padded_length(b->length)),
    };
}

static void take_blocks(struct backprop *b, struct arena *arena, int widest, uint64_t rows)
{
    b->blocks = arena_take(arena, (uint64_t)b->config.n_layers, sizeof *b->blocks);
    struct saved saved = {0};
    for (int l = 0; l < b->config.n_layers; l++) {
        if (l == 0 || !b->forward_only)
            saved = take_saved(arena, b, b->forward_only ? widest : l, rows);
        if (b->blocks)
            b->blocks[l] = saved;
    }
    b->out = take_rows(arena, rows, b->config.d_model);
}

static void take_matrices(struct backprop *b, struct arena *arena, int widest)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
        const struct tensor_spec spec = layout_weight(&b->config, role, widest);
        if (spec.form == FORM_MATRIX && layout_has(&b->config, role))
            b->panels[role] = take_panels(arena, &spec);
    }
    const struct tensor_spec output = layout_weight(&b->config, ROLE_OUTPUT, 0);
    b->panels[ROLE_OUTPUT] = take_panels(arena, &output);
    if (!b->forward_only)
        b->output_backward = take_panels(arena, &output);
}

static void take_gradients(struct backprop *b, struct arena *arena, int widest, uint64_t rows)
{
    const struct config *c = &b->config;
    const int d = c->d_model;
    b->act = take_rows(arena, rows, c->d_ff);
    b->dx = take_rows(arena, rows, d);
    b->dmid = take_rows(arena, rows, d);
    b->dx_dropped = b->dropping ? take_rows(arena, rows, d) : b->dx;
    b->dmid_dropped = b->dropping ? take_rows(arena, rows, d) : b->dmid;
    b->dnorm = take_rows(arena, rows, d);
    b->dup = take_rows(arena, rows, c->d_ff);
    b->dgate = ffn_is_gated(c->ffn) ? take_rows(arena, rows, c->d_ff) : NULL;
    b->dheads = take_rows(arena, rows, config_heads_dim(c));
    b->dqkv = take_rows(arena, rows, config_qkv_dim(c, widest));
    if (config_is_latent(c))
        b->dkv = take_rows(arena, rows, activations_kv_dim(c));
    b->stats = take_rows(arena, rows, 2);
    if (c->position == POSITION_QUADRATIC)
        b->drel =
            arena_take(arena, (uint64_t)b->n_sequences * (uint64_t)c->n_heads, 2 * sizeof *b->drel);
    if (b->taught)
        b->teacher_logits = take_rows(arena, (uint64_t)b->head_rows, c->n_vocab);
}

void activations_take(struct backprop *b, struct arena *arena)
{
    const uint64_t rows = (uint64_t)b->n_sequences * (uint64_t)b->length;
    const int widest = widest_layer(&b->config);
    assert(rows <= INT32_MAX && b->n_threads >= 1 && b->scratch_floats % KERNEL_LANES == 0);
    b->positions = positions_take(arena, &b->config, b->rope_factors, b->length);
    take_blocks(b, arena, widest, rows);
    take_matrices(b, arena, widest);
    b->norm = take_rows(arena, rows, b->config.d_model);
    b->logits = take_rows(arena, (uint64_t)b->head_rows, b->config.n_vocab);
    b->losses = take_rows(arena, rows, 1);
    if (!b->forward_only)
        take_gradients(b, arena, widest, rows);
    b->scratch = arena_take(arena, (uint64_t)b->n_threads * b->scratch_floats, sizeof(float));
}
