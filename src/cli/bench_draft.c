#include "cli/bench_draft.h"

#include <math.h>
#include <stdlib.h>

#include "cli/columns.h"
#include "cli/generate_draft.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "measure/draft_bench.h"
#include "show/report.h"

/* Texts that share a step. */
#define MOST_BATCH 4096
/* Tokens of a prompt, if nobody says how many: no more than a quarter of the context. */
#define DEFAULT_PROMPT 64

#define VALUES struct bench_draft_options
const struct option bench_draft_options[] = {
    OPT_STRINGS("draft", drafts, "DRAFT",
                "instead: tokens a second without and with this draft (see decode help generate), "
                "in turns, on prompts out of --text; may be given more than once",
                .needs = "text", .reads = "the draft"),
    OPT_STRING("draft-n", tokens, "K|auto", "tokens to guess at once", .otherwise = "auto",
               .needs = "draft"),
    OPT_STRING("text", text, "FILE", "where the prompts for --draft are cut out", .needs = "draft",
               .reads = "the text"),
    OPT_DOUBLE("temp", temperature, "X", 0, HUGE_VAL,
               "temperature of the texts for --draft; 0 is greedy; top-k 40, top-p 0.95",
               .fallback = "0.8", .needs = "draft"),
    OPT_END,
};

static const struct report_field fields[] = {
    {"draft", "draft", MEMBER(draft_row, draft)},
    {"tokens_per_s", "tokens/s", MEMBER(draft_row, tokens_per_s), "%.1f"},
    {"speedup", "speed-up", MEMBER(draft_row, speedup), "%.3f"},
    {"speedup_min", "least", MEMBER(draft_row, speedup_min), "%.3f", .rank = 5},
    {"speedup_max", "most", MEMBER(draft_row, speedup_max), "%.3f", .rank = 5},
    {"predicted_speedup", "predicted", MEMBER(draft_row, predicted_speedup), "%.3f", .rank = 4},
    {"drafted", "drafted", MEMBER(draft_row, drafted), .rank = 7},
    {"accepted", "accepted", MEMBER(draft_row, accepted), .rank = 6},
    {"share", "share", MEMBER(draft_row, share), "%.3f", .rank = 3},
    {"tokens_per_step", "tokens a step", MEMBER(draft_row, tokens_per_step), "%.2f", .rank = 2},
    {"draft_seconds", NULL, MEMBER(draft_row, draft_seconds)},
    {"target_seconds", NULL, MEMBER(draft_row, target_seconds)},
};

/* --- one measurement ------------------------------------------------------------------------- */

/* What it takes, closed in every case. */
struct measuring {
    struct generate_draft *drafts; /* [options->drafts.n] */
    struct draft_way *ways;        /* [1 + as many] */
    struct draft_row *rows;        /* the same */
    struct sampler *sampler;
};

static enum status allocate(const struct bench_draft *b, struct measuring *m, struct err *e)
{
    const size_t n = (size_t)b->options->drafts.n;
    m->drafts = calloc(n, sizeof *m->drafts);
    m->ways = calloc(n + 1, sizeof *m->ways);
    m->rows = calloc(n + 1, sizeof *m->rows);
    return m->drafts && m->ways && m->rows ? STATUS_OK
                                           : err_no_memory(e, "the drafts", n * sizeof *m->drafts);
}

static void close_all(const struct bench_draft *b, struct measuring *m)
{
    for (int i = 0; m->drafts && i < b->options->drafts.n; i++)
        draft_close(&m->drafts[i]);
    free(m->drafts);
    free(m->ways);
    free(m->rows);
    sampler_free(m->sampler);
}

static enum status parse_draft(const struct bench_draft *b, int i, struct generate_draft *d,
                               struct err *e)
{
    const struct draft_options o = {.draft = b->options->drafts.items[i],
                                    .tokens = b->options->tokens};
    return draft_parse(&o, d, e);
}

/* What is asked of the text and the context. */
static enum status check_sizes(const struct bench_draft *b, const struct runtime *r,
                               struct draft_bench_spec *spec, struct err *e)
{
    const int n_ctx = r->checkpoint.model->config.n_ctx;
    const int few = n_ctx / 4 > 0 ? n_ctx / 4 : 1;
    spec->n = b->n;
    spec->prompt = b->prompt > 0 ? b->prompt : few < DEFAULT_PROMPT ? few : DEFAULT_PROMPT;
    if (spec->n < 2 || spec->prompt > n_ctx || spec->n > n_ctx - spec->prompt)
        return err_set(e, STATUS_USAGE,
                       "-n: expected 2 to %d tokens after a prompt of %d (--prompt), the context "
                       "being %d; found %d",
                       n_ctx > spec->prompt ? n_ctx - spec->prompt : 0, spec->prompt, n_ctx, b->n);
    if (r->n_tokens < (size_t)spec->prompt)
        return err_set(e, STATUS_USAGE, "--text: expected at least %d tokens, found %zu",
                       spec->prompt, r->n_tokens);
    if (!parse_int(b->batch, 1, MOST_BATCH, &spec->batch))
        return err_set(e, STATUS_USAGE, "--batch: expected one integer from 1 to %d, found '%.60s'",
                       MOST_BATCH, b->batch);
    return STATUS_OK;
}

static enum status create_sampler(const struct bench_draft *b, const struct runtime *r,
                                  const struct session_wanted *w, struct sampler **out,
                                  struct err *e)
{
    const struct sampler_params params = {
        .temperature = b->options->temperature, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1};
    const struct sampler_sizes sizes = {.n_vocab = r->checkpoint.model->config.n_vocab,
                                        .n_ctx = w->n_ctx,
                                        .n_sequences = 2 * w->n_sequences,
                                        .n_threads = r->n_threads};
    return sampler_create(&params, &sizes, out, e);
}

/* Figures of fewer threads would be others'. */
static enum status start_threads(struct runtime *r, struct err *e)
{
    const int wanted = r->n_threads;
    TRY(runtime_start_threads(r, e));
    if (r->n_threads < wanted)
        return err_set(e, STATUS_FAILED, "only %d of %d threads could be started", r->n_threads,
                       wanted);
    return STATUS_OK;
}

static enum status open_drafts(const struct bench_draft *b, struct runtime *r,
                               struct session_wanted *w, struct measuring *m, struct err *e)
{
    TRY(start_threads(r, e));
    for (int i = 0; i < b->options->drafts.n; i++) {
        TRY(parse_draft(b, i, &m->drafts[i], e));
        TRY(draft_open(&m->drafts[i], r, w, e));
    }
    TRY(runtime_check_memory(r, w, "--batch N", e));
    TRY(runtime_start(r, w, e));
    TRY(create_sampler(b, r, w, &m->sampler, e));
    m->ways[0].name = "none";
    for (int i = 0; i < b->options->drafts.n; i++) {
        TRY(draft_prepare(&m->drafts[i], r, w, m->sampler, -1, e));
        m->ways[i + 1] = (struct draft_way){b->options->drafts.items[i], &m->drafts[i].drafter};
    }
    return STATUS_OK;
}

static enum status print_rows(const struct bench_draft *b, const struct measuring *m,
                              struct output *out, struct err *e)
{
    struct report r;
    struct columns chosen;
    const enum table_format format = (enum table_format)b->format;
    columns_choose(b->columns, format, fields, REPORT_LENGTH(fields), &chosen);
    report_begin(&r, format, chosen.fields, chosen.n, out);
    for (int i = 0; i <= b->options->drafts.n; i++)
        report_row(&r, &m->rows[i]);
    return report_end(&r, e);
}

static enum status measure(const struct bench_draft *b, struct runtime *r, struct measuring *m,
                           struct err *e)
{
    struct draft_bench_spec spec = {.tokenizer = r->checkpoint.tokenizer,
                                    .n_vocab = r->checkpoint.model->config.n_vocab,
                                    .tokens = r->tokens,
                                    .n_tokens = r->n_tokens,
                                    .repeats = b->repeats};
    TRY(check_sizes(b, r, &spec, e));
    TRY(allocate(b, m, e));
    struct session_wanted wanted = {.n_ctx = spec.prompt + spec.n, .n_sequences = spec.batch};
    TRY(open_drafts(b, r, &wanted, m, e));
    struct progress progress = progress_start(b->common, "turns");
    spec.session = r->session;
    spec.sampler = m->sampler;
    spec.pool = r->pool;
    spec.ways = m->ways;
    spec.n_ways = b->options->drafts.n + 1;
    spec.stop = progress_stop;
    spec.progress = progress_show;
    spec.arg = &progress;
    const enum status s = draft_bench_run(&spec, m->rows, e);
    progress_end(&progress);
    if (s == STATUS_OK || (s == STATUS_INTERRUPTED && m->rows[0].repeats > 0))
        TRY(print_rows(b, m, r->inv->out, e));
    return s;
}

static enum status measure_on_text(const void *values, struct runtime *r, struct text text,
                                   struct err *e)
{
    const struct bench_draft *b = values;
    struct measuring m = {.drafts = NULL};
    TRY(tokens_of_text(r->checkpoint.tokenizer, text, false, &r->tokens, &r->n_tokens, e));
    const enum status s = measure(b, r, &m, e);
    close_all(b, &m);
    return s;
}

/* --- from the options ------------------------------------------------------------------------ */

static enum status parse_kv_type(const char *name, int *kv_type, struct err *e)
{
    *kv_type = names_find(kv_type_names, name);
    if (*kv_type >= 0)
        return STATUS_OK;
    return err_set(e, STATUS_USAGE, "--kv-type: expected one of %s with --draft, found '%.60s'",
                   names_joined(kv_type_names, ", ").text, name);
}

enum status bench_draft_run(const struct invocation *inv, const struct bench_draft *b,
                            struct err *e)
{
    const struct input_options input = {.file = b->options->text};
    struct engine_options engine = {.threads = b->threads};
    const struct table table = {.fields = fields, .n = REPORT_LENGTH(fields)};
    TRY(columns_check(b->columns, (enum table_format)b->format, &table, 1, e));
    TRY(parse_kv_type(b->kv_type, &engine.kv_type, e));
    for (int i = 0; i < b->options->drafts.n; i++) {
        struct generate_draft d = {.source = DRAFT_NONE};
        TRY(parse_draft(b, i, &d, e));
    }
    struct runtime r = {.inv = inv, .common = b->common, .engine = &engine, .parts = COMMON_TEXTS};
    return runtime_run(&r, &input, measure_on_text, b, e);
}
