/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/rolling.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
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
    r->phase = ROL_WAITS;
    r->at = 0;
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

/* Begin with this group as soon as another serves what it does not take any more. */
static void
rol_take(struct rolling *r, struct wrk *w)
{
    uint64_t grace = (uint64_t)r->env->par->daemon_drain_timeout_ms * CLK_MS;

    if (dsp_n_up(r->dsp) - (w->link.up != 0) == 0)
        return;
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
    if (w->st == WRK_READY) {
        r->phase = ++r->at == r->n_wrk ? ROL_NONE : ROL_WAITS;
        if (!rol_is_active(r))
            log_info("gate: all groups were started again");
    } else if (w->st != WRK_STARTING) {
        rol_fail(r, w->error[0] != '\0' ? w->error : w->last_death);
    }
}

void
rol_tick(struct rolling *r)
{
    struct wrk *w = &r->wrk[r->at < r->n_wrk ? r->at : 0];

    if (rol_is_active(r) && r->env->st != GATE_RUNNING) {
        rol_fail(r, "is left as it is: the daemon ends");
        return;
    }
    switch (r->phase) {
    case ROL_NONE:
        break;
    case ROL_WAITS:
        rol_take(r, w);
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
