/*
 * kernels - the arithmetic of a transformer step, one contract for every instruction set.
 *
 * The scalar table (kernels_scalar.c) is the definition; every other table gives the same bits.
 * That works because each output is one fixed chain of operations: a matrix product adds along
 * n_in with one fused multiply-add an element, sums over a vector run in KERNEL_LANES interleaved
 * partial sums that are folded in a fixed tree, and exp is one polynomial. A caller may cut work
 * between panels, tokens, heads and chunks, never inside one.
 *
 * Contracts. Kernels allocate nothing and cannot fail: what they are called with is the caller's
 * promise. It is stated once, here, and asserted at the entry of every kernel (kernels_check.h),
 * most of it in all builds, the rest with assert_costly (base/mem.h). Unless a function says
 * otherwise
 *   - sizes and counts are at least 1; strides are in elements, not bytes, and are at least the
 *     length of what they step over (with one row a stride is not looked at);
 *   - pointers are not NULL and aligned to their elements; more alignment is faster, not needed;
 *   - no output overlaps an input or another output, the gaps between strided rows included;
 *   - memory past the last element is neither read nor written;
 *   - numbers may be anything, infinities and NaNs too: they come out as arithmetic makes them.
 *
 * Any threads may run kernels at once on outputs that do not overlap.
 *
 * Shapes are written [rows, columns], the last index adjacent in memory.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "compute/cache_type.h"

/* --- kinds ----------------------------------------------------------------------------------- */

/* Norms of a row. */
enum norm_kind {
    NORM_LAYER, /* (x - mean) / sqrt(variance + eps) * gain + bias (Ba et al. 2016) */
    NORM_RMS,   /* x / sqrt(mean x^2 + eps) * gain + bias (Zhang and Sennrich 2019) */
    NORM_KINDS
};

/* What stands before the last product of a feed-forward network: f(up x), or, if the network is
 * gated, f(gate x) * up x. Each is one entry of ffn_kinds, and one of
 * grad_kernels.ffn and .ffn_backward. */
enum ffn_kind {
    FFN_GELU,     /* f is GELU, the tanh form (Hendrycks and Gimpel 2016) */
    FFN_GELU_ERF, /* GELU, exact */
    FFN_RELU,     /* max(x, 0) */
    FFN_SWIGLU,   /* gated, f is SiLU (Shazeer 2020) */
    FFN_GEGLU,    /* gated, f is GELU, the tanh form (Shazeer 2020) */
    FFN_KINDS
};

/* --- counts ---------------------------------------------------------------------------------- */

/* Positions of the KV cache that one attend call covers: a multiple of KERNEL_LANES. */
#define KERNEL_CHUNK 256
/* Multiply-adds that the exponential of a score takes; its one product counts as one. */
#define KERNEL_WEIGHT_FMAS 8
/* Multiply-adds that the tanh of an additive score's element takes; its division counts as eight.
 */
#define KERNEL_TANH_FMAS 24

/* --- matrix products ------------------------------------------------------------------------- */

/*
 * A row x of n activations for quantised weights, n a multiple of QUANT_BLOCK, has q int8 [n], from
 * -127 to 127; then the scale d of each block, F32 [n / 32], with x ~ d q; then the sum of q of
 * each block, int32 [n / 32]. A block with an infinity or NaN has d = NaN and q = 0. Rows lie
 * quant_row_bytes(n) apart, the first one aligned to 4 bytes.
 */
static inline size_t quant_row_bytes(int n)
{
    const size_t bytes = n + n / QUANT_BLOCK * (sizeof(float) + sizeof(int32_t));
    return (bytes + 63) / 64 * 64;
}

/* What becomes of a finished sum s (bias included). */
enum epilogue {
    EPILOGUE_STORE,    /* y = s */
    EPILOGUE_ADD,      /* y = y + s, the residual */
    EPILOGUE_MUL,      /* y = y * s */
    EPILOGUE_GELU,     /* y = GELU(s), the tanh form */
    EPILOGUE_GELU_ERF, /* y = GELU(s), exact: s / 2 (1 + erf(s / sqrt 2)) */
    EPILOGUE_RELU,     /* y = max(s, 0) */
    EPILOGUE_SILU,     /* y = s / (1 + e^-s) */
    EPILOGUES
};

/* By ffn_kind: the epilogue of the network's first product, which is `up` or, if the network is
 * gated, the gate; then `up` follows into the same rows with EPILOGUE_MUL. */
static const struct {
    bool is_gated;
    enum epilogue epilogue;
} ffn_kinds[FFN_KINDS] = {[FFN_GELU] = {false, EPILOGUE_GELU},
                          [FFN_GELU_ERF] = {false, EPILOGUE_GELU_ERF},
                          [FFN_RELU] = {false, EPILOGUE_RELU},
                          [FFN_SWIGLU] = {true, EPILOGUE_SILU},
                          [FFN_GEGLU] = {true, EPILOGUE_GELU}};

/*
 * y[t * y_stride + r] = epilogue(sum_i W[r][i] * x[t * x_stride + i] + bias[r])
 * for the tokens 0 <= t < n_tokens and the rows r < n_out of the panels [panel_begin, panel_end),
 * 0 <= panel_begin <= panel_end <= matrix_panels(n_out); other elements of y stay as they are.
 * The sum over quantised weights runs over blocks: the integer dot product of a block, exact,
 * times the product of the two scales.
 */
struct matmul {
    const struct matrix *w; /* [n_out, n_in] */
    const float *x;         /* [n_tokens, n_in]; not looked at if w is quantised */
    size_t x_stride;        /* floats, >= n_in */
    const void *quants;     /* [n_tokens] rows of quant_row_bytes(n_in); only if w is quantised */
    int n_tokens;
    float *y;        /* [n_tokens, n_out] */
    size_t y_stride; /* floats, >= n_out */
    enum epilogue epilogue;
};

/* --- attention ------------------------------------------------------------------------------- */

/*
 * One K/V head's view of the cache: n_positions of it, one after the other, from a multiple of
 * KERNEL_LANES on. What stands behind them in the last panel does not matter. (Prefetch asks for
 * bytes a little ahead of use, and for what is past the end.)
 *   k  [panel of KERNEL_LANES positions][cache_key_cells][KERNEL_LANES] cells, whole panels. In
 * F32, F16 and Q8_0 (int8) a cell is a number. In Q4_0 and Q5_0 a cell is a word of 32 bits: word w
 *      has, from bit 4 j on, the lower four bits of number 8 w + j, to which 8 or 16 was added. In
 *      Q5_0 a word for each block follows, whose bit j is the fifth bit of the block's number j.
 *   v  [position][cache_value_bytes], the numbers one after the other, in whole lanes; what the
 *      padding holds does not matter. In Q4_0 and Q5_0 two words have KERNEL_LANES numbers, to
 * which 8 or 16 was added: word l % 2, from bit 4 (l / 2) on, the lower four bits of number l. In
 *      Q5_0 16 bits for each KERNEL_LANES numbers follow, whose bit l is the fifth of number l.
 * In types with scales QUANT_BLOCK dimensions of a position (the last block may be shorter) share a
 * binary16 scale, and k_scales or v_scales may not be NULL:
 *   k_scales  [panel][quant_blocks(key_dim)][KERNEL_LANES]
 *   v_scales  [panel][quant_blocks(value_dim)][KERNEL_LANES]; a value's numbers are added up
 *             times the product of its weight and the scale
 */
struct kv_chunk {
    const void *k;
    const void *v;
    const uint16_t *k_scales;
    const uint16_t *v_scales;
    int n_positions; /* 1..KERNEL_CHUNK */
    int key_dim, value_dim;
    struct kv_type type;
};

/* What one head adds to its score of a position at a distance d = position of the query - position
 * of the key: x * (square * x + linear) with x = d - centre. ALiBi's is {.linear = -slope}. */
struct attend_bias {
    float centre, linear, square;
};

/*
 * Attention of n_heads query heads to one chunk; the K and V rows are read once for all of them.
 * Each `group` heads are those of one token, and the tokens stand one after the other: head h reads
 * the chunk's first attend_positions(a, h).
 *   q        [n_heads, key_dim], already scaled
 *   additive [group, key_dim], w of scores w.tanh(q + k), or NULL: they are q.k
 *   scores   [n_heads, KERNEL_CHUNK] scratch; afterwards exp(s_t - m) of the positions read
 *   max      [n_heads]  m = max_t s_t, with s_t = the score of k_t + the head's bias, if any
 *   sum      [n_heads]  l = sum_t exp(s_t - m)
 *   out      [n_heads, value_dim]  o = sum_t exp(s_t - m) v_t, not yet divided by l
 * From one head's out, max and sum to the next's it is `stride` floats.
 */
struct attend {
    struct kv_chunk kv;
    int n_hidden; /* positions of the chunk before the window, whose exponentials are 0: fewer than
                     n_first and KERNEL_LANES */
    int n_first;  /* positions that the first token reads, 1..n_positions */
    int n_heads;  /* a multiple of group */
    int group;    /* heads of a token that share the K/V head */
    const float *q;
    const float *additive;
    float *scores;
    float *max;
    float *sum;
    float *out;
    size_t stride;    /* floats, >= value_dim */
    const void *next; /* keys that the next call will read, which are asked for ahead; NULL: they
                         follow in memory, or are not known */
    const struct attend_bias *bias; /* [group]; NULL: none */
    int distance; /* from the chunk's first position to the first token's, >= n_first - 1; only with
                     a bias */
};

/* The positions that head h reads: one more than the token before has, if the chunk has them. */
static inline int attend_positions(const struct attend *a, int h)
{
    return MIN(a->n_first + h / a->group, a->kv.n_positions);
}

/* --- the table ------------------------------------------------------------------------------- */

struct kernels {
    const char *name;                /* "scalar", "neon", "avx2" or "avx512" */
    const struct grad_kernels *grad; /* training's of the same set, see grad_kernels.h */

    void (*matmul)(const struct matmul *m, int panel_begin, int panel_end);

    /* Quantises n_tokens rows of n floats, x_stride apart, into rows of quant_row_bytes(n), n a
     * multiple of QUANT_BLOCK: d = max |x| / 127 and q = x / d, to nearest even, by blocks. */
    void (*quantize)(void *rows, const float *x, size_t x_stride, int n_tokens, int n);

    /* out [n] is this norm of x [n], with gain [n], NULL: ones, and bias [n], NULL: none; eps >= 0;
     * out may be x. */
    void (*norm)(enum norm_kind kind, float *out, const float *x, const float *gain,
                 const float *bias, int n, float eps);

    /* Rotates the first n_rot (even, 0..n) elements of a head's row x [n] by pairs of neighbours,
     * and scales all: out[j] = s x[j] C[j] + s x[j ^ 1] S[j] for j < n_rot, the others s x[j].
     * rotation [2, n_rot] is C, the cosine of each pair's angle, twice, then S, its sine, first
     * with the other sign. `back` rotates by the negative angles, which undoes it, and is its
     * transpose. rotation is not looked at if n_rot is 0; out may be x. */
    void (*rotate)(float *out, const float *x, const float *rotation, int n_rot, int n, float scale,
                   bool back);

    /* Multiplies each run of `size` numbers of x [n] by the normalised Hadamard matrix, whose
     * element (i, j) is (-1)^(number of ones in i & j) / sqrt(size): a power of two from 8 to
     * CACHE_MOST_ROTATED that divides n, see cache_rotation; 0 changes nothing. */
    void (*hadamard)(float *x, int n, int size);

    /* Makes the QUANT_BLOCK numbers q of a block of a cached key or value; see base/levels.h. */
    uint16_t (*levels)(int bits, uint8_t *q, const float *x);

    void (*attend)(const struct attend *a);

    /* Joins the results of n_chunks attend calls for one head, in chunk order: out [n] =
     * sum_c e^(max_c - M) o_c / sum_c e^(max_c - M) l_c, M the largest max. max and sum [n_chunks]
     * are `stride` floats apart, as are the rows of partials [n_chunks, n]. */
    void (*merge)(float *out, const float *partials, const float *max, const float *sum,
                  int n_chunks, size_t stride, int n);

    /* Rounds n >= 0 floats to binary16, nearest even. */
    void (*to_f16)(uint16_t *out, const float *x, size_t n);

    /* For measuring the machine: reads n floats (their sum, in some order); runs `rounds` times
     * KERNEL_CHAINS independent multiply-adds on KERNEL_LANES lanes (some number); and as many
     * integer dot products of four bytes, as the products with quantised weights do. */
    float (*read)(const float *x, size_t n);
    float (*fma)(long rounds);
    float (*dot)(long rounds);
};

#define KERNEL_CHAINS 12

/*
 * The fastest table this processor can run, or the named one; name may be NULL. STATUS_USAGE names
 * the tables that can be had when `name` is unknown, not compiled in or not supported here. A
 * processor with AVX-512 but not its VNNI runs "avx2", one with NEON but not its dot product
 * "scalar".
 */
enum status kernels_choose(const char *name, const struct kernels **out, struct err *e);

/* The tables compiled in, slowest first, i >= 0; NULL past the last. */
const struct kernels *kernels_at(int i);
/* Whether this processor can run it. */
bool kernels_supported(const struct kernels *k);

/* The tables of the target's architecture. */
extern const struct kernels kernels_scalar;
#if defined(__x86_64__) || defined(__i386__)
extern const struct kernels kernels_avx2, kernels_avx512;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#endif
