/*
 * In WebAssembly there is no terminal: what is said about a run is not said.
 */
#include "cli/terminal.h"

void log_info(const struct common_options *c, const char *format, ...)
{
    (void)c, (void)format;
}
