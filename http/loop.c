/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/loop_priv.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "http/conn.h"
#include "http/gen.h"

#define LOOP_TICK_MS  250
#define LOOP_IDLE_MS  1000
#define LOOP_EVENTS   64
#define LOOP_ACCEPT   16   /* most connections of a listener accepted in an iteration */
#define LOOP_ENDS     16   /* most connections ended by a deadline in an iteration */
#define LOOP_DISPATCH 64   /* most calls of fdc_dispatch() per session and iteration */
#define LOOP_LOOK_MS  500  /* between LOOK jobs for a daemon that is not ready */
#define LOOP_LINK     1ull /* in epoll's data: marks a link's address, which is even */

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

/* Watch a listener. A connection wakes only one of the loops that share the socket. */
static int
watch_listener(struct gw *g, unsigned i)
{
    struct epoll_event ev = { .events = EPOLLIN | (g->lis.is_shared[i] ? EPOLLEXCLUSIVE : 0),
        .data.ptr = &g->lis.fd[i] };

    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->lis.fd[i], &ev) == 0 ? 0 : -errno;
}

/* ---- fdd ------------------------------------------------------------------------------- */

static void look_done(struct link_job *job);

static void
look(struct gw *g, struct link *l)
{
    struct link_job *job;

    if (l->looking || l->is_leaving || g->now_ms < l->look_at_ms)
        return;
    job = link_job_new(LNK_LOOK, look_done, l);
    l->look_at_ms = g->now_ms + LOOP_LOOK_MS;
    if (job == NULL)
        return;
    job->want_main = l->main == NULL;
    l->looking = 1;
    link_ask(l, job);
}

static void
take_main(struct gw *g, struct link *l, struct link_job *job)
{
    struct epoll_event ev = { .events = EPOLLIN,
        .data.u64 = (uint64_t)(uintptr_t)l | LOOP_LINK };

    if (job->main == NULL || l->main != NULL ||
        epoll_ctl(g->epoll, EPOLL_CTL_ADD, fdc_fd(job->main), &ev) != 0)
        return;
    l->main = job->main;
    job->main = NULL;
    log_info("http: connected to fdd at %s", link_path(l));
    gen_submit_waiting(l);
}

static void
take_model(struct link *l, struct link_job *job)
{
    struct model *m = model_new(&l->conf);

    if (m == NULL)
        return;
    (void)model_set(m, &l->conf, job);
    model_unref(l->served);
    l->served = m;
    l->model = job->info;
    l->is_trusted = job->is_trusted;
    l->look_at_ms = UINT64_MAX;
}

static void
look_done(struct link_job *job)
{
    struct link *l = job->arg;

    l->looking = 0;
    take_main(l->g, l, job);
    if (job->rc != 0 && l->main == NULL)
        log_debug("http: no connection to fdd at %s: %s", link_path(l),
            fdc_strerror(job->rc));
    if (job->rc == 0 && job->info.vocab != 0)
        take_model(l, job);
    else if (job->rc == 0)
        l->model.vocab = 0;
    link_job_free(job);
}

static void
lost(struct gw *g, struct link *l, int status)
{
    log_warn("http: the connection to fdd at %s is lost: %s", link_path(l),
        fdc_strerror(status));
    gen_fail_waiting(l, FDC_E_DISCONNECTED);
    fdc_close(l->main);
    l->main = NULL;
    l->model.vocab = 0;
    l->look_at_ms = g->now_ms + LOOP_LOOK_MS / 5;
}

/* Handle all available records of one request. */
static void
take_request(fdc_req_t *r)
{
    struct prompt *p = fdc_req_user(r);
    struct fdc_event ev = FDC_EVENT_INIT;

    while (fdc_next(r, &ev, 0) == 1) {
        gen_event(p, &ev);
        if (!ev.more)
            break;
    }
    if (!p->is_over)
        return;
    p->r = NULL;
    fdc_req_free(r);
}

/* Handle the records of a session. Returns 1 if there are more. */
static int
take_records(struct gw *g, struct link *l)
{
    int n = 0;

    l->is_touched = 0;
    for (int i = 0; i < LOOP_DISPATCH && l->main != NULL; i++) {
        fdc_req_t *r;

        n = fdc_dispatch(l->main);
        if (n <= 0)
            break;
        while (fdc_wait_any(l->main, &r, 0) == 1)
            take_request(r);
    }
    /* room also comes from requests that were dropped, of which no record is handled */
    if (n < 0)
        lost(g, l, n);
    else
        gen_submit_waiting(l);
    return n > 0;
}

/* Handle the records of all sessions, or, with touched, of those in which requests have
 * begun or ended since. Returns 1 if there are more. */
static int
take_all_records(struct gw *g, int touched)
{
    int more = 0;

    for (struct link *l = g->links; l != NULL; l = l->next)
        if (!touched || l->is_touched)
            more |= take_records(g, l);
    return more;
}

/* While the worker is down the model is unknown: a restarted one may have another. */
static void
watch_worker(struct gw *g, struct link *l)
{
    uint32_t flags = 0;

    if (l->main == NULL || fdc_state(l->main, &flags) < 0)
        return;
    if ((flags & (FDC_S_DOWN | FDC_S_RECONNECTING)) != 0 && l->model.vocab != 0) {
        l->model.vocab = 0;
        l->look_at_ms = g->now_ms + LOOP_LOOK_MS;
    }
}

/* ---- which daemons ---------------------------------------------------------------------- */

/* Free a link whose thread has ended. */
static void
link_ended(struct post *p)
{
    struct link *l = (struct link *)(void *)((char *)p - offsetof(struct link, ended));
    struct link **at = &l->g->links;

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    link_free(l);
}

static const struct served *
served_of(const struct gw *g, const struct link *l)
{
    for (size_t i = 0; i < g->sh->served.n; i++) {
        const struct served *s = &g->sh->served.s[i];

        if (strcmp(s->label, l->conf.label) == 0 && strcmp(s->socket, l->conf.socket) == 0)
            return s;
    }
    return NULL;
}

static struct link *
link_of(const struct gw *g, const struct served *s)
{
    for (struct link *l = g->links; l != NULL; l = l->next)
        if (!l->is_leaving && served_of(g, l) == s)
            return l;
    return NULL;
}

/* Take over changed names, template and format; the session stays. The helper thread
 * reads only the socket's path of conf. */
static void
change(struct link *l, const struct served *s)
{
    memcpy(l->conf.names, s->names, sizeof(s->names));
    memcpy(l->conf.template, s->template, sizeof(s->template));
    memcpy(l->conf.parser, s->parser, sizeof(s->parser));
}

void
loop_follow(struct gw *g)
{
    struct link **end = &g->links;

    g->links_of = g->sh->version;
    for (struct link *l = g->links; l != NULL; l = l->next) {
        const struct served *s = served_of(g, l);

        if (s == NULL && !l->is_leaving) {
            l->is_leaving = 1;
            log_info("http: model %s at %s is served no more", l->conf.label, link_path(l));
        } else if (!l->is_leaving) {
            change(l, s);
            l->look_at_ms = g->now_ms; /* its files may have changed, too */
        }
    }
    for (size_t i = 0; i < g->sh->served.n; i++) {
        struct link *l = link_of(g, &g->sh->served.s[i]);

        if (l == NULL)
            l = link_new(g, &g->sh->served.s[i], link_ended);
        else
            continue;
        if (l == NULL) {
            log_error("http: no memory for model %s", g->sh->served.s[i].label);
            continue;
        }
        while (*end != NULL)
            end = &(*end)->next;
        *end = l;
    }
}

/* Start LOOK jobs that are due, and end links that are leaving and have no
 * request left. */
static void
tend_links(struct gw *g)
{
    for (struct link *l = g->links; l != NULL; l = l->next) {
        look(g, l);
        if (l->is_leaving && l->n_gen == 0 && !l->is_ended) {
            l->is_ended = 1;
            link_end(l);
        }
    }
}

static int
all_connected(const struct gw *g)
{
    for (const struct link *l = g->links; l != NULL; l = l->next)
        if (l->main == NULL || l->model.vocab == 0)
            return 0;
    return 1;
}

/* ---- connections ------------------------------------------------------------------------ */

static int
is_full(const struct gw *g)
{
    return atomic_load_explicit(&g->sh->n_conn, memory_order_relaxed) >=
        (uint64_t)g->par->http_max_connections;
}

static void
take_connections(struct gw *g, unsigned i)
{
    for (int k = 0; k < LOOP_ACCEPT && !is_full(g); k++) {
        int fd = accept4(g->lis.fd[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                log_warn("http: no connection can be accepted: %s", strerror(errno));
                g->is_short = 1; /* else the listening socket would wake the loop at once */
            }
            return;
        }
        conn_new(g, fd, g->lis.is_unix[i]);
    }
}

/* Stop accepting while there are http.max_connections, or until the next tick if there
 * was no descriptor for one: further ones wait in the kernel. */
static void
watch_listeners(struct gw *g)
{
    int full = g->draining || g->is_short || is_full(g);

    if (full == g->is_full)
        return;
    g->is_full = full;
    for (unsigned i = 0; i < g->lis.n; i++) {
        if (full)
            (void)epoll_ctl(g->epoll, EPOLL_CTL_DEL, g->lis.fd[i], NULL);
        else
            (void)watch_listener(g, i);
    }
}

/* Fill and send the output of all dirty connections, in groups. The sends of a group
 * follow each other directly: otherwise a client that reads many streams would fall
 * asleep between two sends, and the second would have to wake it. Connections that become
 * dirty meanwhile wait for the next iteration. Returns 1 if there are any. */
static int
flush(struct gw *g)
{
    struct conn *c = STAILQ_FIRST(&g->dirty), *group[GW_FLUSH];

    STAILQ_INIT(&g->dirty);
    while (c != NULL) {
        unsigned n = 0;

        for (; c != NULL && n < GW_FLUSH; n++) {
            group[n] = c;
            c = STAILQ_NEXT(c, next_dirty);
            if (c != NULL) {
                __builtin_prefetch(STAILQ_NEXT(c, next_dirty));
                __builtin_prefetch(c->work);
            }
            conn_fill(group[n]);
        }
        for (unsigned i = 0; i < n; i++)
            conn_send(group[i]);
    }
    return !STAILQ_EMPTY(&g->dirty);
}

static void
bury(struct gw *g)
{
    struct conn_list lives = STAILQ_HEAD_INITIALIZER(lives);
    struct conn *c, *next;

    if (g->dead == NULL)
        return;
    while ((c = STAILQ_FIRST(&g->dirty)) != NULL) { /* dead ones need no output */
        STAILQ_REMOVE_HEAD(&g->dirty, next_dirty);
        if (!c->is_dead)
            STAILQ_INSERT_TAIL(&lives, c, next_dirty);
    }
    STAILQ_CONCAT(&g->dirty, &lives);
    for (c = g->dead; c != NULL; c = next) {
        next = c->next_dead;
        conn_free(c);
    }
    g->dead = NULL;
}

/* Check deadlines. Connections that came together expire together: ending all of them in
 * one iteration would delay the others. Returns 1 if there are more to check. */
static int
tick_connections(struct gw *g)
{
    for (int ends = 0; g->tick_at != NULL && ends < LOOP_ENDS;) {
        struct conn *c = g->tick_at;

        g->tick_at = c->next;
        ends += conn_tick(c);
    }
    return g->tick_at != NULL;
}

static void
tick(struct gw *g)
{
    g->tick_at = g->conns;
    g->is_short = 0;
    for (struct link *l = g->links; l != NULL; l = l->next) {
        watch_worker(g, l);
        if (l->stats.seg != NULL || l->stats.is_asked)
            (void)link_stats(l);
    }
    met_publish(g);
}

/* ---- loop ----------------------------------------------------------------------------------- */

static void
take_event(struct gw *g, const struct epoll_event *ev)
{
    int *fd = ev->data.ptr;

    if ((ev->data.u64 & LOOP_LINK) != 0)
        return; /* each iteration reads all sessions */
    if (fd >= g->lis.fd && fd < g->lis.fd + LIS_MAX)
        take_connections(g, (unsigned)(fd - g->lis.fd));
    else if (ev->data.ptr == &g->inbox)
        ibx_take(&g->inbox);
    else if (ev->data.ptr == &g->sh->signals)
        loops_signal(g->sh);
    else
        conn_event(ev->data.ptr, ev->events);
}

static int
is_over(const struct gw *g)
{
    return g->draining && (g->n_conn == 0 || g->now_ms >= g->drain_until_ms);
}

static void
begin_drain(struct gw *g)
{
    if (atomic_load(&g->sh->drain) == 2)
        g->drain_until_ms = g->now_ms; /* second signal: end now */
    if (g->draining)
        return;
    g->draining = 1;
    if (g->drain_until_ms == 0)
        g->drain_until_ms = g->now_ms + (uint64_t)g->par->http_drain_timeout_ms;
    watch_listeners(g);
    lis_close(&g->lis);
}

/* One iteration. wait: timeout of epoll_wait(), ms. Returns 1 if more is to be done now. */
static int
iterate(struct gw *g, int wait, uint64_t *ticked)
{
    struct epoll_event ev[LOOP_EVENTS];
    int n = epoll_wait(g->epoll, ev, LOOP_EVENTS, wait), more;

    g->now_ms = clock_ms();
    if (g->index != 0 && atomic_load(&g->sh->pausing))
        loops_stand(g);
    if (g->links_of != g->sh->version)
        loop_follow(g);
    if (atomic_load_explicit(&g->sh->drain, memory_order_relaxed) != 0)
        begin_drain(g);
    conn_resume(g);
    for (int i = 0; i < n; i++)
        take_event(g, &ev[i]);
    more = take_all_records(g, 0);
    if (g->now_ms - *ticked >= LOOP_TICK_MS && g->tick_at == NULL) {
        *ticked = g->now_ms;
        tick(g);
    }
    more |= tick_connections(g);
    tend_links(g);
    more |= flush(g);
    /* Flushing may have begun or ended requests. */
    more |= take_all_records(g, 1);
    more |= !STAILQ_EMPTY(&g->dirty);
    bury(g);
    watch_listeners(g);
    return more;
}

void
loop_run(struct gw *g)
{
    uint64_t ticked = 0;
    int more = 0;

    while (!is_over(g)) {
        int wait = more        ? 0
            : g->paced != NULL ? 1
            : g->n_conn > 0 || !all_connected(g)
            ? LOOP_TICK_MS
            : LOOP_IDLE_MS;

        more = iterate(g, wait, &ticked);
    }
    if (g->n_conn > 0)
        log_warn("http: %u connections are cut at the end of http.drain_timeout_ms",
            g->n_conn);
    met_publish(g);
}

struct gw *
loop_new(struct shared *sh, unsigned index)
{
    struct gw *g = calloc(1, sizeof(*g));

    if (g == NULL)
        return NULL;
    g->sh = sh;
    g->index = index;
    g->par = par_get(sh->ps);
    g->keys = &sh->keys;
    g->now_ms = clock_ms();
    g->inbox.fd = -1;
    g->links_of = sh->version;
    STAILQ_INIT(&g->dirty);
    g->scratch = malloc(GW_SCRATCH);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->scratch != NULL && g->epoll >= 0 && ibx_init(&g->inbox) == 0 &&
        watch(g, g->inbox.fd, &g->inbox) == 0 &&
        (index != 0 || watch(g, sh->signals, &sh->signals) == 0))
        return g;
    loop_free(g);
    return NULL;
}

int
loop_listen(struct gw *g)
{
    int rc = 0;

    for (unsigned i = 0; i < g->lis.n && rc == 0; i++)
        rc = watch_listener(g, i);
    return rc;
}

/* End the links and wait for their threads, which may be in a call of the library for
 * some seconds. */
static void
end_links(struct gw *g)
{
    struct pollfd p = { .fd = g->inbox.fd, .events = POLLIN };

    for (struct link *l = g->links; l != NULL; l = l->next)
        link_end(l);
    while (g->links != NULL && poll(&p, 1, -1) >= 0)
        ibx_take(&g->inbox);
}

void
loop_leave(struct gw *g)
{
    while (g->conns != NULL)
        conn_kill(g->conns);
    STAILQ_INIT(&g->dirty);
    bury(g);
}

void
loop_free(struct gw *g)
{
    if (g == NULL)
        return;
    loop_leave(g);
    if (g->inbox.fd >= 0)
        end_links(g);
    ibx_fini(&g->inbox);
    live_fini(&g->live);
    lis_close(&g->lis);
    free(g->scratch);
    buf_fini(&g->event);
    while (g->n_out > 0)
        buf_fini(&g->out[--g->n_out]);
    if (g->epoll >= 0)
        (void)close(g->epoll);
    free(g);
}
