/*
 * fuzz_saved - the reader of saved texts: any bytes are taken or refused with a message, and what
 * is refused changes nothing. Then the input says what stands in a file for a tiny model, with the
 * identity, length and checksum that it has to have, as a stranger can make them: whatever its
 * tokens, its cache and its random stream hold, a text that is taken goes on, and the same with a
 * draft.
 */
#include "engine/private.h"
#include "engine/schedule.h"
#include "model/pack.h"
#include "schedule_run.h"
#include "tiny.h"

#define N_CTX     20
#define MODEL     12345
#define MOST_FILE 65536

/* --- a text that goes on --------------------------------------------------------------------- */

/* Whose text, how it is drawn, and what is said: the model, the cache, the sampler, the end of the
 * context. Models and the tokenizer are made once, for all inputs. */
static void read_texts(struct schedule_texts *t, struct choices *in)
{
    static struct tokenizer *tokenizer;
    static struct model *models[TINY_SHAPES];
    const int what = next_byte(in), how = next_byte(in), said = next_byte(in);
    struct model **model = &models[what % TINY_SHAPES];
    if (!*model)
        *model = tiny_model(&tiny_shapes[what % TINY_SHAPES], STORAGE_F32, 2, N_CTX, 7);
    if (!tokenizer)
        tokenizer = tiny_tokenizer();
    *t = (struct schedule_texts){.model = *model,
                                 .tokenizer = tokenizer,
                                 .kv_storage = tiny_caches[what / 4 % 3],
                                 .n_ctx = N_CTX,
                                 .n_texts = 1,
                                 .goes_on = true,
                                 .shifts = what & 64,
                                 .n_keep = what & 128 ? 3 : 0,
                                 .ignore_eos = how & 1,
                                 .n = {said % 32},
                                 .n_prompt = {said >> 5},
                                 .prompts = {{0, 1, 2, 3, 4, 5, 6}},
                                 .sampler = {.temperature = how & 2 ? 0.9 : 0,
                                             .top_p = 1,
                                             .repeat_penalty = how & 4 ? 1.5 : 1,
                                             .repeat_last_n = (how >> 3 & 15) - 1}};
}

static bool take(struct schedule_run *r, const void *bytes, size_t len)
{
    const struct slot *p = &r->schedule.slots[0];
    uint64_t seed;
    struct err e = {""};
    const enum status s = saved_take(bytes, len, "file", &r->schedule, 0, MODEL, &seed, &e);
    if (s == STATUS_OK) {
        require(p->len >= 1 && session_len(r->session, 0) <= p->len);
    } else {
        require_refusal(s, &e);
        require(s != STATUS_FAILED && p->len == 0 && session_len(r->session, 0) == 0);
    }
    return s == STATUS_OK;
}

/* What the text of a file goes on with; false: it was refused, or has no room. */
static bool run_file(struct schedule_texts *t, const void *bytes, size_t len, bool drafts,
                     struct schedule_seen *seen)
{
    const struct schedule_ways ways = {.n_slots = 1,
                                       .n_threads = 1,
                                       .block = drafts ? 3 : 0,
                                       .drafts = drafts,
                                       .draft_n = 4,
                                       .fixed = true};
    struct schedule_run r = {.pool = NULL};
    bool done = false;
    *seen = (struct schedule_seen){.n_drafted = 0};
    require(open_run(&r, t, &ways, NULL) == STATUS_OK);
    if (take(&r, bytes, len)) {
        const int room = schedule_room(&r.schedule, 0);
        t->n_prompt[0] = t->n_prompt[0] < room ? t->n_prompt[0] : room;
        done = room >= 0;
    }
    struct err e; /* of texts that fail */
    if (done)
        require(run_texts(&r.schedule, t, &ways, NULL, seen, &e) == STATUS_OK);
    close_run(&r);
    return done;
}

/* --- a file ---------------------------------------------------------------------------------- */

/* The format of engine/schedule.h; the checksum is of its parts, one after the other. */
static struct file {
    uint64_t hash;
    size_t len;
    unsigned char bytes[MOST_FILE];
} file;

static void put(const void *bytes, size_t len)
{
    require(len <= MOST_FILE - file.len);
    if (len == 0)
        return;
    memcpy(file.bytes + file.len, bytes, len);
    file.len += len;
    file.hash = fingerprint_of(file.hash, bytes, len);
}

/* Few are none of the vocabulary's. */
static void put_tokens(int n, struct choices *in)
{
    int32_t tokens[256];
    for (int i = 0; i < n; i++) {
        const int byte = next_byte(in);
        tokens[i] = byte < 255 ? byte % TINY_VOCAB : next_byte(in) - 128;
    }
    put(tokens, (size_t)n * sizeof *tokens);
}

static void put_positions(int n, size_t bytes, struct choices *in)
{
    unsigned char position[4096];
    require(bytes <= sizeof position);
    for (int i = 0; i < n; i++) {
        for (size_t b = 0; b < bytes; b++)
            position[b] = (unsigned char)next_byte(in);
        put(position, bytes);
    }
}

static size_t position_bytes(const struct schedule_texts *t)
{
    const struct session_params p = {.kv_storage = t->kv_storage};
    struct session *s;
    require(session_create(t->model, &p, NULL, &s, NULL) == STATUS_OK);
    const size_t bytes = kv_cache_copy(&s->f.kv, 0, 0, NULL, NULL);
    session_free(s);
    return bytes;
}

static void make_file(const struct schedule_texts *t, struct choices *in)
{
    enum { TEXT = 5, CACHED, RECENT, RANDOM };
    const size_t bytes = position_bytes(t);
    uint64_t header[12] = {0x4445564153434544u /* "DECSAVED" */, 2, MODEL, pack_type(t->kv_storage),
                           bytes};
    header[TEXT] = (uint64_t)next_byte(in) % (N_CTX + 3);
    header[CACHED] = (uint64_t)next_byte(in) % (N_CTX + 3);
    header[RECENT] = (uint64_t)next_byte(in) % 16;
    for (int i = 0; i < 3; i++)
        header[RANDOM + i] = (uint64_t)next_byte(in) * 0x0101010101010101u;
    header[11] = header[RANDOM + 2] & 1;
    file.hash = 0;
    file.len = 0;
    put(header, sizeof header);
    put_tokens((int)header[TEXT], in);
    put_tokens((int)header[RECENT], in);
    put_positions((int)header[CACHED], bytes, in);
    const uint64_t hash = file.hash;
    put(&hash, sizeof hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct schedule_texts texts;
    static struct schedule_seen plain, drafted;
    struct choices in = {data, size};
    read_texts(&texts, &in);
    run_file(&texts, data, size, false, &plain);
    make_file(&texts, &in);
    const bool done = run_file(&texts, file.bytes, file.len, false, &plain);
    require(run_file(&texts, file.bytes, file.len, true, &drafted) == done);
    require(same_texts(&plain, &drafted, 1));
    return 0;
}
