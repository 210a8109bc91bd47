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
#define TRAIN   "train text.txt -o out.gguf --force" SHAPE STEPS " --seed 1 -t 2 -q --log log.csv"
#define MEASURE " -t 2 -n 2 --repeat 1 --warmup 0 --prompt 2 --plot out.svg --trace out.csv -q"

/* Name, command, inputs, outputs, and what is the same at every run. */
const struct scenario scenarios[] = {
    {"generate", "generate model.gguf -f prompt.txt -t 2 -n 5 --seed 1 --stop zzz -q",
     "model.gguf prompt.txt", "", STEADY_STDOUT},
    {"generate --kv-heads",
     "generate model.gguf -p abc -t 2 -n 2 --seed 1 --kv-heads 2 --calib calib.txt -q "
     "--logprobs 2",
     "model.gguf calib.txt", "", STEADY_STDOUT},
    {"generate --samples", "generate model.gguf -p abc -t 2 -n 3 --seed 1 --samples 5 --batch 3 -q",
     "model.gguf", "", STEADY_STDOUT},
    {"generate --prompts",
     "generate model.gguf --prompts prompts.jsonl -t 2 -n 4 --seed 1 --stop zzz --batch 3 -q",
     "model.gguf prompts.jsonl", "", STEADY_STDOUT},
    {"score", "score model.gguf -f prompt.txt -t 2 --top 2 --logits out.npy -q",
     "model.gguf prompt.txt", "out.npy", STEADY_STDOUT | STEADY_FILES},
    {"attend",
     "attend model.gguf -f prompt.txt -t 2 --npy out.npy --svg out.svg --json out.json -q",
     "model.gguf prompt.txt", "out.npy out.svg out.json", STEADY_STDOUT | STEADY_FILES},
    {"attend, another variant",
     "attend model.gguf -f prompt.txt -t 2 --kv-heads 2 --query 1 --svg out.svg "
     "--layer 0 --head 1 -q",
     "model.gguf prompt.txt", "out.svg", STEADY_STDOUT | STEADY_FILES},
    {"eval", "eval model.gguf --text text.txt --against other.gguf --ctx 16 -t 2 -q",
     "model.gguf text.txt other.gguf", "", 0},
    {"convert",
     "convert model.gguf -o out.gguf --kv-heads 2 --calib calib.txt --eval text.txt -t 2 "
     "-q --force",
     "model.gguf calib.txt text.txt", "out.gguf", STEADY_FILES},
    {"quantize", "quantize model.gguf -o out.gguf --type q8_0 --force -t 2 -q", "model.gguf",
     "out.gguf", STEADY_STDOUT | STEADY_FILES},
    {"train", TRAIN, "text.txt", "out.gguf out.gguf.state log.csv", TRAINS},
    {"train --resume", TRAIN " --resume", "text.txt", "out.gguf out.gguf.state log.csv",
     TRAINS | RESUMES},
    {"train --from",
     "train text.txt -o out.gguf --force --from model.gguf --teacher other.gguf" STEPS
     " --ctx 8 --seed 1 -t 2 -q",
     "text.txt model.gguf other.gguf", "out.gguf out.gguf.state", TRAINS},
    {"bench --shape", "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 0,4" MEASURE, "",
     "out.svg out.csv", 0},
    {"bench --batch", "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 4 --batch 1,3" MEASURE,
     "", "out.svg out.csv", 0},
    {"bench", "bench model.gguf --kv-heads 4,2 --type f16" MEASURE, "model.gguf", "out.svg out.csv",
     0},
    {"tokenize", "tokenize bpe.gguf -f prompt.txt", "bpe.gguf prompt.txt", "", STEADY_STDOUT},
    {"tokenize by scores", "tokenize spm.gguf -f prompt.txt", "spm.gguf prompt.txt", "",
     STEADY_STDOUT},
    {"info", "info model.gguf --check --tensors", "model.gguf", "", STEADY_STDOUT},
    {"score, llama", "score llama.gguf -f prompt.txt -t 2 --top 2 -q", "llama.gguf prompt.txt", "",
     STEADY_STDOUT},
    {"generate, transformer",
     "generate transformer.gguf -p abc -t 2 -n 3 --seed 1 --samples 3 --batch 2 -q",
     "transformer.gguf", "", STEADY_STDOUT},
    {"convert, llama",
     "convert llama.gguf -o out.gguf --kv-heads 1 --calib calib.txt -t 2 -q --force",
     "llama.gguf calib.txt", "out.gguf", STEADY_FILES},
    {"import", "import llama2c.bin -o out.gguf --force -q", "llama2c.bin", "out.gguf",
     STEADY_STDOUT | STEADY_FILES},
    {"import --type", "import llama2c.bin -o out.gguf --type q8_0 --force -t 2 -q", "llama2c.bin",
     "out.gguf", STEADY_STDOUT | STEADY_FILES},
    {"score, imported in memory", "score llama2c.bin --tokens 1,2,3 -t 2 --top 2 -q", "llama2c.bin",
     "", STEADY_STDOUT},
    {"generate --draft",
     "generate model.gguf --prompts prompts.jsonl -t 2 -n 4 --seed 1 --batch 3 "
     "--draft other.gguf --draft-n 2 -q",
     "model.gguf prompts.jsonl other.gguf", "", STEADY_STDOUT},
    {"generate --draft self", "generate model.gguf -p abc -t 2 -n 6 --seed 1 --draft self:q4_0 -q",
     "model.gguf", "", STEADY_STDOUT},
    {"generate --draft lookup",
     "generate model.gguf -p abababab -t 2 -n 4 --seed 1 --samples 3 --draft lookup -q",
     "model.gguf", "", STEADY_STDOUT},
    {"generate --load-state",
     "generate model.gguf --load-state text.saved --save-state out.saved -p d -t 2 -n 3 -q",
     "model.gguf text.saved", "out.saved", STEADY_STDOUT | STEADY_FILES},
};
const int n_scenarios = COUNT(scenarios);

static const char old_content[] = "the old file\n";

/* A file's bytes; NULL: there is none. */
struct content {
    unsigned char *bytes;
    size_t len;
};

static const struct scenario *current;
static char home[4096]; /* the working directory before */
static struct content inputs[SCENARIO_FILES], olds[SCENARIO_FILES], news[SCENARIO_FILES];
static char names[2][SCENARIO_FILES][32]; /* of inputs and outputs; empty after the last */
static struct ran reference;
static long calls[FAULT_KINDS], all_calls;

const struct scenario *scenario(void)
{
    return current;
}

bool scenario_is(unsigned flag)
{
    return current->flags & flag;
}

const char *scenario_output(int i)
{
    return i < SCENARIO_FILES && *names[1][i] ? names[1][i] : NULL;
}

static void split(const char *list, char (*to)[32])
{
    for (int i = 0; i < SCENARIO_FILES; i++) {
        const size_t len = strcspn(list, " ");
        snprintf(to[i], sizeof to[i], "%.*s", (int)len, list);
        list += len + (list[len] == ' ');
    }
}

long scenario_calls(enum fault_kind kind)
{
    return calls[kind];
}

long scenario_all_calls(void)
{
    return all_calls;
}

/* --- files ----------------------------------------------------------------------------------- */

static struct content content_of(const char *path)
{
    struct content c = {NULL, 0};
    if (access(path, F_OK) == 0)
        c.bytes = read_file(path, &c.len);
    return c;
}

static void put_back(const char *path, const struct content *c)
{
    if (c->bytes)
        write_file(path, c->bytes, c->len);
    else
        unlink(path);
}

static bool same(const struct content *a, const struct content *b)
{
    return (a->bytes != NULL) == (b->bytes != NULL) && a->len == b->len &&
           (!a->bytes || memcmp(a->bytes, b->bytes, a->len) == 0);
}

static void write_text(const char *path, const char *text, int times)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    while (times-- > 0)
        fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

/* Of another architecture, as a new checkpoint of it is. */
static void make_other(const char *path, const char *preset)
{
    struct config c = config_sized(preset, "layers=2 heads=4 kv=2 width=32 ff=32 ctx=32 vocab=257");
    write_config_checkpoint(path, &c);
}

/* A checkpoint of llama2.c: seven numbers, then floats in its order. */
static void make_llama2c(const char *path)
{
    enum { WIDTH = 32, FF = 64, VOCAB = 256, CTX = 8 };
    static const int32_t numbers[7] = {WIDTH, FF, 1, 2, 1, VOCAB, CTX};
    static float
        weights[VOCAB * WIDTH + 3 * WIDTH + 3 * WIDTH * WIDTH + 3 * WIDTH * FF + CTX * WIDTH / 2];
    for (size_t i = 0; i < COUNT(weights); i++)
        weights[i] = (float)((int)(i * 37 % 101) - 50) / 64;
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(numbers, 1, sizeof numbers, f) == sizeof numbers);
    ck_assert(fwrite(weights, 1, sizeof weights, f) == sizeof weights && fclose(f) == 0);
}

static void make_saved_text(void)
{
    struct ran r;
    run_program(&r, "generate model.gguf -p abc -n 3 --seed 1 --save-state text.saved -q", NULL,
                NULL);
    expect_success(&r);
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
    make_llama2c("llama2c.bin");
    write_text("prompt.txt", "To be, or not", 1);
    write_text(
        "prompts.jsonl",
        "{\"prompt\": \"To be\", \"id\": 1}\n{\"prompt\": \"\", \"stop\": [\"x\"]}\n"
        "{\"prompt\": \"or not\\n\", \"n\": 2, \"id\": \"two\"}\n{\"prompt\": \"that is\"}\n",
        1);
    write_text("text.txt", "a text of some words, and of other words; ", 2);
    write_text("calib.txt", "whether 'tis nobler in the mind to suffer ", 4);
    make_saved_text();
}

/* Of a run that ended after its first step: the first two renames, OUT and its state, succeed. */
static void make_unfinished(void)
{
    struct ran r;
    struct fault_plan full = {.kind = FAULT_RENAME, .at = 2, .from_then_on = true, .error = EACCES};
    run_program(&r, TRAIN, faults_arm, &full);
    ck_assert_int_eq(r.code, 1);
}

/* --- the scenario ---------------------------------------------------------------------------- */

static bool leaked(const struct fault_report *f)
{
    return f->blocks || f->mapped_bytes || f->threads || f->descriptors;
}

static void expect_no_leak(const char *where)
{
    const struct fault_report *f = faults_report();
    ck_assert_msg(f->returned, "%s: the run did not come to its end", where);
    ck_assert_msg(!leaked(f), "%s: left %ld blocks, %ld mapped bytes, %ld threads, %d descriptors",
                  where, f->blocks, f->mapped_bytes, f->threads, f->descriptors);
}

void scenario_reset(void)
{
    for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++)
        put_back(names[1][i], &olds[i]);
}

static void run_reference(void)
{
    const struct fault_plan none = {.error = 0};
    scenario_run(&reference, &none);
    expect_success(&reference);
    ck_assert_str_eq(reference.err, "");
    expect_no_leak(current->name);
    const struct fault_report *f = faults_report();
    all_calls = f->all;
    for (int i = 0; i < FAULT_KINDS; i++)
        calls[i] = f->calls[i];
    for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++)
        news[i] = content_of(names[1][i]);
}

void scenario_begin(int index)
{
    current = &scenarios[index];
    split(current->inputs, names[0]);
    split(current->outputs, names[1]);
    struct content bpe, spm;
    bpe.bytes = read_file("tests/data/bpe-small.gguf", &bpe.len);
    spm.bytes = read_file("tests/data/spm-small.gguf", &spm.len);
    ck_assert_ptr_nonnull(getcwd(home, sizeof home));
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    ck_assert_int_eq(chdir(folder), 0);
    make_inputs();
    put_back("bpe.gguf", &bpe);
    put_back("spm.gguf", &spm);
    free(bpe.bytes);
    free(spm.bytes);
    for (int i = 0; i < SCENARIO_FILES && *names[0][i]; i++)
        inputs[i] = content_of(names[0][i]);
    if (scenario_is(RESUMES))
        make_unfinished();
    else
        for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++)
            if (!strstr(names[1][i], ".state"))
                write_text(names[1][i], old_content, 1);
    for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++)
        olds[i] = content_of(names[1][i]);
    run_reference();
}

void scenario_end(void)
{
    for (int i = 0; i < SCENARIO_FILES; i++) {
        free(inputs[i].bytes);
        free(olds[i].bytes);
        free(news[i].bytes);
        inputs[i] = olds[i] = news[i] = (struct content){NULL, 0};
    }
    ck_assert_int_eq(chdir(home), 0);
    scratch_remove();
}

void scenario_run(struct ran *r, const struct fault_plan *plan)
{
    struct fault_plan copy = *plan;
    scenario_reset();
    run_program(r, current->line, faults_arm, &copy);
}

const char *scenario_where(const struct fault_plan *plan)
{
    static char text[800];
    const struct fault_report *f = faults_report();
    snprintf(text, sizeof text, "%s: %s call %ld%s (%s)%s%s", current->name,
             plan->signal ? strsignal(plan->signal) : fault_names[plan->kind], plan->at,
             plan->from_then_on ? " and all after it" : "",
             plan->error ? strerror(plan->error) : "no error", f->what[0] ? " on " : "", f->what);
    return text;
}

static bool ends_in(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

bool scenario_is_input(const char *path)
{
    for (int i = 0; i < SCENARIO_FILES && *names[0][i]; i++)
        if (ends_in(path, names[0][i]))
            return true;
    return false;
}

bool scenario_is_output(const char *path)
{
    if (strstr(path, ".decode-"))
        return true;
    for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++)
        if (ends_in(path, names[1][i]))
            return true;
    return false;
}

/* --- what must hold afterwards --------------------------------------------------------------- */

bool scenario_changed(int output)
{
    struct content now = content_of(names[1][output]);
    const bool changed = !same(&now, &olds[output]);
    free(now.bytes);
    return changed;
}

static void expect_no_other_file(const char *where)
{
    DIR *dir = opendir(".");
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *d; (d = readdir(dir));)
        ck_assert_msg(!strstr(d->d_name, ".tmp"), "%s: left %s", where, d->d_name);
    closedir(dir);
}

/* A file that differs from run to run, or has a part of the rows: made at once, or not at all. */
static bool is_whole(const char *path, const struct content *c)
{
    if (!c->len || c->bytes[c->len - 1] != '\n')
        return false;
    return !strstr(path, ".svg") ||
           (c->len > 7 && memcmp(c->bytes + c->len - 7, "</svg>\n", 7) == 0);
}

/* The head of the log and the row of the step before. */
static bool keeps_two_lines(const struct content *old, const struct content *now)
{
    size_t n = 0;
    for (int lines = 0; lines < 2 && n < old->len; n++)
        lines += old->bytes[n] == '\n';
    return now->len >= n && memcmp(now->bytes, old->bytes, n) == 0;
}

/* A checkpoint of the training; the log's head and rows, the kept ones first. */
static bool is_of_training(int i, const struct content *c)
{
    const char *path = names[1][i];
    if (strstr(path, ".csv"))
        return !scenario_is(RESUMES) || keeps_two_lines(&olds[i], c);
    if (strstr(path, ".state"))
        return true; /* which going on with it shows */
    struct checkpoint checkpoint;
    const bool opens = checkpoint_open(path, CHECKPOINT_MODEL, &checkpoint, NULL) == STATUS_OK;
    checkpoint_close(&checkpoint);
    return opens;
}

/* An interrupted text is saved as far as it came. */
static bool goes_on(const char *path)
{
    struct ran r;
    char line[128];
    snprintf(line, sizeof line, "generate model.gguf --load-state %s -n 1 -q", path);
    run_program(&r, line, NULL, NULL);
    return r.code == STATUS_OK;
}

static void expect_outputs_whole(const char *where)
{
    for (int i = 0; i < SCENARIO_FILES && *names[1][i]; i++) {
        struct content now = content_of(names[1][i]);
        bool good = same(&now, &olds[i]) || same(&now, &news[i]);
        if (!good && now.bytes && scenario_is(TRAINS))
            good = is_of_training(i, &now);
        else if (!good && now.bytes && strstr(names[1][i], ".saved"))
            good = goes_on(names[1][i]);
        else if (!good && now.bytes && !scenario_is(STEADY_FILES))
            good = is_whole(names[1][i], &now);
        ck_assert_msg(good, "%s: %s is neither the old file nor the new one", where, names[1][i]);
        free(now.bytes);
    }
}

static void expect_same(const char *where, int kind, const struct content *as, int n)
{
    for (int i = 0; i < n && *names[kind][i]; i++) {
        struct content now = content_of(names[kind][i]);
        ck_assert_msg(same(&now, &as[i]), "%s: another %s", where, names[kind][i]);
        free(now.bytes);
    }
}

static void expect_goes_on(const char *where)
{
    struct ran r;
    char line[1024];
    if (access(names[1][1], F_OK) != 0)
        return;
    snprintf(line, sizeof line, "%s%s", current->line, scenario_is(RESUMES) ? "" : " --resume");
    run_program(&r, line, NULL, NULL);
    ck_assert_msg(r.code == 0, "%s: and then --resume: exit %d: %s", where, r.code, r.err);
    expect_same(where, 1, news, 2); /* OUT and OUT.state */
}

void scenario_expect_done(const struct ran *r, const struct fault_plan *plan)
{
    const char *where = scenario_where(plan);
    ck_assert_msg(r->code == 0 && !r->err[0], "%s: exit %d: %s", where, r->code, r->err);
    if (scenario_is(STEADY_STDOUT))
        ck_assert_msg(r->out_len == reference.out_len && strcmp(r->out, reference.out) == 0,
                      "%s: another output", where);
    if (scenario_is(TRAINS))
        expect_same(where, 1, news, 2); /* OUT and OUT.state */
    if (scenario_is(STEADY_FILES))
        expect_same(where, 1, news, SCENARIO_FILES);
}

void scenario_expect_kept(const struct ran *r, const struct fault_plan *plan, bool leaks)
{
    char where[1000];
    snprintf(where, sizeof where, "%s: exit %d", scenario_where(plan), r->code);
    if (leaks)
        expect_no_leak(where);
    expect_no_other_file(where);
    expect_outputs_whole(where);
    expect_same(where, 0, inputs, SCENARIO_FILES);
    if (scenario_is(TRAINS))
        expect_goes_on(where);
}
