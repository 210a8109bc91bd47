#include <string.h>

#include "engine/private.h"
#include "model/layout.h"

/* --- memory ---------------------------------------------------------------------------------- */

static int largest(int a, int b)
{
    return a > b ? a : b;
}

void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap)
{
    const uint64_t rows = w->max_rows, threads = w->max_threads;
    const uint64_t own = threads * WORKSPACE_OWN_ROWS, read = rows > own ? rows : own;
    int qkv = 0, group = 0, key = 0, average = 0; /* the largest of the layers' */
    for (int l = 0; l < c->n_layers; l++) {
        qkv = largest(qkv, config_qkv_dim(c, l));
        group = largest(group, config_group(c, l));
        key = largest(key, config_key_dim(c, l));
        average = largest(average, config_average_dim(c, l));
    }
    w->input_dim = largest(c->d_model, config_heads_dim(c));
    w->quants_bytes = quant_row_bytes(layout_longest_row(c));
    /* Scaled queries, scores, a key or the copies of panels. */
    w->attend_floats = (size_t)group * (key + KERNEL_CHUNK) +
                       (size_t)key * (config_is_latent(c) ? LATENT_PATCHES * KERNEL_LANES : 1);
    w->x = arena_take(a, rows * c->d_model, sizeof(float));
    w->qkv = arena_take(a, rows * qkv, sizeof(float));
    w->positions = positions_take(a, c, rope_factors, cap);
    w->parts =
        arena_take(a, rows * c->n_heads * kv_cache_chunks(cap) * (average + 2), sizeof(float));
    if (w->watches)
        w->weights = arena_take(a, rows * c->n_heads * cap, sizeof(float));
    if (config_is_latent(c)) { /* what products by head write, and read quantised */
        const int rank = config_most_latent(c);
        w->head_quants_bytes = quant_row_bytes(largest(rank, c->head_dim));
        w->mapped = arena_take(a, rows * c->n_heads * rank, sizeof(float));
        w->head_quants = arena_take(a, threads * rows, w->head_quants_bytes);
    }
    w->hidden = arena_take(a, rows * c->d_ff, sizeof(float));
    w->input = arena_take(a, read * w->input_dim, sizeof(float));
    w->attend = arena_take(a, threads * w->attend_floats, sizeof(float));
    w->quants = arena_take(a, read, w->quants_bytes);
    w->spans = arena_take(a, rows, sizeof *w->spans);
}

/* --- rows ------------------------------------------------------------------------------------ */

void forward_rows(const struct forward *f, int n_rows, int thread, int *begin, int *end)
{
    if (workspace_shares(n_rows))
        pool_share(n_rows, thread, pool_n_threads(f->pool), begin, end);
    else
        *begin = 0, *end = n_rows;
}

static void norm_row(const struct forward *f, const struct norm *norm, const float *x, float *out)
{
    const struct config *c = &f->kv.config;
    f->kernels->norm[c->norm](out, x, norm->gain, norm->bias, c->d_model, c->norm_eps);
}

const float *forward_input(const struct forward *f, const struct norm *norm, int thread)
{
    const size_t d = f->kv.config.d_model;
    if (f->kv.config.placement != PLACEMENT_BEFORE)
        return f->work.x;
    float *input = workspace_input(&f->work, f->batch.n_rows, thread);
    int begin, end;
    forward_rows(f, f->batch.n_rows, thread, &begin, &end);
    for (int r = begin; r < end; r++)
        norm_row(f, norm, f->work.x + r * d, input + r * d);
    return input;
}

void forward_end_residual(const struct forward *f, const struct norm *norm, float *sums, int thread)
{
    const size_t d = f->kv.config.d_model;
    int begin, end;
    pool_barrier(f->pool, thread);
    pool_share(f->batch.n_rows, thread, pool_n_threads(f->pool), &begin, &end);
    if (sums && begin < end)
        memcpy(sums + begin * d, f->work.x + begin * d, (size_t)(end - begin) * d * sizeof *sums);
    if (f->kv.config.placement != PLACEMENT_AFTER)
        return;
    for (int r = begin; r < end; r++)
        norm_row(f, norm, f->work.x + r * d, f->work.x + r * d);
    pool_barrier(f->pool, thread);
}

void forward_tap(const struct forward *f, enum block_tap tap, const float *rows, int n, int thread)
{
    if (f->taps.at[tap] && thread == 0)
        memcpy(f->taps.at[tap], rows, (size_t)f->batch.n_rows * n * sizeof *rows);
}

/* --- products -------------------------------------------------------------------------------- */

struct matmul forward_product(const struct forward *f, const struct matrix *w, const float *x,
                              int n_rows, float *y, enum epilogue epilogue, int thread)
{
    const struct workspace *work = &f->work;
    const int n = w->n_in;
    struct matmul m = {
        .w = w,
        .x = x,
        .x_stride = n,
        .n_tokens = n_rows,
        .y = y,
        .y_stride = w->n_out,
        .epilogue = epilogue,
    };
    if (storage_is_quantised(w->storage)) {
        const int first = workspace_shares(n_rows) ? 0 : thread * WORKSPACE_OWN_ROWS;
        unsigned char *quants = work->quants + (size_t)first * work->quants_bytes;
        int begin, end;
        forward_rows(f, n_rows, thread, &begin, &end);
        if (begin < end)
            f->kernels->quantize(quants + (size_t)begin * quant_row_bytes(n), x + (size_t)begin * n,
                                 (size_t)n, end - begin, n);
        m.quants = quants;
    }
    if (workspace_shares(n_rows))
        pool_barrier(f->pool, thread);
    return m;
}

void forward_multiply(const struct forward *f, const struct matrix *w, const float *x, int n_rows,
                      float *y, enum epilogue epilogue, int thread)
{
    const struct matmul m = forward_product(f, w, x, n_rows, y, epilogue, thread);
    int begin, end;
    pool_share(matrix_panels(w->n_out), thread, pool_n_threads(f->pool), &begin, &end);
    f->kernels->matmul(&m, begin, end);
}

/* --- layers ---------------------------------------------------------------------------------- */

static void block_feed_forward(const struct forward *f, const struct block *b, int thread)
{
    const struct config *c = &f->kv.config;
    const struct workspace *w = &f->work;
    const int n_rows = f->batch.n_rows;
    const struct matrix *up = &b->w[ROLE_FFN_UP].matrix, *gate = &b->w[ROLE_FFN_GATE].matrix;
    const enum epilogue activation = ffn_epilogue(c->ffn);
    const float *input = forward_input(f, &b->w[ROLE_FFN_NORM].norm, thread);

    /* Up projection and activation; gated: of the gate, times the other, over the same panels. */
    if (ffn_is_gated(c->ffn)) {
        struct matmul m = forward_product(f, gate, input, n_rows, w->hidden, activation, thread);
        int begin, end;
        pool_share(matrix_panels(gate->n_out), thread, pool_n_threads(f->pool), &begin, &end);
        f->kernels->matmul(&m, begin, end);
        /* Both read the same rows, unless only one of them wants these quantised. */
        if (storage_is_quantised(up->storage) && !m.quants)
            m = forward_product(f, up, input, n_rows, w->hidden, EPILOGUE_MUL, thread);
        m.w = up;
        m.epilogue = EPILOGUE_MUL;
        f->kernels->matmul(&m, begin, end);
    } else {
        forward_multiply(f, up, input, n_rows, w->hidden, activation, thread);
    }
    pool_barrier(f->pool, thread);
    forward_tap(f, TAP_HIDDEN, w->hidden, c->d_ff, thread);

    /* Down projection, added to the residual stream. */
    forward_multiply(f, &b->w[ROLE_FFN_DOWN].matrix, w->hidden, n_rows, w->x, EPILOGUE_ADD, thread);
    forward_end_residual(f, &b->w[ROLE_LAYER_OUTPUT_NORM].norm, NULL, thread);
    forward_tap(f, TAP_OUT, w->x, c->d_model, thread);
}

static void run_layers(void *arg, int thread)
{
    struct forward *f = arg;
    for (int l = f->first_layer; l < f->end_layer; l++) {
        block_attention(f, &f->blocks[l], l, thread);
        if (!f->only_attention)
            block_feed_forward(f, &f->blocks[l], thread);
    }
    if (f->batch.n_logits == 0)
        return;
    /* The last norm, unless norms stand after the residuals, and the output matrix, for the rows
     * that want logits. */
    const size_t d = f->kv.config.d_model;
    const int n_logits = f->batch.n_logits;
    float *input = workspace_input(&f->work, n_logits, thread);
    int begin, end, n = 0;
    forward_rows(f, n_logits, thread, &begin, &end);
    for (int r = 0; r < f->batch.n_rows; r++) {
        if (!f->batch.rows[r].wants_logits)
            continue;
        const float *x = f->work.x + r * d;
        if (n >= begin && n < end && f->kv.config.placement == PLACEMENT_BEFORE)
            norm_row(f, &f->model->w[ROLE_OUTPUT_NORM].norm, x, input + n * d);
        else if (n >= begin && n < end)
            memcpy(input + n * d, x, d * sizeof *x);
        n++;
    }
    forward_multiply(f, &f->model->w[ROLE_OUTPUT].matrix, input, n_logits, f->logits,
                     EPILOGUE_STORE, thread);
}

int forward_run(struct forward *f, const struct batch_row *rows, int n)
{
    batch_cut(&f->batch, rows, n, f->kv.shape.n_shared, f->work.spans);
    pool_run(f->pool, run_layers, f);
    return f->batch.n_logits;
}
