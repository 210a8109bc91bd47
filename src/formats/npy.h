/*
 * npy - writes an array of float32 as a NumPy file, row by row.
 *
 * The file is of format version 1.0, little-endian, in C order. Source: NumPy's format description
 * (numpy.lib.format).
 */
#pragma once

#include <stdint.h>

#include "base/file.h"

#define NPY_MAX_DIMS 4

/* Opens the file of an array of 2 to NPY_MAX_DIMS dimensions (asserted) and writes the header. The
 * caller puts as many values as the shape has with file_writer_put, then calls file_writer_commit.
 * The failures of file_writer_open. */
enum status npy_open(struct file_writer **out, const char *path, const uint64_t *shape, int n_dims,
                     struct err *e);
