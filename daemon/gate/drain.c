/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/drain.h"

#include <string.h>

void
drain_add(struct drain *d, uint64_t tokens)
{
    d->pending += tokens;
}

void
drain_tick(struct drain *d, int waiting, uint64_t now_ns)
{
    struct drain_slot *s = &d->slot[d->at];
    uint64_t dt = d->t_tick != 0 && now_ns > d->t_tick ? now_ns - d->t_tick : 0;

    /* Time in which work waited at both ends, and what was done in it. */
    if (waiting && d->t_since != 0) {
        if (s->ns >= DRAIN_SLOT_NS) {
            d->at = (d->at + 1) % DRAIN_SLOTS;
            s = &d->slot[d->at];
            memset(s, 0, sizeof(*s));
        }
        s->tokens += d->pending;
        s->ns += dt;
        s->t_end = now_ns;
    }
    d->pending = 0;
    d->t_tick = now_ns;
    if (!waiting)
        d->t_since = 0;
    else if (d->t_since == 0)
        d->t_since = now_ns;
}

void
drain_reset(struct drain *d)
{
    memset(d, 0, sizeof(*d));
}

double
drain_rate(const struct drain *d, uint64_t now_ns)
{
    uint64_t tokens = 0, ns = 0;

    for (uint32_t i = 0; i < DRAIN_SLOTS; i++) {
        const struct drain_slot *s = &d->slot[i];

        if (s->ns == 0 || now_ns - s->t_end > DRAIN_OLD_NS)
            continue;
        tokens += s->tokens;
        ns += s->ns;
    }
    if (ns < DRAIN_MIN_NS || tokens == 0)
        return 0;
    return (double)tokens * 1e9 / (double)ns;
}

uint32_t
drain_ms(const struct drain *d, uint64_t tokens, uint64_t now_ns, uint32_t limit_ms)
{
    double rate = drain_rate(d, now_ns);
    double ms;

    if (rate > 0)
        ms = (double)tokens * 1e3 / rate;
    else
        ms = d->t_since != 0 && now_ns > d->t_since ?
            (double)(now_ns - d->t_since) / 1e6 : 0;
    return ms < 1 ? 1 : ms > (double)limit_ms ? limit_ms : (uint32_t)ms;
}
