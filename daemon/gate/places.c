/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/places.h"

#include <string.h>

#include "daemon/common/clk.h"

void
plc_begin(struct plc *p, uint32_t mine, uint64_t now_ns)
{
    memset(p, 0, sizeof(*p));
    p->mine = mine;
    p->now = now_ns;
    p->at = -1;
}

static int
plc_may_leave(const struct plc *p, const struct plc_ses *s)
{
    if (s->n_open != 0)
        return s->sessions >= p->mine + PLC_CROWD;
    if (s->sessions >= p->mine + 2)
        return 1;
    return s->sessions > p->mine && p->now - s->t_used >= PLC_IDLE_S * CLK_S;
}

/* Is a to be closed before b? */
static int
plc_rather(const struct plc_ses *a, const struct plc_ses *b)
{
    if ((a->n_open != 0) != (b->n_open != 0))
        return a->n_open == 0;
    if (a->sessions != b->sessions)
        return a->sessions > b->sessions;
    if (a->n_open != b->n_open)
        return a->n_open < b->n_open;
    return a->t_used < b->t_used;
}

void
plc_look(struct plc *p, int at, const struct plc_ses *s)
{
    if (!plc_may_leave(p, s) || (p->at >= 0 && !plc_rather(s, &p->best)))
        return;
    p->at = at;
    p->best = *s;
}
