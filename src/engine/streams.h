/*
 * streams - how many panels of a matrix one token reads side by side: the machine's choice.
 *
 * Memory serves some processors best when a thread reads one panel after the other, and others when
 * it reads four side by side; sums are the same bits either way (struct matmul).
 */
#pragma once

#include "engine/private.h"

/* Times one token's products with the feed-forward matrices of f's layers, which the numbers of
 * panels share out in turns, for some milliseconds, and sets f->streams. Where these matrices are
 * quantised, whose products wait for instructions, or fit a processor's caches, and of other
 * storages it is the usual number. f's workspace is used, whose contents are lost; no step may be
 * under way. */
void streams_choose(struct forward *f);
