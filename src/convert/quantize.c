/*
 * A tensor is converted piece by piece; all threads work on a piece, which is cut into chunks of a
 * fixed size. A chunk is decoded to floats, encoded, and decoded again to see what was lost. Sums
 * of errors are stored by chunk and added in order, so they are the same for any number of threads.
 */
#include "convert/quantize.h"

#include <inttypes.h>
#include <math.h>

#include "base/figures.h"
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"
#include "model/layout.h"
#include "model/model.h"

/* A multiple of every block, so small that a chunk's floats before and after fit a core's own
 * cache. */
#define CHUNK_ELEMENTS 8192
#define PIECE_CHUNKS   128
#define PIECE          (CHUNK_ELEMENTS * PIECE_CHUNKS)
/* A chunk is summed up in so many interleaved parts. */
#define SUM_LANES 8

/* These keys stand behind all others, in place of the checkpoint's. */
#define TYPE_KEY    "general.file_type"
#define VERSION_KEY "general.quantization_version"
/* ggml's version of the block layouts (GGML_QNT_VERSION); it changed last in 2023. */
#define QUANTIZATION_VERSION 2

/* --- one chunk ------------------------------------------------------------------------------- */

static void add_sums(struct quantize_sums *sum, const struct quantize_sums *r)
{
    sum->error += r->error;
    sum->size += r->size;
    sum->max = r->max > sum->max ? r->max : sum->max;
    sum->n += r->n;
}

/* Returns the index of the first value that is not finite, or n. */
static uint64_t first_bad(const float *x, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= (float_bits(x[i]) & 0x7f800000) == 0x7f800000;
    if (!any)
        return n;
    uint64_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i;
}

/* Converts a thread's share of the piece. The distances of y from x go to SUM_LANES sums, which are
 * added in order at the end; zeros fill up the last lanes. */
static void convert_chunks(void *arg, int thread)
{
    struct quantize *q = arg;
    const struct gguf_tensor *from = q->tensor->from;
    const struct tensor_type_info *to = q->tensor->to;
    float *x = q->scratch + (size_t)thread * 2 * CHUNK_ELEMENTS, *y = x + CHUNK_ELEMENTS;
    const struct range own = pool_range(q->n_chunks, thread, pool_n_threads(q->params.pool));
    for (int chunk = own.begin; chunk < own.end; chunk++) {
        const uint64_t begin = (uint64_t)chunk * CHUNK_ELEMENTS, left = q->n - begin;
        const uint64_t n = MIN(left, CHUNK_ELEMENTS);
        const unsigned char *in = from->data + tensor_type_bytes(from->type, q->first + begin);
        unsigned char *out = q->out + tensor_type_bytes(to, begin);
        struct quantize_sums *r = &q->chunks[chunk];
        *r = (struct quantize_sums){.bad = UINT64_MAX};
        blocks_decode(from->type->type, x, in, n);
        uint64_t bad = first_bad(x, n);
        if (from->type == to) {
            memcpy(out, in, tensor_type_bytes(to, n));
        } else if (bad == n) {
            double error[SUM_LANES] = {0}, size[SUM_LANES] = {0}, max[SUM_LANES] = {0};
            r->n = n;
            blocks_encode(to->type, out, x, n);
            blocks_decode(to->type, y, out, n);
            bad = first_bad(y, n);
            for (uint64_t i = n; i % SUM_LANES; i++)
                x[i] = y[i] = 0;
            for (uint64_t i = 0; i < n; i += SUM_LANES)
                for (int l = 0; l < SUM_LANES; l++) {
                    const double value = (double)x[i + l];
                    const double difference = fabs(value - (double)y[i + l]);
                    error[l] += difference * difference;
                    size[l] += value * value;
                    max[l] = difference > max[l] ? difference : max[l];
                }
            for (int l = 0; l < SUM_LANES; l++)
                add_sums(r, &(struct quantize_sums){error[l], size[l], max[l], 0, 0});
        }
        if (bad < n)
            r->bad = q->first + begin + bad;
    }
}

/* --- one piece ------------------------------------------------------------------------------- */

/* The writer's callback: converts the elements that start at `offset` bytes of the new tensor. */
static enum status next_piece(void *arg, uint64_t offset, const void **data, size_t *len,
                              struct err *e)
{
    struct quantize_tensor *t = arg;
    struct quantize *q = t->q;
    const struct quantize_params *p = &q->params;
    const struct gguf_tensor *from = t->from;
    const struct tensor_type_info *type = from->type;
    if (callbacks_stop(&p->callbacks))
        return STATUS_INTERRUPTED;
    if (offset == 0 && t == q->tensors)
        q->total = (struct quantize_sums){.n = 0};
    assert(offset % t->to->block_bytes == 0);
    q->tensor = t;
    q->first = offset / t->to->block_bytes * t->to->block_elements;
    q->n = MIN(from->n_elements - q->first, PIECE);
    q->n_chunks = (q->n + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS;
    pool_run(p->pool, convert_chunks, q);
    for (const struct quantize_sums *r = q->chunks; r < q->chunks + q->n_chunks; r++) {
        add_sums(&q->total, r);
        if (r->bad == UINT64_MAX)
            continue;
        /* The value is not finite, or is too large for the new type. */
        float values[256]; /* of the element's block: no type has larger ones */
        const uint64_t in_block = r->bad % type->block_elements;
        blocks_decode(type->type, values, from->data + tensor_type_bytes(type, r->bad - in_block),
                      type->block_elements);
        const double value = figure_unsigned_nan((double)values[in_block]);
        if (!isfinite(value))
            return err_bad_file(e,
                                "tensor %.*s: element %" PRIu64 " is %g, expected a finite number",
                                text_width(from->name), from->name.data, r->bad, value);
        return err_failed(
            e, "tensor %.*s: element %" PRIu64 ", %g, or its block is too large for %s; choose %s",
            text_width(from->name), from->name.data, r->bad, value, t->to->name,
            t->to->type == TENSOR_BF16 ? "f32" : "bf16 or f32");
    }
    const uint64_t begin = tensor_type_bytes(type, q->first), read = tensor_type_bytes(type, q->n);
    if (p->source)
        file_map_release(p->source, from->data + begin, read);
    callbacks_progress(&p->callbacks, t->before + begin + read, q->bytes_before);
    const struct quantize_sums *sum = &q->total;
    q->error =
        (struct quantize_error){.rms = sum->n > 0 ? sqrt(sum->error / sum->n) : 0,
                                .relative = sum->error > 0 ? sqrt(sum->error / sum->size) : 0,
                                .max = sum->max};
    *data = q->out;
    *len = tensor_type_bytes(t->to, q->n);
    return STATUS_OK;
}

/* --- the plan -------------------------------------------------------------------------------- */

static enum status plan_tensor(const struct quantize_params *p, const struct config *c,
                               struct quantize_tensor *t, struct err *e)
{
    const struct gguf_tensor *from = t->from;
    const struct tensor_type_info *asked = tensor_type_find(p->type);
    struct tensor_spec spec;
    if (!layout_named(c, from->name, &spec)) /* judged by its name */
        spec.flags =
            text_ends_with(from->name, ".weight") && !text_ends_with(from->name, "_norm.weight")
                ? SPEC_QUANTISES
                : 0;
    t->to = from->type;
    if (!blocks_runs(blocks_in_memory(from->type->type)))
        return err_bad_file(e,
                            "tensor %.*s: expected type " BLOCKS_READ
                            ", found %s; start from a file in one of those",
                            text_width(from->name), from->name.data, from->type->name);
    /* A tensor of one row keeps its type. */
    if ((spec.flags & SPEC_QUANTISES) && from->n_elements != from->dims[0]) {
        if (from->dims[0] % asked->block_elements == 0)
            t->to = tensor_type_find(layout_type(&spec, p->type));
        else if (from->type->type == TENSOR_F32)
            t->to = tensor_type_find(TENSOR_F16);
    }
    return STATUS_OK;
}

static void take_buffers(struct quantize *q)
{
    const struct gguf *g = q->params.gguf;
    struct arena *arena = &q->arena;
    uint64_t most = 0; /* of a piece */
    for (size_t i = 0; i < g->n_tensors; i++)
        most = MAX(g->tensors[i].n_elements, most);
    most = MIN(most, PIECE);
    ARENA_TAKE(q->tensors, arena, g->n_tensors);
    q->out = arena_take(arena, most, sizeof(float));
    ARENA_TAKE(q->scratch, arena, pool_n_threads(q->params.pool) * UINT64_C(2) * CHUNK_ELEMENTS);
    ARENA_TAKE(q->chunks, arena, PIECE_CHUNKS);
}

static enum status plan_tensors(struct quantize *q, struct err *e)
{
    const struct gguf *g = q->params.gguf;
    struct config config;
    TRY(model_check(g, e)); /* a checkpoint that does not load cannot become one that does */
    TRY(config_read(g, &config, e));
    take_buffers(q);
    TRY(arena_allocate(&q->arena, "the conversion", e));
    take_buffers(q);
    TRY(gguf_writer_create(&q->writer, e));
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct text key = g->pairs[i].key;
        if (!text_is(key, TYPE_KEY) && !text_is(key, VERSION_KEY))
            gguf_add_value(q->writer, key, &g->pairs[i].value);
    }
    gguf_add_u32(q->writer, TYPE_KEY, gguf_file_type(q->params.type));
    gguf_add_u32(q->writer, VERSION_KEY, QUANTIZATION_VERSION);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *from = &g->tensors[i];
        struct quantize_tensor *t = &q->tensors[i];
        *t = (struct quantize_tensor){.q = q, .from = from, .before = q->bytes_before};
        TRY(plan_tensor(&q->params, &config, t, e));
        q->bytes_before += from->n_bytes;
        gguf_add_tensor_source(q->writer, from->name, t->to->type, from->n_dims, from->dims,
                               (struct gguf_source){.piece = next_piece, .arg = t});
    }
    return STATUS_OK;
}

enum status quantize_plan(const struct quantize_params *params, struct quantize *q, struct err *e)
{
    *q = (struct quantize){.params = *params};
    const enum status s = plan_tensors(q, e);
    if (s != STATUS_OK)
        quantize_free(q);
    return s;
}

void quantize_free(struct quantize *q)
{
    gguf_writer_free(q->writer);
    arena_free(&q->arena);
    *q = (struct quantize){.tensors = NULL};
}
