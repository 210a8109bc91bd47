#include "cli/live.h"

#include "cli/attend.h"
#include "engine/schedule.h"
#include "model/config_keys.h"
#include "model/selection.h"

struct live {
    struct live_answer answer; /* first */
    struct bytes view, numbers;
    struct err error;
    struct job job; /* with the checkpoint, its model in the variant that was last asked for */
    struct common_options common;
    char *kv_heads; /* malloc'd: that variant; NULL: there is no model */
    int32_t *tokens;
    size_t n_tokens, n_made; /* those made are the last */
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

/* The model with these K/V heads, unless it is there. */
static enum status choose_variant(struct live *l, const char *kv_heads, struct err *e)
{
    struct checkpoint *k = &l->job.checkpoint;
    struct config file;
    char own[16];
    TRY(config_read(k->gguf, &file, e));
    chars_printf(own, "%d", file.n_kv_heads);
    if (!kv_heads[0])
        kv_heads = own;
    if (l->kv_heads && str_is(l->kv_heads, kv_heads))
        return STATUS_OK;
    free(l->kv_heads);
    model_free(k->model);
    l->kv_heads = NULL;
    k->model = NULL;
    TRY(variant_load(&l->job, kv_heads, &(struct model_options){.pool = NULL}, NULL,
                     (struct callbacks){.arg = NULL}, &k->model, e));
    l->kv_heads = strdup(kv_heads);
    return l->kv_heads ? STATUS_OK : err_no_memory(e, "the K/V heads", strlen(kv_heads));
}

/* The text's tokens, and room for n more, or as many as the context has room for. */
static enum status take_tokens(struct live *l, struct text text, int n, struct err *e)
{
    const struct tokenizer *t = l->job.checkpoint.tokenizer;
    const size_t n_ctx = l->job.checkpoint.model->config.n_ctx;
    free(l->tokens);
    l->tokens = NULL;
    if (n > 0)
        TRY(tokenizer_encode_prompt(t, text, &l->tokens, &l->n_tokens, e));
    else
        TRY(tokenizer_encode_after(t, text, tokenizer_adds_bos(t), &l->tokens, &l->n_tokens, e));
    if (l->n_tokens == 0)
        return err_usage(e, "the text is empty: there is no token to look at");
    if (l->n_tokens > n_ctx)
        return err_usage(e, "the text has %zu tokens, the context only %zu: shorten the text",
                         l->n_tokens, n_ctx);
    l->n_made = MIN((size_t)n, n_ctx - l->n_tokens);
    int32_t *tokens = realloc(l->tokens, (l->n_tokens + l->n_made) * sizeof *tokens);
    if (!tokens)
        return err_no_memory(e, "the tokens", l->n_tokens + l->n_made);
    l->tokens = tokens;
    return STATUS_OK;
}

/* Rounds until the text ends; its tokens follow the prompt's. */
static enum status run_rounds(struct live *l, struct schedule *s, uint64_t seed, struct err *e)
{
    const int n = l->n_made;
    struct slot *p = schedule_vacant(s);
    const struct request request = {
        .tokens = l->tokens, .n_tokens = l->n_tokens, .n = n, .seed = seed};
    TRY(schedule_begin(s, p, &request, e));
    for (l->n_made = 0; p->state != SLOT_ENDED;) {
        TRY(schedule_round(s, e));
        if (p->logits && p->has_token)
            l->tokens[l->n_tokens + l->n_made++] = p->token;
    }
    return p->end == END_FAILED ? schedule_failure(s, p, e) : STATUS_OK;
}

/* The tokens that follow, drawn as decode generate does if it is given temperature and seed alone.
 */
static enum status make_tokens(struct live *l, double temperature, uint64_t seed, struct err *e)
{
    const struct model *m = l->job.checkpoint.model;
    const struct session_params params = {.n_ctx = l->n_tokens + l->n_made};
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
    l->n_tokens += l->n_made;
    return status;
}

static enum status put_page(const struct explore_page *page, const void *arg, struct err *e)
{
    struct live *l = *(struct live *const *)arg;
    struct memory_output view = {.bytes = &l->view}, numbers = {.bytes = &l->numbers};
    output_init(&view.out, send_to_memory);
    explore_put_view(page, &view.out);
    output_init(&numbers.out, send_to_memory);
    explore_put_numbers(page, &numbers.out);
    return output_flush(&view.out) && output_flush(&numbers.out)
               ? STATUS_OK
               : err_no_memory(e, "the page", l->numbers.len);
}

/* The text with what was made of it. */
static enum status whole_text(const struct live *l, struct text typed, struct bytes *out,
                              struct err *e)
{
    bool ok = bytes_put(out, typed);
    for (size_t i = l->n_tokens - l->n_made; i < l->n_tokens; i++)
        ok &= bytes_put(out, tokenizer_bytes(l->job.checkpoint.tokenizer, l->tokens[i]));
    return ok ? STATUS_OK : err_no_memory(e, "the text", out->len);
}

static enum status look(struct live *l, struct attend_view *v, struct text text,
                        const char *kv_heads, struct err *e)
{
    TRY(choice_of("", NULL, v->config->n_layers, &v->layers, e));
    TRY(choice_of("", NULL, v->config->n_heads, &v->heads, e));
    TRY(attend_begin(v, 1, e));
    TRY(attend_place_page(v, e));
    TRY(attend_live(&l->job.checkpoint, v->path, text, kv_heads, &v->live, e));
    v->live.n_made = l->n_made;
    TRY(attend_run(&v->spec, &v->found, e));
    return attend_make_page(v, put_page, &l, e);
}

static enum status show(struct live *l, struct text text, int n, double temperature, uint64_t seed,
                        const char *kv_heads, struct err *e)
{
    const struct checkpoint *k = &l->job.checkpoint;
    struct bytes whole = {.data = NULL};
    TRY(choose_variant(l, kv_heads, e));
    TRY(take_tokens(l, text, n, e));
    if (n > 0)
        TRY(make_tokens(l, temperature, seed, e));
    struct attend_view view = {
        .config = &k->model->config,
        .tokenizer = k->tokenizer,
        .path = l->job.path,
        .spec = {.model = k->model, .tokens = l->tokens, .n_tokens = l->n_tokens, .query = -1}};
    config_variant_name(view.config, view.config->n_kv_heads, view.variant);
    enum status s = whole_text(l, text, &whole, e);
    if (s == STATUS_OK)
        s = look(l, &view, bytes_text(&whole), kv_heads, e);
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

struct live *live_open(unsigned char *checkpoint, size_t len, const char *name)
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
    answer(l, show(l, text_span(text, len), n, temperature, seed, kv_heads, &l->error));
}

void live_free(struct live *l)
{
    if (!l)
        return;
    checkpoint_close(&l->job.checkpoint);
    bytes_free(&l->view);
    bytes_free(&l->numbers);
    free(l->tokens);
    free(l->kv_heads);
    free(l);
}
