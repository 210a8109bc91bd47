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

#define LLMC_MAGIC    20240326
#define LLAMA2C_MAGIC 0x616b3432 /* "24ka" as the bytes lie */

/* --- formats and their versions -------------------------------------------------------------- */

/* How a version lays out its file. ROLE_OUTPUT ends each order; it stands in the file where it is
 * not the embedding. */
struct bin_version {
    const char *name; /* NULL ends a format's list */
    int number;
    size_t numbers_at, header_bytes;
    const enum tensor_role *order;
    uint32_t matrices; /* type; norms are F32 where it is VIEW_INT8 */
    bool biases;       /* behind each weight but the embeddings' */
};

static const enum tensor_role legacy_order[] = {
    ROLE_TOKEN_EMBD,  ROLE_ATTN_NORM, ROLE_ATTN_Q,   ROLE_ATTN_K,   ROLE_ATTN_V,
    ROLE_ATTN_OUTPUT, ROLE_FFN_NORM,  ROLE_FFN_GATE, ROLE_FFN_DOWN, ROLE_FFN_UP,
    ROLE_OUTPUT_NORM, ROPE_TABLES,    ROLE_OUTPUT,
};
static const enum tensor_role llama_order[] = {
    ROLE_ATTN_NORM, ROLE_FFN_NORM,    ROLE_OUTPUT_NORM, ROLE_TOKEN_EMBD, ROLE_ATTN_Q, ROLE_ATTN_K,
    ROLE_ATTN_V,    ROLE_ATTN_OUTPUT, ROLE_FFN_GATE,    ROLE_FFN_DOWN,   ROLE_FFN_UP, ROLE_OUTPUT,
};
static const enum tensor_role gpt2_order[] = {
    ROLE_TOKEN_EMBD, ROLE_POSITION_EMBD, ROLE_ATTN_NORM, ROLE_ATTN_QKV,    ROLE_ATTN_OUTPUT,
    ROLE_FFN_NORM,   ROLE_FFN_UP,        ROLE_FFN_DOWN,  ROLE_OUTPUT_NORM, ROLE_OUTPUT,
};

static const struct bin_version llama_versions[] = {
    {"llama2.c's version 0", 0, 0, 28, legacy_order, TENSOR_F32, false}, /* has no magic number */
    {"llama2.c's version 1", 1, 8, 256, llama_order, TENSOR_F32, false},
    {"llama2.c's version 2", 2, 8, 256, llama_order, VIEW_INT8, false},
    {.name = NULL},
};
static const struct bin_version gpt2_versions[] = {
    {"llm.c", 1, 8, 1024, gpt2_order, TENSOR_F32, true},
    {"llm.c", 3, 8, 1024, gpt2_order, TENSOR_F32, true},
    {"llm.c", 5, 8, 1024, gpt2_order, TENSOR_BF16, true},
    {.name = NULL},
};

/* An int of a header. */
struct header_number {
    const char *name; /* NULL ends a list */
    size_t offset;    /* of an int in struct config */
    int max;
};
#define AT(member) offsetof(struct config, member)
static const struct header_number llama_numbers[] = {
    {"dim", AT(d_model), CONFIG_MAX_WIDTH},           {"hidden_dim", AT(d_ff), CONFIG_MAX_FF},
    {"n_layers", AT(n_layers), CONFIG_MAX_LAYERS},    {"n_heads", AT(n_heads), CONFIG_MAX_WIDTH},
    {"n_kv_heads", AT(n_kv_heads), CONFIG_MAX_WIDTH}, {"vocab_size", AT(n_vocab), CONFIG_MAX_VOCAB},
    {"seq_len", AT(n_ctx), CONFIG_MAX_CTX},           {.name = NULL},
};
static const struct header_number gpt2_numbers[] = {
    {"max_seq_len", AT(n_ctx), CONFIG_MAX_CTX},      {"vocab_size", AT(n_vocab), CONFIG_MAX_VOCAB},
    {"num_layers", AT(n_layers), CONFIG_MAX_LAYERS}, {"num_heads", AT(n_heads), CONFIG_MAX_WIDTH},
    {"channels", AT(d_model), CONFIG_MAX_WIDTH},     {.name = NULL},
};

const struct bin_format bin_formats[BIN_FORMATS] = {
    {"llm.c", "gpt2_tokenizer.bin", "gpt2", LLMC_MAGIC, gpt2_numbers, gpt2_versions,
     "1, 3 (float32) or 5 (bfloat16)", "; let llm.c's train_gpt2.py write the model again"},
    {"llama2.c", "tokenizer.bin", "llama", LLAMA2C_MAGIC, llama_numbers, llama_versions,
     "1 (float32) or 2 (int8)", ""},
};

/* The other files of llm.c's programs begin alike. */
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

/* --- headers --------------------------------------------------------------------------------- */

/* What a header says. */
struct header {
    const struct bin_version *version;
    struct config config;
    bool own_output;
    int group;     /* of VIEW_INT8 */
    int embd_rows; /* of the embedding in the file: at least as many as tokens */
};

static int32_t int_at(struct text file, size_t at)
{
    assert(at + sizeof(int32_t) <= file.len);
    return little_load(file.data + at, sizeof(int32_t));
}

/* 0 of a file that is too short for any. */
static int32_t magic_of(struct text file)
{
    return file.len >= sizeof(int32_t) ? int_at(file, 0) : 0;
}

/* What llm.c's other programs begin a file with; NULL: none of them. */
static const char *other_file(int32_t magic)
{
    for (size_t i = 0; i < sizeof other_files / sizeof *other_files; i++)
        if (other_files[i].magic == magic)
            return other_files[i].name;
    return NULL;
}

static enum status find_version(const struct bin_format *f, struct text file, struct header *h,
                                struct err *e)
{
    const int32_t magic = magic_of(file);
    h->version = f->versions;
    if (magic != f->magic && h->version->number > 0) {
        const char *other = other_file(magic);
        return bad_file(e, "magic at byte 0: expected %d, a GPT-2 of llm.c, found %d%s%s",
                        LLMC_MAGIC, magic, other ? ", " : "", other ? other : "");
    }
    if (magic == f->magic) {
        const int32_t number = file.len >= 8 ? int_at(file, 4) : f->versions[1].number;
        while (h->version->name && (h->version->number != number || !number))
            h->version++;
        if (!h->version->name)
            return bad_file(e, "version at byte 4: expected %s, found %d%s", f->expected, number,
                            f->advice);
    }
    if (file.len < h->version->header_bytes)
        return bad_file(e, "expected a header of %zu bytes, found a file of %zu: it is truncated",
                        h->version->header_bytes, file.len);
    return STATUS_OK;
}

/* What stands in the header behind the sizes. */
static enum status read_rest(struct text file, size_t at, struct header *h, struct err *e)
{
    const struct config *c = &h->config;
    const bool is_llmc = h->version->biases;
    h->embd_rows = is_llmc && h->version->number >= 3 ? int_at(file, at) : c->n_vocab;
    if (h->embd_rows < c->n_vocab || h->embd_rows > CONFIG_MAX_VOCAB)
        return bad_file(e,
                        "padded_vocab_size at byte %zu: expected vocab_size, %d, to %d, found %d",
                        at, c->n_vocab, CONFIG_MAX_VOCAB, h->embd_rows);
    if (is_llmc || h->version->number == 0)
        return STATUS_OK;
    const unsigned char shared = file.data[at];
    if (shared > 1)
        return bad_file(e, "shared_classifier at byte %zu: expected 0 or 1, found %d", at, shared);
    h->own_output = !shared;
    if (h->version->matrices != VIEW_INT8)
        return STATUS_OK;
    h->group = int_at(file, at + 1);
    if (h->group < 1 || c->d_model % h->group != 0)
        return bad_file(e, "group_size at byte %zu: expected a divisor of dim %d, found %d", at + 1,
                        c->d_model, h->group);
    return STATUS_OK;
}

/* A version without flags tells by the sign of its vocabulary that the output is its own. */
static enum status read_header(const struct bin_format *f, struct text file, struct header *h,
                               struct err *e)
{
    struct config *c = &h->config;
    *h = (struct header){.config = {.norm_eps = NORM_EPS}};
    TRY(find_version(f, file, h, e));
    size_t at = h->version->numbers_at;
    for (const struct header_number *n = f->numbers; n->name; n++, at += sizeof(int32_t)) {
        int32_t value = int_at(file, at);
        if (h->version->number == 0 && n->offset == AT(n_vocab) && value < 0 && value > INT32_MIN) {
            h->own_output = true;
            value = -value;
        }
        if (value < 1 || value > n->max)
            return bad_file(e, "%s at byte %zu: expected 1 to %d, found %d", n->name, at, n->max,
                            value);
        memcpy((char *)c + n->offset, &value, sizeof value);
    }
    if (!c->d_ff)
        c->d_ff = 4 * c->d_model;
    config_set_arch(c, arch_find(text_of(f->arch)));
    TRY(import_check_config(c, e));
    return read_rest(file, at, h, e);
}

const struct bin_format *bin_format_of(struct text file)
{
    struct header h;
    const int32_t magic = magic_of(file);
    for (const struct bin_format *f = bin_formats; f < bin_formats + BIN_FORMATS; f++)
        if (magic == f->magic || (f->magic == LLMC_MAGIC && other_file(magic)) ||
            (f->versions->number == 0 && read_header(f, file, &h, NULL) == STATUS_OK))
            return f;
    return NULL;
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
        (const unsigned char *)a->file.data + array->offset + spec->layer * array->bytes;
    const bool int8 = array->type == VIEW_INT8;
    *out = (struct view){
        .parts = {{.data = data,
                   .type = array->type,
                   .factors = int8 ? data + array->rows * (uint64_t)array->cols : NULL,
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
    const bool is_int8 = h->version->matrices == VIEW_INT8;
    assert(a->n < ARRAYS_MAX);
    struct array *array = &a->list[a->n++];
    *array = (struct array){
        .role = role,
        .is_bias = is_bias,
        .type = is_int8 && spec.form == FORM_NORM ? TENSOR_F32 : h->version->matrices,
        .rows = role == ROLE_TOKEN_EMBD ? h->embd_rows : spec.rows,
        .cols = spec.cols,
        .offset = a->end,
    };
    const uint64_t elements = array->rows * (uint64_t)array->cols;
    array->bytes = array->type == VIEW_INT8 ? elements + elements / h->group * sizeof(float)
                                            : elements * tensor_type_find(array->type)->block_bytes;
    a->end += array->bytes * (role_in_block(role) ? c->n_layers : 1);
}

/* K/V heads are uniform: the file must end where the arrays do. */
enum status bin_open(const struct bin_format *f, struct text file, struct arrays *out,
                     struct err *e)
{
    struct header h;
    TRY(read_header(f, file, &h, e));
    const struct config *c = &h.config;
    *out = (struct arrays){.source = {.config = *c, .tensor = view_tensor},
                           .file = file,
                           .group = h.group,
                           .end = h.version->header_bytes};
    for (const enum tensor_role *role = h.version->order; *role != ROLE_OUTPUT; role++) {
        if (*role == ROPE_TABLES) {
            out->end += c->n_ctx * (uint64_t)c->head_dim * sizeof(float);
            continue;
        }
        add_array(out, &h, *role, false);
        if (h.version->biases && *role != ROLE_TOKEN_EMBD && *role != ROLE_POSITION_EMBD)
            add_array(out, &h, *role, true);
    }
    if (h.own_output)
        add_array(out, &h, ROLE_OUTPUT, false);
    if (file.len == out->end)
        return STATUS_OK;
    return bad_file(e, "expected %llu bytes, as the header of %s says, found %zu: the file is %s",
                    (unsigned long long)out->end, h.version->name, file.len,
                    file.len < out->end ? "truncated" : "not what its header says");
}
