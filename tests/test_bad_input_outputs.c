/*
 * Hostile surroundings of a run of the whole program: inputs that change and outputs that must not
 * be (class 12), and a training state that is not what it was (class 13: there is no session
 * file). System calls that fail at the n-th call are in test_file_faults.c and the other suites of
 * faults.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "hostile.h"
#include "support.h"

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
    expect_bytes(path, was.bytes, was.len);
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

TEST(class_12_files_that_change, .before = set_up, .after = hostile_tear_down)
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
    "train %%T -o %s --force --from %%G --steps 1 --batch 1 --seed 1 -t 1 -q",
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
TEST(class_12_outputs_that_are_no_files, .before = set_up, .after = hostile_tear_down)
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
    expect_line_refused("bench --shape 1x8x1,vocab=9,ctx=4 --plot %O --trace %O", 2, "names, too");
}

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

TEST(class_12_killed_while_writing, .before = set_up, .after = hostile_tear_down)
{
    const struct checkpoint_shape large =
        shape_of("layers=1 heads=2 kv=2 dim=32 ff=64 ctx=16 vocab=8000 seed=7");
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
    expect_bytes(out_path, "old", 3);
    run_program(&r, line, leave_temporaries, NULL);
    expect_success(&r);
    struct content first = content_of(out_path);
    run_program(&r, line, NULL, NULL);
    expect_success(&r);
    expect_unchanged(out_path, first);
}

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
    expect_bytes(state_path, state->bytes, state->len);
    expect_bytes(out_path, out->bytes, out->len);
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

TEST(class_13_training_state, .before = set_up, .after = hostile_tear_down)
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
        for (size_t i = 0; i < COUNT(counts); i++)
            expect_forged_refused(&state, &out, HEADER - 64 + 8 * (size_t)word, counts[i]);
    expect_forged_refused(&state, &out, HEADER - 48, 0x7ff8000000000000u); /* best: NaN */
    expect_forged_refused(&state, &out, HEADER - 24, UINT64_MAX);          /* floats */
    expect_forged_refused(&state, &out, HEADER - 24, UINT64_MAX / 4 + 1);  /* floats */
    expect_forged_refused(&state, &out, HEADER - 16, UINT64_MAX);          /* length of OUT */
    expect_forged_refused(&state, &out, HEADER - 8, 1);                    /* hash of OUT */
    free(out.bytes);
    free(state.bytes);
}

TEST(class_13_training_state_of_another_run, .before = set_up, .after = hostile_tear_down)
{
    struct content state = make_state(), out = content_of(out_path);
    static const char *const others[] = {
        "--layers 2",       "--embd 8",           "--heads 2",     "--ff 8",      "--ctx 5",
        "--steps 3",        "--steps 1",          "--batch 2",     "--lr 0.1",    "--warmup 1",
        "--beta2 0.5",      "--clip 2",           "--seed 2",      "--vocab 257", "--dropout 0.1",
        "--weight-decay 0", "--val-fraction 0.2", "--eval-every 2"};
    char line[600];
    for (size_t i = 0; i < COUNT(others); i++) {
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
    expect_line_refused(TRAIN_NEW " --resume", 1, "found a directory"); /* it is an output, too */
    rmdir(state_path);
    ck_assert_int_eq(mkfifo(state_path, 0600), 0);
    expect_line_refused(TRAIN_NEW " --resume", 1, "found a pipe (FIFO)");
    expect_unchanged(out_path, out);
    free(state.bytes);
}
