#include "measure/score.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
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

/* The state between one token's logits and the next token. */
struct scorer {
    const int32_t *tokens;
    int n, n_vocab, n_top;
    struct token_score *top;
    double logprob; /* of the next token */
    score_visit *visit;
    void *arg;
};

/* Visits token `position`, then turns its logits into what they say about the next one. */
static enum status score_one(struct scorer *c, int position, const float *logits, struct err *e)
{
    const bool predicted = position > 0;
    const struct score_row row = {.position = position,
                                  .id = c->tokens[position],
                                  .predicted = predicted,
                                  .logprob = predicted ? c->logprob : 0,
                                  .top = c->top,
                                  .n_top = predicted ? c->n_top : 0,
                                  .logits = logits};
    enum status s = c->visit(c->arg, &row, e);
    if (s != STATUS_OK || position + 1 == c->n)
        return s;
    double log_sum = 0;
    s = logits_log_sum(logits, c->n_vocab, &log_sum, e);
    if (s != STATUS_OK) {
        char where[48];
        snprintf(where, sizeof where, "after position %d", position);
        err_prefix(e, where);
        return s;
    }
    c->logprob = (double)logits[c->tokens[position + 1]] - log_sum;
    score_top(logits, c->n_vocab, log_sum, c->n_top, c->top);
    return STATUS_OK;
}

static enum status score_blocks(struct scorer *c, struct session *session, float *logits, int block,
                                struct err *e)
{
    enum status s = STATUS_OK;
    for (int at = 0; at < c->n && s == STATUS_OK; at += block) {
        const int n = c->n - at < block ? c->n - at : block;
        s = session_feed(session, 0, c->tokens + at, n, logits, e);
        for (int i = 0; i < n && s == STATUS_OK; i++)
            s = score_one(c, at + i, logits + (size_t)i * (size_t)c->n_vocab, e);
    }
    return s;
}

enum status score_tokens(struct session *s, int n_vocab, const int32_t *tokens, int n, int top,
                         score_visit *visit, void *arg, struct err *e)
{
    if (n > session_cap(s) - session_len(s, 0))
        return err_set(e, STATUS_USAGE, "%d tokens; the context has room for %d", n,
                       session_cap(s) - session_len(s, 0));
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return err_set(e, STATUS_USAGE, "token %d is %d; expected ids from 0 to %d", i,
                           (int)tokens[i], n_vocab - 1);
    const int block = session_block(s) < n ? session_block(s) : n;
    size_t logits_bytes, top_bytes;
    if (!size_of_array((uint64_t)block * (uint64_t)n_vocab, sizeof(float), &logits_bytes) ||
        !size_of_array((uint64_t)top + 1, sizeof(struct token_score), &top_bytes))
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the logits of %d tokens", block);
    float *logits = malloc(logits_bytes);
    struct scorer c = {.tokens = tokens,
                       .n = n,
                       .n_vocab = n_vocab,
                       .n_top = top,
                       .top = malloc(top_bytes),
                       .visit = visit,
                       .arg = arg};
    enum status result;
    if (!logits || !c.top)
        result = err_no_memory(e, "the logits of a block", logits_bytes + top_bytes);
    else
        result = score_blocks(&c, s, logits, block, e);
    free(logits);
    free(c.top);
    return result;
}
