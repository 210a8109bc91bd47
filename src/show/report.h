/*
 * report - structs printed in every form from one list of their fields.
 *
 * A field says which member of a struct it is, what programs call it, and how people read it; the
 * aligned table, Markdown, CSV, JSON and JSON lines all come from that list. Programs get the
 * member itself, people its rounded form. Rows are borrowed for the call only.
 */
#ifndef DECODE_SHOW_REPORT_H
#define DECODE_SHOW_REPORT_H

#include "show/figures.h"
#include "show/json.h"
#include "show/table.h"

/* The types of members. */
enum report_type {
    REPORT_INT,    /* int >= 0 */
    REPORT_COUNT,  /* int64_t; negative: no value */
    REPORT_U64,    /* uint64_t */
    REPORT_DOUBLE, /* double; NaN and infinities: no value */
    REPORT_BOOL,   /* bool; in JSON only */
    REPORT_TEXT,   /* struct text; empty: no value if the field has a `none` */
    REPORT_STRING, /* const char *; NULL: no value */
    REPORT_CHARS,  /* char[], zero-terminated */
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
    const char *none; /* in tables, where there is no value; NULL: an empty cell. JSON: null */
    bool right;       /* a text that is aligned right, as numbers are */
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
        char *: REPORT_CHARS),                                                                     \
        .offset = offsetof(struct tag, member)

#define REPORT_MAX_FIELDS     32
#define REPORT_LENGTH(fields) ((int)(sizeof(fields) / sizeof *(fields)))

struct report {
    struct table table;
    const struct report_field *fields;
    int n_fields;
    struct table_column columns[REPORT_MAX_FIELDS]; /* of the fields that the form shows */
};

/* A table of structs; `fields` [n_fields] is borrowed until report_end. */
void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, struct output *out);
void report_row(struct report *r, const void *row);
/* As table_end. */
enum status report_end(struct report *r, struct err *e);

/* What the form calls the field; NULL: it does not show it. */
const char *report_name(enum table_format format, const struct report_field *f);

/* The one field as a cell of some other table. */
void report_cell(struct table *t, const struct report_field *f, const void *row);

/* Rows "heading, value" of one struct in a two-column table for people, without the fields that
 * have neither a value nor a `none`. */
void report_properties(struct table *t, const struct report_field *fields, int n_fields,
                       const void *row);

/* The fields with keys, as members of the innermost object. */
void report_members(struct json *j, const struct report_field *fields, int n_fields,
                    const void *row);
/* The same in an object of their own. */
void report_object(struct json *j, const char *key, const struct report_field *fields, int n_fields,
                   const void *row);
/* One field as a member of any name. */
void report_member(struct json *j, const char *key, const struct report_field *f, const void *row);

#endif
