/*
 * Runs the whole program on hostile files: short and special files, many records, odd names, long
 * tokens, contexts that are long only by their key; and checks which of their texts reach the
 * terminal. test_gguf_bad.c has files that the reader refuses; test_bad_input_table.c has those
 * that loaders refuse, and numbers that cannot be computed with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "hostile.h"
#include "support.h"

/* The commands whose loader of models names a missing tensor. */
#define LOADERS (GENERATE | SCORE | EVAL | AGAINST | CONVERT | TRAIN | TEACHER | BENCH)

/* Returns the good image. */
static struct gguf_bytes good_image(void)
{
    struct gguf_bytes b;
    hostile_image(&b);
    released_by(free, b.data);
    return b;
}

TEST(class_01_short_files, .before = bent_set_up)
{
    const struct gguf_bytes b = good_image();
    write_file(bad_path, b.data, b.len - 1);
    expect_refused(EVERY_COMMAND, "truncated");
    write_file(bad_path, b.data, 0);
    expect_refused(EVERY_COMMAND, "empty");
#if SIZE_MAX > UINT32_MAX
    /* A sparse file of more than 2 GiB takes no room. */
    const uint64_t floats = (uint64_t)3 << 28;
    ck_assert_int_eq(truncate(bad_path, (off_t)3 << 30), 0);
    expect_refused(EVERY_COMMAND, "found bytes 00 00 00 00");
    hostile_add_tensor("extra", 1, floats, TENSOR_F32, (struct text){"", 0});
    hostile_write();
    struct stat st;
    ck_assert_int_eq(stat(bad_path, &st), 0);
    ck_assert_int_eq(truncate(bad_path, st.st_size + (off_t)(4 * floats) - 1), 0);
    expect_refused_in_turn(EVERY_COMMAND, "\"extra\": its data");
    ck_assert_int_eq(truncate(bad_path, st.st_size + (off_t)(4 * floats)), 0);
    expect_accepted(INFO | GENERATE | SCORE | TOKENIZE | EVAL | AGAINST | TRAIN | TEACHER);
#endif
}

TEST(class_01_special_files, .before = bent_set_up)
{
    static const char *const special[][2] = {{"/dev/zero", "found a device"},
                                             {"/dev/null", "found a device"},
                                             {"/proc/self/mem", "found an empty one"},
                                             {"/", "found a directory"}};
    static const struct line denied[] = {{"info %B", 3, "Permission denied", NULL}};
    unlink(bad_path);
    expect_refused(EVERY_COMMAND, "No such file");
    ck_assert_int_eq(mkfifo(bad_path, 0600), 0);
    expect_refused(EVERY_COMMAND, "found a pipe (FIFO)");
    hostile_write();
    if (geteuid() == 0)
        try_lines(denied, 1, be_nobody, NULL);
    for (size_t i = 0; i < COUNT(special); i++) {
        strcpy(bad_path, special[i][0]);
        expect_refused(EVERY_COMMAND, special[i][1]);
    }
}

/* The reader takes a file without tensors or keys; a command that needs one says that it is
 * missing. */
TEST(class_03_nothing_in_it, .before = bent_set_up)
{
    const struct gguf_bytes b = good_image();
    b.data[4] = 2; /* an older version */
    write_file(bad_path, b.data, b.len);
    expect_accepted(INFO | GENERATE | CONVERT);
    memset(b.data + 8, 0, 8); /* no tensors, but their records and data */
    write_file(bad_path, b.data, b.len);
    expect_refused(LOADERS, "tensor token_embd.weight: missing");
    memset(b.data + 16, 0, 8); /* nothing at all */
    write_file(bad_path, b.data, b.len);
    expect_refused(LOADERS & ~(TRAIN | TEACHER), "key \"general.architecture\" is missing");
    expect_refused(TOKENIZE | TRAIN | TEACHER, "key \"tokenizer.ggml.model\" is missing");
    expect_accepted(INFO | CHECK);
}

/* Large tables are legal. They take a moment, and memory of a few times the file. */
TEST(class_03_many_records, .before = bent_set_up)
{
    char(*names)[20] = allocated(100000 * sizeof *names);
    for (int i = 0; i < 100000; i++) {
        snprintf(names[i], sizeof *names, "key.%d", i);
        h.pairs[h.n_pairs++] = (struct hostile_pair){text_of(names[i]), GGUF_U8, {"", 1}};
    }
    bent_accepted(INFO | GENERATE | TOKENIZE | RETYPE | CONVERT, "");
    for (int i = 0; i < 20000; i++) {
        snprintf(names[i], sizeof *names, "blk.%d.other", i);
        hostile_add_tensor(names[i], 1, 1, TENSOR_F32, (struct text){"\0\0\0", 4});
    }
    bent_accepted(CHECK | SCORE | RETYPE | CONVERT | TRAIN, "");
}

TEST(class_04_names, .before = bent_set_up)
{
    char key[65536] = "";
    memset(key, 'k', sizeof key - 1);
    hostile_set_u32(key, 1);
    bent_accepted(INFO | GENERATE | CONVERT | RETYPE, "");
    h.pairs[0].key = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "key 0 \"a\": name at byte 24: expected no zero byte");
    h.tensors[0].name = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "expected no zero byte, found one as byte 1 of 3");
}

/* OUT is left, which is the untrained checkpoint of step 0. (tests/data/broken/lines.txt has NaN in
 * other commands.) */
TEST(class_10_a_teacher_of_nan, .before = bent_set_up)
{
    bend("token_embd.weight=nan");
    hostile_write();
    expect_line_refused(
        "train %T -o %O --from %G --teacher %B --steps 1 --batch 1 --seed 1 -t 1 -q", 3,
        "bad.gguf: what the teacher predicts is not finite");
}

static void use(const char *preset, enum norm_placement placement, enum position_kind position)
{
    use_sound(&(struct sound){NULL, preset, "llama", SIZES_OF_LLAMA, placement, position, false});
}

/* llama.cpp's converter of llama2.c files leaves these keys out: the base is 10000 then, and the
 * width that of a head. */
TEST(rotary_keys_may_be_missing, .before = bent_set_up)
{
    static const char line[] = "score %B --tokens 5,7,11,13,17,2,3 -t 1 -q --top 3";
    struct ran with, without;
    use("llama", PLACEMENT_BEFORE, POSITION_ROPE);
    bend("llama.context_length=u32:128");
    hostile_write();
    run_on_bad(&with, line);
    bend("-llama.rope.freq_base; -llama.rope.dimension_count");
    hostile_write();
    run_on_bad(&without, line);
    expect_success(&with);
    ck_assert_str_eq(with.out, without.out);
}

/* A token of 1 MB, of each kind in turn, costs no more than its bytes in any command. */
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

/* Expects that the command line succeeds in each form and prints nothing that a terminal obeys. */
static void expect_clean_forms(const char *line)
{
    static const char *const forms[] = {"table", "md", "csv", "json", "jsonl"};
    for (size_t i = 0; i < COUNT(forms); i++) {
        struct ran r;
        char whole[300];
        snprintf(whole, sizeof whole, "%s --format %s", line, forms[i]);
        run_on_bad(&r, whole);
        remove_outputs();
        ck_assert_msg(r.code == 0, "%s: %s", whole, r.err);
        ck_assert_uint_lt(r.out_len, sizeof r.out);
        expect_clean(r.out, whole);
        expect_clean(r.err, whole);
    }
}

/* Metadata, keys, names of tensors and texts of tokens have control characters here. Only generate
 * and tokenize --decode print the bytes of tokens as they are. This test found C1 controls in JSON
 * and in messages, all controls in CSV, and names of tensors in convert's messages. */
TEST(no_control_characters_from_a_file_reach_the_terminal, .before = bent_set_up)
{
    struct ran r;
    hostile_set_text("general.name", text_of("name" NASTY));
    set_token(259, text_of("token" NASTY));
    bend("tokenizer.ggml.token_type=i32[]:1*256,3*4; +tensor" NASTY);
    hostile_write();
    expect_clean_forms("score --tokens 1,259,2 --top 3 -t 1 %B");
    run_on_bad(&r, "generate %B -p ab -n 9 -t 1 --seed 1 --format json --temp 100");
    expect_success(&r);
    expect_clean(r.out, "generate --format json");
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
    bend("-" TOKENS);
    hostile_set_text("tokenizer.ggml.model", text_of("model" NASTY));
    hostile_write();
    expect_clean_forms("info %B --tensors --check");
    run_on_bad(&r, "generate %B -p ab");
    expect_refusal(&r, 3, "found \"arch?[31m?2J???????\"");
}

/* The key makes the context as long as it can be. Tables of positions have the size that is asked
 * for, and what does not fit is refused. */
static void long_context(const char *key)
{
    static const struct line within[] = {
        {"generate %B -p ab -n 2 -t 1 --seed 1 -c 16", 0, NULL, NULL},
        {"score %B -p ab -t 1", 0, NULL, NULL},
        {"eval %B %T -t 1 --ctx 16", 0, NULL, NULL},
        {"bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --depth 0 -t 1 -q", 0, NULL, NULL},
        {"info %B", 0, NULL, NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194304 -q", 4,
         "out of memory: the cache and scratch memory need|a smaller --batch, -c", NULL},
        {"generate %B -p ab -n 2 -t 1 -c 4194305", 2, "-c: expected at most 4194304", NULL},
    };
    struct ran r;
    hostile_set_u32(key, 1 << 22);
    hostile_write();
    try_lines(within, COUNT(within), limit_to, &(struct limit){RLIMIT_AS, (rlim_t)768 << 20});
    /* Without -c the cache has room for all of it, but neither it nor the tables are filled. */
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
    use("llama", PLACEMENT_BEFORE, POSITION_ROPE);
    long_context("llama.context_length");
    use("decode", PLACEMENT_AFTER, POSITION_SINUSOIDAL);
    long_context("decode.context_length");
    use("decode", PLACEMENT_BEFORE, POSITION_ALIBI);
    long_context("decode.context_length");
}

/* Without --batch as many sequences run as fit, at least one; a sequence takes 32 MiB. */
TEST(class_15_batches, .before = hostile_set_up, .left_out = SANITIZED)
{
    static const struct line lines[] = {
        {"generate %G -p a --samples 40 -n 2 -c 8192 -t 1 --batch 40", 4,
         "need 1.2|are available; a smaller --batch", NULL},
        {"generate %G -p a --samples 40 -n 2 -c 8192 -t 1 -v", 0, "KV cache |batch        ", NULL},
        {"generate %G -p a --samples 40 -n 2 -c 8192 -t 1 --batch 2", 0, NULL, NULL},
    };
    const struct checkpoint_shape wide =
        shape_of("layers=1 heads=16 kv=16 dim=32 ff=16 ctx=8192 vocab=257 seed=3");
    struct limit l = {RLIMIT_AS, (rlim_t)300 << 20};
    write_checkpoint(good_path, &wide);
    try_lines(lines, COUNT(lines), limit_to, &l);
}
