/*
 * common - what the commands have in common: the checkpoint they are given, -q and -v, and the
 * lines on standard error that these two ask for or forbid.
 */
#ifndef DECODE_CLI_COMMON_H
#define DECODE_CLI_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/options.h"
#include "model/checkpoint.h"

struct common_options {
    const char *positional; /* MODEL */
    const char *model;      /* -m */
    bool quiet, verbose;
    bool binary; /* of commands that read texts, see input.h */
};
extern const struct option common_options[];

/* What the list of positionals holds, and the group of the options above, of a command whose VALUES
 * have them as `common`. */
#define MODEL_POSITIONAL                                                                           \
    OPT_STRING("MODEL", common.positional, NULL, NULL, .reads = "the checkpoint")
#define COMMON_GROUP                                                                               \
    {                                                                                              \
        "General", common_options, offsetof(VALUES, common)                                        \
    }

/* Rows that several commands have. VALUES has their value as `threads`, `format`, `out`, `force`.
 */
#define OPT_THREADS(...)                                                                           \
    OPT_STRING("threads", threads, "N|auto", __VA_ARGS__, .letter = 't',                           \
               .otherwise = "DECODE_THREADS, else auto")
#define THREADS_HELP "threads; auto: as many processors as this process may use"
#define OPT_FORMAT                                                                                 \
    OPT_CHOICE("format", format, "FORM", table_formats, "form of the output", .fallback = "table")
#define OPT_OUT                                                                                    \
    OPT_STRING("output", out, "OUT", "the new checkpoint; required", .letter = 'o', .writes = true)
#define OPT_FORCE OPT_FLAG("force", force, "replace OUT if it exists")

/* The checkpoint's path: the positional or -m. STATUS_USAGE if there is none, or both. */
enum status common_model_path(const struct common_options *c, const char **path, struct err *e);

/* Of common_open's parts, beside those of checkpoint.h: a tokenizer that makes tokens of texts. */
#define COMMON_TEXTS (CHECKPOINT_TOKENIZER | 1u << 8)

/* checkpoint_open of a path that, should the file be cut short while in use, the message names. */
enum status common_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e);

/* Whether two checkpoints, both with a model, have the same tokens, those of the second as far as
 * it names them: if not, `failure`, naming its path and the first difference. */
enum status common_same_tokens(const struct checkpoint *mine, const struct checkpoint *other,
                               const char *path, enum status failure, struct err *e);

/* The shape of the checkpoint at `path`, which its messages name. */
enum status common_config(const char *path, const struct checkpoint *c, struct config *config,
                          struct err *e);

/* One line about the run on standard error, "decode: " before it; nothing with -q. Names from files
 * may be in it: control characters become '?'. */
void say(const struct common_options *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, with -v only. */
#define say_verbose(c, ...) ((c)->verbose ? say((c), __VA_ARGS__) : (void)0)

/* Whether to say that so many bytes will be taken: with -v, and always beyond 1 GiB. */
bool says_memory(const struct common_options *c, uint64_t bytes);

/* Shows a line in place of the one before, on standard error, which is a terminal. */
void notice_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes that line away, if there is one: whatever else is written there does so first. */
void notice_clear(void);

/* A line that stays; where it is broken the next begins after so many spaces. */
void notice_put(const char *line, int indent);

/* The same of a line that printf's format makes, below a heading of "prompt       ": the summary at
 * a command's end. */
void notice_summary(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of what follows "decode: ". */
#define NOTICE_INDENT 8

#endif
