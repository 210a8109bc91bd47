/*
 * attend_page - the page of attend --html: the maps of heads, and beside them what the page follows
 * a token's path with and what it expects next.
 */
#pragma once

#include "cli/attend.h"
#include "show/heatmap.h"

/* Asks the run for what the page needs beside maps. STATUS_NO_MEMORY. The view is freed with
 * attend_page_free, in every case. */
enum status attend_page_plan(struct attend_view *v, struct err *e);
void attend_page_free(struct attend_view *v);

/* Writes --html FILE after the run, of these maps. The failures of explore_write. */
enum status attend_page_write(const struct attend_view *v, const struct heatmap_picture *maps,
                              struct err *e);
