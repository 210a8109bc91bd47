/*
 * vocabulary - other formats' vocabularies as the keys of a GGUF file.
 *
 * What a tokenizer of another format does with a text, ours does, or the vocabulary is refused:
 * STATUS_BAD_FILE with a message that names the place, what was expected and what was found. What
 * differs for few texts only is told to the caller in notes. Every vocabulary that is made here is
 * one that tokenizer_create takes.
 *
 * n_vocab, 1 to CONFIG_MAX_VOCAB (asserted), is how many ids a model has. Those without a token
 * become "[PADi]", TOKEN_UNUSED; tokens beyond are refused.
 */
#ifndef DECODE_EXCHANGE_VOCABULARY_H
#define DECODE_EXCHANGE_VOCABULARY_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "text/vocab.h"

/* Where what a user should know goes: one sentence, no newline. */
struct vocabulary_notes {
    void (*note)(void *arg, const char *text);
    void *arg;
};

struct vocabulary {
    struct vocab_keys keys; /* points into the memory below; model is NULL if there is none */
    /* Private, for while it is put together: see private.h. */
    struct text *tokens;      /* [n] data is NULL: none yet */
    int32_t *types;           /* [n] */
    float *scores;            /* [n] of what is not merged by merges */
    struct text *merges;      /* [keys.n_merges] */
    struct vocab_name *names; /* [n_names] sorted */
    int n_names;
    const struct vocabulary_notes *notes;
    struct pool_chunk *memory;
};

/* What a model's own config says of special tokens; beyond the vocabulary, or negative: none. */
struct hf_ids {
    int64_t bos, eos, pad;
};

struct vocabulary_options {
    struct hf_ids ids;
    int n_vocab;
    const struct vocabulary_notes *notes; /* may be NULL */
};

/*
 * Of a Hugging Face folder: tokenizer.json, or vocab.json with merges.txt, or tokenizer.model, with
 * what tokenizer_config.json, special_tokens_map.json and added_tokens.json say of special tokens.
 * BOS and EOS are those that these name, else those of `ids`. A vocab.json of single characters
 * needs no merges.txt. Where there is none of them, as vocabulary_plain. Messages name the file.
 *
 * *out is for vocabulary_free; zeroed on failure. STATUS_BAD_FILE or
 * STATUS_NO_MEMORY; memory is a small multiple of the files' and of n_vocab.
 */
enum status vocabulary_of_folder(const char *dir, const struct vocabulary_options *o,
                                 struct vocabulary *out, struct err *e);

/* Of one file of any format that is read here, known by its first bytes; a vocab.json is one of
 * single characters. */
enum status vocabulary_of_file(const char *path, const struct vocabulary_options *o,
                               struct vocabulary *out, struct err *e);

/* With 256 ids plain bytes, as our own byte-level checkpoints have them; with others none at all:
 * keys.model is NULL. STATUS_NO_MEMORY. */
enum status vocabulary_plain(int n_vocab, struct vocabulary *out, struct err *e);

void vocabulary_free(struct vocabulary *v); /* legal on a zeroed struct and twice */

#endif
