/*
 * A block of tokens goes through the layers in one run of the pool. Per layer the threads meet
 * after attention, the output projection, the up projection and the down projection; and where
 * K/V heads cannot be dealt out whole also after the QKV rows and (a block's) new keys and values.
 * The rest - norms, quantising activations, merging chunks - every thread does for itself, which
 * is cheaper than waiting for somebody else to.
 */
#include "engine/session.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/attention.h"
#include "model/kv_cache.h"

/* Enough tokens to reuse each weight well; more would only take memory. */
#define DEFAULT_BLOCK 96

struct session {
    const struct model *model;
    const struct kernels *kernels;
    struct pool *pool;
    struct kv_cache kv;
    int len, cap, block;
    int max_threads; /* there is scratch for */
    struct arena scratch;
    float *x;              /* [block, d_model] the residual stream */
    float *qkv;            /* [block, d_model + 2 * kv_dim] */
    float *parts;          /* attention_parts(block) */
    float *hidden;         /* [block, d_ff] */
    float *logits;         /* [n_vocab] */
    float *private_input;  /* [n_threads, block, d_model] what a thread's next product reads */
    float *private_attend; /* [n_threads, attention_scratch] */
    unsigned char *private_quants; /* [n_threads, block, quants_bytes] the same, quantised */
    size_t quants_bytes;           /* of the longest row */
};

/* One call of pool_run. */
struct run {
    struct session *s;
    int n_tokens;
    float *logits; /* of all n_tokens or only the last; NULL: of none */
    bool all;
    const struct session_layer *alone; /* NULL: the whole model */
};

struct sizes {
    uint64_t x, qkv, parts, hidden, logits, private_input, private_attend; /* floats */
    uint64_t private_quants, quants_bytes;                                 /* bytes */
};

static struct sizes scratch_sizes(const struct config *c, int block, int cap, int n_threads)
{
    const uint64_t b = (uint64_t)block, d = (uint64_t)c->d_model, n = (uint64_t)n_threads;
    const uint64_t quants = quant_row_bytes(c->d_model > c->d_ff ? c->d_model : c->d_ff);
    return (struct sizes){
        .x = b * d,
        .qkv = b * (d + 2 * (uint64_t)config_kv_dim(c, 0)),
        .parts = attention_parts(c, block, cap),
        .hidden = b * (uint64_t)c->d_ff,
        .logits = (uint64_t)c->n_vocab,
        .private_input = n * b * d,
        .private_attend = n * attention_scratch(c),
        .private_quants = n * b * quants,
        .quants_bytes = quants,
    };
}

static struct mem_plan scratch_plan(const struct sizes *z)
{
    struct mem_plan p = {0};
    const uint64_t floats[] = {z->x,      z->qkv,           z->parts,         z->hidden,
                               z->logits, z->private_input, z->private_attend};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        mem_plan_add(&p, floats[i], sizeof(float));
    mem_plan_add(&p, z->private_quants, 1);
    return p;
}

/* Fills in the defaults of p and checks them against the model. */
static enum status resolve(const struct model *m, const struct session_params *p, int *cap,
                           int *block, struct err *e)
{
    const int n_ctx = m->config.n_ctx;
    *cap = p->n_ctx ? p->n_ctx : n_ctx;
    *block = p->block > 0 ? p->block : DEFAULT_BLOCK;
    if (*cap < 1 || *cap > n_ctx)
        return err_set(e, STATUS_USAGE,
                       "context of %d tokens: expected 1 to %d, the context of the checkpoint",
                       *cap, n_ctx);
    if (*block > *cap)
        *block = *cap;
    if (!kv_cache_can_store(p->kv_storage))
        return err_set(e, STATUS_USAGE, "cache type %s: expected f32, f16 or q8_0",
                       storage_name(p->kv_storage));
    /* The work items of a block are counted in an int. */
    const int items = m->config.n_kv_heads * attention_chunks(*cap);
    if (*block > INT_MAX / items)
        *block = INT_MAX / items;
    return STATUS_OK;
}

enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e)
{
    int cap, block;
    const enum status s = resolve(m, p, &cap, &block, e);
    if (s != STATUS_OK)
        return s;
    const struct sizes z = scratch_sizes(&m->config, block, cap, n_threads);
    const struct mem_plan plan = scratch_plan(&z);
    if (plan.overflow || !kv_cache_bytes(&m->config, cap, p->kv_storage, &out->kv_bytes))
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: a context of %d tokens needs more bytes than can be "
                       "addressed",
                       cap);
    out->scratch_bytes = plan.bytes;
    return STATUS_OK;
}

static enum status create_scratch(struct session *s, struct err *e)
{
    const struct sizes z =
        scratch_sizes(&s->model->config, s->block, s->cap, pool_n_threads(s->pool));
    const struct mem_plan plan = scratch_plan(&z);
    const enum status status = arena_create(&s->scratch, &plan, "the session's scratch memory", e);
    if (status != STATUS_OK)
        return status;
    s->x = arena_take(&s->scratch, z.x, sizeof(float));
    s->qkv = arena_take(&s->scratch, z.qkv, sizeof(float));
    s->parts = arena_take(&s->scratch, z.parts, sizeof(float));
    s->hidden = arena_take(&s->scratch, z.hidden, sizeof(float));
    s->logits = arena_take(&s->scratch, z.logits, sizeof(float));
    s->private_input = arena_take(&s->scratch, z.private_input, sizeof(float));
    s->private_attend = arena_take(&s->scratch, z.private_attend, sizeof(float));
    s->private_quants = arena_take(&s->scratch, z.private_quants, 1);
    s->quants_bytes = z.quants_bytes;
    return STATUS_OK;
}

enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e)
{
    *out = NULL;
    int cap, block;
    enum status status = resolve(m, p, &cap, &block, e);
    if (status != STATUS_OK)
        return status;
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "the session", sizeof *s);
    s->model = m;
    s->kernels = p->kernels;
    s->pool = pool;
    s->max_threads = pool_n_threads(pool);
    s->cap = cap;
    s->block = block;
    if (!s->kernels)
        status = kernels_choose(NULL, &s->kernels, e);
    if (status == STATUS_OK)
        status = kv_cache_create(&s->kv, &m->config, cap, p->kv_storage, e);
    if (status == STATUS_OK)
        status = create_scratch(s, e);
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
    arena_free(&s->scratch);
    free(s);
}

/* --- one block of tokens, on every thread ---------------------------------------------------- */

/* w times n_tokens rows of x, which are first quantised if w is. */
static struct matmul product(const struct run *r, const struct matrix *w, const float *x,
                             int n_tokens, float *y, enum epilogue epilogue, int thread)
{
    const struct session *s = r->s;
    const size_t n_in = (size_t)w->n_in;
    struct matmul m = {
        .w = w,
        .x = x,
        .x_stride = n_in,
        .n_tokens = n_tokens,
        .y = y,
        .y_stride = (size_t)w->n_out,
        .epilogue = epilogue,
    };
    if (storage_is_quantised(w->storage)) {
        void *quants = s->private_quants + (size_t)thread * (size_t)s->block * s->quants_bytes;
        s->kernels->quantize(quants, x, n_in, n_tokens, w->n_in);
        m.quants = quants;
    }
    return m;
}

/* This thread's panels of a product. */
static void multiply(const struct run *r, const struct matrix *w, const float *x, int n_tokens,
                     float *y, enum epilogue epilogue, int thread)
{
    int begin, end;
    pool_share(matrix_panels(w->n_out), thread, pool_n_threads(r->s->pool), &begin, &end);
    if (begin == end)
        return;
    const struct matmul m = product(r, w, x, n_tokens, y, epilogue, thread);
    r->s->kernels->matmul(&m, begin, end);
}

/* The block's rows to a place for all rows that a lone layer gives away; NULL: nothing. */
static void give(const struct run *r, float *all_rows, const float *rows, int thread)
{
    const size_t d = (size_t)r->s->model->config.d_model;
    if (all_rows && thread == 0)
        memcpy(all_rows + (size_t)r->s->len * d, rows, (size_t)r->n_tokens * d * sizeof *rows);
}

/* Norms n_tokens rows of the residual stream, from row `first`, into the thread's own input. */
static float *normed(const struct run *r, const struct norm *norm, int first, int n_tokens,
                     int thread)
{
    const struct session *s = r->s;
    const size_t d = (size_t)s->model->config.d_model;
    float *out = s->private_input + (size_t)thread * (size_t)s->block * d;
    for (int t = 0; t < n_tokens; t++)
        s->kernels->norm[s->model->config.norm](out + (size_t)t * d, s->x + (size_t)(first + t) * d,
                                                norm->gain, norm->bias, (int)d,
                                                s->model->config.norm_eps);
    return out;
}

/* Whether every thread gets as many K/V heads as the others, whole, and their rows of Q, K and V
 * are whole panels: then it can go from those rows through attention without waiting. */
static bool heads_are_dealt(const struct config *c, int n_threads)
{
    return c->n_kv_heads % n_threads == 0 && c->head_dim % KERNEL_LANES == 0;
}

/* The rows of Q, K and V that belong to this thread's K/V heads. */
static void multiply_heads(const struct run *r, const struct matrix *qkv, const float *input,
                           int thread)
{
    const struct session *s = r->s;
    const struct config *c = &s->model->config;
    const struct matmul m = product(r, qkv, input, r->n_tokens, s->qkv, EPILOGUE_STORE, thread);
    const int n_heads = c->n_kv_heads / pool_n_threads(s->pool);
    const int panels = c->head_dim / KERNEL_LANES; /* of a head */
    const int group = config_group(c, 0), first = thread * n_heads;
    const int k = c->n_heads * panels, v = k + c->n_kv_heads * panels;
    s->kernels->matmul(&m, first * group * panels, (first + n_heads) * group * panels);
    s->kernels->matmul(&m, k + first * panels, k + (first + n_heads) * panels);
    s->kernels->matmul(&m, v + first * panels, v + (first + n_heads) * panels);
}

static void attend_block(const struct run *r, int l, int thread)
{
    struct session *s = r->s;
    const struct config *c = &s->model->config;
    const struct block *block = &s->model->blocks[l];
    const int n_threads = pool_n_threads(s->pool);
    const size_t d = (size_t)c->d_model;
    const bool dealt = heads_are_dealt(c, n_threads);

    float *input = normed(r, &block->w[ROLE_ATTN_NORM].norm, 0, r->n_tokens, thread);
    if (r->alone)
        give(r, r->alone->normed, input, thread);
    if (dealt) {
        multiply_heads(r, &block->w[ROLE_ATTN_QKV].matrix, input, thread);
    } else {
        multiply(r, &block->w[ROLE_ATTN_QKV].matrix, input, r->n_tokens, s->qkv, EPILOGUE_STORE,
                 thread);
        pool_barrier(s->pool, thread);
    }

    const struct attention a = {
        .kernels = s->kernels,
        .kv = &s->kv,
        .layer = l,
        .n_heads = c->n_heads,
        .first = s->len,
        .n_tokens = r->n_tokens,
        .qkv = s->qkv,
        .qkv_stride = (size_t)block->w[ROLE_ATTN_QKV].matrix.n_out,
        .parts = s->parts,
        .max_chunks = attention_chunks(s->cap),
    };
    if (r->n_tokens > 1) {
        attention_store(&a, thread, n_threads);
        if (!dealt)
            pool_barrier(s->pool, thread);
    }
    attention_run(&a, s->private_attend + (size_t)thread * attention_scratch(c), thread, n_threads);
    pool_barrier(s->pool, thread);

    for (int t = 0; t < r->n_tokens; t++)
        attention_merge(&a, t, input + (size_t)t * d);
    if (r->alone)
        give(r, r->alone->heads, input, thread);
    multiply(r, &block->w[ROLE_ATTN_OUTPUT].matrix, input, r->n_tokens, s->x, EPILOGUE_ADD, thread);
    pool_barrier(s->pool, thread);
}

static void feed_forward(const struct run *r, int l, int thread)
{
    struct session *s = r->s;
    const struct block *block = &s->model->blocks[l];
    const float *input = normed(r, &block->w[ROLE_FFN_NORM].norm, 0, r->n_tokens, thread);
    multiply(r, &block->w[ROLE_FFN_UP].matrix, input, r->n_tokens, s->hidden,
             ffn_epilogue(s->model->config.ffn), thread);
    pool_barrier(s->pool, thread);
    multiply(r, &block->w[ROLE_FFN_DOWN].matrix, s->hidden, r->n_tokens, s->x, EPILOGUE_ADD,
             thread);
    pool_barrier(s->pool, thread);
}

static void run_block(void *arg, int thread)
{
    const struct run *r = arg;
    const struct model *m = r->s->model;
    for (int l = 0; l < m->config.n_layers; l++) {
        attend_block(r, l, thread);
        feed_forward(r, l, thread);
    }
    if (!r->logits)
        return;
    const int n = r->all ? r->n_tokens : 1;
    const float *input = normed(r, &m->w[ROLE_OUTPUT_NORM].norm, r->n_tokens - n, n, thread);
    multiply(r, &m->w[ROLE_OUTPUT].matrix, input, n, r->logits, EPILOGUE_STORE, thread);
}

/* On every thread. The residual stream is read by all and written by none while it is given. */
static void run_alone(void *arg, int thread)
{
    const struct run *r = arg;
    attend_block(r, r->alone->layer, thread);
    give(r, r->alone->middle, r->s->x, thread);
    if (r->alone->out)
        feed_forward(r, r->alone->layer, thread);
    give(r, r->alone->out, r->s->x, thread);
}

/* --- feeding --------------------------------------------------------------------------------- */

static enum status check_tokens(const struct session *s, const int32_t *tokens, int n,
                                struct err *e)
{
    const int n_vocab = s->model->config.n_vocab;
    if (n < 1 || n > s->cap - s->len)
        return err_set(e, STATUS_USAGE,
                       "%d more tokens do not fit: %d of the context's %d positions are taken", n,
                       s->len, s->cap);
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return err_set(e, STATUS_USAGE, "token %d: expected an id from 0 to %d, found %d", i,
                           n_vocab - 1, (int)tokens[i]);
    return STATUS_OK;
}

enum status session_feed(struct session *s, const int32_t *tokens, int n, float *all, struct err *e)
{
    const enum status status = check_tokens(s, tokens, n, e);
    if (status != STATUS_OK)
        return status;
    const size_t d = (size_t)s->model->config.d_model;
    const size_t n_vocab = (size_t)s->model->config.n_vocab;
    for (int done = 0; done < n;) {
        const int left = n - done;
        const int now = left < s->block ? left : s->block;
        for (int t = 0; t < now; t++)
            model_embed(s->model, tokens[done + t], s->len + t, s->x + (size_t)t * d);
        struct run r = {.s = s, .n_tokens = now, .all = all != NULL};
        if (all)
            r.logits = all + (size_t)done * n_vocab;
        else if (now == left)
            r.logits = s->logits;
        pool_run(s->pool, run_block, &r);
        s->len += now;
        done += now;
    }
    if (all)
        memcpy(s->logits, all + (size_t)(n - 1) * n_vocab, n_vocab * sizeof *all);
    return STATUS_OK;
}

void session_run_layer(struct session *s, const struct session_layer *l)
{
    const size_t d = (size_t)s->model->config.d_model;
    assert(s->len == 0 && l->n >= 1 && l->n <= s->cap);
    while (s->len < l->n) {
        const int left = l->n - s->len;
        struct run r = {.s = s, .n_tokens = left < s->block ? left : s->block, .alone = l};
        memcpy(s->x, l->in + (size_t)s->len * d, (size_t)r.n_tokens * d * sizeof *s->x);
        pool_run(s->pool, run_alone, &r);
        s->len += r.n_tokens;
    }
    s->len = 0;
}

void session_fill(struct session *s, int n, uint64_t seed)
{
    const struct config *c = &s->model->config;
    const int dim = c->head_dim;
    float *k = s->x, *v = s->qkv; /* free between feeds */
    for (; s->len < n; s->len++) {
        struct rng r;
        rng_seed(&r, seed, (uint64_t)s->len);
        for (int l = 0; l < c->n_layers; l++) {
            for (int g = 0; g < c->n_kv_heads; g++) {
                for (int i = 0; i < dim; i++) {
                    k[i] = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                    v[i] = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                }
                kv_cache_put(&s->kv, s->kernels, l, g, s->len, k, v);
            }
        }
    }
}

int session_len(const struct session *s)
{
    return s->len;
}

int session_cap(const struct session *s)
{
    return s->cap;
}

int session_block(const struct session *s)
{
    return s->block;
}

void session_set_pool(struct session *s, struct pool *pool)
{
    assert(pool_n_threads(pool) <= s->max_threads);
    s->pool = pool;
}

const float *session_logits(const struct session *s)
{
    return s->logits;
}

void session_rewind(struct session *s, int len)
{
    if (len >= 0 && len < s->len)
        s->len = len;
}
