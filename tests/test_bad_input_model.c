/*
 * Hostile checkpoints against the whole program: a file that is whole, of a model that cannot be
 * (classes 6, 7 and 10), and what of its texts reaches the terminal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "bent.h"
#include "support.h"

/* --- class 6: keys --------------------------------------------------------------------------- */

static const char *const sizes[] = {"gpt2.context_length",      "gpt2.embedding_length",
                                    "gpt2.block_count",         "gpt2.attention.head_count",
                                    "gpt2.feed_forward_length", "gpt2.attention.head_count_kv"};
#define N_SIZES    6
#define N_REQUIRED 4 /* of them */

static void bad_size(const char *key)
{
    hostile_set_text(&h, key, text_of("4"));
    expect_bent_refused(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_F32, &(float){2}, 4);
    expect_bent_refused(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_BOOL, "\1", 1);
    expect_bent_refused(MODEL_READERS, key);
    hostile_set_array(&h, key, GGUF_U32, 3, "\2\0\0\0\2\0\0\0\2\0\0\0", 12);
    expect_bent_refused(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_I32, &(int32_t){-1}, 4);
    expect_bent_refused(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_I64, &(int64_t){INT64_MIN}, 8);
    expect_bent_refused(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    expect_bent_refused(MODEL_READERS, key);
}

static void bad_epsilon(void)
{
    static const char key[] = "gpt2.attention.layer_norm_epsilon";
    static const float values[] = {NAN, INFINITY, -INFINITY, 0, -1e-5f, 1, 1e30f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        hostile_set(&h, key, GGUF_F32, &values[i], 4);
        expect_bent_refused(MODEL_READERS, "layer_norm_epsilon: expected a number between 0 and 1");
    }
    hostile_set_text(&h, key, text_of("1e-5"));
    expect_bent_refused_by_all(MODEL_READERS, key);
    hostile_drop(&h, key);
    expect_bent_refused_by_all(MODEL_READERS, key);
    hostile_set(&h, key, GGUF_F64, &(double){1e-5}, 8);
    expect_bent_accepted(INFO | GENERATE);
    hostile_set(&h, key, GGUF_F32, &(float){1e-40f}, 4); /* as small as none, but a number */
    expect_bent_accepted(INFO | GENERATE);
}

TEST(class_06_required_keys, .before = bent_set_up, .after = bent_tear_down)
{
    for (int i = 0; i < N_SIZES; i++) {
        bad_size(sizes[i]);
        hostile_set(&h, sizes[i], hostile_pair(&h, sizes[i])->kind,
                    hostile_pair(&h, sizes[i])->value.data, 4);
        h.pairs[h.n_pairs] = *hostile_pair(&h, sizes[i]);
        h.n_pairs++;
        expect_bent_refused(EVERY_COMMAND, "expected each name once");
        hostile_drop(&h, sizes[i]);
        if (i < N_REQUIRED)
            expect_bent_refused_by_all(MODEL_READERS, sizes[i]);
        else
            expect_bent_accepted(INFO | GENERATE | SCORE | CONVERT | TRAIN | QUANTIZE);
    }
    hostile_drop(&h, "general.architecture");
    expect_bent_refused_by_all(MODEL_READERS & ~(INFO | CHECK),
                               "key \"general.architecture\" is missing");
    hostile_set_u32(&h, "general.architecture", 1);
    expect_bent_refused_by_all(MODEL_READERS, "general.architecture\": expected string, found u32");
    hostile_set_text(&h, "general.architecture", text_of(""));
    expect_bent_refused_by_all(MODEL_READERS & ~(INFO | CHECK), "found \"\"");
    bad_epsilon();
    for (int i = 0; i < N_SIZES; i++) { /* any integer does */
        uint64_t value = 0;
        memcpy(&value, hostile_pair(&h, sizes[i])->value.data, 4);
        hostile_set(&h, sizes[i], i % 2 ? GGUF_U64 : GGUF_I64, &value, 8);
    }
    expect_bent_accepted(INFO | GENERATE | CONVERT | TRAIN);
}

/* --- class 7: hyperparameters ---------------------------------------------------------------- */

TEST(class_07_hyperparameters, .before = bent_set_up, .after = bent_tear_down)
{
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } cases[] = {
        {"gpt2.attention.head_count", 0, "gpt2.attention.head_count"},
        {"gpt2.attention.head_count", 3, "head_count: expected a divisor of embedding_length 32"},
        {"gpt2.attention.head_count", 64, "head_count: expected a divisor of embedding_length"},
        {"gpt2.attention.head_count", UINT32_MAX, "gpt2.attention.head_count"},
        {"gpt2.attention.head_count", 1, "head_count_kv: expected a divisor of head_count 1"},
        {"gpt2.attention.head_count_kv", 0, "gpt2.attention.head_count_kv"},
        {"gpt2.attention.head_count_kv", 3, "head_count_kv: expected a divisor of head_count 2"},
        {"gpt2.attention.head_count_kv", 1u << 31, "gpt2.attention.head_count_kv"},
        {"gpt2.embedding_length", 0, "gpt2.embedding_length"},
        {"gpt2.embedding_length", 31, "head_count: expected a divisor of embedding_length 31"},
        {"gpt2.embedding_length", 1u << 30, "gpt2.embedding_length"},
        {"gpt2.block_count", 0, "gpt2.block_count"},
        {"gpt2.block_count", 1000000000, "gpt2.block_count"},
        {"gpt2.context_length", 0, "gpt2.context_length"},
        {"gpt2.context_length", UINT32_MAX, "gpt2.context_length"},
        {"gpt2.feed_forward_length", 0, "gpt2.feed_forward_length"},
        {"gpt2.feed_forward_length", UINT32_MAX, "gpt2.feed_forward_length"},
    };
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } loaded[] = {
        {"gpt2.embedding_length", 1u << 16, "token_embd.weight: expected shape 65536 x 260"},
        {"gpt2.block_count", 512, "blk.2."},
        {"gpt2.block_count", 3, "blk.2."},
        {"gpt2.context_length", 1, "position_embd.weight: expected shape 32 x 1, found 32 x 16"},
        {"gpt2.context_length", 1u << 22, "position_embd.weight: expected shape 32 x 4194304"},
        {"gpt2.feed_forward_length", 1, "blk.0.ffn_up.weight: expected shape 32 x 1"},
        {"gpt2.feed_forward_length", 1u << 24, "blk.0.ffn_up.weight: expected shape 32 x 16777216"},
        {"gpt2.attention.head_count_kv", 1, "blk.0.attn_qkv.weight: expected shape 32 x 64"},
    };
    const unsigned loaders = MODEL_READERS & ~(INFO | CHECK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hostile_set_u32(&h, cases[i].key, cases[i].value);
        if (i % 4 == 0)
            expect_bent_refused_by_all(MODEL_READERS, cases[i].text);
        else
            expect_bent_refused(MODEL_READERS, cases[i].text);
    }
    for (size_t i = 0; i < sizeof loaded / sizeof *loaded; i++) {
        hostile_set_u32(&h, loaded[i].key, loaded[i].value);
        hostile_write(&h);
        expect_accepted(INFO);
        expect_bent_refused_by_all(loaders & ~(i == 3   ? TEACHER
                                               : i == 7 ? CONVERT
                                                        : 0u),
                                   loaded[i].text);
    }
    struct hostile_tensor *t = hostile_tensor(&h, "token_embd.weight");
    t->dims[1]--; /* against the vocabulary */
    expect_bent_refused_by_all(MODEL_READERS, "tokenizer.ggml.tokens: expected as many tokens");
    hostile_set_u32(&h, "gpt2.rope.dimension_count", 7); /* nothing that this model has */
    hostile_set_u32(&h, "gpt2.block_count", 1);          /* a model of the first layer */
    expect_bent_accepted(INFO | GENERATE | CONVERT | TRAIN | QUANTIZE);
}

/* --- class 10: data -------------------------------------------------------------------------- */

static void fill(const char *tensor, float value)
{
    struct hostile_tensor *t = hostile_tensor(&h, tensor);
    char *data = h.blocks[h.n_blocks++] = malloc(t->data.len);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < t->data.len; i += 4)
        memcpy(data + i, &value, 4);
    t->data.data = data;
}

/* Nothing but the end of the line that it had begun. */
static void expect_no_text(void)
{
    struct ran r;
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --no-echo");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.out, "\n");
    r.out_len = 0;
    expect_refusal(&r, 1, "not finite");
}

/* --check finds them and the rest fails with one line instead of figures. */
static void expect_not_finite(const char *tensor)
{
    char text[128];
    hostile_write(&h);
    snprintf(text, sizeof text, "tensor '%s' has", tensor);
    struct ran r;
    run_on_bad(&r, "info --check %B -q");
    ck_assert_int_eq(r.code, 3);
    ck_assert_msg(strstr(r.err, text), "%s", r.err);
    expect_no_text();
    expect_line_refused("eval %B --text %T -t 1", 1, "not finite");
    expect_line_refused("eval %G --text %T -t 1 --against %B", 1, "not finite");
    expect_line_refused("train %T -o %O --from %B --steps 1 --batch 1 --seed 1 -t 1 -q", 1,
                        "finite");
    expect_no_output();
    reset();
}

/* Once all heads' elements were multiplied out before their bound was checked. */
TEST(class_07_heads_too_wide, .before = bent_set_up, .after = bent_tear_down)
{
    hostile_set_u32(&h, "gpt2.attention.key_length", 65536);
    hostile_set_u32(&h, "gpt2.attention.head_count", 65536);
    hostile_set_u32(&h, "gpt2.attention.head_count_kv", 65536);
    hostile_write(&h);
    expect_refused(GENERATE | INFO,
                   "gpt2.attention.key_length: expected at most 1 for 65536 heads");
}

TEST(class_10_data, .before = bent_set_up, .after = bent_tear_down)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const char *const all[] = {"token_embd.weight", "position_embd.weight",
                                      "blk.0.attn_qkv.weight", "output.weight"};
    struct gguf_bytes b;
    hostile_image(&h, &b);
    hostile_write_bytes(b.data, b.len - 1);
    free(b.data);
    expect_refused(CHECK | GENERATE, "truncated");
    for (size_t i = 0; i < 3; i++) {
        fill(all[i], values[i]);
        expect_not_finite(all[i]);
    }
    fill("blk.0.attn_norm.weight", NAN);
    expect_not_finite("blk.0.attn_norm.weight");
    for (size_t i = 0; i < 4; i++) /* large enough for sums that overflow */
        fill(all[i], 3e38f);
    hostile_write(&h);
    expect_no_text();
    for (size_t i = 0; i < 4; i++)
        fill(all[i], 1e-41f);
    expect_bent_accepted(EVERY_COMMAND & ~BENCH);
    for (size_t i = 0; i < h.n_tensors && h.n_blocks < HOSTILE_MAX_RECORDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", text_width(h.tensors[i].name), h.tensors[i].name.data);
        fill(name, 0);
    }
    hostile_write(&h);
    expect_accepted(EVERY_COMMAND & ~BENCH);
    /* All tokens are alike, and as few as can be stay: one. */
    static const char *const samplers[] = {"--top-k 1", "--top-p 0", "--min-p 1",
                                           "--min-p 1 --top-p 0 --top-k 1 --temp 1e300",
                                           "--temp 1e-300 --repeat-penalty 1e300"};
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++) {
        struct ran r;
        char line[200];
        snprintf(line, sizeof line, "generate %%B -p ab -n 9 -t 1 --seed 1 %s", samplers[i]);
        run_on_bad(&r, line);
        expect_success(&r);
    }
}

/* Of quantized tensors only the scales can be not finite. */
TEST(class_10_data_quantized, .before = bent_set_up, .after = bent_tear_down)
{
    struct ran r;
    run_on_bad(&r, "quantize %G -o %B --type q8_0 -t 1 -q");
    expect_success(&r);
    strcpy(good_path, bad_path);
    reset();
    struct hostile_tensor *t = hostile_tensor(&h, "blk.1.ffn_down.weight");
    char *data = h.blocks[h.n_blocks++] = malloc(t->data.len);
    memcpy(data, t->data.data, t->data.len);
    memcpy(data + 34, "\0\x7c", 2); /* infinity in F16 */
    t->data.data = data;
    hostile_write(&h);
    run_on_bad(&r, "info --check %B -q");
    ck_assert_int_eq(r.code, 3);
    ck_assert_ptr_nonnull(strstr(r.err, "'blk.1.ffn_down.weight' has 1 values"));
    expect_no_text();
    expect_line_refused("quantize %B -o %O --type f32 -t 1 -q", 2, "--requantize");
}

/* Finite weights whose sums are not: no figure of what is lost, and no file. */
TEST(class_10_data_too_large_to_convert, .before = bent_set_up, .after = bent_tear_down)
{
    struct hostile_tensor *t = hostile_tensor(&h, "blk.1.attn_output.bias");
    float *data = h.blocks[h.n_blocks++] = malloc(t->data.len);
    for (size_t i = 0; i < t->data.len / sizeof *data; i++)
        data[i] = 3e38f;
    t->data.data = (const char *)data;
    t = hostile_tensor(&h, "blk.0.attn_output.bias");
    t->data.data = (const char *)data;
    hostile_write(&h);
    expect_line_refused("convert %B -o %O --kv-heads 1 --method mean --calib %T -t 1 -q", 1,
                        "layer 1: what attention adds to the calibration text is too large");
    struct ran r;
    run_on_bad(&r, "convert %B -o %O --kv-heads 1 --method mean -t 1 -q");
    expect_success(&r);
}

/* --- what of a file's texts reaches the terminal --------------------------------------------- */

#define NASTY                                                                                      \
    "\x1b[31m\xc2\x9b"                                                                             \
    "2J\r\b\x07\xff\x7f\xe2\x80\xae\xe2\x81\xa7"

static void expect_clean(const char *printed, const char *line)
{
    struct text rest = text_of(printed);
    while (rest.len > 0) {
        uint32_t code;
        const size_t len = utf8_decode(rest, &code);
        ck_assert_msg(code != UNICODE_INVALID && (code == '\n' || !utf8_is_control(code)),
                      "%s: byte 0x%02x in the output", line, (unsigned char)rest.data[0]);
        rest.data += len;
        rest.len -= len;
    }
}

/* Runs a command in every form; it must succeed and print nothing that a terminal obeys. */
static void expect_clean_forms(const char *line)
{
    static const char *const forms[] = {"table", "md", "csv", "json", "jsonl"};
    for (size_t i = 0; i < 5; i++) {
        struct ran r;
        char whole[300];
        snprintf(whole, sizeof whole, "%s --format %s", line, forms[i]);
        run_on_bad(&r, whole);
        unlink(out_path);
        ck_assert_msg(r.code == 0, "%s: %s", whole, r.err);
        ck_assert_uint_lt(r.out_len, sizeof r.out);
        expect_clean(r.out, whole);
        expect_clean(r.err, whole);
    }
}

/* Metadata strings, keys, tensor names and token texts; generate and tokenize --decode alone
 * print bytes of tokens as they are. It found: C1 controls in JSON and in messages, all of them in
 * CSV, and the tensor names that quantize speaks of. */
TEST(no_control_characters_from_a_file_reach_the_terminal, .before = bent_set_up,
     .after = bent_tear_down)
{
    struct ran r;
    hostile_set_text(&h, "general.name", text_of("name" NASTY));
    set_token(259, text_of("token" NASTY));
    set_types(260, 259, 3);
    struct hostile_tensor first = *hostile_tensor(&h, "token_embd.weight");
    first.name = text_of("tensor" NASTY ".weight");
    first.n_dims = 2;
    first.dims[0] = 8; /* no multiple of q8_0's block */
    first.dims[1] = 4;
    first.data.len = 128;
    h.tensors[h.n_tensors++] = h.tensors[0];
    h.tensors[0] = first;
    hostile_write(&h);
    expect_clean_forms("score --tokens 1,259,2 --top 3 -t 1 %B");
    run_on_bad(&r, "generate %B -p ab -n 9 -t 1 --seed 1 --logprobs 2 --temp 100");
    expect_success(&r);
    expect_clean(r.out, "generate --logprobs");
    /* Once said raw on standard error, "rows of 8 are no multiple of 32". */
    run_on_bad(&r, "quantize %B -o %O --type q8_0 -t 1 --force");
    expect_success(&r);
    ck_assert_ptr_nonnull(strstr(r.err, "rows of 8"));
    expect_clean(r.err, "quantize");
    unlink(out_path);
    run_on_bad(&r, "quantize %B -o %O --type f16 -t 1 -v --format jsonl");
    expect_clean(r.out, "quantize -v");
    unlink(out_path);
    expect_clean_forms("convert %B -o %O --kv-heads 1 --method mean -t 1 -q");
    expect_clean_forms("info %B --check");
    char *name = strrchr(bad_path, '/') + 1; /* and a file's own name */
    strcpy(name, "\x1b[31m.gguf");
    hostile_write(&h);
    expect_clean_forms("bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --kv-heads 2 -t 1");
    strcpy(name, "bad.gguf");
    h.n_tensors = 1; /* another architecture, of which keys and tensors are listed */
    hostile_set_text(&h, "general.architecture", text_of("arch" NASTY));
    hostile_set_text(&h, "key" NASTY, text_of("value" NASTY));
    hostile_drop(&h, TOKENS);
    hostile_set_text(&h, "tokenizer.ggml.model", text_of("model" NASTY));
    hostile_write(&h);
    expect_clean_forms("info %B --tensors --check");
    run_on_bad(&r, "generate %B -p ab");
    expect_refusal(&r, 3, "found \"arch?[31m?2J???????\"");
}

/* Once room for 32 bytes an alternative was reserved, and logits so far apart take twice as many.
 */
TEST(all_alternatives_fit_their_cell, .before = bent_set_up, .after = bent_tear_down)
{
    struct ran r;
    int n = 0;
    fill("output_norm.weight", 1e34f);
    hostile_write(&h);
    run_on_bad(&r, "score %B --tokens 1,2 --top 40 -t 1 -q");
    expect_success(&r);
    for (const char *at = r.out; (at = strstr(at, ".000")); at++)
        n++;
    ck_assert_int_ge(n, 40);
}
