/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "libclient/fdwhere.h"
#include "libclient/priv.h"

#define DEFAULT_CONNECT_MS 5000
#define DEFAULT_UNREAD     (16u << 20)
#define DEFAULT_SPIN_NS    20000u
#define SPIN_MIN_CPUS      5
#define MAX_SQ_SLOTS       (1u << 16) /* a daemon's upper limit */
#define MAX_CQ_SLOTS       (1u << 20)
#define MAX_GAPS           (1u << 20) /* bytes outside slots and arena */

const char *
fdc_default_socket(void)
{
    static _Thread_local char path[FDW_PATH_BYTES];
    struct fdw_env e;

    fdw_env_get(&e);
    if (fdw_find_socket(&e, path, sizeof(path)))
        path[0] = '\0';
    return path;
}

static uint64_t
pick_spin(uint32_t spin_us)
{
    cpu_set_t set;
    if (spin_us == FDC_SPIN_NONE)
        return 0;
    if (spin_us)
        return (uint64_t)spin_us * 1000u;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) < SPIN_MIN_CPUS)
        return 0;
    return DEFAULT_SPIN_NS;
}

/* ---- handshake ----------------------------------------------------------- */

static int
dial(const char *path, uint32_t timeout_ms, int *ret_fd, int32_t *ret_os)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    struct timeval tv = { .tv_sec = timeout_ms / 1000,
        .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000 };
    size_t n = strlen(path);
    int fd;

    if (n == 0 || n >= sizeof(sa.sun_path)) {
        *ret_os = n == 0 ? EINVAL : ENAMETOOLONG;
        return FDP_E_CONNECT;
    }
    memcpy(sa.sun_path, path, n + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *ret_os = errno;
        return FDP_E_CONNECT;
    }
    /* The send timeout bounds connect() too while the backlog is full. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
        *ret_os = errno;
        close(fd);
        return *ret_os == EAGAIN ? FDP_E_TIMEOUT : FDP_E_CONNECT;
    }
    *ret_fd = fd;
    return 0;
}

static void
close_fds(int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Receives the answer and its descriptors; fds[] stay -1 for those that did not come. */
static int
receive_welcome(int sock, uint64_t deadline, struct fdp_welcome *w, int *fds,
    int32_t *ret_os)
{
    union {
        struct cmsghdr h;
        char buf[CMSG_SPACE(sizeof(int) * 8)];
    } ctl;
    unsigned char msg[1024];
    struct iovec iov = { msg, sizeof(msg) };
    struct msghdr mh = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = ctl.buf,
        .msg_controllen = sizeof(ctl.buf) };
    struct pollfd pfd = { .fd = sock, .events = POLLIN };
    int got = 0, rc, extra = 0;
    ssize_t n;

    do {
        uint64_t now = fdc__now();
        if (now >= deadline)
            return FDP_E_TIMEOUT;
        rc = poll(&pfd, 1, (int)((deadline - now) / 1000000u) + 1);
    } while (rc == 0 || (rc < 0 && errno == EINTR));
    n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    /* If a daemon refused without reading the hello, the kernel reports the reset first
     * and delivers the answer with the next call. */
    if (n < 0 && errno == ECONNRESET)
        n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return FDP_E_DISCONNECTED;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t o = 0; o + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); o += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + o, sizeof(fd));
            if (got < FDP_N_FDS)
                fds[got++] = fd;
            else
                extra = 1, close(fd);
        }
    }
    if (n == 0)
        return FDP_E_DISCONNECTED;
    /* There is room for more than the daemon sends: this process may have no more. */
    if ((mh.msg_flags & MSG_CTRUNC) != 0 && got < FDP_N_FDS) {
        *ret_os = EMFILE;
        return FDP_E_CONNECT;
    }
    if (extra || (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return FDP_E_PROTO;
    if (n < (ssize_t)offsetof(struct fdp_welcome, feat_on))
        return FDP_E_PROTO;
    memset(w, 0, sizeof(*w));
    memcpy(w, msg, (size_t)n < sizeof(*w) ? (size_t)n : sizeof(*w));
    if (w->magic != FDP_MAGIC)
        return FDP_E_PROTO;
    if (w->err)
        return fdc__told(w->err, FDP_E_PROTO);
    if (w->major != FDP_MAJOR)
        return FDP_E_VERSION;
    return n < (ssize_t)sizeof(*w) || got != FDP_N_FDS ? FDP_E_PROTO : 0;
}

static int
handshake(int sock, const struct fdc_open_opts *o, uint64_t deadline,
    struct fdp_welcome *w, int *fds, int32_t *ret_os)
{
    struct fdp_hello h = { .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .minor = FDP_MINOR,
        .size = sizeof(h),
        .feat_want = FDP_FEAT_ALL,
        .sq_slots = o->sq_slots,
        .cq_slots = o->cq_slots,
        .arena_bytes = o->arena_bytes };
    if (o->name) {
        size_t n = strlen(o->name);
        memcpy(h.name, o->name, n < sizeof(h.name) ? n : sizeof(h.name) - 1);
    }
    /* A daemon that refuses at once may have answered and closed already. */
    if (send(sock, &h, sizeof(h), MSG_NOSIGNAL) != (ssize_t)sizeof(h) && errno != EPIPE &&
        errno != ECONNRESET)
        return FDP_E_DISCONNECTED;
    return receive_welcome(sock, deadline, w, fds, ret_os);
}

static int
is_pow2(uint32_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

static int
fits(uint64_t off, uint64_t len, uint64_t total)
{
    return off >= FDP_C2D_SLOTS && off % 8 == 0 && off + len <= total;
}

/* Is fd a memfd of at least this size that cannot shrink? An access beyond a shrunk end
 * would end this process with SIGBUS. */
static int
region_ok(int fd, uint32_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
        st.st_size >= (off_t)bytes;
}

/* A write to a pipe or a socket may block or raise SIGPIPE. Descriptors without a file
 * type, such as an eventfd, do neither. */
static int
doorbell_ok(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0 &&
        fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

/* Checks the welcome message against itself and against the files that came with it. */
static int
geometry_ok(const struct fdp_welcome *w, const int *fds)
{
    uint64_t sq = (uint64_t)w->sq_slots * FDC_REQ_SLOT;
    uint64_t cq = (uint64_t)w->cq_slots * FDP_SLOT;

    if (!is_pow2(w->sq_slots) || !is_pow2(w->cq_slots) || w->sq_slots > MAX_SQ_SLOTS ||
        w->cq_slots > MAX_CQ_SLOTS)
        return 0;
    if (!fits(w->sq_off, sq, w->c2d_bytes) || w->arena_bytes % 8 ||
        !fits(w->arena_off, w->arena_bytes, w->c2d_bytes) ||
        !fits(w->cq_off, cq, w->d2c_bytes))
        return 0;
    if (w->arena_off < w->sq_off + sq && w->sq_off < w->arena_off + w->arena_bytes)
        return 0;
    /* The pages before the arena are allocated at once. */
    if (w->c2d_bytes - sq - w->arena_bytes > MAX_GAPS || w->d2c_bytes - cq > MAX_GAPS)
        return 0;
    return region_ok(fds[0], w->c2d_bytes) && region_ok(fds[1], w->d2c_bytes) &&
        doorbell_ok(fds[2]);
}

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; an older kernel returns EINVAL */
#define MADV_POPULATE_WRITE 23
#endif

/* ---- session ------------------------------------------------------------- */

static int
map_regions(struct fdc *s, const int *fds)
{
    void *c, *d;

    c = mmap(NULL, s->w.c2d_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (c == MAP_FAILED) /* its mode or a seal forbids writing */
        return errno == EACCES || errno == EPERM ? FDP_E_PROTO : FDP_E_NOMEM;
    s->c2d = (unsigned char *)c;
    /* Allocates pages for cursors and slots now; the arena's pages are allocated when
     * prompts are written (clearing all of them is most of a session's set-up). */
    (void)madvise(c, s->w.arena_off & ~(size_t)4095, MADV_POPULATE_WRITE);
    /* The daemon allocates the pages that it writes. Populating the mapping would
     * allocate the others here, at this process's expense. */
    d = mmap(NULL, s->w.d2c_bytes, PROT_READ, MAP_SHARED, fds[1], 0);
    if (d == MAP_FAILED)
        return FDP_E_NOMEM;
    s->d2c = (const unsigned char *)d;
    (void)madvise(c, s->w.c2d_bytes, MADV_DONTFORK);
    (void)madvise(d, s->w.d2c_bytes, MADV_DONTFORK);
    fdr_prod_init(&s->sq, s->c2d + s->w.sq_off, (uint32_t *)(s->c2d + FDP_C2D_SQ_TAIL),
        (const uint32_t *)(s->d2c + FDP_D2C_SQ_HEAD), s->w.sq_slots, FDC_REQ_SLOT);
    fdr_cons_init(&s->cq, s->d2c + s->w.cq_off,
        (const uint32_t *)(s->d2c + FDP_D2C_CQ_TAIL),
        (uint32_t *)(s->c2d + FDP_C2D_CQ_HEAD), s->w.cq_slots, FDP_SLOT);
    s->sq_wait = (uint32_t *)(s->c2d + FDP_C2D_SQ_WAIT);
    s->need_wakeup = (const uint32_t *)(s->d2c + FDP_D2C_SQ_NEED_WAKEUP);
    s->cq_wait = (uint32_t *)(s->c2d + FDP_C2D_CQ_WAIT);
    s->state = (const struct fdp_state *)(s->d2c + FDP_D2C_STATE);
    s->arena = s->c2d + s->w.arena_off;
    s->a_size = s->w.arena_bytes;
    s->a_retired = s->sq.tail;
    /* A new ring is empty: different cursors would mean slots that were never written. */
    return s->sq.head == s->sq.tail ? 0 : FDP_E_PROTO;
}

/* Makes a page that reads 0 in a forked child: cheaper than getpid() on each call. */
static int
make_alive(struct fdc *s)
{
    long page = sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return FDP_E_NOMEM;
    s->alive = (uint32_t *)p;
    *s->alive = 1;
    if (madvise(p, (size_t)page, MADV_WIPEONFORK))
        s->pid = (uint64_t)getpid();
    return 0;
}

static int
make_tables(struct fdc *s)
{
    uint32_t n = s->w.max_inflight ? s->w.max_inflight : s->w.sq_slots;

    s->n_tag = n < FDC_MAX_TAGS ? n : FDC_MAX_TAGS;
    s->tags = (struct tag_entry *)calloc(s->n_tag, sizeof(*s->tags));
    s->a_span = (uint32_t *)calloc(s->w.sq_slots, sizeof(*s->a_span));
    /* One chunk per request, and as many again for bursts. */
    s->pool_n = s->n_tag * 2 + 16;
    s->pool_base = (struct chunk *)malloc(s->pool_n * sizeof(struct chunk));
    if (!s->tags || !s->a_span || !s->pool_base)
        return FDP_E_NOMEM;
    for (uint32_t i = s->n_tag; i-- > 0;) {
        s->tags[i].gen = 1;
        s->tags[i].next_free = s->tag_free;
        s->tag_free = i + 1;
    }
    return 0;
}

int
fdc__no_fd(int32_t *ret_os)
{
    if (errno != EMFILE && errno != ENFILE)
        return FDP_E_NOMEM;
    *ret_os = errno;
    return FDP_E_CONNECT;
}

static int
make_epoll(struct fdc *s, int32_t *ret_os)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };

    s->ep = epoll_create1(EPOLL_CLOEXEC);
    if (s->ep < 0)
        return fdc__no_fd(ret_os);
    s->local = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->local < 0)
        return fdc__no_fd(ret_os);
    if (epoll_ctl(s->ep, EPOLL_CTL_ADD, s->sock, &ev))
        return FDP_E_NOMEM;
    ev.events = EPOLLIN;
    return epoll_ctl(s->ep, EPOLL_CTL_ADD, s->local, &ev) ? FDP_E_NOMEM : 0;
}

static struct fdc *
session_new(void)
{
    struct fdc *s = (struct fdc *)calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->magic = FDC_MAGIC;
    s->sock = s->bell = s->ep = s->local = s->re.timer = -1;
    pthread_mutex_init(&s->mtx, NULL);
    pthread_mutex_init(&s->mtx_sq, NULL);
    return s;
}

/* In a forked child the mappings do not exist and the locks may be held. */
void
fdc__session_free(struct fdc *s, int forked)
{
    int fds[] = { s->sock, s->bell, s->ep, s->local, s->re.timer };

    if (!forked) {
        if (s->c2d)
            munmap(s->c2d, s->w.c2d_bytes);
        if (s->d2c)
            munmap((void *)(uintptr_t)s->d2c, s->w.d2c_bytes);
        pthread_mutex_destroy(&s->mtx);
        pthread_mutex_destroy(&s->mtx_sq);
    }
    close_fds(fds, 5);
    if (s->alive)
        munmap(s->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(s->tags);
    free(s->a_span);
    free(s->pool_base);
    s->magic = 0;
    free(s);
}

static int
open_session(struct fdc *s, const struct fdc_open_opts *o, struct fdc_open_error *e)
{
    uint32_t ms = o->connect_timeout_ms ? o->connect_timeout_ms : DEFAULT_CONNECT_MS;
    uint64_t deadline = fdc__now() + (uint64_t)ms * 1000000u;
    int fds[FDP_N_FDS] = { -1, -1, -1 };
    int rc;

    rc = dial(o->path ? o->path : fdc_default_socket(), ms, &s->sock, &e->os_error);
    if (rc)
        return rc;
    rc = handshake(s->sock, o, deadline, &s->w, fds, &e->os_error);
    e->major = s->w.major;
    e->minor = s->w.minor;
    if (rc == 0 && !geometry_ok(&s->w, fds))
        rc = FDP_E_PROTO;
    if (rc == 0)
        rc = map_regions(s, fds);
    else
        e->retry_after_ms = s->w.retry_after_ms;
    s->bell = fds[2];
    close_fds(fds, 2);
    if (rc == 0)
        rc = make_alive(s);
    if (rc == 0)
        rc = make_tables(s);
    if (rc == 0)
        rc = make_epoll(s, &e->os_error);
    if (rc == 0)
        fdc__ring(s); /* tells the daemon that c2d is mapped and may be read */
    return rc;
}

int
fdc__dial(const struct fdc_open_opts *o, struct fdc **ret, struct fdc_open_error *e)
{
    struct fdc *s = session_new();
    int rc;

    *ret = NULL;
    if (s == NULL)
        return FDP_E_NOMEM;
    s->spin_ns = pick_spin(o->spin_us);
    s->max_unread = o->max_unread_bytes ? o->max_unread_bytes : DEFAULT_UNREAD;
    rc = open_session(s, o, e);
    if (rc)
        fdc__session_free(s, 0);
    else
        *ret = s;
    return rc;
}
