/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that violates the raw protocol. Usage: lies SOCKET ATTACK. Each attack
 * returns 0 if the daemon reacted correctly (session closed, or request refused), and
 * prints the reaction.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/fdring.h"
#include "tests/sys/hostile/raw.h"

/* Waits for the daemon to close the connection. Returns 0 if it did in time. */
static int
closed(int sock, int ms)
{
    char b[256];
    for (int left = ms; left > 0; left -= 20) {
        struct pollfd p = { .fd = sock, .events = POLLIN };
        if (poll(&p, 1, 20) > 0) {
            ssize_t n = recv(sock, b, sizeof(b), MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                return 0;
        }
    }
    return -1;
}

static void
attach(const char *path, struct raw *r)
{
    int rc = raw_open(r, path, NULL);

    if (rc == 0)
        return;
    fprintf(stderr, "no session: %d\n", rc);
    exit(2);
}

static int
dial(const char *path)
{
    int s = raw_dial(path, SOCK_SEQPACKET);

    if (s >= 0)
        return s;
    perror("connect");
    exit(2);
}

static void
put(struct raw *r, const struct fdp_req *q)
{
    raw_put(r, q);
    fdr_publish(raw_word(r, FDP_C2D_SQ_TAIL), r->tail);
    raw_ring(r);
}

static int
a_tail_jump(const char *path, uint32_t to)
{
    struct raw r;
    attach(path, &r);
    fdr_publish(raw_word(&r, FDP_C2D_SQ_TAIL), to);
    raw_ring(&r);
    return closed(r.sock, 2000);
}

static int
a_head_lie(const char *path)
{
    struct raw r;
    attach(path, &r);
    fdr_publish(raw_word(&r, FDP_C2D_CQ_HEAD), 0x40000000);
    struct fdp_req q = { .tag = 1, .op = FDP_OP_PING, .n = 1 };
    /* the gate notices the wrong cursor when it needs to know the room */
    const uint32_t *head = (const uint32_t *)(const void *)(r.d2c + FDP_D2C_SQ_HEAD);
    for (uint32_t i = 0; i < 2 * r.w.cq_slots; i++) {
        for (int w = 0; w < 1000 && i - fdr_load_acquire(head) >= r.w.sq_slots / 2; w++)
            if (closed(r.sock, 20) == 0)
                return 0;
        q.tag = i + 1;
        put(&r, &q);
    }
    return closed(r.sock, 2000);
}

/* Checks a refused request: an ERROR record arrives, and the session goes on. */
static int
a_refused(const char *path, struct fdp_req q, int32_t want)
{
    struct raw r;
    attach(path, &r);
    put(&r, &q);
    const uint32_t *tail = (const uint32_t *)(const void *)(r.d2c + FDP_D2C_CQ_TAIL);
    for (int i = 0; i < 2000 && fdr_load_acquire(tail) == 0; i++)
        usleep(1000);
    struct fdp_rec rec;
    struct fdp_error e;
    memcpy(&rec, r.d2c + r.w.cq_off, sizeof(rec));
    memcpy(&e, r.d2c + r.w.cq_off + sizeof(rec), sizeof(e));
    if (fdr_load_acquire(tail) == 0 || rec.type != FDP_T_ERROR || e.code != want) {
        fprintf(stderr, "type %u code %d, wanted an error %d\n", rec.type, e.code, want);
        return 1;
    }
    return closed(r.sock, 100) == 0; /* must stay open */
}

static int
a_hello(const char *path, size_t n, uint32_t magic, uint16_t major)
{
    struct fdp_hello h = raw_hello();
    h.magic = magic;
    h.major = major;
    int s = dial(path);
    send(s, &h, n, MSG_NOSIGNAL);
    return closed(s, 4000);
}

static int
a_fds(const char *path)
{
    int s = dial(path);
    struct fdp_hello h = raw_hello();
    int fds[64];
    for (int i = 0; i < 64; i++)
        fds[i] = s;
    raw_send_fds(s, &h, sizeof(h), fds, 64);
    usleep(100000);
    return 0; /* the caller counts the daemon's descriptors */
}

static int
a_bell(const char *path)
{
    struct raw r;
    attach(path, &r);
    fcntl(r.fd[2], F_SETFL, 0); /* blocking, shared with the daemon */
    uint64_t v = UINT64_MAX - 1;
    if (write(r.fd[2], &v, 8) < 0)
        perror("saturate");
    if (read(r.fd[2], &v, 8) < 0)
        perror("drain");
    usleep(100000);
    return closed(r.sock, 100) == 0;
}

static int
a_seals(const char *path)
{
    struct raw r;
    attach(path, &r);
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd[1], 0) != MAP_FAILED) {
        fprintf(stderr, "the daemon's region can be mapped writable\n");
        return 1;
    }
    if (ftruncate(r.fd[0], 0) == 0 || ftruncate(r.fd[1], 0) == 0) {
        fprintf(stderr, "a region can be shrunk\n");
        return 1;
    }
    if (mprotect((void *)(uintptr_t)r.d2c, 4096, PROT_READ | PROT_WRITE) == 0) {
        fprintf(stderr, "the daemon's region can be made writable\n");
        return 1;
    }
    /* holes are allowed; the daemon must live with zeros */
    fallocate(r.fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, r.w.c2d_bytes);
    raw_ring(&r);
    usleep(50000);
    return 0;
}

static int
a_garbage(const char *path)
{
    unsigned seed = 42;
    for (int round = 0; round < 40; round++) {
        struct raw r;
        attach(path, &r);
        for (uint32_t i = 0; i < r.w.sq_slots * sizeof(struct fdp_req) / 4; i++)
            ((uint32_t *)(void *)(r.c2d + r.w.sq_off))[i] =
                (uint32_t)rand_r(&seed) * 2654435761u;
        for (uint32_t i = 0; i < r.w.sq_slots; i++)
            if (rand_r(&seed) % 2) /* plausible operations with wild fields */
                r.c2d[r.w.sq_off + i * sizeof(struct fdp_req) +
                    8] = (unsigned char)(i % 8),
                    r.c2d[r.w.sq_off + i * sizeof(struct fdp_req) + 9] = 0;
        fdr_publish(raw_word(&r, FDP_C2D_SQ_TAIL),
            (uint32_t)rand_r(&seed) % (r.w.sq_slots + 1));
        raw_ring(&r);
        usleep(3000);
        raw_close(&r);
    }
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: lies SOCKET ATTACK\n");
        return 64;
    }
    const char *p = argv[1], *a = argv[2];
    struct fdp_req q = { .tag = 1,
        .op = FDP_OP_SUBMIT,
        .n = 1,
        .max_new = 4,
        .set = FDP_S_MAX_NEW };
    if (strcmp(a, "tail-jump") == 0)
        return a_tail_jump(p, 0x80000000u) != 0;
    if (strcmp(a, "tail-over") == 0)
        return a_tail_jump(p, 1u << 20) != 0;
    if (strcmp(a, "tail-back") == 0)
        return a_tail_jump(p, (uint32_t)-1) != 0;
    if (strcmp(a, "head-lie") == 0)
        return a_head_lie(p) != 0;
    if (strcmp(a, "blob-outside") == 0) {
        q.off = 0xfffffff8u;
        q.len = 64;
        return a_refused(p, q, FDP_E_BAD_PARAM);
    }
    if (strcmp(a, "blob-odd") == 0) {
        q.off = 4;
        q.len = 64;
        return a_refused(p, q, FDP_E_BAD_PARAM);
    }
    if (strcmp(a, "reserved") == 0) {
        q.rsv[3] = 1;
        return a_refused(p, q, FDP_E_BAD_PARAM);
    }
    if (strcmp(a, "op") == 0) {
        q.op = 77;
        return a_refused(p, q, FDP_E_BAD_PARAM);
    }
    if (strcmp(a, "hello-short") == 0)
        return a_hello(p, 10, FDP_MAGIC, FDP_MAJOR) != 0;
    if (strcmp(a, "hello-magic") == 0)
        return a_hello(p, sizeof(struct fdp_hello), 7, FDP_MAJOR) != 0;
    if (strcmp(a, "hello-version") == 0)
        return a_hello(p, sizeof(struct fdp_hello), FDP_MAGIC, 99) != 0;
    if (strcmp(a, "hello-silent") == 0)
        return a_hello(p, 0, 0, 0) != 0;
    if (strcmp(a, "fds") == 0)
        return a_fds(p);
    if (strcmp(a, "bell") == 0)
        return a_bell(p);
    if (strcmp(a, "seals") == 0)
        return a_seals(p);
    if (strcmp(a, "garbage") == 0)
        return a_garbage(p);
    fprintf(stderr, "unknown attack %s\n", a);
    return 64;
}
