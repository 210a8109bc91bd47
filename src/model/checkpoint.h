/*
 * checkpoint - a file opened from a path with the parts that are asked for: what every command
 * starts with.
 */
#ifndef DECODE_MODEL_CHECKPOINT_H
#define DECODE_MODEL_CHECKPOINT_H

#include "model/model.h"
#include "text/tokenizer.h"

struct checkpoint {
    struct file_map file;
    struct gguf *gguf;
    struct model *model;         /* NULL unless asked for */
    struct tokenizer *tokenizer; /* NULL when the file has none */
};

enum checkpoint_parts {
    CHECKPOINT_TOKENIZER = 1, /* required: a file without one is an error */
    CHECKPOINT_MODEL = 2,
};

/* Maps and parses `path` and builds the parts asked for (a tokenizer that is present is always
 * built). Messages begin with the path. On failure everything is released. */
enum status checkpoint_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e);
/* The same of a file that is open, or of memory instead; `file` is the checkpoint's from then on,
 * whatever is returned, and zeroed. */
enum status checkpoint_take(struct file_map *file, const char *path, unsigned parts,
                            struct checkpoint *c, struct err *e);
void checkpoint_close(struct checkpoint *c); /* legal on a zeroed struct and twice */

#endif
