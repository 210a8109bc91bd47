/* decode generate: continue a text from a checkpoint. */
#include "cli/generate.h"

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
    OPT_FLAG("interactive", common.interactive,
             "a session: each line that is typed continues the text so far and is answered; a full "
             "context goes on as with --shift; Ctrl-C stops an answer",
             .letter = 'i'),
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

static enum status run_generate(struct job *j, void *values, struct err *e)
{
    const struct generate_options *o = values;
    struct generation g = {.o = o, .job = j};
    enum status s = generation_open(&g, e);
    if (s == STATUS_OK) {
        s = o->common.interactive ? generation_session(&g, e) : generation_run(&g, e);
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
                        {"Many prompts", many_options, 0},
                        {"Sampling", sampler_options, 0},
                        {"Engine", engine_options, 0},
                        {"", general_options, 0}},
             .everyday = "prompt file n interactive temp greedy seed samples prompts kv-heads",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER,
    .prepare = prepare_generate,
    .check = check_generate,
    .run = run_generate,
};
