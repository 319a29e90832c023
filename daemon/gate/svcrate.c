/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/svcrate.h"

#include <string.h>

void
svc_add(struct svcrate *d, uint64_t tokens)
{
    d->pending += tokens;
}

void
svc_tick(struct svcrate *d, int waiting, uint64_t now_ns)
{
    struct svcrate_slot *s = &d->slot[d->at];
    uint64_t dt = d->t_tick != 0 && now_ns > d->t_tick ? now_ns - d->t_tick : 0;

    /* Counts only intervals at both ends of which requests were queued. */
    if (waiting && d->t_since != 0) {
        if (s->ns >= SVC_SLOT_NS) {
            d->at = (d->at + 1) % SVC_SLOTS;
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
svc_reset(struct svcrate *d)
{
    memset(d, 0, sizeof(*d));
}

double
svc_rate(const struct svcrate *d, uint64_t now_ns)
{
    uint64_t tokens = 0, ns = 0;

    for (uint32_t i = 0; i < SVC_SLOTS; i++) {
        const struct svcrate_slot *s = &d->slot[i];

        if (s->ns == 0 || now_ns - s->t_end > SVC_OLD_NS)
            continue;
        tokens += s->tokens;
        ns += s->ns;
    }
    if (ns < SVC_MIN_NS || tokens == 0)
        return 0;
    return (double)tokens * 1e9 / (double)ns;
}

uint32_t
svc_ms(const struct svcrate *d, uint64_t tokens, uint64_t now_ns, uint32_t limit_ms)
{
    double rate = svc_rate(d, now_ns);
    double ms;

    if (rate > 0)
        ms = (double)tokens * 1e3 / rate;
    else
        ms = d->t_since != 0 && now_ns > d->t_since
            ? (double)(now_ns - d->t_since) / 1e6
            : 0;
    return ms < 1 ? 1 : ms > (double)limit_ms ? limit_ms : (uint32_t)ms;
}
