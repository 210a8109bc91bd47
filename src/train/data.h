/*
 * data - the texts as tokens, and windows of them.
 */
#ifndef DECODE_TRAIN_DATA_H
#define DECODE_TRAIN_DATA_H

#include "text/tokenizer.h"
#include "train/spec.h"

struct tokens {
    int32_t *ids; /* malloc'd */
    size_t n;
    size_t n_bytes; /* that they stand for */
};

struct train_data {
    struct tokens train, val;
    uint64_t hash; /* of all ids */
};

/* Splits each text and encodes the parts. `d` is for train_data_free in any case. */
enum status train_data_read(struct train_data *d, const struct train_spec *spec,
                            const struct tokenizer *t, struct err *e);
void train_data_free(struct train_data *d);

/* The bytes of a text that are not held out. */
size_t train_part(double val_fraction, size_t len);

/* STATUS_USAGE, with the least length, if a part has no whole window. */
enum status train_data_check(const struct train_data *d, const struct train_spec *spec,
                             struct err *e);

/* Writes the window that starts at token `start` as row `row` of a batch. */
void train_data_window(const struct tokens *t, size_t start, int row, int length, int32_t *inputs,
                       int32_t *targets);

#endif
