/* Compares quantised rows with bytes that the ggml project's Python code made
 * (tests/formats/make_blocks.py), and tests values for which that code has no rule. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

#define BLOCK 32

static const struct coded_type {
    uint32_t type;
    const char *encoded, *decoded; /* golden files; decoded: NULL for what is exact */
} types[] = {
    {TENSOR_F32, "tests/data/blocks/x.f32", NULL},
    {TENSOR_F16, "tests/data/blocks/x.f16", NULL},
    {TENSOR_BF16, "tests/data/blocks/x.bf16", NULL},
    {TENSOR_Q8_0, "tests/data/blocks/x.q8_0", "tests/data/blocks/q8_0.f32"},
    {TENSOR_Q4_0, "tests/data/blocks/x.q4_0", "tests/data/blocks/q4_0.f32"},
};
#define N_TYPES (int)(COUNT(types))

TEST(which_types)
{
    int n = 0;
    for (uint32_t type = 0; type < 100; type++)
        n += blocks_runs(type);
    ck_assert_int_eq(n, N_TYPES);
    for (int i = 0; i < N_TYPES; i++)
        ck_assert(blocks_runs(types[i].type));
}

/* Rows are encoded and decoded at addresses without a type's alignment. */
TEST(golden_bytes, .loops = N_TYPES)
{
    const struct coded_type *t = &types[_i];
    size_t n_bytes, n_encoded, n_decoded;
    float *x = (float *)(void *)file_text("tests/data/blocks/x.f32", &n_bytes);
    const char *encoded = file_text(t->encoded, &n_encoded);
    const size_t n = n_bytes / sizeof *x;
    unsigned char *found = allocated(n_encoded + 1);
    float *y = allocated(n_bytes);
    ck_assert_uint_eq(n, 63 * BLOCK);

    blocks_encode(t->type, found + 1, x, n);
    ck_assert_mem_eq(found + 1, encoded, n_encoded);
    blocks_decode(t->type, y, found + 1, n);
    if (t->decoded) {
        const char *decoded = file_text(t->decoded, &n_decoded);
        ck_assert_uint_eq(n_decoded, n_bytes);
        for (size_t i = 0; i < n; i++) {
            float expected;
            memcpy(&expected, decoded + i * sizeof expected, sizeof expected);
            ck_assert_msg(y[i] == expected, "element %zu: %a, expected %a", i, (double)y[i],
                          (double)expected);
        }
    }
    /* Any part alone gives the same, because blocks do not depend on each other. */
    const size_t part = n_encoded / 63;
    unsigned char alone[BLOCK * sizeof(float)];
    for (size_t b = 0; b < 63; b++) {
        blocks_encode(t->type, alone, x + b * BLOCK, BLOCK);
        ck_assert_mem_eq(alone, encoded + b * part, part);
    }
    blocks_encode(t->type, found, NULL, 0);
    blocks_decode(t->type, NULL, found, 0);
}

/* Blocks of random bits, of each type that is only read, are decoded as the gguf package decodes
 * them. */
TEST(golden_widened, .loops = 9)
{
    static const struct {
        const char *name;
        enum tensor_type type, in_memory;
    } read_only[] = {
        {"q4_1", TENSOR_Q4_1, TENSOR_Q8_0},     {"q5_0", TENSOR_Q5_0, TENSOR_Q8_0},
        {"q5_1", TENSOR_Q5_1, TENSOR_Q8_0},     {"q2_k", TENSOR_Q2_K, TENSOR_Q8_0},
        {"q3_k", TENSOR_Q3_K, TENSOR_Q8_0},     {"q4_k", TENSOR_Q4_K, TENSOR_Q8_0},
        {"q5_k", TENSOR_Q5_K, TENSOR_Q8_0},     {"q6_k", TENSOR_Q6_K, TENSOR_F16},
        {"iq4_nl", TENSOR_IQ4_NL, TENSOR_Q8_0},
    };
    const char *name = read_only[_i].name;
    char path[64];
    size_t n_encoded, n_bytes;
    float y[768];
    snprintf(path, sizeof path, "tests/data/blocks/x.%s", name);
    const char *encoded = file_text(path, &n_encoded);
    snprintf(path, sizeof path, "tests/data/blocks/%s.f32", name);
    const float *expected = (float *)(void *)file_text(path, &n_bytes);
    ck_assert_uint_eq(n_bytes, sizeof y);
    ck_assert_uint_eq(n_encoded, tensor_type_bytes(tensor_type_find(read_only[_i].type), 768));
    blocks_decode(read_only[_i].type, y, encoded, 768);
    for (int i = 0; i < 768; i++)
        ck_assert_msg(y[i] == expected[i], "%s, element %d: %a, expected %a", name, i, (double)y[i],
                      (double)expected[i]);
    ck_assert(!blocks_runs(read_only[_i].type));
    ck_assert_uint_eq(blocks_in_memory(read_only[_i].type), read_only[_i].in_memory);
}

/* The bytes are those of llama-quantize, which gives Q4_0's zeros the scale 0 / -8. */
TEST(zeros_and_denormals)
{
    static const struct {
        float even, odd;
        unsigned q8_0, d, q4_0; /* elements of Q8_0, whose d is 0; d and bytes of Q4_0 */
    } cases[] = {
        {0, 0, 0, 0x8000, 0x88},
        {-0.0f, -0.0f, 0, 0x8000, 0x88},
        {-0x1p-144f, 0x1p-145f, 0, 0, 0}, /* so small that 1 / d overflows */
        /* d underflows to 0 as F16, but the quotients are as of any other block. */
        {127 * 0x1p-60f, 127 * 0x1p-60f, 127, 0x8000, 0},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        float x[BLOCK];
        unsigned char found[34], expected[34] = {0, 0};
        for (int i = 0; i < BLOCK; i++)
            x[i] = i % 2 ? cases[c].odd : cases[c].even;
        memset(expected + 2, (int)cases[c].q8_0, 32);
        blocks_encode(TENSOR_Q8_0, found, x, BLOCK);
        ck_assert_mem_eq(found, expected, 34);
        expected[1] = (unsigned char)(cases[c].d >> 8);
        memset(expected + 2, (int)cases[c].q4_0, 16);
        blocks_encode(TENSOR_Q4_0, found, x, BLOCK);
        ck_assert_mem_eq(found, expected, 18);
    }
}

/* Q8_0 rounds ties away from zero, and numbers just below a tie towards it. */
TEST(ties)
{
    const float below = nextafterf(0.5f, 0);
    const float x[BLOCK] = {127, 0.5f, -0.5f, 1.5f, -1.5f, 2.5f, below, -below, 126.5f, -126.5f};
    const int8_t q[BLOCK] = {127, 1, -1, 2, -2, 3, 0, 0, 127, -127};
    unsigned char found[34];
    blocks_encode(TENSOR_Q8_0, found, x, BLOCK);
    ck_assert_mem_eq(found + 2, q, BLOCK);

    /* Q4_0: d = -8 / -8, so q = floor(x + 8.5), at most 15. */
    const float y[BLOCK] = {-8, -7.5f, -0.5f, 0.5f, 7, 7.5f, 8};
    const uint8_t low[BLOCK / 2] = {0, 1, 8, 9, 15, 15, 15, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    blocks_encode(TENSOR_Q4_0, found, y, BLOCK);
    ck_assert_uint_eq(found[0] | found[1] << 8, 0x3c00);
    for (int j = 0; j < BLOCK / 2; j++)
        ck_assert_uint_eq(found[2 + j], low[j] | 8 << 4);

    /* Of two numbers that are equally large the first one gives the sign. */
    const float first[BLOCK] = {1, 8, -8}, second[BLOCK] = {1, -8, 8};
    blocks_encode(TENSOR_Q4_0, found, first, BLOCK);
    ck_assert_uint_eq(found[1], 0xbc);
    blocks_encode(TENSOR_Q4_0, found, second, BLOCK);
    ck_assert_uint_eq(found[1], 0x3c);
}

/* Nothing undefined happens, and the result is recognised as not finite. */
TEST(not_finite, .loops = N_TYPES)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN, 3e38f, -3e38f};
    const uint32_t type = types[_i].type;
    for (size_t b = 0; b < COUNT(bad); b++) {
        float x[BLOCK], y[BLOCK];
        unsigned char encoded[BLOCK * sizeof(float)];
        for (int i = 0; i < BLOCK; i++)
            x[i] = (float)(i - 16);
        x[19] = bad[b];
        blocks_encode(type, encoded, x, BLOCK);
        blocks_decode(type, y, encoded, BLOCK);
        if (type == TENSOR_F32 || type == TENSOR_BF16)
            ck_assert_int_eq(!isfinite(y[19]), !isfinite(bad[b]));
        else
            ck_assert(!isfinite(y[19]));
        ck_assert(isnan(y[19]) || !isnan(bad[b]));
    }
}
