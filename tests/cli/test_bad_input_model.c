/*
 * Hostile checkpoints against the whole program: sound files of numbers that cannot be computed
 * with, of vocabularies that lack something, of contexts that only a key makes long; and what of
 * their texts reaches the terminal. (Keys and tensors: test_bad_input_table.c.)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/utf8.h"
#include "hostile.h"

/* Nothing but the end of the line that it had begun. */
static void expect_no_text(void)
{
    static const struct line line[] = {
        {"generate %B -p ab -n 2 -t 1 --no-echo", 1, "bad.gguf: |not finite|!-nan", "\n"}};
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
        {"eval %B %T -t 1", 1, "bad.gguf: after token |not finite|!-nan", NULL},
        {"eval %G %T -t 1 --against %B", 1, "bad.gguf: after token |not finite|!-nan", NULL},
        {"heads %B %T -t 1", 1, "bad.gguf: |not finite|!-nan", NULL},
        {"attend %B -p ab -t 1", 1, "bad.gguf: |not finite|!-nan", NULL},
        {"train %T -o %O --from %B --steps 1 --batch 1 --seed 1 -t 1 -q", 1,
         "bad.gguf: |finite|!-nan", NULL},
        /* Nothing is told of what is not made. */
        {"convert %B -o %O --type f32 -t 1", 3, "bad.gguf: tensor |expected a finite number|!-nan",
         NULL},
        /* Calibrated on text of its own, which cannot be written. */
        {"convert %B -o %O --kv-heads 1 -t 1 -q", 1, "bad.gguf: |finite|!-nan", NULL},
        {"score %B -p ab -t 1 -q --kv-heads 1", 1, "bad.gguf: |finite|!-nan", ""},
        {"eval %B %T -t 1 -q --kv-type f16", 1, "bad.gguf: |info --check|!--kv-type", ""},
    };
    static const char teacher[] =
        "train %T -o %O --from %G --teacher %B --steps 1 --batch 1 --seed 1 -t 1 -q";
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
        hostile_fill(filled[i].tensor, filled[i].value);
        hostile_write();
        snprintf(text, sizeof text, "tensor '%s' has", filled[i].tensor);
        expect_found(text);
        TRY_LINES(lines);
        expect_line_refused(teacher, 3, "bad.gguf: what the teacher predicts is not finite");
        /* OUT is the checkpoint that is trained, of step 0. */
        remove_outputs();
        reset();
    }
    for (size_t i = 0; i < 3; i++) /* large enough for sums that overflow */
        hostile_fill(filled[i].tensor, 3e38f);
    hostile_fill("output.weight", 3e38f);
    hostile_write();
    expect_no_text();
    for (size_t i = 0; i < 3; i++)
        hostile_fill(filled[i].tensor, 1e-41f);
    hostile_fill("output.weight", 1e-41f);
    bent_accepted(EVERY_COMMAND & ~BENCH, "");
    for (size_t i = 0; i < h.n_tensors && h.n_blocks < HOSTILE_MAX_RECORDS; i++) {
        snprintf(text, sizeof text, "%.*s", text_width(h.tensors[i].name), h.tensors[i].name.data);
        hostile_fill(text, 0);
    }
    hostile_write();
    expect_accepted(EVERY_COMMAND & ~BENCH);
    TRY_LINES(alike);
}

static struct config llama(void)
{
    return config_sized("llama", "layers=2 heads=4 kv=2 dim=8 width=32 ff=64 ctx=16 vocab=260");
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

static void use_llama(void)
{
    const struct config c = llama();
    bent_set_up();
    use_config("llama", &c);
}

static void expect_not_finite(const char *tensor, float value)
{
    memcpy(hostile_own_data(tensor), &value, sizeof value);
    hostile_write();
    expect_no_text();
    expect_line_refused("eval %B %T -t 1", 1, "not finite");
    reset();
}

TEST(class_10_one_number, .before = use_llama)
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

/* Of quantized tensors only the scales can be not finite. */
TEST(class_10_data_quantized, .before = bent_set_up)
{
    struct ran r;
    run_on_bad(&r, "convert %G -o %B --type q8_0 -t 1 -q");
    expect_success(&r);
    strcpy(good_path, bad_path);
    reset();
    memcpy(hostile_own_data("blk.1.ffn_down.weight") + 34, "\0\x7c", 2); /* infinity in F16 */
    hostile_write();
    expect_found("'blk.1.ffn_down.weight' has 1 values");
    expect_line_refused("convert %B -o %O --type f32 -t 1 -q", 2, "--requantize");
}

/* As llama.cpp's converter of llama2.c files writes: the base is 10000, the width a head's. */
TEST(rotary_keys_may_be_missing, .before = use_llama)
{
    static const char line[] = "score %B --tokens 5,7,11,13,17,2,3 -t 1 -q --top 3";
    struct ran with, without;
    bend("llama.context_length=u32:128");
    hostile_write();
    run_on_bad(&with, line);
    bend("-llama.rope.freq_base; -llama.rope.dimension_count");
    hostile_write();
    run_on_bad(&without, line);
    expect_success(&with);
    ck_assert_str_eq(with.out, without.out);
}

/* A token of 1 MB, as each of the kinds: it costs what it has in bytes, however it is asked for;
 * and a merge as long, which makes nothing. */
TEST(class_11_long_tokens, .before = bent_set_up)
{
    const size_t len = 1 << 20;
    char *longest = memset(allocated(len), 'a', len);
    for (int type = 0; type <= 6; type++) {
        char types[60];
        snprintf(types, sizeof types, "tokenizer.ggml.token_type=i32[]:1*256,3*3,%d", type);
        set_token(259, (struct text){longest, len});
        if (type < 2) { /* a normal token, which no merge makes */
            bent_refused(GENERATE, types, "tokenizer.ggml.merges: expected merges that make the 1");
            continue;
        }
        bent_accepted(INFO | GENERATE | TOKENIZE | TRAIN, types);
        expect_line_done("score -p ab -t 1 --top 2147483647 %B --format csv", "");
    }
    struct gguf_bytes merge = {0};
    longest[len / 2] = ' ';
    gb_put_text(&merge, (struct text){longest, len});
    hostile_set_array("tokenizer.ggml.merges", GGUF_STRING, 1, merge.data, merge.len);
    free(merge.data);
    bent_accepted(INFO | GENERATE | TOKENIZE, "");
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
 * in CSV, and the tensor names that convert speaks of. */
TEST(no_control_characters_from_a_file_reach_the_terminal, .before = bent_set_up)
{
    struct ran r;
    hostile_set_text("general.name", text_of("name" NASTY));
    set_token(259, text_of("token" NASTY));
    bend("tokenizer.ggml.token_type=i32[]:1*256,3*4");
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
    run_on_bad(&r, "generate %B -p ab -n 9 -t 1 --seed 1 --format json --temp 100");
    expect_success(&r);
    expect_clean(r.out, "generate --format json");
    /* Once said raw on standard error. */
    h.tensors[0].type = TENSOR_Q8_0; /* convert names it: it is quantized */
    h.tensors[0].dims[0] = 32;
    h.tensors[0].dims[1] = 1;
    h.tensors[0].data.len = 34;
    hostile_write();
    run_on_bad(&r, "convert %B -o %O --type q8_0 -t 1 --force");
    ck_assert_int_eq(r.code, STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(r.err, "is quantized"));
    expect_clean(r.err, "convert --type");
    h.tensors[0] = first;
    hostile_write();
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
    hostile_fill("output_norm.weight", 1e34f);
    hostile_write();
    run_on_bad(&r, "score %B --tokens 1,2 --top 40 -t 1 -q");
    expect_success(&r);
    for (const char *at = r.out; (at = strstr(at, ".000")); at++)
        n++;
    ck_assert_int_ge(n, 40);
}

/* A key makes them as long as they can be: tables of positions are sized by what is asked for, and
 * what does not fit is said. */
static void long_context(const char *key)
{
    static const struct line within[] = {
        {"generate %B -p ab -n 2 -t 1 --seed 1 -c 16", 0, NULL, NULL},
        {"score %B -p ab -t 1", 0, NULL, NULL},
        {"eval %B %T -t 1 --ctx 16", 0, NULL, NULL},
        {"bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --depth 0 -t 1 -q", 0, NULL, NULL},
        {"info %B", 0, NULL, NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194304 -q", 4, "out of memory", NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194305", 2, "-c: expected at most 4194304", NULL},
    };
    struct ran r;
    hostile_set_u32(key, 1 << 22);
    hostile_write();
    try_lines(within, COUNT(within), limit_to, &(struct limit){RLIMIT_AS, (rlim_t)768 << 20});
    /* Without -c the cache could be as long, but is not filled, and neither are the tables. */
    double mib = 1e9;
    run_on_bad(&r, "generate %B -p ab -n 2 -t 1 --seed 1");
    expect_success(&r);
    const char *peak = strstr(r.err, "peak memory ");
    ck_assert_msg(peak && sscanf(peak, "peak memory %lf MiB", &mib) == 1, "%s", r.err);
    ck_assert_msg(mib < 64, "%g MiB", mib);
    hostile_set_u32(key, (1 << 22) + 1);
    bent_refused(MODEL_READERS, "", "context_length\": expected 1 to 4194304, found 4194305");
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
