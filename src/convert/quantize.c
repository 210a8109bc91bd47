/*
 * Tensors go through in pieces, each the work of all threads, cut into chunks of a fixed size.
 * A chunk is decoded to floats, encoded, and decoded again to see what was lost. Sums of errors
 * are stored by chunk and added in order, so they are the same for any number of threads.
 */
#include "convert/quantize.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/gguf.h"
#include "model/layout.h"

/* A chunk's floats, before and after, fit a core's own cache. A multiple of every block. */
#define CHUNK_ELEMENTS 8192
#define PIECE_CHUNKS   128
#define PIECE          (CHUNK_ELEMENTS * PIECE_CHUNKS)
/* Interleaved partial sums of a chunk. */
#define SUM_LANES 8

/* ggml's version of the block layouts (GGML_QNT_VERSION); it changed last in 2023. */
#define QUANTIZATION_VERSION 2

/* Of a chunk, a tensor or all. */
struct sums {
    double error, size; /* of squares: of differences, of values */
    double max;
    uint64_t n;   /* elements */
    uint64_t bad; /* of a chunk the first element that is not finite, or UINT64_MAX */
};

/* What the writer has a tensor from. */
struct source {
    struct quantize_work *w;
    struct quantize_tensor *tensor;
    uint64_t before; /* bytes of the checkpoint's tensors before it */
    struct sums sums;
};

struct quantize_work {
    struct quantize *q;
    struct source *sources; /* [n_tensors] */
    struct sums total;
    /* The piece in work: elements of a tensor from `first` on. */
    const struct quantize_tensor *tensor;
    uint64_t first, n;
    int n_chunks;
    unsigned char *out;  /* the piece in its new type */
    float *scratch;      /* [threads, 2, CHUNK_ELEMENTS] */
    struct sums *chunks; /* [PIECE_CHUNKS] */
};

static uint64_t type_bytes(const struct tensor_type_info *type, uint64_t elements)
{
    return elements / type->block_elements * type->block_bytes;
}

/* --- one chunk ------------------------------------------------------------------------------- */

/* n, or the first value that is not finite. */
static uint64_t first_bad(const float *x, uint64_t n)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & 0x7f800000) == 0x7f800000;
    }
    for (uint64_t i = 0; any && i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return n;
}

/* How far y is from x, in SUM_LANES sums that are then folded in order; zeros fill the last. */
static void add_differences(float *x, float *y, uint64_t n, struct sums *r)
{
    double error[SUM_LANES] = {0}, size[SUM_LANES] = {0}, max[SUM_LANES] = {0};
    for (; n % SUM_LANES; n++)
        x[n] = y[n] = 0;
    for (uint64_t i = 0; i < n; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++) {
            const double value = (double)x[i + l];
            const double difference = fabs(value - (double)y[i + l]);
            error[l] += difference * difference;
            size[l] += value * value;
            max[l] = difference > max[l] ? difference : max[l];
        }
    for (int l = 0; l < SUM_LANES; l++) {
        r->error += error[l];
        r->size += size[l];
        r->max = max[l] > r->max ? max[l] : r->max;
    }
}

/* A thread's share of the piece. */
static void convert_chunks(void *arg, int thread)
{
    struct quantize_work *w = arg;
    const struct tensor_type_info *from = w->tensor->from->type, *to = w->tensor->to;
    float *before = w->scratch + (size_t)thread * 2 * CHUNK_ELEMENTS;
    float *after = before + CHUNK_ELEMENTS;
    int chunk, end;
    pool_share(w->n_chunks, thread, pool_n_threads(w->q->params.pool), &chunk, &end);
    for (; chunk < end; chunk++) {
        const uint64_t begin = (uint64_t)chunk * CHUNK_ELEMENTS, left = w->n - begin;
        const uint64_t n = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
        const unsigned char *in = w->tensor->from->data + type_bytes(from, w->first + begin);
        unsigned char *out = w->out + type_bytes(to, begin);
        struct sums *r = &w->chunks[chunk];
        *r = (struct sums){.n = n, .bad = UINT64_MAX};
        blocks_decode(from->type, before, in, n);
        uint64_t bad = first_bad(before, n);
        if (from == to) {
            memcpy(out, in, type_bytes(to, n));
        } else if (bad == n) {
            blocks_encode(to->type, out, before, n);
            blocks_decode(to->type, after, out, n);
            bad = first_bad(after, n);
            add_differences(before, after, n, r);
        }
        if (bad < n)
            r->bad = w->first + begin + bad;
    }
}

/* --- one piece ------------------------------------------------------------------------------- */

/* The tensor's value is not finite, or became so. */
static enum status refuse_value(const struct quantize_tensor *t, uint64_t element, struct err *e)
{
    const struct gguf_tensor *from = t->from;
    const uint64_t block = element / from->type->block_elements;
    float values[32]; /* of the element's block: no type has larger ones here */
    blocks_decode(from->type->type, values, from->data + block * from->type->block_bytes,
                  from->type->block_elements);
    const double value = (double)values[element % from->type->block_elements];
    if (!isfinite(value))
        return err_bad_file(e, "tensor %.*s: element %" PRIu64 " is %g, expected a finite number",
                            text_width(from->name), from->name.data, element, value);
    return err_set(e, STATUS_FAILED,
                   "tensor %.*s: element %" PRIu64 ", %g, or its block is too large for %s; choose "
                   "%s",
                   text_width(from->name), from->name.data, element, value, t->to->name,
                   t->to->type == TENSOR_BF16 ? "f32" : "bf16 or f32");
}

static void add_sums(struct sums *sum, const struct sums *r)
{
    sum->error += r->error;
    sum->size += r->size;
    sum->max = r->max > sum->max ? r->max : sum->max;
    sum->n += r->n;
}

static struct quantize_error error_of(const struct sums *sum)
{
    return (struct quantize_error){
        .rms = sum->n > 0 ? sqrt(sum->error / (double)sum->n) : 0,
        .relative = sum->error > 0 ? sqrt(sum->error / sum->size) : 0,
        .max = sum->max,
    };
}

/* The writer's callback: converts the elements that start at `offset` bytes of the new tensor. */
static enum status next_piece(void *arg, uint64_t offset, const void **data, size_t *len,
                              struct err *e)
{
    struct source *source = arg;
    struct quantize_work *w = source->w;
    const struct quantize_params *p = &w->q->params;
    struct quantize_tensor *t = source->tensor;
    const struct gguf_tensor *from = t->from;
    if (p->stop && p->stop(p->arg))
        return STATUS_INTERRUPTED;
    if (offset == 0)
        source->sums = (struct sums){.n = 0};
    if (offset == 0 && source == w->sources)
        w->total = source->sums;
    assert(offset % t->to->block_bytes == 0);
    w->tensor = t;
    w->first = offset / t->to->block_bytes * t->to->block_elements;
    w->n = from->n_elements - w->first < PIECE ? from->n_elements - w->first : PIECE;
    w->n_chunks = (w->n + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS;
    if (w->n_chunks > 1)
        pool_run(p->pool, convert_chunks, w);
    else
        convert_chunks(w, 0);
    for (int i = 0; i < w->n_chunks; i++) {
        if (w->chunks[i].bad != UINT64_MAX)
            return refuse_value(t, w->chunks[i].bad, e);
        add_sums(&source->sums, &w->chunks[i]);
    }
    const uint64_t begin = type_bytes(from->type, w->first), read = type_bytes(from->type, w->n);
    if (p->source)
        file_map_release(p->source, from->data + begin, read);
    if (p->progress)
        p->progress(p->arg, source->before + begin + read, w->q->bytes_before);
    if (w->first + w->n == from->n_elements && t->to != from->type) {
        t->error = error_of(&source->sums);
        add_sums(&w->total, &source->sums);
        w->q->error = error_of(&w->total);
    }
    *data = w->out;
    *len = type_bytes(t->to, w->n);
    return STATUS_OK;
}

/* --- the plan -------------------------------------------------------------------------------- */

static enum status plan_tensor(const struct quantize_params *p, const struct config *c,
                               struct quantize_tensor *t, struct err *e)
{
    const struct gguf_tensor *from = t->from;
    struct tensor_spec spec;
    if (!layout_named(c, from->name, &spec)) /* judged by its name */
        spec.flags =
            text_ends_with(from->name, ".weight") && !text_ends_with(from->name, "_norm.weight")
                ? SPEC_QUANTISES
                : 0;
    /* Whether it takes the type asked for, as what has one row does not. */
    const bool changes = (spec.flags & SPEC_QUANTISES) && from->n_elements != from->dims[0];
    const struct tensor_type_info *asked = tensor_type_find(p->type);
    const struct tensor_type_info *wanted =
        tensor_type_find(changes && !p->pure ? layout_type(&spec, p->type) : p->type);
    t->to = from->type;
    if (!blocks_runs(from->type->type))
        return err_bad_file(e,
                            "tensor %.*s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s; "
                            "start from a file in one of those",
                            text_width(from->name), from->name.data, from->type->name);
    if (changes && from->type != wanted) {
        t->to = wanted;
        if (from->dims[0] % asked->block_elements != 0) {
            t->to = from->type->type == TENSOR_F32 ? tensor_type_find(TENSOR_F16) : from->type;
            t->fallback = true;
        }
    }
    if (t->to != from->type && from->type->block_elements > 1 && !p->requantize)
        return err_set(e, STATUS_USAGE,
                       "tensor %.*s is %s already, and would keep that type's error as %s; start "
                       "from the F32 or F16 file, or allow it with --requantize",
                       text_width(from->name), from->name.data, from->type->name, t->to->name);
    t->bytes = type_bytes(t->to, from->n_elements);
    return STATUS_OK;
}

static struct quantize_work *take_buffers(struct quantize *q)
{
    const struct gguf *g = q->params.gguf;
    struct arena *arena = &q->arena;
    const uint64_t n_threads = pool_n_threads(q->params.pool);
    uint64_t largest = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        largest = g->tensors[i].n_elements > largest ? g->tensors[i].n_elements : largest;
    q->tensors = arena_take(arena, g->n_tensors, sizeof *q->tensors);
    struct quantize_work *w = arena_take(arena, 1, sizeof *w);
    const struct quantize_work taken = {
        .q = q,
        .sources = arena_take(arena, g->n_tensors, sizeof *w->sources),
        .out = arena_take(arena, largest < PIECE ? largest : PIECE, sizeof(float)),
        .scratch = arena_take(arena, n_threads * 2 * CHUNK_ELEMENTS, sizeof(float)),
        .chunks = arena_take(arena, PIECE_CHUNKS, sizeof *w->chunks),
    };
    if (w)
        *w = taken;
    return w;
}

static enum status plan_tensors(struct quantize *q, struct err *e)
{
    const struct gguf *g = q->params.gguf;
    const struct {
        const char *key;
        uint32_t value;
    } replaced[] = {{"general.file_type", gguf_file_type(q->params.type)},
                    {"general.quantization_version", QUANTIZATION_VERSION}};
    bool done[2] = {false, false};
    struct config config;
    TRY(config_read(g, &config, e));
    take_buffers(q);
    TRY(arena_allocate(&q->arena, "the conversion", e));
    struct quantize_work *w = take_buffers(q);
    TRY(gguf_writer_create(&q->writer, e));
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct text key = g->pairs[i].key;
        const int r = text_is(key, replaced[0].key) ? 0 : text_is(key, replaced[1].key) ? 1 : -1;
        if (r < 0) {
            gguf_add_value(q->writer, key, &g->pairs[i].value);
        } else {
            gguf_add_u32(q->writer, replaced[r].key, replaced[r].value);
            done[r] = true;
        }
    }
    for (int r = 0; r < 2; r++)
        if (!done[r])
            gguf_add_u32(q->writer, replaced[r].key, replaced[r].value);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *from = &g->tensors[i];
        struct quantize_tensor *t = &q->tensors[i];
        t->from = from;
        TRY(plan_tensor(&q->params, &config, t, e));
        w->sources[i] = (struct source){.w = w, .tensor = t, .before = q->bytes_before};
        q->bytes_before += from->n_bytes;
        q->bytes_after += t->bytes;
        gguf_add_tensor_source(q->writer, from->name, t->to->type, from->n_dims, from->dims,
                               (struct gguf_source){.piece = next_piece, .arg = &w->sources[i]});
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
