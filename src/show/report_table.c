#include "show/report_table.h"

#include <stdlib.h>
#include <string.h>

#include "show/paragraph.h"
#include "show/printable.h"

/* Between two columns. */
#define GAP 2
/* A last column that is broken into lines is no narrower. */
#define NARROWEST 24

/* Of a terminal, see enum report_accent. */
static const char *const accents[] = {
    [ACCENT_NONE] = "", [ACCENT_ROW] = "\033[1m", [ACCENT_CELL] = "\033[33m"};
#define PLAIN "\033[m"

const char *report_column_name(const struct report *r, int at)
{
    return report_name(r->format, &r->fields[at]);
}

int report_next_column(const struct report *r, int at)
{
    do
        at = (at + 1) % r->n_fields;
    while (!report_column_name(r, at));
    return at;
}

/* What is printed of each column that the form shows. */
struct column {
    size_t width;
    bool shown;
    bool filled; /* it has a cell that is not empty, below its heading */
};

struct layout {
    const struct report *r;
    struct column *columns; /* [r->n_fields] */
    int last;               /* shown */
    int n_left_out;
    int n_rows; /* without the heading */
};

static bool column_is_left(const struct report *r, int at)
{
    return r->fields[at].type >= REPORT_TEXT && !r->fields[at].right;
}

static void measure_columns(struct layout *l)
{
    const struct report *r = l->r;
    int at = r->first;
    bool heading = true;
    for (size_t i = 0; i < r->cells_len; i += strlen(r->cells + i) + 1) {
        struct column *c = &l->columns[at];
        const size_t width = text_columns(text_of(r->cells + i));
        c->shown = true;
        c->width = width > c->width ? width : c->width;
        c->filled |= !heading && width > 0;
        l->last = at > l->last ? at : l->last;
        at = report_next_column(r, at);
        heading &= at != r->first;
        l->n_rows += at == r->first;
    }
    l->n_rows--;
}

/* --- what fits ------------------------------------------------------------------------------- */

/* Whether the last column's cells may go on in further lines: of a text that is never left out. */
static bool last_is_broken(const struct layout *l)
{
    return column_is_left(l->r, l->last) && l->r->fields[l->last].rank == 0;
}

static size_t width_before_last(const struct layout *l)
{
    size_t width = 0;
    for (int i = 0; i < l->last; i++)
        width += l->columns[i].shown ? l->columns[i].width + GAP : 0;
    return width;
}

static bool fits(const struct layout *l)
{
    size_t last = l->columns[l->last].width;
    if (last_is_broken(l) && last > NARROWEST)
        last = NARROWEST;
    return width_before_last(l) + last <= (size_t)l->r->out->columns;
}

/* The next column to leave out: that of the highest rank, of several the last; -1: none may be. */
static int least_important(const struct layout *l)
{
    int least = -1;
    for (int i = 0; i < l->r->n_fields; i++) {
        const int rank = l->r->fields[i].rank;
        if (l->columns[i].shown && rank > 0 && (least < 0 || rank >= l->r->fields[least].rank))
            least = i;
    }
    return least;
}

static void leave_out(struct layout *l, int at)
{
    l->columns[at].shown = false;
    l->n_left_out += l->columns[at].filled;
    while (l->last > 0 && !l->columns[l->last].shown)
        l->last--;
}

/* What there is for a column that is broken, behind what is before it. */
static size_t width_of_last(const struct output *out, size_t before)
{
    const size_t all = (size_t)out->columns;
    return all > before + NARROWEST ? all - before : NARROWEST;
}

/* Empty columns go first, but for a table that is only headings. */
static void fit_columns(struct layout *l)
{
    const bool spared = l->n_rows == 0 || fits(l);
    for (int i = 0; i < l->r->n_fields && !spared; i++)
        if (l->columns[i].shown && !l->columns[i].filled)
            leave_out(l, i);
    for (int at; !fits(l) && (at = least_important(l)) >= 0;)
        leave_out(l, at);
    struct column *last = &l->columns[l->last];
    const size_t width = width_of_last(l->r->out, width_before_last(l));
    if (last_is_broken(l) && last->width > width)
        last->width = width;
}

static void name_left_out(const struct layout *l)
{
    const struct report *r = l->r;
    struct paragraph p = paragraph_begin(r->out, 2);
    paragraph_puts(&p, "Too wide, left out:");
    for (int i = 0, n = 0; i < r->n_fields; i++) {
        if (!report_column_name(r, i) || l->columns[i].shown || !l->columns[i].filled)
            continue;
        paragraph_puts(&p, " ");
        paragraph_puts(&p, report_column_name(r, i));
        paragraph_puts(&p, ++n < l->n_left_out ? "," : "; -v shows all.");
    }
    paragraph_end(&p);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* After the spaces that are owed: at a line's end they are not paid. */
static void put_padded(struct output *out, const char *accent, struct text s, size_t *pad)
{
    if (s.len == 0)
        return;
    output_repeat(out, ' ', *pad);
    output_puts(out, accent);
    output_put(out, s);
    output_puts(out, *accent ? PLAIN : "");
    *pad = 0;
}

static void print_cell(const struct layout *l, int at, struct text cell, const char *accent,
                       size_t *pad)
{
    const struct report *r = l->r;
    const size_t blank = l->columns[at].width - text_columns(cell);
    const bool left = column_is_left(r, at), md = r->format == TABLE_MD;
    if (md)
        put_padded(r->out, "", text_of("| "), pad);
    *pad += left ? 0 : blank;
    put_padded(r->out, accent, cell, pad);
    *pad += (left ? blank : 0) + (md ? 1 : GAP);
    if (at < l->last)
        return;
    put_padded(r->out, "", text_of(md ? "|" : ""), pad);
    output_puts(r->out, "\n");
    *pad = 0;
}

static void print_rule(const struct layout *l)
{
    const struct report *r = l->r;
    for (int i = 0; i < r->n_fields; i++) {
        if (!report_column_name(r, i))
            continue;
        output_puts(r->out, column_is_left(r, i) ? "|:" : "|-");
        output_repeat(r->out, '-', l->columns[i].width);
        output_puts(r->out, column_is_left(r, i) ? "-" : ":");
    }
    output_puts(r->out, "|\n");
}

static const char *cell_after(const char *cell)
{
    return cell + strlen(cell) + 1;
}

/* What the cells of a row have in common. */
static enum report_accent row_accent(const struct report *r, const char *cell)
{
    int at = r->first;
    do {
        if (*cell && r->fields[at].accent == ACCENT_ROW)
            return ACCENT_ROW;
        cell = cell_after(cell);
        at = report_next_column(r, at);
    } while (at != r->first);
    return ACCENT_NONE;
}

/* What is left of a column's cell, in further lines. */
static void put_below(const struct layout *l, int at, struct text rest, size_t indent, size_t width)
{
    struct output *out = l->r->out;
    while (rest.len > 0) {
        output_repeat(out, ' ', indent);
        output_put(out, paragraph_line(&rest, width, l->r->fields[at].list));
        output_puts(out, "\n");
    }
}

/* A row that begins with `cell`; returns where the next one does. */
static const char *print_row(const struct layout *l, const char *cell, bool heading)
{
    const struct report *r = l->r;
    const bool aligned = r->format == TABLE_ALIGNED,
               plain = heading || !r->out->colours || !aligned;
    const enum report_accent of_row = plain ? ACCENT_NONE : row_accent(r, cell);
    struct text rest = {"", 0};
    size_t pad = 0;
    int at = r->first;
    do {
        const enum report_accent own = plain ? ACCENT_NONE : r->fields[at].accent;
        struct text shown = text_of(cell);
        if (at == l->last && aligned) {
            rest = shown;
            shown = paragraph_line(&rest, l->columns[at].width, r->fields[at].list);
        }
        if (l->columns[at].shown)
            print_cell(l, at, shown, accents[own == ACCENT_CELL ? own : of_row], &pad);
        cell = cell_after(cell);
        at = report_next_column(r, at);
    } while (at != r->first);
    put_below(l, l->last, rest, width_before_last(l), l->columns[l->last].width);
    return cell;
}

/* Of a single row that does not fit nothing is left out: the columns are lines. */
static void print_downwards(const struct layout *l)
{
    const struct report *r = l->r;
    const char *heading = r->cells, *cell = heading;
    size_t indent = 0;
    int at = r->first;
    do {
        const size_t width = text_columns(text_of(cell)) + GAP;
        indent = l->columns[at].filled && width > indent ? width : indent;
        cell = cell_after(cell);
        at = report_next_column(r, at);
    } while (at != r->first);
    const size_t width = width_of_last(r->out, indent);
    do {
        if (l->columns[at].filled) {
            struct text rest = text_of(cell);
            output_puts(r->out, heading);
            output_repeat(r->out, ' ', indent - text_columns(text_of(heading)));
            output_put(r->out, paragraph_line(&rest, width, r->fields[at].list));
            output_puts(r->out, "\n");
            put_below(l, at, rest, indent, width);
        }
        heading = cell_after(heading);
        cell = cell_after(cell);
        at = report_next_column(r, at);
    } while (at != r->first);
}

static void print_rows(const struct layout *l)
{
    const char *cell = print_row(l, l->r->cells, true);
    if (l->r->format == TABLE_MD)
        print_rule(l);
    while (cell < l->r->cells + l->r->cells_len)
        cell = print_row(l, cell, false);
    if (l->n_left_out > 0)
        name_left_out(l);
}

void report_print_table(struct report *r)
{
    struct layout l = {.r = r, .columns = calloc((size_t)r->n_fields, sizeof *l.columns)};
    r->no_memory = r->no_memory || !l.columns;
    if (!r->no_memory) {
        measure_columns(&l);
        const bool fitted = r->format == TABLE_ALIGNED && r->out->columns > 0;
        if (fitted && l.n_rows == 1 && !fits(&l)) {
            print_downwards(&l);
        } else {
            if (fitted)
                fit_columns(&l);
            print_rows(&l);
        }
    }
    free(l.columns);
}
