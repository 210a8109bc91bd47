/*
 * special_tokens - which tokens begin and end texts, as the files beside a vocabulary say.
 */
#ifndef DECODE_EXCHANGE_SPECIAL_TOKENS_H
#define DECODE_EXCHANGE_SPECIAL_TOKENS_H

#include "exchange/vocab_build.h"
#include "json/read.h"

/* The files' roots; NULL: there is none. */
struct special_sources {
    const struct json_node *config;    /* tokenizer_config.json */
    const struct json_node *map;       /* special_tokens_map.json */
    const struct json_node *added;     /* added_tokens.json */
    const struct json_node *tokenizer; /* tokenizer.json */
    const char *otherwise;             /* the name of BOS, EOS and unknown where none is said */
    bool adds_bos;                     /* where nothing is said */
};

/* Adds tokens of the first and third source, fills in BOS, EOS, padding and add_bos, and makes what
 * these and the second name TOKEN_CONTROL. The index is made anew. */
enum status special_tokens_read(const struct special_sources *s, const struct hf_ids *ids,
                                struct vocab_build *b, struct err *e);

#endif
