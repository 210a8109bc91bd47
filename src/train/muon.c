/*
 * A step of Muon (Jordan et al. 2024): the momentum of a block's matrix, made orthogonal, is what
 * the matrix moves by. With U S V^T its singular value decomposition, U V^T is found without one,
 * by Newton and Schulz's iteration X <- a X + (b X X^T + c (X X^T)^2) X, whose coefficients bring
 * all singular values near 1 in a few rounds. A step is as long as AdamW's usually is (Liu et al.
 * 2025, arXiv 2502.16982, section 2.2), so that both take the same rate and weight decay.
 * Embeddings, vectors and tables are AdamW's.
 *
 * All threads work on one matrix: rows of each product are cut between them, no sum is.
 */
#include "train/private.h"

#include <math.h>

#define MOMENTUM  0.95F
#define N_ROUNDS  5
#define STEP_SIZE 0.2 /* AdamW's steps have about this root mean square, as a share of the rate */
#define EPS       1e-7

/* The coefficients of one Newton-Schulz round, from Keller Jordan's write-up. */
static const float A = 3.4445F, B = -4.7750F, C = 2.0315F;

bool muon_moves(const struct train_spec *spec, const struct tensor_spec *s)
{
    return spec->optimizer == OPTIMIZER_MUON && s->form == FORM_MATRIX && !s->is_bias &&
           role_in_block(s->role) && !(s->flags & SPEC_FIXED);
}

void muon_take(struct muon *u, struct arena *arena, const struct param_list *list)
{
    size_t most = 0, longest = 0, narrowest = 0; /* the largest of each */
    for (int i = 0; i < list->n; i++) {
        const struct tensor_spec *s = &list->items[i].spec;
        const size_t rows = s->rows, cols = s->cols;
        if (s->form != FORM_MATRIX || !role_in_block(s->role))
            continue;
        most = MAX(most, rows * cols);
        longest = MAX(longest, MAX(rows, cols));
        narrowest = MAX(narrowest, MIN(rows, cols));
    }
    for (int i = 0; i < 2; i++) {
        ARENA_TAKE(u->x[i], arena, most);
        ARENA_TAKE(u->square[i], arena, narrowest * narrowest);
    }
    ARENA_TAKE(u->squares, arena, longest);
}

/* One matrix [rows, cols], tall as [n, k] with n >= k: transposed if it has more columns than rows.
 */
struct muon_matrix {
    float *w, *m;
    const float *gradient;
    int rows, cols;
};

/* Computes this thread's rows of p. The rows of b and c have p.n floats. */
static void multiply(const struct trainer *t, struct product p, int thread)
{
    const struct range rows = pool_range(p.m, thread, pool_n_threads(t->spec.pool));
    p.m = rows.end - rows.begin;
    p.a += rows.begin * p.a_row;
    p.c += (size_t)rows.begin * p.n;
    p.b_row = p.c_row = p.n;
    p.b_panel = KERNEL_LANES;
    t->grad->product(&p);
}

static void move_matrix(const struct trainer *t, const struct muon_matrix *a, int thread)
{
    const struct muon *u = &t->muon;
    struct pool *pool = t->spec.pool;
    const bool wide = a->cols > a->rows;
    const int n = MAX(a->rows, a->cols), k = MIN(a->rows, a->cols);
    const size_t down = wide ? 1 : a->cols, across = wide ? a->cols : 1; /* of the tall form */
    const int n_threads = pool_n_threads(pool);
    float *x = u->x[0], *next = u->x[1], *square = u->square[0], *mixed = u->square[1];
    const struct range own = pool_range(n, thread, n_threads);
    /* The square's rows. */
    const struct range narrow = pool_range(k, thread, n_threads);

    /* Nesterov's momentum, whose norm becomes 1. */
    for (int i = own.begin; i < own.end; i++) {
        double sum = 0;
        for (int j = 0; j < k; j++) {
            const size_t at = i * down + j * across;
            const float g = t->adamw.scale * a->gradient[at];
            a->m[at] = MOMENTUM * a->m[at] + g;
            const float ahead = MOMENTUM * a->m[at] + g;
            x[(size_t)i * k + j] = ahead;
            sum += (double)ahead * (double)ahead;
        }
        u->squares[i] = sum;
    }
    pool_barrier(pool, thread);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += u->squares[i];
    const float scale = (float)(1 / (sqrt(sum) + EPS));
    for (size_t i = (size_t)own.begin * k; i < (size_t)own.end * k; i++)
        x[i] *= scale;

    for (int round = 0; round < N_ROUNDS; round++) {
        const struct product gram = {
            .m = k, .n = k, .k = n, .a = x, .a_row = 1, .a_col = k, .b = x, .c = square};
        const struct product twice = {
            .m = k, .n = k, .k = k, .a = square, .a_row = k, .a_col = 1, .b = square, .c = mixed};
        const struct product moved = {
            .m = n, .n = k, .k = k, .a = x, .a_row = k, .a_col = 1, .b = mixed, .c = next};
        pool_barrier(pool, thread);
        multiply(t, gram, thread);
        pool_barrier(pool, thread);
        multiply(t, twice, thread);
        for (size_t i = narrow.begin; i < (size_t)narrow.end; i++)
            for (size_t at = i * k; at < (i + 1) * k; at++)
                mixed[at] = C * mixed[at] + B * square[at] + (at == i * k + i ? A : 0);
        pool_barrier(pool, thread);
        multiply(t, moved, thread);
        next = x;
        x = moved.c;
    }

    const float rate = (float)(t->muon.rate * STEP_SIZE * sqrt(n)), decay = t->adamw.decay;
    for (int i = own.begin; i < own.end; i++)
        for (int j = 0; j < k; j++) {
            float *w = &a->w[i * down + j * across];
            *w = *w - decay * *w - rate * x[(size_t)i * k + j];
        }
    pool_barrier(pool, thread); /* before the next matrix overwrites x */
}

void muon_step(const struct trainer *t, int thread)
{
    for (int i = 0; i < t->list.n; i++) {
        const struct param *p = &t->list.items[i];
        const struct tensor_spec *s = &p->spec;
        if (!muon_moves(&t->spec, s) || !param_is_trained(&t->list, p))
            continue;
        /* Q, K and V are three matrices. */
        const int parts[] = {config_q_dim(&t->config), config_k_dim(&t->config, s->layer),
                             config_v_dim(&t->config, s->layer)};
        const bool joined = s->role == ROLE_ATTN_QKV;
        const int n = joined ? QKV_PARTS : 1;
        size_t at = p->offset;
        for (int part = 0; part < n; part++) {
            const int rows = joined ? parts[part] : s->rows;
            const struct muon_matrix one = {t->weights.flat + at, t->m + at, t->gradient.flat + at,
                                            rows, s->cols};
            move_matrix(t, &one, thread);
            at += (size_t)rows * s->cols;
        }
    }
}
