#include "exchange/import.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/little.h"
#include "base/mem.h"
#include "exchange/hf_import.h"
#include "exchange/llama2c.h"
#include "exchange/llmc.h"

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
    char format[64];
    char name[128]; /* general.name */
};

/* --- which format ---------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static struct text bytes_of(const struct file_map *f)
{
    return (struct text){(const char *)f->data, f->len};
}

/* Formats of one file, and the vocabulary that their programs take by default. */
static const struct file_format {
    const char *name, *tokenizer;
    bool (*is)(struct text file);
    enum status (*open)(struct text file, struct arrays *out, struct err *e);
} file_formats[] = {
    {"llm.c", "gpt2_tokenizer.bin", llmc_is, llmc_open},
    {"llama2.c", "tokenizer.bin", llama2c_is, llama2c_open},
};
#define N_FILE_FORMATS (sizeof file_formats / sizeof *file_formats)

/* The one of a file; NULL if there is none. */
static const struct file_format *format_of(struct text file)
{
    for (size_t i = 0; i < N_FILE_FORMATS; i++)
        if (file_formats[i].is(file))
            return &file_formats[i];
    return NULL;
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
    *is = format_of(file) || is_archive(file) || is_safetensors(file);
    file_map_close(&f);
    return STATUS_OK;
}

/* What a file that is none of these might be, and what to do with it. */
static enum status refuse_format(struct text file, struct err *e)
{
    if (is_archive(file))
        return err_set(
            e, STATUS_BAD_FILE,
            "expected a checkpoint, found a zip archive as torch.save writes them, which "
            "may run any program when it is read; save its tensors instead, a transformers "
            "model's with model.save_pretrained('FOLDER'), nanoGPT's with python3 -c "
            "\"import json, torch; from safetensors.torch import save_file as s; c = "
            "torch.load('ckpt.pt', map_location='cpu'); s({k.removeprefix('_orig_mod.'): "
            "v.clone() for k, v in c['model'].items()}, 'model.safetensors'); "
            "json.dump(c['model_args'], open('config.json', 'w'))\", and import the folder");
    if (is_safetensors(file))
        return err_set(e, STATUS_BAD_FILE,
                       "expected a checkpoint, found the weights of one (safetensors); name the "
                       "folder that they are in, with its config.json");
    return err_set(e, STATUS_BAD_FILE,
                   "expected a GGUF file, a folder with config.json and model.safetensors, or a "
                   ".bin of llama2.c or llm.c; found a file that is none of these");
}

static enum status open_file(struct import *im, const struct file_format **format, struct err *e)
{
    TRY(file_map_open(&im->file, im->path, e));
    const struct text file = bytes_of(&im->file);
    *format = format_of(file);
    const enum status s = *format ? (*format)->open(file, &im->arrays, e) : refuse_format(file, e);
    if (s != STATUS_OK) {
        err_prefix(e, im->path);
        return s;
    }
    im->source = &im->arrays.source;
    snprintf(im->format, sizeof im->format, "%s", (*format)->name);
    return STATUS_OK;
}

static void note_window(const struct import *im, const struct import_options *o)
{
    char text[160];
    snprintf(text, sizeof text,
             "the context is cut from %d to the %d positions of the sliding window: as far as all "
             "are attended to",
             im->folder.hf.uncut_ctx, im->source->config.n_ctx);
    if (im->folder.hf.uncut_ctx && o->notes.note)
        o->notes.note(o->notes.arg, text);
}

static enum status open_folder(struct import *im, const struct import_options *o, struct err *e)
{
    TRY(hf_import_open(im->path, &im->folder, e));
    im->source = &im->folder.source;
    const char *model = im->folder.hf.family->model_class;
    snprintf(im->format, sizeof im->format, "%s", model ? model : "nanoGPT");
    note_window(im, o);
    return STATUS_OK;
}

/* --- vocabulary ------------------------------------------------------------------------------ */

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* A file of this name in the checkpoint's folder; *path is NULL if there is none. */
static enum status find_beside(const struct import *im, const char *name, char **path,
                               struct err *e)
{
    const char *slash = strrchr(im->path, '/');
    char *folder = slash ? strndup(im->path, (size_t)(slash - im->path)) : strdup(".");
    *path = NULL;
    if (!folder)
        return err_no_memory(e, "a path", strlen(im->path));
    const enum status s = file_in_folder(slash == im->path ? "" : folder, name, path, e);
    free(folder);
    if (s == STATUS_OK && !is_there(*path)) {
        free(*path);
        *path = NULL;
    }
    return s;
}

static int64_t id_of_key(const struct json_node *object, const char *key)
{
    const struct json_node *v = json_member(object, key);
    int64_t id = -1;
    if (v && v->kind == JSON_ARRAY) /* several that end a text: the first */
        v = json_child(v, NULL);
    return v && json_node_i64(v, 0, INT_MAX, &id, NULL) == STATUS_OK ? id : -1;
}

static enum status read_vocabulary(struct import *im, const struct import_options *o,
                                   const struct file_format *format, struct err *e)
{
    const int n = im->source->config.n_vocab;
    const struct json_node *config = im->folder.config;
    const struct vocabulary_notes *notes = o->notes.note ? &o->notes : NULL;
    struct hf_ids ids = {-1, -1, -1};
    if (config)
        ids = (struct hf_ids){id_of_key(config, "bos_token_id"), id_of_key(config, "eos_token_id"),
                              id_of_key(config, "pad_token_id")};
    if (o->tokenizer && strcmp(o->tokenizer, "none") == 0)
        return STATUS_OK;
    if (o->tokenizer)
        return vocabulary_of_file(o->tokenizer, &ids, n, notes, &im->vocabulary, e);
    if (config)
        return vocabulary_of_folder(im->path, &ids, n, notes, &im->vocabulary, e);
    char *path;
    TRY(find_beside(im, format->tokenizer, &path, e));
    const enum status s = path ? vocabulary_of_file(path, &ids, n, notes, &im->vocabulary, e)
                               : vocabulary_plain(n, &im->vocabulary, e);
    free(path);
    return s;
}

/* --- what is written ------------------------------------------------------------------------- */

/* The type that a tensor is written in: matrices as they are, all others in F32, as llama.cpp wants
 * them. */
static uint32_t type_of(const struct tensor_spec *spec, const struct view *v)
{
    for (int i = 0; i < v->n_parts; i++)
        if (!(spec->flags & SPEC_QUANTISES) || v->parts[i].type == VIEW_INT8 ||
            v->parts[i].type != v->parts[0].type)
            return TENSOR_F32;
    return v->parts[0].type;
}

static void add_view(struct import *im, const struct tensor_spec *spec, const char *name,
                     struct view *v)
{
    const uint64_t dims[2] = {(uint64_t)spec->cols, (uint64_t)spec->rows};
    v->maker = &im->maker;
    for (int i = 0; i < v->n_parts && im->file.data; i++)
        v->parts[i].file = &im->file;
    v->type = type_of(spec, v);
    gguf_add_tensor_source(im->writer, text_of(name), v->type, spec->n_dims, dims,
                           (struct gguf_source){view_piece, v});
}

static enum status add_tensor(struct import *im, const struct tensor_spec *spec, struct view *v,
                              struct err *e)
{
    bool found;
    TRY(im->source->tensor(im->source, spec, v, &found, e));
    if (found)
        add_view(im, spec, spec->name.text, v);
    else if (spec->flags & SPEC_REQUIRED)
        return err_set(e, STATUS_BAD_FILE, "nothing found for the tensor %s", spec->name.text);
    return STATUS_OK;
}

static enum status add_tensors(struct import *im, struct err *e)
{
    const struct config *c = &im->source->config;
    const int64_t n = layout_count(c);
    im->views = calloc((size_t)n, sizeof *im->views);
    if (!im->views)
        return err_no_memory(e, "the list of tensors", (size_t)n * sizeof *im->views);
    for (int64_t i = 0; i < n; i++) {
        const struct tensor_spec spec = layout_at(c, i);
        TRY(add_tensor(im, &spec, &im->views[i], e));
    }
    return STATUS_OK;
}

/* The last part of the path: a folder's name, or a file's without what follows its dot. */
static void name_after_path(struct import *im)
{
    const char *end = im->path + strlen(im->path);
    while (end > im->path + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > im->path && begin[-1] != '/')
        begin--;
    const char *dot = im->folder.config ? NULL : memchr(begin, '.', (size_t)(end - begin));
    snprintf(im->name, sizeof im->name, "%.*s", (int)((dot ? dot : end) - begin), begin);
}

static enum status fill_writer(struct import *im, struct err *e)
{
    const struct config *c = &im->source->config;
    TRY(gguf_writer_create(&im->writer, e));
    name_after_path(im);
    TRY(add_tensors(im, e));
    gguf_add_text(im->writer, "general.architecture", text_of(c->arch->name));
    gguf_add_text(im->writer, "general.name", text_of(im->name));
    gguf_add_u32(im->writer, "general.file_type", gguf_file_type(im->views[0].type));
    config_write(c, im->writer);
    if (im->vocabulary.keys.model)
        vocab_keys_write(&im->vocabulary.keys, im->writer);
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status set_context(const struct import *im, int n_ctx, struct err *e)
{
    struct config *c = &im->source->config;
    const bool is_window = im->folder.hf.uncut_ctx != 0;
    if (n_ctx > c->n_ctx && (c->position == POSITION_LEARNED || is_window))
        return err_set(
            e, STATUS_USAGE, "--ctx: expected at most the %d positions %s, found %d", c->n_ctx,
            is_window ? "of the sliding window" : "that the checkpoint has learned", n_ctx);
    if (n_ctx)
        c->n_ctx = n_ctx;
    return STATUS_OK;
}

static enum status open_all(struct import *im, const struct import_options *o, struct err *e)
{
    const struct file_format *format = NULL;
    TRY(is_folder(im->path) ? open_folder(im, o, e) : open_file(im, &format, e));
    TRY(set_context(im, o->n_ctx, e));
    TRY(read_vocabulary(im, o, format, e));
    const enum status s = fill_writer(im, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, im->path);
    return s;
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
    hf_import_close(&im->folder);
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
