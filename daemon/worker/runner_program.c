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
    p->n_copy = p->n_rank = p->n_split = p->n_head = p->n_kv_head = p->ffn = 1;
    p->kv_share = p->kv_split = p->kv_copies = 1;
    p->vocab_rows = RUN_NULL_VOCAB;
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
        .N = RUN_NULL_VOCAB,
        .K = RUN_NULL_VOCAB };
    p->kv_group[0] = (struct mdl_kv_group){ 1, 1, 1, 0 };
    p->n_kv_group = 1;
    return p;
}

/* ---- placement ------------------------------------------------------------------- */

/* Is the buffer written by LOGITS or read by SAMPLE? It then holds one slice of rows. */
static int
run_is_logits(const struct mdl_program *p, int32_t buf)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if ((p->op[i].kind == MDL_OP_SAMPLE && p->op[i].in == buf) ||
            (p->op[i].kind == MDL_OP_LOGITS && p->op[i].out == buf))
            return 1;
    return 0;
}

int
run_is_head(const struct mdl_program *p, int32_t i)
{
    const struct mdl_op *o = &p->op[i];

    return o->kind == MDL_OP_LOGITS || o->kind == MDL_OP_SOFTCAP ||
        (o->kind == MDL_OP_ALLGATHER && run_is_logits(p, o->in));
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

/* The backend's kind of each operation. */
static const enum fdk_op_kind run_kind[MDL_OP__N] = {
    [MDL_OP_EMBED] = FDK_OP_EMBED,
    [MDL_OP_ROPE_TABLE] = FDK_OP_ROPE_TABLE,
    [MDL_OP_RMSNORM] = FDK_OP_RMSNORM,
    [MDL_OP_GEMM] = FDK_OP_GEMM,
    [MDL_OP_QKV] = FDK_OP_QKV,
    [MDL_OP_ATTENTION] = FDK_OP_ATTENTION,
    [MDL_OP_MERGE] = FDK_OP_MERGE,
    [MDL_OP_SILU_MUL] = FDK_OP_SILU_MUL,
    [MDL_OP_GATHER] = FDK_OP_GATHER,
    [MDL_OP_LOGITS] = FDK_OP_GEMM,
    [MDL_OP_SOFTCAP] = FDK_OP_SOFTCAP,
    [MDL_OP_SAMPLE] = FDK_OP_SAMPLE,
    [MDL_OP_ALLREDUCE] = FDK_OP_ALL_REDUCE,
    [MDL_OP_ALLGATHER] = FDK_OP_ALL_GATHER,
    [MDL_OP_COLUMNS] = FDK_OP_OWN,
    [MDL_OP_ADD] = FDK_OP_OWN,
    [MDL_OP_KVSHARE] = FDK_OP_KV_SHARE,
    [MDL_OP_ROWSHARE] = FDK_OP_ROW_SHARE,
};

static void
run_keep(const struct mdl_program *p, int32_t buf, int32_t until, int32_t *last)
{
    if (buf >= 0 && p->buf[buf].first <= until && last[buf] < until)
        last[buf] = until;
}

/* Keep the inputs of a fused launch that begins at operation `first` alive until it
 * ends. */
static void
run_keep_inputs(const struct mdl_program *p, const struct fdk_fusion *f, int32_t first,
    int32_t *last)
{
    int32_t at[FDK_FUSION_OPS], n = 0, i = first;

    /* steps that are not divided have no KVSHARE: the operations around it are
     * neighbours */
    for (; n < f->n && i < p->n_op; i++)
        if (p->op[i].kind != MDL_OP_KVSHARE)
            at[n++] = i;
    if (n < f->n)
        return;
    for (i = 0; i < n; i++)
        if (run_kind[p->op[at[i]].kind] != f->kind[i] ||
            p->op[at[i]].tail != p->op[first].tail)
            return;
    for (i = 0; i < n; i++) {
        run_keep(p, p->op[at[i]].in, at[n - 1], last);
        run_keep(p, p->op[at[i]].in2, at[n - 1], last);
    }
}

/* May the operation be launched in halves? */
static int
run_by_row(const struct mdl_op *o)
{
    return o->rows == MDL_PER_TOKEN && fdk_by_row(run_kind[o->kind]);
}

/* Do some steps skip the operation, so that those around it become neighbours? */
static int
run_between(const struct mdl_op *o)
{
    return o->tail == MDL_TAIL_OUTPUTS || o->kind == MDL_OP_KVSHARE;
}

/* Keep all buffers of a run of operations in halves alive until the last of them. */
static void
run_keep_halves(const struct mdl_program *p, int32_t *last)
{
    for (int32_t i = 0, end; i < p->n_op; i = end + 1) {
        end = i;
        while (end < p->n_op && (run_by_row(&p->op[end]) || run_between(&p->op[end])))
            end++;
        for (int32_t k = i; k < end; k++) {
            run_keep(p, p->op[k].in, end - 1, last);
            run_keep(p, p->op[k].in2, end - 1, last);
            run_keep(p, p->op[k].out, end - 1, last);
        }
    }
}

/* For each buffer the last operation until which it must stay unchanged. */
static void
run_last_uses(const struct fdk_ops *k, const struct mdl_program *p, int halves,
    int32_t *last)
{
    for (int32_t i = 0; i < p->n_buf; i++)
        last[i] = p->buf[i].last;
    for (int32_t f = 0; f < k->n_fusion; f++)
        for (int32_t i = 0; k->fusion[f].keeps_inputs && i + k->fusion[f].n <= p->n_op; i++)
            run_keep_inputs(p, &k->fusion[f], i, last);
    if (halves)
        run_keep_halves(p, last);
}

int
run_place(const struct fdk_ops *k, const struct mdl_program *p, const struct bat_dims *d,
    int32_t R, enum fdk_dtype act, int halves, size_t *off, size_t *ret_bytes)
{
    size_t n = (size_t)p->n_buf, total = 0;
    size_t *bytes = mem_array(n, sizeof(*bytes));
    unsigned char *placed = mem_array(n, 1);
    int32_t *last = mem_array(n, sizeof(*last));

    if (bytes == NULL || placed == NULL || last == NULL) {
        free(bytes);
        free(placed);
        free(last);
        return -ENOMEM;
    }
    run_last_uses(k, p, halves, last);
    for (size_t i = 0; i < n; i++)
        bytes[i] = run_buf_bytes(p, d, R, act, (int32_t)i);
    for (size_t m = 0; m < n; m++) {
        size_t best = n, at = 0;
        int moved = 1;

        for (size_t i = 0; i < n; i++)
            if (!placed[i] && (best == n || bytes[i] > bytes[best]))
                best = i;
        /* lowest offset that overlaps no placed buffer alive at the same time */
        while (moved) {
            moved = 0;
            for (size_t j = 0; j < n; j++)
                if (placed[j] && p->buf[j].first <= last[best] &&
                    p->buf[best].first <= last[j] && at < off[j] + bytes[j] &&
                    off[j] < at + bytes[best]) {
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
    free(last);
    *ret_bytes = total;
    return 0;
}

/* ---- operations without their pointers ------------------------------------------------ */

static void
run_shape_gemm(const struct runner *run, const struct mdl_op *o, struct fdk_gemm_args *ret)
{
    const struct fdk_weight w = wts_weight(run->wp, o->w);

    *ret = (struct fdk_gemm_args){ .N = o->N,
        .K = o->K,
        .ldy = o->N,
        .w_dtype = w.format,
        .w_group = w.group,
        .w_layout = w.layout,
        .act = run->act,
        .y_dtype = o->kind == MDL_OP_LOGITS ? FDK_F32 : run->act };
}

static void
run_shape_heads(const struct runner *run, const struct mdl_op *o, struct fdk_op *ret)
{
    const struct mdl_kv_at *at = &run->prog->kv_at[o->layer];
    const struct mdl_kv_group *g = &run->prog->kv_group[at->group];
    const struct mdl_config *c = &run->prog->cfg;
    int32_t H = run->prog->n_head, K = g->n_kv_head, D = g->head_dim;

    ret->att = o->tail == MDL_TAIL_OUTPUTS ? run->prog->n_kv_group : at->group;
    if (o->kind == MDL_OP_QKV)
        ret->qkv = (struct fdk_qkv_args){ .kv = run->kv[at->group],
            .H = H,
            .K = K,
            .D = D,
            .rot = o->in2 >= 0 ? run->prog->rot : 0,
            .layer = at->layer,
            .eps = o->f,
            .norm_offset = c->norm_offset,
            .norm_all = c->qk_norm == MDL_QK_ALL,
            .n_all = run->prog->n_rank,
            .all_share = run->prog->kv_share,
            .interleaved = c->interleaved,
            .act = run->act };
    else
        ret->attention = (struct fdk_attention_args){ .kv = run->kv[at->group],
            .H = H,
            .K = K,
            .D = D,
            .layer = at->layer,
            .window = o->window,
            .step_window = o->window,
            .scale = o->f,
            .softcap = o->softcap,
            .act = run->act };
}

/* Is o the program's first KVSHARE? */
static int
run_begins_share(const struct mdl_program *p, const struct mdl_op *o)
{
    const struct mdl_op *i = p->op;

    while (i < o && i->kind != MDL_OP_KVSHARE)
        i++;
    return i == o;
}

static void
run_shape_share(const struct runner *run, const struct mdl_op *o, struct fdk_op *ret)
{
    const struct mdl_kv_at *at = &run->prog->kv_at[o->layer];

    ret->att = at->group;
    ret->kv_share = (struct fdk_kv_share_args){ .kv = run->kv[at->group],
        .layer = at->layer,
        .begin = run_begins_share(run->prog, o) };
}

int
run_shape_op(const struct runner *run, const struct mdl_op *o, struct fdk_op *ret)
{
    int outputs = o->rows == MDL_PER_OUT && o->kind != MDL_OP_ROWSHARE;
    /* if copies share tokens, other copies' outputs need this copy's share of the keys */
    int shared = run->prog->kv_copies > 1 && (o->kind == MDL_OP_ATTENTION || o->owners);

    *ret = (struct fdk_op){ .kind = run_kind[o->kind],
        .rows = o->rows == MDL_PER_OUT ? FDK_PER_OUT : FDK_PER_TOKEN,
        .needs_output = outputs || (o->tail == MDL_TAIL_OUTPUTS && !shared) };
    switch (ret->kind) {
    case FDK_OP_EMBED:
        ret->embed = (struct fdk_embed_args){ .C = o->K,
            .V = o->N,
            .w_dtype = o->w >= 0 ? wts_dtype(run->wp, o->w) : FDK_F32,
            .scale = o->f,
            .shard_rows = run->prog->n_rank > 1 ? run->prog->vocab_rows : 0 };
        return 0;
    case FDK_OP_ROPE_TABLE:
        mdl_rope_args(run->prog, o, &ret->rope_table);
        return 0;
    case FDK_OP_RMSNORM:
        ret->rmsnorm = (struct fdk_rmsnorm_args){ .C = o->N,
            .eps = o->f,
            .offset = run->prog->cfg.norm_offset,
            .add_scale = o->scale,
            .norm = o->norm,
            .act = run->act };
        return 0;
    case FDK_OP_GEMM:
        run_shape_gemm(run, o, &ret->gemm);
        return 0;
    case FDK_OP_QKV:
    case FDK_OP_ATTENTION:
        run_shape_heads(run, o, ret);
        return 0;
    case FDK_OP_MERGE:
        ret->merge = (struct fdk_merge_args){ .H = run->prog->n_head,
            .D = run->prog->cfg.head_dim,
            .n_own = run->prog->kv_split,
            .act = run->act };
        return 0;
    case FDK_OP_SILU_MUL:
        ret->silu_mul = (struct fdk_silu_mul_args){ .F = o->N,
            .gate = run->prog->cfg.gate,
            .act = run->act };
        return 0;
    case FDK_OP_SOFTCAP:
        ret->softcap =
            (struct fdk_softcap_args){ .N = o->N, .scale = o->scale, .cap = o->softcap };
        return 0;
    case FDK_OP_GATHER:
        ret->gather = (struct fdk_gather_args){ .C = o->N,
            .act = run->prog->buf[o->in].f32 ? FDK_F32 : run->act };
        return 0;
    case FDK_OP_SAMPLE:
        ret->sample = (struct fdk_sample_args){ .V = o->N,
            .ldl = o->K,
            .rules_words = (int32_t)fdk_rules_words(o->N) };
        return 0;
    case FDK_OP_ALL_REDUCE:
        ret->all_reduce = (struct fdk_all_reduce_args){ .C = o->N, .act = run->act };
        return 0;
    case FDK_OP_ALL_GATHER:
        ret->all_gather = (struct fdk_all_gather_args){ .C = o->N,
            .ldy = o->N * (o->owners ? run->prog->kv_split : run->prog->n_rank),
            .each = o->each,
            .dtype = run->prog->buf[o->in].f32 ? FDK_F32 : run->act };
        return 0;
    case FDK_OP_KV_SHARE:
        run_shape_share(run, o, ret);
        return 0;
    case FDK_OP_ROW_SHARE:
        ret->row_share = (struct fdk_row_share_args){ .O = 0 };
        return 0;
    case FDK_OP_OWN:
        ret->is = fdk_own_find(run->k, mdl_op_name(o->kind));
        ret->own = (struct fdk_own_args){ .N = o->N,
            .K = o->K,
            .f = { (float)o->first },
            .act = run->act };
        return ret->is != NULL ? 0 : -ENOTSUP;
    case FDK_OP__N:
        break;
    }
    return -ENOTSUP;
}

int32_t
run_logits_rows(const struct fdk_ops *k, int32_t vocab, int32_t O)
{
    uint64_t bytes = k->on_host ? RUN_LOGITS_BYTES : RUN_LOGITS_BYTES_DEV;
    uint64_t R = bytes / ((uint64_t)vocab * sizeof(float));

    return R < 1 ? 1 : R > (uint64_t)O ? O : (int32_t)R;
}

void
run_slice(const struct runner *run, int32_t i, struct fdk_op *op)
{
    if (run_is_head(run->prog, i) || run->prog->op[i].kind == MDL_OP_SAMPLE)
        op->slice = run->R;
}

size_t
run_scratch_bytes(const struct runner *run)
{
    const struct bat_dims *d = &run->dims;
    struct fdk_batch b = { .max_row = bat_pad_rows(d, d->T), .table_stride = d->stride };
    struct fdk_step s = { .b = &b,
        .T = d->T,
        .O = bat_pad_outs(d, d->T),
        .n_work = fdk_tiles_max(b.max_row, d->T, run->att_a, run->att_b) };
    size_t most = 0;

    for (int32_t i = 0; i <= run->prog->n_kv_group; i++)
        s.att[i].b = &b;
    for (int32_t i = 0; i < run->prog->n_op; i++) {
        struct fdk_op op;
        size_t n = 0;

        if (run_shape_op(run, &run->prog->op[i], &op) == 0) {
            run_slice(run, i, &op);
            fdk_op_complete(&op, &s);
            n = fdk_op_scratch(run->k, run->ctx, &op);
        }
        most = n > most ? n : most;
    }
    return most;
}
