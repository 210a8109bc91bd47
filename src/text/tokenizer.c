#include "text/tokenizer.h"

#include <assert.h>
#include <stdlib.h>

#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/specials.h"
#include "text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;
    struct specials specials;
    enum pretokenize_rule rule;
    int bos, eos; /* -1: none */
    bool adds_bos;
};

/* --- reading the file ------------------------------------------------------------------------ */

/* Names in tokenizer.ggml.pre of vocabularies that cut as StarCoder's does. */
static const char starcoder_names[][12] = {"starcoder", "refact", "command-r", "codeshell",
                                           "smollm"};

static enum status read_rule(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct text model;
    enum status s = gguf_get_text(g, "tokenizer.ggml.model", &model, NULL, e);
    if (s != STATUS_OK)
        return s;
    if (!text_is(model, "gpt2"))
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.model: expected \"gpt2\", found \"%.*s\"", text_width(model),
                       model.data);

    struct text pre;
    bool found;
    s = gguf_get_text(g, "tokenizer.ggml.pre", &pre, &found, e);
    if (s != STATUS_OK)
        return s;
    t->rule = PRETOKENIZE_GPT2;
    if (!found || text_is(pre, "gpt-2") || text_is(pre, "default"))
        return STATUS_OK;
    t->rule = PRETOKENIZE_STARCODER;
    for (size_t i = 0; i < sizeof starcoder_names / sizeof starcoder_names[0]; i++)
        if (text_is(pre, starcoder_names[i]))
            return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE,
                   "tokenizer.ggml.pre: expected \"gpt-2\", \"default\", \"starcoder\", "
                   "\"refact\", \"command-r\", \"codeshell\" or \"smollm\", found \"%.*s\"",
                   text_width(pre), pre.data);
}

static enum status read_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                           int *id, struct err *e)
{
    uint64_t value;
    bool found;
    const enum status s = gguf_get_u64(g, key, 0, (uint64_t)t->vocab.n - 1, &value, &found, e);
    if (s == STATUS_OK)
        *id = found ? (int)value : -1;
    return s;
}

static enum status read_special_ids(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    enum status s = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e);
    if (s == STATUS_OK)
        s = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, e);
    if (s != STATUS_OK)
        return s;
    bool found;
    s = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, &found, e);
    if (s == STATUS_OK && t->adds_bos && t->bos < 0)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.bos_token_id: expected an id, because add_bos_token is "
                       "true, found none");
    return s;
}

enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_no_memory(e, "tokenizer", sizeof *t);
    enum status s = read_rule(t, g, e);
    if (s == STATUS_OK)
        s = vocab_init(&t->vocab, g, e);
    if (s == STATUS_OK)
        s = bpe_init(&t->bpe, &t->vocab, g, e);
    vocab_end_finding(&t->vocab);
    if (s == STATUS_OK)
        s = specials_init(&t->specials, &t->vocab, e);
    if (s == STATUS_OK)
        s = read_special_ids(t, g, e);
    if (s != STATUS_OK) {
        tokenizer_free(t);
        return s;
    }
    *out = t;
    return STATUS_OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->vocab);
    bpe_free(&t->bpe);
    specials_free(&t->specials);
    free(t);
}

/* --- asking ---------------------------------------------------------------------------------- */

int tokenizer_n_tokens(const struct tokenizer *t)
{
    return t->vocab.n;
}

int tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

bool tokenizer_is_special(const struct tokenizer *t, int id)
{
    assert(id >= 0 && id < t->vocab.n);
    return t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_UNKNOWN;
}

struct text tokenizer_bytes(const struct tokenizer *t, int id)
{
    return vocab_bytes(&t->vocab, id);
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 0;
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        const size_t len = tokenizer_bytes(t, id).len;
        longest = len > longest ? len : longest;
    }
    return longest;
}

/* --- encoding -------------------------------------------------------------------------------- */

struct encoding {
    const struct tokenizer *t;
    struct text text;
    struct bpe_scratch scratch;
    struct id_list list;
};

static enum status check_bytes(const struct encoding *c, size_t from, size_t to, struct err *e)
{
    for (size_t i = from; i < to; i++) {
        const unsigned char byte = (unsigned char)c->text.data[i];
        if (c->t->bpe.byte_id[byte] < 0)
            return err_set(e, STATUS_USAGE,
                           "the text has byte 0x%02X at offset %zu, for which the vocabulary has "
                           "no token",
                           (unsigned)byte, i);
    }
    return STATUS_OK;
}

/* Text without special tokens. */
static enum status encode_plain(struct encoding *c, size_t from, size_t to, struct err *e)
{
    enum status s = STATUS_OK;
    if (c->t->bpe.lacks_bytes)
        s = check_bytes(c, from, to, e);
    while (s == STATUS_OK && from < to) {
        struct text piece = {c->text.data + from, to - from};
        piece.len = pretokenize_next(c->t->rule, piece);
        s = bpe_encode(&c->t->bpe, &c->scratch, piece, &c->list, e);
        from += piece.len;
    }
    return s;
}

static enum status encode_all(struct encoding *c, const struct special_match *matches, size_t n,
                              struct err *e)
{
    size_t at = 0;
    while (n-- > 0) { /* the last match is the first in the text */
        const struct special_match *m = &matches[n];
        if (m->at < at)
            continue;
        enum status s = encode_plain(c, at, m->at, e);
        if (s == STATUS_OK)
            s = id_list_add(&c->list, m->id, e);
        if (s != STATUS_OK)
            return s;
        at = m->at + tokenizer_bytes(c->t, m->id).len;
    }
    return encode_plain(c, at, c->text.len, e);
}

/* Shrinks the list to what it has; an empty one has memory too. */
static enum status finish_list(struct id_list *list, struct err *e)
{
    const size_t bytes = (list->len > 0 ? list->len : 1) * sizeof *list->ids;
    int32_t *ids = realloc(list->ids, bytes);
    if (ids)
        list->ids = ids;
    else if (!list->ids)
        return err_no_memory(e, "token ids", bytes);
    return STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *t, struct text text, int32_t **ids, size_t *n,
                             struct err *e)
{
    assert(text.data || text.len == 0);
    *ids = NULL;
    *n = 0;
    struct encoding c = {.t = t, .text = text};
    struct special_match *matches;
    size_t n_matches;
    TRY(specials_find(&t->specials, text, &matches, &n_matches, e));
    enum status s = encode_all(&c, matches, n_matches, e);
    free(matches);
    bpe_scratch_free(&c.scratch);
    if (s == STATUS_OK)
        s = finish_list(&c.list, e);
    if (s != STATUS_OK) {
        free(c.list.ids);
        return s;
    }
    *ids = c.list.ids;
    *n = c.list.len;
    return STATUS_OK;
}
