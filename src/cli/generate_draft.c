#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "cli/generate.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "formats/json_write.h"
#include "model/cost.h"
#include "model/model.h"

/* Tokens that a text drafts in a round, if nobody says how many. */
#define DRAFT_AUTO 8
/* A cache beyond this is announced even without -v. */
#define LARGE_CACHE ((uint64_t)1 << 30)

enum status draft_parse(struct generate_options *o, struct err *e)
{
    static const char self[] = "self:", layers[] = "layers=";
    struct draft_wanted *d = &o->drafts;
    const char *what = o->draft;
    if (!what)
        return STATUS_OK;
    d->most = DRAFT_AUTO;
    d->fixed = o->draft_n && strcmp(o->draft_n, "auto") != 0;
    if (d->fixed && !parse_int(o->draft_n, 1, DRAFT_MOST, &d->most))
        return err_set(e, STATUS_USAGE,
                       "--draft-n: expected auto or an integer from 1 to %d, found '%.60s'",
                       DRAFT_MOST, o->draft_n);
    if (!what[0])
        return err_set(e, STATUS_USAGE,
                       "--draft: expected a checkpoint, self:TYPE, self:layers=N or lookup");
    if (strncmp(what, self, strlen(self)) != 0) {
        d->source = strcmp(what, "lookup") == 0 ? DRAFT_LOOKUP : DRAFT_FILE;
        return STATUS_OK;
    }
    /* The model's own weights, in fewer layers or in another type. */
    what += strlen(self);
    if (strncmp(what, layers, strlen(layers)) == 0) {
        d->source = DRAFT_CUT;
        what += strlen(layers);
        if (parse_int(what, 1, INT_MAX, &d->n_layers))
            return STATUS_OK;
        return err_set(e, STATUS_USAGE,
                       "--draft self:layers=N: expected an integer, 1 or more, found '%.60s'",
                       what);
    }
    const int storage = names_find(storage_names, what);
    if (storage < 0)
        return err_set(e, STATUS_USAGE,
                       "--draft self: expected one of %s or layers=N, found '%.60s'",
                       names_joined(storage_names, ", ").text, what);
    d->source = DRAFT_PACKED;
    d->storage = (enum storage)storage;
    return STATUS_OK;
}

/* NULL: a lookup, which has no model. */
static const struct model *model_of_draft(const struct generate_draft *d)
{
    return d->own ? d->own : d->other.model;
}

/* The session is the texts' but for what the draft's model has no room for. */
static enum status plan_session(const struct generation *g, const struct session_wanted *w,
                                struct session_params *params, struct session_memory *plan,
                                struct err *e)
{
    const struct model *model = model_of_draft(&g->draft);
    *params = job_session_params(g->job);
    params->n_sequences = w->n_sequences;
    params->n_ctx = w->n_ctx < model->config.n_ctx ? w->n_ctx : model->config.n_ctx;
    params->n_shared = w->n_shared <= params->n_ctx ? w->n_shared : 0;
    if (g->o->drafts.source == DRAFT_FILE)
        params->without = NULL;
    return session_plan(model, params, g->job->n_threads, plan, e);
}

/* What the drafter's memory depends on. */
static void set_sizes(struct generation *g, const struct session_wanted *w)
{
    struct drafter *d = &g->draft.drafter;
    d->pace.most = g->o->drafts.most;
    d->pace.fixed = g->o->drafts.fixed;
    d->n_slots = w->n_sequences;
    d->n_vocab = g->job->checkpoint.model->config.n_vocab;
    d->cap = w->n_ctx;
}

enum status draft_open(struct generation *g, struct session_wanted *w, struct err *e)
{
    const struct draft_wanted *wanted = &g->o->drafts;
    const struct model *model = g->job->checkpoint.model;
    const size_t logits = (size_t)model->config.n_vocab * sizeof(float); /* of one row */
    const char *path = g->o->draft;
    struct generate_draft *d = &g->draft;
    enum status s = STATUS_OK;
    if (wanted->source == DRAFT_NONE)
        return STATUS_OK;
    if (wanted->source == DRAFT_FILE) {
        TRY(job_open(path, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER, &d->other, e));
        TRY(job_same_tokens(&g->job->checkpoint, &d->other, path, STATUS_USAGE, e));
    } else if (wanted->source == DRAFT_PACKED) {
        TRY(job_start_threads(g->job, e));
        s = derived_create_packed(model, wanted->storage, g->job->pool, &d->own, e);
    } else if (wanted->source == DRAFT_CUT) {
        s = derived_create_cut(model, wanted->n_layers, &d->own, e);
    }
    if (s == STATUS_USAGE)
        err_prefix(e, "--draft self");
    TRY(s);
    /* What one text takes, as the number of texts is yet to be chosen, by what memory there is. */
    const struct session_wanted one = {.n_ctx = w->n_ctx, .n_sequences = 1};
    if (model_of_draft(d)) {
        struct session_params params;
        struct session_memory plan;
        TRY(plan_session(g, &one, &params, &plan, e));
        w->more_bytes += plan.kv_bytes + plan.scratch_bytes + logits;
    }
    set_sizes(g, &one);
    w->more_bytes += drafter_bytes(&d->drafter) + (size_t)wanted->most * logits;
    return STATUS_OK;
}

enum status draft_start(struct generation *g, const struct session_wanted *w, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct drafter *d = &g->draft.drafter;
    const struct model *model = model_of_draft(&g->draft);
    struct session_params params;
    struct session_memory plan;
    char sequences[40] = "";
    if (g->o->drafts.source == DRAFT_NONE)
        return STATUS_OK;
    if (model) {
        TRY(plan_session(g, w, &params, &plan, e));
        if (params.n_sequences > 1)
            snprintf(sequences, sizeof sequences, "%d sequences of ", params.n_sequences);
        if (g->o->common.verbose || plan.kv_bytes > LARGE_CACHE)
            say(&g->o->common, "draft: weights %s, KV cache %s (%s%d tokens), scratch %s",
                figure_bytes((double)model->weights.cap).text,
                figure_bytes((double)plan.kv_bytes).text, sequences, params.n_ctx,
                figure_bytes((double)plan.scratch_bytes).text);
        TRY(session_create(model, &params, g->job->pool, &g->draft.session, e));
        d->session = g->draft.session;
        d->n_shared = params.n_shared;
        d->cost =
            (double)cost_model_bytes(model) / (double)cost_model_bytes(g->job->checkpoint.model);
    }
    set_sizes(g, w);
    d->sampler = s->sampler;
    d->pool = g->job->pool;
    d->end = s->ignore_eos ? -1 : tokenizer_eos(s->tokenizer);
    TRY(drafter_create(d, e));
    s->drafter = d;
    return STATUS_OK;
}

void draft_close(struct generate_draft *d)
{
    drafter_free(&d->drafter);
    session_free(d->session);
    model_free(d->own);
    checkpoint_close(&d->other);
}

void draft_report(const struct schedule *s, bool json)
{
    const struct drafter *d = s->drafter;
    const struct schedule_times *t = &s->times;
    if (!d)
        return;
    const double share = d->n_drafted > 0 ? (double)d->n_right / (double)d->n_drafted : 0;
    const double tokens = t->n_steps > 0 ? (double)t->n_decoded / (double)t->n_steps : 0;
    /* What is left of the rounds' time is the model's. */
    const uint64_t target_ns = t->decode_ns > d->draft_ns ? t->decode_ns - d->draft_ns : 0;
    if (!json) {
        notice_summary("drafts       %" PRIu64 " drafted, %" PRIu64
                       " accepted (%.0f%%); %.2f tokens a step; draft %s, target %s",
                       d->n_drafted, d->n_right, 100 * share, tokens,
                       figure_duration(d->draft_ns).text, figure_duration(target_ns).text);
        return;
    }
    struct descriptor lines;
    struct json j;
    descriptor_init(&lines, STDERR_FILENO);
    json_init(&j, &lines.out, 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "drafted", d->n_drafted);
    json_u64(&j, "accepted", d->n_right);
    json_double(&j, "share", share);
    json_double(&j, "tokens_per_step", tokens);
    json_double(&j, "draft_seconds", (double)d->draft_ns / 1e9);
    json_double(&j, "target_seconds", (double)target_ns / 1e9);
    json_end(&j);
    output_puts(&lines.out, "\n");
    output_flush(&lines.out);
}
