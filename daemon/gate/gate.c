/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/notify.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/param.h"
#include "daemon/common/slice.h"
#include "daemon/common/trace.h"
#include "daemon/common/version.h"
#include "daemon/gate/listen.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/opening.h"
#include "daemon/gate/places.h"
#include "daemon/gate/relay.h"
#include "daemon/gate/rest.h"
#include "daemon/gate/statseg.h"
#include "libclient/fdproto.h"

#define GATE_TICK_NS         (2 * CLK_MS)
#define GATE_MEASURE_NS      (100 * CLK_MS)
#define GATE_MOVED_MS        1u            /* retry_after_ms when another group is up */
#define GATE_ANSWER_NS       (40 * CLK_US) /* within this time a woken worker answers */
#define GATE_SPIN_NS         (50 * CLK_US) /* for ipc.spin_us = -1, with GATE_SPIN_CPUS */
#define GATE_SPIN_CPUS       8
#define GATE_SPIN_TRAFFIC_NS (10 * CLK_MS) /* spin only for this time after traffic */
#define GATE_POLL_SOCKETS_NS (1 * CLK_MS)  /* between socket polls while busy */
#define GATE_OFFLOOP_NS      (1 * CLK_S)   /* at the end, for off-loop jobs that sleep */
#define GATE_KEPT_SHARE      128u          /* rows per reserved one, */
#define GATE_KEPT_FROM       16u           /* from this many; reserved_seqs = -1 */
#define GATE_FDS             PAR_OWN_FDS

/* ---- the modules, wired up ----------------------------------------------------- */

static void
gate_wire(struct gate *g)
{
    const struct env *env = &g->env;

    g->rql = (struct rql){ env, &g->names, &g->jnl, &g->fair };
    g->reqs = (struct reqs){ env, &g->jnl, &g->fair, &g->clients, &g->dsp, &g->rql };
    g->adm = (struct admit){ env, &g->jnl, &g->fair, &g->dsp };
    g->itk.env = g->ses.env = env;
    g->itk.clients = g->ses.clients = &g->clients;
    g->itk.reqs = g->ses.reqs = &g->reqs;
    g->itk.adm = g->ses.adm = &g->adm;
    g->ses.names = &g->names;
    g->ses.watch = &g->watch;
    g->ses.intake = &g->itk;
    g->cnf.rt = &g->rt;
    g->cnf.adm = &g->adm;
    g->cnf.names = &g->names;
    g->cnf.ses = &g->ses;
    g->cnf.fair = &g->fair;
    g->cnf.sup = g->life.sup = &g->sup;
    g->sup.names = &g->names;
    g->cnf.wrk = g->life.wrk = g->wrk;
    g->cnf.n_wrk = g->life.n_wrk = g->n_wrk;
    g->life.env = &g->env;
    g->life.adm = &g->adm;
    g->life.ses = &g->ses;
    g->life.reqs = &g->reqs;
    g->gauges = (struct gauges){ env, &g->ses, &g->jnl, &g->fair, &g->dsp, g->wrk,
        g->n_wrk, NULL };
    g->rolling.env = env;
    g->rolling.dsp = &g->dsp;
    g->rolling.sup = &g->sup;
    g->rolling.wrk = g->wrk;
    g->rolling.n_wrk = g->n_wrk;
}

/* The admin socket, which uses all other modules. */
static void
gate_wire_control(struct gate *g)
{
    struct ctl *ctl = &g->ctl;

    ctl->env = &g->env;
    ctl->rt = &g->rt;
    ctl->watch = &g->watch;
    ctl->lsn = &g->lsn_admin;
    ctl->names = &g->names;
    ctl->ses = &g->ses;
    ctl->fair = &g->fair;
    ctl->itk = &g->itk;
    ctl->gauges = &g->gauges;
    ctl->before = &g->before;
    ctl->jnl = &g->jnl;
    ctl->reqs = &g->reqs;
    ctl->life = &g->life;
    ctl->cnf = &g->cnf;
    ctl->dsp = &g->dsp;
    ctl->rolling = &g->rolling;
    ctl->wrk = g->wrk;
    ctl->n_wrk = g->n_wrk;
}

/* Initialises the modules that allocate no memory, and the workers. */
static int
gate_init(struct gate *g, struct par_set *ps, uint64_t now_ns)
{
    g->magic = GATE_MAGIC;
    g->cnf.ps = ps;
    g->env.par = par_get(ps);
    g->env.now = g->env.t_boot = now_ns;
    g->sigfd = g->crash_fd = g->seg_fd = g->watch.epfd = -1;
    g->life.exit_code = -1;
    rtd_init(&g->rt);
    cli_init(&g->clients, &g->env);
    fair_init(&g->fair);
    g->fair.fcfs = g->env.par->sched_policy == PAR_SCHED_POLICY_FCFS;
    dsp_init(&g->dsp);
    sup_init(&g->sup, &g->env, &g->rt, &g->watch);
    g->n_wrk = g->sup.n_group = (uint32_t)g->env.par->parallel_data_parallel_size;
    g->wrk = mem_aligned(_Alignof(struct wrk), g->n_wrk * sizeof(*g->wrk));
    if (g->wrk == NULL)
        g->n_wrk = 0;
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        sup_init_worker(&g->wrk[i], (int)i);
        dsp_add(&g->dsp, &g->wrk[i].link);
    }
    gate_wire(g);
    gate_wire_control(g);
    return g->wrk != NULL ? 0 : -ENOMEM;
}

struct gate *
gate_new(struct par_set *ps, uint64_t now_ns)
{
    struct gate *g = mem_aligned(128, sizeof(*g));
    const struct par *par = par_get(ps);
    uint64_t key[2];

    if (g == NULL)
        return NULL;
    if (gate_init(g, ps, now_ns) != 0)
        return gate_free(g);
    cnf_apply_users(&g->cnf);
    if (getrandom(g->env.boot_id, sizeof(g->env.boot_id), 0) != sizeof(g->env.boot_id) ||
        getrandom(key, sizeof(key), 0) != sizeof(key) || dsp_open(&g->dsp, key) != 0 ||
        getrandom(&g->itk.rng, sizeof(g->itk.rng), 0) != sizeof(g->itk.rng))
        return gate_free(g);
    if (par->sched_seed != 0)
        g->itk.rng = (uint64_t)par->sched_seed;
    if (ses_init(&g->ses) != 0 ||
        jnl_init(&g->jnl, (uint32_t)par->sched_max_concurrency) != 0 ||
        wch_init(&g->watch) != 0)
        return gate_free(g);
    return g;
}

static void
gate_set_spin(struct gate *g)
{
    long n_cpu = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t us = g->env.par->ipc_spin_us;

    if (us >= 0)
        g->cnf.spin_ns = (uint64_t)us * CLK_US;
    else
        g->cnf.spin_ns = n_cpu >= GATE_SPIN_CPUS ? GATE_SPIN_NS : 0;
    g->yields = n_cpu < GATE_SPIN_CPUS;
    if (us != 0 && n_cpu > 1)
        g->answer_ns = GATE_ANSWER_NS;
}

int
gate_open(struct gate *g)
{
    int rc = seg_open(g->env.boot_id, g->n_wrk, &g->seg, &g->seg_fd);

    if (rc != 0)
        return rc;
    g->env.cnt = &g->seg->g;
    g->ctl.seg = g->gauges.seg = g->seg;
    g->ctl.stat_fd = g->sup.stat_fd = g->seg_fd;
    loopstat_init(&g->loop, g->env.cnt, g->seg->h);
    log_count(&g->env.cnt->log_dropped);
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        rc = trc_create(g->env.boot_id, &g->trc[i], &g->wrk[i].trace_fd);
        if (rc != 0)
            return rc;
        g->trc[i]->group = i;
    }
    gate_set_spin(g);
    return 0;
}

struct gate *
gate_free(struct gate *g)
{
    if (g == NULL)
        return NULL;
    OBJ_CHECK(g, GATE_MAGIC);
    if (g->seg != NULL) {
        ctl_fini(&g->ctl);
        ses_goodbye(&g->ses, FDP_E_DISCONNECTED);
    }
    ses_fini(&g->ses);
    cli_fini(&g->clients);
    g->ofl = g->ses.ofl = ofl_free(g->ofl, GATE_OFFLOOP_NS);
    opn_sweep(&g->ses);
    region_bin_fini(&g->ses.bin);
    for (uint32_t i = 0; i < g->n_wrk && g->seg != NULL; i++) {
        rq_link_gone(&g->reqs, &g->wrk[i].link, 0, FDP_E_GPU_RESET, 0);
        sup_fini(&g->sup, &g->wrk[i]);
    }
    wch_fini(&g->watch);
    if (g->sigfd >= 0)
        (void)close(g->sigfd);
    jnl_fini(&g->jnl);
    fair_fini(&g->fair);
    dsp_fini(&g->dsp);
    (void)log_fini();
    for (uint32_t i = 0; i < g->n_wrk; i++)
        trc_destroy(g->trc[i], g->wrk[i].trace_fd);
    free(g->wrk);
    seg_close(g->seg, g->seg_fd);
    rtd_fini(&g->rt);
    (void)par_free(g->cnf.ps_file);
    (void)par_free(g->cnf.ps);
    g->magic = 0;
    free(g);
    return NULL;
}

/* ---- workers ------------------------------------------------------------------- */

/* Relays the records that a process published before it ended, or was killed. */
static void
gate_drain(struct gate *g, struct wrk *w)
{
    while (rly_poll(&g->reqs, &w->link) > 0)
        continue;
    ctl_worker_gone(&g->ctl, w);
}

/* Ends the worker's remaining requests, or moves them to another group. */
static void
gate_end(struct gate *g, struct wrk *w)
{
    uint32_t retry_ms = sup_restart_ms(w);

    w->link.up = 0;
    if (dsp_is_up(&g->dsp))
        retry_ms = GATE_MOVED_MS;
    else if (g->env.st != GATE_STOPPING)
        life_announce(&g->life, FDP_EV_DOWN);
    rq_link_gone(&g->reqs, &w->link, w->st != WRK_STOPPING, FDP_E_GPU_RESET, retry_ms);
}

/* Cleans up after a process that has ended, so that a restart finds nothing in flight. */
static void
gate_bury(struct gate *g, struct wrk *w)
{
    sup_autopsy(&g->sup, w);
    seg_worker_gone(g->seg, (uint32_t)w->idx);
    gate_drain(g, w);
    if (!w->is_over)
        gate_end(g, w);
    sup_drop_link(&g->sup, w);
    if (g->env.st == GATE_STOPPING)
        log_info("supervise: worker %d %s", w->idx, w->last_death);
}

static void
gate_after_death(struct gate *g, struct wrk *w)
{
    int exit_code = 0;

    switch (sup_after_death(&g->sup, w, &exit_code)) {
    case SUP_RESTARTS:
    case SUP_ENDED:
        break;
    case SUP_CANNOT_RUN:
        life_group_failed(&g->life, w, exit_code);
        break;
    case SUP_CRASH_LOOP:
        life_group_failed(&g->life, w, 0);
        break;
    }
}

/* Updates the credits when workers come and go or a parameter changes. */
static void
gate_grant(struct gate *g)
{
    const struct par *par = g->env.par;
    uint32_t one, credits = dsp_credits(&g->dsp, &one), n_up = dsp_n_up(&g->dsp);
    uint32_t rows = (uint32_t)par->sched_max_num_seqs * (n_up != 0 ? n_up : 1);
    int64_t kept = par->sched_reserved_seqs;

    /* No reserve if there is only one user and no other may connect. If another may, a
     * reserve made only when it connects would be late: the first user's requests at the
     * worker may take minutes. */
    if (g->fair.n_usr < 2 && !g->rt.is_shared)
        kept = 0;
    if (kept < 0)
        kept = rows < GATE_KEPT_FROM ? 0
            : rows < GATE_KEPT_SHARE ? 1
                                     : rows / GATE_KEPT_SHARE;
    /* Credits beyond the rows: requests that wait at the worker would take the rows as
     * they fall free. */
    if (kept != 0 && credits > rows)
        kept += credits - rows;
    fair_grant(&g->fair, credits, (uint32_t)kept);
    fair_grant_one(&g->fair, one);
}

/* Does this group serve the same model as the others? During a rolling restart the
 * model's files may have changed, but vocabulary and tokenizer must be the same, so that
 * queued requests keep their meaning. */
static int
gate_is_copy(const struct gate *g, const struct wrk *w)
{
    const struct fdp_info *a = &w->link.ready.info, *b;

    for (uint32_t i = 0; i < g->n_wrk; i++) {
        if (&g->wrk[i] == w || !g->wrk[i].link.up)
            continue;
        b = &g->wrk[i].link.ready.info;
        if (a->vocab != b->vocab || a->has_tokenizer != b->has_tokenizer ||
            (!rol_is_active(&g->rolling) &&
                memcmp(a->model_digest, b->model_digest, sizeof(a->model_digest)) != 0))
            return 0;
    }
    return 1;
}

static void
gate_ready(struct gate *g, struct wrk *w)
{
    if (!gate_is_copy(g, w)) {
        sup_kill(w,
            "its model is not the one that the other groups serve; fdctl reload "
            "--rolling takes a new one over, group by group");
        return;
    }
    if (g->n_wrk == 1 || dsp_n_up(&g->dsp) == 1)
        life_announce(&g->life, FDP_EV_READY);
}

static void
gate_worker(struct gate *g, struct wrk *w)
{
    switch (sup_poll(&g->sup, w)) {
    case SUP_NOTHING:
        break;
    case SUP_READY:
        gate_ready(g, w);
        break;
    case SUP_KILLED:
        gate_drain(g, w);
        gate_end(g, w);
        break;
    case SUP_DEAD:
        gate_bury(g, w);
        gate_after_death(g, w);
        break;
    case SUP_NO_START:
        gate_after_death(g, w);
        break;
    }
    gate_grant(g);
}

/* ---- an iteration -------------------------------------------------------------- */

/* Sets the end of the phase that begins now, ns after the start of the iteration. */
static void
gate_phase(struct gate *g, uint64_t ns)
{
    g->env.until = g->t_begun != 0 ? g->t_begun + ns : 0;
}

/* Sets the time limit for beginning or ending sessions: each takes 50 to 200 us, for
 * which other clients wait. */
static void
gate_piece(struct gate *g)
{
    g->env.until = g->t_begun != 0 ? clk_now_ns() + GATE_PIECE_NS : 0;
}

/* Work that is done once a second. */
static void
gate_second(struct gate *g)
{
    log_flush(0);
    usr_sweep(&g->fair, g->env.now);
    rq_overdue(&g->reqs);
    g->t_second = g->env.now;
    if (g->jnl.n_open == 0 || (log_debug_bits & (1u << LOG_DBGI_selfcheck))) {
        gate_check(g);
        cnt_add(&g->env.cnt->selfchecks, 1);
    }
}

static void
gate_accept(struct gate *g)
{
    struct ucred who;

    for (uint32_t i = 0; i < GATE_ACCEPTS; i++) {
        uint64_t t = clk_now_ns();
        int fd = lsn_accept(&g->lsn, g->rt.listen_fd, "client", g->ofl, g->env.now, &who);
        int rc;

        if (fd < 0)
            return;
        rc = ses_adopt(&g->ses, fd, who.pid, who.uid, who.gid);
        if (g->env.until != 0)
            lsn_spend(&g->lsn, clk_now_ns() - t, rc != 0, g->env.now);
        if (env_is_late(&g->env))
            break;
    }
    lsn_later(&g->lsn, g->env.now);
}

/* Work that only several groups need. */
static void
gate_tick_groups(struct gate *g)
{
    rol_tick(&g->rolling);
    if (g->env.now - g->t_measure < GATE_MEASURE_NS)
        return;
    g->t_measure = g->env.now;
    for (uint32_t i = 0; i < g->n_wrk; i++)
        dsp_measure(&g->wrk[i].link, &g->seg[i].w);
}

static void
gate_watchdog(struct gate *g)
{
    if (g->watchdog_ns == 0 || g->env.now - g->t_watchdog < g->watchdog_ns)
        return;
    ntf_send("WATCHDOG=1");
    g->t_watchdog = g->env.now;
}

static void
gate_tick(struct gate *g)
{
    uint64_t now = g->env.now;

    g->t_tick = now;
    gate_watchdog(g);
    if (lsn_due(&g->lsn, now))
        gate_accept(g);
    ses_tick(&g->ses);
    rq_deadlines(&g->reqs);
    svc_tick(&g->fair.svcrate,
        dsp_is_up(&g->dsp) && !g->env.paused && adm_is_full(&g->adm), now);
    for (uint32_t i = 0; i < g->n_wrk && g->life.exit_code < 0; i++)
        gate_worker(g, &g->wrk[i]);
    if (g->n_wrk > 1)
        gate_tick_groups(g);
    ctl_tick(&g->ctl, now);
    gau_set(&g->gauges);
    life_tick(&g->life);
    if (now - g->t_second >= CLK_S)
        gate_second(g);
}

/* Publishes the gate's own answers, and lets a client that waits for this processor see
 * its answer before the work of others goes on. Not while a step is computed: a thread that
 * computes would have the processor until the next tick of the kernel. */
static void
gate_answer(struct gate *g)
{
    int yields = g->yields && !TAILQ_EMPTY(&g->clients.outq);

    cli_publish(&g->clients);
    for (uint32_t i = 0; i < g->n_wrk && yields; i++)
        yields = !wlk_has_step(&g->wrk[i].link, g->env.now);
    if (yields)
        (void)sched_yield();
}

int
gate_poll(struct gate *g, uint64_t now_ns)
{
    int work, n;

    g->env.now = now_ns;
    gate_phase(g, GATE_INTAKE_NS);
    work = ses_poll(&g->ses);
    /* Answers of the gate itself do not wait for what a worker sent. */
    gate_answer(g);
    gate_phase(g, GATE_RELAY_NS);
    g->first_wrk = (g->first_wrk + 1) % g->n_wrk; /* the first may use it up */
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        struct wrk *w = &g->wrk[(g->first_wrk + i) % g->n_wrk];

        work += rly_poll(&g->reqs, &w->link);
        if (w->link.is_news || w->link.lnk.bad)
            gate_worker(g, w);
    }
    gate_phase(g, GATE_SEND_NS);
    n = rq_send(&g->reqs);
    if (n != 0)
        g->t_down = now_ns;
    work += n;
    gate_phase(g, GATE_TICK_END_NS);
    if (now_ns - g->t_tick >= GATE_TICK_NS) {
        uint32_t n_queued = g->fair.n_queued;

        gate_tick(g);
        work += g->fair.n_queued > n_queued; /* requeued from a dead worker */
    }
    if (g->clients.n_doomed != 0) {
        uint64_t until = g->env.until;

        gate_piece(g);
        if (until < g->env.until)
            g->env.until = until;
        ses_reap(&g->ses, 0);
        work++;
    }
    /* CANCELs of this iteration must not wait for the next. */
    if (dsp_has_due(&g->dsp) && dsp_send_due(&g->dsp) != 0) {
        dsp_flush(&g->dsp);
        work++;
    }
    work += pgs_sweep(&g->jnl.pages);
    gate_phase(g, GATE_FLUSH_NS);
    if (!TAILQ_EMPTY(&g->clients.holdq) || !TAILQ_EMPTY(&g->clients.outq))
        work += cli_flush(&g->clients);
    if (g->clients.old != NULL)
        work += cli_sweep(&g->clients);
    return work + (g->clients.n_doomed != 0);
}

/* ---- events -------------------------------------------------------------------- */

static void
gate_signal(struct gate *g)
{
    struct signalfd_siginfo si;

    while (read(g->sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGHUP)
            (void)cnf_reload(&g->cnf, NULL);
        else if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
            life_signal(&g->life);
    }
}

/* Reads a wake-up of a worker, which shares the descriptor and is trusted, or of a
 * thread. */
static void
gate_read_efd(int efd)
{
    uint64_t n;

    if (read(efd, &n, sizeof(n)) < 0) {
        /* an earlier wake-up was read with it */
    }
}

static void
gate_dispatch(struct gate *g, const struct wch_event *e)
{
    switch (e->kind) {
    case WCH_LISTEN:
        gate_accept(g);
        break;
    case WCH_ADMIN:
        (void)ctl_accept(&g->ctl, g->env.now);
        break;
    case WCH_SES:
        ses_event(&g->ses, e->obj);
        break;
    case WCH_BELL: /* the next gate_poll() reads all rings */
        ses_bell(&g->ses, e->obj);
        for (uint32_t i = 0; i < g->n_wrk && g->cnf.spin_ns != 0; i++) {
            if (wlk_is_open(&g->wrk[i].link))
                lnk_wake_worker(&g->wrk[i].link.lnk);
        }
        break;
    case WCH_CTL:
        ctl_event(&g->ctl, e->obj, e->events, g->env.now);
        break;
    case WCH_WRK_EFD:
        gate_read_efd(((const struct wrk *)e->obj)->efd);
        break;
    case WCH_WRK_PID:
        sup_reap(&g->sup, e->obj);
        break;
    case WCH_WRK_ADMIN:
        ctl_worker_event(&g->ctl, e->obj, g->env.now);
        break;
    case WCH_SIGNAL:
        gate_signal(g);
        break;
    case WCH_OFL:
        gate_read_efd(ofl_fd(g->ofl));
        ses_off_done(&g->ses);
        break;
    case WCH_NONE:
        break;
    }
}

/* Handles some events of the last wait. */
static void
gate_handle(struct gate *g)
{
    struct wch_event e;
    uint32_t n = 0;

    if (wch_has_more(&g->watch))
        gate_piece(g);
    while (n < GATE_EVENTS && g->life.exit_code < 0 && wch_next(&g->watch, &e)) {
        gate_dispatch(g, &e);
        if (e.kind != WCH_BELL && e.kind != WCH_NONE && (++n, env_is_late(&g->env)))
            break;
    }
}

int
gate_events(struct gate *g, int timeout_ms)
{
    int n;

    if (wch_has_more(&g->watch)) {
        gate_handle(g);
        return 1;
    }
    if (timeout_ms != 0)
        loopstat_sleep(&g->loop, clk_now_ns());
    n = wch_wait(&g->watch, timeout_ms);
    if (timeout_ms != 0) {
        uint64_t now = clk_now_ns();

        loopstat_wake(&g->loop, now);
        if (n > 0)
            g->env.now = now;
    }
    gate_handle(g);
    return n;
}

/* ---- the loop ------------------------------------------------------------------ */

/* Milliseconds until t, 1 to max; t 0: max. */
static int
gate_until_ms(const struct gate *g, uint64_t t, int max)
{
    uint64_t ms;

    if (t == 0)
        return max;
    ms = t <= g->env.now ? 1 : (t - g->env.now + CLK_MS - 1) / CLK_MS;
    return ms < (uint64_t)max ? (int)ms : max;
}

/* How long to sleep, leaving aside request deadlines and paused rings. */
static int
gate_idle_ms(const struct gate *g)
{
    int waits = 0, down = 0, reaps = 0;

    for (uint32_t i = 0; i < g->n_wrk; i++) {
        waits |= g->wrk[i].st == WRK_BACKOFF;
        reaps |= g->wrk[i].exit != NULL;
        down |= !g->wrk[i].link.up && !g->wrk[i].link.is_failed;
    }
    /* No doorbell signals that a client reads again, or that a link has room again. */
    if (!TAILQ_EMPTY(&g->clients.holdq) || dsp_is_sending(&g->dsp))
        return 1;
    if (g->ctl.later || reaps || region_bin_has_dying(&g->ses.bin))
        return 2;
    if (g->env.st == GATE_STOPPING)
        return 10;
    if (lsn_is_late(&g->lsn, g->env.now) || lsn_is_late(&g->lsn_admin, g->env.now))
        return 1;
    if (g->lsn.t_retry != 0 || g->lsn_admin.t_retry != 0)
        return 10;
    if (g->clients.n_hello != 0 || rol_is_active(&g->rolling) ||
        (g->fair.n_queued != 0 && !g->env.paused) || waits)
        return 20;
    if (down)
        return 100;
    /* 100 ms: a periodic look for requests whose own client broke its doorbell. */
    return g->ses.n != 0 ? 100 : 500;
}

/* How long to sleep for events: not past the next deadline of a request, nor past the
 * time at which a paused ring is read again, or the service manager expects a message. */
static int
gate_sleep_ms(const struct gate *g)
{
    uint64_t t_watchdog = g->watchdog_ns != 0 ? g->t_watchdog + g->watchdog_ns : 0;
    int ms = gate_until_ms(g, t_watchdog, gate_idle_ms(g));

    return gate_until_ms(g, g->fair.t_next, gate_until_ms(g, g->ses.t_read, ms));
}

static void
gate_sleep(struct gate *g)
{
    int found = ses_park(&g->ses);

    for (uint32_t i = 0; i < g->n_wrk; i++) {
        /* after an impossible record the link is not read any more */
        if (g->wrk[i].link.seg != NULL && !g->wrk[i].link.lnk.bad)
            found |= lnk_gate_park(&g->wrk[i].link.lnk);
    }
    if (!found)
        cnt_add(&g->env.cnt->sleeps, 1);
    (void)gate_events(g, found ? 0 : gate_sleep_ms(g));
    ses_unpark(&g->ses);
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        if (g->wrk[i].link.seg != NULL)
            lnk_gate_unpark(&g->wrk[i].link.lnk);
    }
}

int
gate_run(struct gate *g)
{
    uint64_t t_idle = 0, t_sockets = 0;

    g->watchdog_ns = rtd_watchdog_ns();
    while (g->life.exit_code < 0) {
        uint64_t now = clk_now_ns();

        cnt_add(&g->env.cnt->loops, 1);
        loopstat_next(&g->loop, now);
        g->t_begun = now;
        if (g->env.cnt->loop_switches != g->switches) {
            g->switches = g->env.cnt->loop_switches;
            rst_watch(&g->ses);
        }
        if (gate_poll(g, now) != 0) {
            g->t_traffic = t_idle = now;
            if (wch_has_more(&g->watch) || now - t_sockets >= GATE_POLL_SOCKETS_NS) {
                (void)gate_events(g, 0);
                t_sockets = now;
            }
            continue;
        }
        if (g->life.exit_code >= 0)
            break;
        if (wch_has_more(&g->watch)) {
            (void)gate_events(g, 0);
            continue;
        }
        if (g->cnf.spin_ns != 0 && now - t_idle < g->cnf.spin_ns &&
            now - g->t_traffic < GATE_SPIN_TRAFFIC_NS) {
            clk_relax();
            continue;
        }
        /* A record to a worker is answered soon (accepted, rejected, done): to poll for
         * the answer costs less than to sleep and be woken. */
        if (now - g->t_down < g->answer_ns) {
            clk_relax();
            continue;
        }
        gate_sleep(g);
        if (g->t_traffic != 0 && clk_now_ns() - g->t_traffic < GATE_SPIN_TRAFFIC_NS)
            t_idle = clk_now_ns();
    }
    return g->life.exit_code;
}

void
gate_check(const struct gate *g)
{
    OBJ_CHECK(g, GATE_MAGIC);
    ses_check(&g->ses);
}

/* ---- from start to end --------------------------------------------------------- */

/* Raises the limit of descriptors for as many sessions as a reload may allow. If it stays
 * lower, fewer sessions are allowed, so that some descriptors are left for
 * administrators. */
static void
gate_limits(struct gate *g)
{
    struct rlimit rl;
    rlim_t need = par_descriptors(g->env.par);
    rlim_t most = ((rlim_t)SES_MAX + PLC_KEPT) * SES_FDS + GATE_FDS;

    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return;
    if (rl.rlim_cur < most) {
        rl.rlim_cur = rl.rlim_max < most ? rl.rlim_max : most;
        (void)setrlimit(RLIMIT_NOFILE, &rl);
    }
    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return;
    if (rl.rlim_cur < need)
        log_warn("gate: at most %llu descriptors, ipc.max_clients wants %llu; raise "
                 "LimitNOFILE",
            (unsigned long long)rl.rlim_cur, (unsigned long long)need);
    if (rl.rlim_cur < (rlim_t)g->ses.max * SES_FDS + GATE_FDS)
        g->ses.max = rl.rlim_cur > GATE_FDS + SES_FDS
            ? (uint32_t)(rl.rlim_cur - GATE_FDS) / SES_FDS
            : 1;
}

/* The kernel's table of descriptors grows with the first descriptor that does not fit,
 * and in a process with threads that call waits for all CPUs. So it is grown here for all
 * that will be used, and not by accept4(). */
static void
gate_grow_table(const struct par *par, int any_fd)
{
    struct rlimit rl;
    rlim_t n = (rlim_t)par->ipc_max_clients * (SES_FDS + 2) + GATE_FDS;
    int fd;

    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < n)
        n = rl.rlim_cur;
    fd = fcntl(any_fd, F_DUPFD_CLOEXEC, (int)n - 1);
    if (fd >= 0)
        (void)close(fd);
}

static int
gate_signals(struct gate *g)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    g->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (g->sigfd < 0)
        return -errno;
    return wch_add(&g->watch, g->sigfd, EPOLLIN, WCH_SIGNAL, NULL);
}

/* Opens the runtime folder and the sockets in it. Returns 0 or an exit code. */
static int
gate_open_runtime(struct gate *g)
{
    const struct par *par = g->env.par;
    char err[RTD_ERR_BYTES] = "";
    int rc;

    rtd_groups(&g->rt, par);
    rc = rtd_open_dir(&g->rt, par, err, sizeof(err));
    if (rc == 0) {
        g->crash_fd = crs_open(g->rt.dir, &g->before);
        if (g->before.program[0] != '\0')
            log_warn("gate: the daemon before did not end well: %s (pid %lld): %s; fdctl "
                     "status tells more",
                g->before.program, (long long)g->before.pid, g->before.how);
        rc = rtd_open_sockets(&g->rt, par, err, sizeof(err));
    }
    if (rc != 0)
        log_error("gate: %s", err);
    return rc;
}

/* 0 or an exit code. */
static int
gate_open_segments(struct gate *g)
{
    int rc = gate_open(g);

    if (rc == 0)
        return 0;
    log_error("gate: cannot make the statistics and trace segments: %s", strerror(-rc));
    return EX_OSERR;
}

/* 0 or an exit code. */
static int
gate_open_events(struct gate *g)
{
    int rc;

    /* Slots for twice the descriptors that can be open: per session two regions to make,
     * to empty and to close, one of them to seal, and the client's descriptors and the
     * socket to close. */
    g->ofl = ofl_new((uint32_t)g->env.par->ipc_max_clients * 9 * 2 + GATE_FDS);
    g->ses.ofl = g->ctl.ofl = g->sup.ofl = g->itk.ofl = g->ofl;
    if (g->ofl == NULL) {
        log_error("gate: cannot start the thread that closes sockets");
        return EX_OSERR;
    }
    rc = gate_signals(g);
    if (rc == 0)
        rc = wch_add(&g->watch, ofl_fd(g->ofl), EPOLLIN, WCH_OFL, NULL);
    if (rc == 0)
        rc = wch_add(&g->watch, g->rt.listen_fd, LSN_EVENTS, WCH_LISTEN, NULL);
    if (rc == 0)
        rc = wch_add(&g->watch, g->rt.admin_fd, LSN_EVENTS, WCH_ADMIN, NULL);
    if (rc == 0)
        return 0;
    log_error("gate: cannot watch the sockets: %s", strerror(-rc));
    return EX_OSERR;
}

/* 0 or an exit code. */
static int
gate_start_workers(struct gate *g)
{
    g->env.now = clk_now_ns();
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        struct wrk *w = &g->wrk[i];
        int rc = sup_start(&g->sup, w);

        if (rc != 0) {
            log_error("supervise: %s%s%s", w->error, w->fix[0] != '\0' ? "; fix: " : "",
                w->fix);
            return rc == -ENOENT || rc == -EACCES ? EX_CONFIG : EX_OSERR;
        }
    }
    return 0;
}

/* Prepares everything needed before the first client. Returns 0 or an exit code. */
static int
gate_begin(struct gate *g)
{
    int rc = gate_open_runtime(g);

    if (rc == 0)
        rc = gate_open_segments(g);
    if (rc == 0)
        rc = gate_open_events(g);
    if (rc != 0)
        return rc;
    /* The workers inherit this; the log's thread and those of offloop do not have it. */
    if (slc_set(SLC_NS) != 0)
        log_debug("gate: no shorter slices: a kernel before 6.12");
    log_info("gate: fdd %s, pid %d, clients at %s", ver_text(), (int)getpid(), g->rt.socket);
    return gate_start_workers(g);
}

/* The crash to record for the next daemon: of the worker that died last. */
static const struct crs *
gate_last_crash(const struct gate *g)
{
    const struct crs *last = &g->wrk[0].crash;

    for (uint32_t i = 1; i < g->n_wrk; i++) {
        if (g->wrk[i].crash.t_end_s > last->t_end_s)
            last = &g->wrk[i].crash;
    }
    return last;
}

int
gate_serve(struct par_set *ps, const struct gate_opts *o)
{
    struct gate *g = gate_new(ps, clk_now_ns());
    int rc;

    if (g == NULL) {
        log_error("gate: no memory for sched.max_concurrency requests");
        return EX_OSERR;
    }
    g->cnf.src = *o->src;
    g->rt.is_named = o->is_named;
    if (o->instance != NULL)
        (void)snprintf(g->rt.instance, sizeof(g->rt.instance), "%s", o->instance);
    if (log_start(NULL) != 0)
        log_warn("log: no writer thread; a slow reader of the log will block fdd");
    gate_limits(g);
    gate_grow_table(g->env.par, g->watch.epfd);
    rc = gate_begin(g);
    if (rc == 0)
        rc = gate_run(g);
    log_info("gate: ends with exit code %d", rc);
    crs_close(g->rt.dir, g->crash_fd, rc != 0 ? gate_last_crash(g) : NULL);
    (void)gate_free(g);
    return rc;
}
