#include "cli/generate_draft.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "cli/common.h"
#include "cli/descriptor.h"
#include "cli/numbers.h"
#include "model/cost.h"
#include "model/model.h"
#include "json/write.h"

/* Tokens that a text drafts in a round, if nobody says how many. */
#define DRAFT_AUTO 8

#define SELF   "self:"
#define LAYERS "layers="

#define VALUES struct draft_options
const struct option draft_options[] = {
    OPT_STRING("draft", draft, "DRAFT",
               "guess tokens, to verify several in a step; the text stays the same. A checkpoint "
               "of the same vocabulary; self:TYPE, the model's own weights in that type; "
               "self:layers=N, its first N layers; or lookup, what followed the same words before",
               .reads = "the draft"),
    OPT_STRING("draft-n", tokens, "K|auto",
               "tokens to guess at once; auto: as many as are faster, none if none are",
               .otherwise = "auto", .needs = "draft"),
    OPT_END,
};

/* --- what is asked for ----------------------------------------------------------------------- */

static enum status parse_own(const char *what, struct generate_draft *d, struct err *e)
{
    if (strncmp(what, LAYERS, strlen(LAYERS)) == 0) {
        d->source = DRAFT_CUT;
        if (parse_int(what + strlen(LAYERS), 1, INT_MAX, &d->n_layers))
            return STATUS_OK;
        return err_set(e, STATUS_USAGE,
                       "--draft self:layers=N: expected an integer, 1 or more, found '%.60s'",
                       what + strlen(LAYERS));
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

enum status draft_parse(const struct draft_options *o, struct generate_draft *d, struct err *e)
{
    struct draft_pace *pace = &d->drafter.pace;
    const char *what = o->draft;
    if (!what)
        return STATUS_OK;
    pace->most = DRAFT_AUTO;
    pace->fixed = o->tokens && strcmp(o->tokens, "auto") != 0;
    if (pace->fixed && !parse_int(o->tokens, 1, DRAFT_MOST, &pace->most))
        return err_set(e, STATUS_USAGE,
                       "--draft-n: expected auto or an integer from 1 to %d, found '%.60s'",
                       DRAFT_MOST, o->tokens);
    if (!what[0])
        return err_set(e, STATUS_USAGE,
                       "--draft: expected a checkpoint, self:TYPE, self:layers=N or lookup");
    if (strncmp(what, SELF, strlen(SELF)) == 0)
        return parse_own(what + strlen(SELF), d, e);
    d->source = strcmp(what, "lookup") == 0 ? DRAFT_LOOKUP : DRAFT_FILE;
    d->path = what;
    return STATUS_OK;
}

/* --- its model ------------------------------------------------------------------------------- */

static const struct model *model_of(const struct generate_draft *d)
{
    return d->own ? d->own : d->other.model;
}

static enum status open_model(struct generate_draft *d, struct job *r, struct err *e)
{
    const struct model *model = r->checkpoint.model;
    enum status s = STATUS_OK;
    switch (d->source) {
    case DRAFT_FILE:
        TRY(job_open(d->path, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER, &d->other, e));
        return job_same_tokens(&r->checkpoint, &d->other, d->path, STATUS_USAGE, e);
    case DRAFT_PACKED:
        TRY(job_start_threads(r, e));
        s = derived_create_packed(model, d->storage, r->pool, &d->own, e);
        break;
    case DRAFT_CUT:
        s = derived_create_cut(model, d->n_layers, &d->own, e);
        break;
    default:
        break;
    }
    if (s == STATUS_USAGE)
        err_prefix(e, "--draft self");
    return s;
}

/* The session is the texts' but for what the draft's model has no room for. */
static struct session_params session_of(const struct generate_draft *d, const struct job *r,
                                        const struct session_wanted *w)
{
    const int n_ctx = model_of(d)->config.n_ctx;
    struct session_params p = job_session_params(r);
    p.block = 0;
    p.n_sequences = w->n_sequences;
    p.n_ctx = w->n_ctx < n_ctx ? w->n_ctx : n_ctx;
    p.n_shared = w->n_shared <= p.n_ctx ? w->n_shared : 0;
    if (d->source == DRAFT_FILE)
        p.without = NULL;
    return p;
}

static void set_sizes(struct generate_draft *d, const struct job *r, const struct session_wanted *w)
{
    d->drafter.n_slots = w->n_sequences > 0 ? w->n_sequences : 1;
    d->drafter.n_vocab = r->checkpoint.model->config.n_vocab;
    d->drafter.cap = w->n_ctx;
}

enum status draft_open(struct generate_draft *d, struct job *r, struct session_wanted *w,
                       struct err *e)
{
    struct session_memory memory = {.kv_bytes = 0};
    if (d->source == DRAFT_NONE)
        return STATUS_OK;
    TRY(open_model(d, r, e));
    if (model_of(d)) {
        struct session_wanted one = *w;
        one.n_sequences = 1;
        one.n_shared = 0;
        const struct session_params params = session_of(d, r, &one);
        TRY(session_plan(model_of(d), &params, r->n_threads, &memory, e));
        w->more_bytes += memory.kv_bytes + memory.scratch_bytes +
                         (size_t)r->checkpoint.model->config.n_vocab * sizeof(float);
    }
    set_sizes(d, r, w);
    w->more_bytes += drafter_bytes(&d->drafter) +
                     (size_t)d->drafter.pace.most * (size_t)d->drafter.n_vocab * sizeof(float);
    return STATUS_OK;
}

/* --- the drafter ----------------------------------------------------------------------------- */

static void say_draft(const struct generate_draft *d, const struct job *r,
                      const struct session_params *params, const struct session_memory *plan)
{
    if (!r->common->verbose && plan->kv_bytes <= (uint64_t)1 << 30)
        return;
    char sequences[40] = "";
    if (params->n_sequences > 1)
        snprintf(sequences, sizeof sequences, "%d sequences of ", params->n_sequences);
    say(r->common, "draft: weights %s, KV cache %s (%s%d tokens), scratch %s",
        figure_bytes((double)model_of(d)->weights.cap).text,
        figure_bytes((double)plan->kv_bytes).text, sequences, params->n_ctx,
        figure_bytes((double)plan->scratch_bytes).text);
}

static enum status start_session(struct generate_draft *d, const struct job *r,
                                 const struct session_wanted *w, struct err *e)
{
    struct session_memory plan;
    const struct model *model = model_of(d);
    const struct session_params params = session_of(d, r, w);
    TRY(session_plan(model, &params, r->n_threads, &plan, e));
    say_draft(d, r, &params, &plan);
    TRY(session_create(model, &params, r->pool, &d->session, e));
    d->drafter.session = d->session;
    d->drafter.n_shared = params.n_shared;
    d->drafter.cost =
        (double)cost_model_bytes(model) / (double)cost_model_bytes(r->checkpoint.model);
    return STATUS_OK;
}

enum status draft_start(struct generate_draft *d, const struct job *r,
                        const struct session_wanted *w, struct schedule *s, struct err *e)
{
    if (d->source == DRAFT_NONE)
        return STATUS_OK;
    if (model_of(d))
        TRY(start_session(d, r, w, e));
    set_sizes(d, r, w);
    d->drafter.sampler = s->sampler;
    d->drafter.pool = r->pool;
    d->drafter.end = s->ignore_eos ? -1 : tokenizer_eos(s->tokenizer);
    TRY(drafter_create(&d->drafter, e));
    s->drafter = &d->drafter;
    return STATUS_OK;
}

void draft_close(struct generate_draft *d)
{
    drafter_free(&d->drafter);
    session_free(d->session);
    model_free(d->own);
    checkpoint_close(&d->other);
    *d = (struct generate_draft){.source = DRAFT_NONE};
}

/* --- what it came to ------------------------------------------------------------------------- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void report_json(const struct drafter *d, double share, double tokens, uint64_t target_ns)
{
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

void draft_report(const struct schedule *s, bool json)
{
    const struct drafter *d = s->drafter;
    if (!d)
        return;
    const struct schedule_times *t = &s->times;
    const double share = ratio((double)d->n_right, (double)d->n_drafted);
    const double tokens = ratio((double)t->n_decoded, (double)t->n_steps);
    const uint64_t target_ns = t->decode_ns > d->draft_ns ? t->decode_ns - d->draft_ns : 0;
    if (json)
        report_json(d, share, tokens, target_ns);
    else
        notice_summary("drafts       %" PRIu64 " drafted, %" PRIu64
                       " accepted (%.0f%%); %.2f tokens a step; draft %s, target %s",
                       d->n_drafted, d->n_right, 100 * share, tokens,
                       figure_duration(d->draft_ns).text, figure_duration(target_ns).text);
}
