#include "engine/batch.h"

#include <assert.h>

#include "model/kv_cache.h"

/* Of a call of attention, in positions: about what the rest of it takes. */
#define CALL_COST 32

static bool continues(const struct batch_span *span, const struct batch_row *row)
{
    return row->sequence == span->sequence && row->position == span->first_position + span->n_rows;
}

int batch_item_cost(const struct batch_span *span, int chunk, int row)
{
    const int n = span->first_position + row + 1 - chunk * KERNEL_CHUNK;
    return n <= 0 ? 0 : CALL_COST + (n < KERNEL_CHUNK ? n : KERNEL_CHUNK);
}

static int64_t span_cost(const struct batch_span *span)
{
    int64_t cost = 0;
    for (int chunk = 0; chunk < span->n_chunks; chunk++)
        for (int row = 0; row < span->n_rows; row++)
            cost += batch_item_cost(span, chunk, row);
    return cost;
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
        b->cost_per_head += span_cost(span);
        span->cost = b->cost_per_head;
        b->stores_first |= span->n_rows > 1 || is_in_shared_panel(span, n_shared);
    }
}
