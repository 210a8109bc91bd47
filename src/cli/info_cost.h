/*
 * info_cost - what a checkpoint's or a shape's caches and steps cost, by variant; several shapes
 * side by side; shards.
 */
#pragma once

#include "cli/info.h"

/* What is known of --shape, the i-th if there are several. */
enum status info_read_shape(struct info *info, int i, struct err *e);

/* The variants of what runs here; and, behind the steps there are, those that are asked for: every
 * depth with every batch; with their times, if the machine's limits are given or measured. */
enum status info_plan_steps(struct info *info, struct err *e);

/* Tables of the caches of the variants and of the steps, whose columns are those that are asked
 * for. */
struct table info_cache_table(const struct info *info);
struct table info_step_table(const struct info *info);

/* Tell people, before these tables, how the bytes of a token come about; what a step is, and what
 * its time follows from. */
void info_explain_caches(const struct config *c, struct output *out);
void info_explain_steps(const struct info *info, struct output *out);

/* Prints the shapes that have names. */
enum status info_list_shapes(struct job *j, struct err *e);
