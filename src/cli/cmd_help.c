/*
 * cmd_help - decode help: the commands, a command's options. scripts/manual.sh and
 * scripts/completion.bash make the manual page and completion in bash of them.
 */
#include "cli/job.h"
#include "show/paragraph.h"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW) NULL};
#undef COMMAND_ROW

/* Names that are no command here, what does their work, and its command line. */
static const struct {
    const char *name, *by, *usage;
} elsewhere[] = {
    {"quantize", "convert", "decode convert MODEL -o OUT --type TYPE"},
    {"import", "a script", "scripts/import.py IN OUT.gguf"},
    {"export", "a script", "scripts/export.py MODEL.gguf DIR"},
    {"study", "a script", "scripts/study.sh TEXT DIR"},
};

const struct command *command_at(int index)
{
    return commands[index];
}

enum status command_named(const char *name, const struct command **out, struct err *e)
{
    const char *what = name[0] == '-' ? "option" : "command";
    struct nearest near = {.word = name};
    for (int i = 0; commands[i]; i++) {
        if (str_is(commands[i]->name, name)) {
            *out = commands[i];
            return STATUS_OK;
        }
        nearest_offer(&near, commands[i]->name);
    }
    for (int i = 0; i < LENGTH(elsewhere); i++)
        if (str_is(elsewhere[i].name, name))
            return err_usage(e, "unknown command '%s'; %s does that: %s", name, elsewhere[i].by,
                             elsewhere[i].usage);
    nearest_offer(&near, "--help");
    nearest_offer(&near, "--version");
    return near.best ? err_usage(e, "unknown %s '%.60s'; did you mean '%s'?", what, name, near.best)
                     : err_usage(e, "unknown %s '%.60s'", what, name);
}

void help_print(struct output *out)
{
    const struct command *c;
    char line[256];
    help_set_width(out);
    output_puts(out, "usage: decode <command> [options]\n\n");
    paragraph_reflow(out, "continue texts with transformers, and see what their attention costs\n\n"
                          "Commands:\n");
    for (int i = 0; (c = command_at(i)) != NULL; i++) {
        chars_printf(line, "  %-10s %s\n", c->name, c->summary);
        paragraph_reflow(out, line);
    }
    output_puts(out, "\n");
    paragraph_reflow(out, help_of_decode);
}

/* --- the command ------------------------------------------------------------------------------ */

struct help_options {
    struct common_options common; /* none of them */
    const char *command;          /* NULL: all of them */
    bool all;
};

#define VALUES struct help_options

static const struct option result_options[] = {
    OPT_FLAG("all", all, "of COMMAND every option, and what figures mean"),
    OPT_END,
};

static enum status run_help(struct job *j, void *values, struct err *e)
{
    const struct help_options *o = values;
    const struct command *c = &command_help;
    if (o->command)
        TRY(command_named(o->command, &c, e));
    if (o->all && !o->command)
        return err_usage(e, "--all is of a command; expected one named");
    if (c != &command_help)
        command_print_help(c, o->all, j->out);
    else
        help_print(j->out);
    return STATUS_OK;
}

const struct command command_help = {
    .name = "help",
    .summary = "this list, or a command's options",
    .usage = "[COMMAND] [options]",
    .examples = "./decode help generate\n"
                "./decode help generate --all\n",
    .spec = {.groups = {{"Result", result_options, 0}},
             .positionals = {OPT_STRING("COMMAND", command, NULL, NULL)}},
    .values_size = sizeof(VALUES),
    .run = run_help,
};
