/*
 * latent - a cache of one vector a position, which all heads of the block in work take as key and
 * as value.
 *
 * c = x B of R numbers takes the place of all keys and values. What a head's queries can tell of
 * its keys, and its rows of the output matrix of its values, is a positive form on inputs; B is
 * where the sum of all these, scores and outputs each as a share of their own, is best kept: the
 * leading eigenvectors of C^T W C, with C C^T the inputs' covariance and W the sum. Keys and values
 * come back from c by least squares. (Joint principal components of keys and values, weighted as in
 * convert/work.h.)
 */
#ifndef DECODE_CONVERT_LATENT_H
#define DECODE_CONVERT_LATENT_H

#include "convert/work.h"

/* Of the block in work, for every rank: those of rank R are the first R rows, or columns. */
struct convert_latent {
    double *basis;  /* [d, d] rows of B^T */
    double *shift;  /* [d] the bias that takes the mean away */
    double *k_b;    /* [d, q_dim]: of row r the elements of all heads */
    double *v_b;    /* [d, heads_dim] likewise */
    double *values; /* [d] eigenvalues */
    double *root, *form, *product, *scratch;
};

void convert_latent_take(struct converter *c, struct arena *arena);

/* Fills in c->latent and `to`, after convert_measure. False if the eigenproblem diverged. */
bool convert_latent_fit(struct converter *c);

/* Shares of the energy of scores, and of outputs head by head, that rank R loses. */
void convert_latent_losses(const struct converter *c, int rank, double *score, double *output);

#endif
