/*
 * convert_report - what a conversion cost, and its printed forms.
 */
#ifndef DECODE_CLI_CONVERT_REPORT_H
#define DECODE_CLI_CONVERT_REPORT_H

#include "base/output.h"
#include "base/status.h"
#include "convert/convert.h"
#include "show/report.h"

/* Of the checkpoint before, or after. */
struct convert_figures {
    char variant[16]; /* "MHA", "GQA-4" */
    uint64_t kv_bytes_per_token_f32, kv_bytes_per_token_f16;
    uint64_t parameters;
    uint64_t file_bytes;
    double divergence;    /* from the checkpoint before, on calibration text kept aside; else NaN */
    double bits_per_byte; /* NaN: not measured */
    double seconds;       /* that the conversion took, `after`; NaN before */
};

struct convert_report {
    const struct convert_spec *spec;
    const struct convert *converted;
    struct convert_figures before, after;
};

/* A table of the layers and one of the figures; JSON is one object, over
 * several lines or (JSON lines) on one. STATUS_NO_MEMORY. */
enum status convert_report_print(const struct convert_report *r, enum table_format format,
                                 struct output *out, struct err *e);

#endif
