#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/times.h"
#include "cli/job.h"
#include "cli/signals.h"

static enum status print_version(struct output *out, struct err *e)
{
    const struct kernels *chosen;
    const struct common_options quiet = {.quiet = true};
    TRY(job_choose_kernels(&quiet, &chosen, e));
    output_printf(out, "decode %s\ncompiler           %s\n", DECODE_VERSION, COMPILER_NAME);
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

/* `command` is NULL where none is known. */
static void print_error(const struct command *command, enum status s, const struct err *e)
{
    const char *name = command ? command->name : "";
    char line[sizeof e->text + 128];
    chars_printf(line, "%s%s%s", name, command ? ": " : "", e->text);
    if (s == STATUS_USAGE)
        chars_append(line, " (see 'decode help%s%s')", command ? " " : "", name);
    log_error(line);
}

int program_run(int argc, char **argv)
{
    const uint64_t start_ns = clock_ns();
    struct descriptor out;
    const struct command *command = NULL;
    struct err e = {""}, lost = {""};
    /* The next file that is opened would get the number of a closed standard descriptor, and be
     * written to. So a file on which every access fails takes that number. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            break;
    signals_install();
    if (argc < 2) {
        descriptor_init(&out, STDERR_FILENO);
        help_print(&out.out);
        output_flush(&out.out);
        return STATUS_USAGE;
    }
    descriptor_init(&out, STDOUT_FILENO);
    out.out.terminal = isatty(STDOUT_FILENO) == 1;
    out.out.columns = out.out.terminal ? terminal_width(STDOUT_FILENO) : 0;
    const bool help = str_is(argv[1], "--help") || str_is(argv[1], "-h");
    enum status s;
    if (str_is(argv[1], "--version")) {
        s = argc == 2 ? print_version(&out.out, &e)
                      : err_usage(&e, "unexpected argument '%.60s'", argv[2]);
    } else {
        s = command_named(help ? "help" : argv[1], &command, &e);
        if (s == STATUS_OK)
            s = job_run(command, argv + 2, &out.out, start_ns, &e);
    }
    const bool failed = s != STATUS_OK && s != STATUS_INTERRUPTED;
    if (failed)
        print_error(command, s, &e);
    const enum status closed = descriptor_close(&out, &lost);
    if (closed == STATUS_OK || failed)
        return s;
    if (out.error != EPIPE) {
        print_error(command, closed, &lost);
        return closed;
    }
    if (!signals_interrupted()) /* its reader closed the pipe */
        signals_end_by_pipe();
    return STATUS_INTERRUPTED;
}
