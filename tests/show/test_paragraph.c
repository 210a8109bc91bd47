/* Tests of text that is broken between words, and cut. */
#include "outputs.h"
#include "show/paragraph.h"

TEST(cuts, .loops = 6)
{
    static const struct {
        const char *text, *expected;
        size_t columns;
    } cases[] = {
        {"", "", 3},
        {"abc", "abc", 3},
        {"abc", "ab", 2},
        {"abc", "", 0},
        {"\xc2\xb5\xc2\xb5s", "\xc2\xb5\xc2\xb5", 2},    /* a column each */
        {"\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad", 3}, /* two */
    };
    const struct text cut = paragraph_cut(text_of(cases[_i].text), cases[_i].columns);
    ck_assert_msg(text_is(cut, cases[_i].expected), "'%.*s'", text_width(cut), cut.data);
}

/* Items of a list stay whole, unless one is longer than a line. */
TEST(lines, .loops = 2)
{
    static const char *const texts[] = {"one two  three unbreakable x",
                                        "'a b' 1, ' ' 2, 'c d' 3, 'e f g h i j' 4"};
    static const char *const expected[][4] = {
        {"one two", "three", "unbreakable", "x"},
        {"'a b' 1, ' ' 2,", "'c d' 3,", "'e f g h i", "j' 4"}};
    struct text rest = text_of(texts[_i]);
    for (int i = 0; i < 4; i++) {
        const struct text line = paragraph_line(&rest, !_i ? 8 : i == 0 ? 18 : 12, _i == 1);
        ck_assert_msg(text_is(line, expected[_i][i]), "'%.*s'", text_width(line), line.data);
    }
    ck_assert_int_eq((int)rest.len, 0);
}

/* Words such as the form of --shape were once wider than a narrow terminal has room for beside the
 * options; they are broken behind commas. */
TEST(paragraphs, .loops = 7)
{
    static const char some[] = "one two\vthree four five six\nseven",
                      form[] = "all one[,two=2][,three=3] or";
    static const struct {
        int columns;
        const char *text, *expected;
    } cases[] = {{0, some, "one two\n  three four five six\nseven\n"},
                 {80, some, "one two three four five six\nseven\n"},
                 {9, some, "one two\n  three\n  four\n  five\n  six\nseven\n"},
                 {1, some, "one\n  two\n  three\n  four\n  five\n  six\nseven\n"},
                 {0, form, "all one[,two=2][,three=3] or\n"},
                 {17, form, "all\n  one[,two=2][,\n  three=3] or\n"},
                 {10, form, "all\n  one[,\n  two=2][,\n  three=3]\n  or\n"}};
    struct descriptor o;
    output_begin(&o);
    o.out.columns = cases[_i].columns;
    struct paragraph p = paragraph_begin(&o.out, 2);
    paragraph_printf(&p, "%.6s", cases[_i].text);
    paragraph_puts(&p, cases[_i].text + 6);
    paragraph_end(&p);
    output_is(&o, cases[_i].expected);
}

/* An option's description continues in its column, and lines that were broken before are joined. */
TEST(reflowed, .loops = 3)
{
    static const char help[] = "Group:\n"
                               "  --option N  what it does,\n"
                               "              and what it\n"
                               "              does not\n"
                               "  --other     short\n"
                               "\n"
                               "Some words of a\nnote.\n";
    static const struct {
        int columns;
        const char *text, *expected;
    } cases[] = {{0, help, help},
                 {28, help, help},
                 {26, "  -o  what it does and what\n      it does\n\n  -p  short\n",
                  "  -o  what it does and\n      what it does\n\n  -p  short\n"}};
    struct descriptor o;
    output_begin(&o);
    o.out.columns = cases[_i].columns;
    paragraph_reflow(&o.out, cases[_i].text);
    output_is(&o, cases[_i].expected);
}

/* Of tokens. */
TEST(labels_have_as_many_columns_as_there_is_room, .loops = 8)
{
    static const struct {
        const char *token;
        size_t columns;
        const char *label;
    } cases[] = {
        {"abcdefghijkl", 12, "abcdefghijkl"},
        {"abcdefghijklm", 12, "abcdefghijk…"},
        {"日本語日本語", 12, "日本語日本語"},
        {"日本語日本", 8, "日本語…"},
        {"\x01\x02\x03", 12, "\\x01\\x02\\x03"},
        {"\x01\x02\x03\x04", 12, "\\x01\\x02…"},
        {" x", 12, "x"},
        {"  ", 12, "␣␣"},
    };
    const struct text_label label = text_label(text_of(cases[_i].token), cases[_i].columns, true);
    ck_assert_str_eq(label.text, cases[_i].label);
    ck_assert_str_eq(text_label(text_of(" \n\xff"), 12, false).text, "\n\xff");
}
