/*
 * generate with many prompts or samples, the whole program: what many.sh cannot see well. Texts
 * made on several threads (for the thread sanitizer), memory, models whose logits are not finite,
 * and prompts that come slowly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "cli/job.h"
#include "cli/program.h"
#include "formats/gguf_values.h"
#include "hostile.h"
#include "support.h"

enum { MANY_LINES = SANITIZED ? 3000 : 100000 };

static char home[4096];

static void set_up(void)
{
    const struct checkpoint_shape shape =
        shape_of("layers=1 heads=2 kv=1 dim=4 ff=8 ctx=48 vocab=257 seed=3");
    ck_assert(getcwd(home, sizeof home) && chdir(scratch_path("")) == 0);
    write_checkpoint("model.gguf", &shape);
}

static void tear_down(void)
{
    ck_assert_int_eq(chdir(home), 0);
    scratch_remove();
}

#define IN_FOLDER .before = set_up, .after = tear_down

static struct ran ran(const char *line)
{
    struct ran r;
    run_program(&r, line, NULL, NULL);
    return r;
}

/* Lines that can be run and lines that cannot. */
static long peak_of(int n)
{
    FILE *f = fopen("prompts", "wb");
    for (int i = 0; i < n; i++)
        fprintf(f, i % 5 ? "%d\n" : "\xff%d\n", i % 10);
    fclose(f);
    const struct ran r = ran("generate model.gguf --prompts prompts -q -n 2 -t 1 --batch 16");
    ck_assert_msg(r.code == 1, "exit %d, signal %d: %s", r.code, r.signal, r.err);
    return r.max_rss_kib;
}

/* 10^5 lines take no more than 300. */
TEST(memory_is_bounded, .tags = ONE_THREAD, IN_FOLDER)
{
    const long few = peak_of(300), many = peak_of(MANY_LINES);
    if (!SANITIZED)
        ck_assert_msg(many - few < 2048, "%ld KiB for few, %ld for many", few, many);
}

/* Auto takes as many as fit, at least one; a sequence is 32 MiB. */
TEST(batches_that_do_not_fit_are_refused, .tags = ONE_THREAD, .left_out = SANITIZED, IN_FOLDER)
{
    struct limit limit = {RLIMIT_AS, (rlim_t)300 << 20};
    struct ran r;
    const struct checkpoint_shape wide =
        shape_of("layers=1 heads=16 kv=16 dim=32 ff=16 ctx=8192 vocab=257 seed=3");
    write_checkpoint("wide.gguf", &wide);
    run_program(&r, "generate wide.gguf -p a --samples 40 -n 2 -t 1 --batch 40", limit_to, &limit);
    expect_refusal(&r, 4, "40 sequences need 1.2");
    expect_says(r.err, "would fit; --batch N, -c N and --kv-type f16 lower");
    run_program(&r, "generate wide.gguf -p a --samples 40 -n 2 -t 1 -v", limit_to, &limit);
    expect_success(&r);
    expect_says(r.err, "as memory has no room for more; --batch N changes it");
    run_program(&r, "generate wide.gguf -p a --samples 40 -n 2 -t 1 --batch 2", limit_to, &limit);
    expect_success(&r);
}

/* The embedding of token X is NaN: a prompt that has it is a line with an error, and the others are
 * as they were. Of samples none is whole, and of one text the line is ended. */
TEST(logits_that_are_not_finite_end_a_text, .tags = ONE_THREAD, IN_FOLDER)
{
    static const char line[] =
        "generate model.gguf --prompts prompts -q -n 3 --greedy --batch 3 --seed 1";
    write_file("prompts", "ab\ncd\nX\nef\n", 11);
    const struct ran good = ran(line);
    expect_success(&good);
    struct gguf_file f = read_gguf("model.gguf");
    const struct gguf_tensor *t = gguf_find_tensor(f.g, "token_embd.weight");
    const size_t row = (size_t)t->dims[0] * sizeof(float);
    memset(f.bytes + (t->data - f.bytes) + 'X' * row, 0xff, row);
    write_file("model.gguf", f.bytes, f.len);
    free_gguf(&f);
    const struct ran bad = ran(line);
    ck_assert_int_eq(bad.code, 1);
    expect_says(bad.out, "{\"index\": 2, \"prompt\": \"X\", \"error\": \"line 3: model.gguf: the "
                         "logit of token 0 is");
    const char *third = strstr(bad.out, "{\"index\": 2");
    ck_assert_uint_eq(strncmp(bad.out, good.out, (size_t)(third - bad.out)), 0);
    ck_assert_str_eq(strstr(bad.out, "{\"index\": 3"), strstr(good.out, "{\"index\": 3"));
    const struct ran r = ran("generate model.gguf -p aX --samples 4 -q -n 3 --seed 1");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.out, "");
    expect_says(r.err, "the logit of token 0 is");
    const struct ran alone = ran("generate model.gguf -p aX -q -n 3 --seed 1");
    ck_assert_int_eq(alone.code, 1);
    ck_assert_str_eq(alone.out, "aX\n");
}

static _Noreturn void be_program_between(int in, int out)
{
    static char line[] = "decode generate model.gguf --prompts - -q -n 5 -t 1 --seed 1";
    char *args[16] = {NULL};
    int n = 0;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        args[n++] = word;
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    alarm(60);
    exit(program_run(n, args));
}

/* Each answer comes although the next prompt does not. */
TEST(an_answer_does_not_wait_for_the_next_prompt, .tags = ONE_THREAD, IN_FOLDER)
{
    int in[2], out[2], status;
    ck_assert(pipe(in) == 0 && pipe(out) == 0);
    const pid_t child = fork();
    if (child == 0) {
        close(in[1]);
        be_program_between(in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    FILE *answers = fdopen(out[0], "r");
    for (int i = 0; i < 3; i++) {
        char line[4096], wanted[40];
        ck_assert_int_eq(write(in[1], "abc\nde", 4 + 2 * (i == 1)), 4 + 2 * (i == 1));
        ck_assert_ptr_nonnull(fgets(line, sizeof line, answers));
        snprintf(wanted, sizeof wanted, "{\"index\": %d, ", i);
        ck_assert_msg(strncmp(line, wanted, strlen(wanted)) == 0, "%s", line);
        expect_says(line, i == 2 ? "deabc" : "abc");
    }
    close(in[1]);
    ck_assert_int_eq(fgetc(answers), EOF);
    fclose(answers);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
