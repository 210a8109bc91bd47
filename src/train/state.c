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
#include <limits.h>
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

enum field_kind { FIELD_NUMBER, FIELD_REAL, FIELD_HASH };

/* In the order of the fields. */
static const struct field {
    const char *name;
    enum field_kind kind;
    const char *const *names; /* of the numbers from 0 on, NULL at the end; or NULL */
} fields[STATE_FIELDS] = {
    {"--norm", FIELD_NUMBER, arch_norm_names},
    {"--placement", FIELD_NUMBER, arch_placement_names},
    {"--position", FIELD_NUMBER, arch_position_names},
    {"--ffn", FIELD_NUMBER, arch_ffn_names},
    {"--no-bias", FIELD_HASH, NULL},
    {"--share-layers", FIELD_HASH, NULL},
    {"the model's shape", FIELD_HASH, NULL},
    {"the text", FIELD_HASH, NULL},
    {"--steps", FIELD_NUMBER, NULL},
    {"--batch", FIELD_NUMBER, NULL},
    {"--ctx", FIELD_NUMBER, NULL},
    {"--seed", FIELD_NUMBER, NULL},
    {"--lr", FIELD_REAL, NULL},
    {"--warmup", FIELD_NUMBER, NULL},
    {"--beta2", FIELD_REAL, NULL},
    {"--weight-decay", FIELD_REAL, NULL},
    {"--clip", FIELD_REAL, NULL},
    {"--val-fraction", FIELD_REAL, NULL},
    {"--eval-every", FIELD_NUMBER, NULL},
    {"--eval-every", FIELD_HASH, NULL},
    {"the teacher", FIELD_HASH, NULL},
    {"--teacher-weight", FIELD_REAL, NULL},
    {"--dropout", FIELD_REAL, NULL},
    {"--attn-dropout", FIELD_REAL, NULL},
    {"--label-smoothing", FIELD_REAL, NULL},
};
#define FIELD_STEPS 8
#define FIELD_SEED  11

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
        c->norm,
        c->placement,
        c->position,
        c->ffn,
        c->no_biases,
        c->shared,
        hash_of_shape(c, subject->list),
        subject->text_hash,
        (uint64_t)spec->n_steps,
        (uint64_t)spec->batch,
        (uint64_t)spec->length,
        spec->seed,
        double_bits(spec->lr),
        (uint64_t)spec->warmup,
        double_bits(spec->beta2),
        double_bits(spec->weight_decay),
        double_bits(spec->clip),
        double_bits(spec->val_fraction),
        (uint64_t)spec->eval_every,
        spec->keep_last,
        subject->teacher_hash,
        double_bits(spec->teacher_share),
        double_bits(spec->dropout),
        double_bits(spec->attn_dropout),
        double_bits(spec->label_smoothing),
    }};
}

static void format_field(char *out, size_t size, const struct field *f, uint64_t value)
{
    uint64_t known = 0;
    while (f->names && known < value && f->names[known])
        known++;
    if (f->names && f->names[known])
        snprintf(out, size, "%s", f->names[known]);
    else if (f->kind == FIELD_NUMBER)
        snprintf(out, size, "%" PRIu64, value);
    else
        snprintf(out, size, "%g", double_of(value));
}

enum status state_compare(const struct state *s, const struct identity *wanted, const char *path,
                          struct err *e)
{
    for (int i = 0; i < STATE_FIELDS; i++) {
        const uint64_t was = s->identity.fields[i], is = wanted->fields[i];
        if (was == is)
            continue;
        if (fields[i].kind == FIELD_HASH)
            return err_set(e, STATUS_USAGE,
                           "%s belongs to another run: %s was not the same; --resume needs the "
                           "same texts and options, without it the run begins anew",
                           path, fields[i].name);
        char before[32], now[32];
        format_field(before, sizeof before, &fields[i], was);
        format_field(now, sizeof now, &fields[i], is);
        return err_set(e, STATUS_USAGE,
                       "%s belongs to a run with %s %s, not %s; --resume needs the same options, "
                       "without it the run begins anew",
                       path, fields[i].name, before, now);
    }
    return STATUS_OK;
}

uint64_t state_seed(const struct state *s)
{
    return s->identity.fields[FIELD_SEED];
}

int state_steps(const struct state *s)
{
    const uint64_t steps = s->identity.fields[FIELD_STEPS];
    return steps < INT_MAX ? (int)steps : INT_MAX;
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
    memcpy(s->identity.fields, h.identity, sizeof h.identity);
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
    memcpy(h.identity, identity->fields, sizeof h.identity);
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
