#include "cli/runtime.h"
#include "model/checkpoint.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/numbers.h"
#include "cli/signals.h"
#include "engine/autothreads.h"
#include "model/kv_cache.h"
#include "show/figures.h"

/* More text than this is refused before it is read: no context holds it. */
#define INPUT_MAX ((size_t)256 << 20)
/* The tokens of a shorter text are made, to say how many they are. */
#define LONG_TEXT ((size_t)1 << 20)
/* A larger cache is announced even without -v. */
#define LARGE_CACHE ((size_t)1 << 30)
/* Bytes of a line said on standard error: a path as long as they can be, and a sentence. */
#define SAY_MAX 5120

const char *const kv_type_names[] = {"f32", "f16", "q8_0", NULL};

enum storage kv_type_storage(int kv_type)
{
    static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    return storages[kv_type];
}

const struct option common_options[] = {
    {.kind = OPTION_STRING,
     .name = "model",
     .letter = 'm',
     .offset = offsetof(struct common_options, model),
     .value = "FILE",
     .help = "the checkpoint, instead of the first argument"},
    {.kind = OPTION_FLAG,
     .name = "quiet",
     .letter = 'q',
     .offset = offsetof(struct common_options, quiet),
     .help = "nothing on standard error but errors"},
    {.kind = OPTION_FLAG,
     .name = "verbose",
     .letter = 'v',
     .offset = offsetof(struct common_options, verbose),
     .help = "also memory plan, threads, instruction set"},
    {.kind = OPTION_END},
};

const struct option engine_options[] = {
    THREADS_OPTION(struct engine_options, threads),
    {.kind = OPTION_CHOICE,
     .name = "kv-type",
     .offset = offsetof(struct engine_options, kv_type),
     .value = "TYPE",
     .fallback = "f32",
     .choices = kv_type_names,
     .help = "how keys and values are cached"},
    {.kind = OPTION_INT,
     .name = "block",
     .offset = offsetof(struct engine_options, block),
     .value = "N",
     .min = 1,
     .max = 4096,
     .otherwise = "chosen",
     .help = "tokens taken at once in prefill; all give the same result"},
    {.kind = OPTION_END},
};

const struct option input_options[] = {
    {.kind = OPTION_STRING,
     .name = "prompt",
     .letter = 'p',
     .offset = offsetof(struct input_options, prompt),
     .value = "TEXT",
     .help = "the text"},
    {.kind = OPTION_STRING,
     .name = "file",
     .letter = 'f',
     .offset = offsetof(struct input_options, file),
     .value = "FILE",
     .help = "read the text from a file; - is standard input"},
    {.kind = OPTION_END},
};

enum status common_model_path(const struct common_options *c, const char **path, struct err *e)
{
    if (c->positional && c->model)
        return err_set(e, STATUS_USAGE,
                       "two checkpoints are named, '%.60s' and (with -m) '%.60s'; expected one",
                       c->positional, c->model);
    *path = c->positional ? c->positional : c->model;
    if (!*path)
        return err_set(e, STATUS_USAGE, "no checkpoint is named; expected MODEL or -m FILE");
    return STATUS_OK;
}

/* Of the first len bytes of path, or the working directory. No system has longer paths. */
static bool stat_folder(const char *path, size_t len, struct stat *st)
{
    char folder[PATH_MAX] = ".";
    if (len >= sizeof folder)
        return false;
    if (len > 0) {
        memcpy(folder, path, len);
        folder[len] = 0;
    }
    return stat(folder, st) == 0;
}

static bool same_folder(const char *a, size_t a_len, const char *b, size_t b_len)
{
    struct stat x, y;
    return stat_folder(a, a_len, &x) && stat_folder(b, b_len, &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

#define MAX_LINKS 40 /* what Linux follows */

/* What the links at the path's end lead to, though nothing may be there; false: too far. */
static bool follow_links(const char *path, char out[PATH_MAX])
{
    if (strlen(path) >= PATH_MAX)
        return false;
    strcpy(out, path);
    for (int links = 0; links <= MAX_LINKS; links++) {
        char to[PATH_MAX];
        const ssize_t n = readlink(out, to, sizeof to - 1);
        if (n < 0)
            return true; /* no link, or nothing */
        to[n] = 0;
        const char *slash = strrchr(out, '/');
        const size_t folder = to[0] == '/' || !slash ? 0 : (size_t)(slash - out) + 1;
        if (folder + (size_t)n >= PATH_MAX)
            return false;
        memcpy(out + folder, to, (size_t)n + 1);
    }
    return false;
}

bool output_path_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool a_is = stat(a, &x) == 0, b_is = stat(b, &y) == 0;
    if (a_is && b_is)
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    if (a_is || b_is)
        return false;
    char a_end[PATH_MAX], b_end[PATH_MAX];
    if (!follow_links(a, a_end) || !follow_links(b, b_end))
        return false;
    a = a_end;
    b = b_end;
    const char *a_slash = strrchr(a, '/'), *b_slash = strrchr(b, '/');
    const char *a_name = a_slash ? a_slash + 1 : a, *b_name = b_slash ? b_slash + 1 : b;
    return strcmp(a_name, b_name) == 0 &&
           same_folder(a, (size_t)(a_name - a), b, (size_t)(b_name - b));
}

enum status output_path_spares(const char *option, const char *path, const char *input,
                               const char *what, struct err *e)
{
    if (input && output_path_same(path, input))
        return err_set(e, STATUS_USAGE, "%s: '%.200s' is %s itself, which would be overwritten",
                       option, path, what);
    return STATUS_OK;
}

enum status output_path_check(const char *option, const char *path, const char *model,
                              struct err *e)
{
    return output_path_spares(option, path, model, "the checkpoint", e);
}

enum status output_path_new(const char *path, const char *model, bool force, struct err *e)
{
    struct stat st;
    if (!path || !path[0])
        return err_set(e, STATUS_USAGE, "no output is named; expected -o OUT");
    const enum status s = output_path_check("-o", path, model, e);
    if (s == STATUS_OK && !force && lstat(path, &st) == 0)
        return err_set(e, STATUS_USAGE, "-o: '%.200s' exists; --force replaces it", path);
    return s;
}

enum status runtime_seed(const struct option_u64 *given, uint64_t *seed, struct err *e)
{
    *seed = given->value;
    if (!given->given && getentropy(seed, sizeof *seed) != 0)
        return err_set(e, STATUS_FAILED, "the system gives no random seed; give one with --seed");
    return STATUS_OK;
}

enum status input_read(const struct input_options *in, char **text, size_t *len, bool *given,
                       struct err *e)
{
    *text = NULL;
    *given = in->prompt || in->file;
    if (in->prompt && in->file)
        return err_set(e, STATUS_USAGE, "-p and -f both give the text; expected one of them");
    if (in->file)
        return file_read_all(in->file, INPUT_MAX, text, len, e);
    *len = in->prompt ? strlen(in->prompt) : 0;
    *text = malloc(*len + 1);
    if (!*text)
        return err_no_memory(e, "the text", *len + 1);
    memcpy(*text, in->prompt ? in->prompt : "", *len + 1);
    return STATUS_OK;
}

enum status tokens_of_text(const struct tokenizer *t, struct text text, bool bos, int32_t **ids,
                           size_t *n, struct err *e)
{
    *ids = NULL;
    int32_t *list;
    size_t len;
    const enum status s = tokenizer_encode(t, text, &list, &len, e);
    if (s != STATUS_OK)
        return s;
    if (bos) {
        int32_t *longer = realloc(list, (len + 1) * sizeof *list);
        if (!longer) {
            free(list);
            return err_no_memory(e, "the text's tokens", (len + 1) * sizeof *list);
        }
        memmove(longer + 1, longer, len * sizeof *longer);
        longer[0] = tokenizer_bos(t);
        list = longer;
        len++;
    }
    *ids = list;
    *n = len;
    return STATUS_OK;
}

size_t longest_token(const struct tokenizer *t)
{
    size_t longest = 0;
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        const size_t len = tokenizer_bytes(t, id).len;
        longest = len > longest ? len : longest;
    }
    return longest;
}

enum status text_may_fit(const char *what, const struct tokenizer *t, size_t len, int n_ctx,
                         struct err *e)
{
    const size_t longest = longest_token(t), least = len / longest + (len % longest != 0);
    if (len >= LONG_TEXT && least > (size_t)n_ctx)
        return err_set(e, STATUS_USAGE,
                       "%s has at least %zu tokens (%zu bytes), the context only %d", what, least,
                       len, n_ctx);
    return STATUS_OK;
}

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

enum status runtime_threads(const struct common_options *c, const char *flag, int *out,
                            bool *is_auto, struct err *e)
{
    const char *source = flag ? "-t" : "DECODE_THREADS";
    const char *text = flag ? flag : environment("DECODE_THREADS");
    const int usable = cpus_usable();
    int wanted = usable < POOL_MAX_THREADS ? usable : POOL_MAX_THREADS;
    const bool chosen = text && strcmp(text, "auto") != 0;
    if (is_auto)
        *is_auto = !chosen;
    if (chosen && !parse_int(text, 1, POOL_MAX_THREADS, &wanted))
        return err_set(e, STATUS_USAGE,
                       "%s: expected auto or an integer from 1 to %d, found '%.60s'", source,
                       POOL_MAX_THREADS, text);
    *out = wanted < usable ? wanted : usable;
    if (*out < wanted)
        say_verbose(c, "threads: %d, not %d (%s): this process has %d processors", *out, wanted,
                    source, usable);
    else
        say_verbose(c, "threads: %d (%s)", *out, chosen ? source : "auto");
    return STATUS_OK;
}

enum status runtime_pool(const struct common_options *c, int n_threads, struct pool **out,
                         struct err *e)
{
    const enum status s = pool_create(n_threads, out, e);
    if (s == STATUS_OK && pool_n_threads(*out) < n_threads)
        say(c, "only %d of %d threads could be started; results are the same, but later",
            pool_n_threads(*out), n_threads);
    return s;
}

enum status runtime_kernels(const struct common_options *c, const struct kernels **out,
                            struct err *e)
{
    const char *name = environment("DECODE_ISA");
    const enum status s = kernels_choose(name, out, e);
    if (s != STATUS_OK) {
        if (name)
            err_prefix(e, "DECODE_ISA");
        return s;
    }
    say_verbose(c, "instruction set: %s (%s)", (*out)->name,
                name ? "DECODE_ISA" : "the fastest here");
    return STATUS_OK;
}

static enum status start_threads(struct runtime *r, struct err *e)
{
    const enum status s = runtime_pool(r->common, r->n_threads, &r->pool, e);
    r->n_threads = pool_n_threads(r->pool);
    return s;
}

/* The model with other K/V heads than the file's. */
static enum status open_variant(struct runtime *r, const struct variant_options *v,
                                const char *path, unsigned parts, struct err *e)
{
    enum status s = checkpoint_open(path, parts & ~(unsigned)CHECKPOINT_MODEL, &r->checkpoint, e);
    if (s == STATUS_OK)
        s = start_threads(r, e);
    uint64_t seed = 0;
    if (s == STATUS_OK && v->method == CONVERT_RANDOM) {
        s = runtime_seed(&v->seed, &seed, e);
        say(r->common, "seed %llu", (unsigned long long)seed);
    }
    if (s != STATUS_OK)
        return s;
    const struct variant_source source = {.common = r->common,
                                          .path = path,
                                          .checkpoint = &r->checkpoint,
                                          .kernels = r->kernels,
                                          .pool = r->pool,
                                          .seed = seed};
    return variant_load(v, &source, &r->checkpoint.model, e);
}

enum status runtime_open(struct runtime *r, const struct invocation *inv,
                         const struct common_options *common, const struct engine_options *engine,
                         unsigned parts, struct err *e)
{
    *r = (struct runtime){.inv = inv, .common = common};
    const char *path = NULL;
    enum status s = common_model_path(common, &path, e);
    if (s == STATUS_OK)
        s = runtime_threads(common, engine->threads, &r->n_threads, &r->threads_are_auto, e);
    if (s == STATUS_OK)
        s = runtime_kernels(common, &r->kernels, e);
    if (s != STATUS_OK)
        return s;
    signals_mapping(path);
    const struct variant_options *v = &engine->variant;
    if (v->kv_heads > 0 && parts & CHECKPOINT_MODEL)
        return open_variant(r, v, path, parts, e);
    return checkpoint_open(path, parts, &r->checkpoint, e);
}

const char *kv_type_smaller(int kv_type)
{
    static const char *const advice[] = {"--kv-type f16", "--kv-type q8_0", NULL};
    return advice[kv_type];
}

/* "; -c N and --kv-type f16 lower the cache": what still can. */
static void describe_advice(char *out, size_t size, const char *option, const char *type)
{
    out[0] = 0;
    if (option && type)
        snprintf(out, size, "; %s and %s lower the cache", option, type);
    else if (option || type)
        snprintf(out, size, "; %s lowers the cache", option ? option : type);
}

static void print_plan(const struct runtime *r, const struct engine_options *engine, int n_ctx,
                       const struct session_memory *plan, const char *option)
{
    char advice[96];
    describe_advice(advice, sizeof advice, option, kv_type_smaller(engine->kv_type));
    const struct config *c = &r->checkpoint.model->config;
    const double per_token =
        (double)kv_cache_bytes_per_token(c, c->n_kv_heads, kv_type_storage(engine->kv_type));
    say(r->common, "memory: weights %s, KV cache %s (%d tokens of %s, %s), scratch %s%s",
        figure_bytes((double)r->checkpoint.model->weights.cap).text,
        figure_bytes((double)plan->kv_bytes).text, n_ctx, figure_bytes(per_token).text,
        kv_type_names[engine->kv_type], figure_bytes((double)plan->scratch_bytes).text, advice);
}

/* Goes on with one thread where more do not pay. */
static void lower_threads(struct runtime *r)
{
    if (!calibrate_prefers_one_thread(r->session, r->pool))
        return;
    session_set_pool(r->session, NULL);
    pool_free(r->pool);
    r->pool = NULL;
    say_verbose(r->common, "threads: 1, as %d are slower for this model here", r->n_threads);
    r->n_threads = 1;
}

enum status runtime_start(struct runtime *r, const struct engine_options *engine, int n_ctx,
                          const char *option, struct err *e)
{
    const struct session_params params = {.n_ctx = n_ctx,
                                          .kv_storage = kv_type_storage(engine->kv_type),
                                          .block = engine->block,
                                          .kernels = r->kernels};
    struct session_memory plan;
    enum status s = session_plan(r->checkpoint.model, &params, r->n_threads, &plan, e);
    if (s != STATUS_OK)
        return s;
    if (r->common->verbose || plan.kv_bytes > LARGE_CACHE)
        print_plan(r, engine, n_ctx, &plan, option);
    if (!r->pool)
        s = start_threads(r, e);
    if (s == STATUS_OK)
        s = session_create(r->checkpoint.model, &params, r->pool, &r->session, e);
    if (s == STATUS_OK && r->threads_are_auto)
        lower_threads(r);
    return s;
}

void runtime_close(struct runtime *r)
{
    session_free(r->session);
    pool_free(r->pool);
    checkpoint_close(&r->checkpoint);
    r->session = NULL;
    r->pool = NULL;
}

static void say_line(const char *format, va_list args)
{
    char line[SAY_MAX];
    vsnprintf(line, sizeof line, format, args);
    utf8_strip(line);
    fprintf(stderr, "decode: %s\n", line);
}

void say(const struct common_options *c, const char *format, ...)
{
    if (c->quiet)
        return;
    va_list args;
    va_start(args, format);
    say_line(format, args);
    va_end(args);
}

void say_verbose(const struct common_options *c, const char *format, ...)
{
    if (c->quiet || !c->verbose)
        return;
    va_list args;
    va_start(args, format);
    say_line(format, args);
    va_end(args);
}
