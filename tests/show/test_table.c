/* Tests of the five forms of a report: aligned, Markdown, CSV, JSON, JSON lines. */
#include <math.h>
#include <stdio.h>

#include "outputs.h"
#include "show/report.h"

static struct descriptor o;
static struct report r;

static void begin(enum table_format format, const struct report_field *fields, int n)
{
    output_begin(&o);
    report_begin(&r, format, fields, n, 0, &o.out);
}

static void ends_as(const char *expected)
{
    expect_ok(report_end(&r, &err));
    output_is(&o, expected);
}

/* Expects all five forms of rows; JSON is an array of the lines of JSON lines. */
static void expect_forms(const struct report_field *fields, int n, const void *rows,
                         size_t row_size, int n_rows, const char *const expected[4])
{
    char json[2000] = "[";
    int len = 1;
    for (const char *line = expected[3]; *line; line = strchr(line, '\n') + 1)
        len +=
            sprintf(json + len, "%s\n  %.*s", len == 1 ? "" : ",", (int)strcspn(line, "\n"), line);
    strcpy(json + len, n_rows ? "\n]\n" : "]\n");
    for (int format = TABLE_ALIGNED; format <= TABLE_JSONL; format++) {
        begin((enum table_format)format, fields, n);
        for (int i = 0; i < n_rows; i++)
            report_row(&r, (const char *)rows + (size_t)i * row_size);
        ends_as(format == TABLE_JSON    ? json
                : format == TABLE_JSONL ? expected[3]
                                        : expected[format]);
    }
}

/* --- cells ----------------------------------------------------------------------------------- */

struct cells {
    struct text name;
    int n;
    double x;
};

static const struct report_field columns[] = {{"name", "name", MEMBER(cells, name)},
                                              {"n", "n", MEMBER(cells, n)},
                                              {"x", "x", MEMBER(cells, x), "%.2f"}};

/* Found by fuzzing: `info --tensors --format csv` sent escape sequences in a tensor's name to the
 * terminal, and JSON the C1 controls, which begin such sequences, too. */
TEST(cells_of_any_bytes)
{
    static const struct cells rows[] = {{{"a,\"|\n", 5}, 1234, 1.0 / 3},
                                        {{" é", 3}, 0, (double)NAN},
                                        {{"\x1b[31m\0\x7f\xc2\x9b", 9}, 1, 0.5},
                                        {{"\xff", 1}, 2, -1}};
    static const char *const expected[] = {
        "name                         n      x\na,\"|\\n                    1234   0.33\n"
        " é                           0\n\\x1b[31m\\x00\\x7f\\xc2\\x9b     1   0.50\n"
        "\\xff                         2  -1.00\n",
        "| name                     |    n |     x |\n|:-------------------------|-----:|------:|\n"
        "| a,\"\\|\\n                  | 1234 |  0.33 |\n"
        "|  é                       |    0 |       |\n"
        "| \\x1b[31m\\x00\\x7f\\xc2\\x9b |    1 |  0.50 |\n"
        "| \\xff                     |    2 | -1.00 |\n",
        "name,n,x\n\"a,\"\"|\n\",1234,0.3333333333333333\n\" é\",0,\n"
        "\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd,1,0.5\n\xef\xbf\xbd,2,-1\n",
        "{\"name\": \"a,\\\"|\\n\", \"n\": 1234, \"x\": 0.3333333333333333}\n"
        "{\"name\": \" é\", \"n\": 0, \"x\": null}\n"
        "{\"name\": \"\\u001b[31m\\u0000\\u007f\\u009b\", \"n\": 1, \"x\": 0.5}\n"
        "{\"name\": \"\xef\xbf\xbd\", \"n\": 2, \"x\": -1}\n",
    };
    static const char *const none[] = {"name  n  x\n", "| name | n | x |\n|:-----|--:|--:|\n",
                                       "name,n,x\n", ""};
    expect_forms(columns, 3, rows, sizeof rows[0], 4, expected);
    expect_forms(columns, 3, rows, sizeof rows[0], 0, none);
}

/* --- members of any type --------------------------------------------------------------------- */

struct sample {
    struct text name;
    const char *kind; /* NULL: none */
    char note[8];
    int n;
    int64_t count; /* -1: none */
    uint64_t bytes;
    double x;
    bool flag;
    struct report_list list; /* of struct cells */
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
    {"top", NULL, MEMBER(sample, list), .items = columns, .n_items = 2, .most = 2,
     .item_size = sizeof(struct cells)},
};

static const struct cells items[] = {{{"i", 1}, 1, 0}, {{"j", 1}, 2, 0}};
static const struct sample samples[] = {
    {{"a", 1}, "k", "left", 3, 7, 2048, 1.25, true, {items, 2}},
    {{"", 0}, NULL, "", 0, -1, UINT64_MAX, (double)NAN, false, {items, 1}},
};

TEST(members)
{
    static const char *const expected[] = {
        "name     note  n  counted      size                       bytes   x %\n"
        "a        left  3        7  2.00 KiB                       2,048  1.2%\n"
        "unnamed        0       no  16.0 EiB  18,446,744,073,709,551,615\n",
        "| name    | note | n | counted |     size |                      bytes |  x % |\n"
        "|:--------|-----:|--:|--------:|---------:|---------------------------:|-----:|\n"
        "| a       | left | 3 |       7 | 2.00 KiB |                      2,048 | 1.2% |\n"
        "| unnamed |      | 0 |      no | 16.0 EiB | 18,446,744,073,709,551,615 |      |\n",
        "name,kind,n,count,bytes,x,flag,top1_name,top1_n,top2_name,top2_n\n"
        "a,k,3,7,2048,1.25,true,i,1,j,2\n"
        ",,0,,18446744073709551615,,false,i,1,,\n",
        "{\"name\": \"a\", \"kind\": \"k\", \"n\": 3, \"count\": 7, \"bytes\": 2048, "
        "\"x\": 1.25, \"flag\": true, \"top\": [{\"name\": \"i\", \"n\": 1}, {\"name\": \"j\", "
        "\"n\": 2}]}\n"
        "{\"name\": null, \"kind\": null, \"n\": 0, \"count\": null, "
        "\"bytes\": 18446744073709551615, \"x\": null, \"flag\": false, "
        "\"top\": [{\"name\": \"i\", \"n\": 1}]}\n",
    };
    expect_forms(fields, LENGTH(fields), samples, sizeof samples[0], 2, expected);
}

/* --- which columns --------------------------------------------------------------------------- */

struct wide_row {
    const char *best, *name, *note;
    int a, b, c;
};

enum { OF_B = 1, OF_C = 2 };
static const struct report_field wide[] = {
    {NULL, "", MEMBER(wide_row, best)},
    {"name", "name", MEMBER(wide_row, name)},
    {"a", "first", MEMBER(wide_row, a), .detail = true},
    {"b", "second", MEMBER(wide_row, b), .detail = true},
    {"c", "third", MEMBER(wide_row, c), .when = OF_C, .detail = true},
    {NULL, "note", MEMBER(wide_row, note)},
};
static const struct wide_row wide_rows[] = {
    {"*", "one", "", 1, 2, 3},
    {"", "two", "", 4, 5, 6},
    {"", "three", "odd", 7, 8, 9},
    {"", "four", "some words that are more than a line can take", 1, 2, 3}};

/* A field stands in the report if this shows what the field is of. A table that is too wide leaves
 * out details, the last one first, and nothing else. */
TEST(columns_that_fit, .loops = 12)
{
    static const char all[] = "   name   first  second  third  note\n"
                              "*  one        1       2      3\n"
                              "   two        4       5      6\n"
                              "   three      7       8      9  odd\n";
    static const struct {
        enum table_format format;
        int width, first, n_rows;
        const char *expected;
        unsigned shown;
    } cases[] = {
        {TABLE_ALIGNED, 0, 0, 3, all, OF_C},
        {TABLE_ALIGNED, 36, 0, 3, all, OF_B | OF_C},
        {TABLE_ALIGNED, 35, 0, 2,
         "   name  first  second  note\n"
         "*  one       1       2\n"
         "   two       4       5\n",
         OF_B},
        {TABLE_ALIGNED, 35, 0, 3,
         "   name   first  second  note\n"
         "*  one        1       2\n"
         "   two        4       5\n"
         "   three      7       8  odd\n"
         "Too wide, left out: third; -v shows\n"
         "  all.\n",
         OF_C},
        {TABLE_ALIGNED, 35, 3, 1,
         "  name  note\n"
         "  four  some words that are more\n"
         "        than a line can take\n"
         "Too wide, left out: first, second,\n"
         "  third; -v shows all.\n",
         OF_C},
        {TABLE_ALIGNED, 20, 3, 1,
         "  name\n    note\n"
         "  four\n"
         "    some words that\n"
         "    are more than a\n"
         "    line can take\n"
         "Too wide, left out:\n  first, second,\n  third; -v shows\n  all.\n",
         OF_C},
        {TABLE_ALIGNED, 3, 0, 2,
         "   name\n    note\n"
         "*  one\n"
         "   two\n"
         "Too\n  wide,\n  left\n  out:\n  first,\n  second;\n  -v\n  shows\n  all.\n",
         0},
        {TABLE_ALIGNED, 40, 0, 0, "  name  first  second  note\n", 0},
        {TABLE_CSV, 3, 0, 1, "name,a,b,c\none,1,2,3\n", OF_C},
        {TABLE_CSV, 3, 0, 1, "name,a,b\none,1,2\n", OF_B},
        {TABLE_JSONL, 3, 0, 1, "{\"name\": \"one\", \"a\": 1, \"b\": 2}\n", 0},
        {TABLE_MD, 3, 0, 1,
         "|   | name | first | second | third | note |\n"
         "|:--|:-----|------:|-------:|------:|:-----|\n"
         "| * | one  |     1 |      2 |     3 |      |\n",
         OF_C},
    };
    output_begin(&o);
    report_begin(&r, cases[_i].format, wide, LENGTH(wide), cases[_i].shown, &o.out);
    o.out.columns = cases[_i].width;
    for (int i = 0; i < cases[_i].n_rows; i++)
        report_row(&r, &wide_rows[cases[_i].first + i]);
    ends_as(cases[_i].expected);
}
