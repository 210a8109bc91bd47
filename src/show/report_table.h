/*
 * report_table - the aligned or Markdown table of a report's stored cells (private to report).
 */
#ifndef DECODE_SHOW_REPORT_TABLE_H
#define DECODE_SHOW_REPORT_TABLE_H

#include "show/report.h"

const char *report_column_name(const struct report *r, int at);

/* The next field that the form shows, after the last one the first; -1 comes before the first. */
int report_next_column(const struct report *r, int at);

/* Prints what is stored, of an aligned table the columns that fit; or sets no_memory. */
void report_print_table(struct report *r);

#endif
