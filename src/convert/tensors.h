/*
 * tensors - tensors of the checkpoint to double and back, and the new file.
 */
#ifndef DECODE_CONVERT_TENSORS_H
#define DECODE_CONVERT_TENSORS_H

#include "convert/work.h"

/* Where a block's new tensors are: Q, K and V, or all three, first; or Q and what a latent cache
 * has. */
enum {
    PAIR_OUT = QKV_PARTS,
    PAIR_REL,
    PAIR_K_B, /* of latent caches, as the next */
    PAIR_V_B,
    PAIR_UP, /* refitted, as all from here on */
    PAIR_GATE,
    PAIR_DOWN,
    CONVERT_PAIRS
};

/* The role of a pair from PAIR_OUT on. */
enum tensor_role convert_pair_role(int pair);

/* A new tensor, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    struct tensor_name name;
    unsigned char *bytes; /* NULL: there is none of this name */
    bool changed;         /* once stored; else the checkpoint's own stays */
};

/* Those of a block, in the checkpoint's form: one tensor of Q, K and V, or three. */
struct convert_tensors {
    struct convert_pair {
        enum tensor_role role;
        struct convert_tensor weight, bias;
    } pairs[CONVERT_PAIRS];
    int n_parts; /* of Q, K and V */
};

/* Takes c->tensors, or counts them. */
void convert_tensors_take(struct converter *c, struct arena *arena);

/* `from` and, if it is refitted, `ffn` of the block in work, and what its tensors allow: whether
 * values are centred. */
void convert_load(struct converter *c);

/* Rounds `to`, whose heads are in their new order, to the tensors' types; without a tensor for it a
 * bias is dropped. STATUS_FAILED if a number is not finite, or is not any more. */
enum status convert_store_qkv(struct converter *c, struct err *e);
/* Of a latent cache, of whose numbers only the first `kept` are anything but 0. */
enum status convert_store_latent(struct converter *c, int kept, struct err *e);
enum status convert_store_out(struct converter *c, struct err *e);
enum status convert_store_ffn(struct converter *c, struct err *e);

/* A writer that holds the new file, and its tensors' elements. */
enum status convert_write(const struct converter *c, struct gguf_writer **out, uint64_t *n_params,
                          struct err *e);

#endif
