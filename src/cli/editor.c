#include "cli/editor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "show/paragraph.h"

/* What a letter with Ctrl sends; other keys are read as one of these. */
#define KEY(letter) ((letter) - 'A' + 1)

enum { KEY_END_OF_INPUT = -1, KEY_OTHER = 0 };
static const char deleting_keys[] = {KEY('D'), KEY('H'), KEY('K'), KEY('U'), KEY('W')};

void editor_free(struct editor *ed)
{
    bytes_free(&ed->line);
    bytes_free(&ed->history);
    bytes_free(&ed->screen);
}

static bool is_typed(int wait_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, wait_ms) > 0;
}

/* Looks ten times a second whether a signal came. */
static int next_byte(void)
{
    unsigned char c;
    ssize_t n = -1;
    errno = EINTR;
    while (n < 0 && (errno == EINTR || errno == EAGAIN) && !signals_interrupted())
        n = is_typed(100) ? read(STDIN_FILENO, &c, 1) : -1;
    return n == 1 ? c : KEY_END_OF_INPUT;
}

/* A byte, or the key of ESC [ or ESC O and a letter, or a digit and "~". */
static int next_key(struct editor *ed)
{
    static const char names[] = "ABCDHF17483";
    static const char keys[] = {KEY('P'), KEY('N'), KEY('F'), KEY('B'), KEY('A'), KEY('E'),
                                KEY('A'), KEY('A'), KEY('E'), KEY('E'), KEY('D')};
    int digit = 0, c = next_byte();
    if (c == KEY('D') && ed->line.len == 0)
        return KEY_END_OF_INPUT;
    if (c != '\033')
        return c == 127 ? KEY('H') : c;
    c = next_byte();
    if (c != '[' && c != 'O')
        return KEY_OTHER;
    while ((c = next_byte()) >= ' ' && c < '@')
        digit = digit ? '?' : c; /* longer numbers are those of other keys */
    const char *found = strchr(names, c == '~' && digit ? digit : c);
    return found ? keys[found - names] : c < 0 ? c : KEY_OTHER;
}

/* Whether this byte of the line belongs to the character before it, as accents of their own do. */
static bool goes_on(const struct editor *ed, size_t at)
{
    struct text rest = {ed->line.data + at, ed->line.len - at};
    uint32_t code;
    return (rest.data[0] & 0xc0) == 0x80 || text_columns(utf8_next(&rest, &code)) == 0;
}

/* Where a key takes the cursor, or up to where it deletes. */
static size_t place_of(const struct editor *ed, int key)
{
    size_t at = ed->cursor;
    if (key == KEY('A') || key == KEY('U'))
        return 0;
    if (key == KEY('E') || key == KEY('K'))
        return ed->line.len;
    if (key == KEY('F') || key == KEY('D'))
        for (at += at < ed->line.len; at < ed->line.len && goes_on(ed, at);)
            at++;
    if (key == KEY('B') || key == KEY('H'))
        for (at -= at > 0; at > 0 && goes_on(ed, at);)
            at--;
    while (key == KEY('W') && at > 0 && ed->line.data[at - 1] == ' ')
        at--;
    while (key == KEY('W') && at > 0 && ed->line.data[at - 1] != ' ')
        at--;
    return at;
}

/* The line becomes the last one of the history, unless it is empty. */
static bool remember(struct editor *ed)
{
    return ed->line.len == 0 || (bytes_put(&ed->history, bytes_text(&ed->line)) &&
                                 bytes_put(&ed->history, text_of("\n")));
}

/* Shows the line before the one that is shown, or the next one; behind the last an empty one. */
static bool recall(struct editor *ed, bool previous)
{
    size_t from = ed->shown;
    if (from == ed->history.len && !remember(ed)) /* so that it is not lost */
        return false;
    const struct text history = bytes_text(&ed->history);
    from -= previous && from > 0;
    while (previous && from > 0 && history.data[from - 1] != '\n')
        from--;
    while (!previous && from < history.len && history.data[from++] != '\n')
        ;
    size_t to = from;
    while (to < history.len && history.data[to] != '\n')
        to++;
    ed->shown = from;
    ed->line.len = 0;
    ed->cursor = to - from;
    return bytes_put(&ed->line, text_span(history.data + from, to - from));
}

/* What a key does to the line. False without memory. */
static bool take_key(struct editor *ed, int key)
{
    const size_t at = ed->cursor, place = place_of(ed, key);
    const size_t from = MIN(at, place), to = MAX(at, place);
    if (key == KEY('P') || key == KEY('N'))
        return recall(ed, key == KEY('P'));
    if (from < to && memchr(deleting_keys, key, sizeof deleting_keys)) {
        memmove(ed->line.data + from, ed->line.data + to, ed->line.len - to);
        ed->line.len -= to - from;
        ed->cursor = from;
    } else if (key >= ' ' || key == '\t') {
        if (!bytes_reserve(&ed->line, 1))
            return false;
        memmove(ed->line.data + at + 1, ed->line.data + at, ed->line.len++ - at);
        ed->line.data[ed->cursor++] = (char)key;
    } else {
        ed->cursor = place;
    }
    return true;
}

/* Puts a part of the line behind what is drawn; what would command the terminal is escaped. */
static struct text put_to_screen(struct editor *ed, struct text part)
{
    while (part.len > 0) {
        const bool backslash = part.data[0] == '\\';
        const struct printable p = printable_next(&part);
        bytes_put(&ed->screen, text_of(backslash ? "\\" : p.text));
    }
    return bytes_text(&ed->screen);
}

/* The prompt, and of the line what fits: without its beginning, if the cursor stands far in it. */
static void draw(struct editor *ed, const char *prompt)
{
    const size_t most = (size_t)MAX(terminal_width(STDERR_FILENO) - (int)strlen(prompt) - 1, 1);
    struct text right = bytes_text(&ed->line);
    const struct text before = text_cut(&right, ed->cursor);
    ed->screen.len = 0;
    const size_t len = put_to_screen(ed, before).len;
    right = put_to_screen(ed, right);
    struct text left = text_cut(&right, len);
    size_t columns = text_columns(left);
    for (uint32_t code; columns > most;)
        columns -= text_columns(utf8_next(&left, &code));
    right = paragraph_cut(right, most - columns);
    fprintf(stderr, "\r%s%.*s%.*s\033[K\r\033[%zuC", prompt, (int)left.len, left.data,
            (int)right.len, right.data, strlen(prompt) + columns);
}

enum status editor_read(struct editor *ed, const char *prompt, struct text *line, struct err *e)
{
    struct termios before;
    bool room = true;
    tcgetattr(STDIN_FILENO, &before);
    struct termios typing = before;
    typing.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    /* Of the keys that are signals Ctrl-C stays one: the program outlives it, and undoes this. */
    typing.c_cc[VQUIT] = typing.c_cc[VSUSP] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    ed->line.len = ed->cursor = 0;
    ed->shown = ed->history.len;
    int key = KEY_OTHER;
    while (room && key != '\n' && key != KEY_END_OF_INPUT) {
        if (!is_typed(0))
            draw(ed, prompt);
        key = next_key(ed);
        room = take_key(ed, key);
    }
    ed->cursor = ed->line.len;
    draw(ed, prompt);
    fputc('\n', stderr);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    *line = key == KEY_END_OF_INPUT ? text_span(NULL, 0) : bytes_text(&ed->line);
    if (signals_interrupted())
        return STATUS_INTERRUPTED;
    return room && remember(ed) ? STATUS_OK
                                : err_no_memory(e, "the lines of a session", ed->history.len);
}
