/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
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

#include "tests/unit/mock_gate.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define CHECK(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "mock gate: line %d: %s\n", __LINE__, #e); \
            abort(); \
        } \
    } while (0)

static uint64_t
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- completions ---------------------------------------------------------- */

static void
wake_client(struct mock *m)
{
    uint32_t how;

    fdr_publish(m->cq.p_tail, m->cq.tail);
    how = fdr_flag_check((const uint32_t *)(m->c2d + FDP_C2D_CQ_WAIT));
    if (how == FDP_WAIT_FUTEX)
        syscall(SYS_futex, m->cq.p_tail, FUTEX_WAKE, 1, NULL, NULL, 0);
    else if (how == FDP_WAIT_FD) {
        (void)send(m->sock, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        __atomic_fetch_add(&m->n_bytes, 1, __ATOMIC_RELAXED);
    }
}

/* Returns 0 if the client makes no room within 2 s. */
static int
put(struct mock *m, uint64_t tag, int type, uint32_t sample, uint32_t pos,
    const void *data, uint32_t len)
{
    struct fdp_rec h = { .tag = tag,
        .type = (uint8_t)type,
        .n_slot = (uint8_t)FDP_REC_SLOTS(len),
        .sample = (uint16_t)sample,
        .position = pos,
        .len = len };
    uint32_t cost = fdr_prod_cost(&m->cq, h.n_slot);
    uint64_t end = now_ns() + 2000000000u;
    int64_t room;

    while ((room = fdr_prod_room(&m->cq, cost)) < (int64_t)cost) {
        CHECK(room >= 0);
        if (now_ns() > end)
            return 0;
        usleep(20);
    }
    if (cost != h.n_slot) {
        struct fdp_rec pad = { .type = FDP_T_PAD, .n_slot = (uint8_t)(cost - h.n_slot) };
        memcpy(fdr_prod_slot(&m->cq, m->cq.tail), &pad, sizeof(pad));
        m->cq.tail += cost - h.n_slot;
    }
    unsigned char *d = (unsigned char *)fdr_prod_slot(&m->cq, m->cq.tail);
    memcpy(d, &h, sizeof(h));
    if (len)
        memcpy(d + sizeof(h), data, len);
    m->cq.tail += h.n_slot;
    wake_client(m);
    return 1;
}

static void
tell_room(struct mock *m)
{
    struct fdp_event ev = { .kind = FDP_EV_ROOM };

    if (fdr_flag_check((const uint32_t *)(m->c2d + FDP_C2D_SQ_WAIT)) == 0)
        return;
    __atomic_fetch_add(&m->n_room, 1, __ATOMIC_RELAXED);
    put(m, 0, FDP_T_EVENT, 0, 0, &ev, sizeof(ev));
}

static void
put_error(struct mock *m, uint64_t tag, int code, uint32_t detail)
{
    struct fdp_error e = { .code = code, .detail = detail, .arg = 7, .retry_after_ms = 5 };
    put(m, tag, FDP_T_ERROR, 0, 0, &e, sizeof(e));
}

static void
put_done(struct mock *m, uint64_t tag, uint32_t out)
{
    struct fdp_done d = { .output_tokens = out, .t_end = 9 };
    put(m, tag, FDP_T_DONE, 0, 0, &d, sizeof(d));
}

static void
one_token(struct mock *m, struct mock_stream *s)
{
    uint32_t id = 1000 + s->pos + m->shift;
    char text[16];
    int len = snprintf(text, sizeof(text), "t%u ", s->pos);

    for (uint32_t k = 0; k < s->n; k++) {
        if ((s->flags & FDP_F_TEXT) != 0 && !s->logprobs) {
            struct {
                struct fdp_tokens t;
                uint32_t id;
                char text[16];
            } both = { { s->bytes, 1, (uint16_t)len }, id, "" };
            memcpy(both.text, text, (size_t)len);
            put(m, s->tag, FDP_T_TOKENS, k, s->pos, &both, (uint32_t)FDP_TOKENS_LEN(1, len));
            continue;
        }
        put(m, s->tag, FDP_T_IDS, k, s->pos, &id, 4);
        if (s->logprobs) {
            struct fdp_logprob lp[2] = { { id, -0.5f }, { 3, -1.5f } };
            put(m, s->tag, FDP_T_LOGPROBS, k, s->pos, lp, sizeof(lp));
        }
        if (s->flags & FDP_F_TEXT)
            put(m, s->tag, FDP_T_TEXT, k, s->bytes, text, (uint32_t)len);
    }
    s->bytes += (uint32_t)len;
    s->pos++;
    s->left--;
}

static void
finish(struct mock *m, struct mock_stream *s)
{
    struct fdp_choice_end c = { FDP_FIN_LENGTH, s->pos, -1, -1, 0, 0 };

    for (uint32_t k = 0; k < s->n; k++)
        put(m, s->tag, FDP_T_CHOICE_END, k, 0, &c, sizeof(c));
    put_done(m, s->tag, s->pos);
    s->used = 0;
}

/* ---- requests --------------------------------------------------------------- */

static void
echo(struct mock *m, uint64_t tag, const unsigned char *p, uint32_t n)
{
    for (uint32_t o = 0; o < n;) {
        uint32_t k = n - o < FDP_REC_MAX_LEN ? n - o : FDP_REC_MAX_LEN;
        if (k > m->cq_slots / 2 * FDP_SLOT - 24)
            k = m->cq_slots / 2 * FDP_SLOT - 24;
        put(m, tag, FDP_T_TEXT, 0, o, p + o, k);
        o += k;
    }
    put_done(m, tag, 0);
}

/* Sends a record of TEXT; it is published before the next is made. */
static void
say_piece(struct mock *m, const struct fdp_req *q, uint32_t off, const unsigned char *p,
    uint32_t n)
{
    put(m, q->tag, FDP_T_TEXT, 0, off, p, n);
    wake_client(m);
    usleep(off % 7 == 0 ? 200 : 0); /* some arrive together, some do not */
}

static void
say(struct mock *m, const struct fdp_req *q, const unsigned char *p, uint32_t n)
{
    int is_held = p[0] == 'h', fails = p[0] == 'f';
    struct fdp_choice_end c = { FDP_FIN_STOP, 0, -1, -1, 0, 0 };
    struct fdp_done d = { .prompt_tokens = n, .t_end = 9 };
    unsigned each = 0, most = 0, bytes = 0;
    uint32_t at = 0, from;

    CHECK(sscanf((const char *)p + 4, "%u %u %u", &each, &most, &bytes) == 3);
    while (p[at] != '\n')
        at++;
    p += at + 1;
    CHECK(at + 1 + bytes <= n);
    for (at = from = 0; at < bytes; from = at) {
        unsigned left = most > 0 ? 1 + (unsigned)rand() % most : each;

        for (; left > 0 && at < bytes; left--)
            do
                at++;
            while (at < bytes && (p[at] & 0xc0) == 0x80);
        say_piece(m, q, from, p + from, at - from);
        c.n_tokens++;
    }
    if (fails)
        put_error(m, q->tag, FDP_E_NUMERIC, 0);
    if (is_held || fails)
        return;
    put(m, q->tag, FDP_T_CHOICE_END, 0, 0, &c, sizeof(c));
    d.output_tokens = c.n_tokens;
    put(m, q->tag, FDP_T_DONE, 0, 0, &d, sizeof(d));
}

static int
begins(const unsigned char *p, uint32_t n, const char *w)
{
    return n >= strlen(w) && memcmp(p, w, strlen(w)) == 0;
}

/* "part" and "reset": these end the first time and go on later. */
static int
go_on(struct mock *m, struct mock_stream *s, const struct fdp_req *q, const unsigned char *p)
{
    struct fdp_choice_end failed = { FDP_FIN_ERROR, 2, -1, -1, 0, 0 };
    uint32_t id = 1003;

    s->left = q->max_new - q->n_prior;
    for (uint32_t i = 0; i < q->n_prior; i++)
        s->bytes += (uint32_t)snprintf(NULL, 0, "t%u ", i);
    if (q->n_prior || __atomic_fetch_add(&m->n_part, 1, __ATOMIC_RELAXED)) {
        m->shift = p[3] == 'x';
        return 0;
    }
    one_token(m, s);
    one_token(m, s);
    if (p[0] == 'r') {
        put(m, q->tag, FDP_T_CHOICE_END, 0, 2, &failed, sizeof(failed));
        put_error(m, q->tag, FDP_E_GPU_RESET, 0);
        s->used = 0;
        return 0;
    }
    one_token(m, s);
    put(m, q->tag, FDP_T_IDS, 0, 3, &id, 4);
    return -1;
}

/* Returns -1 to hang up. */
static int
submit(struct mock *m, const struct fdp_req *q, const unsigned char *p, uint32_t n)
{
    struct fdp_accepted a = { n, 0, 42 };
    struct mock_stream *s = m->st;

    __atomic_fetch_add(&m->n_submit, 1, __ATOMIC_RELEASE);
    if (begins(p, n, "err")) {
        put_error(m, q->tag, FDP_E_BAD_PARAM, FDP_D_TOP_P);
        return 0;
    }
    if (begins(p, n, "bad")) {
        memset(fdr_prod_slot(&m->cq, m->cq.tail), 0, FDP_SLOT);
        m->cq.tail++;
        wake_client(m);
        return 0;
    }
    if (begins(p, n, "raw ")) {
        put(m, q->tag, FDP_T_TOKENS, 0, 6, p + 4, n - 4);
        put_done(m, q->tag, 0);
        return 0;
    }
    if (begins(p, n, "rec ")) {
        struct fdp_rec h;
        memcpy(&h, p + 4, sizeof(h));
        put(m, q->tag, h.type, h.sample, h.position, p + 4 + sizeof(h), h.len);
        put_done(m, q->tag, 0);
        return 0;
    }
    put(m, q->tag, FDP_T_ACCEPTED, 0, 0, &a, sizeof(a));
    if (begins(p, n, "echo")) {
        echo(m, q->tag, p, n);
        return 0;
    }
    if (begins(p, n, "say ") || begins(p, n, "fai ")) {
        say(m, q, p, n);
        return 0;
    }
    if (begins(p, n, "crash")) {
        put_error(m, q->tag, FDP_E_GPU_RESET, 0);
        return 0;
    }
    while (s->used)
        s++;
    CHECK(s < m->st + MOCK_STREAMS);
    *s = (struct mock_stream){ .tag = q->tag,
        .flags = q->flags,
        .logprobs = (q->set & FDP_S_LOGPROBS) != 0,
        .left = q->max_new,
        .pos = q->n_prior,
        .n = q->n,
        .used = 1,
        .hold = begins(p, n, "hold"),
        .drip = begins(p, n, "drip") };
    if (begins(p, n, "hol ")) {
        s->hold = 1;
        say(m, q, p, n);
        return 0;
    }
    if (begins(p, n, "par") || begins(p, n, "reset"))
        return go_on(m, s, q, p);
    if (begins(p, n, "die") || begins(p, n, "bye")) {
        one_token(m, s);
        if (begins(p, n, "die"))
            return -1;
        struct fdp_state *st = (struct fdp_state *)(m->d2c + FDP_D2C_STATE);
        st->reason = (uint32_t)-m->reason;
        fdr_store_release(&st->state, FDP_ST_GOODBYE);
        wake_client(m);
        return -1;
    }
    return 0;
}

static int
handle(struct mock *m, const struct fdp_req *q)
{
    const unsigned char *b = m->c2d + m->arena_off + q->off;
    struct fdp_item it = { 0 };

    CHECK(q->off % 8 == 0 && (uint64_t)q->off + q->len <= m->arena_bytes);
    if (q->len)
        memcpy(&it, b, sizeof(it));
    CHECK(it.len <= q->len);
    switch (q->op) {
    case FDP_OP_SUBMIT:
        __atomic_store_n(&m->flags, q->flags, __ATOMIC_RELEASE);
        m->last = *q;
        free(m->blob);
        m->blob = malloc(q->len + 1);
        memcpy(m->blob, b, q->len);
        return submit(m, q, b + 8, it.len);
    case FDP_OP_CANCEL:
        __atomic_fetch_add(&m->n_cancel, 1, __ATOMIC_RELAXED);
        for (struct mock_stream *s = m->st; s < m->st + MOCK_STREAMS; s++)
            if (s->used && s->tag == q->tag) {
                s->used = 0;
                put_error(m, q->tag, m->cancelled, 0);
            }
        return 0;
    case FDP_OP_TOKENIZE:
        __atomic_store_n(&m->flags, q->flags, __ATOMIC_RELEASE);
        if (m->flood) {
            wake_client(m);
            return 0;
        }
        for (uint32_t o = 0; o < it.len; o++) {
            uint32_t id = b[8 + o];
            put(m, q->tag, FDP_T_PROMPT_IDS, 0, o, &id, 4);
        }
        put_done(m, q->tag, 0);
        return 0;
    case FDP_OP_DETOKENIZE:
        for (uint32_t o = 0; o < it.len / 4; o++)
            put(m, q->tag, FDP_T_TEXT, 0, o, b + 8 + o * 4, 1);
        put_done(m, q->tag, 0);
        return 0;
    case FDP_OP_INFO: {
        if (m->loading) {
            put_error(m, q->tag, FDP_E_LOADING, 0);
            return 0;
        }
        put(m, q->tag, FDP_T_REPLY, 0, 0, &m->info, sizeof(m->info));
        put_done(m, q->tag, 0);
        return 0;
    }
    case FDP_OP_FILE:
        put_error(m, q->tag, FDP_E_NO_FILE, 0);
        return 0;
    case FDP_OP_PING:
        put_done(m, q->tag, 0);
        return 0;
    }
    CHECK(!"op");
    return -1;
}

/* ---- session ------------------------------------------------------------------ */

static int
region(uint32_t bytes, unsigned char **ret_map, int seals)
{
    int fd = memfd_create("mock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, bytes) == 0);
    *ret_map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*ret_map != MAP_FAILED);
    CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void
send_welcome(struct mock *m, const struct fdp_welcome *w, const int *fds, int n_fd)
{
    union {
        struct cmsghdr h;
        char buf[CMSG_SPACE(sizeof(int) * FDP_N_FDS)];
    } ctl;
    struct iovec iov = { (void *)(uintptr_t)w, m->lie == 8 ? 0 : sizeof(*w) };
    struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

    memset(&ctl, 0, sizeof(ctl));
    if (n_fd) {
        mh.msg_control = ctl.buf;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fd);
        ctl.h.cmsg_level = SOL_SOCKET;
        ctl.h.cmsg_type = SCM_RIGHTS;
        ctl.h.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fd);
        memcpy(CMSG_DATA(&ctl.h), fds, sizeof(int) * (size_t)n_fd);
    }
    (void)sendmsg(m->sock, &mh, MSG_NOSIGNAL);
}

/* Writes the answer to a request before the client sends it: reading all of it takes
 * longer than the client's time limit. */
static void
put_flood(struct mock *m)
{
    const uint64_t first_tag = 1ull << 32;
    struct fdp_done d = { .output_tokens = 1 };
    struct {
        struct fdp_rec h;
        uint32_t ids[10];
    } r = {
        .h = { .tag = first_tag, .type = FDP_T_PROMPT_IDS, .n_slot = 1, .len = sizeof(r.ids) }
    };

    for (uint32_t i = 0; i < m->flood; i++) {
        memcpy(fdr_prod_slot(&m->cq, m->cq.tail++), &r, sizeof(r));
        r.h.position += 10;
    }
    r.h = (struct fdp_rec){ .tag = first_tag,
        .type = FDP_T_DONE,
        .n_slot = 2,
        .len = sizeof(d) };
    memcpy(fdr_prod_slot(&m->cq, m->cq.tail), &r, sizeof(r.h));
    memcpy((struct fdp_rec *)fdr_prod_slot(&m->cq, m->cq.tail) + 1, &d, sizeof(d));
    m->cq.tail += 2;
}

/* Returns 0 if no session is set up. */
static int
attach(struct mock *m)
{
    struct fdp_welcome w = { .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .size = sizeof(w),
        .err = m->refuse,
        .sq_slots = m->sq_slots,
        .cq_slots = m->cq_slots,
        .sq_off = FDP_C2D_SLOTS,
        .cq_off = FDP_D2C_SLOTS,
        .session_id = 5,
        .arena_bytes = m->arena_bytes,
        .max_inflight = m->max_inflight,
        .vocab = m->info.vocab,
        .boot_id = { 1, 2 },
        .retry_after_ms = m->refuse ? 77 : 0 };
    int unread = __atomic_load_n(&m->unread, __ATOMIC_ACQUIRE), fds[3], p[2];
    int seals = (m->lie == 4 ? 0 : F_SEAL_SHRINK) | (m->lie == 7 ? 0 : F_SEAL_GROW);

    if (recv(m->sock, &m->hello, sizeof(m->hello), unread ? MSG_PEEK : 0) !=
        sizeof(m->hello))
        return 0;
    memset(m->st, 0, sizeof(m->st)); /* drop the streams of the last session */
    __atomic_fetch_add(&m->n_attach, 1, __ATOMIC_RELEASE);
    w.arena_off = FDP_C2D_SLOTS + m->sq_slots * 128;
    w.c2d_bytes = m->c2d_bytes = w.arena_off + m->arena_bytes;
    w.d2c_bytes = m->d2c_bytes = FDP_D2C_SLOTS + m->cq_slots * FDP_SLOT;
    m->arena_off = w.arena_off;
    if (m->refuse || m->lie == 2 || m->lie == 3 || m->lie == 10) {
        switch (m->lie) {
        case 3:
            w.major = 9;
            break;
        case 10: /* what the daemon sent when the protocol was 2.0 */
            memset(&w, 0, sizeof(w));
            memcpy(&w, "FDD1\x02\0\0\0\xc0\0\0\0\xfe\xff\xff\xff", 16);
        }
        send_welcome(m, &w, NULL, 0);
        return 0;
    }
    fds[0] = region(m->c2d_bytes, &m->c2d, seals | (m->lie == 9 ? F_SEAL_FUTURE_WRITE : 0));
    fds[1] = region(m->d2c_bytes, &m->d2c, seals | F_SEAL_FUTURE_WRITE);
    fds[2] = m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fdr_cons_init(&m->sq, m->c2d + w.sq_off, (const uint32_t *)m->c2d,
        (uint32_t *)(m->d2c + FDP_D2C_SQ_HEAD), m->sq_slots, 128);
    fdr_prod_init(&m->cq, m->d2c + w.cq_off, (uint32_t *)m->d2c,
        (const uint32_t *)(m->c2d + FDP_C2D_CQ_HEAD), m->cq_slots, FDP_SLOT);
    ((struct fdp_state *)(m->d2c + FDP_D2C_STATE))->state = FDP_ST_RUN;
    if (m->flood)
        put_flood(m);
    if (m->lie == 1)
        w.arena_bytes *= 2, w.c2d_bytes *= 2;
    if (m->lie == 5) {
        CHECK(pipe2(p, O_CLOEXEC) == 0);
        fds[2] = p[1];
    } else if (m->lie == 6) {
        *(uint32_t *)(m->d2c + FDP_D2C_SQ_HEAD) = 0x80000000u;
    } else if (m->lie == 7) {
        w.arena_off = 64u << 20;
        w.c2d_bytes = w.arena_off + w.arena_bytes;
        CHECK(ftruncate(fds[0], w.c2d_bytes) == 0);
    }
    memset(m->st, 0, sizeof(m->st));
    send_welcome(m, &w, fds, 3);
    if (m->lie == 5)
        close(p[0]), close(p[1]);
    close(fds[0]);
    close(fds[1]);
    return 1;
}

/* One loop iteration. Returns the work done, or -1 to hang up. */
static int
round_of(struct mock *m)
{
    int work = 0;

    while (!__atomic_load_n(&m->stall, __ATOMIC_ACQUIRE) && fdr_cons_avail(&m->sq) > 0) {
        struct fdp_req q;
        int rc;
        fdr_copy_in(&q, fdr_cons_slot(&m->sq, m->sq.head), sizeof(q));
        rc = handle(m, &q);
        m->sq.head++;
        fdr_publish(m->sq.p_head, m->sq.head);
        tell_room(m);
        if (rc)
            return -1;
        work = 1;
    }
    for (struct mock_stream *s = m->st; s < m->st + MOCK_STREAMS; s++) {
        if (!s->used || s->hold || (s->drip && now_ns() < s->next_ns))
            continue;
        if (s->left == 0) {
            finish(m, s);
        } else {
            one_token(m, s);
            s->next_ns = now_ns() + 1000000u;
        }
        work = 1;
    }
    return work;
}

static int
drips(const struct mock *m)
{
    for (int i = 0; i < MOCK_STREAMS; i++)
        if (m->st[i].used && m->st[i].drip)
            return 1;
    return 0;
}

/* Returns 1 when told to quit. */
static int
serve(struct mock *m)
{
    uint32_t *flag = (uint32_t *)(m->d2c + FDP_D2C_SQ_NEED_WAKEUP);
    int rc, stall;

    for (;;) {
        struct pollfd p[3] = { { .fd = m->quit[0], .events = POLLIN },
            { .fd = m->sock, .events = POLLRDHUP }, { .fd = m->bell, .events = POLLIN } };
        uint64_t v;
        rc = round_of(m);
        if (rc < 0)
            return 0;
        if (rc > 0)
            continue;
        fdr_flag_raise(flag, 1);
        stall = __atomic_load_n(&m->stall, __ATOMIC_ACQUIRE);
        __atomic_store_n(&m->stalled, stall, __ATOMIC_RELEASE);
        if (fdr_cons_recheck(&m->sq) > 0 && !stall) {
            fdr_store_relaxed(flag, 0);
            continue;
        }
        poll(p, 3, drips(m) || stall ? 1 : 5000);
        fdr_store_relaxed(flag, 0);
        if (p[0].revents)
            return 1;
        if (p[1].revents)
            return 0;
        if (p[2].revents && read(m->bell, &v, sizeof(v)) == sizeof(v))
            __atomic_fetch_add(&m->n_bells, (uint32_t)v, __ATOMIC_RELAXED);
    }
}

static void *
mock_main(void *arg)
{
    struct mock *m = arg;
    int stop = 0;

    while (!stop) {
        struct pollfd p[2] = { { .fd = m->quit[0], .events = POLLIN },
            { .fd = m->lsock, .events = POLLIN } };
        poll(p, 2, -1);
        if (p[0].revents)
            break;
        m->sock = accept4(m->lsock, NULL, NULL, SOCK_CLOEXEC);
        if (m->sock < 0)
            continue;
        if (attach(m)) {
            stop = serve(m);
            close(m->bell);
            munmap(m->c2d, m->c2d_bytes);
            munmap(m->d2c, m->d2c_bytes);
        }
        close(m->sock);
    }
    return NULL;
}

void
mock_init(struct mock *m)
{
    memset(m, 0, sizeof(*m));
    m->sq_slots = 64;
    m->cq_slots = 256;
    m->arena_bytes = 1 << 16;
    m->max_inflight = 32;
    m->reason = FDP_E_SLOW;
    m->cancelled = FDP_E_CANCELLED;
    m->info = (struct fdp_info){ .vocab = 777, .model_name = "mock" };
}

void
mock_start(struct mock *m)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };

    strcpy(m->dir, "/tmp/fdd-mock-XXXXXX");
    CHECK(mkdtemp(m->dir));
    snprintf(m->path, sizeof(m->path), "%s/sock", m->dir);
    strcpy(sa.sun_path, m->path);
    m->lsock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(m->lsock, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    CHECK(listen(m->lsock, 8) == 0 && pipe2(m->quit, O_CLOEXEC) == 0);
    CHECK(pthread_create(&m->thread, NULL, mock_main, m) == 0);
}

void
mock_join(struct mock *m, const struct mock *first)
{
    m->lsock = first->lsock;
    CHECK(pipe2(m->quit, O_CLOEXEC) == 0);
    CHECK(pthread_create(&m->thread, NULL, mock_main, m) == 0);
}

void
mock_stop(struct mock *m)
{
    CHECK(write(m->quit[1], "q", 1) == 1);
    pthread_join(m->thread, NULL);
    close(m->quit[0]);
    close(m->quit[1]);
    close(m->lsock);
    unlink(m->path);
    rmdir(m->dir);
    free(m->blob);
}
