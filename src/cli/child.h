/*
 * child - runs a function in a child process, to learn what memory it takes.
 */
#ifndef DECODE_CLI_CHILD_H
#define DECODE_CLI_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Forks, calls work(arg, result) in the child and copies what it left in `result` (result_size
 * bytes, without pointers into the child) to the caller's. *peak_rss_bytes: the child's largest
 * resident memory, in which what the caller has resident when it calls counts too. Call it
 * before starting threads. STATUS_FAILED if there is no process or it dies, STATUS_NO_MEMORY; else
 * what work returned, with its message.
 */
typedef enum status child_work(const void *arg, void *result, struct err *e);
enum status child_run(child_work *work, const void *arg, void *result, size_t result_size,
                      uint64_t *peak_rss_bytes, struct err *e);

#endif
