/*
 * hash - FNV-1a of 64 bits (Fowler, Noll, Vo 1991), which tells texts, checkpoints and states
 * apart. It is no protection against whoever makes two of the same hash.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START 0xcbf29ce484222325u
#define HASH_PRIME 0x100000001b3u

/* Returns a hash continued over len bytes. `hash` is HASH_START, or the hash of what came before.
 */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * HASH_PRIME;
    return hash;
}

/* A hash as hash_bytes makes, but other values: it goes by words of 64 bits, faster over many
 * bytes. len must be a multiple of 8. */
static inline uint64_t hash_words(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * HASH_PRIME;
    }
    return hash;
}
