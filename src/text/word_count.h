/*
 * word_count - the distinct words of texts and how often each occurs.
 *
 * A hash table with a keyed hash: texts cannot be written so that their words collide. The key
 * is the address of an allocation; nothing that can be seen depends on it, because words are
 * listed by their first occurrence.
 */
#ifndef DECODE_TEXT_WORD_COUNT_H
#define DECODE_TEXT_WORD_COUNT_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct counted_word {
    struct text text; /* borrowed: the first occurrence */
    uint64_t count;   /* at least 1 */
};

struct word_slot;

/* Zeroed at first. */
struct word_count {
    struct counted_word *words; /* [n] by first occurrence */
    size_t n, cap;
    struct word_slot *slots; /* private; [n_slots] a power of two */
    size_t n_slots;
    uint64_t key[2];
};

/*
 * Counts one occurrence of a word that is not NULL (asserted). Its bytes must outlive c. Memory is
 * 40 to 80 bytes a distinct word, and half as much again while it grows. Fails with
 * STATUS_NO_MEMORY, also beyond 2^31 distinct words; then c has the words it had.
 */
enum status word_count_add(struct word_count *c, struct text word, struct err *e);
void word_count_free(struct word_count *c); /* legal on a zeroed struct and twice */

#endif
