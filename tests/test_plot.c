/* Line charts: the SVG file as a reader of XML sees it. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show/canvas.h"
#include "show/plot.h"
#include "support.h"
#include "xml.h"

#define WIDTH   860
#define NOTHING ((double)NAN)

/* --- reading what was drawn ----------------------------------------------------------------- */

/* Nothing refers outside, nothing runs, no number is missing, no text leaves the picture. */
static void check_chart(const char *text)
{
    check_xml(text);
    expect_counts(text, "0 <script", "0 href", "0 url(", "0 \"nan", "0  nan", "0 inf\"");
    double height;
    ck_assert_int_eq(sscanf(strstr(text, "viewBox"), "viewBox=\"0 0 860 %lf\"", &height), 1);
    for (const char *at = text; (at = strstr(at, "<text ")); at++) {
        double x, y;
        ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        const char *begin = strchr(at, '>') + 1;
        char shown[4000];
        ck_assert_int_lt(snprintf(shown, sizeof shown, "%.*s", (int)strcspn(begin, "<"), begin),
                         (int)sizeof shown);
        const double size = strstr(at, "class=\"title\"") == strchr(at, 'c') ? 1.5 : 1;
        /* Escaped characters are counted as they are written: such texts are passed over. */
        const bool escaped = strchr(shown, '&');
        const double width = escaped ? 0 : canvas_text_width(shown) * size;
        const bool end = strncmp(begin - 6, "\"end\"", 5) == 0;
        const bool middle = strncmp(begin - 9, "\"middle\"", 8) == 0;
        const double left = end ? x - width : middle ? x - width / 2 : x;
        ck_assert_msg(left >= -1 && left + width <= WIDTH, "%.80s", at);
        ck_assert_msg(y > 10 && y < height - 4, "%.80s", at);
    }
}

/* The picture's text, checked. */
static char *draw(const struct plot *p)
{
    const char *path = scratch_path("chart.svg");
    expect_ok(plot_write(p, path, &err));
    char *text = file_text(path, NULL);
    check_chart(text);
    return text;
}

/* The place of a tick's label. */
static double tick_at(const char *text, const char *anchor, const char *label, bool vertical)
{
    char ending[64];
    snprintf(ending, sizeof ending, "text-anchor=\"%s\">%s</text>", anchor, label);
    for (const char *at = text; (at = strstr(at, "<text ")); at++) {
        double x, y;
        const char *end = strchr(at, '\n');
        const size_t len = strlen(ending);
        if ((size_t)(end - at) > len && strncmp(end - len, ending, len) == 0) {
            ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
            return vertical ? y : x;
        }
    }
    ck_abort_msg("no tick %s", label);
}

/* The middles of the first n round markers that stand for points. */
static void find_markers(const char *text, int n, double *x, double *y)
{
    const char *at = strstr(text, "<g><title>");
    for (int i = 0; i < n; i++, at++) {
        at = strstr(at, "<path class=\"marker\"");
        ck_assert_int_eq(sscanf(at, "<path class=\"marker\" d=\"M%lf %lfm-4.3", &x[i], &y[i]), 2);
    }
}

static bool near(double found, double expected)
{
    return fabs(found - expected) < 0.02;
}

static struct plot plot_of(const struct plot_series *series, int n)
{
    return (struct plot){.title = "title",
                         .subtitle = "subtitle",
                         .x_label = "depth (tokens)",
                         .y_label = "latency (µs)",
                         .mid_label = "median",
                         .band_label = "p10 to p90",
                         .predicted_label = "predicted",
                         .series = series,
                         .n_series = n};
}

static char *draw_lines(const struct plot_series *series, int n)
{
    const struct plot p = plot_of(series, n);
    return draw(&p);
}

/* --- charts --------------------------------------------------------------------------------- */

static const struct plot_point simple_points[] = {
    {0, 0, 0, 10, 0}, {50, 40, 60, 80, 40}, {100, 90, 100, 120, 80}};

TEST(points_stand_where_the_ticks_say)
{
    static const double lows[] = {0, 40, 90}, highs[] = {10, 80, 120};
    const struct plot_series series = {"MHA", simple_points, 3};
    const char *text = draw_lines(&series, 1), *at = strstr(text, "<g><title>");
    const double x0 = tick_at(text, "middle", "0", false);
    const double step_x = (tick_at(text, "middle", "100", false) - x0) / 100;
    const double y0 = tick_at(text, "end", "0", true) - 4;
    const double step_y = (tick_at(text, "end", "100", true) - 4 - y0) / 100;
    ck_assert(step_x > 4 && step_y < -2);
    ck_assert(near(tick_at(text, "end", "60", true) - 4, y0 + step_y * 60));
    ck_assert(near(tick_at(text, "middle", "40", false), x0 + step_x * 40));
    double x[3], y[3];
    find_markers(text, 3, x, y);
    for (int i = 0; i < 3; i++, at++) {
        double left, high, low; /* of bars, which go from the highest to the lowest */
        at = strstr(at, "<path class=\"bar\"");
        ck_assert_int_eq(
            sscanf(at, "<path class=\"bar\" d=\"M%lf %lfh8m-4 0V%lfm", &left, &high, &low), 3);
        ck_assert(near(x[i], x0 + step_x * simple_points[i].x) && near(left, x[i] - 4));
        ck_assert(near(y[i], y0 + step_y * simple_points[i].mid));
        ck_assert(near(low, y0 + step_y * lows[i]) && near(high, y0 + step_y * highs[i]));
    }
}

/* With equal ratios as equal steps, what is not positive left out. */
TEST(doublings)
{
    static const struct plot_point points[] = {
        {1, NOTHING, 10, NOTHING, NOTHING},  {4, NOTHING, 20, NOTHING, NOTHING},
        {12, NOTHING, 30, NOTHING, NOTHING}, {16, NOTHING, 40, NOTHING, NOTHING},
        {0, NOTHING, 15, NOTHING, NOTHING},  {-2, NOTHING, 15, NOTHING, NOTHING}};
    const struct plot_series series = {"MHA", points, 6};
    struct plot p = plot_of(&series, 1);
    p.x_doubles = true;
    char *text = draw(&p);
    ck_assert_int_eq(count(text, "<path class=\"marker\""), 4 + 1); /* and the name's */
    const double x1 = tick_at(text, "middle", "1", false);
    const double step = (tick_at(text, "middle", "16", false) - x1) / 4;
    ck_assert(near(tick_at(text, "middle", "2", false), x1 + step));
    ck_assert(near(tick_at(text, "middle", "8", false), x1 + 3 * step));
    double x[4], y[4];
    find_markers(text, 4, x, y);
    for (int i = 0; i < 4; i++)
        ck_assert(near(x[i], x1 + step * log2(points[i].x)));
}

/* Ticks there are always, two where no power of two lies inside, never too many. */
TEST(doublings_of_any_range, .loops = 9)
{
    static const struct {
        double from, to;
        const char *first, *last;
        int n;
    } cases[] = {
        {5, 7, "5", "7", 2},        {5, 9, "5", "9", 2},
        {3, 9, "4", "8", 2},        {1, 1048576, "1", "262,144", 7},
        {1, 256, "1", "256", 9},    {1, 512, "1", "256", 5},
        {0.5, 2, "0.5000", "2", 3}, {6, 6 + 1e-11, "6", "6", 2},
        {0, -1, NULL, NULL, 0},
    };
    const struct plot_point points[] = {{cases[_i].from, NOTHING, 10, NOTHING, NOTHING},
                                        {cases[_i].to, NOTHING, 20, NOTHING, NOTHING}};
    const struct plot_series series = {"MHA", points, 2};
    struct plot p = plot_of(&series, 1);
    p.x_doubles = true;
    if (cases[_i].n == 0) {
        ck_assert_int_eq(plot_write(&p, "nowhere.svg", NULL), STATUS_USAGE);
        return;
    }
    char *text = draw(&p);
    ck_assert_int_eq(count(text, "class=\"muted\" text-anchor=\"middle\""), cases[_i].n);
    tick_at(text, "middle", cases[_i].first, false);
    tick_at(text, "middle", cases[_i].last, false);
}

TEST(the_reader_is_told_what_is_what)
{
    const struct plot_series series[] = {{"MHA", simple_points, 3}, {"MQA", simple_points, 2}};
    struct plot p = plot_of(series, 2);
    char *text = draw(&p);
    expect_counts(text, "1 role=\"img\"", "1 <title>title</title>",
                  "1 <desc>latency (µs) against depth (tokens).\n", "1 MHA: 0 at 0 to 100 at 100.",
                  "1 >MQA</text>", "1 >median</text>", "1 >p10 to p90</text>",
                  "1 >predicted</text>", "1 prefers-color-scheme:dark", "1 >depth (tokens)</text>",
                  "1 <title>MHA: 60 at 50 (40 to 80), predicted 40</title>");
    /* Renderers that know no media queries take the light colours. */
    const char *dark = strstr(text, "@media");
    ck_assert_ptr_eq(strstr(dark + 1, "@media"), NULL);
    ck_assert(strstr(text, ".c0{color:") < dark && strstr(dark, ".c0{color:"));

    /* What is not drawn is not in the legend. */
    const struct plot_point bare[] = {{0, NOTHING, 1, NOTHING, NOTHING},
                                      {1, NOTHING, 2, NOTHING, NOTHING}};
    const struct plot_series plain = {"x", bare, 2};
    p = plot_of(&plain, 1);
    text = draw(&p);
    expect_counts(text, "0 p10 to p90", "0 >predicted</text>", "0 class=\"predicted\"",
                  "0 class=\"bar\"");
}

TEST(one_point)
{
    const struct plot_point point = {1024, 300, 310, 350, 250};
    const struct plot_series series[] = {{"MHA", &point, 1}, {"MQA", &point, 1}};
    const char *text = draw_lines(series, 2);
    expect_counts(text, "3 <path class=\"bar\"" /* one in the legend */,
                  "3 <path class=\"predicted\"", "0 <path class=\"line\"", "2 >310</text>");
    tick_at(text, "middle", "1,024", false);
    double first, second;
    const char *mha = strstr(text, "<title>MHA: "), *mqa = strstr(text, "<title>MQA: ");
    ck_assert_int_eq(sscanf(strstr(mha, "marker"), "marker\" d=\"M%lf", &first), 1);
    ck_assert_int_eq(sscanf(strstr(mqa, "marker"), "marker\" d=\"M%lf", &second), 1);
    ck_assert(second > first + 20); /* side by side */
}

TEST(one_point_among_lines)
{
    const struct plot_series series[] = {{"MHA", simple_points, 3}, {"MQA", simple_points + 1, 1}};
    const char *text = draw_lines(series, 2);
    expect_counts(text, "5 <path class=\"bar\"" /* one in the legend */,
                  "4 <path class=\"line\"" /* with the legend's */);
}

/* Ticks from just below 2.79 to just above 2.91, and not from 0. */
TEST(axis_near_the_values)
{
    static const struct plot_point points[] = {{0, 2.80, 2.81, 2.91, (double)NAN},
                                               {5, (double)NAN, 2.79, (double)NAN, (double)NAN}};
    const struct plot_series series = {"fit", points, 2};
    struct plot p = plot_of(&series, 1);
    p.y_near = true;
    char *text = draw(&p);
    const double low = tick_at(text, "end", "2.78", true);
    const double high = tick_at(text, "end", "2.92", true);
    ck_assert_double_gt(low, high);
    expect_counts(text, "0 text-anchor=\"end\">0</text>",
                  "0 class=\"axis\"" /* which is where 0 is */);
}

#define MANY 66

TEST(many_series)
{
    static struct plot_series series[MANY];
    static char names[MANY][32];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "series number %d", i);
        series[i] = (struct plot_series){names[i], simple_points, 3};
    }
    const char *text = draw_lines(series, MANY);
    for (int i = 0; i < MANY; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, ">series number %d</text>", i);
        ck_assert_int_eq(count(text, entry), 1);
    }
    /* Each pair of colour and shape once before they come back after 64. */
    static char looks[MANY][200];
    const char *at = text;
    for (int i = 0; i < MANY; i++) {
        int colour;
        double x, y;
        char shape[160];
        at = strstr(at, "<g class=\"c");
        ck_assert_int_eq(sscanf(at, "<g class=\"c%d", &colour), 1);
        at = strstr(strstr(at, "<path class=\"line\""), "/>") + 2;
        ck_assert_int_eq(sscanf(at, "<path class=\"marker\" d=\"M%lf %lf%159[^\"]", &x, &y, shape),
                         3);
        snprintf(looks[i], sizeof looks[i], "%d %s", colour, shape);
        for (int k = 0; k < i && i < 64; k++)
            ck_assert_str_ne(looks[i], looks[k]);
    }
    ck_assert_str_eq(looks[64], looks[0]);
}

TEST(hostile_texts)
{
    static const char hostile[] = "</text><script>alert('1')</script>\x01\x7f\xff&amp;\"]]>\xef\xbf"
                                  "\xbf\xc2\x9b\nend";
    char *huge = allocated(100001);
    memset(huge, '<', 100000);
    huge[100000] = 0;
    const struct plot_series series[] = {
        {hostile, simple_points, 3}, {huge, simple_points, 3}, {"", simple_points, 3}};
    struct plot p = plot_of(series, 3);
    p.title = p.x_label = p.y_label = p.band_label = huge;
    p.subtitle = p.mid_label = p.predicted_label = hostile;
    char *text = draw(&p);
    expect_counts(text,
                  "+ "
                  "&lt;/text&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/"
                  "script&gt;\xef\xbf\xbd&amp;amp;&quot;]]&gt; end",
                  "+ &lt;\xe2\x80\xa6</text>");
}

TEST(values_that_cannot_be_drawn)
{
    const double infinite = (double)INFINITY;
    const struct plot_point points[] = {{0, 10, 20, 30, NOTHING},        {1, infinite, 20, 30, 15},
                                        {2, 10, NOTHING, 30, 16},        {NOTHING, 10, 20, 30, 15},
                                        {3, 10, -infinite, 30, NOTHING}, {4, 10, 20, 30, infinite},
                                        {5, 10, 1e101, 30, 15},          {6, 10, 20, NOTHING, 15},
                                        {-infinite, 10, 20, 30, 15},     {7, 10, 21, 30, DBL_MAX}};
    const struct plot_point none[] = {{NOTHING, 1, 1, 1, 1}, {1, 1, NOTHING, 1, NOTHING}};
    const struct plot_series series[] = {
        {"none", none, 2}, {"empty", NULL, 0}, {"some", points, 10}};
    const char *text = draw_lines(series, 3);
    expect_counts(text, "0 none<", "0 none:", "5 <g><title>some: ",
                  "+ <g class=\"c2\">" /* the colour of the third given */,
                  "+ <title>some: 20 at 1, predicted 15</title>",
                  "+ <title>some: 20 at 0 (10 to 30)</title>");
}

TEST(extreme_values)
{
    static const double pairs[][2] = {{0, 0},         {1e100, -1e100},     {1e-320, 0},
                                      {1e-99, 1e-98}, {1e15, 1e15 + 0.25}, {-5, -4}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const double a = pairs[i][0], b = pairs[i][1];
        const struct plot_point points[] = {{a, a, a, a, b}, {b, b, b, b, a}};
        const struct plot_series series[] = {{"x", points, 2}, {"y", points, 1}};
        const struct plot p = plot_of(series, 2);
        draw(&p);
    }
}

TEST(the_same_data_give_the_same_bytes)
{
    const struct plot_point shuffled[] = {simple_points[2], simple_points[0], simple_points[1]};
    const struct plot_series a = {"MHA", simple_points, 3}, b = {"MHA", shuffled, 3};
    const char *first = draw_lines(&a, 1);
    ck_assert_str_eq(first, draw_lines(&a, 1));
    ck_assert_str_eq(first, draw_lines(&b, 1));
}

/* --- files ---------------------------------------------------------------------------------- */

TEST(nothing_to_plot)
{
    const struct plot_point none = {1, 1, NOTHING, 1, 1};
    const struct plot_series series = {"x", &none, 1};
    const char *path = scratch_path("chart.svg");
    write_file(path, "old", 3);
    for (int n = 0; n <= 1; n++) {
        const struct plot p = plot_of(&series, n);
        expect_status(plot_write(&p, path, &err), STATUS_USAGE, "chart.svg: nothing to plot");
    }
    ck_assert_str_eq(file_text(path, NULL), "old");
}

TEST(folders_that_are_none)
{
    const struct plot_series series = {"x", simple_points, 3};
    const struct plot p = plot_of(&series, 1);
    expect_status(plot_write(&p, scratch_path("no/such/folder.svg"), &err), STATUS_FAILED,
                  "folder.svg");
}
