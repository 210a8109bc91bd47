/*
 * draft - guesses of the next tokens of texts, for a step of the model to verify together.
 *
 * A token drafted for a position is what the text would get there if the draft were the model: it
 * is drawn by the text's own sampler, with the random number that the model's token will be drawn
 * with. Whether it is right is for the model to say, so no text depends on a draft. Guesses come
 * from a session of another model, or from the text itself: what followed the last copy of its end
 * (prompt lookup, after A. Saxena, 2023). Verification in one step is Leviathan et al. 2023, "Fast
 * Inference from Transformers via Speculative Decoding", with equality in place of their rejection.
 *
 * The texts are those of a schedule's places, by number. Only creation takes memory. What a draft
 * cannot do (logits that are not finite, a context that ends before the text) it leaves out.
 */
#ifndef DECODE_ENGINE_DRAFT_H
#define DECODE_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "compute/pool.h"
#include "engine/draft_pace.h"
#include "engine/ngrams.h"
#include "engine/sampler.h"
#include "engine/session.h"

struct draft_place {
    /* Private. */
    int32_t *text; /* [cap + 1]; after the len tokens of the text those drafted */
    int len;
    int n_drafted, n_right; /* drafted and not yet looked at; looked at and right */
    int kind;               /* of the draft, see struct draft_pace */
    int wanted;             /* tokens to draft in this round */
    const float *logits;    /* of the draft, to pick from; NULL: it drafts no more */
    struct ngrams copies;   /* of a lookup */
};

/* Tokens that the draft of a place is asked for, at most. */
struct draft_want {
    int place, most;
};

struct drafter {
    /* Borrowed, filled in before drafter_create. */
    struct session *session; /* a sequence a place; NULL: lookup */
    struct sampler *sampler; /* of the texts, sequence by place; those from n_places on, as many,
                                are the drafts' */
    struct pool *pool;
    int n_places, n_vocab;
    int cap;                /* tokens that a text can have in the model's cache */
    int n_shared;           /* of them those that all have in common in the draft's session */
    int end;                /* a token after which nothing is drafted; -1: none */
    double cost;            /* of a step of the draft over one of the model, as far as is known */
    struct draft_pace pace; /* `most` and `fixed` */

    /* What was done. */
    uint64_t n_drafted, n_right; /* tokens */
    uint64_t draft_ns, feed_ns;  /* drafting; catching up with prompts before that */

    /* Private. */
    struct draft_place *places;  /* [n_places] */
    struct draft_place **active; /* [n_active <= n_places] that draft in this round */
    struct draft_level *levels;  /* those to choose from */
    struct batch_row *rows;      /* [2 * n_places] */
    float *logits;               /* [n_places, n_vocab] of the draft */
    struct arena arena;          /* of all these */
    int n_active, n_levels;
    uint64_t round_ns; /* of drafting in this round */
};

/* STATUS_NO_MEMORY. drafter_free is due in every case. */
enum status drafter_create(struct drafter *d, struct err *e);
void drafter_free(struct drafter *d);

/* The bytes that drafter_create takes; SIZE_MAX if they do not fit. */
size_t drafter_bytes(const struct drafter *d);

/* A text begins: the n <= cap tokens of its prompt. */
void drafter_begin(struct drafter *d, int place, const int32_t *tokens, int n);

/* The text's next token. True if the next one drafted for it is the same; if not, those drafted are
 * gone. */
bool drafter_accept(struct drafter *d, int place, int32_t token);

/* Drafts for the places whose texts want it, all with a token or more after their prompts: at least
 * none, at most what each wants and the pace allows. n >= 1. `base` rows are fed beside those
 * drafted. Fails as session_step does, which it cannot here. */
enum status drafter_propose(struct drafter *d, const struct draft_want *wants, int n, int base,
                            struct err *e);

/* What is drafted for a place and not yet looked at, until its next call. */
static inline int drafter_drafted(const struct drafter *d, int place, const int32_t **tokens)
{
    const struct draft_place *p = &d->places[place];
    *tokens = p->text + p->len;
    return p->n_drafted;
}

/* A round without rows of prompts came to its end, after drafter_propose: `base` texts had so many
 * rows and tokens; all of it took ns, drafting included. */
void drafter_measured(struct drafter *d, int base, int rows, int tokens, uint64_t ns);

#endif
