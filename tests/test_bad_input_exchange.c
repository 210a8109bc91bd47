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
static const char *folder;

static void begin(const char *from)
{
    static const char *const names[] = {"model.safetensors", "tokenizer.json", "config.json"};
    char *top = released_by(free, getcwd(NULL, 0));
    if (!folder)
        folder = make_folder("folder");
    for (size_t i = 0; i < COUNT(names); i++)
        link_to(folder, names[i], path_of(top, path_of(from, names[i])));
}

static void write_config(const char *text)
{
    unlink(path_of(folder, "config.json"));
    write_text(folder, "config.json", text);
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

/* config.json with this value in place of the one of its key or in front; an empty one drops it. */
static const char *bend(const char *source, const char *key, const char *value)
{
    const char *text = file_text(path_of(source, "config.json"), NULL);
    char *out = allocated(strlen(text) + strlen(value) + 200), quoted[100];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(text, quoted), *rest = strchr(text, '{') + 1;
    int n = *value ? sprintf(out, "{\"%s\": %s,", key, value) : sprintf(out, "{");
    if (at) {
        const char *end = at + strlen(quoted);
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
    return out;
}

static void expect_bent(const char *source, const char *key, const char *value, const char *message)
{
    char what[200];
    write_config(bend(source, key, value));
    snprintf(what, sizeof what, "%s: %s = %s", source, key, value);
    expect_import(message, what);
}

TEST(sizes_that_are_none, .loops = 2, .tags = ONE_THREAD)
{
    static const char *const sizes[2][7] = {
        {"n_embd", "n_layer", "n_head", "n_positions", "vocab_size"},
        {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
         "intermediate_size", "vocab_size"},
    };
    static const char *const values[] = {
        "0",  "-1",   "2.5",  "1152921504606846976",        "1e3", "\"4\"", "[4]",
        "{}", "true", "null", "99999999999999999999999999", ""};
    const char *source = _i ? LLAMA : GPT2;
    begin(source);
    for (const char *const *key = sizes[_i]; *key; key++)
        for (size_t i = 0; i < COUNT(values); i++)
            expect_bent(source, *key, values[i], *key);
}

static const struct {
    const char *source, *key, *value, *message;
} bent[] = {
    {GPT2, "model_type", "", "model_type"},
    {GPT2, "model_type", "null", "model_type"},
    {GPT2, "model_type", "7", "model_type"},
    {GPT2, "model_type", "\"opt\"", "expected gpt2, gpt_bigcode, llama or mistral"},
    {GPT2, "activation_function", "\"tanh\"", "found \"tanh\""},
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
    for (size_t i = 0; i < COUNT(bent); i++) {
        begin(bent[i].source);
        expect_bent(bent[i].source, bent[i].key, bent[i].value, bent[i].message);
    }
}

/* Cut at every byte: never a checkpoint. */
TEST(configs_that_are_cut, .tags = ONE_THREAD)
{
    static const char *const others[][2] = {
        {"[]", "object"}, {"{}", "model_type"}, {"{\"n_embd\": 1, \"n_embd\": 1}", "n_embd"}};
    char *text = file_text(path_of(GPT2, "config.json"), NULL);
    begin(GPT2);
    for (size_t len = (size_t)(strrchr(text, '}') - text) + 1; len-- > 0;) {
        text[len] = 0;
        write_config(text);
        expect_import("config.json", "cut");
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        write_config(others[i][0]);
        expect_import(others[i][1], others[i][0]);
    }
}

TEST(configs_that_are_no_files, .tags = ONE_THREAD)
{
    static const char *const targets[] = {"nowhere", "config.json", "/dev/zero"};
    begin(GPT2);
    expect_import(NULL, "a link to a plain file");
    const char *path = released_by(free, strdup(path_of(folder, "config.json")));
    unlink(path);
    expect_import("config.json: there is no such file", "none");
    ck_assert_int_eq(mkdir(path, 0777), 0);
    expect_import("directory", "a directory");
    rmdir(path);
    ck_assert_int_eq(mkfifo(path, 0777), 0);
    expect_import("config.json", "a FIFO");
    for (size_t i = 0; i < COUNT(targets); i++) {
        link_to(folder, "config.json", targets[i]);
        expect_import("config.json", targets[i]);
    }
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

static void write_changed(const struct safetensors *w, const struct change *c)
{
    static const unsigned char zeros[1 << 20];
    struct safetensors_written list[64];
    char names[64][96];
    size_t n = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct safetensors_tensor *t = &w->tensors[i];
        const bool is_it = text_is(t->name, c->name);
        for (int copy = 0; copy <= (is_it && c->adds); copy++) {
            const bool changes = is_it && copy == c->adds;
            struct safetensors_written *to = &list[n];
            if (changes && c->as && !*c->as)
                continue;
            snprintf(names[n], sizeof names[n], "%.*s", (int)t->name.len, t->name.data);
            *to = (struct safetensors_written){.name = names[n++],
                                               .dtype = t->dtype,
                                               .n_dims = t->n_dims,
                                               .source = {.data = zeros}};
            memcpy(to->dims, t->dims, sizeof to->dims);
            if (!changes)
                continue;
            if (c->as)
                snprintf(names[n - 1], sizeof names[0], "%s", c->as);
            if (c->dtype)
                to->dtype = safetensors_dtype_named(text_of(c->dtype));
            if (c->rows)
                to->dims[0] = c->rows;
            if (c->flat) {
                to->dims[0] *= to->dims[1];
                to->n_dims = 1;
            }
        }
    }
    unlink(path_of(folder, "model.safetensors"));
    expect_ok(safetensors_write(path_of(folder, "model.safetensors"), list, n, &err));
}

#define C_ATTN      "transformer.h.1.attn.c_attn.weight"
#define Q_PROJ      "model.layers.1.self_attn.q_proj.weight"
#define Q_PROJ_BIAS "model.layers.1.self_attn.q_proj.bias"

#define WTE  "transformer.wte.weight"
#define LN_F "transformer.ln_f.weight"
#define NORM "model.norm.weight"
#define HEAD "lm_head.weight"

/* Of GPT-2, then of the Llama. */
static const struct change changes[] = {
    {.name = C_ATTN, .as = "", .message = "blk.1.attn_qkv.weight"},
    {.name = C_ATTN, .as = "transformer.h.1.attn.c_atn.weight", .message = "blk.1.attn_qkv"},
    {.name = C_ATTN, .as = "h.1.attn.c_attn.weight", .message = "blk.1.attn_qkv"},
    {.name = C_ATTN, .dtype = "I32", .message = "found I32 [48, 144]"},
    {.name = C_ATTN, .dtype = "F64", .message = "found F64"},
    {.name = C_ATTN, .rows = 144, .message = "expected F32, F16 or BF16 [48, 144]"},
    {.name = C_ATTN, .flat = true, .message = "found F32 [6912, 1] of 1 dimensions"},
    {.name = LN_F, .rows = 47, .message = "found F32 [47, 1]"},
    {.name = LN_F, .as = "", .message = "output_norm.weight"},
    {.name = WTE, .as = "", .message = "token_embd.weight"},
    {.name = WTE, .as = "lm_head.bias", .adds = true, .rows = 400, .message = "lm_head.bias"},
    {.name = WTE, .as = HEAD, .adds = true, .rows = 399, .message = "differs from the embedding"},
    {.name = C_ATTN, .as = "transformer.h.2.attn.c_attn.weight", .adds = true, .message = "h.2"},
    {.name = C_ATTN, .as = "transformer.h.01.attn.c_attn.weight", .adds = true, .message = "h.01"},
    /* Masks that old versions saved. */
    {.name = C_ATTN, .as = "transformer.h.1.attn.bias", .adds = true, .dtype = "U8"},
    {.name = C_ATTN, .as = "transformer.h.1.attn.masked_bias", .adds = true},
    {.name = WTE, .as = HEAD, .adds = true},
    {.name = Q_PROJ, .rows = 32, .message = "q_proj"},
    {.name = Q_PROJ, .as = "", .message = "blk.1.attn_q"},
    {.name = NORM, .as = Q_PROJ_BIAS, .adds = true, .message = "q_proj.bias"},
    {.name = NORM, .as = "model.norm.bias", .adds = true, .message = "norm.bias"},
    {.name = HEAD, .as = "", .message = "lm_head.weight is missing"},
    {.name = HEAD, .rows = 399, .message = "lm_head.weight"},
    {.name = NORM, .as = "model.layers.0.self_attn.rotary_emb.inv_freq", .adds = true},
};
#define N_OF_GPT2 17

TEST(tensors_that_are_bent, .tags = ONE_THREAD)
{
    for (size_t i = 0; i < COUNT(changes); i++) {
        const char *source = i < N_OF_GPT2 ? GPT2 : LLAMA;
        begin(source);
        write_changed(read_weights(source), &changes[i]);
        expect_import(changes[i].message, changes[i].as ? changes[i].as : changes[i].name);
    }
}

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
    struct ran r;
    folder = make_folder("folder");
    const char *path = scratch_path(files[_i].name);
    write_file(path, files[_i].text, files[_i].len);
    for (size_t i = 0; i < COUNT(lines); i += 1 + 2 * SANITIZED) {
        char line[2000];
        snprintf(line, sizeof line, lines[i], path, folder);
        run_program(&r, line, NULL, NULL);
        expect_refusal(&r, STATUS_BAD_FILE, path);
        ck_assert_int_ne(access(path_of(folder, "out"), F_OK), 0);
    }
}
