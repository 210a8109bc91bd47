/* decode eval: perplexity and bits per byte on a text, distance to another checkpoint. */
#include "cli/job.h"

struct eval_options {
    struct common_options common;
    struct option_strings words; /* MODEL... TEXT */
    const char *against;
    int ctx, stride;
};

#define VALUES struct eval_options

static const struct option text_options[] = {
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
    OPT_KV_TYPE("KV,...", KV_TYPE_HELP "; a row for each item"),
    OPT_FORMAT,
    OPT_END,
};

/* What one checkpoint makes of the text with one type of cache. */
struct eval_row {
    const char *model, *text, *range; /* as they were named */
    struct kv_type_name kv_type;
    struct eval_result of;
};

/* When fields are shown. */
enum { AGAINST = 1, CACHES = 2 };

static const struct report_field fields[] = {
    {"model", "model", MEMBER(eval_row, model)},
    {"kv_type", "KV", MEMBER(eval_row, kv_type.text), .when = CACHES},
    {"text", "text", MEMBER(eval_row, text), .detail = true},
    {"range", "range", MEMBER(eval_row, range), .detail = true},
    {"tokens", "tokens", MEMBER(eval_row, of.tokens), .detail = true},
    {"bytes", "bytes", MEMBER(eval_row, of.bytes), .detail = true},
    {"nll", "nll", MEMBER(eval_row, of.nll), "%.4f"},
    {"nll_stderr", "nll_stderr", MEMBER(eval_row, of.nll_stderr), "%.4f", .detail = true},
    {"perplexity", "perplexity", MEMBER(eval_row, of.perplexity), "%.3f"},
    {"bits_per_byte", "bits_per_byte", MEMBER(eval_row, of.bits_per_byte), "%.4f"},
    {"tokens_per_s", "tokens_per_s", MEMBER(eval_row, of.tokens_per_s), "%.0f", .detail = true},
    {"kl_mean", "kl_mean", MEMBER(eval_row, of.kl_mean), "%.5f", .when = AGAINST},
    {"kl_p99", "kl_p99", MEMBER(eval_row, of.kl_p99), "%.3f", .when = AGAINST, .detail = true},
    {"top1_agreement", "top1_agreement", MEMBER(eval_row, of.top1_agreement), "%.4f",
     .when = AGAINST, .detail = true},
    {"bits_per_byte_other", "bits_per_byte_other", MEMBER(eval_row, of.bits_per_byte_other), "%.4f",
     .when = AGAINST, .detail = true},
};

/* The last positional is the text, the others are checkpoints; -m names one before them. */
static enum status prepare_eval(struct job *j, void *values, struct err *e)
{
    const struct eval_options *o = values;
    const int n = o->words.n + (j->common->model != NULL);
    if (n < 2)
        return err_usage(e, n == 0 ? "no checkpoint is named; expected MODEL... TEXT"
                                   : "there is no text to predict; expected MODEL... TEXT, a file");
    j->common->file = o->words.items[o->words.n - 1];
    return STATUS_OK;
}

/* Evaluates the checkpoint that is open, with a cache of this type. */
static enum status evaluate_cached(struct job *j, const struct eval_options *o,
                                   struct kv_type kv_type, struct eval_row *row, struct err *e)
{
    const struct checkpoint *c = &j->checkpoint;
    struct eval_plan plan;
    struct eval_spec spec = job_eval_spec(j, c);
    spec.params.kv_type = kv_type;
    spec.other = j->other.model;
    spec.ctx = o->ctx;
    spec.stride = o->stride;
    TRY(eval_make_plan(&spec, &plan, e));
    const uint64_t weights = c->model->weights.cap + (o->against ? j->other.model->weights.cap : 0);
    TRY(job_check_memory(j,
                         &(struct job_memory){.weights = weights,
                                              .cache = plan.kv_bytes,
                                              .scratch = plan.scratch_bytes,
                                              .advice = "--ctx lowers it"},
                         "the windows", e));
    spec.callbacks = job_callbacks(j, "token");
    j->progress.all = plan.n_scored;
    row->model = j->path;
    row->kv_type = kv_type_name(kv_type);
    row->text = o->common.file;
    row->range = o->common.range ? o->common.range : "0:1";
    return eval_run(&spec, &row->of, e);
}

/* Evaluates the checkpoint at `path` with each type of cache, and adds the rows to *n_done. It
 * stays open until job_close_checkpoint. */
static enum status evaluate(struct job *j, const struct eval_options *o, const char *path,
                            struct eval_row *rows, int *n_done, struct err *e)
{
    j->path = path;
    TRY(job_open_checkpoint(j, e));
    if (o->against)
        TRY(err_in(e, tokenizer_compare(j->checkpoint.tokenizer, j->other.tokenizer, e), "%s",
                   o->against));
    TRY(job_tokenize(j, e));
    for (int i = 0; i < j->kv_types.n; i++) {
        const struct kv_type type = kv_type_at(j->kv_types.items[i]);
        TRY(evaluate_cached(j, o, type, &rows[*n_done], e));
        ++*n_done;
    }
    return STATUS_OK;
}

/* If a checkpoint fails, the rows of those before it are printed all the same. */
static enum status run_eval(struct job *j, void *values, struct err *e)
{
    const struct eval_options *o = values;
    const int n_before = o->common.model != NULL, n = n_before + o->words.n - 1;
    enum status s = STATUS_OK;
    struct eval_row *rows;
    int n_done = 0;
    TRY(job_start_threads(j, e));
    if (o->against)
        TRY(job_open(o->against, CHECKPOINT_MODEL, j->pool, &j->other, e));
    TRY_ZEROED(rows, (size_t)n * j->kv_types.n, "the rows", e);
    for (int i = 0; i < n && s == STATUS_OK; i++) {
        const char *path = i < n_before ? o->common.model : o->words.items[i - n_before];
        s = evaluate(j, o, path, rows, &n_done, e);
        job_close_checkpoint(j);
    }
    struct table table = TABLE_OF(fields, rows, n_done);
    table.shown = (o->against ? AGAINST : 0) | (str_is(o->common.kv_types, "f32") ? 0 : CACHES);
    if (n_done > 0) {
        const enum status printed = job_print(j, &table, s == STATUS_OK ? e : NULL);
        s = s == STATUS_OK ? printed : s;
    }
    free(rows);
    return s;
}

const struct command command_eval = {
    .name = "eval",
    .summary = "perplexity and bits per byte on a text; distance to another checkpoint",
    .usage = "MODEL... TEXT [options]",
    .examples = "./decode eval models/shakespeare-mha.gguf LICENSE\n"
                "./decode eval models/shakespeare-mha.gguf README.md --range 0.9:1\n"
                "./decode eval models/shakespeare-mha.gguf models/shakespeare-mqa.gguf LICENSE\n",
    .notes = help_of_eval,
    .spec = {.groups = {{"Text", text_options, 0},
                        {"Results", result_options, 0},
                        {"Engine", engine_options, 0},
                        {"", general_options, 0}},
             .everyday = "range against ctx kv-heads format",
             .positionals = {OPT_STRINGS("MODEL... TEXT", words, NULL, NULL)}},
    .values_size = sizeof(VALUES),
    .needs = JOB_TEXT | JOB_STOPS | JOB_WORKERS | JOB_KV_TYPES,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .prepare = prepare_eval,
    .run = run_eval,
};
