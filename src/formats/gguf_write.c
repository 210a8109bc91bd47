/*
 * Writing GGUF. Pairs are stored as the bytes they become; tensors as records, because their
 * offsets depend on the alignment, which a pair added later may still change.
 */
#include "formats/gguf_write.h"

#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/replace.h"
#include "formats/gguf_private.h"

/* Bytes of the header as they are made. After the first failure, which stays, nothing is added. */
struct head {
    struct bytes bytes;
    enum status status;
    struct err err;
};

struct write_tensor {
    struct gguf_tensor t; /* without name and data */
    char name[GGUF_MAX_NAME_WRITTEN + 1];
    struct gguf_source source;
};

struct gguf_writer {
    struct head pairs;
    size_t n_pairs;
    uint32_t alignment;
    struct write_tensor *tensors; /* [n_tensors] */
    size_t n_tensors, cap_tensors;
};

enum status gguf_writer_create(struct gguf_writer **out, struct err *e)
{
    TRY_ZEROED(*out, 1, "the GGUF writer", e);
    (*out)->alignment = GGUF_ALIGNMENT_DEFAULT;
    return STATUS_OK;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    bytes_free(&w->pairs.bytes);
    free(w->tensors);
    free(w);
}

static void append(struct head *h, const void *data, size_t len)
{
    if (!h->status && !bytes_put(&h->bytes, text_span(data, len)))
        h->status = err_no_memory(&h->err, "the GGUF header", h->bytes.len + len);
}

static void append_int(struct head *h, uint64_t value, size_t len)
{
    unsigned char raw[8];
    little_store(raw, value, len);
    append(h, raw, len);
}

static void append_text(struct head *h, struct text text)
{
    append_int(h, text.len, 8);
    append(h, text.data, text.len);
}

/* --- pairs --------------------------------------------------------------------------------- */

/* Starts a pair: the value's bytes follow. `bits` is its number, if it is a u32. */
static void append_key(struct gguf_writer *w, struct text key, enum gguf_kind kind, uint64_t bits)
{
    if (text_is(key, GGUF_ALIGNMENT_KEY)) {
        assert(kind == GGUF_U32 && gguf_alignment_legal(bits));
        w->alignment = bits;
    }
    append_text(&w->pairs, key);
    append_int(&w->pairs, kind, 4);
    w->n_pairs++;
}

static void append_array(struct gguf_writer *w, struct text key, enum gguf_kind element_kind,
                         uint64_t count)
{
    append_key(w, key, GGUF_ARRAY, 0);
    append_int(&w->pairs, element_kind, 4);
    append_int(&w->pairs, count, 8);
}

static void add_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind, uint64_t bits)
{
    append_key(w, text_of(key), kind, bits);
    append_int(&w->pairs, bits, gguf_kind_bytes(kind));
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
    append_key(w, text_of(key), GGUF_STRING, 0);
    append_text(&w->pairs, value);
}

void gguf_add_texts(struct gguf_writer *w, const char *key, const struct text *elements,
                    uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), GGUF_STRING, count);
    for (uint64_t i = 0; i < count && !w->pairs.status; i++)
        append_text(&w->pairs, elements[i]);
}

void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_kind kind,
                    const void *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), kind, count);
    append(&w->pairs, elements, count * gguf_kind_bytes(kind));
}

void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *v)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    if (v->kind == GGUF_ARRAY)
        append_array(w, key, kind, v->count);
    else
        append_key(w, key, kind, kind == GGUF_U32 ? little_load(v->bytes.data, 4) : 0);
    if (v->kind == GGUF_STRING)
        append_int(&w->pairs, v->bytes.len, 8);
    const size_t at = w->pairs.bytes.len;
    append(&w->pairs, v->bytes.data, v->bytes.len);
    if (kind == GGUF_BOOL)
        for (size_t i = at; i < w->pairs.bytes.len; i++)
            w->pairs.bytes.data[i] = w->pairs.bytes.data[i] != 0;
}

/* --- tensors ------------------------------------------------------------------------------- */

/* Fills in a record whose number of dimensions and source are set. */
static enum status make_record(struct write_tensor *record, struct text name, uint32_t type,
                               const uint64_t *dims, struct err *e)
{
    struct gguf_tensor *t = &record->t;
    assert(record->source.data || record->source.piece);
    if (name.len > GGUF_MAX_NAME_WRITTEN) /* a copied one: those of our own are short */
        return err_bad_file(e, "its name has %zu bytes: expected 1 to %d", name.len,
                            GGUF_MAX_NAME_WRITTEN);
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = d < t->n_dims ? dims[d] : 1;
    TRY(gguf_tensor_measure(t, type, e));
    memcpy(record->name, name.data, name.len);
    return STATUS_OK;
}

void gguf_add_tensor_source(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                            const uint64_t *dims, struct gguf_source source)
{
    struct head *h = &w->pairs;
    if (h->status)
        return;
    struct write_tensor *tensors =
        array_grow(w->tensors, w->n_tensors + 1, &w->cap_tensors, sizeof *tensors);
    if (!tensors) {
        h->status = err_no_memory(&h->err, "the table of tensors", w->n_tensors * sizeof *tensors);
        return;
    }
    w->tensors = tensors;
    tensors[w->n_tensors] = (struct write_tensor){.t = {.n_dims = n_dims}, .source = source};
    h->status = err_in(&h->err, make_record(&tensors[w->n_tensors], name, type, dims, &h->err),
                       "tensor %zu \"%.*s\"", w->n_tensors, text_width(name), name.data);
    w->n_tensors++;
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
    unsigned char *memory; /* of the next byte; there is room for all */
    uint64_t *hash;
};

static void sink_put(struct sink *sink, const void *data, size_t len)
{
    if (sink->file) {
        file_writer_put(sink->file, data, len);
    } else if (sink->memory && len) {
        memcpy(sink->memory, data, len);
        sink->memory += len;
    } else if (sink->hash) {
        *sink->hash = hash_bytes(*sink->hash, data, len);
    }
}

/* Puts all n_bytes of a tensor. */
static enum status sink_put_source(struct sink *sink, const struct gguf_source *source,
                                   uint64_t n_bytes, struct err *e)
{
    const void *data = source->data;
    size_t len = n_bytes;
    for (uint64_t at = 0; at < n_bytes; at += len) {
        if (source->piece)
            TRY(source->piece(source->arg, at, &data, &len, e));
        assert(len > 0 && len <= n_bytes - at);
        sink_put(sink, data, len);
    }
    return STATUS_OK;
}

/* Returns the padding after a header or a tensor of so many bytes. */
static size_t padding_after(const struct gguf_writer *w, uint64_t bytes)
{
    return (w->alignment - bytes % w->alignment) % w->alignment;
}

/* Places the tensors and writes what comes before their data, padded, to *head, which is empty.
 * *len becomes the length of the whole file. */
static void make_head(struct gguf_writer *w, struct head *head, uint64_t *len)
{
    uint64_t at = 0;
    append(head, GGUF_MAGIC, 4);
    append_int(head, GGUF_VERSION_WRITTEN, 4);
    append_int(head, w->n_tensors, 8);
    append_int(head, w->n_pairs, 8);
    append(head, w->pairs.bytes.data, w->pairs.bytes.len);
    for (size_t i = 0; i < w->n_tensors && !head->status; i++) {
        const struct gguf_tensor *t = &w->tensors[i].t;
        append_text(head, text_of(w->tensors[i].name));
        append_int(head, (uint32_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++)
            append_int(head, t->dims[d], 8);
        append_int(head, t->type->type, 4);
        append_int(head, at, 8);
        at = u64_sum(at, t->n_bytes + padding_after(w, t->n_bytes));
    }
    for (size_t n = padding_after(w, head->bytes.len); n > 0; n--)
        append(head, "", 1);
    *len = u64_sum(at, head->bytes.len);
}

/* Writes to a file; if `path` is NULL, to *memory, malloc'd; if `memory` is NULL, too, into *hash.
 * For these two *size becomes the length. */
static enum status write_to(struct gguf_writer *w, const char *path, unsigned char **memory,
                            uint64_t *hash, size_t *size, struct err *e)
{
    struct head head = {.status = w->pairs.status, .err = w->pairs.err};
    struct sink sink = {.hash = hash};
    uint64_t len = 0;
    make_head(w, &head, &len);
    enum status s = head.status;
    if (s && e)
        *e = head.err;
    if (!s && path)
        s = file_writer_open(&sink.file, path, e);
    if (!s && memory) {
        *memory = sink.memory = malloc(len);
        s = sink.memory ? STATUS_OK : err_no_memory(e, "the GGUF file", len);
    }
    if (!s)
        sink_put(&sink, head.bytes.data, head.bytes.len);
    for (size_t i = 0; i < w->n_tensors && !s; i++) {
        const uint64_t n_bytes = w->tensors[i].t.n_bytes;
        s = sink_put_source(&sink, &w->tensors[i].source, n_bytes, e);
        for (size_t n = padding_after(w, n_bytes); n > 0 && !s; n--)
            sink_put(&sink, "", 1);
    }
    bytes_free(&head.bytes);
    if (!s && path)
        return file_writer_commit(sink.file, e);
    if (path) {
        file_writer_abandon(sink.file);
    } else if (s && memory) {
        free(*memory);
        *memory = NULL;
    } else {
        *size = len;
    }
    return s;
}

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e)
{
    return write_to(w, path, NULL, NULL, NULL, e);
}

enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e)
{
    *out = NULL;
    *len = 0;
    return write_to(w, NULL, out, NULL, len, e);
}

enum status gguf_write_hash(struct gguf_writer *w, uint64_t *hash, size_t *len, struct err *e)
{
    *hash = HASH_START;
    return write_to(w, NULL, NULL, hash, len, e);
}
