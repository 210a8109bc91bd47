/*
 * imports - checkpoints of other formats imported to memory, and folders of them made by tests.
 * What is given is released when the test ends.
 */
#ifndef TESTS_IMPORTS_H
#define TESTS_IMPORTS_H

#include "base/text.h"
#include "exchange/exchange.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/model.h"

/* Imports and opens it, with a model. */
struct checkpoint open_import(const char *path, const struct import_options *o);

/* The same, to the bytes of the GGUF file. */
struct text import_bytes(const char *path, const struct import_options *o);

/* Floats of an .npy 1.0 file, [n] of them. */
const float *read_npy(const char *path, size_t *n);

/* The logits of all tokens [n, n_vocab]. */
const float *logits_of(const struct model *m, const int32_t *tokens, int n);

/* None of n numbers is further from the expected ones. */
void expect_close(const char *what, const float *found, const float *expected, size_t n,
                  double tolerance);

/* A file of JSON, and the numbers of one of its arrays, `most` of them; returns how many. */
const struct json_node *json_in(const char *path);
int numbers_in(const struct json_node *array, int32_t *to, int most);

/* "folder/name"; valid until the eighth call after it. */
const char *path_of(const char *folder, const char *name);

/* A fresh folder of this name in the scratch folder. */
const char *make_folder(const char *name);
void copy_to(const char *from_folder, const char *to_folder, const char *name);
void write_text(const char *folder, const char *name, const char *text);
void link_to(const char *folder, const char *name, const char *target);

/* For options: what is noted is of no interest. */
void no_note(void *arg, const char *text);

/* The tensors of a folder's model.safetensors. */
const struct safetensors *read_weights(const char *folder);

/*
 * Writes the tensors [first, first + n) of them to folder/name: names without `prefix` where they
 * begin with it (NULL: as they are), elements as this type (NULL: as they are; else all are F32).
 */
void write_weights(const struct safetensors *w, size_t first, size_t n, const char *prefix,
                   const struct safetensors_dtype *dtype, const char *folder, const char *name);

#endif
