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

/* `hash`, HASH_START or what came before, continued over len bytes. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * HASH_PRIME;
    return hash;
}

/* The same over words of 64 bits, for many bytes; len is a multiple of 8. */
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
