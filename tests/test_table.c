/* The five forms of a report: of cells, and of structs. */
#include <math.h>

#include "outputs.h"
#include "show/report.h"

static const struct report_field columns[] = {{"name", "name", .type = REPORT_TEXT},
                                              {"n", "n", .type = REPORT_INT},
                                              {"x", "x", .type = REPORT_DOUBLE}};

static void print(enum table_format format, const char *expected)
{
    struct descriptor o;
    struct report t;
    output_begin(&o);
    report_begin(&t, format, columns, 3, &o.out);
    report_string(&t, "a,\"|\n");
    report_u64(&t, 1234);
    report_double(&t, 1.0 / 3, "%.2f");
    report_string(&t, "é");
    report_null(&t);
    report_double(&t, (double)NAN, "%.2f");
    expect_ok(report_end(&t, &err));
    output_is(&o, expected);
}

TEST(aligned)
{
    print(TABLE_ALIGNED, "name       n     x\n"
                         "a,\"|\\n  1234  0.33\n"
                         "é\n");
}

TEST(markdown)
{
    print(TABLE_MD, "| name    |    n |    x |\n"
                    "|:--------|-----:|-----:|\n"
                    "| a,\"\\|\\n | 1234 | 0.33 |\n"
                    "| é       |      |      |\n");
}

TEST(csv)
{
    print(TABLE_CSV, "name,n,x\n"
                     "\"a,\"\"|\n\",1234,0.3333333333333333\n"
                     "é,,\n");
}

TEST(json)
{
    print(TABLE_JSON, "[\n"
                      "  {\"name\": \"a,\\\"|\\n\", \"n\": 1234, \"x\": 0.3333333333333333},\n"
                      "  {\"name\": \"é\", \"n\": null, \"x\": null}\n"
                      "]\n");
}

TEST(json_lines)
{
    print(TABLE_JSONL, "{\"name\": \"a,\\\"|\\n\", \"n\": 1234, \"x\": 0.3333333333333333}\n"
                       "{\"name\": \"é\", \"n\": null, \"x\": null}\n");
}

/* The fuzzer's: `info --tensors --format csv` sent the escape sequences in a tensor's name to the
 * terminal as they were, and JSON the C1 controls, which begin such sequences too. */
TEST(no_form_has_control_characters, .loops = 5)
{
    static const char *const expected[] = {
        "name                      n     x\n\\x1b[31m\\x00\\x7f\\xc2\\x9b  1  0.50\n",
        ("| name                     | n |    x |\n|:-------------------------|--:|-----:|\n"
         "| \\x1b[31m\\x00\\x7f\\xc2\\x9b | 1 | 0.50 |\n"),
        "name,n,x\n\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd,1,0.5\n",
        "[\n  {\"name\": \"\\u001b[31m\\u0000\\u007f\\u009b\", \"n\": 1, \"x\": 0.5}\n]\n",
        "{\"name\": \"\\u001b[31m\\u0000\\u007f\\u009b\", \"n\": 1, \"x\": 0.5}\n",
    };
    struct descriptor o;
    struct report t;
    output_begin(&o);
    report_begin(&t, (enum table_format)_i, columns, 3, &o.out);
    report_text(&t, (struct text){"\x1b[31m\0\x7f\xc2\x9b", 9});
    report_u64(&t, 1);
    report_double(&t, 0.5, "%.2f");
    expect_ok(report_end(&t, &err));
    output_is(&o, expected[_i]);
}

TEST(no_rows, .loops = 5)
{
    static const char *const expected[] = {"name  n  x\n", "| name | n | x |\n|:-----|--:|--:|\n",
                                           "name,n,x\n", "[]\n", ""};
    struct descriptor o;
    struct report t;
    output_begin(&o);
    report_begin(&t, (enum table_format)_i, columns, 3, &o.out);
    expect_ok(report_end(&t, &err));
    output_is(&o, expected[_i]);
}

TEST(hostile_cells)
{
    struct descriptor o;
    struct report t;
    output_begin(&o);
    report_begin(&t, TABLE_ALIGNED, columns, 1, &o.out);
    report_text(&t, (struct text){"\x1b]0;x\0\xff", 7});
    expect_ok(report_end(&t, &err));
    output_is(&o, "name\n\\x1b]0;x\\x00\\xff\n");
    output_begin(&o);
    report_begin(&t, TABLE_CSV, columns, 2, &o.out);
    report_text(&t, (struct text){"\xff", 1});
    report_string(&t, " lead");
    expect_ok(report_end(&t, &err));
    output_is(&o, "name,n\n\xef\xbf\xbd,\" lead\"\n");
}

/* --- reports: the same from a list of a struct's members ------------------------------------- */

struct sample {
    struct text name;
    const char *kind; /* NULL: none */
    char note[8];
    int n;
    int64_t count; /* -1: none */
    uint64_t bytes;
    double x;
    bool flag;
};

static const struct report_field fields[] = {
    {"name", "name", MEMBER(sample, name), .none = "unnamed"},
    {"kind", NULL, MEMBER(sample, kind)},
    {NULL, "note", MEMBER(sample, note), .right = true},
    {"n", "n", MEMBER(sample, n)},
    {"count", "counted", MEMBER(sample, count), .none = "no"},
    {"bytes", "size", MEMBER(sample, bytes), .figure = figure_bytes},
    {NULL, "bytes", MEMBER(sample, bytes), .grouped = true},
    {"x", "x %", MEMBER(sample, x), "%.1f%%"},
    {"flag", NULL, MEMBER(sample, flag)},
};

static const struct sample samples[] = {
    {{"a", 1}, "k", "left", 3, 7, 2048, 1.25, true},
    {{"", 0}, NULL, "", 0, -1, UINT64_MAX, (double)NAN, false},
};

TEST(reports, .loops = 5)
{
    static const char *const expected[] = {
        "name     note  n  counted      size                       bytes   x %\n"
        "a        left  3        7  2.00 KiB                       2,048  1.2%\n"
        "unnamed        0       no  16.0 EiB  18,446,744,073,709,551,615\n",
        "| name    | note | n | counted |     size |                      bytes |  x % |\n"
        "|:--------|-----:|--:|--------:|---------:|---------------------------:|-----:|\n"
        "| a       | left | 3 |       7 | 2.00 KiB |                      2,048 | 1.2% |\n"
        "| unnamed |      | 0 |      no | 16.0 EiB | 18,446,744,073,709,551,615 |      |\n",
        "name,kind,n,count,bytes,x,flag\n"
        "a,k,3,7,2048,1.25,true\n"
        ",,0,,18446744073709551615,,false\n",
        "[\n"
        "  {\"name\": \"a\", \"kind\": \"k\", \"n\": 3, \"count\": 7, \"bytes\": 2048, "
        "\"x\": 1.25, \"flag\": true},\n"
        "  {\"name\": null, \"kind\": null, \"n\": 0, \"count\": null, "
        "\"bytes\": 18446744073709551615, \"x\": null, \"flag\": false}\n"
        "]\n",
        "{\"name\": \"a\", \"kind\": \"k\", \"n\": 3, \"count\": 7, \"bytes\": 2048, "
        "\"x\": 1.25, \"flag\": true}\n"
        "{\"name\": null, \"kind\": null, \"n\": 0, \"count\": null, "
        "\"bytes\": 18446744073709551615, \"x\": null, \"flag\": false}\n",
    };
    struct descriptor o;
    struct report r;
    output_begin(&o);
    report_begin(&r, (enum table_format)_i, fields, REPORT_LENGTH(fields), &o.out);
    for (int i = 0; i < 2; i++)
        report_row(&r, &samples[i]);
    expect_ok(report_end(&r, &err));
    output_is(&o, expected[_i]);
}

TEST(one_struct)
{
    static const struct report_field flag = {"flag", NULL, MEMBER(sample, flag)};
    struct descriptor o;
    struct json j;
    output_begin(&o);
    json_init(&j, &o.out, 0);
    json_begin_object(&j, NULL);
    report_members(&j, fields, 2, &samples[0]);
    report_members(&j, &flag, 1, &samples[0]);
    report_member(&j, "alone", &flag, &samples[1]);
    json_end(&j);
    output_is(&o, "{\"name\": \"a\", \"kind\": \"k\", \"flag\": true, \"alone\": false}");
}

/* --- on a terminal --------------------------------------------------------------------------- */

struct wide_row {
    const char *best, *name, *note;
    int a, b, c;
};

static const struct report_field wide[] = {
    {NULL, "", MEMBER(wide_row, best), .accent = ACCENT_ROW},
    {"name", "name", MEMBER(wide_row, name)},
    {"a", "first", MEMBER(wide_row, a), .rank = 1},
    {"b", "second", MEMBER(wide_row, b), .rank = 2},
    {"c", "third", MEMBER(wide_row, c), .rank = 2},
    {NULL, "note", MEMBER(wide_row, note), .rank = 1, .accent = ACCENT_CELL},
};
static const struct wide_row wide_rows[] = {
    {"*", "one", "", 1, 2, 3}, {"", "two", "", 4, 5, 6}, {"", "three", "odd", 7, 8, 9}};

static void print_wide(enum table_format format, int width, bool colours, int n_rows,
                       const char *expected)
{
    struct descriptor o;
    struct report t;
    output_begin(&o);
    o.out.columns = width;
    o.out.colours = colours;
    report_begin(&t, format, wide, REPORT_LENGTH(wide), &o.out);
    for (int i = 0; i < n_rows; i++)
        report_row(&t, &wide_rows[i]);
    expect_ok(report_end(&t, &err));
    output_is(&o, expected);
}

/* Of the highest rank the last column goes first, an empty one before all others, without a word.
 */
TEST(columns_that_fit)
{
    static const char all[] = "   name   first  second  third  note\n"
                              "*  one        1       2      3\n"
                              "   two        4       5      6\n"
                              "   three      7       8      9  odd\n";
    print_wide(TABLE_ALIGNED, 0, false, 3, all);
    print_wide(TABLE_ALIGNED, 36, false, 3, all);
    print_wide(TABLE_ALIGNED, 35, false, 3,
               "   name   first  second  note\n"
               "*  one        1       2\n"
               "   two        4       5\n"
               "   three      7       8  odd\n"
               "Too wide, left out: third; -v shows\n"
               "  all.\n");
    print_wide(TABLE_ALIGNED, 29, false, 2,
               "   name  first  second  third\n"
               "*  one       1       2      3\n"
               "   two       4       5      6\n");
    print_wide(TABLE_ALIGNED, 3, false, 2,
               "   name\n"
               "*  one\n"
               "   two\n"
               "Too\n  wide,\n  left\n  out:\n  first,\n  second,\n  third;\n  -v\n  shows\n"
               "  all.\n");
    print_wide(TABLE_ALIGNED, 3, false, 0, "  name\n");
    print_wide(TABLE_CSV, 3, true, 1, "name,a,b,c\none,1,2,3\n");
    print_wide(TABLE_MD, 3, true, 1,
               "|   | name | first | second | third | note |\n"
               "|:--|:-----|------:|-------:|------:|:-----|\n"
               "| * | one  |     1 |      2 |     3 |      |\n");
}

TEST(one_row_goes_downwards)
{
    print_wide(TABLE_ALIGNED, 20, false, 1,
               "        *\nname    one\nfirst   1\nsecond  2\nthird   3\n");
    const struct wide_row row = {"", "some words that are more than a line can take", "", 1, 2, 3};
    struct descriptor o;
    struct report t;
    output_begin(&o);
    o.out.columns = 32;
    report_begin(&t, TABLE_ALIGNED, wide, REPORT_LENGTH(wide), &o.out);
    report_row(&t, &row);
    expect_ok(report_end(&t, &err));
    output_is(&o, "name    some words that are more\n"
                  "        than a line can take\n"
                  "first   1\nsecond  2\nthird   3\n");
}

TEST(accents)
{
    print_wide(TABLE_ALIGNED, 80, true, 3,
               "   name   first  second  third  note\n"
               "\033[1m*\033[m  \033[1mone\033[m        \033[1m1\033[m       "
               "\033[1m2\033[m      \033[1m3\033[m\n"
               "   two        4       5      6\n"
               "   three      7       8      9  \033[33modd\033[m\n");
}

static void print_broken(bool list, const char *text, const char *expected)
{
    const struct report_field two[] = {{NULL, "k", .type = REPORT_TEXT},
                                       {NULL, "value", .type = REPORT_TEXT, .list = list}};
    struct descriptor o;
    struct report t;
    output_begin(&o);
    o.out.columns = 30;
    report_begin(&t, TABLE_ALIGNED, two, 2, &o.out);
    report_string(&t, "a");
    report_string(&t, text);
    report_string(&t, "b");
    report_string(&t, "few");
    expect_ok(report_end(&t, &err));
    output_is(&o, expected);
}

/* A last column that is never left out goes on in further lines: a list, as of score's likeliest
 * tokens, not within its items. */
TEST(a_text_is_broken)
{
    print_broken(false, "some words that are more than a line can take",
                 "k  value\n"
                 "a  some words that are more\n"
                 "   than a line can take\n"
                 "b  few\n");
    print_broken(true, "' a' -1.234, ' the b' -2.345, 'c' -3.456",
                 "k  value\n"
                 "a  ' a' -1.234,\n"
                 "   ' the b' -2.345, 'c' -3.456\n"
                 "b  few\n");
}
