/*
 * hf_import - a folder of Hugging Face's: config.json and safetensors.
 */
#ifndef DECODE_EXCHANGE_HF_IMPORT_H
#define DECODE_EXCHANGE_HF_IMPORT_H

#include "exchange/hf_config.h"
#include "exchange/import_source.h"
#include "exchange/json_file.h"
#include "safetensors/safetensors.h"

struct hf_import {
    struct import_source source;
    struct hf_config hf;
    const struct json_node *config; /* config.json's object, for what else it says */
    struct safetensors_folder tensors;
    /* private */
    const char *path; /* the folder's, borrowed */
    struct json_file config_file;
    bool prefixed;   /* tensors' names begin with the family's prefix */
    int n_positions; /* rows of the position embedding in the file */
    float *factors;  /* of rotary frequencies, or NULL */
};

/*
 * Opens the folder: config.json is read, the tensors' headers too, and no tensor may be there that
 * the model has no use for. `path` must outlive *out, which is for hf_import_close whatever is
 * returned. STATUS_BAD_FILE names file and key or tensor; STATUS_NO_MEMORY.
 */
enum status hf_import_open(const char *path, struct hf_import *out, struct err *e);
void hf_import_close(struct hf_import *h); /* legal on a zeroed struct and twice */

#endif
