/*
 * replay - runs a fuzz target over every file of the folders and files named, for compilers
 * without libFuzzer: replay PATH...
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return -1;
    }
    fseek(f, 0, SEEK_END);
    const size_t size = (size_t)ftell(f);
    rewind(f);
    /* Exactly as long as the input, so that a read past its end is caught. */
    uint8_t *data = malloc(size ? size : 1);
    const size_t got = data ? fread(data, 1, size, f) : 0;
    fclose(f);
    if (!data || got != size) {
        fprintf(stderr, "%s: could not be read\n", path);
        free(data);
        return -1;
    }
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

static int replay_folder(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) {
        perror(path);
        return -1;
    }
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (replay_file(file) < 0) {
            closedir(dir);
            return -1;
        }
        n++;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0) {
            perror(argv[i]);
            return 1;
        }
        const int n = S_ISDIR(st.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i]);
        if (n <= 0) {
            fprintf(stderr, "%s: nothing replayed\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs replayed\n", argv[i], n);
    }
    return 0;
}
