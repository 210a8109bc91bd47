#ifndef DECODE_EXCHANGE_EXPORT_VOCAB_H
#define DECODE_EXCHANGE_EXPORT_VOCAB_H
#include "exchange/vocabulary.h"
enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, struct err *e);
#endif
