/*
 * private - the stages of the tokenizer, file by file. What a stage builds from a file is immutable
 * from then on, and borrows texts from it. Every _free function is legal on a zeroed struct.
 */
#pragma once

#include "base/name_index.h"
#include "formats/gguf.h"
#include "text/vocab.h"

/* --- merging.c: neighbouring symbols that become one ------------------------------------------ */

/* Two neighbours and the symbol that they become. bpe.c and spm.c know the texts of symbols. */
struct symbol_pair {
    int32_t left, right; /* 0 <= symbol < n_symbols */
    int32_t rank;        /* below INT32_MAX; pairs may share one */
    int32_t result;
};

/* The pairs that merge. They are sorted and searched, not hashed, so that a hostile file has no
 * collisions to arrange. */
struct merging {
    int32_t n_symbols;
    uint32_t *first;           /* [n_symbols + 1] the pairs with left symbol s start at first[s] */
    struct symbol_pair *pairs; /* [first[n_symbols]] by left, then right symbol, then rank */
};

/* Takes over n malloc'd pairs (NULL if there are none), fewer than 2^31 (asserted), also on
 * failure, and sorts them. Where two pairs of the same symbols are a mistake, the caller looks for
 * them. STATUS_NO_MEMORY. */
enum status merging_init(struct merging *m, struct symbol_pair *pairs, size_t n, int32_t n_symbols,
                         struct err *e);
void merging_free(struct merging *m);

/* The most symbols that are merged at once. A longer run, megabytes of text without a cut, is
 * merged in parts, so that memory does not depend on the text. (llama.cpp merges it whole.) */
#define MERGE_MOST ((size_t)1 << 22)

/* Working memory, zeroed at first. It grows to 12 to 24 bytes a symbol of the longest run. One run
 * at a time may use it. */
struct merge_scratch {
    int32_t *spans; /* [cap] */
    int32_t *tree;  /* [2 * cap] behind them: see merge_run */
    size_t cap;     /* symbols, a power of two */
};

/* Makes room for a run of n symbols, which the caller then puts in spans; the run before is lost.
 * STATUS_NO_MEMORY, also for 2^31 symbols and more. */
enum status merge_reserve(struct merge_scratch *s, size_t n, struct err *e);
void merge_scratch_free(struct merge_scratch *s);

/* Merges the n > 0 symbols (asserted) in spans: again and again the pair of the lowest rank, of
 * equals the leftmost. Time O(n log n). */
void merge_run(const struct merging *m, struct merge_scratch *s, size_t n);

/* Returns where the symbol that starts at i < n of a merged run of n ends; its number is spans[i].
 */
static inline size_t merge_end(const int32_t *spans, size_t n, size_t i)
{
    return i + 1 == n || spans[i + 1] >= 0 ? i + 1 : i + (size_t)-spans[i + 1];
}

/* A text on its way to tokens: zeroed at first but for the text, which is borrowed. The owner frees
 * list.ids, merge and marked. */
struct encoding {
    struct text text;
    struct id_list list; /* the tokens so far */
    struct merge_scratch merge;
    struct bytes marked; /* scratch: what a part of the text becomes before it is cut */
};

/* --- bpe.c: byte-pair encoding by ranks, as GPT-2 does it ------------------------------------- */

/*
 * A piece of text starts as its bytes' tokens. (GPT-2's first program merged all pairs of the
 * lowest rank before it looked again; the two differ only for tables in which a merge's result
 * takes part in an earlier merge, which training does not make.)
 */
struct bpe {
    int32_t byte_id[256]; /* -1: no token */
    struct merging merging;
    size_t n_merges; /* that make a token of two others */
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; without merges every byte stays a
 * token. A merge is passed over if a part or its result is no token, because then it never happens.
 * STATUS_BAD_FILE for an element that is not two parts in the byte alphabet with a space between;
 * for a byte, part or result that is two normal tokens; and for a pair that is listed twice,
 * because some programs take its first rank and some its last. Or STATUS_NO_MEMORY. merging_free of
 * b->merging is due in every case.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);

/* Appends the tokens of one piece of c's text, not empty (asserted). Time O(n log n). STATUS_USAGE
 * names a character that has a byte without a token; STATUS_NO_MEMORY, also for pieces of 2 GiB and
 * more. */
enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e);

/* --- spm.c: byte-pair encoding by scores, as SentencePiece and llama.cpp do it ---------------- */

/*
 * A text starts as characters, its spaces written U+2581. As long as some neighbours are together a
 * token, those of the highest score are merged, of equals the leftmost. What is no token then
 * becomes the tokens of its bytes, <0x00> to <0xFF>.
 *
 * Symbols are tokens; then the characters that tokens begin or end with and that are no tokens;
 * then the symbol for all other characters.
 *
 * Source: Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer
 * and detokenizer for Neural Text Processing", 2018.
 */
struct spm {
    int32_t n_tokens;
    int32_t byte_id[256];    /* -1: no token */
    int32_t one_byte[256];   /* the symbols of characters of one byte */
    struct name_index chars; /* the longer ones and their symbols */
    struct merging merging;
    bool cuts;         /* no token has a space behind another character: no merge crosses there */
    bool drops_spaces; /* those at both ends of a text, and behind another one */
};

/*
 * Reads VOCAB_SPACES' tokens, tokenizer.ggml.scores (absent: all are equal) and
 * remove_extra_whitespaces. Merging makes normal, undefined, user-defined and unused tokens.
 * STATUS_BAD_FILE for scores of wrong type or length, one that is not finite, or two tokens alike
 * that merging could make; STATUS_NO_MEMORY, also for 2^31 ways to make a token of two others.
 * spm_free is due in every case. Memory is linear in the bytes of the tokens.
 */
enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e);
void spm_free(struct spm *s);

/* Appends the tokens of `part` of c's text, not empty (asserted), after a space if `adds_space`.
 * Time O(n log n). STATUS_USAGE names a character that is no token and whose bytes are none;
 * STATUS_NO_MEMORY. */
enum status spm_encode(const struct spm *s, struct encoding *c, struct text part, bool adds_space,
                       struct err *e);

/* --- replacements.c: characters that are replaced before a text is cut ------------------------ */

/*
 * tokenizer.decode.replacements is a list of texts, each followed by what takes its place;
 * tokenizer.decode.marks has a text for each combining class, in ascending order: its marks. With
 * scripts/import.py's lists a text gets the Unicode Normalization Form C that its tokenizer has:
 *
 * - each character becomes what the list says: "\u00c5" becomes "A\u030a";
 * - marks that stand behind one another are sorted by class, those of one class in their order;
 * - a character and the next, or a mark behind it with no other of its class between, become one if
 *   the list says so: "e" and U+0301 become U+00E9, which is the first half of the next pair.
 *
 * Source: Unicode Standard Annex 15, "Unicode Normalization Forms".
 */
struct replacements {
    struct name_index from;
    struct text *to;         /* by the ids of `from` */
    struct name_index marks; /* their ids are the classes, from 1 on */
};

/* A file without the keys has none. STATUS_BAD_FILE where a list is none of
 * texts, or the last text lacks its replacement; STATUS_NO_MEMORY. replacements_free is due in
 * every case. */
enum status replacements_init(struct replacements *r, const struct gguf *g, struct err *e);
void replacements_free(struct replacements *r);

/* Appends the text with its replacements made. Takes O(log n) comparisons a character outside
 * ASCII, and O(m log m) for m marks behind one another. STATUS_NO_MEMORY. */
enum status replacements_put(const struct replacements *r, struct bytes *out, struct text text,
                             struct err *e);
