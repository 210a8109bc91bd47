/*
 * drop - a checkpoint without some of its heads: their columns of the output matrix are zero.
 *
 * Nothing else changes: a head still attends, but what it finds is multiplied by zero, so the model
 * computes what it does where a session leaves these heads out (engine/session.h, zeros), to the
 * same bits where weights are not quantised.
 */
#ifndef DECODE_CONVERT_DROP_H
#define DECODE_CONVERT_DROP_H

#include "base/mem.h"
#include "gguf/gguf.h"

struct drop_spec {
    const struct gguf *gguf;  /* the checkpoint */
    const unsigned char *off; /* [n_layers, n_heads] of its config: 1 for those to be dropped */
    const char *names;        /* of these, "0.3,2.1", for the metadata */
    const char *version;      /* of the program, likewise */
};

/* The new checkpoint: gguf_write or gguf_write_memory is left. */
struct drop {
    struct gguf_writer *writer;
    struct arena arena; /* of the new tensors */
};

/*
 * Other tensors are spec->gguf's own; drop_free is due on success. Elements of every type that runs
 * become exactly 0, and their neighbours in a quantised block stay as they are. STATUS_USAGE for a
 * checkpoint whose layers share one block, where a head of one layer is one of every layer;
 * STATUS_BAD_FILE for one that is no model that runs; STATUS_NO_MEMORY.
 */
enum status drop_heads(const struct drop_spec *spec, struct drop *out, struct err *e);
void drop_free(struct drop *d); /* legal on a zeroed struct and twice */

#endif
