#include <math.h>
#include <stdio.h>

#include "exchange/private.h"
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
    return err_usage(e, "transformers has no model with %s", what);
}

/* Only the factors are in a file: what they follow from is found by trying. */
static enum status plan_rope(struct exporter *x, struct err *e)
{
    const struct config *c = &x->from;
    const int n = c->rope.n_dims / 2;
    const struct gguf_tensor *t = layout_find(x->gguf, ROLE_ROPE_FREQS, 0, false);
    if (!t)
        return STATUS_OK;
    float *factors;
    bool known = false;
    TRY_ZEROED(factors, 2 * t->n_elements + 1, "the factors of rotary frequencies", e);
    float *made = factors + n;
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
        if (layout_find(x->gguf, role, 0, true))
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
        {c->score_scale != 0, "another scale of attention's scores (attention.scale)"},
        {config_is_latent(c), "a latent cache"},
        {c->head_dim != config_value_dim(c), "values of another size than keys"},
        {!config_same_heads(c), "another number of heads in each layer"},
        {is_gpt2 && config_q_dim(c, 0) != c->d_model, "learned positions and heads of this size"},
        {is_llama && x->hf.bias[HF_NORMS], "RMS norms and biases of norms"},
        {is_llama && c->rope.n_dims != c->head_dim, "RMS norms and a part of each head turned"},
        {(is_gpt2 || is_llama) && x->hf.bias[HF_NOWHERE], "a bias of the embedding or the output"},
    };
    for (int i = 0; i < LENGTH(lacking); i++)
        if (lacking[i].is)
            return refuse(e, lacking[i].what);
    if (!is_gpt2 && !is_llama)
        return err_usage(
            e,
            "transformers' GPT-2 has layer norms, learned positions and GELU or ReLU, its Llama "
            "RMS norms, rotary positions and SwiGLU; found norm %s, positions %s, feed-forward %s",
            arch_norm_names[c->norm], arch_position_names[c->position], arch_ffn_names[c->ffn]);
    const bool mha = config_all_kv_heads(c) == (int64_t)c->n_layers * c->n_heads;
    const bool mqa = config_all_kv_heads(c) == c->n_layers;
    const bool is_starcoder = str_is(c->arch->name, "starcoder");
    config_variant_name(c, c->n_kv_heads, variant);
    if (!expand && (is_gpt2 ? !mha && !mqa : !config_same_kv_heads(c)))
        return err_usage(e,
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
    const struct gguf_tensor *t =
        layout_find(x->gguf, joined ? ROLE_ATTN_QKV : role, own.layer, spec->is_bias);
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
        .source = {.piece = view_piece, .arg = v}};
}

static enum status make_tensors(struct exporter *x, struct err *e)
{
    const struct config *c = &x->hf.c;
    const size_t n = layout_count(c);
    x->type = -1;
    x->alike = true;
    TRY_ZEROED(x->list, n, "the list of tensors", e);
    TRY_ZEROED(x->written, n, "the list of tensors", e);
    TRY_ZEROED(x->zeros, (size_t)c->d_ff + config_qkv_dim(c, 0), "biases", e);
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

int export_id(const struct gguf *g, const char *key, uint64_t most)
{
    uint64_t id = 0;
    bool found = false;
    return gguf_get_u64(g, key, 0, most, &id, &found, NULL) == STATUS_OK && found ? (int)id : -1;
}

static void put_ids(struct json *j, const struct gguf *g)
{
    static const char *const keys[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                          {"eos_token_id", "tokenizer.ggml.eos_token_id"}};
    for (int i = 0; i < 2; i++) {
        const int id = export_id(g, keys[i][1], INT32_MAX);
        if (id >= 0)
            json_int(j, keys[i][0], id);
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
    THEN(s, safetensors_write(path, x->written, x->n, e));
    free(path);
    THEN(s, export_vocab(x->gguf, made, &o->notes, &others, e));
    THEN(s, export_json(made, "generation_config.json", put_generation_config, x, e));
    THEN(s, export_json(made, "config.json", put_config, x, e));
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
    THEN(s, make_tensors(&x, e));
    THEN(s, write_folder(&x, o, dir, e));
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

/* --- the checkpoint's tensors as its folder has them ------------------------------------------ */

/* Elements made at a time, unless a row has more; and columns, so that no block is cut. */
#define ELEMENTS_AT_A_TIME 16384
#define COLUMNS_AT_A_TIME  32

void view_maker_free(struct view_maker *m)
{
    free(m->numbers);
    *m = (struct view_maker){0};
}

static int part_rows(const struct view_part *p)
{
    return p->copies > 1 ? p->rows * p->copies : p->rows;
}

int view_rows(const struct view *v)
{
    int rows = 0;
    for (int i = 0; i < v->n_parts; i++)
        rows += part_rows(&v->parts[i]);
    return rows;
}

/* The part that has a row, whose number becomes that in the part. */
static const struct view_part *part_of_row(const struct view *v, int *row)
{
    const struct view_part *p = v->parts;
    while (*row >= part_rows(p))
        *row -= part_rows(p++);
    assert(p < v->parts + v->n_parts);
    return p;
}

static uint64_t bytes_of(uint32_t type, uint64_t elements)
{
    return tensor_type_bytes(tensor_type_find(type), elements);
}

/* Columns [from, from + n) of a row. */
static void decode_row(const struct view *v, int row, int from, int n, float *out)
{
    int r = row;
    const struct view_part *p = part_of_row(v, &r);
    const struct row_swap *s = &p->swap;
    if (p->copies > 1)
        r = r / (p->head_rows * p->copies) * p->head_rows + r % p->head_rows;
    if (s->p) { /* row [n][a][b][inner] is row [n][b][a][inner] of the source */
        const int inner = r % s->m, b = r / s->m % s->p, a = r / s->m / s->p % s->q;
        r = ((r / s->m / s->p / s->q * s->p + b) * s->q + a) * s->m + inner;
    }
    const uint64_t first = (p->first + r) * (uint64_t)v->cols + from;
    if (p->type != VIEW_INT8) {
        blocks_decode(p->type, out, p->data + bytes_of(p->type, first), n);
        return;
    }
    for (int i = 0; i < n; i++) {
        const uint64_t at = first + i;
        float factor;
        blocks_decode(TENSOR_F32, &factor, p->factors + at / p->group * sizeof factor, 1);
        out[i] = (float)(signed char)p->data[at] * factor;
    }
}

enum status view_piece(void *view, uint64_t offset, const void **data, size_t *len, struct err *e)
{
    const struct view *v = view;
    struct view_maker *m = v->maker;
    /* What another view was made of is not read again. */
    for (int i = 0; m->last && m->last != v && i < m->last->n_parts; i++) {
        const struct view_part *p = &m->last->parts[i];
        const uint64_t n = p->source_rows * (uint64_t)m->last->cols;
        if (p->file)
            file_map_release(p->file, p->data, p->type == VIEW_INT8 ? n : bytes_of(p->type, n));
    }
    m->last = v;
    const int made_cols = v->transposes ? view_rows(v) : v->cols;
    const int made_rows = v->transposes ? v->cols : view_rows(v);
    const uint64_t row_bytes = bytes_of(v->type, made_cols);
    const int row = offset / row_bytes;
    int in_part = row;
    const struct view_part *p = v->transposes ? v->parts : part_of_row(v, &in_part);
    if (p->type == v->type && !v->transposes && !p->swap.p && p->copies <= 1) {
        /* Rows are in the source as they are wanted: what is left of them. */
        const uint64_t skip = offset % row_bytes;
        *data = p->data + (p->first + in_part) * row_bytes + skip;
        *len = (p->rows - in_part) * row_bytes - skip;
        return STATUS_OK;
    }
    assert(offset % row_bytes == 0);
    const struct tensor_type_info *type = p->type == VIEW_INT8 ? NULL : tensor_type_find(p->type);
    int step = COLUMNS_AT_A_TIME; /* of whole blocks */
    if (type && type->block_elements > COLUMNS_AT_A_TIME)
        step = type->block_elements;
    int n = ELEMENTS_AT_A_TIME / made_cols / step * step;
    if (n < step)
        n = v->transposes ? step : 1;
    if (n > made_rows - row)
        n = made_rows - row;
    const size_t elements = n * (size_t)made_cols;
    if (elements > m->cap) {
        free(m->numbers);
        m->cap = 0;
        TRY_ZEROED(m->numbers, 3 * elements, "rows of a tensor", e);
        m->cap = elements;
    }
    float *span = m->numbers + m->cap, *bytes = span + m->cap;
    for (int r = 0; r < n && !v->transposes; r++)
        decode_row(v, row + r, 0, v->cols, m->numbers + r * (size_t)v->cols);
    for (int r = 0; r < made_cols && v->transposes; r++) { /* columns become rows */
        decode_row(v, r, row, n, span);
        for (int i = 0; i < n; i++)
            m->numbers[i * made_cols + r] = span[i];
    }
    blocks_encode(v->type, bytes, m->numbers, elements);
    *data = bytes;
    *len = bytes_of(v->type, elements);
    return STATUS_OK;
}
