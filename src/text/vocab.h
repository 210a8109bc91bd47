/*
 * vocab - the tokens of a vocabulary as bytes and types.
 *
 * Immutable after creation. What vocab_find needs takes more memory than the tokens and is for most
 * vocabularies only of use while the merges are read; vocab_end_finding drops it.
 */
#ifndef DECODE_TEXT_VOCAB_H
#define DECODE_TEXT_VOCAB_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "gguf/gguf.h"

/* The numbers are the file's. */
enum token_type {
    TOKEN_UNDEFINED = 0, /* as TOKEN_NORMAL */
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* What a space is written as where the notation has a mark for it: U+2581. */
#define VOCAB_SPACE "\xe2\x96\x81"

/* How tokens are written in a file. */
enum vocab_notation {
    VOCAB_BYTES,  /* in GPT-2's byte alphabet (see byte_alphabet.h) */
    VOCAB_SPACES, /* in UTF-8 with U+2581 for a space */
    VOCAB_RAW,    /* whatever it is, taken as it is */
};

struct vocab_entry;

struct vocab {
    int n;               /* tokens */
    char *bytes;         /* of all tokens, one after another */
    size_t *start;       /* [n + 1] token id is bytes[start[id]] up to bytes[start[id + 1]] */
    unsigned char *type; /* [n] enum token_type */
    struct vocab_entry *sorted; /* private to vocab_find; NULL after vocab_end_finding */
    int n_sorted;
};

/*
 * Reads tokenizer.ggml.tokens and token_type (absent: all normal). What a token's bytes are, by the
 * notation:
 *
 * - VOCAB_BYTES: normal and undefined ones are written in the byte alphabet, or are raw UTF-8 if
 *   some character is outside it; byte ones likewise, but "<0x41>" is one byte;
 * - VOCAB_SPACES: of normal, undefined and unused ones each U+2581 is a space; but a normal,
 *   undefined or byte one "<0x41>" is one byte;
 * - all others are raw.
 *
 * Fails with STATUS_BAD_FILE (missing, of wrong type or length, an unknown token type, an empty
 * token that is not unused) or STATUS_NO_MEMORY; v may be freed then too. VOCAB_RAW may lack tokens
 * or have empty ones: n is 0 then.
 */
enum status vocab_init(struct vocab *v, enum vocab_notation notation, const struct gguf *g,
                       struct err *e);
void vocab_free(struct vocab *v); /* legal on a zeroed struct and twice */

/* Of token 0 <= id < n (asserted); borrowed. */
struct text vocab_bytes(const struct vocab *v, int id);

/* The byte that a token written as "<0x41>" stands for, with two digits or letters A to F; -1 if it
 * is written otherwise, or its type is neither byte, normal nor undefined. */
int vocab_hex_byte(struct text name, enum token_type type);

/*
 * The token that merging may use for these bytes, of which there are some, or -1; of VOCAB_BYTES
 * alone, and not after vocab_end_finding (both asserted). Normal tokens come before byte tokens,
 * those before control and user-defined ones, then lower ids before higher; raw normal, unknown
 * and unused tokens are never found. *twin is -1, or a second normal token with the same bytes:
 * which of the two is meant cannot be told. Time O(log n) comparisons.
 */
int vocab_find(const struct vocab *v, struct text bytes, int *twin);
void vocab_end_finding(struct vocab *v);

#endif
