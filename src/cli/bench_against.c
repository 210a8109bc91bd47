#include "cli/bench_against.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal.h"
#include "formats/json.h"

static const struct json_limits limits = {
    .bytes = (size_t)64 << 20, .values = (uint32_t)1 << 22, .depth = 8};

/* A member's text, of less than `size` bytes. */
static enum status read_name(const struct json_node *row, const char *key, char *out, size_t size,
                             struct err *e)
{
    const struct json_node *node;
    TRY(json_require(row, key, JSON_STRING, &node, e));
    if (node->text.len >= size)
        return err_bad_file(e, "byte %zu: \"%s\": expected less than %zu bytes, found %zu",
                            node->at, key, size, node->text.len);
    snprintf(out, size, "%.*s", (int)node->text.len, node->text.data);
    utf8_strip(out);
    return STATUS_OK;
}

static enum status read_count(const struct json_node *row, const char *key, int *out, struct err *e)
{
    const struct json_node *node;
    int64_t x;
    TRY(json_require(row, key, JSON_NUMBER, &node, e));
    TRY(json_node_i64(node, 0, INT_MAX, &x, e));
    *out = (int)x;
    return STATUS_OK;
}

/* A time above 0; where it may be left out, NaN if it is, or null. */
static enum status read_time(const struct json_node *row, const char *key, bool optional,
                             double *out, struct err *e)
{
    const struct json_node *node = json_member(row, key);
    *out = (double)NAN;
    if (optional && (!node || node->kind == JSON_NULL))
        return STATUS_OK;
    TRY(json_require(row, key, JSON_NUMBER, &node, e));
    TRY(json_node_double(node, out, e));
    if (*out > 0)
        return STATUS_OK;
    return err_bad_file(e, "byte %zu: \"%s\": expected a time above 0, found %g", node->at, key,
                        *out);
}

static enum status read_row(const struct json_node *node, struct former_row *row, struct err *e)
{
    TRY(json_expect(node, JSON_OBJECT, e));
    TRY(read_name(node, "variant", row->variant, sizeof row->variant, e));
    TRY(read_name(node, "type", row->type, sizeof row->type, e));
    TRY(read_name(node, "kv_type", row->kv_type, sizeof row->kv_type, e));
    TRY(read_count(node, "threads", &row->threads, e));
    TRY(read_count(node, "depth", &row->depth, e));
    TRY(read_count(node, "batch", &row->batch, e));
    TRY(read_time(node, "p50_us", false, &row->p50_us, e));
    TRY(read_time(node, "p50_low_us", true, &row->p50_low_us, e));
    return read_time(node, "p50_high_us", true, &row->p50_high_us, e);
}

static enum status read_rows(const struct json_node *root, struct former *f, struct err *e)
{
    TRY(json_expect(root, JSON_ARRAY, e));
    if (root->n == 0)
        return err_bad_file(e, "expected the rows of bench --format json, found none");
    f->rows = calloc(root->n, sizeof *f->rows);
    if (!f->rows)
        return err_no_memory(e, "the former rows", root->n * sizeof *f->rows);
    for (const struct json_node *c = NULL; (c = json_child(root, c));) {
        TRY(read_row(c, &f->rows[f->n++], e));
        const struct json_node *of = json_member(c, "model");
        of = of && of->kind == JSON_STRING ? of : json_member(c, "shape");
        if (of && of->kind == JSON_STRING)
            snprintf(f->subject, sizeof f->subject, "%.*s", text_width(of->text), of->text.data);
    }
    utf8_strip(f->subject);
    return STATUS_OK;
}

enum status former_read(const char *path, struct former *f, struct err *e)
{
    struct json_reader reader = {0};
    const struct json_node *root;
    char *bytes = NULL;
    size_t len;
    TRY(file_read_all(path, limits.bytes, &bytes, &len, e));
    enum status s = json_read(&reader, (struct text){bytes, len}, &limits, &root, e);
    if (s == STATUS_OK)
        s = read_rows(root, f, e);
    json_reader_free(&reader);
    free(bytes);
    return err_in(e, s, "%s", path);
}

void former_free(struct former *f)
{
    free(f->rows);
    *f = (struct former){.n = 0};
}

const struct former_row *former_find(struct former *f, const struct bench_row *row)
{
    const struct inspect_step *s = &row->step;
    for (struct former_row *old = f->rows; old < f->rows + f->n; old++)
        if (strcmp(old->variant, s->variant) == 0 && strcmp(old->kv_type, s->kv_type) == 0 &&
            strcmp(old->type, storage_name(row->type)) == 0 && old->threads == row->threads &&
            old->depth == s->depth && old->batch == s->batch) {
            old->found = true;
            return old;
        }
    return NULL;
}

#define SETTING "%s, %s weights, %s KV, %d threads, depth %d, batch %d"

void former_say_others(struct former *f, const struct bench *b, const char *subject,
                       const struct common_options *o)
{
    if (f->subject[0] && strcmp(f->subject, subject) != 0)
        say(o, "--against: its rows are of %s, these of %s", f->subject, subject);
    for (const struct bench_row *row = b->rows; row < b->rows + b->n_rows; row++)
        if (!former_find(f, row))
            say(o, "--against has no row of " SETTING, row->step.variant, storage_name(row->type),
                row->step.kv_type, row->threads, row->step.depth, row->step.batch);
    for (const struct former_row *old = f->rows; old < f->rows + f->n; old++)
        if (!old->found)
            say(o, "only --against has " SETTING, old->variant, old->type, old->kv_type,
                old->threads, old->depth, old->batch);
}
