/*
 * Compares a model that sorts three letters with the activations that its author published from
 * PyTorch (llm-viz, MIT; tests/engine/make_nano_sort.py makes tests/data/real).
 */
#include <math.h>
#include <string.h>

#include "checkpoints.h"
#include "kernel_data.h"
#include "opened.h"

#define TOLERANCE 2e-4

/* Sizes of the model. */
#define N_TEXTS  3
#define N_TOKENS 11
#define N_VOCAB  3
#define D_MODEL  48

/* The columns of a row of the file: the token, then its activations. */
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

static struct model *m;
static float truth[N_TEXTS * N_TOKENS][ROW];

static void open_nano(void)
{
    m = opened_checkpoint("tests/data/real/nano-sort.gguf", CHECKPOINT_MODEL).model;
    memcpy(truth, read_npy("tests/data/real/nano-sort.npy", sizeof truth / sizeof(float)),
           sizeof truth);
}

/* Compares all positions of a text; found [N_TOKENS, columns[c].n]. */
static void assert_column(int text, enum column c, const float *found, const char *isa)
{
    for (int t = 0; t < N_TOKENS; t++) {
        const float *expected = truth[text * N_TOKENS + t] + columns[c].at;
        for (int i = 0; i < columns[c].n; i++, found++)
            ck_assert_msg(fabsf(*found - expected[i]) <= (float)TOLERANCE,
                          "%s: %s[%d, %d, %d] is %.7g, not %.7g", isa, columns[c].name, text, t, i,
                          (double)*found, (double)expected[i]);
    }
}

/* Compares the inside of block 0, the output of each block, and the logits. */
static void check_text(int text, const struct kernels *k)
{
    float x[N_TOKENS * D_MODEL], normed[N_TOKENS * D_MODEL], heads[N_TOKENS * D_MODEL];
    float middle[N_TOKENS * D_MODEL], qkv[N_TOKENS * 3 * D_MODEL], logits[N_TOKENS * N_VOCAB];
    int32_t tokens[N_TOKENS];
    struct probe *p = new_probe(m, N_TOKENS, k);
    for (int t = 0; t < N_TOKENS; t++) {
        tokens[t] = (int32_t)truth[text * N_TOKENS + t][columns[IDX].at];
        probe_embed(p, m, tokens[t], t, x + (size_t)t * D_MODEL);
    }
    assert_column(text, X, x, k->name);
    for (int l = 0; l < m->config.n_layers; l++) {
        const struct block_taps taps = {
            .at = {
                [TAP_NORMED] = normed, [TAP_HEADS] = heads, [TAP_MIDDLE] = middle, [TAP_OUT] = x}};
        probe_run(p, &m->blocks[l], l, x, N_TOKENS, &taps);
        assert_column(text, BLOCK + (enum column)l, x, k->name);
        if (l > 0)
            continue;
        const struct matrix *w = &m->blocks[l].w[ROLE_ATTN_QKV].matrix;
        const struct matmul product = {w,        normed, D_MODEL,          NULL,
                                       N_TOKENS, qkv,    (size_t)w->n_out, EPILOGUE_STORE};
        k->matmul(&product, 0, matrix_panels(w->n_out));
        assert_column(text, LN1, normed, k->name);
        assert_column(text, QKV, qkv, k->name);
        assert_column(text, Y, heads, k->name);
        assert_column(text, ATTN_RESID, middle, k->name);
    }
    struct session *s = new_session(m, &(struct session_params){.kernels = k}, NULL);
    expect_ok(session_feed(s, 0, tokens, N_TOKENS, logits, true, &err));
    assert_column(text, LOGITS, logits, k->name);
}

TEST(activations_are_the_authors, .loops = N_TEXTS, .before = open_nano)
{
    for (const struct kernels *k = NULL; (k = next_kernels(k));)
        check_text(_i, k);
}
