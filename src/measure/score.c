#include "measure/score.h"

#include <stdbool.h>

/* Whether a comes after b in the list. */
static bool is_after(struct token_score a, struct token_score b)
{
    return a.logprob < b.logprob || (a.logprob <= b.logprob && a.id > b.id);
}

/* Restores the heap of n whose root is the last of the list, when item i may belong deeper. */
static void sift_score_down(struct token_score *heap, int n, int i)
{
    for (;;) {
        int last = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (is_after(heap[child], heap[last]))
                last = child;
        if (last == i)
            return;
        const struct token_score swapped = heap[i];
        heap[i] = heap[last];
        heap[last] = swapped;
        i = last;
    }
}

void score_top(const float *logits, int n, double log_sum, int k, struct token_score *out)
{
    if (k == 0)
        return;
    for (int i = 0; i < k; i++)
        out[i] = (struct token_score){i, (double)logits[i] - log_sum};
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_score_down(out, k, i);
    for (int i = k; i < n; i++) {
        const struct token_score t = {i, (double)logits[i] - log_sum};
        if (is_after(out[0], t)) {
            out[0] = t;
            sift_score_down(out, k, 0);
        }
    }
    /* The root is the last of those that remain: it goes to the end. */
    for (int end = k - 1; end > 0; end--) {
        const struct token_score root = out[0];
        out[0] = out[end];
        out[end] = root;
        sift_score_down(out, end, 0);
    }
}
