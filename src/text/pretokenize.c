#include "text/pretokenize.h"

#include <assert.h>

#include "text/unicode.h"

/* The class of the character at s[at] and its length; CHAR_END and 0 at the end of the text,
 * which is also what StarCoder's rule makes of a number. */
#define CHAR_END (-1)

static int class_at(enum pretokenize_rule rule, struct text s, size_t at, size_t *len)
{
    *len = 0;
    if (at >= s.len)
        return CHAR_END;
    uint32_t code;
    const size_t n = utf8_decode((struct text){s.data + at, s.len - at}, &code);
    const enum char_class c = unicode_class(code);
    if (rule == PRETOKENIZE_STARCODER && c == CHAR_NUMBER)
        return CHAR_END;
    *len = n;
    return (int)c;
}

/* Where the run of characters of class c that starts at `at` ends; *last is the length of its
 * last character. */
static size_t run_end(enum pretokenize_rule rule, struct text s, size_t at, int c, size_t *last)
{
    size_t len;
    while (class_at(rule, s, at, &len) == c) {
        at += len;
        *last = len;
    }
    return at;
}

/* The length of 's, 't, 're, 've, 'm, 'll or 'd at the start of s, or 0. */
static size_t contraction(struct text s)
{
    if (s.len < 2 || s.data[0] != '\'')
        return 0;
    switch (s.data[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return s.len > 2 && s.data[2] == 'e' ? 3 : 0;
    case 'l':
        return s.len > 2 && s.data[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

size_t pretokenize_next(enum pretokenize_rule rule, struct text s)
{
    assert(s.len > 0 && (rule == PRETOKENIZE_GPT2 || rule == PRETOKENIZE_STARCODER));
    size_t last = contraction(s);
    if (last > 0)
        return last;

    size_t len;
    const int first = class_at(rule, s, 0, &len);
    if (first == CHAR_END) {
        uint32_t code; /* the text is not empty: StarCoder's single number */
        return utf8_decode(s, &code);
    }
    if (first != CHAR_SPACE)
        return run_end(rule, s, len, first, &last);
    if (s.data[0] == ' ') {
        const int second = class_at(rule, s, 1, &len);
        if (second != CHAR_END && second != CHAR_SPACE)
            return run_end(rule, s, 1, second, &last);
    }

    /* A run of spaces leaves its last one to what follows, unless it is the only one. */
    const size_t end = run_end(rule, s, 0, CHAR_SPACE, &last);
    return class_at(rule, s, end, &len) == CHAR_END || end == last ? end : end - last;
}
