#include "cli/manual.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/help.h"

/* Characters that mean something else to troff, or look different: - becomes a hyphen. */
static const char *escape_of(char c)
{
    static const char *const escapes[] = {"\\\\e", "-\\-", "'\\(aq", "`\\(ga", "^\\(ha", "~\\(ti"};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (escapes[i][0] == c)
            return escapes[i] + 1;
    return NULL;
}

static void put_text(struct output *out, struct text t)
{
    if (t.len > 0 && t.data[0] == '.')
        output_puts(out, "\\&");
    for (size_t i = 0; i < t.len; i++) {
        const char *escape = escape_of(t.data[i]);
        if (escape)
            output_puts(out, escape);
        else
            output_put(out, (struct text){t.data + i, 1});
    }
}

static void put_bold(struct output *out, struct text t)
{
    output_puts(out, "\\fB");
    put_text(out, t);
    output_puts(out, "\\fP");
}

static void put_line(struct output *out, struct text t)
{
    put_text(out, t);
    output_puts(out, "\n");
}

static struct text without_spaces(struct text t)
{
    while (t.len > 0 && t.data[0] == ' ') {
        t.data++;
        t.len--;
    }
    return t;
}

/* Where the two spaces are that end a term; 0 in a line without one. */
static size_t term_len(struct text line)
{
    for (size_t i = 1; i + 1 < line.len && line.data[0] != ' '; i++)
        if (line.data[i] == ' ' && line.data[i + 1] == ' ')
            return i;
    return 0;
}

static void put_notes(struct output *out, const char *text)
{
    bool starts = true; /* the next line begins a paragraph */
    bool in_term = false;
    while (*text) {
        const struct text line = {text, strcspn(text, "\n")};
        const size_t term = term_len(line);
        if (term > 0) {
            output_puts(out, ".TP\n");
            put_bold(out, (struct text){line.data, term});
            output_puts(out, "\n");
        } else if (line.len > 0 && (starts || (in_term && line.data[0] != ' '))) {
            output_puts(out, ".PP\n");
        }
        if (line.len > 0)
            put_line(out, without_spaces((struct text){line.data + term, line.len - term}));
        starts = line.len == 0;
        in_term = !starts && (term > 0 || line.data[0] == ' ');
        text += line.len;
        text += *text == '\n';
    }
}

static void put_option(struct output *out, const struct option *o)
{
    const char letter[] = {'-', o->letter, 0};
    char name[64];
    output_puts(out, ".TP\n");
    if (o->letter) {
        put_bold(out, text_of(letter));
        output_puts(out, ", ");
    }
    snprintf(name, sizeof name, "--%s", o->name);
    put_bold(out, text_of(name));
    if (o->value) {
        output_puts(out, " \\fI");
        put_text(out, text_of(o->value));
        output_puts(out, "\\fP");
    }
    output_puts(out, "\n");
    put_line(out, text_of(option_description(o).text));
}

static void put_command(struct output *out, const struct command *c)
{
    output_printf(out, ".SS %s\n.B decode %s\n", c->name, c->name);
    put_line(out, text_of(c->usage));
    output_puts(out, ".PP\n");
    put_line(out, text_of(c->summary));
    for (const struct option_group *g = c->spec.groups; g->title; g++) {
        output_puts(out, ".PP\n");
        put_text(out, text_of(g->title));
        output_puts(out, ":\n");
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            put_option(out, o);
    }
    if (c->notes)
        put_notes(out, c->notes);
}

static void put_commands(struct output *out)
{
    output_puts(out, ".SH COMMANDS\n");
    for (int i = 0; command_at(i); i++)
        put_command(out, command_at(i));
}

static void put_heading(struct output *out, const char *title)
{
    output_puts(out, ".SH ");
    for (; *title; title++)
        output_printf(out, "%c", toupper((unsigned char)*title));
    output_puts(out, "\n");
}

void manual_print(struct output *out)
{
    output_puts(out, ".TH DECODE 1 \"\" \"decode " DECODE_VERSION "\" \"User Commands\"\n"
                     ".nh\n.ad l\n.SH NAME\ndecode \\- ");
    put_line(out, text_of(help_summary));
    output_puts(out, ".SH SYNOPSIS\n"
                     ".B decode\n\\fIcommand\\fP [\\fIoptions\\fP]\n.br\n"
                     ".B decode help\n[\\fIcommand\\fP]\n.br\n"
                     ".B decode \\-\\-version\n"
                     ".SH DESCRIPTION\n");
    for (int i = 0; command_at(i); i++) {
        output_printf(out, ".TP\n.B %s\n", command_at(i)->name);
        put_line(out, text_of(command_at(i)->summary));
    }
    for (const struct help_section *s = help_sections; s->title; s++) {
        put_heading(out, s->title);
        put_notes(out, s->text);
        if (s == help_sections)
            put_commands(out);
    }
}
