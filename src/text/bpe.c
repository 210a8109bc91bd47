#include "text/bpe.h"

#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "text/unicode.h"

/* --- the table of pairs ---------------------------------------------------------------------- */

static int compare_pairs(const void *left, const void *right)
{
    const struct symbol_pair *a = left;
    const struct symbol_pair *b = right;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    if (a->right != b->right)
        return a->right < b->right ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

enum status merging_init(struct merging *m, struct symbol_pair *pairs, size_t n, int32_t n_symbols,
                         struct err *e)
{
    assert(n <= INT32_MAX && n_symbols >= 0);
    const size_t n_first = (size_t)n_symbols + 1;
    *m = (struct merging){n_symbols, calloc(n_first, sizeof *m->first), pairs};
    if (!m->first)
        return err_no_memory(e, "merges", n_first * sizeof *m->first);
    if (n > 0)
        qsort(pairs, n, sizeof *pairs, compare_pairs);
    for (size_t i = 0; i < n; i++)
        m->first[pairs[i].left + 1]++;
    for (int32_t s = 0; s < n_symbols; s++)
        m->first[s + 1] += m->first[s];
    return STATUS_OK;
}

void merging_free(struct merging *m)
{
    free(m->first);
    free(m->pairs);
    *m = (struct merging){0};
}

#define NO_RANK INT32_MAX

/* The rank and the result of a pair; NO_RANK: they do not merge. */
static int32_t find_pair(const struct merging *m, int32_t left, int32_t right, int32_t *result)
{
    assert(left >= 0 && left < m->n_symbols && right >= 0);
    uint32_t n = m->first[left + 1] - m->first[left];
    if (n == 0)
        return NO_RANK;
    const struct symbol_pair *p = m->pairs + m->first[left];
    while (n > 1) { /* the last pair whose right symbol is not above the wanted one */
        const uint32_t half = n / 2;
        p = p[half].right <= right ? p + half : p;
        n -= half;
    }
    *result = p->result;
    return p->right == right ? p->rank : NO_RANK;
}

/* --- a run ----------------------------------------------------------------------------------- */

/*
 * A run of n symbols being merged, in two arrays of n. A symbol that starts at i and covers k of
 * the first ones is in spans[i], and -k in spans[i + 1] and spans[i + k - 1] if k > 1 (so that
 * both neighbours are found at once); the rest of its spans mean nothing. ranks[i] is the rank of
 * the merge with the symbol after it, NO_RANK if there is none and inside a symbol.
 *
 * The queue is a tree of minima over ranks: an entry of level l + 1 is the least of FAN entries
 * of level l. The least rank is at the top; going down to the first child that has it ends at
 * the leftmost pair. So there are no entries to go stale, and it costs 4/15 byte a symbol.
 */
#define FAN        16 /* a cache line of ranks */
#define MAX_LEVELS 8  /* FAN^8 is 2^32 */

struct run {
    const struct merging *merging;
    size_t n;
    int32_t *spans;
    int32_t *level[MAX_LEVELS]; /* level[0] is ranks; each padded with NO_RANK to FAN entries */
    size_t count[MAX_LEVELS];   /* entries without the padding */
    int top;                    /* the level of at most FAN entries */
};

static size_t padded(size_t n)
{
    return (n + FAN - 1) / FAN * FAN;
}

/* Sets the levels' places from `ranks` on and returns how many entries they take. */
static size_t run_layout(struct run *r, int32_t *ranks, size_t n)
{
    size_t used = 0;
    r->n = n;
    r->top = -1;
    do {
        if (r->top >= 0)
            n = padded(n) / FAN;
        r->top++;
        r->level[r->top] = ranks ? ranks + used : NULL;
        r->count[r->top] = n;
        used += padded(n);
    } while (n > FAN);
    return used;
}

enum status merge_reserve(struct merge_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return STATUS_OK;
    if (n > INT32_MAX)
        return err_set(e, STATUS_NO_MEMORY,
                       "tokenizing: a piece of text of %zu symbols is too long to be merged", n);
    merge_scratch_free(s); /* nothing in it outlives a run */
    const size_t cap = n + n / 4 + 256;
    struct run r;
    const size_t n_ranks = run_layout(&r, NULL, cap);
    s->spans = calloc(cap, sizeof *s->spans);
    s->ranks = calloc(n_ranks, sizeof *s->ranks);
    if (!s->spans || !s->ranks) {
        merge_scratch_free(s);
        return err_no_memory(e, "tokenizing", cap * sizeof *s->spans + n_ranks * sizeof *s->ranks);
    }
    s->cap = cap;
    return STATUS_OK;
}

void merge_scratch_free(struct merge_scratch *s)
{
    free(s->spans);
    free(s->ranks);
    *s = (struct merge_scratch){0};
}

static int32_t least_rank(const int32_t *r)
{
    int32_t m = r[0];
    for (int i = 1; i < FAN; i++)
        m = r[i] < m ? r[i] : m;
    return m;
}

static void set_rank(struct run *r, size_t i, int32_t rank)
{
    assert(i < r->n);
    r->level[0][i] = rank;
    for (int l = 0; l < r->top; l++) {
        i /= FAN;
        const int32_t now = least_rank(r->level[l] + i * FAN);
        if (r->level[l + 1][i] == now)
            return;
        r->level[l + 1][i] = now;
    }
}

/* The leftmost pair of the least rank; false if nothing is left to merge. */
static bool next_pair(const struct run *r, size_t *at)
{
    const int32_t rank = least_rank(r->level[r->top]);
    if (rank == NO_RANK)
        return false;
    size_t i = 0;
    for (int l = r->top; l >= 0; l--) {
        i *= FAN;
        while (r->level[l][i] != rank)
            i++;
    }
    *at = i;
    return true;
}

/* Merges the symbol that starts at `at` with the one behind it. */
static void merge_span(struct run *r, size_t at)
{
    int32_t *spans = r->spans, made, unused;
    const size_t right = merge_end(spans, r->n, at);
    assert(right < r->n);
    const size_t end = merge_end(spans, r->n, right);
    find_pair(r->merging, spans[at], spans[right], &made);
    spans[at] = made;
    spans[at + 1] = spans[end - 1] = -(int32_t)(end - at);
    set_rank(r, right, NO_RANK);
    set_rank(r, at, end < r->n ? find_pair(r->merging, made, spans[end], &unused) : NO_RANK);
    if (at > 0) {
        const size_t before = spans[at - 1] >= 0 ? at - 1 : at - (size_t)-spans[at - 1];
        set_rank(r, before, find_pair(r->merging, spans[before], made, &unused));
    }
}

void merge_run(const struct merging *m, struct merge_scratch *s, size_t n)
{
    assert(n > 0 && n <= s->cap);
    struct run r = {.merging = m, .spans = s->spans};
    int32_t unused;
    run_layout(&r, s->ranks, n);
    for (size_t i = 0; i + 1 < n; i++)
        s->ranks[i] = find_pair(m, s->spans[i], s->spans[i + 1], &unused);
    s->ranks[n - 1] = NO_RANK;
    for (int l = 0; l <= r.top; l++) {
        for (size_t i = r.count[l]; i < padded(r.count[l]); i++)
            r.level[l][i] = NO_RANK;
        for (size_t i = 0; l < r.top && i < r.count[l + 1]; i++)
            r.level[l + 1][i] = least_rank(r.level[l] + i * FAN);
    }
    for (size_t at; next_pair(&r, &at);)
        merge_span(&r, at);
}

/* --- merges by rank, as a file lists them ---------------------------------------------------- */

#define MERGES_KEY "tokenizer.ggml.merges"

static enum status merge_error(struct err *e, size_t rank, struct text merge, const char *expected)
{
    return err_bad_file(e, "%s element %zu: expected %s, found \"%.*s\"", MERGES_KEY, rank,
                        expected, text_width(merge), merge.data);
}

/* The pair of a merge, some of whose symbols may be -1: no token. `buffer` has room for the merge.
 */
static enum status read_merge(const struct vocab *v, size_t rank, struct text merge, char *buffer,
                              struct symbol_pair *pair, struct err *e)
{
    /* From index 1: a part may start with a space, were it written raw. */
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    const size_t cut = space ? (size_t)(space - merge.data) : 0;
    if (!space || cut + 1 == merge.len)
        return merge_error(e, rank, merge, "two parts with a space between");
    struct text left = {buffer, 0}, right = {0};
    if (!byte_alphabet_decode((struct text){merge.data, cut}, buffer, &left.len))
        return merge_error(e, rank, merge, "characters that stand for bytes");
    right.data = buffer + left.len;
    if (!byte_alphabet_decode((struct text){space + 1, merge.len - cut - 1}, buffer + left.len,
                              &right.len))
        return merge_error(e, rank, merge, "characters that stand for bytes");
    const struct text texts[] = {left, right, {buffer, left.len + right.len}};
    int ids[3], twin;
    for (int i = 0; i < 3; i++) {
        ids[i] = vocab_find(v, texts[i], &twin);
        if (twin >= 0)
            return err_bad_file(
                e, "%s element %zu: expected tokens that are one each, found %d and %d alike",
                MERGES_KEY, rank, ids[i], twin);
    }
    *pair = (struct symbol_pair){ids[0], ids[1], (int32_t)rank, ids[2]};
    return STATUS_OK;
}

/* Fills b->merging's pairs, *n of them. */
static enum status read_merges(struct bpe *b, const struct vocab *v, const struct gguf *g,
                               size_t *n, struct err *e)
{
    const struct gguf_value *merges = gguf_find(g, MERGES_KEY);
    if (!merges || (merges->kind == GGUF_ARRAY && merges->count == 0))
        return STATUS_OK; /* the element type of none means nothing */
    TRY(gguf_get_array(g, MERGES_KEY, GGUF_STRING, &merges, NULL, e));
    if (merges->count >= INT32_MAX)
        return err_bad_file(e, "%s: expected fewer than %d elements, found %llu", MERGES_KEY,
                            INT32_MAX, (unsigned long long)merges->count);
    char *buffer = malloc(merges->bytes.len); /* more than the longest */
    struct symbol_pair *pairs = b->merging.pairs = calloc((size_t)merges->count, sizeof *pairs);
    enum status s = STATUS_OK;
    if (!buffer || !pairs)
        s = err_no_memory(e, "merges", merges->bytes.len + (size_t)merges->count * sizeof *pairs);
    struct gguf_cursor cursor = {0};
    struct text merge;
    for (size_t rank = 0; s == STATUS_OK && gguf_next_text(merges, &cursor, &merge); rank++) {
        struct symbol_pair *p = &pairs[*n];
        s = read_merge(v, rank, merge, buffer, p, e);
        /* To a pair with a part that is no token nothing leads; of such a result nothing could be
         * said. */
        *n += s == STATUS_OK && p->left >= 0 && p->right >= 0 && p->result >= 0;
    }
    free(buffer);
    return s;
}

enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e)
{
    *b = (struct bpe){.lacks_bytes = false};
    size_t n = 0;
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        int twin;
        b->byte_id[byte] = vocab_find(v, (struct text){&c, 1}, &twin);
        if (twin >= 0)
            return err_set(e, STATUS_BAD_FILE,
                           "tokenizer.ggml.tokens: expected one token for byte 0x%02X, found %d "
                           "and %d",
                           (unsigned)byte, b->byte_id[byte], twin);
        b->lacks_bytes |= b->byte_id[byte] < 0;
    }
    TRY(read_merges(b, v, g, &n, e));
    TRY(merging_init(&b->merging, b->merging.pairs, n, v->n, e));
    for (size_t i = 1; i < n; i++) {
        const struct symbol_pair *p = &b->merging.pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return err_set(e, STATUS_BAD_FILE,
                           "%s element %d: expected each pair once, found that of element %d",
                           MERGES_KEY, p->rank, p[-1].rank);
    }
    return STATUS_OK;
}

void bpe_free(struct bpe *b)
{
    merging_free(&b->merging);
    *b = (struct bpe){.lacks_bytes = false};
}

enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e)
{
    const size_t n = piece.len;
    assert(n > 0);
    for (struct text rest = piece; b->lacks_bytes && rest.len > 0;) {
        uint32_t code;
        const struct text one = utf8_next(&rest, &code);
        for (size_t i = 0; i < one.len; i++)
            if (b->byte_id[(unsigned char)one.data[i]] < 0)
                return lacks_token(c->text, (size_t)(one.data - c->text.data), e);
    }
    TRY(merge_reserve(&c->merge, n, e));
    int32_t *spans = c->merge.spans;
    for (size_t i = 0; i < n; i++)
        spans[i] = b->byte_id[(unsigned char)piece.data[i]];
    if (n > 1)
        merge_run(&b->merging, &c->merge, n);
    for (size_t i = 0; i < n; i = merge_end(spans, n, i))
        TRY(id_list_add(&c->list, spans[i], e));
    return STATUS_OK;
}
