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
 * Makes the folder `dir`, or replaces it as a whole (base/folder.h), with config.json,
 * generation_config.json, model.safetensors and the vocabulary's files. Files of other names stay.
 * STATUS_USAGE for what transformers has no model for, naming why; STATUS_BAD_FILE, STATUS_FAILED,
 * STATUS_NO_MEMORY. After any of them the folder is as it was.
 */
enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e);

#endif
