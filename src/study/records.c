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
#include "formats/json_read.h"
#include "formats/json_write.h"
#include "study/study.h"

#define RECORD ".json"

const struct report_field study_fields[STUDY_N_FIELDS] = {
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

struct study_path study_path(const char *dir, const char *name, const char *suffix)
{
    struct study_path path;
    snprintf(path.text, sizeof path.text, "%s/%s%s", dir, name, suffix);
    return path;
}

/* --- records --------------------------------------------------------------------------------- */

/* One member of a record into the cell, which has its name already. Records made before there were
 * latent caches say nothing of them. */
static enum status take_field(const struct json_node *root, const struct report_field *f,
                              struct study_cell *c, struct err *e)
{
    const enum json_kind kind = f->type == REPORT_BOOL                                ? JSON_BOOL
                                : f->type == REPORT_CHARS || f->type == REPORT_STRING ? JSON_STRING
                                                                                      : JSON_NUMBER;
    const struct json_node *node;
    void *at = (char *)c + f->offset;
    int64_t whole = 0;
    if (at == &c->latent && !json_member(root, f->key)) {
        c->latent = 0;
        return STATUS_OK;
    }
    TRY(json_require(root, f->key, kind, &node, e));
    switch (f->type) {
    case REPORT_BOOL:
        return json_node_bool(node, at, e);
    case REPORT_U64:
        return json_node_u64(node, at, e);
    case REPORT_INT:
        TRY(json_node_i64(node, 0, INT_MAX, &whole, e));
        *(int *)at = (int)whole;
        return STATUS_OK;
    case REPORT_DOUBLE:
        TRY(json_node_double(node, at, e));
        if (*(const double *)at >= 0)
            return STATUS_OK;
        break;
    case REPORT_CHARS: /* the name */
        if (text_is(node->text, at))
            return STATUS_OK;
        break;
    default: /* the method */
        for (int i = 0; i < STUDY_N_METHODS; i++)
            if (text_is(node->text, study_methods[i])) {
                c->method = (enum study_method)i;
                c->method_name = study_methods[i];
                return STATUS_OK;
            }
    }
    return err_bad_file(e, "%s: expected what a cell of this name can have, found '%.*s'", f->key,
                        text_width(node->text), node->text.data);
}

/* The record of the name that the cell has; cell->done is false, and nothing taken, without one. */
static enum status read_record(const char *dir, struct study_cell *cell, struct err *e)
{
    static const struct json_limits limits = {.bytes = 65536, .values = 64, .depth = 1};
    const struct study_path path = study_path(dir, cell->name, RECORD);
    struct file_map file;
    struct json_reader reader = {0};
    const struct json_node *root;
    cell->done = access(path.text, F_OK) == 0;
    if (!cell->done)
        return STATUS_OK;
    TRY(file_map_open(&file, path.text, e));
    const struct text source = {(const char *)file.data, file.len};
    enum status s = json_read(&reader, source, &limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    for (int i = 0; i < STUDY_N_FIELDS && s == STATUS_OK; i++)
        s = take_field(root, &study_fields[i], cell, e);
    json_reader_free(&reader);
    file_map_close(&file);
    return err_in(e, s, "%s", path.text);
}

enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e)
{
    struct study_cell found = *cell;
    TRY(read_record(dir, &found, e));
    if (study_order(cell, &found) != 0 || cell->steps != found.steps)
        return err_bad_file(e,
                            "%.300s/%s" RECORD ": expected the figures of %d steps and of the cell "
                            "it is named after, found those of %d steps; without the file the cell "
                            "is made again",
                            dir, cell->name, cell->steps, found.steps);
    *cell = found;
    return STATUS_OK;
}

/* Replaces the file by a line of the first fields of each cell. */
static enum status write_lines(struct study_path path, int n_fields, const struct study_cell *cells,
                               size_t n, struct err *e)
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
    return write_lines(study_path(dir, cell->name, RECORD), STUDY_N_FIELDS, cell, 1, e);
}

/* All records of the folder; *cells [*n] is malloc'd, and the caller's also on failure. */
static enum status read_all(const char *dir, struct study_cell **cells, size_t *n, struct err *e)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    enum status s = STATUS_OK;
    *n = 0;
    if (!d)
        return file_failure(e, STATUS_FAILED, dir, "list", errno);
    while (s == STATUS_OK && (entry = readdir(d))) {
        struct study_cell cell = {.latent = 0}, *more;
        const struct text file = text_of(entry->d_name);
        const size_t len = file.len - strlen(RECORD); /* of "s", a digit and so on */
        if (!text_ends_with(file, RECORD) || len < 3 || len >= sizeof cell.name ||
            file.data[0] != 's' || file.data[1] < '0' || file.data[1] > '9')
            continue;
        memcpy(cell.name, file.data, len);
        s = read_record(dir, &cell, e);
        if (s != STATUS_OK || !cell.done)
            continue;
        more = realloc(*cells, (*n + 1) * sizeof cell);
        if (more)
            (*cells = more)[(*n)++] = cell;
        else
            s = err_no_memory(e, "the study's records", (*n + 1) * sizeof cell);
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
        s = write_lines(study_path(dir, "results", ".jsonl"), STUDY_N_FIELDS - 1, cells, n, e);
        if (s == STATUS_OK)
            s = read_all(dir, &cells, &n, e);
    }
    free(cells);
    return s;
}

/* --- settings and locks ---------------------------------------------------------------------- */

enum status study_settings_keep(const char *dir, const char *settings, struct err *e)
{
    const struct study_path path = study_path(dir, "study", RECORD);
    char line[4200];
    const int len = snprintf(line, sizeof line, "{\"settings\": \"%s\"}\n", settings);
    struct file_writer *w;
    struct file_map file;
    if (access(path.text, F_OK) != 0) {
        TRY(file_writer_open(&w, path.text, e));
        file_writer_put(w, line, (size_t)len);
        return file_writer_commit(w, e);
    }
    TRY(file_map_open(&file, path.text, e));
    const struct text found = {(const char *)file.data, file.len};
    const enum status s =
        text_is(found, line)
            ? STATUS_OK
            : err_set(e, STATUS_USAGE,
                      "the cells there are of another study: expected '%.200s', found '%.*s'; the "
                      "same options go on with it, another -o begins anew",
                      line, text_width(found), found.data);
    file_map_close(&file);
    return s;
}

enum status study_lock_open(const char *dir, int *fd, struct err *e)
{
    const struct study_path path = study_path(dir, "study", ".lock");
    *fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *fd >= 0 ? STATUS_OK : file_failure(e, STATUS_FAILED, path.text, "open", errno);
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
