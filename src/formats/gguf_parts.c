#include "formats/gguf_parts.h"
#include "formats/gguf_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

#define NO_KEY      "split.no"
#define COUNT_KEY   "split.count"
#define TENSORS_KEY "split.tensors.count"

/* llama.cpp keeps both numbers in 16 bits. */
#define MOST_PARTS 65535

/* How all names end, "-00001-of-00002.gguf": parts are counted from 1 there. */
struct ending {
    char text[48];
};

static struct ending ending_of(uint64_t no, uint64_t count)
{
    struct ending ending;
    chars_printf(ending.text, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", no + 1, count);
    return ending;
}

bool gguf_part_name(const char *path, int no, char *out, size_t size)
{
    const size_t len = strlen(path), ending_len = strlen(ending_of(0, 1).text);
    unsigned own, count;
    int end = 0;
    if (len < ending_len ||
        sscanf(path + len - ending_len, "-%5u-of-%5u.gguf%n", &own, &count, &end) != 2 ||
        (size_t)end != ending_len || (unsigned)no >= count)
        return false;
    const int written =
        snprintf(out, size, "%.*s%s", (int)(len - ending_len), path, ending_of(no, count).text);
    return written > 0 && (size_t)written < size;
}

/* What a part says of itself. */
struct split {
    uint64_t no, count; /* no is less; of a file that is whole 0 and 1 */
    uint64_t n_tensors; /* of all parts */
};

static enum status read_split(const struct gguf *g, struct split *out, struct err *e)
{
    struct split s = {.count = 1};
    bool found;
    TRY(gguf_get_u64(g, COUNT_KEY, 0, MOST_PARTS, &s.count, &found, e));
    if (s.count > 1) {
        TRY(gguf_get_u64(g, NO_KEY, 0, s.count - 1, &s.no, NULL, e));
        TRY(gguf_get_u64(g, TENSORS_KEY, 0, INT32_MAX, &s.n_tensors, NULL, e));
    }
    *out = s;
    return STATUS_OK;
}

/* --- the other parts ------------------------------------------------------------------------- */

/* The paths of the parts, and what they became. */
struct parts {
    struct split first;     /* what part 1 says */
    char *path;             /* malloc'd: of the part that is looked at */
    char *name;             /* in it, behind the last slash */
    char *ending;           /* in it */
    struct file_map *files; /* [n] of the parts 2, 3, ..., and what is in them */
    struct gguf **ggufs;    /* [n] */
    size_t n;
    struct gguf_tensor *tensors; /* [n_tensors] of all parts */
    struct name_index by_name;
};

/* From the path of a part that says this of itself. */
static enum status name_parts(struct parts *p, const char *path, const struct split *own,
                              struct err *e)
{
    const struct ending ending = ending_of(own->no, own->count);
    if (!text_ends_with(text_of(path), ending.text))
        return err_bad_file(e,
                            "it is part %" PRIu64 " of %" PRIu64 ": expected a name that ends in "
                            "\"%s\", by which the others are found beside it",
                            own->no + 1, own->count, ending.text);
    const size_t size = strlen(path) + sizeof ending.text;
    TRY_ZEROED(p->path, size, "a path", e);
    memcpy(p->path, path, strlen(path));
    char *slash = strrchr(p->path, '/');
    p->name = slash ? slash + 1 : p->path;
    p->ending = p->path + strlen(path) - strlen(ending.text);
    return STATUS_OK;
}

/* The part's path becomes that of part `no`. */
static void turn_to(struct parts *p, uint64_t no)
{
    const struct ending ending = ending_of(no, p->first.count);
    memcpy(p->ending, ending.text, strlen(ending.text) + 1);
}

/* Opens the part whose path it is, and makes sure that it is part `no`. */
static enum status open_part(struct parts *p, uint64_t no, struct err *e)
{
    const struct split *first = &p->first;
    struct file_map *file = &p->files[p->n];
    struct gguf **g = &p->ggufs[p->n];
    struct split own;
    if (access(p->path, F_OK) != 0 && errno == ENOENT)
        return err_bad_file(e,
                            "part 1 of %" PRIu64 "; %s is missing: expected all parts beside each "
                            "other",
                            first->count, p->name);
    TRY(file_map_open(file, p->path, e));
    p->n++;
    TRY(err_in(e, gguf_parse_file(file, g, e), "%s", p->name));
    TRY(err_in(e, read_split(*g, &own, e), "%s", p->name));
    if (own.no != no || own.count != first->count || own.n_tensors != first->n_tensors)
        return err_bad_file(e,
                            "%s: expected part %" PRIu64 " of %" PRIu64 ", of %" PRIu64
                            " tensors in all, found part %" PRIu64 " of %" PRIu64 ", of %" PRIu64
                            ": download all parts of one model again",
                            p->name, no + 1, first->count, first->n_tensors, own.no + 1, own.count,
                            own.n_tensors);
    return STATUS_OK;
}

/* Puts the tensors of all parts into one array, which has just the room that part 1 asks for. */
static enum status join_tensors(struct parts *p, const struct gguf *g, struct err *e)
{
    size_t n = g->n_tensors;
    for (size_t i = 0; i < p->n; i++)
        n += p->ggufs[i]->n_tensors;
    if (n != p->first.n_tensors)
        return err_bad_file(e,
                            "the %" PRIu64 " parts have %zu tensors together, expected %" PRIu64
                            " (" TENSORS_KEY "): download all parts of one model again",
                            p->first.count, n, p->first.n_tensors);
    TRY_ZEROED(p->tensors, n + 1, "the table of tensors", e);
    struct gguf_tensor *to = p->tensors;
    for (size_t i = 0; i < g->n_tensors; i++)
        *to++ = g->tensors[i];
    for (size_t part = 0; part < p->n; part++) {
        for (size_t i = 0; i < p->ggufs[part]->n_tensors; i++) {
            *to = p->ggufs[part]->tensors[i];
            to->part = (int)part + 1;
            to++;
        }
    }
    TRY(name_index_records(&p->by_name, p->tensors, sizeof *p->tensors, n, e));
    const struct indexed *twin = name_index_twins(&p->by_name);
    if (twin)
        return err_bad_file(e,
                            "tensor \"%.*s\" is in part %d and in part %d, expected it in one: "
                            "download all parts of one model again",
                            text_width(twin[0].text), twin[0].text.data,
                            p->tensors[twin[0].id].part + 1, p->tensors[twin[1].id].part + 1);
    return STATUS_OK;
}

static enum status open_parts(struct parts *p, const struct gguf *g, const char *path,
                              struct err *e)
{
    const uint64_t count = p->first.count;
    TRY(name_parts(p, path, &p->first, e));
    if (p->first.no > 0) {
        const uint64_t own = p->first.no + 1;
        turn_to(p, 0);
        return err_bad_file(e, "it is part %" PRIu64 " of %" PRIu64 ": give part 1, %s", own, count,
                            p->name);
    }
    TRY_ZEROED(p->files, count - 1, "the parts of the file", e);
    TRY_ZEROED(p->ggufs, count - 1, "the parts of the file", e);
    for (uint64_t no = 1; no < count; no++) {
        turn_to(p, no);
        TRY(open_part(p, no, e));
    }
    return join_tensors(p, g, e);
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Makes the index of keys anew, without those of splitting, then takes these out. */
static enum status drop_split_keys(struct gguf *g, struct err *e)
{
    struct name_index by_key = {0};
    size_t n = 0;
    for (size_t i = 0; i < g->n_pairs; i++) {
        if (text_starts_with(g->pairs[i].key, "split."))
            continue;
        const enum status s = name_index_add(&by_key, g->pairs[i].key, (int32_t)n++, 0, e);
        if (s != STATUS_OK) {
            name_index_free(&by_key);
            return s;
        }
    }
    name_index_sort(&by_key);
    n = 0;
    for (size_t i = 0; i < g->n_pairs; i++)
        if (!text_starts_with(g->pairs[i].key, "split."))
            g->pairs[n++] = g->pairs[i];
    g->n_pairs = n;
    name_index_free(&g->by_key);
    g->by_key = by_key;
    return STATUS_OK;
}

enum status gguf_join_parts(struct gguf *g, const char *path, struct err *e)
{
    struct parts p = {.n = 0};
    TRY(read_split(g, &p.first, e));
    enum status s = STATUS_OK;
    if (p.first.count > 1)
        s = open_parts(&p, g, path, e);
    if (s == STATUS_OK && gguf_find(g, COUNT_KEY))
        s = drop_split_keys(g, e);
    for (size_t i = 0; i < p.n; i++)
        gguf_free(p.ggufs[i]);
    if (s == STATUS_OK && p.n > 0) {
        free(g->tensors);
        name_index_free(&g->by_name);
        g->tensors = p.tensors;
        g->by_name = p.by_name;
        g->n_tensors = p.first.n_tensors;
        g->others = p.files;
        g->n_others = p.n;
    } else {
        for (size_t i = 0; i < p.n; i++)
            file_map_close(&p.files[i]);
        free(p.files);
        free(p.tensors);
        name_index_free(&p.by_name);
    }
    free(p.ggufs);
    free(p.path);
    return s;
}
