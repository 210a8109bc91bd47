/*
 * bpe - byte-pair encoding by rank: a piece of text starts as its bytes' tokens, which are merged
 * (see merging.h).
 *
 * (GPT-2's first program merged all pairs of the lowest rank before it looked again; the two differ
 * only for tables in which a merge's result takes part in an earlier merge, which training does not
 * make.)
 */
#ifndef DECODE_TEXT_BPE_H
#define DECODE_TEXT_BPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "gguf/gguf.h"
#include "text/id_list.h"
#include "text/merging.h"
#include "text/vocab.h"

/* Immutable after creation. */
struct bpe {
    int32_t byte_id[256]; /* -1: no token */
    bool lacks_bytes;     /* some byte_id is -1 */
    struct merging merging;
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; absent or empty means that every
 * byte stays a token. A merge is passed over if one of its parts is no token, for then it never
 * happens, or its result is none. Fails with STATUS_BAD_FILE: an element that is not two parts in
 * the byte alphabet with a space between, a byte, part or result that is two normal tokens, a pair
 * listed twice (its rank would be the first in some programs, the last in others). Or
 * STATUS_NO_MEMORY. b may be freed then too.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);
void bpe_free(struct bpe *b); /* legal on a zeroed struct and twice */

/*
 * Appends the tokens of one piece, which is not empty and has a token for every byte (asserted,
 * the bytes at a cost). Time O(n log n) in its length. Fails with STATUS_NO_MEMORY, also for pieces
 * of 2 GiB and more.
 */
enum status bpe_encode(const struct bpe *b, struct merge_scratch *s, struct text piece,
                       struct id_list *out, struct err *e);

#endif
