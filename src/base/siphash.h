/*
 * siphash - SipHash-1-3, a keyed hash: who does not know the key cannot write texts that collide.
 *
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; with one round a word
 * of input and three at the end, as hash tables use it. A pure function of its arguments; the same
 * number on every machine of the same byte order.
 */
#ifndef DECODE_BASE_SIPHASH_H
#define DECODE_BASE_SIPHASH_H

#include <stdint.h>

#include "base/text.h"

uint64_t siphash(const uint64_t key[2], struct text s);

#endif
