/*
 * id_set - which ids there were, and where first.
 *
 * An id is kept as 64 bits of its hash, whose key is random: two different ones are taken for the
 * same once in 2^64 / (ids^2 / 2) runs, with 10^6 ids once in 37 million, and nobody can write two
 * that are. Memory is 16 bytes for each of at most four times as many places as there are ids (64
 * MiB for 10^6), and none before the first.
 */
#ifndef DECODE_CLI_ID_SET_H
#define DECODE_CLI_ID_SET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Zeroed: empty. */
struct id_set {
    struct id_place *places; /* [n_places], a power of two or 0 */
    size_t n_places, n;
    uint64_t key[2]; /* of the hash, chosen when the first id comes */
};

/* Adds an id that stands at `index`; *first: where it stood first, `index` itself if it is new. Ids
 * of the same bytes and another kind are others. STATUS_NO_MEMORY; STATUS_FAILED where the system
 * has no random numbers. */
enum status id_set_add(struct id_set *s, int kind, struct text id, uint64_t index, uint64_t *first,
                       struct err *e);
void id_set_free(struct id_set *s); /* legal twice */

#endif
