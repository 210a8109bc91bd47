#include "cli/convert_report.h"

#include <math.h>
#include <stdio.h>

#include "show/figures.h"
#include "show/json.h"

/* --- tables ---------------------------------------------------------------------------------- */

static enum status print_layers(const struct convert_report *r, enum table_format format,
                                struct output *out, struct err *e)
{
    static const struct table_column shares[] = {
        {.name = "layer"},
        {.name = "score_lost", .decimals = 5},
        {.name = "output_lost", .decimals = 5},
    };
    struct table t;
    table_begin(&t, format, shares, 3, out);
    for (int l = 0; l < r->converted->n_layers; l++) {
        table_u64(&t, (uint64_t)l);
        table_double(&t, r->converted->layers[l].score);
        table_double(&t, r->converted->layers[l].output);
    }
    return table_end(&t, e);
}

static void put_bytes(struct table *t, const char *name, uint64_t before, uint64_t after)
{
    table_string(t, name);
    table_string(t, figure_bytes((double)before).text);
    table_string(t, figure_bytes((double)after).text);
    table_null(t);
}

static void put_bits(struct table *t, double before, double after)
{
    char text[32];
    table_string(t, "bits per byte");
    snprintf(text, sizeof text, "%.4f", before);
    table_string(t, text);
    snprintf(text, sizeof text, "%.4f", after);
    table_string(t, text);
    snprintf(text, sizeof text, "%+.4f", after - before);
    table_string(t, text);
}

static enum status print_figures(const struct convert_report *r, enum table_format format,
                                 struct output *out, struct err *e)
{
    static const struct table_column columns[] = {{.name = "figure", .left = true},
                                                  {.name = "before"},
                                                  {.name = "after"},
                                                  {.name = "change"}};
    const struct convert_figures *a = &r->before, *b = &r->after;
    struct table t;
    table_begin(&t, format, columns, 4, out);
    table_string(&t, "variant");
    table_string(&t, a->variant);
    table_string(&t, b->variant);
    table_null(&t);
    put_bytes(&t, "cache a token, f32", a->kv_bytes_per_token_f32, b->kv_bytes_per_token_f32);
    put_bytes(&t, "cache a token, f16", a->kv_bytes_per_token_f16, b->kv_bytes_per_token_f16);
    table_string(&t, "parameters");
    table_u64(&t, a->parameters);
    table_u64(&t, b->parameters);
    table_null(&t);
    put_bytes(&t, "file", a->file_bytes, b->file_bytes);
    if (!isnan(b->bits_per_byte))
        put_bits(&t, a->bits_per_byte, b->bits_per_byte);
    table_string(&t, "seconds");
    table_null(&t);
    table_string(&t, figure_duration((uint64_t)(r->seconds * 1e9)).text);
    table_null(&t);
    return table_end(&t, e);
}

static void put_row(struct table *t, const char *name, double before, double after)
{
    table_string(t, name);
    table_double(t, before);
    table_double(t, after);
}

/* For scripts: no units, and the names that JSON has. */
static enum status print_csv_figures(const struct convert_report *r, struct output *out,
                                     struct err *e)
{
    static const struct table_column columns[] = {
        {.name = "figure"}, {.name = "before"}, {.name = "after"}};
    const struct convert_figures *a = &r->before, *b = &r->after;
    struct table t;
    table_begin(&t, TABLE_CSV, columns, 3, out);
    table_string(&t, "variant");
    table_string(&t, a->variant);
    table_string(&t, b->variant);
    put_row(&t, "kv_bytes_per_token_f32", (double)a->kv_bytes_per_token_f32,
            (double)b->kv_bytes_per_token_f32);
    put_row(&t, "kv_bytes_per_token_f16", (double)a->kv_bytes_per_token_f16,
            (double)b->kv_bytes_per_token_f16);
    put_row(&t, "parameters", (double)a->parameters, (double)b->parameters);
    put_row(&t, "file_bytes", (double)a->file_bytes, (double)b->file_bytes);
    put_row(&t, "bits_per_byte", a->bits_per_byte, b->bits_per_byte);
    put_row(&t, "seconds", (double)NAN, r->seconds);
    return table_end(&t, e);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_u64(struct json *j, const char *key, uint64_t x)
{
    json_key(j, key);
    json_u64(j, x);
}

static void put_double(struct json *j, const char *key, double x)
{
    json_key(j, key);
    json_double(j, x);
}

static void put_string(struct json *j, const char *key, const char *s)
{
    json_key(j, key);
    json_string(j, s);
}

static void put_bool(struct json *j, const char *key, bool x)
{
    json_key(j, key);
    json_bool(j, x);
}

static void put_side(struct json *j, const char *key, const struct convert_figures *f)
{
    json_key(j, key);
    json_begin_object(j);
    put_string(j, "variant", f->variant);
    put_u64(j, "kv_bytes_per_token_f32", f->kv_bytes_per_token_f32);
    put_u64(j, "kv_bytes_per_token_f16", f->kv_bytes_per_token_f16);
    put_u64(j, "parameters", f->parameters);
    put_u64(j, "file_bytes", f->file_bytes);
    put_double(j, "bits_per_byte", f->bits_per_byte);
    json_end(j);
}

static void print_json(const struct convert_report *r, bool one_line, struct output *out)
{
    struct json j;
    json_init(&j, out, one_line ? 0 : 1);
    json_begin_object(&j);
    put_string(&j, "method", convert_methods[r->spec->method]);
    put_string(&j, "grouping", r->spec->cluster ? "cluster" : "adjacent");
    put_bool(&j, "refit", r->spec->refit);
    put_u64(&j, "calibration_tokens", r->spec->n_tokens);
    json_key(&j, "layers");
    json_begin_array(&j);
    for (int l = 0; l < r->converted->n_layers; l++) {
        json_begin_object(&j);
        put_double(&j, "score_lost", r->converted->layers[l].score);
        put_double(&j, "output_lost", r->converted->layers[l].output);
        json_end(&j);
    }
    json_end(&j);
    put_side(&j, "before", &r->before);
    put_side(&j, "after", &r->after);
    put_double(&j, "seconds", r->seconds);
    json_end(&j);
    output_puts(out, "\n");
}

enum status convert_report_print(const struct convert_report *r, enum table_format format,
                                 struct output *out, struct err *e)
{
    if (format == TABLE_JSON || format == TABLE_JSONL) {
        print_json(r, format == TABLE_JSONL, out);
        return STATUS_OK;
    }
    enum status s = print_layers(r, format, out, e);
    if (s != STATUS_OK)
        return s;
    output_puts(out, "\n");
    return format == TABLE_CSV ? print_csv_figures(r, out, e) : print_figures(r, format, out, e);
}
