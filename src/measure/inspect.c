#include "measure/inspect.h"

#include <ctype.h>
#include <inttypes.h>

#include "base/half.h"
#include "base/mem.h"
#include "model/kv_cache.h"
#include "model/pack.h"

static const char *const part_names[INSPECT_PARTS + 1] = {
    "embedding", "position", "attention", "ffn", "norms", "output", "other", "total"};
enum { EMBEDDING, POSITION, ATTENTION, FFN, NORMS, OUTPUT, OTHER };

static int part_of(struct text name)
{
    static const struct {
        const char *within;
        int part;
    } marks[] = {
        {"_norm.", NORMS},          {".attn_", ATTENTION},       {".ffn_", FFN},
        {"token_embd.", EMBEDDING}, {"token_types.", EMBEDDING}, {"position_embd.", POSITION},
        {"output.", OUTPUT}};
    for (int i = 0; i < LENGTH(marks); i++)
        if (memmem(name.data, name.len, marks[i].within, strlen(marks[i].within)))
            return marks[i].part;
    return OTHER;
}

void inspect_type(const struct gguf *g, char name[INSPECT_TYPE_SIZE])
{
    uint64_t elements[64] = {0}; /* by type */
    const struct tensor_type_info *most = NULL;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const uint32_t type = t->type->type;
        if (t->n_dims < 2 || type >= LENGTH(elements))
            continue;
        elements[type] = u64_sum(elements[type], t->n_elements);
        if (!most || elements[type] > elements[most->type])
            most = t->type;
    }
    snprintf(name, INSPECT_TYPE_SIZE, "%s", most ? most->name : "");
    for (char *c = name; *c; c++)
        *c = tolower((unsigned char)*c);
}

void inspect_parts(const struct cost_shape *shape, struct inspect_sum parts[INSPECT_PARTS + 1])
{
    const struct gguf *g = shape->gguf;
    const int64_t n = g ? (int64_t)g->n_tensors : layout_count(shape->config);
    for (int i = 0; i <= INSPECT_PARTS; i++)
        parts[i] = (struct inspect_sum){.part = part_names[i]};
    for (int64_t i = 0; i < n; i++) {
        struct tensor_spec spec;
        struct text name;
        uint64_t n_elements, n_bytes;
        if (g) {
            const struct gguf_tensor *t = &g->tensors[i];
            name = t->name;
            /* The embedding once more is none of its own. */
            n_elements = shape->tied && text_is(name, "output.weight") ? 0 : t->n_elements;
            n_bytes = t->n_bytes;
        } else {
            spec = layout_at(shape->config, i);
            if (!cost_has_tensor(shape, &spec))
                continue;
            const struct tensor_type_info *type = tensor_type_find(
                spec.flags & SPEC_QUANTISES ? layout_type(&spec, pack_type(shape->storage))
                                            : TENSOR_F32);
            name = text_of(spec.name.text);
            n_elements = spec_elements(&spec);
            n_bytes = tensor_type_bytes(type, n_elements);
        }
        struct inspect_sum *sums[] = {&parts[part_of(name)], &parts[INSPECT_PARTS]};
        for (int k = 0; k < 2; k++) {
            sums[k]->parameters = u64_sum(sums[k]->parameters, n_elements);
            sums[k]->bytes = u64_sum(sums[k]->bytes, n_bytes);
        }
    }
    const double all = parts[INSPECT_PARTS].parameters;
    if (all > 0)
        for (int i = 0; i <= INSPECT_PARTS; i++)
            parts[i].percent = 100.0 * parts[i].parameters / all;
}

void inspect_variant(const struct cost_shape *shape, int n_kv_heads, struct inspect_variant *out)
{
    struct config *c = &out->config;
    *c = *shape->config;
    c->n_kv_heads = n_kv_heads;
    out->shape = *shape;
    out->shape.config = c;
    config_variant_name(c, out->name);
    for (int t = 0; t < CACHE_TYPES; t++)
        out->token_bytes[t] = kv_cache_bytes_per_token(c, kv_type_of(t));
    out->weights = cost_weights(&out->shape);
}

enum status inspect_list_variants(const struct cost_shape *shape, struct inspect_variants *out,
                                  struct err *e)
{
    const struct config *c = shape->config;
    const int most = config_same_kv_heads(c) ? c->n_heads : c->n_kv_heads;
    *out = (struct inspect_variants){NULL, 0};
    TRY_ZEROED(out->items, most, "the list of variants", e);
    for (int g = most; g > 0; g--)
        if (config_has_variant(c, g))
            inspect_variant(shape, g, &out->items[out->n++]);
    return STATUS_OK;
}

struct inspect_shard inspect_shard(const struct inspect_variant *v, const struct cost_plan *step,
                                   struct kv_type kv_type, int n)
{
    const int own = v->config.n_heads / n;
    struct config c = v->config;
    struct cost_shape shape = v->shape;
    int64_t held = 0; /* in all layers of all shards */
    c.n_heads = own;
    c.d_ff = (c.d_ff + n - 1) / n;
    c.n_vocab = (c.n_vocab + n - 1) / n;
    c.n_kv_heads = 1;
    for (int l = 0; l < c.n_layers; l++) {
        const int group = config_group(&v->config, l);
        int most = 1;
        for (int first = 0; first < v->config.n_heads; first += own) {
            const int used = (first + own - 1) / group - first / group + 1;
            most = MAX(used, most);
            held += used;
        }
        c.layer_kv_heads[l] = most;
        c.n_kv_heads = MAX(most, c.n_kv_heads);
    }
    shape.config = &c;
    return (struct inspect_shard){.n_kv_heads = c.n_kv_heads,
                                  .copies = held / (double)config_all_kv_heads(&v->config),
                                  .weight_bytes = cost_weights(&shape).memory_bytes,
                                  .cache_bytes =
                                      u64_product(u64_product(step->depth, step->batch),
                                                  kv_cache_bytes_per_token(&c, kv_type))};
}

enum status inspect_add_steps(struct inspect_steps *steps, const struct inspect_variants *variants,
                              const struct inspect_settings *s, struct err *e)
{
    const int n_rows = s->depths.n * s->batches.n, n = n_rows * variants->n;
    const size_t bytes = ((size_t)steps->n + n) * sizeof *steps->items;
    struct inspect_step *const grown = realloc(steps->items, bytes);
    if (!grown)
        return err_no_memory(e, "the list of steps", bytes);
    steps->items = grown;
    for (int i = 0; i < n; i++) {
        const int row = i / variants->n;
        const struct inspect_variant *v = &variants->items[i % variants->n];
        const struct cost_plan of =
            cost_plan(&v->shape, &v->weights, s->kv_type, s->depths.items[row / s->batches.n],
                      s->batches.items[row % s->batches.n]);
        struct inspect_step *step = &steps->items[steps->n++];
        *step =
            (struct inspect_step){.shape = s->shape,
                                  .of = of,
                                  .cache_over_weights = (double)of.cache_bytes / of.weights_memory,
                                  .fits = of.memory_bytes <= s->available_bytes};
        chars_printf(step->variant, "%s", v->name);
        if (s->shards)
            step->shard = inspect_shard(v, &of, s->kv_type, s->shards);
    }
    return STATUS_OK;
}

struct inspect_check inspect_check_tensor(const struct gguf_tensor *t, struct inspect_checks *all)
{
    /* The number at the start of each block, its only one or its scale, and the bits that all are
     * set where it is not finite; below them none is where it is infinite. */
    static const struct {
        uint32_t type;
        size_t bytes;
        uint32_t exponent;
    } numbers[] = {{TENSOR_F32, 4, 0x7f800000},
                   {TENSOR_F16, 2, 0x7c00},
                   {TENSOR_BF16, 2, 0x7f80},
                   {TENSOR_Q8_0, 2, 0x7c00},
                   {TENSOR_Q4_0, 2, 0x7c00}};
    struct inspect_check c = {.scales_only = t->type->block_elements > 1};
    int k = 0;
    while (k < LENGTH(numbers) && numbers[k].type != t->type->type)
        k++;
    if (k == LENGTH(numbers))
        return (struct inspect_check){.nan = -1, .inf = -1};
    const uint32_t exponent = numbers[k].exponent;
    for (uint64_t i = 0; i < t->n_bytes / t->type->block_bytes; i++) {
        const uint64_t bits = little_load(t->data + i * t->type->block_bytes, numbers[k].bytes);
        if ((bits & exponent) != exponent)
            continue;
        if (c.nan + c.inf == 0)
            c.first = i * t->type->block_elements;
        if (bits & ((exponent & -exponent) - 1))
            c.nan++;
        else
            c.inf++;
    }
    all->n++;
    all->nan += c.nan;
    all->inf += c.inf;
    if (c.nan + c.inf > 0 && !all->bad.text[0])
        err_format(&all->bad,
                   "tensor '%.*s' has %" PRId64
                   " value%s not finite, the first%s at element %" PRIu64,
                   text_width(t->name), t->name.data, c.nan + c.inf,
                   c.nan + c.inf == 1 ? " that is" : "s that are",
                   c.scales_only ? " (a block's scale)" : "", c.first);
    return c;
}
