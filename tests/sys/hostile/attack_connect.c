/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Attacks with connections, and with descriptors that are kept or passed. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/sys/hostile/attack.h"

#define CON_FDS      250
#define CON_SLOW     1024
#define CON_IDLE     64
#define CON_KEEP     900
#define CON_LINGER_S 3600
#define CON_LINGERS  8
#define CON_PAUSE_US 500
#define CON_CQ_MAX   1048576

/* ---- handshakes ------------------------------------------------------------ */

/* Descriptors of all kinds, one of them a file of 32 TiB. */
static void
send_kinds(struct attack *a, int s, const struct fdp_hello *h)
{
    static int kind[5];
    int fds[CON_FDS];

    if (kind[0] == 0) {
        kind[0] = open("/dev/zero", O_RDWR | O_CLOEXEC);
        kind[1] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        kind[2] = memfd_create("huge", MFD_CLOEXEC);
        kind[3] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        kind[4] = eventfd(0, EFD_CLOEXEC);
        (void)!ftruncate(kind[2], 1ll << 45);
    }
    for (int i = 0; i < CON_FDS; i++)
        fds[i] = kind[atk_rnd(a) % 5];
    (void)raw_send_fds(s, h, sizeof(*h), fds, CON_FDS);
}

/* Makes a hello that is wrong in one of many ways. */
static void
bad_hello(struct attack *a, int s)
{
    unsigned char big[2048] = { 0 };
    struct fdp_hello h = raw_hello();
    size_t n = sizeof(h);

    switch (atk_rnd(a) % 11) {
    case 0:
        return;
    case 1:
        n = atk_rnd(a) % sizeof(h);
        break;
    case 2:
        n = sizeof(h) + 1 + atk_rnd(a) % (sizeof(big) - sizeof(h) - 1);
        break;
    case 3:
        h.major = 99;
        break;
    case 4:
        h.magic = 1;
        break;
    case 5:
        h.feat_need = ~0ull;
        break;
    case 6:
        h.sq_slots = h.cq_slots = h.arena_bytes = ~0u;
        break;
    case 7:
        h.sq_slots = h.cq_slots = h.arena_bytes = (uint32_t)atk_rnd(a);
        break;
    case 8:
        send(s, &h, n, MSG_NOSIGNAL);
        shutdown(s, SHUT_WR);
        return;
    case 9:
        send_kinds(a, s, &h);
        return;
    default:
        memset(&h, (int)(atk_rnd(a) & 255), sizeof(h));
        break;
    }
    memcpy(big, &h, sizeof(h));
    send(s, big, n, MSG_NOSIGNAL);
}

void
atk_handshake(struct attack *a)
{
    while (atk_left(a)) {
        int s = raw_dial(a->client, SOCK_SEQPACKET);
        struct pollfd p = { .fd = s, .events = POLLIN };

        a->n_op++;
        if (s < 0) {
            a->n_refused++;
            usleep(1000);
            continue;
        }
        bad_hello(a, s);
        if (atk_rnd(a) % 3 == 0)
            (void)poll(&p, 1, 20);
        close(s);
    }
}

/* As many connections per second as possible. */
void
atk_flood(struct attack *a)
{
    while (atk_left(a)) {
        int s = raw_dial(a->client, SOCK_SEQPACKET);

        a->n_op++;
        if (s >= 0) {
            close(s);
        } else {
            a->n_refused++;
            usleep(CON_PAUSE_US);
        }
    }
}

/* Complete handshakes, one after another. */
void
atk_connect(struct attack *a)
{
    while (atk_left(a)) {
        struct raw r;

        a->n_op++;
        if (raw_open(&r, a->client, NULL) == 0)
            a->n_open++;
        else
            a->n_refused++;
        raw_close(&r);
    }
}

static int
closed(int s)
{
    char b[256];
    ssize_t n = recv(s, b, sizeof(b), MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

/* As many unfinished handshakes as the daemon allows. */
void
atk_slow(struct attack *a)
{
    static int s[CON_SLOW];
    int n = 0;

    while (atk_left(a)) {
        if (n < CON_SLOW && (s[n] = raw_dial(a->client, SOCK_SEQPACKET)) >= 0)
            n++;
        else
            a->n_refused++;
        a->n_op++;
        for (int i = n - 1; i >= 0; i--) {
            if (!closed(s[i]))
                continue;
            close(s[i]);
            s[i] = s[--n];
            a->n_ended++;
        }
        usleep(CON_PAUSE_US);
    }
}

/* All sessions that one user may have, never used. */
void
atk_idle(struct attack *a)
{
    static struct raw r[CON_IDLE];

    while (atk_left(a)) {
        int n = atk_sessions(a, r, CON_IDLE, NULL);

        while (atk_left(a) && n > 0 && !raw_gone(&r[0]))
            usleep(20000);
        for (int i = 0; i < n; i++) {
            a->n_ended += raw_gone(&r[i]) != 0;
            raw_close(&r[i]);
        }
        usleep(20000);
    }
}

/* Takes the largest completion ring, disconnects, and keeps it by its descriptor. Ends a
 * second early, so that the memory measured then belongs to no session. */
void
atk_keepmem(struct attack *a)
{
    uint64_t t_last = a->t_end - 1000000000u;
    struct fdp_hello h = raw_hello();
    struct raw r;

    h.cq_slots = CON_CQ_MAX;
    h.sq_slots = 16;
    h.arena_bytes = 4096;
    while (raw_now_ns() < t_last && a->n_open < CON_KEEP) {
        if (raw_open(&r, a->client, &h) == 0) {
            r.fd[1] = -1; /* not closed */
            a->n_open++;
        } else {
            a->n_refused++;
            usleep(2000);
        }
        raw_close(&r);
    }
    atk_wait(a);
}

/* ---- a socket that blocks the process that closes it last --------------------------- */

/* Makes a TCP socket with data that its peer never reads and a linger time
 * of an hour. The peer stays in the listening socket's backlog. Returns -1
 * if this machine has no TCP. */
static int
linger_socket(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct linger l = { .l_onoff = 1, .l_linger = CON_LINGER_S };
    static const char junk[65536];
    socklen_t len = sizeof(to);
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (bind(peer, (struct sockaddr *)&to, sizeof(to)) != 0 || listen(peer, 4) != 0 ||
        getsockname(peer, (struct sockaddr *)&to, &len) != 0 ||
        connect(s, (struct sockaddr *)&to, sizeof(to)) != 0) {
        perror("linger");
        return -1;
    }
    while (send(s, junk, sizeof(junk), MSG_DONTWAIT) > 0)
        continue;
    setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    return s;
}

/* Passes such a socket. The process that closes it last waits: the daemon or this one.
 * EPERM: the daemon accepts no descriptors. */
static void
linger_pass(int sock, const void *p, size_t len)
{
    int s = linger_socket();

    if (s < 0 || sock < 0)
        return;
    if (raw_send_fds(sock, p, len, &s, 1) == 0)
        close(s);
    else
        printf("descriptor refused: %s\n", strerror(errno));
    fflush(stdout);
}

/* Uses several processes, since some of them may wait. */
static int
linger_child(struct attack *a)
{
    for (int i = 0; i < CON_LINGERS && atk_left(a); i++) {
        if (fork() == 0)
            return 1;
        a->n_op++;
        usleep(20000);
    }
    return 0;
}

void
atk_linger_hello(struct attack *a)
{
    struct fdp_hello h = raw_hello();

    if (linger_child(a))
        linger_pass(raw_dial(a->client, SOCK_SEQPACKET), &h, sizeof(h));
    atk_wait(a);
}

void
atk_linger_open(struct attack *a)
{
    struct raw r;

    if (linger_child(a) && atk_session(a, &r, NULL) == 0)
        linger_pass(r.sock, "x", 1);
    atk_wait(a);
}

void
atk_linger_admin(struct attack *a)
{
    if (linger_child(a))
        linger_pass(raw_dial(a->admin, SOCK_STREAM), "x", 1);
    atk_wait(a);
}
