/*
 * pretokenize - cuts text into the pieces that byte-pair merging never crosses.
 *
 * Each rule is a pattern, matched from left to right, the first alternative that fits:
 *
 *   GPT-2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   Llama 3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *             ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   Qwen 2    the same with \p{N} for \p{N}{1,3}
 *
 * (the fourth alternative of Llama 3 starts with " ?", too). \s is Unicode's White_Space. A byte
 * that is not part of well-formed UTF-8 counts as one character that is no letter, number or space;
 * so pieces never cut a well-formed character.
 */
#pragma once

#include "base/text.h"

enum pretokenize_rule {
    PRETOKENIZE_GPT2,
    /* StarCoder: every \p{N} character is a piece of its own, and the text between two of them
     * is cut by GPT-2's pattern as if it were all (a space before a digit stays apart). */
    PRETOKENIZE_STARCODER,
    PRETOKENIZE_LLAMA3,
    PRETOKENIZE_QWEN2,
    PRETOKENIZE_RULES,
};

/* What a value of tokenizer.ggml.pre says. */
struct pretokenizer {
    const char *names[12]; /* NULL behind the last */
    enum pretokenize_rule rule;
    bool whole_pieces; /* a piece that is a token is that token, whatever the merges */
    bool adds_bos;     /* unless add_bos_token says otherwise */
};

/* The one of this name; NULL if it is not known. */
const struct pretokenizer *pretokenizer_find(struct text name);

/*
 * The length in bytes, at least 1, of the first piece of a nonempty text (asserted). Calling it
 * again for what follows finds all pieces; together that takes time linear in the text.
 */
size_t pretokenize_next(enum pretokenize_rule rule, struct text s);
