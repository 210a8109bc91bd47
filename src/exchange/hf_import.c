#include "exchange/hf_import.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

/* --- config.json ----------------------------------------------------------------------------- */

static enum status read_config(struct hf_import *h, const char *path, struct err *e)
{
    TRY(json_file_open(&h->config_file, path, e));
    h->config = h->config_file.root;
    if (!h->config)
        return err_set(e, STATUS_BAD_FILE,
                       "%.200s: there is no such file; expected a folder with config.json and "
                       "model.safetensors, as transformers save a model",
                       path);
    const enum status s = hf_config_read(h->config, &h->source.config, &h->hf, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, path);
    return s;
}

/* --- tensors --------------------------------------------------------------------------------- */

static const struct safetensors_tensor *find(const struct hf_import *h, enum tensor_role role,
                                             int layer, bool is_bias)
{
    if (is_bias && !hf_has_bias(&h->hf, role))
        return NULL;
    const struct hf_tensor_name name =
        hf_tensor_name(h->hf.family, h->prefixed, role, layer, is_bias);
    return name.text[0] ? safetensors_folder_find(&h->tensors, text_of(name.text)) : NULL;
}

static enum status check_shape(const struct safetensors_tensor *t, int n_dims,
                               const uint64_t *expected, struct err *e)
{
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++)
        same = t->dims[i] == expected[i];
    if (same && t->dtype->type >= 0)
        return STATUS_OK;
    char found[128] = "";
    size_t used = 0;
    for (int i = 0; i < t->n_dims && used < sizeof found; i++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%" PRIu64, i ? ", " : "",
                                 t->dims[i]);
    if (n_dims == 1)
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %.*s: expected F32, F16 or BF16 [%" PRIu64
                       "], as config.json says; found %s [%s]",
                       text_width(t->name), t->name.data, expected[0], t->dtype->name, found);
    return err_set(e, STATUS_BAD_FILE,
                   "tensor %.*s: expected F32, F16 or BF16 [%" PRIu64 ", %" PRIu64
                   "], as config.json says; found %s [%s]",
                   text_width(t->name), t->name.data, expected[0], expected[1], t->dtype->name,
                   found);
}

/* Rows [rows, cols] of a tensor, or the elements of a vector as rows of one. */
static struct view view_of(const struct hf_import *h, const struct safetensors_tensor *t, int rows,
                           int cols)
{
    return (struct view){
        .parts = {{.file = safetensors_folder_map(&h->tensors, t),
                   .data = t->data,
                   .type = (uint32_t)t->dtype->type,
                   .source_rows = rows,
                   .rows = rows}},
        .n_parts = 1,
        .cols = cols,
    };
}

static enum status find_matrix(const struct hf_import *h, const struct tensor_spec *spec,
                               const struct safetensors_tensor *t, struct view *out, struct err *e)
{
    const bool positions = spec->role == ROLE_POSITION_EMBD;
    const bool transposed = h->hf.family->conv1d && role_in_block(spec->role);
    const int rows = positions ? h->n_positions : spec->rows;
    const uint64_t dims[2] = {(uint64_t)(transposed ? spec->cols : rows),
                              (uint64_t)(transposed ? rows : spec->cols)};
    TRY(check_shape(t, 2, dims, e));
    *out = view_of(h, t, rows, spec->cols);
    out->parts[0].rows = spec->rows;
    out->parts[0].transposed = transposed;
    out->parts[0].swap = hf_row_swap(h->hf.family, &h->source.config, spec->role);
    return STATUS_OK;
}

static enum status find_vector(const struct hf_import *h, const struct tensor_spec *spec,
                               const struct safetensors_tensor *t, struct view *out, struct err *e)
{
    const uint64_t n = spec_elements(spec);
    TRY(check_shape(t, 1, &n, e));
    *out = view_of(h, t, (int)n, 1);
    out->parts[0].swap = hf_row_swap(h->hf.family, &h->source.config, spec->role);
    return STATUS_OK;
}

static enum status hf_tensor(const struct import_source *s, const struct tensor_spec *spec,
                             struct view *out, bool *found, struct err *e)
{
    const struct hf_import *h = (const struct hf_import *)s;
    *found = true;
    if (spec->role == ROLE_ROPE_FREQS && h->factors) {
        *out = (struct view){.parts = {{.data = (const unsigned char *)h->factors,
                                        .type = TENSOR_F32,
                                        .source_rows = 1,
                                        .rows = 1}},
                             .n_parts = 1,
                             .cols = spec->cols};
        return STATUS_OK;
    }
    const struct safetensors_tensor *t = find(h, spec->role, spec->layer, spec->is_bias);
    *found = t && !(spec->role == ROLE_OUTPUT && h->hf.tied);
    if (!*found)
        return STATUS_OK;
    return spec->n_dims == 2 ? find_matrix(h, spec, t, out, e) : find_vector(h, spec, t, out, e);
}

/* --- tensors that have no place -------------------------------------------------------------- */

/* Buffers that old versions saved: masks and tables that follow from the shape. */
static bool is_buffer(struct text name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends_with(name, ends[i]))
            return true;
    return false;
}

/* Nothing that may matter is passed over. */
static enum status refuse_unused(const struct hf_import *h, struct err *e)
{
    const struct safetensors_folder *f = &h->tensors;
    bool *used = calloc(f->n_tensors + 1, sizeof *used);
    enum status s = STATUS_OK;
    if (!used)
        return err_no_memory(e, "the list of tensors", f->n_tensors);
    for (int64_t i = 0; i < layout_count(&h->source.config); i++) {
        const struct tensor_spec spec = layout_at(&h->source.config, i);
        const struct safetensors_tensor *t = find(h, spec.role, spec.layer, spec.is_bias);
        if (t)
            used[t - f->tensors] = true;
    }
    for (size_t i = 0; i < f->n_tensors && s == STATUS_OK; i++)
        if (!used[i] && !is_buffer(f->tensors[i].name))
            s = err_set(e, STATUS_BAD_FILE,
                        "tensor %.*s: expected none of this name, for what config.json describes",
                        text_width(f->tensors[i].name), f->tensors[i].name.data);
    free(used);
    return s;
}

/* An output that config.json ties to the embedding may be there all the same, if it is equal; one
 * that it does not tie must be. */
static enum status check_output(const struct hf_import *h, struct err *e)
{
    const struct safetensors_tensor *output = find(h, ROLE_OUTPUT, 0, false);
    const struct safetensors_tensor *embedding = find(h, ROLE_TOKEN_EMBD, 0, false);
    if (!embedding)
        return err_set(e, STATUS_BAD_FILE, "tensor %s, which holds the embedding, is missing",
                       hf_tensor_name(h->hf.family, true, ROLE_TOKEN_EMBD, 0, false).text);
    if (!h->hf.tied && !output)
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %s is missing, and config.json does not tie it to the embedding; "
                       "set \"tie_word_embeddings\" to true if the model does",
                       hf_tensor_name(h->hf.family, true, ROLE_OUTPUT, 0, false).text);
    if (!h->hf.tied || !output)
        return STATUS_OK;
    if (output->n_bytes == embedding->n_bytes && output->dtype == embedding->dtype &&
        memcmp(output->data, embedding->data, (size_t)output->n_bytes) == 0)
        return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE,
                   "tensor %.*s differs from the embedding, to which config.json ties it; set "
                   "\"tie_word_embeddings\" to false if it is the model's own",
                   text_width(output->name), output->name.data);
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status make_factors(struct hf_import *h, struct err *e)
{
    const struct config *c = &h->source.config;
    if (!(h->hf.llama3.factor > 0))
        return STATUS_OK;
    const size_t bytes = (size_t)(c->rope.n_dims / 2) * sizeof *h->factors;
    h->factors = malloc(bytes);
    if (!h->factors)
        return err_no_memory(e, "the factors of rotary frequencies", bytes);
    hf_llama3_factors(&h->hf.llama3, c, h->factors);
    return STATUS_OK;
}

static enum status open_parts(struct hf_import *h, const char *config_path, struct err *e)
{
    TRY(read_config(h, config_path, e));
    TRY(safetensors_folder_open(&h->tensors, h->path, e));
    h->n_positions = h->source.config.n_ctx;
    h->prefixed = true;
    h->prefixed = find(h, ROLE_TOKEN_EMBD, 0, false) != NULL;
    enum status s = check_output(h, e);
    if (s == STATUS_OK)
        s = refuse_unused(h, e);
    if (s == STATUS_OK)
        s = make_factors(h, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, h->path);
    return s;
}

enum status hf_import_open(const char *path, struct hf_import *out, struct err *e)
{
    char *config_path;
    *out = (struct hf_import){.source = {.tensor = hf_tensor}, .path = path};
    TRY(file_in_folder(path, "config.json", &config_path, e));
    const enum status s = open_parts(out, config_path, e);
    free(config_path);
    return s;
}

void hf_import_close(struct hf_import *h)
{
    safetensors_folder_close(&h->tensors);
    json_file_close(&h->config_file);
    free(h->factors);
    *h = (struct hf_import){.path = NULL};
}
