#include "cli/convert_report.h"

#include <math.h>
#include <stdio.h>

#include "cli/columns.h"

/* --- what is printed ------------------------------------------------------------------------- */

static struct figure figure_of_seconds(double seconds)
{
    return figure_duration(seconds * 1e9);
}

/* Of the checkpoint before, and after. */
static const struct report_field figure_fields[] = {
    {"variant", "variant", MEMBER(convert_figures, variant)},
    {"kv_bytes_per_token_f32", "cache a token, f32",
     MEMBER(convert_figures, kv_bytes_per_token_f32), .figure = figure_bytes},
    {"kv_bytes_per_token_f16", "cache a token, f16",
     MEMBER(convert_figures, kv_bytes_per_token_f16), .figure = figure_bytes},
    {"parameters", "parameters", MEMBER(convert_figures, parameters)},
    {"file_bytes", "file", MEMBER(convert_figures, file_bytes), .figure = figure_bytes},
    {"divergence", "divergence", MEMBER(convert_figures, divergence), "%.4f"},
    {"bits_per_byte", "bits per byte", MEMBER(convert_figures, bits_per_byte), "%.4f"},
};
static const struct report_field seconds_field = {
    "seconds", "seconds", MEMBER(convert_figures, seconds), .figure = figure_of_seconds};

struct layer_row {
    int layer;
    double score_lost, output_lost;
};

static const struct report_field layer_fields[] = {
    {"layer", "layer", MEMBER(layer_row, layer)},
    {"score_lost", "score_lost", MEMBER(layer_row, score_lost), "%.5f"},
    {"output_lost", "output_lost", MEMBER(layer_row, output_lost), "%.5f"},
};

struct layer_rows {
    const struct convert *converted;
    struct layer_row row;
};

static const void *next_layer(void *arg, int l)
{
    struct layer_rows *rows = arg;
    const struct convert *c = rows->converted;
    if (l >= c->n_layers)
        return NULL;
    rows->row = (struct layer_row){l, c->layers[l].score, c->layers[l].output};
    return &rows->row;
}

/* --- tables ---------------------------------------------------------------------------------- */

static double double_of(const struct convert_figures *x, const struct report_field *f)
{
    return *(const double *)((const char *)x + f->offset);
}

/* The change only of fractions, and only for people. */
static void print_figure(struct report *t, const struct convert_report *r,
                         const struct report_field *f)
{
    static const struct report_field changed = {NULL, "change", REPORT_DOUBLE, .format = "%+.4f"};
    const double change =
        f->format ? double_of(&r->after, f) - double_of(&r->before, f) : (double)NAN;
    report_string(t, report_name(t->format, f));
    report_cell(t, f, &r->before);
    report_cell(t, f, &r->after);
    if (table_is_for_people(t->format))
        report_cell(t, &changed, &change);
}

static enum status print_figures(const struct convert_report *r, enum table_format format,
                                 struct output *out, struct err *e)
{
    static const struct report_field columns[] = {{"figure", "figure", .type = REPORT_TEXT},
                                                  {"before", "before", .type = REPORT_DOUBLE},
                                                  {"after", "after", .type = REPORT_DOUBLE},
                                                  {NULL, "change", .type = REPORT_DOUBLE}};
    const bool people = table_is_for_people(format);
    struct report t;
    report_begin(&t, format, columns, REPORT_LENGTH(columns), out);
    for (int i = 0; i < REPORT_LENGTH(figure_fields); i++)
        if (!people || !figure_fields[i].format || !isnan(double_of(&r->after, &figure_fields[i])))
            print_figure(&t, r, &figure_fields[i]);
    print_figure(&t, r, &seconds_field);
    return report_end(&t, e);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void convert_report_json(const struct convert_report *r, bool one_line, struct output *out)
{
    struct json j;
    json_init(&j, out, one_line ? 0 : 1);
    json_begin_object(&j, NULL);
    const bool latent = config_is_latent(&r->converted->config);
    json_string(&j, "method", latent ? "latent" : convert_methods[r->spec->method]);
    if (!latent)
        json_string(&j, "grouping", r->spec->cluster ? "cluster" : "adjacent");
    json_string(&j, "refit", convert_refits[r->spec->refit]);
    json_u64(&j, "calibration_tokens", r->spec->n_tokens);
    json_begin_array(&j, "layers");
    struct layer_rows layers = {.converted = r->converted};
    for (int l = 0; next_layer(&layers, l); l++)
        report_object(&j, NULL, layer_fields + 1, REPORT_LENGTH(layer_fields) - 1, &layers.row);
    json_end(&j);
    report_object(&j, "before", figure_fields, REPORT_LENGTH(figure_fields), &r->before);
    report_object(&j, "after", figure_fields, REPORT_LENGTH(figure_fields), &r->after);
    report_members(&j, &seconds_field, 1, &r->after);
    json_end(&j);
    output_puts(out, "\n");
}

enum status convert_report_print(const struct convert_report *r, enum table_format format,
                                 struct output *out, struct err *e)
{
    if (table_is_json(format)) {
        convert_report_json(r, format == TABLE_JSONL, out);
        return STATUS_OK;
    }
    struct layer_rows layers = {.converted = r->converted};
    const struct table table = {layer_fields, REPORT_LENGTH(layer_fields), .row = next_layer,
                                .arg = &layers};
    TRY(table_print(&table, NULL, format, out, e));
    output_puts(out, "\n");
    return print_figures(r, format, out, e);
}
