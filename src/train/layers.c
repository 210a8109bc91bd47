/* The layers that a block is made of but for attention, forwards and backwards: affine maps, norms
 * and dropout. */

#include "train/backprop_pass.h"

/* --- affine maps ----------------------------------------------------------------------------- */

/* Tokens summed at once for a weight's gradient: two operands' blocks stay in the cache. */
#define SUM_BLOCK 256

void backprop_pack(const struct pass *p, enum tensor_role role, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct tensor_spec spec = layout_weight(&b->config, role, l);
    const size_t n_in = spec.cols;
    const float *matrix = (role_in_block(role) ? p->w->blocks[l].w : p->w->w)[role].weight;
    const struct range own = pool_range(matrix_panels(spec.rows), thread, b->n_threads);
    assert(spec.form == FORM_MATRIX);
    for (int panel = own.begin; panel < own.end; panel++) {
        const int first = panel * KERNEL_LANES;
        const float *rows = matrix + first * n_in, *next = rows + KERNEL_LANES * n_in;
        /* A step of the optimizer leaves the weights in no cache. */
        for (size_t i = 0; i < KERNEL_LANES * n_in; i += KERNEL_LANES)
            __builtin_prefetch(next + i, 0, 2);
        b->grad->transpose(packed_panels(b, role, l) + first * n_in, KERNEL_LANES, rows, n_in,
                           MIN(spec.rows - first, KERNEL_LANES), spec.cols, 1);
    }
}

void backprop_pack_block(const struct pass *p, int l, int thread)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
        if (packed_panels(p->b, role, l))
            backprop_pack(p, role, l, thread);
}

void backprop_multiply(const struct backprop *b, struct affine map, struct matrix_view x,
                       struct matrix_view y)
{
    b->grad->product(&(struct product){.m = x.n_rows,
                                       .n = y.n,
                                       .k = x.n,
                                       .a = x.x,
                                       .a_row = x.stride,
                                       .a_col = 1,
                                       .b = map.panels ? map.panels : map.matrix,
                                       .b_row = map.panels ? KERNEL_LANES : y.n,
                                       .b_panel = (map.panels ? (size_t)x.n : 1) * KERNEL_LANES,
                                       .c = y.x,
                                       .c_row = y.stride,
                                       .bias = map.bias,
                                       .start = map.start});
}

/* A thread's share of n rows or columns of a matrix: whole lines of the cache. */
static struct range lines_of_thread(int n, int thread, int n_threads)
{
    const struct range r = pool_range((n + KERNEL_LANES - 1) / KERNEL_LANES, thread, n_threads);
    return (struct range){MIN(r.begin * KERNEL_LANES, n), MIN(r.end * KERNEL_LANES, n)};
}

void backprop_weight_sums(const struct backprop *b, struct param_pair gradient,
                          struct matrix_view dy, struct matrix_view x, int thread)
{
    if (!gradient.weight)
        return;
    /* The longer side is cut, so that threads share no more than the narrower operand. */
    struct range rows = {0, dy.n}, columns = {0, x.n};
    *(dy.n >= x.n ? &rows : &columns) = lines_of_thread(MAX(dy.n, x.n), thread, b->n_threads);
    float *out = gradient.weight + (size_t)rows.begin * x.n + columns.begin;
    for (int row = 0; row < dy.n_rows; row += SUM_BLOCK)
        b->grad->product(&(struct product){.m = rows_n(rows),
                                           .n = rows_n(columns),
                                           .k = MIN(dy.n_rows - row, SUM_BLOCK),
                                           .a = dy.x + row * dy.stride + rows.begin,
                                           .a_row = 1,
                                           .a_col = dy.stride,
                                           .b = x.x + row * x.stride + columns.begin,
                                           .b_row = x.stride,
                                           .b_panel = KERNEL_LANES,
                                           .c = out,
                                           .c_row = x.n,
                                           .start = out});
    const struct range own = pool_range(dy.n, thread, b->n_threads);
    if (gradient.bias)
        b->grad->row_sums(gradient.bias + own.begin, dy.x + own.begin, NULL, NULL, dy.stride,
                          dy.n_rows, rows_n(own));
}

/* --- norms ----------------------------------------------------------------------------------- */

/* A role's tensors of block l, or (l -1) outside of the blocks; TENSOR_ROLES has none. */
static const struct param_pair *pair_of(const struct param_view *v, enum tensor_role role, int l)
{
    return role == TENSOR_ROLES ? NULL : l < 0 ? &v->w[role] : &v->blocks[l].w[role];
}

struct norm_use backprop_norm_of(const struct pass *p, enum tensor_role role, int l,
                                 struct matrix_view x)
{
    const bool learns = p->gradient && !p->b->config.parts.no_norm_weights;
    return (struct norm_use){.x = x,
                             .is_norm = role != TENSOR_ROLES,
                             .w = pair_of(p->w, role, l),
                             .gradient = learns ? pair_of(p->gradient, role, l) : NULL};
}

struct norm_use backprop_last_norm(const struct pass *p)
{
    const struct config *c = &p->b->config;
    const bool after = c->placement == PLACEMENT_AFTER;
    return backprop_norm_of(p, after ? ROLE_LAYER_OUTPUT_NORM : ROLE_OUTPUT_NORM,
                            after ? c->n_layers - 1 : -1, pass_stream(p->b, 2 * c->n_layers));
}

void backprop_norm(const struct pass *p, const struct norm_use *n, struct range r, float *out)
{
    const struct config *c = &p->b->config;
    const struct matrix_view x = rows_view(n->x, r);
    const size_t d = c->d_model, n_rows = x.n_rows;
    assert(n->is_norm);
    for (size_t t = 0; t < n_rows; t++)
        p->b->kernels->norm(c->norm, out + t * d, x.x + t * d, n->w->weight, n->w->bias, c->d_model,
                            c->norm_eps);
}

void backprop_norm_backward(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                            struct matrix_view stats, struct matrix_view around,
                            struct matrix_view dx, struct range r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const size_t d = c->d_model;
    if (!around.x) {
        memset(rows_view(dx, r).x, 0, rows_n(r) * d * sizeof *dx.x);
        around = dx;
    }
    if (n->is_norm)
        for (int t = r.begin; t < r.end; t++)
            b->grad->norm_backward(c->norm, dx.x + t * d, around.x + t * d, dy.x + t * d,
                                   n->x.x + t * d, n->w->weight, c->d_model, c->norm_eps,
                                   stats.x + 2 * t);
    else
        for (size_t i = r.begin * d; i < r.end * d; i++)
            dx.x[i] = around.x[i] + dy.x[i];
}

void backprop_norm_sums(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                        struct matrix_view stats, int thread)
{
    const struct backprop *b = p->b;
    const struct param_pair *gradient = n->gradient;
    const struct range r = pool_range(b->config.d_model, thread, b->n_threads);
    const int n_rows = pass_rows(p);
    if (gradient && gradient->weight)
        b->grad->row_sums(gradient->weight + r.begin, dy.x + r.begin, n->x.x + r.begin, stats.x,
                          dy.stride, n_rows, rows_n(r));
    if (gradient && gradient->bias)
        b->grad->row_sums(gradient->bias + r.begin, dy.x + r.begin, NULL, NULL, dy.stride, n_rows,
                          rows_n(r));
}

/* --- dropout --------------------------------------------------------------------------------- */

/* One hash decides for so many neighbours, by 16 bits each. */
#define NEIGHBOURS 4

void dropout_apply(const struct dropout *d, int site, float *x, const float *start, uint64_t first,
                   uint64_t n)
{
    assert(d->share >= 0 && d->share < 1);
    const uint64_t key = rng_mix(d->key + site * 0x9e3779b97f4a7c15u);
    const uint32_t threshold = (uint32_t)(d->share * 65536);
    const float scale = (float)(1 / (1 - d->share));
    for (uint64_t i = 0; i < n;) {
        const uint64_t bits = rng_mix(key + (first + i) / NEIGHBOURS * 0x9e3779b97f4a7c15u);
        for (int j = (int)((first + i) % NEIGHBOURS); j < NEIGHBOURS && i < n; j++, i++) {
            const bool survives = (bits >> 16 * j & 0xffff) >= threshold;
            x[i] = (start ? start[i] : 0) + (survives ? x[i] * scale : 0);
        }
    }
}

void backprop_drop(const struct pass *p, int site, float *x, const float *start, struct range r)
{
    const uint64_t d = p->b->config.d_model, first = pass_first_row(p) + r.begin;
    dropout_apply(&p->batch->dropout, site, x, start, first * d, rows_n(r) * d);
}
