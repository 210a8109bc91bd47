/*
 * alone - runs a function in a process of its own, to learn what memory it takes.
 */
#ifndef DECODE_CLI_ALONE_H
#define DECODE_CLI_ALONE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Forks, calls work(arg, result) in the child and copies what it left in `result` (result_size
 * bytes, without pointers into the child) to the caller's. *peak_rss_bytes: the child's largest
 * resident memory, in which what the caller has resident when it calls counts too. Call it
 * before starting threads. STATUS_FAILED if there is no process or it dies; else what work
 * returned, with its message.
 */
typedef enum status alone_work(const void *arg, void *result, struct err *e);
enum status alone_run(alone_work *work, const void *arg, void *result, size_t result_size,
                      uint64_t *peak_rss_bytes, struct err *e);

#endif
