/*
 * bpe_learn - a byte-level BPE vocabulary from texts.
 *
 * Texts are cut by GPT-2's pre-tokenization (see pretokenize.h). Every word starts as its bytes;
 * then, again and again, the pair of neighbouring tokens that is most frequent in all words becomes
 * a token, merged from left to right in each word. Overlapping pairs count ("aaa" has a a twice).
 * Of equally frequent pairs the one with the lowest left id comes first, then the lowest right id;
 * so the result is a function of the texts alone, and is that of Hugging Face's tokenizers, if
 * bytes have equal ids.
 *
 * A byte's token has the byte as its id, 0 to 255, as in plain-byte checkpoints; the merges follow
 * in the order learned. (GPT-2 numbers the bytes in the order of its alphabet; readers see the
 * list.)
 *
 * Source: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword
 * Units", 2016; over bytes: Radford et al., "Language Models are Unsupervised Multitask
 * Learners", 2019.
 */
#pragma once

#include "base/callbacks.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

struct bpe_learn_spec {
    int n_tokens;               /* wanted, one for every byte among them: at least 256 */
    struct callbacks callbacks; /* progress is counted in merges; texts may have fewer than all */
};

struct bpe_merge {
    int32_t left, right; /* merge i makes token 256 + i */
};

/* A vocabulary that was learned. */
struct bpe_learned {
    int n_merges;             /* fewer than wanted if no pair that occurs twice was left */
    struct bpe_merge *merges; /* [n_merges] in order; no pair twice */
};

static inline int bpe_learned_n_tokens(const struct bpe_learned *v)
{
    return 256 + v->n_merges;
}

/*
 * Learns from n texts, which need not be UTF-8; pieces do not go across texts. With 256 tokens
 * the texts are not read. *out is for bpe_learned_free; zeroed on failure.
 *
 * A merge is a pass over the counts of all pairs and over all distinct words: for a text of n bytes
 * whose distinct words have m and n_tokens tokens that is n + n_tokens * m. Memory beyond the
 * result, in bytes: some 50 to 150 a distinct word, 4 a byte of them, and 24 to 48 a pair of tokens
 * that ever stood somewhere. One thread; calls are independent.
 *
 * Fails with STATUS_USAGE (n_tokens too low), STATUS_INTERRUPTED (stop), or STATUS_NO_MEMORY,
 * also if the distinct words have more than 1 GiB.
 */
enum status bpe_learn(const struct bpe_learn_spec *spec, const struct text *texts, size_t n,
                      struct bpe_learned *out, struct err *e);
void bpe_learned_free(struct bpe_learned *v); /* legal on a zeroed struct and twice */

/*
 * Adds tokenizer.ggml.{model,pre,tokens,token_type,merges,bos_token_id,eos_token_id,add_bos_token}
 * to w, as tokenizer_create and llama.cpp read them. No BOS is put before texts. Newline and byte 0
 * stand in for BOS and EOS, because llama.cpp takes id 11 for both when they are absent.
 * STATUS_NO_MEMORY; what w itself refuses is found by gguf_write.
 */
enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e);
