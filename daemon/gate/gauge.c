/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/gauge.h"

#include "daemon/gate/svcrate.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/session.h"
#include "daemon/gate/statseg.h"
#include "daemon/gate/supervise.h"

void
gau_set(const struct gauges *g)
{
    const struct wrk *w = g->wrk;
    const struct seg_now now = {
        .uptime_ns = g->env->now - g->env->t_boot,
        .sessions = g->ses->n,
        .users = g->fair->n_active,
        .requests_queued = g->fair->n_queued,
        .requests_running = g->jnl->n_open - g->fair->n_queued,
        .journal_bytes = g->jnl->bytes,
        .queued_tokens = g->fair->cost_queued,
        .service_rate = (uint64_t)svc_rate(&g->fair->svcrate, g->env->now),
        .generation = w->generation,
        .worker_pid = (int32_t)w->pid,
        .model = w->link.up ? w->link.ready.info.model_name : NULL,
    };

    seg_tick(g->seg, &now);
}
