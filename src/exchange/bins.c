/*
 * The one-file checkpoints of llama2.c and llm.c.
 */

#include "base/half.h"
#include "exchange/private.h"

/* No array has more elements than the widest matrices of all layers would, and none takes more
 * than 5 bytes, an int8 and a factor of its own: offsets do not overflow. */
#define MOST_ARRAYS   16
#define MOST_ELEMENTS (UINT64_MAX / (5 * 2 * MOST_ARRAYS))
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
     "1, 3 (float32) or 5 (bfloat16), as llm.c's train_gpt2.py writes it"},
    {"llama2.c", "tokenizer.bin", "llama", LLAMA2C_MAGIC, llama_numbers, llama_versions,
     "1 (float32) or 2 (int8)"},
};

/* --- headers --------------------------------------------------------------------------------- */

/* Within the file. */
static int32_t int_at(struct text file, size_t at)
{
    return little_load(file.data + at, sizeof(int32_t));
}

/* 0 of a file that is too short for any. */
static int32_t magic_of(struct text file)
{
    return file.len >= sizeof(int32_t) ? int_at(file, 0) : 0;
}

/* Whether it is a date in 2024, as the files of all of llm.c's programs begin with. */
static bool is_of_llmc(int32_t magic)
{
    return magic / 10000 == LLMC_MAGIC / 10000;
}

/* A version without flags tells by the sign of its vocabulary that the output is its own. */
static enum status read_bin_header(const struct bin_format *f, struct text file, struct bin_file *b,
                                   struct err *e)
{
    const int32_t magic = magic_of(file);
    struct config *c = &b->config;
    const struct bin_version *v = f->versions;
    *b = (struct bin_file){.file = file, .format = f, .config = {.norm_eps = NORM_EPS}};
    if (magic != f->magic && v->number > 0)
        return err_bad_file(
            e, "magic at byte 0: expected %d, a GPT-2 of llm.c, found %d%s", LLMC_MAGIC, magic,
            is_of_llmc(magic)
                ? ", another file of its programs (a Llama 3 comes in as a Hugging Face folder)"
                : "");
    if (magic == f->magic) {
        const int32_t number = file.len >= 8 ? int_at(file, 4) : f->versions[1].number;
        while (v->name && (v->number != number || !number))
            v++;
        if (!v->name)
            return err_bad_file(e, "version at byte 4: expected %s, found %d", f->expected, number);
    }
    b->version = v;
    if (file.len < v->header_bytes)
        return err_bad_file(e,
                            "expected a header of %zu bytes, found a file of %zu: it is truncated",
                            v->header_bytes, file.len);
    size_t at = v->numbers_at;
    for (const struct header_number *n = f->numbers; n->name; n++, at += sizeof(int32_t)) {
        int32_t value = int_at(file, at);
        if (v->number == 0 && n->offset == AT(n_vocab) && value < 0 && value > INT32_MIN) {
            b->own_output = true;
            value = -value;
        }
        if (value < 1 || value > n->max)
            return err_bad_file(e, "%s at byte %zu: expected 1 to %d, found %d", n->name, at,
                                n->max, value);
        memcpy((char *)c + n->offset, &value, sizeof value);
    }
    if (!c->d_ff)
        c->d_ff = 4 * c->d_model;
    config_set_arch(c, arch_find(text_of(f->arch)));
    TRY(import_check_config(c, e));
    /* What stands in the header behind the sizes. */
    b->n_ctx = c->n_ctx;
    b->embd_rows = v->biases && v->number >= 3 ? int_at(file, at) : c->n_vocab;
    if (b->embd_rows < c->n_vocab || b->embd_rows > CONFIG_MAX_VOCAB)
        return err_bad_file(
            e, "padded_vocab_size at byte %zu: expected vocab_size, %d, to %d, found %d", at,
            c->n_vocab, CONFIG_MAX_VOCAB, b->embd_rows);
    if (v->biases || v->number == 0)
        return STATUS_OK;
    b->own_output = !file.data[at]; /* else it is shared with the embedding */
    b->group = int_at(file, at + 1);
    if (v->matrices == VIEW_INT8 && (b->group < 1 || c->d_model % b->group != 0))
        return err_bad_file(e, "group_size at byte %zu: expected a divisor of dim %d, found %d",
                            at + 1, c->d_model, b->group);
    return STATUS_OK;
}

const struct bin_format *bin_format_of(struct text file)
{
    struct bin_file b;
    const int32_t magic = magic_of(file);
    for (const struct bin_format *f = bin_formats; f < bin_formats + BIN_FORMATS; f++)
        if (magic == f->magic || (f->magic == LLMC_MAGIC && is_of_llmc(magic)) ||
            (f->versions->number == 0 && read_bin_header(f, file, &b, NULL) == STATUS_OK))
            return f;
    return NULL;
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* One role's tensors of all layers. */
struct array {
    uint32_t type;   /* enum tensor_type, or VIEW_INT8: each tensor's elements, then its factors */
    int rows, cols;  /* rows may be more than a checkpoint has of it */
    uint64_t offset; /* of the first layer's in the file */
    uint64_t bytes;  /* of one layer's; 0: there is none, and `offset` is where the last ends */
};

static struct array find_array(const struct bin_file *b, enum tensor_role role, bool is_bias)
{
    const struct bin_version *v = b->version;
    const struct config *c = &b->config;
    struct array a = {.offset = v->header_bytes};
    for (const enum tensor_role *r = v->order; *r != ROLE_OUTPUT || b->own_output; r++) {
        const bool has_bias = v->biases && *r != ROLE_TOKEN_EMBD && *r != ROLE_POSITION_EMBD;
        if (*r == ROPE_TABLES) {
            a.offset += b->n_ctx * (uint64_t)c->head_dim * sizeof(float);
            continue;
        }
        for (int bias = 0; bias <= has_bias; bias++) {
            const struct tensor_spec spec = (bias ? layout_bias : layout_weight)(c, *r, 0);
            const bool is_int8 = v->matrices == VIEW_INT8 && spec.form != FORM_NORM;
            a.type = v->matrices == VIEW_INT8 && !is_int8 ? TENSOR_F32 : v->matrices;
            a.rows = *r == ROLE_TOKEN_EMBD      ? b->embd_rows
                     : *r == ROLE_POSITION_EMBD ? b->n_ctx
                                                : spec.rows;
            a.cols = spec.cols;
            const uint64_t elements = a.rows * (uint64_t)a.cols;
            a.bytes = is_int8 ? elements + elements / b->group * sizeof(float)
                              : elements * tensor_type_find(a.type)->block_bytes;
            if (*r == role && bias == is_bias)
                return a;
            a.offset += a.bytes * (role_in_block(*r) ? c->n_layers : 1);
        }
        if (*r == ROLE_OUTPUT)
            break;
    }
    a.bytes = 0;
    return a;
}

/* K/V heads are uniform: the file must end where the arrays do. */
enum status bin_open(const struct bin_format *f, struct text file, struct bin_file *out,
                     struct err *e)
{
    TRY(read_bin_header(f, file, out, e));
    const uint64_t end = find_array(out, TENSOR_ROLES, false).offset;
    if (file.len == end)
        return STATUS_OK;
    return err_bad_file(e,
                        "expected %llu bytes, as the header of %s says, found %zu: the file is %s",
                        (unsigned long long)end, out->version->name, file.len,
                        file.len < end ? "truncated" : "not what its header says");
}

bool bin_tensor(const struct bin_file *b, const struct tensor_spec *spec, struct view *out)
{
    const struct array a = find_array(b, spec->role, spec->is_bias);
    const unsigned char *data =
        (const unsigned char *)b->file.data + a.offset + spec->layer * a.bytes;
    if (a.bytes == 0)
        return false;
    assert(spec->cols == a.cols && spec->rows <= a.rows);
    *out = (struct view){
        .parts = {{.data = data,
                   .type = a.type,
                   .factors = data + a.rows * (uint64_t)a.cols,
                   .group = b->group,
                   .source_rows = a.rows,
                   .rows = spec->rows}},
        .n_parts = 1,
        .cols = spec->cols,
        .type = a.type == VIEW_INT8 || !(spec->flags & SPEC_QUANTISES) ? TENSOR_F32 : a.type,
    };
    return true;
}
