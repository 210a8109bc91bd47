/*
 * private - what a training run holds, and the steps that it is made of; behind that what a pass of
 * backpropagation holds.
 */
#pragma once

#include "base/hash.h"
#include "compute/grad_kernels.h"
#include "model/model.h"
#include "model/pack.h"
#include "train/train.h"

/* --- backprop.c: loss and gradient ------------------------------------------------------------ */

/*
 * Loss and gradient of a checkpoint on batches of token windows.
 *
 * The forward pass is the engine's block over whole windows, of any architecture; the backward pass
 * computes the gradient of the mean cross-entropy by every parameter that is trained (of others it
 * is 0). Saved for it are each layer's inputs, queries, keys, values, attention outputs and
 * feed-forward products; norms, activations and attention probabilities are computed again, and
 * logits exist for some rows at a time.
 *
 * All memory is taken at the start. The bits are the same for any number of threads: each sum over
 * the batch is one chain in the order of its tokens. One caller at a time.
 */

/* Which numbers of a training step are left out (Srivastava et al. 2014): a hash of key, site and
 * place decides, so that the backward pass finds them again. Sites are the points of the residual
 * stream, for what is added there (0: the embedding, 2 l + 1 and 2 l + 2: by block l's attention
 * and feed-forward part), then one a layer for the probabilities of its attention. */
struct dropout {
    double share; /* left out, 0 to below 1; the others are scaled up by 1 / (1 - share) */
    uint64_t key;
};

struct backprop;

/* One with the first members of `p`. Counts what backprop_start will take, in the arena.
 * STATUS_NO_MEMORY. */
enum status backprop_create(const struct backprop *p, struct backprop **out, struct err *e);

/* Takes the memory, before the first pass. rope_factors divide the frequencies of rotary pairs
 * (NULL: none) and are needed here only. STATUS_NO_MEMORY. */
enum status backprop_start(struct backprop *b, const float *rope_factors, struct err *e);
void backprop_free(struct backprop *b); /* NULL is legal */

/* Windows [n_sequences][length] of token ids below n_vocab (trusted), and the token that follows
 * each. With label smoothing s the gradient is that of (1 - s) times the cross-entropy plus s times
 * the mean over the vocabulary of -log probability (Szegedy et al. 2016; Vaswani et al. 2017, 5.4).
 * With a teacher it is that of (1 - share) * all of this + share * KL(teacher || model). */
struct backprop_batch {
    const int32_t *inputs, *targets;
    int n_sequences;
    /* Of a gradient only. */
    struct dropout dropout; /* of the embeddings and of what each block adds to the residual */
    double attn_dropout; /* share of attention's probabilities that is left out, by the same key */
    float label_smoothing;
    /* Of the same n_sequences, length, n_vocab and pool, and it may be forward only; NULL: none. */
    struct backprop *teacher;
    const struct param_view *teacher_weights;
    float teacher_share;
};

/* The mean cross-entropy in nats a token; may not be finite. Adds to `gradient` (NULL: not asked
 * for), of as many windows as `b` has at most. */
double backprop_run(struct backprop *b, const struct param_view *weights,
                    const struct backprop_batch *batch, struct param_view *gradient);

static inline bool train_stopped(const struct train_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

static inline void train_tell(const struct train_spec *spec, struct train_event ev)
{
    if (spec->event)
        spec->event(spec->arg, &ev);
}

/* --- data.c: the texts as tokens, windows of them, and what OUT holds besides tensors --------- */

struct tokens {
    int32_t *ids; /* malloc'd */
    size_t n;
    size_t n_bytes; /* that they stand for */
};

struct train_data {
    struct tokens train, val;
    uint64_t hash; /* of all ids */
};

struct trainer;

/* Splits each text and encodes the parts into t->data. STATUS_USAGE, with the least length, if a
 * part has no whole window. */
enum status train_data_read(struct trainer *t, struct err *e);

/* Fills in the metadata, of spec.from or a new vocabulary, and what follows from it. */
enum status train_template_make(struct trainer *t, struct err *e);

/* OUT as the weights are, atomically. */
enum status train_model_write(const struct trainer *t, struct err *e);

/* Fills in its config. STATUS_USAGE unless it predicts the same tokens. */
enum status train_teacher_check(struct trainer *t, struct err *e);

/* --- state.c: OUT.state, everything that the next step depends on ----------------------------- */

/* How far a run is, as OUT.state has it. */
struct progress {
    int64_t step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    struct rng rng;
    uint64_t n_floats;          /* in each of the arrays behind */
    uint64_t out_len, out_hash; /* of OUT as it was last written: bytes, hash_bytes */
    double rate; /* the full learning rate; 0: not yet chosen or, after all steps, none */
};

/* See state.c. */
enum { STATE_SEED = 11, STATE_FIELDS = 26 };
struct state_header {
    char magic[8];
    uint64_t version;
    uint64_t identity[STATE_FIELDS]; /* tells runs apart */
    struct progress progress;
};
_Static_assert(sizeof(struct state_header) == (2 + STATE_FIELDS + 9) * sizeof(uint64_t), "no gaps");

/* A state file, checked as far as its header goes. */
struct state {
    struct file_map file;
    struct state_header header;
};

/* Reads the header. STATUS_BAD_FILE if it is none of this format or version. */
enum status state_parse(struct state *s, const char *path, struct err *e);

/* Fills in t->identity from its options, model, text and teacher. */
void state_identify(struct trainer *t);
/* STATUS_USAGE, naming the first difference of t->state's identity from that. */
enum status state_compare(const struct trainer *t, struct err *e);
/* Weights and moments. STATUS_BAD_FILE for a wrong length or checksum. */
enum status state_read(struct trainer *t, struct err *e);
enum status state_write(const struct trainer *t, struct err *e);

/* --- muon.c ----------------------------------------------------------------------------------- */

/* Room for the largest matrix, and of the step the learning rate. */
struct muon {
    float *x[2], *square[2];
    double *squares; /* of rows */
    double rate;
};

void muon_take(struct muon *u, struct arena *arena, const struct param_list *list);

/* Whether this tensor is moved by Muon, and not by AdamW. */
bool muon_moves(const struct train_spec *spec, const struct tensor_spec *s);

/* Of these tensors: momentum t->m, then a step; t->v is not used. Every thread calls it. */
void muon_step(const struct trainer *t, int thread);

/* --- train.c ---------------------------------------------------------------------------------- */

/* Windows of a text that are always the same. */
struct windows {
    const struct tokens *tokens;
    size_t n;
    size_t last; /* where the last begins, the others evenly before it; 0: one after the other */
};

struct trainer {
    struct train_spec spec; /* with the seed, keep_last and, once chosen, the rate that count */
    struct train_plan plan;
    const struct gguf *gguf; /* what OUT has besides tensors: `from`, or owned_gguf */
    struct gguf *owned_gguf; /* of a new model, else NULL */
    unsigned char *bytes;    /* that it reads */
    struct config config;
    struct tokenizer *tokenizer;
    struct train_data data;
    struct param_list list, teacher_list;
    struct config teacher_config;
    char *state_path;
    struct state state; /* open while there is one to resume */
    uint64_t shape_hash, teacher_hash, identity[STATE_FIELDS];
    struct progress progress;

    struct arena arena; /* all down to the batch */
    struct param_view weights, gradient, teacher_weights;
    float *m, *v;     /* [n_floats] moments */
    double *partials; /* [train_shards] sums of squares of the gradient */
    struct muon muon;
    int32_t *inputs, *targets; /* [batch, length] */
    struct backprop *engine, *teacher;
    const struct grad_kernels *grad;
    struct adamw adamw;   /* the step that is made, of a tensor that decays */
    struct windows aside; /* the probe's; no window of a step while it runs meets them */

    double loss_sum; /* since the last evaluation */
    int loss_steps;
    bool out_written; /* by this run, or it is the resumed state's best */
    int64_t saved_step;
};

/* What is in t->arena. */
void trainer_take(struct trainer *t);

/* --- steps.c: first weights, a step, the mean loss on windows, and the rate to step with ------ */

/* Floats whose squares are summed by one kernel call. */
#define SHARD ((size_t)4096)

static inline size_t train_shards(const struct param_list *list)
{
    return (list->n_floats + SHARD - 1) / SHARD;
}

/* The learning rate of the step that follows `step` made ones. */
double train_rate(const struct train_spec *spec, int step);

/* Streams of the seed. */
enum {
    STREAM_WEIGHTS,
    STREAM_WINDOWS,
    STREAM_DROPOUT, /* and all above: one a step */
};
#define STREAM_PROBE UINT64_MAX

/* The first weights, GPT-2's: normal with deviation 0.02, matrices before a residual divided by
 * sqrt(2 n_layers); gains 1, biases 0. Where norms stand after the residuals, or positions are
 * sinusoids, with which so small numbers learn next to nothing, the original Transformer's:
 * 1 / sqrt(d_model) for tokens, Glorot's deviation (2010) for matrices. Heads of quadratic
 * positions look at distances 0, 1, 2 and so on, each as widely as it is far. */
void trainer_initialise(struct trainer *t);

/* A step of AdamW with t->gradient, its norm limited to spec->clip; *made tells norm and lr.
 * STATUS_FAILED, with the weights as they were: the norm is not finite. */
enum status trainer_update(struct trainer *t, struct train_event *made, struct err *e);

/* The same with the gradient of a batch that is drawn, clear of t->aside; *made tells the loss,
 * too, which has to be finite as well. */
enum status trainer_step(struct trainer *t, struct train_event *made, struct err *e);

/* STATUS_FAILED: what was not finite, after which step, and what may help. */
enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e);

/* So many windows of `tokens`: one after the other if they cover them, else spread evenly. */
struct windows trainer_windows(const struct tokens *tokens, size_t n, int length);

/* The mean loss on them in nats a token; may not be finite. */
double trainer_loss(struct trainer *t, const struct windows *w);

/* The weights are the checkpoint's again, and no step was made. */
void trainer_rewind(struct trainer *t);

/*
 * Finds the learning rate with which a checkpoint is trained further: a few are tried, each for a
 * few steps from the checkpoint with warm-up and decay of its own, and judged on windows of the
 * training part that no trial trains on. (A checkpoint that was trained to the end and one that a
 * conversion has damaged ask for different rates, and few steps do not repay too high a one.)
 *
 * t->progress.rate becomes that of the trial with the lowest loss (of a run as short as its trials
 * the smallest that comes near to it), 0 if none was below the checkpoint's own, a fixed one if the
 * text has no window to spare. A loss that is not finite counts as the worst. Weights, moments and
 * random generator stay as the trials left them. Tells a TRAIN_TRIED for each, first for the
 * checkpoint itself (rate 0), and a TRAIN_CHOSEN. STATUS_INTERRUPTED; STATUS_FAILED if the
 * checkpoint's own loss is not finite.
 */
enum status trainer_probe(struct trainer *t, struct err *e);

/* --- a pass of a batch through a model and back: memory ----------------------------------------
 *
 * Rows are tokens: row = window * length + position. Letters: d = d_model, heads =
 * config_heads_dim, qkv = config_qkv_dim of the layer, kv = pass_kv_dim, ff = d_ff.
 *
 * Points of the residual stream: 0 is the embedding, 2 l + 1 after block l's attention, 2 l + 2
 * after its feed-forward part. Where norms stand after the residuals it is saved before them.
 *
 * Threads own contiguous rows where a token is all that counts, windows and K/V heads in
 * attention, and rows of a gradient matrix where tokens are summed.
 */

/* Rows [begin, end) of the batch. */
struct rows {
    int begin, end;
};

static inline int rows_n(struct rows r)
{
    return r.end - r.begin;
}

/* n_rows rows of n floats, `stride` of them apart; x is NULL where there is no such buffer. */
struct view {
    float *x;
    int n_rows, n;
    size_t stride;
};

/* The rows r of a view, or n columns from `first` on; none of no buffer. */
static inline struct view rows_view(struct view v, struct rows r)
{
    return (struct view){v.x ? v.x + r.begin * v.stride : NULL, rows_n(r), v.n, v.stride};
}

static inline struct view view_columns(struct view v, int first, int n)
{
    return (struct view){v.x ? v.x + first : NULL, v.n_rows, n, v.stride};
}

/* What the forward pass saves of a block for the backward pass. */
struct saved {
    struct view x;     /* [rows, d] the residual stream before it */
    struct view qkv;   /* [rows, qkv] queries and keys not yet turned */
    struct view heads; /* [rows, heads] outputs of the heads */
    struct view mid;   /* [rows, d] the residual stream after attention */
    struct view up;    /* [rows, ff] before what makes it not linear */
    struct view gate;  /* [rows, ff] the same; none where there is no gate */
    float *softmax;    /* [windows, n_heads, 2, padded length] each query's max and 1 / sum */
};

struct backprop {
    /* The caller's: */
    struct config config;
    int n_sequences;   /* windows in a batch, at most */
    int length;        /* tokens of a window, at most the context */
    bool forward_only; /* no gradient will be asked for: takes less memory */
    bool dropping;     /* batches may have dropout: takes room for masked gradients */
    bool taught;       /* a teacher may be given: takes room for its logits */
    const struct kernels *kernels;
    struct pool *pool; /* NULL: one thread; borrowed */

    const struct grad_kernels *grad;
    int n_threads;
    int head_rows;         /* rows whose logits exist at once */
    size_t scratch_floats; /* of a thread: whole cache lines */
    struct arena arena;

    struct positions positions; /* below length */
    struct saved *blocks;       /* [n_layers]; forward only: all share their memory */
    struct view out;            /* [rows, d] the residual stream after the last block */
    /* By role, matrices in panels: forward [n_out / 16][n_in][16], backward [n_in / 16][n_out][16];
     * of one block, in one direction, at a time. */
    float *panels[TENSOR_ROLES];
    float *output_backward; /* panels[ROLE_OUTPUT] is its forward form */

    /* One block's at a time. */
    struct view norm;  /* [rows, d] output of a norm */
    struct view act;   /* [rows, ff] what the down matrix takes */
    struct view dx;    /* [rows, d] gradient of the block's output, then of its input */
    struct view dmid;  /* [rows, d] of mid */
    struct view dnorm; /* [rows, d] of norm */
    /* dx and dmid as they reach the matrices: without what was dropped; else dx and dmid. */
    struct view dx_dropped, dmid_dropped;
    struct view dup, dgate; /* [rows, ff]; dgate none where there is no gate */
    struct view dheads;     /* [rows, heads] */
    struct view dqkv;       /* [rows, qkv] of the widest layer */
    struct view stats;      /* [rows, 2] of a norm */
    enum tensor_role table; /* of heads, in a block, that training moves: quadratic positions' or
                               additive scores' */
    int table_cols;
    double *dtable; /* [windows, n_heads, table_cols]; NULL: there is no such table */

    struct view logits;         /* [head_rows, n_vocab], then their gradient */
    struct view losses;         /* [rows, 1] */
    struct view teacher_logits; /* [head_rows, n_vocab]; none if not taught */
    float *scratch;             /* [n_threads, scratch_floats]: of a row block or of an attention
                                   item */
};

static inline float *pass_scratch(const struct backprop *b, int thread)
{
    return b->scratch + thread * b->scratch_floats;
}

/* The residual stream [rows, d] at a point. */
static inline struct view pass_stream(const struct backprop *b, int point)
{
    const int l = point / 2;
    if (point % 2)
        return b->blocks[l].mid;
    return l < b->config.n_layers ? b->blocks[l].x : b->out;
}

/* --- a pass ---------------------------------------------------------------------------------- */

struct pass {
    struct backprop *b;
    const struct param_view *w;
    const struct backprop_batch *batch;
    struct param_view *gradient; /* NULL: loss only, and nothing is left out */
    bool hidden_only;            /* norm of the last block's output is all */
};

static inline int pass_rows(const struct pass *p)
{
    return p->batch->n_sequences * p->b->length;
}

/* Whether this pass leaves something out. */
static inline bool pass_drops(const struct pass *p)
{
    return p->gradient && p->batch->dropout.share > 0;
}

static inline struct rows all_rows(const struct pass *p)
{
    return (struct rows){0, pass_rows(p)};
}

/* This thread's share of some rows. */
static inline struct rows rows_share(const struct pass *p, struct rows all, int thread)
{
    struct rows r;
    pool_share(rows_n(all), thread, p->b->n_threads, &r.begin, &r.end);
    return (struct rows){all.begin + r.begin, all.begin + r.end};
}

/* Rows that pass one matrix after the other while they are in the nearer caches. */
#define ROW_BLOCK 96

/* Runs a step over this thread's share of some rows, by blocks of at most ROW_BLOCK. */
static inline void rows_each(const struct pass *p, struct rows all, int at, int thread,
                             void (*step)(const struct pass *p, int at, struct rows r, int thread))
{
    const struct rows share = rows_share(p, all, thread);
    for (struct rows r = {share.begin, share.begin}; r.begin < share.end; r.begin = r.end) {
        r.end = MIN(share.end, r.begin + ROW_BLOCK);
        step(p, at, r, thread);
    }
}

/* --- layers.c -------------------------------------------------------------------------------- */

/* This thread's share of a role's weight [n_out, n_in], of block l, as panels for y = x W^T, or
 * `backward` for dx = dy W. */
void backprop_pack(const struct pass *p, enum tensor_role role, int l, bool backward, int thread);

/* y = start + x * panels + bias, over the rows of x. */
struct affine {
    const float *panels;       /* as backprop_pack makes them */
    const float *bias, *start; /* [y.n], and rows as y's; NULL: zero. start may be y */
};
void backprop_multiply(const struct backprop *b, struct affine map, struct view x, struct view y);

/* This thread's share, some rows of dW: dW [dy.n, x.n] += dy^T x and, where there is a bias, db +=
 * the sum of dy. */
void backprop_weight_sums(const struct backprop *b, struct param_pair gradient, struct view dy,
                          struct view x, int thread);

/* Each norm stands at a point of the residual stream; an embedding may have none, and is read as it
 * is. A branch reads the norm of its point; where norms stand after the residuals, it is also added
 * to that. */

/* out [r, d] = norm of the stream's rows r. */
void backprop_norm(const struct pass *p, int point, struct rows r, float *out);

/* In the rows r, dx = around (without x: zero) + the gradient through the norm, from b->dnorm;
 * fills in b->stats. */
void backprop_norm_backward(const struct pass *p, int point, struct view around, struct view dx,
                            struct rows r);

/* Adds this thread's share of a norm's gradient from all rows of b->dnorm and b->stats. */
void backprop_norm_sums(const struct pass *p, int point, int thread);

/* x = start (NULL: zero) + x without what is left out, for the site's n elements from `first` on,
 * where both begin; and for the rows r of its [rows, d]. */
void dropout_apply(const struct dropout *d, int site, float *x, const float *start, uint64_t first,
                   uint64_t n);
void backprop_drop(const struct pass *p, int site, float *x, const float *start, struct rows r);

/* --- block.c --------------------------------------------------------------------------------- */

/* Block l; and back, b->dx from its output to its input, and its tensors' gradients. Every thread
 * calls these; they meet inside. */
void backprop_block(const struct pass *p, int l, int thread);
void backprop_block_backward(const struct pass *p, int l, int thread);
