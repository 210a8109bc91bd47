#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"

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

static enum status create_memory(struct probe *p, const float *rope_factors, int n_ctx,
                                 struct err *e)
{
    const struct kv_shape shape = {.n_sequences = 1, .cap = n_ctx};
    if (!p->kernels)
        TRY(kernels_choose(NULL, &p->kernels, e));
    TRY(kv_cache_create(&p->kv, &p->config, &shape, e));
    workspace_take(&p->work, &p->arena, &p->model, rope_factors, n_ctx);
    TRY(arena_allocate(&p->arena, "a block's scratch memory", e));
    workspace_take(&p->work, &p->arena, &p->model, rope_factors, n_ctx);
    positions_reach(&p->work.positions, n_ctx);
    return STATUS_OK;
}

enum status probe_create(const struct config *c, const float *rope_factors, int n_ctx,
                         const struct kernels *kernels, struct pool *pool, struct probe **out,
                         struct err *e)
{
    struct probe *p = *out = calloc(1, sizeof *p);
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
    const enum status s = create_memory(p, rope_factors, n_ctx, e);
    if (s != STATUS_OK) {
        probe_free(p);
        *out = NULL;
    }
    return s;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    kv_cache_free(&p->kv);
    arena_free(&p->arena);
    free(p);
}

const struct positions *probe_positions(const struct probe *p)
{
    return &p->work.positions;
}

void probe_run(struct probe *p, const struct block *b, int layer, const float *in, int n,
               const struct block_taps *taps)
{
    const struct config *c = &p->config;
    const size_t d = c->d_model;
    struct block_taps here = *taps; /* where the rows that go through go */
    p->config.layer_kv_heads[0] = p->kv.config.layer_kv_heads[0] =
        config_kv_heads(&p->model, layer);
    p->config.latent[0] = p->kv.config.latent[0] = config_latent(&p->model, layer);
    assert(n >= 1 && n <= p->kv.shape.cap);
    for (int first = 0; first < n; first += p->work.max_rows) {
        const int left = n - first, now = left < p->work.max_rows ? left : p->work.max_rows;
        struct forward f = {.config = c,
                            .kernels = p->kernels,
                            .pool = p->pool,
                            .kv = &p->kv,
                            .work = &p->work,
                            .blocks = b,
                            .end_layer = 1,
                            .taps = &here};
        for (int r = 0; r < now; r++)
            p->rows[r] = (struct batch_row){.position = first + r};
        memcpy(p->work.x, in + first * d, now * d * sizeof *in);
        forward_run(&f, p->rows, now);
        for (int t = 0; t < BLOCK_TAPS; t++) {
            const int width = t == TAP_HEADS    ? config_heads_dim(c)
                              : t == TAP_HIDDEN ? c->d_ff
                                                : c->d_model;
            if (here.at[t])
                here.at[t] += (size_t)now * width;
        }
    }
}
