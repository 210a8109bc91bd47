/*
 * schedule - many texts decoded in one session, each in a slot of its own.
 *
 * A slot is a sequence of the session. Each round feeds one row for every slot that decodes, and
 * fills the step with rows of prompts, the oldest first; then it samples the next token of each
 * slot that has logits, side by side on the threads. A text that ends leaves its slot to the next
 * one. No text depends on any of this. A schedule belongs to one caller at a time, who begins texts
 * and reads what becomes of them as events:
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

/* A place for one text at a time, beside the others. */
struct slot {
    int sequence; /* its number */
    struct request request;
    int n_sampled;
    double logprob; /* of those sampled, by the model alone; only with wants_logprobs */
    int32_t *text;  /* [session_cap + 1] the tokens of its positions, and the one to be fed next */
    int len;

    /* Private. */
    enum slot_state state;
    int n_fed;           /* of the tokens, while they are fed as a prompt is */
    const float *logits; /* after its last token, until they are an event; NULL: none */
    int token;           /* sampled from them */
    enum status sampled; /* how that went */
    double log_sum;
    struct stream stream;
    bool ends; /* as the next event: its last token was one already */
    enum text_end end;
};

enum event_kind {
    EVENT_ROUND,   /* A round is about to begin: the time to begin texts, or to end them all. */
    EVENT_SAMPLED, /* A text has a token more. */
    EVENT_ENDED,   /* A text ended; its slot is vacant. */
};

/* What became of a text, or of all. What it points to is borrowed until the next event. */
struct event {
    enum event_kind kind;
    const struct slot *slot; /* whose text it is; NULL: EVENT_ROUND */
    int32_t token;
    const float *logits; /* [n_vocab] that the token was sampled from, or for which the text ended
                            without one more; NULL: none */
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
    uint64_t first_token_at;          /* clock_ns; 0 before it */
    uint64_t *rounds;                 /* [n_rounds] ns of those that decoded, the first ones */
    size_t n_rounds;
};

/* The texts on their way in one session. */
struct schedule {
    /* Borrowed, filled in before schedule_create. */
    struct session *session; /* with n_slots sequences */
    struct sampler *sampler; /* likewise, and with the pool's threads */
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
    struct batch_row *rows; /* [n_slots + the session's block] */
    float *logits;          /* [n_slots, n_vocab] */
    struct arena arena;     /* of all these */
    int n_prefills;
    int n_sampling; /* threads */
    size_t longest_token;
    int next;               /* the slot that is looked at first for an event */
    bool runs, feeds, over; /* after the first event, an EVENT_ROUND, schedule_end */
    /* Of the round. */
    uint64_t round_at;   /* clock_ns when it began */
    uint64_t prompts_ns; /* of its step */
    int n_decoding;      /* its texts that decode */
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

/* While an EVENT_ROUND is handled: the first vacant slot, or NULL if there is none; and a text for
 * a vacant slot. What *r points to is borrowed, *r itself is copied. STATUS_NO_MEMORY leaves the
 * slot as it was. */
struct slot *schedule_vacant(struct schedule *s);
enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e);

/* All ends with this status, the first call's: from the next event on texts end as END_ABANDONED,
 * the highest number first. */
void schedule_end(struct schedule *s, enum status status);
