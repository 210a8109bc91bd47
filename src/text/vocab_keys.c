#include "text/vocab_keys.h"

#define KEY(name) "tokenizer.ggml." name

/* Where the key is absent readers of "llama" take id 1 or 2: this says that there is none. */
#define NO_ID UINT32_MAX

static void write_id(const struct vocab_keys *k, struct gguf_writer *w, const char *key, int id)
{
    if (id >= 0)
        gguf_add_u32(w, key, (uint32_t)id);
    else if (k->scores)
        gguf_add_u32(w, key, NO_ID);
}

void vocab_keys_write(const struct vocab_keys *k, struct gguf_writer *w)
{
    if (!k->model)
        return;
    const uint64_t n = (uint64_t)k->n;
    gguf_add_text(w, KEY("model"), text_of(k->model));
    if (k->pre)
        gguf_add_text(w, KEY("pre"), text_of(k->pre));
    gguf_add_texts(w, KEY("tokens"), k->tokens, n);
    if (k->scores)
        gguf_add_f32s(w, KEY("scores"), k->scores, n);
    gguf_add_i32s(w, KEY("token_type"), k->types, n);
    if (!k->scores)
        gguf_add_texts(w, KEY("merges"), k->merges, k->n_merges);
    write_id(k, w, KEY("bos_token_id"), k->bos);
    write_id(k, w, KEY("eos_token_id"), k->eos);
    if (k->unk >= 0)
        gguf_add_u32(w, KEY("unknown_token_id"), (uint32_t)k->unk);
    if (k->pad >= 0)
        gguf_add_u32(w, KEY("padding_token_id"), (uint32_t)k->pad);
    gguf_add_bool(w, KEY("add_bos_token"), k->add_bos);
    if (k->add_space_prefix >= 0)
        gguf_add_bool(w, KEY("add_space_prefix"), k->add_space_prefix > 0);
}
