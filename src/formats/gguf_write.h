/*
 * gguf_write - makes GGUF files.
 *
 * The writer collects pairs and tensor records; keys, strings and arrays are copied. gguf_write
 * then replaces the file as a whole (see file_writer in base/file.h), in version 3. Tensors are
 * stored contiguously in the order added, each padded to the usual alignment of 32, as llama.cpp's
 * loader requires. Bools become 0 or 1, the only values the specification allows. One thread at a
 * time may use a writer.
 *
 * The add functions are sticky: after a failure (no memory; STATUS_BAD_FILE for an impossible
 * shape, or a tensor name of 64 bytes, which a file that was read may have) the later ones do
 * nothing, and gguf_write returns the first failure. The caller sees to it that names are as a file
 * may have them, and adds none twice. Arrays may be NULL if their count is 0 (asserted).
 */
#pragma once

#include "formats/gguf.h"

struct gguf_writer;

/* *out is for gguf_writer_free; NULL on failure. STATUS_NO_MEMORY. */
enum status gguf_writer_create(struct gguf_writer **out, struct err *e);
void gguf_writer_free(struct gguf_writer *w); /* NULL is legal */

/* Add a pair of one value. */
void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_add_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_add_f32(struct gguf_writer *w, const char *key, float value);
void gguf_add_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_add_text(struct gguf_writer *w, const char *key, struct text value);

/* Adds a pair of an array of `count` strings. */
void gguf_add_texts(struct gguf_writer *w, const char *key, const struct text *elements,
                    uint64_t count);

/* Adds a pair of an array of `count` numbers of this kind, as they are in memory: int32_t for
 * GGUF_I32. */
void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_kind kind,
                    const void *elements, uint64_t count);

/* Adds a pair of a value of any kind, scalar or array, as it was read from a file; but no
 * general.alignment, because the one of that file does not matter. */
void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *value);

/*
 * Gives a tensor's bytes while they are written. `data` has all of them; else `piece` sets *data to
 * the bytes from `offset` on, *len of them (from 1 to what is left of the tensor, asserted), which
 * are borrowed until the next call. Each write asks for one tensor after the other, in the order
 * added, from offset 0 to its end without a gap. A failure, also STATUS_INTERRUPTED, ends the
 * write.
 */
struct gguf_source {
    enum status (*piece)(void *arg, uint64_t offset, const void **data, size_t *len, struct err *e);
    void *arg;
    const void *data; /* if `piece` is NULL */
};

/* Adds a tensor of these dimensions, dims[0] the row length, whose bytes `source` gives; its name
 * is copied. */
void gguf_add_tensor_source(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                            const uint64_t *dims, struct gguf_source source);

/* Adds a tensor whose bytes, in the type's row layout, are `data`, borrowed until gguf_write
 * returns. */
void gguf_add_tensor(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                     const uint64_t *dims, const void *data);

/* Writes the file, atomically. May be called more than once. Fails with the writer's first failure,
 * those of file_writer, and those of the sources. */
enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e);

/* Writes the same bytes into malloc'd memory, which the caller frees; *out is NULL on failure. */
enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e);

/* The hash_bytes and the length of the file that gguf_write would write. */
enum status gguf_write_hash(struct gguf_writer *w, uint64_t *hash, size_t *len, struct err *e);
