/*
 * info - one run of decode info, for its two halves: what there is (cmd_info), and what it costs
 * (info_cost).
 */
#pragma once

#include "cli/common.h"
#include "cli/job.h"
#include "cli/shape.h"
#include "formats/gguf.h"
#include "measure/inspect.h"
#include "measure/machine.h"
#include "model/pack.h"

/* The most that --bandwidth takes: with more, times are less than a double of microseconds shows.
 */
#define MOST_GB_PER_S 1e9

/* The values of the options of decode info. */
struct info_options {
    struct common_options common;
    bool tensors, check;
    struct option_strings shapes;
    struct shape_options shape; /* its arch */
    int type;                   /* the index into storage_names and 1 more; 0: not given */
    const char *depths, *batches, *bandwidth;
    int shards;    /* 0: not given */
    double gflops; /* per second; 0: not given */
};

static inline bool info_is_auto(const struct info_options *o)
{
    return o->bandwidth && str_is(o->bandwidth, "auto");
}

/* Types of tensors in a file, at most: more than the format has. */
#define TYPES_MOST 64

/* What decode info knows of one checkpoint or shape, and reports. */
struct info {
    const struct info_options *o;
    struct job *job;
    struct file_map file; /* of job.path; none of a shape */
    struct gguf *gguf;
    struct tokenizer *tokenizer;                       /* NULL: none, or it cannot be read */
    struct err refusal, tokenizer_problem, not_finite; /* "": none */
    struct config config; /* of an architecture that runs here, with tensors */
    bool has_config;
    bool runs; /* the weights are of a type that runs here: the type in `cost` means it */
    struct cost_shape cost;
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    struct inspect_variants variants;
    struct roofline limits; /* the machine's, as they were given; bytes_per_s is 0 if they were not,
                               flops infinite if they do not count */
    int64_t available;      /* bytes of memory; negative: not known */
    struct info_step {
        const char *shape; /* as it was given; NULL: of a checkpoint */
        char variant[16];
        struct cost_plan of;
        struct inspect_shard shard; /* with --shards */
        double cache_over_weights;
        bool fits;
        const char *fits_word;
    } * steps; /* [n_steps] malloc'd: variants change fastest, then batches */
    struct info_tensor {
        struct gguf_tensor of;
        const char *type;
        struct shape_text shape;
        struct inspect_check check;
    } * tensors; /* [n_listed] malloc'd */
    int n_steps, n_listed;

    /* Properties; of texts and strings NULL is none, and of numbers a negative one. */
    const char *subject, *type, *norm, *placement, *position, *ffn, *score, *does_not_run, *problem,
        *pretokenizer;
    struct text architecture, name, token_kind;
    uint64_t file_bytes;
    int64_t gguf_version, n_keys, n_tensors, value_dim, n_tokens, bos, eos;
    int64_t tensors_checked, tensors_not_checked, nan, inf; /* the last two are values */
    char variant[16], heads_by_layer[CONFIG_MAX_LAYERS * 8],
        kv_heads_by_layer[CONFIG_MAX_LAYERS * 8];
    char ends[400]; /* "2 (eos_token_id), 5 (<|im_end|>)" */
    double norm_eps, score_scale;
    bool adds_bos;
    /* How many tensors are of each type, in order of first use. */
    int n_types;
    int64_t of_type[TYPES_MOST];
    char type_headings[TYPES_MOST][40];
    struct report_field types[TYPES_MOST];
};
