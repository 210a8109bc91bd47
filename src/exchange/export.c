#include "exchange/exchange.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "exchange/private.h"
#include "formats/blocks.h"
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
    const char *dir;     /* where files are made */
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

/* Only the factors are in a file: what they follow from is found by trying. Those that are tried
 * are made behind them. */
static bool find_llama3(const struct config *c, float *factors, struct hf_llama3 *out)
{
    const int n = c->rope.n_dims / 2;
    float *made = factors + n;
    *out = (struct hf_llama3){(double)factors[n - 1], LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT0};
    for (; out->context <= CONFIG_MAX_CTX; out->context *= 2) {
        bool same = true;
        hf_llama3_factors(out, c, made);
        for (int i = 0; i < n; i++)
            same &=
                fabs((double)factors[i] - (double)made[i]) <= FACTOR_ERROR * fabs((double)made[i]);
        if (same)
            return true;
    }
    return false;
}

static enum status plan_rope(struct exporter *x, struct err *e)
{
    const struct gguf_tensor *t =
        gguf_find_tensor(x->gguf, arch_tensor_name(ROLE_ROPE_FREQS, 0, false).text);
    if (!t)
        return STATUS_OK;
    float *factors = calloc(2 * t->n_elements + 1, sizeof *factors);
    if (!factors)
        return err_no_memory(e, "the factors of rotary frequencies", t->n_elements);
    blocks_decode(t->type->type, factors, t->data, t->n_elements);
    const bool known = x->from.rope.scale == 1 && find_llama3(&x->from, factors, &x->hf.llama3);
    free(factors);
    return known ? STATUS_OK
                 : refuse(e, "these factors of rotary frequencies (rope_freqs.weight): they are "
                             "not those of Llama 3.1");
}

/* What config.json says of the family that was found. */
static void describe(struct exporter *x, bool expand)
{
    x->hf.tied = layout_output_tied(x->gguf);
    struct config *to = &x->hf.c;
    const struct arch *arch = arch_find(text_of(x->hf.family->arch));
    *to = x->from;
    config_set_arch(to, arch);
    to->ffn = x->from.ffn;
    to->no_biases = to->shared = false;
    memset(to->layer_kv_heads, 0, sizeof to->layer_kv_heads);
    if (expand)
        to->n_kv_heads = to->n_heads;
    x->hf.multi_query = to->n_kv_heads == 1;
    x->hf.activation =
        text_of(to->ffn == arch->ffn ? x->hf.family->activation : hf_activation_name(to->ffn));
    x->hf.eps = (double)to->norm_eps;
    x->hf.theta = to->rope.base;
    x->hf.rope_type = text_of(x->hf.llama3.factor > 0 ? "llama3" : "default");
    if (to->position == POSITION_ROPE && to->rope.scale != 1) {
        x->hf.rope_type = text_of("linear");
        x->hf.llama3.factor = 1 / to->rope.scale;
    }
}

/* `expand`: K/V heads are repeated until there are as many as heads. */
static enum status plan(struct exporter *x, bool expand, struct err *e)
{
    const struct config *c = &x->from;
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
    x->hf.family = hf_family_find(text_of(is_llama                                ? "llama"
                                          : !expand && (mha ? is_starcoder : mqa) ? "gpt_bigcode"
                                                                                  : "gpt2"));
    describe(x, expand);
    return STATUS_OK;
}

/* --- tensors as transformers has them -------------------------------------------------------- */

/* Rows of the checkpoint's tensor that the spec is of, but for its role; or as many zeros. */
static struct view_part part_of(const struct exporter *x, const struct tensor_spec *spec,
                                enum tensor_role role, int first, int rows)
{
    const int block = config_block(&x->from, spec->layer);
    const struct gguf_tensor *from =
        gguf_find_tensor(x->gguf, arch_tensor_name(role, block, spec->is_bias).text);
    assert(from || spec->is_bias); /* a model that runs has all weights */
    if (!from)
        return (struct view_part){.data = (const unsigned char *)x->zeros,
                                  .type = TENSOR_F32,
                                  .source_rows = rows,
                                  .rows = rows};
    const uint64_t cols = spec->is_bias || from->n_dims == 1 ? 1 : from->dims[0];
    return (struct view_part){.data = from->data,
                              .type = from->type->type,
                              .source_rows = from->n_elements / cols,
                              .first = first,
                              .rows = rows};
}

/* Rows of Q (which = 0), K or V, from one joined tensor or one of three. */
static struct view_part attention_part(const struct exporter *x, const struct tensor_spec *spec,
                                       int which)
{
    const struct config *c = &x->from;
    const int rows[QKV_PARTS] = {config_q_dim(c), config_k_dim(c, spec->layer),
                                 config_v_dim(c, spec->layer)};
    struct qkv_part parts[QKV_PARTS];
    const bool joined = layout_qkv(c, spec->layer, parts) == 1;
    int first = 0;
    for (int i = 0; joined && i < which; i++)
        first += rows[i];
    struct view_part part = part_of(x, spec, parts[joined ? 0 : which].role, first, rows[which]);
    part.head_rows = c->head_dim;
    part.copies =
        which == 0 ? 1 : config_kv_heads(&x->hf.c, spec->layer) / config_kv_heads(c, spec->layer);
    return part;
}

static void add_parts(const struct exporter *x, const struct tensor_spec *spec, struct view *v)
{
    const struct row_swap swap = hf_row_swap(x->hf.family, &x->hf.c, spec->role);
    const bool joined = spec->role == ROLE_ATTN_QKV;
    v->n_parts = 1;
    if (joined && !swap.p) {
        v->n_parts = QKV_PARTS;
        for (int i = 0; i < QKV_PARTS; i++)
            v->parts[i] = attention_part(x, spec, i);
    } else if (joined) { /* only what was joined in this way is exported so */
        v->parts[0] = part_of(x, spec, spec->role, 0, config_qkv_dim(&x->from, spec->layer));
    } else if (spec->role == ROLE_ATTN_Q || spec->role == ROLE_ATTN_K ||
               spec->role == ROLE_ATTN_V) {
        v->parts[0] = attention_part(x, spec, spec->role - ROLE_ATTN_Q);
    } else {
        v->parts[0] = part_of(x, spec, spec->role, 0,
                              spec->n_dims == 1 ? (int)spec_elements(spec) : spec->rows);
    }
    if (v->n_parts == 1)
        v->parts[0].swap = (struct row_swap){swap.q, swap.p, swap.m}; /* the inverse */
}

static void add_tensor(struct exporter *x, const struct tensor_spec *spec)
{
    struct export_tensor *t = &x->list[x->n];
    const struct hf_family *f = x->hf.family;
    /* What transformers' model has no tensor for. */
    if (spec->role == ROLE_ROPE_FREQS || (spec->role == ROLE_OUTPUT && x->hf.tied) ||
        (spec->is_bias && !x->hf.bias[hf_bias_of(spec->role)]))
        return;
    const bool is_vector = spec->n_dims == 1;
    t->name = hf_tensor_name(f, true, spec->role, spec->layer, spec->is_bias);
    t->is_matrix = spec->flags & SPEC_QUANTISES;
    t->view = (struct view){.cols = is_vector ? 1 : spec->cols,
                            .transposes = f->conv1d && !is_vector && role_in_block(spec->role),
                            .type = TENSOR_F32,
                            .maker = &x->maker};
    add_parts(x, spec, &t->view);
    const uint32_t type = t->view.parts[0].type;
    bool same = t->is_matrix && (type == TENSOR_F16 || type == TENSOR_BF16);
    for (int i = 0; i < t->view.n_parts; i++)
        same &= t->view.parts[i].type == type;
    if (same)
        t->view.type = type;
    const uint64_t rows = view_rows(&t->view), cols = t->view.cols;
    x->written[x->n++] = (struct safetensors_written){
        .name = t->name.text,
        .n_dims = spec->n_dims,
        .dims = {t->view.transposes ? cols : rows, t->view.transposes ? rows : cols},
        .source = {view_piece, &t->view},
    };
}

/* Whether a type has room for every number of a view that is made in F32. */
static enum status fits(struct view *v, uint32_t type, bool *fit, struct err *e)
{
    const uint64_t bytes = view_rows(v) * (uint64_t)v->cols * sizeof(float);
    *fit = true;
    for (uint64_t at = 0; at < bytes && *fit;) {
        const void *data;
        size_t len;
        TRY(view_piece(v, at, &data, &len, e));
        for (size_t i = 0; i < len && *fit; i += sizeof(float)) {
            unsigned char encoded[sizeof(float)];
            float before, after;
            blocks_decode(TENSOR_F32, &before, (const unsigned char *)data + i, 1);
            blocks_encode(type, encoded, &before, 1);
            blocks_decode(type, &after, encoded, 1);
            *fit = memcmp(&before, &after, sizeof before) == 0;
        }
        at += len;
    }
    return STATUS_OK;
}

static enum status settle_types(struct exporter *x, struct err *e)
{
    bool fit = true;
    x->type = -1;
    for (size_t i = 0; i < x->n && fit; i++) {
        if (!x->list[i].is_matrix)
            continue;
        fit = x->type < 0 || x->type == (int)x->list[i].view.type;
        x->type = x->list[i].view.type;
    }
    for (size_t i = 0; i < x->n && fit && x->type != TENSOR_F32; i++)
        if (!x->list[i].is_matrix)
            TRY(fits(&x->list[i].view, x->type, &fit, e));
    if (!fit)
        x->type = -1;
    for (size_t i = 0; i < x->n && fit; i++)
        x->list[i].view.type = x->type;
    return STATUS_OK;
}

static enum status make_tensors(struct exporter *x, struct err *e)
{
    const size_t n = layout_count(&x->hf.c);
    int longest = layout_longest_row(&x->hf.c);
    if (longest < config_qkv_dim(&x->hf.c, 0))
        longest = config_qkv_dim(&x->hf.c, 0);
    x->list = calloc(n, sizeof *x->list);
    x->written = calloc(n, sizeof *x->written);
    x->zeros = calloc(longest, sizeof *x->zeros);
    if (!x->list || !x->written || !x->zeros)
        return err_no_memory(e, "the list of tensors", n * sizeof *x->list);
    for (size_t i = 0; i < n; i++) {
        const struct tensor_spec spec = layout_at(&x->hf.c, i);
        add_tensor(x, &spec);
    }
    TRY(settle_types(x, e));
    for (size_t i = 0; i < x->n; i++)
        x->written[i].dtype = safetensors_dtype_of(x->list[i].view.type);
    return STATUS_OK;
}

/* --- config.json ----------------------------------------------------------------------------- */

static const char *dtype_name(const struct exporter *x)
{
    return x->type == TENSOR_F16 ? "float16" : x->type == TENSOR_BF16 ? "bfloat16" : "float32";
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

static void put_config(struct json *j, const void *exporter)
{
    const struct exporter *x = exporter;
    const struct hf_family *f = x->hf.family;
    json_begin_object(j, NULL);
    json_begin_array(j, "architectures");
    json_string(j, NULL, f->model_class);
    json_end(j);
    json_string(j, "model_type", f->model_type);
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

static enum status write_all(struct exporter *x, const struct export_options *o, struct err *e)
{
    char *path;
    TRY(file_in_folder(x->dir, "model.safetensors", &path, e));
    const enum status s = safetensors_write(path, x->written, x->n, e);
    free(path);
    TRY(s);
    TRY(export_vocab(x->gguf, x->dir, &o->notes, e));
    TRY(export_json(x->dir, "generation_config.json", put_generation_config, x, e));
    return export_json(x->dir, "config.json", put_config, x, e);
}

static enum status write_folder(struct exporter *x, const struct export_options *o, const char *dir,
                                struct err *e)
{
    struct folder_writer *folder;
    TRY(folder_writer_open(&folder, dir, e));
    x->dir = folder_writer_path(folder);
    const enum status s = write_all(x, o, e);
    if (s == STATUS_OK)
        return folder_writer_commit(folder, e);
    /* What the files are called is where they would be, not where they are made. */
    char *at = strstr(e->text, x->dir);
    if (at) {
        const struct err whole = *e;
        snprintf(at, sizeof e->text - (at - e->text), "%.200s%s", dir,
                 whole.text + (at - e->text) + strlen(x->dir));
    }
    folder_writer_abandon(folder);
    return s;
}

enum status export_folder(const struct gguf *g, const struct export_options *o, const char *dir,
                          struct export_result *out, struct err *e)
{
    struct exporter x = {.gguf = g};
    TRY(plan(&x, o->expand, e));
    enum status s = make_tensors(&x, e);
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
