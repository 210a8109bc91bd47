#include "engine/session.h"

#include <limits.h>
#include <math.h>

#include "engine/private.h"

struct session {
    struct forward f;
    struct kv_shape shape;  /* of the cache */
    struct arena arena;     /* of all below, and of the workspace */
    int *len;               /* [shape.n_sequences] */
    struct batch_row *rows; /* [shape.cap] of session_feed */
};

/* --- memory ---------------------------------------------------------------------------------- */

/* Sets the session up as the parameters, or their defaults, ask for, and checks these against the
 * model. No memory is taken yet. */
static enum status resolve(struct session *s, const struct model *m, const struct session_params *p,
                           int n_threads, struct err *e)
{
    const struct config *c = &m->config;
    const int cap = p->n_ctx ? p->n_ctx : c->n_ctx, n = p->n_sequences ? p->n_sequences : 1;
    assert(n >= 1);
    if (cap < 1 || cap > c->n_ctx)
        return err_usage(e, "context of %d tokens: expected 1 to %d, the context of the checkpoint",
                         cap, c->n_ctx);
    /* A row of each sequence at once, so that such a step reads every weight once. */
    int block = p->block > 0 ? p->block : MAX(n, SESSION_BLOCK);
    /* No more rows than there can be; and heads times rows of a block are counted in an int. */
    const int64_t positions = (int64_t)cap * n;
    block = MIN(block, positions);
    block = MIN(block, INT_MAX / c->n_heads);
    *s = (struct session){.f = {.kernels = p->kernels,
                                .work = {.max_rows = block,
                                         .max_threads = n_threads,
                                         .watches = p->watch != NULL,
                                         .rope_factors = m->w[ROLE_ROPE_FREQS].table},
                                .end_layer = c->n_layers,
                                .watch = p->watch,
                                .without = p->without,
                                .model = m},
                          .shape = {.n_sequences = n, .cap = cap, .type = p->kv_type}};
    return STATUS_OK;
}

/* Takes or counts all memory of a session but its cache. c has all layers of the model. */
static void take_scratch(struct session *s, struct arena *a, const struct config *c)
{
    workspace_take(&s->f.work, a, c, s->shape.cap);
    ARENA_TAKE(s->len, a, s->shape.n_sequences);
    ARENA_TAKE(s->rows, a, s->shape.cap);
}

enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e)
{
    struct session s;
    TRY(resolve(&s, m, p, n_threads, e));
    take_scratch(&s, &s.arena, &m->config);
    if (s.arena.overflow || !kv_cache_bytes(&m->config, &s.shape, &out->kv_bytes))
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: a context of %d tokens needs more bytes than can be "
                       "addressed",
                       s.shape.cap);
    out->scratch_bytes = s.arena.used;
    return STATUS_OK;
}

/* Takes the memory of a session that is set up; on failure the caller frees what was taken. */
static enum status take_session(struct session *s, const struct config *c, struct err *e)
{
    if (!s->f.kernels)
        TRY(kernels_choose(NULL, &s->f.kernels, e));
    TRY(kv_cache_create(&s->f.kv, c, &s->shape, e));
    take_scratch(s, &s->arena, c);
    TRY(arena_allocate(&s->arena, "the session's scratch memory", e));
    take_scratch(s, &s->arena, c);
    return STATUS_OK;
}

enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e)
{
    struct session *s;
    *out = NULL;
    TRY_ZEROED(s, 1, "the session", e);
    enum status status = resolve(s, m, p, pool_n_threads(pool), e);
    s->f.pool = pool;
    s->f.blocks = m->blocks;
    if (status == STATUS_OK)
        status = take_session(s, &m->config, e);
    if (status != STATUS_OK) {
        session_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

static void release_session(struct session *s)
{
    kv_cache_free(&s->f.kv);
    arena_free(&s->arena);
}

enum status session_grow(struct session *s, int cap, struct err *e)
{
    const struct model *m = s->f.model;
    struct session grown = *s;
    assert(cap >= s->shape.cap && cap <= m->config.n_ctx);
    grown.shape.cap = cap;
    grown.arena = (struct arena){0};
    const enum status status = take_session(&grown, &m->config, e);
    if (status != STATUS_OK) {
        release_session(&grown);
        return status;
    }
    for (int i = 0; i < s->shape.n_sequences; i++) {
        grown.len[i] = s->len[i];
        kv_cache_copy(&s->f.kv, i, &grown.f.kv, i, s->len[i]);
    }
    release_session(s);
    *s = grown;
    return STATUS_OK;
}

void session_free(struct session *s)
{
    if (s)
        release_session(s);
    free(s);
}

/* --- steps ----------------------------------------------------------------------------------- */

enum status session_enter(struct session *s, int layer, const float *x,
                          const struct batch_row *rows, int n, float *logits, struct err *e)
{
    const struct config *c = &s->f.model->config;
    int before = 0; /* rows of the same sequence right before */
    assert(n >= 1 && layer >= 0 && layer <= c->n_layers);
    for (int r = 0; r < n; r++) {
        const struct batch_row *row = &rows[r];
        const bool is_one = row->sequence >= 0 && row->sequence < s->shape.n_sequences;
        before = r > 0 && row->sequence == row[-1].sequence ? before + 1 : 0;
        const int position = is_one ? s->len[row->sequence] + before : 0;
        if (!is_one || row->position != position || position >= s->shape.cap || row->token < 0 ||
            row->token >= c->n_vocab)
            return err_usage(
                e,
                "row %d: token %d at position %d of sequence %d: expected a token below %d, "
                "position %d below %d, and a sequence below %d",
                r, (int)row->token, row->position, row->sequence, c->n_vocab, position,
                s->shape.cap, s->shape.n_sequences);
        assert(logits || !row->wants_logits);
    }
    struct workspace *w = &s->f.work;
    const size_t d = c->d_model;
    s->f.first_layer = layer;
    s->f.blocks = s->f.model->blocks + layer;
    for (int done = 0, now; done < n; done += now) {
        now = MIN(n - done, w->max_rows);
        if (x)
            memcpy(w->x, x + done * d, now * d * sizeof *x);
        for (int r = 0; r < now; r++) {
            const struct batch_row *row = &rows[done + r];
            positions_reach(&w->positions, row->position + 1);
            if (!x)
                model_embed(s->f.model, &w->positions, s->f.kernels, row->token, row->position,
                            w->x + r * d);
            s->len[row->sequence]++;
        }
        s->f.logits = logits;
        const int wanted = forward_run(&s->f, rows + done, now);
        if (wanted > 0)
            logits += (size_t)wanted * c->n_vocab;
    }
    return STATUS_OK;
}

enum status session_step(struct session *s, const struct batch_row *rows, int n, float *logits,
                         struct err *e)
{
    return session_enter(s, 0, NULL, rows, n, logits, e);
}

enum status session_feed(struct session *s, int sequence, const int32_t *tokens, int n,
                         float *logits, bool all, struct err *e)
{
    if (n < 1 || n > s->shape.cap - s->len[sequence])
        return err_usage(e, "%d more tokens do not fit: %d of the context's %d positions are taken",
                         n, s->len[sequence], s->shape.cap);
    for (int r = 0; r < n; r++)
        s->rows[r] = (struct batch_row){tokens[r], sequence, s->len[sequence] + r,
                                        .wants_logits = logits && (all || r == n - 1)};
    return session_step(s, s->rows, n, logits, e);
}

struct kv_cache *session_cache(struct session *s)
{
    return &s->f.kv;
}

void session_extend(struct session *s, int sequence, int len)
{
    assert(len >= s->len[sequence] && len <= s->shape.cap);
    s->len[sequence] = len;
    /* So that the next step takes no longer than others. */
    positions_reach(&s->f.work.positions, MIN(len + 1, s->shape.cap));
}

int session_len(const struct session *s, int sequence)
{
    assert(sequence >= 0 && sequence < s->shape.n_sequences);
    return s->len[sequence];
}

int session_cap(const struct session *s)
{
    return s->shape.cap;
}

int session_block(const struct session *s)
{
    return s->f.work.max_rows;
}

enum status session_explain(const struct session *s, enum status status, const char *where,
                            struct err *e)
{
    const struct model *m = s->f.model;
    const struct kv_type type = s->shape.type;
    const double most = fmin(cache_types[type.keys].largest, cache_types[type.values].largest);
    if (e && status == STATUS_FAILED && most < cache_types[CACHE_F32].largest)
        chars_append(e->text,
                     "; or keys or values are more than %.0f, which a cache of %s cannot hold: one "
                     "of %s can",
                     most, kv_type_name(type).text, cache_type_names[CACHE_F32]);
    if (where)
        err_in(e, status, "%s", where);
    return m->name ? err_in(e, status, "%s", m->name) : status;
}

void session_rewind(struct session *s, int sequence, int len)
{
    assert(sequence >= 0 && sequence < s->shape.n_sequences && len >= 0);
    s->len[sequence] = MIN(s->len[sequence], len);
}

void session_copy(struct session *s, int from, int to, int n)
{
    assert(n <= session_len(s, from));
    kv_cache_copy(&s->f.kv, from, &s->f.kv, to, n);
    s->len[to] = n;
}

/* --- probes ---------------------------------------------------------------------------------- */

struct probe {
    struct session s; /* without a model */
};

enum status probe_create(const struct config *c, const float *rope_factors, int n_ctx,
                         const struct kernels *kernels, struct pool *pool, struct probe **out,
                         struct err *e)
{
    TRY_ZEROED(*out, 1, "a block's scratch memory", e);
    struct session *p = &(*out)->s;
    *p = (struct session){.f = {.kernels = kernels,
                                .pool = pool,
                                .work = {.max_rows = MIN(n_ctx, SESSION_BLOCK),
                                         .max_threads = pool_n_threads(pool),
                                         .rope_factors = rope_factors}},
                          .shape = {.n_sequences = 1, .cap = n_ctx, .one_layer = true}};
    const enum status s = take_session(p, c, e);
    if (s == STATUS_OK) {
        positions_reach(&p->f.work.positions, n_ctx);
    } else {
        probe_free(*out);
        *out = NULL;
    }
    return s;
}

void probe_free(struct probe *p)
{
    session_free(p ? &p->s : NULL);
}

void probe_embed(const struct probe *p, const struct model *m, int token, int t, float *out)
{
    model_embed(m, &p->s.f.work.positions, p->s.f.kernels, token, t, out);
}

void probe_run(struct probe *p, const struct block *b, int layer, const float *in, int n,
               const struct block_taps *taps)
{
    struct forward *f = &p->s.f;
    const struct config *c = &f->kv.config;
    const size_t d = c->d_model;
    assert(n >= 1 && n <= f->kv.shape.cap);
    f->blocks = b;
    f->first_layer = layer;
    f->end_layer = layer + 1;
    f->taps = *taps;
    f->only_attention = !taps->at[TAP_OUT];
    for (int first = 0; first < n; first += f->work.max_rows) {
        const int now = MIN(n - first, f->work.max_rows);
        for (int r = 0; r < now; r++)
            p->s.rows[r] = (struct batch_row){.position = first + r};
        memcpy(f->work.x, in + first * d, now * d * sizeof *in);
        forward_run(f, p->s.rows, now);
        for (int t = 0; t < BLOCK_TAPS; t++) {
            const int width = t == TAP_HEADS ? config_heads_dim(c) : c->d_model;
            if (f->taps.at[t]) /* where the next rows go */
                f->taps.at[t] += (size_t)now * width;
        }
    }
}
