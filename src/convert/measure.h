/*
 * measure - second moments of a block's circuits, and what a conversion loses of their products.
 */
#ifndef DECODE_CONVERT_MEASURE_H
#define DECODE_CONVERT_MEASURE_H

#include "convert/work.h"

/* All of both circuits that follows from weights and moments. */
void convert_measure(struct converter *c);

/* Row i of the gram between the cached factors of heads g and h. */
const double *convert_gram_row(const struct converter *c, const struct convert_circuit *s, int g,
                               int i, int h);

/* Share of the squared error of score or output that remains; before a refit. */
double convert_score_loss(struct converter *c);
double convert_output_loss(struct converter *c);

#endif
