/*
 * bench - per-token latency across attention variants.
 *
 * One row for every combination of variant, weight type, cache type, threads, depth and batch. A
 * sample is the time of one session_step of one token of each of the batch's sequences, all their
 * logits included; after each the positions go back, so that every sample is taken at exactly the
 * row's depth. Caches have synthetic content, which does not change how long a step takes. A repeat
 * measures all rows one after the other, so that changes of the machine's speed affect all equally,
 * and begins with new threads, so that repeats do not share where the system has put these.
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
    BENCH_VARIANTS, /* K/V heads: divisors of config.n_kv_heads */
    BENCH_BATCHES,  /* sequences that a step serves, 1 or more */
    BENCH_DEPTHS,   /* positions in each cache before the timed token */
    BENCH_THREADS,  /* 1 to POOL_MAX_THREADS */
    BENCH_KV_TYPES, /* enum storage of the cache: F32, F16, Q8_0 */
    BENCH_TYPES,    /* enum storage of the matrices; BENCH_AS_FILE */
    BENCH_AXES
};

/* How a row's time compares with the least at its depth and batch. Rows are told apart where one is
 * faster in every repeat (in different groups: where no repeat's median is within the other's). */
enum bench_verdict {
    BENCH_UNJUDGED, /* one repeat says nothing about the next */
    BENCH_SLOWER,
    BENCH_TOSS_UP, /* it, or another, may be the fastest */
    BENCH_FASTEST
};

/* An item of BENCH_TYPES: the matrices stay as they are in the file. */
#define BENCH_AS_FILE (-1)

struct bench_spec {
    struct int_list axes[BENCH_AXES]; /* a row for every combination */
    const struct gguf *gguf;          /* the checkpoint; NULL: random weights of `config` */
    const struct file_map *source;    /* of gguf; its pages are released as they are copied */
    struct config config;             /* of the checkpoint, or the shape wanted */
    int n, repeats;                   /* samples a repeat; both 1 or more */
    int warmup;                       /* steps before a row's samples in every repeat, not timed */
    int prompt;                       /* tokens of the prefill measurement; 0: none */
    uint64_t most_bytes;              /* rows that do not fit in so many together are measured in
                                         groups, each beside its base; 0: all together */
    double roofline_seconds;          /* for measuring the limits of all rows, at most */
    const struct kernels *kernels;
    struct callbacks callbacks; /* of rows x (1 + repeats); stopped it ends with what there is */
};

struct bench_row {
    /* The setting. */
    int at[BENCH_AXES]; /* its place on each axis */
    struct inspect_step step;
    enum storage type; /* of the output matrix, where the file mixes several */
    int threads;
    /* Its places among the models (variants x types), and among the lines: of rows that differ in
     * depth only, or, over batches, in batch only. */
    int model, line;
    int group;               /* from 1: those of one are measured in the same repeats */
    struct session *session; /* NULL until it is needed */
    /* What was measured. */
    uint64_t *times_ns;   /* [samples], in the order taken; owned by the bench */
    int samples, repeats; /* repeats: whole ones */
    double *medians_us;   /* [repeats] of each; owned likewise */
    double p10_us, p50_us, p90_us, p99_us, max_us, mean_us;
    double us_per_token; /* median over batch */
    double tokens_per_s; /* of all sequences: batch / mean */
    double gb_per_s;     /* bytes of a step over the median */
    enum bench_verdict verdict;
    double speedup, predicted_speedup; /* over the base, the checkpoint's own variant, at the same
                                          setting, by median and as predicted: at batch 1 by bytes,
                                          else by time. NaN: there is none */
    double speedup_low, speedup_high;  /* the least and the largest of one repeat, medians over
                                          medians: the true median lies outside with probability
                                          2^(1 - repeats). NaN with one repeat */
    double share_of_limit;             /* step.predicted.us over the median */
    double p50_low_us, p50_high_us;    /* the least and the largest of medians_us */
    double spread;                     /* (largest - least) / least of them */
    double cpu_share;                  /* of its threads' time that they had the processors */
    double prefill_tokens_per_s;       /* of one sequence; NaN: not measured */
    double load_ms;                    /* building the model */
    uint64_t peak_rss_bytes;           /* of bench_load_row; the caller's to fill in */
    uint64_t logits_hash; /* FNV-1a of sequence 0's: equal for any threads and any batch */
};

/* What rows of one variant and type have in common. */
struct bench_model {
    struct inspect_variant variant;
    struct model *model; /* NULL until it is needed */
    double load_ms;
    int group; /* the last one that it was planned for */
};

struct bench {
    const struct bench_spec *spec;
    struct bench_row *rows;
    struct bench_model *models; /* [n_models] by struct bench_row's places */
    struct machine *machines;   /* [n_machines] the limits of all rows, by BENCH_THREADS */
    struct pool **pools;        /* the same; NULL until they are needed */
    int n_rows, n_models, n_lines, n_machines;
    int n_again; /* rows behind these: bases once more, for groups that their own rows are not in */
    int n_groups;       /* 1 where all fit */
    int most_sequences; /* the largest batch */
    uint64_t bytes;     /* of the largest group's models and caches, and the largest step's logits;
                           UINT64_MAX for more */
    struct arena arena; /* of these, and the samples */
    /* What steps are taken with; NULL until it is needed. */
    struct batch_row *step; /* [most_sequences] that a step takes, and gives */
    float *logits;          /* [most_sequences, n_vocab] */
    uint64_t *sorted;       /* scratch, a row's samples */
    int32_t *tokens;        /* of the prefill measurement */
    struct arena buffers;   /* where these are */
};

/* Checks the settings, which are borrowed, and sets up the rows. STATUS_USAGE says which value
 * cannot be; STATUS_NO_MEMORY. bench_free is due on success. */
enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e);

/* What the rows are to be seen over: their batch, if there are several at one depth; else depth. */
static inline enum bench_axis bench_x_axis(const struct bench_spec *spec)
{
    return spec->axes[BENCH_BATCHES].n > 1 && spec->axes[BENCH_DEPTHS].n == 1 ? BENCH_BATCHES
                                                                              : BENCH_DEPTHS;
}

/* Whether a step of the first row is faster on one thread than on the row's: what most of a few
 * trials say, each with new threads (see session_prefers_one_thread). The failures of
 * bench_load_row; STATUS_FAILED as of bench_run. */
enum status bench_prefers_one_thread(struct bench *b, bool *out, struct err *e);

/* Does what row i needs once: model, session, caches, two steps. Meant for a process of its own,
 * whose peak memory is then the row's. STATUS_INTERRUPTED if `stop` ended it. */
enum status bench_load_row(struct bench *b, int i, struct err *e);

/* Measures the planned rows, but for peak_rss_bytes. STATUS_FAILED if a row's threads cannot all be
 * started. STATUS_INTERRUPTED if `stop` ended it: only rows of which something was measured are
 * left. */
enum status bench_run(struct bench *b, struct err *e);

void bench_free(struct bench *b); /* legal on a zeroed struct and twice */

/* --- what bench_run does with samples -------------------------------------------------------- */

/* Fills in the row's percentiles, rates and spread from its samples, `n` a repeat; `sorted`
 * [samples] is scratch. */
void bench_summarise(struct bench_row *row, int n, uint64_t *sorted);

/* From the limits as measured, and the rows' medians, to those of all rows, and to each row's
 * prediction. */
void bench_predict(struct bench *b);

/* Fills in the speed-ups of all rows, which have their predictions, over the base, which has
 * n_kv_heads K/V heads: those measured over the base of the same group. */
void bench_compare(struct bench *b, int n_kv_heads);

/* Fills in the verdicts of all rows. */
void bench_judge(struct bench *b);
