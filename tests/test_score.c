/* The likeliest tokens against a full sort. */
#include <stdlib.h>

#include "base/rng.h"
#include "measure/eval.h"
#include "support.h"

#define N_VOCAB 300

static int by_rank(const void *a, const void *b)
{
    const struct token_score *x = a, *y = b;
    if (x->logprob > y->logprob || x->logprob < y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Few distinct values, so that there are many ties. */
TEST(top_is_that_of_a_full_sort, .loops = 2)
{
    float logits[N_VOCAB];
    struct token_score sorted[N_VOCAB], top[N_VOCAB];
    struct rng r;
    rng_seed(&r, 5, (uint64_t)_i);
    for (int i = 0; i < N_VOCAB; i++) {
        logits[i] = (float)(rng_u32(&r) % (_i ? 7 : 100000));
        sorted[i] = (struct token_score){i, (double)logits[i] - 2};
    }
    qsort(sorted, N_VOCAB, sizeof sorted[0], by_rank);
    for (int k = 0; k <= N_VOCAB; k += k < 10 ? 1 : 29) {
        score_top(logits, N_VOCAB, 2, k, top);
        for (int i = 0; i < k; i++) {
            ck_assert_int_eq(top[i].id, sorted[i].id);
            ck_assert_double_eq(top[i].logprob, sorted[i].logprob);
        }
    }
}
