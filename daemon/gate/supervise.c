/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/advice.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/relay.h"

#define SUP_BACKOFF_MIN_MS 100u
#define SUP_BACKOFF_MAX_MS 10000u
#define SUP_STABLE_NS (60 * CLK_S)      /* ready that long: back-off forgotten */
#define SUP_PROGRESS_NS (2 * CLK_S)
#define SUP_N_FD 5
#define SUP_OOM_RAISE 600               /* oom_score_adj of the worker over the gate's */
#define SUP_OOM_MAX 1000
#define SUP_ADMIN_BUF (1 << 20)

void
sup_init(struct wrk *w, int idx)
{
    memset(w, 0, sizeof(*w));
    w->idx = idx;
    w->pidfd = w->efd = w->admin_fd = w->link_fd = -1;
    TAILQ_INIT(&w->cancelq);
    TAILQ_INIT(&w->startq);
}

const char *
sup_phase_name(const struct wrk *w)
{
    static const char *const names[] = LNK_PHASE_NAMES;
    uint32_t ph;

    if (w->seg == NULL)
        return w->st == WRK_FAILED ? "failed" : "none";
    ph = __atomic_load_n(&w->seg->w.phase, __ATOMIC_ACQUIRE);
    return ph < LNK_PH__N ? names[ph] : "failed";
}

int
sup_load_percent(const struct wrk *w)
{
    uint64_t done, total;

    if (w->st == WRK_READY)
        return 100;
    if (w->seg == NULL)
        return 0;
    done = __atomic_load_n(&w->seg->w.load_done_bytes, __ATOMIC_RELAXED);
    total = __atomic_load_n(&w->seg->w.load_total_bytes, __ATOMIC_RELAXED);
    if (total == 0)
        return 0;
    return done >= total ? 99 : (int)(done / (total / 100 + 1));
}

/* The worker with CUDA is a package of its own and lies next to the plain one. */
static int
sup_worker_in(const char *dir, const char *sub, int cuda, char *ret, size_t ret_bytes)
{
    static const char *const name[] = { "fdd-worker", "fdd-worker-cuda" };

    for (int i = cuda; i >= 0; i--) {
        int n = snprintf(ret, ret_bytes, "%s%s/%s", dir, sub, name[i]);

        if (n > 0 && (size_t)n < ret_bytes && access(ret, X_OK) == 0)
            return 0;
    }
    return -ENOENT;
}

int
sup_find_worker(const struct gate *g, char *ret, size_t ret_bytes)
{
    int cuda = g->par->device_backend == PAR_DEVICE_BACKEND_AUTO ||
        g->par->device_backend == PAR_DEVICE_BACKEND_CUDA;
    char exe[PAR_STR_BYTES];
    char *slash;
    ssize_t n;

    if (g->par->daemon_worker[0] != '\0') {
        (void)snprintf(ret, ret_bytes, "%s", g->par->daemon_worker);
        return access(ret, X_OK) == 0 ? 0 : -errno;
    }
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n > 0) {
        exe[n] = '\0';
        slash = strrchr(exe, '/');
        if (slash != NULL)
            *slash = '\0';
        if (sup_worker_in(exe, "", cuda, ret, ret_bytes) == 0 ||
            sup_worker_in(exe, "/../libexec/fdd", cuda, ret, ret_bytes) == 0)
            return 0;
    }
    return sup_worker_in(FDD_LIBEXECDIR, "", cuda, ret, ret_bytes);
}

/* Short of memory, the kernel ends the worker, which is started again, rather
 * than the gate, which holds the requests. Raising needs no privilege. Between
 * fork and exec only async-signal-safe calls, so no stdio. */
static void
sup_oom_raise(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16], *at = text + sizeof(text);
    int v = 0, neg;
    ssize_t n;

    if (fd < 0)
        return;
    n = read(fd, text, sizeof(text) - 1);
    neg = n > 0 && text[0] == '-';
    for (ssize_t i = neg; i < n && text[i] >= '0' && text[i] <= '9'; i++)
        v = v * 10 + (text[i] - '0');
    v = (neg ? -v : v) + SUP_OOM_RAISE;
    if (v > SUP_OOM_MAX)
        v = SUP_OOM_MAX;
    neg = v < 0;
    for (v = neg ? -v : v; at == text + sizeof(text) || v != 0; v /= 10)
        *--at = (char)('0' + v % 10);
    if (neg)
        *--at = '-';
    if (pwrite(fd, at, (size_t)(text + sizeof(text) - at), 0) < 0) {
        /* without /proc all are alike */
    }
    (void)close(fd);
}

/* Between fork and exec only async-signal-safe calls. */
__attribute__((noreturn))
static void
sup_child(const char *path, char *const argv[], const int fds[SUP_N_FD], pid_t parent)
{
    sigset_t none;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died in between */
        _exit(EX_TEMPFAIL);
    sup_oom_raise();
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < SUP_N_FD; i++) {
        int fl = fcntl(fds[i], F_GETFD);

        if (fl < 0 || fcntl(fds[i], F_SETFD, fl & ~FD_CLOEXEC) != 0)
            _exit(EX_OSERR);
    }
    execv(path, argv);
    _exit(errno == EACCES ? EX_NOPERM : EX_UNAVAILABLE);
}

int
sup_spawn(struct gate *g, struct wrk *w, int worker_admin_fd)
{
    char path[PAR_STR_BYTES * 2];
    char num[SUP_N_FD][16];
    int fds[SUP_N_FD] = { w->link_fd, w->efd, worker_admin_fd, g->seg_fd, g->trc_fd };
    char *argv[] = { path, (char *)(uintptr_t)"--link-fd", num[0],
        (char *)(uintptr_t)"--event-fd", num[1], (char *)(uintptr_t)"--admin-fd", num[2],
        (char *)(uintptr_t)"--stat-fd", num[3], (char *)(uintptr_t)"--trace-fd", num[4],
        NULL };
    pid_t parent = getpid();
    pid_t pid;
    int rc;

    rc = sup_find_worker(g, path, sizeof(path));
    if (rc != 0) {
        (void)snprintf(w->error, sizeof(w->error),
            "the program fdd-worker is not there or not executable (%.400s)",
            g->par->daemon_worker[0] != '\0' ? g->par->daemon_worker :
            "looked in the folder of fdd, ../libexec/fdd and " FDD_LIBEXECDIR);
        (void)snprintf(w->fix, sizeof(w->fix),
            "set daemon.worker to the path of fdd-worker, or install it");
        return rc;
    }
    for (int i = 0; i < SUP_N_FD; i++)
        (void)snprintf(num[i], sizeof(num[i]), "%d", fds[i]);
    pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        sup_child(path, argv, fds, parent);
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (w->pidfd < 0 || gate_watch(g, w->pidfd, EPOLLIN, GATE_EV_WRK_PID, w) != 0) {
        rc = -errno;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return rc;
    }
    return (int)pid;
}

static void
sup_close(struct gate *g, const struct wrk *w, int *fd)
{
    if (*fd >= 0) {
        gate_unwatch(g, *fd, w);
        (void)close(*fd);
    }
    *fd = -1;
}

/* Throw the link away, with whatever is in it. */
static void
sup_drop_link(struct gate *g, struct wrk *w)
{
    sup_close(g, w, &w->pidfd);
    sup_close(g, w, &w->efd);
    sup_close(g, w, &w->admin_fd);
    sup_close(g, w, &w->link_fd);
    lnk_leave(w->seg);
    w->seg = NULL;
    w->pid = 0;
}

int
sup_start(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    int pair[2] = { -1, -1 };
    int size = SUP_ADMIN_BUF;
    int rc;

    ASSERT(w->seg == NULL && w->pid == 0);
    w->generation++;
    w->n_starts++;
    cnt_add(&g->cnt->worker_starts, 1);
    rc = lnk_create(g->par, w->generation, &w->seg, &w->link_fd);
    if (rc != 0) {
        (void)snprintf(w->error, sizeof(w->error), "cannot make the link segment: %s",
            strerror(-rc));
        return rc;
    }
    (void)snprintf(w->seg->instance, sizeof(w->seg->instance), "%s", g->rt.instance);
    (void)snprintf(w->seg->runtime_dir, sizeof(w->seg->runtime_dir), "%s", g->rt.dir);
    (void)snprintf(w->seg->device_dir, sizeof(w->seg->device_dir), "%s",
        g->rt.device_dir);
    w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->efd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        rc = -errno;
        goto drop;
    }
    w->admin_fd = pair[0];
    (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    lnk_init_gate(&w->lnk, w->seg, w->efd);
    rc = gate_watch(g, w->efd, EPOLLIN, GATE_EV_WRK_EFD, w);
    if (rc == 0)
        rc = gate_watch(g, w->admin_fd, EPOLLIN, GATE_EV_WRK_ADMIN, w);
    if (rc != 0)
        goto drop;
    w->dead = 0;
    w->status = 0;
    w->error[0] = w->fix[0] = '\0';
    w->st = WRK_STARTING;
    w->t_start = w->t_progress = now_ns;
    hng_init(&w->hng, now_ns);
    w->pend = 0;
    memset(&w->ready, 0, sizeof(w->ready));
    rc = g->spawn(g, w, pair[1]);
    if (rc < 0)
        goto drop;
    (void)close(pair[1]);
    w->pid = (pid_t)rc;
    log_info("supervise: worker %d started, pid %d, generation %llu", w->idx,
        (int)w->pid, (unsigned long long)w->generation);
    return 0;

drop:
    if (pair[1] >= 0)
        (void)close(pair[1]);
    sup_drop_link(g, w);
    if (w->error[0] == '\0')
        (void)snprintf(w->error, sizeof(w->error), "cannot start: %s", strerror(-rc));
    return rc;
}

void
sup_on_ready(struct gate *g, struct wrk *w, const struct lnk_ready *rd, uint64_t now_ns)
{
    if (w->st != WRK_STARTING && w->st != WRK_READY)
        return;
    w->ready = *rd;
    w->ready.info.model_name[sizeof(w->ready.info.model_name) - 1] = '\0';
    w->t_ready = now_ns;
    if (w->st == WRK_STARTING) {
        w->st = WRK_READY;
        w->n_ready++;
        log_info("supervise: worker %d ready after %.1f s: model %s, vocabulary %u, "
            "%u tokens at most, %u sequences ahead", w->idx,
            (double)(now_ns - w->t_start) / 1e9, w->ready.info.model_name,
            w->ready.info.vocab, w->ready.info.max_model_len, w->ready.credits);
    }
    ses_announce(g, g->st == GATE_RUNNING ? FDP_ST_RUN : FDP_ST_DRAIN, FDP_EV_READY, 0);
}

void
sup_reload(struct gate *g, struct wrk *w)
{
    if (w->seg == NULL || w->dead)
        return;
    lnk_put_par(w->seg, g->par);
    w->pend |= WRK_PEND_RELOAD;
}

void
sup_kill(struct gate *g, struct wrk *w, const char *why)
{
    (void)g;
    if (w->pid <= 0 || w->dead)
        return;
    log_warn("supervise: worker %d (pid %d) is killed: %s", w->idx, (int)w->pid, why);
    (void)kill(w->pid, SIGKILL);
}

void
sup_stop(struct gate *g, struct wrk *w, uint64_t now_ns, uint64_t grace_ns)
{
    (void)g;
    if (w->st == WRK_BACKOFF || w->st == WRK_NONE) {
        w->st = WRK_NONE;
        return;
    }
    if (w->st == WRK_FAILED || w->st == WRK_STOPPING)
        return;
    /* A loading worker does not read its ring yet. */
    if (w->st == WRK_STARTING && w->pid > 0)
        (void)kill(w->pid, SIGTERM);
    w->st = WRK_STOPPING;
    w->pend |= WRK_PEND_DRAIN;
    w->t_stop = now_ns + grace_ns;
}

void
sup_reap(struct gate *g, struct wrk *w)
{
    siginfo_t si;

    (void)g;
    if (w->pid <= 0 || w->dead)
        return;
    memset(&si, 0, sizeof(si));
    if (waitid(P_PID, (id_t)w->pid, &si, WEXITED | WNOHANG) != 0 || si.si_pid == 0)
        return;
    w->dead = 1;
    w->status = si.si_code == CLD_EXITED ? (si.si_status & 0xff) << 8 :
        (si.si_status & 0x7f);
}

void
sup_fix_text(const struct gate *g, int exit_code, char *ret, size_t ret_bytes)
{
    const char *path = g->par->model_path;
    char unit[sizeof(g->rt.socket_unit)];
    char *dot;

    if (exit_code == EX_UNAVAILABLE) {
        (void)snprintf(ret, ret_bytes, "nvidia-smi (does the driver answer?), or run on "
            "the processor: --set device.backend=cpu");
        return;
    }
    if (path[0] == '\0') {
        (void)snprintf(ret, ret_bytes, "--set model.path=DIR (a Hugging Face model "
            "directory), or model.path in the configuration file");
        return;
    }
    (void)snprintf(unit, sizeof(unit), "%s", g->rt.socket_unit);
    dot = strrchr(unit, '.');
    if (dot != NULL && strcmp(dot, ".socket") == 0)
        *dot = '\0';
    adv_model(path, dot != NULL ? unit : "fdd", exit_code == EX_NOPERM, ret, ret_bytes);
}

static void
sup_describe(const struct wrk *w, char *ret, size_t ret_bytes)
{
    if (WIFSIGNALED(w->status))
        (void)snprintf(ret, ret_bytes, "ended by signal %d (%s)", WTERMSIG(w->status),
            strsignal(WTERMSIG(w->status)));
    else
        (void)snprintf(ret, ret_bytes, "exited with %d", WEXITSTATUS(w->status));
}

/* Exit codes after which another start would end the same way. */
static int
sup_permanent(const struct gate *g, const struct wrk *w)
{
    char at[PAR_STR_BYTES];
    int code;

    if (!WIFEXITED(w->status))
        return 0;
    code = WEXITSTATUS(w->status);
    if (code == EX_CONFIG && g->par->model_path[0] != '\0' &&
        strcmp(g->par->model_path, "null") != 0 &&
        adv_blocked_at(g->par->model_path, at, sizeof(at)) == ENOENT)
        return EX_NOINPUT;
    if (code == EX_CONFIG || code == EX_NOPERM || code == EX_UNAVAILABLE ||
        code == EX_NOINPUT || code == EX_USAGE)
        return code;
    return 0;
}

static int
sup_crash_loop(const struct gate *g, const struct wrk *w, uint64_t now_ns)
{
    uint64_t window = (uint64_t)g->par->daemon_crash_window_s * CLK_S;
    uint32_t n = 0;
    uint32_t have = w->n_deaths < SUP_DEATHS_MAX ? w->n_deaths : SUP_DEATHS_MAX;

    for (uint32_t i = 0; i < have; i++)
        n += now_ns - w->deaths[i] <= window;
    return n >= (uint64_t)g->par->daemon_crash_max;
}

static void
sup_back_off(struct wrk *w, uint64_t now_ns)
{
    if (w->t_ready > w->t_start && now_ns - w->t_ready >= SUP_STABLE_NS)
        w->backoff_ms = 0;
    w->backoff_ms = w->backoff_ms == 0 ? SUP_BACKOFF_MIN_MS : w->backoff_ms * 2;
    if (w->backoff_ms > SUP_BACKOFF_MAX_MS)
        w->backoff_ms = SUP_BACKOFF_MAX_MS;
    w->t_restart = now_ns + w->backoff_ms * CLK_MS;
    w->st = WRK_BACKOFF;
    log_warn("supervise: worker %d %s; started again in %u ms%s%s%s%s", w->idx,
        w->last_death, w->backoff_ms, w->error[0] != '\0' ? "; it said: " : "", w->error,
        w->fix[0] != '\0' ? "; fix: " : "", w->fix);
}

/* It ended, or could not be started: decide what follows. */
static void
sup_after_death(struct gate *g, struct wrk *w, int permanent, uint64_t now_ns)
{
    if (w->st == WRK_STOPPING || g->st == GATE_STOPPING) {
        w->st = WRK_NONE;
        return;
    }
    if (permanent != 0)
        sup_fix_text(g, permanent, w->fix, sizeof(w->fix));
    if (permanent != 0 && w->n_ready == 0) {
        log_error("supervise: worker %d cannot run: %s%s%s", w->idx,
            w->error[0] != '\0' ? w->error : w->last_death,
            w->fix[0] != '\0' ? "; fix: " : "", w->fix);
        w->st = WRK_FAILED;
        gate_stop_now(g, permanent);
        return;
    }
    w->n_died++;
    cnt_add(&g->cnt->worker_deaths, 1);
    if (permanent == 0)
        w->deaths[w->n_deaths++ % SUP_DEATHS_MAX] = now_ns;
    if (permanent == 0 && sup_crash_loop(g, w, now_ns)) {
        w->st = WRK_FAILED;
        log_error("supervise: worker %d died %lld times within %lld s (daemon.crash_max, "
            "daemon.crash_window_s) and is not started again; last: %s%s%s", w->idx,
            (long long)g->par->daemon_crash_max, (long long)g->par->daemon_crash_window_s,
            w->last_death, w->error[0] != '\0' ? ": " : "", w->error);
        gate_degrade(g, now_ns);
        return;
    }
    sup_back_off(w, now_ns);
}

static void
sup_bury(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    int permanent = sup_permanent(g, w);

    log_adopt(&w->seg->log);
    /* What it had published is whole and counts. */
    while (rly_poll(g, w, now_ns) > 0)
        continue;
    sup_describe(w, w->last_death, sizeof(w->last_death));
    memcpy(w->error, w->seg->w.error, sizeof(w->error));
    w->error[sizeof(w->error) - 1] = '\0';
    memcpy(w->panic, w->seg->panic, sizeof(w->panic));
    w->panic[sizeof(w->panic) - 1] = '\0';
    w->panic_generation = w->generation;
    if (w->st != WRK_STOPPING && g->st != GATE_STOPPING)
        crs_worker(&w->crash, w->seg, w->pid, w->last_death);
    ctl_worker_gone(g);
    sup_drop_link(g, w);
    if (g->st == GATE_STOPPING)
        log_info("supervise: worker %d %s", w->idx, w->last_death);
    else
        ses_announce(g, g->st == GATE_RUNNING ? FDP_ST_RUN : FDP_ST_DRAIN, FDP_EV_DOWN,
            0);
    /* Before the decision: a restart must find nothing in flight. */
    rly_worker_gone(g, w);
    sup_after_death(g, w, permanent, now_ns);
}

/* Of a process that does not tell, no. */
static int
sup_is_traced(pid_t pid)
{
    char path[32], text[4096];
    ssize_t n = -1;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof(text) - 1);
        (void)close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    return hng_has_tracer(text);
}

/* A ready worker that hangs is killed: its requests then end, and another starts. */
static void
sup_watch_hang(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    const struct hng_limits l = {
        .hang_ns = (uint64_t)g->par->daemon_worker_hang_ms * CLK_MS,
        .first_ns = (uint64_t)g->par->daemon_worker_start_timeout_ms * CLK_MS };
    enum hng_verdict v;
    char why[160];

    v = hng_look(&w->hng, &w->seg->w.beat, &l, now_ns, why, sizeof(why));
    if (w->st != WRK_READY)
        return; /* other limits hold then */
    switch (v) {
    case HNG_KILL:
        if (!sup_is_traced(w->pid))
            sup_kill(g, w, why);
        hng_excuse(&w->hng, now_ns); /* once */
        break;
    case HNG_WARN:
        log_warn("supervise: worker %d seems to hang: %s", w->idx, why);
        break;
    case HNG_MOVES:
        log_info("supervise: worker %d moves again", w->idx);
        break;
    case HNG_FINE:
        break;
    }
}

static void
sup_watch(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    sup_watch_hang(g, w, now_ns);
    if (w->st == WRK_STARTING) {
        if (now_ns - w->t_start >
            (uint64_t)g->par->daemon_worker_start_timeout_ms * CLK_MS) {
            sup_kill(g, w, "it was not ready within daemon.worker_start_timeout_ms");
            w->t_start = now_ns; /* once */
        } else if (now_ns - w->t_progress >= SUP_PROGRESS_NS) {
            w->t_progress = now_ns;
            log_info("supervise: worker %d %s, %d %%", w->idx, sup_phase_name(w),
                sup_load_percent(w));
        }
    }
}

int
sup_poll(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    int rc;

    if (w->pid > 0 && !w->dead && w->pidfd < 0)
        sup_reap(g, w);
    if (w->seg != NULL && w->dead) {
        sup_bury(g, w, now_ns);
        return 1;
    }
    if (w->st == WRK_BACKOFF && now_ns >= w->t_restart && g->st != GATE_STOPPING) {
        rc = sup_start(g, w, now_ns);
        if (rc != 0) {
            (void)snprintf(w->last_death, sizeof(w->last_death), "could not be started");
            sup_after_death(g, w, 0, now_ns);
        }
        return 1;
    }
    if (w->st == WRK_STOPPING && now_ns >= w->t_stop && w->t_stop != 0) {
        sup_kill(g, w, "it did not end in time");
        w->t_stop = 0;
    }
    if (w->seg != NULL)
        sup_watch(g, w, now_ns);
    return 0;
}

void
sup_fini(struct gate *g, struct wrk *w)
{
    if (w->pid > 0 && !w->dead) {
        (void)kill(w->pid, SIGKILL);
        (void)waitpid(w->pid, NULL, 0);
    }
    if (w->seg != NULL) {
        rly_worker_gone(g, w);
        sup_drop_link(g, w);
    }
}
