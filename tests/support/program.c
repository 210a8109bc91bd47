#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/job.h"
#include "cli/program.h"
#include "support.h"

static size_t read_back(FILE *f, char *to, size_t size)
{
    fseek(f, 0, SEEK_END);
    const long len = ftell(f);
    rewind(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
    return (size_t)len;
}

void run_child(struct ran *r, void (*body)(void *context), void *context)
{
    FILE *out = tmpfile(), *errors = tmpfile();
    ck_assert(out && errors);
    fflush(NULL); /* or the child prints it again */
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(errors), STDERR_FILENO);
        signal(SIGALRM, SIG_DFL); /* Check's own handler kills the suite with it */
        const char *factor = getenv("CK_TIMEOUT_MULTIPLIER");
        alarm(20 * (unsigned)(factor ? atoi(factor) : 1));
        body(context);
        _exit(77);
    }
    int status;
    struct rusage used;
    ck_assert_int_eq(wait4(child, &status, 0, &used), child);
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    r->max_rss_kib = used.ru_maxrss;
    r->out_len = read_back(out, r->out, sizeof r->out);
    read_back(errors, r->err, sizeof r->err);
}

/* What the child is to be. */
struct call {
    char *args[MAX_ARGS + 2];
    int n;
    program_setup *setup;
    void *context;
};

static void be_program(void *of)
{
    struct call *c = of;
    if (c->setup)
        c->setup(c->context);
    exit(program_run(c->n, c->args));
}

void run_program(struct ran *r, const char *line, program_setup *setup, void *context)
{
    char name[] = "decode", words[8192], *rest = words;
    struct call call = {.args = {name}, .n = 1, .setup = setup, .context = context};
    ck_assert_uint_lt(strlen(line), sizeof words);
    strcpy(words, line);
    for (; rest; call.n++) {
        char *word = strsep(&rest, " ");
        ck_assert_int_le(call.n, MAX_ARGS);
        call.args[call.n] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
    run_child(r, be_program, &call);
}

void limit_to(void *context)
{
    const struct limit *l = context;
    const struct rlimit limits = {l->value, l->value};
    volatile char grown[256 << 10]; /* a stack that cannot grow later ends a program by a signal */
    for (size_t i = 0; i < sizeof grown; i += 1024)
        grown[i] = 1;
    if (setrlimit((unsigned)l->resource, &limits) != 0)
        _exit(99);
}

void expect_refusal(const struct ran *r, int code, const char *text)
{
    ck_assert_msg(r->code == code, "exit %d (signal %d) instead of %d: %s", r->code, r->signal,
                  code, r->err);
    ck_assert_uint_eq(r->out_len, 0);
    ck_assert_msg(strncmp(r->err, "decode: ", 8) == 0 && strstr(r->err, text),
                  "\"%s\" does not say \"%s\"", r->err, text);
    ck_assert_msg(strchr(r->err, '\n') == r->err + strlen(r->err) - 1, "not one line: %s", r->err);
    for (const char *c = r->err; *c; c++)
        ck_assert_msg((unsigned char)*c >= 0x20 || *c == '\n', "control character %d", *c);
}

void expect_success(const struct ran *r)
{
    ck_assert_msg(r->code == 0, "exit %d (signal %d): %s", r->code, r->signal, r->err);
}
