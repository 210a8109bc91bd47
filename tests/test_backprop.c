/*
 * Gradients: every parameter's against central differences of a loss in double that is written
 * here once more and plainly; bits across threads and instruction sets.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "checkpoints.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/params.h"
#include "support.h"
#include "train/backprop.h"

/* --- a model and a batch --------------------------------------------------------------------- */

struct fixture {
    struct file_map file;
    struct gguf *gguf;
    struct config config;
    struct param_list list;
    struct arena arena;
    struct param_view weights, gradient;
    int n_sequences, length;
    int32_t *inputs, *targets;
    double dropout;
    int window; /* that the loss in double is at */
};

/* The model of a file, its weights widened to F32. */
static void open_model(struct fixture *f, const char *path)
{
    struct err e = {""};
    ck_assert_int_eq(file_map_open(&f->file, path, &e), STATUS_OK);
    ck_assert_int_eq(gguf_parse(f->file.data, f->file.len, &f->gguf, &e), STATUS_OK);
    ck_assert_int_eq(config_read(f->gguf, &f->config, &e), STATUS_OK);
    const enum status s = param_list_create(&f->list, &f->config, f->gguf, &e);
    ck_assert_msg(s == STATUS_OK, "%s", e.text);
    for (int pass = 0; pass < 2; pass++) {
        f->weights = param_view_take(&f->arena, &f->list, &f->config);
        f->gradient = param_view_take(&f->arena, &f->list, &f->config);
        if (pass == 0)
            ck_assert_int_eq(arena_allocate(&f->arena, "test", &e), STATUS_OK);
    }
    param_list_read(&f->list, f->gguf, f->weights.flat);
}

static void open_fixture(struct fixture *f, const struct checkpoint_shape *shape, int n_sequences,
                         int length)
{
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, shape);
    open_model(f, path);
    const int n = n_sequences * length;
    f->n_sequences = n_sequences;
    f->length = length;
    f->inputs = malloc((size_t)n * sizeof *f->inputs);
    f->targets = malloc((size_t)n * sizeof *f->targets);
    struct rng r;
    rng_seed(&r, 7, 0);
    for (int i = 0; i < n; i++) {
        f->inputs[i] = (int32_t)(rng_u32(&r) % (uint32_t)f->config.n_vocab);
        f->targets[i] = (int32_t)(rng_u32(&r) % (uint32_t)f->config.n_vocab);
    }
}

static void close_fixture(struct fixture *f)
{
    free(f->inputs);
    free(f->targets);
    arena_free(&f->arena);
    param_list_free(&f->list);
    gguf_free(f->gguf);
    file_map_close(&f->file);
    scratch_remove();
}

static struct backprop_batch batch_of(const struct fixture *f)
{
    return (struct backprop_batch){.inputs = f->inputs,
                                   .targets = f->targets,
                                   .n_sequences = f->n_sequences,
                                   .dropout = {.share = f->dropout, .key = 77}};
}

static double gradient_by(struct fixture *f, const struct kernels *k, int n_threads)
{
    struct err e = {""};
    struct pool *pool;
    ck_assert_int_eq(pool_create(n_threads, &pool, &e), STATUS_OK);
    const struct backprop_params params = {.config = &f->config,
                                           .n_sequences = f->n_sequences,
                                           .length = f->length,
                                           .dropping = f->dropout > 0,
                                           .kernels = k};
    struct backprop *b;
    const enum status s = backprop_create(&params, pool, &b, &e);
    ck_assert_msg(s == STATUS_OK, "%s", e.text);
    const struct backprop_batch batch = batch_of(f);
    const double forward = backprop_loss(b, &f->weights, &batch);
    const double loss = backprop_gradient(b, &f->weights, &batch, NULL, &f->gradient);
    ck_assert((forward == loss) == (f->dropout <= 0));
    backprop_free(b);
    pool_free(pool);
    return loss;
}

/* --- the loss in double ---------------------------------------------------------------------- */

/* Offsets of the tensors by name; a missing one reads as NULL. */
static const double *tensor(const struct fixture *f, const double *flat, const char *name)
{
    for (int i = 0; i < f->list.n; i++)
        if (strcmp(f->list.items[i].spec.name.text, name) == 0)
            return flat + f->list.items[i].offset;
    return NULL;
}

static const double *in_layer(const struct fixture *f, const double *flat, int l, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", l, part);
    return tensor(f, flat, name);
}

static void norm(const double *gain, const double *bias, const double *x, int n, double eps,
                 double *out)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(variance + eps) * gain[i] + (bias ? bias[i] : 0);
}

static void affine(const double *w, const double *bias, const double *x, int n_out, int n_in,
                   double *out)
{
    for (int r = 0; r < n_out; r++) {
        out[r] = bias ? bias[r] : 0;
        for (int i = 0; i < n_in; i++)
            out[r] += w[r * n_in + i] * x[i];
    }
}

#define MAX_LEN   64
#define MAX_WIDTH 128

/* One head of one token; qkv has the rows of all tokens up to t. */
static void attend(const struct config *c, double qkv[][MAX_WIDTH], int t, int h, double *out)
{
    const int dim = c->head_dim, g = h / (c->n_heads / c->n_kv_heads);
    double p[MAX_LEN], max = -1e300, sum = 0;
    for (int s = 0; s <= t; s++) {
        p[s] = 0;
        for (int i = 0; i < dim; i++)
            p[s] += qkv[t][h * dim + i] * qkv[s][config_q_dim(c) + g * dim + i] / sqrt(dim);
        max = p[s] > max ? p[s] : max;
    }
    for (int s = 0; s <= t; s++)
        sum += p[s] = exp(p[s] - max);
    for (int i = 0; i < dim; i++) {
        out[i] = 0;
        for (int s = 0; s <= t; s++)
            out[i] += p[s] / sum * qkv[s][config_q_dim(c) + (c->n_kv_heads + g) * dim + i];
    }
}

/* x += y of token t without what dropout leaves out. */
static void add(const struct fixture *f, int site, int t, const double *y, double *x)
{
    const struct backprop_batch batch = batch_of(f);
    const int d = f->config.d_model, row = f->window * f->length + t;
    for (int i = 0; i < d; i++)
        x[i] += y[i] * (double)dropout_factor(&batch.dropout, site, (uint64_t)(row * d + i));
}

static void layer(const struct fixture *f, const double *w, int l, double x[][MAX_WIDTH])
{
    const struct config *c = &f->config;
    static double qkv[MAX_LEN][MAX_WIDTH];
    double normed[MAX_WIDTH], out[MAX_WIDTH], hidden[MAX_WIDTH];
    const double eps = (double)c->norm_eps;
    for (int t = 0; t < f->length; t++) {
        norm(in_layer(f, w, l, "attn_norm.weight"), in_layer(f, w, l, "attn_norm.bias"), x[t],
             c->d_model, eps, normed);
        affine(in_layer(f, w, l, "attn_qkv.weight"), in_layer(f, w, l, "attn_qkv.bias"), normed,
               config_qkv_dim(c, l), c->d_model, qkv[t]);
    }
    for (int t = 0; t < f->length; t++) {
        for (int h = 0; h < c->n_heads; h++)
            attend(c, qkv, t, h, normed + h * c->head_dim);
        affine(in_layer(f, w, l, "attn_output.weight"), in_layer(f, w, l, "attn_output.bias"),
               normed, c->d_model, config_q_dim(c), out);
        add(f, 2 * l + 1, t, out, x[t]);
        norm(in_layer(f, w, l, "ffn_norm.weight"), in_layer(f, w, l, "ffn_norm.bias"), x[t],
             c->d_model, eps, normed);
        affine(in_layer(f, w, l, "ffn_up.weight"), in_layer(f, w, l, "ffn_up.bias"), normed,
               c->d_ff, c->d_model, hidden);
        for (int i = 0; i < c->d_ff; i++)
            hidden[i] *=
                0.5 * (1 + tanh(sqrt(2 / acos(-1)) *
                                (hidden[i] + 0.044715 * hidden[i] * hidden[i] * hidden[i])));
        affine(in_layer(f, w, l, "ffn_down.weight"), in_layer(f, w, l, "ffn_down.bias"), hidden,
               c->d_model, c->d_ff, out);
        add(f, 2 * l + 2, t, out, x[t]);
    }
}

/* log softmax of each position's logits, [length][n_vocab]. */
static void log_probabilities(const struct fixture *f, const double *w, const int32_t *inputs,
                              double *out)
{
    const struct config *c = &f->config;
    const double *embed = tensor(f, w, "token_embd.weight");
    const double *position = tensor(f, w, "position_embd.weight");
    const double *output = tensor(f, w, "output.weight");
    static double x[MAX_LEN][MAX_WIDTH];
    for (int t = 0; t < f->length; t++) {
        double sum[MAX_WIDTH];
        for (int i = 0; i < c->d_model; i++) {
            sum[i] = embed[inputs[t] * c->d_model + i] + position[t * c->d_model + i];
            x[t][i] = 0;
        }
        add(f, 0, t, sum, x[t]);
    }
    for (int l = 0; l < c->n_layers; l++)
        layer(f, w, l, x);
    for (int t = 0; t < f->length; t++) {
        double normed[MAX_WIDTH], max = -1e300, sum = 0;
        double *logits = out + t * c->n_vocab;
        norm(tensor(f, w, "output_norm.weight"), tensor(f, w, "output_norm.bias"), x[t], c->d_model,
             (double)c->norm_eps, normed);
        affine(output ? output : embed, NULL, normed, c->n_vocab, c->d_model, logits);
        for (int i = 0; i < c->n_vocab; i++)
            max = logits[i] > max ? logits[i] : max;
        for (int i = 0; i < c->n_vocab; i++)
            sum += exp(logits[i] - max);
        for (int i = 0; i < c->n_vocab; i++)
            logits[i] -= max + log(sum);
    }
}

/* (1 - share) * cross-entropy + share * KL(teacher || model), whose constant part is left out.
 * taught: log-probabilities [n_sequences, length, n_vocab], or NULL. */
static double plain_loss(struct fixture *f, const double *w, const double *taught, double share)
{
    const int n_vocab = f->config.n_vocab, n = f->n_sequences * f->length;
    double *logs = malloc((size_t)(f->length * n_vocab) * sizeof *logs);
    double loss = 0;
    for (int s = 0; s < f->n_sequences; s++) {
        f->window = s;
        log_probabilities(f, w, f->inputs + s * f->length, logs);
        for (int t = 0; t < f->length; t++) {
            const int row = s * f->length + t;
            loss -= (1 - share) * logs[t * n_vocab + f->targets[row]] / n;
            for (int i = 0; i < n_vocab && taught; i++)
                loss -= share * exp(taught[row * n_vocab + i]) * logs[t * n_vocab + i] / n;
        }
    }
    free(logs);
    return loss;
}

static double *widen(const struct fixture *f, const float *flat)
{
    double *w = malloc(f->list.n_floats * sizeof *w);
    for (size_t i = 0; i < f->list.n_floats; i++)
        w[i] = (double)flat[i];
    return w;
}

/* Compares every step-th element of every tensor's gradient with central differences. */
static void compare(struct fixture *f, const double *taught, double share, int step)
{
    double *w = widen(f, f->weights.flat);
    for (int p = 0; p < f->list.n; p++) {
        const struct param *param = &f->list.items[p];
        const int n = param->spec.rows * param->spec.cols;
        double largest = 1e-3;
        for (int i = 0; i < n; i++) {
            const double g = fabs((double)f->gradient.flat[param->offset + (size_t)i]);
            largest = g > largest ? g : largest;
        }
        for (int i = p % step; i < n; i += step) {
            double *at = w + param->offset + i;
            const double kept = *at, h = 1e-4;
            *at = kept + h;
            const double up = plain_loss(f, w, taught, share);
            *at = kept - h;
            const double down = plain_loss(f, w, taught, share);
            *at = kept;
            const double expected = (up - down) / (2 * h);
            const double found = (double)f->gradient.flat[param->offset + (size_t)i];
            ck_assert_msg(fabs(found - expected) < 2e-5 * largest + 1e-7,
                          "%s[%d]: gradient %.9g, by differences %.9g", param->spec.name.text, i,
                          found, expected);
        }
    }
    free(w);
}

/* --- gradients ------------------------------------------------------------------------------- */

static const struct checkpoint_shape shapes[] = {
    /* MHA, GQA and MQA; sizes that leave part of a vector, and whole vectors. */
    {.n_layers = 2,
     .n_heads = 3,
     .n_kv_heads = 3,
     .head_dim = 5,
     .d_ff = 19,
     .n_ctx = 9,
     .n_vocab = 11,
     .no_tokenizer = 1,
     .seed = 1},
    {.n_layers = 2,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 4,
     .d_ff = 21,
     .n_ctx = 7,
     .n_vocab = 18,
     .tied = 1,
     .no_tokenizer = 1,
     .seed = 2},
    {.n_layers = 1,
     .n_heads = 4,
     .n_kv_heads = 1,
     .head_dim = 4,
     .d_ff = 32,
     .n_ctx = 8,
     .n_vocab = 16,
     .no_biases = 1,
     .no_tokenizer = 1,
     .seed = 3},
    /* Only the query, key and value dimensions of a vector and more. */
    {.n_layers = 1,
     .n_heads = 2,
     .n_kv_heads = 1,
     .head_dim = 17,
     .d_ff = 16,
     .n_ctx = 8,
     .n_vocab = 12,
     .tied = 1,
     .no_tokenizer = 1,
     .seed = 4},
    /* All heads together wider, and narrower, than the residual stream. */
    {.n_layers = 2,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 9,
     .d_model = 13,
     .d_ff = 18,
     .n_ctx = 8,
     .n_vocab = 14,
     .no_tokenizer = 1,
     .seed = 5},
    {.n_layers = 2,
     .n_heads = 3,
     .n_kv_heads = 1,
     .head_dim = 4,
     .d_model = 35,
     .d_ff = 17,
     .n_ctx = 8,
     .n_vocab = 14,
     .tied = 1,
     .no_tokenizer = 1,
     .seed = 6},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

START_TEST(gradient_is_that_of_differences)
{
    struct fixture f = {.length = 0};
    open_fixture(&f, &shapes[_i], 2, 6);
    const double loss = gradient_by(&f, &kernels_scalar, 1);
    double *w = widen(&f, f.weights.flat);
    ck_assert_double_eq_tol(loss, plain_loss(&f, w, NULL, 0), 1e-5);
    free(w);
    compare(&f, NULL, 0, 1);
    close_fixture(&f);
}
END_TEST

/* Windows longer than a block of queries. */
START_TEST(long_windows)
{
    struct checkpoint_shape shape = shapes[_i];
    shape.n_ctx = 50;
    struct fixture f = {.length = 0};
    open_fixture(&f, &shape, 2, 43);
    gradient_by(&f, &kernels_scalar, 1);
    compare(&f, NULL, 0, 29);
    close_fixture(&f);
}
END_TEST

START_TEST(gradient_with_dropout)
{
    struct fixture f = {.dropout = 0.3};
    open_fixture(&f, &shapes[_i], 2, 7);
    gradient_by(&f, &kernels_scalar, 2);
    compare(&f, NULL, 0, 2);
    close_fixture(&f);
}
END_TEST

START_TEST(dropout_keeps_its_share)
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
    /* Four standard deviations of 10100 draws. */
    ck_assert_int_lt(abs(kept - 7575), 175);
    ck_assert_double_eq_tol(sum, kept / 0.75, 1e-2);
}
END_TEST

START_TEST(teacher_gradient)
{
    struct fixture f = {.length = 0};
    open_fixture(&f, &shapes[0], 2, 7);
    /* The teacher is another model of the same vocabulary: the same one, its norms changed. */
    struct err e = {""};
    struct arena arena = {0};
    param_view_take(&arena, &f.list, &f.config);
    ck_assert_int_eq(arena_allocate(&arena, "test", &e), STATUS_OK);
    struct param_view other = param_view_take(&arena, &f.list, &f.config);
    for (size_t i = 0; i < f.list.n_floats; i++)
        other.flat[i] = 1.5f * f.weights.flat[i];

    struct backprop_params params = {.config = &f.config,
                                     .n_sequences = 2,
                                     .length = 7,
                                     .taught = true,
                                     .kernels = &kernels_scalar};
    struct backprop *b, *engine;
    ck_assert_int_eq(backprop_create(&params, NULL, &b, &e), STATUS_OK);
    params.forward_only = true;
    ck_assert_int_eq(backprop_create(&params, NULL, &engine, &e), STATUS_OK);
    const struct backprop_teacher teacher = {engine, &other, 0.75f};
    const struct backprop_batch batch = batch_of(&f);
    backprop_gradient(b, &f.weights, &batch, &teacher, &f.gradient);

    double *w = widen(&f, other.flat);
    const int n_vocab = f.config.n_vocab;
    double *taught = malloc((size_t)(2 * 7 * n_vocab) * sizeof *taught);
    for (int s = 0; s < 2; s++)
        log_probabilities(&f, w, f.inputs + s * 7, taught + s * 7 * n_vocab);
    compare(&f, taught, 0.75, 3);
    free(taught);
    free(w);
    backprop_free(b);
    backprop_free(engine);
    arena_free(&arena);
    close_fixture(&f);
}
END_TEST

/* --- another implementation ------------------------------------------------------------------- */

static const char *const golden_names[] = {"mha", "gqa", "mqa", "mqa-f16"};

static int next_int(FILE *in)
{
    int x;
    ck_assert_int_eq(fscanf(in, "%d", &x), 1);
    return x;
}

static double next_double(FILE *in)
{
    double x;
    ck_assert_int_eq(fscanf(in, "%lf", &x), 1);
    return x;
}

/* The norm of one tensor's gradient and its dot products with two fixed vectors. */
static void compare_tensor(const struct fixture *f, FILE *in, const char *name)
{
    const struct param *p = NULL;
    for (int i = 0; i < f->list.n; i++)
        if (strcmp(f->list.items[i].spec.name.text, name) == 0)
            p = &f->list.items[i];
    ck_assert_msg(p != NULL, "%s", name);
    double found[3] = {0, 0, 0};
    for (int i = 0; i < p->spec.rows * p->spec.cols; i++) {
        const double g = (double)f->gradient.flat[p->offset + (size_t)i];
        found[0] += g * g;
        found[1] += cos(i) * g;
        found[2] += cos(0.3 * i + 1) * g;
    }
    found[0] = sqrt(found[0]);
    const double norm = next_double(in);
    ck_assert_msg(fabs(found[0] - norm) < 1e-5 * norm, "%s: norm %g, expected %g", name, found[0],
                  norm);
    for (int i = 1; i < 3; i++) {
        const double expected = next_double(in);
        ck_assert_msg(fabs(found[i] - expected) < 3e-5 * norm, "%s: dot %d is %g, expected %g",
                      name, i, found[i], expected);
    }
}

START_TEST(gradient_is_that_of_numpy)
{
    char path[128], name[64];
    snprintf(path, sizeof path, "tests/data/golden/%s.gguf", golden_names[_i]);
    struct fixture f = {.length = 0};
    open_model(&f, path);
    snprintf(path, sizeof path, "tests/data/train/%s.txt", golden_names[_i]);
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    f.n_sequences = next_int(in);
    f.length = next_int(in);
    const int n = f.n_sequences * f.length;
    f.inputs = malloc((size_t)n * sizeof *f.inputs);
    f.targets = malloc((size_t)n * sizeof *f.targets);
    for (int s = 0; s < f.n_sequences; s++)
        for (int t = 0, token = next_int(in); t < f.length; t++) {
            f.inputs[s * f.length + t] = token;
            token = next_int(in);
            f.targets[s * f.length + t] = token;
        }
    const struct kernels *fastest;
    ck_assert_int_eq(kernels_choose(NULL, &fastest, NULL), STATUS_OK);
    const double loss = gradient_by(&f, fastest, 2);
    ck_assert_double_eq_tol(loss, next_double(in), 1e-5);
    int tensors = 0;
    while (fscanf(in, "%63s", name) == 1) {
        compare_tensor(&f, in, name);
        tensors++;
    }
    ck_assert_int_eq(tensors, f.list.n);
    fclose(in);
    close_fixture(&f);
}
END_TEST

/* --- bits ------------------------------------------------------------------------------------ */

START_TEST(same_bits_for_any_threads_and_instruction_set)
{
    static const struct checkpoint_shape shape = {.n_layers = 2,
                                                  .n_heads = 4,
                                                  .n_kv_heads = 2,
                                                  .head_dim = 9,
                                                  .d_ff = 100,
                                                  .n_ctx = 70,
                                                  .n_vocab = 75,
                                                  .tied = 1,
                                                  .no_tokenizer = 1,
                                                  .seed = 5};
    struct fixture f = {.length = 0};
    open_fixture(&f, &shape, 5, 67);
    const double loss = gradient_by(&f, &kernels_scalar, 1);
    const size_t bytes = f.list.n_floats * sizeof(float);
    float *kept = malloc(bytes);
    memcpy(kept, f.gradient.flat, bytes);
    for (int i = 0; kernels_at(i); i++) {
        if (!kernels_supported(kernels_at(i)))
            continue;
        static const int threads[] = {1, 2, 3, 5};
        for (int t = 0; t < 4; t++) {
            for (size_t j = 0; j < f.list.n_floats; j++)
                f.gradient.flat[j] = kept[j] == 0 ? 0 : 1;
            ck_assert(gradient_by(&f, kernels_at(i), threads[t]) == loss);
            ck_assert_msg(memcmp(kept, f.gradient.flat, bytes) == 0, "%s, %d threads",
                          kernels_at(i)->name, threads[t]);
        }
    }
    free(kept);
    close_fixture(&f);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("backprop");
    TCase *tc = tcase_create("gradients");
    tcase_set_timeout(tc, 100);
    tcase_add_loop_test(tc, gradient_is_that_of_differences, 0, N_SHAPES);
    tcase_add_loop_test(tc, long_windows, 0, N_SHAPES);
    tcase_add_test(tc, dropout_keeps_its_share);
    tcase_add_test(tc, teacher_gradient);
    tcase_set_tags(tc, ONE_THREAD);
    suite_add_tcase(s, tc);
    TCase *threads = tcase_create("threads");
    tcase_set_timeout(threads, 400); /* the thread sanitizer is slow */
    tcase_add_loop_test(threads, gradient_with_dropout, 0, N_SHAPES);
    tcase_add_loop_test(threads, gradient_is_that_of_numpy, 0, 4);
    tcase_add_test(threads, same_bits_for_any_threads_and_instruction_set);
    suite_add_tcase(s, threads);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
