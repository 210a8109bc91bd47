/*
 * fuzz_state - the reader of training states: any bytes are taken whole or refused with a message,
 * and what is taken is what the header says. Then the same state with the identity, length and
 * checksum of a real run, as a stranger can make them, is resumed: whatever numbers it holds, the
 * run ends well or is refused, and what it writes can be read.
 */
#include <stdio.h>
#include <unistd.h>

#include "model/model.h"
#include "target.h"
#include "train/private.h"

/* --- the bytes as they are ------------------------------------------------------------------- */

#define N_FLOATS 16

static void parse(const uint8_t *data, size_t size)
{
    static struct param item = {
        .spec = {.name = {"token_embd.weight"}, .n_dims = 2, .rows = 4, .cols = 4}};
    static struct trainer t;
    float weights[N_FLOATS], m[N_FLOATS], v[N_FLOATS];
    t = (struct trainer){
        .spec = {.n_steps = 3, .batch = 1, .length = 2},
        .config = {.d_model = 4},
        .list = {.items = &item, .n = 1, .n_floats = N_FLOATS, .n_params = 16},
        .weights = {.flat = weights},
        .m = m,
        .v = v,
        .state_path = (char[]){"state"},
    };
    const struct progress *p = &t.state.header.progress;
    struct err e = {""};
    config_set_arch(&t.config, arch_preset(text_of("gpt2")));
    state_identify(&t);
    t.state.file = (struct file_map){.data = data, .len = size};
    enum status status = state_parse(&t.state, "state", &e);
    if (status != STATUS_OK) {
        require_refused(status, STATUS_BAD_FILE, &e);
        return;
    }
    require(p->step >= p->best_step && p->best_step >= 0);
    require(p->best >= 0); /* a cross-entropy; not NaN */
    /* Each difference is told once it is the first. */
    for (int i = 0; i < STATE_FIELDS; i++) {
        status = state_compare(&t, &e);
        if (status != STATUS_OK)
            require_refusal(status, &e);
        t.identity[i] = t.state.header.identity[i];
    }
    require(state_compare(&t, NULL) == STATUS_OK);
    status = state_read(&t, &e);
    if (status != STATUS_OK)
        require_refused(status, STATUS_BAD_FILE, &e);
    else
        require(memcmp(weights, data + size - 8 - sizeof weights * 3, sizeof weights) == 0);
}

/* --- a run resumed --------------------------------------------------------------------------- */

static char folder[64], out_path[80], state_path[88];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/fuzz-state-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(folder) != NULL);
    snprintf(out_path, sizeof out_path, "%s/out.gguf", folder);
    snprintf(state_path, sizeof state_path, "%s.state", out_path);
}

static void remove_folder(void)
{
    unlink(out_path);
    unlink(state_path);
    rmdir(folder);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static char *read_file(const char *path, size_t *size)
{
    char *bytes;
    require(file_read_all(path, SIZE_MAX, &bytes, size, NULL) == STATUS_OK);
    return bytes;
}

/* Bits 4 and 5 of a way: the architecture of its model. */
static struct config make_shape(unsigned kind)
{
    static const char *const archs[] = {"gpt2", "llama", "transformer", "decode"};
    struct config c = {.n_heads = 1, .d_model = 2, .d_ff = 1, .n_vocab = 256, .n_ctx = 4};
    config_set_arch(&c, arch_preset(text_of(archs[kind])));
    c.norm_eps = 1e-5f;
    c.shared = kind == 3;
    c.n_layers = c.shared ? 2 : 1;
    if (c.shared)
        c.position = POSITION_QUADRATIC;
    config_complete(&c);
    return c;
}

static struct train_spec make_spec(unsigned way)
{
    static const struct text text = {"to be or not to be, that is the question", 40};
    struct train_spec s = {.texts = &text,
                           .n_texts = 1,
                           .out = out_path,
                           .shape = make_shape(way / 16 % 4),
                           .n_steps = 3,
                           .batch = 1,
                           .length = 4,
                           .lr = 0.01,
                           .beta2 = 0.95,
                           .clip = 1,
                           .val_fraction = 0.5,
                           .eval_every = 2,
                           .save_every = 1,
                           .keep_last = way & 1,
                           .seed_given = !(way & 8),
                           .seed = 7};
    /* Those that the sanitizers watch. */
    require(kernels_choose("scalar", &s.kernels, NULL) == STATUS_OK);
    return s;
}

static enum status train(const struct train_spec *spec, struct err *e)
{
    struct trainer *t;
    enum status s = trainer_open(spec, &t, e);
    if (s == STATUS_OK)
        s = trainer_run(t, e);
    trainer_free(t);
    return s;
}

/* The state and the checkpoint of a whole run, for both ways of keeping OUT and each model. */
struct whole_run {
    char *state, *out;
    size_t state_size, out_size;
};

static const struct whole_run *whole_run(unsigned way)
{
    static struct whole_run runs[4][2];
    struct whole_run *r = &runs[way / 16 % 4][way & 1];
    if (!r->state) {
        const struct train_spec spec = make_spec(way & 49);
        require(train(&spec, NULL) == STATUS_OK);
        r->state = read_file(state_path, &r->state_size);
        r->out = read_file(out_path, &r->out_size);
    }
    return r;
}

/* Where the numbers of a run lie in a state: behind magic, version and identity. */
#define PROGRESS_AT ((2 + STATE_FIELDS) * sizeof(uint64_t))

/* The whole run's state with the input's bytes over its numbers, and their checksum. */
static void write_state(const struct whole_run *r, const uint8_t *data, size_t size)
{
    uint64_t hash = TRAIN_HASH_START, word;
    char *bytes = malloc(r->state_size);
    require(bytes != NULL);
    memcpy(bytes, r->state, r->state_size);
    if (size > PROGRESS_AT) {
        const size_t room = r->state_size - PROGRESS_AT, given = size - PROGRESS_AT;
        memcpy(bytes + PROGRESS_AT, data + PROGRESS_AT, given < room ? given : room);
    }
    for (size_t i = 0; i + sizeof word < r->state_size; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    memcpy(bytes + r->state_size - sizeof hash, &hash, sizeof hash);
    write_file(state_path, bytes, r->state_size);
    free(bytes);
}

static void check_written(const struct train_spec *spec)
{
    size_t size;
    char *bytes = read_file(state_path, &size);
    struct checkpoint c;
    struct file_map file;
    struct state s = {.file = {.data = (const unsigned char *)bytes, .len = size}};
    require(state_parse(&s, state_path, NULL) == STATUS_OK);
    require(s.header.progress.step == spec->n_steps);
    free(bytes);
    require(file_map_open(&file, out_path, NULL) == STATUS_OK);
    require(checkpoint_take(&file, out_path, CHECKPOINT_MODEL, &c, NULL) == STATUS_OK);
    checkpoint_close(&c);
}

static void resume(const uint8_t *data, size_t size)
{
    const unsigned way = size > 0 ? data[size - 1] : 0;
    const struct whole_run *r = whole_run(way);
    struct train_spec spec = make_spec(way);
    struct err e = {""};
    spec.resume = true;
    write_state(r, data, size);
    if (way & 2)
        unlink(out_path);
    else
        write_file(out_path, r->out, way & 4 ? r->out_size / 2 : r->out_size);
    const enum status s = train(&spec, &e);
    if (s != STATUS_OK)
        require_refusal(s, &e);
    else
        check_written(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    make_folder(); /* one each: libFuzzer ends without a call to clean up */
    resume(data, size);
    remove_folder();
    return 0;
}
