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
    double error[2]; /* squared, as judged last: after attention, and at the layer's end */
};

/* --- weights --------------------------------------------------------------------------------- */

static void copy_ffn(const struct converter *c, const struct convert_ffn *to,
                     const struct convert_ffn *from)
{
    const int d_ff = c->config.d_ff;
    convert_copy_numbers(to->up, from->up, d_ff, c->d);
    convert_copy_numbers(to->gate, from->gate, d_ff, c->d);
    convert_copy_numbers(to->down, from->down, d_ff, c->d);
    convert_copy_numbers(to->bup, from->bup, d_ff, 1);
    convert_copy_numbers(to->bgate, from->bgate, d_ff, 1);
    convert_copy_numbers(to->bdown, from->bdown, c->d, 1);
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

/* --- the pieces ------------------------------------------------------------------------------ */

static enum status refit_values(struct refit *f)
{
    return convert_rebuild_run(f->c, f->rebuild, false);
}

static enum status refit_attention(struct refit *f)
{
    return convert_rebuild_run(f->c, f->rebuild, true);
}

/* A pair's weight, as rows w [m, d] that are its inputs, and its bias, where the file has one, from
 * the rows that `visit` adds. */
static enum status refit_rows(struct refit *f, void (*visit)(void *arg, int layer, int w), int pair,
                              int m, double *w, double *bias)
{
    struct converter *c = f->c;
    const bool centred = c->tensors[c->block].pairs[pair].bias.bytes;
    convert_ridge_begin(&f->ridge, m, c->d);
    TRY(convert_each_window(c, CONVERT_FITTED, f, visit));
    if (!convert_ridge_solve(&f->ridge, w, centred))
        return STATUS_OK;
    memcpy(w, f->ridge.targets, (size_t)m * (size_t)c->d * sizeof *w);
    if (centred)
        memcpy(bias, f->ridge.t_sum, (size_t)c->d * sizeof *bias);
    return STATUS_OK;
}

static void add_heads(void *arg, int layer, int w)
{
    struct refit *f = arg;
    struct convert_calibration *k = f->k;
    const int n = convert_window_length(f->c, w);
    run_converted(f, layer, w, &(struct block_taps){.at = {[TAP_HEADS] = k->rows}});
    convert_subtract(k->rows3, convert_window(f->c, k->middle, w), convert_stream(f->c, w),
                     (size_t)n * (size_t)f->c->d);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows3, n);
}

static enum status refit_out(struct refit *f)
{
    return refit_rows(f, add_heads, PAIR_OUT, f->c->ov.width, f->c->to.o, f->c->to.bo);
}

static void add_middle(void *arg, int layer, int w)
{
    struct refit *f = arg;
    struct convert_calibration *k = f->k;
    const struct converter *c = f->c;
    const int n = convert_window_length(c, w);
    const enum tensor_role norm =
        c->config.placement == PLACEMENT_BEFORE ? ROLE_FFN_NORM : ROLE_ATTN_OUTPUT_NORM;
    run_converted(f, layer, w, &(struct block_taps){.at = {[TAP_MIDDLE] = k->rows2}});
    convert_norm_rows(c, norm, k->rows, k->rows2, n);
    convert_norm_rows(c, norm, k->rows2, convert_window(f->c, k->middle, w), n);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows2, n);
}

static enum status refit_up(struct refit *f)
{
    struct converter *c = f->c;
    convert_ridge_begin(&f->ridge, c->d, c->d);
    TRY(convert_each_window(c, CONVERT_FITTED, f, add_middle));
    if (!convert_ridge_solve(&f->ridge, NULL, c->tensors[c->block].pairs[PAIR_UP].bias.bytes))
        return STATUS_OK;
    fold_input(c, &f->ridge, c->ffn.up, c->ffn.bup, c->config.d_ff);
    fold_input(c, &f->ridge, c->ffn.gate, c->ffn.bgate, c->config.d_ff);
    return STATUS_OK;
}

static void add_hidden(void *arg, int layer, int w)
{
    struct refit *f = arg;
    struct convert_calibration *k = f->k;
    const int n = convert_window_length(f->c, w);
    run_converted(
        f, layer, w,
        &(struct block_taps){
            .at = {[TAP_HIDDEN] = k->rows, [TAP_MIDDLE] = k->rows2, [TAP_OUT] = k->rows3}});
    convert_subtract(k->rows2, convert_window(f->c, k->stream, w), k->rows2,
                     (size_t)n * (size_t)f->c->d);
    convert_ridge_add(&f->ridge, &k->summing, k->rows, k->rows2, n);
}

static enum status refit_down(struct refit *f)
{
    const struct convert_ffn *ffn = &f->c->ffn;
    return refit_rows(f, add_hidden, PAIR_DOWN, f->c->config.d_ff, ffn->down, ffn->bdown);
}

/* --- judging --------------------------------------------------------------------------------- */

static void add_error(void *arg, int layer, int w)
{
    struct refit *f = arg;
    struct converter *c = f->c;
    struct convert_calibration *k = f->k;
    const size_t n = (size_t)convert_window_length(c, w) * (size_t)c->d;
    float *end = c->config.shared ? NULL : k->rows3; /* judged, too */
    run_converted(f, layer, w,
                  &(struct block_taps){.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = end}});
    f->error[0] += convert_squared_distance(k, k->rows, convert_window(c, k->middle, w), n);
    if (end)
        f->error[1] += convert_squared_distance(k, end, convert_window(c, k->stream, w), n);
}

static enum status judge(struct refit *f)
{
    f->error[0] = f->error[1] = 0;
    convert_use(f->c, &f->k->used);
    return convert_each_window(f->c, CONVERT_KEPT_ASIDE, f, add_error);
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

/* Runs a piece, and takes it back if it does not lower `best` on the windows kept aside, or if its
 * solution is beyond the type that the weights are stored in. */
static enum status try_piece(struct refit *f, const struct piece *p, double best[2], struct err *e)
{
    struct converter *c = f->c;
    struct err beyond = {""};
    if (p->ffn)
        copy_ffn(c, &c->kept_ffn, &c->ffn);
    else
        convert_copy_weights(c, &c->kept, &c->to);
    TRY(p->run(f));
    if (store(c, p->ffn, &beyond) == STATUS_OK) {
        TRY(judge(f));
        if (f->error[p->ffn] < best[p->ffn]) {
            memcpy(best, f->error, sizeof f->error);
            return STATUS_OK;
        }
    }
    if (p->ffn)
        copy_ffn(c, &c->ffn, &c->kept_ffn);
    else
        convert_copy_weights(c, &c->to, &c->kept);
    TRY(store(c, p->ffn, e));
    convert_use(c, &f->k->used);
    return STATUS_OK;
}

uint64_t convert_refit_windows(const struct converter *c)
{
    const uint64_t n = (uint64_t)c->calibration->n_windows;
    const uint64_t judged = n / CONVERT_JUDGED, fitted = n - judged;
    uint64_t sum = c->spec->refit ? judged : 0;
    for (const struct piece *p = pieces; p < pieces + N_PIECES; p++)
        if (is_wanted(c, p))
            sum += judged + (p->heads ? convert_rebuild_windows(c, p->level == CONVERT_REFIT_BLOCK)
                                      : fitted);
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
    TRY(judge(&f));
    double best[] = {f.error[0], f.error[1]};
    for (size_t i = 0; i < N_PIECES; i++)
        if (is_wanted(c, &pieces[i]))
            TRY(try_piece(&f, &pieces[i], best, e));
    return STATUS_OK;
}
