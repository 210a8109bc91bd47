/* The n-th allocation fails, once or from then on, for n advancing until everything succeeds:
 * each time the right status, a message, and nothing lost (the leak sanitizer looks on). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "parts/bpe_learn.h"
#include "support.h"
#include "tools/convert.h"
#include "tools/eval.h"
#include "tools/quantize.h"
#include "tools/train.h"

/* --- the allocation functions of the whole binary, linked with --wrap ------------------------ */

static int armed;      /* count and fail */
static long countdown; /* allocations that still succeed */
static int for_ever;   /* fail from then on, not once */

static int fails(void)
{
    if (!armed)
        return 0;
    countdown--;
    return for_ever ? countdown < 0 : countdown == -1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

/* --- what a command does, from file to token ------------------------------------------------- */

static enum status encode_and_feed(const struct checkpoint *c, struct session *s,
                                   struct sampler *sampler, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    enum status status = tokenizer_encode(c->tokenizer, text_of("To be, or not"), &ids, &n, e);
    int token;
    if (status == STATUS_OK)
        status = session_feed(s, ids, (int)n, NULL, e);
    if (status == STATUS_OK)
        status = sampler_pick(sampler, session_logits(s), &token, e);
    free(ids);
    return status;
}

static enum status decode_once(const char *path, struct err *e)
{
    struct checkpoint c;
    struct pool *pool = NULL;
    struct session *s = NULL;
    struct sampler *sampler = NULL;
    const struct sampler_params sampling = {
        .temperature = 1, .top_k = 5, .top_p = 0.9, .repeat_penalty = 1.1, .repeat_last_n = 8};
    enum status status = checkpoint_open(path, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL, &c, e);
    if (status != STATUS_OK)
        return status;
    const struct session_params params = {.n_ctx = 0};
    status = pool_create(2, &pool, e);
    if (status == STATUS_OK)
        status = session_create(c.model, &params, pool, &s, e);
    if (status == STATUS_OK)
        status = sampler_create(&sampling, c.model->config.n_vocab, session_cap(s), &sampler, e);
    if (status == STATUS_OK)
        status = encode_and_feed(&c, s, sampler, e);
    sampler_free(sampler);
    session_free(s);
    pool_free(pool);
    checkpoint_close(&c);
    return status;
}

/* Writing a file anew: the old one must survive every failure. */
static enum status rewrite(const char *from, const char *to, struct err *e)
{
    struct checkpoint c;
    struct gguf_writer *w = NULL;
    enum status status = checkpoint_open(from, 0, &c, e);
    if (status != STATUS_OK)
        return status;
    status = gguf_writer_create(&w, e);
    if (status == STATUS_OK) {
        for (size_t i = 0; i < c.gguf->n_pairs; i++)
            gguf_add_value(w, c.gguf->pairs[i].key, &c.gguf->pairs[i].value);
        for (size_t i = 0; i < c.gguf->n_tensors; i++) {
            const struct gguf_tensor *t = &c.gguf->tensors[i];
            gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
        }
        status = gguf_write(w, to, e);
    }
    gguf_writer_free(w);
    checkpoint_close(&c);
    return status;
}

static enum status quantize_once(const char *from, const char *to, struct err *e)
{
    struct file_map file;
    struct gguf *g = NULL;
    struct quantize q = {.tensors = NULL};
    struct quantize_params p = {.type = TENSOR_Q8_0, .source = &file};
    enum status status = file_map_open(&file, from, e);
    if (status != STATUS_OK)
        return status;
    status = gguf_parse(file.data, file.len, &g, e);
    p.gguf = g;
    if (status == STATUS_OK)
        status = pool_create(2, &p.pool, e);
    if (status == STATUS_OK)
        status = quantize_plan(&p, &q, e);
    if (status == STATUS_OK)
        status = quantize_write(&q, to, e);
    quantize_free(&q);
    pool_free(p.pool);
    gguf_free(g);
    file_map_close(&file);
    return status;
}

static const struct checkpoint_shape shape = {.n_layers = 1,
                                              .n_heads = 2,
                                              .n_kv_heads = 1,
                                              .head_dim = 8,
                                              .d_ff = 16,
                                              .n_ctx = 32,
                                              .n_vocab = 256};

/* --- every allocation fails once ------------------------------------------------------------- */

/* What is tried; the paths are those it needs. */
struct attempt {
    enum status (*run)(const struct attempt *a, struct err *e);
    const char *from, *to;
    void (*after_failure)(const struct attempt *a); /* or NULL */
};

/* Repeats the attempt until it succeeds, one allocation more each time. How many times it failed.
 */
static long fail_each(const struct attempt *a, int from_then_on)
{
    for (long n = 0;; n++) {
        ck_assert_int_lt(n, 4000);
        struct err e = {{0}};
        for_ever = from_then_on;
        countdown = n;
        armed = 1;
        const enum status status = a->run(a, &e);
        armed = 0;
        ck_assert_msg(status == STATUS_OK || status == STATUS_NO_MEMORY,
                      "allocation %ld: status %d, %s", n, (int)status, e.text);
        ck_assert_int_eq(status == STATUS_OK, e.text[0] == 0);
        if (status == STATUS_OK)
            return n;
        if (a->after_failure)
            a->after_failure(a);
    }
}

static enum status run_decode(const struct attempt *a, struct err *e)
{
    return decode_once(a->from, e);
}

START_TEST(decoding)
{
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, &shape);
    const struct attempt a = {.run = run_decode, .from = path};
    ck_assert_int_gt(fail_each(&a, _i), 10); /* the failures did reach the program */
    scratch_remove();
}
END_TEST

static enum status run_rewrite(const struct attempt *a, struct err *e)
{
    return rewrite(a->from, a->to, e);
}

static void old_file_is_intact(const struct attempt *a)
{
    size_t len;
    unsigned char *bytes = read_file(a->to, &len);
    ck_assert(len == 12 && memcmp(bytes, "the old file", 12) == 0);
    free(bytes);
}

START_TEST(writing)
{
    char from[512], to[512];
    strcpy(from, scratch_path("from.gguf"));
    strcpy(to, scratch_path("to.gguf"));
    write_checkpoint(from, &shape);
    FILE *old = fopen(to, "wb");
    fputs("the old file", old);
    fclose(old);
    const struct attempt a = {run_rewrite, from, to, old_file_is_intact};
    ck_assert_int_gt(fail_each(&a, _i), 5);
    struct err e = {{0}};
    ck_assert_msg(decode_once(to, &e) == STATUS_OK, "%s", e.text);
    scratch_remove();
}
END_TEST

static enum status run_quantize(const struct attempt *a, struct err *e)
{
    return quantize_once(a->from, a->to, e);
}

START_TEST(quantizing)
{
    char from[512], to[512];
    strcpy(from, scratch_path("from.gguf"));
    strcpy(to, scratch_path("to.gguf"));
    write_checkpoint(from, &shape);
    FILE *old = fopen(to, "wb");
    fputs("the old file", old);
    fclose(old);
    const struct attempt a = {run_quantize, from, to, old_file_is_intact};
    ck_assert_int_gt(fail_each(&a, _i), 10);
    scratch_remove();
}
END_TEST

/* A vocabulary with merges and special tokens, which the made checkpoints lack. */
static enum status run_tokenize(const struct attempt *a, struct err *e)
{
    struct checkpoint c;
    enum status status = checkpoint_open(a->from, CHECKPOINT_TOKENIZER, &c, e);
    if (status != STATUS_OK)
        return status;
    int32_t *ids = NULL;
    size_t n = 0;
    status = tokenizer_encode(c.tokenizer, text_of("whether 'tis nobler in the mind"), &ids, &n, e);
    free(ids);
    checkpoint_close(&c);
    return status;
}

START_TEST(tokenizing)
{
    const struct attempt a = {.run = run_tokenize, .from = "tests/data/bpe-small.gguf"};
    ck_assert_int_gt(fail_each(&a, _i), 15);
}
END_TEST

/* Growing what learning needs to grow: many distinct words, many merges. */
static enum status learn_and_write(struct text text, struct gguf_writer *w, struct err *e)
{
    const struct bpe_learn_spec spec = {.n_tokens = 2000, .end_of_text = true};
    struct bpe_learned v;
    enum status status = bpe_learn(&spec, &text, 1, &v, e);
    if (status != STATUS_OK)
        return status;
    status = bpe_learned_write(&v, w, e);
    bpe_learned_free(&v);
    unsigned char *bytes = NULL;
    size_t len;
    if (status == STATUS_OK)
        status = gguf_write_memory(w, &bytes, &len, e);
    free(bytes);
    return status;
}

static enum status run_learn(const struct attempt *a, struct err *e)
{
    struct gguf_writer *w;
    enum status status = gguf_writer_create(&w, e);
    if (status != STATUS_OK)
        return status;
    status = learn_and_write(text_of(a->from), w, e);
    gguf_writer_free(w);
    return status;
}

START_TEST(learning)
{
    enum { N_WORDS = 3000 };
    char *text = malloc(N_WORDS * 8 + 1);
    struct rng r;
    rng_seed(&r, 1, 1);
    for (int i = 0; i < N_WORDS; i++) /* six letters in two spaces */
        snprintf(text + i * 8, 9, " %06x ", rng_u32(&r) & 0xffffff);
    const struct attempt a = {.run = run_learn, .from = text};
    ck_assert_int_gt(fail_each(&a, _i), 15);
    free(text);
}
END_TEST

/* Against itself, with windows for every thread. */
static enum status run_eval(const struct attempt *a, struct err *e)
{
    struct checkpoint c;
    struct pool *pool = NULL;
    enum status status = checkpoint_open(a->from, CHECKPOINT_MODEL, &c, e);
    if (status != STATUS_OK)
        return status;
    const int32_t tokens[100] = {1, 2, 3};
    struct eval_spec spec = {
        .model = c.model, .other = c.model, .tokens = tokens, .n_tokens = 100, .ctx = 5};
    struct eval_result result;
    status = pool_create(2, &pool, e);
    spec.pool = pool;
    if (status == STATUS_OK)
        status = eval_run(&spec, &result, e);
    pool_free(pool);
    checkpoint_close(&c);
    return status;
}

START_TEST(evaluating)
{
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, &shape);
    const struct attempt a = {.run = run_eval, .from = path};
    ck_assert_int_gt(fail_each(&a, _i), 20);
    scratch_remove();
}
END_TEST

/* Calibrated, grouped, refitted, on two threads. */
static enum status run_convert(const struct attempt *a, struct err *e)
{
    static const int32_t tokens[40] = {1, 2, 3};
    struct checkpoint c;
    struct convert converted = {.n_layers = 0};
    struct convert_spec spec = {.source_name = "",
                                .version = "",
                                .n_kv_heads = 2,
                                .method = CONVERT_FIT,
                                .cluster = true,
                                .refit = true,
                                .tokens = tokens,
                                .n_tokens = 40};
    unsigned char *bytes = NULL;
    size_t len;
    enum status status = checkpoint_open(a->from, 0, &c, e);
    if (status != STATUS_OK)
        return status;
    spec.gguf = c.gguf;
    status = pool_create(2, &spec.pool, e);
    if (status == STATUS_OK)
        status = convert_run(&spec, &converted, e);
    if (status == STATUS_OK)
        status = gguf_write_memory(converted.writer, &bytes, &len, e);
    free(bytes);
    convert_free(&converted);
    pool_free(spec.pool);
    checkpoint_close(&c);
    return status;
}

START_TEST(converting)
{
    struct checkpoint_shape heads = shape;
    heads.n_heads = heads.n_kv_heads = 4;
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, &heads);
    const struct attempt a = {.run = run_convert, .from = path};
    ck_assert_int_gt(fail_each(&a, _i), 20);
    scratch_remove();
}
END_TEST

/* A step of a new model, and then the same run from its state. */
static enum status run_train(const struct attempt *a, struct err *e)
{
    const struct text text = text_of("a text of some words, a text of other words and of words");
    struct train_spec spec = {.texts = &text,
                              .n_texts = 1,
                              .out = a->to,
                              .shape = {.n_layers = 1,
                                        .n_heads = 2,
                                        .n_kv_heads = 1,
                                        .head_dim = 4,
                                        .d_model = 8,
                                        .d_ff = 8,
                                        .n_ctx = 5,
                                        .n_vocab = 256,
                                        .norm_eps = 1e-5f},
                              .n_steps = 1,
                              .batch = 1,
                              .length = 5,
                              .lr = 0.001,
                              .val_fraction = 0.2,
                              .eval_every = 1,
                              .save_every = 1,
                              .kernels = &kernels_scalar};
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && status == STATUS_OK; i++) {
        struct trainer *t;
        spec.resume = i == 1;
        status = trainer_open(&spec, &t, e);
        if (status == STATUS_OK)
            status = trainer_run(t, e);
        trainer_free(t);
    }
    return status;
}

START_TEST(training)
{
    const char *path = scratch_path("out.gguf");
    const struct attempt a = {.run = run_train, .to = path};
    ck_assert_int_gt(fail_each(&a, _i), 30);
    scratch_remove();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("out of memory");
    TCase *t = tcase_create("n-th allocation");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, decoding, 0, 2);
    tcase_add_loop_test(t, writing, 0, 2);
    tcase_add_loop_test(t, quantizing, 0, 2);
    tcase_add_loop_test(t, tokenizing, 0, 2);
    tcase_add_loop_test(t, learning, 0, 2);
    tcase_add_loop_test(t, evaluating, 0, 2);
    tcase_add_loop_test(t, converting, 0, 2);
    tcase_add_loop_test(t, training, 0, 2);
    suite_add_tcase(s, t);
    return run_suite(s);
}
