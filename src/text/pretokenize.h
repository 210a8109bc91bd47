/*
 * pretokenize - cuts text into the pieces that byte-pair merging never crosses.
 *
 * GPT-2's pattern, matched from left to right, the first alternative that fits:
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * \s is Unicode's White_Space. A byte that is not part of well-formed UTF-8 counts as one
 * character that is no letter, number or space; so pieces never cut a well-formed character.
 */
#ifndef DECODE_TEXT_PRETOKENIZE_H
#define DECODE_TEXT_PRETOKENIZE_H

#include "base/text.h"

enum pretokenize_rule {
    PRETOKENIZE_GPT2,
    /* StarCoder: every \p{N} character is a piece of its own, and the text between two of them
     * is cut by the pattern as if it were all (a space before a digit stays apart). */
    PRETOKENIZE_STARCODER,
};

/*
 * The length in bytes, at least 1, of the first piece of a nonempty text (asserted). Calling it
 * again for what follows finds all pieces; together that takes time linear in the text.
 */
size_t pretokenize_next(enum pretokenize_rule rule, struct text s);

#endif
