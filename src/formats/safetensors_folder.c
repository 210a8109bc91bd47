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
    struct safetensors *file;
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
    f->n_tensors += shard->file->n_tensors;
    return STATUS_OK;
}

/* --- shards by their index ------------------------------------------------------------------- */

/* Whether it is the name of a file in the folder itself. */
static bool is_plain_name(struct text name)
{
    return name.len > 0 && name.len < NAME_CAP && !memchr(name.data, '/', name.len) &&
           !memchr(name.data, 0, name.len) && !text_is(name, ".") && !text_is(name, "..");
}

static enum status read_weight_map(const struct file_map *file, struct json_reader *json,
                                   const struct json_node **map, struct err *e)
{
    const struct text source = {(const char *)file->data, file->len};
    const struct json_node *root = NULL;
    const size_t most = index_limits.bytes;
    TRY(file_map_make_private(file, source.len < most ? source.len : most, e));
    TRY(json_read(json, source, &index_limits, &root, e));
    TRY(json_expect(root, JSON_OBJECT, e));
    TRY(json_require(root, "weight_map", JSON_OBJECT, map, e));
    if ((*map)->n == 0)
        return err_bad_file(
            e, "\"weight_map\" at byte %zu: expected a file for each tensor, found none",
            (*map)->at);
    for (const struct json_node *c = NULL; (c = json_child(*map, c));) {
        TRY(json_expect(c, JSON_STRING, e));
        if (!is_plain_name(c->text))
            return err_bad_file(e,
                                "\"%.*s\" at byte %zu: expected the name of a file in this folder, "
                                "found \"%.*s\"",
                                text_width(c->key), c->key.data, c->at, text_width(c->text),
                                c->text.data);
    }
    return STATUS_OK;
}

/* A shard has the tensors that the index says, none that is not in it, and not fewer. `members` are
 * the index's, by their tensors. */
static enum status check_shards(const struct safetensors_folder *f, const struct json_node *map,
                                const struct name_index *members, struct err *e)
{
    for (size_t i = 0; i < f->n_shards; i++)
        for (size_t k = 0; k < f->shards[i].file->n_tensors; k++) {
            const struct safetensors_shard *shard = &f->shards[i];
            const struct text name = shard->file->tensors[k].name;
            const struct indexed *found = name_index_find(members, name);
            const struct text file = found ? map[1 + found->id].text : text_of("");
            if (!found)
                return err_bad_file(
                    e, "%s: tensor \"%.*s\": expected it in " INDEX_NAME ", found it only here",
                    shard->path, text_width(name), name.data);
            if (!text_equal(file, shard->name))
                return err_bad_file(e,
                                    "%s: tensor \"%.*s\": expected it in %.*s, as " INDEX_NAME
                                    " says, found it here",
                                    shard->path, text_width(name), name.data, text_width(file),
                                    file.data);
        }
    for (const struct json_node *c = NULL; f->n_tensors < map->n && (c = json_child(map, c));)
        for (size_t i = 0; i < f->n_shards; i++)
            if (text_equal(f->shards[i].name, c->text) &&
                !safetensors_find(f->shards[i].file, c->key))
                return err_bad_file(
                    e, "%s: expected tensor \"%.*s\", as " INDEX_NAME " says, found no such tensor",
                    f->shards[i].path, text_width(c->key), c->key.data);
    return STATUS_OK;
}

/* The shards in the order of their names. */
static enum status open_shards(struct safetensors_folder *f, const char *path,
                               const struct json_node *map, struct err *e)
{
    struct name_index files = {0}, members = {0};
    enum status s = STATUS_OK;
    /* All of its nodes are scalars: they lie one after another. */
    s = name_index_records(&members, map + 1, sizeof *map, map->n, e);
    for (const struct json_node *c = NULL; !s && (c = json_child(map, c));)
        s = name_index_add(&files, c->text, 0, 0, e);
    name_index_sort(&files);
    for (size_t i = 0; i < files.n && !s; i++)
        if (i == 0 || !text_equal(files.list[i].text, files.list[i - 1].text))
            s = open_shard(f, path, files.list[i].text, e);
    if (!s)
        s = check_shards(f, map, &members, e);
    name_index_free(&files);
    name_index_free(&members);
    return s;
}

static enum status open_index(struct safetensors_folder *f, const char *path, struct err *e)
{
    struct file_map file = {0};
    struct json_reader json = {0};
    const struct json_node *map;
    char *index_path;
    TRY(file_in_folder(path, INDEX_NAME, &index_path, e));
    enum status s = file_map_open(&file, index_path, e);
    if (!s)
        s = err_in(e, read_weight_map(&file, &json, &map, e), "%s", index_path);
    if (!s)
        s = open_shards(f, path, map, e);
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
    TRY(has_file(path, SINGLE_NAME)  ? open_shard(f, path, text_of(SINGLE_NAME), e)
        : has_file(path, INDEX_NAME) ? open_index(f, path, e)
                                     : refuse_folder(path, e));
    /* The shards' tensors in one table. No name is twice: the index has each once. */
    f->tensors = calloc(f->n_tensors + !f->n_tensors, sizeof *f->tensors);
    if (!f->tensors)
        return err_no_memory(e, "the table of tensors", f->n_tensors * sizeof *f->tensors);
    for (size_t i = 0; i < f->n_shards; i++)
        for (size_t k = 0; k < f->shards[i].file->n_tensors; k++)
            f->tensors[f->shards[i].first + k] = f->shards[i].file->tensors[k];
    return name_index_records(&f->by_name, f->tensors, sizeof *f->tensors, f->n_tensors, e);
}

void safetensors_folder_close(struct safetensors_folder *f)
{
    for (size_t i = 0; i < f->n_shards; i++) {
        safetensors_free(f->shards[i].file);
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
    const struct safetensors_shard *shard = f->shards;
    const size_t at = (size_t)(t - f->tensors);
    assert(at < f->n_tensors);
    while (at >= shard->first + shard->file->n_tensors)
        shard++;
    return &shard->map;
}
