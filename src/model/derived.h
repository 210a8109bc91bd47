/*
 * derived - models made of another's weights, which they borrow as far as they are the same: that
 * model must outlive them. model_free is due as for any.
 */
#ifndef DECODE_MODEL_DERIVED_H
#define DECODE_MODEL_DERIVED_H

#include "compute/pool.h"
#include "model/model.h"

/*
 * The same with its matrices in another type; those that take no more bytes as they are, or
 * cannot be stored so, stay, and so does the embedding, of which a token reads one row (an output
 * that was tied to it becomes a matrix of its own). `pool` (NULL: one thread) does it. STATUS_USAGE
 * where none would change; STATUS_NO_MEMORY.
 */
enum status derived_create_packed(const struct model *m, enum storage storage, struct pool *pool,
                                  struct model **out, struct err *e);

/* The first n_layers layers, then the last norm and the output. STATUS_USAGE unless there are more;
 * STATUS_NO_MEMORY. */
enum status derived_create_cut(const struct model *m, int n_layers, struct model **out,
                               struct err *e);

#endif
