/*
 * drop - a checkpoint without some of its heads.
 */
#pragma once

#include "convert/convert.h"
#include "formats/gguf_write.h"

/*
 * The model computes what a session does that leaves these heads out (engine/session.h). Their rows
 * of Q and columns of the output matrix go, and with the last of a K/V head's query heads its rows
 * of K and V. Where a file cannot say what would be left, columns become zero instead, which is the
 * same to the last bit where weights are not quantised: of ALiBi, whose slopes follow the number of
 * heads, and of so many heads of a group that all groups of a layer stay as large as its largest,
 * of one head at least.
 *
 * Architecture llama stays as it is if all layers lose as many; else the file becomes one of
 * architecture decode.
 */
struct drop_spec {
    const struct gguf *gguf;  /* the checkpoint */
    const unsigned char *off; /* [n_layers, n_heads] of its config: 1 for those to be dropped */
    const char *names;        /* of these, "0.3,2.1", for the metadata */
    const char *version;      /* of the program, likewise */
};

/* What becomes of a head. */
enum drop_fate { DROP_STAYS, DROP_ZERO, DROP_GONE };

/* The new checkpoint: gguf_write or gguf_write_memory is left. */
struct drop {
    struct config before, config; /* of the old one and of the new */
    unsigned char *fates;         /* [n_layers, n_heads] of the old one, an enum drop_fate */
    int n_zero, n_gone;
    uint64_t n_params_before, n_params_after; /* elements of all tensors */
    struct gguf_writer *writer;
    struct arena arena; /* of the new tensors */
};

/* Tensors that do not change are spec->gguf's own, and so are neighbours in a quantised block, but
 * in an output matrix whose columns that stay are no whole blocks: that becomes F16. drop_free is
 * due on success. STATUS_USAGE for layers that share one block, where a head of one is one of all;
 * STATUS_BAD_FILE for what is no model that runs; STATUS_NO_MEMORY. */
enum status drop_heads(const struct drop_spec *spec, struct drop *out, struct err *e);
void drop_free(struct drop *d); /* legal on a zeroed struct and twice */
