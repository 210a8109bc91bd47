/*
 * muon - the steps of the Muon optimizer, for the matrices of blocks.
 */
#pragma once

#include "train/private.h"

/* Takes, or counts (see base/mem.h), the scratch memory for the largest of the list's matrices. */
void muon_take(struct muon *u, struct arena *arena, const struct param_list *list);

/* Whether this tensor is moved by Muon, and not by AdamW. */
bool muon_moves(const struct train_spec *spec, const struct tensor_spec *s);

/* Moves the tensors that muon_moves names by one step, from t->gradient and their momentum in t->m,
 * with the learning rate t->muon.rate; t->v is not used. Every thread of the pool calls it with its
 * number. */
void muon_step(const struct trainer *t, int thread);
