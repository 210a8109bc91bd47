/*
 * fuzz_draft - schedules with drafts: the input says which tiny random model decodes which prompts,
 * how they are drawn, in how many places, and what guesses how many tokens, so that guesses are
 * rejected anywhere. What the client sees must be, bit for bit, what it sees one text at a time
 * without a draft.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/derived.h"
#include "schedule_run.h"
#include "target.h"

#define N_CTX     48
#define N_VOCAB   16
#define MOST_MADE 160 /* tokens of all texts, so that no input takes long */

/* What is left of an input; zeros after its end. */
struct bytes {
    const uint8_t *at;
    size_t left;
};

static int next_byte(struct bytes *b)
{
    if (b->left == 0)
        return 0;
    b->left--;
    return *b->at++;
}

/* --- what there is --------------------------------------------------------------------------- */

static const struct shape {
    int n_heads, n_kv_heads;
    enum position_kind position;
    enum ffn_kind ffn;
} shapes[] = {
    {2, 1, POSITION_LEARNED, FFN_GELU},
    {4, 4, POSITION_ROPE, FFN_SWIGLU},
    {4, 2, POSITION_ALIBI, FFN_RELU},
};
#define COUNT(table) (int)(sizeof(table) / sizeof *(table))
static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

enum guesser { BY_COPIES, BY_ITSELF, BY_PACKED, BY_CUT, BY_ANOTHER, GUESSERS };

static struct model *make_model(const struct shape *s, int n_layers, int n_ctx, uint64_t seed)
{
    struct model *m;
    struct err e;
    struct config config = {.arch = arch_at(0),
                            .n_layers = n_layers,
                            .n_heads = s->n_heads,
                            .n_kv_heads = s->n_kv_heads,
                            .d_model = 32,
                            .d_ff = 64,
                            .n_ctx = n_ctx,
                            .n_vocab = N_VOCAB,
                            .norm_eps = 1e-5f,
                            .position = s->position,
                            .ffn = s->ffn};
    config_complete(&config);
    require(model_create_random(&config, STORAGE_F32, seed, &m, &e) == STATUS_OK);
    return m;
}

/* Letters, some of them in pairs; the last ends a text. */
static struct tokenizer *make_tokenizer(void)
{
    static const char *const words[N_VOCAB] = {"a", "b", "ab", "c", "ca", "d", "e", "f",
                                               "g", "h", "i",  "j", "k",  "l", "m", "x"};
    struct text tokens[N_VOCAB];
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    unsigned char *bytes;
    size_t len;
    struct err e;
    for (int i = 0; i < N_VOCAB; i++)
        tokens[i] = text_of(words[i]);
    require(gguf_writer_create(&w, &e) == STATUS_OK);
    gguf_add_text(w, "tokenizer.ggml.model", text_of("gpt2"));
    gguf_add_text(w, "tokenizer.ggml.pre", text_of("gpt-2"));
    gguf_add_texts(w, "tokenizer.ggml.tokens", tokens, N_VOCAB);
    gguf_add_texts(w, "tokenizer.ggml.merges", NULL, 0);
    gguf_add_u32(w, "tokenizer.ggml.eos_token_id", N_VOCAB - 1);
    require(gguf_write_memory(w, &bytes, &len, &e) == STATUS_OK);
    require(gguf_parse(bytes, len, &g, &e) == STATUS_OK);
    require(tokenizer_create(g, &t, &e) == STATUS_OK);
    gguf_free(g);
    free(bytes);
    gguf_writer_free(w);
    return t;
}

/* Made once, for all inputs. */
static struct tokenizer *tokenizer;
static struct model *models[COUNT(shapes)][GUESSERS];

static void make_all(void)
{
    struct err e;
    if (tokenizer)
        return;
    tokenizer = make_tokenizer();
    for (int i = 0; i < COUNT(shapes); i++) {
        struct model **m = models[i];
        m[BY_ITSELF] = make_model(&shapes[i], 2, N_CTX, 7);
        m[BY_ANOTHER] = make_model(&shapes[(i + 1) % COUNT(shapes)], 1, N_CTX / 2, 8);
        require(derived_create_packed(m[BY_ITSELF], STORAGE_Q4_0, NULL, &m[BY_PACKED], &e) ==
                STATUS_OK);
        require(derived_create_cut(m[BY_ITSELF], 1, &m[BY_CUT], &e) == STATUS_OK);
    }
}

/* --- what the input says --------------------------------------------------------------------- */

static void read_sampler(struct sampler_params *p, struct bytes *b)
{
    static const double temperatures[] = {0, 0.05, 0.3, 1, 3};
    const int how = next_byte(b), penalty = next_byte(b);
    *p = (struct sampler_params){.temperature = temperatures[how % COUNT(temperatures)],
                                 .top_k = how >> 3 & 3,
                                 .top_p = how & 32 ? 0.8 : 1,
                                 .min_p = how & 64 ? 0.05 : 0,
                                 .repeat_penalty = penalty & 1 ? 1.5 : 1,
                                 .repeat_last_n = (penalty >> 1) % 20 - 1};
}

static void read_texts(struct schedule_texts *t, struct bytes *b)
{
    static const struct text stops[] = {{"abc", 3}, {"a", 1}, {"gh", 2}};
    const int what = next_byte(b);
    int left = MOST_MADE;
    read_sampler(&t->sampler, b);
    t->kv_storage = caches[what % COUNT(caches)];
    t->n_ctx = what & 4 ? N_CTX : N_CTX / 3;
    t->shifts = what & 128;
    t->shares = what & 8 && !t->shifts;
    t->n_keep = t->shifts ? next_byte(b) % (schedule_most_kept(t->n_ctx) + 1) : 0;
    t->ignore_eos = what & 16;
    t->stops = stops;
    t->n_stops = what >> 5 & 3;
    t->seed = (uint64_t)next_byte(b);
    do {
        const int i = t->n_texts++;
        t->n[i] = next_byte(b) % (N_CTX + 2);
        t->n[i] = t->n[i] < left ? t->n[i] : left;
        left -= t->n[i];
        t->n_prompt[i] = 1 + next_byte(b) % t->n_ctx;
        for (int k = 0; k < t->n_prompt[i]; k++)
            t->prompts[i][k] = next_byte(b) % N_VOCAB;
    } while (b->left > 0 && t->n_texts < RUN_TEXTS && left > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes b = {data, size};
    static struct schedule_texts texts;
    static struct schedule_seen plain, drafted;
    struct err e;
    make_all();
    const int who = next_byte(&b), places = next_byte(&b), many = next_byte(&b);
    struct model **const m = models[who % COUNT(shapes)];
    texts = (struct schedule_texts){.model = m[BY_ITSELF], .tokenizer = tokenizer};
    read_texts(&texts, &b);
    struct schedule_ways ways = {.n_places = 1, .n_threads = 1};
    require(run_schedule(&texts, &ways, &plain, &e) == STATUS_OK);
    ways = (struct schedule_ways){.n_places = 1 + places % 4,
                                  .n_threads = 1 + (places >> 2 & 1),
                                  .block = places >> 3 & 7,
                                  .drafts = true,
                                  .draft = m[who / 4 % GUESSERS],
                                  .draft_n = 1 + many % DRAFT_MOST,
                                  .fixed = many < 192};
    require(run_schedule(&texts, &ways, &drafted, &e) == STATUS_OK);
    require(same_texts(&plain, &drafted, texts.n_texts));
    require(drafted.n_decoded == drafted.n_steps + drafted.n_right);
    require(drafted.n_right <= drafted.n_drafted);
    return 0;
}
