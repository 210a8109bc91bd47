#include "measure/inspect.h"

#include <string.h>

#include "base/checked.h"
#include "model/kv_cache.h"

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

static void add(uint64_t *sum, uint64_t x)
{
    if (!u64_add(*sum, x, sum))
        *sum = UINT64_MAX;
}

void inspect_parts(const struct gguf *g, struct inspect_sum parts[INSPECT_PARTS],
                   struct inspect_sum *total)
{
    memset(parts, 0, INSPECT_PARTS * sizeof parts[0]);
    *total = (struct inspect_sum){0, 0};
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        struct inspect_sum *part = &parts[inspect_part_of(t->name)];
        add(&part->parameters, t->n_elements);
        add(&part->bytes, t->n_bytes);
        add(&total->parameters, t->n_elements);
        add(&total->bytes, t->n_bytes);
    }
}

static uint64_t full_context(const struct config *c, uint64_t token_bytes)
{
    uint64_t bytes;
    return u64_mul(token_bytes, (uint64_t)c->n_ctx, &bytes) ? bytes : UINT64_MAX;
}

bool inspect_next_variant(const struct cost_shape *shape, int n_kv_heads,
                          struct inspect_variant *out)
{
    const struct config *c = shape->config;
    for (int g = n_kv_heads - 1; g > 0; g--) {
        if (c->n_heads % g != 0)
            continue;
        *out = (struct inspect_variant){.n_kv_heads = g};
        config_variant_name(c, g, out->name);
        out->token_f32 = kv_cache_bytes_per_token(c, g, STORAGE_F32);
        out->token_f16 = kv_cache_bytes_per_token(c, g, STORAGE_F16);
        out->token_q8_0 = kv_cache_bytes_per_token(c, g, STORAGE_Q8_0);
        out->full_f32 = full_context(c, out->token_f32);
        out->full_f16 = full_context(c, out->token_f16);
        out->full_q8_0 = full_context(c, out->token_q8_0);
        struct cost_shape variant = *shape;
        variant.n_kv_heads = g;
        out->parameters = cost_parameters(&variant);
        out->weight_bytes = cost_weight_bytes(&variant);
        return true;
    }
    return false;
}

double inspect_predict_us(const struct cost_shape *shape, const struct inspect_variant *v,
                          enum storage kv_type, int depth, double bytes_per_s)
{
    const uint64_t kv = cost_kv_bytes(shape->config, v->n_kv_heads, kv_type, depth);
    return (double)(v->weight_bytes + kv) / bytes_per_s * 1e6;
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
