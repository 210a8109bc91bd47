#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEFT_OUT (THREAD_SANITIZED ? ONE_THREAD " " TAKES_LONG : SANITIZED ? TAKES_LONG : NULL)

static struct released {
    struct released *last;
    void (*release)(void *);
    void *what;
} * released;

void *released_by(void (*release)(void *), void *what)
{
    struct released *r = malloc(sizeof *r);
    ck_assert(r && what);
    *r = (struct released){released, release, what};
    released = r;
    return what;
}

void *allocated(size_t n_bytes)
{
    return released_by(free, malloc(n_bytes ? n_bytes : 1));
}

void *allocated_zeros(size_t n_bytes)
{
    return memset(allocated(n_bytes), 0, n_bytes);
}

void release_all(void)
{
    while (released) {
        struct released *r = released;
        released = r->last;
        r->release(r->what);
        free(r);
    }
}

static char scratch_folder[256];

static void end_test(void)
{
    char command[300];
    release_all();
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    if (scratch_folder[0] && system(command) != 0)
        fprintf(stderr, "could not remove %s\n", scratch_folder);
    scratch_folder[0] = 0;
    err = (struct err){""};
}

static Suite *suite;

void test_register(const TTest *test, const struct test_options *o)
{
    if (o->left_out)
        return;
    if (!suite)
        suite = suite_create(program_invocation_short_name);
    TCase *alone = tcase_create(o->name);
    suite_add_tcase(suite, alone);
    tcase_set_timeout(alone, o->seconds ? o->seconds : 120);
    if (o->tags)
        tcase_set_tags(alone, o->tags);
    if (o->before || o->after)
        tcase_add_checked_fixture(alone, o->before, o->after);
    tcase_add_checked_fixture(alone, NULL, end_test);
    if (o->loops)
        tcase_add_loop_test(alone, test, o->first, o->loops);
    else
        tcase_add_test(alone, test);
}

int run_suite(void)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_tagged(runner, NULL, NULL, NULL, LEFT_OUT, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

__attribute__((weak)) int main(void)
{
    return run_suite();
}

long test_seed(void)
{
    char now[32];
    if (!getenv("DECODE_TEST_SEED")) {
        snprintf(now, sizeof now, "%ld", (long)time(NULL));
        setenv("DECODE_TEST_SEED", now, 1);
        printf("DECODE_TEST_SEED=%s\n", now);
        fflush(stdout); /* or the processes of the tests print it too */
    }
    return atol(getenv("DECODE_TEST_SEED"));
}

void expect_says(const char *text, const char *parts)
{
    char part[512];
    while (*parts) {
        const size_t len = strcspn(parts, "|");
        snprintf(part, sizeof part, "%.*s", (int)len, parts);
        if (*part == '!')
            ck_assert_msg(!strstr(text, part + 1), "\"%s\" says \"%s\"", text, part + 1);
        else
            ck_assert_msg(strstr(text, part), "\"%s\" does not say \"%s\"", text, part);
        parts += len + (parts[len] == '|');
    }
}

struct err err;

void expect_status(enum status found, enum status expected, const char *parts)
{
    ck_assert_msg(found == expected, "status %d instead of %d (%s): %s", (int)found, (int)expected,
                  parts, found ? err.text : "");
    if (!found)
        return;
    expect_says(err.text, parts);
    for (const char *c = err.text; *c; c++)
        ck_assert_msg((unsigned char)*c >= 0x20, "a control character in \"%s\"", err.text);
    err.text[0] = 0;
}

unsigned char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "cannot open %s (tests run from the repository's top)", path);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    unsigned char *bytes = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    *len = fread(bytes, 1, (size_t)size, f);
    ck_assert_uint_eq(*len, (size_t)size);
    fclose(f);
    return bytes;
}

char *file_text(const char *path, size_t *len)
{
    size_t n;
    char *text = released_by(free, read_file(path, &n));
    text[n] = 0;
    if (len)
        *len = n;
    return text;
}

RELEASER(close_gguf, gguf_free)
RELEASER(close_tokenizer, tokenizer_free)

struct gguf_file parsed_gguf(unsigned char *bytes, size_t len)
{
    struct gguf_file f = {.bytes = released_by(free, bytes), .len = len};
    expect_ok(gguf_parse(bytes, len, &f.g, &err));
    released_by(close_gguf, f.g);
    return f;
}

struct gguf_file read_gguf(const char *path)
{
    struct gguf_file f;
    f.bytes = read_file(path, &f.len);
    return parsed_gguf(f.bytes, f.len);
}

struct gguf_file written_gguf(struct gguf_writer *w)
{
    unsigned char *bytes;
    size_t len;
    expect_ok(gguf_write_memory(w, &bytes, &len, &err));
    gguf_writer_free(w);
    return parsed_gguf(bytes, len);
}

struct tokenizer *tokenizer_in(const struct gguf *g)
{
    struct tokenizer *t;
    expect_ok(tokenizer_create(g, &t, &err));
    return released_by(close_tokenizer, t);
}

void write_file(const char *path, const void *bytes, size_t len)
{
    unlink(path); /* a FIFO would wait for a reader */
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(len ? fwrite(bytes, 1, len, f) : 0, len);
    ck_assert_int_eq(fclose(f), 0);
}

void expect_bytes(const char *path, const void *bytes, size_t len)
{
    size_t found_len;
    unsigned char *found = read_file(path, &found_len);
    ck_assert_msg(found_len == len && memcmp(found, bytes, len) == 0, "%s has other bytes", path);
    free(found);
}

const char *scratch_path(const char *name)
{
    if (!scratch_folder[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch_folder, sizeof scratch_folder, "%s/decode-test-XXXXXX",
                 tmp ? tmp : "/tmp");
        ck_assert_ptr_nonnull(mkdtemp(scratch_folder));
    }
    const size_t size = strlen(scratch_folder) + strlen(name) + 2;
    char *path = allocated(size);
    snprintf(path, size, "%s/%s", scratch_folder, name);
    return path;
}

char *next_row(char **rest)
{
    while (**rest) {
        char *row = *rest;
        *rest += strcspn(row, "\n");
        if (**rest)
            *(*rest)++ = 0;
        if (*row && *row != '#')
            return row;
    }
    return NULL;
}

char *next_field(char **row)
{
    char *field = *row, *end = strstr(field, " |");
    ck_assert_msg(end != NULL, "a row of one field: %s", field);
    *row = end + 2 + (end[2] == ' ');
    *end = 0;
    return field;
}

void unescape(char *text)
{
    char *to = text;
    for (const char *c = text; *c; c++, to++) {
        const bool is_byte = c[0] == '\\' && c[1] == 'x';
        const char digits[] = {is_byte ? c[2] : 0, is_byte ? c[3] : 0, 0};
        *to = is_byte ? (char)strtol(digits, NULL, 16) : *c;
        c += is_byte ? 3 : 0;
    }
    *to = 0;
}
