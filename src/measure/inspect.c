#include "measure/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/little.h"
#include "model/kv_cache.h"
#include "model/pack.h"

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

static void add_to_sum(struct inspect_sum *sum, bool is_bias, uint64_t n_elements, uint64_t n_bytes)
{
    uint64_t *kind = is_bias ? &sum->biases : &sum->weights;
    *kind = u64_sum(*kind, n_elements);
    sum->parameters = u64_sum(sum->parameters, n_elements);
    sum->bytes = u64_sum(sum->bytes, n_bytes);
}

void inspect_parts(const struct cost_shape *shape, struct inspect_sum parts[INSPECT_PARTS + 1])
{
    static const char *const names[INSPECT_PARTS + 1] = {
        "embedding", "position", "attention", "ffn", "norms", "output", "other", "total"};
    const struct gguf *g = shape->gguf;
    const struct tensor_name output = arch_tensor_name(ROLE_OUTPUT, 0, false);
    const bool tied = g && layout_output_tied(g);
    const int64_t n = g ? (int64_t)g->n_tensors : layout_count(shape->config);
    struct inspect_sum *total = &parts[INSPECT_PARTS];
    for (int i = 0; i <= INSPECT_PARTS; i++)
        parts[i] = (struct inspect_sum){.part = names[i]};
    for (int64_t i = 0; i < n; i++) {
        struct tensor_spec spec;
        struct text name;
        uint64_t n_elements, n_bytes;
        if (g) {
            const struct gguf_tensor *t = &g->tensors[i];
            const bool again = tied && text_is(t->name, output.text); /* the embedding once more */
            name = t->name;
            n_elements = again ? 0 : t->n_elements;
            n_bytes = t->n_bytes;
        } else {
            spec = layout_at(shape->config, i);
            if (!cost_has_tensor(shape, &spec))
                continue;
            const struct tensor_type_info *type = tensor_type_find(
                spec.flags & SPEC_QUANTISES ? layout_type(&spec, pack_type(shape->storage))
                                            : (uint32_t)TENSOR_F32);
            name = text_of(spec.name.text);
            n_elements = spec_elements(&spec);
            n_bytes = n_elements / type->block_elements * type->block_bytes;
        }
        const bool is_bias = text_ends_with(name, ".bias");
        add_to_sum(&parts[inspect_part_of(name)], is_bias, n_elements, n_bytes);
        add_to_sum(total, is_bias, n_elements, n_bytes);
    }
    for (int i = 0; i <= INSPECT_PARTS && total->parameters > 0; i++)
        parts[i].percent = 100.0 * (double)parts[i].parameters / (double)total->parameters;
}

/* The rank is that of a latent cache; 0: it has n_kv_heads instead. */
static void describe_variant(const struct cost_shape *shape, int n_kv_heads, int rank,
                             struct inspect_variant *v)
{
    static const enum storage kinds[3] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    v->config = *shape->config;
    if (rank > 0)
        config_set_latent(&v->config, rank);
    v->config.n_kv_heads = n_kv_heads;
    v->shape = *shape;
    v->shape.config = &v->config;
    v->shape.n_kv_heads = n_kv_heads;
    config_variant_name(&v->config, n_kv_heads, v->name);
    for (int i = 0; i < 3; i++) {
        v->token_bytes[i] = kv_cache_bytes_per_token(&v->config, n_kv_heads, kinds[i]);
        v->full_bytes[i] = u64_product((uint64_t)v->config.n_ctx, v->token_bytes[i]);
    }
    v->weights = cost_weights(&v->shape);
}

enum status inspect_list_variants(const struct cost_shape *shape, const int *ranks, int n_ranks,
                                  struct inspect_variants *out, struct err *e)
{
    const struct config *c = shape->config;
    const int most = config_is_latent(c) ? 1 : c->n_heads;
    size_t n = (size_t)n_ranks;
    for (int g = most; g > 0; g--)
        n += c->n_heads % g == 0;
    *out = (struct inspect_variants){calloc(n, sizeof *out->items), 0};
    if (!out->items)
        return err_no_memory(e, "the list of variants", n * sizeof *out->items);
    for (int g = most; g > 0; g--)
        if (c->n_heads % g == 0)
            describe_variant(shape, g, 0, &out->items[out->n++]);
    for (int i = 0; i < n_ranks; i++)
        describe_variant(shape, 1, ranks[i], &out->items[out->n++]);
    return STATUS_OK;
}

struct inspect_step inspect_step(const struct inspect_variant *v, enum storage kv_type, int depth,
                                 int batch)
{
    const struct kv_shape room = {.n_sequences = batch,
                                  .cap = depth < v->config.n_ctx ? depth + 1 : depth,
                                  .storage = kv_type};
    size_t cache;
    struct inspect_step s = {.cost = cost_of(&v->shape, kv_type, depth)};
    s.cache_bytes = u64_product(s.cost.kv_bytes, (uint64_t)batch);
    s.step_bytes = cost_step_bytes(&s.cost, batch);
    s.memory_bytes = u64_sum(v->weights.memory_bytes,
                             kv_cache_bytes(&v->config, &room, &cache) ? cache : UINT64_MAX);
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
