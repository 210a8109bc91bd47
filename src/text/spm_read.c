/*
 * spm_read - which neighbours merge into what, found from the tokens of a vocabulary.
 *
 * A token is made of two others, or of a character and another, wherever it can be cut into the
 * two. All cuts are found in time linear in the tokens' bytes, however they are chosen: sorted,
 * each spelling follows those that it starts with, of which the longest is found from that of the
 * one before; read backwards, likewise those that it ends with.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "text/order.h"
#include "text/spm.h"
#include "text/spm_char.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define SCORES_KEY "tokenizer.ggml.scores"

#define NOT_A_TOKEN INT32_MAX

/* A token that merging makes, or a character that one of them begins or ends with. */
struct spelling {
    struct text text;                   /* borrowed from the file */
    int32_t symbol;                     /* NOT_A_TOKEN until all are known */
    const struct spelling *start, *end; /* the longest other one that it starts, ends with */
};

struct builder {
    struct spm *spm;
    const struct vocab *vocab;
    int32_t *rank; /* [n_tokens] the higher the score, the lower; equal of equal ones */
    struct spelling *list;
    size_t n, cap;
    bool has_char[256]; /* of one byte, in the list */
    struct symbol_pair *pairs;
    size_t n_pairs, cap_pairs;
};

/* --- scores ---------------------------------------------------------------------------------- */

struct scored {
    double score;
    int32_t id;
};

static int compare_scores(const void *left, const void *right)
{
    const struct scored *a = left;
    const struct scored *b = right;
    return (a->score < b->score) - (a->score > b->score);
}

static enum status get_scores(const struct vocab *v, const struct gguf *g,
                              const struct gguf_value **scores, struct err *e)
{
    bool found;
    TRY(gguf_get_array(g, SCORES_KEY, GGUF_F32, scores, &found, e));
    if (found && (*scores)->count != (uint64_t)v->n)
        return err_set(e, STATUS_BAD_FILE, "%s: expected %d elements, one a token, found %llu",
                       SCORES_KEY, v->n, (unsigned long long)(*scores)->count);
    for (int id = 0; found && id < v->n; id++) {
        const double score = gguf_float_at(*scores, (uint64_t)id);
        if (!isfinite(score))
            return err_set(e, STATUS_BAD_FILE, "%s of token %d: expected a finite number, found %s",
                           SCORES_KEY, id,
                           isnan(score)  ? "NaN"
                           : score > 0.0 ? "infinity"
                                         : "-infinity");
    }
    return STATUS_OK;
}

static enum status read_ranks(struct builder *b, const struct gguf *g, struct err *e)
{
    const size_t n = (size_t)b->vocab->n;
    const struct gguf_value *scores;
    TRY(get_scores(b->vocab, g, &scores, e));
    b->rank = calloc(n, sizeof *b->rank);
    struct scored *list = calloc(n, sizeof *list);
    if (!b->rank || !list) {
        free(list);
        return err_no_memory(e, "scores", n * (sizeof *b->rank + sizeof *list));
    }
    for (size_t id = 0; scores && id < n; id++)
        list[id] = (struct scored){gguf_float_at(scores, id), (int32_t)id};
    if (scores)
        qsort(list, n, sizeof *list, compare_scores);
    for (size_t i = 1; scores && i < n; i++)
        b->rank[list[i].id] = b->rank[list[i - 1].id] + (list[i].score < list[i - 1].score);
    free(list);
    return STATUS_OK;
}

/* --- spellings ------------------------------------------------------------------------------- */

static enum status add_spelling(struct builder *b, struct text text, int32_t symbol, struct err *e)
{
    if (b->n == b->cap) {
        const size_t cap = b->cap + b->cap / 2 + 256;
        size_t bytes = SIZE_MAX;
        struct spelling *list =
            size_of_array(cap, sizeof *list, &bytes) ? realloc(b->list, bytes) : NULL;
        if (!list)
            return err_no_memory(e, "vocabulary", bytes);
        b->list = list;
        b->cap = cap;
    }
    b->list[b->n++] = (struct spelling){.text = text, .symbol = symbol};
    return STATUS_OK;
}

static enum status add_char(struct builder *b, struct text c, struct err *e)
{
    bool *has = &b->has_char[(unsigned char)c.data[0]];
    if (c.len == 1 && *has)
        return STATUS_OK;
    *has |= c.len == 1;
    return add_spelling(b, c, NOT_A_TOKEN, e);
}

static bool has_space_behind_another(struct text name)
{
    bool after_space = true;
    while (name.len > 0) {
        const bool space = text_is(spm_next_char(&name), VOCAB_SPACE);
        if (space && !after_space)
            return true;
        after_space = space;
    }
    return false;
}

/* A token, and what of it may be a character of the text that it is merged from: its first one, and
 * what may be the last, be it one that the text ends within. */
static enum status add_token(struct builder *b, struct text name, int32_t id, struct err *e)
{
    TRY(add_spelling(b, name, id, e));
    TRY(add_char(b, spm_char_at(name), e));
    b->spm->cuts = b->spm->cuts && !has_space_behind_another(name);
    for (size_t len = 1; len <= SPM_CHAR_MAX && len < name.len; len++) {
        const struct text tail = {name.data + name.len - len, len};
        if (spm_char_at(tail).len == len)
            TRY(add_char(b, tail, e));
    }
    return STATUS_OK;
}

static bool is_merged(enum token_type type)
{
    return type == TOKEN_UNDEFINED || type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED ||
           type == TOKEN_UNUSED;
}

static enum status read_spellings(struct builder *b, const struct gguf *g, struct err *e)
{
    const struct gguf_value *names;
    TRY(gguf_get_array(g, TOKENS_KEY, GGUF_STRING, &names, NULL, e));
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
        if (byte < 0 && name.len > 0 && is_merged(type))
            TRY(add_token(b, name, id, e));
    }
    return STATUS_OK;
}

static int compare_spellings(const void *left, const void *right)
{
    const struct spelling *a = left;
    const struct spelling *b = right;
    const int order = text_order(a->text, b->text);
    return order ? order : (a->symbol > b->symbol) - (a->symbol < b->symbol);
}

/* Sorts them, leaves each once, and gives those that are no tokens the symbols behind the tokens.
 */
static enum status number_spellings(struct builder *b, int32_t *n_symbols, struct err *e)
{
    size_t n = 0;
    *n_symbols = b->vocab->n;
    if (b->n >= (size_t)(INT32_MAX - 1 - b->vocab->n))
        return err_no_memory(e, "vocabulary", SIZE_MAX);
    if (b->n > 0)
        qsort(b->list, b->n, sizeof *b->list, compare_spellings);
    for (size_t i = 0; i < b->n; i++) {
        struct spelling s = b->list[i];
        if (n > 0 && text_equal(b->list[n - 1].text, s.text)) {
            if (s.symbol != NOT_A_TOKEN)
                return err_set(e, STATUS_BAD_FILE,
                               "%s: expected each token once, found tokens %d and %d to be '%.*s'",
                               TOKENS_KEY, b->list[n - 1].symbol, s.symbol, text_width(s.text),
                               s.text.data);
            continue;
        }
        if (s.symbol == NOT_A_TOKEN)
            s.symbol = (*n_symbols)++;
        b->list[n++] = s;
    }
    b->n = n;
    ++*n_symbols; /* all other characters */
    return STATUS_OK;
}

/* --- characters ------------------------------------------------------------------------------ */

static bool is_char(struct text s)
{
    return spm_char_at(s).len == s.len;
}

static enum status list_chars(struct builder *b, struct err *e)
{
    struct spm *s = b->spm;
    uint32_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += is_char(b->list[i].text);
    s->chars = calloc((size_t)n + 1, sizeof *s->chars);
    if (!s->chars)
        return err_no_memory(e, "vocabulary", ((size_t)n + 1) * sizeof *s->chars);
    n = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct spelling *one = &b->list[i];
        if (!is_char(one->text))
            continue;
        const unsigned char byte = (unsigned char)one->text.data[0];
        s->chars[n++] = (struct spm_char){spm_char_key(one->text), one->symbol};
        s->first[byte + 1] = n;
        if (one->text.len == 1 && one->symbol < b->vocab->n && s->byte_id[byte] < 0)
            s->byte_id[byte] = one->symbol;
    }
    for (int byte = 0; byte < 256; byte++)
        if (s->first[byte + 1] < s->first[byte])
            s->first[byte + 1] = s->first[byte];
    return STATUS_OK;
}

/* --- pairs ----------------------------------------------------------------------------------- */

static bool starts_with(struct text s, struct text start)
{
    return start.len <= s.len && memcmp(s.data, start.data, start.len) == 0;
}

static bool ends_with(struct text s, struct text end)
{
    return end.len <= s.len && memcmp(s.data + s.len - end.len, end.data, end.len) == 0;
}

static int compare_backwards(const void *left, const void *right)
{
    const struct spelling *const *a = left;
    const struct spelling *const *b = right;
    return order_backwards((*a)->text, (*b)->text);
}

/* Finds each one's start and end. What starts a spelling comes before it, and starts all that lie
 * between the two: so it is the one before, or one that starts that. */
static enum status link_spellings(struct builder *b, struct err *e)
{
    struct spelling **back = calloc(b->n + 1, sizeof *back);
    if (!back)
        return err_no_memory(e, "vocabulary", (b->n + 1) * sizeof *back);
    for (size_t i = 0; i < b->n; i++) {
        struct spelling *s = back[i] = &b->list[i];
        s->start = i > 0 ? s - 1 : NULL;
        while (s->start && !starts_with(s->text, s->start->text))
            s->start = s->start->start;
    }
    qsort(back, b->n, sizeof *back, compare_backwards);
    for (size_t i = 0; i < b->n; i++) {
        struct spelling *s = back[i];
        s->end = i > 0 ? back[i - 1] : NULL;
        while (s->end && !ends_with(s->text, s->end->text))
            s->end = s->end->end;
    }
    free(back);
    return STATUS_OK;
}

static enum status add_pair(struct builder *b, const struct spelling *left,
                            const struct spelling *right, int32_t id, struct err *e)
{
    if (b->n_pairs == b->cap_pairs) {
        const size_t cap = b->cap_pairs + b->cap_pairs / 2 + 256;
        size_t bytes = SIZE_MAX;
        struct symbol_pair *pairs = cap <= INT32_MAX && size_of_array(cap, sizeof *pairs, &bytes)
                                        ? realloc(b->pairs, bytes)
                                        : NULL;
        if (!pairs)
            return err_no_memory(e, "merges", bytes);
        b->pairs = pairs;
        b->cap_pairs = cap;
    }
    b->pairs[b->n_pairs++] = (struct symbol_pair){left->symbol, right->symbol, b->rank[id], id};
    return STATUS_OK;
}

/* Those that start the token, the longest first, meet those that end it, the longest first: what is
 * left of the token by the one is in the other where it has the same length. */
static enum status cut_token(struct builder *b, const struct spelling *token,
                             const struct spelling **starts, struct err *e)
{
    size_t n = 0;
    for (const struct spelling *s = token->start; s; s = s->start)
        starts[n++] = s;
    for (const struct spelling *end = token->end; end; end = end->end) {
        const size_t wanted = token->text.len - end->text.len;
        while (n > 0 && starts[n - 1]->text.len < wanted)
            n--;
        if (n > 0 && starts[n - 1]->text.len == wanted)
            TRY(add_pair(b, starts[n - 1], end, token->symbol, e));
    }
    return STATUS_OK;
}

static enum status find_pairs(struct builder *b, struct err *e)
{
    const struct spelling **starts = calloc(b->n + 1, sizeof *starts);
    if (!starts)
        return err_no_memory(e, "merges", (b->n + 1) * sizeof *starts);
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < b->n; i++)
        if (b->list[i].symbol < b->vocab->n)
            s = cut_token(b, &b->list[i], starts, e);
    free(starts);
    return s;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum status build(struct builder *b, const struct gguf *g, struct err *e)
{
    int32_t n_symbols;
    TRY(read_ranks(b, g, e));
    TRY(read_spellings(b, g, e));
    TRY(number_spellings(b, &n_symbols, e));
    TRY(list_chars(b, e));
    TRY(link_spellings(b, e));
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
    free(b.rank);
    free(b.list);
    free(b.pairs);
    return status;
}
