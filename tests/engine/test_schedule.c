/* Tests that the texts that a schedule decodes together, in any number of slots, threads and rows
 * at once, are those of a plain loop of session_feed and sampler_pick over one text after the
 * other. */
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "checkpoints.h"
#include "engine/schedule.h"
#include "faults.h"
#include "opened.h"

/* Checkpoints with a tokenizer, of every architecture. */
static const char *const paths[] = {
    "tests/data/golden/gqa.gguf",          "tests/data/golden/llama.gguf",
    "tests/data/golden/transformer.gguf",  "tests/data/golden/shared-block.gguf",
    "tests/data/golden/layerwise-kv.gguf", "tests/data/golden/mqa-f16.gguf",
    "tests/data/golden/alibi.gguf",        "tests/data/golden/quadratic.gguf",
    "tests/data/golden/mha.gguf",          "models/shakespeare-mha.gguf",
    "models/shakespeare-llama.gguf"};
enum { N_PATHS = COUNT(paths), COMBINATIONS = (SANITIZED ? 1 : 10) * N_PATHS };
enum { MOST_TEXTS = 7, MOST_PROMPT = 40, MOST_MADE = 40, MOST_BYTES = MOST_MADE * 64 };

/* What is decoded; each test is a process. */
static struct {
    struct checkpoint c;
    struct sampler_params sampler;
    enum cache_type cache;
    int n_ctx, n_texts, n_keep;
    bool shares; /* all have the first one's prompt: it is fed once */
    bool shifts, ignore_eos;
    int32_t prompts[MOST_TEXTS][MOST_PROMPT];
    int n_prompt[MOST_TEXTS], n[MOST_TEXTS];
    uint64_t seed;
    struct text stops[2];
    int n_stops;
} texts;

/* The result of a text. */
struct made {
    int32_t tokens[MOST_MADE];
    double logprob;       /* the sum of those of its tokens */
    uint64_t logits_hash; /* of all that they were sampled from */
    char bytes[MOST_BYTES];
    size_t n_bytes;
    int n;
    enum text_end end;
};

static void put_bytes(struct made *m, struct text t)
{
    ck_assert_uint_le(t.len, MOST_BYTES - m->n_bytes);
    if (t.len > 0) /* its data may be NULL */
        memcpy(m->bytes + m->n_bytes, t.data, t.len);
    m->n_bytes += t.len;
}

static void put_token(struct made *m, int32_t token, const float *logits, double log_sum)
{
    ck_assert_int_lt(m->n, MOST_MADE);
    m->tokens[m->n++] = token;
    m->logprob += (double)logits[token] - log_sum;
    m->logits_hash =
        hash_bytes(m->logits_hash, logits, texts.c.model->config.n_vocab * sizeof *logits);
}

/* --- the plain loop -------------------------------------------------------------------------- */

static struct sampler *new_sampler(int n_sequences, int n_threads)
{
    const struct sampler_sizes sizes = {texts.c.model->config.n_vocab, texts.n_ctx, n_sequences,
                                        n_threads};
    struct sampler *s;
    expect_ok(sampler_create(&texts.sampler, &sizes, &s, &err));
    return released_by(close_sampler, s);
}

/* Returns where the first stop string begins in what was made, or its end. */
static size_t before_stops(const struct made *m)
{
    for (size_t at = 0; at < m->n_bytes; at++)
        for (int i = 0; i < texts.n_stops; i++)
            if (texts.stops[i].len <= m->n_bytes - at &&
                memcmp(m->bytes + at, texts.stops[i].data, texts.stops[i].len) == 0)
                return at;
    return m->n_bytes;
}

/* Makes text i in the plain loop. A shift begins the context anew with the tokens that are left. */
static struct made made_plainly(int i)
{
    const struct session_params params = {.n_ctx = texts.n_ctx, .kv_type = kv_type_of(texts.cache)};
    struct session *session = new_session(texts.c.model, &params, NULL);
    struct sampler *sampler = new_sampler(1, 1);
    const int prompt = texts.shares ? 0 : i, n_vocab = texts.c.model->config.n_vocab;
    static int32_t text[1 << 13];
    int len = texts.n_prompt[prompt];
    float *logits = allocated((size_t)n_vocab * sizeof *logits);
    struct made m = {.end = END_LENGTH};
    bool going = texts.n[i] > 0;
    memcpy(text, texts.prompts[prompt], (size_t)len * sizeof *text);
    sampler_reset(sampler, 0, texts.seed, (uint64_t)i);
    for (int k = 0; k < len; k++)
        sampler_accept(sampler, 0, text[k]);
    while (going) {
        const int cached = session_len(session, 0);
        double log_sum;
        int token;
        expect_ok(session_feed(session, 0, text + cached, len - cached, logits, false, &err));
        expect_ok(sampler_pick(sampler, 0, 0, logits, &token, &err));
        expect_ok(logits_log_sum(logits, n_vocab, &log_sum, &err));
        if (!texts.ignore_eos && token == tokenizer_eos(texts.c.tokenizer)) {
            m.end = END_EOS;
            break;
        }
        sampler_accept(sampler, 0, token);
        put_token(&m, token, logits, log_sum);
        if (!tokenizer_is_special(texts.c.tokenizer, token))
            put_bytes(&m, tokenizer_bytes(texts.c.tokenizer, token));
        text[len++] = token;
        if (before_stops(&m) < m.n_bytes) {
            m.n_bytes = before_stops(&m);
            m.end = END_STOP;
            going = false;
        } else if (m.n == texts.n[i]) {
            going = false;
        } else if (len > texts.n_ctx && !texts.shifts) {
            m.end = END_CONTEXT;
            going = false;
        } else if (len > texts.n_ctx) {
            const int half = texts.n_ctx / 2 > 0 ? texts.n_ctx / 2 : 1;
            memmove(text + texts.n_keep, text + len - half, (size_t)half * sizeof *text);
            len = texts.n_keep + half;
            session_rewind(session, 0, 0);
        }
    }
    return m;
}

/* --- a schedule ------------------------------------------------------------------------------ */

struct ways {
    int n_slots, n_threads, block;
};

struct run {
    struct pool *pool;
    struct schedule schedule;
    void (*see)(const struct slot *slot); /* gets what a round made of it; may be NULL */
};

RELEASER(close_schedule, schedule_free)

/* Until the test ends, or release_all. */
static struct run *open_run(struct ways ways)
{
    const struct session_params params = {.n_sequences = ways.n_slots,
                                          .n_ctx = texts.n_ctx,
                                          .kv_type = kv_type_of(texts.cache),
                                          .block = ways.block};
    struct sampler *sampler = new_sampler(ways.n_slots, ways.n_threads);
    struct run *r = allocated_zeros(sizeof *r);
    r->pool = new_pool(ways.n_threads);
    r->schedule = (struct schedule){.session = new_session(texts.c.model, &params, r->pool),
                                    .sampler = sampler,
                                    .pool = r->pool,
                                    .tokenizer = texts.c.tokenizer,
                                    .n_slots = ways.n_slots,
                                    .n_vocab = texts.c.model->config.n_vocab,
                                    .ignore_eos = texts.ignore_eos,
                                    .wants_logprobs = true,
                                    .shifts = texts.shifts,
                                    .n_keep = texts.n_keep,
                                    .cap_rounds = 16};
    expect_ok(schedule_create(&r->schedule, &err));
    released_by(close_schedule, &r->schedule);
    return r;
}

/* Adds what a round made of a text; m may be NULL. */
static void take_slot(struct run *r, struct made *m, struct slot *p)
{
    if (r->see)
        r->see(p);
    if (m && p->has_token)
        put_token(m, p->token, p->logits, p->log_sum);
    if (m)
        put_bytes(m, p->ready);
    if (!m && p->state == SLOT_ENDED)
        schedule_finish(&r->schedule, p);
    if (!m || p->state != SLOT_ENDED)
        return;
    m->end = p->end;
    ck_assert_int_eq(m->n, p->n_sampled);
    ck_assert_double_eq(m->logprob, p->logprob);
    put_bytes(m, schedule_finish(&r->schedule, p));
}

/* Runs all texts, each as soon as a slot is vacant; those that share a prompt wait for the first
 * one's. */
static void make_all(struct run *r, struct made *made)
{
    struct schedule *s = &r->schedule;
    struct slot *p;
    if (made)
        memset(made, 0, (size_t)texts.n_texts * sizeof *made);
    for (int i = 0; i < texts.n_texts || s->n_busy > 0;) {
        for (;
             i < texts.n_texts && !(texts.shares && s->n_prefills > 0) && (p = schedule_vacant(s));
             i++) {
            const int prompt = texts.shares ? 0 : i;
            const struct request request = {.number = (uint64_t)i,
                                            .tokens = texts.prompts[prompt],
                                            .n_tokens = texts.n_prompt[prompt],
                                            .n = texts.n[i],
                                            .seed = texts.seed,
                                            .stream = (uint64_t)i,
                                            .stops = texts.stops,
                                            .n_stops = texts.n_stops};
            expect_ok(schedule_begin(s, p, &request, &err));
        }
        const enum status status = schedule_round(s, &err);
        if (status != STATUS_OK) /* an assertion takes memory, also where it holds */
            expect_ok(status);
        for (int slot = 0; slot < s->n_slots; slot++)
            if (s->slots[slot].logits)
                take_slot(r, made ? &made[s->slots[slot].request.number] : NULL, &s->slots[slot]);
    }
}

/* --- the same texts --------------------------------------------------------------------------- */

static double one_of(struct rng *r, const double *values, size_t n)
{
    return values[below(r, (int)n)];
}
#define ONE_OF(r, ...) one_of(r, (const double[]){__VA_ARGS__}, COUNT(((double[]){__VA_ARGS__})))

/* Makes one text of n tokens behind a prompt of three. */
static void open_texts(const char *path, int n)
{
    texts.c = opened_checkpoint(path, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER);
    texts.sampler = (struct sampler_params){.top_p = 1, .repeat_penalty = 1};
    texts.n_ctx = texts.c.model->config.n_ctx;
    texts.ignore_eos = true;
    texts.n_texts = 1;
    texts.n[0] = n;
    texts.n_prompt[0] = 3;
    memcpy(texts.prompts[0], (const int32_t[]){5, 6, 7}, 3 * sizeof(int32_t));
    texts.seed = 3;
}

/* A stop string is the bytes of some token, so that texts meet it. */
static void choose_texts(const char *path, struct rng *r)
{
    open_texts(path, 0);
    const int n_vocab = texts.c.model->config.n_vocab;
    texts.sampler = (struct sampler_params){.temperature = ONE_OF(r, 0, 0.2, 0.8, 1.5),
                                            .top_k = (int)ONE_OF(r, 0, 1, 5, 40),
                                            .top_p = ONE_OF(r, 1, 0.9, 0.3),
                                            .min_p = ONE_OF(r, 0, 0.05),
                                            .repeat_penalty = ONE_OF(r, 1, 1, 1.3, 0.7),
                                            .repeat_last_n = (int)ONE_OF(r, -1, 0, 3, 64)};
    texts.cache = below(r, CACHE_TYPES);
    texts.n_ctx = texts.n_ctx < 64 || below(r, 2) ? texts.n_ctx : 64;
    texts.n_texts = 1 + below(r, MOST_TEXTS);
    texts.shares = below(r, 3) == 0;
    texts.shifts = !texts.shares && below(r, 2);
    if (texts.shifts) {
        texts.n_ctx = 2 + below(r, 20);
        texts.n_keep = below(r, texts.n_ctx - texts.n_ctx / 2 + 1);
    }
    texts.seed = rng_u32(r);
    texts.ignore_eos = below(r, 2);
    for (int i = 0; i < texts.n_texts; i++) {
        texts.n_prompt[i] = 1 + below(r, texts.n_ctx < MOST_PROMPT ? texts.n_ctx : MOST_PROMPT);
        for (int k = 0; k < texts.n_prompt[i]; k++)
            texts.prompts[i][k] = below(r, n_vocab);
        texts.n[i] = (int)ONE_OF(r, 0, 1, 2, 9, 25, MOST_MADE);
    }
    texts.n_stops = below(r, 3);
    for (int i = 0; i < texts.n_stops; i++) {
        texts.stops[i] = tokenizer_bytes(texts.c.tokenizer, below(r, n_vocab));
        if (texts.stops[i].len == 0)
            texts.stops[i] = text_of("q");
    }
}

TEST(texts_are_those_of_a_plain_loop, .loops = COMBINATIONS)
{
    static struct made made[MOST_TEXTS];
    struct rng r;
    rng_seed(&r, 1, (uint64_t)_i);
    choose_texts(paths[_i % N_PATHS], &r);
    make_all(open_run((struct ways){.n_slots = 1 + below(&r, 5),
                                    .n_threads = 1 + below(&r, 3),
                                    .block = (int)ONE_OF(&r, 0, 0, 1, 3, 7, 16)}),
             made);
    for (int i = 0; i < texts.n_texts; i++) {
        const struct made expected = made_plainly(i);
        const char *path = paths[_i % N_PATHS];
        ck_assert_msg(made[i].n == expected.n && made[i].end == expected.end,
                      "%s, text %d: %d tokens, end %d; expected %d, %d", path, i, made[i].n,
                      made[i].end, expected.n, expected.end);
        ck_assert_mem_eq(made[i].tokens, expected.tokens, (size_t)expected.n * sizeof(int32_t));
        ck_assert_uint_eq(made[i].logits_hash, expected.logits_hash);
        ck_assert_uint_eq(made[i].n_bytes, expected.n_bytes);
        ck_assert_mem_eq(made[i].bytes, expected.bytes, expected.n_bytes);
    }
}

/* --- texts that go on ------------------------------------------------------------------------ */

enum { PROMPT = 3, FIRST = 9 };
static const int32_t said[] = {2, 4, 1};
enum { SAID = COUNT(said) };

/* Makes n tokens more of the slot's text, behind the tokens that are added. */
static struct made go_on(struct run *r, const int32_t *tokens, int n_tokens, int n)
{
    const struct request request = {
        .tokens = tokens, .n_tokens = n_tokens, .goes_on = true, .n = n};
    struct slot *p = schedule_vacant(&r->schedule);
    struct made m = {.n = 0};
    expect_ok(schedule_begin(&r->schedule, p, &request, &err));
    while (r->schedule.n_busy > 0) {
        expect_ok(schedule_round(&r->schedule, &err));
        if (p->logits)
            take_slot(r, &m, p);
    }
    return m;
}

/* A text that is made in pieces is the same as in one piece, whatever part of the context these
 * fill. Tokens that are added count as a prompt does, as do those that were made before. Picks are
 * greedy, because other pieces would draw other random numbers. */
TEST(a_text_goes_on, .loops = 6 * N_PATHS, .tags = ONE_THREAD)
{
    static struct made first;
    const int more = _i / N_PATHS - 3; /* positions that the first piece leaves; -3: enough */
    open_texts(paths[_i % N_PATHS], FIRST);
    if (more > -3) {
        texts.n_ctx = PROMPT + FIRST + more;
        texts.shifts = true;
        texts.n_keep = 2;
    }
    struct run *r = open_run((struct ways){1, 1, 0});
    make_all(r, &first);
    go_on(r, NULL, 0, 0);
    const struct made second = go_on(r, NULL, 0, FIRST);
    texts.n[0] = 2 * FIRST;
    const struct made whole = made_plainly(0);
    ck_assert_mem_eq(first.tokens, whole.tokens, FIRST * sizeof *said);
    ck_assert_mem_eq(second.tokens, whole.tokens + FIRST, FIRST * sizeof *said);
    if (texts.shifts)
        return;
    const struct made third = go_on(r, said, SAID, FIRST);
    memcpy(texts.prompts[0] + PROMPT, whole.tokens, 2 * FIRST * sizeof *said);
    memcpy(texts.prompts[0] + PROMPT + 2 * FIRST, said, sizeof said);
    texts.n_prompt[0] = PROMPT + 2 * FIRST + SAID;
    texts.n[0] = FIRST;
    const struct made expected = made_plainly(0);
    ck_assert_mem_eq(third.tokens, expected.tokens, FIRST * sizeof *said);
}

/* Tokens that are added behind a full context are a prompt; the tokens that the shift leaves are
 * fed again. */
TEST(a_shift_for_what_is_said_is_counted)
{
    static struct made first;
    open_texts(paths[0], FIRST);
    texts.n_ctx = PROMPT + FIRST + 2;
    texts.shifts = true;
    texts.n_keep = 2;
    struct run *r = open_run((struct ways){1, 1, 0});
    make_all(r, &first);
    ck_assert_int_eq(schedule_room(&r->schedule, 0), texts.n_ctx / 2);
    go_on(r, said, SAID, 1);
    const struct schedule_times *times = &r->schedule.times;
    ck_assert_uint_eq(times->n_shifts, 1);
    ck_assert_uint_eq(times->n_fed_again, (uint64_t)texts.n_ctx / 2 - SAID);
    ck_assert_uint_eq(times->n_sampled, FIRST + 1);
    ck_assert_uint_eq(times->n_decoded, FIRST - 1); /* the others came after prompts */

    /* A text that ends between a shift and the next step has fed nothing again. */
    const struct request goes_on = {.goes_on = true, .n = texts.n_ctx};
    struct slot *p = schedule_vacant(&r->schedule);
    expect_ok(schedule_begin(&r->schedule, p, &goes_on, &err));
    while (times->n_shifts < 2)
        expect_ok(schedule_round(&r->schedule, &err));
    schedule_finish(&r->schedule, p);
    ck_assert_uint_eq(times->n_fed_again, (uint64_t)texts.n_ctx / 2 - SAID);
}

/* --- ends and memory ------------------------------------------------------------------------- */

/* A text that is abandoned leaves its slot, also in the middle of its prompt, and the others do not
 * change. */
TEST(texts_are_abandoned)
{
    static struct made made[2];
    open_texts(paths[0], 20);
    struct run *r = open_run((struct ways){.n_slots = 2, .n_threads = 1, .block = 1});
    struct schedule *s = &r->schedule;
    const struct request long_one = {.tokens = texts.prompts[0], .n_tokens = PROMPT, .n = 9};
    for (int n_rounds = 0; n_rounds < 5; n_rounds++) {
        struct slot *p = schedule_vacant(s);
        expect_ok(schedule_begin(s, p, &long_one, &err));
        for (int i = 0; i < n_rounds; i++)
            expect_ok(schedule_round(s, &err));
        schedule_finish(s, p);
        ck_assert(schedule_vacant(s) == s->slots && s->n_busy == 0 && s->n_prefills == 0);
        expect_ok(schedule_round(s, &err)); /* of nothing */
    }
    make_all(r, made);
    const struct made expected = made_plainly(0);
    ck_assert_mem_eq(made[0].tokens, expected.tokens, 20 * sizeof *said);
}

/* A prompt that is in the cache is not fed again, whichever text left it there. */
TEST(a_prompt_is_fed_once)
{
    static struct made made[MOST_TEXTS];
    open_texts(paths[0], 9);
    texts.sampler.temperature = 1;
    texts.n_texts = MOST_TEXTS;
    texts.shares = true;
    for (int i = 1; i < MOST_TEXTS; i++)
        texts.n[i] = 3 + i;
    struct run *r = open_run((struct ways){3, 1, 0});
    make_all(r, made);
    ck_assert_uint_eq(r->schedule.times.n_prefilled, PROMPT);
    for (int i = 0; i < MOST_TEXTS; i++) {
        const struct made expected = made_plainly(i);
        ck_assert_uint_eq(made[i].logits_hash, expected.logits_hash);
    }
}

/* Counts calls that take memory, from the first token of a text to its last; an assertion takes
 * some, too. */
static long taken_first, taken_last;
static int n_seen;

static void count_calls(const struct slot *p)
{
    if (!p->has_token)
        return;
    taken_last = faults_report()->calls[FAULT_MEMORY];
    if (n_seen++ == 0)
        taken_first = taken_last;
}

TEST(stepping_takes_no_memory, .tags = ONE_THREAD)
{
    open_texts("models/shakespeare-mha.gguf", 100);
    texts.sampler.temperature = 1;
    faults_arm(&(struct fault_plan){.error = 0});
    struct run *r = open_run((struct ways){1, 2, 0});
    r->see = count_calls;
    make_all(r, NULL);
    faults_disarm();
    ck_assert(n_seen == 100 && taken_first > 0);
    ck_assert_int_eq(taken_last, taken_first);
}
