#include "cli/job.h"

#include <unistd.h>

#include "base/rng.h"
#include "cli/signals.h"
#include "show/paragraph.h"

/* --- help ------------------------------------------------------------------------------------ */

void help_set_width(struct output *out)
{
    if (out->columns == 0 && environment("COLUMNS"))
        out->columns = terminal_width(STDOUT_FILENO);
}

void command_print_help(const struct command *c, bool all, struct output *out)
{
    help_set_width(out);
    struct paragraph p = paragraph_begin(out, sizeof "usage: " - 1);
    paragraph_printf(&p, "usage: decode %s %s\n\n%s\n\n", c->name, c->usage, c->summary);
    paragraph_end(&p);
    output_puts(out, "Examples:\n");
    for (const char *line = c->examples; *line; line += strcspn(line, "\n") + 1)
        output_printf(out, "  %.*s\n", (int)strcspn(line, "\n"), line); /* never broken */
    output_puts(out, "\n");
    options_help(&c->spec, all, out);
    const bool is_short = c->spec.everyday && !all;
    p = paragraph_begin(out, 0);
    paragraph_puts(&p, "\nOf all commands: decode help.");
    if (is_short)
        paragraph_printf(&p, " All of this one: decode help %s --all.", c->name);
    paragraph_end(&p);
    if (c->notes && !is_short) {
        output_puts(out, "\n");
        paragraph_reflow(out, c->notes);
    }
}

/* --- the run --------------------------------------------------------------------------------- */

/* Finds the checkpoint and the text that the command line names. If -m names the checkpoint of a
 * command that takes MODEL and TEXT, a single positional is the text. */
static enum status name_inputs(struct job *j, struct err *e)
{
    struct common_options *o = j->common;
    const bool takes_text = j->command->spec.positionals[1].kind == OPTION_STRING;
    const struct option_row *shape = options_find(j->rows, "shape");
    const bool has_shape = shape && shape->given;
    if (takes_text && o->model && !o->file) {
        o->file = o->positional;
        o->positional = NULL;
    }
    if (o->positional && o->model)
        return err_usage(e,
                         "two checkpoints are named, '%.60s' and (with -m) '%.60s'; expected one",
                         o->positional, o->model);
    j->path = o->positional ? o->positional : o->model;
    if (j->path && has_shape)
        return err_usage(e, "a checkpoint and --shape are both named; expected one of them");
    if ((j->command->needs & JOB_PATH) && !j->path && !has_shape)
        return err_usage(e, "no checkpoint is named; expected MODEL or -m FILE");
    return STATUS_OK;
}

/* Checks that all outputs can be written, and that none of them is an input. */
static enum status check_outputs(struct job *j, void *values, struct err *e)
{
    const struct common_options *o = j->common;
    const bool writes = j->command->needs & JOB_OUT;
    if (writes)
        TRY(path_new(o->out, true, NULL, e));
    TRY(paths_check(j->rows, values, e));
    return writes ? path_new(o->out, o->force, "--force replaces it", e) : STATUS_OK;
}

/* Reads --kv-type; most commands take one item. */
static enum status read_kv_types(struct job *j, struct err *e)
{
    const char *text = j->common->kv_types;
    TRY(list_kv_types("--kv-type", text ? text : cache_type_names[CACHE_F32], &j->kv_types, e));
    return j->kv_types.n == 1 || (j->command->needs & JOB_KV_TYPES)
               ? STATUS_OK
               : err_usage(e, "--kv-type: expected one K or K/V, found '%s'", text);
}

/* Does what the command's enum job_needs asks for, in its order. */
static enum status make_ready(struct job *j, void *values, struct err *e)
{
    const unsigned needs = j->command->needs;
    TRY(name_inputs(j, e));
    TRY(read_kv_types(j, e));
    if (j->command->prepare)
        TRY(j->command->prepare(j, values, e));
    if (j->command->check)
        TRY(j->command->check(j, values, e));
    if (needs & JOB_TEXT)
        TRY(job_read_text(j, e));
    if (needs & JOB_STOPS)
        signals_defer(); /* also because a probe's temporary file would stay */
    TRY(check_outputs(j, values, e));
    if (needs & JOB_WORKERS) {
        TRY(job_choose_threads(j, NULL, e));
        TRY(job_choose_kernels(j->common, &j->kernels, e));
    }
    return needs & JOB_CHECKPOINT ? job_open_checkpoint(j, e) : STATUS_OK;
}

enum status job_run(const struct command *c, char **argv, struct output *out, uint64_t start_ns,
                    struct err *e)
{
    struct option_rows rows;
    struct job j = {.command = c, .words = argv, .rows = &rows, .out = out, .start_ns = start_ns};
    bool help;
    void *values = array_zeroed(1, c->values_size, "the options", e);
    if (!values)
        return STATUS_NO_MEMORY;
    const struct common_options *o = j.common = values;
    enum status s = options_parse(&c->spec, argv, values, &rows, &help, e);
    if (s == STATUS_OK && help) {
        bool all = false;
        for (char **word = argv; *word; word++)
            all |= str_is(*word, "--all");
        command_print_help(c, all, out);
    } else if (s == STATUS_OK) {
        if (o->verbose)
            out->columns = 0; /* who wants more of everything wants whole tables, too */
        s = make_ready(&j, values, e);
        if (s == STATUS_OK)
            s = c->run(&j, values, e);
        progress_end(&j.progress);
        if (s == STATUS_INTERRUPTED && (c->needs & JOB_OUT) && !j.out_is_written)
            log_info(o, "interrupted; %s is not written", o->out);
        else if (s == STATUS_INTERRUPTED && j.progress.unit && j.progress.all > 0)
            log_info(o, "interrupted after %" PRIu64 " of %" PRIu64 " %s%s", j.progress.done,
                     j.progress.all, j.progress.unit, plural(j.progress.all));
    }
    session_free(j.session);
    pool_free(j.pool);
    job_close_checkpoint(&j);
    checkpoint_close(&j.other);
    free(j.text_bytes);
    options_free(&c->spec, values);
    free(values);
    return s;
}

enum status job_seed(struct job *j, struct err *e)
{
    j->seed = j->common->seed.value;
    if (j->common->seed.given)
        return STATUS_OK;
    if (getentropy(&j->seed, sizeof j->seed) != 0)
        return err_failed(e, "the system gives no random seed; give one with --seed");
    j->seed %= RNG_EXACT_SEEDS;
    return STATUS_OK;
}

struct callbacks job_callbacks(struct job *j, const char *unit)
{
    progress_end(&j->progress);
    const uint64_t now = clock_ns();
    j->progress = (struct progress){.unit = unit,
                                    .terminal = isatty(STDERR_FILENO) && !j->common->quiet,
                                    .started_ns = now,
                                    .shown_ns = now};
    return (struct callbacks){progress_stop, progress_show, &j->progress};
}

enum status job_print(struct job *j, const struct table *t, struct err *e)
{
    progress_end(&j->progress);
    return table_print(t, j->common->format, j->out, e);
}
