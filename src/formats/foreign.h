/*
 * foreign - refuses checkpoints of other formats that scripts/import.py takes.
 */
#pragma once

#include "base/status.h"

/* STATUS_BAD_FILE, with the command line that makes a GGUF file of it, for a Hugging Face folder
 * and for a file whose name ends like those of other programs' checkpoints. */
enum status foreign_refuse(const char *path, struct err *e);
