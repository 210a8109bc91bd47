/*
 * mutate_gguf - the mutator of GGUF files. It changes whole pairs and tensors, whose bytes
 * libFuzzer mutates, and copies some from another file, so that the result passes the checks of the
 * container and reaches the readers of models and tokenizers. Some files it leaves to libFuzzer as
 * bytes. (The corpus has checkpoints of every kind that run, and containers that are broken in
 * every way.)
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "count.h"
#include "formats/gguf_write.h"
#include "model/layout.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other,
                                 size_t other_size, uint8_t *out, size_t max_size,
                                 unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

static struct rng chance; /* libFuzzer mutates in one thread */

static size_t pick(size_t n)
{
    return rng_u32(&chance) % n;
}

/* --- a file taken apart ---------------------------------------------------------------------- */

#define MAX_PARTS 128
#define POOL      (1 << 18) /* bytes of new names, values and tensor data */

/* Names and values point into the parsed bytes or into the pool. */
static struct {
    struct gguf_pair pairs[MAX_PARTS];
    struct gguf_tensor tensors[MAX_PARTS];
    size_t n_pairs, n_tensors;
    unsigned char pool[POOL];
    size_t used;
} parts;

static void take_parts(const struct gguf *g)
{
    parts.n_pairs = MIN(g->n_pairs, MAX_PARTS);
    parts.n_tensors = MIN(g->n_tensors, MAX_PARTS);
    parts.used = 0;
    memcpy(parts.pairs, g->pairs, parts.n_pairs * sizeof *g->pairs);
    memcpy(parts.tensors, g->tensors, parts.n_tensors * sizeof *g->tensors);
}

/* Writes the file with the usual alignment. Returns 0 if it is refused or does not fit. */
static size_t write_parts(uint8_t *data, size_t max_size)
{
    struct gguf_writer *w;
    unsigned char *bytes = NULL;
    size_t size = 0;
    if (gguf_writer_create(&w, NULL) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < parts.n_pairs; i++)
        gguf_add_value(w, parts.pairs[i].key, &parts.pairs[i].value);
    for (size_t i = 0; i < parts.n_tensors; i++) {
        const struct gguf_tensor *t = &parts.tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    if (gguf_write_memory(w, &bytes, &size, NULL) == STATUS_OK && size <= max_size)
        memcpy(data, bytes, size);
    else
        size = 0;
    gguf_writer_free(w);
    free(bytes);
    return size;
}

/* Lets libFuzzer mutate the bytes, into `room` at most; they stay as they are if the pool lacks the
 * room. */
static struct text mutated(struct text t, size_t room)
{
    unsigned char *copy = parts.pool + parts.used;
    if (room > POOL - parts.used)
        return t;
    parts.used += room;
    memset(copy, 0, room);
    if (t.len > 0)
        memcpy(copy, t.data, t.len);
    return (struct text){(const char *)copy, LLVMFuzzerMutate(copy, t.len, room)};
}

/* --- changes --------------------------------------------------------------------------------- */

/* An array may also change its length, or that of an element if this is a text. */
static void change_value(struct gguf_value *v)
{
    const bool is_array = v->kind == GGUF_ARRAY, grows = is_array || v->kind == GGUF_STRING;
    const size_t old = v->bytes.len;
    v->bytes = mutated(v->bytes, grows ? old + 16 : old);
    if (!grows) {
        v->bytes.len = old;
    } else if (is_array && v->element_kind != GGUF_STRING && v->count > 0) {
        const size_t width = old / (size_t)v->count;
        v->count = v->bytes.len / width;
        v->bytes.len = (size_t)v->count * width;
    }
}

/* Gives the value another kind, with its first bytes, or zeros behind them. */
static void change_kind(struct gguf_value *v)
{
    static const struct {
        enum gguf_kind kind;
        size_t bytes;
    } kinds[] = {{GGUF_U32, 4}, {GGUF_F32, 4}, {GGUF_BOOL, 1}, {GGUF_U8, 1},     {GGUF_I16, 2},
                 {GGUF_I32, 4}, {GGUF_U64, 8}, {GGUF_F64, 8},  {GGUF_STRING, 4}, {GGUF_ARRAY, 4}};
    const size_t i = pick(COUNT(kinds)), bytes = kinds[i].bytes;
    const struct text first = {v->bytes.data, MIN(v->bytes.len, bytes)};
    const struct text new = mutated(first, bytes);
    if (new.data != first.data)
        *v = (struct gguf_value){.kind = kinds[i].kind,
                                 .element_kind = GGUF_U8,
                                 .count = kinds[i].kind == GGUF_ARRAY ? bytes : 1,
                                 .bytes = {new.data, bytes}};
}

static void change_pair(void)
{
    struct gguf_pair *a = &parts.pairs[pick(parts.n_pairs)];
    struct gguf_pair *b = &parts.pairs[pick(parts.n_pairs)];
    const struct gguf_value old = a->value;
    switch (pick(8)) {
    case 0:
        *a = parts.pairs[--parts.n_pairs];
        break;
    case 1:
        a->key = mutated(a->key, a->key.len + 8);
        break;
    case 2:
        a->value = b->value;
        b->value = old;
        break;
    case 3:
        change_kind(&a->value);
        break;
    default:
        change_value(&a->value);
    }
}

/* Gives the tensor another type, or another size in one dimension, and repeats its data. */
static void change_shape(struct gguf_tensor *t, const struct tensor_type_info *type, int dim,
                         uint64_t size)
{
    struct gguf_tensor new = *t;
    uint64_t n = 1;
    new.type = type;
    new.dims[dim] = size;
    new.n_dims = MAX(t->n_dims, dim + 1);
    for (int i = 0; i < new.n_dims; i++)
        n *= new.dims[i];
    new.n_bytes = n > POOL ? POOL : tensor_type_bytes(type, n);
    if (new.dims[0] % type->block_elements || new.n_bytes >= POOL - parts.used)
        return;
    new.data = parts.pool + parts.used;
    for (uint64_t i = 0; i < new.n_bytes; i++)
        parts.pool[parts.used++] = t->data[i % t->n_bytes];
    *t = new;
}

static void change_tensor(void)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 257};
    static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16,
                                     TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q4_K};
    struct gguf_tensor *a = &parts.tensors[pick(parts.n_tensors)];
    struct gguf_tensor *b = &parts.tensors[pick(parts.n_tensors)];
    const struct gguf_tensor old = *a;
    const struct text data = {(const char *)a->data, (size_t)a->n_bytes};
    switch (pick(8)) {
    case 0:
        *a = parts.tensors[--parts.n_tensors];
        break;
    case 1:
        a->name = mutated(a->name, a->name.len + 8);
        break;
    case 2: /* names exchanged */
        a->name = b->name;
        b->name = old.name;
        break;
    case 3:
    case 4:
        change_shape(a, a->type, (int)pick((size_t)MIN(a->n_dims + 1, GGUF_MAX_DIMS)),
                     sizes[pick(COUNT(sizes))]);
        break;
    case 5:
        a->data = (const unsigned char *)mutated(data, data.len).data;
        break;
    default:
        change_shape(a, tensor_type_find(types[pick(COUNT(types))]), 0, a->dims[0]);
    }
}

/* --- what libFuzzer calls -------------------------------------------------------------------- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    struct gguf *g;
    size_t result = 0;
    rng_seed(&chance, seed, 0);
    if (pick(2) && gguf_parse(data, size, &g, NULL) == STATUS_OK) {
        take_parts(g);
        for (size_t n = 1 + pick(3); n > 0; n--) {
            const bool tensor = pick(2);
            if (tensor && parts.n_tensors > 0)
                change_tensor();
            else if (!tensor && parts.n_pairs > 0)
                change_pair();
        }
        result = write_parts(data, max_size);
        gguf_free(g);
    }
    return result ? result : LLVMFuzzerMutate(data, size, max_size);
}

static void take_over_pair(const struct gguf_pair *p)
{
    size_t i = 0;
    while (i < parts.n_pairs && !text_equal(parts.pairs[i].key, p->key))
        i++;
    if (i == MAX_PARTS)
        return;
    parts.pairs[i] = *p;
    parts.n_pairs = MAX(parts.n_pairs, i + 1);
}

static void take_over_tensor(const struct gguf_tensor *t)
{
    size_t i = 0;
    while (i < parts.n_tensors && !text_equal(parts.tensors[i].name, t->name))
        i++;
    if (i == MAX_PARTS)
        return;
    parts.tensors[i] = *t;
    parts.n_tensors = MAX(parts.n_tensors, i + 1);
}

/* A pair or a tensor of the other file replaces the one of its name, or comes last. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other,
                                 size_t other_size, uint8_t *out, size_t max_size,
                                 unsigned int seed)
{
    struct gguf *g = NULL, *from = NULL;
    size_t result = 0;
    rng_seed(&chance, seed, 1);
    if (gguf_parse(data, size, &g, NULL) == STATUS_OK &&
        gguf_parse(other, other_size, &from, NULL) == STATUS_OK) {
        take_parts(g);
        for (size_t n = 1 + pick(3); n > 0; n--)
            if (from->n_pairs > 0 && pick(2))
                take_over_pair(&from->pairs[pick(from->n_pairs)]);
            else if (from->n_tensors > 0)
                take_over_tensor(&from->tensors[pick(from->n_tensors)]);
        result = write_parts(out, max_size);
    }
    gguf_free(g);
    gguf_free(from);
    return result;
}
