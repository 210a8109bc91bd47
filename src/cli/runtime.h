/*
 * runtime - what the commands share: their common options, and from them an open checkpoint,
 * threads, kernels and a session.
 *
 * This is the layer that reads the environment: DECODE_THREADS is the default of -t, DECODE_ISA
 * forces a kernel table. Empty variables count as unset.
 */
#ifndef DECODE_CLI_RUNTIME_H
#define DECODE_CLI_RUNTIME_H

#include <stdbool.h>

#include "base/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/variant.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "engine/session.h"
#include "model/checkpoint.h"

/* Of every command on a checkpoint. */
struct common_options {
    const char *positional; /* MODEL */
    const char *model;      /* -m */
    bool quiet, verbose;
};
extern const struct option common_options[];

/* Of the commands that run the model. */
struct engine_options {
    const char *threads;            /* -t: NULL, a number or "auto" */
    int kv_type;                    /* of kv_type_names */
    int block;                      /* 0: the default */
    struct variant_options variant; /* its own table of options */
};
extern const struct option engine_options[];

/* What a cache can be stored as, NULL after the last; and as an enum storage. */
extern const char *const kv_type_names[];
enum storage kv_type_storage(int kv_type);
/* The option that makes a cache of this type smaller; NULL for the smallest. */
const char *kv_type_smaller(int kv_type);

/* Where the text comes from. */
struct input_options {
    const char *prompt; /* -p */
    const char *file;   /* -f */
};
extern const struct option input_options[];

/* The row of a --format option with all forms, default table. */
#define FORMAT_OPTION(struct_name, member)                                                         \
    {                                                                                              \
        .kind = OPTION_CHOICE, .name = "format", .value = "FORM",                                  \
        .offset = offsetof(struct_name, member), .fallback = "table", .choices = table_formats,    \
        .help = "form of the output"                                                               \
    }

/* The row of a -t option. */
#define THREADS_OPTION(struct_name, member)                                                        \
    {                                                                                              \
        .kind = OPTION_STRING, .name = "threads", .letter = 't',                                   \
        .offset = offsetof(struct_name, member), .value = "N|auto",                                \
        .otherwise = "DECODE_THREADS, else auto",                                                  \
        .help = "threads; auto: as many processors as this process may use"                        \
    }

/* An environment variable; NULL if unset or empty. */
const char *environment(const char *name);

/* The checkpoint's path: the positional or -m. STATUS_USAGE if there is none, or both. */
enum status common_model_path(const struct common_options *c, const char **path, struct err *e);

/* Whether two paths name one file, or would once it is made: that of a link counts as its target,
 * and where there is none yet, the folder and the name decide. */
bool output_path_same(const char *a, const char *b);

/* STATUS_USAGE, naming the option, if the file to be written is the checkpoint that is read. */
enum status output_path_check(const char *option, const char *path, const char *model,
                              struct err *e);

/* The same for another file that is read, `what` it is in the message; NULL is none. */
enum status output_path_spares(const char *option, const char *path, const char *input,
                               const char *what, struct err *e);

/* The seed that the option gives, or a random one. STATUS_FAILED if the system has none. */
enum status runtime_seed(const struct option_u64 *given, uint64_t *seed, struct err *e);

/* The file that -o names: STATUS_USAGE if none is, if it is the checkpoint, or if it exists and
 * `force` is not given. */
enum status output_path_new(const char *path, const char *model, bool force, struct err *e);

/* The text of -p or -f as malloc'd memory of the caller, *given false and *text empty if there is
 * neither. STATUS_USAGE for both; the failures of file_read_all. */
enum status input_read(const struct input_options *in, char **text, size_t *len, bool *given,
                       struct err *e);

/* The ids of a text, after BOS if `bos`; *ids is malloc'd memory of the caller, NULL on failure. */
enum status tokens_of_text(const struct tokenizer *t, struct text text, bool bos, int32_t **ids,
                           size_t *n, struct err *e);

/* Bytes of the longest token. */
size_t longest_token(const struct tokenizer *t);

/* STATUS_USAGE for a long text of so many bytes that no tokens of this vocabulary could make it fit
 * into n_ctx positions: found out without making them. `what` it is in the message, "the prompt".
 */
enum status text_may_fit(const char *what, const struct tokenizer *t, size_t len, int n_ctx,
                         struct err *e);

struct runtime {
    const struct invocation *inv;
    const struct common_options *common;
    struct checkpoint checkpoint;
    const struct kernels *kernels;
    int n_threads;         /* wanted; once they are started, those there are */
    bool threads_are_auto; /* may be lowered where fewer are faster */
    struct pool *pool;
    struct session *session;
};

/* The number of threads: `flag` is the value of -t (NULL: not given; then DECODE_THREADS, then
 * auto). Never more than the process has processors, which would only wait for each other; any
 * number gives the same results. *is_auto (may be NULL): nobody named a number. STATUS_USAGE. */
enum status runtime_threads(const struct common_options *c, const char *flag, int *out,
                            bool *is_auto, struct err *e);

/* A pool of n_threads, or of as many as can be started: then one line says so. Results are the same
 * with any number. STATUS_NO_MEMORY. */
enum status runtime_pool(const struct common_options *c, int n_threads, struct pool **out,
                         struct err *e);

/* The table that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status runtime_kernels(const struct common_options *c, const struct kernels **out,
                            struct err *e);

/* Checks -t, DECODE_THREADS and DECODE_ISA, then opens the checkpoint with `parts` (see
 * checkpoint_open), its model converted if the options ask for another variant. runtime_close is
 * due in every case. */
enum status runtime_open(struct runtime *r, const struct invocation *inv,
                         const struct common_options *common, const struct engine_options *engine,
                         unsigned parts, struct err *e);

/* Starts the threads and creates the session for n_ctx positions. The memory plan is printed
 * before it is taken: with -v, and when the cache exceeds 1 GiB; with it the options that lower
 * the cache, of which `option` is the command's own (NULL: none). */
enum status runtime_start(struct runtime *r, const struct engine_options *engine, int n_ctx,
                          const char *option, struct err *e);

void runtime_close(struct runtime *r);

/* One line about the run on standard error, "decode: " before it; nothing with -q. Names from files
 * may be in it: control characters become '?'. */
void say(const struct common_options *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, with -v only. */
void say_verbose(const struct common_options *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
