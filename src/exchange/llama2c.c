#include "exchange/llama2c.h"

#include <string.h>

#define MAGIC        0x616b3432 /* "24ka" as the bytes lie */
#define NORM_EPS     1e-5f
#define HEADER_BYTES 256 /* from version 1 on, padded with zeros */

/* Cosines and sines of all positions, [n_ctx, head_dim / 2] each: written by version 0, read by
 * nothing any more. */
#define ROPE_TABLES TENSOR_ROLES

/* ROLE_OUTPUT ends each list; it stands in the file where it is not the embedding. */
static const enum tensor_role legacy_order[] = {
    ROLE_TOKEN_EMBD,  ROLE_ATTN_NORM, ROLE_ATTN_Q,   ROLE_ATTN_K,   ROLE_ATTN_V,
    ROLE_ATTN_OUTPUT, ROLE_FFN_NORM,  ROLE_FFN_GATE, ROLE_FFN_DOWN, ROLE_FFN_UP,
    ROLE_OUTPUT_NORM, ROPE_TABLES,    ROLE_OUTPUT,
};
static const enum tensor_role order[] = {
    ROLE_ATTN_NORM, ROLE_FFN_NORM,    ROLE_OUTPUT_NORM, ROLE_TOKEN_EMBD, ROLE_ATTN_Q, ROLE_ATTN_K,
    ROLE_ATTN_V,    ROLE_ATTN_OUTPUT, ROLE_FFN_GATE,    ROLE_FFN_DOWN,   ROLE_FFN_UP, ROLE_OUTPUT,
};

static const struct version {
    const char *name;
    size_t numbers_at, header_bytes;
    const enum tensor_role *order;
    uint32_t matrices; /* norms are F32 in all */
} versions[] = {
    {"llama2.c's version 0", 0, 7 * sizeof(int32_t), legacy_order, TENSOR_F32},
    {"llama2.c's version 1", 8, HEADER_BYTES, order, TENSOR_F32},
    {"llama2.c's version 2", 8, HEADER_BYTES, order, VIEW_INT8},
};

static const struct header_number numbers[] = {
    {"dim", offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
    {"hidden_dim", offsetof(struct config, d_ff), CONFIG_MAX_FF},
    {"n_layers", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    {"n_heads", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    {"n_kv_heads", offsetof(struct config, n_kv_heads), CONFIG_MAX_WIDTH},
    {"vocab_size", offsetof(struct config, n_vocab), CONFIG_MAX_VOCAB},
    {"seq_len", offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
};
#define N_NUMBERS  ((int)(sizeof numbers / sizeof *numbers))
#define VOCAB_SIZE 5

struct header {
    const struct version *version;
    struct config config;
    bool own_output;
    int group;
};

static bool has_magic(struct text file)
{
    const uint32_t magic = MAGIC;
    return file.len >= sizeof magic && memcmp(file.data, &magic, sizeof magic) == 0;
}

/* What stands behind the numbers from version 1 on. */
static enum status read_flags(struct text file, struct header *h, struct err *e)
{
    const size_t at = h->version->numbers_at + N_NUMBERS * sizeof(int32_t);
    const unsigned char shared = (unsigned char)file.data[at];
    int32_t group;
    if (shared > 1)
        return err_set(e, STATUS_BAD_FILE,
                       "shared_classifier at byte %zu: expected 0 or 1, found %d", at, shared);
    h->own_output = !shared;
    if (h->version->matrices != VIEW_INT8)
        return STATUS_OK;
    arrays_ints(file, at + 1, 1, &group);
    if (group < 1 || h->config.d_model % group != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "group_size at byte %zu: expected a divisor of dim %d, found %d", at + 1,
                       h->config.d_model, (int)group);
    h->group = group;
    return STATUS_OK;
}

static enum status find_version(struct text file, const struct version **out, struct err *e)
{
    int32_t version;
    *out = &versions[0];
    TRY(arrays_header(file, versions[0].header_bytes, e));
    if (!has_magic(file))
        return STATUS_OK;
    arrays_ints(file, sizeof(uint32_t), 1, &version);
    if (version != 1 && version != 2)
        return err_set(e, STATUS_BAD_FILE,
                       "version at byte 4: expected 1 (float32) or 2 (int8), found %d",
                       (int)version);
    *out = &versions[version];
    return STATUS_OK;
}

static enum status read_header(struct text file, struct header *h, struct err *e)
{
    int32_t values[N_NUMBERS];
    *h = (struct header){.config = {.norm_eps = NORM_EPS}};
    TRY(find_version(file, &h->version, e));
    TRY(arrays_header(file, h->version->header_bytes, e));
    arrays_ints(file, h->version->numbers_at, N_NUMBERS, values);
    /* A version without flags tells by the sign. */
    if (h->version == &versions[0] && values[VOCAB_SIZE] < 0 && values[VOCAB_SIZE] > INT32_MIN) {
        h->own_output = true;
        values[VOCAB_SIZE] = -values[VOCAB_SIZE];
    }
    TRY(arrays_numbers(values, h->version->numbers_at, numbers, N_NUMBERS, &h->config, e));
    config_set_arch(&h->config, arch_find(text_of("llama")));
    TRY(import_check_config(&h->config, e));
    return h->version == &versions[0] ? STATUS_OK : read_flags(file, h, e);
}

static void add_role(struct arrays *a, const struct header *h, enum tensor_role role)
{
    const struct config *c = &h->config;
    if (role == ROPE_TABLES)
        arrays_skip(a, (uint64_t)c->n_ctx * (uint64_t)c->head_dim * sizeof(float));
    else if (role != ROLE_OUTPUT || h->own_output)
        arrays_add(a, role, false,
                   layout_weight(c, role, 0).form == FORM_NORM ? TENSOR_F32 : h->version->matrices,
                   0);
}

bool llama2c_is(struct text file)
{
    struct header h;
    return has_magic(file) || read_header(file, &h, NULL) == STATUS_OK;
}

enum status llama2c_open(struct text file, struct arrays *out, struct err *e)
{
    struct header h;
    TRY(read_header(file, &h, e));
    arrays_begin(out, file, h.version->header_bytes, &h.config);
    out->group = h.group;
    const enum tensor_role *role = h.version->order;
    do
        add_role(out, &h, *role);
    while (*role++ != ROLE_OUTPUT);
    return arrays_end(out, h.version->name, e);
}
