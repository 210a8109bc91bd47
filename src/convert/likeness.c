/*
 * How well heads could share, two by two: what `convert_group` groups by, made visible. A latent
 * cache is looked at as the keys and values of the heads that it stands for.
 */
#include <stdlib.h>
#include <string.h>

#include "convert/private.h"

/* --- any checkpoint with keys and values ------------------------------------------------------ */

struct comparing {
    struct converter *c;
    struct head_likeness *kept; /* [n_heads, n_heads] */
};

/* A thread's share of the pairs. */
static void compare_pairs(void *arg, int thread)
{
    const struct comparing *job = arg;
    const struct converter *c = job->c;
    struct convert_eigen *eigen = &c->eigen[thread];
    const int n = c->n_heads, n_threads = pool_n_threads(c->spec->pool);
    int at = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const int pair[] = {i, j};
            if (at++ % n_threads != thread)
                continue;
            job->kept[i * n + j] = job->kept[j * n + i] = (struct head_likeness){
                convert_kept(&c->qk, pair, 2, eigen), convert_kept(&c->ov, pair, 2, eigen)};
        }
}

static enum status compare_blocks(struct converter *c, struct head_likeness *kept, struct err *e)
{
    const size_t n = c->n_heads, size = n * n;
    TRY(arena_allocate(&c->arena, "the comparison of heads", e));
    convert_take(c, &c->arena);
    TRY(convert_calibration_start(c, e));
    c->text.all = (uint64_t)c->config.n_layers * (uint64_t)c->text.n_windows;
    for (int b = 0; b < config_blocks(&c->config); b++) {
        struct comparing job = {c, kept + b * size};
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        convert_measure(c);
        for (size_t h = 0; h < n; h++)
            job.kept[h * n + h] = (struct head_likeness){1, 1};
        pool_run(c->spec->pool, compare_pairs, &job);
        for (int l = c->first + 1; l < c->end; l++)
            memcpy(kept + l * size, job.kept, size * sizeof *kept);
        TRY(convert_check_eigen(c, "", e));
    }
    return STATUS_OK;
}

static enum status compare_heads(const struct convert_spec *spec, const struct model *model,
                                 struct head_likeness *kept, struct err *e)
{
    const struct convert_spec all_share = {
        .gguf = spec->gguf,
        .source = spec->source,
        .n_kv_heads = 1, /* the largest groups have room for pairs */
        .tokens = spec->tokens,
        .n_tokens = spec->n_tokens,
        .measures_only = true,
        .kernels = spec->kernels,
        .pool = spec->pool,
        .stop = spec->stop,
        .progress = spec->progress,
        .arg = spec->arg,
    };
    struct converter c;
    if (spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "heads can only be compared on text");
    TRY(convert_describe(&c, &all_share, e));
    c.model = model;
    convert_take(&c, &c.arena);
    const enum status s = compare_blocks(&c, kept, e);
    convert_calibration_end(&c);
    arena_free(&c.arena);
    return s;
}

/* --- a latent cache -------------------------------------------------------------------------- */

struct expansion {
    const struct gguf *g;
    struct config config, expanded;
    struct gguf_writer *writer;
    struct arena arena;
    float *cached, *by_head; /* a block's tensors, widened */
    double *row;             /* [d_model] */
};

static const struct gguf_tensor *find(const struct expansion *x, enum tensor_role role, int block,
                                      bool is_bias)
{
    return gguf_find_tensor(x->g, arch_tensor_name(role, block, is_bias).text);
}

/* Counts a new tensor's memory, or adds it: the keys or values that heads have of what is cached,
 * or of its bias. */
static void expand_tensor(struct expansion *x, enum tensor_role role, int block, bool is_bias)
{
    const struct config *c = &x->config;
    const struct gguf_tensor *cached = find(x, ROLE_ATTN_KV_A, block, is_bias);
    if (!cached)
        return;
    const struct tensor_spec spec =
        is_bias ? layout_bias(&x->expanded, role, block) : layout_weight(&x->expanded, role, block);
    float *out = arena_take(&x->arena, spec_elements(&spec), sizeof *out);
    if (!out)
        return;
    const bool are_keys = role == ROLE_ATTN_K;
    const size_t rank = config_latent(c, block), dim = c->head_dim, step = are_keys ? dim : 1;
    const size_t n_cols = is_bias ? 1 : c->d_model, n_rows = spec_elements(&spec) / n_cols;
    gguf_add_tensor(x->writer, text_of(spec.name.text), TENSOR_F32, spec.n_dims, spec_dims(&spec).n,
                    out);
    pack_floats(x->by_head, find(x, are_keys ? ROLE_ATTN_K_B : ROLE_ATTN_V_B, block, false));
    pack_floats(x->cached, cached);
    for (size_t i = 0; i < n_rows; i++, out += n_cols) {
        /* Column i of a head's [rank, head_dim], or row i of all heads' [value_dim, rank]. */
        const float *factors = x->by_head + (are_keys ? i / dim * rank * dim + i % dim : i * rank);
        for (size_t j = 0; j < n_cols; j++)
            x->row[j] = 0;
        for (size_t r = 0; r < rank; r++)
            for (size_t j = 0; j < n_cols; j++)
                x->row[j] += (double)factors[r * step] * (double)x->cached[r * n_cols + j];
        for (size_t j = 0; j < n_cols; j++)
            out[j] = (float)x->row[j];
    }
}

static void expand_tensors(struct expansion *x)
{
    const struct config *c = &x->config;
    const uint64_t d = c->d_model, rank = config_most_latent(c);
    const uint64_t q = config_q_dim(c), heads = config_heads_dim(c);
    x->cached = arena_take(&x->arena, rank * d, sizeof(float));
    x->by_head = arena_take(&x->arena, rank * (q > heads ? q : heads), sizeof(float));
    x->row = arena_take(&x->arena, d, sizeof(double));
    for (int b = 0; b < config_blocks(c); b++)
        for (int i = 0; i < 4; i++)
            expand_tensor(x, i < 2 ? ROLE_ATTN_K : ROLE_ATTN_V, b, i % 2);
}

/* The bytes of a GGUF file (malloc'd) in which attn_k and attn_v, F32, are the products of attn_k_b
 * and attn_v_b with attn_kv_a, and attn_kv_a is gone: the same function, up to rounding, with heads
 * that can be looked at. */
static enum status write_expanded(struct expansion *x, unsigned char **bytes, size_t *len,
                                  struct err *e)
{
    const struct config *c = &x->config;
    expand_tensors(x);
    TRY(arena_allocate(&x->arena, "the heads' keys and values", e));
    TRY(gguf_writer_create(&x->writer, e));
    for (size_t i = 0; i < x->g->n_pairs; i++) {
        const struct gguf_pair *p = &x->g->pairs[i];
        if (!config_is_latent_key(c, p->key) && !config_is_kv_heads_key(c, p->key))
            gguf_add_value(x->writer, p->key, &p->value);
    }
    config_write_kv_heads(&x->expanded, x->writer);
    for (size_t i = 0; i < x->g->n_tensors; i++) {
        const struct gguf_tensor *t = &x->g->tensors[i];
        struct tensor_spec spec;
        if (!layout_named(c, t->name, &spec) || spec.role < ROLE_ATTN_KV_A ||
            spec.role > ROLE_ATTN_V_B)
            gguf_add_tensor(x->writer, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    expand_tensors(x);
    return gguf_write_memory(x->writer, bytes, len, e);
}

static enum status compare_expanded(const struct convert_spec *spec, const struct config *config,
                                    struct head_likeness *kept, struct err *e)
{
    struct convert_spec expanded = *spec;
    struct expansion x = {.g = spec->gguf, .config = *config, .expanded = *config};
    unsigned char *bytes = NULL;
    size_t len = 0;
    struct gguf *g = NULL;
    struct model *model = NULL;
    x.expanded.n_kv_heads = config->n_heads;
    x.expanded.split_qkv = true;
    memset(x.expanded.latent, 0, sizeof x.expanded.latent);
    enum status s = write_expanded(&x, &bytes, &len, e);
    gguf_writer_free(x.writer);
    arena_free(&x.arena);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &g, e);
    if (s == STATUS_OK)
        s = model_create(g, NULL, NULL, &model, e);
    expanded.gguf = g;
    expanded.source = NULL;
    if (s == STATUS_OK)
        s = compare_heads(&expanded, model, kept, e);
    model_free(model);
    gguf_free(g);
    free(bytes);
    return s;
}

enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *kept, struct err *e)
{
    return config_is_latent(&model->config) ? compare_expanded(spec, &model->config, kept, e)
                                            : compare_heads(spec, model, kept, e);
}
