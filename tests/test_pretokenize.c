#include "cases.h"
#include "support.h"
#include "text/pretokenize.h"

static void check_pieces(enum pretokenize_rule rule, struct text s, const int *lengths, size_t n,
                         const char *place, int line)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(at < s.len, "%s line %d: %zu pieces, expected %zu", place, line, i, n);
        const size_t len = pretokenize_next(rule, (struct text){s.data + at, s.len - at});
        ck_assert_msg(len == (size_t)lengths[i], "%s line %d: piece %zu is %zu bytes, expected %d",
                      place, line, i, len, lengths[i]);
        at += len;
    }
    ck_assert_msg(at == s.len, "%s line %d: pieces end at %zu of %zu", place, line, at, s.len);
}

/* What Python's `regex` makes of GPT-2's pattern. */
START_TEST(test_reference_cases)
{
    static struct test_case t;
    struct cases c;
    cases_open(&c, "tests/data/pretokenize.txt");
    char *rest;
    int n = 0;
    for (const char *rule; (rule = cases_line(&c, &rest)); n++) {
        case_text(&t, strtok_r(NULL, " ", &rest));
        case_numbers(&t, &rest);
        /* In memory of its own, so that a read past the end is caught. */
        char *text = malloc(t.len ? t.len : 1);
        ck_assert_ptr_nonnull(text);
        memcpy(text, t.text, t.len);
        const bool starcoder = strcmp(rule, "starcoder") == 0;
        check_pieces(starcoder ? PRETOKENIZE_STARCODER : PRETOKENIZE_GPT2,
                     (struct text){text, t.len}, t.numbers, t.n, "pretokenize.txt", c.line);
        free(text);
    }
    ck_assert_int_gt(n, 400);
}
END_TEST

#define CHECK(rule, string, ...)                                                                   \
    do {                                                                                           \
        const int lengths[] = {__VA_ARGS__};                                                       \
        check_pieces(rule, (struct text){string, sizeof string - 1}, lengths,                      \
                     sizeof lengths / sizeof lengths[0], "here", __LINE__);                        \
    } while (0)

START_TEST(test_spaces_leave_one_to_the_word)
{
    CHECK(PRETOKENIZE_GPT2, "a   b", 1, 2, 2);
    CHECK(PRETOKENIZE_GPT2, "a \n b", 1, 2, 2);
    CHECK(PRETOKENIZE_GPT2, "a\n\nb", 1, 1, 1, 1); /* only U+0020 joins a word */
    CHECK(PRETOKENIZE_GPT2, "a   ", 1, 3);
    CHECK(PRETOKENIZE_GPT2, "a\xc2\xa0\xc2\xa0\x62", 1, 2, 2, 1);
}
END_TEST

START_TEST(test_contractions_are_lowercase_and_first)
{
    CHECK(PRETOKENIZE_GPT2, "we'll", 2, 3);
    CHECK(PRETOKENIZE_GPT2, "WE'LL", 2, 1, 2);
    CHECK(PRETOKENIZE_GPT2, "'rex", 3, 1);
    CHECK(PRETOKENIZE_GPT2, " 's", 2, 1);
    CHECK(PRETOKENIZE_GPT2, "''s", 2, 1); /* the run of quotes is longer than 's is early */
}
END_TEST

START_TEST(test_invalid_bytes_are_other_characters)
{
    CHECK(PRETOKENIZE_GPT2,
          "a\xff\xfe"
          "b",
          1, 2, 1);
    CHECK(PRETOKENIZE_GPT2, " \xc3(", 3);           /* a sequence cut short, and a bracket */
    CHECK(PRETOKENIZE_GPT2, "\xed\xa0\x80x", 3, 1); /* a surrogate */
    CHECK(PRETOKENIZE_GPT2, "\xe3\x80", 2);         /* U+3000 without its last byte */
}
END_TEST

START_TEST(test_starcoder_digits_stand_alone)
{
    CHECK(PRETOKENIZE_STARCODER, "ab 123", 2, 1, 1, 1, 1);
    CHECK(PRETOKENIZE_STARCODER, "a  1", 1, 2, 1); /* the text before a digit ends there */
    CHECK(PRETOKENIZE_STARCODER, "\xe2\x85\xa0\xd9\xa1x", 3, 2, 1);
    CHECK(PRETOKENIZE_STARCODER, "'s1", 2, 1);
}
END_TEST

/* Every run is read once or twice, not once for every piece in it. */
START_TEST(test_long_runs_take_linear_time)
{
    static const char *const units[] = {" ", "\n", "a", "'", "'s", "1", "\xe3\x80\x80", "\x80"};
    const size_t size = 6 << 20;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const size_t len = strlen(units[u]);
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % len];
        for (int rule = PRETOKENIZE_GPT2; rule <= PRETOKENIZE_STARCODER; rule++) {
            size_t at = 0;
            while (at < size)
                at += pretokenize_next((enum pretokenize_rule)rule,
                                       (struct text){text + at, size - at});
            ck_assert_uint_eq(at, size);
        }
    }
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pretokenize");
    TCase *t = tcase_create("pieces");
    tcase_add_test(t, test_reference_cases);
    tcase_add_test(t, test_spaces_leave_one_to_the_word);
    tcase_add_test(t, test_contractions_are_lowercase_and_first);
    tcase_add_test(t, test_invalid_bytes_are_other_characters);
    tcase_add_test(t, test_starcoder_digits_stand_alone);
    tcase_add_test(t, test_long_runs_take_linear_time);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return run_suite(s);
}
