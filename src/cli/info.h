/*
 * info - what the command info found in a checkpoint or of a shape, what its cache and its steps
 * cost, and the printed forms of all that.
 */
#ifndef DECODE_CLI_INFO_H
#define DECODE_CLI_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/output.h"
#include "base/status.h"
#include "cli/columns.h"
#include "cli/numbers.h"
#include "formats/gguf.h"
#include "measure/inspect.h"
#include "measure/machine.h"
#include "model/config.h"
#include "show/report.h"
#include "text/tokenizer.h"

/* What is asked about steps: every depth with every batch. */
struct info_asked {
    struct int_list ranks; /* of latent caches, as more variants; each may be one */
    struct int_list depths, batches;
    enum storage kv_type;
    struct roofline limits;        /* given; 0 bytes_per_s: not, infinite flops: not counted */
    const struct kernels *kernels; /* to measure with instead, and `pool`; NULL: not asked for.
                                      Without both no times */
    struct pool *pool;
};

/* A step of a variant; times are of what is asked only. */
struct info_step {
    const char *name, *kv_type;
    int n_kv_heads, depth, batch;
    struct inspect_step step;
    bool fits;
    const char *fits_word;
    uint64_t flops;
    struct cost_time time; /* the median of the measurements, and their ends */
    double least_us, most_us;
    double mflop, bandwidth_gb_per_s;
    char us[72], rate[72], bandwidth[72]; /* for people: as far as they are known */
};

/* A tensor of the file. */
struct info_tensor {
    struct gguf_tensor tensor;
    const char *type;
    char shape[GGUF_MAX_DIMS * 24];
    uint64_t offset;  /* of the data, from the start of the file */
    int64_t nan, inf; /* values; -1: not checked */
};

/* The sum of all checks. */
struct info_check {
    uint64_t checked, unchecked, scales, bad; /* tensors */
    uint64_t nan, inf;                        /* values */
};

/* Columns of the caches' table. */
#define INFO_CACHE_FIELDS 9

struct info {
    /* What there is: a file, mapped, or a shape; NULL: the other one. */
    const char *path, *shape_text;
    struct file_map file;
    struct gguf *gguf;
    struct tokenizer *tokenizer; /* NULL: none, or it cannot be read */
    bool has_config;             /* an architecture that runs here, with tensors */
    bool runs;                   /* the weights are of a type that runs here: shape is known */
    struct config config;
    struct cost_shape shape; /* of the config; its storage means nothing unless `runs` */

    /* Properties; what is NULL or empty is not so, or there is none. */
    uint64_t file_bytes, gguf_version, n_keys, n_tensors;
    struct text architecture, name, tokenizer_model;
    struct err refusal, tokenizer_problem;
    const char *does_not_run, *problem; /* these two, or NULL */
    char size[64], format_line[96], variant[16];
    const char *type, *norm, *placement, *position, *ffn, *output;
    char block[96];               /* norm, placement and so on in words */
    struct bytes by_layer;        /* a number a layer, malloc'd; one of the next two */
    struct text kv_heads, latent; /* K/V heads or ranks, where layers differ in them */
    double norm_eps;
    int value_dim, n_tokens;
    bool tied, adds_bos;
    int64_t bos, eos; /* -1: none */
    char bos_note[48];

    /* Tables. */
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    bool list_tensors, check_tensors;
    struct info_tensor *tensors; /* [gguf->n_tensors] malloc'd if one of these; else NULL */
    struct info_check check;
    struct err first_bad; /* what is wrong with the first tensor that has values not finite */
    struct inspect_variants variants; /* none of what does not run: it may have another cache */
    struct report_field cache_fields[INFO_CACHE_FIELDS];
    char cache_headings[INFO_CACHE_FIELDS][32]; /* theirs: the context is in some */
    struct info_asked asked;
    uint64_t available;      /* bytes of memory */
    struct info_step *steps; /* [n_steps] malloc'd; NULL: nobody asked, or the type does not run */
    int n_steps;

    enum table_format format;
    const char *columns; /* of the tables, which are all that is printed then; NULL: everything */
    struct output *out;
};

/* Lists the variants of a shape that runs, and with `steps` works out all steps of each.
 * STATUS_NO_MEMORY. */
enum status info_plan_cost(struct info *info, bool steps, struct err *e);

/* The tables of what info_plan_cost found. */
struct table info_cache_table(const struct info *info);
struct table info_step_table(const struct info *info);

/* For people: the formula, the caches, the steps. STATUS_NO_MEMORY. */
enum status info_print_cost(const struct info *info, struct err *e);

/* Several tables for people, one CSV table, or one JSON object. STATUS_NO_MEMORY; STATUS_USAGE for
 * columns that no table has. */
enum status info_print(const struct info *info, struct err *e);

#endif
