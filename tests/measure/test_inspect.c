/* Tests of what info prints: parts of a model, sizes of caches, values that are not finite. */
#include <stdlib.h>

#include "checkpoints.h"
#include "measure/inspect.h"
#include "support.h"

TEST(names_of_parts)
{
    static const struct {
        const char *name, *part;
    } cases[] = {{"token_embd.weight", "embedding"},
                 {"position_embd.weight", "position"},
                 {"blk.11.attn_qkv.bias", "attention"},
                 {"blk.3.attn_output.weight", "attention"},
                 {"blk.0.attn_norm.weight", "norms"},
                 {"blk.0.attn_q_norm.weight", "norms"},
                 {"blk.0.ffn_up.weight", "ffn"},
                 {"output_norm.weight", "norms"},
                 {"output.weight", "output"},
                 {"token_embd_norm.weight", "norms"},
                 {"blk.", "other"},
                 {"blk.0.", "other"},
                 {"rope_freqs.weight", "other"},
                 {"", "other"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_tensor tensor = {.name = text_of(cases[i].name), .n_elements = 3, .n_bytes = 5};
        const struct gguf g = {.tensors = &tensor, .n_tensors = 1};
        struct inspect_sum parts[INSPECT_PARTS + 1];
        inspect_parts(&(struct cost_shape){.gguf = &g}, parts);
        for (int k = 0; k < INSPECT_PARTS; k++)
            ck_assert_msg((parts[k].bytes == 5 && parts[k].parameters == 3) ==
                              str_is(parts[k].part, cases[i].part),
                          "%s", cases[i].name);
    }
}

/* 3 layers, 12 heads of 10, d_ff 7, context 100, vocabulary 9. */
static const struct config twelve = {SIZES(3, 12, 12, 10, 7, 100, 9), .d_model = 120,
                                     .biases = BIASES_NONE, .parts.no_norm_biases = true};
static const struct cost_shape shape = {.config = &twelve, .tied = true};

TEST(variants)
{
    static const int heads[] = {12, 6, 4, 3, 2, 1};
    static const char *const names[] = {"MHA", "GQA-6", "GQA-4", "GQA-3", "GQA-2", "MQA"};
    struct inspect_variants list;
    ck_assert_int_eq(inspect_list_variants(&shape, &list, NULL), STATUS_OK);
    ck_assert_int_eq(list.n, 6);
    for (int i = 0; i < 6; i++) {
        const struct inspect_variant *v = &list.items[i];
        ck_assert_int_eq(v->config.n_kv_heads, heads[i]);
        ck_assert_str_eq(v->name, names[i]);
        /* Values of 10 take the room of 16. */
        const uint64_t elements = 3 * (10 + 16) * (uint64_t)heads[i];
        ck_assert_uint_eq(v->token_bytes[0], 4 * elements);
        ck_assert_uint_eq(v->token_bytes[1], 2 * elements);
    }
    free(list.items);
}

/* Variants change fastest, then batches; steps that are added come last. */
TEST(steps_of_variants)
{
    struct inspect_settings settings = {.shape = "twelve",
                                        .depths = {{50, 0}, 2},
                                        .batches = {{1, 2}, 2},
                                        .kv_type = kv_type_of(CACHE_F16),
                                        .available_bytes = UINT64_MAX};
    struct inspect_variants list;
    struct inspect_steps steps = {NULL, 0};
    expect_ok(inspect_list_variants(&shape, &list, &err));
    expect_ok(inspect_add_steps(&steps, &list, &settings, &err));
    settings.shards = 4;
    settings.available_bytes = 1;
    expect_ok(inspect_add_steps(&steps, &list, &settings, &err));
    ck_assert_int_eq(steps.n, 2 * 6 * 4);
    for (int i = 0; i < steps.n; i++) {
        const struct inspect_step *s = &steps.items[i];
        ck_assert_str_eq(s->variant, list.items[i % 6].name);
        ck_assert_int_eq(s->of.batch, 1 + i / 6 % 2);
        ck_assert_int_eq(s->of.depth, i / 12 % 2 ? 0 : 50);
        ck_assert(s->fits == (i < 24) && (s->shard.n_kv_heads > 0) == (i >= 24));
        ck_assert_str_eq(s->of.kv_type.text, "f16");
    }
    free(steps.items);
    free(list.items);
}

/* What a shard holds is worked out by hand, for 12 query heads of 10 over G K/V heads. */
TEST(shards)
{
    static const struct {
        int g, n, held;
        double copies;
    } cases[] = {{12, 1, 12, 1}, {12, 3, 4, 1}, {4, 4, 1, 1},           {1, 4, 1, 4},
                 {2, 4, 1, 2},   {4, 6, 2, 2},  {6, 4, 2, 4 * 2 / 6.0}, {1, 12, 1, 12}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int n = cases[i].n;
        struct inspect_variant v;
        inspect_variant(&shape, cases[i].g, &v);
        const struct cost_plan step = cost_plan(&v.shape, &v.weights, kv_type_of(CACHE_F16), 50, 2);
        const struct inspect_shard s = inspect_shard(&v, &step, kv_type_of(CACHE_F16), n);
        ck_assert_int_eq(s.n_kv_heads, cases[i].held);
        ck_assert_double_eq_tol(s.copies, cases[i].copies, 1e-12);
        /* Values of 10 take the room of 16. */
        ck_assert_uint_eq(s.cache_bytes, 50 * 2 * 3 * (10 + 16) * 2 * (uint64_t)cases[i].held);
        /* Rows of Q, K and V of 120, of the output of as many as there are heads of 10, of the
         * feed-forward layer of a part of 7, of the embedding of a part of 9; in panels of 16. */
        const uint64_t own = 12 / (uint64_t)n * 10, ff = (7 + (uint64_t)n - 1) / (uint64_t)n;
        const uint64_t qkv = own + 2 * 10 * (uint64_t)cases[i].held;
        const uint64_t panels = (qkv + 15) / 16 * 16 * 120 + 128 * own + 16 * 120 + 128 * ff;
        ck_assert_uint_eq(s.weight_bytes,
                          4 * (3 * (panels + 2 * 120) + 120 + 16 * 120 + 100 * 120));
    }
}

/* GPT-2's parameters by parts, worked out by hand: a layer's attention is 4 x 768^2 and 3 x 768 +
 * 768 biases. */
TEST(parts_of_a_shape)
{
    static const uint64_t expected[INSPECT_PARTS] = {
        50257 * 768, 1024 * 768, 12 * (4 * 768 * 768 + 4 * 768), 12 * (2 * 768 * 3072 + 3072 + 768),
        25 * 2 * 768};
    struct config c =
        config_sized("gpt2", "layers=12 width=768 heads=12 ff=3072 vocab=50257 ctx=1024");
    struct inspect_sum parts[INSPECT_PARTS + 1];
    uint64_t sum = 0;
    config_complete(&c);
    struct cost_shape gpt2 = {.config = &c, .storage = STORAGE_F32, .tied = true};
    inspect_parts(&gpt2, parts);
    for (int i = 0; i <= INSPECT_PARTS; i++) {
        ck_assert_uint_eq(parts[i].parameters, i < INSPECT_PARTS ? expected[i] : sum);
        ck_assert_uint_eq(parts[i].bytes, 4 * parts[i].parameters);
        sum += parts[i].parameters;
    }
    /* Q8_0 is 34 bytes for 32 numbers; norms, biases and positions stay F32. */
    gpt2.storage = STORAGE_Q8_0;
    inspect_parts(&gpt2, parts);
    ck_assert_uint_eq(parts[0].bytes, 50257 * 768 / 32 * 34);
    ck_assert_uint_eq(parts[1].bytes, 1024 * 768 * 4);
    ck_assert_uint_eq(parts[2].bytes, 12 * (4 * 768 * 768 / 32 * 34 + 4 * 768 * 4));
    ck_assert_uint_eq(parts[4].bytes, 25 * 2 * 768 * 4);
}

#define BYTES(literal) literal, sizeof literal - 1
#define ZEROS_4        "\0\0\0\0"
#define ZEROS_16       ZEROS_4 ZEROS_4 ZEROS_4 ZEROS_4
#define ZEROS_32       ZEROS_16 ZEROS_16

TEST(values_and_scales)
{
    static const struct {
        uint32_t type;
        const char *data;
        size_t len;
        int64_t nan, inf;
        uint64_t first;
    } cases[] = {
        /* 1, the largest; the same, minus infinity, two NaNs, a denormal. */
        {TENSOR_F32, BYTES("\0\0\x80\x3f\xff\xff\x7f\x7f"), 0, 0, 0},
        {TENSOR_F32,
         BYTES("\0\0\x80\x3f\xff\xff\x7f\x7f\0\0\x80\xff\1\0\x80\x7f\0\0\xc0\xff\1\0\0\0"), 2, 1,
         2},
        /* The largest, infinity, a NaN; the largest, a NaN, infinity. */
        {TENSOR_F16, BYTES("\xff\x7b\0\x7c\1\xfc"), 1, 1, 1},
        {TENSOR_BF16, BYTES("\x7f\x7f\x81\x7f\x80\xff"), 1, 1, 1},
        /* The second block's scale is infinite, quants may have any bits; the third's is a NaN. */
        {TENSOR_Q8_0, BYTES("\0\0\0\0\xff\xff" ZEROS_4 ZEROS_4 ZEROS_4 ZEROS_16 "\0\x7c" ZEROS_32),
         0, 1, 32},
        {TENSOR_Q4_0, BYTES("\0\0" ZEROS_16 "\0\0" ZEROS_16 "\1\x7c" ZEROS_16), 1, 0, 64},
        {12, BYTES(""), -1, -1, 0}, /* Q4_K */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct tensor_type_info *info = tensor_type_find(cases[i].type);
        const struct gguf_tensor t = {
            .type = info, .n_bytes = cases[i].len, .data = (const unsigned char *)cases[i].data};
        struct inspect_checks all = {.n = 0};
        const struct inspect_check c = inspect_check_tensor(&t, &all);
        ck_assert_msg(c.nan == cases[i].nan && c.inf == cases[i].inf && c.first == cases[i].first,
                      "case %zu: %d, %d, %d", i, (int)c.nan, (int)c.inf, (int)c.first);
        ck_assert(c.nan < 0 || c.scales_only == (info->block_elements > 1));
        ck_assert(all.n == (c.nan >= 0) && all.nan + all.inf == MAX(c.nan + c.inf, 0));
        ck_assert_int_eq(all.bad.text[0] != 0, c.nan + c.inf > 0);
    }
}
