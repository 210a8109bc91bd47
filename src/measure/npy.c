#include "measure/npy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/file.h"

struct npy_writer {
    struct file_writer *file;
    uint64_t expected, put; /* values */
};

static void put_header(struct file_writer *f, const uint64_t *shape, int n_dims)
{
    char header[192];
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    size_t used = 10;
    used += (size_t)snprintf(header + used, sizeof header - used,
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < n_dims; i++)
        used += (size_t)snprintf(header + used, sizeof header - used, "%s%" PRIu64, i ? ", " : "",
                                 shape[i]);
    used += (size_t)snprintf(header + used, sizeof header - used, "), }");
    /* Magic, version, length and text with its newline together end at a multiple of 64. */
    const size_t total = (used + 1 + 63) / 64 * 64;
    memset(header + used, ' ', total - used - 1);
    header[total - 1] = '\n';
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    file_writer_put(f, header, total);
}

enum status npy_open(struct npy_writer **out, const char *path, const uint64_t *shape, int n_dims,
                     struct err *e)
{
    *out = NULL;
    uint64_t expected = 1;
    assert(n_dims >= 2 && n_dims <= NPY_MAX_DIMS);
    for (int i = 0; i < n_dims; i++)
        if (!u64_mul(expected, shape[i], &expected))
            return err_set(e, STATUS_NO_MEMORY, "%s: the array is too large", path);
    struct npy_writer *w = malloc(sizeof *w);
    if (!w)
        return err_no_memory(e, "the .npy writer", sizeof *w);
    *w = (struct npy_writer){.expected = expected};
    const enum status s = file_writer_open(&w->file, path, e);
    if (s != STATUS_OK) {
        free(w);
        return s;
    }
    put_header(w->file, shape, n_dims);
    *out = w;
    return STATUS_OK;
}

void npy_put(struct npy_writer *w, const float *values, size_t n)
{
    unsigned char bytes[1024];
    const size_t most = sizeof bytes / 4;
    w->put += n;
    while (n > 0) {
        const size_t now = n < most ? n : most;
        for (size_t i = 0; i < now; i++) {
            uint32_t bits;
            memcpy(&bits, values + i, sizeof bits);
            for (size_t b = 0; b < 4; b++)
                bytes[4 * i + b] = (unsigned char)(bits >> (8 * b));
        }
        file_writer_put(w->file, bytes, 4 * now);
        values += now;
        n -= now;
    }
}

enum status npy_commit(struct npy_writer *w, struct err *e)
{
    enum status s;
    if (w->put == w->expected) {
        s = file_writer_commit(w->file, e);
    } else {
        s = err_set(e, STATUS_FAILED, "the .npy file wants %" PRIu64 " values, found %" PRIu64,
                    w->expected, w->put);
        file_writer_abandon(w->file);
    }
    free(w);
    return s;
}

void npy_abandon(struct npy_writer *w)
{
    if (!w)
        return;
    file_writer_abandon(w->file);
    free(w);
}
