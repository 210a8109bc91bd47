/*
 * tensors - tensors of the checkpoint to double and back, the new file, and the block that a
 * model would load of it.
 */
#pragma once

#include "convert/state.h"

/* A new tensor, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    struct tensor_name name;
    unsigned char *bytes; /* NULL: there is none of this name */
    bool changed;         /* once stored; else the checkpoint's own stays */
};

/* A block's, by role, weight and bias: Q, K and V are one or three, as in the checkpoint. */
struct convert_tensors {
    struct convert_tensor of[TENSOR_ROLES][2];
};

/* c->tensors [config_blocks] in c->out's arena. */
void convert_tensors_allocate(struct converter *c);

static inline struct convert_tensor *convert_new(const struct converter *c, enum tensor_role role,
                                                 bool is_bias)
{
    return &c->tensors[c->block.index].of[role][is_bias];
}

/* Reads `from`, and finds whether values can be centred, which needs a bias in the file. */
void convert_read(struct converter *c);

/* The sizes of the weights with so many K/V heads; and their memory. */
void convert_weights_size(const struct converter *c, union convert_weights *w, size_t n_kv_heads);
void convert_weights_allocate(struct converter *c, union convert_weights *w);

/* Rounds these weights of `to` to the tensors' types; a bias without a tensor is dropped.
 * STATUS_FAILED if a number is not finite, or is not any more. */
enum status convert_store(struct converter *c, enum convert_weight first, enum convert_weight end,
                          struct err *e);
/* Puts the trained biases of scores in the heads' new order. */
void convert_store_order(struct converter *c);

/* The memory of c->block.loaded; and what is stored, loaded into it as a model would. */
void convert_loading_allocate(struct converter *c);
void convert_load_stored(struct converter *c);

/* Makes c->out's writer with all that the new file has. */
enum status convert_write(struct converter *c, struct err *e);
