/* The five forms of one table. */
#include <math.h>

#include "outputs.h"
#include "show/table.h"

static const struct table_column columns[] = {
    {.name = "name", .left = true}, {.name = "n"}, {.name = "x"}};

static void print(enum table_format format, const char *expected)
{
    struct descriptor o;
    struct table t;
    struct err e = {""};
    output_begin(&o);
    table_begin(&t, format, columns, 3, &o.out);
    table_string(&t, "a,\"|\n");
    table_u64(&t, 1234);
    table_double(&t, 1.0 / 3, "%.2f");
    table_string(&t, "é");
    table_null(&t);
    table_double(&t, (double)NAN, "%.2f");
    ck_assert_int_eq(table_end(&t, &e), STATUS_OK);
    output_is(&o, expected);
}

START_TEST(aligned)
{
    print(TABLE_ALIGNED, "name       n     x\n"
                         "a,\"|\\n  1234  0.33\n"
                         "é\n");
}
END_TEST

START_TEST(markdown)
{
    print(TABLE_MD, "| name    |    n |    x |\n"
                    "|:--------|-----:|-----:|\n"
                    "| a,\"\\|\\n | 1234 | 0.33 |\n"
                    "| é       |      |      |\n");
}
END_TEST

START_TEST(csv)
{
    print(TABLE_CSV, "name,n,x\n"
                     "\"a,\"\"|\n\",1234,0.3333333333333333\n"
                     "é,,\n");
}
END_TEST

START_TEST(json)
{
    print(TABLE_JSON, "[\n"
                      "  {\"name\": \"a,\\\"|\\n\", \"n\": 1234, \"x\": 0.3333333333333333},\n"
                      "  {\"name\": \"é\", \"n\": null, \"x\": null}\n"
                      "]\n");
}
END_TEST

START_TEST(json_lines)
{
    print(TABLE_JSONL, "{\"name\": \"a,\\\"|\\n\", \"n\": 1234, \"x\": 0.3333333333333333}\n"
                       "{\"name\": \"é\", \"n\": null, \"x\": null}\n");
}
END_TEST

/* The fuzzer's: `info --tensors --format csv` sent the escape sequences in a tensor's name to the
 * terminal as they were, and JSON the C1 controls, which begin such sequences too. */
START_TEST(no_form_has_control_characters)
{
    static const char *const expected[] = {
        "name                      n     x\n\\x1b[31m\\x00\\x7f\\xc2\\x9b  1  0.50\n",
        "| name                     | n |    x |\n|:-------------------------|--:|-----:|\n"
        "| \\x1b[31m\\x00\\x7f\\xc2\\x9b | 1 | 0.50 |\n",
        "name,n,x\n\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd,1,0.5\n",
        "[\n  {\"name\": \"\\u001b[31m\\u0000\\u007f\\u009b\", \"n\": 1, \"x\": 0.5}\n]\n",
        "{\"name\": \"\\u001b[31m\\u0000\\u007f\\u009b\", \"n\": 1, \"x\": 0.5}\n",
    };
    struct descriptor o;
    struct table t;
    struct err e = {""};
    output_begin(&o);
    table_begin(&t, (enum table_format)_i, columns, 3, &o.out);
    table_text(&t, (struct text){"\x1b[31m\0\x7f\xc2\x9b", 9});
    table_u64(&t, 1);
    table_double(&t, 0.5, "%.2f");
    ck_assert_int_eq(table_end(&t, &e), STATUS_OK);
    output_is(&o, expected[_i]);
}
END_TEST

START_TEST(no_rows)
{
    static const char *const expected[] = {"name  n  x\n", "| name | n | x |\n|:-----|--:|--:|\n",
                                           "name,n,x\n", "[]\n", ""};
    struct descriptor o;
    struct table t;
    struct err e = {""};
    output_begin(&o);
    table_begin(&t, (enum table_format)_i, columns, 3, &o.out);
    ck_assert_int_eq(table_end(&t, &e), STATUS_OK);
    output_is(&o, expected[_i]);
}
END_TEST

START_TEST(hostile_cells)
{
    struct descriptor o;
    struct table t;
    struct err e = {""};
    output_begin(&o);
    table_begin(&t, TABLE_ALIGNED, columns, 1, &o.out);
    table_text(&t, (struct text){"\x1b]0;x\0\xff", 7});
    ck_assert_int_eq(table_end(&t, &e), STATUS_OK);
    output_is(&o, "name\n\\x1b]0;x\\x00\\xff\n");
    output_begin(&o);
    table_begin(&t, TABLE_CSV, columns, 2, &o.out);
    table_text(&t, (struct text){"\xff", 1});
    table_string(&t, " lead");
    ck_assert_int_eq(table_end(&t, &e), STATUS_OK);
    output_is(&o, "name,n\n\xef\xbf\xbd,\" lead\"\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("table");
    TCase *t = tcase_create("table");
    tcase_add_test(t, aligned);
    tcase_add_test(t, markdown);
    tcase_add_test(t, csv);
    tcase_add_test(t, json);
    tcase_add_test(t, json_lines);
    tcase_add_loop_test(t, no_form_has_control_characters, 0, 5);
    tcase_add_loop_test(t, no_rows, 0, 5);
    tcase_add_test(t, hostile_cells);
    suite_add_tcase(s, t);
    return run_suite(s);
}
