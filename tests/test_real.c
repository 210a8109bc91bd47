/*
 * A model that its author trained and explained, number by number: three letters, sorted (llm-viz,
 * MIT; tests/data/real, made by scripts/make_nano_sort.py). The activations are his, from PyTorch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "opened.h"
#include "support.h"

#define TOLERANCE 2e-4

/* Of the model. */
#define N_TEXTS  3
#define N_TOKENS 11
#define N_VOCAB  3
#define D_MODEL  48
#define LETTERS  6 /* that a text begins with; as many follow, sorted */

/* A row of the file: the token, then what became of it. */
enum column { IDX, X, LN1, QKV, Y, ATTN_RESID, BLOCK, LOGITS = BLOCK + 3, COLUMNS };
static const struct {
    const char *name;
    int at, n;
} columns[COLUMNS] = {
    [IDX] = {"idx", 0, 1},
    [X] = {"x", 1, D_MODEL},
    [LN1] = {"ln1", 49, D_MODEL},
    [QKV] = {"qkv", 97, 3 * D_MODEL},
    [Y] = {"y", 241, D_MODEL},
    [ATTN_RESID] = {"attnResid", 289, D_MODEL},
    [BLOCK] = {"block0", 337, D_MODEL},
    [BLOCK + 1] = {"block1", 385, D_MODEL},
    [BLOCK + 2] = {"block2", 433, D_MODEL},
    [LOGITS] = {"lm_head", 481, N_VOCAB},
};
#define ROW 484

struct nano {
    unsigned char *bytes, *npy;
    struct gguf *g;
    struct model *m;
    float truth[N_TEXTS * N_TOKENS][ROW];
};

static struct nano open_nano(void)
{
    struct nano n;
    size_t len;
    n.bytes = read_file("tests/data/real/nano-sort.gguf", &len);
    expect_ok(gguf_parse(n.bytes, len, &n.g, &err));
    expect_ok(model_create(n.g, NULL, NULL, &n.m, &err));
    n.npy = read_file("tests/data/real/nano-sort.npy", &len);
    ck_assert_uint_gt(len, sizeof n.truth);
    memcpy(n.truth, n.npy + len - sizeof n.truth, sizeof n.truth);
    return n;
}

static void close_nano(struct nano *n)
{
    model_free(n->m);
    gguf_free(n->g);
    free(n->bytes);
    free(n->npy);
}

static struct session *open_session(const struct nano *n, const struct kernels *k)
{
    const struct session_params p = {.kernels = k};
    struct session *s = new_session(n->m, &p, NULL);
    return s;
}

/* All positions of a text, found [N_TOKENS, columns[c].n]. */
static void assert_column(const struct nano *n, int text, enum column c, const float *found,
                          const char *isa)
{
    for (int t = 0; t < N_TOKENS; t++) {
        const float *expected = n->truth[text * N_TOKENS + t] + columns[c].at;
        for (int i = 0; i < columns[c].n; i++, found++)
            ck_assert_msg(fabsf(*found - expected[i]) <= (float)TOLERANCE,
                          "%s: %s[%d, %d, %d] is %.7g, not %.7g", isa, columns[c].name, text, t, i,
                          (double)*found, (double)expected[i]);
    }
}

static void text_tokens(const struct nano *n, int text, int32_t *tokens)
{
    for (int t = 0; t < N_TOKENS; t++)
        tokens[t] = (int32_t)n->truth[text * N_TOKENS + t][columns[IDX].at];
}

/* The inside of block 0, what each block gives on, and what is made of the last. */
static void check_text(const struct nano *n, int text, const struct kernels *k)
{
    float x[N_TOKENS * D_MODEL], normed[N_TOKENS * D_MODEL], heads[N_TOKENS * D_MODEL];
    float middle[N_TOKENS * D_MODEL], qkv[N_TOKENS * 3 * D_MODEL], logits[N_TOKENS * N_VOCAB];
    int32_t tokens[N_TOKENS];
    struct probe *p = NULL;
    expect_ok(probe_create(&n->m->config, NULL, N_TOKENS, k, NULL, &p, &err));
    text_tokens(n, text, tokens);
    for (int t = 0; t < N_TOKENS; t++)
        model_embed(n->m, probe_positions(p), tokens[t], t, x + (size_t)t * D_MODEL);
    assert_column(n, text, X, x, k->name);
    for (int l = 0; l < n->m->config.n_layers; l++) {
        const struct block_taps taps = {
            .at = {
                [TAP_NORMED] = normed, [TAP_HEADS] = heads, [TAP_MIDDLE] = middle, [TAP_OUT] = x}};
        probe_run(p, &n->m->blocks[l], l, x, N_TOKENS, &taps);
        assert_column(n, text, BLOCK + (enum column)l, x, k->name);
        if (l > 0)
            continue;
        const struct matrix *w = &n->m->blocks[l].w[ROLE_ATTN_QKV].matrix;
        const struct matmul product = {.w = w,
                                       .x = normed,
                                       .x_stride = D_MODEL,
                                       .n_tokens = N_TOKENS,
                                       .y = qkv,
                                       .y_stride = (size_t)w->n_out};
        k->matmul(&product, 0, matrix_panels(w->n_out));
        assert_column(n, text, LN1, normed, k->name);
        assert_column(n, text, QKV, qkv, k->name);
        assert_column(n, text, Y, heads, k->name);
        assert_column(n, text, ATTN_RESID, middle, k->name);
    }
    probe_free(p);
    struct session *s = open_session(n, k);
    expect_ok(session_feed(s, 0, tokens, N_TOKENS, logits, &err));
    assert_column(n, text, LOGITS, logits, k->name);
    session_free(s);
}

TEST(activations_are_the_authors)
{
    struct nano n = open_nano();
    for (int i = 0; kernels_at(i); i++)
        for (int text = 0; text < N_TEXTS && kernels_supported(kernels_at(i)); text++)
            check_text(&n, text, kernels_at(i));
    close_nano(&n);
}

static int32_t likeliest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* All 3^6 texts: so does scripts/reference_model.py with its file, each letter by 2.9 or more. */
TEST(it_sorts)
{
    enum { INPUTS = 729 };
    struct nano n = open_nano();
    struct session *s = open_session(&n, NULL);
    for (int input = 0; input < INPUTS; input++) {
        int32_t letters[LETTERS];
        int count[N_VOCAB] = {0}, rest = input;
        for (int i = 0; i < LETTERS; i++, rest /= N_VOCAB) {
            letters[i] = rest % N_VOCAB;
            count[letters[i]]++;
        }
        session_rewind(s, 0, 0);
        expect_ok(session_feed(s, 0, letters, LETTERS, NULL, &err));
        for (int i = 0; i < LETTERS; i++) {
            const int32_t next = likeliest(session_logits(s));
            const int32_t expected = i < count[0] ? 0 : i < count[0] + count[1] ? 1 : 2;
            ck_assert_msg(next == expected, "input %d: letter %d is %d, not %d", input, i, next,
                          expected);
            if (i + 1 < LETTERS)
                expect_ok(session_feed(s, 0, &next, 1, NULL, &err));
        }
    }
    session_free(s);
    close_nano(&n);
}
