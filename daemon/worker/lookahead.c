/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/lookahead.h"

#include <string.h>

#include "daemon/common/obj.h"

/* Weight of the newest ratio. */
#define LKA_NEW      0.125
#define LKA_DEVS     1.0
/* Steps of a class before its own figures count; before: those of all steps. */
#define LKA_FEW      3
/* Share of the predicted duration that is counted on before any step ended. */
#define LKA_UNSEEN   0.5
#define LKA_LEAST    0.0625
#define LKA_MOST     16.0
/* No step is expected to last longer. */
#define LKA_LONG_NS  3600000000000u
/* A maximum of pick to queued fades by this share of the difference. */
#define LKA_FADE     64
/* It grows to twice itself and this at once: a single launch that took long, because
 * it recorded a graph, hardly counts. */
#define LKA_LAUNCH   1000000u
/* The margin grows by this at a time, and shrinks by a share of what it is above the
 * least. */
#define LKA_GROW_NS  200000u
#define LKA_SHRINK   256

void
lka_init(struct lka *l, int32_t depth)
{
    ASSERT(depth >= 0 && depth <= LKA_MAX_DEPTH);
    memset(l, 0, sizeof(*l));
    l->depth = depth;
    l->margin_ns = LKA_MARGIN_START;
}

static struct lka_class *
lka_class(struct lka *l, uint64_t predict_ns)
{
    uint64_t us = predict_ns / 1000 + 1;
    int i = 63 - __builtin_clzll(us);

    return &l->cls[i < LKA_N_CLASS ? i : LKA_N_CLASS - 1];
}

static void
lka_ratio(struct lka_class *c, double r)
{
    double d = r - c->mean;

    if (c->n == 0) {
        c->mean = r;
        c->dev = r / 4;
    } else {
        c->mean += d * LKA_NEW;
        c->dev += ((d < 0 ? -d : d) - c->dev) * LKA_NEW;
    }
    c->n += c->n < LKA_FEW;
}

static uint64_t
lka_expect(struct lka *l, uint64_t predict_ns)
{
    const struct lka_class *c = lka_class(l, predict_ns);
    double f;

    if (c->n < LKA_FEW)
        c = &l->all;
    f = c->n < LKA_FEW ? LKA_UNSEEN : c->mean - LKA_DEVS * c->dev;
    f = f > LKA_LEAST ? f : LKA_LEAST;
    f *= (double)predict_ns;
    return f < (double)LKA_LONG_NS ? (uint64_t)f : LKA_LONG_NS;
}

void
lka_launched(struct lka *l, uint64_t pick_ns, uint64_t queued_ns, uint64_t predict_ns)
{
    uint64_t took = queued_ns > pick_ns ? queued_ns - pick_ns : 0;
    uint64_t most = 2 * l->launch_ns + LKA_LAUNCH;

    ASSERT(l->n <= l->depth);
    l->step[l->n++] = (struct lka_step) { .pick_ns = pick_ns, .predict_ns = predict_ns,
        .expect_ns = predict_ns > 0 ? lka_expect(l, predict_ns) : 0 };
    took = took < most ? took : most;
    if (took >= l->launch_ns)
        l->launch_ns = took;
    else
        l->launch_ns -= (l->launch_ns - took) / LKA_FADE;
}

static void
lka_margin(struct lka *l, uint64_t idle_ns)
{
    uint64_t m = l->margin_ns;

    if (idle_ns > LKA_IDLE_NS)
        m += idle_ns < LKA_GROW_NS ? idle_ns : LKA_GROW_NS;
    else
        m -= (m - LKA_MARGIN_MIN) / LKA_SHRINK;
    l->margin_ns = m < LKA_MARGIN_MAX ? m : LKA_MARGIN_MAX;
}

void
lka_collected(struct lka *l, uint64_t begin_ns, uint64_t end_ns, uint64_t idle_ns)
{
    struct lka_step s = l->step[0];
    double r;

    ASSERT(l->n > 0);
    l->n--;
    for (int32_t i = 0; i < l->n; i++)
        l->step[i] = l->step[i + 1];
    l->end_ns = end_ns;
    lka_margin(l, idle_ns);
    if (s.predict_ns == 0 || end_ns <= begin_ns)
        return;
    r = (double)(end_ns - begin_ns) / (double)s.predict_ns;
    r = r < LKA_LEAST ? LKA_LEAST : r > LKA_MOST ? LKA_MOST : r;
    lka_ratio(lka_class(l, s.predict_ns), r);
    lka_ratio(&l->all, r);
}

static uint64_t
lka_begin(const struct lka *l)
{
    return l->end_ns > l->step[0].pick_ns ? l->end_ns : l->step[0].pick_ns;
}

uint64_t
lka_end(const struct lka *l)
{
    if (l->n == 0 || l->step[0].predict_ns == 0)
        return 0;
    return lka_begin(l) + l->step[0].expect_ns;
}

uint64_t
lka_lead(const struct lka *l)
{
    return l->launch_ns + l->margin_ns;
}

uint64_t
lka_due(const struct lka *l, uint64_t now_ns)
{
    uint64_t lead = lka_lead(l), at;

    if (l->n == 0)
        return 0;
    if (l->n > l->depth)
        return UINT64_MAX;
    /* the oldest runs: it began, and has not ended */
    at = lka_begin(l);
    at = (at < now_ns ? at : now_ns) + l->step[0].expect_ns;
    at = at > now_ns ? at : now_ns;
    for (int32_t i = 0; i < l->n; i++) {
        if (l->step[i].predict_ns == 0)
            return 0;
        at += i > 0 ? l->step[i].expect_ns : 0;
    }
    return at > lead ? at - lead : 0;
}
