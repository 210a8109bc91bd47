/* decode generate: continue a text from a checkpoint. */
#include <unistd.h>

#include "cli/generate.h"

/* Positions that the cache of -i has at first: at least as many as a step has rows. */
#define FIRST_CTX 128

/* The most sequences that share a step: at all, and where nobody says how many. */
#define BATCH_MAX  4096
#define BATCH_AUTO 16

#define VALUES struct generate_options

static const struct option text_options[] = {
    OPT_INT("n", n, "N", 0, INT_MAX, "tokens to make", .letter = 'n', .fallback = "256"),
    OPT_INT("ctx", ctx, "CTX", 1, INT_MAX, "positions to preallocate in the KV cache",
            .letter = 'c',
            .otherwise = "what the text needs; with --prompts or -i the checkpoint's context"),
    OPT_KV_TYPE("K[/V]", KV_TYPE_HELP),
    OPT_FLAG(
        "shift", shift,
        "go on when the context is full: a begin-of-text token and the last half of the context "
        "are all that the model then sees, that half fed again at the positions behind it"),
    OPT_STRINGS("stop", stops, "TEXT",
                "end where the continuation has this text, which is not printed; \\n is a "
                "backslash and an n, as in -p"),
    OPT_INT("samples", samples, "N", 1, 1000000,
            "continuations, separated by lines of ---; the prompt is taken once", .fallback = "1",
            .excludes = "interactive|prompts"),
    OPT_TRUNCATE,
    OPT_FLAG("no-echo", no_echo, "do not print the prompt"),
    OPT_CHOICE("format", format, "FORM", text_formats,
               "json: a line for each text, with its prompt, tokens and log-probability",
               .otherwise = "text; of --prompts json", .excludes = "interactive"),
    OPT_END,
};

static const struct option many_options[] = {
    OPT_STRING("prompts", prompts, "FILE",
               "many prompts, a text a line; an empty line is none; - is standard input",
               .excludes = "interactive", .reads = "the prompts"),
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
            "how many tokens are recent, at most the context's; -1: these", .fallback = "64"),
    OPT_U64("seed", common.seed, "S", "replay the run of this seed",
            .otherwise = "a random one, which is shown"),
    OPT_END,
};

static const struct option session_options[] = {
    OPT_FLAG("interactive", interactive,
             "a session: each line that is typed continues the text so far and is answered; a full "
             "context goes on as with --shift; Ctrl-C stops an answer",
             .letter = 'i'),
    OPT_END,
};

/* --- before the run -------------------------------------------------------------------------- */

/* Decides the form of the output, the sequences of a step, and where the text is. */
static enum status prepare_generate(struct job *j, void *values, struct err *e)
{
    struct generate_options *o = values;
    const char *batch = o->batch;
    if (batch && !str_is(batch, "auto") && !parse_int(batch, 1, BATCH_MAX, &o->n_batch))
        return err_usage(e, "--batch: expected auto or an integer from 1 to %d, found '%.60s'",
                         BATCH_MAX, batch);
    if (o->format == CHOICE_NONE)
        o->format = o->prompts ? FORMAT_JSON : FORMAT_TEXT;
    if (o->prompts)
        j->common->file = o->prompts;
    else if (!o->interactive)
        input_use_pipe(j->common);
    return STATUS_OK;
}

static enum status check_generate(const struct job *j, const void *values, struct err *e)
{
    const struct generate_options *o = values;
    (void)j;
    for (int i = 0; i < o->stops.n; i++)
        if (!o->stops.items[i][0])
            return err_usage(e, "--stop: the text is empty");
    return o->no_echo && o->format == FORMAT_JSON
               ? err_usage(e, "--no-echo: JSON has the prompt as a field; expected --format text")
               : STATUS_OK;
}

/* Whether -p or -f gives a prompt; a session reads standard input line by line. */
static bool has_prompt(const struct generate_options *o)
{
    return o->common.prompt || o->common.file;
}

/* --- the run --------------------------------------------------------------------------------- */

/* Creates what the schedule borrows: the sampler, and the job's session with at most n_texts
 * sequences, as many as --batch or the memory allows. */
static enum status start_schedule(struct generation *g, struct session_params *params, int n_texts,
                                  struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    struct sampler_params sampler = o->sampler;
    const int wanted = MIN(o->n_batch ? o->n_batch : BATCH_AUTO, n_texts);
    params->n_sequences = 1;
    if (wanted > 1)
        TRY(job_fit_sequences(job, params, wanted, o->n_batch > 0, CACHE_ADVICE, e));
    s->n_ctx = params->n_ctx;
    if (o->interactive)
        params->n_ctx = MIN(params->n_ctx, FIRST_CTX);
    TRY(job_start_session(job, params, s->n_ctx, CACHE_ADVICE, e));
    s->session = job->session;
    s->pool = job->pool;
    s->n_slots = params->n_sequences;
    if (o->greedy)
        sampler.temperature = 0;
    log_verbose(&o->common,
                "sampler: repetition penalty %g over %d, temperature %g, top-k %d, top-p %g, min-p "
                "%g, draw",
                sampler.repeat_penalty, sampler.repeat_last_n, sampler.temperature, sampler.top_k,
                sampler.top_p, sampler.min_p);
    const struct sampler_sizes sizes = {.n_vocab = s->n_vocab,
                                        .n_ctx = s->n_ctx,
                                        .n_sequences = s->n_slots,
                                        .n_threads = job->n_threads};
    return sampler_create(&sampler, &sizes, &s->sampler, e);
}

/* Counts the texts of --prompts before the first one begins. */
static uint64_t count_prompts(const struct generation *g)
{
    struct text left = g->lines, line;
    uint64_t n_lines = 0, n = 0;
    while (generation_next_line(&left, &n_lines, &line))
        n++;
    return n;
}

/* Opens what texts need to begin. */
static enum status open_generation(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    const struct config *c = &job->checkpoint.model->config;
    const struct tokenizer *t = job->checkpoint.tokenizer;
    struct session_params params = job_session_params(job);
    TRY(job_seed(job, e));
    params.n_ctx = o->ctx ? o->ctx : c->n_ctx;
    if (params.n_ctx > c->n_ctx)
        return err_usage(e, "-c: expected at most %d, the checkpoint's context, found %d", c->n_ctx,
                         o->ctx);
    if (job->text.len > 0)
        TRY(input_needs_tokenizer(t, job->path, "generate", e));
    if (o->prompts)
        g->lines = job->text;
    else
        g->prompt = job->text;
    g->n_texts = o->prompts ? count_prompts(g) : o->interactive ? 0 : (uint64_t)o->samples;
    if (!o->prompts && (!o->interactive || has_prompt(o)))
        TRY(generation_tokens(g, g->prompt, params.n_ctx, o->n, &job->tokens, &job->n_tokens, e));
    if (!o->ctx && !o->prompts && !o->interactive) /* as many positions as the texts need */
        params.n_ctx = MIN((uint64_t)c->n_ctx, (uint64_t)job->n_tokens + o->n);
    g->streams = o->format == FORMAT_TEXT && !o->prompts && o->samples == 1;
    g->echo = !o->no_echo && (!o->interactive || has_prompt(o));
    if (!g->streams) /* lines that come by show it, too */
        job_progress(job, o->prompts ? "prompt" : "text")->terminal &= !isatty(STDOUT_FILENO);
    s->tokenizer = t;
    s->n_vocab = c->n_vocab;
    s->shifts = o->shift || o->interactive;
    s->n_keep = s->shifts && tokenizer_adds_bos(t);
    TRY(start_schedule(g, &params, (int)MIN(MAX(g->n_texts, 1), BATCH_MAX), e));
    return generation_create(g, e);
}

static enum status run_generate(struct job *j, void *values, struct err *e)
{
    const struct generate_options *o = values;
    struct generation g = {.o = o, .job = j};
    enum status s = open_generation(&g, e);
    if (s == STATUS_OK) {
        s = o->interactive ? generation_session(&g, has_prompt(o), e) : generation_run(&g, e);
        if (s == STATUS_OK || s == STATUS_INTERRUPTED)
            generation_report(&g);
    }
    if (s == STATUS_OK && g.n_refused > 0)
        s = err_failed(
            e, "%" PRIu64 " of %" PRIu64 " prompt%s could not be run; the output's lines say why",
            g.n_refused, g.n_refused + g.n_done, plural(g.n_refused + g.n_done));
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
    .spec = {.groups = {{"Text", input_options, 0},
                        {"Continuation", text_options, 0},
                        {"A session", session_options, 0},
                        {"Many prompts", many_options, 0},
                        {"Sampling", sampler_options, 0},
                        {"Engine", engine_options, 0},
                        {"", general_options, 0}},
             .everyday = "prompt file n interactive temp greedy seed samples prompts kv-heads",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER,
    .prepare = prepare_generate,
    .check = check_generate,
    .run = run_generate,
};
