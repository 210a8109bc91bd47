#include "train/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"

/* Cuts off what is behind the rows of the first steps; where that is, or -1. */
static long cut_behind(FILE *file, int first_step)
{
    char line[256];
    long end = 0;
    while (fgets(line, sizeof line, file)) {
        if (!strchr(line, '\n') || (end > 0 && strtol(line, NULL, 10) > first_step))
            break;
        end = ftell(file);
    }
    return fseek(file, end, SEEK_SET) == 0 && ftruncate(fileno(file), end) == 0 ? end : -1;
}

enum status curve_open(struct curve *curve, const char *path, int first_step, struct err *e)
{
    const bool resumed = first_step > 0;
    *curve = (struct curve){.path = path};
    if (!path)
        return STATUS_OK;
    const int fd = file_open_retry(path, O_CREAT | (resumed ? O_RDWR : O_WRONLY | O_TRUNC), 0666);
    long end = fd < 0 || !(curve->file = fdopen(fd, resumed ? "r+" : "w")) ? -1 : 0;
    if (end == 0 && resumed)
        end = cut_behind(curve->file, first_step);
    if (end < 0)
        return file_failure(e, STATUS_FAILED, path, "write --log", errno);
    setvbuf(curve->file, NULL, _IOLBF, 0); /* no state is newer than its curve */
    if (end == 0)
        fputs("step,loss,val_loss,val_bits_per_byte,lr,grad_norm,tokens_per_s,seconds\n",
              curve->file);
    return STATUS_OK;
}

void curve_put(const struct curve *curve, const struct train_event *ev, int tokens, double seconds)
{
    if (!curve->file)
        return;
    if (ev->kind == TRAIN_STEP)
        fprintf(curve->file, "%d,%.6f,,,%.6g,%.6g,%.0f,%.3f\n", ev->step, ev->loss, ev->lr,
                ev->norm, tokens / (ev->ns * 1e-9), seconds);
    else
        fprintf(curve->file, "%d,,%.6f,%.6f,,,,%.3f\n", ev->step, ev->val_loss, ev->val_bits,
                seconds);
}

enum status curve_close(struct curve *curve, struct err *e)
{
    const bool lost = curve->file && ferror(curve->file); /* some time ago, for whatever */
    if (curve->file)
        fclose(curve->file);
    curve->file = NULL;
    return lost ? file_failure(e, STATUS_FAILED, curve->path, "write --log", EIO) : STATUS_OK;
}
