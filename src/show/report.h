/*
 * report - rows of figures in every form: aligned or Markdown for people, CSV or JSON for programs.
 *
 * The columns are fields. A field says which member of a struct it is, what programs call it, and
 * how people read it: a row is a struct, or cells one by one. Programs get numbers exactly, people
 * rounded. Rows are borrowed for the call only. CSV, JSON and JSON lines are sent out as each row
 * ends; a table for people is stored until report_end. One that is wider than the terminal that
 * shows it is printed without its least important columns, and says which.
 */
#ifndef DECODE_SHOW_REPORT_H
#define DECODE_SHOW_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/figures.h"
#include "base/output.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/json.h"

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

/* The types of members. */
enum report_type {
    REPORT_INT,    /* int >= 0 */
    REPORT_COUNT,  /* int64_t; negative: no value */
    REPORT_U64,    /* uint64_t */
    REPORT_DOUBLE, /* double; NaN and infinities: no value */
    REPORT_BOOL,   /* bool: true or false */
    REPORT_TEXT,   /* struct text; without data, or empty if the field has a `none`: no value */
    REPORT_STRING, /* const char *; NULL: no value */
    REPORT_CHARS,  /* char[], zero-terminated */
    REPORT_LIST,   /* struct report_list: of programs alone, so that `heading` is NULL. JSON has an
                      array of objects, CSV columns key1_a, key1_b, key2_a, ... for `most` items */
};

/* Structs in a row of another struct. */
struct report_list {
    const void *items; /* [n] */
    int n;
};

/* What is set off on a terminal of colours, where the column's cell is not empty. */
enum report_accent {
    ACCENT_NONE,
    ACCENT_ROW,  /* the whole row: the best */
    ACCENT_CELL, /* the cell: a warning */
};

struct report_field {
    const char *key;     /* JSON key and CSV heading; NULL: not for programs */
    const char *heading; /* NULL: not for people */
    enum report_type type;
    size_t offset; /* in the row's struct */
    /* How people read a number: a double as printf's `format` has it, or any as a figure, or an
     * integer with its thousands apart or as it is. */
    const char *format;
    struct figure (*figure)(double x);
    bool grouped;
    const char *none; /* for people, where there is no value; NULL: an empty cell, as in CSV. JSON:
                         null */
    bool right;       /* a text that is aligned right, as numbers are */
    bool list;        /* a text that is broken into lines behind its commas only */
    bool bytes;       /* a text that JSON has the "bytes" of, too, if it is not UTF-8 */
    int rank;         /* of a table wider than its terminal the highest rank is left out first; 0:
                         never */
    enum report_accent accent;
    /* Of a REPORT_LIST: its items' fields, an item's size, and the most that a row has. */
    const struct report_field *items;
    int n_items, most;
    size_t item_size;
};

/* A field's type and offset: those of a member of struct `tag`. */
#define MEMBER(tag, member)                                                                        \
    .type = _Generic(((struct tag *)0)->member,                                                    \
        int: REPORT_INT,                                                                           \
        int64_t: REPORT_COUNT,                                                                     \
        uint64_t: REPORT_U64,                                                                      \
        double: REPORT_DOUBLE,                                                                     \
        bool: REPORT_BOOL,                                                                         \
        struct text: REPORT_TEXT,                                                                  \
        const char *: REPORT_STRING,                                                               \
        char *: REPORT_CHARS,                                                                      \
        struct report_list: REPORT_LIST),                                                          \
        .offset = offsetof(struct tag, member)

#define REPORT_LENGTH(fields) ((int)(sizeof(fields) / sizeof *(fields)))

struct report {
    const struct report_field *fields; /* borrowed */
    int n_fields;
    enum table_format format;
    struct output *out;
    int n_columns, at; /* cells of a row, and of them the next one; JSON has none */
    bool no_memory;    /* sticky */
    struct json json;  /* of TABLE_JSON and TABLE_JSONL */
    /* Of TABLE_ALIGNED and TABLE_MD: headings and cells as zero-terminated texts, one after
     * another. */
    struct bytes cells;
    size_t n_cells;
};

/* `fields` [n_fields] is borrowed until report_end; the form shows at least one. */
void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, struct output *out);
void report_row(struct report *r, const void *row);

/* One cell each of any form but JSON, left to right; the row ends with the last column. */
void report_text(struct report *r, struct text bytes);
void report_string(struct report *r, const char *s);
/* A member of a struct, whatever the column. */
void report_cell(struct report *r, const struct report_field *f, const void *row);

/* For people, of a table of two columns: a row of each field that has a value, its heading and what
 * the member of the struct is. */
void report_lines(struct report *r, const struct report_field *fields, int n_fields,
                  const void *row);

/* Prints what is left and frees everything, after whole rows. STATUS_NO_MEMORY if some
 * cell could not be stored. */
enum status report_end(struct report *r, struct err *e);

/* What the form calls the field; NULL: it does not show it. */
const char *report_name(enum table_format format, const struct report_field *f);

/* The fields with keys, as members of the innermost object. */
void report_members(struct json *j, const struct report_field *fields, int n_fields,
                    const void *row);
/* The same in an object of their own. */
void report_object(struct json *j, const char *key, const struct report_field *fields, int n_fields,
                   const void *row);
/* One field as a member of any name. */
void report_member(struct json *j, const char *key, const struct report_field *f, const void *row);

#endif
