/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/lookahead.h"

#include <string.h>

#include "daemon/common/obj.h"

/* Weight of the newest ratio in the mean. */
#define LKA_NEW  0.125
#define LKA_DEVS 1.0
/* A class with fewer steps uses the statistics of all steps. */
#define LKA_FEW 3
/* Assumed actual / predicted duration before any step ended. */
#define LKA_UNSEEN 0.5
#define LKA_LEAST  0.0625
#define LKA_MOST   16.0
/* Longest expected duration of a step. */
#define LKA_LONG_NS 3600000000000u
/* launch_ns falls by this share of the difference. */
#define LKA_FADE 64
/* launch_ns grows to at most twice itself and this at once, so that a single slow launch,
 * which captured a graph, hardly counts. */
#define LKA_LAUNCH 1000000u
/* The margin grows by at most this at a time, and shrinks by this share of its excess
 * over the minimum. */
#define LKA_GROW_NS 200000u
#define LKA_SHRINK  256
/* Initial ratio of the time after a mark to that before it: a mark is at about three
 * quarters. */
#define LKA_REST      0.31
#define LKA_REST_DEV  0.02
#define LKA_REST_MOST 4.0
/* A mark's time counts as known if its uncertainty is at most this share of mark -
 * begin. */
#define LKA_VAGUE 8
/* The first look at a mark is at half of its expected time; later ones follow after this
 * share of the time since the step's begin. */
#define LKA_LOOKS 64
/* A mark not seen by this share of the step's duration is taken as missing. */
#define LKA_MARK_LATE(ns) ((ns) - (ns) / 16)

void
lka_init(struct lka *l, int32_t depth)
{
    ASSERT(depth >= 0 && depth <= LKA_MAX_DEPTH);
    memset(l, 0, sizeof(*l));
    l->depth = depth;
    l->margin_ns = LKA_MARGIN_START;
    l->rest = (struct lka_class){ LKA_REST, LKA_REST_DEV, LKA_FEW };
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
    l->step[l->n++] = (struct lka_step){ .pick_ns = pick_ns,
        .predict_ns = predict_ns,
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

/* ---- marks ---------------------------------------------------------------------------- */

static uint64_t
lka_begin(const struct lka *l)
{
    return l->end_ns > l->step[0].pick_ns ? l->end_ns : l->step[0].pick_ns;
}

int
lka_wants_mark(const struct lka *l, uint64_t predict_ns)
{
    return l->depth > 0 && l->unmarked == 0 && predict_ns >= LKA_MARK_NS;
}

void
lka_will_mark(struct lka *l)
{
    ASSERT(l->n > 0);
    l->step[l->n - 1].marks = 1;
}

void
lka_look(struct lka *l, uint64_t now_ns, int passed)
{
    struct lka_step *s = &l->step[0];

    if (l->n == 0 || !s->marks || s->mark_ns != 0)
        return;
    if (passed)
        s->mark_ns = now_ns;
    else
        s->before_ns = now_ns;
}

/* A low estimate of when the step passed its mark; 0: it has not, or the time is too
 * uncertain. */
static uint64_t
lka_mark_at(const struct lka_step *s, uint64_t begin_ns)
{
    uint64_t from = s->before_ns > begin_ns ? s->before_ns : begin_ns;

    if (s->mark_ns <= from || (s->mark_ns - from) * LKA_VAGUE > s->mark_ns - begin_ns)
        return 0;
    return from;
}

/* A low estimate of the end of a step that passed its mark at mark_ns. */
static uint64_t
lka_end_after(const struct lka *l, uint64_t begin_ns, uint64_t mark_ns)
{
    double f = l->rest.mean - LKA_DEVS * l->rest.dev;

    return mark_ns + (uint64_t)((f > 0 ? f : 0) * (double)(mark_ns - begin_ns));
}

/* A low estimate of the end of the oldest step, which began at begin_ns. */
static uint64_t
lka_end_from(const struct lka *l, uint64_t begin_ns)
{
    const struct lka_step *s = &l->step[0];
    uint64_t at = lka_mark_at(s, begin_ns), end = begin_ns + s->expect_ns, least;

    if (at > 0)
        return lka_end_after(l, begin_ns, at);
    if (!s->marks || s->mark_ns != 0 || s->before_ns <= begin_ns)
        return end;
    least = lka_end_after(l, begin_ns, s->before_ns);
    return end > least ? end : least;
}

uint64_t
lka_look_at(const struct lka *l, uint64_t now_ns)
{
    const struct lka_step *s = &l->step[0];
    uint64_t begin, next, from;

    if (l->n == 0 || !s->marks || s->mark_ns != 0)
        return UINT64_MAX;
    begin = lka_begin(l);
    next = now_ns > begin ? (now_ns - begin) / LKA_LOOKS : 0;
    next = now_ns + (next > LKA_LOOK_NS ? next : LKA_LOOK_NS);
    from = begin + (uint64_t)((double)s->expect_ns / (1 + l->rest.mean) / 2);
    return from > next ? from : next;
}

static void
lka_learn_mark(struct lka *l, const struct lka_step *s, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t at = lka_mark_at(s, begin_ns);
    double r;

    l->unmarked -= l->unmarked > 0;
    if (!s->marks || end_ns <= begin_ns)
        return;
    if (s->mark_ns == 0 && s->before_ns > begin_ns + LKA_MARK_LATE(end_ns - begin_ns))
        l->unmarked = LKA_UNMARKED;
    if (at <= begin_ns || at >= end_ns)
        return;
    r = (double)(end_ns - at) / (double)(at - begin_ns);
    lka_ratio(&l->rest, r < LKA_REST_MOST ? r : LKA_REST_MOST);
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
    lka_learn_mark(l, &s, begin_ns, end_ns);
    if (s.predict_ns == 0 || end_ns <= begin_ns)
        return;
    r = (double)(end_ns - begin_ns) / (double)s.predict_ns;
    r = r < LKA_LEAST ? LKA_LEAST : r > LKA_MOST ? LKA_MOST : r;
    lka_ratio(lka_class(l, s.predict_ns), r);
    lka_ratio(&l->all, r);
}

/* ---- when ------------------------------------------------------------------------------ */

uint64_t
lka_end(const struct lka *l)
{
    if (l->n == 0 || l->step[0].predict_ns == 0)
        return 0;
    return lka_end_from(l, lka_begin(l));
}

uint64_t
lka_lead(const struct lka *l)
{
    return l->launch_ns + l->margin_ns;
}

/* Do all queued steps have predictions, and does one have a mark that was not seen
 * yet? */
static int
lka_mark_to_come(const struct lka *l)
{
    int n = 0;

    for (int32_t i = 0; i < l->n; i++) {
        if (l->step[i].predict_ns == 0)
            return 0;
        n += l->step[i].marks && l->step[i].mark_ns == 0;
    }
    return n > 0;
}

uint64_t
lka_due(const struct lka *l, uint64_t now_ns)
{
    uint64_t lead = lka_lead(l), at;

    if (l->n == 0)
        return 0;
    if (l->n > l->depth || lka_mark_to_come(l))
        return UINT64_MAX;
    /* the oldest step has begun and not ended */
    at = lka_begin(l);
    at = lka_end_from(l, at < now_ns ? at : now_ns);
    at = at > now_ns ? at : now_ns;
    for (int32_t i = 0; i < l->n; i++) {
        if (l->step[i].predict_ns == 0)
            return 0;
        at += i > 0 ? l->step[i].expect_ns : 0;
    }
    return at > lead ? at - lead : 0;
}
