/*
 * fuzz_vocab_files - the vocabularies that are no tokenizer.json. The first byte says which format,
 * the next two how many ids the model has (fewer one, low byte first); vocab.json ends at a zero
 * byte, behind which merges.txt is.
 */
#include "formats/json.h"
#include "imported.h"

enum format { SENTENCEPIECE, LLAMA2C, LLMC, MERGES, CHARS, FORMATS };

static const struct json_limits limits = {.bytes = 1 << 18, .values = 1 << 14, .depth = 32};

static enum status read_json(enum format format, struct text file, struct vocabulary *v,
                             struct err *e)
{
    const char *end = file.len > 0 ? memchr(file.data, 0, file.len) : NULL;
    const struct text vocab = {file.data, end ? (size_t)(end - file.data) : file.len};
    const struct text merges = {end ? end + 1 : "", end ? file.len - vocab.len - 1 : 0};
    struct json_reader reader = {0};
    const struct json_node *root;
    enum status s = json_read(&reader, vocab, &limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    if (s == STATUS_OK)
        s = vocab_names_read(root, format == MERGES ? merges : (struct text){NULL, 0}, v, e);
    json_reader_free(&reader);
    return s;
}

static enum status read_format(enum format format, struct text file, struct vocabulary *v,
                               struct err *e)
{
    switch (format) {
    case SENTENCEPIECE:
        return vocab_sentencepiece_read(file, v, e);
    case LLAMA2C:
        return vocab_llama2c_read(file, v, e);
    case LLMC:
        return vocab_llmc_read(file, v, e);
    default:
        return read_json(format, file, v, e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vocabulary v;
    struct err e = {{0}};
    if (size < 3)
        return 0;
    const int n_vocab = 1 + (data[1] | (data[2] & 0x0f) << 8);
    const struct text file = {(const char *)data + 3, size - 3};
    require(vocabulary_start(&v, n_vocab, &imported_notes, &e) == STATUS_OK);
    enum status s = read_format((enum format)(data[0] % FORMATS), file, &v, &e);
    if (s == STATUS_OK)
        s = vocabulary_finish(&v, &e);
    finish_imported(&v, s, &e);
    return 0;
}
