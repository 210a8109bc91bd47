/*
 * version - what built this program.
 */
#ifndef DECODE_CLI_VERSION_H
#define DECODE_CLI_VERSION_H

/* "gcc 12.2.0"; static storage. */
static inline const char *compiler_name(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown compiler";
#endif
}

#endif
