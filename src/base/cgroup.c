#include "base/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool cgroup_file_start(const char *path, char *text, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    ssize_t n;
    while (len < cap - 1) {
        n = read(fd, text + len, cap - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    text[len] = 0;
    return len > 0;
}

bool cgroup_take_number(const char **at, uint64_t *out)
{
    const char *c = *at;
    while (isblank((unsigned char)*c))
        c++;
    if (!isdigit((unsigned char)*c))
        return false;
    uint64_t value = 0;
    for (; isdigit((unsigned char)*c); c++) {
        if (value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t)(*c - '0');
    }
    *at = c;
    *out = value;
    return true;
}

bool cgroup_read(const char *folder, const char *name, char *text, size_t cap)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           cgroup_file_start(path, text, cap);
}

bool cgroup_number(const char *folder, const char *name, uint64_t *out)
{
    char text[CGROUP_VALUE_CAP];
    const char *at = text;
    return cgroup_read(folder, name, text, sizeof text) && cgroup_take_number(&at, out);
}

bool cgroup_field(const char *text, const char *name, uint64_t *out)
{
    const size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + len;
        if (strncmp(line, name, len) == 0 && cgroup_take_number(&at, out))
            return true;
    }
    return false;
}

bool cgroup_self(char self_cgroup[CGROUP_SELF_CAP])
{
    return cgroup_file_start("/proc/self/cgroup", self_cgroup, CGROUP_SELF_CAP);
}

static bool climbs(struct text group)
{
    for (size_t i = 0; i + 3 <= group.len; i++)
        if (memcmp(group.data + i, "/..", 3) == 0 &&
            (i + 3 == group.len || group.data[i + 3] == '/'))
            return true;
    return false;
}

/*
 * The tightest limit from the group up to the mount itself, or what is `below` it. Inside a
 * container the group may not exist below the mount, because the mount is the group: the walk then
 * finds files only there.
 */
static uint64_t tightest(const char *mount, const char *below, struct text group,
                         cgroup_limit *limit_of)
{
    if (climbs(group)) /* it lies outside what this mount shows */
        group.len = 0;
    uint64_t limit = CGROUP_NO_LIMIT;
    for (;;) {
        char folder[PATH_MAX];
        const int n =
            snprintf(folder, sizeof folder, "%s%s%.*s", mount, below, (int)group.len, group.data);
        if (n < (int)sizeof folder)
            limit = lesser(limit, limit_of(folder));
        if (group.len == 0)
            return limit;
        while (group.len > 0 && group.data[--group.len] != '/')
            continue;
    }
}

static bool lists_controller(struct text controllers, const char *name)
{
    for (;;) {
        const char *comma = memchr(controllers.data, ',', controllers.len);
        const size_t len = comma ? (size_t)(comma - controllers.data) : controllers.len;
        if (text_is((struct text){controllers.data, len}, name))
            return true;
        if (!comma)
            return false;
        controllers = (struct text){comma + 1, controllers.len - len - 1};
    }
}

/* A line of /proc/self/cgroup is "ID:CONTROLLERS:GROUP"; version 2 names no controllers. */
static uint64_t line_limit(const struct cgroup_controller *c, const char *mount, struct text line)
{
    const char *end = line.data + line.len;
    const char *first = memchr(line.data, ':', line.len);
    if (!first)
        return CGROUP_NO_LIMIT;
    const char *controllers = first + 1;
    const char *second = memchr(controllers, ':', (size_t)(end - controllers));
    if (!second || second + 1 == end || second[1] != '/' || end - second > PATH_MAX)
        return CGROUP_NO_LIMIT;
    const struct text group = {second + 1, (size_t)(end - second - 1)};
    if (second == controllers)
        return tightest(mount, "", group, c->limit_v2);
    if (!lists_controller((struct text){controllers, (size_t)(second - controllers)}, c->name))
        return CGROUP_NO_LIMIT;

    uint64_t limit = CGROUP_NO_LIMIT;
    for (size_t i = 0; i < CGROUP_MOUNTS && c->mounts[i]; i++)
        limit = lesser(limit, tightest(mount, c->mounts[i], group, c->limit_v1));
    return limit;
}

uint64_t cgroup_tightest(const struct cgroup_controller *c, const char *mount,
                         const char *self_cgroup)
{
    uint64_t limit = CGROUP_NO_LIMIT;
    for (const char *line = self_cgroup; *line;) {
        const size_t len = strcspn(line, "\n");
        limit = lesser(limit, line_limit(c, mount, (struct text){line, len}));
        line += len + (line[len] == '\n');
    }
    return limit;
}
