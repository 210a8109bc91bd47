#include "text/bpe.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/contract.h"
#include "text/byte_alphabet.h"

#define MERGES_KEY "tokenizer.ggml.merges"

/* Sorted and searched, not hashed: a hostile table of merges has no collisions to arrange. */
struct bpe_pair {
    int32_t left, right;
    int32_t rank;
};

/* --- reading the merges ---------------------------------------------------------------------- */

/* Bytes that no assigned character's UTF-8 has: those that are never in UTF-8, and the first
 * bytes of the planes 4 to 11, which are empty. */
static bool may_lack_token(int byte)
{
    return byte == 0xc0 || byte == 0xc1 || byte == 0xf1 || byte == 0xf2 || byte >= 0xf5;
}

static enum status find_bytes(struct bpe *b, const struct vocab *v, struct err *e)
{
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        int twin;
        b->byte_id[byte] = vocab_find(v, (struct text){&c, 1}, &twin);
        if (twin >= 0)
            return err_set(e, STATUS_BAD_FILE,
                           "tokenizer.ggml.tokens: expected one token for byte 0x%02X, found %d "
                           "and %d",
                           (unsigned)byte, b->byte_id[byte], twin);
        if (b->byte_id[byte] >= 0)
            continue;
        b->lacks_bytes = true;
        if (!may_lack_token(byte))
            return err_set(e, STATUS_BAD_FILE,
                           "tokenizer.ggml.tokens: expected a token for every byte, found none "
                           "for byte 0x%02X",
                           (unsigned)byte);
    }
    return STATUS_OK;
}

static enum status merge_error(struct err *e, size_t rank, struct text merge, const char *expected)
{
    return err_set(e, STATUS_BAD_FILE, "%s element %zu: expected %s, found \"%.*s\"", MERGES_KEY,
                   rank, expected, text_width(merge), merge.data);
}

/* The token of some bytes of a merge. */
static enum status find_part(const struct vocab *v, struct text bytes, size_t rank,
                             struct text merge, const char *expected, int32_t *id, struct err *e)
{
    int twin;
    *id = vocab_find(v, bytes, &twin);
    if (twin >= 0)
        return err_set(e, STATUS_BAD_FILE, "%s element %zu: expected %s, found tokens %d and %d",
                       MERGES_KEY, rank, expected, *id, twin);
    return *id < 0 ? merge_error(e, rank, merge, expected) : STATUS_OK;
}

/* `buffer` has room for the merge's bytes. */
static enum status read_merge(struct bpe *b, const struct vocab *v, size_t rank, struct text merge,
                              char *buffer, struct err *e)
{
    /* From index 1: a part may start with a space, were it written raw. */
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    const size_t cut = space ? (size_t)(space - merge.data) : 0;
    if (!space || cut + 1 == merge.len)
        return merge_error(e, rank, merge, "two parts with a space between");

    const struct text left = {merge.data, cut};
    const struct text right = {space + 1, merge.len - cut - 1};
    size_t left_len;
    size_t right_len;
    if (!byte_alphabet_decode(left, buffer, &left_len) ||
        !byte_alphabet_decode(right, buffer + left_len, &right_len))
        return merge_error(e, rank, merge, "characters that stand for bytes");

    struct bpe_pair *pair = &b->pairs[rank];
    pair->rank = (int32_t)rank;
    enum status s = find_part(v, (struct text){buffer, left_len}, rank, merge,
                              "its left part to be one token", &pair->left, e);
    if (s == STATUS_OK)
        s = find_part(v, (struct text){buffer + left_len, right_len}, rank, merge,
                      "its right part to be one token", &pair->right, e);
    if (s == STATUS_OK)
        s = find_part(v, (struct text){buffer, left_len + right_len}, rank, merge,
                      "its result to be one token", &b->result[rank], e);
    return s;
}

static enum status read_merges(struct bpe *b, const struct vocab *v,
                               const struct gguf_value *merges, struct err *e)
{
    size_t longest = 0;
    struct gguf_cursor cursor = {0};
    struct text merge;
    while (gguf_next_text(merges, &cursor, &merge))
        longest = merge.len > longest ? merge.len : longest;
    char *buffer = malloc(longest + 1);
    if (!buffer)
        return err_no_memory(e, "reading the merges", longest + 1);

    enum status s = STATUS_OK;
    cursor = (struct gguf_cursor){0};
    for (size_t rank = 0; s == STATUS_OK && gguf_next_text(merges, &cursor, &merge); rank++)
        s = read_merge(b, v, rank, merge, buffer, e);
    free(buffer);
    return s;
}

static int compare_pairs(const void *left, const void *right)
{
    const struct bpe_pair *a = left;
    const struct bpe_pair *b = right;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    if (a->right != b->right)
        return a->right < b->right ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static enum status index_pairs(struct bpe *b, size_t n_merges, int n_tokens, struct err *e)
{
    if (n_merges > 0)
        qsort(b->pairs, n_merges, sizeof *b->pairs, compare_pairs);
    for (size_t i = 0; i < n_merges; i++) {
        const struct bpe_pair *p = &b->pairs[i];
        if (i > 0 && p[-1].left == p->left && p[-1].right == p->right)
            return err_set(e, STATUS_BAD_FILE,
                           "%s element %d: expected each pair once, found that of element %d",
                           MERGES_KEY, p->rank, p[-1].rank);
        b->first[p->left + 1]++;
    }
    for (int id = 0; id < n_tokens; id++)
        b->first[id + 1] += b->first[id];
    return STATUS_OK;
}

/* NULL where there are no merges; then the array's element type means nothing. */
static enum status get_merges(const struct gguf *g, const struct gguf_value **merges, struct err *e)
{
    *merges = NULL;
    const struct gguf_value *any = gguf_find(g, MERGES_KEY);
    if (!any || (any->kind == GGUF_ARRAY && any->count == 0))
        return STATUS_OK;
    const enum status s = gguf_get_array(g, MERGES_KEY, GGUF_STRING, merges, NULL, e);
    if (s == STATUS_OK && (*merges)->count >= INT32_MAX)
        return err_set(e, STATUS_BAD_FILE, "%s: expected fewer than %d elements, found %llu",
                       MERGES_KEY, INT32_MAX, (unsigned long long)(*merges)->count);
    return s;
}

enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e)
{
    *b = (struct bpe){0};
    const struct gguf_value *merges;
    enum status s = get_merges(g, &merges, e);
    if (s == STATUS_OK)
        s = find_bytes(b, v, e);
    if (s != STATUS_OK)
        return s;

    const size_t n = merges ? (size_t)merges->count : 0;
    b->result = calloc(n + 1, sizeof *b->result);
    b->pairs = calloc(n + 1, sizeof *b->pairs);
    b->first = calloc((size_t)v->n + 1, sizeof *b->first);
    if (!b->result || !b->pairs || !b->first)
        return err_no_memory(e, "merges",
                             (n + 1) * (sizeof *b->result + sizeof *b->pairs) +
                                 ((size_t)v->n + 1) * sizeof *b->first);
    if (merges)
        s = read_merges(b, v, merges, e);
    return s == STATUS_OK ? index_pairs(b, n, v->n, e) : s;
}

void bpe_free(struct bpe *b)
{
    free(b->result);
    free(b->pairs);
    free(b->first);
    *b = (struct bpe){0};
}

/* --- merging --------------------------------------------------------------------------------- */

#define NO_RANK INT32_MAX

/*
 * A piece of n bytes being merged, in two arrays of n. A token that starts at byte i and covers k
 * bytes has its id in spans[i], and -k in spans[i + 1] and spans[i + k - 1] if k > 1 (so that
 * both neighbours are found at once); the rest of its spans mean nothing. ranks[i] is the rank of
 * the merge with the token after it, NO_RANK if there is none and for bytes inside a token.
 *
 * The queue is a tree of minima over ranks: an entry of level l + 1 is the least of FAN entries
 * of level l. The least rank is at the top; going down to the first child that has it ends at
 * the leftmost pair. So there are no entries to go stale, and it costs 4/15 byte a byte of text.
 */
#define FAN        16 /* a cache line of ranks */
#define MAX_LEVELS 8  /* FAN^8 is 2^32 */

struct piece {
    const struct bpe *bpe;
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
static size_t piece_layout(struct piece *p, int32_t *ranks, size_t n)
{
    size_t used = 0;
    p->n = n;
    p->top = -1;
    do {
        if (p->top >= 0)
            n = padded(n) / FAN;
        p->top++;
        p->level[p->top] = ranks ? ranks + used : NULL;
        p->count[p->top] = n;
        used += padded(n);
    } while (n > FAN);
    return used;
}

static int32_t least_rank(const int32_t *r)
{
    int32_t m = r[0];
    for (int i = 1; i < FAN; i++)
        m = r[i] < m ? r[i] : m;
    return m;
}

static int32_t rank_of(const struct bpe *b, int32_t left, int32_t right)
{
    assert(left >= 0 && right >= 0);
    const struct bpe_pair *p = b->pairs + b->first[left];
    uint32_t n = b->first[left + 1] - b->first[left];
    if (n == 0)
        return NO_RANK;
    while (n > 1) { /* the last pair whose right token is not above the wanted one */
        const uint32_t half = n / 2;
        p = p[half].right <= right ? p + half : p;
        n -= half;
    }
    return p->right == right ? p->rank : NO_RANK;
}

static void piece_start(struct piece *p, struct text text)
{
    const struct bpe *b = p->bpe;
    int32_t *ranks = p->level[0];
    for (size_t i = 0; i < p->n; i++)
        p->spans[i] = b->byte_id[(unsigned char)text.data[i]];
    for (size_t i = 0; i + 1 < p->n; i++)
        ranks[i] = rank_of(b, p->spans[i], p->spans[i + 1]);
    ranks[p->n - 1] = NO_RANK;
    for (int l = 0;; l++) {
        for (size_t i = p->count[l]; i < padded(p->count[l]); i++)
            p->level[l][i] = NO_RANK;
        if (l == p->top)
            return;
        for (size_t i = 0; i < p->count[l + 1]; i++)
            p->level[l + 1][i] = least_rank(p->level[l] + i * FAN);
    }
}

static void set_rank(struct piece *p, size_t i, int32_t rank)
{
    assert(i < p->n);
    p->level[0][i] = rank;
    for (int l = 0; l < p->top; l++) {
        i /= FAN;
        const int32_t now = least_rank(p->level[l] + i * FAN);
        if (p->level[l + 1][i] == now)
            return;
        p->level[l + 1][i] = now;
    }
}

/* The leftmost pair of the least rank; false if nothing is left to merge. */
static bool next_pair(const struct piece *p, size_t *at)
{
    const int32_t rank = least_rank(p->level[p->top]);
    if (rank == NO_RANK)
        return false;
    size_t i = 0;
    for (int l = p->top; l >= 0; l--) {
        i *= FAN;
        while (p->level[l][i] != rank)
            i++;
    }
    *at = i;
    return true;
}

/* Where the token that starts at i ends. */
static size_t span_end(const struct piece *p, size_t i)
{
    return i + 1 == p->n || p->spans[i + 1] >= 0 ? i + 1 : i + (size_t)-p->spans[i + 1];
}

/* Where the token that ends at i > 0 starts. */
static size_t span_start(const struct piece *p, size_t i)
{
    return p->spans[i - 1] >= 0 ? i - 1 : i - (size_t)-p->spans[i - 1];
}

static void merge_span(struct piece *p, size_t at)
{
    const size_t right = span_end(p, at);
    assert(right < p->n && p->level[0][at] != NO_RANK);
    const size_t end = span_end(p, right);
    const int32_t id = p->bpe->result[p->level[0][at]];
    p->spans[at] = id;
    p->spans[at + 1] = p->spans[end - 1] = -(int32_t)(end - at);
    set_rank(p, right, NO_RANK);
    set_rank(p, at, end < p->n ? rank_of(p->bpe, id, p->spans[end]) : NO_RANK);
    if (at > 0) {
        const size_t before = span_start(p, at);
        set_rank(p, before, rank_of(p->bpe, p->spans[before], id));
    }
}

static enum status scratch_reserve(struct bpe_scratch *s, size_t n, struct err *e)
{
    if (n <= s->cap)
        return STATUS_OK;
    bpe_scratch_free(s); /* nothing in it outlives a piece */
    const size_t cap = n + n / 4 + 256;
    struct piece p;
    const size_t n_ranks = piece_layout(&p, NULL, cap);
    s->spans = calloc(cap, sizeof *s->spans);
    s->ranks = calloc(n_ranks, sizeof *s->ranks);
    if (!s->spans || !s->ranks) {
        bpe_scratch_free(s);
        return err_no_memory(e, "tokenizing", cap * sizeof *s->spans + n_ranks * sizeof *s->ranks);
    }
    s->cap = cap;
    return STATUS_OK;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->spans);
    free(s->ranks);
    *s = (struct bpe_scratch){0};
}

static bool has_all_tokens(const struct bpe *b, struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (b->byte_id[(unsigned char)text.data[i]] < 0)
            return false;
    return true;
}

enum status bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, struct text text,
                       struct id_list *out, struct err *e)
{
    assert(text.len > 0);
    assert_costly(has_all_tokens(b, text));
    if (text.len == 1)
        return id_list_add(out, b->byte_id[(unsigned char)text.data[0]], e);
    if (text.len > INT32_MAX)
        return err_set(e, STATUS_NO_MEMORY,
                       "tokenizing: a word of %zu bytes is too long to be merged", text.len);
    enum status s = scratch_reserve(scratch, text.len, e);
    if (s != STATUS_OK)
        return s;

    struct piece p = {.bpe = b, .spans = scratch->spans};
    piece_layout(&p, scratch->ranks, text.len);
    piece_start(&p, text);
    for (size_t at; next_pair(&p, &at);)
        merge_span(&p, at);
    for (size_t i = 0; s == STATUS_OK && i < p.n; i = span_end(&p, i))
        s = id_list_add(out, p.spans[i], e);
    return s;
}

enum status id_list_add(struct id_list *list, int32_t id, struct err *e)
{
    assert(id >= 0 && list->len <= list->cap);
    if (list->len == list->cap) {
        const size_t cap = list->cap + list->cap / 2 + 64;
        size_t bytes = SIZE_MAX;
        int32_t *ids = size_of_array(cap, sizeof *ids, &bytes) ? realloc(list->ids, bytes) : NULL;
        if (!ids)
            return err_no_memory(e, "token ids", bytes);
        list->ids = ids;
        list->cap = cap;
    }
    list->ids[list->len++] = id;
    return STATUS_OK;
}
