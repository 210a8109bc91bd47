#include "exchange/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "exchange/export_json.h"
#include "exchange/export_tensors.h"
#include "exchange/export_vocab.h"

struct exporter {
    const char *dir;
    struct export_plan plan;
    struct export_tensors tensors;
    const char *dtype;
};

/* --- config.json ----------------------------------------------------------------------------- */

/* The shortest decimal that is read back as this float: "1e-05", not all digits of its double. */
static void put_float(struct json *j, const char *key, float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    json_literal(j, key, text_of(text));
}

static void put_id(struct json *j, const struct gguf *g, const char *key, const char *ggml_key)
{
    uint64_t id = 0;
    bool found = false;
    const enum status s = gguf_get_u64(g, ggml_key, 0, INT32_MAX, &id, &found, NULL);
    if (s == STATUS_OK && found)
        json_u64(j, key, id);
    else
        json_null(j, key);
}

static void put_ids(struct json *j, const struct gguf *g)
{
    put_id(j, g, "bos_token_id", "tokenizer.ggml.bos_token_id");
    put_id(j, g, "eos_token_id", "tokenizer.ggml.eos_token_id");
}

/* Once under the name of transformers 5, once under that of versions before. */
static void put_rope_type(struct json *j, const struct export_plan *p, const char *key,
                          bool with_base)
{
    const struct hf_llama3 *l = &p->hf.llama3;
    const bool linear = p->to.rope.scale != 1, llama3 = l->factor > 0;
    if (!with_base && !linear && !llama3) {
        json_null(j, key);
        return;
    }
    json_begin_object(j, key);
    json_string(j, "rope_type", llama3 ? "llama3" : linear ? "linear" : "default");
    if (with_base)
        put_float(j, "rope_theta", (float)p->to.rope.base);
    if (linear)
        put_float(j, "factor", (float)(1 / p->to.rope.scale));
    if (llama3) {
        put_float(j, "factor", (float)l->factor);
        put_float(j, "low_freq_factor", (float)l->low);
        put_float(j, "high_freq_factor", (float)l->high);
        json_int(j, "original_max_position_embeddings", l->context);
    }
    json_end(j);
}

static void put_rope(struct json *j, const struct export_plan *p)
{
    put_float(j, "rope_theta", (float)p->to.rope.base);
    put_rope_type(j, p, "rope_scaling", false);
    put_rope_type(j, p, "rope_parameters", true);
    json_bool(j, "attention_bias", p->hf.attention_biases);
    json_bool(j, "mlp_bias", p->hf.ffn_biases);
}

static void put_sizes(struct json *j, const struct export_plan *p)
{
    const struct hf_family *f = p->hf.family;
    for (enum hf_size i = 0; i < HF_SIZES; i++)
        if (f->keys[i])
            json_int(j, f->keys[i],
                     *(const int *)(const void *)((const char *)&p->to + hf_sizes[i].offset));
    json_int(j, "vocab_size", p->to.n_vocab);
    if (p->to.position == POSITION_LEARNED)
        json_int(j, "n_ctx", p->to.n_ctx); /* llama.cpp's converter reads this one */
    if (f->joins_by_head)
        json_bool(j, "multi_query", p->to.n_kv_heads == 1);
}

static void put_config(struct json *j, const void *exporter)
{
    const struct exporter *x = exporter;
    const struct export_plan *p = &x->plan;
    const struct hf_family *f = p->hf.family;
    json_begin_object(j, NULL);
    json_begin_array(j, "architectures");
    json_string(j, NULL, f->model_class);
    json_end(j);
    json_string(j, "model_type", f->model_type);
    json_string(j, "dtype", x->dtype);
    put_sizes(j, p);
    json_string(j, f->activation_key,
                p->to.ffn == arch_find(text_of(f->arch))->ffn ? f->activation
                                                              : hf_activation_name(p->to.ffn));
    put_float(j, f->eps_key, p->to.norm_eps);
    json_bool(j, "tie_word_embeddings", p->hf.tied);
    if (p->to.position == POSITION_ROPE)
        put_rope(j, p);
    put_ids(j, p->gguf);
    json_bool(j, "use_cache", true);
    json_end(j);
}

static void put_generation_config(struct json *j, const void *exporter)
{
    const struct exporter *x = exporter;
    json_begin_object(j, NULL);
    json_bool(j, "_from_model_config", true);
    put_ids(j, x->plan.gguf);
    json_end(j);
}

/* --- the folder ------------------------------------------------------------------------------ */

static const char *dtype_name(int type)
{
    return type == TENSOR_F16 ? "float16" : type == TENSOR_BF16 ? "bfloat16" : "float32";
}

static enum status write_tensors(struct exporter *x, struct err *e)
{
    char *path;
    TRY(file_in_folder(x->dir, "model.safetensors", &path, e));
    const enum status s = safetensors_write(path, x->tensors.written, x->tensors.n, e);
    free(path);
    return s;
}

static enum status write_all(struct exporter *x, const struct export_options *o, struct err *e)
{
    TRY(write_tensors(x, e));
    TRY(export_vocab(x->plan.gguf, x->dir, &o->notes, e));
    TRY(export_json(x->dir, "generation_config.json", put_generation_config, x, e));
    return export_json(x->dir, "config.json", put_config, x, e);
}

static void fill_result(const struct exporter *x, struct export_result *out)
{
    *out = (struct export_result){
        .model_class = x->plan.hf.family->model_class,
        .dtype = x->dtype,
        .n_tensors = x->tensors.n,
    };
    config_variant_name(&x->plan.to, x->plan.to.n_kv_heads, out->variant);
    for (size_t i = 0; i < x->tensors.n; i++) {
        const struct safetensors_written *w = &x->tensors.written[i];
        uint64_t bytes = 0;
        safetensors_measure(w->dtype, w->n_dims, w->dims, &bytes);
        out->n_bytes += bytes;
    }
}

/* What the files are called is where they will be, not where they are made. */
static void name_folder(struct err *e, const char *made_in, const char *dir)
{
    char *at = strstr(e->text, made_in);
    if (!at)
        return;
    const struct err whole = *e;
    snprintf(at, sizeof e->text - (size_t)(at - e->text), "%.200s%s", dir,
             whole.text + (at - e->text) + strlen(made_in));
}

enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e)
{
    struct exporter x = {.dir = NULL};
    struct folder_writer *folder;
    TRY(export_plan_make(g, o->expand, &x.plan, e));
    enum status s = export_tensors_make(&x.plan, &x.tensors, e);
    if (s == STATUS_OK)
        s = folder_writer_open(&folder, dir, e);
    if (s == STATUS_OK) {
        x.dir = folder_writer_path(folder);
        x.dtype = dtype_name(x.tensors.type);
        s = write_all(&x, o, e);
        if (s == STATUS_OK)
            s = folder_writer_commit(folder, e);
        else {
            name_folder(e, x.dir, dir);
            folder_writer_abandon(folder);
        }
    }
    if (s == STATUS_OK)
        fill_result(&x, out);
    export_tensors_free(&x.tensors);
    return s;
}
