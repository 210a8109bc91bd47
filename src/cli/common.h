/*
 * common - the options that several commands have.
 */
#pragma once

/* For the whole directory. */
#include <inttypes.h>

#include "args/options.h"
#include "base/callbacks.h"
#include "base/mem.h"
#include "base/times.h"
#include "model/model.h"
#include "model/shape.h"

/* The values of rows that several commands have. A command's VALUES begin with them. */
struct common_options {
    const char *positional; /* MODEL */
    const char *model;      /* -m */
    bool quiet, verbose;
    const char *threads; /* -t: NULL, a number or "auto" */

    const char *prompt, *file; /* the text: at most one is not NULL */
    const char *ids;           /* of --tokens, instead of a text */
    bool interactive;          /* -i reads standard input line by line */
    const char *range;         /* of the text */
    int truncate; /* of truncate_sides: the end at which a text beyond the context is cut */

    const char *out; /* -o */
    bool force;
    int format; /* an enum table_format */
    struct option_u64 seed;

    const char *kv_types;    /* of the cache; NULL: F32 */
    const char *without;     /* NULL: all heads are there */
    const char *score_scale; /* NULL: the checkpoint's */
    const char *kv_heads;    /* NULL: the checkpoint's */
};

/* Rows for a group of a command. */
extern const struct option general_options[], input_options[], engine_options[];

/* Positionals, and single rows, for a command's own tables. */
#define MODEL_POSITIONAL                                                                           \
    OPT_STRING("MODEL", common.positional, NULL, NULL, .reads = "the checkpoint")
#define OPT_THREADS(...)                                                                           \
    OPT_STRING("threads", common.threads, "N|auto", __VA_ARGS__, .letter = 't',                    \
               .otherwise = "DECODE_THREADS, else auto", .unrecorded = true)
#define THREADS_HELP "threads; auto: as many processors as this process may use"
#define OPT_IDS                                                                                    \
    OPT_STRING("tokens", common.ids, "IDS",                                                        \
               "token ids 1,2,3 instead of a text; taken as they are, without a begin-of-text "    \
               "token",                                                                            \
               .excludes = "range")
#define OPT_TRUNCATE                                                                               \
    OPT_CHOICE("truncate", common.truncate, "SIDE", truncate_sides,                                \
               "cut a text that is longer than the context at its left or right end",              \
               .otherwise = "such a text is refused")
#define OPT_RANGE                                                                                  \
    OPT_STRING("range", common.range, "A:B",                                                       \
               "a share of the text's bytes, fractions from 0 to 1: 0.9:1 is the last tenth",      \
               .otherwise = "0:1, all")
#define OPT_SCORE_SCALE                                                                            \
    OPT_STRING("score-scale", common.score_scale, "X|none",                                        \
               "multiply attention's scores by X, or by nothing, instead of 1/sqrt(head size)",    \
               .otherwise = "the checkpoint's")
#define OPT_KV_TYPE(called, ...)                                                                   \
    OPT_STRING("kv-type", common.kv_types, called, __VA_ARGS__, .choices = cache_type_names,       \
               .fallback = "f32")
#define KV_TYPE_HELP "how keys and values are cached, or K/V: each"
#define OPT_FORMAT                                                                                 \
    OPT_CHOICE("format", common.format, "FORM", table_formats, "form of the output",               \
               .fallback = "table")

/* The sides of --truncate, and the forms of what is no table; each list ends with NULL. */
enum { TRUNCATE_LEFT, TRUNCATE_RIGHT };
enum { FORMAT_TEXT, FORMAT_JSON };
extern const char *const truncate_sides[], *const text_formats[];

#define SHAPE_HELP                                                                                 \
    "sizes: " SHAPE_FORM                                                                           \
    ", by default arch gpt2 (llama, transformer, decode), ff 4 * D_MODEL (llama: 8/3), vocab "     \
    "50257, ctx 1024, dk and dv (a head's key and value) D_MODEL / HEADS, kv (K/V heads) HEADS, "  \
    "score dot or additive; or a name, as llama-7b,ctx=4096 (info --shape help lists them)"
