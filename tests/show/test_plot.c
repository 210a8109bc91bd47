/* Tests of line charts: ticks, figures and texts; the SVG file is well-formed. */
#include <math.h>
#include <stdio.h>

#include "show/canvas.h"
#include "show/plot.h"
#include "xml.h"

#define WIDTH 860

/* --- reading what was drawn ----------------------------------------------------------------- */

/* Checks that nothing refers outside or runs, that no number is missing, and that no text leaves
 * the picture. */
static void check_chart(const char *text)
{
    double height, x, y;
    check_xml(text);
    expect_counts(text, "0 <script", "0 href", "0 url(", "0 \"nan", "0  nan", "0 inf\"");
    ck_assert_int_eq(sscanf(strstr(text, "viewBox"), "viewBox=\"0 0 860 %lf\"", &height), 1);
    for (const char *at = text; (at = strstr(at, "<text ")); at++) {
        char shown[4000] = "";
        const char *begin = strchr(at, '>') + 1;
        const size_t len = strcspn(begin, "<");
        ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        ck_assert_uint_lt(len, sizeof shown);
        strncat(shown, begin, len);
        const double size = strstr(at, "class=\"title\"") == strchr(at, 'c') ? 1.5 : 1;
        /* Texts with escaped characters are passed over, because these would be counted as they are
         * written. */
        const double width = strchr(shown, '&') ? 0 : canvas_text_width(shown) * size;
        const bool end = strncmp(begin - 6, "\"end\"", 5) == 0;
        const bool middle = strncmp(begin - 9, "\"middle\"", 8) == 0;
        const double left = end ? x - width : middle ? x - width / 2 : x;
        ck_assert_msg(left >= -1 && left + width <= WIDTH, "%.80s", at);
        ck_assert_msg(y > 10 && y < height - 4, "%.80s", at);
    }
}

/* Returns the picture's text, which is checked. */
static char *draw(const struct plot *p)
{
    const char *path = scratch_path("chart.svg");
    expect_ok(plot_write(p, path, &err));
    char *text = file_text(path, NULL);
    check_chart(text);
    return text;
}

/* Returns the place of a tick, of its label's x or 4 above its label's y. */
static double tick_at(const char *text, const char *label, bool vertical)
{
    char ending[64];
    const int len = snprintf(ending, sizeof ending, "text-anchor=\"%s\">%s</text>",
                             vertical ? "end" : "middle", label);
    for (const char *at = text; (at = strstr(at, "<text ")); at++) {
        double x, y;
        const char *end = strchr(at, '\n');
        if (end - at > len && strncmp(end - len, ending, (size_t)len) == 0) {
            ck_assert_int_eq(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
            return vertical ? y - 4 : x;
        }
    }
    ck_abort_msg("no tick %s", label);
}

/* Finds the next round marker of a point. */
static const char *next_marker(const char *at, double *x, double *y)
{
    at = strstr(at + 1, "<path class=\"marker\"");
    ck_assert_int_eq(sscanf(at, "<path class=\"marker\" d=\"M%lf %lfm-4.3", x, y), 2);
    return at;
}

static void expect_near(double found, double expected)
{
    ck_assert_double_eq_tol(found, expected, 0.02);
}

struct plot_series {
    const char *name;
    const struct plot_point *points;
    int n_points;
};

/* Collects all points of the series, until the next call. */
static struct plot plot_of(const struct plot_series *series, int n)
{
    static struct plot_point points[20];
    struct plot p = {.title = "title",
                     .subtitle = "subtitle",
                     .x_label = "depth (tokens)",
                     .y_label = "latency (µs)",
                     .mid_label = "median",
                     .band_label = "p10 to p90",
                     .predicted_label = "predicted",
                     .points = points};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < series[i].n_points; k++) {
            points[p.n_points] = series[i].points[k];
            points[p.n_points].line = i;
            points[p.n_points++].name = series[i].name;
        }
    return p;
}

static char *draw_lines(const struct plot_series *series, int n)
{
    const struct plot p = plot_of(series, n);
    return draw(&p);
}

/* --- charts --------------------------------------------------------------------------------- */

/* Reads the ticks of an axis, whose labels end `anchor`. */
static int read_ticks(const char *text, const char *anchor, double *ticks)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, anchor)); n++) {
        char digits[64] = "";
        for (at += strlen(anchor); *at != '<'; at++)
            if (*at != ',')
                digits[strlen(digits)] = *at;
        ck_assert_int_lt(n, 9);
        ticks[n] = strtod(digits, NULL);
    }
    return n;
}

TEST(ticks_hold_at_any_scale)
{
    for (int i = 20; i < 200 * 10; i += 7) {
        const double hi = (1 + i % 10) * pow(10, i / 10 - 100) * 1.000001;
        const struct plot_point two[] = {{0.6 * hi, 0, 0, hi, 0, "", "", 0, NULL},
                                         {hi, 0, 0, hi, 0, "", "", 0, NULL}};
        const struct plot_series series = {.name = "MHA", .points = two, .n_points = 2};
        const char *text = draw_lines(&series, 1);
        double around[9], inside[9];
        const int n = read_ticks(text, "class=\"muted\" text-anchor=\"end\">", around);
        ck_assert(n >= 3 && around[0] == 0);
        ck_assert(around[n - 1] >= hi * (1 - 1e-8) && around[n - 2] < hi);
        const int m = read_ticks(text, "class=\"muted\" text-anchor=\"middle\">", inside);
        ck_assert(m >= 2 && inside[0] >= 0.6 * hi * (1 - 1e-8));
        ck_assert(inside[m - 1] <= hi * (1 + 1e-8));
    }
}

static const struct plot_point simple_points[] = {{0, 0, 0, 10, 0, "", "", 0, NULL},
                                                  {50, 40, 60, 80, 40, "", "", 0, NULL},
                                                  {100, 90, 100, 120, 80, "", "", 0, NULL}};

TEST(points_stand_where_the_ticks_say)
{
    static const double lows[] = {0, 40, 90}, highs[] = {10, 80, 120};
    const struct plot_series series = {.name = "MHA", .points = simple_points, .n_points = 3};
    const char *text = draw_lines(&series, 1), *marker = strstr(text, "<g><title>"), *bar = marker;
    const double x0 = tick_at(text, "0", false), y0 = tick_at(text, "0", true);
    const double step_x = (tick_at(text, "100", false) - x0) / 100;
    const double step_y = (tick_at(text, "100", true) - y0) / 100;
    ck_assert(step_x > 4 && step_y < -2);
    expect_near(tick_at(text, "60", true), y0 + step_y * 60);
    expect_near(tick_at(text, "40", false), x0 + step_x * 40);
    for (int i = 0; i < 3; i++) {
        double x, y, left, high, low; /* of bars, which go from the highest to the lowest */
        marker = next_marker(marker, &x, &y);
        bar = strstr(bar + 1, "<path class=\"bar\"");
        ck_assert_int_eq(
            sscanf(bar, "<path class=\"bar\" d=\"M%lf %lfh8m-4 0V%lfm", &left, &high, &low), 3);
        expect_near(x, x0 + step_x * simple_points[i].x);
        expect_near(left, x - 4);
        expect_near(y, y0 + step_y * simple_points[i].mid);
        expect_near(low, y0 + step_y * lows[i]);
        expect_near(high, y0 + step_y * highs[i]);
    }
    /* The order in which they are given does not matter. */
    const struct plot_point shuffled[] = {simple_points[2], simple_points[0], simple_points[1]};
    const struct plot_series other = {.name = "MHA", .points = shuffled, .n_points = 3};
    ck_assert_str_eq(text, draw_lines(&other, 1));
}

/* Equal ratios are equal steps. */
TEST(doublings)
{
    static const double places[] = {1, 4, 12, 16};
    struct plot_point points[4];
    for (int i = 0; i < 4; i++)
        points[i] = (struct plot_point){places[i], 10, 10 + i, 20, 10, "", "", 0, NULL};
    const struct plot_series series = {.name = "MHA", .points = points, .n_points = 4};
    struct plot p = plot_of(&series, 1);
    p.x_doubles = true;
    const char *text = draw(&p), *marker = strstr(text, "<g><title>");
    expect_counts(text, "5 <path class=\"marker\"" /* one is the name's */);
    const double x1 = tick_at(text, "1", false), step = (tick_at(text, "16", false) - x1) / 4;
    expect_near(tick_at(text, "2", false), x1 + step);
    expect_near(tick_at(text, "8", false), x1 + 3 * step);
    for (int i = 0; i < 4; i++) {
        double x, y;
        marker = next_marker(marker, &x, &y);
        expect_near(x, x1 + step * log2(places[i]));
    }
}

TEST(the_reader_is_told_what_is_what)
{
    const struct plot_series series[] = {{.name = "MHA", .points = simple_points, .n_points = 3},
                                         {.name = "MQA", .points = simple_points, .n_points = 2}};
    const char *text = draw_lines(series, 2);
    expect_counts(text, "1 role=\"img\"", "1 <title>title</title>",
                  "1 <desc>latency (µs) against depth (tokens).\n", "1 MHA: 0 at 0 to 100 at 100.",
                  "1 >MQA</text>", "1 >median</text>", "1 >p10 to p90</text>",
                  "1 >predicted</text>", "1 prefers-color-scheme:dark", "1 >depth (tokens)</text>",
                  "1 <title>MHA: 60 at 50 (40 to 80), predicted 40</title>");
    /* A renderer without media queries takes the light colours. */
    const char *dark = strstr(text, "@media");
    ck_assert_ptr_eq(strstr(dark + 1, "@media"), NULL);
    ck_assert(strstr(text, ".c0{color:") < dark && strstr(dark, ".c0{color:"));
}

/* A series has its markers side by side; bars and lines have one more in the legend. */
TEST(one_point)
{
    const struct plot_point point = {1024, 300, 310, 350, 250, "", "", 0, NULL};
    const struct plot_series series[] = {{.name = "MHA", .points = &point, .n_points = 1},
                                         {.name = "MQA", .points = &point, .n_points = 1}};
    const struct plot_series lines[] = {
        {.name = "MHA", .points = simple_points, .n_points = 3},
        {.name = "MQA", .points = simple_points + 1, .n_points = 1}};
    const char *text = draw_lines(series, 2);
    double first, second, y;
    expect_counts(text, "3 <path class=\"bar\"", "3 <path class=\"predicted\"",
                  "0 <path class=\"line\"", "2 >310</text>");
    tick_at(text, "1,024", false);
    next_marker(strstr(text, "<title>MHA: "), &first, &y);
    next_marker(strstr(text, "<title>MQA: "), &second, &y);
    ck_assert(second > first + 20);
    expect_counts(draw_lines(lines, 2), "5 <path class=\"bar\"", "4 <path class=\"line\"");
}

TEST(hostile_texts)
{
    static const char hostile[] = "</text><script>alert('1')</script>\x01\x7f\xff&amp;\"]]>\xef\xbf"
                                  "\xbf\xc2\x9b\nend";
    char *huge = allocated_zeros(100001);
    memset(huge, '<', 100000);
    const struct plot_series series[] = {{.name = hostile, .points = simple_points, .n_points = 3},
                                         {.name = huge, .points = simple_points, .n_points = 3},
                                         {.name = "", .points = simple_points, .n_points = 3}};
    struct plot p = plot_of(series, 3);
    p.title = p.x_label = p.y_label = p.band_label = huge;
    p.subtitle = p.mid_label = p.predicted_label = hostile;
    expect_counts(draw(&p),
                  "+ &lt;/text&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"
                  "\xef\xbf\xbd&amp;amp;&quot;]]&gt; end",
                  "+ &lt;\xe2\x80\xa6</text>");
}

TEST(extreme_values)
{
    static const double pairs[][2] = {{0, 0},         {1e100, -1e100},     {1e-320, 0},
                                      {1e-99, 1e-98}, {1e15, 1e15 + 0.25}, {-5, -4}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        const double a = pairs[i][0], b = pairs[i][1];
        const struct plot_point two[] = {{a, a, a, a, b, "", "", 0, NULL},
                                         {b, b, b, b, a, "", "", 0, NULL}};
        const struct plot_series extreme[] = {{.name = "x", .points = two, .n_points = 2},
                                              {.name = "y", .points = two, .n_points = 1}};
        draw_lines(extreme, 2);
    }
}
