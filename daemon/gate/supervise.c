/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/notify.h"
#include "daemon/common/obj.h"
#include "daemon/common/param.h"
#include "daemon/gate/advice.h"
#include "daemon/gate/env.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/watch.h"

#define SUP_BACKOFF_MIN_MS 100u
#define SUP_RESTART_MIN_MS 100u
#define SUP_RESTART_MAX_MS 60000u
#define SUP_STABLE_NS      (60 * CLK_S) /* ready for this time: back-off is reset */
#define SUP_PROGRESS_NS    (2 * CLK_S)
#define SUP_N_FD           5
#define SUP_FINI_NS        (5 * CLK_S)  /* wait for a killed worker at the daemon's end */
#define SUP_COLLECT_NS     (1 * CLK_MS) /* interval at which sup_collect() checks */
#define SUP_ADMIN_BUF      (1 << 20)

static void
sup_set_state(struct wrk *w, enum wrk_st st)
{
    w->st = st;
    w->link.up = st == WRK_READY;
    w->link.is_failed = st == WRK_FAILED;
}

const char *
sup_state_name(const struct wrk *w)
{
    static const char *const names[] = SUP_STATE_NAMES;

    return names[w->st];
}

const char *
sup_phase_name(const struct wrk *w)
{
    static const char *const names[] = LNK_PHASE_NAMES;
    uint32_t ph;

    if (w->link.seg == NULL)
        return w->st == WRK_FAILED ? "failed" : w->rty.n != 0 ? "blocked" : "none";
    /* It was killed or is being reaped: its last reported phase is outdated. */
    if (w->dead || w->is_killed || w->exit != NULL)
        return names[LNK_PH_EXIT];
    ph = __atomic_load_n(&w->link.seg->w.phase, __ATOMIC_ACQUIRE);
    /* Its READY record has not been read yet. */
    if (ph == LNK_PH_READY && w->st == WRK_STARTING)
        ph = LNK_PH_WARM;
    return ph < LNK_PH__N ? names[ph] : "failed";
}

int
sup_load_percent(const struct wrk *w)
{
    return wlk_load_percent(&w->link);
}

/* The worker with CUDA is a package of its own and is installed next to the plain one. */
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
sup_find_worker(const struct par *par, char *ret, size_t ret_bytes)
{
    int cuda = par->device_backend == PAR_DEVICE_BACKEND_AUTO ||
        par->device_backend == PAR_DEVICE_BACKEND_CUDA;
    char exe[PAR_STR_BYTES];
    char *slash;
    ssize_t n;

    if (par->daemon_worker[0] != '\0') {
        (void)snprintf(ret, ret_bytes, "%s", par->daemon_worker);
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

/* Between fork and exec only async-signal-safe calls. */
__attribute__((noreturn)) static void
sup_child(struct lnk_seg *seg, char *const argv[], const int fds[SUP_N_FD], pid_t parent)
{
    sigset_t none;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the gate died before prctl() */
        _exit(EX_TEMPFAIL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < SUP_N_FD; i++) {
        int fl = fcntl(fds[i], F_GETFD);

        if (fl < 0 || fcntl(fds[i], F_SETFD, fl & ~FD_CLOEXEC) != 0)
            _exit(EX_OSERR);
    }
    execv(argv[0], argv);
    seg->w.exec_errno = errno; /* sup_autopsy() tells it */
    _exit(EX_CONFIG);
}

static void
sup_fix_program(struct wrk *w)
{
    (void)snprintf(w->fix, sizeof(w->fix),
        "set daemon.worker to the path of fdd-worker, or install it");
}

static int
sup_spawn(struct sup *s, struct wrk *w, int worker_admin_fd)
{
    char path[PAR_STR_BYTES * 2];
    char num[SUP_N_FD][16];
    int fds[SUP_N_FD] = { w->link_fd, w->efd, worker_admin_fd, s->stat_fd, w->trace_fd };
    char *argv[] = { path, (char *)(uintptr_t) "--link-fd", num[0],
        (char *)(uintptr_t) "--event-fd", num[1], (char *)(uintptr_t) "--admin-fd",
        num[2], (char *)(uintptr_t) "--stat-fd", num[3], (char *)(uintptr_t) "--trace-fd",
        num[4], NULL };
    pid_t parent = getpid();
    pid_t pid;
    int rc;

    rc = sup_find_worker(s->env->par, path, sizeof(path));
    if (rc != 0) {
        (void)snprintf(w->error, sizeof(w->error),
            "the program fdd-worker is not there or not executable (%.400s)",
            s->env->par->daemon_worker[0] != '\0'
                ? s->env->par->daemon_worker
                : "looked in the folder of fdd, ../libexec/fdd and " FDD_LIBEXECDIR);
        sup_fix_program(w);
        return rc;
    }
    for (int i = 0; i < SUP_N_FD; i++)
        (void)snprintf(num[i], sizeof(num[i]), "%d", fds[i]);
    pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        sup_child(w->link.seg, argv, fds, parent);
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (w->pidfd < 0 || wch_add(s->watch, w->pidfd, EPOLLIN, WCH_WRK_PID, w) != 0) {
        rc = -errno;
        (void)kill(pid, SIGKILL);
        (void)ofl_reap(s->ofl, pid, NULL);
        return rc;
    }
    return (int)pid;
}

void
sup_init(struct sup *s, const struct env *env, const struct rtd *rt, struct watch *watch)
{
    s->env = env;
    s->rt = rt;
    s->watch = watch;
    s->stat_fd = -1;
    s->n_group = 1;
    s->spawn = sup_spawn;
}

void
sup_init_worker(struct wrk *w, int idx)
{
    memset(w, 0, sizeof(*w));
    w->idx = idx;
    w->pidfd = w->efd = w->admin_fd = w->link_fd = w->trace_fd = -1;
    wlk_init(&w->link, idx);
}

static void
sup_close(struct sup *s, const struct wrk *w, int *fd)
{
    if (*fd >= 0) {
        wch_del(s->watch, *fd, w);
        if (ofl_close(s->ofl, *fd) != 0)
            (void)ofl_close(NULL, *fd);
    }
    *fd = -1;
}

void
sup_drop_link(struct sup *s, struct wrk *w)
{
    sup_close(s, w, &w->pidfd);
    sup_close(s, w, &w->efd);
    sup_close(s, w, &w->admin_fd);
    sup_close(s, w, &w->link_fd);
    wlk_leave(&w->link);
    w->pid = 0;
}

/* Fills in the gate's members of a worker's segment. */
static void
sup_fill_seg(const struct sup *s, const struct wrk *w, struct lnk_seg *seg)
{
    seg->is_quiet = w->rty.n != 0;
    seg->group = (uint32_t)w->idx;
    seg->n_group = s->n_group;
    (void)snprintf(seg->instance, sizeof(seg->instance), "%s", s->rt->instance);
    (void)snprintf(seg->runtime_dir, sizeof(seg->runtime_dir), "%s", s->rt->dir);
    (void)snprintf(seg->device_dir, sizeof(seg->device_dir), "%s", s->rt->device_dir);
}

/* Makes the descriptors between gate and worker, and watches the gate's ends. */
static int
sup_open_pipes(struct sup *s, struct wrk *w, int *ret_worker_admin)
{
    int size = SUP_ADMIN_BUF;
    int pair[2];
    int rc;

    w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->efd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -errno;
    w->admin_fd = pair[0];
    *ret_worker_admin = pair[1];
    for (int i = 0; i < 2; i++)
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    rc = wch_add(s->watch, w->efd, EPOLLIN, WCH_WRK_EFD, w);
    return rc != 0 ? rc : wch_add(s->watch, w->admin_fd, EPOLLIN, WCH_WRK_ADMIN, w);
}

static void
sup_reset(struct wrk *w, uint64_t now_ns)
{
    w->dead = 0;
    w->status = w->permanent = 0;
    w->error[0] = w->fix[0] = '\0';
    w->t_start = w->t_progress = now_ns;
    w->is_killed = w->is_over = 0;
    hng_init(&w->hng, now_ns);
}

int
sup_start(struct sup *s, struct wrk *w)
{
    struct lnk_seg *seg = NULL;
    int worker_admin = -1;
    int rc;

    ASSERT(w->link.seg == NULL && w->pid == 0);
    w->generation++;
    w->n_starts++;
    cnt_add(&s->env->cnt->worker_starts, 1);
    sup_reset(w, s->env->now);
    rc = lnk_create(s->env->par, w->generation, &seg, &w->link_fd);
    if (rc != 0) {
        (void)snprintf(w->error, sizeof(w->error), "cannot make the link segment: %s",
            strerror(-rc));
        return rc;
    }
    sup_fill_seg(s, w, seg);
    rc = sup_open_pipes(s, w, &worker_admin);
    wlk_join(&w->link, seg, w->efd, s->env->now);
    if (rc != 0)
        goto drop;
    sup_set_state(w, WRK_STARTING);
    rc = s->spawn(s, w, worker_admin);
    if (rc < 0)
        goto drop;
    (void)close(worker_admin);
    w->pid = (pid_t)rc;
    if (w->rty.n == 0)
        log_info("supervise: worker %d started, pid %d, generation %llu", w->idx,
            (int)w->pid, (unsigned long long)w->generation);
    return 0;

drop:
    if (worker_admin >= 0)
        (void)close(worker_admin);
    sup_drop_link(s, w);
    if (w->error[0] == '\0')
        (void)snprintf(w->error, sizeof(w->error), "cannot start: %s", strerror(-rc));
    return rc;
}

/* Ends the blocked state: the missing thing is back, or the worker has another error. */
static void
sup_unblock(struct wrk *w)
{
    if (w->rty.n != 0)
        ntf_send("STATUS=");
    memset(&w->rty, 0, sizeof(w->rty));
}

/* Handles READY: the first one, or one with new numbers. */
static enum sup_event
sup_on_ready(struct sup *s, struct wrk *w)
{
    const struct lnk_ready *rd = &w->link.ready;

    w->link.is_news = 0;
    if (w->st != WRK_STARTING && w->st != WRK_READY)
        return SUP_NOTHING;
    w->t_ready = s->env->now;
    if (w->st == WRK_STARTING) {
        sup_set_state(w, WRK_READY);
        w->n_ready++;
        if (w->rty.n != 0)
            log_info("supervise: worker %d starts again after %u tries, pid %d, generation "
                     "%llu",
                w->idx, w->rty.n, (int)w->pid, (unsigned long long)w->generation);
        sup_unblock(w);
        w->link.loaded_ns = w->t_ready - w->t_start;
        log_info("supervise: worker %d ready after %.1f s: model %s, vocabulary %u, "
                 "at most %u tokens, %u credits for requests",
            w->idx, (double)(w->t_ready - w->t_start) / 1e9, rd->info.model_name,
            rd->info.vocab, rd->info.max_model_len, rd->credits);
    }
    return SUP_READY;
}

void
sup_reload(struct sup *s, struct wrk *w)
{
    if (w->link.seg == NULL || w->dead)
        return;
    lnk_put_par(w->link.seg, s->env->par);
    w->link.pend |= WLK_PEND_RELOAD;
}

void
sup_kill(struct wrk *w, const char *why)
{
    if (w->pid <= 0 || w->dead || w->is_killed)
        return;
    w->is_killed = 1;
    log_warn("supervise: worker %d (pid %d) is killed: %s", w->idx, (int)w->pid, why);
    (void)kill(w->pid, SIGKILL);
    w->link.up = 0;
    w->link.is_closed = 1;
}

void
sup_stop(struct sup *s, struct wrk *w, uint64_t grace_ns)
{
    if (w->st == WRK_BACKOFF || w->st == WRK_NONE) {
        sup_set_state(w, WRK_NONE);
        return;
    }
    if (w->st == WRK_FAILED || w->st == WRK_STOPPING)
        return;
    /* A loading worker does not read its ring yet. */
    if (w->st == WRK_STARTING && w->pid > 0)
        (void)kill(w->pid, SIGTERM);
    sup_set_state(w, WRK_STOPPING);
    w->link.pend |= WLK_PEND_DRAIN;
    w->t_stop = s->env->now + grace_ns;
}

static void
sup_is_dead(struct wrk *w, int code, int status)
{
    w->dead = 1;
    w->link.is_closed = 1;
    w->status = code == CLD_EXITED ? (status & 0xff) << 8 : (status & 0x7f);
}

/* Reaps on the loop, if there is no thread for it or no pidfd that tells when. */
static void
sup_reap_now(struct wrk *w)
{
    siginfo_t si;

    memset(&si, 0, sizeof(si));
    if (waitid(P_PID, (id_t)w->pid, &si, WEXITED | WNOHANG) == 0 && si.si_pid != 0)
        sup_is_dead(w, si.si_code, si.si_status);
}

void
sup_reap(struct sup *s, struct wrk *w)
{
    if (w->pid <= 0 || w->dead || w->exit != NULL)
        return;
    if (s->ofl != NULL && w->pidfd >= 0)
        w->exit = calloc(1, sizeof(*w->exit));
    if (w->exit == NULL || ofl_reap(s->ofl, w->pid, w->exit) != 0) {
        free(w->exit);
        w->exit = NULL;
        sup_reap_now(w);
        return;
    }
    wch_del(s->watch, w->pidfd, w); /* it would be readable until the child is reaped */
}

static void
sup_look_exit(struct wrk *w)
{
    struct ofl_exit *e = w->exit;

    /* pairs with the store of offloop's thread */
    if (e == NULL || !__atomic_load_n(&e->is_done, __ATOMIC_ACQUIRE))
        return;
    sup_is_dead(w, e->code, e->status);
    free(e);
    w->exit = NULL;
}

void
sup_fix_text(const struct par *par, const struct rtd *rt, const struct names *names,
    int exit_code, char *ret, size_t ret_bytes)
{
    const char *path = par->model_path;
    char unit[sizeof(rt->socket_unit)];
    char *dot;

    if (exit_code == EX_UNAVAILABLE) {
        (void)snprintf(ret, ret_bytes,
            "nvidia-smi (does the driver answer?), or run on "
            "the processor: --set device.backend=cpu");
        return;
    }
    if (path[0] == '\0') {
        (void)snprintf(ret, ret_bytes,
            "--set model.path=DIR (a Hugging Face model "
            "directory), or model.path in the configuration file");
        return;
    }
    (void)snprintf(unit, sizeof(unit), "%s", rt->socket_unit);
    dot = strrchr(unit, '.');
    if (dot != NULL && strcmp(dot, ".socket") == 0)
        *dot = '\0';
    adv_model(path, dot != NULL ? unit : "fdd", exit_code == EX_NOPERM, names, ret,
        ret_bytes);
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

/* The exit code if another start would end the same way, else 0. */
static int
sup_permanent(const struct sup *s, const struct wrk *w)
{
    char at[PAR_STR_BYTES];
    int code;

    if (!WIFEXITED(w->status))
        return 0;
    code = WEXITSTATUS(w->status);
    if (code == EX_CONFIG && s->env->par->model_path[0] != '\0' &&
        strcmp(s->env->par->model_path, "null") != 0 &&
        adv_blocked_at(s->env->par->model_path, at, sizeof(at)) == ENOENT)
        return EX_NOINPUT;
    if (code == EX_CONFIG || code == EX_NOPERM || code == EX_UNAVAILABLE ||
        code == EX_NOINPUT || code == EX_USAGE)
        return code;
    return 0;
}

static int
sup_crash_loop(const struct sup *s, const struct wrk *w)
{
    uint64_t window = (uint64_t)s->env->par->daemon_crash_window_s * CLK_S;
    uint32_t n = 0;
    uint32_t have = w->n_deaths < SUP_DEATHS_MAX ? w->n_deaths : SUP_DEATHS_MAX;

    for (uint32_t i = 0; i < have; i++)
        n += s->env->now - w->deaths[i] <= window;
    return n >= (uint64_t)s->env->par->daemon_crash_max;
}

static void
sup_back_off(const struct sup *s, struct wrk *w)
{
    uint32_t most_ms = (uint32_t)s->env->par->daemon_restart_max_ms;
    uint64_t now_ns = s->env->now;

    if (w->t_ready > w->t_start && now_ns - w->t_ready >= SUP_STABLE_NS)
        w->backoff_ms = 0;
    w->backoff_ms = w->backoff_ms == 0 ? SUP_BACKOFF_MIN_MS : w->backoff_ms * 2;
    if (w->backoff_ms > most_ms)
        w->backoff_ms = most_ms;
    w->t_restart = now_ns + w->backoff_ms * CLK_MS;
    sup_set_state(w, WRK_BACKOFF);
}

int
sup_start_again(struct sup *s, struct wrk *w)
{
    int rc;

    w->n_deaths = 0;
    w->backoff_ms = 0;
    rc = sup_start(s, w);
    if (rc != 0)
        sup_back_off(s, w);
    return rc;
}

/* Reports the blocked state to the service manager, and to the log if to_log. */
static void
sup_tell_blocked(struct wrk *w, int to_log, uint64_t now_ns)
{
    const struct rty *y = &w->rty;
    char text[160], status[1600];
    size_t n;

    rty_text(y, now_ns, text, sizeof(text));
    if (to_log)
        log_error("supervise: worker %d is blocked: it %s, next in %u ms: %s%s%s", w->idx,
            text, w->backoff_ms, y->error, y->fix[0] != '\0' ? "; fix: " : "", y->fix);
    n = (size_t)snprintf(status, sizeof(status), "STATUS=blocked: the worker %s: %s%s%s",
        text, y->error, y->fix[0] != '\0' ? "; fix: " : "", y->fix);
    /* a line break would begin another variable of the notification */
    for (size_t i = 0; i < n && i < sizeof(status) - 1; i++) {
        if ((unsigned char)status[i] < ' ')
            status[i] = ' ';
    }
    ntf_send(status);
}

/* Blocks the worker: its failure would recur, but it is started again at intervals. */
static void
sup_block(const struct sup *s, struct wrk *w)
{
    uint64_t now_ns = s->env->now;
    int to_log = rty_failed(&w->rty, w->permanent,
        w->error[0] != '\0' ? w->error : w->last_death, w->fix, now_ns);

    sup_back_off(s, w);
    sup_tell_blocked(w, to_log, now_ns);
}

enum sup_verdict
sup_after_death(struct sup *s, struct wrk *w, int *ret_exit)
{
    const struct par *par = s->env->par;

    if (w->st == WRK_STOPPING || s->env->st == GATE_STOPPING) {
        sup_set_state(w, WRK_NONE);
        return SUP_ENDED;
    }
    if (w->permanent != 0 && w->fix[0] == '\0')
        sup_fix_text(par, s->rt, w->n_ready != 0 ? s->names : NULL, w->permanent, w->fix,
            sizeof(w->fix));
    if (w->permanent != 0 && w->n_ready == 0) {
        log_error("supervise: worker %d cannot run: %s%s%s", w->idx,
            w->error[0] != '\0' ? w->error : w->last_death,
            w->fix[0] != '\0' ? "; fix: " : "", w->fix);
        sup_set_state(w, WRK_FAILED);
        *ret_exit = w->permanent;
        return SUP_CANNOT_RUN;
    }
    w->n_died++;
    cnt_add(&s->env->cnt->worker_deaths, 1);
    if (w->permanent != 0) {
        sup_block(s, w);
        return SUP_RESTARTS;
    }
    sup_unblock(w);
    w->deaths[w->n_deaths++ % SUP_DEATHS_MAX] = s->env->now;
    if (sup_crash_loop(s, w)) {
        sup_set_state(w, WRK_FAILED);
        log_error("supervise: worker %d died %lld times within %lld s (daemon.crash_max, "
                  "daemon.crash_window_s) and is not started again; last: %s%s%s",
            w->idx, (long long)par->daemon_crash_max, (long long)par->daemon_crash_window_s,
            w->last_death, w->error[0] != '\0' ? ": " : "", w->error);
        return SUP_CRASH_LOOP;
    }
    sup_back_off(s, w);
    log_warn("supervise: worker %d %s; started again in %u ms%s%s%s%s", w->idx,
        w->last_death, w->backoff_ms, w->error[0] != '\0' ? "; it said: " : "", w->error,
        w->fix[0] != '\0' ? "; fix: " : "", w->fix);
    return SUP_RESTARTS;
}

/* Its program could not be executed. */
static void
sup_not_executed(struct sup *s, struct wrk *w, int error)
{
    char path[PAR_STR_BYTES * 2];

    (void)sup_find_worker(s->env->par, path, sizeof(path));
    w->permanent = EX_CONFIG;
    (void)snprintf(w->error, sizeof(w->error),
        "the program %.400s cannot be executed: %s", path, strerror(error));
    sup_fix_program(w);
}

void
sup_autopsy(struct sup *s, struct wrk *w)
{
    const struct lnk_seg *seg = w->link.seg;

    w->permanent = sup_permanent(s, w);
    log_adopt(&w->link.seg->log);
    sup_describe(w, w->last_death, sizeof(w->last_death));
    memcpy(w->error, seg->w.error, sizeof(w->error));
    w->error[sizeof(w->error) - 1] = '\0';
    if (seg->w.exec_errno != 0)
        sup_not_executed(s, w, seg->w.exec_errno);
    memcpy(w->panic, seg->panic, sizeof(w->panic));
    w->panic[sizeof(w->panic) - 1] = '\0';
    w->panic_generation = w->generation;
    if (w->st != WRK_STOPPING && s->env->st != GATE_STOPPING)
        crs_worker(&w->crash, w->link.seg, w->pid, w->last_death);
}

/* ---- while it runs ----------------------------------------------------------- */

/* Is a debugger attached? No, if the process's status cannot be read. */
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

/* Kills a ready worker that hangs: its requests then end, and another one starts. */
static void
sup_watch_hang(struct sup *s, struct wrk *w)
{
    const struct hng_limits l = { .hang_ns = (uint64_t)s->env->par->daemon_worker_hang_ms *
            CLK_MS,
        .first_ns = (uint64_t)s->env->par->daemon_worker_start_timeout_ms * CLK_MS };
    enum hng_verdict v;
    char why[160];

    v = hng_look(&w->hng, &w->link.seg->w.beat, &l, s->env->now, why, sizeof(why));
    if (w->st != WRK_READY)
        return; /* then other limits apply */
    switch (v) {
    case HNG_KILL:
        if (!sup_is_traced(w->pid))
            sup_kill(w, why);
        hng_excuse(&w->hng, s->env->now); /* once */
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
sup_watch_start(struct sup *s, struct wrk *w)
{
    uint64_t now = s->env->now;

    if (now - w->t_start > (uint64_t)s->env->par->daemon_worker_start_timeout_ms * CLK_MS) {
        sup_kill(w, "it was not ready within daemon.worker_start_timeout_ms");
        w->t_start = now; /* once */
    } else if (now - w->t_progress >= SUP_PROGRESS_NS) {
        w->t_progress = now;
        log_info("supervise: worker %d %s, %d %%", w->idx, sup_phase_name(w),
            sup_load_percent(w));
    }
}

static enum sup_event
sup_restart(struct sup *s, struct wrk *w)
{
    if (sup_start(s, w) == 0)
        return SUP_NOTHING;
    (void)snprintf(w->last_death, sizeof(w->last_death), "could not be started");
    return SUP_NO_START;
}

enum sup_event
sup_poll(struct sup *s, struct wrk *w)
{
    uint64_t now = s->env->now;

    if (w->pid > 0 && !w->dead && w->pidfd < 0)
        sup_reap(s, w);
    sup_look_exit(w);
    if (w->link.seg != NULL && w->dead)
        return SUP_DEAD;
    if (w->link.seg != NULL && w->is_killed) {
        int is_said = w->is_over;

        w->is_over = 1;
        return is_said ? SUP_NOTHING : SUP_KILLED;
    }
    if (w->link.is_news)
        return sup_on_ready(s, w);
    if (w->link.seg != NULL && w->link.lnk.bad && w->pid > 0)
        sup_kill(w, "its rings are corrupt");
    if (w->st == WRK_BACKOFF && now >= w->t_restart && s->env->st != GATE_STOPPING)
        return sup_restart(s, w);
    if (w->st == WRK_STOPPING && now >= w->t_stop && w->t_stop != 0) {
        sup_kill(w, "it did not end in time");
        w->t_stop = 0;
    }
    if (w->link.seg != NULL)
        sup_watch_hang(s, w);
    if (w->link.seg != NULL && w->st == WRK_STARTING)
        sup_watch_start(s, w);
    return SUP_NOTHING;
}

uint32_t
sup_restart_ms(const struct wrk *w)
{
    uint64_t ms = w->backoff_ms + SUP_RESTART_MIN_MS;

    if (w->t_ready > w->t_start)
        ms += (w->t_ready - w->t_start) / CLK_MS;
    return ms < SUP_RESTART_MAX_MS ? (uint32_t)ms : SUP_RESTART_MAX_MS;
}

int
sup_collect(pid_t pid, uint64_t most_ns)
{
    uint64_t t_end = clk_now_ns() + most_ns;
    pid_t rc;

    while ((rc = waitpid(pid, NULL, WNOHANG)) == 0 || (rc < 0 && errno == EINTR)) {
        if (clk_now_ns() >= t_end)
            return 0;
        clk_sleep_ns(SUP_COLLECT_NS);
    }
    return 1;
}

void
sup_fini(struct sup *s, struct wrk *w)
{
    if (w->pid > 0 && !w->dead) {
        (void)kill(w->pid, SIGKILL);
        if (!sup_collect(w->pid, SUP_FINI_NS))
            log_warn("supervise: worker %d (pid %d) was killed and does not end; it is left "
                     "alone",
                w->idx, (int)w->pid);
    }
    if (w->exit != NULL && __atomic_load_n(&w->exit->is_done, __ATOMIC_ACQUIRE))
        free(w->exit); /* else a hung thread still uses it */
    w->exit = NULL;
    s->ofl = NULL;
    if (w->link.seg != NULL)
        sup_drop_link(s, w);
}
