/*
 * tokenizer - text to tokens and back, as a checkpoint's vocabulary has it.
 *
 * Text is bytes: any bytes in, the same bytes out, UTF-8 or not. Control, user-defined and unknown
 * tokens are found first; what the text between them becomes is the vocabulary's kind:
 *
 * - "gpt2": byte-level BPE. Characters are replaced, and marks put in order, as
 *   tokenizer.decode.replacements and marks say; they do not come back. With
 *   tokenizer.ggml.add_space_prefix a space is put before text that begins with none. Text is cut
 *   into pieces (see pretokenize.h), and each piece is merged by rank.
 * - "llama": SentencePiece's BPE by scores, with a space before the text and after each of those
 *   tokens unless tokenizer.ggml.add_space_prefix is false; with tokenizer.decode.prepend_scheme
 *   ("always", or "first": before the text alone) not before what begins with a space, as the
 *   tokenizers library's Metaspace does it. A literal U+2581 comes back as a space. With
 *   remove_extra_whitespaces, spaces at both ends of the text between those tokens, and behind
 *   another space, become no token: such texts do not come back.
 *
 * Vocabularies of other kinds show their tokens, but no text can be encoded. A tokenizer is
 * immutable: any threads may use one at once.
 *
 * Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; of the
 * behaviour in every detail, llama.cpp.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"

struct tokenizer;

/*
 * Builds a tokenizer from tokenizer.ggml.{model,pre,tokens,token_type,merges,scores,bos_token_id,
 * eos_token_id,eot_token_id,eom_token_id,add_bos_token,add_space_prefix,
 * remove_extra_whitespaces} and tokenizer.decode.{replacements,marks,prepend_scheme}, from
 * which it borrows texts. The messages name the key. STATUS_BAD_FILE:
 *
 * - no model; arrays of the wrong type or length, a token type above 6, a score that is not finite;
 * - a merge that is not two parts in the byte alphabet with a space between, or is listed twice;
 * - two tokens of one string, if text could become either: other duplicates are padding, which real
 *   models have;
 * - add_bos_token true without bos_token_id.
 *
 * Or STATUS_NO_MEMORY. No vocabulary needs a token for every byte. A model or pre that is not known
 * is no failure, nor are lost merges: see tokenizer_reads_text. An id of 4294967295 is none, as the
 * llama2.c converter of llama.cpp writes it; of "llama", ids that are absent are 1 and 2. An id
 * beyond the vocabulary and an empty token, which no text becomes, are told by tokenizer_oddity.
 */
enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is legal */

int tokenizer_n_tokens(const struct tokenizer *t); /* 0: the file names none */
int tokenizer_bos(const struct tokenizer *t);      /* -1: none */
int tokenizer_eos(const struct tokenizer *t);      /* -1: none */
/* Whether token id >= 0 ends a text. The tokens of eos_token_id, eot_token_id (of a turn) and
 * eom_token_id (of a message) do, and control tokens of names that llama.cpp knows ("<|im_end|>").
 */
bool tokenizer_ends(const struct tokenizer *t, int id);
/* Returns the next token that ends a text; -1 behind the last. *i is 0 at first. *why becomes
 * "eos_token_id", or the token's name. */
int tokenizer_end(const struct tokenizer *t, int *i, const char **why);
/* Whether texts begin with BOS: what add_bos_token says or, if it is absent, whether the model is
 * "llama" or has a pre-tokenizer of Llama 3. False without BOS. (add_eos_token is not read, because
 * a text that ends with EOS cannot be continued.) */
bool tokenizer_adds_bos(const struct tokenizer *t);
/* Whether token id >= 0 (asserted) is a control or unknown token, which is no text; false beyond
 * the vocabulary. */
bool tokenizer_is_special(const struct tokenizer *t, int id);

/* Returns the name of the pre-tokenizer, which cuts text before it is merged: tokenizer.ggml.pre,
 * or "gpt-2" where the file leaves it out; NULL where text is not cut. Borrowed from t. */
const char *tokenizer_pre(const struct tokenizer *t);

/* Returns what in the file is most likely its writer's mistake, such as merges without a
 * pre-tokenizer's name; NULL if nothing is. Borrowed. */
const char *tokenizer_oddity(const struct tokenizer *t);

/* Fails with STATUS_BAD_FILE if tokenizer_encode refuses every text, because tokenizer.ggml.model
 * or pre is not known here, or "gpt2" has tokens of several bytes and no merges that make them. */
enum status tokenizer_reads_text(const struct tokenizer *t, struct err *e);

/*
 * Encodes `text`, behind BOS, which there is, if `bos`; without EOS. *ids is malloc'd (the caller
 * frees it, also when *n is 0); NULL on failure. Control, user-defined and unknown tokens written
 * out in the text become their ids: from left to right the longest at each place, of equal ones the
 * lowest id; those of more than 1,024 bytes are not looked for. Time O(n log n); memory up to 6
 * bytes a token, and 24 bytes a symbol that is merged at once, at most MERGE_MOST; for "llama" up
 * to 3 bytes a byte between places where a text can be cut.
 *
 * Fails with STATUS_NO_MEMORY; as tokenizer_reads_text, unless the text is empty; with
 * STATUS_USAGE, naming character and offset, if the vocabulary has no tokens for a character.
 */
enum status tokenizer_encode(const struct tokenizer *t, struct text text, bool bos, int32_t **ids,
                             size_t *n, struct err *e);

/* Does the same for a prompt that is to be continued, after BOS where the checkpoint wants it. An
 * empty prompt becomes BOS, or else a newline; STATUS_USAGE if there is neither. */
enum status tokenizer_encode_prompt(const struct tokenizer *t, struct text prompt, int32_t **ids,
                                    size_t *n, struct err *e);

/* Returns the bytes that token id >= 0 (asserted) stands for, or its name in the file if it is no
 * text. They are borrowed from t, and empty for an unused token and beyond the vocabulary. */
struct text tokenizer_bytes(const struct tokenizer *t, int id);

/* STATUS_BAD_FILE if a token of `other` (NULL: it has none) is different in t; those that only one
 * has are not compared. */
enum status tokenizer_compare(const struct tokenizer *t, const struct tokenizer *other,
                              struct err *e);

/* Appends the bytes of n tokens to *out. False without memory. */
bool tokenizer_put(const struct tokenizer *t, const int32_t *ids, size_t n, struct bytes *out);

/* Returns how many first bytes of a text that was made from tokens were not in the text that was
 * encoded: 1 for the space of "llama", if the text begins with it, else 0. */
size_t tokenizer_added(const struct tokenizer *t, struct text text);

/* Returns the most bytes that come out of a token, or that become one. Takes time linear in the
 * vocabulary. */
size_t tokenizer_longest(const struct tokenizer *t);

/* --- text on its way to the reader ------------------------------------------------------------ */

/*
 * Generated bytes on their way to the reader. A stream holds back bytes that may yet become a UTF-8
 * character or a stop string. The stop string that is completed first, byte by byte, ends the
 * stream (of several that end at one byte the longest): what comes before it is printed, it and
 * what follows are not. So the result does not depend on how the bytes were cut into tokens.
 */
struct stream {
    const struct text *stops; /* borrowed */
    int n_stops;
    bool stopped; /* a stop string was completed: nothing more comes out */
    char *bytes;
    size_t returned; /* how many of them, from the start, the last call returned */
    size_t len, cap;
};

/* Starts a text of pieces of at most max_piece bytes; the struct is zeroed before the first text.
 * Stop strings are not empty and are borrowed until the next start. Takes all memory here:
 * STATUS_NO_MEMORY.
 */
enum status stream_start(struct stream *s, const struct text *stops, int n_stops, size_t max_piece,
                         struct err *e);
void stream_free(struct stream *s); /* legal on a zeroed struct and twice */

/* Adds a piece of at most max_piece bytes and returns those that may be printed now. They stay
 * valid until the next call. */
struct text stream_push(struct stream *s, struct text piece);

/* Returns what was held back, valid until the next call; the stream is then as newly started. */
struct text stream_finish(struct stream *s);
