#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

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

/* --- characters ------------------------------------------------------------------------------ */

/* The smallest code point that a sequence of this many bytes may hold. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_decode(struct text s, uint32_t *code)
{
    assert(s.len > 0);
    const unsigned char *c = (const unsigned char *)s.data;
    if (c[0] < 0x80) {
        *code = c[0];
        return 1;
    }
    *code = UNICODE_INVALID;
    const size_t len = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || s.len < len)
        return 1;
    uint32_t value = c[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 1;
        value = value << 6 | (c[i] & 0x3f);
    }
    if (value < smallest[len] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 1;
    *code = value;
    return len;
}

size_t utf8_encode(uint32_t code, char out[4])
{
    assert(code <= 0x10ffff && (code < 0xd800 || code > 0xdfff));
    size_t len = 1;
    while (len < 4 && code >= smallest[len + 1])
        len++;
    if (len == 1) {
        out[0] = (char)code;
        return 1;
    }
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xff00u >> len & 0xff) | code);
    return len;
}

/* C0, delete, C1, which start terminals' escape sequences; embeddings, overrides, isolates. */
bool utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

void utf8_strip(char *text)
{
    struct text rest = text_of(text);
    char *to = text;
    while (rest.len > 0) {
        uint32_t code;
        const struct text c = utf8_next(&rest, &code);
        if (code == UNICODE_INVALID || utf8_is_control(code)) {
            *to++ = '?';
        } else {
            memmove(to, c.data, c.len);
            to += c.len;
        }
    }
    *to = 0;
}

/* --- hashes ---------------------------------------------------------------------------------- */

static inline uint64_t sip_rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = sip_rotate(v[1], 13) ^ v[0];
    v[3] = sip_rotate(v[3], 16) ^ v[2];
    v[0] = sip_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = sip_rotate(v[1], 17) ^ v[2];
    v[3] = sip_rotate(v[3], 21) ^ v[0];
    v[2] = sip_rotate(v[2], 32);
}

static inline void sip_absorb(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
}

uint64_t siphash(const uint64_t key[2], struct text s)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t m;
    uint64_t last = (uint64_t)s.len << 56;
    for (; s.len >= 8; s.data += 8, s.len -= 8) {
        memcpy(&m, s.data, 8);
        sip_absorb(v, m);
    }
    for (size_t i = 0; i < s.len; i++)
        last |= (uint64_t)(unsigned char)s.data[i] << (8 * i);
    sip_absorb(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
