/*
 * view - a tensor made of the bytes of another file while it is written: rows in another order,
 * transposed, repeated, in another type.
 *
 * Nothing is rounded: a view is of the type of what it is made of, or F32. Sources may be larger
 * than memory and lie at any address; a view is made a few rows at a time.
 */
#ifndef DECODE_EXCHANGE_VIEW_H
#define DECODE_EXCHANGE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "gguf/gguf.h"

/* Rows [n][p][q][m] of a source become rows [n][q][p][m]; n follows from the number of rows. Zero:
 * they stay as they are. */
struct row_swap {
    int p, q, m;
};

/* int8 with a float32 factor for each `group` elements of the whole tensor: llama2.c's. */
#define VIEW_INT8 0x10000u

/* Rows that stand in one source. */
struct view_part {
    const struct file_map *file;  /* that it is in: its pages are released when the next view is
                                     made;  NULL: they stay */
    const unsigned char *data;    /* of the source, a matrix [source_rows, cols] */
    uint32_t type;                /* enum tensor_type of the five that blocks_runs, or VIEW_INT8 */
    const unsigned char *factors; /* of VIEW_INT8 */
    int group;
    int source_rows;
    bool transposed; /* the source is stored as [cols, source_rows]; then it is the only part, with
                        no swap, no copies, no type in blocks, and `transposes` is not set */
    int first, rows; /* which of its rows are taken */
    struct row_swap swap;  /* of those */
    int head_rows, copies; /* then each head_rows of them stand `copies` times; 0: once */
};

#define VIEW_PARTS 3

/* Memory in which one view after another is made; zeroed at first. */
struct view_maker {
    float *numbers, *span;
    unsigned char *bytes;
    size_t cap; /* elements of each */
    const struct view *last;
};
void view_maker_free(struct view_maker *m); /* legal on a zeroed struct and twice */

/* The rows of its parts, one part after another; zeroed at first. */
struct view {
    struct view_part parts[VIEW_PARTS];
    int n_parts;
    int cols;
    bool transposes; /* what is made is [cols, rows] */
    uint32_t type;   /* of what is made: that of its only source, or F32, F16 or BF16 */
    struct view_maker *maker;
};

/* The rows of all parts. */
int view_rows(const struct view *v);

/* The bytes of what is made from `offset` on, 0 or the end of a piece, as struct gguf_source wants
 * them: `view` is a struct view. STATUS_NO_MEMORY. */
enum status view_piece(void *view, uint64_t offset, const void **data, size_t *len, struct err *e);

#endif
