/*
 * report - rows of figures in every form: aligned or Markdown for people, CSV or JSON for programs.
 *
 * A column is a field: a member of the row's struct, what programs call it, and how people read it.
 * Programs get exact numbers, row by row. A table for people is stored until report_end; where it
 * is wider than its terminal, columns of details are left out, and a line below names them.
 */
#pragma once

#include "base/figures.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/json_write.h"

/* In the order of table_formats. */
enum table_format { TABLE_ALIGNED, TABLE_MD, TABLE_CSV, TABLE_JSON, TABLE_JSONL };

/* "table", ..., "jsonl", NULL: the choices of --format. */
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
    REPORT_TEXT, /* struct text; without data: no value, and empty: none if the field has `none` */
    REPORT_STRING, /* const char *; NULL: no value */
    REPORT_CHARS,  /* char[], zero-terminated */
    REPORT_LIST,   /* struct report_list, without a heading: in JSON an array of objects, in CSV
                      columns key1_a, key1_b, key2_a, ... for `most` items */
};

/* Structs in a row of another struct. */
struct report_list {
    const void *items; /* [n] */
    int n;
};

struct report_field {
    const char *key;     /* JSON key and CSV heading; NULL: not for programs */
    const char *heading; /* NULL: not for people */
    enum report_type type;
    size_t offset;                     /* in the row's struct */
    const char *format;                /* printf's, of a double for people */
    struct figure (*figure)(double x); /* how people read any number; NULL: by `format` */
    bool grouped;                      /* people read an integer's thousands apart */
    const char *none; /* what people read where there is no value; NULL: an empty cell, as in CSV */
    bool right;       /* a text is aligned right, as numbers are */
    bool list;        /* a text is broken into lines only behind its commas */
    bool bytes;       /* JSON also has the "bytes" of a text that is not UTF-8 */
    unsigned when;    /* bits of the caller's: the reports that show one of them have the field; 0:
                         all have it */
    bool detail; /* a table that is wider than its terminal leaves it out; the last one first */
    /* Of a REPORT_LIST. */
    const struct report_field *items; /* [n_items] the fields of an item */
    int n_items, most;
    size_t item_size;
};

/* Sets a field's type and offset to those of a member of struct `tag`. */
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

struct report {
    const struct report_field *fields; /* borrowed */
    int n_fields;
    unsigned shown; /* see report_field's `when` */
    enum table_format format;
    struct output *out;
    bool in_line;     /* the line of CSV has a cell already */
    bool no_memory;   /* sticky */
    struct json json; /* of TABLE_JSON and TABLE_JSONL; the other forms have columns */
    struct report_column {
        const struct report_field *field;
        size_t width;
        bool left;     /* aligned, as texts are */
        bool left_out; /* of the table, as it is too wide */
    } * columns;       /* [n] malloc'd */
    int n;
    /* Of a table for people. */
    struct bytes cells; /* headings and cells, zero-terminated, one after another */
    size_t n_cells;
    int last;   /* the last column that is not left out */
    bool below; /* its texts stand in lines of their own, below their rows */
    size_t pad; /* spaces that stand before what is put next in a line, if anything is */
};

/* Begins a report. `fields` is borrowed until report_end; at least one of them is shown. */
void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, unsigned shown, struct output *out);
void report_row(struct report *r, const void *row);

/* Ends a report behind a whole row: prints what is left and frees everything. STATUS_NO_MEMORY. */
enum status report_end(struct report *r, struct err *e);

/* A table of rows in an array. */
struct table {
    const struct report_field *fields; /* [n] */
    int n;
    unsigned shown;   /* see report_field's `when` */
    const void *rows; /* [n_rows], of row_bytes each */
    int n_rows;
    size_t row_bytes;
};

#define TABLE_OF(columns, array, length)                                                           \
    (struct table)                                                                                 \
    {                                                                                              \
        .fields = columns, .n = LENGTH(columns), .rows = array, .n_rows = length,                  \
        .row_bytes = sizeof *(array)                                                               \
    }

/* Prints a table. STATUS_NO_MEMORY. */
enum status table_print(const struct table *t, enum table_format format, struct output *out,
                        struct err *e);

/* Writes the fields with keys as an object, the item of an array. */
void report_object(struct json *j, const struct report_field *fields, int n_fields, unsigned shown,
                   const void *row);
/* Writes one field as a member of any name. */
void report_member(struct json *j, const char *key, const struct report_field *f, const void *row);
