#include "mutate_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint_parts.h"
#include "model/layout.h"

/* --- names that are known -------------------------------------------------------------------- */

/* Behind the architecture's name if a point is in front; fuzz_convert reads those of "fuzz". */
static const char *const known_keys[] = {".context_length",
                                         ".embedding_length",
                                         ".block_count",
                                         ".attention.head_count",
                                         ".attention.head_count_kv",
                                         ".attention.key_length",
                                         ".attention.value_length",
                                         ".feed_forward_length",
                                         ".attention.layer_norm_epsilon",
                                         ".attention.layer_norm_rms_epsilon",
                                         ".norm.epsilon",
                                         ".norm.type",
                                         ".norm.placement",
                                         ".position.type",
                                         ".feed_forward.type",
                                         ".block.shared",
                                         ".embedding_scale",
                                         ".rope.dimension_count",
                                         ".rope.freq_base",
                                         ".rope.scaling.type",
                                         ".rope.scaling.factor",
                                         ".rope.scale_linear",
                                         ".expert_count",
                                         "general.architecture",
                                         "general.alignment",
                                         "tokenizer.ggml.model",
                                         "tokenizer.ggml.pre",
                                         "tokenizer.ggml.tokens",
                                         "tokenizer.ggml.token_type",
                                         "tokenizer.ggml.merges",
                                         "tokenizer.ggml.scores",
                                         "tokenizer.ggml.add_space_prefix",
                                         "tokenizer.ggml.bos_token_id",
                                         "tokenizer.ggml.eos_token_id",
                                         "tokenizer.ggml.add_bos_token",
                                         "decode.convert.method",
                                         "fuzz.kv_heads",
                                         "fuzz.method",
                                         "fuzz.cluster",
                                         "fuzz.refit",
                                         "fuzz.tokens",
                                         "fuzz.latent",
                                         "fuzz.cache_bytes"};

/* The row that the file's keys are of, if they are of one. */
static const struct arch *architecture(const struct parts *p)
{
    for (size_t i = 0; i < p->n_pairs; i++)
        if (text_is(p->pairs[i].key, "general.architecture") && arch_find(p->pairs[i].value.bytes))
            return arch_find(p->pairs[i].value.bytes);
    return arch_find(text_of("gpt2"));
}

static struct text known_key(struct parts *p)
{
    char key[96];
    const char *name = known_keys[pick(p, COUNT(known_keys))];
    snprintf(key, sizeof key, "%s%s", name[0] == '.' ? architecture(p)->name : "", name);
    return keep(p, key);
}

static struct text known_tensor(struct parts *p)
{
    const enum tensor_role role = (enum tensor_role)pick(p, TENSOR_ROLES);
    return keep(p, arch_tensor_name(role, (int)pick(p, 3), pick(p, 3) == 0).text);
}

/* --- values ---------------------------------------------------------------------------------- */

void parts_put_number(unsigned char *out, enum gguf_kind kind, double x)
{
    const float f = (float)x;
    const uint64_t n = x < 0 ? (uint64_t)(int64_t)x : x < 0x1p63 ? (uint64_t)x : UINT64_MAX;
    if (kind == GGUF_F32)
        memcpy(out, &f, sizeof f);
    else if (kind == GGUF_F64)
        memcpy(out, &x, sizeof x);
    else
        memcpy(out, &n, sizeof n); /* little-endian: the first bytes are the smaller kinds */
}

size_t parts_kind_bytes(enum gguf_kind kind)
{
    static const unsigned char bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[kind];
}

static struct gguf_value some_number(struct parts *p)
{
    static const double numbers[] = {0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     8,
                                     12,
                                     16,
                                     32,
                                     64,
                                     257,
                                     5,
                                     6,
                                     7,
                                     9,
                                     10,
                                     -1,
                                     1e-5,
                                     65536.0,
                                     0.5,
                                     1e30,
                                     1e-9,
                                     1e9,
                                     10000,
                                     1024,
                                     4194304,
                                     4294967296,
                                     (double)NAN,
                                     (double)INFINITY};
    static const enum gguf_kind kinds[] = {GGUF_U32, GGUF_U32, GGUF_U32, GGUF_U8,  GGUF_I16,
                                           GGUF_I32, GGUF_U64, GGUF_F32, GGUF_F64, GGUF_BOOL};
    struct gguf_value v = {.kind = kinds[pick(p, COUNT(kinds))], .count = 1};
    unsigned char *bytes = take(p, 8);
    if (bytes)
        parts_put_number(bytes, v.kind, numbers[pick(p, COUNT(numbers))]);
    v.bytes = (struct text){bytes ? (char *)bytes : "", bytes ? parts_kind_bytes(v.kind) : 0};
    return v;
}

static struct gguf_value some_text(struct parts *p)
{
    static const char *const texts[] = {
        "gpt2",  "starcoder",  "llama",  "decode", "gpt-2",     "default", "smollm",
        "spe\n", "mean",       "layer",  "rms",    "before",    "after",   "learned",
        "rope",  "sinusoidal", "alibi",  "none",   "quadratic", "gelu",    "gelu_erf",
        "relu",  "swiglu",     "linear", "yarn",   "",          "\xff",    "\x1b[31mred"};
    return (struct gguf_value){
        .kind = GGUF_STRING, .count = 1, .bytes = text_of(texts[pick(p, COUNT(texts))])};
}

/* An array of small integers, as K/V heads by layer are. */
static struct gguf_value some_integers(struct parts *p)
{
    const size_t n = pick(p, 5);
    unsigned char *bytes = take(p, n + 1);
    for (size_t i = 0; i < n && bytes; i++)
        bytes[i] = (unsigned char)(1 << pick(p, 4));
    return (struct gguf_value){.kind = GGUF_ARRAY,
                               .element_kind = pick(p, 6) ? GGUF_U8 : GGUF_BOOL,
                               .count = bytes ? n : 0,
                               .bytes = {bytes ? (const char *)bytes : "", bytes ? n : 0}};
}

/* --- changes of pairs ------------------------------------------------------------------------ */

/* Another length of an array of numbers: cut short, or its beginning once more at its end. */
static void resize_array(struct parts *p, struct gguf_value *v)
{
    const size_t bytes = v->element_kind == GGUF_STRING ? 0 : parts_kind_bytes(v->element_kind);
    if (!bytes || !v->count)
        return;
    const size_t old = v->bytes.len, new = pick(p, (size_t)v->count + 3) * bytes;
    char *copy = take(p, new);
    if (!copy)
        return;
    for (size_t i = 0; i < new; i++)
        copy[i] = v->bytes.data[i % old];
    v->bytes = (struct text){copy, new};
    v->count = new / bytes;
}

static void change_pair(struct parts *p)
{
    struct gguf_pair *a = &p->pairs[pick(p, p->n_pairs)];
    struct gguf_pair *b = &p->pairs[pick(p, p->n_pairs)];
    const struct gguf_value old = a->value;
    switch (pick(p, 8)) {
    case 0:
        *a = p->pairs[--p->n_pairs];
        break;
    case 1:
        a->key = known_key(p);
        break;
    case 2:
        a->value = b->value;
        b->value = old;
        break;
    case 3:
        if (p->n_pairs < MAX_PAIRS) {
            p->pairs[p->n_pairs] = *a;
            p->pairs[p->n_pairs++].key = known_key(p);
        }
        break;
    case 4:
        if (a->value.kind == GGUF_ARRAY)
            resize_array(p, &a->value);
        else
            a->value = pick(p, 4) ? some_text(p) : some_integers(p);
        break;
    default:
        if (p->n_pairs < MAX_PAIRS && pick(p, 3) == 0) {
            a = &p->pairs[p->n_pairs++];
            a->key = known_key(p);
        }
        a->value = some_number(p);
    }
}

/* --- changes of tensors ---------------------------------------------------------------------- */

/* The bytes that type and shape ask for: those there are, again and again. */
void parts_fit_data(struct parts *p, struct gguf_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    const uint64_t bytes = n / t->type->block_elements * t->type->block_bytes;
    if (n <= POOL && bytes <= t->n_bytes) {
        t->n_bytes = bytes;
        return;
    }
    unsigned char *data = n <= POOL ? take(p, bytes) : NULL;
    if (!data) {
        p->broken = true;
        return;
    }
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = t->data[i % t->n_bytes];
    t->data = data;
    t->n_bytes = bytes;
}

void parts_change_type(struct parts *p, struct gguf_tensor *t)
{
    static const uint32_t types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q8_0,
                                     TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_F16,  12 /* Q4_K */};
    const struct tensor_type_info *type = tensor_type_find(types[pick(p, COUNT(types))]);
    if (t->dims[0] % type->block_elements)
        return;
    t->type = type;
    parts_fit_data(p, t);
}

static void change_shape(struct parts *p, struct gguf_tensor *t)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 257};
    const int i = (int)pick(p, (size_t)t->n_dims + (t->n_dims < GGUF_MAX_DIMS));
    t->dims[i] = sizes[pick(p, COUNT(sizes))];
    if (i == t->n_dims)
        t->n_dims++;
    if (t->dims[0] % t->type->block_elements)
        t->dims[0] = t->type->block_elements;
    parts_fit_data(p, t);
}

/* Numbers that weights should not be, at one place or all over. */
void parts_change_data(struct parts *p, struct gguf_tensor *t)
{
    static const unsigned char odd[] = {0x00, 0xff, 0x7f, 0x80, 0x7c, 0xfc, 0x3c, 0x01};
    unsigned char *data = take(p, t->n_bytes);
    if (!data)
        return;
    memcpy(data, t->data, t->n_bytes);
    const size_t from = pick(p, 2) ? 0 : pick(p, t->n_bytes);
    const size_t n = from ? 1 + pick(p, t->n_bytes - from) % 4 : t->n_bytes;
    const unsigned char byte = odd[pick(p, sizeof odd)];
    for (size_t i = 0; i < n; i++)
        data[from + i] = byte;
    t->data = data;
}

static void change_tensor(struct parts *p)
{
    struct gguf_tensor *a = &p->tensors[pick(p, p->n_tensors)];
    struct gguf_tensor *b = &p->tensors[pick(p, p->n_tensors)];
    const struct gguf_tensor old = *a;
    switch (pick(p, 8)) {
    case 0:
        *a = p->tensors[--p->n_tensors];
        break;
    case 1:
        a->name = known_tensor(p);
        break;
    case 2: /* places exchanged */
        *a = *b;
        *b = old;
        break;
    case 3:
        if (p->n_tensors < MAX_TENSORS) {
            p->tensors[p->n_tensors] = *a;
            p->tensors[p->n_tensors++].name = known_tensor(p);
        }
        break;
    case 4:
        change_shape(p, a);
        break;
    case 5:
        parts_change_data(p, a);
        break;
    default:
        parts_change_type(p, a);
    }
}

/* --- files ----------------------------------------------------------------------------------- */

/* 0 if it is refused or does not fit. */
size_t parts_write(const struct parts *p, uint8_t *data, size_t max_size)
{
    struct gguf_writer *w;
    unsigned char *bytes = NULL;
    size_t size = 0;
    if (p->broken || gguf_writer_create(&w, NULL) != STATUS_OK)
        return 0;
    uint64_t total = 0;
    for (size_t i = 0; i < p->n_pairs; i++)
        gguf_add_value(w, p->pairs[i].key, &p->pairs[i].value);
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct gguf_tensor *t = &p->tensors[i];
        total += t->n_bytes;
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    if (total <= max_size && gguf_write_memory(w, &bytes, &size, NULL) == STATUS_OK &&
        size <= max_size)
        memcpy(data, bytes, size);
    else
        size = 0;
    gguf_writer_free(w);
    free(bytes);
    return size;
}

void parts_add(struct parts *p, const struct gguf *g, bool pairs, bool tensors)
{
    for (size_t i = 0; pairs && i < g->n_pairs && p->n_pairs < MAX_PAIRS; i++)
        p->pairs[p->n_pairs++] = g->pairs[i];
    for (size_t i = 0; tensors && i < g->n_tensors && p->n_tensors < MAX_TENSORS; i++)
        p->tensors[p->n_tensors++] = g->tensors[i];
}

struct parts *parts_start(uint64_t *random)
{
    static struct parts p; /* libFuzzer mutates in one thread */
    p.n_pairs = p.n_tensors = p.used = 0;
    p.broken = false;
    p.random = random;
    return &p;
}

size_t mutate_checkpoint(uint8_t *data, size_t size, size_t max_size, uint64_t *random)
{
    struct gguf *g;
    struct parts *p = parts_start(random);
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    parts_add(p, g, true, true);
    for (size_t n = 1 + pick(p, 3); n > 0; n--) {
        const bool tensor = pick(p, 2);
        if (tensor && p->n_tensors > 0)
            change_tensor(p);
        else if (!tensor && p->n_pairs > 0)
            change_pair(p);
    }
    const size_t result = parts_write(p, data, max_size);
    gguf_free(g);
    return result;
}

size_t cross_checkpoints(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                         uint8_t *data, size_t max_size, uint64_t *random)
{
    struct gguf *g, *h;
    struct parts *p = parts_start(random);
    size_t result = 0;
    if (gguf_parse(a, a_size, &g, NULL) != STATUS_OK)
        return 0;
    if (gguf_parse(b, b_size, &h, NULL) == STATUS_OK) {
        const bool turned = pick(p, 2);
        parts_add(p, g, !turned, turned);
        parts_add(p, h, turned, !turned);
        result = parts_write(p, data, max_size);
        gguf_free(h);
    }
    gguf_free(g);
    return result;
}
