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

#include "base/file.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/signals.h"
#include "cli/train_paths.h"
#include "cli/train_report.h"
#include "model/checkpoint.h"
#include "show/figures.h"
#include "train/train.h"

/* Memory beyond this is announced even without -v. */
#define LARGE_MEMORY ((size_t)1 << 30)

/* More text than this is not taken from a pipe. */
#define PIPE_MAX ((size_t)1 << 30)

#define DEFAULT_LAYERS   4
#define DEFAULT_EMBD     128
#define DEFAULT_HEADS    8
#define DEFAULT_CTX      256
#define DEFAULT_VOCAB    256
#define DEFAULT_LR       1e-3
#define DEFAULT_LR_FROM  3e-4
#define DEFAULT_SHARE    0.5
#define LONGEST_WARMUP   100
#define LEAST_INTERVAL   25
#define LARGEST_INTERVAL 250

struct train_options {
    struct common_options common; /* its positional and model stay NULL */
    struct option_strings texts;
    const char *threads;
    const char *out, *log;
    int keep;
    bool resume;
    int save_every, eval_every;
    const char *from, *teacher;
    double teacher_weight;
    int layers, embd, heads, kv_heads, ff, ctx, vocab;
    int steps, batch, warmup;
    double lr, beta2, weight_decay, dropout, clip, val_fraction;
    struct option_u64 seed;
};

#define AT(member) .offset = offsetof(struct train_options, member)

enum { KEEP_BEST, KEEP_LAST };
static const char *const keeps[] = {"best", "last", NULL};

static const struct option output_options[] = {
    {.kind = OPTION_STRING,
     .name = "output",
     .letter = 'o',
     AT(out),
     .value = "OUT",
     .help = "the checkpoint to write; OUT.state beside it has what --resume needs"},
    {.kind = OPTION_CHOICE,
     .name = "keep",
     AT(keep),
     .value = "WHICH",
     .fallback = "best",
     .choices = keeps,
     .help = "which checkpoint is OUT: the best on the held-out text, or the last"},
    {.kind = OPTION_INT,
     .name = "save-every",
     AT(save_every),
     .value = "N",
     .min = 1,
     .max = INT_MAX,
     .otherwise = "as --eval-every",
     .help = "steps between saves"},
    {.kind = OPTION_FLAG,
     .name = "resume",
     AT(resume),
     .help = "go on from OUT.state, with the same texts and options as before"},
    {.kind = OPTION_STRING,
     .name = "log",
     AT(log),
     .value = "FILE.csv",
     .help = "write loss, learning rate and gradient norm of every step"},
    {.kind = OPTION_END},
};

#define SIZE_OPTION(option, member, letter_value, max_value, default_text, text)                   \
    {                                                                                              \
        .kind = OPTION_INT, .name = option, AT(member), .value = letter_value, .min = 1,           \
        .max = max_value, .otherwise = default_text, .help = text                                  \
    }

static const struct option shape_options[] = {
    SIZE_OPTION("layers", layers, "L", 1024, "4", "layers"),
    SIZE_OPTION("embd", embd, "E", CONFIG_MAX_WIDTH, "128", "width of the model"),
    SIZE_OPTION("heads", heads, "H", CONFIG_MAX_WIDTH, "8", "query heads, a divisor of --embd"),
    SIZE_OPTION("kv-heads", kv_heads, "G", CONFIG_MAX_WIDTH, "as --heads",
                "K/V heads, a divisor of --heads: fewer are GQA, 1 is MQA"),
    SIZE_OPTION("ff", ff, "F", CONFIG_MAX_FF, "4 * E", "width of the feed-forward layer"),
    SIZE_OPTION("ctx", ctx, "C", CONFIG_MAX_CTX, "256; with --from its context if less",
                "context, and tokens of a window; with --from the windows only"),
    {.kind = OPTION_INT,
     .name = "vocab",
     AT(vocab),
     .value = "V",
     .min = 256,
     .max = CONFIG_MAX_VOCAB,
     .otherwise = "256, plain bytes",
     .help = "tokens of the byte-level BPE that is learned from the text"},
    {.kind = OPTION_END},
};

static const struct option further_options[] = {
    {.kind = OPTION_STRING,
     .name = "from",
     AT(from),
     .value = "MODEL",
     .help = "train this checkpoint further, with its shape and tokenizer"},
    {.kind = OPTION_STRING,
     .name = "teacher",
     AT(teacher),
     .value = "MODEL",
     .help = "learn this checkpoint's predictions too (distillation); same vocabulary"},
    {.kind = OPTION_DOUBLE,
     .name = "teacher-weight",
     AT(teacher_weight),
     .value = "X",
     .otherwise = "0.5",
     .max = 1,
     .above_min = true,
     .help = "share of the teacher in the loss"},
    {.kind = OPTION_END},
};

static const struct option step_options[] = {
    {.kind = OPTION_INT,
     .name = "steps",
     AT(steps),
     .value = "N",
     .fallback = "2000",
     .min = 1,
     .max = 100000000,
     .help = "steps"},
    {.kind = OPTION_INT,
     .name = "batch",
     AT(batch),
     .value = "B",
     .fallback = "8",
     .min = 1,
     .max = 65536,
     .help = "windows a step"},
    {.kind = OPTION_DOUBLE,
     .name = "lr",
     AT(lr),
     .value = "X",
     .max = 10,
     .above_min = true,
     .otherwise = "0.001; with --from 0.0003",
     .help = "learning rate after the warm-up; it ends at a tenth, by a cosine"},
    {.kind = OPTION_INT,
     .name = "warmup",
     AT(warmup),
     .value = "N",
     .fallback = "-1",
     .min = -1,
     .max = INT_MAX,
     .help = "steps of linear warm-up; -1: a tenth of all, at most 100"},
    {.kind = OPTION_DOUBLE,
     .name = "beta2",
     AT(beta2),
     .value = "X",
     .fallback = "0.99",
     .max = 0.999999,
     .help = "AdamW's decay of the second moment"},
    {.kind = OPTION_DOUBLE,
     .name = "weight-decay",
     AT(weight_decay),
     .value = "X",
     .fallback = "0.1",
     .max = 10,
     .help = "AdamW's, of matrices only"},
    {.kind = OPTION_DOUBLE,
     .name = "dropout",
     AT(dropout),
     .value = "X",
     .fallback = "0",
     .max = 0.9,
     .help = "share of embeddings and of what layers add that is left out in each step"},
    {.kind = OPTION_DOUBLE,
     .name = "clip",
     AT(clip),
     .value = "X",
     .fallback = "1",
     .max = 1e6,
     .help = "limit of the gradient's norm; 0: none"},
    {.kind = OPTION_U64,
     .name = "seed",
     AT(seed),
     .value = "S",
     .otherwise = "random",
     .help = "of the first weights and of the windows"},
    {.kind = OPTION_END},
};

static const struct option held_out_options[] = {
    {.kind = OPTION_DOUBLE,
     .name = "val-fraction",
     AT(val_fraction),
     .value = "X",
     .fallback = "0.1",
     .max = 0.9,
     .help = "the last part of each text, held out; 0: none"},
    {.kind = OPTION_INT,
     .name = "eval-every",
     AT(eval_every),
     .value = "N",
     .min = 1,
     .max = INT_MAX,
     .otherwise = "a twentieth of --steps, from 25 to 250",
     .help = "steps between evaluations on the held-out text"},
    {.kind = OPTION_END},
};

static const struct option general_options[] = {
    {.kind = OPTION_STRING,
     .name = "threads",
     .letter = 't',
     AT(threads),
     .value = "N|auto",
     .otherwise = "DECODE_THREADS, else auto",
     .help = "threads; any number gives the same checkpoint"},
    {.kind = OPTION_FLAG,
     .name = "quiet",
     .letter = 'q',
     AT(common.quiet),
     .help = "nothing on standard error but errors"},
    {.kind = OPTION_FLAG,
     .name = "verbose",
     .letter = 'v',
     AT(common.verbose),
     .help = "also memory plan, threads, instruction set, saves"},
    {.kind = OPTION_END},
};

static const struct option_group groups[] = {
    {"Output", output_options, 0},
    {"A new model", shape_options, 0},
    {"Training further", further_options, 0},
    {"Steps", step_options, 0},
    {"Held-out text", held_out_options, 0},
    {"General", general_options, 0},
    {NULL, NULL, 0},
};

static const struct option_positional positionals[] = {
    {"TEXT...", offsetof(struct train_options, texts)},
    {NULL, 0},
};

/* --- from options to a specification --------------------------------------------------------- */

/* What the specification borrows. */
struct train_inputs {
    struct text *texts; /* [n_texts]; each malloc'd */
    int n_texts;
    struct checkpoint from, teacher;
    struct pool *pool;
    struct train_report report;
};

static int or_else(int given, int otherwise)
{
    return given ? given : otherwise;
}

static enum status check_shape(const struct config *c, struct err *e)
{
    if (c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_USAGE, "--heads %d: expected a divisor of --embd %d", c->n_heads,
                       c->d_model);
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(e, STATUS_USAGE, "--kv-heads %d: expected a divisor of --heads %d",
                       c->n_kv_heads, c->n_heads);
    return STATUS_OK;
}

static enum status new_shape(const struct train_options *o, struct config *c, struct err *e)
{
    *c = (struct config){.n_layers = or_else(o->layers, DEFAULT_LAYERS),
                         .n_heads = or_else(o->heads, DEFAULT_HEADS),
                         .d_model = or_else(o->embd, DEFAULT_EMBD),
                         .n_ctx = or_else(o->ctx, DEFAULT_CTX),
                         .n_vocab = or_else(o->vocab, DEFAULT_VOCAB),
                         .norm_eps = 1e-5f};
    config_set_arch(c, arch_find(text_of("gpt2")));
    c->n_kv_heads = or_else(o->kv_heads, c->n_heads);
    c->d_ff = or_else(o->ff, 4 * c->d_model);
    const enum status s = check_shape(c, e);
    c->head_dim = s == STATUS_OK ? c->d_model / c->n_heads : 0;
    return s;
}

/* The first shape option that was given, or NULL. */
static const char *given_shape(const struct train_options *o)
{
    const struct {
        const char *name;
        int value;
    } sizes[] = {{"--layers", o->layers},     {"--embd", o->embd}, {"--heads", o->heads},
                 {"--kv-heads", o->kv_heads}, {"--ff", o->ff},     {"--vocab", o->vocab}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value)
            return sizes[i].name;
    return NULL;
}

static enum status read_model(const struct train_options *o, struct train_inputs *in,
                              struct train_spec *spec, struct err *e)
{
    spec->length = or_else(o->ctx, DEFAULT_CTX);
    if (!o->from)
        return new_shape(o, &spec->shape, e);
    if (given_shape(o))
        return err_set(e, STATUS_USAGE,
                       "%s and --from are both given: the checkpoint has its own shape and "
                       "vocabulary (decode convert changes its K/V heads)",
                       given_shape(o));
    signals_mapping(o->from);
    enum status s = checkpoint_open(o->from, CHECKPOINT_TOKENIZER, &in->from, e);
    if (s == STATUS_OK)
        s = config_read(in->from.gguf, &spec->shape, e);
    if (s != STATUS_OK) {
        if (in->from.gguf)
            err_prefix(e, o->from);
        return s;
    }
    spec->from = in->from.gguf;
    spec->from_path = o->from;
    if (!o->ctx && spec->shape.n_ctx < spec->length)
        spec->length = spec->shape.n_ctx;
    return STATUS_OK;
}

static enum status read_teacher(const struct train_options *o, struct train_inputs *in,
                                struct train_spec *spec, struct err *e)
{
    if (!o->teacher && o->teacher_weight > 0)
        return err_set(e, STATUS_USAGE, "--teacher-weight is for --teacher, which is not given");
    if (!o->teacher)
        return STATUS_OK;
    spec->teacher_share = o->teacher_weight > 0 ? o->teacher_weight : DEFAULT_SHARE;
    signals_mapping(o->teacher);
    const enum status s = checkpoint_open(o->teacher, CHECKPOINT_TOKENIZER, &in->teacher, e);
    spec->teacher = in->teacher.gguf;
    spec->teacher_path = o->teacher;
    return s;
}

/*
 * Texts are read, not mapped: a file that changes in the meantime must not be one text when the
 * vocabulary is learned and another when it is cut into tokens; and a pipe is a text too.
 */
static enum status read_text(const char *path, struct text *out, struct err *e)
{
    struct stat st;
    const bool is_file = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    char *bytes;
    size_t len;
    /* It may be long in coming, and Ctrl-C still ends the wait. */
    if (signals_end_at_once())
        return STATUS_INTERRUPTED;
    const enum status s = file_read_all(path, is_file ? SIZE_MAX : PIPE_MAX, &bytes, &len, e);
    signals_defer();
    *out = (struct text){bytes, len};
    return s;
}

static enum status read_texts(const struct train_options *o, struct train_inputs *in, struct err *e)
{
    const size_t n = (size_t)o->texts.n;
    if (n == 0)
        return err_set(e, STATUS_USAGE, "no text is named; expected TEXT, one or several files");
    in->texts = calloc(n, sizeof *in->texts);
    if (!in->texts)
        return err_no_memory(e, "the list of texts", n * sizeof *in->texts);
    enum status s = STATUS_OK;
    for (size_t i = 0; i < n && s == STATUS_OK; i++) {
        s = read_text(o->texts.items[i], &in->texts[i], e);
        in->n_texts++;
    }
    return s;
}

static void close_texts(struct train_inputs *in)
{
    for (int i = 0; i < in->n_texts; i++)
        free((void *)(uintptr_t)in->texts[i].data);
    free(in->texts);
    in->texts = NULL;
    in->n_texts = 0;
}

static enum status choose_seed(const struct train_options *o, struct train_spec *spec,
                               struct err *e)
{
    spec->seed_given = o->seed.given;
    return runtime_seed(&o->seed, &spec->seed, e);
}

static enum status make_spec(const struct train_options *o, struct train_inputs *in,
                             struct train_spec *spec, struct err *e)
{
    const int tenth = o->steps / 10, twentieth = o->steps / 20;
    const int warmup = tenth < LONGEST_WARMUP ? tenth : LONGEST_WARMUP;
    const int interval = twentieth < LEAST_INTERVAL     ? LEAST_INTERVAL
                         : twentieth > LARGEST_INTERVAL ? LARGEST_INTERVAL
                                                        : twentieth;
    *spec = (struct train_spec){.texts = in->texts,
                                .n_texts = in->n_texts,
                                .out = o->out,
                                .n_steps = o->steps,
                                .batch = o->batch,
                                .warmup = o->warmup < 0 ? warmup : o->warmup,
                                .lr = o->lr > 0 ? o->lr
                                      : o->from ? DEFAULT_LR_FROM
                                                : DEFAULT_LR,
                                .beta2 = o->beta2,
                                .weight_decay = o->weight_decay,
                                .dropout = o->dropout,
                                .clip = o->clip,
                                .val_fraction = o->val_fraction,
                                .eval_every = or_else(o->eval_every, interval),
                                .keep_last = o->keep == KEEP_LAST,
                                .resume = o->resume,
                                .stop = progress_stop,
                                .event = train_report_event,
                                .arg = &in->report};
    spec->save_every = or_else(o->save_every, spec->eval_every);
    enum status s = choose_seed(o, spec, e);
    if (s == STATUS_OK)
        s = read_model(o, in, spec, e);
    if (s == STATUS_OK)
        s = read_teacher(o, in, spec, e);
    int n_threads = 1;
    if (s == STATUS_OK)
        s = runtime_threads(&o->common, o->threads, &n_threads, NULL, e);
    if (s == STATUS_OK)
        s = runtime_kernels(&o->common, &spec->kernels, e);
    if (s == STATUS_OK)
        s = runtime_pool(&o->common, n_threads, &in->pool, e);
    spec->pool = in->pool;
    if (o->from && o->teacher) /* from here on it may be either */
        signals_mapping(NULL);
    return s;
}

static enum status check_out(const struct train_options *o, struct err *e)
{
    if (!o->out)
        return err_set(e, STATUS_USAGE, "no output is named; expected -o OUT");
    const struct train_paths paths = {o->out, o->log, o->from, o->teacher, &o->texts};
    return train_paths_check(&paths, e);
}

/* --- the run --------------------------------------------------------------------------------- */

static void announce(const struct train_options *o, const struct train_spec *spec,
                     const struct train_plan *p)
{
    const struct config *c = &p->config;
    char variant[16];
    config_variant_name(c, c->n_kv_heads, variant);
    say(&o->common,
        "%s: %d layers, d_model %d, %d heads (%s), d_ff %d, context %d, vocabulary %d: %llu "
        "parameters",
        o->from ? o->from : "new model", c->n_layers, c->d_model, c->n_heads, variant, c->d_ff,
        c->n_ctx, c->n_vocab, (unsigned long long)p->n_params);
    const double tokens = (double)spec->n_steps * spec->batch * spec->length;
    say(&o->common,
        "text: %zu tokens to train on, %zu held out (%zu scored), %.2f bytes a token; %d steps of "
        "%d windows of %d tokens read it %.1f times; seed %llu",
        p->train_tokens, p->val_tokens, p->val_scored, p->bytes_per_token, spec->n_steps,
        spec->batch, spec->length, tokens / (double)p->train_tokens, (unsigned long long)p->seed);
    if (!o->from && o->vocab && c->n_vocab < o->vocab)
        say(&o->common, "the text has pairs that occur twice for only %d of --vocab %d tokens",
            c->n_vocab, o->vocab);
    if (p->widened)
        say(&o->common, "%s is not all F32: it is trained, and written, in F32", o->from);
    if (p->replaced_step > 0)
        say(&o->common,
            "%s.state has an unfinished run at step %d, which the first save replaces (--resume "
            "goes on with it)",
            o->out, p->replaced_step);
    if (p->resumed_step > 0)
        say(&o->common, "going on after step %d", p->resumed_step);
    const size_t all = p->parameter_bytes + p->activation_bytes + p->teacher_bytes;
    if (o->common.verbose || all > LARGE_MEMORY)
        say(&o->common,
            "memory: parameters, gradient and moments %s, activations %s, teacher's %s, tokens %s; "
            "a smaller --batch or --ctx takes less",
            figure_bytes((double)p->parameter_bytes).text,
            figure_bytes((double)p->activation_bytes).text,
            figure_bytes((double)p->teacher_bytes).text, figure_bytes((double)p->token_bytes).text);
}

static void conclude(const struct train_options *o, const struct train_report *r, enum status s)
{
    if (s == STATUS_INTERRUPTED) {
        say(&o->common,
            "interrupted after step %d; the same command with --resume goes on from "
            "%s.state",
            r->step, o->out);
        return;
    }
    char best[128] = "";
    if (isfinite(r->best_loss) && o->keep == KEEP_BEST)
        snprintf(best, sizeof best,
                 "best of step %d, held out %.4f nats a token, %.4f bits a byte; ", r->best_step,
                 r->best_loss, r->best_bits);
    say(&o->common, "%s: %s%d steps in %s, %s tokens/s", o->out, best, r->step - r->first_step,
        figure_duration(r->step_ns).text, figure_rate(train_report_rate(r)).text);
}

static enum status train(const struct train_options *o, struct train_inputs *in,
                         const struct train_spec *spec, struct err *e)
{
    struct trainer *t;
    enum status s = trainer_open(spec, &t, e);
    close_texts(in);
    if (s != STATUS_OK)
        return s;
    announce(o, spec, trainer_plan(t));
    s = train_report_begin(&in->report, trainer_plan(t), e);
    if (s == STATUS_OK)
        s = trainer_run(t, e);
    const bool done = s == STATUS_OK || s == STATUS_INTERRUPTED;
    const enum status reported = train_report_end(&in->report, done ? e : NULL);
    if (done)
        conclude(o, &in->report, s);
    trainer_free(t);
    return done && reported != STATUS_OK ? reported : s;
}

static enum status run(const struct invocation *inv, const void *values, struct err *e)
{
    (void)inv;
    const struct train_options *o = values;
    struct train_inputs in = {.n_texts = 0};
    struct train_spec spec;
    in.report = (struct train_report){.common = &o->common,
                                      .spec = &spec,
                                      .log = o->log,
                                      .terminal = isatty(STDERR_FILENO) && !o->common.quiet};
    signals_defer();
    enum status s = check_out(o, e);
    if (s == STATUS_OK)
        s = read_texts(o, &in, e);
    if (s == STATUS_OK)
        s = make_spec(o, &in, &spec, e);
    if (s == STATUS_OK)
        s = train(o, &in, &spec, e);
    close_texts(&in);
    pool_free(in.pool);
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
        "saves first) and resumed.\n",
    .spec = {groups, positionals},
    .values_size = sizeof(struct train_options),
    .run = run,
};
