/*
 * little - little-endian integers, as files have them, at any address.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a little-endian number of 1 to 8 bytes (asserted) at any address. */
static inline uint64_t little_load(const void *from, size_t bytes)
{
    assert(bytes >= 1 && bytes <= 8);
    const unsigned char *raw = from;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)raw[i] << (8 * i);
    return value;
}

/* Writes the low 1 to 8 bytes (asserted) of the value at any address, little-endian. */
static inline void little_store(void *to, uint64_t value, size_t bytes)
{
    assert(bytes >= 1 && bytes <= 8);
    unsigned char *raw = to;
    for (size_t i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(value >> (8 * i));
}
