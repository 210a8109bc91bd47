#include "imports.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/session.h"
#include "formats/gguf.h"
#include "opened.h"
#include "support.h"

static struct file_map import_map(const char *path, const struct import_options *o)
{
    static const struct import_options none;
    struct import *im;
    struct file_map file;
    bool is_other = false;
    ck_assert(import_is_for(path, &is_other, &err) == STATUS_OK && is_other);
    expect_ok(import_open(path, o ? o : &none, &im, &err));
    expect_ok(gguf_write_map(import_writer(im), &file, &err));
    import_close(im);
    return file;
}

static void close_map(void *map)
{
    file_map_close(map);
}

struct text import_bytes(const char *path, const struct import_options *o)
{
    struct file_map *map = allocated(sizeof *map);
    *map = import_map(path, o);
    released_by(close_map, map);
    return (struct text){(const char *)map->data, map->len};
}

static void close_checkpoint(void *c)
{
    checkpoint_close(c);
}

struct checkpoint open_import(const char *path, const struct import_options *o)
{
    struct checkpoint *c = allocated(sizeof *c);
    struct file_map file = import_map(path, o);
    expect_ok(checkpoint_take(&file, path, 0, c, &err));
    released_by(close_checkpoint, c);
    /* The tensors stay, for those who export them. */
    expect_ok(model_create(c->gguf, NULL, NULL, &c->model, &err));
    return *c;
}

const float *read_npy(const char *path, size_t *n)
{
    size_t len;
    const char *npy = file_text(path, &len);
    const size_t head = 10 + (size_t)((unsigned char)npy[8] | npy[9] << 8); /* magic, length */
    *n = (len - head) / sizeof(float);
    return memcpy(allocated(len - head), npy + head, len - head);
}

const float *logits_of(const struct model *m, const int32_t *tokens, int n)
{
    const struct session_params params = {.kv_storage = STORAGE_F32};
    return released_by(free, logits_after(m, tokens, n, 1, &params));
}

void expect_close(const char *what, const float *found, const float *expected, size_t n,
                  double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - (double)expected[i]) <= tolerance))
            ck_abort_msg("%s: number %zu is %g, expected %g", what, i, (double)found[i],
                         (double)expected[i]);
}

static void free_reader(void *r)
{
    json_reader_free(r);
}

const struct json_node *json_in(const char *path)
{
    static const struct json_limits limits = {1 << 26, 1 << 20, 12};
    const struct json_node *root = NULL;
    struct json_reader *r = released_by(free_reader, allocated_zeros(sizeof *r));
    struct text source;
    source.data = file_text(path, &source.len);
    ck_assert_msg(json_read(r, source, &limits, &root, &err) == STATUS_OK, "%s: %s", path,
                  err.text);
    return root;
}

int numbers_in(const struct json_node *array, int32_t *to, int most)
{
    int n = 0;
    for (const struct json_node *c = NULL; (c = json_child(array, c)); n++) {
        int64_t number = -1;
        ck_assert_int_lt(n, most);
        expect_ok(json_node_i64(c, 0, INT32_MAX, &number, &err));
        to[n] = (int32_t)number;
    }
    return n;
}

const char *path_of(const char *folder, const char *name)
{
    static char paths[8][700];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *make_folder(const char *name)
{
    const char *path = scratch_path(name);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    return path;
}

void copy_to(const char *from_folder, const char *to_folder, const char *name)
{
    size_t len;
    const char *bytes = file_text(path_of(from_folder, name), &len);
    write_file(path_of(to_folder, name), bytes, len);
}

void write_text(const char *folder, const char *name, const char *text)
{
    write_file(path_of(folder, name), text, strlen(text));
}

void link_to(const char *folder, const char *name, const char *target)
{
    unlink(path_of(folder, name));
    ck_assert_int_eq(symlink(target, path_of(folder, name)), 0);
}

void no_note(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void free_safetensors(void *s)
{
    safetensors_free(s);
}

const struct safetensors *read_weights(const char *folder)
{
    struct safetensors *s = allocated(sizeof *s);
    size_t len;
    const char *bytes = file_text(path_of(folder, "model.safetensors"), &len);
    expect_ok(safetensors_parse((const unsigned char *)bytes, len, s, &err));
    return released_by(free_safetensors, s);
}

/* Its elements as another type. */
static const void *recoded(const struct safetensors_tensor *t, const struct safetensors_dtype *to)
{
    float *x = memcpy(allocated((size_t)t->n_bytes), t->data, (size_t)t->n_bytes);
    void *bytes = allocated((size_t)t->n_bytes / sizeof *x * (size_t)(to->bits / 8));
    blocks_encode((uint32_t)to->type, bytes, x, t->n_bytes / sizeof *x);
    return bytes;
}

void write_weights(const struct safetensors *w, size_t first, size_t n, const char *prefix,
                   const struct safetensors_dtype *dtype, const char *folder, const char *name)
{
    struct safetensors_written *list = allocated_zeros(n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *t = &w->tensors[first + i];
        const size_t cut = prefix && text_starts_with(t->name, prefix) ? strlen(prefix) : 0;
        char *cut_name = memcpy(allocated_zeros(t->name.len + 1), t->name.data, t->name.len);
        list[i] = (struct safetensors_written){
            .name = cut_name + cut,
            .dtype = dtype ? dtype : t->dtype,
            .n_dims = t->n_dims,
            .source = {.data = dtype ? recoded(t, dtype) : t->data},
        };
        memcpy(list[i].dims, t->dims, sizeof list[i].dims);
    }
    expect_ok(safetensors_write(path_of(folder, name), list, n, &err));
}
