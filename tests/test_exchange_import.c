/*
 * Folders of transformers and of nanoGPT imported: the logits and the greedy tokens that
 * transformers (or, for nanoGPT, PyTorch in double precision) had for them. The ids of texts are
 * test_exchange_vocab's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "engine/session.h"
#include "exchange/private.h"
#include "formats/json.h"
#include "imports.h"
#include "opened.h"
#include "support.h"

#define TOLERANCE 2e-4

static const char *const folders[] = {"tests/data/hf/gpt2", "tests/data/hf/gpt-bigcode",
                                      "tests/data/hf/llama", "tests/data/hf/llama-tied-bf16"};
#define N_FOLDERS  4
#define MAX_TOKENS 64

/* --- expect.json ----------------------------------------------------------------------------- */

struct expected {
    struct json_reader reader;
    const struct json_node *root;
    unsigned char *bytes;
};

static struct expected open_expected(const char *folder)
{
    static const struct json_limits limits = {1 << 20, 1 << 16, 8};
    struct expected x = {.root = NULL};
    size_t len;
    x.bytes = read_file(path_of(folder, "expect.json"), &len);
    const struct text source = {(const char *)x.bytes, len};
    expect_ok(json_read(&x.reader, source, &limits, &x.root, &err));
    return x;
}

static void close_expected(struct expected *x)
{
    json_reader_free(&x->reader);
    free(x->bytes);
}

static int ids_of(const struct json_node *object, const char *key, int32_t *ids)
{
    const struct json_node *array;
    int n = 0;
    expect_ok(json_require(object, key, JSON_ARRAY, &array, &err));
    for (const struct json_node *c = NULL; (c = json_child(array, c)); n++) {
        int64_t id = -1;
        ck_assert_int_lt(n, MAX_TOKENS);
        expect_ok(json_node_i64(c, 0, INT32_MAX, &id, &err));
        ids[n] = (int32_t)id;
    }
    return n;
}

/* --- what is expected ------------------------------------------------------------------------ */

static void expect_logits(const struct checkpoint *c, const char *folder, const int32_t *tokens,
                          int n)
{
    size_t n_expected;
    float *expected = read_npy(path_of(folder, "logits.npy"), &n_expected);
    ck_assert_uint_eq(n_expected, (size_t)n * (size_t)c->model->config.n_vocab);
    float *found = logits_of(c->model, tokens, n);
    expect_close(folder, found, expected, n_expected, TOLERANCE);
    free(found);
    free(expected);
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

/* --- tests ----------------------------------------------------------------------------------- */

TEST(folders_are_what_transformers_have, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    const char *folder = folders[_i];
    int32_t tokens[MAX_TOKENS], greedy[MAX_TOKENS];
    struct expected x = open_expected(folder);
    struct checkpoint c = open_import(folder, NULL);
    const int n = ids_of(x.root, "tokens", tokens);
    ck_assert_int_ge(n, 8);
    expect_logits(&c, folder, tokens, n);
    const int n_greedy = ids_of(x.root, "greedy_from_first_8", greedy);
    ck_assert_int_gt(n_greedy, 0);
    expect_greedy(c.model, tokens, greedy, n_greedy);
    checkpoint_close(&c);
    close_expected(&x);
}

/* An output that the folder ties to the embedding is not written a second time: llama.cpp reads it
 * tied, and a conversion of the file is that of the folder. */
TEST(tied_output_is_not_written_twice, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    const char *folder = folders[_i];
    struct checkpoint c = open_import(folder, &(struct import_options){.n_ctx = 0});
    size_t len;
    char *config = (char *)read_file(path_of(folder, "config.json"), &len);
    static const char untied[] = "\"tie_word_embeddings\": false";
    const bool own = memmem(config, len, untied, sizeof untied - 1) != NULL;
    ck_assert_int_eq(layout_output_tied(c.gguf), !own);
    ck_assert_int_eq(gguf_find_tensor(c.gguf, "output.weight") != NULL, own);
    ck_assert_int_eq(c.model->tied, !own);
    free(config);
    checkpoint_close(&c);
}

/* Made by scripts/make_nanogpt.py. */
TEST(folders_of_nanogpt, .loops = 2, .tags = ONE_THREAD)
{
    static const char *const nano[] = {"tests/data/nanogpt/bias", "tests/data/nanogpt/no-bias"};
    int32_t tokens[MAX_TOKENS];
    size_t len;
    int n = 0;
    char *list = (char *)read_file(path_of(nano[_i], "tokens.txt"), &len);
    list[len - 1] = 0;
    for (char *item = strtok(list, ","); item; item = strtok(NULL, ","))
        tokens[n++] = (int32_t)atoi(item);
    free(list);
    struct checkpoint c = open_import(nano[_i], NULL);
    ck_assert_str_eq(c.model->config.arch->name, "decode");
    ck_assert_ptr_null(c.tokenizer);
    expect_logits(&c, nano[_i], tokens, n);
    checkpoint_close(&c);
}

static void expect_same_import(const char *a, const char *b)
{
    struct file_map x = import_bytes(a, NULL), y = import_bytes(b, NULL);
    ck_assert_uint_eq(x.len, y.len);
    ck_assert_msg(memcmp(x.data, y.data, x.len) == 0, "%s and %s differ", a, b);
    file_map_close(&x);
    file_map_close(&y);
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
    struct weights w = read_weights(folders[_i]);
    const char *copy = copy_of(folders[_i]);
    write_weights(&w, 0, w.file.n_tensors, _i < 2 ? "transformer." : "model.", NULL, copy,
                  "model.safetensors");
    expect_same_import(folders[_i], copy);
    free_weights(&w);
    scratch_remove();
}

/* Three shards and their index. */
TEST(in_shards, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    struct weights w = read_weights(folders[_i]);
    const char *copy = copy_of(folders[_i]);
    const size_t n = w.file.n_tensors;
    char *index = calloc(n + 1, 200), *end = index;
    end += sprintf(end, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t shard = 0; shard < 3; shard++) {
        char name[64];
        const size_t first = n * shard / 3, next = n * (shard + 1) / 3;
        snprintf(name, sizeof name, "model-0000%zu-of-00003.safetensors", shard + 1);
        write_weights(&w, first, next - first, NULL, NULL, copy, name);
        for (size_t i = first; i < next; i++)
            end += sprintf(end, "%s\"%.*s\": \"%s\"", i ? ", " : "",
                           text_width(w.file.tensors[i].name), w.file.tensors[i].name.data, name);
    }
    sprintf(end, "}}");
    write_text(copy, "model.safetensors.index.json", index);
    expect_same_import(folders[_i], copy);
    free(index);
    free_weights(&w);
    scratch_remove();
}

/* Matrices stay what they are; the logits are those of the F32 folder up to what rounding does to
 * weights of 11 and 8 bits. */
TEST(in_half_precision, .loops = 2, .tags = ONE_THREAD)
{
    static const uint32_t types[] = {TENSOR_F16, TENSOR_BF16};
    int32_t tokens[MAX_TOKENS];
    struct expected x = open_expected(folders[0]);
    const int n = ids_of(x.root, "tokens", tokens);
    const struct safetensors_dtype *half = safetensors_dtype_of(types[_i]);
    struct weights w = read_weights(folders[0]);
    const char *copy = copy_of(folders[0]);
    write_weights(&w, 0, w.file.n_tensors, NULL, half, copy, "model.safetensors");
    free_weights(&w);
    struct checkpoint halved = open_import(copy, NULL);
    const struct gguf_tensor *t = gguf_find_tensor(halved.gguf, "blk.0.ffn_up.weight");
    ck_assert_uint_eq(t->type->type, types[_i]);
    t = gguf_find_tensor(halved.gguf, "blk.0.attn_norm.weight");
    ck_assert_uint_eq(t->type->type, TENSOR_F32);
    float *found = logits_of(halved.model, tokens, n);
    size_t n_expected;
    float *expected = read_npy(path_of(folders[0], "logits.npy"), &n_expected);
    expect_close("half precision", found, expected, n_expected, _i ? 0.2 : 0.02);
    free(found);
    free(expected);
    checkpoint_close(&halved);
    close_expected(&x);
    scratch_remove();
}

/* The same logits with fewer positions. Learned ones end where they end; computed ones go on. */
TEST(with_another_context, .loops = N_FOLDERS, .tags = ONE_THREAD)
{
    struct import *im;
    const enum status s =
        import_open(folders[_i], &(struct import_options){.n_ctx = 500}, &im, &err);
    if (_i < 2)
        expect_status(s, STATUS_USAGE, "64 positions");
    else
        ck_assert(s == STATUS_OK && import_config(im)->n_ctx == 500);
    import_close(im);
    int32_t tokens[MAX_TOKENS];
    struct expected x = open_expected(folders[_i]);
    ids_of(x.root, "tokens", tokens);
    struct checkpoint whole = open_import(folders[_i], NULL);
    struct checkpoint c = open_import(folders[_i], &(struct import_options){.n_ctx = 16});
    ck_assert_int_eq(c.model->config.n_ctx, 16);
    float *a = logits_of(whole.model, tokens, 16), *b = logits_of(c.model, tokens, 16);
    ck_assert_mem_eq(a, b, 16 * (size_t)c.model->config.n_vocab * sizeof *a);
    free(a);
    free(b);
    checkpoint_close(&c);
    checkpoint_close(&whole);
    close_expected(&x);
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

/* --- which format ---------------------------------------------------------------------------- */

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
        char name[16];
        snprintf(name, sizeof name, "tensor.%d", i);
        gguf_add_tensor(w, text_of(name), TENSOR_F32, 1, (const uint64_t[]){1, 1, 1, 1}, zero);
    }
    expect_ok(gguf_write(w, path, &err));
    gguf_writer_free(w);
    ck_assert_msg(import_is_for(path, &is_other, &err) == STATUS_OK && !is_other, "%s", err.text);
    expect_ok(import_is_for("tests/data/hf/gpt2/model.safetensors", &is_other, &err));
    ck_assert(is_other);
    scratch_remove();
}
