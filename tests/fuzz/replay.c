/*
 * replay - runs a fuzz target over every file of the folders and files named, for compilers
 * without libFuzzer: replay PATH...
 */
#include <ftw.h>
#include <stdio.h>

#include "target.h"

static int n_replayed;

static int replay(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_D)
        return 0;
    const size_t size = (size_t)st->st_size;
    FILE *f = fopen(path, "rb");
    /* Exactly as long as the input, so that a read past its end is caught. */
    uint8_t *data = malloc(size ? size : 1);
    const bool good = f && data && fread(data, 1, size, f) == size;
    if (good)
        n_replayed += LLVMFuzzerTestOneInput(data, size) == 0;
    else
        perror(path);
    if (f)
        fclose(f);
    free(data);
    return !good;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        n_replayed = 0;
        if (nftw(argv[i], replay, 16, FTW_PHYS) != 0 || n_replayed == 0) {
            fprintf(stderr, "%s: not replayed\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs replayed\n", argv[i], n_replayed);
    }
    return 0;
}
