#include "engine/ngrams.h"

#include <assert.h>
#include <string.h>

/* Copies looked at: what repeats itself a lot does so with the last ones. */
#define MOST_LOOKED_AT 32

void ngrams_take(struct ngrams *g, struct arena *a, int cap)
{
    g->cap = cap;
    g->bits = 4;
    while (g->bits < 24 && 1 << g->bits < cap)
        g->bits++;
    g->heads = arena_take(a, (uint64_t)1 << g->bits, sizeof *g->heads);
    g->before = arena_take(a, (uint64_t)cap, sizeof *g->before);
}

void ngrams_reset(struct ngrams *g)
{
    memset(g->heads, 0, ((size_t)1 << g->bits) * sizeof *g->heads);
}

/* Of the pair that ends before a position; Knuth's multiplicative hash (TAOCP 3, 6.4). */
static uint32_t hash_before(const struct ngrams *g, const int32_t *text, int at)
{
    const uint32_t pair = (uint32_t)text[at - 2] * 0x85ebca6bu + (uint32_t)text[at - 1];
    return (pair * 0x9e3779b1u) >> (32 - g->bits);
}

void ngrams_add(struct ngrams *g, const int32_t *text, int at)
{
    assert(at >= 0 && at < g->cap);
    if (at < NGRAMS_LEAST)
        return;
    int32_t *head = &g->heads[hash_before(g, text, at)];
    g->before[at] = *head;
    *head = at;
}

/* Tokens before `at` that are those at the end of text [n]. */
static int copy_length(const int32_t *text, int n, int at)
{
    const int most = at < NGRAMS_MOST ? at : NGRAMS_MOST;
    int length = 0;
    while (length < most && text[at - 1 - length] == text[n - 1 - length])
        length++;
    return length;
}

int ngrams_find(const struct ngrams *g, const int32_t *text, int n, int *length)
{
    int found = 0;
    *length = NGRAMS_LEAST - 1;
    if (n < NGRAMS_LEAST)
        return 0;
    int at = g->heads[hash_before(g, text, n)];
    for (int i = 0; at > 0 && i < MOST_LOOKED_AT && *length < NGRAMS_MOST; i++) {
        const int here = copy_length(text, n, at);
        if (here > *length) {
            *length = here;
            found = at;
        }
        at = g->before[at];
    }
    return found;
}
