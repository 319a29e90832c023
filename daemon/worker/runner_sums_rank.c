/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank runs to check and time collectives. Operands are small whole numbers,
 * whose sums are exact in every type. Operands and results lie in the memory of
 * activations.
 */
#include "config.h"

#include "daemon/worker/runner_sums.h"

#include <string.h>

#define SUMS_CHAIN 4 /* collectives in a timed chain */

/* Element i of a rank's operand. A sum over eight ranks is below 256, so exact in
 * bf16. */
static float
sums_x(int32_t rank, size_t i)
{
    return (float)((int)((i * 7 + (size_t)rank * 13) % 61) - 30);
}

static float
sums_want(const struct runner *run, size_t i)
{
    const struct run_sums *s = run->sums;
    float sum = 0;

    if (s->op == SUMS_GATHER)
        return sums_x((int32_t)(i / s->n), i % s->n);
    for (int32_t q = 0; q < run_copy_ranks(run); q++)
        sum += sums_x(q, i);
    return sum;
}

/* Store a small whole number as fp32 or bf16; bf16 is the upper half of fp32. */
static void
sums_put(const struct runner *run, char *to, size_t i, float x)
{
    uint32_t u;
    uint16_t h;

    memcpy(&u, &x, sizeof(u));
    h = (uint16_t)(u >> 16);
    if (run->act == FDK_F32)
        memcpy(to + i * sizeof(u), &u, sizeof(u));
    else
        memcpy(to + i * sizeof(h), &h, sizeof(h));
}

/* ---- a rank --------------------------------------------------------------------------- */

static void *
sums_d_y(const struct run_dev *dev)
{
    return (char *)dev->d_act + sums_most(dev->run);
}

static int
sums_launch(struct run_dev *dev)
{
    const struct runner *run = dev->run;
    const struct run_sums *s = run->sums;
    struct fdk_all_reduce_args r = { .group = run->group[run_copy(dev)],
        .y = sums_d_y(dev),
        .x = dev->d_act,
        .T = 1,
        .C = (int32_t)s->n,
        .act = run->act };
    const struct fdk_all_gather_args g = { .group = run->group[run_copy(dev)],
        .y = sums_d_y(dev),
        .x = dev->d_act,
        .T = 1,
        .C = (int32_t)s->n,
        .ldy = (int32_t)s->n * run_copy_ranks(run),
        .dtype = run->act };

    int rc;

    if (s->row > 0) {
        r.T = (int32_t)(s->n / s->row);
        r.C = (int32_t)s->row;
        r.residual = (float *)((char *)dev->d_act + s->residual);
        r.w = r.residual + s->n;
    }
    if (s->op == SUMS_GATHER)
        return run->k->all_gather(&g, dev->stream);
    if (s->op == SUMS_SUM)
        return run->k->all_reduce(&r, dev->stream);
    rc = run->k->reduce_send(&r, dev->stream);
    return rc != 0 ? rc : run->k->reduce_take(&r, dev->stream);
}

static void
sums_compare(const struct run_dev *dev, size_t n)
{
    struct run_sums *s = dev->run->sums;
    int32_t q = run_rank(dev);

    for (size_t i = 0; i < n && s->bad[q] < 0; i++) {
        float x;

        if (dev->run->act == FDK_F32)
            memcpy(&x, s->h[q] + i * sizeof(x), sizeof(x));
        else
            fdk_to_f32(&x, s->h[q] + 2 * i, dev->run->act, 1);
        s->want[q] = sums_want(dev->run, i);
        s->was[q] = x;
        s->bad[q] = x == s->want[q] ? -1 : (int64_t)i;
    }
}

int
sums_check_rank(struct run_dev *dev, int32_t arg)
{
    const struct runner *run = dev->run;
    struct run_sums *s = run->sums;
    int32_t q = run_rank(dev);
    size_t m = s->n * (size_t)(s->op == SUMS_GATHER ? run_copy_ranks(run) : 1),
           eb = sums_elt(run);
    int rc;

    (void)arg;
    s->bad[q] = -1;
    for (size_t i = 0; i < s->n; i++)
        sums_put(run, s->h[q], i, sums_x(run_place_of(dev), i));
    rc = run->k->copy(dev->stream, dev->d_act, s->h[q], s->n * eb);
    if (rc == 0)
        rc = run->k->fill(dev->stream, sums_d_y(dev), 0xff, m * eb);
    if (rc == 0)
        rc = run->k->stream_sync(dev->stream);
    if (rc == 0)
        rc = sums_launch(dev);
    if (rc == 0)
        rc = run->k->copy(dev->stream, s->h[q], sums_d_y(dev), m * eb);
    if (rc == 0)
        rc = run->k->stream_sync(dev->stream);
    if (rc == 0)
        sums_compare(dev, m);
    return rc;
}

/* The collective before the first event makes all ranks begin together. */
int
sums_time_rank(struct run_dev *dev, int32_t arg)
{
    int rc = sums_launch(dev);

    (void)arg;
    if (rc == 0)
        rc = dev->run->k->event_record(dev->ev_copy[0], dev->stream);
    for (int i = 0; i < SUMS_CHAIN && rc == 0; i++)
        rc = sums_launch(dev);
    if (rc == 0)
        rc = dev->run->k->event_record(dev->ev_copy[1], dev->stream);
    return rc != 0 ? rc : dev->run->k->stream_sync(dev->stream);
}
