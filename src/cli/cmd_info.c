/*
 * cmd_info - decode info: what a checkpoint holds, what it or a shape costs.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/limits.h"
#include "cli/info_cost.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/shape.h"
#include "model/pack.h"
#include "show/paragraph.h"

/* Of --bandwidth: with more, times are less than a double of microseconds shows. */
#define MOST_GB_PER_S 1e9

struct info_options {
    struct common_options common;
    bool tensors, check;
    struct shape_options shape;
    int type; /* of storage_names, and 1 more; 0: not given */
    const char *latent, *depths, *batches, *bandwidth;
    double gflops; /* per second; 0: not given */
};

#define VALUES struct info_options

static const struct option own_options[] = {
    OPT_FLAG("tensors", tensors,
             "list every tensor: name, shape (row length first), type, bytes, offset in the file"),
    OPT_FLAG("check", check,
             "read every tensor and count values that are not finite; exit code 3 if there are"),
    OPT_FORMAT,
    OPT_END,
};

static const struct option shape_info_options[] = {
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of its weight matrices",
               .otherwise = "f32", .needs = "shape"),
    OPT_END,
};

static const struct option step_options[] = {
    OPT_STRING("latent", latent, "R,R,...",
               "latent caches of these ranks as more variants (see convert --latent)"),
    OPT_STRING("depth", depths, "D,D,...", "tokens that every sequence has in its cache",
               .otherwise = "0 and the context"),
    OPT_STRING("batch", batches, "B,B,...", "sequences that a step serves", .otherwise = "1"),
    OPT_CHOICE("kv-type", common.kv_type, "TYPE", kv_type_names, "how keys and values are cached",
               .fallback = "f32"),
    OPT_STRING(
        "bandwidth", bandwidth, "GB/s|auto",
        "predict a step's time on a machine that reads so fast; auto: this one, measured with "
        "DECODE_THREADS threads",
        .otherwise = "no prediction"),
    OPT_DOUBLE("flops", gflops, "GFLOP/s", 0, MOST_GB_PER_S,
               "and computes so fast, two operations a multiply-add", .above_min = true,
               .otherwise = "arithmetic is not counted", .needs = "bandwidth"),
    OPT_END,
};

static bool is_auto(const struct info_options *o)
{
    return o->bandwidth && strcmp(o->bandwidth, "auto") == 0;
}

/* A tensor of the file. */
struct info_tensor {
    struct gguf_tensor tensor;
    const char *type;
    struct shape_text shape;
    uint64_t offset; /* of the data, from the start of the file */
    struct inspect_check check;
};

struct info {
    const struct info_options *o;
    struct job *job;
    enum table_format format;
    struct file_map file; /* of job.path; none of a shape */
    struct gguf *gguf;
    struct tokenizer *tokenizer;                /* NULL: none, or it cannot be read */
    struct text architecture, name, token_kind; /* no data: none is stated */
    struct err refusal, tokenizer_problem;      /* why the one does not run, the other not read */
    struct config config; /* of an architecture that runs here, with tensors */
    bool has_config;
    bool runs; /* the weights are of a type that runs here: the type in cost.shape means it */
    struct info_cost cost;
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    struct info_tensor *tensors; /* [gguf->n_tensors] malloc'd if listed or checked; else NULL */
    struct info_check {
        int64_t checked, unchecked, bad; /* tensors */
        int64_t nan, inf;                /* values */
    } check;
};

/* --- what there is --------------------------------------------------------------------------- */

/* Lists the tensors, checked if that is wanted. */
static enum status take_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    struct info_check *sum = &info->check;
    info->tensors = calloc(g->n_tensors + 1, sizeof *info->tensors);
    if (!info->tensors)
        return err_no_memory(e, "the list of tensors", (g->n_tensors + 1) * sizeof *info->tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct info_tensor *t = &info->tensors[i];
        *t =
            (struct info_tensor){.tensor = g->tensors[i],
                                 .type = g->tensors[i].type->name,
                                 .shape = pack_shape_text(g->tensors[i].n_dims, g->tensors[i].dims),
                                 .offset = (uint64_t)(g->tensors[i].data - info->file.data),
                                 .check = {.nan = -1, .inf = -1}};
        if (info->o->check)
            t->check = inspect_check_tensor(&t->tensor);
        const struct inspect_check *c = &t->check;
        if (c->nan < 0) {
            sum->unchecked++;
            continue;
        }
        sum->checked++;
        sum->nan += c->nan;
        sum->inf += c->inf;
        sum->bad += c->nan + c->inf > 0;
    }
    return STATUS_OK;
}

static enum status read_file(struct info *info, struct err *e)
{
    struct config config;
    bool found;
    TRY(gguf_parse_file(&info->file, &info->gguf, e));
    const struct gguf *g = info->gguf;
    TRY(gguf_get_text(g, "general.architecture", &info->architecture, &found, e));
    TRY(gguf_get_text(g, "general.name", &info->name, &found, e));
    TRY(gguf_get_text(g, "tokenizer.ggml.model", &info->token_kind, &found, e));
    info->cost.shape = (struct cost_shape){.tied = layout_output_tied(g), .gguf = g};
    /* Of the architectures that run here the hyperparameters must be readable; of others the keys
     * are shown. */
    const bool is_known = info->architecture.data && arch_find(info->architecture);
    if (is_known && g->n_tensors > 0) {
        TRY(config_parse(g, &info->config, e));
        info->has_config = true;
        info->runs = cost_shape_of_file(g, &info->config, &info->cost.shape) &&
                     config_read(g, &config, &info->refusal) == STATUS_OK;
    }
    /* What is wrong with a tokenizer is one of its properties. */
    if (is_known && info->token_kind.len > 0) {
        const enum status s = tokenizer_create(g, &info->tokenizer, &info->tokenizer_problem);
        if (s == STATUS_NO_MEMORY)
            return err_set(e, s, "%s", info->tokenizer_problem.text);
        if (s == STATUS_OK)
            (void)tokenizer_reads_text(info->tokenizer, &info->tokenizer_problem);
    }
    return info->o->tensors || info->o->check ? take_tensors(info, e) : STATUS_OK;
}

/* A shape instead of a file. */
static enum status read_shape(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const enum storage type = o->type ? (enum storage)(o->type - 1) : STORAGE_F32;
    TRY(shape_of_options(&o->shape, &o->common, &info->config, e));
    TRY(model_check_storage(&info->config, type, e));
    info->architecture = text_of(info->config.arch->name);
    info->cost.shape = (struct cost_shape){.config = &info->config,
                                           .n_kv_heads = info->config.n_kv_heads,
                                           .storage = type,
                                           .tied = !info->config.arch->own_output};
    info->has_config = info->runs = true;
    return STATUS_OK;
}

static enum status plan_cost(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    struct info_cost *c = &info->cost;
    double gb_per_s;
    if (o->latent && !info->runs)
        return err_set(e, STATUS_USAGE, "--latent: expected a checkpoint that runs");
    if (o->latent)
        TRY(list_ints("--latent", o->latent, 1, CONFIG_MAX_WIDTH, &c->ranks, e));
    for (int i = 0; i < c->ranks.n; i++)
        TRY(config_check_rank(&info->config, c->ranks.items[i], e));
    /* Of a shape, which has nothing else to show, steps are always asked. */
    if (info->runs && (o->shape.shape || o->depths || o->batches || o->bandwidth)) {
        char context[32];
        snprintf(context, sizeof context, "0,%d", info->config.n_ctx);
        TRY(list_ints("--depth", o->depths ? o->depths : context, 0, info->config.n_ctx, &c->depths,
                      e));
        TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &c->batches, e));
        c->kv_type = kv_type_storage[o->common.kv_type];
        if (is_auto(o)) {
            TRY(job_start_threads(info->job, e));
            c->kernels = info->job->kernels;
            c->pool = info->job->pool;
        } else if (o->bandwidth) {
            if (!parse_double(o->bandwidth, &gb_per_s) || gb_per_s <= 0 || gb_per_s > MOST_GB_PER_S)
                return err_set(
                    e, STATUS_USAGE,
                    "--bandwidth: expected auto or GB/s above 0, at most %g, found '%.60s'",
                    MOST_GB_PER_S, o->bandwidth);
            const double flops = o->gflops > 0 ? o->gflops * 1e9 : (double)INFINITY;
            c->limits = (struct roofline){gb_per_s * 1e9, flops, flops};
        }
    }
    return info->has_config && !info->refusal.text[0] ? info_cost_plan(c, e) : STATUS_OK;
}

/* --- properties ------------------------------------------------------------------------------ */

/* Where properties go: into a table "property, value" for people, or as members of an object for
 * programs; the other one is NULL. */
struct properties {
    struct report *rows;
    struct json *json;
};

/* Without data there is none; people are not shown such, nor empty ones. */
static void show_text(const struct properties *p, const char *name, struct text value)
{
    if (p->json && value.data) {
        json_text(p->json, name, value);
    } else if (p->json) {
        json_null(p->json, name);
    } else if (value.len > 0) {
        report_string(p->rows, name);
        report_text(p->rows, value);
    }
}

static void show_string(const struct properties *p, const char *name, const char *value)
{
    show_text(p, name, text_of(value));
}

/* Why something does not work; "": it does. */
static void show_problem(const struct properties *p, const char *name, const struct err *e)
{
    show_text(p, name, (struct text){e->text[0] ? e->text : NULL, strlen(e->text)});
}

/* A number, or a truth, in digits. */
static void show_literal(const struct properties *p, const char *name, const char *digits)
{
    if (p->json)
        json_literal(p->json, name, text_of(digits));
    else
        show_string(p, name, digits);
}

static void show_bool(const struct properties *p, const char *name, bool value)
{
    show_literal(p, name, value ? "true" : "false");
}

/* A negative one is none. */
static void show_count(const struct properties *p, const char *name, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    if (value < 0)
        show_text(p, name, (struct text){NULL, 0});
    else
        show_literal(p, name, digits);
}

static void show_config(const struct properties *p, const struct config *c)
{
    const struct {
        const char *name;
        int size;
    } sizes[] = {{"n_layers", c->n_layers},
                 {"n_heads", c->n_heads},
                 {"n_kv_heads", c->n_kv_heads},
                 {"head_dim", c->head_dim},
                 {"value_dim", config_value_dim(c)},
                 {"d_model", c->d_model},
                 {"d_ff", c->d_ff},
                 {"n_ctx", c->n_ctx},
                 {"n_vocab", c->n_vocab}};
    char list[CONFIG_MAX_LAYERS * 8] = "", eps[32];
    const bool latent = config_is_latent(c);
    config_variant_name(c, c->n_kv_heads, list);
    show_string(p, "variant", list);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        show_count(p, sizes[i].name, sizes[i].size);
    /* "6, 2, 1": K/V heads or ranks layer by layer, where one number does not say it. */
    size_t used = 0;
    list[0] = 0;
    for (int l = 0; l < c->n_layers && (latent || !config_same_kv_heads(c)); l++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", l ? ", " : "",
                                 latent ? config_latent(c, l) : config_kv_heads(c, l));
    show_string(p, "kv_heads_by_layer", latent ? "" : list);
    show_string(p, "latent", latent ? list : "");
    show_string(p, "norm", arch_norm_names[c->norm]);
    show_string(p, "placement", arch_placement_names[c->placement]);
    show_string(p, "position", arch_position_names[c->position]);
    show_string(p, "ffn", arch_ffn_names[c->ffn]);
    show_bool(p, "shared_block", c->shared);
    snprintf(eps, sizeof eps, "%g", (double)c->norm_eps);
    show_literal(p, "norm_eps", p->json ? figure_exact((double)c->norm_eps).text : eps);
}

/* A file without the key of its kind has none; of one that cannot be read there is only what is
 * wrong with it. */
static void show_tokenizer(const struct properties *p, const struct info *info)
{
    const struct tokenizer *t = info->tokenizer;
    if (info->token_kind.len == 0) {
        show_text(p, "tokenizer", (struct text){NULL, 0});
        return;
    }
    if (p->json)
        json_begin_object(p->json, "tokenizer");
    show_text(p, p->json ? "model" : "tokenizer", info->token_kind);
    show_problem(p, "problem", &info->tokenizer_problem);
    if (t) {
        show_count(p, "n_tokens", tokenizer_n_tokens(t));
        show_count(p, "bos", tokenizer_bos(t));
        show_count(p, "eos", tokenizer_eos(t));
        show_bool(p, "adds_bos", tokenizer_adds_bos(t));
    }
    if (p->json)
        json_end(p->json);
}

#define MAX_TYPES 64

/* How many tensors are of each type, in order of first use. */
static void show_types(const struct properties *p, const struct gguf *g)
{
    const char *types[MAX_TYPES];
    int64_t counts[MAX_TYPES] = {0};
    int n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        int at = 0;
        while (at < n && types[at] != g->tensors[i].type->name)
            at++;
        if (at == MAX_TYPES)
            continue;
        n += at == n;
        types[at] = g->tensors[i].type->name;
        counts[at]++;
    }
    if (p->json)
        json_begin_object(p->json, "types");
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", types[i], p->json ? "" : " tensors");
        show_count(p, name, counts[i]);
    }
    if (p->json)
        json_end(p->json);
}

/* The scalar keys that stand nowhere else: what a conversion says of itself, and of an architecture
 * that does not run here its own and the general ones. */
static void show_other_keys(struct report *r, const struct info *info)
{
    for (size_t i = 0; i < info->gguf->n_pairs; i++) {
        const struct text key = info->gguf->pairs[i].key;
        const struct gguf_value *v = &info->gguf->pairs[i].value;
        const bool told = info->has_config ? !text_starts_with(key, "decode.convert.")
                                           : text_is(key, "general.architecture") ||
                                                 text_is(key, "general.name") ||
                                                 text_starts_with(key, "tokenizer.");
        if (v->kind == GGUF_ARRAY || told)
            continue;
        struct figure f = {""};
        if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
            f = figure_exact(gguf_float_at(v, 0));
        else if (v->kind != GGUF_STRING)
            snprintf(f.text, sizeof f.text, "%" PRId64, gguf_int_at(v, 0));
        report_text(r, key);
        report_text(r, v->kind == GGUF_STRING
                           ? (struct text){v->bytes.data, (size_t)text_width(v->bytes)}
                           : text_of(f.text));
    }
}

static void show_properties(const struct properties *p, const struct info *info)
{
    const struct gguf *g = info->gguf;
    if (g) {
        show_string(p, "file", info->job->path);
        show_count(p, "file_bytes", (int64_t)info->file.len);
        show_count(p, "gguf_version", g->version);
        show_count(p, "n_keys", (int64_t)g->n_pairs);
        show_count(p, "n_tensors", (int64_t)g->n_tensors);
    } else {
        show_string(p, "shape", info->o->shape.shape);
    }
    show_text(p, "architecture", info->architecture);
    if (g)
        show_text(p, "name", info->name);
    else
        show_string(p, "type", storage_name(info->cost.shape.storage));
    if (info->has_config) {
        show_config(p, &info->config);
        show_problem(p, "does_not_run", &info->refusal);
        show_bool(p, "tied_output", info->cost.shape.tied);
    }
    if (g) {
        show_tokenizer(p, info);
        show_types(p, g);
    }
    if (g && p->rows)
        show_other_keys(p->rows, info);
    if (info->o->check) {
        if (p->json)
            json_begin_object(p->json, "check");
        show_count(p, "tensors_checked", info->check.checked);
        show_count(p, "tensors_not_checked", info->check.unchecked);
        show_count(p, "nan", info->check.nan);
        show_count(p, "inf", info->check.inf);
        if (p->json)
            json_end(p->json);
    }
    /* A layer's Q, K, V and output have so many weights where every head has its own. */
    const int64_t d_model = info->config.d_model;
    if (p->json && info->has_config)
        show_count(p, "attention_4_d_model_squared",
                   4 * d_model * d_model * config_blocks(&info->config));
    if (p->json && info->cost.steps) /* where it is not known that is a negative number */
        show_count(p, "memory_available_bytes", (int64_t)info->cost.available);
}

/* --- tables ---------------------------------------------------------------------------------- */

#define PART(member) MEMBER(inspect_sum, member)
static const struct report_field part_fields[] = {
    {"part", "part", PART(part)},
    {"parameters", "parameters", PART(parameters), .grouped = true},
    {NULL, "share", PART(percent), "%.1f%%"},
    {"bytes", "bytes", PART(bytes), .grouped = true, .rank = 1},
    {"weights", "weights", PART(weights), .grouped = true, .rank = 2},
    {"biases", "biases", PART(biases), .grouped = true, .rank = 3},
};

/* The last two with --check. */
#define TENSOR(member) MEMBER(info_tensor, member)
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", TENSOR(tensor.name)},
    {"shape", "shape", TENSOR(shape.text), .right = true},
    {"type", "type", TENSOR(type)},
    {"bytes", "bytes", TENSOR(tensor.n_bytes), .rank = 1},
    {"offset", "offset", TENSOR(offset), .rank = 2},
    {"nan", "nan", TENSOR(check.nan), .none = "not checked"},
    {"inf", "inf", TENSOR(check.inf), .none = "not checked"},
};

/* In the order in which people read them; without rows where one is not wanted. */
enum { TABLE_PARTS, TABLE_CACHES, TABLE_STEPS, TABLE_TENSORS, INFO_TABLES };

/* An array of rows; but the parts are an object for each figure, the total first, and a tensor's
 * shape is an array. */
static void json_table(struct json *j, int table, const struct table *t)
{
    static const char *const keys[INFO_TABLES] = {
        [TABLE_CACHES] = "kv_cache", [TABLE_STEPS] = "steps", [TABLE_TENSORS] = "tensors"};
    for (int f = 0; f < t->n && table == TABLE_PARTS; f++) {
        if (!t->fields[f].grouped)
            continue;
        json_begin_object(j, t->fields[f].key);
        for (int i = 0; i < t->n_rows; i++) {
            const struct inspect_sum *sums = t->rows, *sum = &sums[i ? i - 1 : t->n_rows - 1];
            report_member(j, sum->part, &t->fields[f], sum);
        }
        json_end(j);
    }
    if (table == TABLE_PARTS)
        return;
    json_begin_array(j, keys[table]);
    for (int i = 0; i < t->n_rows; i++) {
        const void *row = (const char *)t->rows + (size_t)i * t->row_bytes;
        json_begin_object(j, NULL);
        if (table == TABLE_TENSORS) {
            const struct gguf_tensor *tensor = &((const struct info_tensor *)row)->tensor;
            json_text(j, "name", tensor->name);
            json_begin_array(j, "shape");
            for (int d = 0; d < tensor->n_dims; d++)
                json_u64(j, NULL, tensor->dims[d]);
            json_end(j);
        }
        const int own = table == TABLE_TENSORS ? 2 : 0; /* fields that are written */
        report_members(j, t->fields + own, t->n - own, row);
        json_end(j);
    }
    json_end(j);
}

/* Properties and tables: several for people, or one JSON object. */
static enum status print_whole(const struct info *info, const struct table tables[INFO_TABLES],
                               struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
    struct output *out = info->job->out;
    struct report rows;
    struct json json, *j = table_is_json(info->format) ? &json : NULL;
    if (j) {
        json_init(j, out, info->format == TABLE_JSONL ? 0 : 2);
        json_begin_object(j, NULL);
        show_properties(&(struct properties){.json = j}, info);
    } else {
        report_begin(&rows, info->format, columns, 2, out);
        show_properties(&(struct properties){.rows = &rows}, info);
        TRY(report_end(&rows, e));
    }
    for (int i = 0; i < INFO_TABLES; i++) {
        const struct table *t = &tables[i];
        if (t->n_rows == 0)
            continue;
        if (!j) {
            output_puts(out, "\n");
            if (i == TABLE_CACHES)
                info_cost_explain(&info->cost, out);
            if (i == TABLE_STEPS)
                info_cost_explain_steps(&info->cost, out);
            TRY(table_print(t, info->format, out, e));
            continue;
        }
        json_table(j, i, t);
    }
    if (j) {
        json_end(j);
        output_puts(out, "\n");
    }
    return STATUS_OK;
}

static enum status print_info(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const int n_tensors = info->gguf ? (int)info->gguf->n_tensors : 0;
    const bool json = table_is_json(info->format), csv = info->format == TABLE_CSV,
               people = !json && !csv;
    struct table tables[INFO_TABLES] = {[TABLE_PARTS] = TABLE_OF(part_fields, info->parts, 0),
                                        [TABLE_CACHES] = info->cost.cache_table,
                                        [TABLE_STEPS] = info->cost.step_table,
                                        [TABLE_TENSORS] =
                                            TABLE_OF(tensor_fields, info->tensors, 0)};
    struct table *parts = &tables[TABLE_PARTS], *tensors = &tables[TABLE_TENSORS];
    /* People are shown parts that there are, and with --check alone the tensors that are bad. */
    for (int i = 0; i <= INSPECT_PARTS && (!info->gguf || n_tensors > 0 || !people); i++)
        if (!people || i == INSPECT_PARTS || info->parts[i].parameters > 0)
            info->parts[parts->n_rows++] = info->parts[i];
    tensors->n -= o->check ? 0 : 2;
    for (int i = 0; i < n_tensors && (o->tensors || (o->check && !json)); i++)
        if (o->tensors || csv || info->tensors[i].check.nan + info->tensors[i].check.inf > 0)
            info->tensors[tensors->n_rows++] = info->tensors[i];
    if (!csv)
        return print_whole(info, tables, e);
    /* CSV has one table. */
    int last = INFO_TABLES - 1;
    while (last > 0 && (tables[last].n_rows == 0 || last == TABLE_CACHES))
        last--;
    return table_print(&tables[last], info->format, info->job->out, e);
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status show_info(struct info *info, struct err *e)
{
    if (info->o->shape.shape) {
        TRY(read_shape(info, e));
    } else {
        TRY(job_map(info->job->path, &info->file, e));
        TRY(err_in(e, read_file(info, e), "%s", info->job->path));
    }
    inspect_parts(&info->cost.shape, info->parts);
    TRY(plan_cost(info, e));
    TRY(print_info(info, e));
    if (info->check.bad == 0)
        return STATUS_OK;
    const struct info_tensor *t = info->tensors;
    while (t->check.nan + t->check.inf <= 0)
        t++;
    return err_bad_file(e,
                        "%.200s: tensor '%.*s' has %" PRId64 " values that are not finite, the "
                        "first%s at element %" PRIu64,
                        info->job->path, text_width(t->tensor.name), t->tensor.name.data,
                        t->check.nan + t->check.inf,
                        t->check.scales_only ? " (a block's scale)" : "", t->check.first);
}

static enum status check_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    if (o->shape.shape && (o->tensors || o->check))
        return err_set(e, STATUS_USAGE, "%s is for a checkpoint; --shape has no file",
                       o->tensors ? "--tensors" : "--check");
    if (is_auto(o) && o->gflops > 0)
        return err_set(e, STATUS_USAGE,
                       "--flops is for a --bandwidth in GB/s; auto measures arithmetic, too");
    if (o->shape.shape)
        j->needs &= ~(unsigned)JOB_PATH;
    if (is_auto(o))
        j->needs |= JOB_WORKERS;
    return STATUS_OK;
}

static enum status run_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    struct info info = {.o = o, .job = j, .format = (enum table_format)o->common.format};
    const enum status s = show_info(&info, e);
    info_cost_free(&info.cost);
    free(info.tensors);
    tokenizer_free(info.tokenizer);
    gguf_free(info.gguf);
    file_map_close(&info.file);
    return s;
}

const struct command command_info = {
    .name = "info",
    .summary = "what a checkpoint holds, what it costs",
    .usage = "(MODEL | --shape SHAPE) [options]",
    .notes =
        "Architecture and hyperparameters, parameters and bytes by part, and the KV cache of\n"
        "every variant: as many K/V heads as query heads (MHA), one (MQA), or between (GQA).\n"
        "With --shape, or any option of steps: what a step of every variant holds and reads at\n"
        "each depth and batch, and whether weights and caches fit the memory that is free.\n"
        "With --bandwidth also how long it takes at least: what `decode bench` measures, without\n"
        "measuring. With --flops, too, it is for the products and for attention the larger of\n"
        "what bytes and operations take; else reading is all that takes time. auto measures both,\n"
        "reading as many bytes as the step does (at the next power of two, 512 MiB at most).\n"
        "JSON has the properties, parameters, weights, biases and bytes by part,\n"
        "attention_4_d_model_squared, kv_cache (variant, n_kv_heads, parameters,\n"
        "bytes_per_token_TYPE, bytes_full_context_TYPE), memory_available_bytes, and steps:\n"
        "variant, n_kv_heads, depth, batch, kv_type, cache_bytes (of all sequences),\n"
        "memory_bytes (weights and caches), fits, step_bytes (read), step_flops, predicted_us,\n"
        "limit_tokens_per_s, bandwidth_gb_per_s, limited_by. CSV holds the parts, or the steps if\n"
        "there are options of steps, or with --tensors or --check the tensors.\n",
    .spec = {.groups = {{"Contents", own_options, 0},
                        {"A shape instead of a checkpoint", shape_options, offsetof(VALUES, shape)},
                        {"The shape's weights", shape_info_options, 0},
                        {"Steps", step_options, 0},
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH,
    .check = check_info,
    .run = run_info,
};
