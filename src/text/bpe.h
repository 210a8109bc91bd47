/*
 * bpe - byte-pair merging by rank.
 *
 * Merging a piece of text starts from its bytes' tokens and, while some neighbours form a merge,
 * merges the pair of the lowest rank, the leftmost of equals. (GPT-2's first program merged all
 * pairs of that rank before it looked again; the two differ only for tables in which a merge's
 * result takes part in an earlier merge, which training does not make.)
 */
#ifndef DECODE_TEXT_BPE_H
#define DECODE_TEXT_BPE_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

struct bpe_pair;

/* Immutable after creation. */
struct bpe {
    int32_t byte_id[256];   /* -1: no token */
    bool lacks_bytes;       /* some byte_id is -1 */
    int32_t *result;        /* [n_merges] by rank */
    uint32_t *first;        /* [n_tokens + 1] the pairs with left token id start at first[id] */
    struct bpe_pair *pairs; /* [n_merges] by left, then right token */
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; absent or empty means that every
 * byte stays a token. Fails with STATUS_BAD_FILE: no token for a byte that the UTF-8 of some
 * assigned character has (StarCoder's vocabulary really lacks F1 and those that are never in
 * UTF-8), an element that is not two parts with a space between, a part or result that is not a
 * token or is two normal ones, a pair listed twice (its rank would be the first in some
 * programs, the last in others). Or STATUS_NO_MEMORY. b may be freed then too.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);
void bpe_free(struct bpe *b); /* legal on a zeroed struct and twice */

/* A growing list of token ids; zeroed at first, free(ids) at last. */
struct id_list {
    int32_t *ids;
    size_t len, cap;
};

/* id >= 0 (asserted). STATUS_NO_MEMORY; the list is as it was then. */
enum status id_list_add(struct id_list *list, int32_t id, struct err *e);

/* Working memory of bpe_encode, which grows to 8.3 bytes a byte of the longest piece; zeroed at
 * first. One call at a time may use it. */
struct bpe_scratch {
    int32_t *spans;
    int32_t *ranks;
    size_t cap; /* bytes of text that they have room for */
};

void bpe_scratch_free(struct bpe_scratch *s);

/*
 * Appends the tokens of one piece, which is not empty and has a token for every byte (asserted,
 * the bytes at a cost). Time O(n log
 * n) in its length. Fails with STATUS_NO_MEMORY, also for pieces of 2 GiB and more.
 */
enum status bpe_encode(const struct bpe *b, struct bpe_scratch *s, struct text piece,
                       struct id_list *out, struct err *e);

#endif
