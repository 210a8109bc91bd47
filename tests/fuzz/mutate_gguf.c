/*
 * mutate_gguf - the mutator of GGUF files. It changes whole pairs and tensors, so that the result
 * passes the checks of the container and what reads models and tokenizers is reached, or leaves the
 * bytes to libFuzzer. (Checkpoints of every kind that run, and containers that are broken in every
 * way, are in the corpus.)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "formats/gguf_write.h"
#include "model/layout.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* Of libFuzzer; a program without it, which only replays, has none. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

/* --- chance ---------------------------------------------------------------------------------- */

static uint64_t chance; /* libFuzzer mutates in one thread */

static size_t pick(size_t n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(chance >> 33) % n;
}

#define PICK(array) ((array)[pick(COUNT(array))])

/* One of the words that single spaces separate. */
static struct text pick_word(const char *words)
{
    size_t n = 1;
    for (const char *c = words; *c; c++)
        n += *c == ' ';
    for (n = pick(n); n > 0; n--)
        words = strchr(words, ' ') + 1;
    return (struct text){words, strcspn(words, " ")};
}

static uint32_t pick_type(void)
{
    static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q8_0,
                                     TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_F16,  12 /* Q4_K */};
    return PICK(types);
}

/* --- a file taken apart ---------------------------------------------------------------------- */

#define MAX_PAIRS   64
#define MAX_TENSORS 128
#define POOL        (1 << 18) /* bytes of new values and tensor data */

/* Names and values point into the parsed bytes, into the pool or at constants. */
static struct parts {
    struct gguf_pair pairs[MAX_PAIRS];
    size_t n_pairs;
    struct gguf_tensor tensors[MAX_TENSORS];
    size_t n_tensors;
    unsigned char pool[POOL];
    size_t used;
    bool broken; /* something would not fit */
} parts;

static void start_parts(void)
{
    parts.n_pairs = parts.n_tensors = parts.used = 0;
    parts.broken = false;
}

/* Those of a file, whose bytes must stay. */
static void add_parts(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_pairs && parts.n_pairs < MAX_PAIRS; i++)
        parts.pairs[parts.n_pairs++] = g->pairs[i];
    for (size_t i = 0; i < g->n_tensors && parts.n_tensors < MAX_TENSORS; i++)
        parts.tensors[parts.n_tensors++] = g->tensors[i];
}

/* Frees the writer; 0, with `data` left alone, if the file is refused or does not fit. */
static size_t write_file(struct gguf_writer *w, uint8_t *data, size_t max_size)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    if (gguf_write_memory(w, &bytes, &size, NULL) == STATUS_OK && size <= max_size)
        memcpy(data, bytes, size);
    else
        size = 0;
    gguf_writer_free(w);
    free(bytes);
    return size;
}

static size_t write_parts(uint8_t *data, size_t max_size)
{
    struct gguf_writer *w;
    uint64_t total = 0;
    for (size_t i = 0; i < parts.n_tensors; i++)
        total += parts.tensors[i].n_bytes;
    if (parts.broken || total > max_size || gguf_writer_create(&w, NULL) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < parts.n_pairs; i++)
        gguf_add_value(w, parts.pairs[i].key, &parts.pairs[i].value);
    for (size_t i = 0; i < parts.n_tensors; i++) {
        const struct gguf_tensor *t = &parts.tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    return write_file(w, data, max_size);
}

/* What is used up breaks the file; the bytes there are may be written all the same. */
static unsigned char *take(uint64_t n)
{
    parts.broken |= n > POOL - parts.used;
    if (parts.broken)
        return parts.pool;
    parts.used += (size_t)n;
    return parts.pool + parts.used - n;
}

static struct text keep(const char *text)
{
    const size_t len = strlen(text);
    unsigned char *bytes = take(len);
    if (!parts.broken)
        memcpy(bytes, text, len);
    return (struct text){(const char *)bytes, parts.broken ? 0 : len};
}

/* `n` bytes: those of `from`, of which there are `len`, again and again. */
static unsigned char *repeated(const void *from, uint64_t len, uint64_t n)
{
    unsigned char *copy = take(n);
    for (uint64_t i = 0; i < n && !parts.broken; i++)
        copy[i] = ((const unsigned char *)from)[i % len];
    return copy;
}

/* --- changes of pairs ------------------------------------------------------------------------ */

/* Behind the architecture's name if a point is in front. */
static const char known_keys[] =
    ".context_length .embedding_length .block_count .attention.head_count "
    ".attention.head_count_kv .attention.key_length .attention.value_length "
    ".feed_forward_length .attention.layer_norm_epsilon .attention.layer_norm_rms_epsilon "
    ".norm.epsilon .norm.type .norm.placement .position.type .feed_forward.type .block.shared "
    ".embedding_scale .rope.dimension_count .rope.freq_base .rope.scaling.type "
    ".rope.scaling.factor .rope.scale_linear .expert_count general.architecture "
    "general.alignment tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens "
    "tokenizer.ggml.token_type tokenizer.ggml.merges tokenizer.ggml.scores "
    "tokenizer.ggml.add_space_prefix tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id "
    "tokenizer.ggml.add_bos_token decode.convert.method";

/* The row that the file's keys are of, if they are of one. */
static const struct arch *architecture(void)
{
    for (size_t i = 0; i < parts.n_pairs; i++)
        if (text_is(parts.pairs[i].key, "general.architecture") &&
            arch_find(parts.pairs[i].value.bytes))
            return arch_find(parts.pairs[i].value.bytes);
    return arch_find(text_of("gpt2"));
}

static struct text known_key(void)
{
    char key[96];
    const struct text name = pick_word(known_keys);
    snprintf(key, sizeof key, "%s%.*s", name.data[0] == '.' ? architecture()->name : "",
             text_width(name), name.data);
    return keep(key);
}

static struct gguf_value some_number(void)
{
    static const struct {
        enum gguf_kind kind;
        size_t bytes;
    } kinds[] = {{GGUF_U32, 4}, {GGUF_U32, 4}, {GGUF_U32, 4}, {GGUF_U8, 1},  {GGUF_I16, 2},
                 {GGUF_I32, 4}, {GGUF_U64, 8}, {GGUF_F32, 4}, {GGUF_F64, 8}, {GGUF_BOOL, 1}};
    const size_t i = pick(COUNT(kinds));
    const double x = strtod(pick_word("0 1 2 3 4 8 12 16 32 64 257 5 6 7 9 10 -1 1e-5 65536 0.5 "
                                      "1e30 1e-9 1e9 10000 1024 4194304 4294967296 nan inf")
                                .data,
                            NULL);
    const float f = (float)x;
    const uint64_t n = x < 0 ? (uint64_t)(int64_t)x : x < 0x1p63 ? (uint64_t)x : UINT64_MAX;
    const void *from = &n; /* little-endian: the first bytes are the smaller kinds */
    if (kinds[i].kind == GGUF_F32)
        from = &f;
    else if (kinds[i].kind == GGUF_F64)
        from = &x;
    const char *bytes = (const char *)repeated(from, kinds[i].bytes, kinds[i].bytes);
    return (struct gguf_value){.kind = kinds[i].kind, .count = 1, .bytes = {bytes, kinds[i].bytes}};
}

static struct gguf_value some_text(void)
{
    const struct text word = pick_word(
        "gpt2 starcoder llama decode gpt-2 default smollm spe\n mean layer rms before after "
        "learned rope sinusoidal alibi none quadratic gelu gelu_erf relu swiglu linear yarn  \xff "
        "\x1b[31mred");
    return (struct gguf_value){.kind = GGUF_STRING, .count = 1, .bytes = word};
}

/* An array of small integers, as K/V heads by layer are. */
static struct gguf_value some_integers(void)
{
    const size_t n = pick(5);
    unsigned char *bytes = take(n);
    for (size_t i = 0; i < n && !parts.broken; i++)
        bytes[i] = (unsigned char)(1 << pick(4));
    return (struct gguf_value){.kind = GGUF_ARRAY,
                               .element_kind = pick(6) ? GGUF_U8 : GGUF_BOOL,
                               .count = n,
                               .bytes = {(const char *)bytes, n}};
}

/* Another length of an array of numbers: cut short, or its beginning once more at its end. */
static void resize_array(struct gguf_value *v)
{
    if (v->element_kind == GGUF_STRING || v->count == 0)
        return;
    const size_t old = v->bytes.len, bytes = old / (size_t)v->count;
    v->count = pick((size_t)v->count + 3);
    v->bytes.len = (size_t)v->count * bytes;
    v->bytes.data = (const char *)repeated(v->bytes.data, old, v->bytes.len);
}

static void change_pair(void)
{
    struct gguf_pair *a = &parts.pairs[pick(parts.n_pairs)];
    struct gguf_pair *b = &parts.pairs[pick(parts.n_pairs)];
    const struct gguf_value old = a->value;
    const size_t choice = pick(8);
    const bool one_more = choice == 3 || (choice > 4 && pick(3) == 0);
    if (one_more && parts.n_pairs < MAX_PAIRS) {
        parts.pairs[parts.n_pairs] = *a;
        a = &parts.pairs[parts.n_pairs++];
    }
    switch (choice) {
    case 0:
        *a = parts.pairs[--parts.n_pairs];
        break;
    case 1:
    case 3:
        a->key = known_key();
        break;
    case 2:
        a->value = b->value;
        b->value = old;
        break;
    case 4:
        if (a->value.kind == GGUF_ARRAY)
            resize_array(&a->value);
        else
            a->value = pick(4) ? some_text() : some_integers();
        break;
    default:
        if (one_more)
            a->key = known_key();
        a->value = some_number();
    }
}

/* --- changes of tensors ---------------------------------------------------------------------- */

/* The bytes that type and shape ask for: those there are, again and again. */
static void fit_data(struct gguf_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    const uint64_t bytes = tensor_type_bytes(t->type, n);
    parts.broken |= n > POOL;
    if (bytes > t->n_bytes && !parts.broken)
        t->data = repeated(t->data, t->n_bytes, bytes);
    t->n_bytes = bytes;
}

static void change_type(struct gguf_tensor *t)
{
    const struct tensor_type_info *type = tensor_type_find(pick_type());
    if (t->dims[0] % type->block_elements)
        return;
    t->type = type;
    fit_data(t);
}

static void change_shape(struct gguf_tensor *t)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 257};
    const int i = (int)pick((size_t)t->n_dims + (t->n_dims < GGUF_MAX_DIMS));
    t->dims[i] = PICK(sizes);
    if (i == t->n_dims)
        t->n_dims++;
    if (t->dims[0] % t->type->block_elements)
        t->dims[0] = t->type->block_elements;
    fit_data(t);
}

/* Numbers that weights should not be, at one place or all over. */
static void change_data(struct gguf_tensor *t)
{
    static const unsigned char odd[] = {0x00, 0xff, 0x7f, 0x80, 0x7c, 0xfc, 0x3c, 0x01};
    const size_t len = (size_t)t->n_bytes, from = pick(2) ? 0 : pick(len);
    unsigned char *data = repeated(t->data, len, len);
    if (!parts.broken)
        memset(data + from, PICK(odd), from ? 1 + pick(len - from) % 4 : len);
    t->data = data;
}

static void change_tensor(void)
{
    struct gguf_tensor *a = &parts.tensors[pick(parts.n_tensors)];
    struct gguf_tensor *b = &parts.tensors[pick(parts.n_tensors)];
    const struct gguf_tensor old = *a;
    const size_t choice = pick(8);
    if (choice == 3 && parts.n_tensors < MAX_TENSORS) {
        parts.tensors[parts.n_tensors] = *a;
        a = &parts.tensors[parts.n_tensors++];
    }
    switch (choice) {
    case 0:
        *a = parts.tensors[--parts.n_tensors];
        break;
    case 1:
    case 3:
        a->name =
            keep(arch_tensor_name((enum tensor_role)pick(TENSOR_ROLES), (int)pick(3), pick(3) == 0)
                     .text);
        break;
    case 2: /* places exchanged */
        *a = *b;
        *b = old;
        break;
    case 4:
        change_shape(a);
        break;
    case 5:
        change_data(a);
        break;
    default:
        change_type(a);
    }
}

static size_t mutate_checkpoint(uint8_t *data, size_t size, size_t max_size)
{
    struct gguf *g;
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    start_parts();
    add_parts(g);
    for (size_t n = 1 + pick(3); n > 0; n--) {
        const bool tensor = pick(2);
        if (tensor && parts.n_tensors > 0)
            change_tensor();
        else if (!tensor && parts.n_pairs > 0)
            change_pair();
    }
    const size_t result = write_parts(data, max_size);
    gguf_free(g);
    return result;
}

/* --- what libFuzzer calls -------------------------------------------------------------------- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    chance = seed * 0x9e3779b97f4a7c15u + 1;
    const size_t result = pick(2) ? mutate_checkpoint(data, size, max_size) : 0;
    if (result)
        return result;
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
}
