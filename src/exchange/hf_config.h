/*
 * hf_config - transformers' config.json and ours, in and out.
 */
#ifndef DECODE_EXCHANGE_HF_CONFIG_H
#define DECODE_EXCHANGE_HF_CONFIG_H

#include <stdbool.h>

#include "base/status.h"
#include "exchange/hf_family.h"
#include "model/config.h"
#include "json/read.h"

/* Rotary frequencies scaled as Llama 3.1's are; zeroed: they are not. */
struct hf_llama3 {
    double factor, low, high; /* by how much; from which wavelengths on, in shares of `context` */
    int context;              /* before it was made longer */
};

struct hf_config {
    const struct hf_family *family;
    bool tied;
    bool norm_biases, attention_biases, ffn_biases;
    struct hf_llama3 llama3;
    int uncut_ctx; /* the context, if n_ctx is only as long as a sliding window; else 0 */
};

/*
 * Reads config.json's object. All of `c` but n_kv_heads by layer is filled; every size is within
 * the bounds of model/config.h. What asks for another computation than ours is refused, naming the
 * key: STATUS_BAD_FILE.
 */
enum status hf_config_read(const struct json_node *object, struct config *c, struct hf_config *h,
                           struct err *e);

/* Whether transformers' model has a bias of this role. */
bool hf_has_bias(const struct hf_config *h, enum tensor_role role);

/*
 * What the frequency of each pair of a head is divided by, to out [c->rope.n_dims / 2]. Source:
 * transformers' modeling_rope_utils, _compute_llama3_parameters.
 */
void hf_llama3_factors(const struct hf_llama3 *l, const struct config *c, float *out);

#endif
