/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/gauge.h"

#include "daemon/gate/svcrate.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/session.h"
#include "daemon/gate/statseg.h"
#include "daemon/gate/supervise.h"

void
gau_set(const struct gauges *g)
{
    const struct lnk_ready *ready = dsp_ready(g->dsp);
    const struct seg_now now = {
        .uptime_ns = g->env->now - g->env->t_boot,
        .sessions = g->ses->n,
        .users = g->fair->n_active,
        .requests_queued = g->fair->n_queued,
        .requests_running = g->jnl->n_open - g->fair->n_queued,
        .journal_bytes = g->jnl->bytes,
        .queued_tokens = g->fair->cost_queued,
        .service_rate = (uint64_t)svc_rate(&g->fair->svcrate, g->env->now),
        .groups = g->n_wrk,
        .groups_ready = dsp_n_up(g->dsp),
        .placed_cached = g->dsp->n_cached,
        .model = ready != NULL ? ready->info.model_name : NULL,
    };

    seg_tick(g->seg, &now);
    for (uint32_t i = 0; i < g->n_wrk; i++)
        seg_worker(g->seg, i, (int32_t)g->wrk[i].pid, g->wrk[i].generation);
}
