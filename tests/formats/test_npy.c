/* Tests of the .npy writer's longest header. (tests/cli/cli.sh compares a file with NumPy's own.)
 */
#include <string.h>

#include "base/file.h"
#include "formats/npy.h"
#include "support.h"

/* An array has as many dimensions as it can have; the longest numbers fit into the header. */
TEST(four_dimensions)
{
    static const uint64_t shape[] = {1, 2, 0, UINT64_MAX};
    static const char expected[] = "'shape': (1, 2, 0, 18446744073709551615), }";
    struct file_writer *w;
    const char *path = scratch_path("m.npy");
    expect_ok(npy_open(&w, path, shape, 4, &err));
    expect_ok(file_writer_commit(w, &err));
    size_t len;
    const char *file = file_text(path, &len);
    ck_assert(len == 128 && memmem(file, len, expected, sizeof expected - 1));
}
