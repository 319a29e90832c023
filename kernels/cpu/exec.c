/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/vdev.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * Execution of a command by a stream's thread: it reads the live counts, divides the
 * outputs into items and gives them to the pool. An item computes some output elements
 * completely, so the number of items affects only the time. Work below about 10 us
 * is not worth waking another thread.
 */
#define SMALL_WORK (1u << 15) /* multiply-adds, or floats read */

struct job {
    const struct cpu_isa *isa;
    const void *args;
    struct CUstream_st *st;
    int n;                    /* live rows */
    int n_item, m_item;       /* items; GEMM: number of divisions of the rows */
    struct cpu_slice *slices; /* sample */
};

static int
clip(const int32_t *live, int padded)
{
    int n = *live;
    return n < 0 ? 0 : n < padded ? n : padded;
}

static void
run(struct job *j, cpu_item_fn *fn, int n_item, size_t work)
{
    struct CUstream_st *st = j->st;
    if (work < SMALL_WORK)
        n_item = n_item > 0 ? 1 : 0;
    j->n_item = n_item;
    cpu_pool_run(st->dev->pool, fn, j, n_item, st->scratch);
}

/* Number of items for n equal pieces: a few per thread, so that a late thread costs
 * little. */
static int
pieces(const struct CUstream_st *st, int n)
{
    int most = 4 * st->dev->ctx->n_thread;
    return n < most ? n : most;
}

/* First element of item i of n_item over n elements, a multiple of align. */
static int
cut(int n, int i, int n_item, int align)
{
    int64_t unit = ((int64_t)n + align - 1) / align;
    int64_t at = unit * i / n_item * align;
    return at < n ? (int)at : n;
}

void
cpu_row_update(const struct fdk_row_update_args *a)
{
    int n = clip(a->n, a->n_max);
    for (int i = 0; i < n; i++)
        a->state[a->idx[i]] = a->rows[i];
    n = a->n_delta != NULL ? clip(a->n_delta, a->n_delta_max) : 0;
    for (int i = 0; i < n; i++)
        a->table[a->delta[i].at] = a->delta[i].block;
}

static int32_t
input_token(const struct fdk_batch *b, const struct fdk_row *state, int t)
{
    int32_t id = b->ids[t];
    return id >= 0 ? id : state[b->state[b->row[t]]].last_token;
}

static const char *
embed_row(const struct fdk_embed_args *a, int32_t id)
{
    size_t row = (size_t)a->C * fdk_dtype_bytes(a->w_dtype);
    if (a->shard_rows == 0)
        return (const char *)a->w + (size_t)id * row;
    return (const char *)a->shard[id / a->shard_rows] + (size_t)(id % a->shard_rows) * row;
}

static void
embed_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_embed_args *a = j->args;
    (void)scratch;
    int end = cut(j->n, item + 1, j->n_item, 1);
    for (int t = cut(j->n, item, j->n_item, 1); t < end; t++) {
        int32_t id = input_token(a->b, a->state, t);
        if (id < 0 || id >= a->V) {
            cpu_fail(j->st->dev,
                "embed: token id %d at index %d of the step is outside "
                "the vocabulary of %d",
                id, t, a->V);
            return;
        }
        j->isa->load_row(a->y + (size_t)t * (size_t)a->C, embed_row(a, id), a->w_dtype,
            (size_t)a->C, a->scale);
    }
}

static void
rmsnorm_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_rmsnorm_args *a = j->args;
    (void)scratch;
    int end = cut(j->n, item + 1, j->n_item, 1);
    for (int t = cut(j->n, item, j->n_item, 1); t < end; t++)
        j->isa->rmsnorm(a, t);
}

static void
gemm_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_gemm_args *a = j->args;
    int m_item = j->n_item == 1 ? 1 : j->m_item, n_item = j->n_item / m_item;
    int mi = item % m_item, ni = item / m_item, align = j->isa->gemm_align;
    j->isa->gemm(a, a->first + cut(j->n, mi, m_item, 64),
        a->first + cut(j->n, mi + 1, m_item, 64), cut(a->N, ni, n_item, align),
        cut(a->N, ni + 1, n_item, align), scratch);
}

static void
do_gemm(struct job *j, const struct fdk_gemm_args *a)
{
    int last = *a->n < a->first + a->T ? *a->n : a->first + a->T;
    j->n = last - a->first;
    if (j->n <= 0)
        return;
    int cols = (a->N - 1) / j->isa->gemm_align + 1;
    int n_item = pieces(j->st, cols);
    /* Few columns for many threads: divide the rows too. */
    j->m_item = 1;
    if (n_item < 4 * j->st->dev->ctx->n_thread)
        j->m_item = pieces(j->st, (j->n + 63) / 64);
    run(j, gemm_item, n_item * j->m_item,
        (size_t)a->N * (size_t)a->K * (size_t)(j->n > 1 ? j->n : 1));
}

/* Frequencies of token t; room: buffer of rot / 2 floats. */
static const float *
rope_freqs(const struct fdk_rope_table_args *a, int t, float *room)
{
    int32_t n = a->len != FDK_ROPE_ANY ? a->state[a->b->state[a->b->row[t]]].max_len : 0;
    float theta, m = a->ntk_factor;
    if (a->len == FDK_ROPE_ANY || n <= a->long_from)
        return a->inv_freq;
    if (a->len == FDK_ROPE_LONG)
        return a->inv_freq + a->rot / 2;
    theta = a->ntk_theta *
        powf(m * (float)n / (float)a->long_from - (m - 1),
            (float)a->rot / (float)(a->rot - 2));
    for (int i = 0; i < a->rot / 2; i++)
        room[i] = 1.0f / powf(theta, (float)(2 * i) / (float)a->rot);
    return room;
}

static void
rope_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_rope_table_args *a = j->args;
    int half = a->rot / 2, end = cut(j->n, item + 1, j->n_item, 1);
    for (int t = cut(j->n, item, j->n_item, 1); t < end; t++) {
        float *cs = a->cs + (size_t)t * (size_t)a->rot;
        const float *freq = rope_freqs(a, t, scratch);
        for (int i = 0; i < half; i++) {
            float angle = (float)a->b->pos[t] * freq[i];
            cs[i] = cosf(angle) * a->scale;
            cs[half + i] = sinf(angle) * a->scale;
        }
    }
}

static void
qkv_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    int end = cut(j->n, item + 1, j->n_item, 1);
    (void)scratch;
    for (int t = cut(j->n, item, j->n_item, 1); t < end; t++)
        j->isa->qkv(j->args, t);
}

int
cpu_att_plan(const struct fdk_att_plan_args *a)
{
    const struct fdk_batch *b = a->b;
    int n_row = clip(b->n_row, b->max_row), n_tok = *b->n_tok, n = 0, full = -1;
    int32_t at = 0;
    for (int r = 0; r < n_row && full < 0; r++) {
        int first = b->q_start[r],
            end = b->q_start[r + 1] < n_tok ? b->q_start[r + 1] : n_tok;
        int64_t rows = (int64_t)(end - first) * a->a;
        for (int64_t i = 0; i * a->bt < rows; i++) {
            int64_t last = ((i + 1) * a->bt - 1) / a->a;
            if (a->outputs &&
                !fdk_has_output(b, &at, first + (int32_t)(i * a->bt / a->a),
                    last < end - first ? first + (int32_t)last + 1 : end))
                continue;
            if (n == a->n_max) {
                full = r;
                break;
            }
            a->work[n++] = (struct fdk_work){ r, (int32_t)i };
        }
    }
    *a->n_work = n;
    *a->n_done = 0;
    for (; n < a->n_max; n++)
        a->work[n] = (struct fdk_work){ -1, -1 };
    return full;
}

static void
do_att_plan(struct job *j, const struct fdk_att_plan_args *a)
{
    int row = cpu_att_plan(a);
    if (row >= 0)
        cpu_fail(j->st->dev,
            "att_plan: row %d of %d needs more than the %d tiles there is "
            "room for",
            row, clip(a->b->n_row, a->b->max_row), a->n_max);
}

/* Sets the query tokens of tile i. Returns 0 if it is outside this step, else 1. */
static int
work_tile(const struct fdk_attention_args *a, int i, struct cpu_attend *ret)
{
    const struct fdk_batch *b = a->b;
    int32_t qa, bt, n_tok = clip(b->n_tok, a->T);
    const struct fdk_work w = a->work[i];
    if (w.row < 0 || w.row >= clip(b->n_row, b->max_row) || w.tile < 0 || w.tile >= a->T)
        return 0;
    vdev_att_shape(a, &qa, &bt);
    int end = b->q_start[w.row + 1] < n_tok ? b->q_start[w.row + 1] : n_tok;
    int64_t tok = b->q_start[w.row] + (int64_t)w.tile * bt;
    if (tok >= end)
        return 0;
    *ret = (struct cpu_attend){
        .a = a,
        .row = w.row,
        .tok = (int32_t)tok,
        .n_tok = end - (int32_t)tok < bt ? end - (int32_t)tok : bt,
    };
    return 1;
}

static void
attention_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_attention_args *a = j->args;
    struct cpu_attend at = { 0 };
    uint32_t n_done = 0;
    int end = cut(j->n, item + 1, j->n_item, 1);
    for (int i = cut(j->n, item, j->n_item, 1); i < end; i++) {
        if (!work_tile(a, i / a->K, &at)) {
            cpu_fail(j->st->dev,
                "attention: work item %d (row %d, tile %d) is outside "
                "the step",
                i / a->K, a->work[i / a->K].row, a->work[i / a->K].tile);
            return;
        }
        at.kv_head = i % a->K;
        j->isa->attend(&at, scratch);
        n_done += at.kv_head == 0;
    }
    __atomic_fetch_add(a->n_done, n_done, __ATOMIC_RELAXED);
}

static void
do_attention(struct job *j, const struct fdk_attention_args *a)
{
    int n_tile = clip(a->n_work, a->n_work_max);
    size_t work = 0;
    struct cpu_attend at;
    for (int i = 0; i < n_tile; i++)
        if (work_tile(a, i, &at)) {
            int len = a->b->kv_len[at.row];
            work += (size_t)at.n_tok *
                (size_t)(a->window > 0 && a->window < len ? a->window : len);
        }
    j->n = n_tile * a->K;
    int most = 16 * j->st->dev->ctx->n_thread;
    run(j, attention_item, j->n < most ? j->n : most,
        work * (size_t)a->H * (size_t)a->D * 2);
}

static void
merge_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    (void)scratch;
    for (int t = cut(j->n, item, j->n_item, 1); t < cut(j->n, item + 1, j->n_item, 1); t++)
        j->isa->merge(j->args, t);
}

static void
silu_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_silu_mul_args *a = j->args;
    size_t F = (size_t)a->F;
    (void)scratch;
    /* Few rows: divide each row. Many rows: divide the rows among items. */
    int by_row = j->n >= j->n_item;
    int i0 = cut(by_row ? j->n : a->F, item, j->n_item, by_row ? 1 : 16);
    int i1 = cut(by_row ? j->n : a->F, item + 1, j->n_item, by_row ? 1 : 16);
    for (int t = by_row ? i0 : 0; t < (by_row ? i1 : j->n); t++) {
        size_t f = by_row ? 0 : (size_t)i0, len = by_row ? F : (size_t)(i1 - i0);
        const float *g = (const float *)a->gu + (size_t)t * 2 * F + f;
        (a->gate == FDK_GATE_GELU_TANH
                ? j->isa->gelu_mul
                : j->isa->silu_mul)((float *)a->y + (size_t)t * F + f, g, g + F, len);
    }
}

static void
softcap_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_softcap_args *a = j->args;
    int first = cut(j->n, item, j->n_item, 1), end = cut(j->n, item + 1, j->n_item, 1);
    (void)scratch;
    j->isa->softcap(a->y + (size_t)first * (size_t)a->N,
        (size_t)(end - first) * (size_t)a->N, a->scale, a->cap);
}

static void
do_gather(const struct fdk_gather_args *a)
{
    int n = clip(a->b->n_out, a->O);
    for (int o = 0; o < n; o++)
        memcpy((float *)a->y + (size_t)o * (size_t)a->C,
            (const float *)a->x + (size_t)a->b->out[o].tok * (size_t)a->C,
            (size_t)a->C * sizeof(float));
}

/* ---- sampling ------------------------------------------------------------ */

size_t
vdev_sample_scratch(const struct fdk_sample_args *a)
{
    return sample_scratch_bytes(a);
}

static void
slice_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_sample_args *a = j->args;
    int n_slice = sample_n_slice(a->V), total = j->n * n_slice;
    int end = cut(total, item + 1, j->n_item, 1);
    (void)scratch;
    for (int i = cut(total, item, j->n_item, 1); i < end; i++) {
        int o = i / n_slice, s = i % n_slice * CPU_VOCAB_SLICE;
        int n = a->V - s < CPU_VOCAB_SLICE ? a->V - s : CPU_VOCAB_SLICE;
        j->isa->slice(sample_logits(a, o) + s, n, a->b->out[a->first + o].n_top >= 0,
            &j->slices[i]);
    }
}

static void
sample_item(const void *arg, int item, void *scratch)
{
    const struct job *j = arg;
    const struct fdk_sample_args *a = j->args;
    int lanes = j->n_item;
    (void)scratch;
    for (int o = item; o < j->n; o += lanes)
        sample_row(j->isa, a, a->first + o,
            j->slices + (size_t)o * (size_t)sample_n_slice(a->V), sample_lane(a, item));
}

static void
do_sample(struct job *j, const struct fdk_sample_args *a)
{
    int n_out = *a->b->n_out - a->first;
    j->n = clip(&n_out, a->R);
    if (j->n == 0)
        return;
    size_t work = (size_t)j->n * (size_t)a->V;
    j->slices = sample_slices(a);
    run(j, slice_item, pieces(j->st, j->n * sample_n_slice(a->V)), work * 2);
    run(j, sample_item, j->n < SAMPLE_LANES ? j->n : SAMPLE_LANES, work * 2);
}

/* ---- the table ----------------------------------------------------------- */

static void
over_rows(struct job *j, cpu_item_fn *fn, int n, size_t work_per_row)
{
    j->n = n;
    run(j, fn, pieces(j->st, n), (size_t)n * work_per_row);
}

void
cpu_exec(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    struct job j = { .isa = st->dev->ctx->isa, .args = &cmd->u, .st = st };
    switch (cmd->op) {
    case CMD_ROW_UPDATE:
        cpu_row_update(&cmd->u.row_update);
        break;
    case CMD_ATT_PLAN:
        do_att_plan(&j, &cmd->u.att_plan);
        break;
    case CMD_EMBED:
        over_rows(&j, embed_item, clip(cmd->u.embed.b->n_tok, cmd->u.embed.T),
            (size_t)cmd->u.embed.C);
        break;
    case CMD_RMSNORM:
        over_rows(&j, rmsnorm_item, clip(cmd->u.rmsnorm.n, cmd->u.rmsnorm.T),
            (size_t)cmd->u.rmsnorm.C * 2);
        break;
    case CMD_GEMM:
        do_gemm(&j, &cmd->u.gemm);
        break;
    case CMD_ROPE_TABLE:
        over_rows(&j, rope_item, clip(cmd->u.rope_table.b->n_tok, cmd->u.rope_table.T),
            (size_t)cmd->u.rope_table.rot * 16);
        break;
    case CMD_QKV:
        over_rows(&j, qkv_item, clip(cmd->u.qkv.b->n_tok, cmd->u.qkv.T),
            (size_t)(cmd->u.qkv.H + 2 * cmd->u.qkv.K) * (size_t)cmd->u.qkv.D * 4);
        break;
    case CMD_ATTENTION:
        do_attention(&j, &cmd->u.attention);
        break;
    case CMD_MERGE:
        over_rows(&j, merge_item, clip(cmd->u.merge.n, cmd->u.merge.T),
            (size_t)cmd->u.merge.n_own * (size_t)cmd->u.merge.H * (size_t)cmd->u.merge.D);
        break;
    case CMD_SILU_MUL: {
        const struct fdk_silu_mul_args *a = &cmd->u.silu_mul;
        j.n = clip(a->n, a->T);
        int most = pieces(st, (a->F + 15) / 16);
        run(&j, silu_item, j.n == 0 ? 0 : most, (size_t)j.n * (size_t)a->F * 8);
        break;
    }
    case CMD_SOFTCAP: {
        int32_t n = *cmd->u.softcap.n - cmd->u.softcap.first;
        over_rows(&j, softcap_item, clip(&n, cmd->u.softcap.T),
            (size_t)cmd->u.softcap.N * 8);
        break;
    }
    case CMD_GATHER:
        do_gather(&cmd->u.gather);
        break;
    case CMD_SAMPLE:
        do_sample(&j, &cmd->u.sample);
        break;
    case CMD_ALL_REDUCE:
    case CMD_ALL_GATHER:
        cpu_collective(st, cmd);
        break;
    case CMD_REDUCE_SEND:
    case CMD_REDUCE_TAKE:
        cpu_ahead(st, cmd);
        break;
    case CMD_KV_SHARE:
    case CMD_ROW_SHARE:
        cpu_copies(st, cmd);
        break;
    default:
        break;
    }
}

/* ---- the cpu backend ----------------------------------------------------- */

static int
cpu_available(char *why, size_t why_bytes)
{
    if (why_bytes > 0)
        why[0] = '\0';
    return 1;
}

static int
cpu_open(const struct fdk_open_args *args, struct fdk_ctx **ret, char *err, size_t err_bytes)
{
    return cpu_ctx_new(args, &fdk_ops_cpu, cpu_exec, ret, err, err_bytes);
}

const struct fdk_ops fdk_ops_cpu = { .name = "cpu",
    .available = cpu_available,
    .open = cpu_open,
    .fusion = cpu_fusions,
    .n_fusion = CPU_FUSIONS,
    .own = cpu_own,
    .n_own = CPU_OWN,
    VDEV_OPS };
