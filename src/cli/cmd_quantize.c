/*
 * cmd_quantize - decode quantize: a checkpoint in another weight type.
 */
#include "cli/help_texts.h"
#include "cli/job.h"
#include "convert/quantize.h"
#include "formats/gguf_write.h"

struct quantize_options {
    struct common_options common;
    int type;                      /* an enum storage + 1; 0: none */
    struct quantize_params params; /* pure, requantize */
};

#define VALUES struct quantize_options

static const struct option own_options[] = {
    OPT_OUT,
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of the weight matrices; required"),
    OPT_FORCE,
    OPT_FLAG("pure", params.pure,
             "with q4_0: the token embedding too, which is else q8_0, as its error costs most"),
    OPT_FLAG("requantize", params.requantize,
             "take a MODEL that is quantized already; the errors of both types add up"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

/* A tensor, or all of them, or the files. */
struct quantize_row {
    struct text name;
    const char *from, *to; /* NULL: of several */
    uint64_t bytes_before, bytes_after;
    struct quantize_error error;
};

/* When fields are shown: to people where tensors are listed. */
enum { PER_TENSOR = 1 };

static const struct report_field fields[] = {
    {"name", "name", MEMBER(quantize_row, name)},
    {"from", "from", MEMBER(quantize_row, from), .when = PER_TENSOR},
    {"to", "to", MEMBER(quantize_row, to), .when = PER_TENSOR},
    {"bytes_before", "bytes_before", MEMBER(quantize_row, bytes_before)},
    {"bytes_after", "bytes_after", MEMBER(quantize_row, bytes_after)},
    {"rms_error", "rms_error", MEMBER(quantize_row, error.rms), "%.7f", .detail = true},
    {"relative_error", "relative_error", MEMBER(quantize_row, error.relative), "%.7f",
     .detail = true},
    {"max_error", "max_error", MEMBER(quantize_row, error.max), "%.7f", .detail = true},
};

/* Says what a user may not expect. */
static void say_changes(const struct job *j, const struct quantize *q)
{
    const struct common_options *o = j->common;
    const size_t n = q->params.gguf->n_tensors;
    const struct quantize_tensor *first = NULL; /* of those whose rows do not fit the type */
    size_t n_changed = 0, n_become = 0, n_stay = 0;
    char stay[48] = "";
    for (const struct quantize_tensor *t = q->tensors; t < q->tensors + n; t++) {
        const bool stays = t->to == t->from->type;
        n_changed += !stays;
        n_become += t->fallback && !stays;
        n_stay += t->fallback && stays;
        first = first || !t->fallback ? first : t;
    }
    if (n_stay > 0)
        chars_printf(stay, ", %zu stay as they are", n_stay);
    if (first)
        say(o,
            "rows of %zu tensor%s are no multiple of 32 (%.*s: rows of %" PRIu64
            "): %zu become F16%s",
            n_become + n_stay, plural(n_become + n_stay), text_width(first->from->name),
            first->from->name.data, first->from->dims[0], n_become, stay);
    if (n_changed == 0)
        say(o, "no tensor changes its type: %s is a copy", o->out);
    say_verbose(o, "%zu of %zu tensors change their type", n_changed, n);
}

/* Writes, and prints the sizes and errors. */
static enum status write_and_print(struct job *j, struct quantize *q, struct err *e)
{
    const struct common_options *o = j->common;
    const struct quantize_error none = {NO_FIGURE, NO_FIGURE, NO_FIGURE};
    const size_t n = q->params.gguf->n_tensors;
    size_t n_changed = 0;
    for (size_t i = 0; i < n; i++)
        n_changed += q->tensors[i].to != q->tensors[i].from->type;
    TRY(gguf_write(q->writer, o->out, e));
    progress_end(&j->progress);
    say_changes(j, q);
    struct report r;
    /* For people only where tensors are listed: a file has tensors of several types. */
    const bool lists = o->verbose || !table_is_for_people(o->format);
    report_begin(&r, o->format, fields, LENGTH(fields), lists ? PER_TENSOR : 0, j->out);
    const int n_shown = o->verbose ? n : 0;
    for (int i = 0; i < n_shown; i++) {
        const struct quantize_tensor *t = &q->tensors[i];
        report_row(&r, &(struct quantize_row){t->from->name, t->from->type->name, t->to->name,
                                              t->from->n_bytes, t->bytes,
                                              t->to != t->from->type ? t->error : none});
    }
    report_row(&r, &(struct quantize_row){text_of("tensor data"), NULL, NULL, q->bytes_before,
                                          q->bytes_after, n_changed > 0 ? q->error : none});
    report_row(&r, &(struct quantize_row){text_of("file"), NULL, NULL,
                                          q->params.source->len,
                                          job_out_bytes(j), none});
    return report_end(&r, e);
}

/* Writes the file's checkpoint to -o as `params`, which have no gguf yet, say. */
static enum status quantize_file(struct job *j, const struct file_map *file,
                                 struct quantize_params params, struct err *e)
{
    struct gguf *g = NULL;
    struct quantize q;
    TRY(job_start_threads(j, e));
    enum status s = gguf_parse_file(file, &g, e);
    params.gguf = g;
    params.source = file;
    params.pool = j->pool;
    params.callbacks = job_callbacks(j, NULL);
    if (s == STATUS_OK && (s = quantize_plan(&params, &q, e)) == STATUS_OK) {
        s = write_and_print(j, &q, e);
        quantize_free(&q);
    }
    gguf_free(g);
    return s;
}

static enum status run_quantize(struct job *j, void *values, struct err *e)
{
    struct quantize_options *o = values;
    struct file_map file;
    if (!o->type)
        return err_usage(e, "no weight type is named; expected --type TYPE");
    o->params.type = tensor_type_named(text_of(storage_names[o->type - 1]))->type;
    TRY(job_map(j->path, &file, e));
    const enum status s = quantize_file(j, &file, o->params, e);
    file_map_close(&file);
    return job_blame(j->path, s, e);
}

const struct command command_quantize = {
    .name = "quantize",
    .summary = "write a checkpoint in another weight type",
    .usage = "MODEL -o OUT --type TYPE [options]",
    .examples = "./decode quantize models/shakespeare-mha.gguf -o q8.gguf --type q8_0\n"
                "./decode quantize models/shakespeare-mha.gguf -o q4.gguf --type q4_0\n",
    .notes = help_of_quantize,
    .spec = {.groups = {{"Conversion", own_options, 0}, GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_STOPS | JOB_WORKERS,
    .run = run_quantize,
};
