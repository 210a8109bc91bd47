/*
 * Hostile checkpoints with latent caches against the whole program: ranks that cannot be, tensors
 * of other shapes than they say, and kinds that such a cache cannot have (classes 6, 7 and 8, as in
 * test_bad_input_model.c).
 */
#include <stdio.h>

#include "bent.h"
#include "checkpoints.h"

#define KEY "decode.attention.latent"

/* Conversion refuses what is latent before all else. */
#define READERS (MODEL_READERS & ~CONVERT)
#define LOADERS (READERS & ~(INFO | CHECK))

static void use(const char *arch, int rank, const struct config *kinds)
{
    struct config c = *kinds;
    c.arch = arch_preset(text_of(arch));
    c.n_layers = 2;
    c.n_heads = 4;
    c.d_model = 32;
    c.d_ff = 64;
    c.n_ctx = 16;
    c.n_vocab = 260;
    c.norm_eps = 1e-5f;
    c.latent[0] = c.latent[1] = rank;
    hostile_free(&h);
    write_config_checkpoint(good_path, &c);
    hostile_open(&h);
}

static void set_up(void)
{
    bent_set_up();
    use("decode", 12, &(struct config){.n_layers = 2});
}

static void set_ranks(int n, const int32_t *ranks)
{
    hostile_set_array(&h, KEY, GGUF_I32, (uint64_t)n, ranks, (size_t)n * sizeof *ranks);
}

TEST(ranks_that_cannot_be, .before = set_up, .after = bent_tear_down)
{
    static const struct {
        int n; /* 0: a number */
        int32_t ranks[3];
        const char *text;
    } cases[] = {
        {0,
         {33},
         KEY ": expected a rank from 1 to 32 in every layer, or 0 for none in all; found 33"},
        {0, {-1}, "or 0 for none in all; found -1"},
        {0, {INT32_MAX}, "found 2147483647"},
        {2,
         {12, 33},
         "expected a rank from 1 to 32 in every layer, or 0 for none in all; found 33"},
        {2, {12, 0}, "expected a rank from 1 to 32 in every layer, or 0 for none in all; found 0"},
        {2, {0, 12}, "found 0"},
        {1, {12}, KEY ": expected one number a layer, 2, found 1"},
        {3, {12, 12, 12}, "expected one number a layer, 2, found 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].n > 0)
            set_ranks(cases[i].n, cases[i].ranks);
        else
            hostile_set(&h, KEY, GGUF_I32, cases[i].ranks, sizeof *cases[i].ranks);
        expect_bent_refused(READERS, cases[i].text);
    }
    hostile_set_array(&h, KEY, GGUF_I32, 0, "", 0);
    expect_bent_refused(READERS, "expected one number a layer, 2, found 0");
}

TEST(ranks_that_are_none, .before = set_up, .after = bent_tear_down)
{
    const float x = 12;
    hostile_set(&h, KEY, GGUF_F32, &x, sizeof x);
    expect_bent_refused(READERS, KEY ": expected integers, found f32");
    hostile_set_text(&h, KEY, text_of("12"));
    expect_bent_refused(READERS, "expected integers, found string");
    hostile_set(&h, KEY, GGUF_BOOL, "\1", 1);
    expect_bent_refused(READERS, "expected integers, found bool");
    hostile_set_array(&h, KEY, GGUF_F32, 2, (const float[]){12, 12}, 8);
    expect_bent_refused(READERS, KEY ": expected integers, found f32");
}

/* A rank of so many heads would be more rows than are counted. */
TEST(too_many_heads, .before = set_up, .after = bent_tear_down)
{
    hostile_set_u32(&h, "decode.embedding_length", 1 << 16);
    hostile_set_u32(&h, "decode.attention.head_count", 1 << 16);
    hostile_set_u32(&h, "decode.attention.head_count_kv", 1 << 16);
    hostile_set_u32(&h, KEY, 257);
    expect_bent_refused(READERS, KEY ": expected a rank from 1 to 256 in every layer");
}

TEST(kinds_that_cannot_be, .before = set_up, .after = bent_tear_down)
{
    hostile_set_text(&h, "decode.position.type", text_of("rope"));
    expect_bent_refused(READERS, KEY ": expected none with rotary positions");
    use("decode", 12, &(struct config){.shared = true});
    set_ranks(2, (const int32_t[]){12, 11});
    expect_bent_refused(READERS, KEY ": expected the same number in all layers, which share one "
                                     "block; found several");
    expect_bent_accepted(LOADERS);
}

/* Without the key, or with a 0, the tensors stand for nothing. */
TEST(tensors_without_the_key, .before = set_up, .after = bent_tear_down)
{
    const char *text = "tensor blk.0.attn_kv_a.weight: expected none of this name";
    hostile_drop(&h, KEY);
    expect_bent_refused(LOADERS, text);
    hostile_set_u32(&h, KEY, 0);
    expect_bent_refused(LOADERS, text);
    hostile_add_tensor(&h, "blk.1.attn_k.weight", 32, 32, TENSOR_F32,
                       hostile_tensor(&h, "blk.0.attn_q.weight")->data);
    expect_bent_refused(LOADERS, "tensor blk.1.attn_k.weight: expected none of this name");
}

/* gpt2 passes over what a block has beside its own: latent it is `decode`, which refuses that. */
TEST(tensors_that_gpt2_passes_over, .before = set_up, .after = bent_tear_down)
{
    struct ran r;
    use("gpt2", 0, &(struct config){.n_layers = 2});
    const struct text data = hostile_tensor(&h, "blk.0.attn_output.weight")->data;
    hostile_add_tensor(&h, "blk.0.attn_mask", 32, 32, TENSOR_F32, data);
    hostile_add_tensor(&h, "blk.1.attn_k_b.weight", 32, 32, TENSOR_Q8_0,
                       (struct text){data.data, 32 * 34});
    hostile_write(&h);
    run_on_bad(&r, "convert %B -o %O --latent 12 --calib %T --requantize -q");
    ck_assert_msg(r.code == 0, "%s", r.err);
    run_on_bad(&r, "generate %O -p a -n 1 -q");
    ck_assert_msg(r.code == 0, "%s", r.err);
    run_on_bad(&r, "info %O --tensors");
    ck_assert_ptr_null(strstr(r.out, "attn_mask"));
}

TEST(missing_tensors, .before = set_up, .after = bent_tear_down)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.1.attn_kv_a.weight",
                                        "blk.0.attn_k_b.weight", "blk.1.attn_v_b.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[80];
        snprintf(text, sizeof text, "tensor %s: missing", names[i]);
        hostile_drop_tensor(&h, names[i]);
        expect_bent_refused(LOADERS, text);
    }
    hostile_drop_tensor(&h, "blk.0.attn_kv_a.bias");
    hostile_drop_tensor(&h, "blk.1.attn_q.bias");
    expect_bent_accepted(LOADERS);
}

TEST(shapes_that_do_not_fit, .before = set_up, .after = bent_tear_down)
{
    static const struct {
        const char *tensor;
        uint32_t n_dims;
        uint64_t dims[4];
        const char *text;
    } cases[] = {
        {"blk.0.attn_k_b.weight", 3, {12, 8, 4}, "expected shape 8 x 12 x 4, found 12 x 8 x 4"},
        {"blk.0.attn_k_b.weight", 2, {8, 48}, "expected shape 8 x 12 x 4, found 8 x 48"},
        {"blk.1.attn_k_b.weight",
         4,
         {8, 12, 2, 2},
         "expected shape 8 x 12 x 4, found 8 x 12 x 2 x 2"},
        {"blk.1.attn_v_b.weight", 3, {8, 12, 4}, "expected shape 12 x 8 x 4, found 8 x 12 x 4"},
        {"blk.0.attn_v_b.weight", 1, {384}, "expected shape 12 x 8 x 4, found 384"},
        {"blk.0.attn_kv_a.weight", 2, {12, 32}, "expected shape 32 x 12, found 12 x 32"},
        {"blk.0.attn_kv_a.weight", 1, {384}, "expected shape 32 x 12, found 384"},
        {"blk.1.attn_kv_a.bias", 2, {6, 2}, "expected shape 12, found 6 x 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hostile_tensor *t = hostile_tensor(&h, cases[i].tensor);
        t->n_dims = cases[i].n_dims;
        memcpy(t->dims, cases[i].dims, sizeof cases[i].dims);
        expect_bent_refused(LOADERS, cases[i].text);
    }
    hostile_set_u32(&h, KEY, 13);
    expect_bent_refused(LOADERS,
                        "tensor blk.0.attn_kv_a.weight: expected shape 32 x 13, found 32 x 12");
    set_ranks(2, (const int32_t[]){12, 13});
    expect_bent_refused(LOADERS,
                        "tensor blk.1.attn_kv_a.weight: expected shape 32 x 13, found 32 x 12");
    hostile_set_u32(&h, "decode.attention.value_length", 7);
    hostile_set_u32(&h, "decode.attention.key_length", 8);
    expect_bent_refused(LOADERS, "tensor blk.0.attn_v_b.weight: expected shape 12 x 7 x 4");
}

/* What heads share already cannot be made fewer, nor written for programs without such caches. */
TEST(commands_that_cannot, .before = set_up, .after = bent_tear_down)
{
    struct ran r;
    hostile_write(&h);
    run_on_bad(&r, "convert %B -o %O --kv-heads 1");
    expect_refusal(&r, 2, "--kv-heads: expected a checkpoint with K/V heads, found a latent cache");
    run_on_bad(&r, "eval %B --text %T --kv-heads 2");
    expect_refusal(&r, 2, "--kv-heads: expected a checkpoint with K/V heads, found a latent cache");
    run_on_bad(&r, "export %B -o %O");
    expect_refusal(&r, 2, "transformers has no model with a latent cache");
}
