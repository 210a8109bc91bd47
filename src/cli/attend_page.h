/*
 * attend_page - what the pictures of decode attend show of a run, and the page of --html.
 */
#pragma once

#include "cli/attend.h"
#include "show/explore.h"

/* --- of all pictures -------------------------------------------------------------------------- */

/* Which tokens of the text are nothing but newlines and punctuation, and the heads [layers, heads]
 * of those chosen, with room for `more` maps of each and one: into the run's specification. A layer
 * may have fewer heads than others: spec.n_heads tells. STATUS_NO_MEMORY; attend_close is due in
 * every case. */
enum status attend_begin(struct attend_view *v, int more, struct err *e);
void attend_close(struct attend_view *v);

/* Wants a map of every head, of this many cells a side or, if these are fewer, the tokens. */
struct attend_map *attend_add_maps(struct attend_spec *spec, int cells);

/* The name of a head's role, as "previous" or "offset 5", and its share. */
double attend_put_role(const struct attend_head *h, char *role, size_t size);

/* What is drawn of each head [n_heads]: name, cells, who shares with it, and what is said of it. */
void attend_fill_maps(const struct attend_view *v, const struct attend_map *cells,
                      struct heatmap_map *maps);

void attend_title(const struct attend_view *v, char *title, size_t size);

/* --- of the page ------------------------------------------------------------------------------ */

/* Wants what the page needs of the heads that the run is of: maps, the tokens that may come next,
 * and if they are not too large for a page the paths. STATUS_NO_MEMORY; STATUS_USAGE for more
 * weights than a page has room for. */
enum status attend_place_page(struct attend_view *v, struct err *e);

/* What a page has to know to be live: of the checkpoint, which is borrowed, as are text and
 * `kv_heads` (NULL: the file's). STATUS_BAD_FILE. */
enum status attend_live(const struct checkpoint *k, const char *path, struct text text,
                        const char *kv_heads, struct explore_live *out, struct err *e);

/* Makes what the page shows, and calls `show` with it; its status, or STATUS_NO_MEMORY. */
typedef enum status attend_show_page(const struct explore_page *page, const void *arg,
                                     struct err *e);
enum status attend_make_page(const struct attend_view *v, attend_show_page *show, const void *arg,
                             struct err *e);
