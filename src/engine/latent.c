#include "engine/latent.h"

/* y = W x by a head's matrix, of all rows of the batch. */
static void multiply_head(const struct forward *f, const struct matrix *w, const float *x,
                          size_t x_stride, float *y, size_t y_stride, int thread)
{
    struct matmul m = {
        .w = w,
        .x = x,
        .x_stride = x_stride,
        .n_tokens = f->batch->n_rows,
        .y = y,
        .y_stride = y_stride,
        .epilogue = EPILOGUE_STORE,
    };
    if (storage_is_quantised(w->storage)) {
        unsigned char *quants = workspace_head_quants(f->work, thread);
        f->kernels->quantize(quants, x, x_stride, m.n_tokens, w->n_in);
        m.quants = quants;
    }
    f->kernels->matmul(&m, 0, matrix_panels(w->n_out));
}

static size_t mapped_dim(const struct forward *f, int layer)
{
    return (size_t)f->config->n_heads * (size_t)config_latent(f->config, layer);
}

void latent_map_queries(const struct forward *f, const struct block *b, int layer, int thread)
{
    const struct config *c = f->config;
    const size_t rank = (size_t)config_latent(c, layer), dim = (size_t)c->head_dim;
    int h, end;
    pool_share(c->n_heads, thread, pool_n_threads(f->pool), &h, &end);
    for (; h < end; h++) {
        const struct matrix w = model_head_matrix(&b->w[ROLE_ATTN_K_B], h);
        multiply_head(f, &w, f->work->qkv + (size_t)h * dim, (size_t)config_qkv_dim(c, layer),
                      f->work->mapped + (size_t)h * rank, mapped_dim(f, layer), thread);
    }
}

void latent_map_results(const struct forward *f, const struct block *b, const struct attention *a,
                        float *heads, int thread)
{
    const struct config *c = f->config;
    const size_t rank = (size_t)a->average_dim, dim = (size_t)config_value_dim(c);
    const size_t row_dim = mapped_dim(f, a->layer);
    int h, end;
    pool_share(c->n_heads, thread, pool_n_threads(f->pool), &h, &end);
    for (; h < end; h++) {
        float *averages = f->work->mapped + (size_t)h * rank;
        const struct matrix w = model_head_matrix(&b->w[ROLE_ATTN_V_B], h);
        for (int r = 0; r < f->batch->n_rows; r++)
            attention_merge(a, r, h, averages + (size_t)r * row_dim);
        multiply_head(f, &w, averages, row_dim, heads + (size_t)h * dim,
                      (size_t)config_heads_dim(c), thread);
        for (int r = 0; r < f->batch->n_rows; r++)
            forward_end_head(f, a->layer, h,
                             heads + (size_t)r * (size_t)config_heads_dim(c) + (size_t)h * dim);
    }
}
