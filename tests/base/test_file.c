/* Tests of mapping, reading and replacing files, also where another process left or put a file.
 * (test_faults.c has calls into the system that fail, are interrupted or move one byte.) */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "faults.h"
#include "support.h"

/* --- the scratch folder -------------------------------------------------------------------- */

/* Becomes a user other than root, so that permissions apply. */
#define NOBODY 65534

static char folder[512];
static const char *a, *b; /* paths in it */

static void set_up(void)
{
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    folder[strlen(folder) - 1] = 0;
    a = scratch_path("a");
    b = scratch_path("b");
    ck_assert_int_eq(chmod(folder, 0755), 0);
}

#define IN_FOLDER .before = set_up

static const char *make_file(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
    return path;
}

static void expect_text(const char *path, const char *text)
{
    expect_bytes(path, text, strlen(text));
}

/* Expects so many names in the folder, hidden ones included. */
static void expect_names(int expected)
{
    int n = -2; /* . and .. */
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    ck_assert_int_eq(n, expected);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* --- mapping ------------------------------------------------------------------------------- */

TEST(map_gives_the_files_bytes, IN_FOLDER)
{
    struct file_map f;
    expect_ok(file_map_open(&f, make_file(a, "some bytes"), &err));
    ck_assert(f.len == 10 && memcmp(f.data, "some bytes", 10) == 0);
    file_map_close(&f);
    ck_assert_ptr_null(f.data);
    file_map_close(&f);
    f = (struct file_map){.data = (const unsigned char *)"x", .len = 1};
    expect_ok(file_map_open(&f, make_file(b, ""), NULL));
    ck_assert(!f.data && f.len == 0);
    file_map_release(&f, "x", 1);
    file_map_close(&f);
}

TEST(released_pages_can_still_be_read, IN_FOLDER)
{
    const size_t len = 1 << 20;
    unsigned char *bytes = allocated(len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 12));
    write_file(a, bytes, len);
    struct file_map f;
    expect_ok(file_map_open(&f, a, NULL));
    file_map_release(&f, f.data + 100, len - 200);
    file_map_release(&f, f.data + len - 10, 1 << 30);
    file_map_release(&f, f.data + len, 0);
    file_map_release(&f, bytes, len);
    ck_assert_mem_eq(f.data, bytes, len);
    file_map_close(&f);
}

/* --- reading whole ------------------------------------------------------------------------- */

TEST(read_all, IN_FOLDER)
{
    char *text;
    size_t len;
    const struct {
        const char *path;
        size_t max;
        enum status status;
        const char *says;
    } cases[] = {
        {make_file(a, "12345"), 5, STATUS_OK, "12345"},
        {a, SIZE_MAX, STATUS_OK, "12345"},
        {make_file(b, ""), 0, STATUS_OK, ""},
        {a, 4, STATUS_USAGE, "more than the 4 bytes"},
        {a, 0, STATUS_USAGE, ""},
        {"/dev/zero", 100000, STATUS_USAGE, "/dev/zero"},
        {scratch_path("missing"), 9, STATUS_BAD_FILE, "missing: cannot open: No such file"},
        {folder, 9, STATUS_BAD_FILE, "Is a directory"},
        {"", 9, STATUS_BAD_FILE, "empty"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const enum status s = file_read_all(cases[i].path, cases[i].max, &text, &len, &err);
        expect_status(s, cases[i].status, cases[i].says);
        ck_assert(s ? !text : strcmp(text, cases[i].says) == 0 && len == strlen(text));
        free(text);
    }
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

/* One pipe is slow, non-blocking, and read while a timer interrupts every call; the other has more
 * than the first buffer holds. */
TEST(read_all_of_pipes, .loops = 2)
{
    const size_t piece = _i ? 1 : 10, n = _i ? 300001 : 400;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t writer = fork();
    if (writer == 0) {
        for (size_t i = 0; i < n; i += piece)
            if ((_i == 0 && usleep(2000)) ||
                write(ends[1], &"abcdefgabcdefgabcdef"[i % 7], piece) < 0)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    const int kept = dup(STDIN_FILENO);
    ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    const struct sigaction action = {.sa_handler = on_alarm};
    if (_i == 0) {
        ck_assert_int_eq(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK), 0);
        ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
        ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, NULL), 0);
    }
    char *text;
    size_t len;
    const enum status s = file_read_all("-", 1 << 20, &text, &len, &err);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    dup2(kept, STDIN_FILENO);
    expect_ok(s);
    ck_assert_uint_eq(len, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(text[i], "abcdefg"[i % 7]);
    ck_assert_int_eq(text[n], 0);
    free(text);
    waitpid(writer, NULL, 0);
}

/* --- writing ------------------------------------------------------------------------------- */

static enum status replace(const char *path, const char *text, struct err *e)
{
    struct file_writer *w;
    const enum status s = file_writer_open(&w, path, e);
    if (s) {
        ck_assert_ptr_null(w);
        return s;
    }
    file_writer_put(w, text, strlen(text));
    return file_writer_commit(w, e);
}

/* Expect that the file is replaced, or that it stays and the message has this reason. */
static void expect_replaced(const char *path, const char *text, const char *instead)
{
    expect_ok(replace(path, text, &err));
    expect_text(instead, text);
}

static void expect_kept(const char *path, const char *reason)
{
    ck_assert_int_eq(replace(path, "new", &err), STATUS_FAILED);
    expect_says(err.text, path);
    expect_says(err.text, reason);
}

TEST(writer_makes_and_replaces, IN_FOLDER)
{
    char name[256] = "", before[1024];
    const mode_t old = umask(027);
    expect_replaced(a, "text", a);
    umask(old);
    ck_assert_uint_eq(mode_of(a), 0640);
    ck_assert_int_eq(chmod(a, 0604), 0);
    expect_replaced(a, "new", a);
    ck_assert_uint_eq(mode_of(a), 0604);
    memset(name, 'n', 255); /* the longest */
    expect_replaced(scratch_path(name), "text", scratch_path(name));
    ck_assert(getcwd(before, sizeof before) && chdir(folder) == 0);
    expect_ok(replace("b", "plain", NULL));
    ck_assert_int_eq(chdir(before), 0);
    expect_text(b, "plain");
    expect_names(3);
    expect_kept("", "empty");
    expect_kept(scratch_path("a/b"), "Not a directory");
    expect_names(3);
}

/* A link stays a link; where it leads to nothing, the file that it names is made. */
TEST(writer_follows_links, IN_FOLDER)
{
    const char *file = scratch_path("sub/file"), *second = scratch_path("sub/second");
    const char *dangling = scratch_path("dangling"), *absolute = scratch_path("absolute");
    ck_assert_int_eq(mkdir(scratch_path("sub"), 0755), 0);
    make_file(file, "old");
    ck_assert(symlink("sub/second", a) == 0 && symlink("file", second) == 0);
    ck_assert(symlink(file, absolute) == 0 && symlink("sub/made", dangling) == 0);
    expect_replaced(a, "new", file);
    expect_replaced(absolute, "newer", file);
    expect_replaced(dangling, "made", scratch_path("sub/made"));
    struct stat st;
    ck_assert(lstat(a, &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert(lstat(dangling, &st) == 0 && S_ISLNK(st.st_mode));
}

TEST(read_only_folders_and_files, IN_FOLDER)
{
    const bool root = geteuid() == 0;
    make_file(a, "old");
    ck_assert(chmod(a, 0666) == 0 && chmod(folder, 0555) == 0 && (!root || seteuid(NOBODY) == 0));
    expect_kept(a, "Permission denied");
    expect_kept(b, "Permission denied");
    ck_assert(!root || seteuid(0) == 0);
    ck_assert(chmod(a, 0444) == 0 && chmod(folder, 0777) == 0 && (!root || seteuid(NOBODY) == 0));
    expect_kept(a, "Permission denied");
    ck_assert(!root || seteuid(0) == 0);
    expect_text(a, "old");
    expect_names(1);
}

/* A writer that finds a folder in the file's place leaves nothing either. */
TEST(an_abandoned_writer_leaves_nothing, IN_FOLDER)
{
    struct file_writer *w;
    expect_ok(file_writer_open(&w, make_file(a, "old"), NULL));
    expect_names(2);
    file_writer_put(w, "new", 3);
    file_writer_abandon(w);
    file_writer_abandon(NULL);
    expect_text(a, "old");
    expect_ok(file_writer_open(&w, b, &err));
    ck_assert_int_eq(mkdir(b, 0755), 0);
    expect_status(file_writer_commit(w, &err), STATUS_FAILED, "Is a directory");
    expect_names(2);
}

/* --- writing, with calls that fail ----------------------------------------------------------- */

#define LEN 600000

/* Replaces "old" by LEN bytes, in pieces, while a call fails. With a reason the file must stay the
 * old one; without one it must be the new one. Nothing else may be left. */
static void replace_long(size_t piece, struct fault_plan plan, const char *reason)
{
    static char bytes[LEN];
    struct file_writer *w;
    const char *path = scratch_path("file");
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 13 >> 2);
    make_file(path, "old");
    faults_arm(&plan);
    enum status s = file_writer_open(&w, path, &err);
    if (!s) {
        for (size_t at = 0; at < LEN; at += piece)
            file_writer_put(w, bytes + at, LEN - at < piece ? LEN - at : piece);
        file_writer_put(w, NULL, 0);
        s = file_writer_commit(w, &err);
    }
    faults_disarm();
    ck_assert_int_eq(faults_report()->met, plan.error != 0);
    if (reason) {
        expect_says(err.text, path);
        expect_status(s, STATUS_FAILED, reason);
        expect_text(path, "old");
    } else {
        expect_ok(s);
        expect_bytes(path, bytes, LEN);
    }
    expect_names(1);
}

/* The sizes are near that of the buffer, 256 KiB. */
TEST(pieces_of_many_sizes, IN_FOLDER)
{
    static const size_t pieces[] = {1, 4095, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, LEN};
    for (size_t i = 0; i < COUNT(pieces); i++)
        replace_long(pieces[i], (struct fault_plan){.error = 0}, NULL);
}

/* (test_faults.c has the usual errors.) */
TEST(calls_that_fail, IN_FOLDER)
{
    /* The calls are one that the file system does not know, a close that fails after it has closed,
     * and fchmod, which comes before the rename. */
    replace_long(LEN, (struct fault_plan){FAULT_SYNC, .error = EINVAL}, NULL);
    replace_long(LEN, (struct fault_plan){FAULT_CLOSE, .error = EINTR}, NULL);
    replace_long(LEN, (struct fault_plan){FAULT_RENAME, .error = EPERM},
                 "cannot keep its permissions");
}

/* --- what others left, or put there -------------------------------------------------------- */

/* Only root can make files of other groups. */
TEST(a_group_that_cannot_be_kept_gets_no_rights, IN_FOLDER)
{
    if (geteuid() != 0)
        return;
    struct stat st;
    int ended;
    make_file(a, "old");
    ck_assert(chown(a, NOBODY, 0) == 0 && chmod(a, 0664) == 0);
    ck_assert_int_eq(chown(folder, NOBODY, NOBODY), 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0 ||
              replace(a, "new", NULL) != STATUS_OK);
    ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
    ck_assert(ended == 0 && stat(a, &st) == 0 && st.st_gid == NOBODY);
    ck_assert_uint_eq(mode_of(a), 0604);
    /* Root keeps the group. */
    ck_assert(chown(a, 0, NOBODY) == 0 && chmod(a, 0664) == 0);
    expect_replaced(a, "new", a);
    ck_assert(stat(a, &st) == 0 && st.st_gid == NOBODY);
    ck_assert_uint_eq(mode_of(a), 0664);
}
