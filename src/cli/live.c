#include "cli/attend.h"

#include "engine/schedule.h"
#include "model/config_keys.h"

struct live {
    struct live_answer answer; /* first */
    struct bytes view, numbers;
    struct err error;
    struct job job; /* with the checkpoint, its model in the variant that was last asked for */
    struct common_options common;
    char *kv_heads; /* malloc'd: that variant, as it was asked for; NULL: there is no model */
    size_t n_made;  /* of the job's tokens the last ones */
};

/* An output that ends in memory. */
struct memory_output {
    struct output out; /* first */
    struct bytes *bytes;
};

static bool send_to_memory(struct output *out, const char *bytes, size_t len)
{
    return bytes_put(((struct memory_output *)out)->bytes, text_span(bytes, len));
}

/* --- stages ----------------------------------------------------------------------------------- */

/* Loads the model with the K/V heads that are asked for, unless it is there. */
static enum status choose_variant(struct live *l, struct err *e)
{
    struct checkpoint *k = &l->job.checkpoint;
    const char *kv_heads = l->common.kv_heads;
    if (l->kv_heads && str_is(l->kv_heads, kv_heads))
        return STATUS_OK;
    free(l->kv_heads);
    model_free(k->model);
    l->kv_heads = NULL;
    k->model = NULL;
    TRY(variant_load(&l->job, kv_heads[0] ? kv_heads : NULL, &(struct model_options){.pool = NULL},
                     NULL, (struct callbacks){.arg = NULL}, &k->model, e));
    l->kv_heads = strdup(kv_heads);
    return l->kv_heads ? STATUS_OK : err_no_memory(e, "the K/V heads", strlen(kv_heads));
}

/* Takes the text's tokens, with room for n more, or as many as the context has room for. */
static enum status take_tokens(struct live *l, int n, struct err *e)
{
    struct job *j = &l->job;
    const struct tokenizer *t = j->checkpoint.tokenizer;
    const size_t n_ctx = j->checkpoint.model->config.n_ctx;
    free(j->tokens);
    j->tokens = NULL;
    if (n > 0)
        TRY(tokenizer_encode_prompt(t, j->text, &j->tokens, &j->n_tokens, e));
    else
        TRY(tokenizer_encode(t, j->text, tokenizer_adds_bos(t), &j->tokens, &j->n_tokens, e));
    if (j->n_tokens == 0)
        return err_usage(e, "the text is empty: there is no token to look at");
    if (j->n_tokens > n_ctx)
        return err_usage(e, "the text has %zu tokens, the context only %zu: shorten the text",
                         j->n_tokens, n_ctx);
    l->n_made = MIN((size_t)n, n_ctx - j->n_tokens);
    int32_t *tokens = realloc(j->tokens, (j->n_tokens + l->n_made) * sizeof *tokens);
    if (!tokens)
        return err_no_memory(e, "the tokens", j->n_tokens + l->n_made);
    j->tokens = tokens;
    return STATUS_OK;
}

/* Runs rounds until the text ends. Its tokens follow the prompt's. */
static enum status run_rounds(struct live *l, struct schedule *s, uint64_t seed, struct err *e)
{
    struct job *j = &l->job;
    struct slot *p = schedule_vacant(s);
    const struct request request = {
        .tokens = j->tokens, .n_tokens = j->n_tokens, .n = l->n_made, .seed = seed};
    TRY(schedule_begin(s, p, &request, e));
    for (l->n_made = 0; p->state != SLOT_ENDED;) {
        TRY(schedule_round(s, e));
        if (p->logits && p->has_token)
            j->tokens[j->n_tokens + l->n_made++] = p->token;
    }
    return p->end == END_FAILED ? schedule_failure(s, p, e) : STATUS_OK;
}

/* Makes the tokens that follow as decode generate does with this temperature and seed alone. */
static enum status make_tokens(struct live *l, double temperature, uint64_t seed, struct err *e)
{
    const struct model *m = l->job.checkpoint.model;
    const struct session_params params = {.n_ctx = l->job.n_tokens + l->n_made};
    const struct sampler_params sampler = {.temperature = temperature,
                                           .top_k = 40,
                                           .top_p = 0.95,
                                           .repeat_penalty = 1,
                                           .repeat_last_n = 64};
    const struct sampler_sizes sizes = {
        .n_vocab = m->config.n_vocab, .n_ctx = params.n_ctx, .n_sequences = 1, .n_threads = 1};
    struct schedule s = {
        .tokenizer = l->job.checkpoint.tokenizer, .n_slots = 1, .n_vocab = m->config.n_vocab};
    enum status status = session_create(m, &params, NULL, &s.session, e);
    if (status == STATUS_OK)
        status = sampler_create(&sampler, &sizes, &s.sampler, e);
    if (status == STATUS_OK)
        status = schedule_create(&s, e);
    if (status == STATUS_OK)
        status = run_rounds(l, &s, seed, e);
    schedule_free(&s);
    sampler_free(s.sampler);
    session_free(s.session);
    l->job.n_tokens += l->n_made;
    return status;
}

/* Puts the page's data into the answer's memory. */
static enum status put_page(struct live *l, const struct attend_view *v, struct err *e)
{
    struct memory_output view = {.bytes = &l->view}, numbers = {.bytes = &l->numbers};
    output_init(&view.out, send_to_memory);
    attend_put_view(v, &view.out);
    output_init(&numbers.out, send_to_memory);
    attend_put_numbers(v, &numbers.out);
    return output_flush(&view.out) && output_flush(&numbers.out)
               ? STATUS_OK
               : err_no_memory(e, "the page", l->numbers.len);
}

static enum status look(struct live *l, struct attend_view *v, struct err *e)
{
    TRY(attend_list_heads(v, NULL, NULL, e));
    TRY(attend_place_page(v, e));
    v->live = true;
    v->n_made = l->n_made;
    TRY(attend_run(&v->spec, &v->found, e));
    return put_page(l, v, e);
}

/* Shows the job's text with n tokens behind it, which become part of the text. */
static enum status show(struct live *l, int n, double temperature, uint64_t seed, struct err *e)
{
    struct job *j = &l->job;
    struct bytes whole = {.data = NULL};
    struct attend_view view;
    TRY(choose_variant(l, e));
    TRY(take_tokens(l, n, e));
    if (n > 0)
        TRY(make_tokens(l, temperature, seed, e));
    enum status s = STATUS_OK;
    if (!bytes_put(&whole, j->text) ||
        !tokenizer_put(j->checkpoint.tokenizer, j->tokens + j->n_tokens - l->n_made, l->n_made,
                       &whole))
        s = err_no_memory(e, "the text", whole.len);
    j->text = bytes_text(&whole);
    attend_open(&view, j);
    if (s == STATUS_OK)
        s = look(l, &view, e);
    attend_close(&view);
    bytes_free(&whole);
    return s;
}

/* --- what the module exports ------------------------------------------------------------------ */

static void answer(struct live *l, enum status s)
{
    l->answer = (struct live_answer){.error = s == STATUS_OK ? NULL : l->error.text,
                                     .view = l->view.data,
                                     .view_len = l->view.len,
                                     .numbers = l->numbers.data,
                                     .numbers_len = l->numbers.len};
}

struct live *live_open(const unsigned char *checkpoint, size_t len, const char *name)
{
    struct file_map file = {.data = checkpoint, .len = len};
    struct live *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->job = (struct job){.path = name, .common = &l->common};
    answer(l, checkpoint_take(&file, name, CHECKPOINT_TOKENIZER | CHECKPOINT_TEXTS, NULL,
                              &l->job.checkpoint, &l->error));
    return l;
}

void live_show(struct live *l, const char *text, size_t len, int n, double temperature,
               uint64_t seed, const char *kv_heads)
{
    l->view.len = l->numbers.len = 0;
    l->job.text = text_span(text, len);
    l->common.kv_heads = kv_heads;
    answer(l, show(l, n, temperature, seed, &l->error));
}

void live_free(struct live *l)
{
    if (!l)
        return;
    checkpoint_close(&l->job.checkpoint);
    bytes_free(&l->view);
    bytes_free(&l->numbers);
    free(l->job.tokens);
    free(l->kv_heads);
    free(l);
}
