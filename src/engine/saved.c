/*
 * A text in a file, little-endian:
 *
 *     magic [8] "DECSAVED", u64 version
 *     u64 model                      the hash of the model that made it
 *     u64 cache type                 an enum tensor_type: F32, F16, Q8_0
 *     u64 bytes of a position        see kv_cache_copy
 *     u64 n_text, n_cached, n_recent
 *     u64 rng state, rng increment, seed
 *     u64 at_end                     1: the model has ended the text; 0
 *     i32 text [n_text]              the tokens of its positions; the last may not be fed yet
 *     i32 recent [n_recent]          what the sampler remembers, the oldest first
 *     n_cached positions
 *     u64 hash of all before, part by part and position by position: see model/model.h
 */
#include <inttypes.h>

#include "engine/private.h"
#include "engine/schedule.h"
#include "model/pack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "texts are written as they are");

#define SAVED_VERSION 2

struct header {
    char magic[8];
    uint64_t version, model, cache_type, position_bytes;
    uint64_t n_text, n_cached, n_recent;
    struct rng stream;
    uint64_t seed, at_end;
};

static const char magic[8] = {'D', 'E', 'C', 'S', 'A', 'V', 'E', 'D'};

/* --- writing --------------------------------------------------------------------------------- */

enum status saved_write(const char *path, const struct schedule *s, int slot,
                        const struct saved_marks *marks, struct err *e)
{
    const struct slot *p = &s->slots[slot];
    const struct kv_cache *kv = &s->session->f.kv;
    /* Drafted tokens may stand behind the text. */
    const int n_cached = MIN(session_len(s->session, slot), p->len);
    struct header h = {.version = SAVED_VERSION,
                       .model = marks->model,
                       .cache_type = pack_type(s->session->shape.storage),
                       .position_bytes = kv_cache_copy(kv, slot, 0, NULL, NULL),
                       .n_text = p->len,
                       .n_cached = n_cached,
                       .n_recent = sampler_recent(s->sampler, slot, NULL),
                       .stream = *sampler_stream(s->sampler, slot),
                       .seed = marks->seed,
                       .at_end = p->at_end};
    const size_t text = p->len * sizeof *p->text, recent = h.n_recent * sizeof *p->text;
    const size_t bytes = MAX(recent, h.position_bytes);
    struct file_writer *writer;
    assert(p->len >= 1 && p->state == SLOT_VACANT);
    memcpy(h.magic, magic, sizeof magic);
    void *room = malloc(bytes); /* of the recent tokens, then of a position */
    if (!room)
        return err_no_memory(e, "a position of the cache", bytes);
    enum status status = file_writer_open(&writer, path, e);
    if (status == STATUS_OK) {
        sampler_recent(s->sampler, slot, room);
        uint64_t hash = fingerprint_of(
            fingerprint_of(fingerprint_of(0, &h, sizeof h), p->text, text), room, recent);
        file_writer_put(writer, &h, sizeof h);
        file_writer_put(writer, p->text, text);
        file_writer_put(writer, room, recent);
        for (int i = 0; i < n_cached; i++) {
            kv_cache_copy(kv, slot, i, room, NULL);
            hash = fingerprint_of(hash, room, h.position_bytes);
            file_writer_put(writer, room, h.position_bytes);
        }
        file_writer_put(writer, &hash, sizeof hash);
        status = file_writer_commit(writer, e);
    }
    free(room);
    return status;
}

/* --- reading --------------------------------------------------------------------------------- */

/* Whether it is such a file, and of such a session. What bounds the counts keeps all sums within 64
 * bits: a position's bytes times the context are the cache's, which is there. */
static enum status check_header(const struct header *h, const struct schedule *s, size_t len,
                                const char *path, struct err *e)
{
    const uint64_t cap = session_cap(s->session);
    const uint32_t type = pack_type(s->session->shape.storage);
    const struct tensor_type_info *was =
        h->cache_type <= UINT32_MAX ? tensor_type_find((uint32_t)h->cache_type) : NULL;
    if (h->cache_type != type)
        return err_usage(e, "%s: expected a cache of type %s, found %s; --kv-type changes it", path,
                         tensor_type_find(type)->name, was ? was->name : "an unknown one");
    if (h->position_bytes != kv_cache_copy(&s->session->f.kv, 0, 0, NULL, NULL) || h->n_text < 1 ||
        h->n_text > CONFIG_MAX_CTX + 1 || h->n_cached > h->n_text || h->n_recent > CONFIG_MAX_CTX ||
        !(h->stream.increment & 1) || h->at_end > 1)
        return err_bad_file(e,
                            "%s: damaged: it claims %" PRIu64 " tokens, %" PRIu64
                            " of them in the cache with %" PRIu64 " bytes each, %" PRIu64 " recent",
                            path, h->n_text, h->n_cached, h->position_bytes, h->n_recent);
    if (h->n_text > cap + 1 || h->n_cached > cap)
        return err_usage(e, "%s: it has %" PRIu64 " tokens, the context only %" PRIu64 ": raise -c",
                         path, h->n_text, cap);
    const uint64_t expected = sizeof *h + 4 * (h->n_text + h->n_recent) +
                              h->n_cached * h->position_bytes + sizeof(uint64_t);
    if (len != expected)
        return err_bad_file(e, "%s: expected %" PRIu64 " bytes, found %zu", path, expected, len);
    return STATUS_OK;
}

static int32_t token_at(const unsigned char *tokens, uint64_t i)
{
    int32_t token;
    memcpy(&token, tokens + 4 * i, sizeof token);
    return token;
}

enum status saved_take(const void *bytes, size_t len, const char *path, struct schedule *s,
                       int slot, uint64_t model, uint64_t *seed, struct err *e)
{
    struct slot *p = &s->slots[slot];
    struct header h;
    if (len < sizeof h || memcmp(bytes, magic, sizeof magic) != 0)
        return err_bad_file(e, "%s: expected a saved text, found another file", path);
    memcpy(&h, bytes, sizeof h);
    if (h.version != SAVED_VERSION)
        return err_bad_file(e, "%s: expected a saved text of version %d, found version %" PRIu64,
                            path, SAVED_VERSION, h.version);
    if (h.model != model)
        return err_usage(
            e, "%s: saved from another model, or from this one with other weights, heads or types",
            path);
    TRY(check_header(&h, s, len, path, e));

    const unsigned char *text = (const unsigned char *)bytes + sizeof h;
    const unsigned char *recent = text + 4 * h.n_text, *positions = recent + 4 * h.n_recent;
    const uint64_t n_tokens = h.n_text + h.n_recent;
    uint64_t stored, hash = fingerprint_of(0, &h, sizeof h);
    hash = fingerprint_of(fingerprint_of(hash, text, 4 * h.n_text), recent, 4 * h.n_recent);
    for (uint64_t i = 0; i < h.n_cached; i++)
        hash = fingerprint_of(hash, positions + i * h.position_bytes, h.position_bytes);
    memcpy(&stored, positions + h.n_cached * h.position_bytes, sizeof stored);
    if (hash != stored)
        return err_bad_file(e, "%s: damaged: its checksum is not that of its content", path);
    for (uint64_t i = 0; i < n_tokens; i++)
        if (token_at(text, i) < 0 || token_at(text, i) >= s->n_vocab)
            return err_bad_file(
                e, "%s: damaged: token %" PRIu64 ": expected an id from 0 to %d, found %d", path, i,
                s->n_vocab - 1, (int)token_at(text, i));

    session_rewind(s->session, slot, 0);
    assert(session_len(s->session, slot) == 0);
    for (uint64_t i = 0; i < h.n_cached; i++)
        kv_cache_copy(&s->session->f.kv, slot, s->session->len[slot]++, NULL,
                      positions + i * h.position_bytes);
    /* The text's tokens are the recent ones if a penalty began to ask for them just now; else those
     * that are remembered push them out, or are the same. */
    sampler_reset(s->sampler, slot, h.seed, 0);
    for (uint64_t i = 0; i < n_tokens; i++)
        sampler_accept(s->sampler, slot, token_at(text, i));
    *sampler_stream(s->sampler, slot) = h.stream;
    memcpy(p->text, text, h.n_text * sizeof *p->text);
    p->len = h.n_text;
    p->at_end = h.at_end;
    if (s->drafter) /* what it has seen is another text */
        drafter_begin(s->drafter, slot, p->text, p->len, 0);
    *seed = h.seed;
    return STATUS_OK;
}

enum status saved_read(const char *path, struct schedule *s, int slot, uint64_t model,
                       uint64_t *seed, struct err *e)
{
    struct file_map file;
    TRY(file_map_open(&file, path, e));
    /* What is checked is what is taken, even if the file is changed in the meantime. */
    enum status status = file_map_make_private(&file, file.len, e);
    THEN(status, saved_take(file.data, file.len, path, s, slot, model, seed, e));
    file_map_close(&file);
    return status;
}
