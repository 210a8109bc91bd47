/*
 * Packing runs the same loop over all matrices three times: it counts their memory, takes it, and
 * fills it, each thread its share of every matrix's panels.
 */
#include "model/derived.h"

#include <stdlib.h>

#include "model/pack.h"

struct packing {
    const struct model *from;
    struct model *to;
    enum storage storage;
    int n_threads;
    struct arena *arena;
    struct pack_scratch *scratch; /* [n_threads] */
    int n_packed;                 /* matrices */
};

/* Quantised rows are whole blocks. */
static bool can_be_smaller(const struct packing *p, const struct matrix *w)
{
    const bool fits = !storage_is_quantised(p->storage) || w->n_in % QUANT_BLOCK == 0;
    return fits && matrix_bytes(w->n_out, w->n_in, p->storage) <
                       matrix_bytes(w->n_out, w->n_in, w->storage);
}

static void pack_one(struct packing *p, enum tensor_role role, const struct weight *from,
                     struct weight *to)
{
    const struct tensor_spec spec = layout_weight(&p->from->config, role, 0);
    const struct matrix *w = &from->matrix;
    if (!w->panels || !(spec.flags & SPEC_QUANTISES) || spec.flags & SPEC_ROWS_ENTER ||
        !can_be_smaller(p, w))
        return;
    void *panels = arena_take(p->arena, (uint64_t)spec.n_matrices,
                              matrix_bytes(w->n_out, w->n_in, p->storage));
    p->n_packed++;
    if (!to)
        return;
    to->matrix.storage = p->storage;
    to->matrix.panels = panels;
}

static void pack_all(struct packing *p)
{
    const struct config *c = &p->from->config;
    struct block *blocks = arena_take(p->arena, (uint64_t)c->n_layers, sizeof *blocks);
    struct model *to = blocks ? p->to : NULL;
    p->scratch = arena_take(p->arena, (uint64_t)p->n_threads, sizeof *p->scratch);
    for (int t = 0; t < p->n_threads; t++) {
        const struct pack_scratch scratch = pack_scratch_take(p->arena, layout_longest_row(c));
        if (p->scratch)
            p->scratch[t] = scratch;
    }
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        if (!role_in_block(role))
            pack_one(p, role, &p->from->w[role], to ? &to->w[role] : NULL);
    for (int l = 0; l < config_blocks(c); l++) {
        if (to)
            blocks[l] = p->from->blocks[l];
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
            pack_one(p, role, &p->from->blocks[l].w[role], to ? &blocks[l].w[role] : NULL);
    }
    for (int l = config_blocks(c); l < c->n_layers && to; l++)
        blocks[l] = blocks[0];
    if (to)
        to->blocks = blocks;
}

/* --- filling --------------------------------------------------------------------------------- */

/* The thread's share of a weight's panels, in all its matrices: a head's each, or one. */
static void fill_one(const struct packing *p, enum tensor_role role, const struct weight *from,
                     const struct weight *to, int thread)
{
    const int n_out = to->matrix.n_out;
    const int n_matrices = layout_weight(&p->from->config, role, 0).n_matrices;
    int begin, end;
    if (to->matrix.panels == from->matrix.panels)
        return;
    pool_share(matrix_panels(n_out), thread, p->n_threads, &begin, &end);
    end = end * KERNEL_LANES < n_out ? end * KERNEL_LANES : n_out;
    for (int i = 0; i < n_matrices; i++) {
        const struct matrix w = model_head_matrix(to, i), source = model_head_matrix(from, i);
        pack_again((void *)(uintptr_t)w.panels, &w, &source, begin * KERNEL_LANES, end,
                   &p->scratch[thread]);
    }
}

static void fill_share(void *arg, int thread)
{
    const struct packing *p = arg;
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        fill_one(p, role, &p->from->w[role], &p->to->w[role], thread);
    for (int l = 0; l < config_blocks(&p->from->config); l++)
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
            fill_one(p, role, &p->from->blocks[l].w[role], &p->to->blocks[l].w[role], thread);
}

/* --- models ---------------------------------------------------------------------------------- */

/* All of it is borrowed. */
static enum status create_copy(const struct model *m, struct model **out, struct err *e)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return err_no_memory(e, "the draft", sizeof **out);
    **out = *m;
    (*out)->weights = (struct arena){0};
    return STATUS_OK;
}

enum status derived_create_packed(const struct model *m, enum storage storage, struct pool *pool,
                                  struct model **out, struct err *e)
{
    *out = NULL;
    struct model *to;
    struct arena arena = {0};
    struct packing p = {
        .from = m, .storage = storage, .n_threads = pool_n_threads(pool), .arena = &arena};
    pack_all(&p);
    if (p.n_packed == 0)
        return err_set(e, STATUS_USAGE, "no matrix of the checkpoint takes fewer bytes as %s",
                       storage_name(storage));
    TRY(create_copy(m, &to, e));
    p.to = to;
    const enum status s = arena_allocate(&arena, "the draft's weights", e);
    if (s != STATUS_OK) {
        free(to);
        return s;
    }
    pack_all(&p);
    pool_run(pool, fill_share, &p);
    to->weights = arena;
    to->tied = m->tied && to->w[ROLE_OUTPUT].matrix.panels == m->w[ROLE_OUTPUT].matrix.panels;
    *out = to;
    return STATUS_OK;
}

enum status derived_create_cut(const struct model *m, int n_layers, struct model **out,
                               struct err *e)
{
    *out = NULL;
    if (n_layers < 1 || n_layers >= m->config.n_layers)
        return err_set(e, STATUS_USAGE,
                       "expected fewer layers than the checkpoint has, 1 to %d of %d, found %d",
                       m->config.n_layers - 1, m->config.n_layers, n_layers);
    TRY(create_copy(m, out, e));
    (*out)->config.n_layers = n_layers;
    return STATUS_OK;
}
