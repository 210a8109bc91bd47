/*
 * cmd_train - decode train: a new checkpoint from text, or one trained further.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/file.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/train_options.h"
#include "model/model.h"
#include "train/train.h"

/* More text than this is not taken from a pipe. */
#define PIPE_MAX ((size_t)1 << 30)
/* Weight of a step in the smoothed loss. */
#define SMOOTHING 0.05

struct train_options {
    struct common_options common; /* its positional and model stay NULL */
    struct option_strings texts;
    struct train_shape shape;
    struct train_spec spec; /* as options say; train_job's has the rest */
    const char *log;
};

#define VALUES struct train_options

static const struct option output_options[] = {
    OPT_STRING("output", spec.out, "OUT",
               "the checkpoint to write, the best on the held-out text; OUT.state beside it has "
               "what --resume needs",
               .letter = 'o', .writes = WRITES_OTHER),
    OPT_INT("save-every", spec.save_every, "N", 1, INT_MAX, "steps between saves",
            .otherwise = "as --eval-every"),
    OPT_FLAG("resume", spec.resume,
             "go on from OUT.state, with the same texts and options as before"),
    OPT_FLAG("force", common.force, "replace OUT and OUT.state if they exist"),
    OPT_STRING(
        "log", log, "FILE.csv",
        "write loss (the text's cross-entropy), learning rate and gradient norm of every step",
        .writes = WRITES_OTHER),
    OPT_END,
};

static const struct option further_options[] = {
    OPT_STRING("from", spec.from_path, "MODEL",
               "train this checkpoint further, with its shape and tokenizer",
               .reads = "the checkpoint"),
    OPT_STRING("teacher", spec.teacher_path, "MODEL",
               "learn this checkpoint's predictions too (distillation); same vocabulary",
               .reads = "the checkpoint"),
    OPT_DOUBLE("teacher-weight", spec.teacher_share, "X", 0, 1, "share of the teacher in the loss",
               .otherwise = "0.5", .above_min = true, .needs = "teacher"),
    OPT_END,
};

static const struct option eval_options[] = {
    OPT_INT("eval-every", spec.eval_every, "N", -1, INT_MAX,
            "steps between evaluations on the held-out text; 0: a twentieth of --steps, from 25 to "
            "250; -1: none, and OUT is the last step's checkpoint",
            .fallback = "0"),
    OPT_END,
};

static const struct option run_options[] = {
    OPT_U64("seed", common.seed, "S", "of the first weights and of the windows",
            .otherwise = "random"),
    OPT_THREADS("threads; any number gives the same checkpoint"),
    OPT_END,
};

/* A run of the command, and what it has shown so far. */
struct train_job {
    const struct train_options *options;
    struct job *run;        /* has the pool and both checkpoints */
    struct train_spec spec; /* borrows them, and the texts */

    bool terminal;        /* show a progress line */
    FILE *log;            /* NULL: none */
    int first_step, step; /* steps made before this run; so far */
    uint64_t started_ns;  /* of the first step */
    uint64_t step_ns;     /* spent in steps */
    double loss;          /* smoothed */
    double val_loss;      /* the last one; NaN before */
    char tried[320];      /* the probe's trials so far */
};

/* --- lines ----------------------------------------------------------------------------------- */

/* "3.2k tokens/s", in the steps of this run. */
static struct figure speed(const struct train_job *job)
{
    const double tokens =
        (double)(job->step - job->first_step) * job->spec.batch * job->spec.length;
    return figure_rate(job->step_ns ? tokens / ((double)job->step_ns * 1e-9) : 0);
}

/* ", 3.41 s left"; nothing before the first step and after the last one. */
static void put_time_left(const struct train_job *job, char *out, size_t size)
{
    const int made = job->step - job->first_step, rest = job->spec.n_steps - job->step;
    out[0] = 0;
    if (made > 0 && rest > 0)
        snprintf(out, size, ", %s left",
                 figure_duration((double)(clock_ns() - job->started_ns) / made * rest).text);
}

/* The trainer's `event`: rows of the log, and lines about the run. */
static void hear(void *arg, const struct train_event *ev)
{
    struct train_job *job = arg;
    const struct common_options *o = &job->options->common;
    char loss[48] = "", rate[48] = "", left[48], *tried = job->tried;
    const size_t len = strlen(tried), room = sizeof job->tried - len;
    if (ev->kind == TRAIN_STEP && job->started_ns == 0)
        job->started_ns = clock_ns() - ev->ns;
    const double seconds = job->started_ns ? (double)(clock_ns() - job->started_ns) * 1e-9 : 0;
    switch (ev->kind) {
    case TRAIN_LEARNING:
        if (job->terminal && ev->all)
            notice_show("learning the vocabulary: %.0f%%",
                        100 * (double)ev->done / (double)ev->all);
        break;
    case TRAIN_TRIED: /* one line for all, beginning with none; told once the rate is chosen */
        if (ev->lr == 0)
            snprintf(
                tried, room,
                ": tried %d steps each, nats a token of %llu windows kept aside; %.4f as it is",
                ev->step, (unsigned long long)ev->all, ev->loss);
        else if (isfinite(ev->loss))
            snprintf(tried + len, room, ", %.4f at %g", ev->loss, ev->lr);
        else
            snprintf(tried + len, room, ", none at %g", ev->lr);
        if (job->terminal)
            notice_show("learning rates%s", tried);
        break;
    case TRAIN_CHOSEN:
        if (ev->lr > 0)
            say(o, "learning rate %g%s", ev->lr,
                len > 0 ? tried : ": the text is too short to try others");
        else
            say(o, "no rate: the checkpoint stays as it is (--lr X trains it all the same)%s",
                tried);
        break;
    case TRAIN_STEP:
        job->step = ev->step;
        job->step_ns += ev->ns;
        job->loss = isfinite(job->loss) ? job->loss + SMOOTHING * (ev->loss - job->loss) : ev->loss;
        if (job->log)
            fprintf(job->log, "%d,%.6f,,,%.6g,%.6g,%.0f,%.3f\n", ev->step, ev->loss, ev->lr,
                    ev->norm, (double)job->spec.batch * job->spec.length / ((double)ev->ns * 1e-9),
                    seconds);
        if (isfinite(job->val_loss))
            snprintf(loss, sizeof loss, ", held out %.4f", job->val_loss);
        put_time_left(job, left, sizeof left);
        /* What matters most comes first: a narrow terminal cuts the rest. */
        if (job->terminal)
            notice_show("step %d of %d%s: loss %.4f%s, %s tokens/s", job->step, job->spec.n_steps,
                        left, job->loss, loss, speed(job).text);
        break;
    case TRAIN_EVALUATED:
        job->val_loss = ev->val_loss;
        if (job->log) {
            fprintf(job->log, "%d,,%.6f,%.6f,,,,%.3f\n", ev->step, ev->val_loss, ev->val_bits,
                    seconds);
            fflush(job->log); /* so that the curve is there whatever becomes of the run */
        }
        if (isfinite(ev->loss))
            snprintf(loss, sizeof loss, "loss %.4f, ", ev->loss);
        if (job->step_ns)
            snprintf(rate, sizeof rate, ", %s tokens/s", speed(job).text);
        put_time_left(job, left, sizeof left);
        say(o, "step %d of %d: %sheld out %.4f nats a token, %.4f bits a byte%s%s%s", job->step,
            job->spec.n_steps, loss, ev->val_loss, ev->val_bits, ev->best ? " (best)" : "", rate,
            left);
        break;
    case TRAIN_SAVING: /* no state is newer than its log */
        if (job->log && fflush(job->log) == 0)
            fdatasync(fileno(job->log));
        break;
    case TRAIN_SAVED:
        say_verbose(o, "saved after step %d", ev->step);
        break;
    case TRAIN_NOT_SAVED:
        say(o, "warning: not saved after step %d: %s; training goes on and tries again", ev->step,
            ev->message);
    }
}

static void announce(const struct train_job *job, const struct train_plan *p)
{
    const struct train_options *o = job->options;
    const struct train_spec *spec = &job->spec;
    const struct config *c = &p->config;
    char variant[16], what[128] = "";
    config_variant_name(c, c->n_kv_heads, variant);
    if (c->arch->has_keys)
        snprintf(what, sizeof what, "%s (norm %s %s, position %s, ffn %s%s%s), ", c->arch->name,
                 arch_norm_names[c->norm], arch_placement_names[c->placement],
                 arch_position_names[c->position], arch_ffn_names[c->ffn],
                 c->no_biases ? ", no biases" : "", c->shared ? ", one block for all layers" : "");
    else if (strcmp(c->arch->name, arch_names[0]) != 0) /* not gpt2 */
        snprintf(what, sizeof what, "%s, ", c->arch->name);
    say(&o->common,
        "%s: %s%d layer%s, d_model %d, %d head%s (%s), d_ff %d, context %d, vocabulary %d: %llu "
        "parameters",
        spec->from_path ? spec->from_path : "new model", what, c->n_layers,
        plural((uint64_t)c->n_layers), c->d_model, c->n_heads, plural((uint64_t)c->n_heads),
        variant, c->d_ff, c->n_ctx, c->n_vocab, (unsigned long long)p->n_params);
    const double tokens = (double)spec->n_steps * spec->batch * spec->length;
    say(&o->common,
        "text: %zu tokens to train on, %zu held out (%zu scored), %.2f bytes a token; %d steps of "
        "%d windows of %d tokens read it %.1f times; seed %llu",
        p->train_tokens, p->val_tokens, p->val_scored, p->bytes_per_token, spec->n_steps,
        spec->batch, spec->length, tokens / (double)p->train_tokens, (unsigned long long)p->seed);
    if (c->n_vocab < o->shape.n_vocab)
        say(&o->common, "the text has pairs that occur twice for only %d of --vocab %d tokens",
            c->n_vocab, o->shape.n_vocab);
    if (p->widened)
        say(&o->common, "%s is not all F32: it is trained, and written, in F32", spec->from_path);
    if (p->resumed_step > 0)
        say(&o->common, "going on after step %d", p->resumed_step);
    if (spec->label_smoothing > 0 || spec->teacher_path)
        say(&o->common, "the loss that is shown is the text's cross-entropy, without what %s adds",
            spec->teacher_path ? "the teacher" : "label smoothing");
    const size_t all = p->parameter_bytes + p->activation_bytes + p->teacher_bytes;
    if (o->common.verbose || all > (size_t)1 << 30)
        say(&o->common,
            "memory: parameters, gradient and moments %s, activations %s, teacher's %s, tokens %s; "
            "a smaller --batch or --ctx takes less",
            figure_bytes((double)p->parameter_bytes).text,
            figure_bytes((double)p->activation_bytes).text,
            figure_bytes((double)p->teacher_bytes).text, figure_bytes((double)p->token_bytes).text);
}

/* --- the run --------------------------------------------------------------------------------- */

/*
 * Checks what is written and reads the texts into `texts`, spec.n_texts of them, malloc'd. They are
 * read, not mapped: a file that changes in the meantime must not be one text when the vocabulary is
 * learned and another when it is cut into tokens; and a pipe is a text too.
 */
static enum status prepare_training(struct train_job *job, struct text *texts, struct err *e)
{
    const struct train_options *o = job->options;
    const bool replaces = o->spec.resume || o->common.force;
    struct train_spec *spec = &job->spec;
    struct job *run = job->run;
    struct stat st;
    char state[PATH_MAX];
    const char *const written[] = {spec->out, state};
    if (o->texts.n == 0)
        return err_set(e, STATUS_USAGE, "no text is named; expected TEXT, one or several files");
    TRY(path_new(spec->out, true, e));
    snprintf(state, sizeof state, "%s.state", spec->out);
    TRY(path_spares(&command_train.spec, o, "--output", state, e));
    if (o->log && path_same(o->log, state))
        return err_set(e, STATUS_USAGE, "--log: '%.200s' is OUT.state; expected a file of its own",
                       o->log);
    for (int i = 0; i < 2; i++) {
        if (!replaces && lstat(written[i], &st) == 0)
            return err_set(e, STATUS_USAGE,
                           "-o: '%.200s' exists; --resume goes on with an unfinished run, --force "
                           "replaces it",
                           written[i]);
        TRY(path_writable(written[i], e));
    }
    for (; spec->n_texts < o->texts.n; spec->n_texts++) {
        const char *path = o->texts.items[spec->n_texts];
        struct text *text = &texts[spec->n_texts];
        const bool is_file = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
        char *bytes = NULL;
        TRY(input_await(path, is_file ? SIZE_MAX : PIPE_MAX, &bytes, &text->len, e));
        text->data = bytes;
    }
    TRY(job_seed(run, e));
    spec->texts = texts;
    spec->keep_last = spec->eval_every < 0;
    spec->seed_given = o->common.seed.given;
    spec->seed = run->seed;
    spec->stop = progress_stop;
    spec->event = hear;
    spec->arg = job;
    TRY(train_spec_complete(spec, &o->shape, &run->checkpoint, &run->other, e));
    TRY(job_start_threads(run, e));
    spec->kernels = run->kernels;
    spec->pool = run->pool;
    return STATUS_OK;
}

/* Runs with its log, which a resumed run goes on with: rows of steps that are made again, and a
 * torn one, are cut off. */
static enum status train(struct train_job *job, struct trainer *t, struct err *e)
{
    const struct train_options *o = job->options;
    const struct train_plan *p = trainer_plan(t);
    const bool resumed = p->resumed_step > 0;
    char line[256], best[128] = "";
    long end = 0;
    announce(job, p);
    job->first_step = job->step = p->resumed_step;
    job->loss = job->val_loss = (double)NAN;
    if (o->log) {
        const int fd =
            file_open_retry(o->log, O_CREAT | (resumed ? O_RDWR : O_WRONLY | O_TRUNC), 0666);
        bool lost = fd < 0 || !(job->log = fdopen(fd, resumed ? "r+" : "w"));
        while (!lost && resumed && fgets(line, sizeof line, job->log)) {
            if (!strchr(line, '\n') || (end > 0 && strtol(line, NULL, 10) > job->first_step))
                break;
            end = ftell(job->log);
        }
        if (!lost && resumed)
            lost = fseek(job->log, end, SEEK_SET) != 0 || ftruncate(fd, end) != 0;
        if (lost)
            return file_failure(e, STATUS_FAILED, o->log, "write --log", errno);
        if (end == 0)
            fputs("step,loss,val_loss,val_bits_per_byte,lr,grad_norm,tokens_per_s,seconds\n",
                  job->log);
    }
    const enum status s = trainer_run(t, e);
    notice_clear();
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    if (isfinite(p->best_loss) && o->spec.eval_every >= 0)
        snprintf(best, sizeof best,
                 "best of step %d, held out %.4f nats a token, %.4f bits a byte; ", p->best_step,
                 p->best_loss, p->best_loss * p->bits_per_nat);
    if (s == STATUS_INTERRUPTED)
        say(&o->common,
            "interrupted after step %d; the same command with --resume goes on from %s.state",
            job->step, o->spec.out);
    else
        say(&o->common, "%s: %s%d steps in %s, %s tokens/s", o->spec.out, best,
            job->step - job->first_step, figure_duration((double)job->step_ns).text,
            speed(job).text);
    if (job->log && (fflush(job->log) != 0 || ferror(job->log))) /* some time ago, for whatever */
        return file_failure(e, STATUS_FAILED, o->log, "write --log", EIO);
    return s;
}

static enum status run_train(struct job *j, void *values, struct err *e)
{
    const struct train_options *o = values;
    struct train_job job = {.options = o,
                            .run = j,
                            .spec = o->spec,
                            .terminal = isatty(STDERR_FILENO) && !o->common.quiet};
    struct trainer *t = NULL;
    struct text *texts = calloc((size_t)o->texts.n + 1, sizeof *texts);
    if (!texts)
        return err_no_memory(e, "the list of texts", (size_t)o->texts.n * sizeof *texts);
    enum status s = prepare_training(&job, texts, e);
    if (s == STATUS_OK)
        s = trainer_open(&job.spec, &t, e);
    for (int i = 0; i < job.spec.n_texts; i++) /* training takes their tokens */
        free((void *)(uintptr_t)texts[i].data);
    free(texts);
    if (s == STATUS_OK)
        s = train(&job, t, e);
    if (job.log)
        fclose(job.log);
    trainer_free(t);
    return s;
}

const struct command command_train = {
    .name = "train",
    .summary = "train a toy checkpoint from text; --from uptrains one",
    .usage = "TEXT... -o OUT [options]",
    .notes =
        "TEXT may be - (standard input) or a pipe. The last tenth of each text is held out. OUT\n"
        "is replaced, as a whole, at saves; the same seed, texts and options give the same\n"
        "file, for any number of threads and whether or not the run was interrupted (Ctrl-C\n"
        "saves first) and resumed.\n"
        "\n"
        "The loss that is shown and logged is the cross-entropy of the text alone, comparable\n"
        "between runs: what --label-smoothing and --teacher add is trained on and not in it.\n"
        "\n"
        "With --from and without --lr a probe finds the rate: a few are tried for a few steps,\n"
        "each from MODEL on, and judged on windows of the training part that no trial sees; the\n"
        "best is taken (in runs no longer than a trial the smallest that comes near it), and\n"
        "where none lowers the loss MODEL stays as it is. That is some 40 to 80 steps more.\n",
    .spec = {.groups = {{"Output", output_options, 0},
                        {"A new model", train_size_options, offsetof(VALUES, shape)},
                        {"Its K/V heads", train_kv_options, offsetof(VALUES, shape)},
                        {"What it is made of", train_kind_options, offsetof(VALUES, shape)},
                        {"Training further", further_options, 0},
                        {"Steps", train_step_options, offsetof(VALUES, spec)},
                        {"Held-out text", train_held_out_options, offsetof(VALUES, spec)},
                        {"Evaluation", eval_options, 0},
                        {"Run", run_options, 0},
                        {"", general_options + 1, 0}},
             .positionals = {OPT_STRINGS("TEXT...", texts, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_STOPS | JOB_WORKERS,
    .run = run_train,
};
