#include "engine/private.h"

void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap)
{
    const uint64_t rows = w->max_rows, threads = w->max_threads;
    const uint64_t own = threads * WORKSPACE_OWN_ROWS, read = MAX(rows, own);
    int qkv = 0, group = 0; /* the largest of the layers' */
    for (int l = 0; l < c->n_layers; l++) {
        qkv = MAX(qkv, config_qkv_dim(c, l));
        group = MAX(group, config_group(c, l));
    }
    w->input_dim = MAX(c->d_model, c->n_heads * config_value_dim(c));
    w->quants_bytes = quant_row_bytes(layout_longest_row(c));
    /* Scaled queries, scores, a key. */
    w->attend_floats = (size_t)group * (c->head_dim + KERNEL_CHUNK) + c->head_dim;
    ARENA_TAKE(w->x, a, rows * c->d_model);
    ARENA_TAKE(w->qkv, a, rows * qkv);
    w->positions = positions_take(a, c, rope_factors, cap);
    ARENA_TAKE(w->parts, a, rows * c->n_heads * kv_cache_chunks(cap) * (config_value_dim(c) + 2));
    if (w->watches)
        ARENA_TAKE(w->weights, a, rows * c->n_heads * cap);
    ARENA_TAKE(w->hidden, a, rows * c->d_ff);
    ARENA_TAKE(w->input, a, read * w->input_dim);
    ARENA_TAKE(w->attend, a, threads * w->attend_floats);
    w->quants = arena_take(a, read, w->quants_bytes);
    ARENA_TAKE(w->spans, a, rows);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void norm_row(const struct forward *f, const struct norm *norm, const float *x, float *out)
{
    const struct config *c = &f->kv.config;
    f->kernels->norm[c->norm](out, x, norm->gain, norm->bias, c->d_model, c->norm_eps);
}

const float *forward_input(const struct worker *k, const struct norm *norm)
{
    const struct workspace *work = &k->f->work;
    const size_t d = k->f->kv.config.d_model;
    const struct share rows = worker_rows(k);
    float *input = work->input + worker_first(k) * work->input_dim;
    if (k->f->kv.config.placement != PLACEMENT_BEFORE)
        return work->x;
    for (int r = rows.begin; r < rows.end; r++)
        norm_row(k->f, norm, work->x + r * d, input + r * d);
    return input;
}

void forward_end_residual(const struct worker *k, const struct norm *norm, float *sums)
{
    const struct forward *f = k->f;
    const size_t d = f->kv.config.d_model;
    const struct share rows = share_of(k, k->n_rows);
    worker_meet(k);
    if (sums && rows.begin < rows.end)
        memcpy(sums + rows.begin * d, f->work.x + rows.begin * d,
               (rows.end - rows.begin) * d * sizeof *sums);
    if (f->kv.config.placement != PLACEMENT_AFTER)
        return;
    for (int r = rows.begin; r < rows.end; r++)
        norm_row(f, norm, f->work.x + r * d, f->work.x + r * d);
    worker_meet(k);
}

void forward_tap(const struct worker *k, enum block_tap tap, const float *rows, int n)
{
    if (k->f->taps.at[tap] && k->thread == 0)
        memcpy(k->f->taps.at[tap], rows, (size_t)k->n_rows * n * sizeof *rows);
}

/* --- products -------------------------------------------------------------------------------- */

struct matmul forward_product(const struct worker *k, const struct matrix *w, const float *x,
                              float *y, enum epilogue epilogue)
{
    const struct workspace *work = &k->f->work;
    const size_t n = w->n_in;
    struct matmul m = {.w = w,
                       .x = x,
                       .x_stride = n,
                       .n_tokens = k->n_rows,
                       .y = y,
                       .y_stride = w->n_out,
                       .epilogue = epilogue};
    if (storage_is_quantised(w->storage)) {
        unsigned char *quants = work->quants + worker_first(k) * work->quants_bytes;
        const struct share rows = worker_rows(k);
        if (rows.begin < rows.end)
            k->f->kernels->quantize(quants + rows.begin * quant_row_bytes(w->n_in),
                                    x + rows.begin * n, n, rows.end - rows.begin, w->n_in);
        m.quants = quants;
    }
    if (worker_shares(k))
        worker_meet(k);
    return m;
}

void forward_multiply(const struct worker *k, const struct matrix *w, const float *x, float *y,
                      enum epilogue epilogue)
{
    const struct matmul m = forward_product(k, w, x, y, epilogue);
    const struct share panels = share_of(k, matrix_panels(w->n_out));
    k->f->kernels->matmul(&m, panels.begin, panels.end);
}

/* --- layers ---------------------------------------------------------------------------------- */

static void block_feed_forward(const struct worker *k, const struct block *b)
{
    const struct forward *f = k->f;
    const struct config *c = &f->kv.config;
    const struct workspace *w = &f->work;
    const struct matrix *up = &b->w[ROLE_FFN_UP].matrix, *gate = &b->w[ROLE_FFN_GATE].matrix;
    const enum epilogue activation = ffn_epilogue(c->ffn);
    const float *input = forward_input(k, &b->w[ROLE_FFN_NORM].norm);

    /* Up projection and activation; gated: of the gate, times the other, over the same panels. */
    if (ffn_is_gated(c->ffn)) {
        struct matmul m = forward_product(k, gate, input, w->hidden, activation);
        const struct share panels = share_of(k, matrix_panels(gate->n_out));
        f->kernels->matmul(&m, panels.begin, panels.end);
        /* Both read the same rows, unless only one of them wants these quantised. */
        if (storage_is_quantised(up->storage) && !m.quants)
            m = forward_product(k, up, input, w->hidden, EPILOGUE_MUL);
        m.w = up;
        m.epilogue = EPILOGUE_MUL;
        f->kernels->matmul(&m, panels.begin, panels.end);
    } else {
        forward_multiply(k, up, input, w->hidden, activation);
    }
    worker_meet(k);
    forward_tap(k, TAP_HIDDEN, w->hidden, c->d_ff);

    /* Down projection, added to the residual stream. */
    forward_multiply(k, &b->w[ROLE_FFN_DOWN].matrix, w->hidden, w->x, EPILOGUE_ADD);
    forward_end_residual(k, &b->w[ROLE_LAYER_OUTPUT_NORM].norm, NULL);
    forward_tap(k, TAP_OUT, w->x, c->d_model);
}

static void run_layers(void *arg, int thread)
{
    struct forward *f = arg;
    struct worker k = {f, thread, pool_n_threads(f->pool), f->batch.n_rows};
    for (int l = f->first_layer; l < f->end_layer; l++) {
        block_attention(&k, &f->blocks[l], l);
        if (!f->only_attention)
            block_feed_forward(&k, &f->blocks[l]);
    }
    k.n_rows = f->batch.n_logits;
    if (k.n_rows == 0)
        return;
    /* The last norm, unless norms stand after the residuals, and the output matrix, for the rows
     * that want logits. */
    const size_t d = f->kv.config.d_model;
    const struct share rows = worker_rows(&k);
    float *input = f->work.input + worker_first(&k) * f->work.input_dim;
    for (int r = 0, n = 0; r < f->batch.n_rows; r++) {
        if (!f->batch.rows[r].wants_logits)
            continue;
        const float *x = f->work.x + r * d;
        if (n >= rows.begin && n < rows.end && f->kv.config.placement == PLACEMENT_BEFORE)
            norm_row(f, &f->model->w[ROLE_OUTPUT_NORM].norm, x, input + n * d);
        else if (n >= rows.begin && n < rows.end)
            memcpy(input + n * d, x, d * sizeof *x);
        n++;
    }
    forward_multiply(&k, &f->model->w[ROLE_OUTPUT].matrix, input, f->logits, EPILOGUE_STORE);
}

int forward_run(struct forward *f, const struct batch_row *rows, int n)
{
    batch_cut(&f->batch, rows, n, f->kv.shape.n_shared, f->work.spans);
    pool_run(f->pool, run_layers, f);
    return f->batch.n_logits;
}
