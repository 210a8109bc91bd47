/* Every vector table against the scalar definition, bit for bit, and the definition against
 * double precision. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/kernels.h"
#include "compute/kernels_math.h"
#include "compute/roofline.h"
#include "support.h"

static struct rng rng;

static void setup(void)
{
    rng_seed(&rng, 20, 1);
}

static float gaussian_like(void)
{
    return (float)(rng_unit(&rng) + rng_unit(&rng) + rng_unit(&rng) - 1.5);
}

/* Exactly n floats on the heap, so that a sanitizer sees one too many. */
static float *random_floats(size_t n)
{
    float *p = malloc(n * sizeof *p);
    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < n; i++)
        p[i] = gaussian_like();
    return p;
}

/* Integers for Q8_0, as a cache stores them. */
static void *as_storage(const float *x, size_t n, enum storage storage)
{
    if (storage == STORAGE_Q8_0) {
        int8_t *bytes = malloc(n);
        ck_assert_ptr_nonnull(bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = isnan(x[i]) ? -128 : (int8_t)(x[i] * 80);
        return bytes;
    }
    void *out = malloc((size_t)storage_bytes(storage, n));
    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < n; i++)
        math_store(out, storage, i, x[i]);
    return out;
}

static void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof *a) == 0, "%s: element %zu is %.9g, not %.9g",
                      what, i, (double)b[i], (double)a[i]);
}

static int is_testable(const struct kernels *k)
{
    return kernels_supported(k) && k != &kernels_scalar;
}

/* Panels of random weights, zero from row n_out on. */
static void *random_panels(int n_out, int n_in, enum storage storage)
{
    const size_t bytes = (size_t)matrix_bytes(n_out, n_in, storage);
    if (!storage_is_quantised(storage)) {
        const size_t n = (size_t)kernel_padded(n_out) * (size_t)n_in;
        float *weights = random_floats(n);
        void *stored = as_storage(weights, n, storage);
        free(weights);
        return stored;
    }
    unsigned char *panels = malloc(bytes);
    ck_assert_ptr_nonnull(panels);
    for (size_t i = 0; i < bytes; i++) /* any bytes are elements, the extremes too */
        panels[i] = (unsigned char)(rng_u32(&rng) % 5 == 0 ? 0 : rng_u32(&rng));
    for (int p = 0; p < matrix_panels(n_out); p++) {
        uint16_t *scales =
            (uint16_t *)(void *)(panels + (size_t)p * matrix_panel_bytes(n_in, storage));
        for (int i = 0; i < n_in / QUANT_BLOCK * KERNEL_LANES; i++)
            scales[i] = f16_round(gaussian_like() * 0.1f);
    }
    return panels;
}

static void *quantised(const struct kernels *k, const float *x, size_t x_stride, int n_tokens,
                       int n)
{
    void *rows = calloc((size_t)n_tokens, quant_row_bytes(n));
    ck_assert_ptr_nonnull(rows);
    k->quantize(rows, x, x_stride, n_tokens, n);
    return rows;
}

static void compare_matmul(const struct kernels *k, int n_out, int n_in, int n_tokens,
                           enum storage storage, enum epilogue epilogue, int with_bias)
{
    const int panels = matrix_panels(n_out);
    const size_t x_stride = (size_t)n_in + 3, y_stride = (size_t)n_out + 5;
    void *stored = random_panels(n_out, n_in, storage);
    float *bias = random_floats((size_t)n_out);
    float *x = random_floats((size_t)n_tokens * x_stride);
    float *y = random_floats((size_t)n_tokens * y_stride);
    float *expected = malloc((size_t)n_tokens * y_stride * sizeof *y);
    memcpy(expected, y, (size_t)n_tokens * y_stride * sizeof *y);
    void *quants = storage_is_quantised(storage)
                       ? quantised(&kernels_scalar, x, x_stride, n_tokens, n_in)
                       : NULL;

    const struct matrix w = {n_out, n_in, storage, stored, with_bias ? bias : NULL};
    struct matmul m = {&w, x, x_stride, quants, n_tokens, expected, y_stride, epilogue};
    kernels_scalar.matmul(&m, 0, panels);
    m.y = y;
    const int cut = panels / 2; /* any cut between panels gives the same */
    k->matmul(&m, cut, panels);
    k->matmul(&m, 0, cut);
    char what[96];
    snprintf(what, sizeof what, "%s matmul %dx%d, %d tokens, %s, epilogue %d", k->name, n_out, n_in,
             n_tokens, storage_name(storage), (int)epilogue);
    assert_same_bits(expected, y, (size_t)n_tokens * y_stride, what);

    free(stored);
    free(bias);
    free(x);
    free(y);
    free(expected);
    free(quants);
}

START_TEST(matmul_equals_scalar)
{
    static const int outs[] = {1, 2, 15, 16, 17, 33, 64, 80, 113};
    static const int ins[] = {1, 7, 16, 20, 65};
    static const int whole_blocks[] = {32, 64, 96, 160, 256};
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 11, 12, 13, 25};
    for (int i = 0; kernels_at(i); i++) {
        if (!is_testable(kernels_at(i)))
            continue;
        for (size_t o = 0; o < sizeof outs / sizeof *outs; o++)
            for (size_t n = 0; n < sizeof ins / sizeof *ins; n++)
                for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
                    for (int s = 0; s < STORAGE_COUNT; s++)
                        compare_matmul(
                            kernels_at(i), outs[o],
                            storage_is_quantised((enum storage)s) ? whole_blocks[n] : ins[n],
                            tokens[t], (enum storage)s, (enum epilogue)((o + n + t) % EPILOGUES),
                            (int)((o + t) % 2));
    }
}
END_TEST

/* The definition itself, against sums in double. */
START_TEST(matmul_is_a_product)
{
    enum { OUT = 37, IN = 50, TOKENS = 3 };
    const size_t n_weights = (size_t)matrix_panels(OUT) * IN * KERNEL_LANES;
    float *weights = random_floats(n_weights);
    float *bias = random_floats(OUT);
    float *x = random_floats(TOKENS * IN);
    float y[TOKENS * OUT];
    const struct matrix w = {OUT, IN, STORAGE_F32, weights, bias};
    const struct matmul m = {&w, x, IN, NULL, TOKENS, y, OUT, EPILOGUE_STORE};
    kernels_scalar.matmul(&m, 0, matrix_panels(OUT));
    for (int t = 0; t < TOKENS; t++) {
        for (int r = 0; r < OUT; r++) {
            double s = (double)bias[r];
            for (int i = 0; i < IN; i++)
                s += (double)weights[(r / 16 * IN + i) * 16 + r % 16] * (double)x[t * IN + i];
            ck_assert_double_eq_tol((double)y[t * OUT + r], s, 1e-5);
        }
    }
    free(weights);
    free(bias);
    free(x);
}
END_TEST

/* A quantised product is that of the dequantised matrix and the dequantised activations. */
START_TEST(quantised_matmul_is_a_product)
{
    enum { OUT = 21, IN = 96, TOKENS = 2, BLOCKS = IN / QUANT_BLOCK };
    static const enum storage storages[] = {STORAGE_Q8_0, STORAGE_Q4_0};
    for (size_t s = 0; s < 2; s++) {
        unsigned char *panels = random_panels(OUT, IN, storages[s]);
        float *x = random_floats(TOKENS * IN);
        unsigned char *rows = quantised(&kernels_scalar, x, IN, TOKENS, IN);
        float y[TOKENS * OUT];
        const struct matrix w = {OUT, IN, storages[s], panels, NULL};
        const struct matmul m = {&w, x, IN, rows, TOKENS, y, OUT, EPILOGUE_STORE};
        kernels_scalar.matmul(&m, 0, matrix_panels(OUT));
        for (int t = 0; t < TOKENS; t++) {
            for (int r = 0; r < OUT; r++) {
                const unsigned char *panel =
                    panels + (size_t)(r / 16) * matrix_panel_bytes(IN, storages[s]);
                const uint16_t *scales = (const uint16_t *)(const void *)panel;
                const unsigned char *elements = panel + 128; /* 3 x 16 scales, padded to 64 */
                const unsigned char *row = rows + (size_t)t * quant_row_bytes(IN);
                double sum = 0;
                for (int i = 0; i < IN; i++) {
                    float d;
                    memcpy(&d, row + IN + i / 32 * 4, sizeof d);
                    const double xq = (double)((const int8_t *)row)[i] * (double)d;
                    ck_assert_double_eq_tol(xq, (double)x[t * IN + i], (double)d * 0.5001);
                    const int in_block = i % 32;
                    const int byte =
                        storages[s] == STORAGE_Q8_0
                            ? elements[i / 4 * 64 + r % 16 * 4 + i % 4]
                            : elements[i / 32 * 256 + in_block % 16 / 4 * 64 + r % 16 * 4 + i % 4];
                    const int q = storages[s] == STORAGE_Q8_0 ? byte - 128
                                  : in_block < 16             ? byte % 16 - 8
                                                              : byte / 16 - 8;
                    sum += (double)f16_widen(scales[i / 32 * 16 + r % 16]) * q * xq;
                }
                ck_assert_double_eq_tol((double)y[t * OUT + r], sum, 1e-4);
            }
        }
        free(panels);
        free(x);
        free(rows);
    }
}
END_TEST

/* Blocks of zeros, of tiny numbers, of one huge one, with infinities and NaNs: every table as the
 * scalar one. */
START_TEST(quantize_equals_scalar)
{
    enum { N = 32 * 9, TOKENS = 3, STRIDE = N + 5 };
    float *x = random_floats(TOKENS * STRIDE);
    memset(x, 0, 32 * sizeof *x);
    for (int i = 32; i < 64; i++)
        x[i] *= 1e-38f;
    x[64 + 7] = 3e38f;
    x[96 + 31] = INFINITY;
    x[128] = NAN;
    x[128 + 17] = -INFINITY;
    x[160 + 5] = -NAN;
    for (int i = 192; i < 224; i++) /* ties */
        x[i] = (float)(i - 192) * 0.5f;
    x[192] = -127.0f;
    unsigned char *expected = quantised(&kernels_scalar, x, STRIDE, TOKENS, N);
    const int8_t *q = (const int8_t *)expected;
    ck_assert(q[64 + 7] == 127 && q[64] == 0);
    ck_assert(q[192] == -127 && q[193] == 0 && q[195] == 2 && q[197] == 2 && q[199] == 4);
    const float *scales = (const float *)(void *)(expected + N);
    ck_assert(scales[0] == 0 && scales[1] == 0 && scales[6] == 1.0f);
    ck_assert(isnan(scales[3]) && isnan(scales[4]) && isnan(scales[5]));
    for (int k = 0; kernels_at(k); k++) {
        if (!is_testable(kernels_at(k)))
            continue;
        unsigned char *found = quantised(kernels_at(k), x, STRIDE, TOKENS, N);
        ck_assert_msg(memcmp(found, expected, TOKENS * quant_row_bytes(N)) == 0, "%s differs",
                      kernels_at(k)->name);
        free(found);
    }
    free(expected);
    free(x);
}
END_TEST

START_TEST(layer_norm_equals_scalar)
{
    static const int sizes[] = {1, 2, 15, 16, 17, 31, 64, 100, 768};
    for (int i = 0; kernels_at(i); i++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = (size_t)sizes[s];
            float *x = random_floats(n), *gain = random_floats(n), *bias = random_floats(n);
            float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
            for (int with_bias = 0; with_bias < 2; with_bias++) {
                const float *shift = with_bias ? bias : NULL;
                kernels_scalar.norm[NORM_LAYER](a, x, gain, shift, (int)n, 1e-5f);
                if (!is_testable(kernels_at(i)))
                    continue;
                kernels_at(i)->norm[NORM_LAYER](b, x, gain, shift, (int)n, 1e-5f);
                assert_same_bits(a, b, n, kernels_at(i)->name);
            }
            free(x);
            free(gain);
            free(bias);
            free(a);
            free(b);
        }
    }
}
END_TEST

START_TEST(layer_norm_is_its_formula)
{
    enum { N = 100 };
    float *x = random_floats(N), *gain = random_floats(N), *bias = random_floats(N), out[N];
    kernels_scalar.norm[NORM_LAYER](out, x, gain, bias, N, 1e-5f);
    double mean = 0, variance = 0;
    for (int i = 0; i < N; i++)
        mean += (double)x[i] / N;
    for (int i = 0; i < N; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / N;
    for (int i = 0; i < N; i++) {
        const double unit = ((double)x[i] - mean) / sqrt(variance + 1e-5);
        ck_assert_double_eq_tol((double)out[i], unit * (double)gain[i] + (double)bias[i], 1e-5);
    }
    free(x);
    free(gain);
    free(bias);
}
END_TEST

/* Each of these breaks a contract of kernels.h, which every table asserts. */
START_TEST(broken_contracts_abort)
{
    static float weights[64 * 16], x[64], y[64];
    const struct kernels *k = kernels_at(0);
    for (int i = 0; kernels_at(i); i++)
        if (kernels_supported(kernels_at(i)) && (_i & 1))
            k = kernels_at(i);
    const struct matrix w = {16, 16, STORAGE_F32, weights, NULL};
    struct matmul m = {&w, x, 16, NULL, 2, y, 16, EPILOGUE_STORE};
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* the assertion's message */
    switch (_i / 2) {
    case 0: /* a panel too many */
        k->matmul(&m, 0, 2);
        break;
    case 1: /* rows of y that overlap */
        m.y_stride = 15;
        k->matmul(&m, 0, 1);
        break;
    case 2: /* no tokens */
        m.n_tokens = 0;
        k->matmul(&m, 0, 1);
        break;
    case 3: /* no whole blocks */
        k->quantize(y, x, 64, 1, 33);
        break;
    case 4: /* an empty row */
        k->norm[NORM_LAYER](y, x, x, NULL, 0, 1e-5f);
        break;
    default: /* no chunks */
        k->merge(y, x, x, x, 0, 16, 16);
    }
}
END_TEST

struct attention {
    struct attend args;
    size_t n_out; /* floats of each of max, sum, out */
    float *q, *scores, *max, *sum, *out;
    void *k, *v;
    uint16_t *k_scales, *v_scales;
    float *k_values, *v_values;
};

static uint16_t *random_scales(size_t n)
{
    uint16_t *scales = malloc(n * sizeof *scales);
    ck_assert_ptr_nonnull(scales);
    for (size_t i = 0; i < n; i++)
        scales[i] = f16_round(fabsf(gaussian_like()) * 0.01f);
    return scales;
}

static float *copy_floats(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, x, n * sizeof *copy);
}

static struct attention make_attention(int n_heads, int dim, int n, enum storage storage)
{
    const size_t n_panels = (size_t)(n + KERNEL_LANES - 1) / KERNEL_LANES;
    const size_t n_k = n_panels * (size_t)dim * KERNEL_LANES;
    const size_t v_stride = (size_t)kernel_padded(dim);
    const size_t n_v = (size_t)n * v_stride;
    const size_t stride = (size_t)dim + 3; /* the gaps stay as they are */
    struct attention at = {
        .q = random_floats((size_t)n_heads * (size_t)dim),
        .scores = random_floats((size_t)n_heads * KERNEL_CHUNK),
        .n_out = (size_t)n_heads * stride,
        .max = random_floats((size_t)n_heads * stride),
        .sum = random_floats((size_t)n_heads * stride),
        .out = random_floats((size_t)n_heads * stride),
        .k_values = random_floats(n_k),
        .v_values = random_floats(n_v),
    };
    /* Stale lanes beyond n must not matter, whatever they hold. */
    for (int t = n; t < (int)n_panels * KERNEL_LANES; t++)
        for (int i = 0; i < dim; i++)
            at.k_values[(t / 16 * dim + i) * 16 + t % 16] = NAN;
    for (size_t i = 0; i < n_v; i++)
        if (i % v_stride >= (size_t)dim)
            at.v_values[i] = NAN;
    at.k = as_storage(at.k_values, n_k, storage);
    at.v = as_storage(at.v_values, n_v, storage);
    at.k_scales = random_scales(n_panels * (size_t)quant_blocks(dim) * KERNEL_LANES);
    at.v_scales = random_scales((size_t)n * (size_t)quant_blocks(dim));
    const struct kv_chunk kv = {{{at.k, at.v, at.k_scales, at.v_scales}}, n, n, dim, dim, storage};
    at.args = (struct attend){kv,     n_heads, at.q, at.scores, at.max, at.sum,
                              at.out, stride,  NULL, NULL,      0};
    return at;
}

static void free_attention(struct attention *at)
{
    free(at->q);
    free(at->scores);
    free(at->max);
    free(at->sum);
    free(at->out);
    free(at->k);
    free(at->v);
    free(at->k_scales);
    free(at->v_scales);
    free(at->k_values);
    free(at->v_values);
}

static void compare_attend(const struct kernels *k, int n_heads, int dim, int n,
                           enum storage storage)
{
    struct attention at = make_attention(n_heads, dim, n, storage);
    const size_t n_out = at.n_out;
    struct attend reference = at.args;
    reference.out = copy_floats(at.out, n_out);
    reference.max = copy_floats(at.max, n_out);
    reference.sum = copy_floats(at.sum, n_out);
    kernels_scalar.attend(&reference);
    k->attend(&at.args);
    char what[96];
    snprintf(what, sizeof what, "%s attend, %d heads of %d, %d positions, %s", k->name, n_heads,
             dim, n, storage_name(storage));
    assert_same_bits(reference.max, at.max, n_out, what);
    assert_same_bits(reference.sum, at.sum, n_out, what);
    assert_same_bits(reference.out, at.out, n_out, what);
    free(reference.max);
    free(reference.sum);
    free(reference.out);
    free_attention(&at);
}

START_TEST(attend_equals_scalar)
{
    static const int heads[] = {1, 2, 3, 4, 7, 12, 22};
    static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    static const int dims[] = {1, 8, 16, 20, 24, 48, 64, 80};
    static const int positions[] = {1, 15, 16, 17, 63, 64, 100, 256};
    for (int i = 0; kernels_at(i); i++) {
        if (!is_testable(kernels_at(i)))
            continue;
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
                for (size_t p = 0; p < sizeof positions / sizeof *positions; p++)
                    for (int s = 0; s < 3; s++)
                        compare_attend(kernels_at(i), heads[h], dims[d], positions[p], storages[s]);
    }
}
END_TEST

/* Rows [begin, end), exactly. */
static void *copy_rows(const void *from, size_t row_bytes, int begin, int end)
{
    unsigned char *rows = malloc((size_t)(end - begin) * row_bytes);
    ck_assert_ptr_nonnull(rows);
    memcpy(rows, (const unsigned char *)from + (size_t)begin * row_bytes,
           (size_t)(end - begin) * row_bytes);
    return rows;
}

/* Overwrites what a piece from position `first` on holds at position t: all bits set are NaN. */
static void spoil_position(const struct kv_piece *piece, int first, int t, int dim, size_t element)
{
    const size_t panel = (size_t)((t - first) / KERNEL_LANES) * (size_t)dim;
    const size_t lane = (size_t)(t % KERNEL_LANES);
    for (size_t i = 0; i < (size_t)dim; i++)
        memset((unsigned char *)(uintptr_t)piece->k + ((panel + i) * KERNEL_LANES + lane) * element,
               0xff, element);
}

/* The positions [begin, end) of a chunk that is in one piece. */
static struct kv_piece copy_piece(const struct kv_chunk *kv, int begin, int end)
{
    static const size_t elements[] = {
        [STORAGE_F32] = 4, [STORAGE_F16] = 2, [STORAGE_Q8_0] = sizeof(int8_t)};
    const struct kv_piece *whole = &kv->piece[0];
    const size_t element = elements[kv->storage], dim = (size_t)kv->key_dim;
    const size_t scales = (size_t)quant_blocks(kv->key_dim) * sizeof(uint16_t);
    const int panel = begin / KERNEL_LANES, panels = matrix_panels(end);
    const int first = panel * KERNEL_LANES;
    const struct kv_piece piece = {
        copy_rows(whole->k, dim * KERNEL_LANES * element, panel, panels),
        copy_rows(whole->v, (size_t)kernel_padded(kv->key_dim) * element, first, end),
        copy_rows(whole->k_scales, scales * KERNEL_LANES, panel, panels),
        copy_rows(whole->v_scales, scales, first, end),
    };
    for (int t = first; t < begin; t++)
        spoil_position(&piece, first, t, kv->key_dim, element);
    for (int t = end; t < panels * KERNEL_LANES; t++)
        spoil_position(&piece, first, t, kv->key_dim, element);
    return piece;
}

static void free_piece(struct kv_piece *piece)
{
    free((void *)(uintptr_t)piece->k);
    free((void *)(uintptr_t)piece->v);
    free((void *)(uintptr_t)piece->k_scales);
    free((void *)(uintptr_t)piece->v_scales);
}

/* A chunk in two pieces is the chunk in one, on every table. */
static void compare_pieces(int n_heads, int dim, int n, int split, enum storage storage)
{
    struct attention at = make_attention(n_heads, dim, n, storage);
    const size_t n_out = at.n_out;
    float *expected = copy_floats(at.out, n_out);
    struct attend whole = at.args, pieces = at.args;
    whole.out = expected;
    kernels_scalar.attend(&whole);
    const float max = at.max[0], sum = at.sum[0];
    pieces.kv.split = split;
    pieces.kv.piece[0] = split > 0 ? copy_piece(&at.args.kv, 0, split) : (struct kv_piece){NULL};
    pieces.kv.piece[1] = split < n ? copy_piece(&at.args.kv, split, n) : (struct kv_piece){NULL};
    for (int i = 0; kernels_at(i); i++) {
        char what[96];
        if (!kernels_supported(kernels_at(i)))
            continue;
        snprintf(what, sizeof what, "%s attend, %d heads of %d, %d and %d positions, %s",
                 kernels_at(i)->name, n_heads, dim, split, n - split, storage_name(storage));
        kernels_at(i)->attend(&pieces);
        assert_same_bits(expected, at.out, n_out, what);
        assert_same_bits(&max, at.max, 1, what);
        assert_same_bits(&sum, at.sum, 1, what);
    }
    free_piece(&pieces.kv.piece[0]);
    free_piece(&pieces.kv.piece[1]);
    free(expected);
    free_attention(&at);
}

START_TEST(pieces_equal_the_whole)
{
    static const int heads[] = {1, 3, 12}, dims[] = {20, 64};
    static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    static const int positions[] = {1, 17, 100, 256};
    static const int splits[] = {0, 1, 15, 16, 17, 31, 64, 100, 255, 256};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (size_t p = 0; p < sizeof positions / sizeof *positions; p++)
                for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
                    for (int kind = 0; kind < 3 && splits[s] <= positions[p]; kind++)
                        compare_pieces(heads[h], dims[d], positions[p], splits[s], storages[kind]);
}
END_TEST

/* Softmax attention in double over three chunks equals attend and merge. */
START_TEST(attend_and_merge_are_softmax)
{
    enum { DIM = 20, CHUNKS = 3 };
    static const int lengths[CHUNKS] = {256, 256, 40};
    const size_t stride = DIM + 2;
    float parts[CHUNKS * (DIM + 2)], merged[DIM];
    float *q = random_floats(DIM);
    double numerator[DIM] = {0}, denominator = 0;
    for (int c = 0; c < CHUNKS; c++) {
        struct attention at = make_attention(1, DIM, lengths[c], STORAGE_F32);
        at.args.q = q;
        at.args.out = parts + (size_t)c * stride;
        at.args.max = parts + (size_t)c * stride + DIM;
        at.args.sum = parts + (size_t)c * stride + DIM + 1;
        kernels_scalar.attend(&at.args);
        for (int t = 0; t < lengths[c]; t++) {
            double s = 0;
            for (int i = 0; i < DIM; i++)
                s += (double)q[i] * (double)at.k_values[(t / 16 * DIM + i) * 16 + t % 16];
            denominator += exp(s);
            for (int i = 0; i < DIM; i++)
                numerator[i] += exp(s) * (double)at.v_values[t * kernel_padded(DIM) + i];
        }
        free_attention(&at);
    }
    kernels_scalar.merge(merged, parts, parts + DIM, parts + DIM + 1, CHUNKS, stride, DIM);
    for (int i = 0; i < DIM; i++)
        ck_assert_double_eq_tol((double)merged[i], numerator[i] / denominator, 1e-5);
    for (int k = 0; kernels_at(k); k++) {
        float again[DIM];
        if (!is_testable(kernels_at(k)))
            continue;
        kernels_at(k)->merge(again, parts, parts + DIM, parts + DIM + 1, CHUNKS, stride, DIM);
        assert_same_bits(merged, again, DIM, kernels_at(k)->name);
    }
    free(q);
}
END_TEST

/* Q8_0 keys and values are their integers times their scales. */
START_TEST(quantised_attend_is_softmax)
{
    enum { DIM = 40, N = 100, BLOCKS = 2 };
    struct attention at = make_attention(1, DIM, N, STORAGE_Q8_0);
    kernels_scalar.attend(&at.args);
    const int8_t *k = at.k, *v = at.v;
    double numerator[DIM] = {0}, denominator = 0;
    for (int t = 0; t < N; t++) {
        double s = 0;
        for (int i = 0; i < DIM; i++)
            s += (double)at.q[i] * k[(t / 16 * DIM + i) * 16 + t % 16] *
                 (double)f16_widen(at.k_scales[(t / 16 * BLOCKS + i / 32) * 16 + t % 16]);
        denominator += exp(s);
        for (int i = 0; i < DIM; i++)
            numerator[i] += exp(s) * v[t * kernel_padded(DIM) + i] *
                            (double)f16_widen(at.v_scales[t * BLOCKS + i / 32]);
    }
    for (int i = 0; i < DIM; i++)
        ck_assert_double_eq_tol((double)(at.out[i] / at.sum[0]), numerator[i] / denominator, 1e-5);
    free_attention(&at);
}
END_TEST

START_TEST(exp_is_accurate)
{
    double worst = 0;
    for (int i = -870000; i <= 880000; i += 7) {
        const float x = (float)i * 1e-4f;
        const double exact = exp((double)x);
        const double error = fabs((double)math_exp(x) - exact) / exact;
        worst = error > worst ? error : worst;
    }
    ck_assert_double_lt(worst, 2.0e-7);
    ck_assert(math_exp(0.0f) == 1.0f);
    ck_assert(math_exp(-INFINITY) == 0.0f);
    ck_assert(isfinite(math_exp(INFINITY)));
    ck_assert(isnan(math_exp(NAN)));
}
END_TEST

START_TEST(gelu_is_the_tanh_form)
{
    for (int i = -12000; i <= 12000; i++) {
        const float x = (float)i * 1e-3f;
        const double d = (double)x;
        const double u = sqrt(2 / 3.14159265358979323846) * (d + 0.044715 * d * d * d);
        ck_assert_double_eq_tol((double)math_gelu(x), d / 2 * (1 + tanh(u)), 1e-6);
    }
    ck_assert(math_gelu(1e30f) == 1e30f);
    ck_assert(fabsf(math_gelu(-1e10f)) < 1e-20f); /* the capped exponential leaves a crumb */
    ck_assert(isnan(math_gelu(NAN)));
}
END_TEST

/* All 65,536 halves go to float and back, and agree with every table. */
START_TEST(f16_round_trip)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536], reference[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    kernels_scalar.from_f16(reference, all, 65536);
    for (int k = 0; kernels_at(k); k++) {
        if (!kernels_supported(kernels_at(k)))
            continue;
        kernels_at(k)->from_f16(wide, all, 65536);
        assert_same_bits(reference, wide, 65536, kernels_at(k)->name);
        kernels_at(k)->to_f16(back, wide, 65536);
        for (int i = 0; i < 65536; i++) {
            const int is_nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
            ck_assert_uint_eq(back[i], is_nan ? (unsigned)i | 0x200 : (unsigned)i);
        }
    }
    ck_assert(reference[0x3c00] == 1.0f && reference[0x0001] == 0x1p-24f);
    ck_assert(reference[0xfbff] == -65504.0f);
}
END_TEST

/* Rounding to half: ties to even, overflow to infinity, subnormals. */
START_TEST(f16_rounding)
{
    enum { N = 400000 };
    float *x = malloc(N * sizeof *x);
    uint16_t *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    for (int i = 0; i < N; i++) {
        const uint32_t bits = rng_u32(&rng);
        memcpy(&x[i], &bits, sizeof bits);
        if (i % 2) /* the range where halves live */
            x[i] = gaussian_like() * ldexpf(1.0f, (int)(rng_u32(&rng) % 44) - 27);
    }
    const float special[] = {65504.0f, 65519.996f,   65520.0f,       0x1p-25f,      0x1.8p-25f,
                             -0.0f,    0x1.ffcp-15f, 1.00048828125f, 1.00146484375f};
    memcpy(x, special, sizeof special);
    kernels_scalar.to_f16(a, x, N);
    ck_assert_uint_eq(a[0], 0x7bff);
    ck_assert_uint_eq(a[1], 0x7bff);
    ck_assert_uint_eq(a[2], 0x7c00);
    ck_assert_uint_eq(a[3], 0);
    ck_assert_uint_eq(a[4], 1);
    ck_assert_uint_eq(a[5], 0x8000);
    ck_assert_uint_eq(a[6], 0x0400); /* halfway between subnormal and normal: even */
    ck_assert_uint_eq(a[7], 0x3c00);
    ck_assert_uint_eq(a[8], 0x3c02);
    for (int k = 0; kernels_at(k); k++) {
        if (!is_testable(kernels_at(k)))
            continue;
        kernels_at(k)->to_f16(b, x, N);
        for (int i = 0; i < N; i++)
            ck_assert_msg(a[i] == b[i], "%s: %.9g gives %04x, not %04x", kernels_at(k)->name,
                          (double)x[i], b[i], a[i]);
    }
    free(x);
    free(a);
    free(b);
}
END_TEST

/* All 65,536 bfloat16 values survive the way there and back; rounding is to nearest even. */
START_TEST(bf16_round_trip)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const int is_nan = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
        ck_assert_uint_eq(bf16_round(bf16_widen((uint16_t)i)), is_nan ? i | 0x40 : i);
    }
    ck_assert_uint_eq(bf16_round(1.0f), 0x3f80);
    ck_assert_uint_eq(bf16_round(0x1.01p0f), 0x3f80);   /* halfway: even */
    ck_assert_uint_eq(bf16_round(0x1.03p0f), 0x3f82);   /* halfway: even, upwards */
    ck_assert_uint_eq(bf16_round(0x1.0101p0f), 0x3f81); /* above halfway */
    ck_assert_uint_eq(bf16_round(3.4e38f), 0x7f80);
    ck_assert_uint_eq(bf16_round(-INFINITY), 0xff80);
}
END_TEST

/* What they compute does not matter but for that it is computed: a sum is exact in any order where
 * all are small integers, and chains that start apart end as what their fixed point says. */
START_TEST(measuring_loops)
{
    static float x[300];
    for (int i = 0; i < 300; i++)
        x[i] = (float)(i % 7);
    for (int i = 0; kernels_at(i); i++) {
        const struct kernels *k = kernels_at(i);
        if (!kernels_supported(k))
            continue;
        float sum = 0;
        for (size_t n = 1; n <= 300; n++) {
            sum += x[n - 1];
            ck_assert_double_eq((double)k->read(x, n), (double)sum);
        }
        /* Every chain tends to x / 2 + 1 = x. */
        ck_assert_double_eq_tol((double)k->fma(200), 2.0 * KERNEL_CHAINS * KERNEL_LANES, 1e-2);
        /* All products are at least 0, not all are 0, and each round adds its own. */
        const float few = k->dot(4), many = k->dot(400);
        ck_assert(few > 0 && many > 50 * few);
        ck_assert(roofline_fma(k, NULL, 0) > 0 && roofline_dot(k, NULL, 0) > 0);
        double bytes_per_s = 0;
        ck_assert_int_eq(roofline_read(k, NULL, 10000, 0, &bytes_per_s, NULL), STATUS_OK);
        ck_assert(bytes_per_s > 0);
    }
}
END_TEST

START_TEST(choosing_tables)
{
    const struct kernels *k = NULL;
    struct err e = {{0}};
    ck_assert_int_eq(kernels_choose(NULL, &k, &e), STATUS_OK);
    ck_assert(kernels_supported(k));
    ck_assert_int_eq(kernels_choose("scalar", &k, &e), STATUS_OK);
    ck_assert_ptr_eq(k, &kernels_scalar);
    /* A family's name gives its fastest member, a member's name the member. */
    for (int i = 0; kernels_at(i); i++) {
        if (!kernels_supported(kernels_at(i)))
            continue;
        ck_assert_int_eq(kernels_choose(kernels_at(i)->name, &k, &e), STATUS_OK);
        ck_assert_int_eq(strncmp(k->name, kernels_at(i)->name, strlen(kernels_at(i)->name)), 0);
    }
    ck_assert_int_eq(kernels_choose("avx", &k, &e), STATUS_USAGE);
    ck_assert_int_eq(kernels_choose("mmx", &k, &e), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(e.text, "mmx"));
    ck_assert_ptr_nonnull(strstr(e.text, "scalar"));
    ck_assert_int_eq(kernels_choose("", &k, &e), STATUS_USAGE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels");
    TCase *t = tcase_create("kernels");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, matmul_equals_scalar);
    tcase_add_test(t, matmul_is_a_product);
    tcase_add_test(t, quantised_matmul_is_a_product);
    tcase_add_test(t, quantize_equals_scalar);
    tcase_add_test(t, layer_norm_equals_scalar);
    tcase_add_test(t, layer_norm_is_its_formula);
    tcase_add_loop_test_raise_signal(t, broken_contracts_abort, SIGABRT, 0, 12);
    tcase_add_test(t, attend_equals_scalar);
    tcase_add_test(t, pieces_equal_the_whole);
    tcase_add_test(t, attend_and_merge_are_softmax);
    tcase_add_test(t, quantised_attend_is_softmax);
    tcase_add_test(t, exp_is_accurate);
    tcase_add_test(t, gelu_is_the_tanh_form);
    tcase_add_test(t, f16_round_trip);
    tcase_add_test(t, f16_rounding);
    tcase_add_test(t, bf16_round_trip);
    tcase_add_test(t, measuring_loops);
    tcase_add_test(t, choosing_tables);
    suite_add_tcase(s, t);
    return run_suite(s);
}
