/*
 * Checkpoints exported: what was imported goes out with the bytes it came with, and what comes back
 * in has the logits that golden checkpoints have (tests/golden.h). What transformers has no model
 * for is refused, naming why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints.h"
#include "exchange/exchange.h"
#include "formats/gguf.h"
#include "golden.h"
#include "imports.h"
#include "opened.h"
#include "safetensors_find.h"
#include "support.h"

#define TOLERANCE 2e-4

static enum status try_export(const struct gguf *g, bool expand, const char *dir,
                              struct export_result *r, struct err *e)
{
    const struct export_options o = {.expand = expand, .notes = {no_note, NULL}};
    return export_folder(g, &o, dir, r, e);
}

TEST(what_came_in_goes_out, .loops = 4, .tags = ONE_THREAD)
{
    static const struct {
        const char *folder, *class, *variant, *dtype;
    } cases[] = {
        {"tests/data/hf/gpt2", "GPT2LMHeadModel", "MHA", "float32"},
        {"tests/data/hf/gpt-bigcode", "GPTBigCodeForCausalLM", "MQA", "float32"},
        {"tests/data/hf/llama", "LlamaForCausalLM", "GQA-2", "float32"},
        {"tests/data/hf/llama-tied-bf16", "LlamaForCausalLM", "MHA", "bfloat16"},
    };
    struct export_result r;
    const char *dir = scratch_path("folder");
    const struct checkpoint c = open_import(cases[_i].folder, NULL);
    expect_ok(try_export(c.gguf, false, dir, &r, &err));
    size_t len; /* names, types, shapes and bytes, and their order */
    const char *bytes = file_text(path_of(cases[_i].folder, "model.safetensors"), &len);
    expect_bytes(path_of(dir, "model.safetensors"), bytes, len);
    ck_assert_str_eq(r.model_class, cases[_i].class);
    ck_assert_str_eq(r.variant, cases[_i].variant);
    ck_assert_str_eq(r.dtype, cases[_i].dtype);
}

/* An MHA of GPT-BigCode, whose rows of Q, K and V are interleaved head by head. */
TEST(interleaved_heads, .tags = ONE_THREAD)
{
    enum { HEADS = 4, DIM = 16, WIDTH = 64 };
    static const char name[] = "blk.0.attn_qkv.weight";
    const struct config whole =
        config_sized("starcoder", "layers=1 heads=4 kv=4 width=64 ff=96 ctx=16 vocab=257");
    const char *path = scratch_path("m.gguf"), *dir = scratch_path("folder");
    struct export_result r;
    write_config_checkpoint(path, &whole);
    const struct checkpoint c = opened_checkpoint(path, 0);
    expect_ok(try_export(c.gguf, false, dir, &r, &err));
    ck_assert_str_eq(r.model_class, "GPTBigCodeForCausalLM");
    const struct gguf_tensor *ours = gguf_find_tensor(c.gguf, name);
    const struct safetensors_tensor *theirs =
        safetensors_find(read_weights(dir), text_of("transformer.h.0.attn.c_attn.weight"));
    ck_assert(ours && theirs && theirs->n_bytes == ours->n_bytes);
    const size_t row = WIDTH * sizeof(float);
    for (int h = 0; h < HEADS; h++)
        for (int part = 0; part < 3; part++)
            for (int i = 0; i < DIM; i++)
                ck_assert_mem_eq(theirs->data + (size_t)((h * 3 + part) * DIM + i) * row,
                                 ours->data + (size_t)((part * HEADS + h) * DIM + i) * row, row);
    const struct checkpoint back = open_import(dir, NULL);
    ck_assert_mem_eq(gguf_find_tensor(back.gguf, name)->data, ours->data, (size_t)ours->n_bytes);
}

static const struct {
    const char *name;
    bool expand;
    const char *class, *variant;
} trips[] = {
    {"mha", false, "GPT2LMHeadModel", "MHA"},
    {"gqa", true, "GPT2LMHeadModel", "MHA"},
    {"layerwise-kv", true, "GPT2LMHeadModel", "MHA"},
    {"mqa", false, "GPTBigCodeForCausalLM", "MQA"},
    {"mqa", true, "GPT2LMHeadModel", "MHA"},
    {"mqa-f16", false, "GPTBigCodeForCausalLM", "MQA"},
    {"mqa-f16", true, "GPT2LMHeadModel", "MHA"},
    {"llama", false, "LlamaForCausalLM", "GQA-2"},
    {"llama", true, "LlamaForCausalLM", "MHA"},
    {"llama-tied", false, "LlamaForCausalLM", "MHA"},
    {"shared-block", false, "LlamaForCausalLM", "GQA-2"},
    {"shared-block", true, "LlamaForCausalLM", "MHA"},
};

TEST(there_and_back, .loops = (int)COUNT(trips), .tags = ONE_THREAD)
{
    struct export_result r;
    const char *dir = scratch_path("folder");
    const struct golden g = open_golden(trips[_i].name);
    expect_ok(try_export(g.checkpoint.gguf, trips[_i].expand, dir, &r, &err));
    ck_assert_str_eq(r.model_class, trips[_i].class);
    ck_assert_str_eq(r.variant, trips[_i].variant);
    const struct checkpoint c = open_import(dir, NULL);
    const struct config *was = &g.checkpoint.model->config, *is = &c.model->config;
    ck_assert(is->n_vocab == was->n_vocab && is->n_ctx == was->n_ctx);
    ck_assert_double_eq((double)is->norm_eps, (double)was->norm_eps);
    ck_assert_double_eq(is->rope.base, was->rope.base);
    expect_close(trips[_i].name, logits_of(c.model, g.tokens, g.n_tokens), g.logits,
                 (size_t)g.n_tokens * (size_t)is->n_vocab, TOLERANCE);
}

static const struct {
    const char *name;
    bool expand;
    const char *message;
} refusals[] = {
    {"gqa", false, "variant GQA-3; --expand"},
    {"layerwise-kv", false, "--expand"},
    {"alibi", true, "positions alibi"},
    {"quadratic", true, "positions quadratic"},
    {"transformer", true, "post-LN"},
    {"mixed-alibi", true, "post-LN"},
    {"mixed-llama", false, "a part of each head turned"},
    {"mixed-llama", true, "a part of each head turned"},
    {"mixed-none", true, "values of another size than keys"},
    {"mixed-sinusoidal", true, "scaled embedding"},
};

/* No folder is left of it. */
static void expect_no_export(const struct gguf *g, bool expand, const char *message)
{
    struct export_result r;
    struct err e = {""};
    struct stat st;
    const char *dir = scratch_path("folder");
    ck_assert_int_eq(try_export(g, expand, dir, &r, &e), STATUS_USAGE);
    ck_assert_msg(strstr(e.text, message) && strstr(e.text, "transformers"), "%s", e.text);
    ck_assert_int_ne(stat(dir, &st), 0);
}

TEST(no_model_of_transformers, .loops = (int)COUNT(refusals), .tags = ONE_THREAD)
{
    const struct golden g = open_golden(refusals[_i].name);
    expect_no_export(g.checkpoint.gguf, refusals[_i].expand, refusals[_i].message);
}

/* A small checkpoint that differs from GPT-2, or a Llama, in one thing. */
static void expect_kind_refused(const struct config *c, unsigned as, const char *message)
{
    const char *path = scratch_path("m.gguf");
    write_config_checkpoint_as(path, c, as);
    expect_no_export(opened_checkpoint(path, 0).gguf, true, message);
}

TEST(one_thing_is_different, .tags = ONE_THREAD)
{
    static const char sizes[] = "layers=1 heads=2 kv=2 width=32 ff=64 ctx=16 vocab=257";
    const struct config gpt2 = config_sized("decode", sizes);
    struct config c = gpt2;
    c.position = POSITION_SINUSOIDAL;
    expect_kind_refused(&c, 0, "positions sinusoidal");
    c.position = POSITION_NONE;
    expect_kind_refused(&c, 0, "positions none");
    c = gpt2;
    c.norm = NORM_RMS;
    expect_kind_refused(&c, 0, "norm rms");
    c = gpt2;
    c.ffn = FFN_SWIGLU;
    expect_kind_refused(&c, 0, "feed-forward swiglu");
    c = gpt2;
    c.head_dim = 8;
    expect_kind_refused(&c, 0, "heads of this size");
    c = gpt2;
    c.embedding_scale = 2;
    expect_kind_refused(&c, 0, "scaled embedding");
    c = config_sized("llama", sizes);
    c.rope = (struct config_rope){.n_dims = 16, .base = 10000, .scale = 1};
    expect_kind_refused(&c, CONFIG_ROPE_FACTORS, "rope_freqs.weight");
}

/* What else is in the folder stays, but for a vocabulary that transformers would read instead. */
TEST(folders_are_replaced_as_a_whole, .tags = ONE_THREAD)
{
    static const char *const stay[] = {"config.json", "other", "mine/file"};
    struct export_result r;
    const struct golden g = open_golden("mha");
    const char *dir = make_folder("folder");
    ck_assert_int_eq(mkdir(path_of(dir, "model.safetensors"), 0777), 0);
    write_text(dir, "config.json", "{}");
    write_text(dir, "other", "stays");
    write_text(dir, "tokenizer.model", "another");
    expect_status(try_export(g.checkpoint.gguf, false, dir, &r, &err), STATUS_FAILED, "folder");
    ck_assert_int_eq(rmdir(path_of(dir, "model.safetensors")), 0);
    ck_assert_int_eq(mkdir(path_of(dir, "mine"), 0777), 0);
    write_text(dir, "mine/file", "stays");
    expect_ok(try_export(g.checkpoint.gguf, false, dir, &r, &err));
    for (size_t i = 0; i < COUNT(stay); i++)
        ck_assert_msg(access(path_of(dir, stay[i]), F_OK) == 0, "no %s", stay[i]);
    ck_assert_int_ne(access(path_of(dir, "tokenizer.model"), F_OK), 0);
}
