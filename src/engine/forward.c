#include "engine/private.h"

void workspace_take(struct workspace *w, struct arena *a, const struct config *c, int cap)
{
    const uint64_t rows = w->max_rows, threads = w->max_threads;
    const uint64_t own = threads * WORKSPACE_LOCAL_ROWS, read = MAX(rows, own);
    int qkv = 0, group = 0; /* the largest of the layers' */
    for (int l = 0; l < c->n_layers; l++) {
        qkv = MAX(qkv, config_qkv_dim(c, l));
        group = MAX(group, config_group(c, l));
    }
    w->input_dim = MAX(c->d_model, config_heads_dim(c));
    w->quants_bytes = quant_row_bytes(layout_longest_row(c));
    /* Scaled queries, scores, a key. */
    w->attend_floats =
        (size_t)MAX(group, JOINED_HEADS) * (c->head_dim + KERNEL_CHUNK) + c->head_dim;
    ARENA_TAKE(w->x, a, rows * c->d_model);
    ARENA_TAKE(w->qkv, a, rows * qkv);
    w->positions = positions_take(a, c, w->rope_factors, cap);
    ARENA_TAKE(w->partials, a,
               rows * c->n_heads * kv_cache_chunks(cap) * (config_value_dim(c) + 2));
    if (w->watches)
        ARENA_TAKE(w->weights, a, rows * c->n_heads * cap);
    ARENA_TAKE(w->hidden, a, rows * c->d_ff);
    ARENA_TAKE(w->input, a, read * w->input_dim);
    if (c->placement == PLACEMENT_PARALLEL)
        ARENA_TAKE(w->parallel, a, read * c->d_model);
    if (c->parts.added_norms)
        ARENA_TAKE(w->added, a, rows * c->d_model);
    ARENA_TAKE(w->attend, a, threads * w->attend_floats);
    w->quants = arena_take(a, read, w->quants_bytes);
    ARENA_TAKE(w->spans, a, rows);
}

/* The feed-forward part of a layer, from its norm to the end of its residual. */
static void block_feed_forward(const struct worker *k, const struct block *b)
{
    const struct forward *f = k->f;
    const struct config *c = &f->kv.config;
    const struct workspace *w = &f->work;
    const struct matrix *up = &b->w[ROLE_FFN_UP].matrix, *gate = &b->w[ROLE_FFN_GATE].matrix;
    const enum epilogue activation = ffn_kinds[c->ffn].epilogue;
    const float *input = w->parallel
                             ? w->parallel + worker_first(k) * c->d_model
                             : stage_input(k, &b->w[ROLE_FFN_NORM].norm, w->input, w->input_dim);

    /* Up projection and activation; gated: of the gate, times the other, over the same panels. */
    if (ffn_kinds[c->ffn].is_gated) {
        const struct matmul first = stage_product(k, gate, input, w->hidden, activation);
        struct matmul second = first;
        /* Both read the same rows, unless only one of them wants these quantised. */
        if (storage_is_quantised(up->storage) && !first.quants)
            second = stage_product(k, up, input, w->hidden, EPILOGUE_MUL);
        second.w = up;
        second.epilogue = EPILOGUE_MUL;
        struct product_share share = stage_share(k, gate);
        struct product_part part;
        while (stage_next(&share, &part)) {
            stage_part(k, &first, part);
            stage_part(k, &second, part);
        }
    } else {
        stage_multiply(k, up, input, w->hidden, activation);
    }
    worker_meet(k);

    /* Down projection, added to the residual stream. */
    stage_add(k, &b->w[ROLE_FFN_DOWN].matrix, w->hidden);
    stage_end_residual(k, &b->w[ROLE_FFN_POST_NORM].norm, &b->w[ROLE_LAYER_OUTPUT_NORM].norm, NULL);
    stage_tap(k, TAP_OUT, w->x, c->d_model);
}

static void run_layers(void *arg, int thread)
{
    struct forward *f = arg;
    struct worker k = {f, thread, pool_n_threads(f->pool), f->batch.n_rows};
    for (int l = f->first_layer; l < f->end_layer; l++) {
        const struct block *b = &f->blocks[l - f->first_layer];
        block_attention(&k, b, l);
        if (!f->only_attention)
            block_feed_forward(&k, b);
    }
    if (thread == 0 && f->watch && f->watch->end)
        f->watch->end(f->watch->arg, f->batch.rows, k.n_rows, f->work.x);
    k.n_rows = f->batch.n_logits;
    if (k.n_rows == 0)
        return;
    /* The last norm, unless norms stand after the residuals, and the output matrix, for the rows
     * that want logits. */
    const size_t d = f->kv.config.d_model;
    const struct range rows = worker_rows(&k);
    float *input = f->work.input + worker_first(&k) * f->work.input_dim;
    for (int r = 0, n = 0; r < f->batch.n_rows; r++) {
        if (!f->batch.rows[r].wants_logits)
            continue;
        const float *x = f->work.x + r * d;
        if (n >= rows.begin && n < rows.end && f->kv.config.placement != PLACEMENT_AFTER)
            stage_norm(f, &f->model->w[ROLE_OUTPUT_NORM].norm, x, input + n * d);
        else if (n >= rows.begin && n < rows.end)
            memcpy(input + n * d, x, d * sizeof *x);
        n++;
    }
    stage_multiply(&k, &f->model->w[ROLE_OUTPUT].matrix, input, f->logits, EPILOGUE_STORE);
}

int forward_run(struct forward *f, const struct batch_row *rows, int n)
{
    batch_cut(&f->batch, rows, n, f->work.spans);
    pool_run(f->pool, run_layers, f);
    return f->batch.n_logits;
}
