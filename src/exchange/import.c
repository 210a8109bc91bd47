#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/half.h"
#include "exchange/private.h"
#include "formats/safetensors.h"

enum status import_check_config(struct config *c, struct err *e)
{
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_bad_file(e, "%d heads: expected a divisor of the width, %d", c->n_heads,
                            c->d_model);
    config_complete(c);
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return err_bad_file(e, "%d K/V heads: expected a divisor of the heads, %d", c->n_kv_heads,
                            c->n_heads);
    if (c->head_dim > CONFIG_MAX_WIDTH / c->n_heads)
        return err_bad_file(e, "heads of %d elements: expected at most %d for %d heads",
                            c->head_dim, CONFIG_MAX_WIDTH / c->n_heads, c->n_heads);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_bad_file(
            e, "heads of %d elements: expected an even number, for rotary positions", c->head_dim);
    return STATUS_OK;
}

struct import {
    const char *path;
    struct config *config; /* of the one of these that it is */
    /* A folder of Hugging Face's. */
    struct hf_config hf;
    struct input json; /* config.json; its root is NULL for a file */
    struct safetensors_folder tensors;
    bool *used;      /* [tensors.n_tensors] */
    bool prefixed;   /* tensors' names begin with the family's prefix */
    int n_positions; /* rows of the position embedding in the file */
    float *factors;  /* of rotary frequencies, if these are scaled */
    /* A file of llama2.c or llm.c. */
    struct bin_file bin;
    struct file_map file;

    struct vocabulary vocabulary;
    struct view_maker maker;
    struct view *views; /* of the tensors */
    struct gguf_writer *writer;
};

/* --- folders of Hugging Face ----------------------------------------------------------------- */

static const struct safetensors_tensor *
find_tensor_of(const struct import *im, enum tensor_role role, int layer, bool is_bias)
{
    if (is_bias && !im->hf.bias[hf_bias_of(role)])
        return NULL;
    const struct hf_tensor_name name =
        hf_tensor_name(im->hf.family, im->prefixed, role, layer, is_bias);
    return name.text[0] ? safetensors_folder_find(&im->tensors, text_of(name.text)) : NULL;
}

/* Matrices as rows, vectors as rows of one element; *out stays as it is if there is no such tensor.
 */
static enum status hf_tensor(struct import *im, const struct tensor_spec *spec, struct view *out,
                             struct err *e)
{
    const struct hf_family *f = im->hf.family;
    struct view_part part = {.type = TENSOR_F32, .source_rows = 1, .rows = 1};
    if (spec->role == ROLE_ROPE_FREQS && im->hf.llama3.factor > 0) {
        part.data = (const unsigned char *)im->factors;
        *out = (struct view){.parts = {part}, .n_parts = 1, .cols = spec->cols};
        return STATUS_OK;
    }
    const struct safetensors_tensor *t = find_tensor_of(im, spec->role, spec->layer, spec->is_bias);
    if (t)
        im->used[t - im->tensors.tensors] = true;
    if (!t || (spec->role == ROLE_OUTPUT && im->hf.tied))
        return STATUS_OK;
    const bool is_matrix = spec->n_dims == 2;
    const bool transposes = is_matrix && f->conv1d && role_in_block(spec->role);
    const int rows = is_matrix ? spec->rows : (int)spec_elements(spec);
    const int cols = is_matrix ? spec->cols : 1;
    part.rows = transposes ? cols : rows;
    part.source_rows = spec->role == ROLE_POSITION_EMBD ? im->n_positions : part.rows;
    *out = (struct view){.n_parts = 1, .cols = transposes ? rows : cols, .transposes = transposes};
    const uint64_t dims[2] = {part.source_rows, out->cols};
    if (t->n_dims != spec->n_dims || memcmp(t->dims, dims, t->n_dims * sizeof *dims) != 0 ||
        t->dtype->type < 0)
        return err_bad_file(
            e,
            "tensor %.*s: expected F32, F16 or BF16 [%" PRIu64 ", %" PRIu64
            "], as config.json says; found %s [%" PRIu64 ", %" PRIu64 "] of %d dimensions",
            SHOWN(t->name), dims[0], dims[1], t->dtype->name, t->dims[0], t->dims[1], t->n_dims);
    part.file = safetensors_folder_map(&im->tensors, t);
    part.data = t->data;
    part.type = t->dtype->type;
    part.swap = hf_row_swap(f, im->config, spec->role);
    out->parts[0] = part;
    return STATUS_OK;
}

static enum status open_folder(struct import *im, const struct import_options *o, struct err *e)
{
    TRY(input_open(&im->json, im->path, "config.json", e));
    TRY(input_read_json(&im->json, e));
    if (!im->json.root)
        return err_bad_file(e,
                            "%.200s: there is no such file; expected a checkpoint, or a folder "
                            "with config.json and model.safetensors, found a directory without",
                            im->json.path);
    TRY(status_in(hf_config_read(im->json.root, &im->hf, e), im->json.path, e));
    const struct config *c = im->config = &im->hf.c;
    im->n_positions = c->n_ctx;
    TRY(safetensors_folder_open(&im->tensors, im->path, e));
    TRY_ZEROED(im->used, im->tensors.n_tensors + 1, "the list of tensors", e);
    TRY_ZEROED(im->factors, c->rope.n_dims / 2 + 1, "the factors of rotary frequencies", e);
    if (im->hf.llama3.factor > 0)
        hf_llama3_factors(&im->hf.llama3, c, im->factors);
    if (im->hf.uncut_ctx)
        vocabulary_note(&o->notes,
                        "the context is cut from %d to the %d positions of the sliding window: as "
                        "far as all are attended to",
                        im->hf.uncut_ctx, c->n_ctx);
    /* An output that config.json ties to the embedding may be there all the same, if it is equal;
     * one that it does not tie must be. */
    im->prefixed = true;
    im->prefixed = find_tensor_of(im, ROLE_TOKEN_EMBD, 0, false) != NULL;
    const struct safetensors_tensor *embedding = find_tensor_of(im, ROLE_TOKEN_EMBD, 0, false);
    const struct safetensors_tensor *output = find_tensor_of(im, ROLE_OUTPUT, 0, false);
    if (!im->hf.tied && !output)
        return err_bad_file(e,
                            "%s: tensor %s is missing, and config.json does not tie it to the "
                            "embedding; set \"tie_word_embeddings\" to true if the model does",
                            im->path,
                            hf_tensor_name(im->hf.family, true, ROLE_OUTPUT, 0, false).text);
    if (im->hf.tied && output && embedding &&
        (output->n_bytes != embedding->n_bytes || output->dtype != embedding->dtype ||
         memcmp(output->data, embedding->data, output->n_bytes) != 0))
        return err_bad_file(e,
                            "%s: tensor %.*s differs from the embedding, to which config.json ties "
                            "it; set \"tie_word_embeddings\" to false if it is the model's own",
                            im->path, SHOWN(output->name));
    return STATUS_OK;
}

/* --- which format ---------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_archive(struct text file)
{
    return text_starts_with(file, "PK\003\004");
}

/* The length of a header, of less than 4 GiB (a GGUF file has its version in that half), then the
 * header's first byte. */
static bool is_safetensors(struct text file)
{
    return file.len > 8 && file.data[8] == '{' && little_load(file.data, 8) <= UINT32_MAX;
}

enum status import_is_for(const char *path, bool *is, struct err *e)
{
    struct file_map f;
    *is = is_folder(path);
    if (*is)
        return STATUS_OK;
    TRY(file_map_open(&f, path, e));
    const struct text file = {(const char *)f.data, f.len};
    *is = bin_format_of(file) || is_archive(file) || is_safetensors(file);
    file_map_close(&f);
    return STATUS_OK;
}

/* --- vocabulary ------------------------------------------------------------------------------ */

static int64_t id_of_key(const struct json_node *object, const char *key)
{
    const struct json_node *v = json_present(object, key);
    int64_t id = -1;
    if (v && v->kind == JSON_ARRAY) /* several that end a text: the first */
        v = json_child(v, NULL);
    return v && json_node_i64(v, 0, INT_MAX, &id, NULL) == STATUS_OK ? id : -1;
}

/* What `o` asks for, else the folder's, else that of the file beside the checkpoint. */
static enum status import_vocabulary(struct import *im, const struct import_options *o,
                                     struct err *e)
{
    const struct json_node *config = im->json.root;
    const struct vocabulary_options options = {.ids = {id_of_key(config, "bos_token_id"),
                                                       id_of_key(config, "eos_token_id"),
                                                       id_of_key(config, "pad_token_id")},
                                               .n_vocab = im->config->n_vocab,
                                               .notes = &o->notes};
    if (o->tokenizer)
        return str_is(o->tokenizer, "none")
                   ? STATUS_OK
                   : vocabulary_read(o->tokenizer, &options, &im->vocabulary, e);
    if (config)
        return vocabulary_read(im->path, &options, &im->vocabulary, e);
    const char *slash = strrchr(im->path, '/'), *name = im->bin.format->tokenizer;
    const int folder = slash ? slash + 1 - im->path : 0;
    const size_t size = folder + strlen(name) + 1;
    char *path;
    struct stat st;
    TRY_ZEROED(path, size, "a path", e);
    snprintf(path, size, "%.*s%s", folder, im->path, name);
    const enum status s =
        vocabulary_read(stat(path, &st) == 0 ? path : NULL, &options, &im->vocabulary, e);
    free(path);
    return s;
}

/* --- what is written ------------------------------------------------------------------------- */

static enum status fill_writer(struct import *im, struct err *e)
{
    /* Buffers that old versions saved, masks and tables that follow from the shape: nothing else
     * that may matter is passed over. */
    static const char *const buffers[] = {".attn.bias", ".attn.masked_bias",
                                          ".rotary_emb.inv_freq"};
    const struct config *c = im->config;
    const size_t n = layout_count(c);
    TRY(gguf_writer_create(&im->writer, e));
    TRY_ZEROED(im->views, n, "the list of tensors", e);
    /* Matrices are written in the type that they have, all others in F32, as llama.cpp wants. */
    for (size_t i = 0; i < n; i++) {
        const struct tensor_spec spec = layout_at(c, i);
        struct view *v = &im->views[i];
        if (im->json.root)
            TRY(hf_tensor(im, &spec, v, e));
        else
            bin_tensor(&im->bin, &spec, v);
        const struct view_part *from = v->parts;
        if (v->n_parts == 0 && spec.flags & SPEC_REQUIRED)
            return err_bad_file(e, "nothing found for the tensor %s", spec.name.text);
        if (v->n_parts == 0)
            continue;
        v->maker = &im->maker;
        v->type = spec.flags & SPEC_QUANTISES && from->type != VIEW_INT8 ? from->type : TENSOR_F32;
        if (im->file.data)
            v->parts[0].file = &im->file;
        gguf_add_tensor_source(im->writer, text_of(spec.name.text), v->type, spec.n_dims,
                               (const uint64_t[]){spec.cols, spec.rows},
                               (struct gguf_source){.piece = view_piece, .arg = v});
    }
    for (size_t i = 0; i < im->tensors.n_tensors; i++) {
        const struct text name = im->tensors.tensors[i].name;
        bool passed = im->used[i];
        for (int k = 0; k < LENGTH(buffers); k++)
            passed |= text_ends_with(name, buffers[k]);
        if (!passed)
            return err_bad_file(
                e, "tensor %.*s: expected none of this name, for what config.json describes",
                SHOWN(name));
    }
    /* The last part of the path: a folder's name, or a file's without what follows its dot. */
    struct text name = text_of(im->path);
    while (name.len > 1 && name.data[name.len - 1] == '/')
        name.len--;
    for (struct text rest = name; rest.len > 1;)
        if (*text_cut(&rest, 1).data == '/')
            name = rest;
    const char *dot = im->json.root || name.len == 0 ? NULL : memchr(name.data, '.', name.len);
    if (dot)
        name.len = dot - name.data;
    if (name.len > 127)
        name.len = 127;
    gguf_add_text(im->writer, "general.architecture", text_of(c->arch->name));
    gguf_add_text(im->writer, "general.name", name);
    gguf_add_u32(im->writer, "general.file_type", gguf_file_type(im->views[0].type));
    config_write(c, im->writer);
    vocab_keys_write(&im->vocabulary.keys, im->writer);
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status open_all(struct import *im, const struct import_options *o, struct err *e)
{
    if (is_folder(im->path)) {
        TRY(open_folder(im, o, e));
    } else {
        TRY(file_map_open(&im->file, im->path, e));
        const struct text file = {(const char *)im->file.data, im->file.len};
        const struct bin_format *format = bin_format_of(file);
        im->config = &im->bin.config;
        if (!format)
            /* What a file that is none of these might be, and what to do with it. */
            return err_bad_file(
                e, "%s: %s", im->path,
                is_archive(file)
                    ? "expected a checkpoint, found a zip archive as torch.save writes them, which "
                      "may run "
                      "any program when it is read; save its tensors instead, a transformers "
                      "model's with "
                      "model.save_pretrained('FOLDER'), nanoGPT's with python3 -c \"import json, "
                      "torch; "
                      "from safetensors.torch import save_file as s; c = torch.load('ckpt.pt', "
                      "map_location='cpu'); s({k.removeprefix('_orig_mod.'): v.clone() for k, v in "
                      "c['model'].items()}, 'model.safetensors'); json.dump(c['model_args'], "
                      "open('config.json', 'w'))\", and import the folder"
                : is_safetensors(file) ? "expected a checkpoint, found the weights of one "
                                         "(safetensors); name the folder that "
                                         "they are in, with its config.json"
                                       : "expected a GGUF file, a folder with config.json and "
                                         "model.safetensors, or a .bin of "
                                         "llama2.c or llm.c; found a file that is none of these");
        TRY(status_in(bin_open(format, file, &im->bin, e), im->path, e));
    }
    struct config *c = im->config;
    const bool is_window = im->hf.uncut_ctx != 0;
    if (o->n_ctx > c->n_ctx && (c->position == POSITION_LEARNED || is_window))
        return err_usage(e, "--ctx: expected at most the %d positions %s, found %d", c->n_ctx,
                         is_window ? "of the sliding window" : "that the checkpoint has learned",
                         o->n_ctx);
    if (o->n_ctx)
        c->n_ctx = o->n_ctx;
    TRY(import_vocabulary(im, o, e));
    return status_in(fill_writer(im, e), im->path, e);
}

enum status import_open(const char *path, const struct import_options *o, struct import **out,
                        struct err *e)
{
    TRY_ZEROED(*out, 1, "an import", e);
    struct import *im = *out;
    im->path = path;
    const enum status s = open_all(im, o, e);
    if (s != STATUS_OK) {
        import_close(im);
        *out = NULL;
    }
    return s;
}

void import_close(struct import *im)
{
    if (!im)
        return;
    gguf_writer_free(im->writer);
    free(im->views);
    view_maker_free(&im->maker);
    vocabulary_free(&im->vocabulary);
    safetensors_folder_close(&im->tensors);
    input_close(&im->json);
    free(im->used);
    free(im->factors);
    file_map_close(&im->file);
    free(im);
}

const char *import_format(const struct import *im)
{
    if (!im->json.root)
        return im->bin.format->name;
    return im->hf.family->model_class ? im->hf.family->model_class : "nanoGPT";
}

const struct config *import_config(const struct import *im)
{
    return im->config;
}

struct gguf_writer *import_writer(const struct import *im)
{
    return im->writer;
}
