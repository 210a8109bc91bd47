#include "text/spm.h"

#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "text/lacking.h"
#include "text/spm_char.h"

void spm_free(struct spm *s)
{
    free(s->chars);
    merging_free(&s->merging);
    *s = (struct spm){.n_tokens = 0};
}

void spm_scratch_free(struct spm_scratch *k)
{
    bytes_free(&k->marked);
    merge_scratch_free(&k->merge);
}

/* --- from text to symbols -------------------------------------------------------------------- */

#define SPACE_LEN (sizeof VOCAB_SPACE - 1)

/* The text with its spaces as vocabularies write them, and one before it if `adds_space`. */
static enum status mark_spaces(struct bytes *out, struct text text, bool adds_space, struct err *e)
{
    size_t need = text.len + SPACE_LEN;
    for (size_t i = 0; i < text.len; i++)
        need += text.data[i] == ' ' ? SPACE_LEN - 1 : 0;
    out->len = 0;
    if (!bytes_reserve(out, need))
        return err_no_memory(e, "tokenizing", need);
    char *to = out->data;
    if (adds_space)
        to = (char *)memcpy(to, VOCAB_SPACE, SPACE_LEN) + SPACE_LEN;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == ' ')
            to = (char *)memcpy(to, VOCAB_SPACE, SPACE_LEN) + SPACE_LEN;
        else
            *to++ = text.data[i];
    }
    out->len = (size_t)(to - out->data);
    return STATUS_OK;
}

static int32_t symbol_of(const struct spm *s, struct text c)
{
    const uint64_t key = spm_char_key(c);
    const unsigned char byte = (unsigned char)c.data[0];
    uint32_t low = s->first[byte], high = s->first[byte + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->chars[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->first[byte + 1] && s->chars[low].key == key ? s->chars[low].symbol
                                                                : s->merging.n_symbols - 1;
}

/* Cuts off what merges by itself: all, or up to a space behind another character. *n are its
 * characters. */
static struct text next_run(const struct spm *s, struct text *rest, size_t *n)
{
    struct text run = *rest;
    bool after_space = true;
    for (*n = 0; rest->len > 0; ++*n) {
        const bool space = text_is(spm_char_at(*rest), VOCAB_SPACE);
        if (s->cuts && space && !after_space)
            break;
        (void)spm_next_char(rest);
        after_space = space;
    }
    run.len -= rest->len;
    return run;
}

/* --- from symbols to tokens ------------------------------------------------------------------ */

/* A piece of text being encoded. */
struct piece {
    struct text text;
    size_t from;
    bool adds_space;
};

/* The byte of the text that byte `at` of the marked one is, or is part of. */
static size_t unmarked(const struct piece *p, size_t at)
{
    size_t marked = p->adds_space ? SPACE_LEN : 0;
    for (size_t i = p->from;; i++) {
        marked += p->text.data[i] == ' ' ? SPACE_LEN : 1;
        if (at < marked)
            return i;
    }
}

/* Says that there is no token for byte `bad` of a character at `at` of the marked text. */
static enum status lacks_char(const struct piece *p, size_t at, size_t bad, struct err *e)
{
    if (p->adds_space && at < SPACE_LEN)
        return err_set(e, STATUS_USAGE,
                       "the vocabulary has no token for the space that tokenizer.ggml."
                       "add_space_prefix puts before every text");
    size_t i = unmarked(p, at);
    uint32_t code;
    (void)utf8_decode((struct text){p->text.data + i, p->text.len - i}, &code);
    if (code == UNICODE_INVALID)
        i = unmarked(p, at + bad);
    return lacks_token(p->text, i, e);
}

static enum status add_bytes(const struct spm *s, const struct piece *p, struct text c, size_t at,
                             struct id_list *out, struct err *e)
{
    for (size_t i = 0; i < c.len; i++) {
        const int32_t id = s->byte_id[(unsigned char)c.data[i]];
        if (id < 0)
            return lacks_char(p, at, i, e);
        TRY(id_list_add(out, id, e));
    }
    return STATUS_OK;
}

static enum status encode_run(const struct spm *s, struct spm_scratch *k, struct text run, size_t n,
                              const struct piece *p, struct id_list *out, struct err *e)
{
    TRY(merge_reserve(&k->merge, n, e));
    int32_t *spans = k->merge.spans;
    struct text rest = run;
    for (size_t i = 0; i < n; i++)
        spans[i] = symbol_of(s, spm_next_char(&rest));
    merge_run(&s->merging, &k->merge, n);
    rest = run;
    for (size_t i = 0, end; i < n; i = end) {
        const struct text c = spm_next_char(&rest);
        end = merge_end(spans, n, i);
        for (size_t more = i + 1; more < end; more++)
            (void)spm_next_char(&rest);
        if (spans[i] < s->n_tokens)
            TRY(id_list_add(out, spans[i], e));
        else
            TRY(add_bytes(s, p, c, (size_t)(c.data - k->marked.data), out, e));
    }
    return STATUS_OK;
}

enum status spm_encode(const struct spm *s, struct spm_scratch *k, struct text text, size_t from,
                       size_t to, bool adds_space, struct id_list *out, struct err *e)
{
    assert(from < to && to <= text.len);
    const struct piece p = {text, from, adds_space};
    TRY(mark_spaces(&k->marked, (struct text){text.data + from, to - from}, adds_space, e));
    struct text rest = bytes_text(&k->marked);
    while (rest.len > 0) {
        size_t n;
        const struct text run = next_run(s, &rest, &n);
        TRY(encode_run(s, k, run, n, &p, out, e));
    }
    return STATUS_OK;
}
