/*
 * gguf - read and write GGUF files: metadata and tensors, nothing about transformers.
 *
 * The reader works on a span of bytes that stays the caller's (usually a mapped file) and must
 * outlive the struct gguf; a file in several parts is joined by gguf_parts.h. It copies no strings,
 * arrays or tensor data; its own memory is bounded by a small multiple of the span's length,
 * whatever the counts in the file claim. Versions 2 and 3, little-endian. A parsed struct gguf is
 * immutable: any threads may read it.
 *
 * Source: the GGUF specification of the ggml project; where llama.cpp's loader differs, see
 * read.c.
 */
#pragma once

#include "base/file.h"
#include "base/name_index.h"

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

/* Tensor element types; the numbers are the file's. Only those whose numbers this program reads are
 * named here; tensor_type_find knows the sizes of all. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_BF16 = 30,
};

/* A block of `block_elements` consecutive elements of a row takes `block_bytes` bytes. */
struct tensor_type_info {
    const char *name; /* "F32", "Q4_K", ... as the field writes them */
    uint32_t type;
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* Of whole blocks. */
static inline uint64_t tensor_type_bytes(const struct tensor_type_info *type, uint64_t elements)
{
    return elements / type->block_elements * type->block_bytes;
}

/* NULL for numbers that are unknown or were removed from the format. */
const struct tensor_type_info *tensor_type_find(uint32_t type);
/* By name, case-insensitively ("q8_0"); NULL if there is none. */
const struct tensor_type_info *tensor_type_named(struct text name);

struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind element_kind; /* of an array; never GGUF_ARRAY: nested arrays are refused */
    uint64_t count;              /* elements of an array, 1 otherwise */
    struct text bytes;           /* a string's bytes; else the little-endian payload */
};

struct gguf_pair {
    struct text key;
    struct gguf_value value;
};

#define GGUF_MAX_DIMS 4

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

/*
 * Writing. The writer collects pairs and tensor records (copying keys, strings and arrays), then
 * gguf_write sends header, padding and tensor data to a temporary file beside `path`, syncs it
 * and renames it over `path`: a failure or crash leaves the old file as it was and no temporary
 * file behind (see file_writer in base/file.h). Version 3. Tensors are stored contiguously in the
 * order added, each padded to the alignment, as llama.cpp's loader requires. One thread at a time.
 *
 * The alignment is 32, or the value of a general.alignment pair if one is added (a u32, a power
 * of two from 8 to 65536). Bools become 0 or 1, the only values the specification allows.
 *
 * The add functions are sticky: after a failure (memory, an illegal or missing name, a tensor
 * name of 64 bytes or more, an impossible shape) the later ones do nothing and gguf_write returns
 * the first failure. That no name is added twice is up to the caller. What is refused is
 * STATUS_USAGE, but STATUS_BAD_FILE for a tensor name, which comes from a file that was read; what
 * the system refuses is STATUS_FAILED.
 *
 * Keys are null-terminated; arrays may be NULL if their count is 0 (asserted).
 */
struct gguf_writer;
enum status gguf_writer_create(struct gguf_writer **out, struct err *e);
void gguf_writer_free(struct gguf_writer *w); /* NULL is legal */
void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_add_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_add_f32(struct gguf_writer *w, const char *key, float value);
void gguf_add_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_add_text(struct gguf_writer *w, const char *key, struct text value);
/* `elements` holds count strings. */
void gguf_add_texts(struct gguf_writer *w, const char *key, const struct text *elements,
                    uint64_t count);
/* An array of count numbers of this kind, as they are in memory: GGUF_I32 of int32_t. */
void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_kind kind,
                    const void *elements, uint64_t count);
/* Any scalar or array value of every kind, as it was read from a file. */
void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *value);
/*
 * Where a tensor's bytes come from while they are written: `data`, all of them; or `piece`, for
 * those that are not in memory. That sets *data to the bytes from `offset` on, *len of them (from 1
 * to what is left of the tensor, asserted), borrowed until the next call. Each write asks for a
 * tensor from offset 0 to its end without a gap, one tensor after the other, in the order added. A
 * failure, also STATUS_INTERRUPTED, ends the write with that status.
 */
struct gguf_source {
    enum status (*piece)(void *arg, uint64_t offset, const void **data, size_t *len, struct err *e);
    void *arg;
    const void *data; /* if `piece` is NULL */
};
void gguf_add_tensor_source(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                            const uint64_t *dims, struct gguf_source source);
/* Borrows `data` (the type's row layout, n_bytes as the shape says) until gguf_write returns. */
void gguf_add_tensor(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                     const uint64_t *dims, const void *data);
/* May be called more than once. */
enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e);
/* The same bytes into malloc'd memory, which the caller frees; *out is NULL on failure. */
enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e);
/* The same as if a file had been written and mapped: file_map_close is due on success. */
enum status gguf_write_map(struct gguf_writer *w, struct file_map *out, struct err *e);

/* general.file_type of a file whose matrices are of this type: llama.cpp's number (enum
 * llama_ftype). */
uint32_t gguf_file_type(uint32_t type);

/* --- numbers in blocks ------------------------------------------------------------------------ */

/*
 * blocks - rows of numbers in GGUF's tensor types: F32, F16, BF16, Q8_0, Q4_0.
 *
 * Encoded data are little-endian, as in a file, and may lie at any address. The block types take
 * 32 elements at a time:
 *
 *   Q8_0  d as F16, then 32 int8 q;     x = d * q        d = max |x| / 127, q = round(x / d)
 *   Q4_0  d as F16, then 16 bytes q;    x = d * (q - 8)  d = x of largest magnitude / -8,
 *         element j in the low nibble of byte j,         q = min(15, floor(x / d + 8.5))
 *         element j + 16 in its high nibble
 *
 * Source: quantize_row_q8_0_ref and quantize_row_q4_0_ref of the ggml project, which define
 * what is in a file. As there, x / d is x * (1 / d) in float with the d before it is rounded to
 * F16, ties are rounded away from zero, and the product of Q4_0 is rounded before 8.5 is added.
 * (Where a compiler fuses the two, as it may for processors whose baseline has fma, llama.cpp's
 * own files differ from those it makes on x86 in rare blocks.)
 *
 * The functions depend on nothing but their arguments: any threads may run them at once.
 */

/* Whether `type` (an enum tensor_type) is one of the five; but for blocks_decode the functions
 * below take no other (asserted). */
bool blocks_runs(uint32_t type);

/*
 * The type that numbers of `type` have in memory: the same, but what is only read (Q4_1, Q5_0,
 * Q5_1, Q2_K to Q6_K, IQ4_NL) is widened. To Q8_0 where its rounding adds at most 1.2% to the error
 * that the type has itself (of weights that are normally or t5 distributed), else, for Q6_K (2.7%),
 * F16.
 */
uint32_t blocks_in_memory(uint32_t type);
#define BLOCKS_READ "F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K or IQ4_NL"

/*
 * Encodes n floats, n a multiple of the type's block (asserted), to n / block_elements *
 * block_bytes bytes. F16 and BF16 round to nearest even; what F16 cannot hold becomes infinite.
 * A block with an infinity or a NaN in it, or whose d overflows F16, decodes to NaNs or
 * infinities: the caller who minds looks for those.
 */
void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n);

/* Decodes n elements, n a multiple of the type's block (asserted), to floats; of every type that
 * runs or is widened. */
void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n);

/* Makes the elements first to first + n - 1 of encoded data 0; the others, also those of their
 * blocks, decode to what they did. */
void blocks_zero(uint32_t type, void *data, uint64_t first, uint64_t n);
