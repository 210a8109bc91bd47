/*
 * export_tensors - the tensors of a checkpoint as transformers has them.
 */
#ifndef DECODE_EXCHANGE_EXPORT_TENSORS_H
#define DECODE_EXCHANGE_EXPORT_TENSORS_H

#include "exchange/export_plan.h"
#include "exchange/view.h"
#include "safetensors/safetensors.h"

/* Holds views that point into each other: it may not be moved. */
struct export_tensors {
    size_t n;
    struct safetensors_written *written; /* [n] for safetensors_write */
    /*
     * Their common type. Matrices keep theirs, blocks become F32; all else is F32, or of the
     * matrices' type if that holds every number exactly. -1: there are several.
     */
    int type;
    /* private */
    struct export_tensor *list;
    struct view_maker maker;
    float *zeros; /* biases that the checkpoint has not */
};

/* Borrows the plan's file. STATUS_NO_MEMORY; *t is for export_tensors_free in any case. */
enum status export_tensors_make(const struct export_plan *plan, struct export_tensors *t,
                                struct err *e);
void export_tensors_free(struct export_tensors *t); /* legal on a zeroed struct and twice */

#endif
