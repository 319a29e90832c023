/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* All loops: their start and end, signals, and reloading the configuration. */
#include "config.h"

#include "http/loop.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/notify.h"
#include "http/loop_priv.h"

#define LOOPS_LARGE (1 << 20) /* bytes from which malloc() uses mmap() */

/* ---- pausing -------------------------------------------------------------------------- */

void
loops_stand(struct gw *g)
{
    struct shared *sh = g->sh;

    (void)pthread_mutex_lock(&sh->lock);
    sh->n_still++;
    (void)pthread_cond_broadcast(&sh->changed);
    while (atomic_load(&sh->pausing))
        (void)pthread_cond_wait(&sh->changed, &sh->lock);
    sh->n_still--;
    (void)pthread_cond_broadcast(&sh->changed);
    (void)pthread_mutex_unlock(&sh->lock);
}

/* Called by the first loop: no other loop runs until loops_go_on(). */
static void
loops_pause(struct shared *sh)
{
    (void)pthread_mutex_lock(&sh->lock);
    while (sh->n_still > 0) /* some have not left an earlier pause yet */
        (void)pthread_cond_wait(&sh->changed, &sh->lock);
    atomic_store(&sh->pausing, 1);
    for (unsigned i = 1; i < sh->n_loop; i++)
        ibx_wake(&sh->loop[i]->inbox);
    while (sh->n_still < sh->n_running)
        (void)pthread_cond_wait(&sh->changed, &sh->lock);
}

static void
loops_go_on(struct shared *sh)
{
    atomic_store(&sh->pausing, 0);
    (void)pthread_cond_broadcast(&sh->changed);
    (void)pthread_mutex_unlock(&sh->lock);
}

static void *
run(void *arg)
{
    struct gw *g = arg;
    struct shared *sh = g->sh;

    loop_run(g);
    (void)pthread_mutex_lock(&sh->lock);
    sh->n_running--;
    (void)pthread_cond_broadcast(&sh->changed);
    (void)pthread_mutex_unlock(&sh->lock);
    return NULL;
}

static int
others_run(struct shared *sh)
{
    unsigned n;

    (void)pthread_mutex_lock(&sh->lock);
    n = sh->n_running;
    (void)pthread_mutex_unlock(&sh->lock);
    return n > 0;
}

/* ---- reading the configuration again ---------------------------------------------------- */

/* Put a valid new configuration into force. Returns the number of changed values. */
static int
take_over(struct shared *sh, const struct par_set *ps, const struct keys *keys)
{
    struct served_list served;
    int n;

    loops_pause(sh);
    n = par_reload(sh->ps, ps);
    if (keys_take(&sh->keys, keys) != 0)
        log_error("http: no memory, or no place, for keys that are new");
    if (srv_read(sh->ps, &served) == 0) {
        srv_free(&sh->served);
        sh->served = served;
    }
    sh->version++;
    loops_go_on(sh);
    return n;
}

/* Log the changed values that are read only at the start. Returns their number. */
static size_t
tell_waiting(const struct par_set *ps, const struct par_set *new)
{
    size_t n = 0;

    for (size_t i = 0; i < par_count(); i++) {
        char was[PAR_STR_BYTES], is[PAR_STR_BYTES];
        enum par_origin from;
        struct par_row row;

        par_row(i, &row);
        if (row.reload || !par_differs(ps, new, i))
            continue;
        par_value(ps, i, was, sizeof(was), &from);
        par_value(new, i, is, sizeof(is), &from);
        log_warn("config: %s.%s: %s -> %s waits for a restart", row.section, row.key,
            was[0] != '\0' ? was : "(nothing)", is[0] != '\0' ? is : "(nothing)");
        n++;
    }
    return n;
}

static void
reload(struct shared *sh)
{
    struct par_set *ps = par_new();
    struct par_say say = { .text = NULL };
    struct keys keys = { NULL };
    char err[512];
    int rc = ps == NULL ? -ENOMEM : par_load(ps, &sh->src, &say);

    par_say_end(&say);
    par_say_log(&say);
    if (rc == 0) {
        rc = par_reload_check(sh->ps, ps, err, sizeof(err));
        if (rc == 0)
            rc = keys_load(&keys, par_get(sh->ps)->keys_file, err, sizeof(err));
        if (rc != 0)
            log_error("config: %s", err);
    }
    if (rc == 0) {
        const struct par *p = par_get(sh->ps);
        size_t n_wait = tell_waiting(sh->ps, ps);
        int n = take_over(sh, ps, &keys);

        log_info("config: read again, %d values changed, %zu wait for a restart, %zu keys",
            n, n_wait, sh->keys.n);
        (void)log_apply((enum par_log_level)p->log_level, "",
            (enum par_log_format)p->log_format, p->log_rate);
    } else {
        log_error("config: nothing has changed");
    }
    keys_fini(&keys);
    (void)par_free(ps);
}

/* ---- signals ------------------------------------------------------------------------------- */

void
loops_signal(struct shared *sh)
{
    struct signalfd_siginfo si;
    unsigned was = atomic_load(&sh->drain);

    if (read(sh->signals, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return;
    if (si.ssi_signo == SIGHUP) {
        if (was == 0)
            reload(sh);
        return;
    }
    atomic_store(&sh->drain, was == 0 ? 1 : 2);
    for (unsigned i = 0; i < sh->n_loop; i++)
        ibx_wake(&sh->loop[i]->inbox);
    if (was != 0)
        return;
    ntf_send("STOPPING=1");
    log_info("http: ending, %u connections", atomic_load(&sh->n_conn));
}

static int
open_signals(struct shared *sh)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    sh->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return sh->signals < 0 ? -errno : 0;
}

/* ---- start and end -------------------------------------------------------------------------- */

static void
more_descriptors(const struct par *p)
{
    struct rlimit r;
    rlim_t want = (rlim_t)p->http_max_connections + 64;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return;
    r.rlim_cur = want < r.rlim_max ? want : r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur < want)
        log_warn("http: this process may have %llu descriptors, fewer than "
                 "http.max_connections = %lld needs; fix: LimitNOFILE, or a smaller number",
            (unsigned long long)r.rlim_cur, (long long)p->http_max_connections);
}

/* Open the listeners of all loops. Returns 0 or an exit code. */
static int
open_listeners(struct shared *sh, const struct par *p)
{
    char err[512] = "";
    int rc = lis_open(&sh->loop[0]->lis, p, err, sizeof(err));

    for (unsigned i = 1; i < sh->n_loop && rc == 0; i++)
        rc = lis_further(&sh->loop[i]->lis, &sh->loop[0]->lis, err, sizeof(err));
    for (unsigned i = 0; i < sh->n_loop && rc == 0; i++)
        rc = loop_listen(sh->loop[i]);
    if (rc == 0)
        return 0;
    log_error("http: %s", err[0] != '\0' ? err : strerror(-rc));
    return rc == -EINVAL ? EX_CONFIG : rc == -EACCES ? EX_NOPERM : EX_UNAVAILABLE;
}

static int
start_threads(struct shared *sh, const struct par *p)
{
    int rc;

    (void)log_start(NULL); /* before there are threads: it is not thread-safe */
    rc = prep_init(&sh->prep, (unsigned)p->http_prep_threads);

    for (unsigned i = 0; i < sh->n_loop; i++)
        loop_follow(sh->loop[i]);
    for (unsigned i = 1; i < sh->n_loop && rc == 0; i++) {
        rc = -pthread_create(&sh->thread[i], NULL, run, sh->loop[i]);
        sh->n_running += rc == 0;
    }
    return rc;
}

int
loops_open(struct shared *sh)
{
    const struct par *p = par_get(sh->ps);
    char err[512] = "";
    int rc;

    /* Large bodies get mappings of their own: they grow without a copy, and the prep
     * thread that has read one unmaps it. */
    (void)mallopt(M_MMAP_THRESHOLD, LOOPS_LARGE);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * LOOPS_LARGE);
    sh->signals = -1;
    (void)pthread_mutex_init(&sh->lock, NULL);
    (void)pthread_cond_init(&sh->changed, NULL);
    peer_init(&sh->peers);
    if (open_signals(sh) != 0) {
        log_error("http: %s", strerror(errno));
        return EX_OSERR;
    }
    more_descriptors(p);
    if (keys_read(&sh->keys, p->keys_file, err, sizeof(err)) != 0) {
        log_error("config: %s", err);
        return EX_CONFIG;
    }
    rc = srv_read(sh->ps, &sh->served);
    sh->version = 1;
    while (rc == 0 && sh->n_loop < (unsigned)p->http_loops) {
        sh->loop[sh->n_loop] = loop_new(sh, sh->n_loop);
        rc = sh->loop[sh->n_loop] != NULL ? 0 : -errno;
        sh->n_loop += rc == 0;
    }
    if (rc == 0) {
        int code = open_listeners(sh, p);

        if (code != 0)
            return code;
        rc = start_threads(sh, p);
    }
    if (rc != 0) {
        log_error("http: %s", strerror(-rc));
        return EX_OSERR;
    }
    if (!sh->keys.in_use)
        log_warn("http: no keys: every program of this machine may ask");
    ntf_send("READY=1");
    return 0;
}

void
loops_run(struct shared *sh)
{
    struct pollfd p = { .fd = sh->signals, .events = POLLIN };

    loop_run(sh->loop[0]);
    while (others_run(sh))
        if (poll(&p, 1, 50) > 0)
            loops_signal(sh);
}

void
loops_close(struct shared *sh)
{
    unsigned n = 0;

    atomic_store(&sh->drain, 2);
    for (unsigned i = 1; i < sh->n_loop; i++)
        ibx_wake(&sh->loop[i]->inbox);
    for (unsigned i = 1; i < sh->n_loop; i++)
        if (sh->thread[i] != 0)
            (void)pthread_join(sh->thread[i], NULL);
    for (unsigned i = 0; i < sh->n_loop; i++)
        loop_leave(sh->loop[i]);
    if (sh->prep.n_thread > 0)
        prep_fini(&sh->prep);
    for (n = 0; n < sh->n_loop; n++)
        loop_free(sh->loop[n]);
    srv_free(&sh->served);
    keys_fini(&sh->keys);
    peer_fini(&sh->peers);
    if (sh->signals >= 0)
        (void)close(sh->signals);
    (void)pthread_mutex_destroy(&sh->lock);
    (void)pthread_cond_destroy(&sh->changed);
}
