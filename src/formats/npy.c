#include "formats/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are put as they are");

enum status npy_open(struct file_writer **out, const char *path, const uint64_t *shape, int n_dims,
                     struct err *e)
{
    char header[192];
    assert(n_dims >= 2 && n_dims <= NPY_MAX_DIMS);
    TRY(file_writer_open(out, path, e));
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    size_t used = 10;
    used += snprintf(header + used, sizeof header - used,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < n_dims; i++)
        used +=
            snprintf(header + used, sizeof header - used, "%s%" PRIu64, i ? ", " : "", shape[i]);
    used += snprintf(header + used, sizeof header - used, "), }");
    /* Magic, version, length and text with its newline together end at a multiple of 64. */
    const size_t total = (used + 1 + 63) / 64 * 64;
    memset(header + used, ' ', total - used - 1);
    header[total - 1] = '\n';
    little_store(header + 8, total - 10, 2);
    file_writer_put(*out, header, total);
    return STATUS_OK;
}
