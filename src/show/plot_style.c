/* Colours, fonts and marker shapes. */
#include <stdio.h>

#include "show/plot_private.h"

/*
 * Near Okabe and Ito's hues, but apart in lightness too: simulated for the three kinds of
 * dichromacy, any two colours differ by 0.08 in OKLab and any two of the first four by 0.14. The
 * contrast with the background is at least 3 to 1.
 */
static const struct {
    const char *light, *dark;
} colours[] = {
    {"#2846c6", "#3382fc"}, {"#f25b0c", "#de550c"}, {"#04a496", "#1ed67e"}, {"#5d2d63", "#ab6e9c"},
    {"#7b5300", "#f6ee9a"}, {"#467bb0", "#a6dcff"}, {"#2e2e2e", "#a0a0a0"}, {"#ad585a", "#ffacc2"},
};
#define N_COLOURS ((int)(sizeof colours / sizeof colours[0]))

static const char common_rules[] =
    ".decode-plot text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "font-size:13px}\n"
    ".decode-plot .title{font-size:18px;font-weight:600}\n"
    ".decode-plot .tick{font-size:12px}\n"
    ".decode-plot .grid,.decode-plot .axis{fill:none;stroke-width:1}\n"
    ".decode-plot .band{fill:currentColor;fill-opacity:.18}\n"
    ".decode-plot .line{fill:none;stroke:currentColor;stroke-width:2.25;stroke-linejoin:round}\n"
    ".decode-plot .predicted{fill:none;stroke:currentColor;stroke-width:1.25;"
    "stroke-dasharray:5 4}\n"
    ".decode-plot .bar{fill:none;stroke:currentColor;stroke-width:1.75}\n"
    ".decode-plot .leader{fill:none;stroke:currentColor;stroke-opacity:.6}\n"
    ".decode-plot .marker{fill:currentColor;stroke-width:1.25}\n"
    ".decode-plot .hollow{stroke:currentColor;stroke-width:1.75}\n";

static const char light_rules[] = ".decode-plot .paper,.decode-plot .hollow{fill:#ffffff}\n"
                                  ".decode-plot text{fill:#1f2328}\n"
                                  ".decode-plot .muted{fill:#59636e}\n"
                                  ".decode-plot .note{color:#59636e}\n"
                                  ".decode-plot .grid{stroke:#e4e7eb}\n"
                                  ".decode-plot .axis{stroke:#8c959f}\n"
                                  ".decode-plot .full{stroke:#ffffff}\n";

static const char dark_rules[] = ".decode-plot .paper,.decode-plot .hollow{fill:#14171c}\n"
                                 ".decode-plot text{fill:#e6e9ed}\n"
                                 ".decode-plot .muted{fill:#a3acb7}\n"
                                 ".decode-plot .note{color:#a3acb7}\n"
                                 ".decode-plot .grid{stroke:#2b3038}\n"
                                 ".decode-plot .axis{stroke:#6b747f}\n"
                                 ".decode-plot .full{stroke:#14171c}\n";

static void put_colours(struct file_writer *out, bool dark)
{
    for (int i = 0; i < N_COLOURS; i++) {
        char rule[64];
        snprintf(rule, sizeof rule, ".decode-plot .c%d{color:%s}\n", i,
                 dark ? colours[i].dark : colours[i].light);
        plot_puts(out, rule);
    }
}

void plot_put_style(struct file_writer *out)
{
    plot_puts(out, "<style>\n");
    plot_puts(out, common_rules);
    plot_puts(out, light_rules);
    put_colours(out, false);
    plot_puts(out, "@media (prefers-color-scheme:dark){\n");
    plot_puts(out, dark_rules);
    put_colours(out, true);
    plot_puts(out, "}\n</style>\n");
}

void plot_begin_group(struct file_writer *out, int style)
{
    char tag[32];
    snprintf(tag, sizeof tag, "<g class=\"c%d\">", style % N_COLOURS);
    plot_puts(out, tag);
}

/* Corners around the middle, in pixels; the areas look alike. */
struct marker {
    int n_corners; /* 0 for a circle */
    double corners[12][2];
};

static const struct marker markers[] = {
    {0, {{0, 0}}},
    {4, {{-3.8, -3.8}, {3.8, -3.8}, {3.8, 3.8}, {-3.8, 3.8}}},
    {3, {{0, -5.4}, {5, 3.6}, {-5, 3.6}}},
    {4, {{0, -5.6}, {5.6, 0}, {0, 5.6}, {-5.6, 0}}},
    {3, {{0, 5.4}, {-5, -3.6}, {5, -3.6}}},
    {12,
     {{-1.7, -5.2},
      {1.7, -5.2},
      {1.7, -1.7},
      {5.2, -1.7},
      {5.2, 1.7},
      {1.7, 1.7},
      {1.7, 5.2},
      {-1.7, 5.2},
      {-1.7, 1.7},
      {-5.2, 1.7},
      {-5.2, -1.7},
      {-1.7, -1.7}}},
    {5, {{0, -5.2}, {4.95, -1.6}, {3.05, 4.2}, {-3.05, 4.2}, {-4.95, -1.6}}},
    {12,
     {{0, -2.4},
      {2.5, -4.9},
      {4.9, -2.5},
      {2.4, 0},
      {4.9, 2.5},
      {2.5, 4.9},
      {0, 2.4},
      {-2.5, 4.9},
      {-4.9, 2.5},
      {-2.4, 0},
      {-4.9, -2.5},
      {-2.5, -4.9}}},
};
#define N_MARKERS ((int)(sizeof markers / sizeof markers[0]))

void plot_marker(struct file_writer *out, int style, double x, double y)
{
    const int round = style / N_COLOURS;
    /* The shapes move on by one when the colours begin again; filled and hollow alternate, the
     * other way round after all shapes. So no look comes back before the 129th series. */
    const struct marker *m = &markers[(style % N_COLOURS + round) % N_MARKERS];
    const char *class =
        (round + round / N_MARKERS) % 2 ? "class=\"hollow\"" : "class=\"marker full\"";
    if (m->n_corners == 0) {
        plot_puts(out, "<circle ");
        plot_puts(out, class);
        plot_shape(out, " cx=\"@\" cy=\"@\" r=\"4.3\"/>", (double[]){x, y});
        return;
    }
    plot_puts(out, "<path ");
    plot_puts(out, class);
    for (int i = 0; i < m->n_corners; i++)
        plot_shape(out, i == 0 ? " d=\"M@ @" : "L@ @",
                   (double[]){x + m->corners[i][0], y + m->corners[i][1]});
    plot_puts(out, "Z\"/>");
}
