/*
 * fuzz_safetensors - the safetensors reader. Every byte of what it takes belongs to the head or to
 * one tensor, and can be read; and what our own writer makes of it reads as the same tensors.
 */
#include <string.h>

#include "../safetensors_find.h"
#include "formats/safetensors.h"
#include "target.h"

#define MAX_TENSORS 1024

static void check_tensor(const struct safetensors *s, const struct safetensors_tensor *t)
{
    uint64_t bytes = 77, sum = 0;
    for (uint64_t i = 0; i < t->n_bytes; i++)
        sum += t->data[i];
    require(sum <= 255 * t->n_bytes);
    require(safetensors_find(s, t->name) == t);
    require(safetensors_dtype_named(text_of(t->dtype->name)) == t->dtype);
    require(t->n_dims >= 0 && t->n_dims <= SAFETENSORS_MAX_DIMS);
    require(safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes) && bytes == t->n_bytes);
    for (int d = t->n_dims; d < SAFETENSORS_MAX_DIMS; d++)
        require(t->dims[d] == 1);
}

static void check_file(const struct safetensors *s, const uint8_t *data, size_t size)
{
    const unsigned char *at = data + s->head_bytes;
    require(s->head_bytes >= 8 + 2 && s->head_bytes <= size);
    for (size_t i = 0; i < s->n_tensors; i++) {
        require(s->tensors[i].data == at);
        check_tensor(s, &s->tensors[i]);
        at += s->tensors[i].n_bytes;
    }
    require(at == data + size);
}

/* What is written, as it is to be. The names are strings for the writer: none has a zero byte. */
static bool as_written(const struct safetensors *s, struct safetensors_written *out)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        char *name = t->name.len && memchr(t->name.data, 0, t->name.len)
                         ? NULL
                         : strndup(t->name.len ? t->name.data : "", t->name.len);
        out[i] = (struct safetensors_written){.name = name, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(out[i].dims, t->dims, sizeof t->dims);
        if (!name)
            return false;
    }
    return true;
}

/* The data behind the head, in the order in which it has sorted the tensors. */
static void put_data(const struct safetensors *s, const struct safetensors_written *w,
                     struct bytes *file)
{
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensors_tensor *t = safetensors_find(s, text_of(w[i].name));
        require(bytes_put(file, (struct text){(const char *)t->data, (size_t)t->n_bytes}));
    }
}

static void require_same(const struct safetensors *a, const struct safetensors *b)
{
    require(a->n_tensors == b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct safetensors_tensor *t = &a->tensors[i], *u = safetensors_find(b, t->name);
        require(u && t->dtype == u->dtype && t->n_dims == u->n_dims && t->n_bytes == u->n_bytes);
        require(memcmp(t->dims, u->dims, sizeof t->dims) == 0);
        require(memcmp(t->data, u->data, (size_t)t->n_bytes) == 0);
    }
}

static void check_written(const struct safetensors *s)
{
    static struct safetensors_written written[MAX_TENSORS];
    struct bytes file = {NULL, 0, 0};
    struct safetensors again;
    struct err e = {""};
    if (s->n_tensors > MAX_TENSORS)
        return;
    memset(written, 0, sizeof written);
    if (as_written(s, written)) {
        require(safetensors_head(written, s->n_tensors, &file, &e) == STATUS_OK);
        require(file.len % 8 == 0);
        put_data(s, written, &file);
        require(safetensors_parse(file.data, file.len, &again, &e) == STATUS_OK);
        check_file(&again, (const uint8_t *)file.data, file.len);
        require_same(s, &again);
        safetensors_free(&again);
    }
    bytes_free(&file);
    for (size_t i = 0; i < s->n_tensors; i++)
        free((void *)(uintptr_t)written[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct err e = {""};
    const enum status status = safetensors_parse(data, size, &s, &e);
    if (status == STATUS_OK) {
        check_file(&s, data, size);
        check_written(&s);
    } else {
        require(status == STATUS_BAD_FILE);
        require_message(&e);
    }
    safetensors_free(&s);
    return 0;
}
