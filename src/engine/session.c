#include "engine/session.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/block.h"

/* Enough rows to reuse each weight well; more would only take memory. */
#define DEFAULT_BLOCK 96

struct session {
    const struct model *model;
    const struct kernels *kernels;
    struct pool *pool;
    const struct attention_watch *watch;
    const struct head_ablation *without;
    struct kv_cache kv;
    struct workspace work;
    struct arena arena;     /* of all below, and of the workspace */
    int *len;               /* [kv.shape.n_sequences] */
    float *logits;          /* [n_vocab] of session_feed */
    struct batch_row *rows; /* [work.max_rows] of session_feed */
};

/* The positions that a sequence always has: those of sequence 0. */
static int least_len(const struct session *s, int sequence)
{
    return sequence == 0 ? 0 : s->kv.shape.n_shared;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* The sizes that the parameters ask for. */
struct session_sizes {
    struct kv_shape kv;
    int block;
    bool watches;
};

/* Fills in the defaults of p and checks them against the model. */
static enum status resolve_params(const struct model *m, const struct session_params *p,
                                  struct session_sizes *z, struct err *e)
{
    const struct config *c = &m->config;
    const int cap = p->n_ctx ? p->n_ctx : c->n_ctx;
    *z = (struct session_sizes){.kv = {.n_sequences = p->n_sequences ? p->n_sequences : 1,
                                       .cap = cap,
                                       .n_shared = p->n_shared,
                                       .storage = p->kv_storage},
                                .block = p->block > 0 ? p->block : DEFAULT_BLOCK,
                                .watches = p->watch != NULL};
    assert(z->kv.n_sequences >= 1);
    if (cap < 1 || cap > c->n_ctx)
        return err_set(e, STATUS_USAGE,
                       "context of %d tokens: expected 1 to %d, the context of the checkpoint", cap,
                       c->n_ctx);
    if (p->n_shared < 0 || p->n_shared > cap)
        return err_set(e, STATUS_USAGE, "%d shared positions: expected 0 to %d, the context",
                       p->n_shared, cap);
    if (!kv_cache_can_store(p->kv_storage))
        return err_set(e, STATUS_USAGE, "cache type %s: expected f32, f16 or q8_0",
                       storage_name(p->kv_storage));
    /* A row of each sequence at once, so that such a step reads every weight once. */
    if (p->block <= 0 && z->block < z->kv.n_sequences)
        z->block = z->kv.n_sequences;
    /* No more rows than there can be; and heads times rows of a block are counted in an int. */
    const int64_t positions = (int64_t)cap * z->kv.n_sequences;
    if (z->block > positions)
        z->block = (int)positions;
    if (z->block > INT_MAX / c->n_heads)
        z->block = INT_MAX / c->n_heads;
    return STATUS_OK;
}

/* All of a session but its cache; or its count. */
static void take_scratch(struct session *s, const struct config *c, const struct session_sizes *z,
                         int n_threads, struct arena *a)
{
    s->work.max_rows = z->block;
    s->work.max_threads = n_threads;
    s->work.watches = z->watches;
    workspace_take(&s->work, a, c, s->model->w[ROLE_ROPE_FREQS].table, z->kv.cap);
    s->logits = arena_take(a, (uint64_t)c->n_vocab, sizeof *s->logits);
    s->len = arena_take(a, (uint64_t)z->kv.n_sequences, sizeof *s->len);
    s->rows = arena_take(a, (uint64_t)z->block, sizeof *s->rows);
}

enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e)
{
    struct session_sizes z;
    TRY(resolve_params(m, p, &z, e));
    struct session counted = {.model = m};
    take_scratch(&counted, &m->config, &z, n_threads, &counted.arena);
    if (counted.arena.overflow || !kv_cache_bytes(&m->config, &z.kv, &out->kv_bytes))
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: a context of %d tokens needs more bytes than can be "
                       "addressed",
                       z.kv.cap);
    out->scratch_bytes = counted.arena.used;
    return STATUS_OK;
}

static enum status create_memory(struct session *s, const struct session_sizes *z, struct err *e)
{
    const struct config *c = &s->model->config;
    const int n_threads = pool_n_threads(s->pool);
    TRY(kv_cache_create(&s->kv, c, &z->kv, e));
    take_scratch(s, c, z, n_threads, &s->arena);
    enum status status = arena_allocate(&s->arena, "the session's scratch memory", e);
    if (status != STATUS_OK)
        return status;
    take_scratch(s, c, z, n_threads, &s->arena);
    for (int i = 0; i < z->kv.n_sequences; i++)
        s->len[i] = least_len(s, i);
    return STATUS_OK;
}

enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e)
{
    *out = NULL;
    struct session_sizes z;
    enum status status = resolve_params(m, p, &z, e);
    if (status != STATUS_OK)
        return status;
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "the session", sizeof *s);
    s->model = m;
    s->kernels = p->kernels;
    s->pool = pool;
    s->watch = p->watch;
    s->without = p->without;
    if (!s->kernels)
        status = kernels_choose(NULL, &s->kernels, e);
    if (status == STATUS_OK)
        status = create_memory(s, &z, e);
    if (status != STATUS_OK) {
        session_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    kv_cache_free(&s->kv);
    arena_free(&s->arena);
    free(s);
}

/* --- through the model ----------------------------------------------------------------------- */

/* One call of pool_run. */
struct model_pass {
    struct forward forward;
    const struct model *model;
    int first_layer;
    float *logits; /* [batch->n_logits, n_vocab] */
};

/* The last norm and the output matrix, for the rows that want logits. */
static void compute_logits(const struct model_pass *p, int thread)
{
    const struct forward *f = &p->forward;
    const int n_logits = f->batch->n_logits;
    float *input = workspace_input(f->work, n_logits, thread);
    int begin, end, n = 0;
    forward_rows(f, n_logits, thread, &begin, &end);
    for (int r = 0; r < f->batch->n_rows; r++) {
        if (!f->batch->rows[r].wants_logits)
            continue;
        if (n >= begin && n < end)
            forward_input_row(f, &p->model->w[ROLE_OUTPUT_NORM].norm, r,
                              input + (size_t)n * (size_t)f->config->d_model);
        n++;
    }
    forward_multiply(f, &p->model->w[ROLE_OUTPUT].matrix, input, n_logits, p->logits,
                     EPILOGUE_STORE, thread);
}

static void run_model(void *arg, int thread)
{
    const struct model_pass *p = arg;
    for (int l = p->first_layer; l < p->model->config.n_layers; l++) {
        block_attention(&p->forward, &p->model->blocks[l], l, thread);
        block_feed_forward(&p->forward, &p->model->blocks[l], thread);
    }
    if (p->forward.batch->n_logits > 0)
        compute_logits(p, thread);
}

/* Where rows enter the model: before layer 0 as embeddings, or as what is known of them. */
struct entry {
    int layer;
    const float *x; /* [rows, d_model]; NULL: embeddings */
};

static void fill_stream(struct session *s, const struct entry *entry, const struct batch_row *rows,
                        int n)
{
    const size_t d = (size_t)s->model->config.d_model;
    if (entry->x)
        memcpy(s->work.x, entry->x, (size_t)n * d * sizeof *entry->x);
    for (int r = 0; r < n && !entry->x; r++)
        model_embed(s->model, &s->work.positions, rows[r].token, rows[r].position,
                    s->work.x + (size_t)r * d);
}

/* At most work.max_rows rows, which have been checked; gives how many want logits. */
static int step_rows(struct session *s, const struct entry *entry, const struct batch_row *rows,
                     int n, float *logits)
{
    struct batch batch;
    batch_cut(&batch, rows, n, s->kv.shape.n_shared, s->work.spans);
    for (int r = 0; r < n; r++)
        positions_reach(&s->work.positions, rows[r].position + 1);
    fill_stream(s, entry, rows, n);
    struct model_pass pass = {
        .forward = {.config = &s->model->config,
                    .kernels = s->kernels,
                    .pool = s->pool,
                    .kv = &s->kv,
                    .work = &s->work,
                    .batch = &batch,
                    .watch = s->watch,
                    .without = s->without},
        .model = s->model,
        .first_layer = entry->layer,
        .logits = logits,
    };
    pool_run(s->pool, run_model, &pass);
    for (int r = 0; r < n; r++)
        s->len[rows[r].sequence]++;
    return batch.n_logits;
}

/* --- steps ----------------------------------------------------------------------------------- */

static enum status check_token(const struct session *s, int i, int32_t token, struct err *e)
{
    const int n_vocab = s->model->config.n_vocab;
    if (token < 0 || token >= n_vocab)
        return err_set(e, STATUS_USAGE, "token %d: expected an id from 0 to %d, found %d", i,
                       n_vocab - 1, (int)token);
    return STATUS_OK;
}

/* Whether what a sequence shares with sequence 0 is there. */
static enum status check_shared(const struct session *s, int sequence, struct err *e)
{
    if (least_len(s, sequence) > s->len[0])
        return err_set(e, STATUS_USAGE,
                       "sequence %d: expected its %d shared positions in sequence 0, found %d",
                       sequence, s->kv.shape.n_shared, s->len[0]);
    return STATUS_OK;
}

/* Row i, of which `before` rows of its sequence stand right before it. */
static enum status check_row(const struct session *s, int i, const struct batch_row *row,
                             int before, struct err *e)
{
    if (row->sequence < 0 || row->sequence >= s->kv.shape.n_sequences)
        return err_set(e, STATUS_USAGE, "row %d: expected a sequence from 0 to %d, found %d", i,
                       s->kv.shape.n_sequences - 1, row->sequence);
    TRY(check_shared(s, row->sequence, e));
    const int expected = s->len[row->sequence] + before;
    if (row->position != expected || row->position >= s->kv.shape.cap)
        return err_set(e, STATUS_USAGE,
                       "row %d: expected position %d of sequence %d, below its %d; found %d", i,
                       expected, row->sequence, s->kv.shape.cap, row->position);
    return check_token(s, i, row->token, e);
}

static enum status step_all(struct session *s, struct entry entry, const struct batch_row *rows,
                            int n, float *logits, struct err *e)
{
    assert(n >= 1);
    int before = 0;
    for (int r = 0; r < n; r++) {
        before = r > 0 && rows[r].sequence == rows[r - 1].sequence ? before + 1 : 0;
        TRY(check_row(s, r, &rows[r], before, e));
        assert(logits || !rows[r].wants_logits);
    }
    for (int done = 0; done < n;) {
        const int now = n - done < s->work.max_rows ? n - done : s->work.max_rows;
        const int wanted = step_rows(s, &entry, rows + done, now, logits);
        if (wanted > 0)
            logits += (size_t)wanted * (size_t)s->model->config.n_vocab;
        if (entry.x)
            entry.x += (size_t)now * (size_t)s->model->config.d_model;
        done += now;
    }
    return STATUS_OK;
}

static const struct entry as_embeddings = {0, NULL};

enum status session_step(struct session *s, const struct batch_row *rows, int n, float *logits,
                         struct err *e)
{
    return step_all(s, as_embeddings, rows, n, logits, e);
}

enum status session_enter(struct session *s, int layer, const float *x,
                          const struct batch_row *rows, int n, float *logits, struct err *e)
{
    assert(layer >= 0 && layer <= s->model->config.n_layers && x);
    return step_all(s, (struct entry){layer, x}, rows, n, logits, e);
}

static enum status check_tokens(const struct session *s, int sequence, const int32_t *tokens, int n,
                                struct err *e)
{
    TRY(check_shared(s, sequence, e));
    if (n < 1 || n > s->kv.shape.cap - s->len[sequence])
        return err_set(e, STATUS_USAGE,
                       "%d more tokens do not fit: %d of the context's %d positions are taken", n,
                       s->len[sequence], s->kv.shape.cap);
    for (int i = 0; i < n; i++) {
        TRY(check_token(s, i, tokens[i], e));
    }
    return STATUS_OK;
}

enum status session_feed(struct session *s, int sequence, const int32_t *tokens, int n, float *all,
                         struct err *e)
{
    const size_t n_vocab = (size_t)s->model->config.n_vocab;
    TRY(check_tokens(s, sequence, tokens, n, e));
    for (int done = 0; done < n;) {
        const int now = n - done < s->work.max_rows ? n - done : s->work.max_rows;
        for (int r = 0; r < now; r++)
            s->rows[r] = (struct batch_row){.token = tokens[done + r],
                                            .sequence = sequence,
                                            .position = s->len[sequence] + r,
                                            .wants_logits = all || done + r == n - 1};
        step_rows(s, &as_embeddings, s->rows, now, all ? all + (size_t)done * n_vocab : s->logits);
        done += now;
    }
    if (all)
        memcpy(s->logits, all + (size_t)(n - 1) * n_vocab, n_vocab * sizeof *all);
    return STATUS_OK;
}

void session_fill(struct session *s, int sequence, int n, uint64_t seed)
{
    const struct config *c = &s->model->config;
    assert(n <= s->kv.shape.cap);
    for (; s->len[sequence] < n; s->len[sequence]++) {
        struct rng r;
        rng_seed(&r, seed, (uint64_t)s->len[sequence]);
        for (int l = 0; l < c->n_layers; l++) {
            const int k_dim = config_key_dim(c, l), v_dim = config_cached_value_dim(c);
            float *k = s->work.qkv, *v = k + k_dim; /* free between steps */
            for (int g = 0; g < config_kv_heads(c, l); g++) {
                for (int i = 0; i < k_dim || i < v_dim; i++) {
                    const float key = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                    const float value = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                    if (i < k_dim)
                        k[i] = key;
                    if (i < v_dim)
                        v[i] = value;
                }
                kv_cache_put(&s->kv, s->kernels, (struct kv_place){sequence, l, g},
                             s->len[sequence], k, v);
            }
        }
    }
    /* So that the first step after it takes no longer than others. */
    positions_reach(&s->work.positions, n < s->kv.shape.cap ? n + 1 : n);
}

size_t session_position_bytes(const struct session *s)
{
    return kv_cache_position_bytes(&s->kv);
}

void session_read_position(const struct session *s, int sequence, int position, void *bytes)
{
    assert(position < session_len(s, sequence));
    kv_cache_read(&s->kv, sequence, position, bytes);
}

void session_append_position(struct session *s, int sequence, const void *bytes)
{
    assert(session_len(s, sequence) < s->kv.shape.cap);
    kv_cache_write(&s->kv, sequence, s->len[sequence]++, bytes);
}

enum storage session_kv_storage(const struct session *s)
{
    return s->kv.shape.storage;
}

int session_len(const struct session *s, int sequence)
{
    assert(sequence >= 0 && sequence < s->kv.shape.n_sequences);
    return s->len[sequence];
}

int session_cap(const struct session *s)
{
    return s->kv.shape.cap;
}

int session_block(const struct session *s)
{
    return s->work.max_rows;
}

void session_set_pool(struct session *s, struct pool *pool)
{
    assert(pool_n_threads(pool) <= s->work.max_threads);
    s->pool = pool;
}

const float *session_logits(const struct session *s)
{
    return s->logits;
}

void session_rewind(struct session *s, int sequence, int len)
{
    assert(sequence >= 0 && sequence < s->kv.shape.n_sequences && len >= 0);
    const bool forgets_shared = sequence == 0 && len < s->kv.shape.n_shared;
    for (int i = 1; forgets_shared && i < s->kv.shape.n_sequences; i++)
        s->len[i] = least_len(s, i);
    len = len > least_len(s, sequence) ? len : least_len(s, sequence);
    if (len < s->len[sequence])
        s->len[sequence] = len;
}
