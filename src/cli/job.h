/*
 * job - a command of the program, and one run of it, from its options to what it releases.
 *
 * A command is a file cmd_NAME.c that defines `const struct command command_NAME`, and a row in
 * COMMANDS. Of the environment DECODE_THREADS is the default of -t, DECODE_ISA forces kernels.
 */
#pragma once

#include "cli/common.h"
#include "cli/input.h"
#include "cli/terminal.h"
#include "cli/variant.h"
#include "measure/eval.h"
#include "model/selection.h"
#include "show/report.h"

/* In the order in which the help lists them. */
#define COMMANDS(row)                                                                              \
    row(generate) row(bench) row(convert) row(train) row(eval) row(score) row(tokenize)            \
        row(info) row(attend) row(heads) row(help)

/* What job_run does before it calls `run`, in this order. */
enum job_needs {
    JOB_PATH = 1 << 0,       /* MODEL or -m is named: job.path */
    JOB_TEXT = 1 << 1,       /* -p, -f or the positional TEXT is read: job.text */
    JOB_PIPED = 1 << 2,      /* where none is given, standard input may be one */
    JOB_STOPS = 1 << 3,      /* from here on Ctrl-C is left to `run` */
    JOB_OUT = 1 << 4,        /* -o is named; what is there is replaced only with --force */
    JOB_WORKERS = 1 << 5,    /* -t is checked, and kernels are chosen */
    JOB_CHECKPOINT = 1 << 6, /* the checkpoint is opened, with job.parts of it */
    JOB_MODEL = JOB_PATH | JOB_STOPS | JOB_WORKERS | JOB_CHECKPOINT, /* what runs one */
};

struct job;

struct command {
    const char *name;
    const char *summary;  /* one line for the list of commands */
    const char *usage;    /* what follows "decode NAME " */
    const char *examples; /* lines "./decode NAME ..." that run in the repository's folder */
    const char *notes;    /* below the options in the help, for paragraph_reflow; NULL: nothing */
    struct option_spec spec;
    size_t values_size;  /* of the struct that the options fill, zeroed before; it begins with a
                            struct common_options */
    unsigned needs;      /* enum job_needs */
    unsigned parts;      /* of the checkpoint: CHECKPOINT_*, JOB_TOKENIZES */
    const char *no_text; /* what is said where no text is given; NULL: it can do without */
    /* What the options' rows cannot say of each other, found out without reading a file; may change
     * job.needs and job.parts. NULL: nothing. */
    enum status (*check)(struct job *j, void *values, struct err *e);
    /* Does the work; *e is printed later, but not that of STATUS_INTERRUPTED. */
    enum status (*run)(struct job *j, void *values, struct err *e);
};

/* Beside the parts of checkpoint.h: a tokenizer that makes tokens of texts. */
#define JOB_TOKENIZES (CHECKPOINT_TOKENIZER | 1u << 8)

/* One run. Everything is released by job_run. */
struct job {
    const struct command *command;
    struct output *out;            /* standard output: the product and nothing else */
    uint64_t start_ns;             /* clock_ns when the process started */
    struct common_options *common; /* in the values that `check` and `run` get, too */
    unsigned needs, parts;
    struct progress progress;
    uint64_t seed; /* once job_seed has chosen it */
    bool has_seed;

    const char *path; /* of the checkpoint; NULL: none is named */
    struct text text; /* the part of the text that --range takes */

    struct checkpoint checkpoint; /* its model converted if the options ask for another variant */
    const struct kernels *kernels;
    int n_threads;         /* wanted; once they are started, those there are */
    bool threads_are_auto; /* may be lowered where fewer are faster */
    struct pool *pool;     /* NULL until job_start_threads */
    struct session *session;
    unsigned char *off; /* [n_layers, n_heads], malloc'd: 1 for the heads that --without names; NULL
                           if it is not given */
    struct head_ablation without; /* these heads, as a session takes them */

    /* What some commands have, too. */
    int32_t *tokens; /* [n_tokens], malloc'd: the text's */
    size_t n_tokens;
    struct checkpoint other; /* the one to compare with */
    char *text_bytes;        /* malloc'd: the whole text, of which `text` is a part */
};

#define DECLARE_COMMAND(name) extern const struct command command_##name;
COMMANDS(DECLARE_COMMAND)
#undef DECLARE_COMMAND

/* Examples, a command's options and what is said of it, or of long helps one screen; as wide as
 * help_set_width makes it: where `out` is no terminal as COLUMNS says, if it says something. */
void help_set_width(struct output *out);
void command_print_help(const struct command *c, bool all, struct output *out);

/* Parses the arguments behind the command's name, which end with NULL, and runs it, or prints its
 * help. */
enum status job_run(const struct command *c, char **argv, struct output *out, uint64_t start_ns,
                    struct err *e);

/* --- what a command's run asks for ----------------------------------------------------------- */

/* Starts the progress line of long work; if that is interrupted, job_run says how far it came. */
struct progress *job_progress(struct job *j, const char *unit);

/* The same line for what work of other directories says, which the first Ctrl-C stops. */
struct callbacks job_callbacks(struct job *j, const char *unit);

/* A table's rows are an array, or made one after the other. */
struct table {
    const struct report_field *fields; /* [n] */
    int n;
    const void *rows; /* [n_rows], of row_bytes each */
    int n_rows;
    size_t row_bytes;
    /* Instead, if not NULL: row i, which lives until the next call; NULL after the last. */
    const void *(*row)(void *arg, int i);
    void *arg;
};

#define TABLE_OF(columns, array, length)                                                           \
    (struct table)                                                                                 \
    {                                                                                              \
        .fields = columns, .n = LENGTH(columns), .rows = array, .n_rows = length,                  \
        .row_bytes = sizeof *(array)                                                               \
    }

/* STATUS_NO_MEMORY. */
enum status table_print(const struct table *t, enum table_format format, struct output *out,
                        struct err *e);

/* The same in --format, on standard output. */
enum status job_print(struct job *j, const struct table *t, struct err *e);

/* Starts job.pool, unless it is. STATUS_NO_MEMORY. */
enum status job_start_threads(struct job *j, struct err *e);

/* Opens a checkpoint; `parts` as job.parts. Of a Hugging Face folder, or a file of another format
 * that scripts/import.py takes, the message has the command line that makes a GGUF file of it. */
enum status job_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e);
/* The file alone. */
enum status job_map(const char *path, struct file_map *out, struct err *e);

/* Warns where a checkpoint's vocabulary does not say how text is cut before it is merged, so that
 * ids may be others than the model knows. NULL is legal. */
void job_warn_pretokenizer(const struct common_options *o, const char *path,
                           const struct tokenizer *t);

/* Says which matrices of the shape cannot have the type, whose blocks do not fit their rows. */
void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type);

/* Returns s, whose message gets the path before it if that file is to blame: STATUS_BAD_FILE. */
enum status job_blame(const char *path, enum status s, struct err *e);

/* The checkpoint's shape; messages name its path. */
enum status job_config(const char *path, const struct checkpoint *c, struct config *config,
                       struct err *e);

/* job.tokens: those of the whole text, with BOS where the checkpoint wants it. */
enum status job_tokenize(struct job *j, struct err *e);

/* The same, or those of --tokens. STATUS_USAGE for more than the context, and for none, with which
 * there is nothing to `purpose` ("score"). */
enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e);

/* An evaluation of job.tokens by a checkpoint of this vocabulary, with what the options say of any
 * session. */
struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k);

/* job.seed: that of --seed, or a random one, the same at every call. STATUS_FAILED. */
enum status job_seed(struct job *j, struct err *e);

/* The table that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e);

/* The length of the file at -o; 0 if it is gone already. */
uint64_t job_out_bytes(const struct job *j);

/* A conversion of job.checkpoint, with a progress line; what it borrows is the job's. */
struct variant_request job_variant(struct job *j);

/* --- memory and sessions --------------------------------------------------------------------- */

/* What work takes, as it is said and checked. */
struct job_memory {
    uint64_t weights; /* of the models that are open already */
    uint64_t cache;   /* keys and values; 0: counted with `scratch` */
    uint64_t scratch;
    const char *of;     /* what the cache is of: "3 tokens of 4 kB, f32"; NULL: nothing is said */
    const char *advice; /* "fewer --tokens take less"; "" and NULL: none */
};

/* Says it, with -v and always beyond 1 GiB. */
void job_say_memory(const struct job *j, const struct job_memory *m);

/* The same, and STATUS_NO_MEMORY if cache and scratch are more than is available, for which
 * `what` ("100 tokens") is the reason. */
enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e);

/* What the options say of any session; what it borrows is the job's. */
struct session_params job_session_params(const struct job *j);

/* Sequences that are to share a session. */
struct sequences_wanted {
    int n;              /* at most */
    bool all;           /* not one less will do */
    size_t more_bytes;  /* that the command itself takes for each */
    const char *option; /* its own that lowers the cache */
};

/* Sets p->n_sequences to as many as available memory has room for, but at least one. If all are
 * asked for and do not fit, STATUS_NO_MEMORY. */
enum status job_fit_sequences(const struct job *j, struct session_params *p,
                              const struct sequences_wanted *w, struct err *e);

/* Starts the threads and creates the job's session, whose memory is said before: `option` (NULL:
 * none) lowers the cache. */
enum status job_start_session(struct job *j, const struct session_params *p, const char *option,
                              struct err *e);
