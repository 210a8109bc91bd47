/*
 * export_vocab - a GGUF file's vocabulary as the files of a Hugging Face folder.
 */
#ifndef DECODE_EXCHANGE_EXPORT_VOCAB_H
#define DECODE_EXCHANGE_EXPORT_VOCAB_H

#include "exchange/vocabulary.h"
#include "gguf/gguf.h"

/*
 * Writes into the folder `dir`, which is there, tokenizer.json and tokenizer_config.json; of a
 * byte-level vocabulary vocab.json and merges.txt, too, of a SentencePiece one tokenizer.model,
 * where the sentencepiece library would take it. A tokenizer of transformers that is loaded from
 * them gives the ids that ours gives; where a few may differ `notes`, which may be NULL, say so.
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
