/*
 * input - the texts that commands read, their tokens, and which files may be written: paths.c.
 */
#pragma once

#include "cli/command.h"

/* Where no text is given, nor --tokens take its place: --file becomes "-" if standard input is a
 * pipe (which may end with nothing: an empty text), a socket or a file that has something. */
void input_use_pipe(struct common_options *o);

/* Fractions of a text's bytes, 0 <= from < to <= 1. */
struct input_range {
    double from, to;
};
/* Reads "A:B", as --range has it; NULL is all of the text. STATUS_USAGE. */
enum status input_parse_range(const char *range, struct input_range *out, struct err *e);
/* The bytes from floor(from * len) up to floor(to * len), so that ranges that meet leave nothing
 * out and share nothing. */
struct text input_range_of(struct input_range range, struct text text);

/*
 * The text of -p or -f, empty if there is neither: its bytes are malloc'd memory of the caller;
 * *text is what --range takes of it. The failures of file_read_all; STATUS_USAGE for a bad range,
 * before a text is waited for, and for a checkpoint in place of a text.
 */
enum status input_read(const struct common_options *o, char **bytes, struct text *text,
                       struct err *e);

/* The whole of any text of at most `max` bytes, while signals are deferred: Ctrl-C
 * still ends the wait for a pipe. STATUS_INTERRUPTED: it came before. */
enum status input_await(const char *path, size_t max, char **text, size_t *len, struct err *e);

/* STATUS_BAD_FILE if the checkpoint at `path` has no tokenizer, or none that makes tokens of texts,
 * which `option` needs. */
enum status input_needs_tokenizer(const struct tokenizer *t, const char *path, const char *option,
                                  struct err *e);

/* Of more tokens than `cap` --truncate leaves `most`, at least 1, the first of which stays if it is
 * BOS, and says so; without it STATUS_USAGE, with both lengths. `what` they are of, "text"; of one
 * with two BOS it says that. */
enum status job_fit_tokens(struct job *j, const char *what, size_t cap, size_t most, int32_t *ids,
                           size_t *n, struct err *e);

/* job.tokens: those of the whole text, with BOS, once, where the checkpoint wants it. */
enum status job_tokenize(struct job *j, struct err *e);

/* The same, or those of --tokens. STATUS_USAGE for more than the context, and for none, with which
 * there is nothing to `purpose` ("score"). */
enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e);
