/*
 * token_record - one token with its log-probability, as JSON.
 */
#ifndef DECODE_CLI_TOKEN_RECORD_H
#define DECODE_CLI_TOKEN_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "measure/score.h"
#include "text/tokenizer.h"
#include "json/write.h"

/* The members "id" and "text" of one token; text that is not UTF-8 comes with its "bytes": [0-255,
 * ...]; without a tokenizer (NULL) it is null. */
void token_json(struct json *j, const struct tokenizer *t, int32_t id);

/* {"sample", "position", "id", "text", "logprob", "top": [{"id", "text", "logprob"}]}: the key
 * "sample" unless it is below 0, "top" if with_top; the logprob of what is not predicted is null.
 */
void token_record_json(struct json *j, const struct tokenizer *t, int sample,
                       const struct score_row *row, bool with_top);

#endif
