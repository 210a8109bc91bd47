/*
 * fuzz_quantize - quantizes the input, a checkpoint, to every type. What is written must be read
 * again, with the planned types and sizes, and load as a model if the input does; quantizing that
 * to its own type must change nothing, and to F32 it must go.
 */
#include "convert/convert.h"
#include "model/model.h"
#include "target.h"

static void compare(const struct quantize *q, const struct gguf *out)
{
    uint64_t bytes = 0;
    require(out->n_tensors == q->params.gguf->n_tensors);
    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct quantize_tensor *planned = &q->tensors[i];
        const struct gguf_tensor *t = &out->tensors[i];
        require(text_equal(t->name, planned->from->name));
        require(t->type == planned->to && t->n_bytes == planned->bytes);
        require(t->n_elements == planned->from->n_elements);
        if (t->type == planned->from->type)
            require(memcmp(t->data, planned->from->data, t->n_bytes) == 0);
        bytes += t->n_bytes;
    }
    require(bytes == q->bytes_after);
    require(q->error.rms >= 0 && q->error.max >= 0 && q->error.relative >= 0);
}

static bool loads(const struct gguf *g)
{
    struct model *m;
    const bool good = model_create(g, NULL, NULL, &m, NULL) == STATUS_OK;
    model_free(m);
    return good;
}

/* Without `g` if it is refused. */
struct written {
    struct gguf *g;
    unsigned char *bytes;
    size_t len;
};

static struct written convert(const struct gguf *g, uint32_t type, bool pure)
{
    const struct quantize_params p = {.type = type, .pure = pure, .requantize = true, .gguf = g};
    struct quantize q;
    struct err e = {{0}};
    struct written out = {.g = NULL};
    enum status s = quantize_plan(&p, &q, &e);
    if (s == STATUS_OK) {
        s = gguf_write_memory(q.writer, &out.bytes, &out.len, &e);
        if (s == STATUS_OK) {
            require(gguf_parse(out.bytes, out.len, &out.g, NULL) == STATUS_OK);
            compare(&q, out.g);
        }
        quantize_free(&q);
    }
    if (s != STATUS_OK)
        require_refusal(s, &e);
    require(s == STATUS_OK || !out.bytes);
    return out;
}

static void free_written(struct written *w)
{
    gguf_free(w->g);
    free(w->bytes);
}

/* Without `requantize` there must be nothing to requantize. */
static void plan_strictly(const struct gguf *g, uint32_t type)
{
    const struct quantize_params p = {.type = type, .gguf = g};
    struct quantize q;
    struct err e = {{0}};
    const enum status s = quantize_plan(&p, &q, &e);
    if (s != STATUS_OK) {
        require_refusal(s, &e);
        return;
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        require(q.tensors[i].to == q.tensors[i].from->type ||
                q.tensors[i].from->type->block_elements == 1);
    quantize_free(&q);
}

static void convert_twice(const struct gguf *g, uint32_t type, bool pure)
{
    struct written out = convert(g, type, pure);
    if (!out.g)
        return;
    require(!loads(g) || loads(out.g));
    struct written again = convert(out.g, type, pure), f32 = convert(out.g, TENSOR_F32, pure);
    require(again.g && again.len == out.len && memcmp(again.bytes, out.bytes, out.len) == 0);
    require(f32.g != NULL);
    free_written(&f32);
    free_written(&again);
    free_written(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    struct gguf *g;
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < COUNT(types); i++)
        convert_twice(g, types[i], size % 2);
    plan_strictly(g, types[size % 5]);
    gguf_free(g);
    return 0;
}
