/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

#define RUN_ALIGN 256

/* ---- the null model ------------------------------------------------------------ */

struct mdl_program *
run_null_program(void)
{
    struct mdl_program *p = mem_zalloc(sizeof(*p));
    struct mdl_config *c;

    if (p == NULL)
        return NULL;
    p->op = mem_array(1, sizeof(*p->op));
    p->buf = mem_array(1, sizeof(*p->buf));
    if (p->op == NULL || p->buf == NULL)
        return mdl_free(p);
    c = &p->cfg;
    (void)snprintf(c->family, sizeof(c->family), "null");
    (void)snprintf(c->architecture, sizeof(c->architecture), "null");
    c->n_layer = c->n_head = c->n_kv_head = c->head_dim = c->hidden = c->ffn = 1;
    c->vocab = RUN_NULL_VOCAB;
    c->max_pos = RUN_NULL_LEN;
    c->dtype = FDK_F32;
    c->n_eos = 1;
    c->eos[0] = RUN_NULL_EOS;
    c->bos = RUN_NULL_BOS;
    p->n_op = p->n_buf = 1;
    (void)snprintf(p->buf[0].name, sizeof(p->buf[0].name), "logits");
    p->buf[0].rows = MDL_PER_OUT;
    p->buf[0].width = RUN_NULL_VOCAB;
    p->op[0] = (struct mdl_op){ .kind = MDL_OP_SAMPLE,
        .layer = -1,
        .rows = MDL_PER_OUT,
        .in = 0,
        .in2 = -1,
        .out = -1,
        .w = -1,
        .w2 = -1,
        .bias = -1,
        .N = RUN_NULL_VOCAB };
    return p;
}

/* ---- placement ------------------------------------------------------------------- */

/* The buffer that LOGITS writes and SAMPLE reads is done in slices. */
static int
run_is_logits(const struct mdl_program *p, int32_t buf)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_SAMPLE && p->op[i].in == buf)
            return 1;
    return 0;
}

size_t
run_buf_bytes(const struct mdl_program *p, const struct bat_dims *d, int32_t R,
    enum fdk_dtype act, int32_t i)
{
    const struct mdl_buf *b = &p->buf[i];
    size_t elt = fdk_dtype_bytes(b->f32 ? FDK_F32 : act);
    size_t rows = (size_t)(b->rows == MDL_PER_TOKEN ? d->T : d->O);

    if (run_is_logits(p, i))
        rows = (size_t)R;
    return (rows * (size_t)b->width * elt + RUN_ALIGN - 1) & ~(size_t)(RUN_ALIGN - 1);
}

static int
run_overlap(const struct mdl_buf *a, const struct mdl_buf *b)
{
    return a->first <= b->last && b->first <= a->last;
}

int
run_place(const struct mdl_program *p, const struct bat_dims *d, int32_t R,
    enum fdk_dtype act, size_t *off, size_t *ret_bytes)
{
    size_t n = (size_t)p->n_buf, total = 0;
    size_t *bytes = mem_array(n, sizeof(*bytes));
    unsigned char *placed = mem_array(n, 1);

    if (bytes == NULL || placed == NULL) {
        free(bytes);
        free(placed);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        bytes[i] = run_buf_bytes(p, d, R, act, (int32_t)i);
    for (size_t k = 0; k < n; k++) {
        size_t best = n, at = 0;
        int moved = 1;

        for (size_t i = 0; i < n; i++)
            if (!placed[i] && (best == n || bytes[i] > bytes[best]))
                best = i;
        /* lowest place free of all placed buffers alive at the same time */
        while (moved) {
            moved = 0;
            for (size_t j = 0; j < n; j++)
                if (placed[j] && run_overlap(&p->buf[j], &p->buf[best]) &&
                    at < off[j] + bytes[j] && off[j] < at + bytes[best]) {
                    at = off[j] + bytes[j];
                    moved = 1;
                }
        }
        placed[best] = 1;
        off[best] = at;
        if (at + bytes[best] > total)
            total = at + bytes[best];
    }
    free(bytes);
    free(placed);
    *ret_bytes = total;
    return 0;
}

/* ---- binding ----------------------------------------------------------------------- */

struct run_at { /* pointers of one operation */
    void *in, *in2, *out;
    const void *w, *w2, *bias;
    enum fdk_dtype w_dtype;
};

static void *
run_buf(const struct run_dev *dev, const size_t *off, int32_t buf)
{
    return buf < 0 ? NULL : (unsigned char *)dev->d_act + off[buf];
}

static const void *
run_weight(const struct run_dev *dev, int32_t w)
{
    return w < 0 ? NULL
                 : (const unsigned char *)dev->d_weights + wts_offset(dev->run->wp, w);
}

static const float *
run_scale(const struct run_dev *dev, int32_t w)
{
    uint64_t off = w < 0 ? 0 : wts_scale_offset(dev->run->wp, w);

    return off == 0 ? NULL : (const float *)((const unsigned char *)dev->d_weights + off);
}

static int
run_bind_op(struct run_dev *dev, const struct mdl_op *o, const struct run_at *a,
    struct run_op *ret)
{
    const struct mdl_config *c = &dev->run->prog->cfg;
    const struct fdk_batch *b = &dev->full.b; /* n_tok, n_out are at one address */
    const int32_t *n = o->rows == MDL_PER_TOKEN ? b->n_tok : b->n_out;
    int32_t H = c->n_head, K = c->n_kv_head, D = c->head_dim;

    ret->kind = o->kind;
    ret->rows = o->rows;
    switch (o->kind) {
    case MDL_OP_EMBED:
        ret->embed = (struct fdk_embed_args){ .y = a->out,
            .w = a->w,
            .state = dev->d_state,
            .C = o->K,
            .V = o->N,
            .w_dtype = a->w_dtype,
            .scale = o->f };
        return 0;
    case MDL_OP_ROPE_TABLE:
        ret->rope = (struct fdk_rope_table_args){ .cs = a->out,
            .inv_freq = dev->d_inv_freq,
            .rot = dev->run->prog->rot,
            .scale = o->f };
        return 0;
    case MDL_OP_RMSNORM:
        ret->norm = (struct fdk_rmsnorm_args){ .y = a->out,
            .x = a->in,
            .add = a->in2,
            .w = a->w,
            .n = n,
            .C = o->N,
            .eps = o->f,
            .act = dev->run->act };
        return 0;
    case MDL_OP_GEMM:
    case MDL_OP_LOGITS:
        ret->gemm = (struct fdk_gemm_args){ .y = a->out,
            .x = a->in,
            .w = a->w,
            .bias = a->bias,
            .n = n,
            .N = o->N,
            .K = o->K,
            .ldy = o->N,
            .w_dtype = a->w_dtype,
            .w_scale = run_scale(dev, o->w),
            .w_group = wts_group(dev->run->wp, o->w),
            .act = dev->run->act,
            .y_dtype = o->kind == MDL_OP_LOGITS ? FDK_F32 : dev->run->act };
        return 0;
    case MDL_OP_QKV:
        ret->qkv = (struct fdk_qkv_args){ .qkv = a->out,
            .q_norm = a->w,
            .k_norm = a->w2,
            .cs = a->in2,
            .kv = dev->kv,
            .H = H,
            .K = K,
            .D = D,
            .rot = dev->run->prog->rot,
            .layer = o->layer,
            .eps = o->f,
            .act = dev->run->act };
        return 0;
    case MDL_OP_ATTENTION:
        ret->att = (struct fdk_attention_args){ .y = a->out,
            .qkv = a->in,
            .kv = dev->kv,
            .H = H,
            .K = K,
            .D = D,
            .layer = o->layer,
            .scale = o->f,
            .act = dev->run->act };
        return 0;
    case MDL_OP_SILU_MUL:
        ret->silu = (struct fdk_silu_mul_args){ .y = a->out,
            .gu = a->in,
            .n = n,
            .F = o->N,
            .act = dev->run->act };
        return 0;
    case MDL_OP_GATHER:
        ret->gather = (struct fdk_gather_args){ .y = a->out,
            .x = a->in,
            .C = o->N,
            .act = dev->run->prog->buf[o->in].f32 ? FDK_F32 : dev->run->act };
        return 0;
    case MDL_OP_SAMPLE:
        ret->sample = (struct fdk_sample_args){ .results = dev->d_results,
            .state = dev->d_state,
            .logits = a->in,
            .V = o->N,
            .counts = dev->run->n_penalty > 0 ? dev->d_counts : NULL,
            .rules = dev->run->n_penalty > 0 ? dev->d_rules : NULL,
            .chosen = dev->d_chosen,
            .rules_words = (int32_t)fdk_rules_words(o->N) };
        return 0;
    default:
        return -ENOTSUP;
    }
}

int
run_bind(struct run_dev *dev, const size_t *off)
{
    dev->op = mem_array((size_t)dev->run->prog->n_op, sizeof(*dev->op));
    if (dev->op == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < dev->run->prog->n_op; i++) {
        const struct mdl_op *o = &dev->run->prog->op[i];
        struct run_at a = { .in = run_buf(dev, off, o->in),
            .in2 = run_buf(dev, off, o->in2),
            .out = run_buf(dev, off, o->out),
            .w = run_weight(dev, o->w),
            .w2 = run_weight(dev, o->w2),
            .bias = run_weight(dev, o->bias),
            .w_dtype = o->w >= 0 ? wts_dtype(dev->run->wp, o->w) : FDK_F32 };
        int rc = run_bind_op(dev, o, &a, &dev->op[i]);

        if (rc != 0)
            return rc;
    }
    return 0;
}

int32_t
run_logits_rows(const struct fdk_ops *k, int32_t vocab, int32_t O)
{
    uint64_t bytes = k->on_host ? RUN_LOGITS_BYTES : RUN_LOGITS_BYTES_DEV;
    uint64_t R = bytes / ((uint64_t)vocab * sizeof(float));

    return R < 1 ? 1 : R > (uint64_t)O ? O : (int32_t)R;
}

static int32_t
run_rows(const struct run_pad *pad, enum mdl_rows rows)
{
    return rows == MDL_PER_TOKEN ? pad->T : pad->O;
}

/* The most rows of a product. */
static int32_t
run_gemm_rows(const struct run_dev *dev, const struct run_op *op)
{
    return op->kind == MDL_OP_LOGITS ? dev->run->R : run_rows(&dev->full, op->rows);
}

size_t
run_scratch_bytes(struct run_dev *dev)
{
    const struct run_pad *pad = &dev->full;
    size_t most = 0;

    for (int32_t i = 0; i < dev->run->prog->n_op; i++) {
        struct run_op op = dev->op[i];
        size_t n = 0;

        if (op.kind == MDL_OP_ATTENTION && dev->run->k->attention_scratch != NULL) {
            op.att.T = pad->T;
            op.att.b = &pad->b;
            op.att.n_work_max = pad->n_work;
            n = dev->run->k->attention_scratch(dev->run->ctx, &op.att);
        } else if (op.kind == MDL_OP_SAMPLE && dev->run->k->sample_scratch != NULL) {
            op.sample.R = dev->run->R;
            op.sample.b = &pad->b;
            n = dev->run->k->sample_scratch(&op.sample);
        } else if ((op.kind == MDL_OP_GEMM || op.kind == MDL_OP_LOGITS) &&
            dev->run->k->gemm_scratch != NULL) {
            op.gemm.T = run_gemm_rows(dev, &op);
            n = dev->run->k->gemm_scratch(&op.gemm);
        }
        if (n > most)
            most = n;
    }
    return most;
}

static int
run_same_gemm(const struct fdk_gemm_args *a, const struct fdk_gemm_args *b)
{
    return a->N == b->N && a->K == b->K && a->ldy == b->ldy && a->w_dtype == b->w_dtype &&
        a->y_dtype == b->y_dtype;
}

/* Has an earlier operation the same shape, or is it, as a rule, one launch with the
 * silu_mul behind it? */
static int
run_chosen(const struct run_dev *dev, int32_t i)
{
    const struct run_op *op = dev->op;

    if (i + 1 < dev->run->prog->n_op && op[i + 1].kind == MDL_OP_SILU_MUL)
        return 1;
    for (int32_t j = 0; j < i; j++)
        if (op[j].kind == op[i].kind && run_same_gemm(&op[j].gemm, &op[i].gemm))
            return 1;
    return 0;
}

int
run_choose(struct run_dev *dev)
{
    int rc = 0;

    for (int32_t i = 0;
         i < dev->run->prog->n_op && dev->run->k->gemm_choose != NULL && rc == 0; i++) {
        struct fdk_gemm_args a = dev->op[i].gemm;

        if ((dev->op[i].kind != MDL_OP_GEMM && dev->op[i].kind != MDL_OP_LOGITS) ||
            run_chosen(dev, i))
            continue;
        a.T = run_gemm_rows(dev, &dev->op[i]);
        rc = dev->run->k->gemm_choose(&a, dev->stream);
    }
    return rc;
}

/* ---- launching ------------------------------------------------------------------------ */

int
run_mark(struct run_dev *dev, int32_t line)
{
    struct run_marks *m = dev->marks;

    if (m == NULL)
        return 0;
    ASSERT(m->n < m->max);
    m->at[m->n].line = line;
    return dev->run->k->event_record(m->at[m->n++].ev, dev->stream);
}

/* LOGITS (NULL: none) and SAMPLE, R output rows at a time. */
static int
run_slices(struct run_dev *dev, const struct run_pad *pad, const struct run_op *logits,
    const struct run_op *sample)
{
    for (int32_t r = 0; r < pad->O; r += dev->run->R) {
        struct fdk_sample_args sa = sample->sample;
        int32_t n = pad->O - r < dev->run->R ? pad->O - r : dev->run->R;
        int rc;

        if (logits != NULL) {
            struct fdk_gemm_args ga = logits->gemm;

            ga.first = r;
            ga.T = n;
            rc = dev->run->k->gemm(&ga, dev->stream);
            if (rc == 0)
                rc = run_mark(dev, (int32_t)(logits - dev->op));
            if (rc != 0)
                return rc;
        }
        sa.b = &pad->b;
        sa.first = r;
        sa.R = n;
        rc = dev->run->k->sample(&sa, dev->stream);
        if (rc == 0)
            rc = run_mark(dev, (int32_t)(sample - dev->op));
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
run_one(struct run_dev *dev, const struct run_pad *pad, const struct run_op *op)
{
    const struct fdk_ops *k = dev->run->k;
    const struct run_att *at;
    struct run_op o = *op;
    int32_t rows = run_rows(pad, o.rows);

    switch (o.kind) {
    case MDL_OP_EMBED:
        o.embed.b = &pad->b;
        o.embed.T = pad->T;
        return k->embed(&o.embed, dev->stream);
    case MDL_OP_ROPE_TABLE:
        o.rope.b = &pad->b;
        o.rope.T = pad->T;
        return k->rope_table(&o.rope, dev->stream);
    case MDL_OP_RMSNORM:
        o.norm.T = rows;
        return k->rmsnorm(&o.norm, dev->stream);
    case MDL_OP_GEMM:
        o.gemm.T = rows;
        return k->gemm(&o.gemm, dev->stream);
    case MDL_OP_QKV:
        o.qkv.b = &pad->b;
        o.qkv.T = pad->T;
        return k->qkv(&o.qkv, dev->stream);
    case MDL_OP_ATTENTION:
        o.att.b = &pad->b;
        o.att.T = pad->T;
        o.att.n_work_max = pad->n_work;
        at = &pad->att[dev->run->prog->op[op - dev->op].tail == MDL_TAIL_OUTPUTS];
        o.att.work = at->work;
        o.att.n_work = at->counts;
        o.att.n_done = (uint32_t *)at->counts + 1;
        o.att.plan = k->att_plan_bytes != NULL ? at->plan : NULL;
        return k->attention(&o.att, dev->stream);
    case MDL_OP_SILU_MUL:
        o.silu.T = rows;
        return k->silu_mul(&o.silu, dev->stream);
    case MDL_OP_GATHER:
        o.gather.b = &pad->b;
        o.gather.O = rows;
        return k->gather(&o.gather, dev->stream);
    default:
        return -ENOTSUP;
    }
}

/* Does the step run operation i? Without outputs it has no tail but that of all tokens. */
static int
run_runs(const struct run_dev *dev, const struct run_pad *pad, int32_t i)
{
    const struct mdl_op *op = &dev->run->prog->op[i];
    int outputs = op->rows == MDL_PER_OUT || op->tail == MDL_TAIL_OUTPUTS;

    return mdl_op_runs(op, pad->tail) && (pad->O > 0 || !outputs);
}

/* The first norm behind three quarters of the operations: no launch covers it and what
 * is before it. */
void
run_place_mark(struct runner *run)
{
    const struct mdl_program *p = run->prog;
    int32_t i = p->n_op * 3 / 4;

    while (i < p->n_op - 1 && p->op[i].kind != MDL_OP_RMSNORM)
        i++;
    run->mark_op = i;
}

static const uint32_t *
run_mark_value(const struct run_dev *dev, const struct run_pad *pad)
{
    struct bat_layout l;

    bat_layout(&dev->run->dims, pad->T, &l);
    return (const uint32_t *)(dev->d_plan + l.counts) + BAT_EPOCH;
}

int
run_program(struct run_dev *dev, const struct run_pad *pad)
{
    const struct run_op *logits = NULL;
    const int32_t n = dev->run->prog->n_op;
    int rc = 0;

    for (int32_t i = 0; i < n && rc == 0; i++) {
        const struct run_op *op = &dev->op[i];

        if (dev->marking && i == dev->run->mark_op)
            rc = dev->run->k->stream_mark(dev->stream, dev->h_mark,
                run_mark_value(dev, pad));
        if (rc != 0 || !run_runs(dev, pad, i))
            continue;
        if (op->kind == MDL_OP_LOGITS) {
            logits = op;
        } else if (op->kind == MDL_OP_SAMPLE) {
            rc = run_slices(dev, pad, logits, op);
            logits = NULL;
        } else {
            rc = run_one(dev, pad, op);
            if (rc == 0)
                rc = run_mark(dev, i);
        }
    }
    return rc;
}
