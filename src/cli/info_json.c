#include "cli/info.h"
#include "show/json.h"

static void put_int(struct json *j, const char *key, int64_t x)
{
    json_key(j, key);
    json_int(j, x);
}

static void put_u64(struct json *j, const char *key, uint64_t x)
{
    json_key(j, key);
    json_u64(j, x);
}

static void put_id(struct json *j, const char *key, int id)
{
    json_key(j, key);
    if (id < 0)
        json_null(j);
    else
        json_int(j, id);
}

static void put_text(struct json *j, const char *key, struct text value)
{
    json_key(j, key);
    if (value.len > 0)
        json_text(j, value);
    else
        json_null(j);
}

static void put_config(struct json *j, const struct info *info)
{
    const struct config *c = &info->config;
    json_key(j, "variant");
    json_string(j, info->variant);
    put_int(j, "n_layers", c->n_layers);
    put_int(j, "n_heads", c->n_heads);
    put_int(j, "n_kv_heads", c->n_kv_heads);
    put_int(j, "head_dim", c->head_dim);
    put_int(j, "d_model", c->d_model);
    put_int(j, "d_ff", c->d_ff);
    put_int(j, "n_ctx", c->n_ctx);
    put_int(j, "n_vocab", c->n_vocab);
    json_key(j, "norm_eps");
    json_double(j, (double)c->norm_eps);
    json_key(j, "tied_output");
    json_bool(j, !gguf_find_tensor(info->gguf, "output.weight"));
}

static void put_tokenizer(struct json *j, const struct info *info)
{
    json_key(j, "tokenizer");
    if (info->tokenizer_model.len == 0) {
        json_null(j);
        return;
    }
    json_begin_object(j);
    put_text(j, "model", info->tokenizer_model);
    if (info->tokenizer) {
        put_int(j, "n_tokens", tokenizer_n_tokens(info->tokenizer));
        put_id(j, "bos", tokenizer_bos(info->tokenizer));
        put_id(j, "eos", tokenizer_eos(info->tokenizer));
        json_key(j, "adds_bos");
        json_bool(j, tokenizer_adds_bos(info->tokenizer));
    }
    json_end(j);
}

static void put_sums(struct json *j, const char *key, const struct info *info, bool bytes)
{
    json_key(j, key);
    json_begin_object(j);
    put_u64(j, "total", bytes ? info->total.bytes : info->total.parameters);
    for (int part = 0; part < INSPECT_PARTS; part++)
        put_u64(j, inspect_part_name((enum inspect_part)part),
                bytes ? info->parts[part].bytes : info->parts[part].parameters);
    json_end(j);
}

static void put_types(struct json *j, const struct info *info)
{
    struct info_type types[INFO_MAX_TYPES];
    const int n = info_types(info->gguf, types, INFO_MAX_TYPES);
    json_key(j, "types");
    json_begin_object(j);
    for (int i = 0; i < n; i++)
        put_u64(j, types[i].name, types[i].n_tensors);
    json_end(j);
}

static void put_prediction(struct json *j, const struct info *info, const struct inspect_variant *v)
{
    const struct cost_shape *shape = &info->shape;
    const int n_ctx = info->config.n_ctx;
    const double rate = info->bytes_per_s;
    put_u64(j, "weight_bytes_per_token", v->weight_bytes);
    json_key(j, "predicted_us_depth_0");
    json_double(j, inspect_predict_us(shape, v, STORAGE_F32, 0, rate));
    json_key(j, "predicted_us_full_context_f32");
    json_double(j, inspect_predict_us(shape, v, STORAGE_F32, n_ctx, rate));
    json_key(j, "predicted_us_full_context_f16");
    json_double(j, inspect_predict_us(shape, v, STORAGE_F16, n_ctx, rate));
}

static void put_variants(struct json *j, const struct info *info)
{
    json_key(j, "kv_cache");
    json_begin_array(j);
    struct inspect_variant v = {.n_kv_heads = info->config.n_heads + 1};
    while (inspect_next_variant(&info->shape, v.n_kv_heads, &v)) {
        json_begin_object(j);
        json_key(j, "variant");
        json_string(j, v.name);
        put_int(j, "n_kv_heads", v.n_kv_heads);
        put_u64(j, "parameters", v.parameters);
        put_u64(j, "bytes_per_token_f32", v.token_f32);
        put_u64(j, "bytes_per_token_f16", v.token_f16);
        put_u64(j, "bytes_per_token_q8_0", v.token_q8_0);
        put_u64(j, "bytes_full_context_f32", v.full_f32);
        put_u64(j, "bytes_full_context_f16", v.full_f16);
        put_u64(j, "bytes_full_context_q8_0", v.full_q8_0);
        if (info->runs && info->bytes_per_s > 0)
            put_prediction(j, info, &v);
        json_end(j);
    }
    json_end(j);
}

static void put_check(struct json *j, const struct inspect_check *c)
{
    json_key(j, "nan");
    if (c->checked)
        json_u64(j, c->nan);
    else
        json_null(j);
    json_key(j, "inf");
    if (c->checked)
        json_u64(j, c->inf);
    else
        json_null(j);
}

static void put_tensors(struct json *j, const struct info *info)
{
    json_key(j, "tensors");
    json_begin_array(j);
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &info->gguf->tensors[i];
        json_begin_object(j);
        json_key(j, "name");
        json_text(j, t->name);
        json_key(j, "shape");
        json_begin_array(j);
        for (int d = 0; d < t->n_dims; d++)
            json_u64(j, t->dims[d]);
        json_end(j);
        json_key(j, "type");
        json_string(j, t->type->name);
        put_u64(j, "bytes", t->n_bytes);
        put_u64(j, "offset", info_offset(info, t));
        if (info->checks)
            put_check(j, &info->checks[i]);
        json_end(j);
    }
    json_end(j);
}

static void put_check_summary(struct json *j, const struct info *info)
{
    uint64_t checked = 0, nan = 0, inf = 0;
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        checked += info->checks[i].checked;
        nan += info->checks[i].nan;
        inf += info->checks[i].inf;
    }
    json_key(j, "check");
    json_begin_object(j);
    put_u64(j, "tensors_checked", checked);
    put_u64(j, "tensors_not_checked", info->gguf->n_tensors - checked);
    put_u64(j, "nan", nan);
    put_u64(j, "inf", inf);
    json_end(j);
}

void info_print_json(const struct info *info, bool one_line, struct output *out)
{
    struct json json, *j = &json;
    json_init(j, out, one_line ? 0 : 2);
    json_begin_object(j);
    json_key(j, "file");
    json_string(j, info->path);
    put_u64(j, "file_bytes", info->file.len);
    put_u64(j, "gguf_version", info->gguf->version);
    put_u64(j, "n_keys", info->gguf->n_pairs);
    put_u64(j, "n_tensors", info->gguf->n_tensors);
    put_text(j, "architecture", info->architecture);
    put_text(j, "name", info->name);
    if (info->has_config)
        put_config(j, info);
    put_tokenizer(j, info);
    put_types(j, info);
    put_sums(j, "parameters", info, false);
    put_sums(j, "bytes", info, true);
    if (info->has_config)
        put_variants(j, info);
    if (info->checks)
        put_check_summary(j, info);
    if (info->list_tensors)
        put_tensors(j, info);
    json_end(j);
    output_puts(out, "\n");
}
