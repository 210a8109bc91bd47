#include "formats/foreign.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* STATUS_BAD_FILE, saying what stands at `path`, and the command line that makes a GGUF file of
 * `in`. */
static enum status name_import(const char *path, const char *what, const char *in, struct err *e)
{
    return err_bad_file(e,
                        "%.100s: %s, and decode reads GGUF; make one with: scripts/import.py "
                        "'%s' OUT.gguf",
                        path, what, in);
}

enum status foreign_refuse_folder(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && has_config(path))
        return name_import(path, "a Hugging Face folder", path, e);
    return STATUS_OK;
}

enum status foreign_refuse_file(const char *path, struct err *e)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth"};
    const char *slash = strrchr(path, '/');
    const size_t len = slash ? slash + 1 - path : 0; /* of its folder, with the slash */
    char folder[FOLDER_MAX];
    bool is_other = false;
    for (int i = 0; i < LENGTH(ends); i++)
        is_other |= text_ends_with(text_of(path), ends[i]);
    if (!is_other)
        return STATUS_OK;
    chars_printf(folder, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
    if (has_config(folder))
        return name_import(path, "a file of a Hugging Face folder", folder, e);
    return name_import(path, "by its name a checkpoint of another program", path, e);
}
