/*
 * Writing GGUF. Pairs and what the header says of tensors are kept as the bytes they become.
 */
#include "formats/gguf_write.h"

#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "formats/gguf_private.h"

struct write_tensor {
    struct gguf_source source;
    uint64_t n_bytes;
};

struct gguf_writer {
    enum status status; /* the first failure, after which nothing is added */
    struct err err;
    struct bytes pairs, infos; /* infos: of tensors */
    size_t n_pairs;
    struct write_tensor *tensors; /* [n_tensors] */
    size_t n_tensors, cap_tensors;
    uint64_t data_bytes; /* of all tensors, with their padding */
};

enum status gguf_writer_create(struct gguf_writer **out, struct err *e)
{
    TRY_ZEROED(*out, 1, "the GGUF writer", e);
    return STATUS_OK;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    bytes_free(&w->pairs);
    bytes_free(&w->infos);
    free(w->tensors);
    free(w);
}

static void append(struct gguf_writer *w, struct bytes *to, const void *data, size_t len)
{
    if (!w->status && !bytes_put(to, text_span(data, len)))
        w->status = err_no_memory(&w->err, "the GGUF header", to->len + len);
}

static void append_int(struct gguf_writer *w, struct bytes *to, uint64_t value, size_t len)
{
    unsigned char raw[8];
    little_store(raw, value, len);
    append(w, to, raw, len);
}

static void append_text(struct gguf_writer *w, struct bytes *to, struct text text)
{
    append_int(w, to, text.len, 8);
    append(w, to, text.data, text.len);
}

/* --- pairs --------------------------------------------------------------------------------- */

/* Starts a pair: the value's bytes follow. */
static void append_key(struct gguf_writer *w, struct text key, enum gguf_kind kind)
{
    append_text(w, &w->pairs, key);
    append_int(w, &w->pairs, kind, 4);
    w->n_pairs++;
}

static void append_array(struct gguf_writer *w, struct text key, enum gguf_kind element_kind,
                         uint64_t count)
{
    append_key(w, key, GGUF_ARRAY);
    append_int(w, &w->pairs, element_kind, 4);
    append_int(w, &w->pairs, count, 8);
}

static void add_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind, uint64_t bits)
{
    append_key(w, text_of(key), kind);
    append_int(w, &w->pairs, bits, gguf_kind_bytes(kind));
}

void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    add_scalar(w, key, GGUF_U32, value);
}

void gguf_add_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    add_scalar(w, key, GGUF_U64, value);
}

void gguf_add_f32(struct gguf_writer *w, const char *key, float value)
{
    add_scalar(w, key, GGUF_F32, float_bits(value));
}

void gguf_add_bool(struct gguf_writer *w, const char *key, bool value)
{
    add_scalar(w, key, GGUF_BOOL, value);
}

void gguf_add_text(struct gguf_writer *w, const char *key, struct text value)
{
    append_key(w, text_of(key), GGUF_STRING);
    append_text(w, &w->pairs, value);
}

void gguf_add_texts(struct gguf_writer *w, const char *key, const struct text *elements,
                    uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), GGUF_STRING, count);
    for (uint64_t i = 0; i < count && !w->status; i++)
        append_text(w, &w->pairs, elements[i]);
}

void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_kind kind,
                    const void *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), kind, count);
    append(w, &w->pairs, elements, count * gguf_kind_bytes(kind));
}

void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *v)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    if (text_is(key, GGUF_ALIGNMENT_KEY)) /* what is written has the usual one */
        return;
    if (v->kind == GGUF_ARRAY)
        append_array(w, key, kind, v->count);
    else
        append_key(w, key, kind);
    if (v->kind == GGUF_STRING)
        append_int(w, &w->pairs, v->bytes.len, 8);
    const size_t at = w->pairs.len;
    append(w, &w->pairs, v->bytes.data, v->bytes.len);
    if (kind == GGUF_BOOL)
        for (size_t i = at; i < w->pairs.len; i++)
            w->pairs.data[i] = w->pairs.data[i] != 0;
}

/* --- tensors ------------------------------------------------------------------------------- */

/* Returns the padding behind a header or a tensor of so many bytes. */
static size_t padding_after(uint64_t bytes)
{
    return -bytes % GGUF_ALIGNMENT_DEFAULT;
}

static enum status add_tensor(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                              const uint64_t *dims, struct gguf_source source, struct err *e)
{
    struct gguf_tensor t = {.n_dims = n_dims, .dims = {1, 1, 1, 1}};
    assert(source.data || source.piece);
    if (name.len > GGUF_MAX_NAME_WRITTEN) /* a copied one: those of our own are short */
        return err_bad_file(e, "its name has %zu bytes: expected 1 to %d", name.len,
                            GGUF_MAX_NAME_WRITTEN);
    for (int d = 0; d < n_dims; d++)
        t.dims[d] = dims[d];
    TRY(gguf_tensor_measure(&t, type, e));
    TRY_ROOM(w->tensors, w->n_tensors, w->cap_tensors, "the table of tensors", e);
    w->tensors[w->n_tensors++] = (struct write_tensor){source, t.n_bytes};
    append_text(w, &w->infos, name);
    append_int(w, &w->infos, (uint32_t)n_dims, 4);
    for (int d = 0; d < n_dims; d++)
        append_int(w, &w->infos, dims[d], 8);
    append_int(w, &w->infos, type, 4);
    append_int(w, &w->infos, w->data_bytes, 8);
    w->data_bytes = u64_sum(w->data_bytes, t.n_bytes + padding_after(t.n_bytes));
    return w->status;
}

void gguf_add_tensor_source(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                            const uint64_t *dims, struct gguf_source source)
{
    const size_t i = w->n_tensors;
    if (!w->status)
        w->status = err_in(&w->err, add_tensor(w, name, type, n_dims, dims, source, &w->err),
                           "tensor %zu \"%.*s\"", i, text_width(name), name.data);
}

void gguf_add_tensor(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                     const uint64_t *dims, const void *data)
{
    gguf_add_tensor_source(w, name, type, n_dims, dims, (struct gguf_source){.data = data});
}

/* --- output -------------------------------------------------------------------------------- */

/* Where the bytes of a file go: the first of these that is not NULL. */
struct sink {
    struct file_writer *file;
    struct bytes *memory;
    uint64_t *hash;
};

static void sink_put(struct sink *sink, const void *data, size_t len)
{
    if (sink->file)
        file_writer_put(sink->file, data, len);
    else if (sink->memory)
        bytes_put(sink->memory, text_span(data, len)); /* there is room for all */
    else
        *sink->hash = hash_bytes(*sink->hash, data, len);
}

/* Puts the padding behind so many bytes. */
static void sink_pad(struct sink *sink, uint64_t bytes)
{
    static const char zeros[GGUF_ALIGNMENT_DEFAULT];
    sink_put(sink, zeros, padding_after(bytes));
}

/* Puts all bytes of a tensor. */
static enum status sink_put_tensor(struct sink *sink, const struct write_tensor *t, struct err *e)
{
    const void *data = t->source.data;
    size_t len = t->n_bytes;
    for (uint64_t at = 0; at < t->n_bytes; at += len) {
        if (t->source.piece)
            TRY(t->source.piece(t->source.arg, at, &data, &len, e));
        assert(len > 0 && len <= t->n_bytes - at);
        sink_put(sink, data, len);
    }
    sink_pad(sink, t->n_bytes);
    return STATUS_OK;
}

/* Puts the whole file; *len becomes its length, 0 on failure. */
static enum status sink_put_file(struct sink *sink, const struct gguf_writer *w, size_t *len,
                                 struct err *e)
{
    unsigned char start[24] = GGUF_MAGIC;
    const size_t head = sizeof start + w->pairs.len + w->infos.len;
    const uint64_t all = u64_sum(head + padding_after(head), w->data_bytes);
    *len = 0;
    if (w->status && e)
        *e = w->err;
    TRY(w->status);
    if (sink->memory && (all > PTRDIFF_MAX || !bytes_reserve(sink->memory, all)))
        return err_no_memory(e, "the GGUF file", all);
    little_store(start + 4, GGUF_VERSION_WRITTEN, 4);
    little_store(start + 8, w->n_tensors, 8);
    little_store(start + 16, w->n_pairs, 8);
    sink_put(sink, start, sizeof start);
    sink_put(sink, w->pairs.data, w->pairs.len);
    sink_put(sink, w->infos.data, w->infos.len);
    sink_pad(sink, head);
    for (size_t i = 0; i < w->n_tensors; i++)
        TRY(sink_put_tensor(sink, &w->tensors[i], e));
    *len = all;
    return STATUS_OK;
}

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e)
{
    struct sink sink = {0};
    size_t len;
    TRY(file_writer_open(&sink.file, path, e));
    const enum status s = sink_put_file(&sink, w, &len, e);
    if (s == STATUS_OK)
        return file_writer_commit(sink.file, e);
    file_writer_abandon(sink.file);
    return s;
}

enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e)
{
    struct bytes memory = {0};
    const enum status s = sink_put_file(&(struct sink){.memory = &memory}, w, len, e);
    if (s != STATUS_OK)
        bytes_free(&memory);
    *out = (unsigned char *)memory.data;
    return s;
}

enum status gguf_write_hash(struct gguf_writer *w, uint64_t *hash, size_t *len, struct err *e)
{
    *hash = HASH_START;
    return sink_put_file(&(struct sink){.hash = hash}, w, len, e);
}
