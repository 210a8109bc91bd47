/*
 * cmd_generate - decode generate: continue a text from a checkpoint.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/descriptor.h"
#include "cli/generate.h"
#include "cli/generate_draft.h"
#include "cli/generate_many.h"
#include "cli/generate_report.h"
#include "cli/generate_state.h"
#include "cli/generate_talk.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/signals.h"
#include "cli/terminal.h"

struct generate_options {
    struct common_options common;
    int n, ctx;
    int truncate; /* an enum truncation */
    bool shift;
    int keep;
    bool no_echo, ignore_eos;
    struct option_strings stops;
    int samples;
    bool greedy;
    struct sampler_params sampler; /* but for the seed and what --greedy is */
    int logprobs;                  /* 0: none */
    int colour;                    /* an enum colour_choice */
    const char *prompts;           /* NULL: one prompt, the input's */
    int prompts_format;
    const char *batch; /* NULL, a number or "auto" */
    struct draft_options draft;
    struct state_options state;
};

static const char *const colour_names[] = {"none", "prob", "always", NULL};
enum colour_choice { COLOUR_NONE, COLOUR_PROB, COLOUR_ALWAYS };

static const char *const truncations[] = {"head", "tail", NULL};

static const char *const prompts_formats[] = {"auto", "lines", "jsonl", NULL};

/* Sequences that share a step: at most, and at most if nobody says how many. */
#define BATCH_MAX  4096
#define BATCH_AUTO 16

/* Where one text goes on. */
#define ONE_TEXT "interactive|load-state|save-state"

#define VALUES struct generate_options

static const struct option text_options[] = {
    OPT_INT("n", n, "N", 0, INT_MAX, "tokens to make", .letter = 'n', .fallback = "256"),
    OPT_INT("ctx", ctx, "CTX", 1, INT_MAX, "positions to preallocate in the KV cache",
            .letter = 'c', .otherwise = "the checkpoint's context"),
    OPT_CHOICE("truncate", truncate, "END", truncations,
               "cut off the head or the tail of a prompt that is too long: what stays leaves room "
               "for -n tokens, but is at least half of the context",
               .excludes = "interactive|load-state"),
    OPT_FLAG("shift", shift,
             "go on when the context is full: the first tokens of --keep and the last half of the "
             "context are all that the model then sees, that half fed again at the positions "
             "behind those kept"),
    OPT_INT("keep", keep, "K", 0, INT_MAX,
            "tokens that --shift keeps at the start; a begin-of-text token stays in any case",
            .fallback = "0", .needs = "shift"),
    OPT_STRINGS("stop", stops, "TEXT",
                "end where the continuation has this text, which is not printed"),
    OPT_FLAG("ignore-eos", ignore_eos, "go on after an end-of-text token"),
    OPT_INT("samples", samples, "N", 1, 1000000,
            "continuations, separated by lines of ---; the prompt is taken once", .fallback = "1",
            .excludes = ONE_TEXT "|prompts"),
    OPT_FLAG("no-echo", no_echo, "do not print the prompt", .excludes = "prompts"),
    OPT_INT("logprobs", logprobs, "K", 1, INT_MAX,
            "JSON lines instead of text: each token's log-probability and the K likeliest",
            .excludes = "prompts"),
    OPT_CHOICE("colour", colour, "KIND", colour_names,
               "prob: shade each token by its probability, on a terminal of 256 colours unless "
               "NO_COLOR is set; always: the same wherever the text goes",
               .fallback = "none", .excludes = "logprobs|prompts"),
    OPT_END,
};

static const struct option many_options[] = {
    OPT_STRING("prompts", prompts, "FILE",
               "many prompts, one a line, to JSON lines; - is standard input", .excludes = ONE_TEXT,
               .reads = "the prompts"),
    OPT_CHOICE("prompts-format", prompts_format, "FORM", prompts_formats,
               "of the lines: text, or objects with prompt and id, n, seed, stop; auto: by the "
               "file's name",
               .fallback = "auto", .needs = "prompts"),
    OPT_STRING("batch", batch, "N|auto", "sequences that share a step; no text depends on it",
               .otherwise = "as many as there are prompts or samples, at most 16 and what memory "
                            "allows"),
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

/* *batch is 0 for auto. */
static enum status parse_batch(const struct generate_options *o, int *batch, struct err *e)
{
    *batch = 0;
    if (!o->batch || strcmp(o->batch, "auto") == 0)
        return STATUS_OK;
    if (!parse_int(o->batch, 1, BATCH_MAX, batch))
        return err_set(e, STATUS_USAGE,
                       "--batch: expected auto or an integer from 1 to %d, found '%.60s'",
                       BATCH_MAX, o->batch);
    if (!o->prompts && o->samples == 1)
        return err_set(e, STATUS_USAGE,
                       "--batch is for many sequences; expected --prompts or --samples with it");
    return STATUS_OK;
}

/* llama2.c's -t is the temperature. */
static enum status check_threads(const char *threads, struct err *e)
{
    int n;
    double x;
    if (threads && !parse_int(threads, 1, INT_MAX, &n) && parse_double(threads, &x) && x >= 0)
        return err_set(e, STATUS_USAGE,
                       "-t: expected auto or a number of threads, found '%.60s'; a temperature is "
                       "--temp",
                       threads);
    return STATUS_OK;
}

static enum status check_generate(struct job *j, void *values, struct err *e)
{
    const struct generate_options *o = values;
    int batch;
    struct generate_draft draft = {.source = DRAFT_NONE};
    for (int i = 0; i < o->stops.n; i++)
        if (!o->stops.items[i][0])
            return err_set(e, STATUS_USAGE, "--stop: the text is empty");
    TRY(check_threads(o->common.threads, e));
    TRY(parse_batch(o, &batch, e));
    TRY(draft_parse(&o->draft, &draft, e));
    if (o->state.talks && o->common.file && strcmp(o->common.file, "-") == 0)
        return err_set(e, STATUS_USAGE, "-f - reads the lines that are those of -i; expected -p");
    if (o->state.talks || o->prompts)
        j->needs &= ~(unsigned)JOB_PIPED;
    if (o->prompts)
        j->parts |= JOB_TOKENIZES;
    return job_seed(j, e); /* one for the text and for random heads, so that it replays both */
}

/* Checks -c against the checkpoint; *ctx is what is preallocated for each sequence. */
static enum status choose_context(const struct generate_options *o, const struct config *c,
                                  int *ctx, struct err *e)
{
    *ctx = o->ctx ? o->ctx : c->n_ctx;
    if (*ctx > c->n_ctx)
        return err_set(e, STATUS_USAGE,
                       "-c: expected at most %d, the checkpoint's context, found %d", c->n_ctx,
                       o->ctx);
    return STATUS_OK;
}

/* What --shift keeps. */
static enum status choose_kept(const struct generate_options *o, const struct job *r, int ctx,
                               struct schedule *s, struct err *e)
{
    const int most = schedule_most_kept(ctx);
    s->shifts = o->shift;
    s->n_keep = o->keep;
    if (o->shift && o->keep == 0 && most > 0)
        s->n_keep = tokenizer_adds_bos(r->checkpoint.tokenizer);
    if (s->n_keep > most)
        return err_set(
            e, STATUS_USAGE,
            "--keep: expected 0 to %d, what is left of the context of %d beside its last "
            "half, found %d",
            most, ctx, o->keep);
    return STATUS_OK;
}

/* --- what both ways share -------------------------------------------------------------------- */

/* Sequences that share a step, of n_texts there are to make at most. */
static enum status choose_batch(const struct generate_options *o, const struct job *r,
                                struct session_wanted *w, int n_texts, struct err *e)
{
    const char *const option = "--batch N";
    int batch;
    w->option = n_texts > 1 ? "--batch N, -c N" : "-c N";
    w->more_bytes += (size_t)r->checkpoint.model->config.n_vocab * sizeof(float);
    TRY(parse_batch(o, &batch, e));
    if (batch > 0) {
        w->n_sequences = batch < n_texts ? batch : n_texts;
        return w->n_sequences > 1 ? job_check_sequences(r, w, option, e) : STATUS_OK;
    }
    const int most = n_texts < BATCH_AUTO ? n_texts : BATCH_AUTO;
    w->n_sequences = 1;
    if (most > 1)
        TRY(job_fitting(r, w, most, &w->n_sequences, e));
    if (w->n_sequences < 1)
        w->n_sequences = 1;
    if (most > 1)
        say_verbose(r->common, "batch: %d sequences%s; %s changes it", w->n_sequences,
                    w->n_sequences < most ? ", as memory has no room for more" : "", option);
    return STATUS_OK;
}

static enum status create_sampler(const struct generate_options *o, const struct job *r,
                                  const struct session_wanted *w, bool drafts, struct sampler **out,
                                  struct err *e)
{
    struct sampler_params params = o->sampler;
    const struct sampler_sizes sizes = {.n_vocab = r->checkpoint.model->config.n_vocab,
                                        .n_ctx = w->n_ctx,
                                        .n_sequences = w->n_sequences * (drafts ? 2 : 1),
                                        .n_threads = r->n_threads};
    if (o->greedy)
        params.temperature = 0;
    say_verbose(r->common,
                "sampler: repetition penalty %g over %d, temperature %g, top-k %d, top-p %g, "
                "min-p %g, draw",
                params.repeat_penalty, params.repeat_last_n, params.temperature, params.top_k,
                params.top_p, params.min_p);
    return sampler_create(&params, &sizes, out, e);
}

/* Starts the session, with n_texts at most in it, and fills in what the schedule borrows; its
 * sampler and the draft are the caller's to free, whatever is returned. */
static enum status start_schedule(const struct generate_options *o, struct job *r,
                                  struct session_wanted *w, int n_texts,
                                  struct generate_draft *draft, struct schedule *s, struct err *e)
{
    TRY(draft_parse(&o->draft, draft, e));
    TRY(draft_open(draft, r, w, e));
    TRY(choose_batch(o, r, w, n_texts, e));
    TRY(choose_kept(o, r, w->n_ctx, s, e));
    TRY(job_start_session(r, w, e));
    TRY(create_sampler(o, r, w, draft->source != DRAFT_NONE, &s->sampler, e));
    s->session = r->session;
    s->pool = r->pool;
    s->tokenizer = r->checkpoint.tokenizer;
    s->n_slots = w->n_sequences;
    s->n_vocab = r->checkpoint.model->config.n_vocab;
    s->ignore_eos = o->ignore_eos;
    return draft_start(draft, r, w, s, e);
}

/* --stop as texts, which the caller frees. */
static enum status stop_texts(const struct generate_options *o, struct text **out, struct err *e)
{
    const size_t bytes = (size_t)o->stops.n * sizeof **out;
    *out = malloc(bytes + 1);
    if (!*out)
        return err_no_memory(e, "the stop texts", bytes);
    for (int i = 0; i < o->stops.n; i++)
        (*out)[i] = text_of(o->stops.items[i]);
    return STATUS_OK;
}

/* --- one prompt ------------------------------------------------------------------------------ */

/* An empty prompt needs no tokenizer that makes tokens of texts. */
static enum status check_reads_text(const struct job *r, struct text prompt, struct err *e)
{
    if (prompt.len == 0)
        return STATUS_OK;
    return input_needs_tokenizer(r->checkpoint.tokenizer, r->path, "generate", e);
}

/* r->tokens, of what fits into ctx positions. */
static enum status read_prompt(const struct generate_options *o, struct job *r, struct text prompt,
                               int ctx, struct err *e)
{
    const struct config *config = &r->checkpoint.model->config;
    const struct tokenizer *t = r->checkpoint.tokenizer;
    TRY(check_reads_text(r, prompt, e));
    TRY(tokens_of_prompt(t, prompt, o->truncate ? INT_MAX : config->n_ctx, &r->tokens, &r->n_tokens,
                         e));
    const size_t cut =
        tokens_truncate(t, (enum truncation)o->truncate, ctx, o->n, r->tokens, &r->n_tokens);
    if (cut > 0)
        say(&o->common, "the prompt has %zu tokens, the context %d: its %s %zu are cut off",
            r->n_tokens + cut, ctx, o->truncate == TRUNCATE_HEAD ? "first" : "last", cut);
    return check_prompt_length(r->n_tokens, ctx, config->n_ctx, e);
}

/* What was saved goes on, with a prompt behind it if there is one; and with the seed that is asked
 * for. */
static enum status load_state(const struct generate_options *o, struct job *r,
                              struct generate_state *state, struct err *e)
{
    struct generation *g = state->generation;
    TRY(check_reads_text(r, g->prompt, e));
    TRY(generate_state_load(state, o->state.load, e));
    if (o->common.seed.given)
        generate_state_seed(state, r->seed);
    TRY(generate_state_tokens(state, g->prompt, &r->tokens, &r->n_tokens, e));
    g->tokens = r->tokens;
    g->n_tokens = (int)r->n_tokens;
    return STATUS_OK;
}

static bool has_prompt(const struct generate_options *o)
{
    return o->common.prompt || o->common.file;
}

/* Until it ends, by itself or by a signal: the text can be saved then. */
static enum status run_to_end(const struct generate_options *o, struct generate_state *state,
                              struct err *e)
{
    struct generation *g = state->generation;
    struct talk talk = {.state = state, .begins = has_prompt(o)};
    if (o->state.talks)
        return talk_run(&talk, e);
    if (g->goes_on && g->n_tokens == 0 && generate_state_at_end(state) && !o->ignore_eos) {
        say(&o->common,
            "the model has ended the text in '%.200s': -p adds to it, --ignore-eos "
            "goes on all the same",
            o->state.load);
        return STATUS_OK;
    }
    TRY(generate_run(g, e));
    if (!g->out->failed)
        generate_say_end(g, &o->common);
    return g->schedule.interrupted ? STATUS_INTERRUPTED : STATUS_OK;
}

/* Also when nobody reads on; a session may come to its end without a text. */
static enum status save_at_end(const struct generate_options *o, struct generate_state *state,
                               struct err *e)
{
    if (!o->state.save)
        return STATUS_OK;
    if (generate_state_len(state) > 0)
        return generate_state_save(state, "--save-state", o->state.save, e);
    say(&o->common, "there is no text to save in %.200s", o->state.save);
    return STATUS_OK;
}

static enum status generate_texts(const struct generate_options *o, struct job *r, int ctx,
                                  struct generate_draft *draft, struct generation *g, struct err *e)
{
    struct session_wanted wanted = {.n_shared = g->shares ? g->n_tokens : 0, .n_ctx = ctx};
    TRY(start_schedule(o, r, &wanted, o->samples, draft, &g->schedule, e));
    TRY(generate_create(g, e));
    struct generate_state state = {
        .runtime = r, .generation = g, .spec = &command_generate.spec, .values = o};
    TRY(path_writable(o->state.save, e));
    if (o->state.load)
        TRY(load_state(o, r, &state, e));
    const enum status s = run_to_end(o, &state, e);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    TRY(save_at_end(o, &state, e));
    generate_report(g, r, g->seed);
    return s;
}

/* What the text is shaded with, and a legend beside it; or why it is not shaded. */
static enum heatmap_ink choose_ink(const struct generate_options *o)
{
    const bool always = o->colour == COLOUR_ALWAYS;
    const struct heatmap_scale scale = generate_scale();
    const enum heatmap_ink ink = o->colour == COLOUR_NONE ? HEATMAP_PLAIN
                                 : always                 ? terminal_forced_ink()
                                                          : terminal_ink();
    struct descriptor legend;
    if (ink == HEATMAP_PLAIN && o->colour)
        say(&o->common, "no colours: standard output is no terminal that has 256 of them, or "
                        "NO_COLOR is set; --colour always shades the text all the same");
    if (ink == HEATMAP_PLAIN || o->common.quiet || !(always || isatty(STDERR_FILENO)))
        return ink;
    descriptor_init(&legend, STDERR_FILENO);
    output_puts(&legend.out, "decode: ");
    heatmap_put_legend(&legend.out, ink, &scale, "probability");
    output_flush(&legend.out);
    return ink;
}

static enum status generate_from(const struct generate_options *o, struct job *r, struct err *e)
{
    const struct text prompt = r->text;
    const struct config *config = &r->checkpoint.model->config;
    struct text *stops;
    int ctx;
    TRY(choose_context(o, config, &ctx, e));
    if (!o->state.load && (!o->state.talks || has_prompt(o)))
        TRY(read_prompt(o, r, prompt, ctx, e));
    TRY(stop_texts(o, &stops, e));
    struct generation g = {
        .out = r->out,
        .prompt = prompt,
        .tokens = r->tokens,
        .n_tokens = (int)r->n_tokens,
        .n = o->n,
        .n_samples = o->state.talks ? 0 : o->samples,
        .seed = r->seed,
        .shares = o->samples > 1 && !o->shift,
        .echo = !o->no_echo && (!o->state.talks || has_prompt(o)),
        .ink = choose_ink(o),
        .n_top = o->logprobs,
        .most_top = o->state.talks || o->logprobs > config->n_vocab ? config->n_vocab : o->logprobs,
        .stops = stops,
        .n_stops = o->stops.n};
    struct generate_draft draft = {.source = DRAFT_NONE};
    const enum status s = generate_texts(o, r, ctx, &draft, &g, e);
    generate_free(&g);
    draft_close(&draft);
    sampler_free(g.schedule.sampler);
    free(stops);
    return s;
}

/* --- many prompts ---------------------------------------------------------------------------- */

/* How many prompts there are, as far as can be told by now; at least one, at most BATCH_MAX. */
static enum status count_prompts(struct prompts *p, int *n, struct err *e)
{
    TRY(lines_left(&p->lines, BATCH_AUTO, n, e));
    if (*n >= BATCH_AUTO)
        *n = BATCH_MAX;
    if (*n == 0)
        *n = 1;
    return STATUS_OK;
}

static enum status generate_prompts(const struct generate_options *o, struct job *r,
                                    struct generate_draft *draft, struct generation_many *g,
                                    struct err *e)
{
    struct session_wanted wanted = {.n_shared = 0};
    const struct config *config = &r->checkpoint.model->config;
    int n_texts;
    TRY(choose_context(o, config, &wanted.n_ctx, e));
    TRY(count_prompts(g->prompts, &n_texts, e));
    TRY(start_schedule(o, r, &wanted, n_texts, draft, &g->schedule, e));
    g->most_ctx = config->n_ctx;
    g->truncate = o->truncate;
    TRY(generate_many_create(g, e));
    TRY(generate_many_run(g, e));
    generate_many_report(g, r, r->seed);
    if (g->schedule.interrupted)
        return STATUS_INTERRUPTED;
    if (g->n_errors > 0)
        return err_set(
            e, STATUS_FAILED, "%llu of %llu prompts could not be run; their lines say why",
            (unsigned long long)g->n_errors, (unsigned long long)(g->n_errors + g->n_done));
    return STATUS_OK;
}

/* Opening a pipe waits for its other end, and Ctrl-C ends the wait. */
static enum status await_prompts(struct prompts *p, const char *path, struct err *e)
{
    if (signals_end_at_once())
        return STATUS_INTERRUPTED;
    const enum status s = prompts_open(p, path, e);
    signals_defer();
    return s;
}

static enum status generate_many_from(const struct generate_options *o, struct job *r,
                                      struct err *e)
{
    struct progress progress = progress_start(r->common, "prompts");
    progress.terminal &= !isatty(STDOUT_FILENO); /* where the lines themselves show it */
    struct text *stops;
    TRY(stop_texts(o, &stops, e));
    struct prompts prompts = {
        .n = o->n,
        .seed = r->seed,
        .stops = stops,
        .n_stops = o->stops.n,
        .jsonl = o->prompts_format ? strcmp(prompts_formats[o->prompts_format], "jsonl") == 0
                                   : text_ends_with(text_of(o->prompts), ".jsonl")};
    struct generation_many g = {.out = r->out, .prompts = &prompts, .progress = &progress};
    struct generate_draft draft = {.source = DRAFT_NONE};
    enum status s = await_prompts(&prompts, o->prompts, e);
    if (s == STATUS_OK)
        s = generate_prompts(o, r, &draft, &g, e);
    generate_many_free(&g);
    draft_close(&draft);
    sampler_free(g.schedule.sampler);
    prompts_close(&prompts);
    free(stops);
    return s;
}

static enum status run_generate(struct job *j, void *values, struct err *e)
{
    const struct generate_options *o = values;
    return o->prompts ? generate_many_from(o, j, e) : generate_from(o, j, e);
}

const struct command command_generate = {
    .name = "generate",
    .summary = "continue a text from a checkpoint",
    .usage = "MODEL [-p TEXT | -f FILE | --prompts FILE] [options]",
    .notes =
        "Prints the prompt and its continuation. Without -p and -f the prompt is what is\n"
        "piped in; without any it starts from the checkpoint's begin-of-text token, or else\n"
        "from a newline. The same checkpoint, prompt, options and seed give the same text\n"
        "for any number of threads.\n"
        "With --prompts a line a prompt: index, id, prompt, text, tokens, n, finish (length,\n"
        "stop, eos, context), seed, logprob, and cut, the tokens that --truncate took from it;\n"
        "or error. Each text is that of the prompt alone with its seed. An object's n, seed and\n"
        "stop take the place of the command's.\n"
        "With -i and with --load-state a text goes on: with its cache, its random numbers and\n"
        "the tokens that a penalty remembers, bit for bit as one run would make it. Ctrl-C at\n"
        "the prompt of -i ends the session, as the end of the input does; what fails in one is\n"
        "told and does not change its exit code.\n"
        "With --draft the text is the same; the summary says what was drafted and how much\n"
        "of it was right, with --format jsonl as a JSON object.\n"
        "The sampler's order: repetition penalty, temperature, top-k, top-p, min-p, draw.\n",
    .spec = {.groups = {INPUT_GROUP,
                        {"Continuation", text_options, 0},
                        {"Texts that go on", state_options, offsetof(VALUES, state)},
                        {"Many prompts", many_options, 0},
                        {"Sampling", sampler_options, 0},
                        {"Drafts", draft_options, offsetof(VALUES, draft)},
                        ENGINE_GROUP,
                        VARIANT_GROUP,
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER,
    .check = check_generate,
    .run = run_generate,
};
