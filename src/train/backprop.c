#include "train/backprop.h"

#include "engine/causal.h"
#include "train/backprop_pass.h"

/* --- memory ---------------------------------------------------------------------------------- */

/* A buffer [rows, n] to be taken; n 0: it is not wanted. */
struct buffer {
    struct matrix_view *to;
    int n;
};

/* The windows of a half of a batch of n. */
static struct range half_of(const struct backprop *b, int n, int half)
{
    return pool_range(n, half, b->n_halves);
}

/* Takes the buffers of a list from the arena; a row of NULL ends the list. */
static void take_run_scratch(struct backprop *b, int rows, const struct buffer *list)
{
    for (; list->to; list++)
        if (list->n > 0)
            *list->to = (struct matrix_view){arena_take(&b->arena, rows, list->n * sizeof(float)),
                                             rows, list->n, list->n};
}

/* Room for a matrix of layer l in panels. */
static float *take_panels(struct backprop *b, enum tensor_role role, int l)
{
    const struct tensor_spec spec = layout_weight(&b->config, role, l);
    if (spec.form != FORM_MATRIX || !layout_has(&b->config, role))
        return NULL;
    return arena_take(&b->arena, (uint64_t)kernel_padded(spec.rows) * spec.cols, sizeof(float));
}

/* What the forward pass keeps of each layer for the way back; without one all layers share the
 * memory of the widest. */
static void take_layers(struct backprop *b, int rows, int widest)
{
    const struct config *c = &b->config;
    const bool back = !b->forward_only;
    struct saved saved = {.softmax = NULL};
    ARENA_TAKE(b->blocks, &b->arena, c->n_layers);
    for (int l = 0; l < c->n_layers; l++) {
        if (l == 0 || back) {
            take_run_scratch(
                b, rows,
                (const struct buffer[]){{&saved.x, c->d_model},
                                        {&saved.qkv, config_qkv_dim(c, back ? l : widest)},
                                        {&saved.heads, config_heads_dim(c)},
                                        {&saved.mid, c->d_model},
                                        {&saved.up, c->d_ff},
                                        {&saved.gate, ffn_kinds[c->ffn].is_gated ? c->d_ff : 0},
                                        {&saved.added[0], c->parts.added_norms * c->d_model},
                                        {&saved.added[1], c->parts.added_norms * c->d_model},
                                        {NULL, 0}});
            saved.softmax = arena_take(&b->arena, (uint64_t)b->n_at_once * c->n_heads,
                                       2 * causal_padded_length(b->length) * sizeof(float));
        } else if (b->keeps_streams) {
            take_run_scratch(b, rows, (const struct buffer[]){{&saved.x, c->d_model}, {NULL, 0}});
        }
        if (back && (l == 0 || backprop_in_parts(b)))
            for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
                saved.panels[role] = take_panels(b, role, backprop_in_parts(b) ? l : widest);
        if (b->blocks)
            b->blocks[l] = saved;
    }
}

/* What the backward pass works with: the output's matrix in panels, and the gradients of a block.
 */
static void take_gradients(struct backprop *b, int rows)
{
    const struct config *c = &b->config;
    const int d = c->d_model, dropped = b->dropping ? d : 0;
    /* Attention's gradient from behind and that of its input, which takes its place, are both
     * needed at once. */
    const bool parallel = c->placement == PLACEMENT_PARALLEL;
    b->output_panels = take_panels(b, ROLE_OUTPUT, 0);
    take_run_scratch(
        b, b->head_rows,
        (const struct buffer[]){{&b->teacher_logits, b->taught ? c->n_vocab : 0}, {NULL, 0}});
    take_run_scratch(b, rows,
                     (const struct buffer[]){{&b->dx, d},
                                             {&b->dmid, d},
                                             {&b->dx_dropped, dropped},
                                             {&b->dmid_dropped, parallel ? d : dropped},
                                             {&b->dnorm, d},
                                             {&b->dup, c->d_ff},
                                             {&b->dheads, config_heads_dim(c)},
                                             {&b->stats, 2},
                                             {&b->dadded[0], c->parts.added_norms * d},
                                             {&b->dadded[1], c->parts.added_norms * d},
                                             {&b->added_stats[0], c->parts.added_norms * 2},
                                             {&b->added_stats[1], c->parts.added_norms * 2},
                                             {NULL, 0}});
    take_run_scratch(b, rows_n(half_of(b, b->n_sequences, 0)) * b->length,
                     (const struct buffer[]){{&b->dembedded, d}, {NULL, 0}});
    const bool both_halves = b->n_halves == 2 && (b->twin || b->pool == b->threads);
    for (int half = 0; half < 2 && both_halves; half++)
        b->of_half[half] = param_view_take(&b->arena, b->list, b->list->n_trained, c);
    if (b->twin)
        ARENA_TAKE(b->published, &b->arena, b->list->n_trained);
    if (!b->dropping)
        b->dx_dropped = b->dx;
    if (!b->dropping && !parallel)
        b->dmid_dropped = b->dmid;
    if (layout_has(c, b->table))
        ARENA_TAKE(b->dtable, &b->arena, (uint64_t)b->n_at_once * c->n_heads * b->table_cols);
    if (c->parts.qk_norms)
        ARENA_TAKE(b->dnorms, &b->arena, 4 * (uint64_t)b->n_at_once * c->n_heads * c->head_dim);
}

/* Takes all buffers, or counts them (see base/mem.h): sizes are bounded by the config, and rows by
 * an int. */
static void take_passes(struct backprop *b, const float *rope_factors)
{
    const struct config *c = &b->config;
    const int rows = b->n_at_once * b->length;
    int widest = 0; /* the layer whose activations are the largest */
    for (int l = 1; l < c->n_layers; l++)
        if (config_qkv_dim(c, l) > config_qkv_dim(c, widest))
            widest = l;
    b->table = c->score == SCORE_ADDITIVE ? ROLE_ATTN_SCORE : ROLE_ATTN_REL;
    b->table_cols = layout_weight(c, b->table, 0).cols;
    b->positions = positions_take(&b->arena, c, rope_factors, b->length);
    take_layers(b, rows, widest);
    take_run_scratch(b, b->head_rows, (const struct buffer[]){{&b->logits, c->n_vocab}, {NULL, 0}});
    take_run_scratch(b, rows,
                     (const struct buffer[]){{&b->out, c->d_model},
                                             {&b->embedded, c->parts.embedding_norm * c->d_model},
                                             {&b->norm, c->d_model},
                                             {&b->losses, 1},
                                             {NULL, 0}});
    if (!b->forward_only)
        take_gradients(b, rows);
    ARENA_TAKE(b->scratch, &b->arena, b->n_threads * b->scratch_floats);
}

/* Floats of logits that exist at once: each time the whole output matrix is read, and its gradient
 * read and written. */
#define LOGITS_FLOATS ((size_t)16 << 20)

/* A part of a batch has at least so many rows for each thread, and as many as a row is wide. Its
 * activations stay nearer than those of the whole batch; but for each part the gradient of every
 * matrix is read and written once more, and the matrices of all blocks are in panels at once. */
#define PART_ROWS 128

/* The most floats of a gradient of which each half of a batch has its own. */
#define HALVES_FLOATS ((size_t)4 << 20)

/* Whether each sum over rows is one chain in their order, however they are cut into parts. A matrix
 * that all blocks share has the rows of one block behind those of another, and a norm that both
 * branches of a block read has the rows of both; tables of heads and norms of heads are summed as
 * doubles, and rounded. */
static bool sums_are_chains(const struct config *c)
{
    return !c->shared && !c->parts.one_norm && !c->parts.qk_norms &&
           !layout_has(c, ROLE_ATTN_SCORE) && !layout_has(c, ROLE_ATTN_REL);
}

/* Whether a batch is summed in halves: where each is a part or more, and the model is small.
 * Threads that share a part read one another's rows to sum over all of them, and on processors
 * without a cache in common it then takes long to write these rows anew (see lanes_stream_upto): a
 * step of nanoGPT's run took 29 ms there and 22 ms elsewhere. A thread that has a half to itself
 * takes 22 ms everywhere. */
static bool sums_in_halves(const struct backprop_spec *p)
{
    const uint64_t rows = (uint64_t)(p->n_sequences / 2) * p->length;
    return !p->forward_only && !p->taught && sums_are_chains(p->config) &&
           rows >= (uint64_t)MAX(PART_ROWS, p->config->d_model) &&
           p->list->n_trained <= HALVES_FLOATS;
}

/* The windows of a part of n. A teacher's parts are those of the model that it teaches. */
static int windows_at_once(const struct backprop *b, int n)
{
    const uint64_t rows = (uint64_t)n * b->length;
    const uint64_t least = (uint64_t)b->n_threads * MAX(PART_ROWS, b->config.d_model);
    const bool in_parts = !b->forward_only && sums_are_chains(&b->config);
    return (n - 1) / (in_parts ? (int)MAX(rows / least, 1) : 1) + 1;
}

/* Makes a training engine whose passes the threads of `pool` make. It owns `twin` (NULL: none) from
 * then on; on failure the caller still does. */
static enum status create(const struct backprop_spec *p, int n_halves, struct pool *pool,
                          struct backprop *twin, struct backprop **out, struct err *e)
{
    const struct config *c = p->config;
    const uint64_t head_rows = MAX(LOGITS_FLOATS / c->n_vocab, ROW_BLOCK);
    /* For a row block's activations, or for an item of attention. */
    const size_t row_block = ROW_BLOCK * (size_t)c->d_ff;
    const size_t item = causal_scratch(c, p->length), most = MAX(row_block, item);
    struct backprop *b;
    TRY_ZEROED(b, 1, "a training engine", e);
    b->config = *c;
    b->list = p->list;
    b->n_sequences = p->n_sequences;
    b->n_halves = n_halves;
    b->twin = twin;
    b->length = p->length;
    b->forward_only = p->forward_only;
    b->dropping = p->dropping;
    b->taught = p->taught;
    b->keeps_streams = p->keeps_streams;
    b->kernels = p->kernels;
    b->threads = p->pool;
    b->pool = pool;
    b->grad = p->kernels->grad;
    b->n_threads = pool_n_threads(pool);
    b->n_at_once = windows_at_once(b, rows_n(half_of(b, p->n_sequences, 0)));
    b->head_rows = MIN((uint64_t)b->n_at_once * p->length, head_rows);
    b->scratch_floats = (most + KERNEL_LANES - 1) / KERNEL_LANES * KERNEL_LANES;
    take_passes(b, NULL);
    *out = b;
    return STATUS_OK;
}

enum status backprop_create(const struct backprop_spec *p, struct backprop **out, struct err *e)
{
    const int n_halves = sums_in_halves(p) ? 2 : 1;
    const bool twins = n_halves == 2 && pool_n_threads(p->pool) == 2;
    assert(p->n_sequences >= 1 && p->length >= 1 && p->length <= p->config->n_ctx);
    *out = NULL;
    if ((uint64_t)p->n_sequences * p->length > INT32_MAX / 2)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: a batch of %d windows of %d tokens",
                       p->n_sequences, p->length);
    if (!twins)
        return create(p, n_halves, p->pool, NULL, out, e);
    struct backprop *twin;
    TRY(create(p, n_halves, NULL, NULL, &twin, e));
    const enum status s = create(p, n_halves, NULL, twin, out, e);
    if (s != STATUS_OK)
        backprop_free(twin);
    return s;
}

size_t backprop_bytes(const struct backprop *b)
{
    return b->arena.used + (b->twin ? backprop_bytes(b->twin) : 0);
}

enum status backprop_start(struct backprop *b, const float *rope_factors, struct err *e)
{
    if (b->twin)
        TRY(backprop_start(b->twin, rope_factors, e));
    TRY(arena_allocate(&b->arena, "the activations and gradients of a batch", e));
    take_passes(b, rope_factors);
    positions_reach(&b->positions, b->length);
    b->positions.factors = NULL;
    return STATUS_OK;
}

void backprop_free(struct backprop *b)
{
    if (!b)
        return;
    backprop_free(b->twin);
    arena_free(&b->arena);
    free(b);
}

/* --- embedding ------------------------------------------------------------------------------- */

static float embedding_scale(const struct config *c)
{
    return c->embedding_scale > 0 ? c->embedding_scale : 1;
}

/* x [d] = the token's row of the embedding, scaled. */
static void embed_token(const struct pass *p, int token, float *x)
{
    const size_t d = p->b->config.d_model;
    const float *w = p->w->w[ROLE_TOKEN_EMBD].weight, scale = embedding_scale(&p->b->config);
    const size_t lane = token % KERNEL_LANES, step = p->b->forward_only ? KERNEL_LANES : 1;
    w += p->b->forward_only ? (token - lane) * d + lane : token * d;
    for (size_t i = 0; i < d; i++)
        x[i] = scale * w[i * step];
}

static struct norm_use embedding_norm(const struct pass *p)
{
    const bool is_norm = p->b->config.parts.embedding_norm;
    return backprop_norm_of(p, is_norm ? ROLE_TOKEN_EMBD_NORM : TENSOR_ROLES, -1,
                            is_norm ? p->b->embedded : p->b->blocks[0].x);
}

/* The gradient of the embedding's sums; behind the last part of a half each thread adds some
 * columns of all its rows, in order, to the embedding's. */
static void embed_batch_backward(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = b->config.d_model, half = p->half.begin * b->length;
    const size_t first = pass_first_row(p) - half;
    const float scale = embedding_scale(&b->config);
    const struct range rows = rows_of_thread(p, all_rows(p), thread);
    const struct norm_use norm = embedding_norm(p);
    float *tokens = p->gradient->w[ROLE_TOKEN_EMBD].weight;
    float *positions = p->gradient->w[ROLE_POSITION_EMBD].weight;
    if (pass_drops(p))
        backprop_drop(p, 0, rows_view(b->dx, rows).x, NULL, rows);
    if (norm.is_norm)
        backprop_norm_backward(p, &norm, b->dx, b->stats, (struct matrix_view){.x = NULL}, b->dmid,
                               rows);
    memcpy(b->dembedded.x + (first + rows.begin) * d,
           rows_view(norm.is_norm ? b->dmid : b->dx, rows).x, rows_n(rows) * d * sizeof(float));
    pool_barrier(b->pool, thread);
    if (norm.is_norm)
        backprop_norm_sums(p, &norm, b->dx, b->stats, thread);
    if (!tokens || p->windows.end < p->half.end)
        return;
    const struct range own = pool_range(b->config.d_model, thread, b->n_threads);
    for (int row = 0; row < rows_n(p->half) * b->length; row++) {
        const float *dx = b->dembedded.x + row * d;
        float *token = tokens + p->batch->inputs[half + row] * d;
        for (int i = own.begin; i < own.end; i++)
            token[i] += scale * dx[i];
        if (positions)
            for (int i = own.begin; i < own.end; i++)
                positions[row % b->length * d + i] += dx[i];
    }
}

/* --- loss ------------------------------------------------------------------------------------ */

/* The logits of rows r, from b->norm, as rows of `logits`, whose first is row `chunk`. */
static struct matrix_view make_logits(const struct backprop *b, const struct param_view *w,
                                      struct range r, int chunk, struct matrix_view logits)
{
    const struct matrix_view out =
        rows_view(logits, (struct range){r.begin - chunk, r.end - chunk});
    const struct affine map = {.panels = pass_panels(b, w, ROLE_OUTPUT, 0),
                               .bias = w->w[ROLE_OUTPUT].bias};
    backprop_multiply(b, map, rows_view(b->norm, r), out);
    return out;
}

/* From the last block's output to the losses of the rows r of a chunk and, if there is a gradient,
 * to dx: logits become the gradient of the mean loss over all rows. */
static void lose_chunk(const struct pass *p, int chunk, struct range r, int thread)
{
    const struct backprop *b = p->b;
    const struct norm_use last = backprop_last_norm(p);
    const int n_vocab = b->config.n_vocab;
    const float scale = 1.0f / (float)pass_batch_rows(p);
    const struct backprop *teacher = p->gradient ? p->batch->teacher : NULL;
    const float text = p->batch->loss.text * scale;
    const float share = teacher ? p->batch->loss.teacher * scale : 0;
    const float smoothing = p->batch->label_smoothing;
    const float smooth = text * smoothing / (float)n_vocab;
    (void)thread;
    backprop_norm(p, &last, r, rows_view(b->norm, r).x);
    const struct matrix_view logits = make_logits(b, p->w, r, chunk, b->logits);
    float *taught =
        teacher ? make_logits(teacher, p->batch->teacher_weights, r, chunk, b->teacher_logits).x
                : NULL;
    for (int t = r.begin; t < r.end; t++) {
        float *row = logits.x + (size_t)(t - r.begin) * n_vocab;
        const int target = p->batch->targets[pass_first_row(p) + t];
        const float logit = row[target];
        b->losses.x[t] = b->grad->softmax(row, n_vocab, text + share) - logit;
        row[target] -= text * (1 - smoothing);
        if (smooth > 0)
            for (int i = 0; i < n_vocab; i++)
                row[i] -= smooth;
        if (!taught)
            continue;
        b->grad->softmax(taught, n_vocab, share);
        for (int i = 0; i < n_vocab; i++)
            row[i] -= taught[i];
        taught += n_vocab;
    }
    if (!p->gradient)
        return;
    const struct affine map = {.matrix = p->w->w[ROLE_OUTPUT].weight};
    backprop_multiply(b, map, logits, rows_view(b->dnorm, r));
    backprop_norm_backward(p, &last, b->dnorm, b->stats, (struct matrix_view){.x = NULL}, b->dx, r);
}

/* --- a pass ---------------------------------------------------------------------------------- */

/* Returns the first of a thread's floats of a gradient, and sets *n to their number. */
static size_t own_floats(const struct param_list *list, struct pool *pool, int thread, size_t *n)
{
    const int n_lines = (int)(list->n_trained / KERNEL_LANES);
    const struct range lines = pool_range(n_lines, thread, pool_n_threads(pool));
    *n = (size_t)rows_n(lines) * KERNEL_LANES;
    return (size_t)lines.begin * KERNEL_LANES;
}

static void clear_gradient(const struct pass *p, int thread)
{
    size_t n;
    const size_t first = own_floats(p->b->list, p->b->pool, thread, &n);
    memset(p->gradient->flat + first, 0, n * sizeof *p->gradient->flat);
}

static void run_pass(void *arg, int thread)
{
    const struct pass *p = arg;
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const size_t d = c->d_model;
    const float *learned = p->w->w[ROLE_POSITION_EMBD].weight;
    const struct range rows = rows_of_thread(p, all_rows(p), thread);
    const struct norm_use norm = embedding_norm(p), last = backprop_last_norm(p);
    if (p->gradient && p->windows.begin == p->half.begin)
        clear_gradient(p, thread);
    if (!b->forward_only && p->is_first) {
        backprop_pack(p, ROLE_OUTPUT, 0, thread);
        for (int l = 0; l < c->n_layers && backprop_in_parts(b); l++)
            backprop_pack_block(p, l, thread);
    }
    for (int row = rows.begin; row < rows.end; row++) {
        const int t = row % b->length;
        const float *position = learned ? learned + t * d : positions_vector(&b->positions, t);
        float *x = norm.x.x + row * d;
        embed_token(p, p->batch->inputs[pass_first_row(p) + row], x);
        if (position)
            for (size_t i = 0; i < d; i++)
                x[i] += position[i];
    }
    float *embedded = rows_view(b->blocks[0].x, rows).x;
    if (norm.is_norm)
        backprop_norm(p, &norm, rows, embedded);
    if (pass_drops(p))
        backprop_drop(p, 0, embedded, NULL, rows);
    pool_barrier(b->pool, thread);
    for (int l = 0; l < c->n_layers; l++)
        backprop_block(p, l, thread);
    if (p->hidden_only) {
        backprop_norm(p, &last, rows, rows_view(b->norm, rows).x);
        return;
    }
    /* Makes b->losses and, if there is a gradient, b->dx and the gradients of the output matrix and
     * the last norm. Logits exist for head_rows rows at a time and become their own gradient. */
    for (int chunk = 0; chunk < pass_rows(p); chunk += b->head_rows) {
        const int n = MIN(pass_rows(p) - chunk, b->head_rows);
        const struct range of_chunk = {chunk, chunk + n};
        rows_each(p, of_chunk, chunk, thread, lose_chunk);
        pool_barrier(b->pool, thread);
        if (!p->gradient)
            continue;
        backprop_weight_sums(b, p->gradient->w[ROLE_OUTPUT],
                             rows_view(b->logits, (struct range){0, n}),
                             rows_view(b->norm, of_chunk), thread);
        pool_barrier(b->pool, thread);
    }
    if (!p->gradient)
        return;
    backprop_norm_sums(p, &last, b->dnorm, b->stats, thread);
    pool_barrier(b->pool, thread);
    for (int l = c->n_layers - 1; l >= 0; l--)
        backprop_block_backward(p, l, thread);
    embed_batch_backward(p, thread);
}

/* --- a batch --------------------------------------------------------------------------------- */

/* A batch on its way through backprop_run. */
struct run {
    struct backprop *b;
    const struct param_view *weights;
    const struct backprop_batch *batch;
    struct param_view *gradient; /* NULL: loss only */
    double losses[2];            /* of the halves' rows */
};

static void run_half(void *arg, int half)
{
    struct run *run = arg;
    struct backprop *b = half == 1 && run->b->twin ? run->b->twin : run->b;
    struct backprop *t = run->gradient ? run->batch->teacher : NULL;
    struct pass pass = {.b = b,
                        .w = run->weights,
                        .batch = run->batch,
                        .half = half_of(b, run->batch->n_sequences, half),
                        .gradient = run->gradient && b->n_halves > 1 ? &run->b->of_half[half]
                                                                     : run->gradient,
                        .is_first = half == 0 || b != run->b};
    for (int first = pass.half.begin; first < pass.half.end; first += b->n_at_once) {
        pass.windows = (struct range){first, MIN(first + b->n_at_once, pass.half.end)};
        if (t) {
            struct pass taught = {.b = t,
                                  .w = run->batch->teacher_weights,
                                  .batch = run->batch,
                                  .windows = pass.windows,
                                  .hidden_only = true};
            pool_run(t->pool, run_pass, &taught);
        }
        pool_run(b->pool, run_pass, &pass);
        pass.is_first = false;
        for (int row = 0; row < pass_rows(&pass); row++)
            run->losses[half] += (double)b->losses.x[row];
    }
    if (!run->gradient || !run->b->twin)
        return;
    size_t n;
    const size_t first = own_floats(run->b->list, run->b->threads, !half, &n);
    b->grad->publish(run->b->published + first, pass.gradient->flat + first, n);
}

/* Adds up this thread's floats of both halves' gradients. With a twin one half is this thread's,
 * and the other thread has published of its own what is added here. */
static void join_halves(void *arg, int thread)
{
    const struct run *run = arg;
    const struct backprop *b = run->b;
    size_t n;
    const size_t first = own_floats(b->list, b->threads, thread, &n);
    const float *one = b->of_half[b->twin ? thread : 0].flat;
    const float *other = b->twin ? b->published : b->of_half[1].flat;
    b->grad->add(run->gradient->flat + first, one + first, other + first, n);
}

double backprop_run(struct backprop *b, const struct param_view *weights,
                    const struct backprop_batch *batch, struct param_view *gradient)
{
    struct run run = {b, weights, batch, gradient, {0, 0}};
    const struct backprop *t = gradient ? batch->teacher : NULL;
    assert(batch->n_sequences >= 1 && batch->n_sequences <= b->n_sequences);
    assert(!gradient || (!b->forward_only && batch->n_sequences == b->n_sequences &&
                         (batch->dropout.share <= 0 || b->dropping)));
    assert(!t || (b->taught && t->length == b->length && t->n_threads == b->n_threads &&
                  t->config.n_vocab == b->config.n_vocab && t->n_at_once >= b->n_at_once));
    if (b->twin)
        pool_run(b->threads, run_half, &run);
    else
        for (int half = 0; half < b->n_halves; half++)
            run_half(&run, half);
    if (gradient && b->n_halves > 1)
        pool_run(b->threads, join_halves, &run);
    return (run.losses[0] + run.losses[1]) / ((double)batch->n_sequences * b->length);
}
