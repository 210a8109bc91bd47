/*
 * fuzz_draft - schedules with drafts: the input says which tiny random model decodes which prompts,
 * how they are drawn, in how many slots, and what guesses how many tokens, so that guesses are
 * rejected anywhere. What comes out must be, bit for bit, what comes out of one text at a time
 * without a draft.
 */
#include "schedule_run.h"
#include "tiny.h"

#define N_CTX     48
#define MOST_MADE 160 /* tokens of all texts, so that no input takes long */

enum guesser { BY_COPIES, BY_ITSELF, BY_PACKED, BY_SHALLOW, BY_ANOTHER, GUESSERS };

/* Made once, for all inputs. */
static struct tokenizer *tokenizer;
static struct model *models[TINY_SHAPES][GUESSERS];

static void make_all(void)
{
    for (int i = 0; i < TINY_SHAPES && !models[i][BY_ITSELF]; i++) {
        struct model **m = models[i];
        m[BY_ITSELF] = tiny_model(&tiny_shapes[i], STORAGE_F32, 2, N_CTX, 7);
        m[BY_ANOTHER] =
            tiny_model(&tiny_shapes[(i + 1) % TINY_SHAPES], STORAGE_F32, 1, N_CTX / 2, 8);
        m[BY_SHALLOW] = tiny_model(&tiny_shapes[i], STORAGE_F32, 1, N_CTX, 9);
        require(derived_create_packed(m[BY_ITSELF], STORAGE_Q4_0, NULL, &m[BY_PACKED], NULL) ==
                STATUS_OK);
    }
    if (!tokenizer)
        tokenizer = tiny_tokenizer();
}

static void read_sampler(struct sampler_params *p, struct choices *in)
{
    static const double temperatures[] = {0, 0.05, 0.3, 1, 3};
    const int how = next_byte(in), penalty = next_byte(in);
    *p = (struct sampler_params){.temperature = temperatures[how % COUNT(temperatures)],
                                 .top_k = how >> 3 & 3,
                                 .top_p = how & 32 ? 0.8 : 1,
                                 .min_p = how & 64 ? 0.05 : 0,
                                 .repeat_penalty = penalty & 1 ? 1.5 : 1,
                                 .repeat_last_n = (penalty >> 1) % 20 - 1};
}

static void read_texts(struct schedule_texts *t, struct choices *in)
{
    static const struct text stops[] = {{"abc", 3}, {"a", 1}, {"gh", 2}};
    const int what = next_byte(in);
    int left = MOST_MADE;
    read_sampler(&t->sampler, in);
    t->kv_storage = tiny_caches[what % COUNT(tiny_caches)];
    t->n_ctx = what & 4 ? N_CTX : N_CTX / 3;
    t->shifts = what & 128;
    t->shares = what & 8 && !t->shifts;
    t->n_keep = t->shifts ? next_byte(in) % (t->n_ctx - t->n_ctx / 2 + 1) : 0;
    t->ignore_eos = what & 16;
    t->stops = stops;
    t->n_stops = what >> 5 & 3;
    t->seed = (uint64_t)next_byte(in);
    do {
        const int i = t->n_texts++;
        t->n[i] = next_byte(in) % (N_CTX + 2);
        t->n[i] = t->n[i] < left ? t->n[i] : left;
        left -= t->n[i];
        t->n_prompt[i] = 1 + next_byte(in) % t->n_ctx;
        for (int k = 0; k < t->n_prompt[i]; k++)
            t->prompts[i][k] = next_byte(in) % TINY_VOCAB;
    } while (in->left > 0 && t->n_texts < RUN_TEXTS && left > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    static struct schedule_texts texts;
    static struct schedule_seen plain, drafted;
    struct err e; /* of texts that fail */
    make_all();
    const int who = next_byte(&in), places = next_byte(&in), many = next_byte(&in);
    struct model **const m = models[who % TINY_SHAPES];
    texts = (struct schedule_texts){.model = m[BY_ITSELF], .tokenizer = tokenizer};
    read_texts(&texts, &in);
    struct schedule_ways ways = {.n_slots = 1, .n_threads = 1};
    require(run_schedule(&texts, &ways, &plain, &e) == STATUS_OK);
    ways = (struct schedule_ways){.n_slots = 1 + places % 4,
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
