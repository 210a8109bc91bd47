/*
 * Byte-pair encoding by scores: reading what merges, then encoding.
 *
 * A token is made of two others, or of a character and another, wherever it can be cut into the
 * two. All cuts are found in time linear in the tokens' bytes, however they are chosen: sorted,
 * each spelling follows those that it starts with, of which the longest is found from that of the
 * one before; read backwards, likewise those that it ends with.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "text/bpe.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define SCORES_KEY "tokenizer.ggml.scores"

/* --- characters ------------------------------------------------------------------------------ */

#define CHAR_MAX_LEN 4 /* bytes */

/* A character that has a symbol. */
struct spm_char {
    uint64_t key; /* its bytes, then how many they are: in the order of the bytes */
    int32_t symbol;
};

static struct text char_at(struct text s)
{
    const unsigned char first = (unsigned char)*s.data;
    const size_t len = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : CHAR_MAX_LEN;
    return (struct text){s.data, len < s.len ? len : s.len};
}

struct text spm_next_char(struct text *rest)
{
    return text_cut(rest, char_at(*rest).len);
}

static uint64_t char_key(struct text c)
{
    assert(c.len > 0 && c.len <= CHAR_MAX_LEN);
    uint64_t key = 0;
    for (size_t i = 0; i < CHAR_MAX_LEN; i++)
        key = key << 8 | (i < c.len ? (unsigned char)c.data[i] : 0);
    return key << 8 | c.len;
}

/* Cuts off a text, its spaces marked, what merges by itself: all, or with `cuts` up to a space
 * behind another character. *n are its characters. */
static struct text next_run(bool cuts, struct text *rest, size_t *n)
{
    struct text run = *rest;
    bool after_space = true;
    for (*n = 0; rest->len > 0; ++*n) {
        const bool space = text_is(char_at(*rest), VOCAB_SPACE);
        if (cuts && space && !after_space)
            break;
        (void)spm_next_char(rest);
        after_space = space;
    }
    run.len -= rest->len;
    return run;
}

/* --- reading: spellings ---------------------------------------------------------------------- */

#define NOT_A_TOKEN INT32_MAX

struct builder {
    struct spm *spm;
    const struct vocab *vocab;
    const struct gguf_value *scores; /* NULL: all are equal */
    /* The tokens that merging makes, and the characters that one of them begins or ends with; each
     * with its symbol for an id, which is NOT_A_TOKEN until all are known. */
    struct name_index spellings;
    const struct indexed **end; /* of each the longest other one that it ends with, or NULL */
    bool has_char[256];         /* of one byte, among them */
    struct symbol_pair *pairs;
    size_t n_pairs, cap_pairs;
};

static enum status read_scores(struct builder *b, const struct gguf *g, struct err *e)
{
    const size_t n = (size_t)b->vocab->n;
    bool found;
    TRY(gguf_get_array(g, SCORES_KEY, GGUF_F32, &b->scores, &found, e));
    if (found && b->scores->count != n)
        return err_bad_file(e, "%s: expected %zu elements, one a token, found %llu", SCORES_KEY, n,
                            (unsigned long long)b->scores->count);
    for (size_t id = 0; found && id < n; id++) {
        const double score = gguf_float_at(b->scores, id);
        if (!isfinite(score))
            return err_bad_file(e, "%s of token %zu: expected a finite number, found %s",
                                SCORES_KEY, id,
                                isnan(score)  ? "NaN"
                                : score > 0.0 ? "infinity"
                                              : "-infinity");
    }
    return STATUS_OK;
}

static enum status add_char(struct builder *b, struct text c, struct err *e)
{
    bool *has = &b->has_char[(unsigned char)*c.data];
    if (c.len == 1 && *has)
        return STATUS_OK;
    *has |= c.len == 1;
    return name_index_add(&b->spellings, c, NOT_A_TOKEN, 0, e);
}

/* Lists the tokens, and what of each may be a character of the text that it is merged from: its
 * first one, and what may be the last, be it one that the text ends within. */
static enum status read_spellings(struct builder *b, const struct gguf *g, struct err *e)
{
    const struct gguf_value *names = gguf_find(g, TOKENS_KEY); /* which vocab_init has read */
    struct gguf_cursor cursor = {0};
    struct text name;
    int32_t *byte_id = b->spm->byte_id;
    for (int byte = 0; byte < 256; byte++)
        byte_id[byte] = -1;
    for (int32_t id = 0; gguf_next_text(names, &cursor, &name); id++) {
        const enum token_type type = b->vocab->type[id];
        const int byte = vocab_hex_byte(name, type);
        if (byte >= 0 && byte_id[byte] < 0)
            byte_id[byte] = id;
        if (byte >= 0 || name.len == 0 || type == TOKEN_UNKNOWN || type == TOKEN_CONTROL ||
            type == TOKEN_BYTE)
            continue;
        struct text rest = name;
        size_t n;
        (void)next_run(true, &rest, &n);
        b->spm->cuts = b->spm->cuts && rest.len == 0;
        TRY(name_index_add(&b->spellings, name, id, 0, e));
        TRY(add_char(b, char_at(name), e));
        for (size_t len = 1; len <= CHAR_MAX_LEN && len < name.len; len++) {
            const struct text tail = {name.data + name.len - len, len};
            if (char_at(tail).len == len)
                TRY(add_char(b, tail, e));
        }
    }
    return STATUS_OK;
}

/* Leaves each spelling once, and gives those that are no tokens the symbols behind the tokens. */
static enum status number_spellings(struct builder *b, int32_t *n_symbols, struct err *e)
{
    struct name_index *x = &b->spellings;
    size_t n = 0;
    *n_symbols = b->vocab->n;
    if (x->n >= (size_t)(INT32_MAX - 1 - b->vocab->n))
        return err_no_memory(e, "vocabulary", SIZE_MAX);
    name_index_sort(x);
    for (size_t i = 0; i < x->n; i++) {
        const struct indexed s = x->list[i];
        const bool again = n > 0 && text_equal(x->list[n - 1].text, s.text);
        if (again && s.id != NOT_A_TOKEN)
            return err_bad_file(
                e, "%s: expected each token once, found tokens %d and %d to be '%.*s'", TOKENS_KEY,
                x->list[n - 1].id, s.id, text_width(s.text), s.text.data);
        if (again)
            continue;
        x->list[n] = s;
        if (s.id == NOT_A_TOKEN)
            x->list[n].id = (*n_symbols)++;
        n++;
    }
    x->n = n;
    name_index_link(x);
    ++*n_symbols; /* all other characters */
    return STATUS_OK;
}

/* Lists the spellings that are characters. */
static enum status list_chars(struct builder *b, struct err *e)
{
    struct spm *s = b->spm;
    uint32_t n = 0;
    s->chars = calloc(b->spellings.n + 1, sizeof *s->chars);
    if (!s->chars)
        return err_no_memory(e, "vocabulary", (b->spellings.n + 1) * sizeof *s->chars);
    for (size_t i = 0; i < b->spellings.n; i++) {
        const struct text c = b->spellings.list[i].text;
        const int32_t symbol = b->spellings.list[i].id;
        const unsigned char byte = (unsigned char)*c.data;
        if (char_at(c).len != c.len)
            continue;
        s->chars[n++] = (struct spm_char){char_key(c), symbol};
        s->first[byte + 1] = n;
        if (c.len == 1 && symbol < b->vocab->n && s->byte_id[byte] < 0)
            s->byte_id[byte] = symbol;
    }
    for (int byte = 0; byte < 256; byte++)
        if (s->first[byte + 1] < s->first[byte])
            s->first[byte + 1] = s->first[byte];
    return STATUS_OK;
}

/* --- reading: pairs -------------------------------------------------------------------------- */

/* By their bytes read backwards: a text follows right after all that it ends with. */
static int compare_backwards(const void *left, const void *right)
{
    const struct text a = (*(const struct indexed *const *)left)->text;
    const struct text b = (*(const struct indexed *const *)right)->text;
    for (size_t i = 1; i <= a.len && i <= b.len; i++) {
        const unsigned char x = (unsigned char)a.data[a.len - i];
        const unsigned char y = (unsigned char)b.data[b.len - i];
        if (x != y)
            return x < y ? -1 : 1;
    }
    return (a.len > b.len) - (a.len < b.len);
}

/* Finds what each one ends with as name_index_link does what it starts with. */
static enum status link_ends(struct builder *b, struct err *e)
{
    const struct indexed *list = b->spellings.list, **back;
    const size_t n = b->spellings.n;
    back = calloc(n + 1, sizeof *back);
    b->end = calloc(n + 1, sizeof *b->end);
    if (!back || !b->end) {
        free(back);
        return err_no_memory(e, "vocabulary", (n + 1) * 2 * sizeof *back);
    }
    for (size_t i = 0; i < n; i++)
        back[i] = &list[i];
    qsort(back, n, sizeof *back, compare_backwards);
    for (size_t i = 1; i < n; i++) {
        const struct indexed *end = back[i - 1];
        const struct text s = back[i]->text;
        while (end && (end->text.len > s.len ||
                       memcmp(s.data + s.len - end->text.len, end->text.data, end->text.len) != 0))
            end = b->end[end - list];
        b->end[back[i] - list] = end;
    }
    free(back);
    return STATUS_OK;
}

/* Adds the pairs that make a token. Those that start it, the longest first (listed in `starts`),
 * meet those that end it, the longest first: what is left of the token by the one is in the other
 * where it has the same length. */
static enum status cut_token(struct builder *b, const struct indexed *token,
                             const struct indexed **starts, struct err *e)
{
    const struct indexed *list = b->spellings.list;
    /* The higher the score, the lower the rank. The bits of floats of one sign are in the order of
     * their magnitudes. */
    const float score = b->scores ? (float)gguf_float_at(b->scores, (uint64_t)token->id) : 0.0f;
    const float magnitude = fabsf(score);
    int32_t rank;
    memcpy(&rank, &magnitude, sizeof rank);
    rank = score > 0.0f ? -rank : rank;
    size_t n = 0;
    for (const struct indexed *s = token->start; s; s = s->start)
        starts[n++] = s;
    for (const struct indexed *end = b->end[token - list]; end; end = b->end[end - list]) {
        const size_t wanted = token->text.len - end->text.len;
        while (n > 0 && starts[n - 1]->text.len < wanted)
            n--;
        if (n == 0 || starts[n - 1]->text.len != wanted)
            continue;
        struct symbol_pair *pairs = NULL;
        if (b->n_pairs < INT32_MAX)
            pairs = array_grow(b->pairs, b->n_pairs + 1, &b->cap_pairs, sizeof *pairs);
        if (!pairs)
            return err_no_memory(e, "merges", (b->n_pairs + 1) * sizeof *pairs);
        b->pairs = pairs;
        pairs[b->n_pairs++] = (struct symbol_pair){starts[n - 1]->id, end->id, rank, token->id};
    }
    return STATUS_OK;
}

static enum status find_pairs(struct builder *b, struct err *e)
{
    const struct name_index *x = &b->spellings;
    const struct indexed **starts = calloc(x->n + 1, sizeof *starts);
    if (!starts)
        return err_no_memory(e, "merges", (x->n + 1) * sizeof *starts);
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < x->n; i++)
        if (x->list[i].id < b->vocab->n)
            s = cut_token(b, &x->list[i], starts, e);
    free(starts);
    return s;
}

static enum status build(struct builder *b, const struct gguf *g, struct err *e)
{
    int32_t n_symbols;
    TRY(read_scores(b, g, e));
    TRY(read_spellings(b, g, e));
    TRY(number_spellings(b, &n_symbols, e));
    TRY(list_chars(b, e));
    TRY(link_ends(b, e));
    TRY(find_pairs(b, e));
    struct symbol_pair *pairs = b->pairs;
    b->pairs = NULL; /* merging's from now on */
    return merging_init(&b->spm->merging, pairs, b->n_pairs, n_symbols, e);
}

enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e)
{
    *s = (struct spm){.n_tokens = v->n, .cuts = true};
    struct builder b = {.spm = s, .vocab = v};
    const enum status status = build(&b, g, e);
    name_index_free(&b.spellings);
    free(b.end);
    free(b.pairs);
    return status;
}

void spm_free(struct spm *s)
{
    free(s->chars);
    merging_free(&s->merging);
    *s = (struct spm){.n_tokens = 0};
}

/* --- encoding -------------------------------------------------------------------------------- */

#define SPACE_LEN (sizeof VOCAB_SPACE - 1)

/* The text with its spaces as vocabularies write them, and one before it if `adds_space`. */
static enum status mark_spaces(struct bytes *out, struct text text, bool adds_space, struct err *e)
{
    size_t need = text.len + SPACE_LEN;
    for (size_t i = 0; i < text.len; i++)
        need += text.data[i] == ' ' ? SPACE_LEN - 1 : 0;
    out->len = 0;
    bool fits = bytes_reserve(out, need);
    if (adds_space)
        fits = fits && bytes_put(out, text_of(VOCAB_SPACE));
    for (size_t i = 0; fits && i < text.len; i++)
        fits = bytes_put(out, text.data[i] == ' ' ? text_of(VOCAB_SPACE)
                                                  : (struct text){text.data + i, 1});
    return fits ? STATUS_OK : err_no_memory(e, "tokenizing", need);
}

static int32_t symbol_of(const struct spm *s, struct text c)
{
    const uint64_t key = char_key(c);
    const unsigned char byte = (unsigned char)*c.data;
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

/* How many bytes of the part come before the one that byte `at` of the marked text is, or is part
 * of; -1: it is the space that was added. */
static ptrdiff_t unmarked(struct text part, bool adds_space, size_t at)
{
    size_t marked = adds_space ? SPACE_LEN : 0;
    ptrdiff_t i = -1;
    while (at >= marked)
        marked += part.data[++i] == ' ' ? SPACE_LEN : 1;
    return i;
}

/* Says that there is no token for byte `bad` of a character at `at` of the marked text. */
static enum status lacks_char(const struct encoding *c, struct text part, bool adds_space,
                              size_t at, size_t bad, struct err *e)
{
    ptrdiff_t i = unmarked(part, adds_space, at);
    if (i < 0)
        return err_set(e, STATUS_USAGE,
                       "the vocabulary has no token for the space that tokenizer.ggml."
                       "add_space_prefix puts before every text");
    const size_t from = (size_t)(part.data - c->text.data);
    uint32_t code; /* of a character that may go on behind the part */
    (void)utf8_decode((struct text){part.data + i, c->text.len - from - (size_t)i}, &code);
    if (code == UNICODE_INVALID)
        i = unmarked(part, adds_space, at + bad);
    return lacks_token(c->text, from + (size_t)i, e);
}

enum status spm_encode(const struct spm *s, struct encoding *c, struct text part, bool adds_space,
                       struct err *e)
{
    assert(part.len > 0);
    TRY(mark_spaces(&c->marked, part, adds_space, e));
    struct text rest = bytes_text(&c->marked);
    while (rest.len > 0) {
        size_t n;
        struct text run = next_run(s->cuts, &rest, &n), symbols = run;
        TRY(merge_reserve(&c->merge, n, e));
        int32_t *spans = c->merge.spans;
        for (size_t i = 0; i < n; i++)
            spans[i] = symbol_of(s, spm_next_char(&symbols));
        merge_run(&s->merging, &c->merge, n);
        for (size_t i = 0, end; i < n; i = end) {
            const struct text one = spm_next_char(&run);
            end = merge_end(spans, n, i);
            for (size_t more = i + 1; more < end; more++)
                (void)spm_next_char(&run);
            if (spans[i] < s->n_tokens) {
                TRY(id_list_add(&c->list, spans[i], e));
                continue;
            }
            const size_t at = (size_t)(one.data - c->marked.data);
            for (size_t k = 0; k < one.len; k++) {
                const int32_t id = s->byte_id[(unsigned char)one.data[k]];
                if (id < 0)
                    return lacks_char(c, part, adds_space, at, k, e);
                TRY(id_list_add(&c->list, id, e));
            }
        }
    }
    return STATUS_OK;
}
