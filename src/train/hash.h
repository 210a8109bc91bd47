/*
 * hash - FNV-1a, which tells texts, checkpoints and states apart.
 */
#ifndef DECODE_TRAIN_HASH_H
#define DECODE_TRAIN_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TRAIN_HASH_START 0xcbf29ce484222325u

/* The hash, continued over len bytes. */
static inline uint64_t train_hash(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

#endif
