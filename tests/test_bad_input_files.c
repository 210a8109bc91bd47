/*
 * Hostile files against the whole program: what is wrong with the file itself (classes 1 to 5, 8
 * and 9), one or two of a kind: the reader alone has all of them in test_gguf_bad.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostile.h"
#include "support.h"

/* Commands that load the model, whose loader names the tensor. */
#define LOADERS (GENERATE | SCORE | EVAL | AGAINST | CONVERT | TRAIN | TEACHER | BENCH)

/* The good image. */
static struct gguf_bytes good_image(void)
{
    struct gguf_bytes b;
    hostile_image(&b);
    released_by(free, b.data);
    return b;
}

/* With another number at `at` it is refused by one command after the other. */
static void expect_patch_refused(size_t at, uint64_t value, const char *text)
{
    const struct gguf_bytes b = good_image();
    memcpy(b.data + at, &value, sizeof value);
    hostile_write_bytes(b.data, b.len);
    expect_refused_in_turn(EVERY_COMMAND, text);
}

struct patch {
    size_t at;
    uint64_t value;
    const char *text;
};

TEST(class_01_short_files, .before = bent_set_up)
{
    const struct gguf_bytes b = good_image();
    const size_t lens[] = {1, 23, h.pairs[1].at + 1, h.tensors[0].at - 1, h.tensors[1].at + 1};
    for (size_t i = 0; i < COUNT(lens); i++) {
        hostile_write_bytes(b.data, lens[i]);
        expect_refused_in_turn(EVERY_COMMAND, "truncated");
    }
    hostile_write_bytes(b.data, b.len - 1);
    expect_refused(EVERY_COMMAND, "truncated");
    hostile_write_bytes(b.data, 0);
    expect_refused(EVERY_COMMAND, "empty");
#if SIZE_MAX > UINT32_MAX
    /* More than 2 GiB that take no room. */
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
    static const struct line no_names[] = {
        {"info ''", 3, "the file name is empty", NULL},
        {"eval %G --text ''", 3, "the file name is empty", NULL},
        {"eval %G --text %T --against ''", 3, "the file name is empty", NULL},
        {"train %T -o %O --from ''", 3, "the file name is empty", NULL},
        {"convert ''  -o %O --kv-heads 1", 2, NULL, NULL},
    };
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
    TRY_LINES(no_names);
}

/* One of each class that the reader refuses: magic and version, counts, strings, types of values,
 * records of tensors, places. */
TEST(classes_02_to_09_of_the_reader, .before = bent_set_up)
{
    static const struct bend bends[] = {
        {"token_embd.weight~1x1x1x1x1", "\"token_embd.weight\": number of dimensions"},
        {"token_embd.weight~0x260", "dimension 0 is 0"},
        {"token_embd.weight~4611686018427387904x1", "its shape overflows"},
        {"token_embd.weight~1099511627776x1", "its data"},
        {"general.alignment=u32:24", "key \"general.alignment\": expected a u32 that is"},
        {"general.alignment=u32:4096", "offset: expected a multiple of the alignment 4096"},
    };
    good_image(); /* for the records' places */
    const size_t offset = hostile_tensor("output.weight")->at + 8 + 13 + 4 + 8 * 2 + 4;
    const uint64_t last = hostile_tensor("output.weight")->offset;
    const struct patch patches[] = {
        {0, 0x000000034a325b1b, "not a GGUF file"},
        {0, 0x000000034a325b1b, "1b 5b 32 4a"},
        {0, 0x0000000446554747, "version at byte 4: expected 2 or 3, found 4"},
        {8, UINT64_MAX - 7, "tensor count at byte 8 is"},
        {8, h.n_tensors + 1, "tensor 29"},
        {16, (1ull << 32) + 1, "key count at byte 16 is"},
        {16, h.n_pairs + 1, "truncated"},
        {h.pairs[0].at, 1ull << 32, "key 0: name"},
        {h.pairs[0].at + 8 + h.pairs[0].key.len, 13,
         "\"general.architecture\": value type at byte"},
        {h.pairs[0].at + 8 + h.pairs[0].key.len + 4, UINT64_MAX,
         "key 0 \"general.architecture\": string"},
        {hostile_pair(TOKENS)->at + 8 + 21 + 4 + 4, 1ull << 61, "array length is 2305843009213"},
        {hostile_pair(TOKENS)->at + 8 + 21 + 4 + 4 + 8, UINT64_MAX - 7,
         "\"tokenizer.ggml.tokens\": string in the array"},
        {h.tensors[0].at, UINT64_MAX, "tensor 0: name"},
        {offset, last + 1, "\"output.weight\": offset: expected a multiple of the alignment 32"},
        {offset, last - 32, "overlap"},
        {offset, UINT64_MAX - 31, "\"output.weight\": its data at byte"},
    };
    TRY_BENDS(bends, EVERY_COMMAND);
    for (size_t i = 0; i < COUNT(patches); i++)
        expect_patch_refused(patches[i].at, patches[i].value, patches[i].text);
    h.tensors[0].type = 31;
    bent_refused(EVERY_COMMAND, "", "\"token_embd.weight\": type 31 is unknown");
    hostile_add_tensor("output.weight", 1, 8, TENSOR_F32,
                       (struct text){"0123456789abcdef0123456789abcdef", 32});
    bent_refused_by_all(EVERY_COMMAND, "", "\"output.weight\" at byte");
}

/* What the reader takes: what it lacks is told by those who need it. */
TEST(class_03_nothing_in_it, .before = bent_set_up)
{
    bent_accepted(GENERATE | CONVERT, "!output.weight"); /* tied: one fewer is another model */
    const struct gguf_bytes b = good_image();
    b.data[4] = 2; /* an older version */
    hostile_write_bytes(b.data, b.len);
    expect_accepted(INFO | GENERATE | CONVERT);
    memset(b.data + 8, 0, 8); /* no tensors, but their records and data */
    hostile_write_bytes(b.data, b.len);
    expect_refused(LOADERS, "tensor token_embd.weight: missing");
    memset(b.data + 16, 0, 8); /* nothing at all */
    hostile_write_bytes(b.data, b.len);
    expect_refused(LOADERS & ~(TRAIN | TEACHER), "key \"general.architecture\" is missing");
    expect_refused(TOKENIZE | TRAIN | TEACHER, "key \"tokenizer.ggml.model\" is missing");
    expect_accepted(INFO | CHECK);
}

/* Tables of their size are legal, take a moment and no more than some times the file. */
TEST(class_03_many_records, .before = bent_set_up)
{
    char name[32];
    for (h.n_more_pairs = 0; h.n_more_pairs < 100000; h.n_more_pairs++) {
        snprintf(name, sizeof name, "key.%d", (int)h.n_more_pairs);
        gb_put_text(&h.more_pairs, text_of(name));
        gb_put_u32(&h.more_pairs, GGUF_U8);
        gb_put(&h.more_pairs, "", 1);
    }
    bent_accepted(INFO | GENERATE | TOKENIZE | QUANTIZE | CONVERT, "");
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "blk.%d.other", i);
        hostile_add_small_tensor(name);
    }
    bent_accepted(CHECK | SCORE | QUANTIZE | CONVERT | TRAIN, "");
}

TEST(class_04_names, .before = bent_set_up)
{
    static const char long_name[] =
        "blk.0.a_name_of_sixty_four_bytes_and_no_zero_behind_it_xxxxxxxxxx";
    static const struct text nasty[] = {{"\x1b[31m\r\n\x7f", 8}, {"\xed\xa0\x80", 3}},
                             data = {long_name, 32}, longer = {long_name, 64};
    char key[65536] = "";
    memset(key, 'k', sizeof key - 1);
    hostile_set_u32(key, 1);
    bent_accepted(INFO | GENERATE | CONVERT | QUANTIZE, "list=string[]:");
    hostile_set("tokenizer.ggml.add_bos_token", GGUF_BOOL, "\2", 1);
    bent_accepted(INFO | GENERATE | SCORE | EVAL, ""); /* any but 0 is true, as in C */
    h.pairs[0].key = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "key 0 \"a\": name at byte 24: expected no zero byte");
    h.tensors[0].name = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "expected no zero byte, found one as byte 1 of 3");
    for (size_t i = 0; i < COUNT(nasty); i++) {
        h.pairs[h.n_pairs++] = (struct hostile_pair){nasty[i], GGUF_U8, {"", 1}, 0};
        bent_accepted(INFO | GENERATE | QUANTIZE | CONVERT, ""); /* an unknown key */
        h.pairs[h.n_pairs++] = (struct hostile_pair){nasty[i], 13, {"", 1}, 0};
        bent_refused(EVERY_COMMAND, "", "value type at byte");
        hostile_add_tensor("x", 1, 8, TENSOR_F32, nasty[i])->name = nasty[i];
        bent_refused(EVERY_COMMAND, "", "its data");
        hostile_set_text("general.architecture", nasty[i]);
        hostile_write();
        expect_refused(LOADERS,
                       "general.architecture: expected gpt2, starcoder, llama or decode, found");
        expect_accepted(INFO | CHECK | TOKENIZE);
        reset();
    }
    hostile_add_tensor(long_name, 1, 8, TENSOR_F32, data)->name = longer;
    hostile_write();
    expect_accepted(INFO | CHECK | GENERATE | TRAIN);
    /* llama.cpp could not read what would be written. */
    expect_refused(QUANTIZE | CONVERT, "its name has 64 bytes: expected 1 to 63");
    reset();
    hostile_add_tensor("blk.999999.attn_qkv.weight", 1, 8, TENSOR_F32, data);
    bent_accepted(INFO | CHECK | GENERATE | QUANTIZE | CONVERT | TRAIN, "");
}

/* What only the model's loader minds: it does, and the other commands do not. */
TEST(class_08_tensors, .before = bent_set_up)
{
    static const char *const needed[] = {"position_embd.weight",  "blk.0.attn_norm.weight",
                                         "blk.0.attn_qkv.weight", "blk.1.attn_output.weight",
                                         "blk.1.ffn_norm.weight", "blk.1.ffn_up.weight",
                                         "blk.1.ffn_down.weight", "output_norm.weight"};
    static const struct bend misshapen[] = {
        {"blk.0.ffn_up.weight~64x32", "blk.0.ffn_up.weight: expected shape 32 x 64, found 64 x 32"},
        {"blk.0.ffn_up.weight~2048", "blk.0.ffn_up.weight: expected shape 32 x 64, found 2048"},
        {"blk.0.ffn_up.weight~16x64x2", "expected shape 32 x 64, found 16 x 64 x 2"},
        {"blk.0.ffn_up.bias~63", "blk.0.ffn_up.bias: expected shape 64, found 63"},
        {"blk.0.attn_norm.weight~1", "blk.0.attn_norm.weight: expected shape 32, found 1"},
        {"output.weight~32x259", "output.weight: expected shape 32 x 260, found 32 x 259"},
        {"token_embd.weight~8320", "token_embd.weight: expected 2 dimensions and at most"},
        {"blk.0.attn_qkv.weight~96x32", "attn_qkv.weight: expected shape 32 x 96, found 96 x 32"},
        {"blk.0.ffn_up.bias~64x1x1", NULL}, /* ones behind do not matter */
    };
    char text[96];
    for (size_t i = 0; i < COUNT(needed); i++) {
        hostile_drop_tensor(needed[i]);
        hostile_write();
        snprintf(text, sizeof text, "tensor %s: missing", needed[i]);
        expect_refused(LOADERS, text);
        expect_accepted(TOKENIZE | QUANTIZE);
        reset();
    }
    hostile_tensor("blk.0.ffn_up.weight")->type = 24; /* I8: a type, but none of weights */
    bent_refused_by_all(LOADERS | QUANTIZE, "",
                        "tensor blk.0.ffn_up.weight: expected type F32, F16, BF16");
    hostile_tensor("blk.0.attn_norm.weight")->type = TENSOR_Q8_0;
    bent_refused_by_all(LOADERS & ~(CONVERT | TRAIN | TEACHER), /* which ask for --requantize */
                        "", "tensor blk.0.attn_norm.weight: expected type F32, F16 or BF16");
    bent_refused_by_all(MODEL_READERS, "!token_embd.weight", "tensor token_embd.weight: missing");
    TRY_BENDS(misshapen, LOADERS);
}

TEST(class_09_alignment, .before = bent_set_up)
{
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 512) {
        hostile_set_u32("general.alignment", alignment);
        h.alignment = alignment;
        bent_accepted(INFO | CHECK | GENERATE | QUANTIZE | CONVERT | TRAIN, "");
    }
}
