/*
 * OUT.state, little-endian:
 *
 *     magic [8], u64 version
 *     u64 hashes of the text, the model's shape and the teacher, which must be the same to go on
 *     u64 bytes of the options
 *     u64 step, best_step, best (a double), rng state, rng increment, n_floats,
 *         n_trained
 *     u64 length of OUT in bytes, hash of OUT; the same of the OUT before
 *     options: a multiple of 8 bytes, the last one 0
 *     f32 weights [n_floats], m [n_trained], v [n_trained]
 *     u64 hash of all before
 */
#include "train/private.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/gguf_values.h"
#include "model/config_keys.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are written as they are");

#define STATE_VERSION 10

static const char magic[8] = {'D', 'E', 'C', 'T', 'R', 'A', 'I', 'N'};

/* --- whose state it is ----------------------------------------------------------------------- */

/* Hashes the keys that a checkpoint of this config is written with, so that nothing that tells
 * models apart can be left out. STATUS_NO_MEMORY. */
static enum status hash_config(uint64_t *hash, const struct config *c, struct err *e)
{
    struct gguf_writer *w;
    size_t len;
    TRY(gguf_writer_create(&w, e));
    config_write(c, w);
    const enum status s = gguf_write_hash(w, hash, &len, e);
    gguf_writer_free(w);
    return s;
}

enum status state_identify(struct trainer *t, struct err *e)
{
    TRY(hash_config(&t->shape_hash, &t->config, e));
    for (int i = 0; i < t->list.n; i++) {
        const struct tensor_spec *spec = &t->list.items[i].spec;
        const int shape[] = {spec->n_dims, spec->rows, spec->cols};
        t->shape_hash = hash_bytes(t->shape_hash, spec->name.text, strlen(spec->name.text) + 1);
        t->shape_hash = hash_bytes(t->shape_hash, shape, sizeof shape);
    }
    if (t->spec.teacher)
        TRY(hash_config(&t->teacher_hash, &t->teacher_config, e));
    /* The tensors that teach: a file may have others, of any size. */
    for (int i = 0; i < t->teacher_list.n; i++) {
        const struct gguf_tensor *tensor =
            gguf_find_tensor(t->spec.teacher, t->teacher_list.items[i].spec.name.text);
        t->teacher_hash = hash_bytes(t->teacher_hash, tensor->data, tensor->n_bytes);
    }
    return STATUS_OK;
}

enum status state_compare(const struct trainer *t, struct err *e)
{
    const struct state_header *h = &t->state.header;
    const struct train_progress *p = &h->progress;
    const bool same_shape = h->shape_hash == t->shape_hash && p->n_floats == t->list.n_floats &&
                            p->n_trained == t->list.n_trained;
    const char *other = !same_shape                          ? "the model's shape"
                        : h->text_hash != t->data_hash       ? "the text"
                        : h->teacher_hash != t->teacher_hash ? "the teacher"
                                                             : NULL;
    if (other)
        return err_usage(e,
                         "%s belongs to another run: %s was not the same; to begin anew name "
                         "another OUT",
                         t->state_path, other);
    if (p->step > t->spec.n_steps)
        return err_usage(e, "--steps %d: %s has made %d already", t->spec.n_steps, t->state_path,
                         (int)p->step);
    return STATUS_OK;
}

/* --- reading --------------------------------------------------------------------------------- */

enum status state_open(struct state_file *s, const char *path, struct err *e)
{
    const struct state_header *h = &s->header;
    const struct train_progress *p = &h->progress;
    if (access(path, F_OK) != 0)
        return err_usage(e,
                         "--resume: there is no %s to go on with; begin without --resume, with an "
                         "OUT that does not exist",
                         path);
    TRY(file_map_open(&s->file, path, e));
    const char *data = (const char *)s->file.data;
    const size_t len = s->file.len;
    if (len < sizeof *h || memcmp(data, magic, sizeof magic) != 0)
        return err_bad_file(e, "%s: expected a training state, found another file", path);
    memcpy(&s->header, data, sizeof *h);
    if (h->version != STATE_VERSION)
        return err_bad_file(e,
                            "%s: expected a training state of version %d, found version %" PRIu64,
                            path, STATE_VERSION, h->version);
    const uint64_t floats = u64_sum(u64_product(p->n_floats, sizeof(float)),
                                    u64_product(p->n_trained, 2 * sizeof(float)));
    s->options = text_span(data + sizeof *h, h->options_len);
    /* A cross-entropy below 0, that no later one could be better than, would keep the run from ever
     * writing OUT. */
    if (p->step < 0 || p->step > INT32_MAX || p->best_step < 0 || p->best_step > p->step ||
        !(p->best >= 0) || h->options_len % sizeof(uint64_t) != 0 ||
        u64_sum(u64_sum(sizeof *h + sizeof(uint64_t), h->options_len), floats) != len ||
        (s->options.len > 0 && s->options.data[s->options.len - 1] != 0))
        return err_bad_file(e,
                            "%s: damaged: it claims %" PRId64 " steps, the best %" PRId64
                            " with a loss of %g, %" PRIu64 " bytes of options and %" PRIu64
                            " weights, %" PRIu64 " of them trained, in %zu bytes",
                            path, p->step, p->best_step, p->best, h->options_len, p->n_floats,
                            p->n_trained, len);
    uint64_t stored;
    const size_t hashed = len - sizeof stored;
    memcpy(&stored, data + hashed, sizeof stored);
    if (hash_words(HASH_START, data, hashed) != stored)
        return err_bad_file(e, "%s: damaged: its checksum is not that of its content", path);
    return STATUS_OK;
}

void state_read(struct trainer *t)
{
    const struct state_file *s = &t->state;
    const size_t weights = t->list.n_floats * sizeof(float);
    const size_t moment = t->list.n_trained * sizeof(float);
    const unsigned char *at = s->file.data + sizeof s->header + s->options.len;
    memcpy(t->weights.flat, at, weights);
    memcpy(t->m, at + weights, moment);
    memcpy(t->v, at + weights + moment, moment);
}

/* --- writing --------------------------------------------------------------------------------- */

static void put(struct file_writer *w, uint64_t *hash, const void *data, size_t bytes)
{
    *hash = hash_words(*hash, data, bytes);
    file_writer_put(w, data, bytes);
}

enum status state_write(const struct trainer *t, struct err *e)
{
    const struct text options = t->spec.options;
    struct state_header h = {.version = STATE_VERSION,
                             .text_hash = t->data_hash,
                             .shape_hash = t->shape_hash,
                             .teacher_hash = t->teacher_hash,
                             .options_len = options.len,
                             .progress = t->progress};
    memcpy(h.magic, magic, sizeof magic);
    h.progress.n_floats = t->list.n_floats;
    h.progress.n_trained = t->list.n_trained;
    assert(options.len % sizeof(uint64_t) == 0);
    struct file_writer *w;
    TRY(file_writer_open(&w, t->state_path, e));
    const size_t moment = t->list.n_trained * sizeof(float);
    uint64_t hash = HASH_START;
    put(w, &hash, &h, sizeof h);
    put(w, &hash, options.data, options.len);
    put(w, &hash, t->weights.flat, t->list.n_floats * sizeof(float));
    put(w, &hash, t->m, moment);
    put(w, &hash, t->v, moment);
    file_writer_put(w, &hash, sizeof hash);
    return file_writer_commit(w, e);
}
