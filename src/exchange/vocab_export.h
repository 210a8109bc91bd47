/*
 * vocab_export - a vocabulary on its way out: what all the files that are written say.
 */
#ifndef DECODE_EXCHANGE_VOCAB_EXPORT_H
#define DECODE_EXCHANGE_VOCAB_EXPORT_H

#include "exchange/token_names.h"
#include "exchange/vocabulary.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/spm.h"
#include "text/tokenizer.h"
#include "json/write.h"

/* Everything but the tokenizer and the names is borrowed. */
struct vocab_export {
    const struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct vocab vocab;
    struct token_names names;
    int n;                          /* of vocab's tokens, without padding at the end */
    const struct pretokenizer *pre; /* NULL: SentencePiece's */
    struct bpe bpe;                 /* of pre */
    struct spm spm;                 /* else */
    struct symbol_pair *merges;     /* [n_merges] as they are tried */
    size_t n_merges;
    bool adds_space;        /* before texts, of SentencePiece's */
    int bos, eos, unk, pad; /* -1: none */
    uint64_t longest;       /* text of the model, in tokens; 0: not said */
};

/* STATUS_BAD_FILE, STATUS_NO_MEMORY. x is for vocab_export_free, also on failure. */
enum status vocab_export_read(const struct gguf *g, const struct vocabulary_notes *notes,
                              struct vocab_export *x, struct err *e);
void vocab_export_free(struct vocab_export *x);

/* Whether a token is looked for in texts before anything else. */
bool vocab_export_is_added(const struct vocab_export *x, int id);

/* Writers for export_json of a struct vocab_export. */
void put_tokenizer_json(struct json *j, const void *x);
void put_tokenizer_config(struct json *j, const void *x);
void put_vocab_json(struct json *j, const void *x);

/* Appends a tokenizer.model; false without memory. *fits is false, and nothing is written, if the
 * sentencepiece library would not take it: it wants one unknown token, and all bytes or none. */
bool put_sentencepiece(const struct vocab_export *x, struct bytes *out, bool *fits);

#endif
