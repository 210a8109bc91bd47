#!/bin/sh
# memcheck.sh COMMAND... - runs the command under valgrind's memcheck. Fails, and reports on standard
# error, when it touches memory that it does not own, decides on bytes that were never written, or leaks.
# Threads get turns of equal length, because otherwise a thread that waits in a loop for another one would
# keep the processor from it.
exec valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
    --errors-for-leak-kinds=definite,indirect --fair-sched=try "$@"
