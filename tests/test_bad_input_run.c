/*
 * Hostile surroundings of a run of the whole program: files that change and outputs that must not
 * be (class 12), a training state that is not what it was (class 13: there is no session file),
 * the command line (class 14) and limits (class 15).
 *
 * Elsewhere: system calls that fail at the n-th call (test_file_faults.c and the other suites of
 * faults), allocations (test_oom.c), threads (test_pool.c), processors and quotas (test_cpus.c),
 * signals (test_signals.c), streams (cli.sh).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "hostile.h"
#include "support.h"

/* Under a sanitizer a run takes ten times as long, and one of so many cases has to do. */
#ifdef SHADOW_MEMORY
#define STRIDE 4
#else
#define STRIDE 1
#endif

/* --- files compared -------------------------------------------------------------------------- */

struct content {
    unsigned char *bytes;
    size_t len;
};

static struct content content_of(const char *path)
{
    struct content c;
    c.bytes = read_file(path, &c.len);
    return c;
}

/* Frees `was`. */
static void expect_unchanged(const char *path, struct content was)
{
    struct content is = content_of(path);
    ck_assert_msg(is.len == was.len && memcmp(is.bytes, was.bytes, is.len) == 0, "%s has changed",
                  path);
    free(is.bytes);
    free(was.bytes);
}

static char folder[600], link_path[700];

static void set_up(void)
{
    hostile_set_up();
    strcpy(folder, out_path);
    *strrchr(folder, '/') = 0;
    snprintf(link_path, sizeof link_path, "%s/link", folder);
}

static void copy_file(const char *from, const char *to)
{
    struct content c = content_of(from);
    write_file(to, c.bytes, c.len);
    free(c.bytes);
}

/* --- class 12: the input changes while it is mapped ------------------------------------------ */

/* In a process of its own: when the conversion has mapped its checkpoint it opens its calibration
 * text, a FIFO, and only now goes on. */
static pid_t meddle(void (*change)(void))
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0)
        return child;
    alarm(60);
    const int fd = open(link_path, O_WRONLY);
    change();
    for (int i = 0; i < 100; i++)
        if (write(fd, "some text, to be calibrated on. ", 32) != 32)
            _exit(1);
    _exit(0);
}

static void cut_off(void)
{
    if (truncate(bad_path, 0) != 0)
        _exit(2);
}

static void cut_in_half(void)
{
    if (truncate(bad_path, 70000) != 0)
        _exit(2);
}

static void replace(void)
{
    if (rename(text_path, bad_path) != 0)
        _exit(2);
}

static void delete (void)
{
    unlink(bad_path);
}

static int convert_while(void (*change)(void), int threads, struct ran *r)
{
    char line[3000];
    int status;
    copy_file(good_path, bad_path);
    unlink(link_path);
    ck_assert_int_eq(mkfifo(link_path, 0600), 0);
    const pid_t meddler = meddle(change);
    snprintf(line, sizeof line, "convert %s -o %s --kv-heads 1 --calib %s -t %d -q --force",
             bad_path, out_path, link_path, threads);
    run_program(r, line, NULL, NULL);
    waitpid(meddler, &status, 0);
    return status;
}

static void changed_while_mapped(void)
{
    struct ran r;
    for (int threads = 1; threads < 3; threads++) {
        convert_while(cut_off, threads, &r);
        expect_refusal(&r, 3, "cut short");
        expect_no_output();
        convert_while(cut_in_half, threads, &r);
        expect_refusal(&r, 3, "cut short");
        expect_no_output();
    }
    convert_while(delete, 1, &r);
    expect_success(&r);
    struct content expected = content_of(out_path);
    convert_while(replace, 1, &r); /* what was opened stays what it was */
    expect_success(&r);
    expect_unchanged(out_path, expected);
    unlink(out_path);
}

/* --- class 12: outputs ----------------------------------------------------------------------- */

/* Each writer; the output is %s. */
static const char *const writers[] = {
    "quantize %%G -o %s --type f16 -t 1 -q --force",
    "convert %%G -o %s --kv-heads 1 --method mean -t 1 -q --force",
    "train %%T -o %s --from %%G --steps 1 --batch 1 --seed 1 -t 1 -q",
    "score %%G -p ab -t 1 --logits %s",
    "bench %%G -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q --kv-heads 2 --trace %s",
    "bench %%G -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q --kv-heads 2 --plot %s",
};
#define N_WRITERS 6

static void run_writer(struct ran *r, int writer, const char *out)
{
    char line[2000];
    snprintf(line, sizeof line, writers[writer], out);
    run_on_bad(r, line);
}

static void expect_not_written(const char *out, int code, const char *text)
{
    struct ran r;
    for (int i = 0; i < N_WRITERS; i++) {
        run_writer(&r, i, out);
        expect_refusal(&r, code, text);
    }
    expect_no_output();
}

/* The names of open descriptors once led to the files behind them: with standard output in a file,
 * `-o /dev/stdout --force` replaced that file. */
START_TEST(class_12_outputs_that_are_no_files)
{
    static const char descriptor[] = "found an open descriptor's";
    struct content good = content_of(good_path), text = content_of(text_path);
    expect_not_written("/dev/stdout", 1, descriptor);
    expect_not_written("/dev/fd/1", 1, descriptor);
    expect_not_written("/proc/self/fd/2", 1, descriptor);
    expect_not_written("/dev/null", 1, "expected a regular file, found a device");
    expect_not_written(folder, 1, "found a directory");
    expect_not_written("/nosuchfolder/x", 1, "/nosuchfolder/x");
    ck_assert_int_eq(symlink("/dev/stdout", link_path), 0);
    expect_not_written(link_path, 1, descriptor);
    unlink(link_path);
    ck_assert_int_eq(symlink(link_path, link_path), 0);
    expect_not_written(link_path, 1, "Too many levels of symbolic links");
    unlink(link_path);
    ck_assert_int_eq(mkfifo(link_path, 0600), 0);
    expect_not_written(link_path, 1, "found a pipe (FIFO)");
    unlink(link_path);
    /* The input, by its own name, by links and by a way round. */
    char round_about[800];
    snprintf(round_about, sizeof round_about, "%s/../%s/good.gguf", folder,
             strrchr(folder, '/') + 1);
    expect_not_written(good_path, 2, "is the checkpoint itself");
    expect_not_written(round_about, 2, "is the checkpoint itself");
    ck_assert_int_eq(symlink(good_path, link_path), 0);
    expect_not_written(link_path, 2, "is the checkpoint itself");
    unlink(link_path);
    ck_assert_int_eq(link(good_path, link_path), 0);
    expect_not_written(link_path, 2, "is the checkpoint itself");
    unlink(link_path);
    expect_unchanged(good_path, good);
    expect_unchanged(text_path, text);
    expect_line_refused("bench --shape 1x8x1,vocab=9,ctx=4 --plot %O --trace %O", 2, "both name");
}
END_TEST

START_TEST(class_12_outputs_through_links)
{
    struct ran r;
    char target[700];
    snprintf(target, sizeof target, "%s/target", folder);
    for (int i = 0; i < 4; i++) {
        /* A link to a file that is not there yet, then to one that is: the link stays. */
        unlink(target);
        unlink(link_path);
        ck_assert_int_eq(symlink("target", link_path), 0);
        for (int again = 0; again < 2; again++) {
            struct stat st;
            run_writer(&r, i, link_path);
            expect_success(&r);
            ck_assert_int_eq(lstat(link_path, &st), 0);
            ck_assert(S_ISLNK(st.st_mode));
            ck_assert_int_eq(lstat(target, &st), 0);
            ck_assert(S_ISREG(st.st_mode) && st.st_size > 0);
        }
    }
    write_file(out_path, "old", 3);
    expect_line_refused("quantize %G -o %O --type f16", 2, "exists; --force replaces it");
    expect_line_refused("convert %G -o %O --kv-heads 1", 2, "exists; --force replaces it");
    ck_assert_int_eq(chmod(out_path, 0400), 0);
    char line[2000];
    snprintf(line, sizeof line, "quantize %s -o %s --type f16 --force -q", good_path, out_path);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    run_program(&r, line, be_nobody, NULL); /* a read-only file */
    expect_refusal(&r, 1, "Permission denied");
    snprintf(line, sizeof line, "quantize %s -o %s2 --type f16 -q", good_path, out_path);
    ck_assert_int_eq(chmod(folder, 0555), 0);
    run_program(&r, line, be_nobody, NULL); /* a read-only folder */
    expect_refusal(&r, 1, "cannot create a temporary file in its folder: Permission denied");
    ck_assert_int_eq(chmod(folder, 0700), 0);
    struct content old = content_of(out_path);
    ck_assert_uint_eq(old.len, 3);
    free(old.bytes);
}
END_TEST

START_TEST(class_12_files_that_change)
{
    changed_while_mapped();
}
END_TEST

/* --- class 12: killed while it writes -------------------------------------------------------- */

static bool has_temporary(void)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        found |= strncmp(entry->d_name, ".decode", 7) == 0;
    closedir(dir);
    return found;
}

/* Starts a process that kills this one when its temporary file appears. */
static void be_killed(void *unused)
{
    (void)unused;
    const pid_t program = getpid();
    if (fork() != 0)
        return;
    alarm(20);
    while (!has_temporary() && getppid() == program)
        ;
    if (getppid() == program)
        kill(program, SIGKILL);
    _exit(0);
}

/* The temporary files that a killed process of this number left. */
static void leave_temporaries(void *unused)
{
    (void)unused;
    char path[800];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/.decode-%ld-%d.tmp", folder, (long)getpid(), i);
        const int fd = open(path, O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || write(fd, "part", 4) != 4)
            _exit(99);
        close(fd);
    }
}

START_TEST(class_12_killed_while_writing)
{
    const struct checkpoint_shape large = {.n_layers = 1,
                                           .n_heads = 2,
                                           .n_kv_heads = 2,
                                           .head_dim = 32,
                                           .d_ff = 64,
                                           .n_ctx = 16,
                                           .n_vocab = 8000,
                                           .type = TENSOR_F32,
                                           .seed = 7};
    char line[2000];
    struct ran r;
    write_checkpoint(bad_path, &large);
    write_file(out_path, "old", 3);
    snprintf(line, sizeof line, "quantize %s -o %s --type f16 -t 1 -q --force", bad_path, out_path);
    for (int tries = 0; tries < 20; tries++) {
        run_program(&r, line, be_killed, NULL);
        if (r.signal == SIGKILL && has_temporary())
            break;
        write_file(out_path, "old", 3); /* it was faster */
    }
    ck_assert_int_eq(r.signal, SIGKILL);
    struct content old = content_of(out_path);
    ck_assert_uint_eq(old.len, 3);
    free(old.bytes);
    run_program(&r, line, leave_temporaries, NULL);
    expect_success(&r);
    struct content first = content_of(out_path);
    run_program(&r, line, NULL, NULL);
    expect_success(&r);
    expect_unchanged(out_path, first);
}
END_TEST

/* --- class 13: the training state ------------------------------------------------------------ */

#define TRAIN_NEW                                                                                  \
    "train %T -o %O --layers 1 --embd 4 --heads 1 --ff 4 --ctx 4 --vocab 256 --steps 2 --batch 1 " \
    "-t 1 -q --eval-every 1"
#define HEADER 216 /* bytes before the weights */

static char state_path[700];

static struct content make_state(void)
{
    struct ran r;
    snprintf(state_path, sizeof state_path, "%s.state", out_path);
    run_on_bad(&r, TRAIN_NEW " --seed 1");
    expect_success(&r);
    return content_of(state_path);
}

static void expect_state_refused(const struct content *state, const struct content *out,
                                 const char *what)
{
    struct ran r;
    run_on_bad(&r, TRAIN_NEW " --resume");
    ck_assert_msg(r.code == 3 || r.code == 2 || r.code == 1, "%s: exit %d (signal %d): %s", what,
                  r.code, r.signal, r.err);
    expect_refusal(&r, r.code, "out.gguf");
    struct content is = content_of(state_path), is_out = content_of(out_path);
    ck_assert_uint_eq(is.len, state->len);
    ck_assert_mem_eq(is.bytes, state->bytes, is.len);
    ck_assert_uint_eq(is_out.len, out->len);
    ck_assert_mem_eq(is_out.bytes, out->bytes, is_out.len);
    free(is.bytes);
    free(is_out.bytes);
}

/* With the checksum of what is there: FNV-1a over its 64-bit words. */
static void expect_forged_refused(struct content *state, const struct content *out, size_t at,
                                  uint64_t value)
{
    uint64_t was, hash = 0xcbf29ce484222325u, word;
    memcpy(&was, state->bytes + at, 8);
    memcpy(state->bytes + at, &value, 8);
    for (size_t i = 0; i + 8 < state->len; i += 8) {
        memcpy(&word, state->bytes + i, 8);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    memcpy(&word, state->bytes + state->len - 8, 8);
    memcpy(state->bytes + state->len - 8, &hash, 8);
    write_file(state_path, state->bytes, state->len);
    char what[64];
    snprintf(what, sizeof what, "%llx at %zu", (unsigned long long)value, at);
    expect_state_refused(state, out, what);
    memcpy(state->bytes + at, &was, 8);
    memcpy(state->bytes + state->len - 8, &word, 8);
}

START_TEST(class_13_training_state)
{
    struct content state = make_state(), out = content_of(out_path);
    struct ran r;
    char what[64];
    ck_assert_uint_eq(state.len % 8, 0);
    run_on_bad(&r, TRAIN_NEW " --resume");
    expect_success(&r);
    /* Every byte of the header and of the checksum, and others between. */
    for (size_t at = 0; at < state.len; at += at < HEADER || at > state.len - 10 ? STRIDE : 499) {
        state.bytes[at] ^= (unsigned char)(1 << at % 8);
        write_file(state_path, state.bytes, state.len);
        snprintf(what, sizeof what, "byte %zu flipped", at);
        expect_state_refused(&state, &out, what);
        state.bytes[at] ^= (unsigned char)(1 << at % 8);
    }
    const size_t len = state.len;
    for (state.len = 0; state.len < len; state.len += state.len < HEADER + 8 ? 4 : 1999) {
        write_file(state_path, state.bytes, state.len);
        snprintf(what, sizeof what, "cut to %zu", state.len);
        expect_state_refused(&state, &out, what);
    }
    state.len = len;
    /* Counts: step and best step, best, the random numbers, floats, OUT's length and hash. */
    static const uint64_t counts[] = {1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX, 3};
    for (int word = 0; word < 2; word++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            expect_forged_refused(&state, &out, HEADER - 64 + 8 * (size_t)word, counts[i]);
    expect_forged_refused(&state, &out, HEADER - 48, 0x7ff8000000000000u); /* best: NaN */
    expect_forged_refused(&state, &out, HEADER - 24, UINT64_MAX);          /* floats */
    expect_forged_refused(&state, &out, HEADER - 24, UINT64_MAX / 4 + 1);  /* floats */
    expect_forged_refused(&state, &out, HEADER - 16, UINT64_MAX);          /* length of OUT */
    expect_forged_refused(&state, &out, HEADER - 8, 1);                    /* hash of OUT */
    free(out.bytes);
    free(state.bytes);
}
END_TEST

START_TEST(class_13_training_state_of_another_run)
{
    struct content state = make_state(), out = content_of(out_path);
    static const char *const others[] = {
        "--layers 2",       "--embd 8",           "--heads 2",      "--ff 8",      "--ctx 5",
        "--steps 3",        "--steps 1",          "--batch 2",      "--lr 0.1",    "--warmup 1",
        "--beta2 0.5",      "--clip 2",           "--seed 2",       "--vocab 257", "--dropout 0.1",
        "--weight-decay 0", "--val-fraction 0.2", "--eval-every 2", "--keep last"};
    char line[600];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(line, sizeof line, "%s --resume %s", TRAIN_NEW, others[i]);
        expect_line_refused(line, 2, "--resume needs the same");
    }
    expect_line_refused("train %T -o %O --from %G --steps 2 --batch 1 -t 1 -q --resume", 2,
                        "the model's shape was not the same");
    write_file(text_path, "another text, as long as a window needs. ", 41);
    expect_line_refused(TRAIN_NEW " --resume", 2, "the text was not the same");
    copy_file(good_path, state_path);
    expect_line_refused(TRAIN_NEW " --resume", 3, "expected a training state, found another file");
    unlink(state_path);
    expect_line_refused(TRAIN_NEW " --resume", 2, "there is no");
    ck_assert_int_eq(mkdir(state_path, 0700), 0);
    expect_line_refused(TRAIN_NEW " --resume", 3, "found a directory");
    rmdir(state_path);
    ck_assert_int_eq(mkfifo(state_path, 0600), 0);
    expect_line_refused(TRAIN_NEW " --resume", 3, "found a pipe (FIFO)");
    expect_unchanged(out_path, out);
    free(state.bytes);
}
END_TEST

/* --- class 14: the command line -------------------------------------------------------------- */

/* Integers, fractions, and lists of integers. */
static const struct {
    const char *command;
    const char *integers[16], *reals[12];
} numbers[] = {
    {"generate %G",
     {"-n", "-c", "--top-k", "--logprobs", "--samples", "--block", "--seed", "-t", "--kv-heads",
      "--repeat-last-n", NULL},
     {"--temp", "--top-p", "--min-p", "--repeat-penalty", NULL}},
    {"score %G -p a", {"--top", "--tokens", "--block", "-t", NULL}, {NULL}},
    {"tokenize %G", {"--decode", NULL}, {NULL}},
    {"eval %G --text %T", {"--ctx", "--stride", "--block", "-t", NULL}, {NULL}},
    {"quantize %G -o %O --type f16", {"-t", NULL}, {NULL}},
    {"convert %G -o %O", {"--kv-heads", NULL}, {NULL}},
    {"convert %G -o %O --kv-heads 1 --calib %T", {"--calib-tokens", "--seed", "-t", NULL}, {NULL}},
    {"bench %G",
     {"-n", "--repeat", "--warmup", "--prompt", "--depth", "--kv-heads", "-t", NULL},
     {NULL}},
    {"train %T -o %O",
     {"--layers", "--embd", "--heads", "--kv-heads", "--ff", "--ctx", "--vocab", "--steps",
      "--batch", "--warmup", "--seed", "--eval-every", "--save-every", "-t", NULL},
     {"--lr", "--beta2", "--weight-decay", "--dropout", "--clip", "--val-fraction",
      "--teacher-weight", NULL}},
    {"info %G", {NULL}, {"--bandwidth", NULL}},
};

static void expect_numbers_refused(const char *command, const char *const *options,
                                   const char *const *values, const char *spare)
{
    char line[300];
    int n = 0;
    for (; *options; options++)
        for (int i = 0; values[i]; i++) {
            if (n++ % STRIDE != 0)
                continue;
            if (strcmp(*options, spare) == 0 && !values[i][0])
                continue;
            snprintf(line, sizeof line, "%s %s=%s", command, *options, values[i]);
            expect_line_refused(line, 2, *options);
        }
}

START_TEST(class_14_numbers)
{
    static const char *const bad_integers[] = {
        "", "1e9", "0x10", "\t5", "5\t", "-9", "NaN", "+5", "5x", "99999999999999999999", NULL};
    static const char *const bad_reals[] = {"",      "0x10", "nan", "inf", "-9",
                                            "1e999", "\t1",  "1,5", "1x",  NULL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        /* No ids are no bytes. */
        expect_numbers_refused(numbers[i].command, numbers[i].integers, bad_integers, "--decode");
        expect_numbers_refused(numbers[i].command, numbers[i].reals, bad_reals, "");
    }
    expect_no_output();
}
END_TEST

/* Once they were accepted and did nothing. */
START_TEST(class_14_options_without_effect)
{
    static const char *const commands[] = {"generate %G -p a", "score %G -p a",
                                           "eval %G --text %T"};
    static const char *const options[] = {"--method fit",    "--calib-tokens 99", "--no-refit",
                                          "--group cluster", "--refit",           "--calib %T"};
    char line[300];
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 6; i++) {
            snprintf(line, sizeof line, "%s %s", commands[c], options[i]);
            expect_line_refused(line, 2, "which is not given");
        }
    expect_line_refused("convert %G -o %O --kv-heads 1 --calib-tokens 99", 2,
                        "--calib-tokens is for --calib, which is not given");
    expect_line_refused("convert %G -o %O --kv-heads 1 --no-refit", 2,
                        "--no-refit is for --calib, which is not given");
    expect_line_refused("generate %G -p a --kv-heads 1 --calib-tokens 99", 2,
                        "--calib-tokens is for --calib, which is not given");
    expect_line_refused("bench --shape 1x8x1,vocab=9,ctx=4 --method fit", 2,
                        "--method is for a checkpoint");
    struct ran r;
    run_on_bad(&r, "generate %G -p a -n 2 -t 1 --kv-heads 1 --method mean --group adjacent");
    expect_success(&r);
    run_on_bad(&r, "generate --help --method fit");
    expect_success(&r);
}
END_TEST

/* It was found when the conversion was done. */
START_TEST(class_14_short_texts_are_found_before_the_work)
{
    struct ran r;
    write_file(bad_path, "a", 1);
    run_on_bad(&r, "convert %G -o %O --kv-heads 1 --method fit --calib %T --eval %B -t 1 -v");
    ck_assert_int_eq(r.code, 2);
    ck_assert_ptr_nonnull(strstr(r.err, "--eval: the text has 1 token; expected at least 2"));
    ck_assert_ptr_null(strstr(r.err, "the conversion takes"));
    expect_no_output();
}
END_TEST

/* It was --kv-type f16, whatever the type was. */
START_TEST(class_14_advice_lowers_the_cache)
{
    struct ran r;
    run_on_bad(&r, "score %G -p ab -t 1 -v");
    ck_assert_ptr_nonnull(strstr(r.err, "; --kv-type f16 lowers the cache"));
    run_on_bad(&r, "score %G -p ab -t 1 -v --kv-type f16");
    ck_assert_ptr_nonnull(strstr(r.err, "; --kv-type q8_0 lowers the cache"));
    run_on_bad(&r, "score %G -p ab -t 1 -v --kv-type q8_0");
    ck_assert_ptr_null(strstr(r.err, "lowers"));
    run_on_bad(&r, "generate %G -p ab -n 1 -t 1 -v --kv-type q8_0");
    ck_assert_ptr_nonnull(strstr(r.err, "; -c N lowers the cache"));
    run_on_bad(&r, "eval %G --text %T -t 1 -v --kv-type q8_0");
    ck_assert_ptr_nonnull(strstr(r.err, "; --ctx, --block and -t lower it"));
}
END_TEST

static void unknown_and_repeated(void)
{
    static const char *const commands[] = {"generate", "score",   "eval",  "bench",   "info",
                                           "tokenize", "convert", "train", "quantize"};
    static const char *const words[] = {"--nosuch",   "--=5", "-",         "-x",       "--modell=x",
                                        "\x1b[31m-x", "---",  "--quiet=1", "--n 5 --n"};
    char line[200];
    struct ran r;
    for (size_t c = 0; c < 9; c++)
        for (size_t i = 0; i < 9; i++) {
            snprintf(line, sizeof line, "%s a b %s", commands[c], words[i]);
            run_on_bad(&r, line); /* TEXT... takes what has no dash */
            ck_assert_msg(r.code == 2, "%s: exit %d: %s", line, r.code, r.err);
            expect_refusal(&r, 2, "");
        }
    run_on_bad(&r, "info %G --format json --format csv");
    expect_success(&r);
    ck_assert_int_eq(strncmp(r.out, "part,parameters,bytes\n", 22), 0);
    run_on_bad(&r, "generate %G --n=5 -p ab --n=2 -n 1 --seed 1 -t 1 -q");
    expect_success(&r);
    run_on_bad(&r, "generate -q -q --seed=18446744073709551615 -n=0 -- %G");
    expect_success(&r);
}

static void prompts(void)
{
    static const char *const readers[] = {"generate %G -f %B -n 1 -t 1 -q", "score %G -f %B -t 1",
                                          "tokenize %G -f %B", "eval %G --text %B -t 1"};
    struct ran r;
    for (size_t len = 15; len < 18; len++) {
        write_file(bad_path, "aaaaaaaaaaaaaaaaa", len);
        for (int i = 0; i < 4; i++) {
            run_on_bad(&r, readers[i]);
            if (i < 2 && len > 16)
                expect_refusal(&r, 2,
                               i ? "has 17 tokens, the checkpoint's context only 16"
                                 : "has 17 tokens, the context only 16");
            else
                expect_success(&r);
        }
    }
    write_file(bad_path, "a\0b\xff\xc3\xed\xa0\x80\x1b", 9);
    for (int i = 0; i < 4; i++) {
        run_on_bad(&r, readers[i]);
        expect_success(&r);
    }
    write_file(bad_path, "", 0);
    ck_assert_int_eq(truncate(bad_path, 100 << 20), 0);
    expect_line_refused(readers[0], 2, "(104857600 bytes), the context only 16");
    expect_line_refused(readers[1], 2, "(104857600 bytes), the context only 16");
    ck_assert_int_eq(truncate(bad_path, 300 << 20), 0);
    for (int i = 0; i < 4; i++)
        expect_line_refused(readers[i], 2, "more than the 268435456 bytes allowed");
}

static void close_one(void *fd)
{
    close(*(int *)fd);
}

static void closed_descriptors(void)
{
    static const struct {
        const char *line;
        int without_output; /* its exit code */
    } cases[] = {{"generate %s -p ab -n 2 -t 1", 1},
                 {"score %s -p ab -t 1", 1},
                 {"tokenize %s -p ab", 1},
                 {"info %s", 1},
                 {"help", 1},
                 {"--version", 1}};
    struct ran r;
    char line[900];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int fd = 0; fd < 3; fd++) {
            snprintf(line, sizeof line, cases[i].line, good_path);
            run_program(&r, line, close_one, &fd);
            ck_assert_msg(r.code == (fd == 1 ? cases[i].without_output : 0), "%s without %d: %d %s",
                          line, fd, r.code, r.err);
        }
    int fd = 0;
    snprintf(line, sizeof line, "eval %s --text - -t 1", good_path);
    run_program(&r, line, close_one, &fd);
    expect_refusal(&r, 3, "standard input");
    for (fd = 0; fd < 3; fd++) { /* what writes files does not write them elsewhere */
        snprintf(line, sizeof line, "quantize %s -o %s --type f16 -t 1 --force", good_path,
                 out_path);
        run_program(&r, line, close_one, &fd);
        ck_assert_int_eq(r.code, fd == 1);
        snprintf(line, sizeof line, "info --check %s", out_path);
        run_program(&r, line, NULL, NULL);
        expect_success(&r);
    }
}

START_TEST(class_14_command_line)
{
    unknown_and_repeated();
    prompts();
    closed_descriptors();
}
END_TEST

/* --- class 15: limits ------------------------------------------------------------------------ */

struct limit {
    int resource;
    rlim_t value;
};

static void limit_to(void *context)
{
    const struct limit *l = context;
    const struct rlimit limits = {l->value, l->value};
    if (setrlimit((unsigned)l->resource, &limits) != 0)
        _exit(99);
}

/* Each of the commands, so limited, does its work or fails with one of two codes and one line. */
static void run_limited(const char *line, struct limit l, int code, const char *text, int *n_failed)
{
    struct ran r;
    run_program(&r, line, limit_to, &l);
    if (r.code == 0) {
        unlink(out_path);
        return;
    }
    ++*n_failed;
    ck_assert_msg(r.code == code || r.code == 1 || r.code == 4,
                  "%s at %llu: exit %d (signal %d): %s", line, (unsigned long long)l.value, r.code,
                  r.signal, r.err);
    r.out_len = 0; /* some had begun to print */
    expect_refusal(&r, r.code, r.code == 4 ? "" : text);
    expect_no_output();
}

static size_t fill_line(char *line, size_t size, const char *format)
{
    size_t used = 0;
    for (const char *c = format; *c; c++) {
        const char *path = c[0] != '%'   ? NULL
                           : c[1] == 'G' ? good_path
                           : c[1] == 'T' ? text_path
                                         : out_path;
        used += (size_t)snprintf(line + used, size - used, "%.*s", path ? 600 : 1, path ? path : c);
        c += path != NULL;
    }
    return used;
}

static const char *const limited[] = {
    "info --check %G",
    "generate %G -p ab -n 3 -t 2 --seed 1 -q",
    "score %G -p ab -t 1 --logits %O",
    "tokenize %G -p ab",
    "eval %G --text %T -t 2",
    "quantize %G -o %O --type f16 -t 1 -q",
    "convert %G -o %O --kv-heads 1 --calib %T -t 1 -q",
    "train %T -o %O --from %G --steps 1 --batch 1 --seed 1 -t 1 -q --keep last",
};
#define N_LIMITED 8

static void remove_state(void)
{
    char path[700];
    snprintf(path, sizeof path, "%s.state", out_path);
    unlink(path);
}

START_TEST(class_15_open_files)
{
    char line[3000];
    int n_failed = 0;
    for (int i = 0; i < N_LIMITED; i++)
        for (rlim_t n = 3; n < 8; n++) {
            fill_line(line, sizeof line, limited[i]);
            /* An input that cannot be opened is refused as such; an output fails. */
            run_limited(line, (struct limit){RLIMIT_NOFILE, n}, 3, "Too many open files",
                        &n_failed);
            remove_state();
        }
    ck_assert_int_ge(n_failed, N_LIMITED);
}
END_TEST

START_TEST(class_15_file_size)
{
    static const rlim_t sizes[] = {1000, 20000, 70000};
    char line[3000];
    int n_failed = 0;
    for (int i = 0; i < N_LIMITED; i++)
        for (int k = 0; k < 3; k++) {
            /* Standard output is a file here, too. */
            if (!strstr(limited[i], "%O"))
                continue;
            fill_line(line, sizeof line, limited[i]);
            run_limited(line, (struct limit){RLIMIT_FSIZE, sizes[k]}, 1, "File too large",
                        &n_failed);
            remove_state();
        }
    ck_assert_int_ge(n_failed, 8);
}
END_TEST

#ifndef SHADOW_MEMORY

/* As the limit is raised by steps, each run fails cleanly until one does not. */
START_TEST(class_15_address_space)
{
    static const rlim_t mib = 1 << 20;
    char line[3000];
    long pages;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld", &pages), 1);
    fclose(f);
    const rlim_t base = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < N_LIMITED; i++) {
        int n_failed = 0, n_before = -1;
        rlim_t more = 0;
        while (n_failed > n_before && more < 64 * mib) {
            n_before = n_failed;
            fill_line(line, sizeof line, limited[i]);
            run_limited(line, (struct limit){RLIMIT_AS, base + more}, 1, "cannot start thread",
                        &n_failed);
            remove_state();
            more += more < mib ? mib / 16 : mib;
        }
        ck_assert_int_gt(n_failed, 0);
        ck_assert_uint_lt(more, 64 * mib);
    }
}
END_TEST

/* What the options ask for, not what a file does. */
START_TEST(class_15_huge_requests)
{
    static const struct {
        int code;
        const char *line, *text;
    } cases[] = {
        {2, "generate %G -p ab -c 2147483647", "-c: expected at most 16"},
        {2, "bench %G --depth 2147483647", "2147483647"},
        {2, "bench %G --prompt 2147483647", "2147483647"},
        {2, "bench %G -n 2147483647", "-n: expected an integer, 1 to"},
        {2, "bench %G -n 1000000 --repeat 10000 -q -t 1", "expected at most 100000000 in all"},
        {4, "bench --shape 1000x65536x1,ff=16777216,vocab=16777216,ctx=4194304 -t 1 -q",
         "out of memory"},
        {4, "bench --shape 1x1024x1,ctx=4194304,vocab=9 --prompt 1 -n 1 --repeat 1 -t 1 -q",
         "out of memory"},
        {4, "train %T -o %O --layers 1000 --embd 16384 --heads 1 --ctx 8 -t 1 -q", "out of memory"},
        {4, "train %T -o %O --embd 64 --heads 1 --batch 65536 --ctx 32 -t 1 -q", "out of memory"},
        {2, "train %T -o %O --ctx 4000000 -t 1 -q", "expected at least"},
        {2, "eval %G --text %T --ctx 2147483647", "--ctx: expected 1 to 16"},
        {2, "score %G -p ab --block 2147483647", "--block: expected"},
    };
    char line[3000];
    struct limit l = {RLIMIT_AS, (rlim_t)1 << 30};
    struct ran r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill_line(line, sizeof line, cases[i].line);
        run_program(&r, line, limit_to, &l);
        expect_refusal(&r, cases[i].code, cases[i].text);
        ck_assert_int_lt(r.max_rss_kib, 64 << 10);
        expect_no_output();
    }
    /* Large, but nothing is taken for it. */
    static const char *const legal[] = {
        "generate %G -p ab -n 2147483647 --top-k 2147483647 --repeat-last-n 2147483647 -t 1 -q",
        "score %G -p ab --top 2147483647 -t 1 --format jsonl",
        "convert %G -o %O --kv-heads 1 --calib %T --calib-tokens 2147483647 -t 1 -q",
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        fill_line(line, sizeof line, legal[i]);
        run_program(&r, line, limit_to, &l);
        expect_success(&r);
        unlink(out_path);
        remove_state();
    }
}
END_TEST

#endif

int main(void)
{
    Suite *s = suite_create("bad_input_run");
    TCase *t = tcase_create("bad_input_run");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, set_up, hostile_tear_down);
    tcase_add_test(t, class_12_files_that_change);
    tcase_add_test(t, class_12_outputs_that_are_no_files);
    tcase_add_test(t, class_12_outputs_through_links);
    tcase_add_test(t, class_12_killed_while_writing);
    tcase_add_test(t, class_13_training_state);
    tcase_add_test(t, class_13_training_state_of_another_run);
    tcase_add_test(t, class_14_numbers);
    tcase_add_test(t, class_14_options_without_effect);
    tcase_add_test(t, class_14_short_texts_are_found_before_the_work);
    tcase_add_test(t, class_14_advice_lowers_the_cache);
    tcase_add_test(t, class_14_command_line);
    tcase_add_test(t, class_15_open_files);
    tcase_add_test(t, class_15_file_size);
#ifndef SHADOW_MEMORY
    tcase_add_test(t, class_15_address_space);
    tcase_add_test(t, class_15_huge_requests);
#endif
    suite_add_tcase(s, t);
    return run_suite(s);
}
