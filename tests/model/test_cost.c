/* What a step costs against figures worked out by hand. */
#include <string.h>

#include "checkpoints.h"
#include "golden.h"
#include "model/cost.h"
#include "support.h"

/* 2 layers, 4 heads of 16, d_model 64, d_ff 256, vocabulary 300, context 32. */
static const struct config shape = {SIZES(2, 4, 4, 16, 256, 32, 300), .d_model = 64};

/* A layer, MHA: QKV 192 x 64, out 64 x 64, up 256 x 64, down 64 x 256 = 49,152; norms 4 x 64;
 * biases 192 + 64 + 256 + 64 = 576. The last norm has 128; embedding and output 300 x 64 each,
 * positions 32 x 64. */
#define MATRICES 49152
#define VECTORS  (256 + 576)
#define ALL      (2 * (MATRICES + VECTORS) + 128 + 2 * 19200 + 2048)

TEST(figures_of_a_shape)
{
    /* A step reads all but the embedding table and the positions, of which it needs a row each; the
     * output's 300 rows fill 19 panels of 16, 304 rows. F16 halves the matrices and the embedding
     * row; vectors and positions stay F32. Flops: two for each weight of the products, and for
     * scores and values 2 x d_model a position and layer, the token's own included. */
    static const struct {
        int n_kv_heads;
        enum storage storage;
        bool tied;
        uint64_t parameters, step_bytes, floats, quants; /* 0: not looked at */
    } cases[] = {
        {4, STORAGE_F32, false, ALL, 4 * (2 * (MATRICES + VECTORS) + 128 + 304 * 64 + 64 + 64),
         2 * (2 * MATRICES + 300 * 64), 0},
        {4, STORAGE_F16, false, ALL,
         2 * (2 * MATRICES + 304 * 64 + 64) + 4 * (2 * VECTORS + 128 + 64), 0, 0},
        {4, STORAGE_Q8_0, false, ALL, 0, 0, 2 * (2 * MATRICES + 300 * 64)},
        {4, STORAGE_F32, true, ALL - 19200, 0, 0, 0},
        /* MQA drops 3 of 4 K and V heads: 2 x 3 x 16 rows of 64 and their biases, a layer. */
        {1, STORAGE_F32, false, ALL - 2 * (96 * 64 + 96), 0,
         2 * (2 * (MATRICES - 96 * 64) + 300 * 64), 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct cost_shape s = {
            &shape, cases[i].n_kv_heads, cases[i].storage, cases[i].tied, NULL, NULL};
        const struct cost_flops f = cost_of(&s, STORAGE_F32, 9).flops;
        ck_assert_uint_eq(cost_weights(&s).parameters, cases[i].parameters);
        if (cases[i].step_bytes)
            ck_assert_uint_eq(cost_weights(&s).step_bytes, cases[i].step_bytes);
        if (cases[i].floats || cases[i].quants)
            ck_assert(f.floats == cases[i].floats && f.quants == cases[i].quants);
        ck_assert_uint_eq(f.attention, 2 * 2 * 1280);
        ck_assert_uint_eq(cost_of(&s, STORAGE_F32, 0).flops.attention, 2 * 2 * 128);
        ck_assert_uint_eq(f.weights, 2 * KERNEL_WEIGHT_FMAS * 10 * 2 * 4);
    }
    struct config no_biases = shape;
    no_biases.no_biases = no_biases.no_norm_biases = true;
    const struct cost_shape bare = {&no_biases, 4, STORAGE_F32, false, NULL, NULL};
    ck_assert_uint_eq(cost_weights(&bare).step_bytes,
                      4 * (2 * (MATRICES + 128) + 64 + 304 * 64 + 64 + 64));
}

/* A model takes what is counted, and little more: lists of its tensors, room for rows. */
TEST(memory_bytes)
{
    struct config c = {SIZES(3, 4, 2, 0, 1024, 64, 1000), .d_model = 256};
    static const enum storage types[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0, STORAGE_Q4_0};
    config_set_arch(&c, arch_preset(text_of("gpt2")));
    config_complete(&c);
    for (int i = 0; i < 4; i++) {
        struct model *m;
        expect_ok(model_create_random(&c, types[i], 1, &m, &err));
        const struct cost_shape s = {&c, 2, types[i], false, NULL, NULL};
        const uint64_t counted = cost_weights(&s).memory_bytes, taken = m->weights.cap;
        ck_assert_uint_ge(taken, counted);
        ck_assert_uint_le(taken - counted, taken / 50);
        model_free(m);
    }
}

TEST(a_step_of_a_batch)
{
    const struct cost c = {4000, 1000, {.floats = 100, .quants = 3200, .attention = 500}};
    ck_assert(cost_step_bytes(&c, 1) == 5000 && cost_step_bytes(&c, 64) == 68000);
    const struct cost huge = {.weight_bytes = 1, .kv_bytes = UINT64_MAX / 2};
    ck_assert(cost_step_bytes(&huge, 2) == UINT64_MAX && cost_step_bytes(&huge, 3) == UINT64_MAX);
    ck_assert_uint_eq(cost_step_flops(&c, 64), 64 * 3800);
    const struct roofline limits = {
        .bytes_per_s = 1e9, .fma_flops_per_s = 1e9, .dot_flops_per_s = 4e9};
    /* One sequence waits for bytes: 4 us against 0.1 + 0.8, 1 against 0.5. */
    ck_assert_double_eq_tol(cost_predict(&c, 1, &limits).us, 5, 1e-9);
    /* Of ten the products wait for arithmetic, 9 us, the caches still for bytes, 10. */
    ck_assert_double_eq_tol(cost_predict(&c, 10, &limits).us, 19, 1e-9);
    /* And where memory is fast both do: 9 + 5. */
    const struct roofline near = {
        .bytes_per_s = 8e9, .fma_flops_per_s = 1e9, .dot_flops_per_s = 4e9};
    ck_assert_double_eq_tol(cost_predict(&c, 10, &near).us, 14, 1e-9);
    ck_assert_str_eq(cost_predict(&c, 1, &limits).limited_by, "weight bytes");
    ck_assert_str_eq(cost_predict(&c, 10, &limits).limited_by, "cache bytes");
    ck_assert_str_eq(cost_predict(&c, 10, &near).limited_by, "product flops");
    const struct cost deep = {4000, 1000, {.floats = 100, .quants = 3200, .attention = 50000}};
    ck_assert_str_eq(cost_predict(&deep, 10, &near).limited_by, "attention flops");
    /* Exponentials are a part of attention: 9 + 10 * (0.5 + 1). */
    const struct cost steep = {
        4000, 1000, {.floats = 100, .quants = 3200, .attention = 500, .weights = 1000}};
    ck_assert_double_eq_tol(cost_predict(&steep, 10, &near).us, 24, 1e-9);
}

/* Of the golden ones in which types differ, or some biases are zeros beside others. */
static const char uneven[] = "mixed-quadratic mixed-none";

/* The shape's figures equal what a loaded model adds up to, and what is in the file. */
TEST(models_agree, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    const struct model *m = g.checkpoint.model;
    const struct gguf *file = g.checkpoint.gguf;
    struct cost_shape s;
    uint64_t elements = 0;
    ck_assert(cost_shape_of_file(file, &m->config, &s));
    for (size_t i = 0; i < file->n_tensors; i++)
        if (!m->tied || !text_is(file->tensors[i].name, "output.weight"))
            elements += file->tensors[i].n_elements; /* an embedding written twice counts once */
    ck_assert_uint_eq(cost_weights(&s).parameters, elements);
    ck_assert_int_eq(s.tied, m->tied);
    const struct cost_shape of_model = cost_shape_of_model(m);
    const struct cost loaded = cost_of(&of_model, STORAGE_F32, 7),
                      expected = cost_of(&s, STORAGE_F32, 7);
    ck_assert_mem_eq(&loaded.flops, &expected.flops, sizeof loaded.flops);
    ck_assert_uint_eq(loaded.kv_bytes, expected.kv_bytes);
    if (strncmp(golden_names[_i], "mixed-", 6) != 0 || !strstr(uneven, golden_names[_i]))
        ck_assert_uint_eq(cost_weights(&of_model).step_bytes, cost_weights(&s).step_bytes);
}
