#include "cli/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/limits.h"
#include "cli/head_choice.h"
#include "cli/numbers.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "engine/session.h"
#include "gguf/blocks.h"
#include "model/kv_cache.h"

/* Of what is available. */
#define AVAILABLE_SHARE 0.9

/* The largest first. */
const char *const kv_type_names[] = {"f32", "f16", "q8_0", NULL};

const enum storage kv_type_storage[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
const char *const kv_type_advice[] = {"--kv-type f16", "--kv-type q8_0", ""};

#define VALUES struct engine_options
const struct option engine_options[] = {
    OPT_THREADS(THREADS_HELP),
    OPT_CHOICE("kv-type", kv_type, "TYPE", kv_type_names, "how keys and values are cached",
               .fallback = "f32"),
    OPT_INT("block", block, "N", 1, 4096,
            "tokens taken at once in prefill; all give the same result", .otherwise = "chosen"),
    OPT_STRING("without", without, "L.H,...", WITHOUT_HELP),
    OPT_END,
};

enum status runtime_seed(const struct option_u64 *given, uint64_t *seed, struct err *e)
{
    *seed = given->value;
    if (!given->given && getentropy(seed, sizeof *seed) != 0)
        return err_set(e, STATUS_FAILED, "the system gives no random seed; give one with --seed");
    return STATUS_OK;
}

enum status runtime_weight_type(const char *name, uint32_t *out, struct err *e)
{
    if (!name)
        return err_set(e, STATUS_USAGE, "no weight type is named; expected --type %s",
                       names_joined(storage_names, " or ").text);
    const struct tensor_type_info *type = tensor_type_named(text_of(name));
    if (!type || !blocks_runs(type->type))
        return err_set(e, STATUS_USAGE, "--type: expected one of %s, found '%.60s'",
                       names_joined(storage_names, ", ").text, name);
    *out = type->type;
    return STATUS_OK;
}

/* The number of threads; *is_auto: nobody named a number. */
static enum status choose_threads(const struct common_options *c, const char *flag, int *out,
                                  bool *is_auto, struct err *e)
{
    const char *source = flag ? "-t" : "DECODE_THREADS";
    const char *text = flag ? flag : environment("DECODE_THREADS");
    const int usable = cpus_usable();
    int wanted = usable < POOL_MAX_THREADS ? usable : POOL_MAX_THREADS;
    *is_auto = !text || strcmp(text, "auto") == 0;
    if (!*is_auto && !parse_int(text, 1, POOL_MAX_THREADS, &wanted))
        return err_set(e, STATUS_USAGE,
                       "%s: expected auto or an integer from 1 to %d, found '%.60s'", source,
                       POOL_MAX_THREADS, text);
    *out = wanted < usable ? wanted : usable;
    if (*out < wanted)
        say_verbose(c, "threads: %d, not %d (%s): this process has %d processors", *out, wanted,
                    source, usable);
    else
        say_verbose(c, "threads: %d (%s)", *out, *is_auto ? "auto" : source);
    return STATUS_OK;
}

static enum status start_pool(const struct common_options *c, int n_threads, struct pool **out,
                              struct err *e)
{
    TRY(pool_create(n_threads, out, e));
    if (pool_n_threads(*out) < n_threads)
        say(c, "only %d of %d threads could be started; results are the same, but later",
            pool_n_threads(*out), n_threads);
    return STATUS_OK;
}

enum status runtime_kernels(const struct common_options *c, const struct kernels **out,
                            struct err *e)
{
    const char *name = environment("DECODE_ISA");
    const enum status s = kernels_choose(name, out, e);
    if (s == STATUS_OK)
        say_verbose(c, "instruction set: %s (%s)", (*out)->name,
                    name ? "DECODE_ISA" : "the fastest here");
    else if (name)
        err_prefix(e, "DECODE_ISA");
    return s;
}

enum status runtime_workers(const struct common_options *c, const char *flag,
                            const struct kernels **kernels, struct pool **pool, struct err *e)
{
    int n_threads;
    bool is_auto;
    TRY(choose_threads(c, flag, &n_threads, &is_auto, e));
    if (kernels)
        TRY(runtime_kernels(c, kernels, e));
    return start_pool(c, n_threads, pool, e);
}

enum status runtime_read_tokens(struct runtime *r, const char *ids, struct text text,
                                const char *purpose, struct err *e)
{
    const struct tokenizer *t = r->checkpoint.tokenizer;
    const struct config *c = &r->checkpoint.model->config;
    if (ids)
        TRY(parse_ids("--tokens", ids, c->n_vocab, &r->tokens, &r->n_tokens, e));
    else
        TRY(tokens_that_fit("the text", t, text, tokenizer_adds_bos(t), c->n_ctx, &r->tokens,
                            &r->n_tokens, e));
    if (r->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "there is no token to %s: the text is empty", purpose);
    if (r->n_tokens > (size_t)c->n_ctx)
        return err_set(e, STATUS_USAGE, "the text has %zu tokens, the checkpoint's context only %d",
                       r->n_tokens, c->n_ctx);
    return STATUS_OK;
}

enum status runtime_start_threads(struct runtime *r, struct err *e)
{
    if (!r->pool)
        TRY(start_pool(r->common, r->n_threads, &r->pool, e));
    r->n_threads = pool_n_threads(r->pool);
    return STATUS_OK;
}

/* The model with other K/V heads than the file's. */
static enum status open_variant(struct runtime *r, const char *path, unsigned parts, struct err *e)
{
    const struct variant_options *v = &r->engine->variant;
    struct variant_source source = {
        .common = r->common, .path = path, .checkpoint = &r->checkpoint, .kernels = r->kernels};
    TRY(common_open(path, parts & ~(unsigned)CHECKPOINT_MODEL, &r->checkpoint, e));
    TRY(runtime_start_threads(r, e));
    source.pool = r->pool;
    if (v->method == CONVERT_RANDOM) {
        TRY(runtime_seed(&v->seed, &source.seed, e));
        say(r->common, "seed %llu", (unsigned long long)source.seed);
    }
    return variant_load(v, &source, &r->checkpoint.model, e);
}

/* The heads of --without, among those of the model that was opened. */
static enum status find_without(struct runtime *r, struct err *e)
{
    if (!r->engine->without)
        return STATUS_OK;
    TRY(heads_of_option("--without", r->engine->without, &r->checkpoint.model->config, &r->off, e));
    r->without.off = r->off;
    return STATUS_OK;
}

/* -t, DECODE_THREADS and DECODE_ISA are checked before the checkpoint is opened. */
static enum status open_runtime(struct runtime *r, const char *path, struct err *e)
{
    const unsigned parts = CHECKPOINT_MODEL | r->parts;
    TRY(choose_threads(r->common, r->engine->threads, &r->n_threads, &r->threads_are_auto, e));
    TRY(runtime_kernels(r->common, &r->kernels, e));
    if (variant_is_wanted(&r->engine->variant))
        TRY(open_variant(r, path, parts, e));
    else
        TRY(common_open(path, parts, &r->checkpoint, e));
    return find_without(r, e);
}

struct session_params runtime_session_params(const struct runtime *r)
{
    return (struct session_params){.kv_storage = kv_type_storage[r->engine->kv_type],
                                   .block = r->engine->block,
                                   .kernels = r->kernels,
                                   .without = r->without.off ? &r->without : NULL};
}

static struct session_params params_of(const struct runtime *r, const struct session_wanted *w)
{
    struct session_params p = runtime_session_params(r);
    p.n_sequences = w->n_sequences;
    p.n_ctx = w->n_ctx;
    p.n_shared = w->n_shared;
    return p;
}

/* What lowers the cache, "; A and B lower the cache"; "" if nothing does. */
struct cache_advice {
    char text[96];
};

static struct cache_advice advise(const struct runtime *r, const char *option)
{
    struct cache_advice advice = {""};
    const char *type = kv_type_advice[r->engine->kv_type];
    if (option && type[0])
        snprintf(advice.text, sizeof advice.text, "; %s and %s lower the cache", option, type);
    else if (option || type[0])
        snprintf(advice.text, sizeof advice.text, "; %s lowers the cache", option ? option : type);
    return advice;
}

static void print_plan(const struct runtime *r, const struct session_wanted *w,
                       const struct session_memory *plan)
{
    const int kv_type = r->engine->kv_type;
    const struct config *c = &r->checkpoint.model->config;
    const double per_token =
        (double)kv_cache_bytes_per_token(c, c->n_kv_heads, kv_type_storage[kv_type]);
    char sequences[40] = "";
    if (w->n_sequences > 1)
        snprintf(sequences, sizeof sequences, "%d sequences of ", w->n_sequences);
    say(r->common, "memory: weights %s, KV cache %s (%s%d tokens of %s, %s), scratch %s%s",
        figure_bytes((double)r->checkpoint.model->weights.cap).text,
        figure_bytes((double)plan->kv_bytes).text, sequences, w->n_ctx,
        figure_bytes(per_token).text, kv_type_names[kv_type],
        figure_bytes((double)plan->scratch_bytes).text, advise(r, w->option).text);
}

/* All that the session and the command take. */
static enum status bytes_wanted(const struct runtime *r, const struct session_wanted *w,
                                double *bytes, struct err *e)
{
    const struct session_params params = params_of(r, w);
    struct session_memory plan;
    TRY(session_plan(r->checkpoint.model, &params, r->n_threads, &plan, e));
    *bytes = (double)plan.kv_bytes + (double)plan.scratch_bytes +
             (double)w->more_bytes * (w->n_sequences > 0 ? w->n_sequences : 1);
    return STATUS_OK;
}

double runtime_spare_bytes(void)
{
    return (double)available_memory() * AVAILABLE_SHARE;
}

enum status runtime_fitting(const struct runtime *r, const struct session_wanted *w, int most,
                            int *fitting, struct err *e)
{
    const double available = runtime_spare_bytes();
    struct session_wanted try = *w;
    double bytes;
    int low = 0, high = most;
    try.n_sequences = 1;
    TRY(bytes_wanted(r, &try, &bytes, e));
    while (low < high) {
        try.n_sequences = low + (high - low + 1) / 2;
        if (bytes_wanted(r, &try, &bytes, NULL) == STATUS_OK && bytes <= available)
            low = try.n_sequences;
        else
            high = try.n_sequences - 1;
    }
    *fitting = low;
    return STATUS_OK;
}

enum status runtime_check_memory(const struct runtime *r, const struct session_wanted *w,
                                 const char *option, struct err *e)
{
    int fitting;
    double bytes;
    TRY(bytes_wanted(r, w, &bytes, e));
    TRY(runtime_fitting(r, w, w->n_sequences, &fitting, e));
    if (fitting == w->n_sequences)
        return STATUS_OK;
    return err_set(
        e, STATUS_NO_MEMORY,
        "out of memory: %d sequences need %s, %s are available, %d would fit: lower %s%s",
        w->n_sequences, figure_bytes(bytes).text, figure_bytes((double)available_memory()).text,
        fitting, option, advise(r, w->option).text);
}

/* Goes on with one thread where more do not pay. */
static void lower_threads(struct runtime *r)
{
    session_set_pool(r->session, NULL);
    pool_free(r->pool);
    r->pool = NULL;
    say_verbose(r->common, "threads: 1, as %d are slower for this model here", r->n_threads);
    r->n_threads = 1;
}

enum status runtime_start(struct runtime *r, const struct session_wanted *w, struct err *e)
{
    const struct session_params params = params_of(r, w);
    struct session_memory plan;
    TRY(session_plan(r->checkpoint.model, &params, r->n_threads, &plan, e));
    if (says_memory(r->common, plan.kv_bytes))
        print_plan(r, w, &plan);
    TRY(runtime_start_threads(r, e));
    TRY(session_create(r->checkpoint.model, &params, r->pool, &r->session, e));
    const int rows = w->n_sequences > 0 ? w->n_sequences : 1;
    if (r->threads_are_auto && session_prefers_one_thread(r->session, rows))
        lower_threads(r);
    return STATUS_OK;
}

enum status runtime_run(struct runtime *r, const struct input_options *input, runtime_work *work,
                        const void *values, struct err *e)
{
    char *text;
    size_t len;
    const char *path;
    TRY(common_model_path(r->common, &path, e));
    TRY(input_read(input, r->common, &text, &len, e));
    signals_defer();
    enum status s = open_runtime(r, path, e);
    if (s == STATUS_OK)
        s = work(values, r, (struct text){text, len}, e);
    session_free(r->session);
    pool_free(r->pool);
    checkpoint_close(&r->checkpoint);
    checkpoint_close(&r->other);
    free(r->tokens);
    free(r->off);
    free(text);
    return s;
}
