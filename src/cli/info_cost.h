/*
 * info_cost - what the KV cache and the steps of every variant of a shape cost, as the command info
 * shows it.
 */
#ifndef DECODE_CLI_INFO_COST_H
#define DECODE_CLI_INFO_COST_H

#include "base/mem.h"
#include "cli/job.h"
#include "compute/pool.h"
#include "measure/inspect.h"

#define INFO_CACHE_FIELDS 9

struct info_cost {
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
    struct info_step *steps; /* malloc'd */
    struct table cache_table, step_table;
    struct report_field cache_fields[INFO_CACHE_FIELDS];
    char cache_headings[INFO_CACHE_FIELDS][32]; /* theirs: the context is in some */
};

/* Works out both tables; info_cost_free is due in every case. STATUS_NO_MEMORY. */
enum status info_cost_plan(struct info_cost *c, struct err *e);
void info_cost_free(struct info_cost *c);

/* For people, before the tables: how the bytes of a token come about; what a step is. */
void info_cost_explain(const struct info_cost *c, struct output *out);
void info_cost_explain_steps(const struct info_cost *c, struct output *out);

#endif
