/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sys/hostile/raw.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdring.h"

#define RAW_WELCOME_S 20
#define RAW_MAX_FDS   253 /* the kernel's SCM_MAX_FD */

uint64_t
raw_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int
raw_dial(const char *path, int type)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), e;

    if (s < 0)
        return -1;
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (connect(s, (struct sockaddr *)&a, sizeof(a)) == 0)
        return s;
    e = errno;
    close(s);
    errno = e;
    return -1;
}

struct fdp_hello
raw_hello(void)
{
    return (struct fdp_hello){ .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .minor = FDP_MINOR,
        .size = sizeof(struct fdp_hello),
        .name = "hostile" };
}

static int
raw_map(struct raw *r)
{
    void *c, *d;

    c = mmap(NULL, r->w.c2d_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd[0], 0);
    d = mmap(NULL, r->w.d2c_bytes, PROT_READ, MAP_SHARED, r->fd[1], 0);
    r->c2d = c != MAP_FAILED ? c : NULL;
    r->d2c = d != MAP_FAILED ? d : NULL;
    return r->c2d != NULL && r->d2c != NULL ? 0 : RAW_NO_WELCOME;
}

static int
raw_welcome(struct raw *r)
{
    char ctl[CMSG_SPACE(sizeof(r->fd))];
    struct iovec io = { &r->w, sizeof(r->w) };
    struct msghdr m = { .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = ctl,
        .msg_controllen = sizeof(ctl) };
    const struct cmsghdr *c;
    ssize_t n = recvmsg(r->sock, &m, MSG_CMSG_CLOEXEC);

    if (n < 0 && errno == ECONNRESET) /* the answer may still be
                                       * readable after the reset */
        n = recvmsg(r->sock, &m, MSG_CMSG_CLOEXEC);
    if (n < (ssize_t)sizeof(r->w))
        return RAW_NO_WELCOME;
    if (r->w.err != 0)
        return -r->w.err;
    c = CMSG_FIRSTHDR(&m);
    if (c == NULL || c->cmsg_len != CMSG_LEN(sizeof(r->fd)))
        return RAW_NO_WELCOME;
    memcpy(r->fd, CMSG_DATA(c), sizeof(r->fd));
    return raw_map(r);
}

int
raw_open(struct raw *r, const char *path, const struct fdp_hello *h)
{
    struct fdp_hello usual = raw_hello();
    struct timeval tv = { .tv_sec = RAW_WELCOME_S };

    memset(r, 0, sizeof(*r));
    r->fd[0] = r->fd[1] = r->fd[2] = -1;
    r->sock = raw_dial(path, SOCK_SEQPACKET);
    if (r->sock < 0)
        return RAW_NO_CONNECT;
    setsockopt(r->sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    if (h == NULL)
        h = &usual;
    if (send(r->sock, h, sizeof(*h), MSG_NOSIGNAL) < 0)
        return RAW_NO_WELCOME;
    return raw_welcome(r);
}

void
raw_close(struct raw *r)
{
    if (r->sock >= 0)
        close(r->sock);
    for (int i = 0; i < FDP_N_FDS; i++)
        if (r->fd[i] >= 0)
            close(r->fd[i]);
    if (r->c2d != NULL)
        munmap(r->c2d, r->w.c2d_bytes);
    if (r->d2c != NULL)
        munmap((void *)(uintptr_t)r->d2c, r->w.d2c_bytes);
    memset(r, 0, sizeof(*r));
    r->sock = r->fd[0] = r->fd[1] = r->fd[2] = -1;
}

int
raw_gone(const struct raw *r)
{
    struct pollfd p = { .fd = r->sock, .events = POLLRDHUP };

    return raw_read(r, FDP_D2C_STATE) == FDP_ST_GOODBYE || poll(&p, 1, 0) > 0;
}

uint32_t *
raw_word(const struct raw *r, size_t c2d_off)
{
    return (uint32_t *)(void *)(r->c2d + c2d_off);
}

uint32_t
raw_read(const struct raw *r, size_t d2c_off)
{
    return fdr_load_acquire((const uint32_t *)(const void *)(r->d2c + d2c_off));
}

/* ---- requests ------------------------------------------------------------- */

struct fdp_req
raw_req(uint64_t tag, uint16_t op)
{
    return (struct fdp_req){ .tag = tag, .op = op, .n = 1 };
}

struct fdp_req *
raw_slot(const struct raw *r, uint32_t at)
{
    return (struct fdp_req *)(void *)(r->c2d + r->w.sq_off +
        (size_t)(at & (r->w.sq_slots - 1)) * sizeof(struct fdp_req));
}

uint32_t
raw_room(const struct raw *r)
{
    uint32_t used = r->tail - raw_read(r, FDP_D2C_SQ_HEAD);

    return used < r->w.sq_slots ? r->w.sq_slots - used : 0;
}

void
raw_put(struct raw *r, const struct fdp_req *q)
{
    memcpy(raw_slot(r, r->tail), q, sizeof(*q));
    r->tail++;
}

void
raw_ring(const struct raw *r)
{
    uint64_t one = 1;

    if (write(r->fd[2], &one, sizeof(one)) < 0 && errno != EAGAIN)
        perror("doorbell");
}

void
raw_publish(struct raw *r)
{
    fdr_publish(raw_word(r, FDP_C2D_SQ_TAIL), r->tail);
    if (raw_read(r, FDP_D2C_SQ_NEED_WAKEUP) != 0)
        raw_ring(r);
}

uint32_t
raw_item(const struct raw *r, uint32_t off, uint16_t type, const void *p, uint32_t len)
{
    struct fdp_item it = { .type = type, .len = len };
    unsigned char *a = r->c2d + r->w.arena_off + off;
    uint32_t span = (uint32_t)FDP_ITEM_SPAN(len);

    memset(a + span - 8, 0, 8);
    memcpy(a, &it, sizeof(it));
    if (len != 0)
        memcpy(a + sizeof(it), p, len);
    return span;
}

struct fdp_req
raw_generate(const struct raw *r, uint64_t tag, uint32_t slot, uint32_t max_new)
{
    uint32_t ids[4] = { 5, 6, 7, 8 + (uint32_t)(tag % 200) };
    struct fdp_req q = raw_req(tag, FDP_OP_SUBMIT);

    q.off = slot * 64;
    q.len = raw_item(r, q.off, FDP_IT_PROMPT_IDS, ids, sizeof(ids));
    q.max_new = max_new;
    q.set |= FDP_S_MAX_NEW;
    q.flags = FDP_F_IGNORE_EOS;
    return q;
}

/* ---- completions ---------------------------------------------------------- */

/* A record without slots is possible only after the end of a session, as the
 * daemon clears its memory. */
static void
raw_emptied(const struct raw *r)
{
    uint32_t st = raw_read(r, FDP_D2C_STATE);

    if (st != FDP_ST_RUN && st != FDP_ST_DRAIN)
        return;
    fprintf(stderr, "a record without slots\n");
    abort();
}

int
raw_next(struct raw *r, struct fdp_rec *ret, void *payload, size_t cap)
{
    int found = 0;

    while (!found && raw_read(r, FDP_D2C_CQ_TAIL) != r->head) {
        const unsigned char *s =
            r->d2c + r->w.cq_off + (size_t)(r->head & (r->w.cq_slots - 1)) * FDP_SLOT;

        memcpy(ret, s, sizeof(*ret));
        if (ret->n_slot == 0) {
            raw_emptied(r);
            return 0;
        }
        found = ret->type != FDP_T_PAD;
        if (found && cap != 0)
            memcpy(payload, s + sizeof(*ret), ret->len < cap ? ret->len : cap);
        r->head += ret->n_slot;
        fdr_store_release(raw_word(r, FDP_C2D_CQ_HEAD), r->head);
    }
    return found;
}

unsigned
raw_skip(struct raw *r)
{
    struct fdp_rec rec;
    unsigned n = 0;

    while (raw_next(r, &rec, NULL, 0))
        n += rec.type == FDP_T_DONE || rec.type == FDP_T_ERROR;
    return n;
}

/* ---- descriptors ---------------------------------------------------------- */

int
raw_send_fds(int sock, const void *p, size_t len, const int *fds, int n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int) * RAW_MAX_FDS)];
    } ctl;
    struct iovec io = { (void *)(uintptr_t)p, len };
    struct msghdr m = { .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = &ctl,
        .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n) };

    memset(&ctl, 0, sizeof(ctl));
    ctl.head.cmsg_level = SOL_SOCKET;
    ctl.head.cmsg_type = SCM_RIGHTS;
    ctl.head.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    memcpy(CMSG_DATA(&ctl.head), fds, sizeof(int) * (size_t)n);
    return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}
