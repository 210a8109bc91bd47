/*
 * info - what the command info found in a checkpoint or of a shape, and its printed forms.
 */
#ifndef DECODE_CLI_INFO_H
#define DECODE_CLI_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/output.h"
#include "base/status.h"
#include "cli/info_cost.h"
#include "gguf/gguf.h"
#include "measure/inspect.h"
#include "model/config.h"
#include "show/report.h"
#include "text/tokenizer.h"

struct info {
    const char *path;
    const char *shape_text; /* --shape instead of a checkpoint; NULL: there is one */
    struct file_map file;
    struct gguf *gguf;        /* NULL with --shape */
    struct text architecture; /* "" if the file does not say */
    struct text name;         /* "" likewise */
    bool has_config;          /* an architecture that runs here, with tensors */
    struct config config;
    struct err refusal;          /* why it does not run here, or empty */
    bool runs;                   /* the weights are of a type that runs here: shape is known */
    struct cost_shape shape;     /* of the config; its storage means nothing unless `runs` */
    struct info_cost cost;       /* of the shape, planned; nothing unless it runs */
    struct tokenizer *tokenizer; /* NULL: none, or it cannot be read */
    struct err problem;          /* why no text can be encoded; "" */
    struct text tokenizer_model; /* "" if there is none */
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    bool list_tensors;
    struct inspect_check *checks; /* [gguf->n_tensors] with --check, or NULL */
    enum table_format format;
    const char *columns; /* of the tables, which are all that is printed then; NULL: everything */
    struct output *out;
};

/* Several tables for people, one CSV table, or one JSON object. STATUS_NO_MEMORY; STATUS_USAGE for
 * columns that no table has. */
enum status info_print(const struct info *info, struct err *e);

#endif
