#include "cli/study_records.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/output.h"
#include "base/text.h"
#include "json/read.h"
#include "json/write.h"

/* A record, or the settings, is no longer. */
#define RECORD_MAX ((size_t)65536)

#define SETTINGS "study"
#define RECORD   ".json"

const struct report_field study_fields[] = {
    {"cell", "cell", MEMBER(study_cell, name)},
    {"seed", "seed", MEMBER(study_cell, seed), .rank = 6},
    {"kv_heads", "K/V heads", MEMBER(study_cell, kv_heads), .rank = 5},
    {"latent", NULL, MEMBER(study_cell, latent)},
    {"method", "method", MEMBER(study_cell, method_name), .rank = 4},
    {"taught", NULL, MEMBER(study_cell, taught)},
    {"alpha", "% of steps", MEMBER(study_cell, alpha), "%g", .rank = 4},
    {"steps", "steps", MEMBER(study_cell, steps), .rank = 7},
    {"bits_per_byte", "bits/byte", MEMBER(study_cell, bits_per_byte), "%.4f"},
    {"cache_bytes_per_token", "cache bytes/token", MEMBER(study_cell, cache_bytes_per_token),
     .grouped = true, .rank = 3},
    {"seconds", "seconds", MEMBER(study_cell, seconds), "%.1f", .rank = 8},
};
_Static_assert(REPORT_LENGTH(study_fields) == STUDY_N_FIELDS, "as the header says");

enum status study_path(const char *dir, const char *name, const char *suffix, char **path,
                       struct err *e)
{
    char file[200];
    snprintf(file, sizeof file, "%s%s", name, suffix);
    return file_in_folder(dir, file, path, e);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Reads the file at `path` as one JSON object; *found is false if there is none. */
static enum status read_object(const char *path, struct file_map *f, struct json_reader *r,
                               const struct json_node **root, bool *found, struct err *e)
{
    static const struct json_limits limits = {.bytes = RECORD_MAX, .values = 64, .depth = 1};
    *found = access(path, F_OK) == 0;
    if (!*found)
        return STATUS_OK;
    TRY(file_map_open(f, path, e));
    const struct text source = {(const char *)f->data, f->len};
    enum status s = json_read(r, source, &limits, root, e);
    if (s == STATUS_OK)
        s = json_expect(*root, JSON_OBJECT, e);
    if (s != STATUS_OK)
        err_prefix(e, path);
    return s;
}

static enum status take_number(const struct json_node *o, const char *key, double min, double *out,
                               struct err *e)
{
    const struct json_node *node;
    TRY(json_require(o, key, JSON_NUMBER, &node, e));
    TRY(json_node_double(node, out, e));
    if (*out < min)
        return err_set(e, STATUS_BAD_FILE, "%s: expected at least %g, found %g", key, min, *out);
    return STATUS_OK;
}

static enum status take_whole(const struct json_node *o, const char *key, uint64_t max,
                              uint64_t *out, struct err *e)
{
    const struct json_node *node;
    TRY(json_require(o, key, JSON_NUMBER, &node, e));
    TRY(json_node_u64(node, out, e));
    if (*out > max)
        return err_set(e, STATUS_BAD_FILE, "%s: expected at most %llu, found %llu", key,
                       (unsigned long long)max, (unsigned long long)*out);
    return STATUS_OK;
}

static enum status take_name(const struct json_node *o, const char *name, struct err *e)
{
    const struct json_node *node;
    TRY(json_require(o, "cell", JSON_STRING, &node, e));
    if (!text_is(node->text, name))
        return err_set(e, STATUS_BAD_FILE, "cell: expected %s, found '%.*s'", name,
                       text_width(node->text), node->text.data);
    return STATUS_OK;
}

static enum status take_method(const struct json_node *o, struct study_cell *c, struct err *e)
{
    const struct json_node *node;
    TRY(json_require(o, "method", JSON_STRING, &node, e));
    for (int i = 0; study_methods[i]; i++)
        if (text_is(node->text, study_methods[i])) {
            c->method = (enum study_method)i;
            c->method_name = study_methods[i];
            return STATUS_OK;
        }
    return err_set(e, STATUS_BAD_FILE, "method: expected one of %s, found '%.*s'",
                   names_joined(study_methods, " or ").text, text_width(node->text),
                   node->text.data);
}

/* All figures of the cell whose name c has. Those made before there were latent caches say nothing
 * of them. */
static enum status take_record(const struct json_node *o, struct study_cell *c, struct err *e)
{
    uint64_t kv_heads, steps, latent = 0;
    const struct json_node *node;
    TRY(take_name(o, c->name, e));
    TRY(take_method(o, c, e));
    TRY(take_whole(o, "seed", UINT64_MAX, &c->seed, e));
    TRY(take_whole(o, "kv_heads", CONFIG_MAX_WIDTH, &kv_heads, e));
    if (json_member(o, "latent"))
        TRY(take_whole(o, "latent", CONFIG_MAX_WIDTH, &latent, e));
    TRY(take_whole(o, "steps", INT32_MAX, &steps, e));
    TRY(take_whole(o, "cache_bytes_per_token", INT64_MAX, &c->cache_bytes_per_token, e));
    TRY(json_require(o, "taught", JSON_BOOL, &node, e));
    TRY(json_node_bool(node, &c->taught, e));
    TRY(take_number(o, "alpha", 0, &c->alpha, e));
    TRY(take_number(o, "bits_per_byte", 0, &c->bits_per_byte, e));
    TRY(take_number(o, "seconds", 0, &c->seconds, e));
    c->kv_heads = (int)kv_heads;
    c->latent = (int)latent;
    c->steps = (int)steps;
    c->done = true;
    return STATUS_OK;
}

/* Into c, whose name says which. */
static enum status read_record(const char *path, struct study_cell *c, struct err *e)
{
    struct file_map f = {.data = NULL};
    struct json_reader r = {.nodes = NULL};
    const struct json_node *root;
    bool found;
    enum status s = read_object(path, &f, &r, &root, &found, e);
    if (s == STATUS_OK && found) {
        s = take_record(root, c, e);
        if (s != STATUS_OK)
            err_prefix(e, path);
    }
    json_reader_free(&r);
    file_map_close(&f);
    return s;
}

enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e)
{
    char *path;
    struct study_cell found = {.done = false};
    TRY(study_path(dir, cell->name, RECORD, &path, e));
    snprintf(found.name, sizeof found.name, "%s", cell->name);
    enum status s = read_record(path, &found, e);
    cell->done = s == STATUS_OK && found.done;
    if (cell->done && (study_order(cell, &found) != 0 || cell->steps != found.steps))
        s = err_set(e, STATUS_BAD_FILE,
                    "%.300s: expected the figures of %d steps and of the cell it is named after, "
                    "found those of %d steps; without the file the cell is made again",
                    path, cell->steps, found.steps);
    if (s == STATUS_OK && cell->done) {
        cell->bits_per_byte = found.bits_per_byte;
        cell->cache_bytes_per_token = found.cache_bytes_per_token;
        cell->seconds = found.seconds;
    }
    free(path);
    return s;
}

/* --- writing --------------------------------------------------------------------------------- */

/* One line: the first n fields. */
static void put_record(struct output *out, const struct study_cell *cell, int n)
{
    struct json j;
    json_init(&j, out, 0);
    json_begin_object(&j, NULL);
    report_members(&j, study_fields, n, cell);
    json_end(&j);
    output_puts(out, "\n");
}

enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e)
{
    char *path;
    struct file_output f;
    TRY(study_path(dir, cell->name, RECORD, &path, e));
    file_output_init(&f);
    enum status s = file_output_open(&f, path, e);
    free(path);
    if (s != STATUS_OK)
        return s;
    put_record(&f.out, cell, STUDY_N_FIELDS);
    return file_output_commit(&f, e);
}

/* --- all records ----------------------------------------------------------------------------- */

struct records {
    struct study_cell *cells; /* malloc'd */
    size_t n, cap;
};

/* "NAME.json" of a cell: s and a digit at its beginning. */
static bool is_record(const char *file)
{
    const size_t len = strlen(file), end = strlen(RECORD);
    return len > end + 2 && len - end < sizeof((struct study_cell *)0)->name && file[0] == 's' &&
           file[1] >= '0' && file[1] <= '9' && strcmp(file + len - end, RECORD) == 0;
}

static enum status add_record(struct records *all, const char *dir, const char *file, struct err *e)
{
    if (all->n == all->cap) {
        const size_t cap = all->cap ? 2 * all->cap : 64;
        struct study_cell *more = realloc(all->cells, cap * sizeof *more);
        if (!more)
            return err_no_memory(e, "the study's records", cap * sizeof *more);
        all->cells = more;
        all->cap = cap;
    }
    struct study_cell *cell = &all->cells[all->n];
    char *path;
    *cell = (struct study_cell){.done = false};
    TRY(study_path(dir, file, "", &path, e));
    snprintf(cell->name, sizeof cell->name, "%.*s", (int)(strlen(file) - strlen(RECORD)), file);
    const enum status s = read_record(path, cell, e);
    all->n += s == STATUS_OK && cell->done;
    free(path);
    return s;
}

static enum status read_all(const char *dir, struct records *all, struct err *e)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    enum status s = STATUS_OK;
    if (!d)
        return err_set(e, STATUS_FAILED, "%.300s: cannot be listed: %s", dir, strerror(errno));
    all->n = 0;
    while (s == STATUS_OK && (entry = readdir(d)))
        if (is_record(entry->d_name))
            s = add_record(all, dir, entry->d_name, e);
    closedir(d);
    if (all->n > 0)
        qsort(all->cells, all->n, sizeof *all->cells, study_order);
    return s;
}

static enum status write_all(const char *dir, const struct records *all, struct err *e)
{
    char *path;
    struct file_output f;
    TRY(study_path(dir, "results", ".jsonl", &path, e));
    file_output_init(&f);
    const enum status s = file_output_open(&f, path, e);
    free(path);
    if (s != STATUS_OK)
        return s;
    for (size_t i = 0; i < all->n; i++)
        put_record(&f.out, &all->cells[i], STUDY_N_FIELDS - STUDY_N_TIMES);
    return file_output_commit(&f, e);
}

/* A record that came after the list was made has a writer of its own to come, unless that one has
 * just been overtaken: so it is looked for once more. */
enum status study_results_write(const char *dir, struct err *e)
{
    struct records all = {.n = 0};
    enum status s = read_all(dir, &all, e);
    for (size_t before = SIZE_MAX; s == STATUS_OK && all.n != before;) {
        before = all.n;
        s = write_all(dir, &all, e);
        if (s == STATUS_OK)
            s = read_all(dir, &all, e);
    }
    free(all.cells);
    return s;
}

/* --- locks ----------------------------------------------------------------------------------- */

enum status study_lock_open(const char *dir, int *fd, struct err *e)
{
    char *path;
    TRY(study_path(dir, SETTINGS, ".lock", &path, e));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    const enum status s =
        *fd >= 0 ? STATUS_OK
                 : err_set(e, STATUS_FAILED, "%.300s: cannot be opened: %s", path, strerror(errno));
    free(path);
    return s;
}

/* One byte of the file for each name: two of one hash only wait for each other. */
static struct flock lock_of(const char *name, short type)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(hash >> 34), .l_len = 1};
}

enum status study_lock_try(int fd, const char *name, bool *taken, struct err *e)
{
    struct flock lock = lock_of(name, F_WRLCK);
    *taken = fcntl(fd, F_SETLK, &lock) == 0;
    if (*taken || errno == EAGAIN || errno == EACCES || errno == EINTR)
        return STATUS_OK;
    return err_set(e, STATUS_FAILED, "the study's folder cannot be locked: %s", strerror(errno));
}

void study_unlock(int fd, const char *name)
{
    struct flock lock = lock_of(name, F_UNLCK);
    fcntl(fd, F_SETLK, &lock);
}

/* --- settings -------------------------------------------------------------------------------- */

/* The value of "settings" in study.json. */
static enum status compare_settings(const char *path, const struct json_node *root,
                                    struct text settings, struct err *e)
{
    const struct json_node *node;
    TRY(json_require(root, "settings", JSON_STRING, &node, e));
    if (text_equal(node->text, settings))
        return STATUS_OK;
    return err_set(e, STATUS_USAGE,
                   "%.200s: the cells there are of another study: expected '%.*s', found '%.*s'; "
                   "the same options go on with it, another -o begins anew",
                   path, text_width(settings), settings.data, text_width(node->text),
                   node->text.data);
}

static enum status write_settings(const char *path, struct text settings, struct err *e)
{
    struct file_output f;
    struct json j;
    file_output_init(&f);
    TRY(file_output_open(&f, path, e));
    json_init(&j, &f.out, 0);
    json_begin_object(&j, NULL);
    json_text(&j, "settings", settings);
    json_end(&j);
    output_puts(&f.out, "\n");
    return file_output_commit(&f, e);
}

enum status study_settings_keep(const char *dir, struct text settings, struct err *e)
{
    char *path;
    struct file_map f = {.data = NULL};
    struct json_reader r = {.nodes = NULL};
    const struct json_node *root;
    bool found;
    TRY(study_path(dir, SETTINGS, RECORD, &path, e));
    enum status s = read_object(path, &f, &r, &root, &found, e);
    if (s == STATUS_OK && found) {
        s = compare_settings(path, root, settings, e);
        if (s == STATUS_BAD_FILE)
            err_prefix(e, path);
    } else if (s == STATUS_OK) {
        s = write_settings(path, settings, e);
    }
    json_reader_free(&r);
    file_map_close(&f);
    free(path);
    return s;
}
