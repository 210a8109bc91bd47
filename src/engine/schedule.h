/*
 * schedule - many texts decoded in one session, each in a slot of its own.
 *
 * A slot is a sequence of the session. A round feeds one row for every slot that decodes, and fills
 * the step with rows of prompts, the oldest first; then the threads sample the next token of each
 * slot that has logits. A text that ends leaves its slot to the next one. No text depends on any of
 * this. A schedule belongs to one caller at a time:
 *
 *     while (there is a text || s->n_busy > 0) {
 *         while (there is a text && (slot = schedule_vacant(s)))
 *             schedule_begin(s, slot, &request, e);
 *         schedule_round(s, e);
 *         for (every slot that has logits) {
 *             ... slot->ready ...
 *             if (slot->state == SLOT_ENDED)
 *                 ... schedule_finish(s, slot) ...
 *         }
 *     }
 */
#pragma once

#include "engine/sampler.h"
#include "engine/session.h"

/* Rounds whose times are worth keeping for percentiles: the first ones. */
#define SCHEDULE_MAX_ROUNDS ((size_t)1 << 16)

enum text_end {
    END_LENGTH,    /* n tokens are there */
    END_STOP,      /* a stop string is complete */
    END_EOS,       /* the model ended the text */
    END_CONTEXT,   /* there is no room for another token */
    END_FAILED,    /* its logits are not finite, see schedule_failure */
    END_ABANDONED, /* the caller finished it before its end, and set this */
};

/* A text to continue, and how. What it points to is borrowed until the text ends. */
struct request {
    uint64_t number;       /* the caller's */
    const int32_t *tokens; /* [1 <= n_tokens <= n_ctx] the prompt */
    int n_tokens;
    bool goes_on; /* the slot's last text goes on with `tokens`: 0 to schedule_room of them */
    int n;        /* tokens wanted */
    uint64_t seed, stream;
    const struct text *stops; /* [n_stops], none empty */
    int n_stops;
};

enum slot_state {
    SLOT_VACANT,
    SLOT_PREFILLS,
    SLOT_DECODES,
    SLOT_ENDED, /* until schedule_finish */
};

/* A place for one text at a time, beside the others. */
struct slot {
    int sequence; /* its number */
    enum slot_state state;
    struct request request;
    int n_sampled;
    double logprob; /* the sum over the sampled tokens, by the model alone; with wants_logprobs */
    int32_t *text;  /* [n_ctx + 1] the tokens of its positions, then the one to feed next */
    int len;

    /* What the last round did. */
    const float *logits; /* [n_vocab] after the last token; NULL: the slot has made no progress */
    bool has_token;      /* whether `token` was sampled from them */
    int token;
    double log_sum;    /* see logits_log_sum; only with wants_logprobs */
    struct text ready; /* bytes now known to belong to the text, until the next round or finish */
    enum text_end end; /* of SLOT_ENDED */

    /* Private. */
    int n_fed;           /* tokens fed so far, while the slot prefills */
    int n_again;         /* tokens that were in the cache before a shift, and are fed again */
    enum status sampled; /* how sampling went */
    struct stream stream;
};

/* What was done. The numbers of rows divide a step's time between prefill and decoding. */
struct schedule_times {
    uint64_t n_prefilled;    /* tokens fed by prefill: prompts, and what a text goes on with */
    uint64_t prefill_ns;     /* the time that prefill took */
    uint64_t n_fed_again;    /* tokens of n_prefilled that full contexts kept when they shifted */
    uint64_t n_shifts;       /* how often a full context shifted */
    uint64_t n_sampled;      /* tokens sampled */
    uint64_t n_decoded;      /* tokens of n_sampled that a decoding row gave */
    uint64_t decode_ns;      /* the time that decoding took */
    uint64_t first_token_at; /* clock_ns at the first token; 0 before it */
    uint64_t *rounds;        /* [n_rounds] ns of the first rounds that decoded */
    size_t n_rounds;
};

/* The texts on their way in one session. */
struct schedule {
    /* Borrowed, filled in before schedule_create. */
    struct session *session; /* with n_slots sequences */
    struct sampler *sampler; /* with n_slots sequences and the pool's threads */
    struct pool *pool;       /* NULL: one thread */
    const struct tokenizer *tokenizer;
    int n_slots, n_vocab;
    int n_ctx; /* positions of a text at most; 0: session_cap. If it is more, the caller lets the
                  session grow before a round feeds what it has no room for. */
    bool ignore_eos, wants_logprobs;
    bool shifts; /* where the context is full, a text goes on: its first n_keep tokens, or half of
                    the context, stay, and the last half is fed again behind them */
    int n_keep;
    size_t cap_rounds; /* entries of times.rounds at most */

    struct schedule_times times;
    struct slot *slots; /* [n_slots] */
    int n_busy;         /* slots that are not vacant */
    int n_prefills;     /* slots whose prompt is not wholly fed */

    /* Private. */
    struct slot **prefills; /* [n_prefills] the slots that prefill, the oldest first */
    struct batch_row *rows; /* [n_slots + the session's block] */
    float *logits;          /* [n_slots, n_vocab] */
    struct arena arena;     /* of slots, times.rounds and the members above */
    int n_sampling;         /* threads that sample */
    size_t longest_token;
};

/* Returns how many tokens can be added to the text of a slot; below 0, it cannot go on at all. */
int schedule_room(const struct schedule *s, int slot);

/* STATUS_NO_MEMORY. schedule_free is due in every case. */
enum status schedule_create(struct schedule *s, struct err *e);
void schedule_free(struct schedule *s);

/* Returns the first vacant slot, or NULL. */
struct slot *schedule_vacant(struct schedule *s);

/* Begins a text in a vacant slot. *r is copied; what it points to is borrowed. A prompt that the
 * cache of any slot begins with is copied and not fed again. STATUS_NO_MEMORY leaves the slot as it
 * was. */
enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e);

/* Makes one step of the model for all slots, then samples a token for each slot that has logits.
 * Does nothing if all slots are vacant. Fails as session_step does. */
enum status schedule_round(struct schedule *s, struct err *e);

/* Ends the text of a slot, SLOT_ENDED or not, and makes the slot vacant; the text stays for a
 * request that goes on with it. Returns the bytes that were held back, valid until the next text
 * begins. */
struct text schedule_finish(struct schedule *s, struct slot *p);

/* Says in *e why a text ended as END_FAILED. Returns STATUS_FAILED. */
enum status schedule_failure(const struct schedule *s, const struct slot *p, struct err *e);
