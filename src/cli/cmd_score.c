/*
 * cmd_score - decode score: the log-probability of each token of a text.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/runtime.h"
#include "cli/signals.h"
#include "cli/token_record.h"
#include "measure/npy.h"
#include "measure/score.h"
#include "show/report.h"

struct score_options {
    struct common_options common;
    struct engine_options engine;
    struct input_options input;
    const char *tokens;
    int top;
    const char *logits;
    int format;
};

#define VALUES struct score_options

static const struct option text_options[] = {
    OPT_STRING(
        "tokens", tokens, "IDS",
        "token ids 1,2,3 instead of a text; taken as they are, without a begin-of-text token"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_INT("top", top, "K", 0, INT_MAX, "also the K likeliest tokens for each position",
            .fallback = "0"),
    OPT_STRING("logits", logits, "OUT.npy",
               "write the logits after each token, float32 [tokens, n_vocab]"),
    OPT_FORMAT,
    OPT_END,
};

/* What a visit needs. */
struct scoring {
    const struct tokenizer *tokenizer; /* NULL: none */
    struct npy_writer *npy;            /* NULL: not asked for */
    int n_vocab, n_top;
    enum table_format format;
    struct json json;     /* of the JSON forms */
    struct report report; /* of the others */
    struct output *out;
    char *cell; /* [cell_cap] where one row's alternatives are joined */
    size_t cell_cap;
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

static void put_token_text(struct scoring *s, int id)
{
    if (s->tokenizer)
        report_text(&s->report, tokenizer_bytes(s->tokenizer, id));
    else
        report_null(&s->report);
}

/* One alternative's three CSV cells. */
static void put_top_cells(struct scoring *s, const struct score_row *row, int i)
{
    if (i < row->n_top) {
        report_u64(&s->report, (uint64_t)row->top[i].id);
        put_token_text(s, row->top[i].id);
        report_double(&s->report, row->top[i].logprob, "%.4f");
    } else {
        for (int cell = 0; cell < 3; cell++)
            report_null(&s->report);
    }
}

static void put_table_row(struct scoring *s, const struct score_row *row)
{
    report_u64(&s->report, (uint64_t)row->position);
    report_u64(&s->report, (uint64_t)row->id);
    put_token_text(s, row->id);
    report_double(&s->report, row->predicted ? row->logprob : (double)NAN, "%.4f");
    if (s->format == TABLE_CSV)
        for (int i = 0; i < s->n_top; i++)
            put_top_cells(s, row, i);
    else if (s->n_top > 0)
        put_joined_top(s, row);
}

static enum status visit_token(void *arg, const struct score_row *row, struct err *e)
{
    (void)e;
    struct scoring *s = arg;
    if (signals_interrupted())
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

/* Columns, with their names in `names`: three more an alternative in CSV, one for all else. */
#define FIXED_COLUMNS 4
struct score_columns {
    struct report_field *columns;
    char (*names)[32];
    int n;
};

static enum status name_columns(const struct scoring *s, struct score_columns *c, struct err *e)
{
    static const struct report_field fixed[FIXED_COLUMNS] = {
        {"position", "position", .type = REPORT_INT},
        {"id", "id", .type = REPORT_INT},
        {"text", "text", .type = REPORT_TEXT},
        {"logprob", "logprob", .type = REPORT_DOUBLE}};
    static const char *const kinds[] = {"id", "text", "logprob"};
    const int top = s->format == TABLE_CSV ? 3 * s->n_top : s->n_top > 0;
    c->n = FIXED_COLUMNS + top;
    c->columns = calloc((size_t)c->n, sizeof *c->columns);
    c->names = calloc((size_t)top + 1, sizeof *c->names);
    if (!c->columns || !c->names)
        return err_no_memory(e, "the table's columns", (size_t)c->n * sizeof *c->columns);
    memcpy(c->columns, fixed, sizeof fixed);
    for (int i = 0; i < top; i++) {
        if (s->format == TABLE_CSV)
            snprintf(c->names[i], sizeof c->names[i], "top%d_%s", i / 3 + 1, kinds[i % 3]);
        else
            snprintf(c->names[i], sizeof c->names[i], "top");
        c->columns[FIXED_COLUMNS + i] =
            (struct report_field){c->names[i], c->names[i], .type = REPORT_TEXT};
    }
    return STATUS_OK;
}

/* Room for the largest cell of alternatives: they are different tokens, so that all together have
 * no more bytes than the vocabulary, however long one of them is. */
static enum status reserve_cell(struct scoring *s, struct err *e)
{
    const size_t longest = s->tokenizer ? longest_token(s->tokenizer) : 16;
    size_t all = 0, texts;
    for (int id = 0; s->tokenizer && id < tokenizer_n_tokens(s->tokenizer); id++)
        all += tokenizer_bytes(s->tokenizer, id).len;
    if (!size_of_array((uint64_t)s->n_top, longest, &texts) || (s->tokenizer && texts > all))
        texts = all;
    if (!size_of_array((uint64_t)s->n_top + 1, 32, &s->cell_cap))
        return err_set(e, STATUS_NO_MEMORY, "out of memory: a row of %d alternatives", s->n_top);
    s->cell_cap += texts;
    s->cell = malloc(s->cell_cap);
    return s->cell ? STATUS_OK : err_no_memory(e, "a row's alternatives", s->cell_cap);
}

/* Prints all rows in the chosen form. */
static enum status print_scores(struct scoring *s, struct session *session, const int32_t *tokens,
                                int n, struct err *e)
{
    if (table_is_json(s->format)) {
        json_init(&s->json, s->out, s->format == TABLE_JSON ? 1 : 0);
        if (s->format == TABLE_JSON)
            json_begin_array(&s->json, NULL);
        const enum status status =
            score_tokens(session, s->n_vocab, tokens, n, s->n_top, visit_token, s, e);
        if (s->format == TABLE_JSON) {
            json_end(&s->json);
            output_puts(s->out, "\n");
        }
        return status;
    }
    struct score_columns c = {NULL, NULL, 0};
    enum status status = name_columns(s, &c, e);
    if (status == STATUS_OK)
        status = reserve_cell(s, e);
    if (status == STATUS_OK) {
        report_begin(&s->report, s->format, c.columns, c.n, s->out);
        status = score_tokens(session, s->n_vocab, tokens, n, s->n_top, visit_token, s, e);
        const enum status printed = report_end(&s->report, status == STATUS_OK ? e : NULL);
        status = status == STATUS_OK ? printed : status;
    }
    free(c.columns);
    free(c.names);
    free(s->cell);
    return status;
}

/* The tokens to score: --tokens as they are, or the text's with BOS where the checkpoint wants it.
 * *ids is malloc'd. */
static enum status input_tokens(const struct score_options *o, const struct runtime *r,
                                struct text text, int32_t **ids, size_t *n, struct err *e)
{
    const struct tokenizer *t = r->checkpoint.tokenizer;
    if (o->tokens)
        return parse_ids("--tokens", o->tokens, r->checkpoint.model->config.n_vocab, ids, n, e);
    return tokens_that_fit("the text", t, text, tokenizer_adds_bos(t),
                           r->checkpoint.model->config.n_ctx, ids, n, e);
}

static enum status score_ids(const struct score_options *o, struct runtime *r,
                             const int32_t *tokens, size_t n, struct err *e)
{
    const struct config *config = &r->checkpoint.model->config;
    if (n == 0)
        return err_set(e, STATUS_USAGE, "there is no token to score: the text is empty");
    if (n > (size_t)config->n_ctx)
        return err_set(e, STATUS_USAGE, "the text has %zu tokens, the checkpoint's context only %d",
                       n, config->n_ctx);
    enum status s = runtime_start(r, (int)n, NULL, e);
    if (s != STATUS_OK)
        return s;
    struct scoring scoring = {.tokenizer = r->checkpoint.tokenizer,
                              .n_vocab = config->n_vocab,
                              .n_top = o->top < config->n_vocab ? o->top : config->n_vocab,
                              .format = (enum table_format)o->format,
                              .out = r->inv->out};
    if (o->logits) {
        s = npy_open(&scoring.npy, o->logits, n, (uint64_t)config->n_vocab, e);
        if (s != STATUS_OK)
            return s;
    }
    s = print_scores(&scoring, r->session, tokens, (int)n, e);
    if (s != STATUS_OK)
        npy_abandon(scoring.npy);
    else if (scoring.npy)
        s = npy_commit(scoring.npy, e);
    return s;
}

static enum status score_text(const void *values, struct runtime *r, struct text text,
                              struct err *e)
{
    int32_t *tokens;
    size_t n;
    enum status s = input_tokens(values, r, text, &tokens, &n, e);
    if (s == STATUS_OK) {
        s = score_ids(values, r, tokens, n, e);
        free(tokens);
    }
    return s;
}

static enum status check_score_options(const struct score_options *o, struct err *e)
{
    const bool text = o->input.prompt || o->input.file;
    if (o->tokens && text)
        return err_set(e, STATUS_USAGE, "--tokens and %s both give the input; expected one of them",
                       o->input.prompt ? "-p" : "-f");
    if (!o->tokens && !text)
        return err_set(e, STATUS_USAGE, "there is nothing to score; expected -p, -f or --tokens");
    const char *model;
    enum status s = common_model_path(&o->common, &model, e);
    if (s != STATUS_OK || !o->logits)
        return s;
    s = path_spares("--logits", o->logits, model, "the checkpoint", e);
    if (s == STATUS_OK)
        s = path_spares("--logits", o->logits, o->input.file, "the text", e);
    return s;
}

static enum status run_score(const struct invocation *inv, const void *values, struct err *e)
{
    const struct score_options *o = values;
    struct runtime r = {.inv = inv,
                        .common = &o->common,
                        .engine = &o->engine,
                        .without_tokenizer = o->tokens != NULL};
    const enum status s = check_score_options(o, e);
    return s == STATUS_OK ? runtime_run(&r, &o->input, score_text, o, e) : s;
}

const struct command command_score = {
    .name = "score",
    .summary = "per-token log-probabilities; logits to a file",
    .usage = "MODEL (-p TEXT | -f FILE | --tokens 1,2,3) [options]",
    .notes =
        "One row a token: position, id, text, natural log-probability given the tokens before\n"
        "it. Nothing predicts the first token. The output is the same for any number of\n"
        "threads and any block.\n",
    .spec = {.groups = {{"Text", input_options, offsetof(VALUES, input)},
                        {"Text as ids", text_options, 0},
                        {"Results", result_options, 0},
                        {"Engine", engine_options, offsetof(VALUES, engine)},
                        {"Variant", variant_options, offsetof(VALUES, engine.variant)},
                        COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_score,
};
