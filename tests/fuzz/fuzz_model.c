/*
 * fuzz_model - loads the input as a checkpoint: tokenizer, model, and if that succeeds a few
 * tokens of inference. A file may be refused, with one clean line; what loads must run.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "engine/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failed requirement is a crash for the fuzzer to find. */
static void require(int holds)
{
    if (!holds)
        abort();
}

/* A refusal says something, on one line. */
static void require_refusal(enum status s, const struct err *e)
{
    require(s == STATUS_BAD_FILE && e->text[0]);
    for (const char *c = e->text; *c; c++)
        require((unsigned char)*c >= 0x20);
}

static void run_model(const struct model *m, enum storage cache)
{
    struct session *s;
    struct sampler *sampler;
    struct err e = {{0}};
    const int n = m->config.n_ctx < 4 ? m->config.n_ctx : 4;
    const struct session_params p = {.n_ctx = n, .kv_storage = cache};
    const struct sampler_params sampling = {
        .temperature = 0.9, .top_k = 7, .top_p = 0.9, .repeat_penalty = 1.1, .repeat_last_n = -1};
    require(session_create(m, &p, NULL, &s, &e) == STATUS_OK);
    require(sampler_create(&sampling, m->config.n_vocab, n, &sampler, &e) == STATUS_OK);
    int token = m->config.n_vocab - 1;
    for (int t = 0; t < n; t++) {
        const int32_t id = token;
        require(session_feed(s, &id, 1, NULL, &e) == STATUS_OK);
        sampler_accept(sampler, token);
        /* The weights may be anything, NaN too. */
        const enum status picked = sampler_pick(sampler, session_logits(s), &token, &e);
        require(picked == STATUS_OK || picked == STATUS_FAILED);
        if (picked != STATUS_OK)
            break;
        require(token >= 0 && token < m->config.n_vocab);
    }
    sampler_free(sampler);
    session_free(s);
}

static void load_model(const struct gguf *g)
{
    struct model *m;
    struct err e = {{0}};
    const enum status s = model_create(g, NULL, NULL, &m, &e);
    if (s != STATUS_OK) {
        require(!m);
        require_refusal(s, &e);
        return;
    }
    run_model(m, STORAGE_F16);
    run_model(m, STORAGE_Q8_0);
    model_free(m);
}

static void load_tokenizer(const struct gguf *g)
{
    struct tokenizer *t;
    struct err e = {{0}};
    const enum status s = tokenizer_create(g, &t, &e);
    if (s != STATUS_OK) {
        require_refusal(s, &e);
        return;
    }
    int32_t *ids;
    size_t n;
    const struct text text = text_of("To be, or\n not to be?");
    if (tokenizer_encode(t, text, &ids, &n, &e) == STATUS_OK) {
        size_t len = 0;
        for (size_t i = 0; i < n; i++)
            len += tokenizer_bytes(t, ids[i]).len;
        require(len >= text.len);
        free(ids);
    }
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    load_tokenizer(g);
    load_model(g);
    gguf_free(g);
    return 0;
}
