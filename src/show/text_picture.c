#include "show/text_picture.h"

#include <math.h>
#include <stdbool.h>

#include "base/output.h"
#include "show/heatmap.h"
#include "show/printable.h"
#include "show/scale.h"
#include "show/svg.h"

#define COLUMNS       100
#define MARGIN        22
#define FONT_SIZE     14
#define ADVANCE       8.4 /* of a character: 0.6 of the size, as most monospaced faces have it */
#define CELL_HEIGHT   20
#define LINE_HEIGHT   24
#define BASE_LINE     14.8 /* from a cell's top */
#define GAP           1    /* between cells, so that each token's ends are seen */
#define LEGEND_HEIGHT 30
#define WIDTH         (2 * MARGIN + (COLUMNS + 1) * ADVANCE) /* a newline may stand behind a line */

static const char styles[] =
    "<style>\n"
    ".decode-plot .mono{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',"
    "'Liberation Mono',monospace;white-space:pre}\n"
    ".decode-plot .mark{user-select:none;-webkit-user-select:none}\n"
    "</style>\n";

/* A token, or what of it is in one line. */
struct piece {
    struct text text;
    int column, columns;
    bool ends_line; /* a newline comes after the text */
    const struct text_picture_token *token;
};

/* Pieces of a line that are not yet drawn. */
#define MOST_PIECES 128

struct pen {
    struct output *out;
    struct heatmap_scale scale;
    double y; /* of the line */
    int column;
    struct piece pieces[MOST_PIECES];
    int n_pieces;
};

/* --- characters ----------------------------------------------------------------------------- */

/* Cuts off the next character: its escape, if it needs one, but a backslash is as it is. */
static struct printable next_shown(struct text *rest, int *columns)
{
    const bool is_backslash = rest->data[0] == '\\';
    struct printable p = printable_next(rest);
    if (is_backslash)
        p.text[1] = 0;
    *columns = (int)text_columns(text_of(p.text));
    return p;
}

/* Columns up to the next newline. */
static int columns_of(struct text rest)
{
    int all = 0, columns;
    while (rest.len > 0 && rest.data[0] != '\n' && all <= COLUMNS) {
        next_shown(&rest, &columns);
        all += columns;
    }
    return all;
}

/* Up to a newline, or what fits, at least a character. */
static struct piece cut_piece(struct text *rest, int room)
{
    struct piece p = {.text = {rest->data, 0}};
    while (rest->len > 0 && rest->data[0] != '\n') {
        struct text after = *rest;
        int columns;
        next_shown(&after, &columns);
        if (p.columns > 0 && p.columns + columns > room)
            return p;
        p.columns += columns;
        p.text.len += rest->len - after.len;
        *rest = after;
    }
    if (rest->len > 0) {
        p.ends_line = true;
        p.columns++;
        *rest = (struct text){rest->data + 1, rest->len - 1};
    }
    if (p.columns == 0)
        p.columns = 1;
    return p;
}

/* --- drawing -------------------------------------------------------------------------------- */

static int level_of(const struct pen *pen, const struct piece *p)
{
    return heatmap_level(&pen->scale, p->token->probability);
}

static void put_cell(const struct pen *pen, const struct piece *p)
{
    const int level = level_of(pen, p);
    const bool predicted = !isnan(p->token->probability);
    output_printf(pen->out, "<rect class=\"%s%.0d\"",
                  !predicted ? "frame"
                  : level    ? "cell h"
                             : "ground",
                  level);
    svg_shape(
        pen->out, " x=\"@\" y=\"@\" width=\"@\" height=\"@\" rx=\"2\"",
        (double[]){MARGIN + p->column * ADVANCE, pen->y, p->columns * ADVANCE - GAP, CELL_HEIGHT});
    if (predicted)
        output_printf(pen->out, "><title>%s</title></rect>\n",
                      scale_value(p->token->probability).text);
    else
        output_puts(pen->out, "/>\n");
}

static void put_words(const struct pen *pen, const struct piece *p)
{
    const int level = level_of(pen, p);
    struct text rest = p->text;
    output_puts(pen->out, "<tspan");
    if (level)
        output_printf(pen->out, " class=\"%s\"", heatmap_text_class(level));
    svg_shape(pen->out, " x=\"@\">", (double[]){MARGIN + p->column * ADVANCE});
    while (rest.len > 0) {
        int columns;
        const struct printable shown = next_shown(&rest, &columns);
        svg_put_text(pen->out, text_of(shown.text));
    }
    if (p->ends_line)
        output_printf(pen->out, "<tspan class=\"mark %s\">\xe2\x86\xb5</tspan>",
                      level ? heatmap_text_class(level) : "");
    output_puts(pen->out, "</tspan>");
}

static void draw_pieces(struct pen *pen)
{
    if (pen->n_pieces == 0)
        return;
    for (int i = 0; i < pen->n_pieces; i++)
        put_cell(pen, &pen->pieces[i]);
    svg_shape(pen->out, "<text class=\"mono\" xml:space=\"preserve\" y=\"@\">",
              (double[]){pen->y + BASE_LINE});
    for (int i = 0; i < pen->n_pieces; i++)
        put_words(pen, &pen->pieces[i]);
    output_puts(pen->out, "</text>\n");
    pen->n_pieces = 0;
}

static void end_line(struct pen *pen)
{
    draw_pieces(pen);
    pen->column = 0;
    pen->y += LINE_HEIGHT;
}

static void put_token(struct pen *pen, const struct text_picture_token *t)
{
    struct text rest = t->text;
    do {
        if (pen->column > 0 && pen->column + columns_of(rest) > COLUMNS)
            end_line(pen);
        if (pen->n_pieces == MOST_PIECES)
            draw_pieces(pen);
        struct piece piece = cut_piece(&rest, COLUMNS - pen->column);
        piece.column = pen->column;
        piece.token = t;
        pen->pieces[pen->n_pieces++] = piece;
        pen->column += piece.columns;
        if (piece.ends_line || rest.len > 0)
            end_line(pen);
    } while (rest.len > 0);
}

/* Returns the height. */
static double draw_text(struct output *out, const struct text_picture *p, double height)
{
    struct pen pen = {.out = out, .scale = heatmap_scale(1, false)};
    heatmap_begin_picture(out, p->title, p->subtitle, styles, WIDTH, height);
    pen.y = svg_headings(out, text_of(p->title), text_of(p->subtitle), MARGIN, WIDTH - 2 * MARGIN);
    heatmap_legend(out, &pen.scale, "probability", MARGIN, pen.y + LEGEND_HEIGHT / 3.0);
    pen.y += LEGEND_HEIGHT;
    for (int i = 0; i < p->n_tokens; i++)
        put_token(&pen, &p->tokens[i]);
    if (pen.column > 0)
        end_line(&pen);
    output_puts(out, "</svg>\n");
    return pen.y - LINE_HEIGHT + CELL_HEIGHT + MARGIN;
}

enum status text_picture_write(const struct text_picture *p, const char *path, struct err *e)
{
    struct file_output file;
    file_output_init(&file);
    const double height = draw_text(&file.out, p, 0);
    TRY(file_output_open(&file, path, e));
    draw_text(&file.out, p, height);
    return file_output_commit(&file, e);
}
