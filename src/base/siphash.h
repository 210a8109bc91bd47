/*
 * siphash - SipHash-1-3: who does not know the key cannot write texts that collide. The same number
 * on every machine of the same byte order.
 *
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; with one round a word
 * of input and three at the end, as hash tables use it.
 */
#pragma once

#include "base/text.h"

uint64_t siphash(const uint64_t key[2], struct text s);
