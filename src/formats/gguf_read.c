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
#include "formats/gguf_private.h"

/* The smallest records: a name of one byte, then a u8; or one dimension, type and offset. */
#define MIN_PAIR_BYTES   (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

#define DOWNLOAD_AGAIN "the file is truncated or corrupt: download or convert it again"

/* --- the cursor: each call takes its bytes, or says which field lacked them ------------------ */

struct reader {
    const char *bytes;
    size_t len, at;
    struct err *e;
};

static enum status take(struct reader *r, uint64_t n, const char *what, struct text *out)
{
    const size_t left = r->len - r->at;
    if (n > left)
        return err_bad_file(
            r->e, "%s at byte %zu needs %" PRIu64 " bytes, found %zu more; " DOWNLOAD_AGAIN, what,
            r->at, n, left);
    *out = (struct text){r->bytes + r->at, (size_t)n};
    r->at += (size_t)n;
    return STATUS_OK;
}

/* A number of so many bytes. */
static enum status take_int(struct reader *r, size_t bytes, const char *what, uint64_t *out)
{
    struct text raw = {0};
    TRY(take(r, bytes, what, &raw));
    *out = little_load(raw.data, bytes);
    return STATUS_OK;
}

/* A u64 length and that many bytes. */
static enum status take_text(struct reader *r, const char *what, struct text *out)
{
    uint64_t len = 0;
    TRY(take_int(r, 8, what, &len));
    return take(r, len, what, out);
}

/* The name of a record, a "key" or a "tensor". Other programs compare and print names as C strings,
 * for which one with a zero byte would be a shorter one. */
static enum status take_name(struct reader *r, const char *record, size_t max, struct text *out)
{
    char what[32];
    struct text name = {0};
    const size_t start = r->at;
    snprintf(what, sizeof what, "name of the %s", record);
    TRY(take_text(r, what, &name));
    *out = name;
    if (name.len == 0 || name.len > max)
        return err_bad_file(r->e,
                            "length of the %s's name at byte %zu: expected 1 to %zu, found %zu",
                            record, start, max, name.len);
    const char *zero = memchr(name.data, 0, name.len);
    if (zero)
        return err_bad_file(
            r->e, "%s at byte %zu: expected no zero byte, found one as byte %zu of %zu", what,
            (size_t)(name.data - r->bytes), (size_t)(zero - name.data), name.len);
    return STATUS_OK;
}

static enum status take_kind(struct reader *r, const char *what, enum gguf_kind *out)
{
    uint64_t kind = 0;
    TRY(take_int(r, 4, what, &kind));
    if (kind > GGUF_LAST_KIND)
        return err_bad_file(r->e,
                            "%s at byte %zu: expected 0 to %d, found %" PRIu64
                            "; the file is corrupt or newer than this program",
                            what, r->at - 4, GGUF_LAST_KIND, kind);
    *out = (enum gguf_kind)kind;
    return STATUS_OK;
}

/* Refuses a count of records that cannot all follow. */
static enum status check_count(struct reader *r, const char *what, uint64_t count, size_t min_bytes)
{
    const size_t left = r->len - r->at;
    if (count > left / min_bytes)
        return err_bad_file(r->e,
                            "%s is %" PRIu64 ", expected at most %zu in the %zu bytes that follow "
                            "byte %zu; " DOWNLOAD_AGAIN,
                            what, count, left / min_bytes, left, r->at);
    return STATUS_OK;
}

/* --- records --------------------------------------------------------------------------------- */

/* Puts `tensor 3 "name": ` before the message of a failure; records count from 0. */
static enum status in_record(struct reader *r, enum status s, const char *record, size_t i,
                             const struct text *name)
{
    return name->len ? err_in(r->e, s, "%s %zu \"%.*s\"", record, i, text_width(*name), name->data)
                     : err_in(r->e, s, "%s %zu", record, i);
}

/* Indexes records that start with their names, of which none may be there twice. */
static enum status index_names(struct reader *r, struct name_index *ix, const char *record,
                               const void *records, size_t stride, size_t n)
{
    TRY(name_index_records(ix, records, stride, n, r->e));
    const struct indexed *twins = name_index_twins(ix);
    if (!twins)
        return STATUS_OK;
    const struct text name = twins->text;
    return err_bad_file(
        r->e, "%s \"%.*s\" at byte %zu: expected each name once, found it as number %d and %d",
        record, text_width(name), name.data, (size_t)(name.data - r->bytes), twins[0].id,
        twins[1].id);
}

/* --- header ---------------------------------------------------------------------------------- */

/* What people pass to a GGUF reader by mistake. */
static const struct other_format {
    const char *start, *hint;
} other_formats[] = {
    {"FUGG", "a byte-swapped GGUF file; convert it on the machine that made it"},
    {"tjgg", "a GGML file from before GGUF; convert the model again"},
    {"fmgg", "a GGML file from before GGUF; convert the model again"},
    {"lmgg", "a GGML file from before GGUF; convert the model again"},
    {"version https://git-lfs", "a Git LFS pointer; fetch the file it stands for"},
    {"PK\003\004", "a PyTorch or zip archive; convert it to GGUF"},
    {"<", "a web page; download the file itself"},
    {"", "not a GGUF file"},
};

static enum status read_header(struct reader *r, struct gguf *g)
{
    struct text magic = {0};
    uint64_t version = 0, n_tensors = 0, n_pairs = 0;
    if (r->len == 0)
        return err_bad_file(r->e, "expected a GGUF file, found an empty one");
    TRY(take(r, 4, "magic", &magic));
    if (!text_is(magic, GGUF_MAGIC)) {
        const struct other_format *f = other_formats;
        const unsigned char *m = (const unsigned char *)magic.data;
        while (!text_starts_with((struct text){r->bytes, r->len}, f->start))
            f++;
        return err_bad_file(
            r->e, "magic at byte 0: expected \"GGUF\", found bytes %02x %02x %02x %02x (%s)", m[0],
            m[1], m[2], m[3], f->hint);
    }
    TRY(take_int(r, 4, "version", &version));
    if (version != 2 && version != 3) {
        const char *hint = "the file is newer than this program, or corrupt";
        if (version == 0)
            hint = "the file is corrupt";
        else if (version == 1)
            hint = "an early version with 32-bit lengths; convert the model again";
        else if ((version & 0xffff) == 0)
            hint = "a byte-swapped (big-endian) file; convert it to little-endian";
        return err_bad_file(r->e, "version at byte 4: expected 2 or 3, found %" PRIu64 " (%s)",
                            version, hint);
    }
    TRY(take_int(r, 8, "tensor count", &n_tensors));
    TRY(take_int(r, 8, "key count", &n_pairs));
    TRY(check_count(r, "tensor count at byte 8", n_tensors, MIN_TENSOR_BYTES));
    TRY(check_count(r, "key count at byte 16", n_pairs, MIN_PAIR_BYTES));
    g->version = (uint32_t)version;
    g->n_tensors = (size_t)n_tensors;
    g->n_pairs = (size_t)n_pairs;
    return STATUS_OK;
}

/* --- metadata -------------------------------------------------------------------------------- */

static enum status read_pair(struct reader *r, struct gguf_pair *pair)
{
    struct gguf_value *v = &pair->value;
    TRY(take_name(r, "key", GGUF_MAX_KEY, &pair->key));
    TRY(take_kind(r, "value type", &v->kind));
    v->count = 1;
    if (v->kind == GGUF_STRING)
        return take_text(r, "string", &v->bytes);
    if (v->kind != GGUF_ARRAY)
        return take(r, gguf_kind_bytes(v->kind), "value", &v->bytes);

    TRY(take_kind(r, "array element type", &v->element_kind));
    if (v->element_kind == GGUF_ARRAY)
        return err_bad_file(r->e,
                            "array element type at byte %zu: expected numbers, bools or strings, "
                            "found arrays (nested arrays are not supported)",
                            r->at - 4);
    TRY(take_int(r, 8, "array length", &v->count));
    const bool strings = v->element_kind == GGUF_STRING;
    const size_t element_bytes = strings ? 8 : gguf_kind_bytes(v->element_kind);
    TRY(check_count(r, "array length", v->count, element_bytes));
    if (!strings)
        return take(r, v->count * element_bytes, "array", &v->bytes);
    const size_t start = r->at;
    struct text element;
    for (uint64_t i = 0; i < v->count; i++)
        TRY(take_text(r, "string in the array", &element));
    v->bytes = (struct text){r->bytes + start, r->at - start};
    return STATUS_OK;
}

static enum status read_pairs(struct reader *r, struct gguf *g)
{
    const size_t n = g->n_pairs;
    struct gguf_pair *pairs = g->pairs = calloc(n + !n, sizeof *pairs);
    if (!pairs)
        return err_no_memory(r->e, "the table of keys", n * sizeof *pairs);
    for (size_t i = 0; i < n; i++)
        TRY(in_record(r, read_pair(r, &pairs[i]), "key", i, &pairs[i].key));
    TRY(index_names(r, &g->by_key, "key", pairs, sizeof *pairs, n));

    g->alignment = GGUF_ALIGNMENT_DEFAULT;
    const struct gguf_value *v = gguf_find(g, GGUF_ALIGNMENT_KEY);
    if (!v)
        return STATUS_OK;
    if (v->kind != GGUF_U32)
        return err_bad_file(r->e, "key \"%s\": expected a u32, found %s", GGUF_ALIGNMENT_KEY,
                            gguf_kind_name(v->kind));
    g->alignment = (uint32_t)little_load(v->bytes.data, 4);
    if (!gguf_alignment_legal(g->alignment))
        return err_bad_file(
            r->e, "key \"%s\" at byte %zu: expected a power of two from %d to %d, found %" PRIu32,
            GGUF_ALIGNMENT_KEY, (size_t)(v->bytes.data - r->bytes), GGUF_ALIGNMENT_MIN,
            GGUF_ALIGNMENT_MAX, g->alignment);
    return STATUS_OK;
}

/* --- tensors --------------------------------------------------------------------------------- */

/* Where a tensor's data begin, from the end of the header. */
struct place {
    uint64_t offset;
    const struct gguf_tensor *tensor;
};

static enum status read_tensor(struct reader *r, struct gguf_tensor *t, struct place *place)
{
    uint64_t n_dims = 0, type = 0;
    struct text name = {0};
    place->tensor = t;
    const enum status s = take_name(r, "tensor", GGUF_MAX_NAME_READ, &name);
    if (name.len <= GGUF_MAX_NAME_READ) /* messages do not show one that is too long */
        t->name = name;
    TRY(s);
    TRY(take_int(r, 4, "number of dimensions", &n_dims));
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return err_bad_file(r->e,
                            "number of dimensions at byte %zu: expected 1 to %d, found %" PRIu64,
                            r->at - 4, GGUF_MAX_DIMS, n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = 1;
    for (int d = 0; d < t->n_dims; d++)
        TRY(take_int(r, 8, "dimensions", &t->dims[d]));
    TRY(take_int(r, 4, "type", &type));
    TRY(take_int(r, 8, "offset", &place->offset));
    return gguf_tensor_measure(t, (uint32_t)type, STATUS_BAD_FILE, r->e);
}

/* Finds the tensor's bytes in the span. */
static enum status place_tensor(struct reader *r, const struct gguf *g, uint64_t data_start,
                                uint64_t offset, struct gguf_tensor *t)
{
    uint64_t begin;
    if (offset % g->alignment != 0)
        return err_bad_file(
            r->e, "offset: expected a multiple of the alignment %" PRIu32 ", found %" PRIu64,
            g->alignment, offset);
    if (!u64_add(data_start, offset, &begin) || begin > r->len)
        return err_bad_file(r->e,
                            "offset: its data begin at byte %" PRIu64 " + %" PRIu64
                            ", expected within the file's %zu bytes; " DOWNLOAD_AGAIN,
                            data_start, offset, r->len);
    if (t->n_bytes > r->len - begin)
        return err_bad_file(r->e,
                            "its data at byte %" PRIu64 " need %" PRIu64 " bytes, found %" PRIu64
                            "; the file is truncated: download it again",
                            begin, t->n_bytes, r->len - begin);
    t->data = (const unsigned char *)r->bytes + begin;
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* `places` has room for all tensors. */
static enum status read_tensors(struct reader *r, struct gguf *g, struct place *places)
{
    const size_t n = g->n_tensors;
    struct gguf_tensor *tensors = g->tensors;
    for (size_t i = 0; i < n; i++)
        TRY(in_record(r, read_tensor(r, &tensors[i], &places[i]), "tensor", i, &tensors[i].name));
    TRY(index_names(r, &g->by_name, "tensor", tensors, sizeof *tensors, n));
    g->head_bytes = r->at;
    uint64_t data_start = r->at;
    if (!u64_align_up(data_start, g->alignment, &data_start))
        return err_bad_file(r->e, "the header's padding at byte %zu overflows", r->at);
    for (size_t i = 0; i < n; i++)
        TRY(in_record(r, place_tensor(r, g, data_start, places[i].offset, &tensors[i]), "tensor", i,
                      &tensors[i].name));

    /* Offsets are multiples of the alignment: when data do not overlap, their padding does not. */
    qsort(places, n, sizeof *places, compare_places);
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *a = places[i - 1].tensor, *b = places[i].tensor;
        if (a->n_bytes > places[i].offset - places[i - 1].offset)
            return err_bad_file(r->e,
                                "tensors \"%.*s\" and \"%.*s\" overlap: offset %" PRIu64
                                " with %" PRIu64 " bytes, and offset %" PRIu64
                                "; expected separate data",
                                text_width(a->name), a->name.data, text_width(b->name),
                                b->name.data, places[i - 1].offset, a->n_bytes, places[i].offset);
    }
    return STATUS_OK;
}

/* --- the file -------------------------------------------------------------------------------- */

static enum status read_file(struct reader *r, struct gguf *g)
{
    TRY(read_header(r, g));
    TRY(read_pairs(r, g));
    const size_t n = g->n_tensors + !g->n_tensors;
    struct place *places = calloc(n, sizeof *places);
    g->tensors = calloc(n, sizeof *g->tensors);
    const enum status s = places && g->tensors
                              ? read_tensors(r, g, places)
                              : err_no_memory(r->e, "the table of tensors",
                                              n * (sizeof *places + sizeof *g->tensors));
    free(places);
    return s;
}

enum status gguf_parse(const void *bytes, size_t len, struct gguf **out, struct err *e)
{
    struct reader r = {.bytes = bytes, .len = len, .e = e};
    struct gguf *g = *out = calloc(1, sizeof *g);
    if (!g)
        return err_no_memory(e, "the GGUF reader", sizeof *g);
    const enum status s = read_file(&r, g);
    if (s != STATUS_OK) {
        gguf_free(g);
        *out = NULL;
    }
    return s;
}

enum status gguf_parse_file(const struct file_map *f, struct gguf **out, struct err *e)
{
    /* Where the head ends is known when it was read. */
    TRY(gguf_parse(f->data, f->len, out, e));
    const size_t head = (*out)->head_bytes;
    gguf_free(*out);
    *out = NULL;
    TRY(file_map_make_private(f, head, e));
    TRY(gguf_parse(f->data, f->len, out, e));
    if ((*out)->head_bytes <= head)
        return STATUS_OK;
    gguf_free(*out);
    *out = NULL;
    return err_bad_file(e, "the file was changed while it was read: try again");
}

void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    name_index_free(&g->by_key);
    name_index_free(&g->by_name);
    free(g->pairs);
    free(g->tensors);
    free(g);
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct indexed *found = name_index_find(&g->by_key, text_of(key));
    return found ? &g->pairs[found->id].value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const struct indexed *found = name_index_find(&g->by_name, text_of(name));
    return found ? &g->tensors[found->id] : NULL;
}
