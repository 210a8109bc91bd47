/* Runs the program on a terminal: tables fit its width, there are colours and a line of progress,
 * and sessions are edited by keys. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile.h"
#include "program.h"
#include "support.h"

#define MODEL "tests/data/shakespeare-bytes.gguf"

struct screen {
    int master;
    char slave[64];
    unsigned short columns;
};

static struct screen open_screen(unsigned short columns)
{
    struct screen s = {.master = posix_openpt(O_RDWR | O_NOCTTY), .columns = columns};
    ck_assert(s.master >= 0 && grantpt(s.master) == 0 && unlockpt(s.master) == 0);
    ck_assert_int_eq(ptsname_r(s.master, s.slave, sizeof s.slave), 0);
    return s;
}

/* Runs in the child: its output and its standard error go to the terminal. */
static void show_on(void *arg)
{
    const struct screen *s = arg;
    const struct winsize size = {.ws_row = 50, .ws_col = s->columns};
    const int fd = open(s->slave, O_RDWR | O_NOCTTY);
    if (fd < 0 || ioctl(fd, TIOCSWINSZ, &size) != 0 || dup2(fd, STDOUT_FILENO) < 0 ||
        dup2(fd, STDERR_FILENO) < 0)
        _exit(99);
}

/* Returns what the last command line printed, less than a terminal's buffer, without carriage
 * returns before line feeds. */
static char text[4096];

static void print_on_terminal(unsigned short columns, const char *line)
{
    struct ran r;
    struct screen s = open_screen(columns);
    const int kept = open(s.slave, O_RDWR | O_NOCTTY); /* the text outlives the child */
    run_program(&r, line, show_on, &s);
    ck_assert(r.code == 0 && fcntl(s.master, F_SETFL, O_NONBLOCK) == 0);
    size_t len = 0;
    for (ssize_t n; len < 4095 && (n = read(s.master, text + len, 4095 - len)) > 0;)
        len += (size_t)n;
    close(kept);
    close(s.master);
    size_t out = 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] != '\r' || text[i + 1] != '\n')
            text[out++] = text[i];
    text[out] = 0;
}

/* Returns the columns of the longest line without escapes, of a text of one-byte characters; lines
 * of examples do not count. */
static int longest_line(void)
{
    int most = 0, at = 0;
    for (const char *c = text; *c; c++) {
        if (at == 0 && strncmp(c, "  ./decode ", 11) == 0)
            c += strcspn(c, "\r\n");
        if (*c == '\033')
            c += strcspn(c, "mK");
        else
            at = *c == '\n' || *c == '\r' ? 0 : at + ((*c & 0xc0) != 0x80);
        most = at > most ? at : most;
    }
    return most;
}

static const char *const table_commands[] = {
    "bench --shape 2x32x4,vocab=50,ctx=64 --depth 0,40 --batch 1,2 --kv-heads 4 -n 2 --repeat 2",
    "info --shape 2x32x4,vocab=50,ctx=64 --depth 10 --batch 1,32",
    "info --shape 12x768x12",
    "help bench",
    "attend " MODEL " -p to_be --layer 0 --kv-heads 2",
    "score " MODEL " -p to_be --top 3",
    "eval " MODEL " Makefile --range 0:0.01 --against " MODEL,
    "heads " MODEL " Makefile --tokens 4",
};

TEST(tables_fit, .loops = COUNT(table_commands))
{
    static const unsigned short widths[] = {80, 120};
    setenv("NO_COLOR", "1", 1);
    for (int w = 0; w < (SANITIZED ? 1 : 2); w++) {
        print_on_terminal(widths[w], table_commands[_i]);
        ck_assert_msg(longest_line() <= widths[w], "%d of %d: %s", longest_line(), widths[w], text);
    }
}

/* Expects these parts on a screen of so many columns. */
TEST(columns_are_left_out)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"info --shape 2x32x4,vocab=50,ctx=64 -v", "bytes/token q8_0|!left out"},
        {"info --shape 2x32x4,vocab=50,ctx=64", "Too wide, left out:"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        print_on_terminal(60, cases[i].line);
        expect_says(text, cases[i].says);
    }
}

TEST(lines_below_tables_fit)
{
    char line[300];
    const char *path = scratch_path("q.gguf");
    const char *full = "--type q8_0 --kv-heads 8,4,2,1 --calib self:128 --eval LICENSE";
    snprintf(line, sizeof line, "convert " MODEL " %s -o %s", full, path);
    print_on_terminal(80, line);
    ck_assert_msg(longest_line() <= 80 && strstr(text, "per byte"), "%s", text);
    snprintf(line, sizeof line, "info %s --check", path);
    print_on_terminal(60, line);
    ck_assert_msg(longest_line() <= 60, "%s", text);
    expect_says(text, "tensors_checked");
}

/* Once the learning of a vocabulary left "0%" before the next line. */
TEST(no_rests_of_lines)
{
    char line[300];
    snprintf(line, sizeof line,
             "train README.md -o %s --vocab 300 --layers 1 --embd 16 --heads 2 --ctx 16 --batch 1 "
             "--steps 4 --eval-every 2 --seed 1",
             scratch_path("t.gguf"));
    print_on_terminal(60, line);
    ck_assert_msg(longest_line() < 60, "%s", text);
    for (const char *at = text; (at = strstr(at, "decode: ")); at++)
        ck_assert_msg(at == text || at[-1] == '\n' ||
                          (at - text > 3 && strncmp(at - 3, "\033[K", 3) == 0),
                      "%s", text);
}

/* --- a session -------------------------------------------------------------------------------- */

/* Runs in the child: the terminal is that of its session, so that keys become signals. */
static void sit_at(void *arg)
{
    const struct screen *s = arg;
    signal(SIGINT, SIG_DFL);
    setsid();
    const int fd = open(s->slave, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0 || dup2(fd, STDIN_FILENO) != STDIN_FILENO)
        _exit(99);
    show_on(arg);
}

/* A text that is waited for on the screen, behind those before it, and the keys that are typed
 * then. */
struct stroke {
    const char *shown, *typed;
};

/* This is more than any text that is waited for. */
#define TAIL ((size_t)1024)

/* Exits with the number of the stroke whose text did not come, or 0. */
static _Noreturn void type(const struct screen *s, const struct stroke *strokes)
{
    char all[65536] = "";
    size_t len = 0;
    const char *seen = all;
    for (int i = 0; strokes[i].shown; i++) {
        const char *at;
        while (!(at = strstr(seen, strokes[i].shown))) {
            struct pollfd p = {.fd = s->master, .events = POLLIN};
            const ssize_t n =
                poll(&p, 1, 20000) == 1 ? read(s->master, all + len, sizeof all - 1 - len) : 0;
            if (n <= 0)
                _exit(i + 1);
            len += (size_t)n;
            all[len] = 0;
            if (len > sizeof all / 2) { /* an answer that goes on: its end is enough */
                len = strlen(seen) < TAIL ? strlen(seen) : TAIL;
                memmove(all, strchr(seen, 0) - len, len + 1);
                seen = all;
            }
        }
        seen = at + strlen(strokes[i].shown);
        const size_t n = strlen(strokes[i].typed);
        if (write(s->master, strokes[i].typed, n) != (ssize_t)n)
            _exit(i + 1);
    }
    _exit(0);
}

#define CTRL_C "\003"
#define CTRL_D "\004"
#define CTRL_U "\025"
#define UP     "\033[A"
#define PASTE  "\033[200~"
#define PASTED "\033[201~"

/* An answer that does not end; it has all letters. */
#define ASK                                                                                        \
    {"> ", "What is\n"}, {"is\033[J\r\033[9C\r\n", ""}, {"e", CTRL_C},                             \
    {                                                                                              \
        "interrupted after ", ""                                                                   \
    }

static const struct {
    struct stroke strokes[16];
    int code;
    const char *term;
} sessions[] = {
    {{ASK, ASK, {"> ", CTRL_D}, {"peak memory", ""}}, STATUS_OK, "xterm"},
    {{ASK,
      {"> ", "x" CTRL_C},
      {"^C\r\n", ""},
      {"> ", "x" CTRL_U CTRL_C},
      {"interrupted: the session ends", ""},
      {"peak memory", ""}},
     STATUS_INTERRUPTED,
     "xterm"},
    /* Three pasted lines are one prompt, and come back as one. */
    {{{"> ", PASTE "a\nb\nc" PASTED "\n"},
      {"> a\\nb\\nc\033[J\r\033[9C\r\n", ""},
      {"e", CTRL_C},
      {"interrupted after ", ""},
      {"> ", UP},
      {"> a\\nb\\nc", CTRL_U CTRL_D},
      {"prompt       5 tokens", ""},
      {"peak memory", ""}},
     STATUS_OK,
     "xterm"},
    /* A terminal that cannot be drawn on edits lines itself, as it does for any program. */
    {{{"", "wrong" CTRL_U "What is\n"},
      {"What is\r\n", ""},
      {"e", CTRL_C},
      {"interrupted after ", "x" CTRL_U CTRL_D},
      {"peak memory", ""}},
     STATUS_OK,
     "dumb"}};

/* Ctrl-C ends an answer and keeps the session, clears a line, and ends the session on an empty one,
 * as Ctrl-D does. */
TEST(a_session_by_keys, .loops = COUNT(sessions))
{
    char home[4096], line[4200];
    struct screen s = open_screen(80);
    setenv("TERM", sessions[_i].term, 1);
    ck_assert_ptr_nonnull(getcwd(home, sizeof home));
    snprintf(line, sizeof line, "generate %s/" MODEL " -i -n 100M --shift --seed 1 -t 1", home);
    ck_assert_int_eq(chdir(scratch_path("")), 0);
    const int kept = open(s.slave, O_RDWR | O_NOCTTY);
    const pid_t typist = fork();
    ck_assert_int_ge(typist, 0);
    if (typist == 0)
        type(&s, sessions[_i].strokes);
    struct ran r;
    int status;
    run_program(&r, line, sit_at, &s);
    ck_assert_int_eq(waitpid(typist, &status, 0), typist);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "waited in vain for stroke %d",
                  WEXITSTATUS(status));
    ck_assert_int_eq(r.signal, 0);
    ck_assert_int_eq(r.code, sessions[_i].code);
    close(kept);
    close(s.master);
    ck_assert_int_eq(chdir(home), 0);
}

/* A vocabulary may hold commands to a terminal. Every command that prints text shows them and does
 * not send them. */
TEST(text_does_not_command_the_terminal)
{
    static const char *const lines[] = {
        "tokenize " MODEL " --decode 97,27,91,50,74,9,194,155,226,128,174,255,10,98",
        "generate " MODEL " -f %s -n 0 -q", "generate " MODEL " -f %s -n 0 -q --samples 2"};
    static const char spoken[] = "a\x1b[2J\t\xc2\x9b\xe2\x80\xae\xff\nb";
    static const char shown[] = "a\\x1b[2J\t\\xc2\\x9b\\xe2\\x80\\xae\\xff\nb";
    const char *path = scratch_path("text");
    write_file(path, spoken, sizeof spoken - 1);
    for (size_t i = 0; i < COUNT(lines); i++) {
        char line[300];
        struct ran r;
        snprintf(line, sizeof line, lines[i], path);
        print_on_terminal(80, line);
        ck_assert_msg(strstr(text, shown) != NULL, "%s: %s", line, text);
        ck_assert_msg(!strchr(text, '\x1b'), "%s", line);
        /* A pipe gets the bytes as they are. */
        run_program(&r, line, NULL, NULL);
        ck_assert_msg(memmem(r.out, r.out_len, spoken, sizeof spoken - 1) != NULL, "%s", line);
    }
}
