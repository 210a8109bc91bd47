#include "cli/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/version.h"
#include "show/figures.h"

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15

static struct figure variant_of(const struct bench_report *r, const struct bench_row *row)
{
    struct figure name;
    config_variant_name(&r->spec->config, row->n_kv_heads, name.text);
    return name;
}

/* --- the machine ----------------------------------------------------------------------------- */

/* The processor's name as the system gives it. */
static void processor_name(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            value += strspn(value, ": \t");
            snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
            break;
        }
    }
    fclose(f);
}

static void list_threads(const struct bench_report *r, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < r->spec->threads.n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "",
                                 r->spec->threads.items[i]);
}

void bench_machine(const struct bench_report *r, char *line, size_t size)
{
    char processor[128], threads[256];
    processor_name(processor, sizeof processor);
    list_threads(r, threads, sizeof threads);
    snprintf(line, size, "%s, %s, threads %s; decode %s, %s", processor, r->spec->kernels->name,
             threads, DECODE_VERSION, compiler_name());
}

static void print_header(const struct bench_report *r, struct output *out)
{
    const struct config *c = &r->spec->config;
    char machine[512];
    bench_machine(r, machine, sizeof machine);
    char subject[512]; /* a file's name may have control characters */
    snprintf(subject, sizeof subject, "%s", r->subject);
    utf8_strip(subject);
    output_printf(out,
                  "%s: %d layers, d_model %d, %d heads of %d, d_ff %d, vocabulary %d, "
                  "context %d\n",
                  subject, c->n_layers, c->d_model, c->n_heads, c->head_dim, c->d_ff, c->n_vocab,
                  c->n_ctx);
    output_printf(out, "%s\n", machine);
    output_printf(out,
                  "roofline: reads %.1f GB/s at the largest row's bytes, multiplies %.0f "
                  "GFLOP/s\n",
                  r->bench->read_bytes_per_s / 1e9, r->bench->flops_per_s / 1e9);
    output_printf(out,
                  "%d repeats of %d tokens, each at exactly its depth, after %d warm-up "
                  "steps; the rows take turns\n\n",
                  r->spec->repeats, r->spec->n, r->spec->warmup);
}

/* --- for people ------------------------------------------------------------------------------ */

/* Whether no other variant at the same setting has a lower median. */
static bool is_best(const struct bench_report *r, const struct bench_row *row)
{
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct bench_row *other = &r->bench->rows[i];
        if (other->samples && other->depth == row->depth && other->p50_us < row->p50_us)
            return false;
    }
    return true;
}

static void put_ratio(struct table *t, double x)
{
    char text[32] = "";
    if (!isnan(x))
        snprintf(text, sizeof text, "%.2fx", x);
    table_string(t, text);
}

static void put_note(struct table *t, const struct bench_report *r, const struct bench_row *row)
{
    char note[64] = "";
    if (row->repeats < r->spec->repeats)
        snprintf(note, sizeof note, "%d of %d repeats", row->repeats, r->spec->repeats);
    else if (row->spread > NOISY)
        snprintf(note, sizeof note, "noisy: repeats differ by %.0f%%", row->spread * 100);
    table_string(t, note);
}

static void put_row(struct table *t, const struct bench_report *r, const struct bench_row *row)
{
    table_string(t, is_best(r, row) ? "*" : "");
    table_string(t, variant_of(r, row).text);
    table_string(t, storage_name(row->type));
    table_string(t, storage_name(row->kv_type));
    table_u64(t, (uint64_t)row->threads);
    table_u64(t, (uint64_t)row->depth);
    table_double(t, row->p50_us);
    table_double(t, row->p99_us);
    table_string(t, figure_rate(row->tokens_per_s).text);
    put_ratio(t, row->speedup);
    put_ratio(t, row->predicted_speedup);
    table_string(t, figure_bytes((double)row->weight_bytes).text);
    table_string(t, figure_bytes((double)row->kv_bytes).text);
    table_double(t, row->gb_per_s);
    char share[16];
    snprintf(share, sizeof share, "%.0f%%", row->share_of_limit * 100);
    table_string(t, share);
    table_string(t, isnan(row->prefill_tokens_per_s) ? ""
                                                     : figure_rate(row->prefill_tokens_per_s).text);
    table_string(t, figure_bytes((double)row->peak_rss_bytes).text);
    put_note(t, r, row);
}

static enum status print_for_people(const struct bench_report *r, enum table_format format,
                                    struct output *out, struct err *e)
{
    static const struct table_column columns[] = {
        {.name = "", .left = true},
        {.name = "variant", .left = true},
        {.name = "type", .left = true},
        {.name = "KV", .left = true},
        {.name = "threads"},
        {.name = "depth"},
        {.name = "p50 µs", .decimals = 1},
        {.name = "p99 µs", .decimals = 1},
        {.name = "tokens/s"},
        {.name = "speed-up"},
        {.name = "by bytes"},
        {.name = "weights read"},
        {.name = "KV read"},
        {.name = "GB/s", .decimals = 1},
        {.name = "of limit"},
        {.name = "prefill tok/s"},
        {.name = "peak RSS"},
        {.name = "note", .left = true},
    };
    struct table t;
    print_header(r, out);
    table_begin(&t, format, columns, sizeof columns / sizeof *columns, out);
    for (int i = 0; i < r->bench->n_rows; i++)
        if (r->bench->rows[i].samples)
            put_row(&t, r, &r->bench->rows[i]);
    const enum status s = table_end(&t, e);
    output_puts(out, "\n* fastest at its depth; speed-up over MHA, measured and by bytes read\n");
    return s;
}

/* --- for programs ---------------------------------------------------------------------------- */

static const struct table_column keys[] = {
    {.name = "variant", .left = true},
    {.name = "n_kv_heads"},
    {.name = "type", .left = true},
    {.name = "kv_type", .left = true},
    {.name = "threads"},
    {.name = "depth"},
    {.name = "n"},
    {.name = "repeats"},
    {.name = "warmup"},
    {.name = "p50_us"},
    {.name = "p90_us"},
    {.name = "p99_us"},
    {.name = "max_us"},
    {.name = "mean_us"},
    {.name = "tokens_per_s"},
    {.name = "weight_bytes"},
    {.name = "kv_bytes"},
    {.name = "gb_per_s"},
    {.name = "speedup"},
    {.name = "predicted_speedup"},
    {.name = "prefill_tokens_per_s"},
    {.name = "load_ms"},
    {.name = "peak_rss_bytes"},
    {.name = "logits_hash", .left = true},
    {.name = "isa", .left = true},
    {.name = "limit_tokens_per_s"},
    {.name = "share_of_limit"},
};

static void put_keys(struct table *t, const struct bench_report *r, const struct bench_row *row)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, row->logits_hash);
    table_string(t, variant_of(r, row).text);
    table_u64(t, (uint64_t)row->n_kv_heads);
    table_string(t, storage_name(row->type));
    table_string(t, storage_name(row->kv_type));
    table_u64(t, (uint64_t)row->threads);
    table_u64(t, (uint64_t)row->depth);
    table_u64(t, (uint64_t)r->spec->n);
    table_u64(t, (uint64_t)row->repeats);
    table_u64(t, (uint64_t)r->spec->warmup);
    table_double(t, row->p50_us);
    table_double(t, row->p90_us);
    table_double(t, row->p99_us);
    table_double(t, row->max_us);
    table_double(t, row->mean_us);
    table_double(t, row->tokens_per_s);
    table_u64(t, row->weight_bytes);
    table_u64(t, row->kv_bytes);
    table_double(t, row->gb_per_s);
    table_double(t, row->speedup);
    table_double(t, row->predicted_speedup);
    table_double(t, row->prefill_tokens_per_s);
    table_double(t, row->load_ms);
    table_u64(t, row->peak_rss_bytes);
    table_string(t, hash);
    table_string(t, r->spec->kernels->name);
    table_double(t, row->limit_tokens_per_s);
    table_double(t, row->share_of_limit);
}

static enum status print_for_programs(const struct bench_report *r, enum table_format format,
                                      struct output *out, struct err *e)
{
    struct table t;
    table_begin(&t, format, keys, sizeof keys / sizeof *keys, out);
    for (int i = 0; i < r->bench->n_rows; i++)
        if (r->bench->rows[i].samples)
            put_keys(&t, r, &r->bench->rows[i]);
    return table_end(&t, e);
}

enum status bench_print(const struct bench_report *r, enum table_format format, struct output *out,
                        struct err *e)
{
    if (format == TABLE_ALIGNED || format == TABLE_MD)
        return print_for_people(r, format, out, e);
    return print_for_programs(r, format, out, e);
}

/* --- every sample ---------------------------------------------------------------------------- */

enum status bench_write_trace(const struct bench_report *r, const char *path, struct err *e)
{
    struct file_writer *w;
    const enum status s = file_writer_open(&w, path, e);
    if (s != STATUS_OK)
        return s;
    static const char header[] = "variant,type,kv_type,threads,depth,repeat,index,ns\n";
    file_writer_put(w, header, sizeof header - 1);
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct bench_row *row = &r->bench->rows[i];
        for (int k = 0; k < row->samples; k++) {
            char line[160];
            const int len = snprintf(line, sizeof line, "%s,%s,%s,%d,%d,%d,%d,%" PRIu64 "\n",
                                     variant_of(r, row).text, storage_name(row->type),
                                     storage_name(row->kv_type), row->threads, row->depth,
                                     k / r->spec->n, k % r->spec->n, row->times_ns[k]);
            file_writer_put(w, line, (size_t)len);
        }
    }
    return file_writer_commit(w, e);
}
