/*
 * sheet - what there is to say of one thing: properties, and tables below them.
 *
 * People read the properties that have a value as a table, then the other tables; JSON is one
 * object with a member for each property and each table; CSV, which has one table, is one of these.
 */
#pragma once

#include "show/report.h"

/* More than any sheet has; asserted. */
#define SHEET_PROPERTIES 64

struct sheet {
    struct sheet_property {
        const char *object; /* whose member it is in JSON; NULL: the whole's */
        const char *key;
        bool is_literal;   /* in JSON: a number, true or false */
        struct text value; /* borrowed; without data: none */
    } properties[SHEET_PROPERTIES];
    char digits[SHEET_PROPERTIES][24]; /* of those that are numbers */
    int n_properties;
    const char *object; /* of the properties that are added next */
};

/* Add a property, of a sheet that is zeroed at first; texts are borrowed. */
void sheet_text(struct sheet *s, const char *key, struct text value);
void sheet_string(struct sheet *s, const char *key, const char *value); /* NULL: none */
void sheet_bool(struct sheet *s, const char *key, bool value);
/* An integer, or to a float's digits; NaN and negative ones are none. */
void sheet_number(struct sheet *s, const char *key, double value);

struct sheet_table {
    const char *key;    /* in JSON an array of its rows; NULL: an object for each field behind the
                           first, a string, which names their members: one for each row */
    struct table table; /* without rows it is not there */
    bool in_csv;        /* CSV is the last of these */
};

/* Prints it with n tables. STATUS_NO_MEMORY. */
enum status sheet_print(const struct sheet *s, const struct sheet_table *tables, int n,
                        enum table_format format, struct output *out, struct err *e);
