/*
 * input - the texts that commands read, their tokens, and which files may be written: paths.c.
 */
#pragma once

#include "cli/command.h"

/* Makes --file "-" where neither a text nor --tokens are given and standard input may be a text: a
 * pipe (also one that ends with nothing, an empty text), a socket, or a file with bytes left. */
void input_use_pipe(struct common_options *o);

/* Fractions of a text's bytes, 0 <= from < to <= 1. */
struct input_range {
    double from, to;
};
/* Reads "A:B", as --range has it; NULL is all of the text. STATUS_USAGE. */
enum status input_parse_range(const char *range, struct input_range *out, struct err *e);
/* The bytes from floor(from * len) up to floor(to * len): ranges that meet share no byte and leave
 * none out. */
struct text input_range_of(struct input_range range, struct text text);

/*
 * The text of -p or -f, empty if there is neither: its bytes are malloc'd memory of the caller;
 * *text is what --range takes of it. The failures of file_read_all; STATUS_USAGE for a bad range,
 * before a text is waited for, and for a checkpoint in place of a text.
 */
enum status input_read(const struct common_options *o, char **bytes, struct text *text,
                       struct err *e);

/* Reads the whole of a text of at most `max` bytes while signals are deferred; Ctrl-C still ends
 * the wait for a pipe. STATUS_INTERRUPTED if Ctrl-C came before. */
enum status input_await(const char *path, size_t max, char **text, size_t *len, struct err *e);

/* STATUS_BAD_FILE if the checkpoint at `path` has no tokenizer, or none that makes tokens of texts,
 * which `option` needs. */
enum status input_needs_tokenizer(const struct tokenizer *t, const char *path, const char *option,
                                  struct err *e);

/* Cuts *n tokens of `what` ("text") that are more than `cap` down to `most` >= 1, on the side that
 * --truncate names, and says so; a BOS at the beginning stays. Without --truncate STATUS_USAGE,
 * with both lengths. Prints a note if the tokens begin with two BOS. */
enum status job_fit_tokens(struct job *j, const char *what, size_t cap, size_t most, int32_t *ids,
                           size_t *n, struct err *e);

/* Sets job.tokens to those of the whole text, with one BOS where the checkpoint asks for it. */
enum status job_tokenize(struct job *j, struct err *e);

/* Sets job.tokens to those of the text or of --tokens. STATUS_USAGE if they are more than the
 * context, or none: the message says that there is nothing to `purpose` ("score"). */
enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e);

/* --- a text that a checkpoint writes itself, where a command takes a file: self or self:N -------
 */

#define SELF_TOKENS 16384 /* of self without a number */
#define SELF_CTX    16    /* of a model that can write, at least */

/* Whether a name is no file's, but self or self:N. */
bool input_is_self(const char *name);

/* The N of such a name. STATUS_USAGE for a number below `least`. */
enum status input_count_self(const char *option, const char *name, int least, int *n,
                             struct err *e);

/* Fills tokens [n * length] with n texts that the checkpoint at `path` writes at temperature 1, as
 * own_text_write has it. Threads are started.
 * STATUS_USAGE for too short a context; STATUS_BAD_FILE without a tokenizer; the failures of
 * model_create and own_text_write. */
struct input_self {
    const struct checkpoint *checkpoint;
    const char *path, *option; /* for messages */
    uint64_t seed;
    int n, length;              /* length at most the model's context */
    struct callbacks callbacks; /* of tokens */
};
enum status job_write_self(struct job *j, const struct input_self *t, int32_t *tokens,
                           struct err *e);
