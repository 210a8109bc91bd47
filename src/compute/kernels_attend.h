/*
 * kernels_attend - attention to a chunk of the cache in vector form (private to the vector kernel
 * objects; see kernels_vector.h).
 *
 * Work goes tile by tile: some query heads times some panels of keys, or vectors of values. Keys
 * and values come from memory once and are widened once for a tile; its heads times its panels are
 * the chains of multiply-adds in flight, which have to cover the latency of one. So a pass serves
 * as many heads as it can, up to TILE_HEADS, and TILE_ACC says how many accumulators it may have.
 */
#ifndef DECODE_COMPUTE_KERNELS_ATTEND_H
#define DECODE_COMPUTE_KERNELS_ATTEND_H

#include "compute/kernels_check.h"
#include "compute/kernels_tile.h"

/* Panels, or vectors, of a tile that serves n_heads heads. */
ALWAYS_INLINE int tile_width(const int n_heads)
{
    return TILE_ACC >= 4 * n_heads ? 4 : TILE_ACC >= 2 * n_heads ? 2 : 1;
}

/* Calls for n heads at a time, n a constant, while so many are left from `h` on. */
#define HEADS_LOOP(n, call)                                                                        \
    for (; (n) <= TILE_HEADS && h + (n) <= a->n_heads; h += (n))                                   \
    call

/*
 * Panels of keys and rows of values to ask for ahead. The runs of memory between jumps are short
 * here, too: with a narrow cache MHA gains 5 to 25%, GQA 30%; F32 nothing.
 */
#define AHEAD_PANELS 4
#define AHEAD_ROWS   64

/* Of an element that a cache stores. */
ALWAYS_INLINE size_t element_bytes(enum storage storage)
{
    return storage == STORAGE_F32   ? sizeof(float)
           : storage == STORAGE_F16 ? sizeof(uint16_t)
                                    : sizeof(int8_t);
}

/* The cache lines of n elements from index `first` on. */
ALWAYS_INLINE void prefetch_cache(const void *base, enum storage storage, size_t first, size_t n)
{
    if (storage == STORAGE_F32)
        return;
    const size_t element = element_bytes(storage);
    const unsigned char *from = (const unsigned char *)base + first * element;
#pragma GCC unroll 4
    for (size_t line = 0; line < n * element; line += 64)
        __builtin_prefetch(from + line);
}

/* Panels of one piece of a chunk that are to be scored. */
struct panel_run {
    const struct kv_piece *piece;
    int first;        /* the piece's first panel, in the chunk */
    int end;          /* scores from this position on are the other piece's */
    const void *next; /* what is read after its keys; NULL: what follows in memory */
};

/* The panel to ask for when one of a piece is read: one further on, or of what is next. */
ALWAYS_INLINE const void *panel_ahead(const struct panel_run *run, enum storage storage, int panel,
                                      size_t dim)
{
    const int n = matrix_panels(run->end) - run->first;
    const int last = n > AHEAD_PANELS ? n - AHEAD_PANELS : 0;
    const bool is_next = run->next && panel >= last;
    const size_t i = (size_t)(is_next ? panel - last : panel + AHEAD_PANELS);
    return (const unsigned char *)(is_next ? run->next : run->piece->k) +
           i * dim * KERNEL_LANES * element_bytes(storage);
}

/* acc[head][panel] += q.k over the dimensions [begin, end); `panel` is the piece's, and the panels
 * `ahead` are asked for meanwhile. */
ALWAYS_INLINE void score_dims(const void *keys, enum storage storage, int panel,
                              const void *ahead[4], size_t dim, const float *q, size_t begin,
                              size_t end, const int n_panels, const int n_heads,
                              lanes acc[TILE_HEADS][4])
{
    for (size_t i = begin; i < end; i++) {
        lanes k[4];
        if (i % 4 == 0) { /* whole lines, in each storage */
#pragma GCC unroll 4
            for (int p = 0; p < n_panels; p++)
                prefetch_cache(ahead[p], storage, i * KERNEL_LANES, 4 * KERNEL_LANES);
        }
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++)
            k[p] = load_element(keys, storage, ((size_t)(panel + p) * dim + i) * KERNEL_LANES);
#pragma GCC unroll 12
        for (int h = 0; h < n_heads; h++) {
            const lanes qh = lanes_all(q[(size_t)h * dim + i]);
#pragma GCC unroll 4
            for (int p = 0; p < n_panels; p++)
                acc[h][p] = lanes_fma(k[p], qh, acc[h][p]);
        }
    }
}

ALWAYS_INLINE void clear_tile(lanes acc[TILE_HEADS][4], const int n, const int m)
{
#pragma GCC unroll 12
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int j = 0; j < m; j++)
            acc[i][j] = lanes_zero();
}

/* The same over quantised keys: block by block, then times the block's scales. */
ALWAYS_INLINE void score_quant_dims(const struct kv_piece *piece, int panel, const void *ahead[4],
                                    size_t dim, const float *q, const int n_panels,
                                    const int n_heads, lanes acc[TILE_HEADS][4])
{
    const size_t n_blocks = (size_t)quant_blocks((int)dim);
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t begin = b * QUANT_BLOCK;
        const size_t end = begin + QUANT_BLOCK < dim ? begin + QUANT_BLOCK : dim;
        lanes part[TILE_HEADS][4];
        clear_tile(part, n_heads, n_panels);
        score_dims(piece->k, STORAGE_Q8_0, panel, ahead, dim, q, begin, end, n_panels, n_heads,
                   part);
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++) {
            const lanes scale = lanes_load_f16(piece->k_scales +
                                               ((size_t)(panel + p) * n_blocks + b) * KERNEL_LANES);
#pragma GCC unroll 12
            for (int h = 0; h < n_heads; h++)
                acc[h][p] = lanes_fma(part[h][p], scale, acc[h][p]);
        }
    }
}

/* Scores of n_panels * KERNEL_LANES positions for n_heads heads. */
ALWAYS_INLINE void score_tile(const struct attend *a, enum storage storage,
                              const struct panel_run *run, int panel, int head, const int n_panels,
                              const int n_heads)
{
    const size_t dim = (size_t)a->kv.key_dim;
    const float *q = a->q + (size_t)head * dim;
    lanes acc[TILE_HEADS][4];
    const struct kv_piece *piece = run->piece;
    const int own = panel - run->first; /* the panel in its piece */
    const void *ahead[4];
#pragma GCC unroll 4
    for (int p = 0; p < n_panels; p++)
        ahead[p] = panel_ahead(run, storage, own + p, dim);
    clear_tile(acc, n_heads, n_panels);
    if (storage == STORAGE_Q8_0)
        score_quant_dims(piece, own, ahead, dim, q, n_panels, n_heads, acc);
    else
        score_dims(piece->k, storage, own, ahead, dim, q, 0, dim, n_panels, n_heads, acc);
    float *scores = a->scores + (size_t)head * KERNEL_CHUNK;
#pragma GCC unroll 12
    for (int h = 0; h < n_heads; h++)
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++)
            lanes_store_upto(scores + h * KERNEL_CHUNK + (panel + p) * KERNEL_LANES, acc[h][p],
                             run->end - (panel + p) * KERNEL_LANES);
}

/* n_heads heads against the panels from `panel` to `end`, as many at a time as a tile has. */
ALWAYS_INLINE void score_heads(const struct attend *a, enum storage storage,
                               const struct panel_run *run, int panel, int end, int head,
                               const int n_heads)
{
    for (; tile_width(n_heads) >= 4 && panel + 4 <= end; panel += 4)
        score_tile(a, storage, run, panel, head, 4, n_heads);
    for (; tile_width(n_heads) >= 2 && panel + 2 <= end; panel += 2)
        score_tile(a, storage, run, panel, head, 2, n_heads);
    for (; panel < end; panel++)
        score_tile(a, storage, run, panel, head, 1, n_heads);
}

/* All heads against a few panels, which stay in the nearest cache meanwhile. */
ALWAYS_INLINE void score_panels(const struct attend *a, enum storage storage,
                                const struct panel_run *run, int panel, int end)
{
    int h = 0;
    HEADS_LOOP(12, score_heads(a, storage, run, panel, end, h, 12));
    HEADS_LOOP(6, score_heads(a, storage, run, panel, end, h, 6));
    HEADS_LOOP(4, score_heads(a, storage, run, panel, end, h, 4));
    HEADS_LOOP(3, score_heads(a, storage, run, panel, end, h, 3));
    HEADS_LOOP(2, score_heads(a, storage, run, panel, end, h, 2));
    HEADS_LOOP(1, score_heads(a, storage, run, panel, end, h, 1));
}

/*
 * The second piece first: the panel that has the split is in both, and of the second piece's its
 * first lanes are rubbish until the first piece's are stored over them.
 */
ALWAYS_INLINE void score_chunk(const struct attend *a, enum storage storage)
{
    const int split = a->kv.split, last = split < a->kv.n_positions;
    for (int i = last; i >= 0; i--) {
        const void *next = i > 0 && split > 0 ? a->kv.piece[0].k
                           : a->next          ? a->kv.piece[split == 0].v
                                              : NULL;
        const struct panel_run run = {.piece = &a->kv.piece[i],
                                      .first = i ? split / KERNEL_LANES : 0,
                                      .end = i < last ? split : kernel_padded(a->kv.n_positions),
                                      .next = next};
        const int n_panels = matrix_panels(run.end);
        for (int panel = run.first; panel < n_panels; panel += 4)
            score_panels(a, storage, &run, panel, panel + 4 < n_panels ? panel + 4 : n_panels);
    }
}

/* Adds a head's bias to its scores of whole panels, the first position being at `distance`. */
static __attribute__((noinline)) void bias_chunk(float *scores, int n_panels,
                                                 const struct attend_bias *bias, int distance)
{
    const lanes first = lanes_all((float)distance);
    for (int t = 0; t < n_panels * KERNEL_LANES; t += KERNEL_LANES) {
        const lanes place = lanes_add(lanes_places(), lanes_all((float)t));
        lanes_store(scores + t,
                    lanes_biased(bias, lanes_sub(first, place), lanes_load(scores + t)));
    }
}

/* Turns one head's scores into exp(score - max); sets max and the sum. */
static void softmax_chunk(float *scores, int n, float *max_out, float *sum_out)
{
    const int n_panels = (n + KERNEL_LANES - 1) / KERNEL_LANES;
    for (int t = n; t < n_panels * KERNEL_LANES; t++)
        scores[t] = -INFINITY;
    lanes max = lanes_all(-INFINITY);
    for (int p = 0; p < n_panels; p++)
        max = lanes_max(max, lanes_load(scores + p * KERNEL_LANES));
    *max_out = lanes_largest(max);
    max = lanes_all(*max_out);
    lanes sum = lanes_zero();
    for (int p = 0; p < n_panels; p++) {
        const lanes e = lanes_exp(lanes_sub(lanes_load(scores + p * KERNEL_LANES), max));
        lanes_store(scores + p * KERNEL_LANES, e);
        sum = lanes_add(sum, e);
    }
    *sum_out = lanes_sum(sum);
}

/* Adds n rows of values from a piece's `row` on, p [n] being their weights; as many rows from
 * `ahead` on are asked for meanwhile. */
ALWAYS_INLINE void value_rows(const struct attend *a, enum storage storage,
                              const struct kv_piece *piece, size_t row, int n, const void *ahead,
                              size_t row_ahead, const float *p, int first, const int n_heads,
                              const int n_vecs, lanes acc[TILE_HEADS][4])
{
    const size_t v_stride = (size_t)kernel_padded(a->kv.value_dim);
    const size_t n_blocks = (size_t)quant_blocks(a->kv.value_dim);
    for (int t = 0; t < n; t++, row++, row_ahead++) {
        lanes v[4];
        prefetch_cache(ahead, storage, row_ahead * v_stride + (size_t)first,
                       (size_t)n_vecs * KERNEL_LANES);
#pragma GCC unroll 4
        for (int j = 0; j < n_vecs; j++) {
            const size_t i = (size_t)(first + j * KERNEL_LANES);
            v[j] = load_element(piece->v, storage, row * v_stride + i);
            if (storage == STORAGE_Q8_0)
                v[j] = lanes_mul(v[j],
                                 lanes_all_f16(piece->v_scales[row * n_blocks + i / QUANT_BLOCK]));
        }
#pragma GCC unroll 12
        for (int h = 0; h < n_heads; h++) {
            const lanes ph = lanes_all(p[(size_t)h * KERNEL_CHUNK + (size_t)t]);
#pragma GCC unroll 4
            for (int j = 0; j < n_vecs; j++)
                acc[h][j] = lanes_fma(ph, v[j], acc[h][j]);
        }
    }
}

/* All rows of a piece: those ahead are its own, then those that are `next` (NULL: that follow in
 * memory). */
ALWAYS_INLINE void value_piece(const struct attend *a, enum storage storage, int i,
                               const void *next, const float *p, int first, const int n_heads,
                               const int n_vecs, lanes acc[TILE_HEADS][4])
{
    const int split = a->kv.split, begin = i ? split : 0,
              n = (i ? a->kv.n_positions : split) - begin;
    const int last = n > AHEAD_ROWS ? n - AHEAD_ROWS : 0;
    const size_t row = (size_t)(begin % KERNEL_LANES); /* the piece starts with a panel */
    const struct kv_piece *piece = &a->kv.piece[i];
    value_rows(a, storage, piece, row, last, piece->v, row + AHEAD_ROWS, p + begin, first, n_heads,
               n_vecs, acc);
    value_rows(a, storage, piece, row + (size_t)last, n - last, next ? next : piece->v,
               next ? 0 : row + (size_t)last + AHEAD_ROWS, p + begin + last, first, n_heads, n_vecs,
               acc);
}

/* out for n_vecs * KERNEL_LANES dimensions (the last vector may have fewer) of n_heads heads: one
 * pass over the V rows. */
ALWAYS_INLINE void value_tile(const struct attend *a, enum storage storage, int head, int first,
                              const int n_heads, const int n_vecs)
{
    const size_t dim = (size_t)a->kv.value_dim;
    const float *p = a->scores + (size_t)head * KERNEL_CHUNK;
    const int last = a->kv.split < a->kv.n_positions, left = (int)dim - first;
    lanes acc[TILE_HEADS][4];
    clear_tile(acc, n_heads, n_vecs);
    for (int i = 0; i <= last; i++)
        value_piece(a, storage, i, i < last ? a->kv.piece[1].v : a->next, p, first, n_heads, n_vecs,
                    acc);
#pragma GCC unroll 12
    for (int h = 0; h < n_heads; h++) {
        float *out = a->out + (size_t)(head + h) * a->stride + first;
#pragma GCC unroll 4
        for (int j = 0; j < n_vecs - 1; j++)
            lanes_store(out + j * KERNEL_LANES, acc[h][j]);
        const int tail = (n_vecs - 1) * KERNEL_LANES;
        lanes_store_upto(out + tail, acc[h][n_vecs - 1], left - tail);
    }
}

/* All dimensions of n_heads heads; as many at a time as a tile has, the tail one by one. */
ALWAYS_INLINE void value_heads(const struct attend *a, enum storage storage, int head,
                               const int n_heads)
{
    const int dim = a->kv.value_dim, width = tile_width(n_heads);
    int i = 0;
    for (; i + width * KERNEL_LANES <= dim; i += width * KERNEL_LANES)
        value_tile(a, storage, head, i, n_heads, width);
    for (; i < dim; i += KERNEL_LANES)
        value_tile(a, storage, head, i, n_heads, 1);
}

ALWAYS_INLINE void value_chunk(const struct attend *a, enum storage storage)
{
    int h = 0;
    HEADS_LOOP(12, value_heads(a, storage, h, 12));
    HEADS_LOOP(6, value_heads(a, storage, h, 6));
    HEADS_LOOP(4, value_heads(a, storage, h, 4));
    HEADS_LOOP(3, value_heads(a, storage, h, 3));
    HEADS_LOOP(2, value_heads(a, storage, h, 2));
    HEADS_LOOP(1, value_heads(a, storage, h, 1));
}

/* Scores to exponentials, of all heads. */
ALWAYS_INLINE void weigh_storage(const struct attend *a, enum storage storage)
{
    score_chunk(a, storage);
    for (int h = 0; h < a->n_heads && a->bias; h++)
        bias_chunk(a->scores + (size_t)h * KERNEL_CHUNK, matrix_panels(a->kv.n_positions),
                   &a->bias[h], a->distance);
    for (int h = 0; h < a->n_heads; h++)
        softmax_chunk(a->scores + (size_t)h * KERNEL_CHUNK, a->kv.n_positions,
                      &a->max[(size_t)h * a->stride], &a->sum[(size_t)h * a->stride]);
}

/* A function NAME_STORAGE for each storage that a cache has, for the reason in kernels_matmul.h,
 * and NAME, which calls the one of the chunk's. */
#define EACH_CACHE_STORAGE(name, body)                                                             \
    static __attribute__((noinline)) void name##_f32(const struct attend *a)                       \
    {                                                                                              \
        body(a, STORAGE_F32);                                                                      \
    }                                                                                              \
    static __attribute__((noinline)) void name##_f16(const struct attend *a)                       \
    {                                                                                              \
        body(a, STORAGE_F16);                                                                      \
    }                                                                                              \
    static __attribute__((noinline)) void name##_q8_0(const struct attend *a)                      \
    {                                                                                              \
        body(a, STORAGE_Q8_0);                                                                     \
    }                                                                                              \
    static void name(const struct attend *a)                                                       \
    {                                                                                              \
        static void (*const by_storage[STORAGE_COUNT])(const struct attend *) = {                  \
            [STORAGE_F32] = name##_f32, [STORAGE_F16] = name##_f16, [STORAGE_Q8_0] = name##_q8_0}; \
        by_storage[a->kv.storage](a);                                                              \
    }
EACH_CACHE_STORAGE(vector_weights, weigh_storage)
EACH_CACHE_STORAGE(vector_values, value_chunk)

void OF_SET(attend)(const struct attend *a)
{
    attend_check(a, false);
    vector_weights(a);
    vector_values(a);
}

#endif
