/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/hang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/link.h"

void
hng_init(struct hng *h, uint64_t now_ns)
{
    memset(h, 0, sizeof(*h));
    h->t_beat = h->t_look = now_ns;
}

void
hng_excuse(struct hng *h, uint64_t now_ns)
{
    h->t_beat = now_ns;
}

static uint64_t
hng_limit(const struct hng_limits *l, uint64_t began_ns, uint64_t expect_ns)
{
    uint64_t ns = l->hang_ns;

    if (began_ns != 0 && expect_ns == 0)
        return ns > l->first_ns ? ns : l->first_ns;
    if (expect_ns > UINT64_MAX / HNG_FACTOR)
        return UINT64_MAX;
    return ns > HNG_FACTOR * expect_ns ? ns : HNG_FACTOR * expect_ns;
}

static void
hng_text(uint64_t quiet_ns, uint64_t began_ns, uint64_t expect_ns, uint64_t now_ns,
    char *ret, size_t ret_bytes)
{
    int n = snprintf(ret, ret_bytes, "it has not moved for %.1f s", (double)quiet_ns / 1e9);

    if (n < 0 || (size_t)n >= ret_bytes || began_ns == 0 || now_ns < began_ns)
        return;
    if (expect_ns == 0)
        (void)snprintf(ret + n, ret_bytes - (size_t)n, "; its last step began %.1f s ago",
            (double)(now_ns - began_ns) / 1e9);
    else
        (void)snprintf(ret + n, ret_bytes - (size_t)n,
            "; its last step began %.1f s ago "
            "and was expected to take %.3f s",
            (double)(now_ns - began_ns) / 1e9, (double)expect_ns / 1e9);
}

enum hng_verdict
hng_look(struct hng *h, const struct lnk_beat *b, const struct hng_limits *l,
    uint64_t now_ns, char *why, size_t why_bytes)
{
    uint64_t beats = __atomic_load_n(&b->beats, __ATOMIC_RELAXED);
    uint64_t began = __atomic_load_n(&b->step_began_ns, __ATOMIC_RELAXED);
    uint64_t expect = __atomic_load_n(&b->step_expect_ns, __ATOMIC_RELAXED);
    uint32_t act = __atomic_load_n(&b->activity, __ATOMIC_RELAXED);
    int gap = now_ns - h->t_look > HNG_GAP_NS, warned = h->warned;
    uint64_t quiet, limit;

    h->t_look = now_ns;
    if (beats != h->beats || act != LNK_ACT_SERVE) {
        h->beats = beats;
        h->t_beat = now_ns;
        h->warned = 0;
        return warned ? HNG_MOVES : HNG_FINE;
    }
    if (gap)
        h->t_beat = now_ns;
    quiet = now_ns - h->t_beat;
    limit = hng_limit(l, began, expect);
    if (l->hang_ns != 0 && quiet > limit) {
        hng_text(quiet, began, expect, now_ns, why, why_bytes);
        return HNG_KILL;
    }
    if (h->warned || quiet <= (l->hang_ns != 0 ? limit / 2 : HNG_WARN_NS))
        return HNG_FINE;
    h->warned = 1;
    hng_text(quiet, began, expect, now_ns, why, why_bytes);
    return HNG_WARN;
}

int
hng_has_tracer(const char *status)
{
    static const char key[] = "\nTracerPid:";
    const char *p = strstr(status, key);

    return p != NULL && strtol(p + sizeof(key) - 1, NULL, 10) > 0;
}
