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

/* For people: the formula, the caches, the steps. For CSV only the steps. STATUS_NO_MEMORY. */
enum status info_cost_print(const struct info_cost *cost, enum table_format format,
                            struct output *out, struct err *e);

/* The tables that are printed, the steps last: out [2]; returns their number. */
int info_cost_tables(const struct info_cost *cost, enum table_format format,
                     struct columns_table out[2]);

/* One of these tables, with the chosen columns alone. STATUS_NO_MEMORY. */
enum status info_cost_print_table(const struct info_cost *cost, enum table_format format,
                                  const struct columns_table *table, const struct columns *chosen,
                                  struct output *out, struct err *e);

/* Members of the innermost object. */
void info_cost_json(const struct info_cost *cost, struct json *j);

#endif
