#include "cli/info_tensors.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/figures.h"
#include "show/paragraph.h"

/* --- tensors --------------------------------------------------------------------------------- */

struct info_tensor {
    struct gguf_tensor tensor;
    char shape[GGUF_MAX_DIMS * 24];
    const char *type;
    uint64_t offset; /* of the data, from the start of the file */
    int64_t nan, inf;
};

/* The last two with --check. JSON has the first two as a name and an array. */
static const struct report_field tensor_fields[] = {
    {"tensor", "tensor", MEMBER(info_tensor, tensor.name)},
    {"shape", "shape", MEMBER(info_tensor, shape), .right = true},
    {"type", "type", MEMBER(info_tensor, type)},
    {"bytes", "bytes", MEMBER(info_tensor, tensor.n_bytes), .rank = 1},
    {"offset", "offset", MEMBER(info_tensor, offset), .rank = 2},
    {"nan", "nan", MEMBER(info_tensor, nan), .none = "not checked"},
    {"inf", "inf", MEMBER(info_tensor, inf), .none = "not checked"},
};

struct columns_table info_tensors_table(const struct info *info)
{
    return (struct columns_table){tensor_fields,
                                  REPORT_LENGTH(tensor_fields) - (info->checks ? 0 : 2)};
}

static struct info_tensor tensor_of(const struct info *info, size_t i)
{
    const struct gguf_tensor *from = &info->gguf->tensors[i];
    struct info_tensor t = {.tensor = *from,
                            .type = from->type->name,
                            .offset = (uint64_t)(from->data - info->file.data),
                            .nan = -1,
                            .inf = -1};
    size_t used = 0;
    for (int d = 0; d < from->n_dims && used < sizeof t.shape; d++)
        used += (size_t)snprintf(t.shape + used, sizeof t.shape - used, "%s%" PRIu64,
                                 d ? " x " : "", from->dims[d]);
    if (info->checks && info->checks[i].checked) {
        t.nan = (int64_t)info->checks[i].nan;
        t.inf = (int64_t)info->checks[i].inf;
    }
    return t;
}

enum status info_tensors_print(const struct info *info, bool bad_only, struct err *e)
{
    struct report r;
    struct columns chosen;
    const struct columns_table t = info_tensors_table(info);
    columns_choose(info->columns, info->format, t.fields, t.n, &chosen);
    report_begin(&r, info->format, chosen.fields, chosen.n, info->out);
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct info_tensor row = tensor_of(info, i);
        if (!bad_only || info->checks[i].nan + info->checks[i].inf > 0)
            report_row(&r, &row);
    }
    return report_end(&r, e);
}

void info_tensors_json(struct json *j, const struct info *info)
{
    json_begin_array(j, "tensors");
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct info_tensor t = tensor_of(info, i);
        json_begin_object(j, NULL);
        json_text(j, "name", t.tensor.name);
        json_begin_array(j, "shape");
        for (int d = 0; d < t.tensor.n_dims; d++)
            json_u64(j, NULL, t.tensor.dims[d]);
        json_end(j);
        report_members(j, tensor_fields + 2, info_tensors_table(info).n - 2, &t);
        json_end(j);
    }
    json_end(j);
}

/* --- the check ------------------------------------------------------------------------------- */

struct info_check {
    uint64_t checked, unchecked, scales, bad; /* tensors */
    uint64_t nan, inf;                        /* values */
};

static const struct report_field check_fields[] = {
    {"tensors_checked", NULL, MEMBER(info_check, checked)},
    {"tensors_not_checked", NULL, MEMBER(info_check, unchecked)},
    {"nan", NULL, MEMBER(info_check, nan)},
    {"inf", NULL, MEMBER(info_check, inf)},
};

static struct info_check sum_of_checks(const struct info *info)
{
    struct info_check sum = {0};
    for (size_t i = 0; i < info->gguf->n_tensors; i++) {
        const struct inspect_check *c = &info->checks[i];
        sum.checked += c->checked;
        sum.unchecked += !c->checked;
        sum.scales += c->scales_only;
        sum.bad += c->nan + c->inf > 0;
        sum.nan += c->nan;
        sum.inf += c->inf;
    }
    return sum;
}

enum status info_check_print(const struct info *info, struct err *e)
{
    const struct info_check sum = sum_of_checks(info);
    struct paragraph p = paragraph_begin(info->out, 2);
    paragraph_printf(
        &p, "\ncheck: %" PRIu64 " tensor%s read, %" PRIu64 " with values that are not finite",
        sum.checked, plural(sum.checked), sum.bad);
    if (sum.scales > 0)
        paragraph_printf(&p, "; of %" PRIu64 " the scales only", sum.scales);
    if (sum.unchecked > 0)
        paragraph_printf(&p, "; %" PRIu64 " of other types not checked", sum.unchecked);
    paragraph_end(&p);
    const bool listed = sum.bad == 0 || info->list_tensors;
    return listed ? STATUS_OK : info_tensors_print(info, true, e);
}

void info_check_json(struct json *j, const struct info *info)
{
    const struct info_check sum = sum_of_checks(info);
    report_object(j, "check", check_fields, REPORT_LENGTH(check_fields), &sum);
}
