/*
 * pretokenize - cuts text into the pieces that byte-pair merging never crosses.
 *
 * Each rule is a pattern, matched from left to right, the first alternative that fits:
 *
 *   GPT-2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   Llama 3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *             ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   Qwen 2    the same with \p{N} for \p{N}{1,3}
 *   BLOOM      ?[^(\s|[.,!?…。，、।۔،])]+, and what is between two of these
 *
 * (the fourth alternative of Llama 3 starts with " ?", too). \s is Unicode's White_Space. A byte
 * that is not part of well-formed UTF-8 counts as one character that is no letter, number or space.
 * Only Falcon's pieces cut well-formed characters.
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
    PRETOKENIZE_BLOOM,
    /* Falcon: runs of punctuation are pieces, and GPT-2's pattern cuts what is between two of them
     * as if it were all. A piece is cut again where digits begin or end, and three digits are a
     * piece. Digits are judged byte by byte in GPT-2's alphabet, so that the bytes that are ², ³,
     * ¹, ¼, ½ and ¾ in Latin-1 are digits in every character. */
    PRETOKENIZE_FALCON,
    PRETOKENIZE_RULES,
};

/* The meaning of a value of tokenizer.ggml.pre. */
struct pretokenizer {
    const char *names[12]; /* NULL behind the last */
    enum pretokenize_rule rule;
    bool whole_pieces; /* a piece that is a token is that token, whatever the merges */
    bool adds_bos;     /* unless add_bos_token says otherwise */
};

/* Returns the pre-tokenizer of this name; NULL if it is not known. */
const struct pretokenizer *pretokenizer_find(struct text name);

/* Returns the length in bytes, at least 1, of the piece that begins at byte `at` < s.len
 * (asserted), which is 0 or the end of the piece before. Finding all pieces takes time linear in
 * the text. */
size_t pretokenize_next(enum pretokenize_rule rule, struct text s, size_t at);
