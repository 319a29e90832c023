/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Handshake, identity, limits, seals, ends of sessions. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "tests/unit/count_fds.h"
#include "tests/unit/gate_fixture.h"

static void
t_hello(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_hello h;

    (void)state;
    fix_open(&f, NULL);
    fcl_hello(&h);
    h.magic++;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_PROTO);
    fcl_hello(&h);
    h.major = FDP_MAJOR + 1;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_VERSION);
    h.major = FDP_MAJOR - 1;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_VERSION);
    fcl_hello(&h);
    h.size = 79;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_PROTO);
    fcl_hello(&h);
    h.rsv1 = 1;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_PROTO);
    fcl_hello(&h);
    h.feat_need = 1ull << 63;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_E_VERSION);
    fcl_hello(&h);
    h.feat_want = UINT64_MAX;
    h.minor = 9;
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_OK);
    assert_int_equal(c.w.feat_on, FDP_FEAT_ALL);
    assert_int_equal(c.w.sq_slots, 256);
    assert_int_equal(c.w.cq_slots, 4096);
    assert_true(c.w.arena_bytes >= 1048576);
    assert_int_equal(fcl_state(&c), FDP_ST_RUN);
    fcl_close(&c);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    fix_close(&f);
}

/* Messages that are no hello, longer hellos, no message. */
static void
t_hello_raw(void **state)
{
    unsigned char big[700];
    struct fix f;
    struct fdp_hello h;
    size_t len[] = { 1, 79, 81, 120, 512, 513, 700 };

    (void)state;
    fix_open(&f, NULL);
    for (size_t i = 0; i < 7; i++) {
        struct fdp_welcome w;
        int sv[2];

        fcl_hello(&h);
        memset(big, 0, sizeof(big));
        h.size = (uint32_t)len[i];
        memcpy(big, &h, sizeof(h));
        if (len[i] == 81)
            big[80] = 1;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
        assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
        assert_int_equal(send(sv[1], big, len[i], 0), (ssize_t)len[i]);
        fix_step(&f, 0);
        assert_int_equal(recv(sv[1], &w, sizeof(w), 0), sizeof(w));
        assert_int_equal(w.major, FDP_MAJOR); /* refused clients get it too */
        assert_int_equal(w.minor, FDP_MINOR);
        assert_int_equal(w.err,
            len[i] == 81                         ? FDP_E_VERSION
                : len[i] == 120 || len[i] == 512 ? FDP_OK
                                                 : FDP_E_PROTO);
        (void)close(sv[1]);
        fix_step(&f, 0);
    }
    assert_int_equal(f.g->ses.n, 0);
    {
        int sv[2];
        char b;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
        assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
        fix_step(&f, 1900);
        assert_int_equal(f.g->ses.n, 1);
        fix_step(&f, 200);
        assert_int_equal(f.g->ses.n, 0);
        assert_int_equal(recv(sv[1], &b, 1, 0), 0);
        (void)close(sv[1]);
    }
    fix_close(&f);
}

/* The hello of protocol 2.0: the client gets both versions and the reason, and
 * the log names the client. */
static void
t_hello_recorded(void **state)
{
    static const unsigned char hello[80] =
        "FDD1\x02\0\0\0\x50\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        "example";
    struct fdp_welcome w;
    struct fix f;
    char log[512];
    int sv[2], fd = memfd_create("log", MFD_CLOEXEC), err = dup(STDERR_FILENO);
    ssize_t n;

    (void)state;
    fix_open(&f, NULL);
    (void)log_set_level("warn");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
    assert_int_equal(ses_adopt(&f.g->ses, sv[0], 77, 1000, 1000), 0);
    assert_int_equal(send(sv[1], hello, sizeof(hello), 0), (ssize_t)sizeof(hello));
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    fix_step(&f, 0);
    log_flush(1);
    assert_true(dup2(err, STDERR_FILENO) >= 0);
    n = pread(fd, log, sizeof(log) - 1, 0);
    log[n > 0 ? n : 0] = '\0';
    if (strstr(log,
            "session: pid 77 (uid 1000) speaks protocol 2.0, this daemon 3.0; refused") ==
        NULL)
        fail_msg("the log: %s", log);
    (void)close(fd);
    (void)close(err);
    /* its own struct of 192 bytes: magic, major, minor, size, err come first */
    assert_int_equal(recv(sv[1], &w, sizeof(w), 0), 192);
    assert_memory_equal(&w, "FDD1\x03\0\0\0", 8);
    assert_true(w.size == 192 && w.err == FDP_E_VERSION && w.retry_after_ms == 0);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    (void)close(sv[1]);
    fix_close(&f);
}

static void
t_geometry(void **state)
{
    static const char *const sets[] = { "ipc.max_session_bytes=1048576", NULL };
    static const uint32_t wish[][3] = { { 1, 1, 1 }, { 17, 100, 70000 },
        { 65536, 1048576, UINT32_MAX }, { UINT32_MAX, UINT32_MAX, UINT32_MAX },
        { 0, 0, 0 }, { 256, 4096, 1048576 } };
    struct fix f;
    struct fcl c;
    struct fdp_hello h;

    (void)state;
    fix_open(&f, sets);
    for (size_t i = 0; i < 6; i++) {
        fcl_hello(&h);
        h.sq_slots = wish[i][0];
        h.cq_slots = wish[i][1];
        h.arena_bytes = wish[i][2];
        assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_OK);
        assert_int_equal(c.w.sq_slots & (c.w.sq_slots - 1), 0);
        assert_int_equal(c.w.cq_slots & (c.w.cq_slots - 1), 0);
        assert_true(c.w.sq_slots >= 16 && c.w.cq_slots >= 128);
        assert_true((uint64_t)c.w.c2d_bytes + c.w.d2c_bytes <= 1048576);
        assert_true(c.w.sq_off + c.w.sq_slots * 128 <= c.w.arena_off);
        assert_true(c.w.arena_off + c.w.arena_bytes <= c.w.c2d_bytes);
        assert_true(c.w.cq_off + c.w.cq_slots * 64 <= c.w.d2c_bytes);
        assert_true(c.w.arena_bytes >= 8);
        fcl_submit(&c, 1, 2, 4);
        fix_step(&f, 0);
        assert_int_equal(f.g->jnl.n_open, 1);
        fcl_close(&c);
        fix_step(&f, 2000);
    }
    fix_close(&f);
}

/* A client without hints gets the sizes of the parameters. */
static void
t_geometry_of_parameters(void **state)
{
    static const char *const sets[] = { "ipc.sq_slots=64", "ipc.cq_slots=512",
        "ipc.arena_bytes=131072", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(c.w.sq_slots, 64);
    assert_int_equal(c.w.cq_slots, 512);
    assert_true(c.w.arena_bytes >= 131072 && c.w.arena_bytes < 262144);
    fcl_close(&c);
    fix_close(&f);
}

/* A connection without a hello is closed after a time, by default two seconds. */
static void
t_silent(void **state)
{
    static const char *const sets[] = { "ipc.handshake_timeout_ms=500", NULL };
    struct fix f;
    int sv[2];

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
    assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
    fix_step(&f, 400);
    assert_int_equal(f.g->ses.n, 1);
    fix_step(&f, 200);
    assert_int_equal(f.g->ses.n, 0);
    (void)close(sv[1]);
    fix_close(&f);
}

/* The properties that the seals guarantee. */
static void
t_seals(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c.d2c_fd, 0),
        MAP_FAILED);
    assert_int_equal(mprotect(c.d2c, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(pwrite(c.d2c_fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(c.d2c_fd, 0), -1);
    assert_int_equal(ftruncate(c.c2d_fd, 0), -1);
    assert_int_equal(ftruncate(c.c2d_fd, 1 << 30), -1);
    assert_int_equal(fcntl(c.c2d_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    /* a hole in c2d reads as zeros, and zeros are only a bad request */
    fcl_submit(&c, 1, 2, 4);
    (void)fallocate(c.c2d_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096,
        c.w.c2d_bytes - 4096);
    fix_step(&f, 0);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* A client that punches holes delays its reader. Before its first doorbell it may, and
 * nothing is read. After it, it cannot, and its memory is read. */
static void
t_maps(void **state)
{
    struct fix f;
    struct fcl c, silent;
    struct frec r;
    struct fdp_req q;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_connect(&f, &silent, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_connect(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(*(uint32_t *)(void *)(c.d2c + FDP_D2C_SQ_NEED_WAKEUP), 1);
    assert_int_equal(fallocate(c.c2d_fd, HOLE, 0, 4096), 0);
    fcl_req(&q, FDP_OP_PING, 7);
    q.max_new = 0;
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 200);
    assert_false(fcl_recv(&c, &r));
    fix_ready(&f); /* both clients get the event */
    assert_false(fcl_recv(&c, &r));
    fcl_ring(&c);
    fcl_ring(&c);
    fix_step(&f, 0);
    fcl_ring(&c);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    assert_int_equal(((struct fdp_event *)(void *)r.data)->kind, FDP_EV_READY);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE && r.h.tag == 7);
    assert_false(fcl_recv(&c, &r));
    assert_int_equal(fallocate(c.c2d_fd, HOLE, 0, 4096), -1);
    assert_int_equal(madvise(c.c2d, 4096, MADV_REMOVE), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c.c2d_fd, 0),
        MAP_FAILED);
    q.tag++;
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.tag == 8);
    assert_false(fcl_recv(&silent, &r));
    fcl_close(&silent);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 1);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Without the seal it could punch holes. */
static void
t_sealed_before(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_connect(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(fcntl(c.c2d_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    fcl_ring(&c);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    assert_int_equal(fcl_reason(&c), -FDP_E_PROTO);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_bell(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t big = UINT64_MAX - 2; /* the doorbell has been rung once */

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    /* the eventfd is full and blocking: the gate never writes to it */
    assert_int_equal(write(c.bell, &big, 8), 8);
    assert_int_equal(fcntl(c.bell, F_SETFL, 0), 0);
    for (int i = 0; i < 50; i++)
        fix_step(&f, 100);
    fcl_submit(&c, 1, 2, 4);
    fix_step(&f, 100); /* the periodic sweep finds the record */
    assert_int_equal(f.g->jnl.n_open, 1);
    fcl_close(&c);
    fix_close(&f);
}

static void
set_trusted(struct fix *f, const char *uids)
{
    char line[128];
    json_t *r;

    (void)snprintf(line, sizeof(line),
        "{\"cmd\":\"set\",\"name\":\"ipc.trusted_users\",\"value\":\"%s\"}", uids);
    r = fix_ctl(f, CTL_ADMIN, line);
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
}

/* A change of ipc.trusted_users also holds for sessions that are open. */
static void
t_trust_changes(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=1000", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit_for(&c, 1, 1, 4, 7);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    set_trusted(&f, "");
    fcl_submit_for(&c, 2, 1, 4, 7);
    fix_step(&f, 0);
    fcl_want_error(&c, 2, FDP_E_BAD_PARAM, FDP_D_USER);
    set_trusted(&f, "1000");
    fcl_submit_for(&c, 3, 1, 4, 7);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 2);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

static void
t_limits(void **state)
{
    static const char *const sets[] = { "ipc.max_clients=5", "ipc.max_clients_per_user=3",
        "ipc.connects_per_second=2", "ipc.trusted_users=4242", NULL };
    struct fix f;
    struct fcl c[6];
    unsigned n = 0;

    (void)state;
    fix_open(&f, sets);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fcl_open(&f, &c[i], 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &c[3], 1000, NULL), FDP_E_LIMIT);
    assert_true(c[3].w.err == 0); /* fcl_open() has closed and cleared it */
    assert_int_equal(fcl_open(&f, &c[3], 1001, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &c[4], 1002, NULL), FDP_OK);
    /* takes a session of the user who has three (u_places) */
    assert_int_equal(fcl_open(&f, &c[5], 1003, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, 5);
    for (int i = 0; i < 6; i++)
        fcl_close(&c[i]);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    /* six at once, then two per second */
    for (int i = 0; i < 20; i++) {
        n += fcl_open(&f, &c[0], 2000, NULL) == FDP_OK;
        fcl_close(&c[0]);
        fix_step(&f, 0);
    }
    assert_int_equal(n, 6);
    for (int i = 0; i < 40; i++) {
        fix_step(&f, 100);
        n += fcl_open(&f, &c[0], 2000, NULL) == FDP_OK;
        fcl_close(&c[0]);
        fix_step(&f, 0);
    }
    assert_int_equal(n, 6 + 8);
    /* the trusted user has no rate limit */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fcl_open(&f, &c[0], 4242, NULL), FDP_OK);
        fcl_close(&c[0]);
        fix_step(&f, 0);
    }
    /* users that left are dropped once their bucket is full */
    for (int i = 0; i < 5; i++)
        fix_step(&f, 1000);
    assert_int_equal(f.g->fair.n_usr, 0);
    fix_close(&f);
}

static void
t_own_uid(void **state)
{
    static const char *const sets[] = { "ipc.refuse_own_uid=yes", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, geteuid(), NULL), FDP_E_PERM);
    assert_int_equal(fcl_open(&f, &c, geteuid() + 1, NULL), FDP_OK);
    fcl_close(&c);
    fix_close(&f);
}

static void
kill_case(int which)
{
    struct fix f;
    struct fcl c;

    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4);
    fix_step(&f, 0);
    switch (which) {
    case 0: /* tail jumps */
        fdr_store_release(c.sq.p_tail, c.sq.tail + 0x80000000u);
        break;
    case 1: /* one past full */
        fdr_store_release(c.sq.p_tail, c.sq.tail + c.w.sq_slots + 1);
        break;
    case 2: /* backwards */
        fdr_store_release(c.sq.p_tail, c.sq.tail - 1);
        break;
    case 3: /* bytes after the handshake */
        assert_int_equal(send(c.fd, "x", 1, MSG_NOSIGNAL), 1);
        break;
    default: /* completion head ahead of the tail, seen when the ring is full */
        fdr_store_release((uint32_t *)(void *)(c.c2d + FDP_C2D_CQ_HEAD), 1u << 20);
        for (int i = 0; i < 5000 && f.g->ses.n != 0; i++) {
            struct fdp_req q;

            fcl_req(&q, FDP_OP_PING, 100);
            q.max_new = 0;
            if (fdr_prod_room(&c.sq, 1) > 0)
                fcl_send(&c, &q, NULL, 0, 0);
            fix_step(&f, 0);
        }
        break;
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    assert_int_equal(fcl_reason(&c), -FDP_E_PROTO);
    /* its request is cancelled in the worker, and dropped only after that */
    assert_int_equal(f.g->jnl.n_open, 1);
    {
        uint64_t id = fix_take(&f, NULL, NULL, NULL);
        int code = 0;

        assert_int_equal(fix_take_cancel(&f, &code), id);
        assert_int_equal(code, FDP_E_CANCELLED);
        fix_werror(&f, id, code);
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_kills(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        kill_case(i);
}

static void
t_no_leak(void **state)
{
    static const char *const sets[] = { "ipc.connects_per_second=100000", NULL };
    struct fix f;
    struct fcl c;
    int before, sv[2];

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_close(&c);
    fix_step(&f, 0);
    before = count_fds();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
        fcl_submit(&c, 1, 2, 4);
        if (i % 2)
            fix_step(&f, 0);
        fcl_close(&c);
        fix_step(&f, 0);
    }
    /* descriptors sent to the daemon are never received */
    {
        char ctl[CMSG_SPACE(sizeof(int) * 2)] __attribute__((aligned(8)));
        struct fdp_hello h;
        struct iovec iov = { &h, sizeof(h) };
        struct msghdr m;
        struct cmsghdr *cm;
        int fds[2] = { 0, 1 };

        fcl_hello(&h);
        memset(&m, 0, sizeof(m));
        m.msg_iov = &iov;
        m.msg_iovlen = 1;
        m.msg_control = ctl;
        m.msg_controllen = sizeof(ctl);
        cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(cm), fds, sizeof(fds));
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
        assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
        assert_int_equal(sendmsg(sv[1], &m, 0), sizeof(h));
        fix_step(&f, 0);
        (void)close(sv[1]);
        fix_step(&f, 0);
    }
    assert_int_equal(count_fds(), before);
    assert_int_equal(f.g->ses.n, 0);
    fix_close(&f);
}

/* Regression: the daemon sometimes died when a client left during a restart of the
 * worker: between fork() and exec() the child has the client's socket open, and close()
 * by itself leaves the socket in the epoll set. */
static void
t_nothing_after_the_end(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_hello h;
    int child, bell;

    (void)state;
    fix_open(&f, NULL);
    fcl_hello(&h);
    assert_int_equal(fcl_open(&f, &c, 1000, &h), FDP_OK);
    child = dup(f.g->ses.v[0]->c.fd);
    bell = dup(c.bell);
    assert_true(child >= 0 && bell >= 0);
    fcl_close(&c);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(eventfd_write(bell, 1), 0);
    assert_int_equal(gate_events(f.g, 0), 0);
    (void)close(child);
    (void)close(bell);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_hello),
        cmocka_unit_test(t_hello_raw),
        cmocka_unit_test(t_hello_recorded),
        cmocka_unit_test(t_geometry),
        cmocka_unit_test(t_geometry_of_parameters),
        cmocka_unit_test(t_silent),
        cmocka_unit_test(t_seals),
        cmocka_unit_test(t_maps),
        cmocka_unit_test(t_sealed_before),
        cmocka_unit_test(t_bell),
        cmocka_unit_test(t_limits),
        cmocka_unit_test(t_trust_changes),
        cmocka_unit_test(t_own_uid),
        cmocka_unit_test(t_kills),
        cmocka_unit_test(t_no_leak),
        cmocka_unit_test(t_nothing_after_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
