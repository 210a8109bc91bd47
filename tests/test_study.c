/*
 * The study's plan (names, order, what is made from what), its means, and its records: what
 * is written is read again, and files that others changed are refused by name.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "study/study.h"
#include "support.h"

static struct config eight_heads(void)
{
    struct config c = {SIZES(2, 8, 0, 0, 32, 16, 0), .d_model = 32};
    config_set_arch(&c, arch_at(0));
    c.n_vocab = 256;
    config_complete(&c);
    return c;
}

/* Lists that end with a 0, but for shares, which a negative one ends. */
struct wanted {
    struct study_plan plan;
    int kv_heads[3];
    enum study_method methods[3];
    int ranks[3];
    double alphas[4], scratch[2];
};

static struct wanted small_study(const struct config *c)
{
    return (struct wanted){
        .plan = {.config = c, .first_seed = 7, .n_seeds = 2, .n_steps = 100},
        .kv_heads = {1, 2},
        .methods = {STUDY_FIT, STUDY_MEAN},
        .alphas = {5, 0, 0.5, -1},
        .scratch = {5, -1},
    };
}

static void add_cells(struct study_plan *plan, const struct study_cell cell, const double *shares)
{
    int n = 0;
    while (shares[n] >= 0)
        n++;
    expect_ok(study_plan_add(plan, cell, shares, n, &err));
}

static struct study_plan plan_of(const struct wanted *w)
{
    struct study_plan plan = w->plan;
    struct study_cell cell = {.kv_heads = plan.config->n_heads, .method = STUDY_MHA};
    add_cells(&plan, cell, w->alphas);
    for (const int *g = w->kv_heads; *g; g++) {
        cell = (struct study_cell){.kv_heads = *g, .method = STUDY_SCRATCH};
        add_cells(&plan, cell, w->scratch);
        for (const enum study_method *m = w->methods; *m; m++) {
            cell.method = *m;
            add_cells(&plan, cell, w->alphas);
        }
    }
    for (const int *r = w->ranks; *r; r++) {
        cell = (struct study_cell){.kv_heads = 1, .latent = *r, .method = STUDY_LATENT};
        add_cells(&plan, cell, w->alphas);
    }
    study_plan_sort(&plan);
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

TEST(cells_are_named_and_ordered)
{
    static const char *const expected[] = {
        "s7-mha-a0",         "s8-mha-a0",         "s7-mha-a0.5",        "s8-mha-a0.5",
        "s7-mha-a5",         "s8-mha-a5",         "s7-gqa2-mean-a0",    "s8-gqa2-mean-a0",
        "s7-gqa2-mean-a0.5", "s8-gqa2-mean-a0.5", "s7-gqa2-mean-a5",    "s8-gqa2-mean-a5",
        "s7-gqa2-fit-a0",    "s8-gqa2-fit-a0",    "s7-gqa2-fit-a0.5",   "s8-gqa2-fit-a0.5",
        "s7-gqa2-fit-a5",    "s8-gqa2-fit-a5",    "s7-gqa2-scratch-a5", "s8-gqa2-scratch-a5",
        "s7-mqa-mean-a0",    "s8-mqa-mean-a0",    "s7-mqa-mean-a0.5",   "s8-mqa-mean-a0.5",
        "s7-mqa-mean-a5",    "s8-mqa-mean-a5",    "s7-mqa-fit-a0",      "s8-mqa-fit-a0",
        "s7-mqa-fit-a0.5",   "s8-mqa-fit-a0.5",   "s7-mqa-fit-a5",      "s8-mqa-fit-a5",
        "s7-mqa-scratch-a5", "s8-mqa-scratch-a5",
    };
    const struct config c = eight_heads();
    const struct wanted w = small_study(&c);
    struct study_plan plan = plan_of(&w);
    ck_assert_int_eq(plan.n, (int)(sizeof expected / sizeof *expected));
    for (int i = 0; i < plan.n; i++)
        ck_assert_str_eq(plan.cells[i].name, expected[i]);
    study_plan_free(&plan);
}

TEST(steps_are_the_percents_and_at_least_one)
{
    const struct config c = eight_heads();
    struct wanted w = small_study(&c);
    struct study_plan plan = plan_of(&w);
    ck_assert_int_eq(cell_named(&plan, "s7-mha-a0")->steps, 100);
    ck_assert_int_eq(cell_named(&plan, "s7-mha-a0.5")->steps, 1);
    ck_assert_int_eq(cell_named(&plan, "s7-gqa2-mean-a0")->steps, 0);
    ck_assert_int_eq(cell_named(&plan, "s7-gqa2-mean-a5")->steps, 5);
    ck_assert_int_eq(cell_named(&plan, "s8-mqa-scratch-a5")->steps, 105);
    study_plan_free(&plan);
    plan = w.plan;
    plan.n_steps = 2000000000;
    const struct study_cell cell = {.kv_heads = 8, .method = STUDY_MHA};
    ck_assert_int_eq(study_plan_add(&plan, cell, (const double[]){0, 100}, 2, &err), STATUS_USAGE);
    study_plan_free(&plan);
    ck_assert_msg(strstr(err.text, "100% more than 2000000000 steps") != NULL, "%s", err.text);
}

TEST(origins_come_before_what_is_made_from_them)
{
    const struct config c = eight_heads();
    struct wanted w = small_study(&c);
    w.plan.taught = true;
    struct study_plan plan = plan_of(&w);
    static const char *const pairs[][2] = {
        {"s8-mha-a5", "s8-mha-a0"},
        {"s8-gqa2-mean-a0", "s8-mha-a0"},
        {"s8-gqa2-mean-a0.5", "s8-gqa2-mean-a0"},
        {"s8-mqa-fit-taught-a5", "s8-mqa-fit-a0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        ck_assert_ptr_eq(study_origin(&plan, cell_named(&plan, pairs[i][0])),
                         cell_named(&plan, pairs[i][1]));
    ck_assert_ptr_null(study_origin(&plan, cell_named(&plan, "s7-mha-a0")));
    ck_assert_ptr_null(study_origin(&plan, cell_named(&plan, "s7-mqa-scratch-a5")));
    ck_assert_ptr_eq(study_base(&plan, cell_named(&plan, "s7-mqa-fit-taught-a5")),
                     cell_named(&plan, "s7-mha-a0"));
    for (int i = 0; i < plan.n; i++) {
        const struct study_cell *origin = study_origin(&plan, &plan.cells[i]);
        ck_assert(!origin || origin < &plan.cells[i]);
        ck_assert(study_base(&plan, &plan.cells[i])->seed == plan.cells[i].seed);
        ck_assert(!plan.cells[i].taught || plan.cells[i].alpha > 0);
    }
    study_plan_free(&plan);
}

TEST(latent_caches_come_after_heads)
{
    static const char *const expected[] = {
        "s7-mla32-latent-a0", "s8-mla32-latent-a0", "s7-mla32-latent-a5", "s8-mla32-latent-a5",
        "s7-mla4-latent-a0",  "s8-mla4-latent-a0",  "s7-mla4-latent-a5",  "s8-mla4-latent-a5",
    };
    const struct config c = eight_heads();
    struct wanted w = small_study(&c);
    struct study_plan without = plan_of(&w);
    w = (struct wanted){.plan = w.plan, .ranks = {4, 32}, .alphas = {0, 5, -1}, .scratch = {-1}};
    struct study_plan plan = plan_of(&w);
    /* Behind MHA at two shares. */
    ck_assert_int_eq(plan.n, 4 + (int)(sizeof expected / sizeof *expected));
    for (int i = 4; i < plan.n; i++) {
        const struct study_cell *cell = &plan.cells[i];
        ck_assert_str_eq(cell->name, expected[i - 4]);
        ck_assert_str_eq(cell->variant, i < 8 ? "MLA-32" : "MLA-4");
        ck_assert_str_eq(cell->method_name, "latent");
        ck_assert_int_eq(cell->kv_heads, 1);
        ck_assert(study_converts(cell->method) &&
                  strcmp(cell->variant, plan.cells[0].variant) != 0);
    }
    ck_assert_ptr_eq(study_origin(&plan, cell_named(&plan, "s8-mla4-latent-a5")),
                     cell_named(&plan, "s8-mla4-latent-a0"));
    ck_assert_ptr_eq(study_origin(&plan, cell_named(&plan, "s8-mla4-latent-a0")),
                     cell_named(&plan, "s8-mha-a0"));
    /* MQA is no latent cache, though both have one head. */
    ck_assert_str_eq(cell_named(&without, "s7-mqa-fit-a0")->variant, "MQA");
    study_plan_free(&without);
    study_plan_free(&plan);
}

/* --- means ----------------------------------------------------------------------------------- */

TEST(means_are_over_the_seeds_that_are_done)
{
    const struct config c = eight_heads();
    const struct wanted w = small_study(&c);
    struct study_plan plan = plan_of(&w);
    static const struct {
        const char *name;
        double bits;
    } done[] = {{"s7-mha-a5", 2},
                {"s8-mha-a5", 3},
                {"s7-mqa-fit-a5", 2.5},
                {"s8-mqa-fit-a5", 4.5},
                {"s7-mqa-fit-a0", 6}};
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        struct study_cell *cell = cell_named(&plan, done[i].name);
        cell->done = true;
        cell->bits_per_byte = done[i].bits;
    }
    struct study_mean *m;
    int n;
    expect_ok(study_means(&plan, &m, &n, &err));
    ck_assert_int_eq(n, 3);
    ck_assert_str_eq(m[0].of.variant, "MHA");
    ck_assert_double_eq(m[0].over_mha, 0);
    /* One seed: no deviation; its control is not done. */
    ck_assert_int_eq(m[1].n_seeds, 1);
    ck_assert(m[1].of.bits_per_byte == 6 && isnan(m[1].deviation) && isnan(m[1].over_mha));
    /* Two: the deviation of 2.5 and 4.5 is the root of 2; over the control 0.5 and 1.5. */
    ck_assert_int_eq(m[2].n_seeds, 2);
    ck_assert_double_eq(m[2].of.bits_per_byte, 3.5);
    ck_assert_double_eq_tol(m[2].deviation, 1.41421356237309505, 1e-15);
    ck_assert(m[2].least == 2.5 && m[2].most == 4.5 && m[2].over_mha == 1);
    free(m);
    study_plan_free(&plan);
}

/* --- records --------------------------------------------------------------------------------- */

static struct study_cell done_cell(const struct config *c)
{
    struct study_cell cell = {.seed = UINT64_MAX,
                              .kv_heads = 2,
                              .method = STUDY_FIT,
                              .alpha = 0.5,
                              .steps = 3,
                              .done = true,
                              .bits_per_byte = 2.1000000000000001,
                              .cache_bytes_per_token = 1024,
                              .seconds = 0.25};
    study_cell_complete(&cell, c);
    return cell;
}

static char folder[512];

static void begin_folder(void)
{
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
}

static void put_file(const char *name, const char *content)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fputs(content, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void expect_file(const char *name, const char *content)
{
    char path[700];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unsigned char *bytes = (unsigned char *)file_text(path, &n);
    ck_assert_msg(n == strlen(content) && memcmp(bytes, content, n) == 0, "%s has '%.*s'", name,
                  (int)n, (const char *)bytes);
}

TEST(records_come_back_as_they_were)
{
    const struct config c = eight_heads();
    const struct study_cell cell = done_cell(&c);
    struct study_cell again = cell;
    again.done = false;
    again.bits_per_byte = again.seconds = 0;
    again.cache_bytes_per_token = 0;
    begin_folder();
    expect_ok(study_record_read(folder, &again, &err));
    ck_assert(!again.done);
    expect_ok(study_record_write(folder, &cell, &err));
    expect_ok(study_record_read(folder, &again, &err));
    ck_assert(again.done && again.bits_per_byte == cell.bits_per_byte);
    ck_assert(again.cache_bytes_per_token == 1024 && again.seconds == 0.25);
    expect_ok(study_results_write(folder, &err));
    expect_file("results.jsonl",
                "{\"cell\": \"s18446744073709551615-gqa2-fit-a0.5\", \"seed\": "
                "18446744073709551615, \"kv_heads\": 2, \"latent\": 0, \"method\": \"fit\", "
                "\"taught\": false, \"alpha\": 0.5, \"steps\": 3, \"bits_per_byte\": 2.1, "
                "\"cache_bytes_per_token\": 1024}\n");
}

#define RECORD                                                                                     \
    "{\"cell\": \"s1-mqa-fit-a5\", \"seed\": 1, \"kv_heads\": 1, \"method\": \"fit\", "            \
    "\"taught\": false, \"alpha\": 5, \"steps\": 50, \"bits_per_byte\": 2.5, "                     \
    "\"cache_bytes_per_token\": 512, \"seconds\": 1}"

/* A sound record with one piece of it replaced, or nothing of it. */
static void bend(const char *from, const char *to, char *out, size_t size)
{
    const char *at = strstr(RECORD, from);
    ck_assert_ptr_nonnull(at);
    snprintf(out, size, "%.*s%s%s", (int)(at - RECORD), RECORD, to, at + strlen(from));
}

TEST(damaged_records_are_refused_by_name)
{
    static const char *const bent[][3] = {
        {RECORD, "", "expected"},
        {RECORD, "[]", "expected"},
        {RECORD, "{", "expected"},
        {RECORD, RECORD RECORD, "expected"},
        {"\"cell\": \"s1-mqa-fit-a5\"", "\"cell\": \"s2-mqa-fit-a5\"", "cell: expected"},
        {"\"cell\": \"s1-mqa-fit-a5\"", "\"cell\": 3", "cell"},
        {"\"seed\": 1", "\"seed\": -1", "seed"},
        {"\"seed\": 1", "\"seed\": 2", "expected the figures"},
        {"\"kv_heads\": 1", "\"kv_heads\": 4294967297", "kv_heads"},
        {"\"method\"", "\"latent\": -1, \"method\"", "latent"},
        {"\"method\"", "\"latent\": \"4\", \"method\"", "latent"},
        {"\"method\"", "\"latent\": 4294967300, \"method\"", "latent"},
        {"\"method\"", "\"latent\": 4, \"method\"", "expected the figures"},
        {"\"method\": \"fit\"", "\"method\": \"fitt\"", "method: expected"},
        {"\"method\": \"fit\"", "\"method\": \"mean\"", "expected the figures"},
        {"\"taught\": false", "\"taught\": 0", "taught"},
        {"\"alpha\": 5", "\"alpha\": -5", "alpha: expected"},
        {"\"alpha\": 5", "\"alpha\": 1e999", "alpha"},
        {"\"steps\": 50", "\"steps\": 49", "expected the figures of 50 steps"},
        {"\"steps\": 50", "\"steps\": 2147483648", "steps"},
        {"\"bits_per_byte\": 2.5, ", "", "bits_per_byte"},
        {"\"bits_per_byte\": 2.5", "\"bits_per_byte\": null", "bits_per_byte"},
        {"\"seconds\": 1", "\"seconds\": \"1\"", "seconds"},
        {"\"seconds\": 1", "\"seconds\": 1, \"seconds\": 2", "seconds"},
    };
    const struct config c = eight_heads();
    struct study_cell cell = {
        .seed = 1, .kv_heads = 1, .method = STUDY_FIT, .alpha = 5, .steps = 50};
    study_cell_complete(&cell, &c);
    begin_folder();
    put_file("s1-mqa-fit-a5.json", RECORD);
    expect_ok(study_record_read(folder, &cell, &err));
    ck_assert(cell.done);
    for (size_t i = 0; i < sizeof bent / sizeof *bent; i++) {
        char content[2000];
        bend(bent[i][0], bent[i][1], content, sizeof content);
        put_file("s1-mqa-fit-a5.json", content);
        ck_assert_msg(study_record_read(folder, &cell, &err) == STATUS_BAD_FILE, "taken: %s",
                      content);
        ck_assert_msg(strstr(err.text, "s1-mqa-fit-a5.json") && strstr(err.text, bent[i][2]), "%s",
                      err.text);
    }
}

TEST(records_of_latent_caches_say_their_rank)
{
    const struct config c = eight_heads();
    struct study_cell cell = {.seed = 1,
                              .kv_heads = 1,
                              .latent = 12,
                              .method = STUDY_LATENT,
                              .bits_per_byte = 2.5,
                              .cache_bytes_per_token = 96};
    study_cell_complete(&cell, &c);
    begin_folder();
    expect_ok(study_record_write(folder, &cell, &err));
    expect_file("s1-mla12-latent-a0.json",
                "{\"cell\": \"s1-mla12-latent-a0\", \"seed\": 1, \"kv_heads\": 1, \"latent\": 12, "
                "\"method\": \"latent\", \"taught\": false, \"alpha\": 0, \"steps\": 0, "
                "\"bits_per_byte\": 2.5, \"cache_bytes_per_token\": 96, \"seconds\": 0}\n");
    expect_ok(study_record_read(folder, &cell, &err));
    ck_assert(cell.done && cell.cache_bytes_per_token == 96);
    cell.latent = 13; /* the name is that of 12 still */
    expect_status(study_record_read(folder, &cell, &err), STATUS_BAD_FILE, "expected the figures");
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
                "{\"cell\": \"s1-mqa-fit-a5\", \"seed\": 1, \"kv_heads\": 1, \"latent\": 0, "
                "\"method\": \"fit\", \"taught\": false, \"alpha\": 5, \"steps\": 50, "
                "\"bits_per_byte\": 2.5, "
                "\"cache_bytes_per_token\": 512}\n");
    put_file("s2-mqa-fit-a5.json", RECORD);
    expect_status(study_results_write(folder, &err), STATUS_BAD_FILE, "s2-mqa-fit-a5.json");
}

TEST(a_folder_belongs_to_one_study)
{
    begin_folder();
    expect_ok(study_settings_keep(folder, "--steps 5", &err));
    expect_file("study.json", "{\"settings\": \"--steps 5\"}\n");
    expect_ok(study_settings_keep(folder, "--steps 5", &err));
    expect_status(study_settings_keep(folder, "--steps 6", &err), STATUS_USAGE,
                  "of another study: expected '{\"settings\": \"--steps 6\"}");
    put_file("study.json", "{\"settings\": 5}");
    expect_status(study_settings_keep(folder, "--steps 5", &err), STATUS_USAGE, "settings\": 5}");
}

/* Of another process; one's own are no hindrance, and other names are other locks. */
TEST(a_cell_is_one_runs_at_once)
{
    const char *dir = scratch_path("");
    int fd;
    bool taken;
    expect_ok(study_lock_open(dir, &fd, &err));
    expect_ok(study_lock_try(fd, "s1-mha-a0", &taken, &err));
    ck_assert(taken);
    for (int other = 0; other < 3; other++) {
        if (other == 2)
            study_unlock(fd, "s1-mha-a0");
        const pid_t pid = fork();
        if (pid == 0) {
            int own;
            bool has = false;
            const bool ok = study_lock_open(dir, &own, NULL) == STATUS_OK &&
                            study_lock_try(own, other == 1 ? "s1-mha-a5" : "s1-mha-a0", &has,
                                           NULL) == STATUS_OK;
            _exit(ok ? has : 2);
        }
        int ended;
        ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
        ck_assert_int_eq(WEXITSTATUS(ended), other > 0);
    }
    close(fd);
}
