#include "scenarios.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints.h"
#include "model/checkpoint.h"
#include "support.h"

#define SHAPE   " --layers 1 --embd 8 --heads 2 --kv-heads 1 --ff 8 --ctx 5 --vocab 260"
#define STEPS   " --steps 2 --batch 1 --warmup 0 --save-every 1 --eval-every 1 --val-fraction .2"
#define TRAIN   "train text.txt -o out.gguf --force" SHAPE STEPS " --seed 1 -t 2 -q --log log.csv"
#define MEASURE " -t 2 -n 2 --repeat 1 --warmup 0 --prompt 2 --plot out.svg --trace out.csv -q"

const struct scenario scenarios[] = {
    {.name = "generate",
     .line = "generate model.gguf -f prompt.txt -t 2 -n 5 --seed 1 --stop zzz -q",
     .inputs = {"model.gguf", "prompt.txt"},
     .steady_stdout = true},
    {.name = "generate --kv-heads",
     .line = "generate model.gguf -p abc -t 2 -n 2 --seed 1 --kv-heads 2 --calib calib.txt -q "
             "--logprobs 2",
     .inputs = {"model.gguf", "calib.txt"},
     .steady_stdout = true},
    {.name = "generate --samples",
     .line = "generate model.gguf -p abc -t 2 -n 3 --seed 1 --samples 5 --batch 3 -q",
     .inputs = {"model.gguf"},
     .steady_stdout = true},
    {.name = "generate --prompts",
     .line =
         "generate model.gguf --prompts prompts.jsonl -t 2 -n 4 --seed 1 --stop zzz --batch 3 -q",
     .inputs = {"model.gguf", "prompts.jsonl"},
     .steady_stdout = true},
    {.name = "score",
     .line = "score model.gguf -f prompt.txt -t 2 --top 2 --logits out.npy -q",
     .inputs = {"model.gguf", "prompt.txt"},
     .outputs = {"out.npy"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "attend",
     .line = "attend model.gguf -f prompt.txt -t 2 --npy out.npy --svg out.svg --json out.json -q",
     .inputs = {"model.gguf", "prompt.txt"},
     .outputs = {"out.npy", "out.svg", "out.json"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "attend, another variant",
     .line = "attend model.gguf -f prompt.txt -t 2 --kv-heads 2 --query 1 --svg out.svg "
             "--layer 0 --head 1 -q",
     .inputs = {"model.gguf", "prompt.txt"},
     .outputs = {"out.svg"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "eval",
     .line = "eval model.gguf --text text.txt --against other.gguf --ctx 16 -t 2 -q",
     .inputs = {"model.gguf", "text.txt", "other.gguf"}},
    {.name = "convert",
     .line = "convert model.gguf -o out.gguf --kv-heads 2 --calib calib.txt --eval text.txt -t 2 "
             "-q --force",
     .inputs = {"model.gguf", "calib.txt", "text.txt"},
     .outputs = {"out.gguf"},
     .steady_files = true},
    {.name = "quantize",
     .line = "quantize model.gguf -o out.gguf --type q8_0 --force -t 2 -q",
     .inputs = {"model.gguf"},
     .outputs = {"out.gguf"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "train",
     .line = TRAIN,
     .inputs = {"text.txt"},
     .outputs = {"out.gguf", "out.gguf.state", "log.csv"},
     .trains = true},
    {.name = "train --resume",
     .line = TRAIN " --resume",
     .inputs = {"text.txt"},
     .outputs = {"out.gguf", "out.gguf.state", "log.csv"},
     .trains = true,
     .resumes = true},
    {.name = "train --from",
     .line = "train text.txt -o out.gguf --force --from model.gguf --teacher other.gguf" STEPS
             " --ctx 8 --seed 1 -t 2 -q",
     .inputs = {"text.txt", "model.gguf", "other.gguf"},
     .outputs = {"out.gguf", "out.gguf.state"},
     .trains = true},
    {.name = "bench --shape",
     .line = "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 0,4" MEASURE,
     .outputs = {"out.svg", "out.csv"}},
    {.name = "bench --batch",
     .line = "bench --shape 1x16x2,ff=16,vocab=32,ctx=16 --depth 4 --batch 1,3" MEASURE,
     .outputs = {"out.svg", "out.csv"}},
    {.name = "bench",
     .line = "bench model.gguf --kv-heads 4,2 --type f16" MEASURE,
     .inputs = {"model.gguf"},
     .outputs = {"out.svg", "out.csv"}},
    {.name = "tokenize",
     .line = "tokenize bpe.gguf -f prompt.txt",
     .inputs = {"bpe.gguf", "prompt.txt"},
     .steady_stdout = true},
    {.name = "tokenize by scores",
     .line = "tokenize spm.gguf -f prompt.txt",
     .inputs = {"spm.gguf", "prompt.txt"},
     .steady_stdout = true},
    {.name = "info",
     .line = "info model.gguf --check --tensors",
     .inputs = {"model.gguf"},
     .steady_stdout = true},
    {.name = "score, llama",
     .line = "score llama.gguf -f prompt.txt -t 2 --top 2 -q",
     .inputs = {"llama.gguf", "prompt.txt"},
     .steady_stdout = true},
    {.name = "generate, transformer",
     .line = "generate transformer.gguf -p abc -t 2 -n 3 --seed 1 --samples 3 --batch 2 -q",
     .inputs = {"transformer.gguf"},
     .steady_stdout = true},
    {.name = "convert, llama",
     .line = "convert llama.gguf -o out.gguf --kv-heads 1 --calib calib.txt -t 2 -q --force",
     .inputs = {"llama.gguf", "calib.txt"},
     .outputs = {"out.gguf"},
     .steady_files = true},
    {.name = "import",
     .line = "import llama2c.bin -o out.gguf --force -q",
     .inputs = {"llama2c.bin"},
     .outputs = {"out.gguf"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "import --type",
     .line = "import llama2c.bin -o out.gguf --type q8_0 --force -t 2 -q",
     .inputs = {"llama2c.bin"},
     .outputs = {"out.gguf"},
     .steady_stdout = true,
     .steady_files = true},
    {.name = "score, imported in memory",
     .line = "score llama2c.bin --tokens 1,2,3 -t 2 --top 2 -q",
     .inputs = {"llama2c.bin"},
     .steady_stdout = true},
    {.name = "generate --draft",
     .line = "generate model.gguf --prompts prompts.jsonl -t 2 -n 4 --seed 1 --batch 3 "
             "--draft other.gguf --draft-n 2 -q",
     .inputs = {"model.gguf", "prompts.jsonl", "other.gguf"},
     .steady_stdout = true},
    {.name = "generate --draft self",
     .line = "generate model.gguf -p abc -t 2 -n 6 --seed 1 --draft self:q4_0 -q",
     .inputs = {"model.gguf"},
     .steady_stdout = true},
    {.name = "generate --draft lookup",
     .line = "generate model.gguf -p abababab -t 2 -n 4 --seed 1 --samples 3 --draft lookup -q",
     .inputs = {"model.gguf"},
     .steady_stdout = true},
    {.name = "generate --load-state",
     .line = "generate model.gguf --load-state text.saved --save-state out.saved -p d -t 2 -n 3 -q",
     .inputs = {"model.gguf", "text.saved"},
     .outputs = {"out.saved"},
     .steady_stdout = true,
     .steady_files = true},
};
const int n_scenarios = sizeof scenarios / sizeof scenarios[0];

static const struct checkpoint_shape shape = {.n_layers = 1,
                                              .n_heads = 4,
                                              .n_kv_heads = 4,
                                              .head_dim = 8,
                                              .d_ff = 32,
                                              .n_ctx = 32,
                                              .n_vocab = 257,
                                              .seed = 1};

static const char old_content[] = "the old file\n";

/* A file's bytes; NULL: there is none. */
struct content {
    unsigned char *bytes;
    size_t len;
};

static const struct scenario *current;
static char home[4096]; /* the working directory before */
static struct content inputs[SCENARIO_FILES], olds[SCENARIO_FILES], news[SCENARIO_FILES];
static struct ran reference;
static long calls[FAULT_KINDS], all_calls;

const struct scenario *scenario(void)
{
    return current;
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
    if (!c->bytes) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(c->bytes, 1, c->len, f), c->len);
    ck_assert_int_eq(fclose(f), 0);
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
    struct config c = {.n_layers = 2,
                       .n_heads = 4,
                       .n_kv_heads = 2,
                       .d_model = 32,
                       .d_ff = 32,
                       .n_ctx = 32,
                       .n_vocab = 257,
                       .norm_eps = 1e-5f};
    config_set_arch(&c, arch_preset(text_of(preset)));
    write_config_checkpoint(path, &c);
}

/* A checkpoint of llama2.c: seven numbers, then floats in its order. */
static void make_llama2c(const char *path)
{
    enum { WIDTH = 32, FF = 64, VOCAB = 256, CTX = 8 };
    static const int32_t numbers[7] = {WIDTH, FF, 1, 2, 1, VOCAB, CTX};
    static float
        weights[VOCAB * WIDTH + 3 * WIDTH + 3 * WIDTH * WIDTH + 3 * WIDTH * FF + CTX * WIDTH / 2];
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        weights[i] = (float)((int)(i * 37 % 101) - 50) / 64;
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(numbers, 1, sizeof numbers, f), sizeof numbers);
    ck_assert_uint_eq(fwrite(weights, 1, sizeof weights, f), sizeof weights);
    ck_assert_int_eq(fclose(f), 0);
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
    struct checkpoint_shape other = shape;
    other.seed = 2;
    write_checkpoint("model.gguf", &shape);
    write_checkpoint("other.gguf", &other);
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
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++)
        put_back(current->outputs[i], &olds[i]);
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
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++)
        news[i] = content_of(current->outputs[i]);
}

void scenario_begin(int index)
{
    current = &scenarios[index];
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
    for (int i = 0; i < SCENARIO_FILES && current->inputs[i]; i++)
        inputs[i] = content_of(current->inputs[i]);
    if (current->resumes)
        make_unfinished();
    else
        for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++)
            if (!strstr(current->outputs[i], ".state"))
                write_text(current->outputs[i], old_content, 1);
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++)
        olds[i] = content_of(current->outputs[i]);
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
    for (int i = 0; i < SCENARIO_FILES && current->inputs[i]; i++)
        if (ends_in(path, current->inputs[i]))
            return true;
    return false;
}

bool scenario_is_output(const char *path)
{
    if (strstr(path, ".decode-"))
        return true;
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++)
        if (ends_in(path, current->outputs[i]))
            return true;
    return false;
}

/* --- what must hold afterwards --------------------------------------------------------------- */

bool scenario_changed(int output)
{
    struct content now = content_of(current->outputs[output]);
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
    const char *path = current->outputs[i];
    if (strstr(path, ".csv"))
        return !current->resumes || keeps_two_lines(&olds[i], c);
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
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++) {
        struct content now = content_of(current->outputs[i]);
        bool good = same(&now, &olds[i]) || same(&now, &news[i]);
        if (!good && now.bytes && current->trains)
            good = is_of_training(i, &now);
        else if (!good && now.bytes && strstr(current->outputs[i], ".saved"))
            good = goes_on(current->outputs[i]);
        else if (!good && now.bytes && !current->steady_files)
            good = is_whole(current->outputs[i], &now);
        ck_assert_msg(good, "%s: %s is neither the old file nor the new one", where,
                      current->outputs[i]);
        free(now.bytes);
    }
}

static void expect_inputs_unchanged(const char *where)
{
    for (int i = 0; i < SCENARIO_FILES && current->inputs[i]; i++) {
        struct content now = content_of(current->inputs[i]);
        ck_assert_msg(same(&now, &inputs[i]), "%s: %s was changed", where, current->inputs[i]);
        free(now.bytes);
    }
}

/* OUT and OUT.state. */
static void expect_trained(const char *where)
{
    for (int i = 0; i < 2; i++) {
        struct content now = content_of(current->outputs[i]);
        ck_assert_msg(same(&now, &news[i]), "%s: %s is another", where, current->outputs[i]);
        free(now.bytes);
    }
}

static void expect_goes_on(const char *where)
{
    struct ran r;
    char line[1024];
    if (access(current->outputs[1], F_OK) != 0)
        return;
    snprintf(line, sizeof line, "%s%s", current->line, current->resumes ? "" : " --resume");
    run_program(&r, line, NULL, NULL);
    ck_assert_msg(r.code == 0, "%s: and then --resume: exit %d: %s", where, r.code, r.err);
    expect_trained(where);
}

void scenario_expect_done(const struct ran *r, const struct fault_plan *plan)
{
    const char *where = scenario_where(plan);
    ck_assert_msg(r->code == 0 && !r->err[0], "%s: exit %d: %s", where, r->code, r->err);
    if (current->steady_stdout)
        ck_assert_msg(r->out_len == reference.out_len && strcmp(r->out, reference.out) == 0,
                      "%s: another output", where);
    if (current->trains)
        expect_trained(where);
    if (!current->steady_files)
        return;
    for (int i = 0; i < SCENARIO_FILES && current->outputs[i]; i++) {
        struct content now = content_of(current->outputs[i]);
        ck_assert_msg(same(&now, &news[i]), "%s: another %s", where, current->outputs[i]);
        free(now.bytes);
    }
}

void scenario_expect_kept(const struct ran *r, const struct fault_plan *plan, bool leaks)
{
    char where[1000];
    snprintf(where, sizeof where, "%s: exit %d", scenario_where(plan), r->code);
    if (leaks)
        expect_no_leak(where);
    expect_no_other_file(where);
    expect_outputs_whole(where);
    expect_inputs_unchanged(where);
    if (current->trains)
        expect_goes_on(where);
}
