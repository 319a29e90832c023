/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/rolling.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/common/panic.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/supervise.h"

int
rol_begin(struct rolling *r)
{
    if (r->n_wrk < 2)
        return -ENOTSUP;
    if (rol_is_active(r) || r->env->st != GATE_RUNNING)
        return -EBUSY;
    ASSERT(r->n_wrk < 64);
    r->phase = ROL_WAITS;
    r->at = 0;
    r->todo = (UINT64_C(1) << r->n_wrk) - 1;
    r->error[0] = '\0';
    log_info("gate: the workers of %u groups start again, one after another", r->n_wrk);
    return 0;
}

const char *
rol_phase_name(const struct rolling *r)
{
    static const char *const names[] = { "", "waits", "drains", "starts" };

    return names[r->phase];
}

static void
rol_fail(struct rolling *r, const char *why)
{
    (void)snprintf(r->error, sizeof(r->error), "group %u %s", r->at, why);
    log_error("gate: not all groups were started again: %s", r->error);
    r->phase = ROL_NONE;
}

static void
rol_start(struct rolling *r, struct wrk *w)
{
    if (sup_start_again(r->sup, w) != 0)
        rol_fail(r, w->error);
    else
        r->phase = ROL_STARTS;
}

static int
rol_is_down(const struct wrk *w)
{
    return w->link.seg == NULL && (w->st == WRK_FAILED || w->st == WRK_NONE);
}

/* A group that is down, else the first for which another group is up; n_wrk: none. */
static uint32_t
rol_next(const struct rolling *r)
{
    uint32_t next = r->n_wrk;

    for (uint32_t i = 0; i < r->n_wrk; i++) {
        if ((r->todo >> i & 1) == 0)
            continue;
        if (rol_is_down(&r->wrk[i]))
            return i;
        if (next == r->n_wrk && dsp_n_up(r->dsp) - (r->wrk[i].link.up != 0) > 0)
            next = i;
    }
    return next;
}

/* Can another group than those still to be restarted take requests again by itself? */
static int
rol_may_help(const struct rolling *r)
{
    for (uint32_t i = 0; i < r->n_wrk; i++) {
        if ((r->todo >> i & 1) == 0 && !rol_is_down(&r->wrk[i]))
            return 1;
    }
    return (r->todo & (r->todo - 1)) != 0;
}

/* Begins with the next group as soon as another one can serve instead. */
static void
rol_take(struct rolling *r)
{
    uint64_t grace = (uint64_t)r->env->par->daemon_drain_timeout_ms * CLK_MS;
    uint32_t i = rol_next(r);
    struct wrk *w;

    if (i == r->n_wrk) {
        r->at = (uint32_t)__builtin_ctzll(r->todo);
        if (!rol_may_help(r))
            rol_fail(r, "is left as it is: no other group serves requests meanwhile");
        return;
    }
    r->at = i;
    r->todo &= ~(UINT64_C(1) << i);
    w = &r->wrk[i];
    if (w->link.seg == NULL) {
        rol_start(r, w);
        return;
    }
    log_info("gate: group %u drains, %u requests to go", r->at, w->link.n_with);
    sup_stop(r->sup, w, grace);
    r->phase = ROL_DRAINS;
}

static void
rol_came(struct rolling *r, const struct wrk *w)
{
    if (w->is_killed || (w->st != WRK_READY && w->st != WRK_STARTING)) {
        rol_fail(r,
            w->error[0] != '\0' ? w->error
                : w->is_killed  ? "was killed: the log says why"
                                : w->last_death);
    } else if (w->st == WRK_READY && w->link.up) {
        r->phase = r->todo == 0 ? ROL_NONE : ROL_WAITS;
        if (rol_is_active(r))
            return;
        r->at = r->n_wrk;
        log_info("gate: all groups were started again");
    }
}

void
rol_tick(struct rolling *r)
{
    struct wrk *w = &r->wrk[r->at < r->n_wrk ? r->at : 0];
    int drains = r->env->st == GATE_DRAINING;

    if (rol_is_active(r) && r->env->st != GATE_RUNNING && !drains) {
        rol_fail(r, "is left as it is: the daemon ends");
        return;
    }
    switch (r->phase) {
    case ROL_NONE:
        break;
    case ROL_WAITS:
        if (!drains)
            rol_take(r);
        break;
    case ROL_DRAINS:
        if (w->link.seg == NULL && w->st == WRK_NONE)
            rol_start(r, w);
        break;
    case ROL_STARTS:
        rol_came(r, w);
        break;
    }
}
