/*
 * Writing GGUF. Pairs are stored as the bytes they become; tensors as records, because their
 * offsets depend on the alignment, which a pair added later may still change.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/file.h"
#include "gguf/private.h"

/* A run of bytes that grows; also used for records, all of one struct. */
struct bytes {
    unsigned char *data;
    size_t len, cap;
};

struct write_tensor {
    struct gguf_tensor t; /* t.name.data is set while writing: records move as they are added */
    char name[GGUF_MAX_NAME_WRITTEN + 1];
    uint64_t offset;
    struct gguf_source source; /* if t.data is NULL */
};

struct gguf_writer {
    struct bytes pairs;   /* as in the file */
    struct bytes keys;    /* size_t: where each pair begins in `pairs` */
    struct bytes tensors; /* struct write_tensor */
    uint32_t alignment;
    enum status status; /* of the first failure */
    struct err err;
};

enum status gguf_writer_create(struct gguf_writer **out, struct err *e)
{
    struct gguf_writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return err_no_memory(e, "the GGUF writer", sizeof *w);
    w->alignment = GGUF_ALIGNMENT_DEFAULT;
    return STATUS_OK;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    free(w->pairs.data);
    free(w->keys.data);
    free(w->tensors.data);
    free(w);
}

/* Room for `more` bytes at the end, or NULL with w failed. */
static unsigned char *writer_extend(struct gguf_writer *w, struct bytes *b, uint64_t more)
{
    if (w->status)
        return NULL;
    uint64_t len;
    if (!u64_add(b->len, more, &len) || len > PTRDIFF_MAX / 2) {
        w->status = err_set(&w->err, STATUS_NO_MEMORY,
                            "out of memory: the GGUF header needs %" PRIu64 " bytes more", more);
        return NULL;
    }
    if (len > b->cap) {
        const size_t cap = len < 512 ? 1024 : 2 * (size_t)len;
        unsigned char *data = realloc(b->data, cap);
        if (!data) {
            w->status = err_no_memory(&w->err, "the GGUF header", cap);
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    unsigned char *room = b->data + b->len;
    b->len = (size_t)len;
    return room;
}

static void append_bytes(struct gguf_writer *w, struct bytes *b, const void *data, size_t len)
{
    unsigned char *room = writer_extend(w, b, len);
    if (room && len)
        memcpy(room, data, len);
}

static void append_int(struct gguf_writer *w, struct bytes *b, uint64_t value, size_t len)
{
    unsigned char *room = writer_extend(w, b, len);
    if (room)
        little_store(room, value, len);
}

static void append_text(struct gguf_writer *w, struct bytes *b, struct text text)
{
    append_int(w, b, text.len, 8);
    append_bytes(w, b, text.data, text.len);
}

/* --- pairs --------------------------------------------------------------------------------- */

/* A zero byte in a name would end it for every reader written in C. */
static bool name_legal(struct text name, size_t max)
{
    return name.len >= 1 && name.len <= max && !memchr(name.data, 0, name.len);
}

static size_t n_pairs(const struct gguf_writer *w)
{
    return w->keys.len / sizeof(size_t);
}

static void set_alignment(struct gguf_writer *w, uint64_t value)
{
    if (w->status)
        return;
    if (!gguf_alignment_legal(value))
        w->status = err_set(&w->err, STATUS_USAGE,
                            "key \"%s\": expected a power of two from %d to %d, found %" PRIu64,
                            GGUF_ALIGNMENT_KEY, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX, value);
    else
        w->alignment = (uint32_t)value;
}

/* Starts a pair: what follows is the value's bytes. */
static void append_key(struct gguf_writer *w, struct text key, enum gguf_kind kind)
{
    if (w->status)
        return;
    if (!name_legal(key, GGUF_MAX_KEY)) {
        w->status = err_set(&w->err, STATUS_USAGE,
                            "key %zu \"%.*s\" has %zu bytes: expected 1 to %d, none of them zero",
                            n_pairs(w), text_width(key), key.data, key.len, GGUF_MAX_KEY);
        return;
    }
    if (text_is(key, GGUF_ALIGNMENT_KEY) && kind != GGUF_U32) {
        w->status = err_set(&w->err, STATUS_USAGE, "key \"%s\": expected a u32, found %s",
                            GGUF_ALIGNMENT_KEY, gguf_kind_name(kind));
        return;
    }
    const size_t at = w->pairs.len;
    append_bytes(w, &w->keys, &at, sizeof at);
    append_text(w, &w->pairs, key);
    append_int(w, &w->pairs, kind, 4);
}

static void append_array(struct gguf_writer *w, const char *key, enum gguf_kind element_kind,
                         uint64_t count)
{
    append_key(w, text_of(key), GGUF_ARRAY);
    append_int(w, &w->pairs, element_kind, 4);
    append_int(w, &w->pairs, count, 8);
}

static void add_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind, uint64_t bits)
{
    append_key(w, text_of(key), kind);
    if (strcmp(key, GGUF_ALIGNMENT_KEY) == 0)
        set_alignment(w, bits);
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
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_scalar(w, key, GGUF_F32, bits);
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
    append_array(w, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count && !w->status; i++)
        append_text(w, &w->pairs, elements[i]);
}

void gguf_add_i32s(struct gguf_writer *w, const char *key, const int32_t *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, key, GGUF_I32, count);
    for (uint64_t i = 0; i < count && !w->status; i++)
        append_int(w, &w->pairs, (uint32_t)elements[i], 4);
}

void gguf_add_f32s(struct gguf_writer *w, const char *key, const float *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, key, GGUF_F32, count);
    for (uint64_t i = 0; i < count && !w->status; i++) {
        uint32_t bits;
        memcpy(&bits, &elements[i], sizeof bits);
        append_int(w, &w->pairs, bits, 4);
    }
}

/* Whether the value's bytes are what its kind and count say. */
static bool value_is_whole(const struct gguf_value *v)
{
    if (v->kind == GGUF_STRING)
        return true;
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    if (kind != GGUF_STRING) {
        uint64_t bytes;
        const size_t one = gguf_kind_bytes(kind);
        return one && (v->kind == GGUF_ARRAY || v->count == 1) && u64_mul(v->count, one, &bytes) &&
               bytes == v->bytes.len;
    }
    struct gguf_cursor c = {0};
    struct text element;
    while (gguf_next_text(v, &c, &element))
        continue;
    return c.i == v->count && c.offset == v->bytes.len;
}

static void append_payload(struct gguf_writer *w, const struct gguf_value *v, enum gguf_kind kind)
{
    const size_t at = w->pairs.len;
    append_bytes(w, &w->pairs, v->bytes.data, v->bytes.len);
    if (w->status || kind != GGUF_BOOL)
        return;
    for (size_t i = at; i < w->pairs.len; i++)
        w->pairs.data[i] = w->pairs.data[i] != 0;
}

void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *value)
{
    if (!w->status && !value_is_whole(value))
        w->status = err_set(
            &w->err, STATUS_USAGE, "key \"%.*s\": its %zu bytes are no %s of %" PRIu64 " elements",
            text_width(key), key.data, value->bytes.len, gguf_kind_name(value->kind), value->count);
    append_key(w, key, value->kind);
    if (text_is(key, GGUF_ALIGNMENT_KEY) && !w->status)
        set_alignment(w, little_load(value->bytes.data, 4));
    if (value->kind == GGUF_STRING) {
        append_text(w, &w->pairs, value->bytes);
    } else if (value->kind == GGUF_ARRAY) {
        append_int(w, &w->pairs, value->element_kind, 4);
        append_int(w, &w->pairs, value->count, 8);
        append_payload(w, value, value->element_kind);
    } else {
        append_payload(w, value, value->kind);
    }
}

/* --- tensors ------------------------------------------------------------------------------- */

static size_t n_tensors(const struct gguf_writer *w)
{
    return w->tensors.len / sizeof(struct write_tensor);
}

static struct write_tensor *tensor_at(const struct gguf_writer *w, size_t i)
{
    assert(i < n_tensors(w));
    return (struct write_tensor *)(void *)w->tensors.data + i;
}

static enum status check_tensor(struct gguf_tensor *t, uint32_t type, const uint64_t *dims,
                                const struct gguf_source *source, struct err *e)
{
    if (!name_legal(t->name, GGUF_MAX_NAME_WRITTEN))
        return err_set(e, STATUS_BAD_FILE, /* a copied one: those of our own are short */
                       "its name has %zu bytes: expected 1 to %d, none of them zero", t->name.len,
                       GGUF_MAX_NAME_WRITTEN);
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return err_set(e, STATUS_USAGE, "it has %d dimensions, expected 1 to %d", t->n_dims,
                       GGUF_MAX_DIMS);
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = d < t->n_dims ? dims[d] : 1;
    const enum status s = gguf_tensor_measure(t, type, STATUS_USAGE, e);
    if (!s && t->n_bytes > PTRDIFF_MAX)
        return err_set(e, STATUS_USAGE, "its length overflows: %" PRIu64 " bytes", t->n_bytes);
    if (!s && !t->data && !source->piece)
        return err_set(e, STATUS_USAGE, "it has no data, expected %" PRIu64 " bytes", t->n_bytes);
    return s;
}

/* Adds the record, whose name, n_dims and data or source are set. */
static void add_record(struct gguf_writer *w, struct write_tensor *record, uint32_t type,
                       const uint64_t *dims)
{
    if (w->status)
        return;
    const struct text name = record->t.name;
    w->status = check_tensor(&record->t, type, dims, &record->source, &w->err);
    if (w->status) {
        char prefix[288];
        snprintf(prefix, sizeof prefix, "tensor %zu \"%.*s\"", n_tensors(w), text_width(name),
                 name.data);
        err_prefix(&w->err, prefix);
        return;
    }
    memcpy(record->name, name.data, name.len);
    append_bytes(w, &w->tensors, record, sizeof *record);
}

void gguf_add_tensor(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                     const uint64_t *dims, const void *data)
{
    struct write_tensor record = {.t = {.name = name, .n_dims = n_dims, .data = data}};
    add_record(w, &record, type, dims);
}

void gguf_add_tensor_source(struct gguf_writer *w, struct text name, uint32_t type, int n_dims,
                            const uint64_t *dims, struct gguf_source source)
{
    struct write_tensor record = {.t = {.name = name, .n_dims = n_dims}, .source = source};
    add_record(w, &record, type, dims);
}

/* --- output -------------------------------------------------------------------------------- */

static enum status check_unique(const void *records, size_t stride, size_t n, const char *what,
                                struct err *e)
{
    struct name_index ix;
    size_t first, second;
    enum status s = name_index_build(&ix, records, stride, n, &first, &second, e);
    name_index_free(&ix);
    if (!s && first < n) {
        const struct text name =
            *(const struct text *)(const void *)((const char *)records + first * stride);
        s = err_set(e, STATUS_USAGE,
                    "%s \"%.*s\": expected each name once, found it as number %zu and %zu", what,
                    text_width(name), name.data, first, second);
    }
    return s;
}

static enum status check_keys(const struct gguf_writer *w, struct err *e)
{
    const size_t n = n_pairs(w);
    size_t bytes;
    struct text *keys = size_of_array(n ? n : 1, sizeof *keys, &bytes) ? malloc(bytes) : NULL;
    if (!keys)
        return err_no_memory(e, "the table of keys", n * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        size_t at;
        memcpy(&at, w->keys.data + i * sizeof at, sizeof at);
        const unsigned char *pair = w->pairs.data + at;
        keys[i] = (struct text){(const char *)pair + 8, (size_t)little_load(pair, 8)};
    }
    const enum status s = check_unique(keys, sizeof *keys, n, "key", e);
    free(keys);
    return s;
}

/* Sets names and offsets; *data_bytes is what all tensors take, padded. */
static enum status place_tensors(struct gguf_writer *w, uint64_t *data_bytes, struct err *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n_tensors(w); i++) {
        struct write_tensor *record = tensor_at(w, i);
        record->t.name.data = record->name;
        record->offset = at;
        if (!u64_add(at, record->t.n_bytes, &at) || !u64_align_up(at, w->alignment, &at))
            return err_set(e, STATUS_USAGE,
                           "tensor %zu \"%s\": the file's length overflows, expected less than "
                           "2^64 bytes",
                           i, record->name);
    }
    *data_bytes = at;
    return STATUS_OK;
}

/* Padding bytes after the header or a tensor of so many bytes. */
static size_t padding_after(const struct gguf_writer *w, uint64_t bytes)
{
    return (size_t)((w->alignment - bytes % w->alignment) % w->alignment);
}

/* What comes before the tensors' data, padded, as one run of bytes (in *out, to be freed). */
static enum status make_header(struct gguf_writer *w, struct bytes *out, struct err *e)
{
    struct bytes b = {0};
    append_bytes(w, &b, GGUF_MAGIC, 4);
    append_int(w, &b, GGUF_VERSION_WRITTEN, 4);
    append_int(w, &b, n_tensors(w), 8);
    append_int(w, &b, n_pairs(w), 8);
    append_bytes(w, &b, w->pairs.data, w->pairs.len);
    for (size_t i = 0; i < n_tensors(w); i++) {
        const struct write_tensor *record = tensor_at(w, i);
        append_text(w, &b, record->t.name);
        append_int(w, &b, (uint32_t)record->t.n_dims, 4);
        for (int d = 0; d < record->t.n_dims; d++)
            append_int(w, &b, record->t.dims[d], 8);
        append_int(w, &b, record->t.type->type, 4);
        append_int(w, &b, record->offset, 8);
    }
    const size_t padding = padding_after(w, b.len);
    unsigned char *room = writer_extend(w, &b, padding);
    if (room)
        memset(room, 0, padding);
    *out = b;
    const enum status s = w->status;
    if (s && e)
        *e = w->err;
    w->status = STATUS_OK; /* what was added is still whole: a later write may succeed */
    return s;
}

/* Everything that can be refused before a byte goes out. */
static enum status prepare_write(struct gguf_writer *w, struct bytes *header, uint64_t *data_bytes,
                                 struct err *e)
{
    *header = (struct bytes){0};
    if (w->status) {
        if (e)
            *e = w->err;
        return w->status;
    }
    enum status s = place_tensors(w, data_bytes, e);
    if (!s)
        s = check_keys(w, e);
    if (!s)
        s = check_unique(w->tensors.data, sizeof(struct write_tensor), n_tensors(w), "tensor", e);
    if (!s)
        s = make_header(w, header, e);
    return s;
}

/* Where the bytes of the file go. */
struct sink {
    struct file_writer *file; /* or, if NULL, memory: */
    unsigned char *at;
    size_t left; /* bytes at `at` */
};

static void sink_put(struct sink *sink, const void *data, size_t len)
{
    if (sink->file) {
        file_writer_put(sink->file, data, len);
    } else if (len) {
        assert(len <= sink->left);
        memcpy(sink->at, data, len);
        sink->left -= len;
        sink->at += len;
    }
}

static enum status sink_put_tensor(const struct write_tensor *record, struct sink *sink,
                                   struct err *e)
{
    if (record->t.data) {
        sink_put(sink, record->t.data, (size_t)record->t.n_bytes);
        return STATUS_OK;
    }
    for (uint64_t offset = 0; offset < record->t.n_bytes;) {
        const void *data = NULL;
        size_t len = 0;
        const enum status s = record->source.piece(record->source.arg, offset, &data, &len, e);
        if (s)
            return s;
        assert(len > 0 && len <= record->t.n_bytes - offset);
        sink_put(sink, data, len);
        offset += len;
    }
    return STATUS_OK;
}

/* The whole file. */
static enum status sink_put_file(const struct gguf_writer *w, const struct bytes *header,
                                 struct sink *sink, struct err *e)
{
    static const unsigned char zeros[4096];
    enum status s = STATUS_OK;
    sink_put(sink, header->data, header->len);
    for (size_t i = 0; i < n_tensors(w) && !s; i++) {
        const struct write_tensor *record = tensor_at(w, i);
        s = sink_put_tensor(record, sink, e);
        for (size_t left = padding_after(w, record->t.n_bytes); left;) {
            const size_t n = left < sizeof zeros ? left : sizeof zeros;
            sink_put(sink, zeros, n);
            left -= n;
        }
    }
    return s;
}

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e)
{
    struct bytes header;
    uint64_t data_bytes;
    struct sink sink = {0};
    enum status s = prepare_write(w, &header, &data_bytes, e);
    if (!s)
        s = file_writer_open(&sink.file, path, e);
    if (!s) {
        s = sink_put_file(w, &header, &sink, e);
        if (s)
            file_writer_abandon(sink.file);
        else
            s = file_writer_commit(sink.file, e);
    }
    free(header.data);
    return s;
}

/* Writes the file to memory that `take` gives. */
static enum status write_to_memory(struct gguf_writer *w, void *memory,
                                   enum status (*take)(void *memory, size_t len,
                                                       unsigned char **out, struct err *e),
                                   struct err *e)
{
    struct bytes header;
    uint64_t bytes = 0;
    struct sink sink = {0};
    enum status s = prepare_write(w, &header, &bytes, e);
    if (!s && (!u64_add(bytes, header.len, &bytes) || bytes > PTRDIFF_MAX))
        s = err_no_memory(e, "the GGUF file", SIZE_MAX);
    if (!s)
        s = take(memory, sink.left = (size_t)bytes, &sink.at, e);
    if (!s)
        s = sink_put_file(w, &header, &sink, e);
    assert(s || sink.left == 0);
    free(header.data);
    return s;
}

struct allocation {
    unsigned char *data;
    size_t len;
};

static enum status take_allocation(void *memory, size_t len, unsigned char **out, struct err *e)
{
    struct allocation *a = memory;
    a->data = *out = malloc(len);
    a->len = len;
    return a->data ? STATUS_OK : err_no_memory(e, "the GGUF file", len);
}

enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e)
{
    struct allocation a = {0};
    const enum status s = write_to_memory(w, &a, take_allocation, e);
    if (s) {
        free(a.data);
        a = (struct allocation){0};
    }
    *out = a.data;
    *len = a.len;
    return s;
}

static enum status take_map(void *memory, size_t len, unsigned char **out, struct err *e)
{
    return file_map_own(memory, len, out, e);
}

enum status gguf_write_map(struct gguf_writer *w, struct file_map *out, struct err *e)
{
    *out = (struct file_map){0};
    const enum status s = write_to_memory(w, out, take_map, e);
    if (s)
        file_map_close(out);
    return s;
}
