/*
 * used - the block in work as a model would load what was stored of it, so that what is measured
 * is what will run.
 */
#ifndef DECODE_CONVERT_USED_H
#define DECODE_CONVERT_USED_H

#include "convert/work.h"
#include "model/pack.h"

struct convert_used {
    struct block block;
    struct convert_panels {
        void *panels;
        float *bias;
    } roles[TENSOR_ROLES]; /* of roles that may change; of Q, K and V all in ROLE_ATTN_QKV */
    struct attend_bias *score_bias; /* [n_heads] */
    struct pack_scratch pack;
};

struct convert_used convert_used_take(const struct converter *c, struct arena *arena);

/* After every change of the stored tensors. */
void convert_use(const struct converter *c, struct convert_used *u);

#endif
