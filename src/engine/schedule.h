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
#ifndef DECODE_ENGINE_SCHEDULE_H
#define DECODE_ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "compute/pool.h"
#include "engine/draft.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "text/tokenizer.h"

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
    const float
        *logits; /* NULL; or those after the prompt, which is then shared and in the cache */
    int n;       /* tokens wanted */
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

#endif
