/*
 * gguf_parts - a split file: one model in several GGUF files that stand beside each other, as
 * llama.cpp's gguf-split writes them.
 *
 * Part 1 of N is named PREFIX-00001-of-0000N.gguf, and so on. Each part has the keys split.no (from
 * 0 on), split.count and split.tensors.count (of all parts together), and tensors of its own; all
 * other keys are those of part 1.
 */
#pragma once

#include "formats/gguf.h"

/*
 * Makes the first part of a split file the whole of it: g, which was parsed from the file at `path`
 * (gguf_parse_file), gets the tensors of all other parts in the order of the parts, and loses the
 * keys of splitting. It maps the other files, which are closed by gguf_free. A file that is not
 * split stays as it is, but for keys which say that it is split in one.
 *
 * STATUS_BAD_FILE for another part than the first, for a part that is missing or of another file,
 * for a tensor that two parts have, and for parts that have not all tensors together: the message
 * names the part and what to do; STATUS_NO_MEMORY and the failures of file_map_open. After a
 * failure g is as it was.
 */
enum status gguf_join_parts(struct gguf *g, const char *path, struct err *e);

/* Writes the name of part `no`, from 0 on, of the file that `path` names as one of its parts. False
 * where it names none, has no such part, or `size` bytes are too few. */
bool gguf_part_name(const char *path, int no, char *out, size_t size);

/* The file that a tensor's data are in: a part's, or `first`, which g was parsed from. */
static inline const struct file_map *gguf_file_of(const struct gguf *g, const struct gguf_tensor *t,
                                                  const struct file_map *first)
{
    return t->part > 0 ? &g->others[t->part - 1] : first;
}

/* Bytes of all files, which fit in memory's addresses. */
static inline uint64_t gguf_all_bytes(const struct gguf *g, const struct file_map *first)
{
    uint64_t sum = first->len;
    for (size_t i = 0; i < g->n_others; i++)
        sum += g->others[i].len;
    return sum;
}
