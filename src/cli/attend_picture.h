/*
 * attend_picture - what heads look at, as an SVG file or on a terminal.
 */
#ifndef DECODE_CLI_ATTEND_PICTURE_H
#define DECODE_CLI_ATTEND_PICTURE_H

#include "base/output.h"
#include "base/status.h"
#include "cli/attend_view.h"
#include "show/heatmap.h"

/* Small maps of all heads, or a large one of a single one. STATUS_NO_MEMORY, or the failures of
 * file_writer. */
enum status attend_write_svg(const struct attend_view *v, const char *path, bool log,
                             struct err *e);

/* Columns that a line of the drawing takes beside its cells; the most cells of a text of n tokens
 * in a terminal `width` columns wide. */
int attend_shown_cells(int n_tokens, int width);

/* The head that is shown, a line for each row: position, cells up to the diagonal,
 * and there the token, which names its row and its column. */
void attend_draw(const struct attend_view *v, enum heatmap_ink ink, bool log, int width,
                 struct output *out);

#endif
