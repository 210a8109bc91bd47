/*
 * cmd_score - decode score: the log-probability of each token of a text.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/signals.h"
#include "cli/token_record.h"
#include "measure/npy.h"
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

static const struct option ids_options[] = {OPT_IDS, OPT_END};

/* Bytes of an alternative in a cell beside its text, or with its id for one: quotes and up to 45
 * digits, as logits may be as far apart as numbers can. */
#define MAX_TOP_MARKS ((size_t)64)

/* What a visit needs. */
struct scoring {
    const struct tokenizer *tokenizer; /* NULL: none */
    struct npy_writer *npy;            /* NULL: not asked for */
    int n_vocab, n_top;
    enum table_format format;
    struct json json;     /* of the JSON forms */
    struct report report; /* of the others */
    struct report_field *columns;
    char (*names)[32]; /* of columns */
    char *cell;        /* [cell_cap] where one row's alternatives are joined */
    size_t cell_cap;
    struct output *out;
};

/* 'e' -0.52, 't' -1.20: the alternatives in one cell, for people. */
static void put_joined_top(struct scoring *s, const struct score_row *row)
{
    size_t used = 0;
    for (int i = 0; i < row->n_top; i++) {
        char id[24];
        snprintf(id, sizeof id, "#%d", row->top[i].id);
        const struct text name =
            s->tokenizer ? tokenizer_bytes(s->tokenizer, row->top[i].id) : text_of(id);
        used += (size_t)snprintf(s->cell + used, s->cell_cap - used, "%s'", i ? ", " : "");
        memcpy(s->cell + used, name.data, name.len);
        used += name.len;
        used += (size_t)snprintf(s->cell + used, s->cell_cap - used, "' %.3f", row->top[i].logprob);
    }
    report_text(&s->report, (struct text){s->cell, used});
}

/* Three cells. */
static void put_scored_token(struct scoring *s, int id, double logprob)
{
    report_u64(&s->report, (uint64_t)id);
    if (s->tokenizer)
        report_text(&s->report, tokenizer_bytes(s->tokenizer, id));
    else
        report_null(&s->report);
    report_double(&s->report, logprob, "%.4f");
}

static void put_table_row(struct scoring *s, const struct score_row *row)
{
    report_u64(&s->report, (uint64_t)row->position);
    put_scored_token(s, row->id, row->predicted ? row->logprob : (double)NAN);
    if (s->format != TABLE_CSV && s->n_top > 0)
        put_joined_top(s, row);
    if (s->format != TABLE_CSV)
        return;
    for (int i = 0; i < row->n_top; i++)
        put_scored_token(s, row->top[i].id, row->top[i].logprob);
    for (int cell = 3 * row->n_top; cell < 3 * s->n_top; cell++)
        report_null(&s->report);
}

static enum status visit_token(void *arg, const struct score_row *row, struct err *e)
{
    (void)e;
    struct scoring *s = arg;
    const bool unread = s->out->failed && !s->npy; /* nobody wants the rest */
    if (signals_interrupted() || unread)
        return STATUS_INTERRUPTED;
    if (s->npy)
        npy_put(s->npy, row->logits, (size_t)s->n_vocab);
    if (table_is_json(s->format)) {
        const struct token_record record = {.sample = -1,
                                            .position = row->position,
                                            .id = row->id,
                                            .predicted = row->predicted,
                                            .logprob = row->logprob,
                                            .top = row->top,
                                            .n_top = row->n_top,
                                            .with_top = s->n_top > 0};
        token_record_json(&s->json, s->tokenizer, &record);
        if (s->format == TABLE_JSONL)
            output_puts(s->out, "\n");
    } else {
        put_table_row(s, row);
    }
    return STATUS_OK;
}

/* Names *n columns: three more an alternative in CSV, one for all else. */
static enum status name_columns(struct scoring *s, int *n, struct err *e)
{
    static const struct report_field fixed[] = {{"position", "position", .type = REPORT_INT},
                                                {"id", "id", .type = REPORT_INT},
                                                {"text", "text", .type = REPORT_TEXT},
                                                {"logprob", "logprob", .type = REPORT_DOUBLE}};
    static const char *const kinds[] = {"id", "text", "logprob"};
    const int n_fixed = (int)(sizeof fixed / sizeof fixed[0]);
    const bool csv = s->format == TABLE_CSV;
    *n = n_fixed + (csv ? 3 * s->n_top : s->n_top > 0);
    s->columns = calloc((size_t)*n, sizeof *s->columns);
    s->names = calloc((size_t)*n, sizeof *s->names);
    if (!s->columns || !s->names)
        return err_no_memory(e, "the table's columns", (size_t)*n * sizeof *s->columns);
    memcpy(s->columns, fixed, sizeof fixed);
    for (int i = 0; i < *n - n_fixed; i++) {
        snprintf(s->names[i], sizeof s->names[i], "top%d_%s", i / 3 + 1, kinds[i % 3]);
        const char *name = csv ? s->names[i] : "top";
        s->columns[n_fixed + i] =
            (struct report_field){name, name, .type = REPORT_TEXT, .list = true};
    }
    return STATUS_OK;
}

/* Room for the largest cell of alternatives: they are different tokens, so that all together have
 * no more bytes than the vocabulary, however long one of them is. */
static enum status reserve_cell(struct scoring *s, struct err *e)
{
    s->cell_cap = ((size_t)s->n_top + 1) * MAX_TOP_MARKS;
    for (int id = 0; s->tokenizer && id < tokenizer_n_tokens(s->tokenizer); id++)
        s->cell_cap += tokenizer_bytes(s->tokenizer, id).len;
    s->cell = malloc(s->cell_cap);
    return s->cell ? STATUS_OK : err_no_memory(e, "a row's alternatives", s->cell_cap);
}

static enum status visit_tokens(struct scoring *s, const struct job *j, struct err *e)
{
    const struct score_spec spec = {.n_vocab = s->n_vocab,
                                    .tokens = j->tokens,
                                    .n_tokens = (int)j->n_tokens,
                                    .n_top = s->n_top,
                                    .visit = visit_token,
                                    .arg = s};
    return score_tokens(j->session, &spec, e);
}

static enum status print_table(struct scoring *s, const struct job *j, struct err *e)
{
    int n_columns;
    TRY(name_columns(s, &n_columns, e));
    TRY(reserve_cell(s, e));
    report_begin(&s->report, s->format, s->columns, n_columns, s->out);
    const enum status visited = visit_tokens(s, j, e);
    const enum status printed = report_end(&s->report, visited == STATUS_OK ? e : NULL);
    return visited == STATUS_OK ? printed : visited;
}

/* Prints all rows in the chosen form. */
static enum status print_scores(struct scoring *s, const struct job *j, struct err *e)
{
    json_init(&s->json, s->out, s->format == TABLE_JSON);
    if (s->format == TABLE_JSON)
        json_begin_array(&s->json, NULL);
    const enum status status =
        table_is_json(s->format) ? visit_tokens(s, j, e) : print_table(s, j, e);
    if (s->format == TABLE_JSON) {
        json_end(&s->json);
        output_puts(s->out, "\n");
    }
    free(s->columns);
    free(s->names);
    free(s->cell);
    return status;
}

static enum status run_score(struct job *j, void *values, struct err *e)
{
    const struct score_options *o = values;
    const int n_vocab = j->checkpoint.model->config.n_vocab;
    TRY(job_tokenize_for_context(j, "score", e));
    TRY(job_start_session(j, &(struct session_wanted){.n_ctx = (int)j->n_tokens}, e));
    struct scoring scoring = {.tokenizer = j->checkpoint.tokenizer,
                              .n_vocab = n_vocab,
                              .n_top = o->top < n_vocab ? o->top : n_vocab,
                              .format = (enum table_format)o->common.format,
                              .out = j->out};
    if (o->logits)
        TRY(npy_open(&scoring.npy, o->logits, (const uint64_t[]){j->n_tokens, (uint64_t)n_vocab}, 2,
                     e));
    const enum status s = print_scores(&scoring, j, e);
    if (s == STATUS_OK && scoring.npy)
        return npy_commit(scoring.npy, e);
    npy_abandon(scoring.npy);
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
