/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

/* ---- building blocks ---- */

/* Make room for one more element: the array doubles whenever n is a power of two. */
static int
grow(struct mdl_program *p, void **array, int32_t n, size_t size)
{
    size_t room;
    void *q;

    if (p->err != 0)
        return -1;
    if (n != 0 && (n & (n - 1)) != 0)
        return 0;
    room = n == 0 ? 1 : (size_t)n * 2;
    q = n < INT32_MAX / 4 ? realloc(*array, room * size) : NULL;
    if (q == NULL) {
        p->err = -ENOMEM;
        return -1;
    }
    *array = q;
    return 0;
}

int
mdl_add_buf(struct mdl_program *p, const char *name, enum mdl_rows rows, int32_t width)
{
    struct mdl_buf *b;

    if (grow(p, (void **)&p->buf, p->n_buf, sizeof(*p->buf)) != 0)
        return -1;
    b = &p->buf[p->n_buf];
    memset(b, 0, sizeof(*b));
    snprintf(b->name, sizeof(b->name), "%s", name);
    b->rows = rows;
    b->width = width;
    b->first = b->last = -1;
    return p->n_buf++;
}

int
mdl_add_w3(struct mdl_program *p, const char *a, int32_t a_rows, const char *b,
    int32_t b_rows, const char *c, int32_t c_rows, int32_t cols, enum wts_shard shard,
    int as_f32)
{
    const char *name[MDL_MAX_PART] = { a, b, c };
    int32_t rows[MDL_MAX_PART] = { a_rows, b_rows, c_rows };
    struct wts_ref *w;

    if (grow(p, (void **)&p->w, p->n_w, sizeof(*p->w)) != 0)
        return -1;
    w = &p->w[p->n_w];
    memset(w, 0, sizeof(*w));
    for (int i = 0; i < MDL_MAX_PART && name[i] != NULL; i++) {
        snprintf(w->name[i], sizeof(w->name[i]), "%s", name[i]);
        w->rows[i] = rows[i];
        w->n_part++;
    }
    w->cols = cols;
    w->rank_cols = shard == WTS_COLS ? cols / (p->n_rank * p->n_split) : cols;
    w->n_cut = w->n_part;
    for (int i = 0; i < w->n_part; i++)
        w->cut[i] = shard == WTS_ROWS
            ? (struct wts_cut){ rows[i], rows[i] / p->n_rank, 1 }
            : (struct wts_cut){ rows[i], rows[i], p->n_rank };
    w->shard = shard;
    w->as_f32 = as_f32;
    w->alias = -1;
    return p->n_w++;
}

int
mdl_add_w(struct mdl_program *p, const char *name, int32_t rows, int32_t cols,
    enum wts_shard shard, int as_f32)
{
    return mdl_add_w3(p, name, rows, NULL, 0, NULL, 0, cols, shard, as_f32);
}

void
mdl_set_cuts(struct mdl_program *p, int32_t w, const struct wts_cut *c, int32_t n)
{
    if (w < 0)
        return;
    memcpy(p->w[w].cut, c, (size_t)n * sizeof(*c));
    p->w[w].n_cut = n;
}

int
mdl_add_op(struct mdl_program *p, struct mdl_op op)
{
    if (grow(p, (void **)&p->op, p->n_op, sizeof(*p->op)) != 0)
        return -1;
    p->op[p->n_op] = op;
    return p->n_op++;
}

/* ---- the dense decoder ---- */

static const struct mdl_op op_none = {
    .layer = -1,
    .rows = MDL_PER_TOKEN,
    .in = -1,
    .in2 = -1,
    .out = -1,
    .w = -1,
    .w2 = -1,
    .bias = -1,
};

static const struct mdl_names llama_names = {
    .pre_attention = "input_layernorm",
    .pre_mlp = "post_attention_layernorm",
};

struct dense {
    struct mdl_program *p;
    const struct mdl_names *names;
    int32_t layer;
    int32_t x, cs[2];   /* buffers: residual stream; rope tables, [1]: with a window */
    int32_t add;        /* buffer that the next norm adds to x, -1: none */
    int32_t post;       /* weight of the norm applied to add, -1: none */
    enum mdl_rows rows; /* rows of x and of the operations emitted next */
    enum mdl_tail tail;
};

/* Weights of a layer's operations after attention. */
struct dense_mlp {
    int32_t o, o_bias, post_attention, norm, post, gate_up, gate_up_bias, down, down_bias;
};

/* A buffer that is fp32 whatever the type of activations. */
static int32_t
f32_buf(struct mdl_program *p, const char *name, enum mdl_rows rows, int32_t width)
{
    int32_t i = mdl_add_buf(p, name, rows, width);

    if (i >= 0)
        p->buf[i].f32 = 1;
    return i;
}

static int32_t
dense_buf(const struct dense *d, const char *name, int32_t width)
{
    const char *more = d->tail == MDL_TAIL_OUTPUTS ? ".out" : "";
    char s[16];

    if (d->layer < 0)
        snprintf(s, sizeof(s), "%s%s", name, more);
    else
        snprintf(s, sizeof(s), "%d.%s%s", d->layer, name, more);
    return mdl_add_buf(d->p, s, d->rows, width);
}

static struct mdl_op
dense_op(const struct dense *d, enum mdl_op_kind kind)
{
    struct mdl_op op = op_none;

    op.kind = kind;
    op.layer = d->layer;
    op.rows = d->rows;
    op.tail = d->tail;
    return op;
}

/* Full name of a tensor of the layer; s has MDL_NAME bytes. */
static const char *
layer_name(const struct dense *d, char *s, const char *name)
{
    snprintf(s, MDL_NAME, "model.layers.%d.%s", d->layer, name);
    return s;
}

static int32_t
layer_w(const struct dense *d, const char *name, int32_t rows, int32_t cols,
    enum wts_shard shard, int as_f32)
{
    char s[MDL_NAME];

    return mdl_add_w(d->p, layer_name(d, s, name), rows, cols, shard, as_f32);
}

/* Add the weight of a row-parallel GEMM, or n_split consecutive ones. Returns the
 * first id. */
static int32_t
layer_w_cols(const struct dense *d, const char *name, int32_t rows, int32_t cols)
{
    int32_t first = -1;

    for (int32_t i = 0; i < d->p->n_split; i++) {
        int32_t w = layer_w(d, name, rows, cols, WTS_COLS, 0);

        if (w >= 0)
            d->p->w[w].split = i;
        first = i == 0 ? w : first;
    }
    return first;
}

/* Stack of up to three tensors; names without .weight or .bias. */
static int32_t
layer_w3(const struct dense *d, const char *const name[3], const int32_t rows[3],
    int32_t cols, const char *what)
{
    char s[3][MDL_NAME], t[64];

    for (int i = 0; i < 3 && name[i] != NULL; i++) {
        snprintf(t, sizeof(t), "%s.%s", name[i], what);
        layer_name(d, s[i], t);
    }
    return mdl_add_w3(d->p, s[0], rows[0], s[1], rows[1], name[2] != NULL ? s[2] : NULL,
        rows[2], cols, WTS_ROWS, cols == 0);
}

/* The weight of the norm of that name; -1 if name is NULL. */
static int32_t
layer_norm(const struct dense *d, const char *name)
{
    char s[MDL_NAME];

    if (name == NULL)
        return -1;
    (void)snprintf(s, sizeof(s), "%s.weight", name);
    return layer_w(d, s, d->p->cfg.hidden, 0, WTS_WHOLE, 1);
}

/* A norm of the residual stream after adding d->add to it. */
static void
emit_norm_op(struct dense *d, enum fdk_norm norm, int32_t w, int32_t out)
{
    struct mdl_op op = dense_op(d, MDL_OP_RMSNORM);

    op.norm = norm;
    op.in = d->x;
    op.in2 = d->add;
    op.out = out;
    op.w = w;
    op.N = d->p->cfg.hidden;
    op.f = d->p->cfg.norm_eps;
    op.scale = d->p->cfg.residual_scale;
    mdl_add_op(d->p, op);
    d->add = d->post = -1;
}

/* The input of a sublayer: the residual stream, normalized by w; not normalized if w is
 * -1. Returns out. */
static int32_t
emit_norm(struct dense *d, int32_t w, int32_t out)
{
    if (d->post >= 0 || w < 0)
        emit_norm_op(d, FDK_NORM_POST, d->post, w < 0 ? out : -1);
    if (w >= 0)
        emit_norm_op(d, FDK_NORM_PRE, w, out);
    return out;
}

static int32_t
emit_gemm(struct dense *d, int32_t in, const char *out, int32_t w, int32_t bias,
    int32_t N, int32_t K)
{
    struct mdl_op op = dense_op(d, MDL_OP_GEMM);

    op.in = in;
    op.out = dense_buf(d, out, N);
    op.w = w;
    op.bias = bias;
    op.N = N;
    op.K = K;
    mdl_add_op(d->p, op);
    return op.out;
}

/* The sum over the ranks of a row-parallel GEMM's results; returns its buffer. */
static int32_t
emit_allreduce(struct dense *d, int32_t buf)
{
    struct mdl_op op = dense_op(d, MDL_OP_ALLREDUCE);

    op.in = op.out = buf;
    op.N = d->p->cfg.hidden;
    if (d->p->n_rank > 1)
        mdl_add_op(d->p, op);
    return buf;
}

/* Columns of a buffer from first on; returns their buffer. */
static int32_t
emit_columns(struct dense *d, int32_t in, int32_t first, int32_t N, int32_t K)
{
    struct mdl_op op = dense_op(d, MDL_OP_COLUMNS);

    op.in = in;
    op.out = dense_buf(d, "columns", N);
    op.first = first;
    op.N = N;
    op.K = K;
    mdl_add_op(d->p, op);
    return op.out;
}

static int32_t
emit_add(struct dense *d, int32_t a, int32_t b, int32_t N)
{
    struct mdl_op op = dense_op(d, MDL_OP_ADD);

    op.in = a;
    op.in2 = b;
    op.out = dense_buf(d, "sum", N);
    op.N = N;
    mdl_add_op(d->p, op);
    return op.out;
}

/* A GEMM with the weights of layer_w_cols(), of which the rank has K columns; returns the
 * buffer of its sum over the ranks. */
static int32_t
emit_summed(struct dense *d, int32_t in, const char *out, int32_t w, int32_t bias, int32_t K)
{
    int32_t N = d->p->cfg.hidden, n = d->p->n_split, sum;

    if (n == 1)
        return emit_allreduce(d, emit_gemm(d, in, out, w, bias, N, K));
    sum = emit_gemm(d, emit_columns(d, in, 0, K / n, K), out, w, bias, N, K / n);
    for (int32_t i = 1; i < n; i++) {
        int32_t x = emit_columns(d, in, i * (K / n), K / n, K);

        sum = emit_add(d, sum, emit_gemm(d, x, out, w + i, -1, N, K / n), N);
    }
    return sum;
}

/* Concatenate the rows of all ranks. Returns their buffer; with one rank that is buf. */
static int32_t
emit_allgather(struct dense *d, int32_t buf, const char *name, int32_t N)
{
    struct mdl_op op = dense_op(d, MDL_OP_ALLGATHER);

    if (d->p->n_rank == 1)
        return buf;
    op.in = buf;
    op.out = dense_buf(d, name, d->p->n_rank * N);
    op.N = N;
    mdl_add_op(d->p, op);
    return op.out;
}

/* Gather the output rows of in. Returns out. */
static int32_t
emit_gather(struct dense *d, int32_t in, int32_t out, int32_t N)
{
    struct mdl_op op = dense_op(d, MDL_OP_GATHER);

    op.rows = MDL_PER_OUT;
    op.in = in;
    op.out = out;
    op.N = N;
    mdl_add_op(d->p, op);
    return out;
}

/* Norm, QKV GEMM and QKV: rotates queries and writes keys and values. Returns the
 * buffer. */
static int32_t
emit_qkv(struct dense *d)
{
    static const char *const name[3] = { "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj" };
    const struct mdl_config *c = &d->p->cfg;
    const struct mdl_program *p = d->p;
    int32_t D = c->head_dim, hd = c->n_head * D, kd = c->n_kv_head * D;
    int32_t rank_all = (p->n_head + 2 * p->n_kv_head) * D;
    const int32_t rows[3] = { hd, kd, kd };
    const struct wts_cut cut[3] = { { hd, p->n_head * D, 1 },
        { kd, p->n_kv_head * D, p->kv_share }, { kd, p->n_kv_head * D, p->kv_share } };
    struct mdl_op op = dense_op(d, MDL_OP_QKV);
    int32_t h, qkv, w, b = -1;

    w = layer_norm(d, d->names->pre_attention);
    h = emit_norm(d, w, dense_buf(d, "norm1", c->hidden));
    w = d->names->qkv == NULL
        ? layer_w3(d, name, rows, c->hidden, "weight")
        : layer_w(d, d->names->qkv, hd + 2 * kd, c->hidden, WTS_ROWS, 0);
    if (c->qkv_bias)
        b = layer_w3(d, name, rows, 0, "bias");
    mdl_set_cuts(d->p, w, cut, 3);
    mdl_set_cuts(d->p, b, cut, 3);
    qkv = emit_gemm(d, h, "qkv", w, b, rank_all, c->hidden);

    op.in = op.out = qkv;
    if (!c->no_rope[d->layer])
        op.in2 = d->cs[c->windowed[d->layer] != 0];
    op.f = c->norm_eps;
    if (c->qk_norm != MDL_QK_NONE) {
        int is_all = c->qk_norm == MDL_QK_ALL;
        enum wts_shard shard = is_all ? WTS_ROWS : WTS_WHOLE;

        op.w = layer_w(d, "self_attn.q_norm.weight", is_all ? hd : D, 0, shard, 1);
        op.w2 = layer_w(d, "self_attn.k_norm.weight", is_all ? kd : D, 0, shard, 1);
        mdl_set_cuts(d->p, is_all ? op.w : -1, &cut[0], 1);
        mdl_set_cuts(d->p, is_all ? op.w2 : -1, &cut[1], 1);
        op.in = is_all ? emit_allgather(d, qkv, "qkv.all", rank_all) : qkv;
    }
    mdl_add_op(d->p, op);
    op = dense_op(d, MDL_OP_KVSHARE);
    if (p->n_copy > 1)
        mdl_add_op(d->p, op);
    return qkv;
}

/* Exchange rows of width N among the ranks that share tokens; each: in has one row for
 * each of these ranks. Returns out. */
static int32_t
emit_exchange(const struct dense *d, int32_t in, int32_t out, int32_t N, int each)
{
    struct mdl_op op = dense_op(d, MDL_OP_ALLGATHER);

    op.in = in;
    op.out = out;
    op.N = N;
    op.owners = 1;
    op.each = each;
    mdl_add_op(d->p, op);
    return out;
}

/* Attention when ranks share tokens: gather the queries of these ranks, attend with the
 * rank's share of the keys, send the partial results back and merge them. Returns out. */
static int32_t
emit_shares(const struct dense *d, struct mdl_op op, int32_t out)
{
    struct mdl_program *p = d->p;
    int32_t n = p->kv_split, D = p->cfg.head_dim, H = p->n_head, width = H * (D + 1);
    int32_t row = (H + 2 * p->n_kv_head) * D, mine;
    struct mdl_op merge = dense_op(d, MDL_OP_MERGE);

    op.in = emit_exchange(d, op.in, dense_buf(d, "qkv.share", n * row), row, 0);
    op.out = f32_buf(p, "att.share", MDL_PER_TOKEN, n * width);
    mdl_add_op(p, op);
    mine = f32_buf(p, "att.mine", MDL_PER_TOKEN, n * width);
    merge.in = emit_exchange(d, op.out, mine, width, 1);
    merge.out = out;
    mdl_add_op(p, merge);
    return out;
}

/* The layer's attention over the KV cache. Returns out. */
static int32_t
emit_attention(const struct dense *d, int32_t qkv, int32_t out)
{
    struct mdl_op op = dense_op(d, MDL_OP_ATTENTION);

    op.in = qkv;
    op.out = out;
    op.f = d->p->cfg.attention_scale;
    op.softcap = d->p->cfg.att_softcap;
    op.window = d->p->cfg.windowed[op.layer] ? d->p->cfg.window : 0;
    if (d->p->kv_split > 1)
        return emit_shares(d, op, out);
    mdl_add_op(d->p, op);
    return out;
}

static struct dense_mlp
mlp_weights(const struct dense *d)
{
    static const char *const name[3] = { "mlp.gate_proj", "mlp.up_proj", NULL };
    const struct mdl_config *c = &d->p->cfg;
    const int32_t rows[3] = { c->ffn, c->ffn, 0 };
    const struct wts_cut cut[2] = { { c->ffn, d->p->ffn, 1 }, { c->ffn, d->p->ffn, 1 } };
    int32_t hd = c->n_head * c->head_dim;
    struct dense_mlp w = { .o_bias = -1, .gate_up_bias = -1, .down_bias = -1 };

    w.o = layer_w_cols(d, "self_attn.o_proj.weight", c->hidden, hd);
    if (c->o_bias)
        w.o_bias = layer_w(d, "self_attn.o_proj.bias", c->hidden, 0, WTS_FIRST, 1);
    w.post_attention = layer_norm(d, d->names->post_attention);
    w.norm = layer_norm(d, d->names->pre_mlp);
    w.post = layer_norm(d, d->names->post_mlp);
    w.gate_up = d->names->gate_up == NULL
        ? layer_w3(d, name, rows, c->hidden, "weight")
        : layer_w(d, d->names->gate_up, 2 * c->ffn, c->hidden, WTS_ROWS, 0);
    mdl_set_cuts(d->p, w.gate_up, cut, 2);
    if (c->mlp_bias)
        w.gate_up_bias = layer_w3(d, name, rows, 0, "bias");
    w.down = layer_w_cols(d, "mlp.down_proj.weight", c->hidden, c->ffn);
    if (c->mlp_bias)
        w.down_bias = layer_w(d, "mlp.down_proj.bias", c->hidden, 0, WTS_FIRST, 1);
    return w;
}

/* Output projection and MLP; att: the result of attention. */
static void
emit_mlp(struct dense *d, const struct dense_mlp *w, int32_t att)
{
    const struct mdl_config *c = &d->p->cfg;
    int32_t h, hd = d->p->n_head * c->head_dim, F = d->p->ffn;
    struct mdl_op op = dense_op(d, MDL_OP_SILU_MUL);

    d->add = emit_summed(d, att, "o", w->o, w->o_bias, hd);
    d->post = w->post_attention;
    h = emit_norm(d, w->norm, dense_buf(d, "norm2", c->hidden));
    op.in = emit_gemm(d, h, "gate_up", w->gate_up, w->gate_up_bias, 2 * F, c->hidden);
    op.out = dense_buf(d, "act", F);
    op.N = F;
    mdl_add_op(d->p, op);
    d->add = emit_summed(d, op.out, "down", w->down, w->down_bias, F);
    d->post = w->post;
}

/* Both tails, from the last layer's queries to the final norm of the output rows, whose
 * buffer is returned. OUTPUTS comes first, so that the buffers of all tokens that it
 * reads are no longer alive when TOKENS needs the most memory. */
static int32_t
emit_tails(const struct dense *last, const struct dense_mlp *w, int32_t qkv)
{
    const struct mdl_config *c = &last->p->cfg;
    int32_t norm = mdl_add_w(last->p, "model.norm.weight", c->hidden, 0, WTS_WHOLE, 1);
    int32_t out = mdl_add_buf(last->p, "out", MDL_PER_OUT, c->hidden);
    int32_t h, hd = last->p->n_head * c->head_dim, att = dense_buf(last, "att", hd);
    struct dense d = *last;

    d.tail = MDL_TAIL_OUTPUTS;
    (void)emit_attention(&d, qkv, att);
    d.rows = MDL_PER_OUT;
    h = emit_gather(&d, att, dense_buf(&d, "att", hd), hd);
    d.x = emit_gather(&d, d.x, f32_buf(d.p, "x.out", MDL_PER_OUT, c->hidden), c->hidden);
    emit_mlp(&d, w, h);
    d.layer = -1;
    (void)emit_norm(&d, norm, out);

    d = *last;
    d.tail = MDL_TAIL_TOKENS;
    emit_mlp(&d, w, emit_attention(&d, qkv, att));
    d.layer = -1;
    h = emit_norm(&d, norm, dense_buf(&d, "norm", c->hidden));
    (void)emit_gather(&d, h, out, c->hidden);
    last->p->has_tails = 1;
    return out;
}

/* A weight with a row for each token of the vocabulary. */
static int32_t
vocab_w(struct mdl_program *p, const char *name)
{
    const struct wts_cut cut = { p->cfg.vocab, p->vocab_rows, 1 };
    int32_t w = mdl_add_w(p, name, cut.rows, p->cfg.hidden, WTS_ROWS, 0);

    mdl_set_cuts(p, w, &cut, 1);
    return w;
}

static void
emit_head(struct mdl_program *p, int32_t in, int32_t embed)
{
    const struct mdl_config *c = &p->cfg;
    struct mdl_op op = op_none;

    op.kind = MDL_OP_LOGITS;
    op.rows = MDL_PER_OUT;
    op.in = in;
    op.out = f32_buf(p, "logits", MDL_PER_OUT, p->vocab_rows);
    op.w = vocab_w(p, "lm_head.weight");
    if (c->tied && op.w >= 0)
        p->w[op.w].alias = embed;
    op.N = p->vocab_rows;
    op.K = c->hidden;
    mdl_add_op(p, op);

    op.in = op.out;
    op.w = -1;
    op.K = 0;
    op.kind = MDL_OP_SOFTCAP;
    op.scale = c->logit_scale;
    op.softcap = c->logit_softcap;
    if (op.scale != 1 || op.softcap != 0)
        mdl_add_op(p, op);
    op.scale = op.softcap = 0;
    if (p->n_rank > 1) {
        op.kind = MDL_OP_ALLGATHER;
        op.out = f32_buf(p, "logits.all", MDL_PER_OUT, p->n_rank * p->vocab_rows);
        mdl_add_op(p, op);
        op.in = op.out;
    }
    op.kind = MDL_OP_SAMPLE;
    op.out = -1;
    op.N = c->vocab;
    op.K = p->n_rank * p->vocab_rows;
    mdl_add_op(p, op);
    op = op_none;
    op.kind = MDL_OP_ROWSHARE;
    op.rows = MDL_PER_OUT;
    if (p->n_copy > 1)
        mdl_add_op(p, op);
}

/* The rope table of the frequencies from index freq on; returns its buffer. */
static int32_t
emit_rope(struct mdl_program *p, const char *name, int32_t freq)
{
    struct mdl_op op = op_none;

    op.kind = MDL_OP_ROPE_TABLE;
    op.out = f32_buf(p, name, MDL_PER_TOKEN, p->rot);
    op.freq = freq;
    op.f = freq > 0 ? 1 : p->rope_scale;
    mdl_add_op(p, op);
    return op.out;
}

/* The rope tables that the layers need. */
static void
emit_ropes(struct dense *d)
{
    const struct mdl_config *c = &d->p->cfg;
    int used[2] = { 0, 0 };

    for (int32_t i = 0; i < c->n_layer; i++)
        if (!c->no_rope[i])
            used[c->rope_local_theta > 0 && c->windowed[i]] = 1;
    d->cs[0] = used[0] ? emit_rope(d->p, "rope", 0) : -1;
    d->cs[1] = d->cs[0];
    if (used[1])
        d->cs[1] = emit_rope(d->p, "rope.local", d->p->n_freq - d->p->rot / 2);
}

int
mdl_build_dense(struct mdl_program *p)
{
    const struct mdl_config *c = &p->cfg;
    struct dense d = { .p = p, .layer = -1, .add = -1, .post = -1 };
    struct mdl_op op = op_none;
    int32_t embed;

    d.names = p->names != NULL ? p->names : &llama_names;

    embed = vocab_w(p, "model.embed_tokens.weight");
    d.x = f32_buf(p, "x", MDL_PER_TOKEN, c->hidden);
    op.kind = MDL_OP_EMBED;
    op.out = d.x;
    op.w = embed;
    op.N = c->vocab;
    op.K = c->hidden;
    op.f = c->embed_scale;
    mdl_add_op(p, op);

    emit_ropes(&d);
    for (d.layer = 0; d.layer < c->n_layer; d.layer++) {
        int32_t qkv = emit_qkv(&d);
        struct dense_mlp w = mlp_weights(&d);

        if (d.layer < c->n_layer - 1)
            emit_mlp(&d, &w,
                emit_attention(&d, qkv, dense_buf(&d, "att", p->n_head * c->head_dim)));
        else
            emit_head(p, emit_tails(&d, &w, qkv), embed);
    }
    return p->err;
}

/* ---- program ---- */

static void
live(struct mdl_program *p, int32_t buf, int32_t op)
{
    if (buf < 0)
        return;
    if (p->buf[buf].first < 0)
        p->buf[buf].first = op;
    p->buf[buf].last = op;
}

void
mdl_set_lives(struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_op; i++) {
        live(p, p->op[i].in, i);
        live(p, p->op[i].in2, i);
        live(p, p->op[i].out, i);
    }
}

struct mdl_program *
mdl_free(struct mdl_program *p)
{
    if (p == NULL)
        return NULL;
    free(p->op);
    free(p->buf);
    free(p->w);
    free(p->inv_freq);
    free(p);
    return NULL;
}

void
mdl_op_cost(const struct mdl_program *p, const struct mdl_op *op, double T, double O,
    double kv, double w_elt_bytes, double kv_elt_bytes, double act_bytes,
    double *ret_bytes, double *ret_flops)
{
    const struct mdl_config *c = &p->cfg;
    double rows = op->rows == MDL_PER_OUT ? O : T, D = c->head_dim;
    double H = p->n_head, K = p->n_kv_head, N = op->N, act = act_bytes, b = 0, f = 0;
    double shares = p->kv_split;

    switch (op->kind) {
    case MDL_OP_EMBED:
        b = rows * op->K * (w_elt_bytes + 4);
        break;
    case MDL_OP_ROPE_TABLE:
        b = rows * p->rot * 4;
        f = rows * p->rot;
        break;
    case MDL_OP_RMSNORM:
        b = 4 * N + rows * N * (op->in2 >= 0 ? 8 + 2 * act : 4 + act);
        f = rows * N * (op->in2 >= 0 ? 5 : 4);
        break;
    case MDL_OP_GEMM:
    case MDL_OP_LOGITS:
        b = N * op->K * w_elt_bytes +
            rows * (N * (op->kind == MDL_OP_LOGITS ? 4 : act) + act * op->K);
        f = 2 * rows * N * op->K;
        break;
    case MDL_OP_QKV:
        b = rows * D * (act * 2 * (H + K) + act * K + kv_elt_bytes * 2 * K);
        if (op->in != op->out)
            b += rows * act * p->buf[op->in].width;
        f = rows * D * (H + K) * (op->w >= 0 ? 7 : 3);
        break;
    case MDL_OP_ATTENTION:
        /* A row's KV is read once, whatever its number of tokens. */
        if (op->window > 0 && kv > op->window)
            kv = op->window;
        b = O * kv / shares * 2 * K * D * kv_elt_bytes + act * rows * shares * H * D;
        b += p->kv_split > 1 ? 4 * rows * shares * H * (D + 1) : act * rows * H * D;
        f = 4 * rows * kv * H * D;
        break;
    case MDL_OP_MERGE:
        b = 4 * rows * shares * H * (D + 1) + act * rows * H * D;
        f = 2 * rows * shares * H * D;
        break;
    case MDL_OP_SILU_MUL:
        b = act * rows * 3 * N;
        f = 5 * rows * N;
        break;
    case MDL_OP_GATHER:
    case MDL_OP_ALLREDUCE:
    case MDL_OP_COLUMNS:
        b = act * rows * 2 * N;
        break;
    case MDL_OP_ADD:
        b = act * rows * 3 * N;
        f = rows * N;
        break;
    case MDL_OP_SOFTCAP:
        b = 8 * rows * N;
        f = 4 * rows * N;
        break;
    case MDL_OP_SAMPLE:
        b = 4 * rows * N;
        f = 4 * rows * N;
        break;
    case MDL_OP_ALLGATHER:
        b = (p->buf[op->in].f32 ? 4 : act) * rows * N *
            (op->owners ? op->each ? 2 * shares : 1 + shares : 1 + p->n_rank);
        break;
    case MDL_OP_KVSHARE: /* read once, written to every other copy, or to one if
                            they share */
        b = rows * 2 * K * D * kv_elt_bytes * (p->kv_copies > 1 ? 2 : p->n_copy);
        break;
    case MDL_OP_ROWSHARE:
    case MDL_OP__N:
        break;
    }
    *ret_bytes = b;
    *ret_flops = f;
}

double
mdl_op_link_bytes(const struct mdl_program *p, const struct mdl_op *op, double T,
    double O, double w_elt_bytes, double kv_elt_bytes, double act_bytes)
{
    double rows = op->rows == MDL_PER_OUT ? O : T, others = p->n_rank - 1;

    switch (op->kind) {
    case MDL_OP_ALLREDUCE: /* reduce-scatter, then all-gather */
        return 2 * act_bytes * rows * op->N * others / p->n_rank;
    case MDL_OP_ALLGATHER:
        others = op->owners ? p->kv_split - 1 : others;
        return (p->buf[op->in].f32 ? 4 : act_bytes) * rows * op->N * others;
    case MDL_OP_EMBED: /* assumes that tokens are spread evenly over the ranks */
        return w_elt_bytes * rows * op->K * others / p->n_rank;
    case MDL_OP_KVSHARE: /* T tokens of each other copy, or 1 / kv_copies of them */
        return kv_elt_bytes * rows * 2 * p->n_kv_head * p->cfg.head_dim *
            (p->n_copy - 1) / p->kv_copies;
    default:
        return 0;
    }
}
