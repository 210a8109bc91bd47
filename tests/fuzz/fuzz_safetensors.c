/*
 * fuzz_safetensors - the safetensors reader. Every byte of what it takes belongs to the head or to
 * one tensor, and can be read; and what our own writer makes of it reads as the same tensors.
 */
#include "../safetensors_find.h"
#include "target.h"

#define MAX_TENSORS 1024

static void check_file(const struct safetensors *s, const uint8_t *data, size_t size)
{
    const unsigned char *at = data + s->head_bytes;
    require(s->head_bytes >= 8 + 2 && s->head_bytes <= size);
    for (const struct safetensors_tensor *t = s->tensors; t < s->tensors + s->n_tensors; t++) {
        uint64_t bytes = 77, sum = 0;
        require(t->data == at);
        for (uint64_t i = 0; i < t->n_bytes; i++)
            sum += *at++;
        require(sum <= 255 * t->n_bytes);
        require(safetensors_find(s, t->name) == t);
        require(safetensors_dtype_named(text_of(t->dtype->name)) == t->dtype);
        require(t->n_dims >= 0 && t->n_dims <= SAFETENSORS_MAX_DIMS);
        require(safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes) && bytes == t->n_bytes);
        for (int d = t->n_dims; d < SAFETENSORS_MAX_DIMS; d++)
            require(t->dims[d] == 1);
    }
    require(at == data + size);
}

/* The names are strings for the writer: false if one has a zero byte. */
static bool as_written(const struct safetensors *s, struct safetensors_written *out)
{
    bool good = true;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        char *name = malloc(t->name.len + 1);
        good = good && name && as_string(t->name, name, t->name.len + 1);
        out[i] = (struct safetensors_written){.name = name, .dtype = t->dtype, .n_dims = t->n_dims};
        memcpy(out[i].dims, t->dims, sizeof t->dims);
    }
    return good;
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
    if (s->n_tensors > MAX_TENSORS)
        return;
    if (as_written(s, written)) {
        require(safetensors_head(written, s->n_tensors, &file, NULL) == STATUS_OK);
        require(file.len % 8 == 0);
        /* The data behind the head, in the order in which it has sorted the tensors. */
        for (size_t i = 0; i < s->n_tensors; i++) {
            const struct safetensors_tensor *t = safetensors_find(s, text_of(written[i].name));
            require(bytes_put(&file, (struct text){(const char *)t->data, (size_t)t->n_bytes}));
        }
        require(safetensors_parse(file.data, file.len, &again, NULL) == STATUS_OK);
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
        require_refused(status, STATUS_BAD_FILE, &e);
    }
    safetensors_free(&s);
    return 0;
}
