#include "formats/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define NAME_CAP    256 /* of a file's name: more than systems allow */

/* Far above those of the largest models; a tensor is one value. */
static const struct json_limits index_limits = {
    .bytes = 100000000, .values = (uint32_t)1 << 20, .depth = 16};

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
    struct safetensors_shard *shards = realloc(f->shards, (f->n_shards + 1) * sizeof *shards);
    if (!shards)
        return err_no_memory(e, "the table of shards", (f->n_shards + 1) * sizeof *shards);
    f->shards = shards;
    struct safetensors_shard *shard = &shards[f->n_shards++];
    *shard = (struct safetensors_shard){.first = f->n_tensors};
    snprintf(plain, sizeof plain, "%.*s", (int)name.len, name.data);
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
    f->tensors = calloc(f->n_tensors + 1, sizeof *f->tensors);
    if (!f->tensors)
        return err_no_memory(e, "the table of tensors", f->n_tensors * sizeof *f->tensors);
    for (const struct safetensors_shard *s = f->shards; s < f->shards + f->n_shards; s++)
        if (s->file.n_tensors > 0)
            memcpy(f->tensors + s->first, s->file.tensors, s->file.n_tensors * sizeof *f->tensors);
    return name_index_records(&f->by_name, f->tensors, sizeof *f->tensors, f->n_tensors, e);
}

static const struct safetensors_shard *shard_of(const struct safetensors_folder *f,
                                                const struct safetensors_tensor *t)
{
    const struct safetensors_shard *shard = f->shards;
    const size_t at = (size_t)(t - f->tensors);
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
    TRY(json_read(json, source, &index_limits, &root, e));
    TRY(json_expect(root, JSON_OBJECT, e));
    TRY(json_require(root, "weight_map", JSON_OBJECT, map, e));
    for (const struct json_node *c = NULL; (c = json_child(*map, c));) {
        const struct text name = c->text;
        TRY(json_expect(c, JSON_STRING, e));
        if (name.len == 0 || name.len >= NAME_CAP || memchr(name.data, '/', name.len) ||
            memchr(name.data, 0, name.len) || text_is(name, ".") || text_is(name, ".."))
            return err_bad_file(e,
                                "\"%.*s\" at byte %zu: expected the name of a file in this folder, "
                                "found \"%.*s\"",
                                text_width(c->key), c->key.data, c->at, text_width(name),
                                name.data);
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
    for (const struct json_node *c = NULL; (c = json_child(map, c));) {
        const struct safetensors_tensor *t = safetensors_folder_find(f, c->key);
        if (!t || !text_equal(shard_of(f, t)->name, c->text))
            return err_bad_file(e,
                                "%s: tensor \"%.*s\": expected it in %.*s, as " INDEX_NAME
                                " says, found it in %s",
                                path, text_width(c->key), c->key.data, text_width(c->text),
                                c->text.data, t ? "another file" : "no file");
    }
    /* Each of the map's is there: so if there are as many, there are no others, and none twice. */
    if (f->n_tensors != map->n)
        return err_bad_file(e,
                            "%s: expected the %u tensors of " INDEX_NAME ", found %zu in its files",
                            path, (unsigned)map->n, f->n_tensors);
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
    if (!s)
        s = file_map_make_private(
            &file, source.len < index_limits.bytes ? source.len : index_limits.bytes, e);
    if (!s)
        s = err_in(e, read_weight_map(source, &json, &map, &files, e), "%s", index_path);
    if (!s)
        s = open_shards(f, path, &files, map, e);
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
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           lstat(path, &st) == 0;
}

/* What PyTorch wrote before there was safetensors, and what nanoGPT and llama2.c write. */
static const char *const pickles[] = {"pytorch_model.bin", "ckpt.pt", "model.pt",
                                      "consolidated.00.pth"};

static enum status refuse_folder(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return file_read_failure(path, errno, e);
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
        if (has_file(path, pickles[i]))
            return err_in(
                e,
                err_bad_file(e,
                             "expected " SINGLE_NAME
                             ", found %s; in this folder run python3 -c \"import "
                             "torch,safetensors.torch as "
                             "s;d=torch.load('%s','cpu',weights_only=True);s.save_file({k:"
                             "v.clone() for k,v in d.get('model',d).items()},'" SINGLE_NAME
                             "',{'format':'pt'})\"",
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
