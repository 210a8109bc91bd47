/* Tests of the JSON writer and of the checked output below it. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/json_write.h"
#include "outputs.h"
#include "show/paragraph.h"

static struct descriptor o;
static struct json j;

/* Begins a new text with an array or an object. */
static void begin(int broken_depth, bool is_object)
{
    output_begin(&o);
    json_init(&j, &o.out, broken_depth);
    if (is_object)
        json_begin_object(&j, NULL);
    else
        json_begin_array(&j, NULL);
}

static void ends_as(const char *expected)
{
    json_end(&j);
    output_is(&o, expected);
}

TEST(structure)
{
    begin(0, true);
    json_begin_array(&j, "empty");
    json_end(&j);
    json_begin_array(&j, "list");
    json_int(&j, NULL, -3);
    json_u64(&j, NULL, UINT64_MAX);
    json_null(&j, NULL);
    json_begin_object(&j, NULL);
    json_end(&j);
    json_end(&j);
    ends_as("{\"empty\": [], \"list\": [-3, 18446744073709551615, null, {}]}");
}

/* Keys have any bytes, and values begin lines. */
TEST(lines)
{
    begin(1, true);
    json_int(&j, "a\001b", 1);
    json_begin_array(&j, "\"");
    json_int(&j, NULL, 2);
    json_int(&j, NULL, 3);
    json_end(&j);
    json_int(&j, "c", 4);
    ends_as("{\n  \"a\\u0001b\": 1,\n  \"\\\"\": [2, 3],\n  \"c\": 4\n}");
}

TEST(strings_and_doubles)
{
    static const double numbers[] = {0.1, -2, 1.0 / 3, 5e-324, (double)NAN, HUGE_VAL};
    begin(0, false);
    json_text(&j, NULL, text_of("\"\\\n\r\t\x01\x7f"));
    json_text(&j, NULL, text_of("é €\xf0\x9f\x98\x80"));
    json_text(&j, NULL, text_of("a\xc3z\xff\xed\xa0\x80")); /* cut short; no UTF-8; a surrogate */
    json_text(&j, NULL, (struct text){"a\0b", 3});
    for (size_t i = 0; i < COUNT(numbers); i++)
        json_double(&j, NULL, numbers[i]);
    ends_as("[\"\\\"\\\\\\n\\r\\t\\u0001\\u007f\", \"é €\xf0\x9f\x98\x80\", "
            "\"a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\", "
            "\"a\\u0000b\", 0.1, -2, 0.3333333333333333, 4.94065645841247e-324, null, null]");
}

/* The output comes in small pieces, and in one that is longer than the buffer. */
TEST(long_outputs_arrive_whole, .loops = 2)
{
    static char expected[30001];
    output_begin(&o);
    for (size_t i = 0; i < 30000; i += 10) {
        memcpy(expected + i, "0123456789", 10);
        if (_i == 0)
            output_puts(&o.out, "0123456789");
    }
    if (_i == 1)
        output_put(&o.out, text_of(expected));
    output_is(&o, expected);
}

TEST(failures_are_kept)
{
    const int full = open("/dev/full", O_WRONLY);
    if (full >= 0) {
        descriptor_init(&o, full);
        output_puts(&o.out, "x");
        ck_assert(!output_flush(&o.out));
        output_puts(&o.out, "more");
        expect_status(descriptor_close(&o, &err), STATUS_FAILED, strerror(ENOSPC));
    }
    signal(SIGPIPE, SIG_IGN);
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    descriptor_init(&o, ends[1]);
    output_puts(&o.out, "x");
    expect_status(descriptor_close(&o, &err), STATUS_FAILED, strerror(EPIPE));
}

/* The pipe does not block and is smaller than the output, so that the writer waits for its reader.
 */
TEST(a_full_pipe_is_waited_for)
{
    enum { TOTAL = 300000 };
    static char bytes[TOTAL];
    int ends[2];
    ck_assert(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    const pid_t reader = fork();
    ck_assert_int_ge(reader, 0);
    if (reader == 0) {
        close(ends[1]);
        size_t total = 0;
        for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0; total += (size_t)n)
            usleep(100);
        _exit(total == TOTAL ? 0 : 1);
    }
    close(ends[0]);
    descriptor_init(&o, ends[1]);
    output_put(&o.out, (struct text){bytes, TOTAL});
    expect_ok(descriptor_close(&o, &err));
    int status;
    ck_assert_int_eq(waitpid(reader, &status, 0), reader);
    ck_assert_int_eq(status, 0);
}

TEST(printable_characters)
{
    static const struct {
        struct text bytes;
        const char *expected;
    } cases[] = {
        {{"a\nb\\\r\t", 6}, "a\\nb\\\\\\r\\t"},
        {{"\x1b[0m\0", 5}, "\\x1b[0m\\x00"},
        {{"é\xc3", 3}, "é\\xc3"},
        {{"\xc2\x9b", 2}, "\\xc2\\x9b"}, /* a C1 control starts an escape sequence too */
        {{"\x7f", 1}, "\\x7f"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char out[64] = "";
        struct text rest = cases[i].bytes;
        while (rest.len > 0)
            strcat(out, printable_next(&rest).text);
        ck_assert_str_eq(out, cases[i].expected);
    }
    ck_assert(text_is_utf8(text_of("é")) && !text_is_utf8((struct text){"\xc3", 1}));
    ck_assert(text_columns(text_of("é€x")) == 3 && text_columns(text_of("日本e\xcc\x81")) == 5);
    ck_assert_uint_eq(text_columns(text_of("")), 0);
}
