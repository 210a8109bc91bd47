/* The ticks, figures and texts of a picture. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show/canvas.h"
#include "support.h"

/* --- ticks and figures ---------------------------------------------------------------------- */

TEST(tick_choice)
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
        {0, 2.5e6, 5, true, "0 500,000 1,000,000 1,500,000 2,000,000 2,500,000"},
        {0, 999999, 2, true, "0 500,000 1,000,000"},
        {0, 8e5, 4, true, "0 200,000 400,000 600,000 800,000"},
        {0, 4e9, 4, true, "0 1,000,000,000 2,000,000,000 3,000,000,000 4,000,000,000"},
        {0, 3e13, 3, true, "0 10,000,000,000,000 20,000,000,000,000 30,000,000,000,000"},
        {0, 3e20, 3, true, "0 1e+20 2e+20 3e+20"},
        {0, 1.5e-9, 3, true, "0 5e-10 1e-09 1.5e-09"},
        {0, 1e100, 2, true, "0 5e+99 1e+100"},
        {1e6, 1e6 + 2, 2, false, "1,000,000 1,000,001 1,000,002"},
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

TEST(ticks_hold_at_any_scale)
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

TEST(widening)
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

TEST(figures)
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
        {2.5e-9, "2.5e-09"},
        {3e20, "3e+20"},
        {365.02, "365.0"},
        {1e15, "1e+15"},
        {999999999999999, "999,999,999,999,999"},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        ck_assert_str_eq(scale_value(values[i].x).text, values[i].value);
}

/* --- texts ---------------------------------------------------------------------------------- */

/* What text elements of a picture hold, one a line. */
static void check_texts(canvas_draw *draw, const void *what, const char *expected)
{
    size_t len, used = 0;
    char shown[1000];
    expect_ok(canvas_write(draw, what, scratch_path("texts.svg"), &err));
    char *text = file_text(scratch_path("texts.svg"), &len);
    text[len] = 0;
    for (const char *at = text; (at = strstr(at, "<text ")); at++) {
        const char *begin = strchr(at, '>') + 1;
        used += (size_t)snprintf(shown + used, sizeof shown - used, "%.*s\n",
                                 (int)strcspn(begin, "<"), begin);
    }
    shown[used] = 0;
    ck_assert_str_eq(shown, expected);
    scratch_remove();
}

static double draw_cut(struct canvas *c, const void *what)
{
    const double all = canvas_text_width(what);
    output_puts(c->out, "<svg>");
    canvas_label(c, "", 0, 0, what, all);
    canvas_label(c, "", 0, 0, what, all - 1);
    canvas_label(c, "", 0, 0, what, 0);
    return 0;
}

TEST(texts_are_measured_and_cut)
{
    const double all = canvas_text_width("one two three");
    ck_assert(all > 60 && all < 120);
    ck_assert(canvas_text_width("\x01\x7f\n") < 6); /* the line break is a space */
    check_texts(draw_cut, "one two three", "one two three\none two thr…\n…\n");
}

static double draw_headings(struct canvas *c, const void *what)
{
    canvas_begin(c, 200, "", what);
    return 0;
}

/* Between words, or where the width ends; the last line is cut. */
TEST(texts_are_wrapped)
{
    check_texts(draw_headings, "one two  three four five six", "one two  three four five\nsix\n");
    check_texts(draw_headings, "unbreakableandfartoolongword and 1 2 3 4 5 6 7 8 9 10 11 12 13",
                "unbreakableandfartoolo\nngword and 1 2 3 4 5 6\n7 8 9 10 11 12 13\n");
    check_texts(draw_headings,
                "aaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbb cccccccccccccccc dddddddddddddddd e",
                "aaaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbbb\ncccccccccccccccc\ndddddddddddddddd e\n");
    check_texts(draw_headings,
                "aaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbb cccccccccccccccc dddddddddddddddd eeeeeee",
                "aaaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbbb\ncccccccccccccccc\ndddddddddddddddd ee…\n");
}
