/*
 * plain_tokens - encoding by a plain version that looks at everything every time: the special
 * tokens first, the longest at each place, then what is between them.
 */
#ifndef TESTS_FUZZ_PLAIN_TOKENS_H
#define TESTS_FUZZ_PLAIN_TOKENS_H

#include "../gguf_bytes.h"
#include "target.h"
#include "text/tokenizer.h"

#define PLAIN_TOKENS 304
#define PLAIN_TEXT   4096

struct plain_ids {
    int32_t id[PLAIN_TEXT];
    size_t n;
};

struct plain {
    struct text name[PLAIN_TOKENS];
    bool special[PLAIN_TOKENS];
    int n;
    /* Encodes what has no special token in it; false if it cannot. */
    bool (*encode)(const struct plain *p, struct text between, struct plain_ids *out);
};

static inline int longest_special(const struct plain *p, struct text s)
{
    int best = -1;
    for (int id = 0; id < p->n; id++) {
        const struct text name = p->name[id];
        if (p->special[id] && name.len <= s.len && memcmp(name.data, s.data, name.len) == 0 &&
            (best < 0 || name.len > p->name[best].len))
            best = id;
    }
    return best;
}

static inline bool encode_plainly(const struct plain *p, struct text s, struct plain_ids *out)
{
    out->n = 0;
    while (s.len > 0) {
        const int special = longest_special(p, s);
        struct text between = {s.data, 0};
        if (special >= 0) {
            out->id[out->n++] = special;
            text_cut(&s, p->name[special].len);
            continue;
        }
        while (s.len > 0 && longest_special(p, s) < 0)
            between.len += text_cut(&s, 1).len;
        if (!p->encode(p, between, out))
            return false;
    }
    return true;
}

/* What was made of the keys in b, which are freed; NULL if they were refused. */
static inline struct tokenizer *tokenizer_of(struct gguf_bytes *b)
{
    struct gguf *g;
    struct tokenizer *t;
    struct err e = {{0}};
    require(gguf_parse(b->data, b->len, &g, NULL) == STATUS_OK);
    const enum status s = tokenizer_create(g, &t, &e);
    if (s != STATUS_OK) {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!t);
    }
    gguf_free(g);
    free(b->data);
    return t;
}

/* Both versions give the same ids, or none. */
static inline void check_plainly(const struct plain *p, const struct tokenizer *t, struct text s)
{
    static struct plain_ids plain;
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    const enum status status = tokenizer_encode(t, s, &ids, &n, &e);
    if (encode_plainly(p, s, &plain)) {
        require(status == STATUS_OK && n == plain.n);
        require(n == 0 || memcmp(ids, plain.id, n * sizeof *ids) == 0);
    } else {
        require_refused(status, STATUS_USAGE, &e);
        require(!ids);
    }
    free(ids);
}

#endif
