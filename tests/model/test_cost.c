/* Compares what a step costs with figures worked out by hand. */
#include <limits.h>

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

static struct cost_plan plan_of(const struct cost_shape *s, int depth, int batch)
{
    const struct cost_weights w = cost_weights(s);
    return cost_plan(s, &w, kv_type_of(CACHE_F32), depth, batch);
}

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
        struct config c = shape;
        c.n_kv_heads = cases[i].n_kv_heads;
        const struct cost_shape s = {&c, cases[i].storage, cases[i].tied, NULL, NULL};
        const struct cost_flops f = plan_of(&s, 9, 1).each;
        ck_assert_uint_eq(cost_weights(&s).parameters, cases[i].parameters);
        if (cases[i].step_bytes)
            ck_assert_uint_eq(cost_weights(&s).step_bytes, cases[i].step_bytes);
        if (cases[i].floats || cases[i].quants)
            ck_assert(f.floats == cases[i].floats && f.quants == cases[i].quants);
        ck_assert_uint_eq(f.attention, 2 * 2 * 1280);
        ck_assert_uint_eq(plan_of(&s, 0, 1).each.attention, 2 * 2 * 128);
        ck_assert_uint_eq(f.weights, 2 * KERNEL_WEIGHT_FMAS * 10 * 2 * 4);
    }
    struct config no_biases = shape;
    no_biases.biases = BIASES_NONE;
    no_biases.parts.no_norm_biases = true;
    const struct cost_shape bare = {&no_biases, STORAGE_F32, false, NULL, false};
    ck_assert_uint_eq(cost_weights(&bare).step_bytes,
                      4 * (2 * (MATRICES + 128) + 64 + 304 * 64 + 64 + 64));
}

/* A model takes what is counted, and little more for lists of tensors and for rows. */
TEST(memory_bytes)
{
    struct config c = {SIZES(3, 4, 2, 0, 1024, 64, 1000), .d_model = 256};
    static const enum storage types[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0, STORAGE_Q4_0};
    config_set_arch(&c, arch_preset(text_of("gpt2")));
    config_complete(&c);
    for (int i = 0; i < 4; i++) {
        struct model *m;
        expect_ok(model_create_random(&c, types[i], 1, &m, &err));
        const struct cost_shape s = {&c, types[i], false, NULL, false};
        const uint64_t counted = cost_weights(&s).memory_bytes, taken = m->weights.cap;
        ck_assert_uint_ge(taken, counted);
        ck_assert_uint_le(taken - counted, taken / 50);
        model_free(m);
    }
}

TEST(a_step_of_a_batch)
{
    const struct cost_shape s = {&shape, STORAGE_F32, false, NULL, false};
    const struct cost_plan one = plan_of(&s, 9, 1), many = plan_of(&s, 9, 64);
    /* Keys and values of 16 numbers, for each of 4 heads of 2 layers. */
    ck_assert_uint_eq(one.kv_bytes, 9 * 2 * 4 * (16 + 16) * 4);
    ck_assert_uint_eq(many.kv_bytes, one.kv_bytes);
    ck_assert_uint_eq(many.step_bytes, one.weight_bytes + 64 * one.kv_bytes);
    ck_assert_uint_eq(many.flops, 64 * one.flops);
    ck_assert_uint_eq(many.cache_bytes, 64 * one.kv_bytes);
    /* Room for ten keys is a panel of 16, for as many values ten rows. */
    ck_assert_uint_eq(many.allocated_bytes, 64 * 2 * 4 * (16 * 16 + 10 * 16) * 4);
    ck_assert_uint_eq(many.memory_bytes, many.weights_memory + many.allocated_bytes);

    /* These figures are larger than can be counted. */
    struct config huge = shape;
    huge.n_ctx = 1 << 30;
    const struct cost_shape h = {&huge, STORAGE_F32, false, NULL, false};
    const struct cost_plan all = plan_of(&h, (1 << 30) - 1, INT_MAX);
    ck_assert(all.cache_bytes == UINT64_MAX && all.step_bytes == UINT64_MAX &&
              all.allocated_bytes == UINT64_MAX && all.memory_bytes == UINT64_MAX);
}

/* Ten tokens see 1 to 10 positions, about 5 each, and one of them meets the output matrix; where
 * memory is slow, the weights' bytes take longer. */
TEST(a_prompt_has_logits_once)
{
    const struct cost_shape s = {&shape, STORAGE_F32, false, NULL, false};
    const struct cost_weights w = cost_weights(&s);
    const double output = 2 * 300 * 64, each = w.floats - output + 4 * 5 * 128;
    const double us = (10 * (each + 2 * KERNEL_WEIGHT_FMAS * 5 * 2 * 4) + output) / 1e3;
    const struct cost_time quick = cost_prompt(&s, &w, 10, &(struct roofline){1e12, 1e9, 1});
    const struct cost_time slow = cost_prompt(&s, &w, 10, &(struct roofline){1e3, 1e9, 1});
    ck_assert_double_eq_tol(quick.us, us, 1e-9 * us);
    ck_assert_double_eq_tol(quick.tokens_per_s * quick.us, 1e7, 1);
    ck_assert_double_eq_tol(slow.us, (double)w.step_bytes * 1e3, 1);
}

/* A step has 4,000 bytes of weights and 1,000 of each cache; at 1 GB/s a byte takes a nanosecond.
 */
TEST(predictions)
{
    static const struct {
        struct cost_flops each;
        int batch;
        double gb_per_s, us;
    } cases[] = {
        /* One sequence waits for bytes: 4 us and 1 us, longer than 0.1 + 0.8 and 0.5. */
        {{100, 3200, 500, 0}, 1, 1, 5},
        /* With ten the products wait for arithmetic, 9 us, and the caches still for bytes, 10. */
        {{100, 3200, 500, 0}, 10, 1, 19},
        /* Where memory is fast both wait for arithmetic: 9 + 5. */
        {{100, 3200, 500, 0}, 10, 8, 14},
        {{100, 3200, 50000, 0}, 10, 8, 509},
        /* Exponentials are a part of attention: 9 + 10 * (0.5 + 1). */
        {{100, 3200, 500, 1000}, 10, 8, 24},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct cost_plan p = {
            .batch = cases[i].batch, .weight_bytes = 4000, .kv_bytes = 1000, .each = cases[i].each};
        cost_predict(&p, &(struct roofline){.bytes_per_s = cases[i].gb_per_s * 1e9,
                                            .fma_flops_per_s = 1e9,
                                            .dot_flops_per_s = 4e9});
        ck_assert_double_eq_tol(p.predicted.us, cases[i].us, 1e-9);
        ck_assert_double_eq_tol(p.predicted.tokens_per_s, cases[i].batch * 1e6 / cases[i].us, 1e-3);
        ck_assert_double_eq(p.bandwidth_gb_per_s, cases[i].gb_per_s);
    }
}

/* On a machine of two processors one thread and two took as long at some size, and 4 x 64 (853 kB)
 * is just beyond it. More sequences are more work; usual shapes are far beyond. */
TEST(short_steps_are_for_one_thread)
{
    static const struct {
        const char *sizes;
        int batch;
        bool one;
    } cases[] = {
        {"layers=2 width=32 heads=4 ff=128 vocab=256 ctx=256", 1, true},
        {"layers=2 width=32 heads=4 ff=128 vocab=256 ctx=256", 64, false},
        {"layers=4 width=64 heads=4 ff=256 vocab=256 ctx=256", 1, false},
        {"layers=4 width=128 heads=8 ff=512 vocab=256 ctx=1024", 1, false},
        {"layers=12 width=768 heads=12 ff=3072 vocab=50257 ctx=1024", 1, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct config c = config_sized("gpt2", cases[i].sizes);
        config_complete(&c);
        const struct cost_shape s = {&c, STORAGE_F32, true, NULL, false};
        const struct cost_plan p = plan_of(&s, 0, cases[i].batch);
        ck_assert_msg(cost_prefers_one_thread(&p, c.n_layers) == cases[i].one, "%s, batch %d",
                      cases[i].sizes, cases[i].batch);
    }
}

/* The shape's figures are those of the file's tensors. */
TEST(files_agree, .loops = N_GOLDEN)
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
}
