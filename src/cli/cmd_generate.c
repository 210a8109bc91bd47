/*
 * cmd_generate - decode generate: continue a text from a checkpoint.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cli/command.h"
#include "cli/generate.h"
#include "cli/generate_report.h"
#include "cli/input.h"
#include "cli/runtime.h"

struct generate_options {
    struct common_options common;
    struct engine_options engine;
    struct input_options input;
    int n, ctx;
    bool no_echo, ignore_eos;
    struct option_strings stops;
    int samples;
    bool greedy;
    struct sampler_params sampler; /* but for the seed and what --greedy is */
    struct option_u64 seed;
    int logprobs; /* 0: none */
    const char *format;
};

#define VALUES struct generate_options

static const struct option text_options[] = {
    OPT_INT("n", n, "N", 0, INT_MAX, "tokens to make", .letter = 'n', .fallback = "256"),
    OPT_INT("ctx", ctx, "CTX", 1, INT_MAX, "positions to preallocate in the KV cache",
            .letter = 'c', .otherwise = "the checkpoint's context"),
    OPT_STRINGS("stop", stops, "TEXT",
                "end where the continuation has this text, which is not printed"),
    OPT_FLAG("ignore-eos", ignore_eos, "go on after an end-of-text token"),
    OPT_INT("samples", samples, "N", 1, 1000000,
            "continuations, separated by lines of ---; the prompt is taken once", .fallback = "1"),
    OPT_FLAG("no-echo", no_echo, "do not print the prompt"),
    OPT_INT("logprobs", logprobs, "K", 1, INT_MAX,
            "JSON lines instead of text: each token's log-probability and the K likeliest"),
    OPT_STRING("format", format, "jsonl", "the form of --logprobs; there is no other"),
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
    OPT_U64("seed", seed, "S", "replay the run of this seed",
            .otherwise = "a random one, which is shown"),
    OPT_END,
};

static enum status check_generate_options(const struct generate_options *o, struct err *e)
{
    for (int i = 0; i < o->stops.n; i++)
        if (!o->stops.items[i][0])
            return err_set(e, STATUS_USAGE, "--stop: the text is empty");
    if (o->format && strcmp(o->format, "jsonl") != 0)
        return err_set(e, STATUS_USAGE, "--format: expected jsonl, found '%.60s'", o->format);
    if (o->format && !o->logprobs)
        return err_set(e, STATUS_USAGE, "--format jsonl needs --logprobs K");
    return STATUS_OK;
}

/* Checks -c and the prompt's length against the checkpoint; *ctx is what is preallocated. */
static enum status choose_context(const struct generate_options *o, const struct config *c,
                                  size_t n_tokens, int *ctx, struct err *e)
{
    *ctx = o->ctx ? o->ctx : c->n_ctx;
    if (*ctx > c->n_ctx)
        return err_set(e, STATUS_USAGE,
                       "-c: expected at most %d, the checkpoint's context, found %d", c->n_ctx,
                       o->ctx);
    if (n_tokens > (size_t)*ctx)
        return err_set(e, STATUS_USAGE,
                       "the prompt has %zu tokens, the context only %d: shorten the prompt%s",
                       n_tokens, *ctx, *ctx < c->n_ctx ? " or raise -c" : "");
    return STATUS_OK;
}

static enum status create_sampler(const struct generate_options *o, const struct runtime *r,
                                  int n_ctx, struct sampler **out, struct err *e)
{
    struct sampler_params params = o->sampler;
    if (o->greedy)
        params.temperature = 0;
    say_verbose(r->common,
                "sampler: repetition penalty %g over %d, temperature %g, top-k %d, top-p %g, "
                "min-p %g, draw",
                params.repeat_penalty, params.repeat_last_n, params.temperature, params.top_k,
                params.top_p, params.min_p);
    const struct sampler_sizes sizes = {r->checkpoint.model->config.n_vocab, n_ctx, 1, 1};
    return sampler_create(&params, &sizes, out, e);
}

static enum status generate_samples(const struct generate_options *o, struct runtime *r, int n_ctx,
                                    struct generation *g, struct err *e)
{
    TRY(create_sampler(o, r, n_ctx, &g->sampler, e));
    TRY(runtime_start(r, n_ctx, "-c N", e));
    g->session = r->session;
    TRY(generate_create(g, e));
    TRY(generate_run(g, e));
    generate_report(g, r, o->seed.value);
    return g->end == END_INTERRUPTED ? STATUS_INTERRUPTED : STATUS_OK;
}

static enum status generate_from(const void *values, struct runtime *r, struct text prompt,
                                 struct err *e)
{
    const struct generate_options *o = values;
    const struct tokenizer *t = r->checkpoint.tokenizer;
    const struct config *config = &r->checkpoint.model->config;
    const int n_vocab = config->n_vocab;
    /* An empty prompt starts from BOS, or else from a newline. */
    const bool empty = prompt.len == 0, has_bos = tokenizer_bos(t) >= 0;
    TRY(tokens_that_fit("the prompt", t, empty && !has_bos ? text_of("\n") : prompt,
                        empty ? has_bos : tokenizer_adds_bos(t), config->n_ctx, &r->tokens,
                        &r->n_tokens, e));
    int n_ctx;
    TRY(choose_context(o, config, r->n_tokens, &n_ctx, e));
    struct generation g = {.out = r->inv->out,
                           .tokenizer = t,
                           .prompt = prompt,
                           .tokens = r->tokens,
                           .n_tokens = (int)r->n_tokens,
                           .n_vocab = n_vocab,
                           .n = o->n,
                           .n_samples = o->samples,
                           .seed = o->seed.value,
                           .echo = !o->no_echo,
                           .ignore_eos = o->ignore_eos,
                           .records = o->logprobs > 0,
                           .n_top = o->logprobs < n_vocab ? o->logprobs : n_vocab,
                           .stops = o->stops.items,
                           .n_stops = o->stops.n};
    const enum status s = generate_samples(o, r, n_ctx, &g, e);
    generate_free(&g);
    return s;
}

static enum status run_generate(const struct invocation *inv, const void *values, struct err *e)
{
    struct generate_options chosen = *(const struct generate_options *)values;
    const struct generate_options *o = &chosen;
    TRY(check_generate_options(o, e));
    /* One seed for the text and for random heads, so that it replays both. */
    TRY(runtime_seed(&o->seed, &chosen.seed.value, e));
    chosen.engine.variant.seed = (struct option_u64){chosen.seed.value, true};
    struct runtime r = {.inv = inv, .common = &o->common, .engine = &o->engine};
    return runtime_run(&r, &o->input, generate_from, o, e);
}

const struct command command_generate = {
    .name = "generate",
    .summary = "continue a text from a checkpoint",
    .usage = "MODEL [-p TEXT | -f FILE | -f -] [options]",
    .notes = "Prints the prompt and its continuation. Without a prompt it starts from the\n"
             "checkpoint's begin-of-text token, or else from a newline. The same checkpoint,\n"
             "prompt, options and seed give the same text for any number of threads.\n"
             "The sampler's order: repetition penalty, temperature, top-k, top-p, min-p, draw.\n",
    .spec = {.groups = {{"Text", input_options, offsetof(VALUES, input)},
                        {"Continuation", text_options, 0},
                        {"Sampling", sampler_options, 0},
                        {"Engine", engine_options, offsetof(VALUES, engine)},
                        {"Variant", variant_options, offsetof(VALUES, engine.variant)},
                        COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_generate,
};
