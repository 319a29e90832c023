/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Host code shared by the backends' collectives (kernels/collective_channel.h): the
 * layout of a workspace, checks of arguments, and the division of an operation among
 * channels.
 */
#ifndef FDD_KERNELS_COLLECTIVE_PLAN_H
#define FDD_KERNELS_COLLECTIVE_PLAN_H

#include <errno.h>
#include <stdio.h>

#include "kernels/collective.h"

#ifdef __CUDACC__
#define PLAN_FN static __host__ __device__ __forceinline__
#else
#define PLAN_FN static inline
#endif

/* A workspace: the failed rank, the channels, their buffers. */
#define COLL_HEAD          128
#define COLL_TAG_BITS      16
#define COLL_CHANNEL_BYTES 8192 /* bytes of an operand per channel used */
#define COLL_LIMIT_US      2000000
#define COLL_BUF_MAX       (1u << 30)
#define COLL_BUFS          4     /* buffers of a channel: piece s uses s % COLL_BUFS */
#define COLL_PACKET_BYTES  16384 /* most bytes that a channel sends in packets */

/* Algorithm of an all-reduce, one of: each rank sums a share; operands are sent whole;
 * whole as packets; whole ahead of the sum (reduce_send()). */
enum coll_way { COLL_SHARES, COLL_WHOLE, COLL_PACKETS, COLL_AHEAD };

struct coll_channel {
    uint64_t seq; /* pieces so far; used only by the workspace's own rank */
    uint64_t pad[15];
    /* [piece % COLL_BUFS][stage][rank], written by that rank */
    uint64_t flag[COLL_BUFS][2][FDK_MAX_RANKS];
};

/* Kind of failure. A failed group's value is (kind << 8 | rank) + 1; rank: the one at
 * fault. */
enum coll_bad { COLL_LATE = 1, COLL_OTHER, COLL_GONE };

struct coll_space {
    char *base[FDK_MAX_RANKS]; /* workspaces, as this rank reaches them */
    uint64_t one_shot_bytes, packet_bytes;
    uint64_t limit_ns;
    const uint64_t *told; /* failure value (enum coll_bad) that the host sets for the
                                  group; NULL: the host writes to the workspaces */
    uint64_t packet_at;   /* offset of the packets in a workspace; its end without
                           packets */
    int32_t n, rank;
    int32_t n_channel; /* most channels of an operation */
    uint32_t buf; /* bytes of each of a channel's COLL_BUFS buffers, a multiple of 32 n */
    uint64_t ahead_at, ahead_bytes; /* offset and size of each of COLL_BUFS buffers for
                                       operands sent ahead; size 0: there are none */
    int32_t number[FDK_MAX_RANKS];  /* number of each rank in errors */
    int32_t in_host;                /* fdk_group_args.in_host */
};

enum coll_op { COLL_REDUCE, COLL_GATHER, COLL_KV, COLL_ROWS };
struct coll_job {
    char *y;
    const char *x;
    float *residual;
    const float *w;
    const int32_t *live;
    int32_t first, T, C, ldy;
    float eps, offset;
    enum fdk_dtype type;
    int32_t eb;   /* bytes of an element */
    int32_t each; /* fdk_all_gather_args.each */
    enum coll_op op;
    int32_t n_channel;
};

/* After the channels there is one more, with the flags of operands sent ahead. */
PLAN_FN uint64_t
coll_head_bytes(int32_t n_channel)
{
    uint64_t n = COLL_HEAD + ((uint32_t)n_channel + 1) * sizeof(struct coll_channel);
    return (n + 255) / 256 * 256;
}

static inline uint64_t
coll_space_bytes(const struct coll_space *s)
{
    return s->ahead_at + COLL_BUFS * s->ahead_bytes;
}

/* Buffer in the rank's workspace for operand number `seq` sent ahead. */
PLAN_FN char *
coll_ahead_of(const struct coll_space *s, int32_t rank, uint64_t seq)
{
    return s->base[rank] + s->ahead_at + seq % COLL_BUFS * s->ahead_bytes;
}

/* Flag of that operand, which rank `from` writes. */
PLAN_FN uint64_t *
coll_ahead_flag_of(const struct coll_space *s, int32_t rank, int32_t from, uint64_t seq)
{
    struct coll_channel *c = (struct coll_channel *)(void *)(s->base[rank] + COLL_HEAD);
    return &c[s->n_channel].flag[seq % COLL_BUFS][0][from];
}

/* Number of reduce_send() and of reduce_take() that a rank has launched. */
struct coll_ahead {
    uint64_t sent, taken;
};

/* Call before a launch; *ret_seq: its number. Returns 0, or -EINVAL if two operands have
 * been sent and not taken, or there is none to take. */
static inline int
coll_ahead_next(struct coll_ahead *a, int take, uint64_t *ret_seq)
{
    if (take ? a->taken == a->sent : a->sent - a->taken >= COLL_BUFS / 2)
        return -EINVAL;
    *ret_seq = take ? ++a->taken : ++a->sent;
    return 0;
}

/* ---- an operation ------------------------------------------------------------ */

struct coll_span {
    uint64_t first, end;
};

/* Elements of a channel: full rows with a residual, else full vectors of 16 bytes. */
PLAN_FN struct coll_span
coll_span_of(const struct coll_job *j, uint64_t count, int32_t channel)
{
    uint64_t whole = j->residual != NULL ? (uint64_t)j->C : 16u / (uint32_t)j->eb;
    uint64_t n = (count + whole - 1) / whole;
    uint64_t each = (n + (uint32_t)j->n_channel - 1) / (uint32_t)j->n_channel * whole;
    struct coll_span s = { each * (uint32_t)channel, each * ((uint32_t)channel + 1) };
    s.first = s.first < count ? s.first : count;
    s.end = s.end < count ? s.end : count;
    return s;
}

/* Live elements of the operand. */
PLAN_FN uint64_t
coll_count(const struct coll_job *j)
{
    int64_t live = j->live != NULL ? (int64_t)*j->live - j->first : j->T;
    live = live < 0 ? 0 : live < j->T ? live : j->T;
    return (uint64_t)live * (uint32_t)j->C;
}

/* Hash of an operation, by which ranks detect that they launched different ones. */
PLAN_FN uint32_t
coll_tag(const struct coll_job *j, uint64_t count, enum coll_way way)
{
    uint64_t h = (uint64_t)j->op << 8 | (uint64_t)j->type << 4 | (uint64_t)way << 1 |
        (j->residual != NULL);
    h = (h ^ count) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint32_t)j->C ^ (uint64_t)j->n_channel << 32 ^ (uint64_t)(j->each != 0) << 63) *
        0x9e3779b97f4a7c15u;
    if (j->op == COLL_KV)
        h = (h ^ (uint32_t)j->ldy) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> (64 - COLL_TAG_BITS));
}

static inline int32_t
coll_channels(const struct coll_job *j, const struct coll_space *s)
{
    uint64_t n = (uint64_t)j->T * (uint64_t)j->C * (uint64_t)j->eb;
    n = (n + COLL_CHANNEL_BYTES - 1) / COLL_CHANNEL_BYTES;
    if (j->residual != NULL)
        n = (uint64_t)j->T;
    return n < (uint64_t)s->n_channel ? (int32_t)n : s->n_channel;
}

static inline int
coll_reduce_job(const struct fdk_all_reduce_args *a, const struct coll_space *s,
    struct coll_job *ret)
{
    struct coll_job j = {};
    if (a->T <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL ||
        (a->residual == NULL) != (a->w == NULL) || !(a->eps >= 0) ||
        (unsigned)a->act >= FDK_DTYPE__N)
        return -EINVAL;
    if (a->act != FDK_F32 && a->act != FDK_F16 && a->act != FDK_BF16)
        return -ENOTSUP;
    j.op = COLL_REDUCE;
    j.y = (char *)a->y;
    j.x = (const char *)a->x;
    j.residual = a->residual;
    j.w = a->w;
    j.live = a->n;
    j.T = a->T;
    j.C = j.ldy = a->C;
    j.eps = a->eps;
    j.offset = a->offset;
    j.type = a->act;
    j.eb = (int32_t)fdk_dtype_bytes(a->act);
    if (((uintptr_t)a->y | (uintptr_t)a->x) % (uint32_t)j.eb != 0)
        return -EINVAL;
    j.n_channel = coll_channels(&j, s);
    *ret = j;
    return 0;
}

/* Job of fdk_ops.reduce_send() and reduce_take(). */
static inline int
coll_ahead_job(const struct fdk_all_reduce_args *a, const struct coll_space *s,
    struct coll_job *ret)
{
    uint64_t count = (uint64_t)(uint32_t)a->T * (uint32_t)a->C;
    int rc = coll_reduce_job(a, s, ret);
    if (rc != 0)
        return rc;
    return count > UINT32_MAX || count * (uint32_t)ret->eb > s->ahead_bytes ? -ENOTSUP : 0;
}

/* Tag for reduce_send() and reduce_take(); does not depend on live rows or a fused
 * norm. */
PLAN_FN uint32_t
coll_ahead_tag(const struct coll_job *job)
{
    struct coll_job j = *job;
    j.residual = NULL;
    j.n_channel = 0;
    return coll_tag(&j, (uint64_t)(uint32_t)j.T * (uint32_t)j.C, COLL_AHEAD);
}

static inline int
coll_gather_job(const struct fdk_all_gather_args *a, const struct coll_space *s,
    struct coll_job *ret)
{
    struct coll_job j = {};
    if (a->first < 0 || a->T <= 0 || a->C <= 0 || (int64_t)a->C * s->n > a->ldy ||
        a->y == NULL || a->x == NULL || (unsigned)a->dtype >= FDK_DTYPE__N ||
        (unsigned)a->each > 1)
        return -EINVAL;
    j.eb = (int32_t)fdk_dtype_bytes(a->dtype);
    if (j.eb == 0)
        return -ENOTSUP;
    if (((uintptr_t)a->y | (uintptr_t)a->x) % (uint32_t)j.eb != 0)
        return -EINVAL;
    j.op = COLL_GATHER;
    j.first = a->first;
    j.y = (char *)a->y;
    j.x = (const char *)a->x;
    j.live = a->n;
    j.T = a->T;
    j.C = a->C;
    j.ldy = a->ldy;
    j.each = a->each;
    j.type = a->dtype;
    j.n_channel = coll_channels(&j, s);
    *ret = j;
    return 0;
}

/* Job of kv_share(). The number of tokens differs between ranks, so the job has only the
 * values that are equal on all ranks. */
static inline int
coll_kv_job(const struct fdk_kv_share_args *a, const struct coll_space *s,
    struct coll_job *ret)
{
    const struct fdk_kv *kv = &a->kv;
    struct coll_job j = {};
    int64_t C = (int64_t)kv->n_kv_head * kv->head_dim * 2;
    if (s->in_host || a->b == NULL || a->range == NULL || a->T <= 0 || a->layer < 0 ||
        C <= 0 || C > INT32_MAX || kv->block_size <= 0 || kv->base == NULL)
        return -EINVAL;
    if (a->stage.base != NULL &&
        (kv->n_own < s->n || kv->n_own % s->n != 0 || a->stage.n_own > 1 ||
            a->stage.dtype != kv->dtype || a->stage.head_dim != kv->head_dim ||
            a->stage.n_kv_head != kv->n_kv_head || a->stage.block_size <= 0))
        return -EINVAL;
    for (int32_t q = 0; q < s->n; q++)
        if (a->peer[q] == NULL)
            return -EINVAL;
    j.op = COLL_KV;
    j.type = kv->dtype;
    j.eb = (int32_t)fdk_dtype_bytes(kv->dtype);
    if (j.eb == 0)
        return -ENOTSUP;
    j.T = a->T;
    j.C = (int32_t)C;
    j.ldy = a->layer;
    j.n_channel = coll_channels(&j, s);
    *ret = j;
    return 0;
}

static inline int
coll_rows_job(const struct fdk_row_share_args *a, const struct coll_space *s,
    struct coll_job *ret)
{
    struct coll_job j = {};
    if (s->in_host || a->b == NULL || a->O < 0 ||
        (a->at != NULL && (a->results == NULL || a->all == NULL)))
        return -EINVAL;
    for (int32_t q = 0; q < s->n; q++)
        if (a->state[q] == NULL)
            return -EINVAL;
    j.op = COLL_ROWS;
    j.T = j.C = j.eb = 1;
    j.n_channel = 1;
    *ret = j;
    return 0;
}

/* A channel's share of the tokens of the range, with a stage also of those before it,
 * clipped to the T of the launch. */
PLAN_FN struct coll_span
coll_kv_span(const struct coll_job *j, const struct fdk_kv_share_args *a, int32_t channel)
{
    int32_t first = a->stage.base != NULL || a->range[0] < 0 ? 0 : a->range[0];
    int32_t end = a->range[1] < j->T ? a->range[1] : j->T;
    uint64_t n = end > first ? (uint64_t)(end - first) : 0, of = (uint32_t)j->n_channel;
    struct coll_span s = { (uint64_t)first + n * (uint32_t)channel / of,
        (uint64_t)first + n * ((uint32_t)channel + 1) / of };
    return s;
}

/* For token t of a step with a stage: returns its slot in the destination copy's cache
 * and sets *ret_copy to that copy; returns -1 if this rank does not send it. */
PLAN_FN int32_t
coll_kv_goes(const struct fdk_kv_share_args *a, int32_t n_copy, int32_t copy, int32_t t,
    int32_t *ret_copy)
{
    int32_t slot = a->b->slot_map[t], each = a->kv.n_own / n_copy, own;
    struct fdk_kv there = a->kv;
    if (slot < 0)
        return -1;
    own = fdk_kv_owner(&a->kv, slot);
    *ret_copy = own / each;
    if (own % each != a->kv.own % each || (t < a->range[0] && *ret_copy != copy))
        return -1;
    there.own = own;
    return fdk_kv_place(&there, slot);
}

/* Source and destination of a token's keys and values: from the cache to the same slot of
 * all other copies, or from the stage to one copy. */
struct coll_kv_way {
    const struct fdk_kv *from;
    int32_t from_layer, from_slot, slot; /* slot -1: nowhere */
    int32_t copy;                        /* destination; -1: all other copies */
};

PLAN_FN struct coll_kv_way
coll_kv_way_of(const struct fdk_kv_share_args *a, const struct coll_space *s, int32_t t)
{
    struct coll_kv_way w = { &a->kv, a->layer, 0, 0, -1 };
    if (a->stage.base == NULL) {
        w.slot = w.from_slot = fdk_kv_place(&a->kv, a->b->slot_map[t]);
        return w;
    }
    w.from = &a->stage;
    w.from_layer = 0;
    w.from_slot = t;
    w.slot = coll_kv_goes(a, s->n, s->rank, t, &w.copy);
    return w;
}

/* Offset in a cache of the key (value 0) or value vector of a head at a slot, which is
 * one of fdk_kv_place(). */
PLAN_FN uint64_t
coll_kv_at(const struct fdk_kv *kv, int32_t layer, int32_t slot, int32_t head, int value)
{
    uint64_t token =
        (uint64_t)head * (uint32_t)kv->block_size + (uint32_t)(slot % kv->block_size);
    return (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        (uint64_t)layer * kv->layer_bytes + (value ? kv->v_bytes : 0) +
        token * (uint32_t)kv->head_dim *
        (kv->dtype == FDK_F32                                    ? 4
                : kv->dtype == FDK_I8 || kv->dtype == FDK_F8E4M3 ? 1
                                                                 : 2);
}

/* Offset of that vector's scale; only FDK_I8 has scales there. */
PLAN_FN uint64_t
coll_kv_scale_at(const struct fdk_kv *kv, int32_t layer, int32_t slot, int32_t head,
    int value)
{
    return (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        (uint64_t)layer * kv->layer_bytes + (value ? kv->v_scale_off : kv->k_scale_off) +
        4 * ((uint64_t)head * (uint32_t)kv->block_size + (uint32_t)(slot % kv->block_size));
}

/* ---- a group ----------------------------------------------------------------- */

struct coll_default {
    uint64_t bytes, one_shot_bytes;
    uint64_t packet_bytes; /* 0: the backend has no packets */
    int32_t n_channel;
};

static inline int
coll_no(char *err, size_t err_bytes, const char *why, long value)
{
    snprintf(err, err_bytes, "collectives: %s (%ld)", why, value);
    return -EINVAL;
}

/* Sets *ret except base and rank. Returns 0, or -EINVAL and the reason in err. */
static inline int
coll_space_init(const struct fdk_group_args *a, int32_t n_dev,
    const struct coll_default *d, struct coll_space *ret, char *err, size_t err_bytes)
{
    struct coll_space s = {};
    if (a->n_rank < 2 || a->n_rank > FDK_MAX_RANKS || a->n_rank > n_dev)
        return coll_no(err, err_bytes, "a group has 2 to 8 devices of the context",
            a->n_rank);
    for (int32_t i = 0; i < a->n_rank && a->device != NULL; i++) {
        int bad = a->device[i] < 0 || a->device[i] >= n_dev;
        for (int32_t k = 0; k < i; k++)
            bad |= a->device[k] == a->device[i];
        if (bad)
            return coll_no(err, err_bytes, "no such device, or one listed twice",
                a->device[i]);
    }
    s.n = a->n_rank;
    for (int32_t i = 0; i < s.n; i++)
        s.number[i] = a->number != NULL ? a->number[i] : i;
    s.in_host = a->in_host != 0;
    s.n_channel = d->n_channel;
    uint64_t step = 32 * (uint32_t)s.n, buf = a->bytes != 0 ? a->bytes : d->bytes;
    buf = buf / COLL_BUFS / (uint32_t)s.n_channel / step * step;
    if (buf == 0 || buf > COLL_BUF_MAX)
        return coll_no(err, err_bytes, "the size of the buffers is not valid",
            (long)a->bytes);
    s.buf = (uint32_t)buf;
    s.one_shot_bytes = a->one_shot_bytes != 0 ? a->one_shot_bytes : d->one_shot_bytes;
    s.packet_at = coll_head_bytes(s.n_channel) + (uint64_t)s.n_channel * COLL_BUFS * s.buf;
    s.packet_bytes =
        d->packet_bytes != 0 && a->packet_bytes != 0 ? a->packet_bytes : d->packet_bytes;
    s.packet_bytes = s.in_host ? 0 : s.packet_bytes;
    s.ahead_at = s.packet_at;
    if (s.packet_bytes > 0)
        s.ahead_at += (uint64_t)s.n_channel * 2 * (uint32_t)s.n * 2 * COLL_PACKET_BYTES;
    s.ahead_bytes = s.n == 2 && !s.in_host ? (a->ahead_bytes + 255) / 256 * 256 : 0;
    s.limit_ns = UINT64_C(1000) *
        (a->spin_limit_us != 0 ? a->spin_limit_us : (uint32_t)COLL_LIMIT_US);
    *ret = s;
    return 0;
}

PLAN_FN uint64_t
coll_bad_of(enum coll_bad kind, int rank)
{
    return ((uint64_t)kind << 8 | (uint32_t)rank) + 1;
}

static inline void
coll_space_ways(struct coll_space *s, const struct fdk_group_ways *set,
    struct fdk_group_ways *was)
{
    int has = s->packet_bytes > 0; /* memory for packets */
    if (was != NULL) {
        was->one_shot_bytes = s->one_shot_bytes;
        was->packet_bytes = s->packet_bytes;
        was->ahead_bytes = s->ahead_bytes;
    }
    if (set == NULL)
        return;
    s->one_shot_bytes = set->one_shot_bytes;
    if (has)
        s->packet_bytes = set->packet_bytes > 0 ? set->packet_bytes : 1;
}

/* Rank of device dev of the context, or -1. */
static inline int32_t
coll_rank_of(const int32_t *device, int32_t n, int32_t dev)
{
    for (int32_t i = 0; i < n; i++)
        if (device[i] == dev)
            return i;
    return -1;
}

#endif
