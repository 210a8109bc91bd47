#include "safetensors/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/name_index.h"
#include "json/read.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define NAME_CAP    256 /* of a file's name: more than systems allow */

/* Far above those of the largest models; a tensor is one value. */
static const struct json_limits index_limits = {
    .bytes = 100000000, .values = (uint32_t)1 << 20, .depth = 16};

struct shard {
    char *path;
    struct file_map map;
    struct safetensors *file;
    size_t first; /* of its tensors, among those of the folder */
};

struct safetensors_folder_index {
    struct shard *shards;
    size_t n_shards;
    struct safetensors_tensor *tensors;
    struct name_index by_name;
};

static enum status take_shards(struct safetensors_folder_index *ix, size_t n, struct err *e)
{
    ix->shards = calloc(n, sizeof *ix->shards);
    if (!ix->shards)
        return err_no_memory(e, "the table of shards", n * sizeof *ix->shards);
    ix->n_shards = n;
    return STATUS_OK;
}

static enum status shard_open(struct shard *shard, const char *path, struct text name,
                              struct err *e)
{
    char plain[NAME_CAP];
    snprintf(plain, sizeof plain, "%.*s", (int)name.len, name.data);
    TRY(file_in_folder(path, plain, &shard->path, e));
    TRY(file_map_open(&shard->map, shard->path, e));
    return err_in(e, safetensors_parse_file(&shard->map, &shard->file, e), "%s", shard->path);
}

/* --- shards by their index ------------------------------------------------------------------- */

/* Of the index: which file a tensor is in. */
struct entry {
    struct text name, file;
};

struct weight_map {
    const char *path; /* of the folder */
    struct file_map map;
    struct json_reader json; /* the texts' memory */
    struct entry *entries;   /* by file */
    size_t n;
    struct name_index by_name;
    struct err *e;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = text_order(x->file, y->file);
    return order ? order : text_order(x->name, y->name);
}

/* Whether it is the name of a file in the folder itself. */
static bool is_plain_name(struct text name)
{
    return name.len > 0 && name.len < NAME_CAP && !memchr(name.data, '/', name.len) &&
           !memchr(name.data, 0, name.len) && !text_is(name, ".") && !text_is(name, "..");
}

static enum status read_weight_map(struct weight_map *m)
{
    const struct text source = {(const char *)m->map.data, m->map.len};
    const struct json_node *root = NULL, *map = NULL;
    const size_t most = index_limits.bytes;
    size_t first, second; /* none is twice: keys are unique */
    TRY(file_map_make_private(&m->map, source.len < most ? source.len : most, m->e));
    TRY(json_read(&m->json, source, &index_limits, &root, m->e));
    TRY(json_expect(root, JSON_OBJECT, m->e));
    TRY(json_require(root, "weight_map", JSON_OBJECT, &map, m->e));
    if (map->n == 0)
        return err_bad_file(
            m->e, "\"weight_map\" at byte %zu: expected a file for each tensor, found none",
            map->at);
    m->entries = calloc(map->n, sizeof *m->entries);
    if (!m->entries)
        return err_no_memory(m->e, "the index of shards", map->n * sizeof *m->entries);
    for (const struct json_node *c = NULL; (c = json_child(map, c));) {
        struct entry *entry = &m->entries[m->n++];
        entry->name = c->key;
        TRY(json_node_text(c, &entry->file, m->e));
        if (!is_plain_name(entry->file))
            return err_bad_file(m->e,
                                "\"%.*s\" at byte %zu: expected the name of a file in this folder, "
                                "found \"%.*s\"",
                                text_width(c->key), c->key.data, c->at, text_width(entry->file),
                                entry->file.data);
    }
    qsort(m->entries, m->n, sizeof *m->entries, compare_entries);
    return name_index_build(&m->by_name, m->entries, sizeof *m->entries, m->n, &first, &second,
                            m->e);
}

/* The shard has the tensors of these n entries: none that is not among them, and not fewer. */
static enum status check_shard(const struct weight_map *m, const struct shard *shard,
                               const struct entry *entries, size_t n)
{
    const struct safetensors *file = shard->file;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct text name = file->tensors[i].name;
        const size_t at = name_index_find(&m->by_name, name);
        if (at == m->n)
            return err_bad_file(
                m->e, "%s: tensor \"%.*s\": expected it in " INDEX_NAME ", found it only here",
                shard->path, text_width(name), name.data);
        const struct text expected = m->entries[at].file;
        if (!text_equal(expected, entries->file))
            return err_bad_file(
                m->e,
                "%s: tensor \"%.*s\": expected it in %.*s, as " INDEX_NAME " says, found it here",
                shard->path, text_width(name), name.data, text_width(expected), expected.data);
    }
    for (size_t i = 0; i < n && file->n_tensors < n; i++)
        if (!safetensors_find(file, entries[i].name))
            return err_bad_file(
                m->e, "%s: expected tensor \"%.*s\", as " INDEX_NAME " says, found no such tensor",
                shard->path, text_width(entries[i].name), entries[i].name.data);
    return STATUS_OK;
}

/* The entries behind `first` of the same file, and it. */
static size_t run_of_file(const struct weight_map *m, size_t first)
{
    size_t n = 1;
    while (first + n < m->n && text_equal(m->entries[first + n].file, m->entries[first].file))
        n++;
    return n;
}

static enum status open_shards(struct safetensors_folder_index *ix, const struct weight_map *m)
{
    size_t n_shards = 0;
    for (size_t i = 0; i < m->n; i += run_of_file(m, i))
        n_shards++;
    TRY(take_shards(ix, n_shards, m->e));
    struct shard *shard = ix->shards;
    for (size_t i = 0; i < m->n; i += run_of_file(m, i), shard++) {
        TRY(shard_open(shard, m->path, m->entries[i].file, m->e));
        TRY(check_shard(m, shard, &m->entries[i], run_of_file(m, i)));
    }
    return STATUS_OK;
}

static enum status open_index(struct safetensors_folder_index *ix, const char *path, struct err *e)
{
    struct weight_map m = {.path = path, .e = e};
    char *index_path;
    TRY(file_in_folder(path, INDEX_NAME, &index_path, e));
    enum status status = file_map_open(&m.map, index_path, e);
    if (status == STATUS_OK)
        status = err_in(e, read_weight_map(&m), "%s", index_path);
    if (status == STATUS_OK)
        status = open_shards(ix, &m);
    name_index_free(&m.by_name);
    free(m.entries);
    json_reader_free(&m.json);
    file_map_close(&m.map);
    free(index_path);
    return status;
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

static enum status open_files(struct safetensors_folder_index *ix, const char *path, struct err *e)
{
    if (has_file(path, SINGLE_NAME)) {
        TRY(take_shards(ix, 1, e));
        return shard_open(ix->shards, path, text_of(SINGLE_NAME), e);
    }
    return has_file(path, INDEX_NAME) ? open_index(ix, path, e) : refuse_folder(path, e);
}

/* The shards' tensors in one table. No name is twice: the index has each once. */
static enum status gather_tensors(struct safetensors_folder *f, struct err *e)
{
    struct safetensors_folder_index *ix = f->index;
    size_t n = 0, first, second;
    for (size_t i = 0; i < ix->n_shards; i++) {
        ix->shards[i].first = n;
        n += ix->shards[i].file->n_tensors;
    }
    f->tensors = ix->tensors = calloc(n + !n, sizeof *ix->tensors);
    if (!ix->tensors)
        return err_no_memory(e, "the table of tensors", n * sizeof *ix->tensors);
    for (size_t i = 0; i < ix->n_shards; i++) {
        const struct safetensors *file = ix->shards[i].file;
        if (file->n_tensors > 0)
            memcpy(ix->tensors + ix->shards[i].first, file->tensors,
                   file->n_tensors * sizeof *file->tensors);
    }
    f->n_tensors = n;
    return name_index_build(&ix->by_name, f->tensors, sizeof *f->tensors, n, &first, &second, e);
}

enum status safetensors_folder_open(struct safetensors_folder *f, const char *path, struct err *e)
{
    *f = (struct safetensors_folder){.index = calloc(1, sizeof *f->index)};
    if (!f->index)
        return err_no_memory(e, "the safetensors reader", sizeof *f->index);
    TRY(open_files(f->index, path, e));
    return gather_tensors(f, e);
}

void safetensors_folder_close(struct safetensors_folder *f)
{
    struct safetensors_folder_index *ix = f->index;
    *f = (struct safetensors_folder){.index = NULL};
    if (!ix)
        return;
    for (size_t i = 0; i < ix->n_shards; i++) {
        safetensors_free(ix->shards[i].file);
        file_map_close(&ix->shards[i].map);
        free(ix->shards[i].path);
    }
    name_index_free(&ix->by_name);
    free(ix->shards);
    free(ix->tensors);
    free(ix);
}

const struct safetensors_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                         struct text name)
{
    const size_t i = name_index_find(&f->index->by_name, name);
    return i < f->n_tensors ? &f->tensors[i] : NULL;
}

const struct file_map *safetensors_folder_map(const struct safetensors_folder *f,
                                              const struct safetensors_tensor *t)
{
    const struct shard *shard = f->index->shards;
    const size_t at = (size_t)(t - f->tensors);
    assert(at < f->n_tensors);
    while (at >= shard->first + shard->file->n_tensors)
        shard++;
    return &shard->map;
}
