#include "text/tokenizer.h"

#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "text/bpe.h"
#include "text/lacking.h"
#include "text/pretokenize.h"
#include "text/specials.h"
#include "text/spm.h"
#include "text/vocab.h"

struct encoding;

/* What a value of tokenizer.ggml.model says. */
struct kind {
    const char *model;
    enum vocab_notation notation;
    int bos, eos; /* unless the file says; -1: none */
    bool adds_bos;
    /* Reads what the kind has of its own. */
    enum status (*init)(struct tokenizer *t, const struct gguf *g, struct err *e);
    /* Appends the tokens of text[from..to), not empty, without special tokens. */
    enum status (*encode)(struct encoding *c, size_t from, size_t to, struct err *e);
};

struct tokenizer {
    const struct kind *kind;
    struct vocab vocab;
    struct specials specials;
    struct bpe bpe;
    const struct pretokenizer *pre; /* of bpe */
    struct spm spm;
    bool adds_space; /* of spm */
    int bos, eos;    /* -1: none */
    bool adds_bos;
    struct err unread; /* why no text can be encoded; "" */
};

struct encoding {
    const struct tokenizer *t;
    struct text text;
    struct merge_scratch bpe;
    struct spm_scratch spm;
    struct id_list list;
};

/* --- byte-level BPE -------------------------------------------------------------------------- */

/* The pre-tokenizer; NULL, and why, if it is not known. */
static enum status read_pre(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct text pre = text_of("default");
    bool found;
    TRY(gguf_get_text(g, "tokenizer.ggml.pre", &pre, &found, e));
    t->pre = pretokenizer_find(pre);
    if (t->pre)
        return STATUS_OK;
    char names[sizeof t->unread.text];
    pretokenizer_names(names, sizeof names);
    err_format(&t->unread, "tokenizer.ggml.pre: found \"%.*s\", expected one of %s",
               pre.len < 60 ? (int)pre.len : 60, pre.data, names);
    return STATUS_OK;
}

static enum status init_bpe(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    TRY(read_pre(t, g, e));
    TRY(bpe_init(&t->bpe, &t->vocab, g, e));
    t->adds_bos = t->pre && t->pre->adds_bos;
    if (!t->pre || !t->pre->whole_pieces)
        vocab_end_finding(&t->vocab);
    return STATUS_OK;
}

/* Whether there is a token for each byte of text[from..to), whole characters. */
static enum status check_bytes(const struct encoding *c, size_t from, size_t to, struct err *e)
{
    struct text rest = {c->text.data + from, to - from};
    while (rest.len > 0) {
        uint32_t code;
        const struct text one = utf8_next(&rest, &code);
        for (size_t i = 0; i < one.len; i++)
            if (c->t->bpe.byte_id[(unsigned char)one.data[i]] < 0)
                return lacks_token(c->text, (size_t)(one.data - c->text.data), e);
    }
    return STATUS_OK;
}

static enum status encode_bpe(struct encoding *c, size_t from, size_t to, struct err *e)
{
    const struct tokenizer *t = c->t;
    for (size_t next; from < to; from = next) {
        struct text piece = {c->text.data + from, to - from};
        piece.len = pretokenize_next(t->pre->rule, piece);
        next = from + piece.len;
        int twin;
        const int whole = t->pre->whole_pieces ? vocab_find(&t->vocab, piece, &twin) : -1;
        if (whole >= 0) {
            TRY(id_list_add(&c->list, whole, e));
            continue;
        }
        if (t->bpe.lacks_bytes)
            TRY(check_bytes(c, from, next, e));
        TRY(bpe_encode(&t->bpe, &c->bpe, piece, &c->list, e));
    }
    return STATUS_OK;
}

/* --- SentencePiece --------------------------------------------------------------------------- */

static enum status init_spm(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    bool found;
    t->adds_space = true;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->adds_space, &found, e));
    TRY(spm_init(&t->spm, &t->vocab, g, e));
    vocab_end_finding(&t->vocab);
    return STATUS_OK;
}

static enum status encode_spm(struct encoding *c, size_t from, size_t to, struct err *e)
{
    return spm_encode(&c->t->spm, &c->spm, c->text, from, to, c->t->adds_space, &c->list, e);
}

/* --- all kinds ------------------------------------------------------------------------------- */

static const struct kind kinds[] = {
    {"gpt2", VOCAB_BYTES, -1, -1, false, init_bpe, encode_bpe},
    {"llama", VOCAB_SPACES, 1, 2, true, init_spm, encode_spm},
};
static const struct kind unknown_kind = {NULL, VOCAB_RAW, -1, -1, false, NULL, NULL};

static enum status read_kind(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct text model;
    TRY(gguf_get_text(g, "tokenizer.ggml.model", &model, NULL, e));
    t->kind = &unknown_kind;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (text_is(model, kinds[i].model))
            t->kind = &kinds[i];
    if (t->kind == &unknown_kind)
        err_format(&t->unread,
                   "tokenizer.ggml.model: expected \"gpt2\" or \"llama\", found \"%.*s\"",
                   text_width(model), model.data);
    t->adds_bos = t->kind->adds_bos;
    return STATUS_OK;
}

/* What an id that says "none" is in 32 bits. */
#define NO_ID UINT32_MAX

static enum status read_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                           int otherwise, int *id, struct err *e)
{
    uint64_t value;
    bool found;
    const int n = t->vocab.n;
    TRY(gguf_get_u64(g, key, 0, NO_ID, &value, &found, e));
    *id = found ? -1 : otherwise < n ? otherwise : -1;
    if (!found || value == NO_ID || n == 0)
        return STATUS_OK;
    *id = (int)value;
    return gguf_get_u64(g, key, 0, (uint64_t)n - 1, &value, &found, e);
}

static enum status read_special_ids(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", t->kind->bos, &t->bos, e));
    TRY(read_id(t, g, "tokenizer.ggml.eos_token_id", t->kind->eos, &t->eos, e));
    bool found;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, &found, e));
    if (found && t->adds_bos && t->bos < 0)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.bos_token_id: expected an id, because add_bos_token is "
                       "true, found none");
    t->adds_bos = t->adds_bos && t->bos >= 0;
    return STATUS_OK;
}

static enum status read_all(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    TRY(read_kind(t, g, e));
    TRY(vocab_init(&t->vocab, t->kind->notation, g, e));
    if (t->kind->init)
        TRY(t->kind->init(t, g, e));
    if (t->kind->init)
        TRY(specials_init(&t->specials, &t->vocab, e));
    return read_special_ids(t, g, e);
}

enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_no_memory(e, "tokenizer", sizeof *t);
    const enum status s = read_all(t, g, e);
    if (s != STATUS_OK)
        tokenizer_free(t);
    else
        *out = t;
    return s;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->vocab);
    bpe_free(&t->bpe);
    spm_free(&t->spm);
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
    assert(id >= 0);
    return id < t->vocab.n &&
           (t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_UNKNOWN);
}

enum status tokenizer_reads_text(const struct tokenizer *t, struct err *e)
{
    return t->unread.text[0] ? err_set(e, STATUS_BAD_FILE, "%s", t->unread.text) : STATUS_OK;
}

struct text tokenizer_bytes(const struct tokenizer *t, int id)
{
    assert(id >= 0);
    return id < t->vocab.n ? vocab_bytes(&t->vocab, id) : text_of("");
}

size_t tokenizer_added(const struct tokenizer *t, struct text text)
{
    return t->adds_space && text.len > 0 && text.data[0] == ' ';
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 0;
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        const size_t len = tokenizer_bytes(t, id).len;
        longest = len > longest ? len : longest;
    }
    const bool marks = t->kind->notation == VOCAB_SPACES; /* a text may have them, too */
    return marks ? longest * (sizeof VOCAB_SPACE - 1) : longest;
}

/* --- encoding -------------------------------------------------------------------------------- */

static enum status encode_plain(struct encoding *c, size_t from, size_t to, struct err *e)
{
    return from < to ? c->t->kind->encode(c, from, to, e) : STATUS_OK;
}

static enum status encode_all(struct encoding *c, const struct special_match *matches, size_t n,
                              struct err *e)
{
    size_t at = 0;
    while (n-- > 0) { /* the last match is the first in the text */
        const struct special_match *m = &matches[n];
        if (m->at < at)
            continue;
        TRY(encode_plain(c, at, m->at, e));
        TRY(id_list_add(&c->list, m->id, e));
        at = m->at + tokenizer_bytes(c->t, m->id).len;
    }
    return encode_plain(c, at, c->text.len, e);
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
    if (text.len > 0)
        TRY(tokenizer_reads_text(t, e));
    TRY(specials_find(&t->specials, text, &matches, &n_matches, e));
    enum status s = encode_all(&c, matches, n_matches, e);
    free(matches);
    merge_scratch_free(&c.bpe);
    spm_scratch_free(&c.spm);
    if (s == STATUS_OK)
        s = id_list_finish(&c.list, e);
    if (s != STATUS_OK) {
        free(c.list.ids);
        return s;
    }
    *ids = c.list.ids;
    *n = c.list.len;
    return STATUS_OK;
}
