/* Drafts change no bit of what a schedule gives: random combinations of models, options,
 * threads, batches and drafts against the same without a draft. */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "faults.h"
#include "model/model.h"
#include "schedule_run.h"

/* Checkpoints with a tokenizer, of every architecture. */
static const char *const paths[] = {
    "tests/data/golden/gqa.gguf",          "tests/data/golden/llama.gguf",
    "tests/data/golden/transformer.gguf",  "tests/data/golden/shared-block.gguf",
    "tests/data/golden/layerwise-kv.gguf", "tests/data/golden/mqa-f16.gguf",
    "tests/data/golden/alibi.gguf",        "tests/data/golden/quadratic.gguf",
    "tests/data/golden/mha.gguf",          "tests/data/golden/mqa.gguf",
    "models/shakespeare-mha.gguf",         "models/shakespeare-llama.gguf"};
#define TRAINED "models/shakespeare-mha.gguf"
enum { N_PATHS = COUNT(paths), COMBINATIONS = SANITIZED ? 2 * N_PATHS : 240 };

static int below(struct rng *r, int n)
{
    return (int)(rng_u32(r) % (uint32_t)n);
}

static double one_of(struct rng *r, const double *values, size_t n)
{
    return values[below(r, (int)n)];
}
#define ONE_OF(r, ...) one_of(r, (const double[]){__VA_ARGS__}, COUNT(((double[]){__VA_ARGS__})))

/* --- what is decoded -------------------------------------------------------------------------- */

static struct schedule_texts texts; /* large; each test is a process */

/* One text of n tokens behind a prompt of three. */
static const struct model *one_text(const char *path, int n)
{
    const struct checkpoint c = opened_checkpoint(path, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER);
    texts = (struct schedule_texts){
        .model = c.model,
        .tokenizer = c.tokenizer,
        .sampler = {.temperature = 1, .top_p = 1, .repeat_penalty = 1.2, .repeat_last_n = 16},
        .n_ctx = c.model->config.n_ctx,
        .n_texts = 1,
        .n = {n},
        .n_prompt = {3},
        .prompts = {{5, 6, 7}},
        .seed = 3,
        .ignore_eos = true};
    return c.model;
}

/* A stop is bytes of some token, so that texts meet it. Half of the prompts repeat themselves. */
static const struct model *choose_texts(const char *path, struct rng *r)
{
    static struct text stops[2];
    static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    const struct model *m = one_text(path, 0);
    struct schedule_texts *t = &texts;
    t->sampler = (struct sampler_params){.temperature = ONE_OF(r, 0, 0.2, 0.8, 1.5),
                                         .top_k = (int)ONE_OF(r, 0, 1, 5, 40),
                                         .top_p = ONE_OF(r, 1, 0.9, 0.3),
                                         .min_p = ONE_OF(r, 0, 0.05),
                                         .repeat_penalty = ONE_OF(r, 1, 1, 1.3, 0.7),
                                         .repeat_last_n = (int)ONE_OF(r, -1, 0, 3, 64)};
    t->kv_storage = caches[below(r, 3)];
    t->n_ctx = t->n_ctx < 64 || below(r, 2) ? t->n_ctx : 64;
    t->n_texts = 1 + below(r, 7);
    t->shares = below(r, 3) == 0;
    t->shifts = !t->shares && below(r, 2);
    if (t->shifts) {
        t->n_ctx = 1 + below(r, 20);
        t->n_keep = below(r, t->n_ctx - t->n_ctx / 2 + 1);
    }
    t->seed = rng_u32(r);
    t->ignore_eos = below(r, 2);
    for (int i = 0; i < t->n_texts; i++) {
        const int period = below(r, 2) ? 1 + below(r, 5) : RUN_TOKENS;
        t->n_prompt[i] = 1 + below(r, t->n_ctx < 40 ? t->n_ctx : 40);
        for (int k = 0; k < t->n_prompt[i]; k++)
            t->prompts[i][k] =
                k >= period ? t->prompts[i][k - period] : below(r, m->config.n_vocab);
        t->n[i] = (int)ONE_OF(r, 0, 1, 2, 9, 25, 40);
    }
    t->stops = stops;
    t->n_stops = below(r, 3);
    for (int i = 0; i < t->n_stops; i++) {
        stops[i] = tokenizer_bytes(t->tokenizer, below(r, m->config.n_vocab));
        if (stops[i].len == 0)
            stops[i] = text_of("q");
    }
    return m;
}

static void free_model(void *m)
{
    model_free(m);
}

/* Of the same vocabulary, and nothing else in common; its context ends before the texts. Both until
 * the test ends. */
static struct model *random_model(const struct model *m, struct rng *r)
{
    struct model *out;
    struct config c = config_sized("gpt2", "layers=1 heads=2 width=32 ff=32");
    c.n_ctx = m->config.n_ctx < 24 ? m->config.n_ctx : 24;
    c.n_vocab = m->config.n_vocab;
    config_complete(&c);
    expect_ok(model_create_random(&c, STORAGE_F32, rng_u32(r), &out, &err));
    return released_by(free_model, out);
}

static struct model *packed_model(const struct model *m, enum storage storage)
{
    struct model *out = NULL;
    const enum status s = derived_create_packed(m, storage, NULL, &out, &err);
    return s == STATUS_OK ? released_by(free_model, out) : NULL;
}

/* NULL: lookup. */
static const struct model *choose_draft(const struct model *m, struct rng *r)
{
    const int kind = below(r, 5);
    if (kind < 2)
        return kind ? m : NULL;
    const struct model *own =
        kind > 2 ? packed_model(m, below(r, 2) ? STORAGE_Q4_0 : STORAGE_Q8_0) : NULL;
    return own ? own : random_model(m, r);
}

static struct schedule_ways choose_ways(struct rng *r)
{
    return (struct schedule_ways){.n_slots = 1 + below(r, 5),
                                  .n_threads = 1 + below(r, 3),
                                  .block = (int)ONE_OF(r, 0, 0, 1, 3, 7, 16)};
}

/* All of them one way. */
static struct schedule_seen see(struct schedule_ways ways)
{
    struct schedule_seen seen;
    expect_ok(run_schedule(&texts, &ways, &seen, &err));
    return seen;
}

/* With n tokens drafted, by a model or a lookup (NULL). */
static struct schedule_seen see_drafted(const struct model *draft, int n)
{
    return see((struct schedule_ways){
        .n_slots = 1, .n_threads = 1, .drafts = true, .draft = draft, .draft_n = n, .fixed = true});
}

/* --- the same texts --------------------------------------------------------------------------- */

TEST(texts_are_the_same, .loops = COMBINATIONS)
{
    struct rng r;
    rng_seed(&r, 1, (uint64_t)_i);
    const struct model *m = choose_texts(paths[_i % N_PATHS], &r);
    const struct schedule_seen plain = see(choose_ways(&r));
    struct schedule_ways ways = choose_ways(&r);
    ways.drafts = true;
    ways.draft_n = (int)ONE_OF(&r, 1, 2, 3, 5, 8, 32);
    ways.fixed = below(&r, 4) != 0;
    ways.draft = choose_draft(m, &r);
    const struct schedule_seen drafted = see(ways);
    ck_assert_msg(same_texts(&plain, &drafted, texts.n_texts), "%s: other texts",
                  paths[_i % N_PATHS]);
    ck_assert_uint_eq(plain.n_drafted, 0);
    ck_assert_uint_le(drafted.n_right, drafted.n_drafted);
    ck_assert_uint_eq(drafted.n_decoded, drafted.n_steps + drafted.n_right);
}

static int32_t sampled[RUN_TOKENS];

static void keep_token(const struct event *event)
{
    sampled[event->slot->n_sampled - 1] = event->token;
}

/* What comes after a shift is what comes after a prompt of the tokens that it leaves: of 3 + 14 the
 * first 2 and the last 8. */
TEST(a_shift_is_a_new_prompt, .loops = N_PATHS)
{
    const struct schedule_ways ways = {.n_slots = 1, .n_threads = 1, .see = keep_token};
    one_text(paths[_i], 14 + 2);
    texts.sampler = (struct sampler_params){.top_p = 1, .repeat_penalty = 1};
    texts.n_ctx = 16;
    texts.shifts = true;
    texts.n_keep = 2;
    struct schedule_seen seen = see(ways);
    ck_assert(seen.n_shifts == 1 && seen.n_sampled[0] == 16 && seen.end[0] == END_LENGTH);
    const int32_t first = sampled[14], second = sampled[15];
    memcpy(texts.prompts[0] + 2, sampled + 6, 8 * sizeof *sampled);
    texts.n_prompt[0] = 2 + 8;
    texts.n[0] = 2;
    seen = see(ways);
    ck_assert(seen.n_shifts == 0 && sampled[0] == first && sampled[1] == second);
}

/* --- what drafts are worth -------------------------------------------------------------------- */

/* The model is right about itself: it draws with the same numbers. 1 + 41 tokens, of which the
 * first needs no step, are ceil(41 / (k + 1)) steps. */
TEST(the_model_itself_is_always_right, .tags = ONE_THREAD)
{
    const struct model *m = one_text(TRAINED, 42);
    for (int k = 1; k <= 8; k++) {
        const struct schedule_seen seen = see_drafted(m, k);
        ck_assert_uint_eq(seen.n_right, seen.n_drafted);
        ck_assert_uint_eq(seen.n_steps, (uint64_t)(41 + k) / (uint64_t)(k + 1));
        ck_assert_uint_eq(seen.n_decoded, 41);
    }
}

/* A draft that drew with numbers of its own would be right sum_i p_i q_i of the time, 0.4 for this
 * one; with the model's it is right about as often as the two can agree at all. */
TEST(the_same_numbers_are_drawn, .tags = ONE_THREAD)
{
    const struct model *m = one_text(TRAINED, 200);
    const struct schedule_seen seen = see_drafted(packed_model(m, STORAGE_Q4_0), 1);
    ck_assert_uint_gt(seen.n_right * 10, seen.n_drafted * 7);
}

/* Greedy text of a small model runs into circles, which lookup follows. */
TEST(lookup_follows_a_circle, .tags = ONE_THREAD)
{
    one_text(TRAINED, 240);
    texts.sampler.temperature = 0;
    texts.sampler.repeat_penalty = 1;
    const struct schedule_seen seen = see_drafted(NULL, 4);
    ck_assert_uint_gt(3 * seen.n_decoded, 4 * seen.n_steps);
}

/* Calls that took memory, from the first token of a text to its last. */
static long taken_first, taken_last;

static void count_calls(const struct event *event)
{
    taken_last = faults_report()->calls[FAULT_MEMORY];
    if (event->slot->n_sampled == 1)
        taken_first = taken_last;
}

/* No draft, a lookup, a model. */
TEST(stepping_takes_no_memory, .loops = 3, .tags = ONE_THREAD)
{
    const struct model *m = one_text(TRAINED, 100);
    faults_arm(&(struct fault_plan){.error = 0});
    const struct schedule_seen seen = see((struct schedule_ways){.n_slots = 1,
                                                                 .n_threads = 2,
                                                                 .drafts = _i > 0,
                                                                 .draft = _i == 2 ? m : NULL,
                                                                 .draft_n = 4,
                                                                 .see = count_calls});
    faults_disarm();
    ck_assert(seen.n_sampled[0] == 100 && taken_first > 0);
    ck_assert_int_eq(taken_last, taken_first);
}

/* A draft without finite logits guesses nothing. */
TEST(a_draft_of_nans_is_left_out, .tags = ONE_THREAD)
{
    struct rng r;
    rng_seed(&r, 1, 1);
    struct model *bad = random_model(one_text(paths[0], 9), &r);
    *(float *)(uintptr_t)bad->w[ROLE_OUTPUT_NORM].norm.gain = NAN;
    const struct schedule_seen plain = see((struct schedule_ways){.n_slots = 1, .n_threads = 1});
    const struct schedule_seen seen = see_drafted(bad, 3);
    ck_assert(same_texts(&plain, &seen, 1) && seen.n_drafted == 0);
}
