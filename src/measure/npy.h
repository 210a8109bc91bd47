/*
 * npy - writes an array of float32 as a NumPy file, row by row.
 *
 * Format version 1.0, little-endian on every machine, C order, header padded to 64 bytes. The
 * file appears whole at npy_commit or not at all.
 *
 * Source: NumPy's format description (numpy.lib.format).
 */
#ifndef DECODE_MEASURE_NPY_H
#define DECODE_MEASURE_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct npy_writer;

#define NPY_MAX_DIMS 4

/* An array of 2 to NPY_MAX_DIMS dimensions (asserted). The failures of file_writer_open, or
 * STATUS_NO_MEMORY; then *out is NULL. */
enum status npy_open(struct npy_writer **out, const char *path, const uint64_t *shape, int n_dims,
                     struct err *e);

/* The next n values. */
void npy_put(struct npy_writer *w, const float *values, size_t n);

/* Frees w in any case. STATUS_FAILED if the file could not be written, or if another number of
 * values than the shape has was put. */
enum status npy_commit(struct npy_writer *w, struct err *e);
void npy_abandon(struct npy_writer *w); /* NULL is legal; no file is left */

#endif
