#include "imports.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/session.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "opened.h"
#include "support.h"

struct file_map import_bytes(const char *path, const struct import_options *o)
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

struct checkpoint open_import(const char *path, const struct import_options *o)
{
    struct checkpoint c;
    struct file_map file = import_bytes(path, o);
    expect_ok(checkpoint_take(&file, path, 0, &c, &err));
    /* The tensors stay, for those who export them. */
    expect_ok(model_create(c.gguf, NULL, NULL, &c.model, &err));
    return c;
}

float *read_npy(const char *path, size_t *n)
{
    size_t len;
    unsigned char *npy = read_file(path, &len);
    const size_t head = 10 + (size_t)(npy[8] | npy[9] << 8); /* magic, version, length */
    float *x = malloc(len - head);
    memcpy(x, npy + head, len - head);
    *n = (len - head) / sizeof *x;
    free(npy);
    return x;
}

float *logits_of(const struct model *m, const int32_t *tokens, int n)
{
    return logits_after(m, tokens, n, 1, &(struct session_params){.kv_storage = STORAGE_F32});
}

void expect_close(const char *what, const float *found, const float *expected, size_t n,
                  double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - (double)expected[i]) <= tolerance))
            ck_abort_msg("%s: number %zu is %g, expected %g", what, i, (double)found[i],
                         (double)expected[i]);
}

/* --- folders --------------------------------------------------------------------------------- */

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
    static char path[700];
    snprintf(path, sizeof path, "%s", scratch_path(name));
    ck_assert_int_eq(mkdir(path, 0777), 0);
    return path;
}

void copy_to(const char *from_folder, const char *to_folder, const char *name)
{
    size_t len;
    unsigned char *bytes = read_file(path_of(from_folder, name), &len);
    write_file(path_of(to_folder, name), bytes, len);
    free(bytes);
}

void write_text(const char *folder, const char *name, const char *text)
{
    write_file(path_of(folder, name), text, strlen(text));
}

/* --- weights --------------------------------------------------------------------------------- */

struct weights read_weights(const char *folder)
{
    struct weights w;
    size_t len;
    w.bytes = read_file(path_of(folder, "model.safetensors"), &len);
    expect_ok(safetensors_parse(w.bytes, len, &w.file, &err));
    return w;
}

void free_weights(struct weights *w)
{
    safetensors_free(&w->file);
    free(w->bytes);
}

struct made {
    char name[96];
    void *bytes;
    size_t len;
};

static enum status piece(void *made, uint64_t offset, const void **data, size_t *len, struct err *e)
{
    const struct made *m = made;
    (void)e;
    *data = (const char *)m->bytes + offset;
    *len = m->len - (size_t)offset;
    return STATUS_OK;
}

static void make(const struct safetensors_tensor *t, const char *prefix,
                 const struct safetensors_dtype *dtype, struct made *m)
{
    const size_t cut = prefix && text_starts_with(t->name, prefix) ? strlen(prefix) : 0;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(t->name.len - cut), t->name.data + cut);
    m->len = (size_t)t->n_bytes;
    if (dtype)
        m->len = (size_t)t->n_bytes / sizeof(float) * (size_t)(dtype->bits / 8);
    m->bytes = malloc(m->len);
    if (dtype) {
        float *x = malloc((size_t)t->n_bytes);
        memcpy(x, t->data, (size_t)t->n_bytes);
        blocks_encode((uint32_t)dtype->type, m->bytes, x, t->n_bytes / sizeof *x);
        free(x);
    } else {
        memcpy(m->bytes, t->data, m->len);
    }
}

void write_weights(const struct weights *w, size_t first, size_t n, const char *prefix,
                   const struct safetensors_dtype *dtype, const char *folder, const char *name)
{
    struct made *made = calloc(n, sizeof *made);
    struct safetensors_written *list = calloc(n, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_tensor *t = &w->file.tensors[first + i];
        make(t, prefix, dtype, &made[i]);
        list[i] = (struct safetensors_written){.name = made[i].name,
                                               .dtype = dtype ? dtype : t->dtype,
                                               .n_dims = t->n_dims,
                                               .source = {.piece = piece, .arg = &made[i]}};
        memcpy(list[i].dims, t->dims, sizeof list[i].dims);
    }
    expect_ok(safetensors_write(path_of(folder, name), list, n, &err));
    for (size_t i = 0; i < n; i++)
        free(made[i].bytes);
    free(made);
    free(list);
}
