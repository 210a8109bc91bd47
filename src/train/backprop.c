#include "train/backprop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/causal.h"
#include "train/affine.h"
#include "train/attention.h"
#include "train/block.h"
#include "train/loss.h"
#include "train/norm.h"

/* Floats of logits that exist at once. */
#define LOGITS_FLOATS ((size_t)4 << 20)

/* --- memory ---------------------------------------------------------------------------------- */

static int head_rows_of(uint64_t rows, int n_vocab)
{
    const uint64_t fitting = LOGITS_FLOATS / (uint64_t)n_vocab;
    const uint64_t wanted = fitting < ROW_BLOCK ? ROW_BLOCK : fitting;
    return (int)(rows < wanted ? rows : wanted);
}

/* For a row block's norm and activations, or for an item of attention. */
static size_t scratch_floats_of(const struct config *c, int length)
{
    const size_t row_block = ROW_BLOCK * (size_t)(c->d_model + c->d_ff);
    const size_t item = causal_scratch(c, length);
    const size_t most = row_block > item ? row_block : item;
    return (most + KERNEL_LANES - 1) / KERNEL_LANES * KERNEL_LANES;
}

static enum status describe_backprop(const struct backprop_params *p, int n_threads,
                                     struct backprop *b, struct err *e)
{
    assert(p->n_sequences >= 1 && p->length >= 1 && p->length <= p->config->n_ctx);
    const uint64_t rows = (uint64_t)p->n_sequences * (uint64_t)p->length;
    if (rows > INT32_MAX / 2)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: a batch of %d windows of %d tokens",
                       p->n_sequences, p->length);
    *b = (struct backprop){.config = *p->config,
                           .n_sequences = p->n_sequences,
                           .length = p->length,
                           .forward_only = p->forward_only,
                           .taught = p->taught,
                           .dropping = p->dropping,
                           .rope_factors = p->rope_factors,
                           .kernels = p->kernels,
                           .grad = grad_kernels_for(p->kernels),
                           .n_threads = n_threads,
                           .head_rows = head_rows_of(rows, p->config->n_vocab),
                           .scratch_floats = scratch_floats_of(p->config, p->length)};
    return STATUS_OK;
}

enum status backprop_plan(const struct backprop_params *p, int n_threads, size_t *bytes,
                          struct err *e)
{
    struct backprop b;
    const enum status s = describe_backprop(p, n_threads, &b, e);
    if (s != STATUS_OK)
        return s;
    activations_take(&b, &b.arena);
    if (b.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the size of a batch's activations");
    *bytes = b.arena.used;
    return STATUS_OK;
}

enum status backprop_create(const struct backprop_params *p, struct pool *pool,
                            struct backprop **out, struct err *e)
{
    *out = NULL;
    struct backprop described;
    TRY(describe_backprop(p, pool_n_threads(pool), &described, e));
    struct backprop *b = malloc(sizeof *b);
    if (!b)
        return err_no_memory(e, "a training engine", sizeof *b);
    *b = described;
    b->pool = pool;
    activations_take(b, &b->arena);
    enum status s = arena_allocate(&b->arena, "the activations of a batch", e);
    if (s != STATUS_OK) {
        free(b);
        return s;
    }
    activations_take(b, &b->arena);
    positions_reach(&b->positions, b->length);
    b->positions.factors = b->rope_factors = NULL;
    *out = b;
    return STATUS_OK;
}

void backprop_free(struct backprop *b)
{
    if (!b)
        return;
    arena_free(&b->arena);
    free(b);
}

/* --- embedding ------------------------------------------------------------------------------- */

static float embedding_scale(const struct config *c)
{
    return c->embedding_scale > 0 ? c->embedding_scale : 1;
}

/* What is added to a token at a position; NULL: nothing. */
static const float *position_vector(const struct pass *p, int t)
{
    const float *learned = p->w->w[ROLE_POSITION_EMBD].weight;
    return learned ? learned + (size_t)t * (size_t)p->b->config.d_model
                   : positions_vector(&p->b->positions, t);
}

static void embed_batch(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    const float scale = embedding_scale(&b->config);
    const struct rows share = rows_share(p, thread);
    for (int row = share.begin; row < share.end; row++) {
        const float *token = p->w->w[ROLE_TOKEN_EMBD].weight + (size_t)p->inputs[row] * d;
        const float *position = position_vector(p, row % b->length);
        float *x = b->blocks[0].x + (size_t)row * d;
        for (size_t i = 0; i < d; i++)
            x[i] = scale * token[i];
        for (size_t i = 0; i < d && position; i++)
            x[i] += position[i];
    }
    float *x = rows_at(b->blocks[0].x, share, b->config.d_model);
    if (pass_drops(p))
        pass_drop(p, 0, x, NULL, x, share);
}

/* Columns [begin, end) of a table's rows become zero. */
static void clear_columns(float *table, int rows, size_t d, int begin, int end)
{
    for (int r = 0; r < rows; r++)
        for (int i = begin; i < end; i++)
            table[(size_t)r * d + (size_t)i] = 0;
}

/* Each thread adds some columns of all rows, in order. */
static void add_embeddings(const struct pass *p, int begin, int end)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    const float scale = embedding_scale(&b->config);
    struct param_view *g = p->gradient;
    float *tokens = g->w[ROLE_TOKEN_EMBD].weight, *positions = g->w[ROLE_POSITION_EMBD].weight;
    if (g->w[ROLE_OUTPUT].weight != tokens)
        clear_columns(tokens, b->config.n_vocab, d, begin, end);
    if (positions)
        clear_columns(positions, b->config.n_ctx, d, begin, end);
    for (int row = 0; row < pass_rows(p); row++) {
        const float *dx = b->dx + (size_t)row * d;
        float *token = tokens + (size_t)p->inputs[row] * d;
        float *position = positions ? positions + (size_t)(row % b->length) * d : NULL;
        for (int i = begin; i < end; i++)
            token[i] += scale * dx[i];
        for (int i = begin; i < end && position; i++)
            position[i] += dx[i];
    }
}

static void embed_batch_backward(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const struct rows share = rows_share(p, thread);
    if (pass_drops(p)) {
        float *dx = rows_at(b->dx, share, b->config.d_model);
        pass_drop(p, 0, dx, NULL, dx, share);
        pool_barrier(b->pool, thread);
    }
    int begin, end;
    pool_share(b->config.d_model, thread, b->n_threads, &begin, &end);
    add_embeddings(p, begin, end);
    float *factors = p->gradient->w[ROLE_ROPE_FREQS].weight;
    for (int i = 0; i < b->config.rope.n_dims / 2 && factors && thread == 0; i++)
        factors[i] = 0;
}

/* --- a pass ---------------------------------------------------------------------------------- */

static void run_pass(void *arg, int thread)
{
    const struct pass *p = arg;
    struct backprop *b = p->b;
    backprop_pack(p, ROLE_OUTPUT, 0, false, b->panels[ROLE_OUTPUT], thread);
    if (p->gradient)
        backprop_pack(p, ROLE_OUTPUT, 0, true, b->output_backward, thread);
    embed_batch(p, thread);
    pool_barrier(b->pool, thread);
    for (int l = 0; l < b->config.n_layers; l++)
        backprop_block(p, l, thread);
    if (p->hidden_only) {
        const struct rows share = rows_share(p, thread);
        backprop_norm(p, 2 * b->config.n_layers, share, rows_at(b->norm, share, b->config.d_model));
        return;
    }
    backprop_losses(p, thread);
    if (!p->gradient)
        return;
    for (int l = b->config.n_layers - 1; l >= 0; l--)
        backprop_block_backward(p, l, thread);
    embed_batch_backward(p, thread);
}

static double mean_loss(const struct pass *p)
{
    const int n = pass_rows(p);
    double sum = 0;
    for (int row = 0; row < n; row++)
        sum += (double)p->b->losses[row];
    return sum / n;
}

/* A forward pass without dropout. */
static struct pass pass_over(struct backprop *b, const struct param_view *weights,
                             const struct backprop_batch *batch)
{
    assert(batch->n_sequences >= 1 && batch->n_sequences <= b->n_sequences);
    return (struct pass){.b = b,
                         .w = weights,
                         .inputs = batch->inputs,
                         .targets = batch->targets,
                         .n_sequences = batch->n_sequences};
}

double backprop_loss(struct backprop *b, const struct param_view *weights,
                     const struct backprop_batch *batch)
{
    struct pass p = pass_over(b, weights, batch);
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}

double backprop_gradient(struct backprop *b, const struct param_view *weights,
                         const struct backprop_batch *batch, const struct backprop_teacher *teacher,
                         struct param_view *gradient)
{
    assert(!b->forward_only && (batch->dropout.share <= 0 || b->dropping));
    struct pass p = pass_over(b, weights, batch);
    p.dropout = p.attn_dropout = batch->dropout;
    p.attn_dropout.share = batch->attn_dropout;
    p.label_smoothing = batch->label_smoothing;
    p.gradient = gradient;
    if (teacher) {
        assert(b->taught && teacher->engine->length == b->length &&
               teacher->engine->n_threads == b->n_threads &&
               teacher->engine->config.n_vocab == b->config.n_vocab);
        p.teacher = teacher->engine;
        p.teacher_share = teacher->share;
        struct pass taught = pass_over(teacher->engine, teacher->weights, batch);
        taught.hidden_only = true;
        pool_run(teacher->engine->pool, run_pass, &taught);
    }
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}
