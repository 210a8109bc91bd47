#include "convert/refit.h"

#include <string.h>

#include "compute/linalg.h"
#include "convert/products.h"
#include "convert/tensors.h"

/* What a piece works with. */
struct refit {
    struct converter *c;
    struct convert_calibration *k;
    struct convert_rebuild *rebuild;
    struct convert_ridge ridge; /* in the memory of moments, which are no longer needed */
};

/* --- weights --------------------------------------------------------------------------------- */

static void copy_numbers(double *to, const double *from, int rows, int cols)
{
    if (to)
        memcpy(to, from, (size_t)rows * (size_t)cols * sizeof *to);
}

static void copy_attention(const struct converter *c, const struct convert_weights *to,
                           const struct convert_weights *from)
{
    const int k = c->n_groups * c->qk.dim, v = c->n_groups * c->ov.dim;
    copy_numbers(to->q, from->q, c->qk.width, c->d);
    copy_numbers(to->k, from->k, k, c->d);
    copy_numbers(to->v, from->v, v, c->d);
    copy_numbers(to->o, from->o, c->ov.width, c->d);
    copy_numbers(to->bq, from->bq, c->qk.width, 1);
    copy_numbers(to->bk, from->bk, k, 1);
    copy_numbers(to->bv, from->bv, v, 1);
    copy_numbers(to->bo, from->bo, c->d, 1);
}

static void copy_ffn(const struct converter *c, const struct convert_ffn *to,
                     const struct convert_ffn *from)
{
    const int d_ff = c->config.d_ff;
    copy_numbers(to->up, from->up, d_ff, c->d);
    copy_numbers(to->gate, from->gate, d_ff, c->d);
    copy_numbers(to->down, from->down, d_ff, c->d);
    copy_numbers(to->bup, from->bup, d_ff, 1);
    copy_numbers(to->bgate, from->bgate, d_ff, 1);
    copy_numbers(to->bdown, from->bdown, c->d, 1);
}

/* w [rows, d] and its bias, which take x, so that they take x map + shift instead. */
static void fold_input(struct converter *c, const struct convert_ridge *map, double *w,
                       double *bias, int rows)
{
    const size_t d = (size_t)c->d;
    if (!w)
        return;
    for (int r = 0; r < rows; r++)
        bias[r] += linalg_dot(w + (size_t)r * d, map->t_sum, d);
    convert_multiply_transposed(c->spec->pool, c->square, w, map->targets, rows, c->d, c->d,
                                c->square2);
    memcpy(w, c->square, (size_t)rows * d * sizeof *w);
}

/* --- passes over the windows ----------------------------------------------------------------- */

/* The converted layer over a window. */
static void run_converted(const struct refit *f, int layer, int w, const struct block_taps *taps)
{
    probe_run(f->k->probe2, &f->k->used.block, layer, convert_stream(f->c, w),
              convert_window_length(f->c, w), taps);
}

/* A window's first number in a buffer [n_tokens, d]. */
static const float *window_of(const struct refit *f, const float *stream, int w)
{
    return stream + convert_window_first(f->k, w) * (size_t)f->c->d;
}

/* Runs `visit` for every layer of the block over the windows that are judged, or the others. Where
 * layers share a block it leaves k->rows2 alone, which the stream goes on from. */
static enum status each_window(struct refit *f, bool judged, void *arg,
                               void (*visit)(struct refit *f, int layer, int w, void *arg))
{
    struct converter *c = f->c;
    const bool all = f->k->n_windows < CONVERT_JUDGED;
    TRY(convert_start_again(c));
    for (int w = 0; w < f->k->n_windows; w++) {
        if (!all && convert_is_judged(f->k, w) != judged)
            continue;
        for (int l = c->first; l < c->end; l++) {
            if (c->config.shared)
                convert_run_original(c, l, w);
            visit(f, l, w, arg);
            if (c->config.shared)
                convert_step_stream(c, w);
            TRY(convert_windows_done(c, 1));
        }
    }
    return STATUS_OK;
}

/* --- the pieces ------------------------------------------------------------------------------ */

static enum status refit_values(struct refit *f)
{
    return convert_rebuild_run(f->c, f->rebuild, false);
}

static enum status refit_attention(struct refit *f)
{
    return convert_rebuild_run(f->c, f->rebuild, true);
}

static void difference(float *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}

static void add_heads(struct refit *f, int layer, int w, void *arg)
{
    struct convert_calibration *k = f->k;
    const int n = convert_window_length(f->c, w);
    (void)arg;
    run_converted(f, layer, w, &(struct block_taps){.at = {[TAP_HEADS] = k->rows}});
    difference(k->rows3, window_of(f, k->middle, w), convert_stream(f->c, w),
               (size_t)n * (size_t)f->c->d);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows3, n);
}

static enum status refit_out(struct refit *f)
{
    struct converter *c = f->c;
    convert_ridge_begin(&f->ridge, c->ov.width, c->d);
    TRY(each_window(f, false, NULL, add_heads));
    const bool centred = c->tensors[c->block].pairs[PAIR_OUT].bias.bytes;
    if (!convert_ridge_solve(&f->ridge, c->to.o, centred))
        return STATUS_OK;
    copy_numbers(c->to.o, f->ridge.targets, c->ov.width, c->d);
    if (centred)
        copy_numbers(c->to.bo, f->ridge.t_sum, c->d, 1);
    return STATUS_OK;
}

static void add_middle(struct refit *f, int layer, int w, void *arg)
{
    struct convert_calibration *k = f->k;
    const struct converter *c = f->c;
    const int n = convert_window_length(c, w);
    const enum tensor_role norm =
        c->config.placement == PLACEMENT_BEFORE ? ROLE_FFN_NORM : ROLE_ATTN_OUTPUT_NORM;
    (void)arg;
    run_converted(f, layer, w, &(struct block_taps){.at = {[TAP_MIDDLE] = k->rows2}});
    convert_norm_rows(c, norm, k->rows, k->rows2, n);
    convert_norm_rows(c, norm, k->rows2, window_of(f, k->middle, w), n);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows2, n);
}

static enum status refit_up(struct refit *f)
{
    struct converter *c = f->c;
    convert_ridge_begin(&f->ridge, c->d, c->d);
    TRY(each_window(f, false, NULL, add_middle));
    if (!convert_ridge_solve(&f->ridge, NULL, c->tensors[c->block].pairs[PAIR_UP].bias.bytes))
        return STATUS_OK;
    fold_input(c, &f->ridge, c->ffn.up, c->ffn.bup, c->config.d_ff);
    fold_input(c, &f->ridge, c->ffn.gate, c->ffn.bgate, c->config.d_ff);
    return STATUS_OK;
}

static void add_hidden(struct refit *f, int layer, int w, void *arg)
{
    struct convert_calibration *k = f->k;
    const int n = convert_window_length(f->c, w);
    (void)arg;
    run_converted(
        f, layer, w,
        &(struct block_taps){
            .at = {[TAP_HIDDEN] = k->rows, [TAP_MIDDLE] = k->rows2, [TAP_OUT] = k->rows3}});
    difference(k->rows2, window_of(f, k->stream, w), k->rows2, (size_t)n * (size_t)f->c->d);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows2, n);
}

static enum status refit_down(struct refit *f)
{
    struct converter *c = f->c;
    convert_ridge_begin(&f->ridge, c->config.d_ff, c->d);
    TRY(each_window(f, false, NULL, add_hidden));
    const bool centred = c->tensors[c->block].pairs[PAIR_DOWN].bias.bytes;
    if (!convert_ridge_solve(&f->ridge, c->ffn.down, centred))
        return STATUS_OK;
    copy_numbers(c->ffn.down, f->ridge.targets, c->config.d_ff, c->d);
    if (centred)
        copy_numbers(c->ffn.bdown, f->ridge.t_sum, c->d, 1);
    return STATUS_OK;
}

/* --- judging --------------------------------------------------------------------------------- */

static void add_error(struct refit *f, int layer, int w, void *arg)
{
    struct convert_calibration *k = f->k;
    double *sums = arg;
    const size_t n = (size_t)convert_window_length(f->c, w) * (size_t)f->c->d;
    const bool whole = !f->c->config.shared;
    run_converted(
        f, layer, w,
        &(struct block_taps){.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = whole ? k->rows3 : NULL}});
    convert_widen_difference(k->x, k->rows, window_of(f, k->middle, w), n);
    sums[0] += linalg_dot(k->x, k->x, n);
    convert_widen_difference(k->x, k->rows3, window_of(f, k->stream, w), whole ? n : 0);
    sums[1] += linalg_dot(k->x, k->x, whole ? n : 0);
}

/* The squared error after attention, and at the layer's end. */
static enum status judge(struct refit *f, double sums[2])
{
    sums[0] = sums[1] = 0;
    convert_use(f->c, &f->k->used);
    return each_window(f, true, sums, add_error);
}

struct piece {
    enum convert_refit level; /* from which on it runs */
    bool ffn;                 /* changes the feed-forward part, else attention */
    bool heads;               /* is for K/V heads */
    bool before_only;         /* needs a residual that no norm follows */
    enum status (*run)(struct refit *f);
};

static const struct piece pieces[] = {
    {CONVERT_REFIT_ALL, .heads = true, .run = refit_values},
    {CONVERT_REFIT_BLOCK, .heads = true, .run = refit_attention},
    {CONVERT_REFIT_WO, .run = refit_out},
    {CONVERT_REFIT_ALL, .ffn = true, .run = refit_up},
    {CONVERT_REFIT_ALL, .ffn = true, .before_only = true, .run = refit_down},
};
#define N_PIECES (sizeof pieces / sizeof *pieces)

static bool is_wanted(const struct converter *c, const struct piece *p)
{
    if ((p->level > CONVERT_REFIT_WO && !convert_refits_block(c)) ||
        (p->heads && convert_is_latent(c)))
        return false;
    return p->level <= c->spec->refit &&
           !(p->before_only && c->config.placement != PLACEMENT_BEFORE);
}

static enum status store(struct converter *c, bool ffn, struct err *e)
{
    if (ffn)
        return convert_store_ffn(c, e);
    if (!convert_is_latent(c) && (convert_refits_block(c) || !convert_keeps_heads(c)))
        TRY(convert_store_qkv(c, e));
    return convert_store_out(c, e);
}

/* Runs a piece, and takes it back if `best` is not lowered. */
static enum status try_piece(struct refit *f, const struct piece *p, double best[2], struct err *e)
{
    struct converter *c = f->c;
    double sums[2];
    if (p->ffn)
        copy_ffn(c, &c->kept_ffn, &c->ffn);
    else
        copy_attention(c, &c->kept, &c->to);
    TRY(p->run(f));
    TRY(store(c, p->ffn, e));
    TRY(judge(f, sums));
    if (sums[p->ffn] <= best[p->ffn]) {
        memcpy(best, sums, sizeof sums);
        return STATUS_OK;
    }
    if (p->ffn)
        copy_ffn(c, &c->ffn, &c->kept_ffn);
    else
        copy_attention(c, &c->to, &c->kept);
    TRY(store(c, p->ffn, e));
    convert_use(c, &f->k->used);
    return STATUS_OK;
}

uint64_t convert_refit_windows(const struct converter *c)
{
    const uint64_t n = (uint64_t)c->calibration->n_windows;
    const uint64_t judged = n < CONVERT_JUDGED ? n : n / CONVERT_JUDGED;
    const uint64_t fitted = n < CONVERT_JUDGED ? n : n - judged;
    uint64_t sum = c->spec->refit ? judged : 0;
    for (const struct piece *p = pieces; p < pieces + N_PIECES; p++)
        if (is_wanted(c, p))
            sum += judged +
                   (p->heads ? convert_rebuild_windows(c, p->level == CONVERT_REFIT_BLOCK) : fitted);
    return sum;
}

enum status convert_refit(struct converter *c, struct convert_rebuild *r, struct err *e)
{
    struct convert_calibration *k = c->calibration;
    struct refit f = {.c = c,
                      .k = k,
                      .rebuild = r,
                      .ridge = {.features = c->moments.values,
                                .targets = c->moments.keys,
                                .f_sum = k->x_sum,
                                .t_sum = k->y_sum}};
    double best[2];
    TRY(judge(&f, best));
    for (size_t i = 0; i < N_PIECES; i++)
        if (is_wanted(c, &pieces[i]))
            TRY(try_piece(&f, &pieces[i], best, e));
    return STATUS_OK;
}
