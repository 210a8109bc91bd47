#include "show/editor.h"

#include "base/mem.h"
#include "show/paragraph.h"

/* What a letter with Ctrl sends; other keys are read as one of these. */
#define KEY(letter) ((letter) - 'A' + 1)

/* Beside bytes: a key that does nothing, and the ends of what is pasted. */
enum { KEY_NONE = 0, KEY_PASTE = 256, KEY_PASTED };
static const char deleting_keys[] = {KEY('D'), KEY('H'), KEY('K'), KEY('U'), KEY('W')};

/* Asks the terminal to mark what is pasted, and no longer to (bracketed paste). */
#define MARK_PASTES   "\033[?2004h"
#define UNMARK_PASTES "\033[?2004l"

void editor_begin(struct editor *ed, const char *prompt)
{
    ed->prompt = prompt;
    ed->line.len = ed->cursor = 0;
    ed->shown = ed->history.len;
    ed->escape = ESCAPE_NONE;
    ed->pastes = ed->drawn = false;
    ed->width = ed->column = 0;
}

void editor_free(struct editor *ed)
{
    bytes_free(&ed->line);
    bytes_free(&ed->history);
    bytes_free(&ed->text);
}

/* --- keys ------------------------------------------------------------------------------------ */

/* The key of ESC [ or ESC O, numbers of which this is the last, and this letter or "~". */
static int escaped_key(int number, unsigned char last)
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
    for (int i = 0; i < LENGTH(keys); i++)
        if (keys[i].last == last && (last != '~' || keys[i].number == number))
            return keys[i].key;
    return KEY_NONE;
}

/* Returns the key that a byte is, or whose sequence it ends; KEY_NONE within a sequence. A control
 * character ends an incomplete sequence, so that Ctrl-C is a key behind a lone Esc, too. */
static int next_key(struct editor *ed, unsigned char c)
{
    const enum editor_escape escape = ed->escape;
    if (escape == ESCAPE_NUMBERS && c >= ' ' && c < '@') {
        /* Numbers with a modifier are those of no key. */
        ed->number = c >= '0' && c <= '9' && ed->number < 1000 ? 10 * ed->number + c - '0' : 1000;
        return KEY_NONE;
    }
    ed->escape = ESCAPE_NONE;
    if (c == '\033') {
        ed->escape = ESCAPE_BEGUN;
        return KEY_NONE;
    }
    if (c >= ' ' && escape == ESCAPE_NUMBERS)
        return escaped_key(ed->number, c);
    if (c >= ' ' && escape == ESCAPE_BEGUN) {
        ed->escape = c == '[' || c == 'O' ? ESCAPE_NUMBERS : ESCAPE_NONE;
        ed->number = 0;
        return KEY_NONE;
    }
    return c == 127 ? KEY('H') : c == '\r' ? '\n' : c;
}

/* Whether a text that is not empty begins within a character, as accents of their own do. */
static bool goes_on(struct text rest)
{
    uint32_t code;
    return (rest.data[0] & 0xc0) == 0x80 || text_columns(utf8_next(&rest, &code)) == 0;
}

/* Returns where a key moves the cursor, or up to where it deletes. */
static size_t place_of(const struct editor *ed, int key)
{
    const char *line = ed->line.data;
    const size_t end = ed->line.len;
    size_t at = ed->cursor;
    if (key == KEY('A') || key == KEY('U'))
        return 0;
    if (key == KEY('E') || key == KEY('K'))
        return end;
    if (key == KEY('F') || key == KEY('D'))
        for (at += at < end; at < end && goes_on(text_span(line + at, end - at));)
            at++;
    if (key == KEY('B') || key == KEY('H'))
        for (at -= at > 0; at > 0 && goes_on(text_span(line + at, end - at));)
            at--;
    while (key == KEY('W') && at > 0 && line[at - 1] == ' ')
        at--;
    while (key == KEY('W') && at > 0 && line[at - 1] != ' ')
        at--;
    return at;
}

/* Makes the line the last one of the history, unless it is empty. False without memory. */
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

/* Does to the line what the key says. False without memory. */
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

enum editor_state editor_type(struct editor *ed, char byte)
{
    const int key = next_key(ed, (unsigned char)byte);
    ed->drawn = false;
    if (key == KEY('C')) /* pasted or not: the end of what is pasted may never come */
        return EDITOR_CANCELLED;
    if (key == KEY('D') && ed->line.len == 0 && !ed->pastes)
        return EDITOR_END_OF_INPUT;
    if (key == '\n' && !ed->pastes)
        return remember(ed) ? EDITOR_LINE : EDITOR_NO_MEMORY;
    return apply_key(ed, key) ? EDITOR_GOES_ON : EDITOR_NO_MEMORY;
}

/* --- drawing --------------------------------------------------------------------------------- */

static bool put(struct bytes *out, const char *s)
{
    return bytes_put(out, text_of(s));
}

/* Puts text in which nothing commands the terminal. */
static bool put_escaped(struct bytes *out, struct text part)
{
    bool room = true;
    while (room && part.len > 0) {
        const bool backslash = part.data[0] == '\\';
        const struct printable p = printable_next(&part);
        room = put(out, backslash ? "\\" : p.text);
    }
    return room;
}

/* Goes to where the line was drawn before. In a terminal that has become narrower the line's row is
 * several rows now, and the cursor may be in a later one. */
static bool put_beginning(const struct editor *ed, int width, struct bytes *out)
{
    char up[32] = "";
    if (width < ed->width && ed->column >= width)
        chars_printf(up, "\033[%dA", ed->column / width);
    return put(out, ed->width == 0 ? MARK_PASTES : up) && put(out, "\r") && put(out, ed->prompt);
}

bool editor_draw(struct editor *ed, enum editor_state state, int width, struct bytes *out)
{
    const bool ends = state != EDITOR_GOES_ON, cancelled = state == EDITOR_CANCELLED;
    const int n_prompt = (int)strlen(ed->prompt);
    const size_t most = MAX(width - n_prompt - (cancelled ? 2 : 0) - 1, 1); /* columns */
    if (!ends && ed->drawn && width == ed->width)
        return true;
    /* What stands before the cursor, and behind it. Where the cursor stands too far in the line,
     * its beginning is left out. */
    struct text rest = bytes_text(&ed->line);
    const struct text before = text_cut(&rest, ends ? ed->line.len : ed->cursor);
    ed->text.len = 0;
    if (!put_escaped(&ed->text, before))
        return false;
    const size_t len = ed->text.len;
    if (!put_escaped(&ed->text, rest))
        return false;
    struct text right = bytes_text(&ed->text), left = text_cut(&right, len);
    size_t columns = text_columns(left);
    const bool cut = columns > most;
    for (uint32_t code; columns > most || (cut && left.len > 0 && goes_on(left));)
        columns -= text_columns(utf8_next(&left, &code));
    right = paragraph_cut(right, most - columns);
    /* All that stands behind the line is cleared, also in the rows below. */
    char back[32];
    chars_printf(back, "\033[J\r\033[%zuC", n_prompt + columns);
    if (!put_beginning(ed, width, out) || !bytes_put(out, left) || !bytes_put(out, right) ||
        !put(out, back) || !put(out, cancelled ? "^C" : "") ||
        !put(out, ends ? "\n" UNMARK_PASTES : ""))
        return false;
    ed->drawn = true;
    ed->width = width;
    ed->column = n_prompt + (int)columns;
    return true;
}
