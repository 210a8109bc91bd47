/*
 * gguf_values - metadata and tensors of a parsed GGUF file by their names, and the values' kinds.
 *
 * What is returned is borrowed from the file. Nothing here changes it, so any threads may look up.
 */
#pragma once

#include "formats/gguf.h"

/* "u32", "string", ...; "unknown" for other numbers. */
const char *gguf_kind_name(enum gguf_kind kind);

/* Whether numbers of a kind are integers, which a bool is not. */
bool gguf_is_integer(enum gguf_kind kind);

/* Return the value of a key, and the tensor of a name; NULL if there is none. Time is logarithmic,
 * whatever the names. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/*
 * Set *out to the value of a key. If the key is missing, *found becomes false and *out stays as it
 * was; where `found` is NULL, that is an error. STATUS_BAD_FILE for a value of another kind or out
 * of range; min <= max (asserted). Any integer kind is accepted where the value fits; a bool is not
 * an integer.
 */
#define GGUF_OPTIONAL (&(bool){false}) /* a `found` that nobody reads */
enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, bool *found, struct err *e);
/* F32 or F64; may be NaN or infinite. */
enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, bool *found,
                         struct err *e);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, bool *found,
                          struct err *e);
enum status gguf_get_text(const struct gguf *g, const char *key, struct text *out, bool *found,
                          struct err *e);
/* Looks up an array whose elements are of this kind, never GGUF_ARRAY (asserted). *out is NULL if
 * it is missing, and on failure. */
enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind element_kind,
                           const struct gguf_value **out, bool *found, struct err *e);

/* Walks an array of strings, from a zeroed cursor on: each call sets *out to the next string, which
 * is borrowed from the file. False at the end, and for values of another kind. */
struct gguf_cursor {
    uint64_t i;
    size_t offset;
};
bool gguf_next_text(const struct gguf_value *array, struct gguf_cursor *c, struct text *out);

/* Return element i < count (asserted) of an array of numbers or bools, or a scalar for i = 0.
 * gguf_int_at takes no floats (asserted); what is above INT64_MAX becomes that. */
int64_t gguf_int_at(const struct gguf_value *v, uint64_t i);
double gguf_float_at(const struct gguf_value *v, uint64_t i);
