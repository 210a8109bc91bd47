/*
 * draft_pace - how many tokens to draft: as many as make the most tokens a second.
 *
 * A round of `base` texts that verifies n drafted tokens makes base + (the shares of them that turn
 * out right) tokens in the time of a step of base + n rows and of the drafting. Both are measured:
 * the shares as decaying averages by kind of draft and by depth, the times by number of rows.
 * Drafts that do not pay are tried again for at most a hundredth of the time, and the time of a
 * step without any is looked at now and then. Everything is a function of what it was told.
 */
#ifndef DECODE_ENGINE_DRAFT_PACE_H
#define DECODE_ENGINE_DRAFT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

/* Tokens drafted for a text in a round, at most. */
#define DRAFT_MOST 32
/* Kinds of draft that are right by different shares. */
#define DRAFT_KINDS 5

/* How often a token was right whose predecessors were: decaying counts, and the weight of what is
 * thought before any, that it is right as often as the token before it. */
struct draft_rate {
    double right, tried, prior;
};

/* A measured time, in ns; the first of a kind, which fetches memory for all, is not relied on. */
struct draft_time {
    double ns;
    int n; /* times it was measured, up to TIME_KNOWN */
};
#define TIME_KNOWN 2

struct draft_pace {
    int most;   /* tokens a text, 1 to DRAFT_MOST */
    bool fixed; /* always so many: nothing is measured */

    /* Private. */
    int n_rows;               /* of a step at most */
    struct draft_time *steps; /* [n_rows + 1] of a round without its drafting, by its rows */
    struct draft_time draft;  /* of drafting one token for each text */
    struct draft_time feed;   /* of a row that a draft catches up with */
    double cost;              /* of a draft's step over the model's, until it is known */
    struct draft_rate rates[DRAFT_KINDS][DRAFT_MOST];
    double elapsed_ns; /* of all rounds */
    double lost_ns;    /* by drafting, over what its tokens would have taken; negative: won */
    int n_drafting;    /* rounds that drafted since one did not */
};

/* Takes the memory from an arena, or counts it, for steps of up to n_rows rows. */
void pace_take(struct draft_pace *p, struct arena *a, int n_rows);

/* Starts without measurements, with a fair opinion of drafts whose step costs a share of the
 * model's (0: nothing). `most` and `fixed` are set. */
void pace_start(struct draft_pace *p, double cost);

/* Drafted tokens that a step takes together: `rows` of them, each right with this probability. */
struct draft_level {
    double share;
    int rows;
};

/* The probability that a draft's token at depth 0 <= depth < most is right, and all before it. */
double pace_share(const struct draft_pace *p, int kind, int depth);

/* What a round without drafting takes, of so many rows, 1 to n_rows: as measured, or between and
 * beyond what was; 0: nothing is known. And what one token for each of `base` texts takes to draft.
 */
double pace_step_ns(const struct draft_pace *p, int rows);
double pace_draft_ns(const struct draft_pace *p, int base);

/* How many of n levels, of falling share, make the most tokens a second beside `base` rows, where
 * each takes level_ns to draft: 0 unless they win by more than the measurement's error. */
int pace_best(const struct draft_pace *p, int base, const struct draft_level *levels, int n,
              double level_ns);

/* The same, but all if `fixed`; none where that is to be measured or too much was lost; and a few
 * to try again, *trying, where none would be best. A draft has `lag` rows to catch up with. */
int pace_choose(struct draft_pace *p, int base, const struct draft_level *levels, int n,
                double level_ns, int lag, bool *trying);

/* A drafted token whose predecessors were right was looked at. */
void pace_saw(struct draft_pace *p, int kind, int depth, bool right);

/* Rows were caught up with; `trying`, as pace_choose said. */
void pace_fed(struct draft_pace *p, int rows, double ns, bool trying);

/* A round of `base` texts had so many rows, levels drafted one after the other, and tokens that
 * came out; drafting took draft_ns, all else ns. */
struct draft_round {
    int base, rows, levels, tokens;
    double ns, draft_ns;
};
void pace_round(struct draft_pace *p, const struct draft_round *r);

#endif
