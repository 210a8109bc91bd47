#include "text/word_count.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

struct word_slot {
    uint32_t tag;  /* the other half of the hash: most strangers are told without a look */
    uint32_t word; /* its number + 1; 0: empty */
};

#define FIRST_SLOTS 1024

/* The word's slot, or the empty one where it belongs. At most half of the slots are taken. */
static struct word_slot *find_slot(const struct word_count *c, struct text word, uint64_t h)
{
    assert(2 * c->n <= c->n_slots && (c->n_slots & (c->n_slots - 1)) == 0);
    const size_t mask = c->n_slots - 1;
    for (size_t i = (size_t)h & mask;; i = (i + 1) & mask) {
        struct word_slot *slot = &c->slots[i];
        if (slot->word == 0)
            return slot;
        if (slot->tag == (uint32_t)(h >> 32) && text_equal(c->words[slot->word - 1].text, word))
            return slot;
    }
}

static enum status grow_slots(struct word_count *c, struct err *e)
{
    const size_t n_slots = c->n_slots ? c->n_slots * 2 : FIRST_SLOTS;
    struct word_slot *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return err_no_memory(e, "counting words", n_slots * sizeof *slots);
    free(c->slots);
    c->slots = slots;
    c->n_slots = n_slots;
    if (c->n == 0) {
        c->key[0] = (uintptr_t)slots;
        c->key[1] = (uintptr_t)&slots; /* of the stack */
    }
    for (size_t i = 0; i < c->n; i++) {
        const uint64_t h = siphash(c->key, c->words[i].text);
        *find_slot(c, c->words[i].text, h) =
            (struct word_slot){(uint32_t)(h >> 32), (uint32_t)i + 1};
    }
    return STATUS_OK;
}

enum status word_count_add(struct word_count *c, struct text word, struct err *e)
{
    assert(word.data && c->n <= c->cap);
    if (2 * (c->n + 1) > c->n_slots)
        TRY(grow_slots(c, e));
    struct counted_word *words = NULL;
    if (c->n < (size_t)1 << 31)
        words = array_grow(c->words, c->n + 1, &c->cap, sizeof *words);
    if (!words)
        return err_no_memory(e, "counting words", (c->n + 1) * sizeof *words);
    c->words = words;
    const uint64_t h = siphash(c->key, word);
    struct word_slot *slot = find_slot(c, word, h);
    if (slot->word == 0) {
        words[c->n++] = (struct counted_word){.text = word};
        *slot = (struct word_slot){(uint32_t)(h >> 32), (uint32_t)c->n};
    }
    words[slot->word - 1].count++;
    return STATUS_OK;
}

void word_count_free(struct word_count *c)
{
    free(c->words);
    free(c->slots);
    *c = (struct word_count){0};
}
