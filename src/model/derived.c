/*
 * What is made of a loaded model: models that borrow its weights, and a number for it.
 *
 * Packing runs the same loop over all matrices three times: it counts their memory, takes it, and
 * fills it, each thread its share of every matrix's panels.
 */

#include "model/model.h"
#include "model/pack.h"

/* --- in another type ------------------------------------------------------------------------- */

struct packing {
    const struct model *from;
    struct model *to; /* whose arena is counted, or taken from */
    enum storage storage;
    int n_threads;
    struct pack_scratch *scratch; /* [n_threads] */
    int n_packed;                 /* matrices */
};

#define BLOCK_ROLES (ROLE_BLOCK_END - ROLE_BLOCK_FIRST)

/* The i-th of a model's weights, and its role: those outside of blocks, then those of each block;
 * NULL behind the last. */
static const struct weight *weight_at(const struct model *m, int i, enum tensor_role *role)
{
    const int n_outside = TENSOR_ROLES - BLOCK_ROLES, l = (i - n_outside) / BLOCK_ROLES;
    if (i < n_outside) {
        *role = i < ROLE_BLOCK_FIRST ? i : i + BLOCK_ROLES;
        return &m->w[*role];
    }
    *role = ROLE_BLOCK_FIRST + (i - n_outside) % BLOCK_ROLES;
    return l < config_blocks(&m->config) ? &m->blocks[l].w[*role] : NULL;
}

static void pack_all(struct packing *p)
{
    const struct config *c = &p->from->config;
    struct arena *arena = &p->to->weights;
    struct block *blocks = arena_take(arena, c->n_layers, sizeof *blocks);
    ARENA_TAKE(p->scratch, arena, p->n_threads);
    for (int t = 0; t < p->n_threads; t++) {
        const struct pack_scratch scratch = pack_scratch_take(arena, layout_longest_row(c));
        if (p->scratch)
            p->scratch[t] = scratch;
    }
    for (int l = 0; l < config_blocks(c) && blocks; l++)
        blocks[l] = p->from->blocks[l];
    if (blocks)
        p->to->blocks = blocks;
    const struct weight *from;
    enum tensor_role role;
    for (int i = 0; (from = weight_at(p->from, i, &role)) != NULL; i++) {
        const struct tensor_spec spec = layout_weight(c, role, 0);
        const struct matrix *w = &from->matrix;
        /* Quantised rows are whole blocks. */
        const bool fits = !storage_is_quantised(p->storage) || w->n_in % QUANT_BLOCK == 0;
        if (!w->panels || !(spec.flags & SPEC_QUANTISES) || spec.flags & SPEC_ROWS_ENTER || !fits)
            continue;
        const uint64_t bytes = matrix_bytes(w->n_out, w->n_in, p->storage);
        if (bytes >= matrix_bytes(w->n_out, w->n_in, w->storage))
            continue;
        void *panels = arena_take(arena, bytes, 1);
        p->n_packed++;
        if (blocks) {
            struct matrix *to = &((struct weight *)(uintptr_t)weight_at(p->to, i, &role))->matrix;
            to->storage = p->storage;
            to->panels = panels;
        }
    }
    for (int l = config_blocks(c); l < c->n_layers && blocks; l++)
        blocks[l] = blocks[0];
}

/* The thread's share of each weight's panels. */
static void fill_share(void *arg, int thread)
{
    const struct packing *p = arg;
    const struct weight *from;
    enum tensor_role role;
    for (int i = 0; (from = weight_at(p->from, i, &role)) != NULL; i++) {
        const struct weight *to = weight_at(p->to, i, &role);
        const int n_out = to->matrix.n_out;
        int begin, end;
        if (to->matrix.panels == from->matrix.panels)
            continue;
        pool_share(matrix_panels(n_out), thread, p->n_threads, &begin, &end);
        end = MIN(end * KERNEL_LANES, n_out);
        pack_again((void *)(uintptr_t)to->matrix.panels, &to->matrix, &from->matrix,
                   begin * KERNEL_LANES, end, &p->scratch[thread]);
    }
}

enum status derived_create_packed(const struct model *m, enum storage storage, struct pool *pool,
                                  struct model **out, struct err *e)
{
    struct model *to;
    *out = NULL;
    TRY_ZEROED(to, 1, "the draft", e);
    *to = *m; /* all of it is borrowed */
    to->weights = (struct arena){0};
    struct packing p = {.from = m, .to = to, .storage = storage, .n_threads = pool_n_threads(pool)};
    pack_all(&p);
    const enum status s = p.n_packed > 0
                              ? arena_allocate(&to->weights, "the draft's weights", e)
                              : err_usage(e, "no matrix of the checkpoint takes fewer bytes as %s",
                                          storage_name(storage));
    if (s != STATUS_OK) {
        free(to);
        return s;
    }
    pack_all(&p);
    pool_run(pool, fill_share, &p);
    to->tied = m->tied && to->w[ROLE_OUTPUT].matrix.panels == m->w[ROLE_OUTPUT].matrix.panels;
    *out = to;
    return STATUS_OK;
}

/* --- fingerprints ---------------------------------------------------------------------------- */

/* Half of the key; the other is the hash so far. */
#define FINGERPRINT_KEY 0x6465636f64652121u

uint64_t fingerprint_of(uint64_t hash, const void *bytes, size_t len)
{
    const uint64_t key[2] = {hash, FINGERPRINT_KEY};
    return len ? siphash(key, text_span(bytes, len)) : hash;
}

/* Floats, of which there may be none. */
static uint64_t hash_floats(uint64_t hash, const float *x, size_t n)
{
    return x ? fingerprint_of(hash, x, n * sizeof *x) : hash;
}

uint64_t model_fingerprint(const struct model *m)
{
    const struct config *c = &m->config;
    const int32_t kinds[] = {c->norm, c->placement, c->position, c->ffn, c->no_biases, c->shared};
    const int32_t sizes[] = {c->n_layers, c->n_heads, c->head_dim, config_value_dim(c),
                             c->d_model,  c->d_ff,    c->n_vocab,  c->rope.n_dims};
    const double numbers[] = {(double)c->norm_eps, (double)c->embedding_scale, c->rope.base,
                              c->rope.scale};
    uint64_t hash = fingerprint_of(0, c->arch->name, strlen(c->arch->name));
    hash = fingerprint_of(hash, kinds, sizeof kinds);
    hash = fingerprint_of(hash, sizes, sizeof sizes);
    hash = fingerprint_of(hash, numbers, sizeof numbers);
    if (c->score_scale != 0)
        hash = fingerprint_of(hash, &c->score_scale, sizeof c->score_scale);
    for (int l = 0; l < c->n_layers; l++) {
        const int32_t kv_heads = config_kv_heads(c, l);
        hash = fingerprint_of(hash, &kv_heads, sizeof kv_heads);
    }
    const struct weight *w;
    enum tensor_role role;
    for (int i = 0; (w = weight_at(m, i, &role)) != NULL; i++) {
        const struct tensor_spec spec = layout_weight(c, role, 0);
        const struct matrix *x = &w->matrix;
        if (m->tied && role == ROLE_OUTPUT)
            continue;
        hash = hash_floats(hash, w->norm.gain, c->d_model);
        hash = hash_floats(hash, w->norm.bias, c->d_model);
        hash = hash_floats(hash, w->table, spec_elements(&spec));
        if (!x->panels)
            continue;
        const int32_t storage = x->storage;
        hash = fingerprint_of(hash, &storage, sizeof storage);
        hash = fingerprint_of(hash, x->panels, matrix_bytes(x->n_out, x->n_in, x->storage));
        hash = hash_floats(hash, x->bias, x->n_out);
    }
    return hash;
}
