#include "safetensors/write.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/contract.h"
#include "base/file.h"
#include "base/little.h"
#include "json/write.h"

#define LENGTH_BYTES 8
#define HEADER_ALIGN 8

/* The library's order: larger elements first, so that data are aligned, then by name. */
static int compare_written(const void *a, const void *b)
{
    const struct safetensors_written *x = a, *y = b;
    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool are_unique(const struct safetensors_written *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(tensors[i].name, tensors[k].name) == 0)
                return false;
    return true;
}

/* An output into memory. */
struct head_output {
    struct output out;
    struct bytes *bytes;
};

static bool keep(struct output *out, const char *bytes, size_t len)
{
    struct head_output *h = (struct head_output *)out;
    return bytes_put(h->bytes, (struct text){bytes, len});
}

static void put_u64s(struct json *j, const char *key, const uint64_t *values, int n)
{
    json_begin_array(j, key);
    for (int i = 0; i < n; i++)
        json_u64(j, NULL, values[i]);
    json_end(j);
}

static void put_tensor(struct json *j, const struct safetensors_written *t,
                       const uint64_t offsets[2])
{
    json_begin_object(j, t->name);
    json_string(j, "dtype", t->dtype->name);
    put_u64s(j, "shape", t->dims, t->n_dims);
    put_u64s(j, "data_offsets", offsets, 2);
    json_end(j);
}

static enum status put_tensors(struct json *j, const struct safetensors_written *tensors, size_t n,
                               struct err *e)
{
    uint64_t offsets[2] = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_written *t = &tensors[i];
        uint64_t bytes;
        if (!safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes) ||
            !u64_add(offsets[0], bytes, &offsets[1]))
            return err_set(e, STATUS_USAGE, "tensor \"%s\": expected fewer bytes, they overflow",
                           t->name);
        put_tensor(j, t, offsets);
        offsets[0] = offsets[1];
    }
    return STATUS_OK;
}

enum status safetensors_head(struct safetensors_written *tensors, size_t n, struct bytes *head,
                             struct err *e)
{
    static const char nothing[LENGTH_BYTES];
    struct head_output h = {.bytes = head};
    struct json j;
    assert_costly(are_unique(tensors, n));
    if (n > 1)
        qsort(tensors, n, sizeof *tensors, compare_written);
    output_init(&h.out, keep);
    output_put(&h.out, (struct text){nothing, LENGTH_BYTES});
    json_init(&j, &h.out, JSON_COMPACT);
    json_begin_object(&j, NULL);
    json_begin_object(&j, "__metadata__");
    json_string(&j, "format", "pt");
    json_end(&j);
    TRY(put_tensors(&j, tensors, n, e));
    json_end(&j);
    output_flush(&h.out);
    output_repeat(&h.out, ' ', (HEADER_ALIGN - head->len % HEADER_ALIGN) % HEADER_ALIGN);
    if (!output_flush(&h.out))
        return err_no_memory(e, "the header of a safetensors file", head->len);
    little_store(head->data, head->len - LENGTH_BYTES, LENGTH_BYTES);
    return STATUS_OK;
}

static enum status put_data(struct file_writer *w, const struct safetensors_written *t,
                            struct err *e)
{
    uint64_t n_bytes = 0;
    safetensors_measure(t->dtype, t->n_dims, t->dims, &n_bytes);
    for (uint64_t at = 0; at < n_bytes;) {
        const void *data = NULL;
        size_t len = 0;
        TRY(t->source.piece(t->source.arg, at, &data, &len, e));
        assert(len > 0 && len <= n_bytes - at);
        file_writer_put(w, data, len);
        at += len;
    }
    return STATUS_OK;
}

static enum status put_file(struct file_writer *w, const struct bytes *head,
                            const struct safetensors_written *tensors, size_t n, struct err *e)
{
    file_writer_put(w, head->data, head->len);
    for (size_t i = 0; i < n; i++)
        TRY(put_data(w, &tensors[i], e));
    return STATUS_OK;
}

enum status safetensors_write(const char *path, struct safetensors_written *tensors, size_t n,
                              struct err *e)
{
    struct bytes head = {NULL, 0, 0};
    struct file_writer *w = NULL;
    enum status status = safetensors_head(tensors, n, &head, e);
    if (status == STATUS_OK)
        status = file_writer_open(&w, path, e);
    if (status == STATUS_OK)
        status = put_file(w, &head, tensors, n, e);
    if (status == STATUS_OK)
        status = file_writer_commit(w, e);
    else
        file_writer_abandon(w);
    bytes_free(&head);
    return status;
}
