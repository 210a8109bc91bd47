#include "text/merging.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

/* --- the table ------------------------------------------------------------------------------- */

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

/* NULL: they do not merge. */
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

/* --- a run ----------------------------------------------------------------------------------- */

#define NO_RANK INT32_MAX

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

static int32_t least_rank(const int32_t *r)
{
    int32_t m = r[0];
    for (int i = 1; i < FAN; i++)
        m = r[i] < m ? r[i] : m;
    return m;
}

static int32_t rank_of(const struct merging *m, int32_t left, int32_t right)
{
    const struct symbol_pair *p = find_pair(m, left, right);
    return p ? p->rank : NO_RANK;
}

static void run_start(struct run *r)
{
    int32_t *ranks = r->level[0];
    for (size_t i = 0; i + 1 < r->n; i++)
        ranks[i] = rank_of(r->merging, r->spans[i], r->spans[i + 1]);
    ranks[r->n - 1] = NO_RANK;
    for (int l = 0;; l++) {
        for (size_t i = r->count[l]; i < padded(r->count[l]); i++)
            r->level[l][i] = NO_RANK;
        if (l == r->top)
            return;
        for (size_t i = 0; i < r->count[l + 1]; i++)
            r->level[l + 1][i] = least_rank(r->level[l] + i * FAN);
    }
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

/* Where the symbol that ends at i > 0 starts. */
static size_t span_start(const struct run *r, size_t i)
{
    return r->spans[i - 1] >= 0 ? i - 1 : i - (size_t)-r->spans[i - 1];
}

static void merge_span(struct run *r, size_t at)
{
    const size_t right = merge_end(r->spans, r->n, at);
    assert(right < r->n);
    const struct symbol_pair *p = find_pair(r->merging, r->spans[at], r->spans[right]);
    const size_t end = merge_end(r->spans, r->n, right);
    const int32_t made = p->result;
    r->spans[at] = made;
    r->spans[at + 1] = r->spans[end - 1] = -(int32_t)(end - at);
    set_rank(r, right, NO_RANK);
    set_rank(r, at, end < r->n ? rank_of(r->merging, made, r->spans[end]) : NO_RANK);
    if (at > 0) {
        const size_t before = span_start(r, at);
        set_rank(r, before, rank_of(r->merging, r->spans[before], made));
    }
}

void merge_run(const struct merging *m, struct merge_scratch *s, size_t n)
{
    assert(n > 0 && n <= s->cap);
    struct run r = {.merging = m, .spans = s->spans};
    run_layout(&r, s->ranks, n);
    run_start(&r);
    for (size_t at; next_pair(&r, &at);)
        merge_span(&r, at);
}

/* --- working memory -------------------------------------------------------------------------- */

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
