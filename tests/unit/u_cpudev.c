/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The virtual device: memory, streams, events, graphs, failure. */

static const struct fdk_ops *const ops = &fdk_ops_cpu;

static struct fdk_ctx *
open_mode(const struct fdk_ops *o, int n_device, int n_thread, int spin_us,
    enum fdk_exec exec)
{
    const struct fdk_open_args args = {
        .n_device = n_device,
        .n_thread = n_thread,
        .max_token = 64,
        .spin_us = spin_us,
        .exec = exec,
    };
    struct fdk_ctx *ctx;
    char err[256] = "";
    assert_int_equal(o->open(&args, &ctx, err, sizeof(err)), 0);
    return ctx;
}

static struct fdk_ctx *
open_ctx(const struct fdk_ops *o, int n_device, int n_thread, int spin_us)
{
    return open_mode(o, n_device, n_thread, spin_us, FDK_EXEC_DEFAULT);
}

static void
test_open(void **state)
{
    struct fdk_open_args args = { .n_device = 0 };
    struct fdk_ctx *ctx;
    struct fdk_device_info info;
    char err[256];
    (void)state;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "0 devices"));
    args.n_device = 1;
    args.n_thread = -3;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "-3 threads"));
    args.n_thread = 1;
    args.exec = (enum fdk_exec)9;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "mode 9"));
    args.exec = FDK_EXEC_DEFAULT;
    assert_int_equal(ops->available(err, sizeof(err)), 1);
    /* A backend that cannot be used reports the reason. */
    if (fdk_ops_cuda.available(err, sizeof(err)) <= 0)
        assert_true(strlen(err) > 10);
    assert_int_equal(fdk_cpu_isa_force("sse9"), -ENOTSUP);
    ctx = open_ctx(ops, 3, 2, 0);
    assert_int_equal(ops->device_info(ctx, 2, &info), 0);
    assert_int_equal(info.n_proc, 2);
    assert_int_equal(info.peer_mask, 7);
    assert_true(info.mem_total > 0 && info.mem_free > 0 && info.mem_free <= info.mem_total);
    assert_int_equal(ops->device_info(ctx, 3, &info), -EINVAL);
    ops->close(ctx);
    ops->close(NULL);
}

/* A device may have any number. Calls to a dead device fail; the other devices work. */
static void
test_dead(void **state)
{
    static const int32_t num[] = { 5, 3 }, twice[] = { 3, 3 }, far[] = { 0, 32 };
    struct fdk_open_args args = { .n_device = 2, .device = num, .dead = 1, .n_thread = 1 };
    struct fdk_att_plan_args plan = { .n_max = 0 };
    struct fdk_device_info info;
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    fdk_event_t ev;
    char err[256];
    double v;
    void *p;

    (void)state;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), 0);
    assert_int_equal(ops->device_info(ctx, 0, &info), -EIO);
    assert_int_equal(ops->mem_alloc(ctx, 0, 256, &p), -EIO);
    assert_int_equal(ops->mem_reserve(ctx, 0, 2u << 20, &p), -EIO);
    assert_int_equal(ops->stream_new(ctx, 0, &st), -EIO);
    assert_int_equal(ops->event_new(ctx, 0, &ev), -EIO);
    assert_int_equal(ops->probe(ctx, 0, FDK_PROBE_READ, FDK_F32, &v), -EIO);
    assert_int_not_equal(ops->att_plan_host(ctx, 0, &plan), 0);
    assert_non_null(strstr(ops->error_text(ctx, 0), "device 5 fails every call"));
    assert_string_equal(ops->error_text(ctx, 1), "");
    assert_int_equal(ops->device_info(ctx, 1, &info), 0);
    assert_int_equal(info.peer_mask, 3);
    assert_int_equal(ops->mem_alloc(ctx, 1, 256, &p), 0);
    ops->mem_free(ctx, 1, p);
    assert_int_equal(ops->host_alloc(ctx, 256, &p), 0);
    ops->host_free(ctx, p);
    ops->close(ctx);
    args.device = twice;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "virtual device 3: numbers are 0 to"));
    args.device = far;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    args.n_device = FDK_MAX_DEVICES + 1;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "33 devices"));
}

static void
test_memory(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 2, 1, 0);
    struct fdk_device_info info;
    void *p, *q, *h;
    (void)state;
    assert_int_equal(ops->mem_alloc(ctx, 0, 0, &p), -EINVAL);
    assert_int_equal(ops->mem_alloc(ctx, 2, 10, &p), -EINVAL);
    assert_int_equal(ops->mem_alloc(ctx, 0, SIZE_MAX - 8, &p), -ENOMEM);
    assert_int_equal(ops->mem_alloc(ctx, 0, 1000, &p), 0);
    assert_int_equal(ops->mem_alloc(ctx, 1, 9 << 20, &q), 0);
    assert_int_equal(ops->host_alloc(ctx, 77, &h), 0);
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_int_equal((uintptr_t)q % 256, 0);
    assert_int_equal((uintptr_t)h % 256, 0);
    memset(p, 1, 1000);
    memset(q, 1, 9 << 20);
    memset(h, 1, 77);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 1000);
    assert_int_equal(fdk_cpu_memory_used(ctx, 1), 9 << 20);
    fdk_cpu_limit_memory(ctx, 0, 1500);
    void *r;
    assert_int_equal(ops->mem_alloc(ctx, 0, 501, &r), -ENOMEM);
    assert_int_equal(ops->mem_alloc(ctx, 0, 500, &r), 0);
    assert_int_equal(ops->device_info(ctx, 0, &info), 0);
    assert_int_equal(info.mem_free, 0);
    assert_int_equal(info.mem_total, 1500);
    ops->mem_free(ctx, 0, r);
    ops->mem_free(ctx, 0, p);
    ops->mem_free(ctx, 1, q);
    ops->mem_free(ctx, 1, NULL);
    ops->host_free(ctx, h);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 0);
    assert_int_equal(fdk_cpu_memory_used(ctx, 1), 0);
    ops->close(ctx);
}

static void
test_reserve(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 1, 1, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    fdk_stream_t st;
    struct fdk_graph *g;
    void *base;
    (void)state;
    assert_int_equal(ops->mem_reserve(ctx, 0, 100, &base), -EINVAL);
    assert_int_equal(ops->mem_reserve(ctx, 0, 8 * page, &base), 0);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 0);
    /* A graph recorded against the addresses runs once they are mapped. */
    assert_int_equal(ops->stream_new(ctx, 0, &st), 0);
    assert_int_equal(ops->graph_begin(st), 0);
    assert_int_equal(ops->fill(st, (char *)base + 2 * page, 7, 2 * page), 0);
    assert_int_equal(ops->graph_end(st, &g), 0);
    assert_int_equal(ops->mem_map(ctx, 0, base, 2 * page, 7 * page), -EINVAL);
    assert_int_equal(ops->mem_map(ctx, 0, base, 2 * page + 1, page), -EINVAL);
    assert_int_equal(ops->mem_map(ctx, 0, (char *)base + page, 0, page), -EINVAL);
    assert_int_equal(ops->mem_map(ctx, 0, base, 2 * page, 2 * page), 0);
    assert_int_equal(ops->mem_map(ctx, 0, base, 3 * page, page), -EINVAL);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 2 * page);
    assert_int_equal(ops->graph_launch(g, st), 0);
    assert_int_equal(ops->stream_sync(st), 0);
    assert_int_equal(((char *)base)[2 * page], 7);
    assert_int_equal(((char *)base)[4 * page - 1], 7);
    fdk_cpu_limit_memory(ctx, 0, 3 * page);
    assert_int_equal(ops->mem_map(ctx, 0, base, 4 * page, 2 * page), -ENOMEM);
    assert_int_equal(ops->mem_unmap(ctx, 0, base, page, 2 * page), -EINVAL);
    assert_int_equal(ops->mem_unmap(ctx, 0, base, 3 * page, page), 0);
    assert_int_equal(ops->mem_map(ctx, 0, base, 3 * page, page), 0);
    assert_int_equal(((char *)base)[3 * page], 0); /* the memory was given back */
    ops->graph_free(g);
    assert_int_equal(ops->mem_release(ctx, 0, base, page), -EINVAL);
    assert_int_equal(ops->mem_release(ctx, 0, base, 8 * page), 0);
    assert_int_equal(ops->mem_release(ctx, 0, base, 8 * page), -EINVAL);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 0);
    assert_int_equal(ops->mem_reserve(ctx, 0, page, &base), 0);
    assert_int_equal(ops->mem_map(ctx, 0, base, 0, page), 0);
    ops->close(ctx); /* frees what is left */
}

/* Returns how many threads have a name that begins with `name` and this nice value. */
static int
threads_with(const char *name, int nice)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        char path[300], comm[32] = "";
        int fd;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
        fd = e->d_name[0] != '.' ? open(path, O_RDONLY) : -1;
        if (fd < 0)
            continue;
        (void)!read(fd, comm, sizeof(comm) - 1); /* nothing: it just ended */
        close(fd);
        n += strncmp(comm, name, strlen(name)) == 0 &&
            getpriority(PRIO_PROCESS, (id_t)atoi(e->d_name)) == nice;
    }
    closedir(d);
    return n;
}

/* Threads that compute have the nice value; the caller keeps its own. */
static void
test_nice(void **state)
{
    const int own = getpriority(PRIO_PROCESS, 0), want = own + 3 < 19 ? own + 3 : 19;
    struct fdk_open_args args = { .n_device = 1, .n_thread = 3, .nice = 20 };
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    char err[256];
    (void)state;
    if (own >= 19)
        skip();
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "nice value 20"));
    args.nice = 3;
    assert_int_equal(ops->open(&args, &ctx, err, sizeof(err)), 0);
    assert_int_equal(ops->stream_new(ctx, 0, &st), 0);
    assert_int_equal(ops->stream_sync(st), 0);
    for (int i = 0; i < 5000 && threads_with("fdk-pool", want) < 2; i++)
        usleep(1000);
    assert_int_equal(threads_with("fdk-pool", want), 2);
    for (int i = 0; i < 5000 && threads_with("fdk-stream", want) < 1; i++)
        usleep(1000);
    assert_int_equal(threads_with("fdk-stream", want), 1);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
    ops->stream_free(st);
    ops->close(ctx);
}

/* Far more commands than the queue holds run in order, and large copies work. */
static void
test_fifo(void **state)
{
    enum { N = 5 * CPU_QUEUE, BIG = 3 << 20 };
    (void)state;
    for (int spin_us = 0; spin_us <= 100; spin_us += 100) {
        struct fdk_ctx *ctx = open_ctx(ops, 2, 3, spin_us);
        fdk_stream_t st;
        unsigned char *a = malloc(BIG), *b = malloc(BIG);
        assert_int_equal(ops->stream_new(ctx, 0, &st), 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(ops->fill(st, a + i % 2, i & 0xff, 1), 0);
            if (i % 700 == 0)
                assert_int_equal(ops->stream_delay(st, 20000), 0);
        }
        assert_int_equal(ops->stream_sync(st), 0);
        assert_int_equal(a[0], (N - 2) & 0xff);
        assert_int_equal(a[1], (N - 1) & 0xff);
        for (int i = 0; i < BIG; i++)
            a[i] = (unsigned char)(i * 31 >> 3);
        assert_int_equal(ops->copy_peer(st, 1, b, 0, a, BIG), 0);
        assert_int_equal(ops->copy_peer(st, 2, b, 0, a, BIG), -EINVAL);
        assert_int_equal(ops->copy(st, NULL, a, 1), -EINVAL);
        assert_int_equal(ops->copy(st, b, a, 0), 0);
        assert_int_equal(ops->stream_sync(st), 0);
        assert_memory_equal(a, b, BIG);
        assert_int_equal(ops->fill(st, b, 9, BIG), 0);
        assert_int_equal(ops->stream_sync(st), 0);
        assert_true(b[0] == 9 && b[BIG - 1] == 9 && b[BIG / 2] == 9);
        ops->stream_free(st);
        free(a);
        free(b);
        ops->close(ctx);
    }
}

/* A host thread sees the progress of a stream, inside and outside a graph. */
static void
test_mark(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 1, 1, 10);
    struct fdk_graph *g;
    fdk_stream_t st;
    uint32_t at = 0, value = 0, next = 9;
    (void)state;
    assert_int_equal(ops->stream_new(ctx, 0, &st), 0);
    assert_int_equal(ops->stream_mark(NULL, &at, &value), -EINVAL);
    assert_int_equal(ops->stream_mark(st, NULL, &value), -EINVAL);
    assert_int_equal(ops->stream_mark(st, &at, NULL), -EINVAL);
    /* the value becomes visible when the device reaches the mark */
    assert_int_equal(ops->stream_delay(st, 5000000), 0);
    assert_int_equal(ops->fill(st, &value, 1, 4), 0);
    assert_int_equal(ops->stream_mark(st, &at, &value), 0);
    assert_int_equal(ops->stream_delay(st, 500000000), 0);
    uint64_t t0 = cpu_now_ns();
    while (__atomic_load_n(&at, __ATOMIC_ACQUIRE) == 0)
        cpu_relax();
    assert_true(cpu_now_ns() - t0 < 500000000);
    assert_int_equal(at, 0x01010101);
    assert_int_equal(ops->stream_sync(st), 0);
    assert_int_equal(ops->graph_begin(st), 0);
    assert_int_equal(ops->stream_mark(st, &at, &value), 0);
    assert_int_equal(ops->graph_end(st, &g), 0);
    for (int i = 0; i < 3; i++, next++) {
        assert_int_equal(ops->copy(st, &value, &next, 4), 0);
        assert_int_equal(ops->graph_launch(g, st), 0);
        assert_int_equal(ops->stream_sync(st), 0);
        assert_int_equal(at, next);
    }
    ops->graph_free(g);
    ops->close(ctx);
}

static void
test_events(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 1, 1, 10);
    fdk_stream_t a, b;
    fdk_event_t ea, eb;
    int x = 0;
    (void)state;
    assert_int_equal(ops->stream_new(ctx, 0, &a), 0);
    assert_int_equal(ops->stream_new(ctx, 0, &b), 0);
    assert_int_equal(ops->event_new(ctx, 0, &ea), 0);
    assert_int_equal(ops->event_new(ctx, 0, &eb), 0);
    assert_int_equal(ops->event_query(ea), 1); /* never recorded: complete */
    assert_int_equal(ops->event_sync(ea), 0);
    uint64_t t0 = cpu_now_ns();
    /* b's fill comes after a's although a is busy for 20 ms first. */
    ops->stream_delay(a, 20000000);
    ops->fill(a, &x, 1, 4);
    assert_int_equal(ops->event_record(ea, a), 0);
    assert_int_equal(ops->stream_wait(b, ea), 0);
    ops->fill(b, &x, 2, 4);
    assert_int_equal(ops->event_record(eb, b), 0);
    assert_int_equal(ops->event_query(eb), 0);
    assert_int_equal(ops->event_sync(eb), 0);
    assert_int_equal(ops->event_query(ea), 1);
    assert_int_equal(x, 0x02020202);
    assert_true(ops->event_ns(ea) >= t0 + 20000000);
    assert_true(ops->event_ns(eb) >= ops->event_ns(ea));
    assert_true(ops->event_ns(eb) <= cpu_now_ns());
    /* Recorded again: query is about the last record. */
    ops->stream_delay(a, 5000000);
    assert_int_equal(ops->event_record(ea, a), 0);
    assert_int_equal(ops->event_query(ea), 0);
    ops->event_free(ea); /* waits for the event */
    assert_int_equal(ops->event_new(ctx, 0, &ea), 0);
    assert_int_equal(ops->event_query(ea), 1);
    ops->event_free(ea);
    ops->event_free(eb);
    ops->event_free(NULL);
    ops->close(ctx); /* frees the streams */
}

static void
test_graph(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 2, 2, 10);
    fdk_stream_t st, other;
    fdk_event_t ev;
    struct fdk_graph *g, *g2;
    unsigned char src[4] = { 1, 2, 3, 4 }, dst[4] = { 0 };
    (void)state;
    assert_int_equal(ops->stream_new(ctx, 0, &st), 0);
    assert_int_equal(ops->stream_new(ctx, 1, &other), 0);
    assert_int_equal(ops->event_new(ctx, 0, &ev), 0);
    assert_int_equal(ops->graph_end(st, &g), -EINVAL);
    assert_int_equal(ops->graph_begin(st), 0);
    assert_int_equal(ops->graph_begin(st), -EINVAL);
    assert_int_equal(ops->stream_sync(st), -EBUSY);
    assert_int_equal(ops->event_record(ev, st), -EBUSY);
    assert_int_equal(ops->stream_wait(st, ev), -EBUSY);
    for (int i = 0; i < 200; i++)
        assert_int_equal(ops->fill(st, dst + 3, i, 1), 0);
    assert_int_equal(ops->copy(st, dst, src, 3), 0);
    assert_int_equal(ops->graph_end(st, &g), 0);
    assert_int_equal(ops->stream_sync(st), 0);
    assert_int_equal(dst[0], 0); /* recorded, not run */
    assert_int_equal(ops->graph_launch(g, other), -EINVAL);
    for (int i = 0; i < 50; i++) {
        src[0] = (unsigned char)(10 + i);
        dst[3] = 0;
        assert_int_equal(ops->graph_launch(g, st), 0);
        assert_int_equal(ops->stream_sync(st), 0);
        assert_int_equal(dst[0], 10 + i);
        assert_int_equal(dst[3], 199);
    }
    assert_int_equal(ops->graph_begin(st), 0);
    assert_int_equal(ops->graph_launch(g, st), -EINVAL);
    assert_int_equal(ops->graph_end(st, &g2), 0);
    ops->graph_launch(g, st);
    ops->graph_free(g); /* waits for the launch */
    ops->graph_free(g2);
    ops->graph_free(NULL);
    assert_int_equal(ops->graph_begin(other), 0); /* the recording is left open */
    ops->fill(other, dst, 1, 1);
    ops->close(ctx);
}

static void
test_failure(void **state)
{
    struct fdk_ctx *ctx = open_ctx(ops, 2, 1, 10);
    fdk_stream_t st, other;
    fdk_event_t ev, ev1;
    struct fdk_graph *g;
    void *p;
    int x = 0;
    (void)state;
    ops->stream_new(ctx, 0, &st);
    ops->stream_new(ctx, 1, &other);
    ops->event_new(ctx, 0, &ev);
    ops->event_new(ctx, 1, &ev1);
    ops->mem_alloc(ctx, 0, 8, &p);
    ops->graph_begin(st);
    ops->fill(st, &x, 3, 4);
    ops->graph_end(st, &g);
    assert_string_equal(ops->error_text(ctx, 0), "");
    fdk_cpu_fail_after(ctx, 0, 3);
    ops->stream_delay(st, 3000000);
    ops->fill(st, &x, 1, 4);
    ops->graph_launch(g, st);
    ops->event_record(ev, st);
    ops->stream_wait(other, ev);
    ops->event_record(ev1, other);
    assert_int_equal(ops->event_sync(ev), -EIO); /* completes, and reports the failure */
    assert_int_equal(x, 0x01010101);
    assert_int_equal(ops->event_query(ev), -EIO);
    assert_int_equal(ops->stream_sync(st), -EIO);
    assert_int_equal(ops->fill(st, &x, 5, 4), -EIO);
    assert_int_equal(ops->event_record(ev, st), -EIO);
    assert_int_equal(ops->graph_launch(g, st), -EIO);
    assert_int_equal(ops->graph_begin(st), -EIO);
    assert_int_equal(ops->mem_alloc(ctx, 0, 8, &p), -EIO);
    assert_int_equal(ops->copy_peer(other, 0, &x, 1, &x, 4), -EIO);
    assert_non_null(strstr(ops->error_text(ctx, 0), "injected"));
    assert_int_equal(ops->event_sync(ev1), 0); /* the other device lives */
    assert_int_equal(ops->fill(other, &x, 7, 4), 0);
    assert_int_equal(ops->stream_sync(other), 0);
    assert_int_equal(x, 0x07070707);
    assert_string_equal(ops->error_text(ctx, 1), "");
    ops->graph_free(g);
    ops->mem_free(ctx, 0, p);
    ops->close(ctx);
}

/* Two streams of one device compute at the same time on one thread pool, many times. */
static void
test_shared_pool(void **state)
{
    enum { M = 16, N = 96, K = 256, ROUNDS = 60 };
    struct fdk_ctx *ctx = open_ctx(ops, 1, 3, 20);
    fdk_stream_t st[2];
    float *x = malloc(M * K * 4), *w = malloc(N * K * 4), *y[3];
    int32_t live = M;
    (void)state;
    k_fill(x, M * K, 1);
    k_fill(w, N * K, 2);
    for (int i = 0; i < 3; i++)
        y[i] = malloc(M * N * 4);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->stream_new(ctx, 0, &st[i]), 0);
    struct fdk_gemm_args a = {
        .y = y[2],
        .x = x,
        .w = w,
        .n = &live,
        .T = M,
        .N = N,
        .K = K,
        .ldy = N,
    };
    assert_int_equal(ops->gemm(&a, st[0]), 0);
    assert_int_equal(ops->stream_sync(st[0]), 0);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 2; i++) {
            a.y = y[i];
            memset(y[i], 0, M * N * 4);
            assert_int_equal(ops->gemm(&a, st[i]), 0);
            assert_int_equal(ops->gemm(&a, st[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ops->stream_sync(st[i]), 0);
            assert_memory_equal(y[i], y[2], M * N * 4);
        }
    }
    ops->close(ctx);
    for (int i = 0; i < 3; i++)
        free(y[i]);
    free(x);
    free(w);
}

/* The null backend completes at once, its tokens are predictable,
 * and delays only move events. */
static void
test_null(void **state)
{
    static struct k_step s;
    static struct fdk_row rows[2];
    static struct fdk_result res[2];
    struct fdk_ctx *ctx = open_ctx(&fdk_ops_null, 1, 1, 0);
    const struct fdk_ops *o = &fdk_ops_null;
    fdk_stream_t st;
    fdk_event_t ev;
    struct fdk_graph *g;
    (void)state;
    k_step_init(&s);
    k_step_row(&s, 3, 0, 16, 4, 0);
    k_step_row(&s, 1, 5, 16, 4, 0);
    s.state[0] = 0;
    s.state[1] = 1;
    s.ids[2] = 123;
    s.ids[3] = -1;
    s.n_out = 2;
    s.out[0] = (struct fdk_out){ .tok = 2, .row = 0, .n_top = 2, .pos = 3 };
    s.out[1] = (struct fdk_out){ .tok = 3, .row = 1, .n_top = -1, .pos = 6 };
    rows[0] = (struct fdk_row){ .len = 3, .max_len = 100, .generation = 5 };
    rows[1] = (struct fdk_row){ .len = 6, .max_len = 8, .last_token = 77 };
    const struct fdk_sample_args a = {
        .results = res,
        .state = rows,
        .b = &s.b,
        .R = 4,
        .V = 1000,
    };
    assert_int_equal(o->stream_new(ctx, 0, &st), 0);
    assert_int_equal(o->event_new(ctx, 0, &ev), 0);
    assert_int_equal(o->graph_begin(st), 0);
    assert_int_equal(o->sample(&a, st), 0);
    assert_int_equal(o->graph_end(st, &g), 0);
    assert_int_equal(rows[0].len, 3);
    uint64_t t0 = cpu_now_ns();
    assert_int_equal(o->stream_delay(st, 10000000), 0);
    assert_int_equal(o->graph_launch(g, st), 0);
    assert_int_equal(o->event_record(ev, st), 0);
    assert_int_equal(o->event_query(ev), 0);
    assert_int_equal(o->event_sync(ev), 0);
    assert_true(cpu_now_ns() - t0 >= 10000000);
    assert_int_equal(o->event_query(ev), 1);
    assert_int_equal(res[0].token, fdk_null_token(123, 3, 1000));
    assert_int_equal(res[1].token, fdk_null_token(77, 6, 1000));
    assert_int_equal(rows[1].last_token, res[1].token);
    assert_int_equal(res[0].generation, 5);
    assert_int_equal(res[0].n_top, 2);
    assert_true(res[0].logprob == -1);
    assert_int_equal(res[1].done, FDK_DONE_NO);
    s.out[1].pos = 7;
    assert_int_equal(o->graph_launch(g, st), 0);
    assert_int_equal(res[1].done, FDK_DONE_LENGTH);
    assert_int_equal(o->graph_launch(g, st), 0);
    assert_int_equal(res[1].token, -1);
    assert_int_equal(rows[1].len, 8);
    fdk_cpu_fail_after(ctx, 0, 1);
    assert_int_equal(o->graph_launch(g, st), -EIO);
    assert_int_equal(o->event_query(ev), -EIO);
    o->graph_free(g);
    o->close(ctx);
}

/* Penalty counts are kept by the null backend too, and change no token. */
static void
test_null_counts(void **state)
{
    enum { V = 50 };
    static struct k_step s;
    static struct fdk_result res[2];
    static uint16_t counts[3 * V];
    struct fdk_row rows[2] = {
        { .max_len = 100, .penalty = 2, .repetition = 9 },
        { .max_len = 100, .penalty = -1 },
    };
    struct fdk_ctx *ctx = open_ctx(&fdk_ops_null, 1, 1, 0);
    fdk_stream_t st;
    (void)state;
    k_step_init(&s);
    k_step_row(&s, 1, 0, 16, 4, 0);
    k_step_row(&s, 1, 0, 16, 4, 0);
    s.n_out = 2;
    for (int i = 0; i < 2; i++) {
        s.out[i] = (struct fdk_out){ .tok = i, .row = i, .n_top = -1, .pos = 1 };
        s.state[i] = i;
    }
    const struct fdk_sample_args a = {
        .results = res,
        .state = rows,
        .counts = counts,
        .b = &s.b,
        .R = 2,
        .V = V,
    };
    int32_t t = fdk_null_token(1, 1, V);
    counts[2 * V + t] = 0x8000;
    assert_int_equal(fdk_ops_null.stream_new(ctx, 0, &st), 0);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(fdk_ops_null.sample(&a, st), 0);
        assert_int_equal(res[0].token, t);
        assert_int_equal(res[1].token, t);
        assert_int_equal(counts[2 * V + t], 0x8000 + i);
        assert_int_equal(counts[t] | counts[V + t], 0);
    }
    fdk_ops_null.close(ctx);
}

/* ---- execution modes ----------------------------------------------------- */

struct duo { /* two streams of two devices, and events */
    const struct fdk_ops *o;
    struct fdk_ctx *ctx;
    fdk_stream_t a, b;
    fdk_event_t e[4];
};

static void
duo_open(struct duo *d, const struct fdk_ops *o, enum fdk_exec exec)
{
    d->o = o;
    d->ctx = open_mode(o, 2, 2, 10, exec);
    assert_int_equal(o->stream_new(d->ctx, 0, &d->a), 0);
    assert_int_equal(o->stream_new(d->ctx, 1, &d->b), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(o->event_new(d->ctx, i % 2, &d->e[i]), 0);
}

/* The two streams wait for each other in turn; a graph is replayed in between. */
static void
ping_pong(struct duo *d, unsigned char *x, int n)
{
    const struct fdk_ops *o = d->o;
    struct fdk_graph *g;
    assert_int_equal(o->graph_begin(d->b), 0);
    assert_int_equal(o->copy(d->b, x + 1, x, 1), 0);
    assert_int_equal(o->copy(d->b, x + 2, x + 1, 1), 0);
    assert_int_equal(o->graph_end(d->b, &g), 0);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            assert_int_equal(o->stream_wait(d->a, d->e[1]), 0);
        if (i % 16 == 0)
            assert_int_equal(o->stream_delay(d->a, 20000), 0);
        assert_int_equal(o->fill(d->a, x, i & 0xff, 1), 0);
        assert_int_equal(o->event_record(d->e[0], d->a), 0);
        assert_int_equal(o->stream_wait(d->b, d->e[0]), 0);
        assert_int_equal(o->graph_launch(g, d->b), 0);
        assert_int_equal(o->copy(d->b, x + 3 + i, x + 2, 1), 0);
        assert_int_equal(o->event_record(d->e[1], d->b), 0);
    }
    o->graph_free(g);
}

/* The result follows the order of the streams, whichever thread executes. */
static void
test_exec_modes(void **state)
{
    enum { N = 700 }; /* more commands than a queue holds */
    static const enum fdk_exec modes[] = {
        FDK_EXEC_DEFAULT,
        FDK_EXEC_THREAD,
        FDK_EXEC_INLINE,
        FDK_EXEC_DEFER,
    };
    (void)state;
    for (int k = 0; k < 8; k++) {
        unsigned char *x = calloc(1, N + 3);
        struct duo d;
        duo_open(&d, k < 4 ? &fdk_ops_cpu : &fdk_ops_null, modes[k % 4]);
        ping_pong(&d, x, N);
        assert_int_equal(d.o->event_sync(d.e[1]), 0);
        for (int i = 0; i < N; i++)
            assert_int_equal(x[3 + i], i & 0xff);
        assert_int_equal(d.o->stream_sync(d.a), 0);
        if (modes[k % 4] != FDK_EXEC_DEFER)
            assert_int_equal(fdk_vdev_step(d.ctx, 10), 0);
        d.o->close(d.ctx);
        free(x);
    }
}

/* Commands run only when something waits for them, and only those that it needs. */
static void
test_defer_waits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct duo d;
        unsigned char x[4] = { 0 }, busy = 0;
        duo_open(&d, k ? &fdk_ops_null : &fdk_ops_cpu, FDK_EXEC_DEFER);
        const struct fdk_ops *o = d.o;
        o->fill(d.a, x, 1, 1);
        o->event_record(d.e[0], d.a);
        o->stream_wait(d.b, d.e[0]);
        o->copy(d.b, x + 1, x, 1);
        o->event_record(d.e[1], d.b);
        o->stream_wait(d.a, d.e[1]);
        o->copy(d.a, x + 2, x + 1, 1);
        o->event_record(d.e[2], d.a);
        o->fill(d.a, x + 3, 9, 1);
        o->fill(d.b, &busy, 9, 1);
        o->event_record(d.e[3], d.b);
        for (int i = 0; i < 4; i++)
            assert_int_equal(o->event_query(d.e[i]), 0);
        assert_int_equal(x[0], 0);
        assert_int_equal(o->event_sync(d.e[0]), 0);
        assert_int_equal(x[0], 1);
        assert_int_equal(o->event_query(d.e[0]), 1);
        assert_int_equal(o->event_query(d.e[1]), 0);
        assert_int_equal(o->event_sync(d.e[2]), 0); /* there and back again */
        assert_int_equal(x[2], 1);
        assert_int_equal(o->event_query(d.e[1]), 1);
        assert_int_equal(o->event_query(d.e[3]), 0);
        assert_int_equal(x[3] | busy, 0);
        assert_int_equal(o->stream_sync(d.a), 0);
        assert_int_equal(x[3], 9);
        assert_int_equal(busy, 0);
        o->event_free(d.e[3]);
        assert_int_equal(busy, 9);
        o->fill(d.b, &busy, 4, 1);
        o->stream_free(d.b);
        assert_int_equal(busy, 4);
        o->close(d.ctx);
    }
}

/* Commands run one at a time, streams in turn; a waiting stream is skipped. */
static void
test_defer_steps(void **state)
{
    struct duo d;
    char x[2] = { 0 };
    (void)state;
    duo_open(&d, &fdk_ops_cpu, FDK_EXEC_DEFER);
    const struct fdk_ops *o = d.o;
    assert_int_equal(fdk_vdev_step(d.ctx, 5), 0);
    o->stream_wait(d.a, d.e[0]); /* never recorded: no wait */
    for (int i = 1; i <= 3; i++) {
        o->fill(d.a, &x[0], i, 1);
        o->fill(d.b, &x[1], i, 1);
    }
    o->event_record(d.e[0], d.b);
    o->stream_wait(d.a, d.e[0]);
    o->fill(d.a, &x[0], 7, 1);
    static const char want[][2] = {
        { 0, 0 },
        { 0, 1 },
        { 1, 1 },
        { 1, 2 },
        { 2, 2 },
        { 2, 3 },
        { 3, 3 },
        { 3, 3 },
        { 3, 3 },
        { 7, 3 },
    };
    for (int i = 0; i < 10; i++) {
        assert_int_equal(o->event_query(d.e[0]), i >= 8);
        assert_int_equal(fdk_vdev_step(d.ctx, 1), 1);
        assert_memory_equal(x, want[i], 2);
    }
    assert_int_equal(fdk_vdev_step(d.ctx, 1), 0);
    /* Only b runs while a waits for b's last command. */
    for (int i = 0; i < 3; i++)
        o->fill(d.b, &x[1], 10 + i, 1);
    o->event_record(d.e[1], d.b);
    o->stream_wait(d.a, d.e[1]);
    o->fill(d.a, &x[0], 20, 1);
    assert_int_equal(fdk_vdev_step(d.ctx, 3), 3);
    assert_int_equal(x[1], 12);
    assert_int_equal(x[0], 7);
    assert_int_equal(fdk_vdev_step(d.ctx, 100), 3);
    assert_int_equal(x[0], 20);
    o->close(d.ctx);
}

/* Delays take no time, a full queue runs its oldest commands; graphs and failures. */
static void
test_defer_limits(void **state)
{
    struct duo d;
    struct fdk_graph *g;
    unsigned char x = 0;
    (void)state;
    duo_open(&d, &fdk_ops_null, FDK_EXEC_DEFER);
    const struct fdk_ops *o = d.o;
    uint64_t t0 = cpu_now_ns(), hour = 3600000000000u;
    o->stream_delay(d.a, hour);
    o->event_record(d.e[0], d.a);
    o->stream_wait(d.b, d.e[0]);
    o->stream_delay(d.b, hour);
    o->event_record(d.e[1], d.b);
    assert_int_equal(o->event_sync(d.e[1]), 0);
    assert_int_equal(o->event_query(d.e[0]), 1);
    assert_true(cpu_now_ns() - t0 < hour);
    assert_true(o->event_ns(d.e[1]) >= t0 + 2 * hour);
    for (int i = 0; i < CPU_QUEUE + 5; i++)
        assert_int_equal(o->fill(d.a, &x, i < CPU_QUEUE ? i : 99, 1), 0);
    assert_int_equal(x, 4);
    assert_int_equal(fdk_vdev_step(d.ctx, 2 * CPU_QUEUE), CPU_QUEUE);
    assert_int_equal(x, 99);
    o->graph_begin(d.a);
    o->fill(d.a, &x, 1, 1);
    o->fill(d.a, &x, 2, 1);
    assert_int_equal(fdk_vdev_step(d.ctx, 10), 0);
    assert_int_equal(o->graph_end(d.a, &g), 0);
    assert_int_equal(o->graph_launch(g, d.a), 0);
    assert_int_equal(x, 99);
    assert_int_equal(fdk_vdev_step(d.ctx, 10), 1); /* a graph is one command */
    assert_int_equal(x, 2);
    x = 0;
    o->graph_launch(g, d.a);
    o->graph_launch(g, d.a);
    o->graph_free(g);
    assert_int_equal(x, 2);
    fdk_cpu_fail_after(d.ctx, 0, 2);
    o->fill(d.a, &x, 5, 1);
    o->fill(d.a, &x, 6, 1);
    o->event_record(d.e[0], d.a);
    o->stream_wait(d.b, d.e[0]);
    o->fill(d.b, &x, 7, 1);
    assert_int_equal(o->event_query(d.e[0]), 0);
    assert_int_equal(o->stream_sync(d.b), 0);
    assert_int_equal(x, 7);
    assert_int_equal(o->event_sync(d.e[0]), -EIO);
    assert_int_equal(o->fill(d.a, &x, 6, 1), -EIO);
    assert_int_equal(o->event_record(d.e[0], d.a), -EIO);
    o->close(d.ctx);
}

/* The null backend on a thread of its own: the host goes on meanwhile. */
static void
test_null_thread(void **state)
{
    static struct k_step s;
    static struct fdk_row row = { .len = 3, .max_len = 100, .penalty = -1 };
    static struct fdk_result res[1];
    enum { MS = 20000000 };
    struct duo d;
    (void)state;
    duo_open(&d, &fdk_ops_null, FDK_EXEC_THREAD);
    k_step_init(&s);
    k_step_row(&s, 3, 0, 16, 4, 0);
    s.ids[2] = 11;
    s.state[0] = 0;
    s.n_out = 1;
    s.out[0] = (struct fdk_out){ .tok = 2, .n_top = -1, .pos = 3 };
    const struct fdk_sample_args a = {
        .results = res,
        .state = &row,
        .b = &s.b,
        .R = 1,
        .V = 50,
    };
    uint64_t t0 = cpu_now_ns();
    assert_int_equal(d.o->stream_delay(d.a, MS), 0);
    assert_int_equal(d.o->sample(&a, d.a), 0);
    assert_int_equal(d.o->event_record(d.e[0], d.a), 0);
    int done = d.o->event_query(d.e[0]);
    if (cpu_now_ns() < t0 + MS)
        assert_int_equal(done, 0);
    assert_int_equal(d.o->event_sync(d.e[0]), 0);
    assert_true(d.o->event_ns(d.e[0]) >= t0 + MS);
    assert_int_equal(res[0].token, fdk_null_token(11, 3, 50));
    assert_int_equal(row.len, 4);
    d.o->close(d.ctx);
}

/* The cpu backend in the calling thread: complete when the launch
 * returns, with equal bits. */
static void
test_inline_math(void **state)
{
    enum { M = 16, N = 96, K = 256 };
    float *x = malloc(M * K * 4), *w = malloc(N * K * 4), *y[2];
    int32_t live = M;
    (void)state;
    k_fill(x, M * K, 1);
    k_fill(w, N * K, 2);
    for (int i = 0; i < 2; i++) {
        struct duo d;
        y[i] = calloc(M * N, 4);
        const struct fdk_gemm_args a = {
            .y = y[i],
            .x = x,
            .w = w,
            .n = &live,
            .T = M,
            .N = N,
            .K = K,
            .ldy = N,
        };
        duo_open(&d, ops, i ? FDK_EXEC_INLINE : FDK_EXEC_THREAD);
        assert_int_equal(ops->gemm(&a, d.a), 0);
        if (i == 0)
            assert_int_equal(ops->stream_sync(d.a), 0);
        else
            assert_memory_equal(y[0], y[1], M * N * 4);
        fdk_cpu_fail_after(d.ctx, 0, 1);
        assert_int_equal(ops->fill(d.a, w, 1, 0), i ? -EIO : 0);
        assert_int_equal(ops->stream_sync(d.a), -EIO);
        ops->close(d.ctx);
    }
    free(x);
    free(w);
    free(y[0]);
    free(y[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_dead),
        cmocka_unit_test(test_nice),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_mark),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_shared_pool),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_null_counts),
        cmocka_unit_test(test_exec_modes),
        cmocka_unit_test(test_defer_waits),
        cmocka_unit_test(test_defer_steps),
        cmocka_unit_test(test_defer_limits),
        cmocka_unit_test(test_null_thread),
        cmocka_unit_test(test_inline_math),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
