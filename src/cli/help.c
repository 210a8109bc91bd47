#include "cli/help.h"

#include <string.h>

#include "cli/command.h"

const char help_summary[] = "continue texts with transformers, and see what their attention costs";

const struct help_section help_sections[] = {
    {"Options",
     "decode help COMMAND (or decode COMMAND --help) shows a command's options.\n"
     "decode help --format man prints the manual page; --format bash, zsh or fish what\n"
     "completes command lines in that shell. decode --version shows version, compiler,\n"
     "instruction sets and threads.\n"
     "\n"
     "The checkpoint is the first argument or -m FILE; --option value and --option=value\n"
     "both work, anywhere among the arguments; -- ends the options; of an option given\n"
     "twice the last one counts.\n"},
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

static void put_indented(struct output *out, const char *text)
{
    while (*text) {
        const size_t len = strcspn(text, "\n");
        output_puts(out, len > 0 ? "  " : "");
        output_put(out, (struct text){text, len});
        output_puts(out, "\n");
        text += len;
        text += *text == '\n';
    }
}

void help_print(struct output *out)
{
    const struct command *c;
    output_printf(out, "usage: decode <command> [options]\n\n%s\n\nCommands:\n", help_summary);
    for (int i = 0; (c = command_at(i)) != NULL; i++)
        output_printf(out, "  %-10s %s\n", c->name, c->summary);
    for (const struct help_section *s = help_sections; s->title; s++) {
        output_printf(out, "\n%s:\n", s->title);
        put_indented(out, s->text);
    }
}
