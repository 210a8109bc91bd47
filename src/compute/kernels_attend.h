/*
 * kernels_attend - attention to a chunk of the cache in vector form (private to the vector kernel
 * objects; see kernels_vector.h).
 *
 * Work goes tile by tile: some query heads times some panels of keys, or vectors of values. Keys
 * and values come from memory once and are widened once for a tile; its heads times its panels are
 * the chains of multiply-adds in flight, which have to cover the latency of one. So a pass serves
 * as many heads as it can, up to TILE_HEADS, and TILE_ACC says how many accumulators it may have.
 */
#pragma once

#include "compute/kernels_check.h"
#include "compute/kernels_tile.h"

/* Panels, or vectors, of a tile that serves n_heads heads. */
ALWAYS_INLINE int tile_width(const int n_heads)
{
    return TILE_ACC >= 4 * n_heads ? 4 : TILE_ACC >= 2 * n_heads ? 2 : 1;
}

/*
 * How many of the heads that are left one pass serves: the largest of the numbers that a tile is
 * compiled for. Callers switch over it, so that a tile's number of heads is a constant.
 */
ALWAYS_INLINE int pass_heads(const int n_left)
{
    return TILE_HEADS >= 12 && n_left >= 12 ? 12
           : TILE_HEADS >= 6 && n_left >= 6 ? 6
           : n_left >= 4                    ? 4
                                            : n_left;
}

/* The bytes of one element in a cache. */
ALWAYS_INLINE size_t element_bytes(enum storage storage)
{
    return storage == STORAGE_F32   ? sizeof(float)
           : storage == STORAGE_F16 ? sizeof(uint16_t)
                                    : sizeof(int8_t);
}

/*
 * The arithmetic of several heads fills the processor's window before it has met the next loads, so
 * that the time of both would be added. So all heads work on a block, which stays in the nearest
 * caches, and meanwhile ask for what is read next, each for its share, so that memory is never
 * idle: with an F32 cache 8 heads of 64 take 8.0 us a chunk and not 14.4, F16 7.0 and not 8.4.
 */
#define BLOCK_PANELS 4
#define BLOCK_ROWS   64

struct ahead {
    const unsigned char *at;
    size_t share; /* bytes that a head asks for when it meets a vector: at most a line */
};

ALWAYS_INLINE size_t ahead_share(const struct attend *a, enum storage storage)
{
    const size_t n_heads = a->n_heads;
    return (KERNEL_LANES * element_bytes(storage) + n_heads - 1) / n_heads;
}

/* When n_heads heads meet n_vecs vectors. One alone leaves long runs of memory to the processor. */
ALWAYS_INLINE void ask_ahead(struct ahead *ahead, enum storage storage, const int n_vecs,
                             const int n_heads)
{
    if (storage == STORAGE_F32 && n_heads == 1)
        return;
    UNROLLED (i, n_vecs) {
        __builtin_prefetch(ahead->at);
        ahead->at += ahead->share * n_heads;
    }
}

/* Panels of one segment of a chunk that are to be scored. */
struct panel_run {
    const struct kv_segment *segment;
    int first; /* the segment's first panel, in the chunk */
    int end;   /* scores from this position on are the other segment's */
    struct ahead ahead;
};

/* acc[head][panel] += q.k over the dimensions [begin, end); `panel` is the segment's. */
ALWAYS_INLINE void score_dims(const void *keys, enum storage storage, int panel,
                              struct ahead *ahead, size_t dim, const float *q, size_t begin,
                              size_t end, const int n_panels, const int n_heads,
                              lanes acc[TILE_HEADS][4])
{
    for (size_t i = begin; i < end; i++) {
        lanes k[4];
        ask_ahead(ahead, storage, n_panels, n_heads);
        UNROLLED (p, n_panels)
            k[p] = load_element(keys, storage, ((panel + p) * dim + i) * KERNEL_LANES);
        UNROLLED (h, n_heads) {
            const lanes qh = lanes_all(q[h * dim + i]);
            UNROLLED (p, n_panels)
                acc[h][p] = lanes_fma(k[p], qh, acc[h][p]);
        }
    }
}

ALWAYS_INLINE void clear_tile(lanes acc[TILE_HEADS][4], const int n, const int m)
{
    UNROLLED (i, n)
        UNROLLED (j, m)
            acc[i][j] = lanes_zero();
}

/* The same over quantised keys: block by block, then times the block's scales. */
ALWAYS_INLINE void score_quant_dims(const struct kv_segment *segment, int panel,
                                    struct ahead *ahead, size_t dim, const float *q,
                                    const int n_panels, const int n_heads, lanes acc[TILE_HEADS][4])
{
    const size_t n_blocks = quant_blocks((int)dim);
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t begin = b * QUANT_BLOCK;
        const size_t end = MIN(begin + QUANT_BLOCK, dim);
        lanes part[TILE_HEADS][4];
        clear_tile(part, n_heads, n_panels);
        score_dims(segment->k, STORAGE_Q8_0, panel, ahead, dim, q, begin, end, n_panels, n_heads,
                   part);
        UNROLLED (p, n_panels) {
            const lanes scale =
                lanes_load_f16(segment->k_scales + ((panel + p) * n_blocks + b) * KERNEL_LANES);
            UNROLLED (h, n_heads)
                acc[h][p] = lanes_fma(part[h][p], scale, acc[h][p]);
        }
    }
}

/* Scores of n_panels * KERNEL_LANES positions for n_heads heads. */
ALWAYS_INLINE void score_tile(const struct attend *a, enum storage storage, struct panel_run *run,
                              int panel, int head, const int n_panels, const int n_heads)
{
    const size_t dim = a->kv.key_dim;
    const float *q = a->q + head * dim;
    lanes acc[TILE_HEADS][4];
    const struct kv_segment *segment = run->segment;
    const int local = panel - run->first; /* the panel in its segment */
    clear_tile(acc, n_heads, n_panels);
    if (storage == STORAGE_Q8_0)
        score_quant_dims(segment, local, &run->ahead, dim, q, n_panels, n_heads, acc);
    else
        score_dims(segment->k, storage, local, &run->ahead, dim, q, 0, dim, n_panels, n_heads, acc);
    float *scores = a->scores + (size_t)head * KERNEL_CHUNK;
    UNROLLED (h, n_heads)
        UNROLLED (p, n_panels)
            lanes_store_upto(scores + h * KERNEL_CHUNK + (panel + p) * KERNEL_LANES, acc[h][p],
                             run->end - (panel + p) * KERNEL_LANES);
}

/* The same of additive scores, for one panel and head: their arithmetic outlasts the loads. */
ALWAYS_INLINE void score_additive(const struct attend *a, enum storage storage,
                                  const struct panel_run *run, int panel, int head)
{
    const size_t dim = a->kv.key_dim, local = panel - run->first;
    const float *q = a->q + head * dim, *w = a->additive + head * dim;
    lanes sum = lanes_zero();
    for (size_t i = 0; i < dim; i++) {
        lanes k = load_element(run->segment->k, storage, (local * dim + i) * KERNEL_LANES);
        if (storage == STORAGE_Q8_0) {
            const size_t block = local * quant_blocks((int)dim) + i / QUANT_BLOCK;
            k = lanes_mul(k, lanes_load_f16(run->segment->k_scales + block * KERNEL_LANES));
        }
        sum = lanes_fma(lanes_all(w[i]), lanes_tanh(lanes_add(k, lanes_all(q[i]))), sum);
    }
    lanes_store_upto(a->scores + (size_t)head * KERNEL_CHUNK + panel * KERNEL_LANES, sum,
                     run->end - panel * KERNEL_LANES);
}

/* n_heads heads against the panels from `panel` to `end`, as many at a time as a tile has. */
ALWAYS_INLINE void score_heads(const struct attend *a, enum storage storage, struct panel_run *run,
                               int panel, int end, int head, const int n_heads)
{
    for (; tile_width(n_heads) >= 4 && panel + 4 <= end; panel += 4)
        score_tile(a, storage, run, panel, head, 4, n_heads);
    for (; tile_width(n_heads) >= 2 && panel + 2 <= end; panel += 2)
        score_tile(a, storage, run, panel, head, 2, n_heads);
    for (; panel < end; panel++)
        score_tile(a, storage, run, panel, head, 1, n_heads);
}

/* All heads against a few panels, which stay in the nearest cache meanwhile. */
ALWAYS_INLINE void score_panels(const struct attend *a, enum storage storage, struct panel_run *run,
                                int panel, int end)
{
    if (a->additive) {
        for (; panel < end; panel++)
            for (int h = 0; h < a->n_heads; h++)
                score_additive(a, storage, run, panel, h);
        return;
    }
    for (int head = 0, n; head < a->n_heads; head += n) {
        n = pass_heads(a->n_heads - head);
        switch (n) {
        case 12:
            score_heads(a, storage, run, panel, end, head, MIN(12, TILE_HEADS));
            break;
        case 6:
            score_heads(a, storage, run, panel, end, head, MIN(6, TILE_HEADS));
            break;
        case 4:
            score_heads(a, storage, run, panel, end, head, 4);
            break;
        case 3:
            score_heads(a, storage, run, panel, end, head, 3);
            break;
        case 2:
            score_heads(a, storage, run, panel, end, head, 2);
            break;
        default:
            score_heads(a, storage, run, panel, end, head, 1);
            break;
        }
    }
}

/*
 * The second segment first: the panel that has the split is in both, and of the second segment's
 * its first lanes are rubbish until the first segment's are stored over them.
 */
ALWAYS_INLINE void score_chunk(const struct attend *a, enum storage storage)
{
    const int split = a->kv.split, last = split < a->kv.n_positions;
    const size_t panel_bytes = (size_t)a->kv.key_dim * KERNEL_LANES * element_bytes(storage);
    for (int i = last; i >= 0; i--) {
        const unsigned char *next = i > 0 && split > 0 ? a->kv.segment[0].k
                                    : a->next          ? a->kv.segment[split == 0].v
                                                       : NULL;
        const unsigned char *keys = a->kv.segment[i].k;
        struct panel_run run = {.segment = &a->kv.segment[i],
                                .first = i ? split / KERNEL_LANES : 0,
                                .end = i < last ? split : kernel_padded(a->kv.n_positions),
                                .ahead.share = ahead_share(a, storage)};
        const int n_panels = matrix_panels(run.end);
        for (int panel = run.first, end; panel < n_panels; panel = end) {
            end = MIN(panel + BLOCK_PANELS, n_panels);
            run.ahead.at = next && end == n_panels ? next : keys + (end - run.first) * panel_bytes;
            score_panels(a, storage, &run, panel, end);
        }
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
        const lanes e = lanes_weight(lanes_sub(lanes_load(scores + p * KERNEL_LANES), max));
        lanes_store(scores + p * KERNEL_LANES, e);
        sum = lanes_add(sum, e);
    }
    *sum_out = lanes_sum(sum);
}

/* Rows of values of one segment that are to be added, with the chunk's positions [begin, end). */
struct row_run {
    const struct kv_segment *segment;
    size_t row; /* the segment's, at `begin` */
    int begin, end;
    struct ahead ahead;
};

/* acc[head][vector] += the run's rows times their weights p. */
ALWAYS_INLINE void value_rows(const struct attend *a, enum storage storage, struct row_run *run,
                              const float *p, int first, const int n_heads, const int n_vecs,
                              lanes acc[TILE_HEADS][4])
{
    const size_t v_stride = kernel_padded(a->kv.value_dim);
    const size_t n_blocks = quant_blocks(a->kv.value_dim);
    size_t row = run->row;
    for (int t = run->begin; t < run->end; t++, row++) {
        lanes v[4];
        ask_ahead(&run->ahead, storage, n_vecs, n_heads);
        UNROLLED (j, n_vecs) {
            const size_t i = first + j * KERNEL_LANES;
            v[j] = load_element(run->segment->v, storage, row * v_stride + i);
            if (storage == STORAGE_Q8_0)
                v[j] = lanes_mul(
                    v[j], lanes_all_f16(run->segment->v_scales[row * n_blocks + i / QUANT_BLOCK]));
        }
        UNROLLED (h, n_heads) {
            const lanes ph = lanes_all(p[(size_t)h * KERNEL_CHUNK + t]);
            UNROLLED (j, n_vecs)
                acc[h][j] = lanes_fma(ph, v[j], acc[h][j]);
        }
    }
}

/* Adds a run's rows to out for n_vecs * KERNEL_LANES dimensions (the last vector may have fewer) of
 * n_heads heads. */
ALWAYS_INLINE void value_tile(const struct attend *a, enum storage storage, struct row_run *run,
                              int head, int first, const int n_heads, const int n_vecs)
{
    const int tail = (n_vecs - 1) * KERNEL_LANES, left = a->kv.value_dim - first - tail;
    float *out = a->out + head * a->stride + first;
    lanes acc[TILE_HEADS][4];
    if (run->begin == 0)
        clear_tile(acc, n_heads, n_vecs);
    UNROLLED (h, n_heads) {
        if (run->begin == 0)
            continue;
        UNROLLED (j, n_vecs - 1)
            acc[h][j] = lanes_load(out + h * a->stride + j * KERNEL_LANES);
        acc[h][n_vecs - 1] = lanes_load_upto(out + h * a->stride + tail, left);
    }
    value_rows(a, storage, run, a->scores + (size_t)head * KERNEL_CHUNK, first, n_heads, n_vecs,
               acc);
    UNROLLED (h, n_heads) {
        UNROLLED (j, n_vecs - 1)
            lanes_store(out + h * a->stride + j * KERNEL_LANES, acc[h][j]);
        lanes_store_upto(out + h * a->stride + tail, acc[h][n_vecs - 1], left);
    }
}

/* All dimensions of n_heads heads; as many at a time as a tile has, the tail one by one. */
ALWAYS_INLINE void value_heads(const struct attend *a, enum storage storage, struct row_run *run,
                               int head, const int n_heads)
{
    const int dim = a->kv.value_dim, width = tile_width(n_heads);
    int i = 0;
    for (; i + width * KERNEL_LANES <= dim; i += width * KERNEL_LANES)
        value_tile(a, storage, run, head, i, n_heads, width);
    for (; i < dim; i += KERNEL_LANES)
        value_tile(a, storage, run, head, i, n_heads, 1);
}

/* All heads against a few rows, which stay in the nearest cache meanwhile. */
ALWAYS_INLINE void value_run(const struct attend *a, enum storage storage, struct row_run *run)
{
    for (int head = 0, n; head < a->n_heads; head += n) {
        n = pass_heads(a->n_heads - head);
        switch (n) {
        case 12:
            value_heads(a, storage, run, head, MIN(12, TILE_HEADS));
            break;
        case 6:
            value_heads(a, storage, run, head, MIN(6, TILE_HEADS));
            break;
        case 4:
            value_heads(a, storage, run, head, 4);
            break;
        case 3:
            value_heads(a, storage, run, head, 3);
            break;
        case 2:
            value_heads(a, storage, run, head, 2);
            break;
        default:
            value_heads(a, storage, run, head, 1);
            break;
        }
    }
}

ALWAYS_INLINE void value_chunk(const struct attend *a, enum storage storage)
{
    const int split = a->kv.split, all = a->kv.n_positions;
    const size_t row_bytes = kernel_padded(a->kv.value_dim) * element_bytes(storage);
    for (int begin = 0, end; begin < all; begin = end) {
        const int i = begin >= split, piece_end = i ? all : split;
        const int piece_begin = i ? split / KERNEL_LANES * KERNEL_LANES : 0; /* a panel's */
        end = MIN(begin + BLOCK_ROWS, piece_end);
        const unsigned char *next = i || split == all ? a->next : a->kv.segment[1].v;
        struct row_run run = {.segment = &a->kv.segment[i],
                              .row = begin - piece_begin,
                              .begin = begin,
                              .end = end,
                              .ahead.share = ahead_share(a, storage)};
        run.ahead.at = next && end == piece_end ? next
                                                : (const unsigned char *)run.segment->v +
                                                      (end - piece_begin) * row_bytes;
        value_run(a, storage, &run);
    }
}

/* Scores to exponentials, of all heads. */
ALWAYS_INLINE void weigh_storage(const struct attend *a, enum storage storage)
{
    score_chunk(a, storage);
    if (a->bias)
        for (int h = 0; h < a->n_heads; h++)
            bias_chunk(a->scores + (size_t)h * KERNEL_CHUNK, matrix_panels(a->kv.n_positions),
                       &a->bias[h], a->distance);
    for (int h = 0; h < a->n_heads; h++)
        softmax_chunk(a->scores + (size_t)h * KERNEL_CHUNK, a->kv.n_positions,
                      &a->max[h * a->stride], &a->sum[h * a->stride]);
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
    attend_check(a);
    vector_weights(a);
    vector_values(a);
}
