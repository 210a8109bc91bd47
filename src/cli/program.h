/*
 * program - the whole program but for main; tests run it in their own process.
 */
#pragma once

/* Finds the command, runs it, and prints what it fails with; argv as main gets it. Returns the exit
 * code. Once a process: it installs signal handlers and may fill closed standard descriptors. */
int program_run(int argc, char **argv);

/* What built it: "gcc 12.2.0". */
#if defined(__clang__)
#define COMPILER_NAME "clang " __clang_version__
#else
#define COMPILER_NAME "gcc " __VERSION__
#endif
