/* In WebAssembly there is no terminal, so nothing is said about a run. */
#include "cli/terminal.h"

void log_info(const struct common_options *c, const char *format, ...)
{
    (void)c, (void)format;
}
