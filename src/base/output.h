/*
 * output - a buffered stream of text to wherever its owner sends it.
 *
 * Everything that shows something writes here. The first failure is kept and later bytes are
 * dropped: output_flush tells, so a full disk or a closed pipe never passes for success.
 */
#pragma once

#include "base/file.h"
#include "base/text.h"

struct output {
    /* Sends len >= 1 bytes on; false if it could not. The owner defines it, and has this struct as
     * the first member of its own. */
    bool (*send)(struct output *o, const char *bytes, size_t len);
    bool failed; /* sticky */
    /* The width of the terminal that shows it, to which tables keep; 0: there is none, or lines are
     * not to be broken. */
    int columns;
    bool terminal; /* whether it ends at a terminal, which texts must not command */
    size_t len;
    char buffer[8192];
};

void output_init(struct output *o, bool (*send)(struct output *, const char *, size_t));

void output_put(struct output *o, struct text bytes);
void output_puts(struct output *o, const char *s);
void output_printf(struct output *o, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most 1023 bytes a call */
void output_repeat(struct output *o, char c, size_t n);

/* Sends what is buffered. Returns false if that or any earlier byte could not be written. */
bool output_flush(struct output *o);

/* An output that ends in a file. */
struct file_output {
    struct output out; /* first */
    struct file_writer *writer;
};

/* Begins an output that goes nowhere until the file is open, so that a picture can be measured by
 * drawing it. */
void file_output_init(struct file_output *f);

/* Opens the output; on success file_output_commit is due, which replaces the file at `path`. The
 * failures of file_writer_open and file_writer_commit. */
enum status file_output_open(struct file_output *f, const char *path, struct err *e);
enum status file_output_commit(struct file_output *f, struct err *e);
