/* Lines out of files and pipes, whatever pieces they come in. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/rng.h"
#include "support.h"

#define MAX_LINE 8

static struct lines l;
static struct text line;

static void close_lines(void)
{
    lines_close(&l);
    lines_close(&l);
}

#define LINES .after = close_lines

static void open_file(const void *content, size_t len)
{
    const char *path = scratch_path("lines");
    write_file(path, content, len);
    expect_ok(lines_open(&l, path, MAX_LINE, &err));
}

static enum lines_state next(void)
{
    enum lines_state state;
    expect_ok(lines_next(&l, 0, &state, &line, &err));
    return state;
}

static void expect_line(const char *expected)
{
    ck_assert_int_eq(next(), LINES_LINE);
    ck_assert_msg(text_is(line, expected), "expected %s", expected);
}

/* Appends what a line is to all lines as one text: each in brackets, a long one as "(long)". */
static void add_line(char found[512], enum lines_state state)
{
    const size_t n = strlen(found);
    snprintf(found + n, 512 - n, state == LINES_LONG ? "(long)" : "[%.*s]", (int)line.len,
             line.data);
}

TEST(lines_end_with_newlines)
{
    static const struct {
        const char *content, *lines;
    } cases[] = {
        {"", ""},
        {"\n", "[]"},
        {"a", "[a]"},
        {"a\n", "[a]"},
        {"a\nb", "[a][b]"},
        {"\n\na\n\n", "[][][a][]"},
        {"a\r\nb\r\r\n\r\nc\r", "[a][b\r][][c]"},
        {"a\n\r", "[a][]"},
        {"12345678\r", "[12345678]"},
        {"123456789\r", "(long)"},
        {"\xef\xbb\xbf", ""},
        {"\xef\xbb\xbf\n", "[]"},
        {"\xef\xbb\xbf\r\na", "[][a]"},
        {"\xef\xbb\xbfxyzxyzxy\nx", "[xyzxyzxy][x]"},
        {"\xef\xbb\xbf\xef\xbb\xbf\nx", "[\xef\xbb\xbf][x]"},
        {"\n\xef\xbb\xbf\n", "[][\xef\xbb\xbf]"},
        {"\xef\xbb\nx", "[\xef\xbb][x]"},
        {"12345678\n12345678", "[12345678][12345678]"},
        {"12345678\r\nx", "[12345678][x]"},
        {"123456789\nx", "(long)[x]"},
        {"123456789\r\nx", "(long)[x]"},
        {"x\n123456789", "[x](long)"},
        {"1234567890123456789012345\n\ny\n", "(long)[][y]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char found[512] = "";
        enum lines_state state;
        open_file(cases[i].content, strlen(cases[i].content));
        while ((state = next()) != LINES_END)
            add_line(found, state);
        ck_assert_str_eq(found, cases[i].lines);
        ck_assert(next() == LINES_END && (i == 0 || lines_share(&l) == 1));
        lines_close(&l);
    }
}

/* A line that does not end leaves the caller time for other things; one that is too long is passed
 * over without being kept. */
TEST(long_line_comes_in_parts, .loops = 2, LINES)
{
    const size_t len = 5 << 20;
    char *content = memset(allocated(len), 'a', len);
    enum lines_state state;
    int n_parts = 1;
    open_file(content, len);
    l.max = _i ? 8 << 20 : MAX_LINE;
    for (; (state = next()) == LINES_LATER; n_parts++)
        ck_assert(_i || l.read.cap <= 256 << 10);
    ck_assert_int_ge(n_parts, 5);
    ck_assert_int_eq(state, _i ? LINES_LINE : LINES_LONG);
    ck_assert(!_i || text_equal(line, (struct text){content, len}));
    ck_assert_int_eq(next(), LINES_END);
}

/* Lines of a pipe that becomes this process's standard input; its other end. */
static int open_pipe(void)
{
    int ends[2];
    ck_assert(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    expect_ok(lines_open(&l, "-", MAX_LINE, &err));
    return ends[1];
}

static void send(int fd, const char *text, size_t len)
{
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
}

static void expect_left(int most, int expected)
{
    int n;
    expect_ok(lines_left(&l, most, &n, NULL));
    ck_assert_int_eq(n, expected);
}

TEST(pipe_gives_lines_as_they_come, LINES)
{
    const int to = open_pipe();
    ck_assert_int_eq(next(), LINES_LATER);
    expect_left(3, 3); /* not known */
    send(to, "on", 2);
    ck_assert_int_eq(next(), LINES_LATER);
    send(to, "e\ntwo", 5);
    expect_line("one");
    ck_assert(next() == LINES_LATER && lines_share(&l) < 0);
    send(to, "\n\nlonger than ", 14);
    close(to);
    expect_left(9, 3);
    expect_left(2, 2);
    expect_line("two");
    expect_line("");
    ck_assert_int_eq(next(), LINES_LONG);
    ck_assert_int_eq(next(), LINES_END);
}

/* The line that is left after any other is the same, in whatever pieces all came. */
TEST(pieces_do_not_matter, .loops = 50, LINES)
{
    static const char text[] = "\xef\xbb\xbfx\r\nbcdefghijklm\n\n12345678\r\nx\ny";
    const int to = open_pipe();
    struct text rest = text_of(text);
    char found[512] = "";
    struct rng r;
    rng_seed(&r, 1, (uint64_t)_i);
    for (enum lines_state state; (state = next()) != LINES_END;) {
        if (state != LINES_LATER) {
            add_line(found, state);
            continue;
        }
        const size_t piece = 1 + rng_u32(&r) % 9, now = piece < rest.len ? piece : rest.len;
        send(to, text_cut(&rest, now).data, now);
        if (rest.len == 0)
            close(to);
    }
    ck_assert_str_eq(found, "[x](long)[][12345678][x][y]");
}
