/*
 * fuzz_options - the command line. The input's lines are the arguments: the first names the
 * command, whose table of options takes the others. Each is also given to every parser of one
 * value. No command is run, so nothing is read and nothing is written.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/figures.h"
#include "cli/heads.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/shape.h"
#include "target.h"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW)};
#undef COMMAND_ROW

#define MAX_ARGUMENTS 64

/* Taken, or refused. */
static bool taken(enum status s, const struct err *e)
{
    if (s != STATUS_OK)
        require_refused(s, STATUS_USAGE, e);
    return s == STATUS_OK;
}

static bool within(int n, int min, int max)
{
    return n >= min && n <= max;
}

/* --- arguments ------------------------------------------------------------------------------- */

struct arguments {
    char *words[MAX_ARGUMENTS + 1]; /* each in memory of its own, as long as it is */
    int n;
};

/* A zero byte ends an argument too, as it would in a process. */
static struct arguments split(const uint8_t *data, size_t size)
{
    struct arguments a = {.n = 0};
    for (size_t at = 0; at <= size && a.n < MAX_ARGUMENTS;) {
        size_t len = 0;
        while (at + len < size && data[at + len] != '\n' && data[at + len] != 0)
            len++;
        char *word = a.words[a.n++] = calloc(1, len + 1);
        require(word != NULL);
        if (len > 0)
            memcpy(word, data + at, len);
        at += len + 1;
    }
    return a;
}

/* What is borrowed is part of an argument, never anything else. */
static void require_borrowed(const struct arguments *a, const char *text)
{
    bool is = false;
    for (int i = 0; i < a->n; i++)
        is |= text >= a->words[i] && text <= a->words[i] + strlen(a->words[i]);
    require(is);
}

/* --- what the options took ------------------------------------------------------------------- */

/* A value that was neither given nor has a default is still zero. */
static void check_value(const struct option *o, const void *value, const struct arguments *a)
{
    const struct option_strings *list = value;
    const char *text;
    int n;
    double x;
    switch (o->kind) {
    case OPTION_INT:
        memcpy(&n, value, sizeof n);
        require(n == 0 || within(n, (int)o->min, (int)o->max));
        break;
    case OPTION_DOUBLE:
        memcpy(&x, value, sizeof x);
        require(x == 0 || (x >= o->min && x <= o->max && !(o->above_min && x <= o->min)));
        break;
    case OPTION_CHOICE:
        memcpy(&n, value, sizeof n);
        n -= o->fallback ? 0 : 1;
        require(n >= -1);
        for (int i = 0; i <= n; i++)
            require(o->choices[i] != NULL);
        break;
    case OPTION_STRING:
        text = *(const char *const *)value;
        if (text && text != o->fallback)
            require_borrowed(a, text);
        break;
    case OPTION_STRINGS:
        require(list->n <= a->n && (list->n > 0) == (list->items != NULL));
        for (int i = 0; i < list->n; i++)
            require_borrowed(a, list->items[i]);
        break;
    case OPTION_FLAG:
    case OPTION_U64:
    case OPTION_END:
        break;
    }
}

static char last_shown;

static bool keep_last(struct output *out, const char *bytes, size_t len)
{
    (void)out;
    last_shown = bytes[len - 1];
    return true;
}

static void parse_options(const struct command *c, struct arguments *a)
{
    static struct output shown;
    unsigned char *values = calloc(1, c->values_size);
    struct option_rows rows;
    struct err e = {""};
    bool help = false;
    require(values != NULL);
    options_list(&c->spec, &rows);
    if (taken(options_parse(&c->spec, a->words + 1, values, &help, &e), &e))
        for (int i = 0; i < rows.n; i++)
            check_value(rows.items[i].option, values + rows.items[i].offset, a);
    if (help) {
        output_init(&shown, keep_last);
        options_help(&c->spec, true, &shown);
        require(output_flush(&shown) && last_shown == '\n');
    }
    options_free(&c->spec, values);
    free(values);
}

/* The command that the first argument names; for any other, the nearest must be near, and one of
 * the commands takes the rest. */
static const struct command *choose_command(const char *name)
{
    struct nearest near = {.word = name};
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
        require(edit_distance(name, commands[i]->name) == edit_distance(commands[i]->name, name));
        nearest_offer(&near, commands[i]->name);
    }
    if (near.best)
        require(near.distance > 0 && (size_t)near.distance < strlen(near.best) + 3);
    return commands[(unsigned char)name[0] % COUNT(commands)];
}

/* --- the parsers of one value: what is refused is left alone -----------------------------------
 */

static void try_integers(const char *text)
{
    static const int ranges[][2] = {{0, INT_MAX}, {1, 9}, {-1, 100}, {INT_MIN + 1, INT_MAX}};
    char again[24];
    uint64_t u = 77;
    const char *digits = text + strspn(text, "0");
    if (parse_u64(text, &u)) {
        snprintf(again, sizeof again, "%llu", (unsigned long long)u);
        require(strcmp(again, *digits ? digits : "0") == 0);
    } else {
        require(u == 77);
    }
    for (size_t i = 0; i < COUNT(ranges); i++) {
        int n = 77;
        if (parse_int(text, ranges[i][0], ranges[i][1], &n))
            require(within(n, ranges[i][0], ranges[i][1]) && n == (int)strtol(text, NULL, 10));
        else
            require(n == 77);
    }
}

static void try_double(const char *text)
{
    double x = 77, again;
    char *end;
    if (!parse_double(text, &x)) {
        require(x == 77);
        return;
    }
    require(isfinite(x) && x == strtod(text, &end) && *end == 0);
    const struct figure exact = figure_exact(x);
    require(parse_double(exact.text, &again) || strchr(exact.text, '+'));
    require(strtod(exact.text, NULL) == x);
    require(strlen(figure_bytes(x).text) < sizeof exact.text);
    require(strlen(figure_rate(x).text) < sizeof exact.text);
}

static void try_lists(const char *text)
{
    static const char *const names[] = {"f32", "f16", "q8_0", NULL};
    struct err e = {""};
    struct int_list list = {.n = 0};
    int32_t *ids = NULL;
    size_t n = 0;
    taken(list_ints("--list", text, -2, 1000, &list, &e), &e);
    require(within(list.n, 0, LIST_MAX));
    for (int i = 0; i < list.n; i++)
        require(within(list.items[i], -2, 1000));
    e.text[0] = 0;
    list.n = 0;
    taken(list_names("--names", text, names, &list, &e), &e);
    for (int i = 0; i < list.n; i++)
        require(within(list.items[i], 0, 2));
    e.text[0] = 0;
    taken(parse_ids("--tokens", text, 257, &ids, &n, &e), &e);
    for (size_t i = 0; i < n; i++)
        require(within(ids[i], 0, 256));
    free(ids);
}

static void try_shape(const char *text)
{
    struct err e = {""};
    struct config c = {.n_layers = 0};
    if (!taken(shape_parse(text, arch_find(text_of("gpt2")), &c, &e), &e))
        return;
    require(within(c.n_layers, 1, CONFIG_MAX_LAYERS) && within(c.d_model, 1, CONFIG_MAX_WIDTH));
    require(c.n_heads >= 1 && c.n_heads * c.head_dim == c.d_model && c.n_kv_heads == c.n_heads);
    require(within(c.d_ff, 1, CONFIG_MAX_FF) && within(c.n_vocab, 1, CONFIG_MAX_VOCAB));
    require(within(c.n_ctx, 1, CONFIG_MAX_CTX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arguments a = split(data, size);
    parse_options(choose_command(a.words[0]), &a);
    for (int i = 0; i < a.n; i++) {
        try_integers(a.words[i]);
        try_double(a.words[i]);
        try_lists(a.words[i]);
        try_shape(a.words[i]);
        free(a.words[i]);
    }
    return 0;
}
