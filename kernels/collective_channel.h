/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of kernels/collective.h, one source for all backends: how a channel
 * processes its portion of an operation. Channels share nothing: channel i of a rank
 * exchanges data with channel i of the other ranks. On a GPU a channel is a thread block;
 * a virtual device runs its channels one after the other.
 *
 * A channel's portion is sent in pieces, numbered from 1 over all operations of the
 * group. Ranks synchronize once or twice in a piece (stages 0 and 1): each writes its
 * flag, which has the piece's number, into the workspaces of all others and waits for
 * their flags. For operands that are sent in full, and for gathers, piece s + 1 is sent
 * before the wait for piece s, so that the link is busy during the sums. The piece's
 * number selects one of COLL_BUFS buffers and flags: a rank sends piece s + 1 after it
 * has synchronized with the others in piece s - 1, which they sent after they had read
 * all of piece s - 3.
 *
 * The source that includes this file defines, before it:
 *   COLL_FN         the specifiers of a function; COLL_RARE those of a function that need
 *                   not be inlined
 *   coll_push       copy m elements from x to dst, in a peer's workspace
 *   coll_signal     make all earlier writes visible to the peers, then set this rank's
 *                   flag of the stage. Returns 0, or not 0 if the operation has failed
 *   coll_wait       wait for the peers' flags of the stage; returns as coll_signal
 *   coll_sum        sum elements at .. at + m: this rank's from x, those of the others
 *                   from buf, in slots `slot` bytes apart; store the sum in y or the
 *                   residual, and in the peers' buffers at offset `result` if that is not
 *                   0
 *   coll_take       store elements at .. at + m from src in y or the residual
 *   coll_norm       compute rows first .. end of y from those of the residual
 *   coll_place      copy elements at .. at + m of rank q from src to their place in y
 *   coll_push_kv    copy keys and values of this channel's tokens to the peers' caches
 *   coll_push_results  copy this rank's results to their places at rank 0
 *   coll_push_rows  copy the rows that rank 0 sampled to the peers' row states
 */
#ifndef FDD_KERNELS_COLLECTIVE_CHANNEL_H
#define FDD_KERNELS_COLLECTIVE_CHANNEL_H

#include "kernels/collective_plan.h"

struct coll_run {
    const struct coll_space *s;
    const struct coll_job *j;
    void *own;        /* the backend's data */
    uint64_t seq;     /* number of the piece */
    uint64_t count;   /* live elements of this rank's operand */
    const void *args; /* COLL_KV, COLL_ROWS: arguments of the operation */
    int32_t channel;
    uint32_t tag; /* of the operation, the same on all ranks */
};

#ifdef COLL_FN

COLL_FN void coll_push(const struct coll_run *r, char *dst, const char *x, uint32_t m);
COLL_FN int coll_signal(const struct coll_run *r, int stage);
COLL_FN int coll_wait(const struct coll_run *r, int stage);
COLL_FN void coll_sum(const struct coll_run *r, uint64_t at, uint32_t m, const char *buf,
    uint32_t slot, uint32_t result);
COLL_FN void coll_take(const struct coll_run *r, uint64_t at, uint32_t m, const char *src);
COLL_FN void coll_norm(const struct coll_run *r, uint64_t first, uint64_t end);
COLL_FN void
coll_place(const struct coll_run *r, int q, uint64_t at, uint32_t m, const char *src);
COLL_FN void coll_push_kv(const struct coll_run *r);
COLL_FN void coll_push_results(const struct coll_run *r);
COLL_FN void coll_push_rows(const struct coll_run *r);

/* ---- addresses ------------------------------------------------------------- */

COLL_FN struct coll_channel *
coll_channel_of(const struct coll_run *r, int rank)
{
    return (struct coll_channel *)(void *)(r->s->base[rank] + COLL_HEAD) + r->channel;
}

COLL_FN char *
coll_buf_of(const struct coll_run *r, int rank)
{
    uint64_t i = (uint64_t)r->channel * COLL_BUFS + r->seq % COLL_BUFS;
    return r->s->base[rank] + coll_head_bytes(r->s->n_channel) + i * r->s->buf;
}

/* Flag of rank `from` in the workspace of rank `rank`. */
COLL_FN uint64_t *
coll_flag_at(const struct coll_run *r, int rank, int stage, int from)
{
    return &coll_channel_of(r, rank)->flag[r->seq % COLL_BUFS][stage][from];
}

COLL_FN uint64_t
coll_flag(const struct coll_run *r)
{
    return r->seq << COLL_TAG_BITS | r->tag;
}

/* The k-th other rank; each rank begins with a different one. */
COLL_FN int
coll_peer(const struct coll_run *r, int k)
{
    return (r->s->rank + k) % r->s->n;
}

COLL_FN const char *
coll_x(const struct coll_run *r, uint64_t at)
{
    return r->j->x + at * (uint32_t)r->j->eb;
}

COLL_FN uint64_t
coll_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- algorithms ------------------------------------------------------------- */

/* Pushes elements at .. at + m of the operand for rank q; each row has C elements per
 * rank. */
COLL_RARE void
coll_push_each(const struct coll_run *r, int q, char *dst, uint64_t at, uint32_t m)
{
    uint64_t C = (uint32_t)r->j->C, end = at + m, row, n;
    for (; at < end; at += n) {
        row = at / C;
        n = coll_least((row + 1) * C, end) - at;
        coll_push(r, dst,
            coll_x(r, at + (row * (uint32_t)(r->s->n - 1) + (uint32_t)q) * C), (uint32_t)n);
        dst += n * (uint32_t)r->j->eb;
    }
}

COLL_FN void
coll_push_all(const struct coll_run *r, uint64_t at, uint32_t m, uint32_t slot)
{
    for (int k = 1; k < r->s->n; k++) {
        int q = coll_peer(r, k);
        char *dst = coll_buf_of(r, q) + (uint64_t)slot * (uint32_t)r->s->rank;
        if (r->j->each)
            coll_push_each(r, q, dst, at, m);
        else
            coll_push(r, dst, coll_x(r, at), m);
    }
}

/* Sums this channel's portion of operands that were sent ahead; the other rank's is at
 * src. */
COLL_FN void
coll_ahead_run(const struct coll_run *r, const char *src)
{
    struct coll_span t = coll_span_of(r->j, r->count, r->channel);
    uint64_t C = (uint32_t)r->j->C;
    coll_sum(r, t.first, (uint32_t)(t.end - t.first), src + t.first * (uint32_t)r->j->eb,
        0, 0);
    if (r->j->residual != NULL)
        coll_norm(r, t.first / C, t.end / C);
}

/* Copies this rank's own elements at .. at + m of a gather to y. */
COLL_RARE void
coll_place_own(const struct coll_run *r, uint64_t at, uint32_t m)
{
    uint64_t C = (uint32_t)r->j->C, end = at + m, row, n;
    uint32_t rank = (uint32_t)r->s->rank;
    if (!r->j->each) {
        coll_place(r, (int)rank, at, m, coll_x(r, at));
        return;
    }
    for (; at < end; at += n) {
        row = at / C;
        n = coll_least((row + 1) * C, end) - at;
        coll_place(r, (int)rank, at, (uint32_t)n,
            coll_x(r, at + (row * (uint32_t)(r->s->n - 1) + rank) * C));
    }
}

COLL_FN int
coll_meet(const struct coll_run *r, int stage)
{
    return coll_signal(r, stage) != 0 ? -1 : coll_wait(r, stage);
}

/* Sends elements at .. at + m as piece r->seq to all ranks. */
COLL_FN int
coll_send(const struct coll_run *r, uint64_t at, uint32_t m, uint32_t slot)
{
    coll_push_all(r, at, m, slot);
    return coll_signal(r, 0);
}

/* Sums or stores the piece that the others sent. */
COLL_FN void
coll_receive(const struct coll_run *r, uint64_t at, uint32_t m, uint32_t slot)
{
    const char *buf = coll_buf_of(r, r->s->rank);
    if (r->j->op == COLL_REDUCE) {
        coll_sum(r, at, m, buf, slot, 0);
        return;
    }
    for (int k = 1; k < r->s->n; k++) {
        int q = coll_peer(r, k);
        coll_place(r, q, at, m, buf + (uint64_t)slot * (uint32_t)q);
    }
}

/* Sends full operands to all ranks. */
COLL_FN int
coll_whole(struct coll_run *r, struct coll_span span)
{
    uint32_t slot = r->s->buf / (uint32_t)r->s->n, most = slot / (uint32_t)r->j->eb;
    uint64_t at = span.first, next = at + most;
    if (at >= span.end)
        return 0;
    r->seq++;
    if (coll_send(r, at, (uint32_t)coll_least(most, span.end - at), slot) != 0)
        return -1;
    for (; at < span.end; at = next, next += most) {
        uint32_t m = (uint32_t)coll_least(most, span.end - at);
        if (next < span.end) {
            r->seq++;
            if (coll_send(r, next, (uint32_t)coll_least(most, span.end - next), slot) != 0)
                return -1;
            r->seq--;
        }
        if (r->j->op == COLL_GATHER)
            coll_place_own(r, at, m);
        if (coll_wait(r, 0) != 0)
            return -1;
        coll_receive(r, at, m, slot);
        r->seq += next < span.end;
    }
    return 0;
}

/* Rank q sums share q and sends the result to all ranks. The first half of the buffer
 * holds addends, the second half sums. */
COLL_FN int
coll_two_shot(struct coll_run *r, uint64_t at, uint32_t m)
{
    uint32_t n = (uint32_t)r->s->n, half = r->s->buf / 2, slot = half / n;
    uint32_t rank = (uint32_t)r->s->rank, vector = 16 / (uint32_t)r->j->eb;
    uint32_t share = (((m + n - 1) / n) + vector - 1) / vector * vector;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t q = (uint32_t)coll_peer(r, (int)k), from = q * share;
        if (from < m)
            coll_push(r, coll_buf_of(r, (int)q) + slot * rank, coll_x(r, at + from),
                (uint32_t)coll_least(share, m - from));
    }
    if (coll_meet(r, 0) != 0)
        return -1;
    const char *buf = coll_buf_of(r, (int)rank);
    if (rank * share < m)
        coll_sum(r, at + rank * share, (uint32_t)coll_least(share, m - rank * share), buf,
            slot, half + slot * rank);
    if (coll_meet(r, 1) != 0)
        return -1;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t q = (uint32_t)coll_peer(r, (int)k), from = q * share;
        if (from < m)
            coll_take(r, at + from, (uint32_t)coll_least(share, m - from),
                buf + half + slot * q);
    }
    return 0;
}

COLL_FN int
coll_shares(struct coll_run *r, struct coll_span span)
{
    uint32_t most = r->s->buf / 2 / (uint32_t)r->j->eb, m;
    for (uint64_t at = span.first; at < span.end; at += m) {
        m = (uint32_t)coll_least(most, span.end - at);
        r->seq++;
        if (coll_two_shot(r, at, m) != 0)
            return -1;
    }
    return 0;
}

COLL_FN int
coll_all_reduce(struct coll_run *r)
{
    const struct coll_job *j = r->j;
    int one = r->count * (uint32_t)j->eb <= r->s->one_shot_bytes;
    struct coll_span span = coll_span_of(j, r->count, r->channel);
    r->tag = coll_tag(j, r->count, one ? COLL_WHOLE : COLL_SHARES);
    if ((one ? coll_whole(r, span) : coll_shares(r, span)) != 0)
        return -1;
    if (j->residual != NULL)
        coll_norm(r, span.first / (uint32_t)j->C, span.end / (uint32_t)j->C);
    return 0;
}

COLL_FN int
coll_all_gather(struct coll_run *r)
{
    r->tag = coll_tag(r->j, r->count, COLL_SHARES);
    return coll_whole(r, coll_span_of(r->j, r->count, r->channel));
}

/* ---- between copies ---------------------------------------------------------- */

/* Keys and values are pushed directly to their place, without a buffer. A rank pushes
 * only after the destination ranks have reached the step. */
COLL_FN int
coll_kv_share(struct coll_run *r)
{
    const struct fdk_kv_share_args *a = (const struct fdk_kv_share_args *)r->args;
    r->tag = coll_tag(r->j, (uint64_t)r->j->T << 2 | (a->begin != 0), COLL_SHARES);
    r->seq++;
    if (a->begin && coll_meet(r, 0) != 0)
        return -1;
    coll_push_kv(r);
    return coll_meet(r, 1);
}

/* After the first synchronization rank 0 has all results, and no other rank still uses
 * its row states for an earlier operation. */
COLL_FN int
coll_row_share(struct coll_run *r)
{
    const struct fdk_row_share_args *a = (const struct fdk_row_share_args *)r->args;
    r->tag = coll_tag(r->j, a->at != NULL, COLL_SHARES);
    r->seq++;
    if (a->at != NULL)
        coll_push_results(r);
    if (coll_meet(r, 0) != 0)
        return -1;
    if (r->s->rank == 0)
        coll_push_rows(r);
    return coll_meet(r, 1);
}

/* Runs channel r->channel of COLL_KV or COLL_ROWS. Uses s, j, own, channel and args of r.
 * Returns 0, or not 0 if the operation has failed. */
COLL_FN int
coll_copies_run(struct coll_run *r)
{
    r->seq = coll_channel_of(r, r->s->rank)->seq;
    return r->j->op == COLL_KV ? coll_kv_share(r) : coll_row_share(r);
}

/* Runs a channel of the other operations. Uses s, j, own, count and channel of r. */
COLL_FN int
coll_channel_run(struct coll_run *r)
{
    r->seq = coll_channel_of(r, r->s->rank)->seq;
    return r->j->op == COLL_REDUCE ? coll_all_reduce(r) : coll_all_gather(r);
}

#endif /* COLL_FN */
#endif
