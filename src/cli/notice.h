/*
 * notice - lines about the run on standard error, and the one about work under way.
 *
 * On a terminal neither is torn: a line is broken between words, the one about the work is cut.
 */
#ifndef DECODE_CLI_NOTICE_H
#define DECODE_CLI_NOTICE_H

/* Shows a line in place of the one before, on standard error, which is a terminal. */
void notice_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes that line away, if there is one: whatever else is written there does so first. */
void notice_clear(void);

/* A line that stays; where it is broken the next begins after so many spaces. */
void notice_put(const char *line, int indent);

/* The same of a line that printf's format makes, below a heading of "prompt       ": the summary at
 * a command's end. */
void notice_summary(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of what follows "decode: ". */
#define NOTICE_INDENT 8

#endif
