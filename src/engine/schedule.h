/*
 * schedule - many texts decoded in one session, each in a slot of its own.
 *
 * A slot is a sequence of the session. Each round feeds one row for every slot that decodes, and
 * fills the step with rows of prompts, the oldest first; then it samples the next token of each
 * slot that has logits, side by side on the threads. Behind a slot's row stand those of the tokens
 * drafted for it: as long as the token that is sampled is the next of them, its row's logits are
 * there to sample from, too; what else the cache has is forgotten. A text that ends leaves its slot
 * to the next one. No text depends on any of this. A schedule belongs to one caller at a time, who
 * begins texts and reads what becomes of them as events:
 *
 *     while (schedule_next(s, &event, e)) {
 *         if (event.kind == EVENT_ROUND)
 *             while (there is a text && (slot = schedule_vacant(s)))
 *                 schedule_begin(s, slot, &request, e);
 *         ...
 *     }
 */
#pragma once

#include "engine/sampler.h"
#include "engine/session.h"

/* --- draft.c: what is guessed ----------------------------------------------------------------- */

/*
 * Guesses of the next tokens of texts, for a step of the model to verify together.
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
    int n_drafted;       /* and not yet looked at, behind the text */
    int n_right;         /* looked at and right */
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

/* Rounds whose times are worth keeping for percentiles: the first ones. */
#define SCHEDULE_MAX_ROUNDS ((size_t)1 << 20)

enum text_end {
    END_LENGTH,    /* n tokens are there */
    END_STOP,      /* a stop string is complete */
    END_EOS,       /* the model ended the text */
    END_CONTEXT,   /* there is no room for another token */
    END_FAILED,    /* its logits are not finite, as `e` of schedule_next says */
    END_ABANDONED, /* schedule_end came first */
};

/* What is to be continued, and how. All is borrowed until the text ends. */
struct request {
    uint64_t number;       /* the caller's */
    const int32_t *tokens; /* [1 <= n_tokens <= session_cap] the prompt */
    int n_tokens;
    bool goes_on; /* the slot's last text does: `tokens`, at most schedule_room and maybe none,
                     follow it */
    const float *logits; /* NULL; or those after the prompt, which is shared and cached then */
    int n;               /* tokens wanted */
    uint64_t seed, stream;
    const struct text *stops; /* [n_stops], none empty */
    int n_stops;
};

enum slot_state { SLOT_VACANT, SLOT_PREFILLS, SLOT_DECODES };

/* What is to be made of the logits that a slot has in this round. */
enum slot_pick {
    PICK_NONE,
    PICK_TOKEN, /* a token was sampled of them */
    PICK_ENDS,  /* it was taken, and ended the text, as `end` says */
};

struct slot {
    int sequence; /* its number */
    struct request request;
    int n_sampled;
    double logprob; /* of those sampled, by the model alone; only with wants_logprobs */
    bool at_end;    /* the model's own last token of the text said that it ends */
    int32_t *text;  /* [session_cap + 1] the tokens of its positions, and the one to be fed next */
    int len;

    /* Private. */
    enum slot_state state;
    int n_fed;           /* of the tokens, while they are fed as a prompt is */
    const float *logits; /* not yet sampled from; NULL: none */
    struct stream stream;
    enum slot_pick pick;
    enum status sampled; /* how that went */
    int token;           /* sampled, and to be fed */
    double log_sum;
    enum text_end end;
};

enum event_kind {
    EVENT_ROUND,   /* A round is about to begin: the time to begin texts, or to end them all. */
    EVENT_SAMPLED, /* A text has a token more. */
    EVENT_ENDED,   /* A text ended; its slot is vacant. */
};

struct event {
    enum event_kind kind;
    const struct slot *slot; /* whose text it is; NULL: EVENT_ROUND */
    int32_t token;
    const float *logits; /* [n_vocab] that the token was sampled from, or why the text ended: first
                            those after its prompt. NULL: abandoned */
    double log_sum;      /* see logits_log_sum; only with wants_logprobs */
    struct text ready;   /* bytes now known to belong to the text, until the next event */
    enum text_end end;   /* of EVENT_ENDED */
};

/* What was done. A step's time goes to prompts and decoding by the numbers of their rows. */
struct schedule_times {
    uint64_t n_prefilled, prefill_ns; /* prompt tokens fed, and those fed again */
    uint64_t n_shifts, n_fed_again;   /* of full contexts, and their tokens that are to be */
    uint64_t n_sampled;               /* tokens */
    uint64_t n_decoded, decode_ns;    /* those that came out of rows of decoding */
    uint64_t n_steps;                 /* such rows, but for those of drafted tokens */
    uint64_t first_token_at;          /* clock_ns; 0 before it */
    uint64_t *rounds;                 /* [n_rounds] ns of those that decoded, the first ones */
    size_t n_rounds;
};

/* What a round fed, and how long that took. */
struct schedule_round {
    int n_texts;             /* that decoded */
    int n_rows;              /* of these, drafted tokens among them */
    int n_prompt;            /* rows of prompts */
    uint64_t prompts_ns;     /* that went to prompts, the draft's included */
    uint64_t sampled_before; /* tokens */
};

struct schedule {
    /* Borrowed, filled in before schedule_create. */
    struct session *session; /* with n_slots sequences */
    struct sampler *sampler; /* likewise, and with the pool's threads */
    struct drafter *drafter; /* NULL: none; of as many slots */
    struct pool *pool;       /* NULL: one thread */
    const struct tokenizer *tokenizer;
    int n_slots, n_vocab;
    bool ignore_eos, wants_logprobs;
    bool shifts; /* where the context is full, a text goes on: its first n_keep tokens, or half of
                    the context, stay, and the last half is fed again behind them */
    int n_keep;
    size_t cap_rounds; /* at most so many are kept */

    struct schedule_times times;
    int n_busy;         /* slots that are not vacant */
    enum status status; /* how the last run ended */
    bool interrupted;   /* the caller's: by a signal */

    /* Private. */
    struct slot *slots;     /* [n_slots] */
    struct slot **prefills; /* [n_prefills] whose prompts are not yet fed, the oldest first */
    struct batch_row *rows; /* [n_slots * n_together + the session's block] */
    float *logits;          /* [n_slots * n_together, n_vocab] */
    struct arena arena;     /* of all these */
    int n_prefills;
    int n_together; /* rows of a text that decodes at most */
    int n_sampling; /* threads */
    int next;       /* the slot whose pick is to be taken next, if it has one */
    size_t longest_token;
    uint64_t round_at;      /* clock_ns when the last round ended */
    bool runs, feeds, over; /* after the first event, an EVENT_ROUND, schedule_end */
    struct schedule_round round;
};

/* Tokens that can be added to the text of a slot; below 0: it cannot go on at all. */
int schedule_room(const struct schedule *s, int slot);

/* STATUS_NO_MEMORY. schedule_free is due in every case. */
enum status schedule_create(struct schedule *s, struct err *e);
void schedule_free(struct schedule *s);

/*
 * The next event, an EVENT_ROUND at first. False: it is over, because no slot was busy after an
 * EVENT_ROUND or because of schedule_end, and s->status says how. Another run may follow; slots
 * keep their last texts, for requests that go on with them.
 */
bool schedule_next(struct schedule *s, struct event *event, struct err *e);

/* Of an EVENT_ROUND: the first vacant slot, or NULL; and its next text, borrowed but for *r itself.
 * STATUS_NO_MEMORY: the slot is as it was. */
struct slot *schedule_vacant(struct schedule *s);
enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e);

/* All ends with this status, the first call's: from the next event on texts end as END_ABANDONED,
 * the highest number first. */
void schedule_end(struct schedule *s, enum status status);

/* What stands in a saved text's file and is not the schedule's to know. */
struct saved_marks {
    uint64_t model; /* the hash of what runs: see model/model.h */
    uint64_t seed;  /* that the text began with, or was given since */
};

/* Replaces the file with the text of a vacant slot that has one (sequence 0, or one that shares no
 * positions; asserted): tokens, cache and random stream, so that it goes on as if it had never
 * stopped, bit for bit. The failures of file_writer_open. */
enum status saved_write(const char *path, const struct schedule *s, int slot,
                        const struct saved_marks *marks, struct err *e);

/* Makes the text of the file that of the slot, for requests that go on with it; *seed is the
 * file's. The slot is as it was after STATUS_USAGE (another model, another type of cache, too long
 * for the context), STATUS_BAD_FILE (no such file, another version, damaged) and the failures of
 * file_map_open. */
enum status saved_read(const char *path, struct schedule *s, int slot, uint64_t model,
                       uint64_t *seed, struct err *e);

/* The same of bytes, which are called `path` in messages. */
enum status saved_take(const void *bytes, size_t len, const char *path, struct schedule *s,
                       int slot, uint64_t model, uint64_t *seed, struct err *e);

/* --- own_text.c: a sample of the texts that a model knows ------------------------------------- */

struct own_text {
    const struct model *model;
    const struct tokenizer *tokenizer; /* of the model */
    const struct kernels *kernels;     /* NULL: the fastest */
    struct pool *pool;                 /* NULL: one thread */
    uint64_t seed;
    int length; /* tokens of each text, from 2 on and at most the model's context */
    int n;      /* texts, from 1 on */
    /* As those of struct convert_spec; progress counts tokens. */
    bool (*stop)(void *arg);
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

/*
 * Fills tokens [n * length] with texts sampled at temperature 1 of all tokens, one after another.
 * Each begins with BOS, or, in a vocabulary without one, a newline or else token 0, and goes on
 * after an end of text. The same tokens for any number of threads. STATUS_NO_MEMORY;
 * STATUS_INTERRUPTED; STATUS_FAILED if logits are not finite.
 */
enum status own_text_write(const struct own_text *t, int32_t *tokens, struct err *e);
