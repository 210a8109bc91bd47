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

/* The good image with `len` bytes at `at` replaced, for one command after the other. */
static void expect_patch_refused(size_t at, const void *bytes, size_t len, const char *text)
{
    struct gguf_bytes b;
    hostile_image(&b);
    ck_assert_uint_le(at + len, b.len);
    memcpy(b.data + at, bytes, len);
    hostile_write_bytes(b.data, b.len);
    expect_refused_in_turn(EVERY_COMMAND, text);
    free(b.data);
}

static void expect_u64_refused(size_t at, uint64_t value, const char *text)
{
    expect_patch_refused(at, &value, sizeof value, text);
}

/* --- class 1: short and special files -------------------------------------------------------- */

TEST(class_01_short_files, .before = bent_set_up, .after = hostile_tear_down)
{
    struct gguf_bytes b;
    hostile_image(&b);
    const size_t lens[] = {1, 23, h.pairs[1].at + 1, h.tensors[0].at - 1, h.tensors[1].at + 1};
    for (size_t i = 0; i < COUNT(lens); i++) {
        hostile_write_bytes(b.data, lens[i]);
        expect_refused_in_turn(EVERY_COMMAND, "truncated");
    }
    hostile_write_bytes(b.data, b.len - 1);
    expect_refused(EVERY_COMMAND, "truncated");
    hostile_write_bytes(b.data, 0);
    expect_refused(EVERY_COMMAND, "empty");
    free(b.data);
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

TEST(class_01_special_files, .before = bent_set_up, .after = hostile_tear_down)
{
    /* cli.sh has these for the other commands. */
    const unsigned others = CHECK | EVAL | AGAINST | CONVERT | TRAIN | TEACHER | BENCH;
    static const struct {
        const char *path, *text;
    } special[] = {{"/dev/zero", "found a device"},
                   {"/proc/self/mem", "found an empty one"},
                   {"/", "found a directory"}};
    static const struct line no_names[] = {
        {"info ''", 3, "the file name is empty", NULL},
        {"eval %G --text ''", 3, "the file name is empty", NULL},
        {"eval %G --text %T --against ''", 3, "the file name is empty", NULL},
        {"train %T -o %O --from ''", 3, "the file name is empty", NULL},
        {"convert ''  -o %O --kv-heads 1", 2, NULL, NULL},
    };
    unlink(bad_path);
    expect_refused(others, "No such file");
    ck_assert_int_eq(mkfifo(bad_path, 0600), 0);
    expect_refused(others, "found a pipe (FIFO)");
    hostile_write();
    struct ran r;
    char line[700];
    snprintf(line, sizeof line, "info %s", bad_path);
    run_program(&r, line, be_nobody, NULL);
    if (geteuid() == 0)
        expect_refusal(&r, 3, "Permission denied");
    for (size_t i = 0; i < COUNT(special); i++) {
        strcpy(bad_path, special[i].path);
        expect_refused(others, special[i].text);
    }
    TRY_LINES(no_names);
}

/* --- class 2 --------------------------------------------------------------------------------- */

TEST(class_02_magic_and_version, .before = bent_set_up, .after = hostile_tear_down)
{
    struct gguf_bytes b;
    expect_patch_refused(0, "gguf", 4, "not a GGUF file");
    expect_patch_refused(0, "\x1b[2J", 4, "1b 5b 32 4a");
    hostile_image(&b);
    b.data[4] = 4;
    hostile_write_bytes(b.data, b.len);
    expect_refused(EVERY_COMMAND, "version at byte 4: expected 2 or 3, found 4");
    b.data[4] = 2;
    hostile_write_bytes(b.data, b.len);
    expect_accepted(INFO | GENERATE | CONVERT);
    free(b.data);
}

/* --- class 3 --------------------------------------------------------------------------------- */

TEST(class_03_counts_of_pairs_and_tensors, .before = bent_set_up, .after = hostile_tear_down)
{
    expect_u64_refused(8, UINT64_MAX - 7, "tensor count at byte 8 is");
    expect_u64_refused(16, (1ull << 32) + 1, "key count at byte 16 is");
    expect_u64_refused(8, h.n_tensors + 1, "tensor 29");
    expect_u64_refused(16, h.n_pairs + 1, "truncated");
    bent_accepted(GENERATE | CONVERT, "!output.weight"); /* tied: one fewer is another model */
    struct gguf_bytes b;
    hostile_image(&b);
    memset(b.data + 8, 0, 8); /* no tensors, but their records and data */
    hostile_write_bytes(b.data, b.len);
    expect_refused(LOADERS, "tensor token_embd.weight: missing");
    memset(b.data + 16, 0, 8); /* nothing at all */
    hostile_write_bytes(b.data, b.len);
    expect_refused(LOADERS & ~(TRAIN | TEACHER), "key \"general.architecture\" is missing");
    expect_refused(TOKENIZE | TRAIN | TEACHER, "key \"tokenizer.ggml.model\" is missing");
    expect_accepted(INFO | CHECK);
    free(b.data);
}

/* Tables of their size are legal, take a moment and no more than some times the file. */
TEST(class_03_many_records, .before = bent_set_up, .after = hostile_tear_down)
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

/* --- class 4 --------------------------------------------------------------------------------- */

TEST(class_04_strings, .before = bent_set_up, .after = hostile_tear_down)
{
    static const struct text nasty[] = {{"\x1b[31m\r\n\x7f", 8}, {"\xed\xa0\x80", 3}};
    struct gguf_bytes b;
    hostile_image(&b); /* for the records' places */
    free(b.data);
    expect_u64_refused(h.pairs[0].at, 1ull << 32, "key 0: name");
    expect_u64_refused(h.pairs[0].at + 8 + h.pairs[0].key.len + 4, UINT64_MAX,
                       "key 0 \"general.architecture\": string");
    expect_u64_refused(hostile_pair("tokenizer.ggml.tokens")->at + 8 + 21 + 4 + 4 + 8,
                       UINT64_MAX - 7, "\"tokenizer.ggml.tokens\": string in the array");
    expect_u64_refused(h.tensors[0].at, UINT64_MAX, "tensor 0: name");
    expect_u64_refused(h.pairs[0].at, 0, "key 0: length of the name");
    expect_u64_refused(h.tensors[0].at, 0, "tensor 0: length of the name");
    char key[65537];
    memset(key, 'k', sizeof key);
    for (size_t len = 65535; len <= 65536; len++) {
        key[len] = 0;
        hostile_set_u32(key, 1);
        key[len] = 'k';
        if (len == 65535)
            bent_accepted(INFO | GENERATE | CONVERT | QUANTIZE, "");
        else
            bent_refused_by_all(EVERY_COMMAND, "", "expected 1 to 65535, found 65536");
    }
    h.pairs[0].key = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "key 0 \"a\": name at byte 24: expected no zero byte");
    h.tensors[0].name = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "expected no zero byte, found one as byte 1 of 3");
    for (size_t i = 0; i < COUNT(nasty); i++) {
        h.pairs[h.n_pairs++] = (struct hostile_pair){nasty[i], GGUF_U8, {"", 1}, 0};
        bent_accepted(INFO | GENERATE | QUANTIZE | CONVERT, ""); /* an unknown key */
        h.pairs[h.n_pairs++] = (struct hostile_pair){nasty[i], 13, {"", 1}, 0};
        bent_refused(EVERY_COMMAND, "", "value type at byte");
        h.pairs[0].key = nasty[i];
        bent_refused_by_all(LOADERS, "", "key \"general.architecture\" is missing");
        hostile_add_tensor("x", 1, 8, TENSOR_F32, nasty[i])->name = nasty[i];
        bent_refused(EVERY_COMMAND, "", "its data");
        hostile_set_text("general.architecture", nasty[i]);
        hostile_write();
        expect_refused(LOADERS,
                       "general.architecture: expected gpt2, starcoder, llama or decode, found");
        expect_accepted(INFO | CHECK | TOKENIZE);
        reset();
    }
}

/* --- class 5 --------------------------------------------------------------------------------- */

TEST(class_05_types_of_values, .before = bent_set_up, .after = hostile_tear_down)
{
    struct gguf_bytes deep = {0};
    hostile_set("odd", 13, "12345678", 8);
    bent_refused(EVERY_COMMAND, "", "\"odd\": value type at byte");
    hostile_set_array("odd", UINT32_MAX, 1, "12345678", 8);
    bent_refused(EVERY_COMMAND, "", "\"odd\": array element type at byte");
    hostile_set_array("list", GGUF_STRING, 0, NULL, 0);
    bent_accepted(INFO | GENERATE | CONVERT | QUANTIZE, "");
    hostile_set_array("list", GGUF_F32, 1ull << 61, "12345678", 8);
    bent_refused(EVERY_COMMAND, "", "\"list\": array length is 2305843009213693952");
    for (int i = 0; i < 10000; i++) {
        gb_put_u32(&deep, GGUF_ARRAY);
        gb_put_u64(&deep, 1);
    }
    hostile_set("deep", GGUF_ARRAY, deep.data, deep.len);
    bent_refused_by_all(EVERY_COMMAND, "", "\"deep\": array element type at byte");
    free(deep.data);
    hostile_set("tokenizer.ggml.add_bos_token", GGUF_BOOL, "\2", 1);
    bent_accepted(INFO | GENERATE | SCORE | EVAL, ""); /* any but 0 is true, as in C */
}

/* --- class 8 --------------------------------------------------------------------------------- */

TEST(class_08_records_of_tensors, .before = bent_set_up, .after = hostile_tear_down)
{
    static const char name[] = "blk.0.a_name_of_sixty_four_bytes_and_no_zero_behind_it_xxxxxxxxxx";
    static const struct text data = {name, 32}, longer = {name, 64};
    static const struct bend dims[] = {
        {"token_embd.weight~0x260", "dimension 0 is 0"},
        {"token_embd.weight~4611686018427387904x1", "its shape overflows"},
        {"token_embd.weight~1099511627776x1", "its data"},
    };
    h.tensors[0].n_dims = 5;
    bent_refused(EVERY_COMMAND, "", "\"token_embd.weight\": number of dimensions");
    TRY_BENDS(dims, EVERY_COMMAND);
    h.tensors[0].type = 31;
    bent_refused(EVERY_COMMAND, "", "\"token_embd.weight\": type 31 is unknown");
    struct hostile_tensor *t = hostile_tensor("output.weight");
    t->type = TENSOR_Q8_0;
    t->dims[0] = 33;
    bent_refused(EVERY_COMMAND, "", "\"output.weight\"");
    hostile_add_tensor(name, 1, 8, TENSOR_F32, data)->name = longer;
    hostile_write();
    expect_accepted(INFO | CHECK | GENERATE | TRAIN);
    /* llama.cpp could not read what would be written. */
    expect_refused(QUANTIZE | CONVERT, "its name has 64 bytes: expected 1 to 63");
    reset();
    hostile_add_tensor("blk.999999.attn_qkv.weight", 1, 8, TENSOR_F32, data);
    bent_accepted(INFO | CHECK | GENERATE | QUANTIZE | CONVERT | TRAIN, "");
    hostile_add_tensor("output.weight", 1, 8, TENSOR_F32, data);
    bent_refused_by_all(EVERY_COMMAND, "", "\"output.weight\" at byte");
}

/* What only the model's loader minds: it does, and the other commands do not. */
TEST(class_08_tensors, .before = bent_set_up, .after = hostile_tear_down)
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
    for (size_t i = 0; i < 2 * COUNT(needed); i++) {
        const char *name = needed[i / 2];
        struct hostile_tensor *t = hostile_tensor(name);
        char *twice = calloc(2, t->data.len);
        snprintf(text, sizeof text, "tensor %s: %s", name, i % 2 ? "expected shape" : "missing");
        t->dims[0] *= 2;
        t->data = (struct text){twice, 2 * t->data.len};
        if (i % 2 == 0)
            hostile_drop_tensor(name);
        hostile_write();
        expect_refused(LOADERS, text);
        expect_accepted(TOKENIZE | QUANTIZE);
        reset();
        free(twice);
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

/* --- class 9 --------------------------------------------------------------------------------- */

TEST(class_09_offsets_and_alignment, .before = bent_set_up, .after = hostile_tear_down)
{
    struct gguf_bytes b;
    hostile_image(&b);
    free(b.data);
    const uint64_t last = hostile_tensor("output.weight")->offset;
    const struct {
        uint64_t offset;
        const char *text;
    } places[] = {
        {last + 1, "\"output.weight\": offset: expected a multiple of the alignment 32"},
        {last - 32, "overlap"},
        {0, "overlap"}, /* with all of another */
        {last + hostile_tensor("output.weight")->data.len, "\"output.weight\": its data at byte"},
        {UINT64_MAX - 31, "\"output.weight\": its data at byte"},
    };
    for (size_t i = 0; i < COUNT(places); i++) {
        hostile_tensor("output.weight")->placed = true;
        hostile_tensor("output.weight")->offset = places[i].offset;
        bent_refused(EVERY_COMMAND, "", places[i].text);
    }
    static const struct bend alignments[] = {
        {"general.alignment=u32:24", "key \"general.alignment\": expected a u32 that is"},
        {"general.alignment=string:32", "a power of two from 8 to 65536, found string"},
        {"general.alignment=u32:4096", "offset: expected a multiple of the alignment 4096"},
    };
    TRY_BENDS(alignments, EVERY_COMMAND);
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 512) {
        hostile_set_u32("general.alignment", alignment);
        h.alignment = alignment;
        bent_accepted(INFO | CHECK | GENERATE | QUANTIZE | CONVERT | TRAIN, "");
    }
}
