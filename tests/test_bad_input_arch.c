/*
 * Hostile checkpoints of the other architectures against the whole program: keys and tensors that
 * only these have (classes 6, 7, 8 and 10, as in test_bad_input_model.c), models that no
 * architecture here is, and contexts that only a key makes long.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hostile.h"

/* What reads keys, and of it what reads tensors. */
#define READERS MODEL_READERS
#define LOADERS (MODEL_READERS & ~(INFO | CHECK))

static struct config llama(void)
{
    return config_sized("llama", "layers=2 heads=4 kv=2 dim=8 width=32 ff=64 ctx=16 vocab=260");
}

static void use_llama(void)
{
    const struct config c = llama();
    bent_set_up();
    use_config("llama", &c);
}

/* Of architecture `decode`: a llama of other kinds, with biases and Q, K and V in one. */
static void use_decode(enum norm_placement placement, enum position_kind position)
{
    struct config c = llama();
    c.norm = NORM_LAYER;
    c.placement = placement;
    c.position = position;
    c.no_biases = c.split_qkv = false;
    use_config("decode", &c);
}

#define DIMS   "llama.rope.dimension_count"
#define BASE   "llama.rope.freq_base"
#define TYPE   "llama.rope.scaling.type"
#define FACTOR "llama.rope.scaling.factor"
#define LINEAR "llama.rope.scale_linear"

TEST(class_07_rotary_keys, .before = use_llama)
{
    static const struct bend bends[] = {
        {DIMS "=u32:0", "rope.dimension_count\": expected 2 to 65536, found 0"},
        {DIMS "=u32:7", "expected an even number of a head's 8 elements, found 7"},
        {DIMS "=i32:-2", "rope.dimension_count\": expected 2 to 65536, found -2"},
        {DIMS "=u32:2", NULL},
        {BASE "=f32:0", "rope.freq_base: expected a number between 1 and 1e+30, found 0"},
        {BASE "=f32:nan", "rope.freq_base: expected a number between"},
        {BASE "=u32:10000", "rope.freq_base\": expected f32 or f64, found u32"},
        {BASE "=f64:1.0001", NULL},
        {FACTOR "=f32:0", "rope.scaling.factor: expected a number between 0.01 and"},
        {FACTOR "=f32:0.011", NULL},
        {LINEAR "=f32:0", "rope.scale_linear: expected a number between 0.01 and"},
        {LINEAR "=f32:2", NULL},
        {TYPE "=u32:1", "rope.scaling.type\": expected string, found u32"},
    };
    TRY_BENDS(bends, READERS);
}

/* What is sound but does not run here, said by its name. */
TEST(scaling_that_does_not_run, .before = use_llama)
{
    static const struct bend bends[] = {
        {TYPE "=string:yarn", "yarn"},
        {TYPE "=string:", ""},
        {TYPE "=string:lin\n", "found \"lin?\""},
    };
    TRY_BENDS(bends, LOADERS);
    bent_accepted(INFO, TYPE "=string:yarn");
    bent_accepted(LOADERS, TYPE "=string:none; " FACTOR "=f32:0"); /* as in llama.cpp */
}

TEST(class_10_rotary_factors, .before = use_llama)
{
    static const float good[32] = {1, 2, 3, 4}, zero[4] = {0, 1, 1, 1}, below[4] = {1, -1, 1, 1},
                       no_number[4] = {1, 1, NAN, 1}, infinite[4] = {1, 1, 1, INFINITY},
                       low[4] = {-INFINITY, 1, 1, 1}, small[4] = {1, 1e-3f, 1, 1};
    static const char halves[] = "\0\x3c\0\x3c\0\x3c\0\0", block[34] = "\0\x3c";
    static const struct {
        int n, head_dim;
        uint32_t type;
        const void *data;
        size_t len;
        const char *bends, *text;
    } factors[] = {
        {3, 8, TENSOR_F32, good, 12, "", "rope_freqs.weight: expected shape 4, found 3"},
        {5, 8, TENSOR_F32, good, 20, "", "rope_freqs.weight: expected shape 4, found 5"},
        {16, 8, TENSOR_F32, good, 64, "rope_freqs.weight~4x4", "expected shape 4, found 4 x 4"},
        {4, 8, TENSOR_F32, zero, 16, "", "expected numbers above 0.01, found 0 as"},
        {4, 8, TENSOR_F32, below, 16, "", "expected numbers above 0.01, found -1 as"},
        {4, 8, TENSOR_F32, no_number, 16, "", "expected numbers above 0.01, found nan as"},
        {4, 8, TENSOR_F32, infinite, 16, "", "expected numbers above 0.01, found inf as"},
        {4, 8, TENSOR_F32, low, 16, "", "expected numbers above 0.01, found -inf as"},
        {4, 8, TENSOR_F32, small, 16, "", "expected numbers above 0.01, found 0.001 as"},
        {4, 8, TENSOR_F16, halves, 8, "", "found 0 as element 3"},
        {4, 8, 26, good, 16, "", "rope_freqs.weight: expected type F32, F16"}, /* i32 */
        /* Heads so wide that their factors are a whole block. */
        {32, 64, TENSOR_Q8_0, block, 34, "", "expected type F32, F16 or BF16, found Q8_0"},
    };
    hostile_add_tensor("rope_freqs.weight", 1, 4, TENSOR_F32,
                       (struct text){(const char *)good, 16});
    bent_accepted(LOADERS, "");
    for (size_t i = 0; i < COUNT(factors); i++) {
        struct config c = llama();
        c.head_dim = factors[i].head_dim;
        if (c.head_dim > 8)
            use_config("llama", &c);
        hostile_add_tensor("rope_freqs.weight", 1, (uint64_t)factors[i].n, factors[i].type,
                           (struct text){factors[i].data, factors[i].len});
        /* Of blocks the commands that are left out ask for --requantize first. */
        bent_refused(LOADERS & ~(c.head_dim > 8 ? CONVERT | TRAIN | TEACHER : 0), factors[i].bends,
                     factors[i].text);
    }
}

/* As llama.cpp's converter of llama2.c files writes: the base is 10000, the width a head's. */
TEST(rotary_keys_may_be_missing, .before = use_llama)
{
    static const char line[] = "score %B --tokens 5,7,11,13,17,2,3 -t 1 -q --top 3";
    struct ran with, without;
    bend("llama.context_length=u32:128");
    hostile_write();
    run_on_bad(&with, line);
    bend("-" BASE "; -" DIMS);
    hostile_write();
    run_on_bad(&without, line);
    expect_success(&with);
    ck_assert_str_eq(with.out, without.out);
}

#define KV    "llama.attention.head_count_kv"
#define KEY   "llama.attention.key_length"
#define VALUE "llama.attention.value_length"

TEST(class_07_kv_heads_by_layer, .before = use_llama)
{
    static const struct bend bends[] = {
        {KV "=i32[]:2", "head_count_kv: expected one number a layer, 2, found 1"},
        {KV "=f32[]:2,2", "head_count_kv: expected integers, found f32"},
    };
    TRY_BENDS(bends, READERS);
    bent_refused(LOADERS, "-" KV, /* as many as heads */
                 "blk.0.attn_k.weight: expected shape 32 x 32, found 32 x 16");
    bent_accepted(READERS, KV "=u8[]:2,2");
    bent_accepted(READERS, KV "=i64[]:2,2");
    bent_refused(LOADERS, KV "=u8[]:2,4", /* against the tensors */
                 "blk.1.attn_k.weight: expected shape 32 x 32, found 32 x 16");
}

TEST(class_07_widths_of_heads, .before = use_llama)
{
    static const struct bend keys[] = {
        {KEY "=u32:0", "key_length\": expected 1 to 65536, found 0"},
        {KEY "=u32:65537", "key_length\": expected 1 to 65536, found 65537"},
        {KEY "=u32:16385", "key_length: expected at most 16384 for 4 heads, found 16385"},
        {KEY "=u32:6", "dimension_count: expected an even number of a head's 6 elements"},
        {VALUE "=u32:65536", "value_length: expected at most 16384 for 4 heads"},
        /* And no key of what turns of them. */
        {KEY "=u32:7; -" DIMS, "expected an even number of a head's 7 elements, found 7"},
    };
    static const struct bend tensors[] = {
        {KEY "=u32:16", "blk.0.attn_q.weight: expected shape 32 x 64, found 32 x 32"},
        {VALUE "=u32:4", "blk.0.attn_v.weight: expected shape 32 x 8, found 32 x 16"},
    };
    TRY_BENDS(keys, READERS);
    TRY_BENDS(tensors, LOADERS);
}

TEST(class_06_kinds, .before = bent_set_up)
{
    static const struct bend kinds[] = {
        {"decode.norm.type", "decode.norm.type: expected layer or rms, found"},
        {"decode.norm.placement", "decode.norm.placement: expected before or after, found"},
        {"decode.position.type", "decode.position.type: expected learned, sinusoidal, rope, alibi, "
                                 "quadratic or none, found"},
        {"decode.feed_forward.type",
         "decode.feed_forward.type: expected gelu, gelu_erf, relu or swiglu, found"},
    };
    static const char *const names[] = {"", "rmsnorm", "LAYER", "befor", "none ", "swiglu\x1b[2J"};
    char bends[120], text[120];
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        for (size_t k = 0; k < COUNT(names); k++) {
            snprintf(bends, sizeof bends, "%s=string:%s", kinds[i].bends, names[k]);
            bent_refused(READERS, bends, kinds[i].text);
        }
        snprintf(bends, sizeof bends, "%s=u32:0", kinds[i].bends);
        snprintf(text, sizeof text, "\"%s\": expected string, found u32", kinds[i].bends);
        bent_refused(READERS, bends, text);
        snprintf(bends, sizeof bends, "-%s", kinds[i].bends);
        snprintf(text, sizeof text, "\"%s\" is missing", kinds[i].bends);
        bent_refused(READERS, bends, text);
    }
}

TEST(class_06_keys_of_decode, .before = bent_set_up)
{
    static const struct bend bends[] = {
        {"decode.norm.epsilon=f32:0", "norm.epsilon: expected a number between 0"},
        {"decode.embedding_scale=f32:0", "embedding_scale: expected a number between"},
        {"decode.embedding_scale=f32:nan", "embedding_scale: expected"},
        {"decode.embedding_scale=f64:1e-300", "embedding_scale: expected a number"},
        {"decode.block.shared=u32:1", "block.shared\": expected bool, found u32"},
        {"decode.rope.dimension_count=u32:7", NULL}, /* nothing that this has */
        {"decode.block.shared=bool:1; decode.attention.head_count_kv=u8[]:2,4",
         "head_count_kv: expected the same number in all layers"},
    };
    use_decode(PLACEMENT_BEFORE, POSITION_NONE);
    TRY_BENDS(bends, READERS);
    bent_accepted(READERS, "-decode.embedding_scale; -decode.block.shared");
    bent_refused(LOADERS, "decode.block.shared=bool:1", /* block 1 is there, too */
                 "tensor blk.1.attn_norm.weight: expected none of this name in architecture "
                 "decode of 2 layers that share a block");
}

/* A key says one kind, the tensors are those of another. */
TEST(class_07_kinds_against_tensors, .before = bent_set_up)
{
    static const struct bend alibi[] = {
        {"decode.norm.type=string:rms", "blk.0.attn_norm.bias: expected none of this"},
        {"decode.norm.placement=string:before", NULL},
        {"decode.norm.placement=string:after", "blk.0.attn_norm.weight: expected none of this"},
        {"decode.position.type=string:learned", "position_embd.weight: missing"},
        {"decode.position.type=string:quadratic", "blk.0.attn_rel.weight: missing"},
        {"decode.position.type=string:rope", NULL},
        {"decode.feed_forward.type=string:relu", "blk.0.ffn_gate.weight: expected none"},
    };
    static const struct bend learned[] = {
        {"decode.norm.placement=string:before",
         "blk.0.attn_output_norm.weight: expected none of this name"},
        {"decode.position.type=string:none", "position_embd.weight: expected none of this name"},
    };
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    TRY_BENDS(alibi, LOADERS);
    use_decode(PLACEMENT_AFTER, POSITION_LEARNED);
    TRY_BENDS(learned, LOADERS);
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    bent_refused(LOADERS, "decode.position.type=string:alibi",
                 "blk.0.attn_rel.weight: expected none of this name");
}

static void use_heads(const char *arch, bool shared)
{
    struct config c =
        config_sized("gpt2", "layers=2 heads=4 kv=4 dim=8 width=32 ff=64 ctx=16 vocab=260");
    c.shared = shared;
    use_config(arch, &c);
}

#define HEADS "decode.attention.head_count"

/* Query heads by layer, which only this architecture has. */
TEST(class_07_heads_by_layer, .before = bent_set_up)
{
    static const struct bend bends[] = {
        {HEADS "=i32[]:4,0", HEADS ": expected from 1 to 65536 in every layer, found 0"},
        {HEADS "=i32[]:4", HEADS ": expected one number a layer, 2, found 1"},
        {HEADS "=f32[]:4,4", HEADS ": expected integers, found f32"},
        {HEADS "=i32[]:4,2", HEADS "_kv: expected a divisor of head_count 2, found 4"},
        {HEADS "=i32[]:4,65536; " HEADS "_kv=u32:1", "expected a divisor of embedding_length"},
        {HEADS "=i32[]:4,2; " HEADS "_kv=u32:2; decode.attention.key_length=u32:8",
         "expected shape"},
    };
    use_heads("decode", false);
    TRY_BENDS(bends, LOADERS);
    bent_accepted(LOADERS, HEADS "=i32[]:4,4");
    use_heads("decode", true);
    bent_refused(READERS, HEADS "=i32[]:4,2; " HEADS "_kv=u32:1",
                 HEADS ": expected the same number in all layers, which share one block");
    use_heads("gpt2", false);
    bent_refused(READERS, "gpt2.attention.head_count=i32[]:4,4",
                 "expected an integer, found an array of i32");
}

/* gpt2 passes over what a block has beside its own: without a head it is `decode`, which refuses
 * that. */
TEST(tensors_that_gpt2_passes_over, .before = bent_set_up)
{
    struct ran r;
    use_heads("gpt2", false);
    hostile_add_tensor("blk.0.attn_mask", 32, 32, TENSOR_F32,
                       hostile_tensor("blk.0.attn_output.weight")->data);
    hostile_write();
    expect_line_done("convert %B -o %O --drop-heads 0.1 -q", "");
    expect_line_done("generate %O -p a -n 1 -q", "");
    run_on_bad(&r, "info %O --tensors");
    ck_assert_ptr_nonnull(strstr(r.out, "attn_output"));
    ck_assert_ptr_null(strstr(r.out, "attn_mask"));
}

/* Each bend of one tensor is refused with its name; there is a space between them. */
static void try_tensors(char sign, const char *names, const char *says)
{
    char bends[96], text[128], list[400];
    strcpy(list, names);
    for (const char *name = strtok(list, " "); name; name = strtok(NULL, " ")) {
        snprintf(bends, sizeof bends, "%c%s", sign, name);
        snprintf(text, sizeof text, "tensor %s: %s", name, says);
        bent_refused(LOADERS, bends, text);
    }
}

TEST(class_08_missing_tensors, .before = use_llama)
{
    try_tensors('!',
                "blk.0.attn_q.weight blk.1.attn_k.weight blk.1.attn_v.weight blk.0.ffn_gate.weight "
                "blk.1.ffn_up.weight output_norm.weight",
                "missing");
    bent_accepted(READERS, "!output.weight");
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    try_tensors('!',
                "blk.0.attn_output_norm.weight blk.1.layer_output_norm.weight "
                "blk.1.attn_rel.weight blk.0.attn_qkv.weight",
                "missing");
    bent_accepted(READERS,
                  "!blk.1.layer_output_norm.bias; !blk.0.attn_qkv.bias; !blk.1.ffn_gate.bias");
}

/* One that no model of the architecture has, of the shape [32, 32] that it might have. */
TEST(foreign_tensors, .before = use_llama)
{
    try_tensors('+',
                "blk.0.attn_qkv.weight blk.0.attn_q_norm.weight blk.0.attn_norm.bias "
                "blk.0.ffn_gate_exps.weight blk.0.attn_rel.weight blk.2.ffn_up.weight blk.0 "
                "blk.00.ffn_up.weight blk.4294967296.ffn_up.weight output_norm.bias "
                "position_embd.weight token_embd_norm.weight rope_factors_long.weight",
                "expected none of this name");
    bent_accepted(READERS, "+blk.1.attn_rot_embd.weight; +what.is.this");
    /* A bias that the engine adds and training does not know. */
    bent_refused_by_all(TRAIN | TEACHER, "+output.bias; output.bias~260", "output.bias");
    bent_accepted(GENERATE | SCORE, "+output.bias; output.bias~260");
    use_decode(PLACEMENT_AFTER, POSITION_ALIBI);
    try_tensors('+',
                "blk.0.attn_q.weight blk.0.attn_kv_a.weight blk.1.attn_norm.weight "
                "output_norm.weight rope_freqs.weight",
                "expected none of this name");
}

TEST(foreign_keys, .before = use_llama)
{
    static const struct bend bends[] = {
        {"llama.expert_count=u32:8", "expert_count: expected none or 0,"},
        {"llama.expert_count=u32:0", NULL},
        {"llama.attention.sliding_window=u32:4096", "sliding_window: expected none or 0,"},
        {"llama.logit_scale=f32:0.5", "logit_scale: expected none or 1,"},
        {"llama.logit_scale=f32:1", NULL},
        {"llama.embedding_scale=f32:12", "embedding_scale: expected none or 1,"},
        {"llama.attention.scale=f32:0.5", NULL},
        {"llama.attention.scale=f32:0", NULL},
        {"llama.attention.scale=f32:2e6",
         "attention.scale: expected a number between -1e+06 and 1e+06, found 2e+06"},
        {"llama.use_parallel_residual=bool:1", "use_parallel_residual: expected none or 0,"},
        {"llama.use_parallel_residual=bool:0", NULL},
        {"llama.attention.causal=bool:0", "attention.causal: expected none or 1,"},
        {"llama.attention.sliding_window=bool[]:1,0",
         "sliding_window: expected none or 0, because nothing else runs here; found array"},
        {"llama.expert_count=string:8", "because nothing else runs here; found string"},
    };
    /* One vector a position in place of keys and values. */
    static const struct bend latent[] = {
        {"decode.attention.latent=u32:8",
         "decode.attention.latent: expected none or 0, because nothing else runs here; found 8"},
        {"decode.attention.latent=i32[]:12,7",
         "decode.attention.latent: expected none or 0, because nothing else runs here; found "
         "array"},
        {"decode.attention.latent=u32:0", NULL},
    };
    TRY_BENDS(bends, LOADERS);
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    TRY_BENDS(latent, LOADERS);
}

static void expect_not_finite(const char *tensor, float value)
{
    struct ran r;
    memcpy(hostile_own_data(tensor), &value, 4);
    hostile_write();
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --no-echo");
    ck_assert_msg(r.code == 1, "%s: exit %d", tensor, r.code);
    r.out_len = 0;
    expect_refusal(&r, 1, "not finite");
    expect_line_refused("eval %B --text %T -t 1", 1, "not finite");
    reset();
}

TEST(class_10_data, .before = use_llama)
{
    expect_not_finite("blk.0.ffn_gate.weight", NAN);
    expect_not_finite("blk.1.attn_q.weight", INFINITY);
    expect_not_finite("blk.1.attn_norm.weight", -INFINITY);
    use_decode(PLACEMENT_AFTER, POSITION_QUADRATIC);
    expect_not_finite("blk.0.attn_rel.weight", NAN);
    expect_not_finite("blk.1.layer_output_norm.bias", NAN);
    /* Scores so low that only the nearest counts. */
    static const float steep[8] = {1e30f, 3, -1e30f, 1, 1e-40f, 1e10f, 0, 0};
    hostile_tensor("blk.0.attn_rel.weight")->data.data = (const char *)steep;
    bent_accepted(GENERATE, "");
}

#if !SANITIZED

static void limit_memory(void *unused)
{
    (void)unused;
    const struct rlimit limit = {(rlim_t)768 << 20, (rlim_t)768 << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(99);
}

/* A key makes them as long as they can be: tables of positions are sized by what is asked for, and
 * what does not fit is said. */
static void long_context(const char *key)
{
    static const struct line within[] = {
        {"generate %B -p ab -n 2 -t 1 --seed 1 -c 16", 0, NULL, NULL},
        {"score %B -p ab -t 1", 0, NULL, NULL},
        {"eval %B --text %T -t 1 --ctx 16", 0, NULL, NULL},
        {"bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --depth 0 -t 1 -q", 0, NULL, NULL},
        {"info %B", 0, NULL, NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194304 -q", 4, "out of memory", NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194305", 2, "-c: expected at most 4194304", NULL},
    };
    struct ran r;
    hostile_set_u32(key, 1 << 22);
    hostile_write();
    try_lines(within, COUNT(within), limit_memory, NULL);
    /* Without -c the cache could be as long, but is not filled, and neither are the tables. */
    double mib = 1e9;
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --seed 1");
    expect_success(&r);
    const char *peak = strstr(r.err, "peak memory ");
    ck_assert_msg(peak && sscanf(peak, "peak memory %lf MiB", &mib) == 1, "%s", r.err);
    ck_assert_msg(mib < 64, "%g MiB", mib);
    hostile_set_u32(key, (1 << 22) + 1);
    bent_refused(READERS, "", "context_length\": expected 1 to 4194304, found 4194305");
}

TEST(class_15_long_contexts, .before = bent_set_up, .left_out = SANITIZED)
{
    use_llama();
    long_context("llama.context_length");
    use_decode(PLACEMENT_AFTER, POSITION_SINUSOIDAL);
    long_context("decode.context_length");
    use_decode(PLACEMENT_BEFORE, POSITION_ALIBI);
    long_context("decode.context_length");
}

#endif
