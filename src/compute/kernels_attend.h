/*
 * kernels_attend - attention to a chunk of the cache in vector form (private to the vector kernel
 * objects; see kernels_vector.h).
 *
 * Work goes tile by tile: some query heads times some panels of keys, or vectors of values. Keys
 * and values come from memory once and are widened once for a tile; its heads times its panels are
 * the chains of multiply-adds in flight, which have to cover the latency of one. So a pass serves
 * as many heads as it can, up to TILE_HEADS, and TILE_ACC says how many accumulators it may have.
 */
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

/* Loads KERNEL_LANES numbers, from number i on, of the cells or values of a cache of F32, F16 or
 * Q8_0, without their scales. */
ALWAYS_INLINE lanes load_cached(const void *base, enum cache_type type, size_t i)
{
    return type == CACHE_Q8_0  ? lanes_load_i8((const int8_t *)base + i)
           : type == CACHE_F16 ? lanes_load_f16((const uint16_t *)base + i)
                               : lanes_load((const float *)base + i);
}

/* Load as many numbers of a cache of Q5_0 or Q4_0, without their scales: number i of each key of a
 * panel, and the numbers of a value from i, a multiple of KERNEL_LANES, on. */
ALWAYS_INLINE lanes load_key_bits(const struct kv_chunk *kv, enum cache_type type, size_t panel,
                                  int i)
{
    const size_t cells = cache_key_cells(type, kv->key_dim), words = cache_words(kv->key_dim);
    const uint32_t *at = (const uint32_t *)kv->k + panel * cells * KERNEL_LANES;
    const ints low = ints_right(ints_load(at + i / 8 * KERNEL_LANES), 4 * (i % 8));
    if (type == CACHE_Q4_0)
        return lanes_of_nibbles(low);
    const ints fifths = ints_load(at + (words + i / QUANT_BLOCK) * KERNEL_LANES);
    return lanes_of_fifths(low, marks_lowest(ints_right(fifths, i % QUANT_BLOCK)));
}

ALWAYS_INLINE lanes load_value_bits(const unsigned char *row, enum cache_type type, int dim, int i)
{
    const ints low = ints_nibbles(row + i / 2);
    if (type == CACHE_Q4_0)
        return lanes_of_nibbles(low);
    uint16_t fifths;
    memcpy(&fifths, row + kernel_padded(dim) / 2 + i / 8, sizeof fifths);
    return lanes_of_fifths(low, marks_of_bits(fifths));
}

/* The bytes of KERNEL_LANES numbers. */
ALWAYS_INLINE size_t vector_bytes(enum cache_type type)
{
    return type == CACHE_F32    ? 64
           : type == CACHE_F16  ? 32
           : type == CACHE_Q8_0 ? 16
           : type == CACHE_Q5_0 ? 10
                                : 8;
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

/* Panels of keys, or rows of values, [begin, end) of the chunk, for all heads to read. */
struct run {
    int begin, end;
    struct ahead ahead;
};

ALWAYS_INLINE size_t ahead_share(const struct attend *a, enum cache_type type)
{
    const size_t n_heads = a->n_heads;
    return (vector_bytes(type) + n_heads - 1) / n_heads;
}

/* Asks n times for so many shares of what is read next. */
ALWAYS_INLINE void ask_ahead(struct ahead *ahead, const int shares, const int n)
{
    UNROLLED (i, n) {
        __builtin_prefetch(ahead->at);
        ahead->at += ahead->share * shares;
    }
}

/* Asks for what n_heads heads owe when they meet n_vecs vectors. One head alone leaves long runs of
 * memory to the processor. */
ALWAYS_INLINE void ask_vectors(struct ahead *ahead, enum cache_type type, const int n_vecs,
                               const int n_heads)
{
    if (type != CACHE_F32 || n_heads > 1)
        ask_ahead(ahead, n_heads, n_vecs);
}

/* acc[head][panel] += q.k over the dimensions [begin, end). */
ALWAYS_INLINE void score_dims(const void *keys, enum cache_type type, int panel,
                              struct ahead *ahead, size_t dim, const float *q, size_t begin,
                              size_t end, const int n_panels, const int n_heads,
                              lanes acc[TILE_HEADS][4])
{
    for (size_t i = begin; i < end; i++) {
        lanes k[4];
        ask_vectors(ahead, type, n_panels, n_heads);
        UNROLLED (p, n_panels)
            k[p] = load_cached(keys, type, ((panel + p) * dim + i) * KERNEL_LANES);
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

/* acc[head][panel] += q.k of number i, which the words have in their lowest bits; these make way
 * for the next number. */
ALWAYS_INLINE void score_nibbles(enum cache_type type, ints words[4], ints fifths[4], size_t dim,
                                 const float *q, size_t i, const int n_panels, const int n_heads,
                                 lanes acc[TILE_HEADS][4])
{
    lanes k[4];
    UNROLLED (p, n_panels) {
        k[p] = type == CACHE_Q4_0 ? lanes_of_nibbles(words[p])
                                  : lanes_of_fifths(words[p], marks_lowest(fifths[p]));
        words[p] = ints_right(words[p], 4);
        if (type == CACHE_Q5_0)
            fifths[p] = ints_right(fifths[p], 1);
    }
    UNROLLED (h, n_heads) {
        const lanes qh = lanes_all(q[h * dim + i]);
        UNROLLED (p, n_panels)
            acc[h][p] = lanes_fma(k[p], qh, acc[h][p]);
    }
}

/* score_dims of keys in words, over the dimensions of one block, word by word. */
ALWAYS_INLINE void score_words(const void *keys, enum cache_type type, int panel,
                               struct ahead *ahead, size_t dim, const float *q, size_t begin,
                               size_t end, const int n_panels, const int n_heads,
                               lanes acc[TILE_HEADS][4])
{
    const size_t cells = cache_key_cells(type, dim), n_words = cache_words(dim);
    ints words[4], fifths[4];
    UNROLLED (p, n_panels) {
        const uint32_t *at = (const uint32_t *)keys + (panel + p) * cells * KERNEL_LANES;
        if (type == CACHE_Q5_0)
            fifths[p] = ints_load(at + (n_words + begin / QUANT_BLOCK) * KERNEL_LANES);
    }
    for (size_t i = begin; i < end; i += 8) {
        UNROLLED (p, n_panels)
            words[p] =
                ints_load((const uint32_t *)keys + ((panel + p) * cells + i / 8) * KERNEL_LANES);
        ask_ahead(ahead, 8 * n_heads, n_panels);
        if (end - i < 8) {
            for (; i < end; i++)
                score_nibbles(type, words, fifths, dim, q, i, n_panels, n_heads, acc);
            return;
        }
        UNROLLED (j, 8)
            score_nibbles(type, words, fifths, dim, q, i + j, n_panels, n_heads, acc);
    }
}

/* acc[head][panel] += q.k of quantised keys: the sum over a block counts times the block's scales.
 */
ALWAYS_INLINE void score_quant_dims(const struct kv_chunk *kv, enum cache_type type, int panel,
                                    struct ahead *ahead, size_t dim, const float *q,
                                    const int n_panels, const int n_heads, lanes acc[TILE_HEADS][4])
{
    const size_t n_blocks = quant_blocks((int)dim);
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t begin = b * QUANT_BLOCK;
        const size_t end = MIN(begin + QUANT_BLOCK, dim);
        lanes part[TILE_HEADS][4];
        clear_tile(part, n_heads, n_panels);
        if (cache_in_words(type))
            score_words(kv->k, type, panel, ahead, dim, q, begin, end, n_panels, n_heads, part);
        else
            score_dims(kv->k, type, panel, ahead, dim, q, begin, end, n_panels, n_heads, part);
        UNROLLED (p, n_panels) {
            const lanes scale =
                lanes_load_f16(kv->k_scales + ((panel + p) * n_blocks + b) * KERNEL_LANES);
            UNROLLED (h, n_heads)
                acc[h][p] = lanes_fma(part[h][p], scale, acc[h][p]);
        }
    }
}

/* Scores of n_panels * KERNEL_LANES positions for n_heads heads. */
ALWAYS_INLINE void score_tile(const struct attend *a, enum cache_type type, struct ahead *ahead,
                              int panel, int head, const int n_panels, const int n_heads)
{
    const size_t dim = a->kv.key_dim;
    const float *q = a->q + head * dim;
    lanes acc[TILE_HEADS][4];
    clear_tile(acc, n_heads, n_panels);
    if (type >= CACHE_Q8_0)
        score_quant_dims(&a->kv, type, panel, ahead, dim, q, n_panels, n_heads, acc);
    else
        score_dims(a->kv.k, type, panel, ahead, dim, q, 0, dim, n_panels, n_heads, acc);
    float *scores = a->scores + (size_t)head * KERNEL_CHUNK;
    UNROLLED (h, n_heads)
        UNROLLED (p, n_panels)
            lanes_store(scores + h * KERNEL_CHUNK + (panel + p) * KERNEL_LANES, acc[h][p]);
}

/* Additive scores of one panel for one head. Nothing is asked for ahead, because the arithmetic
 * outlasts the loads. */
ALWAYS_INLINE void score_additive(const struct attend *a, enum cache_type type, int panel, int head)
{
    const size_t dim = a->kv.key_dim;
    const float *q = a->q + head * dim, *w = a->additive + head % a->group * dim;
    lanes sum = lanes_zero();
    for (size_t i = 0; i < dim; i++) {
        lanes k = cache_in_words(type)
                      ? load_key_bits(&a->kv, type, panel, i)
                      : load_cached(a->kv.k, type, (panel * dim + i) * KERNEL_LANES);
        if (type >= CACHE_Q8_0) {
            const size_t block = panel * quant_blocks((int)dim) + i / QUANT_BLOCK;
            k = lanes_mul(k, lanes_load_f16(a->kv.k_scales + block * KERNEL_LANES));
        }
        sum = lanes_fma(lanes_all(w[i]), lanes_tanh(lanes_add(k, lanes_all(q[i]))), sum);
    }
    lanes_store(a->scores + (size_t)head * KERNEL_CHUNK + panel * KERNEL_LANES, sum);
}

/* n_heads heads against a run's panels, as many at a time as a tile has. */
ALWAYS_INLINE void score_heads(const struct attend *a, enum cache_type type, struct run *run,
                               int head, const int n_heads)
{
    int panel = run->begin;
    for (; tile_width(n_heads) >= 4 && panel + 4 <= run->end; panel += 4)
        score_tile(a, type, &run->ahead, panel, head, 4, n_heads);
    for (; tile_width(n_heads) >= 2 && panel + 2 <= run->end; panel += 2)
        score_tile(a, type, &run->ahead, panel, head, 2, n_heads);
    for (; panel < run->end; panel++)
        score_tile(a, type, &run->ahead, panel, head, 1, n_heads);
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

/* Turns one head's scores into exp(score - max), 0 for the hidden ones; sets max and the sum. */
static void softmax_chunk(float *scores, int n_hidden, int n, float *max_out, float *sum_out)
{
    const int n_panels = (n + KERNEL_LANES - 1) / KERNEL_LANES;
    for (int t = 0; t < n_hidden; t++)
        scores[t] = -INFINITY;
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

/* The panel that a run begins in, from its first position on. */
ALWAYS_INLINE int first_of_panel(const struct run *run)
{
    return run->begin - run->begin % KERNEL_LANES;
}

/* The weights p of a run's panels times the scales of block b: [n_heads][position]. */
#define SCALED_ROWS (BLOCK_ROWS + KERNEL_LANES)
ALWAYS_INLINE void weigh_scales(const struct attend *a, const struct run *run, const float *p,
                                int b, const int n_heads, float scaled[][SCALED_ROWS])
{
    const size_t n_blocks = quant_blocks(a->kv.value_dim);
    const int base = first_of_panel(run);
    for (int t = base; t < run->end; t += KERNEL_LANES) {
        const size_t block = t / KERNEL_LANES * n_blocks + b;
        const lanes scales = lanes_load_f16(a->kv.v_scales + block * KERNEL_LANES);
        UNROLLED (h, n_heads)
            lanes_store(&scaled[h][t - base],
                        lanes_mul(lanes_load(p + (size_t)h * KERNEL_CHUNK + t), scales));
    }
}

/* acc[head][vector] += the run's rows times their weights p. */
ALWAYS_INLINE void value_rows(const struct attend *a, enum cache_type type, struct run *run,
                              const float *p, int first, const int n_heads, const int n_vecs,
                              lanes acc[TILE_HEADS][4])
{
    const int dim = a->kv.value_dim;
    const size_t row_bytes = cache_value_bytes(type, dim);
    const int base = first_of_panel(run);
    float scaled[2][TILE_HEADS][SCALED_ROWS];
    if (type >= CACHE_Q8_0) /* vectors of a tile begin with a block's, but for a single one */
        UNROLLED (b, (n_vecs + 1) / 2)
            weigh_scales(a, run, p, first / QUANT_BLOCK + b, n_heads, scaled[b]);
    for (int t = run->begin; t < run->end; t++) {
        const unsigned char *row = (const unsigned char *)a->kv.v + t * row_bytes;
        lanes v[4];
        if (cache_in_words(type))
            ask_ahead(&run->ahead, n_heads * n_vecs, 1);
        else
            ask_vectors(&run->ahead, type, n_vecs, n_heads);
        UNROLLED (j, n_vecs) {
            const int i = first + j * KERNEL_LANES;
            v[j] = cache_in_words(type) ? load_value_bits(row, type, dim, i)
                                        : load_cached(row, type, i);
        }
        UNROLLED (h, n_heads)
            UNROLLED (j, n_vecs) {
                const float weight = type >= CACHE_Q8_0 ? scaled[j / 2][h][t - base]
                                                        : p[(size_t)h * KERNEL_CHUNK + t];
                acc[h][j] = lanes_fma(lanes_all(weight), v[j], acc[h][j]);
            }
    }
}

/* Adds a run's rows to out for n_vecs * KERNEL_LANES dimensions (the last vector may have fewer) of
 * n_heads heads. */
ALWAYS_INLINE void value_tile(const struct attend *a, enum cache_type type, struct run *run,
                              int head, int first, const int n_heads, const int n_vecs)
{
    const int tail = (n_vecs - 1) * KERNEL_LANES, left = a->kv.value_dim - first - tail;
    float *out = a->out + head * a->stride + first;
    const bool starts = run->begin == a->n_hidden;
    lanes acc[TILE_HEADS][4];
    if (starts)
        clear_tile(acc, n_heads, n_vecs);
    UNROLLED (h, n_heads) {
        if (starts)
            continue;
        UNROLLED (j, n_vecs - 1)
            acc[h][j] = lanes_load(out + h * a->stride + j * KERNEL_LANES);
        acc[h][n_vecs - 1] = lanes_load_upto(out + h * a->stride + tail, left);
    }
    value_rows(a, type, run, a->scores + (size_t)head * KERNEL_CHUNK, first, n_heads, n_vecs, acc);
    UNROLLED (h, n_heads) {
        UNROLLED (j, n_vecs - 1)
            lanes_store(out + h * a->stride + j * KERNEL_LANES, acc[h][j]);
        lanes_store_upto(out + h * a->stride + tail, acc[h][n_vecs - 1], left);
    }
}

/* All dimensions of n_heads heads; as many at a time as a tile has, the tail one by one. */
ALWAYS_INLINE void value_heads(const struct attend *a, enum cache_type type, struct run *run,
                               int head, const int n_heads)
{
    const int dim = a->kv.value_dim, width = tile_width(n_heads);
    int i = 0;
    for (; i + width * KERNEL_LANES <= dim; i += width * KERNEL_LANES)
        value_tile(a, type, run, head, i, n_heads, width);
    for (; i < dim; i += KERNEL_LANES)
        value_tile(a, type, run, head, i, n_heads, 1);
}

/* n_heads heads against a run, for their scores or for their sums of values. */
ALWAYS_INLINE void read_pass(const struct attend *a, enum cache_type type, const bool for_values,
                             struct run *run, int head, const int n_heads)
{
    if (for_values)
        value_heads(a, type, run, head, n_heads);
    else
        score_heads(a, type, run, head, n_heads);
}

#define PASS_CASE(n)                                                                               \
    case n:                                                                                        \
        read_pass(a, type, for_values, run, head, MIN(n, TILE_HEADS));                             \
        break

/* The heads [head, end) against a run, which stays in the nearest caches meanwhile. */
ALWAYS_INLINE void read_run(const struct attend *a, enum cache_type type, const bool for_values,
                            struct run *run, int head, int end)
{
    for (int n; head < end; head += n) {
        n = pass_heads(end - head);
        switch (n) {
            PASS_CASE(12);
            PASS_CASE(6);
            PASS_CASE(4);
            PASS_CASE(3);
            PASS_CASE(2);
            PASS_CASE(1);
        default:
            __builtin_unreachable();
        }
    }
}

/* The scores of whole panels; behind the last one the values are next. */
ALWAYS_INLINE void score_chunk(const struct attend *a, enum cache_type type)
{
    const int n_panels = matrix_panels(a->kv.n_positions);
    const size_t panel_bytes =
        cache_key_cells(type, a->kv.key_dim) * KERNEL_LANES * cache_types[type].cell_bytes;
    struct run run = {.ahead.share = ahead_share(a, type)};
    for (int panel = 0; a->additive && panel < n_panels; panel++)
        for (int h = 0; h < a->n_heads; h++)
            score_additive(a, type, panel, h);
    for (; !a->additive && run.begin < n_panels; run.begin = run.end) {
        run.end = MIN(run.begin + BLOCK_PANELS, n_panels);
        run.ahead.at = a->next && run.end == n_panels
                           ? a->kv.v
                           : (const unsigned char *)a->kv.k + run.end * panel_bytes;
        read_run(a, type, false, &run, 0, a->n_heads);
    }
}

/* The rows that all heads read are read to together, and those that follow token by token. */
ALWAYS_INLINE void value_chunk(const struct attend *a, enum cache_type type)
{
    const int n = a->n_first;
    const size_t row_bytes = cache_value_bytes(type, a->kv.value_dim);
    struct run run = {.begin = a->n_hidden, .ahead.share = ahead_share(a, type)};
    for (; run.begin < n; run.begin = run.end) {
        run.end = MIN(run.begin + BLOCK_ROWS, n);
        run.ahead.at = a->next && run.end == n
                           ? a->next
                           : (const unsigned char *)a->kv.v + run.end * row_bytes;
        read_run(a, type, true, &run, 0, a->n_heads);
    }
    for (int head = a->group; head < a->n_heads && n < a->kv.n_positions; head += a->group) {
        run.begin = n;
        run.end = attend_positions(a, head);
        read_run(a, type, true, &run, head, head + a->group);
    }
}

/* Scores to exponentials, of all heads. */
ALWAYS_INLINE void weigh_type(const struct attend *a, enum cache_type type)
{
    score_chunk(a, type);
    if (a->bias)
        for (int h = 0; h < a->n_heads; h++)
            bias_chunk(a->scores + (size_t)h * KERNEL_CHUNK, matrix_panels(attend_positions(a, h)),
                       &a->bias[h % a->group], a->distance + h / a->group);
    for (int h = 0; h < a->n_heads; h++)
        softmax_chunk(a->scores + (size_t)h * KERNEL_CHUNK, a->n_hidden, attend_positions(a, h),
                      &a->max[h * a->stride], &a->sum[h * a->stride]);
}

/* A function NAME_TYPE for each type of a cache, for the reason in kernels_matmul.h, and NAME,
 * which calls the one of the chunk's keys, or values. */
#define OF_CACHE_TYPE(name, body, type)                                                            \
    static __attribute__((noinline)) void name##_##type(const struct attend *a)                    \
    {                                                                                              \
        body(a, CACHE_##type);                                                                     \
    }
#define EACH_CACHE_TYPE(name, body, member)                                                        \
    OF_CACHE_TYPE(name, body, F32)                                                                 \
    OF_CACHE_TYPE(name, body, F16)                                                                 \
    OF_CACHE_TYPE(name, body, Q8_0)                                                                \
    OF_CACHE_TYPE(name, body, Q5_0)                                                                \
    OF_CACHE_TYPE(name, body, Q4_0)                                                                \
    static void name(const struct attend *a)                                                       \
    {                                                                                              \
        static void (*const by_type[CACHE_TYPES])(const struct attend *) = {                       \
            [CACHE_F32] = name##_F32,                                                              \
            [CACHE_F16] = name##_F16,                                                              \
            [CACHE_Q8_0] = name##_Q8_0,                                                            \
            [CACHE_Q5_0] = name##_Q5_0,                                                            \
            [CACHE_Q4_0] = name##_Q4_0};                                                           \
        by_type[a->kv.type.member](a);                                                             \
    }
EACH_CACHE_TYPE(vector_weights, weigh_type, keys)
EACH_CACHE_TYPE(vector_values, value_chunk, values)

void OF_SET(attend)(const struct attend *a)
{
    attend_check(a);
    vector_weights(a);
    vector_values(a);
}
