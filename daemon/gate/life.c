/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/life.h"

#include <errno.h>
#include <stdio.h>
#include <sysexits.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/notify.h"
#include "daemon/gate/admit.h"
#include "daemon/gate/client.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/request.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/session.h"
#include "daemon/gate/supervise.h"
#include "libclient/fdproto.h"

#define LIFE_CANCEL_NS   (2 * CLK_S) /* for terminal records after the cancel */
#define LIFE_WORKER_NS   (5 * CLK_S)
#define LIFE_SPARE_NS    (5 * CLK_S) /* margin in the stop time that systemd is told */
#define LIFE_DEGRADED_NS (5 * CLK_S) /* time to answer clients and fdctl */

static int
life_is_blocked(const struct life *v)
{
    for (uint32_t i = 0; i < v->n_wrk; i++) {
        if (v->wrk[i].rty.n != 0)
            return 1;
    }
    return 0;
}

const char *
life_state_name(const struct life *v)
{
    static const char *const names[] = { "running", "draining", "stopping", "degraded" };

    if (v->env->st == GATE_RUNNING && !dsp_is_up(v->reqs->dsp))
        return life_is_blocked(v) ? "blocked" : "starting";
    return v->env->paused ? "paused" : names[v->env->st];
}

void
life_announce(struct life *v, uint32_t kind)
{
    ses_announce(v->ses, v->env->st == GATE_RUNNING ? FDP_ST_RUN : FDP_ST_DRAIN, kind, 0);
}

/* ---- pause and drain --------------------------------------------------------- */

/* Queued requests must not wait until somebody takes the pause back. */
static void
life_unpause(struct life *v)
{
    if (v->env->paused)
        log_info("gate: no longer paused, %u requests queued", v->reqs->fair->n_queued);
    v->env->paused = 0;
}

int
life_pause(struct life *v, int on)
{
    if (v->env->st != GATE_RUNNING)
        return -EBUSY;
    if (!on) {
        life_unpause(v);
    } else if (!v->env->paused) {
        log_info("gate: paused, %u requests with the worker go on",
            v->reqs->jnl->n_open - v->reqs->fair->n_queued);
        v->env->paused = 1;
    }
    return 0;
}

void
life_drain(struct life *v, int on)
{
    if (on && v->env->st == GATE_RUNNING) {
        log_info("gate: draining, %u requests to go", v->reqs->jnl->n_open);
        life_unpause(v);
        v->env->st = GATE_DRAINING;
        life_announce(v, FDP_EV_DRAIN);
    } else if (!on && v->env->st == GATE_DRAINING) {
        log_info("gate: takes requests again");
        v->env->st = GATE_RUNNING;
        life_announce(v, dsp_is_up(v->reqs->dsp) ? FDP_EV_READY : 0);
    }
}

/* ---- stop --------------------------------------------------------------------- */

/* Extends the service manager's stop timeout, which must not cut the drain short. */
static void
life_notify_stop(uint64_t drain_ns)
{
    char text[96];

    (void)snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
        (unsigned long long)((drain_ns + LIFE_CANCEL_NS + LIFE_WORKER_NS + LIFE_SPARE_NS) /
            1000));
    ntf_send(text);
}

static void
life_step(struct life *v, enum life_step step)
{
    v->step = step;
    v->t_step = v->env->now;
}

void
life_stop(struct life *v, uint64_t timeout_ns, int exit_code)
{
    uint64_t deadline = v->env->now + timeout_ns;

    if (v->env->st == GATE_STOPPING) {
        if (v->step == LIFE_WAITS && deadline < v->env->stop_deadline)
            v->env->stop_deadline = deadline;
        return;
    }
    log_info("gate: stopping, %u requests to go", v->reqs->jnl->n_open);
    life_unpause(v);
    life_notify_stop(timeout_ns);
    if (v->env->st == GATE_DEGRADED)
        exit_code = EX_TEMPFAIL;
    v->env->st = GATE_STOPPING;
    life_announce(v, FDP_EV_DRAIN);
    life_step(v, LIFE_WAITS);
    v->env->stop_deadline = deadline;
    v->n_signals++; /* a further signal means: end at once */
    v->exit_code = -1;
    v->stop_exit = exit_code;
}

static void
life_end_all(struct life *v, int code)
{
    rq_end_all(v->reqs, code, code == FDP_E_DRAINING ? adm_retry_ms(v->adm) : 0);
}

void
life_stop_now(struct life *v, int exit_code)
{
    int code = exit_code == 0 ? FDP_E_DRAINING : FDP_E_GPU_LOST;

    v->env->st = GATE_STOPPING;
    v->env->stop_deadline = v->env->now;
    life_end_all(v, code);
    cli_flush(v->reqs->clients);
    ses_goodbye(v->ses, code);
    v->step = LIFE_DONE;
    v->stop_exit = v->exit_code = exit_code;
    for (uint32_t i = 0; i < v->n_wrk; i++) {
        if (v->wrk[i].pid > 0 && !v->wrk[i].dead)
            sup_kill(&v->wrk[i], "the daemon ends now");
    }
}

void
life_signal(struct life *v)
{
    if (v->n_signals++ == 0 && v->env->st != GATE_STOPPING)
        life_stop(v, (uint64_t)v->env->par->daemon_drain_timeout_ms * CLK_MS, 0);
    else
        life_stop_now(v, v->env->st == GATE_DEGRADED ? EX_TEMPFAIL : 0);
}

/* Have all workers ended? */
static int
life_workers_ended(const struct life *v)
{
    for (uint32_t i = 0; i < v->n_wrk; i++) {
        if (v->wrk[i].st != WRK_NONE && v->wrk[i].st != WRK_FAILED)
            return 0;
    }
    return 1;
}

/* Is there a worker that serves requests, or will? While stopping none is started. */
static int
life_has_worker(const struct life *v)
{
    for (uint32_t i = 0; i < v->n_wrk; i++) {
        if (v->wrk[i].st != WRK_NONE && v->wrk[i].st != WRK_BACKOFF &&
            v->wrk[i].st != WRK_FAILED)
            return 1;
    }
    return 0;
}

static void
life_stop_tick(struct life *v)
{
    uint32_t *n_open = &v->reqs->jnl->n_open;
    int has_time = v->env->now < v->env->stop_deadline;

    if (v->step == LIFE_WAITS && *n_open != 0 && !(has_time && life_has_worker(v))) {
        log_warn("gate: %u requests %s and are cancelled", *n_open,
            has_time ? "have no worker" : "did not end in time");
        rq_cancel_all(v->reqs, FDP_E_DRAINING, adm_retry_ms(v->adm));
        life_step(v, LIFE_CANCELLED);
    }
    if (v->step == LIFE_CANCELLED && *n_open != 0 &&
        v->env->now - v->t_step >= LIFE_CANCEL_NS)
        life_end_all(v, FDP_E_DRAINING);
    if (v->step <= LIFE_CANCELLED && *n_open == 0) {
        for (uint32_t i = 0; i < v->n_wrk; i++)
            sup_stop(v->sup, &v->wrk[i], LIFE_WORKER_NS);
        life_step(v, LIFE_ENDS_WORKERS);
    }
    if (v->step == LIFE_ENDS_WORKERS && life_workers_ended(v)) {
        cli_flush(v->reqs->clients);
        ses_goodbye(v->ses, FDP_E_DRAINING);
        v->step = LIFE_DONE;
        v->exit_code = v->stop_exit;
    }
}

/* ---- degraded ------------------------------------------------------------------- */

/* How long a degraded daemon stays, so that fdctl can ask for the reason. */
static uint64_t
life_linger_ns(const struct life *v)
{
    uint64_t ns = (uint64_t)v->env->par->daemon_drain_timeout_ms * CLK_MS;

    return ns < LIFE_DEGRADED_NS ? ns : LIFE_DEGRADED_NS;
}

void
life_degrade(struct life *v)
{
    if (v->env->st == GATE_STOPPING)
        return;
    v->env->st = GATE_DEGRADED;
    v->env->paused = 0;
    v->t_degraded = v->env->now;
    life_end_all(v, FDP_E_GPU_LOST);
    ses_announce(v->ses, FDP_ST_DRAIN, FDP_EV_DOWN, 1);
    ntf_send("STATUS=degraded: the worker died too often, see the log");
    log_error("gate: degraded; ends with exit code 75 in %llu ms",
        (unsigned long long)(life_linger_ns(v) / CLK_MS));
}

void
life_group_failed(struct life *v, const struct wrk *w, int cannot_run)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n_wrk; i++)
        n += v->wrk[i].st == WRK_FAILED;
    if (n < v->n_wrk) {
        log_error("gate: group %d has no worker any more, %u of %u groups are left; fix "
                  "its error, then fdctl reload --rolling",
            w->idx, v->n_wrk - n, v->n_wrk);
        return;
    }
    if (cannot_run != 0)
        life_stop_now(v, cannot_run);
    else
        life_degrade(v);
}

/* With several groups: reports how many are ready. */
static void
life_tell_groups(struct life *v)
{
    uint32_t n = dsp_n_up(v->reqs->dsp);
    char text[64];

    if (v->n_wrk < 2 || n == v->n_told || v->env->st != GATE_RUNNING)
        return;
    v->n_told = n;
    (void)snprintf(text, sizeof(text), "STATUS=%u of %u groups ready", n, v->n_wrk);
    ntf_send(text);
    log_info("gate: %u of %u groups ready", n, v->n_wrk);
}

void
life_tick(struct life *v)
{
    if (v->env->st == GATE_STOPPING && v->step < LIFE_DONE)
        life_stop_tick(v);
    if (v->env->st == GATE_DEGRADED && v->env->now - v->t_degraded >= life_linger_ns(v))
        life_stop_now(v, EX_TEMPFAIL);
    if (!v->is_ready_told && dsp_is_up(v->reqs->dsp)) {
        v->is_ready_told = 1;
        ntf_send("READY=1");
    }
    life_tell_groups(v);
}
