/*
 * Byte-pair encoding by scores: reading what merges, then encoding.
 *
 * A token is made of two others, or of a character and another, wherever it can be cut into the
 * two. The ways to start it are known from the order of the spellings, in which each follows those
 * that it starts with; what is left of it is then looked up.
 */
#include <inttypes.h>
#include <math.h>

#include "base/figures.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "formats/gguf_values.h"
#include "text/private.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define SCORES_KEY "tokenizer.ggml.scores"
#define EXTRA_KEY  "tokenizer.ggml.remove_extra_whitespaces"
#define SPACE_LEN  (sizeof VOCAB_SPACE - 1)

/* A longer text is marked in blocks of at least so many bytes. */
#define BLOCK_LEAST ((size_t)64 << 10)

/* --- characters ------------------------------------------------------------------------------ */

#define CHAR_MAX_LEN 4 /* bytes */

/* Returns the first character of a nonempty text. Its first byte says how many bytes it has,
 * whether or not the others fit, as in llama.cpp; the text may end before. */
static struct text char_at(struct text s)
{
    const unsigned char first = *s.data;
    const size_t len = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : CHAR_MAX_LEN;
    return text_span(s.data, MIN(len, s.len));
}

static struct text next_char(struct text *rest)
{
    return text_cut(rest, char_at(*rest).len);
}

static int32_t symbol_of(const struct spm *s, struct text c)
{
    if (c.len == 1)
        return s->one_byte[(unsigned char)*c.data];
    const struct indexed *found = name_index_find(&s->chars, c);
    return found ? found->id : s->merging.n_symbols - 1;
}

/* Cuts a run that merges by itself off a text with marked spaces: all of it, or with `cuts` up to a
 * space behind another character; at most MERGE_MOST characters. *n becomes their number. */
static struct text next_run(bool cuts, struct text *rest, size_t *n)
{
    struct text run = *rest;
    bool after_space = true;
    for (*n = 0; rest->len > 0 && *n < MERGE_MOST; ++*n) {
        const bool space = text_is(char_at(*rest), VOCAB_SPACE);
        if (cuts && space && !after_space)
            break;
        (void)next_char(rest);
        after_space = space;
    }
    run.len -= rest->len;
    return run;
}

/* --- reading --------------------------------------------------------------------------------- */

#define NOT_A_TOKEN INT32_MAX

struct builder {
    struct spm *spm;
    const struct vocab *vocab;
    const struct gguf_value *scores; /* NULL: all are equal */
    /* The tokens that merging makes, and the characters that such a token begins or ends with. The
     * id is the symbol: NOT_A_TOKEN for characters until all are known. */
    struct name_index spellings;
    struct symbol_pair *pairs;
    size_t n_pairs, cap_pairs;
};

static enum status read_scores(struct builder *b, const struct gguf *g, struct err *e)
{
    const size_t n = b->vocab->n;
    bool found;
    TRY(gguf_get_array(g, SCORES_KEY, GGUF_F32, &b->scores, &found, e));
    if (found && b->scores->count != n)
        return err_bad_file(e, "%s: expected %zu elements, one a token, found %" PRIu64, SCORES_KEY,
                            n, b->scores->count);
    if (found)
        for (size_t id = 0; id < n; id++) {
            const double score = gguf_float_at(b->scores, id);
            if (!isfinite(score))
                return err_bad_file(e, "%s of token %zu: expected a finite number, found %f",
                                    SCORES_KEY, id, figure_unsigned_nan(score));
        }
    return STATUS_OK;
}

static enum status add_char(struct builder *b, struct text c, struct err *e)
{
    int32_t *one = &b->spm->one_byte[(unsigned char)*c.data];
    if (c.len == 1 && *one == NOT_A_TOKEN) /* it is there */
        return STATUS_OK;
    if (c.len == 1)
        *one = NOT_A_TOKEN;
    return name_index_add(&b->spellings, c, NOT_A_TOKEN, 0, e);
}

/* Lists the tokens and the characters from which they may be merged: the first character of each,
 * and whatever may be its last one, because a text may end within a character. */
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

/* Leaves each spelling once, numbers those that are no tokens from the number of tokens on, and
 * lists the characters among them. */
static enum status number_symbols(struct builder *b, int32_t *n_symbols, struct err *e)
{
    struct name_index *x = &b->spellings;
    struct spm *s = b->spm;
    size_t n = 0;
    *n_symbols = b->vocab->n;
    if (x->n >= (size_t)(INT32_MAX - 1 - b->vocab->n))
        return err_no_memory(e, "vocabulary", x->n * sizeof *x->list);
    name_index_sort(x);
    for (size_t i = 0; i < x->n; i++) {
        struct indexed *entry = &x->list[n];
        const struct indexed now = x->list[i];
        const bool is_token = now.id != NOT_A_TOKEN;
        const unsigned char byte = *now.text.data;
        if (n > 0 && text_equal(entry[-1].text, now.text)) {
            if (is_token)
                return err_bad_file(
                    e, "%s: expected each token once, found tokens %d and %d to be '%.*s'",
                    TOKENS_KEY, entry[-1].id, now.id, text_width(now.text), now.text.data);
            continue;
        }
        *entry = now;
        n++;
        if (!is_token)
            entry->id = (*n_symbols)++;
        if (now.text.len == 1)
            s->one_byte[byte] = entry->id;
        else if (char_at(now.text).len == now.text.len)
            TRY(name_index_add(&s->chars, now.text, entry->id, 0, e)); /* in order */
        if (now.text.len == 1 && is_token && s->byte_id[byte] < 0)
            s->byte_id[byte] = now.id;
    }
    x->n = n;
    name_index_link(x);
    for (int byte = 0; byte < 256; byte++)
        if (s->one_byte[byte] < 0)
            s->one_byte[byte] = *n_symbols;
    ++*n_symbols; /* all other characters */
    return STATUS_OK;
}

/* Finds the pairs that make a token: a spelling that starts it, and one that is the rest of it. */
static enum status find_pairs(struct builder *b, struct err *e)
{
    const struct name_index *x = &b->spellings;
    for (size_t i = 0; i < x->n; i++) {
        const struct indexed *token = &x->list[i];
        if (token->id >= b->vocab->n)
            continue;
        /* The higher the score, the lower the rank. The bits of floats of one sign are in the order
         * of their magnitudes. */
        const float score = b->scores ? (float)gguf_float_at(b->scores, token->id) : 0.0f;
        const int32_t magnitude = float_bits(fabsf(score));
        const int32_t rank = score > 0.0f ? -magnitude : magnitude;
        for (const struct indexed *left = token->start; left; left = left->start) {
            struct text rest = token->text;
            (void)text_cut(&rest, left->text.len);
            const struct indexed *right = name_index_find(x, rest);
            if (!right)
                continue;
            if (b->n_pairs == INT32_MAX)
                return err_no_memory(e, "merges", b->n_pairs * sizeof *b->pairs);
            TRY_ROOM(b->pairs, b->n_pairs, b->cap_pairs, "merges", e);
            b->pairs[b->n_pairs++] = (struct symbol_pair){left->id, right->id, rank, token->id};
        }
    }
    return STATUS_OK;
}

static enum status build(struct builder *b, const struct gguf *g, int32_t *n_symbols, struct err *e)
{
    TRY(gguf_get_bool(g, EXTRA_KEY, &b->spm->drops_spaces, GGUF_OPTIONAL, e));
    TRY(read_scores(b, g, e));
    TRY(read_spellings(b, g, e));
    TRY(number_symbols(b, n_symbols, e));
    return find_pairs(b, e);
}

enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e)
{
    struct builder b = {.spm = s, .vocab = v};
    int32_t n_symbols = 0;
    *s = (struct spm){.n_tokens = v->n, .cuts = true};
    for (int byte = 0; byte < 256; byte++)
        s->one_byte[byte] = -1;
    enum status status = build(&b, g, &n_symbols, e);
    if (!status)
        status = merging_init(&s->merging, b.pairs, b.n_pairs, n_symbols, e); /* takes them over */
    else
        free(b.pairs);
    name_index_free(&b.spellings);
    return status;
}

void spm_free(struct spm *s)
{
    name_index_free(&s->chars);
    merging_free(&s->merging);
    *s = (struct spm){.n_tokens = 0};
}

/* --- encoding -------------------------------------------------------------------------------- */

/* Returns how many bytes of the marked text byte `at` becomes: 0 for a space that is dropped,
 * because one stands before it. (A text begins with no space then, and no block with a second one.)
 */
static size_t marked_len(const struct spm *s, struct text text, size_t at)
{
    if (text.data[at] != ' ')
        return 1;
    return s->drops_spaces && at > 0 && text.data[at - 1] == ' ' ? 0 : SPACE_LEN;
}

/* Returns the text without the spaces at both ends and the marks at its end, which SentencePiece
 * cuts off, too. */
static struct text trimmed(struct text text)
{
    text_skip_spaces(&text);
    for (;;) {
        if (text_ends_with(text, " "))
            text.len--;
        else if (text_ends_with(text, VOCAB_SPACE))
            text.len -= SPACE_LEN;
        else
            return text;
    }
}

/* Says that the vocabulary lacks the character to which byte `at` of the marked block belongs. */
static enum status lacks_char(const struct spm *s, const struct encoding *c, struct text block,
                              bool adds_space, size_t at, struct err *e)
{
    size_t marked = adds_space ? SPACE_LEN : 0, offset = block.data - c->text.data;
    if (at < marked)
        return err_usage(e, "the vocabulary has no token for the space that "
                            "tokenizer.ggml.add_space_prefix puts before every text");
    while ((marked += marked_len(s, c->text, offset)) <= at)
        offset++;
    return lacks_token(c->text, offset, e);
}

/* Cuts a block off a text, so that no more has to be marked at once: all of it, or where runs are
 * cut at spaces, some kilobytes up to a space. As many bytes of ASCII as a character can have stand
 * before that space, so that it belongs to no character before it; the last of these bytes is no
 * space. */
static struct text next_block(bool cuts, struct text *rest)
{
    size_t n = MIN(rest->len, BLOCK_LEAST), plain = 0;
    if (!cuts)
        return text_cut(rest, rest->len);
    for (; n < rest->len; n++) {
        const unsigned char byte = rest->data[n];
        if (byte == ' ' && plain >= CHAR_MAX_LEN && rest->data[n - 1] != ' ')
            break;
        plain = byte < 0x80 ? plain + 1 : 0;
    }
    return text_cut(rest, n);
}

/* Sets c->marked to the block with its spaces marked, after one more with `adds_space`. */
static enum status mark_spaces(const struct spm *s, struct encoding *c, struct text block,
                               bool adds_space, struct err *e)
{
    c->marked.len = 0;
    if (!bytes_reserve(&c->marked, SPACE_LEN * (block.len + 1)))
        return err_no_memory(e, "tokenizing", SPACE_LEN * (block.len + 1));
    if (adds_space)
        bytes_put(&c->marked, text_of(VOCAB_SPACE));
    for (size_t i = 0; i < block.len; i++)
        bytes_put(&c->marked, block.data[i] == ' ' ? text_span(VOCAB_SPACE, marked_len(s, block, i))
                                                   : text_span(block.data + i, 1));
    return STATUS_OK;
}

static enum status encode_block(const struct spm *s, struct encoding *c, struct text block,
                                bool adds_space, struct err *e)
{
    TRY(mark_spaces(s, c, block, adds_space, e));
    struct text rest = bytes_text(&c->marked);
    while (rest.len > 0) {
        size_t n;
        struct text run = next_run(s->cuts, &rest, &n), symbols = run;
        TRY(merge_reserve(&c->merge, n, e));
        int32_t *spans = c->merge.spans;
        for (size_t i = 0; i < n; i++)
            spans[i] = symbol_of(s, next_char(&symbols));
        merge_run(&s->merging, &c->merge, n);
        for (size_t i = 0, end; i < n; i = end) {
            const struct text one = next_char(&run);
            end = merge_end(spans, n, i);
            for (size_t more = i + 1; more < end; more++)
                (void)next_char(&run);
            if (spans[i] < s->n_tokens) {
                TRY(id_list_add(&c->list, spans[i], e));
                continue;
            }
            for (const char *byte = one.data; byte < one.data + one.len; byte++) {
                const int32_t id = s->byte_id[(unsigned char)*byte];
                if (id < 0)
                    return lacks_char(s, c, block, adds_space, byte - c->marked.data, e);
                TRY(id_list_add(&c->list, id, e));
            }
        }
    }
    return STATUS_OK;
}

enum status spm_encode(const struct spm *s, struct encoding *c, struct text part, bool adds_space,
                       struct err *e)
{
    assert(part.len > 0);
    for (struct text rest = s->drops_spaces ? trimmed(part) : part; rest.len > 0;
         adds_space = false)
        TRY(encode_block(s, c, next_block(s->cuts, &rest), adds_space, e));
    return STATUS_OK;
}
