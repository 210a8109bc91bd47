/*
 * bpe - byte-pair encoding by ranks, as GPT-2 does it.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "text/encoding.h"
#include "text/merging.h"
#include "text/vocab.h"

/*
 * A piece of text starts as its bytes' tokens. (GPT-2's first program merged all pairs of the
 * lowest rank before it looked again; the two differ only for tables in which a merge's result
 * takes part in an earlier merge, which training does not make.) Immutable after creation.
 */
struct bpe {
    int32_t byte_id[256]; /* -1: no token */
    bool lacks_bytes;     /* some byte_id is -1 */
    struct merging merging;
    size_t n_merges; /* that make a token of two others */
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; absent or empty means that every
 * byte stays a token. A merge is passed over if one of its parts is no token, for then it never
 * happens, or its result is none. Fails with STATUS_BAD_FILE: an element that is not two parts in
 * the byte alphabet with a space between, a byte, part or result that is two normal tokens, a pair
 * listed twice (its rank would be the first in some programs, the last in others). Or
 * STATUS_NO_MEMORY. merging_free of b->merging is due in every case.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);

/*
 * Appends the tokens of one piece of c's text, which is not empty (asserted). Time O(n log n) in
 * its length. STATUS_USAGE names a character that has a byte without a token; STATUS_NO_MEMORY,
 * also for pieces of 2 GiB and more.
 */
enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e);
