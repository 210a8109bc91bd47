/*
 * tokenizer_pipeline - what a tokenizer.json does with a text before and after its merges.
 */
#ifndef DECODE_EXCHANGE_TOKENIZER_PIPELINE_H
#define DECODE_EXCHANGE_TOKENIZER_PIPELINE_H

#include <stdbool.h>

#include "exchange/vocab_build.h"
#include "text/pretokenize.h"
#include "json/read.h"

struct tokenizer_pipeline {
    bool is_bytes;              /* tokens in the byte alphabet; else spaces are U+2581 */
    enum pretokenize_rule rule; /* of bytes */
    bool adds_space;            /* of the others: before a text */
    bool cuts_spaces;           /* of the others: no merge goes across a space */
    bool normalizes;            /* marks spaces before added tokens are looked for */
};

/* From the keys normalizer and pre_tokenizer. What ours cannot do is STATUS_BAD_FILE; what differs
 * for few texts is noted. */
enum status tokenizer_pipeline_read(const struct json_node *root, const struct vocab_build *b,
                                    struct tokenizer_pipeline *out, struct err *e);

/* The only special token that post_processor puts before each text: *id is -1 if there is none. */
enum status tokenizer_template_read(const struct json_node *root, const struct vocab_build *b,
                                    int *id, struct err *e);

#endif
