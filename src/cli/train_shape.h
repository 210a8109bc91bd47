/*
 * train_shape - the model that `train` makes new: its sizes, and what it is made of.
 */
#ifndef DECODE_CLI_TRAIN_SHAPE_H
#define DECODE_CLI_TRAIN_SHAPE_H

#include <stdbool.h>

#include "base/status.h"
#include "cli/options.h"
#include "model/config.h"

/* What options say; 0 and NULL are what was not given. */
struct train_shape {
    int n_layers, d_model, n_heads, d_ff, n_ctx, n_vocab;
    const char *kv_heads;
    int arch, norm, placement, position, ffn; /* from 1 on */
    bool no_bias, share_layers;
};
extern const struct option train_size_options[], train_kv_options[], train_kind_options[];

/* Tokens of a window, and of the context of a new model, that are not said otherwise. */
#define TRAIN_SHAPE_CTX 256

/* The first option given, but for --ctx, which windows have too; NULL: none. */
const char *train_shape_given(const struct train_shape *s);

/* The whole config. STATUS_USAGE names the option that cannot be with the others. */
enum status train_shape_config(const struct train_shape *s, struct config *c, struct err *e);

/* What a model is, written to out: "" for gpt2, "llama, ", or the kinds of architecture `decode`.
 */
void train_shape_describe(const struct config *c, char *out, size_t size);

#endif
