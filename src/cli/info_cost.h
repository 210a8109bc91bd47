/*
 * info_cost - what a shape's cache and its steps cost, variant by variant, for the command info.
 */
#ifndef DECODE_CLI_INFO_COST_H
#define DECODE_CLI_INFO_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/output.h"
#include "base/status.h"
#include "cli/columns.h"
#include "measure/inspect.h"
#include "measure/machine.h"
#include "show/report.h"
#include "json/write.h"

/* What is asked about steps: every depth with every batch. */
struct info_settings {
    const int *depths, *batches; /* [n_depths], [n_batches] */
    int n_depths, n_batches;
    const int *ranks; /* [n_ranks] of latent caches, as more variants; each may be one */
    int n_ranks;
    enum storage kv_type;
    struct roofline limits;        /* given; 0 bytes_per_s: not, infinite flops: not counted */
    const struct kernels *kernels; /* to measure with instead, and `pool`; NULL: not asked for.
                                      Without both no times */
    struct pool *pool;
};

struct info_step;

#define INFO_VARIANT_FIELDS 9

struct info_cost {
    const struct cost_shape *shape; /* borrowed */
    struct report_field variant_fields[INFO_VARIANT_FIELDS];
    char headings[INFO_VARIANT_FIELDS][32]; /* theirs: the context is in some */
    bool shows_steps;                       /* the type runs, and somebody asked */
    struct info_settings settings;
    struct config *latent;   /* malloc'd room for that of a latent variant; NULL: no ranks */
    uint64_t available;      /* bytes of memory */
    struct info_step *steps; /* [n_steps] */
    int n_steps;
};

/* Sets what all tables need of the shape. */
void info_cost_begin(struct info_cost *cost, const struct cost_shape *shape);

/* Works out all steps of every variant. STATUS_NO_MEMORY. info_cost_free is due in every case. */
enum status info_cost_plan(struct info_cost *cost, struct err *e);
void info_cost_free(struct info_cost *cost);

/* For people: the formula, the caches, the steps. STATUS_NO_MEMORY. */
enum status info_cost_print(const struct info_cost *cost, enum table_format format,
                            struct output *out, struct err *e);

/* A walk over the variants. */
struct info_variants {
    const struct info_cost *cost;
    struct inspect_variant now;
    struct cost_shape shape; /* that it is of */
    int n_ranks;             /* so far */
};

/* The tables that are printed; of the first the rows are in `walk`. */
struct table info_variant_table(const struct info_cost *cost, struct info_variants *walk);
struct table info_step_table(const struct info_cost *cost);

/* Members of the innermost object. */
void info_cost_json(const struct info_cost *cost, struct json *j);

#endif
