/*
 * common - the options that several commands have.
 */
#ifndef DECODE_CLI_COMMON_H
#define DECODE_CLI_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/options.h"
#include "convert/convert.h"

/* Conversion to fewer K/V heads, or to a latent cache. */
struct variant_options {
    /* What is wanted, one of them; NULL: as in the checkpoint. */
    const char *kv_heads; /* a number, or one a layer */
    const char *latent;   /* a rank, or one a layer */
    const char *cache_bytes;
    int method;        /* an enum convert_method */
    const char *calib; /* NULL: none */
    int calib_tokens;  /* 0: VARIANT_CALIB_TOKENS */
    int grouping;      /* enum variant_grouping */
    int refit;         /* VARIANT_AUTO, or an enum convert_refit + 1 */
};
#define VARIANT_CALIB_TOKENS 65536
enum variant_grouping { VARIANT_AUTO, VARIANT_ADJACENT, VARIANT_CLUSTER };
/* The first for what runs a model, too, the others for what writes one. */
extern const struct option variant_options[], conversion_options[];

/* Whether another variant than the checkpoint's is wanted. */
static inline bool variant_is_wanted(const struct variant_options *o)
{
    return o->kv_heads || o->latent || o->cache_bytes;
}

/* The values of all rows that more than one command has; a command's VALUES begin with them, as
 * `common`. */
struct common_options {
    const char *positional; /* MODEL */
    const char *model;      /* -m */
    bool quiet, verbose;
    const char *threads; /* -t: NULL, a number or "auto" */

    const char *prompt, *file; /* the text: one of them, or neither */
    const char *positional_text;
    const char *ids;   /* of --tokens, instead of a text */
    const char *range; /* of the text */

    const char *out; /* -o */
    bool force;
    int format; /* an enum table_format */
    struct option_u64 seed;

    /* Of the commands that run the model. */
    int kv_type;         /* of kv_type_names */
    int block;           /* of score; 0: the default */
    const char *without; /* NULL: all heads are there */
    struct variant_options variant;
};

/* Groups of rows. */
#define GENERAL_GROUP                                                                              \
    {                                                                                              \
        "", general_options, 0                                                                     \
    }
#define INPUT_GROUP                                                                                \
    {                                                                                              \
        "Text", input_options, 0                                                                   \
    }
#define ENGINE_GROUP                                                                               \
    {                                                                                              \
        "Engine", engine_options, 0                                                                \
    }
#define VARIANT_GROUP                                                                              \
    {                                                                                              \
        "Variant", variant_options, offsetof(struct common_options, variant)                       \
    }
extern const struct option general_options[], input_options[], engine_options[];

/* Positionals and single rows of them, for a command's own tables. */
#define MODEL_POSITIONAL                                                                           \
    OPT_STRING("MODEL", common.positional, NULL, NULL, .reads = "the checkpoint")
#define TEXT_POSITIONAL OPT_STRING("TEXT", common.positional_text, NULL, NULL, .reads = "the text")
#define OPT_THREADS(...)                                                                           \
    OPT_STRING("threads", common.threads, "N|auto", __VA_ARGS__, .letter = 't',                    \
               .otherwise = "DECODE_THREADS, else auto")
#define THREADS_HELP "threads; auto: as many processors as this process may use"
#define OPT_TEXT(...)                                                                              \
    OPT_STRING("text", common.file, "FILE", __VA_ARGS__, .letter = 'f', .reads = "the text")
#define OPT_IDS                                                                                    \
    OPT_STRING("tokens", common.ids, "IDS",                                                        \
               "token ids 1,2,3 instead of a text; taken as they are, without a begin-of-text "    \
               "token")
#define OPT_RANGE                                                                                  \
    OPT_STRING("range", common.range, "A:B",                                                       \
               "a share of its bytes, fractions from 0 to 1: 0.9:1 is the last tenth",             \
               .otherwise = "0:1, all")
#define OPT_OUT                                                                                    \
    OPT_STRING("output", common.out, "OUT", "the new checkpoint; required", .letter = 'o',         \
               .writes = WRITES_FILE)
#define OPT_FORCE OPT_FLAG("force", common.force, "replace OUT if it exists")
#define OPT_FORMAT                                                                                 \
    OPT_CHOICE("format", common.format, "FORM", table_formats, "form of the output",               \
               .fallback = "table")

/* What a cache can be stored as, NULL after the last; as an enum storage; and the option that makes
 * a cache of this type smaller, "" for the smallest. */
extern const char *const kv_type_names[];
extern const enum storage kv_type_storage[];
extern const char *const kv_type_advice[];

#endif
