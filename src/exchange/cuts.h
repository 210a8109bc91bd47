/*
 * cuts - how the pre-tokenizers of tokenizer.json say our rules of cutting texts into pieces.
 */
#ifndef DECODE_EXCHANGE_CUTS_H
#define DECODE_EXCHANGE_CUTS_H

#include "text/pretokenize.h"

/* What stands before or in ByteLevel. */
struct cut {
    const char *regex; /* of Split; NULL: none */
    bool digits;       /* each is a piece */
    bool bytes_regex;  /* ByteLevel cuts by GPT-2's */
    enum pretokenize_rule rule;
};

/* NULL if there is no such cut; regex.data may be NULL. */
const struct cut *cut_find(struct text regex, bool digits, bool bytes_regex);

/* The one that is written for a rule. */
const struct cut *cut_of_rule(enum pretokenize_rule rule);

#endif
