/*
 * cmd_train - decode train: a new checkpoint from text, or one trained further.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/figures.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/train_report.h"
#include "cli/train_shape.h"
#include "cli/train_steps.h"
#include "model/checkpoint.h"
#include "train/train.h"

/* More text than this is not taken from a pipe. */
#define PIPE_MAX ((size_t)1 << 30)

struct train_options {
    struct common_options common; /* its positional and model stay NULL */
    struct option_strings texts;
    struct train_shape shape;
    struct train_spec spec; /* as options say; specify_training adds the rest */
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
               .otherwise = "0.5", .above_min = true),
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

/* --- from options to a specification --------------------------------------------------------- */

/* What the specification borrows. */
struct train_inputs {
    struct text *texts; /* [n_texts]; each malloc'd */
    int n_texts;
    struct checkpoint from, teacher;
    struct job *job;
    struct train_report report;
};

/*
 * Texts are read, not mapped: a file that changes in the meantime must not be one text when the
 * vocabulary is learned and another when it is cut into tokens; and a pipe is a text too.
 */
static enum status read_training_text(const char *path, struct text *out, struct err *e)
{
    struct stat st;
    const bool is_file = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    char *bytes = NULL;
    const enum status s = input_await(path, is_file ? SIZE_MAX : PIPE_MAX, &bytes, &out->len, e);
    out->data = bytes;
    return s;
}

static enum status read_training_texts(const struct train_options *o, struct train_inputs *in,
                                       struct err *e)
{
    const int n = o->texts.n;
    if (n == 0)
        return err_set(e, STATUS_USAGE, "no text is named; expected TEXT, one or several files");
    in->texts = calloc((size_t)n, sizeof *in->texts);
    if (!in->texts)
        return err_no_memory(e, "the list of texts", (size_t)n * sizeof *in->texts);
    for (; in->n_texts < n; in->n_texts++)
        TRY(read_training_text(o->texts.items[in->n_texts], &in->texts[in->n_texts], e));
    for (int i = 0; i < n; i++)
        TRY(input_check_text(o->texts.items[i], in->texts[i], e));
    return STATUS_OK;
}

static void close_texts(struct train_inputs *in)
{
    for (int i = 0; i < in->n_texts; i++)
        free((void *)(uintptr_t)in->texts[i].data);
    free(in->texts);
    in->texts = NULL;
    in->n_texts = 0;
}

static enum status specify_training(const struct train_options *o, struct train_inputs *in,
                                    struct train_spec *spec, struct err *e)
{
    spec->texts = in->texts;
    spec->n_texts = in->n_texts;
    spec->keep_last = spec->eval_every < 0;
    spec->seed_given = o->common.seed.given;
    spec->stop = progress_stop;
    spec->event = train_report_event;
    spec->arg = &in->report;
    TRY(job_seed(in->job, e));
    spec->seed = in->job->seed;
    TRY(train_spec_complete(spec, &o->shape, &in->from, &in->teacher, e));
    TRY(job_start_threads(in->job, e));
    spec->kernels = in->job->kernels;
    spec->pool = in->job->pool;
    return STATUS_OK;
}

/* What an earlier run has made is not lost by typing it again. */
static enum status check_replaced(const struct train_options *o, const char *path, struct err *e)
{
    struct stat st;
    if (!o->spec.resume && !o->common.force && lstat(path, &st) == 0)
        return err_set(e, STATUS_USAGE,
                       "-o: '%.200s' exists; --resume goes on with an unfinished run, --force "
                       "replaces what is there",
                       path);
    return STATUS_OK;
}

static enum status check_train_outputs(const struct train_options *o, const char *state,
                                       struct err *e)
{
    TRY(path_spares(&command_train.spec, o, "--output", state, e));
    if (o->log && path_same(o->log, state))
        return err_set(e, STATUS_USAGE, "--log: '%.200s' is OUT.state; expected a file of its own",
                       o->log);
    TRY(check_replaced(o, o->spec.out, e));
    TRY(check_replaced(o, state, e));
    TRY(path_writable(o->spec.out, e));
    return path_writable(state, e);
}

static enum status check_train_options(const struct train_options *o, struct err *e)
{
    if (!o->spec.out)
        return err_set(e, STATUS_USAGE, "no output is named; expected -o OUT");
    const size_t size = strlen(o->spec.out) + sizeof ".state";
    char *state = malloc(size);
    if (!state)
        return err_no_memory(e, "a path", size);
    snprintf(state, size, "%s.state", o->spec.out);
    const enum status s = check_train_outputs(o, state, e);
    free(state);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static void announce_training(const struct train_options *o, const struct train_spec *spec,
                              const struct train_plan *p)
{
    const struct config *c = &p->config;
    char variant[16], what[128];
    config_variant_name(c, c->n_kv_heads, variant);
    train_shape_describe(c, what, sizeof what);
    say(&o->common,
        "%s: %s%d layer%s, d_model %d, %d head%s (%s), d_ff %d, context %d, vocabulary %d: %llu "
        "parameters",
        o->spec.from_path ? o->spec.from_path : "new model", what, c->n_layers,
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
        say(&o->common, "%s is not all F32: it is trained, and written, in F32", o->spec.from_path);
    if (p->replaced_step > 0)
        say(&o->common,
            "%s.state has an unfinished run at step %d, which the first save replaces (--resume "
            "goes on with it)",
            o->spec.out, p->replaced_step);
    if (p->resumed_step > 0)
        say(&o->common, "going on after step %d", p->resumed_step);
    if (o->spec.label_smoothing > 0 || o->spec.teacher_path)
        say(&o->common, "the loss that is shown is the text's cross-entropy, without what %s adds",
            o->spec.teacher_path ? "the teacher" : "label smoothing");
    const size_t all = p->parameter_bytes + p->activation_bytes + p->teacher_bytes;
    if (o->common.verbose || all > (size_t)1 << 30)
        say(&o->common,
            "memory: parameters, gradient and moments %s, activations %s, teacher's %s, tokens %s; "
            "a smaller --batch or --ctx takes less",
            figure_bytes((double)p->parameter_bytes).text,
            figure_bytes((double)p->activation_bytes).text,
            figure_bytes((double)p->teacher_bytes).text, figure_bytes((double)p->token_bytes).text);
}

static void conclude_training(const struct train_options *o, const struct train_report *r,
                              enum status s)
{
    if (s == STATUS_INTERRUPTED) {
        say(&o->common,
            "interrupted after step %d; the same command with --resume goes on from "
            "%s.state",
            r->step, o->spec.out);
        return;
    }
    char best[128] = "";
    if (isfinite(r->best_loss) && o->spec.eval_every >= 0)
        snprintf(best, sizeof best,
                 "best of step %d, held out %.4f nats a token, %.4f bits a byte; ", r->best_step,
                 r->best_loss, r->best_bits);
    say(&o->common, "%s: %s%d steps in %s, %s tokens/s", o->spec.out, best, r->step - r->first_step,
        figure_duration(r->step_ns).text, figure_rate(train_report_rate(r)).text);
}

static enum status run_trainer(const struct train_options *o, struct train_inputs *in,
                               const struct train_spec *spec, struct err *e)
{
    struct trainer *t;
    enum status s = trainer_open(spec, &t, e);
    close_texts(in); /* training takes their tokens */
    if (s != STATUS_OK)
        return s;
    announce_training(o, spec, trainer_plan(t));
    s = train_report_begin(&in->report, trainer_plan(t), e);
    if (s == STATUS_OK)
        s = trainer_run(t, e);
    const bool done = s == STATUS_OK || s == STATUS_INTERRUPTED;
    const enum status reported = train_report_end(&in->report, done ? e : NULL);
    if (done)
        conclude_training(o, &in->report, s);
    trainer_free(t);
    return done && reported != STATUS_OK ? reported : s;
}

static enum status prepare_and_train(const struct train_options *o, struct train_inputs *in,
                                     struct train_spec *spec, struct err *e)
{
    TRY(check_train_options(o, e));
    TRY(read_training_texts(o, in, e));
    TRY(specify_training(o, in, spec, e));
    return run_trainer(o, in, spec, e);
}

static enum status run_train(struct job *j, void *values, struct err *e)
{
    const struct train_options *o = values;
    struct train_inputs in = {.job = j};
    struct train_spec spec = o->spec;
    in.report = (struct train_report){.common = &o->common,
                                      .spec = &spec,
                                      .log = o->log,
                                      .terminal = isatty(STDERR_FILENO) && !o->common.quiet};
    const enum status s = prepare_and_train(o, &in, &spec, e);
    close_texts(&in);
    checkpoint_close(&in.from);
    checkpoint_close(&in.teacher);
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
                        {"General", general_options + 1, 0, true}},
             .positionals = {OPT_STRINGS("TEXT...", texts, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_STOPS | JOB_WORKERS,
    .run = run_train,
};
