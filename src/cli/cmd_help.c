/*
 * cmd_help - decode help: the commands, a command's options, the manual page, completion in
 * bash.
 */
#include "cli/cmd_help.h"

#include "cli/help.h"
#include "cli/help_texts.h"
#include "cli/job.h"
#include "show/paragraph.h"

#define SUMMARY "continue texts with transformers, and see what their attention costs"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW) NULL};
#undef COMMAND_ROW

/* What is no command, but is done by another one or a script, and how that is called. */
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
    paragraph_reflow(out, SUMMARY "\n\nCommands:\n", 0);
    for (int i = 0; (c = command_at(i)) != NULL; i++) {
        chars_printf(line, "  %-10s %s\n", c->name, c->summary);
        paragraph_reflow(out, line, 0);
    }
    output_puts(out, "\n");
    paragraph_reflow(out, help_of_decode, 0);
}

/* --- the manual page decode(1), source for man(1) --------------------------------------------- */

/* The columns that man(1), which indents sections, leaves of 80. */
#define MANUAL_COLUMNS 72

struct manual {
    struct output out; /* first: what is put there, escaped, goes to */
    struct output *page;
    bool starts; /* a line */
};

/* Escapes what troff takes for its own: backslashes, what begins a request, and hyphens. */
static bool put_escaped(struct output *o, const char *bytes, size_t len)
{
    struct manual *m = (struct manual *)o;
    for (; len > 0; len--, bytes++) {
        output_puts(m->page, m->starts && strchr(".'", *bytes) ? "\\&" : *bytes == '-' ? "\\" : "");
        output_printf(m->page, *bytes == '\\' ? "\\e" : "%c", *bytes);
        m->starts = *bytes == '\n';
    }
    return true;
}

static void manual_print(struct output *page)
{
    struct manual m = {.page = page, .starts = true};
    const struct command *c = NULL;
    output_init(&m.out, put_escaped);
    m.out.columns = MANUAL_COLUMNS;
    output_puts(page, ".TH DECODE 1 \"\" \"decode " DECODE_VERSION "\" \"User Commands\"\n"
                      ".SH NAME\ndecode \\- " SUMMARY "\n"
                      ".SH SYNOPSIS\n.B decode\n\\fIcommand\\fP [\\fIoptions\\fP]\n");
    for (int i = -1; i < 0 || (c = command_at(i)) != NULL; i++) {
        output_printf(page, ".SH %s%s\n.nf\n", c ? "decode " : "DESCRIPTION", c ? c->name : "");
        if (c)
            command_print_help(c, true, &m.out);
        else
            help_print(&m.out);
        output_flush(&m.out);
        output_puts(page, ".fi\n");
    }
}

/* --- the script that completes command lines in bash ------------------------------------------ */

#define COMMAND_NAME(name) #name,
static const char *const command_names[] = {COMMANDS(COMMAND_NAME) NULL};
#undef COMMAND_NAME

static void put_choices(struct output *out, const char *const *choices)
{
    if (choices)
        for (int i = 0; choices[i]; i++)
            output_printf(out, "%s%s", i > 0 ? " " : "", choices[i]);
}

static void completion_bash(struct output *out)
{
    const struct command *c;
    struct option_rows rows;
    const char *names = strstr(help_of_bash, "@COMMANDS@");
    const char *options = strstr(help_of_bash, "@OPTIONS@\n");
    const char *body = names + strlen("@COMMANDS@");
    output_printf(out, "%.*s", (int)(names - help_of_bash), help_of_bash);
    put_choices(out, command_names);
    output_printf(out, "%.*s", (int)(options - body), body);
    for (int i = 0; (c = command_at(i)) != NULL; i++) {
        options_list(&c->spec, &rows);
        output_printf(out, "    %s)\n        arguments='", c->name);
        put_choices(out, c->spec.positionals[0].choices);
        output_puts(out, "'\n");
        for (int r = 0; r < rows.n_options; r++) {
            const struct option *o = rows.items[r].option;
            const char letter[] = {' ', '-', o->letter, 0};
            const bool is_file = o->reads || o->writes || (o->value && str_is(o->value, "FILE"));
            const char *kind = o->kind == OPTION_FLAG ? "flag" : is_file ? "file" : "other";
            output_printf(out, "        _decode_option %s '", kind);
            put_choices(out, o->choices);
            output_printf(out, "' --%s%s\n", o->name, o->letter ? letter : "");
        }
        output_puts(out, "        _decode_option flag '' --help -h\n        ;;\n");
    }
    output_puts(out, options + strlen("@OPTIONS@\n"));
}

/* --- the command ------------------------------------------------------------------------------ */

struct help_options {
    struct common_options common; /* none of them */
    const char *command;          /* NULL: all of them */
    int format;
    bool all;
};

enum { HELP_TEXT, HELP_MAN, HELP_BASH };
static const char *const format_names[] = {"text", "man", "bash", NULL};

#define VALUES struct help_options

static const struct option result_options[] = {
    OPT_FLAG("all", all, "of COMMAND every option, and what figures mean"),
    OPT_CHOICE("format", format, "FORM", format_names,
               "man: the manual page, for man -l -; bash: a script that completes command lines",
               .fallback = "text"),
    OPT_END,
};

static enum status run_help(struct job *j, void *values, struct err *e)
{
    const struct help_options *o = values;
    const struct command *c = &command_help;
    if (o->command)
        TRY(command_named(o->command, &c, e));
    if (o->command && o->format != HELP_TEXT)
        return err_usage(e, "--format %s is of all commands; expected none named, found '%.60s'",
                         format_names[o->format], o->command);
    if (o->all && !o->command)
        return err_usage(e, "--all is of a command; expected one named");
    if (o->format == HELP_MAN)
        manual_print(j->out);
    else if (o->format == HELP_BASH)
        completion_bash(j->out);
    else if (c != &command_help)
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
             .positionals = {OPT_STRING("COMMAND", command, NULL, NULL, .choices = command_names)}},
    .values_size = sizeof(VALUES),
    .run = run_help,
};
