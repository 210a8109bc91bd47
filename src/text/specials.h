/*
 * specials - finds control and user-defined tokens written out in text.
 *
 * Immutable after creation. An Aho-Corasick automaton over the tokens read backwards: scanning
 * the text from its end, the longest token that starts at each byte is known at that byte. So
 * the time is linear in the text, however many and however long the tokens are.
 */
#ifndef DECODE_TEXT_SPECIALS_H
#define DECODE_TEXT_SPECIALS_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "text/vocab.h"

/* A state is the end of some token. States are numbered by length, then so that the children of
 * one are adjacent, in the order of their bytes. */
struct specials {
    uint32_t n_states;   /* 0: there are no such tokens; else state 0 is the empty string */
    uint32_t *child;     /* [n_states + 1] the children of s: child[s] up to child[s + 1] */
    unsigned char *byte; /* [n_states] the byte before which s was the parent */
    uint32_t *shorter;   /* [n_states] the longest state that s starts with, itself excluded */
    int32_t *token;      /* [n_states] the longest token that s starts with, or -1 */
    uint32_t after[256]; /* the child of state 0 by byte, or 0 */
};

/* Fails with STATUS_BAD_FILE when the tokens have 4 GiB of text, or with STATUS_NO_MEMORY; s may
 * be freed then too. */
enum status specials_init(struct specials *s, const struct vocab *v, struct err *e);
void specials_free(struct specials *s); /* legal on a zeroed struct and twice */

struct special_match {
    size_t at;
    int32_t id;
};

/*
 * The longest token (of equal ones the lowest id) at each place of the text where one starts,
 * from the last place to the first; matches may overlap. *out is malloc'd, NULL if there are
 * none. Fails with STATUS_NO_MEMORY.
 */
enum status specials_find(const struct specials *s, struct text text, struct special_match **out,
                          size_t *n, struct err *e);

#endif
