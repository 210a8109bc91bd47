#include "exchange/llmc.h"

#define MAGIC        20240326
#define HEADER_BYTES 1024
#define VERSION_AT   4
#define NUMBERS_AT   8
#define NORM_EPS     1e-5f
#define FF_PER_WIDTH 4

/* The other files of its programs begin alike. */
static const struct other_file {
    int32_t magic;
    const char *name;
} other_files[] = {
    {20240327, "the activations and gradients of a test"},
    {20240328, "a vocabulary"},
    {20240520, "tokens to train on"},
    {20240522, "questions to be tested with"},
    {20240527, "the state of an optimizer"},
    {20240801, "tokens to train on"},
    {20240803, "a Llama 3 (save it as a Hugging Face folder)"},
};
#define N_OTHER_FILES ((int)(sizeof other_files / sizeof *other_files))

static const struct version {
    int32_t version;
    uint32_t type;
    bool padded; /* a number of the header says to how many rows */
} versions[] = {
    {1, TENSOR_F32, false},
    {3, TENSOR_F32, true},
    {5, TENSOR_BF16, true},
};
#define N_VERSIONS ((int)(sizeof versions / sizeof *versions))

static const struct header_number numbers[] = {
    {"max_seq_len", offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
    {"vocab_size", offsetof(struct config, n_vocab), CONFIG_MAX_VOCAB},
    {"num_layers", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    {"num_heads", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    {"channels", offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
};
#define N_NUMBERS ((int)(sizeof numbers / sizeof *numbers))
#define PADDED_AT (NUMBERS_AT + N_NUMBERS * sizeof(int32_t))

/* Behind the embeddings, each with its bias. */
static const enum tensor_role order[] = {
    ROLE_ATTN_NORM, ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT, ROLE_FFN_NORM,
    ROLE_FFN_UP,    ROLE_FFN_DOWN, ROLE_OUTPUT_NORM,
};

static const struct other_file *other_file(int32_t magic)
{
    for (int i = 0; i < N_OTHER_FILES; i++)
        if (other_files[i].magic == magic)
            return &other_files[i];
    return NULL;
}

static int32_t magic_of(struct text file)
{
    int32_t magic = 0;
    if (file.len >= sizeof magic)
        arrays_ints(file, 0, 1, &magic);
    return magic;
}

bool llmc_is(struct text file)
{
    const int32_t magic = magic_of(file);
    return magic == MAGIC || other_file(magic);
}

static enum status check_magic(struct text file, struct err *e)
{
    const int32_t magic = magic_of(file);
    const struct other_file *other = other_file(magic);
    if (magic != MAGIC)
        return err_set(e, STATUS_BAD_FILE,
                       "magic at byte 0: expected %d, a GPT-2 of llm.c, found %d%s%s", MAGIC,
                       (int)magic, other ? ", " : "", other ? other->name : "");
    return STATUS_OK;
}

static enum status find_version(struct text file, const struct version **out, struct err *e)
{
    int32_t version;
    arrays_ints(file, VERSION_AT, 1, &version);
    for (int i = 0; i < N_VERSIONS; i++) {
        if (versions[i].version == version) {
            *out = &versions[i];
            return STATUS_OK;
        }
    }
    return err_set(e, STATUS_BAD_FILE,
                   "version at byte %d: expected 1, 3 (float32) or 5 (bfloat16), found %d; let "
                   "llm.c's train_gpt2.py write the model again",
                   VERSION_AT, (int)version);
}

static enum status read_config(struct text file, struct config *c, struct err *e)
{
    int32_t values[N_NUMBERS];
    *c = (struct config){.norm_eps = NORM_EPS};
    arrays_ints(file, NUMBERS_AT, N_NUMBERS, values);
    TRY(arrays_numbers(values, NUMBERS_AT, numbers, N_NUMBERS, c, e));
    c->d_ff = FF_PER_WIDTH * c->d_model;
    config_set_arch(c, arch_find(text_of("gpt2")));
    return import_check_config(c, e);
}

/* Rows of the embedding in the file. */
static enum status read_padded(struct text file, int n_vocab, int *out, struct err *e)
{
    int32_t rows;
    arrays_ints(file, PADDED_AT, 1, &rows);
    if (rows < n_vocab || rows > CONFIG_MAX_VOCAB)
        return err_set(e, STATUS_BAD_FILE,
                       "padded_vocab_size at byte %zu: expected vocab_size, %d, to %d, found %d",
                       PADDED_AT, n_vocab, CONFIG_MAX_VOCAB, (int)rows);
    *out = rows;
    return STATUS_OK;
}

enum status llmc_open(struct text file, struct arrays *out, struct err *e)
{
    const struct version *version;
    struct config config;
    int rows = 0;
    TRY(check_magic(file, e));
    TRY(arrays_header(file, HEADER_BYTES, e));
    TRY(find_version(file, &version, e));
    TRY(read_config(file, &config, e));
    if (version->padded)
        TRY(read_padded(file, config.n_vocab, &rows, e));
    arrays_begin(out, file, HEADER_BYTES, &config);
    arrays_add(out, ROLE_TOKEN_EMBD, false, version->type, rows);
    arrays_add(out, ROLE_POSITION_EMBD, false, version->type, 0);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int is_bias = 0; is_bias < 2; is_bias++)
            arrays_add(out, order[i], is_bias, version->type, 0);
    return arrays_end(out, "llm.c", e);
}
