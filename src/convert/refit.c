/*
 * The weights of the block in work, made to give what the checkpoint's gave: in pieces, each from
 * where the converted model's stream is towards where the checkpoint's is (a block that layers
 * share, on the checkpoint's own stream, and only its output matrix):
 *
 *   als    values and output matrix together, for the attention patterns there are
 *   rec    Q, K, V and output matrix together
 *   wo     the output matrix: ridge regression; also of the heads as they were shared
 *   up     what the feed-forward part takes: the linear map that brings it nearest to the
 *          checkpoint's
 *   down   the down matrix, like wo; not where a norm follows the residual
 *
 * Each is kept if the layer's error, after attention or at its end, is lower with it on windows
 * that it was not fitted to: the sum of the rows' distances, as a few rows have almost all of their
 * squares.
 */
#include <math.h>

#include "convert/private.h"

/* --- the pieces ------------------------------------------------------------------------------ */

/* Each adds a window's rows of what a matrix takes, and of what it should make of them. */
static void add_heads(struct converter *c, int layer, const struct convert_window *win)
{
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_HEADS] = c->rows}});
    convert_subtract(c->rows3, win->middle, win->from, win->n * c->d);
    convert_ridge_add(c, c->rows, c->rows3, win);
}

static void add_middle(struct converter *c, int layer, const struct convert_window *win)
{
    const enum tensor_role norm =
        c->config.placement == PLACEMENT_BEFORE ? ROLE_FFN_NORM : ROLE_ATTN_OUTPUT_NORM;
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_MIDDLE] = c->rows2}});
    convert_norm_rows(c, norm, c->rows, c->rows2, win->n);
    convert_norm_rows(c, norm, c->rows2, win->middle, win->n);
    convert_ridge_add(c, c->rows, c->rows2, win);
}

static void add_hidden(struct converter *c, int layer, const struct convert_window *win)
{
    convert_run_layer(
        c, layer, win,
        (struct block_taps){
            .at = {[TAP_HIDDEN] = c->rows, [TAP_MIDDLE] = c->rows2, [TAP_OUT] = c->rows3}});
    convert_subtract(c->rows2, win->original, c->rows2, win->n * c->d);
    convert_ridge_add(c, c->rows, c->rows2, win);
}

static const struct piece {
    enum piece_kind { PIECE_ALS, PIECE_REC, PIECE_WO, PIECE_UP, PIECE_DOWN } kind;
    enum convert_refit level; /* from which on it runs */
    bool anew;                /* of the heads as they were shared */
    /* Of least squares. */
    enum tensor_role role;
    enum convert_part part;
    convert_visit *visit;
} pieces[] = {
    {PIECE_ALS, CONVERT_REFIT_ALL, .anew = false},
    {PIECE_REC, CONVERT_REFIT_BLOCK, .anew = false},
    {PIECE_WO, CONVERT_REFIT_WO, false, ROLE_ATTN_OUTPUT, PART_O, add_heads},
    {PIECE_WO, CONVERT_REFIT_ALL, true, ROLE_ATTN_OUTPUT, PART_O, add_heads},
    {PIECE_UP, CONVERT_REFIT_ALL, false, ROLE_FFN_UP, PART_UP, add_middle},
    {PIECE_DOWN, CONVERT_REFIT_ALL, false, ROLE_FFN_DOWN, PART_DOWN, add_hidden},
};

static enum status run_piece(struct converter *c, const struct piece *p)
{
    const struct convert_ridge *r = &c->ridge;
    const struct convert_matrix *m = &c->to.at[p->part], *end = m + 2;
    const size_t d = c->d;
    if (p->kind <= PIECE_REC)
        return convert_rebuild_run(c, p->kind == PIECE_REC);
    const bool is_up = p->kind == PIECE_UP, centred = convert_new(c, p->role, true)->bytes;
    convert_ridge_begin(c, is_up ? d : m->rows, d);
    TRY(convert_each_window(c, CONVERT_ALL, p->visit));
    if (!convert_ridge_solve(c, is_up ? NULL : m->w, centred))
        return STATUS_OK;
    if (!is_up) { /* rows are the matrix' inputs; a bias only where the file has one */
        memcpy(m->w, r->w, m->rows * d * sizeof *m->w);
        if (centred)
            memcpy(m->bias, r->b, d * sizeof *m->bias);
        return STATUS_OK;
    }
    /* Up and gate take x; so that they take x map + shift instead. */
    for (; m < end && m->w; m++) {
        for (size_t i = 0; i < m->rows; i++)
            m->bias[i] += linalg_dot(m->w + i * d, r->b, d);
        convert_multiply_transposed(c, linalg_product(c->square, m->w, r->w, d, d), m->rows);
        memcpy(m->w, c->square, m->rows * d * sizeof *m->w);
    }
    return STATUS_OK;
}

static bool is_wanted(const struct converter *c, const struct piece *p)
{
    return p->level <= c->spec->refit &&
           (p->level == CONVERT_REFIT_WO || convert_refits_block(c)) &&
           (p->kind != PIECE_DOWN || c->config.placement == PLACEMENT_BEFORE);
}

/* --- judging --------------------------------------------------------------------------------- */

static void add_error(struct converter *c, int layer, const struct convert_window *win)
{
    float *end = c->config.shared ? NULL : c->rows3; /* judged, too */
    convert_run_layer(c, layer, win,
                      (struct block_taps){.at = {[TAP_MIDDLE] = c->rows, [TAP_OUT] = end}});
    for (size_t at = 0; at < win->n * c->d; at += c->d) {
        c->error[0] += sqrt(convert_squared_distance(c, c->rows + at, win->middle + at, c->d));
        if (end)
            c->error[1] += sqrt(convert_squared_distance(c, end + at, win->original + at, c->d));
    }
}

static enum status judge(struct converter *c)
{
    c->error[0] = c->error[1] = 0;
    convert_use(c);
    return convert_each_window(c, CONVERT_KEPT_ASIDE, add_error);
}

/* What a piece of attention, or of the feed-forward part, changes. */
static enum status store(struct converter *c, bool ffn, struct err *e)
{
    const bool qkv = convert_refits_block(c) || !convert_keeps_heads(c);
    return ffn ? convert_store(c, PART_UP, CONVERT_PARTS, e)
               : convert_store(c, qkv ? PART_Q : PART_O, PART_UP, e);
}

uint64_t convert_refit_windows(const struct converter *c)
{
    const uint64_t n = c->n_windows;
    const uint64_t judged = n / CONVERT_JUDGED;
    uint64_t sum = c->spec->refit ? judged : 0;
    for (const struct piece *p = pieces; p < pieces + LENGTH(pieces); p++)
        if (is_wanted(c, p))
            sum += judged +
                   (p->kind <= PIECE_REC ? convert_rebuild_windows(c, p->kind == PIECE_REC) : n);
    return sum;
}

/* A piece is taken back, too, if its solution is beyond the type of the weights. */
enum status convert_refit(struct converter *c, struct err *e)
{
    const double *error = c->error;
    TRY(judge(c));
    double best[] = {error[0], error[1]};
    if (convert_refits_block(c))
        convert_copy(c, &c->shared, &c->to, PART_Q, PART_UP);
    for (const struct piece *p = pieces; p < pieces + LENGTH(pieces); p++) {
        const bool ffn = p->kind >= PIECE_UP;
        const enum convert_part first = ffn ? PART_UP : PART_Q, end = ffn ? CONVERT_PARTS : PART_UP;
        struct err beyond;
        bool better = false;
        if (!is_wanted(c, p))
            continue;
        convert_copy(c, &c->kept, &c->to, first, end);
        if (p->anew) {
            convert_copy(c, &c->to, &c->shared, first, end);
            TRY(store(c, ffn, e));
            convert_use(c);
        }
        TRY(run_piece(c, p));
        if (store(c, ffn, &beyond) == STATUS_OK) {
            TRY(judge(c));
            better = error[ffn] < best[ffn];
        }
        if (better) {
            memcpy(best, error, sizeof best);
        } else {
            convert_copy(c, &c->to, &c->kept, first, end);
            TRY(store(c, ffn, e));
            convert_use(c);
        }
    }
    return STATUS_OK;
}
