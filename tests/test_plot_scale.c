/* The ticks, figures and texts of a plot. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "show/scale.h"
#include "show/svg.h"
#include "support.h"

/* --- ticks and figures ---------------------------------------------------------------------- */

START_TEST(tick_choice)
{
    static const struct {
        double lo, hi;
        int max_steps;
        bool around;
        const char *labels;
    } cases[] = {
        {0, 100, 5, true, "0 20 40 60 80 100"},
        {0, 101, 6, true, "0 20 40 60 80 100 120"},
        {0, 31, 8, true, "0 5 10 15 20 25 30 35"},
        {0, 3840, 8, false, "0 500 1,000 1,500 2,000 2,500 3,000 3,500"},
        {0, 255, 8, false, "0 50 100 150 200 250"},
        {0, 0.3, 3, true, "0 0.1 0.2 0.3"}, /* 0.3 is no multiple of 0.1 in binary */
        {0, 1.2, 6, true, "0 0.2 0.4 0.6 0.8 1.0 1.2"},
        {0, 24100, 6, true, "0 5,000 10,000 15,000 20,000 25,000"},
        {3000, 3900, 5, false, "3,000 3,200 3,400 3,600 3,800"},
        {-7, 12, 5, true, "-10 -5 0 5 10 15"},
        {-7, 12, 4, true, "-10 0 10 20"},
        {0, 2.5e6, 5, true, "0 0.5M 1.0M 1.5M 2.0M 2.5M"},
        {0, 999999, 2, true, "0 0.5M 1.0M"},
        {0, 8e5, 4, true, "0 200,000 400,000 600,000 800,000"},
        {0, 4e9, 4, true, "0 1G 2G 3G 4G"},
        {0, 3e13, 3, true, "0 10T 20T 30T"},
        {0, 3e20, 3, true, "0 1e20 2e20 3e20"},
        {0, 1.5e-9, 3, true, "0 5e-10 1e-9 1.5e-9"},
        {0, 1e100, 2, true, "0 5e99 1e100"},
        {1e6, 1e6 + 2, 2, false, "1.000000M 1.000001M 1.000002M"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct scale_ticks t =
            scale_ticks(cases[i].lo, cases[i].hi, cases[i].max_steps, cases[i].around);
        char labels[256] = "";
        for (int k = 0; k < t.n; k++) {
            strcat(labels, k ? " " : "");
            strcat(labels, scale_label(&t, k).text);
        }
        ck_assert_str_eq(labels, cases[i].labels);
    }
}
END_TEST

START_TEST(ticks_hold_at_any_scale)
{
    for (int e = -100; e <= 99; e++) {
        for (int n = 1; n <= 10; n++) {
            const double hi = n * pow(10, e) * 1.000001;
            const struct scale_ticks around = scale_ticks(0, hi, 8, true);
            ck_assert_int_ge(around.n, 3);
            ck_assert_int_le(around.n, 9);
            ck_assert(scale_tick(&around, 0) == 0);
            ck_assert(scale_tick(&around, around.n - 1) >= hi * (1 - 1e-8));
            ck_assert(scale_tick(&around, around.n - 2) < hi);
            const struct scale_ticks inside = scale_ticks(hi / 3, hi, 8, false);
            ck_assert_int_ge(inside.n, 2);
            ck_assert_int_le(inside.n, 9);
            ck_assert(scale_tick(&inside, 0) >= hi / 3 * (1 - 1e-8));
            ck_assert(scale_tick(&inside, inside.n - 1) <= hi * (1 + 1e-8));
        }
    }
}
END_TEST

START_TEST(widening)
{
    double hi = 0;
    scale_widen(0, &hi);
    ck_assert(hi == 1);
    hi = 5;
    scale_widen(0, &hi);
    ck_assert(hi == 5);
    hi = nextafter(1e15, 2e15);
    scale_widen(1e15, &hi);
    ck_assert(hi >= 1.9e15);
    hi = 1e-310;
    scale_widen(0, &hi);
    ck_assert(hi == 1);
}
END_TEST

START_TEST(figures)
{
    static const struct {
        double x;
        const char *value;
    } values[] = {
        {0, "0"},
        {255, "255"},
        {1024, "1,024"},
        {131072, "131,072"},
        {31.256, "31.26"},
        {999.96, "1,000.0"},
        {12345.6, "12,346"},
        {0.5, "0.5000"},
        {-1234567, "-1,234,567"},
        {0.001, "0.001000"},
        {2.5e-9, "2.5e-9"},
        {3e20, "3e20"},
        {365.02, "365.0"},
        {1e15, "1e15"},
        {999999999999999, "999,999,999,999,999"},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        ck_assert_str_eq(scale_value(values[i].x).text, values[i].value);
    static const struct {
        double x;
        const char *length;
    } lengths[] = {{0, "0"},         {860, "860"},       {12.345, "12.35"}, {0.1, "0.1"},
                   {-0.05, "-0.05"}, {1234.5, "1234.5"}, {-0.001, "0"},     {99.999, "100"}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        ck_assert_str_eq(scale_length(lengths[i].x).text, lengths[i].length);
}
END_TEST

/* --- texts ---------------------------------------------------------------------------------- */

START_TEST(texts_are_measured_and_cut)
{
    const struct text t = text_of("one two three");
    const double all = svg_text_width(t, 10);
    ck_assert(all > 50 && all < 100);
    ck_assert(fabs(svg_text_width(t, 20) - 2 * all) < 1e-9);
    ck_assert(svg_text_width(text_of("\x01\x7f\n"), 10) < 5); /* the line break is a space */
    struct svg_piece p = svg_text_fit(t, 10, all);
    ck_assert(!p.cut && p.text.len == t.len);
    p = svg_text_fit(t, 10, all - 1);
    ck_assert(p.cut && p.text.len < t.len && p.text.len > 6);
    ck_assert(svg_piece_width(p, 10) < all);
    p = svg_text_fit(t, 10, 0);
    ck_assert(p.cut && p.text.len == 0);
}
END_TEST

START_TEST(texts_are_wrapped)
{
    struct text rest = text_of("one two  three unbreakableword");
    const double width = svg_text_width(text_of("one two"), 10) + 1;
    static const char *const lines[] = {"one two", "three"};
    for (int i = 0; i < 2; i++) {
        const struct svg_piece line = svg_text_line(&rest, 10, width, false);
        ck_assert_msg(text_is(line.text, lines[i]), "%.*s", text_width(line.text), line.text.data);
    }
    const struct svg_piece broken = svg_text_line(&rest, 10, width, false);
    ck_assert(broken.text.len > 3 && !broken.cut && rest.len > 0);
    const struct svg_piece last = svg_text_line(&rest, 10, width, true);
    ck_assert(rest.len == 0 && last.text.len > 0);
    rest = text_of("\xe2\x82\xac\xe2\x82\xac");
    ck_assert_uint_eq(svg_text_line(&rest, 10, 0, false).text.len, 3); /* never stands still */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plot scale");
    TCase *scale = tcase_create("scale");
    tcase_add_test(scale, tick_choice);
    tcase_add_test(scale, ticks_hold_at_any_scale);
    tcase_add_test(scale, widening);
    tcase_add_test(scale, figures);
    suite_add_tcase(s, scale);
    TCase *texts = tcase_create("texts");
    tcase_add_test(texts, texts_are_measured_and_cut);
    tcase_add_test(texts, texts_are_wrapped);
    suite_add_tcase(s, texts);
    return run_suite(s);
}
