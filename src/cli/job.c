#include "cli/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/rng.h"
#include "cli/paths.h"
#include "cli/signals.h"
#include "model/config_keys.h"
#include "model/kv_cache.h"
#include "model/pack.h"

/* What work may take of what is available, which is an estimate: others want some. */
#define AVAILABLE_SHARE 0.9
/* Longer names of folders are not looked into. */
#define FOLDER_MAX 300
/* Memory beyond this is announced even without -v. */
#define LARGE_MEMORY ((uint64_t)1 << 30)

/* --- the help of a command ------------------------------------------------------------------- */

void help_set_width(struct output *out)
{
    if (out->columns == 0 && environment("COLUMNS"))
        out->columns = terminal_width(STDOUT_FILENO);
}

void command_print_help(const struct command *c, bool all, struct output *out)
{
    help_set_width(out);
    struct paragraph p = paragraph_begin(out, sizeof "usage: " - 1);
    paragraph_printf(&p, "usage: decode %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    paragraph_end(&p);
    output_puts(out, "Examples:\n");
    for (const char *line = c->examples; *line; line += strcspn(line, "\n") + 1)
        output_printf(out, "  %.*s\n", (int)strcspn(line, "\n"), line); /* never broken */
    output_puts(out, "\n");
    options_help(&c->spec, all, out);
    const bool is_short = c->spec.everyday && !all;
    p = paragraph_begin(out, 0);
    paragraph_puts(&p, "\nOf all commands: decode help.");
    if (is_short)
        paragraph_printf(&p, " All of this one: decode help %s --all.", c->name);
    paragraph_end(&p);
    if (c->notes && !is_short) {
        output_puts(out, "\n");
        paragraph_reflow(out, c->notes, 0);
    }
}

/* --- threads, kernels, checkpoints ----------------------------------------------------------- */

enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e)
{
    const char *name = environment("DECODE_ISA");
    TRY(err_in(e, kernels_choose(name, out, e), "DECODE_ISA"));
    say_verbose(c, "instruction set: %s (%s)", (*out)->name,
                name ? "DECODE_ISA" : "the fastest here");
    return STATUS_OK;
}

enum status job_start_threads(struct job *j, struct err *e)
{
    if (j->pool)
        return STATUS_OK;
    TRY(pool_create(j->n_threads, &j->pool, e));
    if (pool_n_threads(j->pool) < j->n_threads)
        say(j->common, "only %d of %d threads could be started; results are the same, but later",
            pool_n_threads(j->pool), j->n_threads);
    j->n_threads = pool_n_threads(j->pool);
    return STATUS_OK;
}

enum status job_blame(const char *path, enum status s, struct err *e)
{
    if (s == STATUS_BAD_FILE)
        err_prefix(e, path);
    return s;
}

/* Copies the first len bytes of a folder's path without the slashes at its end; an empty one is the
 * current folder's. */
static void copy_folder(char *to, size_t size, const char *path, size_t len)
{
    while (len > 1 && path[len - 1] == '/')
        len--;
    snprintf(to, size, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
}

/* Whether it is one of Hugging Face's. */
static bool has_config(const char *folder)
{
    char path[FOLDER_MAX + sizeof "/config.json"];
    chars_printf(path, "%s/config.json", folder);
    return access(path, F_OK) == 0;
}

/* STATUS_BAD_FILE, saying what stands at `path`, and the command line that makes a GGUF file of
 * `in`, whose name without this end is the file's. */
static enum status name_import(const char *path, const char *what, const char *in, const char *end,
                               struct err *e)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    const char *name = path_name(in);
    size_t len = strlen(name) - strlen(end);
    if (len == 0 || str_is(name, ".") || str_is(name, "..")) {
        name = "model";
        len = strlen(name);
    }
    /* A shell takes other characters in quotes; a name with a quote of its own is its user's. */
    const char *quote = in[strspn(in, plain)] && !strchr(in, '\'') ? "'" : "";
    return err_bad_file(e,
                        "%.100s: %s, and decode reads GGUF; make one with: scripts/import.py "
                        "%s%s%s %s%.*s.gguf%s",
                        path, what, quote, in, quote, quote, (int)len, name, quote);
}

/* Refuses a file whose name ends as those of other programs' checkpoints, and says which script
 * imports it. STATUS_OK for other names. */
static enum status refuse_other_format(const char *path, struct err *e)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth"};
    char folder[FOLDER_MAX];
    for (int i = 0; i < LENGTH(ends); i++) {
        if (!text_ends_with(text_of(path), ends[i]))
            continue;
        copy_folder(folder, sizeof folder, path, path_name(path) - path);
        if (has_config(folder))
            return name_import(path, "a file of a Hugging Face folder", folder, "", e);
        return name_import(path, "by its name a checkpoint of another program", path, ends[i], e);
    }
    return STATUS_OK;
}

enum status job_map(const char *path, struct file_map *out, struct err *e)
{
    char folder[FOLDER_MAX];
    struct stat st;
    *out = (struct file_map){0};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        copy_folder(folder, sizeof folder, path, strlen(path));
        if (has_config(folder))
            return name_import(path, "a Hugging Face folder", folder, "", e);
    }
    TRY(file_map_open(out, path, e));
    if (text_starts_with(text_span((const char *)out->data, out->len), "GGUF"))
        return STATUS_OK;
    const enum status s = refuse_other_format(path, e);
    if (s != STATUS_OK)
        file_map_close(out);
    return s;
}

enum status job_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e)
{
    const unsigned texts = JOB_TOKENIZES & ~CHECKPOINT_TOKENIZER;
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(job_map(path, &file, e));
    TRY(checkpoint_take(&file, path, parts & ~texts, c, e));
    if (!(parts & texts))
        return STATUS_OK;
    const enum status s = err_in(e, tokenizer_reads_text(c->tokenizer, e), "%s", path);
    if (s != STATUS_OK)
        checkpoint_close(c);
    return s;
}

enum status job_config(const char *path, const struct checkpoint *c, struct config *config,
                       struct err *e)
{
    return err_in(e, config_read(c->gguf, config, e), "%s", path);
}

/* --- the run --------------------------------------------------------------------------------- */

/* Never more threads than the process has processors: they would wait for each other. */
static enum status choose_threads(struct job *j, struct err *e)
{
    const char *flag = j->common->threads;
    const char *source = flag ? "-t" : "DECODE_THREADS";
    const char *text = flag ? flag : environment("DECODE_THREADS");
    const int usable = cpus_usable();
    int wanted = MIN(usable, POOL_MAX_THREADS);
    j->threads_are_auto = !text || str_is(text, "auto");
    if (!j->threads_are_auto && !parse_int(text, 1, POOL_MAX_THREADS, &wanted)) {
        /* In some programs -t is the temperature. */
        double number;
        const bool is_share = flag && strchr(text, '.') && parse_double(text, &number);
        return err_usage(e, "%s: expected auto or an integer from 1 to %d, found '%.60s'%s", source,
                         POOL_MAX_THREADS, text,
                         is_share && options_have(&j->command->spec, "temp")
                             ? "; -t is the number of threads, --temp the temperature"
                             : "");
    }
    j->n_threads = MIN(wanted, usable);
    if (j->n_threads < wanted)
        say_verbose(j->common, "threads: %d, not %d (%s): this process has %d processors", usable,
                    wanted, source, usable);
    else
        say_verbose(j->common, "threads: %d (%s)", wanted, j->threads_are_auto ? "auto" : source);
    return STATUS_OK;
}

void job_warn_pretokenizer(const struct common_options *o, const char *path,
                           const struct tokenizer *t)
{
    if (t && tokenizer_assumes_pre(t))
        say(o,
            "warning: %s: tokenizer.ggml.pre is missing; text is cut as \"%s\" does it, which "
            "gives "
            "other ids than the model's if its own pre-tokenizer is another",
            path, tokenizer_pre(t));
}

void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type)
{
    const char *name;
    const int n = layout_odd_row(c, pack_type(type), &name);
    if (n > 0)
        say(o,
            "type %s: rows of %s = %d are no multiple of its blocks of %d; such matrices are f16",
            storage_name(type), name, n, QUANT_BLOCK);
}

/* Opens the checkpoint; its model with other K/V heads than the file's, if they are asked for. */
static enum status open_checkpoint(struct job *j, struct err *e)
{
    const struct common_options *o = j->common;
    const unsigned model = CHECKPOINT_MODEL;
    const bool other = (j->parts & model) && o->kv_heads;
    TRY(job_open(j->path, other ? j->parts & ~model : j->parts, &j->checkpoint, e));
    job_warn_pretokenizer(o, j->path, j->checkpoint.tokenizer);
    if (other) {
        TRY(job_start_threads(j, e));
        const struct variant_request q = job_variant(j);
        TRY(variant_load(&q, o, o->kv_heads, NULL, &j->checkpoint.model, e));
    }
    if (o->score_scale)
        TRY(config_needs_dot(&j->checkpoint.model->config, "--score-scale", e));
    if (o->score_scale)
        TRY(parse_score_scale(o->score_scale, &j->checkpoint.model->config.score_scale, e));
    if (o->without)
        TRY(heads_of_option("--without", o->without, &j->checkpoint.model->config, &j->off, e));
    j->without.off = j->off;
    return STATUS_OK;
}

/* What enum job_needs says, in its order. */
static enum status prepare(struct job *j, void *values, struct err *e)
{
    const struct command *c = j->command;
    struct common_options *o = j->common;
    /* Where -m names the checkpoint the only positional may be the second. */
    const struct option *second = &c->spec.positionals[1];
    const char **other = (const char **)((char *)values + second->offset);
    if (second->kind != OPTION_END && o->model && !*other && !o->file && !o->prompt) {
        *other = o->positional;
        o->positional = NULL;
    }
    const struct {
        const char *what, *word, *option, *value;
    } twice[] = {{"texts", o->positional_text, "--text", o->file},
                 {"checkpoints", o->positional, "-m", o->model},
                 {"texts", o->positional_text, "-p", o->prompt}};
    for (int i = 0; i < 3; i++)
        if (twice[i].word && twice[i].value)
            return err_usage(e, "two %s are named, '%.60s' and (with %s) '%.60s'; expected one",
                             twice[i].what, twice[i].word, twice[i].option, twice[i].value);
    o->file = o->file ? o->file : o->positional_text;
    j->path = o->positional ? o->positional : o->model;
    if (c->check)
        TRY(c->check(j, values, e));
    if ((j->needs & JOB_PATH) && !j->path)
        return err_usage(e, "no checkpoint is named; expected MODEL or -m FILE");
    if (j->needs & JOB_TEXT) {
        if (j->needs & JOB_PIPED)
            input_take_piped(o);
        if (c->no_text && !o->prompt && !o->file && !o->ids)
            return err_usage(e, "%s", c->no_text);
        if (o->ids)
            j->parts &= ~JOB_TOKENIZES;
        TRY(input_read(o, &j->text_bytes, &j->text, e));
    }
    if (j->needs & JOB_STOPS)
        signals_defer(); /* also because a probe's temporary file would stay */
    if (j->needs & JOB_OUT)
        TRY(path_new(o->out, true, e));
    TRY(paths_check(&c->spec, values, e));
    if (j->needs & JOB_OUT)
        TRY(path_new(o->out, o->force, e));
    if (j->needs & JOB_WORKERS) {
        TRY(choose_threads(j, e));
        TRY(job_choose_kernels(o, &j->kernels, e));
    }
    return j->needs & JOB_CHECKPOINT ? open_checkpoint(j, e) : STATUS_OK;
}

enum status job_run(const struct command *c, char **argv, struct output *out, uint64_t start_ns,
                    struct err *e)
{
    struct job j = {
        .command = c, .out = out, .start_ns = start_ns, .needs = c->needs, .parts = c->parts};
    bool help;
    void *values = array_zeroed(1, c->values_size, "the options", e);
    if (!values)
        return STATUS_NO_MEMORY;
    const struct common_options *o = j.common = values;
    enum status s = options_parse(&c->spec, argv, values, &help, e);
    if (s == STATUS_OK && help) {
        bool all = false;
        for (char **word = argv; *word; word++)
            all |= str_is(*word, "--all");
        command_print_help(c, all, out);
    } else if (s == STATUS_OK) {
        if (o->verbose)
            out->columns = 0; /* who wants more of everything wants whole tables, too */
        s = prepare(&j, values, e);
        if (s == STATUS_OK)
            s = c->run(&j, values, e);
        progress_end(&j.progress);
        if (s == STATUS_INTERRUPTED && (j.needs & JOB_OUT))
            say(o, "interrupted; %s is not written", o->out);
        else if (s == STATUS_INTERRUPTED && j.progress.unit && j.progress.all > 0)
            say(o, "interrupted after %" PRIu64 " of %" PRIu64 " %s", j.progress.done,
                j.progress.all, j.progress.unit);
    }
    session_free(j.session);
    pool_free(j.pool);
    checkpoint_close(&j.checkpoint);
    checkpoint_close(&j.other);
    free(j.tokens);
    free(j.off);
    free(j.text_bytes);
    options_free(&c->spec, values);
    free(values);
    return s;
}

/* --- what a command's run asks for ----------------------------------------------------------- */

struct progress *job_progress(struct job *j, const char *unit)
{
    progress_end(&j->progress);
    j->progress = progress_start(j->common, unit);
    return &j->progress;
}

struct callbacks job_callbacks(struct job *j, const char *unit)
{
    return (struct callbacks){progress_stop, progress_show, job_progress(j, unit)};
}

enum status table_print(const struct table *t, enum table_format format, struct output *out,
                        struct err *e)
{
    struct report r;
    const void *row;
    report_begin(&r, format, t->fields, t->n, out);
    if (t->row)
        for (int i = 0; (row = t->row(t->arg, i)) != NULL; i++)
            report_row(&r, row);
    for (int i = 0; i < t->n_rows; i++)
        report_row(&r, (const char *)t->rows + i * t->row_bytes);
    return report_end(&r, e);
}

enum status job_print(struct job *j, const struct table *t, struct err *e)
{
    progress_end(&j->progress);
    return table_print(t, j->common->format, j->out, e);
}

enum status job_tokenize(struct job *j, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    return tokens_of_text(t, j->text, tokenizer_adds_bos(t), &j->tokens, &j->n_tokens, e);
}

enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    const struct config *c = &j->checkpoint.model->config;
    if (j->common->ids)
        TRY(parse_ids("--tokens", j->common->ids, c->n_vocab, &j->tokens, &j->n_tokens, e));
    else
        TRY(tokens_that_fit("the text", t, j->text, tokenizer_adds_bos(t),
                            j->common->truncate ? INT_MAX : c->n_ctx, &j->tokens, &j->n_tokens, e));
    tokens_truncate(j->common, !j->common->ids && tokenizer_adds_bos(t), c->n_ctx, j->tokens,
                    &j->n_tokens);
    if (j->n_tokens == 0)
        return err_usage(e, "there is no token to %s: the text is empty", purpose);
    if (j->n_tokens > (size_t)c->n_ctx)
        return err_usage(e,
                         "the text has %zu tokens, the checkpoint's context only %d; "
                         "--truncate left|right leaves out a side",
                         j->n_tokens, c->n_ctx);
    return STATUS_OK;
}

struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k)
{
    return (struct eval_spec){.model = k->model,
                              .params = job_session_params(j),
                              .pool = j->pool,
                              .tokens = j->tokens,
                              .n_tokens = j->n_tokens,
                              .tokenizer = k->tokenizer};
}

struct variant_request job_variant(struct job *j)
{
    return (struct variant_request){.path = j->path,
                                    .checkpoint = &j->checkpoint,
                                    .kernels = j->kernels,
                                    .pool = j->pool,
                                    .callbacks = job_callbacks(j, "windows")};
}

enum status job_seed(struct job *j, struct err *e)
{
    if (j->common->seed.given) {
        j->seed = j->common->seed.value;
    } else if (!j->has_seed) {
        if (getentropy(&j->seed, sizeof j->seed) != 0)
            return err_failed(e, "the system gives no random seed; give one with --seed");
        j->seed %= RNG_EXACT_SEEDS;
    }
    j->has_seed = true;
    return STATUS_OK;
}

uint64_t job_out_bytes(const struct job *j)
{
    struct stat st;
    return stat(j->common->out, &st) == 0 ? st.st_size : 0;
}

/* --- memory and sessions --------------------------------------------------------------------- */

void job_say_memory(const struct job *j, const struct job_memory *m)
{
    const char *advice = m->advice && m->advice[0] ? m->advice : NULL;
    if (!j->common->verbose && m->cache + m->scratch <= LARGE_MEMORY)
        return;
    const struct figure cache = figure_bytes(m->cache);
    say(j->common, "memory: weights %s%s%s%s%s%s, scratch %s%s%s", figure_bytes(m->weights).text,
        m->cache ? ", KV cache " : "", m->cache ? cache.text : "", m->of ? " (" : "",
        m->of ? m->of : "", m->of ? ")" : "", figure_bytes(m->scratch).text, advice ? "; " : "",
        advice ? advice : "");
}

enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e)
{
    const double needed = (double)m->cache + m->scratch;
    const double spare = available_memory() * AVAILABLE_SHARE;
    if (needed > spare)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: %s need %s, %s are available; %s", what,
                       figure_bytes(needed).text, figure_bytes(spare).text, m->advice);
    job_say_memory(j, m);
    return STATUS_OK;
}

struct session_params job_session_params(const struct job *j)
{
    return (struct session_params){.kv_storage = kv_type_storage[j->common->kv_type],
                                   .block = j->common->block,
                                   .kernels = j->kernels,
                                   .without = j->without.off ? &j->without : NULL};
}

struct advice {
    char text[96];
};

/* "A and B lower the cache"; "" if nothing does. */
static struct advice advise(const struct job *j, const char *option)
{
    struct advice advice = {""};
    const char *smaller = kv_type_names[j->common->kv_type + 1];
    const bool both = option && smaller;
    if (option || smaller)
        chars_printf(advice.text, "%s%s%s%s lower%s the cache", option ? option : "",
                     both ? " and " : "", smaller ? "--kv-type " : "", smaller ? smaller : "",
                     both ? "" : "s");
    return advice;
}

enum status job_fit_sequences(const struct job *j, struct session_params *p,
                              const struct sequences_wanted *w, struct err *e)
{
    const double spare = available_memory() * AVAILABLE_SHARE;
    double needed = 0; /* by all */
    for (int n = w->n;; n--) {
        struct session_memory plan;
        p->n_sequences = n > 0 ? n : 1;
        TRY(session_plan(j->checkpoint.model, p, j->n_threads, &plan, e));
        const double bytes = (double)plan.kv_bytes + plan.scratch_bytes + (double)w->more_bytes * n;
        if (n == w->n)
            needed = bytes;
        if (n > 0 && bytes > spare)
            continue;
        if (n == w->n || !w->all)
            return STATUS_OK;
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %d sequences need %s, %s are available, %d would fit; %s",
                       w->n, figure_bytes(needed).text, figure_bytes(spare).text, n,
                       advise(j, w->option).text);
    }
}

enum status job_start_session(struct job *j, const struct session_params *p, const char *option,
                              struct err *e)
{
    const struct model *m = j->checkpoint.model;
    const int kv_type = j->common->kv_type;
    const uint64_t per_token =
        kv_cache_bytes_per_token(&m->config, m->config.n_kv_heads, kv_type_storage[kv_type]);
    struct session_memory plan;
    char sequences[40] = "", of[128];
    TRY(job_start_threads(j, e));
    TRY(session_plan(m, p, j->n_threads, &plan, e));
    if (p->n_sequences > 1)
        chars_printf(sequences, "%d sequences of ", p->n_sequences);
    chars_printf(of, "%s%d tokens of %s, %s", sequences, p->n_ctx, figure_bytes(per_token).text,
                 kv_type_names[kv_type]);
    job_say_memory(j, &(struct job_memory){.weights = m->weights.cap,
                                           .cache = plan.kv_bytes,
                                           .scratch = plan.scratch_bytes,
                                           .of = of,
                                           .advice = advise(j, option).text});
    TRY(session_create(m, p, j->pool, &j->session, e));
    const int rows = p->n_sequences > 0 ? p->n_sequences : 1;
    if (j->threads_are_auto && session_prefers_one_thread(j->session, rows)) {
        session_set_pool(j->session, NULL);
        pool_free(j->pool);
        j->pool = NULL;
        say_verbose(j->common, "threads: 1, as %d are slower for this model here", j->n_threads);
        j->n_threads = 1;
    }
    return STATUS_OK;
}
