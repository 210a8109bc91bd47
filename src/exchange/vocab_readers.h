/*
 * vocab_readers - vocabularies in files that are not a tokenizer.json.
 *
 * Each fills in a started build: tokens with their types, scores or merges, and what the file says
 * of special tokens. The index may be anything then. STATUS_BAD_FILE or STATUS_NO_MEMORY.
 */
#ifndef DECODE_EXCHANGE_VOCAB_READERS_H
#define DECODE_EXCHANGE_VOCAB_READERS_H

#include "exchange/vocab_build.h"
#include "json/read.h"

/* GPT-2's vocab.json, an object of tokens and ids, and merges.txt. */
enum status vocab_merges_read(const struct json_node *vocab, struct text merges,
                              struct vocab_build *b, struct err *e);

/* A vocab.json of single characters: no merges, and no space before texts. */
enum status vocab_chars_read(const struct json_node *vocab, struct vocab_build *b, struct err *e);

/* SentencePiece's tokenizer.model of type BPE. */
enum status vocab_sentencepiece_read(struct text file, struct vocab_build *b, struct err *e);

/* llama2.c's tokenizer.bin. */
enum status vocab_llama2c_read(struct text file, struct vocab_build *b, struct err *e);

/* llm.c's tokenizer .bin. */
enum status vocab_llmc_read(struct text file, struct vocab_build *b, struct err *e);

/* Plain bytes, as bpe_learned_write has them; n_vocab is 256 (asserted). */
enum status vocab_bytes_fill(struct vocab_build *b, struct err *e);

/* Which of them a file begins like. */
bool vocab_is_sentencepiece(struct text file);
bool vocab_is_llmc(struct text file);

#endif
