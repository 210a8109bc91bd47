/*
 * cmd_info - decode info: what a checkpoint holds, what it or a shape costs.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cli/costs.h"
#include "cli/numbers.h"
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

#define TYPES_MOST 64

struct info {
    const struct info_options *o;
    struct job *job;
    enum table_format format;
    struct file_map file; /* of job.path; none of a shape */
    struct gguf *gguf;
    struct tokenizer *tokenizer;                       /* NULL: none, or it cannot be read */
    struct err refusal, tokenizer_problem, not_finite; /* "": none */
    struct config config; /* of an architecture that runs here, with tensors */
    bool has_config;
    bool runs; /* the weights are of a type that runs here: the type in cost.shape means it */
    struct costs cost;
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    struct info_tensor {
        struct gguf_tensor of;
        const char *type;
        struct shape_text shape;
        uint64_t offset; /* of the data, from the start of the file */
        struct inspect_check check;
    } * tensors; /* [gguf->n_tensors] malloc'd */

    /* Properties; of texts and strings NULL is none, and of numbers a negative one. */
    const char *subject, *type, *norm, *placement, *position, *ffn, *does_not_run, *problem;
    struct text architecture, name, token_kind;
    int64_t gguf_version, n_keys, n_tensors, value_dim;
    int64_t attention_4_d_model_squared, memory_available_bytes;
    char variant[16], kv_heads_by_layer[CONFIG_MAX_LAYERS * 8], latent[CONFIG_MAX_LAYERS * 8];
    double norm_eps;
    int64_t n_tokens, bos, eos;
    bool adds_bos;
    int64_t tensors_checked, tensors_not_checked;
    int64_t nan, inf; /* values */
    /* How many tensors are of each type, in order of first use. */
    int n_types;
    int64_t of_type[TYPES_MOST];
    char type_headings[TYPES_MOST][24];
    struct report_field types[TYPES_MOST];
};

/* --- properties ------------------------------------------------------------------------------ */

/* What both programs and people call the same; of the config; and what only programs get. */
#define SAME(name)                                                                                 \
    {                                                                                              \
        .key = #name, .heading = #name, MEMBER(info, name)                                         \
    }
#define SIZE(name)                                                                                 \
    {                                                                                              \
        .key = #name, .heading = #name, MEMBER(info, config.name)                                  \
    }
#define KEYED(name)                                                                                \
    {                                                                                              \
        .key = #name, MEMBER(info, name)                                                           \
    }

static const struct report_field file_fields[] = {
    {"file", "file", MEMBER(info, subject)},
    {"file_bytes", "file_bytes", MEMBER(info, file.len)},
    SAME(gguf_version),
    SAME(n_keys),
    SAME(n_tensors),
    SAME(architecture),
    SAME(name),
};
static const struct report_field shape_fields[] = {
    {"shape", "shape", MEMBER(info, subject)},
    SAME(architecture),
    SAME(type),
};
static const struct report_field config_fields[] = {
    SAME(variant),
    SIZE(n_layers),
    SIZE(n_heads),
    SIZE(n_kv_heads),
    SIZE(head_dim),
    SAME(value_dim),
    SIZE(d_model),
    SIZE(d_ff),
    SIZE(n_ctx),
    SIZE(n_vocab),
    SAME(kv_heads_by_layer),
    SAME(latent),
    SAME(norm),
    SAME(placement),
    SAME(position),
    SAME(ffn),
    {"shared_block", "shared_block", MEMBER(info, config.shared)},
    {"norm_eps", "norm_eps", MEMBER(info, norm_eps), "%g"},
    SAME(does_not_run),
    {"tied_output", "tied_output", MEMBER(info, cost.shape.tied)},
};
#define N_UNREADABLE 2 /* what there is of a tokenizer that cannot be read */
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info, token_kind)},
    SAME(problem),
    SAME(n_tokens),
    SAME(bos),
    SAME(eos),
    SAME(adds_bos),
};
static const struct report_field check_fields[] = {
    SAME(tensors_checked),
    SAME(tensors_not_checked),
    SAME(nan),
    SAME(inf),
};
/* The first: a layer's Q, K, V and output have so many weights where every head has its own; the
 * second with steps. */
static const struct report_field cost_fields[] = {
    KEYED(attention_4_d_model_squared),
    KEYED(memory_available_bytes),
};

/* For people the scalar keys that stand nowhere else: what a conversion says of itself, and of an
 * architecture that does not run here its own. */
static void print_other_keys(struct report *r, const struct info *info)
{
    for (int64_t i = 0; i < info->n_keys; i++) {
        const struct gguf_pair *pair = &info->gguf->pairs[i];
        const struct gguf_value *v = &pair->value;
        const bool told = info->has_config ? !text_starts_with(pair->key, "decode.convert.")
                                           : text_starts_with(pair->key, "tokenizer.") ||
                                                 text_starts_with(pair->key, "general.");
        struct figure f = {""};
        if (v->kind == GGUF_ARRAY || told)
            continue;
        if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
            f = figure_exact(gguf_float_at(v, 0));
        else if (v->kind != GGUF_STRING)
            snprintf(f.text, sizeof f.text, "%" PRId64, gguf_int_at(v, 0));
        report_text(r, pair->key);
        report_text(r, v->kind == GGUF_STRING
                           ? (struct text){v->bytes.data, (size_t)text_width(v->bytes)}
                           : text_of(f.text));
    }
}

/* As a table "property, value" for people, or as members of the object for programs: `j`. */
static enum status print_properties(const struct info *info, struct json *j, struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
#define ALL_IF(condition, fields) fields, condition ? REPORT_LENGTH(fields) : 0
    const struct {
        const char
            *object; /* that programs find the group in, null if it is empty; NULL: the whole */
        const struct report_field *fields;
        int n;
    } groups[] = {
        {NULL, ALL_IF(info->gguf, file_fields)},
        {NULL, ALL_IF(!info->gguf, shape_fields)},
        {NULL, ALL_IF(info->has_config, config_fields)},
        {"tokenizer", tokenizer_fields,
         info->tokenizer            ? REPORT_LENGTH(tokenizer_fields)
         : info->token_kind.len > 0 ? N_UNREADABLE
                                    : 0},
        {"types", info->types, info->n_types},
        {"check", ALL_IF(info->o->check, check_fields)},
        {NULL, cost_fields, info->has_config + (info->cost.steps != NULL)},
    };
    struct report r;
    if (!j)
        report_begin(&r, info->format, columns, 2, info->job->out);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (!j)
            report_lines(&r, groups[i].fields, groups[i].n, info);
        else if (!groups[i].object)
            report_members(j, groups[i].fields, groups[i].n, info);
        else if (groups[i].n == 0)
            json_null(j, groups[i].object);
        else
            report_object(j, groups[i].object, groups[i].fields, groups[i].n, info);
    }
    if (j)
        return STATUS_OK;
    print_other_keys(&r, info);
    return report_end(&r, e);
}

/* --- what there is --------------------------------------------------------------------------- */

/* The tensors by type, listed, and checked if that is wanted. */
static enum status take_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    const size_t bytes = (g->n_tensors + 1) * sizeof *info->tensors;
    info->tensors = calloc(1, bytes);
    if (!info->tensors)
        return err_no_memory(e, "the list of tensors", bytes);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *from = &g->tensors[i];
        struct info_tensor *t = &info->tensors[i];
        *t = (struct info_tensor){.of = *from,
                                  .type = from->type->name,
                                  .shape = pack_shape_text(from->n_dims, from->dims),
                                  .offset = (uint64_t)(from->data - info->file.data)};
        int at = 0;
        while (at < info->n_types && info->types[at].key != t->type)
            at++;
        if (at == info->n_types && at < TYPES_MOST) {
            char *heading = info->type_headings[info->n_types++];
            snprintf(heading, sizeof info->type_headings[0], "%s tensors", t->type);
            info->types[at] = (struct report_field){.key = t->type,
                                                    .heading = heading,
                                                    .type = REPORT_COUNT,
                                                    .offset = offsetof(struct info, of_type) +
                                                              (size_t)at * sizeof *info->of_type};
        }
        if (at < TYPES_MOST)
            info->of_type[at]++;
        if (!info->o->check)
            continue;
        t->check = inspect_check_tensor(from);
        if (t->check.nan < 0) {
            info->tensors_not_checked++;
            continue;
        }
        info->tensors_checked++;
        info->nan += t->check.nan;
        info->inf += t->check.inf;
        if (t->check.nan + t->check.inf > 0 && !info->not_finite.text[0])
            err_format(&info->not_finite,
                       "%.200s: tensor '%.*s' has %" PRId64 " values that are not finite, the "
                       "first%s at element %" PRIu64,
                       info->subject, text_width(from->name), from->name.data,
                       t->check.nan + t->check.inf,
                       t->check.scales_only ? " (a block's scale)" : "", t->check.first);
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
    info->subject = info->job->path;
    info->gguf_version = g->version;
    info->n_keys = (int64_t)g->n_pairs;
    info->n_tensors = (int64_t)g->n_tensors;
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
        const struct tokenizer *t = info->tokenizer;
        if (s == STATUS_NO_MEMORY)
            return err_set(e, s, "%s", info->tokenizer_problem.text);
        if (t) {
            (void)tokenizer_reads_text(t, &info->tokenizer_problem);
            info->n_tokens = tokenizer_n_tokens(t);
            info->bos = tokenizer_bos(t);
            info->eos = tokenizer_eos(t);
            info->adds_bos = tokenizer_adds_bos(t);
        }
    }
    return take_tensors(info, e);
}

/* A shape instead of a file. */
static enum status read_shape(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const enum storage type = o->type ? (enum storage)(o->type - 1) : STORAGE_F32;
    TRY(shape_of_options(&o->shape, &o->common, &info->config, e));
    TRY(model_check_storage(&info->config, type, e));
    info->subject = o->shape.shape;
    info->architecture = text_of(info->config.arch->name);
    info->type = storage_name(type);
    info->cost.shape = (struct cost_shape){.config = &info->config,
                                           .n_kv_heads = info->config.n_kv_heads,
                                           .storage = type,
                                           .tied = !info->config.arch->own_output};
    info->has_config = info->runs = true;
    return STATUS_OK;
}

/* What the config says, for the properties. */
static void take_config(struct info *info)
{
    const struct config *c = &info->config;
    const bool latent = config_is_latent(c);
    const int64_t d_model = c->d_model;
    char *list = latent ? info->latent : info->kv_heads_by_layer;
    size_t used = 0;
    config_variant_name(c, c->n_kv_heads, info->variant);
    info->value_dim = config_value_dim(c);
    /* "6, 2, 1": K/V heads or ranks layer by layer, where one number does not say it. */
    for (int l = 0; l < c->n_layers && (latent || !config_same_kv_heads(c)); l++)
        used += (size_t)snprintf(list + used, sizeof info->latent - used, "%s%d", l ? ", " : "",
                                 latent ? config_latent(c, l) : config_kv_heads(c, l));
    info->norm = arch_norm_names[c->norm];
    info->placement = arch_placement_names[c->placement];
    info->position = arch_position_names[c->position];
    info->ffn = arch_ffn_names[c->ffn];
    info->norm_eps = (double)c->norm_eps;
    info->attention_4_d_model_squared = 4 * d_model * d_model * config_blocks(c);
}

static enum status plan_cost(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    struct costs *c = &info->cost;
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
    if (!info->has_config || info->refusal.text[0])
        return STATUS_OK;
    TRY(costs_plan(c, e));
    /* Where it is not known that is a negative number. */
    info->memory_available_bytes = (int64_t)c->available;
    return STATUS_OK;
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

#define TENSOR(member) MEMBER(info_tensor, member)
#define N_OWN          2 /* that JSON has in another form */
#define N_CHECK        2 /* the last ones, with --check */
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", TENSOR(of.name)},
    {"shape", "shape", TENSOR(shape.text), .right = true},
    {"type", "type", TENSOR(type)},
    {"bytes", "bytes", TENSOR(of.n_bytes), .rank = 1},
    {"offset", "offset", TENSOR(offset), .rank = 2},
    {"nan", "nan", TENSOR(check.nan), .none = "not checked"},
    {"inf", "inf", TENSOR(check.inf), .none = "not checked"},
};

/* In the order in which people read them; without rows where one is not wanted. */
enum { TABLE_PARTS, TABLE_CACHES, TABLE_STEPS, TABLE_TENSORS, INFO_TABLES };

/* An array of rows; but the parts are an object for each figure, and a tensor's shape is an array.
 */
static void print_info_json(struct json *j, int table, const struct table *t)
{
    static const char *const keys[INFO_TABLES] = {
        [TABLE_CACHES] = "kv_cache", [TABLE_STEPS] = "steps", [TABLE_TENSORS] = "tensors"};
    const struct inspect_sum *parts = t->rows; /* if they are */
    const struct report_field *f = t->fields, *end = f + t->n;
    for (; f < end && !keys[table]; f++) {
        if (!f->grouped)
            continue;
        json_begin_object(j, f->key);
        for (int i = 0; i < t->n_rows; i++)
            report_member(j, parts[i].part, f, &parts[i]);
        json_end(j);
    }
    if (!keys[table])
        return;
    json_begin_array(j, keys[table]);
    for (int i = 0; i < t->n_rows; i++) {
        const void *row = (const char *)t->rows + (size_t)i * t->row_bytes;
        const struct gguf_tensor *tensor = row; /* if it is one */
        json_begin_object(j, NULL);
        if (table == TABLE_TENSORS) {
            json_text(j, "name", tensor->name);
            json_begin_array(j, "shape");
            for (int d = 0; d < tensor->n_dims; d++)
                json_u64(j, NULL, tensor->dims[d]);
            json_end(j);
            f = t->fields + N_OWN;
        }
        report_members(j, f, (int)(end - f), row);
        json_end(j);
    }
    json_end(j);
}

/* Properties and tables: several for people, one JSON object, or of CSV, which has one table, the
 * last, but for the caches. */
static enum status print_info(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const bool people = table_is_for_people(info->format), csv = info->format == TABLE_CSV;
    struct table tables[INFO_TABLES] = {TABLE_OF(part_fields, info->parts, 0),
                                        info->cost.cache_table, info->cost.step_table,
                                        TABLE_OF(tensor_fields, info->tensors, 0)};
    struct table *parts = &tables[TABLE_PARTS], *tensors = &tables[TABLE_TENSORS];
    struct output *out = info->job->out;
    struct json json, *j = people ? NULL : &json;
    int last = INFO_TABLES - 1;
    /* People are shown parts that there are, and with --check alone the tensors that are bad. */
    for (int i = 0; i <= INSPECT_PARTS; i++)
        if (!people || info->parts[i].parameters > 0)
            info->parts[parts->n_rows++] = info->parts[i];
    tensors->n -= o->check ? 0 : N_CHECK;
    for (int i = 0; i < info->n_tensors; i++) {
        const struct info_tensor t = info->tensors[i];
        if (o->tensors || (o->check && (csv || (people && t.check.nan + t.check.inf > 0))))
            info->tensors[tensors->n_rows++] = t;
    }
    while (csv && (tables[last].n_rows == 0 || last == TABLE_CACHES))
        last--;
    if (csv)
        return job_print(info->job, &tables[last], e);
    if (j) {
        json_init(j, out, info->format == TABLE_JSONL ? 0 : 2);
        json_begin_object(j, NULL);
    }
    TRY(print_properties(info, j, e));
    for (int i = 0; i < INFO_TABLES; i++) {
        if (tables[i].n_rows == 0)
            continue;
        if (j) {
            print_info_json(j, i, &tables[i]);
            continue;
        }
        output_puts(out, "\n");
        if (i == TABLE_CACHES)
            costs_explain_caches(&info->cost, out);
        if (i == TABLE_STEPS)
            costs_explain_steps(&info->cost, out);
        TRY(table_print(&tables[i], info->format, out, e));
    }
    if (j) {
        json_end(j);
        output_puts(out, "\n");
    }
    return STATUS_OK;
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
    info->does_not_run = info->refusal.text[0] ? info->refusal.text : NULL;
    info->problem = info->tokenizer_problem.text[0] ? info->tokenizer_problem.text : NULL;
    if (info->has_config)
        take_config(info);
    inspect_parts(&info->cost.shape, info->parts);
    TRY(plan_cost(info, e));
    TRY(print_info(info, e));
    if (!info->not_finite.text[0])
        return STATUS_OK;
    *e = info->not_finite;
    return STATUS_BAD_FILE;
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
    struct info info = {.o = values, .job = j, .format = (enum table_format)j->common->format};
    const enum status s = show_info(&info, e);
    costs_free(&info.cost);
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
