/*
 * The whole program on a hostile command line (class 14) and within limits (class 15). Elsewhere:
 * allocations that fail at the n-th call (test_faults.c), threads that cannot be started
 * (test_pool.c), processors and quotas (test_limits.c), signals (test_signals.c), streams (cli.sh).
 */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hostile.h"
#include "support.h"

TEST(class_14_prompts, .before = hostile_set_up)
{
    static const struct {
        const char *line, *too_long;
    } readers[] = {
        {"generate %G -f %B -n 1 -t 1 -q", "tokens, the context only 16"},
        {"score %G -f %B -t 1", "tokens, the context only 16"},
        {"tokenize %G -f %B", NULL},
        {"eval %G %B -t 1", NULL},
    };
    static const size_t lengths[] = {17, 4 << 20};
    char *large = allocated(4 << 20);
    memset(large, 'a', 4 << 20);
    for (size_t i = 0; i < COUNT(readers); i++) {
        write_file(bad_path, large, 16);
        expect_line_done(readers[i].line, "");
        write_file(bad_path, "a\0b\xff\xc3\xed\xa0\x80\x1b", 9);
        expect_line_done(readers[i].line, "");
        for (size_t k = 0; k < COUNT(lengths) && readers[i].too_long; k++) {
            char expected[80];
            snprintf(expected, sizeof expected, "has %zu %s", lengths[k], readers[i].too_long);
            write_file(bad_path, large, lengths[k]);
            expect_line_refused(readers[i].line, 2, expected);
        }
        ck_assert_int_eq(truncate(bad_path, 300 << 20), 0);
        expect_line_refused(readers[i].line, 2, "more than the 268435456 bytes allowed");
    }
}

static void close_one(void *fd)
{
    close(*(int *)fd);
}

TEST(class_14_closed_descriptors, .before = hostile_set_up)
{
    /* Without standard output they fail; what writes files does not write them elsewhere. */
    static const char *const lines[] = {"generate %G -p ab -n 2 -t 1",
                                        "score %G -p ab -t 1",
                                        "tokenize %G -p ab",
                                        "info %G",
                                        "help",
                                        "--version",
                                        "eval %G %T -t 1",
                                        "bench %G -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q",
                                        "convert %G -o %O --kv-heads 1 --method mean -t 1 --force",
                                        "convert %G -o %O --type f16 -t 1 --force"};
    struct ran r;
    char line[2000];
    for (size_t i = 0; i < COUNT(lines); i++)
        for (int fd = 0; fd < 3; fd++) {
            fill_paths(line, sizeof line, lines[i]);
            run_program(&r, line, close_one, &fd);
            ck_assert_msg(r.code == (fd == 1), "%s without %d: %d %s", line, fd, r.code, r.err);
            if (strstr(lines[i], "%O"))
                expect_line_done("info --check %O", "");
        }
    int fd = 0;
    fill_paths(line, sizeof line, "eval %G - -t 1");
    run_program(&r, line, close_one, &fd);
    expect_refusal(&r, 3, "standard input");
}

/* Each of the commands, so limited, does its work or fails with one of two codes and one line. */
static void run_limited(const char *line, struct limit l, int code, const char *text, int *n_failed)
{
    struct ran r;
    char filled[3000];
    fill_paths(filled, sizeof filled, line);
    run_program(&r, filled, limit_to, &l);
    if (r.code != 0) {
        ++*n_failed;
        ck_assert_msg(r.code == code || r.code == 1 || r.code == 4,
                      "%s at %llu: exit %d (signal %d): %s", line, (unsigned long long)l.value,
                      r.code, r.signal, r.err);
        r.out_len = 0; /* some had begun to print */
        expect_refusal(&r, r.code, r.code == 4 ? "" : text);
        expect_no_output();
    }
    remove_outputs();
}

static const char *const limited[] = {
    "info --check %G",
    "generate %G -p ab -n 3 -t 2 --seed 1 -q",
    "score %G -p ab -t 1 --logits %O",
    "tokenize %G -p ab",
    "eval %G %T -t 2 -q",
    "convert %G -o %O --type f16 -t 1 -q",
    "attend %G -p ab --svg %O -t 1 -q",
    "bench %G -n 1 --repeat 1 --warmup 0 --prompt 0 --kv-heads 2 -t 1 -q --svg %O",
    "convert %G -o %O --kv-heads 1 --calib %T -t 1 -q",
    "train %T -o %O --from %G --steps 1 --batch 1 --seed 1 -t 1 -q --eval-every -1",
};
#define N_LIMITED ((int)COUNT(limited))

TEST(class_15_file_size, .before = hostile_set_up)
{
    static const rlim_t sizes[] = {1000, 20000, 70000};
    int n_failed = 0;
    for (int i = 0; i < N_LIMITED; i++)
        for (int k = 0; k < 3 && strstr(limited[i], "%O"); k++) /* output is a file here, too */
            run_limited(limited[i], (struct limit){RLIMIT_FSIZE, sizes[k]}, 1, "File too large",
                        &n_failed);
    ck_assert_int_ge(n_failed, 8);
}

/* What the options ask for, not what a file does. */
TEST(class_15_huge_requests, .before = hostile_set_up, .left_out = SANITIZED)
{
    static const struct line lines[] = {
        {"bench %G --depth 2147483647", 2, "2147483647", NULL},
        {"bench %G --batch 2147483647 -t 1 -q", 4, "fewer or smaller --batch", NULL},
        {"bench %G -n 2147483647", 2, "-n: expected an integer, 1 to", NULL},
        {"bench %G -n 1000000 --repeat 10000 -q -t 1", 2, "expected at most 100000000 in all",
         NULL},
        {"bench --shape 500x65536x1,ff=16777216,vocab=16777216,ctx=4194304 -t 1 -q", 4,
         "out of memory", NULL},
        {"bench --shape 1x1024x1,ctx=4194304,vocab=9 --prompt 1 -n 1 --repeat 1 -t 1 -q", 4,
         "out of memory", NULL},
        {"train %T -o %O --layers 500 --embd 16384 --heads 1 --ctx 8 -t 1 -q", 4, "out of memory",
         NULL},
        {"train %T -o %O --embd 64 --heads 1 --batch 65536 --ctx 32 -t 1 -q", 4, "out of memory",
         NULL},
        {"train %T -o %O --ctx 4000000 -t 1 -q", 2, "expected at least", NULL},
    };
    /* Large, but nothing is taken for it. */
    static const struct line legal[] = {
        {"generate %G -p ab -n 2147483647 --top-k 2147483647 --repeat-last-n 2147483647 -t 1 -q", 0,
         NULL, NULL},
        {"score %G -p ab --top 2147483647 -t 1 --format jsonl", 0, NULL, NULL},
        {"convert %G -o %O --kv-heads 1 --calib %T --calib-tokens 2147483647 -t 1 -q", 0, NULL,
         NULL},
    };
    struct limit l = {RLIMIT_AS, (rlim_t)1 << 30};
    try_lines(lines, COUNT(lines), limit_to, &l);
    try_lines(legal, COUNT(legal), limit_to, &l);
}

/* Auto takes as many sequences as fit, at least one; a sequence is 32 MiB. */
TEST(class_15_batches, .before = hostile_set_up, .left_out = SANITIZED)
{
    static const struct line lines[] = {
        {"generate %G -p a --samples 40 -n 2 -t 1 --batch 40", 4,
         "40 sequences need 1.2|would fit; --batch N, -c N and --kv-type f16 lower", NULL},
        {"generate %G -p a --samples 40 -n 2 -t 1 -v", 0,
         "as memory has no room for more; --batch N changes it", NULL},
        {"generate %G -p a --samples 40 -n 2 -t 1 --batch 2", 0, NULL, NULL},
    };
    const struct checkpoint_shape wide =
        shape_of("layers=1 heads=16 kv=16 dim=32 ff=16 ctx=8192 vocab=257 seed=3");
    struct limit l = {RLIMIT_AS, (rlim_t)300 << 20};
    write_checkpoint(good_path, &wide);
    try_lines(lines, COUNT(lines), limit_to, &l);
}

/* One word of 40 MiB, of which 300 tokens are asked for. */
TEST(class_15_memory_of_a_long_text, .before = hostile_set_up, .left_out = SANITIZED)
{
    static char letters[1 << 20];
    struct ran r;
    char line[2000];
    memset(letters, 'a', sizeof letters);
    FILE *f = fopen(bad_path, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 40; i++)
        ck_assert_uint_eq(fwrite(letters, 1, sizeof letters, f), sizeof letters);
    ck_assert_int_eq(fclose(f), 0);
    fill_paths(line, sizeof line,
               "convert %G -o %O --kv-heads 1 --calib %B --calib-tokens 300 -t 1 -q --force");
    run_program(&r, line, NULL, NULL);
    expect_success(&r);
    ck_assert_msg(r.max_rss_kib < 300 << 10, "%ld KiB", r.max_rss_kib);
    remove_outputs();
}
