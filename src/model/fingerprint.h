/*
 * fingerprint - a number that tells models apart: of all that a run through one depends on.
 */
#ifndef DECODE_MODEL_FINGERPRINT_H
#define DECODE_MODEL_FINGERPRINT_H

#include <stdint.h>

#include "model/model.h"

/* Of the config but for its context, and of every weight as it is in memory, which is read once.
 * The same on every machine; another one for the same weights in another type. */
uint64_t model_fingerprint(const struct model *m);

/* The hash, continued over so many bytes. */
uint64_t fingerprint_of(uint64_t hash, const void *bytes, size_t len);

#endif
