/* Tests of the option parser, with every kind, every spelling and every way to be wrong; and of
 * lists and shapes. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args/options.h"
#include "base/figures.h"
#include "cli/command.h"
#include "cli/common.h"
#include "model/selection.h"
#include "outputs.h"
#include "support.h"

struct inner {
    bool loud;
};

struct values {
    bool flag;
    struct option_u64 seed;
    int n, signed_n, form;
    double temp, above;
    const char *text, *first, *second;
    struct option_strings many;
    struct inner inner;
};

static const char *const forms[] = {"table", "json", NULL};

#define VALUES struct values
static const struct option rows[] = {
    OPT_FLAG("flag", flag, "a flag", .letter = 'F'),
    OPT_U64("seed", seed, "S", "a seed"),
    OPT_INT("n", n, "N", 0, INT_MAX, "a count", .letter = 'n', .fallback = "256"),
    OPT_INT("signed", signed_n, NULL, -1, 9, "an int"),
    OPT_DOUBLE("temp", temp, "X", 0, HUGE_VAL, "a number", .fallback = "0.8"),
    OPT_DOUBLE("above", above, NULL, 0, 1, "p", .above_min = true),
    OPT_STRING("text", text, "T", "text", .letter = 'p'),
    OPT_STRINGS("stop", many, "T", "texts"),
    OPT_CHOICE("format", form, NULL, forms, "a form", .fallback = "table",
               .excludes = "loud|signed"),
    OPT_END,
};
#undef VALUES
#define VALUES struct inner
static const struct option inner_rows[] = {
    OPT_FLAG("loud", loud, "loud"),
    OPT_END,
};
#undef VALUES
#define VALUES struct values
static const struct option_spec spec = {
    .groups = {{"All", rows, 0}, {"Inner", inner_rows, offsetof(struct values, inner)}},
    .positionals = {OPT_STRING("FIRST", first, NULL, NULL),
                    OPT_STRING("SECOND", second, NULL, NULL)}};

#define MAX_WORDS 12

static struct option_rows given;

/* Parses the words, which end with NULL. */
static enum status parse(struct values *v, bool *help, const char *const *words)
{
    /* The parser does not write to its arguments; it takes them as main gets them. */
    char *argv[MAX_WORDS];
    int n = 0;
    while (words[n++])
        continue;
    memcpy(argv, words, (size_t)n * sizeof *argv);
    *v = (struct values){.flag = false};
    return options_parse(&spec, argv, v, &given, help, &err);
}

static struct values good(const char *const *words)
{
    struct values v;
    bool help;
    expect_ok(parse(&v, &help, words));
    ck_assert(!help);
    return v;
}

/* Expects that the words are refused with all of `parts` in the message. */
static void refuse(const char *const *words, const char *parts)
{
    struct values v;
    bool help;
    expect_status(parse(&v, &help, words), STATUS_USAGE, parts);
    options_free(&spec, &v);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(spellings)
{
    const struct values v = good((const char *const[]){NULL});
    ck_assert(v.n == 256 && v.temp == 0.8 && v.form == 0);
    ck_assert(!v.seed.given && !v.flag && !v.text && !v.first);
    ck_assert(good(WORDS("-n", "5")).n == 5 && good(WORDS("-n=5")).n == 5 &&
              good(WORDS("-n5")).n == 5);
    ck_assert(good(WORDS("--n", "5")).n == 5 && good(WORDS("--n=5")).n == 5);
    ck_assert(good(WORDS("--format=json")).form == 1 && good(WORDS("--flag")).flag);
    ck_assert(good(WORDS("-F")).flag && good(WORDS("--loud")).inner.loud);
    ck_assert(good(WORDS("--signed", "-1")).signed_n == -1);
    ck_assert(good(WORDS("--temp", "1e-3")).temp == 1e-3);
    ck_assert(good(WORDS("-n", "5", "--n=6")).n == 6);
    ck_assert_str_eq(good(WORDS("-p", "--flag")).text, "--flag");
    ck_assert_str_eq(good(WORDS("-p", "")).text, "");
    ck_assert_str_eq(good(WORDS("--text=")).text, "");
    ck_assert_str_eq(good(WORDS("--text=a=b")).text, "a=b");
    ck_assert_str_eq(good(WORDS("-p", "--help")).text, "--help");
}

TEST(positionals_mix_with_options)
{
    struct values v = good(WORDS("one", "-n", "3", "two", "--flag"));
    ck_assert_str_eq(v.first, "one");
    ck_assert_str_eq(v.second, "two");
    ck_assert_int_eq(v.n, 3);
    v = good(WORDS("--", "-n", "--flag"));
    ck_assert_str_eq(v.first, "-n");
    ck_assert_str_eq(v.second, "--flag");
    ck_assert_str_eq(good(WORDS("-")).first, "-");
}

TEST(what_may_be_many_is_kept)
{
    static const struct option_spec many = {
        .groups = {{"All", rows, 0}},
        .positionals = {OPT_STRING("FIRST", first, NULL, NULL),
                        OPT_STRINGS("REST...", many, NULL, NULL)}};
    char *argv[8];
    memcpy(argv, WORDS("one", "two", "-n", "3", "three", "--", "-four"), sizeof argv);
    struct values v = {.flag = false};
    bool help;
    expect_ok(options_parse(&many, argv, &v, &given, &help, &err));
    ck_assert_str_eq(v.first, "one");
    ck_assert_int_eq(v.many.n, 3);
    ck_assert_str_eq(v.many.items[0], "two");
    ck_assert_str_eq(v.many.items[2], "-four");
    options_free(&many, &v);
    ck_assert_int_eq(v.many.n, 0);
    v = good(WORDS("--stop", "a", "--stop=b", "--stop", ""));
    ck_assert_int_eq(v.many.n, 3);
    ck_assert_str_eq(v.many.items[1], "b");
    ck_assert_str_eq(v.many.items[2], "");
    options_free(&spec, &v);
    ck_assert_ptr_null(v.many.items);
    expect_ok(parse(&v, &help, WORDS("--help", "--bogus"))); /* which ends the parse */
    ck_assert(help);
    expect_ok(parse(&v, &help, WORDS("-h")));
    ck_assert(help);
}

/* A row has words, "|" between them, and parts of the message. A fallback does not count as given.
 */
TEST(what_is_wrong_is_named)
{
    static const char *const cases[][2] = {
        {"1|2|3", "unexpected argument|'3'"},
        {"--flagg", "unknown option '--flagg'|'--flag'"},
        {"--tmep=1", "unknown option '--tmep'|'--temp'"},
        {"-temp|1", "unknown option '-temp'|'--temp'"},
        {"--zzzzzzzzz", "unknown option|zzz"},
        {"-n5x", "-n: expected|5x"},
        {"-n", "-n needs a value|0 or more"},
        {"--format", "--format needs a value|table, json"},
        {"--flag=1", "--flag takes no value|'1'"},
        {"--format|xml", "--format: expected one of table, json|'xml'"},
        {"--loud|--format|json", "--format and --loud are both given|one of"},
        {"--format=table|--signed=1", "--format and --signed|both given"},
        {"--format=table|--signed=1|--loud", "--format and --loud|both given"},
        {"--signed|-2", "-1 to 9|-2"},
        {"--signed|-", "-1 to 9|'-'"},
        {"--above|0", "above 0 to 1|'0'"},
        {"--above|1.5", "above 0 to 1|'1.5'"},
    };
    ck_assert(good(WORDS("--loud", "--signed", "1")).inner.loud);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char words[100], *rest = NULL;
        const char *argv[4] = {NULL};
        strcpy(words, cases[i][0]);
        for (int n = 0; (argv[n] = strtok_r(n ? NULL : words, "|", &rest)); n++)
            continue;
        refuse(argv, cases[i][1]);
    }
}

/* Each is refused with what is expected and what was found. */
static void refuse_numbers(const char *option, const char *expected, const char *const *bad)
{
    for (; *bad; bad++) {
        char parts[100];
        snprintf(parts, sizeof parts, "%s|%s", expected, *bad);
        refuse(WORDS(option, *bad), parts);
    }
}

TEST(wrong_numbers)
{
    refuse_numbers("-n", "-n: expected an integer, 0 to 2147483647",
                   WORDS("", "1e9", "0x10", " 5", "5 ", "-1", "+5", "nan", "1.0",
                         "99999999999999999999", "2147483648", "5,", "five", "\xd9\xa3"));
    refuse_numbers("--temp", "--temp: expected a number, 0 or more",
                   WORDS("", "nan", "inf", "-inf", "1e999", "0x1p3", " 1", "1 ", "+1", ".", "1e",
                         "-0.5", "1e+", "--1", "infinity", "1.2.3", "e5"));
}

static bool is_int(const char *text, int min, int max, int expected) /* 7: refused */
{
    int i = 7;
    return parse_int(text, min, max, &i) ? i == expected : expected == 7 && i == 7;
}

static bool is_bytes(const char *text, size_t expected) /* 0: refused */
{
    size_t bytes = 7;
    return parse_bytes(text, &bytes) ? bytes == expected : expected == 0 && bytes == 7;
}

static bool is_heads(const char *text, int expected) /* 0: refused */
{
    struct int_list list = {.n = 0};
    const enum status s = list_heads("--kv-heads", text, 8, &list, NULL);
    return s == STATUS_OK ? list.n == 1 && list.items[0] == expected : expected == 0;
}

TEST(numbers)
{
    uint64_t u = 7;
    ck_assert(parse_u64("18446744073709551615", &u) && u == UINT64_MAX);
    ck_assert(!parse_u64("18446744073709551616", &u) && u == UINT64_MAX);
    ck_assert(!parse_u64("-1", &u) && !parse_u64("", &u));
    ck_assert(is_int("2147483647", 0, INT_MAX, INT_MAX) && is_int("-5", -5, 5, -5));
    ck_assert(is_int("--5", -5, 5, 7) && is_int("-6", -5, 5, 7));
    ck_assert(is_int("3k", 0, INT_MAX, 3000) && is_int("2M", 0, INT_MAX, 2000000));
    ck_assert(is_int("3000M", 0, INT_MAX, 7) && is_int("3k", 0, 2999, 7));
    ck_assert(is_int("k", 0, INT_MAX, 7) && is_int("1K", 0, INT_MAX, 7));
    ck_assert(is_int("1kk", 0, INT_MAX, 7) && is_int("1 k", 0, INT_MAX, 7));
    double x = 7;
    ck_assert(parse_double("-1.5e+2", &x) && x == -150);
    ck_assert(parse_double(".5", &x) && x == 0.5 && parse_double("5.", &x) && x == 5);
    ck_assert(is_bytes("640", 640) && is_bytes("64kB", 64000) && is_bytes("64KiB", 65536));
    ck_assert(is_bytes("3GiB", (size_t)3 << 30) && is_bytes("0", 0) && is_bytes("1KB", 0));
    ck_assert(is_bytes("", 0) && is_bytes("-1", 0) && is_bytes("18446744073709551615", 0));
    ck_assert(is_bytes("18446744073709551615GiB", 0));
    ck_assert(is_heads("MQA", 1) && is_heads("gqa-4", 4) && is_heads("mha", 8) && is_heads("2", 2));
    ck_assert(is_heads("gqa", 0) && is_heads("gqa-", 0) && is_heads("0", 0));
}

/* --- lists and shapes ------------------------------------------------------------------------- */

/* Each list of ids is 1, 22, 0, or is refused. */
TEST(ids)
{
    static const char *const good_lists[] = {"1,22,0",     "1 22 0\n",   "[1, 22, 0]\n",
                                             "1\n22\n0\n", "[1]\n22 0",  " 1 ,22,\r\n0 ",
                                             "1, 22 ,0",   "[][1,22][0]"};
    static const char *const bad_lists[] = {
        "1,", ",1",    "1,,2", "23",  "-1", "+1",  "[1",
        "1]", "[[1]]", "[1,]", "1;2", "x",  "\t1", "99999999999999999999"};
    int32_t *list;
    size_t n = 1;
    expect_ok(parse_ids("--ids", "", 23, &list, &n, NULL));
    ck_assert_uint_eq(n, 0);
    free(list);
    for (size_t i = 0; i < COUNT(good_lists); i++) {
        expect_ok(parse_ids("--ids", good_lists[i], 23, &list, &n, &err));
        ck_assert(n == 3 && list[0] == 1 && list[1] == 22 && list[2] == 0);
        free(list);
    }
    for (size_t i = 0; i < COUNT(bad_lists); i++) {
        expect_status(parse_ids("--ids", bad_lists[i], 23, &list, &n, &err), STATUS_USAGE,
                      "--ids: item|0 to 22|or spaces");
        free(list);
    }
}

TEST(lists)
{
    static const char *const names[] = {"f32", "f16", NULL};
    char bad[] = ",|1,|,1|1,,2|1, 2|x|13|-1|1e3|1,1|99999999999999999999|"
                 "1111111111111111111111111111111111111111";
    struct int_list l = {.n = 0};
    expect_ok(list_ints("--x", "3,1,12", 0, 12, &l, &err));
    ck_assert(l.n == 3 && l.items[2] == 12);
    l.n = 0;
    expect_ok(list_names("--x", "f16,f32", names, &l, &err));
    ck_assert(l.items[0] == 1 && l.items[1] == 0);
    l.n = 0;
    expect_status(list_names("--x", "f32,q4_k", names, &l, &err), STATUS_USAGE, "q4_k|f32, f16");
    l.n = 0;
    expect_status(list_names("--x", "", names, &l, &err), STATUS_USAGE, "--x");
    for (char *list = strtok(bad, "|"); list; list = strtok(NULL, "|")) {
        l.n = 0;
        expect_status(list_ints("--x", list, 0, 12, &l, &err), STATUS_USAGE, "--x");
    }
    expect_status(list_ints("--x", "", 0, 12, &l, &err), STATUS_USAGE, "--x");
    char long_list[400] = "0";
    for (int i = 1; i <= LIST_MAX; i++)
        sprintf(long_list + strlen(long_list), ",%d", i);
    l.n = 0;
    expect_status(list_ints("--x", long_list, 0, 1000, &l, &err), STATUS_USAGE, "at most");
}

TEST(shapes)
{
    char bad[] = "12|12x768|12x768x|12x768x5|0x768x12|12x768x12x|12x768x12,|-1x8x2|12x768x12,ff=|"
                 "12x768x12,ff=0|12x768x12,fff=1|12x768x12,ctx=99999999|12x768x12 |12X768X12|"
                 "1x99999999x1|12,768,12|2x64x5,dv=8|2x64x4,kv=3|2x64x4,dk=0|2x64x64,dk=1025|"
                 "2x64x4,arch=bert";
    const struct arch *gpt2 = arch_preset(text_of("gpt2"));
    struct config c;
    expect_ok(shape_parse("12x768x12,ff=3072,vocab=50257,ctx=4096", &c, &err));
    ck_assert(c.n_layers == 12 && c.d_model == 768 && c.n_heads == 12 && c.n_kv_heads == 12);
    ck_assert(c.head_dim == 64 && c.d_ff == 3072 && c.n_vocab == 50257 && c.n_ctx == 4096);
    expect_ok(shape_parse("4x128x8", &c, &err));
    ck_assert(c.d_ff == 512 && c.n_vocab == 50257 && c.n_ctx == 1024);
    expect_ok(shape_parse("4x128x8,ctx=9", &c, &err));
    ck_assert_int_eq(c.n_ctx, 9);
    expect_ok(shape_parse("2x64x4,dk=16,kv=2", &c, &err));
    ck_assert(c.head_dim == 16 && c.value_dim == 16 && c.n_kv_heads == 2 && c.arch == gpt2);
    expect_ok(shape_parse("2x64x5,dk=24,dv=10", &c, &err));
    ck_assert(c.head_dim == 24 && c.value_dim == 10 && c.n_kv_heads == 5);
    ck_assert_str_eq(c.arch->name, "decode");
    expect_ok(shape_parse("2x64x4,dk=32,arch=llama", &c, &err));
    ck_assert_str_eq(c.arch->name, "llama");
    for (char *shape = strtok(bad, "|"); shape; shape = strtok(NULL, "|"))
        expect_status(shape_parse(shape, &c, &err), STATUS_USAGE, "--shape");
    expect_status(shape_parse("", &c, &err), STATUS_USAGE, "--shape");
}

/* --- all commands' options -------------------------------------------------------------------- */

static bool has_option(const struct command *c, const char *name)
{
    for (const struct option_group *g = c->spec.groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            if (strcmp(o->name, name) == 0)
                return true;
    return false;
}

/* Every synonym names an option that some command has; no command has an option of the synonym's
 * own name. */
TEST(names_of_others)
{
    for (int i = 0; option_synonyms[i][0]; i++) {
        const char *name = option_synonyms[i][0], *ours = option_synonyms[i][1];
        bool helps = false;
        for (int k = 0; command_at(k); k++)
            helps |= has_option(command_at(k), ours) && !has_option(command_at(k), name);
        ck_assert_msg(helps && !strchr(name, '_'), "%s: no command has --%s", name, ours);
    }
}

/* Every option that the short help shows exists and stands there once. */
TEST(everyday_options)
{
    for (int k = 0; command_at(k); k++) {
        const char *names = command_at(k)->spec.everyday;
        char name[64], before[512] = " ";
        for (char end = ' '; names && end;) {
            end = list_next(&names, " ", name, sizeof name);
            ck_assert_msg(has_option(command_at(k), name), "%s", name);
            char word[80];
            snprintf(word, sizeof word, " %s ", name);
            ck_assert_msg(!strstr(before, word), "%s twice", name);
            strcat(before, word + 1);
        }
    }
}

static void expect_names(const struct option *o, const char *names)
{
    for (char end = '|', name[64]; names && end;) {
        bool found = false;
        end = list_next(&names, "|", name, sizeof name);
        for (int i = 0; command_at(i) && !found; i++)
            found = has_option(command_at(i), name);
        ck_assert_msg(found, "--%s: there is no --%s", o->name, name);
    }
}

/* Every option that another one needs or excludes exists. Every value has a name: without one
 * --method once looked like a flag. */
TEST(rows_of_all_commands)
{
    for (int i = 0; command_at(i); i++)
        for (const struct option_group *g = command_at(i)->spec.groups; g->title; g++)
            for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
                expect_names(o, o->needs);
                expect_names(o, o->excludes);
                ck_assert_msg((o->value != NULL) == (o->kind != OPTION_FLAG), "%s --%s",
                              command_at(i)->name, o->name);
            }
}

TEST(figures)
{
    const struct {
        struct figure found;
        const char *expected;
    } cases[] = {{figure_bytes(0), "0 bytes"},
                 {figure_bytes(1023), "1023 bytes"},
                 {figure_bytes(1024), "1.00 KiB"},
                 {figure_bytes(1048575), "1.00 MiB"},
                 {figure_bytes(1.5 * (1 << 30)), "1.50 GiB"},
                 {figure_duration(999), "999 ns"},
                 {figure_duration(2540), "2.54 µs"},
                 {figure_duration(3000000000u), "3.00 s"},
                 {figure_duration(99.4e9), "99.4 s"},
                 {figure_duration(99.5e9), "1 min 40 s"},
                 {figure_duration(5999.4e9), "99 min 59 s"},
                 {figure_duration(11423e9), "3 h 10 min"},
                 {figure_duration(HUGE_VAL), "277777777777 h 46 min"},
                 {figure_rate(12345.6), "12346"},
                 {figure_rate(9.999), "10.0"},
                 {figure_exact(0.1), "0.1"},
                 {figure_exact(-HUGE_VAL), "-Infinity"}};
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_str_eq(cases[i].found.text, cases[i].expected);
    ck_assert_double_eq(strtod(figure_exact(1.0 / 3).text, NULL), 1.0 / 3);
}

TEST(distances)
{
    static const struct {
        const char *a, *b;
        int distance;
    } pairs[] = {{"", "", 0},
                 {"abc", "", 3},
                 {"kitten", "sitting", 3},
                 {"genrate", "generate", 1},
                 {"genreate", "generate", 1}};
    char longer[301];
    memset(longer, 'g', sizeof longer - 1);
    longer[300] = 0;
    for (size_t i = 0; i < COUNT(pairs); i++)
        ck_assert_int_eq(edit_distance(pairs[i].a, pairs[i].b), pairs[i].distance);
    ck_assert_int_eq(edit_distance(longer, longer), 64);
    /* Found by fuzzing: a word of 200 letters or more was "near" every other, because the distance
     * of words that are too long to compare, 64, is less than a third of its letters. */
    const char *const far[] = {"xyz", longer};
    for (size_t i = 0; i < COUNT(far); i++) {
        struct nearest near = {.word = far[i]};
        nearest_offer(&near, "generate");
        ck_assert_ptr_null(near.best);
    }
    struct nearest near = {.word = "repeat"};
    nearest_offer(&near, "repeat-penalty");
    ck_assert_str_eq(near.best, "repeat-penalty");
}

TEST(help_text)
{
    static const struct option few[] = {
        OPT_INT("name", n, "N", 0, INT_MAX, "what it is", .fallback = "3"), OPT_END};
    static const struct option_spec narrow = {.groups = {{"Group", few, 0}}};
    struct descriptor o;
    output_begin(&o);
    options_help(&spec, true, &o.out);
    expect_ok(descriptor_close(&o, NULL));
    const char *help = file_text(scratch_path("output"), NULL);
    expect_says(help, "All:\n|\nInner:\n|  -n, --n N     a count (default 256; 0 or more)\n|"
                      "      --seed S  a seed\n|an int (-1 to 9)\n|p (above 0 to 1)\n|"
                      "texts (may be repeated)\n|a form (default table; one of table, json)\n");
    for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
        ck_assert_uint_le(strcspn(line, "\n"), 96);
    output_begin(&o);
    o.out.columns = 30;
    options_help(&narrow, true, &o.out);
    output_is(&o, "Group:\n"
                  "      --name N  what it is\n"
                  "          (default 3; 0 or\n"
                  "          more)\n");
    ck_assert_int_eq(o.out.columns, 30);
}
