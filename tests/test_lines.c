/* Lines out of files and pipes, whatever pieces they come in. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "support.h"

#define MAX_LINE 8

static void open_lines(struct lines *l, const char *path)
{
    expect_ok(lines_open(l, path, MAX_LINE, &err));
}

static const char *file_of(struct text content)
{
    const char *path = scratch_path("lines");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(content.data, 1, content.len, f), content.len);
    fclose(f);
    return path;
}

static enum lines_state next(struct lines *l, struct text *line)
{
    enum lines_state state;
    expect_ok(lines_next(l, 0, &state, line, &err));
    return state;
}

/* What the lines are as one text: each in brackets, a long one as "(long)". */
static void expect_lines(const char *content, size_t len, const char *expected)
{
    struct lines l;
    struct text line;
    char found[512] = "";
    enum lines_state state;
    open_lines(&l, file_of((struct text){content, len}));
    while ((state = next(&l, &line)) != LINES_END) {
        const size_t n = strlen(found);
        if (state == LINES_LONG)
            snprintf(found + n, sizeof found - n, "(long)");
        else
            snprintf(found + n, sizeof found - n, "[%.*s]", (int)line.len, line.data);
    }
    ck_assert_str_eq(found, expected);
    ck_assert(next(&l, &line) == LINES_END && (len == 0 || lines_share(&l) == 1));
    lines_close(&l);
    scratch_remove();
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
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_lines(cases[i].content, strlen(cases[i].content), cases[i].lines);
}

/* More than is read at once, so that the start is dropped while the rest is still to come. */
TEST(memory_does_not_grow_with_the_file)
{
    enum { N = 300000 };
    struct bytes content = {NULL, 0, 0};
    char wanted[32];
    for (int i = 0; i < N; i++) {
        snprintf(wanted, sizeof wanted, i % 1000 ? "%d\n" : "%d and more\n", i);
        ck_assert(bytes_put(&content, text_of(wanted)));
    }
    struct lines l;
    struct text line;
    open_lines(&l, file_of(bytes_text(&content)));
    for (int i = 0; i < N; i++) {
        snprintf(wanted, sizeof wanted, "%d", i);
        if (i % 1000 == 0) {
            ck_assert_int_eq(next(&l, &line), LINES_LONG);
            continue;
        }
        ck_assert_int_eq(next(&l, &line), LINES_LINE);
        ck_assert_msg(text_is(line, wanted), "expected %s", wanted);
    }
    ck_assert_int_eq(next(&l, &line), LINES_END);
    ck_assert_uint_le(l.read.cap, 256 << 10);
    lines_close(&l);
    bytes_free(&content);
}

/* So many bytes of one line. */
static struct bytes long_line(size_t len)
{
    struct bytes b = {NULL, 0, 0};
    ck_assert(bytes_reserve(&b, len));
    memset(b.data, 'a', len);
    b.len = len;
    return b;
}

/* A long line without end is passed over without being kept. */
TEST(long_line_takes_no_memory)
{
    struct bytes content = long_line(3 << 20);
    struct lines l;
    struct text line;
    enum lines_state state;
    open_lines(&l, file_of(bytes_text(&content)));
    while ((state = next(&l, &line)) == LINES_LATER)
        ck_assert_uint_le(l.read.cap, 256 << 10);
    ck_assert(state == LINES_LONG && next(&l, &line) == LINES_END);
    lines_close(&l);
    bytes_free(&content);
}

/* One that does not end leaves the caller time for other things, too long or not. */
TEST(long_line_comes_in_parts, .loops = 2)
{
    struct bytes content = long_line(5 << 20);
    const size_t most = _i ? 8 << 20 : MAX_LINE;
    struct lines l;
    struct text line;
    enum lines_state state;
    int n_parts = 1;
    open_lines(&l, file_of(bytes_text(&content)));
    l.max = most;
    while ((state = next(&l, &line)) == LINES_LATER)
        n_parts++;
    ck_assert_int_ge(n_parts, 5);
    ck_assert_int_eq(state, _i ? LINES_LINE : LINES_LONG);
    ck_assert((!_i || text_equal(line, bytes_text(&content))) && next(&l, &line) == LINES_END);
    lines_close(&l);
    bytes_free(&content);
}

/* Makes a pipe this process's standard input; gives its other end. */
static int pipe_to_input(void)
{
    int ends[2];
    ck_assert(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    return ends[1];
}

static void send(int fd, const char *text)
{
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

TEST(pipe_gives_lines_as_they_come)
{
    const int to = pipe_to_input();
    struct lines l;
    struct text line;
    int n;
    open_lines(&l, "-");
    ck_assert_int_eq(next(&l, &line), LINES_LATER);
    expect_ok(lines_left(&l, 3, &n, NULL));
    ck_assert_int_eq(n, 3); /* not known */
    send(to, "on");
    ck_assert_int_eq(next(&l, &line), LINES_LATER);
    send(to, "e\ntwo");
    ck_assert(next(&l, &line) == LINES_LINE && text_is(line, "one"));
    ck_assert(next(&l, &line) == LINES_LATER && lines_share(&l) < 0);
    send(to, "\n\nlonger than ");
    close(to);
    expect_ok(lines_left(&l, 9, &n, NULL));
    ck_assert_int_eq(n, 3);
    expect_ok(lines_left(&l, 2, &n, NULL));
    ck_assert(n == 2 && next(&l, &line) == LINES_LINE && text_is(line, "two"));
    ck_assert(next(&l, &line) == LINES_LINE && text_is(line, "") && next(&l, &line) == LINES_LONG);
    ck_assert_int_eq(next(&l, &line), LINES_END);
    lines_close(&l);
}

/* The line that is left after any other is the same, in whatever pieces all came. */
TEST(pieces_do_not_matter, .loops = 50)
{
    static const char text[] = "\xef\xbb\xbfx\r\nbcdefghijklm\n\n12345678\r\nx\ny";
    struct rng r;
    rng_seed(&r, 1, (uint64_t)_i);
    const int to = pipe_to_input();
    struct lines l;
    struct text line;
    enum lines_state state;
    char found[256] = "";
    size_t sent = 0;
    open_lines(&l, "-");
    while ((state = next(&l, &line)) != LINES_END) {
        const size_t n = strlen(found);
        if (state == LINES_LATER) {
            const size_t left = strlen(text) - sent, piece = 1 + rng_u32(&r) % 9;
            const size_t now = piece < left ? piece : left;
            ck_assert_int_eq(write(to, text + sent, now), (ssize_t)now);
            sent += now;
            if (sent == strlen(text))
                close(to);
        } else {
            snprintf(found + n, sizeof found - n, state == LINES_LONG ? "(long)" : "[%.*s]",
                     (int)line.len, line.data);
        }
    }
    ck_assert_str_eq(found, "[x](long)[][12345678][x][y]");
    lines_close(&l);
}

TEST(what_cannot_be_read_is_named)
{
    struct lines l;
    struct text line;
    enum lines_state state;
    expect_status(lines_open(&l, "no/such/file", MAX_LINE, &err), STATUS_BAD_FILE, "no/such/file");
    lines_close(&l);
    expect_ok(lines_open(&l, "tests", MAX_LINE, &err));
    expect_status(lines_next(&l, 0, &state, &line, &err), STATUS_BAD_FILE, "tests: cannot read");
    lines_close(&l);
    lines_close(&l);
}

TEST(bytes_grow_and_are_used_again)
{
    struct bytes b = {NULL, 0, 0};
    ck_assert(bytes_put(&b, (struct text){NULL, 0}));
    for (int i = 0; i < 1000; i++)
        ck_assert(bytes_put(&b, text_of("abc")));
    ck_assert(bytes_text(&b).len == 3000 && text_ends_with(bytes_text(&b), "bcabc"));
    const size_t cap = b.cap;
    b.len = 0;
    ck_assert(bytes_reserve(&b, cap));
    ck_assert_uint_eq(b.cap, cap);
    ck_assert(!bytes_reserve(&b, PTRDIFF_MAX));
    ck_assert_uint_eq(b.cap, cap);
    bytes_free(&b);
    bytes_free(&b);
}
