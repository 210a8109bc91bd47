/*
 * generate - the texts of decode generate: samples of one prompt, a text for each of many prompts,
 * or the answers of a session. Private to the files of this command.
 *
 * One schedule makes all side by side; they are written in the order of their numbers. A text is
 * printed as it is made once those before it are complete; of --logprobs each token is a JSON line,
 * of
 * --prompts each whole text. Samples read their prompt where the first one has it in the cache,
 * unless a shift is to change it. Memory does not grow with the number of --prompts: lines are read
 * as slots become vacant, and a slot waits when too much waits for an earlier line.
 */
#pragma once

#include "cli/common.h"
#include "cli/job.h"
#include "engine/schedule.h"
#include "formats/prompts.h"
#include "show/heatmap.h"
#include "text/vocab.h"

/* Milliseconds that reading waits for a line before it looks whether all is over. */
#define WAIT_MS 100

/* The values of the options of decode generate. */
struct generate_options {
    struct common_options common;
    int n, ctx;
    bool shift, no_shift, no_echo, ignore_eos;
    struct option_strings stops;
    int samples;
    bool greedy;
    struct sampler_params sampler; /* as the options have it; --greedy is not yet in it */
    int logprobs;                  /* alternatives for each token; 0: text, no JSON lines */
    int colour;                    /* an enum colour_choice */
    const char *prompts;           /* NULL: one prompt, the input's */
    int prompts_format;
    const char *batch; /* NULL, a number or "auto" */
    bool talks;        /* a session */

    int n_batch; /* `batch` as a number; 0: auto */
};

/* A text on its way: what it has beside its slot in the schedule. */
struct generated {
    bool begun; /* something of it was printed */
    int level;  /* of its last token's probability, see show/heatmap.h */
    /* Of a line of --prompts. */
    struct prompt prompt;
    int32_t *tokens; /* of the prompt */
    struct id_list sampled;
    struct bytes text;
};

/* Texts begin no further ahead of the one that is being written than so many, nor when so many
 * bytes are held of others. */
#define TEXTS_AHEAD 1024
#define TEXTS_BYTES ((size_t)16 << 20)

/* Texts that are written one after another: what is put to the holder is held for one of them until
 * those before it are written. Without memory that text and those after it are lost, never a part
 * of one, and the holder has failed. */
struct text_queue {
    struct output holder; /* first */
    struct bytes *to;     /* whose text it is */
    struct queued_text {
        struct bytes held;
        bool complete;
    } * ring;       /* [TEXTS_AHEAD] by number, modulo */
    uint64_t front; /* the number of the text that is being written */
    size_t n_held;  /* bytes, of all */
};

/* One run of decode generate. */
struct generation {
    /* Borrowed; the job has the session, the seed, and the tokens that the prompt became. */
    const struct generate_options *o;
    struct job *job;
    struct output *out;
    struct text prompt; /* that of -p or -f, or a line of a session */

    struct schedule schedule;
    struct prompts prompts;
    int n_samples;        /* streams of the seed; 0: of --prompts or a session, as many as come */
    bool shares;          /* samples read the prompt where the first has it in the cache */
    bool echo;            /* prompts are printed */
    int most_top;         /* alternatives that records will ever have */
    int n_top;            /* JSON lines with so many alternatives for each token; 0: text */
    enum heatmap_ink ink; /* of what each token's probability shades */
    int n;                /* tokens wanted of each text */
    uint64_t waited_ns;   /* of a session: for lines, before its first token */
    bool goes_on;         /* the tokens, which may be none, follow what slot 0 has */
    uint64_t n_before;    /* tokens: as many */
    bool read;            /* there are no more lines of --prompts, or none can be read */
    bool has_prompt;      /* the logits after the prompt that is shared are there */

    /* What became of it, beside the schedule's. */
    uint64_t n_begun;      /* texts, the refused ones among them */
    enum text_end end;     /* of the last text that ended, */
    int last_sampled;      /* and its tokens */
    uint64_t n_done;       /* lines of --prompts with a continuation */
    uint64_t n_refused;    /* lines with an error */
    enum status reading;   /* how the reading of lines went so far */
    struct err read_error; /* what it says of that */

    struct text_queue queue;
    struct text *stops;      /* [o->stops.n] */
    float *prompt_logits;    /* [n_vocab] */
    struct token_score *top; /* [most_top] */
    struct generated *texts; /* [n_slots] */
    struct arena arena;      /* of these */
};

/* The tokens of a prompt that n more are to follow in `cap` positions, as tokens_of_prompt gives
 * them. With --truncate a longer prompt keeps as many as leave room for these n, but at least half
 * of the positions. STATUS_USAGE if they are too many. */
enum status generation_tokens(const struct generation *g, struct text prompt, int cap, int n,
                              int32_t **ids, size_t *n_ids, struct err *e);

/* Takes the memory for texts, of a generation whose schedule has what it borrows: STATUS_NO_MEMORY.
 * generation_free is due in every case. */
enum status generation_create(struct generation *g, struct err *e);
void generation_free(struct generation *g);

/*
 * Makes and prints everything. STATUS_OK whatever the end, also when interrupted or when the output
 * fails (which it knows itself); STATUS_FAILED for logits that are not finite, after ending the
 * line (of --prompts they refuse their line only); STATUS_BAD_FILE when the prompts cannot be read
 * on; STATUS_NO_MEMORY. What is complete is printed in every case.
 */
enum status generation_run(struct generation *g, struct err *e);

/* Records with so many alternatives from now on, no more than most_top of them; 0: text. */
void generation_set_records(struct generation *g, int n_top);

/* Why the last text ended, where it has fewer tokens than were wanted. */
void generation_say_end(const struct generation *g);

/* What it cost, on standard error; nothing with -q. Sorts the schedule's times. */
void generation_report(struct generation *g);
