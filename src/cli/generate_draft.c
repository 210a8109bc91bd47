#include <inttypes.h>

#include "base/figures.h"
#include "cli/generate.h"
#include "model/cost.h"

enum status draft_open(struct generation *g, const struct session_params *p, size_t *bytes,
                       struct err *e)
{
    const struct generate_options *o = g->o;
    const struct model *model = g->job->checkpoint.model;
    struct generate_draft *d = &g->draft;
    struct draft_pace *pace = &d->drafter.pace;
    if (!o->draft)
        return STATUS_OK;
    pace->fixed = o->n_draft > 0;
    pace->most = pace->fixed ? o->n_draft : 8;
    d->params = *p;
    if (o->draft_type >= 0) {
        TRY(job_start_threads(g->job, e));
        const enum status s = derived_create_packed(model, o->draft_type, g->job->pool, &d->own, e);
        TRY(s == STATUS_USAGE ? err_in(e, s, "--draft self") : s);
        d->model = d->own;
    } else if (!text_is(text_of(o->draft), "lookup")) {
        TRY(job_open(o->draft, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER, &d->other, e));
        TRY(job_same_tokens(&g->job->checkpoint, &d->other, o->draft, STATUS_USAGE, e));
        d->model = d->other.model;
        d->params.without = NULL;
    }
    /* What one text takes, as the number of texts is yet to be chosen, by what memory there is. */
    *bytes += (size_t)pace->most * model->config.n_vocab * sizeof(float);
    if (d->model) {
        struct session_memory plan;
        const int most = d->model->config.n_ctx;
        d->params.n_ctx = p->n_ctx < most ? p->n_ctx : most;
        d->params.n_shared = p->n_shared <= most ? p->n_shared : 0;
        TRY(session_plan(d->model, &d->params, g->job->n_threads, &plan, e));
        *bytes += plan.kv_bytes + plan.scratch_bytes;
        pace->cost = (double)cost_model_bytes(d->model) / cost_model_bytes(model);
    }
    return STATUS_OK;
}

enum status draft_start(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct generate_draft *own = &g->draft;
    struct drafter *d = &own->drafter;
    if (!g->o->draft)
        return STATUS_OK;
    d->sampler = s->sampler;
    d->pool = s->pool;
    d->n_slots = own->params.n_sequences = s->n_slots;
    d->n_vocab = s->n_vocab;
    d->end = s->ignore_eos ? -1 : tokenizer_eos(s->tokenizer);
    d->n_shared = own->params.n_shared;
    if (own->model)
        TRY(job_create_session(g->job, "draft", own->model, &own->params, NULL, &d->session, e));
    TRY(drafter_create(d, e));
    s->drafter = d;
    return STATUS_OK;
}

void draft_close(struct generate_draft *d)
{
    drafter_free(&d->drafter);
    session_free(d->drafter.session);
    model_free(d->own);
    checkpoint_close(&d->other);
}

void draft_report(const struct schedule *s)
{
    const struct drafter *d = s->drafter;
    const struct schedule_times *t = &s->times;
    if (!d)
        return;
    const double share = d->n_drafted > 0 ? (double)d->n_right / d->n_drafted : 0;
    const double tokens = t->n_steps > 0 ? (double)t->n_decoded / t->n_steps : 0;
    /* What is left of the rounds' time is the model's. */
    const uint64_t target_ns = t->decode_ns > d->draft_ns ? t->decode_ns - d->draft_ns : 0;
    notice_summary("drafts       %" PRIu64 " drafted, %" PRIu64
                   " accepted (%.0f%%); %.2f tokens a step; draft %s, target %s",
                   d->n_drafted, d->n_right, 100 * share, tokens, figure_duration(d->draft_ns).text,
                   figure_duration(target_ns).text);
}
