/*
 * Imports and exports whose n-th allocation, mapping, opening or write fails, for every n: the
 * right status, nothing leaked, no descriptor left, no half of a file; and a folder that is not
 * whole has no config.json.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints.h"
#include "faults.h"
#include "gguf_bytes.h"
#include "imports.h"
#include "support.h"

static const char *folder, *llama2c_path, *llmc_path, *model_path, *out_path, *out_folder;

static enum status import_to(const char *path, bool to_memory, struct err *e)
{
    struct import *im;
    struct file_map map;
    const struct import_options o = {.notes = {no_note, NULL}};
    enum status s = import_open(path, &o, &im, e);
    if (s != STATUS_OK)
        return s;
    if (!to_memory)
        s = gguf_write(import_writer(im), out_path, e);
    else if ((s = gguf_write_map(import_writer(im), &map, e)) == STATUS_OK)
        file_map_close(&map);
    import_close(im);
    return s;
}

static enum status import_folder(struct err *e)
{
    return import_to(folder, false, e);
}

static enum status import_to_memory(struct err *e)
{
    return import_to(folder, true, e);
}

static enum status import_llama2c(struct err *e)
{
    return import_to(llama2c_path, false, e);
}

static enum status import_llmc(struct err *e)
{
    return import_to(llmc_path, false, e);
}

static enum status export_to(const char *to, bool expand, struct err *e)
{
    struct checkpoint c;
    struct export_result r;
    const struct export_options o = {.expand = expand, .notes = {no_note, NULL}};
    enum status s = checkpoint_open(model_path, 0, &c, e);
    if (s != STATUS_OK)
        return s;
    s = export_folder(c.gguf, &o, to, &r, e);
    checkpoint_close(&c);
    return s;
}

static enum status export_model(struct err *e)
{
    return export_to(out_folder, true, e);
}

static const struct work {
    enum status (*run)(struct err *e);
    int allocations, writes, opens; /* there are at least so many */
} works[] = {
    {import_folder, 20, 1, 4}, {import_to_memory, 20, 0, 3}, {import_llama2c, 10, 1, 2},
    {import_llmc, 10, 1, 2},   {export_model, 20, 4, 4},
};
#define N_WORKS 5

enum { WIDTH = 32, FF = 64, CTX = 8, VOCAB = 256 };

static const char *zeros_behind(const char *name, const int32_t *numbers, size_t n, size_t floats)
{
    const char *path = scratch_path(name);
    const size_t len = n * sizeof *numbers + floats * sizeof(float);
    write_file(path, memcpy(allocated_zeros(len), numbers, n * sizeof *numbers), len);
    return path;
}

static void set_up(void)
{
    static const int32_t llama2c[7] = {WIDTH, FF, 1, 2, 1, VOCAB, CTX};
    static const int32_t llmc[256] = {20240326, 3, CTX, VOCAB, 1, 2, WIDTH, VOCAB};
    const struct checkpoint_shape shape =
        shape_of("layers=1 heads=2 kv=1 dim=16 ff=64 ctx=8 vocab=256 seed=1");
    folder = make_folder("folder");
    out_folder = make_folder("out");
    out_path = scratch_path("out.gguf");
    llama2c_path = zeros_behind("llama2c.bin", llama2c, 7,
                                VOCAB * WIDTH + 3 * WIDTH + 3 * WIDTH * WIDTH + 3 * WIDTH * FF +
                                    CTX * WIDTH / 2);
    llmc_path = zeros_behind("llmc.bin", llmc, 256,
                             (VOCAB + CTX) * WIDTH + 12 * WIDTH * WIDTH + 15 * WIDTH);
    model_path = scratch_path("model.gguf");
    write_checkpoint(model_path, &shape);
    expect_ok(export_to(folder, false, &err));
}

/* What may fail and nobody minds: a folder, that a rename in it lasts, or a file that was replaced,
 * which the next writer cleans up. */
static bool is_optional(const char *what)
{
    const size_t len = strlen(what);
    return len > 4 && (what[len - 1] == '/' || strcmp(what + len - 4, ".tmp") == 0);
}

/* Each call of the kind in its turn, once and from then on, until all succeed; each time one of two
 * things happens. */
static void fails_at_each(const struct work *w, enum fault_kind kind, int error,
                          enum status expected, enum status or_else, int at_least)
{
    struct fault_plan plan = {.kind = kind, .error = error};
    const char *config = path_of(out_folder, "config.json");
    for (int i = 0; i < 2; i++, plan.from_then_on = true)
        for (plan.at = 0;; plan.at++) {
            unlink(out_path);
            unlink(config);
            faults_arm(&plan);
            const enum status s = w->run(&err);
            faults_disarm();
            const struct fault_report *f = faults_report();
            ck_assert_msg(!f->blocks && !f->descriptors && !f->mapped_bytes,
                          "%s %ld: %ld blocks, %ld bytes mapped, %d descriptors left: %s",
                          fault_names[kind], plan.at, f->blocks, f->mapped_bytes, f->descriptors,
                          err.text);
            if (!f->met) {
                expect_ok(s);
                ck_assert_int_ge(plan.at, at_least);
                break;
            }
            if (s == STATUS_OK && (is_optional(f->what) || or_else == STATUS_OK))
                continue;
            ck_assert_msg((s == expected || s == or_else) && err.text[0], "%s %ld: %d: %s (%s)",
                          fault_names[kind], plan.at, (int)s, err.text, f->what);
            expect_status(s, s, "");
            ck_assert_msg(access(w->run == export_model ? config : out_path, F_OK) != 0,
                          "%s %ld: half of it is there", fault_names[kind], plan.at);
        }
}

TEST(no_memory, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up)
{
    const struct work *w = &works[_i];
    const enum status s = STATUS_NO_MEMORY;
    fails_at_each(w, FAULT_MEMORY, ENOMEM, s, s, w->allocations);
    fails_at_each(w, FAULT_MAP, ENOMEM, s, s, 1);
}

/* What is read is a bad file, but not because of descriptors; what is written is a failure. */
TEST(files_that_do_not_open, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up)
{
    const struct work *w = &works[_i];
    fails_at_each(w, FAULT_OPEN, EACCES, STATUS_BAD_FILE, STATUS_FAILED, w->opens);
    fails_at_each(w, FAULT_OPEN, EMFILE, STATUS_FAILED, STATUS_FAILED, w->opens);
}

TEST(a_disk_that_is_full, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up)
{
    const struct work *w = &works[_i];
    fails_at_each(w, FAULT_WRITE, ENOSPC, STATUS_FAILED, STATUS_FAILED, w->writes);
    fails_at_each(w, FAULT_SYNC, EIO, STATUS_FAILED, STATUS_OK, w->writes);
    fails_at_each(w, FAULT_RENAME, EACCES, STATUS_FAILED, STATUS_FAILED, w->writes);
}
