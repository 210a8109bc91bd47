/*
 * checkpoints - the checkpoints that a command reads: files opened and refused, and their model as
 * the options want it.
 */
#pragma once

#include "cli/command.h"
#include "cli/variant.h"

/* Opens the job's checkpoint with the parts that the command wants. The options may ask for other
 * K/V heads than the file's, and leave query heads out. A command that wants a model has job.pool
 * from then on. The failures of job_open, variant_load and job_start_threads. */
enum status job_open_checkpoint(struct job *j, struct err *e);

/* Closes the job's checkpoint and forgets its tokens and left-out heads, so that another may be
 * opened. Legal twice. */
void job_close_checkpoint(struct job *j);

/* Opens a checkpoint; parts and pool as in checkpoint_take. Where the path is a Hugging Face folder
 * or a file that scripts/import.py takes, the message has the command that makes a GGUF file of it.
 */
enum status job_open(const char *path, unsigned parts, struct pool *pool, struct checkpoint *c,
                     struct err *e);
/* Maps the file of a checkpoint, with the same refusals. */
enum status job_map(const char *path, struct file_map *out, struct err *e);

/* Prints the warning of a checkpoint's tokenizer, if it has one. t may be NULL. */
void job_warn_vocabulary(const struct common_options *o, const char *path,
                         const struct tokenizer *t);

/* Says which matrices of the shape become F16 because blocks of the type do not fit their rows. */
void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type);
