/* A text that is saved and goes on elsewhere is the text that one run makes: of every architecture,
 * type of cache, sampler, with shifts and drafts; and no file that is bent is taken. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoints.h"
#include "engine/schedule.h"
#include "model/model.h"
#include "schedule_run.h"
#include "support.h"

enum { PROMPT = 5, FIRST = 9, SECOND = 23, MODEL = 12345, SEED = 7 };

static const char *const paths[] = {
    "tests/data/golden/gqa.gguf",          "tests/data/golden/llama.gguf",
    "tests/data/golden/transformer.gguf",  "tests/data/golden/shared-block.gguf",
    "tests/data/golden/layerwise-kv.gguf", "tests/data/golden/mqa-f16.gguf",
    "tests/data/golden/alibi.gguf",        "tests/data/golden/quadratic.gguf",
    "tests/data/golden/mha.gguf"};
#define N_PATHS (int)COUNT(paths)

/* --- one text in a schedule ------------------------------------------------------------------ */

/* A text in a schedule, and all that was made of it. */
struct talk {
    struct model *model;
    struct schedule_texts texts;
    struct schedule_ways ways;
    struct schedule_run run;
    int32_t made[4 * RUN_TOKENS];
    int n;
    enum text_end end;
};

static void close_talk(void *talk)
{
    struct talk *t = talk;
    close_run(&t->run);
    t->run = (struct schedule_run){.pool = NULL};
}

/* Anew, with what `texts` and `ways` say now. */
static void open_talk(struct talk *t)
{
    close_talk(t);
    t->n = 0;
    expect_ok(open_run(&t->run, &t->texts, &t->ways, &err));
}

/* Until the test ends. */
static struct talk *start_talk(const char *path)
{
    const struct checkpoint c = opened_checkpoint(path, CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER);
    struct talk *t = allocated_zeros(sizeof *t);
    t->model = c.model;
    t->texts = (struct schedule_texts){
        .model = c.model,
        .tokenizer = c.tokenizer,
        .n_ctx = c.model->config.n_ctx,
        .ignore_eos = true,
        .sampler = {.temperature = 0.9, .top_p = 1, .repeat_penalty = 1.3, .repeat_last_n = 6}};
    for (int i = 0; i < PROMPT; i++)
        t->texts.prompts[0][i] = (3 * i + 1) % c.model->config.n_vocab;
    t->ways = (struct schedule_ways){.n_slots = 1, .n_threads = 1};
    open_talk(t);
    return released_by(close_talk, t);
}

static void run(struct talk *t, const struct request *r)
{
    struct schedule *s = &t->run.schedule;
    bool given = false;
    for (struct event event; schedule_next(s, &event, &err);) {
        if (event.kind == EVENT_ROUND && !given) {
            expect_ok(schedule_begin(s, schedule_vacant(s), r, &err));
            given = true;
        } else if (event.kind == EVENT_SAMPLED) {
            ck_assert_int_lt(t->n, 4 * RUN_TOKENS);
            t->made[t->n++] = event.token;
        } else if (event.kind == EVENT_ENDED) {
            t->end = event.end;
            ck_assert_int_ne(event.end, END_FAILED);
        }
    }
    expect_ok(s->status);
}

/* n tokens more: of the prompt, or of the slot's text with what is said behind it. */
static void make(struct talk *t, int n, bool goes_on, const int32_t *said, int n_said)
{
    run(t, &(struct request){.tokens = goes_on ? said : t->texts.prompts[0],
                             .n_tokens = goes_on ? n_said : PROMPT,
                             .goes_on = goes_on,
                             .n = n,
                             .seed = SEED});
}

static void save(const struct talk *t, const char *path)
{
    const struct saved_marks marks = {MODEL, SEED};
    expect_ok(saved_write(path, &t->run.schedule, 0, &marks, &err));
}

static enum status load(struct talk *t, const char *path)
{
    uint64_t seed = 0;
    const enum status s = saved_read(path, &t->run.schedule, 0, MODEL, &seed, &err);
    ck_assert(s != STATUS_OK || seed == SEED);
    return s;
}

/* --- the same text --------------------------------------------------------------------------- */

/* Whole, then in two parts; shifts and drafts by turns. */
static void compare_parts(struct talk *t)
{
    const char *path = scratch_path("saved");
    open_talk(t);
    make(t, FIRST + SECOND, false, NULL, 0);
    static struct talk whole;
    whole = *t; /* but for its run */
    open_talk(t);
    make(t, FIRST, false, NULL, 0);
    save(t, path);
    ck_assert_int_eq(t->n, FIRST);
    ck_assert_mem_eq(t->made, whole.made, FIRST * sizeof *whole.made);
    open_talk(t);
    expect_ok(load(t, path));
    make(t, SECOND, true, NULL, 0);
    ck_assert_int_eq(t->n, whole.n - FIRST);
    ck_assert_mem_eq(t->made, whole.made + FIRST, (size_t)t->n * sizeof *whole.made);
    ck_assert_int_eq(t->end, whole.end);
}

TEST(two_parts_are_one_text, .loops = N_PATHS)
{
    static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    struct talk *t = start_talk(paths[_i]);
    for (size_t k = 0; k < COUNT(storages); k++) {
        t->texts.kv_storage = storages[k];
        t->texts.n_ctx = t->model->config.n_ctx;
        t->texts.shifts = t->ways.drafts = false;
        compare_parts(t);
        t->ways.drafts = true;
        t->ways.draft_n = 3;
        compare_parts(t);
        /* The prompt and the first part fill the context, but for the token that is not fed. */
        for (int more = -2; more < 3; more++) {
            t->texts.n_ctx = PROMPT + FIRST + more;
            t->texts.shifts = true;
            t->texts.n_keep = 2;
            compare_parts(t);
        }
        t->texts.sampler.repeat_last_n = k == 0 ? -1 : 0;
    }
}

static const int32_t said[] = {2, 4, 1};
enum { SAID = COUNT(said) };

/* A text that goes on in its own schedule, with something said, is that of all its tokens as a
 * prompt: greedily, for the random numbers would be others. */
TEST(what_is_said_is_a_prompt, .loops = N_PATHS)
{
    struct talk *t = start_talk(paths[_i]);
    t->texts.sampler.temperature = 0;
    t->texts.sampler.repeat_penalty = 1;
    t->ways.drafts = true;
    t->ways.draft_n = 3;
    open_talk(t);
    make(t, FIRST, false, NULL, 0);
    make(t, 0, true, NULL, 0);
    make(t, FIRST, true, said, SAID);
    ck_assert_int_eq(t->n, 2 * FIRST);
    int32_t all[PROMPT + FIRST + SAID], expected[FIRST];
    memcpy(all, t->texts.prompts[0], PROMPT * sizeof *all);
    memcpy(all + PROMPT, t->made, FIRST * sizeof *all);
    memcpy(all + PROMPT + FIRST, said, sizeof said);
    memcpy(expected, t->made + FIRST, sizeof expected);
    open_talk(t);
    run(t, &(struct request){.tokens = all, .n_tokens = COUNT(all), .n = FIRST, .seed = SEED});
    ck_assert_mem_eq(t->made, expected, sizeof expected);
}

/* What is said behind a full context is a prompt; the tokens that it leaves are fed again. */
TEST(a_shift_for_what_is_said_is_counted)
{
    struct talk *t = start_talk(paths[0]);
    t->texts.n_ctx = PROMPT + FIRST + 2;
    t->texts.shifts = true;
    t->texts.n_keep = 2;
    open_talk(t);
    make(t, FIRST, false, NULL, 0);
    make(t, 1, true, said, SAID);
    const struct schedule_times *times = &t->run.schedule.times;
    ck_assert_uint_eq(times->n_shifts, 1);
    ck_assert_uint_eq(times->n_fed_again, (PROMPT + FIRST + 2) / 2 - SAID);
    ck_assert_uint_eq(times->n_prefilled - times->n_fed_again, PROMPT + SAID);
}

/* --- files that are refused ------------------------------------------------------------------ */

/* A small file, its bytes and where they are taken. */
struct image {
    struct talk *talk;
    char *bytes;
    size_t len;
};

static struct image make_image(void)
{
    struct image i = {.talk = start_talk(paths[0])};
    const char *path = scratch_path("saved");
    i.talk->texts.n_ctx = 12;
    open_talk(i.talk);
    make(i.talk, 3, false, NULL, 0);
    save(i.talk, path);
    i.bytes = file_text(path, &i.len);
    return i;
}

static enum status take(struct image *i, const void *bytes, size_t len)
{
    uint64_t seed;
    return saved_take(bytes, len, "a file", &i->talk->run.schedule, 0, MODEL, &seed, &err);
}

/* Every length, in memory of its own, so that a byte too far is seen; then any bit that is turned:
 * of the header, of the tokens, of the cache, of the checksum. */
TEST(every_length_and_bit_is_checked)
{
    struct image i = make_image();
    const int before = i.talk->run.schedule.slots[0].len;
    for (size_t len = 0; len < i.len; len++) {
        char *exact = malloc(len ? len : 1);
        memcpy(exact, i.bytes, len);
        ck_assert_int_eq(take(&i, exact, len), STATUS_BAD_FILE);
        free(exact);
    }
    for (size_t at = 0; at < i.len; at += at < 256 ? 1 : 37)
        for (int bit = 0; bit < 8; bit++) {
            i.bytes[at] = (char)(i.bytes[at] ^ 1 << bit);
            const enum status s = take(&i, i.bytes, i.len);
            ck_assert_msg(s == STATUS_BAD_FILE || s == STATUS_USAGE, "byte %zu, bit %d", at, bit);
            i.bytes[at] = (char)(i.bytes[at] ^ 1 << bit);
        }
    ck_assert_int_eq(i.talk->run.schedule.slots[0].len, before);
    expect_ok(take(&i, i.bytes, i.len));
}

/* 64-bit words of the header, with what is said of them. */
TEST(a_bent_field_is_named)
{
    static const struct {
        int word;
        uint64_t value;
        enum status status;
        const char *says;
    } bent[] = {
        {0, 1, STATUS_BAD_FILE, "found another file"},
        {1, 1, STATUS_BAD_FILE, "version 2, found version 1"},
        {2, 1, STATUS_USAGE, "another model"},
        {3, 1, STATUS_USAGE, "type F32, found F16"},
        {3, UINT64_MAX, STATUS_USAGE, "an unknown one"},
        {4, 1, STATUS_BAD_FILE, "with 1 bytes each"},
        {5, 0, STATUS_BAD_FILE, "it claims 0 tokens"},
        {5, UINT64_MAX, STATUS_BAD_FILE, "it claims"},
        {5, 14, STATUS_USAGE, "raise -c"},
        {6, 9, STATUS_BAD_FILE, "it claims"},
        {6, 6, STATUS_BAD_FILE, "bytes, found"},
        {7, UINT64_MAX / 4, STATUS_BAD_FILE, "it claims"},
        {7, 5, STATUS_BAD_FILE, "bytes, found"},
        {9, 2, STATUS_BAD_FILE, "it claims"},
        {10, 2, STATUS_BAD_FILE, "checksum"},
        {11, 2, STATUS_BAD_FILE, "it claims"},
    };
    struct image i = make_image();
    for (size_t k = 0; k < COUNT(bent); k++) {
        uint64_t was;
        memcpy(&was, i.bytes + 8 * bent[k].word, 8);
        memcpy(i.bytes + 8 * bent[k].word, &bent[k].value, 8);
        expect_status(take(&i, i.bytes, i.len), bent[k].status, bent[k].says);
        memcpy(i.bytes + 8 * bent[k].word, &was, 8);
    }
    expect_ok(take(&i, i.bytes, i.len));
}

/* Another process may write the file while it is read: what was checked is what is taken. */
TEST(a_file_that_changes_while_it_is_read)
{
    const char *path = scratch_path("saved");
    struct talk *t = start_talk(paths[0]);
    make(t, FIRST, false, NULL, 0);
    save(t, path);
    const int32_t wrong = -1, right = t->run.schedule.slots[0].text[0];
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = open(path, O_WRONLY);
        alarm(30);
        for (;;) /* the first token of the text, behind the header */
            if (pwrite(fd, &wrong, 4, 96) != 4 || pwrite(fd, &right, 4, 96) != 4)
                _exit(1);
    }
    for (int i = 0; i < 500; i++) {
        const enum status s = load(t, path);
        ck_assert(s == STATUS_OK || s == STATUS_BAD_FILE);
        ck_assert_int_eq(t->run.schedule.slots[0].text[0], right);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* --- fingerprints ---------------------------------------------------------------------------- */

TEST(models_have_fingerprints)
{
    uint64_t seen[N_PATHS];
    for (int i = 0; i < N_PATHS; i++) {
        struct model *again = opened_checkpoint(paths[i], CHECKPOINT_MODEL).model;
        seen[i] = model_fingerprint(opened_checkpoint(paths[i], CHECKPOINT_MODEL).model);
        ck_assert_uint_eq(seen[i], model_fingerprint(again));
        for (int j = 0; j < i; j++)
            ck_assert_uint_ne(seen[i], seen[j]);
        float *gain = (float *)(uintptr_t)again->blocks[0].w[ROLE_FFN_NORM].norm.gain;
        if (gain) {
            gain[0] += 1;
            ck_assert_uint_ne(seen[i], model_fingerprint(again));
        }
    }
}
