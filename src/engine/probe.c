#include "engine/probe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Rows that go through at once. */
#define PROBE_BLOCK 96

struct probe {
    struct config model;  /* of all layers */
    struct config config; /* of one layer */
    const struct kernels *kernels;
    struct pool *pool;
    struct kv_cache kv;
    struct workspace work;
    struct arena arena;
    struct batch_row rows[PROBE_BLOCK];
};

enum status probe_create(const struct config *c, const float *rope_factors, int n_ctx,
                         const struct kernels *kernels, struct pool *pool, struct probe **out,
                         struct err *e)
{
    *out = NULL;
    struct probe *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(e, "a block's scratch memory", sizeof *p);
    p->model = p->config = *c;
    p->config.n_layers = 1;
    p->config.layer_kv_heads[0] = 0; /* room for the most of any */
    p->config.latent[0] = config_most_latent(c);
    p->kernels = kernels;
    p->pool = pool;
    p->work = (struct workspace){.max_rows = n_ctx < PROBE_BLOCK ? n_ctx : PROBE_BLOCK,
                                 .max_threads = pool_n_threads(pool)};
    enum status s = kernels ? STATUS_OK : kernels_choose(NULL, &p->kernels, e);
    if (s == STATUS_OK)
        s = kv_cache_create(&p->kv, &p->config, &(struct kv_shape){.n_sequences = 1, .cap = n_ctx},
                            e);
    workspace_take(&p->work, &p->arena, &p->model, rope_factors, n_ctx);
    if (s == STATUS_OK)
        s = arena_allocate(&p->arena, "a block's scratch memory", e);
    if (s != STATUS_OK) {
        kv_cache_free(&p->kv);
        free(p);
        return s;
    }
    workspace_take(&p->work, &p->arena, &p->model, rope_factors, n_ctx);
    positions_reach(&p->work.positions, n_ctx);
    *out = p;
    return STATUS_OK;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    kv_cache_free(&p->kv);
    arena_free(&p->arena);
    free(p);
}

/* One call of pool_run. */
struct probe_pass {
    struct forward forward;
    const struct block *block;
};

static void run_block(void *arg, int thread)
{
    const struct probe_pass *p = arg;
    block_attention(&p->forward, p->block, 0, thread);
    if (p->forward.taps->at[TAP_OUT])
        block_feed_forward(&p->forward, p->block, thread);
}

static int tap_width(const struct config *c, int tap)
{
    if (tap == TAP_HEADS)
        return config_heads_dim(c);
    return tap == TAP_HIDDEN ? c->d_ff : c->d_model;
}

/* Where the rows from `first` on go. */
static struct block_taps taps_from(const struct probe *p, const struct block_taps *taps, int first)
{
    struct block_taps from = *taps;
    for (int t = 0; t < BLOCK_TAPS; t++)
        if (from.at[t])
            from.at[t] += (size_t)first * (size_t)tap_width(&p->config, t);
    return from;
}

const struct positions *probe_positions(const struct probe *p)
{
    return &p->work.positions;
}

void probe_run(struct probe *p, const struct block *b, int layer, const float *in, int n,
               const struct block_taps *taps)
{
    const size_t d = (size_t)p->config.d_model;
    p->config.layer_kv_heads[0] = p->kv.config.layer_kv_heads[0] =
        config_kv_heads(&p->model, layer);
    p->config.latent[0] = p->kv.config.latent[0] = config_latent(&p->model, layer);
    assert(n >= 1 && n <= p->kv.shape.cap);
    for (int first = 0; first < n; first += p->work.max_rows) {
        const int left = n - first, now = left < p->work.max_rows ? left : p->work.max_rows;
        const struct block_taps here = taps_from(p, taps, first);
        struct batch batch;
        for (int r = 0; r < now; r++)
            p->rows[r] = (struct batch_row){.position = first + r};
        batch_cut(&batch, p->rows, now, 0, p->work.spans);
        memcpy(p->work.x, in + (size_t)first * d, (size_t)now * d * sizeof *in);
        struct probe_pass pass = {.forward = {.config = &p->config,
                                              .kernels = p->kernels,
                                              .pool = p->pool,
                                              .kv = &p->kv,
                                              .work = &p->work,
                                              .batch = &batch,
                                              .taps = &here},
                                  .block = b};
        pool_run(p->pool, run_block, &pass);
    }
}
