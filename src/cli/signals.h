/*
 * signals - the signals that a run must live with.
 *
 * SIGPIPE and SIGXFSZ are ignored, so that a closed pipe and a file that reaches the size limit
 * are seen as failed writes. SIGINT, SIGTERM, SIGHUP (unless it was ignored, as by nohup) and
 * SIGXCPU end the program with exit code 130; after signals_defer the first one only sets a flag,
 * so that the work can be ended well, and the second one kills (SIGXCPU, which comes every second,
 * does not, nor does the same one within 100 ms, as timeout(1) sends it). SIGBUS from a mapped file
 * that was cut short becomes one line and exit code 3. What kills leaves the temporary file of an
 * unfinished output, which the next writer in its folder removes.
 *
 * The state is global, because signal handlers take no argument.
 */
#pragma once

#include <stdbool.h>

/* Installs the handlers, once a process. */
void signals_install(void);

/* From here on the first SIGINT, SIGTERM or SIGHUP is left to signals_interrupted. */
void signals_defer(void);
bool signals_interrupted(void);

/* If the one that came is SIGINT, it is forgotten, and the next one is the first again: true. */
bool signals_forgive(void);

/* The opposite, before waiting for a text that may never come. True: one came before, and is to be
 * obeyed now. */
bool signals_end_at_once(void);

/* Ends the process as SIGPIPE ends one that does not ignore it: 141 in a shell. */
void signals_end_by_pipe(void);
