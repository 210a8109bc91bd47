#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>

/* Whether a word goes on across a place, because letters or digits stand on both sides. */
static bool goes_on(struct text t, size_t at)
{
    const unsigned char *c = (const unsigned char *)t.data + at;
    return at > 0 && at < t.len && (isalnum(c[-1]) || c[-1] >= 0x80) &&
           (isalnum(c[0]) || c[0] >= 0x80);
}

bool text_next_word(struct text text, struct text word, size_t *at)
{
    for (size_t k = *at; word.len > 0 && k + word.len <= text.len; k++) {
        if (memcmp(text.data + k, word.data, word.len) != 0 || goes_on(text, k) ||
            goes_on(text, k + word.len))
            continue;
        *at = k + word.len;
        return true;
    }
    return false;
}

struct text text_cut_line(struct text *rest)
{
    const char *newline = memchr(rest->data, '\n', rest->len);
    struct text line = text_cut(rest, newline ? (size_t)(newline - rest->data) : rest->len);
    text_cut(rest, newline != NULL);
    line.len -= text_ends_with(line, "\r");
    return line;
}

struct joined names_joined(const char *const *names, const char *last)
{
    struct joined all = {""};
    for (int i = 0; names[i]; i++)
        chars_append(all.text, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : last, names[i]);
    return all;
}

/* --- growing runs of bytes ------------------------------------------------------------------- */

#define FIRST_CAP 64

bool bytes_reserve(struct bytes *b, size_t more)
{
    if (more <= b->cap - b->len)
        return true;
    if (more > PTRDIFF_MAX / 2 - b->len)
        return false;
    size_t cap = b->cap ? b->cap : FIRST_CAP;
    while (cap - b->len < more)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data)
        return false;
    b->data = data;
    b->cap = cap;
    return true;
}

bool bytes_put(struct bytes *b, struct text more)
{
    if (!bytes_reserve(b, more.len))
        return false;
    if (more.len > 0)
        memcpy(b->data + b->len, more.data, more.len);
    b->len += more.len;
    return true;
}

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){NULL, 0, 0};
}
