/*
 * fuzz_options - the command line. The input's lines are the arguments: the first names the
 * command, whose table of options takes the others. Each is also given to every parser of one
 * value. No command is run, so nothing is read and nothing is written.
 */
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/shape.h"
#include "target.h"

#define COMMAND_ROW(name) &command_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ROW)};
#undef COMMAND_ROW
#define N_COMMANDS COUNT(commands)

#define MAX_ARGUMENTS 64

static void require_usage(enum status s, const struct err *e)
{
    require(s == STATUS_USAGE);
    require_message(e);
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
        size_t end = at;
        while (end < size && data[end] != '\n' && data[end] != 0)
            end++;
        char *word = malloc(end - at + 1);
        require(word != NULL);
        if (end > at)
            memcpy(word, data + at, end - at);
        word[end - at] = 0;
        a.words[a.n++] = word;
        at = end + 1;
    }
    return a;
}

static void free_arguments(struct arguments *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->words[i]);
}

/* Whether `text` is part of an argument: what is borrowed is never anything else. */
static int is_borrowed(const struct arguments *a, const char *text)
{
    for (int i = 0; i < a->n; i++)
        if (text >= a->words[i] && text <= a->words[i] + strlen(a->words[i]))
            return 1;
    return 0;
}

/* --- what the options took ------------------------------------------------------------------- */

static void check_strings(const struct option_strings *list, const struct arguments *a)
{
    require(list->n <= a->n && (list->n > 0) == (list->items != NULL));
    for (int i = 0; i < list->n; i++)
        require(is_borrowed(a, list->items[i]));
}

static void check_text(const char *text, const char *fallback, const struct arguments *a)
{
    require(!text || text == fallback || is_borrowed(a, text));
}

/* A value that was neither given nor has a default is still zero. */
static void check_value(const struct option *o, const void *value, const struct arguments *a)
{
    int n = 0;
    double x = 0;
    switch (o->kind) {
    case OPTION_INT:
        memcpy(&n, value, sizeof n);
        require(n == 0 || (n >= (int)o->min && n <= (int)o->max));
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
        check_text(*(const char *const *)value, o->fallback, a);
        break;
    case OPTION_STRINGS:
        check_strings(value, a);
        break;
    case OPTION_FLAG:
    case OPTION_U64:
    case OPTION_END:
        break;
    }
}

static void check_values(const struct command *c, const unsigned char *values,
                         const struct arguments *a)
{
    struct option_rows rows;
    options_list(&c->spec, &rows);
    for (int i = 0; i < rows.n; i++)
        check_value(rows.items[i].option, values + rows.items[i].offset, a);
}

struct sink {
    struct output out;
    char last; /* byte */
};

static bool keep_last(struct output *out, const char *bytes, size_t len)
{
    ((struct sink *)out)->last = bytes[len - 1];
    return true;
}

static void print_help(const struct option_spec *spec)
{
    static struct sink sink;
    output_init(&sink.out, keep_last);
    options_help(spec, &sink.out);
    require(output_flush(&sink.out) && sink.last == '\n');
}

static void parse_options(const struct command *c, struct arguments *a)
{
    unsigned char *values = calloc(1, c->values_size);
    struct err e = {""};
    bool help = false;
    require(values != NULL);
    const enum status s = options_parse(&c->spec, a->words + 1, values, &help, &e);
    if (s == STATUS_OK)
        check_values(c, values, a);
    else
        require_usage(s, &e);
    if (help)
        print_help(&c->spec);
    options_free(&c->spec, values);
    free(values);
}

/* The command that the first argument names; for any other, the nearest must be near, and one of
 * the commands takes the rest. */
static const struct command *choose_command(const char *name)
{
    struct nearest near = {.word = name};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
        require(edit_distance(name, commands[i]->name) == edit_distance(commands[i]->name, name));
        nearest_offer(&near, commands[i]->name);
    }
    if (near.best)
        require(near.distance > 0 && (size_t)near.distance < strlen(near.best) + 3);
    return commands[(unsigned char)name[0] % N_COMMANDS];
}

/* --- the parsers of one value ---------------------------------------------------------------- */

static void try_integers(const char *text)
{
    static const int ranges[][2] = {{0, INT_MAX}, {1, 9}, {-1, 100}, {INT_MIN + 1, INT_MAX}};
    uint64_t u = 77;
    const size_t zeros = strspn(text, "0");
    if (parse_u64(text, &u)) {
        char again[24];
        snprintf(again, sizeof again, "%llu", (unsigned long long)u);
        require(strcmp(again, text[zeros] ? text + zeros : "0") == 0);
    } else {
        require(u == 77);
    }
    for (size_t i = 0; i < COUNT(ranges); i++) {
        int n = 77;
        if (parse_int(text, ranges[i][0], ranges[i][1], &n))
            require(n >= ranges[i][0] && n <= ranges[i][1] && n == (int)strtol(text, NULL, 10));
        else
            require(n == 77);
    }
}

static void try_double(const char *text)
{
    double x = 77;
    if (!parse_double(text, &x)) {
        require(x == 77);
        return;
    }
    char *end;
    require(isfinite(x) && x == strtod(text, &end) && *end == 0);
    const struct figure exact = figure_exact(x);
    double again;
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
    enum status s = list_ints("--list", text, -2, 1000, &list, &e);
    require(list.n >= 0 && list.n <= LIST_MAX);
    for (int i = 0; i < list.n; i++)
        require(list.items[i] >= -2 && list.items[i] <= 1000);
    if (s != STATUS_OK)
        require_usage(s, &e);
    e.text[0] = 0;
    list.n = 0;
    s = list_names("--names", text, names, &list, &e);
    for (int i = 0; i < list.n; i++)
        require(list.items[i] >= 0 && list.items[i] < 3);
    if (s != STATUS_OK)
        require_usage(s, &e);
}

static void try_ids(const char *text)
{
    struct err e = {""};
    int32_t *ids = NULL;
    size_t n = 0;
    const enum status s = parse_ids("--tokens", text, 257, &ids, &n, &e);
    if (s != STATUS_OK)
        require_usage(s, &e);
    for (size_t i = 0; i < n; i++)
        require(ids[i] >= 0 && ids[i] < 257);
    free(ids);
}

static void try_shape(const char *text)
{
    struct err e = {""};
    struct config c = {.n_layers = 0};
    const enum status s = shape_parse(text, arch_find(text_of("gpt2")), &c, &e);
    if (s != STATUS_OK) {
        require_usage(s, &e);
        return;
    }
    require(c.n_layers >= 1 && c.n_layers <= CONFIG_MAX_LAYERS);
    require(c.d_model >= 1 && c.d_model <= CONFIG_MAX_WIDTH);
    require(c.n_heads >= 1 && c.n_heads * c.head_dim == c.d_model && c.n_kv_heads == c.n_heads);
    require(c.d_ff >= 1 && c.d_ff <= CONFIG_MAX_FF);
    require(c.n_vocab >= 1 && c.n_vocab <= CONFIG_MAX_VOCAB);
    require(c.n_ctx >= 1 && c.n_ctx <= CONFIG_MAX_CTX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arguments a = split(data, size);
    parse_options(choose_command(a.words[0]), &a);
    for (int i = 0; i < a.n; i++) {
        try_integers(a.words[i]);
        try_double(a.words[i]);
        try_lists(a.words[i]);
        try_ids(a.words[i]);
        try_shape(a.words[i]);
    }
    free_arguments(&a);
    return 0;
}
