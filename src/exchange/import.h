/*
 * import - checkpoints of other formats as GGUF files: folders of Hugging Face's transformers,
 * files of llama2.c and llm.c.
 *
 * An import is a GGUF writer whose tensors are made while they are written; so it is the same
 * whether it goes to a file or, to be used at once, to memory.
 */
#ifndef DECODE_EXCHANGE_IMPORT_H
#define DECODE_EXCHANGE_IMPORT_H

#include <stdbool.h>

#include "base/file.h"
#include "base/status.h"
#include "exchange/vocabulary.h"
#include "gguf/gguf.h"
#include "model/config.h"

/* Whether import_open, rather than gguf_parse, is for what is at `path`: a folder, or a file that
 * begins as one of another format does (a torch archive and a file of safetensors, too, which it
 * refuses with advice). The failures of file_map_open. */
enum status import_is_for(const char *path, bool *is, struct err *e);

struct import_options {
    const char *tokenizer; /* a file; "none"; NULL: what is beside the checkpoint */
    int n_ctx; /* at most the checkpoint's, unless its positions are computed; 0: that */
    struct vocabulary_notes notes;
};

struct import;

/*
 * Opens the checkpoint at `path`; both must outlive the import. The messages name files, keys and
 * tensors. STATUS_BAD_FILE, also for a format that is not known; STATUS_USAGE for a context that is
 * longer than the checkpoint's; STATUS_NO_MEMORY. *out is for import_close; NULL on failure.
 */
enum status import_open(const char *path, const struct import_options *o, struct import **out,
                        struct err *e);
void import_close(struct import *im); /* NULL is legal */

/* What the checkpoint was: "Hugging Face, GPT2LMHeadModel". */
const char *import_format(const struct import *im);

const struct config *import_config(const struct import *im);

/* Holds everything: gguf_write or gguf_write_map is left. Lives until import_close. */
struct gguf_writer *import_writer(const struct import *im);

#endif
