#include "cli/info.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/figures.h"
#include "base/limits.h"
#include "base/little.h"
#include "show/paragraph.h"

/* --- properties ------------------------------------------------------------------------------ */

static const struct report_field file_fields[] = {
    {"file", "file", MEMBER(info, path)},
    {"file_bytes", NULL, MEMBER(info, file_bytes)},
    {NULL, "size", MEMBER(info, size)},
    {"gguf_version", NULL, MEMBER(info, gguf_version)},
    {"n_keys", NULL, MEMBER(info, n_keys)},
    {"n_tensors", NULL, MEMBER(info, n_tensors)},
    {NULL, "format", MEMBER(info, format_line)},
    {"architecture", "architecture", MEMBER(info, architecture), .none = "not stated"},
    {"name", "name", MEMBER(info, name), .none = "none"},
};
/* Of a shape without a file. */
static const struct report_field shape_fields[] = {
    {"shape", "shape", MEMBER(info, shape_text)},
    {"architecture", "architecture", MEMBER(info, architecture)},
    {"type", "type", MEMBER(info, type)},
};
static const struct report_field config_fields[] = {
    {"variant", "variant", MEMBER(info, variant)},
    {"n_layers", "n_layers", MEMBER(info, config.n_layers)},
    {"n_heads", "n_heads", MEMBER(info, config.n_heads)},
    {"n_kv_heads", "n_kv_heads", MEMBER(info, config.n_kv_heads)},
    {"kv_heads_by_layer", "by layer", MEMBER(info, kv_heads)},
    {"latent", "latent", MEMBER(info, latent)},
    {"head_dim", "head_dim", MEMBER(info, config.head_dim)},
    {"value_dim", NULL, MEMBER(info, value_dim)},
    {"d_model", "d_model", MEMBER(info, config.d_model)},
    {"d_ff", "d_ff", MEMBER(info, config.d_ff)},
    {"n_ctx", "n_ctx", MEMBER(info, config.n_ctx)},
    {"n_vocab", "n_vocab", MEMBER(info, config.n_vocab)},
    {NULL, "block", MEMBER(info, block)},
    {"norm", NULL, MEMBER(info, norm)},
    {"placement", NULL, MEMBER(info, placement)},
    {"position", NULL, MEMBER(info, position)},
    {"ffn", NULL, MEMBER(info, ffn)},
    {"shared_block", NULL, MEMBER(info, config.shared)},
    {"norm_eps", "norm_eps", MEMBER(info, norm_eps), "%g"},
    {"does_not_run", "does not run", MEMBER(info, does_not_run)},
    {"tied_output", NULL, MEMBER(info, tied)},
    {NULL, "output", MEMBER(info, output)},
};
/* The first ones also of a tokenizer that cannot be read. */
#define N_ANY_TOKENIZER_FIELDS 2
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info, tokenizer_model), .none = "none"},
    {"problem", "problem", MEMBER(info, problem)},
    {"n_tokens", "n_tokens", MEMBER(info, n_tokens)},
    {"bos", NULL, MEMBER(info, bos)},
    {NULL, "bos", MEMBER(info, bos_note)},
    {"eos", "eos", MEMBER(info, eos)},
    {"adds_bos", NULL, MEMBER(info, adds_bos)},
};

/* Those that there are: of the file or shape, of the config, of the tokenizer. */
enum { FIELDS_FIRST, FIELDS_CONFIG, FIELDS_TOKENIZER, FIELD_LISTS };

static void choose_properties(const struct info *info, struct table lists[FIELD_LISTS])
{
    const int n_tokenizer =
        info->tokenizer ? REPORT_LENGTH(tokenizer_fields) : N_ANY_TOKENIZER_FIELDS;
    lists[FIELDS_FIRST] =
        info->gguf ? (struct table){.fields = file_fields, .n = REPORT_LENGTH(file_fields)}
                   : (struct table){.fields = shape_fields, .n = REPORT_LENGTH(shape_fields)};
    lists[FIELDS_CONFIG] = (struct table){.fields = config_fields,
                                          .n = info->has_config ? REPORT_LENGTH(config_fields) : 0};
    lists[FIELDS_TOKENIZER] =
        (struct table){.fields = tokenizer_fields, .n = info->gguf ? n_tokenizer : 0};
}

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
        snprintf(digits, sizeof digits, "%" PRIu64, little_load(v->bytes.data, v->bytes.len));
        report_string(r, digits);
    } else {
        snprintf(digits, sizeof digits, "%" PRId64, gguf_int_at(v, 0));
        report_string(r, digits);
    }
}

/* The scalar keys that stand nowhere else: what a conversion says of itself, and of an architecture
 * that does not run here its own and the general ones. */
static void print_other_keys(struct report *r, const struct info *info)
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

static enum status print_properties(const struct info *info, struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
    struct table lists[FIELD_LISTS];
    struct report r;
    choose_properties(info, lists);
    report_begin(&r, info->format, columns, 2, info->out);
    for (int i = 0; i < FIELD_LISTS; i++)
        report_properties(&r, lists[i].fields, lists[i].n, info);
    if (info->gguf) {
        print_types(&r, info->gguf);
        print_other_keys(&r, info);
    }
    return report_end(&r, e);
}

static void json_properties(struct json *j, const struct info *info)
{
    struct table lists[FIELD_LISTS];
    struct info_type types[INFO_MAX_TYPES];
    choose_properties(info, lists);
    for (int i = 0; i < FIELDS_TOKENIZER; i++)
        report_members(j, lists[i].fields, lists[i].n, info);
    if (!info->gguf)
        return;
    if (info->tokenizer_model.len > 0)
        report_object(j, "tokenizer", tokenizer_fields, lists[FIELDS_TOKENIZER].n, info);
    else
        json_null(j, "tokenizer");
    json_begin_object(j, "types");
    const int n = list_types(info->gguf, types);
    for (int i = 0; i < n; i++)
        json_u64(j, types[i].name, types[i].n_tensors);
    json_end(j);
}

/* --- parts and tensors ----------------------------------------------------------------------- */

static const struct report_field part_fields[] = {
    {"part", "part", MEMBER(inspect_sum, part)},
    {"parameters", "parameters", MEMBER(inspect_sum, parameters), .grouped = true},
    {NULL, "share", MEMBER(inspect_sum, percent), "%.1f%%"},
    {"bytes", "bytes", MEMBER(inspect_sum, bytes), .grouped = true, .rank = 1},
    {"weights", "weights", MEMBER(inspect_sum, weights), .grouped = true, .rank = 2},
    {"biases", "biases", MEMBER(inspect_sum, biases), .grouped = true, .rank = 3},
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

static const struct report_field check_fields[] = {
    {"tensors_checked", NULL, MEMBER(info_check, checked)},
    {"tensors_not_checked", NULL, MEMBER(info_check, unchecked)},
    {"nan", NULL, MEMBER(info_check, nan)},
    {"inf", NULL, MEMBER(info_check, inf)},
};

static int n_tensor_fields(const struct info *info)
{
    return REPORT_LENGTH(tensor_fields) - (info->check_tensors ? 0 : 2);
}

/* 4 d_model^2 a layer: the weights of Q, K, V and the output where every head has its own. */
static uint64_t textbook_attention(const struct config *c)
{
    return 4 * (uint64_t)c->d_model * (uint64_t)c->d_model * (uint64_t)config_blocks(c);
}

static void print_textbook(const struct info *info)
{
    struct paragraph p = paragraph_begin(info->out, 2);
    paragraph_printf(&p, "\nattention: %s weights; 4 d_model^2 x %d blocks is %s\n",
                     figure_grouped(info->parts[INSPECT_ATTENTION].weights).text,
                     config_blocks(&info->config),
                     figure_grouped(textbook_attention(&info->config)).text);
    paragraph_end(&p);
}

/* A line, and the tensors that are bad unless all are listed already. */
static enum status print_check(const struct info *info, struct err *e)
{
    const struct info_check *sum = &info->check;
    struct paragraph p = paragraph_begin(info->out, 2);
    struct report r;
    paragraph_printf(
        &p, "\ncheck: %" PRIu64 " tensor%s read, %" PRIu64 " with values that are not finite",
        sum->checked, plural(sum->checked), sum->bad);
    if (sum->scales > 0)
        paragraph_printf(&p, "; of %" PRIu64 " the scales only", sum->scales);
    if (sum->unchecked > 0)
        paragraph_printf(&p, "; %" PRIu64 " of other types not checked", sum->unchecked);
    paragraph_end(&p);
    if (sum->bad == 0 || info->list_tensors)
        return STATUS_OK;
    report_begin(&r, info->format, tensor_fields, n_tensor_fields(info), info->out);
    for (uint64_t i = 0; i < info->n_tensors; i++)
        if (info->tensors[i].nan > 0 || info->tensors[i].inf > 0)
            report_row(&r, &info->tensors[i]);
    return report_end(&r, e);
}

/* --- the forms ------------------------------------------------------------------------------- */

static void json_rows(struct json *j, const char *key, const struct table *t)
{
    json_begin_array(j, key);
    for (int i = 0; i < t->n_rows; i++)
        report_object(j, NULL, t->fields, t->n, (const char *)t->rows + (size_t)i * t->row_bytes);
    json_end(j);
}

static void json_tensors(struct json *j, const struct info *info)
{
    json_begin_array(j, "tensors");
    for (uint64_t i = 0; i < info->n_tensors; i++) {
        const struct gguf_tensor *t = &info->tensors[i].tensor;
        json_begin_object(j, NULL);
        json_text(j, "name", t->name);
        json_begin_array(j, "shape");
        for (int d = 0; d < t->n_dims; d++)
            json_u64(j, NULL, t->dims[d]);
        json_end(j);
        report_members(j, tensor_fields + 2, n_tensor_fields(info) - 2, &info->tensors[i]);
        json_end(j);
    }
    json_end(j);
}

static void print_info_json(const struct info *info)
{
    const struct table caches = info_cache_table(info), steps = info_step_table(info);
    struct json json, *j = &json;
    json_init(j, info->out, info->format == TABLE_JSONL ? 0 : 2);
    json_begin_object(j, NULL);
    json_properties(j, info);
    for (int f = 0; f < REPORT_LENGTH(part_fields); f++) { /* an object a field, the total first */
        if (!part_fields[f].grouped)
            continue;
        json_begin_object(j, part_fields[f].key);
        for (int i = 0; i <= INSPECT_PARTS; i++) {
            const struct inspect_sum *sum = &info->parts[(i + INSPECT_PARTS) % (INSPECT_PARTS + 1)];
            report_member(j, sum->part, &part_fields[f], sum);
        }
        json_end(j);
    }
    if (info->has_config)
        json_u64(j, "attention_4_d_model_squared", textbook_attention(&info->config));
    if (info->variants.n > 0)
        json_rows(j, "kv_cache", &caches);
    if (info->steps) {
        if (info->available == AVAILABLE_UNKNOWN)
            json_null(j, "memory_available_bytes");
        else
            json_u64(j, "memory_available_bytes", info->available);
        json_rows(j, "steps", &steps);
    }
    if (info->check_tensors)
        report_object(j, "check", check_fields, REPORT_LENGTH(check_fields), &info->check);
    if (info->list_tensors)
        json_tensors(j, info);
    json_end(j);
    output_puts(info->out, "\n");
}

static enum status print_for_people(const struct info *info, const struct table *parts,
                                    const struct table *tensors, struct err *e)
{
    TRY(print_properties(info, e));
    if (!info->gguf || info->n_tensors > 0) {
        output_puts(info->out, "\n");
        TRY(table_print(parts, NULL, info->format, info->out, e));
    }
    if (info->has_config)
        print_textbook(info);
    if (info->variants.n > 0)
        TRY(info_print_cost(info, e));
    if (info->list_tensors) {
        output_puts(info->out, "\n");
        TRY(table_print(tensors, NULL, info->format, info->out, e));
    }
    return info->check_tensors ? print_check(info, e) : STATUS_OK;
}

enum status info_print(const struct info *info, struct err *e)
{
    const bool csv = info->format == TABLE_CSV;
    struct inspect_sum sums[INSPECT_PARTS + 1]; /* without parts that there are none of */
    struct table parts = TABLE_OF(part_fields, sums, 0), tables[4];
    struct table tensors = TABLE_OF(tensor_fields, info->tensors, (int)info->n_tensors);
    int n = 0;
    tensors.n = n_tensor_fields(info);
    for (int i = 0; i <= INSPECT_PARTS; i++)
        if (csv || i == INSPECT_PARTS || info->parts[i].parameters > 0)
            sums[parts.n_rows++] = info->parts[i];
    if (table_is_json(info->format) && info->columns)
        return err_set(e, STATUS_USAGE, "--columns is for tables; expected none with --format %s",
                       table_formats[info->format]);
    if (table_is_json(info->format)) {
        print_info_json(info);
        return STATUS_OK;
    }
    if (!csv && !info->columns)
        return print_for_people(info, &parts, &tensors, e);
    /* The tables that columns may be of; of CSV, which has one, that. */
    if (info->tensors)
        tables[n++] = tensors;
    if (!csv || (!info->tensors && !info->steps))
        tables[n++] = parts;
    if (!csv && info->variants.n > 0)
        tables[n++] = info_cache_table(info);
    if (info->steps && (!csv || !info->tensors))
        tables[n++] = info_step_table(info);
    return info->columns ? columns_print(info->columns, info->format, tables, n, info->out, e)
                         : table_print(&tables[0], NULL, info->format, info->out, e);
}
