#include "measure/score.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/sampler.h"

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

/* With room for the logits of a block, and for a row's list. The row is the state between one
 * token's logits and the next token. */
static enum status visit_tokens(struct session *session, const struct score_spec *spec,
                                float *logits, struct token_score *top, struct err *e)
{
    const int block = session_block(session), n = spec->n_tokens;
    struct score_row row = {.top = top};
    for (int i = 0; i < n; i++) {
        if (i % block == 0)
            TRY(session_feed(session, 0, spec->tokens + i, n - i < block ? n - i : block, logits,
                             e));
        row.position = i;
        row.id = spec->tokens[i];
        row.logits = logits + (size_t)(i % block) * (size_t)spec->n_vocab;
        TRY(spec->visit(spec->arg, &row, e));
        if (i + 1 == n)
            break;
        const int32_t next = spec->tokens[i + 1];
        double log_sum = 0;
        TRY(err_in(e, logits_log_sum(row.logits, spec->n_vocab, &log_sum, e), "after position %d",
                   i));
        assert(next >= 0 && next < spec->n_vocab);
        row.predicted = true;
        row.logprob = (double)row.logits[next] - log_sum;
        row.n_top = spec->n_top;
        score_top(row.logits, spec->n_vocab, log_sum, spec->n_top, top);
    }
    return STATUS_OK;
}

enum status score_tokens(struct session *s, const struct score_spec *spec, struct err *e)
{
    const size_t block =
        (size_t)(session_block(s) < spec->n_tokens ? session_block(s) : spec->n_tokens);
    const size_t bytes = (size_t)spec->n_top * sizeof(struct token_score) +
                         block * (size_t)spec->n_vocab * sizeof(float);
    struct token_score *top = malloc(bytes);
    if (!top)
        return err_no_memory(e, "the logits of a block", bytes);
    const enum status result = visit_tokens(s, spec, (float *)(top + spec->n_top), top, e);
    free(top);
    return result;
}
