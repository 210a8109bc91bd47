/*
 * fuzz_gguf - parses the input as a GGUF file, reads everything in it, writes it again and
 * compares; and shows it as `decode info` does, in every form.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/job.h"
#include "cli/terminal.h"
#include "formats/gguf.h"
#include "show/paragraph.h"
#include "target.h"

/* --- reading ------------------------------------------------------------------------------- */

/* Reads [p, p + n) for a sanitizer to watch. */
static uint64_t touch(const void *p, uint64_t n)
{
    const unsigned char *bytes = p;
    return n ? (uint64_t)bytes[0] + bytes[n - 1] + bytes[n / 2] : 0;
}

static uint64_t read_number(const struct gguf_value *v, enum gguf_kind kind, uint64_t i)
{
    return (gguf_float_at(v, i) > 0) + (gguf_is_integer(kind) ? (uint64_t)gguf_int_at(v, i) : 0);
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
        sum += read_number(v, v->element_kind, i);
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
        sum += read_number(v, v->kind, 0);
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
    require(s == STATUS_OK
                ? writable(g)
                : (s == STATUS_USAGE || s == STATUS_BAD_FILE) && !writable(g) && e.text[0]);
    gguf_writer_free(w);
    if (s != STATUS_OK)
        return;
    struct gguf *again;
    require(gguf_parse(bytes, size, &again, &e) == STATUS_OK);
    compare(g, again);
    gguf_free(again);
    free(bytes);
}

/* --- decode info --------------------------------------------------------------------------- */

/* A file in memory, with a path that can be opened. */
struct memory_file {
    int fd;
    char path[32];
};

static struct memory_file open_memory(const void *data, size_t size)
{
    struct memory_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    require(f.fd >= 0);
    require(size == 0 || write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

/* What is shown is UTF-8 without control characters, whatever the names in the file are; only the
 * cells of CSV have tabs and ends of lines. */
static void check_shown(const struct memory_file *f, bool csv)
{
    const off_t end = lseek(f->fd, 0, SEEK_END);
    require(end >= 0);
    char *shown = malloc((size_t)end + 1);
    require(shown && pread(f->fd, shown, (size_t)end, 0) == (ssize_t)end);
    require(text_is_utf8((struct text){shown, (size_t)end}));
    for (off_t i = 0; i < end; i++) {
        const unsigned char c = (unsigned char)shown[i];
        require((c >= 0x20 || c == '\n' || (csv && c == '\t')) && c != 0x7f);
        /* C1 controls. */
        require(c != 0xc2 || (unsigned char)shown[i + 1] >= 0xa0);
    }
    free(shown);
}

static void show(const uint8_t *data, size_t size, unsigned way)
{
    static const char *const formats[] = {"table", "md", "csv", "json", "jsonl"};
    struct memory_file in = open_memory(data, size), shown = open_memory("", 0);
    char form[16], *argv[] = {in.path, form, NULL, NULL, NULL, NULL};
    static char tensors[] = "--tensors", check[] = "--check", bandwidth[] = "--bandwidth=12.5";
    int n = 2;
    snprintf(form, sizeof form, "--format=%s", formats[way % 5]);
    if (way & 8)
        argv[n++] = tensors;
    if (way & 16)
        argv[n++] = check;
    if (way & 32)
        argv[n++] = bandwidth;

    static struct descriptor out; /* large */
    descriptor_init(&out, shown.fd);
    struct err e = {""};
    const enum status s = job_run(&command_info, argv, &out.out, 0, &e);
    require(s == STATUS_OK || s == STATUS_BAD_FILE);
    if (s != STATUS_OK)
        require_message(&e);
    require(output_flush(&out.out));
    check_shown(&shown, way % 5 == 2);
    close(in.fd);
    close(shown.fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink;
    struct gguf *g;
    struct err e = {0};
    const enum status s = gguf_parse(data, size, &g, &e);
    if (s != STATUS_OK) {
        require(s == STATUS_BAD_FILE && !g);
        require_message(&e);
        return 0;
    }
    sink = sink + read_all(g, data, size);
    write_again(g);
    gguf_free(g);
    show(data, size, size ? data[size / 2] : 0);
    return 0;
}
