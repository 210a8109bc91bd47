/*
 * cmd_train - decode train: a new checkpoint from text, or one trained further.
 */
#include <unistd.h>

#include "args/record.h"
#include "cli/train_options.h"
#include "train/curve.h"

#define TEXT_MAX  ((size_t)1 << 34) /* a longer text is refused, also a pipe that does not end */
#define SMOOTHING 0.05              /* weight of a step in the smoothed loss */

/* What the options say, and the run that they ask for. */
struct training {
    struct common_options common; /* its positional and model stay NULL */
    struct option_strings texts;
    struct train_shape shape;
    struct train_spec spec;
    const char *loss_terms, *log_path;

    struct curve log;
    bool terminal;        /* show a progress line */
    int first_step, step; /* steps made before this run; so far */
    uint64_t started_ns;  /* of the first step */
    uint64_t step_ns;     /* spent in steps */
    double loss;          /* smoothed */
    double val_loss;      /* the last one; NaN before */

    struct text *read;             /* [spec.n_texts] malloc'd: the texts, malloc'd each */
    int32_t *own;                  /* [spec.n_tokens] malloc'd: tokens that a checkpoint wrote */
    struct bytes recalled, record; /* the options that OUT.state has, and will have */
    char seed[24];                 /* as the record has it */
};

#define VALUES struct training

static const struct option output_options[] = {
    OPT_STRING("output", spec.out, "OUT",
               "the checkpoint to write, the best on the held-out text; OUT.state beside it has "
               "what --resume needs",
               .letter = 'o', .writes = WRITES_FILE, .unrecorded = true),
    OPT_INT("save-every", spec.save_every, "N", 1, INT_MAX, "steps between saves",
            .otherwise = "as --eval-every", .unrecorded = true),
    OPT_FLAG("resume", spec.resume,
             "go on from OUT.state, which has the options; a larger --steps goes on from the end",
             .unrecorded = true),
    OPT_STRING(
        "log", log_path, "FILE.csv",
        "write loss (the text's cross-entropy), learning rate and gradient norm of every step",
        .writes = WRITES_OTHER),
    OPT_END,
};

static const struct option origin_options[] = {
    OPT_STRING("from", spec.from_path, "MODEL",
               "train this checkpoint further, with its shape and tokenizer",
               .reads = "the checkpoint"),
    OPT_STRING(
        "teacher", spec.teacher_path, "MODEL",
        "learn this checkpoint's predictions too (distillation), half of the loss; same vocabulary",
        .reads = "the checkpoint"),
    OPT_STRING("loss", loss_terms, "TERM=X,...",
               "what is learned, and its weights: text, the tokens; teacher, its predictions; "
               "streams, its residual stream behind each block",
               .otherwise = "text=0.5,teacher=0.5", .needs = "teacher"),
    OPT_CHOICE("only", spec.only, "PART", train_parts,
               "what is trained: all, or attention with all norms, which repairs a conversion in "
               "less time and memory",
               .fallback = "all", .needs = "from"),
    OPT_U64("seed", common.seed, "S", "of the first weights and of the windows",
            .otherwise = "random"),
    OPT_END,
};

static const struct option run_options[] = {
    OPT_THREADS("threads; any number gives the same checkpoint"),
    OPT_END,
};

/* "3.2k" tokens a second, in the steps of this run. */
static struct figure speed(const struct training *t)
{
    const double tokens = (double)(t->step - t->first_step) * t->spec.batch * t->spec.length;
    return figure_rate(t->step_ns ? tokens / (t->step_ns * 1e-9) : 0);
}

/* The trainer's `progress`, of the merges of its vocabulary. */
static void show_learning(void *arg, uint64_t done, uint64_t all)
{
    const struct training *t = arg;
    if (t->terminal)
        notice_show("learning the vocabulary: %" PRIu64 " of %" PRIu64 " merges", done, all);
}

/* The trainer's `event`: rows of the log, and lines about the run. */
static void on_event(void *arg, const struct train_event *ev)
{
    struct training *t = arg;
    const struct common_options *o = &t->common;
    const struct train_spec *spec = &t->spec;
    char loss[48] = "", rate[48] = "", left[48] = "";
    if (ev->kind == TRAIN_STEP) {
        t->started_ns = t->started_ns ? t->started_ns : clock_ns() - ev->ns;
        t->step_ns += ev->ns;
        t->step = ev->step;
        t->loss = isfinite(t->loss) ? t->loss + SMOOTHING * (ev->loss - t->loss) : ev->loss;
    }
    const double ns = t->started_ns ? clock_ns() - t->started_ns : 0;
    const int made = t->step - t->first_step, rest = spec->n_steps - t->step;
    if (made > 0 && rest > 0)
        chars_printf(left, ", %s left", figure_duration(ns / made * rest).text);
    switch (ev->kind) {
    case TRAIN_STEP:
        curve_put(&t->log, ev, spec->batch * spec->length, ns * 1e-9);
        if (isfinite(t->val_loss))
            chars_printf(loss, ", held out %.4f", t->val_loss);
        if (t->terminal) /* what matters most comes first: a narrow one cuts the rest */
            notice_show("step %d of %d%s: loss %.4f%s, %s tokens/s", t->step, spec->n_steps, left,
                        t->loss, loss, speed(t).text);
        break;
    case TRAIN_EVALUATED:
        t->val_loss = ev->val_loss;
        curve_put(&t->log, ev, 0, ns * 1e-9);
        if (isfinite(ev->loss))
            chars_printf(loss, "loss %.4f, ", ev->loss);
        if (t->step_ns)
            chars_printf(rate, ", %s tokens/s", speed(t).text);
        log_info(o, "step %d of %d: %sheld out %.4f nats a token, %.4f bits a byte%s%s%s", t->step,
                 spec->n_steps, loss, ev->val_loss, ev->val_bits, ev->best ? " (best)" : "", rate,
                 left);
        break;
    case TRAIN_SAVED:
        log_verbose(o, "saved after step %d", ev->step);
    }
}

static void announce(const struct training *t, const struct train_plan *p)
{
    const struct common_options *o = &t->common;
    const struct train_spec *spec = &t->spec;
    const struct config *c = &p->config;
    char variant[16];
    config_variant_name(c, variant);
    log_info(o,
             "%s: %s, %d layer%s, d_model %d, %d head%s (%s), d_ff %d, context %d, vocabulary %d: "
             "%" PRIu64 " parameters",
             spec->from_path ? spec->from_path : "new model", c->arch->name, c->n_layers,
             plural(c->n_layers), c->d_model, c->n_heads, plural(c->n_heads), variant, c->d_ff,
             c->n_ctx, c->n_vocab, p->n_params);
    log_info(
        o,
        "text: %zu tokens to train on, %zu held out (%zu scored), %.2f bytes a token; %d step%s of "
        "%d window%s of %d token%s read it %.1f times; seed %" PRIu64,
        p->train_tokens, p->val_tokens, p->val_scored, p->bytes_per_token, spec->n_steps,
        plural(spec->n_steps), spec->batch, plural(spec->batch), spec->length, plural(spec->length),
        (double)spec->n_steps * spec->batch * spec->length / p->train_tokens, p->seed);
    if (p->widened)
        log_info(o, "%s is not all F32: it is trained, and written, in F32", spec->from_path);
    if (p->resumed_step > 0)
        log_info(o, "going on after step %d", p->resumed_step);
    if (memory_is_worth_saying(o, p->parameter_bytes + p->activation_bytes + p->teacher_bytes))
        log_info(
            o,
            "memory: parameters, gradient and moments %s, activations %s, teacher's %s, tokens %s; "
            "a smaller --batch or --ctx takes less; on disk OUT.state %s",
            figure_bytes(p->parameter_bytes).text, figure_bytes(p->activation_bytes).text,
            figure_bytes(p->teacher_bytes).text, figure_bytes(p->token_bytes).text,
            figure_bytes(p->state_bytes).text);
}

/* --- what is read and written ---------------------------------------------------------------- */

/* A run is never written over another's OUT or OUT.state: only --resume goes on with them. */
static enum status check_outputs(const struct training *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    char state[PATH_MAX];
    chars_printf(state, "%s.state", spec->out ? spec->out : "");
    const char *other = path_exists(state)
                            ? "--resume goes on with that run; to begin anew name another OUT"
                            : "it has no OUT.state to go on from: name another OUT";
    TRY(path_new(spec->out, spec->resume, other, e));
    TRY(path_new(state, spec->resume, other, e));
    if (t->log_path && !spec->resume && path_exists(t->log_path))
        return err_usage(e,
                         "--log: '%.200s' exists, and only --resume goes on with a log; expected "
                         "another name",
                         t->log_path);
    if (t->log_path && path_same(t->log_path, state))
        return err_usage(e, "--log: '%.200s' is OUT.state; expected a file of its own",
                         t->log_path);
    return path_writable(state, e);
}

/* Reads the texts. They are not mapped: a file that changes must not be one text when the
 * vocabulary is learned and another when it is cut into tokens; and a pipe is a text, too. */
static enum status read_texts(struct training *t, struct err *e)
{
    struct train_spec *spec = &t->spec;
    if (t->texts.n == 0)
        return err_usage(e, "no text is named; expected TEXT, one or several files");
    TRY_ZEROED(t->read, t->texts.n, "the list of texts", e);
    for (int i = 0; i < t->texts.n; i++) {
        struct text *text = &t->read[spec->n_texts];
        char *bytes = NULL;
        if (input_is_self(t->texts.items[i]))
            continue;
        TRY(input_await(t->texts.items[i], TEXT_MAX, &bytes, &text->len, e));
        text->data = bytes;
        spec->n_texts++;
    }
    spec->texts = t->read;
    return STATUS_OK;
}

/* For each self:N among the texts lets the teacher, or else the checkpoint that is trained, write N
 * tokens, in whole windows. */
static enum status write_texts(struct training *t, struct job *j, struct err *e)
{
    struct train_spec *spec = &t->spec;
    const bool taught = spec->teacher;
    int n_windows = 0;
    for (int i = 0; i < t->texts.n; i++) {
        int n = SELF_TOKENS;
        if (!input_is_self(t->texts.items[i]))
            continue;
        if (!spec->from)
            return err_usage(e, "TEXT: self is written by a checkpoint; expected --from too");
        TRY(input_count_self("TEXT", t->texts.items[i], spec->length, &n, e));
        n_windows += n / spec->length;
    }
    if (n_windows == 0)
        return STATUS_OK;
    const struct input_self text = {.checkpoint = taught ? &j->other : &j->checkpoint,
                                    .path = taught ? spec->teacher_path : spec->from_path,
                                    .option = "TEXT self",
                                    .seed = spec->seed,
                                    .n = n_windows,
                                    .length = spec->length};
    TRY(job_write_self(j, &text, &t->own, e));
    spec->n_tokens = (size_t)n_windows * spec->length;
    spec->tokens = t->own;
    return STATUS_OK;
}

static void free_texts(struct training *t)
{
    for (int i = 0; i < t->spec.n_texts; i++)
        free((void *)(uintptr_t)t->read[i].data);
    free(t->read);
    free(t->own);
    t->spec.n_texts = 0;
    t->read = NULL;
    t->own = NULL;
}

/* Takes the options of a run that is resumed from OUT.state and then from this command line. One
 * that differs is refused, unless it is --log or a larger --steps. */
static enum status recall_options(struct training *t, struct job *j, struct err *e)
{
    const struct option_spec *spec = &command_train.spec;
    static const char *const log[] = {"log", NULL}, *const more[] = {"log", "steps", NULL};
    const char *out = t->spec.out;
    char *none[] = {NULL};
    struct training begun = {.step = 0};
    struct option_rows before;
    struct bytes again = {0};
    TRY(train_saved_options(out, &t->recalled, e));
    enum status s = record_parse(spec, &t->recalled, none, &begun, &before, e);
    if (s == STATUS_OK)
        s = record_make(&before, &again, e);
    if (s == STATUS_USAGE ||
        (s == STATUS_OK && !text_equal(bytes_text(&again), bytes_text(&t->recalled))))
        s = err_bad_file(e, "%s.state: damaged: its options are none of this program", out);
    options_free(spec, t);
    if (s == STATUS_OK)
        s = record_parse(spec, &t->recalled, j->words, t, j->rows, e);
    if (s == STATUS_OK)
        s = record_compare(&before, j->rows, t->spec.n_steps > begun.spec.n_steps ? more : log, e);
    bytes_free(&again);
    options_free(spec, &begun);
    return s;
}

/* Takes all options and makes the record of them, which has the seed also where it is random. */
static enum status take_options(struct training *t, struct job *j, struct err *e)
{
    if (t->spec.resume)
        TRY(recall_options(t, j, e));
    TRY(job_seed(j, e));
    chars_printf(t->seed, "%" PRIu64, j->seed);
    options_find(j->rows, "seed")->given = t->seed;
    t->spec.seed = j->seed;
    return record_make(j->rows, &t->record, e);
}

/* Completes the specification: the model, the teacher, the terms of the loss, threads. */
static enum status complete_spec(struct training *t, struct job *j, struct err *e)
{
    struct train_spec *spec = &t->spec;
    spec->keep_last = spec->eval_every < 0;
    spec->callbacks = (struct callbacks){progress_stop, show_learning, t};
    spec->event = on_event;
    TRY(train_spec_complete(spec, &t->shape, &j->checkpoint, &j->other, e));
    TRY(train_loss_parse(t->loss_terms, &spec->loss, e));
    if (spec->from_path)
        job_warn_vocabulary(&t->common, spec->from_path, j->checkpoint.tokenizer);
    spec->options = bytes_text(&t->record);
    TRY(job_start_threads(j, e));
    spec->kernels = j->kernels;
    spec->pool = j->pool;
    return STATUS_OK;
}

static enum status run_to_the_end(struct training *t, struct trainer *trainer, struct err *e)
{
    const struct train_plan *p = trainer_plan(trainer);
    const char *out = t->spec.out;
    char best[128] = "";
    announce(t, p);
    t->first_step = t->step = p->resumed_step;
    t->loss = t->val_loss = NO_FIGURE;
    TRY(curve_open(&t->log, t->log_path, t->first_step, e));
    const enum status s = trainer_run(trainer, e);
    notice_clear();
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    if (isfinite(p->best_loss) && !t->spec.keep_last)
        chars_printf(best, "best of step %d, held out %.4f nats a token, %.4f bits a byte; ",
                     p->best_step, p->best_loss, p->best_loss * p->bits_per_nat);
    if (s == STATUS_INTERRUPTED)
        log_info(&t->common,
                 "interrupted after step %d; the same command with --resume goes on from %s.state",
                 t->step, out);
    else if (t->step == t->first_step)
        log_info(&t->common,
                 "%s: %sfinished: all %d steps were made before; a larger --steps goes on", out,
                 best, t->step);
    else
        log_info(&t->common, "%s: %s%d step%s in %s, %s tokens/s", out, best,
                 t->step - t->first_step, plural(t->step - t->first_step),
                 figure_duration(t->step_ns).text, speed(t).text);
    TRY(curve_close(&t->log, e));
    return s;
}

static enum status run_train(struct job *j, void *values, struct err *e)
{
    struct training *t = values;
    struct trainer *trainer = NULL;
    TRY(check_outputs(t, e));
    enum status s = take_options(t, j, e);
    t->terminal = isatty(STDERR_FILENO) && !t->common.quiet;
    if (s == STATUS_OK)
        s = read_texts(t, e);
    if (s == STATUS_OK)
        s = complete_spec(t, j, e);
    if (s == STATUS_OK)
        s = write_texts(t, j, e);
    if (s == STATUS_OK)
        s = trainer_open(&t->spec, &trainer, e);
    free_texts(t); /* training takes their tokens */
    if (s == STATUS_OK)
        s = run_to_the_end(t, trainer, e);
    curve_close(&t->log, &(struct err){0}); /* after a failure, whose message stands */
    trainer_free(trainer);
    bytes_free(&t->recalled);
    bytes_free(&t->record);
    return s;
}

const struct command command_train = {
    .name = "train",
    .summary = "train a toy checkpoint from text; --from uptrains one",
    .usage = "TEXT|self:N... -o OUT [options]",
    .examples = "./decode train README.md -o toy.gguf --embd 64 --heads 4 --steps 20\n"
                "./decode train README.md -o b.gguf --from toy.gguf --steps 9 --lr 1e-4\n",
    .notes = help_of_train,
    .spec = {.groups = {{"Output", output_options, 0},
                        {"A new model", train_size_options, offsetof(VALUES, shape)},
                        {"What it is made of", train_kind_options, offsetof(VALUES, shape)},
                        {"What it starts from", origin_options, 0},
                        {"Steps", train_step_options, offsetof(VALUES, spec)},
                        {"Held-out text", train_held_out_options, offsetof(VALUES, spec)},
                        {"Run", run_options, 0},
                        {"", general_options + 1, 0}},
             .everyday = "output layers embd heads kv-heads vocab from steps lr resume",
             .positionals = {OPT_STRINGS("TEXT...", texts, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_STOPS | JOB_WORKERS,
    .run = run_train,
};
