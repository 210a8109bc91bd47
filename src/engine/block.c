#include "engine/block.h"

#include <math.h>
#include <string.h>

#include "engine/attention.h"
#include "engine/latent.h"

/* Rows are written by no thread while one copies them. */
static void tap_rows(const struct forward *f, enum block_tap tap, const float *rows, int n,
                     int thread)
{
    if (f->taps && f->taps->at[tap] && thread == 0)
        memcpy(f->taps->at[tap], rows, (size_t)f->batch->n_rows * (size_t)n * sizeof *rows);
}

/* --- attention ------------------------------------------------------------------------------- */

/* Whether every thread has as many K/V heads as the others, whole, and their rows of Q, K and V are
 * whole panels: then it can go from those rows through attention without waiting. */
static bool heads_divide(const struct forward *f, int layer)
{
    return !config_is_latent(f->config) &&
           config_kv_heads(f->config, layer) % pool_n_threads(f->pool) == 0 &&
           f->config->head_dim % KERNEL_LANES == 0 &&
           config_value_dim(f->config) % KERNEL_LANES == 0;
}

/* The rows of Q, K and V that belong to this thread's K/V heads. */
static void multiply_heads(const struct forward *f, const struct matrix *qkv, const float *input,
                           int layer, int thread)
{
    const struct config *c = f->config;
    const struct matmul m =
        forward_product(f, qkv, input, f->batch->n_rows, f->work->qkv, EPILOGUE_STORE, thread);
    const int n_heads = config_kv_heads(c, layer) / pool_n_threads(f->pool);
    /* Panels of a head's query or key, and of its value. */
    const int panels = c->head_dim / KERNEL_LANES, v_panels = config_value_dim(c) / KERNEL_LANES;
    const int group = config_group(c, layer), first = thread * n_heads;
    const int k = c->n_heads * panels, v = k + config_kv_heads(c, layer) * panels;
    f->kernels->matmul(&m, first * group * panels, (first + n_heads) * group * panels);
    f->kernels->matmul(&m, k + first * panels, k + (first + n_heads) * panels);
    f->kernels->matmul(&m, v + first * v_panels, v + (first + n_heads) * v_panels);
}

/* With fewer work items than these for each thread of full chunks, groups of heads are some, too.
 */
#define LATENT_ITEMS 4

/* Groups of query heads. All could be one with a latent cache, which would be read once; but of a
 * short one each thread reads what there is for some heads, because arithmetic takes longer. */
static int head_groups(const struct forward *f, int layer)
{
    const int n_heads = f->config->n_heads, n_threads = pool_n_threads(f->pool);
    if (!config_is_latent(f->config))
        return config_kv_heads(f->config, layer);
    if (f->batch->cost_per_head >= (int64_t)LATENT_ITEMS * n_threads * KERNEL_CHUNK)
        return 1;
    int n = n_threads < n_heads ? n_threads : n_heads;
    while (n_heads % n != 0)
        n++;
    return n;
}

static struct attention layer_attention(const struct forward *f, const struct block *b, int layer)
{
    const struct config *c = f->config;
    const bool latent = config_is_latent(c);
    const int n_groups = head_groups(f, layer);
    const size_t qkv_dim = (size_t)config_qkv_dim(c, layer);
    const int key_dim = config_key_dim(c, layer);
    return (struct attention){
        .kernels = f->kernels,
        .batch = f->batch,
        .kv = f->kv,
        .layer = layer,
        .n_kv_heads = config_kv_heads(c, layer),
        .n_groups = n_groups,
        .group = c->n_heads / n_groups,
        .stores_first = f->batch->stores_first || latent, /* threads meet anyway */
        .key_dim = key_dim,
        .average_dim = config_average_dim(c, layer),
        .qkv_dim = qkv_dim,
        .latent = latent,
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .positions = &f->work->positions,
        .bias = b->bias,
        .qkv = f->work->qkv,
        .queries = latent ? f->work->mapped : f->work->qkv,
        .queries_dim = latent ? (size_t)c->n_heads * (size_t)key_dim : qkv_dim,
        .parts = f->work->parts,
        .max_chunks = kv_cache_chunks(f->kv->shape.cap),
        .weights = f->watch ? f->work->weights : NULL,
    };
}

/* Nobody comes back to the weights before thread 0 has been to the end of the residual. */
static void show_weights(const struct forward *f, const struct attention *a, int thread)
{
    int begin, end;
    pool_share(f->batch->n_rows, thread, pool_n_threads(f->pool), &begin, &end);
    for (int r = begin; r < end; r++)
        attention_finish_weights(a, r);
    pool_barrier(f->pool, thread);
    if (thread == 0)
        f->watch->take(f->watch->arg, a->layer, f->batch, a->weights, (size_t)f->kv->shape.cap);
}

/* The results [n_rows, heads_dim] of the rows' heads, complete for this thread as the next product
 * asks for: chunks joined, heads side by side. */
static float *join_heads(const struct forward *f, const struct block *b, const struct attention *a,
                         int thread)
{
    const int n_rows = f->batch->n_rows;
    const size_t row_dim = (size_t)config_heads_dim(f->config);
    float *heads = workspace_input(f->work, n_rows, a->latent ? 0 : thread);
    int begin, end;
    if (a->latent) {
        latent_map_results(f, b, a, heads, thread);
        pool_barrier(f->pool, thread);
        return heads;
    }
    forward_rows(f, n_rows, thread, &begin, &end);
    for (int r = begin; r < end; r++) {
        for (int h = 0; h < f->config->n_heads; h++) {
            float *head = heads + (size_t)r * row_dim + (size_t)h * (size_t)a->average_dim;
            attention_merge(a, r, h, head);
            forward_end_head(f, a->layer, h, head);
        }
    }
    return heads;
}

void block_attention(const struct forward *f, const struct block *b, int layer, int thread)
{
    const struct config *c = f->config;
    const struct workspace *w = f->work;
    const int n_rows = f->batch->n_rows, n_threads = pool_n_threads(f->pool);
    const struct attention a = layer_attention(f, b, layer);
    const bool whole_heads = heads_divide(f, layer);

    /* Queries, keys and values. */
    const float *input = forward_input(f, &b->w[ROLE_ATTN_NORM].norm, thread);
    const struct matrix *qkv = &b->w[ROLE_ATTN_QKV].matrix;
    if (whole_heads) {
        multiply_heads(f, qkv, input, layer, thread);
    } else {
        forward_multiply(f, qkv, input, n_rows, w->qkv, EPILOGUE_STORE, thread);
        pool_barrier(f->pool, thread);
    }

    tap_rows(f, TAP_NORMED, input, c->d_model, thread);

    /* Queries as a latent cache takes them; keys and values into the cache. */
    if (a.latent)
        latent_map_queries(f, b, layer, thread);
    if (a.stores_first)
        attention_store(&a, workspace_attend(w, thread), thread, n_threads);
    if (a.stores_first && !whole_heads)
        pool_barrier(f->pool, thread);

    /* Scores, softmax and weighted values, chunk by chunk. */
    attention_run(&a, workspace_attend(w, thread), thread, n_threads);
    pool_barrier(f->pool, thread);
    if (f->watch)
        show_weights(f, &a, thread);

    /* Output projection, added to the residual stream. */
    const float *heads = join_heads(f, b, &a, thread);
    forward_multiply(f, &b->w[ROLE_ATTN_OUTPUT].matrix, heads, n_rows, w->x, EPILOGUE_ADD, thread);
    tap_rows(f, TAP_HEADS, heads, config_heads_dim(c), thread);
    float *middle = f->taps ? f->taps->at[TAP_MIDDLE] : NULL;
    forward_end_residual(f, &b->w[ROLE_ATTN_OUTPUT_NORM].norm, middle, thread);
}

/* --- feed-forward ---------------------------------------------------------------------------- */

void block_feed_forward(const struct forward *f, const struct block *b, int thread)
{
    const struct workspace *w = f->work;
    const int n_rows = f->batch->n_rows;
    const enum ffn_kind kind = f->config->ffn;
    const struct matrix *up = &b->w[ROLE_FFN_UP].matrix;

    /* Up projection and activation. */
    const float *input = forward_input(f, &b->w[ROLE_FFN_NORM].norm, thread);
    if (ffn_is_gated(kind))
        forward_gate(f, &b->w[ROLE_FFN_GATE].matrix, up, input, n_rows, w->hidden,
                     ffn_epilogue(kind), thread);
    else
        forward_multiply(f, up, input, n_rows, w->hidden, ffn_epilogue(kind), thread);
    pool_barrier(f->pool, thread);

    tap_rows(f, TAP_HIDDEN, w->hidden, f->config->d_ff, thread);

    /* Down projection, added to the residual stream. */
    forward_multiply(f, &b->w[ROLE_FFN_DOWN].matrix, w->hidden, n_rows, w->x, EPILOGUE_ADD, thread);
    forward_end_residual(f, &b->w[ROLE_LAYER_OUTPUT_NORM].norm, NULL, thread);
    tap_rows(f, TAP_OUT, w->x, f->config->d_model, thread);
}
