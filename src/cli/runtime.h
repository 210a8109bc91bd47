/*
 * runtime - from the options to what runs a model: threads, kernels, an open checkpoint, a session.
 *
 * Of the environment DECODE_THREADS is the default of -t, DECODE_ISA forces a kernel table.
 */
#ifndef DECODE_CLI_RUNTIME_H
#define DECODE_CLI_RUNTIME_H

#include <stdbool.h>

#include "base/status.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/variant.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "engine/session.h"
#include "model/checkpoint.h"

/* Of the commands that run the model. */
struct engine_options {
    const char *threads;            /* -t: NULL, a number or "auto" */
    int kv_type;                    /* of kv_type_names */
    int block;                      /* 0: the default */
    const char *without;            /* NULL: all heads are there */
    struct variant_options variant; /* its own table of options */
};
extern const struct option engine_options[];

/* What a cache can be stored as, NULL after the last; as an enum storage; and the option that makes
 * a cache of this type smaller, "" for the smallest. */
extern const char *const kv_type_names[];
extern const enum storage kv_type_storage[];
extern const char *const kv_type_advice[];

/* The number of the type of --type (an enum tensor_type), which is required. STATUS_USAGE. */
enum status runtime_weight_type(const char *name, uint32_t *out, struct err *e);

/* The seed that the option gives, or a random one. STATUS_FAILED if the system has none. */
enum status runtime_seed(const struct option_u64 *given, uint64_t *seed, struct err *e);

/* The table that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status runtime_kernels(const struct common_options *c, const struct kernels **out,
                            struct err *e);

/* Kernels (NULL: none are wanted) and a pool: `flag` is the value of -t (NULL: not given; then
 * DECODE_THREADS, then auto). Never more threads than the process has processors, which would only
 * wait for each other, and only as many as can be started; any number gives the same results.
 * STATUS_USAGE, STATUS_NO_MEMORY. */
enum status runtime_workers(const struct common_options *c, const char *flag,
                            const struct kernels **kernels, struct pool **pool, struct err *e);

/* What runs a model: what the command fills in, and what runtime_run adds. */
struct runtime {
    const struct invocation *inv;
    const struct common_options *common;
    const struct engine_options *engine;
    unsigned parts; /* that the checkpoint must have beside the model, as common_open takes them */

    struct checkpoint checkpoint; /* its model converted if the options ask for another variant */
    const struct kernels *kernels;
    int n_threads;         /* wanted; once they are started, those there are */
    bool threads_are_auto; /* may be lowered where fewer are faster */
    struct pool *pool;
    struct session *session;
    unsigned char *off;           /* malloc'd, of --without; NULL: not given */
    struct head_ablation without; /* the same */

    /* Of the command, released like the rest. */
    int32_t *tokens; /* [n_tokens] of the text; malloc'd */
    size_t n_tokens;
    struct checkpoint other; /* another one to compare with */
};

/* Reads the text, defers signals, checks threads and kernels, opens the checkpoint, then calls
 * work(values, r, text, e), and releases everything. */
typedef enum status runtime_work(const void *values, struct runtime *r, struct text text,
                                 struct err *e);
enum status runtime_run(struct runtime *r, const struct input_options *input, runtime_work *work,
                        const void *values, struct err *e);

/* What the options say of any session; what it borrows is the runtime's. */
struct session_params runtime_session_params(const struct runtime *r);

/* r->tokens: those of --tokens as they are, or where `ids` is NULL the text's, with BOS where the
 * checkpoint wants it. STATUS_USAGE for none, with which there is nothing to `purpose` ("score"),
 * and for more than the context. */
enum status runtime_read_tokens(struct runtime *r, const char *ids, struct text text,
                                const char *purpose, struct err *e);

/* Starts r->pool, unless it is. STATUS_NO_MEMORY. */
enum status runtime_start_threads(struct runtime *r, struct err *e);

/* The session that a command wants. */
struct session_wanted {
    int n_ctx;
    int n_sequences; /* 0: one */
    int n_shared;
    size_t more_bytes;  /* that the command itself takes for each sequence */
    const char *option; /* its own ones that lower the cache; NULL: none */
};

/* Bytes that work may take of what is available now: that is an estimate, and others want some. */
double runtime_spare_bytes(void);

/* How many such sequences, at most `most`, the memory that is available now has room for, beside
 * some that is left for others. Fails as session_plan does for one. */
enum status runtime_fitting(const struct runtime *r, const struct session_wanted *w, int most,
                            int *fitting, struct err *e);

/* STATUS_NO_MEMORY, with the figures and what `option` to lower, if so many are not available. */
enum status runtime_check_memory(const struct runtime *r, const struct session_wanted *w,
                                 const char *option, struct err *e);

/* Starts the threads and creates the session. The memory plan is printed before it is taken: with
 * -v, and when the cache exceeds 1 GiB; with it the options that lower the cache. */
enum status runtime_start(struct runtime *r, const struct session_wanted *w, struct err *e);

#endif
