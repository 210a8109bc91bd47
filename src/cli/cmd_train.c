/* decode train: a new checkpoint from text, or one trained further. */
#include <unistd.h>

#include "args/record.h"
#include "cli/job.h"
#include "model/config_keys.h"
#include "train/curve.h"

#define TEXT_MAX  ((size_t)1 << 34) /* a longer text is refused, also a pipe that does not end */
#define SMOOTHING 0.05              /* weight of a step in the smoothed loss */
#define TRAIN_CTX 256      /* tokens of a window, and of the context of a new model, by default */
#define FURTHER   0.1      /* of a new model's rate, for a checkpoint that is trained further */
#define FREE_ARCH "decode" /* the preset that has whatever kinds are asked for */

/* Marks options of a new model, which the checkpoint of --from answers already. */
#define NEW_ONLY .excludes = "from"

#define TRAIN_KINDS 5

/* What options say of a new model. */
struct train_shape {
    int n_layers, d_model, n_heads, head_dim, d_ff, n_ctx, n_vocab;
    const char *kv_heads, *window, *score_scale;
    int arch, kinds[TRAIN_KINDS]; /* choices: norm, placement, position, ffn, score */
    bool no_bias, share_layers;
};

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
    struct bytes recalled, record; /* the options that OUT.state has, and will have */
    char seed[24];                 /* as the record has it */
};

/* --- options ---------------------------------------------------------------------------------- */

#define VALUES struct train_shape

static const struct option size_options[] = {
    OPT_INT("layers", n_layers, "L", 1, CONFIG_MAX_LAYERS, "layers", .otherwise = "4", NEW_ONLY),
    OPT_INT("embd", d_model, "E", 1, CONFIG_MAX_WIDTH, "width of the model", .otherwise = "128",
            NEW_ONLY),
    OPT_INT("head-dim", head_dim, "N", 1, CONFIG_MAX_WIDTH,
            "elements of a head's query and key; where --arch cannot say so, it becomes decode",
            .otherwise = "E / H", NEW_ONLY),
    OPT_INT("ff", d_ff, "F", 1, CONFIG_MAX_FF, "width of the feed-forward layer",
            .otherwise = "4 * E; swiglu: 8/3 * E, in steps of 32", NEW_ONLY),
    OPT_INT("ctx", n_ctx, "C", 1, CONFIG_MAX_CTX,
            "context, and tokens of a window; with --from the windows only",
            .otherwise = "256; with --from its context if less"),
    OPT_INT("vocab", n_vocab, "V", 256, CONFIG_MAX_VOCAB,
            "tokens of the byte-level BPE that is learned from the text",
            .otherwise = "256, plain bytes", NEW_ONLY),
    OPT_INT("heads", n_heads, "H", 1, CONFIG_MAX_WIDTH,
            "query heads, a divisor of --embd without --head-dim", .otherwise = "8", NEW_ONLY),
    OPT_STRING("kv-heads", kv_heads, "G[,G,...]",
               "K/V heads, a divisor of --heads: fewer are GQA, 1 is MQA; several: one a layer, "
               "which llama.cpp does not run",
               .otherwise = "as --heads", NEW_ONLY),
    OPT_END,
};

static const struct option kind_options[] = {
    OPT_CHOICE(
        "arch", arch, "ARCH", shape_archs,
        "architecture; transformer is the original's decoder, decode what the options below say",
        .otherwise = "gpt2, or decode with one of these options", NEW_ONLY),
    OPT_CHOICE("norm", kinds[0], "KIND", arch_norm_names, "norms", .otherwise = "layer", NEW_ONLY),
    OPT_CHOICE(
        "placement", kinds[1], "WHERE", arch_placement_names,
        "norms before attention and feed-forward layer, or after their residuals; parallel: both "
        "read the block's input; alone: before, without residuals",
        .otherwise = "before", NEW_ONLY),
    OPT_CHOICE("position", kinds[2], "KIND", arch_position_names, "how positions are told",
               .otherwise = "learned", NEW_ONLY),
    OPT_CHOICE("ffn", kinds[3], "KIND", arch_ffn_names,
               "feed-forward layer; gelu_erf is the exact one", .otherwise = "gelu", NEW_ONLY),
    OPT_CHOICE("score", kinds[4], "KIND", arch_score_names,
               "scores of a query q and a key k: their product, or w·tanh(q + k)",
               .otherwise = "dot", NEW_ONLY),
    OPT_FLAG("no-bias", no_bias, "no biases but those of norms", NEW_ONLY),
    OPT_STRING(
        "window", window, "W[,W,...]",
        "a query reads the W keys up to its own; 0: all; several: one a layer. Of --arch the "
        "kinds stay, but the checkpoint is decode's",
        .otherwise = "0", NEW_ONLY),
    OPT_STRING("score-scale", score_scale, "X|none",
               "attention's scores are multiplied by X, or by nothing; llama.cpp heeds that in few "
               "architectures",
               .otherwise = "1/sqrt(head size); with --from the checkpoint's"),
    OPT_FLAG("share-layers", share_layers, "all layers use the weights of one", NEW_ONLY),
    OPT_END,
};

#undef VALUES
#define VALUES struct train_spec

static const struct option step_options[] = {
    OPT_INT("steps", n_steps, "N", 1, 100000000, "steps", .fallback = "2000"),
    OPT_INT("batch", batch, "B", 1, 65536, "windows a step", .fallback = "8"),
    OPT_CHOICE("optimizer", optimizer, "NAME", train_optimizers,
               "muon makes the momentum of the blocks' matrices orthogonal and leaves the rest to "
               "AdamW: fewer steps for the same loss, each a little longer",
               .fallback = "adamw"),
    OPT_DOUBLE("lr", lr, "X", 0, TRAIN_MOST_RATE,
               "learning rate after the warm-up; it ends at a tenth, by a cosine",
               .otherwise = "0.001, of muon 0.01; with --from a tenth of that", .above_min = true),
    OPT_INT("warmup", warmup, "N", -1, INT_MAX,
            "steps of linear warm-up; -1: a tenth of all, with --from half, at most 100",
            .fallback = "-1"),
    OPT_DOUBLE("weight-decay", weight_decay, "X", 0, 10, "AdamW's, of matrices only",
               .fallback = "0.1"),
    OPT_DOUBLE("dropout", dropout, "X", 0, 0.9,
               "share of embeddings and of what layers add that is left out in each step",
               .fallback = "0"),
    OPT_DOUBLE("attn-dropout", attn_dropout, "X", 0, 0.9,
               "share of attention's probabilities that is left out in each step", .fallback = "0"),
    OPT_DOUBLE("label-smoothing", label_smoothing, "X", 0, 0.9,
               "share of the loss that asks for all tokens alike; the original Transformer: 0.1",
               .fallback = "0"),
    OPT_DOUBLE("clip", clip, "X", 0, 1e6, "limit of the gradient's norm; 0: none", .fallback = "1"),
    OPT_DOUBLE("val-fraction", val_fraction, "X", 0, 0.9,
               "the last part of each text, held out; 0: none", .fallback = "0.1"),
    OPT_INT("eval-every", eval_every, "N", -1, INT_MAX,
            "steps between evaluations on the held-out text; 0: a twentieth of --steps, from 25 to "
            "250; -1: none, and OUT is the last step's checkpoint",
            .fallback = "0"),
    OPT_END,
};

#undef VALUES
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
    OPT_THREADS("threads; any number gives the same checkpoint"),
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
               .fallback = "text=0.5,teacher=0.5", .needs = "teacher"),
    OPT_CHOICE("only", spec.only, "PART", train_parts,
               "what is trained: all, or attention with all norms, which repairs a conversion in "
               "less time and memory",
               .fallback = "all", .needs = "from"),
    OPT_U64("seed", common.seed, "S", "of the first weights and of the windows",
            .otherwise = "random"),
    OPT_END,
};

/* --- a new model ----------------------------------------------------------------------------- */

/* Sets the architecture and its kinds. Only FREE_ARCH may have other kinds than its own. */
static enum status set_kinds(const struct train_shape *s, struct config *c, struct err *e)
{
    /* As the rows behind --arch have them. */
    unsigned *const kinds[TRAIN_KINDS] = {(unsigned *)&c->norm, (unsigned *)&c->placement,
                                          (unsigned *)&c->position, (unsigned *)&c->ffn,
                                          (unsigned *)&c->score};
    bool is_free = s->no_bias || s->share_layers || s->score_scale || s->window;
    const char *option = NULL;
    for (int i = 0; i < TRAIN_KINDS; i++)
        is_free |= s->kinds[i] != CHOICE_NONE;
    const char *preset = s->arch != CHOICE_NONE ? shape_archs[s->arch]
                         : is_free              ? FREE_ARCH
                                                : shape_archs[0];
    config_set_arch(c, arch_preset(text_of(preset)));
    if (s->share_layers)
        option = "share-layers";
    if (s->no_bias && c->biases != BIASES_NONE)
        option = "no-bias";
    for (int i = 0; i < TRAIN_KINDS; i++)
        if (s->kinds[i] != CHOICE_NONE && (unsigned)s->kinds[i] != *kinds[i]) {
            option = kind_options[1 + i].name;
            *kinds[i] = s->kinds[i];
        }
    if (option && !str_is(preset, FREE_ARCH))
        return err_usage(
            e, "--%s: --arch %s has no such choice; --arch " FREE_ARCH " has what is asked for",
            option, preset);
    if (s->no_bias)
        c->biases = BIASES_NONE;
    c->shared = s->share_layers;
    if (s->score_scale)
        TRY(parse_score_scale(s->score_scale, &c->score_scale, e));
    if (s->window)
        TRY(windows_of_layers("--window", s->window, ",", false, c, e));
    if (c->position == POSITION_SINUSOIDAL) /* beside which tokens would be nothing otherwise */
        c->embedding_scale = sqrtf(c->d_model);
    return STATUS_OK;
}

/* Fills in the config of the model that training starts from: that of the checkpoint at `path`,
 * which is opened, or, without a path, a new one of this shape. STATUS_USAGE names an option that
 * cannot be with the others; the failures of job_open. */
static enum status open_origin(const char *path, const struct train_shape *s,
                               struct checkpoint *from, struct config *c, struct err *e)
{
    static const struct shape_words words = {"--heads", "--embd", "--head-dim", "--score"};
    int layers[CONFIG_MAX_LAYERS], n = 0; /* of --kv-heads: one for all layers, or one for each */
    if (path) {
        TRY(job_open(path, CHECKPOINT_TEXTS, NULL, from, e));
        TRY(err_in_file(e, config_read(from->gguf, c, e), path));
        if (!s->score_scale)
            return STATUS_OK;
        TRY(config_needs_dot(c, "--score-scale", e));
        return parse_score_scale(s->score_scale, &c->score_scale, e);
    }
    *c = (struct config){.n_layers = s->n_layers ? s->n_layers : 4,
                         .n_heads = s->n_heads ? s->n_heads : 8,
                         .head_dim = s->head_dim,
                         .d_model = s->d_model ? s->d_model : 128,
                         .d_ff = s->d_ff,
                         .n_ctx = s->n_ctx ? s->n_ctx : TRAIN_CTX,
                         .n_vocab = s->n_vocab ? s->n_vocab : 256};
    TRY(set_kinds(s, c, e));
    c->n_kv_heads = c->n_heads;
    if (s->kv_heads) {
        TRY(heads_of_layers(s->kv_heads, c, layers, &n, e));
        c->n_kv_heads = 0;
    }
    for (int l = 0; l < c->n_layers && n > 0; l++) {
        c->layer_kv_heads[l] = n > 1 ? layers[l] : 0;
        c->n_kv_heads = MAX(layers[l], c->n_kv_heads);
    }
    return shape_complete(c, &words, e);
}

/* --- from options to a specification --------------------------------------------------------- */

/* Reads the terms of --loss; one that is not named has weight 0. */
static enum status parse_loss(const char *text, struct loss_weights *loss, struct err *e)
{
    static const char *const terms[] = {"text", "teacher", "streams", NULL};
    float *const weights[] = {&loss->text, &loss->teacher, &loss->streams};
    *loss = (struct loss_weights){0};
    for (char term[48]; list_item(&text, term, sizeof term);) {
        const size_t len = strcspn(term, "=");
        const char *number = term[len] ? term + len + 1 : "";
        double x = 0;
        term[len] = 0;
        const int i = names_find(terms, term);
        if (i < 0 || !parse_double(number, &x) || x < 0 || x > TRAIN_MOST_WEIGHT)
            return err_usage(e,
                             "--loss: expected text=X, teacher=X or streams=X, with X from 0 to "
                             "%d, separated by commas; found '%s'",
                             TRAIN_MOST_WEIGHT, term);
        *weights[i] = (float)x;
    }
    return loss->text + loss->teacher + loss->streams > 0
               ? STATUS_OK
               : err_usage(e, "--loss: all weights are 0; expected one that is not");
}

/* Decides what the options left open: rate, warm-up, intervals, the length of windows. */
static void decide_rest(struct training *t)
{
    struct train_spec *spec = &t->spec;
    const bool further = spec->from_path;
    const int interval = MIN(MAX(spec->n_steps / 20, 25), 250);
    spec->keep_last = spec->eval_every < 0;
    /* A trained model has something to lose while AdamW's moments are still empty. */
    if (spec->warmup < 0)
        spec->warmup = MIN(spec->n_steps / (further ? 2 : 10), 100);
    if (spec->lr == 0)
        spec->lr = (spec->optimizer == OPTIMIZER_MUON ? 1e-2 : 1e-3) * (further ? FURTHER : 1);
    if (spec->eval_every == 0)
        spec->eval_every = interval;
    if (spec->save_every == 0)
        spec->save_every = spec->eval_every > 0 ? spec->eval_every : interval;
    spec->length = t->shape.n_ctx ? t->shape.n_ctx : TRAIN_CTX;
    if (further && !t->shape.n_ctx)
        spec->length = MIN(spec->length, spec->shape.n_ctx);
}

/* Opens the teacher, if there is one, and decides what is learned of it. */
static enum status open_teacher(struct training *t, struct job *j, struct err *e)
{
    struct train_spec *spec = &t->spec;
    spec->loss = (struct loss_weights){.text = 1};
    if (!spec->teacher_path)
        return STATUS_OK;
    TRY(job_open(spec->teacher_path, CHECKPOINT_TOKENIZER, NULL, &j->other, e));
    spec->teacher = j->other.gguf;
    return parse_loss(t->loss_terms, &spec->loss, e);
}

/* --- what a run says -------------------------------------------------------------------------- */

/* Returns the tokens a second in the steps of this run, "3.2k". */
static struct figure speed(const struct training *t)
{
    const double tokens = (double)(t->step - t->first_step) * t->spec.batch * t->spec.length;
    return figure_rate(t->step_ns ? tokens / (t->step_ns * 1e-9) : 0);
}

/* The trainer's callback `progress`: merges of the vocabulary that it learns. */
static void show_learning(void *arg, uint64_t done, uint64_t all)
{
    const struct training *t = arg;
    if (t->terminal)
        notice_show("learning the vocabulary: %" PRIu64 " of %" PRIu64 " merges", done, all);
}

/* The trainer's callback `event`: adds rows to the log, and prints lines about the run. */
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
    if (ev->kind == TRAIN_STEP) {
        curve_put(&t->log, ev, spec->batch * spec->length, ns * 1e-9);
        if (isfinite(t->val_loss))
            chars_printf(loss, ", held out %.4f", t->val_loss);
        if (t->terminal) /* what matters most comes first: a narrow one cuts the rest */
            notice_show("step %d of %d%s: loss %.4f%s, %s tokens/s", t->step, spec->n_steps, left,
                        t->loss, loss, speed(t).text);
    } else {
        t->val_loss = ev->val_loss;
        curve_put(&t->log, ev, 0, ns * 1e-9);
        if (isfinite(ev->loss))
            chars_printf(loss, "loss %.4f, ", ev->loss);
        if (t->step_ns)
            chars_printf(rate, ", %s tokens/s", speed(t).text);
        log_info(o, "step %d of %d: %sheld out %.4f nats a token, %.4f bits a byte%s%s%s", t->step,
                 spec->n_steps, loss, ev->val_loss, ev->val_bits, ev->best ? " (best)" : "", rate,
                 left);
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
        (double)spec->n_steps * spec->batch * spec->length / p->train_tokens, spec->seed);
    if (p->widened)
        log_info(o, "%s is not all F32: it is trained, and written, in F32", spec->from_path);
    if (p->resumed_step > 0)
        log_info(o, "going on after step %d", p->resumed_step);
    if (memory_is_worth_saying(o, p->parameter_bytes + p->activation_bytes + p->teacher_bytes))
        log_info(
            o,
            "memory: parameters, gradient and moments %s, a batch's activations and gradients %s, "
            "teacher's %s, tokens %s; a smaller --batch or --ctx takes less; on disk OUT.state %s",
            figure_bytes(p->parameter_bytes).text, figure_bytes(p->activation_bytes).text,
            figure_bytes(p->teacher_bytes).text, figure_bytes(p->token_bytes).text,
            figure_bytes(p->state_bytes).text);
}

/* --- what is read and written ---------------------------------------------------------------- */

/* Refuses to write over OUT or OUT.state of another run: only --resume goes on with them. */
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

/* Reads the texts into memory. A mapped file that changes would be one text when the vocabulary is
 * learned and another when it is cut into tokens; and a pipe is a text, too. */
static enum status read_texts(struct training *t, struct err *e)
{
    struct train_spec *spec = &t->spec;
    if (t->texts.n == 0)
        return err_usage(e, "no text is named; expected TEXT, one or several files");
    TRY_ZEROED(t->read, t->texts.n, "the list of texts", e);
    for (int i = 0; i < t->texts.n; i++) {
        char *bytes = NULL;
        TRY(input_read(t->texts.items[i], TEXT_MAX, &bytes, &t->read[i].len, e));
        t->read[i].data = bytes;
        spec->n_texts++;
    }
    spec->texts = t->read;
    return STATUS_OK;
}

static void free_texts(struct training *t)
{
    for (int i = 0; i < t->spec.n_texts; i++)
        free((void *)(uintptr_t)t->read[i].data);
    free(t->read);
}

/* Takes the options of a run that is resumed, first from OUT.state and then from this command line.
 * An option that differs is refused, unless it is --log or a larger --steps. */
static enum status recall_options(struct training *t, struct job *j, struct err *e)
{
    const struct option_spec *spec = &command_train.spec;
    static const char *const may_differ[] = {"log", "steps", NULL};
    const char *out = t->spec.out;
    char *none[] = {NULL};
    struct bytes again = {0};
    TRY(train_saved_options(out, &t->recalled, e));
    TRY(record_compare(&t->recalled, j->rows, may_differ, e));
    options_free(spec, t);
    enum status s = record_parse(spec, &t->recalled, none, t, j->rows, e);
    const int n_steps = t->spec.n_steps;
    if (s == STATUS_OK)
        s = record_make(j->rows, &again, e);
    if (s == STATUS_USAGE ||
        (s == STATUS_OK && !text_equal(bytes_text(&again), bytes_text(&t->recalled))))
        s = err_bad_file(e, "%s.state: damaged: its options are none of this program", out);
    options_free(spec, t);
    if (s == STATUS_OK)
        s = record_parse(spec, &t->recalled, j->words, t, j->rows, e);
    if (s == STATUS_OK && t->spec.n_steps < n_steps)
        s = err_usage(e, "--steps %d: the run to resume was begun with --steps %d; expected more",
                      t->spec.n_steps, n_steps);
    bytes_free(&again);
    return s;
}

/* Takes all options and makes the record of them, in which a random seed is given, too. */
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

/* Completes the specification. */
static enum status complete_spec(struct training *t, struct job *j, struct err *e)
{
    struct train_spec *spec = &t->spec;
    spec->callbacks = (struct callbacks){progress_stop, show_learning, t};
    spec->event = on_event;
    TRY(open_origin(spec->from_path, &t->shape, &j->checkpoint, &spec->shape, e));
    spec->from = j->checkpoint.gguf;
    decide_rest(t);
    TRY(open_teacher(t, j, e));
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

static enum status open_run(struct training *t, struct job *j, struct trainer **trainer,
                            struct err *e)
{
    TRY(check_outputs(t, e));
    TRY(take_options(t, j, e));
    t->terminal = isatty(STDERR_FILENO) && !t->common.quiet;
    TRY(read_texts(t, e));
    TRY(complete_spec(t, j, e));
    return trainer_open(&t->spec, trainer, e);
}

static enum status run_train(struct job *j, void *values, struct err *e)
{
    struct training *t = values;
    struct trainer *trainer = NULL;
    enum status s = open_run(t, j, &trainer, e);
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
    .usage = "TEXT... -o OUT [options]",
    .examples = "./decode train README.md -o toy.gguf --embd 64 --heads 4 --steps 20\n"
                "./decode train README.md -o b.gguf --from toy.gguf --steps 9 --lr 1e-4\n",
    .notes = help_of_train,
    .spec = {.groups = {{"The run", output_options, 0},
                        {"A new model", size_options, offsetof(VALUES, shape)},
                        {"What it is made of", kind_options, offsetof(VALUES, shape)},
                        {"What it starts from", origin_options, 0},
                        {"Steps", step_options, offsetof(VALUES, spec)},
                        {"", general_options + 1, 0}},
             .everyday = "output layers embd heads kv-heads vocab from steps lr resume",
             .positionals = {OPT_STRINGS("TEXT...", texts, NULL, NULL, .reads = "the text")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_STOPS | JOB_WORKERS,
    .run = run_train,
};
