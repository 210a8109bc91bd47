#include "cli/train_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/runtime.h"

static enum status check_output(const struct train_paths *p, const char *option, const char *path,
                                struct err *e)
{
    enum status s = STATUS_OK;
    if (p->from)
        s = output_path_check(option, path, p->from, e);
    if (s == STATUS_OK && p->teacher)
        s = output_path_check(option, path, p->teacher, e);
    for (int i = 0; i < p->texts->n && s == STATUS_OK; i++)
        if (output_path_same(path, p->texts->items[i]))
            s = err_set(e, STATUS_USAGE,
                        "%s: '%.200s' is the text itself, which would be overwritten", option,
                        path);
    return s;
}

static enum status check_all(const struct train_paths *p, const char *state, struct err *e)
{
    enum status s = check_output(p, "--output", p->out, e);
    if (s == STATUS_OK)
        s = check_output(p, "--output", state, e);
    if (s != STATUS_OK || !p->log)
        return s;
    if (output_path_same(p->log, p->out) || output_path_same(p->log, state))
        return err_set(e, STATUS_USAGE,
                       "--log: '%.200s' is OUT or OUT.state; expected a file of its own", p->log);
    return check_output(p, "--log", p->log, e);
}

static enum status check_writable(const char *path, struct err *e)
{
    struct file_writer *probe;
    const enum status s = file_writer_open(&probe, path, e);
    if (s == STATUS_OK)
        file_writer_abandon(probe);
    return s;
}

enum status train_paths_check(const struct train_paths *p, struct err *e)
{
    const size_t size = strlen(p->out) + sizeof ".state";
    char *state = malloc(size);
    if (!state)
        return err_no_memory(e, "a path", size);
    snprintf(state, size, "%s.state", p->out);
    enum status s = check_all(p, state, e);
    if (s == STATUS_OK)
        s = check_writable(p->out, e);
    if (s == STATUS_OK)
        s = check_writable(state, e);
    free(state);
    return s;
}
