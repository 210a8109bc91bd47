/*
 * npy - writes an array of float32 as a NumPy file, row by row.
 *
 * Format version 1.0, little-endian on every machine, C order, header padded to 64 bytes. Once as
 * many values as the shape has are put, file_writer_commit ends the file.
 *
 * Source: NumPy's format description (numpy.lib.format).
 */
#pragma once

#include <stdint.h>

#include "base/replace.h"

#define NPY_MAX_DIMS 4

/* An array of 2 to NPY_MAX_DIMS dimensions (asserted). The failures of file_writer_open. */
enum status npy_open(struct file_writer **out, const char *path, const uint64_t *shape, int n_dims,
                     struct err *e);

/* The next n values. */
void npy_put(struct file_writer *w, const float *values, size_t n);
