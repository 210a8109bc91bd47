#!/bin/sh
# memcheck.sh COMMAND... - runs it under valgrind's memcheck: fails, and says so on standard error, at
# an access to memory that is not the program's, a decision on bytes never written, a leak. Threads
# take turns of like length, or one that waits for another holds it up.
exec valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
    --errors-for-leak-kinds=definite,indirect --fair-sched=try "$@"
