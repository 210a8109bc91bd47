/*
 * How decode study makes its cells, by the commands that -v shows.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/study_cells.h"
#include "model/kv_cache.h"

/* The part of the text that is not held out, as a file in DIR: what conversions are calibrated on.
 */
#define CALIB "calib.txt"

/* --- command lines --------------------------------------------------------------------------- */

/* A command's arguments as they are put together; borrowed. */
struct line {
    const char *items[80];
    int n;
    struct figure own[72]; /* texts made here: numbers, and names of add_given */
    int n_own;
};

/* Adds an option (NULL: none) and its value (NULL: neither). */
static void add(struct line *line, const char *option, const char *value)
{
    if (value && option)
        line->items[line->n++] = option;
    if (value)
        line->items[line->n++] = value;
}

static void add_number(struct line *line, const char *option, uint64_t x)
{
    struct figure *own = &line->own[line->n_own++];
    chars_printf(own->text, "%" PRIu64, x);
    add(line, option, own->text);
}

/* Adds the options of a training that are not the default. */
static void add_given(struct line *line, const struct train_shape *shape,
                      const struct train_spec *steps)
{
    const struct {
        const struct option *rows;
        const void *values;
    } tables[] = {{train_size_options, shape},
                  {train_kind_options, shape},
                  {train_step_options, steps},
                  {train_held_out_options, steps}};
    for (int i = 0; i < LENGTH(tables); i++)
        for (const struct option *o = tables[i].rows; o->kind != OPTION_END; o++) {
            const void *at = (const char *)tables[i].values + o->offset;
            const bool is_flag = o->kind == OPTION_FLAG;
            struct figure *name = &line->own[line->n_own], *number = name + 1;
            const char *text = number->text; /* NULL: not given */
            if (is_flag) {
                text = *(const bool *)at ? "" : NULL;
            } else if (o->kind == OPTION_STRING) {
                text = *(const char *const *)at;
            } else if (o->kind == OPTION_CHOICE) { /* without a default counted from 1 */
                const int choice = *(const int *)at - !o->fallback;
                text = choice < 0 ? NULL : o->choices[choice];
            } else {
                const double x = o->kind == OPTION_INT ? *(const int *)at : *(const double *)at;
                *number = figure_exact(x);
                text = x == 0 && !o->fallback ? NULL : text;
            }
            if (!text || (o->fallback && str_is(text, o->fallback)))
                continue;
            line->n_own += 2;
            chars_printf(name->text, "--%s", o->name);
            add(line, is_flag ? NULL : name->text, is_flag ? name->text : text);
        }
}

/* As a shell reads it back: "--embd 8 'a name'". What is longer than out is cut. */
static void print_line(const struct line *line, char *out, size_t size)
{
    /* Bytes that mean nothing but themselves to a shell. */
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+-";
    FILE *f = fmemopen(out, size - 1, "w");
    memset(out, 0, size);
    for (int i = 0; f && i < line->n; i++) {
        const char *at = line->items[i], *quote = *at && !at[strspn(at, plain)] ? "" : "'";
        fprintf(f, "%s%s", i > 0 ? " " : "", quote);
        for (; *at; at++) /* the text's own quotes are taken out of ours */
            fprintf(f, *at == '\'' ? "'\\%c'" : "%c", *at);
        fputs(quote, f);
    }
    if (f)
        fclose(f);
}

/* Runs a command without what it prints; -v may show it. */
static enum status run_command(const struct study_job *job, const struct command *command,
                               struct line *line, bool shows, struct err *e)
{
    char shown[4096];
    struct file_output nowhere;
    file_output_init(&nowhere);
    add(line, NULL, "-q");
    print_line(line, shown, sizeof shown);
    if (shows)
        say_verbose(&job->options->common, "%s %s", command->name, shown);
    return job_run(command, (char **)(uintptr_t)line->items, &nowhere.out, clock_ns(), e);
}

/* --- the folder ------------------------------------------------------------------------------ */

static bool is_there(struct study_path path)
{
    return access(path.text, F_OK) == 0;
}

/* Takes the lock of that name, waiting for another run that has it, which is said.
 * STATUS_INTERRUPTED. */
static enum status take_lock(const struct study_job *job, const char *name, struct err *e)
{
    const struct study_options *o = job->options;
    for (bool taken, told = false;; told = true) {
        if (progress_stop(NULL))
            return STATUS_INTERRUPTED;
        TRY(study_lock_try(job->lock, name, &taken, e));
        if (taken)
            return STATUS_OK;
        if (!told)
            say(&o->common, "%s: waiting for another run in '%.200s'", name[0] ? name : "study",
                o->dir);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

/* Written once: files are replaced as a whole, so that one of this size is whole. */
static enum status keep_file(struct study_path path, const void *data, size_t len, struct err *e)
{
    struct stat st;
    return stat(path.text, &st) == 0 && (uint64_t)st.st_size == len
               ? STATUS_OK
               : file_replace(path.text, data, len, e);
}

/* What a run needs in its folder beside the cells: its settings, which are what all cells have in
 * common (the text, the given checkpoint and the options of training), the text to calibrate on,
 * and the given checkpoint as the one that each seed would have trained. */
enum status study_prepare(struct study_job *job, const struct file_map *from, struct err *e)
{
    static const char *const own[] = {CALIB, "results.jsonl"}, *const hashed[] = {"text", "from"};
    const struct study_options *o = job->options;
    const struct text text = job->run->text;
    const struct text contents[] = {text, {(const char *)from->data, from->len}};
    struct stat st = {.st_mode = S_IFDIR};
    struct line line = {.n = 0};
    char items[2][64], settings[2048];
    if (mkdir(o->dir, 0777) != 0 && stat(o->dir, &st) != 0)
        return file_failure(e, STATUS_FAILED, o->dir, "make", errno);
    if (!S_ISDIR(st.st_mode))
        return err_usage(e, "-o: expected a folder, found the file '%.200s'", o->dir);
    TRY(study_lock_open(o->dir, &job->lock, e));
    TRY(take_lock(job, "", e));
    const bool is_new = !is_there(study_path(o->dir, "study.json", ""));
    for (int i = 0; i < 2; i++) {
        const struct text t = contents[i];
        if (is_new && is_there(study_path(o->dir, own[i], "")))
            return err_usage(e,
                             "-o: '%.200s' has a %s that no study has made, which would be "
                             "overwritten; expected a new folder, or a study's",
                             o->dir, own[i]);
        chars_printf(items[i], "%s %zu bytes %016" PRIx64, hashed[i], t.len,
                     train_hash(TRAIN_HASH_START, t.data, t.len));
        add(&line, NULL, i == 0 || o->from ? items[i] : NULL);
    }
    /* Several numbers of heads are several cells of one study. */
    add(&line, "--heads", job->heads.n == 1 ? o->heads : NULL);
    add(&line, "--match", o->match ? study_matches[o->match - 1] : NULL);
    add_given(&line, &o->shape, &o->steps);
    print_line(&line, settings, sizeof settings);
    TRY(study_settings_keep(o->dir, settings, e));
    TRY(keep_file(study_path(o->dir, CALIB, ""), text.data,
                  train_part(o->steps.val_fraction, text.len), e));
    FOR_EACH (const struct study_cell, cell, job->plan.cells, job->plan.n)
        if (o->from && cell->method == STUDY_MHA && cell->alpha == 0)
            TRY(keep_file(study_path(o->dir, cell->name, ".gguf"), from->data, from->len, e));
    study_unlock(job->lock, "");
    return STATUS_OK;
}

/* --- a cell ---------------------------------------------------------------------------------- */

/* Whether its conversion is fitted on text. */
static bool is_fitted(const struct study_cell *cell)
{
    return cell->method == STUDY_FIT;
}

/* Makes the cell's checkpoint, DIR/NAME.gguf, from its origin, or from nothing. What is not wanted
 * is a trial: no rate is looked for, and steps may be fewer than those of a warm-up. */
static enum status make_checkpoint(const struct study_job *job, const struct study_cell *cell,
                                   struct err *e)
{
    const struct study_options *o = job->options;
    const struct study_cell *origin = study_origin(&job->plan, cell);
    const bool converts = study_converts(cell->method) && cell->alpha == 0;
    const struct study_path whole = study_path(o->dir, cell->name, ".gguf"),
                            part = study_path(o->dir, cell->name, ".part.gguf"),
                            state = study_path(o->dir, cell->name, ".part.gguf.state"),
                            from = study_path(o->dir, (origin ? origin : cell)->name, ".gguf"),
                            base = study_path(o->dir, study_base(&job->plan, cell)->name, ".gguf"),
                            calib = study_path(o->dir, CALIB, "");
    struct line line = {.n = 0};
    add(&line, NULL, converts ? from.text : o->common.file);
    add(&line, "--threads", o->common.threads);
    add(&line, "--output", converts ? whole.text : part.text);
    if (converts) {
        add_number(&line, "--kv-heads", cell->kv_heads);
        add(&line, "--method", cell->method_name);
        add(&line, "--calib", is_fitted(cell) ? calib.text : NULL);
        if (cell->method == STUDY_RANDOM)
            add_number(&line, "--seed", cell->seed);
        return run_command(job, &command_convert, &line, cell->wanted, e);
    }
    add(&line, "--from", origin ? from.text : NULL);
    add(&line, "--teacher", cell->taught ? base.text : NULL);
    if (cell->method == STUDY_SCRATCH)
        add_number(&line, "--kv-heads", cell->kv_heads);
    add_number(&line, "--seed", cell->seed);
    if (job->heads.n > 0 && !origin)
        add_number(&line, "--heads", cell->heads);
    add(&line, "--eval-every", "-1");
    struct train_shape shape = o->shape;
    struct train_spec steps = o->steps;
    steps.n_steps = cell->steps;
    if (origin) { /* has a shape, and the rate and the rest are of the first training alone */
        steps.lr = steps.dropout = steps.attn_dropout = steps.label_smoothing = 0;
        steps.warmup = -1;
        shape = (struct train_shape){.n_ctx = o->shape.n_ctx};
    } else if (o->match) {
        shape.d_ff = cell->d_ff;
    }
    if (!cell->wanted) {
        steps.warmup = 0;
        steps.lr = origin ? 1e-6 : steps.lr;
    }
    add_given(&line, &shape, &steps);
    add(&line, NULL, is_there(state) ? "--resume" : is_there(part) ? "--force" : NULL);
    TRY(run_command(job, &command_train, &line, cell->wanted, e));
    if (rename(part.text, whole.text) != 0)
        return file_failure(e, STATUS_FAILED, part.text, "rename", errno);
    unlink(state.text);
    return STATUS_OK;
}

/* The bits per byte of the held-out part, and the cache; *token_s is how long a token took. */
static enum status evaluate(const struct study_job *job, struct study_cell *cell, double *token_s,
                            struct err *e)
{
    const struct study_options *o = job->options;
    struct job *run = job->run;
    struct checkpoint *c = &run->checkpoint;
    const size_t cut = train_part(o->steps.val_fraction, run->text.len);
    const struct text held_out = {run->text.data + cut, run->text.len - cut};
    struct eval_result result;
    TRY(job_open(study_path(o->dir, cell->name, ".gguf").text, CHECKPOINT_MODEL | JOB_TOKENIZES, c,
                 e));
    enum status s = tokens_of_text(c->tokenizer, held_out, tokenizer_adds_bos(c->tokenizer),
                                   &run->tokens, &run->n_tokens, e);
    struct eval_spec spec = job_eval_spec(run, c);
    spec.progress = NULL; /* it is of cells */
    THEN(s, eval_run(&spec, &result, e));
    if (s == STATUS_OK) {
        cell->bits_per_byte = result.bits_per_byte;
        *token_s = 1 / result.tokens_per_s;
        cell->cache_bytes_per_token =
            kv_cache_bytes_per_token(&c->model->config, c->model->config.n_kv_heads, STORAGE_F32);
    }
    free(run->tokens);
    run->tokens = NULL;
    checkpoint_close(c);
    return s;
}

/* --- how long it will take -------------------------------------------------------------------- */

#define TRIAL_STEPS 16    /* and one before, whose start is known then; a quarter of slow ones */
#define TRIAL_SLOW  2.0   /* seconds of that one */
#define FIT_TOKENS  65536 /* that conversions are fitted on by default, at about ... */
#define FIT_COST    25.0  /* ... so many times what evaluating a token takes */
#define FORWARD     0.33  /* of a step's time: what a loss takes, or a teacher's predictions */

/* Seconds: of a step of training, of starting one, of evaluating a cell, of fitting one. */
struct rates {
    double step, start, eval, fit;
};

/* Trains the MHA checkpoint with the most query heads for a few steps, as DIR/trial-PID.gguf, and
 * evaluates it. */
static enum status try_rates(const struct study_job *job, struct rates *r, struct err *e)
{
    static const char *const suffixes[] = {".gguf", ".part.gguf", ".part.gguf.state"};
    const struct study_plan *p = &job->plan;
    const double held_out = job->options->steps.val_fraction;
    struct study_cell cell = *study_base(p, &p->cells[p->n - 1]);
    double seconds[3] = {0}, token = 0; /* the least, the trial, its evaluation */
    int n = 0;
    enum status s = STATUS_OK;
    chars_printf(cell.name, "trial-%ld", (long)getpid());
    cell.wanted = false;
    cell.alpha = job->options->from ? 1 : 0; /* trained further */
    for (int i = 0; i < 3 && s == STATUS_OK; i++) {
        const uint64_t before = clock_ns();
        cell.steps = 1 + n;
        s = i < 2 ? make_checkpoint(job, &cell, e) : evaluate(job, &cell, &token, e);
        seconds[i] = (clock_ns() - before) * 1e-9;
        n = seconds[0] > TRIAL_SLOW ? TRIAL_STEPS / 4 : TRIAL_STEPS;
    }
    r->step = fmax(0, seconds[1] - seconds[0]) / n;
    r->start = fmax(0, seconds[0] - r->step);
    r->eval = seconds[2];
    r->fit = FIT_COST * token * fmin(FIT_TOKENS, job->run->n_tokens * (1 - held_out) / held_out);
    for (int i = 0; i < 3; i++)
        unlink(study_path(job->options->dir, cell.name, suffixes[i]).text);
    return s;
}

/* Says what is to be made, and about how long it takes. A study that cannot be tried says what is
 * wrong later. */
static enum status say_how_long(const struct study_job *job, int n_wanted, struct err *e)
{
    const struct study_plan *p = &job->plan;
    struct rates r;
    int n_trained = 0;
    double seconds = 0, n_steps = 0;
    const enum status s = try_rates(job, &r, e);
    if (s != STATUS_OK)
        return s == STATUS_INTERRUPTED ? s : STATUS_OK;
    FOR_EACH (const struct study_cell, c, p->cells, p->n) {
        if (!c->wanted)
            continue;
        seconds += r.eval;
        if (is_there(study_path(job->options->dir, c->name, ".gguf")))
            continue;
        if (c->steps == 0) {
            seconds += is_fitted(c) ? r.fit : 0;
            continue;
        }
        /* About as many steps as finding a rate takes: four trials of a tenth of the steps, 10 to
         * 20, and the loss of 64 windows before and after each. */
        const double trial = fmin(c->steps, fmin(fmax(10, c->steps / 10), 20));
        const double rate = ceil(4 * trial + FORWARD * (5.0 * 64 / job->options->steps.batch));
        const double steps = c->steps + (study_origin(p, c) ? rate : 0);
        n_trained++;
        n_steps += steps;
        seconds += r.start + steps * r.step * (c->taught ? 1 + FORWARD : 1);
    }
    say(&job->options->common, "%d cell%s to make, %d of them trained, %.0f steps in all: about %s",
        n_wanted, plural(n_wanted), n_trained, n_steps, figure_duration(seconds * 1e9).text);
    return STATUS_OK;
}

/* --- making them ------------------------------------------------------------------------------ */

/* Makes the cell's checkpoint, unless it is there, and its record. While it is
 * trained it is DIR/NAME.part.gguf, with the state that an interrupted training goes on from. What
 * another run has made in the meantime is taken as it is. */
static enum status make_cell(const struct study_job *job, struct study_cell *cell, struct err *e)
{
    const char *dir = job->options->dir;
    double token_s;
    struct progress *p = &job->run->progress;
    TRY(take_lock(job, cell->name, e));
    TRY(study_record_read(dir, cell, e));
    if (!is_there(study_path(dir, cell->name, ".gguf"))) {
        const uint64_t before = clock_ns();
        TRY(make_checkpoint(job, cell, e));
        cell->seconds = (clock_ns() - before) * 1e-9;
        cell->done = false;
    }
    if (!cell->done) {
        TRY(evaluate(job, cell, &token_s, e));
        TRY(study_record_write(dir, cell, e));
        TRY(study_results_write(dir, e));
        cell->done = true;
    }
    study_unlock(job->lock, cell->name);
    progress_show(p, p->done + 1, p->all);
    say(&job->options->common, "%s: %.4f bits a byte, %s; %d of %d cells", cell->name,
        cell->bits_per_byte, figure_duration(cell->seconds * 1e9).text, (int)p->done, (int)p->all);
    return STATUS_OK;
}

enum status study_make_cells(const struct study_job *job, struct err *e)
{
    const struct study_plan *plan = &job->plan;
    const char *dir = job->options->dir;
    uint64_t n_wanted = 0;
    FOR_EACH (struct study_cell, cell, plan->cells, plan->n)
        TRY(study_record_read(dir, cell, e));
    for (int i = plan->n - 1; i >= 0; i--) {
        struct study_cell *cell = &plan->cells[i];
        struct study_cell *from[] = {study_origin(plan, cell),
                                     cell->taught ? study_base(plan, cell) : NULL};
        cell->wanted = (cell->wanted || i % job->n_shards == job->shard) && !cell->done;
        n_wanted += cell->wanted;
        for (int f = 0; f < 2 && cell->wanted; f++)
            if (from[f]) { /* made again where its checkpoint is gone */
                from[f]->wanted = true;
                from[f]->done &= is_there(study_path(dir, from[f]->name, ".gguf"));
            }
    }
    if (n_wanted == 0)
        return STATUS_OK;
    TRY(job_start_threads(job->run, e));
    if (!job->options->common.quiet)
        TRY(say_how_long(job, n_wanted, e));
    job_progress(job->run, "cells")->all = n_wanted;
    FOR_EACH (struct study_cell, cell, plan->cells, plan->n)
        if (cell->wanted)
            TRY(err_in(e, make_cell(job, cell, e), "%s", cell->name));
    return STATUS_OK;
}
