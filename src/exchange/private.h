/*
 * private - what the files of this room share: the reading of other programs' files, vocabularies
 * while they are put together, views of other files' tensors, and how Hugging Face's models are
 * described.
 */
#pragma once

#include "exchange/exchange.h"
#include "formats/json.h"
#include "model/layout.h"
#include "text/bpe.h"
#include "text/pretokenize.h"

/* --- files that are read --------------------------------------------------------------------- */

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Puts a file's name before the message, unless memory failed. */
enum status status_in(enum status s, const char *name, struct err *e);

/* A file that is mapped: what was read of it stays as it was, should somebody be writing to it. */
struct input {
    char *path;
    struct text bytes;            /* data is NULL: there is no such file */
    const struct json_node *root; /* of JSON: an object */
    struct file_map map;
    struct json_reader reader;
};

/* Opens `name` in a folder, if something of that name is there, be it a link that leads nowhere;
 * without a folder (NULL) `name` is a path where there must be one. The message has the path. *in
 * is for input_close whatever is returned. */
enum status input_open(struct input *in, const char *folder, const char *name, struct err *e);

/* Reads its JSON, if it is there: the root must be an object. */
enum status input_read_json(struct input *in, struct err *e);
void input_close(struct input *in); /* legal on a zeroed struct and twice */

/* The member of an object that is there and not null; else, and where `object` is none, NULL. */
const struct json_node *json_present(const struct json_node *object, const char *key);

/* What it is: a string without its quotes, another value as it is written, "null" also for what is
 * empty or not there. And whether that is one of several with | between; "*" is all but "null". */
struct text json_shown(const struct json_node *object, const char *key);
bool json_is_one_of(const struct json_node *object, const char *key, const char *values);

/* --- a vocabulary while it is put together --------------------------------------------------- */

/* Ends the message of whatever cannot be imported as it is. */
#define VOCAB_ADVICE "; --tokenizer none imports the tokens without text"

/* All tokens are missing, BOS and the other ids are -1, and nothing is said of a space before
 * texts. vocabulary_free is due whatever is returned. */
enum status vocabulary_start(struct vocabulary *v, int n_vocab,
                             const struct vocabulary_notes *notes, struct err *e);

/* Fills the holes, writes the merges and makes sure that tokenizer_create takes it. */
enum status vocabulary_finish(struct vocabulary *v, struct err *e);

/* Zeroed bytes that live as long as the vocabulary; NULL, and a message, without memory. */
void *vocabulary_take(struct vocabulary *v, size_t bytes, struct err *e);

/* n parts one after another, copied. *out is not NULL even where it is empty. */
enum status vocabulary_join(struct vocabulary *v, const struct text *parts, size_t n,
                            struct text *out, struct err *e);

/* Sets token `id`; the name is copied. STATUS_BAD_FILE: an id beyond the vocabulary, or that has
 * another token. */
enum status vocabulary_token(struct vocabulary *v, int64_t id, struct text name,
                             enum token_type type, struct err *e);

/* Makes the tokens there are now findable; names that are freed or changed must not be sought. */
enum status vocabulary_index(struct vocabulary *v, struct err *e);

/* The token of this name at the last index, the lowest if there are several; -1: none. Time
 * O(log n). */
int vocabulary_find(const struct vocabulary *v, struct text name);

/* The next merge, of which token. */
enum status vocabulary_merge(struct vocabulary *v, int left, int right, int result, struct err *e);

/* Tells a note, unless `notes` is NULL or has nobody to tell. */
void vocabulary_note(const struct vocabulary_notes *notes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The files that a vocabulary is read of. */
enum vocab_file {
    VOCAB_CONFIG,    /* tokenizer_config.json */
    VOCAB_MAP,       /* special_tokens_map.json */
    VOCAB_ADDED,     /* added_tokens.json */
    VOCAB_TOKENIZER, /* tokenizer.json */
    VOCAB_MODEL,     /* tokenizer.model, or llama2.c's or llm.c's tokenizer.bin */
    VOCAB_NAMES,     /* vocab.json */
    VOCAB_MERGES,    /* merges.txt */
    VOCAB_FILES
};

/* Fills in and finishes a started vocabulary; keys.model stays NULL where there is none. `folder`,
 * which they are in, is for messages; NULL: one file stands alone. */
enum status vocabulary_of(const struct input files[VOCAB_FILES], const char *folder,
                          const struct hf_ids *ids, struct vocabulary *v, struct err *e);

/* --- vocabularies of each format ------------------------------------------------------------- */

/*
 * Each fills in a started vocabulary: tokens with their types, scores or merges, and what the file
 * says of special tokens. The index may be anything then. STATUS_BAD_FILE or STATUS_NO_MEMORY.
 */

/* tokenizer.json, as the library `tokenizers` writes it. */
enum status vocab_tokenizer_json_read(const struct json_node *root, struct vocabulary *v,
                                      struct err *e);

/* The only special token that its post_processor puts before each text: *id is -1 if there is
 * none. */
enum status tokenizer_template_read(const struct json_node *root, const struct vocabulary *v,
                                    int *id, struct err *e);

/* Added tokens are found in a text before it is cut and merged: special ones become TOKEN_CONTROL,
 * others TOKEN_USER_DEFINED. One may be in the vocabulary, under the same id; those that are not
 * are added. An array of objects (a tokenizer.json's), an object of them whose keys are ids (a
 * tokenizer_config.json's), or one of names and their ids, none of them special
 * (added_tokens.json); or NULL. Of tokens that are sought in what the normalizer makes of a text,
 * if it does (`normalizes`), a note is made. */
enum status added_tokens_read(const struct json_node *from, bool normalizes, struct vocabulary *v,
                              struct err *e);

/* GPT-2's vocab.json, an object of tokens and ids, and merges.txt; without that (data is NULL) it
 * is one of single characters: no merges, and no space before texts. */
enum status vocab_names_read(const struct json_node *names, struct text merges,
                             struct vocabulary *v, struct err *e);

/* SentencePiece's tokenizer.model of type BPE. */
enum status vocab_sentencepiece_read(struct text file, struct vocabulary *v, struct err *e);

/* llama2.c's tokenizer.bin, llm.c's tokenizer .bin. */
enum status vocab_llama2c_read(struct text file, struct vocabulary *v, struct err *e);
enum status vocab_llmc_read(struct text file, struct vocabulary *v, struct err *e);

/* Plain bytes, as bpe_learned_write has them; n_vocab is 256 (asserted). */
enum status vocab_bytes_fill(struct vocabulary *v, struct err *e);

/* Which of them a file begins like. */
bool vocab_is_sentencepiece(struct text file);
bool vocab_is_llmc(struct text file);

/* What a tokenizer.json does with a text that ours does, too: a letter for each of its steps, see
 * tokenizer_json.c. */
struct pipeline {
    const char *steps;
    const char *regex; /* of a Split; NULL: none, or none that matters */
    enum pretokenize_rule rule;
    const char *pre, *pre_whole; /* tokenizer.ggml.pre, NULL where spaces are U+2581; and where a
                                    piece that is a token is that token, whatever the merges: NULL
                                    if there is none */
};

/* The one that is written for a rule. */
const struct pipeline *pipeline_of_rule(enum pretokenize_rule rule);

/* --- views ----------------------------------------------------------------------------------- */

/*
 * A view is a tensor made of the bytes of another file while it is written: rows in another order,
 * transposed, repeated, in another type. Nothing is rounded: it is of the type of what it is made
 * of, or F32. Sources may be larger than memory and lie at any address; a view is made a few rows
 * at a time.
 */

/* Rows [n][p][q][m] of a source become rows [n][q][p][m]; n follows from the number of rows. Zero:
 * they stay as they are. */
struct row_swap {
    int p, q, m;
};

/* int8 with a float32 factor for each `group` elements of the whole tensor: llama2.c's. */
#define VIEW_INT8 0x10000u

/* Rows that stand in one source. */
struct view_part {
    const struct file_map *file;  /* that it is in: its pages are released when the next view is
                                     made; NULL: they stay */
    const unsigned char *data;    /* of the source, a matrix [source_rows, cols] */
    uint32_t type;                /* enum tensor_type of the five that blocks_runs, or VIEW_INT8 */
    const unsigned char *factors; /* of VIEW_INT8 */
    int group;
    int source_rows;
    int first, rows;       /* which of its rows are taken */
    struct row_swap swap;  /* of those */
    int head_rows, copies; /* then each head_rows of them stand `copies` times; 0: once */
};

#define VIEW_PARTS 3

/* Memory in which one view after another is made; zeroed at first. */
struct view_maker {
    float *numbers; /* [3][cap]: a few rows, what they are made of, and the same in bytes */
    size_t cap;
    const struct view *last;
};
void view_maker_free(struct view_maker *m); /* legal on a zeroed struct and twice */

/* The rows of its parts, one part after another; zeroed at first. */
struct view {
    struct view_part parts[VIEW_PARTS];
    int n_parts;
    int cols;
    bool transposes; /* what is made is [cols, rows] */
    uint32_t type;   /* of what is made: that of its only source, or F32, F16 or BF16 */
    struct view_maker *maker;
};

/* The rows of all parts. */
int view_rows(const struct view *v);

/* The bytes of what is made from `offset` on, 0 or the end of a piece, as struct gguf_source wants
 * them: `view` is a struct view. STATUS_NO_MEMORY. */
enum status view_piece(void *view, uint64_t offset, const void **data, size_t *len, struct err *e);

/* --- checkpoints of one file ----------------------------------------------------------------- */

/*
 * Completes a config whose sizes are each within the bounds of model/config.h, and checks that they
 * fit one another: STATUS_BAD_FILE names them. To be called before anything is made of it.
 */
enum status import_check_config(struct config *c, struct err *e);

/*
 * Files without names: a header of numbers, then arrays, one for each role, in which the tensors of
 * all layers stand one after another.
 *
 * Of llama2.c: versions 0 (its first, without a magic number), 1 (float32) and 2 (int8 in groups,
 * which become the F32 that they stand for). Architecture llama: pairs that turn are neighbours
 * already. The epsilon of its norms and the base of its positions are constants of its program.
 *
 * Of llm.c: GPT-2 in float32 (versions 1 and 3) and bfloat16 (version 5). Weights are [out, in],
 * the output is the embedding. From version 3 on that has rows for more tokens than there are, so
 * that their number is round: they are left out.
 */
struct bin_format {
    const char *name, *tokenizer; /* the vocabulary that its programs take by default */
    const char *arch;
    int32_t magic;
    const struct header_number *numbers;
    const struct bin_version *versions; /* the first may be 0, which has no magic number */
    const char *expected;               /* versions */
};
#define BIN_FORMATS 2
extern const struct bin_format bin_formats[BIN_FORMATS];

struct bin_file {
    struct text file; /* borrowed */
    const struct bin_format *format;
    const struct bin_version *version;
    struct config config; /* complete; n_ctx may be lowered before it is asked for tensors */
    bool own_output;
    int group;     /* of VIEW_INT8 */
    int embd_rows; /* of the embedding in the file: at least as many as tokens */
    int n_ctx;     /* of the file */
};

/* The one that a file begins like: with the magic number (or another one that llm.c's programs
 * write, which bin_open refuses), or with seven numbers that can be a shape. NULL: none. */
const struct bin_format *bin_format_of(struct text file);

/* Checks the header and that the file is as long as it says. The file is borrowed, at any address.
 * STATUS_BAD_FILE says what was expected and found. */
enum status bin_open(const struct bin_format *f, struct text file, struct bin_file *out,
                     struct err *e);

/* What a tensor of layout_at(&config, ...) is made of: one part and cols, whose rows are the spec's
 * (fewer of the position embedding than there are, if n_ctx was lowered). False, and *out left
 * alone, if the file has none. */
bool bin_tensor(const struct bin_file *b, const struct tensor_spec *spec, struct view *out);

/* --- Hugging Face's models ------------------------------------------------------------------- */

/* The models of transformers that go in and out, a row each. */
struct hf_family {
    const char *model_type;  /* config.json's; NULL: it has none (nanoGPT) */
    const char *model_class; /* its architectures[0] */
    const char *arch;        /* GGUF's name */
    const char *activation;  /* that is meant where the key is missing */
    bool is_llama;           /* else a GPT-2, which has biases and ties its output. Rows of Q and K:
                                pair i is elements i and i + head_dim / 2 */
    bool conv1d;             /* affine maps are stored as [n_in, n_out] */
    bool joins_by_head;      /* with all K/V heads: each head's rows of Q, K and V stand together */
};

/* The family of a model_type, that without one where its data is NULL; NULL if there is none. */
const struct hf_family *hf_family_find(struct text model_type);

/* The first name in config.json of a feed-forward kind that a family may have. */
const char *hf_activation_name(enum ffn_kind kind);

/* Room for a tensor's name. */
struct hf_tensor_name {
    char text[96];
};

/* The name of a role's weight or bias, with the prefix that all but the output have or without;
 * empty if the family has none. */
struct hf_tensor_name hf_tensor_name(const struct hf_family *f, bool prefixed,
                                     enum tensor_role role, int layer, bool is_bias);

/* The rows of a tensor in transformers' order become those of ours by this swap; those of ours
 * theirs by its inverse. */
struct row_swap hf_row_swap(const struct hf_family *f, const struct config *c,
                            enum tensor_role role);

/* Rotary frequencies scaled as Llama 3.1's are; zeroed: they are not. */
struct hf_llama3 {
    double factor, low, high; /* by how much; from which wavelengths on, in shares of `context` */
    int context;              /* before it was made longer */
};

/* Biases that a model has together. */
enum hf_bias { HF_NORMS, HF_ATTENTION, HF_FFN, HF_NOWHERE };
enum hf_bias hf_bias_of(enum tensor_role role);

/* What config.json says. */
struct hf_config {
    const struct hf_family *family;
    struct config c; /* all but n_kv_heads by layer */
    bool tied, multi_query, biases;
    bool bias[HF_NOWHERE + 1]; /* whether transformers' model has those */
    double eps, theta;
    struct text activation, rope_type;
    struct hf_llama3 llama3; /* of rope_type linear only the factor, and only while it is written */
    int window;
    int uncut_ctx; /* the context, if n_ctx is only as long as a sliding window; else 0 */
};

/*
 * Reads config.json's object; *h borrows names of it. Every size is within the bounds of
 * model/config.h. What asks for another computation than ours is refused, naming the key:
 * STATUS_BAD_FILE.
 */
enum status hf_config_read(const struct json_node *object, struct hf_config *h, struct err *e);

/* Puts the members that say this. */
void hf_config_put(struct json *j, const struct hf_config *h);

/*
 * What the frequency of each pair of a head is divided by, to out [c->rope.n_dims / 2]. Source:
 * transformers' modeling_rope_utils, _compute_llama3_parameters.
 */
void hf_llama3_factors(const struct hf_llama3 *l, const struct config *c, float *out);

/* What a key of a GGUF file says, if it is a number up to `most`; else -1. */
int export_id(const struct gguf *g, const char *key, uint64_t most);

/* Replaces the file `name` of a folder atomically by what `put` writes: one value, members in lines
 * of their own. STATUS_FAILED, STATUS_NO_MEMORY. */
enum status export_json(const char *dir, const char *name,
                        void (*put)(struct json *j, const void *arg), const void *arg,
                        struct err *e);
