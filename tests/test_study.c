/*
 * The study's plan (names, order, what is made from what), its means, and its records: what
 * is written is read again, and files that others changed are refused by name. Folders of other
 * studies, and runs side by side, are study.sh's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "study/study.h"
#include "support.h"

static struct config eight_heads(void)
{
    struct config c =
        config_sized("gpt2", "layers=2 heads=8 kv=8 dim=4 width=32 ff=32 ctx=16 vocab=256");
    config_complete(&c);
    return c;
}

/* Two seeds at 0, 0.5 and 5% of 100 steps: MHA; MQA and GQA-2 by two methods and from scratch; two
 * ranks. */
static struct study_plan small_study(const struct config *c, bool taught)
{
    static const double alphas[] = {5, 0, 0.5};
    static const struct study_cell kinds[] = {
        {.kv_heads = 8, .method = STUDY_MHA},     {.kv_heads = 1, .method = STUDY_FIT},
        {.kv_heads = 1, .method = STUDY_SCRATCH}, {.kv_heads = 2, .method = STUDY_FIT},
        {.kv_heads = 2, .method = STUDY_SCRATCH}, {.kv_heads = 2, .method = STUDY_MEAN},
        {.kv_heads = 1, .method = STUDY_MEAN},    {1, 1, 4, .method = STUDY_LATENT},
        {1, 1, 32, .method = STUDY_LATENT}};
    struct study_plan plan = {
        .config = c, .first_seed = 7, .n_seeds = 2, .n_steps = 100, .taught = taught};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        expect_ok(study_plan_add(&plan, kinds[i], alphas, kinds[i].method == STUDY_SCRATCH ? 1 : 3,
                                 &err));
    return plan;
}

static struct study_cell *cell_named(const struct study_plan *plan, const char *name)
{
    for (int i = 0; i < plan->n; i++)
        if (strcmp(plan->cells[i].name, name) == 0)
            return &plan->cells[i];
    ck_abort_msg("no cell %s", name);
}

/* --- the plan -------------------------------------------------------------------------------- */

/* Every cell of seed 7, that of seed 8 behind it, with its steps and what it is made from. */
TEST(cells_are_named_ordered_and_made_from_earlier_ones)
{
    static const struct {
        const char *name, *origin;
        int steps;
    } expected[] = {
        {"mha-a0", NULL, 100},
        {"mha-a0.5", "mha-a0", 1},
        {"mha-a5", "mha-a0", 5},
        {"gqa2-mean-a0", "mha-a0", 0},
        {"gqa2-mean-a0.5", "gqa2-mean-a0", 1},
        {"gqa2-mean-a5", "gqa2-mean-a0", 5},
        {"gqa2-fit-a0", "mha-a0", 0},
        {"gqa2-fit-a0.5", "gqa2-fit-a0", 1},
        {"gqa2-fit-a5", "gqa2-fit-a0", 5},
        {"gqa2-scratch-a5", NULL, 105},
        {"mqa-mean-a0", "mha-a0", 0},
        {"mqa-mean-a0.5", "mqa-mean-a0", 1},
        {"mqa-mean-a5", "mqa-mean-a0", 5},
        {"mqa-fit-a0", "mha-a0", 0},
        {"mqa-fit-a0.5", "mqa-fit-a0", 1},
        {"mqa-fit-a5", "mqa-fit-a0", 5},
        {"mqa-scratch-a5", NULL, 105},
        {"mla32-latent-a0", "mha-a0", 0},
        {"mla32-latent-a0.5", "mla32-latent-a0", 1},
        {"mla32-latent-a5", "mla32-latent-a0", 5},
        {"mla4-latent-a0", "mha-a0", 0},
        {"mla4-latent-a0.5", "mla4-latent-a0", 1},
        {"mla4-latent-a5", "mla4-latent-a0", 5},
    };
    const struct config c = eight_heads();
    struct study_plan plan = small_study(&c, false);
    ck_assert_int_eq(plan.n, 2 * (int)(COUNT(expected)));
    for (int i = 0; i < plan.n; i++) {
        const struct study_cell *cell = &plan.cells[i], *origin = study_origin(&plan, cell);
        ck_assert(cell->seed == 7 + (uint64_t)i % 2 && cell->name[1] == '7' + i % 2);
        ck_assert_str_eq(cell->name + 3, expected[i / 2].name);
        ck_assert_int_eq(cell->steps, expected[i / 2].steps);
        ck_assert_pstr_eq(origin ? origin->name + 3 : NULL, expected[i / 2].origin);
        ck_assert(!origin || (origin < cell && origin->seed == cell->seed));
        ck_assert_ptr_eq(study_base(&plan, cell), &plan.cells[i % 2]);
    }
    study_plan_free(&plan);
    /* Taught ones come beside the others of more than no steps, and begin with the conversion. */
    plan = small_study(&c, true);
    ck_assert_int_eq(plan.n, 2 * (23 + 12));
    ck_assert_ptr_eq(study_origin(&plan, cell_named(&plan, "s8-mqa-fit-taught-a5")),
                     cell_named(&plan, "s8-mqa-fit-a0"));
    study_plan_free(&plan);
    plan = (struct study_plan){.config = &c, .n_seeds = 1, .n_steps = 2000000000};
    expect_status(study_plan_add(&plan, (struct study_cell){.kv_heads = 8},
                                 (const double[]){0, 100}, 2, &err),
                  STATUS_USAGE, "100% more than 2000000000 steps");
    study_plan_free(&plan);
}

/* Several numbers of query heads: each has its own MHA checkpoint, the fewest first. */
TEST(cells_by_query_heads)
{
    static const int numbers[] = {8, 2};
    static const char *const names[] = {"s7-h2-mha-a0", "s7-h2-mqa-scratch-a5", "s7-h8-mha-a0",
                                        "s7-h8-mqa-scratch-a5"};
    struct study_plan plan = {.first_seed = 7, .n_seeds = 1, .n_steps = 100};
    for (int i = 0; i < 2; i++) {
        struct config c = eight_heads();
        c.n_heads = c.n_kv_heads = numbers[i];
        plan.config = &c;
        struct study_cell cell = {.kv_heads = numbers[i], .by_heads = true};
        expect_ok(study_plan_add(&plan, cell, (const double[]){0}, 1, &err));
        c.d_ff = 40;
        cell = (struct study_cell){.kv_heads = 1, .method = STUDY_SCRATCH, .by_heads = true};
        expect_ok(study_plan_add(&plan, cell, (const double[]){5}, 1, &err));
    }
    ck_assert_int_eq(plan.n, 4);
    for (int i = 0; i < 4; i++) {
        const struct study_cell *cell = &plan.cells[i];
        ck_assert_str_eq(cell->name, names[i]);
        ck_assert(cell->heads == numbers[i < 2] && cell->d_ff == (i % 2 ? 40 : 32));
        ck_assert_ptr_eq(study_base(&plan, cell), &plan.cells[i - i % 2]);
    }
    study_plan_free(&plan);
}

TEST(means_are_over_the_seeds_that_are_done)
{
    const struct config c = eight_heads();
    struct study_plan plan = small_study(&c, false);
    static const struct {
        const char *name;
        double bits;
    } done[] = {{"s7-mha-a5", 2},
                {"s8-mha-a5", 3},
                {"s7-mqa-fit-a5", 2.5},
                {"s8-mqa-fit-a5", 4.5},
                {"s7-mqa-fit-a0", 6}};
    for (size_t i = 0; i < COUNT(done); i++) {
        struct study_cell *cell = cell_named(&plan, done[i].name);
        cell->done = true;
        cell->bits_per_byte = done[i].bits;
    }
    expect_ok(study_means(&plan, &err));
    const struct study_mean *m = plan.means;
    ck_assert_int_eq(plan.n_means, 3);
    ck_assert_str_eq(m[2].line, "MQA, fit");
    ck_assert_str_eq(m[0].of.variant, "MHA");
    ck_assert_double_eq(m[0].over_mha, 0);
    /* One seed: no deviation; its control is not done. */
    ck_assert(m[1].n_seeds == 1 && m[1].of.bits_per_byte == 6 && isnan(m[1].deviation) &&
              isnan(m[1].over_mha));
    /* Two: the deviation of 2.5 and 4.5 is the root of 2; over the control 0.5 and 1.5. */
    ck_assert(m[2].n_seeds == 2 && m[2].of.bits_per_byte == 3.5);
    ck_assert_double_eq_tol(m[2].deviation, 1.41421356237309505, 1e-15);
    ck_assert(m[2].least == 2.5 && m[2].most == 4.5 && m[2].over_mha == 1);
    study_plan_free(&plan);
}

/* --- records --------------------------------------------------------------------------------- */

static char folder[512];

static void begin_folder(void)
{
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
}

static void put_file(const char *name, const char *content)
{
    write_file(study_path(folder, name, "").text, content, strlen(content));
}

static void expect_file(const char *name, const char *content)
{
    size_t n;
    const char *bytes = file_text(study_path(folder, name, "").text, &n);
    ck_assert_msg(n == strlen(content) && memcmp(bytes, content, n) == 0, "%s has '%.*s'", name,
                  (int)n, bytes);
}

TEST(records_come_back_as_they_were)
{
    const struct config c = eight_heads();
    struct study_cell cells[] = {
        {UINT64_MAX, 2, 0, STUDY_FIT, .alpha = 0.5, .steps = 3, .bits_per_byte = 2.1000000000000001,
         .cache_bytes_per_token = 1024, .seconds = 0.25},
        {1, 1, 12, STUDY_LATENT, .bits_per_byte = 2.5, .cache_bytes_per_token = 96}};
    begin_folder();
    for (int i = 0; i < 2; i++) {
        study_cell_complete(&cells[i], &c);
        struct study_cell again = cells[i];
        again.bits_per_byte = again.seconds = 0;
        again.cache_bytes_per_token = 0;
        expect_ok(study_record_read(folder, &again, &err));
        ck_assert(!again.done);
        expect_ok(study_record_write(folder, &cells[i], &err));
        expect_ok(study_record_read(folder, &again, &err));
        ck_assert(again.done && again.bits_per_byte == cells[i].bits_per_byte &&
                  again.cache_bytes_per_token == cells[i].cache_bytes_per_token &&
                  again.seconds == cells[i].seconds);
    }
    expect_file("s1-mla12-latent-a0.json",
                "{\"cell\": \"s1-mla12-latent-a0\", \"seed\": 1, \"heads\": 8, \"d_ff\": 32, "
                "\"kv_heads\": 1, \"latent\": 12, "
                "\"method\": \"latent\", \"taught\": false, \"alpha\": 0, \"steps\": 0, "
                "\"bits_per_byte\": 2.5, \"cache_bytes_per_token\": 96, \"seconds\": 0}\n");
    cells[1].latent = 13; /* the name is that of 12 still */
    expect_status(study_record_read(folder, &cells[1], &err), STATUS_BAD_FILE,
                  "expected the record of");
    ck_assert_int_eq(remove(study_path(folder, cells[1].name, ".json").text), 0);
    expect_ok(study_results_write(folder, &err));
    expect_file("results.jsonl",
                "{\"cell\": \"s18446744073709551615-gqa2-fit-a0.5\", \"seed\": "
                "18446744073709551615, \"heads\": 8, \"d_ff\": 32, \"kv_heads\": 2, \"latent\": 0, "
                "\"method\": \"fit\", "
                "\"taught\": false, \"alpha\": 0.5, \"steps\": 3, \"bits_per_byte\": 2.1, "
                "\"cache_bytes_per_token\": 1024}\n");
}

#define RECORD                                                                                     \
    "{\"cell\": \"s1-mqa-fit-a5\", \"seed\": 1, \"heads\": 8, \"d_ff\": 32, \"kv_heads\": 1, "     \
    "\"latent\": 0, \"method\": "                                                                  \
    "\"fit\", \"taught\": false, \"alpha\": 5, \"steps\": 50, \"bits_per_byte\": 2.5, "            \
    "\"cache_bytes_per_token\": 512, \"seconds\": 1}\n"

TEST(damaged_records_are_refused_by_name)
{
    static const char *const bent[][2] = {
        {RECORD, ""},
        {RECORD, "[]"},
        {RECORD, RECORD RECORD},
        {"\"cell\": \"s1-mqa-fit-a5\"", "\"cell\": \"s2-mqa-fit-a5\""},
        {"\"seed\": 1", "\"seed\": 2"},
        {"\"kv_heads\": 1", "\"kv_heads\": 4294967297"},
        {"\"heads\": 8", "\"heads\": 4"},
        {"\"d_ff\": 32", "\"d_ff\": 33"},
        {"\"latent\": 0, ", ""},
        {"\"latent\": 0", "\"latent\": 4294967300"},
        {"\"latent\": 0", "\"latent\": 4"},
        {"\"method\": \"fit\"", "\"method\": \"mean\""},
        {"\"taught\": false", "\"taught\": 0"},
        {"\"alpha\": 5", "\"alpha\": -5"},
        {"\"steps\": 50", "\"steps\": 49"},
        {"\"bits_per_byte\": 2.5, ", ""},
        {"\"bits_per_byte\": 2.5", "\"bits_per_byte\": null"},
        {"\"seconds\": 1", "\"seconds\": \"1\""},
        {"\"seconds\": 1", "\"seconds\": 1, \"seconds\": 2"},
    };
    const struct config c = eight_heads();
    struct study_cell cell = {
        .seed = 1, .kv_heads = 1, .method = STUDY_FIT, .alpha = 5, .steps = 50};
    study_cell_complete(&cell, &c);
    begin_folder();
    put_file("s1-mqa-fit-a5.json", RECORD);
    expect_ok(study_record_read(folder, &cell, &err));
    ck_assert(cell.done);
    for (size_t i = 0; i < COUNT(bent); i++) {
        static const char record[] = RECORD;
        char content[2000];
        const char *at = strstr(record, bent[i][0]); /* one piece of it is replaced */
        snprintf(content, sizeof content, "%.*s%s%s", (int)(at - record), record, bent[i][1],
                 at + strlen(bent[i][0]));
        put_file("s1-mqa-fit-a5.json", content);
        expect_status(study_record_read(folder, &cell, &err), STATUS_BAD_FILE,
                      "s1-mqa-fit-a5.json: expected the");
    }
}

/* Others may have put anything beside them; what is called as a record is must be one. */
TEST(results_have_every_record_and_nothing_else)
{
    begin_folder();
    put_file("s1-mqa-fit-a5.json", RECORD);
    put_file("study.json", "anything");
    put_file("notes.json", "{}");
    put_file("s1-mqa-fit-a5.part.gguf", "x");
    expect_ok(study_results_write(folder, &err));
    expect_file("results.jsonl",
                "{\"cell\": \"s1-mqa-fit-a5\", \"seed\": 1, \"heads\": 8, \"d_ff\": 32, "
                "\"kv_heads\": 1, \"latent\": 0, "
                "\"method\": \"fit\", \"taught\": false, \"alpha\": 5, \"steps\": 50, "
                "\"bits_per_byte\": 2.5, "
                "\"cache_bytes_per_token\": 512}\n");
    put_file("s2-mqa-fit-a5.json", RECORD);
    expect_status(study_results_write(folder, &err), STATUS_BAD_FILE, "s2-mqa-fit-a5.json");
}
