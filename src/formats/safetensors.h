/*
 * safetensors - read and write safetensors files, and read the folders of Hugging Face's that hold
 * them: names, shapes and places of tensors.
 *
 * The reader works on a span of bytes that stays the caller's (usually a mapped file) and must
 * outlive the struct safetensors. Taken is what version 0.8 of the library takes, but for keys that
 * occur twice, null as metadata, more than SAFETENSORS_MAX_DIMS dimensions, and headers of more
 * than 2^20 JSON values or 16 containers in one another. (That refuses a -0 as a whole number.)
 * What has been read is immutable: any threads may read it.
 */
#pragma once

#include "formats/gguf.h"
#include "formats/json.h"

/* --- types ---------------------------------------------------------------------------------- */

/* One of a table, in which types of larger elements stand behind those of smaller ones: writers
 * order tensors by it, the last type first. */
struct safetensors_dtype {
    const char *name; /* as in the file: "F32" */
    int bits;         /* of an element */
    int type;         /* the enum tensor_type of the same numbers; -1: none */
};

/* NULL if there is none. */
const struct safetensors_dtype *safetensors_dtype_named(struct text name);
const struct safetensors_dtype *safetensors_dtype_of(enum tensor_type type);

/* The bytes of a shape, 0 if one of its dimensions is 0; false if they, or the product of the
 * first dimensions, overflow, or if they are not whole bytes. */
bool safetensors_measure(const struct safetensors_dtype *dtype, int n_dims, const uint64_t *dims,
                         uint64_t *bytes);

/* --- a file --------------------------------------------------------------------------------- */

#define SAFETENSORS_MAX_DIMS 8

struct safetensors_tensor {
    struct text name; /* valid UTF-8; may be empty and hold zero bytes */
    const struct safetensors_dtype *dtype;
    int n_dims;                          /* 0: one number */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* the last one varies fastest, unlike a GGUF tensor's; 0
                                            is legal; unused ones are 1 */
    uint64_t n_bytes;
    const unsigned char *data; /* n_bytes inside the span, at any address, little-endian */
};

struct safetensors {
    size_t n_tensors;
    struct safetensors_tensor *tensors; /* in the order of their data */
    size_t head_bytes;                  /* of the span, before the tensors' data */
    struct json_reader json;            /* private: the names' memory */
};

/*
 * Parses and checks everything: after STATUS_OK every tensor lies inside the span, has the bytes
 * that its shape takes and shares none, and there are no bytes of no tensor. safetensors_free is
 * due in any case. STATUS_BAD_FILE (message: tensor or field, expected, found; the caller adds the
 * file's name) or STATUS_NO_MEMORY. Memory is bounded by some 50 bytes for each of the header; time
 * is n log n in the header's length; tensor data are not touched.
 */
enum status safetensors_parse(const void *bytes, size_t len, struct safetensors *out,
                              struct err *e);
/* The same of a mapped file, which somebody may be writing to: the header is checked, and used, as
 * it is now (file_map_make_private). Tensor data may still change. */
enum status safetensors_parse_file(const struct file_map *f, struct safetensors *out,
                                   struct err *e);
void safetensors_free(struct safetensors *s); /* legal on a zeroed struct and twice */

/* --- a folder ------------------------------------------------------------------------------- */

/* The tensors of model.safetensors or, where there is none, of the shards that
 * model.safetensors.index.json names. */
struct safetensors_folder {
    size_t n_tensors;
    struct safetensors_tensor *tensors; /* shard by shard, each in the order of its data */
    struct name_index by_name;
    struct safetensors_shard *shards; /* private; [n_shards] */
    size_t n_shards, shards_cap;
};

/*
 * Maps and checks all files (safetensors_parse_file). A shard is a file in the folder itself, or a
 * symbolic link to a plain file, and has those tensors that the index says it has, no more and no
 * fewer. Fails with STATUS_BAD_FILE, naming the file, or STATUS_NO_MEMORY. safetensors_folder_close
 * is due in any case.
 */
enum status safetensors_folder_open(struct safetensors_folder *f, const char *path, struct err *e);
/* Legal on a zeroed struct and twice. */
void safetensors_folder_close(struct safetensors_folder *f);

/* NULL if there is none. Logarithmic time, whatever the names. */
const struct safetensors_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                         struct text name);

/* The mapping that a tensor of the folder is in, whose pages may be released. */
const struct file_map *safetensors_folder_map(const struct safetensors_folder *f,
                                              const struct safetensors_tensor *t);

/* --- writing -------------------------------------------------------------------------------- */

struct safetensors_written {
    const char *name; /* valid UTF-8 */
    const struct safetensors_dtype *dtype;
    int n_dims;
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* the last one varies fastest */
    struct gguf_source source;           /* asked for all bytes from the first to the last */
};

/*
 * Sorts the tensors to the order of their data in the file, and makes (a zeroed) *head what stands
 * before them: the header and its length, as the library and transformers do, byte for byte. The
 * caller frees it with bytes_free in any case. Names are unique. STATUS_NO_MEMORY; STATUS_USAGE for
 * lengths that overflow.
 */
enum status safetensors_head(struct safetensors_written *tensors, size_t n, struct bytes *head,
                             struct err *e);

/* The whole file, in place of what is at `path` (file_writer in base/file.h): the sources are asked
 * one after the other, in the order above. Also what a source fails with, STATUS_FAILED. */
enum status safetensors_write(const char *path, struct safetensors_written *tensors, size_t n,
                              struct err *e);
