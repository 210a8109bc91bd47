#include "engine/private.h"

#include "compute/elementary.h"

/* What a call of attention costs beside reading keys and values, in positions read. */
#define CALL_COST 32

/* --- batches --------------------------------------------------------------------------------- */

void batch_cut(struct batch *b, const struct batch_row *rows, int n, struct batch_span *spans)
{
    assert(n >= 1);
    *b = (struct batch){.rows = rows, .n_rows = n, .spans = spans};
    struct batch_span *span = spans;
    for (int r = 0; r < n; r++) {
        if (r == 0 || rows[r].sequence != span->sequence ||
            rows[r].position != span->first_position + span->n_rows) {
            span = &spans[b->n_spans++];
            *span = (struct batch_span){
                .first_row = r, .sequence = rows[r].sequence, .first_position = rows[r].position};
        }
        span->n_rows++;
        b->n_logits += rows[r].wants_logits;
        b->stores_first |= span->n_rows > 1;
    }
}

/* --- a layer --------------------------------------------------------------------------------- */

/*
 * A thread's work on one layer's attention of a batch of rows to the cache, for any number of K/V
 * heads. Query head h uses K/V head h / (n_heads / n_kv_heads), by layer: one K/V head is MQA,
 * n_heads of them are MHA. The query heads of a group are one work item, which rows of a prompt
 * share as long as they are few, so each K and V row is read once for all heads. The positions that
 * a row reads, from the first of its window on, are cut into chunks of KERNEL_CHUNK whose results
 * are merged in order; the cut depends on nothing but the position, so no bit depends on the
 * threads or on what else is in the batch.
 */
struct attention {
    const struct worker *k;
    struct forward *f; /* k's */
    int layer;
    float *scratch;                 /* [attend_floats] the thread's */
    int n_kv_heads;                 /* the layer's, see model/config.h */
    int group;                      /* the layer's query heads that share a K/V head */
    int key_dim, value_dim;         /* of a query and a key, and of a value and a head's result */
    size_t qkv_dim;                 /* of a row of work.qkv: Q, then K, then V */
    size_t partial_floats;          /* floats of a partial result: out [value_dim], max, sum */
    float scale;                    /* of scores */
    const float *additive;          /* [n_heads, key_dim] w of additive ones; NULL of others */
    const struct attend_bias *bias; /* [n_heads] of scores; NULL: none */
    struct head_turn q_turn, k_turn;
};

/* Where the chunks of a row at a position begin: at the first position of its window, or a few
 * before, in whole panels of keys. */
static int chunks_begin(const struct attention *a, int position)
{
    const int first = config_window_first(&a->f->kv.config, a->layer, position);
    return first / KERNEL_LANES * KERNEL_LANES;
}

/* How many chunks a row at a position reads. */
static int n_chunks_of(const struct attention *a, int position)
{
    return kv_cache_chunks(position + 1 - chunks_begin(a, position));
}

/* What attention of one K/V head costs for a row at a position against a chunk: the positions that
 * it reads and a constant for the call; 0 if the row has no such chunk. */
static int item_cost(const struct attention *a, int position, int chunk)
{
    const int n = position + 1 - chunks_begin(a, position) - chunk * KERNEL_CHUNK;
    return n <= 0 ? 0 : CALL_COST + MIN(n, KERNEL_CHUNK);
}

/* What attention of one K/V head costs for all rows of a span, all chunks together. */
static int64_t span_cost(const struct attention *a, const struct batch_span *span)
{
    int64_t cost = 0;
    for (int p = span->first_position; p < span->first_position + span->n_rows; p++)
        cost += p + 1 - chunks_begin(a, p) + CALL_COST * n_chunks_of(a, p);
    return cost;
}

static float *partial_of(const struct attention *a, int row, int head, int chunk)
{
    const size_t max_chunks = kv_cache_chunks(a->f->kv.shape.cap);
    const size_t kv_row = (size_t)(head / a->group) * a->f->batch.n_rows + row;
    const size_t index = (kv_row * a->group + head % a->group) * max_chunks + chunk;
    return a->f->work.partials + index * a->partial_floats;
}

/* --- new keys and values --------------------------------------------------------------------- */

static void store_row(const struct attention *a, int kv_head, int row)
{
    const struct config *c = &a->f->kv.config;
    const struct batch_row *r = &a->f->batch.rows[row];
    const float *keys = a->f->work.qkv + row * a->qkv_dim + config_q_dim(c);
    const float *k = keys + (size_t)kv_head * a->key_dim;
    const float *v = keys + (size_t)a->n_kv_heads * a->key_dim + (size_t)kv_head * a->value_dim;
    positions_turn(&a->k_turn, r->position, k, 1, a->scratch);
    kv_cache_put(&a->f->kv, a->f->kernels, (struct kv_slot){r->sequence, a->layer, kv_head},
                 r->position, a->scratch, v);
}

/* --- weights --------------------------------------------------------------------------------- */

static float *weights_of(const struct attention *a, int row, int head)
{
    const size_t index = (size_t)row * a->f->kv.config.n_heads + head;
    return a->f->work.weights + index * a->f->kv.shape.cap;
}

/* exp of a number that is not positive, with the same bits on every machine. */
static double exp_of(double x)
{
    return elementary_power(2.718281828459045235, x);
}

/* --- work items ------------------------------------------------------------------------------ */

/* The query heads of one K/V head, of n_rows rows that follow one another, against one chunk of
 * their sequence. */
static void attend_chunk(const struct attention *a, const struct batch_span *span, int kv_head,
                         int chunk, int row_of_span, int n_rows)
{
    const int row = span->first_row + row_of_span;
    const int position = span->first_position + row_of_span;
    const int chunk_first = chunks_begin(a, position) + chunk * KERNEL_CHUNK;
    const int n_first = MIN(position + 1 - chunk_first, KERNEL_CHUNK);
    const int n = MIN(position + n_rows - chunk_first, KERNEL_CHUNK);
    const int in_window = config_window_first(&a->f->kv.config, a->layer, position);
    /* Only this item reads the newest position, so nobody has to be waited for. */
    if (!a->f->batch.stores_first && chunk_first + n == position + 1)
        store_row(a, kv_head, row);

    const size_t dim = a->key_dim, group = a->group, n_heads = group * n_rows;
    float *scaled = a->scratch;
    for (size_t h = 0; h < n_heads; h++) {
        const float *q = a->f->work.qkv + (row + h / group) * a->qkv_dim;
        positions_turn(&a->q_turn, position + h / group, q + (kv_head * group + h % group) * dim,
                       a->scale, scaled + h * dim);
    }
    a->f->kernels->hadamard(scaled, n_heads * dim, a->f->kv.key_rotation);

    /* The keys that are read after a span's last chunk: of the next sequence, or head. (With many
     * rows they are those of the chunk itself, which are near.) */
    const struct batch *b = &a->f->batch;
    const void *next_keys = NULL;
    const bool wraps = span + 1 == b->spans + b->n_spans;
    if (span->n_rows == 1 && chunk_first + n == position + 1 && kv_head + wraps < a->n_kv_heads) {
        const struct batch_span *next = wraps ? b->spans : span + 1;
        const struct kv_slot slot = {next->sequence, a->layer, kv_head + wraps};
        next_keys = kv_cache_chunk(&a->f->kv, slot, chunks_begin(a, next->first_position), 1).k;
    }

    float *partial = partial_of(a, row, kv_head * a->group, chunk);
    const size_t stride = kv_cache_chunks(a->f->kv.shape.cap) * a->partial_floats;
    const struct kv_slot slot = {span->sequence, a->layer, kv_head};
    const struct attend args = {
        .kv = kv_cache_chunk(&a->f->kv, slot, chunk_first, n),
        .n_hidden = chunk == 0 ? in_window - chunk_first : 0,
        .n_first = n_first,
        .n_heads = n_heads,
        .group = group,
        .q = scaled,
        .additive = a->additive ? a->additive + kv_head * group * dim : NULL,
        .scores = scaled + n_heads * dim,
        .out = partial,
        .max = partial + a->value_dim,
        .sum = partial + a->value_dim + 1,
        .stride = stride,
        .bias = a->bias ? a->bias + kv_head * group : NULL,
        .distance = position - chunk_first,
        .next = next_keys,
    };
    a->f->kernels->attend(&args);
    if (a->f->watch)
        for (size_t h = 0; h < n_heads; h++) /* attend has made exponentials of them */
            memcpy(weights_of(a, row + h / group, kv_head * group + h % group) + chunk_first,
                   args.scores + h * KERNEL_CHUNK,
                   attend_positions(&args, h) * sizeof *args.scores);
}

/* Returns how many rows of a span, from `row` on, read a chunk together: as many as have
 * JOINED_HEADS heads, if no window hides a position from the last of these, or one. */
static int joined_rows(const struct attention *a, const struct batch_span *span, int row)
{
    const int last = MIN(row + MAX(JOINED_HEADS / a->group, 1), span->n_rows) - 1;
    const int ends = config_window_first(&a->f->kv.config, a->layer, span->first_position + last);
    return ends == 0 ? last + 1 - row : 1;
}

/* At least as many chunks as any row up to a position reads: one before the last may begin in an
 * earlier panel. */
static int most_chunks(const struct attention *a, int last)
{
    return MIN(n_chunks_of(a, last) + 1, kv_cache_chunks(last + 1));
}

/* Runs this thread's work items (K/V head, chunk, row), which fill work.partials. Laid end to end,
 * head after head, each as long as it costs, the items make a line that is cut into a range for
 * each thread: a thread runs those that start in its range. Rows of a span vary fastest, while a
 * chunk of the cache stays near; rows that can read it together are one call. */
static void attend_range(const struct attention *a)
{
    const struct batch *b = &a->f->batch;
    const int thread = a->k->thread, n_threads = a->k->n_threads;
    int64_t per_head = 0;
    for (int i = 0; i < b->n_spans; i++)
        per_head += span_cost(a, &b->spans[i]);
    const int64_t all = a->n_kv_heads * per_head;
    const int64_t begin = all * thread / n_threads, end = all * (thread + 1) / n_threads;
    for (int head = begin / per_head; head * per_head < end; head++) {
        int64_t at = head * per_head;
        for (int i = 0; i < b->n_spans && at < end; i++) {
            const struct batch_span *span = &b->spans[i];
            const int64_t span_end = at + span_cost(a, span);
            const int last = span->first_position + span->n_rows - 1;
            for (int chunk = 0; chunk < most_chunks(a, last) && span_end > begin; chunk++) {
                for (int row = 0, n; row < span->n_rows && at < end; row += n) {
                    const int position = span->first_position + row;
                    const int cost = item_cost(a, position, chunk);
                    const bool runs = cost > 0 && at >= begin;
                    const int most = runs ? joined_rows(a, span, row) : 1;
                    at += cost;
                    for (n = 1; n < most && at < end; n++)
                        at += item_cost(a, position + n, chunk);
                    if (runs)
                        attend_chunk(a, span, head, chunk, row, n);
                }
            }
            at = span_end;
        }
    }
}

/* Joins the chunks of one head of a row into out [value_dim]; after a barrier. */
static void merge_chunks(const struct attention *a, int row, int head, float *out)
{
    const int dim = a->value_dim;
    const int n_chunks = n_chunks_of(a, a->f->batch.rows[row].position);
    const float *partial = partial_of(a, row, head, 0);
    a->f->kernels->merge(out, partial, partial + dim, partial + dim + 1, n_chunks,
                         a->partial_floats, dim);
}

static struct attention layer_attention(const struct worker *k, const struct block *b, int layer)
{
    struct forward *f = k->f;
    const struct config *c = &f->kv.config;
    const struct norm *q = &b->w[ROLE_ATTN_Q_NORM].norm, *k_norm = &b->w[ROLE_ATTN_K_NORM].norm;
    const struct positions *positions = &f->work.positions;
    return (struct attention){
        .k = k,
        .f = f,
        .scratch = f->work.attend + k->thread * f->work.attend_floats,
        .layer = layer,
        .n_kv_heads = config_kv_heads(c, layer),
        .group = config_group(c, layer),
        .key_dim = c->head_dim,
        .value_dim = config_value_dim(c),
        .partial_floats = config_value_dim(c) + 2,
        .qkv_dim = config_qkv_dim(c, layer),
        .scale = config_score_scale(c),
        .additive = b->w[ROLE_ATTN_SCORE].table,
        .bias = b->bias,
        .q_turn = {positions, f->kernels, c, layer, q->gain, q->bias},
        .k_turn = {positions, f->kernels, c, layer, k_norm->gain, k_norm->bias}};
}

/* Makes attention weights of the scores' exponentials and shows them to who watches. A chunk's
 * exponentials are relative to its own largest score: a factor for each chunk brings them to the
 * largest of all and divides by the sum, as the merge of the values does. All threads wait until
 * the watch has returned, because the heads' results are then written over `input` [n_rows,
 * d_model], which Q, K and V are products of. */
static void show_weights(const struct attention *a, const float *input)
{
    const struct forward *f = a->f;
    const int n_rows = f->batch.n_rows, n_heads = f->kv.config.n_heads;
    const size_t stride = a->partial_floats;
    const struct range items = worker_range(a->k, n_rows * n_heads);
    for (int i = items.begin; i < items.end; i++) {
        const int row = i / n_heads, head = i % n_heads;
        const int n = f->batch.rows[row].position + 1, first = chunks_begin(a, n - 1);
        const int n_chunks = n_chunks_of(a, n - 1);
        const float *partial = partial_of(a, row, head, 0) + a->value_dim; /* max, sum */
        float *weights = weights_of(a, row, head);
        float most = partial[0];
        double sum = 0;
        for (int c = 1; c < n_chunks; c++)
            most = MAX(partial[c * stride], most);
        for (int c = 0; c < n_chunks; c++)
            sum += exp_of((double)partial[c * stride] - (double)most) *
                   (double)partial[c * stride + 1];
        memset(weights, 0, first * sizeof *weights);
        for (int c = 0; c < n_chunks; c++) {
            const double factor = exp_of((double)partial[c * stride] - (double)most) / sum;
            const int begin = first + c * KERNEL_CHUNK;
            for (int t = begin; t < n && t < begin + KERNEL_CHUNK; t++)
                weights[t] = (float)((double)weights[t] * factor);
        }
    }
    worker_meet(a->k);
    const struct attention_weights w = {.layer = a->layer,
                                        .rows = f->batch.rows,
                                        .n_rows = n_rows,
                                        .n_heads = f->kv.config.n_heads,
                                        .stride = f->kv.shape.cap,
                                        .weights = f->work.weights,
                                        .input = input,
                                        .stream = f->work.x,
                                        .qkv_stride = a->qkv_dim,
                                        .queries = f->work.qkv,
                                        .q_turn = a->q_turn,
                                        .kv = &f->kv,
                                        .kernels = f->kernels,
                                        .without = f->without};
    if (a->k->thread == 0)
        f->watch->take(f->watch->arg, &w);
    worker_meet(a->k);
}

/* Returns the results [n_rows, heads_dim], chunks joined, heads side by side: this thread's rows
 * are complete. */
static float *join_heads(const struct attention *a)
{
    const struct forward *f = a->f;
    const struct config *c = &f->kv.config;
    const struct range rows = worker_rows(a->k);
    const size_t row_dim = config_heads_dim(c);
    float *heads = f->work.input + worker_first(a->k) * f->work.input_dim;
    for (int r = rows.begin; r < rows.end; r++) {
        float *row = heads + r * row_dim;
        for (int h = 0; h < c->n_heads; h++)
            merge_chunks(a, r, h, row + h * a->value_dim);
        f->kernels->hadamard(row, row_dim, f->kv.value_rotation);
        for (int h = 0; h < c->n_heads; h++)
            head_ablation_end(f->without, c, a->layer, h, row + h * a->value_dim);
    }
    return heads;
}

void block_attention(const struct worker *k, const struct block *b, int layer)
{
    struct forward *f = k->f;
    const struct config *c = &f->kv.config;
    const struct workspace *w = &f->work;
    const struct attention a = layer_attention(k, b, layer);
    /* Where every thread has as many whole K/V heads, whose rows of Q, K and V are whole panels, it
     * can go from those rows through attention without waiting. */
    const bool whole_heads = a.n_kv_heads % k->n_threads == 0 && c->head_dim % KERNEL_LANES == 0 &&
                             config_value_dim(c) % KERNEL_LANES == 0;

    /* Queries, keys and values. */
    const float *input = stage_input(k, &b->w[ROLE_ATTN_NORM].norm, w->input, w->input_dim);
    if (w->parallel) /* of the same stream, before attention adds to it */
        stage_input(k, &b->w[layout_ffn_norm(c)].norm, w->parallel, c->d_model);
    const struct matrix *qkv = &b->w[ROLE_ATTN_QKV].matrix;
    if (whole_heads) { /* the rows that belong to this thread's K/V heads */
        const struct matmul m = stage_product(k, qkv, input, w->qkv, EPILOGUE_STORE);
        /* Panels of a group's queries, a head's key and its value. */
        const int n_heads = a.n_kv_heads / k->n_threads, first = k->thread * n_heads;
        const int panels = c->head_dim / KERNEL_LANES, group = a.group * panels;
        const int v_panels = config_value_dim(c) / KERNEL_LANES;
        const int keys = c->n_heads * panels, values = keys + a.n_kv_heads * panels;
        f->kernels->matmul(&m, first * group, (first + n_heads) * group);
        f->kernels->matmul(&m, keys + first * panels, keys + (first + n_heads) * panels);
        f->kernels->matmul(&m, values + first * v_panels, values + (first + n_heads) * v_panels);
    } else {
        stage_multiply(k, qkv, input, w->qkv, EPILOGUE_STORE);
        worker_meet(k);
    }
    stage_tap(k, TAP_NORMED, input, c->d_model);

    /* Keys and values into the cache. */
    if (f->batch.stores_first) {
        const struct range items = worker_range(k, a.n_kv_heads * k->n_rows);
        for (int i = items.begin; i < items.end; i++)
            store_row(&a, i / k->n_rows, i % k->n_rows);
        if (!whole_heads)
            worker_meet(k);
    }

    /* Scores, softmax and weighted values, chunk by chunk. */
    attend_range(&a);
    worker_meet(k);
    if (f->watch)
        show_weights(&a, input);

    /* Output projection, added to the residual stream. */
    const float *results = join_heads(&a);
    stage_add(k, &b->w[ROLE_ATTN_OUTPUT].matrix, results);
    stage_tap(k, TAP_HEADS, results, config_heads_dim(c));
    stage_end_residual(k, &b->w[ROLE_ATTN_POST_NORM].norm, &b->w[ROLE_ATTN_OUTPUT_NORM].norm,
                       f->taps.at[TAP_MIDDLE]);
}
