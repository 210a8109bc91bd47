#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "cli/info.h"
#include "show/figures.h"

static const struct table_column property_columns[] = {{.name = "property", .left = true},
                                                       {.name = "value", .left = true}};

static void put(struct table *t, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct table *t, const char *name, const char *format, ...)
{
    char value[512];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    table_string(t, name);
    table_string(t, value);
}

static void put_config(struct table *t, const struct info *info)
{
    const struct config *c = &info->config;
    put(t, "variant", "%s", info->variant);
    put(t, "n_layers", "%d", c->n_layers);
    put(t, "n_heads", "%d", c->n_heads);
    put(t, "n_kv_heads", "%d", c->n_kv_heads);
    put(t, "head_dim", "%d", c->head_dim);
    put(t, "d_model", "%d", c->d_model);
    put(t, "d_ff", "%d", c->d_ff);
    put(t, "n_ctx", "%d", c->n_ctx);
    put(t, "n_vocab", "%d", c->n_vocab);
    put(t, "norm_eps", "%g", (double)c->norm_eps);
    put(t, "output", "%s",
        gguf_find_tensor(info->gguf, "output.weight") ? "its own matrix" : "tied to the embedding");
}

static void put_tokenizer(struct table *t, const struct info *info)
{
    table_string(t, "tokenizer");
    table_text(t, info->tokenizer_model.len ? info->tokenizer_model : text_of("none"));
    if (!info->tokenizer)
        return;
    put(t, "n_tokens", "%d", tokenizer_n_tokens(info->tokenizer));
    const int bos = tokenizer_bos(info->tokenizer), eos = tokenizer_eos(info->tokenizer);
    if (bos >= 0)
        put(t, "bos", "%d%s", bos,
            tokenizer_adds_bos(info->tokenizer) ? ", before every text" : "");
    if (eos >= 0)
        put(t, "eos", "%d", eos);
}

static void put_types(struct table *t, const struct info *info)
{
    struct info_type types[INFO_MAX_TYPES];
    const int n = info_types(info->gguf, types, INFO_MAX_TYPES);
    char list[512] = "none: there are no tensors";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%" PRIu64 " tensor%s)",
                                 i ? ", " : "", types[i].name, types[i].n_tensors,
                                 types[i].n_tensors == 1 ? "" : "s");
    put(t, "types", "%s", list);
}

static void put_scalar(struct table *t, const struct gguf_value *v)
{
    char digits[32];
    if (v->kind == GGUF_STRING) {
        table_text(t, (struct text){v->bytes.data, (size_t)text_width(v->bytes)});
    } else if (v->kind == GGUF_BOOL) {
        table_string(t, gguf_int_at(v, 0) ? "true" : "false");
    } else if (v->kind == GGUF_F32 || v->kind == GGUF_F64) {
        table_string(t, figure_exact(gguf_float_at(v, 0)).text);
    } else if (v->kind == GGUF_U64) {
        uint64_t x = 0;
        for (size_t i = v->bytes.len; i > 0; i--)
            x = x << 8 | (unsigned char)v->bytes.data[i - 1];
        snprintf(digits, sizeof digits, "%" PRIu64, x);
        table_string(t, digits);
    } else {
        snprintf(digits, sizeof digits, "%" PRId64, gguf_int_at(v, 0));
        table_string(t, digits);
    }
}

/* The scalar keys of an architecture that does not run here: its own and the general ones. */
static void put_keys(struct table *t, const struct info *info)
{
    for (size_t i = 0; i < info->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &info->gguf->pairs[i];
        const struct gguf_value *v = &p->value;
        if (v->kind == GGUF_ARRAY || text_is(p->key, "general.architecture") ||
            text_is(p->key, "general.name") || text_starts_with(p->key, "tokenizer."))
            continue;
        table_text(t, p->key);
        put_scalar(t, v);
    }
}

static enum status print_properties(const struct info *info, enum table_format format,
                                    struct output *out, struct err *e)
{
    struct table t;
    table_begin(&t, format, property_columns, 2, out);
    table_string(&t, "file");
    table_string(&t, info->path);
    put(&t, "size", "%s (%zu bytes)", figure_bytes((double)info->file.len).text, info->file.len);
    put(&t, "format", "GGUF version %u, %zu keys, %zu tensors", info->gguf->version,
        info->gguf->n_pairs, info->gguf->n_tensors);
    table_string(&t, "architecture");
    table_text(&t, info->architecture.len ? info->architecture : text_of("not stated"));
    table_string(&t, "name");
    table_text(&t, info->name.len ? info->name : text_of("none"));
    if (info->has_config)
        put_config(&t, info);
    put_tokenizer(&t, info);
    put_types(&t, info);
    if (!info->has_config)
        put_keys(&t, info);
    return table_end(&t, e);
}

/* A count with its thousands apart: "1,234,567". */
static struct figure grouped(uint64_t x)
{
    struct figure f;
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, x);
    char *c = f.text;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            *c++ = ',';
        *c++ = digits[i];
    }
    *c = 0;
    return f;
}

static void put_sum(struct table *t, const char *name, struct inspect_sum sum, uint64_t all)
{
    char share[16];
    snprintf(share, sizeof share, "%.1f%%", all ? 100.0 * (double)sum.parameters / (double)all : 0);
    table_string(t, name);
    table_string(t, grouped(sum.parameters).text);
    table_string(t, share);
    table_string(t, grouped(sum.bytes).text);
}

static enum status print_parts(const struct info *info, enum table_format format,
                               struct output *out, struct err *e)
{
    static const struct table_column columns[] = {{.name = "part", .left = true},
                                                  {.name = "parameters"},
                                                  {.name = "share"},
                                                  {.name = "bytes"}};
    struct table t;
    table_begin(&t, format, columns, 4, out);
    for (int part = 0; part < INSPECT_PARTS; part++)
        if (info->parts[part].parameters > 0)
            put_sum(&t, inspect_part_name((enum inspect_part)part), info->parts[part],
                    info->total.parameters);
    put_sum(&t, "total", info->total, info->total.parameters);
    return table_end(&t, e);
}

static enum status print_variants(const struct info *info, enum table_format format,
                                  struct output *out, struct err *e)
{
    char full_f32[48], full_f16[48], full_q8_0[48];
    snprintf(full_f32, sizeof full_f32, "%d tokens f32", info->config.n_ctx);
    snprintf(full_f16, sizeof full_f16, "%d tokens f16", info->config.n_ctx);
    snprintf(full_q8_0, sizeof full_q8_0, "%d tokens q8_0", info->config.n_ctx);
    const struct table_column columns[] = {
        {.name = "KV cache of", .left = true},
        {.name = "K/V heads"},
        {.name = "parameters"},
        {.name = "bytes/token f32"},
        {.name = "bytes/token f16"},
        {.name = "bytes/token q8_0"},
        {.name = full_f32},
        {.name = full_f16},
        {.name = full_q8_0},
    };
    struct table t;
    table_begin(&t, format, columns, sizeof columns / sizeof *columns, out);
    struct inspect_variant v = {.n_kv_heads = info->config.n_heads + 1};
    while (inspect_next_variant(&info->shape, v.n_kv_heads, &v)) {
        table_string(&t, v.name);
        table_u64(&t, (uint64_t)v.n_kv_heads);
        table_string(&t, grouped(v.parameters).text);
        table_string(&t, grouped(v.token_f32).text);
        table_string(&t, grouped(v.token_f16).text);
        table_string(&t, grouped(v.token_q8_0).text);
        table_string(&t, figure_bytes((double)v.full_f32).text);
        table_string(&t, figure_bytes((double)v.full_f16).text);
        table_string(&t, figure_bytes((double)v.full_q8_0).text);
    }
    return table_end(&t, e);
}

static enum status print_predictions(const struct info *info, enum table_format format,
                                     struct output *out, struct err *e)
{
    char title[48], full_f32[48], full_f16[48];
    const int n_ctx = info->config.n_ctx;
    snprintf(title, sizeof title, "at %s GB/s", figure_exact(info->bytes_per_s / 1e9).text);
    snprintf(full_f32, sizeof full_f32, "depth %d, f32 KV", n_ctx);
    snprintf(full_f16, sizeof full_f16, "depth %d, f16 KV", n_ctx);
    const struct table_column columns[] = {
        {.name = title, .left = true},
        {.name = "weights read"},
        {.name = "µs at depth 0", .decimals = 1},
        {.name = full_f32, .decimals = 1},
        {.name = full_f16, .decimals = 1},
    };
    struct table t;
    table_begin(&t, format, columns, sizeof columns / sizeof *columns, out);
    struct inspect_variant v = {.n_kv_heads = info->config.n_heads + 1};
    const struct cost_shape *shape = &info->shape;
    while (inspect_next_variant(shape, v.n_kv_heads, &v)) {
        const double rate = info->bytes_per_s;
        table_string(&t, v.name);
        table_string(&t, figure_bytes((double)v.weight_bytes).text);
        table_double(&t, inspect_predict_us(shape, &v, STORAGE_F32, 0, rate));
        table_double(&t, inspect_predict_us(shape, &v, STORAGE_F32, n_ctx, rate));
        table_double(&t, inspect_predict_us(shape, &v, STORAGE_F16, n_ctx, rate));
    }
    return table_end(&t, e);
}

static void put_shape(struct table *t, const struct gguf_tensor *tensor)
{
    char shape[GGUF_MAX_DIMS * 24] = "";
    size_t used = 0;
    for (int d = 0; d < tensor->n_dims && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, d ? " x " : "",
                                 tensor->dims[d]);
    table_string(t, shape);
}

static void put_check(struct table *t, const struct inspect_check *c)
{
    if (!c->checked) {
        table_string(t, "not checked");
        table_string(t, "not checked");
        return;
    }
    table_u64(t, c->nan);
    table_u64(t, c->inf);
}

/* Every tensor, or those with values that are not finite. */
static enum status print_tensors(const struct info *info, bool bad_only, enum table_format format,
                                 struct output *out, struct err *e)
{
    static const struct table_column columns[] = {{.name = "tensor", .left = true},
                                                  {.name = "shape"},
                                                  {.name = "type", .left = true},
                                                  {.name = "bytes"},
                                                  {.name = "offset"},
                                                  {.name = "nan"},
                                                  {.name = "inf"}};
    struct table t;
    table_begin(&t, format, columns, info->checks ? 7 : 5, out);
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &info->gguf->tensors[i];
        if (bad_only && info->checks[i].nan + info->checks[i].inf == 0)
            continue;
        table_text(&t, tensor->name);
        put_shape(&t, tensor);
        table_string(&t, tensor->type->name);
        table_u64(&t, tensor->n_bytes);
        table_u64(&t, info_offset(info, tensor));
        if (info->checks)
            put_check(&t, &info->checks[i]);
    }
    return table_end(&t, e);
}

static enum status print_check(const struct info *info, enum table_format format,
                               struct output *out, struct err *e)
{
    size_t checked = 0, scales = 0, bad = 0;
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        checked += info->checks[i].checked;
        scales += info->checks[i].scales_only;
        bad += info->checks[i].nan + info->checks[i].inf > 0;
    }
    output_printf(out, "\ncheck: %zu tensors read, %zu with values that are not finite", checked,
                  bad);
    if (scales > 0)
        output_printf(out, "; of %zu the scales only", scales);
    if (checked < info->gguf->n_tensors)
        output_printf(out, "; %zu of other types not checked", info->gguf->n_tensors - checked);
    output_puts(out, "\n");
    return bad > 0 && !info->list_tensors ? print_tensors(info, true, format, out, e) : STATUS_OK;
}

/* CSV holds one table: the tensors if they are asked for, else the sums. */
static enum status print_csv(const struct info *info, struct output *out, struct err *e)
{
    static const struct table_column columns[] = {
        {.name = "part", .left = true}, {.name = "parameters"}, {.name = "bytes"}};
    if (info->list_tensors || info->checks)
        return print_tensors(info, false, TABLE_CSV, out, e);
    struct table t;
    table_begin(&t, TABLE_CSV, columns, 3, out);
    for (int part = 0; part <= INSPECT_PARTS; part++) {
        const bool total = part == INSPECT_PARTS;
        const struct inspect_sum *sum = total ? &info->total : &info->parts[part];
        table_string(&t, total ? "total" : inspect_part_name((enum inspect_part)part));
        table_u64(&t, sum->parameters);
        table_u64(&t, sum->bytes);
    }
    return table_end(&t, e);
}

enum status info_print_tables(const struct info *info, enum table_format format, struct output *out,
                              struct err *e)
{
    if (format == TABLE_CSV)
        return print_csv(info, out, e);
    enum status s = print_properties(info, format, out, e);
    if (s == STATUS_OK && info->gguf->n_tensors > 0) {
        output_puts(out, "\n");
        s = print_parts(info, format, out, e);
    }
    if (s == STATUS_OK && info->has_config) {
        output_puts(out, "\n");
        s = print_variants(info, format, out, e);
    }
    if (s == STATUS_OK && info->runs && info->bytes_per_s > 0) {
        output_puts(out, "\n");
        s = print_predictions(info, format, out, e);
    }
    if (s == STATUS_OK && info->list_tensors) {
        output_puts(out, "\n");
        s = print_tensors(info, false, format, out, e);
    }
    if (s == STATUS_OK && info->checks)
        s = print_check(info, format, out, e);
    return s;
}
