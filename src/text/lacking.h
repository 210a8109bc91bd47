/*
 * lacking - the message about a text that a vocabulary cannot write.
 */
#ifndef DECODE_TEXT_LACKING_H
#define DECODE_TEXT_LACKING_H

#include "base/status.h"
#include "base/text.h"

/* STATUS_USAGE: names the character that starts at byte `at` of the text (asserted to be in it), as
 * U+00E9 and, if it is a letter, a number or in ASCII, as itself; a byte that starts no UTF-8
 * character as byte 0xE9. */
enum status lacks_token(struct text text, size_t at, struct err *e);

#endif
