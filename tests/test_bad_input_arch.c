/*
 * Hostile checkpoints of the other architectures against the whole program: keys and tensors that
 * only these have (classes 6, 7 and 10, as in test_bad_input_model.c), models that no architecture
 * here is, and contexts that only a key makes long.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoints.h"
#include "hostile.h"
#include "support.h"

/* What reads keys, and of it what reads tensors. */
#define READERS MODEL_READERS
#define LOADERS (MODEL_READERS & ~(INFO | CHECK))

static struct hostile h;

/* --- good files ------------------------------------------------------------------------------ */

static const struct config llama = {.n_layers = 2,
                                    .n_heads = 4,
                                    .n_kv_heads = 2,
                                    .d_model = 32,
                                    .d_ff = 64,
                                    .n_ctx = 16,
                                    .n_vocab = 260,
                                    .norm_eps = 1e-5f,
                                    .norm = NORM_RMS,
                                    .position = POSITION_ROPE,
                                    .ffn = FFN_SWIGLU,
                                    .no_biases = true,
                                    .split_qkv = true};

static void use(const char *preset, const struct config *c)
{
    struct config config = *c;
    config.arch = arch_preset(text_of(preset));
    ck_assert_ptr_nonnull(config.arch);
    hostile_free(&h);
    write_config_checkpoint(good_path, &config);
    hostile_open(&h);
}

static void use_llama(void)
{
    use("llama", &llama);
}

/* Of architecture `decode`: a llama of other kinds, with biases and Q, K and V in one. */
static void use_decode(enum norm_placement placement, enum position_kind position)
{
    struct config c = llama;
    c.norm = NORM_LAYER;
    c.placement = placement;
    c.position = position;
    c.no_biases = c.split_qkv = false;
    use("decode", &c);
}

static void reset(void)
{
    hostile_free(&h);
    hostile_open(&h);
}

/* `h` as it has become is refused by one of the commands, the next one each time. */
static void expect_bent_refused(unsigned commands, const char *text)
{
    hostile_write(&h);
    expect_refused_in_turn(commands, text);
    reset();
}

static void expect_bent_accepted(unsigned commands)
{
    hostile_write(&h);
    expect_accepted(commands);
    reset();
}

static void set_up(void)
{
    hostile_set_up();
}

static void tear_down(void)
{
    hostile_free(&h);
    hostile_tear_down();
}

/* --- one key bent ---------------------------------------------------------------------------- */

/* A value of any kind but an array; numbers are of the kind's own width. */
struct bend {
    const char *key;
    uint32_t kind;
    double number;
    const char *string;
    const char *text; /* of the refusal; NULL: accepted */
};

static void set_number(const char *key, uint32_t kind, double x)
{
    const uint64_t u = x >= 0 && x < 1.8e19 ? (uint64_t)x : 0;
    const int64_t i = x < 0 || (x >= 0 && x < 9e18) ? (int64_t)x : 0;
    const float f = (float)x;
    switch (kind) {
    case GGUF_F32:
        hostile_set(&h, key, kind, &f, 4);
        break;
    case GGUF_F64:
        hostile_set(&h, key, kind, &x, 8);
        break;
    case GGUF_I32:
    case GGUF_I64:
        hostile_set(&h, key, kind, &i, kind == GGUF_I32 ? 4 : 8);
        break;
    case GGUF_BOOL:
        hostile_set(&h, key, kind, &u, 1);
        break;
    default:
        hostile_set(&h, key, kind, &u, kind == GGUF_U32 ? 4 : 8);
    }
}

static void set_bend(const struct bend *b)
{
    if (b->kind == GGUF_STRING)
        hostile_set_text(&h, b->key, text_of(b->string));
    else
        set_number(b->key, b->kind, b->number);
}

static void try_bends(const struct bend *bends, size_t n, unsigned commands)
{
    for (size_t i = 0; i < n; i++) {
        set_bend(&bends[i]);
        if (bends[i].text)
            expect_bent_refused(commands, bends[i].text);
        else
            expect_bent_accepted(GENERATE | SCORE);
    }
}
#define TRY_BENDS(bends, commands) try_bends(bends, sizeof bends / sizeof *bends, commands)

/* --- rotary positions ------------------------------------------------------------------------ */

#define DIMS   "llama.rope.dimension_count"
#define BASE   "llama.rope.freq_base"
#define TYPE   "llama.rope.scaling.type"
#define FACTOR "llama.rope.scaling.factor"
#define LINEAR "llama.rope.scale_linear"

TEST(class_07_rotary_keys, .before = set_up, .after = tear_down)
{
    static const struct bend bends[] = {
        {DIMS, GGUF_U32, 0, NULL, "rope.dimension_count\": expected 2 to 65536, found 0"},
        {DIMS, GGUF_U32, 1, NULL, "rope.dimension_count\": expected 2 to 65536, found 1"},
        {DIMS, GGUF_U32, 7, NULL, "expected an even number of a head's 8 elements, found 7"},
        {DIMS, GGUF_U32, 10, NULL, "expected an even number of a head's 8 elements, found 10"},
        {DIMS, GGUF_U64, 0x1p63, NULL, "rope.dimension_count\": expected 2 to 65536"},
        {DIMS, GGUF_I32, -2, NULL, "rope.dimension_count\": expected 2 to 65536, found -2"},
        {DIMS, GGUF_F32, 8, NULL, "rope.dimension_count\": expected an integer, found f32"},
        {DIMS, GGUF_STRING, 0, "8", "rope.dimension_count\": expected an integer, found string"},
        {DIMS, GGUF_U32, 2, NULL, NULL},
        {BASE, GGUF_F32, 0, NULL, "rope.freq_base: expected a number between 1 and 1e+30, found 0"},
        {BASE, GGUF_F32, -1e4, NULL, "rope.freq_base: expected a number between 1 and 1e+30"},
        {BASE, GGUF_F32, 1, NULL, "rope.freq_base: expected a number between 1 and 1e+30"},
        {BASE, GGUF_F32, (double)NAN, NULL, "rope.freq_base: expected a number between"},
        {BASE, GGUF_F32, (double)INFINITY, NULL, "rope.freq_base: expected a number between"},
        {BASE, GGUF_F64, 1e300, NULL, "rope.freq_base: expected a number between"},
        {BASE, GGUF_U32, 10000, NULL, "rope.freq_base\": expected f32 or f64, found u32"},
        {BASE, GGUF_F64, 1.0001, NULL, NULL},
        {BASE, GGUF_F64, 1e29, NULL, NULL},
        {FACTOR, GGUF_F32, 0, NULL, "rope.scaling.factor: expected a number between 0.01 and"},
        {FACTOR, GGUF_F32, -4, NULL, "rope.scaling.factor: expected a number between 0.01 and"},
        {FACTOR, GGUF_F32, (double)NAN, NULL, "rope.scaling.factor: expected a number between"},
        {FACTOR, GGUF_F32, 1e-3, NULL, "rope.scaling.factor: expected a number between"},
        {FACTOR, GGUF_F32, 1e10, NULL, "rope.scaling.factor: expected a number between"},
        {FACTOR, GGUF_STRING, 0, "4", "rope.scaling.factor\": expected f32 or f64, found string"},
        {FACTOR, GGUF_F32, 0.011, NULL, NULL},
        {LINEAR, GGUF_F32, 0, NULL, "rope.scale_linear: expected a number between 0.01 and"},
        {LINEAR, GGUF_F32, (double)INFINITY, NULL, "rope.scale_linear: expected a number between"},
        {LINEAR, GGUF_F32, 2, NULL, NULL},
        {TYPE, GGUF_U32, 1, NULL, "rope.scaling.type\": expected string, found u32"},
    };
    use_llama();
    TRY_BENDS(bends, READERS);
}

/* What is sound but does not run here, said by its name. */
TEST(scaling_that_does_not_run, .before = set_up, .after = tear_down)
{
    static const char *const types[] = {"yarn", "longrope", "su", "dynamic", "", "Linear", "lin\n"};
    use_llama();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        hostile_set_text(&h, TYPE, text_of(types[i]));
        expect_bent_refused(LOADERS, i < 6 ? types[i] : "found \"lin?\"");
    }
    hostile_set_text(&h, TYPE, text_of("yarn"));
    hostile_write(&h);
    expect_accepted(INFO);
    reset();
    hostile_set_text(&h, TYPE, text_of("none")); /* whatever the factor, as in llama.cpp */
    set_number(FACTOR, GGUF_F32, 0);
    expect_bent_accepted(LOADERS);
}

static void add_factors(uint64_t n, uint32_t type, const void *data, size_t len)
{
    hostile_add_tensor(&h, "rope_freqs.weight", 1, n, type, (struct text){(const char *)data, len});
}

TEST(class_10_rotary_factors, .before = set_up, .after = tear_down)
{
    static const float bad[] = {0, -1, NAN, INFINITY, -INFINITY, 1e-3f};
    float factors[32] = {1, 2, 3, 4};
    use_llama();
    add_factors(4, TENSOR_F32, factors, 16);
    expect_bent_accepted(LOADERS);
    add_factors(3, TENSOR_F32, factors, 12);
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected shape 4, found 3");
    add_factors(5, TENSOR_F32, factors, 20);
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected shape 4, found 5");
    hostile_add_tensor(&h, "rope_freqs.weight", 4, 4, TENSOR_F32,
                       (struct text){(const char *)factors, 64});
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected shape 4, found 4 x 4");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float one_bad[4] = {1, 1, 1, 1};
        one_bad[i % 4] = bad[i];
        char text[80];
        snprintf(text, sizeof text, "rope_freqs.weight: expected numbers above 0.01, found %g as",
                 (double)bad[i]);
        add_factors(4, TENSOR_F32, one_bad, 16);
        expect_bent_refused(LOADERS, text);
    }
    add_factors(4, TENSOR_F16, "\0\x3c\0\x3c\0\x3c\0\0", 8); /* the last is 0 */
    expect_bent_refused(LOADERS, "found 0 as element 3");
    add_factors(4, TENSOR_F16, "\0\x3c\0\x3c\0\x3c\0\x3c", 8);
    expect_bent_accepted(LOADERS);
    add_factors(4, 26, factors, 16); /* i32 */
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected type F32, F16");
}

/* Heads so wide that their factors are a whole block. */
TEST(class_10_quantised_rotary_factors, .before = set_up, .after = tear_down)
{
    static char block[34] = "\0\x3c";
    struct config c = llama;
    c.head_dim = 64;
    use("llama", &c);
    add_factors(32, TENSOR_Q8_0, block, 34);
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected type F32, F16 or BF16, found Q8_0");
    add_factors(32, TENSOR_Q4_0, block, 18);
    expect_bent_refused(LOADERS, "rope_freqs.weight: expected type F32, F16 or BF16, found Q4_0");
}

/* As llama.cpp's converter of llama2.c files writes: the base is 10000, the width a head's. */
TEST(rotary_keys_may_be_missing, .before = set_up, .after = tear_down)
{
    struct ran with, without;
    use_llama();
    hostile_set_u32(&h, "llama.context_length", 128);
    hostile_write(&h);
    run_on_bad(&with, "score %B --tokens 5,7,11,13,17,2,3 -t 1 -q --top 3");
    expect_success(&with);
    hostile_drop(&h, BASE);
    hostile_drop(&h, DIMS);
    hostile_write(&h);
    run_on_bad(&without, "score %B --tokens 5,7,11,13,17,2,3 -t 1 -q --top 3");
    expect_success(&without);
    ck_assert_str_eq(with.out, without.out);
}

/* --- K/V heads by layer ---------------------------------------------------------------------- */

#define KV "llama.attention.head_count_kv"

static void bad_kv_array(int n, int32_t first, int32_t second, const char *text)
{
    const int32_t heads[] = {first, second, 1};
    hostile_set_array(&h, KV, GGUF_I32, (uint64_t)n, heads, (size_t)n * 4);
    expect_bent_refused(READERS, text);
}

TEST(class_07_kv_heads_by_layer, .before = set_up, .after = tear_down)
{
    const float floats[] = {2, 2};
    use_llama();
    bad_kv_array(0, 0, 0, "head_count_kv: expected one number a layer, 2, found 0");
    bad_kv_array(1, 2, 0, "head_count_kv: expected one number a layer, 2, found 1");
    bad_kv_array(3, 2, 2, "head_count_kv: expected one number a layer, 2, found 3");
    bad_kv_array(2, 2, 0, "head_count_kv: expected a divisor of head_count 4, found 0");
    bad_kv_array(2, 3, 2, "head_count_kv: expected a divisor of head_count 4, found 3");
    bad_kv_array(2, 2, 8, "head_count_kv: expected a divisor of head_count 4, found 8");
    bad_kv_array(2, -2, 2, "head_count_kv: expected a divisor of head_count 4, found -2");
    bad_kv_array(2, INT32_MIN, 2, "found -2147483648");
    hostile_set_array(&h, KV, GGUF_F32, 2, floats, 8);
    expect_bent_refused(READERS, "head_count_kv: expected integers, found f32");
    hostile_set_array(&h, KV, GGUF_BOOL, 2, "\1\1", 2);
    expect_bent_refused(READERS, "head_count_kv: expected integers, found bool");
    hostile_set_array(&h, KV, GGUF_STRING, 2,
                      "\1\0\0\0\0\0\0\0"
                      "2\1\0\0\0\0\0\0\0"
                      "2",
                      18);
    expect_bent_refused(READERS, "head_count_kv: expected integers, found string");
    hostile_set_array(&h, KV, GGUF_U64, 2, "\377\377\377\377\377\377\377\377\2\0\0\0\0\0\0\0", 16);
    expect_bent_refused(READERS, "head_count_kv: expected a divisor of head_count 4");
    hostile_set_array(&h, KV, GGUF_U8, 2, "\2\2", 2);
    expect_bent_accepted(READERS);
    hostile_set_array(&h, KV, GGUF_I64, 2, "\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);
    expect_bent_accepted(READERS);
    hostile_set_array(&h, KV, GGUF_U8, 2, "\2\4", 2); /* against the tensors */
    expect_bent_refused(LOADERS, "blk.1.attn_k.weight: expected shape 32 x 32, found 32 x 16");
    hostile_set_array(&h, "llama.attention.head_count", GGUF_U8, 2, "\4\4", 2);
    expect_bent_refused(READERS,
                        "attention.head_count\": expected an integer, found an array of 2");
    hostile_set_array(&h, "llama.feed_forward_length", GGUF_U8, 2, "\100\100", 2);
    expect_bent_refused(READERS, "feed_forward_length\": expected an integer, found an array of 2");
}

/* --- widths of heads ------------------------------------------------------------------------- */

#define KEY   "llama.attention.key_length"
#define VALUE "llama.attention.value_length"

TEST(class_07_widths_of_heads, .before = set_up, .after = tear_down)
{
    static const struct bend keys[] = {
        {KEY, GGUF_U32, 0, NULL, "key_length\": expected 1 to 65536, found 0"},
        {KEY, GGUF_U32, 65537, NULL, "key_length\": expected 1 to 65536, found 65537"},
        {KEY, GGUF_U32, 16385, NULL, "key_length: expected at most 16384 for 4 heads, found 16385"},
        {KEY, GGUF_I32, -8, NULL, "key_length\": expected 1 to 65536, found -8"},
        {KEY, GGUF_F32, 8, NULL, "key_length\": expected an integer, found f32"},
        {KEY, GGUF_U32, 6, NULL, "dimension_count: expected an even number of a head's 6 elements"},
        {VALUE, GGUF_U32, 0, NULL, "value_length\": expected 1 to 65536, found 0"},
        {VALUE, GGUF_U32, 65536, NULL, "value_length: expected at most 16384 for 4 heads"},
        {VALUE, GGUF_STRING, 0, "8", "value_length\": expected an integer, found string"},
    };
    static const struct bend tensors[] = {
        {KEY, GGUF_U32, 16, NULL, "blk.0.attn_q.weight: expected shape 32 x 64, found 32 x 32"},
        {VALUE, GGUF_U32, 4, NULL, "blk.0.attn_v.weight: expected shape 32 x 8, found 32 x 16"},
        {VALUE, GGUF_U32, 16384, NULL, "blk.0.attn_v.weight: expected shape 32 x 32768, found"},
    };
    use_llama();
    TRY_BENDS(keys, READERS);
    TRY_BENDS(tensors, LOADERS);
    hostile_set_u32(&h, KEY, 7); /* and no key of what turns of them */
    hostile_drop(&h, DIMS);
    expect_bent_refused(READERS, "key_length: expected an even number, found 7, for rotary");
}

/* --- architecture `decode` ------------------------------------------------------------------- */

TEST(class_06_kinds, .before = set_up, .after = tear_down)
{
    static const struct {
        const char *key, *text;
    } kinds[] = {
        {"decode.norm.type", "decode.norm.type: expected layer or rms, found"},
        {"decode.norm.placement", "decode.norm.placement: expected before or after, found"},
        {"decode.position.type",
         "decode.position.type: expected learned, sinusoidal, rope, alibi, quadratic or none, "
         "found"},
        {"decode.feed_forward.type",
         "decode.feed_forward.type: expected gelu, gelu_erf, relu or swiglu, found"},
    };
    static const char *const names[] = {"", "rmsnorm", "LAYER", "befor", "none ", "swiglu\x1b[2J"};
    char text[120];
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            hostile_set_text(&h, kinds[i].key, text_of(names[k]));
            expect_bent_refused(READERS, kinds[i].text);
        }
        hostile_set_u32(&h, kinds[i].key, 0);
        snprintf(text, sizeof text, "\"%s\": expected string, found u32", kinds[i].key);
        expect_bent_refused(READERS, text);
        hostile_drop(&h, kinds[i].key);
        snprintf(text, sizeof text, "\"%s\" is missing", kinds[i].key);
        expect_bent_refused(READERS, text);
    }
}

TEST(class_06_keys_of_decode, .before = set_up, .after = tear_down)
{
    static const struct bend bends[] = {
        {"decode.norm.epsilon", GGUF_F32, 0, NULL, "norm.epsilon: expected a number between 0"},
        {"decode.norm.epsilon", GGUF_F32, (double)NAN, NULL, "norm.epsilon: expected a number"},
        {"decode.embedding_scale", GGUF_F32, 0, NULL, "embedding_scale: expected a number between"},
        {"decode.embedding_scale", GGUF_F32, -1, NULL, "embedding_scale: expected a number"},
        {"decode.embedding_scale", GGUF_F32, (double)NAN, NULL, "embedding_scale: expected"},
        {"decode.embedding_scale", GGUF_F32, (double)INFINITY, NULL, "embedding_scale: expected"},
        {"decode.embedding_scale", GGUF_F64, 1e300, NULL, "embedding_scale: expected a number"},
        {"decode.embedding_scale", GGUF_F64, 1e-300, NULL, "embedding_scale: expected a number"},
        {"decode.embedding_scale", GGUF_U32, 1, NULL, "embedding_scale\": expected f32 or f64"},
        {"decode.block.shared", GGUF_U32, 1, NULL, "block.shared\": expected bool, found u32"},
        {"decode.block.shared", GGUF_STRING, 0, "true", "block.shared\": expected bool"},
        {"decode.block_count", GGUF_U32, 513, NULL, "block_count\": expected 1 to 512, found"},
        {"decode.rope.dimension_count", GGUF_U32, 7, NULL, NULL}, /* nothing that this has */
    };
    use_decode(PLACEMENT_BEFORE, POSITION_NONE);
    TRY_BENDS(bends, READERS);
    hostile_drop(&h, "decode.embedding_scale");
    hostile_drop(&h, "decode.block.shared");
    expect_bent_accepted(READERS);
    hostile_set(&h, "decode.block.shared", GGUF_BOOL, "\1", 1); /* block 1 is there, too */
    expect_bent_refused(LOADERS,
                        "tensor blk.1.attn_norm.weight: expected none of this name in architecture "
                        "decode of 2 layers that share a block");
    hostile_set(&h, "decode.block.shared", GGUF_BOOL, "\1", 1);
    hostile_set_array(&h, "decode.attention.head_count_kv", GGUF_U8, 2, "\2\4", 2);
    expect_bent_refused(READERS, "head_count_kv: expected the same number in all layers");
}

/* A key says one kind, the tensors are those of another. */
TEST(class_07_kinds_against_tensors, .before = set_up, .after = tear_down)
{
    static const struct bend bends[] = {
        {"decode.norm.type", GGUF_STRING, 0, "rms", "blk.0.attn_norm.bias: expected none of this"},
        {"decode.norm.placement", GGUF_STRING, 0, "before", NULL},
        {"decode.norm.placement", GGUF_STRING, 0, "after",
         "blk.0.attn_norm.weight: expected none of this"},
        {"decode.position.type", GGUF_STRING, 0, "learned", "position_embd.weight: missing"},
        {"decode.position.type", GGUF_STRING, 0, "quadratic", "blk.0.attn_rel.weight: missing"},
        {"decode.position.type", GGUF_STRING, 0, "rope", NULL},
        {"decode.feed_forward.type", GGUF_STRING, 0, "relu",
         "blk.0.ffn_gate.weight: expected none"},
    };
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    TRY_BENDS(bends, LOADERS);
    use_decode(PLACEMENT_AFTER, POSITION_LEARNED);
    hostile_set_text(&h, "decode.norm.placement", text_of("before"));
    expect_bent_refused(LOADERS, "blk.0.attn_output_norm.weight: expected none of this name");
    hostile_set_text(&h, "decode.position.type", text_of("none"));
    expect_bent_refused(LOADERS, "position_embd.weight: expected none of this name");
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    hostile_set_text(&h, "decode.position.type", text_of("alibi"));
    expect_bent_refused(LOADERS, "blk.0.attn_rel.weight: expected none of this name");
}

/* --- tensors --------------------------------------------------------------------------------- */

static void missing(const char *tensor)
{
    char text[96];
    snprintf(text, sizeof text, "%s: missing", tensor);
    hostile_drop_tensor(&h, tensor);
    expect_bent_refused(LOADERS, text);
}

TEST(class_08_missing_tensors, .before = set_up, .after = tear_down)
{
    use_llama();
    missing("blk.0.attn_q.weight");
    missing("blk.1.attn_k.weight");
    missing("blk.1.attn_v.weight");
    missing("blk.0.ffn_gate.weight");
    missing("blk.1.ffn_up.weight");
    missing("output_norm.weight");
    hostile_drop_tensor(&h, "output.weight");
    expect_bent_accepted(READERS);
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    missing("blk.0.attn_output_norm.weight");
    missing("blk.1.layer_output_norm.weight");
    missing("blk.1.attn_rel.weight");
    missing("blk.0.attn_qkv.weight");
    hostile_drop_tensor(&h, "blk.1.layer_output_norm.bias");
    hostile_drop_tensor(&h, "blk.0.attn_qkv.bias");
    hostile_drop_tensor(&h, "blk.1.ffn_gate.bias");
    expect_bent_accepted(READERS);
}

/* One that no model of the architecture has, of the shape [32, 32] that it might have. */
static void foreign(const char *tensor)
{
    static const float zeros[32 * 32];
    char text[128];
    snprintf(text, sizeof text, "tensor %s: expected none of this name", tensor);
    hostile_add_tensor(&h, tensor, 32, 32, TENSOR_F32,
                       (struct text){(const char *)zeros, sizeof zeros});
    expect_bent_refused(LOADERS, text);
}

TEST(foreign_tensors, .before = set_up, .after = tear_down)
{
    use_llama();
    foreign("blk.0.attn_qkv.weight");
    foreign("blk.0.attn_q_norm.weight");
    foreign("blk.1.attn_k_norm.weight");
    foreign("blk.0.attn_norm.bias");
    foreign("blk.1.ffn_norm.bias");
    foreign("blk.0.ffn_gate_exps.weight");
    foreign("blk.0.ffn_gate_inp.weight");
    foreign("blk.0.post_attention_norm.weight");
    foreign("blk.0.attn_sinks.weight");
    foreign("blk.0.attn_rel.weight");
    foreign("blk.2.ffn_up.weight");
    foreign("blk.0");
    foreign("blk.00.ffn_up.weight");
    foreign("blk.4294967296.ffn_up.weight");
    foreign("blk.-1.ffn_up.weight");
    foreign("output_norm.bias");
    foreign("position_embd.weight");
    foreign("token_embd_norm.weight");
    foreign("rope_factors_long.weight");
    foreign("rope_factors_short.weight");
    static const float zeros[32 * 32];
    const struct text data = {(const char *)zeros, sizeof zeros};
    hostile_add_tensor(&h, "blk.1.attn_rot_embd.weight", 32, 32, TENSOR_F32, data);
    hostile_add_tensor(&h, "what.is.this", 32, 32, TENSOR_F32, data);
    expect_bent_accepted(READERS);
    use_decode(PLACEMENT_AFTER, POSITION_ALIBI);
    foreign("blk.0.attn_q.weight");
    foreign("blk.0.attn_kv_a.weight");
    foreign("blk.1.attn_norm.weight");
    foreign("output_norm.weight");
    foreign("rope_freqs.weight");
}

TEST(foreign_keys, .before = set_up, .after = tear_down)
{
    static const struct bend bends[] = {
        {"llama.expert_count", GGUF_U32, 8, NULL, "expert_count: expected none or 0,"},
        {"llama.expert_count", GGUF_U32, 0, NULL, NULL},
        {"llama.attention.sliding_window", GGUF_U32, 4096, NULL,
         "sliding_window: expected none or 0,"},
        {"llama.attention.clamp_kqv", GGUF_F32, 8, NULL, "clamp_kqv: expected none or 0,"},
        {"llama.attention.max_alibi_bias", GGUF_F32, 8, NULL,
         "max_alibi_bias: expected none or 0,"},
        {"llama.attn_logit_softcapping", GGUF_F32, 50, NULL,
         "attn_logit_softcapping: expected none or 0,"},
        {"llama.final_logit_softcapping", GGUF_F32, 30, NULL,
         "final_logit_softcapping: expected none or 0,"},
        {"llama.logit_scale", GGUF_F32, 0.5, NULL, "logit_scale: expected none or 1,"},
        {"llama.logit_scale", GGUF_F32, 1, NULL, NULL},
        {"llama.residual_scale", GGUF_F32, 0.2, NULL, "residual_scale: expected none or 1,"},
        {"llama.embedding_scale", GGUF_F32, 12, NULL, "embedding_scale: expected none or 1,"},
        {"llama.attention.scale", GGUF_F32, 0.5, NULL, "attention.scale: expected none or 0,"},
        {"llama.use_parallel_residual", GGUF_BOOL, 1, NULL,
         "use_parallel_residual: expected none or 0,"},
        {"llama.use_parallel_residual", GGUF_BOOL, 0, NULL, NULL},
        {"llama.attention.causal", GGUF_BOOL, 0, NULL, "attention.causal: expected none or 1,"},
        {"llama.attention.causal", GGUF_BOOL, 1, NULL, NULL},
        {"llama.rope.scaling.attn_factor", GGUF_F32, 2, NULL, "attn_factor: expected none or 1,"},
        {"llama.attention.sliding_window", GGUF_F32, (double)NAN, NULL,
         "because nothing else runs here; found nan"},
        {"llama.attention.latent", GGUF_U32, 8, NULL,
         "llama.attention.latent: expected none or 0, because nothing else runs here; found 8"},
        {"llama.expert_count", GGUF_STRING, 0, "8", "because nothing else runs here; found string"},
    };
    use_llama();
    TRY_BENDS(bends, LOADERS);
    hostile_set_array(&h, "llama.attention.sliding_window", GGUF_BOOL, 2, "\1\0", 2);
    expect_bent_refused(
        LOADERS, "sliding_window: expected none or 0, because nothing else runs here; found array");
}

/* --- data ------------------------------------------------------------------------------------ */

static void expect_not_finite(const char *tensor, float value)
{
    struct ran r;
    struct hostile_tensor *t = hostile_tensor(&h, tensor);
    char *data = h.blocks[h.n_blocks++] = malloc(t->data.len);
    ck_assert_ptr_nonnull(data);
    memcpy(data, t->data.data, t->data.len);
    memcpy(data, &value, 4);
    t->data.data = data;
    hostile_write(&h);
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --no-echo");
    ck_assert_msg(r.code == 1, "%s: exit %d", tensor, r.code);
    r.out_len = 0;
    expect_refusal(&r, 1, "not finite");
    expect_line_refused("eval %B --text %T -t 1", 1, "not finite");
    reset();
}

TEST(class_10_data, .before = set_up, .after = tear_down)
{
    use_llama();
    expect_not_finite("blk.0.ffn_gate.weight", NAN);
    expect_not_finite("blk.1.attn_q.weight", INFINITY);
    expect_not_finite("blk.1.attn_norm.weight", -INFINITY);
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    expect_not_finite("blk.0.attn_rel.weight", NAN);
    expect_not_finite("blk.1.layer_output_norm.bias", NAN);
    struct hostile_tensor *t = hostile_tensor(&h, "blk.0.attn_rel.weight");
    static const float steep[8] = {1e30f, 3, -1e30f, 1, 1e-40f, 1e10f, 0, 0};
    t->data.data = (const char *)steep; /* scores so low that only the nearest counts */
    expect_bent_accepted(GENERATE);
}

/* --- long contexts --------------------------------------------------------------------------- */

#if !SANITIZED

static void limit_memory(void *unused)
{
    (void)unused;
    const struct rlimit limit = {(rlim_t)768 << 20, (rlim_t)768 << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(99);
}

static void run_within_limit(struct ran *r, const char *line)
{
    char filled[2048];
    fill_paths(filled, sizeof filled, line);
    run_program(r, filled, limit_memory, NULL);
}

/* A key makes them as long as they can be: tables of positions are sized by what is asked for, and
 * what does not fit is said. */
static void long_context(const char *key)
{
    static const char *const within[] = {
        "generate %B -p ab -n 2 -t 1 --seed 1 -c 16",
        "score %B -p ab -t 1",
        "eval %B --text %T -t 1 --ctx 16",
        "bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --depth 0 -t 1 -q",
        "info %B",
    };
    struct ran r;
    hostile_set_u32(&h, key, 1 << 22);
    hostile_write(&h);
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        run_within_limit(&r, within[i]);
        ck_assert_msg(r.code == 0, "%s: exit %d: %s", within[i], r.code, r.err);
    }
    /* Without -c the cache could be as long, but is not filled, and neither are the tables. */
    double mib = 1e9;
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --seed 1");
    expect_success(&r);
    const char *peak = strstr(r.err, "peak memory ");
    ck_assert_msg(peak && sscanf(peak, "peak memory %lf MiB", &mib) == 1, "%s", r.err);
    ck_assert_msg(SANITIZED || mib < 64, "%g MiB", mib);
    run_within_limit(&r, "generate %B -p ab -n 2 -t 1 -c 4194304 -q");
    expect_refusal(&r, 4, "out of memory");
    run_within_limit(&r, "generate %B -p ab -n 2 -t 1 -c 4194305");
    expect_refusal(&r, 2, "-c: expected at most 4194304");
    hostile_set_u32(&h, key, (1 << 22) + 1);
    expect_bent_refused(READERS, "context_length\": expected 1 to 4194304, found 4194305");
}

TEST(class_15_long_contexts, .before = set_up, .after = tear_down, .left_out = SANITIZED)
{
    use_llama();
    long_context("llama.context_length");
    use_decode(PLACEMENT_AFTER, POSITION_SINUSOIDAL);
    long_context("decode.context_length");
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    long_context("decode.context_length");
}

#endif
