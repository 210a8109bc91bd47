/*
 * Imports and exports whose n-th allocation, mapping, opening or write fails, for every n: the
 * right status, nothing leaked, no descriptor left, no half of a file; and a folder that is not
 * whole has no config.json.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints.h"
#include "exchange/exchange.h"
#include "faults.h"
#include "gguf_bytes.h"
#include "imports.h"
#include "opened.h"
#include "support.h"

/* --- what is run ----------------------------------------------------------------------------- */

static char folder[600], llama2c_path[600], llmc_path[600], model_path[600], out_path[600],
    out_folder[600];

static void no_note(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static enum status import_to(const char *path, bool to_memory, struct err *e)
{
    struct import *im;
    struct file_map map;
    const struct import_options o = {.notes = {no_note, NULL}};
    enum status s = import_open(path, &o, &im, e);
    if (s != STATUS_OK)
        return s;
    if (to_memory) {
        s = gguf_write_map(import_writer(im), &map, e);
        if (s == STATUS_OK)
            file_map_close(&map);
    } else {
        s = gguf_write(import_writer(im), out_path, e);
    }
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

static enum status export_model(struct err *e)
{
    struct checkpoint c;
    struct export_result r;
    const struct export_options o = {.expand = true, .notes = {no_note, NULL}};
    enum status s = checkpoint_open(model_path, 0, &c, e);
    if (s != STATUS_OK)
        return s;
    s = export_folder(c.gguf, &o, out_folder, &r, e);
    checkpoint_close(&c);
    return s;
}

static const struct work {
    enum status (*run)(struct err *e);
    int allocations, writes, opens; /* there are at least so many */
    bool exports;
} works[] = {
    {import_folder, 20, 1, 4, false},  {import_to_memory, 20, 0, 3, false},
    {import_llama2c, 10, 1, 2, false}, {import_llmc, 10, 1, 2, false},
    {export_model, 20, 4, 4, true},
};
#define N_WORKS 5

/* --- files ----------------------------------------------------------------------------------- */

#define WIDTH 32
#define FF    64
#define CTX   8
#define VOCAB 256

static void write_zeros(const char *path, const int32_t *numbers, size_t n_numbers, size_t floats)
{
    FILE *f = fopen(path, "wb");
    float *zeros = calloc(floats, sizeof *zeros);
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(numbers, sizeof *numbers, n_numbers, f), n_numbers);
    ck_assert_uint_eq(fwrite(zeros, sizeof *zeros, floats, f), floats);
    ck_assert_int_eq(fclose(f), 0);
    free(zeros);
}

static void write_bins(void)
{
    const int32_t llama2c[7] = {WIDTH, FF, 1, 2, 1, VOCAB, CTX};
    const int32_t llmc[256] = {20240326, 3, CTX, VOCAB, 1, 2, WIDTH, VOCAB};
    const size_t square = WIDTH * WIDTH;
    write_zeros(llama2c_path, llama2c, 7,
                VOCAB * WIDTH + 3 * WIDTH + 3 * square + 3 * WIDTH * FF + CTX * WIDTH / 2);
    write_zeros(llmc_path, llmc, 256,
                (VOCAB + CTX) * WIDTH + 12 * square + (2 + 3 + 1 + 2 + 4 + 1 + 2) * WIDTH);
}

static void set_up(void)
{
    struct export_result r;
    const struct export_options o = {.notes = {no_note, NULL}};
    struct checkpoint_shape shape = shape_of("layers=1 heads=2 kv=1 dim=16 seed=1");
    shape.d_ff = FF;
    shape.n_ctx = CTX;
    shape.n_vocab = VOCAB;
    snprintf(folder, sizeof folder, "%s", make_folder("folder"));
    snprintf(out_folder, sizeof out_folder, "%s", make_folder("out"));
    snprintf(llama2c_path, sizeof llama2c_path, "%s", scratch_path("llama2c.bin"));
    snprintf(llmc_path, sizeof llmc_path, "%s", scratch_path("llmc.bin"));
    snprintf(model_path, sizeof model_path, "%s", scratch_path("model.gguf"));
    snprintf(out_path, sizeof out_path, "%s", scratch_path("out.gguf"));
    write_checkpoint(model_path, &shape);
    write_bins();
    struct checkpoint c = open_checkpoint(model_path, 0);
    expect_ok(export_folder(c.gguf, &o, folder, &r, &err));
    checkpoint_close(&c);
}

/* --- calls that fail ------------------------------------------------------------------------- */

static void expect_nothing_left(const struct work *w, const struct fault_plan *plan,
                                enum status status, const struct err *e)
{
    const struct fault_report *f = faults_report();
    if (f->blocks || f->descriptors || f->mapped_bytes)
        ck_abort_msg("%s %ld: %ld blocks, %ld bytes mapped, %d descriptors left: %s",
                     fault_names[plan->kind], plan->at, f->blocks, f->mapped_bytes, f->descriptors,
                     e->text);
    if (status == STATUS_OK)
        return;
    if (access(w->exports ? path_of(out_folder, "config.json") : out_path, F_OK) == 0)
        ck_abort_msg("%s %ld: half of it is there", fault_names[plan->kind], plan->at);
    if (!e->text[0] || strchr(e->text, '\n'))
        ck_abort_msg("%s %ld: '%s'", fault_names[plan->kind], plan->at, e->text);
}

/* Each call of the kind in its turn, until all succeed; each time one of two things happens. */
static void fails_at_each(const struct work *w, struct fault_plan plan, enum status expected,
                          enum status or_else, int at_least)
{
    for (plan.at = 0;; plan.at++) {
        unlink(out_path);
        unlink(path_of(out_folder, "config.json"));
        faults_arm(&plan);
        const enum status status = w->run(&err);
        faults_disarm();
        expect_nothing_left(w, &plan, status, &err);
        if (!faults_report()->met) {
            expect_ok(status);
            ck_assert_int_ge(plan.at, at_least);
            return;
        }
        const char *what = faults_report()->what;
        const size_t len = strlen(what);
        if (status == STATUS_OK && len > 4 &&
            (what[len - 1] == '/' || strcmp(what + len - 4, ".tmp") == 0))
            continue; /* a folder, that a rename in it lasts, or one that was replaced: the next
                         writer cleans up */
        if (status != expected && status != or_else)
            ck_abort_msg("%s %ld: %d: %s (%s)", fault_names[plan.kind], plan.at, (int)status,
                         err.text, what);
    }
}

TEST(no_memory, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up, .after = scratch_remove)
{
    const struct work *w = &works[_i];
    for (int then_on = 0; then_on <= 1; then_on++) {
        const struct fault_plan plan = {FAULT_MEMORY, 0, then_on != 0, ENOMEM, 0, false};
        fails_at_each(w, plan, STATUS_NO_MEMORY, STATUS_NO_MEMORY, w->allocations);
    }
    const struct fault_plan map = {FAULT_MAP, 0, false, ENOMEM, 0, false};
    fails_at_each(w, map, STATUS_NO_MEMORY, STATUS_NO_MEMORY, 1);
}

/* What is read is a bad file, but not because of descriptors; what is written is a failure. */
TEST(files_that_do_not_open, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up,
     .after = scratch_remove)
{
    const struct work *w = &works[_i];
    const struct fault_plan denied = {FAULT_OPEN, 0, false, EACCES, 0, false};
    fails_at_each(w, denied, STATUS_BAD_FILE, STATUS_FAILED, w->opens);
    const struct fault_plan too_many = {FAULT_OPEN, 0, false, EMFILE, 0, false};
    fails_at_each(w, too_many, STATUS_FAILED, STATUS_FAILED, w->opens);
}

TEST(a_disk_that_is_full, .loops = N_WORKS, .tags = ONE_THREAD, .before = set_up,
     .after = scratch_remove)
{
    const struct work *w = &works[_i];
    for (int then_on = 0; then_on <= 1; then_on++) {
        const struct fault_plan plan = {FAULT_WRITE, 0, then_on != 0, ENOSPC, 0, false};
        fails_at_each(w, plan, STATUS_FAILED, STATUS_FAILED, w->writes);
    }
    const struct fault_plan sync = {FAULT_SYNC, 0, false, EIO, 0, false};
    fails_at_each(w, sync, STATUS_FAILED, STATUS_OK, w->writes);
    const struct fault_plan rename = {FAULT_RENAME, 0, false, EACCES, 0, false};
    fails_at_each(w, rename, STATUS_FAILED, STATUS_FAILED, w->writes);
}
