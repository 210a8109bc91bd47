/*
 * cmd_help - decode help: the commands, a command's options, the manual page, completions.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/job.h"
#include "show/paragraph.h"

/* --- what is said of the program as a whole, here and in the manual page ---------------------- */

static const char help_summary[] =
    "continue texts with transformers, and see what their attention costs";

struct help_section {
    const char *title; /* NULL ends the list */
    const char *text;  /* as a command's notes are written */
};

static const struct help_section help_sections[] = {
    {"Options",
     "decode help COMMAND (or decode COMMAND --help) shows a command's options.\n"
     "decode help --format man prints the manual page; --format bash what\n"
     "completes command lines in that shell. decode --version shows version, compiler,\n"
     "instruction sets and threads.\n"
     "\n"
     "The checkpoint is the first argument or -m FILE; --option value and --option=value\n"
     "both work, anywhere among the arguments; -- ends the options; of an option given\n"
     "twice the last one counts.\n"
     "\n"
     "-m, --model FILE  the checkpoint, instead of the first argument\n"
     "-q, --quiet       nothing on standard error but errors\n"
     "-v, --verbose     also memory plan, threads, instruction set; whole tables\n"
     "\n"
     "Counts take k and M, thousands and millions; sizes also kB, KiB, MB, MiB, GB, GiB.\n"
     "\n"
     "A reader that closes the pipe ends the program silently, as it ends cat (by SIGPIPE: 141\n"
     "in a shell); files that were asked for are written all the same.\n"},
    {"Exit status", "0    done\n"
                    "1    failed while running\n"
                    "2    usage\n"
                    "3    bad input file\n"
                    "4    out of memory\n"
                    "130  interrupted\n"},
    {"Environment", "DECODE_THREADS  the default of -t\n"
                    "DECODE_ISA      forces an instruction set, of those that --version lists\n"
                    "NO_COLOR        no colours on a terminal\n"
                    "COLORFGBG       whether the terminal is light or dark\n"
                    "COLUMNS         its width, where it does not say it itself\n"},
    {NULL, NULL},
};

void help_print(struct output *out)
{
    const struct command *c;
    char line[256];
    output_puts(out, "usage: decode <command> [options]\n\n");
    snprintf(line, sizeof line, "%s\n", help_summary);
    paragraph_reflow(out, line, 0);
    output_puts(out, "\nCommands:\n");
    for (int i = 0; (c = command_at(i)) != NULL; i++) {
        snprintf(line, sizeof line, "  %-10s %s\n", c->name, c->summary);
        paragraph_reflow(out, line, 0);
    }
    for (const struct help_section *s = help_sections; s->title; s++) {
        output_printf(out, "\n%s:\n", s->title);
        paragraph_reflow(out, s->text, 2);
    }
}

/* --- the manual page decode(1), as source for man(1) in the macros of man(7) ------------------ */

/* `before`, the text without what means something else to troff, or looks different (- becomes a
 * hyphen), and `after`. */
static void put_text(struct output *out, const char *before, struct text t, const char *after)
{
    static const char *const escapes[] = {"\\\\e", "-\\-", "'\\(aq", "`\\(ga", "^\\(ha", "~\\(ti"};
    output_puts(out, before);
    if (t.len > 0 && t.data[0] == '.')
        output_puts(out, "\\&");
    for (; t.len > 0; text_cut(&t, 1)) {
        struct text shown = {t.data, 1};
        for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
            if (escapes[i][0] == t.data[0])
                shown = text_of(escapes[i] + 1);
        output_put(out, shown);
    }
    output_puts(out, after);
}

static void put_notes(struct output *out, const char *text)
{
    bool starts = true; /* the next line begins a paragraph */
    bool in_term = false;
    while (*text) {
        struct text line = {text, strcspn(text, "\n")};
        text += line.len;
        text += *text == '\n';
        size_t term = 0; /* up to the two spaces that end it */
        for (size_t i = 1; i + 1 < line.len && line.data[0] != ' ' && term == 0; i++)
            if (line.data[i] == ' ' && line.data[i + 1] == ' ')
                term = i;
        if (term > 0)
            put_text(out, ".TP\n\\fB", text_cut(&line, term), "\\fP\n");
        else if (line.len > 0 && (starts || (in_term && line.data[0] != ' ')))
            output_puts(out, ".PP\n");
        starts = line.len == 0;
        in_term = !starts && line.data[0] == ' ';
        if (!starts) {
            text_cut(&line, strspn(line.data, " "));
            put_text(out, "", line, "\n");
        }
    }
}

static void put_command(struct output *out, const struct command *c)
{
    struct option_rows rows;
    options_list(&c->spec, &rows);
    output_printf(out, ".SS %s\n.B decode %s\n", c->name, c->name);
    put_text(out, "", text_of(c->usage), "\n.PP\n");
    put_text(out, "", text_of(c->summary), "\n");
    for (int i = 0; i < rows.n_options && rows.items[i].group[0]; i++) {
        const struct option_row *row = &rows.items[i];
        const struct option *o = row->option;
        const char letter[] = {o->letter, 0};
        if (i == 0 || row->group != row[-1].group)
            put_text(out, ".PP\n", text_of(row->group), ":\n");
        output_puts(out, ".TP\n");
        if (o->letter)
            put_text(out, "\\fB\\-", text_of(letter), "\\fP, ");
        put_text(out, "\\fB\\-\\-", text_of(o->name), "\\fP");
        if (o->value)
            put_text(out, " \\fI", text_of(o->value), "\\fP");
        put_text(out, "\n", text_of(option_description(o).text), "\n");
    }
    if (c->notes)
        put_notes(out, c->notes);
}

static void manual_print(struct output *out)
{
    put_text(out,
             ".TH DECODE 1 \"\" \"decode " DECODE_VERSION "\" \"User Commands\"\n"
             ".nh\n.ad l\n.SH NAME\ndecode \\- ",
             text_of(help_summary),
             "\n.SH SYNOPSIS\n"
             ".B decode\n\\fIcommand\\fP [\\fIoptions\\fP]\n.br\n"
             ".B decode help\n[\\fIcommand\\fP]\n.br\n"
             ".B decode \\-\\-version\n"
             ".SH DESCRIPTION\n");
    for (int i = 0; command_at(i); i++) {
        output_printf(out, ".TP\n.B %s\n", command_at(i)->name);
        put_text(out, "", text_of(command_at(i)->summary), "\n");
    }
    for (const struct help_section *s = help_sections; s->title; s++) {
        output_puts(out, ".SH ");
        for (const char *c = s->title; *c; c++)
            output_printf(out, "%c", toupper((unsigned char)*c));
        output_puts(out, "\n");
        put_notes(out, s->text);
        if (s == help_sections)
            output_puts(out, ".SH COMMANDS\n");
        for (int i = 0; s == help_sections && command_at(i); i++)
            put_command(out, command_at(i));
    }
}

/* --- the script that completes command lines in bash ------------------------------------------ */

/* The script before the names of commands, between them and their options, and after these. */
static const char head[] =
    "# bash completion for decode; made by: decode help --format bash\n"
    "\n"
    "# KIND CHOICES NAME...: one option. _decode's variables are changed: all options,\n"
    "# and what is known of the value if the word before is this one.\n"
    "_decode_option() {\n"
    "    local kind=$1 choices=$2 name\n"
    "    shift 2\n"
    "    options+=\" $*\"\n"
    "    for name; do\n"
    "        if [[ $name == \"$before\" ]]; then\n"
    "            value=$kind values=$choices\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "_decode() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local options= arguments= value=flag values=\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        COMPREPLY=($(compgen -W '";
static const char body[] = "--help --version' -- \"$word\"))\n"
                           "        return\n"
                           "    fi\n"
                           "    # --name=value is three words\n"
                           "    if [[ $word == = ]]; then\n"
                           "        word=\n"
                           "    elif [[ $before == = ]]; then\n"
                           "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                           "    fi\n"
                           "    case ${COMP_WORDS[1]} in\n";
static const char tail[] = "    esac\n"
                           "    # Where there are no replies, bash completes names of files.\n"
                           "    case $value in\n"
                           "    other)\n"
                           "        compopt +o default 2>/dev/null\n"
                           "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
                           "        ;;\n"
                           "    flag)\n"
                           "        [[ $word == -* ]] && arguments=$options\n"
                           "        COMPREPLY=($(compgen -W \"$arguments\" -- \"$word\"))\n"
                           "        ;;\n"
                           "    esac\n"
                           "}\n"
                           "\n"
                           "complete -o default -F _decode decode\n";

static void put_choices(struct output *out, const char *const *choices)
{
    for (int i = 0; choices && choices[i]; i++)
        output_printf(out, "%s%s", i > 0 ? " " : "", choices[i]);
}

static void complete_command(struct output *out, const struct command *c)
{
    /* What the help calls a file or a folder. */
    static const char *const files[] = {"FILE", "OUT", "DIR", "MODEL", "TEXT", "DRAFT"};
    struct option_rows rows;
    options_list(&c->spec, &rows);
    output_printf(out, "    %s)\n        arguments='", c->name);
    put_choices(out, c->spec.positionals[0].choices);
    output_puts(out, "'\n");
    for (int i = 0; i < rows.n_options; i++) {
        const struct option *o = rows.items[i].option;
        const char letter[] = {' ', '-', o->letter, 0};
        const char *kind = o->kind == OPTION_FLAG ? "flag" : "other";
        for (size_t f = 0; f < sizeof files / sizeof *files; f++)
            if (o->value && strncmp(o->value, files[f], strlen(files[f])) == 0)
                kind = "file";
        output_printf(out, "        _decode_option %s '", kind);
        put_choices(out, o->choices);
        output_printf(out, "' --%s%s\n", o->name, o->letter ? letter : "");
    }
    output_puts(out, "        _decode_option flag '' --help -h\n        ;;\n");
}

static void completion_bash(struct output *out)
{
    const struct command *c;
    output_puts(out, head);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        output_printf(out, "%s ", c->name);
    output_puts(out, body);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        complete_command(out, c);
    output_puts(out, tail);
}

/* --- the command ------------------------------------------------------------------------------ */

struct help_options {
    struct common_options common; /* none of them */
    const char *command;          /* NULL: all of them */
    int format;
};

enum { HELP_TEXT, HELP_MAN, HELP_BASH };
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

static enum status run_help(struct job *j, void *values, struct err *e)
{
    const struct help_options *o = values;
    const struct command *c = &command_help;
    if (o->command)
        TRY(command_named(o->command, &c, e));
    if (o->command && o->format != HELP_TEXT)
        return err_set(e, STATUS_USAGE,
                       "--format %s is of all commands; expected none named, found '%.60s'",
                       format_names[o->format], o->command);
    if (o->format == HELP_MAN)
        manual_print(j->out);
    else if (o->format == HELP_BASH)
        completion_bash(j->out);
    else if (c != &command_help)
        command_print_help(c, j->out);
    else
        help_print(j->out);
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
