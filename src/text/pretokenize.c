#include "text/pretokenize.h"

#include <strings.h>

#include "base/mem.h"
#include "text/unicode.h"

/* --- names ----------------------------------------------------------------------------------- */

static const struct pretokenizer pretokenizers[] = {
    {.names = {"gpt-2", "default", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat",
               "a.x-4.0", "mellum", "exaone4"},
     .rule = PRETOKENIZE_GPT2},
    {.names = {"starcoder", "refact", "command-r", "codeshell", "smollm", "exaone", "minerva-7b"},
     .rule = PRETOKENIZE_STARCODER},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
               "lfm2"},
     .rule = PRETOKENIZE_LLAMA3,
     .whole_pieces = true,
     .adds_bos = true},
    {.names = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, .rule = PRETOKENIZE_LLAMA3},
    {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"},
     .rule = PRETOKENIZE_QWEN2},
    {.names = {"bloom", "gpt3-finnish"}, .rule = PRETOKENIZE_BLOOM},
    {.names = {"falcon"}, .rule = PRETOKENIZE_FALCON},
};

const struct pretokenizer *pretokenizer_find(struct text name)
{
    for (int i = 0; i < LENGTH(pretokenizers); i++) {
        const struct pretokenizer *pre = &pretokenizers[i];
        for (const char *const *known = pre->names; *known; known++)
            if (text_is(name, *known))
                return pre;
    }
    return NULL;
}

/* --- characters and runs --------------------------------------------------------------------- */

/* Returns the class of the character at s[at] and its length. Where a rule cuts, these are CHAR_END
 * and 0: at the end of the text, at a number by StarCoder's rule, at punctuation by Falcon's. */
#define CHAR_END (-1)

static int class_at(enum pretokenize_rule rule, struct text s, size_t at, size_t *len)
{
    *len = 0;
    if (at >= s.len)
        return CHAR_END;
    uint32_t code;
    const size_t n = utf8_decode(text_from(s, at), &code);
    const enum char_class c = unicode_class(code);
    if ((rule == PRETOKENIZE_STARCODER && c == CHAR_NUMBER) ||
        (rule == PRETOKENIZE_FALCON && c == CHAR_PUNCTUATION))
        return CHAR_END;
    *len = n;
    return c == CHAR_PUNCTUATION ? CHAR_OTHER : c;
}

/* Returns where the run of characters of class c that starts at `at` ends; *last becomes the length
 * of its last character. */
static size_t run_end(enum pretokenize_rule rule, struct text s, size_t at, int c, size_t *last)
{
    size_t len;
    while (class_at(rule, s, at, &len) == c) {
        at += len;
        *last = len;
    }
    return at;
}

static bool is_newline(struct text s, size_t at)
{
    return s.data[at] == '\r' || s.data[at] == '\n';
}

/* Returns the length of the contraction that s starts with, or 0. */
static size_t contraction(struct text s, bool any_case)
{
    static const char *const all[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (int i = 0; i < LENGTH(all) && s.data[0] == '\''; i++) {
        const size_t n = strlen(all[i]);
        if (s.len >= n && (any_case ? strncasecmp : strncmp)(s.data, all[i], n) == 0)
            return n;
    }
    return 0;
}

/* Returns where the spaces that begin the text end. The last of several belongs to what follows. */
static size_t spaces_end(enum pretokenize_rule rule, struct text s)
{
    size_t last = 0, len;
    const size_t end = run_end(rule, s, 0, CHAR_SPACE, &last);
    return class_at(rule, s, end, &len) == CHAR_END || end == last ? end : end - last;
}

/* --- the patterns ---------------------------------------------------------------------------- */

static size_t next_of_llama3(enum pretokenize_rule rule, struct text s)
{
    size_t last = contraction(s, true);
    if (last > 0)
        return last;
    size_t len, after;
    const int first = class_at(rule, s, 0, &len);
    if (first == CHAR_NUMBER) {
        size_t end = len;
        for (int n = 1; n < (rule == PRETOKENIZE_LLAMA3 ? 3 : 1); n++, end += len)
            if (class_at(rule, s, end, &len) != CHAR_NUMBER)
                break;
        return end;
    }
    if (first == CHAR_LETTER ||
        (class_at(rule, s, len, &after) == CHAR_LETTER && !is_newline(s, 0)))
        return run_end(rule, s, len, CHAR_LETTER, &last);
    const size_t space = s.data[0] == ' ';
    size_t end = run_end(rule, s, space, CHAR_OTHER, &last);
    if (end > space) {
        while (end < s.len && is_newline(s, end))
            end++;
        return end;
    }
    /* Spaces end behind their last line break, if they have one. */
    end = run_end(rule, s, 0, CHAR_SPACE, &last);
    while (end > 0 && !is_newline(s, end - 1))
        end--;
    return end > 0 ? end : spaces_end(rule, s);
}

/* GPT-2 and StarCoder. */
static size_t next_of_gpt2(enum pretokenize_rule rule, struct text s)
{
    size_t last = contraction(s, false), len;
    if (last > 0)
        return last;
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
    return spaces_end(rule, s);
}

/* Whether there is a character at s[at] and BLOOM's pieces have it; *len becomes its length. */
static bool in_bloom(struct text s, size_t at, size_t *len)
{
    static const uint32_t outside[] = {'(',   '|',   '.',   ',',    '!',    '?',    ')',
                                       0x60c, 0x6d4, 0x964, 0x2026, 0x3001, 0x3002, 0xff0c};
    *len = 0;
    if (at >= s.len)
        return false;
    uint32_t code;
    *len = utf8_decode(text_from(s, at), &code);
    for (int i = 0; i < LENGTH(outside); i++)
        if (code == outside[i])
            return false;
    return unicode_class(code) != CHAR_SPACE;
}

static size_t next_of_bloom(struct text s)
{
    size_t len, end = s.data[0] == ' ';
    if (in_bloom(s, end, &len)) {
        while (in_bloom(s, end, &len))
            end += len;
        return end;
    }
    /* What is outside goes up to a character inside, or to the space before one. */
    size_t space = 0; /* the length of a space that ends here */
    for (end = 0; end < s.len && !in_bloom(s, end, &len); end += len)
        space = s.data[end] == ' ';
    return end < s.len ? end - space : end;
}

/* If the piece before ended within a character, this piece is of that character's class. */
static size_t next_of_falcon(struct text s, size_t at)
{
    const enum pretokenize_rule rule = PRETOKENIZE_FALCON;
    size_t begin = utf8_start(s, at), len;
    uint32_t code;
    if (s.data[at] == ' ') {
        const int second = class_at(rule, s, at + 1, &len);
        if (second == CHAR_END || second == CHAR_SPACE)
            return spaces_end(rule, text_from(s, at));
        begin = at + 1;
    }
    const int class = class_at(rule, s, begin, &len);
    if (class == CHAR_SPACE)
        return spaces_end(rule, text_from(s, at));
    /* In the byte alphabet numbers stand for themselves. */
    const bool is_number = unicode_class((unsigned char)s.data[at]) == CHAR_NUMBER;
    size_t end = at, digits = 0;
    for (size_t next = begin; next < s.len; next += len) {
        if (class_at(rule, s, next, &len) != class)
            break;
        if (class == CHAR_END) /* punctuation */
            len = utf8_decode(text_from(s, next), &code);
        for (; end < next + len; end++) {
            const unsigned char byte = s.data[end];
            if ((unicode_class(byte) == CHAR_NUMBER) != is_number)
                return end - at;
            digits = is_number && byte < 0x80 ? digits + 1 : 0;
            if (digits == 3)
                return end - 2 > at ? end - 2 - at : 3;
        }
    }
    return end - at;
}

size_t pretokenize_next(enum pretokenize_rule rule, struct text s, size_t at)
{
    assert(at < s.len && rule < PRETOKENIZE_RULES);
    const struct text rest = text_from(s, at);
    switch (rule) {
    case PRETOKENIZE_LLAMA3:
    case PRETOKENIZE_QWEN2:
        return next_of_llama3(rule, rest);
    case PRETOKENIZE_BLOOM:
        return next_of_bloom(rest);
    case PRETOKENIZE_FALCON:
        return next_of_falcon(s, at);
    default:
        return next_of_gpt2(rule, rest);
    }
}
