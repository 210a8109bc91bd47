/*
 * gguf - a GGUF file as it is read: metadata and tensors, nothing about transformers. (gguf_read.c
 * parses it, gguf_values.c looks values up; gguf_write.h makes files.)
 *
 * The reader works on a span of bytes that stays the caller's (usually a mapped file) and must
 * outlive the struct gguf; a file in several parts is joined by gguf_parts.h. It copies no strings,
 * arrays or tensor data; its own memory is bounded by a small multiple of the span's length,
 * whatever the counts in the file claim. Versions 2 and 3, little-endian. A parsed struct gguf is
 * immutable: any threads may read it.
 *
 * Source: the GGUF specification of the ggml project; where llama.cpp's loader differs, see
 * gguf_read.c.
 */
#pragma once

#include "base/file.h"
#include "base/name_index.h"
#include "formats/blocks.h"

/* Kinds of metadata values; the numbers are the file's, from 0 on. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* "u32", "string", ...; "unknown" for other numbers. */
const char *gguf_kind_name(enum gguf_kind kind);

/* A value of the metadata; its bytes are borrowed from the span. */
struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind element_kind; /* of an array; never GGUF_ARRAY: nested arrays are refused */
    uint64_t count;              /* elements of an array, 1 otherwise */
    struct text bytes;           /* a string's bytes; else the little-endian payload */
};

/* A key of the metadata with its value. */
struct gguf_pair {
    struct text key;
    struct gguf_value value;
};

#define GGUF_MAX_DIMS 4

/* What the file says of a tensor, and where its data are. */
struct gguf_tensor {
    struct text name;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] varies fastest (the row length); unused ones are 1 */
    const struct tensor_type_info *type;
    uint64_t n_elements;
    uint64_t n_bytes;
    uint64_t offset;           /* of the data, from the end of the padded header */
    uint64_t file_offset;      /* the same from the start of the file */
    const unsigned char *data; /* n_bytes inside the span, aligned to the file's alignment
                                  relative to the start of the span */
    int part;                  /* of a file that gguf_join_parts joined: the number of its part,
                                  from 0 on; else 0 */
};

/* A parsed file. */
struct gguf {
    uint32_t version;
    uint32_t alignment; /* bytes, a power of two from 8 to 65536 */
    size_t n_pairs;
    struct gguf_pair *pairs; /* in file order */
    size_t n_tensors;
    struct gguf_tensor *tensors; /* in file order */
    size_t head_bytes;           /* of the span, before the tensors' data and padding */
    struct name_index by_key, by_name;
    struct file_map *others; /* [n_others] the other parts of a file that gguf_join_parts joined,
                                malloc'd and mapped */
    size_t n_others;
};

/*
 * Parses and checks the whole structure: after STATUS_OK every pair and tensor lies inside the
 * span, keys and tensor names are unique, and tensor data do not overlap. *out is for
 * gguf_free; NULL on failure. Fails with STATUS_BAD_FILE (message: offset or field, expected,
 * found; the caller adds the file's name) or STATUS_NO_MEMORY. Time is n log n in the number of
 * names, linear in the rest; tensor data are not touched.
 */
enum status gguf_parse(const void *bytes, size_t len, struct gguf **out, struct err *e);
/* The same of a mapped file, which somebody may be writing to: the head is checked, and used, as it
 * is now (file_map_make_private). Tensor data may still change. */
enum status gguf_parse_file(const struct file_map *f, struct gguf **out, struct err *e);
void gguf_free(struct gguf *g); /* NULL is legal */

/* Whether numbers of a kind are integers, which a bool is not. */
bool gguf_is_integer(enum gguf_kind kind);

/* NULL if there is none. Logarithmic time, whatever the names. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/*
 * Typed lookups, min <= max (asserted). A missing key leaves *out as it was and is STATUS_OK with
 * *found = false when `found` is not NULL; with found == NULL it is an error that names the key. A
 * value of another kind or out of range is STATUS_BAD_FILE naming key, expected and found. Any
 * integer kind is accepted where the value fits; a bool is not an integer.
 */
enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, bool *found, struct err *e);
/* F32 or F64; may be NaN or infinite. */
enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, bool *found,
                         struct err *e);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, bool *found,
                          struct err *e);
enum status gguf_get_text(const struct gguf *g, const char *key, struct text *out, bool *found,
                          struct err *e);
/* An array of this element kind, never GGUF_ARRAY (asserted); *out is NULL if it is missing, and on
 * failure. */
enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind element_kind,
                           const struct gguf_value **out, bool *found, struct err *e);

/* Walks an array of strings, from a zeroed cursor on: each call sets *out to the next one, borrowed
 * from the file. False at the end, and for values of another kind. */
struct gguf_cursor {
    uint64_t i;
    size_t offset;
};
bool gguf_next_text(const struct gguf_value *array, struct gguf_cursor *c, struct text *out);

/*
 * Element i < count (asserted) of an array of numbers or bools (or i = 0 of a scalar); not for
 * strings, and gguf_int_at not for floats (asserted). What is above INT64_MAX is that.
 */
int64_t gguf_int_at(const struct gguf_value *v, uint64_t i);
double gguf_float_at(const struct gguf_value *v, uint64_t i);
