/*
 * schedule - many texts decoded in one session, each in a place of its own.
 *
 * A place is a sequence of the session. Each round feeds one row for every place that decodes, and
 * fills the step with rows of prompts, the oldest first, a long one cut where the step is full;
 * then it picks the next token of each place that has logits, side by side on the threads. Behind a
 * place's row stand those of the tokens that are drafted for it, if any: as long as the token that
 * is picked is the next of them, the logits of its row are there to pick from, too; what else the
 * cache has is forgotten. A text that ends gives its place to the next one. No text depends on any
 * of this. One text alone is a batch of one. Who asks for the texts, and gets them, is the client.
 * A schedule belongs to one caller at a time, whose thread calls the client.
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
#include "text/stream.h"
#include "text/tokenizer.h"

/* Rounds whose times are worth keeping for percentiles; a longer run keeps its first ones. */
#define SCHEDULE_MAX_ROUNDS ((size_t)1 << 20)

enum text_end {
    END_LENGTH,    /* n tokens are made */
    END_STOP,      /* a stop string is complete */
    END_EOS,       /* the model ended the text */
    END_CONTEXT,   /* there is no room for another token */
    END_ABANDONED, /* it was stopped, or something failed, here or elsewhere */
};

/* What is to be continued, and how. All is borrowed until the text ends. */
struct request {
    uint64_t number;       /* the client's */
    const int32_t *tokens; /* [1 <= n_tokens <= session_cap] the prompt */
    int n_tokens;
    bool goes_on; /* the place's last text does, with its cache, its random stream and its recent
                     tokens: `tokens`, which may be none, follow it, at most schedule_room */
    const float
        *logits; /* NULL; or those after the prompt, which is then shared and in the cache */
    int n;       /* tokens wanted */
    uint64_t seed, stream;
    const struct text *stops; /* [n_stops], none empty */
    int n_stops;
};

struct place {
    int sequence; /* its number */
    struct request request;
    int n_made;
    double logprob; /* of those made, by the model alone; only with wants_logprobs */

    bool at_end; /* the model's own last token of the text said that it ends */

    /* Private. */
    bool busy;
    int32_t *text; /* [session_cap + 1] the tokens of its positions, and the one to be fed next */
    int len;
    int n_fed;           /* of them, while they are fed as a prompt is */
    bool fills;          /* they are */
    int n_again;         /* of them those that had been fed before a shift */
    const float *logits; /* not yet picked from; NULL: none */
    struct stream stream;
    enum status picked;
    int token; /* picked, and to be fed */
    double log_sum;
};

/* A token of a place on its way. */
struct made {
    int32_t token;
    const float *logits;
    double log_sum;    /* see logits_log_sum; only with wants_logprobs */
    struct text ready; /* bytes of the text that are now known to belong to it */
};

enum supply { SUPPLY_TEXT, SUPPLY_LATER, SUPPLY_END };

/* What fails ends the schedule. */
struct schedule_client {
    /* Fills in the place's request, if *supply is then SUPPLY_TEXT. Waits no longer than wait_ms.
     */
    enum status (*next)(void *arg, struct place *p, int wait_ms, enum supply *supply,
                        struct err *e);
    /* The prompt is in the cache, and these logits [n_vocab] come after it. NULL: no matter. */
    void (*prefilled)(void *arg, const struct place *p, const float *logits);
    /* A token more, which p->n_made does not yet count. */
    enum status (*made)(void *arg, const struct place *p, const struct made *m, struct err *e);
    /* The text ended; `rest` are its last bytes. The place is then free. */
    enum status (*ended)(void *arg, const struct place *p, enum text_end end, struct text rest,
                         struct err *e);
    /* The text cannot go on because of what `why` says; the place is then free if this succeeds. */
    enum status (*failed)(void *arg, const struct place *p, const struct err *why, struct err *e);
    /* After each round: *stop, if there is no use in going on. */
    enum status (*round)(void *arg, bool *stop, struct err *e);
    /* Before each round: true to give up. */
    bool (*stop)(void *arg);
};

/* What was done, and how long it took. Of a step that has rows of both kinds the time goes to
 * prompts and decoding by their numbers. */
struct schedule_times {
    uint64_t n_prefilled, prefill_ns; /* prompt tokens fed, and those fed again */
    uint64_t n_shifts, n_fed_again;
    uint64_t n_made;               /* tokens */
    uint64_t n_decoded, decode_ns; /* those that came out of rows of decoding */
    uint64_t n_steps;              /* such rows, but for those of drafted tokens */
    uint64_t first_token_at;       /* clock_ns; 0 before it */
    uint64_t *rounds;              /* [n_rounds] ns of those that decoded, the first ones */
    size_t n_rounds;
};

struct schedule {
    /* Borrowed, filled in before schedule_create. */
    struct session *session; /* with n_places sequences */
    struct sampler *sampler; /* likewise, and with the pool's threads */
    struct drafter *drafter; /* NULL: none; of as many places */
    struct pool *pool;       /* NULL: one thread */
    const struct tokenizer *tokenizer;
    int n_places, n_vocab;
    bool ignore_eos, wants_logprobs;
    bool shifts; /* where the context is full, a text goes on: its first n_keep tokens stay, and the
                    last half of the context is fed again, at the positions behind them */
    int n_keep;  /* at most schedule_most_kept */
    size_t cap_rounds; /* at most so many are kept */
    const struct schedule_client *client;
    void *arg; /* of the client's functions */

    struct schedule_times times;
    bool interrupted; /* the client's stop ended it */

    /* Private. */
    struct place *places;     /* [n_places] */
    struct place **prefills;  /* [n_prefills] whose prompts are not yet fed, the oldest first */
    struct place **picks;     /* [n_picks] that have logits in this round */
    struct draft_want *wants; /* [n_places] */
    struct batch_row *rows;   /* [n_places * n_together + the session's block] */
    float *logits;            /* [n_places * n_together, n_vocab] */
    struct arena arena;       /* of all these */
    int n_busy, n_prefills, n_picks;
    int n_together; /* rows of a text that decodes at most */
    size_t longest_token;
    bool supply_ended;
};

/* What n_keep can be in so many positions. */
int schedule_most_kept(int n_ctx);

/* Tokens that can be added to the text of a place; below 0: it cannot go on at all. */
int schedule_room(const struct schedule *s, int place);

/* Takes the memory, but that of the streams: STATUS_NO_MEMORY. schedule_free is due in every
 * case. */
enum status schedule_create(struct schedule *s, struct err *e);
void schedule_free(struct schedule *s);

/* Until the client has no more texts, or stops it: STATUS_OK. Fails as the client does. May be
 * called again: places keep the text that they had last, for requests that go on with it. Texts
 * that have not ended by then end as END_ABANDONED, the highest number first. */
enum status schedule_run(struct schedule *s, struct err *e);

#endif
