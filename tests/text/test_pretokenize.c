/* Compares where texts are cut before merging with the reference's cases. */
#include "cases.h"
#include "support.h"
#include "text/pretokenize.h"

static void check_pieces(enum pretokenize_rule rule, struct text s, const int *lengths, size_t n,
                         const char *what, int number)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(at < s.len, "%s %d: %zu pieces, expected %zu", what, number, i, n);
        const size_t len = pretokenize_next(rule, s, at);
        ck_assert_msg(len == (size_t)lengths[i], "%s %d: piece %zu is %zu bytes, expected %d", what,
                      number, i, len, lengths[i]);
        at += len;
    }
    ck_assert_msg(at == s.len, "%s %d: pieces end at %zu of %zu", what, number, at, s.len);
}

static enum pretokenize_rule rule_of(const char *name)
{
    static const char *const names[] = {
        [PRETOKENIZE_GPT2] = "gpt2",     [PRETOKENIZE_STARCODER] = "starcoder",
        [PRETOKENIZE_LLAMA3] = "llama3", [PRETOKENIZE_QWEN2] = "qwen2",
        [PRETOKENIZE_BLOOM] = "bloom",   [PRETOKENIZE_FALCON] = "falcon"};
    int rule = 0;
    while (strcmp(names[rule], name) != 0)
        ck_assert_int_lt(++rule, PRETOKENIZE_RULES);
    return (enum pretokenize_rule)rule;
}

/* The cases are what Python's `regex` makes of the patterns. */
TEST(reference_cases)
{
    static struct test_case t;
    char *lines = file_text("tests/data/pretokenize.txt", NULL), *rest;
    int n = 0;
    for (const char *rule; (rule = cases_line(&lines, &rest)); n++) {
        case_text(&t, strtok_r(NULL, " ", &rest));
        case_numbers(&t, &rest);
        /* The text stands in memory of its own, so that a read past the end is caught. */
        char *text = memcpy(allocated(t.len), t.text, t.len);
        check_pieces(rule_of(rule), (struct text){text, t.len}, t.numbers, t.n, "case", n);
    }
    ck_assert_int_gt(n, 800);
}

TEST(invalid_bytes_are_other_characters)
{
    static const struct {
        const char *bytes;
        int lengths[4];
    } cases[] = {{"a\xff\xfe"
                  "b",
                  {1, 2, 1}},
                 {" \xc3(", {3}},           /* a sequence cut short, and a bracket */
                 {"\xed\xa0\x80x", {3, 1}}, /* a surrogate */
                 {"\xe3\x80", {2}}};        /* U+3000 without its last byte */
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t n = 0;
        while (cases[i].lengths[n])
            n++;
        check_pieces(PRETOKENIZE_GPT2, text_of(cases[i].bytes), cases[i].lengths, n, "case",
                     (int)i);
    }
}

TEST(names)
{
    const struct pretokenizer *llama3 = pretokenizer_find(text_of("llama-bpe"));
    ck_assert_ptr_nonnull(llama3);
    ck_assert(llama3->rule == PRETOKENIZE_LLAMA3 && llama3->whole_pieces && llama3->adds_bos);
    ck_assert_int_eq(pretokenizer_find(text_of("olmo"))->rule, PRETOKENIZE_GPT2);
    ck_assert_int_eq(pretokenizer_find(text_of("stablelm2"))->rule, PRETOKENIZE_QWEN2);
    ck_assert_ptr_null(pretokenizer_find(text_of("llama")));
}

/* A run is read once or twice, not once for every piece in it. */
TEST(long_runs_take_linear_time)
{
    static const char *const units[] = {
        " ",    "\n",        "a",        "'",   "'s",   "1", " \n", "\xe3\x80\x80",
        "\x80", "\n       ", "\xd0\xbc", "...", "\xbc", ".1"};
    const size_t size = 1 << 20;
    char *text = allocated(size);
    for (size_t u = 0; u < COUNT(units); u++) {
        const size_t len = strlen(units[u]);
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % len];
        for (int rule = 0; rule < PRETOKENIZE_RULES; rule++) {
            size_t at = 0;
            while (at < size)
                at += pretokenize_next((enum pretokenize_rule)rule, text_span(text, size), at);
            ck_assert_uint_eq(at, size);
        }
    }
}
