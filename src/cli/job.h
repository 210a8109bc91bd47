/*
 * job - the frame of a command: it parses the arguments, does what all commands share, runs the
 * command and releases everything; and what a run prints.
 */
#pragma once

#include "cli/command.h"
#include "convert/convert.h"
#include "measure/eval.h"
#include "model/cost.h"
#include "model/selection.h"
#include "show/report.h"

/* Parses the arguments behind the command's name, which end with NULL, and runs it, or prints its
 * help. */
enum status job_run(const struct command *c, char **argv, struct output *out, uint64_t start_ns,
                    struct err *e);

/* --- stages that job_run calls as enum job_needs says, or a command's run itself -------------- */

/* Reads job.text from -p, -f or the positional, or with JOB_PIPED from standard input: the part
 * that --range takes; without any of them it is empty. The failures of input_read; STATUS_USAGE
 * for a bad range, and where the command needs a text and none is given. */
enum status job_read_text(struct job *j, struct err *e);

/* Sets job.seed to that of --seed, or to a random one. STATUS_FAILED. */
enum status job_seed(struct job *j, struct err *e);

/* --- checkpoints: checkpoints.c --------------------------------------------------------------- */

/* Opens the job's checkpoint with the parts that the command wants, and starts job.pool if a model
 * is one of them. The model has the K/V heads and the query heads that the options ask for. The
 * failures of job_open, variant_load and job_start_threads. */
enum status job_open_checkpoint(struct job *j, struct err *e);

/* Closes the job's checkpoint and forgets its tokens and left-out heads, so that another may be
 * opened. Legal twice. */
void job_close_checkpoint(struct job *j);

/* Opens a checkpoint; parts and pool as in checkpoint_take. Where the path is a Hugging Face folder
 * or a file that scripts/import.py takes, the message has the command that makes a GGUF file of it.
 */
enum status job_open(const char *path, unsigned parts, struct pool *pool, struct checkpoint *c,
                     struct err *e);
/* Maps the file of a checkpoint, with the same refusals. */
enum status job_map(const char *path, struct file_map *out, struct err *e);

/* Returns the first matrix of the file that is quantized, or NULL. */
const struct gguf_tensor *job_find_quantized(const struct gguf *g);

/* Prints the warning of a checkpoint's tokenizer, if it has one. t may be NULL. */
void job_warn_vocabulary(const struct common_options *o, const char *path,
                         const struct tokenizer *t);

/* Says which matrices of the shape become F16 because blocks of the type do not fit their rows. */
void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type);

/* --- K/V heads as --kv-heads names them, in memory: variant.c --------------------------------- */

/* Returns the specification of a conversion of the job's checkpoint by fit, from the weights alone.
 * Its K/V heads are not yet set. It borrows from the job. */
struct convert_spec variant_spec(const struct job *j, const struct config *c);

/* Sets the K/V heads of *spec, one number or one a layer, which then are in `layers`
 * [CONFIG_MAX_LAYERS]; and whether they are fewer than there are. The failures of heads_of_layers
 * and config_needs_dot. */
enum status variant_parse(const char *kv_heads, const struct config *c, int *layers,
                          struct convert_spec *spec, bool *fewer, struct err *e);

/* Plans and runs a conversion of the job's checkpoint; convert_free is due on success. Says with -v
 * what memory it needs. The failures of convert_run, which name the file. */
enum status variant_convert(const struct job *j, const struct convert_spec *spec,
                            struct convert *out, struct err *e);

/* Makes the model of the job's checkpoint with so many K/V heads (NULL: the file's), stored as
 * `how` says, for model_free. If the file has more, they are converted by fit in memory: from the
 * weights alone if `text` is NULL, else on that text and with refit. `callbacks` count the text's
 * windows. The failures of variant_parse, convert_run and model_create. */
enum status variant_load(const struct job *j, const char *kv_heads, const struct model_options *how,
                         const struct text_sample *text, struct callbacks callbacks,
                         struct model **out, struct err *e);

/* --- texts and their tokens: input.c ---------------------------------------------------------- */

/* Fractions of a text's bytes, 0 <= from < to <= 1. */
struct input_range {
    double from, to;
};
/* Reads "A:B", as --range has it; NULL is all of the text. STATUS_USAGE. */
enum status input_parse_range(const char *range, struct input_range *out, struct err *e);
/* Returns the bytes from floor(from * len) up to floor(to * len): ranges that meet share no byte
 * and leave none out. */
struct text input_range_of(struct input_range range, struct text text);

/* Reads a text of at most `max` bytes into malloc'd memory of the caller, without a byte-order mark
 * at its beginning. Ctrl-C ends the wait for a pipe, also where signals are deferred. The failures
 * of file_read_all; STATUS_USAGE for a checkpoint; STATUS_INTERRUPTED if Ctrl-C came before. */
enum status input_read(const char *path, size_t max, char **text, size_t *len, struct err *e);

/* STATUS_BAD_FILE if the checkpoint at `path` has no tokenizer, or none that makes tokens of texts,
 * which `option` needs. */
enum status input_needs_tokenizer(const struct tokenizer *t, const char *path, const char *option,
                                  struct err *e);

/* Cuts *n tokens of `what` ("text") that are more than `cap` down to `most` >= 1, on the side that
 * --truncate names, and says so; a BOS at the beginning stays. Without --truncate STATUS_USAGE,
 * with both lengths. Prints a note if the tokens begin with two BOS. */
enum status job_fit_tokens(struct job *j, const char *what, size_t cap, size_t most, int32_t *ids,
                           size_t *n, struct err *e);

/* Returns the bytes of a token; without data where the checkpoint has no tokenizer. */
static inline struct text job_token(const struct job *j, int32_t id)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    return t ? tokenizer_bytes(t, id) : text_span(NULL, 0);
}

/* Sets job.tokens to those of the whole text, with one BOS where the checkpoint asks for it. */
enum status job_tokenize(struct job *j, struct err *e);

/* Sets job.tokens to those of the text or of --tokens. STATUS_USAGE if they are more than the
 * context, or none: the message says that there is nothing to `purpose` ("score"). */
enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e);

/* --- threads, instruction set, memory, and the sessions that fit into it: resources.c -------- */

/* Sets job.n_threads and job.threads_are_auto by -t or DECODE_THREADS; never to more threads than
 * the process has processors. `several`, empty before, gets all numbers of a list, each once, the
 * first of which is job.n_threads; NULL: a list is refused. STATUS_USAGE. */
enum status job_choose_threads(struct job *j, struct int_list *several, struct err *e);

/* Chooses the kernels that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e);

/* Takes one thread, and frees the pool, where nobody asked for a number and this first step is so
 * short that others would only wait. Returns whether more were to run. */
bool job_take_one_thread(struct job *j, const struct cost_plan *step, int n_layers);

/* Starts job.pool, unless it runs already. STATUS_NO_MEMORY. */
enum status job_start_threads(struct job *j, struct err *e);

/* The memory that work takes. */
struct job_memory {
    uint64_t weights;    /* of the models that are open already */
    uint64_t cache;      /* of keys and values; 0: `scratch` has them, too */
    uint64_t most_cache; /* to which it may grow */
    uint64_t scratch;
    const char *advice; /* what takes less, "fewer --tokens take less"; "": nothing does */
};

/* Whether people are told of so much memory: with -v, and always beyond 1 GiB. */
bool memory_is_worth_saying(const struct common_options *o, uint64_t bytes);

/* STATUS_NO_MEMORY if `what` ("100 tokens") need more bytes than a run may take: nine tenths of
 * what is available, which is an estimate. The message ends with the advice. */
enum status memory_check(double bytes, const char *what, const char *advice, struct err *e);

/* memory_check of cache and scratch together, then a line about all of it, if it is worth saying.
 */
enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e);

/* Returns the parameters of a session as the options have them; they borrow from the job. */
struct session_params job_session_params(const struct job *j);

/* Returns the specification of an evaluation of job.tokens by a checkpoint of their vocabulary. */
struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k);

/* Sets p->n_sequences to as many of n as fit with their logits into the memory that a run may take,
 * but at least one. The failures of session_plan. */
enum status job_fit_sequences(const struct job *j, struct session_params *p, int n, struct err *e);

/* Says what memory the job's session will take, starts the threads and creates it. It may grow to
 * most_ctx positions; 0: it does not. */
enum status job_start_session(struct job *j, const struct session_params *p, int most_ctx,
                              const char *advice, struct err *e);

/* Grows the session to n_ctx positions if there is memory for them. STATUS_NO_MEMORY leaves the
 * session as it was. */
enum status job_grow_session(struct job *j, int n_ctx, const char *advice, struct err *e);

/* --- which files may be written: paths.c ------------------------------------------------------ */

/* Checks that every output that the options name can be written. STATUS_USAGE, naming the options,
 * if one writes what another reads or writes, or would replace a file of another kind than its own.
 * The failures of file_writer_open for a file that is written whole: while it is tried there is a
 * temporary file, so signals should be deferred. */
enum status paths_check(const struct option_rows *rows, const void *values, struct err *e);

/* STATUS_USAGE if -o names no file, or one that exists unless `replaces`; the message then ends
 * with the `remedy`. */
enum status path_new(const char *path, bool replaces, const char *remedy, struct err *e);

/* Whether there is a file, or a link, at the path. */
bool path_exists(const char *path);

/* Tries whether a file can be written. The failures of file_writer_open. */
enum status path_writable(const char *path, struct err *e);

/* --- what a run shows ------------------------------------------------------------------------- */

/* Starts the progress line of long work, and returns it as the callbacks of work that the first
 * Ctrl-C stops. If the work is interrupted, job_run says how far it came. */
struct callbacks job_callbacks(struct job *j, const char *unit);

/* Prints a table in the form of --format on standard output. STATUS_NO_MEMORY. */
enum status job_print(struct job *j, const struct table *t, struct err *e);
