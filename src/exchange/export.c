#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "exchange/private.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/model.h"

struct export_tensor {
    struct hf_tensor_name name;
    struct view view;
    bool is_matrix; /* its type may be any */
};

/* Holds views that point into each other: it may not be moved. */
struct exporter {
    const struct gguf *gguf;
    struct config from;  /* the checkpoint's */
    struct hf_config hf; /* of what is written */
    size_t n;
    struct export_tensor *list;          /* [n] */
    struct safetensors_written *written; /* [n] */
    /*
     * Their common type. Matrices keep theirs, blocks become F32; all else is F32, or of the
     * matrices' type if that holds every number exactly. -1: there are several.
     */
    int type;
    bool alike; /* there is one */
    struct view_maker maker;
    float *zeros; /* biases that the checkpoint has not */
};

/* --- which of transformers' models says the same --------------------------------------------- */

/* What Llama 3.1 and its successors were made with. */
#define LLAMA3_LOW      1.0
#define LLAMA3_HIGH     4.0
#define LLAMA3_CONTEXT0 256
/* Factors of files were computed in floats by others. */
#define FACTOR_ERROR 1e-5

static enum status refuse(struct err *e, const char *what)
{
    return err_set(e, STATUS_USAGE, "transformers has no model with %s", what);
}

/* Only the factors are in a file: what they follow from is found by trying. */
static enum status plan_rope(struct exporter *x, struct err *e)
{
    const struct config *c = &x->from;
    const int n = c->rope.n_dims / 2;
    const struct gguf_tensor *t =
        gguf_find_tensor(x->gguf, arch_tensor_name(ROLE_ROPE_FREQS, 0, false).text);
    if (!t)
        return STATUS_OK;
    float *factors = calloc(2 * t->n_elements + 1, sizeof *factors), *made = factors + n;
    bool known = false;
    if (!factors)
        return err_no_memory(e, "the factors of rotary frequencies", t->n_elements);
    blocks_decode(t->type->type, factors, t->data, t->n_elements);
    for (int context = LLAMA3_CONTEXT0; context <= CONFIG_MAX_CTX && !known; context *= 2) {
        x->hf.llama3 = (struct hf_llama3){(double)factors[n - 1], LLAMA3_LOW, LLAMA3_HIGH, context};
        hf_llama3_factors(&x->hf.llama3, c, made);
        known = c->rope.scale == 1;
        for (int i = 0; i < n; i++)
            known &=
                fabs((double)factors[i] - (double)made[i]) <= FACTOR_ERROR * fabs((double)made[i]);
    }
    free(factors);
    return known ? STATUS_OK
                 : refuse(e, "these factors of rotary frequencies (rope_freqs.weight): they are "
                             "not those of Llama 3.1");
}

/* `expand`: K/V heads are repeated until there are as many as heads. */
static enum status plan(struct exporter *x, bool expand, struct err *e)
{
    const struct config *c = &x->from;
    struct config *to = &x->hf.c;
    char variant[16];
    TRY(model_check(x->gguf, e));
    TRY(config_read(x->gguf, &x->from, e));
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        if (gguf_find_tensor(x->gguf, arch_tensor_name(role, 0, true).text))
            x->hf.bias[hf_bias_of(role)] = true;
    const bool is_gpt2 =
        c->norm == NORM_LAYER && c->position == POSITION_LEARNED && c->ffn != FFN_SWIGLU;
    const bool is_llama =
        c->norm == NORM_RMS && c->position == POSITION_ROPE && c->ffn == FFN_SWIGLU;
    const struct {
        bool is;
        const char *what;
    } lacking[] = {
        {c->placement != PLACEMENT_BEFORE,
         "norms behind the residual here and these positions (post-LN)"},
        {c->embedding_scale > 0 && c->embedding_scale != 1, "a scaled embedding here"},
        {config_is_latent(c), "a latent cache"},
        {c->head_dim != config_value_dim(c), "values of another size than keys"},
        {is_gpt2 && config_q_dim(c) != c->d_model, "learned positions and heads of this size"},
        {is_llama && x->hf.bias[HF_NORMS], "RMS norms and biases of norms"},
        {is_llama && c->rope.n_dims != c->head_dim, "RMS norms and a part of each head turned"},
        {(is_gpt2 || is_llama) && x->hf.bias[HF_NOWHERE], "a bias of the embedding or the output"},
    };
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (lacking[i].is)
            return refuse(e, lacking[i].what);
    if (!is_gpt2 && !is_llama)
        return err_set(
            e, STATUS_USAGE,
            "transformers' GPT-2 has layer norms, learned positions and GELU or ReLU, its "
            "Llama RMS norms, rotary positions and SwiGLU; found norm %s, positions %s, "
            "feed-forward %s",
            arch_norm_names[c->norm], arch_position_names[c->position], arch_ffn_names[c->ffn]);
    const bool mha = config_all_kv_heads(c) == (int64_t)c->n_layers * c->n_heads;
    const bool mqa = config_all_kv_heads(c) == c->n_layers;
    const bool is_starcoder = strcmp(c->arch->name, "starcoder") == 0;
    config_variant_name(c, c->n_kv_heads, variant);
    if (!expand && (is_gpt2 ? !mha && !mqa : !config_same_kv_heads(c)))
        return err_set(e, STATUS_USAGE,
                       "transformers has no %s of variant %s; --expand repeats its K/V heads, "
                       "which makes the same MHA of it",
                       is_gpt2 ? "GPT-2" : "Llama", variant);
    if (is_llama)
        TRY(plan_rope(x, e));
    else
        x->hf.bias[HF_NORMS] = x->hf.bias[HF_ATTENTION] = x->hf.bias[HF_FFN] = true;
    /* What config.json says. */
    const struct hf_family *f = x->hf.family =
        hf_family_find(text_of(is_llama                                ? "llama"
                               : !expand && (mha ? is_starcoder : mqa) ? "gpt_bigcode"
                                                                       : "gpt2"));
    const struct arch *arch = arch_find(text_of(f->arch));
    *to = *c;
    config_set_arch(to, arch);
    to->ffn = c->ffn;
    to->no_biases = to->shared = false;
    memset(to->layer_kv_heads, 0, sizeof to->layer_kv_heads);
    if (expand)
        to->n_kv_heads = to->n_heads;
    x->hf.tied = layout_output_tied(x->gguf);
    x->hf.multi_query = to->n_kv_heads == 1;
    x->hf.activation = text_of(to->ffn == arch->ffn ? f->activation : hf_activation_name(to->ffn));
    x->hf.eps = (double)to->norm_eps;
    x->hf.theta = to->rope.base;
    x->hf.rope_type = text_of(x->hf.llama3.factor > 0 ? "llama3" : "default");
    if (is_llama && to->rope.scale != 1) {
        x->hf.rope_type = text_of("linear");
        x->hf.llama3.factor = 1 / to->rope.scale;
    }
    return STATUS_OK;
}

/* --- tensors as transformers has them -------------------------------------------------------- */

/* Adds the rows of a role that the checkpoint has in a layer, Q, K and V from one joined tensor or
 * one of three; or, for a bias that it has not, as many zeros. */
static void add_part(const struct exporter *x, const struct tensor_spec *spec,
                     enum tensor_role role, struct view *v)
{
    const struct config *c = &x->from;
    const struct tensor_spec own =
        (spec->is_bias ? layout_bias : layout_weight)(c, role, spec->layer);
    const bool is_kv = role == ROLE_ATTN_K || role == ROLE_ATTN_V;
    const bool joined = (is_kv || role == ROLE_ATTN_Q) && !c->split_qkv;
    const struct gguf_tensor *t = gguf_find_tensor(
        x->gguf, arch_tensor_name(joined ? ROLE_ATTN_QKV : role, own.layer, spec->is_bias).text);
    struct view_part *p = &v->parts[v->n_parts++];
    assert(t || spec->is_bias); /* a model that runs has all weights */
    p->rows = p->source_rows = own.n_dims == 1 ? own.cols : own.rows;
    p->data = (const unsigned char *)x->zeros;
    p->type = TENSOR_F32;
    if (t) {
        p->data = t->data;
        p->type = t->type->type;
        p->source_rows = t->n_elements / v->cols;
        for (enum tensor_role r = ROLE_ATTN_Q; joined && r < role; r++)
            p->first += layout_weight(c, r, spec->layer).rows;
    }
    p->head_rows = c->head_dim;
    p->copies =
        is_kv ? config_kv_heads(&x->hf.c, spec->layer) / config_kv_heads(c, spec->layer) : 0;
}

static void add_tensor(struct exporter *x, const struct tensor_spec *spec)
{
    const struct hf_family *f = x->hf.family;
    struct export_tensor *t = &x->list[x->n];
    struct view *v = &t->view;
    /* What transformers' model has no tensor for. */
    if (spec->role == ROLE_ROPE_FREQS || (spec->role == ROLE_OUTPUT && x->hf.tied) ||
        (spec->is_bias && !x->hf.bias[hf_bias_of(spec->role)]))
        return;
    const bool is_vector = spec->n_dims == 1;
    const struct row_swap swap = hf_row_swap(f, &x->hf.c, spec->role);
    const bool in_parts = spec->role == ROLE_ATTN_QKV && !swap.p; /* else it was joined so */
    t->name = hf_tensor_name(f, true, spec->role, spec->layer, spec->is_bias);
    t->is_matrix = spec->flags & SPEC_QUANTISES;
    *v = (struct view){.cols = is_vector ? 1 : spec->cols,
                       .transposes = f->conv1d && !is_vector && role_in_block(spec->role),
                       .type = TENSOR_F32,
                       .maker = &x->maker};
    for (int i = 0; i < (in_parts ? VIEW_PARTS : 1); i++)
        add_part(x, spec, in_parts ? (enum tensor_role)(ROLE_ATTN_Q + i) : spec->role, v);
    if (!in_parts)
        v->parts[0].swap = (struct row_swap){swap.q, swap.p, swap.m}; /* the inverse */
    const uint32_t type = v->parts[0].type;
    bool same = t->is_matrix && (type == TENSOR_F16 || type == TENSOR_BF16);
    for (int i = 0; i < v->n_parts; i++)
        same &= v->parts[i].type == type;
    if (same)
        v->type = type;
    if (t->is_matrix) {
        x->alike &= x->type < 0 || x->type == (int)v->type;
        x->type = v->type;
    }
    const uint64_t rows = view_rows(v), cols = v->cols;
    x->written[x->n++] = (struct safetensors_written){
        .name = t->name.text,
        .n_dims = spec->n_dims,
        .dims = {v->transposes ? cols : rows, v->transposes ? rows : cols},
        .source = {.piece = view_piece, .arg = v},
    };
}

static enum status make_tensors(struct exporter *x, struct err *e)
{
    const struct config *c = &x->hf.c;
    const size_t n = layout_count(c);
    x->type = -1;
    x->alike = true;
    x->list = calloc(n, sizeof *x->list);
    x->written = calloc(n, sizeof *x->written);
    x->zeros = calloc((size_t)c->d_ff + config_qkv_dim(c, 0), sizeof *x->zeros);
    if (!x->list || !x->written || !x->zeros)
        return err_no_memory(e, "the list of tensors", n * sizeof *x->list);
    for (size_t i = 0; i < n; i++) {
        const struct tensor_spec spec = layout_at(c, i);
        add_tensor(x, &spec);
    }
    /* The common type must have room for every number of what is no matrix, as it is in F32. */
    for (size_t i = 0; i < x->n && x->alike && x->type != TENSOR_F32; i++) {
        struct view *v = &x->list[i].view;
        const uint64_t bytes =
            x->list[i].is_matrix ? 0 : view_rows(v) * (uint64_t)v->cols * sizeof(float);
        const void *data;
        size_t len;
        for (uint64_t at = 0; at < bytes && x->alike; at += len) {
            TRY(view_piece(v, at, &data, &len, e));
            for (size_t k = 0; k < len && x->alike; k += sizeof(float)) {
                unsigned char encoded[sizeof(float)];
                float before, after;
                memcpy(&before, (const unsigned char *)data + k, sizeof before);
                blocks_encode(x->type, encoded, &before, 1);
                blocks_decode(x->type, &after, encoded, 1);
                x->alike = memcmp(&before, &after, sizeof before) == 0;
            }
        }
    }
    if (!x->alike)
        x->type = -1;
    for (size_t i = 0; i < x->n; i++) {
        struct view *v = &x->list[i].view;
        if (x->alike)
            v->type = x->type;
        x->written[i].dtype = safetensors_dtype_of(v->type);
    }
    return STATUS_OK;
}

/* --- config.json ----------------------------------------------------------------------------- */

static const char *dtype_name(const struct exporter *x)
{
    return x->type == TENSOR_F16 ? "float16" : x->type == TENSOR_BF16 ? "bfloat16" : "float32";
}

static void put_ids(struct json *j, const struct gguf *g)
{
    static const char *const keys[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                          {"eos_token_id", "tokenizer.ggml.eos_token_id"}};
    for (int i = 0; i < 2; i++) {
        uint64_t id = 0;
        bool found = false;
        if (gguf_get_u64(g, keys[i][1], 0, INT32_MAX, &id, &found, NULL) == STATUS_OK && found)
            json_u64(j, keys[i][0], id);
        else
            json_null(j, keys[i][0]);
    }
}

static void put_config(struct json *j, const void *exporter)
{
    const struct exporter *x = exporter;
    json_begin_object(j, NULL);
    json_begin_array(j, "architectures");
    json_string(j, NULL, x->hf.family->model_class);
    json_end(j);
    json_string(j, "model_type", x->hf.family->model_type);
    json_string(j, "dtype", dtype_name(x));
    hf_config_put(j, &x->hf);
    put_ids(j, x->gguf);
    json_bool(j, "use_cache", true);
    json_end(j);
}

static void put_generation_config(struct json *j, const void *exporter)
{
    const struct exporter *x = exporter;
    json_begin_object(j, NULL);
    json_bool(j, "_from_model_config", true);
    put_ids(j, x->gguf);
    json_end(j);
}

/* Containers in one another that are broken into lines. */
#define BROKEN_DEPTH 3

enum status export_json(const char *dir, const char *name,
                        void (*put)(struct json *j, const void *arg), const void *arg,
                        struct err *e)
{
    struct file_output f;
    struct json j;
    char *path;
    TRY(file_in_folder(dir, name, &path, e));
    file_output_init(&f);
    enum status s = file_output_open(&f, path, e);
    if (s == STATUS_OK) {
        json_init(&j, &f.out, BROKEN_DEPTH);
        put(&j, arg);
        output_puts(&f.out, "\n");
        s = file_output_commit(&f, e);
    }
    free(path);
    return s;
}

/* --- the folder ------------------------------------------------------------------------------ */

static enum status write_folder(struct exporter *x, const struct export_options *o, const char *dir,
                                struct err *e)
{
    struct folder_writer *folder;
    unsigned others;
    char *path;
    TRY(folder_writer_open(&folder, dir, e));
    const char *made = folder_writer_path(folder);
    enum status s = file_in_folder(made, "model.safetensors", &path, e);
    if (s == STATUS_OK)
        s = safetensors_write(path, x->written, x->n, e);
    free(path);
    if (s == STATUS_OK)
        s = export_vocab(x->gguf, made, &o->notes, &others, e);
    if (s == STATUS_OK)
        s = export_json(made, "generation_config.json", put_generation_config, x, e);
    if (s == STATUS_OK)
        s = export_json(made, "config.json", put_config, x, e);
    if (s == STATUS_OK) {
        TRY(folder_writer_commit(folder, e));
        return export_vocab_remove(dir, others, e);
    }
    /* What the files are called is where they would be, not where they are made. */
    char *at = strstr(e->text, made);
    if (at) {
        const struct err whole = *e;
        snprintf(at, sizeof e->text - (at - e->text), "%.200s%s", dir,
                 whole.text + (at - e->text) + strlen(made));
    }
    folder_writer_abandon(folder);
    return s;
}

enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e)
{
    struct exporter x = {.gguf = g};
    enum status s = plan(&x, o->expand, e);
    if (s == STATUS_OK)
        s = make_tensors(&x, e);
    if (s == STATUS_OK)
        s = write_folder(&x, o, dir, e);
    if (s == STATUS_OK) {
        *out = (struct export_result){
            .model_class = x.hf.family->model_class, .dtype = dtype_name(&x), .n_tensors = x.n};
        config_variant_name(&x.hf.c, x.hf.c.n_kv_heads, out->variant);
        for (size_t i = 0; i < x.n; i++) {
            const struct safetensors_written *w = &x.written[i];
            uint64_t bytes = 0;
            safetensors_measure(w->dtype, w->n_dims, w->dims, &bytes);
            out->n_bytes += bytes;
        }
    }
    free(x.list);
    free(x.written);
    free(x.zeros);
    view_maker_free(&x.maker);
    return s;
}
