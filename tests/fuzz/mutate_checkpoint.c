#include "mutate_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint_parts.h"
#include "model/arch.h"

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
                                         "fuzz.tokens"};

/* The row that the file's keys are of, if they are of one. */
static const struct arch *architecture(const struct parts *p)
{
    for (size_t i = 0; i < p->n_pairs; i++)
        if (text_is(p->pairs[i].key, "general.architecture") && arch_find(p->pairs[i].value.bytes))
            return arch_find(p->pairs[i].value.bytes);
    return arch_at(0);
}

static struct text known_key(struct parts *p)
{
    char key[96];
    const char *name = known_keys[pick(p, sizeof known_keys / sizeof *known_keys)];
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
    struct gguf_value v = {.kind = kinds[pick(p, sizeof kinds / sizeof *kinds)], .count = 1};
    unsigned char *bytes = take(p, 8);
    if (bytes)
        parts_put_number(bytes, v.kind, numbers[pick(p, sizeof numbers / sizeof *numbers)]);
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
    return (struct gguf_value){.kind = GGUF_STRING,
                               .count = 1,
                               .bytes = text_of(texts[pick(p, sizeof texts / sizeof *texts)])};
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
    const struct tensor_type_info *type =
        tensor_type_find(types[pick(p, sizeof types / sizeof *types)]);
    if (t->dims[0] % type->block_elements)
        return;
    t->type = type;
    parts_fit_data(p, t);
}

static void change_shape(struct parts *p, struct gguf_tensor *t)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 8, 16, 32, 64, 257};
    const int i = (int)pick(p, (size_t)t->n_dims + (t->n_dims < GGUF_MAX_DIMS));
    t->dims[i] = sizes[pick(p, sizeof sizes / sizeof *sizes)];
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
<<<<<<< HEAD

/* --- new checkpoints ------------------------------------------------------------------------- */

struct shape {
    const char *architecture;
    int heads, kv_heads, d, ff, ctx, layers, vocab;
    bool tied, biases, tokenizer;
    bool mixed; /* types by chance, tensor by tensor; else all of `type` */
    uint32_t type;
};

static struct shape some_shape(struct parts *p)
{
    static const int heads[] = {1, 2, 2, 3, 4, 4, 6, 8, 12, 13, 16}, sizes[] = {1, 2, 4, 8, 16, 32};
    static const int widths[] = {1, 4, 8, 32, 32, 64};
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    struct shape s = {.architecture = pick(p, 4) ? "gpt2" : "starcoder",
                      .heads = heads[pick(p, sizeof heads / sizeof *heads)],
                      .ff = widths[pick(p, 6)],
                      .ctx = 1 + (int)pick(p, 9),
                      .layers = 1 + (int)pick(p, 5) / 3,
                      .tied = pick(p, 2),
                      .biases = pick(p, 4) > 0,
                      .tokenizer = pick(p, 4) == 0,
                      .mixed = pick(p, 2),
                      .type = types[pick(p, sizeof types / sizeof *types)]};
    s.d = s.heads * sizes[pick(p, sizeof sizes / sizeof *sizes)];
    while (s.d > 64)
        s.d /= 2;
    s.d -= s.d % s.heads;
    s.kv_heads = 1 + (int)pick(p, (size_t)s.heads);
    while (s.heads % s.kv_heads)
        s.kv_heads--;
    s.vocab = s.tokenizer ? 260 : 2 + (int)pick(p, 32);
    return s;
}

static void add_tensor(struct parts *p, const struct shape *s, const char *name, int columns,
                       int rows)
{
    if (p->n_tensors == MAX_TENSORS)
        return;
    const uint32_t type = rows > 1 || s->type == TENSOR_F16 ? s->type : TENSOR_F32;
    struct gguf_tensor t = {.name = keep(p, name),
                            .n_dims = rows > 1 ? 2 : 1,
                            .dims = {(uint64_t)columns, (uint64_t)rows, 1, 1}};
    t.type = tensor_type_find(type);
    if (columns % (int)t.type->block_elements)
        t.type = tensor_type_find(TENSOR_F16);
    static unsigned char weights[256];
    if (!weights[1]) /* small numbers, whatever type they are read as */
        for (size_t i = 0; i < sizeof weights; i++)
            weights[i] = (unsigned char)(i % 2 ? 0x20 + i % 31 : i * 37);
    t.data = weights;
    t.n_bytes = sizeof weights;
    fit_data(p, &t);
    if (s->mixed && rows > 1)
        change_type(p, &t);
    if (pick(p, 24) == 0)
        change_data(p, &t);
    p->tensors[p->n_tensors++] = t;
}

static void add_layer(struct parts *p, const struct shape *s, int layer)
{
    const int kv = s->d / s->heads * s->kv_heads, d = s->d;
    const int sizes[N_PARTS][2] = {{d, 1},     {d, 1},     {d, d + 2 * kv}, {d + 2 * kv, 1},
                                   {d, d},     {d, 1},     {d, 1},          {d, 1},
                                   {d, s->ff}, {s->ff, 1}, {s->ff, d},      {d, 1}};
    for (size_t i = 0; i < N_PARTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, known_parts[i]);
        if (s->biases || !strstr(name, ".bias"))
            add_tensor(p, s, name, sizes[i][0], sizes[i][1]);
    }
}

static void add_number(struct parts *p, const char *prefix, const char *key, enum gguf_kind kind,
                       double x)
{
    char name[96];
    unsigned char *bytes = take(p, 8);
    if (!bytes || p->n_pairs == MAX_PAIRS)
        return;
    snprintf(name, sizeof name, "%s%s", prefix, key);
    put_number(bytes, kind, x);
    p->pairs[p->n_pairs++] = (struct gguf_pair){
        keep(p, name),
        {.kind = kind, .count = 1, .bytes = {(const char *)bytes, kind_bytes(kind)}}};
}

static void add_text(struct parts *p, const char *key, const char *value)
{
    p->pairs[p->n_pairs++] = (struct gguf_pair){
        text_of(key), {.kind = GGUF_STRING, .count = 1, .bytes = text_of(value)}};
}

/* An array of n strings that lie one after another in the pool, each behind its length. */
static void add_texts(struct parts *p, const char *key, size_t from, uint64_t n)
{
    p->pairs[p->n_pairs++] =
        (struct gguf_pair){text_of(key),
                           {.kind = GGUF_ARRAY,
                            .element_kind = GGUF_STRING,
                            .count = n,
                            .bytes = {(const char *)p->pool + from, p->used - from}}};
}

static void put_text(struct parts *p, const char *text, size_t len)
{
    unsigned char *out = take(p, 8 + len);
    const uint64_t n = len;
    if (!out)
        return;
    memcpy(out, &n, 8);
    memcpy(out + 8, text, len);
}

/* An array of i32 in which the last three tokens, by chance, are not normal ones. */
static void add_types(struct parts *p, const char *key, size_t n)
{
    unsigned char *types = take(p, n * 4);
    if (!types)
        return;
    memset(types, 0, n * 4);
    for (size_t i = 0; i < n; i++)
        types[4 * i] = i + 3 < n ? 1 : (unsigned char)pick(p, 7);
    p->pairs[p->n_pairs++] = (struct gguf_pair){text_of(key),
                                                {.kind = GGUF_ARRAY,
                                                 .element_kind = GGUF_I32,
                                                 .count = n,
                                                 .bytes = {(const char *)types, n * 4}}};
}

/* All bytes, a merge, three other tokens: special, a byte's, or normal. */
static void add_tokenizer(struct parts *p)
{
    static const char *const rules[] = {"gpt-2", "starcoder", "llama-bpe", "qwen2"};
    static const char *const others[] = {"<|a|>", "<|ab|>", "<0x41>", "<0xfg>", "a b", "th", "t"};
    add_text(p, "tokenizer.ggml.model", pick(p, 4) ? "gpt2" : "llama");
    add_text(p, "tokenizer.ggml.pre", rules[pick(p, 4)]);
    size_t from = p->used;
    for (int byte = 0; byte < 256; byte++) {
        char c[2];
        put_text(p, c, byte_alphabet_write((unsigned char)byte, c));
    }
    put_text(p, "th", 2);
    for (int i = 0; i < 3; i++) {
        const char *other = others[pick(p, sizeof others / sizeof *others)];
        put_text(p, other, strlen(other));
    }
    add_texts(p, "tokenizer.ggml.tokens", from, 260);
    if (pick(p, 3))
        add_types(p, "tokenizer.ggml.token_type", 260);
    from = p->used;
    put_text(p, "t h", 3);
    if (pick(p, 4) == 0)
        put_text(p, pick(p, 2) ? "a h" : "thh", 3);
    add_texts(p, "tokenizer.ggml.merges", from, p->used > from + 11 ? 2 : 1);
    if (pick(p, 2))
        add_number(p, "", "tokenizer.ggml.bos_token_id", GGUF_U32, 257);
    if (pick(p, 2))
        add_number(p, "", "tokenizer.ggml.add_bos_token", GGUF_BOOL, (double)pick(p, 2));
}

/* What fuzz_convert does with it. */
static void add_conversion(struct parts *p, const struct shape *s)
{
    add_number(p, "fuzz", ".kv_heads", GGUF_U32, 1 + (double)pick(p, (size_t)s->kv_heads));
    add_number(p, "fuzz", ".method", GGUF_U32, (double)pick(p, 5));
    add_number(p, "fuzz", ".tokens", GGUF_U32, (double)pick(p, 24));
    add_number(p, "fuzz", ".cluster", GGUF_BOOL, (double)pick(p, 2));
    add_number(p, "fuzz", ".refit", GGUF_BOOL, (double)pick(p, 2));
}

size_t make_checkpoint(uint8_t *data, size_t max_size, uint64_t *random)
{
    struct parts *p = start(random);
    const struct shape s = some_shape(p);
    const char *a = s.architecture;
    add_text(p, "general.architecture", a);
    add_number(p, a, ".context_length", GGUF_U32, s.ctx);
    add_number(p, a, ".embedding_length", GGUF_U32, s.d);
    if (pick(p, 4))
        add_number(p, a, ".feed_forward_length", GGUF_U32, s.ff);
    add_number(p, a, ".block_count", GGUF_U32, s.layers);
    add_number(p, a, ".attention.head_count", GGUF_U32, s.heads);
    if (s.kv_heads < s.heads || pick(p, 2))
        add_number(p, a, ".attention.head_count_kv", GGUF_U32, s.kv_heads);
    add_number(p, a, ".attention.layer_norm_epsilon", GGUF_F32, 1e-5);
    if (s.tokenizer)
        add_tokenizer(p);
    add_conversion(p, &s);
    add_tensor(p, &s, "token_embd.weight", s.d, s.vocab);
    add_tensor(p, &s, "position_embd.weight", s.d, s.ctx);
    /* A context of one: still two dimensions. */
    p->tensors[p->n_tensors - 1].n_dims = 2;
    for (int l = 0; l < s.layers; l++)
        add_layer(p, &s, l);
    add_tensor(p, &s, "output_norm.weight", s.d, 1);
    if (s.biases)
        add_tensor(p, &s, "output_norm.bias", s.d, 1);
    if (!s.tied)
        add_tensor(p, &s, "output.weight", s.d, s.vocab);
    return write_parts(p, data, max_size);
}
=======
>>>>>>> hostile
