/*
 * source - opens a checkpoint, whatever its format: a GGUF file, or what `decode import` reads.
 */
#ifndef DECODE_CLI_SOURCE_H
#define DECODE_CLI_SOURCE_H

#include "base/file.h"
#include "base/status.h"

/*
 * The GGUF file at `path`, mapped; or, of a checkpoint of another format, the one that it becomes,
 * in memory. Messages name the path. The failures of file_map_open and import_open.
 */
enum status source_open(const char *path, struct file_map *out, struct err *e);

#endif
