#include "cli/help.h"

#include <stdio.h>

#include "cli/command.h"
#include "show/paragraph.h"

const char help_summary[] = "continue texts with transformers, and see what their attention costs";

const struct help_section help_sections[] = {
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
