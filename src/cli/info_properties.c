#include "cli/info_properties.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/figures.h"
#include "show/report.h"

/* --- the file and its hyperparameters -------------------------------------------------------- */

static const struct report_field file_fields[] = {
    {"file", "file", MEMBER(info_properties, path)},
    {"file_bytes", NULL, MEMBER(info_properties, file_bytes)},
    {NULL, "size", MEMBER(info_properties, size)},
    {"gguf_version", NULL, MEMBER(info_properties, gguf_version)},
    {"n_keys", NULL, MEMBER(info_properties, n_keys)},
    {"n_tensors", NULL, MEMBER(info_properties, n_tensors)},
    {NULL, "format", MEMBER(info_properties, format)},
    {"architecture", "architecture", MEMBER(info_properties, architecture), .none = "not stated"},
    {"name", "name", MEMBER(info_properties, name), .none = "none"},
};
/* Of a shape without a file. */
static const struct report_field shape_fields[] = {
    {"shape", "shape", MEMBER(info_properties, shape)},
    {"architecture", "architecture", MEMBER(info_properties, architecture)},
    {"type", "type", MEMBER(info_properties, type)},
};
static const struct report_field config_fields[] = {
    {"variant", "variant", MEMBER(info_properties, variant)},
    {"n_layers", "n_layers", MEMBER(info_properties, config.n_layers)},
    {"n_heads", "n_heads", MEMBER(info_properties, config.n_heads)},
    {"n_kv_heads", "n_kv_heads", MEMBER(info_properties, config.n_kv_heads)},
    {"kv_heads_by_layer", "by layer", MEMBER(info_properties, kv_heads)},
    {"latent", "latent", MEMBER(info_properties, latent)},
    {"head_dim", "head_dim", MEMBER(info_properties, config.head_dim)},
    {"value_dim", NULL, MEMBER(info_properties, value_dim)},
    {"d_model", "d_model", MEMBER(info_properties, config.d_model)},
    {"d_ff", "d_ff", MEMBER(info_properties, config.d_ff)},
    {"n_ctx", "n_ctx", MEMBER(info_properties, config.n_ctx)},
    {"n_vocab", "n_vocab", MEMBER(info_properties, config.n_vocab)},
    {NULL, "block", MEMBER(info_properties, block)},
    {"norm", NULL, MEMBER(info_properties, norm)},
    {"placement", NULL, MEMBER(info_properties, placement)},
    {"position", NULL, MEMBER(info_properties, position)},
    {"ffn", NULL, MEMBER(info_properties, ffn)},
    {"shared_block", NULL, MEMBER(info_properties, config.shared)},
    {"norm_eps", "norm_eps", MEMBER(info_properties, norm_eps), "%g"},
    {"does_not_run", "does not run", MEMBER(info_properties, refusal)},
    {"tied_output", NULL, MEMBER(info_properties, tied)},
    {NULL, "output", MEMBER(info_properties, output)},
};
/* The first ones also of a tokenizer that cannot be read. */
#define N_ANY_TOKENIZER_FIELDS 2
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info_properties, tokenizer), .none = "none"},
    {"problem", "problem", MEMBER(info_properties, problem)},
    {"n_tokens", "n_tokens", MEMBER(info_properties, n_tokens)},
    {"bos", NULL, MEMBER(info_properties, bos)},
    {NULL, "bos", MEMBER(info_properties, bos_note)},
    {"eos", "eos", MEMBER(info_properties, eos)},
    {"adds_bos", NULL, MEMBER(info_properties, adds_bos)},
};

static int n_config_fields(const struct info *info)
{
    return info->has_config ? REPORT_LENGTH(config_fields) : 0;
}

static int n_tokenizer_fields(const struct info *info)
{
    return info->tokenizer ? REPORT_LENGTH(tokenizer_fields) : N_ANY_TOKENIZER_FIELDS;
}

/* "6, 2, 1", a number a layer. */
static enum status list_by_layer(const struct config *c,
                                 int (*of)(const struct config *c, int layer), struct bytes *out,
                                 struct err *e)
{
    for (int l = 0; l < c->n_layers; l++) {
        char number[24];
        snprintf(number, sizeof number, "%s%d", l ? ", " : "", of(c, l));
        if (!bytes_put(out, text_of(number)))
            return err_no_memory(e, "the numbers of all layers", out->len);
    }
    return STATUS_OK;
}

/* No layer of a latent model has K/V heads of its own number. */
static enum status describe_layers(struct info_properties *p, const struct config *c, struct err *e)
{
    if (config_is_latent(c)) {
        TRY(list_by_layer(c, config_latent, &p->by_layer, e));
        p->latent = bytes_text(&p->by_layer);
    } else if (!config_same_kv_heads(c)) {
        TRY(list_by_layer(c, config_kv_heads, &p->by_layer, e));
        p->kv_heads = bytes_text(&p->by_layer);
    }
    return STATUS_OK;
}

/* What a config says in words. */
static void describe_config(struct info_properties *p, const struct info *info)
{
    const struct config *c = &info->config;
    config_variant_name(c, c->n_kv_heads, p->variant);
    p->norm = arch_norm_names[c->norm];
    p->placement = arch_placement_names[c->placement];
    p->position = arch_position_names[c->position];
    p->ffn = arch_ffn_names[c->ffn];
    p->value_dim = config_value_dim(c);
    p->refusal = info->refusal.text[0] ? info->refusal.text : NULL;
    int used =
        snprintf(p->block, sizeof p->block, "%s norm %s, positions %s, %s%s", p->norm, p->placement,
                 p->position, p->ffn, c->shared ? ", shared by all layers" : "");
    if (p->value_dim != c->head_dim)
        snprintf(p->block + used, sizeof p->block - (size_t)used, ", values of %d", p->value_dim);
}

static void describe_file(struct info_properties *p, const struct info *info)
{
    const struct gguf *g = info->gguf;
    p->path = info->path;
    p->file_bytes = info->file.len;
    p->gguf_version = g->version;
    p->n_keys = g->n_pairs;
    p->n_tensors = g->n_tensors;
    p->architecture = info->architecture;
    p->name = info->name;
    p->tied = layout_output_tied(g);
    snprintf(p->size, sizeof p->size, "%s (%zu bytes)", figure_bytes((double)info->file.len).text,
             info->file.len);
    snprintf(p->format, sizeof p->format, "GGUF version %u, %zu keys, %zu tensors", g->version,
             g->n_pairs, g->n_tensors);
}

static void describe_tokenizer(struct info_properties *p, const struct info *info)
{
    p->tokenizer = info->tokenizer_model;
    p->problem = info->problem.text[0] ? info->problem.text : NULL;
    if (!info->tokenizer)
        return;
    p->n_tokens = tokenizer_n_tokens(info->tokenizer);
    p->bos = tokenizer_bos(info->tokenizer);
    p->eos = tokenizer_eos(info->tokenizer);
    p->adds_bos = tokenizer_adds_bos(info->tokenizer);
    if (p->bos >= 0)
        snprintf(p->bos_note, sizeof p->bos_note, "%d%s", (int)p->bos,
                 p->adds_bos ? ", before every text" : "");
}

enum status info_describe(struct info_properties *p, const struct info *info, struct err *e)
{
    *p =
        (struct info_properties){.config = info->config, .norm_eps = (double)info->config.norm_eps};
    if (info->gguf) {
        describe_file(p, info);
    } else {
        p->shape = info->shape_text;
        p->type = storage_name(info->shape.storage);
        p->architecture = text_of(info->config.arch->name);
        p->tied = info->shape.tied;
    }
    p->output = p->tied ? "tied to the embedding" : "its own matrix";
    if (info->has_config)
        describe_config(p, info);
    describe_tokenizer(p, info);
    return info->has_config ? describe_layers(p, &info->config, e) : STATUS_OK;
}

/* What the properties begin with; returns how many fields. */
static int first_fields(const struct info *info, const struct report_field **fields)
{
    *fields = info->gguf ? file_fields : shape_fields;
    return info->gguf ? REPORT_LENGTH(file_fields) : REPORT_LENGTH(shape_fields);
}

/* --- types ----------------------------------------------------------------------------------- */

/* One type's share of the tensors. */
struct info_type {
    const char *name;
    uint64_t n_tensors;
};
#define INFO_MAX_TYPES 64

/* The types in order of first use; returns their number. */
static int list_types(const struct gguf *g, struct info_type types[INFO_MAX_TYPES])
{
    int n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        int at = 0;
        while (at < n && types[at].name != g->tensors[i].type->name)
            at++;
        if (at == n && n < INFO_MAX_TYPES)
            types[n++] = (struct info_type){g->tensors[i].type->name, 0};
        if (at < n)
            types[at].n_tensors++;
    }
    return n;
}

static void print_types(struct report *r, const struct gguf *g)
{
    struct info_type types[INFO_MAX_TYPES];
    const int n = list_types(g, types);
    char list[512] = "none: there are no tensors";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (%" PRIu64 " tensor%s)",
                                 i ? ", " : "", types[i].name, types[i].n_tensors,
                                 plural(types[i].n_tensors));
    report_string(r, "types");
    report_string(r, list);
}

static void json_types(struct json *j, const struct gguf *g)
{
    struct info_type types[INFO_MAX_TYPES];
    const int n = list_types(g, types);
    json_begin_object(j, "types");
    for (int i = 0; i < n; i++)
        json_u64(j, types[i].name, types[i].n_tensors);
    json_end(j);
}

/* --- keys ------------------------------------------------------------------------------------ */

static void print_scalar(struct report *r, const struct gguf_value *v)
{
    char digits[32];
    if (v->kind == GGUF_STRING) {
        report_text(r, (struct text){v->bytes.data, (size_t)text_width(v->bytes)});
    } else if (v->kind == GGUF_BOOL) {
        report_string(r, gguf_int_at(v, 0) ? "true" : "false");
    } else if (v->kind == GGUF_F32 || v->kind == GGUF_F64) {
        report_string(r, figure_exact(gguf_float_at(v, 0)).text);
    } else if (v->kind == GGUF_U64) {
        uint64_t x = 0;
        for (size_t i = v->bytes.len; i > 0; i--)
            x = x << 8 | (unsigned char)v->bytes.data[i - 1];
        report_u64(r, x);
    } else {
        snprintf(digits, sizeof digits, "%" PRId64, gguf_int_at(v, 0));
        report_string(r, digits);
    }
}

/* The scalar keys that stand nowhere else: what a conversion says of itself, and of an architecture
 * that does not run here its own and the general ones. */
static void print_keys(struct report *r, const struct info *info)
{
    const struct gguf *g = info->gguf;
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct gguf_pair *p = &g->pairs[i];
        const bool told = info->has_config ? !text_starts_with(p->key, "decode.convert.")
                                           : text_is(p->key, "general.architecture") ||
                                                 text_is(p->key, "general.name") ||
                                                 text_starts_with(p->key, "tokenizer.");
        if (p->value.kind == GGUF_ARRAY || told)
            continue;
        report_text(r, p->key);
        print_scalar(r, &p->value);
    }
}

enum status info_properties_print(const struct info *info, const struct info_properties *p,
                                  struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
    const struct report_field *first;
    const int n_first = first_fields(info, &first);
    struct report r;
    report_begin(&r, info->format, columns, 2, info->out);
    report_properties(&r, first, n_first, p);
    report_properties(&r, config_fields, n_config_fields(info), p);
    if (info->gguf) {
        report_properties(&r, tokenizer_fields, n_tokenizer_fields(info), p);
        print_types(&r, info->gguf);
        print_keys(&r, info);
    }
    return report_end(&r, e);
}

void info_properties_json(struct json *j, const struct info *info, const struct info_properties *p)
{
    const struct report_field *first;
    const int n_first = first_fields(info, &first);
    report_members(j, first, n_first, p);
    report_members(j, config_fields, n_config_fields(info), p);
    if (p->tokenizer.len > 0)
        report_object(j, "tokenizer", tokenizer_fields, n_tokenizer_fields(info), p);
    else if (info->gguf)
        json_null(j, "tokenizer");
    if (info->gguf)
        json_types(j, info->gguf);
}
