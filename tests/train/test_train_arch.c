/* Trains every architecture: the checkpoint runs, and training resumes exactly and can go further.
 */
#include "formats/gguf_values.h"
#include "opened.h"
#include "train_run.h"

/* The presets, and mixtures that together have each kind. */
#define TINY SIZES(2, 2, 1, 8, 32, 24, 256), .d_model = 16

static const struct model_case archs[] = {
    {"gpt2", {TINY}, 0},
    {"llama", {TINY}, 0},
    {"transformer", {TINY}, 0},
    {NULL, {TINY, .norm = NORM_RMS, .position = POSITION_ALIBI, .biases = BIASES_NONE}, 0},
    {NULL,
     {TINY, .placement = PLACEMENT_AFTER, .position = POSITION_QUADRATIC, .ffn = FFN_GELU_ERF},
     0},
    {NULL, {TINY, .position = POSITION_NONE, .ffn = FFN_RELU, .layer_kv_heads = {2, 1}}, 0},
    {NULL, {TINY, .position = POSITION_ROPE, .ffn = FFN_SWIGLU, .shared = true}, 0},
    {NULL,
     {TINY, .norm = NORM_RMS, .placement = PLACEMENT_AFTER, .position = POSITION_ALIBI,
      .shared = true},
     0},
    {NULL, {TINY, .score = SCORE_ADDITIVE}, 0},
    {"gptneox", {TINY}, 0},
    {"bloom", {TINY}, 0},
    {"olmo", {TINY}, 0},
    {NULL, {TINY, .layer_window = {3, 0}}, 0},
    {"gemma3", {TINY}, 0},
};
#define N_TRAINED (SANITIZED ? 3 : (int)COUNT(archs))

static struct run run_of(int i, const char *out)
{
    struct run r = make_run(out);
    r.spec.shape = config_of_case(&archs[i]);
    r.spec.attn_dropout = 0.1;
    r.spec.label_smoothing = 0.1;
    return r;
}

/* Expects that the engine predicts each next token of the text. */
static void assert_knows_by_heart(const struct checkpoint *c, struct text t)
{
    const int n = (int)t.len - 1, n_vocab = c->model->config.n_vocab;
    int32_t tokens[64];
    ck_assert_int_lt(n, 64);
    for (int i = 0; i < n; i++)
        tokens[i] = (unsigned char)t.data[i]; /* plain bytes are their own ids */
    float *logits =
        logits_after(c->model, tokens, n, 0, NULL, &(struct session_params){.block = 0});
    for (int i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * (size_t)n_vocab;
        const int best = logits_argmax(row, n_vocab);
        ck_assert_msg(best == (unsigned char)t.data[i + 1], "after %d tokens: %d", i + 1, best);
    }
}

/* The text is one window, and nothing keeps the model from learning it by heart. */
TEST(one_window_is_learned_and_the_engine_says_it, .loops = N_TRAINED, .tags = TAKES_LONG)
{
    const struct text one = {"the quick brown fox jumps", 25};
    struct run r = run_of(_i, "out.gguf");
    r.spec.texts = &one;
    r.spec.val_fraction = r.spec.weight_decay = 0;
    r.spec.dropout = r.spec.attn_dropout = r.spec.label_smoothing = 0;
    r.spec.n_steps = 150;
    r.spec.lr = 0.02;
    r.spec.batch = 1;
    run_well(&r);
    ck_assert_msg(r.first_loss > 5 && r.last_loss < 0.03, "%f", r.last_loss);
    struct checkpoint c = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL);
    expect_same_config(&c.model->config, &r.spec.shape);
    assert_knows_by_heart(&c, one);
}

TEST(resumed_with_other_threads_is_uninterrupted, .loops = N_TRAINED)
{
    struct run whole = run_of(_i, "whole.gguf"), parts = run_of(_i, "parts.gguf");
    run_well(&whole);
    run_until(&parts, 7);
    parts.spec.pool = new_pool(2 + _i % 3);
    expect_ok(resume(&parts, &err));
    assert_same_run(&whole, &parts);
}

/* A member of a run's spec that makes it another run. */
#define CHANGED(type, member, value, message)                                                      \
    {                                                                                              \
        offsetof(struct train_spec, member), sizeof(type), &(type){value}, message                 \
    }
static const struct text shorter_text = {words, TEXT_LEN - 1};
static const struct {
    size_t at, size;
    const void *value;
    const char *message;
} changes[] = {
    CHANGED(const struct text *, texts, &shorter_text, "the text was not"),
    CHANGED(int, shape.d_ff, 48, "the model's shape was not the same"),
    CHANGED(int, shape.norm, NORM_RMS, "the model's shape was not the same"),
    CHANGED(int, shape.placement, PLACEMENT_AFTER, "the model's shape was not the same"),
    CHANGED(int, shape.position, POSITION_NONE, "the model's shape was not the same"),
    CHANGED(int, shape.ffn, FFN_SWIGLU, "the model's shape was not the same"),
    CHANGED(enum bias_kind, shape.biases, BIASES_NONE, "the model's shape was not the same"),
    CHANGED(bool, shape.parts.no_norm_biases, true, "the model's shape was not the same"),
    CHANGED(int, shape.value_dim, 3, "the model's shape was not the same"),
    CHANGED(float, shape.norm_eps, 1e-3f, "the model's shape was not the same"),
    CHANGED(bool, shape.shared, true, "the model's shape was not the same"),
    CHANGED(float, shape.embedding_scale, 2, "the model's shape was not the same"),
    CHANGED(float, shape.score_scale, 2, "the model's shape was not the same"),
    CHANGED(int, shape.layer_kv_heads[1], 1, "the model's shape was not the same"),
};
TEST(state_of_another_run_is_refused, .loops = COUNT(changes), .tags = ONE_THREAD)
{
    struct run r = run_of(2, "out.gguf");
    r.spec.shape.placement = PLACEMENT_BEFORE;
    struct run other = r;
    run_until(&r, 2);
    other.spec.resume = true;
    memcpy((char *)&other.spec + changes[_i].at, changes[_i].value, changes[_i].size);
    if (other.spec.shape.layer_kv_heads[1])
        other.spec.shape.n_kv_heads = 2;
    refused(&other, STATUS_USAGE, changes[_i].message);
}

/* The source has any architecture, its own output matrix and, if it rotates pairs, factors of their
 * frequencies, which no step changes; the teacher has another architecture. */
TEST(any_checkpoint_is_trained_further, .loops = N_TRAINED)
{
    struct run r = make_run("out.gguf");
    const struct config c = config_of_case(&archs[_i]),
                        other = config_of_case(&archs[(_i + 1) % N_TRAINED]);
    const char *source = scratch_path("source.gguf"), *teacher = scratch_path("teacher.gguf");
    write_config_checkpoint_as(source, &c, CONFIG_ROPE_FACTORS);
    write_config_checkpoint(teacher, &other);
    struct checkpoint from = opened_checkpoint(source, CHECKPOINT_TOKENIZER);
    struct checkpoint taught = opened_checkpoint(teacher, CHECKPOINT_TOKENIZER);
    r.spec.from = from.gguf;
    r.spec.teacher = taught.gguf;
    r.spec.loss = (struct loss_weights){.text = 0.8f, .teacher = 0.2f};
    run_well(&r);
    ck_assert_msg(r.last_loss < r.first_loss, "%f, then %f", r.first_loss, r.last_loss);
    struct checkpoint out = opened_checkpoint(r.out, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL);
    expect_same_config(&out.model->config, &c);
    if (c.position == POSITION_ROPE) {
        const struct gguf_tensor *x = gguf_find_tensor(from.gguf, "rope_freqs.weight"),
                                 *y = gguf_find_tensor(out.gguf, "rope_freqs.weight");
        ck_assert(x && y && x->n_bytes == y->n_bytes);
        ck_assert_mem_eq(x->data, y->data, x->n_bytes);
    }
}

/* Returns the root mean square of a role's first weights; *first is the first of them. */
static double deviation_of(const struct config *c, enum tensor_role role, float *first)
{
    struct trainer t = {.spec = {.seed = 1}, .config = *c};
    expect_ok(param_list_create(&t.list, c, NULL, PARAMS_OF_FILE, &err));
    trainer_take(&t);
    expect_ok(arena_allocate(&t.arena, "test", &err));
    trainer_take(&t);
    trainer_initialise(&t);
    const struct tensor_spec spec = layout_weight(c, role, 0);
    const float *w = (role_in_block(role) ? t.weights.blocks[0].w : t.weights.w)[role].weight;
    double sum = 0;
    for (size_t i = 0; i < spec_elements(&spec); i++)
        sum += (double)w[i] * (double)w[i];
    memcpy(first, w, 4 * sizeof *first);
    arena_free(&t.arena);
    param_list_free(&t.list);
    return sqrt(sum / (double)spec_elements(&spec));
}

TEST(first_weights_are_as_their_models_began)
{
    const struct {
        int arch;
        enum tensor_role role;
        double deviation, tolerance;
    } rows[] = {
        /* Weights have GPT-2's deviation; in front of a residual it is divided by the root of two a
           layer. */
        {1, ROLE_TOKEN_EMBD, 0.02, 0.001},
        {1, ROLE_FFN_DOWN, 0.01, 0.001},
        {1, ROLE_FFN_GATE, 0.02, 0.002},
        /* The original Transformer's deviation, for widths of 16 and 32. */
        {2, ROLE_TOKEN_EMBD, 0.25, 0.01},
        {2, ROLE_FFN_DOWN, sqrt(2.0 / 48), 0.02},
        {4, ROLE_FFN_UP, sqrt(2.0 / 48), 0.02},
    };
    float first[4];
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct config c = config_of_case(&archs[rows[i].arch]);
        ck_assert_double_eq_tol(deviation_of(&c, rows[i].role, first), rows[i].deviation,
                                rows[i].tolerance);
    }
    const struct config quadratic = config_of_case(&archs[4]);
    deviation_of(&quadratic, ROLE_ATTN_REL, first);
    ck_assert(first[0] == 0.5f && first[1] == 0 && first[2] == 0.125f && first[3] == 1);
}
