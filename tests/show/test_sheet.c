/* Tests a sheet in every form: properties with and without values, tables with and without rows. */
#include <math.h>

#include "outputs.h"
#include "show/sheet.h"

struct sums {
    const char *part;
    int n;
};

static const struct report_field sum_fields[] = {{"part", "part", MEMBER(sums, part)},
                                                 {"count", "n", MEMBER(sums, n)},
                                                 {NULL, "again", MEMBER(sums, n)}};

TEST(forms_of_a_sheet)
{
    static const char *const expected[] = {
        [TABLE_ALIGNED] = "property  value\nname      a\nmodel     b\nhas       true\nn         3\n"
                          "x         1e-05\n\npart  n  again\none   1      1\ntwo   2      2\n\n"
                          "part  n  again\none   1      1\n",
        [TABLE_MD] = "| property | value |\n|:---------|:------|\n| name     | a     |\n"
                     "| model    | b     |\n| has      | true  |\n| n        | 3     |\n"
                     "| x        | 1e-05 |\n\n| part | n | again |\n|:-----|--:|------:|\n"
                     "| one  | 1 |     1 |\n| two  | 2 |     2 |\n\n| part | n | again |\n"
                     "|:-----|--:|------:|\n| one  | 1 |     1 |\n",
        [TABLE_CSV] = "part,count\none,1\n",
        [TABLE_JSON] = "{\n  \"name\": \"a\",\n  \"none\": null,\n  \"of\": {\n    \"model\": "
                       "\"b\",\n    \"has\": true\n  },\n"
                       "  \"n\": 3,\n  \"x\": 1e-05,\n  \"nan\": null,\n  \"count\": {\n    "
                       "\"one\": 1,\n    \"two\": 2\n  },\n"
                       "  \"rows\": [\n    {\"part\": \"one\", \"count\": 1}\n  ]\n}\n",
        [TABLE_JSONL] =
            "{\"name\": \"a\", \"none\": null, \"of\": {\"model\": \"b\", \"has\": true}, "
            "\"n\": 3, \"x\": 1e-05, \"nan\": null, \"count\": {\"one\": 1, \"two\": 2}, "
            "\"rows\": [{\"part\": \"one\", \"count\": 1}]}\n",
    };
    static const struct sums sums[] = {{"one", 1}, {"two", 2}};
    const struct sheet_table tables[] = {{NULL, TABLE_OF(sum_fields, sums, 2), true},
                                         {"rows", TABLE_OF(sum_fields, sums, 1), true},
                                         {"empty", TABLE_OF(sum_fields, sums, 0), true}};
    struct sheet s = {.n_properties = 0};
    sheet_string(&s, "name", "a");
    sheet_string(&s, "none", NULL);
    s.object = "of";
    sheet_text(&s, "model", text_of("b"));
    sheet_bool(&s, "has", true);
    s.object = NULL;
    sheet_number(&s, "n", 3);
    sheet_number(&s, "x", (double)1e-5f);
    sheet_number(&s, "nan", (double)NAN);
    for (int format = 0; format <= TABLE_JSONL; format++) {
        struct descriptor o;
        output_begin(&o);
        expect_ok(sheet_print(&s, tables, COUNT(tables), (enum table_format)format, &o.out, &err));
        output_is(&o, expected[format]);
    }
}
