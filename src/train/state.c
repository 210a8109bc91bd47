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
#include "train/state.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/replace.h"
#include "formats/gguf_values.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are written as they are");

#define STATE_VERSION 5

static const char magic[8] = {'D', 'E', 'C', 'T', 'R', 'A', 'I', 'N'};

/* --- identity -------------------------------------------------------------------------------- */

/* What must be the same for a state to be of this run, in the order of the file: members of struct
 * trainer, and what messages call them. */
static const struct field {
    const char *name;
    /* The last two are told without values. */
    enum { FIELD_INT, FIELD_U64, FIELD_REAL, FIELD_FLAG, FIELD_HASH } kind;
    size_t offset;
    const char *const *choices; /* names of an int's values; NULL: numbers */
} fields[STATE_FIELDS] = {
#define FIELD(kind, name, ...)                                                                     \
    {                                                                                              \
        name, FIELD_##kind, offsetof(struct trainer, __VA_ARGS__), NULL                            \
    }
#define CHOICE(name, member, names)                                                                \
    {                                                                                              \
        name, FIELD_INT, offsetof(struct trainer, member), names                                   \
    }
    CHOICE("--norm", config.norm, arch_norm_names),
    CHOICE("--placement", config.placement, arch_placement_names),
    CHOICE("--position", config.position, arch_position_names),
    CHOICE("--ffn", config.ffn, arch_ffn_names),
    FIELD(FLAG, "--no-bias", config.no_biases),
    FIELD(FLAG, "--share-layers", config.shared),
    FIELD(HASH, "the model's shape", shape_hash),
    FIELD(HASH, "the text", data.hash),
    FIELD(INT, "--steps", spec.n_steps),
    FIELD(INT, "--batch", spec.batch),
    FIELD(INT, "--ctx", spec.length),
    [STATE_SEED] = FIELD(U64, "--seed", spec.seed),
    FIELD(REAL, "--lr", spec.lr),
    CHOICE("--optimizer", spec.optimizer, train_optimizers),
    FIELD(INT, "--warmup", spec.warmup),
    FIELD(REAL, "--beta2", spec.beta2),
    FIELD(REAL, "--weight-decay", spec.weight_decay),
    FIELD(REAL, "--clip", spec.clip),
    FIELD(REAL, "--val-fraction", spec.val_fraction),
    FIELD(INT, "--eval-every", spec.eval_every),
    FIELD(FLAG, "--eval-every", spec.keep_last),
    FIELD(HASH, "the teacher", teacher_hash),
    FIELD(REAL, "--teacher-weight", spec.teacher_share),
    FIELD(REAL, "--dropout", spec.dropout),
    FIELD(REAL, "--attn-dropout", spec.attn_dropout),
    FIELD(REAL, "--label-smoothing", spec.label_smoothing),
#undef FIELD
#undef CHOICE
};

/* All of a config that tells models apart and is no tensor's shape. */
static uint64_t hash_config(uint64_t hash, const struct config *c)
{
    const int sizes[] = {c->n_heads, c->head_dim, config_value_dim(c), c->rope.n_dims};
    const double numbers[] = {(double)c->norm_eps, (double)c->embedding_scale, c->rope.base,
                              c->rope.scale};
    hash = hash_bytes(hash, c->arch->name, strlen(c->arch->name) + 1);
    hash = hash_bytes(hash, sizes, sizeof sizes);
    hash = hash_bytes(hash, numbers, sizeof numbers);
    if (c->score_scale != 0)
        hash = hash_bytes(hash, &c->score_scale, sizeof c->score_scale);
    if (c->score != SCORE_DOT)
        hash = hash_bytes(hash, arch_score_names[c->score], 1);
    for (int l = 0; l < c->n_layers; l++) {
        const int kv_heads = config_kv_heads(c, l);
        hash = hash_bytes(hash, &kv_heads, sizeof kv_heads);
    }
    return hash;
}

void state_identify(struct trainer *t)
{
    const struct config *c = &t->teacher_config;
    const unsigned kinds[] = {c->norm, c->placement, c->position, c->ffn};
    t->shape_hash = hash_config(HASH_START, &t->config);
    for (int i = 0; i < t->list.n; i++) {
        const struct tensor_spec *spec = &t->list.items[i].spec;
        const int shape[] = {spec->n_dims, spec->rows, spec->cols};
        t->shape_hash = hash_bytes(t->shape_hash, spec->name.text, strlen(spec->name.text) + 1);
        t->shape_hash = hash_bytes(t->shape_hash, shape, sizeof shape);
    }
    if (t->spec.teacher)
        t->teacher_hash = hash_config(hash_bytes(HASH_START, kinds, sizeof kinds), c);
    /* The tensors that teach: a file may have others, of any size. */
    for (int i = 0; i < t->teacher_list.n; i++) {
        const struct gguf_tensor *tensor =
            gguf_find_tensor(t->spec.teacher, t->teacher_list.items[i].spec.name.text);
        t->teacher_hash = hash_bytes(t->teacher_hash, tensor->data, tensor->n_bytes);
    }
    for (int i = 0; i < STATE_FIELDS; i++) {
        const void *at = (const char *)t + fields[i].offset;
        if (fields[i].kind == FIELD_INT)
            t->identity[i] = (uint64_t) * (const int *)at;
        else if (fields[i].kind == FIELD_FLAG)
            t->identity[i] = *(const bool *)at;
        else /* a double as its bits */
            memcpy(&t->identity[i], at, sizeof t->identity[i]);
    }
}

enum status state_compare(const struct trainer *t, struct err *e)
{
    const uint64_t *found = t->state.header.identity;
    char values[2][32]; /* as the option has them; one that a stranger wrote may have no name */
    int i = 0;
    while (i < STATE_FIELDS && found[i] == t->identity[i])
        i++;
    if (i == STATE_FIELDS)
        return STATUS_OK;
    const struct field *f = &fields[i];
    if (f->kind >= FIELD_FLAG)
        return err_usage(e,
                         "%s belongs to another run: %s was not the same; --resume needs the same "
                         "texts and options, without it the run begins anew",
                         t->state_path, f->name);
    for (int now = 0; now < 2; now++) {
        const uint64_t value = now ? t->identity[i] : found[i];
        uint64_t known = 0;
        double real;
        memcpy(&real, &value, sizeof real);
        while (f->choices && known < value && f->choices[known])
            known++;
        if (f->choices && f->choices[known])
            snprintf(values[now], sizeof *values, "%s", f->choices[known]);
        else if (f->kind == FIELD_REAL)
            snprintf(values[now], sizeof *values, "%g", real);
        else
            snprintf(values[now], sizeof *values, "%" PRIu64, value);
    }
    return err_usage(e,
                     "%s belongs to a run with %s %s, not %s; --resume needs the same options; "
                     "without it the run begins anew, and --from trains a checkpoint further",
                     t->state_path, f->name, values[0], values[1]);
}

/* --- reading --------------------------------------------------------------------------------- */

enum status state_parse(struct state_file *s, const char *path, struct err *e)
{
    const struct train_progress *p = &s->header.progress;
    if (s->file.len < sizeof s->header)
        return err_bad_file(e, "%s: expected a training state, found only %zu bytes", path,
                            s->file.len);
    memcpy(&s->header, s->file.data, sizeof s->header);
    if (memcmp(s->header.magic, magic, sizeof magic) != 0)
        return err_bad_file(e, "%s: expected a training state, found another file", path);
    if (s->header.version != STATE_VERSION)
        return err_bad_file(e,
                            "%s: expected a training state of version %d, found version %" PRIu64,
                            path, STATE_VERSION, s->header.version);
    /* A cross-entropy below 0, that no later one could be better than, would keep the run from ever
     * writing OUT. */
    if (p->best_step < 0 || p->step > INT32_MAX || p->best_step > p->step || !(p->best >= 0) ||
        !(p->rate >= 0 && p->rate <= TRAIN_MOST_RATE))
        return err_bad_file(e,
                            "%s: damaged: it claims %" PRId64 " steps, the best of them %" PRId64
                            " with a loss of %g, and a learning rate of %g",
                            path, p->step, p->best_step, p->best, p->rate);
    return STATUS_OK;
}

enum status state_read(struct trainer *t, struct err *e)
{
    const struct file_map *f = &t->state.file;
    const size_t n = t->list.n_floats, bytes = n * sizeof(float);
    const size_t expected = sizeof t->state.header + 3 * bytes + sizeof(uint64_t);
    const uint64_t claimed = t->state.header.progress.n_floats;
    const unsigned char *at = f->data + sizeof t->state.header;
    uint64_t stored;
    if (f->len != expected)
        return err_bad_file(e, "%s: expected %zu bytes, found %zu", t->state_path, expected,
                            f->len);
    if (claimed != n)
        return err_bad_file(e, "%s: damaged: it claims %" PRIu64 " numbers of %zu", t->state_path,
                            claimed, n);
    memcpy(&stored, at + 3 * bytes, sizeof stored);
    if (hash_words(HASH_START, f->data, expected - sizeof stored) != stored)
        return err_bad_file(e, "%s: damaged: its checksum is not that of its content",
                            t->state_path);
    memcpy(t->weights.flat, at, bytes);
    memcpy(t->m, at + bytes, bytes);
    memcpy(t->v, at + 2 * bytes, bytes);
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

enum status state_write(const struct trainer *t, struct err *e)
{
    struct state_header h = {.version = STATE_VERSION, .progress = t->progress};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.identity, t->identity, sizeof h.identity);
    h.progress.n_floats = t->list.n_floats;
    struct file_writer *w;
    TRY(file_writer_open(&w, t->state_path, e));
    const float *const arrays[] = {t->weights.flat, t->m, t->v};
    const size_t bytes = t->list.n_floats * sizeof(float);
    uint64_t hash = hash_words(HASH_START, &h, sizeof h);
    file_writer_put(w, &h, sizeof h);
    for (int i = 0; i < 3; i++) {
        hash = hash_words(hash, arrays[i], bytes);
        file_writer_put(w, arrays[i], bytes);
    }
    file_writer_put(w, &hash, sizeof hash);
    return file_writer_commit(w, e);
}
