/*
 * exchange - checkpoints and vocabularies of other formats: in, as GGUF, and out.
 */
#pragma once

#include "model/config.h"
#include "text/vocab.h"

/* --- vocabularies ---------------------------------------------------------------------------- */

/*
 * Other formats' vocabularies as the keys of a GGUF file.
 *
 * What a tokenizer of another format does with a text, ours does, or the vocabulary is refused:
 * STATUS_BAD_FILE with a message that names the place, what was expected and what was found. What
 * differs for few texts only is told to the caller in notes. Every vocabulary that is made here is
 * one that tokenizer_create takes.
 *
 * n_vocab, 1 to CONFIG_MAX_VOCAB (asserted), is how many ids a model has. Those without a token
 * become "[PADi]", TOKEN_UNUSED; tokens beyond are refused.
 */

/* Where what a user should know goes: one sentence, no newline. */
struct vocabulary_notes {
    void (*note)(void *arg, const char *text);
    void *arg;
};

/* The only form of a vocabulary between two formats: every reader fills it in, every writer takes
 * it. */
struct vocabulary {
    struct vocab_keys keys; /* points into the memory below; model is NULL if there is none */
    /* Private, for while it is put together: see private.h. */
    struct text *tokens;        /* [n] data is NULL: none yet */
    int32_t *types;             /* [n] */
    float *scores;              /* [n] of what is not merged by merges */
    struct symbol_pair *merges; /* [n_merges] in their order */
    size_t n_merges, merges_cap;
    struct name_index names;
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
 * needs no merges.txt. Or of one file of any format that is read here, known by its first bytes; a
 * vocab.json is one of single characters. Messages name the file.
 *
 * Where there is no such file in the folder, and without a path (NULL), 256 ids are plain bytes, as
 * our own byte-level checkpoints have them; with others there is none: keys.model is NULL.
 *
 * *out is for vocabulary_free; zeroed on failure. STATUS_BAD_FILE or STATUS_NO_MEMORY; memory is a
 * small multiple of the files' and of n_vocab.
 */
enum status vocabulary_read(const char *path, const struct vocabulary_options *o,
                            struct vocabulary *out, struct err *e);

void vocabulary_free(struct vocabulary *v); /* legal on a zeroed struct and twice */

/* --- import ---------------------------------------------------------------------------------- */

/*
 * Checkpoints of other formats as GGUF files: folders of Hugging Face's transformers, files of
 * llama2.c and llm.c.
 *
 * An import is a GGUF writer whose tensors are made while they are written; so it is the same
 * whether it goes to a file or, to be used at once, to memory.
 */

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

/* --- export: a checkpoint as a folder that Hugging Face's transformers load ------------------ */

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
 * Makes the folder `dir`, or its files config.json, generation_config.json, model.safetensors and
 * the vocabulary's, once all are whole (folder_writer of base/file.h). Files of other names stay.
 * STATUS_USAGE for what transformers has no model for, naming why; STATUS_BAD_FILE, STATUS_FAILED,
 * STATUS_NO_MEMORY.
 */
enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e);

/*
 * Only the vocabulary: writes into the folder `dir`, which is there, tokenizer.json and
 * tokenizer_config.json; of a byte-level vocabulary vocab.json and merges.txt, too. A tokenizer of
 * transformers that is loaded from them gives the ids that ours gives; where a few may differ
 * `notes`, which may be NULL, say so.
 *
 * Where there is no vocabulary, or one that encodes no text here, nothing is written, and a note
 * says that. *others is a bit for each other file that transformers would read instead, which are
 * for export_vocab_remove: to be called where they may be.
 *
 * STATUS_BAD_FILE: a vocabulary that tokenizer_create refuses; a token that is not UTF-8; two
 * tokens for different texts that would have one name. Nothing has been written then. STATUS_FAILED
 * or STATUS_NO_MEMORY: each file is the old one or complete.
 */
enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, unsigned *others, struct err *e);
enum status export_vocab_remove(const char *dir, unsigned others, struct err *e);
