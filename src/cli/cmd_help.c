/*
 * cmd_help - decode help: the commands, a command's options, the manual page, completions.
 */
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "cli/manual.h"

struct help_options {
    const char *command; /* NULL: all of them */
    int format;
};

enum help_format { HELP_TEXT, HELP_MAN, HELP_BASH };
static const char *const format_names[] = {"text", "man", "bash", NULL};

#define COMMAND_NAME(name) #name,
static const char *const command_names[] = {COMMANDS(COMMAND_NAME) NULL};
#undef COMMAND_NAME

#define VALUES struct help_options

static const struct option own_options[] = {
    OPT_CHOICE("format", format, "FORM", format_names,
               "man: the manual page, for man -l -; bash: a script that completes command lines",
               .fallback = "text"),
    OPT_END,
};

static void print_all(enum help_format format, struct output *out)
{
    static void (*const prints[])(struct output *) = {
        [HELP_TEXT] = help_print,
        [HELP_MAN] = manual_print,
        [HELP_BASH] = completion_bash,
    };
    prints[format](out);
}

static enum status run_help(const struct invocation *inv, const void *values, struct err *e)
{
    const struct help_options *o = values;
    const struct command *c = &command_help;
    if (o->command)
        TRY(command_named(o->command, &c, e));
    if (o->command && o->format != HELP_TEXT)
        return err_set(e, STATUS_USAGE,
                       "--format %s is of all commands; expected none named, found '%.60s'",
                       format_names[o->format], o->command);
    if (c != &command_help)
        command_print_help(c, inv->out);
    else
        print_all((enum help_format)o->format, inv->out);
    return STATUS_OK;
}

const struct command command_help = {
    .name = "help",
    .summary = "this list, or a command's options",
    .usage = "[COMMAND] [options]",
    .spec = {.groups = {{"Result", own_options, 0}},
             .positionals = {OPT_STRING("COMMAND", command, NULL, NULL, .choices = command_names)}},
    .values_size = sizeof(VALUES),
    .run = run_help,
};
