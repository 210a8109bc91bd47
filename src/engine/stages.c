#include "engine/private.h"

/* --- rows ------------------------------------------------------------------------------------ */

void stage_norm(const struct forward *f, const struct norm *norm, const float *x, float *out)
{
    const struct config *c = &f->kv.config;
    f->kernels->norm(c->norm, out, x, norm->gain, norm->bias, c->d_model, c->norm_eps);
}

const float *stage_input(const struct worker *k, const struct norm *norm, float *buffer, int stride)
{
    const struct workspace *work = &k->f->work;
    const size_t d = k->f->kv.config.d_model;
    const struct range rows = worker_rows(k);
    float *input = buffer + worker_first(k) * stride;
    if (k->f->kv.config.placement == PLACEMENT_AFTER)
        return work->x;
    for (int r = rows.begin; r < rows.end; r++)
        stage_norm(k->f, norm, work->x + r * d, input + r * d);
    return input;
}

void stage_add(const struct worker *k, const struct matrix *w, const float *x)
{
    const struct workspace *work = &k->f->work;
    const bool is_normed = work->added != NULL;
    stage_multiply(k, w, x, is_normed ? work->added : work->x,
                   is_normed || !config_adds(&k->f->kv.config) ? EPILOGUE_STORE : EPILOGUE_ADD);
}

void stage_end_residual(const struct worker *k, const struct norm *added, const struct norm *after,
                        float *sums)
{
    const struct forward *f = k->f;
    const size_t d = f->kv.config.d_model;
    const struct range rows = worker_range(k, k->n_rows);
    const bool is_after = f->kv.config.placement == PLACEMENT_AFTER;
    float *x = f->work.x, *part = f->work.added;
    worker_meet(k);
    for (int r = rows.begin; part && r < rows.end; r++) {
        stage_norm(f, added, part + r * d, part + r * d);
        for (size_t i = r * d; i < (r + 1) * d; i++)
            x[i] = (config_adds(&f->kv.config) ? x[i] : 0) + part[i];
    }
    if (sums && rows.begin < rows.end)
        memcpy(sums + rows.begin * d, x + rows.begin * d,
               (rows.end - rows.begin) * d * sizeof *sums);
    for (int r = rows.begin; is_after && r < rows.end; r++)
        stage_norm(f, after, x + r * d, x + r * d);
    if (part || is_after)
        worker_meet(k);
}

void stage_tap(const struct worker *k, enum block_tap tap, const float *rows, int n)
{
    if (k->f->taps.at[tap] && k->thread == 0)
        memcpy(k->f->taps.at[tap], rows, (size_t)k->n_rows * n * sizeof *rows);
}

/* --- products -------------------------------------------------------------------------------- */

/* A matrix of this many bytes a thread takes tens of microseconds to read, and memory serves one
 * thread later than the other now and then. Chunks cost an exchange each, 20 ns. */
#define SHARED_OUT_BYTES ((size_t)1 << 20)
/* With rows of so many floats in all, a group of panels takes 16 microseconds or more. */
#define MANY_FLOATS 32768
/* Matrices with fewer groups a thread are not shared out as they go: where a thread has so few, one
 * more is too large a part of its time. */
#define LEAST_GROUPS 4

struct matmul stage_product(const struct worker *k, const struct matrix *w, const float *x,
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
        const struct range rows = worker_rows(k);
        if (rows.begin < rows.end)
            k->f->kernels->quantize(quants + rows.begin * quant_row_bytes(w->n_in),
                                    x + rows.begin * n, n, rows.end - rows.begin, w->n_in);
        m.quants = quants;
    }
    if (worker_shares(k))
        worker_meet(k);
    return m;
}

/* Of so many rows each thread computes its own, which takes it longer than reading all weights. */
#define OWN_ROWS 32

struct product_share stage_share(const struct worker *k, const struct matrix *w)
{
    const int n = matrix_panels(w->n_out);
    const bool long_enough =
        k->n_rows * w->n_in >= MANY_FLOATS ||
        n * matrix_panel_bytes(w->n_in, w->storage) >= k->n_threads * SHARED_OUT_BYTES;
    const bool shared_out = long_enough && n >= k->n_threads * LEAST_GROUPS * PANEL_GROUP;
    struct product_share s = {.k = k, .n_panels = n};
    if (k->n_rows < k->n_threads * OWN_ROWS) {
        s.items = pool_items(k->f->pool, k->thread, n, shared_out ? PANEL_GROUP : 0);
        return s;
    }
    s.n_groups = (n + PANEL_GROUP - 1) / PANEL_GROUP;
    s.items = pool_items(k->f->pool, k->thread, k->n_threads * s.n_groups, shared_out ? 1 : 0);
    return s;
}

bool stage_next(struct product_share *s, struct product_part *out)
{
    struct range some;
    if (!pool_items_next(&s->items, &some))
        return false;
    *out = (struct product_part){{0, s->k->n_rows}, some};
    if (s->n_groups == 0)
        return true;
    const int thread = some.begin / s->n_groups, first = thread * s->n_groups;
    out->rows = pool_range(s->k->n_rows, thread, s->k->n_threads);
    out->panels = (struct range){(some.begin - first) * PANEL_GROUP,
                                 MIN((some.end - first) * PANEL_GROUP, s->n_panels)};
    return true;
}

void stage_part(const struct worker *k, const struct matmul *m, struct product_part part)
{
    struct matmul own = *m;
    const size_t first = part.rows.begin;
    own.n_tokens = part.rows.end - part.rows.begin;
    own.x += first * m->x_stride;
    own.y += first * m->y_stride;
    if (m->quants)
        own.quants = (const unsigned char *)m->quants + first * quant_row_bytes(m->w->n_in);
    k->f->kernels->matmul(&own, part.panels.begin, part.panels.end);
}

void stage_multiply(const struct worker *k, const struct matrix *w, const float *x, float *y,
                    enum epilogue epilogue)
{
    const struct matmul m = stage_product(k, w, x, y, epilogue);
    struct product_share share = stage_share(k, w);
    struct product_part part;
    while (stage_next(&share, &part))
        stage_part(k, &m, part);
}
