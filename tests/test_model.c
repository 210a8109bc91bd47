/* What a model is made of. (What a checkpoint must hold is for test_bad_input_*.c.) */
#include <stdio.h>
#include <string.h>

#include "checkpoints.h"
#include "model/model.h"
#include "support.h"

TEST(embedding_rows)
{
    /* A row of the embedding plus a row of the positions, whatever the panels look like. */
    struct checkpoint c;
    for (int f16 = 0; f16 < 2; f16++) {
        struct checkpoint_shape shape =
            shape_of("layers=1 heads=4 kv=2 dim=4 ff=24 ctx=8 vocab=259");
        shape.type = f16 ? TENSOR_F16 : TENSOR_F32;
        const char *path = scratch_path("embed.gguf");
        write_checkpoint(path, &shape);
        expect_ok(checkpoint_open(path, CHECKPOINT_MODEL, &c, &err));
        const struct gguf_tensor *rows = gguf_find_tensor(c.gguf, "token_embd.weight");
        const struct gguf_tensor *positions = gguf_find_tensor(c.gguf, "position_embd.weight");
        for (int token = 0; token < 259; token++) {
            float out[16], x[16], p[16];
            model_embed(c.model, &(struct positions){0}, token, token % 8, out);
            memcpy(p, positions->data + (size_t)(token % 8) * sizeof p, sizeof p);
            if (f16)
                kernels_scalar.from_f16(x, (const uint16_t *)(const void *)rows->data + token * 16,
                                        16);
            else
                memcpy(x, rows->data + (size_t)token * sizeof x, sizeof x);
            for (int i = 0; i < 16; i++)
                ck_assert(out[i] == x[i] + p[i]);
        }
        checkpoint_close(&c);
    }
    scratch_remove();
}

TEST(variant_names)
{
    const struct config c = {.n_heads = 8, .n_kv_heads = 8, .head_dim = 16};
    char name[16];
    config_variant_name(&c, 8, name);
    ck_assert_str_eq(name, "MHA");
    config_variant_name(&c, 4, name);
    ck_assert_str_eq(name, "GQA-4");
    config_variant_name(&c, 1, name);
    ck_assert_str_eq(name, "MQA");
    ck_assert_int_eq(config_k_dim(&c, 0), 128);
}
