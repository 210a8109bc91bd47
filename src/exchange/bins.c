/*
 * The one-file checkpoints of llama2.c and llm.c.
 */
#include <assert.h>

#include "base/little.h"
#include "exchange/private.h"

/* No array has more elements than the widest matrices of all layers would, and none takes more
 * than 5 bytes, an int8 and a factor of its own: offsets do not overflow. */
#define MOST_ELEMENTS (UINT64_MAX / (5 * 2 * ARRAYS_MAX))
_Static_assert(CONFIG_MAX_FF >= CONFIG_MAX_VOCAB && CONFIG_MAX_FF >= CONFIG_MAX_CTX &&
                   CONFIG_MAX_FF >= 3 * CONFIG_MAX_WIDTH,
               "the widest matrices are those of the feed-forward");
_Static_assert(CONFIG_MAX_FF <= MOST_ELEMENTS / CONFIG_MAX_WIDTH / CONFIG_MAX_LAYERS,
               "the bytes of all arrays fit 64 bits");

#define NORM_EPS 1e-5f

/* Cosines and sines of all positions, [n_ctx, head_dim / 2] each: written by llama2.c's version 0,
 * read by nothing any more. */
#define ROPE_TABLES TENSOR_ROLES

/* How a version of a format lays out its file. ROLE_OUTPUT ends each order; it stands in the file
 * where it is not the embedding. */
struct version {
    const char *name;
    int number;
    size_t numbers_at, header_bytes;
    const enum tensor_role *order;
    uint32_t matrices, norms; /* types */
    bool biases;              /* behind each weight but the embeddings' */
};

/* What a header says. */
struct header {
    const struct version *version;
    struct config config;
    bool own_output;
    int group;  /* of VIEW_INT8 */
    int padded; /* rows of the embedding in the file; 0: as many as tokens */
};

/* --- headers --------------------------------------------------------------------------------- */

static int32_t int_at(struct text file, size_t at)
{
    assert(at + sizeof(int32_t) <= file.len);
    return (int32_t)(uint32_t)little_load(file.data + at, sizeof(int32_t));
}

static enum status check_length(struct text file, size_t bytes, struct err *e)
{
    if (file.len < bytes)
        return bad_file(e, "expected a header of %zu bytes, found a file of %zu: it is truncated",
                        bytes, file.len);
    return STATUS_OK;
}

struct header_number {
    const char *name;
    size_t offset; /* of an int in struct config */
    int max;
};

/* Reads n numbers into a config: each from 1 to its most. A version without flags tells by the sign
 * of its vocabulary that the output is its own. */
static enum status read_numbers(struct text file, const struct header_number *numbers, int n,
                                struct header *h, struct err *e)
{
    for (int i = 0; i < n; i++) {
        const size_t at = h->version->numbers_at + (size_t)i * sizeof(int32_t);
        int32_t value = int_at(file, at);
        if (h->version->number == 0 && numbers[i].offset == offsetof(struct config, n_vocab) &&
            value < 0 && value > INT32_MIN) {
            h->own_output = true;
            value = -value;
        }
        if (value < 1 || value > numbers[i].max)
            return bad_file(e, "%s at byte %zu: expected 1 to %d, found %d", numbers[i].name, at,
                            numbers[i].max, (int)value);
        *config_int(&h->config, numbers[i].offset) = (int)value;
    }
    return STATUS_OK;
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* A spec may ask for fewer rows than the file has. The header and the size were checked. */
static enum status view_tensor(const struct import_source *s, const struct tensor_spec *spec,
                               struct view *out, bool *found, struct err *e)
{
    const struct arrays *a = (const struct arrays *)s;
    const struct array *array = a->list;
    const struct array *const end = a->list + a->n;
    while (array < end && (array->role != spec->role || array->is_bias != spec->is_bias))
        array++;
    (void)e;
    *found = array < end;
    if (!*found)
        return STATUS_OK;
    assert(spec->cols == array->cols && spec->rows <= array->rows);
    const unsigned char *data =
        (const unsigned char *)a->file.data + array->offset + (uint64_t)spec->layer * array->bytes;
    const bool int8 = array->type == VIEW_INT8;
    *out = (struct view){
        .parts = {{.data = data,
                   .type = array->type,
                   .factors = int8 ? data + (uint64_t)array->rows * (uint64_t)array->cols : NULL,
                   .group = int8 ? a->group : 0,
                   .source_rows = array->rows,
                   .rows = spec->rows}},
        .n_parts = 1,
        .cols = spec->cols,
        .type = int8 || !(spec->flags & SPEC_QUANTISES) ? TENSOR_F32 : array->type,
    };
    return STATUS_OK;
}

static void add_array(struct arrays *a, const struct header *h, enum tensor_role role, bool is_bias)
{
    const struct config *c = &h->config;
    const struct tensor_spec spec = (is_bias ? layout_bias : layout_weight)(c, role, 0);
    const bool is_padded = role == ROLE_TOKEN_EMBD && h->padded;
    assert(a->n < ARRAYS_MAX && (!is_padded || h->padded >= spec.rows));
    struct array *array = &a->list[a->n++];
    *array =
        (struct array){.role = role,
                       .is_bias = is_bias,
                       .type = spec.form == FORM_NORM ? h->version->norms : h->version->matrices,
                       .rows = is_padded ? h->padded : spec.rows,
                       .cols = spec.cols,
                       .offset = a->end};
    const uint64_t elements = (uint64_t)array->rows * (uint64_t)array->cols;
    array->bytes = array->type == VIEW_INT8
                       ? elements + elements / (uint64_t)h->group * sizeof(float)
                       : elements * tensor_type_find(array->type)->block_bytes;
    a->end += array->bytes * (role_in_block(role) ? (uint64_t)c->n_layers : 1);
}

/* Of a config that is complete, of uniform K/V heads: the file must end where the arrays do. */
static enum status open_arrays(struct text file, const struct header *h, struct arrays *out,
                               struct err *e)
{
    const struct config *c = &h->config;
    const enum tensor_role *role = h->version->order;
    *out = (struct arrays){.source = {.config = *c, .tensor = view_tensor},
                           .file = file,
                           .group = h->group,
                           .end = h->version->header_bytes};
    for (; *role != ROLE_OUTPUT; role++) {
        if (*role == ROPE_TABLES) {
            out->end += (uint64_t)c->n_ctx * (uint64_t)c->head_dim * sizeof(float);
            continue;
        }
        add_array(out, h, *role, false);
        if (h->version->biases && *role != ROLE_TOKEN_EMBD && *role != ROLE_POSITION_EMBD)
            add_array(out, h, *role, true);
    }
    if (h->own_output)
        add_array(out, h, ROLE_OUTPUT, false);
    if (file.len == out->end)
        return STATUS_OK;
    return bad_file(e, "expected %llu bytes, as the header of %s says, found %zu: the file is %s",
                    (unsigned long long)out->end, h->version->name, file.len,
                    file.len < out->end ? "truncated" : "not what its header says");
}

/* --- llama2.c -------------------------------------------------------------------------------- */

#define LLAMA2C_MAGIC  0x616b3432 /* "24ka" as the bytes lie */
#define LLAMA2C_HEADER 256        /* from version 1 on, padded with zeros */

static const enum tensor_role legacy_order[] = {
    ROLE_TOKEN_EMBD,  ROLE_ATTN_NORM, ROLE_ATTN_Q,   ROLE_ATTN_K,   ROLE_ATTN_V,
    ROLE_ATTN_OUTPUT, ROLE_FFN_NORM,  ROLE_FFN_GATE, ROLE_FFN_DOWN, ROLE_FFN_UP,
    ROLE_OUTPUT_NORM, ROPE_TABLES,    ROLE_OUTPUT,
};
static const enum tensor_role llama_order[] = {
    ROLE_ATTN_NORM, ROLE_FFN_NORM,    ROLE_OUTPUT_NORM, ROLE_TOKEN_EMBD, ROLE_ATTN_Q, ROLE_ATTN_K,
    ROLE_ATTN_V,    ROLE_ATTN_OUTPUT, ROLE_FFN_GATE,    ROLE_FFN_DOWN,   ROLE_FFN_UP, ROLE_OUTPUT,
};

static const struct version llama_versions[] = {
    {"llama2.c's version 0", 0, 0, 7 * sizeof(int32_t), legacy_order, TENSOR_F32, TENSOR_F32,
     false},
    {"llama2.c's version 1", 1, 8, LLAMA2C_HEADER, llama_order, TENSOR_F32, TENSOR_F32, false},
    {"llama2.c's version 2", 2, 8, LLAMA2C_HEADER, llama_order, VIEW_INT8, TENSOR_F32, false},
};

static const struct header_number llama_numbers[] = {
    {"dim", offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
    {"hidden_dim", offsetof(struct config, d_ff), CONFIG_MAX_FF},
    {"n_layers", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    {"n_heads", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    {"n_kv_heads", offsetof(struct config, n_kv_heads), CONFIG_MAX_WIDTH},
    {"vocab_size", offsetof(struct config, n_vocab), CONFIG_MAX_VOCAB},
    {"seq_len", offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
};
#define LLAMA_NUMBERS ((int)(sizeof llama_numbers / sizeof *llama_numbers))

static bool has_magic(struct text file)
{
    return file.len >= sizeof(int32_t) && int_at(file, 0) == LLAMA2C_MAGIC;
}

static enum status read_llama_header(struct text file, struct header *h, struct err *e)
{
    *h = (struct header){.version = &llama_versions[0], .config = {.norm_eps = NORM_EPS}};
    TRY(check_length(file, h->version->header_bytes, e));
    if (has_magic(file)) {
        const int32_t version = int_at(file, sizeof(int32_t));
        if (version != 1 && version != 2)
            return bad_file(e, "version at byte 4: expected 1 (float32) or 2 (int8), found %d",
                            (int)version);
        h->version = &llama_versions[version];
    }
    TRY(check_length(file, h->version->header_bytes, e));
    TRY(read_numbers(file, llama_numbers, LLAMA_NUMBERS, h, e));
    config_set_arch(&h->config, arch_find(text_of("llama")));
    TRY(import_check_config(&h->config, e));
    if (h->version->number == 0)
        return STATUS_OK;
    const size_t at = h->version->numbers_at + LLAMA_NUMBERS * sizeof(int32_t);
    const unsigned char shared = (unsigned char)file.data[at];
    if (shared > 1)
        return bad_file(e, "shared_classifier at byte %zu: expected 0 or 1, found %d", at, shared);
    h->own_output = !shared;
    if (h->version->matrices != VIEW_INT8)
        return STATUS_OK;
    h->group = int_at(file, at + 1);
    if (h->group < 1 || h->config.d_model % h->group != 0)
        return bad_file(e, "group_size at byte %zu: expected a divisor of dim %d, found %d", at + 1,
                        h->config.d_model, h->group);
    return STATUS_OK;
}

bool llama2c_is(struct text file)
{
    struct header h;
    return has_magic(file) || read_llama_header(file, &h, NULL) == STATUS_OK;
}

enum status llama2c_open(struct text file, struct arrays *out, struct err *e)
{
    struct header h;
    TRY(read_llama_header(file, &h, e));
    return open_arrays(file, &h, out, e);
}

/* --- llm.c ----------------------------------------------------------------------------------- */

#define LLMC_MAGIC   20240326
#define LLMC_HEADER  1024
#define VERSION_AT   4
#define NUMBERS_AT   8
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

static const enum tensor_role gpt2_order[] = {
    ROLE_TOKEN_EMBD, ROLE_POSITION_EMBD, ROLE_ATTN_NORM, ROLE_ATTN_QKV,    ROLE_ATTN_OUTPUT,
    ROLE_FFN_NORM,   ROLE_FFN_UP,        ROLE_FFN_DOWN,  ROLE_OUTPUT_NORM, ROLE_OUTPUT,
};

static const struct version gpt2_versions[] = {
    {"llm.c", 1, NUMBERS_AT, LLMC_HEADER, gpt2_order, TENSOR_F32, TENSOR_F32, true},
    {"llm.c", 3, NUMBERS_AT, LLMC_HEADER, gpt2_order, TENSOR_F32, TENSOR_F32, true},
    {"llm.c", 5, NUMBERS_AT, LLMC_HEADER, gpt2_order, TENSOR_BF16, TENSOR_BF16, true},
};

static const struct header_number gpt2_numbers[] = {
    {"max_seq_len", offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
    {"vocab_size", offsetof(struct config, n_vocab), CONFIG_MAX_VOCAB},
    {"num_layers", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    {"num_heads", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    {"channels", offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
};
#define GPT2_NUMBERS ((int)(sizeof gpt2_numbers / sizeof *gpt2_numbers))
#define PADDED_AT    (NUMBERS_AT + GPT2_NUMBERS * sizeof(int32_t))

static const struct other_file *other_file(int32_t magic)
{
    for (size_t i = 0; i < sizeof other_files / sizeof *other_files; i++)
        if (other_files[i].magic == magic)
            return &other_files[i];
    return NULL;
}

static int32_t magic_of(struct text file)
{
    return file.len >= sizeof(int32_t) ? int_at(file, 0) : 0;
}

bool llmc_is(struct text file)
{
    const int32_t magic = magic_of(file);
    return magic == LLMC_MAGIC || other_file(magic);
}

enum status llmc_open(struct text file, struct arrays *out, struct err *e)
{
    struct header h = {.version = NULL, .config = {.norm_eps = NORM_EPS}};
    struct config *c = &h.config;
    const int32_t magic = magic_of(file);
    const struct other_file *other = other_file(magic);
    if (magic != LLMC_MAGIC)
        return bad_file(e, "magic at byte 0: expected %d, a GPT-2 of llm.c, found %d%s%s",
                        LLMC_MAGIC, (int)magic, other ? ", " : "", other ? other->name : "");
    TRY(check_length(file, LLMC_HEADER, e));
    const int32_t version = int_at(file, VERSION_AT);
    for (size_t i = 0; i < sizeof gpt2_versions / sizeof *gpt2_versions; i++)
        if (gpt2_versions[i].number == version)
            h.version = &gpt2_versions[i];
    if (!h.version)
        return bad_file(e,
                        "version at byte %d: expected 1, 3 (float32) or 5 (bfloat16), found %d; "
                        "let llm.c's train_gpt2.py write the model again",
                        VERSION_AT, (int)version);
    TRY(read_numbers(file, gpt2_numbers, GPT2_NUMBERS, &h, e));
    c->d_ff = FF_PER_WIDTH * c->d_model;
    config_set_arch(c, arch_find(text_of("gpt2")));
    TRY(import_check_config(c, e));
    if (version >= 3) {
        h.padded = int_at(file, PADDED_AT);
        if (h.padded < c->n_vocab || h.padded > CONFIG_MAX_VOCAB)
            return bad_file(e,
                            "padded_vocab_size at byte %zu: expected vocab_size, %d, to %d, found "
                            "%d",
                            PADDED_AT, c->n_vocab, CONFIG_MAX_VOCAB, h.padded);
    }
    return open_arrays(file, &h, out, e);
}
