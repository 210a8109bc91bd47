/* The system calls below fail on demand: this binary's own take the place of libc's. */

/* As in file.c: the C library gives open another name for it. */
#define _FILE_OFFSET_BITS 64

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "support.h"

struct fault {
    int after; /* calls that succeed first */
    int times; /* calls that fail then */
    int error; /* their errno; 0: they do nothing and return 0 */
};

static struct fault on_open, on_read, on_write, on_fsync, on_close, on_rename, on_fchmod;
static size_t longest_write = SIZE_MAX;

/* Whether this call fails, with errno set. */
static bool fails(struct fault *f)
{
    if (f->times == 0 || f->after-- > 0)
        return false;
    f->times--;
    errno = f->error;
    return true;
}

static int result_of(const struct fault *f)
{
    return f->error ? -1 : 0;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(&on_open) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void *to, size_t n)
{
    return fails(&on_read) ? -1 : syscall(SYS_read, fd, to, n);
}

ssize_t write(int fd, const void *from, size_t n)
{
    if (fails(&on_write))
        return result_of(&on_write);
    return syscall(SYS_write, fd, from, n < longest_write ? n : longest_write);
}

int fsync(int fd)
{
    return fails(&on_fsync) ? -1 : (int)syscall(SYS_fsync, fd);
}

/* Closes in any case, as the kernel does. */
int close(int fd)
{
    const int done = (int)syscall(SYS_close, fd);
    return fails(&on_close) ? -1 : done;
}

int rename(const char *from, const char *to)
{
    return fails(&on_rename) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fchmod(int fd, mode_t mode)
{
    return fails(&on_fchmod) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

#define LEN 600000

static char bytes[LEN];
static char path[512];
static size_t piece; /* bytes of one put */

static bool all_happened(void)
{
    return !on_open.times && !on_read.times && !on_write.times && !on_fsync.times &&
           !on_close.times && !on_rename.times && !on_fchmod.times;
}

static void no_faults(void)
{
    on_open = on_read = on_write = on_fsync = on_close = on_rename = on_fchmod = (struct fault){0};
    longest_write = SIZE_MAX;
}

static enum status replace(struct err *e)
{
    struct file_writer *w;
    enum status s = file_writer_open(&w, path, e);
    if (!s) {
        for (size_t at = 0; at < LEN; at += piece)
            file_writer_put(w, bytes + at, LEN - at < piece ? LEN - at : piece);
        file_writer_put(w, NULL, 0);
        s = file_writer_commit(w, e);
    }
    const bool happened = all_happened();
    no_faults();
    ck_assert_msg(happened, "a fault was never met");
    return s;
}

static void set_up(void)
{
    no_faults();
    piece = LEN / 10;
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 13 >> 2);
    struct file_writer *w;
    expect_ok(file_writer_open(&w, path, NULL));
    file_writer_put(w, "old", 3);
    expect_ok(file_writer_commit(w, NULL));
}

/* The scratch folder holds this one file and nothing else. */
static void expect_content(const char *expected, size_t n)
{
    expect_bytes(path, expected, n);
    char folder[sizeof path];
    strcpy(folder, path);
    *strrchr(folder, '/') = 0;
    int names = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        names += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    ck_assert_int_eq(names, 1);
}

static void expect_failure(const char *reason)
{
    struct err e = {0};
    ck_assert_int_eq(replace(&e), STATUS_FAILED);
    ck_assert_msg(strstr(e.text, path) && strstr(e.text, reason), "\"%s\" does not say \"%s\"",
                  e.text, reason);
    expect_content("old", 3);
}

static void expect_success(void)
{
    expect_ok(replace(&err));
    expect_content(bytes, LEN);
}

/* Around the size of the buffer, 256 KiB. */
TEST(pieces_of_many_sizes, .before = set_up, .after = scratch_remove)
{
    static const size_t pieces[] = {1, 4095, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, LEN};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        piece = pieces[i];
        expect_success();
        longest_write = 99991;
        expect_success();
    }
}

/* Where the file stays the old one, and why; or NULL: it is replaced all the same. */
static const struct {
    struct fault *call;
    struct fault fault;
    const char *reason;
} faults[] = {
    {&on_write, {0, 1, ENOSPC}, "cannot write: No space left on device"},
    {&on_write, {1, 1, ENOSPC}, "cannot write: No space left on device"},
    {&on_write, {2, 1, ENOSPC}, "cannot write: No space left on device"},
    {&on_write, {1, 1, EIO}, "Input/output error"},
    {&on_write, {1, 1, 0}, "Input/output error"}, /* it takes nothing */
    {&on_fsync, {0, 1, EIO}, "Input/output error"},
    {&on_fsync, {0, 3, EINTR}, NULL},
    {&on_fsync, {0, 1, EINVAL}, NULL}, /* unknown to the file system */
    /* The folder's: the new file is in its place already. */
    {&on_fsync, {1, 1, EIO}, NULL},
    {&on_open, {1, 1, EACCES}, NULL},
    {&on_close, {0, 1, EDQUOT}, "quota exceeded"},
    {&on_close, {0, 1, EINTR}, NULL},
    {&on_rename, {0, 1, EBUSY}, "cannot replace it: Device or resource busy"},
    {&on_fchmod, {0, 1, EPERM}, "cannot keep its permissions"},
    {&on_open, {0, 1, EMFILE}, "Too many open files"},
    {&on_open, {0, 2, EINTR}, NULL},
};

TEST(calls_that_fail, .loops = (int)COUNT(faults), .before = set_up, .after = scratch_remove)
{
    *faults[_i].call = faults[_i].fault;
    if (faults[_i].reason)
        expect_failure(faults[_i].reason);
    else
        expect_success();
}

TEST(interrupted_and_short_writes, .before = set_up, .after = scratch_remove)
{
    longest_write = 4093;
    on_write = (struct fault){.after = 3, .times = 5, .error = EINTR};
    expect_success();
}

TEST(interrupted_open, .before = set_up, .after = scratch_remove)
{
    struct file_map f;
    expect_success();
    on_open = (struct fault){.times = 2, .error = EINTR};
    expect_ok(file_map_open(&f, path, NULL));
    ck_assert(on_open.times == 0 && f.len == LEN);
    file_map_close(&f);
}

TEST(read_that_fails, .before = set_up, .after = scratch_remove)
{
    char *found;
    size_t len;
    struct err e = {0};
    on_read = (struct fault){.times = 3, .error = EINTR};
    expect_ok(file_read_all(path, 99, &found, &len, NULL));
    ck_assert_str_eq(found, "old");
    free(found);
    on_read = (struct fault){.after = 1, .times = 1, .error = EIO};
    ck_assert_int_eq(file_read_all(path, 99, &found, &len, &e), STATUS_BAD_FILE);
    ck_assert_ptr_null(found);
    ck_assert_msg(strstr(e.text, path) && strstr(e.text, "cannot read: Input/output error"), "%s",
                  e.text);
}
