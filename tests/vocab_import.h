/*
 * vocab_import - what the suites of exchange/vocabulary share: files in the scratch folder, what is
 * read of them, and a small tokenizer.json with any part changed.
 */
#ifndef TESTS_VOCAB_IMPORT_H
#define TESTS_VOCAB_IMPORT_H

#include <stdlib.h>
#include <string.h>

#include "imports.h"
#include "support.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* The last reading: the vocabulary, the tokenizer that use_imported made of it, and the notes, a
 * line each. The test's end frees them. */
extern struct vocabulary imported;
extern struct tokenizer *imported_tokenizer;
extern char import_notes[4096];

extern const struct hf_ids no_ids;

void use_imported(void);

/* Files of the scratch folder. In JSON a ' stands for a ". */
const char *scratch_dir(void);
void write_json(const char *name, const char *json);

/* Of the scratch folder (name is NULL), or of a file in it; or of another path. */
void must_import(const char *name, int n_vocab);
void import_path(const char *path, struct hf_ids ids, int n_vocab);

/* STATUS_BAD_FILE with all of this in the message, which names the file. */
void check_not_imported(const char *name, int n_vocab, const char *message);

void check_imported(int id, const char *name, int type);
void check_text(struct text text, const int32_t *expected, size_t n);

/* The five texts of a folder's expect.json have the ids that transformers gave them. */
void check_expected_ids(const char *folder);

/* What a small tokenizer.json has under each key; NULL: what usual_parts has. */
struct parts {
    const char *normalizer, *pre, *post, *added, *type, *options, *vocab, *merges;
};

#define BYTE_LEVEL "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': true}"
#define METASPACE(scheme, split)                                                                   \
    "{'type': 'Metaspace', 'replacement': '\u2581', 'prepend_scheme': '" scheme                    \
    "', 'split': " split "}"

extern const struct parts usual_parts;

/* As tokenizer.json. */
void write_parts(const struct parts *p);

#endif
