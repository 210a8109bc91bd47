/*
 * Hostile files against the whole program: short and special ones, many records, odd names. What
 * the reader refuses is in test_gguf_bad.c, what loaders refuse in test_bad_input_table.c.
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
        {"eval %G ''", 3, "the file name is empty", NULL},
        {"eval %G %T --against ''", 3, "the file name is empty", NULL},
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

/* What the reader takes: what it lacks is told by those who need it. */
TEST(class_03_nothing_in_it, .before = bent_set_up)
{
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
    bent_accepted(INFO | GENERATE | TOKENIZE | RETYPE | CONVERT, "");
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "blk.%d.other", i);
        hostile_add_small_tensor(name);
    }
    bent_accepted(CHECK | SCORE | RETYPE | CONVERT | TRAIN, "");
}

TEST(class_04_names, .before = bent_set_up)
{
    static const struct text nasty = {"\x1b[31m\r\n\x7f", 8};
    char key[65536] = "";
    memset(key, 'k', sizeof key - 1);
    hostile_set_u32(key, 1);
    bent_accepted(INFO | GENERATE | CONVERT | RETYPE, "");
    h.pairs[0].key = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "key 0 \"a\": name at byte 24: expected no zero byte");
    h.tensors[0].name = (struct text){"a\0b", 3};
    bent_refused(EVERY_COMMAND, "", "expected no zero byte, found one as byte 1 of 3");
    h.pairs[h.n_pairs++] = (struct hostile_pair){nasty, 13, {"", 1}, 0};
    bent_refused(EVERY_COMMAND, "", "value type at byte");
    hostile_add_tensor("x", 1, 8, TENSOR_F32, nasty)->name = nasty;
    bent_refused(EVERY_COMMAND, "", "its data");
}
