#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEFT_OUT (THREAD_SANITIZED ? ONE_THREAD " " TAKES_LONG : SANITIZED ? TAKES_LONG : NULL)

struct err failure;

void assert_failed(enum status found, enum status expected, const char *said, const char *call)
{
    ck_assert_msg(found == expected && strstr(failure.text, said), "%s gives %d, says: %s", call,
                  found, failure.text);
}

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

static void end_test(void)
{
    release_all();
    scratch_remove();
    failure = (struct err){""};
}

static Suite *suite;
static TCase *last;
static struct test_options of_last;

void test_register(const TTest *test, const struct test_options *o)
{
    if (o->left_out)
        return;
    if (!suite)
        suite = suite_create(program_invocation_short_name);
    if (!last || !o->before_all || o->before_all != of_last.before_all || o->tags != of_last.tags) {
        last = tcase_create(o->name);
        of_last = *o;
        suite_add_tcase(suite, last);
        tcase_set_timeout(last, o->seconds ? o->seconds : 120);
        if (o->tags)
            tcase_set_tags(last, o->tags);
        if (o->before || o->after)
            tcase_add_checked_fixture(last, o->before, o->after);
        if (o->before_all || o->after_all)
            tcase_add_unchecked_fixture(last, o->before_all, o->after_all);
        tcase_add_checked_fixture(last, NULL, o->before_all ? release_all : end_test);
    }
    if (o->signal)
        tcase_add_loop_test_raise_signal(last, test, o->signal, o->first, o->loops);
    else if (o->loops)
        tcase_add_loop_test(last, test, o->first, o->loops);
    else
        tcase_add_test(last, test);
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

void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "cannot write %s", path);
}

static char scratch_folder[256];

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

void scratch_remove(void)
{
    if (!scratch_folder[0])
        return;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    if (system(command) != 0)
        fprintf(stderr, "could not remove %s\n", scratch_folder);
    scratch_folder[0] = 0;
}
