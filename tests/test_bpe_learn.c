#include "text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cases.h"
#include "support.h"
#include "text/bpe_learn.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

static void free_learned(void *v)
{
    bpe_learned_free(v);
}

/* Freed when the test ends. */
static struct bpe_learned *learn(const struct text *texts, size_t n, int n_tokens)
{
    const struct bpe_learn_spec spec = {.n_tokens = n_tokens};
    struct bpe_learned *v = allocated(sizeof *v);
    expect_ok(bpe_learn(&spec, texts, n, v, &err));
    return released_by(free_learned, v);
}

/* --- learning as plainly as possible --------------------------------------------------------- */

/* The texts as tokens, with -1 after every word; all pairs are counted anew for every merge. */
struct plain {
    int32_t *ids;
    size_t n;
    struct bpe_merge *merges;
    int n_merges;
};

static void plain_add(struct plain *p, struct text text)
{
    while (text.len > 0) {
        const size_t len = pretokenize_next(PRETOKENIZE_GPT2, text);
        for (size_t i = 0; i < len; i++)
            p->ids[p->n++] = (unsigned char)text.data[i];
        p->ids[p->n++] = -1;
        text.data += len;
        text.len -= len;
    }
}

/* The first of the most frequent pairs in the order of ids; its count. */
static uint32_t plain_best(const struct plain *p, uint32_t *counts, struct bpe_merge *best)
{
    const size_t n = 256 + (size_t)p->n_merges;
    memset(counts, 0, n * n * sizeof *counts);
    for (size_t i = 0; i + 1 < p->n; i++)
        if (p->ids[i] >= 0 && p->ids[i + 1] >= 0)
            counts[(size_t)p->ids[i] * n + (size_t)p->ids[i + 1]]++;
    size_t top = 0;
    for (size_t i = 1; i < n * n; i++)
        if (counts[i] > counts[top])
            top = i;
    *best = (struct bpe_merge){(int32_t)(top / n), (int32_t)(top % n)};
    return counts[top];
}

static void plain_merge(struct plain *p, struct bpe_merge m)
{
    size_t to = 0;
    for (size_t from = 0; from < p->n;) {
        const bool both = from + 1 < p->n && p->ids[from] == m.left && p->ids[from + 1] == m.right;
        p->ids[to++] = both ? 256 + p->n_merges : p->ids[from];
        from += both ? 2 : 1;
    }
    p->n = to;
    p->merges[p->n_merges++] = m;
}

static struct plain plain_learn(const struct text *texts, size_t n, int n_tokens)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += texts[i].len;
    struct plain p = {.ids = allocated(2 * len * sizeof *p.ids),
                      .merges = allocated((size_t)n_tokens * sizeof *p.merges)};
    for (size_t i = 0; i < n; i++)
        plain_add(&p, texts[i]);
    uint32_t *counts = malloc((size_t)n_tokens * (size_t)n_tokens * sizeof *counts);
    struct bpe_merge best;
    while (256 + p.n_merges < n_tokens && plain_best(&p, counts, &best) > 1)
        plain_merge(&p, best);
    free(counts);
    return p;
}

/* --- checks ---------------------------------------------------------------------------------- */

/* What holds for every vocabulary. */
static void check_consistent(const struct bpe_learned *v)
{
    ck_assert_int_eq(v->n_tokens, 256 + v->n_merges);
    for (int i = 0; i < 256; i++) {
        ck_assert(v->tokens[i].len == 1 && (unsigned char)v->tokens[i].data[0] == i);
    }
    for (int i = 0; i < v->n_merges; i++) {
        const struct bpe_merge m = v->merges[i];
        const struct text token = v->tokens[256 + i];
        ck_assert(m.left >= 0 && m.left < 256 + i && m.right >= 0 && m.right < 256 + i);
        const struct text left = v->tokens[m.left], right = v->tokens[m.right];
        ck_assert(token.len == left.len + right.len &&
                  memcmp(token.data, left.data, left.len) == 0 &&
                  memcmp(token.data + left.len, right.data, right.len) == 0);
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

/* The vocabulary as a checkpoint has it. */
static struct gguf_file written(const struct bpe_learned *v)
{
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    expect_ok(bpe_learned_write(v, w, &err));
    return written_gguf(w);
}

static void free_tokenizer(void *t)
{
    tokenizer_free(t);
}

static struct tokenizer *tokenizer_of(const struct bpe_learned *v)
{
    struct gguf_file f = written(v);
    struct tokenizer *t = released_by(free_tokenizer, tokenizer_in(f.g));
    free_gguf(&f);
    ck_assert_int_eq(tokenizer_n_tokens(t), v->n_tokens);
    for (int i = 0; i < v->n_tokens; i++)
        ck_assert(text_equal(tokenizer_bytes(t, i), v->tokens[i]));
    return t;
}

/* The tokenizer cuts the text into the tokens that the plain learner was left with from `at` on;
 * gives where they end. */
static size_t check_encoding(const struct tokenizer *t, struct text text, const struct plain *p,
                             size_t at)
{
    int32_t *ids;
    size_t n, bytes = 0;
    expect_ok(tokenizer_encode(t, text, &ids, &n, &err));
    for (size_t i = 0; i < n; i++) {
        while (p->ids[at] < 0)
            at++;
        if (ids[i] != p->ids[at++])
            ck_abort_msg("id %zu is %d, learned as %d", i, ids[i], p->ids[at - 1]);
        const struct text token = tokenizer_bytes(t, ids[i]);
        ck_assert(token.len <= text.len - bytes &&
                  memcmp(token.data, text.data + bytes, token.len) == 0);
        bytes += token.len;
    }
    ck_assert_uint_eq(bytes, text.len);
    free(ids);
    return at;
}

/* Learning gives what the plain way gives, and the tokenizer what learning left. */
static void check_against_plain(const struct text *texts, size_t n, int n_tokens)
{
    const struct bpe_learned *v = learn(texts, n, n_tokens);
    const struct plain p = plain_learn(texts, n, n_tokens);
    check_merges(v, p.merges, p.n_merges);
    check_consistent(v);
    const struct tokenizer *t = tokenizer_of(v);
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at = check_encoding(t, texts[i], &p, at);
    release_all();
}

/* --- merging --------------------------------------------------------------------------------- */

static void random_text(struct rng *r, char *out, size_t n, const char *alphabet)
{
    const size_t n_letters = strlen(alphabet);
    for (size_t i = 0; i < n; i++)
        out[i] = alphabet[rng_u32(r) % n_letters];
}

/* Few letters give many ties, runs and tokens that are made in several places. */
TEST(random_texts, .loops = 20)
{
    static const char *const alphabets[] = {"a ", "ab", "ab ", "aab    ", "abc \n", "ab'st 1,"};
    char text[3000];
    struct rng r;
    rng_seed(&r, 6, (uint64_t)_i);
    for (size_t i = 0; i < COUNT(alphabets); i++) {
        const size_t len = 1 + rng_u32(&r) % (i == 0 ? 300 : sizeof text - 1);
        random_text(&r, text, len, alphabets[i]);
        check_against_plain(&(struct text){text, len}, 1, 256 + 120);
    }
}

/* Merges of these scan the whole word in a learner that looks at words rather than places. */
TEST(a_word_of_a_megabyte)
{
    enum { LEN = 1 << 20 };
    char *text = malloc(LEN);
    struct rng r;
    rng_seed(&r, 3, 4);
    random_text(&r, text, LEN, "abcdefghijklmnopqrst");
    const struct text whole = {text, LEN};
    struct bpe_learned *v = learn(&whole, 1, 256 + 8000);
    check_consistent(v);
    ck_assert_int_eq(v->n_merges, 8000);
    v->n_merges = 24;
    check_merges(v, plain_learn(&whole, 1, 256 + 24).merges, 24);

    memset(text, 'a', LEN);
    check_against_plain(&whole, 1, 256 + 60);
    for (int i = 0; i < LEN; i++)
        text[i] = (char)('a' + i % 26);
    check_against_plain(&whole, 1, 256 + 60);
    free(text);
}

/* Made by a Python program that shares nothing with this one. */
TEST(reference_cases)
{
    static struct test_case t;
    static struct bpe_merge merges[CASE_MAX / 2];
    struct cases c;
    cases_open(&c, "tests/data/bpe-learn.txt");
    char *rest;
    int n = 0;
    for (const char *wanted; (wanted = cases_line(&c, &rest)); n++) {
        case_text(&t, strtok_r(NULL, " ", &rest));
        case_numbers(&t, &rest);
        for (size_t i = 0; i < t.n; i += 2)
            merges[i / 2] = (struct bpe_merge){t.numbers[i], t.numbers[i + 1]};
        check_merges(learn(&(struct text){t.text, t.len}, 1, atoi(wanted)), merges, (int)t.n / 2);
    }
    ck_assert_int_eq(n, 3);
}

TEST(texts_are_not_joined)
{
    const struct text texts[] = {text_of("a"), text_of("b"), text_of("a"), text_of("b")};
    ck_assert_int_eq(learn(texts, 4, 300)->n_merges, 0);
    struct bpe_learned *v = learn(NULL, 0, 300);
    ck_assert(v->n_tokens == 256 && v->n_merges == 0);
    bpe_learned_free(v); /* legal twice */
}
