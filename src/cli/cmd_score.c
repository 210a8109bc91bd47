/* decode score: the log-probability of each token of a text. */
#include "base/file.h"
#include "cli/job.h"
#include "cli/signals.h"
#include "engine/sampler.h"
#include "formats/npy.h"

struct score_options {
    struct common_options common;
    int top;
    const char *logits;
};

#define VALUES struct score_options

static const struct option result_options[] = {
    OPT_INT("top", top, "K", 0, INT_MAX, "also the K likeliest tokens for each position",
            .fallback = "0"),
    OPT_STRING("logits", logits, "OUT.npy",
               "write the logits after each token, float32 [tokens, n_vocab]",
               .writes = WRITES_NPY),
    OPT_SCORE_SCALE,
    OPT_KV_TYPE("K[/V]", KV_TYPE_HELP),
    OPT_FORMAT,
    OPT_END,
};

static const struct option ids_options[] = {OPT_IDS, OPT_TRUNCATE, OPT_END};

struct scored_row {
    int position, id;
    struct text text;         /* without data: there is no tokenizer */
    double logprob;           /* NaN: nothing predicts it */
    struct report_list top;   /* of the same: what may come in its place */
    struct text joined;       /* that for people: 'e' -0.52, 't' -1.20 */
    const char *model, *file; /* as they were named; NULL: no file */
    const char *range; /* that was scored, as eval has it; NULL: --truncate left tokens out */
};

/* When fields are shown: with --top. */
enum { TOP = 1 };

static const struct report_field fields[] = {
    {"position", "position", MEMBER(scored_row, position)},
    {"id", "id", MEMBER(scored_row, id)},
    {"text", "text", MEMBER(scored_row, text), .bytes = true},
    {"logprob", "logprob", MEMBER(scored_row, logprob), "%.4f"},
    {"top", NULL, MEMBER(scored_row, top), .items = fields + 1, .n_items = 3,
     .item_size = sizeof(struct scored_row), .when = TOP},
    {NULL, "top", MEMBER(scored_row, joined), .list = true, .when = TOP},
    {"model", NULL, MEMBER(scored_row, model)},
    {"file", NULL, MEMBER(scored_row, file)},
    {"range", NULL, MEMBER(scored_row, range)},
};
enum { FIELD_TOP = 4, N_FIELDS = LENGTH(fields) };

struct scoring {
    struct job *job;
    int n_vocab, n_top;
    struct file_writer *npy; /* NULL: not asked for */
    struct report report;
    struct scored_row *top;     /* [n_top], malloc'd, and behind them */
    struct token_score *scores; /* [n_top] */
    uint64_t *keys;             /* [n_top] scratch memory */
    float *logits;              /* [block, n_vocab] */
    struct bytes joined;
};

static struct scored_row scored_of(const struct scoring *s, int position, int id, double logprob)
{
    return (struct scored_row){
        .position = position, .id = id, .text = job_token(s->job, id), .logprob = logprob};
}

/* Feeds the tokens block by block: a token's logits predict the next one, and nothing predicts the
 * first. */
static enum status score_tokens(struct scoring *s, struct err *e)
{
    const struct job *j = s->job;
    const int n = j->n_tokens, block = session_block(j->session);
    double logprob = NO_FIGURE, log_sum;
    char where[40];
    for (int i = 0; i < n; i++) {
        const float *logits = s->logits + (size_t)(i % block) * s->n_vocab;
        const int n_top = i > 0 ? s->n_top : 0;
        if (signals_interrupted() || (s->report.out->failed && !s->npy)) /* nobody wants the rest */
            return STATUS_INTERRUPTED;
        if (i % block == 0)
            TRY(session_feed(j->session, 0, j->tokens + i, MIN(n - i, block), s->logits, true, e));
        if (s->npy)
            file_writer_put(s->npy, logits, s->n_vocab * sizeof *logits);
        s->joined.len = 0;
        for (int k = 0; k < n_top; k++) {
            char id[24], tail[64]; /* logits may be as far apart as numbers can */
            s->top[k] = scored_of(s, i, s->scores[k].id, s->scores[k].logprob);
            chars_printf(id, "#%d", s->scores[k].id);
            chars_printf(tail, "' %.3f", s->scores[k].logprob);
            if (!bytes_put(&s->joined, text_of(k ? ", '" : "'")) ||
                !bytes_put(&s->joined, s->top[k].text.data ? s->top[k].text : text_of(id)) ||
                !bytes_put(&s->joined, text_of(tail)))
                return err_no_memory(e, "a row's alternatives", s->joined.len);
        }
        struct scored_row row = scored_of(s, i, j->tokens[i], logprob);
        row.top = (struct report_list){s->top, n_top};
        row.joined = bytes_text(&s->joined);
        row.model = j->path;
        row.file = j->common->file;
        row.range = j->truncated ? NULL : "0:1";
        report_row(&s->report, &row);
        if (i + 1 == n)
            break;
        chars_printf(where, "after position %d", i);
        TRY(session_explain(j->session, logits_log_sum(logits, s->n_vocab, &log_sum, e), where, e));
        logprob = (double)logits[j->tokens[i + 1]] - log_sum;
        logits_top(logits, s->n_vocab, log_sum, s->n_top, s->keys, s->scores);
    }
    return STATUS_OK;
}

static enum status run_score(struct job *j, void *values, struct err *e)
{
    const struct score_options *o = values;
    const int n_vocab = j->checkpoint.model->config.n_vocab;
    struct scoring s = {.job = j, .n_vocab = n_vocab, .n_top = MIN(o->top, n_vocab)};
    struct report_field own[N_FIELDS];
    TRY(job_tokenize_for_context(j, "score", e));
    struct session_params params = job_session_params(j);
    params.n_ctx = j->n_tokens;
    TRY(job_start_session(j, &params, 0, "", e));
    const size_t block = session_block(j->session);
    const size_t bytes = s.n_top * (sizeof *s.top + sizeof *s.scores + sizeof *s.keys) +
                         MIN(block, j->n_tokens) * n_vocab * sizeof *s.logits;
    s.top = malloc(bytes);
    if (!s.top)
        return err_no_memory(e, "the logits of a block", bytes);
    s.scores = (void *)(s.top + s.n_top);
    s.keys = (void *)(s.scores + s.n_top);
    s.logits = (void *)(s.keys + s.n_top);
    memcpy(own, fields, sizeof fields);
    own[FIELD_TOP].most = s.n_top;
    enum status status = STATUS_OK;
    if (o->logits)
        status = npy_open(&s.npy, o->logits, (const uint64_t[]){j->n_tokens, n_vocab}, 2, e);
    if (status == STATUS_OK) {
        report_begin(&s.report, j->common->format, own, N_FIELDS, s.n_top > 0 ? TOP : 0, j->out);
        status = score_tokens(&s, e);
        const enum status printed = report_end(&s.report, status == STATUS_OK ? e : NULL);
        status = status == STATUS_OK ? printed : status;
    }
    bytes_free(&s.joined);
    free(s.top);
    if (status == STATUS_OK && s.npy)
        return file_writer_commit(s.npy, e);
    file_writer_abandon(s.npy);
    return status;
}

const struct command command_score = {
    .name = "score",
    .summary = "per-token log-probabilities; logits to a file",
    .usage = "MODEL (-p TEXT | -f FILE | --tokens 1,2,3 | a text piped in) [options]",
    .examples = "./decode score models/shakespeare-mha.gguf -p \"To be, or not to be\"\n"
                "./decode score models/shakespeare-mha.gguf -p \"To be\" --top 3\n"
                "./decode score models/shakespeare-mha.gguf -p \"To be\" --logits l.npy\n",
    .notes = help_of_score,
    .spec = {.groups = {{"Text", input_options, 0},
                        {"Text as ids", ids_options, 0},
                        {"Results", result_options, 0},
                        {"Engine", engine_options, 0},
                        {"", general_options, 0}},
             .everyday = "prompt file tokens top logits kv-heads format",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .no_text = "there is nothing to score; expected -p, -f or --tokens",
    .run = run_score,
};
