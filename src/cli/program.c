#include "cli/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/output.h"
#include "cli/job.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "compute/kernels.h"
#include "show/paragraph.h"

/*
 * A closed standard descriptor would be given to the next file opened, which would then be
 * written to in its place. So it is filled with one on which every access fails.
 */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            return;
}

static enum status print_version(struct output *out, struct err *e)
{
    const struct kernels *chosen;
    const struct common_options quiet = {.quiet = true};
    TRY(job_choose_kernels(&quiet, &chosen, e));
    output_printf(out, "decode %s\ncompiler           %s\n", DECODE_VERSION, compiler_name());
    output_puts(out, "compiled in       ");
    for (int i = 0; kernels_at(i); i++)
        output_printf(out, " %s", kernels_at(i)->name);
    output_puts(out, "\nthis machine runs ");
    for (int i = 0; kernels_at(i); i++)
        if (kernels_supported(kernels_at(i)))
            output_printf(out, " %s", kernels_at(i)->name);
    output_printf(out, "\nused               %s\nthreads            %d\n", chosen->name,
                  cpus_usable());
    return STATUS_OK;
}

/* *command is its name, once that is known. */
static enum status run_named(int argc, char **argv, struct output *out, const char **command,
                             struct err *e)
{
    const uint64_t start_ns = clock_ns();
    const char *name = argv[0];
    const struct command *c;
    if (strcmp(name, "--version") == 0 && argc > 1)
        return err_set(e, STATUS_USAGE, "unexpected argument '%.60s'", argv[1]);
    if (strcmp(name, "--version") == 0)
        return print_version(out, e);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = command_help.name;
    TRY(command_named(name, &c, e));
    *command = c->name;
    return job_run(c, argc - 1, argv + 1, out, start_ns, e);
}

/* `command` is NULL where none is known. */
static void print_error(const char *command, enum status s, const struct err *e)
{
    const char *name = command ? command : "";
    char line[sizeof e->text + 128];
    const int len =
        snprintf(line, sizeof line, "decode: %s%s%s", name, command ? ": " : "", e->text);
    if (s == STATUS_USAGE)
        snprintf(line + len, sizeof line - (size_t)len, " (see 'decode help%s%s')",
                 command ? " " : "", name);
    notice_put(line, NOTICE_INDENT);
}

int program_run(int argc, char **argv)
{
    struct descriptor out;
    const char *command = NULL;
    struct err e = {""};
    fill_standard_descriptors();
    signals_install();
    if (argc < 2) {
        descriptor_init(&out, STDERR_FILENO);
        help_print(&out.out);
        output_flush(&out.out);
        return STATUS_USAGE;
    }
    descriptor_init(&out, STDOUT_FILENO);
    terminal_describe(&out.out);
    enum status s = run_named(argc - 1, argv + 1, &out.out, &command, &e);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        print_error(command, s, &e);
    struct err lost = {""};
    const enum status closed = descriptor_close(&out, &lost);
    if (closed == STATUS_OK || (s != STATUS_OK && s != STATUS_INTERRUPTED))
        return s;
    if (!descriptor_is_unread(&out))
        print_error(command, closed, &lost);
    else if (!signals_interrupted())
        signals_end_by_pipe();
    return descriptor_is_unread(&out) ? STATUS_INTERRUPTED : closed;
}
