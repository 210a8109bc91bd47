/*
 * sheet - all about one thing: properties, and tables below them.
 *
 * For people the first table has the properties that have a value. JSON is one object with a member
 * for each property and each table. CSV has room for one table, and no properties.
 */
#pragma once

#include "show/report.h"

/* More than any sheet has; asserted. */
#define SHEET_PROPERTIES 64

struct sheet {
    struct sheet_property {
        const char *object; /* the JSON object that has it as a member; NULL: the whole */
        const char *key;
        bool is_literal;   /* in JSON: a number, true or false */
        struct text value; /* borrowed; without data: none */
    } properties[SHEET_PROPERTIES];
    char digits[SHEET_PROPERTIES][24]; /* of those that are numbers */
    int n_properties;
    const char *object; /* of the properties that are added next */
};

/* Add a property to a sheet, which is zeroed at first; texts are borrowed. */
void sheet_text(struct sheet *s, const char *key, struct text value);
void sheet_string(struct sheet *s, const char *key, const char *value); /* NULL: none */
void sheet_bool(struct sheet *s, const char *key, bool value);
/* An integer is written as it is, another number to a float's digits. NaN and numbers below 0 are
 * none. */
void sheet_number(struct sheet *s, const char *key, double value);

struct sheet_table {
    const char *key; /* of the JSON array of its rows; NULL: JSON has an object for each field but
                        the first, with a member for each row, named by the first field, a string */
    struct table table; /* left out if it has no rows */
    bool in_csv;        /* CSV is the last table with rows that has this set */
};

/* Prints the sheet with n tables. STATUS_NO_MEMORY. */
enum status sheet_print(const struct sheet *s, const struct sheet_table *tables, int n,
                        enum table_format format, struct output *out, struct err *e);
