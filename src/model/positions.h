/*
 * positions - what tells a model where a token stands, as numbers that are computed once.
 *
 * Sines, cosines and powers come from compute/elementary: the same bits everywhere.
 */
#pragma once

#include "base/mem.h"
#include "compute/kernels.h"
#include "model/config.h"

/* The numbers of the positions below `cap`: rotations, vectors to be added, or neither. */
struct positions {
    /* [cap, stride]; the first n_filled rows are filled. The second array is for layers whose
     * window has a base of its own (config_has_window_base). */
    float *rows[2];
    size_t stride;
    enum position_kind kind;
    int cap, n_filled;
    struct config_rope rope; /* of rotary positions, with their factors, borrowed */
    const float *factors;
};

/*
 * Takes the rows from an arena, or counts them (see base/mem.h). Of rotary positions a row is what
 * kernels.rotate takes, of sinusoidal ones d_model numbers, the sine at 2 i and the cosine at
 * 2 i + 1 of position / 10000^(2 i / d_model) (Vaswani et al. 2017, section 3.5).
 * factors [rope.n_dims / 2] divide the frequencies of rotary pairs; NULL: none.
 */
struct positions positions_take(struct arena *a, const struct config *c, const float *factors,
                                int cap);

/* Makes sure that the rows of the first n <= cap positions are filled, and fills a few more. So a
 * context that a file claims costs nothing before a text is as long. Takes the time of a sine for
 * each number. No other thread may read the positions meanwhile. */
void positions_reach(struct positions *p, int n);

/* What becomes of a layer's queries, or keys, before scores take them. */
struct head_turn {
    const struct positions *positions;
    const struct kernels *kernels;
    const struct config *config;
    int layer;
    const float *gain, *bias; /* [head_dim] of the norm, if there is one; NULL: ones, zeros */
};

/* out [head_dim] = a row x [head_dim] rotated by its position's angles, or the negative ones if
 * `back`, where the model has rotary positions, and times `scale`. The position is filled
 * (trusted); out may be x. */
static inline void positions_rotate(const struct head_turn *t, int position, const float *x,
                                    float scale, bool back, float *out)
{
    const struct positions *p = t->positions;
    const int n_rot = p->kind == POSITION_ROPE ? p->rope.n_dims : 0;
    const float *table = p->rows[config_has_window_base(t->config, t->layer)];
    const float *rows = n_rot > 0 ? table + position * p->stride : NULL;
    t->kernels->rotate(out, x, rows, n_rot, t->config->head_dim, scale, back);
}

/* out [head_dim] = a row x [head_dim] as scores take it: normed, rotated and times `scale`. As
 * above. */
static inline void positions_turn(const struct head_turn *t, int position, const float *x,
                                  float scale, float *out)
{
    const struct config *c = t->config;
    if (c->parts.qk_norms)
        t->kernels->norm(c->norm, out, x, t->gain, t->bias, c->head_dim, c->norm_eps);
    positions_rotate(t, position, c->parts.qk_norms ? out : x, scale, false, out);
}

/* Returns the vector [d_model] to be added to a token at a position, or NULL. (Learned vectors are
 * a tensor of the model.) */
static inline const float *positions_vector(const struct positions *p, int position)
{
    return p->kind == POSITION_SINUSOIDAL ? p->rows[0] + position * p->stride : NULL;
}

/* Sets what distances add to the scores of a head; false, with *out left alone, if they add
 * nothing. rel [n_heads, 2] is the alpha and centre of quadratic positions; others do not read it.
 *   ALiBi      minus a slope times the distance (Press et al. 2022, section 3). Slopes of n = 2^k
 *              heads are 2^(-8 i / n), i from 1 on; of other numbers those of the next power of two
 *              below, then every other one of the next above, from the first on, as in the authors'
 *              program.
 *   quadratic  -alpha (distance - centre)^2 */
bool positions_bias(const struct config *c, int head, const float *rel, struct attend_bias *out);
