#include "train/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

static const char heading[] =
    "step,loss,val_loss,val_bits_per_byte,lr,grad_norm,tokens_per_s,seconds\n";

/* The bytes of the heading and of the rows of the first steps. */
static size_t rows_until(struct text text, int first_step)
{
    const char *begin = text.data;
    size_t end = 0;
    while (text.len > 0 && memchr(text.data, '\n', text.len)) {
        if (end > 0 && strtol(text.data, NULL, 10) > first_step)
            break;
        text_cut_line(&text);
        end = text.data - begin;
    }
    return end;
}

static void put(struct curve *curve, struct text row)
{
    while (row.len > 0 && !curve->error) {
        const ssize_t n = write(curve->fd, row.data, row.len);
        if (n >= 0)
            text_cut(&row, n);
        else if (errno != EINTR)
            curve->error = errno;
    }
}

enum status curve_open(struct curve *curve, const char *path, int first_step, struct err *e)
{
    const bool resumed = first_step > 0;
    size_t end = 0;
    *curve = (struct curve){.path = NULL};
    if (!path)
        return STATUS_OK;
    const int fd = file_open_retry(path, O_CREAT | O_RDWR | (resumed ? 0 : O_TRUNC), 0666);
    if (fd < 0)
        return file_failure(e, STATUS_FAILED, path, "write --log", errno);
    *curve = (struct curve){.path = path, .fd = fd};
    if (resumed) {
        struct file_map map;
        const enum status s = file_map_open(&map, path, e);
        if (s != STATUS_OK) /* what this program has written is no bad input */
            return s == STATUS_BAD_FILE ? STATUS_FAILED : s;
        const struct text rows = {(const char *)map.data, map.len};
        const bool is_curve = rows.len == 0 || text_starts_with(rows, heading);
        end = rows_until(rows, first_step);
        file_map_close(&map);
        if (!is_curve)
            return err_usage(e, "--log: '%.200s' is no log of a training; expected another name",
                             path);
        if (ftruncate(fd, end) != 0 || lseek(fd, end, SEEK_SET) < 0)
            curve->error = errno;
    }
    if (end == 0)
        put(curve, text_of(heading));
    return STATUS_OK;
}

void curve_put(struct curve *curve, const struct train_event *ev, int tokens, double seconds)
{
    char row[256];
    if (!curve->path)
        return;
    if (ev->kind == TRAIN_STEP)
        chars_printf(row, "%d,%.6f,,,%.6g,%.6g,%.0f,%.3f\n", ev->step, ev->loss, ev->lr, ev->norm,
                     tokens / (ev->ns * 1e-9), seconds);
    else
        chars_printf(row, "%d,,%.6f,%.6f,,,,%.3f\n", ev->step, ev->val_loss, ev->val_bits, seconds);
    put(curve, text_of(row));
}

enum status curve_close(struct curve *curve, struct err *e)
{
    const struct curve was = *curve;
    *curve = (struct curve){.path = NULL};
    if (!was.path)
        return STATUS_OK;
    const bool lost = close(was.fd) != 0;
    const int error = was.error ? was.error : lost ? errno : 0;
    return error ? file_failure(e, STATUS_FAILED, was.path, "write --log", error) : STATUS_OK;
}
