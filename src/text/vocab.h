/*
 * vocab - the tokens of a vocabulary as bytes and types; lists of their ids.
 *
 * A vocabulary is immutable after creation, but `names`, which takes more memory than the tokens,
 * may be freed: most vocabularies need it only while the merges are read.
 */
#pragma once

#include "base/name_index.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"

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

/* The id that says "none" in a file, because readers of "llama" take an absent id for 1 or 2. */
#define VOCAB_NO_ID UINT32_MAX

/* How tokens are written in a file. */
enum vocab_notation {
    VOCAB_BYTES,  /* in GPT-2's byte alphabet (see unicode.h) */
    VOCAB_SPACES, /* in UTF-8 with U+2581 for a space */
    VOCAB_RAW,    /* whatever it is, taken as it is */
};

/* --- a vocabulary ---------------------------------------------------------------------------- */

/* The tokens of a vocabulary. */
struct vocab {
    int n;                   /* tokens */
    char *bytes;             /* of all tokens, one after another */
    size_t *start;           /* [n + 1] token id is bytes[start[id]] up to bytes[start[id + 1]] */
    unsigned char *type;     /* [n] enum token_type */
    int first_empty;         /* token without a name that is not unused; -1: none */
    struct name_index names; /* of vocab_find */
};

/*
 * Reads tokenizer.ggml.tokens and token_type (absent: all normal). The notation says what a token's
 * bytes are:
 *
 * - VOCAB_BYTES: normal, undefined and byte tokens are written in the byte alphabet, or are raw
 * UTF-8 if some character is outside it; but a byte token "<0x41>" is one byte;
 * - VOCAB_SPACES: in normal, undefined and unused tokens each U+2581 is a space; but a normal,
 *   undefined or byte token "<0x41>" is one byte;
 * - all other tokens are raw.
 *
 * Fails with STATUS_BAD_FILE (missing, of wrong type or length, an unknown token type) or
 * STATUS_NO_MEMORY; v may be freed then too. VOCAB_RAW may lack tokens: n is 0 then.
 */
enum status vocab_init(struct vocab *v, enum vocab_notation notation, const struct gguf *g,
                       struct err *e);
void vocab_free(struct vocab *v); /* legal on a zeroed struct and twice */

/* Returns the bytes of token 0 <= id < n (asserted), which are borrowed. */
struct text vocab_bytes(const struct vocab *v, int id);

/* Returns the byte of a token that is written as "<0x41>", with two digits or letters A to F; -1 if
 * it is written otherwise, or its type is neither byte, normal nor undefined. */
int vocab_hex_byte(struct text name, enum token_type type);

/*
 * Returns the token that merging may use for one or more bytes, or -1. Only for VOCAB_BYTES, and
 * while `names` are there. Of several tokens with these bytes it is a normal one, else a byte
 * token, else a control or user-defined one; then the lowest id. Raw normal, unknown and unused
 * tokens are never found. *twin becomes a second normal token with the same bytes, so that nobody
 * can tell which is meant; or -1. Takes O(log n) comparisons.
 */
int vocab_find(const struct vocab *v, struct text bytes, int *twin);

/* Returns STATUS_USAGE for a character without a token, which has byte `at` < text.len. The
 * message has it as U+00E9 and, if it is a letter, a number or in ASCII, as itself; a byte that
 * starts no UTF-8 character is byte 0xE9. */
enum status lacks_token(struct text text, size_t at, struct err *e);

/* A growing list of token ids, zeroed at first. Its owner frees `ids`. */
struct id_list {
    int32_t *ids;
    size_t len, cap;
};

/* Adds an id >= 0 (asserted). STATUS_NO_MEMORY; then the list is as it was. */
enum status id_list_add(struct id_list *list, int32_t id, struct err *e);
