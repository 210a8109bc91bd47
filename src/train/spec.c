#include "train/spec.h"

const char *const train_optimizers[] = {"adamw", "muon", NULL};
