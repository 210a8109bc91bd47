/*
 * fuzz_config_json - config.json of transformers and nanoGPT. A config that is taken is whole: its
 * sizes are within bounds and fit one another, every tensor of its layout has a size, the factors
 * of its rotary frequencies are finite. What is refused is named.
 */
#include <math.h>

#include "exchange/private.h"
#include "formats/json.h"
#include "model/layout.h"
#include "target.h"

static const struct json_limits limits = {.bytes = 1 << 16, .values = 1 << 12, .depth = 32};

static void check_sizes(const struct config *c)
{
    require(c->n_layers >= 1 && c->n_layers <= CONFIG_MAX_LAYERS);
    require(c->d_model >= 1 && c->d_model <= CONFIG_MAX_WIDTH);
    require(c->d_ff >= 1 && c->d_ff <= CONFIG_MAX_FF);
    require(c->n_ctx >= 1 && c->n_ctx <= CONFIG_MAX_CTX);
    require(c->n_vocab >= 1 && c->n_vocab <= CONFIG_MAX_VOCAB);
    require(c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0);
    require(c->head_dim >= 1 && config_q_dim(c, 0) <= CONFIG_MAX_WIDTH);
    require(c->norm_eps >= 0 && c->norm_eps < 1);
}

static void check_rope(const struct hf_config *h)
{
    const struct config *c = &h->c;
    static float factors[CONFIG_MAX_WIDTH / 2];
    require(c->head_dim % 2 == 0 && c->rope.base >= 1 && c->rope.scale > 0);
    require(isfinite(c->rope.base) && isfinite(c->rope.scale));
    if (!(h->llama3.factor > 0))
        return;
    hf_llama3_factors(&h->llama3, c, factors);
    for (int i = 0; i < c->rope.n_dims / 2; i++)
        require(isfinite(factors[i]) && factors[i] > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_reader reader = {0};
    const struct json_node *root;
    struct hf_config h;
    struct err e = {""};
    enum status s = json_read(&reader, (struct text){(const char *)data, size}, &limits, &root, &e);
    if (s == STATUS_OK)
        s = hf_config_read(root, &h, &e);
    if (s == STATUS_OK) {
        check_sizes(&h.c);
        if (h.c.position == POSITION_ROPE)
            check_rope(&h);
        const int64_t n = layout_count(&h.c);
        for (int64_t i = 0; i < n; i += 1 + n / 50) {
            const struct tensor_spec spec = layout_at(&h.c, i);
            require(spec.rows >= 1 && spec.cols >= 1);
        }
    } else {
        require_line(e.text);
    }
    json_reader_free(&reader);
    return 0;
}
