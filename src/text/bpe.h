/*
 * bpe - byte-pair encoding: symbols that become one where they are neighbours.
 *
 * What its two kinds, by ranks (GPT-2) and by scores (SentencePiece), have in common: while some
 * neighbours are a pair of the table, the pair of the lowest rank is merged, the leftmost of
 * equals. Symbols are numbers here; what text they stand for is the kind's.
 */
#pragma once

#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "text/vocab.h"

/* --- merging --------------------------------------------------------------------------------- */

struct symbol_pair {
    int32_t left, right; /* 0 <= symbol < n_symbols */
    int32_t rank;        /* below INT32_MAX; pairs may share one */
    int32_t result;
};

/* Immutable after creation. Sorted and searched, not hashed: a hostile table has no collisions to
 * arrange. */
struct merging {
    int32_t n_symbols;
    uint32_t *first;           /* [n_symbols + 1] those with left symbol s start at first[s] */
    struct symbol_pair *pairs; /* [first[n_symbols]] by left, then right symbol, then rank */
};

/* Takes over n malloc'd pairs (NULL if there are none), fewer than 2^31 (asserted), also on
 * failure. Which of two pairs of the same symbols is meant cannot be told: the caller looks for
 * them in what is then sorted. STATUS_NO_MEMORY; m may be freed then too. */
enum status merging_init(struct merging *m, struct symbol_pair *pairs, size_t n, int32_t n_symbols,
                         struct err *e);
void merging_free(struct merging *m); /* legal on a zeroed struct and twice */

/* Working memory, which grows to 12 to 24 bytes a symbol of the longest run; zeroed at first. One
 * run at a time may use it. */
struct merge_scratch {
    int32_t *spans; /* [cap] */
    int32_t *tree;  /* [2 * cap] behind them: see merge_run */
    size_t cap;     /* symbols, a power of two */
};

/* Room for a run of n symbols, in place of the last one: the caller puts them in spans[0..n).
 * STATUS_NO_MEMORY, also for 2^31 symbols and more. */
enum status merge_reserve(struct merge_scratch *s, size_t n, struct err *e);
void merge_scratch_free(struct merge_scratch *s);

/* Merges the run of n > 0 symbols (asserted) in spans. Time O(n log n). */
void merge_run(const struct merging *m, struct merge_scratch *s, size_t n);

/* Where the symbol that starts at i < n of a run of n ends: its number is spans[i]. */
static inline size_t merge_end(const int32_t *spans, size_t n, size_t i)
{
    return i + 1 == n || spans[i + 1] >= 0 ? i + 1 : i + (size_t)-spans[i + 1];
}

/* A text on its way to tokens. Zeroed but for the text; free(list.ids) apart. */
struct encoding {
    struct text text;
    struct id_list list; /* of what has been encoded */
    struct merge_scratch merge;
    struct bytes marked; /* the part with its spaces marked: up to 3 bytes a byte of text */
};

/* --- by ranks -------------------------------------------------------------------------------- */

/*
 * A piece of text starts as its bytes' tokens. (GPT-2's first program merged all pairs of the
 * lowest rank before it looked again; the two differ only for tables in which a merge's result
 * takes part in an earlier merge, which training does not make.) Immutable after creation.
 */
struct bpe {
    int32_t byte_id[256]; /* -1: no token */
    bool lacks_bytes;     /* some byte_id is -1 */
    struct merging merging;
    size_t n_merges; /* that make a token of two others */
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; absent or empty means that every
 * byte stays a token. A merge is passed over if one of its parts is no token, for then it never
 * happens, or its result is none. Fails with STATUS_BAD_FILE: an element that is not two parts in
 * the byte alphabet with a space between, a byte, part or result that is two normal tokens, a pair
 * listed twice (its rank would be the first in some programs, the last in others). Or
 * STATUS_NO_MEMORY. merging_free of b->merging is due in every case.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);

/*
 * Appends the tokens of one piece of c's text, which is not empty (asserted). Time O(n log n) in
 * its length. STATUS_USAGE names a character that has a byte without a token; STATUS_NO_MEMORY,
 * also for pieces of 2 GiB and more.
 */
enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e);

/* --- by scores ------------------------------------------------------------------------------- */

/*
 * As SentencePiece and llama.cpp do it: a text starts as characters, its spaces written U+2581, and
 * the neighbours that are together the token of the highest score are merged, the leftmost of
 * equals, as long as there are any. What is no token then becomes the tokens of its bytes, <0x00>
 * to <0xFF>.
 *
 * Symbols are tokens; then the characters that tokens begin or end with and that are none; then the
 * one for all other characters. Immutable after creation.
 *
 * Source: Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer
 * and detokenizer for Neural Text Processing", 2018.
 */
struct spm {
    int32_t n_tokens;
    int32_t byte_id[256];   /* -1: no token */
    int32_t one_byte[256];  /* the symbols of characters of one byte */
    struct spm_char *chars; /* [n_chars] the longer ones, by their bytes */
    size_t n_chars;
    struct merging merging;
    bool cuts; /* no token has a space behind another character: no merge crosses there */
};

/*
 * From VOCAB_SPACES' tokens and tokenizer.ggml.scores (absent: all are equal). Merging makes
 * normal, undefined, user-defined and unused tokens, not those whose names are no text. Fails with
 * STATUS_BAD_FILE: scores of wrong type or length, one that is not finite, two tokens alike that
 * merging could make. Or STATUS_NO_MEMORY, also for 2^31 ways to make a token of two others. s may
 * be freed then too. Memory is linear in the bytes of the tokens, time in comparisons of tokens but
 * for a logarithm.
 */
enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e);
void spm_free(struct spm *s); /* legal on a zeroed struct and twice */

/*
 * Appends the tokens of `part` of c's text, which is not empty (asserted), after a space if
 * `adds_space`. Time O(n log n). STATUS_USAGE names a character that is no token and whose bytes
 * are none; STATUS_NO_MEMORY.
 */
enum status spm_encode(const struct spm *s, struct encoding *c, struct text part, bool adds_space,
                       struct err *e);

/* --- bpe_learn.c: a vocabulary from texts ----------------------------------------------------- */

/*
 * Learns a byte-level BPE vocabulary from text.
 *
 * Texts are cut by GPT-2's pre-tokenization (see pretokenize.h). Every word starts as its bytes;
 * then, again and again, the pair of neighbouring tokens that is most frequent in all words
 * becomes a token, merged from left to right in each word. Occurrences are counted before
 * merging, overlapping ones too ("aaa" has the pair a a twice). Of equally frequent pairs the one
 * with the lowest left id comes first, then the lowest right id; so the result is a function of
 * the texts alone. That is the order of Hugging Face's tokenizers, if the bytes have equal ids.
 *
 * Ids: a byte's token is the byte itself, 0 to 255, as in plain-byte checkpoints, so that 256
 * tokens are those; then the merges in the order learned; then the special token, if wanted.
 * (GPT-2 numbers the bytes in the order of its alphabet, '!' first: that order means nothing to
 * those who read a file, because its tokens are listed.)
 *
 * Source: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword
 * Units", 2016; over bytes: Radford et al., "Language Models are Unsupervised Multitask
 * Learners", 2019.
 */

enum bpe_learn_phase {
    BPE_LEARN_READING, /* done and all are bytes of text */
    BPE_LEARN_MERGING, /* done and all are merges; texts may have fewer than all */
};

struct bpe_learn_spec {
    int n_tokens; /* wanted, one for every byte among them: at least 256 */
    /* Called now and then from the calling thread; `arg` goes to both. May be NULL. */
    bool (*stop)(void *arg); /* true: give up */
    void (*progress)(void *arg, enum bpe_learn_phase phase, uint64_t done, uint64_t all);
    void *arg;
};

struct bpe_merge {
    int32_t left, right; /* merge i makes token 256 + i */
};

struct bpe_learned {
    int n_tokens; /* 256 + n_merges; fewer than wanted if no pair that occurs twice was left */
    int n_merges;
    struct text *tokens;      /* [n_tokens] the bytes of each; all different */
    struct bpe_merge *merges; /* [n_merges] in order; no pair twice */
    char *bytes;              /* private: of the tokens */
};

/*
 * Learns from n texts, which need not be UTF-8; pieces do not go across texts. With 256 tokens
 * the texts are not read. *out is for bpe_learned_free; zeroed on failure.
 *
 * Time is linear in the texts' length, and n log n in that of their distinct words, also where one
 * word is all of a text. Memory beyond the result, in bytes: while reading, some 35 to 100 a
 * distinct word; then 20 a byte of distinct words, 4 a token and 24 a word, and up to 60 a pair of
 * tokens that ever stood somewhere. One thread; calls are independent.
 *
 * Fails with STATUS_USAGE (n_tokens too low), STATUS_INTERRUPTED (stop), or STATUS_NO_MEMORY,
 * also if the distinct words have 2 GiB.
 */
enum status bpe_learn(const struct bpe_learn_spec *spec, const struct text *texts, size_t n,
                      struct bpe_learned *out, struct err *e);
void bpe_learned_free(struct bpe_learned *v); /* legal on a zeroed struct and twice */

/*
 * Adds tokenizer.ggml.{model,pre,tokens,token_type,merges,bos_token_id,eos_token_id,
 * add_bos_token} to w, as tokenizer_create and llama.cpp read them: "gpt2", "gpt-2", tokens and
 * "left right" in GPT-2's byte alphabet. No BOS is put before texts. BOS and EOS are the special
 * token; without one, newline and byte 0 stand in, because llama.cpp takes id 11 for both when
 * they are absent. Fails with STATUS_NO_MEMORY; what w itself refuses is found by gguf_write.
 */
enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e);
