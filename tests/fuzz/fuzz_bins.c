/*
 * fuzz_bins - the checkpoints of llama2.c and llm.c. What is taken must have the tensors that its
 * config needs, each readable to its end, together as many bytes as the file has; what is refused
 * only for its size is taken with the size that the message asks for.
 */
#include <stdio.h>

#include "exchange/private.h"
#include "target.h"

/* Of a file that is made as long as its header says. */
#define MOST_BYTES (1 << 16)

/* To its end, without a gap. */
static void read_view(struct view *v, uint64_t bytes)
{
    struct view_maker maker = {0};
    size_t len;
    v->maker = &maker;
    for (uint64_t at = 0; at < bytes; at += len) {
        const void *data;
        unsigned sum = 0;
        require(view_piece(v, at, &data, &len, NULL) == STATUS_OK);
        require(len > 0 && len <= bytes - at);
        for (size_t i = 0; i < len; i++)
            sum += ((const unsigned char *)data)[i];
        require(sum <= 255 * len);
    }
    view_maker_free(&maker);
}

/* Of a tensor in the file. */
static uint64_t stored_bytes(const struct view_part *p, int cols)
{
    const uint64_t elements = (uint64_t)p->source_rows * (uint64_t)cols;
    if (p->type != VIEW_INT8)
        return elements * tensor_type_find(p->type)->block_bytes;
    require(p->factors == p->data + elements && elements % (uint64_t)p->group == 0);
    return elements + elements / (uint64_t)p->group * sizeof(float);
}

static void check_tensors(const struct bin_file *b)
{
    const struct config *c = &b->config;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        struct view v;
        if (!bin_tensor(b, &spec, &v)) {
            require(!(spec.flags & SPEC_REQUIRED));
            continue;
        }
        require(v.n_parts == 1 && view_rows(&v) == spec.rows && v.cols == spec.cols);
        read_view(&v, spec_elements(&spec) * tensor_type_find(v.type)->block_bytes);
        bytes += stored_bytes(&v.parts[0], v.cols);
    }
    /* Headers, and the tables that nobody reads. */
    require(bytes < b->file.len);
    require(b->file.len - bytes <= 1024 + (uint64_t)c->n_ctx * (uint64_t)c->head_dim * 4);
}

/* Opens a copy of `len` bytes, zeros behind the input's, at an odd address. Returns the size that
 * the header asks for if it is another, else 0. */
static unsigned long long check_file(const struct bin_format *f, const uint8_t *data, size_t size,
                                     size_t len)
{
    char *copy = calloc(1, len + 1);
    require(copy != NULL);
    if (size)
        memcpy(copy + 1, data, size < len ? size : len);
    const struct text file = {copy + 1, len};
    struct bin_file b;
    struct err e = {""};
    unsigned long long expected = 0;
    const enum status s = bin_open(f, file, &b, &e);
    if (s == STATUS_OK) {
        require(bin_format_of(file) != NULL);
        check_tensors(&b);
    } else {
        require_refused(s, STATUS_BAD_FILE, &e);
        if (strstr(e.text, "as the header of"))
            require(sscanf(e.text, "expected %llu bytes", &expected) == 1 && expected != len);
    }
    free(copy);
    return expected;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < BIN_FORMATS; i++) {
        const unsigned long long expected = check_file(&bin_formats[i], data, size, size);
        if (expected > 0 && expected <= MOST_BYTES)
            require(check_file(&bin_formats[i], data, size, (size_t)expected) == 0);
    }
    return 0;
}
