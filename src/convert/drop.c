#include "convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "formats/gguf.h"

#define DROPPED_KEY "decode.convert.dropped_heads"
#define VERSION_KEY "decode.convert.version"

/* Counts what is new, or makes it and adds all to the writer. The names of the heads follow those
 * of heads that were dropped before. */
static void add_all(const struct drop_spec *spec, const struct config *c, struct text before,
                    struct drop *d)
{
    const uint64_t dim = config_value_dim(c), width = config_heads_dim(c);
    const size_t room = before.len + strlen(spec->names) + 2;
    char *names = arena_take(&d->arena, room, 1);
    for (size_t i = 0; i < spec->gguf->n_pairs && names; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        if (!text_is(p->key, DROPPED_KEY) && !text_is(p->key, VERSION_KEY))
            gguf_add_value(d->writer, p->key, &p->value);
    }
    if (names) {
        snprintf(names, room, "%.*s%s%s", (int)before.len, before.data, before.len ? "," : "",
                 spec->names);
        gguf_add_text(d->writer, DROPPED_KEY, text_of(names));
        gguf_add_text(d->writer, VERSION_KEY, text_of(spec->version));
    }
    for (size_t i = 0; i < spec->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &spec->gguf->tensors[i];
        const unsigned char *data = t->data, *off = NULL; /* heads of the output matrix t */
        struct tensor_spec s;
        if (layout_named(c, t->name, &s) && s.role == ROLE_ATTN_OUTPUT && !s.is_bias)
            off = spec->off + s.layer * c->n_heads;
        if (off && memchr(off, 1, c->n_heads)) {
            unsigned char *copy = arena_take(&d->arena, t->n_bytes, 1);
            data = copy ? memcpy(copy, t->data, t->n_bytes) : NULL;
            for (int row = 0; row < c->d_model && copy; row++)
                for (int h = 0; h < c->n_heads; h++)
                    if (off[h])
                        blocks_zero(t->type->type, copy, row * width + h * dim, dim);
        }
        if (names)
            gguf_add_tensor(d->writer, t->name, t->type->type, t->n_dims, t->dims, data);
    }
}

enum status drop_heads(const struct drop_spec *spec, struct drop *out, struct err *e)
{
    struct config c;
    struct text before = {"", 0};
    *out = (struct drop){.writer = NULL};
    TRY(model_check(spec->gguf, e));
    TRY(config_read(spec->gguf, &c, e));
    if (c.shared)
        return err_set(e, STATUS_USAGE,
                       "all %d layers share one block, and a head dropped in one would be in all; "
                       "--without leaves heads of single layers out",
                       c.n_layers);
    TRY(gguf_get_text(spec->gguf, DROPPED_KEY, &before, &(bool){false}, e));
    add_all(spec, &c, before, out);
    TRY(arena_allocate(&out->arena, "the new output matrices", e));
    const enum status s = gguf_writer_create(&out->writer, e);
    if (s == STATUS_OK)
        add_all(spec, &c, before, out);
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
