/*
 * info_tensors - what info says of a checkpoint's tensors one by one, and of their values.
 */
#ifndef DECODE_CLI_INFO_TENSORS_H
#define DECODE_CLI_INFO_TENSORS_H

#include <stdbool.h>

#include "base/status.h"
#include "cli/columns.h"
#include "cli/info.h"
#include "json/write.h"

/* The columns there are, two more where values were checked. */
struct columns_table info_tensors_table(const struct info *info);

/* A row a tensor, in the columns chosen: of every tensor, or (where they were checked) of those
 * with values that are not finite. STATUS_NO_MEMORY. */
enum status info_tensors_print(const struct info *info, bool bad_only, struct err *e);

/* A member "tensors" of the object that is open. */
void info_tensors_json(struct json *j, const struct info *info);

/* What the check of values (info->checks) came to: a line, and the tensors that are bad unless all
 * are listed already. STATUS_NO_MEMORY. And as a member "check". */
enum status info_check_print(const struct info *info, struct err *e);
void info_check_json(struct json *j, const struct info *info);

#endif
