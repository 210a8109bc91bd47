/*
 * bench - per-token latency across attention variants.
 *
 * One row for every combination of checkpoint, variant, weight type, cache type, threads, depth and
 * batch. A sample is the time of one session_step of one token of each of the batch's sequences,
 * all their logits included; after each the positions go back, so that every sample is taken at
 * exactly the row's depth. Caches have synthetic content, which does not change how long a step
 * takes. A repeat measures all rows one after the other, so that changes of the machine's speed
 * affect all equally, and begins with new threads, so that repeats do not share where the system
 * has put these. What the samples say is in verdicts.h.
 */
#pragma once

#include "base/callbacks.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "engine/session.h"
#include "measure/inspect.h"
#include "measure/machine.h"

/* What rows differ in, in the order in which they change, fastest first. */
enum bench_axis {
    BENCH_VARIANTS, /* K/V heads, as heads_check has them for each subject; BENCH_AS_IS */
    BENCH_SUBJECTS, /* 0 to n_subjects - 1 */
    BENCH_BATCHES,  /* sequences that a step serves, 1 or more */
    BENCH_DEPTHS,   /* positions in each cache before the timed token; the context: one less */
    BENCH_THREADS,  /* 1 to POOL_MAX_THREADS */
    BENCH_KV_TYPES, /* kv_type_item of the cache's */
    BENCH_TYPES,    /* enum storage of the matrices; BENCH_AS_IS */
    BENCH_AXES
};

/* An item of BENCH_VARIANTS or BENCH_TYPES: as the checkpoint is. */
#define BENCH_AS_IS (-1)

/* What a run spends its time on: on models, the prefill measurement, caches of each row's depth,
 * the machine's limits, and steps with those that warm up. */
enum bench_stage {
    BENCH_LOAD,
    BENCH_PREFILL,
    BENCH_FILL,
    BENCH_ROOFLINE,
    BENCH_STEPS,
    BENCH_STAGES
};
extern const char *const bench_stage_names[BENCH_STAGES];

/* A checkpoint, or a shape whose weights are random. All is borrowed. */
struct bench_subject {
    const char *name;              /* its path, or the shape as it was given */
    const struct gguf *gguf;       /* NULL: a shape */
    const struct file_map *source; /* of gguf; its pages are released as they are copied */
    struct config config;
};

struct bench_spec {
    struct int_list axes[BENCH_AXES];     /* a row for every combination */
    const struct bench_subject *subjects; /* as many as BENCH_SUBJECTS has items; the first one as
                                             it is, is the base that rows are compared with */
    int n, repeats;                       /* samples a repeat; both 1 or more */
    bool settles;            /* whether a row takes fewer where they settle its median */
    int warmup;              /* steps before a row's samples in every repeat */
    int prompt;              /* tokens of the prefill measurement; 0: none */
    double roofline_seconds; /* for each limit of the machine, at most */
    const struct kernels *kernels;
    struct callbacks callbacks; /* of rows x (1 + repeats); stopped it ends with what there is */
};

/* What rows of one checkpoint, variant and weight type have in common. */
struct bench_model {
    const struct bench_subject *subject;
    struct inspect_variant variant;
    struct model *model; /* NULL unless rows are measured */
    double load_ms;      /* to build it */
};

/* How a row's time compares with the least at its depth and batch. */
enum bench_verdict {
    BENCH_UNJUDGED, /* one repeat says nothing about the next, nor does a machine that was busy */
    BENCH_SLOWER,
    BENCH_TOSS_UP, /* it, or another, may be the fastest */
    BENCH_FASTEST
};

/* A row's variant on a text, converted on another one. */
struct bench_loss {
    double bits_per_byte;
    double lost, lost_error; /* more than the checkpoint's bits per byte; its standard error */
};

struct bench_row {
    /* The setting. */
    int at[BENCH_AXES]; /* its place on each axis */
    struct bench_model *model;
    struct cost_plan plan;
    enum storage type; /* of the output matrix, where the file mixes several */
    int threads;
    int n; /* samples a repeat */
    /* What was measured. */
    struct session *session;     /* NULL unless rows are measured */
    uint64_t *times_ns;          /* [samples], in the order taken; owned by the bench */
    int samples, repeats;        /* repeats: whole ones */
    double *medians_us;          /* [repeats] of each repeat; owned by the bench */
    double cpu_share;            /* of its threads' time that they had the processors */
    double prefill_tokens_per_s; /* of one sequence; NaN: not measured */
    double prefill_share;        /* of what the limits allow; NaN: not measured */
    uint64_t logits_hash;        /* FNV-1a of the first token's in sequence 0: equal for
                                    any threads, any batch and any n */
    /* What follows from that, see verdicts.h. */
    double p10_us, p50_us, p90_us, p99_us, max_us, mean_us;
    double us_per_token;   /* median over batch */
    double tokens_per_s;   /* of all sequences: batch / mean */
    double gb_per_s;       /* bytes of a step over the median */
    double share_of_limit; /* plan.predicted.us over the median */
    double spread;         /* (largest - least) / least of medians_us */
    enum bench_verdict verdict;
    double speedup, predicted_speedup; /* over the base at the same setting, by median and as
                                          predicted: at batch 1 by bytes, else by time. NaN: there
                                          is none */
    bool like_base;                    /* not told apart from the base */
    bool unsure;    /* nothing is known of the speed-up: one of them was disturbed */
    char note[160]; /* why its figures may not be taken at their word, or not together; "" */
    /* With a text, see bench_choose. */
    struct bench_loss loss;
    char beyond[24]; /* the limits that it exceeds: "loss, time"; "": none */
    double excess;   /* by which it does, the sum over these of its share of the limit less 1 */
    bool chosen;
};

struct bench {
    const struct bench_spec *spec;
    struct bench_row *rows;
    struct bench_model *models; /* [n_models] */
    struct machine *machines;   /* [n_pools] the limits of all rows, by BENCH_THREADS */
    struct pool **pools;        /* the same; NULL unless rows are measured */
    int n_rows, n_models, n_pools;
    int most_sequences; /* the largest batch */
    uint64_t bytes;     /* of all models and caches, and the largest step's logits; UINT64_MAX for
                           more */
    uint64_t peak_rss_bytes; /* of the process, once all rows were set up, before the limits */
    double cpu_share;        /* the mean of the rows' */
    uint64_t stage_ns[BENCH_STAGES],
        stage_began_ns; /* what each took; when the present one began */
    struct arena arena; /* of the members above, and of the samples */
    /* Buffers of a step. */
    struct batch_row *step; /* [most_sequences] its rows */
    float *logits;          /* [most_sequences, the largest vocabulary] what it gives */
    int32_t *tokens;        /* of the prefill measurement */
    float *head;            /* a key and a value */
    uint64_t *sorted;       /* scratch, a row's samples */
    struct arena buffers;   /* of these buffers */
};

/* Checks the settings, which are borrowed, and sets up the rows with their plans. STATUS_USAGE says
 * which value cannot be; STATUS_BAD_FILE for a checkpoint of types that do not run, whose message
 * names it; STATUS_NO_MEMORY. bench_free is due on success. */
enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e);

/* The axis that rows are drawn over: the batch, if there are several at one depth; else the depth.
 */
static inline enum bench_axis bench_x_axis(const struct bench_spec *spec)
{
    return spec->axes[BENCH_BATCHES].n > 1 && spec->axes[BENCH_DEPTHS].n == 1 ? BENCH_BATCHES
                                                                              : BENCH_DEPTHS;
}

/* The number of the row's line in the plot: rows of one line differ on bench_x_axis only. */
int bench_line(const struct bench_spec *spec, const struct bench_row *row);

/* Measures the planned rows; what follows from the samples is bench_conclude's. STATUS_FAILED if a
 * row's threads cannot all be started, STATUS_NO_MEMORY, the failures of model_create.
 * STATUS_INTERRUPTED if `stop` ended it: only rows with samples are left. */
enum status bench_run(struct bench *b, struct err *e);

void bench_free(struct bench *b); /* legal on a zeroed struct and twice */

/* Appends positions with synthetic keys and values, a function of the seed alone, to a sequence
 * until it has n <= session_cap: so a depth is measured without the steps that lead there.
 * `kernels` are the session's; `scratch` has room for a head's key and value. */
void bench_fill(struct session *s, const struct config *c, const struct kernels *kernels,
                int sequence, int n, uint64_t seed, float *scratch);
