#include "measure/inspect.h"

#include <string.h>

#include "base/checked.h"
#include "model/kv_cache.h"
#include "model/pack.h"

const char *inspect_part_name(enum inspect_part part)
{
    static const char names[INSPECT_PARTS][12] = {"embedding", "position", "attention", "ffn",
                                                  "norms",     "output",   "other"};
    return names[part];
}

/* "blk.12.attn_q.weight" becomes "attn_q.weight"; false for other names. */
static bool cut_block(struct text *name)
{
    if (!text_starts_with(*name, "blk."))
        return false;
    size_t i = 4;
    while (i < name->len && name->data[i] >= '0' && name->data[i] <= '9')
        i++;
    if (i == 4 || i == name->len || name->data[i] != '.')
        return false;
    name->data += i + 1;
    name->len -= i + 1;
    return true;
}

enum inspect_part inspect_part_of(struct text name)
{
    static const struct {
        const char *prefix;
        enum inspect_part part;
    } outside[] = {{"token_embd.", INSPECT_EMBEDDING},
                   {"token_types.", INSPECT_EMBEDDING},
                   {"position_embd.", INSPECT_POSITION},
                   {"output.", INSPECT_OUTPUT}},
      inside[] = {{"attn_", INSPECT_ATTENTION}, {"ffn_", INSPECT_FFN}};
    const bool in_block = cut_block(&name);
    const char *dot = memchr(name.data, '.', name.len);
    const struct text stem = {name.data, dot ? (size_t)(dot - name.data) : name.len};
    if (text_ends_with(stem, "_norm"))
        return INSPECT_NORMS;
    for (size_t i = 0; i < sizeof inside / sizeof inside[0] && in_block; i++)
        if (text_starts_with(name, inside[i].prefix))
            return inside[i].part;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0] && !in_block; i++)
        if (text_starts_with(name, outside[i].prefix))
            return outside[i].part;
    return INSPECT_OTHER;
}

static uint64_t added(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return u64_add(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return u64_mul(a, b, &product) ? product : UINT64_MAX;
}

static void add(struct inspect_sum *sum, const struct inspect_sum *x)
{
    sum->parameters = added(sum->parameters, x->parameters);
    sum->biases = added(sum->biases, x->biases);
    sum->bytes = added(sum->bytes, x->bytes);
}

static void add_tensor(struct inspect_sum parts[INSPECT_PARTS], struct inspect_sum *total,
                       struct text name, uint64_t n_elements, uint64_t n_bytes)
{
    const struct inspect_sum sum = {n_elements, text_ends_with(name, ".bias") ? n_elements : 0,
                                    n_bytes};
    add(&parts[inspect_part_of(name)], &sum);
    add(total, &sum);
}

static void clear_parts(struct inspect_sum parts[INSPECT_PARTS], struct inspect_sum *total)
{
    memset(parts, 0, INSPECT_PARTS * sizeof parts[0]);
    *total = (struct inspect_sum){0, 0, 0};
}

void inspect_parts(const struct gguf *g, struct inspect_sum parts[INSPECT_PARTS],
                   struct inspect_sum *total)
{
    const struct tensor_name output = arch_tensor_name(ROLE_OUTPUT, 0, false);
    const bool tied = layout_output_tied(g);
    clear_parts(parts, total);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const bool again = tied && text_is(t->name, output.text); /* the embedding once more */
        add_tensor(parts, total, t->name, again ? 0 : t->n_elements, t->n_bytes);
    }
}

void inspect_shape_parts(const struct cost_shape *shape, struct inspect_sum parts[INSPECT_PARTS],
                         struct inspect_sum *total)
{
    const uint32_t matrices = pack_type(shape->storage);
    clear_parts(parts, total);
    for (int64_t i = 0; i < layout_count(shape->config); i++) {
        const struct tensor_spec t = layout_at(shape->config, i);
        const struct tensor_type_info *type = tensor_type_find(
            t.flags & SPEC_QUANTISES ? layout_type(&t, matrices) : (uint32_t)TENSOR_F32);
        if (cost_has_tensor(shape, &t))
            add_tensor(parts, total, text_of(t.name.text), spec_elements(&t),
                       spec_elements(&t) / type->block_elements * type->block_bytes);
    }
}

bool inspect_next_variant(const struct cost_shape *shape, int n_kv_heads,
                          struct inspect_variant *out)
{
    const struct config *c = shape->config;
    for (int g = n_kv_heads - 1; g > 0; g--) {
        /* A latent cache is the only variant of its file. */
        if (c->n_heads % g != 0 || (config_is_latent(c) && g > 1))
            continue;
        *out = (struct inspect_variant){.n_kv_heads = g};
        config_variant_name(c, g, out->name);
        out->token_f32 = kv_cache_bytes_per_token(c, g, STORAGE_F32);
        out->token_f16 = kv_cache_bytes_per_token(c, g, STORAGE_F16);
        out->token_q8_0 = kv_cache_bytes_per_token(c, g, STORAGE_Q8_0);
        out->full_f32 = times((uint64_t)c->n_ctx, out->token_f32);
        out->full_f16 = times((uint64_t)c->n_ctx, out->token_f16);
        out->full_q8_0 = times((uint64_t)c->n_ctx, out->token_q8_0);
        struct cost_shape variant = *shape;
        variant.n_kv_heads = g;
        const struct cost_weights weights = cost_weights(&variant);
        out->parameters = weights.parameters;
        out->weight_bytes = weights.step_bytes;
        out->memory_bytes = weights.memory_bytes;
        return true;
    }
    return false;
}

/* Bytes that a cache takes. */
static uint64_t cache_memory(const struct config *c, int n_kv_heads, const struct kv_shape *shape)
{
    struct config variant = *c;
    size_t bytes;
    variant.n_kv_heads = n_kv_heads;
    return kv_cache_bytes(&variant, shape, &bytes) ? bytes : UINT64_MAX;
}

struct inspect_step inspect_step(const struct cost_shape *shape, const struct inspect_variant *v,
                                 enum storage kv_type, int depth, int batch)
{
    const struct config *c = shape->config;
    struct cost_shape variant = *shape;
    variant.n_kv_heads = v->n_kv_heads;
    const uint64_t tokens = (uint64_t)depth * (uint64_t)batch;
    const struct kv_shape room = {
        .n_sequences = batch, .cap = depth < c->n_ctx ? depth + 1 : depth, .storage = kv_type};
    struct inspect_step s = {
        .cost = {.weight_bytes = v->weight_bytes,
                 .kv_bytes = cost_kv_bytes(c, v->n_kv_heads, kv_type, depth),
                 .flops = cost_flops(&variant, depth)},
        .cache_bytes = times(tokens, kv_cache_bytes_per_token(c, v->n_kv_heads, kv_type)),
        .memory_bytes = added(v->memory_bytes, cache_memory(c, v->n_kv_heads, &room)),
    };
    s.step_bytes = cost_step_bytes(&s.cost, batch);
    return s;
}

/* A little-endian number of `bytes` bytes. */
static uint32_t load(const unsigned char *p, size_t bytes)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits |= (uint32_t)p[i] << (8 * i);
    return bits;
}

/* Where in a block its only or its checked number lies, and which of its bits say not finite. */
struct number_layout {
    uint32_t type;
    size_t bytes;      /* of the number, at the start of each block */
    uint32_t exponent; /* all set: not finite */
    uint32_t mantissa; /* then none set: infinite */
};

struct inspect_check inspect_check_tensor(const struct gguf_tensor *t)
{
    static const struct number_layout layouts[] = {
        {TENSOR_F32, 4, 0x7f800000, 0x007fffff}, {TENSOR_F16, 2, 0x7c00, 0x03ff},
        {TENSOR_BF16, 2, 0x7f80, 0x007f},        {TENSOR_Q8_0, 2, 0x7c00, 0x03ff},
        {TENSOR_Q4_0, 2, 0x7c00, 0x03ff},
    };
    struct inspect_check c = {.checked = false};
    const struct number_layout *layout = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == t->type->type)
            layout = &layouts[i];
    if (!layout)
        return c;
    c.checked = true;
    c.scales_only = t->type->block_elements > 1;
    const uint64_t n_blocks = t->n_bytes / t->type->block_bytes;
    for (uint64_t i = 0; i < n_blocks; i++) {
        const uint32_t bits = load(t->data + i * t->type->block_bytes, layout->bytes);
        if ((bits & layout->exponent) != layout->exponent)
            continue;
        if (c.nan + c.inf == 0)
            c.first = i * t->type->block_elements;
        if (bits & layout->mantissa)
            c.nan++;
        else
            c.inf++;
    }
    return c;
}
