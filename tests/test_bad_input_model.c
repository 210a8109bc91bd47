/*
 * Hostile checkpoints against the whole program: a file that is whole, of a model that cannot be
 * (classes 6, 7 and 10), and what of its texts reaches the terminal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "hostile.h"

static const char *const sizes[] = {"gpt2.context_length",      "gpt2.embedding_length",
                                    "gpt2.block_count",         "gpt2.attention.head_count",
                                    "gpt2.feed_forward_length", "gpt2.attention.head_count_kv"};
#define N_REQUIRED 4 /* of them */
#define EPSILON    "gpt2.attention.layer_norm_epsilon"

TEST(class_06_required_keys, .before = bent_set_up)
{
    static const char *const values[] = {"string:4",
                                         "f32:2",
                                         "bool:1",
                                         "u32[]:2,2,2",
                                         "i32:-1",
                                         "i64:-9223372036854775808",
                                         "u64:0xffffffffffffffff"};
    static const char *const epsilons[] = {"nan", "inf", "-inf", "0", "-1e-5", "1", "1e30"};
    char bends[100];
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (size_t k = 0; k < COUNT(values); k++) {
            snprintf(bends, sizeof bends, "%s=%s", sizes[i], values[k]);
            bent_refused(MODEL_READERS, bends, sizes[i]);
        }
        h.pairs[h.n_pairs] = *hostile_pair(sizes[i]);
        h.n_pairs++;
        bent_refused(EVERY_COMMAND, "", "expected each name once");
        snprintf(bends, sizeof bends, "-%s", sizes[i]);
        if (i < N_REQUIRED)
            bent_refused_by_all(MODEL_READERS, bends, sizes[i]);
        else
            bent_accepted(INFO | GENERATE | SCORE | CONVERT | TRAIN | QUANTIZE, bends);
    }
    bent_refused_by_all(MODEL_READERS & ~(INFO | CHECK), "-general.architecture",
                        "key \"general.architecture\" is missing");
    bent_refused(MODEL_READERS, "general.architecture=u32:1",
                 "general.architecture\": expected string, found u32");
    bent_refused(MODEL_READERS & ~(INFO | CHECK), "general.architecture=string:", "found \"\"");
    for (size_t i = 0; i < COUNT(epsilons); i++) {
        snprintf(bends, sizeof bends, EPSILON "=f32:%s", epsilons[i]);
        bent_refused(MODEL_READERS, bends, "layer_norm_epsilon: expected a number between 0 and 1");
    }
    bent_refused_by_all(MODEL_READERS, EPSILON "=string:1e-5", EPSILON);
    bent_refused_by_all(MODEL_READERS, "-" EPSILON, EPSILON);
    bent_accepted(INFO | GENERATE, EPSILON "=f64:1e-5");
    bent_accepted(INFO | GENERATE, EPSILON "=f32:1e-40"); /* as small as none, but a number */
    for (size_t i = 0; i < COUNT(sizes); i++) {           /* any integer does */
        uint64_t value = 0;
        memcpy(&value, hostile_pair(sizes[i])->value.data, 4);
        hostile_set(sizes[i], i % 2 ? GGUF_U64 : GGUF_I64, &value, 8);
    }
    bent_accepted(INFO | GENERATE | CONVERT | TRAIN, "");
}

TEST(class_07_hyperparameters, .before = bent_set_up)
{
    static const struct bend bends[] = {
        {"gpt2.attention.head_count=u32:0", "gpt2.attention.head_count"},
        {"gpt2.attention.head_count=u32:3",
         "head_count: expected a divisor of embedding_length 32"},
        {"gpt2.attention.head_count=u32:-1", "gpt2.attention.head_count"},
        {"gpt2.attention.head_count=u32:1", "head_count_kv: expected a divisor of head_count 1"},
        {"gpt2.attention.head_count_kv=u32:0", "gpt2.attention.head_count_kv"},
        {"gpt2.attention.head_count_kv=u32:3", "head_count_kv: expected a divisor of head_count 2"},
        {"gpt2.embedding_length=u32:0", "gpt2.embedding_length"},
        {"gpt2.embedding_length=u32:31", "head_count: expected a divisor of embedding_length 31"},
        {"gpt2.block_count=u32:0", "gpt2.block_count"},
        {"gpt2.block_count=u32:1000000000", "gpt2.block_count"},
        {"gpt2.context_length=u32:0", "gpt2.context_length"},
        {"gpt2.feed_forward_length=u32:0", "gpt2.feed_forward_length"},
    };
    /* What only tensors tell; not all of them to the command that is left out. */
    static const struct {
        const char *bends, *text;
        unsigned but;
    } loaded[] = {
        {"gpt2.embedding_length=u32:65536", "token_embd.weight: expected shape 65536 x 260", 0},
        {"gpt2.block_count=u32:512", "blk.2.", 0},
        {"gpt2.block_count=u32:3", "blk.2.", 0},
        {"gpt2.context_length=u32:1", "position_embd.weight: expected shape 32 x 1, found 32 x 16",
         TEACHER},
        {"gpt2.context_length=u32:4194304", "position_embd.weight: expected shape 32 x 4194304", 0},
        {"gpt2.feed_forward_length=u32:1", "blk.0.ffn_up.weight: expected shape 32 x 1", 0},
        {"gpt2.feed_forward_length=u32:16777216",
         "blk.0.ffn_up.weight: expected shape 32 x 16777216", 0},
        {"gpt2.attention.head_count_kv=u32:1", "blk.0.attn_qkv.weight: expected shape 32 x 64",
         CONVERT},
    };
    for (size_t i = 0; i < COUNT(bends); i++)
        (i % 4 == 0 ? bent_refused_by_all : bent_refused)(MODEL_READERS, bends[i].bends,
                                                          bends[i].text);
    for (size_t i = 0; i < COUNT(loaded); i++) {
        bent_accepted(INFO, loaded[i].bends);
        bent_refused_by_all(MODEL_READERS & ~(INFO | CHECK | loaded[i].but), loaded[i].bends,
                            loaded[i].text);
    }
    bent_refused_by_all(MODEL_READERS, "token_embd.weight~32x259", /* against the vocabulary */
                        "tokenizer.ggml.tokens: expected as many tokens");
    /* Nothing that this model has; a model of the first layer. */
    bent_accepted(INFO | GENERATE | CONVERT | TRAIN | QUANTIZE,
                  "gpt2.rope.dimension_count=u32:7; gpt2.block_count=u32:1");
    /* Once all heads' elements were multiplied out before their bound was checked. */
    bent_refused_by_all(GENERATE | INFO,
                        "gpt2.attention.key_length=u32:65536; gpt2.attention.head_count=u32:65536; "
                        "gpt2.attention.head_count_kv=u32:65536",
                        "gpt2.attention.key_length: expected at most 1 for 65536 heads");
}

static void fill(const char *tensor, float value)
{
    unsigned char *data = hostile_own_data(tensor);
    for (size_t i = 0; i < hostile_tensor(tensor)->data.len; i += 4)
        memcpy(data + i, &value, 4);
}

/* Nothing but the end of the line that it had begun. */
static void expect_no_text(void)
{
    static const struct line line[] = {
        {"generate %B -p ab -n 2 -t 1 --no-echo", 1, "not finite", "\n"}};
    TRY_LINES(line);
}

/* --check finds them. */
static void expect_found(const char *text)
{
    const struct line line[] = {{"info --check %B -q", 3, text, ""}};
    TRY_LINES(line);
    expect_no_text();
}

/* The rest fails with one line instead of figures. */
TEST(class_10_data, .before = bent_set_up)
{
    static const struct {
        const char *tensor;
        float value;
    } filled[] = {{"token_embd.weight", NAN},
                  {"position_embd.weight", INFINITY},
                  {"blk.0.attn_qkv.weight", -INFINITY},
                  {"blk.0.attn_norm.weight", NAN}};
    static const struct line lines[] = {
        {"eval %B --text %T -t 1", 1, "not finite", NULL},
        {"eval %G --text %T -t 1 --against %B", 1, "not finite", NULL},
        {"train %T -o %O --from %B --steps 1 --batch 1 --seed 1 -t 1 -q", 1, "finite", NULL},
    };
    /* All tokens are alike, and as few as can be stay: one. */
    static const struct line alike[] = {
        {"generate %B -p ab -n 9 -t 1 --seed 1 --top-k 1", 0, NULL, NULL},
        {"generate %B -p ab -n 9 -t 1 --seed 1 --top-p 0", 0, NULL, NULL},
        {"generate %B -p ab -n 9 -t 1 --seed 1 --min-p 1 --top-p 0 --top-k 1 --temp 1e300", 0, NULL,
         NULL},
        {"generate %B -p ab -n 9 -t 1 --seed 1 --temp 1e-300 --repeat-penalty 1e300", 0, NULL,
         NULL},
    };
    char text[128];
    for (size_t i = 0; i < COUNT(filled); i++) {
        fill(filled[i].tensor, filled[i].value);
        hostile_write();
        snprintf(text, sizeof text, "tensor '%s' has", filled[i].tensor);
        expect_found(text);
        TRY_LINES(lines);
        reset();
    }
    for (size_t i = 0; i < 3; i++) /* large enough for sums that overflow */
        fill(filled[i].tensor, 3e38f);
    fill("output.weight", 3e38f);
    hostile_write();
    expect_no_text();
    for (size_t i = 0; i < 3; i++)
        fill(filled[i].tensor, 1e-41f);
    fill("output.weight", 1e-41f);
    bent_accepted(EVERY_COMMAND & ~BENCH, "");
    for (size_t i = 0; i < h.n_tensors && h.n_blocks < HOSTILE_MAX_RECORDS; i++) {
        snprintf(text, sizeof text, "%.*s", text_width(h.tensors[i].name), h.tensors[i].name.data);
        fill(text, 0);
    }
    hostile_write();
    expect_accepted(EVERY_COMMAND & ~BENCH);
    TRY_LINES(alike);
}

/* Of quantized tensors only the scales can be not finite. */
TEST(class_10_data_quantized, .before = bent_set_up)
{
    struct ran r;
    run_on_bad(&r, "quantize %G -o %B --type q8_0 -t 1 -q");
    expect_success(&r);
    strcpy(good_path, bad_path);
    reset();
    memcpy(hostile_own_data("blk.1.ffn_down.weight") + 34, "\0\x7c", 2); /* infinity in F16 */
    hostile_write();
    expect_found("'blk.1.ffn_down.weight' has 1 values");
    expect_line_refused("quantize %B -o %O --type f32 -t 1 -q", 2, "--requantize");
}

/* Finite weights whose sums are not: no figure of what is lost, and no file. */
TEST(class_10_data_too_large_to_convert, .before = bent_set_up)
{
    fill("blk.1.attn_output.bias", 3e38f);
    fill("blk.0.attn_output.bias", 3e38f);
    hostile_write();
    expect_line_refused("convert %B -o %O --kv-heads 1 --method mean --calib %T -t 1 -q", 1,
                        "layer 1: what attention adds to the calibration text is too large");
    expect_line_done("convert %B -o %O --kv-heads 1 --method mean -t 1 -q", "");
}

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

/* It succeeds, says `says` and prints nothing that a terminal obeys. */
static void expect_clean_line(const char *line, const char *says)
{
    struct ran r;
    run_on_bad(&r, line);
    remove_outputs();
    ck_assert_msg(r.code == 0, "%s: %s", line, r.err);
    ck_assert_uint_lt(r.out_len, sizeof r.out);
    expect_says(r.err, says);
    expect_clean(r.out, line);
    expect_clean(r.err, line);
}

static void expect_clean_forms(const char *line)
{
    static const char *const forms[] = {"table", "md", "csv", "json", "jsonl"};
    for (size_t i = 0; i < COUNT(forms); i++) {
        char whole[300];
        snprintf(whole, sizeof whole, "%s --format %s", line, forms[i]);
        expect_clean_line(whole, "");
    }
}

/* Metadata strings, keys, tensor names and token texts; generate and tokenize --decode alone
 * print bytes of tokens as they are. It found: C1 controls in JSON and in messages, all of them
 * in CSV, and the tensor names that quantize speaks of. */
TEST(no_control_characters_from_a_file_reach_the_terminal, .before = bent_set_up)
{
    struct ran r;
    hostile_set_text("general.name", text_of("name" NASTY));
    set_token(259, text_of("token" NASTY));
    set_types(260, 259, 3);
    struct hostile_tensor first = *hostile_tensor("token_embd.weight");
    first.name = text_of("tensor" NASTY ".weight");
    first.n_dims = 2;
    first.dims[0] = 8; /* no multiple of q8_0's block */
    first.dims[1] = 4;
    first.data.len = 128;
    h.tensors[h.n_tensors++] = h.tensors[0];
    h.tensors[0] = first;
    hostile_write();
    expect_clean_forms("score --tokens 1,259,2 --top 3 -t 1 %B");
    run_on_bad(&r, "generate %B -p ab -n 9 -t 1 --seed 1 --logprobs 2 --temp 100");
    expect_success(&r);
    expect_clean(r.out, "generate --logprobs");
    /* Once said raw on standard error. */
    expect_clean_line("quantize %B -o %O --type q8_0 -t 1 --force", "rows of 8");
    expect_clean_line("quantize %B -o %O --type f16 -t 1 -v --format jsonl", "");
    expect_clean_forms("convert %B -o %O --kv-heads 1 --method mean -t 1 -q");
    expect_clean_forms("info %B --check");
    char *name = strrchr(bad_path, '/') + 1; /* and a file's own name */
    strcpy(name, "\x1b[31m.gguf");
    hostile_write();
    expect_clean_forms("bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --kv-heads 2 -t 1");
    strcpy(name, "bad.gguf");
    h.n_tensors = 1; /* another architecture, of which keys and tensors are listed */
    hostile_set_text("general.architecture", text_of("arch" NASTY));
    hostile_set_text("key" NASTY, text_of("value" NASTY));
    hostile_drop(TOKENS);
    hostile_set_text("tokenizer.ggml.model", text_of("model" NASTY));
    hostile_write();
    expect_clean_forms("info %B --tensors --check");
    run_on_bad(&r, "generate %B -p ab");
    expect_refusal(&r, 3, "found \"arch?[31m?2J???????\"");
}

/* Once room for 32 bytes an alternative was reserved, and logits so far apart take twice as
 * many.
 */
TEST(all_alternatives_fit_their_cell, .before = bent_set_up)
{
    struct ran r;
    int n = 0;
    fill("output_norm.weight", 1e34f);
    hostile_write();
    run_on_bad(&r, "score %B --tokens 1,2 --top 40 -t 1 -q");
    expect_success(&r);
    for (const char *at = r.out; (at = strstr(at, ".000")); at++)
        n++;
    ck_assert_int_ge(n, 40);
}
