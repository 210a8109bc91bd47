/*
 * costs - what a checkpoint, or a shape written on the command line, costs: the tables of its
 * caches and steps that the command info shows, and of those that bench measured.
 */
#ifndef DECODE_CLI_COSTS_H
#define DECODE_CLI_COSTS_H

#include "cli/job.h"
#include "measure/bench.h"

/* --- a transformer's shape ------------------------------------------------------------------- */

/* What a new model can be made as, of arch_preset; first the usual one. */
extern const char *const shape_archs[];

/* Fills in what a shape is without: of sizes that are 0 K/V heads as query heads, ff 4 * d_model,
 * or 8/3 of it in steps of 32 for gated kinds, vocabulary and context as GPT-2's, 50257 and 1024.
 * Layers, width, heads, architecture and kinds are there. */
void shape_complete(struct config *c);

/*
 * LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]: an MHA shape of an architecture, completed.
 * STATUS_USAGE says which number, its range and what was found.
 */
enum status shape_parse(const char *text, const struct arch *arch, struct config *c, struct err *e);

/* A shape instead of a checkpoint, of the commands that need no file. */
struct shape_options {
    const char *shape;
    int arch; /* of shape_archs, and 1 more; 0: not given */
};
extern const struct option shape_options[];

/* The shape of --shape, which is given. STATUS_USAGE also if a checkpoint is named beside it. */
enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e);

/* --- what its variants cost ------------------------------------------------------------------ */

struct costs {
    /* What is asked: of which shape, with latent caches of these ranks as more variants, and every
     * depth with every batch; without depths there are no steps. */
    struct cost_shape shape;
    struct int_list ranks, depths, batches;
    enum storage kv_type;
    struct roofline limits;        /* given; 0 bytes_per_s: not, infinite flops: not counted */
    const struct kernels *kernels; /* to measure with instead, and `pool`; NULL: not asked for.
                                      Without both no times */
    struct pool *pool;

    /* What it comes to. */
    uint64_t available; /* bytes of memory */
    struct inspect_variants variants;
    struct cost_step {
        struct inspect_step of;
        bool fits;
        const char *fits_word;
    } * steps; /* malloc'd; variants change fastest, then batches */
    struct table cache_table, step_table;
};

/* Works out both tables; costs_free is due in every case. STATUS_NO_MEMORY. */
enum status costs_plan(struct costs *c, struct err *e);
void costs_free(struct costs *c);

/* What is said before each table: how the bytes of a token come about, and what a step is. */
void costs_explain_caches(const struct costs *cost, struct output *out);
void costs_explain_steps(const struct costs *c, struct output *out);

/* --- what was measured ----------------------------------------------------------------------- */

/* Fills in what is shown of a benchmark's rows beside figures, see struct bench_shown, and prints
 * them; `subject` is the checkpoint's path, or the shape as given, `cpu` the processor's name.
 * STATUS_NO_MEMORY. */
enum status bench_print(struct bench *b, const char *subject, const char *cpu, struct job *j,
                        struct err *e);

#endif
