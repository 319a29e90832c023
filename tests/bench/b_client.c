/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's own work, for a request and for a token: this thread also acts as the
 * gate, between the calls, so that nothing waits and the number of instructions is the
 * same each time (tests/bench/instructions).
 */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define N_REQUEST 2000
#define N_TOKEN   100 /* tokens of each request */
#define SQ_SLOTS  64u
#define CQ_SLOTS  1024u
#define ARENA     65536u

#define MUST(e) \
    do { \
        if (!(e)) { \
            perror(#e); \
            exit(1); \
        } \
    } while (0)

static struct gate {
    int lsock;
    unsigned char *c2d, *d2c;
    struct fdr_cons sq;
    struct fdr_prod cq;
} gate;

static uint64_t
now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int
region(uint32_t bytes, unsigned char **ret)
{
    int fd = memfd_create("b_client", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    MUST(fd >= 0 && ftruncate(fd, bytes) == 0);
    *ret = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(*ret != MAP_FAILED);
    MUST(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

/* The gate's side of the handshake, on a separate thread. */
static void *
greet(void *arg)
{
    struct fdp_welcome w = { .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .minor = FDP_MINOR,
        .size = sizeof(w),
        .sq_slots = SQ_SLOTS,
        .cq_slots = CQ_SLOTS,
        .sq_off = FDP_C2D_SLOTS,
        .cq_off = FDP_D2C_SLOTS,
        .arena_off = FDP_C2D_SLOTS + SQ_SLOTS * sizeof(struct fdp_req),
        .arena_bytes = ARENA,
        .max_inflight = 32,
        .vocab = 4096 };
    char ctl[CMSG_SPACE(sizeof(int) * FDP_N_FDS)] __attribute__((aligned(8))) = { 0 };
    struct iovec iov = { &w, sizeof(w) };
    struct msghdr m = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = ctl,
        .msg_controllen = sizeof(ctl) };
    struct fdp_hello h;
    int fds[FDP_N_FDS], sock = accept(gate.lsock, NULL, NULL);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    (void)arg;
    MUST(sock >= 0 && recv(sock, &h, sizeof(h), 0) == (ssize_t)sizeof(h));
    w.c2d_bytes = w.arena_off + ARENA;
    w.d2c_bytes = FDP_D2C_SLOTS + CQ_SLOTS * FDP_SLOT;
    fds[0] = region(w.c2d_bytes, &gate.c2d);
    fds[1] = region(w.d2c_bytes, &gate.d2c);
    fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ((struct fdp_state *)(void *)(gate.d2c + FDP_D2C_STATE))->state = FDP_ST_RUN;
    fdr_cons_init(&gate.sq, gate.c2d + w.sq_off, (uint32_t *)(void *)gate.c2d,
        (uint32_t *)(void *)(gate.d2c + FDP_D2C_SQ_HEAD), SQ_SLOTS, sizeof(struct fdp_req));
    fdr_prod_init(&gate.cq, gate.d2c + w.cq_off, (uint32_t *)(void *)gate.d2c,
        (uint32_t *)(void *)(gate.c2d + FDP_C2D_CQ_HEAD), CQ_SLOTS, FDP_SLOT);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    MUST(sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(w));
    return NULL;
}

static fdc_t *
attach(void)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    struct fdc_open_opts o = { .size = sizeof(o), .spin_us = FDC_SPIN_NONE };
    char dir[] = "/tmp/fdd-b-client-XXXXXX";
    pthread_t thread;
    fdc_t *s = NULL;

    MUST(mkdtemp(dir) != NULL);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", dir);
    gate.lsock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    MUST(bind(gate.lsock, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    MUST(listen(gate.lsock, 1) == 0);
    MUST(pthread_create(&thread, NULL, greet, NULL) == 0);
    o.path = sa.sun_path;
    MUST(fdc_open(&o, &s) == 0);
    (void)pthread_join(thread, NULL);
    (void)unlink(sa.sun_path);
    (void)rmdir(dir);
    return s;
}

static void
put(uint64_t tag, uint8_t type, uint32_t position, const void *data, uint32_t len)
{
    struct fdp_rec *h;
    uint32_t n = FDP_REC_SLOTS(len), pad = CQ_SLOTS - (gate.cq.tail & (CQ_SLOTS - 1));

    if (pad < n) {
        h = fdr_prod_slot(&gate.cq, gate.cq.tail);
        *h = (struct fdp_rec){ .type = FDP_T_PAD, .n_slot = (uint8_t)pad };
        gate.cq.tail += pad;
    }
    h = fdr_prod_slot(&gate.cq, gate.cq.tail);
    *h = (struct fdp_rec){ .tag = tag,
        .type = type,
        .n_slot = (uint8_t)n,
        .position = position,
        .len = len };
    memcpy(h + 1, data, len);
    gate.cq.tail += n;
}

/* The gate takes the request and sends its complete answer. */
static __attribute__((noinline)) void
answer(void)
{
    struct {
        struct fdp_tokens t;
        uint32_t id;
        char text[6];
    } token = { { 0, 1, 6 }, 77, { ' ', 't', 'o', 'k', 'e', 'n' } };
    struct fdp_choice_end end = { .finish = FDP_FIN_LENGTH,
        .n_tokens = N_TOKEN,
        .stop_id = -1,
        .stop_str = -1 };
    struct fdp_accepted a = { .prompt_len = 4 };
    struct fdp_done done = { .output_tokens = N_TOKEN };
    struct fdp_req q;

    MUST(fdr_cons_avail(&gate.sq) == 1);
    fdr_copy_in(&q, fdr_cons_slot(&gate.sq, gate.sq.head), sizeof(q));
    fdr_cons_release(&gate.sq, 1);
    put(q.tag, FDP_T_ACCEPTED, 0, &a, sizeof(a));
    for (uint32_t i = 0; i < N_TOKEN; i++, token.t.text_off += 6)
        put(q.tag, FDP_T_TOKENS, i, &token, FDP_TOKENS_LEN(1, 6));
    put(q.tag, FDP_T_CHOICE_END, N_TOKEN, &end, sizeof(end));
    put(q.tag, FDP_T_DONE, 0, &done, sizeof(done));
    fdr_prod_commit(&gate.cq);
}

int
main(void)
{
    fdc_t *s = attach();
    uint64_t submit = 0, read = 0, t;

    for (int i = 0; i < N_REQUEST; i++) {
        struct fdc_event e = FDC_EVENT_INIT;
        struct fdc_params p;
        fdc_req_t *r;
        int n = 0;

        t = now_ns();
        fdc_params_init(&p);
        p.max_new = N_TOKEN;
        p.temperature = 0;
        MUST(fdc_submit_text(s, "In the beginning", 16, &p, NULL, &r) == 0);
        submit += now_ns() - t;
        answer();
        t = now_ns();
        while (fdc_next(r, &e, 0) == 1)
            n += e.type == FDC_T_TEXT;
        fdc_req_free(r);
        read += now_ns() - t;
        MUST(n == N_TOKEN);
    }
    printf("submit                %7.1f ns/request\n", (double)submit / N_REQUEST);
    printf("read                  %7.1f ns/token, ids and text\n",
        (double)read / N_REQUEST / N_TOKEN);
    fdc_close(s);
    return 0;
}
