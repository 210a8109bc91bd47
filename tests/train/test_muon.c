/*
 * Compares Muon's step with its definition in double, for wide and tall matrices, joined and by
 * head, and its bits for any number of threads; and runs trainings that use it.
 */
#include "kernel_data.h"
#include "model/config_keys.h"
#include "opened.h"
#include "train/private.h"
#include "train_run.h"

static const char *const models[] = {"llama", "layerwise-kv"};
enum { N_STEPS = 3 };

/* Trains a golden checkpoint with made-up gradients, the same for every call. */
struct muon_run {
    struct gguf_file file;
    struct trainer t;
    double *first; /* the weights before */
    double rates[N_STEPS], scales[N_STEPS];
};

static double gradient_at(int step, size_t i)
{
    return 1e-3 * sin(1.7 * (double)i + step) * (1 + (double)(i % 7));
}

static struct muon_run train(const char *name, const struct kernels *k, int n_threads)
{
    struct muon_run r = {.file = golden_gguf(name)};
    struct trainer *t = &r.t;
    t->spec = (struct train_spec){.n_steps = N_STEPS,
                                  .warmup = 1,
                                  .lr = 0.01,
                                  .optimizer = OPTIMIZER_MUON,
                                  .weight_decay = 0.1,
                                  .clip = 0.5,
                                  .pool = new_pool(n_threads)};
    t->grad = k->grad;
    expect_ok(config_read(r.file.g, &t->config, &err));
    expect_ok(param_list_create(&t->list, &t->config, r.file.g, PARAMS_OF_FILE, &err));
    trainer_take(t);
    expect_ok(arena_allocate(&t->arena, "test", &err));
    trainer_take(t);
    param_list_read(&t->list, r.file.g, t->weights.flat);
    memset(t->m, 0, t->list.n_floats * sizeof *t->m);
    memset(t->v, 0, t->list.n_floats * sizeof *t->v);
    r.first = allocated(t->list.n_floats * sizeof *r.first);
    for (size_t i = 0; i < t->list.n_floats; i++)
        r.first[i] = (double)t->weights.flat[i];
    for (int step = 0; step < N_STEPS; step++) {
        struct train_event made;
        for (size_t i = 0; i < t->list.n_floats; i++)
            t->gradient.flat[i] = (float)gradient_at(step, i);
        expect_ok(trainer_update(t, &made, &err));
        r.rates[step] = made.lr;
        r.scales[step] = made.norm > 0.5 ? 0.5 / made.norm : 1;
    }
    return r;
}

static void release(struct muon_run *r)
{
    arena_free(&r->t.arena);
    param_list_free(&r->t.list);
}

/* c [n, n] = a a^T of a [n, k]. */
static void outer(double *c, const double *a, int n, int k)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (int l = 0; l < k; l++)
                c[i * n + j] += a[i * k + l] * a[j * k + l];
        }
}

/* Makes all steps of the matrix [n, k] at `at`, as Muon's write-up defines them: the matrix is
 * turned so that rows are the shorter side, and has five rounds of X <- a X + (b X X^T + c (X
 * X^T)^2) X. */
static void move_plainly(const struct muon_run *r, double *w, size_t at, int rows, int cols)
{
    const bool turned = rows > cols;
    const int n = turned ? cols : rows, k = turned ? rows : cols;
    const size_t size = (size_t)n * k;
    double *m = allocated(size * sizeof *m), *x = allocated(size * sizeof *x);
    double *s = allocated((size_t)n * n * sizeof *s), *p = allocated((size_t)n * n * sizeof *p);
    double *next = allocated(size * sizeof *next);
    memset(m, 0, size * sizeof *m);
    for (int step = 0; step < N_STEPS; step++) {
        double norm = 0;
        for (size_t i = 0; i < size; i++) {
            const size_t place = turned ? i % k * n + i / k : i;
            const double g = (double)(float)gradient_at(step, at + place) * r->scales[step];
            m[i] = 0.95 * m[i] + g;
            x[i] = 0.95 * m[i] + g;
            norm += x[i] * x[i];
        }
        for (size_t i = 0; i < size; i++)
            x[i] /= sqrt(norm) + 1e-7;
        for (int round = 0; round < 5; round++) {
            outer(s, x, n, k);
            outer(p, s, n, n); /* s is symmetric */
            for (int i = 0; i < n; i++)
                for (int j = 0; j < k; j++) {
                    next[i * k + j] = 3.4445 * x[i * k + j];
                    for (int l = 0; l < n; l++)
                        next[i * k + j] +=
                            (-4.7750 * s[i * n + l] + 2.0315 * p[i * n + l]) * x[l * k + j];
                }
            memcpy(x, next, size * sizeof *x);
        }
        for (size_t i = 0; i < size; i++) {
            double *to = &w[at + (turned ? i % k * n + i / k : i)];
            *to -= r->rates[step] * (0.1 * *to + 0.2 * sqrt(k) * x[i]);
        }
    }
}

TEST(steps_are_those_of_the_definition, .loops = COUNT(models), .tags = TAKES_LONG)
{
    struct muon_run r = train(models[_i], &kernels_scalar, 1);
    const struct trainer *t = &r.t;
    int n_moved = 0;
    for (int i = 0; i < t->list.n; i++) {
        const struct param *p = &t->list.items[i];
        const struct tensor_spec *s = &p->spec;
        if (!muon_moves(&t->spec, s))
            continue;
        const bool joined = s->role == ROLE_ATTN_QKV;
        const int qkv[] = {config_q_dim(&t->config), config_k_dim(&t->config, s->layer),
                           config_v_dim(&t->config, s->layer)};
        size_t at = p->offset;
        for (int part = 0; part < (joined ? 3 : 1); part++) {
            const int rows = joined ? qkv[part] : s->rows;
            move_plainly(&r, r.first, at, rows, s->cols);
            at += (size_t)rows * s->cols;
        }
        for (size_t j = p->offset; j < at; j++)
            ck_assert_msg(fabs((double)t->weights.flat[j] - r.first[j]) < 2e-6,
                          "%s: %g, expected %g", s->name.text, (double)t->weights.flat[j],
                          r.first[j]);
        n_moved++;
    }
    ck_assert_int_gt(n_moved, 2 * t->config.n_layers);
    release(&r);
}

TEST(bits_are_the_same_for_threads_and_instruction_sets, .loops = SANITIZED ? 1 : COUNT(models))
{
    struct muon_run one = train(models[_i], &kernels_scalar, 1);
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        const bool once = SANITIZED || k == &kernels_scalar;
        for (int n_threads = once ? 3 : 1; n_threads <= 5; n_threads += once ? 5 : 2) {
            struct muon_run many = train(models[_i], k, n_threads);
            ck_assert_mem_eq(one.t.weights.flat, many.t.weights.flat,
                             one.t.list.n_floats * sizeof(float));
            release(&many);
        }
    }
    release(&one);
}

TEST(runs_learn_and_go_on)
{
    struct run whole = make_run("whole.gguf"), parts = make_run("parts.gguf");
    whole.spec.optimizer = parts.spec.optimizer = OPTIMIZER_MUON;
    whole.spec.lr = parts.spec.lr = 0.01;
    run_well(&whole);
    ck_assert(whole.last_loss < whole.first_loss);
    run_until(&parts, 5);
    expect_ok(resume(&parts, &err));
    assert_same_run(&whole, &parts);
}
