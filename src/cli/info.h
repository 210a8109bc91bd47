/*
 * info - what the command info found, and its printed forms.
 */
#ifndef DECODE_CLI_INFO_H
#define DECODE_CLI_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "measure/inspect.h"
#include "model/config.h"
#include "show/output.h"
#include "show/table.h"
#include "text/tokenizer.h"

struct info {
    const char *path;
    struct file_map file;
    struct gguf *gguf;
    struct text architecture; /* "" if the file does not say */
    struct text name;         /* "" likewise */
    bool has_config;          /* an architecture that runs here, with tensors */
    struct config config;
    char variant[16];            /* of the config */
    bool runs;                   /* the weights are of a type that runs here: shape is known */
    struct cost_shape shape;     /* of the config; its storage means nothing unless `runs` */
    double bytes_per_s;          /* --bandwidth; 0: not given */
    struct tokenizer *tokenizer; /* NULL: none, or of a kind that is not read here */
    struct text tokenizer_model; /* "" if there is none */
    struct inspect_sum parts[INSPECT_PARTS];
    struct inspect_sum total;
    bool list_tensors;
    struct inspect_check *checks; /* [gguf->n_tensors] with --check, or NULL */
};

/* One type's share of the tensors. */
struct info_type {
    const char *name;
    uint64_t n_tensors;
};

/* The types in order of first use, at most `cap`; gives their number. */
int info_types(const struct gguf *g, struct info_type *types, int cap);
#define INFO_MAX_TYPES 64

/* Where the tensor's data begin, from the start of the file. */
uint64_t info_offset(const struct info *info, const struct gguf_tensor *t);

/* The aligned, Markdown and CSV forms. STATUS_NO_MEMORY. */
enum status info_print_tables(const struct info *info, enum table_format format, struct output *out,
                              struct err *e);

/* One JSON object, over several lines or (`one_line`) on one. */
void info_print_json(const struct info *info, bool one_line, struct output *out);

#endif
