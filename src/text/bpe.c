#include "text/bpe.h"

#include <inttypes.h>

#include "base/mem.h"
#include "text/pretokenize.h"

/* --- the table of pairs ---------------------------------------------------------------------- */

static int compare_pairs(const void *left, const void *right)
{
    const struct symbol_pair *a = left, *b = right;
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
    *m = (struct merging){n_symbols, NULL, pairs};
    TRY_ZEROED(m->first, (size_t)n_symbols + 1, "merges", e);
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

/* The pair of two symbols, or NULL: they do not merge. */
static const struct symbol_pair *find_pair(const struct merging *m, int32_t left, int32_t right)
{
    assert(left >= 0 && left < m->n_symbols && right >= 0);
    uint32_t n = m->first[left + 1] - m->first[left];
    if (n == 0)
        return NULL;
    const struct symbol_pair *p = m->pairs + m->first[left];
    while (n > 1) { /* the last pair whose right symbol is not above the wanted one */
        const uint32_t half = n / 2;
        p = p[half].right <= right ? p + half : p;
        n -= half;
    }
    return p->right == right ? p : NULL;
}

static int32_t rank_of(const struct merging *m, int32_t left, int32_t right)
{
    const struct symbol_pair *p = find_pair(m, left, right);
    return p ? p->rank : NO_RANK;
}

/* --- a run ----------------------------------------------------------------------------------- */

/*
 * A run of n symbols being merged. A symbol that starts at i and covers k of the first ones is in
 * spans[i], and -k in spans[i + 1] and spans[i + k - 1] if k > 1 (so that both neighbours are found
 * at once); the rest of its spans mean nothing.
 *
 * The queue is a tree of minima. Its leaves, as many as a power of two, are tree[leaves + i]: the
 * rank of the merge of the symbol at i with the one after it, NO_RANK if there is none, inside a
 * symbol and behind the last one. Above them tree[k] is the least of tree[2k] and tree[2k + 1]: the
 * least rank is tree[1], and the way down to the left of equals ends at the leftmost pair.
 */
enum status merge_reserve(struct merge_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return STATUS_OK;
    if (n > INT32_MAX)
        return err_set(e, STATUS_NO_MEMORY,
                       "tokenizing: a piece of text of %zu symbols is too long to be merged", n);
    merge_scratch_free(s); /* nothing in it outlives a run */
    size_t cap = 256;
    while (cap < n)
        cap *= 2;
    TRY_ZEROED(s->spans, 3 * cap, "tokenizing", e);
    s->tree = s->spans + cap;
    s->cap = cap;
    return STATUS_OK;
}

void merge_scratch_free(struct merge_scratch *s)
{
    free(s->spans);
    *s = (struct merge_scratch){0};
}

static inline int32_t lesser_rank(const int32_t *pair)
{
    return pair[0] < pair[1] ? pair[0] : pair[1];
}

static void set_rank(int32_t *tree, size_t leaf, int32_t rank)
{
    tree[leaf] = rank;
    for (size_t k = leaf / 2; k > 0; k /= 2) {
        const int32_t least = lesser_rank(tree + 2 * k);
        if (tree[k] == least)
            return;
        tree[k] = least;
    }
}

void merge_run(const struct merging *m, struct merge_scratch *s, size_t n)
{
    int32_t *spans = s->spans, *tree = s->tree;
    size_t leaves = 1;
    assert(n > 0 && n <= s->cap);
    while (leaves < n)
        leaves *= 2;
    for (size_t i = 0; i < leaves; i++)
        tree[leaves + i] = i + 1 < n ? rank_of(m, spans[i], spans[i + 1]) : NO_RANK;
    for (size_t k = leaves - 1; k > 0; k--)
        tree[k] = lesser_rank(tree + 2 * k);
    while (tree[1] != NO_RANK) {
        size_t k = 1;
        while (k < leaves)
            k = 2 * k + (tree[2 * k] != tree[k]);
        const size_t at = k - leaves;
        const size_t right = merge_end(spans, n, at), end = merge_end(spans, n, right);
        const int32_t result = spans[at] = find_pair(m, spans[at], spans[right])->result;
        spans[at + 1] = spans[end - 1] = -(int32_t)(end - at);
        set_rank(tree, leaves + right, NO_RANK);
        set_rank(tree, leaves + at, end < n ? rank_of(m, result, spans[end]) : NO_RANK);
        if (at > 0) {
            const size_t before = spans[at - 1] >= 0 ? at - 1 : at + spans[at - 1];
            set_rank(tree, leaves + before, rank_of(m, spans[before], result));
        }
    }
}

/* --- merges by rank, as a file lists them ---------------------------------------------------- */

#define MERGES_KEY "tokenizer.ggml.merges"

/* The pair of a merge, some of whose symbols may be -1: no token. `buffer` has room for the merge.
 */
static enum status read_merge(const struct vocab *v, size_t rank, struct text merge, char *buffer,
                              struct symbol_pair *pair, struct err *e)
{
    /* From index 1: a part may start with a space, were it written raw. */
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    struct text rest = merge, left = {buffer, 0}, right = {0};
    const char *expected = NULL;
    if (!space || space + 1 == merge.data + merge.len) {
        expected = "two parts with a space between";
    } else {
        const bool decoded =
            byte_alphabet_decode(text_cut(&rest, space - merge.data), buffer, &left.len);
        text_cut(&rest, 1);
        right.data = buffer + left.len;
        if (!decoded || !byte_alphabet_decode(rest, buffer + left.len, &right.len))
            expected = "characters that stand for bytes";
    }
    if (expected)
        return err_bad_file(e, "%s element %zu: expected %s, found \"%.*s\"", MERGES_KEY, rank,
                            expected, text_width(merge), merge.data);
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
        return err_bad_file(e, "%s: expected fewer than %d elements, found %" PRIu64, MERGES_KEY,
                            INT32_MAX, merges->count);
    char *buffer = malloc(merges->bytes.len); /* more than the longest */
    struct symbol_pair *pairs = b->merging.pairs = calloc(merges->count, sizeof *pairs);
    enum status s = STATUS_OK;
    if (!buffer || !pairs)
        s = err_no_memory(e, "merges", merges->bytes.len + merges->count * sizeof *pairs);
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
        const char c = byte;
        int twin;
        b->byte_id[byte] = vocab_find(v, text_span(&c, 1), &twin);
        if (twin >= 0)
            return err_bad_file(
                e, "tokenizer.ggml.tokens: expected one token for byte 0x%02X, found %d and %d",
                byte, b->byte_id[byte], twin);
        b->lacks_bytes |= b->byte_id[byte] < 0;
    }
    TRY(read_merges(b, v, g, &n, e));
    b->n_merges = n;
    TRY(merging_init(&b->merging, b->merging.pairs, n, v->n, e));
    for (size_t i = 1; i < n; i++) {
        const struct symbol_pair *p = &b->merging.pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return err_bad_file(e,
                                "%s element %d: expected each pair once, found that of element %d",
                                MERGES_KEY, p->rank, p[-1].rank);
    }
    return STATUS_OK;
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
                return lacks_token(c->text, one.data - c->text.data, e);
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
