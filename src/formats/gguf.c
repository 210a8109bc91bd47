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
#include "formats/gguf.h"

#include <inttypes.h>

#include "base/half.h"
#include "base/mem.h"
#include "formats/gguf_private.h"
#include "formats/gguf_values.h"

/* The smallest records: a name of one byte, then a u8; or one dimension, type and offset. */
#define MIN_PAIR_BYTES   (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

/* The specification asks for a multiple of 8, the loader for a power of two; both are demanded,
 * because smaller ones would misalign the numbers of a tensor. The ceiling is ours: padding up to
 * it is small and cannot overflow. */
#define ALIGNMENT_MIN    8
#define ALIGNMENT_MAX    65536
#define ALIGNMENT_WANTED "a u32 that is a power of two from 8 to 65536"

#define MOST_PARTS 65535 /* llama.cpp keeps their number in 16 bits */

#define DOWNLOAD_AGAIN "the file is truncated or corrupt: download or convert it again"

/* --- the cursor ------------------------------------------------------------------------------ */

/* After the first failure everything that is read is empty or 0, and the message stays. So whoever
 * reads a record looks at the status once, at its end. */
struct reader {
    const char *bytes;
    size_t len, at;
    enum status status;
    struct err *e;
};

/* Refuses the record that is being read. An earlier failure stays, because this one may follow from
 * it. */
#define refuse(r, ...)                                                                             \
    ((void)((r)->status == STATUS_OK && ((r)->status = err_bad_file((r)->e, __VA_ARGS__))))

/* Takes the next n bytes, which messages call `what`. */
static struct text take(struct reader *r, uint64_t n, const char *what)
{
    const size_t left = r->len - r->at;
    if (n > left)
        refuse(r, "%s at byte %zu needs %" PRIu64 " bytes, found %zu more; " DOWNLOAD_AGAIN, what,
               r->at, n, left);
    if (r->status)
        return text_of("");
    r->at += n;
    return text_span(r->bytes + r->at - n, n);
}

/* Takes a number of so many bytes. */
static uint64_t take_int(struct reader *r, size_t bytes, const char *what)
{
    const struct text raw = take(r, bytes, what);
    return r->status ? 0 : little_load(raw.data, bytes);
}

/* Takes a u64 length and that many bytes. */
static struct text take_text(struct reader *r, const char *what)
{
    return take(r, take_int(r, 8, what), what);
}

/* Takes the name of a record. A zero byte in it is refused, because other programs, which compare
 * and print C strings, would see a shorter name. */
static struct text take_name(struct reader *r, size_t max)
{
    const size_t start = r->at;
    const struct text name = take_text(r, "name");
    if (name.len == 0 || name.len > max)
        refuse(r, "length of the name at byte %zu: expected 1 to %zu, found %zu", start, max,
               name.len);
    const char *zero = memchr(name.data, 0, name.len);
    if (zero)
        refuse(r, "name at byte %zu: expected no zero byte, found one as byte %zu of %zu", start,
               (zero - name.data), name.len);
    return name.len > max ? text_of("") : name; /* messages show no longer one */
}

static enum gguf_kind take_kind(struct reader *r, const char *what)
{
    const uint64_t kind = take_int(r, 4, what);
    if (kind > GGUF_LAST_KIND)
        refuse(r,
               "%s at byte %zu: expected 0 to %d, found %" PRIu64
               "; the file is corrupt or newer than this program",
               what, r->at - 4, GGUF_LAST_KIND, kind);
    return r->status ? GGUF_U8 : kind;
}

/* Takes a count of records of at least min_bytes, which follow behind the next `between` bytes. */
static uint64_t take_count(struct reader *r, const char *what, size_t between, size_t min_bytes)
{
    const uint64_t count = take_int(r, 8, what);
    size_t left = r->len - r->at;
    left -= MIN(between, left);
    if (count > left / min_bytes)
        refuse(r,
               "%s is %" PRIu64
               ", expected at most %zu in the %zu bytes that follow byte %zu; " DOWNLOAD_AGAIN,
               what, count, left / min_bytes, left, r->at);
    return r->status ? 0 : count;
}

/* --- records --------------------------------------------------------------------------------- */

/* Puts `tensor 3 "name": ` before the message of a failure; records count from 0. */
static void in_record(struct reader *r, const char *record, size_t i, struct text name)
{
    if (name.len == 0)
        err_in(r->e, r->status, "%s %zu", record, i);
    else
        err_in(r->e, r->status, "%s %zu \"%.*s\"", record, i, text_width(name), name.data);
}

/* Indexes records that start with their names. A name that is there twice is refused. */
static void index_names(struct reader *r, struct name_index *ix, const void *records, size_t stride,
                        size_t n)
{
    if (r->status)
        return;
    for (size_t i = 0; i < n && !r->status; i++) {
        const struct text *name = (const void *)((const char *)records + i * stride);
        r->status = name_index_add(ix, *name, (int32_t)i, 0, r->e);
    }
    name_index_sort(ix);
    for (size_t i = 1; i < ix->n; i++) {
        const struct indexed *twins = &ix->list[i - 1];
        if (text_equal(twins[0].text, twins[1].text))
            refuse(r, "\"%.*s\" at byte %zu: expected each name once, found it as number %d and %d",
                   text_width(twins->text), twins->text.data, twins->text.data - r->bytes,
                   twins[0].id, twins[1].id);
    }
}

/* --- header ---------------------------------------------------------------------------------- */

/* What people pass to a GGUF reader by mistake, by its first bytes. */
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

static void read_header(struct reader *r, struct gguf *g)
{
    if (r->len == 0)
        refuse(r, "expected a GGUF file, found an empty one");
    const struct text magic = take(r, 4, "magic");
    if (!r->status && !text_is(magic, GGUF_MAGIC)) {
        const struct other_format *f = other_formats;
        const unsigned char *m = (const unsigned char *)magic.data;
        while (!text_starts_with(text_span(r->bytes, r->len), f->start))
            f++;
        refuse(r, "magic at byte 0: expected \"GGUF\", found bytes %02x %02x %02x %02x (%s)", m[0],
               m[1], m[2], m[3], f->hint);
    }
    g->version = take_int(r, 4, "version");
    if (g->version != 2 && g->version != 3)
        refuse(r, "version at byte 4: expected 2 or 3, found %" PRIu32 " (%s)", g->version,
               g->version < 2 ? "an early version, or corrupt; convert the model again"
               : g->version & 0xffff
                   ? "the file is newer than this program, or corrupt"
                   : "a byte-swapped (big-endian) file; convert it to little-endian");
    g->n_tensors = take_count(r, "tensor count at byte 8", 8, MIN_TENSOR_BYTES);
    g->n_pairs = take_count(r, "key count at byte 16", 0, MIN_PAIR_BYTES);
}

/* --- metadata -------------------------------------------------------------------------------- */

static void read_pairs(struct reader *r, struct gguf *g)
{
    for (size_t i = 0; i < g->n_pairs && !r->status; i++) {
        struct gguf_value *v = &g->pairs[i].value;
        const struct text key = g->pairs[i].key = take_name(r, GGUF_MAX_KEY);
        enum gguf_kind kind = v->kind = take_kind(r, "value type");
        v->count = 1;
        if (v->kind == GGUF_ARRAY) {
            kind = v->element_kind = take_kind(r, "array element type");
            if (kind == GGUF_ARRAY)
                refuse(r,
                       "array element type at byte %zu: expected numbers, bools or strings, found "
                       "arrays (nested arrays are not supported)",
                       r->at - 4);
            const size_t least = gguf_kind_bytes(kind);
            v->count = take_count(r, "array length", 0, least ? least : 8);
        }
        const size_t start = r->at;
        if (v->kind == GGUF_STRING)
            v->bytes = take_text(r, "string");
        else if (kind != GGUF_STRING)
            v->bytes = take(r, v->count * gguf_kind_bytes(kind), "value");
        else {
            for (uint64_t k = 0; k < v->count && !r->status; k++)
                (void)take_text(r, "string in the array");
            v->bytes = text_span(r->bytes + start, r->at - start);
        }
        in_record(r, "key", i, key);
    }
    index_names(r, &g->by_key, g->pairs, sizeof *g->pairs, g->n_pairs);

    g->alignment = GGUF_ALIGNMENT_DEFAULT;
    const struct gguf_value *v = r->status ? NULL : gguf_find(g, GGUF_ALIGNMENT_KEY);
    if (!v)
        return;
    char number[24] = "";
    if (gguf_is_integer(v->kind))
        chars_printf(number, " %" PRId64, gguf_int_at(v, 0));
    const uint32_t x = g->alignment = v->kind == GGUF_U32 ? little_load(v->bytes.data, 4) : 0;
    if (x < ALIGNMENT_MIN || x > ALIGNMENT_MAX || (x & (x - 1)) != 0)
        refuse(r, "key \"%s\": expected " ALIGNMENT_WANTED ", found %s%s", GGUF_ALIGNMENT_KEY,
               gguf_kind_name(v->kind), number);
}

/* A part of a split file, as llama.cpp's gguf-split writes them, has the keys split.no, from 0 on,
 * and split.count. */
static void refuse_part(struct reader *r, const struct gguf *g)
{
    uint64_t no = 0, count = 1;
    if (!r->status)
        r->status = gguf_get_u64(g, "split.count", 0, MOST_PARTS, &count, GGUF_OPTIONAL, r->e);
    if (!r->status && count > 1)
        r->status = gguf_get_u64(g, "split.no", 0, count - 1, &no, GGUF_OPTIONAL, r->e);
    if (count > 1)
        refuse(r,
               "part %" PRIu64 " of %" PRIu64 " of a split file, expected a whole one; llama.cpp "
               "joins them: llama-gguf-split --merge FIRST OUT, FIRST being the part whose name "
               "ends in -00001-of-%05" PRIu64 ".gguf",
               no + 1, count, count);
}

/* --- tensors --------------------------------------------------------------------------------- */

static void read_tensor(struct reader *r, struct gguf_tensor *t)
{
    t->name = take_name(r, GGUF_MAX_NAME_READ);
    const uint64_t n_dims = take_int(r, 4, "number of dimensions");
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        refuse(r, "number of dimensions at byte %zu: expected 1 to %d, found %" PRIu64, r->at - 4,
               GGUF_MAX_DIMS, n_dims);
    if (r->status)
        return;
    t->n_dims = n_dims;
    for (int d = 0; d < GGUF_MAX_DIMS; d++)
        t->dims[d] = d < t->n_dims ? take_int(r, 8, "dimensions") : 1;
    const uint32_t type = take_int(r, 4, "type");
    t->offset = take_int(r, 8, "offset");
    if (!r->status)
        r->status = gguf_tensor_measure(t, type, r->e);
}

static int compare_places(const void *left, const void *right)
{
    const struct gguf_tensor *a = *(const struct gguf_tensor *const *)left;
    const struct gguf_tensor *b = *(const struct gguf_tensor *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a > b) - (a < b);
}

/* `by_place` has room for all tensors. */
static void read_tensors(struct reader *r, struct gguf *g, const struct gguf_tensor **by_place)
{
    for (size_t i = 0; i < g->n_tensors && !r->status; i++) {
        by_place[i] = &g->tensors[i];
        read_tensor(r, &g->tensors[i]);
        in_record(r, "tensor", i, g->tensors[i].name);
    }
    index_names(r, &g->by_name, g->tensors, sizeof *g->tensors, g->n_tensors);
    if (r->status)
        return;
    /* The header is in memory: its padding cannot overflow. */
    const uint64_t data_start = ((uint64_t)r->at + g->alignment - 1) / g->alignment * g->alignment;
    for (size_t i = 0; i < g->n_tensors && !r->status; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        const uint64_t begin = u64_sum(data_start, t->offset);
        if (t->offset % g->alignment != 0)
            refuse(r, "offset: expected a multiple of the alignment %" PRIu32 ", found %" PRIu64,
                   g->alignment, t->offset);
        else if (begin > r->len || t->n_bytes > r->len - begin)
            refuse(r,
                   "its data at byte %" PRIu64 " + %" PRIu64 " need %" PRIu64
                   " bytes, expected them within the file's %zu bytes; " DOWNLOAD_AGAIN,
                   data_start, t->offset, t->n_bytes, r->len);
        else
            t->data = (const unsigned char *)r->bytes + begin;
        t->file_offset = begin;
        in_record(r, "tensor", i, t->name);
    }
    /* Offsets are multiples of the alignment: when data do not overlap, their padding does not. */
    qsort(by_place, g->n_tensors, sizeof *by_place, compare_places);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const struct gguf_tensor *a = by_place[i - 1], *b = by_place[i];
        if (a->n_bytes > b->offset - a->offset)
            refuse(r,
                   "tensors \"%.*s\" and \"%.*s\" overlap: offset %" PRIu64 " with %" PRIu64
                   " bytes, and offset %" PRIu64 "; expected separate data",
                   text_width(a->name), a->name.data, text_width(b->name), b->name.data, a->offset,
                   a->n_bytes, b->offset);
    }
}

/* --- the file -------------------------------------------------------------------------------- */

enum status gguf_parse(const void *bytes, size_t len, struct gguf **out, struct err *e)
{
    struct reader r = {.bytes = bytes, .len = len, .e = e};
    TRY_ZEROED(*out, 1, "the GGUF reader", e);
    struct gguf *g = *out;
    read_header(&r, g);
    /* One more of each, so that none are no failure. */
    g->pairs = calloc(g->n_pairs + 1, sizeof *g->pairs);
    g->tensors = calloc(g->n_tensors + 1, sizeof *g->tensors);
    const struct gguf_tensor **by_place = calloc(g->n_tensors + 1, sizeof *by_place);
    if (g->pairs && g->tensors && by_place) {
        read_pairs(&r, g);
        refuse_part(&r, g);
        read_tensors(&r, g, by_place);
    } else if (!r.status) {
        r.status = err_no_memory(e, "the tables of keys and tensors",
                                 g->n_pairs * sizeof *g->pairs + g->n_tensors * sizeof *g->tensors);
    }
    free(by_place);
    if (r.status) {
        gguf_free(g);
        *out = NULL;
    }
    return r.status;
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
