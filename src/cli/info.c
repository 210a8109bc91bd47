#include "cli/info.h"

#include "base/figures.h"
#include "cli/columns.h"
#include "cli/info_properties.h"
#include "cli/info_tensors.h"
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
    if (info->checks)
        info_check_json(j, info);
    if (info->list_tensors)
        info_tensors_json(j, info);
    json_end(j);
    output_puts(info->out, "\n");
}

static enum status print_for_people(const struct info *info, const struct info_properties *p,
                                    struct err *e)
{
    TRY(info_properties_print(info, p, e));
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
        TRY(info_tensors_print(info, false, e));
    }
    return info->checks ? info_check_print(info, e) : STATUS_OK;
}

/* --- chosen columns -------------------------------------------------------------------------- */

/* The tables of this form, of which CSV has one, that columns may be of. */
static int list_tables(const struct info *info, struct columns_table out[4])
{
    const bool csv = info->format == TABLE_CSV,
               steps = shows_variants(info) && info->cost.shows_steps;
    const bool tensors = info->list_tensors || info->checks;
    int n = 0;
    if (tensors)
        out[n++] = info_tensors_table(info);
    if (!csv || (!tensors && !steps))
        out[n++] = (struct columns_table){part_fields, REPORT_LENGTH(part_fields)};
    if (shows_variants(info) && (!csv || (!tensors && steps)))
        n += info_cost_tables(&info->cost, info->format, out + n);
    return n;
}

static enum status print_columns(const struct info *info, struct err *e)
{
    struct columns_table tables[4] = {{NULL, 0}};
    const int n = list_tables(info, tables);
    bool one_has_all = false, any = false;
    if (table_is_json(info->format))
        return err_set(e, STATUS_USAGE, "--columns is for tables; expected none with --format %s",
                       table_formats[info->format]);
    TRY(columns_check(info->columns, info->format, tables, n, e));
    for (int i = 0; i < n; i++)
        one_has_all |= columns_all(info->columns, info->format, &tables[i]);
    /* Columns of one table are not looked for in others, which have some by the same names. */
    for (int i = 0; i < n; i++) {
        struct columns chosen;
        columns_choose(info->columns, info->format, tables[i].fields, tables[i].n, &chosen);
        if (chosen.n == 0 || (one_has_all && !columns_all(info->columns, info->format, &tables[i])))
            continue;
        output_puts(info->out, any ? "\n" : "");
        any = true;
        if (tables[i].fields == part_fields)
            TRY(print_parts(info, e));
        else if (info->gguf && tables[i].fields == info_tensors_table(info).fields)
            TRY(info_tensors_print(info, false, e));
        else
            TRY(info_cost_print_table(&info->cost, info->format, &tables[i], &chosen, info->out,
                                      e));
    }
    return STATUS_OK;
}

/* --- all ------------------------------------------------------------------------------------- */

enum status info_print(const struct info *info, struct err *e)
{
    struct info_properties p;
    if (info->columns)
        return print_columns(info, e);
    if (info->format == TABLE_CSV && (info->list_tensors || info->checks))
        return info_tensors_print(info, false, e);
    if (info->format == TABLE_CSV)
        return shows_variants(info) && info->cost.shows_steps
                   ? info_cost_print(&info->cost, info->format, info->out, e)
                   : print_parts(info, e);
    enum status s = info_describe(&p, info, e);
    if (s == STATUS_OK && table_is_for_people(info->format))
        s = print_for_people(info, &p, e);
    else if (s == STATUS_OK)
        info_print_json(info, &p);
    bytes_free(&p.by_layer);
    return s;
}
