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

/* Beside bytes: the input has ended, a key that does nothing, and the ends of what is pasted. */
enum { KEY_END_OF_INPUT = -1, KEY_OTHER = 0, KEY_PASTE = 256, KEY_PASTED };
static const char deleting_keys[] = {KEY('D'), KEY('H'), KEY('K'), KEY('U'), KEY('W')};

/* Asks the terminal to mark what is pasted, and no longer to (bracketed paste). */
#define MARK_PASTES   "\033[?2004h"
#define UNMARK_PASTES "\033[?2004l"

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

/* Checks ten times a second whether a signal came. */
static int next_byte(void)
{
    unsigned char c;
    ssize_t n = -1;
    errno = EINTR;
    while (n < 0 && (errno == EINTR || errno == EAGAIN) && !signals_interrupted())
        n = is_typed(100) ? read(STDIN_FILENO, &c, 1) : -1;
    return n == 1 ? c : KEY_END_OF_INPUT;
}

/* The key of ESC [ or ESC O, then numbers, then a letter or "~". */
static int escaped_key(void)
{
    static const struct {
        char last;
        int number; /* of "~" */
        int key;
    } keys[] = {{'A', 0, KEY('P')},    {'B', 0, KEY('N')}, {'C', 0, KEY('F')},
                {'D', 0, KEY('B')},    {'H', 0, KEY('A')}, {'F', 0, KEY('E')},
                {'~', 1, KEY('A')},    {'~', 7, KEY('A')}, {'~', 4, KEY('E')},
                {'~', 8, KEY('E')},    {'~', 3, KEY('D')}, {'~', 200, KEY_PASTE},
                {'~', 201, KEY_PASTED}};
    int number = 0, c = next_byte();
    if (c != '[' && c != 'O')
        return c < 0 ? c : KEY_OTHER;
    while ((c = next_byte()) >= ' ' && c < '@') /* numbers with a modifier are those of no key */
        number = c >= '0' && c <= '9' && number < 1000 ? 10 * number + c - '0' : 1000;
    for (int i = 0; i < LENGTH(keys); i++)
        if (keys[i].last == c && (c != '~' || keys[i].number == number))
            return keys[i].key;
    return c < 0 ? c : KEY_OTHER;
}

/* A byte or a key. */
static int next_key(struct editor *ed)
{
    const int c = next_byte();
    if (c == KEY('D') && ed->line.len == 0)
        return KEY_END_OF_INPUT;
    return c == '\033' ? escaped_key() : c == 127 ? KEY('H') : c;
}

/* Whether this byte of the line belongs to the character before it, as accents of their own do. */
static bool goes_on(const struct editor *ed, size_t at)
{
    struct text rest = {ed->line.data + at, ed->line.len - at};
    uint32_t code;
    return (rest.data[0] & 0xc0) == 0x80 || text_columns(utf8_next(&rest, &code)) == 0;
}

/* Where a key moves the cursor, or up to where it deletes. */
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

/* The line becomes the last one of the history, with a zero behind it, unless it is empty. */
static bool remember(struct editor *ed)
{
    return ed->line.len == 0 || (bytes_put(&ed->history, bytes_text(&ed->line)) &&
                                 bytes_put(&ed->history, text_span("", 1)));
}

/* Shows the line before the one that is shown, or the next one; behind the last an empty one. */
static bool recall(struct editor *ed, bool previous)
{
    size_t from = ed->shown;
    if (from == ed->history.len && !remember(ed)) /* so that it is not lost */
        return false;
    const struct text history = bytes_text(&ed->history);
    from -= previous && from > 0;
    while (previous && from > 0 && history.data[from - 1])
        from--;
    while (!previous && from < history.len && history.data[from++])
        ;
    size_t to = from;
    while (to < history.len && history.data[to])
        to++;
    ed->shown = from;
    ed->line.len = 0;
    ed->cursor = to - from;
    return bytes_put(&ed->line, text_span(history.data + from, to - from));
}

/* What a key does to the line. False without memory. */
static bool apply_key(struct editor *ed, int key)
{
    const size_t at = ed->cursor, place = place_of(ed, key);
    const size_t from = MIN(at, place), to = MAX(at, place);
    if (ed->pastes && key < ' ' && key != '\n' && key != '\t')
        return true; /* nothing that is pasted is a command */
    if (key == KEY('P') || key == KEY('N'))
        return recall(ed, key == KEY('P'));
    if (from < to && memchr(deleting_keys, key, sizeof deleting_keys)) {
        memmove(ed->line.data + from, ed->line.data + to, ed->line.len - to);
        ed->line.len -= to - from;
        ed->cursor = from;
    } else if (key == KEY_PASTE || key == KEY_PASTED) {
        ed->pastes = key == KEY_PASTE;
    } else if (key >= ' ' || key == '\t' || (key == '\n' && ed->pastes)) {
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
static void draw(struct editor *ed)
{
    const int n_prompt = (int)strlen(ed->prompt);
    const size_t most = (size_t)MAX(terminal_width(STDERR_FILENO) - n_prompt - 1, 1);
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
    fprintf(stderr, "\r%s%.*s%.*s\033[K\r\033[%zuC", ed->prompt, (int)left.len, left.data,
            (int)right.len, right.data, n_prompt + columns);
}

/* From a key to the next until one ends the line. */
static enum editor_end edit(struct editor *ed, bool *room)
{
    while (*room) {
        if (!is_typed(0))
            draw(ed);
        const int key = next_key(ed);
        if (key == KEY_END_OF_INPUT)
            return EDITOR_END_OF_INPUT;
        if (key == KEY('C'))
            return EDITOR_CANCELLED;
        if (key == '\n' && !ed->pastes)
            return EDITOR_LINE;
        *room = apply_key(ed, key);
    }
    return EDITOR_END_OF_INPUT;
}

enum status editor_read(struct editor *ed, const char *prompt, enum editor_end *end,
                        struct text *line, struct err *e)
{
    struct termios before;
    bool room = true;
    tcgetattr(STDIN_FILENO, &before);
    struct termios typing = before;
    typing.c_iflag &= ~(tcflag_t)IXON;
    typing.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN | ISIG);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    fputs(MARK_PASTES, stderr);
    ed->prompt = prompt;
    ed->pastes = false;
    ed->line.len = ed->cursor = 0;
    ed->shown = ed->history.len;
    *end = edit(ed, &room);
    ed->cursor = ed->line.len;
    draw(ed);
    fprintf(stderr, "%s\n" UNMARK_PASTES, *end == EDITOR_CANCELLED ? "^C" : "");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    *line = bytes_text(&ed->line);
    if (signals_interrupted())
        return STATUS_INTERRUPTED;
    if (*end == EDITOR_LINE)
        room &= remember(ed);
    return room ? STATUS_OK : err_no_memory(e, "the lines of a session", ed->history.len);
}
