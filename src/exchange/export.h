/*
 * export - a checkpoint as a folder that Hugging Face's transformers load.
 */
#ifndef DECODE_EXCHANGE_EXPORT_H
#define DECODE_EXCHANGE_EXPORT_H

#include <stdbool.h>

#include "base/status.h"
#include "exchange/vocabulary.h"
#include "gguf/gguf.h"

struct export_options {
    bool expand; /* repeat K/V heads until there are as many as heads */
    struct vocabulary_notes notes;
};

/* What was written. */
struct export_result {
    const char *model_class; /* "GPT2LMHeadModel" */
    char variant[16];        /* "MHA" */
    const char *dtype;       /* config.json's */
    uint64_t n_tensors, n_bytes;
};

/*
 * Makes the folder `dir`, or replaces it as a whole (base/file.h), with config.json,
 * generation_config.json, model.safetensors and the vocabulary's files. Files of other names stay.
 * STATUS_USAGE for what transformers has no model for, naming why; STATUS_BAD_FILE, STATUS_FAILED,
 * STATUS_NO_MEMORY. After any of them the folder is as it was.
 */
enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e);

/*
 * Only the vocabulary: writes into the folder `dir`, which is there, tokenizer.json and
 * tokenizer_config.json; of a byte-level vocabulary vocab.json and merges.txt, too, of a
 * SentencePiece one tokenizer.model, where the sentencepiece library would take it. A tokenizer of
 * transformers that is loaded from them gives the ids that ours gives; where a few may differ
 * `notes`, which may be NULL, say so.
 *
 * Where there is no vocabulary, or one that encodes no text here, nothing is written, and a note
 * says that. Other files of these names are removed: transformers would read them instead.
 *
 * STATUS_BAD_FILE: a vocabulary that tokenizer_create refuses; a token that is not UTF-8; two
 * tokens for different texts that would have one name. Nothing has been written then. STATUS_FAILED
 * or STATUS_NO_MEMORY: each file is the old one or complete.
 */
enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, struct err *e);

#endif
