/* Tests of maps as SVG paths, as pictures and on terminals, of levels of colour, and of what counts
 * as a terminal. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/rng.h"
#include "cli/terminal.h"
#include "outputs.h"
#include "show/heatmap.h"
#include "show/plot.h"
#include "xml.h"

/* --- levels ---------------------------------------------------------------------------------- */

static int level_of(const struct heatmap_scale *s, double x)
{
    unsigned char level;
    heatmap_levels(s, &(float){(float)x}, 1, &level);
    return level;
}

TEST(levels, .loops = 4)
{
    const bool log = _i % 2;
    const double top = _i < 2 ? 1 : 0.037;
    const struct heatmap_scale s = heatmap_scale(top, log);
    for (int k = 1; k <= HEATMAP_LEVELS; k++) {
        const double middle =
            top * (log ? pow(10, (k - 9) / 3.0) : (double)k / 9); /* as the header says */
        ck_assert_int_eq(level_of(&s, middle), k);
        /* The values are half a level up and down on the scale. */
        const double up = log ? middle * pow(10, 0.5 / 3) : middle + top / 18;
        const double down = log ? middle / pow(10, 0.5 / 3) : middle - top / 18;
        ck_assert_int_eq(level_of(&s, up * 0.9999), k);
        ck_assert_int_eq(level_of(&s, down * 1.0001), k);
        ck_assert_int_eq(level_of(&s, down * 0.9999), k - 1);
    }
    const double none[] = {0, -1, (double)NAN}, most[] = {top * 1e9, (double)INFINITY};
    for (int i = 0; i < 3; i++) {
        const struct heatmap_scale blank = heatmap_scale(none[i], log);
        ck_assert_int_eq(level_of(&s, none[i]), 0);
        ck_assert_int_eq(level_of(&blank, 1), 0);
        ck_assert_int_eq(level_of(&s, most[i % 2]), HEATMAP_LEVELS);
    }
}

/* --- pictures -------------------------------------------------------------------------------- */

#define N_SIDE 4

static const float triangle[N_SIDE * N_SIDE] = {1,    0,    0,    0, 0.5f, 0.5f, 0,     0,
                                                0.1f, 0.2f, 0.7f, 0, 0,    0,    0.01f, 0.99f};

static char *draw(const struct heatmap_picture *p)
{
    const char *path = scratch_path("map.svg");
    expect_ok(heatmap_write(p, path, &err));
    char *text = file_text(path, NULL);
    check_xml(text);
    return text;
}

static const struct heatmap_map triangle_map = {
    .cells = triangle, .note = "a < b & c", .name = "1.5", .group = -1};
static const struct text_label tokens[N_SIDE] = {{"To"}, {"\\n"}, {"<|x|>"}, {"\xe6\x97\xa5"}};

/* A large one. */
static struct heatmap_picture picture_of(const struct heatmap_map *map, double top, bool log)
{
    return (struct heatmap_picture){.title = "t",
                                    .subtitle = "s",
                                    .what = "weight",
                                    .scale = heatmap_scale(top, log),
                                    .maps = map,
                                    .n_rows = 1,
                                    .n_columns = 1,
                                    .map_rows = N_SIDE,
                                    .map_columns = N_SIDE,
                                    .triangle = true,
                                    .row_names = tokens,
                                    .column_names = tokens};
}

/* Paths give the map back: a cell is drawn by at most one run, of its level. */
TEST(paths_are_the_map, .loops = 4)
{
    enum { ROWS = 13, COLUMNS = 9 };
    unsigned char found[ROWS * COLUMNS] = {0}, wanted[ROWS * COLUMNS];
    float cells[ROWS * COLUMNS];
    struct rng r;
    rng_seed(&r, 3, (uint64_t)_i);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        wanted[i] = (unsigned char)(_i == 0 ? 0 : rng_u32(&r) % (_i < 2 ? 10 : 3));
        cells[i] = (float)wanted[i] / 9;
    }
    const struct heatmap_map map = {.cells = cells, .group = -1};
    struct heatmap_picture p = picture_of(&map, 1, false);
    p.column_names = NULL;
    p.triangle = false;
    p.map_rows = ROWS;
    p.map_columns = COLUMNS;
    const char *first = strstr(draw(&p), "<g class=\"map\">");
    int level = 0, row, column, n, read;
    for (const char *at = first; *at; at++) {
        sscanf(at, "<path class=\"h%d\"", &level);
        if (sscanf(at, "M%d %d.5h%d%n", &column, &row, &n, &read) != 3)
            continue;
        ck_assert(level >= 1 && level <= HEATMAP_LEVELS && row >= 0 && row < ROWS && column >= 0 &&
                  n > 0 && column + n <= COLUMNS);
        for (int c = column; c < column + n; c++) {
            ck_assert_int_eq(found[row * COLUMNS + c], 0);
            found[row * COLUMNS + c] = (unsigned char)level;
        }
    }
    ck_assert_mem_eq(found, wanted, sizeof found);
    ck_assert_int_le(count(first, "<path"), HEATMAP_LEVELS);
    ck_assert(_i > 0 || count(first, "<path") == 0);
}

/* Rows and columns are named. A rectangle of columns fewer than rows lies all on ground. */
TEST(large_maps)
{
    struct heatmap_picture p = picture_of(&triangle_map, 0.99, true);
    expect_counts(draw(&p), "2 >To</text>", "2 &lt;|x|&gt;</text>", "2 \xe6\x97\xa5</text>",
                  "4 rotate(-90)", "1 >weight 0.0021</text>", "1 >0.99 (log scale)</text>");
    p = picture_of(&triangle_map, 0, false);
    p.triangle = false;
    p.map_columns = 2;
    expect_counts(draw(&p), "1 d=\"M0 0H2V4H0Z\"", "0 <path class=\"h");
}

/* --- terminals ------------------------------------------------------------------------------- */

static const unsigned char all_levels[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 0};

TEST(plain_cells)
{
    struct descriptor out;
    output_begin(&out);
    heatmap_put_cells(&out.out, HEATMAP_PLAIN, all_levels, 12, 1);
    heatmap_put_cells(&out.out, HEATMAP_PLAIN, all_levels + 8, 2, 3);
    heatmap_put_cells(&out.out, HEATMAP_PLAIN, all_levels, 0, 3);
    output_puts(&out.out, "\n");
    const struct heatmap_scale linear = heatmap_scale(0.5, false), log = heatmap_scale(1, true);
    heatmap_put_legend(&out.out, HEATMAP_PLAIN, &linear, "weight");
    heatmap_put_legend(&out.out, HEATMAP_PLAIN, &log, "weight");
    output_is(&out, " .:-=+*#%@@ %%%@@@\n"
                    "weight 0  .:-=+*#%@ 0.5\n"
                    "weight 0.0022 .:-=+*#%@ 1 (log scale)\n");
}

/* Colours begin where the level changes, and end at the line's end. */
TEST(coloured_cells)
{
    static const unsigned char row[] = {0, 4, 4, 0, 9};
    struct descriptor out;
    output_begin(&out);
    heatmap_put_cells(&out.out, HEATMAP_COLOURS, row, 5, 2);
    heatmap_put_cells(&out.out, HEATMAP_COLOURS, row, 1, 2);
    output_is(&out, "  \x1b[38;5;231;48;5;25m    \x1b[0m  \x1b[38;5;16;48;5;230m  \x1b[0m  ");
}

/* Standard output becomes a terminal of so many columns, and NO_COLOR and TERM are unset. */
static void become_terminal(int columns)
{
    static const char *const names[] = {"NO_COLOR", "TERM"};
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert(slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0);
    ck_assert_int_ge(dup2(slave, STDOUT_FILENO), 0);
    for (size_t i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
}

TEST(colours_of_a_terminal)
{
    static const struct {
        const char *name, *value;
        enum heatmap_ink ink;
    } steps[] = {
        {"COLUMNS", "9", HEATMAP_PLAIN},   {"TERM", "", HEATMAP_PLAIN},
        {"TERM", "dumb", HEATMAP_PLAIN},   {"TERM", "xterm", HEATMAP_COLOURS},
        {"NO_COLOR", "", HEATMAP_COLOURS}, {"NO_COLOR", "1", HEATMAP_PLAIN},
    };
    become_terminal(80);
    for (size_t i = 0; i < COUNT(steps); i++) {
        setenv(steps[i].name, steps[i].value, 1);
        ck_assert_msg(terminal_ink() == steps[i].ink, "%s=%s", steps[i].name, steps[i].value);
    }
}

TEST(width_of_a_terminal)
{
    static const char *const bad[] = {"", "0", "-3", "x", "99999999999"};
    setenv("COLUMNS", "50", 1);
    become_terminal(33);
    ck_assert_int_eq(terminal_width(STDOUT_FILENO), 33);
    become_terminal(0);
    ck_assert_int_eq(terminal_width(STDOUT_FILENO), 50);
    /* None. */
    setenv("TERM", "xterm-256color", 1);
    ck_assert_int_ge(dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO), 0);
    ck_assert_int_eq(terminal_ink(), HEATMAP_PLAIN);
    ck_assert_int_eq(terminal_width(STDOUT_FILENO), 50);
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv("COLUMNS", bad[i], 1);
        ck_assert_int_eq(terminal_width(STDOUT_FILENO), 80);
    }
}
