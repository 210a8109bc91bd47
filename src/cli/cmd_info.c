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
#include "cli/job.h"
#include "cli/shape.h"
#include "measure/inspect.h"
#include "measure/machine.h"
#include "model/pack.h"
#include "show/paragraph.h"

/* Of --bandwidth: with more, times are less than a double of microseconds shows. */
#define MOST_GB_PER_S 1e9
/* For which this machine is measured. */
#define MEASURE_SECONDS 2.0

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

/* More than the format has. */
#define TYPES_MOST 64

struct info {
    const struct info_options *o;
    struct job *job;
    struct file_map file; /* of job.path; none of a shape */
    struct gguf *gguf;
    struct tokenizer *tokenizer;                       /* NULL: none, or it cannot be read */
    struct err refusal, tokenizer_problem, not_finite; /* "": none */
    struct config config; /* of an architecture that runs here, with tensors */
    bool has_config;
    bool runs; /* the weights are of a type that runs here: the type in `cost` means it */
    struct cost_shape cost;
    struct inspect_sum parts[INSPECT_PARTS + 1]; /* the last one is the total */
    struct inspect_variants variants;
    struct roofline limits; /* given; 0 bytes_per_s: not; infinite flops: not counted */
    uint64_t available;     /* bytes of memory */
    struct info_step {
        struct inspect_step of;
        bool fits;
        const char *fits_word;
    } * steps; /* [n_steps] malloc'd: variants change fastest, then batches */
    struct info_tensor {
        struct gguf_tensor of;
        const char *type;
        struct shape_text shape;
        uint64_t offset; /* of the data, from the start of the file */
        struct inspect_check check;
    } * tensors; /* [n_listed] malloc'd */
    int n_steps, n_listed;

    /* Properties; of texts and strings NULL is none, and of numbers a negative one. */
    const char *subject, *type, *norm, *placement, *position, *ffn, *does_not_run, *problem;
    struct text architecture, name, token_kind;
    int64_t gguf_version, n_keys, n_tensors, value_dim, n_tokens, bos, eos;
    int64_t attention_4_d_model_squared, memory_available_bytes;
    int64_t tensors_checked, tensors_not_checked, nan, inf; /* the last two are values */
    char variant[16], heads_by_layer[CONFIG_MAX_LAYERS * 8],
        kv_heads_by_layer[CONFIG_MAX_LAYERS * 8], latent[CONFIG_MAX_LAYERS * 8];
    double norm_eps;
    bool adds_bos;
    /* How many tensors are of each type, in order of first use. */
    int n_types;
    int64_t of_type[TYPES_MOST];
    char type_headings[TYPES_MOST][40];
    struct report_field types[TYPES_MOST];
};

/* --- properties ------------------------------------------------------------------------------ */

/* What programs and people call the same. */
#define SAME(name) #name, #name, MEMBER(info, name)
#define SIZE(name) #name, #name, MEMBER(info, config.name)

static const struct report_field file_fields[] = {
    {"file", "file", MEMBER(info, subject)},
    {"file_bytes", "file_bytes", MEMBER(info, file.len)},
    {SAME(gguf_version)},
    {SAME(n_keys)},
    {SAME(n_tensors)},
    {SAME(architecture)},
    {SAME(name)},
};
static const struct report_field shape_fields[] = {
    {"shape", "shape", MEMBER(info, subject)},
    {SAME(architecture)},
    {SAME(type)},
};
static const struct report_field config_fields[] = {
    {SAME(variant)},
    {SIZE(n_layers)},
    {SIZE(n_heads)},
    {SIZE(n_kv_heads)},
    {SIZE(head_dim)},
    {SAME(value_dim)},
    {SIZE(d_model)},
    {SIZE(d_ff)},
    {SIZE(n_ctx)},
    {SIZE(n_vocab)},
    {SAME(heads_by_layer)},
    {SAME(kv_heads_by_layer)},
    {SAME(latent)},
    {SAME(norm)},
    {SAME(placement)},
    {SAME(position)},
    {SAME(ffn)},
    {"shared_block", "shared_block", MEMBER(info, config.shared)},
    {SAME(norm_eps), "%g"},
    {SAME(does_not_run)},
    {"tied_output", "tied_output", MEMBER(info, cost.tied)},
};
/* Of a tokenizer that cannot be read there are the first two. */
static const struct report_field tokenizer_fields[] = {
    {"model", "tokenizer", MEMBER(info, token_kind)},
    {SAME(problem)},
    {SAME(n_tokens)},
    {SAME(bos)},
    {SAME(eos)},
    {SAME(adds_bos)},
};
static const struct report_field check_fields[] = {
    {SAME(tensors_checked)}, {SAME(tensors_not_checked)}, {SAME(nan)}, {SAME(inf)}};
/* For programs. The first: a layer's Q, K, V and output have so many weights where every head has
 * its own; the second with steps. */
static const struct report_field cost_fields[] = {
    {"attention_4_d_model_squared", NULL, MEMBER(info, attention_4_d_model_squared)},
    {"memory_available_bytes", NULL, MEMBER(info, memory_available_bytes)}};

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
            snprintf(f.text, sizeof f.text, "%" PRId64, gguf_int_at(v, 0));
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
    const int n_tokenizer = info->tokenizer ? REPORT_LENGTH(tokenizer_fields) : 2;
    const struct {
        const char *object; /* that programs find the group in, null if it is empty; NULL: none */
        const struct report_field *fields;
        int n;
    } groups[] = {
        {NULL, file_fields, info->gguf ? REPORT_LENGTH(file_fields) : 0},
        {NULL, shape_fields, info->gguf ? 0 : REPORT_LENGTH(shape_fields)},
        {NULL, config_fields, info->has_config ? REPORT_LENGTH(config_fields) : 0},
        {"tokenizer", tokenizer_fields, info->token_kind.len > 0 ? n_tokenizer : 0},
        {"types", info->types, info->n_types},
        {"check", check_fields, info->o->check ? REPORT_LENGTH(check_fields) : 0},
        {NULL, cost_fields, info->has_config + (info->n_steps > 0)},
    };
    struct report r;
    if (!j)
        report_begin(&r, info->o->common.format, columns, 2, info->job->out);
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

/* Counts the tensors by type, checks them if that is wanted, and lists those that are shown: all of
 * them, or with --check alone those that are bad to people, all in CSV. */
static enum status take_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    const struct info_options *o = info->o;
    const size_t bytes = (g->n_tensors + 1) * sizeof *info->tensors;
    info->tensors = calloc(1, bytes);
    if (!info->tensors)
        return err_no_memory(e, "the list of tensors", bytes);
    for (const struct gguf_tensor *from = g->tensors; from < g->tensors + g->n_tensors; from++) {
        struct info_tensor *t = &info->tensors[info->n_listed];
        *t = (struct info_tensor){.of = *from,
                                  .type = from->type->name,
                                  .shape = pack_shape_text(from->n_dims, from->dims),
                                  .offset = (uint64_t)(from->data - info->file.data)};
        int at = 0;
        while (at < info->n_types && info->types[at].key != t->type)
            at++;
        if (at == info->n_types) {
            char *heading = info->type_headings[info->n_types++];
            const uint32_t in_memory = blocks_in_memory(from->type->type);
            const bool widened = in_memory != from->type->type;
            snprintf(heading, sizeof *info->type_headings, "%s tensors%s%s", t->type,
                     widened ? ", run as " : "", widened ? tensor_type_find(in_memory)->name : "");
            info->types[at] = (struct report_field){t->type, heading, MEMBER(info, of_type[at])};
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
                       "%.200s: tensor '%.*s' has %" PRId64 " values that are not finite, the "
                       "first%s at element %" PRIu64,
                       info->subject, text_width(from->name), from->name.data, n_bad,
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
    info->cost = (struct cost_shape){.tied = layout_output_tied(g), .gguf = g};
    /* Of the architectures that run here the hyperparameters must be readable; of others the keys
     * are shown. */
    const bool is_known = info->architecture.data && arch_find(info->architecture);
    if (is_known && g->n_tensors > 0) {
        TRY(config_parse(g, &info->config, e));
        info->has_config = true;
        info->runs = cost_shape_of_file(g, &info->config, &info->cost) &&
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

/* The variants of what runs here, and the steps that are asked for: every depth with every batch;
 * with their times, if the machine's limits are given or measured. */
static enum status plan_steps(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const int n_ctx = info->config.n_ctx;
    struct int_list ranks = {.n = 0}, depths = {.n = 0}, batches = {.n = 0};
    struct machine machine = {0};
    char context[32];
    double gb_per_s;
    if (o->latent && !info->runs)
        return err_set(e, STATUS_USAGE, "--latent: expected a checkpoint that runs");
    if (o->latent)
        TRY(list_ints("--latent", o->latent, 1, CONFIG_MAX_WIDTH, &ranks, e));
    for (int i = 0; i < ranks.n; i++)
        TRY(config_check_rank(&info->config, ranks.items[i], e));
    /* Of a shape, which has nothing else to show, steps are always asked. */
    if (info->runs && (o->shape.shape || o->depths || o->batches || o->bandwidth)) {
        snprintf(context, sizeof context, "0,%d", n_ctx);
        TRY(list_ints("--depth", o->depths ? o->depths : context, 0, n_ctx, &depths, e));
        TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &batches, e));
        if (is_auto(o)) {
            TRY(job_start_threads(info->job, e));
        } else if (o->bandwidth) {
            if (!parse_double(o->bandwidth, &gb_per_s) || gb_per_s <= 0 || gb_per_s > MOST_GB_PER_S)
                return err_set(
                    e, STATUS_USAGE,
                    "--bandwidth: expected auto or GB/s above 0, at most %g, found '%.60s'",
                    MOST_GB_PER_S, o->bandwidth);
            const double flops = o->gflops > 0 ? o->gflops * 1e9 : (double)INFINITY;
            info->limits = (struct roofline){gb_per_s * 1e9, flops, flops};
        }
    }
    if (!info->has_config || info->refusal.text[0])
        return STATUS_OK;
    TRY(inspect_list_variants(&info->cost, ranks.items, ranks.n, &info->variants, e));
    const int n_variants = info->variants.n, n = n_variants * depths.n * batches.n;
    if (n == 0)
        return STATUS_OK;
    info->available = available_memory();
    info->memory_available_bytes = (int64_t)info->available; /* negative where it is not known */
    info->steps = calloc((size_t)n, sizeof *info->steps);
    if (!info->steps)
        return err_no_memory(e, "the list of steps", (size_t)n * sizeof *info->steps);
    info->n_steps = n;
    for (int i = 0; i < n; i++) {
        const int row = i / n_variants;
        const struct inspect_step s =
            inspect_step(&info->variants.items[i % n_variants], kv_type_storage[o->common.kv_type],
                         depths.items[row / batches.n], batches.items[row % batches.n]);
        const bool fits = s.memory_bytes <= info->available;
        info->steps[i] = (struct info_step){s, fits, fits ? "yes" : "no"};
        if (is_auto(o))
            machine_want(&machine, s.step_bytes);
    }
    if (is_auto(o)) {
        TRY(machine_measure(&machine, info->job->kernels, info->job->pool, MEASURE_SECONDS, e));
        machine_settle(&machine);
    }
    for (int i = 0; i < n && o->bandwidth; i++) {
        struct inspect_step *s = &info->steps[i].of;
        const struct roofline l =
            is_auto(o) ? machine_limits(&machine, s->step_bytes) : info->limits;
        inspect_predict(s, &l);
    }
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

#define CACHE(member) MEMBER(inspect_variant, member)
static const struct report_field cache_fields[] = {
    {"variant", "KV cache of", CACHE(name)},
    {"n_kv_heads", "K/V heads", CACHE(config.n_kv_heads), .rank = 3},
    {"parameters", "parameters", CACHE(weights.parameters), .grouped = true, .rank = 5},
    {"bytes_per_token_f32", "bytes/token f32", CACHE(token_bytes[0]), .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", CACHE(token_bytes[1]), .grouped = true, .rank = 4},
    {"bytes_per_token_q8_0", "bytes/token q8_0", CACHE(token_bytes[2]), .grouped = true, .rank = 6},
    {"bytes_full_context_f32", "context f32", CACHE(full_bytes[0]), .figure = figure_bytes,
     .rank = 2},
    {"bytes_full_context_f16", "context f16", CACHE(full_bytes[1]), .figure = figure_bytes,
     .rank = 7},
    {"bytes_full_context_q8_0", "context q8_0", CACHE(full_bytes[2]), .figure = figure_bytes,
     .rank = 8},
};

#define STEP(member)  MEMBER(info_step, member)
#define N_TIME_FIELDS 4 /* the last ones */
static const struct report_field step_fields[] = {
    {"variant", "a step of", STEP(of.variant)},
    {"n_kv_heads", NULL, STEP(of.n_kv_heads)},
    {"depth", "depth", STEP(of.depth)},
    {"batch", "batch", STEP(of.batch)},
    {"kv_type", "KV", STEP(of.kv_type), .rank = 6},
    {"cache_bytes", "cache", STEP(of.cache_bytes), .figure = figure_bytes, .rank = 5},
    {"memory_bytes", "with weights", STEP(of.memory_bytes), .figure = figure_bytes, .rank = 3},
    {NULL, "fits", STEP(fits_word), .rank = 2},
    {"fits", NULL, STEP(fits)},
    {"step_bytes", "read", STEP(of.step_bytes), .figure = figure_bytes, .rank = 4},
    {"step_flops", "Mflop", STEP(of.flops), .figure = figure_millions, .rank = 9},
    {"predicted_us", "µs", STEP(of.predicted.us), "%.1f", .rank = 1},
    {"limit_tokens_per_s", "tokens/s", STEP(of.predicted.tokens_per_s), .figure = figure_rate},
    {"bandwidth_gb_per_s", "GB/s", STEP(of.bandwidth_gb_per_s), "%.1f", .rank = 8},
    {"limited_by", "waits for", STEP(of.predicted.limited_by), .rank = 7},
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
    static const char *const keys[INFO_TABLES] = {NULL, "kv_cache", "steps", "tensors"};
    const struct inspect_sum *parts = t->rows; /* if they are */
    const struct report_field *f = t->fields, *end = f + t->n;
    for (; f < end && table == TABLE_PARTS; f++) {
        if (!f->grouped)
            continue;
        json_begin_object(j, f->key);
        for (int i = 0; i < t->n_rows; i++)
            report_member(j, parts[i].part, f, &parts[i]);
        json_end(j);
    }
    if (table == TABLE_PARTS)
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

/* What is said before the caches: how the bytes of a token come about. */
static void explain_caches(const struct config *c, struct output *out)
{
    struct paragraph p = paragraph_begin(out, 0);
    int64_t all = 0;
    const bool latent = config_is_latent(c);
    for (int l = 0; l < c->n_layers; l++)
        all += latent ? config_latent(c, l) : config_kv_heads(c, l);
    paragraph_printf(&p, "One token takes %s all layers (%" PRId64 " in %d layers",
                     latent ? "the numbers that all heads share in" : "K/V heads of", all,
                     c->n_layers);
    if (!latent)
        paragraph_printf(&p, ") x numbers of a key and a value (%d + %d", c->head_dim,
                         config_value_dim(c));
    paragraph_puts(&p, ")\vx bytes of a number (f32 4, f16 2, q8_0 34/32); the cache is that x "
                       "tokens x sequences.\n\n");
    paragraph_end(&p);
}

/* And before the steps: what one is, and what its time follows from. */
static void explain_steps(const struct info *info, struct output *out)
{
    const struct roofline *l = &info->limits;
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_puts(&p, "A step takes one token of each sequence of the batch: it reads the "
                       "weights once, and every\vsequence's cache");
    if (l->bytes_per_s > 0)
        paragraph_printf(&p, ", at %s GB/s", figure_exact(l->bytes_per_s / 1e9).text);
    if (is_auto(info->o))
        paragraph_puts(&p, ", or waits for its arithmetic, as fast as was measured here");
    else if (isinf(l->fma_flops_per_s))
        paragraph_puts(&p, "; arithmetic is not counted (--flops GFLOP/s counts it)");
    else if (l->bytes_per_s > 0)
        paragraph_printf(&p, ", or waits for its arithmetic, at %s GFLOP/s",
                         figure_exact(l->fma_flops_per_s / 1e9).text);
    paragraph_puts(&p, ".");
    if (info->available != AVAILABLE_UNKNOWN)
        paragraph_printf(&p, " Free: %s.", figure_bytes((double)info->available).text);
    paragraph_puts(&p, "\n\n");
    paragraph_end(&p);
}

/* Properties and tables: several for people, one JSON object, or of CSV, which has one table, the
 * last, but for the caches. */
static enum status print_info(struct info *info, struct err *e)
{
    const enum table_format format = info->o->common.format;
    const bool people = table_is_for_people(format);
    struct table tables[INFO_TABLES] = {
        TABLE_OF(part_fields, info->parts, 0),
        TABLE_OF(cache_fields, info->variants.items, info->variants.n),
        TABLE_OF(step_fields, info->steps, info->n_steps),
        TABLE_OF(tensor_fields, info->tensors, info->n_listed)};
    struct output *out = info->job->out;
    struct json json, *j = people ? NULL : &json;
    /* People are shown parts that there are. */
    for (int i = 0; i <= INSPECT_PARTS; i++)
        if (!people || info->parts[i].parameters > 0)
            info->parts[tables[TABLE_PARTS].n_rows++] = info->parts[i];
    tables[TABLE_STEPS].n -= info->o->bandwidth ? 0 : N_TIME_FIELDS;
    tables[TABLE_TENSORS].n -= info->o->check ? 0 : N_CHECK;
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
            explain_caches(&info->config, out);
        if (i == TABLE_STEPS)
            explain_steps(info, out);
        TRY(table_print(&tables[i], format, out, e));
    }
    if (j) {
        json_end(j);
        output_puts(out, "\n");
    }
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* What is known of a shape instead of a file. */
static enum status read_shape(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    struct config *c = &info->config;
    const enum storage type = o->type ? (enum storage)(o->type - 1) : STORAGE_F32;
    TRY(shape_of_options(&o->shape, &o->common, c, e));
    TRY(model_check_storage(c, type, e));
    info->subject = o->shape.shape;
    info->architecture = text_of(c->arch->name);
    info->type = storage_name(type);
    info->cost = (struct cost_shape){c, c->n_kv_heads, type, .tied = !c->arch->own_output};
    info->has_config = info->runs = true;
    return STATUS_OK;
}

static enum status show_info(struct info *info, struct err *e)
{
    const struct config *c = &info->config;
    if (info->o->shape.shape) {
        TRY(read_shape(info, e));
    } else {
        TRY(job_map(info->job->path, &info->file, e));
        TRY(err_in(e, read_file(info, e), "%s", info->job->path));
    }
    info->does_not_run = info->refusal.text[0] ? info->refusal.text : NULL;
    info->problem = info->tokenizer_problem.text[0] ? info->tokenizer_problem.text : NULL;
    if (info->has_config) {
        const bool latent = config_is_latent(c);
        char *list;
        size_t used = 0, queries = 0;
        config_variant_name(c, c->n_kv_heads, info->variant);
        info->value_dim = config_value_dim(c);
        /* "6, 2, 1": heads, K/V heads or ranks by layer, where one number does not say it. */
        list = info->heads_by_layer;
        for (int l = 0; l < c->n_layers && !config_same_heads(c); l++)
            queries += (size_t)snprintf(list + queries, sizeof info->latent - queries, "%s%d",
                                        l ? ", " : "", config_heads(c, l));
        list = latent ? info->latent : info->kv_heads_by_layer;
        for (int l = 0; l < c->n_layers && (latent || !config_same_kv_heads(c)); l++)
            used += (size_t)snprintf(list + used, sizeof info->latent - used, "%s%d", l ? ", " : "",
                                     latent ? config_latent(c, l) : config_kv_heads(c, l));
        info->norm = arch_norm_names[c->norm];
        info->placement = arch_placement_names[c->placement];
        info->position = arch_position_names[c->position];
        info->ffn = arch_ffn_names[c->ffn];
        info->norm_eps = (double)c->norm_eps;
        info->attention_4_d_model_squared = (int64_t)4 * c->d_model * c->d_model * config_blocks(c);
    }
    inspect_parts(&info->cost, info->parts);
    TRY(plan_steps(info, e));
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
    struct info info = {.o = values, .job = j};
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
