/*
 * cmd_eval - decode eval: perplexity and bits per byte on a text, distance to another checkpoint.
 */
#include "cli/help_texts.h"
#include "cli/job.h"

struct eval_options {
    struct common_options common;
    const char *against;
    int ctx, stride;
};

#define VALUES struct eval_options

static const struct option text_options[] = {
    OPT_TEXT("the text to predict, as TEXT; - is standard input"),
    OPT_PROMPT,
    OPT_RANGE,
    OPT_INT("ctx", ctx, "C", 1, INT_MAX, "input tokens of a window",
            .otherwise = "the checkpoint's context, or that of --against if smaller"),
    OPT_INT("stride", stride, "S", 1, INT_MAX,
            "tokens from one window's start to the next, at most C", .otherwise = "C"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("against", against, "MODEL2",
               "also the distance from this checkpoint, which must have the same vocabulary",
               .reads = "the other checkpoint"),
    OPT_SCORE_SCALE,
    OPT_FORMAT,
    OPT_END,
};

/* When fields are shown. */
enum { AGAINST = 1 };

static const struct report_field fields[] = {
    {"tokens", "tokens", MEMBER(eval_result, tokens), .detail = true},
    {"bytes", "bytes", MEMBER(eval_result, bytes), .detail = true},
    {"nll", "nll", MEMBER(eval_result, nll), "%.4f"},
    {"nll_stderr", "nll_stderr", MEMBER(eval_result, nll_stderr), "%.4f", .detail = true},
    {"perplexity", "perplexity", MEMBER(eval_result, perplexity), "%.3f"},
    {"bits_per_byte", "bits_per_byte", MEMBER(eval_result, bits_per_byte), "%.4f"},
    {"word_perplexity", "word_perplexity", MEMBER(eval_result, word_perplexity), "%.5g",
     .detail = true},
    {"tokens_per_s", "tokens_per_s", MEMBER(eval_result, tokens_per_s), "%.0f", .detail = true},
    {"kl_mean", "kl_mean", MEMBER(eval_result, kl_mean), "%.5f", .when = AGAINST},
    {"kl_p99", "kl_p99", MEMBER(eval_result, kl_p99), "%.3f", .when = AGAINST, .detail = true},
    {"top1_agreement", "top1_agreement", MEMBER(eval_result, top1_agreement), "%.4f",
     .when = AGAINST, .detail = true},
    {"bits_per_byte_other", "bits_per_byte_other", MEMBER(eval_result, bits_per_byte_other), "%.4f",
     .when = AGAINST, .detail = true},
};

/* STATUS_BAD_FILE if the tokens of two checkpoints with models differ, the other's as far as it
 * names them. */
static enum status check_same_tokens(const struct checkpoint *mine, const struct checkpoint *other,
                                     const char *path, struct err *e)
{
    const int n = mine->model->config.n_vocab, n_other = other->model->config.n_vocab;
    if (n_other != n)
        return err_bad_file(
            e, "%.200s: another vocabulary than the checkpoint's: expected %d tokens, found %d",
            path, n, n_other);
    if (!other->tokenizer || tokenizer_n_tokens(other->tokenizer) == 0)
        return STATUS_OK;
    for (int id = 0; id < tokenizer_n_tokens(mine->tokenizer); id++) {
        const struct text expected = tokenizer_bytes(mine->tokenizer, id);
        const struct text found = tokenizer_bytes(other->tokenizer, id);
        if (!text_equal(expected, found))
            return err_bad_file(e,
                                "%.200s: another vocabulary than the checkpoint's: token %d is "
                                "expected to be '%.*s', found '%.*s'",
                                path, id, text_width(expected), expected.data, text_width(found),
                                found.data);
    }
    return STATUS_OK;
}

static enum status run_eval(struct job *j, void *values, struct err *e)
{
    const struct eval_options *o = values;
    const struct checkpoint *c = &j->checkpoint;
    const char *smaller = kv_type_smaller(j->common->kv_type);
    char advice[96];
    struct eval_plan plan;
    struct eval_result result;
    if (o->against) {
        TRY(job_open(o->against, CHECKPOINT_MODEL, &j->other, e));
        TRY(check_same_tokens(c, &j->other, o->against, e));
    }
    TRY(job_tokenize(j, e));
    TRY(job_start_threads(j, e));
    struct eval_spec spec = job_eval_spec(j, c);
    spec.other = j->other.model;
    spec.text = j->text;
    spec.ctx = o->ctx;
    spec.stride = o->stride;
    TRY(eval_make_plan(&spec, &plan, e));
    say_verbose(
        j->common,
        "windows: %" PRIu64 " of %d tokens, stride %d, to score %" PRIu64 " tokens; %d at once",
        plan.n_windows, plan.ctx, plan.stride, plan.n_scored, plan.n_workers * plan.n_together);
    chars_printf(advice, "--ctx%s -t%s%s lower it", smaller ? "," : " and",
                 smaller ? " and --kv-type " : "", smaller ? smaller : "");
    job_say_memory(j,
                   &(struct job_memory){.weights = c->model->weights.cap +
                                                   (o->against ? j->other.model->weights.cap : 0),
                                        .cache = plan.kv_bytes,
                                        .scratch = plan.scratch_bytes,
                                        .advice = advice});
    spec.callbacks = job_callbacks(j, "tokens");
    j->progress.all = plan.n_scored;
    TRY(eval_run(&spec, &result, e));
    struct table table = TABLE_OF(fields, &result, 1);
    table.shown = o->against ? AGAINST : 0;
    return job_print(j, &table, e);
}

const struct command command_eval = {
    .name = "eval",
    .summary = "perplexity and bits per byte on a text; distance to another checkpoint",
    .usage = "MODEL TEXT [options]",
    .examples = "./decode eval models/shakespeare-mha.gguf LICENSE\n"
                "./decode eval models/shakespeare-mha.gguf README.md --range 0.9:1\n"
                "./decode eval models/shakespeare-mha.gguf -p \"To be, or not to be\"\n",
    .notes = help_of_eval,
    .spec = {.groups = {{"Text", text_options, 0},
                        {"Results", result_options, 0},
                        ENGINE_GROUP,
                        VARIANT_GROUP,
                        GENERAL_GROUP},
             .everyday = "text prompt range against ctx kv-heads format",
             .positionals = {MODEL_POSITIONAL, TEXT_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .no_text = "there is no text to predict; expected TEXT, a file, or -p",
    .run = run_eval,
};
