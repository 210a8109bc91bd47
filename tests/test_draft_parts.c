/* What drafts are made of: copies of a text's end against a search of all of it, how many tokens to
 * draft as a function of what was measured, and models made of another's weights. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "engine/sampler.h"
#include "engine/schedule.h"
#include "formats/gguf.h"
#include "model/cost.h"
#include "model/model.h"
#include "model/pack.h"
#include "opened.h"
#include "support.h"

/* --- copies ---------------------------------------------------------------------------------- */

TEST(copies_are_found, .tags = ONE_THREAD)
{
    static const struct {
        const char *text; /* a token a letter */
        int found, length;
    } cases[] = {
        {"", 0, 1},         {"a", 0, 1},
        {"aa", 0, 1},       {"aaa", 2, 2},
        {"aaaa", 3, 3},     {"abcab", 2, 2},
        {"abcabc", 3, 3},   {"xabcyabczabc", 8, 3} /* the latest of equals */,
        {"abab", 2, 2},     {"xabcyzbcxabc", 4, 4},
        {"bcabcxbc", 5, 2}, {"abcdefgh", 0, 1},
    };
    int32_t text[300];
    int length;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int n = (int)strlen(cases[i].text);
        for (int k = 0; k < n; k++)
            text[k] = cases[i].text[k];
        const int found = copy_find(text, n, &length);
        ck_assert_msg(found == cases[i].found && length == cases[i].length, "%s: %d of %d",
                      cases[i].text, found, length);
    }
    /* The longest is told apart up to COPY_MOST tokens; an old one is behind too many others. */
    for (int i = 0; i < 300; i++)
        text[i] = i % 100;
    ck_assert(copy_find(text, 300, &length) == 200 && length == COPY_MOST);
    for (int i = 0; i < 300; i++)
        text[i] = i < 5 ? i : i < 297 ? 7 + i % 2 : i - 295;
    ck_assert(copy_find(text, 300, &length) == 5 && length == 3);
    for (int i = 0; i < 300; i++)
        text[i] = i < 3 || i > 296 ? i % 297 : i % 3 ? 1 + i % 3 / 2 : 9;
    ck_assert(copy_find(text, 300, &length) > 200 && length == 2);
}

/* --- how many to draft ----------------------------------------------------------------------- */

static struct arena pace_arena; /* of the last one */

static void free_pace(void *arena)
{
    arena_free(arena);
}

/* For steps of up to 9 rows; until the test ends, or release_all. */
static struct draft_pace new_pace(double cost)
{
    struct draft_pace p = {.most = 8, .cost = cost};
    pace_arena = (struct arena){0};
    pace_take(&p, &pace_arena, 9);
    expect_ok(arena_allocate(&pace_arena, "pace", &err));
    pace_take(&p, &pace_arena, 9);
    released_by(free_pace, &pace_arena);
    return p;
}

/* The levels that the pace thinks of. */
static int choose(const struct draft_pace *p, double level_ns, int lag)
{
    struct draft_level levels[8];
    bool trying;
    for (int i = 0; i < 8; i++)
        levels[i] = (struct draft_level){pace_share(p, 0, i), 1};
    return pace_choose(p, 1, levels, 8, level_ns, lag, &trying);
}

static void tell_step(struct draft_pace *p, int rows, double ns)
{
    for (int i = 0; i < 60; i++)
        pace_round(p, &(struct draft_round){.base = rows, .rows = rows, .tokens = rows, .ns = ns});
}

/* Against the formula: 1 + a + ... + a^k tokens in a step's time and k drafts'. */
TEST(the_best_number_is_chosen, .tags = ONE_THREAD)
{
    static const double shares[] = {0.2, 0.5, 0.8, 0.95}, drafts[] = {0, 0.05, 0.15, 0.5, 1};
    struct draft_pace p = new_pace(0);
    for (int rows = 1; rows <= 9; rows++)
        tell_step(&p, rows, 100 + 6 * (rows - 1));
    for (size_t i = 0; i < COUNT(shares) * COUNT(drafts); i++) {
        const double share = shares[i % 4], draft = 100 * drafts[i / 4];
        struct draft_level levels[8];
        double best_rate = 1.02 / 100;
        int best = 0;
        for (int k = 1; k <= 8; k++) {
            levels[k - 1] = (struct draft_level){pow(share, k), 1};
            const double rate = (1 - pow(share, k + 1)) / (1 - share) / (100 + 6 * k + k * draft);
            if (rate > best_rate) {
                best_rate = rate;
                best = k;
            }
        }
        bool trying;
        const int chosen = pace_choose(&p, 1, levels, 8, draft, 0, &trying);
        ck_assert_int_eq(trying ? 0 : chosen, best);
    }
}

/* A draft as it goes: tokens are right by `share`, a step of r rows takes 1000 + row (r - 1), a
 * token drafted `draft`. Gives the tokens a step's time that come out. */
static double simulate(double share, double row, double draft, int n_tokens)
{
    struct draft_pace p = new_pace(draft / 1000);
    struct rng r;
    double total = 0;
    int made = 0;
    rng_seed(&r, 3, 3);
    while (made < n_tokens) {
        const int k = choose(&p, pace_draft_ns(&p, 1), 0);
        int right = 0;
        bool going = true;
        for (int i = 0; i < k && going; i++) {
            going = rng_unit(&r) < share;
            pace_saw(&p, 0, i, going);
            right += going;
        }
        const double noise = 1 + 0.1 * rng_unit(&r);
        const struct draft_round round = {.base = 1,
                                          .rows = 1 + k,
                                          .levels = k,
                                          .tokens = 1 + right,
                                          .ns = noise * (1000 + row * k),
                                          .draft_ns = noise * draft * k};
        pace_round(&p, &round);
        total += round.ns + round.draft_ns;
        made += 1 + right;
    }
    release_all();
    return made * 1050.0 / total;
}

/* Never slower than 3% below no draft, whatever it is; near the best where that is faster: of 0.9,
 * rows of 5%, drafts of 15%, k = 5 makes 4.69 tokens in 2.0 steps. */
TEST(drafts_that_do_not_pay_cost_little, .tags = ONE_THREAD)
{
    static const double shares[] = {0, 0.1, 0.3, 0.6}, rows[] = {20, 200, 900},
                        drafts[] = {0, 100, 500, 1500};
    for (int i = 0; i < 48; i++) {
        const double rate = simulate(shares[i % 4], rows[i / 4 % 3], drafts[i / 12], 2000);
        ck_assert_msg(rate > 0.97, "share %g, row %g, draft %g: %g", shares[i % 4], rows[i / 4 % 3],
                      drafts[i / 12], rate);
    }
    const double rate = simulate(0.9, 50, 150, 2000);
    ck_assert_msg(rate > 0.93 * 4.69 / 2.0, "%g", rate);
}

/* A number that was asked for is drafted whatever comes of it. */
TEST(a_fixed_number_stays, .tags = ONE_THREAD)
{
    struct draft_pace p = new_pace(1);
    p.fixed = true;
    for (int i = 0; i < 100; i++)
        pace_saw(&p, 0, 0, false);
    ck_assert_int_eq(choose(&p, 5, 1000), 8);
}

/* --- models of another's weights ------------------------------------------------------------- */

static const char *const paths[] = {
    "tests/data/golden/mha.gguf", "tests/data/golden/llama-tied.gguf",
    "tests/data/golden/shared-block.gguf", "tests/data/golden/mqa-f16.gguf"};

/* Every row as the type's own definition rounds it; where no row is whole blocks, as it was. */
static void expect_rounded(const struct matrix *from, const struct matrix *to, enum storage storage)
{
    float row[512], rounded[512], found[512];
    unsigned char encoded[sizeof row];
    ck_assert_int_le(from->n_in, 512);
    if (from->n_in % QUANT_BLOCK) {
        ck_assert_ptr_eq(to->panels, from->panels);
        return;
    }
    ck_assert_int_eq(to->storage, storage);
    for (int r = 0; r < from->n_out; r++) {
        pack_read_row(from, r, row);
        blocks_encode(pack_type(storage), encoded, row, (uint64_t)from->n_in);
        blocks_decode(pack_type(storage), rounded, encoded, (uint64_t)from->n_in);
        pack_read_row(to, r, found);
        ck_assert_int_eq(memcmp(rounded, found, (size_t)from->n_in * sizeof *row), 0);
    }
}

/* What is no matrix is borrowed. */
TEST(packed_is_rounded, .loops = 8)
{
    struct model *packed;
    const enum storage storage = _i & 1 ? STORAGE_Q8_0 : STORAGE_Q4_0;
    struct checkpoint c = opened_checkpoint(paths[_i / 2], CHECKPOINT_MODEL);
    struct pool *pool = new_pool(2);
    expect_ok(derived_create_packed(c.model, storage, pool, &packed, &err));
    for (int l = 0; l < c.model->config.n_layers; l++) {
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
            const struct weight *from = &c.model->blocks[l].w[role];
            const struct weight *to = &packed->blocks[l].w[role];
            ck_assert(to->norm.gain == from->norm.gain && to->table == from->table);
            ck_assert_ptr_eq(to->matrix.bias, from->matrix.bias);
            if (from->matrix.panels)
                expect_rounded(&from->matrix, &to->matrix, storage);
        }
    }
    expect_rounded(&c.model->w[ROLE_OUTPUT].matrix, &packed->w[ROLE_OUTPUT].matrix, storage);
    ck_assert_ptr_eq(packed->w[ROLE_TOKEN_EMBD].matrix.panels,
                     c.model->w[ROLE_TOKEN_EMBD].matrix.panels);
    ck_assert_int_eq(packed->tied, packed->w[ROLE_OUTPUT].matrix.panels ==
                                       packed->w[ROLE_TOKEN_EMBD].matrix.panels);
    ck_assert(cost_model_bytes(packed) < cost_model_bytes(c.model));
    model_free(packed);
    pool_free(pool);
}

TEST(what_cannot_be_made_is_refused, .tags = ONE_THREAD)
{
    struct model *m;
    struct checkpoint c = opened_checkpoint("models/shakespeare-mqa.gguf", CHECKPOINT_MODEL);
    expect_status(derived_create_packed(c.model, STORAGE_F32, NULL, &m, &err), STATUS_USAGE,
                  "no matrix of the checkpoint takes fewer bytes as f32");
    ck_assert_ptr_null(m);
}
