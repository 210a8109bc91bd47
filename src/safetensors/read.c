/*
 * A safetensors file is the header's length as a u64, the header, which is a JSON object of the
 * tensors by their names, and the tensors' data, one after another in any order. The header is read
 * once: what json_read borrows or decodes, the tensors' names, stays.
 */
#include "safetensors/read.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/little.h"
#include "base/name_index.h"
#include "json/read.h"

#define LENGTH_BYTES 8
/* The library's limit. */
#define HEADER_MAX ((size_t)100000000)
/* Ours, for memory: a tensor has seven or more. */
#define VALUES_MAX   ((uint32_t)1 << 20)
#define METADATA_KEY "__metadata__"

static const struct json_limits limits = {.bytes = HEADER_MAX, .values = VALUES_MAX, .depth = 16};

struct safetensors_index {
    struct json_reader json; /* the names' memory */
    struct safetensors_tensor *tensors;
    struct name_index by_name;
};

struct reader {
    const unsigned char *data; /* of the tensors */
    size_t len;                /* bytes of them */
    struct err *e;
};

/* --- a tensor -------------------------------------------------------------------------------- */

static enum status read_dtype(struct reader *r, const struct json_node *node,
                              struct safetensors_tensor *t)
{
    const struct json_node *dtype = NULL;
    TRY(json_require(node, "dtype", JSON_STRING, &dtype, r->e));
    t->dtype = safetensors_dtype_named(dtype->text);
    if (!t->dtype)
        return err_set(r->e, STATUS_BAD_FILE,
                       "\"dtype\" at byte %zu: expected F32, F16, BF16 or another type of "
                       "safetensors 0.8, found \"%.*s\"",
                       dtype->at, text_width(dtype->text), dtype->text.data);
    return STATUS_OK;
}

static enum status read_shape(struct reader *r, const struct json_node *node,
                              struct safetensors_tensor *t)
{
    const struct json_node *shape = NULL;
    TRY(json_require(node, "shape", JSON_ARRAY, &shape, r->e));
    if (shape->n > SAFETENSORS_MAX_DIMS)
        return err_set(r->e, STATUS_BAD_FILE,
                       "\"shape\" at byte %zu: expected at most %d dimensions, found %" PRIu32,
                       shape->at, SAFETENSORS_MAX_DIMS, shape->n);
    t->n_dims = (int)shape->n;
    for (int d = 0; d < SAFETENSORS_MAX_DIMS; d++)
        t->dims[d] = 1;
    uint64_t *dim = t->dims;
    for (const struct json_node *c = NULL; (c = json_child(shape, c));)
        TRY(json_node_u64(c, dim++, r->e));
    return STATUS_OK;
}

/* Where its data are: inside the file. */
static enum status read_place(struct reader *r, const struct json_node *node,
                              struct safetensors_tensor *t)
{
    const struct json_node *offsets = NULL;
    uint64_t begin, end;
    TRY(json_require(node, "data_offsets", JSON_ARRAY, &offsets, r->e));
    if (offsets->n != 2)
        return err_set(r->e, STATUS_BAD_FILE,
                       "\"data_offsets\" at byte %zu: expected two, found %" PRIu32, offsets->at,
                       offsets->n);
    const struct json_node *first = json_child(offsets, NULL);
    TRY(json_node_u64(first, &begin, r->e));
    TRY(json_node_u64(json_child(offsets, first), &end, r->e));
    if (begin > end || end > r->len)
        return err_set(r->e, STATUS_BAD_FILE,
                       "\"data_offsets\" at byte %zu: expected a beginning and an end within the "
                       "%zu bytes of data, found %" PRIu64 " and %" PRIu64
                       "; the file is truncated or corrupt",
                       offsets->at, r->len, begin, end);
    t->data = r->data + begin;
    t->n_bytes = end - begin;
    return STATUS_OK;
}

static enum status check_size(struct reader *r, const struct safetensors_tensor *t)
{
    uint64_t bytes = 0;
    if (!safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes))
        return err_set(r->e, STATUS_BAD_FILE,
                       "expected a shape that takes a whole number of bytes below 2^61, found "
                       "another");
    if (bytes != t->n_bytes)
        return err_set(r->e, STATUS_BAD_FILE,
                       "expected the %" PRIu64 " bytes of its shape in %s, found %" PRIu64, bytes,
                       t->dtype->name, t->n_bytes);
    return STATUS_OK;
}

static enum status read_tensor(struct reader *r, const struct json_node *node,
                               struct safetensors_tensor *t)
{
    TRY(json_expect(node, JSON_OBJECT, r->e));
    TRY(read_dtype(r, node, t));
    TRY(read_shape(r, node, t));
    TRY(read_place(r, node, t));
    return check_size(r, t);
}

/* --- all of them ----------------------------------------------------------------------------- */

/* Puts `tensor "name": ` before the message. */
static enum status in_tensor(struct reader *r, enum status s, struct text name)
{
    char prefix[288];
    snprintf(prefix, sizeof prefix, "tensor \"%.*s\"", text_width(name), name.data);
    err_prefix(r->e, prefix);
    return s;
}

static enum status check_metadata(struct reader *r, const struct json_node *metadata)
{
    TRY(json_expect(metadata, JSON_OBJECT, r->e));
    for (const struct json_node *c = NULL; (c = json_child(metadata, c));)
        TRY(json_expect(c, JSON_STRING, r->e));
    return STATUS_OK;
}

/* `s->index->tensors` has room for all members. */
static enum status read_members(struct reader *r, const struct json_node *header,
                                struct safetensors *s)
{
    for (const struct json_node *c = NULL; (c = json_child(header, c));) {
        if (text_is(c->key, METADATA_KEY)) {
            TRY(check_metadata(r, c));
            continue;
        }
        struct safetensors_tensor *t = &s->index->tensors[s->n_tensors++];
        t->name = c->key;
        const enum status status = read_tensor(r, c, t);
        if (status != STATUS_OK)
            return in_tensor(r, status, t->name);
    }
    return STATUS_OK;
}

/* Empty ones before those that begin where they are. Names make the order a total one. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return text_order(x->name, y->name);
}

/* Sorts by place. */
static enum status check_places(struct reader *r, struct safetensors *s)
{
    const struct safetensors_tensor *tensors = s->tensors;
    uint64_t at = 0;
    if (s->n_tensors > 1)
        qsort(s->index->tensors, s->n_tensors, sizeof *tensors, compare_places);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const uint64_t begin = (uint64_t)(tensors[i].data - r->data);
        if (begin != at)
            return in_tensor(r,
                             err_set(r->e, STATUS_BAD_FILE,
                                     "expected its data at byte %" PRIu64
                                     ", behind those before, without a hole or an overlap, found "
                                     "them at byte %" PRIu64,
                                     at, begin),
                             tensors[i].name);
        at += tensors[i].n_bytes;
    }
    if (at != r->len)
        return err_set(r->e, STATUS_BAD_FILE,
                       "expected the file to end with the last tensor's data, found %" PRIu64
                       " bytes more",
                       r->len - at);
    return STATUS_OK;
}

static enum status read_tensors(struct reader *r, const struct json_node *header,
                                struct safetensors *s)
{
    struct safetensors_index *ix = s->index;
    const size_t n = header->n;
    s->tensors = ix->tensors = calloc(n + !n, sizeof *ix->tensors);
    if (!ix->tensors)
        return err_no_memory(r->e, "the table of tensors", n * sizeof *ix->tensors);
    TRY(read_members(r, header, s));
    TRY(check_places(r, s));
    size_t first, second;
    TRY(name_index_build(&ix->by_name, s->tensors, sizeof *s->tensors, s->n_tensors, &first,
                         &second, r->e));
    assert(first == s->n_tensors); /* keys are unique */
    return STATUS_OK;
}

/* --- the file -------------------------------------------------------------------------------- */

/* Finds the header. */
static enum status find_header(const unsigned char *bytes, size_t len, struct text *header,
                               struct err *e)
{
    if (len < LENGTH_BYTES)
        return err_set(e, STATUS_BAD_FILE,
                       "expected a safetensors file, %d bytes or more, found %zu bytes",
                       LENGTH_BYTES, len);
    if (text_starts_with((struct text){(const char *)bytes, len}, "version https://git-lfs"))
        return err_set(e, STATUS_BAD_FILE,
                       "expected a safetensors file, found a Git LFS pointer; fetch the file it "
                       "stands for");
    const uint64_t n = little_load(bytes, LENGTH_BYTES);
    const size_t left = len - LENGTH_BYTES, most = left < HEADER_MAX ? left : HEADER_MAX;
    if (n > most)
        return err_set(e, STATUS_BAD_FILE,
                       "the header's length at byte 0: expected at most %zu, found %" PRIu64
                       "; the file is truncated, or not a safetensors file",
                       most, n);
    *header = (struct text){(const char *)bytes + LENGTH_BYTES, (size_t)n};
    return STATUS_OK;
}

static enum status read_header(const unsigned char *bytes, size_t len, struct safetensors *s,
                               struct err *e)
{
    struct text header = {NULL, 0};
    const struct json_node *root = NULL;
    TRY(find_header(bytes, len, &header, e));
    s->head_bytes = LENGTH_BYTES + header.len;
    enum status status = json_read(&s->index->json, header, &limits, &root, e);
    if (status == STATUS_OK)
        status = json_expect(root, JSON_OBJECT, e);
    if (status != STATUS_OK) {
        err_prefix(e, "the header");
        return status;
    }
    struct reader r = {.data = bytes + s->head_bytes, .len = len - s->head_bytes, .e = e};
    return read_tensors(&r, root, s);
}

enum status safetensors_parse(const void *bytes, size_t len, struct safetensors **out,
                              struct err *e)
{
    *out = NULL;
    struct safetensors *s = calloc(1, sizeof *s);
    struct safetensors_index *ix = calloc(1, sizeof *ix);
    if (!s || !ix) {
        free(s);
        free(ix);
        return err_no_memory(e, "the safetensors reader", sizeof *s + sizeof *ix);
    }
    s->index = ix;
    const enum status status = read_header(bytes, len, s, e);
    if (status != STATUS_OK) {
        safetensors_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

enum status safetensors_parse_file(const struct file_map *f, struct safetensors **out,
                                   struct err *e)
{
    struct text header = {NULL, 0};
    *out = NULL;
    TRY(find_header(f->data, f->len, &header, e));
    const size_t head = LENGTH_BYTES + header.len;
    TRY(file_map_make_private(f, head, e));
    TRY(safetensors_parse(f->data, f->len, out, e));
    if ((*out)->head_bytes == head)
        return STATUS_OK;
    safetensors_free(*out);
    *out = NULL;
    return err_set(e, STATUS_BAD_FILE, "the file was changed while it was read: try again");
}

void safetensors_free(struct safetensors *s)
{
    if (!s)
        return;
    name_index_free(&s->index->by_name);
    json_reader_free(&s->index->json);
    free(s->index->tensors);
    free(s->index);
    free(s);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, struct text name)
{
    const size_t i = name_index_find(&s->index->by_name, name);
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}
