/*
 * study_plan - the cells of a study: which checkpoints it compares, what each is called and which
 * one it is made from.
 */
#ifndef DECODE_CLI_STUDY_PLAN_H
#define DECODE_CLI_STUDY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/numbers.h"
#include "model/config.h"

/* Where the K/V heads of a cell come from; in this order in every list. */
enum study_method {
    STUDY_MHA, /* trained, or the control: trained further as it is */
    STUDY_MEAN,
    STUDY_FIRST,
    STUDY_RANDOM,
    STUDY_PROCRUSTES,
    STUDY_FIT,
    STUDY_LATENT,  /* to a latent cache in place of fewer K/V heads */
    STUDY_SCRATCH, /* no conversion: trained with so few from the first step on */
    STUDY_N_METHODS
};
/* "mha", ..., "scratch", NULL. */
extern const char *const study_methods[];
static inline bool study_converts(enum study_method method)
{
    return method > STUDY_MHA && method < STUDY_SCRATCH;
}

struct study_cell {
    uint64_t seed;
    int kv_heads; /* 1 of latent caches */
    int latent;   /* their rank; 0: the cache has keys and values of heads */
    enum study_method method;
    bool taught;  /* trained further with the MHA checkpoint as the teacher, too */
    double alpha; /* percent of the MHA checkpoint's steps for which it is trained further */
    int steps;    /* its own: of the further training, or of all of it from scratch */

    /* What follows from these. */
    const char *method_name;
    char variant[16]; /* "GQA-2" */
    char name[80];    /* "s1-gqa2-fit-a5": of its files */

    /* What is known once it is done. */
    bool done;
    double bits_per_byte;
    uint64_t cache_bytes_per_token; /* f32 */
    double seconds;                 /* that its own conversion or training took */
};

/* Percents of the steps; an item once. */
struct study_shares {
    double items[LIST_MAX];
    int n;
};

/* What is compared. */
struct study_wanted {
    const struct config *config; /* of the MHA checkpoint */
    struct int_list kv_heads;    /* fewer than its heads */
    struct int_list methods;     /* of study_methods, those that convert to K/V heads */
    struct int_list latent;      /* ranks of latent caches */
    struct study_shares alphas;  /* 0 among them */
    struct study_shares scratch; /* for which cells are trained from scratch, for as long in all */
    uint64_t first_seed;
    int n_seeds, n_steps;
    bool taught;
};

struct study_plan {
    struct study_cell *cells; /* [n] as study_order has them: what a cell is made from comes before;
                                 malloc'd */
    int n;
};

/* STATUS_USAGE where an item of alphas or scratch is too much; STATUS_NO_MEMORY. */
enum status study_plan_make(const struct study_wanted *w, struct study_plan *plan, struct err *e);
void study_plan_free(struct study_plan *plan);

/* Fills in what follows from the rest. */
void study_cell_complete(struct study_cell *cell, const struct config *c);

/* Whether two cells are of one variant: their caches are alike. */
static inline bool study_same_variant(const struct study_cell *a, const struct study_cell *b)
{
    return a->kv_heads == b->kv_heads && a->latent == b->latent;
}

/* For qsort: by K/V heads, most first, then by rank, likewise; method; teacher; alpha; seed. */
int study_order(const void *a, const void *b);

/* The cell that this one begins with: the conversion, or the MHA checkpoint. NULL: none. */
struct study_cell *study_origin(const struct study_plan *plan, const struct study_cell *cell);
/* The MHA checkpoint of its seed. */
struct study_cell *study_base(const struct study_plan *plan, const struct study_cell *cell);

/* Appends the percents of a list "0,1,2.5", which cells' names have to the digit. STATUS_USAGE
 * names the option. */
enum status study_list_shares(const char *option, const char *text, struct study_shares *list,
                              struct err *e);

/* "I/N": every N-th cell from I, which is below N, on. */
struct study_shard {
    int index, n;
};
enum status study_read_shard(const char *text, struct study_shard *shard, struct err *e);

#endif
