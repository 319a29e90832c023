/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/common/devowner.h"
#include "libclient/fdproto.h"
#include "libclient/fdwhere.h"

#define ANSWER_MAX   ((size_t)256 << 20)
#define ROOM         ((size_t)65536) /* for one read */
#define OPEN_WAIT_MS 2000u           /* longest wait for retries, all together */
#define NO_LIMIT_MS  (INT32_MAX / 2) /* opening a session always has a limit */

/* ---- where the daemon is ---------------------------------------------------- */

static int
has(const char *dir, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%.500s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void
folder_of(const char *path, char *ret, size_t ret_bytes)
{
    const char *slash = strrchr(path, '/');
    int n = slash == NULL || slash == path ? 1 : (int)(slash - path);

    snprintf(ret, ret_bytes, "%.*s", n, slash != NULL ? path : ".");
}

int
fct_paths(struct fct *f, const char *socket, const char *admin, const char *dir,
    const char *instance)
{
    int rc = 0, by_name = dir != NULL || instance != NULL, has_folder = 0;
    const char *name, *at; /* at: the client socket's path if it is given */
    struct sockaddr_un un;
    struct fdw_env e;

    fdw_env_get(&e);
    name = instance != NULL ? instance : e.instance;
    at = socket == NULL && !by_name ? e.socket : socket;
    f->dir_given = dir != NULL;
    f->is_found = at == NULL && admin == NULL && !by_name && e.runtime_dir == NULL;
    if (at != NULL && !by_name && (socket != NULL || e.runtime_dir == NULL)) {
        folder_of(at, f->dir, sizeof(f->dir));
        /* the folder of $FDD_SOCKET counts only if it has an admin socket too */
        has_folder = socket != NULL || has(f->dir, "admin.sock");
    }
    if (!has_folder)
        rc = fdw_find(&e, dir, instance, f->dir, sizeof(f->dir));
    if (rc == -EINVAL)
        return fct_usage("%s%s: no instance's name: " FDW_NAME_RULE "; see fdctl ls",
            instance != NULL ? "--instance " : "$FDD_INSTANCE=", name);
    if (rc != 0)
        return fct_usage("the runtime folder's path is longer than %d bytes",
            FDW_PATH_BYTES - 1);
    snprintf(f->instance, sizeof(f->instance), "%s",
        name != NULL && (instance != NULL || (dir == NULL && at == NULL)) ? name : "");
    snprintf(f->socket, sizeof(f->socket), at != NULL ? "%s" : "%.480s/" FDW_SOCKET,
        at != NULL ? at : f->dir);
    snprintf(f->admin, sizeof(f->admin), admin != NULL ? "%s" : "%.480s/admin.sock",
        admin != NULL ? admin : f->dir);
    if (strlen(f->socket) >= sizeof(un.sun_path) || strlen(f->admin) >= sizeof(un.sun_path))
        return fct_usage("%s: longer than the %zu bytes a socket's path can have",
            strlen(f->socket) > strlen(f->admin) ? f->socket : f->admin,
            sizeof(un.sun_path) - 1);
    return 0;
}

int
fct_no_permission(const char *what, gid_t gid)
{
    const struct group *gr = gid != 0 ? getgrgid(gid) : getgrnam("fdd");
    char number[24];
    const char *group = gr != NULL ? gr->gr_name : number;

    snprintf(number, sizeof(number), "%lu", (unsigned long)gid);
    /* Owned by root's group: the group fdd did not exist when the daemon started. */
    if (gid == 0)
        return fct_fail(EX_NOPERM,
            "%s: permission denied; the group fdd, whose members may use it, %s:\n"
            "  sudo %susermod -aG fdd $USER\n"
            "  sudo systemctl restart fdd    (then log in again)",
            what, gr == NULL ? "does not exist" : "is newer than the daemon",
            gr == NULL ? "groupadd --system fdd && sudo " : "");
    return fct_fail(EX_NOPERM,
        "%s: permission denied; members of the group %s may use it:\n"
        "  sudo usermod -aG %s $USER    (then log in again)",
        what, group, group);
}

int
fct_no_daemon(const struct fct *f, const char *place, const char *dir, const char *why)
{
    return fct_unav("no daemon %s: %s; start it:\n"
                    "  sudo systemctl start fdd%s%s\n"
                    "or one of your own:\n"
                    "  fdd --set daemon.runtime_dir=%s --set model.path=MODEL\n"
                    "or name another one with --instance NAME (fdctl ls shows them) or "
                    "--runtime-dir DIR",
        place, why, f->instance[0] != '\0' ? "@" : "", f->instance, dir);
}

static int
cannot_connect(const struct fct *f, const char *path, int os_error)
{
    struct stat st = { .st_gid = 0 };
    char dir[512], place[520];

    if (os_error == EACCES || os_error == EPERM) {
        (void)stat(path, &st);
        return fct_no_permission(path, st.st_gid);
    }
    folder_of(path, dir, sizeof(dir));
    snprintf(place, sizeof(place), "at %.512s", path);
    return fct_no_daemon(f, place, dir, strerror(os_error));
}

/* ---- sessions --------------------------------------------------------------- */

static int
try_open(const struct fct *f, size_t prompt_bytes, fdc_t **ret,
    struct fdc_open_error *ret_err)
{
    struct fdc_open_opts opts = { .size = sizeof(opts),
        .path = f->socket,
        .name = fct_prog,
        .spin_us = f->spin_us,
        .connect_timeout_ms = f->timeout_ms < 0 ? NO_LIMIT_MS : (uint32_t)f->timeout_ms,
        .max_unread_bytes = 256u << 20,
        .ret_error = ret_err };

    *ret_err = (struct fdc_open_error){ .size = sizeof(*ret_err) };
    /* A request may take half of the arena, which is 1 MiB by default. */
    if (prompt_bytes > (size_t)400 << 10)
        opts.arena_bytes = prompt_bytes > (size_t)30 << 20
            ? 64u << 20
            : (uint32_t)(2 * prompt_bytes + 65536);
    return fdc_open(&opts, ret);
}

int
fct_open(const struct fct *f, size_t prompt_bytes, fdc_t **ret_session)
{
    struct fdc_open_error oe;
    uint32_t waited_ms = 0;
    int rc;

    /* Retry after the time that the daemon names: scripts may connect too often. */
    while ((rc = try_open(f, prompt_bytes, ret_session, &oe)) < 0 &&
        oe.retry_after_ms != 0 && waited_ms + oe.retry_after_ms <= OPEN_WAIT_MS) {
        waited_ms += oe.retry_after_ms;
        (void)usleep(oe.retry_after_ms * 1000u);
    }
    if (rc >= 0)
        return 0;
    if (rc == FDC_E_CONNECT)
        return cannot_connect(f, f->socket, oe.os_error != 0 ? oe.os_error : ECONNREFUSED);
    if (rc == FDC_E_PERM)
        return fct_fail(EX_NOPERM,
            "%s: refused by the daemon (E_PERM): its "
            "configuration does not allow this user (ipc.group, ipc.refuse_own_uid)",
            f->socket);
    if (rc == FDC_E_VERSION)
        return fct_fail(EX_PROTOCOL,
            "%s: %s: the daemon speaks protocol %u.%u, this "
            "fdctl %d.%d; install both from the same release",
            f->socket, fdc_strerror(rc), oe.major, oe.minor, FDP_MAJOR, FDP_MINOR);
    if (oe.retry_after_ms != 0)
        return fct_fail(fct_exit_code(rc), "%s: %s (%s), try again in %u ms", f->socket,
            fdc_strerror(rc), fdc_status_name(rc), oe.retry_after_ms);
    return fct_status_fail(f->socket, rc);
}

int
fct_info(fdc_t *s, int timeout_ms, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model)
{
    *ret_model = (struct fdc_model_info){ .size = sizeof(*ret_model) };
    *ret_info = (struct fdc_info){ .size = sizeof(*ret_info), .model = ret_model };
    return fdc_info(s, ret_info, timeout_ms);
}

/* ---- admin socket ----------------------------------------------------------- */

int
fct_dial(const char *path, int flags, int timeout_ms)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    const struct timeval tv = { .tv_sec = timeout_ms / 1000,
        .tv_usec = timeout_ms % 1000 * 1000 };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), e;

    memcpy(un.sun_path, path, strnlen(path, sizeof(un.sun_path) - 1));
    /* Limits connect() too, if the daemon no longer accepts. */
    if (fd >= 0 && timeout_ms >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
        return fd;
    e = errno;
    if (fd >= 0)
        close(fd);
    return -e;
}

int
fct_admin_send(struct fct_admin *a, json_t *ask)
{
    char *line = ask != NULL ? json_dumps(ask, JSON_COMPACT) : NULL;
    size_t n = line != NULL ? strlen(line) : 0, sent = 0;
    int rc = line != NULL ? 0 : -ENOMEM;
    ssize_t k;

    json_decref(ask);
    if (line != NULL)
        line[n++] = '\n'; /* replaces the NUL */
    while (rc == 0 && sent < n) {
        k = send(a->fd, line + sent, n - sent, MSG_NOSIGNAL);
        if (k >= 0)
            sent += (size_t)k;
        else if (errno != EINTR)
            rc = errno == EAGAIN ? 1 : -errno;
    }
    free(line);
    return rc;
}

/* Returns 0 or -errno; -EAGAIN: connecting took too long. */
static int
dial(const struct fct *f, struct fct_admin *ret_admin)
{
    *ret_admin = (struct fct_admin){ .fd = fct_dial(f->admin, 0, f->timeout_ms),
        .timeout_ms = f->timeout_ms,
        .got_fd = -1 };
    return ret_admin->fd >= 0 ? 0 : ret_admin->fd;
}

static int
no_answer(int quiet, int timeout_ms)
{
    return quiet ? EX_TEMPFAIL
                 : fct_fail(EX_TEMPFAIL,
                       "the daemon gave no answer within %d ms (--timeout)", timeout_ms);
}

int
fct_admin_open(const struct fct *f, int quiet, struct fct_admin *ret_admin)
{
    int rc = dial(f, ret_admin);

    if (rc == 0)
        return 0;
    if (rc == -EAGAIN) /* it accepts none, and its queue of connections is full */
        return no_answer(quiet, f->timeout_ms);
    if (quiet)
        return rc == -EACCES || rc == -EPERM ? EX_NOPERM : EX_UNAVAILABLE;
    return cannot_connect(f, f->admin, -rc);
}

void
fct_admin_close(struct fct_admin *a)
{
    if (a->fd >= 0)
        close(a->fd);
    if (a->got_fd >= 0)
        close(a->got_fd);
    free(a->buf);
}

int
fct_admin_receive(struct fct_admin *a, size_t most, json_t **ret_answer)
{
    for (;;) {
        _Alignas(8) char ctl[CMSG_SPACE(sizeof(int))]; /* for a descriptor */
        size_t cap = a->cap - a->n < ROOM ? a->cap * 2 + 2 * ROOM : a->cap;
        struct msghdr m = { .msg_iovlen = 1,
            .msg_control = ctl,
            .msg_controllen = sizeof(ctl) };
        struct iovec iov;
        struct cmsghdr *h;
        ssize_t k;

        if (cap > most || fct_room(&a->buf, cap, &a->cap, 1) != 0)
            return -ENOMEM;
        iov = (struct iovec){ a->buf + a->n, a->cap - a->n };
        m.msg_iov = &iov;
        k = recvmsg(a->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        h = k > 0 ? CMSG_FIRSTHDR(&m) : NULL;
        if (h != NULL && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
            h->cmsg_len == CMSG_LEN(sizeof(int))) {
            if (a->got_fd >= 0)
                close(a->got_fd);
            memcpy(&a->got_fd, CMSG_DATA(h), sizeof(int));
        }
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k == 0 ? -EPIPE : errno == EAGAIN ? 1 : -errno;
        a->n += (size_t)k;
        if (a->buf[a->n - 1] == '\n')
            break;
    }
    *ret_answer = json_loadb(a->buf, a->n, JSON_ALLOW_NUL, NULL);
    if (json_is_object(*ret_answer))
        return 0;
    json_decref(*ret_answer);
    return -EPROTO;
}

static int
refused(const json_t *answer, int quiet)
{
    const char *error = fct_str(answer, "error"), *fix = fct_str(answer, "fix");
    int code = strstr(fix, "usermod") != NULL ? EX_NOPERM
        : strcmp(fix, "try again") == 0
        ? EX_TEMPFAIL
        : EX_DATAERR;

    if (quiet)
        return code;
    return fct_fail(code, "%s%s%s", error[0] != '\0' ? error : "the daemon refused",
        fix[0] != '\0' ? "\n  " : "", fix);
}

/* Send a request, taking over its reference, and read the answer. Returns 0 or -errno as
 * fct_admin_receive(), or -ETIMEDOUT. */
static int
exchange(struct fct_admin *a, json_t *ask, json_t **ret_answer)
{
    int rc = fct_admin_send(a, ask), left = -1;
    struct pollfd pfd = { .fd = a->fd, .events = POLLIN };
    uint64_t wait_ns = (uint64_t)(a->timeout_ms < 0 ? 0 : a->timeout_ms) * 1000000u;
    uint64_t t_end = clk_now_ns() + wait_ns, now;

    /* A user without the right gets an answer before asking, so sending may fail. */
    if (rc != 0 && rc != -EPIPE && rc != -ECONNRESET)
        return rc == 1 ? -EAGAIN : rc;
    a->n = 0;
    do {
        now = clk_now_ns();
        if (a->timeout_ms >= 0)
            left = now >= t_end ? 0 : (int)((t_end - now) / 1000000u) + 1;
        rc = poll(&pfd, 1, left) == 0 ? -ETIMEDOUT
                                      : fct_admin_receive(a, ANSWER_MAX, ret_answer);
    } while (rc == 1);
    return rc;
}

int
fct_ask(struct fct_admin *a, json_t *ask, int quiet, json_t **ret_answer)
{
    json_t *answer = NULL;
    int n = exchange(a, ask, &answer);
    int code = n == -EPROTO ? EX_PROTOCOL : n == -ENOMEM ? EX_SOFTWARE : EX_UNAVAILABLE;

    if (n == -ETIMEDOUT)
        return no_answer(quiet, a->timeout_ms);
    if (n < 0 && quiet)
        return code;
    if (n < 0)
        return fct_fail(code, "admin socket: %s",
            n == -EPIPE        ? "closed by the daemon"
                : n == -EPROTO ? "the answer is no JSON object"
                               : strerror(-n));
    if (json_is_true(json_object_get(answer, "ok"))) {
        *ret_answer = answer;
        return 0;
    }
    code = refused(answer, quiet);
    json_decref(answer);
    return code;
}

int
fct_ask_once(const struct fct *f, json_t *ask, int quiet, json_t **ret_answer)
{
    struct fct_admin a;
    int rc = fct_admin_open(f, quiet, &a);

    if (rc == 0)
        rc = fct_ask(&a, json_incref(ask), quiet, ret_answer);
    json_decref(ask);
    fct_admin_close(&a);
    return rc;
}

int
fct_ask_fd(const struct fct *f, const char *cmd, uint32_t group, int timeout_ms,
    char *ret_why, size_t why_bytes)
{
    json_t *answer = NULL;
    struct fct g = *f;
    struct fct_admin a;
    const char *error;
    int rc;

    if (g.timeout_ms < 0 || g.timeout_ms > timeout_ms)
        g.timeout_ms = timeout_ms;
    rc = dial(&g, &a);
    if (rc != 0)
        return rc == -EAGAIN ? -ETIMEDOUT : rc;
    rc = exchange(&a,
        json_pack("{s:s, s:o*}", "cmd", cmd, "group",
            group != 0 ? json_integer((json_int_t)group) : NULL),
        &answer);
    if (rc == 0 && !json_is_true(json_object_get(answer, "ok"))) {
        error = fct_str(answer, "error");
        if (refused(answer, 1) == EX_NOPERM)
            rc = -EACCES;
        else if (strncmp(error, "there is no group ", 18) == 0)
            rc = -ENXIO;
        else
            rc = strstr(error, "unknown ") != NULL ? -EPROTO : -EBUSY;
        fct_fill(ret_why, why_bytes, "{error}[fix|\n  {fix}]", answer);
    }
    if (rc == 0) {
        rc = a.got_fd >= 0 ? a.got_fd : -EPROTO;
        a.got_fd = -1;
    }
    json_decref(answer);
    fct_admin_close(&a);
    return rc;
}

/* ---- waiting ---------------------------------------------------------------- */

enum seen { SEEN_NOTHING, SEEN_BUSY, SEEN_READY, SEEN_FAILED, SEEN_NO_RIGHT };

/* The pid of the process that has the folder's lock, or had it last, by the pid file, and
 * when it was written. Returns 0 if there is none, -1 if it cannot be read. */
static pid_t
lock_pid(const struct fct *f, int *ret_alive, struct timespec *ret_written)
{
    char path[600], text[32] = "";
    struct stat st;
    long pid = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/" FDW_PID, f->dir);
    /* O_NONBLOCK: opening another user's FIFO must not block. */
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read(fd, text, sizeof(text) - 1) > 0)
        pid = strtol(text, NULL, 10);
    close(fd);
    if (pid <= 0 || pid > INT32_MAX)
        return 0;
    *ret_alive = dow_is_alive(pid);
    *ret_written = st.st_mtim;
    return (pid_t)pid;
}

pid_t
fct_daemon_pid(const struct fct *f)
{
    struct timespec written;
    int alive = 0;
    pid_t pid = lock_pid(f, &alive, &written);

    if (pid > 0)
        return alive ? pid : 0;
    return pid < 0 || has(f->dir, FDW_SOCKET) ? -1 : 0;
}

#define NO_START "the worker does not start"
static enum seen
look_admin(const struct fct *f, char *why, size_t why_bytes)
{
    json_t *st = NULL, *w;
    const char *state, *phase;
    enum seen seen = SEEN_BUSY;
    int rc = fct_ask_once(f, fct_question("status"), 1, &st);

    if (rc != 0)
        return rc == EX_NOPERM || rc == EX_DATAERR || rc == EX_PROTOCOL
            ? SEEN_NO_RIGHT
            : SEEN_NOTHING;
    w = json_object_get(st, "worker");
    state = fct_str(st, "state");
    phase = fct_str(w, "phase");
    /* A failed worker is started again, unless its daemon is stopping. */
    if (strcmp(phase, "ready") == 0)
        seen = SEEN_READY;
    else if (strcmp(state, "degraded") == 0 ||
        (strcmp(phase, "failed") == 0 &&
            (fct_num(w, "pid") == 0 || strcmp(state, "stopping") == 0)))
        seen = SEEN_FAILED;
    fct_fill(why, why_bytes,
        seen == SEEN_FAILED
            ? "[*retry|[error|{error}][!error|" NO_START "]]"
              "[!retry|[error|{error}][!error|" NO_START "]][fix|\n  {fix}]"
            : "the worker is [phase|{phase}][!phase|not there]"
              "[*retry|[error|: {error}]][!retry|[error|: {error}]]",
        w);
    json_decref(st);
    return seen;
}

/* Look by the client socket, for users who may not use the admin socket. */
static enum seen
look_client(const struct fct *f, char *why, size_t why_bytes)
{
    struct fdc_open_error oe;
    struct fdc_model_info model;
    struct fdc_info info;
    enum seen seen = SEEN_BUSY;
    fdc_t *s = NULL;
    int rc = try_open(f, 0, &s, &oe);

    if (rc == FDC_E_CONNECT)
        return oe.os_error == EACCES || oe.os_error == EPERM ? SEEN_NO_RIGHT : SEEN_NOTHING;
    snprintf(why, why_bytes, "%s", rc < 0 ? fdc_strerror(rc) : "the model is still loading");
    if (rc < 0)
        return fdc_is_retryable(rc) ? SEEN_BUSY : SEEN_FAILED;
    if (fct_info(s, 1000, &info, &model) >= 0 && model.vocab != 0)
        seen = SEEN_READY;
    fdc_close(s);
    return seen;
}

/* The pid file shows a daemon that ends before its sockets exist. */
struct watched {
    struct timespec began; /* start of the wait, by the file system's clock */
    int seen;              /* the daemon was alive at some time */
    uint64_t t_gone;       /* time since which it is dead; 0: it is not */
};
/* Another daemon may take its place; one in another pid namespace looks dead at first. */
#define GONE_NS UINT64_C(500000000)

static int
has_ended(const struct fct *f, struct watched *w)
{
    struct timespec written;
    int alive = 0;
    pid_t pid = lock_pid(f, &alive, &written);
    siginfo_t child = { .si_pid = 0 };

    /* A child that ends before it writes the pid file. It stays for the caller to wait for. */
    if (f->child > 0 &&
        waitid(P_PID, (id_t)f->child, &child, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        child.si_pid != 0)
        return 1;
    if (pid > 0 && alive) {
        w->seen = 1;
        w->t_gone = 0;
        return 0;
    }
    /* A pid file older than the wait may belong to a daemon before the one waited for. */
    if (!w->seen &&
        (pid <= 0 || written.tv_sec < w->began.tv_sec ||
            (written.tv_sec == w->began.tv_sec && written.tv_nsec < w->began.tv_nsec)))
        return 0;
    if (w->t_gone == 0)
        w->t_gone = clk_now_ns();
    return clk_now_ns() - w->t_gone >= GONE_NS;
}

int
fct_wait_ready(struct fct *f)
{
    uint64_t t_end = clk_now_ns() + (uint64_t)(f->wait_s * 1e9);
    char why[1200] = "no daemon answers", less[1200];
    struct watched w = { .seen = 0 };
    struct fct g = *f;
    int reached = 0, told = 0;

    clock_gettime(CLOCK_REALTIME_COARSE, &w.began);
    for (;;) {
        uint64_t now = clk_now_ns();
        double left_ms = now >= t_end ? 0 : (double)(t_end - now) / 1e6;
        int left = left_ms < INT32_MAX ? (int)left_ms + 1 : INT32_MAX;
        enum seen seen;

        /* A daemon that starts meanwhile may have another runtime folder. */
        if (f->is_found) {
            int rc = fct_paths(f, NULL, NULL, NULL, NULL);

            if (rc != 0)
                return rc;
            g = *f;
        }
        /* A socket of the service manager accepts a connection but never answers if no
         * daemon starts. */
        g.timeout_ms = f->timeout_ms >= 0 && f->timeout_ms < left ? f->timeout_ms : left;
        seen = look_admin(&g, why, sizeof(why));
        told |= seen == SEEN_BUSY;
        /* If the service manager listens, a client's connection starts the daemon. */
        if (seen == SEEN_NO_RIGHT || seen == SEEN_NOTHING) {
            less[0] = '\0';
            seen = look_client(&g, less, sizeof(less));
            /* keep the admin socket's more exact reason */
            if (less[0] != '\0' && !(told && seen == SEEN_BUSY))
                snprintf(why, sizeof(why), "%s", less);
        }
        if (seen == SEEN_READY)
            return 0;
        if (seen == SEEN_FAILED)
            return fct_unav("%s", why);
        if (seen == SEEN_NO_RIGHT)
            return cannot_connect(f, f->socket, EACCES);
        /* at t_end no conclusion: the last look may have had too little time */
        if (seen == SEEN_NOTHING && (has_ended(f, &w) || (reached && clk_now_ns() < t_end)))
            return fct_unav("the daemon at %s ended before it was ready; its log says why%s%s%s",
                f->socket, reached ? " (at last " : "", reached ? why : "",
                reached ? ")" : "");
        reached |= seen == SEEN_BUSY;
        if (fct_interrupted)
            return FCT_EX_INT;
        if (clk_now_ns() >= t_end)
            return fct_unav("%s: not ready after %g s: %s", f->socket, f->wait_s, why);
        clk_sleep_ns(20 * CLK_MS);
    }
}
