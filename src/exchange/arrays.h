/*
 * arrays - checkpoints of one file without names: a header of numbers, then arrays, one for each
 * role, in which the tensors of all layers stand one after another. What the readers of llama2.c's
 * and llm.c's files share.
 */
#ifndef DECODE_EXCHANGE_ARRAYS_H
#define DECODE_EXCHANGE_ARRAYS_H

#include "base/text.h"
#include "exchange/import_source.h"

#define ARRAYS_MAX 16

/* Tensors of one role; `rows` may be more than a checkpoint has of it. */
struct array {
    enum tensor_role role;
    bool is_bias;
    uint32_t type; /* enum tensor_type, or VIEW_INT8: each tensor's elements, then its factors */
    int rows, cols;
    uint64_t offset; /* of the first layer's in the file */
    uint64_t bytes;  /* of one layer's */
};

/* Borrows the file. */
struct arrays {
    struct import_source source;
    struct text file;
    struct array list[ARRAYS_MAX];
    int n;
    int group;    /* of VIEW_INT8 */
    uint64_t end; /* of the last array: where the next begins */
};

/* Takes `n` numbers, the int32 that stood one after another from byte `at` on, into a config: each
 * from 1 to its most. STATUS_BAD_FILE names it. */
struct header_number {
    const char *name;
    size_t offset; /* of an int in struct config */
    int max;
};
enum status arrays_numbers(const int32_t *values, size_t at, const struct header_number *numbers,
                           int n, struct config *c, struct err *e);

/* The int32s [n] at a byte of the file, which has that many (asserted). */
void arrays_ints(struct text file, size_t at, int n, int32_t *out);

/* STATUS_BAD_FILE if the file is shorter than its header. */
enum status arrays_header(struct text file, size_t bytes, struct err *e);

/* Begins with a complete config of uniform K/V heads behind a header of that many bytes. */
void arrays_begin(struct arrays *a, struct text file, size_t header, const struct config *c);

/* The next array. `rows`: of each tensor in the file, if they are not the spec's; else 0. */
void arrays_add(struct arrays *a, enum tensor_role role, bool is_bias, uint32_t type, int rows);

/* Bytes behind the last array that are of no tensor. */
void arrays_skip(struct arrays *a, uint64_t bytes);

/* Whether the file ends where the arrays do. `format`: what it would be, for the message. */
enum status arrays_end(const struct arrays *a, const char *format, struct err *e);

#endif
