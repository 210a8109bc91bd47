#include "cli/help.h"

#include <unistd.h>

#include "cli/terminal.h"
#include "show/paragraph.h"

void help_set_width(struct output *out)
{
    if (out->columns == 0 && environment("COLUMNS"))
        out->columns = terminal_width(STDOUT_FILENO);
}

void command_print_help(const struct command *c, bool all, struct output *out)
{
    help_set_width(out);
    struct paragraph p = paragraph_begin(out, sizeof "usage: " - 1);
    paragraph_printf(&p, "usage: decode %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    paragraph_end(&p);
    output_puts(out, "Examples:\n");
    for (const char *line = c->examples; *line; line += strcspn(line, "\n") + 1)
        output_printf(out, "  %.*s\n", (int)strcspn(line, "\n"), line); /* never broken */
    output_puts(out, "\n");
    options_help(&c->spec, all, out);
    const bool is_short = c->spec.everyday && !all;
    p = paragraph_begin(out, 0);
    paragraph_puts(&p, "\nOf all commands: decode help.");
    if (is_short)
        paragraph_printf(&p, " All of this one: decode help %s --all.", c->name);
    paragraph_end(&p);
    if (c->notes && !is_short) {
        output_puts(out, "\n");
        paragraph_reflow(out, c->notes, 0);
    }
}
