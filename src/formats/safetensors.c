/*
 * A safetensors file is the header's length as a u64, the header, which is a JSON object of the
 * tensors by their names, and the tensors' data, one after another in any order. The header is read
 * once: what json_read borrows or decodes, the tensors' names, stays.
 */
#include "formats/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "formats/gguf_private.h"

#define LENGTH_BYTES 8
#define HEADER_ALIGN 8
#define METADATA_KEY "__metadata__"

/* The library's limit of bytes. That of values is ours, for memory: a tensor has seven or more. */
static const struct json_limits limits = {.bytes = 100000000, .values = 1 << 20, .depth = 16};

/* --- types ----------------------------------------------------------------------------------- */

/* In the order of version 0.8 of the library, from which the places of a file's tensors follow. */
static const struct safetensors_dtype dtypes[] = {
    {"BOOL", 8, -1},    {"F4", 4, -1},           {"F6_E2M3", 6, -1},        {"F6_E3M2", 6, -1},
    {"U8", 8, -1},      {"I8", 8, -1},           {"F8_E5M2", 8, -1},        {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1}, {"F8_E4M3FNUZ", 8, -1},  {"F8_E5M2FNUZ", 8, -1},    {"I16", 16, -1},
    {"U16", 16, -1},    {"F16", 16, TENSOR_F16}, {"BF16", 16, TENSOR_BF16}, {"I32", 32, -1},
    {"U32", 32, -1},    {"F32", 32, TENSOR_F32}, {"C64", 64, -1},           {"F64", 64, -1},
    {"I64", 64, -1},    {"U64", 64, -1},
};

const struct safetensors_dtype *safetensors_dtype_named(struct text name)
{
    for (const struct safetensors_dtype *d = dtypes; d < END_OF(dtypes); d++)
        if (text_is(name, d->name))
            return d;
    return NULL;
}

const struct safetensors_dtype *safetensors_dtype_of(enum tensor_type type)
{
    for (const struct safetensors_dtype *d = dtypes; d < END_OF(dtypes); d++)
        if (d->type == (int)type)
            return d;
    return NULL;
}

bool safetensors_measure(const struct safetensors_dtype *dtype, int n_dims, const uint64_t *dims,
                         uint64_t *bytes)
{
    uint64_t bits = 1;
    for (int d = 0; d < n_dims; d++)
        if (!u64_mul(bits, dims[d], &bits))
            return false;
    if (!u64_mul(bits, dtype->bits, &bits) || bits % 8 != 0)
        return false;
    *bytes = bits / 8;
    return true;
}

/* --- reading --------------------------------------------------------------------------------- */

/* Where a file's header is. */
static enum status find_header(const unsigned char *bytes, size_t len, struct text *header,
                               struct err *e)
{
    if (len < LENGTH_BYTES)
        return err_bad_file(e, "expected a safetensors file, %d bytes or more, found %zu bytes",
                            LENGTH_BYTES, len);
    if (text_starts_with(text_span((const char *)bytes, len), "version https://git-lfs"))
        return err_bad_file(
            e,
            "expected a safetensors file, found a Git LFS pointer; fetch the file it stands for");
    const uint64_t n = little_load(bytes, LENGTH_BYTES);
    const size_t left = len - LENGTH_BYTES, most = MIN(left, limits.bytes);
    if (n > most)
        return err_bad_file(e,
                            "the header's length at byte 0: expected at most %zu, found %" PRIu64
                            "; the file is truncated, or not a safetensors file",
                            most, n);
    *header = text_span((const char *)bytes + LENGTH_BYTES, (size_t)n);
    return STATUS_OK;
}

/* The whole numbers of a member of the tensor, at most `most`; *n of them. */
static enum status read_counts(const struct json_node *tensor, const char *key, uint32_t most,
                               uint64_t *numbers, uint32_t *n, struct err *e)
{
    const struct json_node *list = NULL;
    TRY(json_require(tensor, key, JSON_ARRAY, &list, e));
    if (list->n > most)
        return err_bad_file(e, "\"%s\" at byte %zu: expected at most %u, found %u", key, list->at,
                            most, list->n);
    *n = list->n;
    JSON_EACH (c, list)
        TRY(json_node_u64(c, numbers++, e));
    return STATUS_OK;
}

/* A tensor, whose data lie among the `len` bytes at `data`. */
static enum status read_entry(const struct json_node *node, const unsigned char *data, size_t len,
                              struct safetensors_tensor *t, struct err *e)
{
    const struct json_node *dtype = NULL;
    uint64_t offsets[2] = {0, 0}, bytes = 0;
    uint32_t n_dims, n_offsets;
    TRY(json_expect(node, JSON_OBJECT, e));
    TRY(json_require(node, "dtype", JSON_STRING, &dtype, e));
    t->dtype = safetensors_dtype_named(dtype->text);
    if (!t->dtype)
        return err_bad_file(e,
                            "\"dtype\" at byte %zu: expected F32, F16, BF16 or another type of "
                            "safetensors 0.8, found \"%.*s\"",
                            dtype->at, SHOWN(dtype->text));
    for (int d = 0; d < SAFETENSORS_MAX_DIMS; d++)
        t->dims[d] = 1;
    TRY(read_counts(node, "shape", SAFETENSORS_MAX_DIMS, t->dims, &n_dims, e));
    t->n_dims = n_dims;
    TRY(read_counts(node, "data_offsets", 2, offsets, &n_offsets, e));
    if (n_offsets != 2 || offsets[0] > offsets[1] || offsets[1] > len)
        return err_bad_file(e,
                            "\"data_offsets\": expected a beginning and an end within the %zu "
                            "bytes of data, found %" PRIu64 " and %" PRIu64
                            "; the file is truncated or corrupt",
                            len, offsets[0], offsets[1]);
    t->data = data + offsets[0];
    t->n_bytes = offsets[1] - offsets[0];
    if (!safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes) || bytes != t->n_bytes)
        return err_bad_file(
            e, "expected the whole bytes of its shape in %s, below 2^61, found %" PRIu64,
            t->dtype->name, t->n_bytes);
    return STATUS_OK;
}

/* Puts `tensor "name": ` before the message of a failure. */
static enum status in_tensor(enum status s, const struct safetensors_tensor *t, struct err *e)
{
    return err_in(e, s, "tensor \"%.*s\"", SHOWN(t->name));
}

/* Empty ones before those that begin where they are. Names make the order a total one. */
static int compare_entries(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return text_order(x->name, y->name);
}

/* The tensors of a header, sorted by place, whose data are all that is from `data` to `end`. */
static enum status read_entries(const struct json_node *header, const unsigned char *data,
                                const unsigned char *end, struct safetensors *s, struct err *e)
{
    TRY_ZEROED(s->tensors, header->n + (size_t)1, "the table of tensors", e);
    struct safetensors_tensor *t = s->tensors;
    JSON_EACH (c, header) {
        if (text_is(c->key, METADATA_KEY)) {
            TRY(json_expect(c, JSON_OBJECT, e));
            JSON_EACH (m, c)
                TRY(json_expect(m, JSON_STRING, e));
            continue;
        }
        t->name = c->key;
        TRY(in_tensor(read_entry(c, data, end - data, t, e), t, e));
        t++;
    }
    s->n_tensors = t - s->tensors;
    qsort(s->tensors, s->n_tensors, sizeof *t, compare_entries);
    const unsigned char *at = data;
    for (t = s->tensors; t < s->tensors + s->n_tensors; at += t++->n_bytes)
        if (t->data != at)
            return in_tensor(err_bad_file(e,
                                          "expected its data at byte %td, behind those before, "
                                          "without a hole or an overlap, found them at byte %td",
                                          at - data, t->data - data),
                             t, e);
    if (at != end)
        return err_bad_file(
            e, "expected the file to end with the last tensor's data, found %td bytes more",
            end - at);
    return STATUS_OK;
}

enum status safetensors_parse(const void *bytes, size_t len, struct safetensors *out, struct err *e)
{
    const unsigned char *file = bytes;
    struct text header = {NULL, 0};
    const struct json_node *root = NULL;
    *out = (struct safetensors){.n_tensors = 0};
    TRY(find_header(file, len, &header, e));
    out->head_bytes = LENGTH_BYTES + header.len;
    TRY(err_in(e, json_read(&out->json, header, &limits, &root, e), "the header"));
    TRY(err_in(e, json_expect(root, JSON_OBJECT, e), "the header"));
    return read_entries(root, file + out->head_bytes, file + len, out, e);
}

enum status safetensors_parse_file(const struct file_map *f, struct safetensors *out, struct err *e)
{
    struct text header = {NULL, 0};
    *out = (struct safetensors){.n_tensors = 0};
    TRY(file_map_make_private(f, MIN(f->len, LENGTH_BYTES), e));
    TRY(find_header(f->data, f->len, &header, e));
    TRY(file_map_make_private(f, LENGTH_BYTES + header.len, e));
    return safetensors_parse(f->data, f->len, out, e);
}

void safetensors_free(struct safetensors *s)
{
    json_reader_free(&s->json);
    free(s->tensors);
    *s = (struct safetensors){.n_tensors = 0};
}

/* --- writing --------------------------------------------------------------------------------- */

/* The library's order: larger elements first, so that data are aligned, then by name. */
static int compare_written(const void *a, const void *b)
{
    const struct safetensors_written *x = a, *y = b;
    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* An output into memory. */
struct head_output {
    struct output out; /* first */
    struct bytes *bytes;
};

static bool keep_header(struct output *out, const char *bytes, size_t len)
{
    return bytes_put(((struct head_output *)out)->bytes, text_span(bytes, len));
}

static void put_u64s(struct json *j, const char *key, const uint64_t *values, int n)
{
    json_begin_array(j, key);
    for (int i = 0; i < n; i++)
        json_u64(j, NULL, values[i]);
    json_end(j);
}

enum status safetensors_head(struct safetensors_written *tensors, size_t n, struct bytes *head,
                             struct err *e)
{
    static const char length[LENGTH_BYTES]; /* known, and stored, at the end */
    struct head_output h = {.bytes = head};
    struct json j;
    uint64_t offsets[2] = {0, 0}, bytes;
    if (n > 1)
        qsort(tensors, n, sizeof *tensors, compare_written);
    output_init(&h.out, keep_header);
    output_put(&h.out, text_span(length, LENGTH_BYTES));
    json_init(&j, &h.out, JSON_COMPACT);
    json_begin_object(&j, NULL);
    json_begin_object(&j, METADATA_KEY);
    json_string(&j, "format", "pt");
    json_end(&j);
    for (size_t i = 0; i < n; i++) {
        const struct safetensors_written *t = &tensors[i];
        offsets[0] = offsets[1];
        if (!safetensors_measure(t->dtype, t->n_dims, t->dims, &bytes) ||
            !u64_add(offsets[0], bytes, &offsets[1]))
            return err_usage(e, "tensor \"%s\": expected fewer bytes, they overflow", t->name);
        json_begin_object(&j, t->name);
        json_string(&j, "dtype", t->dtype->name);
        put_u64s(&j, "shape", t->dims, t->n_dims);
        put_u64s(&j, "data_offsets", offsets, 2);
        json_end(&j);
    }
    json_end(&j);
    output_flush(&h.out);
    output_repeat(&h.out, ' ', (HEADER_ALIGN - head->len % HEADER_ALIGN) % HEADER_ALIGN);
    if (!output_flush(&h.out))
        return err_no_memory(e, "the header of a safetensors file", head->len);
    little_store(head->data, head->len - LENGTH_BYTES, LENGTH_BYTES);
    return STATUS_OK;
}

enum status safetensors_write(const char *path, struct safetensors_written *tensors, size_t n,
                              struct err *e)
{
    struct bytes head = {NULL, 0, 0};
    struct sink sink = {.file = NULL};
    enum status status = safetensors_head(tensors, n, &head, e);
    THEN(status, file_writer_open(&sink.file, path, e));
    if (!status)
        sink_put(&sink, head.data, head.len);
    for (size_t i = 0; i < n && !status; i++) {
        const struct safetensors_written *t = &tensors[i];
        uint64_t n_bytes = 0;
        safetensors_measure(t->dtype, t->n_dims, t->dims, &n_bytes);
        status = sink_put_source(&sink, &t->source, n_bytes, e);
    }
    bytes_free(&head);
    if (!status)
        return file_writer_commit(sink.file, e);
    file_writer_abandon(sink.file);
    return status;
}

/* --- shards in a folder ----------------------------------------------------------------------- */

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define NAME_CAP    256 /* of a file's name: more than systems allow */

struct safetensors_shard {
    char *path; /* folder, '/', name */
    struct text name;
    struct file_map map;
    struct safetensors file;
    size_t first; /* of its tensors, among those of the folder */
};

/* Adds a file of the folder. */
static enum status open_shard(struct safetensors_folder *f, const char *path, struct text name,
                              struct err *e)
{
    char plain[NAME_CAP];
    TRY_ROOM(f->shards, f->n_shards, f->shards_cap, "the table of shards", e);
    struct safetensors_shard *shard = &f->shards[f->n_shards++];
    *shard = (struct safetensors_shard){.first = f->n_tensors};
    chars_printf(plain, "%.*s", (int)name.len, name.data);
    TRY(file_in_folder(path, plain, &shard->path, e));
    shard->name = text_of(strrchr(shard->path, '/') + 1);
    TRY(file_map_open(&shard->map, shard->path, e));
    TRY(err_in(e, safetensors_parse_file(&shard->map, &shard->file, e), "%s", shard->path));
    f->n_tensors += shard->file.n_tensors;
    return STATUS_OK;
}

/* The tensors of all files in one table. */
static enum status list_tensors(struct safetensors_folder *f, struct err *e)
{
    TRY_ZEROED(f->tensors, f->n_tensors + 1, "the table of tensors", e);
    for (const struct safetensors_shard *s = f->shards; s < f->shards + f->n_shards; s++)
        if (s->file.n_tensors > 0)
            memcpy(f->tensors + s->first, s->file.tensors, s->file.n_tensors * sizeof *f->tensors);
    return name_index_records(&f->by_name, f->tensors, sizeof *f->tensors, f->n_tensors, e);
}

static const struct safetensors_shard *shard_of(const struct safetensors_folder *f,
                                                const struct safetensors_tensor *t)
{
    const struct safetensors_shard *shard = f->shards;
    const size_t at = t - f->tensors;
    assert(at < f->n_tensors);
    while (at >= shard->first + shard->file.n_tensors)
        shard++;
    return shard;
}

/* --- shards by their index ------------------------------------------------------------------- */

/* *map are the names of the files in the folder by their tensors; they are in `files`, too. */
static enum status read_weight_map(struct text source, struct json_reader *json,
                                   const struct json_node **map, struct name_index *files,
                                   struct err *e)
{
    const struct json_node *root = NULL;
    TRY(json_read(json, source, &limits, &root, e));
    TRY(json_expect(root, JSON_OBJECT, e));
    TRY(json_require(root, "weight_map", JSON_OBJECT, map, e));
    JSON_EACH (c, *map) {
        const struct text name = c->text;
        TRY(json_expect(c, JSON_STRING, e));
        if (name.len == 0 || name.len >= NAME_CAP || memchr(name.data, '/', name.len) ||
            memchr(name.data, 0, name.len) || text_is(name, ".") || text_is(name, ".."))
            return err_bad_file(
                e,
                "\"%.*s\" at byte %zu: expected the name of a file in this folder, found \"%.*s\"",
                SHOWN(c->key), c->at, SHOWN(name));
        TRY(name_index_add(files, name, 0, 0, e));
    }
    name_index_sort(files);
    return STATUS_OK;
}

/* The shards, in the order of their names, which have those tensors that the map says. */
static enum status open_shards(struct safetensors_folder *f, const char *path,
                               const struct name_index *files, const struct json_node *map,
                               struct err *e)
{
    for (size_t i = 0; i < files->n; i++)
        if (i == 0 || !text_equal(files->list[i].text, files->list[i - 1].text))
            TRY(open_shard(f, path, files->list[i].text, e));
    TRY(list_tensors(f, e));
    JSON_EACH (c, map) {
        const struct safetensors_tensor *t = safetensors_folder_find(f, c->key);
        if (!t || !text_equal(shard_of(f, t)->name, c->text))
            return err_bad_file(
                e,
                "%s: tensor \"%.*s\": expected it in %.*s, as " INDEX_NAME " says, found it in %s",
                path, SHOWN(c->key), SHOWN(c->text), t ? "another file" : "no file");
    }
    /* Each of the map's is there: so if there are as many, there are no others, and none twice. */
    if (f->n_tensors != map->n)
        return err_bad_file(e,
                            "%s: expected the %u tensors of " INDEX_NAME ", found %zu in its files",
                            path, map->n, f->n_tensors);
    return STATUS_OK;
}

static enum status open_index(struct safetensors_folder *f, const char *path, struct err *e)
{
    struct file_map file = {0};
    struct json_reader json = {0};
    struct name_index files = {0};
    const struct json_node *map = NULL;
    char *index_path;
    TRY(file_in_folder(path, INDEX_NAME, &index_path, e));
    enum status s = file_map_open(&file, index_path, e);
    const struct text source = {(const char *)file.data, file.len};
    THEN(s, file_map_make_private(&file, MIN(source.len, limits.bytes), e));
    THEN(s, err_in(e, read_weight_map(source, &json, &map, &files, e), "%s", index_path));
    THEN(s, open_shards(f, path, &files, map, e));
    name_index_free(&files);
    json_reader_free(&json);
    file_map_close(&file);
    free(index_path);
    return s;
}

/* --- the folder ------------------------------------------------------------------------------ */

/* Whether there is a file of this name, if only a link to nowhere. */
static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    return chars_printf(path, "%s/%s", folder, name) < (int)sizeof path && lstat(path, &st) == 0;
}

/* What PyTorch wrote before there was safetensors, and what nanoGPT and llama2.c write. */
static const char *const pickles[] = {"pytorch_model.bin", "ckpt.pt", "model.pt",
                                      "consolidated.00.pth"};

static enum status refuse_folder(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return file_failure(e, STATUS_BAD_FILE, path, "read", errno);
    for (int i = 0; i < LENGTH(pickles); i++)
        if (has_file(path, pickles[i]))
            return err_in(
                e,
                err_bad_file(
                    e,
                    "expected " SINGLE_NAME
                    ", found %s; in this folder run python3 -c \"import torch,safetensors.torch as "
                    "s;d=torch.load('%s','cpu',weights_only=True);s.save_file({k:v.clone() for k,v "
                    "in d.get('model',d).items()},'" SINGLE_NAME "',{'format':'pt'})\"",
                    pickles[i], pickles[i]),
                "%s", path);
    return err_bad_file(e, "%s: expected " SINGLE_NAME " or " INDEX_NAME ", found neither", path);
}

enum status safetensors_folder_open(struct safetensors_folder *f, const char *path, struct err *e)
{
    *f = (struct safetensors_folder){.n_shards = 0};
    if (has_file(path, SINGLE_NAME)) {
        TRY(open_shard(f, path, text_of(SINGLE_NAME), e));
        return list_tensors(f, e);
    }
    return has_file(path, INDEX_NAME) ? open_index(f, path, e) : refuse_folder(path, e);
}

void safetensors_folder_close(struct safetensors_folder *f)
{
    for (size_t i = 0; i < f->n_shards; i++) {
        safetensors_free(&f->shards[i].file);
        file_map_close(&f->shards[i].map);
        free(f->shards[i].path);
    }
    name_index_free(&f->by_name);
    free(f->shards);
    free(f->tensors);
    *f = (struct safetensors_folder){.n_shards = 0};
}

const struct safetensors_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                         struct text name)
{
    const struct indexed *found = name_index_find(&f->by_name, name);
    return found ? &f->tensors[found->id] : NULL;
}

const struct file_map *safetensors_folder_map(const struct safetensors_folder *f,
                                              const struct safetensors_tensor *t)
{
    return &shard_of(f, t)->map;
}
