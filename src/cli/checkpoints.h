/*
 * checkpoints - the checkpoints that a command reads: files opened and refused, and their model as
 * the options want it.
 */
#pragma once

#include "cli/command.h"
#include "cli/variant.h"

/* Opens the job's checkpoint, with the parts that the command wants; its model with other K/V heads
 * than the file's, and without some query heads, if the options ask for that. Whoever wants a model
 * has job.pool from then on. The failures of job_open, variant_load and job_start_threads. */
enum status job_open_checkpoint(struct job *j, struct err *e);

/* Closes it, and forgets its tokens and what was left out of it: another may be opened. Legal
 * twice.
 */
void job_close_checkpoint(struct job *j);

/* Opens a checkpoint; parts and pool as in checkpoint_take. Of a Hugging Face folder, or a file of
 * another format that scripts/import.py takes, the message has the command line that makes a GGUF
 * file of it. */
enum status job_open(const char *path, unsigned parts, struct pool *pool, struct checkpoint *c,
                     struct err *e);
/* The file alone. */
enum status job_map(const char *path, struct file_map *out, struct err *e);

/* Warns of what is odd in a checkpoint's vocabulary. NULL is legal. */
void job_warn_vocabulary(const struct common_options *o, const char *path,
                         const struct tokenizer *t);

/* Says which matrices of the shape cannot have the type, whose blocks do not fit their rows. */
void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type);
