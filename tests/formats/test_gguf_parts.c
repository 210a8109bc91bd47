/*
 * Split files: parts that stand beside each other are the checkpoint that was split; parts that do
 * not belong together are bad input.
 */
#include <stdio.h>
#include <unistd.h>

#include "hostile.h"

#define N_PARTS 3

static const char *paths[N_PARTS]; /* until the test ends */

/* A third of the good checkpoint's tensors, with the keys of gguf-split. All other keys are in part
 * 1. */
static void write_part(int no, const char *bends)
{
    char split[120];
    struct gguf_bytes b;
    reset();
    const size_t all = h.n_tensors, first = all * no / N_PARTS, end = all * (no + 1) / N_PARTS;
    snprintf(split, sizeof split,
             "split.no=u16:%d; split.count=u16:%d; split.tensors.count=i32:%zu", no, N_PARTS, all);
    h.n_tensors = end - first;
    memmove(h.tensors, h.tensors + first, h.n_tensors * sizeof *h.tensors);
    if (no > 0)
        h.n_pairs = 1; /* general.architecture */
    bend(split);
    bend(bends);
    hostile_image(&b);
    write_file(paths[no], b.data, b.len);
    free(b.data);
    reset();
}

static void set_up(void)
{
    bent_set_up();
    for (int i = 0; i < N_PARTS; i++) {
        char name[40];
        snprintf(name, sizeof name, "bad-%05d-of-%05d.gguf", i + 1, N_PARTS);
        paths[i] = scratch_path(name);
        write_part(i, "");
    }
    strcpy(bad_path, paths[0]);
}

TEST(parts_are_the_whole, .before = set_up)
{
    size_t len;
    expect_line_done("quantize %G -o %O --type f16 -t 1 -q", "");
    unsigned char *whole = read_file(out_path, &len);
    remove_outputs();
    expect_line_done("quantize %B -o %O --type f16 -t 1 -q", "");
    expect_bytes(out_path, whole, len);
    free(whole);
    remove_outputs();
    expect_accepted(EVERY_COMMAND);
    expect_line_done("info %B --tensors", "n_parts|3|!does_not_run|!split.");
    strcpy(bad_path, paths[2]);
    expect_refused(EVERY_COMMAND & ~(INFO | CHECK),
                   "it is part 3 of 3: give part 1, bad-00001-of-00003.gguf");
    expect_line_done("info %B", "does_not_run|it is part 3 of 3|split.count");
    strcpy(out_path, paths[1]); /* no output replaces an input */
    expect_line_refused("quantize %B -o %O --type f16 --force", 2, "is the checkpoint itself");
}

/* The rows of tests/data/broken/parts.txt. */
TEST(parts_that_do_not_belong_together, .before = set_up)
{
    char *rest = file_text("tests/data/broken/parts.txt", NULL);
    for (char *row; (row = next_row(&rest));) {
        const char *bends = next_field(&row);
        const int part = *bends++ - '1';
        if (*bends)
            write_part(part, bends + 1);
        else
            ck_assert_int_eq(unlink(paths[part]), 0);
        expect_refused_in_turn(EVERY_COMMAND & ~(INFO | CHECK), row);
        expect_line_done("info %B", "does_not_run");
        write_part(part, "");
    }
}

/* A file that says that it is split in one is whole, and what is made of it says nothing of that.
 */
TEST(one_part_is_the_whole, .before = bent_set_up)
{
    bent_accepted(EVERY_COMMAND, "split.no=u16:0; split.count=u16:1; split.tensors.count=i32:29");
    expect_line_done("quantize %B -o %O --type f16 -q", "");
    expect_line_done("info %O", "!split.|!does_not_run");
    remove_outputs();
}

/* Of what is sound and no model info lists keys and tensors. */
TEST(files_that_are_no_model, .before = bent_set_up)
{
    bend("general.architecture=u32:1; general.name=f32:1; gpt2.block_count=string:two; "
         "adapter.lora.alpha=f32:16");
    hostile_write();
    expect_line_done(
        "info %B --tensors",
        "general.architecture\": expected string|adapter.lora.alpha|token_embd.weight");
}
