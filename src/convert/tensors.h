/*
 * tensors - tensors of the checkpoint to double and back, and the new file.
 */
#ifndef DECODE_CONVERT_TENSORS_H
#define DECODE_CONVERT_TENSORS_H

#include "convert/work.h"

/* A new tensor, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    struct tensor_name name;
    unsigned char *bytes;
    bool added; /* the checkpoint has none of this name */
};

/* Those of a layer. */
struct convert_tensors {
    struct convert_pair {
        struct convert_tensor weight, bias;
    } qkv, out;
};

/* Takes c->tensors, or counts them. */
void convert_tensors_take(struct converter *c, struct arena *arena);

/* `from` of a layer. */
void convert_load(struct converter *c, int layer);

/* Rounds `to`, whose heads are in their new order, to the tensors' types. STATUS_FAILED if a number
 * is not finite, or is not any more. */
enum status convert_store_qkv(struct converter *c, int layer, struct err *e);
enum status convert_store_out(struct converter *c, int layer, struct err *e);

/* A writer that holds the new file, and its tensors' elements. */
enum status convert_write(const struct converter *c, struct gguf_writer **out, uint64_t *n_params,
                          struct err *e);

#endif
