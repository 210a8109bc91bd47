/*
 * What a study's folder has beside checkpoints: records, the list of them, settings and locks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "study/study.h"

#define RECORD ".json"

const struct report_field study_fields[STUDY_N_FIELDS] = {
    {"cell", "cell", MEMBER(study_cell, name)},
    {COLUMN(study_cell, seed), .rank = 6},
    {COLUMN(study_cell, heads), .rank = 5},
    {COLUMN(study_cell, d_ff), .rank = 8},
    {"kv_heads", "K/V heads", MEMBER(study_cell, kv_heads), .rank = 5},
    {"method", "method", MEMBER(study_cell, method_name), .rank = 4},
    {KEY(study_cell, taught)},
    {"alpha", "% of steps", MEMBER(study_cell, alpha), "%g", .rank = 4},
    {COLUMN(study_cell, steps), .rank = 7},
    {"bits_per_byte", "bits/byte", MEMBER(study_cell, bits_per_byte), "%.4f"},
    {"cache_bytes_per_token", "cache bytes/token", MEMBER(study_cell, cache_bytes_per_token),
     .grouped = true, .rank = 3},
    {COLUMN(study_cell, seconds), "%.1f", .rank = 8},
};

struct study_path study_path(const char *dir, const char *name, const char *suffix)
{
    struct study_path path;
    chars_printf(path.text, "%s/%s%s", dir, name, suffix);
    return path;
}

/* --- records --------------------------------------------------------------------------------- */

/* A cell's line: its record, or, without the time, what the list of all has. */
struct record {
    char text[640];
};
static struct record record_of(const struct study_cell *c, bool timed)
{
    struct record r;
    chars_printf(r.text,
                 "{\"cell\": \"%s\", \"seed\": %" PRIu64
                 ", \"heads\": %d, \"d_ff\": %d, \"kv_heads\": %d, \"method\": "
                 "\"%s\", \"taught\": %s, \"alpha\": %s, \"steps\": %d, \"bits_per_byte\": %s, "
                 "\"cache_bytes_per_token\": %" PRIu64 "%s%s}\n",
                 c->name, c->seed, c->heads, c->d_ff, c->kv_heads, c->method_name,
                 c->taught ? "true" : "false", figure_exact(c->alpha).text, c->steps,
                 figure_exact(c->bits_per_byte).text, c->cache_bytes_per_token,
                 timed ? ", \"seconds\": " : "", timed ? figure_exact(c->seconds).text : "");
    return r;
}

/* What is read is what would be written again, to the byte; a cell of a name alone takes all. */
enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e)
{
    const struct study_path path = study_path(dir, cell->name, RECORD);
    const bool planned = cell->kv_heads > 0;
    struct study_cell found = *cell;
    char *text = NULL, method[16], taught[8];
    size_t len;
    int m = 0;
    cell->done = access(path.text, F_OK) == 0;
    if (!cell->done)
        return STATUS_OK;
    TRY(file_read_all(path.text, 65536, &text, &len, e));
    const int n = sscanf(
        text,
        "{\"cell\": \"%*[^\"]\", \"seed\": %" SCNu64
        ", \"heads\": %d, \"d_ff\": %d, \"kv_heads\": %d, \"method\": "
        "\"%15[^\"]\", \"taught\": %7[a-z], \"alpha\": %lf, \"steps\": %d, "
        "\"bits_per_byte\": %lf, \"cache_bytes_per_token\": %" SCNu64 ", \"seconds\": %lf}",
        &found.seed, &found.heads, &found.d_ff, &found.kv_heads, method, taught, &found.alpha,
        &found.steps, &found.bits_per_byte, &found.cache_bytes_per_token, &found.seconds);
    while (n == 11 && m < STUDY_N_METHODS && !str_is(method, study_methods[m]))
        m++;
    found.done = n == 11 && m < STUDY_N_METHODS;
    if (found.done) {
        found.method = m;
        found.method_name = study_methods[m];
        found.taught = str_is(taught, "true");
        found.done = text_is(text_span(text, len), record_of(&found, true).text);
    }
    free(text);
    if (!found.done || (planned && (study_order(cell, &found) || cell->steps != found.steps ||
                                    cell->d_ff != found.d_ff)))
        return err_bad_file(e,
                            "%.300s: expected the record of the cell it is named after, with its "
                            "steps, as it is written; without the file the cell is made again",
                            path.text);
    *cell = found;
    return STATUS_OK;
}

enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e)
{
    const struct record r = record_of(cell, true);
    return file_replace(study_path(dir, cell->name, RECORD).text, r.text, strlen(r.text), e);
}

/* All records of the folder; *cells [*n] is malloc'd, and the caller's also on failure. */
static enum status read_records(const char *dir, struct study_cell **cells, size_t *n,
                                struct err *e)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    enum status s = STATUS_OK;
    *n = 0;
    if (!d)
        return file_failure(e, STATUS_FAILED, dir, "list", errno);
    while (s == STATUS_OK && (entry = readdir(d))) {
        struct study_cell cell = {.kv_heads = 0}, *more;
        const struct text file = text_of(entry->d_name);
        const size_t len = file.len - strlen(RECORD); /* of "s", a digit and so on */
        if (!text_ends_with(file, RECORD) || len < 3 || len >= sizeof cell.name ||
            file.data[0] != 's' || file.data[1] < '0' || file.data[1] > '9')
            continue;
        memcpy(cell.name, file.data, len);
        s = study_record_read(dir, &cell, e);
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
    struct file_writer *w;
    size_t n;
    enum status s = read_records(dir, &cells, &n, e);
    for (size_t before = SIZE_MAX; s == STATUS_OK && n != before;) {
        before = n;
        s = file_writer_open(&w, study_path(dir, "results", ".jsonl").text, e);
        for (size_t i = 0; i < n && s == STATUS_OK; i++) {
            const struct record r = record_of(&cells[i], false);
            file_writer_put(w, r.text, strlen(r.text));
        }
        THEN(s, file_writer_commit(w, e));
        THEN(s, read_records(dir, &cells, &n, e));
    }
    free(cells);
    return s;
}

/* --- settings and locks ---------------------------------------------------------------------- */

enum status study_settings_keep(const char *dir, const char *settings, struct err *e)
{
    const struct study_path path = study_path(dir, "study", RECORD);
    char line[4200];
    struct file_map file;
    chars_printf(line, "{\"settings\": \"%s\"}\n", settings);
    if (access(path.text, F_OK) != 0)
        return file_replace(path.text, line, strlen(line), e);
    TRY(file_map_open(&file, path.text, e));
    const struct text found = {(const char *)file.data, file.len};
    const size_t around = strlen(line) - strlen(settings), before = around - strlen("\"}\n");
    const struct text said =
        found.len < around ? found : text_span(found.data + before, found.len - around);
    const enum status s =
        text_is(found, line)
            ? STATUS_OK
            : err_usage(e,
                        "the cells in %s are of another study: expected %.200s, found %.*s; the "
                        "same options go on with it, another -o begins anew",
                        dir, settings, SHOWN(said));
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
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = hash >> 34, .l_len = 1};
}

enum status study_lock_try(int fd, const char *name, bool *taken, struct err *e)
{
    struct flock lock = lock_of(name, F_WRLCK);
    *taken = fcntl(fd, F_SETLK, &lock) == 0;
    if (*taken || errno == EAGAIN || errno == EACCES || errno == EINTR)
        return STATUS_OK;
    return err_failed(e, "the study's folder cannot be locked: %s", strerror(errno));
}

void study_unlock(int fd, const char *name)
{
    struct flock lock = lock_of(name, F_UNLCK);
    fcntl(fd, F_SETLK, &lock);
}
