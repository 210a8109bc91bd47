/* Tests of the line editor: keys make lines and drawings. */
#include <string.h>

#include "base/rng.h"
#include "show/editor.h"
#include "support.h"

#define CTRL_A "\001"
#define CTRL_B "\002"
#define CTRL_C "\003"
#define CTRL_D "\004"
#define CTRL_E "\005"
#define CTRL_F "\006"
#define CTRL_K "\013"
#define CTRL_N "\016"
#define CTRL_P "\020"
#define CTRL_U "\025"
#define CTRL_W "\027"
#define DELETE "\033[3~"
#define UP     "\033[A"
#define DOWN   "\033[B"
#define RIGHT  "\033[C"
#define LEFT   "\033OD"
#define PASTE  "\033[200~"
#define PASTED "\033[201~"

static struct editor ed;
static struct bytes drawing;

static void begin(void)
{
    editor_begin(&ed, "> ");
}

static void end(void)
{
    editor_free(&ed);
    bytes_free(&drawing);
}

/* Types keys, line after line, to the end of the last line or of the keys. */
static enum editor_state type(const char *keys)
{
    enum editor_state state = EDITOR_GOES_ON;
    for (; *keys; keys++) {
        if (state != EDITOR_GOES_ON)
            begin();
        state = editor_type(&ed, *keys);
    }
    return state;
}

static const struct {
    const char *keys, *line;
    enum editor_state state;
} lines[] = {
    {"\n", "", EDITOR_LINE},
    {"a\tb\r", "a\tb", EDITOR_LINE},
    {"wrong", "wrong", EDITOR_GOES_ON},
    {CTRL_D, "", EDITOR_END_OF_INPUT},
    {"a" CTRL_D, "a", EDITOR_GOES_ON},
    {"a\b" CTRL_D, "", EDITOR_END_OF_INPUT},
    {"ab" CTRL_C, "ab", EDITOR_CANCELLED},
    {"ab\033" CTRL_C, "ab", EDITOR_CANCELLED}, /* within a key */
    {"ab\033[2" CTRL_C, "ab", EDITOR_CANCELLED},

    /* Keys move the cursor. */
    {"bd" LEFT "c" CTRL_A "a" CTRL_E "e\n", "abcde", EDITOR_LINE},
    {"ab" CTRL_B CTRL_B CTRL_B "x" CTRL_F "y" RIGHT RIGHT "z\n", "xaybz", EDITOR_LINE},
    {"ab\033[Hx\033[Fy\033[1~1\033[4~4\033[7~7\033[8~8\n", "71xaby48", EDITOR_LINE},

    /* Keys delete. */
    {"abc\b\177x\n", "ax", EDITOR_LINE},
    {"abc" CTRL_A DELETE CTRL_D "\b\n", "c", EDITOR_LINE},
    {"abc" DELETE CTRL_F CTRL_K "\n", "abc", EDITOR_LINE},
    {"abcd" LEFT LEFT CTRL_U "x\n", "xcd", EDITOR_LINE},
    {"abcd" LEFT LEFT CTRL_K "x\n", "abx", EDITOR_LINE},
    {"one two  " CTRL_W "x" CTRL_W CTRL_W CTRL_W "y\n", "y", EDITOR_LINE},

    /* Characters of several bytes, and a letter with an accent of its own. */
    {"日本e\u0301" LEFT "x\n", "日本xe\u0301", EDITOR_LINE},
    {"日本e\u0301\177" LEFT "x\n", "日x本", EDITOR_LINE},
    {"é日" CTRL_A DELETE "x\n", "x日", EDITOR_LINE},

    /* Lines that were typed before come back; an empty line does not. */
    {"one\n\ntwo\n" UP UP UP "x\n", "onex", EDITOR_LINE},
    {"one\ntwo\n" CTRL_P CTRL_P CTRL_N "x\n", "twox", EDITOR_LINE},
    {"one\ntwo\n" UP UP DOWN DOWN DOWN "x\n", "x", EDITOR_LINE},
    {"one\nkept" UP UP DOWN "x\n", "keptx", EDITOR_LINE},
    {"one\n" UP "x\n" UP UP "\n", "one", EDITOR_LINE},
    {"one\ntwo" CTRL_C UP "\n", "one", EDITOR_LINE},
    {UP DOWN UP "x\n", "x", EDITOR_LINE},

    /* A pasted text is one line, and no command. */
    {PASTE "one\ntwo\r\tthree" PASTED, "one\ntwo\n\tthree", EDITOR_GOES_ON},
    {"ad" LEFT PASTE "b\nc" CTRL_W UP CTRL_D "\b" PASTED "x\n", "ab\ncxd", EDITOR_LINE},
    {PASTE CTRL_D "a\n" PASTED "\n", "a\n", EDITOR_LINE},
    {PASTE "a\nb" PASTED "\n" UP "\n", "a\nb", EDITOR_LINE},
    {PASTE "a" CTRL_C "b\n", "b", EDITOR_LINE}, /* its end may never come */

    /* Other keys do nothing. */
    {"a\007\033x\033[5~\033[1;5C\033OP\033[99999999999999999999~\033[3;1~\n", "a", EDITOR_LINE},
    {"ab" LEFT "\033\033[C"
     "c\n",
     "abc", EDITOR_LINE},
};

TEST(lines_of_keys, .loops = COUNT(lines), .before = begin, .after = end, .tags = ONE_THREAD)
{
    ck_assert_int_eq(type(lines[_i].keys), lines[_i].state);
    const struct text line = bytes_text(&ed.line);
    ck_assert_msg(text_is(line, lines[_i].line), "'%.*s'", text_width(line), line.data);
}

/* Makes one drawing after another, each after some keys, on so many columns. */
static const struct {
    struct {
        const char *keys;
        int width;
        const char *drawing;
    } steps[4];
} drawings[] = {
    {{{"", 20, "\033[?2004h\r> \033[J\r\033[2C"},
      {"", 20, ""}, /* nothing has changed */
      {"a", 20, "\r> a\033[J\r\033[3C"},
      {"b\n", 20, "\r> ab\033[J\r\033[4C\n\033[?2004l"}}},
    {{{"ab" LEFT, 20, "\033[?2004h\r> ab\033[J\r\033[3C"},
      {CTRL_C, 20, "\r> ab\033[J\r\033[4C^C\n\033[?2004l"},
      {"c", 20, "\033[?2004h\r> c\033[J\r\033[3C"},
      {"\b" CTRL_D, 20, "\r> \033[J\r\033[2C\n\033[?2004l"}}},
    /* The cursor is in sight, and the last column stays free. */
    {{{"abcdefghij", 10, "\033[?2004h\r> defghij\033[J\r\033[9C"},
      {CTRL_B CTRL_B, 10, "\r> bcdefgh\033[J\r\033[9C"},
      {CTRL_A, 10, "\r> abcdefg\033[J\r\033[2C"},
      {CTRL_C, 10, "\r> fghij\033[J\r\033[7C^C\n\033[?2004l"}}},
    {{{"日本", 8, "\033[?2004h\r> 日本\033[J\r\033[6C"},
      {"語", 8, "\r> 本語\033[J\r\033[6C"},
      {LEFT, 8, "\r> 日本\033[J\r\033[6C"},
      {"e\u0301", 8, "\r> 日本e\u0301\033[J\r\033[7C"}}},
    /* An accent goes with its letter. */
    {{{"e\u0301abc", 6, "\033[?2004h\r> abc\033[J\r\033[5C"},
      {CTRL_A RIGHT, 6, "\r> e\u0301ab\033[J\r\033[3C"},
      {CTRL_E, 1, "\033[3A\r> c\033[J\r\033[3C"}}}, /* hardly a terminal */
    /* Bytes that would command the terminal are shown. */
    {{{PASTE "a\nb\\\t" PASTED, 20, "\033[?2004h\r> a\\nb\\\\t\033[J\r\033[9C"},
      {CTRL_U "\xff\xc2\x9b", 20, "\r> \\xff\\xc2\\x9b\033[J\r\033[14C"}}},
    /* A narrower terminal has made several rows of one. */
    {{{"abcdefghijklmnop", 20, "\033[?2004h\r> abcdefghijklmnop\033[J\r\033[18C"},
      {"", 8, "\033[2A\r> lmnop\033[J\r\033[7C"},
      {"", 10, "\r> jklmnop\033[J\r\033[9C"},
      {CTRL_A, 5, "\033[1A\r> ab\033[J\r\033[2C"}}},
};

TEST(drawings_of_keys, .loops = COUNT(drawings), .before = begin, .after = end, .tags = ONE_THREAD)
{
    enum editor_state state = EDITOR_GOES_ON;
    for (size_t i = 0; i < 4 && drawings[_i].steps[i].keys; i++) {
        if (state != EDITOR_GOES_ON)
            begin();
        state = type(drawings[_i].steps[i].keys);
        drawing.len = 0;
        ck_assert(editor_draw(&ed, state, drawings[_i].steps[i].width, &drawing));
        const struct text drawn = bytes_text(&drawing);
        ck_assert_msg(text_is(drawn, drawings[_i].steps[i].drawing), "%zu: '%.*s'", i,
                      text_width(drawn), drawn.data);
    }
}

/* Half of the bytes are those of keys. Once ESC [ and a zero was looked up behind the table of
 * keys. */
TEST(any_byte_is_a_key_or_nothing, .before = begin, .after = end, .tags = ONE_THREAD)
{
    static const char keys[] =
        "\033\033\033\033[[[OO~~0123478;ABCDFH\n\002\003\006\010\020\016\025\027\177";
    int n_ends[EDITOR_NO_MEMORY + 1] = {0};
    struct rng r;
    rng_seed(&r, 1, 0);
    for (int i = 0; i < 200000; i++) {
        const uint32_t x = rng_u32(&r);
        const char byte = x % 2 ? keys[x / 2 % sizeof keys] : (char)(x >> 24); /* the zero, too */
        const enum editor_state state = editor_type(&ed, byte);
        ck_assert(ed.cursor <= ed.line.len && ed.shown <= ed.history.len);
        ck_assert_ptr_null(memchr(ed.line.data ? ed.line.data : "", 0, ed.line.len));
        if (i % 8 == 0 || state != EDITOR_GOES_ON) {
            drawing.len = 0;
            ck_assert(editor_draw(&ed, state, 1 + (int)(x >> 8) % 100, &drawing));
        }
        n_ends[state]++;
        if (state != EDITOR_GOES_ON)
            begin();
    }
    ck_assert(n_ends[EDITOR_LINE] > 100 && n_ends[EDITOR_CANCELLED] > 100 &&
              n_ends[EDITOR_END_OF_INPUT] > 10 && n_ends[EDITOR_NO_MEMORY] == 0);
}
