/*
 * Tests of what a live page runs: it refuses texts and K/V heads, and goes on after that.
 * (tests/show/page.sh tests its weights and tokens.)
 */
#include <string.h>

#include "cli/attend.h"
#include "opened.h"

static struct live *live;
static const struct live_answer *answer; /* the first member of a struct live */

RELEASER(close_live, live_free)

static void open_file(const char *path)
{
    struct file_map file;
    expect_ok(file_map_open(&file, path, &err));
    live = released_by(close_live, live_open(file.data, file.len, "page"));
    answer = (const struct live_answer *)live;
}

static void open_live(void)
{
    open_file("tests/data/shakespeare-bytes.gguf");
    ck_assert_ptr_null(answer->error);
}

static void show(const char *text, int n, const char *kv_heads)
{
    live_show(live, text, strlen(text), n, 0.8, 7, kv_heads);
}

/* Expects an answer without an error, with numbers and a view that has this part. */
static void expect_view(const char *part)
{
    ck_assert_msg(!answer->error, "%s", answer->error);
    ck_assert_uint_gt(answer->numbers_len, 0);
    ck_assert_ptr_nonnull(memmem(answer->view, answer->view_len, part, strlen(part)));
    ck_assert_ptr_null(memmem(answer->view, answer->view_len, "cached as", 9));
}

TEST(refusals_are_sentences, .before = open_live)
{
    char longer[258] = "";
    memset(longer, 'a', 257);
    const struct {
        const char *text;
        int n;
        const char *kv_heads, *says;
    } refused[] = {
        {"", 0, "", "the text is empty: there is no token to look at"},
        {longer, 0, "", "the text has 257 tokens, the context only 256: shorten the text"},
        {longer, 5, "", "the text has 257 tokens, the context only 256: shorten the text"},
        {"To be", 0, "3", "expected a divisor of the 8 query heads"},
        {"To be", 5, "x", "found 'x'"},
    };
    for (size_t i = 0; i < COUNT(refused); i++) {
        show(refused[i].text, refused[i].n, refused[i].kv_heads);
        ck_assert_msg(answer->error && answer->view_len == 0, "%s", refused[i].says);
        expect_says(answer->error, refused[i].says);
        show("To be", 2, "2");
        expect_view("GQA-2");
    }
    show(longer + 1, 5, ""); /* It fills the context, so that no token is made. */
    expect_view("\"made\": 0");
}

TEST(a_file_that_is_no_checkpoint)
{
    open_file("LICENSE");
    ck_assert_ptr_nonnull(answer->error);
    expect_says(answer->error, "page|expected \"GGUF\"");
}
