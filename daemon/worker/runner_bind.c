/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/runner_program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

/* ---- binding ----------------------------------------------------------------------- */

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
    uint64_t at = w < 0 ? 0 : wts_weight(dev->run->wp, w).scale_at;

    return at == 0 ? NULL : (const float *)((const unsigned char *)run_weight(dev, w) + at);
}

static void
run_point_sample(const struct run_dev *dev, void *logits, struct fdk_sample_args *a)
{
    a->results = dev->d_results;
    a->state = dev->d_state;
    a->logits = logits;
    a->counts = dev->run->n_penalty > 0 ? dev->d_counts : NULL;
    a->rules = dev->run->n_penalty > 0 ? dev->d_rules : NULL;
    a->chosen = dev->d_chosen;
}

/* Set the pointers to the table of embeddings, or to every rank's shard of it. */
static void
run_point_embed(const struct run_dev *dev, int32_t w, struct fdk_embed_args *a)
{
    const struct runner *run = dev->run;

    a->w = run_weight(dev, w);
    for (int32_t i = 0; i < run->prog->n_rank && a->shard_rows > 0; i++)
        a->shard[i] = run->h_embed[i] != NULL
            ? run->h_embed[i]
            : run_weight(&run->dev[run_copy(dev) * run->prog->n_rank + i], w);
    a->state = dev->d_state;
}

/* The group of ranks that share the tokens of this rank's KV heads. */
static struct fdk_group *
run_owners(const struct run_dev *dev)
{
    return dev->run->owners[run_owners_at(dev)];
}

/* The device at the same place of copy p. */
static const struct run_dev *
run_peer(const struct run_dev *dev, int32_t p)
{
    return &dev->run->dev[p * run_copy_ranks(dev->run) + run_place_of(dev)];
}

static void
run_point_kv_share(const struct run_dev *dev, const struct mdl_op *o,
    struct fdk_kv_share_args *a)
{
    a->group = dev->run->copies[run_place_of(dev)];
    a->kv = dev->kv[dev->run->prog->kv_at[o->layer].group];
    for (int32_t p = 0; p < dev->run->n_copy; p++)
        a->peer[p] = run_peer(dev, p)->d_kv;
}

static void
run_point_row_share(const struct run_dev *dev, struct fdk_row_share_args *a)
{
    a->group = dev->run->copies[run_place_of(dev)];
    for (int32_t p = 0; p < dev->run->n_copy; p++)
        a->state[p] = run_peer(dev, p)->d_state;
    a->results = dev->d_results;
    a->all = run_peer(dev, 0)->d_all;
}

static void
run_point_op(const struct run_dev *dev, const size_t *off, const struct mdl_op *o,
    struct fdk_op *op)
{
    const struct fdk_batch *b = &dev->full.b[0]; /* groups share n_tok, n_out */
    const int32_t *n = o->rows == MDL_PER_TOKEN ? b->n_tok : b->n_out;
    void *in = run_buf(dev, off, o->in), *in2 = run_buf(dev, off, o->in2);
    void *out = run_buf(dev, off, o->out);

    switch (op->kind) {
    case FDK_OP_EMBED:
        op->embed.y = out;
        run_point_embed(dev, o->w, &op->embed);
        break;
    case FDK_OP_ROPE_TABLE:
        op->rope_table.cs = out;
        op->rope_table.inv_freq = (const float *)dev->d_inv_freq + o->freq;
        op->rope_table.state = dev->d_state;
        break;
    case FDK_OP_RMSNORM:
        op->rmsnorm.y = out;
        op->rmsnorm.x = in;
        op->rmsnorm.add = in2;
        op->rmsnorm.w = run_weight(dev, o->w);
        op->rmsnorm.n = n;
        break;
    case FDK_OP_GEMM:
        op->gemm.y = out;
        op->gemm.x = in;
        op->gemm.w = run_weight(dev, o->w);
        op->gemm.w_scale = run_scale(dev, o->w);
        op->gemm.bias = run_weight(dev, o->bias);
        op->gemm.n = n;
        break;
    case FDK_OP_QKV:
        op->qkv.qkv = out;
        op->qkv.all = o->in != o->out ? in : NULL;
        op->qkv.q_norm = run_weight(dev, o->w);
        op->qkv.k_norm = run_weight(dev, o->w2);
        op->qkv.cs = in2;
        op->qkv.kv = dev->kv[dev->run->prog->kv_at[o->layer].group];
        break;
    case FDK_OP_ATTENTION:
        op->attention.y = out;
        op->attention.qkv = in;
        op->attention.kv = dev->kv[dev->run->prog->kv_at[o->layer].group];
        break;
    case FDK_OP_MERGE:
        op->merge.y = out;
        op->merge.x = in;
        op->merge.n = n;
        break;
    case FDK_OP_SILU_MUL:
        op->silu_mul.y = out;
        op->silu_mul.gu = in;
        op->silu_mul.n = n;
        break;
    case FDK_OP_SOFTCAP:
        op->softcap.y = out;
        op->softcap.n = n;
        break;
    case FDK_OP_GATHER:
        op->gather.y = out;
        op->gather.x = in;
        break;
    case FDK_OP_SAMPLE:
        run_point_sample(dev, in, &op->sample);
        break;
    case FDK_OP_ALL_REDUCE:
        op->all_reduce.group = dev->run->group[run_copy(dev)];
        op->all_reduce.y = out;
        op->all_reduce.x = in;
        op->all_reduce.n = n;
        break;
    case FDK_OP_ALL_GATHER:
        op->all_gather.group = o->owners ? run_owners(dev) : dev->run->group[run_copy(dev)];
        op->all_gather.y = out;
        op->all_gather.x = in;
        op->all_gather.n = n;
        break;
    case FDK_OP_KV_SHARE:
        run_point_kv_share(dev, o, &op->kv_share);
        break;
    case FDK_OP_ROW_SHARE:
        run_point_row_share(dev, &op->row_share);
        break;
    case FDK_OP_OWN:
        op->own.y = out;
        op->own.x = in;
        op->own.x2 = in2;
        op->own.n = n;
        break;
    case FDK_OP__N:
        break;
    }
    fdk_op_set_scratch(op, dev->d_scratch, (size_t)dev->mem.scratch);
}

static int
run_form_add(const struct run_dev *dev, const size_t *off, int32_t i, int32_t first,
    struct run_form *f)
{
    struct fdk_op *op = &f->op[f->n];
    int rc = run_shape_op(dev->run, &dev->run->prog->op[i], op);

    if (rc != 0)
        return rc;
    run_point_op(dev, off, &dev->run->prog->op[i], op);
    run_slice(dev->run, i, op);
    op->first = first;
    f->line[f->n++] = i;
    return 0;
}

/* The stage as a KV cache that has only the operation's layer. */
static struct fdk_kv
run_stage(const struct run_dev *dev, const struct mdl_op *o)
{
    const struct mdl_kv_at *at = &dev->run->prog->kv_at[o->layer];
    struct fdk_kv kv = dev->kv[at->group];

    kv.base = dev->d_stage;
    kv.block_bytes = kv.layer_bytes;
    kv.n_own = kv.own = 0;
    if (kv.scale != NULL)
        kv.scale += 2 * (size_t)at->layer * (size_t)kv.n_kv_head;
    return kv;
}

/* Adapt the last operation of f for a divided step of copies that share tokens: QKV
 * writes keys and values to the stage, and ATTENTION runs once per copy, with that
 * copy's plan. */
static int
run_form_shared(const struct run_dev *dev, const size_t *off, int32_t i, struct run_form *f)
{
    const struct mdl_op *o = &dev->run->prog->op[i];
    int32_t n = dev->run->n_copy, each = dev->run->kv_split / n, rc = 0;
    struct fdk_op *op = &f->op[f->n - 1];

    switch (op->kind) {
    case FDK_OP_QKV:
        op->att = FDK_ATT_STAGE;
        op->qkv.kv = run_stage(dev, o);
        op->qkv.layer = 0;
        break;
    case FDK_OP_KV_SHARE:
        op->kv_share.stage = run_stage(dev, o);
        break;
    case FDK_OP_ALL_GATHER:
        if (o->owners)
            op->all_gather.n = NULL; /* copies have different numbers */
        break;
    case FDK_OP_ATTENTION:
        for (int32_t p = 0; p < n && rc == 0; p++) {
            rc = p > 0 ? run_form_add(dev, off, i, 0, f) : 0;
            op = &f->op[f->n - 1];
            op->att += FDK_ATT_STEP * (1 + p);
            op->attention.asks = p * each;
            op->attention.n_ask = each;
        }
        break;
    default:
        break;
    }
    return rc;
}

/* Add operation i of the program to f if the tail runs it. The operations of the head,
 * from its GEMM to sampling, are repeated for each slice of rows. */
static int
run_form_ops(const struct run_dev *dev, const size_t *off, enum mdl_tail tail, int split,
    int32_t i, struct run_form *f)
{
    const struct mdl_op *op = dev->run->prog->op;
    int32_t head = i;
    int rc = 0;

    if (!mdl_op_runs(&op[i], tail) || run_is_head(dev->run->prog, i) ||
        (op[i].kind == MDL_OP_KVSHARE && !split))
        return 0;
    if (op[i].kind != MDL_OP_SAMPLE) {
        rc = run_form_add(dev, off, i, 0, f);
        return rc == 0 && split && dev->run->kv_copies > 1
            ? run_form_shared(dev, off, i, f)
            : rc;
    }
    while (head > 0 && run_is_head(dev->run->prog, head - 1))
        head--;
    for (int32_t r = 0; r < dev->run->dims.O && rc == 0; r += dev->run->R)
        for (int32_t k = head; k <= i && rc == 0; k++)
            rc = run_form_add(dev, off, k, r, f);
    return rc;
}

static int
run_bind_form(struct run_dev *dev, const size_t *off, enum mdl_tail tail, int split,
    struct run_form *f)
{
    size_t n = (size_t)dev->run->prog->n_op * (size_t)dev->run->kv_copies +
        4 * (size_t)((dev->run->dims.O - 1) / dev->run->R + 1);
    int rc = 0;

    f->op = mem_array(n, sizeof(*f->op));
    f->line = mem_array(n, sizeof(*f->line));
    if (f->op == NULL || f->line == NULL)
        return -ENOMEM;
    if (dev->launch == NULL)
        dev->launch = mem_array(FDK_LAUNCHES(n), sizeof(*dev->launch));
    if (dev->launch == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < dev->run->prog->n_op && rc == 0; i++)
        rc = run_form_ops(dev, off, tail, split, i, f);
    return rc != 0
        ? rc
        : fdk_bind(dev->run->k, dev->run->ctx, dev->idx, f->op, f->n, &f->bound);
}

int
run_bind(struct run_dev *dev, const size_t *off)
{
    int tails = dev->run->prog->has_tails, copies = dev->run->n_copy > 1;
    int rc = run_bind_form(dev, off, MDL_TAIL_TOKENS, 0, &dev->form[0]);

    if (rc == 0 && tails)
        rc = run_bind_form(dev, off, MDL_TAIL_OUTPUTS, 0, &dev->form[1]);
    if (rc == 0 && copies)
        rc = run_bind_form(dev, off, MDL_TAIL_TOKENS, 1, &dev->split[0]);
    if (rc == 0 && copies && tails)
        rc = run_bind_form(dev, off, MDL_TAIL_OUTPUTS, 1, &dev->split[1]);
    return rc;
}

static void
run_unbind_form(struct run_form *f)
{
    fdk_unbind(f->bound);
    free(f->op);
    free(f->line);
}

void
run_unbind(struct run_dev *dev)
{
    for (int i = 0; i < 2; i++) {
        run_unbind_form(&dev->form[i]);
        run_unbind_form(&dev->split[i]);
    }
    free(dev->launch);
}

static int
run_same_gemm(const struct fdk_gemm_args *a, const struct fdk_gemm_args *b)
{
    return a->N == b->N && a->K == b->K && a->ldy == b->ldy && a->w_dtype == b->w_dtype &&
        a->y_dtype == b->y_dtype;
}

/* Is there nothing to choose for GEMM i? True if an earlier GEMM has its shape, or with one
 * rank if a silu_mul follows it, with which it is usually fused: with several ranks no
 * launch in a step may be an algorithm's first. */
static int
run_chosen(const struct run_dev *dev, const struct run_form *f, int32_t i)
{
    if (dev->run->n_rank == 1 && i + 1 < f->n && f->op[i + 1].kind == FDK_OP_SILU_MUL)
        return 1;
    for (int32_t j = 0; j < i; j++)
        if (f->op[j].kind == FDK_OP_GEMM && run_same_gemm(&f->op[j].gemm, &f->op[i].gemm))
            return 1;
    return 0;
}

static int
run_choose_form(struct run_dev *dev, const struct run_form *f, const struct run_pad *pad)
{
    struct fdk_step s;
    int rc = 0;

    run_step(pad, &s);
    for (int32_t i = 0; i < f->n && dev->run->k->gemm_choose != NULL && rc == 0; i++) {
        struct fdk_op op = f->op[i];

        if (op.kind != FDK_OP_GEMM || run_chosen(dev, f, i) || fdk_op_rows(&op, &s) == 0)
            continue;
        fdk_op_complete(&op, &s);
        rc = dev->run->k->gemm_choose(&op.gemm, dev->stream);
    }
    return rc;
}

/* Uses the forms with the tail TOKENS: their GEMMs are the larger ones. Copies other than
 * copy 0 have outputs, so rows of the last GEMM, only in divided steps. */
int
run_choose(struct run_dev *dev)
{
    int rc = run_choose_form(dev, &dev->form[0], &dev->full);

    if (rc == 0 && dev->run->n_copy > 1)
        rc = run_choose_form(dev, &dev->split[0], &dev->full_split);
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

/* The mark precedes the first norm after three quarters of the operations: no fused
 * launch covers a norm and the operation before it. */
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

/* Put attention plans, with the views b, into ret->att from index `first` on. */
static void
run_step_att(const struct run_att *att, const struct fdk_batch *b, int first,
    struct fdk_step *ret)
{
    for (int i = 0; i < FDK_ATT_STEP; i++) {
        ret->att[first + i].b = &b[att[i].group];
        ret->att[first + i].work = att[i].work;
        ret->att[first + i].n_work = att[i].counts;
        if (att[i].counts != NULL)
            ret->att[first + i].n_done = (uint32_t *)att[i].counts + 1;
        ret->att[first + i].plan = att[i].plan;
    }
}

void
run_step(const struct run_pad *pad, struct fdk_step *ret)
{
    const struct run_views *v = pad->views;

    *ret =
        (struct fdk_step){ .b = pad->b, .T = pad->T, .O = pad->O, .n_work = pad->n_work };
    run_step_att(pad->att, pad->b, 0, ret);
    for (int p = 0; p < FDK_MAX_RANKS && pad->split; p++)
        run_step_att(v != NULL ? v->att[p] : pad->att, v != NULL ? v->b[p] : pad->b,
            FDK_ATT_STEP * (1 + p), ret);
    ret->att[FDK_ATT_STAGE].b = v != NULL ? &v->stage : pad->b;
    if (pad->split) {
        ret->range = pad->b[0].n_tok - BAT_N_TOK + BAT_SHARE;
        ret->at = pad->out_at;
    }
}

const struct run_form *
run_form(const struct run_dev *dev, enum mdl_tail tail)
{
    return &dev->form[tail == MDL_TAIL_OUTPUTS];
}

const struct run_form *
run_pad_form(const struct run_dev *dev, const struct run_pad *pad)
{
    return pad->split ? &dev->split[pad->tail == MDL_TAIL_OUTPUTS]
                      : run_form(dev, pad->tail);
}

/* Set dev->refused after the launch of operation `line` failed with rc: -EINVAL or
 * -ENOTSUP come from the backend while the device itself has no fault. */
static void
run_refuse(struct run_dev *dev, int32_t line, int rc)
{
    const struct runner *run = dev->run;
    const struct mdl_op *op = &run->prog->op[line];
    const struct mdl_config *c = &run->prog->cfg;
    char shape[64];

    if (rc == -EINVAL)
        (void)snprintf(dev->refused, sizeof(dev->refused),
            "%s, operation %d of the program: the backend %s refuses its arguments",
            mdl_op_name(op->kind), line, run->k->name);
    if (rc != -ENOTSUP)
        return;
    if (op->kind == MDL_OP_QKV || op->kind == MDL_OP_ATTENTION)
        (void)snprintf(shape, sizeof(shape), "%d query and %d kv heads of %d",
            run->prog->n_head, run->prog->n_kv_head, c->head_dim);
    else
        (void)snprintf(shape, sizeof(shape), "N %d, K %d", op->N, op->K);
    (void)snprintf(dev->refused, sizeof(dev->refused),
        "%s of %s: the backend %s has no kernel for it", mdl_op_name(op->kind), shape,
        run->k->name);
}

int
run_program(struct run_dev *dev, const struct run_pad *pad)
{
    const struct run_form *f = run_pad_form(dev, pad);
    int marked = !dev->marking, rc = 0;
    struct fdk_step s;
    int32_t n;

    run_step(pad, &s);
    s.halves = dev->halves;
    /* a measured step has a launch per operation */
    n = fdk_launches(f->bound, &s, !dev->run->unfused && !dev->single, dev->launch);
    for (int32_t i = 0; i < n && rc == 0; i++) {
        const struct fdk_launch *l = &dev->launch[i];
        int32_t line = f->line[l->first];

        if (!marked && line >= dev->run->mark_op) {
            rc = dev->run->k->stream_mark(dev->stream, dev->h_mark,
                run_mark_value(dev, pad));
            marked = 1;
        }
        if (rc == 0)
            rc = fdk_launch(f->bound, &s, l, dev->stream);
        if (rc != 0)
            run_refuse(dev, line, rc);
        if (rc == 0)
            rc = run_mark(dev, line);
    }
    if (rc == 0 && !marked)
        rc = dev->run->k->stream_mark(dev->stream, dev->h_mark, run_mark_value(dev, pad));
    return rc;
}
