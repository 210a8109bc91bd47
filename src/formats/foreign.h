/*
 * foreign - refuses checkpoints of other formats that scripts/import.py takes, with the command
 * line that makes a GGUF file of them.
 */
#pragma once

#include "base/status.h"

/* STATUS_BAD_FILE for a Hugging Face folder. */
enum status foreign_refuse_folder(const char *path, struct err *e);

/* STATUS_BAD_FILE for a file whose name ends like those of other programs' checkpoints. */
enum status foreign_refuse_file(const char *path, struct err *e);
