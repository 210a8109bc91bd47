/* Compares learned merges with those of a plain reference in Python. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cases.h"
#include "support.h"
#include "text/bpe_learn.h"

RELEASER(free_learned, bpe_learned_free)

/* Freed when the test ends. */
static struct bpe_learned *learn(const struct text *texts, size_t n, int n_tokens)
{
    const struct bpe_learn_spec spec = {.n_tokens = n_tokens};
    struct bpe_learned *v = allocated(sizeof *v);
    expect_ok(bpe_learn(&spec, texts, n, v, &err));
    return released_by(free_learned, v);
}

/* --- checks ---------------------------------------------------------------------------------- */

/* Checks what holds for every vocabulary. */
static void check_consistent(const struct bpe_learned *v)
{
    for (int i = 0; i < v->n_merges; i++) {
        const struct bpe_merge m = v->merges[i];
        ck_assert(m.left >= 0 && m.left < 256 + i && m.right >= 0 && m.right < 256 + i);
    }
}

static void check_merges(const struct bpe_learned *v, const struct bpe_merge *merges, int n)
{
    for (int i = 0; i < v->n_merges && i < n; i++)
        ck_assert_msg(v->merges[i].left == merges[i].left && v->merges[i].right == merges[i].right,
                      "merge %d is %d %d, expected %d %d", i, v->merges[i].left, v->merges[i].right,
                      merges[i].left, merges[i].right);
    ck_assert_int_eq(v->n_merges, n);
}

/* Checks the vocabulary as a checkpoint has it. */
static void check_written(const struct bpe_learned *v)
{
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    expect_ok(bpe_learned_write(v, w, &err));
    struct gguf_file f = written_gguf(w);
    const struct tokenizer *t = tokenizer_in(f.g);
    ck_assert_int_eq(tokenizer_n_tokens(t), bpe_learned_n_tokens(v));
    for (int i = 0; i < 256; i++)
        ck_assert(text_equal(tokenizer_bytes(t, i), text_span(&(char){i}, 1)));
    for (int i = 0; i < v->n_merges; i++) {
        const int32_t parts[] = {v->merges[i].left, v->merges[i].right};
        struct bytes both = {0};
        ck_assert(tokenizer_put(t, parts, 2, &both));
        ck_assert(text_equal(tokenizer_bytes(t, 256 + i), bytes_text(&both)));
        bytes_free(&both);
    }
}

/* --- merging --------------------------------------------------------------------------------- */

/* A run of one letter is halved until two tokens are left, which make one pair. */
TEST(a_word_of_a_megabyte)
{
    enum { LEN = 1 << 20, HALVES = 19 };
    struct bpe_merge merges[HALVES] = {{'a', 'a'}};
    char *text = memset(allocated(LEN), 'a', LEN);
    const struct text whole = {text, LEN};
    struct rng r;
    rng_seed(&r, 3, 4);
    for (int i = 1; i < HALVES; i++)
        merges[i] = (struct bpe_merge){255 + i, 255 + i};
    check_merges(learn(&whole, 1, 256 + 60), merges, HALVES);
    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)('a' + rng_u32(&r) % 20);
    const struct bpe_learned *v = learn(&whole, 1, 256 + 300);
    check_consistent(v);
    ck_assert_int_eq(v->n_merges, 300);
}

/* A Python program that shares nothing with this one makes the cases. */
TEST(reference_cases)
{
    static struct test_case t;
    static struct bpe_merge merges[CASE_MAX / 2];
    char *lines = file_text("tests/data/bpe-learn.txt", NULL), *rest;
    int n = 0;
    for (const char *wanted; (wanted = cases_line(&lines, &rest)); n++) {
        case_text(&t, strtok_r(NULL, " ", &rest));
        case_numbers(&t, &rest);
        for (size_t i = 0; i < t.n; i += 2)
            merges[i / 2] = (struct bpe_merge){t.numbers[i], t.numbers[i + 1]};
        const struct bpe_learned *v = learn(&(struct text){t.text, t.len}, 1, atoi(wanted));
        check_merges(v, merges, (int)t.n / 2);
        check_consistent(v);
        check_written(v);
    }
    ck_assert_int_eq(n, 52);
}

TEST(texts_are_not_joined)
{
    const struct text texts[] = {text_of("a"), text_of("b"), text_of("a"), text_of("b")};
    ck_assert_int_eq(learn(texts, 4, 300)->n_merges, 0);
    struct bpe_learned *v = learn(NULL, 0, 300);
    ck_assert_int_eq(v->n_merges, 0);
    bpe_learned_free(v); /* legal twice */
}
