/*
 * cmd_score - decode score: the log-probability of each token of a text.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job.h"
#include "cli/signals.h"
#include "formats/npy.h"
#include "measure/score.h"
#include "show/report.h"

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
               .writes = WRITES_FILE),
    OPT_FORMAT,
    OPT_END,
};

static const struct option ids_options[] = {
    OPT_IDS,
    OPT_INT("block", common.block, "N", 1, 4096,
            "tokens taken at once in prefill; all give the same result", .otherwise = "chosen"),
    OPT_END,
};

struct scored_row {
    int position, id;
    struct text text;       /* without data: there is no tokenizer */
    double logprob;         /* NaN: nothing predicts it */
    struct report_list top; /* of the same: what may come in its place */
    struct text joined;     /* that for people: 'e' -0.52, 't' -1.20 */
};

static const struct report_field fields[] = {
    {"position", "position", MEMBER(scored_row, position)},
    {"id", "id", MEMBER(scored_row, id)},
    {"text", "text", MEMBER(scored_row, text), .bytes = true},
    {"logprob", "logprob", MEMBER(scored_row, logprob), "%.4f"},
    {"top", NULL, MEMBER(scored_row, top), .items = fields + 1, .n_items = 3,
     .item_size = sizeof(struct scored_row)},
    {NULL, "top", MEMBER(scored_row, joined), .list = true},
};
enum { FIELD_TOP = 4, N_FIELDS = REPORT_LENGTH(fields) };

/* What a visit needs. */
struct scoring {
    const struct tokenizer *tokenizer; /* NULL: none */
    struct file_writer *npy;           /* NULL: not asked for */
    int n_vocab;
    struct report report;
    struct scored_row *top; /* [n_top] */
    struct bytes joined;
};

static struct scored_row row_of(const struct scoring *s, int position, int id, double logprob)
{
    struct scored_row row = {.position = position, .id = id, .logprob = logprob};
    if (s->tokenizer)
        row.text = tokenizer_bytes(s->tokenizer, id);
    return row;
}

static enum status visit_token(void *arg, const struct score_row *row, struct err *e)
{
    struct scoring *s = arg;
    const bool unread = s->report.out->failed && !s->npy; /* nobody wants the rest */
    if (signals_interrupted() || unread)
        return STATUS_INTERRUPTED;
    if (s->npy)
        npy_put(s->npy, row->logits, (size_t)s->n_vocab);
    s->joined.len = 0;
    for (int i = 0; i < row->n_top; i++) {
        const struct scored_row *t = &s->top[i];
        char id[24], logprob[64]; /* logits may be as far apart as numbers can */
        s->top[i] = row_of(s, row->position, row->top[i].id, row->top[i].logprob);
        snprintf(id, sizeof id, "#%d", t->id);
        snprintf(logprob, sizeof logprob, "' %.3f", t->logprob);
        if (!bytes_put(&s->joined, text_of(i ? ", '" : "'")) ||
            !bytes_put(&s->joined, s->tokenizer ? t->text : text_of(id)) ||
            !bytes_put(&s->joined, text_of(logprob)))
            return err_no_memory(e, "a row's alternatives", s->joined.len);
    }
    struct scored_row scored =
        row_of(s, row->position, row->id, row->predicted ? row->logprob : (double)NAN);
    scored.top = (struct report_list){s->top, row->n_top};
    scored.joined = bytes_text(&s->joined);
    report_row(&s->report, &scored);
    return STATUS_OK;
}

static enum status run_score(struct job *j, void *values, struct err *e)
{
    const struct score_options *o = values;
    const int n_vocab = j->checkpoint.model->config.n_vocab;
    const int n_top = o->top < n_vocab ? o->top : n_vocab;
    struct report_field own[N_FIELDS];
    TRY(job_tokenize_for_context(j, "score", e));
    struct session_params params = job_session_params(j);
    params.n_ctx = (int)j->n_tokens;
    TRY(job_start_session(j, &params, NULL, e));
    struct scoring scoring = {.tokenizer = j->checkpoint.tokenizer, .n_vocab = n_vocab};
    const struct score_spec spec = {.n_vocab = n_vocab,
                                    .tokens = j->tokens,
                                    .n_tokens = (int)j->n_tokens,
                                    .n_top = n_top,
                                    .visit = visit_token,
                                    .arg = &scoring};
    if (o->logits)
        TRY(npy_open(&scoring.npy, o->logits, (const uint64_t[]){j->n_tokens, (uint64_t)n_vocab}, 2,
                     e));
    memcpy(own, fields, sizeof fields);
    own[FIELD_TOP].most = n_top;
    report_begin(&scoring.report, (enum table_format)j->common->format, own,
                 n_top > 0 ? N_FIELDS : FIELD_TOP, j->out);
    scoring.top = calloc((size_t)n_top + 1, sizeof *scoring.top);
    enum status s = scoring.top ? score_tokens(j->session, &spec, e)
                                : err_no_memory(e, "a row's alternatives", (size_t)n_top);
    const enum status printed = report_end(&scoring.report, s == STATUS_OK ? e : NULL);
    s = s == STATUS_OK ? printed : s;
    bytes_free(&scoring.joined);
    free(scoring.top);
    if (s == STATUS_OK && scoring.npy)
        return file_writer_commit(scoring.npy, e);
    file_writer_abandon(scoring.npy);
    return s;
}

const struct command command_score = {
    .name = "score",
    .summary = "per-token log-probabilities; logits to a file",
    .usage = "MODEL (-p TEXT | -f FILE | --tokens 1,2,3 | a text piped in) [options]",
    .notes =
        "One row a token: position, id, text, natural log-probability given the tokens before\n"
        "it. Nothing predicts the first token. The output is the same for any number of\n"
        "threads and any block.\n",
    .spec = {.groups = {INPUT_GROUP,
                        {"Text as ids", ids_options, 0},
                        {"Results", result_options, 0},
                        ENGINE_GROUP,
                        VARIANT_GROUP,
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | JOB_TOKENIZES,
    .no_text = "there is nothing to score; expected -p, -f or --tokens",
    .run = run_score,
};
