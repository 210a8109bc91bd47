/*
 * fuzz_gguf - parses the input as a GGUF file, reads everything in it, writes it again and
 * compares. The mutator knows where a file's counts, lengths, types, dimensions and offsets lie.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "parts/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* Of libFuzzer; a program without it, which only replays, has none. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

/* A failed requirement is a crash for the fuzzer to find. */
static void require(int holds)
{
    if (!holds)
        abort();
}

/* --- reading ------------------------------------------------------------------------------- */

/* Reads [p, p + n) for a sanitizer to watch. */
static uint64_t touch(const void *p, uint64_t n)
{
    const unsigned char *bytes = p;
    return n ? (uint64_t)bytes[0] + bytes[n - 1] + bytes[n / 2] : 0;
}

static uint64_t read_array(const struct gguf_value *v)
{
    uint64_t sum = 0;
    if (v->element_kind == GGUF_STRING) {
        struct gguf_cursor c = {0};
        struct text t;
        while (gguf_next_text(v, &c, &t))
            sum += touch(t.data, t.len);
        require(c.i == v->count && c.offset == v->bytes.len);
        return sum;
    }
    require(v->element_kind != GGUF_ARRAY);
    for (uint64_t i = 0; i < v->count; i++)
        sum += (uint64_t)gguf_int_at(v, i) + (gguf_float_at(v, i) > 0);
    return sum;
}

static uint64_t read_pair(const struct gguf *g, const struct gguf_pair *pair)
{
    const struct gguf_value *v = &pair->value;
    char key[256];
    uint64_t sum = touch(pair->key.data, pair->key.len) + touch(v->bytes.data, v->bytes.len);
    if (v->kind == GGUF_ARRAY)
        sum += read_array(v);
    else if (v->kind != GGUF_STRING)
        sum += (uint64_t)gguf_int_at(v, 0) + (gguf_float_at(v, 0) > 0);
    if (pair->key.len >= sizeof key || memchr(pair->key.data, 0, pair->key.len))
        return sum;
    memcpy(key, pair->key.data, pair->key.len);
    key[pair->key.len] = 0;
    require(gguf_find(g, key) == v);

    struct err e;
    uint64_t n = 0;
    double x = 0;
    bool yes = false, found;
    struct text t = {0};
    const struct gguf_value *array;
    const int good = (gguf_get_u64(g, key, 0, UINT64_MAX, &n, NULL, &e) == STATUS_OK) +
                     (gguf_get_f64(g, key, &x, &found, &e) == STATUS_OK) +
                     (gguf_get_bool(g, key, &yes, &found, &e) == STATUS_OK) +
                     (gguf_get_text(g, key, &t, NULL, &e) == STATUS_OK) +
                     (gguf_get_array(g, key, v->element_kind, &array, &found, &e) == STATUS_OK);
    require(good == 1 || (good == 0 && gguf_int_at(v, 0) < 0)); /* no negative number is a u64 */
    return sum + n + (x > 0) + yes + touch(t.data, t.len);
}

static uint64_t read_tensor(const struct gguf *g, const struct gguf_tensor *t, const uint8_t *bytes,
                            size_t size)
{
    char name[65];
    require(t->n_dims >= 1 && t->n_dims <= GGUF_MAX_DIMS && t->n_elements && t->n_bytes);
    require(t->name.len >= 1 && t->name.len < sizeof name);
    const size_t begin = (size_t)(t->data - bytes);
    require(begin <= size && t->n_bytes <= size - begin && begin % g->alignment == 0);
    memcpy(name, t->name.data, t->name.len);
    name[t->name.len] = 0;
    if (strlen(name) == t->name.len)
        require(gguf_find_tensor(g, name) == t);
    return touch(t->data, t->n_bytes);
}

static uint64_t read_all(const struct gguf *g, const uint8_t *bytes, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_pairs; i++)
        sum += read_pair(g, &g->pairs[i]);
    for (size_t i = 0; i < g->n_tensors; i++)
        sum += read_tensor(g, &g->tensors[i], bytes, size);
    return sum;
}

/* --- writing again ------------------------------------------------------------------------- */

/* Names the reader accepts, the writer not: those with zero bytes, and tensor names of 64. */
static int writable(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_pairs; i++)
        if (memchr(g->pairs[i].key.data, 0, g->pairs[i].key.len))
            return 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].name.len > 63 ||
            memchr(g->tensors[i].name.data, 0, g->tensors[i].name.len))
            return 0;
    return 1;
}

static int has_bools(const struct gguf_value *v)
{
    return v->kind == GGUF_BOOL || (v->kind == GGUF_ARRAY && v->element_kind == GGUF_BOOL);
}

static void compare(const struct gguf *a, const struct gguf *b)
{
    require(a->n_pairs == b->n_pairs && a->n_tensors == b->n_tensors);
    require(a->alignment == b->alignment);
    for (size_t i = 0; i < a->n_pairs; i++) {
        const struct gguf_value *v = &a->pairs[i].value, *w = &b->pairs[i].value;
        require(text_equal(a->pairs[i].key, b->pairs[i].key));
        require(v->kind == w->kind && v->element_kind == w->element_kind && v->count == w->count);
        require(has_bools(v) ? v->bytes.len == w->bytes.len : text_equal(v->bytes, w->bytes));
    }
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct gguf_tensor *s = &a->tensors[i], *t = &b->tensors[i];
        require(text_equal(s->name, t->name) && s->type == t->type && s->n_dims == t->n_dims);
        require(memcmp(s->dims, t->dims, sizeof s->dims) == 0 && s->n_bytes == t->n_bytes);
        require(memcmp(s->data, t->data, s->n_bytes) == 0);
    }
}

static void write_again(const struct gguf *g)
{
    struct gguf_writer *w;
    struct err e;
    unsigned char *bytes;
    size_t size;
    require(gguf_writer_create(&w, &e) == STATUS_OK);
    for (size_t i = 0; i < g->n_pairs; i++)
        gguf_add_value(w, g->pairs[i].key, &g->pairs[i].value);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    const enum status s = gguf_write_memory(w, &bytes, &size, &e);
    require(s == STATUS_OK ? writable(g) : s == STATUS_USAGE && !writable(g) && e.text[0]);
    gguf_writer_free(w);
    if (s != STATUS_OK)
        return;
    struct gguf *again;
    require(gguf_parse(bytes, size, &again, &e) == STATUS_OK);
    compare(g, again);
    gguf_free(again);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    struct gguf *g;
    struct err e = {0};
    const enum status s = gguf_parse(data, size, &g, &e);
    if (s != STATUS_OK) {
        require(s == STATUS_BAD_FILE && !g && e.text[0]);
        for (const char *c = e.text; *c; c++)
            require((unsigned char)*c >= 0x20);
        return 0;
    }
    sink = sink + read_all(g, data, size);
    write_again(g);
    gguf_free(g);
    return 0;
}

/* --- mutating ------------------------------------------------------------------------------ */

#define MAX_FIELDS 512

struct field {
    size_t at, bytes; /* an integer of 4 or 8 bytes */
};

/* Walks a file as far as it makes sense, noting where its integers lie. */
struct walk {
    const uint8_t *data;
    size_t size, at;
    struct field fields[MAX_FIELDS];
    size_t n;
};

static uint64_t walk_int(struct walk *w, size_t bytes)
{
    uint64_t value = 0;
    if (w->size - w->at < bytes) {
        w->at = w->size;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)w->data[w->at + i] << (8 * i);
    if (w->n < MAX_FIELDS)
        w->fields[w->n++] = (struct field){w->at, bytes};
    w->at += bytes;
    return value;
}

static void walk_skip(struct walk *w, uint64_t bytes)
{
    w->at += bytes < w->size - w->at ? (size_t)bytes : w->size - w->at;
}

static void walk_value(struct walk *w, uint64_t kind)
{
    static const unsigned char sizes[13] = {1, 1, 2, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0};
    if (kind == GGUF_STRING)
        walk_skip(w, walk_int(w, 8));
    else if (kind < 13 && sizes[kind])
        walk_skip(w, sizes[kind]);
    else
        walk_int(w, kind == GGUF_U64 || kind == GGUF_I64 || kind == GGUF_F64 ? 8 : 4);
}

static void walk_file(struct walk *w)
{
    w->at = w->size < 4 ? w->size : 4;
    walk_int(w, 4);
    const uint64_t n_tensors = walk_int(w, 8), n_pairs = walk_int(w, 8);
    for (uint64_t i = 0; i < n_pairs && w->at < w->size; i++) {
        walk_skip(w, walk_int(w, 8));
        const uint64_t kind = walk_int(w, 4);
        if (kind != GGUF_ARRAY) {
            walk_value(w, kind);
            continue;
        }
        const uint64_t element = walk_int(w, 4), count = walk_int(w, 8);
        for (uint64_t k = 0; k < count && w->at < w->size; k++)
            walk_value(w, element);
    }
    for (uint64_t i = 0; i < n_tensors && w->at < w->size; i++) {
        walk_skip(w, walk_int(w, 8));
        const uint64_t n_dims = walk_int(w, 4);
        for (uint64_t d = 0; d < n_dims && d < 8; d++)
            walk_int(w, 8);
        walk_int(w, 4);
        walk_int(w, 8);
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Another value for an integer of a file of `size` bytes, of which `left` follow it. */
static uint64_t odd_value(uint64_t old, size_t size, size_t left, uint64_t *random)
{
    static const uint64_t odd[] = {
        0,
        1,
        2,
        3,
        4,
        8,
        9,
        12,
        13,
        32,
        33,
        64,
        65535,
        65536,
        INT32_MAX,
        1u << 31,
        UINT32_MAX,
        1ull << 32,
        (1ull << 32) + 1,
        1ull << 61,
        1ull << 62,
        INT64_MAX,
        1ull << 63,
        UINT64_MAX - 31,
        UINT64_MAX,
    };
    switch (next_random(random) % 8) {
    case 0:
        return old + 1;
    case 1:
        return old - 1;
    case 2:
        return left + next_random(random) % 3 - 1;
    case 3:
        return size + next_random(random) % 3 - 1;
    case 4:
        return old ^ 1ull << next_random(random) % 64;
    case 5:
        return next_random(random) % 48;
    case 6:
        return old + 32 * (next_random(random) % 5) - 64;
    default:
        return odd[next_random(random) % (sizeof odd / sizeof odd[0])];
    }
}

static uint64_t load(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static void store(uint8_t *p, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

/* Changes one integer, or copies another one of its size over it (offsets and names that are the
 * same, dimensions swapped). */
static void mutate_field(uint8_t *data, size_t size, const struct walk *w, uint64_t *random)
{
    const struct field f = w->fields[next_random(random) % w->n];
    const struct field other = w->fields[next_random(random) % w->n];
    if (next_random(random) % 4 == 0 && other.bytes == f.bytes) {
        memmove(data + f.at, data + other.at, f.bytes);
        return;
    }
    const size_t left = size - f.at - f.bytes;
    store(data + f.at, odd_value(load(data + f.at, f.bytes), size, left, random), f.bytes);
}

/* Repeats what lies between two fields, records for the most part; the new size. */
static size_t repeat_fields(uint8_t *data, size_t size, size_t max_size, const struct walk *w,
                            uint64_t *random)
{
    const size_t first = next_random(random) % w->n;
    const size_t from = w->fields[first].at;
    const size_t end = w->fields[first + next_random(random) % (w->n - first)].at;
    if (end - from > max_size - size)
        return size;
    memmove(data + end + (end - from), data + end, size - end);
    memcpy(data + end, data + from, end - from);
    return size + (end - from);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    static struct walk w; /* too large for some stacks; libFuzzer mutates in one thread */
    w = (struct walk){.data = data, .size = size};
    walk_file(&w);
    const uint64_t choice = next_random(&random) % 8;
    if (w.n == 0 || choice == 0)
        return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
    if (choice == 1) /* truncated */
        return size - next_random(&random) % (size < 64 ? size : 64);
    if (choice == 2)
        return repeat_fields(data, size, max_size, &w, &random);
    for (uint64_t i = 0; i <= choice / 5; i++)
        mutate_field(data, size, &w, &random);
    return size;
}
