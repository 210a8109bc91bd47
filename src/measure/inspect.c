#include "measure/inspect.h"

#include <string.h>

#include "base/checked.h"
#include "base/little.h"
#include "model/kv_cache.h"
#include "model/pack.h"

const char *inspect_part_name(enum inspect_part part)
{
    static const char names[INSPECT_PARTS][12] = {"embedding", "position", "attention", "ffn",
                                                  "norms",     "output",   "other"};
    return names[part];
}

enum inspect_part inspect_part_of(struct text name)
{
    static const struct {
        const char *start;
        bool in_block;
        enum inspect_part part;
    } parts[] = {
        {"attn_", true, INSPECT_ATTENTION},          {"ffn_", true, INSPECT_FFN},
        {"token_embd.", false, INSPECT_EMBEDDING},   {"token_types.", false, INSPECT_EMBEDDING},
        {"position_embd.", false, INSPECT_POSITION}, {"output.", false, INSPECT_OUTPUT}};
    /* "blk.12.attn_q.weight" becomes "attn_q.weight". */
    size_t at = 4;
    while (at < name.len && name.data[at] >= '0' && name.data[at] <= '9')
        at++;
    const bool in_block =
        text_starts_with(name, "blk.") && at > 4 && at < name.len && name.data[at] == '.';
    if (in_block)
        name = (struct text){name.data + at + 1, name.len - at - 1};
    const char *dot = memchr(name.data, '.', name.len);
    if (text_ends_with((struct text){name.data, dot ? (size_t)(dot - name.data) : name.len},
                       "_norm"))
        return INSPECT_NORMS;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].in_block == in_block && text_starts_with(name, parts[i].start))
            return parts[i].part;
    return INSPECT_OTHER;
}

static void add_tensor(struct inspect_sum parts[INSPECT_PARTS + 1], struct text name,
                       uint64_t n_elements, uint64_t n_bytes)
{
    struct inspect_sum *const sums[] = {&parts[inspect_part_of(name)], &parts[INSPECT_PARTS]};
    for (int i = 0; i < 2; i++) {
        sums[i]->parameters = u64_sum(sums[i]->parameters, n_elements);
        sums[i]->biases = u64_sum(sums[i]->biases, text_ends_with(name, ".bias") ? n_elements : 0);
        sums[i]->bytes = u64_sum(sums[i]->bytes, n_bytes);
    }
}

void inspect_parts(const struct gguf *g, struct inspect_sum parts[INSPECT_PARTS + 1])
{
    const struct tensor_name output = arch_tensor_name(ROLE_OUTPUT, 0, false);
    const bool tied = layout_output_tied(g);
    memset(parts, 0, (INSPECT_PARTS + 1) * sizeof parts[0]);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const bool again = tied && text_is(t->name, output.text); /* the embedding once more */
        add_tensor(parts, t->name, again ? 0 : t->n_elements, t->n_bytes);
    }
}

void inspect_shape_parts(const struct cost_shape *shape,
                         struct inspect_sum parts[INSPECT_PARTS + 1])
{
    const uint32_t matrices = pack_type(shape->storage);
    memset(parts, 0, (INSPECT_PARTS + 1) * sizeof parts[0]);
    for (int64_t i = 0; i < layout_count(shape->config); i++) {
        const struct tensor_spec t = layout_at(shape->config, i);
        const struct tensor_type_info *type = tensor_type_find(
            t.flags & SPEC_QUANTISES ? layout_type(&t, matrices) : (uint32_t)TENSOR_F32);
        if (cost_has_tensor(shape, &t))
            add_tensor(parts, text_of(t.name.text), spec_elements(&t),
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
        out->full_f32 = u64_product((uint64_t)c->n_ctx, out->token_f32);
        out->full_f16 = u64_product((uint64_t)c->n_ctx, out->token_f16);
        out->full_q8_0 = u64_product((uint64_t)c->n_ctx, out->token_q8_0);
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

struct inspect_step inspect_step(const struct cost_shape *shape, const struct inspect_variant *v,
                                 enum storage kv_type, int depth, int batch)
{
    struct cost_shape variant = *shape;
    struct config c = *shape->config;
    const struct kv_shape room = {
        .n_sequences = batch, .cap = depth < c.n_ctx ? depth + 1 : depth, .storage = kv_type};
    size_t cache;
    variant.n_kv_heads = c.n_kv_heads = v->n_kv_heads;
    struct inspect_step s = {
        .cost = {.weight_bytes = v->weight_bytes,
                 .kv_bytes = cost_kv_bytes(shape->config, v->n_kv_heads, kv_type, depth),
                 .flops = cost_flops(&variant, depth)},
        .cache_bytes = u64_product((uint64_t)depth * (uint64_t)batch,
                                   kv_cache_bytes_per_token(shape->config, v->n_kv_heads, kv_type)),
        .memory_bytes =
            u64_sum(v->memory_bytes, kv_cache_bytes(&c, &room, &cache) ? cache : UINT64_MAX),
    };
    s.step_bytes = cost_step_bytes(&s.cost, batch);
    return s;
}

struct inspect_check inspect_check_tensor(const struct gguf_tensor *t)
{
    /* Where a block's only or its checked number lies, and which of its bits say not finite. */
    static const struct {
        uint32_t type;
        size_t bytes;      /* of the number, at the start of each block */
        uint32_t exponent; /* all set: not finite */
        uint32_t mantissa; /* then none set: infinite */
    } layouts[] = {
        {TENSOR_F32, 4, 0x7f800000, 0x007fffff}, {TENSOR_F16, 2, 0x7c00, 0x03ff},
        {TENSOR_BF16, 2, 0x7f80, 0x007f},        {TENSOR_Q8_0, 2, 0x7c00, 0x03ff},
        {TENSOR_Q4_0, 2, 0x7c00, 0x03ff},
    };
    struct inspect_check c = {.scales_only = t->type->block_elements > 1};
    size_t l = 0;
    while (l < sizeof layouts / sizeof layouts[0] && layouts[l].type != t->type->type)
        l++;
    if (l == sizeof layouts / sizeof layouts[0])
        return (struct inspect_check){.checked = false};
    c.checked = true;
    for (uint64_t i = 0; i < t->n_bytes / t->type->block_bytes; i++) {
        const uint32_t bits =
            (uint32_t)little_load(t->data + i * t->type->block_bytes, layouts[l].bytes);
        if ((bits & layouts[l].exponent) != layouts[l].exponent)
            continue;
        if (c.nan + c.inf == 0)
            c.first = i * t->type->block_elements;
        if (bits & layouts[l].mantissa)
            c.nan++;
        else
            c.inf++;
    }
    return c;
}
