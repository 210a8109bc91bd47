/*
 * Compares the gradients of every parameter with central differences of a loss in double
 * (plain_model), for every kind alone and for mixtures; gradients and some steps of training with
 * PyTorch's; and bits for any threads and instruction set.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "kernel_data.h"
#include "model/config_keys.h"
#include "opened.h"
#include "plain_model.h"
#include "train/backprop_pass.h"
#include "train/private.h"

/* A model and a batch. */
struct fixture {
    struct gguf_file file;
    struct config config;
    struct param_list list;
    struct arena arena;
    struct param_view weights, gradient;
    int n_sequences, length;
    int32_t *inputs, *targets;
    double dropout, attn_dropout, smoothing;
    bool only_attention; /* set before it is opened */
};

/* Opens the model of a file with its weights widened to F32. */
static void open_model(struct fixture *f, const char *path)
{
    f->file = read_gguf(path);
    expect_ok(config_read(f->file.g, &f->config, &err));
    expect_ok(param_list_create(&f->list, &f->config, f->file.g,
                                f->only_attention ? PARAMS_ATTENTION_FIRST : PARAMS_OF_FILE, &err));
    for (int pass = 0; pass < 2; pass++) {
        f->weights = param_view_take(&f->arena, &f->list, f->list.n_floats, &f->config);
        f->gradient = param_view_take(&f->arena, &f->list, f->list.n_trained, &f->config);
        if (pass == 0)
            expect_ok(arena_allocate(&f->arena, "test", &err));
    }
    param_list_read(&f->list, f->file.g, f->weights.flat);
}

static void make_windows(struct fixture *f)
{
    const size_t n = (size_t)(f->n_sequences * f->length);
    f->inputs = allocated(n * sizeof *f->inputs);
    f->targets = allocated(n * sizeof *f->targets);
}

static void open_fixture(struct fixture *f, const struct model_case *m, int n_sequences, int length)
{
    const char *path = scratch_path("model.gguf");
    struct config c = config_of_case(m);
    c.n_ctx = length + 2;
    write_config_checkpoint_as(path, &c, m->as | CONFIG_NO_TOKENIZER);
    open_model(f, path);
    f->n_sequences = n_sequences;
    f->length = length;
    make_windows(f);
    struct rng r;
    rng_seed(&r, 7, 0);
    for (int i = 0; i < n_sequences * length; i++) {
        f->inputs[i] = (int32_t)(rng_u32(&r) % (uint32_t)f->config.n_vocab);
        f->targets[i] = (int32_t)(rng_u32(&r) % (uint32_t)f->config.n_vocab);
    }
}

static void close_fixture(struct fixture *f)
{
    arena_free(&f->arena);
    param_list_free(&f->list);
}

static struct backprop_batch batch_of(const struct fixture *f)
{
    return (struct backprop_batch){.inputs = f->inputs,
                                   .targets = f->targets,
                                   .n_sequences = f->n_sequences,
                                   .dropout = {.share = f->dropout, .key = 77},
                                   .attn_dropout = f->attn_dropout,
                                   .label_smoothing = (float)f->smoothing,
                                   .loss = {.text = 1}};
}

static double gradient_by(struct fixture *f, const struct kernels *k, int n_threads)
{
    const struct backprop_spec params = {.config = &f->config,
                                         .list = &f->list,
                                         .n_sequences = f->n_sequences,
                                         .length = f->length,
                                         .dropping = f->dropout > 0,
                                         .kernels = k,
                                         .pool = new_pool(n_threads)};
    struct backprop *b;
    expect_ok(backprop_create(&params, &b, &err));
    expect_ok(backprop_start(b, f->weights.w[ROLE_ROPE_FREQS].weight, &err));
    const struct backprop_batch batch = batch_of(f);
    const double forward = backprop_run(b, &f->weights, &batch, NULL);
    const double loss = backprop_run(b, &f->weights, &batch, &f->gradient);
    ck_assert((forward == loss) == (f->dropout <= 0 && f->attn_dropout <= 0));
    backprop_free(b);
    return loss;
}

static struct plain_model plain_model_of(const struct fixture *f, const double *w)
{
    return (struct plain_model){.config = &f->config,
                                .list = &f->list,
                                .flat = w,
                                .length = f->length,
                                .dropout = {.share = f->dropout, .key = 77},
                                .attn_dropout = {.share = f->attn_dropout, .key = 77}};
}

/* Returns the mean over blocks and rows of 2 - 2 cos(x, y) + (log |x| / |y|)^2, of streams as
 * plain_model has them. */
static double distance_of_streams(const struct fixture *f, const double *x, const double *y)
{
    const int layers = f->config.n_layers, d = f->config.d_model;
    double sum = 0;
    for (int row = 0; row < f->n_sequences * (layers + 1) * f->length; row++, x += d, y += d) {
        double xx = d * (double)f->config.norm_eps, yy = xx, xy = 0;
        for (int i = 0; i < d; i++) {
            xx += x[i] * x[i];
            yy += y[i] * y[i];
            xy += x[i] * y[i];
        }
        if (row / f->length % (layers + 1) > 0) /* not the embeddings */
            sum += 2 - 2 * xy / sqrt(xx * yy) + pow(log(xx / yy) / 2, 2);
    }
    return sum / (f->n_sequences * f->length * layers);
}

/* A teacher's log-probabilities [n_sequences, length, n_vocab] and its streams. */
struct lesson {
    struct loss_weights loss;
    double *logs, *streams;
};

/* Returns the loss of a lesson, without the constant part of KL(teacher || model); without a lesson
 * (NULL) the text's smoothed cross-entropy. */
static double plain_loss(const struct fixture *f, const double *w, const struct lesson *lesson)
{
    const struct loss_weights weights = lesson ? lesson->loss : (struct loss_weights){.text = 1};
    struct plain_model m = plain_model_of(f, w);
    const int n_vocab = f->config.n_vocab, n = f->n_sequences * f->length;
    static double logs[PLAIN_LENGTH * PLAIN_WIDTH], streams[8 * PLAIN_LENGTH * PLAIN_WIDTH];
    double loss = 0;
    if (lesson)
        m.streams = streams;
    for (int row = 0; row < n; row++) {
        const int s = row / f->length, t = row % f->length;
        const double *at = logs + t * n_vocab;
        double mean = 0;
        if (t == 0)
            plain_log_probabilities(&m, s, f->inputs + row, logs);
        for (int i = 0; i < n_vocab; i++)
            mean += at[i] / n_vocab;
        loss -= (double)weights.text *
                ((1 - f->smoothing) * at[f->targets[row]] + f->smoothing * mean) / n;
        for (int i = 0; i < n_vocab && lesson; i++)
            loss -= (double)weights.teacher * exp(lesson->logs[row * n_vocab + i]) * at[i] / n;
    }
    if (lesson)
        loss += (double)weights.streams * distance_of_streams(f, streams, lesson->streams);
    return loss;
}

static double *widen(const struct fixture *f, const float *flat)
{
    double *w = allocated(f->list.n_floats * sizeof *w);
    for (size_t i = 0; i < f->list.n_floats; i++)
        w[i] = (double)flat[i];
    return w;
}

/* Compares every step-th element of every trained tensor's gradient, at least one, with central
 * differences; a fixed tensor has no gradient. */
static void compare(struct fixture *f, const struct lesson *lesson, int step)
{
    double *w = widen(f, f->weights.flat);
    for (int p = 0; p < f->list.n; p++) {
        const struct param *param = &f->list.items[p];
        const int n = param_is_trained(&f->list, param) ? param->spec.rows * param->spec.cols : 0;
        double largest = 1e-3;
        for (int i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)f->gradient.flat[param->offset + (size_t)i]));
        for (int i = n > 0 ? p % (n < step ? n : step) : 0; i < n; i += step) {
            double *at = w + param->offset + i;
            const bool fixed = param->spec.flags & SPEC_FIXED;
            const double kept = *at, h = fixed ? 0 : 1e-7; /* ReLU's bend is seldom so near */
            *at = kept + h;
            const double up = plain_loss(f, w, lesson);
            *at = kept - h;
            const double down = plain_loss(f, w, lesson);
            *at = kept;
            const double expected = fixed ? 0 : (up - down) / (2 * h);
            const double found = (double)f->gradient.flat[param->offset + (size_t)i];
            ck_assert_msg(fabs(found - expected) < 2e-5 * largest + 1e-7,
                          "%s[%d]: gradient %.9g, by differences %.9g", param->spec.name.text, i,
                          found, expected);
        }
    }
}

/* Sizes of one layer that are no whole vectors: 3 heads of 5, and 4 heads of 4 over 2 K/V heads. */
#define ODD  SIZES(1, 3, 0, 5, 19, 0, 11), .d_model = 15
#define EVEN SIZES(2, 4, 2, 4, 21, 0, 18), .d_model = 16

static const struct model_case cases[] = {
    /* gpt2 as MHA, GQA and MQA, in parts of a vector and in whole vectors. */
    {"gpt2", {ODD}, 0},
    {"gpt2", {EVEN}, CONFIG_TIED},
    {"gpt2", {SIZES(1, 4, 1, 0, 32, 0, 16), .d_model = 16}, 0},
    /* Only dimensions of queries, keys and values are a vector and more. */
    {"gpt2", {SIZES(1, 2, 1, 0, 16, 0, 12), .d_model = 34}, CONFIG_TIED},
    /* All heads together are wider, or narrower, than the residual stream. */
    {"gpt2", {SIZES(2, 4, 2, 9, 18, 0, 14), .d_model = 13}, 0},
    {"gpt2", {SIZES(2, 3, 1, 4, 17, 0, 14), .d_model = 35}, CONFIG_TIED},
    /* Each kind alone. */
    {NULL, {ODD, .norm = NORM_RMS}, CONFIG_TIED},
    {NULL, {ODD, .placement = PLACEMENT_AFTER}, CONFIG_TIED},
    {NULL, {ODD, .placement = PLACEMENT_ALONE}, CONFIG_TIED},
    {NULL, {ODD, .placement = PLACEMENT_ALONE, .parts.added_norms = true}, CONFIG_TIED},
    {NULL, {ODD, .position = POSITION_SINUSOIDAL}, CONFIG_TIED},
    {NULL, {EVEN, .position = POSITION_ROPE}, CONFIG_TIED},
    {NULL, {ODD, .position = POSITION_ALIBI}, CONFIG_TIED},
    {NULL, {ODD, .position = POSITION_QUADRATIC}, CONFIG_TIED},
    {NULL, {ODD, .position = POSITION_NONE}, CONFIG_TIED},
    {NULL, {ODD, .ffn = FFN_GELU_ERF}, CONFIG_TIED},
    {NULL, {ODD, .ffn = FFN_RELU}, CONFIG_TIED},
    {NULL, {ODD, .ffn = FFN_SWIGLU}, CONFIG_TIED},
    {NULL, {EVEN, .split_qkv = true}, CONFIG_TIED},
    {NULL, {EVEN, .biases = BIASES_NONE}, CONFIG_TIED},
    {NULL, {ODD, .parts.no_norm_biases = true}, CONFIG_TIED},
    {NULL,
     {EVEN, .placement = PLACEMENT_AFTER, .biases = BIASES_NONE, .parts.no_norm_biases = true},
     0},
    {NULL, {EVEN, .shared = true}, CONFIG_TIED},
    {NULL, {EVEN, .value_dim = 7}, CONFIG_TIED},
    {NULL, {EVEN, .layer_kv_heads = {4, 1}}, CONFIG_TIED},
    {NULL, {EVEN, .layer_kv_heads = {1, 4}, .position = POSITION_QUADRATIC}, CONFIG_TIED},
    {NULL, {EVEN, .layer_kv_heads = {2, 1}, .split_qkv = true}, CONFIG_TIED},
    {NULL, {ODD, .embedding_scale = 3.5f}, 0},
    {NULL, {ODD, .score_scale = 1.25f}, CONFIG_TIED},
    {NULL, {ODD, .score = SCORE_ADDITIVE}, CONFIG_TIED},
    {NULL,
     {SIZES(2, 4, 2, 18, 9, 0, 14), .value_dim = 5, .d_model = 13, .score = SCORE_ADDITIVE,
      .position = POSITION_ALIBI, .shared = true, .split_qkv = true},
     CONFIG_TIED},
    /* Heads have another size than d_model / n_heads, and values another size than keys. */
    {NULL, {SIZES(1, 3, 1, 6, 19, 0, 11), .value_dim = 4, .d_model = 14}, CONFIG_TIED},
    {"llama", {SIZES(2, 4, 2, 6, 21, 0, 18), .d_model = 16}, 0},
    {NULL,
     {SIZES(2, 3, 0, 2, 17, 0, 12), .value_dim = 18, .d_model = 10, .norm = NORM_RMS,
      .position = POSITION_ROPE, .ffn = FFN_SWIGLU, .split_qkv = true, .norm_eps = 0.1f},
     CONFIG_TIED},
    {NULL, {ODD, .ffn = FFN_GEGLU}, CONFIG_TIED},
    {NULL, {ODD, .placement = PLACEMENT_PARALLEL}, CONFIG_TIED},
    {NULL, {ODD, .placement = PLACEMENT_PARALLEL, .parts.one_norm = true}, CONFIG_TIED},
    {NULL, {ODD, .layer_window = {3, 0}}, CONFIG_TIED},
    {NULL, {ODD, .layer_window = {1, 33}}, CONFIG_TIED},
    {NULL, {ODD, .parts.embedding_norm = true}, CONFIG_TIED},
    {NULL, {ODD, .parts.added_norms = true}, CONFIG_TIED},
    {NULL, {ODD, .parts.qk_norms = true}, CONFIG_TIED},
    {NULL, {ODD, .parts.no_norm_weights = true}, CONFIG_TIED},
    {NULL, {ODD, .parts.output_bias = true}, 0},
    {NULL, {EVEN, .parts.rope_halves = true, .position = POSITION_ROPE}, CONFIG_TIED},
    {"gptneox", {SIZES(2, 2, 2, 8, 21, 0, 18), .d_model = 16, .rope.n_dims = 6}, 0},
    {"phi2", {EVEN}, 0},
    {"qwen3", {SIZES(2, 4, 2, 6, 21, 0, 18), .d_model = 16}, CONFIG_TIED},
    {"gemma3",
     {SIZES(2, 3, 1, 8, 17, 0, 12), .d_model = 13, .layer_window = {4, 0},
      .rope = {.n_dims = 8, .base = 900, .scale = 0.5, .window_base = 30}},
     CONFIG_TIED},
    /* Mixtures. */
    {NULL,
     {SIZES(3, 4, 0, 6, 19, 0, 13), .layer_kv_heads = {2, 1, 4}, .value_dim = 5, .d_model = 12,
      .position = POSITION_ROPE, .placement = PLACEMENT_PARALLEL, .ffn = FFN_GEGLU,
      .layer_window = {0, 35, 7}, .rope = {.n_dims = 4, .base = 300, .scale = 1},
      .parts = {.embedding_norm = true,
                .qk_norms = true,
                .added_norms = true,
                .rope_halves = true,
                .output_bias = true}},
     CONFIG_TIED},
    {"llama", {EVEN}, CONFIG_TIED | CONFIG_ROPE_FACTORS},
    {"llama", {EVEN, .rope = {.n_dims = 2, .base = 70, .scale = 0.3}}, 0},
    {"transformer", {EVEN}, CONFIG_TIED},
    {NULL,
     {SIZES(3, 2, 0, 17, 16, 0, 12), .value_dim = 3, .d_model = 10, .norm = NORM_RMS,
      .placement = PLACEMENT_AFTER, .position = POSITION_QUADRATIC, .ffn = FFN_SWIGLU,
      .shared = true, .split_qkv = true},
     CONFIG_TIED},
    {NULL,
     {SIZES(2, 6, 0, 3, 9, 0, 20), .layer_kv_heads = {2, 3}, .value_dim = 5, .d_model = 14,
      .placement = PLACEMENT_AFTER, .position = POSITION_ALIBI, .ffn = FFN_GELU_ERF,
      .biases = BIASES_NONE, .split_qkv = true, .embedding_scale = 2},
     0},
    {NULL,
     {SIZES(3, 2, 1, 18, 15, 0, 13), .d_model = 12, .norm = NORM_RMS, .position = POSITION_ROPE,
      .ffn = FFN_SWIGLU, .shared = true, .biases = BIASES_NONE},
     CONFIG_ROPE_FACTORS},
};
#define N_CASES     ((int)COUNT(cases))
#define FIRST_MIXED (N_CASES - 7)

/* How the gradient of a case is compared, and which case is the first, also under sanitizers. */
static const struct {
    int first, first_sanitized, length, n_threads, step;
    double dropout, attn_dropout, smoothing;
} settings[] = {
    {0, N_CASES, 6, 1, 59, 0, 0, 0},
    {0, N_CASES, 7, 2, 79, 0.3, 0.2, 0},
    {FIRST_MIXED, N_CASES, 6, 1, 37, 0, 0, 0.3},
    /* Windows and masks are longer than a block of queries. */
    {0, N_CASES - 3, 43, 1, 701, 0, 0, 0},
    {FIRST_MIXED, N_CASES - 2, 37, 2, 701, 0, 0.4, 0},
};

TEST(gradient_is_that_of_differences, .loops = N_CASES * (int)COUNT(settings), .seconds = 400)
{
    const int i = _i % N_CASES, s = _i / N_CASES;
    struct fixture f = {.dropout = settings[s].dropout,
                        .attn_dropout = settings[s].attn_dropout,
                        .smoothing = settings[s].smoothing};
    if (THREAD_SANITIZED || i < (SANITIZED ? settings[s].first_sanitized : settings[s].first))
        return;
    open_fixture(&f, &cases[i], 2, settings[s].length);
    const double loss = gradient_by(&f, fastest_kernels(), settings[s].n_threads);
    if (f.dropout <= 0 && f.attn_dropout <= 0 && f.smoothing <= 0)
        ck_assert_double_eq_tol(loss, plain_loss(&f, widen(&f, f.weights.flat), NULL), 1e-5);
    /* Sanitizers look for other mistakes than a derivative's. */
    compare(&f, NULL, SANITIZED ? 3 * settings[s].step : settings[s].step);
    close_fixture(&f);
}

/* A batch passes in halves and parts, the last of which is smaller. */
TEST(gradient_is_the_mean_over_windows, .first = SANITIZED ? N_CASES - 2 : 0, .loops = N_CASES)
{
    struct fixture f = {.length = 0};
    open_fixture(&f, &cases[_i], 13, 41);
    const size_t n = f.list.n_floats;
    int32_t *inputs = f.inputs, *targets = f.targets;
    double *mean = allocated_zeros(n * sizeof *mean), largest = 0, loss = 0;
    for (f.n_sequences = 1; f.inputs < inputs + 13 * 41; f.inputs += 41, f.targets += 41) {
        loss += gradient_by(&f, fastest_kernels(), 1) / 13;
        for (size_t i = 0; i < n; i++)
            mean[i] += (double)f.gradient.flat[i] / 13;
    }
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(mean[i]));
    f.n_sequences = 13;
    f.inputs = inputs, f.targets = targets;
    ck_assert_double_eq_tol(gradient_by(&f, fastest_kernels(), 2), loss, 1e-6);
    for (size_t i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)f.gradient.flat[i], mean[i], 1e-5 * largest);
    close_fixture(&f);
}

TEST(dropout_keeps_its_share, .tags = ONE_THREAD)
{
    const struct dropout dropout = {.share = 0.25, .key = 1};
    double sum = 0;
    int kept = 0;
    for (int row = 0; row < 100; row++)
        for (int i = 0; i < 101; i++) {
            const float factor = dropout_factor(&dropout, row % 5, (uint64_t)(row * 101 + i));
            kept += factor > 0;
            sum += (double)factor;
        }
    /* The bound is four standard deviations of 10100 draws. */
    ck_assert_int_lt(abs(kept - 7575), 175);
    ck_assert_double_eq_tol(sum, kept / 0.75, 1e-2);
}

/* Copies a teacher's weights over the model's. */
#define OTHER_WEIGHTS 1.5f

/* Losses that have a teacher, and the case of each. */
static const struct {
    struct loss_weights loss;
    int model;
    bool only_attention;
} lessons[] = {
    {{.text = 0.25f, .teacher = 0.75f}, 0, false},
    {{.teacher = 1}, 6, false},
    {{.text = 0.5f, .teacher = 0.5f, .streams = 2}, 6, false},
    {{.streams = 3}, FIRST_MIXED, false},
    {{.text = 0.5f, .teacher = 0.5f, .streams = 2}, 1, true},
    {{.teacher = 1, .streams = 2}, FIRST_MIXED + 1, true},
};

/* Tests the gradient of a lesson's loss. The teacher is the same model with other weights. */
static void taught_gradient(struct fixture *f, struct loss_weights loss, const struct kernels *k)
{
    struct arena arena = {0};
    struct param_list list;
    expect_ok(param_list_create(&list, &f->config, f->file.g, PARAMS_PANELS, &err));
    param_view_take(&arena, &list, list.n_floats, &f->config);
    expect_ok(arena_allocate(&arena, "test", &err));
    const struct param_view other = param_view_take(&arena, &list, list.n_floats, &f->config);
    param_list_read(&list, f->file.g, other.flat);
    for (size_t i = 0; i < list.n_floats; i++)
        other.flat[i] *= OTHER_WEIGHTS;
    struct backprop_spec params = {.config = &f->config,
                                   .list = &f->list,
                                   .n_sequences = f->n_sequences,
                                   .length = f->length,
                                   .taught = true,
                                   .kernels = k};
    struct backprop *both[2];
    for (int i = 0; i < 2; i++) {
        params.forward_only = params.keeps_streams = i == 1;
        expect_ok(backprop_create(&params, &both[i], &err));
        const struct param_view *view = i == 1 ? &other : &f->weights;
        expect_ok(backprop_start(both[i], view->w[ROLE_ROPE_FREQS].weight, &err));
    }
    struct backprop_batch batch = batch_of(f);
    batch.teacher = both[1];
    batch.teacher_weights = &other;
    batch.loss = loss;
    backprop_run(both[0], &f->weights, &batch, &f->gradient);
    backprop_free(both[0]), backprop_free(both[1]);
    param_list_free(&list);
    arena_free(&arena);
}

/* Sanitizers look for other mistakes than a derivative's. */
TEST(teacher_gradient, .first = SANITIZED ? 4 : 0, .loops = (int)COUNT(lessons), .tags = ONE_THREAD)
{
    struct fixture f = {.smoothing = 0.1, .only_attention = lessons[_i].only_attention};
    struct lesson lesson = {.loss = lessons[_i].loss};
    open_fixture(&f, &cases[lessons[_i].model], 2, 7);
    taught_gradient(&f, lesson.loss, fastest_kernels());
    double *w = widen(&f, f.weights.flat);
    for (size_t i = 0; i < f.list.n_floats; i++)
        w[i] *= (double)OTHER_WEIGHTS;
    const struct config *c = &f.config;
    lesson.logs = allocated((size_t)(2 * 7 * c->n_vocab) * sizeof *lesson.logs);
    lesson.streams =
        allocated((size_t)(2 * 7 * (c->n_layers + 1) * c->d_model) * sizeof *lesson.streams);
    struct plain_model m = plain_model_of(&f, w);
    m.streams = lesson.streams;
    for (int s = 0; s < 2; s++)
        plain_log_probabilities(&m, s, f.inputs + s * 7, lesson.logs + s * 7 * c->n_vocab);
    compare(&f, &lesson, 3);
    close_fixture(&f);
}

static const char *const golden_names[] = {"mha",          "gqa",      "mqa-f16",   "llama",
                                           "transformer",  "alibi",    "quadratic", "shared-block",
                                           "layerwise-kv", "additive", "gptneox",   "bloom",
                                           "olmo",         "gemma3",   "local",     "alone"};
#define N_GOLDEN ((int)COUNT(golden_names))

/* As in tests/train/reference_train.py. */
static const struct train_spec golden_steps = {
    .n_steps = 5, .warmup = 2, .lr = 0.004, .weight_decay = 0.1, .clip = 1, .label_smoothing = 0.1};

static double next_number(FILE *in)
{
    double x;
    ck_assert_int_eq(fscanf(in, "%lf", &x), 1);
    return x;
}

static void expect_near(double found, double expected, double tolerance, const char *what)
{
    ck_assert_msg(fabs(found - expected) < tolerance, "%s: %g, expected %g", what, found, expected);
}

/* The norm of one tensor's gradient and its dot products with two fixed vectors. */
static void compare_tensor(const struct fixture *f, FILE *in, const char *name)
{
    const struct param *p = f->list.items;
    while (strcmp(p->spec.name.text, name) != 0)
        ck_assert_msg(++p < f->list.items + f->list.n, "%s", name);
    double squares = 0, dots[2] = {0, 0};
    for (int i = 0; i < p->spec.rows * p->spec.cols; i++) {
        const double g = (double)f->gradient.flat[p->offset + (size_t)i];
        squares += g * g;
        dots[0] += cos(i) * g;
        dots[1] += cos(0.3 * i + 1) * g;
    }
    const double norm = next_number(in);
    expect_near(sqrt(squares), norm, 1e-5 * norm, name);
    expect_near(dots[0], next_number(in), 3e-5 * norm, name);
    expect_near(dots[1], next_number(in), 3e-5 * norm, name);
}

/* Expects these losses before each step, from the fixture's weights on. */
static void compare_steps(struct fixture *f, const struct kernels *k, FILE *in)
{
    struct trainer t = {
        .spec = golden_steps, .config = f->config, .list = f->list, .grad = k->grad};
    struct train_event made;
    trainer_take(&t);
    expect_ok(arena_allocate(&t.arena, "test", &err));
    trainer_take(&t);
    memcpy(t.weights.flat, f->weights.flat, f->list.n_floats * sizeof(float));
    const struct param_view weights = f->weights, gradient = f->gradient;
    f->weights = t.weights;
    f->gradient = t.gradient;
    f->smoothing = golden_steps.label_smoothing;
    for (int step = 0; step < golden_steps.n_steps; step++) {
        const double loss = gradient_by(f, k, 1);
        expect_near(loss, next_number(in), 2e-5, "a step's loss");
        expect_ok(trainer_update(&t, &made, &err));
    }
    f->weights = weights;
    f->gradient = gradient;
    arena_free(&t.arena);
}

/* Opens a golden model and its batch, of tests/data/train/NAME`suffix`.txt, whose rest the caller
 * reads. */
static FILE *open_golden(struct fixture *f, const char *name, const char *suffix)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.gguf", name);
    open_model(f, path);
    snprintf(path, sizeof path, "tests/data/train/%s%s.txt", name, suffix);
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    f->n_sequences = (int)next_number(in);
    f->length = (int)next_number(in);
    make_windows(f);
    for (int s = 0; s < f->n_sequences; s++)
        for (int t = 0, token = (int)next_number(in); t < f->length; t++) {
            f->inputs[s * f->length + t] = token;
            token = (int)next_number(in);
            f->targets[s * f->length + t] = token;
        }
    return in;
}

static void compare_gradient(const struct fixture *f, FILE *in)
{
    char name[64];
    const int n = (int)next_number(in);
    ck_assert_int_eq(n, f->list.n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(fscanf(in, "%63s", name), 1);
        compare_tensor(f, in, name);
    }
}

TEST(gradient_and_steps_are_those_of_pytorch, .loops = N_GOLDEN, .seconds = 400)
{
    struct fixture f = {.length = 0};
    FILE *in = open_golden(&f, golden_names[_i], "");
    const struct kernels *fastest = fastest_kernels();
    const double loss = gradient_by(&f, fastest, 2);
    ck_assert_double_eq_tol(loss, next_number(in), 1e-5);
    compare_gradient(&f, in);
    compare_steps(&f, fastest, in);
    fclose(in);
    close_fixture(&f);
}

TEST(taught_gradient_is_that_of_pytorch, .loops = 3)
{
    static const char *const names[] = {"gqa", "llama", "layerwise-kv"};
    struct fixture f = {.length = 0};
    FILE *in = open_golden(&f, names[_i], "-taught");
    next_number(in); /* the loss of the text */
    taught_gradient(&f, (struct loss_weights){.text = 0.25f, .teacher = 0.75f, .streams = 2},
                    fastest_kernels());
    compare_gradient(&f, in);
    fclose(in);
    close_fixture(&f);
}

/* Feed-forward layers and vocabularies have many lengths, so that each kernel meets all remainders
 * of a vector. The batch passes in halves and parts. */
TEST(same_bits_everywhere, .first = SANITIZED ? N_CASES - 2 : 0, .loops = N_CASES, .seconds = 400)
{
    struct fixture f = {.attn_dropout = _i % 2 ? 0.2 : 0, .smoothing = _i % 2 ? 0.1 : 0};
    struct model_case larger = cases[_i];
    larger.c.d_ff += 30 + _i;
    larger.c.n_vocab += 50 + _i;
    open_fixture(&f, &larger, 13, 41);
    const double loss = gradient_by(&f, &kernels_scalar, 1);
    const size_t bytes = f.list.n_floats * sizeof(float);
    float *kept = allocated(bytes);
    memcpy(kept, f.gradient.flat, bytes);
    const struct kernels *k = THREAD_SANITIZED ? NULL : &kernels_scalar; /* after which is next */
    for (int n_threads = SANITIZED ? 3 : 1 + _i % 3; (k = next_kernels(k));
         n_threads = n_threads % 3 + 1) {
        ck_assert(gradient_by(&f, k, n_threads) == loss);
        ck_assert_msg(memcmp(kept, f.gradient.flat, bytes) == 0, "%s, %d threads", k->name,
                      n_threads);
    }
    close_fixture(&f);
}
