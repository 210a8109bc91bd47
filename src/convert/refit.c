/*
 * The weights of the block in work, made to give what the checkpoint's gave. Each step starts from
 * the converted model's residual stream and aims at the checkpoint's. (Where layers share a block,
 * it starts from the checkpoint's stream, and only the output matrix is fitted.) The steps are:
 *
 *   vo     values and output matrix together, while the attention weights stay as they are
 *   qkvo   queries and keys with them
 *   wo     the output matrix alone, by ridge regression: once from where the steps before have
 *          ended, and once from attention as the sharing of heads left it
 *   up     what the feed-forward part takes: the linear map that brings it nearest to the
 *          checkpoint's
 *   down   the down matrix, like wo; not where a norm follows the residual
 *
 * A step is kept if the layer's error, after attention or at its end, is lower with it on the
 * windows held out. The error is the sum of the rows' distances and not of their squares, of which
 * a few rows have almost all.
 */
#include "convert/refit.h"

#include <math.h>

#include "convert/memory.h"
#include "convert/products.h"
#include "convert/rebuild.h"
#include "convert/ridge.h"
#include "convert/tensors.h"

struct convert_refitting {
    union convert_weights before; /* `to` before a step; its sizes are those of `to` */
    union convert_weights shared; /* attention before all steps, if the block is refitted */
    struct convert_ridge ridge;
    double error[2]; /* on windows held out: after attention, and at the layer's end */
};

void convert_refit_take(struct converter *c)
{
    struct convert_refitting counted;
    struct convert_refitting *r = arena_take(&c->arena, 1, sizeof *r);
    const bool whole = convert_refits_block(c);
    c->refitting = r;
    r = r ? r : &counted;
    convert_weights_take(c, &r->before, c->block.n_groups, whole ? CONVERT_WEIGHTS : WEIGHT_UP);
    convert_ridge_take(c, &r->ridge);
    if (!whole)
        return;
    convert_weights_take(c, &r->shared, c->block.n_groups, WEIGHT_UP);
    convert_rebuild_take(c);
}

/* --- the steps ------------------------------------------------------------------------------ */

/* Each of these adds a window's rows to a ridge regression: what a matrix takes, and what it should
 * make of it. */
static void add_heads(struct converter *c, int layer, const struct convert_window *win)
{
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_HEADS] = c->scratch.rows}});
    convert_subtract(c->scratch.rows3, win->middle, win->from, win->n * c->d);
    convert_ridge_add(c, &c->refitting->ridge, c->scratch.rows, c->scratch.rows3, win);
}

static void add_middle(struct converter *c, int layer, const struct convert_window *win)
{
    const enum tensor_role norm =
        c->config.placement == PLACEMENT_BEFORE ? ROLE_FFN_NORM : ROLE_ATTN_OUTPUT_NORM;
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_MIDDLE] = c->scratch.rows2}});
    convert_norm_rows(c, norm, c->scratch.rows, c->scratch.rows2, win->n);
    convert_norm_rows(c, norm, c->scratch.rows2, win->middle, win->n);
    convert_ridge_add(c, &c->refitting->ridge, c->scratch.rows, c->scratch.rows2, win);
}

static void add_hidden(struct converter *c, int layer, const struct convert_window *win)
{
    convert_run_layer(c, layer, win,
                      (struct block_taps){.at = {[TAP_HIDDEN] = c->scratch.rows,
                                                 [TAP_MIDDLE] = c->scratch.rows2,
                                                 [TAP_OUT] = c->scratch.rows3}});
    convert_subtract(c->scratch.rows2, win->original, c->scratch.rows2, win->n * c->d);
    convert_ridge_add(c, &c->refitting->ridge, c->scratch.rows, c->scratch.rows2, win);
}

static const struct step {
    enum step_kind { STEP_VO, STEP_QKVO, STEP_WO, STEP_UP, STEP_DOWN } kind;
    enum convert_refit level; /* from which on it runs */
    bool from_shared;         /* it starts from attention as the sharing of heads left it */
    /* Of the steps by ridge regression: the matrix that is fitted, and what adds a window's rows.
     */
    enum tensor_role role;
    enum convert_weight weight;
    convert_visit *visit;
} steps[] = {
    {STEP_VO, CONVERT_REFIT_ALL, .from_shared = false},
    {STEP_QKVO, CONVERT_REFIT_BLOCK, .from_shared = false},
    {STEP_WO, CONVERT_REFIT_WO, false, ROLE_ATTN_OUTPUT, WEIGHT_O, add_heads},
    {STEP_WO, CONVERT_REFIT_ALL, true, ROLE_ATTN_OUTPUT, WEIGHT_O, add_heads},
    {STEP_UP, CONVERT_REFIT_ALL, false, ROLE_FFN_UP, WEIGHT_UP, add_middle},
    {STEP_DOWN, CONVERT_REFIT_ALL, false, ROLE_FFN_DOWN, WEIGHT_DOWN, add_hidden},
};

static enum status run_step(struct converter *c, const struct step *p)
{
    struct convert_ridge *r = &c->refitting->ridge;
    const struct convert_matrix *m = &c->block.to.at[p->weight], *end = m + 2;
    const size_t d = c->d;
    if (p->kind <= STEP_QKVO)
        return convert_rebuild_run(c, p->kind == STEP_QKVO);
    const bool is_up = p->kind == STEP_UP, centred = convert_new(c, p->role, true)->bytes;
    convert_ridge_begin(r, is_up ? d : m->rows, d);
    TRY(convert_each_window(c, CONVERT_ALL, p->visit));
    if (!convert_ridge_solve(c, r, is_up ? NULL : m->w, centred))
        return STATUS_OK;
    if (!is_up) { /* rows are the matrix' inputs; a bias only where the file has one */
        memcpy(m->w, r->w, m->rows * d * sizeof *m->w);
        if (centred)
            memcpy(m->bias, r->b, d * sizeof *m->bias);
        return STATUS_OK;
    }
    /* Up and gate, which took x, are changed to give what they gave, but of x map + shift. */
    for (; m < end && m->w; m++) {
        for (size_t i = 0; i < m->rows; i++)
            m->bias[i] += linalg_dot(m->w + i * d, r->b, d);
        convert_multiply_transposed(c, linalg_product(c->scratch.square, m->w, r->w, d, d),
                                    m->rows);
        memcpy(m->w, c->scratch.square, m->rows * d * sizeof *m->w);
    }
    return STATUS_OK;
}

static bool is_wanted(const struct converter *c, const struct step *p)
{
    return p->level <= c->spec->refit &&
           (p->level == CONVERT_REFIT_WO || convert_refits_block(c)) &&
           (p->kind != STEP_DOWN || c->config.placement == PLACEMENT_BEFORE);
}

/* --- judging --------------------------------------------------------------------------------- */

static void add_error(struct converter *c, int layer, const struct convert_window *win)
{
    /* Where layers share a block, only what is after attention is compared. */
    float *end = c->config.shared ? NULL : c->scratch.rows3;
    convert_run_layer(c, layer, win,
                      (struct block_taps){.at = {[TAP_MIDDLE] = c->scratch.rows, [TAP_OUT] = end}});
    for (size_t at = 0; at < win->n * c->d; at += c->d) {
        c->refitting->error[0] +=
            sqrt(convert_squared_distance(c, c->scratch.rows + at, win->middle + at, c->d));
        if (end)
            c->refitting->error[1] +=
                sqrt(convert_squared_distance(c, end + at, win->original + at, c->d));
    }
}

static enum status judge(struct converter *c)
{
    c->refitting->error[0] = c->refitting->error[1] = 0;
    convert_load_stored(c);
    return convert_each_window(c, CONVERT_HELD_OUT, add_error);
}

/* Rounds what a step of attention, or of the feed-forward part, has changed to the file's types. */
static enum status store(struct converter *c, bool ffn, struct err *e)
{
    const bool qkv = convert_refits_block(c) || !convert_keeps_heads(c);
    return ffn ? convert_store(c, WEIGHT_UP, CONVERT_WEIGHTS, e)
               : convert_store(c, qkv ? WEIGHT_Q : WEIGHT_O, WEIGHT_UP, e);
}

uint64_t convert_refit_windows(const struct converter *c)
{
    const uint64_t n = c->calib.n_windows;
    const uint64_t held_out = n / CONVERT_HELD_OUT_EVERY;
    uint64_t sum = c->spec->refit ? held_out : 0;
    for (const struct step *p = steps; p < steps + LENGTH(steps); p++)
        if (is_wanted(c, p))
            sum += held_out +
                   (p->kind <= STEP_QKVO ? convert_rebuild_windows(c, p->kind == STEP_QKVO) : n);
    return sum;
}

/* A step is also undone if its solution has numbers that the type of the weights cannot hold. */
enum status convert_refit(struct converter *c, struct err *e)
{
    const double *error = c->refitting->error;
    TRY(judge(c));
    double best[] = {error[0], error[1]};
    if (convert_refits_block(c))
        convert_copy(c, &c->refitting->shared, &c->block.to, WEIGHT_Q, WEIGHT_UP);
    for (const struct step *p = steps; p < steps + LENGTH(steps); p++) {
        const bool ffn = p->kind >= STEP_UP;
        const enum convert_weight first = ffn ? WEIGHT_UP : WEIGHT_Q,
                                  end = ffn ? CONVERT_WEIGHTS : WEIGHT_UP;
        struct err beyond;
        bool better = false;
        if (!is_wanted(c, p))
            continue;
        convert_copy(c, &c->refitting->before, &c->block.to, first, end);
        if (p->from_shared) {
            convert_copy(c, &c->block.to, &c->refitting->shared, first, end);
            TRY(store(c, ffn, e));
            convert_load_stored(c);
        }
        TRY(run_step(c, p));
        if (store(c, ffn, &beyond) == STATUS_OK) {
            TRY(judge(c));
            better = error[ffn] < best[ffn];
        }
        if (better) {
            memcpy(best, error, sizeof best);
        } else {
            convert_copy(c, &c->block.to, &c->refitting->before, first, end);
            TRY(store(c, ffn, e));
            convert_load_stored(c);
        }
    }
    return STATUS_OK;
}
