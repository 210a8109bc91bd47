/*
 * export_json - a JSON file in a folder.
 */
#ifndef DECODE_EXCHANGE_EXPORT_JSON_H
#define DECODE_EXCHANGE_EXPORT_JSON_H

#include "base/status.h"
#include "json/write.h"

/* Replaces the file `name` of a folder atomically by what `put` writes: one value, members in lines
 * of their own. STATUS_FAILED, STATUS_NO_MEMORY. */
enum status export_json(const char *dir, const char *name,
                        void (*put)(struct json *j, const void *arg), const void *arg,
                        struct err *e);

#endif
