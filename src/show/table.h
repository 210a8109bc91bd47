/*
 * table - rows of figures, printed for people or for programs.
 *
 * The caller names the columns, then adds cells row by row. The aligned and the Markdown form are
 * for people and show numbers rounded; CSV and JSON give them exactly. Those two, and JSON lines,
 * are sent out as each row ends; a table for people is stored until table_end.
 */
#ifndef DECODE_SHOW_TABLE_H
#define DECODE_SHOW_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "show/json.h"
#include "show/output.h"

/* In the order of table_formats. */
enum table_format { TABLE_ALIGNED, TABLE_MD, TABLE_CSV, TABLE_JSON, TABLE_JSONL };

/* "table", "md", "csv", "json", "jsonl", NULL: the choices of --format. */
extern const char *const table_formats[];

static inline bool table_is_json(enum table_format format)
{
    return format == TABLE_JSON || format == TABLE_JSONL;
}

static inline bool table_is_for_people(enum table_format format)
{
    return format == TABLE_ALIGNED || format == TABLE_MD;
}

struct table_column {
    const char *name; /* heading, CSV heading and JSON key */
    bool left;        /* text; numbers are aligned right */
};

struct table {
    const struct table_column *columns; /* borrowed */
    int n_columns;
    enum table_format format;
    struct output *out;
    int at;           /* the next cell's column */
    bool no_memory;   /* sticky */
    struct json json; /* of TABLE_JSON and TABLE_JSONL */
    /* Of TABLE_ALIGNED and TABLE_MD: headings and cells as zero-terminated texts, one after
     * another. */
    char *cells;
    size_t cells_len, cells_cap;
};

/* `columns` is borrowed until table_end. */
void table_begin(struct table *t, enum table_format format, const struct table_column *columns,
                 int n_columns, struct output *out);

/* One cell each, left to right; the row ends with the last column. */
void table_text(struct table *t, struct text bytes);
void table_string(struct table *t, const char *s);
void table_u64(struct table *t, uint64_t x);
/* For people as printf's `format` has it; NaN and infinities are as table_null. */
void table_double(struct table *t, double x, const char *format);
void table_null(struct table *t); /* an empty cell, or null */

/* Prints what is left and frees everything, after whole rows. STATUS_NO_MEMORY if some
 * cell could not be stored. */
enum status table_end(struct table *t, struct err *e);

#endif
