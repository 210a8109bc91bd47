/* A checkpoint without some heads. */
#include "convert/drop.h"

#include "formats/blocks.h"
#include "formats/gguf_values.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"

#include <stdio.h>

#define DROPPED_KEY "decode.convert.dropped_heads"
#define VERSION_KEY "decode.convert.version"

/* --- what becomes of the heads --------------------------------------------------------------- */

static int count_left(const unsigned char *off, int n)
{
    int left = 0;
    for (int h = 0; h < n; h++)
        left += !off[h];
    return left;
}

/* Decides what stays of a layer; off [n_heads] says which heads go. */
static void decide(struct drop *d, int layer, const unsigned char *off)
{
    const struct config *c = &d->before;
    const int n_heads = config_heads(c, layer), group = config_group(c, layer);
    const bool may_go = c->position != POSITION_ALIBI;
    unsigned char *fates = d->fates + layer * c->n_heads;
    int most = 0, n_left = 0, n_kv = 0; /* the most that stay of a group */
    for (int first = 0; first < n_heads; first += group) {
        const int stay = count_left(off + first, group);
        most = MAX(stay, most);
    }
    for (int first = 0; first < n_heads; first += group) {
        const int stay = count_left(off + first, group);
        const bool goes = most ? stay == 0 : first > 0;
        const int n_new = !may_go ? group : goes ? 0 : most ? most : 1;
        int zeros = n_new - stay;
        for (int h = first; h < first + group; h++)
            fates[h] = !off[h] ? DROP_STAYS : zeros-- > 0 ? DROP_ZERO : DROP_GONE;
        d->n_zero += n_new - stay;
        d->n_gone += group - n_new;
        n_left += n_new;
        n_kv += n_new > 0;
    }
    d->config.layer_heads[layer] = n_left;
    d->config.layer_kv_heads[layer] = n_kv;
}

static void decide_all(struct drop *d, const unsigned char *off)
{
    struct config *c = &d->config;
    c->n_heads = c->n_kv_heads = 0;
    for (int l = 0; l < c->n_layers; l++) {
        decide(d, l, off + l * d->before.n_heads);
        c->n_heads = MAX(c->layer_heads[l], c->n_heads);
        c->n_kv_heads = MAX(c->layer_kv_heads[l], c->n_kv_heads);
    }
    if (d->n_gone == 0)
        *c = d->before;
    else if (!config_same_heads(c) || !c->split_qkv)
        c->arch = arch_find(text_of("decode"));
    if (config_same_heads(c))
        memset(c->layer_heads, 0, sizeof c->layer_heads);
    if (config_same_kv_heads(c))
        memset(c->layer_kv_heads, 0, sizeof c->layer_kv_heads);
}

/* Whether a row of Q, K or V, of a table by heads, or a column of the output matrix goes. */
static bool is_gone(const struct drop *d, const struct tensor_spec *s, int i)
{
    const struct config *c = &d->before;
    const enum tensor_role role = s->role;
    const int q_end = config_q_dim(c, s->layer), k_end = q_end + config_k_dim(c, s->layer);
    bool is_cached = role == ROLE_ATTN_K || role == ROLE_ATTN_V;
    int dim = s->form == FORM_TABLE                        ? 1
              : role == ROLE_ATTN_Q || role == ROLE_ATTN_K ? c->head_dim
                                                           : config_value_dim(c);
    if (role == ROLE_ATTN_QKV) {
        is_cached = i >= q_end;
        dim = i < k_end ? c->head_dim : config_value_dim(c);
        i -= i >= k_end ? k_end : i >= q_end ? q_end : 0;
    }
    const int n = is_cached ? config_group(c, s->layer) : 1; /* heads that have it */
    const unsigned char *fates = d->fates + s->layer * c->n_heads + i / dim * n;
    int h = 0;
    while (h < n && fates[h] == DROP_GONE)
        h++;
    return h == n;
}

/* --- tensors --------------------------------------------------------------------------------- */

/* The rows that stay, in their type: of a bias and a table too. NULL while memory is counted. */
static const unsigned char *take_rows(struct drop *d, const struct gguf_tensor *t,
                                      const struct tensor_spec *s, uint64_t n_new)
{
    const int rows = s->is_bias ? s->cols : s->rows;
    const uint64_t bytes = t->n_bytes / rows;
    unsigned char *new = arena_take(&d->arena, tensor_type_bytes(t->type, n_new), 1);
    unsigned char *to = new;
    if (!new)
        return NULL;
    for (int r = 0; r < rows; r++)
        if (!is_gone(d, s, r)) {
            memcpy(to, t->data + r * bytes, bytes);
            to += bytes;
        }
    return new;
}

/* An output matrix: the columns that stay, zeros in those that do so; *type becomes its type. */
static const unsigned char *take_columns(struct drop *d, const struct gguf_tensor *t,
                                         const struct tensor_spec *s, int n_new,
                                         const struct tensor_type_info **type)
{
    const int dim = config_value_dim(&d->before), n = s->cols;
    const int step = n_new == n ? n : dim; /* heads need not be whole blocks if all stay */
    const unsigned char *fates = d->fates + s->layer * d->before.n_heads;
    *type = tensor_type_find(blocks_in_memory(t->type->type));
    if (step % (*type)->block_elements != 0)
        *type = tensor_type_find(TENSOR_F16);
    const bool same = *type == t->type;
    const uint64_t row_bytes = tensor_type_bytes(*type, n_new);
    unsigned char *new = arena_take(&d->arena, s->rows, row_bytes), *to = new;
    float *row = arena_take(&d->arena, n, sizeof *row);
    if (!new)
        return NULL;
    for (int r = 0; r < s->rows; r++, to += row_bytes) {
        const unsigned char *from = t->data + tensor_type_bytes(t->type, r * n);
        int n_columns = 0; /* columns */
        if (!same)
            blocks_decode(t->type->type, row, from, n);
        for (int i = 0; i < n; i += step) {
            if (is_gone(d, s, i))
                continue;
            if (same)
                memcpy(to + tensor_type_bytes(*type, n_columns), from + tensor_type_bytes(*type, i),
                       tensor_type_bytes(*type, step));
            else
                memmove(row + n_columns, row + i, step * sizeof *row);
            n_columns += step;
        }
        if (!same)
            blocks_encode((*type)->type, to, row, n_new);
        for (int h = 0, at = 0; h < n / dim; at += fates[h++] == DROP_GONE ? 0 : dim)
            if (fates[h] == DROP_ZERO)
                blocks_zero((*type)->type, to, at, dim);
    }
    return new;
}

/* Adds what becomes of a tensor; while memory is counted, only that. */
static void add_tensor(struct drop *d, const struct gguf_tensor *t)
{
    struct tensor_spec s, now;
    struct gguf_tensor new = *t;
    const bool known = layout_named(&d->before, t->name, &s);
    if (!known && d->config.arch != d->before.arch && text_starts_with(t->name, "blk."))
        return; /* it stands for nothing, and would be refused */
    if (known && layout_named(&d->config, t->name, &now)) {
        const struct spec_dims dims = spec_dims(&now);
        const bool zero = memchr(d->fates + s.layer * d->before.n_heads, DROP_ZERO,
                                 config_heads(&d->before, s.layer));
        memcpy(new.dims, dims.n, s.n_dims * sizeof *new.dims);
        new.n_elements = spec_elements(&now);
        if (s.role == ROLE_ATTN_OUTPUT && !s.is_bias && (zero || now.cols != s.cols))
            new.data = take_columns(d, t, &s, now.cols, &new.type);
        else if (new.n_elements != t->n_elements)
            new.data = take_rows(d, t, &s, new.n_elements);
    }
    if (!d->writer)
        return;
    d->n_params_before += t->n_elements;
    d->n_params_after += new.n_elements;
    gguf_add_tensor(d->writer, t->name, new.type->type, t->n_dims, new.dims, new.data);
}

/* The metadata, with a configuration of their own if heads go. */
static void add_metadata(const struct drop_spec *spec, const struct drop *d, const char *names)
{
    const char *arch = d->before.arch->name;
    if (d->n_gone)
        gguf_add_text(d->writer, "general.architecture", text_of(d->config.arch->name));
    for (size_t i = 0; i < spec->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        const bool own = text_is(p->key, "general.architecture") ||
                         (text_starts_with(p->key, arch) && p->key.data[strlen(arch)] == '.');
        if (!(d->n_gone && own && !text_starts_with(p->key, "decode.convert.")) &&
            !text_is(p->key, DROPPED_KEY) && !text_is(p->key, VERSION_KEY))
            gguf_add_value(d->writer, p->key, &p->value);
    }
    if (d->n_gone)
        config_write(&d->config, d->writer);
    gguf_add_text(d->writer, DROPPED_KEY, text_of(names));
    gguf_add_text(d->writer, VERSION_KEY, text_of(spec->version));
}

/* Counts the memory of what is new; or, with a writer, makes it and gives it all to the writer. The
 * names of the heads follow those of heads that were dropped before. */
static void add_all(const struct drop_spec *spec, struct drop *d, struct text before)
{
    const size_t size = before.len + strlen(spec->names) + 2;
    char *names = arena_take(&d->arena, size, 1);
    if (d->writer) {
        snprintf(names, size, "%.*s%s%s", (int)before.len, before.data, before.len ? "," : "",
                 spec->names);
        add_metadata(spec, d, names);
    }
    for (size_t i = 0; i < spec->gguf->n_tensors; i++)
        add_tensor(d, &spec->gguf->tensors[i]);
}

enum status drop_heads(const struct drop_spec *spec, struct drop *out, struct err *e)
{
    struct text before = {"", 0};
    *out = (struct drop){.writer = NULL};
    TRY(model_check(spec->gguf, e));
    TRY(config_read(spec->gguf, &out->before, e));
    out->config = out->before;
    if (out->before.shared)
        return err_usage(e,
                         "all %d layers share one block, and a head dropped in one would be in "
                         "all; --without leaves heads of single layers out",
                         out->before.n_layers);
    TRY(gguf_get_text(spec->gguf, DROPPED_KEY, &before, &(bool){false}, e));
    const size_t n = (size_t)out->before.n_layers * out->before.n_heads;
    TRY_ZEROED(out->fates, n, "the list of heads", e);
    decide_all(out, spec->off);
    add_all(spec, out, before);
    enum status s = arena_allocate(&out->arena, "the new tensors of attention", e);
    if (s == STATUS_OK)
        s = gguf_writer_create(&out->writer, e);
    if (s == STATUS_OK)
        add_all(spec, out, before);
    else
        drop_free(out);
    return s;
}

void drop_free(struct drop *d)
{
    gguf_writer_free(d->writer);
    arena_free(&d->arena);
    free(d->fates);
    *d = (struct drop){.writer = NULL};
}
