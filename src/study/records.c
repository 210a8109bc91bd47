/*
 * What a study's folder has beside checkpoints: records, the list of them, settings and locks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/output.h"
#include "study/study.h"
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

struct study_path study_path(const char *dir, const char *name, const char *suffix)
{
    struct study_path path;
    snprintf(path.text, sizeof path.text, "%s/%s%s", dir, name, suffix);
    return path;
}

/* --- reading --------------------------------------------------------------------------------- */

/* A file that is one JSON object; zeroed: none. */
struct object {
    struct file_map file;
    struct json_reader reader;
    const struct json_node *root; /* NULL: there is no such file */
};

/* close_object is due in any case. */
static enum status open_object(const char *path, struct object *o, struct err *e)
{
    static const struct json_limits limits = {.bytes = RECORD_MAX, .values = 64, .depth = 1};
    *o = (struct object){.root = NULL};
    if (access(path, F_OK) != 0)
        return STATUS_OK;
    TRY(file_map_open(&o->file, path, e));
    const struct text source = {(const char *)o->file.data, o->file.len};
    enum status s = json_read(&o->reader, source, &limits, &o->root, e);
    if (s == STATUS_OK)
        s = json_expect(o->root, JSON_OBJECT, e);
    if (s != STATUS_OK)
        err_prefix(e, path);
    return s;
}

static void close_object(struct object *o)
{
    json_reader_free(&o->reader);
    file_map_close(&o->file);
}

/* One member of a record into the cell, which has its name already. */
static enum status take_field(const struct json_node *root, const struct report_field *f,
                              struct study_cell *c, struct err *e)
{
    static const enum json_kind kinds[] = {
        [REPORT_INT] = JSON_NUMBER, [REPORT_U64] = JSON_NUMBER,   [REPORT_DOUBLE] = JSON_NUMBER,
        [REPORT_BOOL] = JSON_BOOL,  [REPORT_CHARS] = JSON_STRING, [REPORT_STRING] = JSON_STRING};
    const struct json_node *node;
    void *at = (char *)c + f->offset;
    uint64_t whole;
    TRY(json_require(root, f->key, kinds[f->type], &node, e));
    switch (f->type) {
    case REPORT_BOOL:
        return json_node_bool(node, at, e);
    case REPORT_U64:
        return json_node_u64(node, at, e);
    case REPORT_INT:
        TRY(json_node_u64(node, &whole, e));
        if (whole > INT_MAX)
            return err_set(e, STATUS_BAD_FILE, "%s: expected at most %d, found %llu", f->key,
                           INT_MAX, (unsigned long long)whole);
        *(int *)at = (int)whole;
        return STATUS_OK;
    case REPORT_DOUBLE:
        TRY(json_node_double(node, at, e));
        if (*(const double *)at < 0)
            return err_set(e, STATUS_BAD_FILE, "%s: expected at least 0, found %g", f->key,
                           *(const double *)at);
        return STATUS_OK;
    case REPORT_CHARS: /* the name */
        if (!text_is(node->text, at))
            return err_set(e, STATUS_BAD_FILE, "%s: expected %s, found '%.*s'", f->key,
                           (const char *)at, text_width(node->text), node->text.data);
        return STATUS_OK;
    default: /* the method */
        for (int i = 0; study_methods[i]; i++)
            if (text_is(node->text, study_methods[i])) {
                c->method = (enum study_method)i;
                c->method_name = study_methods[i];
                return STATUS_OK;
            }
        return err_set(e, STATUS_BAD_FILE, "%s: expected one of the methods, found '%.*s'", f->key,
                       text_width(node->text), node->text.data);
    }
}

/* The record at `path` into c, whose name says which; c->done is false if there is none. Those made
 * before there were latent caches say nothing of them. */
static enum status read_record(const char *path, struct study_cell *c, struct err *e)
{
    struct object o;
    enum status s = open_object(path, &o, e);
    c->done = s == STATUS_OK && o.root;
    for (int i = 0; i < STUDY_N_FIELDS && s == STATUS_OK && c->done; i++) {
        const struct report_field *f = &study_fields[i];
        if (strcmp(f->key, "latent") == 0 && !json_member(o.root, f->key))
            c->latent = 0;
        else
            s = take_field(o.root, f, c, e);
        if (s != STATUS_OK)
            err_prefix(e, path);
    }
    close_object(&o);
    return s;
}

enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e)
{
    const struct study_path path = study_path(dir, cell->name, RECORD);
    struct study_cell found = *cell;
    TRY(read_record(path.text, &found, e));
    if (study_order(cell, &found) != 0 || cell->steps != found.steps)
        return err_set(e, STATUS_BAD_FILE,
                       "%.300s: expected the figures of %d steps and of the cell it is named "
                       "after, found those of %d steps; without the file the cell is made again",
                       path.text, cell->steps, found.steps);
    *cell = found;
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

/* Replaces the file by a line for each cell: its first n_fields figures. */
static enum status write_records(struct study_path path, const struct study_cell *cells, size_t n,
                                 int n_fields, struct err *e)
{
    struct file_output f;
    struct json j;
    file_output_init(&f);
    TRY(file_output_open(&f, path.text, e));
    for (size_t i = 0; i < n; i++) {
        json_init(&j, &f.out, 0);
        report_object(&j, NULL, study_fields, n_fields, &cells[i]);
        output_puts(&f.out, "\n");
    }
    return file_output_commit(&f, e);
}

enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e)
{
    return write_records(study_path(dir, cell->name, RECORD), cell, 1, STUDY_N_FIELDS, e);
}

/* All records of the folder; *cells [*n] is malloc'd, and the caller's also on failure. */
static enum status read_all(const char *dir, struct study_cell **cells, size_t *n, struct err *e)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    enum status s = STATUS_OK;
    if (!d)
        return err_set(e, STATUS_FAILED, "%.300s: cannot be listed: %s", dir, strerror(errno));
    *n = 0;
    while (s == STATUS_OK && (entry = readdir(d))) {
        struct study_cell cell = {.latent = 0}, *more;
        const struct text file = text_of(entry->d_name);
        const size_t len = file.len - strlen(RECORD); /* of "s", a digit and so on */
        if (!text_ends_with(file, RECORD) || len < 3 || len >= sizeof cell.name ||
            file.data[0] != 's' || file.data[1] < '0' || file.data[1] > '9')
            continue;
        memcpy(cell.name, file.data, len);
        s = read_record(study_path(dir, cell.name, RECORD).text, &cell, e);
        if (s != STATUS_OK || !cell.done)
            continue;
        more = realloc(*cells, (*n + 1) * sizeof cell);
        if (more) {
            *cells = more;
            more[(*n)++] = cell;
        } else {
            s = err_no_memory(e, "the study's records", (*n + 1) * sizeof cell);
        }
    }
    closedir(d);
    if (*n > 0)
        qsort(*cells, *n, sizeof **cells, study_order);
    return s;
}

/* A record that came after the list was made has a writer of its own to come, unless that one has
 * just been overtaken: so it is looked for once more. */
enum status study_results_write(const char *dir, struct err *e)
{
    struct study_cell *cells = NULL;
    size_t n;
    enum status s = read_all(dir, &cells, &n, e);
    for (size_t before = SIZE_MAX; s == STATUS_OK && n != before;) {
        before = n;
        s = write_records(study_path(dir, "results", ".jsonl"), cells, n,
                          STUDY_N_FIELDS - STUDY_N_TIMES, e);
        if (s == STATUS_OK)
            s = read_all(dir, &cells, &n, e);
    }
    free(cells);
    return s;
}

/* --- settings -------------------------------------------------------------------------------- */

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
    const struct study_path path = study_path(dir, SETTINGS, RECORD);
    const struct json_node *node;
    struct object o;
    enum status s = open_object(path.text, &o, e);
    if (s == STATUS_OK && !o.root) {
        s = write_settings(path.text, settings, e);
    } else if (s == STATUS_OK) {
        s = json_require(o.root, "settings", JSON_STRING, &node, e);
        if (s != STATUS_OK)
            err_prefix(e, path.text);
        else if (!text_equal(node->text, settings))
            s = err_set(e, STATUS_USAGE,
                        "%.200s: the cells there are of another study: expected '%.*s', found "
                        "'%.*s'; the same options go on with it, another -o begins anew",
                        path.text, text_width(settings), settings.data, text_width(node->text),
                        node->text.data);
    }
    close_object(&o);
    return s;
}

/* --- locks ----------------------------------------------------------------------------------- */

enum status study_lock_open(const char *dir, int *fd, struct err *e)
{
    const struct study_path path = study_path(dir, SETTINGS, ".lock");
    *fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd >= 0)
        return STATUS_OK;
    return err_set(e, STATUS_FAILED, "%.300s: cannot be opened: %s", path.text, strerror(errno));
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
