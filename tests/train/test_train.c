/* Tests of training runs: schedule, learning, saving, resuming, and what is refused. */
#include "train_run.h"

TEST(rate_rises_and_falls)
{
    const struct train_spec spec = {.n_steps = 100, .warmup = 10, .lr = 2};
    ck_assert_double_eq_tol(train_rate(&spec, 0), 0.2, 1e-12);
    ck_assert_double_eq_tol(train_rate(&spec, 9), 2, 1e-12);
    for (int step = 10; step < 100; step++)
        ck_assert(train_rate(&spec, step) < train_rate(&spec, step - 1));
    ck_assert_double_eq_tol(train_rate(&spec, 54), 1.1, 1e-12);
    ck_assert_double_eq_tol(train_rate(&spec, 99), 0.2, 1e-12);
    const struct train_spec direct = {.n_steps = 1, .lr = 1};
    ck_assert_double_eq_tol(train_rate(&direct, 0), 0.1, 1e-12);
}

TEST(held_out_text_is_predicted_better, .tags = TAKES_LONG)
{
    struct run r = make_run("out.gguf");
    r.spec.n_steps = 100;
    r.spec.lr = 0.01;
    r.spec.shape.n_vocab = 270;
    run_well(&r);
    ck_assert_int_eq(r.steps, 100);
    ck_assert_msg(r.best < 2, "%f", r.best);
    struct checkpoint c = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL);
    ck_assert_int_eq(c.model->config.n_kv_heads, 1);
    ck_assert_int_eq(tokenizer_n_tokens(c.tokenizer), 270);
}

/* The source has another type and its own output matrix, and there is a teacher. */
TEST(uptraining_keeps_the_tokenizer_and_lowers_the_loss)
{
    struct run r = make_run("out.gguf");
    const char *source = scratch_path("source.gguf");
    const struct checkpoint_shape shape = {SIZES(1, 2, 1, 8, 16, 40, 260), .type = TENSOR_F16,
                                           .no_biases = 1, .seed = 4};
    write_checkpoint(source, &shape);
    struct checkpoint from = opened_checkpoint(source, CHECKPOINT_TOKENIZER);
    r.spec.from = r.spec.teacher = from.gguf;
    r.spec.loss = (struct loss_weights){.text = 0.9f, .teacher = 0.1f};
    r.spec.out = r.out;
    r.spec.callbacks.arg = &r;
    expect_ok(trainer_open(&r.spec, &r.trainer, &err));
    ck_assert(trainer_plan(r.trainer)->widened);
    expect_ok(trainer_run(r.trainer, &err));
    trainer_free(r.trainer);
    ck_assert_int_eq(r.evals, 4); /* also before the first step */
    ck_assert(r.last_loss < r.first_loss);
    struct checkpoint out = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL);
    ck_assert_int_eq(out.model->config.n_ctx, 40);
    ck_assert(!out.model->tied);
    ck_assert_ptr_null(out.model->blocks[0].w[ROLE_FFN_UP].matrix.bias);
}

TEST(only_attention_is_trained)
{
    struct run r = make_run("out.gguf");
    const char *source = scratch_path("source.gguf");
    const struct checkpoint_shape shape = {SIZES(2, 2, 1, 8, 16, 40, 260), .seed = 4};
    write_checkpoint(source, &shape);
    struct checkpoint from = opened_checkpoint(source, CHECKPOINT_TOKENIZER);
    r.spec.from = from.gguf;
    r.spec.only = TRAINED_ATTENTION;
    run_well(&r);
    ck_assert(r.last_loss < r.first_loss);
    struct checkpoint out = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER);
    for (size_t i = 0; i < from.gguf->n_tensors; i++) {
        const struct gguf_tensor *before = &from.gguf->tensors[i], *after = &out.gguf->tensors[i];
        const struct text name = before->name;
        const bool trained =
            memmem(name.data, name.len, "attn", 4) || memmem(name.data, name.len, "norm", 4);
        ck_assert_msg((memcmp(before->data, after->data, before->n_bytes) == 0) == !trained, "%.*s",
                      (int)name.len, name.data);
    }
}

/* Runs are interrupted after each number of steps and then resumed, with the best and the last
 * weights in OUT, and of attention alone. */
TEST(resumed_is_uninterrupted, .loops = THREAD_SANITIZED ? 1 : 3)
{
    struct run whole = make_run("whole.gguf");
    whole.spec.keep_last = _i == 1;
    whole.spec.only = _i == 2 ? TRAINED_ATTENTION : TRAINED_ALL;
    run_well(&whole);
    for (int stop_at = 0; stop_at < 12; stop_at += SANITIZED ? 7 : 1 + _i) {
        struct run parts = make_run("parts.gguf");
        parts.spec.keep_last = whole.spec.keep_last;
        parts.spec.only = whole.spec.only;
        run_until(&parts, stop_at);
        ck_assert_int_eq(parts.steps, stop_at);
        ck_assert_int_eq(access(parts.out, F_OK), 0);
        const enum status s = resume(&parts, &err);
        ck_assert_msg(s == STATUS_OK, "stopped after %d: %s", stop_at, err.text);
        assert_same_run(&whole, &parts);
    }
    /* A run at its end has nothing left to do. It goes on to more steps, and refuses fewer. */
    whole.steps = 0;
    expect_ok(resume(&whole, &err));
    ck_assert_int_eq(whole.steps, 0);
    whole.spec.n_steps = 11;
    refused(&whole, STATUS_USAGE, "--steps 11: |has made 12 already");
    whole.spec.n_steps = 20;
    expect_ok(resume(&whole, &err));
    ck_assert_int_eq(whole.steps, 8);
}

TEST(loss_that_is_not_finite_keeps_the_last_save)
{
    struct run r = make_run("out.gguf");
    run_until(&r, 4);
    size_t n;
    const char *before = file_text(r.out, &n);
    struct checkpoint from = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER);
    struct run wild = make_run("out.gguf");
    wild.spec.from = from.gguf;
    wild.spec.lr = 1e30;
    wild.spec.warmup = 0;
    wild.spec.clip = 0;
    wild.spec.val_fraction = 0;
    wild.spec.save_every = 100;
    expect_status(run(&wild, &err), STATUS_FAILED, "loss after step 1 is|--lr");
    expect_bytes(r.out, before, n);
}

/* Takes OUT's folder away before the second save. */
static void event_moving(void *arg, const struct train_event *ev)
{
    struct run *r = arg;
    event(arg, ev);
    if (ev->kind == TRAIN_STEP && ev->step == 6)
        ck_assert_int_eq(rename(r->folder, r->moved), 0);
}

TEST(failed_save_ends_a_run_that_can_be_resumed)
{
    struct run whole = make_run("whole.gguf"), r = make_run("out.gguf");
    whole.spec.keep_last = r.spec.keep_last = true;
    run_well(&whole);
    snprintf(r.folder, sizeof r.folder, "%.*s", (int)(strrchr(r.out, '/') - r.out), r.out);
    snprintf(r.moved, sizeof r.moved, "%s-away", r.folder);
    r.spec.event = event_moving;
    expect_status(run(&r, &err), STATUS_FAILED, "out.gguf");
    ck_assert_int_eq(r.steps, 8);
    ck_assert_int_eq(rename(r.moved, r.folder), 0);
    r.spec.event = event;
    r.best = HUGE_VAL; /* as in the state of step 4 */
    expect_ok(resume(&r, &err));
    assert_same_run(&whole, &r);
}

TEST(short_text_is_refused_with_a_length_that_will_do)
{
    struct run r = make_run("out.gguf"), whole = make_run("out.gguf");
    struct text shorter = {words, 240};
    r.spec.texts = whole.spec.texts = &shorter;
    refused(&r, STATUS_USAGE, "at least some 250 bytes, found 240");
    shorter.len = 241;
    run_well(&r);
    whole.spec.val_fraction = 0;
    for (shorter.len = 0; shorter.len <= 24; shorter.len += 24)
        refused(&whole, STATUS_USAGE, shorter.len ? "some 25 bytes, found 24" : "found 0");
}

TEST(impossible_values_are_refused)
{
    const char *source = scratch_path("teacher.gguf");
    const struct checkpoint_shape shape = {SIZES(1, 2, 2, 4, 8, 40, 257), .seed = 4};
    write_checkpoint(source, &shape);
    struct checkpoint teacher = opened_checkpoint(source, CHECKPOINT_TOKENIZER);
    struct run warm = make_run("out.gguf"), longer = warm, taught = warm;
    warm.spec.warmup = 12;
    refused(&warm, STATUS_USAGE, "--warmup 12");
    longer.spec.length = 25;
    refused(&longer, STATUS_USAGE, "--ctx 25");
    taught.spec.teacher = teacher.gguf;
    refused(&taught, STATUS_USAGE, "of 256 tokens; found another, of 257");
}

TEST(out_that_is_gone_is_refused)
{
    struct run r = make_run("out.gguf");
    run_until(&r, 6);
    ck_assert_int_eq(remove(r.out), 0);
    r.spec.resume = true;
    refused(&r, STATUS_FAILED, "out.gguf is missing, the checkpoint that this run wrote last");
}

/* A run that is not done goes on only with an OUT of its own: the last one, or the one before if it
 * was killed between the state and OUT. */
TEST(out_of_another_run_is_refused, .loops = 2)
{
    struct run whole = make_run("whole.gguf"), r = make_run("out.gguf");
    size_t n, last_n;
    whole.spec.keep_last = r.spec.keep_last = _i;
    run_well(&whole);
    run_until(&r, 8);
    const char *before = file_text(r.out, &n);
    r.spec.resume = true;
    run_until(&r, 10);
    const char *last = file_text(r.out, &last_n);
    write_file(r.out, "another file", 12);
    refused(&r, STATUS_FAILED, "is not the checkpoint that this run wrote last");
    write_file(r.out, last, last_n);
    if (_i)
        write_file(r.out, before, n);
    r.stop_at = -1;
    run_well(&r);
    assert_same_file(whole.out, r.out);
}

/* The state is cut anywhere, or any bit of the header or some bit of the rest is flipped. */
TEST(damaged_state_is_refused)
{
    struct run r = make_run("out.gguf");
    char *path;
    size_t n;
    unsigned char *bytes = state_of(&r, 6, &path, &n);
    for (size_t len = 0; len < n; len += len < 260 ? 20 : n / 7) {
        write_file(path, bytes, len);
        refused(&r, STATUS_BAD_FILE, ".state");
    }
    for (size_t at = 0; at < n; at += at < 250 ? 3 : n / 9) {
        bytes[at] ^= (unsigned char)(1 << at % 8);
        write_file(path, bytes, n);
        bytes[at] ^= (unsigned char)(1 << at % 8);
        r.steps = 0;
        const enum status s = run(&r, &err);
        ck_assert_msg(s == STATUS_BAD_FILE, "byte %zu: %d", at, s);
        ck_assert_int_eq(r.steps, 0);
    }
}

static void free_bytes(void *b)
{
    bytes_free(b);
}

TEST(options_are_kept_for_who_resumes)
{
    struct run r = make_run("out.gguf");
    struct bytes *options = released_by(free_bytes, allocated(sizeof *options));
    r.spec.options = text_span("--lr=2\0\0--a=b\0\0\0", 16);
    run_until(&r, 3);
    expect_ok(train_saved_options(r.out, options, &err));
    ck_assert(text_equal(bytes_text(options), r.spec.options));
    bytes_free(options);
    expect_status(train_saved_options(scratch_path("none"), options, &err), STATUS_USAGE,
                  "there is no ");
}

/* Found by fuzzing: a best loss below 0 was taken from the state. No loss is less, so the resumed
 * run never wrote OUT and ended as if it had. */
TEST(impossible_best_loss_in_a_state_is_refused)
{
    static const double losses[] = {-1, -HUGE_VAL, (double)NAN};
    struct run r = make_run("out.gguf");
    char *path;
    size_t n;
    const unsigned char *bytes = state_of(&r, 6, &path, &n);
    for (size_t i = 0; i < COUNT(losses);
         i++) /* behind magic, version, hashes, length, two steps */
        refused_with(&r, path, bytes, n, 2 + 3 + 1 + 2, losses[i]);
}

/* Found by fuzzing: with keep_last, a run that was done and whose OUT was then lost or replaced
 * ended well without a step and without OUT. */
TEST(done_run_without_its_out_is_refused)
{
    struct run r = make_run("out.gguf");
    r.spec.keep_last = true;
    run_well(&r);
    expect_ok(resume(&r, &err));
    ck_assert_int_eq(remove(r.out), 0);
    expect_status(resume(&r, &err), STATUS_FAILED, "out.gguf is missing");
    write_file(r.out, "another file", 12);
    expect_status(resume(&r, &err), STATUS_FAILED, "is not the checkpoint");
}
