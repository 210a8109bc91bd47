#include "base/mem.h"
#include "text/private.h"

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

/* Returns the pair of two symbols; NULL if they do not merge. */
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
