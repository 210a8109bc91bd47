/*
 * encoding - a text on its way to tokens, as the tokenizer hands it to both kinds of merging.
 */
#pragma once

#include "base/mem.h"
#include "base/text.h"
#include "text/merging.h"
#include "text/vocab.h"

/* Zeroed at first but for the text, which is borrowed. The owner frees list.ids, merge and marked,
 * each on its own. One thread at a time uses it. */
struct encoding {
    struct text text;
    struct id_list list; /* of what has been encoded */
    struct merge_scratch merge;
    struct bytes
        marked; /* a block of the part with its spaces marked: up to 3 bytes a byte of it */
};
