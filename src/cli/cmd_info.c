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

static const struct report_field file_fields[] = {
    {"file", "file", MEMBER(info, subject)},
    {"file_bytes", "file_bytes", MEMBER(info, file_bytes)},
    {"gguf_version", "gguf_version", MEMBER(info, gguf_version)},
    {"n_keys", "n_keys", MEMBER(info, n_keys)},
    {"n_tensors", "n_tensors", MEMBER(info, n_tensors)},
    {"architecture", "architecture", MEMBER(info, architecture)},
    {"name", "name", MEMBER(info, name)},
};
static const struct report_field shape_fields[] = {
    {"shape", "shape", MEMBER(info, subject)},
    {"architecture", "architecture", MEMBER(info, architecture)},
    {"type", "type", MEMBER(info, type)},
};
/* Among the hyperparameters; without those alone. */
static const struct report_field refusal_fields[] = {
    {"does_not_run", "does_not_run", MEMBER(info, does_not_run)},
};
static const struct report_field config_fields[] = {
    {"variant", "variant", MEMBER(info, variant)},
    {"n_layers", "n_layers", MEMBER(info, config.n_layers)},
    {"n_heads", "n_heads", MEMBER(info, config.n_heads)},
    {"n_kv_heads", "n_kv_heads", MEMBER(info, config.n_kv_heads)},
    {"head_dim", "head_dim", MEMBER(info, config.head_dim)},
    {"value_dim", "value_dim", MEMBER(info, value_dim)},
    {"d_model", "d_model", MEMBER(info, config.d_model)},
    {"d_ff", "d_ff", MEMBER(info, config.d_ff)},
    {"n_ctx", "n_ctx", MEMBER(info, config.n_ctx)},
    {"n_vocab", "n_vocab", MEMBER(info, config.n_vocab)},
    {"heads_by_layer", "heads_by_layer", MEMBER(info, heads_by_layer)},
    {"kv_heads_by_layer", "kv_heads_by_layer", MEMBER(info, kv_heads_by_layer)},
    {"norm", "norm", MEMBER(info, norm)},
    {"placement", "placement", MEMBER(info, placement)},
    {"position", "position", MEMBER(info, position)},
    {"ffn", "ffn", MEMBER(info, ffn)},
    {"score", "score", MEMBER(info, score)},
    {"norm_eps", "norm_eps", MEMBER(info, norm_eps), "%g"},
    {"score_scale", "score_scale", MEMBER(info, score_scale), "%g"},
    {"does_not_run", "does_not_run", MEMBER(info, does_not_run)},
    {"tied_output", "tied_output", MEMBER(info, cost.tied)},
};
/* For people only where it is so. */
static const struct report_field shared_fields[] = {
    {"shared_block", "shared_block", MEMBER(info, config.shared)},
};
/* The rows of a tokenizer, of which one that cannot be read has the first two. The second and third
 * end token are those of a turn of a conversation and of a message. */
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info, token_kind)},
    {"problem", "problem", MEMBER(info, problem)},
    {"pretokenizer", "pretokenizer", MEMBER(info, pretokenizer)},
    {"n_tokens", "n_tokens", MEMBER(info, n_tokens)},
    {"bos", "bos", MEMBER(info, bos)},
    {"eos", "eos", MEMBER(info, eos)},
    {"eot", "eot", MEMBER(info, eot)},
    {"eom", "eom", MEMBER(info, eom)},
    {"adds_bos", "adds_bos", MEMBER(info, adds_bos)},
};
static const struct report_field check_fields[] = {
    {"tensors_checked", "tensors_checked", MEMBER(info, tensors_checked)},
    {"tensors_not_checked", "tensors_not_checked", MEMBER(info, tensors_not_checked)},
    {"nan", "nan", MEMBER(info, nan)},
    {"inf", "inf", MEMBER(info, inf)},
};
/* For programs. */
static const struct report_field steps_fields[] = {
    {"memory_available_bytes", NULL, MEMBER(info, available)},
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

/* Prints a table "property, value" for people, or members of the object `j` for programs. */
static enum status print_properties(const struct info *info, struct json *j, struct err *e)
{
    static const struct report_field columns[] = {{NULL, "property", .type = REPORT_TEXT},
                                                  {NULL, "value", .type = REPORT_TEXT}};
    const int n_tokenizer = info->tokenizer ? LENGTH(tokenizer_fields) : 2;
    const struct {
        const char *object; /* that programs find the group in, null if it is empty; NULL: none */
        const struct report_field *fields;
        int n;
    } groups[] = {
        {NULL, file_fields, info->gguf ? LENGTH(file_fields) : 0},
        {NULL, shape_fields, info->gguf ? 0 : LENGTH(shape_fields)},
        {NULL, config_fields, info->has_config ? LENGTH(config_fields) : 0},
        {NULL, shared_fields, info->has_config && (j || info->config.shared)},
        {NULL, refusal_fields, info->gguf && !info->has_config},
        {"tokenizer", tokenizer_fields, info->token_kind.len > 0 ? n_tokenizer : 0},
        {"types", info->types, info->n_types},
        {"check", check_fields, info->o->check ? LENGTH(check_fields) : 0},
        {NULL, steps_fields, info->n_steps > 0},
    };
    struct report r;
    if (!j)
        report_begin(&r, info->o->common.format, columns, 2, 0, info->job->out);
    for (int i = 0; i < LENGTH(groups); i++) {
        if (!j)
            report_lines(&r, groups[i].fields, groups[i].n, info);
        else if (!groups[i].object)
            report_members(j, groups[i].fields, groups[i].n, 0, info);
        else if (groups[i].n == 0)
            json_null(j, groups[i].object);
        else
            report_object(j, groups[i].object, groups[i].fields, groups[i].n, 0, info);
    }
    if (j)
        return STATUS_OK;
    print_other_keys(&r, info);
    return report_end(&r, e);
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

static enum status read_file(struct info *info, struct err *e)
{
    TRY(gguf_parse_file(&info->file, &info->gguf, e));
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
            job_warn_pretokenizer(info->job->common, info->job->path, t);
            info->n_tokens = tokenizer_n_tokens(t);
            info->bos = tokenizer_bos(t);
            info->pretokenizer = tokenizer_pre(t);
            info->eos = tokenizer_eos(t);
            info->eot = tokenizer_eot(t);
            info->eom = tokenizer_eom(t);
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

#define N_OWN 2 /* that JSON has in another form */
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", MEMBER(info_tensor, of.name)},
    {"shape", "shape", MEMBER(info_tensor, shape.text), .right = true},
    {"type", "type", MEMBER(info_tensor, type)},
    {"bytes", "bytes", MEMBER(info_tensor, of.n_bytes), .detail = true},
    {"offset", "offset", MEMBER(info_tensor, of.file_offset), .detail = true},
};
/* With --check. */
static const struct report_field tensor_check_fields[] = {
    {"nan", "nan", MEMBER(info_tensor, check.nan), .none = "not checked"},
    {"inf", "inf", MEMBER(info_tensor, check.inf), .none = "not checked"},
};
#define TENSOR_FIELDS_MOST (LENGTH(tensor_fields) + LENGTH(tensor_check_fields))

/* The columns that are shown; how many. */
static int list_tensor_fields(const struct info *info, struct report_field *out)
{
    int n = LENGTH(tensor_fields);
    memcpy(out, tensor_fields, sizeof tensor_fields);
    if (info->o->check) {
        memcpy(out + n, tensor_check_fields, sizeof tensor_check_fields);
        n += LENGTH(tensor_check_fields);
    }
    return n;
}

/* In the order in which people read them; without rows where one is not wanted. */
enum { TABLE_PARTS, TABLE_CACHES, TABLE_STEPS, TABLE_TENSORS, INFO_TABLES };

/* An array of rows; but the parts are an object for each figure, and a tensor's shape is an array.
 */
static void print_info_json(struct json *j, int table, const struct table *t)
{
    static const char *const keys[INFO_TABLES] = {NULL, "kv_cache", "steps", "tensors"};
    const struct report_field *f = t->fields, *const end = f + t->n;
    const struct inspect_sum *parts = t->rows; /* if they are */
    if (table == TABLE_PARTS) {
        for (; f < end; f++) {
            if (!f->grouped)
                continue;
            json_begin_object(j, f->key);
            for (int i = 0; i < t->n_rows; i++)
                report_member(j, parts[i].part, f, &parts[i]);
            json_end(j);
        }
        return;
    }
    f += table == TABLE_TENSORS ? N_OWN : 0;
    json_begin_array(j, keys[table]);
    for (int i = 0; i < t->n_rows; i++) {
        const void *row = (const char *)t->rows + i * t->row_bytes;
        const struct gguf_tensor *tensor = row; /* if it is one */
        json_begin_object(j, NULL);
        if (table == TABLE_TENSORS) {
            json_text(j, "name", tensor->name);
            json_begin_array(j, "shape");
            for (int d = 0; d < tensor->n_dims; d++)
                json_u64(j, NULL, tensor->dims[d]);
            json_end(j);
        }
        report_members(j, f, end - f, 0, row);
        json_end(j);
    }
    json_end(j);
}

/* Properties and tables: several for people, one JSON object, or of CSV, which has one table, the
 * last, but for the caches. */
static enum status print_info(struct info *info, struct err *e)
{
    const enum table_format format = info->o->common.format;
    const bool people = table_is_for_people(format);
    struct report_field columns[TENSOR_FIELDS_MOST]; /* of tensors */
    struct table tables[INFO_TABLES] = {TABLE_OF(part_fields, info->parts, 0),
                                        info_cache_table(info), info_step_table(info),
                                        TABLE_OF(columns, info->tensors, info->n_listed)};
    struct output *out = info->job->out;
    struct json json;
    struct json *j = people ? NULL : &json;
    /* People are shown parts that there are. */
    for (int i = 0; i <= INSPECT_PARTS; i++)
        if (!people || info->parts[i].parameters > 0)
            info->parts[tables[TABLE_PARTS].n_rows++] = info->parts[i];
    tables[TABLE_TENSORS].n = list_tensor_fields(info, columns);
    if (format == TABLE_CSV) {
        int last = TABLE_TENSORS;
        while (tables[last].n_rows == 0 || last == TABLE_CACHES)
            last--;
        return job_print(info->job, &tables[last], e);
    }
    if (j) {
        json_init(j, out, format == TABLE_JSONL ? 0 : 2);
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
            info_explain_caches(&info->config, out);
        if (i == TABLE_STEPS)
            info_explain_steps(info, out);
        TRY(table_print(&tables[i], format, out, e));
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
    if (o->shapes.n > 0)
        j->needs &= ~JOB_PATH;
    if (info_is_auto(o))
        j->needs |= JOB_WORKERS;
    return STATUS_OK;
}

static enum status run_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
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
    .needs = JOB_PATH,
    .check = check_info,
    .run = run_info,
};
