/*
 * Hostile checkpoints of other formats: folders whose config.json, tensors or files are not what
 * they should be. One line that says where, exit 3, nothing written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "imports.h"
#include "program.h"
#include "support.h"

#define GPT2  "tests/data/hf/gpt2"
#define LLAMA "tests/data/hf/llama"

/* A copy of a folder, linked but for config.json, which is written by the tests. */
static char folder[600];

static void link_to(const char *from, const char *name)
{
    char cwd[400], target[1200];
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    snprintf(target, sizeof target, "%s/%s/%s", cwd, from, name);
    unlink(path_of(folder, name));
    ck_assert_int_eq(symlink(target, path_of(folder, name)), 0);
}

static void begin(const char *from)
{
    snprintf(folder, sizeof folder, "%s", make_folder("folder"));
    link_to(from, "model.safetensors");
    link_to(from, "tokenizer.json");
    link_to(from, "config.json");
}

/* Refused by the library with this in the message; or, with NULL, taken. */
static void expect_import(const char *message, const char *what)
{
    static const struct import_options none;
    struct import *im;
    struct err e = {""};
    const enum status s = import_open(folder, &none, &im, &e);
    import_close(im);
    if (!message) {
        ck_assert_msg(s == STATUS_OK, "%s: %s", what, e.text);
        return;
    }
    ck_assert_msg(s == STATUS_BAD_FILE, "%s: status %d, %s", what, (int)s, e.text);
    ck_assert_msg(strstr(e.text, message) && strstr(e.text, folder), "%s: expected \"%s\" in: %s",
                  what, message, e.text);
}

/* config.json with `member`, "\"key\": value", in place of the one with its key or in front; an
 * empty value drops it. */
static char *bend(const char *source, const char *key, const char *value)
{
    size_t len;
    char *text = (char *)read_file(path_of(source, "config.json"), &len), quoted[100];
    char *out = calloc(1, len + strlen(value) + 200);
    text[len - 1] = 0;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    char *at = strstr(text, quoted);
    const char *rest = strchr(text, '{') + 1;
    int n = 0;
    if (*value)
        n = sprintf(out, "{\"%s\": %s,", key, value);
    else
        n = sprintf(out, "{");
    if (at) {
        char *end = at + strlen(quoted);
        end += *end == '{' ? strcspn(end, "}") + 1 : 0;
        end += strcspn(end, ",\n");
        n += sprintf(out + n, "%.*s", (int)(at - rest), rest);
        if (*end == ',')
            end++;
        else /* the last of all: the comma before it goes */
            n = (int)(strrchr(out, ',') - out);
        rest = end;
    }
    sprintf(out + n, "%s", rest);
    free(text);
    return out;
}

static void expect_bent(const char *source, const char *key, const char *value, const char *message)
{
    char *config = bend(source, key, value), what[200];
    unlink(path_of(folder, "config.json"));
    write_text(folder, "config.json", config);
    snprintf(what, sizeof what, "%s: %s = %s", source, key, value);
    expect_import(message, what);
    free(config);
}

/* --- config.json ----------------------------------------------------------------------------- */

static const char *const gpt2_sizes[] = {"n_embd",      "n_layer",    "n_head",
                                         "n_positions", "vocab_size", NULL};
static const char *const llama_sizes[] = {"hidden_size",
                                          "num_hidden_layers",
                                          "num_attention_heads",
                                          "max_position_embeddings",
                                          "intermediate_size",
                                          "vocab_size",
                                          NULL};

TEST(sizes_that_are_none, .loops = 2, .tags = ONE_THREAD)
{
    static const char *const values[] = {
        "0",   "-1", "2.5",  "1152921504606846976",       "1e3", "\"4\"",
        "[4]", "{}", "true", "99999999999999999999999999"};
    const char *source = _i ? LLAMA : GPT2;
    begin(source);
    for (const char *const *key = _i ? llama_sizes : gpt2_sizes; *key; key++) {
        for (size_t i = 0; i < COUNT(values); i++)
            expect_bent(source, *key, values[i], *key);
        expect_bent(source, *key, "null", *key);
        expect_bent(source, *key, "", *key);
    }
    scratch_remove();
}

static const struct {
    const char *source, *key, *value, *message;
} bent[] = {
    {GPT2, "model_type", "", "model_type"},
    {GPT2, "model_type", "null", "model_type"},
    {GPT2, "model_type", "7", "model_type"},
    {GPT2, "model_type", "\"opt\"", "expected gpt2, gpt_bigcode, llama or mistral"},
    {GPT2, "activation_function", "\"tanh\"", "found \"tanh\""},
    {GPT2, "activation_function", "\"silu\"", "found \"silu\""},
    {GPT2, "activation_function", "1", "activation_function"},
    {LLAMA, "hidden_act", "\"gelu\"", "expected silu"},
    {GPT2, "scale_attn_weights", "false", "scale_attn_weights"},
    {GPT2, "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx"},
    {GPT2, "add_cross_attention", "true", "add_cross_attention"},
    {GPT2, "is_encoder_decoder", "true", "is_encoder_decoder"},
    {GPT2, "quantization_config", "{\"bits\": 4}", "quantization_config"},
    {GPT2, "layer_norm_epsilon", "0", "layer_norm_epsilon"},
    {GPT2, "layer_norm_epsilon", "1", "layer_norm_epsilon"},
    {GPT2, "layer_norm_epsilon", "1e999", "layer_norm_epsilon"},
    {GPT2, "tie_word_embeddings", "1", "tie_word_embeddings"},
    {GPT2, "tie_word_embeddings", "false", "lm_head.weight is missing"},
    {LLAMA, "tie_word_embeddings", "true", "differs from the embedding"},
    {LLAMA, "partial_rotary_factor", "0.5", "partial_rotary_factor"},
    {LLAMA, "rope_parameters", "3", "rope_parameters"},
    {LLAMA, "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4}", "found \"yarn\""},
    {LLAMA, "rope_parameters", "{\"rope_type\": \"llama3\", \"factor\": 4}", "llama3"},
    {LLAMA, "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 0}", "factor"},
    {LLAMA, "rope_parameters", "{\"rope_theta\": -1}", "rope_theta"},
    /* What contradicts the tensors. */
    {GPT2, "vocab_size", "401", "wte.weight"},
    {GPT2, "vocab_size", "399", "wte.weight"},
    {GPT2, "n_embd", "64", "[400, 64]"},
    {GPT2, "n_embd", "50", "50"},
    {GPT2, "n_layer", "1", "h.1."},
    {GPT2, "n_layer", "3", "blk.2."},
    {GPT2, "n_head", "5", "5 heads"},
    {GPT2, "n_positions", "63", "wpe.weight"},
    {GPT2, "n_inner", "100", "mlp.c_fc"},
    {LLAMA, "num_attention_heads", "4", "q_proj"},
    {LLAMA, "num_key_value_heads", "3", "3 K/V heads"},
    {LLAMA, "num_key_value_heads", "16", "16 K/V heads"},
    {LLAMA, "num_key_value_heads", "4", "k_proj"},
    {LLAMA, "head_dim", "7", "even"},
    {LLAMA, "head_dim", "16", "q_proj"},
    {LLAMA, "intermediate_size", "161", "mlp.gate_proj"},
    /* What changes nothing, or may be so. */
    {GPT2, "n_inner", "192", NULL},
    {GPT2, "activation_function", "\"relu\"", NULL},
    {GPT2, "activation_function", "\"gelu\"", NULL},
    {GPT2, "activation_function", "", NULL},
    {GPT2, "quantization_config", "null", NULL},
    {GPT2, "unheard_of", "[{\"of\": 1}]", NULL},
    {LLAMA, "max_position_embeddings", "100000", NULL},
    {LLAMA, "rope_parameters", "", NULL},
    {LLAMA, "sliding_window", "64", NULL},
    {LLAMA, "attention_bias", "true", NULL},
};

TEST(configs_that_are_bent, .tags = ONE_THREAD)
{
    begin(GPT2);
    for (size_t i = 0; i < COUNT(bent); i++) {
        link_to(bent[i].source, "model.safetensors");
        link_to(bent[i].source, "tokenizer.json");
        expect_bent(bent[i].source, bent[i].key, bent[i].value, bent[i].message);
    }
    scratch_remove();
}

/* Cut at every byte: never a checkpoint. */
TEST(configs_that_are_cut, .tags = ONE_THREAD)
{
    size_t len;
    char *text = (char *)read_file(path_of(GPT2, "config.json"), &len);
    begin(GPT2);
    while (strchr("}\n", text[len - 1]))
        len--;
    for (; len < 10000; len--) { /* down to nothing */
        text[len] = 0;
        unlink(path_of(folder, "config.json"));
        write_text(folder, "config.json", text);
        expect_import("config.json", "cut");
    }
    write_text(folder, "config.json", "[]");
    expect_import("object", "an array");
    write_text(folder, "config.json", "{}");
    expect_import("model_type", "nothing in it");
    write_text(folder, "config.json", "{\"n_embd\": 1, \"n_embd\": 1}");
    expect_import("n_embd", "twice");
    free(text);
    scratch_remove();
}

TEST(configs_that_are_no_files, .tags = ONE_THREAD)
{
    const char *path;
    begin(GPT2);
    expect_import(NULL, "a link to a plain file");
    unlink(path_of(folder, "config.json"));
    expect_import("config.json: there is no such file", "none");
    ck_assert_int_eq(mkdir(path_of(folder, "config.json"), 0777), 0);
    expect_import("directory", "a directory");
    rmdir(path_of(folder, "config.json"));
    ck_assert_int_eq(mkfifo(path_of(folder, "config.json"), 0777), 0);
    expect_import("config.json", "a FIFO");
    path = path_of(folder, "config.json");
    unlink(path);
    ck_assert_int_eq(symlink("nowhere", path), 0);
    expect_import("config.json", "a link that leads nowhere");
    unlink(path);
    ck_assert_int_eq(symlink("config.json", path), 0);
    expect_import("config.json", "a link to itself");
    unlink(path);
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
    expect_import("config.json", "a link to a device");
    scratch_remove();
}

/* --- tensors --------------------------------------------------------------------------------- */

static const char model_file[] = "model.safetensors";

/* `bytes`: how many there are. */
static enum status zeros(void *bytes, uint64_t offset, const void **data, size_t *len,
                         struct err *e)
{
    static const unsigned char none[1 << 20];
    const uint64_t n = *(uint64_t *)bytes;
    (void)e;
    ck_assert_uint_le(n, sizeof none);
    *data = none;
    *len = (size_t)(n - offset);
    return STATUS_OK;
}

/* How one tensor is written otherwise than it is in the folder. */
struct change {
    const char *name; /* which */
    const char *as;   /* its new name; NULL: the same; "": it is left out */
    const char *dtype;
    uint64_t rows; /* not its own, if not 0 */
    bool flat;     /* all elements in one dimension */
    const char *message;
    bool adds; /* beside the one that it changes */
};

static void write_changed(const struct weights *w, const struct change *c)
{
    struct safetensors_written list[64];
    char names[64][96];
    uint64_t lengths[64];
    size_t n = 0;
    for (size_t i = 0; i < w->file.n_tensors; i++) {
        const struct safetensors_tensor *t = &w->file.tensors[i];
        const bool is_it = text_is(t->name, c->name);
        for (int copy = 0; copy <= (is_it && c->adds); copy++) {
            const bool changes = is_it && copy == c->adds;
            if (changes && c->as && !*c->as)
                continue;
            snprintf(names[n], sizeof names[n], "%.*s", (int)t->name.len, t->name.data);
            list[n] = (struct safetensors_written){.name = names[n],
                                                   .dtype = t->dtype,
                                                   .n_dims = t->n_dims,
                                                   .source = {.piece = zeros, .arg = &lengths[n]}};
            memcpy(list[n].dims, t->dims, sizeof list[n].dims);
            if (changes && c->as)
                snprintf(names[n], sizeof names[n], "%s", c->as);
            if (changes && c->dtype)
                list[n].dtype = safetensors_dtype_named(text_of(c->dtype));
            if (changes && c->rows)
                list[n].dims[0] = c->rows;
            if (changes && c->flat) {
                list[n].dims[0] *= list[n].dims[1];
                list[n].n_dims = 1;
            }
            safetensors_measure(list[n].dtype, list[n].n_dims, list[n].dims, &lengths[n]);
            n++;
        }
    }
    unlink(path_of(folder, model_file));
    expect_ok(safetensors_write(path_of(folder, model_file), list, n, &err));
}

#define C_ATTN "transformer.h.1.attn.c_attn.weight"
#define Q_PROJ "model.layers.1.self_attn.q_proj.weight"

static const struct change gpt2_changes[] = {
    {.name = C_ATTN, .as = "", .message = "blk.1.attn_qkv.weight"},
    {.name = C_ATTN, .as = "transformer.h.1.attn.c_atn.weight", .message = "blk.1.attn_qkv"},
    {.name = C_ATTN, .as = "h.1.attn.c_attn.weight", .message = "blk.1.attn_qkv"},
    {.name = C_ATTN, .dtype = "I32", .message = "found I32 [48, 144]"},
    {.name = C_ATTN, .dtype = "F64", .message = "found F64"},
    {.name = C_ATTN, .rows = 144, .message = "expected F32, F16 or BF16 [48, 144]"},
    {.name = C_ATTN, .flat = true, .message = "found F32 [6912, 1] of 1 dimensions"},
    {.name = "transformer.ln_f.weight", .rows = 47, .message = "found F32 [47, 1]"},
    {.name = "transformer.ln_f.weight", .as = "", .message = "output_norm.weight"},
    {.name = "transformer.wte.weight", .as = "", .message = "token_embd.weight"},
    {.name = "transformer.wte.weight",
     .as = "lm_head.bias",
     .adds = true,
     .rows = 400,
     .message = "lm_head.bias"},
    {.name = "transformer.wte.weight",
     .as = "lm_head.weight",
     .adds = true,
     .rows = 399,
     .message = "differs from the embedding"},
    {.name = C_ATTN, .as = "transformer.h.2.attn.c_attn.weight", .adds = true, .message = "h.2"},
    {.name = C_ATTN, .as = "transformer.h.01.attn.c_attn.weight", .adds = true, .message = "h.01"},
    /* Masks that old versions saved. */
    {.name = C_ATTN, .as = "transformer.h.1.attn.bias", .adds = true, .dtype = "U8"},
    {.name = C_ATTN, .as = "transformer.h.1.attn.masked_bias", .adds = true},
    {.name = "transformer.wte.weight", .as = "lm_head.weight", .adds = true},
};

static const struct change llama_changes[] = {
    {.name = Q_PROJ, .rows = 32, .message = "q_proj"},
    {.name = Q_PROJ, .as = "", .message = "blk.1.attn_q"},
    {.name = "model.norm.weight",
     .as = "model.layers.1.self_attn.q_proj.bias",
     .adds = true,
     .message = "q_proj.bias"},
    {.name = "model.norm.weight", .as = "model.norm.bias", .adds = true, .message = "norm.bias"},
    {.name = "lm_head.weight", .as = "", .message = "lm_head.weight is missing"},
    {.name = "lm_head.weight", .rows = 399, .message = "lm_head.weight"},
    {.name = "model.norm.weight",
     .as = "model.layers.0.self_attn.rotary_emb.inv_freq",
     .adds = true},
};

TEST(tensors_that_are_bent, .loops = 2, .tags = ONE_THREAD)
{
    const bool llama = _i == 1;
    const struct change *list = llama ? llama_changes : gpt2_changes;
    const size_t n = llama ? COUNT(llama_changes) : COUNT(gpt2_changes);
    struct weights w = read_weights(llama ? LLAMA : GPT2);
    begin(llama ? LLAMA : GPT2);
    for (size_t i = 0; i < n; i++) {
        write_changed(&w, &list[i]);
        expect_import(list[i].message, list[i].as ? list[i].as : list[i].name);
    }
    free_weights(&w);
    scratch_remove();
}

/* --- files that are no checkpoints ----------------------------------------------------------- */

static const struct {
    const char *name, *text;
    size_t len;
} files[] = {
    {"ckpt.pt", "PK\3\4 and so on, for as long as a header", 40},
    {"m.safetensors", "\10\0\0\0\0\0\0\0{}      ", 16},
    {"m.json", "{\"model_type\": \"gpt2\"}                ", 38},
    {"m.png", "\211PNG\r\n\32\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\10\6\0\0\0\37\25\304\211", 33},
    {"empty", "", 0},
    {"three", "abc", 3},
    {"text", "First Citizen:\nBefore we proceed any further, hear me speak.\n", 61},
};

TEST(files_of_other_kinds, .loops = (int)COUNT(files), .tags = ONE_THREAD)
{
    static const char *const lines[] = {
        "import %s -o %s/out",
        "export %s -o %s/out",
        "generate %s -p a -n 1",
        "score %s -p a",
        "eval %s --text README.md",
        "tokenize %s -p a",
        "info %s",
        "bench %s -n 1",
        "quantize %s -o %s/out --type f16",
        "convert %s -o %s/out --kv-heads 1",
        "train README.md -o %2$s/out --steps 1 --from %1$s",
    };
    char line[2000], path[700];
    struct ran r;
    snprintf(folder, sizeof folder, "%s", make_folder("folder"));
    snprintf(path, sizeof path, "%s/%s", folder, files[_i].name);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(files[_i].text, 1, files[_i].len, f) == files[_i].len);
    fclose(f);
    for (size_t i = 0; i < COUNT(lines); i += 1 + 2 * SANITIZED) {
        snprintf(line, sizeof line, lines[i], path, folder);
        run_program(&r, line, NULL, NULL);
        expect_refusal(&r, STATUS_BAD_FILE, path);
        ck_assert_int_ne(access(path_of(folder, "out"), F_OK), 0);
    }
    scratch_remove();
}
