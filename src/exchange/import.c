#include "exchange/exchange.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/little.h"
#include "exchange/private.h"
#include "formats/safetensors.h"

enum status import_check_config(struct config *c, struct err *e)
{
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return bad_file(e, "%d heads: expected a divisor of the width, %d", c->n_heads, c->d_model);
    config_complete(c);
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return bad_file(e, "%d K/V heads: expected a divisor of the heads, %d", c->n_kv_heads,
                        c->n_heads);
    if (c->head_dim > CONFIG_MAX_WIDTH / c->n_heads)
        return bad_file(e, "heads of %d elements: expected at most %d for %d heads", c->head_dim,
                        CONFIG_MAX_WIDTH / c->n_heads, c->n_heads);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return bad_file(e, "heads of %d elements: expected an even number, for rotary positions",
                        c->head_dim);
    return STATUS_OK;
}

/* --- folders of Hugging Face ----------------------------------------------------------------- */

struct hf_import {
    struct import_source source; /* first */
    struct hf_config hf;
    struct input config; /* config.json */
    struct safetensors_folder tensors;
    bool prefixed;   /* tensors' names begin with the family's prefix */
    int n_positions; /* rows of the position embedding in the file */
    float *factors;  /* of rotary frequencies, or NULL */
};

static const struct safetensors_tensor *find(const struct hf_import *h, enum tensor_role role,
                                             int layer, bool is_bias)
{
    if (is_bias && !h->hf.bias[hf_bias_of(role)])
        return NULL;
    const struct hf_tensor_name name =
        hf_tensor_name(h->hf.family, h->prefixed, role, layer, is_bias);
    return name.text[0] ? safetensors_folder_find(&h->tensors, text_of(name.text)) : NULL;
}

static enum status check_shape(const struct safetensors_tensor *t, int n_dims,
                               const uint64_t expected[2], struct err *e)
{
    char wanted[64], found[128] = "";
    size_t used = 0;
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++)
        same = t->dims[i] == expected[i];
    if (same && t->dtype->type >= 0)
        return STATUS_OK;
    snprintf(wanted, sizeof wanted, n_dims == 1 ? "%" PRIu64 : "%" PRIu64 ", %" PRIu64, expected[0],
             expected[1]);
    for (int i = 0; i < t->n_dims && used < sizeof found; i++)
        used +=
            snprintf(found + used, sizeof found - used, "%s%" PRIu64, i ? ", " : "", t->dims[i]);
    return bad_file(e,
                    "tensor %.*s: expected F32, F16 or BF16 [%s], as config.json says; found %s "
                    "[%s]",
                    SHOWN(t->name), wanted, t->dtype->name, found);
}

/* Matrices as rows, vectors as rows of one element. */
static enum status hf_tensor(const struct import_source *s, const struct tensor_spec *spec,
                             struct view *out, bool *found, struct err *e)
{
    const struct hf_import *h = (const struct hf_import *)s;
    struct view_part part = {.type = TENSOR_F32, .source_rows = 1, .rows = 1};
    *found = true;
    if (spec->role == ROLE_ROPE_FREQS && h->factors) {
        part.data = (const unsigned char *)h->factors;
        *out = (struct view){.parts = {part}, .n_parts = 1, .cols = spec->cols};
        return STATUS_OK;
    }
    const struct safetensors_tensor *t = find(h, spec->role, spec->layer, spec->is_bias);
    *found = t && !(spec->role == ROLE_OUTPUT && h->hf.tied);
    if (!*found)
        return STATUS_OK;
    const bool is_matrix = spec->n_dims == 2;
    const bool transposes = is_matrix && h->hf.family->conv1d && role_in_block(spec->role);
    const int rows = is_matrix ? spec->rows : (int)spec_elements(spec);
    const int cols = is_matrix ? spec->cols : 1;
    part.rows = transposes ? cols : rows;
    part.source_rows = spec->role == ROLE_POSITION_EMBD ? h->n_positions : part.rows;
    *out = (struct view){.n_parts = 1, .cols = transposes ? rows : cols, .transposes = transposes};
    TRY(check_shape(t, spec->n_dims, (const uint64_t[2]){part.source_rows, out->cols}, e));
    part.file = safetensors_folder_map(&h->tensors, t);
    part.data = t->data;
    part.type = t->dtype->type;
    part.swap = hf_row_swap(h->hf.family, &h->source.config, spec->role);
    out->parts[0] = part;
    return STATUS_OK;
}

/* Nothing that may matter is passed over: only buffers that old versions saved, masks and tables
 * that follow from the shape. */
static enum status refuse_unused(const struct hf_import *h, struct err *e)
{
    static const char *const buffers[] = {".attn.bias", ".attn.masked_bias",
                                          ".rotary_emb.inv_freq"};
    const struct safetensors_folder *f = &h->tensors;
    const struct safetensors_tensor *refused = NULL;
    bool *used = calloc(f->n_tensors + 1, sizeof *used);
    if (!used)
        return err_no_memory(e, "the list of tensors", f->n_tensors);
    for (int64_t i = 0; i < layout_count(&h->source.config); i++) {
        const struct tensor_spec spec = layout_at(&h->source.config, i);
        const struct safetensors_tensor *t = find(h, spec.role, spec.layer, spec.is_bias);
        if (t)
            used[t - f->tensors] = true;
    }
    for (size_t i = 0; i < f->n_tensors && !refused; i++) {
        bool is_of_use = used[i];
        for (size_t k = 0; k < sizeof buffers / sizeof *buffers; k++)
            is_of_use |= text_ends_with(f->tensors[i].name, buffers[k]);
        if (!is_of_use)
            refused = &f->tensors[i];
    }
    free(used);
    if (refused)
        return bad_file(e,
                        "tensor %.*s: expected none of this name, for what config.json describes",
                        SHOWN(refused->name));
    return STATUS_OK;
}

/* An output that config.json ties to the embedding may be there all the same, if it is equal; one
 * that it does not tie must be. */
static enum status check_output(const struct hf_import *h, struct err *e)
{
    const struct safetensors_tensor *output = find(h, ROLE_OUTPUT, 0, false);
    const struct safetensors_tensor *embedding = find(h, ROLE_TOKEN_EMBD, 0, false);
    if (!embedding)
        return bad_file(e, "tensor %s, which holds the embedding, is missing",
                        hf_tensor_name(h->hf.family, true, ROLE_TOKEN_EMBD, 0, false).text);
    if (!h->hf.tied && !output)
        return bad_file(e,
                        "tensor %s is missing, and config.json does not tie it to the embedding; "
                        "set \"tie_word_embeddings\" to true if the model does",
                        hf_tensor_name(h->hf.family, true, ROLE_OUTPUT, 0, false).text);
    if (!h->hf.tied || !output ||
        (output->n_bytes == embedding->n_bytes && output->dtype == embedding->dtype &&
         memcmp(output->data, embedding->data, output->n_bytes) == 0))
        return STATUS_OK;
    return bad_file(e,
                    "tensor %.*s differs from the embedding, to which config.json ties it; set "
                    "\"tie_word_embeddings\" to false if it is the model's own",
                    SHOWN(output->name));
}

/* Of the folder's tensors: none may be there that the model has no use for. */
static enum status check_tensors(struct hf_import *h, struct err *e)
{
    const struct config *c = &h->source.config;
    h->n_positions = c->n_ctx;
    h->prefixed = true;
    h->prefixed = find(h, ROLE_TOKEN_EMBD, 0, false) != NULL;
    TRY(check_output(h, e));
    TRY(refuse_unused(h, e));
    if (!(h->hf.llama3.factor > 0))
        return STATUS_OK;
    const size_t bytes = (c->rope.n_dims / 2) * sizeof *h->factors;
    h->factors = malloc(bytes);
    if (!h->factors)
        return err_no_memory(e, "the factors of rotary frequencies", bytes);
    hf_llama3_factors(&h->hf.llama3, c, h->factors);
    return STATUS_OK;
}

static enum status hf_open(struct hf_import *h, const char *path, struct err *e)
{
    *h = (struct hf_import){.source = {.tensor = hf_tensor}};
    TRY(input_open(&h->config, path, "config.json", e));
    TRY(input_read_json(&h->config, e));
    if (!h->config.root)
        return bad_file(e,
                        "%.200s: there is no such file; expected a checkpoint, or a folder with "
                        "config.json and model.safetensors, found a directory without",
                        h->config.path);
    TRY(status_in(hf_config_read(h->config.root, &h->hf, e), h->config.path, e));
    h->source.config = h->hf.c;
    TRY(safetensors_folder_open(&h->tensors, path, e));
    return status_in(check_tensors(h, e), path, e);
}

/* --- which format ---------------------------------------------------------------------------- */

struct import {
    const char *path;
    struct import_source *source; /* the one of these that it is */
    struct hf_import folder;
    struct arrays arrays;
    struct file_map file; /* of arrays */
    struct vocabulary vocabulary;
    struct view_maker maker;
    struct view *views; /* of the tensors */
    struct gguf_writer *writer;
    const char *format;
};

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static struct text bytes_of(const struct file_map *f)
{
    return (struct text){(const char *)f->data, f->len};
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
    const struct text file = bytes_of(&f);
    *is = bin_format_of(file) || is_archive(file) || is_safetensors(file);
    file_map_close(&f);
    return STATUS_OK;
}

/* What a file that is none of these might be, and what to do with it. */
static enum status refuse_format(struct text file, struct err *e)
{
    if (is_archive(file))
        return bad_file(
            e, "expected a checkpoint, found a zip archive as torch.save writes them, which "
               "may run any program when it is read; save its tensors instead, a transformers "
               "model's with model.save_pretrained('FOLDER'), nanoGPT's with python3 -c "
               "\"import json, torch; from safetensors.torch import save_file as s; c = "
               "torch.load('ckpt.pt', map_location='cpu'); s({k.removeprefix('_orig_mod.'): "
               "v.clone() for k, v in c['model'].items()}, 'model.safetensors'); "
               "json.dump(c['model_args'], open('config.json', 'w'))\", and import the folder");
    if (is_safetensors(file))
        return bad_file(e, "expected a checkpoint, found the weights of one (safetensors); name "
                           "the folder that they are in, with its config.json");
    return bad_file(e, "expected a GGUF file, a folder with config.json and model.safetensors, or "
                       "a .bin of llama2.c or llm.c; found a file that is none of these");
}

static enum status open_file(struct import *im, const struct bin_format **format, struct err *e)
{
    TRY(file_map_open(&im->file, im->path, e));
    const struct text file = bytes_of(&im->file);
    *format = bin_format_of(file);
    im->source = &im->arrays.source;
    TRY(status_in(*format ? bin_open(*format, file, &im->arrays, e) : refuse_format(file, e),
                  im->path, e));
    im->format = (*format)->name;
    return STATUS_OK;
}

static enum status open_folder(struct import *im, const struct import_options *o, struct err *e)
{
    const struct hf_import *h = &im->folder;
    im->source = &im->folder.source;
    TRY(hf_open(&im->folder, im->path, e));
    im->format = h->hf.family->model_class ? h->hf.family->model_class : "nanoGPT";
    if (h->hf.uncut_ctx)
        vocabulary_note(&o->notes,
                        "the context is cut from %d to the %d positions of the sliding window: as "
                        "far as all are attended to",
                        h->hf.uncut_ctx, h->source.config.n_ctx);
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

/* That of the file `name` in the checkpoint's folder, if there is one. */
static enum status read_beside(struct import *im, const char *name,
                               const struct vocabulary_options *o, struct err *e)
{
    const char *slash = strrchr(im->path, '/');
    const size_t folder = slash ? slash + 1 - im->path : 0, size = strlen(name) + 1;
    char *path = malloc(folder + size);
    struct stat st;
    if (!path)
        return err_no_memory(e, "a path", folder + size);
    memcpy(path, im->path, folder);
    memcpy(path + folder, name, size);
    const enum status s = stat(path, &st) == 0 ? vocabulary_of_file(path, o, &im->vocabulary, e)
                                               : vocabulary_plain(o->n_vocab, &im->vocabulary, e);
    free(path);
    return s;
}

static enum status read_vocabulary(struct import *im, const struct import_options *o,
                                   const struct bin_format *format, struct err *e)
{
    const struct json_node *config = im->folder.config.root;
    const struct vocabulary_options options = {
        .ids = {id_of_key(config, "bos_token_id"), id_of_key(config, "eos_token_id"),
                id_of_key(config, "pad_token_id")},
        .n_vocab = im->source->config.n_vocab,
        .notes = &o->notes,
    };
    if (o->tokenizer && strcmp(o->tokenizer, "none") == 0)
        return STATUS_OK;
    if (o->tokenizer)
        return vocabulary_of_file(o->tokenizer, &options, &im->vocabulary, e);
    if (config)
        return vocabulary_of_folder(im->path, &options, &im->vocabulary, e);
    return read_beside(im, format->tokenizer, &options, e);
}

/* --- what is written ------------------------------------------------------------------------- */

/* Matrices are written in the type that they have, all others in F32, as llama.cpp wants them. */
static enum status add_tensor(struct import *im, const struct tensor_spec *spec, struct view *v,
                              struct err *e)
{
    const uint64_t dims[2] = {spec->cols, spec->rows};
    bool found;
    TRY(im->source->tensor(im->source, spec, v, &found, e));
    if (!found && spec->flags & SPEC_REQUIRED)
        return bad_file(e, "nothing found for the tensor %s", spec->name.text);
    if (!found)
        return STATUS_OK;
    v->maker = &im->maker;
    v->type = spec->flags & SPEC_QUANTISES ? v->parts[0].type : TENSOR_F32;
    for (int i = 0; i < v->n_parts; i++) {
        if (im->file.data)
            v->parts[i].file = &im->file;
        if (v->parts[i].type == VIEW_INT8 || v->parts[i].type != v->parts[0].type)
            v->type = TENSOR_F32;
    }
    gguf_add_tensor_source(im->writer, text_of(spec->name.text), v->type, spec->n_dims, dims,
                           (struct gguf_source){.piece = view_piece, .arg = v});
    return STATUS_OK;
}

/* The last part of the path: a folder's name, or a file's without what follows its dot. */
static struct text name_of_path(const char *path, bool is_file)
{
    const char *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > path && begin[-1] != '/')
        begin--;
    const char *dot = is_file ? memchr(begin, '.', end - begin) : NULL;
    return (struct text){begin, (dot ? dot : end) - begin};
}

static enum status fill_writer(struct import *im, struct err *e)
{
    const struct config *c = &im->source->config;
    const size_t n = layout_count(c);
    struct text name = name_of_path(im->path, !im->folder.config.root);
    TRY(gguf_writer_create(&im->writer, e));
    im->views = calloc(n, sizeof *im->views);
    if (!im->views)
        return err_no_memory(e, "the list of tensors", n * sizeof *im->views);
    for (size_t i = 0; i < n; i++) {
        const struct tensor_spec spec = layout_at(c, i);
        TRY(add_tensor(im, &spec, &im->views[i], e));
    }
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
    const struct bin_format *format = NULL;
    TRY(is_folder(im->path) ? open_folder(im, o, e) : open_file(im, &format, e));
    struct config *c = &im->source->config;
    const bool is_window = im->folder.hf.uncut_ctx != 0;
    if (o->n_ctx > c->n_ctx && (c->position == POSITION_LEARNED || is_window))
        return err_set(
            e, STATUS_USAGE, "--ctx: expected at most the %d positions %s, found %d", c->n_ctx,
            is_window ? "of the sliding window" : "that the checkpoint has learned", o->n_ctx);
    if (o->n_ctx)
        c->n_ctx = o->n_ctx;
    TRY(read_vocabulary(im, o, format, e));
    return status_in(fill_writer(im, e), im->path, e);
}

enum status import_open(const char *path, const struct import_options *o, struct import **out,
                        struct err *e)
{
    struct import *im = *out = calloc(1, sizeof *im);
    if (!im)
        return err_no_memory(e, "an import", sizeof *im);
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
    safetensors_folder_close(&im->folder.tensors);
    input_close(&im->folder.config);
    free(im->folder.factors);
    file_map_close(&im->file);
    free(im);
}

const char *import_format(const struct import *im)
{
    return im->format;
}

const struct config *import_config(const struct import *im)
{
    return &im->source->config;
}

struct gguf_writer *import_writer(const struct import *im)
{
    return im->writer;
}
