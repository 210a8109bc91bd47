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

struct token_record {
    int sample; /* -1: without the key */
    int position;
    int32_t id;
    bool predicted; /* false: logprob is null */
    double logprob;
    const struct token_score *top; /* [n_top] */
    int n_top;
    bool with_top; /* without it there is no key "top" */
};

/* The members "id" and "text" of one token; text that is not UTF-8 comes with its "bytes": [0-255,
 * ...]; without a tokenizer (NULL) it is null. */
void token_json(struct json *j, const struct tokenizer *t, int32_t id);

/*
 * {"sample", "position", "id", "text", "logprob", "top": [{"id", "text", "logprob"}]}.
 */
void token_record_json(struct json *j, const struct tokenizer *t, const struct token_record *r);

#endif
