#include "convert/drop.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/blocks.h"
#include "model/model.h"

#define DROPPED_KEY "decode.convert.dropped_heads"

static const unsigned char *off_of_layer(const struct drop_spec *spec, const struct config *c,
                                         int layer)
{
    return spec->off + (size_t)layer * (size_t)c->n_heads;
}

/* The heads to be dropped of the layer whose output matrix the tensor is; NULL: it stays. */
static const unsigned char *heads_dropped(const struct drop_spec *spec, const struct config *c,
                                          const struct gguf_tensor *t)
{
    struct tensor_spec s;
    if (!layout_named(c, t->name, &s) || s.role != ROLE_ATTN_OUTPUT || s.is_bias)
        return NULL;
    const unsigned char *off = off_of_layer(spec, c, s.layer);
    return memchr(off, 1, (size_t)c->n_heads) ? off : NULL;
}

/* --- tensors --------------------------------------------------------------------------------- */

static void zero_columns(const struct config *c, const unsigned char *off,
                         const struct gguf_tensor *t, unsigned char *bytes)
{
    const uint64_t dim = (uint64_t)config_value_dim(c), width = (uint64_t)config_heads_dim(c);
    for (uint64_t row = 0; row < (uint64_t)c->d_model; row++)
        for (int h = 0; h < c->n_heads; h++)
            if (off[h])
                blocks_zero(t->type->type, bytes, row * width + (uint64_t)h * dim, dim);
}

/* Counts the new tensors, or makes them and adds all tensors to the writer. */
static void take_tensors(const struct drop_spec *spec, const struct config *c, struct drop *d)
{
    for (size_t i = 0; i < spec->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &spec->gguf->tensors[i];
        const unsigned char *off = heads_dropped(spec, c, t), *data = t->data;
        unsigned char *copy = off ? arena_take(&d->arena, t->n_bytes, 1) : NULL;
        if (copy) {
            memcpy(copy, t->data, t->n_bytes);
            zero_columns(c, off, t, copy);
            data = copy;
        }
        if (d->writer)
            gguf_add_tensor(d->writer, t->name, t->type->type, t->n_dims, t->dims, data);
    }
}

/* --- metadata -------------------------------------------------------------------------------- */

/* With the heads that were dropped before. */
static enum status add_dropped(const struct drop_spec *spec, struct gguf_writer *w, struct err *e)
{
    struct text before = {"", 0};
    TRY(gguf_get_text(spec->gguf, DROPPED_KEY, &before, &(bool){false}, e));
    const size_t len = strlen(spec->names), size = before.len + 1 + len;
    char *all = malloc(size);
    if (!all)
        return err_no_memory(e, "the names of the heads", size);
    memcpy(all, before.data, before.len);
    all[before.len] = ',';
    memcpy(all + before.len + 1, spec->names, len);
    const size_t skip = before.len == 0;
    gguf_add_text(w, DROPPED_KEY, (struct text){all + skip, size - skip});
    free(all);
    gguf_add_text(w, "decode.convert.version", text_of(spec->version));
    return STATUS_OK;
}

static enum status add_metadata(const struct drop_spec *spec, struct gguf_writer *w, struct err *e)
{
    for (size_t i = 0; i < spec->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        if (!text_is(p->key, DROPPED_KEY) && !text_is(p->key, "decode.convert.version"))
            gguf_add_value(w, p->key, &p->value);
    }
    return add_dropped(spec, w, e);
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status check_drop(const struct drop_spec *spec, struct config *c, struct err *e)
{
    TRY(model_check(spec->gguf, e));
    TRY(config_read(spec->gguf, c, e));
    if (c->shared)
        return err_set(e, STATUS_USAGE,
                       "all %d layers share one block, and a head dropped in one would be in all; "
                       "--without leaves heads of single layers out",
                       c->n_layers);
    return STATUS_OK;
}

enum status drop_heads(const struct drop_spec *spec, struct drop *out, struct err *e)
{
    struct config c;
    *out = (struct drop){.writer = NULL};
    TRY(check_drop(spec, &c, e));
    take_tensors(spec, &c, out);
    enum status s = arena_allocate(&out->arena, "the new output matrices", e);
    if (s == STATUS_OK)
        s = gguf_writer_create(&out->writer, e);
    if (s == STATUS_OK)
        s = add_metadata(spec, out->writer, e);
    if (s == STATUS_OK)
        take_tensors(spec, &c, out);
    else
        drop_free(out);
    return s;
}

void drop_free(struct drop *d)
{
    gguf_writer_free(d->writer);
    arena_free(&d->arena);
    *d = (struct drop){.writer = NULL};
}
