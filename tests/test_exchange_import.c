/*
 * Folders of transformers and of nanoGPT imported: the logits and the greedy tokens that
 * transformers (or, for nanoGPT, PyTorch in double precision) had for them. The ids of texts are
 * test_exchange_vocab's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "exchange/private.h"
#include "imports.h"
#include "opened.h"
#include "support.h"

#define TOLERANCE 2e-4

static const char *const folders[] = {"tests/data/hf/gpt2", "tests/data/hf/gpt-bigcode",
                                      "tests/data/hf/llama", "tests/data/hf/llama-tied-bf16"};
#define N_FOLDERS  4
#define MAX_TOKENS 64

static int tokens_of(const char *folder, const char *key, int32_t *tokens)
{
    const struct json_node *array;
    expect_ok(json_require(json_in(path_of(folder, "expect.json")), key, JSON_ARRAY, &array, &err));
    const int n = numbers_in(array, tokens, MAX_TOKENS);
    ck_assert_int_ge(n, 8);
    return n;
}

static void expect_logits(const struct checkpoint *c, const char *folder, const int32_t *tokens,
                          int n, double tolerance)
{
    size_t n_expected;
    const float *expected = read_npy(path_of(folder, "logits.npy"), &n_expected);
    ck_assert_uint_eq(n_expected, (size_t)n * (size_t)c->model->config.n_vocab);
    expect_close(folder, logits_of(c->model, tokens, n), expected, n_expected, tolerance);
}

static void expect_greedy(const struct model *m, const int32_t *tokens, const int32_t *expected,
                          int n)
{
    const struct session_params params = {.kv_storage = STORAGE_F32};
    struct session *s = new_session(m, &params, NULL);
    expect_ok(session_feed(s, 0, tokens, 8, NULL, &err));
    for (int i = 0; i < n; i++) {
        const int32_t next = logits_argmax(session_logits(s), m->config.n_vocab);
        ck_assert_int_eq(next, expected[i]);
        expect_ok(session_feed(s, 0, &next, 1, NULL, &err));
    }
    session_free(s);
}

/* An output that the folder ties to the embedding is not written a second time: llama.cpp reads it
 * tied, and a conversion of the file is that of the folder. */
TEST(folders_are_what_transformers_have, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    int32_t tokens[MAX_TOKENS], greedy[MAX_TOKENS];
    const struct checkpoint c = open_import(folders[_i], NULL);
    const int n = tokens_of(folders[_i], "tokens", tokens);
    expect_logits(&c, folders[_i], tokens, n, TOLERANCE);
    expect_greedy(c.model, tokens, greedy, tokens_of(folders[_i], "greedy_from_first_8", greedy));
    const char *config = file_text(path_of(folders[_i], "config.json"), NULL);
    const bool own = strstr(config, "\"tie_word_embeddings\": false") != NULL;
    ck_assert(layout_output_tied(c.gguf) == !own && c.model->tied == !own);
    ck_assert_int_eq(gguf_find_tensor(c.gguf, "output.weight") != NULL, own);
}

/* Made by scripts/make_nanogpt.py. */
TEST(folders_of_nanogpt, .loops = 2, .tags = ONE_THREAD)
{
    static const char *const nano[] = {"tests/data/nanogpt/bias", "tests/data/nanogpt/no-bias"};
    int32_t tokens[MAX_TOKENS];
    int n = 0;
    char *list = file_text(path_of(nano[_i], "tokens.txt"), NULL);
    for (char *item = strtok(list, ",\n"); item; item = strtok(NULL, ",\n"))
        tokens[n++] = (int32_t)atoi(item);
    const struct checkpoint c = open_import(nano[_i], NULL);
    ck_assert_str_eq(c.model->config.arch->name, "decode");
    ck_assert_ptr_null(c.tokenizer);
    expect_logits(&c, nano[_i], tokens, n, TOLERANCE);
}

static void expect_same_import(const char *a, const char *b)
{
    ck_assert_msg(text_equal(import_bytes(a, NULL), import_bytes(b, NULL)), "%s and %s differ", a,
                  b);
}

/* A copy, whose name is that of the original, without its weights. */
static const char *copy_of(const char *folder)
{
    static const char *const all[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    const char *copy = make_folder(strrchr(folder, '/') + 1);
    for (int i = 0; i < 3; i++)
        copy_to(folder, copy, all[i]);
    return copy;
}

TEST(without_the_prefix, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    const struct safetensors *w = read_weights(folders[_i]);
    const char *copy = copy_of(folders[_i]);
    write_weights(w, 0, w->n_tensors, _i < 2 ? "transformer." : "model.", NULL, copy,
                  "model.safetensors");
    expect_same_import(folders[_i], copy);
}

/* Three shards and their index. */
TEST(in_shards, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    const struct safetensors *w = read_weights(folders[_i]);
    const char *copy = copy_of(folders[_i]);
    const size_t n = w->n_tensors;
    char *index = allocated((n + 1) * 200), *end = index;
    end += sprintf(end, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t shard = 0; shard < 3; shard++) {
        char name[64];
        const size_t first = n * shard / 3, next = n * (shard + 1) / 3;
        snprintf(name, sizeof name, "model-0000%zu-of-00003.safetensors", shard + 1);
        write_weights(w, first, next - first, NULL, NULL, copy, name);
        for (size_t i = first; i < next; i++)
            end += sprintf(end, "%s\"%.*s\": \"%s\"", i ? ", " : "", text_width(w->tensors[i].name),
                           w->tensors[i].name.data, name);
    }
    sprintf(end, "}}");
    write_text(copy, "model.safetensors.index.json", index);
    expect_same_import(folders[_i], copy);
}

/* Matrices stay what they are; the logits are those of the F32 folder up to what rounding does to
 * weights of 11 and 8 bits. */
TEST(in_half_precision, .loops = 2, .tags = ONE_THREAD)
{
    static const uint32_t types[] = {TENSOR_F16, TENSOR_BF16};
    int32_t tokens[MAX_TOKENS];
    const int n = tokens_of(folders[0], "tokens", tokens);
    const struct safetensors *w = read_weights(folders[0]);
    const char *copy = copy_of(folders[0]);
    write_weights(w, 0, w->n_tensors, NULL, safetensors_dtype_of(types[_i]), copy,
                  "model.safetensors");
    const struct checkpoint c = open_import(copy, NULL);
    const struct gguf_tensor *matrix = gguf_find_tensor(c.gguf, "blk.0.ffn_up.weight");
    ck_assert_uint_eq(matrix->type->type, types[_i]);
    const struct gguf_tensor *norm = gguf_find_tensor(c.gguf, "blk.0.attn_norm.weight");
    ck_assert_uint_eq(norm->type->type, TENSOR_F32);
    expect_logits(&c, folders[0], tokens, n, _i ? 0.2 : 0.02);
}

/* The same logits with fewer positions. Learned ones end where they end; computed ones go on. */
TEST(with_another_context, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    static const struct import_options more = {.n_ctx = 500}, fewer = {.n_ctx = 16};
    struct import *im;
    const enum status s = import_open(folders[_i], &more, &im, &err);
    if (_i < 2)
        expect_status(s, STATUS_USAGE, "64 positions");
    else
        ck_assert(s == STATUS_OK && import_config(im)->n_ctx == 500);
    import_close(im);
    int32_t tokens[MAX_TOKENS];
    tokens_of(folders[_i], "tokens", tokens);
    const struct checkpoint whole = open_import(folders[_i], NULL);
    const struct checkpoint c = open_import(folders[_i], &fewer);
    ck_assert_int_eq(c.model->config.n_ctx, 16);
    ck_assert_mem_eq(logits_of(whole.model, tokens, 16), logits_of(c.model, tokens, 16),
                     16 * (size_t)c.model->config.n_vocab * sizeof(float));
}

/*
 * What frequencies are divided by, from transformers 5.23:
 *     c = LlamaConfig(hidden_size=d, num_attention_heads=1, head_dim=d, rope_parameters=p)
 *     base ** (-torch.arange(0, d, 2).double() / d) / ROPE_INIT_FUNCTIONS["llama3"](c, "cpu")[0]
 */
static const struct {
    int head_dim;
    double base;
    struct hf_llama3 llama3;
    double factors[16];
} llama3_cases[] = {
    {16, 500000, {8, 1, 4, 8192}, {1, 0.9999999, 1, 1, 2.69453, 8, 8, 8}},
    {32, 10000, {4, 1, 4, 256}, {1, 1, 1, 1, 1, 1.745822, 3.104558, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
    {8, 10000, {32, 0.5, 8, 128}, {1, 4.351556, 32, 32}},
};

TEST(factors_of_llama_3, .loops = 3, .tags = ONE_THREAD)
{
    float factors[16];
    struct config c = {.rope = {.base = llama3_cases[_i].base, .scale = 1}};
    c.rope.n_dims = llama3_cases[_i].head_dim;
    hf_llama3_factors(&llama3_cases[_i].llama3, &c, factors);
    for (int i = 0; i < c.rope.n_dims / 2; i++)
        ck_assert_double_eq_tol((double)factors[i] / llama3_cases[_i].factors[i], 1, 1e-6);
}

/* The low byte of a GGUF file's number of tensors is where a safetensors header begins with a
 * brace: 123 of them are no safetensors file. */
TEST(as_many_tensors_as_a_brace, .tags = ONE_THREAD)
{
    static const float zero[1];
    const char *path = scratch_path("model.gguf");
    struct gguf_writer *w;
    bool is_other = true;
    expect_ok(gguf_writer_create(&w, &err));
    for (int i = 0; i < '{'; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor.%d", i);
        gguf_add_tensor(w, text_of(name), TENSOR_F32, 1, (const uint64_t[]){1, 1, 1, 1}, zero);
    }
    expect_ok(gguf_write(w, path, &err));
    gguf_writer_free(w);
    ck_assert_msg(import_is_for(path, &is_other, &err) == STATUS_OK && !is_other, "%s", err.text);
    expect_ok(import_is_for("tests/data/hf/gpt2/model.safetensors", &is_other, &err));
    ck_assert(is_other);
}
