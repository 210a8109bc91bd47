/*
 * stages - the steps that a block's two parts are made of: rows for a product to read, the product,
 * and the end of a residual.
 *
 * All threads of a batch call each of these, with a worker of their own. None allocates or fails.
 */
#pragma once

#include "engine/private.h"

/* out [d_model] = norm of x [d_model]; out may be x. */
void stage_norm(const struct forward *f, const struct norm *norm, const float *x, float *out);

/* Makes this thread's rows of what a product reads [n_rows, d_model] in a buffer of the workspace
 * that has room for such rows, `stride` floats for each of a thread's own, and returns where all
 * begin: the norm of work.x, or, where norms stand after the residuals, work.x itself. */
const float *stage_input(const struct worker *k, const struct norm *norm, float *buffer,
                         int stride);

/* Adds the product of rows x to work.x, or, where what is added is normed first, leaves it in
 * work.added for stage_end_residual. */
void stage_add(const struct worker *k, const struct matrix *w, const float *x);

/* Ends a residual: threads meet; what is in work.added is added to work.x with its norm `added`;
 * and where norms stand after the residuals work.x becomes its norm `after`. It is complete on
 * return. `sums` [n_rows, d_model] (NULL: not wanted) gets the thread's rows before that last norm.
 */
void stage_end_residual(const struct worker *k, const struct norm *added, const struct norm *after,
                        float *sums);

/* The product y = epilogue(w x) of rows x [n_rows, w->n_in] as the kernel takes it; this thread's
 * rows of x are made, and are quantised here if w is. Threads meet if rows are shared. The matmul
 * borrows all of its pointers. */
struct matmul stage_product(const struct worker *k, const struct matrix *w, const float *x,
                            float *y, enum epilogue epilogue);

/* The panels of w for this thread to multiply by, a few at a time where w is so large that the
 * threads wait for memory. All of a batch's threads ask. */
struct pool_items stage_panels(const struct worker *k, const struct matrix *w);

/* Computes panels of that product, columns of y [n_rows, w->n_out], until none is left. Other
 * threads may still be at work on theirs; y is complete once the threads have met. */
void stage_multiply(const struct worker *k, const struct matrix *w, const float *x, float *y,
                    enum epilogue epilogue);

/* Copies the rows of n floats to the buffer of a tap, if there is one. No thread may write the rows
 * meanwhile. */
void stage_tap(const struct worker *k, enum block_tap tap, const float *rows, int n);
