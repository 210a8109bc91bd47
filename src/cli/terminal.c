#include "cli/terminal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/numbers.h"

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

#define DEFAULT_COLUMNS 80

int terminal_width(int fd)
{
    struct winsize size;
    const char *columns = environment("COLUMNS");
    int width;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return columns && parse_int(columns, 1, USHRT_MAX, &width) ? width : DEFAULT_COLUMNS;
}

void terminal_describe(struct output *out)
{
    out->terminal = isatty(STDOUT_FILENO) == 1;
    if (out->terminal)
        out->columns = terminal_width(STDOUT_FILENO);
    out->colours = terminal_ink() != HEATMAP_PLAIN;
}

/* Of "foreground;background" or "foreground;other;background", 7 and 15 are white. */
static bool is_light(void)
{
    const char *colours = environment("COLORFGBG");
    const char *last = colours ? strrchr(colours, ';') : NULL;
    return last && (strcmp(last, ";7") == 0 || strcmp(last, ";15") == 0);
}

static bool has_colours(void)
{
    /* In the name, or the name, of terminals that have 256 colours. */
    static const char *const names[] = {"256color", "direct",    "kitty", "alacritty",
                                        "foot",     "truecolor", NULL};
    const char *term = environment("TERM");
    if (!term || strcmp(term, "dumb") == 0)
        return false;
    for (int i = 0; names[i]; i++)
        if (strstr(term, names[i]))
            return true;
    return environment("COLORTERM") != NULL;
}

enum heatmap_ink terminal_forced_ink(void)
{
    return is_light() ? HEATMAP_LIGHT : HEATMAP_DARK;
}

enum heatmap_ink terminal_ink(void)
{
    const bool coloured = isatty(STDOUT_FILENO) && !environment("NO_COLOR") && has_colours();
    return coloured ? terminal_forced_ink() : HEATMAP_PLAIN;
}
