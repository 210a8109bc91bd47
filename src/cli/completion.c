#include "cli/completion.h"

#include <string.h>

#include "cli/command.h"

/* What every command takes beside its own options. */
static const struct option help_option = {
    .kind = OPTION_FLAG, .name = "help", .letter = 'h', .help = "show this command's options"};

/* What a shell's script has before, for and after each command, and for each option. */
struct shell {
    const char *head;
    const char *before_name, *after_name; /* in the list of commands */
    const char *quote; /* inside of quotes, as their summaries then are; NULL: they have none */
    const char *body;
    void (*begin)(struct output *, const struct command *);
    void (*option)(struct output *, const struct command *, const struct option *);
    void (*end)(struct output *, const struct command *);
    const char *tail;
};

/* `text` with a backslash before each of the characters in `special`; inside of single quotes, of
 * which one in it becomes `quote`. */
static void put_quoted(struct output *out, const char *text, const char *special, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'') {
            output_puts(out, quote);
            continue;
        }
        if (strchr(special, *text))
            output_puts(out, "\\");
        output_put(out, (struct text){text, 1});
    }
}

static void put_name(struct output *out, const struct shell *shell, const struct command *c)
{
    output_printf(out, "%s%s%s", shell->before_name, c->name, shell->after_name);
    if (shell->quote) {
        put_quoted(out, c->summary, "\\", shell->quote);
        output_puts(out, "'\n");
    }
}

static void put_shell(struct output *out, const struct shell *shell)
{
    const struct command *c;
    output_puts(out, shell->head);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        put_name(out, shell, c);
    output_puts(out, shell->body);
    for (int i = 0; (c = command_at(i)) != NULL; i++) {
        shell->begin(out, c);
        for (const struct option_group *g = c->spec.groups; g->title; g++)
            for (const struct option *o = g->options; o->kind != OPTION_END; o++)
                shell->option(out, c, o);
        shell->option(out, c, &help_option);
        shell->end(out, c);
    }
    output_puts(out, shell->tail);
}

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

/* --- bash ------------------------------------------------------------------------------------ */

static void bash_begin(struct output *out, const struct command *c)
{
    output_printf(out, "    %s)\n        arguments='", c->name);
    put_choices(out, c->spec.positionals[0].choices);
    output_puts(out, "'\n");
}

static void bash_option(struct output *out, const struct command *c, const struct option *o)
{
    const char letter[] = {' ', '-', o->letter, 0};
    const char *kind = o->kind == OPTION_FLAG ? "flag" : takes_file(o) ? "file" : "other";
    (void)c;
    output_printf(out, "        _decode_option %s '", kind);
    put_choices(out, o->choices);
    output_printf(out, "' --%s%s\n", o->name, o->letter ? letter : "");
}

static void bash_end(struct output *out, const struct command *c)
{
    (void)c;
    output_puts(out, "        ;;\n");
}

void completion_bash(struct output *out)
{
    static const struct shell bash = {
        .head =
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
            "        COMPREPLY=($(compgen -W '",
        .before_name = "",
        .after_name = " ",
        .body = "--help --version' -- \"$word\"))\n"
                "        return\n"
                "    fi\n"
                "    # --name=value is three words\n"
                "    if [[ $word == = ]]; then\n"
                "        word=\n"
                "    elif [[ $before == = ]]; then\n"
                "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    fi\n"
                "    case ${COMP_WORDS[1]} in\n",
        .begin = bash_begin,
        .option = bash_option,
        .end = bash_end,
        .tail = "    esac\n"
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
                "complete -o default -F _decode decode\n",
    };
    put_shell(out, &bash);
}

/* --- zsh ------------------------------------------------------------------------------------- */

#define ZSH_QUOTE "'\\''"

static void zsh_begin(struct output *out, const struct command *c)
{
    output_printf(out, "    %s)\n        _arguments -S", c->name);
}

/* '*--name=[help]:VALUE:ACTION', as _arguments takes it. */
static void zsh_option(struct output *out, const struct command *c, const struct option *o)
{
    const char *again = o->kind == OPTION_STRINGS ? "*" : "";
    const char *equals = o->kind == OPTION_FLAG ? "" : "=";
    (void)c;
    output_puts(out, " \\\n            ");
    if (o->letter && !again[0])
        output_printf(out, "'(-%c --%s)'", o->letter, o->name);
    if (o->letter)
        output_printf(out, "{'%s-%c','%s--%s%s'}'[", again, o->letter, again, o->name, equals);
    else
        output_printf(out, "'%s--%s%s[", again, o->name, equals);
    put_quoted(out, o->help, "\\[]:", ZSH_QUOTE);
    output_puts(out, "]");
    if (o->kind != OPTION_FLAG) {
        output_puts(out, ":");
        put_quoted(out, o->value, "\\:", ZSH_QUOTE);
        output_puts(out, o->choices ? ":(" : takes_file(o) ? ":_files" : ": ");
        put_choices(out, o->choices);
        output_puts(out, o->choices ? ")" : "");
    }
    output_puts(out, "'");
}

static void zsh_end(struct output *out, const struct command *c)
{
    const char *const *choices = c->spec.positionals[0].choices;
    output_puts(out, choices ? " \\\n            '1:command:(" : " \\\n            '*:file:_files");
    put_choices(out, choices);
    output_puts(out, choices ? ")'\n        ;;\n" : "'\n        ;;\n");
}

void completion_zsh(struct output *out)
{
    static const struct shell zsh = {
        .head = "#compdef decode\n"
                "# made by: decode help --format zsh\n"
                "\n"
                "_decode() {\n"
                "    if ((CURRENT == 2)); then\n"
                "        local -a commands\n"
                "        commands=(\n",
        .before_name = "            '",
        .after_name = ":",
        .quote = ZSH_QUOTE,
        .body = "        )\n"
                "        _describe command commands\n"
                "        _arguments '--help[list the commands]' '--version[show the version]'\n"
                "        return\n"
                "    fi\n"
                "    shift words\n"
                "    ((CURRENT--))\n"
                "    case $words[1] in\n",
        .begin = zsh_begin,
        .option = zsh_option,
        .end = zsh_end,
        .tail = "    esac\n"
                "}\n"
                "\n"
                "_decode \"$@\"\n",
    };
    put_shell(out, &zsh);
}

/* --- fish ------------------------------------------------------------------------------------ */

#define FISH_QUOTE "\\'"

static void fish_begin(struct output *out, const struct command *c)
{
    const char *const *choices = c->spec.positionals[0].choices;
    output_puts(out, "\n");
    if (!choices)
        return;
    output_printf(out, "complete -c decode -n '__decode_is %s' -f -a '", c->name);
    put_choices(out, choices);
    output_puts(out, "'\n");
}

static void fish_option(struct output *out, const struct command *c, const struct option *o)
{
    output_printf(out, "complete -c decode -n '__decode_is %s' -l %s", c->name, o->name);
    if (o->letter)
        output_printf(out, " -s %c", o->letter);
    output_puts(out, o->kind == OPTION_FLAG ? "" : takes_file(o) ? " -r" : " -x");
    if (o->choices) {
        output_puts(out, " -a '");
        put_choices(out, o->choices);
        output_puts(out, "'");
    }
    output_puts(out, " -d '");
    put_quoted(out, o->help, "\\", FISH_QUOTE);
    output_puts(out, "'\n");
}

static void fish_end(struct output *out, const struct command *c)
{
    (void)out;
    (void)c;
}

void completion_fish(struct output *out)
{
    static const struct shell fish = {
        .head = "# fish completion for decode; made by: decode help --format fish\n"
                "\n"
                "function __decode_first\n"
                "    test (count (commandline -opc)) -eq 1\n"
                "end\n"
                "\n"
                "function __decode_is\n"
                "    set -l words (commandline -opc)\n"
                "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
                "end\n"
                "\n"
                "complete -c decode -n __decode_first -f -l help -s h -d 'list the commands'\n"
                "complete -c decode -n __decode_first -f -l version -d 'show the version'\n",
        .before_name = "complete -c decode -n __decode_first -f -a ",
        .after_name = " -d '",
        .quote = FISH_QUOTE,
        .body = "",
        .begin = fish_begin,
        .option = fish_option,
        .end = fish_end,
        .tail = "",
    };
    put_shell(out, &fish);
}
