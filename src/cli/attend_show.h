/*
 * attend_show - what decode attend prints, draws and writes of a run: the table, the JSON file,
 * pictures and the page.
 */
#pragma once

#include "cli/attend.h"

/* Prints the table: a row for each head, with its figures or, with --query, the keys that it looks
 * at. STATUS_NO_MEMORY. */
enum status attend_print(const struct attend_view *v, struct err *e);

/* Writes the file of --json: an object with the layers, heads and tokens that the axes of --npy
 * stand for, and the figures. */
enum status attend_write_json(const struct attend_view *v, struct err *e);

/* Writes the file of --svg, small maps of all heads or a large one of a single head. */
enum status attend_write_picture(const struct attend_view *v, struct err *e);

/* Draws the map of --show on standard output. */
void attend_draw(const struct attend_view *v);
