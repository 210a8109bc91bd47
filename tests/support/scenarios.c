#include "scenarios.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints.h"
#include "model/model.h"
#include "support.h"

#define SHAPE   " --layers 1 --embd 8 --heads 2 --kv-heads 1 --ff 8 --ctx 5 --vocab 260"
#define STEPS   " --steps 2 --batch 1 --warmup 0 --save-every 1 --eval-every 1 --val-fraction .2"
#define TRAIN   "train text.txt -o out.gguf" SHAPE STEPS " --seed 1 -t 2 -q --log log.csv"
#define MEASURE " -t 2 -n 2 --repeat 1 --warmup 0 --prompt 2 --svg out.svg -q"

/* Name, command, inputs, outputs, and what is the same at every run. */
const struct scenario scenarios[] = {
    {"generate", "generate model.gguf -f prompt.txt -t 2 -n 5 --seed 1 --stop zzz -q",
     "model.gguf prompt.txt", "", STEADY_STDOUT},
    {"generate --kv-heads",
     "generate model.gguf -p abc -t 2 -n 2 --seed 1 --kv-heads 2 -q --format json", "model.gguf",
     "", STEADY_STDOUT},
    {"generate --samples",
     "generate transformer.gguf -p abc -t 2 -n 3 --seed 1 --samples 5 --batch 3 -q",
     "transformer.gguf", "", STEADY_STDOUT},
    {"generate --prompts",
     "generate model.gguf --prompts prompts.txt -t 2 -n 4 --seed 1 --stop zzz --batch 3 -q",
     "model.gguf prompts.txt", "", STEADY_STDOUT},
    {"score", "score llama.gguf -f prompt.txt -t 2 --top 2 --logits out.npy -q",
     "llama.gguf prompt.txt", "out.npy", STEADY_STDOUT | STEADY_FILES},
    {"attend",
     "attend model.gguf -f prompt.txt -t 2 --npy out.npy --svg out.svg --json out.json --html "
     "out.html --format csv -q",
     "model.gguf prompt.txt", "out.npy out.svg out.json out.html", STEADY_STDOUT | STEADY_FILES},
    {"attend, another variant",
     "attend model.gguf -f prompt.txt -t 2 --kv-heads 2 --query 1 --svg "
     "out.svg --layer 0 --head 1 -q",
     "model.gguf prompt.txt", "out.svg", STEADY_STDOUT | STEADY_FILES},
    {"heads --curve", "heads model.gguf text.txt -t 2 --tokens 24 --curve --svg out.svg -q",
     "model.gguf text.txt", "out.svg", STEADY_STDOUT | STEADY_FILES},
    {"eval", "eval model.gguf text.txt --against other.gguf --ctx 16 -t 2 -q",
     "model.gguf text.txt other.gguf", "", 0},
    {"eval --kv-type", "eval model.gguf text.txt --ctx 16 --kv-type q8_0/q4_0,q5_0 -t 2 -q",
     "model.gguf text.txt", "", 0},
    {"convert",
     "convert model.gguf -o out.gguf --kv-heads 2 --calib calib.txt --eval text.txt -t 2 "
     "-q --force",
     "model.gguf calib.txt text.txt", "out.gguf", STEADY_FILES},
    {"convert, heads by bytes",
     "convert llama.gguf -o out.gguf --kv-heads auto --cache-bytes 192 --calib calib.txt --refit "
     "none -t 2 -q --force",
     "llama.gguf calib.txt", "out.gguf", STEADY_FILES},
    {"convert --type", "convert model.gguf -o out.gguf --type q8_0 --force -t 2 -q", "model.gguf",
     "out.gguf", STEADY_FILES},
    {"train", TRAIN, "text.txt", "out.gguf out.gguf.state log.csv", TRAINS},
    {"train --resume", TRAIN " --resume", "text.txt", "out.gguf out.gguf.state log.csv",
     TRAINS | RESUMES},
    {"train --from",
     "train text.txt -o out.gguf --from model.gguf --teacher other.gguf" STEPS
     " --ctx 8 --seed 1 -t 2 -q",
     "text.txt model.gguf other.gguf", "out.gguf out.gguf.state", TRAINS},
    {"bench --shape", "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 0,4" MEASURE, "",
     "out.svg", 0},
    {"bench --batch", "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 4 --batch 1,3" MEASURE,
     "", "out.svg", 0},
    {"bench", "bench model.gguf --kv-heads 4,2 --type f16" MEASURE, "model.gguf", "out.svg", 0},
    {"tokenize", "tokenize bpe.gguf -f prompt.txt", "bpe.gguf prompt.txt", "", STEADY_STDOUT},
    {"tokenize by scores", "tokenize spm.gguf -f prompt.txt", "spm.gguf prompt.txt", "",
     STEADY_STDOUT},
    {"info", "info model.gguf --check --tensors", "model.gguf", "", STEADY_STDOUT},
};
const int n_scenarios = COUNT(scenarios);

static const char old_content[] = "the old file\n";

/* The bytes of a file; NULL: there is none. */
struct content {
    unsigned char *bytes;
    size_t len;
};

/* The files of the scenario; an empty name ends the list. */
struct file {
    char name[32];
    struct content old, new; /* before the runs; of an output, after that without a fault */
};

const struct scenario *scenario;
long scenario_calls[FAULT_KINDS], scenario_all_calls;
static char home[4096]; /* the working directory before */
static struct file inputs[SCENARIO_FILES + 1], outputs[SCENARIO_FILES + 1];
static struct ran reference;

bool scenario_is(unsigned flag)
{
    return scenario->flags & flag;
}

const char *scenario_output(int i)
{
    return *outputs[i].name ? outputs[i].name : NULL;
}

static struct content content_of(const char *path)
{
    struct content c = {NULL, 0};
    if (access(path, F_OK) == 0)
        c.bytes = read_file(path, &c.len);
    return c;
}

static bool same(const struct content *a, const struct content *b)
{
    return (a->bytes != NULL) == (b->bytes != NULL) && a->len == b->len &&
           (!a->bytes || memcmp(a->bytes, b->bytes, a->len) == 0);
}

static bool is_now(const char *path, const struct content *c)
{
    const struct content now = content_of(path);
    const bool is = same(&now, c);
    free(now.bytes);
    return is;
}

static void list_files(struct file *to, const char *list)
{
    memset(to, 0, (SCENARIO_FILES + 1) * sizeof *to);
    for (; *list; list += *list == ' ', to++) {
        const size_t len = strcspn(list, " ");
        snprintf(to->name, sizeof to->name, "%.*s", (int)len, list);
        list += len;
    }
}

static void write_text(const char *path, const char *text, int times)
{
    const size_t len = strlen(text);
    char *whole = allocated(len * (size_t)times);
    for (int i = 0; i < times; i++)
        memcpy(whole + (size_t)i * len, text, len);
    write_file(path, whole, len * (size_t)times);
}

/* Makes a checkpoint of another architecture, as a new one of it is. */
static void make_other(const char *path, const char *preset)
{
    struct config c = config_sized(preset, "layers=2 heads=4 kv=2 width=32 ff=32 ctx=32 vocab=257");
    write_config_checkpoint(path, &c);
}

/* Copies a file of the repository into the scratch folder. */
static void take(const char *path, const char *from)
{
    char path_there[sizeof home + 100];
    snprintf(path_there, sizeof path_there, "%s/%s", home, from);
    const struct content c = content_of(path_there);
    write_file(path, c.bytes, c.len);
    free(c.bytes);
}

static void make_inputs(void)
{
    struct checkpoint_shape shape =
        shape_of("layers=1 heads=4 kv=4 dim=8 ff=32 ctx=32 vocab=257 seed=1");
    write_checkpoint("model.gguf", &shape);
    shape.seed = 2;
    write_checkpoint("other.gguf", &shape);
    make_other("llama.gguf", "llama");
    make_other("transformer.gguf", "transformer");
    take("bpe.gguf", "tests/data/bpe-small.gguf");
    take("spm.gguf", "tests/data/spm-small.gguf");
    write_text("prompt.txt", "To be, or not", 1);
    write_text("prompts.txt", "To be\n\nor not\nthat is\nthe question", 1);
    write_text("text.txt", "a text of some words, and of other words; ", 2);
    write_text("calib.txt", "whether 'tis nobler in the mind to suffer ", 4);
}

/* Makes the files of a run that ended after its first step: the first two renames, of OUT and its
 * state, succeed. */
static void make_unfinished(void)
{
    struct ran r;
    struct fault_plan full = {.kind = FAULT_RENAME, .at = 2, .from_then_on = true, .error = EACCES};
    run_program(&r, TRAIN, faults_arm, &full);
    ck_assert_int_eq(r.code, 1);
}

static void expect_no_leak(const char *where)
{
    const struct fault_report *f = faults_report();
    ck_assert_msg(f->returned, "%s: the run did not come to its end", where);
    ck_assert_msg(!f->blocks && !f->mapped_bytes && !f->threads && !f->descriptors,
                  "%s: left %ld blocks, %ld mapped bytes, %ld threads, %d descriptors", where,
                  f->blocks, f->mapped_bytes, f->threads, f->descriptors);
}

void scenario_reset(void)
{
    for (const struct file *f = outputs; *f->name; f++)
        if (f->old.bytes)
            write_file(f->name, f->old.bytes, f->old.len);
        else
            unlink(f->name);
}

/* Makes an old file of the kind that its name says, because others are not replaced. */
static void write_old(const char *name)
{
    static const char *const starts[][2] = {
        {".svg", "<svg"}, {".html", "<!DOCTYPE html"}, {".json", "{"}, {".npy", "\x93NUMPY"}};
    const char *start = "";
    char text[64];
    for (size_t i = 0; i < COUNT(starts); i++)
        if (strstr(name, starts[i][0]))
            start = starts[i][1];
    snprintf(text, sizeof text, "%s%s", start, old_content);
    write_text(name, text, 1);
}

static void run_reference(void)
{
    const struct fault_plan none = {.error = 0};
    scenario_run(&reference, &none);
    expect_success(&reference);
    ck_assert_str_eq(reference.err, "");
    expect_no_leak(scenario->name);
    scenario_all_calls = faults_report()->all;
    memcpy(scenario_calls, faults_report()->calls, sizeof scenario_calls);
    for (struct file *f = outputs; *f->name; f++)
        f->new = content_of(f->name);
}

void scenario_begin(int index)
{
    scenario = &scenarios[index];
    list_files(inputs, scenario->inputs);
    list_files(outputs, scenario->outputs);
    ck_assert_ptr_nonnull(getcwd(home, sizeof home));
    ck_assert_int_eq(chdir(scratch_path("")), 0);
    make_inputs();
    for (struct file *f = inputs; *f->name; f++)
        f->old = content_of(f->name);
    if (scenario_is(RESUMES))
        make_unfinished();
    for (struct file *f = outputs; *f->name; f++) {
        if (!scenario_is(TRAINS)) /* which writes over no other run's */
            write_old(f->name);
        f->old = content_of(f->name);
    }
    run_reference();
}

void scenario_end(void)
{
    for (int i = 0; i < SCENARIO_FILES; i++) {
        free(inputs[i].old.bytes);
        free(outputs[i].old.bytes);
        free(outputs[i].new.bytes);
    }
    ck_assert_int_eq(chdir(home), 0);
}

void scenario_run(struct ran *r, const struct fault_plan *plan)
{
    struct fault_plan copy = *plan;
    scenario_reset();
    run_program(r, scenario->line, faults_arm, &copy);
}

const char *scenario_where(const struct fault_plan *plan)
{
    static char text[800];
    const struct fault_report *f = faults_report();
    snprintf(text, sizeof text, "%s: %s call %ld%s (%s)%s%s", scenario->name,
             plan->signal ? strsignal(plan->signal) : fault_names[plan->kind], plan->at,
             plan->from_then_on ? " and all after it" : "",
             plan->error ? strerror(plan->error) : "no error", f->what[0] ? " on " : "", f->what);
    return text;
}

/* Returns whether the path ends in one of these. */
static bool is_among(const struct file *files, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    while (*files->name && strcmp(files->name, name) != 0)
        files++;
    return *files->name;
}

bool scenario_is_input(const char *path)
{
    return is_among(inputs, path);
}

bool scenario_is_output(const char *path)
{
    return strstr(path, ".decode-") || is_among(outputs, path);
}

bool scenario_changed(int output)
{
    return !is_now(outputs[output].name, &outputs[output].old);
}

static void expect_no_other_file(const char *where)
{
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *d; (d = readdir(dir));)
        ck_assert_msg(!strstr(d->d_name, ".tmp"), "%s: left %s", where, d->d_name);
    closedir(dir);
}

/* The head of the log and the row of the step before. */
static bool keeps_two_lines(const struct content *old, const struct content *now)
{
    size_t n = 0;
    for (int lines = 0; lines < 2 && n < old->len; n++)
        lines += old->bytes[n] == '\n';
    return now->len >= n && memcmp(now->bytes, old->bytes, n) == 0;
}

/* A checkpoint of the training, or the log with its head and rows, the kept ones first. */
static bool is_of_training(const struct file *f, const struct content *c)
{
    if (strstr(f->name, ".csv"))
        return !scenario_is(RESUMES) || keeps_two_lines(&f->old, c);
    if (strstr(f->name, ".state"))
        return true; /* which going on with it shows */
    struct checkpoint checkpoint;
    const bool opens = checkpoint_open(f->name, CHECKPOINT_MODEL, &checkpoint, NULL) == STATUS_OK;
    checkpoint_close(&checkpoint);
    return opens;
}

/* An output that is not steady is a picture, perhaps of some of the rows. */
static void expect_output_whole(const struct file *f, const char *where)
{
    const struct content now = content_of(f->name);
    bool good = same(&now, &f->old) || same(&now, &f->new);
    if (!good && now.bytes && scenario_is(TRAINS))
        good = is_of_training(f, &now);
    else if (!good && !scenario_is(STEADY_FILES))
        good = now.len > 7 && memcmp(now.bytes + now.len - 7, "</svg>\n", 7) == 0;
    ck_assert_msg(good, "%s: %s is neither the old file nor the new one", where, f->name);
    free(now.bytes);
}

/* Expects that the first n outputs are the new ones. */
static void expect_new(const char *where, int n)
{
    for (const struct file *f = outputs; *f->name && n-- > 0; f++)
        ck_assert_msg(is_now(f->name, &f->new), "%s: another %s", where, f->name);
}

static void expect_goes_on(const char *where)
{
    struct ran r;
    char line[1024];
    if (access(outputs[1].name, F_OK) != 0)
        return;
    snprintf(line, sizeof line, "%s%s", scenario->line, scenario_is(RESUMES) ? "" : " --resume");
    run_program(&r, line, NULL, NULL);
    ck_assert_msg(r.code == 0, "%s: and then --resume: exit %d: %s", where, r.code, r.err);
    expect_new(where, 2); /* OUT and OUT.state */
}

void scenario_expect_done(const struct ran *r, const struct fault_plan *plan)
{
    const char *where = scenario_where(plan);
    ck_assert_msg(r->code == 0 && !r->err[0], "%s: exit %d: %s", where, r->code, r->err);
    if (scenario_is(STEADY_STDOUT))
        ck_assert_msg(r->out_len == reference.out_len && strcmp(r->out, reference.out) == 0,
                      "%s: another output", where);
    if (scenario_is(TRAINS | STEADY_FILES))
        expect_new(where, scenario_is(TRAINS) ? 2 : SCENARIO_FILES); /* OUT and OUT.state */
}

void scenario_expect_kept(const struct ran *r, const struct fault_plan *plan, bool leaks)
{
    char where[1000];
    snprintf(where, sizeof where, "%s: exit %d", scenario_where(plan), r->code);
    if (leaks)
        expect_no_leak(where);
    expect_no_other_file(where);
    for (const struct file *f = outputs; *f->name; f++)
        expect_output_whole(f, where);
    for (const struct file *f = inputs; *f->name; f++)
        ck_assert_msg(is_now(f->name, &f->old), "%s: another %s", where, f->name);
    if (scenario_is(TRAINS))
        expect_goes_on(where);
}
