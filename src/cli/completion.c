#include "cli/completion.h"

#include <string.h>

#include "cli/command.h"

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

/* What every command takes beside its own options. */
static const struct option help_option = {
    .kind = OPTION_FLAG, .name = "help", .letter = 'h', .help = "show this command's options"};

/* Whether the value is a file or a folder: the help calls it so. */
static bool takes_file(const struct option *o)
{
    static const char *const begins[] = {"FILE", "OUT", "DIR", "MODEL", "TEXT", "DRAFT"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (o->value && strncmp(o->value, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void put_choices(struct output *out, const char *const *choices)
{
    for (int i = 0; choices && choices[i]; i++)
        output_printf(out, "%s%s", i > 0 ? " " : "", choices[i]);
}

static void put_option(struct output *out, const struct option *o)
{
    const char letter[] = {' ', '-', o->letter, 0};
    const char *kind = o->kind == OPTION_FLAG ? "flag" : takes_file(o) ? "file" : "other";
    output_printf(out, "        _decode_option %s '", kind);
    put_choices(out, o->choices);
    output_printf(out, "' --%s%s\n", o->name, o->letter ? letter : "");
}

static void put_command(struct output *out, const struct command *c)
{
    output_printf(out, "    %s)\n        arguments='", c->name);
    put_choices(out, c->spec.positionals[0].choices);
    output_puts(out, "'\n");
    for (const struct option_group *g = c->spec.groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            put_option(out, o);
    put_option(out, &help_option);
    output_puts(out, "        ;;\n");
}

void completion_bash(struct output *out)
{
    const struct command *c;
    output_puts(out, head);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        output_printf(out, "%s ", c->name);
    output_puts(out, body);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        put_command(out, c);
    output_puts(out, tail);
}
