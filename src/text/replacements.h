/*
 * replacements - characters that a vocabulary has others for, replaced before a text is cut.
 *
 * tokenizer.decode.replacements is a list of texts, each followed by what takes its place. A text
 * is a character, or one and the next: "e" and U+0301 become U+00E9, which is how scripts/import.py
 * writes the Unicode Normalization Form C of a tokenizer. What a pair has become is the first half
 * of the next pair. Immutable after creation.
 */
#pragma once

#include "base/name_index.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"

struct replacements {
    struct name_index from;
    struct text *to; /* by the ids of `from` */
    char *bytes;     /* of both */
};

/* Copies what it needs. A file without the key has none. STATUS_BAD_FILE where the list is none of
 * texts or its last text lacks its replacement, STATUS_NO_MEMORY. replacements_free is due in every
 * case. */
enum status replacements_init(struct replacements *r, const struct gguf *g, struct err *e);
void replacements_free(struct replacements *r); /* legal on a zeroed struct */

/* Whether some character of the text may be replaced. */
bool replacements_apply(const struct replacements *r, struct text text);

/* Appends the text with its replacements made; time O(log n) comparisons a character.
 * STATUS_NO_MEMORY. */
enum status replacements_put(const struct replacements *r, struct bytes *out, struct text text,
                             struct err *e);
