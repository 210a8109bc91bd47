/*
 * Writing GGUF. Pairs are stored as the bytes they become; tensors as records, because their
 * offsets depend on the alignment, which a pair added later may still change.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/text.h"
#include "formats/gguf_private.h"

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
    size_t n_pairs, n_tensors;
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
    bytes_free(&w->pairs);
    bytes_free(&w->keys);
    bytes_free(&w->tensors);
    free(w);
}

/* The first failure, which stays. */
#define WRITER_FAIL(w, ...) ((w)->status = err_set(&(w)->err, STATUS_USAGE, __VA_ARGS__))

static void append(struct gguf_writer *w, struct bytes *b, const void *data, size_t len)
{
    if (!w->status && !bytes_put(b, (struct text){data, len}))
        w->status = err_no_memory(&w->err, "the GGUF header", b->len + len);
}

static void append_int(struct gguf_writer *w, struct bytes *b, uint64_t value, size_t len)
{
    unsigned char raw[8];
    little_store(raw, value, len);
    append(w, b, raw, len);
}

static void append_text(struct gguf_writer *w, struct bytes *b, struct text text)
{
    append_int(w, b, text.len, 8);
    append(w, b, text.data, text.len);
}

/* --- pairs --------------------------------------------------------------------------------- */

/* A zero byte in a name would end it for every reader written in C. */
static bool name_legal(struct text name, size_t max)
{
    return name.len >= 1 && name.len <= max && !memchr(name.data, 0, name.len);
}

/* Starts a pair: what follows is the value's bytes. `bits` are those of a u32. */
static void append_key(struct gguf_writer *w, struct text key, enum gguf_kind kind, uint64_t bits)
{
    const bool alignment = text_is(key, GGUF_ALIGNMENT_KEY);
    if (w->status)
        return;
    if (!name_legal(key, GGUF_MAX_KEY))
        WRITER_FAIL(w, "key %zu \"%.*s\" has %zu bytes: expected 1 to %d, none of them zero",
                    w->n_pairs, text_width(key), key.data, key.len, GGUF_MAX_KEY);
    else if (alignment && kind != GGUF_U32)
        WRITER_FAIL(w, "key \"%s\": expected a u32, found %s", GGUF_ALIGNMENT_KEY,
                    gguf_kind_name(kind));
    else if (alignment && !gguf_alignment_legal(bits))
        WRITER_FAIL(w, "key \"%s\": expected a power of two from %d to %d, found %" PRIu64,
                    GGUF_ALIGNMENT_KEY, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX, bits);
    else if (alignment)
        w->alignment = (uint32_t)bits;
    append(w, &w->keys, &w->pairs.len, sizeof w->pairs.len);
    append_text(w, &w->pairs, key);
    append_int(w, &w->pairs, kind, 4);
    w->n_pairs++;
}

static void append_array(struct gguf_writer *w, struct text key, enum gguf_kind element_kind,
                         uint64_t count)
{
    append_key(w, key, GGUF_ARRAY, 0);
    append_int(w, &w->pairs, element_kind, 4);
    append_int(w, &w->pairs, count, 8);
}

static void add_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind, uint64_t bits)
{
    append_key(w, text_of(key), kind, bits);
    append_int(w, &w->pairs, bits, gguf_kind_bytes(kind));
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
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
    add_scalar(w, key, GGUF_F32, bits_of(value));
}

void gguf_add_bool(struct gguf_writer *w, const char *key, bool value)
{
    add_scalar(w, key, GGUF_BOOL, value);
}

void gguf_add_text(struct gguf_writer *w, const char *key, struct text value)
{
    append_key(w, text_of(key), GGUF_STRING, 0);
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

void gguf_add_i32s(struct gguf_writer *w, const char *key, const int32_t *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), GGUF_I32, count);
    for (uint64_t i = 0; i < count && !w->status; i++)
        append_int(w, &w->pairs, (uint32_t)elements[i], 4);
}

void gguf_add_f32s(struct gguf_writer *w, const char *key, const float *elements, uint64_t count)
{
    assert(elements || count == 0);
    append_array(w, text_of(key), GGUF_F32, count);
    for (uint64_t i = 0; i < count && !w->status; i++)
        append_int(w, &w->pairs, bits_of(elements[i]), 4);
}

/* Whether the value's bytes are what its kind and count say; `kind` is that of its elements. */
static bool value_is_whole(const struct gguf_value *v, enum gguf_kind kind)
{
    const size_t one = gguf_kind_bytes(kind);
    struct gguf_cursor c = {0};
    struct text element;
    uint64_t bytes;
    if (v->kind == GGUF_STRING)
        return true;
    if (kind != GGUF_STRING)
        return one && (v->kind == GGUF_ARRAY || v->count == 1) && u64_mul(v->count, one, &bytes) &&
               bytes == v->bytes.len;
    while (gguf_next_text(v, &c, &element))
        continue;
    return c.i == v->count && c.offset == v->bytes.len;
}

void gguf_add_value(struct gguf_writer *w, struct text key, const struct gguf_value *v)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    if (w->status)
        return;
    if (!value_is_whole(v, kind)) {
        WRITER_FAIL(w, "key \"%.*s\": its %zu bytes are no %s of %" PRIu64 " elements",
                    text_width(key), key.data, v->bytes.len, gguf_kind_name(v->kind), v->count);
        return;
    }
    if (v->kind == GGUF_ARRAY)
        append_array(w, key, kind, v->count);
    else
        append_key(w, key, kind, kind == GGUF_U32 ? little_load(v->bytes.data, 4) : 0);
    if (v->kind == GGUF_STRING)
        append_int(w, &w->pairs, v->bytes.len, 8);
    const size_t at = w->pairs.len;
    append(w, &w->pairs, v->bytes.data, v->bytes.len);
    for (size_t i = at; kind == GGUF_BOOL && i < w->pairs.len; i++)
        w->pairs.data[i] = w->pairs.data[i] != 0;
}

/* --- tensors ------------------------------------------------------------------------------- */

static struct write_tensor *tensor_at(const struct gguf_writer *w, size_t i)
{
    return (struct write_tensor *)(void *)w->tensors.data + i;
}

/* Fills in a record, of which name, n_dims, and data or source are set. */
static enum status make_record(struct write_tensor *record, uint32_t type, const uint64_t *dims,
                               struct err *e)
{
    struct gguf_tensor *t = &record->t;
    if (!name_legal(t->name, GGUF_MAX_NAME_WRITTEN)) /* a copied one: those of our own are short */
        return err_bad_file(e, "its name has %zu bytes: expected 1 to %d, none of them zero",
                            t->name.len, GGUF_MAX_NAME_WRITTEN);
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return err_set(e, STATUS_USAGE, "it has %d dimensions, expected 1 to %d", t->n_dims,
                       GGUF_MAX_DIMS);
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = d < t->n_dims ? dims[d] : 1;
    TRY(gguf_tensor_measure(t, type, STATUS_USAGE, e));
    if (t->n_bytes > PTRDIFF_MAX)
        return err_set(e, STATUS_USAGE, "its length overflows: %" PRIu64 " bytes", t->n_bytes);
    if (!t->data && !record->source.piece)
        return err_set(e, STATUS_USAGE, "it has no data, expected %" PRIu64 " bytes", t->n_bytes);
    memcpy(record->name, t->name.data, t->name.len);
    return STATUS_OK;
}

static void add_record(struct gguf_writer *w, struct write_tensor *record, uint32_t type,
                       const uint64_t *dims)
{
    const struct text name = record->t.name;
    if (w->status)
        return;
    w->status = err_in(&w->err, make_record(record, type, dims, &w->err), "tensor %zu \"%.*s\"",
                       w->n_tensors, text_width(name), name.data);
    append(w, &w->tensors, record, sizeof *record);
    w->n_tensors++;
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

/* --- what is refused before a byte goes out ------------------------------------------------ */

/* One name twice is refused; `keys` or the tensors' names, which are added to the index here. */
static enum status check_names(const struct gguf_writer *w, bool keys, struct name_index *names,
                               struct err *e)
{
    const size_t n = keys ? w->n_pairs : w->n_tensors;
    for (size_t i = 0; i < n; i++) {
        struct text name;
        if (keys) {
            size_t at;
            memcpy(&at, w->keys.data + i * sizeof at, sizeof at);
            const char *pair = w->pairs.data + at;
            name = (struct text){pair + 8, (size_t)little_load(pair, 8)};
        } else {
            name = tensor_at(w, i)->t.name;
        }
        TRY(name_index_add(names, name, (int32_t)i, 0, e));
    }
    name_index_sort(names);
    const struct indexed *twins = name_index_twins(names);
    if (!twins)
        return STATUS_OK;
    return err_set(e, STATUS_USAGE,
                   "%s \"%.*s\": expected each name once, found it as number %d and %d",
                   keys ? "key" : "tensor", text_width(twins->text), twins->text.data, twins[0].id,
                   twins[1].id);
}

/* Sets names and offsets; *data_bytes is what all tensors take, padded. */
static enum status place_tensors(struct gguf_writer *w, uint64_t *data_bytes, struct err *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
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

/* What comes before the tensors' data, padded. */
static void append_header(struct gguf_writer *w, struct bytes *b)
{
    append(w, b, GGUF_MAGIC, 4);
    append_int(w, b, GGUF_VERSION_WRITTEN, 4);
    append_int(w, b, w->n_tensors, 8);
    append_int(w, b, w->n_pairs, 8);
    append(w, b, w->pairs.data, w->pairs.len);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct write_tensor *record = tensor_at(w, i);
        append_text(w, b, record->t.name);
        append_int(w, b, (uint32_t)record->t.n_dims, 4);
        for (int d = 0; d < record->t.n_dims; d++)
            append_int(w, b, record->t.dims[d], 8);
        append_int(w, b, record->t.type->type, 4);
        append_int(w, b, record->offset, 8);
    }
    for (size_t n = padding_after(w, b->len); n > 0; n--)
        append(w, b, "", 1);
}

/* Makes the header, zeroed at first and to be freed in any case. */
static enum status prepare_write(struct gguf_writer *w, struct bytes *header, uint64_t *data_bytes,
                                 struct err *e)
{
    const enum status before = w->status;
    if (!before) {
        TRY(place_tensors(w, data_bytes, e));
        for (int keys = 1; keys >= 0; keys--) {
            struct name_index names = {0};
            const enum status s = check_names(w, keys, &names, e);
            name_index_free(&names);
            TRY(s);
        }
        append_header(w, header);
    }
    const enum status s = w->status;
    if (s && e)
        *e = w->err;
    w->status = before; /* what was added is still whole: a later write may succeed */
    return s;
}

/* --- output -------------------------------------------------------------------------------- */

/* Where the bytes of the file go. */
struct sink {
    const char *path;     /* to a file; or, if it is NULL: */
    struct file_map *map; /* to memory that is as if it were mapped */
    struct file_writer *file;
    unsigned char *at; /* where in that memory the next byte goes */
};

static enum status sink_open(struct sink *sink, uint64_t len, struct err *e)
{
    if (sink->path)
        return file_writer_open(&sink->file, sink->path, e);
    const size_t n = len > PTRDIFF_MAX ? SIZE_MAX : (size_t)len;
    sink->at = malloc(n);
    *sink->map = (struct file_map){.data = sink->at, .len = n, .own = true};
    return sink->at ? STATUS_OK : err_no_memory(e, "the GGUF file", n);
}

static void sink_put(struct sink *sink, const void *data, size_t len)
{
    if (sink->file) {
        file_writer_put(sink->file, data, len);
    } else if (len) {
        memcpy(sink->at, data, len);
        sink->at += len;
    }
}

/* The whole file. */
static enum status sink_put_file(struct sink *sink, const struct gguf_writer *w,
                                 const struct bytes *header, struct err *e)
{
    sink_put(sink, header->data, header->len);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct write_tensor *record = tensor_at(w, i);
        const uint64_t n_bytes = record->t.n_bytes;
        const void *data = record->t.data;
        size_t len = (size_t)n_bytes;
        for (uint64_t at = 0; at < n_bytes; at += len) {
            if (!record->t.data)
                TRY(record->source.piece(record->source.arg, at, &data, &len, e));
            assert(len > 0 && len <= n_bytes - at);
            sink_put(sink, data, len);
        }
        for (size_t n = padding_after(w, n_bytes); n > 0; n--)
            sink_put(sink, "", 1);
    }
    return STATUS_OK;
}

static enum status write_to(struct sink *sink, struct gguf_writer *w, struct err *e)
{
    struct bytes header = {0};
    uint64_t bytes = 0;
    enum status s = prepare_write(w, &header, &bytes, e);
    if (!s)
        s = sink_open(sink, u64_add(bytes, header.len, &bytes) ? bytes : UINT64_MAX, e);
    if (!s)
        s = sink_put_file(sink, w, &header, e);
    bytes_free(&header);
    return s;
}

enum status gguf_write(struct gguf_writer *w, const char *path, struct err *e)
{
    struct sink sink = {.path = path};
    const enum status s = write_to(&sink, w, e);
    if (s == STATUS_OK)
        return file_writer_commit(sink.file, e);
    file_writer_abandon(sink.file);
    return s;
}

enum status gguf_write_map(struct gguf_writer *w, struct file_map *out, struct err *e)
{
    struct sink sink = {.map = out};
    *out = (struct file_map){0};
    const enum status s = write_to(&sink, w, e);
    if (s)
        file_map_close(out);
    return s;
}

enum status gguf_write_memory(struct gguf_writer *w, unsigned char **out, size_t *len,
                              struct err *e)
{
    struct file_map map;
    const enum status s = gguf_write_map(w, &map, e);
    *out = (unsigned char *)(uintptr_t)map.data;
    *len = map.len;
    return s;
}
