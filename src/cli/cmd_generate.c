/*
 * cmd_generate - decode generate: continue a text from a checkpoint.
 */
#include <unistd.h>

#include "cli/generate.h"
#include "model/cost.h"

static const char *const prompts_formats[] = {"auto", "lines", "jsonl", NULL};
enum { PROMPTS_AUTO, PROMPTS_LINES, PROMPTS_JSONL };

static const char *const colour_names[] = {"none", "prob", "always", NULL};
enum colour_choice { COLOUR_NONE, COLOUR_PROB, COLOUR_ALWAYS };

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
    OPT_FLAG(
        "shift", shift,
        "go on when the context is full: a begin-of-text token and the last half of the context "
        "are all that the model then sees, that half fed again at the positions behind it",
        .excludes = "no-shift"),
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
               .fallback = "none", .excludes = "prompts|logprobs"),
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

static const struct option state_options[] = {
    OPT_FLAG("interactive", talks,
             "a session: each line that is typed continues the text so far and is answered; a full "
             "context goes on as with --shift; Ctrl-C stops an answer, /help lists commands; "
             "rlwrap decode ... edits lines and recalls them",
             .letter = 'i'),
    OPT_FLAG("no-shift", no_shift, "of a session: a full context ends the answer",
             .needs = "interactive"),
    OPT_STRING("load-state", load, "FILE",
               "go on with the text that was saved there by the same checkpoint, cache included; a "
               "prompt is added to it; without --seed its random numbers go on, too"),
    OPT_STRING("save-state", save, "FILE", "save the text and its cache at the end",
               .writes = WRITES_FILE),
    OPT_END,
};

static const struct option draft_options[] = {
    OPT_STRING("draft", draft, "DRAFT",
               "guess tokens, to verify several in a step; the text stays the same. A checkpoint "
               "of the same vocabulary; self:TYPE, the model's own weights in that type; or "
               "lookup, what followed the same words before",
               .reads = "the draft"),
    OPT_STRING("draft-n", draft_n, "K|auto",
               "tokens to guess at once; auto: as many as are faster, none if none are",
               .otherwise = "auto", .needs = "draft"),
    OPT_END,
};

/* --- checks ---------------------------------------------------------------------------------- */

/* "auto", which is 0, or a number from 1 on; NULL is auto. */
static enum status parse_auto(const char *option, const char *text, int most, int *n, struct err *e)
{
    *n = 0;
    if (!text || str_is(text, "auto") || parse_int(text, 1, most, n))
        return STATUS_OK;
    return err_usage(e, "%s: expected auto or an integer from 1 to %d, found '%.60s'", option, most,
                     text);
}

static enum status check_generate(struct job *j, void *values, struct err *e)
{
    static const char self[] = "self:";
    struct generate_options *o = values;
    const char *draft = o->draft;
    for (int i = 0; i < o->stops.n; i++)
        if (!o->stops.items[i][0])
            return err_usage(e, "--stop: the text is empty");
    TRY(parse_auto("--batch", o->batch, BATCH_MAX, &o->n_batch, e));
    TRY(parse_auto("--draft-n", o->draft_n, DRAFT_MOST, &o->n_draft, e));
    if (draft && !draft[0])
        return err_usage(e, "--draft: expected a checkpoint, self:TYPE or lookup");
    o->draft_type = -1;
    if (draft && text_starts_with(text_of(draft), self)) {
        o->draft_type = names_find(storage_names, draft + strlen(self));
        if (o->draft_type < 0)
            return err_usage(e, "--draft self: expected one of %s, found '%.60s'",
                             names_joined(storage_names, ", ").text, draft + strlen(self));
    }
    if (o->talks || o->prompts)
        j->needs &= ~JOB_PIPED;
    if (o->prompts)
        j->parts |= JOB_TOKENIZES;
    return job_seed(j, e); /* one for the text and for random heads, so that it replays both */
}

/* Of the options alone: in a session of a loaded text there need not be one. */
static bool has_prompt(const struct generate_options *o)
{
    return o->common.prompt || o->common.file;
}

/* --- the run --------------------------------------------------------------------------------- */

/* Opens or makes the draft's model, and adds the bytes that it takes for each text of a session
 * such as `texts`. Fails as the opening does; STATUS_USAGE for another vocabulary or a model that
 * cannot be made. */
static enum status open_draft(struct generation *g, const struct session_params *texts,
                              size_t *bytes, struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    const struct model *model = job->checkpoint.model;
    struct draft_pace *pace = &g->drafter.pace;
    struct session_params *p = &g->draft_params;
    pace->fixed = o->n_draft > 0;
    pace->most = pace->fixed ? o->n_draft : 8;
    *bytes += (size_t)pace->most * model->config.n_vocab * sizeof(float);
    *p = *texts;
    if (o->draft_type >= 0) {
        TRY(job_start_threads(job, e));
        const enum status s =
            derived_create_packed(model, o->draft_type, job->pool, &g->draft_own, e);
        TRY(s == STATUS_USAGE ? err_in(e, s, "--draft self") : s);
        g->draft_model = g->draft_own;
    } else if (text_is(text_of(o->draft), "lookup")) {
        return STATUS_OK;
    } else {
        TRY(job_open(o->draft, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER, &g->draft_file, e));
        TRY(job_same_tokens(&job->checkpoint, &g->draft_file, o->draft, STATUS_USAGE, e));
        g->draft_model = g->draft_file.model;
        p->without = NULL;
    }
    /* What one text takes, as the number of texts is yet to be chosen, by what memory there is. */
    struct session_memory plan;
    const int most = g->draft_model->config.n_ctx;
    p->n_ctx = MIN(p->n_ctx, most);
    p->n_shared = p->n_shared <= most ? p->n_shared : 0;
    TRY(session_plan(g->draft_model, p, job->n_threads, &plan, e));
    *bytes += plan.kv_bytes + plan.scratch_bytes;
    pace->cost = (double)cost_model_bytes(g->draft_model) / cost_model_bytes(model);
    return STATUS_OK;
}

/* What the schedule borrows: the job's session, with as many of n_texts sequences as --batch or the
 * memory allows, the sampler and the drafter. */
static enum status start_schedule(struct generation *g, struct session_params *params, int n_texts,
                                  struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    struct drafter *d = &g->drafter;
    struct sampler_params sampler = o->sampler;
    struct sequences_wanted w = {.n = o->n_batch ? o->n_batch : BATCH_AUTO,
                                 .all = o->n_batch > 0,
                                 .more_bytes = s->n_vocab * sizeof(float),
                                 .option = n_texts > 1 ? "--batch N, -c N" : "-c N"};
    if (o->draft)
        TRY(open_draft(g, params, &w.more_bytes, e));
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
                                        .n_sequences = s->n_slots * (o->draft ? 2 : 1),
                                        .n_threads = job->n_threads};
    TRY(sampler_create(&sampler, &sizes, &s->sampler, e));
    if (!o->draft)
        return STATUS_OK;
    d->sampler = s->sampler;
    d->pool = s->pool;
    d->n_slots = g->draft_params.n_sequences = s->n_slots;
    d->n_vocab = s->n_vocab;
    d->end = s->ignore_eos ? -1 : tokenizer_eos(s->tokenizer);
    d->n_shared = g->draft_params.n_shared;
    if (g->draft_model)
        TRY(job_create_session(job, "draft", g->draft_model, &g->draft_params, NULL, &d->session,
                               e));
    s->drafter = d;
    return drafter_create(d, e);
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
    } else if (!o->load && (!o->talks || has_prompt(o))) {
        TRY(tokens_of_prompt(t, g->prompt, c->n_ctx, &job->tokens, &job->n_tokens, e));
        TRY(check_prompt_length(job->n_tokens, params.n_ctx, c->n_ctx, e));
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
    TRY(generation_create(g, e));
    if (!o->load)
        return STATUS_OK;
    TRY(generation_load(g, o->load, e));
    if (o->common.seed.given)
        generation_reseed(g, o->common.seed.value);
    return generation_add(g, e);
}

/* Makes the texts, until they end by themselves or by a signal: one can be saved then. */
static enum status make_texts(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    const struct slot *first = g->schedule.slots;
    enum status s = STATUS_OK;
    if (o->talks) {
        s = talk_run(g, has_prompt(o), e);
    } else if (g->goes_on && g->job->n_tokens == 0 && first->at_end && !o->ignore_eos) {
        say(&o->common,
            "the model has ended the text in '%.200s': -p adds to it, --ignore-eos goes on all the "
            "same",
            o->load);
    } else {
        TRY(generation_run(g, e));
        if (!o->prompts)
            generation_say_end(g);
        s = g->schedule.interrupted ? STATUS_INTERRUPTED : STATUS_OK;
    }
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    /* Also when nobody reads on; a session may come to its end without a text. */
    if (o->save && first->len > 0)
        TRY(generation_save(g, "--save-state", o->save, e));
    else if (o->save)
        say(&o->common, "there is no text to save in %.200s", o->save);
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
    THEN(s, make_texts(&g, e));
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
    .notes =
        "Prints the prompt and its continuation. Without -p and -f the prompt is what is\n"
        "piped in; without any it starts from the checkpoint's begin-of-text token, or else\n"
        "from a newline. The same checkpoint, prompt, options and seed give the same text\n"
        "for any number of threads.\n"
        "With --prompts a line a prompt: index, id, prompt, text, tokens, n, finish (length,\n"
        "stop, eos, context), seed, logprob; or error. Each text is that of the prompt alone with "
        "its seed. An object's n, seed and\n"
        "stop take the place of the command's.\n"
        "With -i and with --load-state a text goes on: with its cache, its random numbers and\n"
        "the tokens that a penalty remembers, bit for bit as one run would make it. Ctrl-C at\n"
        "the prompt of -i ends the session, as the end of the input does; what fails in one is\n"
        "told and does not change its exit code.\n"
        "With --draft the text is the same; the summary says what was drafted and how much\n"
        "of it was right.\n"
        "The sampler's order: repetition penalty, temperature, top-k, top-p, min-p, draw.\n",
    .spec = {.groups = {INPUT_GROUP,
                        {"Continuation", text_options, 0},
                        {"Texts that go on", state_options, 0},
                        {"Many prompts", many_options, 0},
                        {"Sampling", sampler_options, 0},
                        {"Drafts", draft_options, 0},
                        ENGINE_GROUP,
                        VARIANT_GROUP,
                        GENERAL_GROUP},
             .everyday = "prompt file n interactive temp greedy seed samples prompts kv-heads",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER,
    .check = check_generate,
    .run = run_generate,
};
