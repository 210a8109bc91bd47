#include "cli/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/output.h"
#include "cli/command.h"
#include "cli/descriptor.h"
#include "cli/nearest.h"
#include "cli/runtime.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "compute/kernels.h"

static const char general_help[] =
    "\n"
    "decode help COMMAND (or decode COMMAND --help) shows a command's options.\n"
    "decode --version shows version, compiler, instruction sets and threads.\n"
    "\n"
    "Everywhere: the checkpoint is the first argument or -m FILE; --option value and\n"
    "--option=value both work, anywhere among the arguments; -- ends the options; of an option\n"
    "given twice the last one counts.\n"
    "\n"
    "Counts take k and M, thousands and millions; sizes also kB, KiB, MB, MiB, GB, GiB.\n"
    "\n"
    "Environment: DECODE_THREADS is the default of -t; DECODE_ISA forces an instruction set.\n"
    "Exit codes: 0 done, 1 failed while running, 2 usage, 3 bad input file, 4 out of memory,\n"
    "130 interrupted. A reader that closes the pipe ends the program silently, as it ends cat\n"
    "(by SIGPIPE: 141 in a shell); files that were asked for are written all the same.\n";

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

static enum status unknown_command(const char *name, struct err *e)
{
    const char *what = name[0] == '-' ? "option" : "command";
    struct nearest near = {.word = name};
    for (int i = 0; command_at(i); i++)
        nearest_offer(&near, command_at(i)->name);
    nearest_offer(&near, "help");
    nearest_offer(&near, "--help");
    nearest_offer(&near, "--version");
    if (near.best)
        return err_set(e, STATUS_USAGE, "unknown %s '%.60s'; did you mean '%s'?", what, name,
                       near.best);
    return err_set(e, STATUS_USAGE, "unknown %s '%.60s'", what, name);
}

/* The general help: on standard output when asked for, on standard error when not. */
static void print_commands(struct output *out)
{
    output_puts(out, "usage: decode <command> [options]\n\n");
    for (int i = 0; command_at(i); i++)
        output_printf(out, "  %-10s %s\n", command_at(i)->name, command_at(i)->summary);
    output_printf(out, "  %-10s %s\n", "help", "this list, or a command's options");
    output_puts(out, general_help);
}

static enum status print_version(struct output *out, struct err *e)
{
    const struct kernels *chosen;
    const struct common_options quiet = {.quiet = true};
    TRY(runtime_kernels(&quiet, &chosen, e));
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

/* decode help [COMMAND] */
static enum status run_help(const char *command, struct output *out, struct err *e)
{
    if (!command || strcmp(command, "help") == 0) {
        print_commands(out);
        return STATUS_OK;
    }
    const struct command *c = command_find(command);
    return c ? command_help(c, out, e) : unknown_command(command, e);
}

static enum status run_named(int argc, char **argv, struct invocation *inv, struct err *e)
{
    const char *name = argv[0];
    const bool help =
        strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    const bool version = strcmp(name, "--version") == 0;
    const int most = 1 + help; /* of arguments */
    if ((help || version) && argc > most)
        return err_set(e, STATUS_USAGE, "unexpected argument '%.60s'", argv[most]);
    if (help)
        return run_help(argv[1], inv->out, e);
    if (version)
        return print_version(inv->out, e);
    const struct command *c = command_find(name);
    if (!c)
        return unknown_command(name, e);
    inv->command = c->name;
    return command_run(c, argc - 1, argv + 1, inv, e);
}

static void print_error(const struct invocation *inv, enum status s, const struct err *e)
{
    const char *command = inv->command ? inv->command : "";
    fprintf(stderr, "decode: %s%s%s", command, inv->command ? ": " : "", e->text);
    if (s == STATUS_USAGE)
        fprintf(stderr, " (see 'decode help%s%s')", inv->command ? " " : "", command);
    fputc('\n', stderr);
}

int program_run(int argc, char **argv)
{
    struct descriptor out;
    struct invocation inv = {.out = &out.out, .start_ns = clock_ns()};
    struct err e = {""};
    fill_standard_descriptors();
    signals_install();
    if (argc < 2) {
        descriptor_init(&out, STDERR_FILENO);
        print_commands(&out.out);
        output_flush(&out.out);
        return STATUS_USAGE;
    }
    descriptor_init(&out, STDOUT_FILENO);
    enum status s = run_named(argc - 1, argv + 1, &inv, &e);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        print_error(&inv, s, &e);
    struct err lost = {""};
    const enum status closed = descriptor_close(&out, &lost);
    if (closed == STATUS_OK || (s != STATUS_OK && s != STATUS_INTERRUPTED))
        return s;
    if (!descriptor_is_unread(&out))
        print_error(&inv, closed, &lost);
    else if (!signals_interrupted())
        signals_end_by_pipe();
    return descriptor_is_unread(&out) ? STATUS_INTERRUPTED : closed;
}
