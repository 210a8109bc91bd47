/*
 * Runs the whole program where inputs change, where outputs must not be written, and where a
 * training state was changed. (test_faults.c has calls into the system that fail.)
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "checkpoints.h"
#include "hostile.h"
#include "support.h"

static struct text content_of(const char *path)
{
    size_t len;
    const char *bytes = file_text(path, &len);
    return (struct text){bytes, len};
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
    const struct text c = content_of(from);
    write_file(to, c.data, c.len);
}

enum change { CUT_OFF, CUT_IN_HALF, DELETED, REPLACED };

/* Another process makes the change. A conversion opens its calibration text, here a FIFO, when it
 * has mapped its checkpoint, and waits there until the change is made. */
static void convert_while(enum change change, int threads, struct ran *r)
{
    char line[3000];
    copy_file(good_path, bad_path);
    unlink(link_path);
    ck_assert_int_eq(mkfifo(link_path, 0600), 0);
    const pid_t meddler = fork();
    ck_assert_int_ge(meddler, 0);
    if (meddler == 0) {
        alarm(60);
        const int fd = open(link_path, O_WRONLY);
        if (change == DELETED    ? unlink(bad_path)
            : change == REPLACED ? rename(text_path, bad_path)
                                 : truncate(bad_path, change == CUT_OFF ? 0 : 70000))
            _exit(2);
        for (int i = 0; i < 100; i++)
            if (write(fd, "some text, to be calibrated on. ", 32) != 32)
                _exit(1);
        _exit(0);
    }
    snprintf(line, sizeof line, "convert %s -o %s --kv-heads 1 --calib %s -t %d -q --force",
             bad_path, out_path, link_path, threads);
    run_program(r, line, NULL, NULL);
    waitpid(meddler, NULL, 0);
}

TEST(class_12_files_that_change, .before = set_up)
{
    struct ran r;
    for (int i = 0; i < 4; i++) {
        convert_while((enum change)(i % 2), 1 + i / 2, &r);
        expect_refusal(&r, 3, "cut short");
        expect_no_output();
    }
    convert_while(DELETED, 1, &r);
    expect_success(&r);
    const struct text expected = content_of(out_path);
    convert_while(REPLACED, 1, &r); /* what was opened stays what it was */
    expect_success(&r);
    expect_bytes(out_path, expected.data, expected.len);
    remove_outputs();
}

/* These lines have each writer; the output is %s. */
static const char *const writers[] = {
    "convert %%G -o %s --type f16 -t 1 -q --force",
    "convert %%G -o %s --kv-heads 1 --method mean -t 1 -q --force",
    "train %%T -o %s --from %%G --steps 1 --batch 1 --seed 1 -t 1 -q",
    "score %%G -p ab -t 1 --logits %s",
    "bench %%G -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q --kv-heads 2 --svg %s",
};

TEST(class_12_outputs_that_are_no_files, .before = set_up)
{
    static const char itself[] = "is the checkpoint itself";
    char round_about[800];
    snprintf(round_about, sizeof round_about, "%s/../%s/good.gguf", folder,
             strrchr(folder, '/') + 1);
    const struct {
        const char *out;
        int code;
        const char *text, *link; /* what the link leads to; "": it is a FIFO, or good_path's own */
    } outputs[] = {
        {"/dev/null", 1, "expected a regular file, found a device", NULL},
        {folder, 1, "found a directory", NULL},
        {"/nosuchfolder/x", 1, "/nosuchfolder/x", NULL},
        {link_path, 1, "Too many levels of symbolic links", link_path},
        {link_path, 1, "found a pipe (FIFO)", ""},
        /* The output is the input, by its own name, by links, or by another path. */
        {good_path, 2, itself, NULL},
        {round_about, 2, itself, NULL},
        {link_path, 2, itself, good_path},
        {link_path, 2, itself, ""},
    };
    const struct text good = content_of(good_path), text = content_of(text_path);
    for (size_t i = 0; i < COUNT(outputs); i++) {
        const char *to = outputs[i].link;
        unlink(link_path);
        if (to)
            ck_assert_int_eq(*to                    ? symlink(to, link_path)
                             : outputs[i].code == 1 ? mkfifo(link_path, 0600)
                                                    : link(good_path, link_path),
                             0);
        for (size_t k = 0; k < COUNT(writers); k++) {
            char line[2000];
            snprintf(line, sizeof line, writers[k], outputs[i].out);
            expect_line_refused(line, outputs[i].code, outputs[i].text);
        }
        expect_no_output();
    }
    expect_bytes(good_path, good.data, good.len);
    expect_bytes(text_path, text.data, text.len);
}

#define TRAIN_NEW                                                                                  \
    "train %T -o %O --layers 1 --embd 4 --heads 1 --ff 4 --ctx 4 --vocab 256 --steps 2 --batch 1 " \
    "-t 1 -q --eval-every 1"

/* OUT.state is another kind of file, or is missing. (test_train.c and test_train_arch.c damage one,
 * and take that of another run.) */
TEST(class_13_training_state, .before = set_up)
{
    char state_path[700];
    snprintf(state_path, sizeof state_path, "%s.state", out_path);
    expect_line_done(TRAIN_NEW " --seed 1", "");
    const struct text out = content_of(out_path);
    expect_line_done(TRAIN_NEW " --resume", "");
    expect_line_done("train %T -o %O --resume -t 1", "");
    /* The options of the state are malformed. (test_train.c damages the rest.) */
    static const char *const options[][2] = {
        {"--embd=4", "--embt=4"},  {"--embd=4", "--embd=x"},   {"--embd=4", "--embd 4"},
        {"--embd=4", "--quiet\0"}, {"--batch=1", "TEXT.text"}, {"--batch=1", "--batch=0"}};
    size_t len;
    char *state = file_text(state_path, &len);
    for (size_t i = 0; i < COUNT(options); i++) {
        const size_t n = strlen(options[i][0]);
        char *at = memmem(state, len, options[i][0], n);
        ck_assert_ptr_nonnull(at);
        memcpy(at, options[i][1], n);
        const uint64_t hash = hash_words(HASH_START, state, len - sizeof hash);
        memcpy(state + len - sizeof hash, &hash, sizeof hash);
        write_file(state_path, state, len);
        memcpy(at, options[i][0], n);
        expect_line_refused("train %T -o %O --resume -t 1", 3, ".state: damaged: its options");
    }
    write_file(state_path, state, len);
    copy_file(good_path, state_path);
    expect_line_refused(TRAIN_NEW " --resume", 3, "expected a training state, found another file");
    unlink(state_path);
    expect_line_refused(TRAIN_NEW " --resume", 2, "there is no");
    ck_assert_int_eq(mkdir(state_path, 0700), 0);
    expect_line_refused(TRAIN_NEW " --resume", 1, "found a directory"); /* it is an output, too */
    rmdir(state_path);
    ck_assert_int_eq(mkfifo(state_path, 0600), 0);
    expect_line_refused(TRAIN_NEW " --resume", 1, "found a pipe (FIFO)");
    expect_bytes(out_path, out.data, out.len);
}
