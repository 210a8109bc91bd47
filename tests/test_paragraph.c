/* Text broken between words. */
#include "outputs.h"
#include "show/paragraph.h"

static void cut_is(const char *text, size_t columns, const char *expected)
{
    const struct text cut = paragraph_cut(text_of(text), columns);
    ck_assert_msg(text_is(cut, expected), "'%.*s'", text_width(cut), cut.data);
}

TEST(cuts)
{
    cut_is("", 3, "");
    cut_is("abc", 3, "abc");
    cut_is("abc", 2, "ab");
    cut_is("\xc2\xb5\xc2\xb5s", 2, "\xc2\xb5\xc2\xb5");    /* a column each */
    cut_is("\xe4\xb8\xad\xe6\x96\x87", 3, "\xe4\xb8\xad"); /* two */
    cut_is("abc", 0, "");
}

TEST(lines)
{
    static const char *const expected[] = {"one two", "three", "unbreakable", "x"};
    struct text rest = text_of("one two  three unbreakable x");
    for (int i = 0; i < 4; i++) {
        const struct text line = paragraph_line(&rest, 8, false);
        ck_assert_msg(text_is(line, expected[i]), "'%.*s'", text_width(line), line.data);
    }
    ck_assert_int_eq((int)rest.len, 0);
}

/* Items stay whole, but for one that is longer than a line. */
TEST(lists)
{
    static const char *const expected[] = {"'a b' 1, ' ' 2,", "'c d' 3,", "'e f g h i", "j' 4"};
    struct text rest = text_of("'a b' 1, ' ' 2, 'c d' 3, 'e f g h i j' 4");
    for (int i = 0; i < 4; i++) {
        const struct text line = paragraph_line(&rest, i == 0 ? 18 : 12, true);
        ck_assert_msg(text_is(line, expected[i]), "'%.*s'", text_width(line), line.data);
    }
    ck_assert_int_eq((int)rest.len, 0);
}

TEST(paragraphs)
{
    static const struct {
        int columns;
        const char *expected;
    } cases[] = {{0, "one two\n  three four five six\nseven\n"},
                 {80, "one two three four five six\nseven\n"},
                 {9, "one two\n  three\n  four\n  five\n  six\nseven\n"},
                 {1, "one\n  two\n  three\n  four\n  five\n  six\nseven\n"}};
    for (int i = 0; i < 4; i++) {
        struct descriptor o;
        output_begin(&o);
        o.out.columns = cases[i].columns;
        struct paragraph p = paragraph_begin(&o.out, 2);
        paragraph_puts(&p, "one two\vthr");
        paragraph_printf(&p, "ee %s five", "four");
        paragraph_puts(&p, " six\nseven");
        paragraph_end(&p);
        output_is(&o, cases[i].expected);
    }
}

/* A form such as of --shape was wider than what a narrow terminal has beside the options. */
TEST(long_words_are_broken_behind_commas)
{
    static const struct {
        int columns;
        const char *expected;
    } cases[] = {{0, "all one[,two=2][,three=3] or\n"},
                 {17, "all\n  one[,two=2][,\n  three=3] or\n"},
                 {10, "all\n  one[,\n  two=2][,\n  three=3]\n  or\n"}};
    for (int i = 0; i < 3; i++) {
        struct descriptor o;
        output_begin(&o);
        o.out.columns = cases[i].columns;
        struct paragraph p = paragraph_begin(&o.out, 2);
        paragraph_puts(&p, "all one[,two=2][,three=3] or");
        paragraph_end(&p);
        output_is(&o, cases[i].expected);
    }
}

/* An option's description goes on in its column, and lines that were broken before are joined. */
TEST(reflowed)
{
    static const char help[] = "Group:\n"
                               "  --option N  what it does,\n"
                               "              and what it\n"
                               "              does not\n"
                               "  --other     short\n"
                               "\n"
                               "Some words of a\nnote.\n";
    struct descriptor o;
    output_begin(&o);
    paragraph_reflow(&o.out, help, 0);
    output_is(&o, help);
    output_begin(&o);
    o.out.columns = 28;
    paragraph_reflow(&o.out, help, 0);
    output_is(&o, "Group:\n"
                  "  --option N  what it does,\n"
                  "              and what it\n"
                  "              does not\n"
                  "  --other     short\n"
                  "\n"
                  "Some words of a\nnote.\n");
    output_begin(&o);
    o.out.columns = 26;
    paragraph_reflow(&o.out, "  -o  what it does and what\n      it does\n  -p  short\n", 0);
    output_is(&o, "  -o  what it does and\n      what it does\n  -p  short\n");
    output_begin(&o);
    o.out.columns = 26;
    paragraph_reflow(&o.out, "-o  what it does and what\n    it does\n\n-p  short\n", 2);
    output_is(&o, "  -o  what it does and\n      what it does\n\n  -p  short\n");
    output_begin(&o);
    paragraph_reflow(&o.out, "-o  what it does and what\n    it does\n\n-p  short\n", 2);
    output_is(&o, "  -o  what it does and what\n      it does\n\n  -p  short\n");
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
