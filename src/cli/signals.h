/*
 * signals - the signals that a run must live with.
 *
 * SIGPIPE and SIGXFSZ are ignored, so that a closed pipe and a file that reaches the size limit
 * are seen as failed writes. SIGINT, SIGTERM, SIGHUP (unless it was ignored, as by nohup) and
 * SIGXCPU end the program with exit code 130. After signals_defer the first one only sets a flag,
 * so that the work can be ended well, and the second one kills. Two do not count as the second:
 * SIGXCPU, which comes every second, and the same signal within 100 ms, as timeout(1) sends it.
 * SIGBUS from a mapped file that was cut short becomes one line and exit code 3. A killed program
 * leaves the temporary file of an unfinished output, which the next writer in its folder removes.
 *
 * The state is global, because signal handlers take no argument.
 */
#pragma once

#include <stdbool.h>

/* Installs the handlers, once a process. */
void signals_install(void);

/* From here on the first SIGINT, SIGTERM or SIGHUP is only recorded. */
void signals_defer(void);

/* Whether a signal was recorded. */
bool signals_interrupted(void);

/* Forgets a recorded SIGINT, so that the next signal is the first again. False: there was none. */
bool signals_forgive(void);

/* Undoes signals_defer, before a wait for a text that may never come. Returns whether signals were
 * deferred. The caller obeys one that was recorded before. */
bool signals_end_at_once(void);

/* Ends the process as SIGPIPE ends one that does not ignore it: 141 in a shell. */
void signals_end_by_pipe(void);
