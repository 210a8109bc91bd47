/*
 * cmd_generate - decode generate: continue a text from a checkpoint.
 */
#include <unistd.h>

#include "cli/generate.h"
#include "cli/generate_talk.h"
#include "cli/help_texts.h"
#include "cli/signals.h"
#include "show/heatmap.h"

static const char *const prompts_formats[] = {"auto", "lines", "jsonl", NULL};
enum { PROMPTS_AUTO, PROMPTS_LINES, PROMPTS_JSONL };

static const char *const colour_names[] = {"none", "prob", "always", NULL};
enum colour_choice { COLOUR_NONE, COLOUR_PROB, COLOUR_ALWAYS };

/* Sequences that share a step: at most, and at most if nobody says how many. */
#define BATCH_MAX  4096
#define BATCH_AUTO 16

#define VALUES struct generate_options

static const struct option text_options[] = {
    OPT_INT("n", n, "N", 0, INT_MAX, "tokens to make", .letter = 'n', .fallback = "256"),
    OPT_INT("ctx", ctx, "CTX", 1, INT_MAX, "positions to preallocate in the KV cache",
            .letter = 'c', .otherwise = "the checkpoint's context"),
    OPT_FLAG(
        "shift", shift,
        "go on when the context is full: a begin-of-text token and the last half of the context "
        "are all that the model then sees, that half fed again at the positions behind it",
        .excludes = "no-shift"),
    OPT_STRINGS("stop", stops, "TEXT",
                "end where the continuation has this text, which is not printed; \\n is a "
                "backslash and an n, as in -p"),
    OPT_FLAG("ignore-eos", ignore_eos, "go on after an end-of-text token"),
    OPT_INT("samples", samples, "N", 1, 1000000,
            "continuations, separated by lines of ---; the prompt is taken once", .fallback = "1",
            .excludes = "interactive|prompts"),
    OPT_TRUNCATE,
    OPT_FLAG("no-echo", no_echo, "do not print the prompt", .excludes = "prompts"),
    OPT_INT("logprobs", logprobs, "K", 1, INT_MAX,
            "JSON lines instead of text: each token's log-probability and the K likeliest",
            .excludes = "prompts"),
    OPT_CHOICE("colour", colour, "KIND", colour_names,
               "prob: shade each token by its probability, on a terminal of 256 colours unless "
               "NO_COLOR is set; always: the same wherever the text goes",
               .fallback = "none", .excludes = "prompts|logprobs"),
    OPT_END,
};

static const struct option many_options[] = {
    OPT_STRING("prompts", prompts, "FILE",
               "many prompts, one a line, to JSON lines; - is standard input",
               .excludes = "interactive", .reads = "the prompts"),
    OPT_CHOICE("prompts-format", prompts_format, "FORM", prompts_formats,
               "of the lines: text, or objects with prompt and id, n, seed, stop; auto: by the "
               "file's name",
               .fallback = "auto", .needs = "prompts"),
    OPT_STRING("batch", batch, "N|auto", "sequences that share a step; no text depends on it",
               .otherwise =
                   "as many as there are prompts or samples, at most 16 and what memory allows",
               .needs = "prompts|samples"),
    OPT_END,
};

static const struct option sampler_options[] = {
    OPT_FLAG("greedy", greedy, "--temp 0: always the likeliest"),
    OPT_DOUBLE("temp", sampler.temperature, "X", 0, HUGE_VAL, "temperature", .fallback = "0.8"),
    OPT_INT("top-k", sampler.top_k, "K", 0, INT_MAX,
            "draw from the K likeliest tokens; 0: from all", .fallback = "40"),
    OPT_DOUBLE("top-p", sampler.top_p, "P", 0, 1,
               "draw from the likeliest tokens that together reach P", .fallback = "0.95"),
    OPT_DOUBLE("min-p", sampler.min_p, "P", 0, 1,
               "drop tokens less likely than P times the likeliest", .fallback = "0"),
    OPT_DOUBLE("repeat-penalty", sampler.repeat_penalty, "X", 0, HUGE_VAL,
               "make recent tokens less likely; 1: off", .fallback = "1", .above_min = true),
    OPT_INT("repeat-last-n", sampler.repeat_last_n, "N", -1, INT_MAX,
            "how many tokens are recent; -1: all", .fallback = "64"),
    OPT_U64("seed", common.seed, "S", "replay the run of this seed",
            .otherwise = "a random one, which is shown"),
    OPT_END,
};

static const struct option session_options[] = {
    OPT_FLAG("interactive", talks,
             "a session: each line that is typed continues the text so far and is answered; a full "
             "context goes on as with --shift; Ctrl-C stops an answer, /help lists commands; "
             "rlwrap decode ... edits lines and recalls them",
             .letter = 'i'),
    OPT_FLAG("no-shift", no_shift, "of a session: a full context ends the answer",
             .needs = "interactive"),
    OPT_END,
};

/* --- checks ---------------------------------------------------------------------------------- */

static enum status check_generate(struct job *j, void *values, struct err *e)
{
    struct generate_options *o = values;
    const char *batch = o->batch;
    for (int i = 0; i < o->stops.n; i++)
        if (!o->stops.items[i][0])
            return err_usage(e, "--stop: the text is empty");
    if (batch && !str_is(batch, "auto") && !parse_int(batch, 1, BATCH_MAX, &o->n_batch))
        return err_usage(e, "--batch: expected auto or an integer from 1 to %d, found '%.60s'",
                         BATCH_MAX, batch);
    if (o->talks || o->prompts)
        j->needs &= ~JOB_PIPED;
    if (o->prompts)
        j->parts |= CHECKPOINT_TEXTS;
    return job_seed(j, e); /* one for the text and for random heads, so that it replays both */
}

/* From -p or -f: a session reads standard input line by line. */
static bool has_prompt(const struct generate_options *o)
{
    return o->common.prompt || o->common.file;
}

/* --- the run --------------------------------------------------------------------------------- */

/* What the schedule borrows: the job's session, with as many of n_texts sequences as --batch or the
 * memory allows, and the sampler. */
static enum status start_schedule(struct generation *g, struct session_params *params, int n_texts,
                                  struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    struct sampler_params sampler = o->sampler;
    struct sequences_wanted w = {.n = o->n_batch ? o->n_batch : BATCH_AUTO,
                                 .all = o->n_batch > 0,
                                 .more_bytes = s->n_vocab * sizeof(float),
                                 .option = n_texts > 1 ? "--batch N, -c N" : "-c N"};
    w.n = MIN(w.n, n_texts);
    params->n_sequences = 1;
    if (w.n > 1) {
        TRY(job_fit_sequences(job, params, &w, e));
        if (!w.all)
            say_verbose(&o->common, "batch: %d sequences%s; --batch N changes it",
                        params->n_sequences,
                        params->n_sequences < w.n ? ", as memory has no room for more" : "");
    }
    TRY(job_start_session(job, params, w.option, e));
    s->session = job->session;
    s->pool = job->pool;
    s->n_slots = params->n_sequences;
    if (o->greedy)
        sampler.temperature = 0;
    say_verbose(&o->common,
                "sampler: repetition penalty %g over %d, temperature %g, top-k %d, top-p %g, min-p "
                "%g, draw",
                sampler.repeat_penalty, sampler.repeat_last_n, sampler.temperature, sampler.top_k,
                sampler.top_p, sampler.min_p);
    const struct sampler_sizes sizes = {.n_vocab = s->n_vocab,
                                        .n_ctx = params->n_ctx,
                                        .n_sequences = s->n_slots,
                                        .n_threads = job->n_threads};
    return sampler_create(&sampler, &sizes, &s->sampler, e);
}

/* From the options to texts that can begin. */
static enum status open_generation(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    const struct config *c = &job->checkpoint.model->config;
    const struct tokenizer *t = job->checkpoint.tokenizer;
    struct session_params params = job_session_params(job);
    int n_texts = o->samples;
    params.n_ctx = o->ctx ? o->ctx : c->n_ctx;
    if (params.n_ctx > c->n_ctx)
        return err_usage(e, "-c: expected at most %d, the checkpoint's context, found %d", c->n_ctx,
                         o->ctx);
    if (g->prompt.len > 0)
        TRY(input_needs_tokenizer(t, job->path, "generate", e));
    if (o->prompts) {
        /* Counted as far as can be told by now. Opening a pipe waits for its other end, and Ctrl-C
         * ends the wait. */
        struct prompts *p = &g->prompts;
        p->n = o->n;
        p->seed = job->seed;
        p->n_stops = o->stops.n;
        p->jsonl = o->prompts_format == PROMPTS_AUTO ? text_ends_with(text_of(o->prompts), ".jsonl")
                                                     : o->prompts_format == PROMPTS_JSONL;
        if (signals_end_at_once())
            return STATUS_INTERRUPTED;
        const enum status opened = prompts_open(p, o->prompts, e);
        signals_defer();
        TRY(opened);
        TRY(lines_left(&p->lines, BATCH_AUTO, &n_texts, e));
        n_texts = n_texts >= BATCH_AUTO ? BATCH_MAX : n_texts > 0 ? n_texts : 1;
        job_progress(job, "prompts")->terminal &=
            !isatty(STDOUT_FILENO); /* where the lines themselves show it */
    } else if (!o->talks || has_prompt(o)) {
        TRY(generation_tokens(g, g->prompt, params.n_ctx, o->n, &job->tokens, &job->n_tokens, e));
    }
    g->n_samples = o->prompts || o->talks ? 0 : o->samples;
    g->shares = o->samples > 1 && !o->shift;
    g->echo = !o->no_echo && (!o->talks || has_prompt(o));
    if (o->colour != COLOUR_NONE)
        g->ink = terminal_ink(o->colour == COLOUR_ALWAYS);
    if (o->colour == COLOUR_PROB && g->ink == HEATMAP_PLAIN)
        say(&o->common, "no colours: standard output is no terminal that has 256 of them, or "
                        "NO_COLOR is set; --colour always shades the text all the same");
    g->most_top = o->talks || o->logprobs > c->n_vocab ? c->n_vocab : o->logprobs;
    params.n_shared = g->shares ? job->n_tokens : 0;
    s->tokenizer = t;
    s->n_vocab = c->n_vocab;
    s->ignore_eos = o->ignore_eos;
    s->shifts = o->shift || (o->talks && !o->no_shift);
    s->n_keep = (s->shifts || o->talks) && tokenizer_adds_bos(t);
    TRY(start_schedule(g, &params, n_texts, e));
    return generation_create(g, e);
}

/* Makes the texts, until they end by themselves or by a signal. */
static enum status make_texts(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    enum status s = STATUS_OK;
    if (o->talks) {
        s = talk_run(g, has_prompt(o), e);
    } else {
        TRY(generation_run(g, e));
        if (!o->prompts)
            generation_say_end(g);
        s = g->schedule.interrupted ? STATUS_INTERRUPTED : STATUS_OK;
    }
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    generation_report(g);
    if (s == STATUS_OK && g->n_refused > 0)
        return err_failed(
            e, "%" PRIu64 " of %" PRIu64 " prompts could not be run; their lines say why",
            g->n_refused, g->n_refused + g->n_done);
    return s;
}

static enum status run_generate(struct job *j, void *values, struct err *e)
{
    struct generation g = {
        .o = values, .job = j, .out = j->out, .prompt = j->text, .prompts.lines.fd = -1};
    enum status s = open_generation(&g, e);
    if (s == STATUS_OK)
        s = make_texts(&g, e);
    generation_free(&g);
    return s;
}

const struct command command_generate = {
    .name = "generate",
    .summary = "continue a text from a checkpoint",
    .usage = "MODEL [-p TEXT | -f FILE | --prompts FILE] [options]",
    .examples = "./decode generate models/shakespeare-mha.gguf -p \"ROMEO:\"\n"
                "./decode generate models/shakespeare-mha.gguf -p \"ROMEO:\" -n 50\n"
                "./decode generate models/shakespeare-mha.gguf -n 50 --samples 3\n",
    .notes = help_of_generate,
    .spec = {.groups = {INPUT_GROUP,
                        {"Continuation", text_options, 0},
                        {"A session", session_options, 0},
                        {"Many prompts", many_options, 0},
                        {"Sampling", sampler_options, 0},
                        ENGINE_GROUP,
                        GENERAL_GROUP},
             .everyday = "prompt file n interactive temp greedy seed samples prompts kv-heads",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER,
    .check = check_generate,
    .run = run_generate,
};
