/*
 * command - what a command of the program is.
 *
 * A command is one file cmd_NAME.c that defines `const struct command command_NAME`, and a row
 * in COMMANDS. main parses its options, prints its help and its errors, and frees its values.
 */
#ifndef DECODE_CLI_COMMAND_H
#define DECODE_CLI_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/output.h"
#include "base/status.h"
#include "cli/options.h"

/* In the order in which the help lists them. */
#define COMMANDS(row)                                                                              \
    row(generate) row(bench) row(convert) row(train) row(eval) row(score) row(quantize)            \
        row(tokenize) row(info) row(attend) row(heads) row(study) row(import) row(export)          \
            row(help)

/* One run of a command. */
struct invocation {
    const char *command; /* its name */
    struct output *out;  /* standard output: the product and nothing else */
    uint64_t start_ns;   /* clock_ns when the process started */
};

struct command {
    const char *name;
    const char *summary; /* one line for the list of commands */
    const char *usage;   /* what follows "decode NAME " */
    /* Below the options in the help; NULL: nothing. Lines of paragraphs, which empty ones divide; a
     * line with two spaces after its first word is a term and what is said of it, and goes on in
     * lines that begin with spaces. */
    const char *notes;
    struct option_spec spec;
    size_t values_size; /* of the struct that the options fill, zeroed before */
    /* Does the work with the filled values. What fails is in *e and is not yet printed;
     * STATUS_INTERRUPTED is not an error message. */
    enum status (*run)(const struct invocation *inv, const void *values, struct err *e);
};

#define DECLARE_COMMAND(name) extern const struct command command_##name;
COMMANDS(DECLARE_COMMAND)
#undef DECLARE_COMMAND

/* In the order of the help; NULL after the last. */
const struct command *command_at(int index);
/* The command of that name. STATUS_USAGE says which was probably meant. */
enum status command_named(const char *name, const struct command **out, struct err *e);

/* Parses the arguments behind the command's name and runs it, or prints its help. What fails is in
 * *e and is not printed. */
enum status command_run(const struct command *c, int argc, char **argv,
                        const struct invocation *inv, struct err *e);
void command_print_help(const struct command *c, struct output *out);

/* The list of commands, and what holds for all. */
void help_print(struct output *out);

#endif
