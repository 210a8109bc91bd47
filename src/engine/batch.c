#include "engine/batch.h"

#include <assert.h>

#include "model/kv_cache.h"

static bool continues(const struct batch_span *span, const struct batch_row *row)
{
    return row->sequence == span->sequence && row->position == span->first_position + span->n_rows;
}

/* Whether others read a panel that a row of sequence 0 goes to. */
static bool is_in_shared_panel(const struct batch_span *span, int n_shared)
{
    return span->sequence == 0 && span->first_position < kernel_padded(n_shared);
}

void batch_cut(struct batch *b, const struct batch_row *rows, int n, int n_shared,
               struct batch_span *spans)
{
    assert(n >= 1);
    *b = (struct batch){.rows = rows, .n_rows = n, .spans = spans};
    for (int r = 0; r < n; r++) {
        if (r == 0 || !continues(&spans[b->n_spans - 1], &rows[r]))
            spans[b->n_spans++] = (struct batch_span){
                .first_row = r, .sequence = rows[r].sequence, .first_position = rows[r].position};
        spans[b->n_spans - 1].n_rows++;
        b->n_logits += rows[r].wants_logits;
    }
    for (int i = 0; i < b->n_spans; i++) {
        struct batch_span *span = &spans[i];
        span->n_chunks = kv_cache_chunks(span->first_position + span->n_rows);
        span->first_item = b->items_per_head;
        b->items_per_head += span->n_chunks * span->n_rows;
        b->stores_first |= span->n_rows > 1 || is_in_shared_panel(span, n_shared);
    }
}

const struct batch_span *batch_span_of_item(const struct batch *b, int item)
{
    int low = 0, high = b->n_spans - 1;
    assert(item >= 0 && item < b->items_per_head);
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (b->spans[middle].first_item <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return &b->spans[low];
}
