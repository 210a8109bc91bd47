/*
 * fuzz_vocab_files - the vocabularies that are no tokenizer.json. The first byte says which format,
 * the next two how many ids the model has (fewer one, low byte first); vocab.json ends at a zero
 * byte, behind which merges.txt is.
 */
#include "formats/json.h"
#include "round_trip.h"

enum format { SENTENCEPIECE, LLAMA2C, LLMC, MERGES, CHARS, FORMATS };

static enum status read_json(enum format format, struct choices in, struct vocabulary *v,
                             struct err *e)
{
    struct json_reader reader = {0};
    const struct json_node *root;
    enum status s = json_read(&reader, next_file(&in), &vocabulary_limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    if (s == STATUS_OK)
        s = vocab_names_read(
            root, format == MERGES ? next_text(&in, in.left) : (struct text){NULL, 0}, v, e);
    json_reader_free(&reader);
    return s;
}

static enum status read_format(enum format format, struct choices in, struct vocabulary *v,
                               struct err *e)
{
    const struct text file = {(const char *)in.at, in.left};
    switch (format) {
    case SENTENCEPIECE:
        return vocab_sentencepiece_read(file, v, e);
    case LLAMA2C:
        return vocab_llama2c_read(file, v, e);
    case LLMC:
        return vocab_llmc_read(file, v, e);
    default:
        return read_json(format, in, v, e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vocabulary v;
    struct err e = {{0}};
    if (size < 3)
        return 0;
    start_imported(&v, 1 + (data[1] | (data[2] & 0x0f) << 8));
    enum status s =
        read_format((enum format)(data[0] % FORMATS), (struct choices){data + 3, size - 3}, &v, &e);
    if (s == STATUS_OK)
        s = vocabulary_finish(&v, &e);
    finish_imported(&v, s, &e);
    return 0;
}
