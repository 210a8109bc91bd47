/*
 * cmd_eval - decode eval: perplexity and bits per byte on a text, distance to another checkpoint.
 */
#include <inttypes.h>
#include <limits.h>

#include "base/figures.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "measure/eval.h"
#include "model/checkpoint.h"
#include "show/report.h"

struct eval_options {
    struct common_options common;
    struct engine_options engine;
    const char *text, *text_positional, *range, *against, *columns;
    int ctx, stride;
    int format;
};

#define VALUES struct eval_options

static const struct option text_options[] = {
    OPT_STRING("text", text, "FILE", "the text to predict; - is standard input",
               .reads = "the text"),
    OPT_BINARY,
    OPT_RANGE,
    OPT_INT("ctx", ctx, "C", 1, INT_MAX, "input tokens of a window",
            .otherwise = "the checkpoint's context, or that of --against if smaller"),
    OPT_INT("stride", stride, "S", 1, INT_MAX,
            "tokens from one window's start to the next, at most C", .otherwise = "C"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("against", against, "MODEL2",
               "also the distance from this checkpoint, which must have the same vocabulary"),
    OPT_FORMAT,
    OPT_COLUMNS,
    OPT_END,
};

/* --- options --------------------------------------------------------------------------------- */

static enum status check_eval_options(const struct eval_options *o, struct err *e)
{
    const char *model;
    struct text nothing = {"", 0};
    TRY(common_model_path(&o->common, &model, e));
    if (!o->text)
        return err_set(e, STATUS_USAGE,
                       "there is no text to predict; expected TEXT or --text FILE");
    if (o->ctx && o->stride > o->ctx)
        return err_set(e, STATUS_USAGE, "--stride: expected 1 to %d, the tokens of --ctx, found %d",
                       o->ctx, o->stride);
    return input_cut(o->range, &nothing, e);
}

/* --- the other checkpoint -------------------------------------------------------------------- */

static enum status open_other(const char *path, struct runtime *r, struct err *e)
{
    TRY(common_open(path, CHECKPOINT_MODEL, &r->other, e));
    return common_same_tokens(&r->checkpoint, &r->other, path, STATUS_BAD_FILE, e);
}

/* --- the run --------------------------------------------------------------------------------- */

static void say_eval_plan(const struct eval_options *o, const struct eval_spec *spec,
                          const struct eval_plan *plan)
{
    say_verbose(&o->common,
                "windows: %" PRIu64 " of %d tokens, stride %d, to score %" PRIu64
                " tokens; %d at once",
                plan->n_windows, plan->ctx, plan->stride, plan->n_scored,
                plan->n_workers * plan->n_together);
    const uint64_t weights =
        spec->model->weights.cap + (spec->other ? spec->other->weights.cap : 0);
    const char *type = kv_type_advice[o->engine.kv_type];
    if (says_memory(&o->common, plan->kv_bytes + plan->scratch_bytes))
        say(&o->common,
            "memory: weights %s, KV cache %s, scratch %s; --ctx, --block%s -t%s%s lower it",
            figure_bytes((double)weights).text, figure_bytes((double)plan->kv_bytes).text,
            figure_bytes((double)plan->scratch_bytes).text, type[0] ? "," : " and",
            type[0] ? " and " : "", type);
}

struct eval_row {
    struct eval_result result;
    double tokens_per_s;
};

static const struct report_field fields[] = {
    {"tokens", "tokens", MEMBER(eval_row, result.tokens), .rank = 4},
    {"bytes", "bytes", MEMBER(eval_row, result.bytes), .rank = 5},
    {"nll", "nll", MEMBER(eval_row, result.nll), "%.4f"},
    {"nll_stderr", "nll_stderr", MEMBER(eval_row, result.nll_stderr), "%.4f", .rank = 6},
    {"perplexity", "perplexity", MEMBER(eval_row, result.perplexity), "%.3f"},
    {"bits_per_byte", "bits_per_byte", MEMBER(eval_row, result.bits_per_byte), "%.4f"},
    {"tokens_per_s", "tokens_per_s", MEMBER(eval_row, tokens_per_s), "%.0f", .rank = 7},
    /* With --against. */
    {"kl_mean", "kl_mean", MEMBER(eval_row, result.kl_mean), "%.6f"},
    {"kl_p99", "kl_p99", MEMBER(eval_row, result.kl_p99), "%.6f", .rank = 3},
    {"top1_agreement", "top1_agreement", MEMBER(eval_row, result.top1_agreement), "%.4f",
     .rank = 2},
    {"bits_per_byte_other", "bits_per_byte_other", MEMBER(eval_row, result.bits_per_byte_other),
     "%.4f", .rank = 2},
};
#define N_AGAINST 4

/* Of one row, NULL before it is known. */
static struct table result_table(const struct eval_options *o, const struct eval_row *row)
{
    struct table table = TABLE_OF(fields, row, 1);
    table.n -= o->against ? 0 : N_AGAINST;
    return table;
}

static enum status measure_text(const struct eval_options *o, struct eval_spec *spec,
                                struct output *out, struct err *e)
{
    struct eval_plan plan;
    TRY(eval_make_plan(spec, &plan, e));
    say_eval_plan(o, spec, &plan);
    struct progress shown = progress_start(&o->common, "tokens");
    spec->stop = progress_stop;
    spec->progress = progress_show;
    spec->arg = &shown;
    struct eval_row row;
    const enum status s = eval_run(spec, &row.result, e);
    progress_end(&shown);
    if (s == STATUS_INTERRUPTED)
        say(&o->common, "interrupted after %" PRIu64 " of %" PRIu64 " tokens", shown.done,
            plan.n_scored);
    if (s != STATUS_OK)
        return s;
    row.tokens_per_s = (double)row.result.tokens / row.result.seconds;
    const struct table table = result_table(o, &row);
    return table_print(&table, o->columns, (enum table_format)o->format, out, e);
}

/* Windows longer than a checkpoint's context. */
static enum status check_windows(const struct eval_options *o, const struct model *model,
                                 const struct model *other, struct err *e)
{
    const bool others = other && other->config.n_ctx < model->config.n_ctx;
    const int limit = others ? other->config.n_ctx : model->config.n_ctx;
    const char *whose = others ? "the other checkpoint" : "the checkpoint";
    if (o->ctx > limit)
        return err_set(e, STATUS_USAGE, "--ctx: expected 1 to %d, the context of %s, found %d",
                       limit, whose, o->ctx);
    if (!o->ctx && o->stride > limit)
        return err_set(e, STATUS_USAGE, "--stride: expected 1 to %d, the context of %s, found %d",
                       limit, whose, o->stride);
    return STATUS_OK;
}

static enum status eval_text(const void *values, struct runtime *r, struct text text, struct err *e)
{
    const struct eval_options *o = values;
    const struct checkpoint *c = &r->checkpoint;
    TRY(input_cut(o->range, &text, e));
    if (o->against)
        TRY(open_other(o->against, r, e));
    TRY(check_windows(o, c->model, r->other.model, e));
    TRY(tokens_of_text(c->tokenizer, text, tokenizer_adds_bos(c->tokenizer), &r->tokens,
                       &r->n_tokens, e));
    TRY(runtime_start_threads(r, e));
    struct eval_spec spec = {.model = c->model,
                             .other = r->other.model,
                             .params = runtime_session_params(r),
                             .pool = r->pool,
                             .tokens = r->tokens,
                             .n_tokens = r->n_tokens,
                             .tokenizer = c->tokenizer,
                             .ctx = o->ctx,
                             .stride = o->stride};
    return measure_text(o, &spec, r->inv->out, e);
}

/* TEXT is the second argument, or where -m names the checkpoint the first. */
static enum status choose_eval_text(struct eval_options *o, struct err *e)
{
    if (o->common.model && !o->text_positional && !o->text) {
        o->text_positional = o->common.positional;
        o->common.positional = NULL;
    }
    if (o->text && o->text_positional)
        return err_set(e, STATUS_USAGE,
                       "two texts are named, '%.60s' and (with --text) '%.60s'; expected one",
                       o->text_positional, o->text);
    o->text = o->text ? o->text : o->text_positional;
    return STATUS_OK;
}

static enum status run_eval(const struct invocation *inv, const void *values, struct err *e)
{
    struct eval_options chosen = *(const struct eval_options *)values;
    const struct eval_options *o = &chosen;
    TRY(choose_eval_text(&chosen, e));
    const struct input_options input = {.file = o->text};
    struct runtime r = {
        .inv = inv, .common = &o->common, .engine = &o->engine, .parts = COMMON_TEXTS};
    TRY(check_eval_options(o, e));
    const struct table table = result_table(o, NULL);
    TRY(columns_check(o->columns, (enum table_format)o->format, &table, 1, e));
    return runtime_run(&r, &input, eval_text, o, e);
}

const struct command command_eval = {
    .name = "eval",
    .summary = "perplexity and bits per byte on a text; distance to another checkpoint",
    .usage = "MODEL TEXT [options]",
    .notes =
        "Windows of C input tokens start every S tokens, each with an empty cache. The first\n"
        "scores all the tokens it predicts, a later one only those that no window before it\n"
        "has: its last S. So every token is scored once, except the first, which nothing\n"
        "predicts (with a checkpoint that asks for a begin-of-text token, that is the first).\n"
        "A smaller S gives each token more context and takes C / S times as long.\n"
        "\n"
        "tokens          tokens scored\n"
        "bytes           of text that they stand for\n"
        "nll             mean negative log-likelihood, in nats a token\n"
        "nll_stderr      its standard error, from the means of sqrt(tokens) neighbours each,\n"
        "                because neighbours are hard or easy together\n"
        "perplexity      e^nll\n"
        "bits_per_byte   nll x tokens / log 2 / bytes: comparable between vocabularies\n"
        "tokens_per_s    tokens scored a second, loading and tokenization left out\n"
        "\n"
        "With --against the reference is MODEL2:\n"
        "kl_mean         mean divergence of MODEL's predictions from MODEL2's, in nats a token:\n"
        "                sum p2 log(p2 / p1) over the vocabulary\n"
        "kl_p99          99% of the tokens diverge by no more\n"
        "top1_agreement  share of predictions with the same likeliest token\n"
        "bits_per_byte_other  MODEL2's\n"
        "\n"
        "All but tokens_per_s is the same for any number of threads and any block. Ctrl-C prints\n"
        "no figures, because those of a part of the text would be another text's.\n",
    .spec = {.groups = {{"Text", text_options, 0},
                        {"Results", result_options, 0},
                        {"Engine", engine_options, offsetof(VALUES, engine)},
                        {"Variant", variant_options, offsetof(VALUES, engine.variant)},
                        COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL,
                             OPT_STRING("TEXT", text_positional, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .run = run_eval,
};
