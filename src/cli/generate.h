/*
 * generate - the texts of decode generate. Private to the files of this command.
 *
 * A generation is a list of (prompt, seed, n): one prompt is a list of one, samples are the same
 * prompt with streams of one seed, a file of prompts has a text a line, and a session adds to its
 * list. One schedule makes them side by side. A list of one is printed as it is made; of another
 * list a text is printed when it is whole and all texts before it are printed. Texts begin as slots
 * become vacant, so that few are under way, however long the list is.
 */
#pragma once

#include "cli/job.h"
#include "engine/schedule.h"
#include "text/vocab.h"

#define CACHE_ADVICE "a smaller --batch, -c or -n and other types by --kv-type lower the cache"

#define BATCH_MAX 4096 /* the most sequences that share a step */

/* The values of the options of decode generate. */
struct generate_options {
    struct common_options common;
    int n; /* tokens wanted of each text */
    int ctx;
    bool shift, no_echo;
    struct option_strings stops;
    int samples;
    bool greedy;
    struct sampler_params sampler; /* as the options have it, without --greedy */
    int format;                    /* of text_formats */
    const char
        *prompts;      /* NULL: the input is one prompt; else it is this file's, a prompt a line */
    const char *batch; /* NULL, a number or "auto" */

    int n_batch; /* `batch` as a number; 0: auto */
};

/* A text of the list, from its beginning until it is printed. */
struct generated {
    uint64_t number; /* in the list */
    uint64_t line;   /* of --prompts, from 1 on; 0: of none */
    uint64_t seed, stream;
    struct text prompt;
    const int32_t *tokens; /* [n_tokens] of the prompt: the job's, or line_tokens */
    int32_t *line_tokens;  /* malloc'd: those of a line; NULL: the prompt is none */
    size_t n_tokens;
    struct id_list sampled; /* its tokens; filled in for JSON only */
    struct bytes made;      /* bytes that are not yet printed */
    bool begun, printed;    /* it has bytes; some of them, or its prompt, were printed */
    bool whole;             /* nothing more comes */
    bool refused;           /* it cannot be made, because of `error` */
    struct err error;
    enum text_end end; /* of a whole text that is not refused */
    int n_sampled;
    double logprob; /* of the tokens, by the model alone; for JSON only */
};

/* One run of decode generate. */
struct generation {
    /* Borrowed; the job has the session, the seed, and the tokens that the prompt became. */
    const struct generate_options *o;
    struct job *job;

    struct schedule schedule;
    struct text prompt;      /* of -p or -f, or a line of a session */
    struct text lines;       /* the lines of --prompts that are left */
    uint64_t n_lines;        /* how many lines were taken */
    uint64_t n_texts;        /* in the list */
    bool streams;            /* texts are printed as they are made */
    bool begins;             /* there is a text before a session's first line */
    bool echo;               /* prompts are printed */
    bool goes_on;            /* the prompt, which may be empty, follows the text of slot 0 */
    struct text *stops;      /* [o->stops.n] malloc'd */
    struct generated *texts; /* [cap_texts] malloc'd: those under way, by number, modulo */
    int cap_texts;

    uint64_t n_prompt;  /* tokens of all prompts; the prompt of samples counts once */
    uint64_t n_begun;   /* texts that were taken from the list, refused or not */
    uint64_t n_printed; /* texts that are over, refused or not; also the number of the next one */
    uint64_t n_done;    /* texts that are over and were made */
    uint64_t n_refused; /* texts that are over and could not be made */
    bool interrupted;   /* by a signal */
    enum text_end end;  /* why the last text ended */
    int last_sampled;   /* tokens of the last text that ended */
};

/* Opens what texts need to begin: seed, tokens, session, sampler, memory. STATUS_USAGE for a prompt
 * or a context that is too long; the failures of job_start_session. generation_free is due in every
 * case. */
enum status generation_open(struct generation *g, struct err *e);
void generation_free(struct generation *g);

/*
 * Makes and prints the texts of the list that have not yet begun, and says on standard error why
 * they have fewer tokens than were wanted. STATUS_INTERRUPTED; STATUS_NO_MEMORY; STATUS_FAILED for
 * logits that are not finite (in a line of --prompts they refuse that line). In every case whole
 * texts are printed, and a text that was being printed ends its line. An output that fails ends the
 * run with STATUS_OK, because the output itself knows of it.
 */
enum status generation_run(struct generation *g, struct err *e);

/* Prints what the generation cost on standard error, but not with -q. Sorts the schedule's times.
 */
void generation_report(struct generation *g);

/* Runs a session: each line of standard input continues the text so far and is answered at once;
 * the generation's own prompt, if it begins with one, is answered first. Where standard input and
 * standard error are terminals, and -q is not given, lines are typed with the editor of
 * show/editor.h. The failures of generation_run; STATUS_BAD_FILE for an input that cannot be read,
 * STATUS_USAGE for a line without an end. */
enum status generation_session(struct generation *g, struct err *e);
