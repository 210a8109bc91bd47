/*
 * Tests of architectures as values: every mixture of kinds is read from a file as it was written,
 * prefill and steps give the same answer, and matrices of several types are the same model. (The
 * golden files of test_session.c show that the answer is right.)
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf_write.h"
#include "golden.h"
#include "model/config_keys.h"
#include "model/pack.h"
#include "opened.h"

#define N_TOKENS 21

/* Returns the largest difference between the logits of two models. */
static double distance(const struct model *a, const struct model *b)
{
    const size_t n = N_TOKENS * (size_t)a->config.n_vocab;
    float *x = logits_of_some(a, N_TOKENS, 2, 0), *y = logits_of_some(b, N_TOKENS, 1, 1);
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert(isfinite(x[i]) && isfinite(y[i]));
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    }
    return most;
}

/* Expects the same bits from any threads, prefill and steps. */
static void expect_one_answer(const struct model *m)
{
    static const int settings[][2] = {{2, 0}, {3, 5}, {1, 13}};
    const size_t n = N_TOKENS * (size_t)m->config.n_vocab;
    float *steps = logits_of_some(m, N_TOKENS, 1, 1);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(isfinite(steps[i]), "logit %zu", i);
    for (size_t i = 0; i < 3; i++) {
        float *found = logits_of_some(m, N_TOKENS, settings[i][0], settings[i][1]);
        ck_assert_mem_eq(steps, found, n * sizeof *found);
    }
}

static struct checkpoint made(const struct config *config)
{
    const char *path = scratch_path("made.gguf");
    write_config_checkpoint(path, config);
    return opened_checkpoint(path, CHECKPOINT_MODEL);
}

/* Makes a mixture of kinds and of other traits, by the bits of a number. */
#define N_MIXTURES (NORM_KINDS * PLACEMENTS * POSITION_KINDS * FFN_KINDS)

static struct config mixture(int i)
{
    struct config c =
        config_sized("decode", "layers=3 heads=4 kv=2 width=24 ff=24 ctx=24 vocab=256");
    c.embedding_scale = i % 3 ? 1.0f : 1.75f;
    c.score_scale = i % 4 ? 0 : 0.75f;
    c.biases = (unsigned)i % BIAS_KINDS;
    c.split_qkv = i / 2 % 2;
    c.shared = i % 5 == 0;
    c.norm = (unsigned)i % NORM_KINDS;
    c.parts.no_norm_biases = c.norm == NORM_RMS || i / 4 % 2;
    c.parts.no_norm_weights = i % 7 == 3;
    c.parts.embedding_norm = i / 3 % 2;
    c.parts.qk_norms = i / 5 % 3 == 1;
    c.parts.added_norms = i / 4 % 3 == 2;
    c.parts.output_bias = i % 11 == 5;
    c.parts.rope_halves = i / 2 % 3 == 1;
    for (int l = 0; l < 3 && i % 4 == 1; l++) /* one for all layers, or one for each */
        c.layer_window[l] = i % 8 == 1 ? 5 : 4 * ((l + i) % 3);
    c.placement = (unsigned)(i / NORM_KINDS) % PLACEMENTS;
    c.position = (unsigned)(i / (NORM_KINDS * PLACEMENTS)) % POSITION_KINDS;
    c.ffn = (unsigned)(i / (NORM_KINDS * PLACEMENTS * POSITION_KINDS));
    c.parts.one_norm = c.placement == PLACEMENT_PARALLEL && i % 2;
    if (i % 3 == 1) { /* odd heads, and of each layer its own number */
        c.head_dim = c.position == POSITION_ROPE ? 6 : 7;
        c.value_dim = 3;
        c.rope = (struct config_rope){
            .n_dims = 4, .base = 5e5, .scale = 0.25, .window_base = i % 2 ? 100 : 0};
        for (int l = 0; l < 3 && !c.shared; l++)
            c.layer_kv_heads[l] = 1 << (l + i) % 3;
        c.n_kv_heads = c.shared ? 2 : 4;
    }
    return c;
}

TEST(mixtures_survive_a_file_and_run, .loops = SANITIZED ? N_MIXTURES / 4 : N_MIXTURES)
{
    struct config c = mixture(SANITIZED ? 4 * _i + _i % 4 : _i);
    struct checkpoint file = made(&c);
    config_complete(&c);
    expect_same_config(&file.model->config, &c);
    expect_one_answer(file.model);
}

TEST(tensors_are_found_by_their_names)
{
    for (int i = 0; i < N_MIXTURES; i++) {
        struct config c = mixture(i);
        struct tensor_spec found;
        config_complete(&c);
        for (int64_t t = 0; t < layout_count(&c); t++) {
            const struct tensor_spec spec = layout_at(&c, t);
            ck_assert(layout_has(&c, spec.role));
            ck_assert(layout_named(&c, text_of(spec.name.text), &found));
            ck_assert_str_eq(found.name.text, spec.name.text);
            ck_assert(found.role == spec.role && found.layer == spec.layer &&
                      found.is_bias == spec.is_bias && found.rows == spec.rows &&
                      found.cols == spec.cols && found.flags == spec.flags);
        }
        ck_assert(!layout_named(&c, text_of("blk.3.ffn_up.weight"), &found));
        ck_assert(!layout_named(&c, text_of("blk..ffn_up.weight"), &found));
        ck_assert(!layout_named(&c, text_of("blk.0.attn_norm"), &found));
        ck_assert(layout_named(&c, text_of("blk.1.ffn_up.weight"), &found) == !c.shared);
    }
}

static struct config wide_llama(void)
{
    return config_sized("llama", "layers=2 heads=4 kv=2 dim=16 width=64 ff=96 ctx=32 vocab=256");
}

/* Writes the file with each tensor's type and data as `change` makes them. */
static struct gguf_file rewritten(const struct gguf *g,
                                  void (*change)(struct gguf_tensor *t, const void *arg),
                                  const void *arg)
{
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    for (size_t i = 0; i < g->n_pairs; i++)
        gguf_add_value(w, g->pairs[i].key, &g->pairs[i].value);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor t = g->tensors[i];
        change(&t, arg);
        gguf_add_tensor(w, t.name, t.type->type, t.n_dims, t.dims, t.data);
    }
    return written_gguf(w);
}

/* The types of the gate and of the matrix beside it. */
static void change_gates(struct gguf_tensor *t, const void *types)
{
    const bool gate = text_ends_with(t->name, "ffn_gate.weight");
    if (!gate && !text_ends_with(t->name, "ffn_up.weight"))
        return;
    const uint32_t type = ((const uint32_t *)types)[!gate];
    unsigned char *data = allocated(t->n_bytes); /* F32, the widest */
    blocks_encode(type, data, (const float *)(const void *)t->data, t->n_elements);
    t->type = tensor_type_find(type);
    t->data = data;
}

/* The two products of a gated network may need the same rows in different forms. */
TEST(gates_of_another_type, .loops = 6)
{
    static const uint32_t types[][2] = {{TENSOR_Q8_0, TENSOR_F32}, {TENSOR_F32, TENSOR_Q8_0},
                                        {TENSOR_F16, TENSOR_Q4_0}, {TENSOR_Q4_0, TENSOR_Q8_0},
                                        {TENSOR_BF16, TENSOR_F32}, {TENSOR_Q8_0, TENSOR_Q8_0}};
    struct config c = wide_llama();
    struct checkpoint file = made(&c);
    struct gguf_file mixed = rewritten(file.gguf, change_gates, types[_i]);
    struct model *m = new_model(mixed.g, NULL);
    enum storage gate, up;
    pack_storage(types[_i][0], &gate);
    pack_storage(types[_i][1], &up);
    ck_assert_int_eq(m->blocks[1].w[ROLE_FFN_GATE].matrix.storage, gate);
    ck_assert_int_eq(m->blocks[1].w[ROLE_FFN_UP].matrix.storage, up);
    expect_one_answer(m);
    ck_assert_double_lt(distance(file.model, m), 0.5); /* logits of a spread of 5 */
}

/* Blocks of 768 elements, which a matrix is filled with again and again. */
struct filling {
    uint32_t type;
    const void *blocks;
};

static void fill_matrix(struct gguf_tensor *t, const void *arg)
{
    const struct filling *f = arg;
    if (t->n_dims < 2)
        return;
    t->type = tensor_type_find(f->type);
    const uint64_t piece = tensor_type_bytes(t->type, 768);
    const uint64_t n = tensor_type_bytes(t->type, t->n_elements);
    unsigned char *data = allocated(n);
    for (uint64_t at = 0; at < n; at += piece)
        memcpy(data + at, f->blocks, n - at < piece ? n - at : piece);
    t->data = data;
}

/* Of types that are only read the model has the bits of one whose file has them widened. */
TEST(widened_types, .loops = 9)
{
    static const struct {
        const char *name;
        uint32_t type;
    } read_only[] = {{"q4_1", TENSOR_Q4_1}, {"q5_0", TENSOR_Q5_0},     {"q5_1", TENSOR_Q5_1},
                     {"q2_k", TENSOR_Q2_K}, {"q3_k", TENSOR_Q3_K},     {"q4_k", TENSOR_Q4_K},
                     {"q5_k", TENSOR_Q5_K}, {"iq4_nl", TENSOR_IQ4_NL}, {"q6_k", TENSOR_Q6_K}};
    struct config c =
        config_sized("llama", "layers=1 heads=4 kv=2 dim=64 width=256 ff=256 ctx=32 vocab=256");
    struct checkpoint file = made(&c);
    const uint32_t type = read_only[_i].type, in_memory = blocks_in_memory(type);
    char path[64];
    float x[768];
    unsigned char again[768 * sizeof(float)];
    snprintf(path, sizeof path, "tests/data/blocks/x.%s", read_only[_i].name);
    const struct filling golden = {type, file_text(path, NULL)}, wide = {in_memory, again};
    blocks_decode(type, x, golden.blocks, 768);
    blocks_encode(in_memory, again, x, 768);
    struct gguf_file as_is = rewritten(file.gguf, fill_matrix, &golden);
    struct gguf_file widened = rewritten(file.gguf, fill_matrix, &wide);
    struct model *a = new_model(as_is.g, NULL), *b = new_model(widened.g, NULL);
    ck_assert_int_eq(a->blocks[0].w[ROLE_ATTN_QKV].matrix.storage,
                     read_only[_i].type == TENSOR_Q6_K ? STORAGE_F16 : STORAGE_Q8_0);
    ck_assert_double_eq(distance(a, b), 0);
}

/* Queries, keys and values of several types share one matrix. */
TEST(common_storage)
{
    static const struct {
        uint32_t types[3];
        enum storage common;
    } mixes[] = {{{TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q6_K}, STORAGE_F16},
                 {{TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_Q5_0}, STORAGE_Q8_0},
                 {{TENSOR_Q6_K, TENSOR_F16, TENSOR_F16}, STORAGE_F16},
                 {{TENSOR_F32, TENSOR_Q4_K, TENSOR_Q4_K}, STORAGE_F32},
                 {{TENSOR_Q4_K, TENSOR_BF16, TENSOR_F16}, STORAGE_F32},
                 {{TENSOR_Q8_0, TENSOR_F16, TENSOR_Q4_K}, STORAGE_F32}};
    for (size_t i = 0; i < COUNT(mixes); i++) {
        struct gguf_tensor t[3];
        for (int k = 0; k < 3; k++)
            t[k].type = tensor_type_find(mixes[i].types[k]);
        const struct gguf_tensor *of[] = {&t[0], &t[1], &t[2]};
        ck_assert_int_eq(pack_common_storage(of, 3), mixes[i].common);
    }
}

/* All matrices of a llama and of the original Transformer have each type in turn. */
TEST(every_type, .loops = 2 * STORAGE_COUNT)
{
    struct config c = wide_llama();
    if (_i % 2) {
        c.split_qkv = false;
        c.biases = BIASES_ALL;
        config_set_arch(&c, arch_preset(text_of("transformer")));
    }
    struct checkpoint file = made(&c);
    const struct model_options o = {.convert = true, .storage = (enum storage)(_i / 2)};
    struct model *m = new_model(file.gguf, &o);
    ck_assert_int_eq(m->blocks[0].w[ROLE_ATTN_QKV].matrix.storage, o.storage);
    expect_one_answer(m);
}
