#include "cli/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/figures.h"
#include "show/paragraph.h"
#include "show/report.h"

/* --- the file and its hyperparameters -------------------------------------------------------- */

struct info_properties {
    const char *path;
    uint64_t file_bytes, gguf_version, n_keys, n_tensors;
    const char *shape, *type;
    char size[64], format[96];
    struct text architecture, name;
    char variant[16];
    struct config config;
    const char *norm, *placement, *position, *ffn;
    char block[96];        /* these in words */
    struct text kv_heads;  /* layer by layer; empty: all have as many */
    struct text latent;    /* ranks, likewise; empty: none */
    struct bytes by_layer; /* that one of these is in */
    double norm_eps;
    int value_dim;
    bool tied;
    const char *refusal; /* NULL: it runs */
    const char *output;
    struct text tokenizer;
    const char *problem;
    int n_tokens;
    int64_t bos, eos; /* -1: none */
    bool adds_bos;
    char bos_note[48];
};

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

/* What does not run may have another cache. */
static bool shows_variants(const struct info *info)
{
    return info->has_config && !info->refusal.text[0];
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
    p->tied = !gguf_find_tensor(g, "output.weight");
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

/* p->by_layer is to be freed in every case. */
static enum status describe(struct info_properties *p, const struct info *info, struct err *e)
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
                                 types[i].n_tensors == 1 ? "" : "s");
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

static enum status print_properties(const struct info *info, const struct info_properties *p,
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

/* --- parts ----------------------------------------------------------------------------------- */

struct info_part {
    const char *name;
    struct inspect_sum sum;
    uint64_t weights; /* all that are no biases */
    double percent;
};

static const struct report_field part_fields[] = {
    {"part", "part", MEMBER(info_part, name)},
    {"parameters", "parameters", MEMBER(info_part, sum.parameters), .grouped = true},
    {NULL, "share", MEMBER(info_part, percent), "%.1f%%"},
    {"bytes", "bytes", MEMBER(info_part, sum.bytes), .grouped = true},
    {"weights", "weights", MEMBER(info_part, weights), .grouped = true},
    {"biases", "biases", MEMBER(info_part, sum.biases), .grouped = true},
};

/* INSPECT_PARTS is the total. */
static struct info_part info_part_of(const struct info *info, int part)
{
    const uint64_t all = info->parts[INSPECT_PARTS].parameters;
    const struct inspect_sum *sum = &info->parts[part];
    struct info_part p = {"total", *sum, sum->parameters - sum->biases, 0};
    if (part < INSPECT_PARTS)
        p.name = inspect_part_name((enum inspect_part)part);
    if (all > 0)
        p.percent = 100.0 * (double)p.sum.parameters / (double)all;
    return p;
}

static enum status print_parts(const struct info *info, struct err *e)
{
    struct report r;
    struct columns chosen;
    columns_choose(info->columns, info->format, part_fields, REPORT_LENGTH(part_fields), &chosen);
    report_begin(&r, info->format, chosen.fields, chosen.n, info->out);
    for (int part = 0; part <= INSPECT_PARTS; part++) {
        const struct info_part p = info_part_of(info, part);
        if (info->format == TABLE_CSV || part == INSPECT_PARTS || p.sum.parameters > 0)
            report_row(&r, &p);
    }
    return report_end(&r, e);
}

/* 4 d_model^2 a layer: the weights of Q, K, V and the output where every head has its own. */
static uint64_t textbook_attention(const struct config *c)
{
    return 4 * (uint64_t)c->d_model * (uint64_t)c->d_model * (uint64_t)config_blocks(c);
}

static void print_textbook(const struct info *info)
{
    const struct config *c = &info->config;
    const struct info_part attention = info_part_of(info, INSPECT_ATTENTION);
    struct paragraph p = paragraph_begin(info->out, 2);
    paragraph_printf(&p, "\nattention: %s weights; 4 d_model^2 x %d blocks is %s\n",
                     figure_grouped(attention.weights).text, config_blocks(c),
                     figure_grouped(textbook_attention(c)).text);
    paragraph_end(&p);
}

/* An object of one field of all parts, the total first. */
static void json_parts(struct json *j, const struct info *info, const struct report_field *field)
{
    json_begin_object(j, field->key);
    for (int i = 0; i <= INSPECT_PARTS; i++) {
        const struct info_part p = info_part_of(info, i == 0 ? INSPECT_PARTS : i - 1);
        report_member(j, p.name, field, &p);
    }
    json_end(j);
}

/* --- tensors --------------------------------------------------------------------------------- */

struct info_tensor {
    struct gguf_tensor tensor;
    char shape[GGUF_MAX_DIMS * 24];
    const char *type;
    uint64_t offset; /* of the data, from the start of the file */
    int64_t nan, inf;
};

/* The last two with --check. JSON has the first two as a name and an array. */
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", MEMBER(info_tensor, tensor.name)},
    {"shape", "shape", MEMBER(info_tensor, shape), .right = true},
    {"type", "type", MEMBER(info_tensor, type)},
    {"bytes", "bytes", MEMBER(info_tensor, tensor.n_bytes), .rank = 1},
    {"offset", "offset", MEMBER(info_tensor, offset), .rank = 2},
    {"nan", "nan", MEMBER(info_tensor, nan), .none = "not checked"},
    {"inf", "inf", MEMBER(info_tensor, inf), .none = "not checked"},
};

static int n_tensor_fields(const struct info *info)
{
    return REPORT_LENGTH(tensor_fields) - (info->checks ? 0 : 2);
}

static struct info_tensor tensor_of(const struct info *info, size_t i)
{
    const struct gguf_tensor *from = &info->gguf->tensors[i];
    struct info_tensor t = {.tensor = *from,
                            .type = from->type->name,
                            .offset = (uint64_t)(from->data - info->file.data),
                            .nan = -1,
                            .inf = -1};
    size_t used = 0;
    for (int d = 0; d < from->n_dims && used < sizeof t.shape; d++)
        used += (size_t)snprintf(t.shape + used, sizeof t.shape - used, "%s%" PRIu64,
                                 d ? " x " : "", from->dims[d]);
    if (info->checks && info->checks[i].checked) {
        t.nan = (int64_t)info->checks[i].nan;
        t.inf = (int64_t)info->checks[i].inf;
    }
    return t;
}

/* Every tensor, or those with values that are not finite. */
static enum status print_tensors(const struct info *info, bool bad_only, struct err *e)
{
    struct report r;
    struct columns chosen;
    columns_choose(info->columns, info->format, tensor_fields, n_tensor_fields(info), &chosen);
    report_begin(&r, info->format, chosen.fields, chosen.n, info->out);
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct info_tensor t = tensor_of(info, i);
        if (!bad_only || info->checks[i].nan + info->checks[i].inf > 0)
            report_row(&r, &t);
    }
    return report_end(&r, e);
}

static void json_tensors(struct json *j, const struct info *info)
{
    json_begin_array(j, "tensors");
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct info_tensor t = tensor_of(info, i);
        json_begin_object(j, NULL);
        json_text(j, "name", t.tensor.name);
        json_begin_array(j, "shape");
        for (int d = 0; d < t.tensor.n_dims; d++)
            json_u64(j, NULL, t.tensor.dims[d]);
        json_end(j);
        report_members(j, tensor_fields + 2, n_tensor_fields(info) - 2, &t);
        json_end(j);
    }
    json_end(j);
}

/* --- the check ------------------------------------------------------------------------------- */

struct info_check {
    uint64_t checked, unchecked, scales, bad; /* tensors */
    uint64_t nan, inf;                        /* values */
};

static const struct report_field check_fields[] = {
    {"tensors_checked", NULL, MEMBER(info_check, checked)},
    {"tensors_not_checked", NULL, MEMBER(info_check, unchecked)},
    {"nan", NULL, MEMBER(info_check, nan)},
    {"inf", NULL, MEMBER(info_check, inf)},
};

static struct info_check sum_of_checks(const struct info *info)
{
    struct info_check sum = {0};
    for (size_t i = 0; info->checks && i < info->gguf->n_tensors; i++) {
        const struct inspect_check *c = &info->checks[i];
        sum.checked += c->checked;
        sum.unchecked += !c->checked;
        sum.scales += c->scales_only;
        sum.bad += c->nan + c->inf > 0;
        sum.nan += c->nan;
        sum.inf += c->inf;
    }
    return sum;
}

static enum status print_check(const struct info *info, struct err *e)
{
    struct output *out = info->out;
    const struct info_check sum = sum_of_checks(info);
    output_printf(out,
                  "\ncheck: %" PRIu64 " tensors read, %" PRIu64 " with values that are not finite",
                  sum.checked, sum.bad);
    if (sum.scales > 0)
        output_printf(out, "; of %" PRIu64 " the scales only", sum.scales);
    if (sum.unchecked > 0)
        output_printf(out, "; %" PRIu64 " of other types not checked", sum.unchecked);
    output_puts(out, "\n");
    const bool listed = sum.bad == 0 || info->list_tensors;
    return listed ? STATUS_OK : print_tensors(info, true, e);
}

/* --- the forms ------------------------------------------------------------------------------- */

static void info_print_json(const struct info *info, const struct info_properties *p)
{
    struct json json, *j = &json;
    const struct report_field *first;
    const int n_first = first_fields(info, &first);
    const struct info_check sum = sum_of_checks(info);
    json_init(j, info->out, info->format == TABLE_JSONL ? 0 : 2);
    json_begin_object(j, NULL);
    report_members(j, first, n_first, p);
    report_members(j, config_fields, n_config_fields(info), p);
    if (p->tokenizer.len > 0)
        report_object(j, "tokenizer", tokenizer_fields, n_tokenizer_fields(info), p);
    else if (info->gguf)
        json_null(j, "tokenizer");
    if (info->gguf)
        json_types(j, info->gguf);
    for (int i = 0; i < REPORT_LENGTH(part_fields); i++)
        if (part_fields[i].grouped)
            json_parts(j, info, &part_fields[i]);
    if (info->has_config)
        json_u64(j, "attention_4_d_model_squared", textbook_attention(&info->config));
    if (shows_variants(info))
        info_cost_json(&info->cost, j);
    if (info->checks)
        report_object(j, "check", check_fields, REPORT_LENGTH(check_fields), &sum);
    if (info->list_tensors)
        json_tensors(j, info);
    json_end(j);
    output_puts(info->out, "\n");
}

static enum status print_for_people(const struct info *info, const struct info_properties *p,
                                    struct err *e)
{
    TRY(print_properties(info, p, e));
    if (!info->gguf || info->gguf->n_tensors > 0) {
        output_puts(info->out, "\n");
        TRY(print_parts(info, e));
    }
    if (info->has_config)
        print_textbook(info);
    if (shows_variants(info))
        TRY(info_cost_print(&info->cost, info->format, info->out, e));
    if (info->list_tensors) {
        output_puts(info->out, "\n");
        TRY(print_tensors(info, false, e));
    }
    return info->checks ? print_check(info, e) : STATUS_OK;
}

/* --- chosen columns -------------------------------------------------------------------------- */

/* The tables of this form, of which CSV has one. */
static int list_tables(const struct info *info, struct columns_table out[4])
{
    const bool csv = info->format == TABLE_CSV,
               steps = shows_variants(info) && info->cost.shows_steps;
    const bool tensors = info->list_tensors || (csv && info->checks);
    int n = 0;
    if (tensors)
        out[n++] = (struct columns_table){tensor_fields, n_tensor_fields(info)};
    if (!csv || (!tensors && !steps))
        out[n++] = (struct columns_table){part_fields, REPORT_LENGTH(part_fields)};
    if (shows_variants(info) && (!csv || (!tensors && steps)))
        n += info_cost_tables(&info->cost, info->format, out + n);
    return n;
}

/* Not of the costs. */
static bool is_own(const struct columns_table *t)
{
    return t->fields == tensor_fields || t->fields == part_fields;
}

static enum status print_columns(const struct info *info, struct err *e)
{
    struct columns_table tables[4];
    const int n = list_tables(info, tables);
    bool any = false;
    if (table_is_json(info->format))
        return err_set(e, STATUS_USAGE, "--columns is for tables; expected none with --format %s",
                       table_formats[info->format]);
    TRY(columns_check(info->columns, info->format, tables, n, e));
    for (int i = 0; i < n; i++) {
        struct columns chosen;
        columns_choose(info->columns, info->format, tables[i].fields, tables[i].n, &chosen);
        if (chosen.n == 0 || !is_own(&tables[i]))
            continue;
        output_puts(info->out, any ? "\n" : "");
        any = true;
        TRY(tables[i].fields == part_fields ? print_parts(info, e) : print_tensors(info, false, e));
    }
    if (is_own(&tables[n - 1]))
        return STATUS_OK;
    return info_cost_print_columns(&info->cost, info->format, info->columns, &any, info->out, e);
}

/* --- all ------------------------------------------------------------------------------------- */

enum status info_print(const struct info *info, struct err *e)
{
    struct info_properties p;
    if (info->columns)
        return print_columns(info, e);
    if (info->format == TABLE_CSV && (info->list_tensors || info->checks))
        return print_tensors(info, false, e);
    if (info->format == TABLE_CSV)
        return shows_variants(info) && info->cost.shows_steps
                   ? info_cost_print(&info->cost, info->format, info->out, e)
                   : print_parts(info, e);
    enum status s = describe(&p, info, e);
    if (s == STATUS_OK && table_is_for_people(info->format))
        s = print_for_people(info, &p, e);
    else if (s == STATUS_OK)
        info_print_json(info, &p);
    bytes_free(&p.by_layer);
    return s;
}
