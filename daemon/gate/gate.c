/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/conf.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/relay.h"
#include "daemon/gate/statseg.h"

#define GATE_TICK_NS   (2 * CLK_MS)
#define GATE_ANSWER_NS (40 * CLK_US) /* a worker woken for it answers within that */
#define GATE_SPIN_TRAFFIC_NS (10 * CLK_MS) /* spin only so long after traffic */
#define GATE_POLL_SOCKETS_NS (1 * CLK_MS)  /* while busy */
#define GATE_STOP_CANCEL_NS  (2 * CLK_S)   /* for terminals after the cancel */
#define GATE_STOP_WORKER_NS  (5 * CLK_S)
#define GATE_STOP_SPARE_NS   (5 * CLK_S)   /* what the service manager waits beyond */
#define GATE_DEGRADED_NS     (5 * CLK_S) /* time to be asked why */
#define GATE_RETRY_MAX_MS 60000u
#define GATE_PAUSED_RETRY_MS 1000u /* nobody knows when it goes on */
#define GATE_OFFLOOP_NS (1 * CLK_S) /* at the end, for closes that sleep */
#define GATE_EVENTS 64

/* sched.user_weights, which was checked before it came into force. */
static void
gate_weights(struct gate *g)
{
    struct fair_weight list[FAIR_WEIGHTS];
    char err[512];
    uint32_t n = 0;

    /* A user may have been removed from the system since. */
    if (fair_parse_weights(g->par->sched_user_weights, list, &n, err, sizeof(err)) != 0)
        log_warn("config: %s; all users have weight 1", err);
    fair_set_weights(g, list, n);
}

static void
gate_names(struct gate *g)
{
    struct names_lists lists = {
        .trusted = g->par->ipc_trusted_users,
        .weights = g->par->sched_user_weights,
        .group = g->par->ipc_group,
        .admin_group = g->par->ipc_admin_group,
    };

    names_load(&g->names, &lists);
}

struct gate *
gate_new(struct par_set *ps, uint64_t now_ns)
{
    struct gate *g = mem_aligned(128, sizeof(*g));

    if (g == NULL)
        return NULL;
    g->magic = GATE_MAGIC;
    g->ps = ps;
    g->par = par_get(ps);
    g->epfd = g->sigfd = g->crash_fd = g->seg_fd = g->trc_fd = -1;
    g->exit_code = -1;
    g->t_boot = g->now = now_ns;
    g->next_ses_id = 1;
    g->n_wrk = 1;
    g->spawn = sup_spawn;
    rtd_init(&g->rt);
    fair_init(&g->fair);
    g->fair.fcfs = g->par->sched_policy == PAR_SCHED_POLICY_FCFS;
    gate_names(g);
    gate_weights(g);
    sup_init(&g->wrk[0], 0);
    TAILQ_INIT(&g->outq);
    if (getrandom(g->boot_id, sizeof(g->boot_id), 0) != sizeof(g->boot_id) ||
        getrandom(&g->rng, sizeof(g->rng), 0) != sizeof(g->rng))
        goto free_gate;
    if (g->par->sched_seed != 0)
        g->rng = (uint64_t)g->par->sched_seed;
    /* Every place a session may ever take, so that max_clients can rise by
     * reload without an allocation here. */
    g->max_ses = 65536;
    g->ses = mem_array(g->max_ses, sizeof(struct ses *));
    if (g->ses == NULL || jnl_init(&g->jnl, (uint32_t)g->par->sched_max_concurrency) != 0)
        goto free_gate;
    g->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (g->epfd < 0)
        goto free_gate;
    return g;

free_gate:
    return gate_free(g);
}

int
gate_open(struct gate *g)
{
    long n_cpu = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = seg_open(g->boot_id, &g->seg, &g->seg_fd);

    if (rc != 0)
        return rc;
    g->cnt = &g->seg->g;
    loopstat_init(&g->loop, g->cnt, g->seg->h);
    log_count(&g->cnt->log_dropped);
    rc = trc_create(g->boot_id, &g->trc, &g->trc_fd);
    if (rc != 0)
        return rc;
    if (g->par->ipc_spin_us >= 0)
        g->spin_ns = (uint64_t)g->par->ipc_spin_us * CLK_US;
    else
        g->spin_ns = n_cpu >= 8 ? 50 * CLK_US : 0;
    if (g->par->ipc_spin_us != 0 && n_cpu > 1)
        g->answer_ns = GATE_ANSWER_NS;
    return 0;
}

struct gate *
gate_free(struct gate *g)
{
    if (g == NULL)
        return NULL;
    OBJ_CHECK(g, GATE_MAGIC);
    if (g->seg != NULL) {
        ctl_fini(g);
        ses_goodbye(g, FDP_E_DISCONNECTED);
        region_late_fini(&g->late);
        g->ofl = ofl_free(g->ofl, GATE_OFFLOOP_NS);
        sup_fini(g, &g->wrk[0]);
    }
    if (g->epfd >= 0)
        (void)close(g->epfd);
    if (g->sigfd >= 0)
        (void)close(g->sigfd);
    jnl_fini(&g->jnl);
    free(g->ses);
    fair_fini(&g->fair);
    (void)log_fini();
    trc_destroy(g->trc, g->trc_fd);
    seg_close(g->seg, g->seg_fd);
    rtd_fini(&g->rt);
    (void)par_free(g->ps_file);
    (void)par_free(g->ps);
    g->magic = 0;
    free(g);
    return NULL;
}

int
gate_watch(struct gate *g, int fd, uint32_t events, enum gate_ev ev, void *obj)
{
    struct epoll_event e;

    e.events = events;
    /* Objects come from malloc (16-byte aligned) or stand inside struct
     * gate; their kind goes into the low bits. */
    ASSERT(((uintptr_t)obj & 15) == 0);
    e.data.u64 = (uint64_t)(uintptr_t)obj | (uint64_t)ev;
    return epoll_ctl(g->epfd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void
gate_unwatch(struct gate *g, int fd, const void *obj)
{
    (void)epoll_ctl(g->epfd, EPOLL_CTL_DEL, fd, NULL);
    for (int i = 0; i < g->n_ev; i++) {
        if ((g->ev[i].data.u64 & ~(uint64_t)15) == (uint64_t)(uintptr_t)obj)
            g->ev[i].data.u64 = GATE_EV_NONE;
    }
}

/* ---- state --------------------------------------------------------------- */

const char *
gate_state_name(const struct gate *g)
{
    static const char *const names[] = { "running", "draining", "stopping", "degraded" };

    if (g->st == GATE_RUNNING && g->wrk[0].st != WRK_READY)
        return "starting";
    return g->paused ? "paused" : names[g->st];
}

/* While it drains or stops: until the open requests have ended, which a stop cuts
 * short at its deadline, and when it stops, as long again as its worker took to get
 * ready, for the next daemon's will. Who drains takes it back when he likes. */
static uint32_t
gate_drain_ms(const struct gate *g)
{
    const struct wrk *w = &g->wrk[0];
    uint64_t ms = g->jnl.n_open == 0 ? 0 : drain_ms(&g->fair.drain, g->fair.cost_open,
        g->now, GATE_RETRY_MAX_MS);

    if (g->st == GATE_STOPPING) {
        uint64_t left = g->stop_deadline > g->now ? (g->stop_deadline - g->now) / CLK_MS :
            0;

        ms = ms < left ? ms : left;
        ms += w->t_ready > w->t_start ? (w->t_ready - w->t_start) / CLK_MS : 0;
    }
    return ms == 0 ? GATE_PAUSED_RETRY_MS : ms > GATE_RETRY_MAX_MS ? GATE_RETRY_MAX_MS :
        (uint32_t)ms;
}

uint32_t
gate_retry_ms(const struct gate *g)
{
    const struct wrk *w = &g->wrk[0];
    int percent;

    if (g->st != GATE_RUNNING)
        return gate_drain_ms(g);
    if (w->st == WRK_READY && g->paused)
        return GATE_PAUSED_RETRY_MS;
    if (w->st == WRK_READY)
        return drain_ms(&g->fair.drain, fair_mean_cost(g), g->now, GATE_RETRY_MAX_MS);
    if (w->st != WRK_STARTING)
        return 1000;
    /* Loading goes on as it went so far. */
    percent = sup_load_percent(w);
    if (percent > 0 && g->now > w->t_start) {
        uint64_t so_far = (g->now - w->t_start) / CLK_MS;
        uint64_t rest = so_far * (uint64_t)(100 - percent) / (uint64_t)percent;

        return rest < 100 ? 100 : rest > GATE_RETRY_MAX_MS ? GATE_RETRY_MAX_MS :
            (uint32_t)rest;
    }
    return 1000;
}

uint64_t
gate_draw_seed(struct gate *g)
{
    uint64_t z = g->rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* What is queued must not wait for somebody who takes the pause back. */
static void
gate_unpause(struct gate *g)
{
    if (g->paused)
        log_info("gate: no longer paused, %u requests queued", g->fair.n_queued);
    g->paused = 0;
}

int
gate_pause(struct gate *g, int on)
{
    if (g->st != GATE_RUNNING)
        return -EBUSY;
    if (!on) {
        gate_unpause(g);
    } else if (!g->paused) {
        log_info("gate: paused, %u requests with the worker go on",
            g->jnl.n_open - g->fair.n_queued);
        g->paused = 1;
    }
    return 0;
}

void
gate_drain(struct gate *g, int on)
{
    if (g->st == GATE_STOPPING || g->st == GATE_DEGRADED)
        return;
    if (on && g->st == GATE_RUNNING) {
        log_info("gate: draining, %u requests to go", g->jnl.n_open);
        gate_unpause(g);
        g->st = GATE_DRAINING;
        ses_announce(g, FDP_ST_DRAIN, FDP_EV_DRAIN, 0);
    } else if (!on && g->st == GATE_DRAINING) {
        log_info("gate: takes requests again");
        g->st = GATE_RUNNING;
        ses_announce(g, FDP_ST_RUN, g->wrk[0].st == WRK_READY ? FDP_EV_READY : 0, 0);
    }
}

/* The service manager's own stop timeout must not cut the drain short. */
static void
gate_notify_stop(uint64_t drain_ns)
{
    char text[96];

    (void)snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
        (unsigned long long)((drain_ns + GATE_STOP_CANCEL_NS + GATE_STOP_WORKER_NS +
        GATE_STOP_SPARE_NS) / 1000));
    rtd_notify(text);
}

void
gate_stop(struct gate *g, uint64_t now_ns, uint64_t timeout_ns, int exit_code)
{
    if (g->st == GATE_STOPPING) {
        if (g->stop_phase == 0 && now_ns + timeout_ns < g->stop_deadline)
            g->stop_deadline = now_ns + timeout_ns;
        return;
    }
    log_info("gate: stopping, %u requests to go", g->jnl.n_open);
    gate_unpause(g);
    gate_notify_stop(timeout_ns);
    if (g->st == GATE_DEGRADED)
        exit_code = 75;
    ses_announce(g, FDP_ST_DRAIN, FDP_EV_DRAIN, 0);
    g->st = GATE_STOPPING;
    g->stop_phase = 0;
    g->stop_deadline = now_ns + timeout_ns;
    g->n_signals++; /* a signal from now on means at once */
    g->t_stop_phase = now_ns;
    g->exit_code = -1;
    g->stop_exit = exit_code;
}

/* Every request that is left gets its terminal record here. */
static void
gate_end_all(struct gate *g, int code)
{
    struct wrk *w = &g->wrk[0];
    uint32_t retry_ms = code == FDP_E_DRAINING ? gate_retry_ms(g) : 0;

    w->sending = NULL;
    for (uint32_t i = 0; i < g->jnl.n_max; i++) {
        struct jreq *r = &g->jnl.pool[i];

        if (r->st != JNL_FREE)
            rly_end(g, r, r->st == JNL_ENDING && r->end_code != 0 ? r->end_code : code,
                retry_ms, 0, 0);
    }
    ASSERT(w->credits_used == 0);
}

void
gate_stop_now(struct gate *g, int exit_code)
{
    int code = exit_code == 0 ? FDP_E_DRAINING : FDP_E_GPU_LOST;

    g->st = GATE_STOPPING;
    g->stop_deadline = g->now;
    gate_end_all(g, code);
    rly_flush(g);
    ses_goodbye(g, code);
    g->stop_phase = 3;
    g->stop_exit = g->exit_code = exit_code;
    if (g->wrk[0].pid > 0 && !g->wrk[0].dead)
        sup_kill(g, &g->wrk[0], "the daemon ends now");
}

/* How long a degraded daemon stays to answer why. */
static uint64_t
gate_linger_ns(const struct gate *g)
{
    uint64_t ns = (uint64_t)g->par->daemon_drain_timeout_ms * CLK_MS;

    return ns < GATE_DEGRADED_NS ? ns : GATE_DEGRADED_NS;
}

void
gate_degrade(struct gate *g, uint64_t now_ns)
{
    if (g->st == GATE_STOPPING)
        return;
    g->st = GATE_DEGRADED;
    g->paused = 0;
    g->t_degraded = now_ns;
    gate_end_all(g, FDP_E_GPU_LOST);
    ses_announce(g, FDP_ST_DRAIN, FDP_EV_DOWN, 1);
    rtd_notify("STATUS=degraded: the worker died too often, see the log");
    log_error("gate: degraded; ends with exit code 75 in %llu ms",
        (unsigned long long)(gate_linger_ns(g) / CLK_MS));
}

/* Stopping in steps: wait, cancel what is left, end the worker, leave. */
static void
gate_stop_tick(struct gate *g, uint64_t now_ns)
{
    struct wrk *w = &g->wrk[0];
    uint64_t in_phase = now_ns - g->t_stop_phase;

    if (g->stop_phase == 0 && g->jnl.n_open != 0 && now_ns >= g->stop_deadline) {
        log_warn("gate: %u requests did not end in time and are cancelled",
            g->jnl.n_open);
        for (uint32_t i = 0; i < g->jnl.n_max; i++) {
            if (g->jnl.pool[i].st != JNL_FREE)
                rly_cancel(g, &g->jnl.pool[i], FDP_E_DRAINING);
        }
        g->stop_phase = 1;
        g->t_stop_phase = now_ns;
        in_phase = 0;
    }
    if (g->stop_phase == 1 && g->jnl.n_open != 0 && in_phase >= GATE_STOP_CANCEL_NS)
        gate_end_all(g, FDP_E_DRAINING);
    if (g->stop_phase <= 1 && g->jnl.n_open == 0) {
        sup_stop(g, w, now_ns, GATE_STOP_WORKER_NS);
        g->stop_phase = 2;
        g->t_stop_phase = now_ns;
    }
    if (g->stop_phase == 2 && (w->st == WRK_NONE || w->st == WRK_FAILED)) {
        rly_flush(g);
        ses_goodbye(g, FDP_E_DRAINING);
        g->stop_phase = 3;
        g->exit_code = g->stop_exit;
    }
}

/* ---- a round ------------------------------------------------------------- */

/* Would one request more have to wait, or be refused? */
static int
gate_is_full(const struct gate *g)
{
    return g->fair.cost_queued != 0 || g->jnl.n_open >= g->jnl.n_max;
}

void
gate_gauges(struct gate *g, uint64_t now_ns)
{
    const struct wrk *w = &g->wrk[0];
    const struct seg_now now = {
        .uptime_ns = now_ns - g->t_boot,
        .sessions = g->n_ses,
        .requests_queued = g->fair.n_queued,
        .requests_running = g->jnl.n_open - g->fair.n_queued,
        .journal_bytes = g->jnl.bytes,
        .queued_tokens = g->fair.cost_queued,
        .drain_rate = (uint64_t)drain_rate(&g->fair.drain, now_ns),
        .generation = w->generation,
        .worker_pid = (int32_t)w->pid,
        .model = w->st == WRK_READY ? w->ready.info.model_name : NULL,
    };

    seg_tick(g->seg, &now);
}

void
gate_tick(struct gate *g, uint64_t now_ns)
{
    g->t_tick = now_ns;
    ses_tick(g, now_ns);
    rly_deadlines(g, now_ns);
    drain_tick(&g->fair.drain, g->wrk[0].st == WRK_READY && !g->paused && gate_is_full(g),
        now_ns);
    for (uint32_t i = 0; i < g->n_wrk && g->exit_code < 0; i++)
        (void)sup_poll(g, &g->wrk[i], now_ns);
    ctl_tick(g, now_ns);
    gate_gauges(g, now_ns);
    if (g->st == GATE_STOPPING && g->stop_phase < 3)
        gate_stop_tick(g, now_ns);
    if (g->st == GATE_DEGRADED && now_ns - g->t_degraded >= gate_linger_ns(g))
        gate_stop_now(g, 75);
    if (!g->ready_notified && g->wrk[0].st == WRK_READY) {
        g->ready_notified = 1;
        rtd_notify("READY=1");
    }
    if (now_ns - g->t_notify >= CLK_S) {
        log_flush(0);
        usr_sweep(g, now_ns);
        rly_overdue(g, now_ns);
        if (g->watchdog_ns != 0)
            rtd_notify("WATCHDOG=1");
        g->t_notify = now_ns;
        if (g->jnl.n_open == 0 || (log_debug_bits & (1u << LOG_DBGI_selfcheck))) {
            gate_check(g);
            cnt_add(&g->cnt->selfchecks, 1);
        }
    }
}

int
gate_poll(struct gate *g, uint64_t now_ns)
{
    int work = 0;

    g->now = now_ns;
    for (uint32_t i = 0; i < g->n_ses; i++)
        work += itk_poll(g, g->ses[i], now_ns);
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        work += rly_poll(g, &g->wrk[i], now_ns);
        if (rly_down(g, &g->wrk[i], now_ns) != 0) {
            g->t_down = now_ns;
            work++;
        }
    }
    if (now_ns - g->t_tick >= GATE_TICK_NS)
        gate_tick(g, now_ns);
    if (g->n_doomed != 0) {
        ses_reap(g, now_ns);
        work++;
    }
    /* Cancels that this round brought must not wait for the next. */
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        if (!TAILQ_EMPTY(&g->wrk[i].cancelq) || g->wrk[i].pend != 0)
            work += rly_down(g, &g->wrk[i], now_ns);
    }
    if (g->n_holding != 0 || !TAILQ_EMPTY(&g->outq))
        rly_flush(g);
    return work + (g->n_doomed != 0);
}

/* ---- events -------------------------------------------------------------- */

static void
gate_signal(struct gate *g)
{
    struct signalfd_siginfo si;

    while (read(g->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGHUP) {
            (void)cnf_reload(g, NULL);
        } else if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT) {
            if (g->n_signals++ == 0 && g->st != GATE_STOPPING)
                gate_stop(g, g->now,
                    (uint64_t)g->par->daemon_drain_timeout_ms * CLK_MS, 0);
            else
                gate_stop_now(g, g->st == GATE_DEGRADED ? 75 : 0);
        }
    }
}

static void
gate_dispatch(struct gate *g, const struct epoll_event *e)
{
    void *obj = (void *)(uintptr_t)(e->data.u64 & ~(uint64_t)15);
    struct wrk *w = obj;
    uint64_t n;

    switch ((enum gate_ev)(e->data.u64 & 15)) {
    case GATE_EV_LISTEN:
        (void)ses_accept(g, g->now);
        break;
    case GATE_EV_ADMIN:
        (void)ctl_accept(g, g->now);
        break;
    case GATE_EV_SES:
        ses_event(g, obj, g->now);
        break;
    case GATE_EV_BELL: /* the poll that follows looks at all rings */
        if (g->spin_ns != 0 && g->wrk[0].seg != NULL)
            lnk_wake_worker(&g->wrk[0].lnk);
        break;
    case GATE_EV_CTL:
        ctl_event(g, obj, e->events, g->now);
        break;
    case GATE_EV_WRK_EFD:
        /* ours and the trusted worker's: reading cannot block */
        if (read(w->efd, &n, sizeof(n)) < 0) {
            /* another wake-up was read before */
        }
        break;
    case GATE_EV_WRK_PID:
        sup_reap(g, w);
        break;
    case GATE_EV_WRK_ADMIN:
        ctl_worker_event(g, w, g->now);
        break;
    case GATE_EV_SIGNAL:
        gate_signal(g);
        break;
    case GATE_EV_NONE:
        break;
    }
}

int
gate_events(struct gate *g, int timeout_ms)
{
    struct epoll_event ev[GATE_EVENTS];
    uint64_t now;
    int n;

    if (timeout_ms != 0)
        loopstat_sleep(&g->loop, clk_now_ns());
    n = epoll_wait(g->epfd, ev, GATE_EVENTS, timeout_ms);
    if (timeout_ms != 0) {
        now = clk_now_ns();
        loopstat_wake(&g->loop, now);
        if (n > 0)
            g->now = now;
    }
    for (int i = 0; i < n && g->exit_code < 0; i++) {
        g->ev = ev + i + 1;
        g->n_ev = n - i - 1;
        gate_dispatch(g, &ev[i]);
    }
    g->ev = NULL;
    g->n_ev = 0;
    return n;
}

/* At most max ms, and not past the next deadline of a queued request. */
static int
gate_next_ms(const struct gate *g, int max)
{
    uint64_t t = g->fair.t_next, ms;

    if (t == 0)
        return max;
    ms = t <= g->now ? 1 : (t - g->now + CLK_MS - 1) / CLK_MS;
    return ms < (uint64_t)max ? (int)ms : max;
}

/* How long nothing but an event can make a difference. */
static int
gate_sleep_ms(const struct gate *g)
{
    const struct wrk *w = &g->wrk[0];

    if (g->n_holding != 0)
        return 1; /* a client that reads again rings no bell */
    if (g->ctl.later)
        return 2;
    if (g->st == GATE_STOPPING)
        return 10;
    if (g->lsn.t_retry != 0 || g->lsn_admin.t_retry != 0)
        return gate_next_ms(g, 10);
    if (g->n_hello != 0 || (g->fair.n_queued != 0 && !g->paused) || w->st == WRK_BACKOFF)
        return gate_next_ms(g, 20);
    if (w->st != WRK_READY)
        return 100;
    /* 100 ms is the sweep that finds requests whose bell was broken by
     * their own client. */
    return gate_next_ms(g, g->n_ses != 0 ? 100 : 500);
}

static void
gate_sleep(struct gate *g)
{
    struct wrk *w = &g->wrk[0];
    int found = ses_park(g);

    if (w->seg != NULL)
        found |= lnk_gate_park(&w->lnk);
    if (!found) {
        cnt_add(&g->cnt->sleeps, 1);
        (void)gate_events(g, gate_sleep_ms(g));
    }
    ses_unpark(g);
    if (w->seg != NULL)
        lnk_gate_unpark(&w->lnk);
}

int
gate_run(struct gate *g)
{
    uint64_t t_idle = 0, t_sockets = 0;

    g->watchdog_ns = rtd_watchdog_ns();
    while (g->exit_code < 0) {
        uint64_t now = clk_now_ns();

        cnt_add(&g->cnt->loops, 1);
        loopstat_next(&g->loop, now);
        if (gate_poll(g, now) != 0) {
            g->t_traffic = t_idle = now;
            if (now - t_sockets >= GATE_POLL_SOCKETS_NS) {
                (void)gate_events(g, 0);
                t_sockets = now;
            }
            continue;
        }
        if (g->exit_code >= 0)
            break;
        if (g->spin_ns != 0 && now - t_idle < g->spin_ns &&
            now - g->t_traffic < GATE_SPIN_TRAFFIC_NS) {
            clk_relax();
            continue;
        }
        /* What went down is answered soon (accepted, refused, done): waiting
         * for it costs less than sleeping and being woken. */
        if (now - g->t_down < g->answer_ns) {
            clk_relax();
            continue;
        }
        gate_sleep(g);
        if (g->t_traffic != 0 && clk_now_ns() - g->t_traffic < GATE_SPIN_TRAFFIC_NS)
            t_idle = clk_now_ns();
    }
    return g->exit_code;
}

/* ---- configuration ------------------------------------------------------- */

void
gate_apply(struct gate *g)
{
    char bad[64];

    (void)log_apply(g->par->log_level, g->par->log_levels, g->par->log_format,
        g->par->log_rate);
    if (log_set_debug(g->par->log_debug, bad, sizeof(bad)) != 0)
        log_warn("config: log.debug: unknown bit \"%s\"", bad);
    gate_names(g);
    gate_weights(g);
    for (uint32_t i = 0; i < g->n_wrk; i++)
        sup_reload(g, &g->wrk[i]);
}

void
gate_check(const struct gate *g)
{
    OBJ_CHECK(g, GATE_MAGIC);
    ses_check(g);
    jnl_check(g);
    fair_check(g);
}
