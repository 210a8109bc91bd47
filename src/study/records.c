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

/* Reads the file, one JSON object, by `take`, which gets its root; *found is false, and nothing is
 * taken, if there is no such file. What fails names the path. */
static enum status read_object(const char *path, bool *found,
                               enum status (*take)(const struct json_node *root, void *arg,
                                                   struct err *e),
                               void *arg, struct err *e)
{
    static const struct json_limits limits = {.bytes = RECORD_MAX, .values = 64, .depth = 1};
    struct file_map file;
    struct json_reader reader = {0};
    const struct json_node *root;
    *found = access(path, F_OK) == 0;
    if (!*found)
        return STATUS_OK;
    TRY(file_map_open(&file, path, e));
    const struct text source = {(const char *)file.data, file.len};
    enum status s = json_read(&reader, source, &limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    if (s == STATUS_OK)
        s = take(root, arg, e);
    if (s != STATUS_OK)
        err_prefix(e, path);
    json_reader_free(&reader);
    file_map_close(&file);
    return s;
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

/* A record into the cell, whose name says which. Those made before there were latent caches say
 * nothing of them. */
static enum status take_record(const struct json_node *root, void *cell, struct err *e)
{
    for (const struct report_field *f = study_fields; f < study_fields + STUDY_N_FIELDS; f++)
        if (strcmp(f->key, "latent") == 0 && !json_member(root, f->key))
            ((struct study_cell *)cell)->latent = 0;
        else
            TRY(take_field(root, f, cell, e));
    return STATUS_OK;
}

enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e)
{
    const struct study_path path = study_path(dir, cell->name, RECORD);
    struct study_cell found = *cell;
    TRY(read_object(path.text, &found.done, take_record, &found, e));
    if (study_order(cell, &found) != 0 || cell->steps != found.steps)
        return err_set(e, STATUS_BAD_FILE,
                       "%.300s: expected the figures of %d steps and of the cell it is named "
                       "after, found those of %d steps; without the file the cell is made again",
                       path.text, cell->steps, found.steps);
    *cell = found;
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

/* A line of JSON for each of the rows: the members that the fields say. */
struct lines {
    const struct report_field *fields;
    int n_fields;
    const void *rows;
    size_t n, row_bytes;
};

/* Replaces the file by these lines. */
static enum status write_lines(struct study_path path, struct lines lines, struct err *e)
{
    struct file_output f;
    struct json j;
    file_output_init(&f);
    TRY(file_output_open(&f, path.text, e));
    for (size_t i = 0; i < lines.n; i++) {
        json_init(&j, &f.out, 0);
        report_object(&j, NULL, lines.fields, lines.n_fields,
                      (const char *)lines.rows + i * lines.row_bytes);
        output_puts(&f.out, "\n");
    }
    return file_output_commit(&f, e);
}

enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e)
{
    return write_lines(study_path(dir, cell->name, RECORD),
                       (struct lines){study_fields, STUDY_N_FIELDS, cell, 1, sizeof *cell}, e);
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
        s = read_object(study_path(dir, cell.name, RECORD).text, &cell.done, take_record, &cell, e);
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
        s = write_lines(
            study_path(dir, "results", ".jsonl"),
            (struct lines){study_fields, STUDY_N_FIELDS - STUDY_N_TIMES, cells, n, sizeof *cells},
            e);
        if (s == STATUS_OK)
            s = read_all(dir, &cells, &n, e);
    }
    free(cells);
    return s;
}

/* --- settings -------------------------------------------------------------------------------- */

/* The first word of the rest, which is cut off with the space behind it. */
static struct text next_word(struct text *rest)
{
    const char *space = rest->len > 0 ? memchr(rest->data, ' ', rest->len) : NULL;
    const struct text word = text_cut(rest, space ? (size_t)(space - rest->data) : rest->len);
    text_cut(rest, space ? 1 : 0);
    return word;
}

/* Whether it is a number of fewer than 64 bytes. */
static bool read_number(struct text word, double *x)
{
    char number[64], *end;
    snprintf(number, sizeof number, "%.*s", text_width(word), word.data);
    *x = strtod(number, &end);
    return word.len > 0 && word.len < sizeof number && *end == 0;
}

/* Whether the words are the same, numbers as numbers: an older program wrote 10 as 1e+01. */
static bool same_settings(struct text a, struct text b)
{
    while (a.len > 0 && b.len > 0) {
        const struct text x = next_word(&a), y = next_word(&b);
        double m, n;
        if (!text_equal(x, y) && !(read_number(x, &m) && read_number(y, &n) && m == n))
            return false;
    }
    return a.len == b.len;
}

static enum status compare_settings(const struct json_node *root, void *arg, struct err *e)
{
    const struct text *settings = arg;
    const struct json_node *node;
    TRY(json_require(root, "settings", JSON_STRING, &node, e));
    if (same_settings(node->text, *settings))
        return STATUS_OK;
    return err_set(e, STATUS_USAGE,
                   "the cells there are of another study: expected '%.*s', found '%.*s'; the same "
                   "options go on with it, another -o begins anew",
                   text_width(*settings), settings->data, text_width(node->text), node->text.data);
}

enum status study_settings_keep(const char *dir, struct text settings, struct err *e)
{
    static const struct report_field field = {"settings", NULL, .type = REPORT_TEXT};
    const struct study_path path = study_path(dir, SETTINGS, RECORD);
    bool found;
    TRY(read_object(path.text, &found, compare_settings, &settings, e));
    if (found)
        return STATUS_OK;
    return write_lines(path, (struct lines){&field, 1, &settings, 1, sizeof settings}, e);
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
