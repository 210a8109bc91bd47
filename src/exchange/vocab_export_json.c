#include "exchange/cuts.h"
#include "exchange/vocab_export.h"

/* --- what a text goes through ---------------------------------------------------------------- */

static void begin_step(struct json *j, const char *key, const char *type)
{
    json_begin_object(j, key);
    json_string(j, "type", type);
}

static void begin_sequence(struct json *j, const char *key, const char *steps)
{
    begin_step(j, key, "Sequence");
    json_begin_array(j, steps);
}

static void end_sequence(struct json *j)
{
    json_end(j);
    json_end(j);
}

static void put_byte_level(struct json *j, const char *key, bool use_regex)
{
    begin_step(j, key, "ByteLevel");
    json_bool(j, "add_prefix_space", false);
    json_bool(j, "trim_offsets", true);
    json_bool(j, "use_regex", use_regex);
    json_end(j);
}

static void put_split(struct json *j, const char *regex)
{
    begin_step(j, NULL, "Split");
    json_begin_object(j, "pattern");
    json_string(j, "Regex", regex);
    json_end(j);
    json_string(j, "behavior", "Isolated");
    json_bool(j, "invert", false);
    json_end(j);
}

static void put_pre_tokenizer(struct json *j, const struct vocab_export *x)
{
    if (!x->pre) {
        json_null(j, "pre_tokenizer");
        return;
    }
    const struct cut *c = cut_of_rule(x->pre->rule);
    if (!c->regex && !c->digits) {
        put_byte_level(j, "pre_tokenizer", c->bytes_regex);
        return;
    }
    begin_sequence(j, "pre_tokenizer", "pretokenizers");
    if (c->regex)
        put_split(j, c->regex);
    if (c->digits) {
        begin_step(j, NULL, "Digits");
        json_bool(j, "individual_digits", true);
        json_end(j);
    }
    put_byte_level(j, NULL, c->bytes_regex);
    end_sequence(j);
}

/* A step that puts `to` for `from`. */
static void put_replace(struct json *j, const char *from, const char *to)
{
    begin_step(j, NULL, "Replace");
    json_begin_object(j, "pattern");
    json_string(j, "String", from);
    json_end(j);
    json_string(j, "content", to);
    json_end(j);
}

static void put_normalizer(struct json *j, const struct vocab_export *x)
{
    if (x->pre) {
        json_null(j, "normalizer");
        return;
    }
    begin_sequence(j, "normalizer", "normalizers");
    if (x->adds_space) {
        begin_step(j, NULL, "Prepend");
        json_string(j, "prepend", VOCAB_SPACE);
        json_end(j);
    }
    put_replace(j, " ", VOCAB_SPACE);
    end_sequence(j);
}

static void put_decoder(struct json *j, const struct vocab_export *x)
{
    if (x->pre) {
        put_byte_level(j, "decoder", true);
        return;
    }
    begin_sequence(j, "decoder", "decoders");
    put_replace(j, VOCAB_SPACE, " ");
    begin_step(j, NULL, "ByteFallback");
    json_end(j);
    begin_step(j, NULL, "Fuse");
    json_end(j);
    if (x->adds_space) {
        begin_step(j, NULL, "Strip");
        json_string(j, "content", " ");
        json_int(j, "start", 1);
        json_int(j, "stop", 0);
        json_end(j);
    }
    end_sequence(j);
}

/* --- post_processor -------------------------------------------------------------------------- */

static void put_template_special(struct json *j, struct text name)
{
    json_begin_object(j, NULL);
    json_begin_object(j, "SpecialToken");
    json_text(j, "id", name);
    json_int(j, "type_id", 0);
    json_end(j);
    json_end(j);
}

static void put_template_text(struct json *j, const char *id, int type_id)
{
    json_begin_object(j, NULL);
    json_begin_object(j, "Sequence");
    json_string(j, "id", id);
    json_int(j, "type_id", type_id);
    json_end(j);
    json_end(j);
}

static void put_post_processor(struct json *j, const struct vocab_export *x)
{
    if (!tokenizer_adds_bos(x->tokenizer)) {
        if (x->pre)
            put_byte_level(j, "post_processor", true);
        else
            json_null(j, "post_processor");
        return;
    }
    const struct text bos = x->names.name[x->bos];
    begin_step(j, "post_processor", "TemplateProcessing");
    json_begin_array(j, "single");
    put_template_special(j, bos);
    put_template_text(j, "A", 0);
    json_end(j);
    json_begin_array(j, "pair");
    put_template_special(j, bos);
    put_template_text(j, "A", 0);
    put_template_special(j, bos);
    put_template_text(j, "B", 1);
    json_end(j);
    json_begin_object(j, "special_tokens");
    json_key(j, bos);
    json_begin_object(j, NULL);
    json_text(j, "id", bos);
    json_begin_array(j, "ids");
    json_int(j, NULL, x->bos);
    json_end(j);
    json_begin_array(j, "tokens");
    json_text(j, NULL, bos);
    json_end(j);
    json_end(j);
    json_end(j);
    json_end(j);
}

/* --- tokens ---------------------------------------------------------------------------------- */

static void put_added_tokens(struct json *j, const struct vocab_export *x)
{
    json_begin_array(j, "added_tokens");
    for (int id = 0; id < x->n; id++) {
        if (!vocab_export_is_added(x, id) || x->names.replaced[id])
            continue;
        json_begin_object(j, NULL);
        json_int(j, "id", id);
        json_text(j, "content", x->names.name[id]);
        json_bool(j, "single_word", false);
        json_bool(j, "lstrip", false);
        json_bool(j, "rstrip", false);
        json_bool(j, "normalized", false);
        json_bool(j, "special", x->vocab.type[id] != TOKEN_USER_DEFINED);
        json_end(j);
    }
    json_end(j);
}

static void put_vocab(struct json *j, const char *key, const struct vocab_export *x)
{
    json_begin_object(j, key);
    for (int id = 0; id < x->n; id++) {
        json_key(j, x->names.name[id]);
        json_int(j, NULL, id);
    }
    json_end(j);
}

static void put_merges(struct json *j, const struct vocab_export *x)
{
    json_begin_array(j, "merges");
    for (size_t i = 0; i < x->n_merges; i++) {
        json_begin_array(j, NULL);
        json_text(j, NULL, x->names.name[x->merges[i].left]);
        json_text(j, NULL, x->names.name[x->merges[i].right]);
        json_end(j);
    }
    json_end(j);
}

/* The name of a token that is looked for in texts anyway: any other would be from then on. */
static void put_special(struct json *j, const char *key, const struct vocab_export *x, int id)
{
    if (id >= 0 && vocab_export_is_added(x, id) && !x->names.replaced[id])
        json_text(j, key, x->names.name[id]);
    else
        json_null(j, key);
}

static void put_model(struct json *j, const struct vocab_export *x)
{
    begin_step(j, "model", "BPE");
    json_null(j, "dropout");
    if (x->pre)
        json_null(j, "unk_token");
    else
        put_special(j, "unk_token", x, x->unk);
    json_null(j, "continuing_subword_prefix");
    json_null(j, "end_of_word_suffix");
    json_bool(j, "fuse_unk", !x->pre);
    json_bool(j, "byte_fallback", !x->pre);
    json_bool(j, "ignore_merges", x->pre && x->pre->whole_pieces);
    put_vocab(j, "vocab", x);
    put_merges(j, x);
    json_end(j);
}

/* --- files ----------------------------------------------------------------------------------- */

void put_tokenizer_json(struct json *j, const void *arg)
{
    const struct vocab_export *x = arg;
    json_begin_object(j, NULL);
    json_string(j, "version", "1.0");
    json_null(j, "truncation");
    json_null(j, "padding");
    put_added_tokens(j, x);
    put_normalizer(j, x);
    put_pre_tokenizer(j, x);
    put_post_processor(j, x);
    put_decoder(j, x);
    put_model(j, x);
    json_end(j);
}

void put_vocab_json(struct json *j, const void *arg)
{
    put_vocab(j, NULL, arg);
}

/* PreTrainedTokenizerFast is the class that takes tokenizer.json as it is in every version: from
 * transformers 5 on others put the parts together anew, in a way of their own. Without
 * model_input_names version 4 gives token_type_ids, too, which GPT-2 embeds. */
void put_tokenizer_config(struct json *j, const void *arg)
{
    const struct vocab_export *x = arg;
    const bool adds_bos = tokenizer_adds_bos(x->tokenizer);
    json_begin_object(j, NULL);
    if (!adds_bos || vocab_export_is_added(x, x->bos)) /* needs bos_token */
        json_bool(j, "add_bos_token", adds_bos);
    json_bool(j, "add_prefix_space", x->adds_space);
    put_special(j, "bos_token", x, x->bos);
    json_bool(j, "clean_up_tokenization_spaces", false);
    put_special(j, "eos_token", x, x->eos);
    json_begin_array(j, "model_input_names");
    json_string(j, NULL, "input_ids");
    json_string(j, NULL, "attention_mask");
    json_end(j);
    if (x->longest > 0)
        json_u64(j, "model_max_length", x->longest);
    put_special(j, "pad_token", x, x->pad);
    json_string(j, "tokenizer_class", "PreTrainedTokenizerFast");
    put_special(j, "unk_token", x, x->unk);
    json_end(j);
}
