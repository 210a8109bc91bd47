/*
 * What a conversion with a text keeps of the blocks that are done, little-endian:
 *
 *     magic [8], u64 version
 *     u64 identity [FIELDS]           what must be the same to go on
 *     u64 blocks
 *     of each: its loss of scores, a double; its heads' order, i32 [n_heads]; of each new tensor
 *     u64 changed (0 or 1) and its bytes
 *     u64 hash of all before, piece by piece: see model/model.h
 *
 * Going on, the text goes through these blocks again, old and new, but nothing is fitted.
 */
#include <inttypes.h>

#include "base/figures.h"
#include "convert/private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are written as they are");

#define MAGIC         UINT64_C(0x54564e4f43434544) /* "DECCONVT" */
#define STATE_VERSION 1
#define STATE_SECONDS 10 /* between two that are written */

/* --- identity --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *const *choices; /* names of its values; NULL: it is told without */
} fields[] = {{"the version of the program", NULL}, {"MODEL", NULL},
              {"the calibration text", NULL},       {"the K/V heads or ranks", NULL},
              {"--method", convert_methods},        {"--group", NULL},
              {"--refit", convert_refits},          {"--seed", NULL}};
#define FIELDS LENGTH(fields)

struct header {
    uint64_t magic, version, identity[FIELDS], n_blocks;
};

static uint64_t hash_text(uint64_t hash, struct text t)
{
    return fingerprint_of(hash, t.data, t.len);
}

static uint64_t hash_file(const struct gguf *g)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < g->n_pairs; i++)
        hash = hash_text(hash_text(hash, g->pairs[i].key), g->pairs[i].value.bytes);
    for (const struct gguf_tensor *t = g->tensors; t < g->tensors + g->n_tensors; t++) {
        hash = fingerprint_of(hash_text(hash, t->name), t->dims, sizeof t->dims);
        hash = fingerprint_of(hash, &t->type->type, sizeof t->type->type);
        hash = fingerprint_of(hash, t->data, t->n_bytes);
    }
    return hash;
}

static struct header describe(const struct converter *c)
{
    const struct convert_spec *s = c->spec;
    uint64_t numbers = 0;
    for (int l = 0; l < c->config.n_layers; l++) {
        const int of_layer[] = {config_kv_heads(&c->converted, l), config_latent(&c->converted, l)};
        numbers = fingerprint_of(numbers, of_layer, sizeof of_layer);
    }
    return (struct header){
        .magic = MAGIC,
        .version = STATE_VERSION,
        .identity = {hash_text(0, text_of(s->version)), hash_file(s->gguf),
                     fingerprint_of(0, s->tokens, s->n_tokens * sizeof *s->tokens), numbers,
                     s->method, s->cluster, s->refit, s->method == CONVERT_RANDOM ? s->seed : 0},
        .n_blocks = c->block};
}

/* STATUS_USAGE if what was found belongs to another conversion than `own`. */
static enum status compare(const char *path, const struct header *own, const struct header *found,
                           struct err *e)
{
    size_t i = 0;
    while (i < FIELDS && found->identity[i] == own->identity[i])
        i++;
    if (i == FIELDS)
        return STATUS_OK;
    const char *const *choices = fields[i].choices;
    uint64_t known = 0; /* a value that a stranger wrote may have no name */
    while (choices && known < found->identity[i] && choices[known])
        known++;
    if (choices && choices[known])
        return err_usage(e,
                         "%s belongs to a conversion with %s %s, not %s; --resume needs the same "
                         "options, without it the conversion begins anew",
                         path, fields[i].name, choices[known], choices[own->identity[i]]);
    return err_usage(e,
                     "%s belongs to another conversion: %s was not the same; --resume needs the "
                     "same files and options, without it the conversion begins anew",
                     path, fields[i].name);
}

/* --- the file --------------------------------------------------------------------------------- */

/* Either way: the same pieces are written and read. */
struct pieces {
    struct file_writer *writer; /* NULL: it is read */
    const unsigned char *from;
    size_t left;
    uint64_t hash;
    bool damaged;
};

static void pass(struct pieces *s, void *piece, size_t len)
{
    if (s->writer) {
        file_writer_put(s->writer, piece, len);
    } else if (s->damaged || len > s->left) {
        s->damaged = true;
        return;
    } else {
        memcpy(piece, s->from, len);
        s->from += len;
        s->left -= len;
    }
    s->hash = fingerprint_of(s->hash, piece, len);
}

static void pass_blocks(const struct converter *c, int n, struct pieces *s)
{
    for (int b = 0; b < n; b++) {
        const int n_heads = config_heads(&c->config, b);
        int *order = c->orders + b * c->config.n_heads;
        pass(s, &c->out->layers[b].score, sizeof c->out->layers[b].score);
        pass(s, order, n_heads * sizeof *order);
        for (int h = 0; h < n_heads && !s->writer; h++)
            s->damaged |= order[h] < 0 || order[h] >= n_heads;
        for (int i = 0; i < 2 * TENSOR_ROLES; i++) {
            struct convert_tensor *t = &c->tensors[b].of[i / 2][i % 2];
            uint64_t changed = t->changed;
            if (!t->bytes)
                continue;
            pass(s, &changed, sizeof changed);
            pass(s, t->bytes, t->tensor.n_bytes);
            t->changed = changed;
        }
    }
}

static enum status take_state(struct converter *c, const struct file_map *f, struct err *e)
{
    const char *path = c->spec->state;
    const uint64_t n_blocks = config_blocks(&c->config);
    const struct header own = describe(c);
    struct pieces s = {.from = f->data, .left = f->len};
    struct header h;
    uint64_t stored;
    pass(&s, &h, sizeof h);
    if (s.damaged || h.magic != MAGIC)
        return err_bad_file(e, "%s: expected the state of a conversion, found another file", path);
    if (h.version != STATE_VERSION)
        return err_bad_file(e, "%s: expected a state of version %d, found version %" PRIu64, path,
                            STATE_VERSION, h.version);
    TRY(compare(path, &own, &h, e));
    if (h.n_blocks > n_blocks)
        return err_bad_file(e, "%s: damaged: it claims %" PRIu64 " layers of %" PRIu64, path,
                            h.n_blocks, n_blocks);
    pass_blocks(c, (int)h.n_blocks, &s);
    const uint64_t hash = s.hash;
    pass(&s, &stored, sizeof stored);
    if (s.damaged || s.left || stored != hash)
        return err_bad_file(e, "%s: damaged: its checksum is not that of its content", path);
    *c->spec->n_kept = h.n_blocks;
    return STATUS_OK;
}

enum status convert_resume(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    struct file_map file;
    c->kept_ns = clock_ns();
    if (!spec->resume)
        return STATUS_OK;
    if (!spec->n_tokens)
        return err_usage(e, "--resume: without a text nothing is kept, as it takes seconds");
    TRY(file_map_open(&file, spec->state, e));
    /* What is checked is what is taken, even if the file is changed in the meantime. */
    enum status s = file_map_make_private(&file, file.len, e);
    THEN(s, take_state(c, &file, e));
    file_map_close(&file);
    return s;
}

enum status convert_keep_state(struct converter *c, bool now, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const bool is_time = now || clock_ns() - c->kept_ns >= STATE_SECONDS * UINT64_C(1000000000);
    struct pieces s = {.hash = 0};
    if (!spec->state || !spec->n_tokens || c->block <= *spec->n_kept || !is_time)
        return STATUS_OK;
    TRY(file_writer_open(&s.writer, spec->state, e)); /* what it replaces stays, if it fails */
    struct header h = describe(c);
    pass(&s, &h, sizeof h);
    pass_blocks(c, c->block, &s);
    uint64_t hash = s.hash;
    pass(&s, &hash, sizeof hash);
    TRY(file_writer_commit(s.writer, e));
    *spec->n_kept = c->block;
    c->kept_ns = clock_ns();
    return STATUS_OK;
}
