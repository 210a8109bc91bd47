#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "cli/nearest.h"
#include "cli/paths.h"
#include "show/paragraph.h"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW) NULL};
#undef COMMAND_ROW

const struct command *command_at(int index)
{
    return commands[index];
}

enum status command_named(const char *name, const struct command **out, struct err *e)
{
    const char *what = name[0] == '-' ? "option" : "command";
    struct nearest near = {.word = name};
    for (int i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            *out = commands[i];
            return STATUS_OK;
        }
        nearest_offer(&near, commands[i]->name);
    }
    nearest_offer(&near, "--help");
    nearest_offer(&near, "--version");
    if (near.best)
        return err_set(e, STATUS_USAGE, "unknown %s '%.60s'; did you mean '%s'?", what, name,
                       near.best);
    return err_set(e, STATUS_USAGE, "unknown %s '%.60s'", what, name);
}

void command_print_help(const struct command *c, struct output *out)
{
    struct paragraph p = paragraph_begin(out, sizeof "usage: " - 1);
    paragraph_printf(&p, "usage: decode %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    paragraph_end(&p);
    options_help(&c->spec, out);
    if (c->notes) {
        output_puts(out, "\n");
        paragraph_reflow(out, c->notes, 0);
    }
}

/* Who wants more of everything wants whole tables, too. */
static bool is_verbose(const struct option_spec *spec, const void *values)
{
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            if (o->kind == OPTION_FLAG && strcmp(o->name, "verbose") == 0)
                return *(const bool *)((const char *)values + g->base + o->offset);
    return false;
}

enum status command_run(const struct command *c, int argc, char **argv,
                        const struct invocation *inv, struct err *e)
{
    void *values = calloc(1, c->values_size);
    if (!values)
        return err_no_memory(e, "the options", c->values_size);
    bool help;
    enum status s = options_parse(&c->spec, argc, argv, values, &help, e);
    if (is_verbose(&c->spec, values))
        inv->out->columns = 0;
    if (s == STATUS_OK && help)
        command_print_help(c, inv->out);
    else if (s == STATUS_OK && (s = paths_check(&c->spec, values, e)) == STATUS_OK)
        s = c->run(inv, values, e);
    options_free(&c->spec, values);
    free(values);
    return s;
}
