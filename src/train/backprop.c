#include "train/backprop.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/causal.h"
#include "train/backprop_pass.h"

/* --- memory ---------------------------------------------------------------------------------- */

static float *take_rows(struct backprop *b, uint64_t rows, int n)
{
    return arena_take(&b->arena, rows, (uint64_t)n * sizeof(float));
}

/* Room for a matrix, or those of the heads, in panels along either dimension. */
static float *take_panels(struct backprop *b, const struct tensor_spec *spec)
{
    const int n = spec->n_matrices, rows = spec->rows / n;
    const uint64_t forward = (uint64_t)kernel_padded(rows) * (uint64_t)spec->cols;
    const uint64_t backward = (uint64_t)kernel_padded(spec->cols) * (uint64_t)rows;
    return arena_take(&b->arena, (uint64_t)n * (forward > backward ? forward : backward),
                      sizeof(float));
}

static struct saved take_saved(struct backprop *b, int l, uint64_t rows)
{
    const struct config *c = &b->config;
    return (struct saved){
        .x = take_rows(b, rows, c->d_model),
        .qkv = take_rows(b, rows, config_qkv_dim(c, l)),
        .kv = config_is_latent(c) ? take_rows(b, rows, pass_kv_dim(c)) : NULL,
        .heads = take_rows(b, rows, config_heads_dim(c)),
        .mid = take_rows(b, rows, c->d_model),
        .up = take_rows(b, rows, c->d_ff),
        .gate = ffn_is_gated(c->ffn) ? take_rows(b, rows, c->d_ff) : NULL,
        .softmax = take_rows(b, (uint64_t)b->n_sequences * (uint64_t)c->n_heads,
                             2 * causal_padded_length(b->length)),
    };
}

static void take_blocks(struct backprop *b, int widest, uint64_t rows)
{
    b->blocks = arena_take(&b->arena, (uint64_t)b->config.n_layers, sizeof *b->blocks);
    struct saved saved = {0};
    for (int l = 0; l < b->config.n_layers; l++) {
        if (l == 0 || !b->forward_only)
            saved = take_saved(b, b->forward_only ? widest : l, rows);
        if (b->blocks)
            b->blocks[l] = saved;
    }
    b->out = take_rows(b, rows, b->config.d_model);
}

static void take_matrices(struct backprop *b, int widest)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
        const struct tensor_spec spec = layout_weight(&b->config, role, widest);
        if (spec.form == FORM_MATRIX && layout_has(&b->config, role))
            b->panels[role] = take_panels(b, &spec);
    }
    const struct tensor_spec output = layout_weight(&b->config, ROLE_OUTPUT, 0);
    b->panels[ROLE_OUTPUT] = take_panels(b, &output);
    if (!b->forward_only)
        b->output_backward = take_panels(b, &output);
}

static void take_gradients(struct backprop *b, int widest, uint64_t rows)
{
    const struct config *c = &b->config;
    const int d = c->d_model;
    b->act = take_rows(b, rows, c->d_ff);
    b->dx = take_rows(b, rows, d);
    b->dmid = take_rows(b, rows, d);
    b->dx_dropped = b->dropping ? take_rows(b, rows, d) : b->dx;
    b->dmid_dropped = b->dropping ? take_rows(b, rows, d) : b->dmid;
    b->dnorm = take_rows(b, rows, d);
    b->dup = take_rows(b, rows, c->d_ff);
    b->dgate = ffn_is_gated(c->ffn) ? take_rows(b, rows, c->d_ff) : NULL;
    b->dheads = take_rows(b, rows, config_heads_dim(c));
    b->dqkv = take_rows(b, rows, config_qkv_dim(c, widest));
    if (config_is_latent(c))
        b->dkv = take_rows(b, rows, pass_kv_dim(c));
    b->stats = take_rows(b, rows, 2);
    if (c->position == POSITION_QUADRATIC)
        b->drel = arena_take(&b->arena, (uint64_t)b->n_sequences * (uint64_t)c->n_heads,
                             2 * sizeof *b->drel);
    if (b->taught)
        b->teacher_logits = take_rows(b, (uint64_t)b->head_rows, c->n_vocab);
}

/* Takes all buffers, or counts them (see base/mem.h): sizes are bounded by the config, and rows by
 * an int. */
static void take_all(struct backprop *b)
{
    const struct config *c = &b->config;
    const uint64_t rows = (uint64_t)b->n_sequences * (uint64_t)b->length;
    int widest = 0; /* the layer whose tensors and activations are the largest */
    for (int l = 1; l < c->n_layers; l++)
        if (config_qkv_dim(c, l) > config_qkv_dim(c, widest))
            widest = l;
    b->positions = positions_take(&b->arena, c, b->rope_factors, b->length);
    take_blocks(b, widest, rows);
    take_matrices(b, widest);
    b->norm = take_rows(b, rows, c->d_model);
    b->logits = take_rows(b, (uint64_t)b->head_rows, c->n_vocab);
    b->losses = take_rows(b, rows, 1);
    if (!b->forward_only)
        take_gradients(b, widest, rows);
    b->scratch = arena_take(&b->arena, (uint64_t)b->n_threads * b->scratch_floats, sizeof(float));
}

/* Floats of logits that exist at once. */
#define LOGITS_FLOATS ((size_t)4 << 20)

/* All but the buffers, and their count. */
static enum status describe(const struct backprop_params *p, int n_threads, struct backprop *b,
                            struct err *e)
{
    const struct config *c = p->config;
    assert(p->n_sequences >= 1 && p->length >= 1 && p->length <= c->n_ctx);
    const uint64_t rows = (uint64_t)p->n_sequences * (uint64_t)p->length;
    if (rows > INT32_MAX / 2)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: a batch of %d windows of %d tokens",
                       p->n_sequences, p->length);
    uint64_t head_rows = LOGITS_FLOATS / (uint64_t)c->n_vocab;
    head_rows = head_rows < ROW_BLOCK ? ROW_BLOCK : head_rows;
    /* For a row block's norm and activations, or for an item of attention. */
    const size_t row_block = ROW_BLOCK * (size_t)(c->d_model + c->d_ff);
    const size_t item = causal_scratch(c, p->length), most = row_block > item ? row_block : item;
    *b = (struct backprop){
        .config = *c,
        .n_sequences = p->n_sequences,
        .length = p->length,
        .forward_only = p->forward_only,
        .taught = p->taught,
        .dropping = p->dropping,
        .rope_factors = p->rope_factors,
        .kernels = p->kernels,
        .grad = grad_kernels_for(p->kernels),
        .n_threads = n_threads,
        .head_rows = (int)(rows < head_rows ? rows : head_rows),
        .scratch_floats = (most + KERNEL_LANES - 1) / KERNEL_LANES * KERNEL_LANES,
    };
    take_all(b);
    return STATUS_OK;
}

enum status backprop_plan(const struct backprop_params *p, int n_threads, size_t *bytes,
                          struct err *e)
{
    struct backprop b;
    TRY(describe(p, n_threads, &b, e));
    if (b.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the size of a batch's activations");
    *bytes = b.arena.used;
    return STATUS_OK;
}

enum status backprop_create(const struct backprop_params *p, struct pool *pool,
                            struct backprop **out, struct err *e)
{
    *out = NULL;
    struct backprop *b = malloc(sizeof *b);
    if (!b)
        return err_no_memory(e, "a training engine", sizeof *b);
    enum status s = describe(p, pool_n_threads(pool), b, e);
    if (s == STATUS_OK)
        s = arena_allocate(&b->arena, "the activations of a batch", e);
    if (s != STATUS_OK) {
        free(b);
        return s;
    }
    b->pool = pool;
    take_all(b);
    positions_reach(&b->positions, b->length);
    b->positions.factors = b->rope_factors = NULL;
    *out = b;
    return STATUS_OK;
}

void backprop_free(struct backprop *b)
{
    if (!b)
        return;
    arena_free(&b->arena);
    free(b);
}

/* --- embedding ------------------------------------------------------------------------------- */

static float embedding_scale(const struct config *c)
{
    return c->embedding_scale > 0 ? c->embedding_scale : 1;
}

static void embed_batch(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    const float scale = embedding_scale(&b->config);
    const float *learned = p->w->w[ROLE_POSITION_EMBD].weight;
    const struct rows share = rows_share(p, (struct rows){0, pass_rows(p)}, thread);
    for (int row = share.begin; row < share.end; row++) {
        const float *token = p->w->w[ROLE_TOKEN_EMBD].weight + (size_t)p->inputs[row] * d;
        const int t = row % b->length;
        const float *position =
            learned ? learned + (size_t)t * d : positions_vector(&b->positions, t);
        float *x = b->blocks[0].x + (size_t)row * d;
        for (size_t i = 0; i < d; i++)
            x[i] = scale * token[i];
        for (size_t i = 0; i < d && position; i++)
            x[i] += position[i];
    }
    float *x = rows_at(b->blocks[0].x, share, b->config.d_model);
    if (pass_drops(p))
        backprop_drop(p, 0, x, NULL, x, share);
}

/* Columns [begin, end) of a table's rows become zero. */
static void clear_columns(float *table, int rows, size_t d, int begin, int end)
{
    for (int r = 0; r < rows; r++)
        for (int i = begin; i < end; i++)
            table[(size_t)r * d + (size_t)i] = 0;
}

/* Each thread adds some columns of all rows, in order. */
static void embed_batch_backward(const struct pass *p, int thread)
{
    const struct backprop *b = p->b;
    const size_t d = (size_t)b->config.d_model;
    const float scale = embedding_scale(&b->config);
    struct param_view *g = p->gradient;
    float *tokens = g->w[ROLE_TOKEN_EMBD].weight, *positions = g->w[ROLE_POSITION_EMBD].weight;
    float *factors = g->w[ROLE_ROPE_FREQS].weight;
    if (pass_drops(p)) {
        const struct rows share = rows_share(p, (struct rows){0, pass_rows(p)}, thread);
        float *dx = rows_at(b->dx, share, b->config.d_model);
        backprop_drop(p, 0, dx, NULL, dx, share);
        pool_barrier(b->pool, thread);
    }
    int begin, end;
    pool_share(b->config.d_model, thread, b->n_threads, &begin, &end);
    if (g->w[ROLE_OUTPUT].weight != tokens)
        clear_columns(tokens, b->config.n_vocab, d, begin, end);
    if (positions)
        clear_columns(positions, b->config.n_ctx, d, begin, end);
    for (int row = 0; row < pass_rows(p); row++) {
        const float *dx = b->dx + (size_t)row * d;
        float *token = tokens + (size_t)p->inputs[row] * d;
        float *position = positions ? positions + (size_t)(row % b->length) * d : NULL;
        for (int i = begin; i < end; i++)
            token[i] += scale * dx[i];
        for (int i = begin; i < end && position; i++)
            position[i] += dx[i];
    }
    for (int i = 0; i < b->config.rope.n_dims / 2 && factors && thread == 0; i++)
        factors[i] = 0;
}

/* --- loss ------------------------------------------------------------------------------------ */

/* The logits of rows r, from b->norm, as rows of `logits`, whose first is row `chunk`. */
static struct view make_logits(const struct backprop *b, struct rows r, int chunk, float *logits)
{
    const struct rows in_chunk = {r.begin - chunk, r.end - chunk};
    const struct view out = view_of(logits, in_chunk, b->config.n_vocab);
    const struct affine map = {.panels = b->panels[ROLE_OUTPUT]};
    backprop_multiply(b, map, view_of(b->norm, r, b->config.d_model), out);
    return out;
}

/* Losses of the rows r; logits become the gradient of the mean loss over all rows. */
static void lose_rows(const struct pass *p, struct rows r, float *logits, float *teacher_logits)
{
    const struct backprop *b = p->b;
    const int n_vocab = b->config.n_vocab;
    const float scale = 1.0f / (float)pass_rows(p);
    const float share = p->teacher ? p->teacher_share : 0, rest = (1 - share) * scale;
    const float smooth = rest * p->label_smoothing / (float)n_vocab;
    for (int t = r.begin; t < r.end; t++) {
        float *row = logits + (size_t)(t - r.begin) * (size_t)n_vocab;
        const int target = p->targets[t];
        const float logit = row[target];
        b->losses[t] = b->grad->softmax(row, n_vocab, scale) - logit;
        row[target] -= rest * (1 - p->label_smoothing);
        for (int i = 0; i < n_vocab && smooth > 0; i++)
            row[i] -= smooth;
        if (!teacher_logits)
            continue;
        float *taught = teacher_logits + (size_t)(t - r.begin) * (size_t)n_vocab;
        b->grad->softmax(taught, n_vocab, share * scale);
        for (int i = 0; i < n_vocab; i++)
            row[i] -= taught[i];
    }
}

/* From the last block's output to the losses of the rows r of a chunk and, if there is a gradient,
 * to dx. */
static void lose_chunk(const struct pass *p, int chunk, struct rows r, int thread)
{
    struct backprop *b = p->b;
    (void)thread;
    const int d = b->config.d_model, last = 2 * b->config.n_layers;
    backprop_norm(p, last, r, rows_at(b->norm, r, d));
    const struct view logits = make_logits(b, r, chunk, b->logits);
    float *taught = p->teacher ? make_logits(p->teacher, r, chunk, b->teacher_logits).x : NULL;
    lose_rows(p, r, logits.x, taught);
    if (!p->gradient)
        return;
    const struct affine map = {.panels = b->output_backward};
    backprop_multiply(b, map, logits, view_of(b->dnorm, r, d));
    backprop_norm_backward(p, last, NULL, b->dx, r);
}

/* From b->out to b->losses and, if there is a gradient, to b->dx and the gradients of output and
 * last norm. Logits are made for head_rows rows at a time and become their own gradient in place.
 */
static void lose_batch(const struct pass *p, int thread)
{
    struct backprop *b = p->b;
    const int n_rows = pass_rows(p);
    assert(b->head_rows >= 1 && (!p->teacher || b->teacher_logits));
    for (int chunk = 0; chunk < n_rows; chunk += b->head_rows) {
        const int n = n_rows - chunk < b->head_rows ? n_rows - chunk : b->head_rows;
        const struct rows rows = {chunk, chunk + n};
        rows_each(p, rows, chunk, thread, lose_chunk);
        pool_barrier(b->pool, thread);
        if (!p->gradient)
            continue;
        const struct weight_sums sums = {
            .gradient = {.weight = p->gradient->w[ROLE_OUTPUT].weight},
            .dy = view_of(b->logits, (struct rows){0, n}, b->config.n_vocab),
            .x = view_of(b->norm, rows, b->config.d_model),
            .add = chunk > 0};
        backprop_weight_sums(b, &sums, thread);
        pool_barrier(b->pool, thread);
    }
    if (p->gradient)
        backprop_norm_sums(p, 2 * b->config.n_layers, thread);
}

/* --- a pass ---------------------------------------------------------------------------------- */

static void run_pass(void *arg, int thread)
{
    const struct pass *p = arg;
    struct backprop *b = p->b;
    backprop_pack(p, ROLE_OUTPUT, 0, false, thread);
    if (p->gradient)
        backprop_pack(p, ROLE_OUTPUT, 0, true, thread);
    embed_batch(p, thread);
    pool_barrier(b->pool, thread);
    for (int l = 0; l < b->config.n_layers; l++)
        backprop_block(p, l, thread);
    if (p->hidden_only) {
        const struct rows share = rows_share(p, (struct rows){0, pass_rows(p)}, thread);
        backprop_norm(p, 2 * b->config.n_layers, share, rows_at(b->norm, share, b->config.d_model));
        return;
    }
    lose_batch(p, thread);
    if (!p->gradient)
        return;
    for (int l = b->config.n_layers - 1; l >= 0; l--)
        backprop_block_backward(p, l, thread);
    embed_batch_backward(p, thread);
}

static double mean_loss(const struct pass *p)
{
    const int n = pass_rows(p);
    double sum = 0;
    for (int row = 0; row < n; row++)
        sum += (double)p->b->losses[row];
    return sum / n;
}

/* A forward pass without dropout. */
static struct pass pass_over(struct backprop *b, const struct param_view *weights,
                             const struct backprop_batch *batch)
{
    assert(batch->n_sequences >= 1 && batch->n_sequences <= b->n_sequences);
    return (struct pass){.b = b,
                         .w = weights,
                         .inputs = batch->inputs,
                         .targets = batch->targets,
                         .n_sequences = batch->n_sequences};
}

double backprop_loss(struct backprop *b, const struct param_view *weights,
                     const struct backprop_batch *batch)
{
    struct pass p = pass_over(b, weights, batch);
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}

double backprop_gradient(struct backprop *b, const struct param_view *weights,
                         const struct backprop_batch *batch, const struct backprop_teacher *teacher,
                         struct param_view *gradient)
{
    assert(!b->forward_only && (batch->dropout.share <= 0 || b->dropping));
    struct pass p = pass_over(b, weights, batch);
    p.dropout = p.attn_dropout = batch->dropout;
    p.attn_dropout.share = batch->attn_dropout;
    p.label_smoothing = batch->label_smoothing;
    p.gradient = gradient;
    if (teacher) {
        assert(b->taught && teacher->engine->length == b->length &&
               teacher->engine->n_threads == b->n_threads &&
               teacher->engine->config.n_vocab == b->config.n_vocab);
        p.teacher = teacher->engine;
        p.teacher_share = teacher->share;
        struct pass taught = pass_over(teacher->engine, teacher->weights, batch);
        taught.hidden_only = true;
        pool_run(teacher->engine->pool, run_pass, &taught);
    }
    pool_run(b->pool, run_pass, &p);
    return mean_loss(&p);
}
