/*
 * options - a command line parsed from a table, and its help made from the same table.
 *
 * A row has the place of its value in the command's struct. `--name value`, `--name=value`,
 * `-n value`, `-n=value` and `-n5` all work, options and positionals mix, `--` ends the options. A
 * value is taken as it stands, even if it begins with '-'. An option that is given twice has its
 * last value; OPTION_STRINGS keeps all.
 */
#pragma once

#include <limits.h>
#include <math.h>

#include "base/output.h"
#include "base/status.h"

enum option_kind {
    OPTION_END,     /* ends a table */
    OPTION_FLAG,    /* bool: set to true */
    OPTION_U64,     /* struct option_u64 */
    OPTION_INT,     /* int, within [min, max] */
    OPTION_DOUBLE,  /* double, within [min, max]; min itself excluded if `above_min` */
    OPTION_STRING,  /* const char *, borrowed from argv */
    OPTION_STRINGS, /* struct option_strings */
    OPTION_CHOICE,  /* int: the index into `choices`; CHOICE_NONE */
};

/* An option that is not given and has no fallback is false, NULL, 0 or CHOICE_NONE. Its numbers
 * begin above 0, so that 0 means `not given`; a u64 may be any number, so it has a flag. */
#define CHOICE_NONE (-1)

struct option_u64 {
    uint64_t value;
    bool given;
};

struct option_strings {
    const char **items; /* borrowed strings; the array is freed by options_free */
    int n;
};

/* What is written at the path that the value is. Before the work begins, job_run tries to write
 * every file that is written whole. */
enum option_writes {
    WRITES_NOTHING,
    WRITES_FILE,
    WRITES_SVG, /* this and the next three replace only a file of their own kind */
    WRITES_HTML,
    WRITES_JSON,
    WRITES_NPY,
    WRITES_OTHER /* a file that grows */
};

struct option {
    enum option_kind kind;
    const char *name;      /* long name without dashes; unique in the command */
    char letter;           /* short name, or 0 */
    size_t offset;         /* of the value, from the group's base */
    const char *value;     /* what the help calls the value, "N"; NULL for flags */
    const char *fallback;  /* the default, parsed as if given; NULL leaves the value alone */
    const char *otherwise; /* the default in the words of the help, where there is no fallback */
    double min, max;       /* max of INT_MAX or HUGE_VAL: no upper limit */
    bool above_min;
    const char *const *choices; /* the words of a choice, or of a string; NULL after the last */
    const char *help;           /* one line, without the default and the range */
    const char *needs;          /* "a|b": refused without one of these options; NULL: needs none */
    const char *excludes;       /* "a|b": refused beside any of these options; NULL: beside none */
    const char *reads;          /* the value is the path of this input, "the text"; NULL: of none */
    enum option_writes writes;
    bool unrecorded; /* every run has its own: no record has it, see record.h */
};

/* Rows are written with these macros, after `#define VALUES struct NAME`, the struct of `member`.
 * Other fields may follow the help: OPT_INT("n", n, "N", 0, INT_MAX, "tokens", .letter = 'n'). */
#define OPT_ROW(type, option, member, ...)                                                         \
    {                                                                                              \
        .kind = type, .name = option, .offset = offsetof(VALUES, member), .help = __VA_ARGS__      \
    }
#define OPT_FLAG(option, member, ...) OPT_ROW(OPTION_FLAG, option, member, __VA_ARGS__)
#define OPT_U64(option, member, called, ...)                                                       \
    OPT_ROW(OPTION_U64, option, member, __VA_ARGS__, .value = called)
#define OPT_STRING(option, member, called, ...)                                                    \
    OPT_ROW(OPTION_STRING, option, member, __VA_ARGS__, .value = called)
#define OPT_STRINGS(option, member, called, ...)                                                   \
    OPT_ROW(OPTION_STRINGS, option, member, __VA_ARGS__, .value = called)
#define OPT_CHOICE(option, member, called, names, ...)                                             \
    OPT_ROW(OPTION_CHOICE, option, member, __VA_ARGS__, .value = called, .choices = names)
#define OPT_INT(option, member, called, least, most, ...)                                          \
    OPT_ROW(OPTION_INT, option, member, __VA_ARGS__, .value = called, .min = least, .max = most)
#define OPT_DOUBLE(option, member, called, least, most, ...)                                       \
    OPT_ROW(OPTION_DOUBLE, option, member, __VA_ARGS__, .value = called, .min = least, .max = most)
#define OPT_END                                                                                    \
    {                                                                                              \
        .kind = OPTION_END                                                                         \
    }

/* A heading of the help and the options below it. */
struct option_group {
    const char *title;            /* NULL ends the groups; "": not in the command's help */
    const struct option *options; /* ends with OPT_END */
    size_t base;                  /* of the rows' offsets in the command's struct */
};

/* A command's options. The last group and the last positional stay empty. Arguments without a dash
 * go to the positionals in order: an OPTION_STRING takes one, an OPTION_STRINGS all that are left.
 */
struct option_spec {
    struct option_group groups[12];
    struct option positionals[3];
    const char *everyday; /* "a b": the options of the short help, in its order; NULL: all */
};

/* All rows of a command: those of its groups in order, then its positionals. */
struct option_rows {
    struct option_row {
        const struct option *option;
        const char *group; /* title; NULL: a positional */
        size_t offset;     /* in the command's struct */
        const char *given; /* its last value, "" of a flag; NULL: it is not given */
    } items[128];
    int n_options, n; /* without and with the positionals */
};

/* Stores the fallbacks, then the arguments of argv, which ends with NULL, into `values`; *rows says
 * which options were given. The first -h or --help that is no option's value sets *help and ends
 * the parsing. STATUS_USAGE, STATUS_NO_MEMORY; options_free is due in every case. */
enum status options_parse(const struct option_spec *spec, char **argv, void *values,
                          struct option_rows *rows, bool *help, struct err *e);

/* Frees the arrays of OPTION_STRINGS. */
void options_free(const struct option_spec *spec, void *values);

/* Prints the help of all options, or that of the everyday ones and the names of the others; with
 * defaults and ranges, aligned and wrapped. */
void options_help(const struct option_spec *spec, bool all, struct output *out);

/* Lists the rows of a command; none is given. */
void options_list(const struct option_spec *spec, struct option_rows *rows);

/* Returns the row of the option of this name, or NULL. */
struct option_row *options_find(struct option_rows *rows, const char *name);

/* --- which known word was probably meant ----------------------------------------------------- */

/* Counts the insertions, deletions, replacements and swaps of neighbours that turn a into b
 * (optimal string alignment); 64 if one is longer than 63 bytes. */
int edit_distance(const char *a, const char *b);

/* Keeps the nearest of the words it is offered; starts as {.word = the unknown one}. A word is near
 * if it differs in at most a third of its letters (one is always allowed), or begins with the
 * unknown word. */
struct nearest {
    const char *word;
    const char *best; /* NULL: none yet */
    int distance;
};
void nearest_offer(struct nearest *n, const char *candidate);

/* Pairs: the name of an option in another program or command, and ours. Of a name with several
 * pairs the first one counts whose option the command has. NULL after the last. */
extern const char *const option_synonyms[][2];
