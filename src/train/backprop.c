#include "train/backprop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "train/backprop_private.h"

/* Floats of logits that exist at once. */
#define LOGITS_FLOATS ((size_t)4 << 20)

/* --- memory ---------------------------------------------------------------------------------- */

/* Runs twice over the same pieces: with an arena it takes them, without it adds them up. */
struct taker {
    struct mem_plan plan;
    struct arena *arena;
};

static void *take(struct taker *t, uint64_t count, uint64_t size)
{
    if (t->arena)
        return arena_take(t->arena, count, size);
    mem_plan_add(&t->plan, count, size);
    return NULL;
}

/* rows x n floats; sizes are bounded by the config, and rows by an int. */
static float *take_rows(struct taker *t, uint64_t rows, uint64_t n)
{
    return take(t, rows, n * sizeof(float));
}

static float *take_panels(struct taker *t, int n_out, int n_in)
{
    /* In panels along either dimension. */
    const uint64_t forward = (uint64_t)kernel_padded(n_out) * (uint64_t)n_in;
    const uint64_t backward = (uint64_t)kernel_padded(n_in) * (uint64_t)n_out;
    return take(t, forward > backward ? forward : backward, sizeof(float));
}

static void take_layer(struct taker *t, const struct backprop *b, uint64_t rows, struct kept *kept)
{
    const uint64_t d = (uint64_t)b->config.d_model;
    kept->x = take_rows(t, rows, d);
    kept->qkv = take_rows(t, rows, (uint64_t)backprop_qkv(b));
    kept->heads = take_rows(t, rows, d);
    kept->mid = take_rows(t, rows, d);
    kept->pre = take_rows(t, rows, (uint64_t)b->config.d_ff);
    kept->softmax = take_rows(t, (uint64_t)b->n_sequences * (uint64_t)b->config.n_heads,
                              2 * (uint64_t)backprop_padded_length(b->length));
}

static void take_layers(struct taker *t, struct backprop *b, uint64_t rows)
{
    const int n = b->config.n_layers;
    b->layers = take(t, (uint64_t)n, sizeof *b->layers);
    struct kept kept = {0};
    for (int l = 0; l < n; l++) {
        if (l == 0 || !b->forward_only)
            take_layer(t, b, rows, &kept);
        if (b->layers)
            b->layers[l] = kept;
    }
    b->out = take_rows(t, rows, (uint64_t)b->config.d_model);
}

static void take_gradients(struct taker *t, struct backprop *b, uint64_t rows)
{
    const uint64_t d = (uint64_t)b->config.d_model, ff = (uint64_t)b->config.d_ff;
    b->act = take_rows(t, rows, ff);
    b->dx = take_rows(t, rows, d);
    b->dmid = take_rows(t, rows, d);
    b->dx_kept = b->dropping ? take_rows(t, rows, d) : b->dx;
    b->dmid_kept = b->dropping ? take_rows(t, rows, d) : b->dmid;
    b->dnorm = take_rows(t, rows, d);
    b->dpre = take_rows(t, rows, ff);
    b->dheads = take_rows(t, rows, d);
    b->dqkv = take_rows(t, rows, (uint64_t)backprop_qkv(b));
    b->stats = take_rows(t, rows, 2);
    b->output_backward = take_panels(t, b->config.n_vocab, b->config.d_model);
    if (b->taught)
        b->teacher_logits = take_rows(t, (uint64_t)b->head_rows, (uint64_t)b->config.n_vocab);
}

static void take_all(struct taker *t, struct backprop *b, int n_threads)
{
    const struct config *c = &b->config;
    const uint64_t rows = (uint64_t)b->n_sequences * (uint64_t)b->length;
    const uint64_t d = (uint64_t)c->d_model, ff = (uint64_t)c->d_ff;
    take_layers(t, b, rows);
    b->packed.qkv = take_panels(t, backprop_qkv(b), c->d_model);
    b->packed.attn_out = take_panels(t, c->d_model, c->d_model);
    b->packed.up = take_panels(t, c->d_ff, c->d_model);
    b->packed.down = take_panels(t, c->d_model, c->d_ff);
    b->output_forward = take_panels(t, c->n_vocab, c->d_model);
    b->norm = take_rows(t, rows, d);
    b->logits = take_rows(t, (uint64_t)b->head_rows, (uint64_t)c->n_vocab);
    b->losses = take_rows(t, rows, 1);
    if (!b->forward_only)
        take_gradients(t, b, rows);
    const size_t row_block = ROW_BLOCK * (size_t)(d + ff);
    const size_t item = backprop_attention_scratch(c, b->length);
    b->scratch_floats = row_block > item ? row_block : item;
    /* Whole cache lines for each thread. */
    b->scratch_floats = (b->scratch_floats + KERNEL_LANES - 1) / KERNEL_LANES * KERNEL_LANES;
    b->scratch = take(t, (uint64_t)n_threads * b->scratch_floats, sizeof(float));
}

static int head_rows_of(uint64_t rows, int n_vocab)
{
    const uint64_t fitting = LOGITS_FLOATS / (uint64_t)n_vocab;
    const uint64_t wanted = fitting < ROW_BLOCK ? ROW_BLOCK : fitting;
    return (int)(rows < wanted ? rows : wanted);
}

static enum status describe(const struct backprop_params *p, struct backprop *b, struct err *e)
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
                           .kernels = p->kernels,
                           .grad = grad_kernels_for(p->kernels),
                           .head_rows = head_rows_of(rows, p->config->n_vocab)};
    return STATUS_OK;
}

enum status backprop_plan(const struct backprop_params *p, int n_threads, size_t *bytes,
                          struct err *e)
{
    struct backprop b;
    const enum status s = describe(p, &b, e);
    if (s != STATUS_OK)
        return s;
    struct taker t = {.arena = NULL};
    take_all(&t, &b, n_threads);
    if (t.plan.overflow)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the size of a batch's activations");
    *bytes = t.plan.bytes;
    return STATUS_OK;
}

enum status backprop_create(const struct backprop_params *p, struct pool *pool,
                            struct backprop **out, struct err *e)
{
    *out = NULL;
    struct backprop described;
    enum status s = describe(p, &described, e);
    if (s != STATUS_OK)
        return s;
    struct backprop *b = malloc(sizeof *b);
    if (!b)
        return err_no_memory(e, "a training engine", sizeof *b);
    *b = described;
    b->pool = pool;
    const int n_threads = pool_n_threads(pool);
    struct taker t = {.arena = NULL};
    take_all(&t, b, n_threads);
    s = arena_create(&b->arena, &t.plan, "the activations of a batch", e);
    if (s != STATUS_OK) {
        free(b);
        return s;
    }
    t.arena = &b->arena;
    take_all(&t, b, n_threads);
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

static void embed(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    int begin, end;
    rows_share(p, thread, &begin, &end);
    for (int row = begin; row < end; row++) {
        const float *token = p->w->w[ROLE_TOKEN_EMBD].weight + (size_t)p->batch->inputs[row] * d;
        const float *position = p->w->w[ROLE_POSITION_EMBD].weight + (size_t)(row % b->length) * d;
        float *x = b->layers[0].x + (size_t)row * d;
        for (size_t i = 0; i < d; i++)
            x[i] = token[i] + position[i];
    }
    const struct rows share = {begin, end};
    float *x = rows_at(b->layers[0].x, share, b->config.d_model);
    if (backprop_drops(p))
        backprop_drop(p, 0, x, NULL, x, share);
}

/* Each thread adds some columns of all rows, in order. */
static void embed_backward(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    struct rows share;
    rows_share(p, thread, &share.begin, &share.end);
    if (backprop_drops(p)) {
        float *dx = rows_at(b->dx, share, b->config.d_model);
        backprop_drop(p, 0, dx, NULL, dx, share);
        pool_barrier(b->pool, thread);
    }
    int begin, end;
    pool_share(b->config.d_model, thread, pool_n_threads(b->pool), &begin, &end);
    struct param_view *g = p->gradient;
    const bool tied = g->w[ROLE_OUTPUT].weight == g->w[ROLE_TOKEN_EMBD].weight;
    for (int v = 0; v < b->config.n_vocab && !tied; v++)
        for (int i = begin; i < end; i++)
            g->w[ROLE_TOKEN_EMBD].weight[(size_t)v * d + (size_t)i] = 0;
    for (int t = 0; t < b->config.n_ctx; t++)
        for (int i = begin; i < end; i++)
            g->w[ROLE_POSITION_EMBD].weight[(size_t)t * d + (size_t)i] = 0;
    for (int row = 0; row < backprop_rows(p); row++) {
        float *token = g->w[ROLE_TOKEN_EMBD].weight + (size_t)p->batch->inputs[row] * d;
        float *position = g->w[ROLE_POSITION_EMBD].weight + (size_t)(row % b->length) * d;
        const float *dx = b->dx + (size_t)row * d;
        for (int i = begin; i < end; i++) {
            token[i] += dx[i];
            position[i] += dx[i];
        }
    }
}

/* --- a pass ---------------------------------------------------------------------------------- */

static void run_pass(void *arg, int thread)
{
    const struct pass *p = arg;
    struct backprop *b = p->b;
    const int d = b->config.d_model, n_vocab = b->config.n_vocab;
    const int n_threads = pool_n_threads(b->pool);
    backprop_pack_forward(b->output_forward, p->w->w[ROLE_OUTPUT].weight, n_vocab, d, thread,
                          n_threads);
    if (p->gradient)
        backprop_pack_backward(b->output_backward, p->w->w[ROLE_OUTPUT].weight, n_vocab, d, thread,
                               n_threads);
    embed(p, thread);
    pool_barrier(b->pool, thread);
    for (int l = 0; l < b->config.n_layers; l++)
        backprop_layer(p, l, thread);
    if (p->hidden_only) {
        int begin, end;
        rows_share(p, thread, &begin, &end);
        backprop_norm(b, &p->w->w[ROLE_OUTPUT_NORM], b->out + (size_t)begin * (size_t)d,
                      b->norm + (size_t)begin * (size_t)d, end - begin);
        return;
    }
    backprop_head(p, thread);
    if (!p->gradient)
        return;
    for (int l = b->config.n_layers - 1; l >= 0; l--)
        backprop_layer_backward(p, l, thread);
    embed_backward(p, thread);
}

static double mean_loss(const struct pass *p)
{
    const int n = backprop_rows(p);
    double sum = 0;
    for (int row = 0; row < n; row++)
        sum += (double)p->b->losses[row];
    return sum / n;
}

double backprop_loss(struct backprop *b, const struct param_view *weights,
                     const struct backprop_batch *batch)
{
    assert(batch->n_sequences >= 1 && batch->n_sequences <= b->n_sequences);
    struct pass p = {.b = b, .w = weights, .batch = batch};
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}

double backprop_gradient(struct backprop *b, const struct param_view *weights,
                         const struct backprop_batch *batch, const struct backprop_teacher *teacher,
                         struct param_view *gradient)
{
    assert(batch->n_sequences >= 1 && batch->n_sequences <= b->n_sequences && !b->forward_only &&
           (batch->dropout <= 0 || b->dropping));
    if (teacher) {
        struct pass taught = {
            .b = teacher->engine, .w = teacher->weights, .batch = batch, .hidden_only = true};
        pool_run(teacher->engine->pool, run_pass, &taught);
    }
    struct pass p = {
        .b = b, .w = weights, .batch = batch, .teacher = teacher, .gradient = gradient};
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}
