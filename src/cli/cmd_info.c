/*
 * cmd_info - decode info: what a checkpoint holds; what it or a shape costs is in info_cost.
 */
#include "cli/help_texts.h"
#include "cli/info.h"
#include "cli/info_cost.h"
#include "formats/blocks.h"
#include "formats/gguf_values.h"
#include "formats/json_write.h"
#include "model/config_keys.h"

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
    OPT_STRINGS("shape", shapes, "SHAPE", SHAPE_HELP ". Several are put side by side"),
    OPT_SHAPE_ARCH(shape.arch),
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of its weight matrices",
               .otherwise = "f32", .needs = "shape"),
    OPT_END,
};

static const struct option step_options[] = {
    OPT_STRING("depth", depths, "D,D,...", "tokens that every sequence has in its cache",
               .otherwise = "0 and the context; of several shapes the context"),
    OPT_STRING("batch", batches, "B,B,...", "sequences that a step serves", .otherwise = "1"),
    OPT_CHOICE("kv-type", common.kv_type, "TYPE", kv_type_names, "how keys and values are cached",
               .fallback = "f32", .needs = "depth|batch|bandwidth|shards|shape"),
    OPT_INT("shards", shards, "N", 1, CONFIG_MAX_WIDTH,
            "what each of N partitions of the heads (tensor parallel) holds; a divisor of the "
            "query heads",
            .otherwise = "none"),
    OPT_STRING("bandwidth", bandwidth, "GB/s|auto",
               "predict a step's time on a machine that reads so fast; auto: this one, measured "
               "with DECODE_THREADS threads",
               .otherwise = "no prediction"),
    OPT_DOUBLE("flops", gflops, "GFLOP/s", 0, MOST_GB_PER_S,
               "and computes so fast, two operations a multiply-add", .above_min = true,
               .otherwise = "arithmetic is not counted", .needs = "bandwidth"),
    OPT_END,
};

/* --- properties ------------------------------------------------------------------------------ */

/* When properties are shown. */
enum {
    OF_FILE = 1 << 0,
    OF_SHAPE = 1 << 1,
    OF_CONFIG = 1 << 2,
    OF_SHARED = 1 << 3, /* to people only where layers share a block */
    REFUSED = 1 << 4,   /* there are no hyperparameters to say it beside */
    READABLE = 1 << 5,  /* of a tokenizer */
};

static const struct report_field property_fields[] = {
    {"file", "file", MEMBER(info, subject), .when = OF_FILE},
    {"file_bytes", "file_bytes", MEMBER(info, file_bytes), .when = OF_FILE},
    {"gguf_version", "gguf_version", MEMBER(info, gguf_version), .when = OF_FILE},
    {"n_keys", "n_keys", MEMBER(info, n_keys), .when = OF_FILE},
    {"n_tensors", "n_tensors", MEMBER(info, n_tensors), .when = OF_FILE},
    {"architecture", "architecture", MEMBER(info, architecture), .when = OF_FILE},
    {"name", "name", MEMBER(info, name), .when = OF_FILE},
    {"shape", "shape", MEMBER(info, subject), .when = OF_SHAPE},
    {"architecture", "architecture", MEMBER(info, architecture), .when = OF_SHAPE},
    {"type", "type", MEMBER(info, type), .when = OF_SHAPE},
    {"variant", "variant", MEMBER(info, variant), .when = OF_CONFIG},
    {"n_layers", "n_layers", MEMBER(info, config.n_layers), .when = OF_CONFIG},
    {"n_heads", "n_heads", MEMBER(info, config.n_heads), .when = OF_CONFIG},
    {"n_kv_heads", "n_kv_heads", MEMBER(info, config.n_kv_heads), .when = OF_CONFIG},
    {"head_dim", "head_dim", MEMBER(info, config.head_dim), .when = OF_CONFIG},
    {"value_dim", "value_dim", MEMBER(info, value_dim), .when = OF_CONFIG},
    {"d_model", "d_model", MEMBER(info, config.d_model), .when = OF_CONFIG},
    {"d_ff", "d_ff", MEMBER(info, config.d_ff), .when = OF_CONFIG},
    {"n_ctx", "n_ctx", MEMBER(info, config.n_ctx), .when = OF_CONFIG},
    {"n_vocab", "n_vocab", MEMBER(info, config.n_vocab), .when = OF_CONFIG},
    {"heads_by_layer", "heads_by_layer", MEMBER(info, heads_by_layer), .when = OF_CONFIG},
    {"kv_heads_by_layer", "kv_heads_by_layer", MEMBER(info, kv_heads_by_layer), .when = OF_CONFIG},
    {"norm", "norm", MEMBER(info, norm), .when = OF_CONFIG},
    {"placement", "placement", MEMBER(info, placement), .when = OF_CONFIG},
    {"position", "position", MEMBER(info, position), .when = OF_CONFIG},
    {"ffn", "ffn", MEMBER(info, ffn), .when = OF_CONFIG},
    {"score", "score", MEMBER(info, score), .when = OF_CONFIG},
    {"norm_eps", "norm_eps", MEMBER(info, norm_eps), "%g", .when = OF_CONFIG},
    {"score_scale", "score_scale", MEMBER(info, score_scale), "%g", .when = OF_CONFIG},
    {"does_not_run", "does_not_run", MEMBER(info, does_not_run), .when = OF_CONFIG},
    {"tied_output", "tied_output", MEMBER(info, cost.tied), .when = OF_CONFIG},
    {"shared_block", "shared_block", MEMBER(info, config.shared), .when = OF_SHARED},
    {"does_not_run", "does_not_run", MEMBER(info, does_not_run), .when = REFUSED},
};
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info, token_kind)},
    {"problem", "problem", MEMBER(info, problem)},
    {"pretokenizer", "pretokenizer", MEMBER(info, pretokenizer), .when = READABLE},
    {"n_tokens", "n_tokens", MEMBER(info, n_tokens), .when = READABLE},
    {"bos", "bos", MEMBER(info, bos), .when = READABLE},
    {"eos", "eos", MEMBER(info, eos), .when = READABLE},
    {"ends", "ends", MEMBER(info, ends), .when = READABLE},
    {"adds_bos", "adds_bos", MEMBER(info, adds_bos), .when = READABLE},
};
static const struct report_field check_fields[] = {
    {"tensors_checked", "tensors_checked", MEMBER(info, tensors_checked)},
    {"tensors_not_checked", "tensors_not_checked", MEMBER(info, tensors_not_checked)},
    {"nan", "nan", MEMBER(info, nan)},
    {"inf", "inf", MEMBER(info, inf)},
};
/* For people the scalar keys that stand nowhere else: what a conversion says of itself, and of an
 * architecture that does not run here its own. */
static void print_other_keys(struct report *r, const struct info *info)
{
    for (int64_t i = 0; i < info->n_keys; i++) {
        const struct text key = info->gguf->pairs[i].key;
        const struct gguf_value *v = &info->gguf->pairs[i].value;
        const bool told = info->has_config ? !text_starts_with(key, "decode.convert.")
                                           : text_starts_with(key, "tokenizer.") ||
                                                 text_starts_with(key, "general.");
        struct figure f = {""};
        if (v->kind == GGUF_ARRAY || told)
            continue;
        report_text(r, key);
        if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
            f = figure_exact(gguf_float_at(v, 0));
        else if (v->kind != GGUF_STRING)
            chars_printf(f.text, "%" PRId64, gguf_int_at(v, 0));
        report_text(r, v->kind == GGUF_STRING ? text_span(v->bytes.data, text_width(v->bytes))
                                              : text_of(f.text));
    }
}

/* Which properties there are. */
static unsigned properties_shown(const struct info *info, bool people)
{
    const struct {
        bool holds;
        unsigned shown;
    } of[] = {
        {info->gguf, OF_FILE},
        {!info->gguf, OF_SHAPE},
        {info->has_config, OF_CONFIG},
        {info->has_config && (!people || info->config.shared), OF_SHARED},
        {info->gguf && !info->has_config, REFUSED},
        {info->tokenizer, READABLE},
    };
    unsigned shown = 0;
    for (int i = 0; i < LENGTH(of); i++)
        shown |= of[i].holds ? of[i].shown : 0;
    return shown;
}

/* A table "property, value" for people. */
static enum status print_properties(const struct info *info, struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
    const unsigned shown = properties_shown(info, true);
    struct report r;
    report_begin(&r, info->o->common.format, columns, 2, 0, info->job->out);
    report_lines(&r, property_fields, LENGTH(property_fields), shown, info);
    if (info->token_kind.len > 0)
        report_lines(&r, tokenizer_fields, LENGTH(tokenizer_fields), shown, info);
    report_lines(&r, info->types, info->n_types, 0, info);
    if (info->o->check)
        report_lines(&r, check_fields, LENGTH(check_fields), 0, info);
    print_other_keys(&r, info);
    return report_end(&r, e);
}

/* An object, or null if there is nothing to put into it. */
static void put_object(struct json *j, const char *key, bool there,
                       const struct report_field *fields, int n, unsigned shown,
                       const struct info *info)
{
    if (there)
        report_object(j, key, fields, n, shown, info);
    else
        json_null(j, key);
}

/* The same as members of an object. */
static void put_properties(const struct info *info, struct json *j)
{
    const unsigned shown = properties_shown(info, false);
    report_members(j, property_fields, LENGTH(property_fields), shown, info);
    put_object(j, "tokenizer", info->token_kind.len > 0, tokenizer_fields, LENGTH(tokenizer_fields),
               shown, info);
    put_object(j, "types", info->n_types > 0, info->types, info->n_types, 0, info);
    put_object(j, "check", info->o->check, check_fields, LENGTH(check_fields), 0, info);
    if (info->n_steps > 0)
        json_int(j, "memory_available_bytes", info->available);
}

/* --- what there is --------------------------------------------------------------------------- */

/* Counts the tensors by type, checks them if that is wanted, and lists those that are shown: all of
 * them, or with --check alone those that are bad to people, all in CSV. */
static enum status take_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    const struct info_options *o = info->o;
    TRY_ZEROED(info->tensors, g->n_tensors + 1, "the list of tensors", e);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *from = &g->tensors[i];
        struct info_tensor *t = &info->tensors[info->n_listed];
        *t = (struct info_tensor){.of = *from,
                                  .type = from->type->name,
                                  .shape = pack_shape_text(from->n_dims, from->dims)};
        int at = 0;
        while (at < info->n_types && info->types[at].key != t->type)
            at++;
        if (at == info->n_types) {
            info->n_types++;
            const uint32_t in_memory = blocks_in_memory(from->type->type);
            const bool widened = in_memory != from->type->type;
            chars_printf(info->type_headings[at], "%s tensors%s%s", t->type,
                         widened ? ", run as " : "",
                         widened ? tensor_type_find(in_memory)->name : "");
            info->types[at] =
                (struct report_field){t->type, info->type_headings[at], MEMBER(info, of_type[at])};
        }
        info->of_type[at]++;
        if (o->check)
            t->check = inspect_check_tensor(from);
        const bool is_read = o->check && t->check.nan >= 0;
        const int64_t n_bad = is_read ? t->check.nan + t->check.inf : 0;
        info->n_listed += o->tensors || (o->check && o->common.format == TABLE_CSV) ||
                          (n_bad > 0 && table_is_for_people(o->common.format));
        info->tensors_checked += is_read;
        info->tensors_not_checked += !is_read;
        info->nan += is_read ? t->check.nan : 0;
        info->inf += is_read ? t->check.inf : 0;
        if (n_bad > 0 && !info->not_finite.text[0])
            err_format(&info->not_finite,
                       "%.200s: tensor '%.*s' has %" PRId64
                       " values that are not finite, the first%s at element %" PRIu64,
                       info->subject, text_width(from->name), from->name.data, n_bad,
                       t->check.scales_only ? " (a block's scale)" : "", t->check.first);
    }
    return STATUS_OK;
}

/* The value of a key, if it is a text. */
static struct text text_at(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && v->kind == GGUF_STRING ? v->bytes : (struct text){NULL, 0};
}

/* The hyperparameters, if the file is a model of an architecture that runs here; if not, why no
 * other command takes it. STATUS_NO_MEMORY. */
static enum status read_config(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    struct err *why = &info->refusal;
    struct err parsing = {""};
    enum status s = STATUS_OK;
    if (g->n_tensors == 0)
        return STATUS_OK;
    info->has_config = config_parse(g, &info->config, &parsing) == STATUS_OK;
    if (info->has_config)
        s = model_check(g, why);
    else
        *why = parsing;
    if (info->has_config)
        info->runs = cost_shape_of_file(g, &info->config, &info->cost) && s == STATUS_OK;
    return s == STATUS_NO_MEMORY ? err_set(e, s, "%s", why->text) : STATUS_OK;
}

/* The tokens that end a text, each with the key or the name that says so. */
static void list_ends(struct info *info, const struct tokenizer *t)
{
    const char *why;
    for (int i = 0, id; (id = tokenizer_end(t, &i, &why)) >= 0;)
        chars_append(info->ends, "%s%d (%s)", info->ends[0] ? ", " : "", id, why);
}

static enum status read_file(struct info *info, struct err *e)
{
    TRY(gguf_parse(info->file.data, info->file.len, &info->gguf, e));
    const struct gguf *g = info->gguf;
    TRY(read_config(info, e));
    info->architecture = text_at(g, "general.architecture");
    info->name = text_at(g, "general.name");
    info->token_kind = text_at(g, "tokenizer.ggml.model");
    info->subject = info->job->path;
    info->file_bytes = info->file.len;
    info->gguf_version = g->version;
    info->n_keys = g->n_pairs;
    info->n_tensors = g->n_tensors;
    if (!info->has_config)
        info->cost = (struct cost_shape){.tied = layout_output_tied(g), .gguf = g};
    /* What is wrong with a tokenizer is one of its properties. */
    if (info->architecture.data && arch_find(info->architecture) && info->token_kind.len > 0) {
        const enum status s = tokenizer_create(g, &info->tokenizer, &info->tokenizer_problem);
        const struct tokenizer *t = info->tokenizer;
        if (s == STATUS_NO_MEMORY)
            return err_set(e, s, "%s", info->tokenizer_problem.text);
        if (t) {
            (void)tokenizer_reads_text(t, &info->tokenizer_problem);
            job_warn_vocabulary(info->job->common, info->job->path, t);
            info->n_tokens = tokenizer_n_tokens(t);
            info->bos = tokenizer_bos(t);
            info->pretokenizer = tokenizer_pre(t);
            info->eos = tokenizer_eos(t);
            list_ends(info, t);
            info->adds_bos = tokenizer_adds_bos(t);
        }
    }
    return take_tensors(info, e);
}

/* --- tables ---------------------------------------------------------------------------------- */

static const struct report_field part_fields[] = {
    {"part", "part", MEMBER(inspect_sum, part)},
    {"parameters", "parameters", MEMBER(inspect_sum, parameters), .grouped = true},
    {NULL, "share", MEMBER(inspect_sum, percent), "%.1f%%"},
    {"bytes", "bytes", MEMBER(inspect_sum, bytes), .grouped = true, .detail = true},
    {"weights", "weights", MEMBER(inspect_sum, weights), .grouped = true, .detail = true},
    {"biases", "biases", MEMBER(inspect_sum, biases), .grouped = true, .detail = true},
};

/* When a tensor's fields are shown. */
enum {
    IN_TABLE = 1, /* JSON has them in another form */
    CHECKED = 2,
};
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", MEMBER(info_tensor, of.name), .when = IN_TABLE},
    {"shape", "shape", MEMBER(info_tensor, shape.text), .right = true, .when = IN_TABLE},
    {"type", "type", MEMBER(info_tensor, type)},
    {"bytes", "bytes", MEMBER(info_tensor, of.n_bytes), .detail = true},
    {"offset", "offset", MEMBER(info_tensor, of.file_offset), .detail = true},
    {"nan", "nan", MEMBER(info_tensor, check.nan), .none = "not checked", .when = CHECKED},
    {"inf", "inf", MEMBER(info_tensor, check.inf), .none = "not checked", .when = CHECKED},
};

/* In the order in which people read them; without rows where one is not wanted. */
enum { TABLE_PARTS, TABLE_CACHES, TABLE_STEPS, TABLE_TENSORS, INFO_TABLES };

/* The parts are an object for each figure, with a member for each part. */
static void put_parts(struct json *j, const struct table *t)
{
    const struct inspect_sum *parts = t->rows;
    for (const struct report_field *f = t->fields; f < t->fields + t->n; f++) {
        if (!f->grouped)
            continue;
        json_begin_object(j, f->key);
        for (int i = 0; i < t->n_rows; i++)
            report_member(j, parts[i].part, f, &parts[i]);
        json_end(j);
    }
}

/* An array of rows; a tensor begins with its name and shape. */
static void put_rows(struct json *j, const char *key, const struct table *t)
{
    const bool of_tensors = t->fields == tensor_fields;
    json_begin_array(j, key);
    for (int i = 0; i < t->n_rows; i++) {
        const void *row = (const char *)t->rows + i * t->row_bytes;
        const struct info_tensor *tensor = row; /* if it is one */
        json_begin_object(j, NULL);
        if (of_tensors) {
            json_text(j, "name", tensor->of.name);
            json_begin_array(j, "shape");
            for (int d = 0; d < tensor->of.n_dims; d++)
                json_u64(j, NULL, tensor->of.dims[d]);
            json_end(j);
        }
        report_members(j, t->fields, t->n, t->shown & ~(of_tensors ? IN_TABLE : 0u), row);
        json_end(j);
    }
    json_end(j);
}

static void print_json(const struct info *info, const struct table tables[INFO_TABLES])
{
    static const char *const keys[INFO_TABLES] = {NULL, "kv_cache", "steps", "tensors"};
    struct json j;
    json_init(&j, info->job->out, info->o->common.format == TABLE_JSONL ? 0 : 2);
    json_begin_object(&j, NULL);
    put_properties(info, &j);
    put_parts(&j, &tables[TABLE_PARTS]);
    for (int i = TABLE_CACHES; i < INFO_TABLES; i++)
        if (tables[i].n_rows > 0)
            put_rows(&j, keys[i], &tables[i]);
    json_end(&j);
    output_puts(info->job->out, "\n");
}

static enum status print_tables(const struct info *info, const struct table tables[INFO_TABLES],
                                struct err *e)
{
    struct output *out = info->job->out;
    TRY(print_properties(info, e));
    for (int i = 0; i < INFO_TABLES; i++) {
        if (tables[i].n_rows == 0)
            continue;
        output_puts(out, "\n");
        if (i == TABLE_CACHES)
            info_explain_caches(&info->config, out);
        if (i == TABLE_STEPS)
            info_explain_steps(info, out);
        TRY(table_print(&tables[i], info->o->common.format, out, e));
    }
    return STATUS_OK;
}

/* Properties and tables: several for people, one JSON object, or of CSV, which has one table, the
 * last, but for the caches. */
static enum status print_info(struct info *info, struct err *e)
{
    const enum table_format format = info->o->common.format;
    struct table tables[INFO_TABLES] = {TABLE_OF(part_fields, info->parts, 0),
                                        info_cache_table(info), info_step_table(info),
                                        TABLE_OF(tensor_fields, info->tensors, info->n_listed)};
    /* People are shown parts that there are. */
    for (int i = 0; i <= INSPECT_PARTS; i++)
        if (!table_is_for_people(format) || info->parts[i].parameters > 0)
            info->parts[tables[TABLE_PARTS].n_rows++] = info->parts[i];
    tables[TABLE_TENSORS].shown = IN_TABLE | (info->o->check ? CHECKED : 0);
    int last = TABLE_TENSORS;
    while (tables[last].n_rows == 0 || last == TABLE_CACHES)
        last--;
    if (format == TABLE_CSV)
        return job_print(info->job, &tables[last], e);
    if (table_is_for_people(format))
        return print_tables(info, tables, e);
    print_json(info, tables);
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status show_info(struct info *info, struct err *e)
{
    const struct config *c = &info->config;
    const struct option_strings *shapes = &info->o->shapes;
    const bool several = shapes->n > 1;
    for (int i = 0; i < shapes->n; i++) {
        TRY(info_read_shape(info, i, e));
        if (several)
            TRY(err_in(e, info_plan_steps(info, e), "%s", info->subject));
    }
    if (several) { /* one table of their steps, side by side */
        const struct table t = info_step_table(info);
        if (table_is_for_people(info->o->common.format))
            info_explain_steps(info, info->job->out);
        return job_print(info->job, &t, e);
    }
    if (shapes->n == 0) {
        TRY(job_map(info->job->path, &info->file, e));
        TRY(err_in(e, read_file(info, e), "%s", info->job->path));
    }
    info->does_not_run = info->refusal.text[0] ? info->refusal.text : NULL;
    info->problem = info->tokenizer_problem.text[0] ? info->tokenizer_problem.text : NULL;
    if (info->has_config) {
        config_variant_name(c, c->n_kv_heads, info->variant);
        info->value_dim = config_value_dim(c);
        /* "6, 2, 1": heads or K/V heads by layer, where one number does not say it. */
        for (int l = 0; l < c->n_layers; l++) {
            const char *comma = l ? ", " : "";
            if (!config_same_heads(c))
                chars_append(info->heads_by_layer, "%s%d", comma, config_heads(c, l));
            if (!config_same_kv_heads(c))
                chars_append(info->kv_heads_by_layer, "%s%d", comma, config_kv_heads(c, l));
        }
        info->norm = arch_norm_names[c->norm];
        info->placement = arch_placement_names[c->placement];
        info->position = arch_position_names[c->position];
        info->ffn = arch_ffn_names[c->ffn];
        info->score = c->score == SCORE_DOT ? NULL : arch_score_names[c->score];
        info->norm_eps = (double)c->norm_eps;
        info->score_scale = c->score_scale != 0 ? (double)c->score_scale : NO_FIGURE;
    }
    inspect_parts(&info->cost, info->parts);
    TRY(info_plan_steps(info, e));
    TRY(print_info(info, e));
    if (!info->not_finite.text[0])
        return STATUS_OK;
    *e = info->not_finite;
    return STATUS_BAD_FILE;
}

/* Instead of a shape: which have names. */
static bool lists_shapes(const struct info_options *o)
{
    return o->shapes.n == 1 && str_is(o->shapes.items[0], "help");
}

static enum status check_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    if (lists_shapes(o) && (j->path || o->depths || o->batches || o->bandwidth || o->shards ||
                            o->type || o->shape.arch))
        return err_usage(e, "--shape help lists names; expected nothing else but --format");
    if (o->shapes.n > 0 && (o->tensors || o->check))
        return err_usage(e, "%s is for a checkpoint; --shape has no file",
                         o->tensors ? "--tensors" : "--check");
    if (info_is_auto(o) && o->gflops > 0)
        return err_usage(e, "--flops is for a --bandwidth in GB/s; auto measures arithmetic, too");
    return o->shapes.n > 0 ? STATUS_OK : job_need_path(j, e);
}

static enum status run_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    if (info_is_auto(o))
        TRY(job_choose_workers(j, e));
    if (o->bandwidth && !info_is_auto(o) && !(o->gflops > 0) &&
        !table_is_for_people(o->common.format))
        say(&o->common, "arithmetic is not counted (--flops GFLOP/s counts it)");
    if (lists_shapes(o))
        return info_list_shapes(j, e);
    struct info info = {.o = o, .job = j};
    const enum status s = show_info(&info, e);
    free(info.steps);
    free(info.variants.items);
    free(info.tensors);
    tokenizer_free(info.tokenizer);
    gguf_free(info.gguf);
    file_map_close(&info.file);
    return s;
}

const struct command command_info = {
    .name = "info",
    .summary = "what a checkpoint holds, what it costs",
    .usage = "(MODEL | --shape SHAPE...) [options]",
    .examples = "./decode info models/shakespeare-mha.gguf\n"
                "./decode info --shape gpt2 --depth 1023 --batch 1,32\n"
                "./decode info --shape t5-large --shape t5-xxl --shards 8\n",
    .notes = help_of_info,
    .spec = {.groups = {{"Contents", own_options, 0},
                        {"A shape instead of a checkpoint", shape_info_options, 0},
                        {"Steps", step_options, 0},
                        GENERAL_GROUP},
             .everyday = "shape arch depth batch shards bandwidth tensors format",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .check = check_info,
    .run = run_info,
};
