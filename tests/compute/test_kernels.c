/* Tests that every vector table gives the bits of the scalar definition, and compares the
 * definition with double precision. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compute/kernels_math.h"
#include "kernel_data.h"
#include "plain_model.h"
#include "support.h"

#define KERNEL_TEST(...) TEST(__VA_ARGS__, .before = seed_numbers)

/* Makes panels of random weights, zero from row n_out on. */
static void *random_panels(int n_out, int n_in, enum storage storage)
{
    const size_t bytes = (size_t)matrix_bytes(n_out, n_in, storage);
    if (!storage_is_quantised(storage)) {
        const size_t n = (size_t)kernel_padded(n_out) * (size_t)n_in;
        return as_storage(random_floats(n), n, storage);
    }
    unsigned char *panels = allocated(bytes);
    for (size_t i = 0; i < bytes; i++) /* any bytes are elements, the extremes too */
        panels[i] = (unsigned char)(random_u32() % 5 == 0 ? 0 : random_u32());
    for (int p = 0; p < matrix_panels(n_out); p++) {
        uint16_t *scales =
            (uint16_t *)(void *)(panels + (size_t)p * matrix_panel_bytes(n_in, storage));
        for (int i = 0; i < n_in / QUANT_BLOCK * KERNEL_LANES; i++)
            scales[i] = f16_round(random_float() * 0.1f);
    }
    return panels;
}

static void *quantised(const struct kernels *k, const float *x, size_t x_stride, int n_tokens,
                       int n)
{
    const size_t bytes = (size_t)n_tokens * quant_row_bytes(n);
    void *rows = memset(allocated(bytes), 0, bytes);
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
    float *expected = copy_floats(y, (size_t)n_tokens * y_stride);
    void *quants = storage_is_quantised(storage)
                       ? quantised(&kernels_scalar, x, x_stride, n_tokens, n_in)
                       : NULL;

    const struct matrix w = {n_out, n_in, storage, stored, with_bias ? bias : NULL};
    struct matmul m = {&w, x, x_stride, quants, n_tokens, expected, y_stride, epilogue};
    kernels_scalar.matmul(&m, 0, panels);
    m.y = y;
    /* Any cut between panels, also in a group of them, gives the same. */
    const int cut = (n_out + n_in + n_tokens) % (panels + 1);
    k->matmul(&m, cut, panels);
    k->matmul(&m, 0, cut);
    char what[96];
    snprintf(what, sizeof what, "%s matmul %dx%d, %d tokens, %s, epilogue %d", k->name, n_out, n_in,
             n_tokens, storage_names[storage], (int)epilogue);
    assert_same_bits(expected, y, (size_t)n_tokens * y_stride, what);
    release_all();
}

KERNEL_TEST(matmul_equals_scalar)
{
    static const int outs[] = {1, 2, 15, 16, 17, 33, 64, 80, 112, 177};
    static const int ins[2][5] = {{1, 7, 16, 20, 65}, {32, 64, 96, 160, 256}}; /* whole blocks */
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 11, 12, 13, 25};
    for (const struct kernels *k = NULL; (k = next_vector(k));)
        for (size_t o = 0; o < COUNT(outs); o++)
            for (size_t n = 0; n < COUNT(ins[0]); n++)
                for (size_t t = 0; t < COUNT(tokens); t++)
                    for (enum storage s = 0; s < STORAGE_COUNT; s++)
                        compare_matmul(k, outs[o], ins[storage_is_quantised(s)][n], tokens[t], s,
                                       (enum epilogue)((o + n + t) % EPILOGUES),
                                       (int)((o + t) % 2));
}

static double activated(enum epilogue epilogue, double s, double before)
{
    for (enum ffn_kind kind = 0; kind < FFN_KINDS; kind++)
        if (ffn_kinds[kind].epilogue == epilogue)
            return plain_activation(kind, s);
    return epilogue == EPILOGUE_ADD ? before + s : epilogue == EPILOGUE_MUL ? before * s : s;
}

KERNEL_TEST(products_and_epilogues_are_their_formulas, .loops = EPILOGUES)
{
    enum { OUT = 83, IN = 40, TOKENS = 2 }; /* groups of four panels and of two */
    float *weights = random_floats((size_t)kernel_padded(OUT) * IN), *bias = random_floats(OUT);
    float *x = random_floats(TOKENS * IN), *before = random_floats(TOKENS * OUT);
    float sums[TOKENS * OUT], y[TOKENS * OUT];
    const struct matrix w = {OUT, IN, STORAGE_F32, weights, bias};
    struct matmul m = {&w, x, IN, NULL, TOKENS, sums, OUT, EPILOGUE_STORE};
    kernels_scalar.matmul(&m, 0, matrix_panels(OUT));
    m.y = y;
    m.epilogue = (enum epilogue)_i;
    memcpy(y, before, sizeof y);
    kernels_scalar.matmul(&m, 0, matrix_panels(OUT));
    for (int k = 0; k < TOKENS * OUT; k++) {
        const int t = k / OUT, r = k % OUT;
        double sum = (double)bias[r];
        const float *column = weights + r / 64 * 64 * IN + r % 64;
        for (int i = 0; i < IN; i++, column += r < 64 ? 64 : 32)
            sum += (double)*column * (double)x[t * IN + i];
        ck_assert_double_eq_tol((double)sums[k], sum, 1e-5);
    }
    for (int i = 0; i < TOKENS * OUT; i++)
        ck_assert_double_eq_tol((double)y[i],
                                activated(m.epilogue, (double)sums[i], (double)before[i]), 2e-6);
}

/* A quantised product is the product of the dequantised matrix and the dequantised activations. */
KERNEL_TEST(quantised_matmul_is_a_product, .loops = 2)
{
    enum { OUT = 21, IN = 96, TOKENS = 2 };
    const enum storage storage = _i ? STORAGE_Q4_0 : STORAGE_Q8_0;
    unsigned char *panels = random_panels(OUT, IN, storage);
    float *x = random_floats(TOKENS * IN), y[TOKENS * OUT];
    unsigned char *rows = quantised(&kernels_scalar, x, IN, TOKENS, IN);
    const struct matrix w = {OUT, IN, storage, panels, NULL};
    const struct matmul m = {&w, x, IN, rows, TOKENS, y, OUT, EPILOGUE_STORE};
    kernels_scalar.matmul(&m, 0, matrix_panels(OUT));
    for (int k = 0; k < TOKENS * OUT; k++) {
        const int t = k / OUT, lane = k % OUT % 16;
        const unsigned char *panel =
            panels + (size_t)(k % OUT / 16) * matrix_panel_bytes(IN, storage);
        const uint16_t *scales = (const uint16_t *)(const void *)panel;
        const unsigned char *elements = panel + 128; /* 3 x 16 scales, padded to 64 */
        const unsigned char *row = rows + (size_t)t * quant_row_bytes(IN);
        double sum = 0;
        for (int i = 0; i < IN; i++) {
            float d;
            memcpy(&d, row + IN + i / 32 * 4, sizeof d);
            const double xq = (double)((const int8_t *)row)[i] * (double)d;
            ck_assert_double_eq_tol(xq, (double)x[t * IN + i], (double)d * 0.5001);
            const int in_block = i % 32, four = i / 32 * 256 + in_block % 16 / 4 * 64;
            const int byte = elements[(_i ? four : i / 4 * 64) + lane * 4 + i % 4];
            const int q = !_i ? byte - 128 : in_block < 16 ? byte % 16 - 8 : byte / 16 - 8;
            sum += (double)f16_widen(scales[i / 32 * 16 + lane]) * q * xq;
        }
        ck_assert_double_eq_tol((double)y[k], sum, 1e-4);
    }
}

/* Blocks have the largest sums that they can have, as a whole and in halves. */
KERNEL_TEST(extreme_blocks_equal_scalar, .loops = 2)
{
    enum { OUT = 16, IN = 64, TOKENS = 4 };
    static const unsigned char fills[] = {0x00, 0x01, 0x0f, 0xf0, 0xff};
    const enum storage storage = _i ? STORAGE_Q4_0 : STORAGE_Q8_0;
    const size_t bytes = (size_t)matrix_bytes(OUT, IN, storage), scales = matrix_scales_bytes(IN);
    unsigned char *panel = random_panels(OUT, IN, storage);
    float x[TOKENS * IN], a[TOKENS * OUT], b[TOKENS * OUT];
    static const int runs[TOKENS] = {IN, 1, 2, 16}; /* of one sign */
    for (int i = 0; i < TOKENS * IN; i++)
        x[i] = i % IN / runs[i / IN] % 2 ? -127.0f : 127.0f;
    const struct matrix w = {OUT, IN, storage, panel, NULL};
    for (size_t k = 0; k < COUNT(fills) * COUNT(fills); k++) {
        for (size_t i = scales; i < bytes; i++)
            panel[i] = fills[i / 2 % 2 ? k % COUNT(fills) : k / COUNT(fills)];
        void *rows = quantised(&kernels_scalar, x, IN, TOKENS, IN);
        const struct matmul of_a = {&w, x, IN, rows, TOKENS, a, OUT, EPILOGUE_STORE};
        struct matmul of_b = of_a;
        of_b.y = b;
        kernels_scalar.matmul(&of_a, 0, 1);
        for (const struct kernels *t = NULL; (t = next_vector(t));) {
            t->matmul(&of_b, 0, 1);
            assert_same_bits(a, b, TOKENS * OUT, t->name);
        }
    }
}

/* Every table quantises blocks of zeros, of tiny numbers, of one huge number, with infinities and
 * with NaNs as the scalar table does. */
KERNEL_TEST(quantize_equals_scalar)
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
    for (const struct kernels *k = NULL; (k = next_vector(k));) {
        unsigned char *found = quantised(k, x, STRIDE, TOKENS, N);
        ck_assert_msg(memcmp(found, expected, TOKENS * quant_row_bytes(N)) == 0, "%s differs",
                      k->name);
        for (int i = 0; i < 3 * N / QUANT_BLOCK; i++) { /* in the bits that a cache has */
            static const int bits[] = {8, 5, 4};
            const float *block = x + i / 3 * QUANT_BLOCK;
            uint8_t levels[2][QUANT_BLOCK];
            ck_assert_int_eq(kernels_scalar.levels(bits[i % 3], levels[0], block),
                             k->levels(bits[i % 3], levels[1], block));
            ck_assert_mem_eq(levels[0], levels[1], QUANT_BLOCK);
        }
    }
}

/* Norms are also computed in place. */
KERNEL_TEST(norms_equal_scalar, .loops = NORM_KINDS)
{
    static const int sizes[] = {1, 2, 15, 16, 17, 31, 64, 100, 768};
    for (const struct kernels *k = NULL; (k = next_vector(k));)
        for (size_t s = 0; s < 2 * COUNT(sizes); s++) {
            const size_t n = (size_t)sizes[s / 2];
            float *x = random_floats(n), *gain = random_floats(n), *shift = random_floats(n);
            float *a = allocated(n * sizeof *a), *b = allocated(n * sizeof *b);
            shift = s % 2 ? shift : NULL;
            kernels_scalar.norm(_i, a, x, gain, shift, (int)n, 1e-5f);
            k->norm(_i, b, x, gain, shift, (int)n, 1e-5f);
            assert_same_bits(a, b, n, k->name);
            k->norm(_i, x, x, gain, shift, (int)n, 1e-5f);
            assert_same_bits(a, x, n, k->name);
        }
}

/* Fills turn [2, n_rot] for random angles, and these. */
static float *random_turn(int n_rot, double *angles)
{
    float *turn = allocated(2 * (size_t)n_rot * sizeof *turn + 1);
    for (int i = 0; i < n_rot; i += 2) {
        angles[i / 2] = 10 * (double)random_float();
        turn[i] = turn[i + 1] = (float)cos(angles[i / 2]);
        turn[n_rot + i + 1] = (float)sin(angles[i / 2]);
        turn[n_rot + i] = -turn[n_rot + i + 1];
    }
    return turn;
}

/* A pair is a complex number, which is multiplied by e^(i angle); the rotation back undoes it. */
static void check_rotation(const struct kernels *k, const float *x, int n_rot, int n)
{
    double angles[64];
    float *turn = random_turn(n_rot, angles);
    float *expected = allocated((size_t)n * sizeof *expected), *out = copy_floats(x, (size_t)n);
    kernels_scalar.rotate(expected, x, turn, n_rot, n, 0.3f, false);
    k->rotate(out, out, turn, n_rot, n, 0.3f, false); /* in place */
    assert_same_bits(expected, out, (size_t)n, k->name);
    for (int i = 0; i < n_rot; i += 2) {
        const double c = 0.3 * cos(angles[i / 2]), s = 0.3 * sin(angles[i / 2]);
        ck_assert_double_eq_tol((double)out[i], (double)x[i] * c - (double)x[i + 1] * s, 3e-7);
        ck_assert_double_eq_tol((double)out[i + 1], (double)x[i] * s + (double)x[i + 1] * c, 3e-7);
    }
    for (int i = n_rot; i < n; i++)
        ck_assert_double_eq_tol((double)out[i], 0.3 * (double)x[i], 1e-7);
    kernels_scalar.rotate(expected, out, turn, n_rot, n, 2, true);
    k->rotate(out, out, turn, n_rot, n, 2, true);
    assert_same_bits(expected, out, (size_t)n, k->name);
    for (int i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)out[i], 0.6 * (double)x[i], 1e-6);
}

KERNEL_TEST(rotation)
{
    for (const struct kernels *k = NULL; (k = next_kernels(k));)
        for (int n = 1; n <= 80; n += n < 36 ? 1 : 11) {
            float *x = random_floats((size_t)n);
            for (int n_rot = 0; n_rot <= n; n_rot += 2)
                check_rotation(k, x, n_rot, n);
            release_all();
        }
}

/* A product with a single weight of 1 gives every table's epilogue sums of all magnitudes. */
KERNEL_TEST(epilogues_equal_scalar, .loops = EPILOGUES)
{
    enum { N = 4096 };
    static float x[N], a[N], b[N];
    static const float odd[] = {0, -0.0f, INFINITY, -INFINITY, 14, -14, 88, -88, -87, 1e-45f};
    float panel[KERNEL_LANES] = {1};
    const struct matrix w = {1, 1, STORAGE_F32, panel, NULL};
    for (int i = 0; i < N; i++)
        x[i] =
            i % 2 ? float_of(random_u32() % 0x7f800000 | random_u32() << 31) : 8 * random_float();
    memcpy(x, odd, sizeof odd);
    struct matmul m = {.w = &w,
                       .x = x,
                       .x_stride = 1,
                       .n_tokens = N,
                       .y = a,
                       .y_stride = 1,
                       .epilogue = (enum epilogue)_i};
    memset(a, 0x3f, sizeof a);
    kernels_scalar.matmul(&m, 0, 1);
    m.y = b;
    for (const struct kernels *k = NULL; (k = next_vector(k));) {
        memset(b, 0x3f, sizeof b);
        k->matmul(&m, 0, 1);
        for (int i = 0; i < N; i++)
            ck_assert_msg(memcmp(&a[i], &b[i], sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i])),
                          "%s: epilogue %d of %a is %a, not %a", k->name, _i, (double)x[i],
                          (double)b[i], (double)a[i]);
    }
}

/* The loops that measure must compute what they claim: a sum of small integers is exact in any
 * order, and chains that start apart end at their fixed point. */
KERNEL_TEST(measuring_loops)
{
    static float x[300];
    for (int i = 0; i < 300; i++)
        x[i] = (float)(i % 7);
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
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
    }
}

KERNEL_TEST(choosing_tables)
{
    const struct kernels *k = NULL;
    expect_ok(kernels_choose(NULL, &k, &err));
    ck_assert(kernels_supported(k));
    expect_ok(kernels_choose("scalar", &k, &err));
    ck_assert_ptr_eq(k, &kernels_scalar);
    /* A family's name gives its fastest member, a member's name the member. */
    for (const struct kernels *table = NULL; (table = next_kernels(table));) {
        expect_ok(kernels_choose(table->name, &k, &err));
        ck_assert_int_eq(strncmp(k->name, table->name, strlen(table->name)), 0);
    }
    ck_assert_int_eq(kernels_choose("avx", &k, &err), STATUS_USAGE);
    expect_status(kernels_choose("mmx", &k, &err), STATUS_USAGE, "mmx|scalar");
    ck_assert_int_eq(kernels_choose("", &k, &err), STATUS_USAGE);
}
