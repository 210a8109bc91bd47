/*
 * heads_picture - what each head is worth as a picture: layers down, heads across.
 */
#ifndef DECODE_CLI_HEADS_PICTURE_H
#define DECODE_CLI_HEADS_PICTURE_H

#include "measure/heads.h"

/* The most layers, or heads of one, that are drawn. */
#define HEADS_PICTURE_MOST 384

/* Writes an SVG file with delta_nll of the heads that are done, at least one, of a model with
 * n_heads heads a layer; `subject` names it. The failures of heatmap_write_chart. */
enum status heads_write_picture(const struct heads_result *r, int n_heads, const char *subject,
                                const char *path, struct err *e);

#endif
