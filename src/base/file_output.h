/*
 * file_output - an output that ends in a file.
 */
#ifndef DECODE_BASE_FILE_OUTPUT_H
#define DECODE_BASE_FILE_OUTPUT_H

#include "base/file.h"
#include "base/output.h"
#include "base/status.h"

struct file_output {
    struct output out; /* first */
    struct file_writer *writer;
};

/* What is put before the file is open goes nowhere: a picture is measured by drawing it. */
void file_output_init(struct file_output *f);

/* The file at `path` is replaced when file_output_commit, due after success, succeeds. The failures
 * of file_writer_open and file_writer_commit. */
enum status file_output_open(struct file_output *f, const char *path, struct err *e);
enum status file_output_commit(struct file_output *f, struct err *e);

#endif
