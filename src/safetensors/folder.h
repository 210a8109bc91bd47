/*
 * folder - the tensors of a Hugging Face folder: model.safetensors or, where there is none, the
 * shards that model.safetensors.index.json names.
 */
#ifndef DECODE_SAFETENSORS_FOLDER_H
#define DECODE_SAFETENSORS_FOLDER_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "safetensors/read.h"

/* Immutable once open: any threads may read it. */
struct safetensors_folder {
    size_t n_tensors;
    const struct safetensors_tensor *tensors; /* shard by shard, each in the order of its data */
    struct safetensors_folder_index *index;   /* private */
};

/*
 * Maps and checks all files (safetensors_parse_file). A shard is a file in the folder itself, or a
 * symbolic link to a plain file, and has those tensors that the index says it has, no more and no
 * fewer. Fails with STATUS_BAD_FILE, naming the file, or STATUS_NO_MEMORY. safetensors_folder_close
 * is due in any case.
 */
enum status safetensors_folder_open(struct safetensors_folder *f, const char *path, struct err *e);
void safetensors_folder_close(
    struct safetensors_folder *f); /* legal on a zeroed struct and twice */

/* NULL if there is none. Logarithmic time, whatever the names. */
const struct safetensors_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                         struct text name);

/* The mapping that a tensor of the folder is in, whose pages may be released. */
const struct file_map *safetensors_folder_map(const struct safetensors_folder *f,
                                              const struct safetensors_tensor *t);

/* The path of the file that a tensor of the folder is in, for messages. */
const char *safetensors_folder_file(const struct safetensors_folder *f,
                                    const struct safetensors_tensor *t);

#endif
