#include "config.h"

#include "tests/kernel/k_util.h"

#include <unistd.h>

/* The virtual device: memory, streams, events, graphs, failure. */

static const struct fdk_ops *const ops = &fdk_ops_cpu;

static struct fdk_ctx *
open_ctx(const struct fdk_ops *o, int n_device, int n_thread, int spin_us)
{
    const struct fdk_open_args args = {
        .n_device = n_device, .n_thread = n_thread, .max_token = 64, .spin_us = spin_us,
    };
    struct fdk_ctx *ctx;
    char err[256] = "";
    assert_int_equal(o->open(&args, &ctx, err, sizeof(err)), 0);
    return ctx;
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
    assert_int_equal(ops->available(err, sizeof(err)), 1);
    /* Either way the CUDA backend says why it cannot be used. */
    if (fdk_ops_cuda.available(err, sizeof(err)) > 0)
        assert_int_equal(fdk_ops_cuda.open(&args, &ctx, err, sizeof(err)), -ENOTSUP);
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
    assert_int_equal(((char *)base)[3 * page], 0);   /* the memory was given back */
    ops->graph_free(g);
    assert_int_equal(ops->mem_release(ctx, 0, base, page), -EINVAL);
    assert_int_equal(ops->mem_release(ctx, 0, base, 8 * page), 0);
    assert_int_equal(ops->mem_release(ctx, 0, base, 8 * page), -EINVAL);
    assert_int_equal(fdk_cpu_memory_used(ctx, 0), 0);
    assert_int_equal(ops->mem_reserve(ctx, 0, page, &base), 0);
    assert_int_equal(ops->mem_map(ctx, 0, base, 0, page), 0);
    ops->close(ctx);                                 /* takes what is left */
}

/* Many more commands than the queue holds, in order, and large copies. */
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
    assert_int_equal(ops->event_query(ea), 1);       /* never recorded */
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
    /* Recorded again: query speaks of the last record. */
    ops->stream_delay(a, 5000000);
    assert_int_equal(ops->event_record(ea, a), 0);
    assert_int_equal(ops->event_query(ea), 0);
    ops->event_free(ea);                             /* waits for it */
    assert_int_equal(ops->event_new(ctx, 0, &ea), 0);
    assert_int_equal(ops->event_query(ea), 1);
    ops->event_free(ea);
    ops->event_free(eb);
    ops->event_free(NULL);
    ops->close(ctx);                                 /* frees the streams */
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
    assert_int_equal(dst[0], 0);                     /* recorded, not run */
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
    ops->graph_free(g);                              /* waits for the launch */
    ops->graph_free(g2);
    ops->graph_free(NULL);
    assert_int_equal(ops->graph_begin(other), 0);    /* left open */
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
    assert_int_equal(ops->event_sync(ev), -EIO);     /* completes, and tells */
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
    assert_int_equal(ops->event_sync(ev1), 0);       /* the other device lives */
    assert_int_equal(ops->fill(other, &x, 7, 4), 0);
    assert_int_equal(ops->stream_sync(other), 0);
    assert_int_equal(x, 0x07070707);
    assert_string_equal(ops->error_text(ctx, 1), "");
    ops->graph_free(g);
    ops->mem_free(ctx, 0, p);
    ops->close(ctx);
}

/* Two streams of one device compute at once on one pool, many times over. */
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
        .y = y[2], .x = x, .w = w, .n = &live, .T = M, .N = N, .K = K, .ldy = N,
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

/* The null backend: at once, tokens foretold, delays only move events. */
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
    s.ids[2] = 123;
    s.ids[3] = -1;
    s.n_out = 2;
    s.out[0] = (struct fdk_out){ .tok = 2, .row = 0, .n_top = 2, .pos = 3 };
    s.out[1] = (struct fdk_out){ .tok = 3, .row = 1, .n_top = -1, .pos = 6 };
    rows[0] = (struct fdk_row){ .len = 3, .max_len = 100, .generation = 5 };
    rows[1] = (struct fdk_row){ .len = 6, .max_len = 8, .last_token = 77 };
    const struct fdk_sample_args a = {
        .results = res, .state = rows, .b = &s.b, .R = 4, .V = 1000,
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_reserve), cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_events), cmocka_unit_test(test_graph),
        cmocka_unit_test(test_failure), cmocka_unit_test(test_shared_pool),
        cmocka_unit_test(test_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
