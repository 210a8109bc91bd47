/*
 * schedule - many texts decoded in one session, each in a slot of its own.
 *
 * A slot is a sequence of the session. A round feeds one row for every slot that decodes, and fills
 * the step with rows of prompts, the oldest first; then it samples the next token of each slot that
 * has logits, side by side on the threads. A text that ends leaves its slot to the next one. No
 * text depends on any of this. A schedule belongs to one caller at a time:
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
    END_ABANDONED, /* the caller's: it was finished before its end */
};

/* What is to be continued, and how. All is borrowed until the text ends. */
struct request {
    uint64_t number;       /* the caller's */
    const int32_t *tokens; /* [1 <= n_tokens <= session_cap] the prompt */
    int n_tokens;
    bool goes_on; /* the slot's last text does: `tokens`, at most schedule_room and maybe none,
                     follow it */
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
    double logprob; /* of those sampled, by the model alone; only with wants_logprobs */
    int32_t *text;  /* [session_cap + 1] the tokens of its positions, and the one to be fed next */
    int len;

    /* What the last round made of it. */
    const float *logits; /* [n_vocab] after its last token; NULL: none, and nothing happened */
    bool has_token;      /* one was sampled from them, the text's last or not */
    int token;
    double log_sum;    /* see logits_log_sum; only with wants_logprobs */
    struct text ready; /* bytes now known to belong to the text, until the next round or finish */
    enum text_end end; /* of SLOT_ENDED */

    /* Private. */
    int n_fed;           /* of the tokens, while they are fed as a prompt is; */
    int n_known;         /* those before this one were in the text before the request, */
    int n_again;         /* and before this one in the cache, too, until it was shifted */
    enum status sampled; /* how sampling went */
    struct stream stream;
};

/* What was done. A step's time goes to prompts and decoding by the numbers of their rows. */
struct schedule_times {
    /* Tokens fed as prompts are, among them those of a text that goes on; of them a request's; and
     * those that full contexts kept, after so many shifts. */
    uint64_t n_prefilled, prefill_ns, n_prompt, n_fed_again, n_shifts;
    uint64_t n_sampled;            /* tokens */
    uint64_t n_decoded, decode_ns; /* those that came out of rows of decoding */
    uint64_t first_token_at;       /* clock_ns; 0 before it */
    uint64_t *rounds;              /* [n_rounds] ns of those that decoded, the first ones */
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
    struct slot *slots; /* [n_slots] */
    int n_busy;         /* of them those that are not vacant */
    int n_prefills;     /* those whose prompts are not yet fed */

    /* Private. */
    struct slot **prefills; /* [n_prefills] the oldest first */
    struct batch_row *rows; /* [n_slots + the session's block] */
    float *logits;          /* [n_slots, n_vocab] */
    struct arena arena;     /* of all these */
    int n_sampling;         /* threads */
    size_t longest_token;
};

/* Tokens that can be added to the text of a slot; below 0: it cannot go on at all. */
int schedule_room(const struct schedule *s, int slot);

/* STATUS_NO_MEMORY. schedule_free is due in every case. */
enum status schedule_create(struct schedule *s, struct err *e);
void schedule_free(struct schedule *s);

/* The first vacant slot, or NULL if there is none. */
struct slot *schedule_vacant(struct schedule *s);

/* Begins a text in a vacant slot. What *r points to is borrowed, *r itself is copied. A prompt that
 * a slot has in the cache, as another text's or its last one's, is copied there and not fed again.
 * STATUS_NO_MEMORY leaves the slot as it was. */
enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e);

/* One step of the model for the slots, and a token for each of those that have logits then; nothing
 * if all are vacant. The failures of session_step. */
enum status schedule_round(struct schedule *s, struct err *e);

/* Ends the text of a slot, whether SLOT_ENDED or not, and returns its bytes that were held back,
 * valid until the next one begins there. The slot is vacant, and keeps the text for a request that
 * goes on with it. */
struct text schedule_finish(struct schedule *s, struct slot *p);

/* Why a text ended as END_FAILED: STATUS_FAILED. */
enum status schedule_failure(const struct schedule *s, const struct slot *p, struct err *e);
