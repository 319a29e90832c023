/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/notify.h"
#include "http/conn.h"
#include "http/gen.h"

#define LOOP_TICK_MS  250
#define LOOP_IDLE_MS  1000
#define LOOP_EVENTS   256
#define LOOP_ACCEPT   64  /* connections of a listener in an iteration */
#define LOOP_DISPATCH 64  /* looks into the session in an iteration */
#define LOOP_LOOK_MS  500 /* between looks for a daemon that is not ready */

static uint64_t
clock_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static int
watch(const struct gw *g, int fd, void *tag)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = tag };

    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -errno;
}

/* ---- fdd ------------------------------------------------------------------------------- */

static void look_done(struct link_job *job);

static void
look(struct gw *g)
{
    struct link_job *job;

    if (g->link.looking || g->now_ms < g->link.look_at_ms)
        return;
    job = link_job_new(LNK_LOOK, look_done, g);
    g->link.look_at_ms = g->now_ms + LOOP_LOOK_MS;
    if (job == NULL)
        return;
    job->want_main = g->link.main == NULL;
    g->link.looking = 1;
    link_ask(&g->link, job);
}

static void
take_main(struct gw *g, struct link_job *job)
{
    if (job->main == NULL)
        return;
    if (g->link.main != NULL || watch(g, fdc_fd(job->main), &g->link) != 0) {
        fdc_close(job->main);
        return;
    }
    g->link.main = job->main;
    log_info("http: connected to fdd at %s",
        g->link.path[0] != '\0' ? g->link.path : fdc_default_socket());
    gen_submit_waiting(g);
}

static void
look_done(struct link_job *job)
{
    struct gw *g = job->arg;

    g->link.looking = 0;
    take_main(g, job);
    if (job->rc != 0 && g->link.main == NULL)
        log_debug("http: no connection to fdd: %s", fdc_strerror(job->rc));
    if (job->rc == 0 && job->info.vocab != 0) {
        g->link.model = job->info;
        (void)model_set(&g->model, g->par, job);
        g->link.look_at_ms = UINT64_MAX;
    } else if (job->rc == 0) {
        g->link.model.vocab = 0;
    }
    link_job_free(job);
}

static void
lost(struct gw *g, int status)
{
    log_warn("http: the connection to fdd is lost: %s", fdc_strerror(status));
    gen_fail_waiting(g, FDC_E_DISCONNECTED);
    fdc_close(g->link.main);
    g->link.main = NULL;
    g->link.model.vocab = 0;
    g->link.look_at_ms = g->now_ms + LOOP_LOOK_MS / 5;
}

/* All records of one request. */
static void
take_request(fdc_req_t *r, int *ret_room)
{
    struct prompt *p = fdc_req_user(r);
    struct fdc_event ev = FDC_EVENT_INIT;

    while (fdc_next(r, &ev, 0) == 1)
        gen_event(p, &ev);
    if (!p->is_over)
        return;
    p->r = NULL;
    fdc_req_free(r);
    *ret_room = 1;
}

/* 1: there is more. */
static int
take_records(struct gw *g)
{
    int room = 0, n = 0;

    for (int i = 0; i < LOOP_DISPATCH && g->link.main != NULL; i++) {
        fdc_req_t *r;

        n = fdc_dispatch(g->link.main);
        if (n <= 0)
            break;
        while (fdc_wait_any(g->link.main, &r, 0) == 1)
            take_request(r, &room);
    }
    if (n < 0)
        lost(g, n);
    else if (room)
        gen_submit_waiting(g);
    return n > 0;
}

/* A worker that comes back may have another model. */
static void
watch_worker(struct gw *g)
{
    uint32_t flags = 0;

    if (g->link.main == NULL || fdc_state(g->link.main, &flags) < 0)
        return;
    if ((flags & (FDC_S_DOWN | FDC_S_RECONNECTING)) != 0 && g->link.model.vocab != 0) {
        g->link.model.vocab = 0;
        g->link.look_at_ms = g->now_ms + LOOP_LOOK_MS;
    }
}

/* ---- connections ------------------------------------------------------------------------ */

static void
take_connections(struct gw *g, unsigned i)
{
    for (int k = 0; k < LOOP_ACCEPT && g->n_conn < g->par->http_max_connections; k++) {
        int fd = accept4(g->lis.fd[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                log_warn("http: no descriptor is left for a connection");
            return;
        }
        conn_new(g, fd, g->lis.is_unix[i]);
    }
}

/* While all places are taken, connections wait in the kernel. */
static void
watch_listeners(struct gw *g)
{
    int is_full = g->draining || g->n_conn >= g->par->http_max_connections;

    if (is_full == g->is_full)
        return;
    g->is_full = is_full;
    for (unsigned i = 0; i < g->lis.n; i++) {
        if (is_full)
            (void)epoll_ctl(g->epoll, EPOLL_CTL_DEL, g->lis.fd[i], NULL);
        else
            (void)watch(g, g->lis.fd[i], &g->lis.fd[i]);
    }
}

/* What became dirty meanwhile waits for the next iteration. 1: there is some. */
static int
flush(struct gw *g)
{
    struct conn *c = g->dirty, *next;

    g->dirty = NULL;
    for (; c != NULL; c = next) {
        next = c->next_dirty;
        c->is_dirty = 0;
        conn_flush(c);
    }
    return g->dirty != NULL;
}

static void
bury(struct gw *g)
{
    struct conn *c, *next, **at = &g->dirty;

    while (*at != NULL) /* the dead are sent nothing */
        if ((*at)->is_dead)
            *at = (*at)->next_dirty;
        else
            at = &(*at)->next_dirty;
    for (c = g->dead; c != NULL; c = next) {
        next = c->next_dead;
        conn_free(c);
    }
    g->dead = NULL;
}

static void
tick(struct gw *g)
{
    struct conn *next;

    for (struct conn *c = g->conns; c != NULL; c = next) {
        next = c->next;
        conn_tick(c);
    }
    watch_worker(g);
}

/* ---- signals ------------------------------------------------------------------------------- */

static void
reload(struct gw *g)
{
    struct par_set *ps = par_new();
    struct par_say say = { .text = NULL };
    const char *text = NULL;
    char err[512];
    int is_error, rc = ps == NULL ? -ENOMEM : par_load(ps, &g->src, &say);

    while ((text = par_say_next(&say, text, &is_error)) != NULL)
        log_warn("config: %s", text);
    par_say_clear(&say);
    if (rc == 0 && par_reload_check(g->ps, ps, err, sizeof(err)) != 0) {
        log_error("config: %s", err);
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = keys_read(&g->keys, g->par->keys_file, err, sizeof(err));
        if (rc != 0)
            log_error("config: %s", err);
    }
    if (rc == 0) {
        int n = par_reload(g->ps, ps);

        log_info("config: read again, %d values changed, %zu keys", n, g->keys.n);
        (void)log_apply((enum par_log_level)g->par->log_level, "",
            (enum par_log_format)g->par->log_format, g->par->log_rate);
        g->link.look_at_ms = g->now_ms; /* names and template */
    } else {
        log_error("config: nothing has changed");
    }
    (void)par_free(ps);
}

static void
take_signal(struct gw *g)
{
    struct signalfd_siginfo si;

    if (read(g->signals, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    if (si.ssi_signo == SIGHUP) {
        reload(g);
        return;
    }
    if (g->draining) {
        g->drain_until_ms = g->now_ms; /* twice: now */
        return;
    }
    g->draining = 1;
    g->drain_until_ms = g->now_ms + (uint64_t)g->par->http_drain_timeout_ms;
    ntf_send("STOPPING=1");
    log_info("http: ending, %u connections", g->n_conn);
    watch_listeners(g);
    lis_close(&g->lis);
}

/* ---- loop ----------------------------------------------------------------------------------- */

static void
take_event(struct gw *g, const struct epoll_event *ev)
{
    int *fd = ev->data.ptr;

    if (fd >= g->lis.fd && fd < g->lis.fd + LIS_MAX)
        take_connections(g, (unsigned)(fd - g->lis.fd));
    else if (ev->data.ptr == &g->signals)
        take_signal(g);
    else if (ev->data.ptr == &g->link.wake)
        link_take(&g->link);
    else if (ev->data.ptr != &g->link) /* that one is looked at anyway */
        conn_event(ev->data.ptr, ev->events);
}

static int
is_over(const struct gw *g)
{
    return g->draining && (g->n_conn == 0 || g->now_ms >= g->drain_until_ms);
}

void
loop_run(struct gw *g)
{
    struct epoll_event ev[LOOP_EVENTS];
    uint64_t ticked = 0;
    int more = 0;

    while (!is_over(g)) {
        int wait = more ? 0
            : g->n_conn > 0 || g->link.main == NULL
            ? LOOP_TICK_MS
            : LOOP_IDLE_MS;
        int n = epoll_wait(g->epoll, ev, LOOP_EVENTS, wait);

        g->now_ms = clock_ms();
        for (int i = 0; i < n; i++)
            take_event(g, &ev[i]);
        more = take_records(g);
        if (g->now_ms - ticked >= LOOP_TICK_MS) {
            ticked = g->now_ms;
            tick(g);
        }
        look(g);
        more |= flush(g);
        /* What was flushed may have begun a request, or ended one. */
        more |= take_records(g);
        more |= g->dirty != NULL;
        bury(g);
        watch_listeners(g);
    }
    if (g->n_conn > 0)
        log_warn("http: %u connections are cut at the end of http.drain_timeout_ms",
            g->n_conn);
}

static int
open_signals(struct gw *g)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    g->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return g->signals < 0 ? -errno : watch(g, g->signals, &g->signals);
}

static void
more_descriptors(const struct gw *g)
{
    struct rlimit r;
    rlim_t want = (rlim_t)g->par->http_max_connections + 64;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return;
    r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < want)
        log_warn("http: this process may have %llu descriptors, fewer than "
                 "http.max_connections = %lld needs; fix: LimitNOFILE, or a smaller number",
            (unsigned long long)r.rlim_cur, (long long)g->par->http_max_connections);
}

int
loop_open(struct gw *g)
{
    char err[512] = "";
    int rc;

    g->now_ms = clock_ms();
    g->signals = g->link.wake = -1;
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0 || open_signals(g) != 0) {
        log_error("http: %s", strerror(errno));
        return EX_OSERR;
    }
    more_descriptors(g);
    if (keys_read(&g->keys, g->par->keys_file, err, sizeof(err)) != 0) {
        log_error("config: %s", err);
        return EX_CONFIG;
    }
    rc = lis_open(&g->lis, g->par, err, sizeof(err));
    if (rc != 0) {
        log_error("http: %s", err);
        return rc == -EINVAL ? EX_CONFIG : rc == -EACCES ? EX_NOPERM : EX_UNAVAILABLE;
    }
    for (unsigned i = 0; i < g->lis.n && rc == 0; i++)
        rc = watch(g, g->lis.fd[i], &g->lis.fd[i]);
    if (rc == 0)
        rc = link_init(&g->link, g->par->daemon_socket);
    if (rc == 0)
        rc = watch(g, g->link.wake, &g->link.wake);
    if (rc != 0) {
        log_error("http: %s", strerror(-rc));
        return EX_OSERR;
    }
    if (!g->keys.in_use)
        log_warn("http: no keys: every program of this machine may ask");
    ntf_send("READY=1");
    return 0;
}

void
loop_close(struct gw *g)
{
    while (g->conns != NULL)
        conn_kill(g->conns);
    g->dirty = NULL;
    bury(g);
    link_fini(&g->link);
    live_fini(&g->live);
    sta_fini(&g->stats);
    lis_close(&g->lis);
    model_fini(&g->model);
    keys_fini(&g->keys);
    if (g->signals >= 0)
        (void)close(g->signals);
    if (g->epoll >= 0)
        (void)close(g->epoll);
}
