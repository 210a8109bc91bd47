/*
 * draft - guesses of the next tokens of texts, for a step of the model to verify together.
 *
 * A token drafted for a position is what the text would get there if the draft were the model:
 * drawn by the text's own sampler, with the random number that the model's token will be drawn
 * with. Guesses come from a session of another model, or from the text itself: what followed the
 * last copy of its end (prompt lookup, A. Saxena, 2023). Verification in one step is Leviathan et
 * al. 2023, "Fast Inference from Transformers via Speculative Decoding", with equality in place of
 * their rejection, so no text depends on a draft.
 *
 * The texts are those of a schedule's slots, by number. What a draft cannot do (logits that are not
 * finite, a context that ends before the text) it leaves out.
 */
#ifndef DECODE_ENGINE_DRAFT_H
#define DECODE_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "compute/pool.h"
#include "engine/sampler.h"
#include "engine/session.h"

/* --- copies: where a text has stood before ---------------------------------------------------- */

/* Tokens of a copy at least; longer than the most they are not told apart. */
#define COPY_LEAST 2
#define COPY_MOST  32

/* The position after the longest earlier copy of the end of text [n], of equal ones the latest, and
 * its length, COPY_LEAST to COPY_MOST; 0: there is none. Copies may reach into the end itself; only
 * the last ones are looked at. */
int copy_find(const int32_t *text, int n, int *length);

/* --- pace: how many tokens to draft ----------------------------------------------------------- */

/*
 * As many as make the most tokens a second. A round of `base` texts that verifies n drafted tokens
 * makes base + (the shares of them that are right) tokens in the time of a step of base + n rows
 * and of the drafting. Both are measured: shares as decaying averages by kind of draft and depth,
 * times by number of rows. Drafts that do not pay are tried again for at most a hundredth of the
 * time, and a step without any is timed now and then. All is a function of what it was told.
 */

/* Tokens drafted for a text in a round, at most. */
#define DRAFT_MOST 32
/* Kinds of draft that are right by different shares. */
#define DRAFT_KINDS 5

/* How often a token was right whose predecessors were: decaying counts. */
struct draft_rate {
    double right, tried;
};

/* A measured time; the first of a kind, which fetches memory for all, is not relied on. */
struct draft_time {
    double ns;
    int n; /* times it was measured, up to TIME_KNOWN */
};
#define TIME_KNOWN 2

struct draft_pace {
    int most;    /* tokens a text, 1 to DRAFT_MOST */
    bool fixed;  /* always so many: nothing is measured */
    double cost; /* of a draft's step over the model's, a fair opinion until it is known */

    /* Private. */
    int n_rows;               /* of a step at most */
    struct draft_time *steps; /* [n_rows + 1] of a round without its drafting, by its rows */
    struct draft_time draft;  /* of drafting one token for each text */
    struct draft_time feed;   /* of a row that a draft catches up with */
    struct draft_rate rates[DRAFT_KINDS][DRAFT_MOST];
    double elapsed_ns; /* of all rounds */
    double lost_ns;    /* by drafting; negative: won */
    int n_drafting;    /* rounds that drafted since one did not */
};

/* Takes or counts the memory of a pace, zeroed but for `most`, `fixed` and `cost`, for steps of up
 * to n_rows rows. */
void pace_take(struct draft_pace *p, struct arena *a, int n_rows);

/* Drafted tokens that a step takes together: `rows` of them, each right with this probability. */
struct draft_level {
    double share;
    int rows;
};

/* The probability that a draft's token at depth 0 <= depth < most is right, and all before it. */
double pace_share(const struct draft_pace *p, int kind, int depth);

/* What a round of 1 to n_rows rows takes without its drafting, as measured, or between and beyond
 * what was; 0: nothing is known. And what one token for each of `base` texts takes to draft. */
double pace_step_ns(const struct draft_pace *p, int rows);
double pace_draft_ns(const struct draft_pace *p, int base);

/* How many of n levels, of falling share, make the most tokens a second beside `base` rows, where
 * each takes level_ns to draft and `lag` rows are to be caught up with: 0 unless they win by more
 * than the measurement's error, or where that is to be measured or too much was lost; all if
 * `fixed`; a few to try again, *trying, where none would be best. */
int pace_choose(const struct draft_pace *p, int base, const struct draft_level *levels, int n,
                double level_ns, int lag, bool *trying);

/* A drafted token whose predecessors were right was looked at. */
void pace_saw(struct draft_pace *p, int kind, int depth, bool right);

/* A round of `base` texts: its rows, levels drafted one after the other, and tokens that came out;
 * drafting took draft_ns, all else ns. */
struct draft_round {
    int base, rows, levels, tokens;
    double ns, draft_ns;
};
void pace_round(struct draft_pace *p, const struct draft_round *r);

/* --- drafts ---------------------------------------------------------------------------------- */

struct draft_slot {
    /* Private. */
    int32_t *text; /* the schedule's; after its len tokens those drafted */
    int len;
    int n_drafted,
        n_right;         /* drafted and not yet looked at, behind the text; looked at and right */
    int kind;            /* of the draft, see struct draft_pace */
    int wanted;          /* tokens to draft in this round, see drafter_propose */
    const float *logits; /* of the draft, to sample from; NULL: none */
};

struct drafter {
    /* Borrowed, filled in before drafter_create. */
    struct session *session; /* a sequence a slot; NULL: lookup */
    struct sampler *sampler; /* of the texts, sequence by slot; those from n_slots on, as many,
                                are the drafts' */
    struct pool *pool;
    int n_slots, n_vocab;
    int n_shared;           /* positions that all have in common in the draft's session */
    int end;                /* a token after which nothing is drafted; -1: none */
    struct draft_pace pace; /* `most`, `fixed` and `cost` */

    /* What was done. */
    uint64_t n_drafted, n_right; /* tokens */
    uint64_t draft_ns, feed_ns;  /* drafting; catching up with prompts before that */

    /* Private. */
    struct draft_slot *slots;              /* [n_slots] */
    struct batch_row *rows;                /* [2 * n_slots] */
    float *logits;                         /* [n_slots, n_vocab] of the draft */
    struct arena arena;                    /* of all these */
    struct draft_level levels[DRAFT_MOST]; /* to choose from */
    struct draft_round round;
    int n_sampling; /* threads */
    int room;       /* rows that may still be caught up with in the round */
    bool trying;    /* it drafts to see whether that pays by now */
};

/* STATUS_NO_MEMORY. drafter_free is due in every case. */
enum status drafter_create(struct drafter *d, struct err *e);
void drafter_free(struct drafter *d);

/* A text begins: the n tokens of its prompt, the first n_same as in the slot's text before it.
 * Borrowed, with room for what a round may draft behind it. */
void drafter_begin(struct drafter *d, int slot, int32_t *text, int n, int n_same);

/* The text's next token, not yet put there. True if it is the next one drafted; else those drafted
 * are gone. */
bool drafter_accept(struct drafter *d, int slot, int32_t token);

/* A round begins: drafts for each slot at most its `wanted` tokens, which the caller has set (below
 * 0: its text does not decode), and what the pace allows. Fails as session_step does, which it
 * cannot here. */
enum status drafter_propose(struct drafter *d, struct err *e);

/* The round, without rows of prompts, had so many rows and tokens and took ns, drafting included.
 */
void drafter_measured(struct drafter *d, int rows, int tokens, uint64_t ns);

#endif
