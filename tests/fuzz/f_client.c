/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdclient with a daemon that violates the protocol: in the welcome message, with the
 * descriptors, in shared memory, with records.
 *
 * Input: the changes to a correct handshake (see offer()), then commands, each an opcode
 * byte with its arguments: calls of the program (client_command()) and actions of the
 * daemon (daemon_command()). While a call waits for an answer, the daemon's thread runs
 * the commands after it.
 *
 * Nothing may crash or hang; results are statuses, a request's events are as in
 * fdclient.h, with one terminal event, and no descriptor is left open.
 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"
#include "tests/fuzz/take.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

#define SQ_SLOTS 16u
#define CQ_SLOTS 64u
#define ARENA    4096u
#define MAP_MAX  (1u << 20) /* bytes of a region that the daemon writes to */
#define N_REQ    4
#define CALL_MS  100 /* the daemon's thread hangs up well before that */
#define HANG_NS  5000000000ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* bytes: how much of the mapping the file still covers */
struct region {
    int fd;
    unsigned char *map;
    uint32_t bytes, mapped;
};

static struct daemon {
    int lsock, sock, bell;
    struct region c2d, d2c;
    struct fdp_welcome w;
    uint32_t sq_slots, cq_slots, cq_off; /* as in the welcome, if valid */
    uint32_t cq_tail;
    uint32_t sq_tail; /* request tail before the call that is to be answered */
    char dir[32], path[64];
    pthread_t thread;
    sem_t go, done;
    struct in *job;   /* commands for the daemon's thread; NULL: the handshake */
    struct in *hello; /* input of the handshake */
} dm;

static struct client {
    fdc_t *s;
    struct {
        fdc_req_t *r;
        uint32_t n;
        int ended;
    } req[N_REQ];
    uint32_t sum; /* sum of all delivered bytes, which must be readable */
} cl;

static uint32_t seen[FDP_T__N]; /* by type: events that were delivered,
                                 * other records that were sent */

int
fuzz_missing(void)
{
    int n = 0;

    for (unsigned i = 0; i < FDP_T__N; i++) {
        if (seen[i] != 0)
            continue;
        fprintf(stderr, "f_client: the program read no record of type %u\n", i);
        n++;
    }
    return n;
}

static uint64_t
now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the daemon: handshake ----------------------------------------------- */

/* Changes the file's size if no seal forbids it. */
static void
cut_off(struct region *g, uint32_t bytes)
{
    if (ftruncate(g->fd, (off_t)bytes) == 0 && bytes < g->bytes)
        g->bytes = bytes;
}

static void
region_make(struct region *g, uint32_t claimed, uint32_t lie)
{
    uint64_t bytes = claimed;

    g->fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    MUST(g->fd >= 0);
    if (lie & 1)
        bytes = bytes > 4096 ? bytes - 4096 : 0;
    MUST(ftruncate(g->fd, (off_t)bytes) == 0);
    g->bytes = bytes < MAP_MAX ? (uint32_t)bytes : MAP_MAX;
    g->mapped = g->bytes;
    g->map = NULL;
    if (g->bytes != 0) {
        g->map = mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, 0);
        MUST(g->map != MAP_FAILED);
    }
    (void)fcntl(g->fd, F_ADD_SEALS,
        (lie & 2 ? 0 : F_SEAL_SHRINK) | (lie & 4 ? 0 : F_SEAL_GROW) |
            (lie & 8 ? F_SEAL_SEAL : 0));
}

static void
region_drop(struct region *g)
{
    if (g->map != NULL)
        (void)munmap(g->map, g->mapped);
    (void)close(g->fd);
    g->map = NULL;
    g->bytes = 0;
}

/* Makes a wrong kind of file instead of the right one. */
static int
wrong_fd(uint32_t kind, int right)
{
    char path[32];
    int p[2];

    switch (kind) {
    case 1: /* the right file, opened read-only */
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", right);
        return open(path, O_RDONLY | O_CLOEXEC);
    case 2:
        MUST(pipe2(p, O_CLOEXEC) == 0);
        (void)close(p[0]);
        return p[1];
    case 3:
        return open("/", O_RDONLY | O_CLOEXEC);
    case 4:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    case 5:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case 6:
        return open(dm.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    default:
        return fcntl(right, F_DUPFD_CLOEXEC, 0);
    }
}

static void
send_welcome(const unsigned char *msg, size_t len, const int *fds, int n_fd)
{
    union {
        struct cmsghdr h;
        char buf[CMSG_SPACE(sizeof(int) * 12)];
    } ctl;
    struct iovec iov = { (void *)(uintptr_t)msg, len };
    struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

    memset(&ctl, 0, sizeof(ctl));
    if (n_fd > 0) {
        mh.msg_control = ctl.buf;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fd);
        ctl.h.cmsg_level = SOL_SOCKET;
        ctl.h.cmsg_type = SCM_RIGHTS;
        ctl.h.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fd);
        memcpy(CMSG_DATA(&ctl.h), fds, sizeof(int) * (size_t)n_fd);
    }
    (void)sendmsg(dm.sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Makes the welcome, with some fields changed. */
static void
offer_words(struct in *in, struct fdp_welcome *w)
{
    static const uint32_t odd[] = { 0, 1, 8, 16, 0x200, 0x1000, 0x7fffffff, 0x80000000,
        0xfffffff8, 0xffffffff, 1u << 16, 1u << 20, 1u << 24 };
    uint32_t word;

    *w = (struct fdp_welcome){ .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .minor = FDP_MINOR,
        .size = sizeof(*w),
        .feat_on = FDP_FEAT_ALL,
        .session_id = 7,
        .sq_slots = SQ_SLOTS,
        .cq_slots = CQ_SLOTS,
        .sq_off = FDP_C2D_SLOTS,
        .arena_off = FDP_C2D_SLOTS + SQ_SLOTS * sizeof(struct fdp_req),
        .arena_bytes = ARENA,
        .cq_off = FDP_D2C_SLOTS,
        .max_inflight = 8 };
    w->c2d_bytes = w->arena_off + ARENA;
    w->d2c_bytes = FDP_D2C_SLOTS + CQ_SLOTS * FDP_SLOT;
    for (uint32_t k = take(in, 1) % 6; k > 0; k--) {
        uint32_t at = take(in, 1), v;

        v = at & 0x40 ? odd[take(in, 1) % (sizeof(odd) / sizeof(odd[0]))]
                      : take(in, at & 0x80 ? 4 : 2);
        at = at % (sizeof(*w) / 4) * 4;
        memcpy(&word, (unsigned char *)w + at, 4);
        word = v;
        memcpy((unsigned char *)w + at, &word, 4);
    }
}

static void
offer(struct in *in)
{
    unsigned char msg[1100];
    uint32_t lie, wrong, n_fd, len;
    int fds[12];

    offer_words(in, &dm.w);
    lie = take(in, 2);
    wrong = take(in, 2);
    region_make(&dm.c2d, dm.w.c2d_bytes, lie);
    region_make(&dm.d2c, dm.w.d2c_bytes, lie >> 4);
    dm.sq_slots = dm.w.sq_slots != 0 ? dm.w.sq_slots : 1;
    dm.cq_slots = dm.w.cq_slots != 0 ? dm.w.cq_slots : 1;
    dm.cq_off = dm.w.cq_off;
    dm.cq_tail = 0;
    dm.bell = eventfd(0, EFD_CLOEXEC | (lie & 0x100 ? 0 : EFD_NONBLOCK));
    n_fd = lie & 0x200 ? take(in, 1) % 13 : FDP_N_FDS;
    for (uint32_t i = 0; i < n_fd; i++) {
        int right[3] = { dm.c2d.fd, dm.d2c.fd, dm.bell };

        fds[i] = wrong_fd(i < 3 ? wrong >> (3 * i) & 7 : 0, right[i % 3]);
        if (fds[i] < 0)
            fds[i] = fcntl(right[i % 3], F_DUPFD_CLOEXEC, 0);
        MUST(fds[i] >= 0);
    }
    /* cursors set before the client reads them */
    for (uint32_t k = lie & 0x400 ? take(in, 1) % 4 : 0; k > 0; k--) {
        struct region *g = take(in, 1) % 2 ? &dm.d2c : &dm.c2d;
        uint32_t at = take(in, 1) % 4 * 0x80, v = take(in, 4);

        if (at + 4 <= g->bytes)
            memcpy(g->map + at, &v, 4);
    }
    if (lie & 0x800)
        (void)shutdown(dm.sock, SHUT_WR);
    memset(msg, 0, sizeof(msg));
    memcpy(msg, &dm.w, sizeof(dm.w));
    len = lie & 0x1000 ? take(in, 2) % (sizeof(msg) + 1) : (uint32_t)sizeof(dm.w);
    send_welcome(msg, len, fds, (int)n_fd);
    for (uint32_t i = 0; i < n_fd; i++)
        (void)close(fds[i]);
    /* a client that waits longer sees the connection end */
    if (len == 0 || (lie & 0x2000))
        (void)shutdown(dm.sock, SHUT_RDWR);
    if (lie & 0x4000)
        cut_off(&dm.c2d, 0);
    if (lie & 0x8000)
        cut_off(&dm.d2c, 0);
}

/* ---- the daemon: a session ------------------------------------------------ */

static uint64_t
pick_tag(struct in *in)
{
    uint32_t how = take(in, 1);

    if (how & 0x80)
        return 0;
    if (how & 0x40)
        return (uint64_t)take(in, 1) << 32 | take(in, 1);
    if (cl.req[how % N_REQ].r != NULL)
        return fdc_req_tag(cl.req[how % N_REQ].r);
    return (uint64_t)(1 + how / 16) << 32 | how % 4; /* perhaps of a future request */
}

static void
publish(void)
{
    if (dm.d2c.bytes >= 4)
        fdr_publish((uint32_t *)(void *)(dm.d2c.map + FDP_D2C_CQ_TAIL), dm.cq_tail);
}

static void
put_record(struct in *in)
{
    struct {
        struct fdp_rec h;
        unsigned char data[FDP_REC_MAX_LEN];
    } r;
    uint32_t what = take(in, 1), bytes;
    uint64_t at = dm.cq_off + (uint64_t)(dm.cq_tail % dm.cq_slots) * FDP_SLOT;

    memset(&r, 0, sizeof(r.h) + 64);
    r.h.tag = pick_tag(in);
    r.h.type = (what & 0x1f) == 0x10 ? FDP_T_BYTES : (uint8_t)(what % 16);
    seen[r.h.type] +=
        r.h.type == FDP_T_PAD || r.h.type == FDP_T_EVENT || r.h.type == FDP_T_TOKENS;
    r.h.sample = what & 0x10 ? (uint16_t)take(in, 1) : 0;
    r.h.position = what & 0x20 ? take(in, 4) : 0;
    r.h.len = take(in, what & 0x40 ? 2 : 1) % (sizeof(r.data) + 1);
    for (uint32_t i = 0; i < r.h.len; i++)
        r.data[i] = in->n > 0 ? (unsigned char)take(in, 1) : 0;
    bytes = (uint32_t)sizeof(r.h) + r.h.len;
    r.h.n_slot = (uint8_t)FDP_REC_SLOTS(r.h.len);
    if (what & 0x80) {
        r.h.n_slot = (uint8_t)take(in, 1);
        r.h.len = take(in, 4);
    }
    if (at < dm.d2c.bytes) {
        if (bytes > dm.d2c.bytes - at)
            bytes = (uint32_t)(dm.d2c.bytes - at);
        memcpy(dm.d2c.map + at, &r, bytes);
    }
    dm.cq_tail += r.h.n_slot != 0 ? r.h.n_slot : 1;
}

static void
set_word(const struct region *g, uint32_t at, uint32_t v)
{
    if (at % 4 == 0 && at + 4 <= g->bytes)
        fdr_store_release((uint32_t *)(void *)(g->map + at), v);
}

static void
daemon_command(struct in *in, uint32_t op)
{
    uint32_t v = 0, at;

    switch (op % 12) {
    case 0:
    case 1:
    case 2:
    case 3:
        put_record(in);
        if (op & 16)
            publish();
        break;
    case 4: /* takes all requests */
        if (dm.c2d.bytes >= 4)
            v = fdr_load_acquire((const uint32_t *)(const void *)dm.c2d.map);
        set_word(&dm.d2c, FDP_D2C_SQ_HEAD, v);
        break;
    case 5:
        dm.cq_tail += op & 16 ? (uint32_t)(int32_t)(int8_t)take(in, 1) : 0;
        publish();
        break;
    case 6:
        at = take(in, 1) * 4u;
        set_word(&dm.d2c, at, take(in, 4));
        break;
    case 7:
        at = take(in, 1) * 4u;
        set_word(&dm.c2d, at, take(in, 4));
        break;
    case 8: /* ends the session, with a reason */
        set_word(&dm.d2c, FDP_D2C_STATE + 4, take(in, op & 16 ? 4 : 1));
        set_word(&dm.d2c, FDP_D2C_STATE, FDP_ST_GOODBYE);
        break;
    case 9:
        for (v = take(in, 1) % 64; v > 0; v--)
            (void)send(dm.sock, "wake", op & 16 ? 4 : 0, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case 10:
        (void)shutdown(dm.sock, op & 16 ? SHUT_RDWR : SHUT_WR);
        break;
    case 11:
        cut_off(op & 16 ? &dm.c2d : &dm.d2c, take(in, 2));
        break;
    }
}

/* The daemon's thread: the handshake, or commands while a call waits. */
static void
accept_one(void)
{
    struct fdp_hello h;

    dm.sock = accept4(dm.lsock, NULL, NULL, SOCK_CLOEXEC);
    MUST(dm.sock >= 0);
    MUST(recv(dm.sock, &h, sizeof(h), 0) == (ssize_t)sizeof(h));
    MUST(h.magic == FDP_MAGIC && h.size == sizeof(h));
    offer(dm.hello);
}

static void
answer(struct in *in)
{
    const uint32_t *tail = (const uint32_t *)(const void *)dm.c2d.map;
    uint64_t end = now_ns() + CALL_MS * 500000ull;

    while (fdr_load_acquire(tail) == dm.sq_tail && now_ns() < end)
        (void)usleep(1);
    while (in->n > 0)
        daemon_command(in, take(in, 1));
    (void)shutdown(dm.sock, SHUT_RDWR);
    publish();
    set_word(&dm.d2c, FDP_D2C_STATE, FDP_ST_GOODBYE);
    (void)syscall(SYS_futex, dm.d2c.map + FDP_D2C_CQ_TAIL, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *
daemon_main(void *arg)
{
    (void)arg;
    for (;;) {
        while (sem_wait(&dm.go) != 0)
            continue;
        if (dm.job == NULL)
            accept_one();
        else
            answer(dm.job);
        MUST(sem_post(&dm.done) == 0);
    }
    return NULL;
}

static void
daemon_gone(void)
{
    (void)unlink(dm.path);
    (void)rmdir(dm.dir);
}

static void
daemon_start(void)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };

    strcpy(dm.dir, "/tmp/fdd-lie-XXXXXX");
    MUST(mkdtemp(dm.dir) != NULL);
    (void)snprintf(dm.path, sizeof(dm.path), "%s/sock", dm.dir);
    strcpy(sa.sun_path, dm.path);
    (void)atexit(daemon_gone);
    dm.lsock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    MUST(bind(dm.lsock, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    MUST(listen(dm.lsock, 8) == 0);
    MUST(sem_init(&dm.go, 0, 0) == 0 && sem_init(&dm.done, 0, 0) == 0);
    MUST(pthread_create(&dm.thread, NULL, daemon_main, NULL) == 0);
}

/* ---- the program ----------------------------------------------------------- */

/* Checks that rc is a count or a status; none of the calls is misuse. */
static void
want_status(int64_t rc)
{
    MUST(rc >= INT32_MIN && rc <= INT32_MAX);
    MUST(rc != FDC_E_INVAL && rc != FDC_E_FORKED);
    MUST(fdc_strerror((int)rc) != NULL);
}

static void
want_event(const struct fdc_event *e, uint32_t n_sample)
{
    static const uint8_t unit[FDP_T__N] = { [FDC_T_PROMPT_IDS] = 4,
        [FDC_T_IDS] = 4,
        [FDC_T_TEXT] = 1,
        [FDC_T_PROMPT_TEXT] = 1,
        [FDC_T_TOKEN_TEXT] = sizeof(uint16_t),
        [FDP_T_BYTES] = 1,
        [FDP_T_REPLY] = 1,
        [FDC_T_SPECIAL] = sizeof(struct fdc_special),
        [FDC_T_LOGPROBS] = 8,
        [FDC_T_PROMPT_LOGPROBS] = 8,
        [FDC_T_ACCEPTED] = sizeof(struct fdc_accepted),
        [FDC_T_CHOICE_END] = sizeof(struct fdc_choice_end),
        [FDC_T_DONE] = sizeof(struct fdc_done),
        [FDC_T_ERROR] = sizeof(struct fdc_error) };
    const unsigned char *p = e->data;
    const char *text;
    size_t n_text = 0;
    uint32_t n;

    MUST(e->type < FDP_T__N && unit[e->type] != 0);
    seen[e->type]++;
    MUST(e->sample < n_sample);
    MUST(e->n <= FDP_REC_MAX_LEN / unit[e->type]);
    if (e->type == FDC_T_LOGPROBS || e->type == FDC_T_PROMPT_LOGPROBS)
        MUST(e->n >= 1);
    if (e->type == FDC_T_ERROR)
        MUST(e->error->code < 0 && e->error->code != FDC_E_AGAIN &&
            e->error->code != FDC_E_TIMEOUT);
    n = e->n * unit[e->type];
    for (uint32_t i = 0; i < e->n && (text = fdc_event_text(e, i, &n_text)) != NULL; i++)
        for (size_t k = 0; k < n_text; k++)
            cl.sum += (unsigned char)text[k];
    MUST(n <= FDP_REC_MAX_LEN);
    for (uint32_t i = 0; i < n; i++)
        cl.sum += p[i];
}

static void
read_some(uint32_t k, uint32_t times)
{
    struct fdc_event e = FDC_EVENT_INIT;
    int rc;

    if (cl.req[k].r == NULL)
        return;
    while (times-- > 0) {
        rc = fdc_next(cl.req[k].r, &e, 0);
        if (rc <= 0) {
            MUST(rc == FDC_E_AGAIN || rc == 0);
            MUST(rc != 0 || cl.req[k].ended);
            return;
        }
        MUST(!cl.req[k].ended);
        want_event(&e, cl.req[k].n);
        cl.req[k].ended = e.type == FDC_T_DONE || e.type == FDC_T_ERROR;
    }
}

static void
submit(struct in *in, uint32_t k)
{
    uint32_t ids[64] = { 1, 2, 3 };
    struct fdc_submit_opts o = { .size = sizeof(o) };
    struct fdc_params p;
    uint32_t what = take(in, 1);
    int rc;

    if (cl.req[k].r != NULL)
        return;
    fdc_params_init(&p);
    p.n = 1 + what % 3;
    o.exclusive_reader = what >> 2 & 1;
    o.submit_timeout_ms = what & 8 ? 1 : 0;
    rc = fdc_submit_ids(cl.s, ids, what & 16 ? 64 : 3, &p, &o, &cl.req[k].r);
    MUST(rc <= 0);
    if (rc != 0) {
        want_status(rc);
        cl.req[k].r = NULL;
        return;
    }
    cl.req[k].n = p.n;
    cl.req[k].ended = 0;
}

/* Makes a call whose answer comes from the commands after it. */
static void
call(struct in *in, uint32_t op)
{
    struct fdc_model_info model = { .size = sizeof(model) };
    struct fdc_info info = { .size = sizeof(info), .model = &model };
    uint32_t *ids = NULL, id = 5;
    char *text = NULL;
    size_t n = 0;
    uint64_t ns;
    int rc;

    if (dm.c2d.bytes < 4 || dm.d2c.bytes < FDP_D2C_SLOTS)
        return;
    dm.job = in;
    dm.sq_tail = fdr_load_acquire((const uint32_t *)(const void *)dm.c2d.map);
    MUST(sem_post(&dm.go) == 0);
    switch (op % 8 == 4 ? 4 : op % 4) {
    case 0:
        rc = fdc_tokenize(cl.s, "some text", 9, 0, &ids, &n, CALL_MS);
        for (size_t i = 0; rc == 0 && i < n; i++)
            cl.sum += ids[i];
        break;
    case 4:
        rc = fdc_file(cl.s, "vocabulary", &text, &n, CALL_MS);
        if (rc == 0)
            MUST(text[n] == '\0');
        break;
    case 1:
        rc = fdc_detokenize(cl.s, &id, 1, 0, &text, &n, CALL_MS);
        if (rc == 0)
            MUST(text[n] == '\0');
        break;
    case 2:
        rc = fdc_info(cl.s, &info, CALL_MS);
        MUST(rc != 0 ||
            (model.n_eos <= 8 && memchr(model.name, 0, sizeof(model.name)) != NULL));
        break;
    default:
        rc = fdc_ping(cl.s, 1, &ns, CALL_MS);
        break;
    }
    want_status(rc);
    MUST(rc != FDC_E_AGAIN);
    if (rc == 0) {
        fdc_free(ids);
        fdc_free(text);
    }
    while (sem_wait(&dm.done) != 0)
        continue;
}

static void
client_command(struct in *in, uint32_t op)
{
    uint32_t k = op / 16 % N_REQ, flags;
    fdc_req_t *r = NULL;
    char buf[40];
    int64_t rc;

    switch (op % 16) {
    case 0:
    case 1:
    case 2:
        submit(in, k);
        break;
    case 3:
    case 4:
    case 5:
        read_some(k, 1 + op / 64 * 8);
        break;
    case 6:
        rc = fdc_wait_any(cl.s, &r, 0);
        want_status(rc);
        for (k = 0; rc == 1 && r != cl.req[k].r; k++)
            MUST(k < N_REQ - 1);
        break;
    case 7:
    case 8:
        want_status(fdc_dispatch(cl.s));
        break;
    case 9:
        if (cl.req[k].r != NULL)
            want_status(fdc_cancel(cl.req[k].r));
        break;
    case 10:
        fdc_req_free(cl.req[k].r);
        cl.req[k].r = NULL;
        break;
    case 11:
        if (cl.req[k].r == NULL)
            break;
        rc = fdc_read_text(cl.req[k].r, buf, sizeof(buf), 0);
        want_status(rc);
        MUST(rc <= (int64_t)sizeof(buf));
        for (int64_t i = 0; i < rc; i++)
            cl.sum += (unsigned char)buf[i];
        /* the call reads terminal events too */
        cl.req[k].ended |= rc <= 0 && rc != FDC_E_AGAIN;
        break;
    case 12:
        want_status(fdc_state(cl.s, &flags));
        break;
    case 13:
        (void)fdc_req_tokens(cl.req[k].r, op / 64);
        break;
    default:
        call(in, op / 16);
        break;
    }
}

/* Whatever the daemon did, the session ends, and every request ends once. */
static void
finish(void)
{
    uint64_t t0 = now_ns();
    uint32_t flags;

    (void)shutdown(dm.sock, SHUT_RDWR);
    for (int i = 0; fdc_state(cl.s, &flags) == 0; i++)
        MUST(i < 100000);
    for (uint32_t k = 0; k < N_REQ; k++) {
        read_some(k, 1u << 20);
        MUST(cl.req[k].r == NULL || cl.req[k].ended);
        if (k % 2)
            fdc_req_free(cl.req[k].r);
    }
    fdc_close(cl.s);
    MUST(now_ns() - t0 < HANG_NS);
}

static int
count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    MUST(d != NULL);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct fdc_open_error err = { .size = sizeof(err) };
    struct fdc_open_opts o = { .size = sizeof(o),
        .name = "fuzz",
        .spin_us = FDC_SPIN_NONE,
        .connect_timeout_ms = 1000,
        .max_unread_bytes = 8192,
        .ret_error = &err };
    struct in in = { data, n };
    int n_fd, rc;

    if (n > 16384)
        return 0;
    if (dm.path[0] == '\0')
        daemon_start();
    n_fd = count_fds();
    memset(&cl, 0, sizeof(cl));
    o.path = dm.path;
    dm.job = NULL;
    dm.hello = &in;
    MUST(sem_post(&dm.go) == 0);
    rc = fdc_open(&o, &cl.s);
    while (sem_wait(&dm.done) != 0)
        continue;
    MUST(rc <= 0 && rc != FDC_E_INVAL && rc != FDC_E_AGAIN && rc != FDC_E_TIMEOUT);
    if (rc == 0) {
        while (in.n > 0) {
            uint64_t t0 = now_ns();
            uint32_t op = take(&in, 1);

            if (op & 1)
                client_command(&in, op >> 1);
            else
                daemon_command(&in, op >> 1);
            MUST(now_ns() - t0 < HANG_NS);
        }
        finish();
    }
    (void)close(dm.sock);
    (void)close(dm.bell);
    region_drop(&dm.c2d);
    region_drop(&dm.d2c);
    MUST(count_fds() == n_fd);
    return 0;
}
