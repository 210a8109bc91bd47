/* decode info: what a checkpoint or a shape holds, and what its caches and steps cost. */
#include "base/limits.h"
#include "cli/job.h"
#include "formats/blocks.h"
#include "formats/gguf_values.h"
#include "measure/inspect.h"
#include "model/config_keys.h"
#include "model/pack.h"
#include "show/sheet.h"

struct info_options {
    struct common_options common;
    bool tensors, check;
    struct option_strings shapes;
    int type; /* an enum storage; CHOICE_NONE */
    const char *depths, *batches;
    int shards; /* 0: not given */
};

/* What decode info knows of one checkpoint or shape, or of the steps of several shapes. */
struct info {
    const struct info_options *o;
    struct job *job; /* with a file its checkpoint; its tokenizer is NULL if it cannot be read */
    struct err refusal, tokenizer_problem; /* "": none */
    struct config config;                  /* of an architecture that runs here, with tensors */
    bool has_config;
    char type[INSPECT_TYPE_SIZE]; /* that most numbers of the file's matrices have; "": there is no
                                     file */
    bool runs; /* the weights are of a type that runs here: the type in `cost` means it */
    struct cost_shape cost;
    struct sheet sheet; /* its properties */
    char variant[16], kv_heads_by_layer[CONFIG_MAX_LAYERS * 8], windows[CONFIG_MAX_LAYERS * 8];
    char ends[400]; /* tokens that end a text: "2 (eos_token_id), 5 (<|im_end|>)" */
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    struct inspect_variants variants;
    struct inspect_steps steps;
    struct info_tensor {
        struct gguf_tensor of;
        const char *type;
        struct shape_text shape;
        struct inspect_check check;
    } * tensors; /* [n_listed] malloc'd */
    int n_listed;
    struct inspect_checks checks; /* of all tensors */
};

#define VALUES struct info_options

static const struct option own_options[] = {
    OPT_FLAG("tensors", tensors,
             "list every tensor: name, shape (row length first), type, bytes, offset in the file",
             .excludes = "shape"),
    OPT_FLAG("check", check,
             "read every tensor and count values that are not finite; exit code 3 if there are",
             .excludes = "shape"),
    OPT_FORMAT,
    OPT_END,
};

static const struct option shape_info_options[] = {
    OPT_STRINGS("shape", shapes, "SHAPE", SHAPE_HELP ". Several are put side by side"),
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of its weight matrices",
               .otherwise = "f32", .needs = "shape"),
    OPT_END,
};

static const struct option step_options[] = {
    OPT_STRING("depth", depths, "D,D,...", "tokens that every sequence has in its cache",
               .otherwise = "0 and the context; of several shapes the context"),
    OPT_STRING("batch", batches, "B,B,...", "sequences that a step serves", .otherwise = "1"),
    OPT_KV_TYPE("K[/V]", KV_TYPE_HELP, .needs = "depth|batch|shards|shape"),
    OPT_INT("shards", shards, "N", 1, CONFIG_MAX_WIDTH,
            "what each of N partitions of the heads (tensor parallel) holds; a divisor of the "
            "query heads",
            .otherwise = "none"),
    OPT_END,
};

/* --- a config -------------------------------------------------------------------------------- */

static void add_config(struct info *info)
{
    const struct config *c = &info->config;
    struct sheet *s = &info->sheet;
    if (info->runs) {
        const char *in_memory = storage_names[info->cost.storage];
        const bool same = !info->type[0] || names_find(storage_names, info->type) >= 0;
        sheet_string(s, "type", same ? in_memory : info->type);
        sheet_string(s, "memory_type", same ? NULL : in_memory);
        sheet_number(s, "memory_bytes", cost_weights(&info->cost).memory_bytes);
    }
    config_variant_name(c, info->variant);
    sheet_string(s, "variant", info->variant);
    sheet_number(s, "n_layers", c->n_layers);
    sheet_number(s, "n_heads", c->n_heads);
    sheet_number(s, "n_kv_heads", c->n_kv_heads);
    sheet_number(s, "head_dim", c->head_dim);
    sheet_number(s, "value_dim", config_value_dim(c));
    sheet_number(s, "d_model", c->d_model);
    sheet_number(s, "d_ff", c->d_ff);
    sheet_number(s, "n_ctx", c->n_ctx);
    sheet_number(s, "n_vocab", c->n_vocab);
    config_list_layers(c, false, info->kv_heads_by_layer, sizeof info->kv_heads_by_layer);
    sheet_string(s, "kv_heads_by_layer", info->kv_heads_by_layer);
    config_list_layers(c, true, info->windows, sizeof info->windows);
    sheet_string(s, "window_by_layer", info->windows);
    sheet_string(s, "norm", arch_norm_names[c->norm]);
    sheet_string(s, "placement", arch_placement_names[c->placement]);
    sheet_string(s, "position", arch_position_names[c->position]);
    sheet_string(s, "ffn", arch_ffn_names[c->ffn]);
    sheet_string(s, "score", c->score == SCORE_DOT ? NULL : arch_score_names[c->score]);
    sheet_number(s, "norm_eps", (double)c->norm_eps);
    sheet_number(s, "score_scale", c->score_scale != 0 ? (double)c->score_scale : NO_FIGURE);
    sheet_bool(s, "tied_output", info->cost.tied);
    sheet_bool(s, "shared_block", c->shared);
}

/* --- a checkpoint's file --------------------------------------------------------------------- */

/* Returns the text that is the value of a key; without data if there is none. */
static struct text text_at(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v && v->kind == GGUF_STRING ? v->bytes : (struct text){NULL, 0};
}

/* Reads the hyperparameters of a model that runs here, or finds out why no other command takes the
 * file. STATUS_NO_MEMORY. */
static enum status read_config(struct info *info, struct err *e)
{
    const struct gguf *g = info->job->checkpoint.gguf;
    enum status s = STATUS_OK;
    info->cost = (struct cost_shape){.tied = layout_output_tied(g), .gguf = g};
    if (g->n_tensors == 0)
        return STATUS_OK;
    info->has_config = config_parse(g, &info->config, &info->refusal) == STATUS_OK;
    if (info->has_config) {
        s = model_check(g, &info->refusal);
        info->runs = cost_shape_of_file(g, &info->config, &info->cost) && s == STATUS_OK;
        inspect_type(g, info->type);
    }
    return s == STATUS_NO_MEMORY ? err_set(e, s, "%s", info->refusal.text) : STATUS_OK;
}

/* Adds the tokenizer's properties, among them its fault, if it has one, and each token that ends a
 * text with the key or the name that says so. STATUS_NO_MEMORY. */
static enum status add_tokenizer(struct info *info, struct err *e)
{
    struct checkpoint *k = &info->job->checkpoint;
    const struct gguf *g = k->gguf;
    const struct text architecture = text_at(g, "general.architecture"),
                      model = text_at(g, "tokenizer.ggml.model");
    struct err *problem = &info->tokenizer_problem;
    struct sheet *s = &info->sheet;
    const char *why;
    if (model.len == 0)
        return STATUS_OK;
    if (architecture.data && arch_find(architecture)) {
        const enum status created = tokenizer_create(g, &k->tokenizer, problem);
        if (created == STATUS_NO_MEMORY)
            return err_set(e, created, "%s", problem->text);
    }
    const struct tokenizer *t = k->tokenizer;
    if (t)
        (void)tokenizer_reads_text(t, problem);
    s->object = "tokenizer";
    sheet_text(s, table_is_for_people(info->o->common.format) ? "tokenizer" : "model", model);
    sheet_string(s, "problem", problem->text[0] ? problem->text : NULL);
    if (t) {
        job_warn_vocabulary(info->job->common, info->job->path, t);
        sheet_string(s, "pretokenizer", tokenizer_pre(t));
        sheet_number(s, "n_tokens", tokenizer_n_tokens(t));
        sheet_number(s, "bos", tokenizer_bos(t));
        sheet_number(s, "eos", tokenizer_eos(t));
        for (int i = 0, id; (id = tokenizer_end(t, &i, &why)) >= 0;)
            chars_append(info->ends, "%s%d (%s)", info->ends[0] ? ", " : "", id, why);
        sheet_string(s, "ends", info->ends);
        sheet_bool(s, "adds_bos", tokenizer_adds_bos(t));
    }
    s->object = NULL;
    return STATUS_OK;
}

/* Lists the tensors that are shown, all with --tensors, and with --check alone those that it finds
 * bad. */
static enum status list_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->job->checkpoint.gguf;
    const struct info_options *o = info->o;
    TRY_ZEROED(info->tensors, g->n_tensors + 1, "the list of tensors", e);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *from = &g->tensors[i];
        struct info_tensor *t = &info->tensors[info->n_listed];
        *t = (struct info_tensor){.of = *from,
                                  .type = from->type->name,
                                  .shape = pack_shape_text(from->n_dims, from->dims)};
        if (o->check)
            t->check = inspect_check_tensor(from, &info->checks);
        info->n_listed += o->tensors || t->check.nan > 0 || t->check.inf > 0;
    }
    if (!o->check)
        return STATUS_OK;
    struct sheet *s = &info->sheet;
    s->object = "check";
    sheet_number(s, "tensors_checked", info->checks.n);
    sheet_number(s, "tensors_not_checked", g->n_tensors - info->checks.n);
    sheet_number(s, "nan", info->checks.nan);
    sheet_number(s, "inf", info->checks.inf);
    s->object = NULL;
    return STATUS_OK;
}

static enum status read_file(struct info *info, struct err *e)
{
    struct checkpoint *k = &info->job->checkpoint;
    struct sheet *s = &info->sheet;
    TRY(gguf_parse(k->file.data, k->file.len, &k->gguf, e));
    TRY(read_config(info, e));
    const struct gguf *g = k->gguf;
    sheet_string(s, "file", info->job->path);
    sheet_number(s, "file_bytes", k->file.len);
    sheet_number(s, "gguf_version", g->version);
    sheet_number(s, "n_keys", g->n_pairs);
    sheet_number(s, "n_tensors", g->n_tensors);
    sheet_text(s, "architecture", text_at(g, "general.architecture"));
    sheet_text(s, "name", text_at(g, "general.name"));
    sheet_string(s, "does_not_run", info->refusal.text[0] ? info->refusal.text : NULL);
    if (info->has_config)
        add_config(info);
    TRY(add_tokenizer(info, e));
    return list_tensors(info, e);
}

/* --- a shape --------------------------------------------------------------------------------- */

/* Reads shape i of those that --shape gives. */
static enum status read_shape(struct info *info, int i, struct err *e)
{
    const struct info_options *o = info->o;
    struct config *c = &info->config;
    const enum storage type = o->type != CHOICE_NONE ? o->type : STORAGE_F32;
    const char *shape = o->shapes.items[i];
    TRY(shape_parse(shape, c, e));
    struct sheet *s = &info->sheet;
    job_say_fallback(&o->common, c, type);
    info->cost = (struct cost_shape){c, type, .tied = !c->arch->own_output};
    info->runs = true;
    info->sheet.n_properties = 0;
    sheet_string(s, "shape", shape);
    sheet_string(s, "architecture", c->arch->name);
    add_config(info);
    return STATUS_OK;
}

static enum status list_shapes(struct job *j, struct err *e)
{
    static const struct report_field fields[] = {
        {"shape", "shape", MEMBER(named_shape, name)},
        {"architecture", "architecture", MEMBER(named_shape, arch)},
        {"sizes", "sizes", MEMBER(named_shape, sizes)},
        {"paper", "paper", MEMBER(named_shape, paper), .detail = true},
    };
    struct table t = TABLE_OF(fields, named_shapes, 0);
    while (named_shapes[t.n_rows].name)
        t.n_rows++;
    return job_print(j, &t, e);
}

/* --- steps ----------------------------------------------------------------------------------- */

/* Lists the variants and adds the steps that are asked for, every depth with every batch. A shape
 * has nothing else to show, so its steps are always shown. */
static enum status plan_steps(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const bool steps_asked = o->depths || o->batches || o->shards;
    const int n_ctx = info->config.n_ctx, n_heads = info->config.n_heads;
    struct inspect_settings settings = {.kv_type = kv_type_at(info->job->kv_types.items[0]),
                                        .shards = o->shards,
                                        .available_bytes = available_memory()};
    char context[32];
    if (!info->runs)
        return steps_asked ? err_usage(e, "%s: expected a checkpoint that runs",
                                       o->shards ? "--shards" : "--depth and --batch")
                           : STATUS_OK;
    if (o->shards && n_heads % o->shards != 0)
        return err_usage(e, "--shards: expected a divisor of the %d query heads, found %d", n_heads,
                         o->shards);
    free(info->variants.items); /* another shape's */
    TRY(inspect_list_variants(&info->cost, &info->variants, e));
    if (!steps_asked && o->shapes.n == 0)
        return STATUS_OK;
    if (o->shapes.n > 0)
        settings.shape = info->sheet.properties[0].value.data;
    chars_printf(context, "%s%d", o->shapes.n > 1 ? "" : "0,", n_ctx);
    TRY(list_ints("--depth", o->depths ? o->depths : context, 0, n_ctx, &settings.depths, e));
    TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &settings.batches, e));
    const bool known = settings.available_bytes != AVAILABLE_UNKNOWN;
    if (known || !table_is_for_people(o->common.format))
        sheet_number(&info->sheet, "memory_available_bytes",
                     known ? (double)settings.available_bytes : NO_FIGURE);
    else
        sheet_string(&info->sheet, "memory_available_bytes", "unknown");
    return inspect_add_steps(&info->steps, &info->variants, &settings, e);
}

/* --- tables ---------------------------------------------------------------------------------- */

static const struct report_field part_fields[] = {
    {"part", "part", MEMBER(inspect_sum, part)},
    {"parameters", "parameters", MEMBER(inspect_sum, parameters), .grouped = true},
    {NULL, "share", MEMBER(inspect_sum, percent), "%.1f%%"},
    {"bytes", "bytes", MEMBER(inspect_sum, bytes), .grouped = true, .detail = true},
};

static const struct report_field cache_fields[] = {
    {"variant", "KV cache of", MEMBER(inspect_variant, name)},
    {"n_kv_heads", "K/V heads", MEMBER(inspect_variant, config.n_kv_heads), .detail = true},
    {"parameters", "parameters", MEMBER(inspect_variant, weights.parameters), .grouped = true,
     .detail = true},
};

/* These columns, and one for each type of a cache. */
struct cache_columns {
    struct report_field fields[LENGTH(cache_fields) + CACHE_TYPES];
    char keys[CACHE_TYPES][32], headings[CACHE_TYPES][32];
};

static void list_cache_columns(struct cache_columns *c)
{
    memcpy(c->fields, cache_fields, sizeof cache_fields);
    for (int t = 0; t < CACHE_TYPES; t++) {
        struct report_field *f = &c->fields[LENGTH(cache_fields) + t];
        chars_printf(c->keys[t], "bytes_per_token_%s", cache_type_names[t]);
        chars_printf(c->headings[t], "bytes/token %s", cache_type_names[t]);
        *f = (struct report_field){c->keys[t], c->headings[t],
                                   MEMBER(inspect_variant, token_bytes[0]), .grouped = true,
                                   .detail = t > 0};
        f->offset += t * sizeof(uint64_t);
    }
}

/* When a step's fields are shown. */
enum {
    SEVERAL = 1, /* there are several shapes */
    SHARDS = 2,
};
static const struct report_field step_fields[] = {
    {"shape", "shape", MEMBER(inspect_step, shape), .when = SEVERAL},
    {"variant", "a step of", MEMBER(inspect_step, variant)},
    {"n_kv_heads", NULL, MEMBER(inspect_step, of.n_kv_heads)},
    {"depth", "depth", MEMBER(inspect_step, of.depth), .detail = true},
    {"batch", "batch", MEMBER(inspect_step, of.batch), .detail = true},
    {"kv_type", "KV", MEMBER(inspect_step, of.kv_type.text), .detail = true},
    {"cache_bytes", "cache", MEMBER(inspect_step, of.cache_bytes), .figure = figure_bytes,
     .detail = true},
    {"memory_bytes", "with weights", MEMBER(inspect_step, of.memory_bytes), .figure = figure_bytes,
     .detail = true},
    {"fits", "fits", MEMBER(inspect_step, fits), .detail = true},
    {"step_bytes", "read", MEMBER(inspect_step, of.step_bytes), .figure = figure_bytes,
     .detail = true},
    {"step_flops", "Mflop", MEMBER(inspect_step, of.flops), .figure = figure_millions,
     .detail = true},
    {"weight_bytes", "weights", MEMBER(inspect_step, of.weights_memory), .figure = figure_bytes,
     .detail = true, .when = SEVERAL},
    {"cache_over_weights", "cache/weights", MEMBER(inspect_step, cache_over_weights), "%.3f",
     .detail = true, .when = SEVERAL},
    {"shard_weight_bytes", "a shard's weights", MEMBER(inspect_step, shard.weight_bytes),
     .figure = figure_bytes, .when = SHARDS},
    {"shard_cache_bytes", "its cache", MEMBER(inspect_step, shard.cache_bytes),
     .figure = figure_bytes, .when = SHARDS},
    {"shard_kv_heads", "its K/V heads", MEMBER(inspect_step, shard.n_kv_heads), .when = SHARDS},
    {"kv_copies", "copies", MEMBER(inspect_step, shard.copies), "%.3g", .when = SHARDS},
};

#define CHECKED 1 /* when a tensor's figures are shown */
static const struct report_field tensor_fields[] = {
    {"name", "tensor", MEMBER(info_tensor, of.name)},
    {"shape", "shape", MEMBER(info_tensor, shape.text), .right = true},
    {"type", "type", MEMBER(info_tensor, type)},
    {"bytes", "bytes", MEMBER(info_tensor, of.n_bytes), .detail = true},
    {"offset", "offset", MEMBER(info_tensor, of.file_offset), .detail = true},
    {"nan", "nan", MEMBER(info_tensor, check.nan), .none = "not checked", .when = CHECKED},
    {"inf", "inf", MEMBER(info_tensor, check.inf), .none = "not checked", .when = CHECKED},
};

static struct table step_table(const struct info *info)
{
    struct table t = TABLE_OF(step_fields, info->steps.items, info->steps.n);
    t.shown = (info->o->shapes.n > 1 ? SEVERAL : 0) | (info->o->shards > 0 ? SHARDS : 0);
    return t;
}

static enum status print_info(struct info *info, struct err *e)
{
    struct cache_columns caches;
    list_cache_columns(&caches);
    struct sheet_table tables[] = {
        {NULL, TABLE_OF(part_fields, info->parts, INSPECT_PARTS + 1), true},
        {"kv_cache", TABLE_OF(caches.fields, info->variants.items, info->variants.n), false},
        {"steps", step_table(info), true},
        {"tensors", TABLE_OF(tensor_fields, info->tensors, info->n_listed), true},
    };
    tables[3].table.shown = info->o->check ? CHECKED : 0;
    return sheet_print(&info->sheet, tables, LENGTH(tables), info->o->common.format, info->job->out,
                       e);
}

/* --- the whole ------------------------------------------------------------------------------- */

/* One checkpoint or shape has a sheet; the steps of several shapes are one table. */
static enum status describe(struct info *info, struct err *e)
{
    const struct option_strings *shapes = &info->o->shapes;
    if (shapes->n == 0) {
        TRY(job_map(info->job->path, &info->job->checkpoint.file, e));
        TRY(err_in(e, read_file(info, e), "%s", info->job->path));
        TRY(plan_steps(info, e));
    }
    for (int i = 0; i < shapes->n; i++) {
        TRY(read_shape(info, i, e));
        TRY(err_in(e, plan_steps(info, e), "%s", shapes->items[i]));
    }
    if (shapes->n > 1) {
        const struct table t = step_table(info);
        return job_print(info->job, &t, e);
    }
    inspect_parts(&info->cost, info->parts);
    TRY(print_info(info, e));
    if (!info->checks.bad.text[0])
        return STATUS_OK;
    *e = info->checks.bad;
    return err_in(e, STATUS_BAD_FILE, "%.200s", info->job->path);
}

static enum status run_info(struct job *j, void *values, struct err *e)
{
    struct info info = {.o = values, .job = j};
    if (info.o->shapes.n == 1 && str_is(info.o->shapes.items[0], "help"))
        return list_shapes(j, e);
    const enum status s = describe(&info, e);
    free(info.steps.items);
    free(info.variants.items);
    free(info.tensors);
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
                        {"", general_options, 0}},
             .everyday = "shape depth batch shards tensors format",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH,
    .run = run_info,
};
