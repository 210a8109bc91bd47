/*
 * command - a command of the program, and the state of one run of it.
 *
 * A command is a file cmd_NAME.c that defines `const struct command command_NAME`, and a row in
 * COMMANDS.
 */
#pragma once

#include "cli/common.h"
#include "cli/terminal.h"
#include "engine/session.h"

/* In the order in which the help lists them. */
#define COMMANDS(row)                                                                              \
    row(generate) row(bench) row(convert) row(train) row(eval) row(score) row(tokenize) row(info)  \
        row(attend) row(heads) row(help)

/* What job_run does before it calls `run`, in this order. A command that needs one of these with
 * some options only does it in its run, by the functions of job.h. */
enum job_needs {
    JOB_PATH = 1 << 0,       /* a checkpoint is named, job.path, or --shape is given */
    JOB_TEXT = 1 << 1,       /* -p, -f or the positional TEXT is read: job.text */
    JOB_PIPED = 1 << 2,      /* without them the text is what is piped in */
    JOB_STOPS = 1 << 3,      /* signals are only recorded: `run` decides when to stop */
    JOB_OUT = 1 << 4,        /* -o is named, and replaces a file only with --force */
    JOB_WORKERS = 1 << 5,    /* -t is checked, and kernels are chosen */
    JOB_CHECKPOINT = 1 << 6, /* the checkpoint is opened, with job.parts of it */
    JOB_KV_TYPES = 1 << 7,   /* --kv-type takes a list */
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
    size_t values_size;  /* of the zeroed struct that the options fill, which begins with a struct
                            common_options */
    unsigned needs;      /* enum job_needs */
    unsigned parts;      /* of the checkpoint: enum checkpoint_parts */
    const char *no_text; /* the message where no text is given; NULL: the command needs none */
    /* Completes values that depend on other options, before anything else is done. NULL: none does.
     */
    enum status (*prepare)(struct job *j, void *values, struct err *e);
    /* Refuses options that cannot be together, where their rows cannot say so. Reads no file. NULL:
     * the rows say all. */
    enum status (*check)(const struct job *j, const void *values, struct err *e);
    /* Does the work. job_run's caller prints *e, unless the status is STATUS_INTERRUPTED. */
    enum status (*run)(struct job *j, void *values, struct err *e);
};

/* One run. Everything is released by job_run. */
struct job {
    const struct command *command;
    char **words;             /* of the command line, behind the command; NULL after the last */
    struct option_rows *rows; /* the options that it gives */
    struct output *out;       /* standard output: the product and nothing else */
    uint64_t start_ns;        /* clock_ns when the process started */
    struct common_options *common; /* in the values that `check` and `run` get, too */
    struct progress progress;
    bool said_two_bos;   /* a note has said that a text begins with BOS twice */
    bool out_is_written; /* the file of -o is whole: an interruption does not lose it */
    uint64_t seed;       /* once job_seed has chosen it */

    const char *path; /* of the checkpoint; NULL: none is named */
    struct text text; /* the part of the text that --range takes */

    struct checkpoint checkpoint; /* its model converted if the options ask for another variant */
    const struct kernels *kernels;
    struct int_list kv_types; /* items of kv_type_at, at least one */
    int n_threads;            /* how many are wanted, and once the pool is started how many run */
    bool threads_are_auto;    /* nobody asked for a number: fewer are taken where they are faster */
    struct pool *pool;        /* NULL until job_start_threads */
    struct session *session;
    unsigned char *off; /* [n_layers, n_heads], malloc'd: 1 for the heads that --without names; NULL
                           if it is not given */
    struct head_ablation without; /* these heads, as a session takes them */

    /* Of some commands only. */
    int32_t *tokens; /* [n_tokens], malloc'd: the text's */
    size_t n_tokens;
    bool truncated;          /* --truncate left some tokens out */
    struct checkpoint other; /* the one to compare with */
    char *text_bytes;        /* malloc'd: the whole text, of which `text` is a part */
};

#define DECLARE_COMMAND(name) extern const struct command command_##name;
COMMANDS(DECLARE_COMMAND)
#undef DECLARE_COMMAND

/* --- the list of commands: cmd_help.c --------------------------------------------------------- */

/* Returns a command, in the order of the help; NULL behind the last. */
const struct command *command_at(int index);
/* Finds the command of that name. STATUS_USAGE says which was probably meant. */
enum status command_named(const char *name, const struct command **out, struct err *e);

/* Prints the list of commands, and what holds for all. */
void help_print(struct output *out);

/* --- the help of a command: job.c ------------------------------------------------------------- */

/* Sets the width of help on what is no terminal to COLUMNS, if that is set. */
void help_set_width(struct output *out);

/* Prints a command's examples and options: those for every day, which fit on a screen, or all of
 * them with what figures mean. */
void command_print_help(const struct command *c, bool all, struct output *out);

/* What stands below a command's options with --all, and below the list of commands. The Makefile
 * makes these strings, for paragraph_reflow, of the files src/cli/help/NAME.txt. */
extern const char help_of_decode[], help_of_attend[], help_of_bench[], help_of_convert[],
    help_of_eval[], help_of_generate[], help_of_heads[], help_of_info[], help_of_score[],
    help_of_train[];
