/*
 * fuzz_saved - the reader of saved texts: any bytes are taken or refused with a message, and what
 * is refused changes nothing. Then the input says what stands in a file for a tiny model, with the
 * identity, length and checksum that it has to have, as a stranger can make them: whatever its
 * tokens, its cache and its random stream hold, a text that is taken goes on, and the same with a
 * draft.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/private.h"
#include "engine/schedule.h"
#include "model/model.h"
#include "model/pack.h"
#include "schedule_run.h"
#include "target.h"
#include "tiny.h"

#define N_CTX     20
#define MODEL     12345
#define MOST_FILE 65536

/* Made once, for all inputs. */
static struct tokenizer *tokenizer;
static struct model *models[TINY_SHAPES];

static void make_all(void)
{
    if (tokenizer)
        return;
    tokenizer = tiny_tokenizer();
    for (int i = 0; i < TINY_SHAPES; i++)
        models[i] = tiny_model(i, 2, N_CTX, 7);
}

/* --- a text that goes on --------------------------------------------------------------------- */

/* Whose text, how it is drawn, and what is said: the model, the cache, the sampler, the end of the
 * context. */
static void read_texts(struct schedule_texts *t, struct choices *in)
{
    const int what = next_byte(in), how = next_byte(in), said = next_byte(in);
    *t = (struct schedule_texts){.model = models[what % TINY_SHAPES],
                                 .tokenizer = tokenizer,
                                 .kv_storage = tiny_caches[what / 4 % COUNT(tiny_caches)],
                                 .n_ctx = N_CTX,
                                 .n_texts = 1,
                                 .goes_on = true,
                                 .shifts = what & 64,
                                 .n_keep = what & 128 ? 3 : 0,
                                 .ignore_eos = how & 1,
                                 .n = {said % 32}};
    t->sampler = (struct sampler_params){.temperature = how & 2 ? 0.9 : 0,
                                         .top_p = 1,
                                         .repeat_penalty = how & 4 ? 1.5 : 1,
                                         .repeat_last_n = (how >> 3 & 15) - 1};
    t->n_prompt[0] = said >> 5;
    for (int i = 0; i < t->n_prompt[0]; i++)
        t->prompts[0][i] = i;
}

static enum status take(struct schedule_run *r, const void *bytes, size_t len)
{
    const struct slot *p = &r->schedule.slots[0];
    uint64_t seed;
    struct err e = {""};
    const enum status s = saved_take(bytes, len, "file", &r->schedule, 0, MODEL, &seed, &e);
    if (s == STATUS_OK) {
        require(p->len >= 1 && session_len(r->session, 0) <= p->len);
        return s;
    }
    require(s == STATUS_BAD_FILE || s == STATUS_USAGE);
    require(p->len == 0 && session_len(r->session, 0) == 0);
    require_message(&e);
    return s;
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
    struct err e;
    bool done = false;
    *seen = (struct schedule_seen){.n_drafted = 0};
    require(open_run(&r, t, &ways, &e) == STATUS_OK);
    if (take(&r, bytes, len) == STATUS_OK) {
        const int room = schedule_room(&r.schedule, 0);
        t->n_prompt[0] = t->n_prompt[0] < room ? t->n_prompt[0] : room;
        done = room >= 0;
    }
    if (done)
        require(run_texts(&r.schedule, t, &ways, NULL, seen, &e) == STATUS_OK);
    close_run(&r);
    return done;
}

/* --- a file ---------------------------------------------------------------------------------- */

/* The format of engine/schedule.h; the checksum is of its parts, one after the other. */
struct file {
    uint64_t hash;
    size_t len;
    unsigned char bytes[MOST_FILE];
};

static void put(struct file *f, const void *bytes, size_t len)
{
    require(len <= MOST_FILE - f->len);
    if (len == 0)
        return;
    memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
    f->hash = fingerprint_of(f->hash, bytes, len);
}

/* Few are none of the vocabulary's. */
static void put_tokens(struct file *f, int n, struct choices *in)
{
    int32_t tokens[256];
    for (int i = 0; i < n; i++) {
        const int byte = next_byte(in);
        tokens[i] = byte < 255 ? byte % TINY_VOCAB : next_byte(in) - 128;
    }
    put(f, tokens, (size_t)n * sizeof *tokens);
}

static void put_positions(struct file *f, int n, size_t bytes, struct choices *in)
{
    unsigned char position[4096];
    require(bytes <= sizeof position);
    for (int i = 0; i < n; i++) {
        for (size_t b = 0; b < bytes; b++)
            position[b] = (unsigned char)next_byte(in);
        put(f, position, bytes);
    }
}

static size_t position_bytes(const struct schedule_texts *t)
{
    const struct session_params p = {.kv_storage = t->kv_storage};
    struct session *s;
    struct err e;
    require(session_create(t->model, &p, NULL, &s, &e) == STATUS_OK);
    const size_t bytes = kv_cache_position_bytes(&s->f.kv);
    session_free(s);
    return bytes;
}

static void make_file(struct file *f, const struct schedule_texts *t, struct choices *in)
{
    const int n_text = next_byte(in) % (N_CTX + 3), n_cached = next_byte(in) % (N_CTX + 3),
              n_recent = next_byte(in) % 16;
    const size_t bytes = position_bytes(t);
    uint64_t random[3] = {0};
    for (int i = 0; i < 3; i++)
        random[i] = (uint64_t)next_byte(in) * 0x0101010101010101u;
    const uint64_t header[] = {0x4445564153434544u, /* "DECSAVED" */
                               2,
                               MODEL,
                               pack_type(t->kv_storage),
                               bytes,
                               (uint64_t)n_text,
                               (uint64_t)n_cached,
                               (uint64_t)n_recent,
                               random[0],
                               random[1],
                               random[2],
                               random[2] & 1};
    f->hash = 0;
    f->len = 0;
    put(f, header, sizeof header);
    put_tokens(f, n_text, in);
    put_tokens(f, n_recent, in);
    put_positions(f, n_cached, bytes, in);
    const uint64_t hash = f->hash;
    put(f, &hash, sizeof hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct file file;
    static struct schedule_texts texts;
    static struct schedule_seen plain, drafted;
    struct choices in = {data, size};
    make_all();
    read_texts(&texts, &in);
    run_file(&texts, data, size, false, &plain);
    make_file(&file, &texts, &in);
    const bool done = run_file(&texts, file.bytes, file.len, false, &plain);
    require(run_file(&texts, file.bytes, file.len, true, &drafted) == done);
    require(same_texts(&plain, &drafted, 1));
    return 0;
}
