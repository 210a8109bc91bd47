#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support.h"

/* Any user but root, for whom permissions mean something. */
#define NOBODY 65534

static char folder[512];

/* A path in the scratch folder; valid until the fourth call after this one. */
static const char *in_folder(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void set_up(void)
{
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    folder[strlen(folder) - 1] = 0;
    ck_assert_int_eq(chmod(folder, 0755), 0);
}

static void make_file(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

static void expect_text(const char *path, const char *text)
{
    expect_bytes(path, text, strlen(text));
}

/* How many names the scratch folder holds, hidden ones included. */
static int names_in_folder(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* For what is restored by setrlimit. */
static struct rlimit lower_limit(int resource, rlim_t value)
{
    struct rlimit limit, small;
    ck_assert_int_eq(getrlimit((unsigned)resource, &limit), 0);
    small = (struct rlimit){.rlim_cur = value, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit((unsigned)resource, &small), 0);
    return limit;
}

#define IN_FOLDER .before = set_up

/* --- mapping ------------------------------------------------------------------------------- */

TEST(map_gives_the_files_bytes, IN_FOLDER)
{
    make_file(in_folder("a"), "some bytes");
    struct file_map f;
    expect_ok(file_map_open(&f, in_folder("a"), &err));
    ck_assert_uint_eq(f.len, 10);
    ck_assert_mem_eq(f.data, "some bytes", 10);
    file_map_close(&f);
    ck_assert_ptr_null(f.data);
    file_map_close(&f);
}

TEST(map_of_empty_file_is_empty, IN_FOLDER)
{
    make_file(in_folder("empty"), "");
    struct file_map f = {.data = (const unsigned char *)"x", .len = 1};
    expect_ok(file_map_open(&f, in_folder("empty"), NULL));
    ck_assert(!f.data && f.len == 0);
    file_map_release(&f, "x", 1);
    file_map_close(&f);
}

static void expect_no_map(const char *path, const char *reason)
{
    struct file_map f = {.data = (const unsigned char *)"x", .len = 1};
    ck_assert_int_eq(file_map_open(&f, path, &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(f.data);
    expect_says(err.text, path);
    expect_says(err.text, reason);
}

TEST(map_refuses_what_is_no_regular_file, IN_FOLDER)
{
    expect_no_map(in_folder("missing"), "No such file");
    expect_no_map("", "name is empty");
    expect_no_map(folder, "found a directory");
    expect_no_map("/dev/zero", "found a device");
    /* Nobody writes to it: opening must not wait. */
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
    alarm(5);
    expect_no_map(in_folder("fifo"), "found a pipe");
    alarm(0);
}

TEST(map_of_sparse_file_above_2_gib, IN_FOLDER)
{
    const off_t len = ((off_t)5 << 29) + 1;
    make_file(in_folder("sparse"), "start");
    ck_assert_int_eq(truncate(in_folder("sparse"), len), 0);
    struct file_map f;
    const enum status s = file_map_open(&f, in_folder("sparse"), &err);
    if (sizeof(size_t) > 4) {
        expect_ok(s);
        ck_assert_uint_eq(f.len, (size_t)len);
        ck_assert_int_eq(f.data[len - 1], 0);
        file_map_close(&f);
    } else {
        ck_assert_int_eq(s, STATUS_NO_MEMORY);
    }
}

TEST(map_without_address_space_is_out_of_memory, IN_FOLDER)
{
    const off_t len = sizeof(size_t) > 4 ? (off_t)1 << 33 : (off_t)3 << 29;
    make_file(in_folder("large"), "x");
    ck_assert_int_eq(truncate(in_folder("large"), len), 0);
    const struct rlimit limit = lower_limit(RLIMIT_AS, 1 << 30);
    struct file_map f;
    const enum status s = file_map_open(&f, in_folder("large"), &err);
    setrlimit(RLIMIT_AS, &limit);
    ck_assert_msg(s == STATUS_NO_MEMORY, "status %d: %s", (int)s, err.text);
    expect_says(err.text, "large: cannot map into memory");
    ck_assert_ptr_null(f.data);
}

TEST(released_pages_can_still_be_read, IN_FOLDER)
{
    const size_t len = 1 << 20;
    unsigned char *bytes = malloc(len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 7 + (i >> 12));
    struct file_writer *w;
    expect_ok(file_writer_open(&w, in_folder("pages"), NULL));
    file_writer_put(w, bytes, len);
    expect_ok(file_writer_commit(w, NULL));

    struct file_map f;
    expect_ok(file_map_open(&f, in_folder("pages"), NULL));
    file_map_release(&f, f.data + 100, len - 200);
    file_map_release(&f, f.data + len - 10, 1 << 30);
    file_map_release(&f, f.data + len, 0);
    file_map_release(&f, bytes, len);
    ck_assert_mem_eq(f.data, bytes, len);
    file_map_close(&f);
    free(bytes);
}

/* --- reading whole ------------------------------------------------------------------------- */

TEST(read_all_ends_with_a_zero_that_is_not_counted, IN_FOLDER)
{
    make_file(in_folder("a"), "text");
    expect_text(in_folder("a"), "text");
    make_file(in_folder("empty"), "");
    expect_text(in_folder("empty"), "");
}

TEST(read_all_takes_max_bytes_and_no_more, IN_FOLDER)
{
    char *text;
    size_t len;
    make_file(in_folder("a"), "12345");
    expect_ok(file_read_all(in_folder("a"), 5, &text, &len, &err));
    ck_assert_uint_eq(len, 5);
    free(text);
    ck_assert_int_eq(file_read_all(in_folder("a"), 4, &text, &len, &err), STATUS_USAGE);
    ck_assert_ptr_null(text);
    expect_says(err.text, "more than the 4 bytes");
    ck_assert_int_eq(file_read_all(in_folder("a"), 0, &text, &len, &err), STATUS_USAGE);
    expect_status(file_read_all("/dev/zero", 100000, &text, &len, &err), STATUS_USAGE, "/dev/zero");
    expect_ok(file_read_all(in_folder("a"), SIZE_MAX, &text, &len, &err));
    ck_assert_str_eq(text, "12345");
    free(text);
}

TEST(read_all_refuses_what_it_cannot_read, IN_FOLDER)
{
    char *text;
    size_t len;
    expect_status(file_read_all(in_folder("missing"), 9, &text, &len, &err), STATUS_BAD_FILE,
                  "missing: cannot open: No such file");
    expect_status(file_read_all(folder, 9, &text, &len, &err), STATUS_BAD_FILE, "Is a directory");
    expect_status(file_read_all("", 9, &text, &len, &err), STATUS_BAD_FILE, "empty");
    ck_assert_ptr_null(text);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

/* A pipe that is slow, non-blocking, and read while a timer interrupts every call. */
TEST(read_all_of_standard_input_survives_interrupts, IN_FOLDER)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t writer = fork();
    if (writer == 0) {
        for (int i = 0; i < 40; i++) {
            usleep(2000);
            if (write(ends[1], "0123456789", 10) != 10)
                _exit(1);
        }
        _exit(0);
    }
    close(ends[1]);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    const int kept = dup(STDIN_FILENO);
    ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    struct sigaction action = {.sa_handler = on_alarm};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, NULL), 0);

    char *text;
    size_t len;
    const enum status s = file_read_all("-", 1000, &text, &len, &err);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    dup2(kept, STDIN_FILENO);
    expect_ok(s);
    ck_assert_uint_eq(len, 400);
    ck_assert_mem_eq(text + 390, "0123456789", 11);
    free(text);
    waitpid(writer, NULL, 0);
}

TEST(read_all_grows_with_a_pipe_longer_than_its_first_buffer, IN_FOLDER)
{
    const size_t len = 300001;
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
    const pid_t writer = fork();
    if (writer == 0) {
        const int fd = open(in_folder("fifo"), O_WRONLY);
        for (size_t i = 0; i < len; i++)
            if (write(fd, &"abcdefg"[i % 7], 1) != 1)
                _exit(1);
        _exit(0);
    }
    char *text;
    size_t found;
    expect_ok(file_read_all(in_folder("fifo"), 1 << 20, &text, &found, NULL));
    ck_assert_uint_eq(found, len);
    for (size_t i = 0; i < len; i++)
        ck_assert_int_eq(text[i], "abcdefg"[i % 7]);
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

static mode_t mode_of(const char *path)
{
    struct stat st;
    ck_assert_int_eq(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

TEST(writer_makes_a_new_file_with_the_umask, IN_FOLDER)
{
    const mode_t old = umask(027);
    expect_ok(replace(in_folder("new"), "text", NULL));
    umask(old);
    expect_text(in_folder("new"), "text");
    ck_assert(mode_of(in_folder("new")) == 0640 && names_in_folder() == 1);
}

TEST(writer_replaces_and_keeps_the_mode, IN_FOLDER)
{
    make_file(in_folder("a"), "old");
    ck_assert_int_eq(chmod(in_folder("a"), 0604), 0);
    expect_ok(replace(in_folder("a"), "new", NULL));
    expect_text(in_folder("a"), "new");
    ck_assert(mode_of(in_folder("a")) == 0604 && names_in_folder() == 1);
}

TEST(writer_works_without_a_folder_in_the_path, IN_FOLDER)
{
    char before[1024];
    ck_assert(getcwd(before, sizeof before) && chdir(folder) == 0);
    expect_ok(replace("plain", "text", NULL));
    ck_assert_int_eq(chdir(before), 0);
    expect_text(in_folder("plain"), "text");
}

TEST(writer_follows_links, IN_FOLDER)
{
    ck_assert_int_eq(mkdir(in_folder("sub"), 0755), 0);
    make_file(in_folder("sub/file"), "old");
    ck_assert_int_eq(symlink("sub/second", in_folder("first")), 0);
    ck_assert_int_eq(symlink("file", in_folder("sub/second")), 0);
    expect_ok(replace(in_folder("first"), "new", NULL));
    expect_text(in_folder("sub/file"), "new");
    ck_assert_int_eq(symlink(in_folder("sub/file"), in_folder("absolute")), 0);
    expect_ok(replace(in_folder("absolute"), "newer", NULL));
    expect_text(in_folder("first"), "newer");
    /* A link to nothing makes what it names. */
    ck_assert_int_eq(symlink("sub/made", in_folder("dangling")), 0);
    expect_ok(replace(in_folder("dangling"), "made", NULL));
    expect_text(in_folder("sub/made"), "made");
    struct stat st;
    ck_assert(lstat(in_folder("first"), &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert(lstat(in_folder("dangling"), &st) == 0 && S_ISLNK(st.st_mode));
}

static void expect_no_replace(const char *path, const char *reason)
{
    const int before = names_in_folder();
    ck_assert_int_eq(replace(path, "new", &err), STATUS_FAILED);
    expect_says(err.text, path);
    expect_says(err.text, reason);
    ck_assert_int_eq(names_in_folder(), before);
}

TEST(writer_refuses_what_it_must_not_replace, IN_FOLDER)
{
    expect_no_replace("", "empty");
    make_file(in_folder("a"), "old");
    expect_no_replace(in_folder("a/b"), "Not a directory");
}

static bool become_nobody(void)
{
    return geteuid() != 0 || seteuid(NOBODY) == 0;
}

static void become_root_again(void)
{
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}

TEST(read_only_folders_and_files, IN_FOLDER)
{
    make_file(in_folder("a"), "old");
    ck_assert(chmod(in_folder("a"), 0666) == 0 && chmod(folder, 0555) == 0);
    if (become_nobody()) {
        expect_no_replace(in_folder("a"), "Permission denied");
        expect_no_replace(in_folder("new"), "Permission denied");
    }
    become_root_again();
    ck_assert(chmod(in_folder("a"), 0444) == 0 && chmod(folder, 0777) == 0);
    if (become_nobody())
        expect_no_replace(in_folder("a"), "Permission denied");
    become_root_again();
    expect_text(in_folder("a"), "old");
}

/* The limit stands for a full disk: the write that reaches it is cut short, the next one fails. */
TEST(writer_failure_leaves_old_file_and_nothing_else, IN_FOLDER)
{
    make_file(in_folder("a"), "old");
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = lower_limit(RLIMIT_FSIZE, 600000);
    char *bytes = calloc(1, 1000000);
    struct file_writer *w;
    expect_ok(file_writer_open(&w, in_folder("a"), &err));
    ck_assert_int_eq(names_in_folder(), 2);
    file_writer_put(w, bytes, 1000000);
    file_writer_put(w, bytes, 10);
    file_writer_put(w, bytes, 1000000);
    const enum status s = file_writer_commit(w, &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    expect_says(err.text, in_folder("a"));
    expect_status(s, STATUS_FAILED, "File too large");
    expect_text(in_folder("a"), "old");
    ck_assert_int_eq(names_in_folder(), 1);
    free(bytes);
}

TEST(writer_rename_failure_leaves_nothing, IN_FOLDER)
{
    struct file_writer *w;
    expect_ok(file_writer_open(&w, in_folder("a"), &err));
    ck_assert_int_eq(mkdir(in_folder("a"), 0755), 0);
    expect_status(file_writer_commit(w, &err), STATUS_FAILED, "Is a directory");
    ck_assert_int_eq(names_in_folder(), 1);
}

TEST(writer_abandon_leaves_old_file, IN_FOLDER)
{
    make_file(in_folder("a"), "old");
    struct file_writer *w;
    expect_ok(file_writer_open(&w, in_folder("a"), NULL));
    file_writer_put(w, "new", 3);
    file_writer_abandon(w);
    file_writer_abandon(NULL);
    expect_text(in_folder("a"), "old");
    ck_assert_int_eq(names_in_folder(), 1);
}

TEST(writer_steps_over_temporaries_in_use, IN_FOLDER)
{
    struct file_writer *first, *second;
    expect_ok(file_writer_open(&first, in_folder("a"), NULL));
    expect_ok(file_writer_open(&second, in_folder("a"), NULL));
    file_writer_put(first, "first", 5);
    file_writer_put(second, "second", 6);
    expect_ok(file_writer_commit(second, NULL));
    expect_text(in_folder("a"), "second");
    expect_ok(file_writer_commit(first, NULL));
    expect_text(in_folder("a"), "first");
    ck_assert_int_eq(names_in_folder(), 1);
}

TEST(writer_accepts_the_longest_name, IN_FOLDER)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    expect_ok(replace(in_folder(name), "text", NULL));
    expect_text(in_folder(name), "text");
}

/* --- what others left, or put there -------------------------------------------------------- */

static void write_once(const char *path, enum status expected, const char *says)
{
    expect_status(replace(path, "new", &err), expected, says);
}

static void make_old(const char *path)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

TEST(temporaries_of_the_dead_are_removed, IN_FOLDER)
{
    static const char *const names[] = {".decode-99-0.tmp", ".decode-99-live.tmp",
                                        ".decode-99-new.tmp", ".decode-notes", "other.tmp"};
    for (size_t i = 0; i < COUNT(names); i++) {
        make_file(in_folder(names[i]), "left");
        if (i != 2)
            make_old(in_folder(names[i]));
    }
    const int held = open(in_folder(names[1]), O_RDONLY);
    ck_assert_int_eq(flock(held, LOCK_EX), 0);
    write_once(in_folder("out"), STATUS_OK, "");
    ck_assert_int_ne(access(in_folder(names[0]), F_OK), 0);
    for (size_t i = 1; i < COUNT(names); i++)
        expect_text(in_folder(names[i]), "left");
    close(held);
}

TEST(links_that_others_planted_are_not_followed, IN_FOLDER)
{
    if (geteuid() != 0)
        return; /* others' links are made by root only */
    make_file(in_folder("precious"), "old");
    ck_assert_int_eq(symlink("precious", in_folder("link")), 0);
    ck_assert_int_eq(lchown(in_folder("link"), NOBODY, NOBODY), 0);
    write_once(in_folder("link"), STATUS_OK, ""); /* in a folder of one's own */
    expect_text(in_folder("precious"), "new");
    make_file(in_folder("precious"), "old");
    ck_assert_int_eq(chmod(folder, 01777), 0);
    write_once(in_folder("link"), STATUS_FAILED, "found another user's");
    expect_text(in_folder("precious"), "old");
    ck_assert_int_eq(lchown(in_folder("link"), 0, 0), 0);
    write_once(in_folder("link"), STATUS_OK, "");
    expect_text(in_folder("precious"), "new");
}

TEST(a_group_that_cannot_be_kept_gets_no_rights, IN_FOLDER)
{
    if (geteuid() != 0)
        return; /* files of other groups are made by root only */
    struct stat st;
    make_file(in_folder("out"), "old");
    ck_assert(chown(in_folder("out"), NOBODY, 0) == 0 && chmod(in_folder("out"), 0664) == 0);
    ck_assert_int_eq(chown(folder, NOBODY, NOBODY), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(1);
        write_once(in_folder("out"), STATUS_OK, "");
        _exit(0);
    }
    int ended;
    ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
    ck_assert(ended == 0 && stat(in_folder("out"), &st) == 0 && st.st_gid == NOBODY);
    ck_assert_int_eq(st.st_mode & 0777, 0604);
    /* Root keeps it. */
    ck_assert(chown(in_folder("out"), 0, NOBODY) == 0 && chmod(in_folder("out"), 0664) == 0);
    write_once(in_folder("out"), STATUS_OK, "");
    ck_assert(stat(in_folder("out"), &st) == 0 && st.st_gid == NOBODY);
    ck_assert_int_eq(st.st_mode & 0777, 0664);
}
