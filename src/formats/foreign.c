#include "formats/foreign.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

/* Longer names of folders are not looked into. */
#define FOLDER_MAX 300

/* Whether it is one of Hugging Face's. */
static bool has_config(const char *folder)
{
    char path[FOLDER_MAX + sizeof "/config.json"];
    chars_printf(path, "%s/config.json", folder);
    return access(path, F_OK) == 0;
}

enum status foreign_refuse(const char *path, struct err *e)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth"};
    const char *what = NULL, *from = path;
    char folder[FOLDER_MAX];
    struct stat st;
    if (stat(path, &st) != 0)
        return STATUS_OK;
    if (S_ISDIR(st.st_mode)) {
        what = has_config(path) ? "a Hugging Face folder" : NULL;
    } else {
        const int len = path_name(path) - path; /* of its folder, with the slash */
        chars_printf(folder, "%.*s", len > 0 ? len : 1, len > 0 ? path : ".");
        for (int i = 0; i < LENGTH(ends); i++)
            if (text_ends_with(text_of(path), ends[i]))
                what = "by its name a checkpoint of another program";
        if (what && has_config(folder)) {
            what = "a file of a Hugging Face folder";
            from = folder;
        }
    }
    if (!what)
        return STATUS_OK;
    return err_bad_file(e,
                        "%.100s: %s, and decode reads GGUF; make one with: scripts/import.py "
                        "'%s' OUT.gguf",
                        path, what, from);
}
