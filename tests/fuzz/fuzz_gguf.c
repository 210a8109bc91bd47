/*
 * fuzz_gguf - parses the input as a GGUF file, reads everything in it, writes it again and compares
 * the two; and prints what `decode info` prints of it, in every form.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/job.h"
#include "cli/terminal.h"
#include "formats/gguf_values.h"
#include "show/paragraph.h"
#include "target.h"

/* --- reading ------------------------------------------------------------------------------- */

static volatile uint64_t sink;

/* Reads [p, p + n), which a sanitizer watches. */
static void touch(const void *p, uint64_t n)
{
    const unsigned char *bytes = p;
    if (n)
        sink = sink + bytes[0] + bytes[n - 1] + bytes[n / 2];
}

static void read_value(const struct gguf_value *v)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    touch(v->bytes.data, v->bytes.len);
    if (v->kind == GGUF_ARRAY && kind == GGUF_STRING) {
        struct gguf_cursor c = {0};
        struct text t;
        while (gguf_next_text(v, &c, &t))
            touch(t.data, t.len);
        require(c.i == v->count && c.offset == v->bytes.len);
    }
    require(kind != GGUF_ARRAY);
    for (uint64_t i = 0; kind != GGUF_STRING && i < v->count; i++)
        sink = sink + (gguf_float_at(v, i) > 0) +
               (gguf_is_integer(kind) ? (uint64_t)gguf_int_at(v, i) : 0);
}

/* Exactly one typed lookup finds the value; a negative number is no u64. */
static void read_pair(const struct gguf *g, const struct gguf_pair *pair)
{
    const struct gguf_value *v = &pair->value, *array;
    char key[256];
    uint64_t n;
    double x;
    bool yes, found;
    struct text t;
    touch(pair->key.data, pair->key.len);
    read_value(v);
    if (!as_string(pair->key, key, sizeof key))
        return;
    require(gguf_find(g, key) == v);
    const int good = (gguf_get_u64(g, key, 0, UINT64_MAX, &n, NULL, NULL) == STATUS_OK) +
                     (gguf_get_f64(g, key, &x, &found, NULL) == STATUS_OK) +
                     (gguf_get_bool(g, key, &yes, &found, NULL) == STATUS_OK) +
                     (gguf_get_text(g, key, &t, NULL, NULL) == STATUS_OK) +
                     (gguf_get_array(g, key, v->element_kind, &array, &found, NULL) == STATUS_OK);
    require(good == 1 || (good == 0 && gguf_int_at(v, 0) < 0));
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t, const uint8_t *bytes,
                        size_t size)
{
    char name[65];
    require(t->n_dims >= 1 && t->n_dims <= GGUF_MAX_DIMS && t->n_elements && t->n_bytes);
    require(t->name.len >= 1 && t->name.len < sizeof name);
    const size_t begin = (size_t)(t->data - bytes);
    require(begin <= size && t->n_bytes <= size - begin && begin % g->alignment == 0);
    require(!as_string(t->name, name, sizeof name) || gguf_find_tensor(g, name) == t);
    touch(t->data, t->n_bytes);
}

/* --- writing again ------------------------------------------------------------------------- */

static void compare(const struct gguf *a, const struct gguf *b)
{
    size_t n_pairs = 0; /* of b, which has the usual alignment */
    require(a->n_tensors == b->n_tensors && b->alignment == 32);
    for (size_t i = 0; i < a->n_pairs; i++) {
        if (text_is(a->pairs[i].key, "general.alignment"))
            continue;
        require(n_pairs < b->n_pairs && text_equal(a->pairs[i].key, b->pairs[n_pairs].key));
        const struct gguf_value *v = &a->pairs[i].value, *w = &b->pairs[n_pairs++].value;
        const bool bools = v->kind == GGUF_BOOL || v->element_kind == GGUF_BOOL; /* 2 becomes 1 */
        require(v->kind == w->kind && v->element_kind == w->element_kind && v->count == w->count);
        require(bools ? v->bytes.len == w->bytes.len : text_equal(v->bytes, w->bytes));
    }
    require(n_pairs == b->n_pairs);
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
    struct err e = {{0}};
    unsigned char *bytes;
    size_t size;
    require(gguf_writer_create(&w, &e) == STATUS_OK);
    for (size_t i = 0; i < g->n_pairs; i++)
        gguf_add_value(w, g->pairs[i].key, &g->pairs[i].value);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    if (writable(g)) {
        struct gguf *again = require_written(w, &bytes);
        compare(g, again);
        gguf_free(again);
        free(bytes);
    } else {
        require_refusal(gguf_write_memory(w, &bytes, &size, &e), &e);
    }
    gguf_writer_free(w);
}

/* --- decode info --------------------------------------------------------------------------- */

/* A file in memory. */
static int memory_file(const void *data, size_t size)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    return fd;
}

/* The output is UTF-8 without control characters, whatever names the file has; only cells of CSV
 * may have tabs and ends of lines. */
static void check_shown(int fd, bool csv)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    require(end >= 0);
    char *shown = malloc((size_t)end + 1);
    require(shown && pread(fd, shown, (size_t)end, 0) == (ssize_t)end);
    require(text_is_utf8((struct text){shown, (size_t)end}));
    for (off_t i = 0; i < end; i++) {
        const unsigned char c = (unsigned char)shown[i];
        require((c >= 0x20 || c == '\n' || (csv && c == '\t')) && c != 0x7f);
        require(c != 0xc2 || (unsigned char)shown[i + 1] >= 0xa0); /* C1 controls */
    }
    free(shown);
}

static void show(const uint8_t *data, size_t size, unsigned way)
{
    static const char *const formats[] = {"table", "md", "csv", "json", "jsonl"};
    static char flags[][20] = {"--tensors", "--check", "--bandwidth=12.5"};
    const int in = memory_file(data, size), shown = memory_file("", 0);
    char path[32], form[16], *argv[6] = {path, form};
    int n = 2;
    snprintf(path, sizeof path, "/proc/self/fd/%d", in);
    snprintf(form, sizeof form, "--format=%s", formats[way % 5]);
    for (int i = 0; i < 3; i++)
        if (way >> (3 + i) & 1)
            argv[n++] = flags[i];
    static struct descriptor out; /* large */
    descriptor_init(&out, shown);
    struct err e = {""};
    const enum status s = job_run(&command_info, argv, &out.out, 0, &e);
    if (s != STATUS_OK) /* steps are predicted of a checkpoint that runs */
        require_refused(s, way >> 5 & 1 && s == STATUS_USAGE ? s : STATUS_BAD_FILE, &e);
    require(output_flush(&out.out));
    check_shown(shown, way % 5 == 2);
    close(in);
    close(shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct err e = {0};
    const enum status s = gguf_parse(data, size, &g, &e);
    if (s != STATUS_OK) {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!g);
        return 0;
    }
    for (size_t i = 0; i < g->n_pairs; i++)
        read_pair(g, &g->pairs[i]);
    for (size_t i = 0; i < g->n_tensors; i++)
        read_tensor(g, &g->tensors[i], data, size);
    write_again(g);
    gguf_free(g);
    show(data, size, size ? data[size / 2] : 0);
    return 0;
}
