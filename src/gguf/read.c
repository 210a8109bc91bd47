/*
 * Reading GGUF: one pass over the header, then the tensors' places. The bytes are hostile:
 * every length is compared with what remains of them before it is used, and a count is believed
 * only if that many of the smallest records could follow, so that memory stays bounded too.
 *
 * Where the specification and llama.cpp's loader differ, the looser is accepted if it is safe:
 * counts of any integer kind, bools other than 0 and 1, tensors in any order and with gaps
 * between them, no padding after the last one. Refused by both or unsafe: nested arrays,
 * tensors that share bytes, alignments that would misalign numbers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "gguf/private.h"

/* The smallest records: a name of one byte, then a u8; or one dimension, type and offset. */
#define MIN_PAIR_BYTES   (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

#define DOWNLOAD_AGAIN "the file is truncated or corrupt: download or convert it again"

struct gguf_index {
    struct gguf_pair *pairs;
    struct gguf_tensor *tensors;
    struct name_index by_key, by_name;
};

struct reader {
    const unsigned char *bytes;
    size_t len, at;
    struct err *e;
};

/* --- primitives: each takes its bytes or says which field lacked them ----------------------- */

/* The next n bytes, or NULL with the message of a STATUS_BAD_FILE. */
static const unsigned char *reader_take(struct reader *r, uint64_t n, const char *what)
{
    const size_t left = r->len - r->at;
    if (n > left) {
        err_set(r->e, STATUS_BAD_FILE,
                "%s at byte %zu needs %" PRIu64 " bytes, found %zu more; " DOWNLOAD_AGAIN, what,
                r->at, n, left);
        return NULL;
    }
    const unsigned char *p = r->bytes + r->at;
    r->at += (size_t)n;
    return p;
}

static enum status take_u32(struct reader *r, const char *what, uint32_t *out)
{
    const unsigned char *p = reader_take(r, 4, what);
    if (!p)
        return STATUS_BAD_FILE;
    *out = (uint32_t)little_load(p, 4);
    return STATUS_OK;
}

static enum status take_u64(struct reader *r, const char *what, uint64_t *out)
{
    const unsigned char *p = reader_take(r, 8, what);
    if (!p)
        return STATUS_BAD_FILE;
    *out = little_load(p, 8);
    return STATUS_OK;
}

static enum status take_payload(struct reader *r, uint64_t n, const char *what, struct text *out)
{
    const unsigned char *p = reader_take(r, n, what);
    if (!p)
        return STATUS_BAD_FILE;
    *out = (struct text){(const char *)p, (size_t)n};
    return STATUS_OK;
}

/* A u64 length and that many bytes. */
static enum status take_text(struct reader *r, const char *what, struct text *out)
{
    uint64_t len;
    const enum status s = take_u64(r, what, &len);
    return s ? s : take_payload(r, len, what, out);
}

/* Refuses a count of records that cannot all follow. */
static enum status check_count(struct reader *r, const char *what, uint64_t count, size_t min_bytes)
{
    const size_t left = r->len - r->at;
    if (count > left / min_bytes)
        return err_set(r->e, STATUS_BAD_FILE,
                       "%s is %" PRIu64 ", expected at most %zu in the %zu bytes that follow "
                       "byte %zu; " DOWNLOAD_AGAIN,
                       what, count, left / min_bytes, left, r->at);
    return STATUS_OK;
}

/* Puts `tensor 3 "name": ` before the message; records count from 0. */
static enum status in_record(struct reader *r, enum status s, const char *record, size_t i,
                             struct text name)
{
    char prefix[288];
    if (name.len)
        snprintf(prefix, sizeof prefix, "%s %zu \"%.*s\"", record, i, text_width(name), name.data);
    else
        snprintf(prefix, sizeof prefix, "%s %zu", record, i);
    err_prefix(r->e, prefix);
    return s;
}

/* Names are compared and printed as C strings in other programs, for which it would be a shorter
 * one. */
static enum status refuse_zero_byte(struct reader *r, const char *what, struct text name)
{
    const char *zero = name.len ? memchr(name.data, 0, name.len) : NULL;
    if (!zero)
        return STATUS_OK;
    return err_set(r->e, STATUS_BAD_FILE,
                   "%s at byte %zu: expected no zero byte, found one as "
                   "byte %zu of %zu",
                   what, (size_t)((const unsigned char *)name.data - r->bytes),
                   (size_t)(zero - name.data), name.len);
}

/* --- header -------------------------------------------------------------------------------- */

struct other_format {
    const char *start, *hint;
};

/* What people pass to a GGUF reader by mistake. */
static const struct other_format other_formats[] = {
    {"FUGG", "a byte-swapped GGUF file; convert it on the machine that made it"},
    {"tjgg", "a GGML file from before GGUF; convert the model again"},
    {"fmgg", "a GGML file from before GGUF; convert the model again"},
    {"lmgg", "a GGML file from before GGUF; convert the model again"},
    {"version https://git-lfs", "a Git LFS pointer; fetch the file it stands for"},
    {"PK\003\004", "a PyTorch or zip archive; convert it to GGUF"},
    {"<", "a web page; download the file itself"},
};

static const char *guess_format(const struct reader *r)
{
    for (size_t i = 0; i < sizeof other_formats / sizeof other_formats[0]; i++) {
        const size_t n = strlen(other_formats[i].start);
        if (r->len >= n && memcmp(r->bytes, other_formats[i].start, n) == 0)
            return other_formats[i].hint;
    }
    return "not a GGUF file";
}

static enum status check_magic(struct reader *r)
{
    if (r->len == 0)
        return err_set(r->e, STATUS_BAD_FILE, "expected a GGUF file, found an empty one");
    if (!reader_take(r, 4, "magic"))
        return STATUS_BAD_FILE;
    if (memcmp(r->bytes, GGUF_MAGIC, 4) != 0)
        return err_set(r->e, STATUS_BAD_FILE,
                       "magic at byte 0: expected \"GGUF\", found bytes %02x %02x %02x %02x (%s)",
                       r->bytes[0], r->bytes[1], r->bytes[2], r->bytes[3], guess_format(r));
    return STATUS_OK;
}

static enum status check_version(struct reader *r, uint32_t *version)
{
    const enum status s = take_u32(r, "version", version);
    if (s)
        return s;
    if (*version == 2 || *version == 3)
        return STATUS_OK;
    const char *hint = "the file is newer than this program, or corrupt";
    if (*version == 0)
        hint = "the file is corrupt";
    else if (*version == 1)
        hint = "an early version with 32-bit lengths; convert the model again";
    else if ((*version & 0xffff) == 0)
        hint = "a byte-swapped (big-endian) file; convert it to little-endian";
    return err_set(r->e, STATUS_BAD_FILE,
                   "version at byte 4: expected 2 or 3, found %" PRIu32 " (%s)", *version, hint);
}

static enum status read_header(struct reader *r, struct gguf *g)
{
    uint64_t n_tensors, n_pairs;
    enum status s = check_magic(r);
    if (!s)
        s = check_version(r, &g->version);
    if (!s)
        s = take_u64(r, "tensor count", &n_tensors);
    if (!s)
        s = take_u64(r, "key count", &n_pairs);
    if (!s)
        s = check_count(r, "tensor count at byte 8", n_tensors, MIN_TENSOR_BYTES);
    if (!s)
        s = check_count(r, "key count at byte 16", n_pairs, MIN_PAIR_BYTES);
    if (!s) {
        g->n_tensors = (size_t)n_tensors;
        g->n_pairs = (size_t)n_pairs;
    }
    return s;
}

/* --- metadata ------------------------------------------------------------------------------ */

static enum status take_kind(struct reader *r, const char *what, enum gguf_kind *out)
{
    uint32_t kind = 0;
    const enum status s = take_u32(r, what, &kind);
    if (s)
        return s;
    if (kind > GGUF_LAST_KIND)
        return err_set(r->e, STATUS_BAD_FILE,
                       "%s at byte %zu: expected 0 to %d, found %" PRIu32
                       "; the file is corrupt or newer than this program",
                       what, r->at - 4, GGUF_LAST_KIND, kind);
    *out = (enum gguf_kind)kind;
    return STATUS_OK;
}

static enum status read_array(struct reader *r, struct gguf_value *v)
{
    enum status s = take_kind(r, "array element type", &v->element_kind);
    if (!s && v->element_kind == GGUF_ARRAY)
        s = err_set(r->e, STATUS_BAD_FILE,
                    "array element type at byte %zu: expected numbers, bools or strings, found "
                    "arrays (nested arrays are not supported)",
                    r->at - 4);
    if (!s)
        s = take_u64(r, "array length", &v->count);
    if (s)
        return s;
    const bool strings = v->element_kind == GGUF_STRING;
    const size_t element_bytes = strings ? 8 : gguf_kind_bytes(v->element_kind);
    s = check_count(r, "array length", v->count, element_bytes);
    if (s)
        return s;
    if (!strings)
        return take_payload(r, v->count * element_bytes, "array", &v->bytes);
    const size_t start = r->at;
    struct text element;
    for (uint64_t i = 0; i < v->count && !s; i++)
        s = take_text(r, "string in the array", &element);
    v->bytes = (struct text){(const char *)r->bytes + start, r->at - start};
    return s;
}

static enum status read_value(struct reader *r, struct gguf_value *v)
{
    const enum status s = take_kind(r, "value type", &v->kind);
    if (s)
        return s;
    if (v->kind == GGUF_ARRAY)
        return read_array(r, v);
    v->count = 1;
    if (v->kind == GGUF_STRING)
        return take_text(r, "string", &v->bytes);
    return take_payload(r, gguf_kind_bytes(v->kind), "value", &v->bytes);
}

static enum status read_pair(struct reader *r, struct gguf_pair *pair)
{
    const size_t start = r->at;
    const enum status s = take_text(r, "name of the key", &pair->key);
    if (s)
        return s;
    if (pair->key.len == 0 || pair->key.len > GGUF_MAX_KEY)
        return err_set(r->e, STATUS_BAD_FILE,
                       "length of the key's name at byte %zu: expected 1 to %d, found %zu", start,
                       GGUF_MAX_KEY, pair->key.len);
    const enum status zero = refuse_zero_byte(r, "name of the key", pair->key);
    return zero ? zero : read_value(r, &pair->value);
}

static enum status refuse_duplicate(struct reader *r, const char *record, struct text name,
                                    size_t first, size_t second)
{
    return err_set(r->e, STATUS_BAD_FILE,
                   "%s \"%.*s\" at byte %zu: expected each name once, found it as number %zu and "
                   "%zu",
                   record, text_width(name), name.data,
                   (size_t)((const unsigned char *)name.data - r->bytes), first, second);
}

static enum status read_pairs(struct reader *r, struct gguf *g)
{
    struct gguf_index *ix = g->index;
    ix->pairs = calloc(g->n_pairs ? g->n_pairs : 1, sizeof *ix->pairs);
    if (!ix->pairs)
        return err_no_memory(r->e, "the table of keys", g->n_pairs * sizeof *ix->pairs);
    g->pairs = ix->pairs;
    for (size_t i = 0; i < g->n_pairs; i++) {
        const enum status s = read_pair(r, &ix->pairs[i]);
        if (s)
            return in_record(r, s, "key", i, ix->pairs[i].key);
    }
    size_t first, second;
    const enum status s = name_index_build(&ix->by_key, ix->pairs, sizeof *ix->pairs, g->n_pairs,
                                           &first, &second, r->e);
    if (!s && first < g->n_pairs)
        return refuse_duplicate(r, "key", ix->pairs[first].key, first, second);
    return s;
}

static enum status read_alignment(struct reader *r, struct gguf *g)
{
    g->alignment = GGUF_ALIGNMENT_DEFAULT;
    const struct gguf_value *v = gguf_find(g, GGUF_ALIGNMENT_KEY);
    if (!v)
        return STATUS_OK;
    if (v->kind != GGUF_U32)
        return err_set(r->e, STATUS_BAD_FILE, "key \"%s\": expected a u32, found %s",
                       GGUF_ALIGNMENT_KEY, gguf_kind_name(v->kind));
    const uint64_t alignment = little_load(v->bytes.data, 4);
    if (!gguf_alignment_legal(alignment))
        return err_set(r->e, STATUS_BAD_FILE,
                       "key \"%s\" at byte %zu: expected a power of two from %d to %d, found "
                       "%" PRIu64,
                       GGUF_ALIGNMENT_KEY,
                       (size_t)((const unsigned char *)v->bytes.data - r->bytes),
                       GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX, alignment);
    g->alignment = (uint32_t)alignment;
    return STATUS_OK;
}

/* --- tensors ------------------------------------------------------------------------------- */

static enum status read_tensor_name(struct reader *r, struct gguf_tensor *t)
{
    const size_t start = r->at;
    struct text name;
    const enum status s = take_text(r, "name of the tensor", &name);
    if (s)
        return s;
    if (name.len == 0 || name.len > GGUF_MAX_NAME_READ)
        return err_set(r->e, STATUS_BAD_FILE,
                       "length of the tensor's name at byte %zu: expected 1 to %d, found %zu",
                       start, GGUF_MAX_NAME_READ, name.len);
    t->name = name;
    return refuse_zero_byte(r, "name of the tensor", name);
}

static enum status read_dims(struct reader *r, struct gguf_tensor *t)
{
    uint32_t n_dims;
    enum status s = take_u32(r, "number of dimensions", &n_dims);
    if (s)
        return s;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return err_set(r->e, STATUS_BAD_FILE,
                       "number of dimensions at byte %zu: expected 1 to %d, found %" PRIu32,
                       r->at - 4, GGUF_MAX_DIMS, n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = 1;
    for (int d = 0; d < t->n_dims && !s; d++)
        s = take_u64(r, "dimensions", &t->dims[d]);
    return s;
}

static enum status read_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *offset)
{
    uint32_t type;
    enum status s = read_tensor_name(r, t);
    if (!s)
        s = read_dims(r, t);
    if (!s)
        s = take_u32(r, "type", &type);
    if (!s)
        s = take_u64(r, "offset", offset);
    if (!s)
        s = gguf_tensor_measure(t, type, STATUS_BAD_FILE, r->e);
    return s;
}

/* Finds the tensor's bytes in the span. */
static enum status place_tensor(struct reader *r, const struct gguf *g, uint64_t data_start,
                                uint64_t offset, struct gguf_tensor *t)
{
    if (offset % g->alignment != 0)
        return err_set(r->e, STATUS_BAD_FILE,
                       "offset: expected a multiple of the alignment %" PRIu32 ", found %" PRIu64,
                       g->alignment, offset);
    uint64_t begin;
    if (!u64_add(data_start, offset, &begin) || begin > r->len)
        return err_set(r->e, STATUS_BAD_FILE,
                       "offset: its data begin at byte %" PRIu64 " + %" PRIu64
                       ", expected within the file's %zu bytes; " DOWNLOAD_AGAIN,
                       data_start, offset, r->len);
    if (t->n_bytes > r->len - begin)
        return err_set(r->e, STATUS_BAD_FILE,
                       "its data at byte %" PRIu64 " need %" PRIu64 " bytes, found %" PRIu64
                       "; the file is truncated: download it again",
                       begin, t->n_bytes, r->len - begin);
    t->data = r->bytes + begin;
    return STATUS_OK;
}

/* Offsets are multiples of the alignment: when data do not overlap, their padding does not. */
static enum status refuse_overlap(struct reader *r, const struct gguf *g,
                                  const struct index_entry *by_offset)
{
    for (size_t i = 1; i < g->n_tensors; i++) {
        const struct gguf_tensor *a = &g->tensors[by_offset[i - 1].position];
        const struct gguf_tensor *b = &g->tensors[by_offset[i].position];
        if (a->n_bytes > by_offset[i].key - by_offset[i - 1].key)
            return err_set(r->e, STATUS_BAD_FILE,
                           "tensors \"%.*s\" and \"%.*s\" overlap: offset %" PRIu64 " with %" PRIu64
                           " bytes, and offset %" PRIu64 "; expected separate data",
                           text_width(a->name), a->name.data, text_width(b->name), b->name.data,
                           by_offset[i - 1].key, a->n_bytes, by_offset[i].key);
    }
    return STATUS_OK;
}

/* `offsets` and `scratch` have n_tensors entries. */
static enum status read_tensor_records(struct reader *r, struct gguf *g,
                                       struct index_entry *offsets, struct index_entry *scratch)
{
    struct gguf_tensor *tensors = g->index->tensors;
    enum status s = STATUS_OK;
    for (size_t i = 0; i < g->n_tensors; i++) {
        offsets[i].position = i;
        s = read_tensor(r, &tensors[i], &offsets[i].key);
        if (s)
            return in_record(r, s, "tensor", i, tensors[i].name);
    }
    size_t first, second;
    s = name_index_build(&g->index->by_name, tensors, sizeof *tensors, g->n_tensors, &first,
                         &second, r->e);
    if (s)
        return s;
    if (first < g->n_tensors)
        return refuse_duplicate(r, "tensor", tensors[first].name, first, second);
    uint64_t data_start = r->at;
    if (!u64_align_up(data_start, g->alignment, &data_start))
        return err_set(r->e, STATUS_BAD_FILE, "the header's padding at byte %zu overflows", r->at);
    for (size_t i = 0; i < g->n_tensors; i++) {
        s = place_tensor(r, g, data_start, offsets[i].key, &tensors[i]);
        if (s)
            return in_record(r, s, "tensor", i, tensors[i].name);
    }
    index_sort_by_key(offsets, scratch, g->n_tensors);
    return refuse_overlap(r, g, offsets);
}

static enum status read_tensors(struct reader *r, struct gguf *g)
{
    const size_t n = g->n_tensors ? g->n_tensors : 1;
    struct index_entry *offsets = calloc(n, sizeof *offsets);
    struct index_entry *scratch = calloc(n, sizeof *scratch);
    g->index->tensors = calloc(n, sizeof *g->index->tensors);
    g->tensors = g->index->tensors;
    enum status s;
    if (!offsets || !scratch || !g->tensors)
        s = err_no_memory(r->e, "the table of tensors",
                          n * (2 * sizeof *offsets + sizeof *g->tensors));
    else
        s = read_tensor_records(r, g, offsets, scratch);
    free(offsets);
    free(scratch);
    return s;
}

enum status gguf_parse(const void *bytes, size_t len, struct gguf **out, struct err *e)
{
    *out = NULL;
    struct reader r = {.bytes = bytes, .len = len, .e = e};
    struct gguf *g = calloc(1, sizeof *g);
    struct gguf_index *ix = calloc(1, sizeof *ix);
    if (!g || !ix) {
        free(g);
        free(ix);
        return err_no_memory(e, "the GGUF reader", sizeof *g + sizeof *ix);
    }
    g->index = ix;
    enum status s = read_header(&r, g);
    if (!s)
        s = read_pairs(&r, g);
    if (!s)
        s = read_alignment(&r, g);
    if (!s)
        s = read_tensors(&r, g);
    if (s) {
        gguf_free(g);
        return s;
    }
    g->head_bytes = r.at;
    *out = g;
    return STATUS_OK;
}

enum status gguf_parse_file(const struct file_map *f, struct gguf **out, struct err *e)
{
    /* Where the head ends is known when it was read. */
    TRY(gguf_parse(f->data, f->len, out, e));
    const size_t head = (*out)->head_bytes;
    gguf_free(*out);
    *out = NULL;
    enum status s = file_map_make_private(f, head, e);
    if (s == STATUS_OK)
        s = gguf_parse(f->data, f->len, out, e);
    if (s == STATUS_OK && (*out)->head_bytes > head) {
        gguf_free(*out);
        *out = NULL;
        s = err_set(e, STATUS_BAD_FILE, "the file was changed while it was read: try again");
    }
    return s;
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    name_index_free(&g->index->by_key);
    name_index_free(&g->index->by_name);
    free(g->index->pairs);
    free(g->index->tensors);
    free(g->index);
    free(g);
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const size_t i = name_index_find(&g->index->by_key, text_of(key));
    return i < g->n_pairs ? &g->pairs[i].value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const size_t i = name_index_find(&g->index->by_name, text_of(name));
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}
