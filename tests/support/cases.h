/*
 * cases - files of expected results, one case a line: words, one of them a text in
 * hexadecimal ("-": empty), then numbers. Lines that start with # are comments.
 */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <stdlib.h>
#include <string.h>

#include "support.h"

/* The longest text and the most numbers of a case. */
#define CASE_MAX 8192

struct test_case {
    char text[CASE_MAX];
    size_t len;
    int numbers[CASE_MAX];
    size_t n;
};

/* The first word of the next line that is no comment; NULL at the end. *rest is strtok_r's state.
 */
static inline char *cases_line(char **lines, char **rest)
{
    char *row = next_row(lines);
    return row ? strtok_r(row, " ", rest) : NULL;
}

static inline void case_text(struct test_case *to, const char *hex)
{
    to->len = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    ck_assert_uint_le(to->len, CASE_MAX);
    for (size_t i = 0; i < to->len; i++) {
        const char digits[] = {hex[2 * i], hex[2 * i + 1], 0};
        to->text[i] = (char)strtol(digits, NULL, 16);
    }
}

static inline void case_numbers(struct test_case *to, char **rest)
{
    to->n = 0;
    for (const char *word; (word = strtok_r(NULL, " ", rest)); to->n++) {
        ck_assert_uint_lt(to->n, CASE_MAX);
        to->numbers[to->n] = atoi(word);
    }
}

#endif
