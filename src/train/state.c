/*
 * OUT.state, little-endian:
 *
 *     magic [8], u64 version
 *     u64 identity [STATE_FIELDS]     what must be the same to go on; doubles as their bits
 *     u64 step, best_step, best (a double), rng state, rng increment, n_floats
 *     u64 length of OUT in bytes, hash of OUT, learning rate (a double)
 *     f32 weights [n_floats], m [n_floats], v [n_floats]
 *     u64 hash of all before
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are written as they are");

#define STATE_VERSION  4
#define PROGRESS_WORDS 9

struct header {
    char magic[8];
    uint64_t version;
    uint64_t identity[STATE_FIELDS];
    uint64_t progress[PROGRESS_WORDS];
};

static const char magic[8] = {'D', 'E', 'C', 'T', 'R', 'A', 'I', 'N'};

/* --- identity -------------------------------------------------------------------------------- */

static uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint64_t state_hash_config(uint64_t hash, const struct config *c)
{
    const int sizes[] = {c->n_heads, c->head_dim, config_value_dim(c), c->rope.n_dims};
    const double numbers[] = {(double)c->norm_eps, (double)c->embedding_scale, c->rope.base,
                              c->rope.scale};
    hash = train_hash(hash, c->arch->name, strlen(c->arch->name) + 1);
    hash = train_hash(hash, sizes, sizeof sizes);
    hash = train_hash(hash, numbers, sizeof numbers);
    for (int l = 0; l < c->n_layers; l++) {
        const int kv_heads = config_kv_heads(c, l);
        hash = train_hash(hash, &kv_heads, sizeof kv_heads);
        if (config_is_latent(c))
            hash = train_hash(hash, &c->latent[l], sizeof c->latent[l]);
    }
    return hash;
}

/* The tensors' shapes do not tell all of a config. */
static uint64_t hash_of_shape(const struct config *c, const struct param_list *list)
{
    uint64_t hash = state_hash_config(TRAIN_HASH_START, c);
    for (int i = 0; i < list->n; i++) {
        const struct tensor_spec *spec = &list->items[i].spec;
        const int shape[] = {spec->n_dims, spec->rows, spec->cols};
        hash = train_hash(hash, spec->name.text, strlen(spec->name.text) + 1);
        hash = train_hash(hash, shape, sizeof shape);
    }
    return hash;
}

struct identity state_identity(const struct train_spec *spec, const struct state_subject *subject)
{
    const struct config *c = subject->config;
    return (struct identity){{
        {"--norm", FIELD_NUMBER, c->norm},
        {"--placement", FIELD_NUMBER, c->placement},
        {"--position", FIELD_NUMBER, c->position},
        {"--ffn", FIELD_NUMBER, c->ffn},
        {"--no-bias", FIELD_HASH, c->no_biases},
        {"--share-layers", FIELD_HASH, c->shared},
        {"the model's shape", FIELD_HASH, hash_of_shape(c, subject->list)},
        {"the text", FIELD_HASH, subject->text_hash},
        [STATE_STEPS] = {"--steps", FIELD_NUMBER, (uint64_t)spec->n_steps},
        {"--batch", FIELD_NUMBER, (uint64_t)spec->batch},
        {"--ctx", FIELD_NUMBER, (uint64_t)spec->length},
        [STATE_SEED] = {"--seed", FIELD_NUMBER, spec->seed},
        {"--lr", FIELD_REAL, double_bits(spec->lr)},
        {"--warmup", FIELD_NUMBER, (uint64_t)spec->warmup},
        {"--beta2", FIELD_REAL, double_bits(spec->beta2)},
        {"--weight-decay", FIELD_REAL, double_bits(spec->weight_decay)},
        {"--clip", FIELD_REAL, double_bits(spec->clip)},
        {"--val-fraction", FIELD_REAL, double_bits(spec->val_fraction)},
        {"--eval-every", FIELD_NUMBER, (uint64_t)spec->eval_every},
        {"--eval-every", FIELD_HASH, spec->keep_last},
        {"the teacher", FIELD_HASH, subject->teacher_hash},
        {"--teacher-weight", FIELD_REAL, double_bits(spec->teacher_share)},
        {"--dropout", FIELD_REAL, double_bits(spec->dropout)},
        {"--attn-dropout", FIELD_REAL, double_bits(spec->attn_dropout)},
        {"--label-smoothing", FIELD_REAL, double_bits(spec->label_smoothing)},
    }};
}

/* The value of a field as its option has it; the first are kinds, which have names. */
static void format_field(char *out, size_t size, int field, bool is_real, uint64_t value)
{
    static const char *const *const kinds[] = {arch_norm_names, arch_placement_names,
                                               arch_position_names, arch_ffn_names};
    const char *const *names = field < 4 ? kinds[field] : NULL;
    uint64_t known = 0;
    while (names && known < value && names[known])
        known++;
    if (names && names[known])
        snprintf(out, size, "%s", names[known]);
    else if (!is_real)
        snprintf(out, size, "%" PRIu64, value);
    else
        snprintf(out, size, "%g", double_of(value));
}

enum status state_compare(const struct state *s, const struct identity *wanted, const char *path,
                          struct err *e)
{
    int i = 0;
    while (i < STATE_FIELDS && s->identity[i] == wanted->fields[i].value)
        i++;
    if (i == STATE_FIELDS)
        return STATUS_OK;
    const char *name = wanted->fields[i].name;
    if (wanted->fields[i].kind == FIELD_HASH)
        return err_set(e, STATUS_USAGE,
                       "%s belongs to another run: %s was not the same; --resume needs the "
                       "same texts and options, without it the run begins anew",
                       path, name);
    const bool is_real = wanted->fields[i].kind == FIELD_REAL;
    char before[32], now[32];
    format_field(before, sizeof before, i, is_real, s->identity[i]);
    format_field(now, sizeof now, i, is_real, wanted->fields[i].value);
    return err_set(e, STATUS_USAGE,
                   "%s belongs to a run with %s %s, not %s; --resume needs the same options, "
                   "without it the run begins anew",
                   path, name, before, now);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Of many bytes: FNV-1a over 64-bit words; the arrays' bytes are a multiple of 64. */
static uint64_t hash_words(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
}

enum status state_parse(struct state *s, const void *bytes, size_t len, const char *path,
                        struct err *e)
{
    struct header h;
    s->bytes = bytes;
    s->len = len;
    if (len < sizeof h)
        return err_set(e, STATUS_BAD_FILE, "%s: expected a training state, found only %zu bytes",
                       path, len);
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0)
        return err_set(e, STATUS_BAD_FILE, "%s: expected a training state, found another file",
                       path);
    if (h.version != STATE_VERSION)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected a training state of version %d, found version %" PRIu64, path,
                       STATE_VERSION, h.version);
    memcpy(s->identity, h.identity, sizeof h.identity);
    const double best = double_of(h.progress[2]);
    if (h.progress[0] > INT32_MAX || h.progress[1] > h.progress[0])
        return err_set(e, STATUS_BAD_FILE,
                       "%s: damaged: it claims %" PRIu64 " steps, the best of them %" PRIu64, path,
                       h.progress[0], h.progress[1]);
    /* A cross-entropy. One below 0, that no later one could be better than, would keep the run from
     * ever writing OUT. */
    if (!(best >= 0))
        return err_set(e, STATUS_BAD_FILE, "%s: damaged: it claims a best loss of %g", path, best);
    const double rate = double_of(h.progress[8]);
    if (!(rate >= 0 && rate <= TRAIN_MOST_RATE))
        return err_set(e, STATUS_BAD_FILE, "%s: damaged: it claims a learning rate of %g", path,
                       rate);
    s->progress = (struct progress){.step = (int)h.progress[0],
                                    .best_step = (int)h.progress[1],
                                    .best = best,
                                    .rate = rate,
                                    .rng = {h.progress[3], h.progress[4]},
                                    .out_len = h.progress[6],
                                    .out_hash = h.progress[7]};
    return STATUS_OK;
}

enum status state_open(struct state *s, const char *path, bool *found, struct err *e)
{
    *s = (struct state){.file = {.data = NULL}};
    *found = access(path, F_OK) == 0;
    if (!*found)
        return STATUS_OK;
    enum status status = file_map_open(&s->file, path, e);
    if (status == STATUS_OK)
        status = state_parse(s, s->file.data, s->file.len, path, e);
    if (status != STATUS_OK)
        state_close(s);
    return status;
}

void state_close(struct state *s)
{
    file_map_close(&s->file);
}

enum status state_read(const struct state *s, struct optimizer *o, const char *path, struct err *e)
{
    const size_t bytes = o->list->n_floats * sizeof(float);
    const size_t expected = sizeof(struct header) + 3 * bytes + sizeof(uint64_t);
    if (s->len != expected)
        return err_set(e, STATUS_BAD_FILE, "%s: expected %zu bytes, found %zu", path, expected,
                       s->len);
    const unsigned char *at = s->bytes;
    struct header h;
    memcpy(&h, at, sizeof h);
    if (h.progress[5] != o->list->n_floats)
        return err_set(e, STATUS_BAD_FILE, "%s: damaged: it claims %" PRIu64 " numbers of %zu",
                       path, h.progress[5], o->list->n_floats);
    uint64_t stored;
    memcpy(&stored, at + expected - sizeof stored, sizeof stored);
    if (hash_words(TRAIN_HASH_START, at, expected - sizeof stored) != stored)
        return err_set(e, STATUS_BAD_FILE, "%s: damaged: its checksum is not that of its content",
                       path);
    at += sizeof(struct header);
    memcpy(o->weights.flat, at, bytes);
    memcpy(o->m, at + bytes, bytes);
    memcpy(o->v, at + 2 * bytes, bytes);
    o->step = s->progress.step;
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

enum status state_write(const char *path, const struct identity *identity,
                        const struct progress *progress, const struct optimizer *o, struct err *e)
{
    struct header h = {.version = STATE_VERSION,
                       .progress = {(uint64_t)progress->step, (uint64_t)progress->best_step,
                                    double_bits(progress->best), progress->rng.state,
                                    progress->rng.increment, o->list->n_floats, progress->out_len,
                                    progress->out_hash, double_bits(progress->rate)}};
    memcpy(h.magic, magic, sizeof magic);
    for (int i = 0; i < STATE_FIELDS; i++)
        h.identity[i] = identity->fields[i].value;
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    const float *const arrays[] = {o->weights.flat, o->m, o->v};
    const size_t bytes = o->list->n_floats * sizeof(float);
    uint64_t hash = hash_words(TRAIN_HASH_START, &h, sizeof h);
    file_writer_put(w, &h, sizeof h);
    for (int i = 0; i < 3; i++) {
        hash = hash_words(hash, arrays[i], bytes);
        file_writer_put(w, arrays[i], bytes);
    }
    file_writer_put(w, &hash, sizeof hash);
    return file_writer_commit(w, e);
}
