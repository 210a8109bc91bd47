#include "cli/info.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/figures.h"
#include "cli/columns.h"
#include "cli/info_properties.h"
#include "show/paragraph.h"
#include "show/report.h"

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
    {"bytes", "bytes", MEMBER(info_part, sum.bytes), .grouped = true, .rank = 1},
    {"weights", "weights", MEMBER(info_part, weights), .grouped = true, .rank = 2},
    {"biases", "biases", MEMBER(info_part, sum.biases), .grouped = true, .rank = 3},
};

/* INSPECT_PARTS is the total. */
static struct info_part part_of(const struct info *info, int part)
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

/* People are not shown parts that there are none of. */
struct part_rows {
    const struct info *info;
    int next;
    struct info_part row;
};

static const void *next_part(void *arg, int row)
{
    struct part_rows *rows = arg;
    int part = row == 0 ? 0 : rows->next;
    while (part < INSPECT_PARTS && rows->info->format != TABLE_CSV &&
           rows->info->parts[part].parameters == 0)
        part++;
    rows->next = part + 1;
    if (part > INSPECT_PARTS)
        return NULL;
    rows->row = part_of(rows->info, part);
    return &rows->row;
}

static struct table part_table(struct part_rows *rows)
{
    return (struct table){part_fields, REPORT_LENGTH(part_fields), .row = next_part, .arg = rows};
}

/* 4 d_model^2 a layer: the weights of Q, K, V and the output where every head has its own. */
static uint64_t textbook_attention(const struct config *c)
{
    return 4 * (uint64_t)c->d_model * (uint64_t)c->d_model * (uint64_t)config_blocks(c);
}

static void print_textbook(const struct info *info)
{
    const struct config *c = &info->config;
    const struct info_part attention = part_of(info, INSPECT_ATTENTION);
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
        const struct info_part p = part_of(info, i == 0 ? INSPECT_PARTS : i - 1);
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

/* A walk over the tensors: all, or those with values that are not finite. */
struct tensor_rows {
    const struct info *info;
    bool bad_only;
    size_t next;
    struct info_tensor row;
};

static const void *next_tensor(void *arg, int row)
{
    struct tensor_rows *rows = arg;
    const struct info *info = rows->info;
    const struct inspect_check *checks = info->checks;
    size_t i = row == 0 ? 0 : rows->next;
    while (rows->bad_only && i < info->gguf->n_tensors && checks[i].nan + checks[i].inf == 0)
        i++;
    rows->next = i + 1;
    if (i >= info->gguf->n_tensors)
        return NULL;
    const struct gguf_tensor *from = &info->gguf->tensors[i];
    struct info_tensor *t = &rows->row;
    *t = (struct info_tensor){.tensor = *from,
                              .type = from->type->name,
                              .offset = (uint64_t)(from->data - info->file.data),
                              .nan = -1,
                              .inf = -1};
    size_t used = 0;
    for (int d = 0; d < from->n_dims && used < sizeof t->shape; d++)
        used += (size_t)snprintf(t->shape + used, sizeof t->shape - used, "%s%" PRIu64,
                                 d ? " x " : "", from->dims[d]);
    if (checks && checks[i].checked) {
        t->nan = (int64_t)checks[i].nan;
        t->inf = (int64_t)checks[i].inf;
    }
    return t;
}

static struct table tensor_table(struct tensor_rows *rows)
{
    const int n = REPORT_LENGTH(tensor_fields) - (rows->info->checks ? 0 : 2);
    return (struct table){tensor_fields, n, .row = next_tensor, .arg = rows};
}

static void json_tensors(struct json *j, const struct info *info)
{
    struct tensor_rows rows = {.info = info};
    const struct info_tensor *t;
    json_begin_array(j, "tensors");
    for (int i = 0; (t = next_tensor(&rows, i)) != NULL; i++) {
        json_begin_object(j, NULL);
        json_text(j, "name", t->tensor.name);
        json_begin_array(j, "shape");
        for (int d = 0; d < t->tensor.n_dims; d++)
            json_u64(j, NULL, t->tensor.dims[d]);
        json_end(j);
        report_members(j, tensor_fields + 2, tensor_table(&rows).n - 2, t);
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
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
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

/* A line, and the tensors that are bad unless all are listed already. */
static enum status print_check(const struct info *info, struct err *e)
{
    const struct info_check sum = sum_of_checks(info);
    struct paragraph p = paragraph_begin(info->out, 2);
    paragraph_printf(
        &p, "\ncheck: %" PRIu64 " tensor%s read, %" PRIu64 " with values that are not finite",
        sum.checked, plural(sum.checked), sum.bad);
    if (sum.scales > 0)
        paragraph_printf(&p, "; of %" PRIu64 " the scales only", sum.scales);
    if (sum.unchecked > 0)
        paragraph_printf(&p, "; %" PRIu64 " of other types not checked", sum.unchecked);
    paragraph_end(&p);
    if (sum.bad == 0 || info->list_tensors)
        return STATUS_OK;
    struct tensor_rows rows = {.info = info, .bad_only = true};
    const struct table table = tensor_table(&rows);
    return table_print(&table, NULL, info->format, info->out, e);
}

/* --- the forms ------------------------------------------------------------------------------- */

/* What does not run may have another cache. */
static bool shows_variants(const struct info *info)
{
    return info->has_config && !info->refusal.text[0];
}

static void info_print_json(const struct info *info, const struct info_properties *p)
{
    struct json json, *j = &json;
    json_init(j, info->out, info->format == TABLE_JSONL ? 0 : 2);
    json_begin_object(j, NULL);
    info_properties_json(j, info, p);
    for (int i = 0; i < REPORT_LENGTH(part_fields); i++)
        if (part_fields[i].grouped)
            json_parts(j, info, &part_fields[i]);
    if (info->has_config)
        json_u64(j, "attention_4_d_model_squared", textbook_attention(&info->config));
    if (shows_variants(info))
        info_cost_json(&info->cost, j);
    if (info->checks) {
        const struct info_check sum = sum_of_checks(info);
        report_object(j, "check", check_fields, REPORT_LENGTH(check_fields), &sum);
    }
    if (info->list_tensors)
        json_tensors(j, info);
    json_end(j);
    output_puts(info->out, "\n");
}

static enum status print_for_people(const struct info *info, const struct info_properties *p,
                                    struct err *e)
{
    struct part_rows parts = {.info = info};
    struct tensor_rows tensors = {.info = info};
    const struct table of_parts = part_table(&parts), of_tensors = tensor_table(&tensors);
    TRY(info_properties_print(info, p, e));
    if (!info->gguf || info->gguf->n_tensors > 0) {
        output_puts(info->out, "\n");
        TRY(table_print(&of_parts, NULL, info->format, info->out, e));
    }
    if (info->has_config)
        print_textbook(info);
    if (shows_variants(info))
        TRY(info_cost_print(&info->cost, info->format, info->out, e));
    if (info->list_tensors) {
        output_puts(info->out, "\n");
        TRY(table_print(&of_tensors, NULL, info->format, info->out, e));
    }
    return info->checks ? print_check(info, e) : STATUS_OK;
}

/* The tables that columns may be of; of CSV, which has one, that. */
static enum status print_tables(const struct info *info, struct err *e)
{
    const bool csv = info->format == TABLE_CSV,
               steps = shows_variants(info) && info->cost.shows_steps;
    const bool has_tensors = info->list_tensors || info->checks;
    struct part_rows parts = {.info = info};
    struct tensor_rows tensors = {.info = info};
    struct info_variants variants = {.n_ranks = 0};
    struct table tables[4];
    int n = 0;
    if (table_is_json(info->format))
        return err_set(e, STATUS_USAGE, "--columns is for tables; expected none with --format %s",
                       table_formats[info->format]);
    if (has_tensors)
        tables[n++] = tensor_table(&tensors);
    if (!csv || (!has_tensors && !steps))
        tables[n++] = part_table(&parts);
    if (!csv && shows_variants(info))
        tables[n++] = info_variant_table(&info->cost, &variants);
    if (steps && (!csv || !has_tensors))
        tables[n++] = info_step_table(&info->cost);
    return info->columns ? columns_print(info->columns, info->format, tables, n, info->out, e)
                         : table_print(&tables[0], NULL, info->format, info->out, e);
}

enum status info_print(const struct info *info, struct err *e)
{
    struct info_properties p;
    if (info->columns || info->format == TABLE_CSV)
        return print_tables(info, e);
    enum status s = info_describe(&p, info, e);
    if (s == STATUS_OK && table_is_for_people(info->format))
        s = print_for_people(info, &p, e);
    else if (s == STATUS_OK)
        info_print_json(info, &p);
    bytes_free(&p.by_layer);
    return s;
}
