/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---------------------------------------------------------- */

const char *
fdk_op_name(enum fdk_op_kind kind)
{
    static const char *const name[FDK_OP__N] = {
        [FDK_OP_EMBED] = "embed",
        [FDK_OP_ROPE_TABLE] = "rope_table",
        [FDK_OP_RMSNORM] = "rmsnorm",
        [FDK_OP_GEMM] = "gemm",
        [FDK_OP_QKV] = "qkv",
        [FDK_OP_ATTENTION] = "attention",
        [FDK_OP_MERGE] = "merge",
        [FDK_OP_SILU_MUL] = "silu_mul",
        [FDK_OP_SOFTCAP] = "softcap",
        [FDK_OP_GATHER] = "gather",
        [FDK_OP_SAMPLE] = "sample",
        [FDK_OP_ALL_REDUCE] = "all_reduce",
        [FDK_OP_ALL_GATHER] = "all_gather",
        [FDK_OP_KV_SHARE] = "kv_share",
        [FDK_OP_ROW_SHARE] = "row_share",
        [FDK_OP_OWN] = "own",
    };
    return (unsigned)kind < FDK_OP__N ? name[kind] : "unknown";
}

const struct fdk_own *
fdk_own_find(const struct fdk_ops *k, const char *name)
{
    for (int32_t i = 0; i < k->n_own; i++)
        if (strcmp(k->own[i].name, name) == 0)
            return &k->own[i];
    return NULL;
}

static const char *
name_of(const struct fdk_op *op)
{
    return op->kind == FDK_OP_OWN ? op->is->name : fdk_op_name(op->kind);
}

static void
gemm_text(const struct fdk_ops *k, const struct fdk_gemm_args *a, char *ret, size_t n)
{
    char group[48] = "";

    if (fdk_is_quant(a->w_dtype) && a->w_group == a->K)
        (void)snprintf(group, sizeof(group), " with a scale per row");
    else if (fdk_is_quant(a->w_dtype))
        (void)snprintf(group, sizeof(group), " in groups of %d", a->w_group);
    (void)snprintf(ret, n, "%d x %d, %s%s, layout %s, activations %s", a->N, a->K,
        fdk_dtype_name(a->w_dtype), group,
        k->layout_name != NULL ? k->layout_name(a->w_layout) : "rows",
        fdk_dtype_name(a->act));
}

void
fdk_op_text(const struct fdk_ops *k, const struct fdk_op *op, char *ret, size_t n)
{
    switch (op->kind) {
    case FDK_OP_EMBED:
        (void)snprintf(ret, n, "%d x %d, %s", op->embed.V, op->embed.C,
            fdk_dtype_name(op->embed.w_dtype));
        break;
    case FDK_OP_GEMM:
        gemm_text(k, &op->gemm, ret, n);
        break;
    case FDK_OP_QKV:
        (void)snprintf(ret, n,
            "%d heads, %d KV heads, head dimension %d, KV %s, activations %s", op->qkv.H,
            op->qkv.K, op->qkv.D, fdk_dtype_name(op->qkv.kv.dtype),
            fdk_dtype_name(op->qkv.act));
        break;
    case FDK_OP_ATTENTION:
        (void)snprintf(ret, n,
            "%d heads, %d KV heads, head dimension %d, blocks of %d tokens, KV %s, activations "
            "%s",
            op->attention.H, op->attention.K, op->attention.D, op->attention.kv.block_size,
            fdk_dtype_name(op->attention.kv.dtype), fdk_dtype_name(op->attention.act));
        break;
    case FDK_OP_MERGE:
        (void)snprintf(ret, n, "%d heads, head dimension %d, shares of %d ranks",
            op->merge.H, op->merge.D, op->merge.n_own);
        break;
    case FDK_OP_SILU_MUL:
        (void)snprintf(ret, n, "width %d, %s", op->silu_mul.F,
            fdk_dtype_name(op->silu_mul.act));
        break;
    case FDK_OP_RMSNORM:
        (void)snprintf(ret, n, "width %d, %s", op->rmsnorm.C,
            fdk_dtype_name(op->rmsnorm.act));
        break;
    case FDK_OP_SAMPLE:
        (void)snprintf(ret, n, "vocabulary %d", op->sample.V);
        break;
    case FDK_OP_ALL_REDUCE:
        (void)snprintf(ret, n, "width %d, %s", op->all_reduce.C,
            fdk_dtype_name(op->all_reduce.act));
        break;
    case FDK_OP_ALL_GATHER:
        (void)snprintf(ret, n, "width %d to %d, %s", op->all_gather.C, op->all_gather.ldy,
            fdk_dtype_name(op->all_gather.dtype));
        break;
    case FDK_OP_KV_SHARE:
        (void)snprintf(ret, n, "%d KV heads, head dimension %d, KV %s",
            op->kv_share.kv.n_kv_head, op->kv_share.kv.head_dim,
            fdk_dtype_name(op->kv_share.kv.dtype));
        break;
    default:
        (void)snprintf(ret, n, "%s", name_of(op));
        break;
    }
}

int32_t
fdk_op_rows(const struct fdk_op *op, const struct fdk_step *s)
{
    int32_t n = op->rows == FDK_PER_TOKEN ? s->T : s->O;
    if (op->needs_output && s->O == 0)
        return 0;
    if (op->kind == FDK_OP_ROW_SHARE)
        return n > 0 ? n : 1;
    n = n > op->first ? n - op->first : 0;
    return op->slice > 0 && n > op->slice ? op->slice : n;
}

static void
attention_complete(struct fdk_op *op, const struct fdk_step *s)
{
    struct fdk_attention_args *a = &op->attention;
    a->b = s->att[op->att].b;
    a->T = s->T;
    a->n_work_max = s->n_work;
    a->work = s->att[op->att].work;
    a->n_work = s->att[op->att].n_work;
    a->n_done = s->att[op->att].n_done;
    a->plan = s->att[op->att].plan;
}

void
fdk_op_complete(struct fdk_op *op, const struct fdk_step *s)
{
    int32_t n = fdk_op_rows(op, s);
    switch (op->kind) {
    case FDK_OP_EMBED:
        op->embed.b = s->b;
        op->embed.T = n;
        break;
    case FDK_OP_ROPE_TABLE:
        op->rope_table.b = s->b;
        op->rope_table.T = n;
        break;
    case FDK_OP_RMSNORM:
        op->rmsnorm.T = n;
        break;
    case FDK_OP_GEMM:
        op->gemm.first = op->first;
        op->gemm.T = n;
        break;
    case FDK_OP_QKV:
        op->qkv.b = s->att[op->att].b;
        op->qkv.T = n;
        break;
    case FDK_OP_ATTENTION:
        attention_complete(op, s);
        break;
    case FDK_OP_MERGE:
        op->merge.T = n;
        break;
    case FDK_OP_SILU_MUL:
        op->silu_mul.T = n;
        break;
    case FDK_OP_SOFTCAP:
        op->softcap.first = op->first;
        op->softcap.T = n;
        break;
    case FDK_OP_GATHER:
        op->gather.b = s->b;
        op->gather.O = n;
        break;
    case FDK_OP_SAMPLE:
        op->sample.b = s->b;
        op->sample.first = op->first;
        op->sample.R = n;
        break;
    case FDK_OP_ALL_REDUCE:
        op->all_reduce.T = n;
        break;
    case FDK_OP_ALL_GATHER:
        op->all_gather.first = op->first;
        op->all_gather.T = n;
        break;
    case FDK_OP_KV_SHARE:
        op->kv_share.b = s->att[op->att].b;
        op->kv_share.range = s->range;
        op->kv_share.T = n;
        break;
    case FDK_OP_ROW_SHARE:
        op->row_share.b = s->b;
        op->row_share.at = s->at;
        op->row_share.O = s->O;
        break;
    case FDK_OP_OWN:
        op->own.T = n;
        break;
    case FDK_OP__N:
        break;
    }
}

int
fdk_op_launch(const struct fdk_ops *k, const struct fdk_op *op, fdk_stream_t st)
{
    switch (op->kind) {
    case FDK_OP_EMBED:
        return k->embed(&op->embed, st);
    case FDK_OP_ROPE_TABLE:
        return k->rope_table(&op->rope_table, st);
    case FDK_OP_RMSNORM:
        return k->rmsnorm(&op->rmsnorm, st);
    case FDK_OP_GEMM:
        return k->gemm(&op->gemm, st);
    case FDK_OP_QKV:
        return k->qkv(&op->qkv, st);
    case FDK_OP_ATTENTION:
        return k->attention(&op->attention, st);
    case FDK_OP_MERGE:
        return k->merge(&op->merge, st);
    case FDK_OP_SILU_MUL:
        return k->silu_mul(&op->silu_mul, st);
    case FDK_OP_SOFTCAP:
        return k->softcap(&op->softcap, st);
    case FDK_OP_GATHER:
        return k->gather(&op->gather, st);
    case FDK_OP_SAMPLE:
        return k->sample(&op->sample, st);
    case FDK_OP_ALL_REDUCE:
        return k->all_reduce(&op->all_reduce, st);
    case FDK_OP_ALL_GATHER:
        return k->all_gather(&op->all_gather, st);
    case FDK_OP_KV_SHARE:
        return k->kv_share(&op->kv_share, st);
    case FDK_OP_ROW_SHARE:
        return k->row_share(&op->row_share, st);
    case FDK_OP_OWN:
        return op->is->launch(&op->own, st);
    case FDK_OP__N:
        break;
    }
    return -EINVAL;
}

size_t
fdk_op_scratch(const struct fdk_ops *k, struct fdk_ctx *ctx, const struct fdk_op *op)
{
    if (op->kind == FDK_OP_ATTENTION && k->attention_scratch != NULL)
        return k->attention_scratch(ctx, &op->attention);
    if (op->kind == FDK_OP_SAMPLE && k->sample_scratch != NULL)
        return k->sample_scratch(&op->sample);
    if (op->kind == FDK_OP_GEMM && k->gemm_scratch != NULL)
        return k->gemm_scratch(&op->gemm);
    if (op->kind == FDK_OP_OWN && op->is->scratch != NULL)
        return op->is->scratch(&op->own);
    return 0;
}

void
fdk_op_set_scratch(struct fdk_op *op, void *scratch, size_t bytes)
{
    if (op->kind == FDK_OP_ATTENTION) {
        op->attention.scratch = scratch;
        op->attention.scratch_bytes = bytes;
    } else if (op->kind == FDK_OP_GEMM) {
        op->gemm.scratch = scratch;
        op->gemm.scratch_bytes = bytes;
    } else if (op->kind == FDK_OP_SAMPLE) {
        op->sample.scratch = scratch;
        op->sample.scratch_bytes = bytes;
    } else if (op->kind == FDK_OP_OWN) {
        op->own.scratch = scratch;
        op->own.scratch_bytes = bytes;
    }
}

static int32_t
put(const void *ret[FDK_OPERANDS], int32_t n, const void *p)
{
    if (p == NULL)
        return n;
    ret[n] = p;
    return n + 1;
}

int32_t
fdk_op_reads(const struct fdk_op *op, const void *ret[FDK_OPERANDS])
{
    switch (op->kind) {
    case FDK_OP_RMSNORM:
        return put(ret, put(ret, 0, op->rmsnorm.x), op->rmsnorm.add);
    case FDK_OP_GEMM:
        return put(ret, 0, op->gemm.x);
    case FDK_OP_QKV:
        return put(ret, put(ret, put(ret, 0, op->qkv.qkv), op->qkv.cs), op->qkv.all);
    case FDK_OP_ATTENTION:
        return put(ret, 0, op->attention.qkv);
    case FDK_OP_MERGE:
        return put(ret, 0, op->merge.x);
    case FDK_OP_SILU_MUL:
        return put(ret, 0, op->silu_mul.gu);
    case FDK_OP_SOFTCAP:
        return put(ret, 0, op->softcap.y);
    case FDK_OP_GATHER:
        return put(ret, 0, op->gather.x);
    case FDK_OP_SAMPLE:
        return put(ret, 0, op->sample.logits);
    case FDK_OP_ALL_REDUCE:
        return put(ret, put(ret, 0, op->all_reduce.x), op->all_reduce.residual);
    case FDK_OP_ALL_GATHER:
        return put(ret, 0, op->all_gather.x);
    case FDK_OP_OWN:
        return put(ret, put(ret, 0, op->own.x), op->own.x2);
    default:
        return 0;
    }
}

int32_t
fdk_op_writes(const struct fdk_op *op, const void *ret[FDK_OPERANDS])
{
    switch (op->kind) {
    case FDK_OP_EMBED:
        return put(ret, 0, op->embed.y);
    case FDK_OP_ROPE_TABLE:
        return put(ret, 0, op->rope_table.cs);
    case FDK_OP_RMSNORM:
        return put(ret, put(ret, 0, op->rmsnorm.y),
            op->rmsnorm.add != NULL ? op->rmsnorm.x : NULL);
    case FDK_OP_GEMM:
        return put(ret, 0, op->gemm.y);
    case FDK_OP_QKV:
        return put(ret, 0, op->qkv.qkv);
    case FDK_OP_ATTENTION:
        return put(ret, 0, op->attention.y);
    case FDK_OP_MERGE:
        return put(ret, 0, op->merge.y);
    case FDK_OP_SILU_MUL:
        return put(ret, 0, op->silu_mul.y);
    case FDK_OP_SOFTCAP:
        return put(ret, 0, op->softcap.y);
    case FDK_OP_GATHER:
        return put(ret, 0, op->gather.y);
    case FDK_OP_ALL_REDUCE:
        return put(ret, put(ret, 0, op->all_reduce.y), op->all_reduce.residual);
    case FDK_OP_ALL_GATHER:
        return put(ret, 0, op->all_gather.y);
    case FDK_OP_OWN:
        return put(ret, 0, op->own.y);
    default:
        return 0;
    }
}

/* ---- a sum over ranks and the norm after it ------------------------------- */

int32_t
fdk_reduce_norm_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    const struct fdk_all_reduce_args *a = &op[0].all_reduce;
    const struct fdk_rmsnorm_args *r = &op[1].rmsnorm;

    (void)ctx;
    (void)dev;
    (void)n;
    (void)ret_least;
    (void)ret_most;
    return a->residual == NULL && r->norm == FDK_NORM_PRE && r->add == a->y &&
            (r->add_scale == 0 || r->add_scale == 1) && r->C == a->C && r->n == a->n &&
            r->act == a->act
        ? 2
        : 0;
}

struct fdk_all_reduce_args
fdk_reduce_norm_args(const struct fdk_op *op, const struct fdk_step *s)
{
    const struct fdk_rmsnorm_args *r = &op[1].rmsnorm;
    struct fdk_all_reduce_args a = op[0].all_reduce;

    a.T = fdk_op_rows(op, s);
    a.y = r->y;
    a.residual = r->x;
    a.w = r->w;
    a.eps = r->eps;
    a.offset = r->offset;
    return a;
}

/* ---- binding ------------------------------------------------------------- */

struct run { /* run of operations that a fusion may launch as one */
    const struct fdk_fusion *f;
    int32_t first, n, least, most;
    void *data;
};

struct fdk_bound {
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    int dev;
    int32_t n_op, n_run, max_run;
    struct fdk_op *op;
    struct run *run; /* sorted by first operation, then by the fusion table's order */
};

static int
has(const void *const *p, int32_t n, const void *what)
{
    for (int32_t i = 0; i < n; i++)
        if (p[i] == what)
            return 1;
    return 0;
}

/* Does an operation from `from` on read buffer p before another one writes it? */
static int
read_later(const struct fdk_bound *b, int32_t from, const void *p)
{
    const void *ops[FDK_OPERANDS];
    for (int32_t i = from; i < b->n_op; i++) {
        if (has(ops, fdk_op_reads(&b->op[i], ops), p))
            return 1;
        if (has(ops, fdk_op_writes(&b->op[i], ops), p))
            return 0;
    }
    return 0;
}

/* Returns 1 if no operation after the run reads a result that a fusion does not store. */
static int
results_end(const struct fdk_bound *b, int32_t first, int32_t n)
{
    const void *ops[FDK_OPERANDS], *last[FDK_OPERANDS];
    int32_t n_last = fdk_op_writes(&b->op[first + n - 1], last);
    for (int32_t i = first; i < first + n - 1; i++) {
        int32_t m = fdk_op_writes(&b->op[i], ops);
        for (int32_t j = 0; j < m; j++) {
            int stream = b->op[i].kind == FDK_OP_RMSNORM && ops[j] == b->op[i].rmsnorm.x;
            if (!stream && !has(last, n_last, ops[j]) && read_later(b, first + n, ops[j]))
                return 0;
        }
    }
    return 1;
}

static int
same_rows(const struct fdk_op *op, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (op[i].rows != op->rows || op[i].needs_output != op->needs_output ||
            op[i].first != op->first || op[i].slice != op->slice)
            return 0;
    return 1;
}

static int
begins(const struct fdk_fusion *f, const struct fdk_op *op)
{
    for (int32_t i = 0; i < f->n; i++)
        if (op[i].kind != f->kind[i])
            return 0;
    return 1;
}

static int
run_add(struct fdk_bound *b, const struct run *r)
{
    int32_t at = b->n_run;
    if (b->n_run == b->max_run) {
        int32_t max = b->max_run > 0 ? 2 * b->max_run : 64;
        struct run *p = realloc(b->run, (size_t)max * sizeof(*p));
        if (p == NULL)
            return -ENOMEM;
        b->run = p;
        b->max_run = max;
    }
    for (; at > 0 && b->run[at - 1].first > r->first; at--)
        b->run[at] = b->run[at - 1];
    b->run[at] = *r;
    b->n_run++;
    return 0;
}

/* Binds the fusion to the operations from `first` on if it covers them. *ret_n: how many
 * it covers, 0: none. Returns 0 or -errno. */
static int
run_try(struct fdk_bound *b, const struct fdk_fusion *f, int32_t first, int32_t *ret_n)
{
    struct run r = { .f = f, .first = first, .least = 1, .most = INT32_MAX };
    int32_t n = b->n_op - first;
    int rc = 0;
    *ret_n = 0;
    if (n < f->n || !begins(f, &b->op[first]))
        return 0;
    r.n = f->covers(b->ctx, b->dev, &b->op[first], n, &r.least, &r.most);
    if (r.n <= 0 || r.least > r.most || !same_rows(&b->op[first], r.n) ||
        !results_end(b, first, r.n))
        return 0;
    if (f->prepare != NULL)
        rc = f->prepare(b->ctx, b->dev, &b->op[first], r.n, &r.data);
    if (rc == 0) {
        rc = run_add(b, &r);
        if (rc != 0 && f->release != NULL)
            f->release(b->ctx, b->dev, r.data);
    }
    *ret_n = r.n;
    return rc == -ENOTSUP ? 0 : rc;
}

int
fdk_bind(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, const struct fdk_op *op,
    int32_t n, struct fdk_bound **ret)
{
    struct fdk_bound *b = calloc(1, sizeof(*b));
    int rc = 0;
    if (b == NULL)
        return -ENOMEM;
    b->k = k;
    b->ctx = ctx;
    b->dev = dev;
    b->op = malloc((size_t)(n > 0 ? n : 1) * sizeof(*op));
    if (b->op == NULL)
        rc = -ENOMEM;
    for (b->n_op = 0; rc == 0 && b->n_op < n; b->n_op++)
        b->op[b->n_op] = op[b->n_op];
    for (int32_t i = 0; i < k->n_fusion && rc == 0; i++)
        for (int32_t at = 0, m = 0; at < n && rc == 0; at += m > 0 ? m : 1)
            rc = run_try(b, &k->fusion[i], at, &m);
    if (rc != 0) {
        fdk_unbind(b);
        return rc;
    }
    *ret = b;
    return 0;
}

void
fdk_unbind(struct fdk_bound *b)
{
    if (b == NULL)
        return;
    for (int32_t i = 0; i < b->n_run; i++)
        if (b->run[i].f->release != NULL)
            b->run[i].f->release(b->ctx, b->dev, b->run[i].data);
    free(b->run);
    free(b->op);
    free(b);
}

/* ---- halves -------------------------------------------------------------- */

int
fdk_by_row(enum fdk_op_kind kind)
{
    return kind == FDK_OP_GEMM || kind == FDK_OP_RMSNORM || kind == FDK_OP_SILU_MUL ||
        kind == FDK_OP_ALL_REDUCE;
}

static int
by_row(const struct fdk_op *op)
{
    return fdk_by_row(op->kind) && op->rows == FDK_PER_TOKEN && op->first == 0 &&
        op->slice == 0 && !op->needs_output;
}

int32_t
fdk_halves(const struct fdk_op *op, int32_t n)
{
    int32_t m = 0, sums = 0;
    for (; m < n && by_row(&op[m]); m++)
        sums += op[m].kind == FDK_OP_ALL_REDUCE;
    return sums > 0 ? m : 0;
}

/* p moved by rows of n elements; NULL stays NULL. */
static void *
moved(const void *p, int32_t rows, int32_t n, enum fdk_dtype t)
{
    size_t bytes = (size_t)rows * (size_t)n * fdk_dtype_bytes(t);
    return p != NULL ? (char *)(uintptr_t)p + bytes : NULL;
}

/* Moves the operation's buffers to row `at`. The count of live rows stays, so rows past
 * the live ones may be computed. */
static void
move_rows(struct fdk_op *op, int32_t at)
{
    struct fdk_gemm_args *g = &op->gemm;
    struct fdk_rmsnorm_args *r = &op->rmsnorm;
    struct fdk_silu_mul_args *m = &op->silu_mul;
    struct fdk_all_reduce_args *a = &op->all_reduce;
    if (op->kind == FDK_OP_GEMM) {
        g->x = moved(g->x, at, g->K, g->act);
        g->y = moved(g->y, at, g->ldy, g->y_dtype);
    } else if (op->kind == FDK_OP_RMSNORM) {
        r->x = moved(r->x, at, r->C, FDK_F32);
        r->y = moved(r->y, at, r->C, r->act);
        r->add = moved(r->add, at, r->C, r->act);
    } else if (op->kind == FDK_OP_SILU_MUL) {
        m->gu = moved(m->gu, at, 2 * m->F, m->act);
        m->y = moved(m->y, at, m->F, m->act);
    } else if (op->kind == FDK_OP_ALL_REDUCE) {
        a->x = moved(a->x, at, a->C, a->act);
        a->y = moved(a->y, at, a->C, a->act);
    }
}

/* ---- launching ----------------------------------------------------------- */

/* Index of the first run after `last` that begins with operation i, allows that many rows
 * and has at most n operations; -1: none. */
static int32_t
run_behind(const struct fdk_bound *b, int32_t i, int32_t rows, int32_t n, int32_t last)
{
    int32_t lo = 0, hi = b->n_run;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (b->run[mid].first < i)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (lo = lo > last ? lo : last + 1; lo < b->n_run && b->run[lo].first == i; lo++)
        if (b->run[lo].least <= rows && rows <= b->run[lo].most && b->run[lo].n <= n)
            return lo;
    return -1;
}

static int32_t
run_at(const struct fdk_bound *b, int32_t i, int32_t rows, int32_t n)
{
    return run_behind(b, i, rows, n, -1);
}

/* Lists the launches of operations [first, end), without an ALL_REDUCE, for half h. */
static int32_t
list_half(const struct fdk_bound *b, const struct fdk_launch *h, int fused, int32_t first,
    int32_t end, struct fdk_launch *ret)
{
    int32_t n = 0;
    for (int32_t i = first; i < end; i += ret[n++].n) {
        int32_t most = end - i < FDK_FUSION_OPS ? end - i : FDK_FUSION_OPS;
        ret[n] = *h;
        ret[n].first = i;
        ret[n].run = fused ? run_at(b, i, h->rows, most) : -1;
        ret[n].n = ret[n].run >= 0 ? b->run[ret[n].run].n : 1;
    }
    return n;
}

/* One launch of ALL_REDUCE `first` for half h; FDK_LAUNCH_TAKE may include a fused
 * norm. */
static struct fdk_launch
sum_of(const struct fdk_bound *b, const struct fdk_launch *h, int fused, int32_t first,
    enum fdk_launch_as as)
{
    struct fdk_launch l = *h;
    l.as = as;
    l.first = first;
    l.run = fused && as == FDK_LAUNCH_TAKE ? run_at(b, first, h->rows, 2) : -1;
    l.n = l.run >= 0 ? b->run[l.run].n : 1;
    return l;
}

/* Lists operations [first, end) for both halves, one section after another; a section
 * ends before the next ALL_REDUCE. */
static int32_t
list_halves(const struct fdk_bound *b, const struct fdk_step *s, int fused, int32_t first,
    int32_t end, struct fdk_launch *ret)
{
    const int32_t T = s->T, half = fdk_half_rows(T);
    const struct fdk_launch h[2] = { { .rows = half }, { .at = half, .rows = T - half } };
    int32_t n = 0, sum = -1, at = first, next;
    do {
        for (next = at + (sum >= 0); next < end && b->op[next].kind != FDK_OP_ALL_REDUCE;)
            next++;
        for (int i = 0; i < 2; i++) {
            int32_t from = at;
            if (sum >= 0) {
                ret[n] = sum_of(b, &h[i], fused, sum, FDK_LAUNCH_TAKE);
                from = sum + ret[n++].n;
            }
            n += list_half(b, &h[i], fused, from, next, ret + n);
            if (next < end)
                ret[n++] = sum_of(b, &h[i], fused, next, FDK_LAUNCH_SEND);
        }
        at = sum = next;
    } while (next < end);
    return n;
}

int32_t
fdk_launches(const struct fdk_bound *b, const struct fdk_step *s, int fused,
    struct fdk_launch *ret)
{
    int32_t n = 0, len;
    for (int32_t i = 0; i < b->n_op; i += len) {
        int32_t rows = fdk_op_rows(&b->op[i], s), run = -1;
        len = 1;
        if (rows == 0)
            continue;
        if (s->halves && rows > fdk_half_rows(rows) &&
            (len = fdk_halves(&b->op[i], b->n_op - i)) > 0) {
            n += list_halves(b, s, fused, i, i + len, ret + n);
            continue;
        }
        if (fused)
            run = run_at(b, i, rows, INT32_MAX);
        len = run >= 0 ? b->run[run].n : 1;
        ret[n++] = (struct fdk_launch){ .first = i, .n = len, .run = run };
    }
    return n;
}

/* ops: operations of the launch; ops and s have only the launch's rows. If a fusion
 * returns -ENOTSUP, its operations are launched as if it were not bound, in the same
 * launches as on a rank that has not bound it. */
static int
launch_ops(const struct fdk_bound *b, const struct fdk_op *ops, const struct fdk_step *s,
    const struct fdk_launch *l, fdk_stream_t st)
{
    int32_t n = 1, run = l->run;
    int rc = 0;
    for (int32_t i = 0; i < l->n && rc == 0; i += n) {
        const int32_t at = l->first + i, rows = fdk_op_rows(&ops[i], s), left = l->n - i;
        struct fdk_op op = ops[i];
        if (i > 0)
            run = run_at(b, at, rows, left);
        for (rc = -ENOTSUP; run >= 0 && rc == -ENOTSUP;) {
            n = b->run[run].n;
            rc = b->run[run].f->launch(b->run[run].data, ops + i, n, s, st);
            if (rc == -ENOTSUP)
                run = run_behind(b, at, rows, left, run);
        }
        if (run >= 0)
            continue;
        n = 1;
        fdk_op_complete(&op, s);
        rc = fdk_op_launch(b->k, &op, st);
    }
    return rc;
}

static int
launch_half(const struct fdk_bound *b, const struct fdk_step *s,
    const struct fdk_launch *l, fdk_stream_t st)
{
    struct fdk_op op[FDK_FUSION_OPS];
    struct fdk_all_reduce_args sum;
    struct fdk_step half = *s;
    half.T = l->rows;
    for (int32_t i = 0; i < l->n; i++) {
        op[i] = b->op[l->first + i];
        move_rows(&op[i], l->at);
    }
    if (l->as == FDK_LAUNCH_RUN)
        return launch_ops(b, op, &half, l, st);
    if (l->n > 1)
        sum = fdk_reduce_norm_args(op, &half);
    else
        sum = op[0].all_reduce;
    sum.T = l->rows;
    return l->as == FDK_LAUNCH_SEND
        ? b->k->reduce_send(&sum, st)
        : b->k->reduce_take(&sum, st);
}

int
fdk_launch(const struct fdk_bound *b, const struct fdk_step *s,
    const struct fdk_launch *l, fdk_stream_t st)
{
    return l->rows > 0 ? launch_half(b, s, l, st)
                       : launch_ops(b, &b->op[l->first], s, l, st);
}

const char *
fdk_launch_name(const struct fdk_bound *b, const struct fdk_launch *l)
{
    return l->run >= 0 ? b->run[l->run].f->name : name_of(&b->op[l->first]);
}

const char *
fdk_launch_kernels(const struct fdk_bound *b, const struct fdk_step *s,
    const struct fdk_launch *l)
{
    struct fdk_op op;
    if (l->run >= 0)
        return b->run[l->run].f->kernels;
    if (b->op[l->first].kind == FDK_OP_OWN)
        return b->op[l->first].is->kernels;
    if (b->k->op_kernels == NULL)
        return fdk_op_name(b->op[l->first].kind);
    op = b->op[l->first];
    fdk_op_complete(&op, s);
    return b->k->op_kernels(b->ctx, b->dev, &op);
}
