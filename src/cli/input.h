/*
 * input - the texts that commands read, and their tokens.
 */
#ifndef DECODE_CLI_INPUT_H
#define DECODE_CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/common.h"
#include "cli/options.h"
#include "text/tokenizer.h"

/* Where the text comes from: one of them, or neither. */
struct input_options {
    const char *prompt; /* -p */
    const char *file;   /* -f */
};
extern const struct option input_options[];

/*
 * The options, and where they give no text, nor `instead` (NULL: not given) takes its place, the
 * file "-" if somebody sends one: standard input is a pipe, a socket or a file that has something.
 * A terminal and /dev/null are nobody; a pipe that ends with nothing is an empty text. Says that it
 * waits if it has to wait for long.
 */
struct input_options input_or_piped(const struct input_options *in, const char *instead,
                                    const struct common_options *c);

/* STATUS_USAGE for what is mostly no text, with what was found, unless --binary takes it. `path`
 * is where it is from. Short texts are not judged: half a character is one, too. */
enum status input_check_text(const struct common_options *c, const char *path, struct text text,
                             struct err *e);

/* Of commands that read texts. */
#define OPT_BINARY                                                                                 \
    OPT_FLAG("binary", common.binary, "take a file for a text that is mostly none: not UTF-8")

/* Of --tokens, which some commands take instead. */
#define OPT_IDS                                                                                    \
    OPT_STRING("tokens", tokens, "IDS",                                                            \
               "token ids 1,2,3 instead of a text; taken as they are, without a begin-of-text "    \
               "token")

/* STATUS_USAGE unless either a text or the `ids` of --tokens are given: else there is nothing to
 * `purpose` ("score"). */
enum status input_or_ids(const struct input_options *in, const char *ids, const char *purpose,
                         struct err *e);

/* The text of -p or -f as malloc'd memory of the caller, empty if there is neither. The failures of
 * file_read_all and input_check_text. */
enum status input_read(const struct input_options *in, const struct common_options *c, char **text,
                       size_t *len, struct err *e);

/* file_read_all while signals are deferred: a text from standard input or a pipe may be long in
 * coming, and Ctrl-C still ends the wait. STATUS_INTERRUPTED: it came before. */
enum status input_await(const char *path, size_t max, char **text, size_t *len, struct err *e);

/* Of --range: the share A:B of `text`, its bytes from floor(A * len) up to floor(B * len), so that
 * ranges that meet leave nothing out and share nothing. NULL is all. STATUS_USAGE. */
enum status input_cut(const char *range, struct text *text, struct err *e);
#define OPT_RANGE                                                                                  \
    OPT_STRING("range", range, "A:B",                                                              \
               "a share of its bytes, fractions from 0 to 1: 0.9:1 is the last tenth",             \
               .otherwise = "0:1, all")

/* STATUS_BAD_FILE if the checkpoint at `path` has no tokenizer, or none that makes tokens of texts,
 * which `option` needs. */
enum status input_needs_tokenizer(const struct tokenizer *t, const char *path, const char *option,
                                  struct err *e);

/* The ids of a text, after BOS if `bos`; *ids, NULL before, is malloc'd memory of the caller, also
 * on failure. */
enum status tokens_of_text(const struct tokenizer *t, struct text text, bool bos, int32_t **ids,
                           size_t *n, struct err *e);

/* The same of a text that is to fit into n_ctx positions: STATUS_USAGE for a long one that no
 * tokens of this vocabulary could make fit, found out without making them. `what` it is in the
 * message, "the prompt". Others may be too long yet. */
enum status tokens_that_fit(const char *what, const struct tokenizer *t, struct text text, bool bos,
                            int n_ctx, int32_t **ids, size_t *n, struct err *e);

/* The ids of a prompt to be continued in n_ctx positions: an empty one is BOS, or else a newline.
 * As tokens_that_fit. */
enum status tokens_of_prompt(const struct tokenizer *t, struct text prompt, int n_ctx,
                             int32_t **ids, size_t *n, struct err *e);

/* Which end of a prompt that is too long is cut off. */
enum truncation { TRUNCATE_NONE, TRUNCATE_HEAD, TRUNCATE_TAIL };

/*
 * Cuts a prompt of more than n_ctx tokens to what leaves room for the n that are wanted behind it,
 * but to no less than half of the context; its begin-of-text token stays. Returns how many are
 * gone; none if it fits, or of TRUNCATE_NONE.
 */
size_t tokens_truncate(const struct tokenizer *t, enum truncation which, int n_ctx, int n,
                       int32_t *ids, size_t *n_tokens);

/* STATUS_USAGE if a prompt has more than n_ctx tokens, of which there could be `most`. */
enum status check_prompt_length(size_t n_tokens, int n_ctx, int most, struct err *e);

#endif
