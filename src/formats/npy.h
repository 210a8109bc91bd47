/*
 * npy - writes an array of float32 as a NumPy file, row by row.
 *
 * Format version 1.0, little-endian on every machine, C order, header padded to 64 bytes. Values
 * follow by file_writer_put; once there are as many as the shape has, file_writer_commit ends the
 * file.
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
