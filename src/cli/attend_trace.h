/*
 * attend_trace - one token through the attention of a head, step by step, which decode attend shows
 * with --trace: names, shapes and numbers.
 */
#pragma once

#include "cli/attend.h"
#include "formats/json_write.h"

/* Puts the steps into a JSON object, with all numbers; or, if `json` is NULL, prints them for
 * people, with as many numbers of a row as fit. */
void attend_put_trace(const struct attend_view *v, struct json *json);
