/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdd-http: the page's policy; the daemon's statistics, as a gate gives them out, refuses
 * them, stops or goes on with them; the figures of the plots. */
#include "config.h"

#include "http/live.h"
#include "http/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/common/mem.h"

static char dir[] = "/tmp/fdd-u_http_live.XXXXXX", path[64], admin[64];
static int listener = -1;

static int
begin(void **state)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    (void)state;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/fdd.sock", dir);
    (void)snprintf(admin, sizeof(admin), "%s/admin.sock", dir);
    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", admin);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(listener, (const struct sockaddr *)&un, sizeof(un)) != 0 ||
        listen(listener, 4) != 0;
}

static int
end(void **state)
{
    (void)state;
    (void)close(listener);
    (void)unlink(admin);
    return rmdir(dir);
}

/* The gate's side: take the question, answer text, with a descriptor if there is one. */
static void
answer(const char *text, int fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    char asked[64];
    int c = accept(listener, NULL, NULL);
    ssize_t n = read(c, asked, sizeof(asked) - 1);

    assert_true(n > 0);
    asked[n] = '\0';
    assert_string_equal(asked, "{\"cmd\": \"stat_fd\"}\n");
    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        m.msg_control = control.room;
        m.msg_controllen = sizeof(control.room);
        CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
    }
    assert_int_equal(sendmsg(c, &m, 0), (ssize_t)strlen(text));
    (void)close(c);
}

static struct cnt_seg *
segment(int *ret_fd)
{
    void *p = NULL;
    struct cnt_seg *seg;

    assert_int_equal(mem_share(CNT_MEMFD, sizeof(*seg), &p, ret_fd), 0);
    seg = p;
    seg->magic = CNT_MAGIC;
    seg->version = CNT_VERSION;
    seg->n_gate = CNT_N_GATE;
    seg->n_worker = CNT_N_WORKER;
    seg->n_hist = CNT_H__N;
    seg->n_group = 1;
    return seg;
}

/* ---- the page ------------------------------------------------------------------------ */

static void
t_policy(void **state)
{
    /* the script and its hash are the example of the CSP standard */
    static const char text[] = "<style>b{}</style><script>alert('Hello, world.');</script>";
    char headers[1024];

    (void)state;
    assert_int_equal(page_headers(text, sizeof(text) - 1, headers, sizeof(headers)), 0);
    assert_non_null(strstr(headers,
        "script-src 'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='; "));
    assert_non_null(strstr(headers, "Content-Security-Policy: default-src 'none'; "));
    assert_non_null(strstr(headers, "connect-src 'self'; "));
    assert_null(strstr(headers, "unsafe"));
    assert_int_equal(page_headers("<script></script>", 17, headers, sizeof(headers)), -22);
    assert_int_equal(page_headers("<style><script>", 15, headers, sizeof(headers)), -22);
    assert_int_equal(page_headers(text, sizeof(text) - 1, headers, 100), -28);
}

/* ---- statistics ---------------------------------------------------------------------- */

static void
t_refused(void **state)
{
    struct stats s = { .seg = NULL };

    (void)state;
    assert_null(sta_get(&s, path, 1000));
    answer("{\"ok\": false, \"error\": \"not for you\", \"fix\": \"ask\"}\n", -1);
    assert_null(sta_get(&s, path, 1001));
    assert_string_equal(sta_why(&s), "fdd refuses to send its statistics: not for you");
    /* a second later again; no JSON, no line, the end */
    assert_null(sta_get(&s, path, 2000));
    answer("[[[[\n", -1);
    assert_null(sta_get(&s, path, 2001));
    assert_string_equal(sta_why(&s), "fdd refuses to send its statistics");
    assert_null(sta_get(&s, path, 3000));
    answer("{", -1);
    assert_null(sta_get(&s, path, 3001));
    assert_null(sta_get(&s, path, 3002));
    assert_string_equal(sta_why(&s), "fdd closed its admin socket");
    sta_fini(&s);
}

static void
t_silent(void **state)
{
    struct stats s = { .seg = NULL };
    int c;

    (void)state;
    assert_null(sta_get(&s, "/nowhere/fdd.sock", 1000));
    assert_non_null(strstr(sta_why(&s), "cannot be reached: No such file"));
    assert_null(sta_get(&s, path, 1500)); /* not yet again */
    assert_false(s.is_asked);
    assert_null(sta_get(&s, path, 2000));
    c = accept(listener, NULL, NULL);
    assert_null(sta_get(&s, path, 6000));
    assert_true(s.is_asked);
    assert_null(sta_get(&s, path, 7001));
    assert_string_equal(sta_why(&s), "fdd does not answer at its admin socket");
    (void)close(c);
    sta_fini(&s);
}

static void
t_segment(void **state)
{
    struct stats s = { .seg = NULL };
    int fd, small;
    struct cnt_seg *seg = segment(&fd);
    void *p = NULL;

    (void)state;
    assert_int_equal(mem_share(CNT_MEMFD, 4096, &p, &small), 0);
    assert_null(sta_get(&s, path, 1000));
    answer("{\"ok\": true}\n", small);
    assert_null(sta_get(&s, path, 1001));
    assert_non_null(strstr(sta_why(&s), "cannot be read"));
    seg->n_worker++;
    assert_null(sta_get(&s, path, 2000));
    answer("{\"ok\": true}\n", fd);
    assert_null(sta_get(&s, path, 2001)); /* of another layout */
    seg->n_worker--;
    assert_null(sta_get(&s, path, 3000));
    answer("{\"ok\": true}\n", fd);
    assert_non_null(sta_get(&s, path, 3001));
    assert_string_equal(sta_why(&s), "");
    seg->g.uptime_ns = 1;
    assert_non_null(sta_get(&s, path, 6000));
    seg->g.uptime_ns = 2;
    assert_non_null(sta_get(&s, path, 9000));
    assert_null(sta_get(&s, path, 12001)); /* it does not move */
    assert_true(s.is_still);
    assert_true(s.is_asked);
    answer("{\"ok\": true}\n", fd);
    assert_non_null(sta_get(&s, path, 12002));
    assert_false(s.is_still);
    seg->magic = 0; /* it has ended */
    assert_null(sta_get(&s, path, 12003));
    assert_false(s.is_still);
    assert_string_equal(sta_why(&s), "fdd has ended, or does not move");
    sta_fini(&s);
    mem_unshare(seg, sizeof(*seg), fd);
    mem_unshare(p, 4096, small);
}

static void
t_steps(void **state)
{
    struct stats s = { .seg = NULL };
    int fd;
    struct cnt_seg *seg = segment(&fd);

    (void)state;
    assert_null(sta_get(&s, path, 1000));
    assert_int_equal(sta_step_age_ms(&s, 1000), 0);
    answer("{\"ok\": true}\n", fd);
    assert_non_null(sta_get(&s, path, 1001));
    seg->g.uptime_ns++;
    assert_non_null(sta_get(&s, path, 4000)); /* no requests: no steps are due */
    assert_int_equal(sta_step_age_ms(&s, 4000), 0);
    seg->g.requests_running = 1;
    seg->g.uptime_ns++;
    assert_non_null(sta_get(&s, path, 6500));
    assert_int_equal(sta_step_age_ms(&s, 6500), 2500);
    seg->w.steps++;
    seg->g.uptime_ns++;
    assert_non_null(sta_get(&s, path, 7000));
    assert_int_equal(sta_step_age_ms(&s, 7000), 0);
    sta_fini(&s);
    mem_unshare(seg, sizeof(*seg), fd);
}

/* ---- figures ------------------------------------------------------------------------- */

static void
has(const struct live *l, const char *text)
{
    if (strstr(l->text.p, text) == NULL)
        fail_msg("no %s in %s", text, l->text.p);
}

static void
figures(struct live *l, struct stats *st, struct live_gateway *g)
{
    g->seg = sta_get(st, path, g->now_ms);
    g->why = sta_why(st);
    live_json(l, g);
}

static void
t_figures(void **state)
{
    struct live_gateway g = { .model = "m\"", .streams = 7 };
    struct stats st = { .seg = NULL };
    struct live l = { .now = { .ms = 0 } };
    int fd;
    struct cnt_seg *seg = segment(&fd);

    (void)state;
    g.now_ms = 1000;
    figures(&l, &st, &g);
    has(&l, "{\"model\":\"m\\\"\",\"tokens_per_s\":null,");
    has(&l, "\"users\":null,");
    answer("{\"ok\": true}\n", fd);
    seg->w.kv_blocks_total = 100;
    seg->w.kv_blocks_used = 25;
    seg->g.users = 3;
    g.now_ms = 1100;
    figures(&l, &st, &g);
    has(&l, "\"tokens_per_s\":null,"); /* of one moment */
    has(&l, "\"kv_used\":0.25,\"kv_cached\":0,\"running\":0,\"queued\":0,\"users\":3,");
    has(&l, "\"http_streams\":7,\"why\":\"\"}\n");
    seg->w.generation_tokens = 500;
    seg->g.requests_queued = 2;
    seg->w.requests_waiting = 3;
    cnt_see(seg->h, CNT_H_ttft, 15000000, 10);
    cnt_see(seg->h, CNT_H_itl, 1ull << 62, 1);
    g.now_ms = 1500;
    figures(&l, &st, &g); /* the same for a second */
    has(&l, "\"queued\":0,");
    g.now_ms = 3100;
    seg->g.uptime_ns++;
    figures(&l, &st, &g);
    has(&l, "\"tokens_per_s\":250,");
    has(&l, "\"ttft_p50_ms\":15,\"ttft_p99_ms\":19.9,");
    has(&l, "\"itl_p50_ms\":80000,\"itl_p99_ms\":80000,");
    has(&l, "\"queued\":5,");
    g.now_ms = 4100; /* nothing was seen in this second */
    seg->g.uptime_ns++;
    figures(&l, &st, &g);
    has(&l, "\"tokens_per_s\":0,");
    has(&l, "\"ttft_p50_ms\":null,");
    seg->generation++; /* a new worker counts from zero */
    seg->w.generation_tokens = 1;
    seg->g.uptime_ns++;
    g.now_ms = 5100;
    figures(&l, &st, &g);
    has(&l, "\"tokens_per_s\":null,");
    seg->boot_id[1]++; /* and so does a new daemon, though its segment is there too */
    seg->g.uptime_ns++;
    g.now_ms = 6100;
    figures(&l, &st, &g);
    has(&l, "\"tokens_per_s\":null,");
    assert_true(l.text.n <= 1024);
    live_fini(&l);
    sta_fini(&st);
    mem_unshare(seg, sizeof(*seg), fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_policy),
        cmocka_unit_test_setup_teardown(t_refused, begin, end),
        cmocka_unit_test_setup_teardown(t_silent, begin, end),
        cmocka_unit_test_setup_teardown(t_segment, begin, end),
        cmocka_unit_test_setup_teardown(t_steps, begin, end),
        cmocka_unit_test_setup_teardown(t_figures, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
