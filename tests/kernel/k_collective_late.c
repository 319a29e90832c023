/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of ranks that are late or do not arrive: graphs replayed out of step,
 * devices that die, ranks with other operations. Refused arguments.
 */
#include "config.h"

#include "tests/kernel/k_ranks.h"

#include <sched.h>
#include <unistd.h>

/* ---- graphs -------------------------------------------------------------------------- */

#define REPLAYS 1000
#define INPUTS  8
#define FEW     (K_SLOW ? 100 : REPLAYS)

static int
late_hook(void *arg, int rank, int stage, uint64_t piece, int met)
{
    uint64_t s = (uint64_t)(uintptr_t)arg + piece * 32 + (uint64_t)met * 16 +
        (uint64_t)rank * 2 + (uint64_t)stage;
    uint64_t dice = k_rand(&s);
    if (dice % 8 == 0)
        sched_yield();
    if (dice % 64 == 1)
        usleep((useconds_t)(dice >> 8 & 1023));
    return 0;
}

struct replay {
    size_t n[3]; /* elements: one-shot graph, graph with both methods, plain launch */
    char *x[INPUTS][FDK_MAX_RANKS], *want[INPUTS];
    void *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS], *d_in[FDK_MAX_RANKS],
        *d_out[FDK_MAX_RANKS];
    struct fdk_graph *graph[2][FDK_MAX_RANKS];
};

static void
replay_reduce(struct side *s, struct replay *p, int q, size_t from, size_t to)
{
    const struct fdk_all_reduce_args a = {
        .group = s->g,
        .y = (float *)p->d_y[q] + from,
        .x = (float *)p->d_x[q] + from,
        .T = 1,
        .C = (int32_t)(to - from),
        .act = FDK_F32,
    };
    OK(ops->all_reduce(&a, s->st[q]));
}

static void
replay_new(struct side *s, struct replay *p, size_t most)
{
    for (int i = 0; i < INPUTS; i++) {
        for (int q = 0; q < s->n; q++)
            p->x[i][q] = numbers(s, most, FDK_F32);
        p->want[i] = sum_of(p->x[i], s->n, most, FDK_F32);
    }
    for (int q = 0; q < s->n; q++) {
        p->d_x[q] = put(s, q, NULL, most * 4);
        p->d_y[q] = put(s, q, NULL, most * 4);
        p->d_in[q] = put(s, q, NULL, most * 4 * INPUTS);
        p->d_out[q] = put(s, q, NULL, most * 4 * REPLAYS);
        for (size_t i = 0; i < INPUTS; i++)
            OK(ops->copy(s->st[q], (char *)p->d_in[q] + i * most * 4, p->x[i][q], most * 4));
        for (int g = 0; g < 2; g++) {
            OK(ops->graph_begin(s->st[q]));
            replay_reduce(s, p, q, 0, p->n[g] / 3);
            replay_reduce(s, p, q, p->n[g] / 3, p->n[g]);
            OK(ops->graph_end(s->st[q], &p->graph[g][q]));
        }
    }
}

/* Two graphs and plain launches in random order, with new inputs and late ranks. */
static void
t_graphs(void **state)
{
    const size_t most = 2500;
    int n;
    (void)state;
    FOR_WORLDS(n)
    {
        struct replay p = { .n = { 150, most, 601 } };
        struct fdk_group_args a = kind(2, n);
        static unsigned char what[REPLAYS];
        struct side s;
        a.one_shot_bytes = 2000;
        side_open(&s, &a);
        if (on_cpu)
            fdk_cpu_group_hook(s.g, late_hook, (void *)(uintptr_t)(n * 1000));
        replay_new(&s, &p, most);
        for (size_t i = 0; i < FEW; i++) {
            what[i] = (unsigned char)(k_rand(&s.seed) % 3);
            for (int q = 0; q < n; q++) {
                OK(ops->copy(s.st[q], p.d_x[q], (char *)p.d_in[q] + i % INPUTS * most * 4,
                    most * 4));
                if (k_rand(&s.seed) % 32 == 0)
                    OK(ops->stream_delay(s.st[q], k_rand(&s.seed) % 500000));
                if (what[i] < 2)
                    OK(ops->graph_launch(p.graph[what[i]][q], s.st[q]));
                else
                    replay_reduce(&s, &p, q, 0, p.n[2]);
                OK(ops->copy(s.st[q], (char *)p.d_out[q] + i * most * 4, p.d_y[q],
                    p.n[what[i]] * 4));
            }
        }
        side_sync(&s);
        for (int q = 0; q < n; q++)
            for (size_t i = 0; i < FEW; i++)
                has(&s, q, (char *)p.d_out[q] + i * most * 4, p.want[i % INPUTS],
                    p.n[what[i]] * 4, "replay");
        for (int i = 0; i < INPUTS * n; i++)
            free(p.x[i / n][i % n]);
        for (int i = 0; i < INPUTS; i++)
            free(p.want[i]);
        for (int i = 0; i < 2 * n; i++)
            ops->graph_free(p.graph[i % 2][i / 2]);
        side_close(&s);
    }
}

/* Rank 0 reads long after the others have begun the next pieces. */
static int
slow_hook(void *arg, int rank, int stage, uint64_t piece, int met)
{
    (void)arg;
    if (rank == 0 && met && (piece + (uint64_t)stage) % 2 == 0)
        usleep(2000);
    return 0;
}

static void
t_slow_reader(void **state)
{
    int n;
    (void)state;
    if (!on_cpu)
        skip();
    FOR_WORLDS(n)
    for (int k = 0; k < 2; k++) {
        const struct fdk_group_args a = kind(k, n);
        struct side s;
        side_open(&s, &a);
        fdk_cpu_group_hook(s.g, slow_hook, NULL);
        sum_case(&s, 900, FDK_F32, 0, 0);
        sum_case(&s, 901, FDK_F32, 1, 0);
        side_close(&s);
    }
}

/* ---- ranks that do not arrive ------------------------------------------------------------ */

static struct fdk_all_reduce_args
launch(struct side *s, int rank, int32_t n)
{
    void *x = put(s, rank, NULL, (size_t)n * 4);
    const struct fdk_all_reduce_args a = { .group = s->g, .y = x, .x = x, .T = 1, .C = n };
    OK(ops->all_reduce(&a, s->st[rank]));
    return a;
}

/* Checks that every rank except `not` fails within the limit, with a
 * text that contains `what`. */
static void
all_fail(struct side *s, int not, const char *what)
{
    uint64_t begin = now_us();
    for (int q = 0; q < s->n; q++)
        if (q != not ) {
            assert_int_equal(ops->stream_sync(s->st[q]), -EIO);
            if (strstr(ops->error_text(s->ctx, q), what) == NULL)
                fail_msg("rank %d: %s, not %s", q, ops->error_text(s->ctx, q), what);
        }
    /* Allows for frozen processes and busy machines: much more
     * than the limit, but bounded. */
    assert_true(now_us() - begin < LIMIT_US + 10000000u);
}

static void
t_never_comes(void **state)
{
    char what[64];
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int absent = 0; absent < n; absent += n - 1) {
        struct fdk_group_args a = kind(absent % KINDS, n);
        struct fdk_all_reduce_args again;
        struct side s;
        a.spin_limit_us = LIMIT_US;
        side_open(&s, &a);
        for (int q = 0; q < n; q++)
            (void)launch(&s, q, 777);
        side_sync(&s);
        for (int q = 0; q < n; q++)
            if (q != absent)
                (void)launch(&s, q, 777);
        snprintf(what, sizeof(what), "rank %d did not arrive within %d ms", absent,
            LIMIT_US / 1000);
        all_fail(&s, absent, what);
        /* The absent rank arrives after all: with all packets there it
         * may succeed, but only once. */
        again = launch(&s, absent, 777);
        (void)ops->all_reduce(&again, s.st[absent]);
        all_fail(&s, -1, what);
        side_close(&s);
    }
}

static int
dying_hook(void *arg, int rank, int stage, uint64_t piece, int met)
{
    const int *at = arg; /* rank, stage, piece */
    return met == 0 && rank == at[0] && stage == at[1] && piece == (uint64_t)at[2];
}

/* The others do not wait until the limit. The best of some tries
 * counts, as machines are busy. */
#define LEAVE_US 100000
#define TRIES    5

static uint64_t
since(uint64_t begin_us, uint64_t least)
{
    uint64_t us = now_us() - begin_us;
    return us < least ? us : least;
}

/* A device dies between two meetings of an operation. */
static void
t_dies(void **state)
{
    uint64_t least = UINT64_MAX;
    char what[64];
    int n;
    (void)state;
    if (!on_cpu)
        skip();
    FOR_WORLDS(n)
    for (int i = 0; i < 3; i++) {
        int at[] = { i % n, i % 2, 3 + i };
        struct fdk_group_args a = kind(1, n);
        struct side s;
        uint64_t begin;
        a.spin_limit_us = FREEZE_US / 4; /* within the time limit of a mutant */
        side_open(&s, &a);
        fdk_cpu_group_hook(s.g, dying_hook, at);
        begin = now_us();
        for (int q = 0; q < n; q++)
            (void)launch(&s, q, 5000);
        snprintf(what, sizeof(what), "rank %d failed", at[0]);
        all_fail(&s, at[0], what);
        least = since(begin, least);
        assert_int_equal(ops->stream_sync(s.st[at[0]]), -EIO);
        side_close(&s);
    }
    assert_true(least < LEAVE_US);
}

/* A rank is given up while the others wait for it, or before they do. */
static void
t_aborted(void **state)
{
    uint64_t least = UINT64_MAX;
    char what[64];
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int i = 0; i < 2 * TRIES; i++) {
        int out = i % n;
        struct fdk_group_args a = kind(i % KINDS, n);
        struct side s;
        uint64_t begin;
        int rc;
        a.spin_limit_us = FREEZE_US / 4; /* within the time limit of a mutant */
        side_open(&s, &a);
        if (i % 2 == 1)
            ops->group_abort(s.g, out);
        for (int q = 0; q < n; q++)
            if (q != out)
                (void)launch(&s, q, 777);
        usleep(i % 2 == 0 ? 2000 : 0);
        begin = now_us();
        ops->group_abort(s.g, out);
        ops->group_abort(s.g, (out + 1) % n); /* the first abort names the rank at
                                               * fault */
        snprintf(what, sizeof(what), "collective: rank %d failed", out);
        all_fail(&s, out, what);
        least = since(begin, least);
        (void)launch(&s, out, 777);
        all_fail(&s, out, what);
        /* Packets that the others had sent to it are there. */
        rc = ops->stream_sync(s.st[out]);
        assert_true(rc == -EIO || (rc == 0 && !on_cpu));
        side_close(&s);
    }
    assert_true(least < LEAVE_US);
}

/* A group's memory equals the size that it announced. */
static void
t_bytes(void **state)
{
    struct fdk_group_args bad = { .n_rank = 1 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int i = 0; i < 3 && on_cpu; i++) {
        struct fdk_group_args a = kind(i, n);
        char err[256] = "";
        struct side s;
        side_devices(&s, n, FDK_EXEC_DEFAULT);
        assert_int_equal(ops->group_bytes(s.ctx, &bad), 0);
        OK(ops->group_new(s.ctx, &a, &s.g, err, sizeof(err)));
        for (int q = 0; q < n; q++)
            assert_int_equal(fdk_cpu_memory_used(s.ctx, q), ops->group_bytes(s.ctx, &a));
        side_close(&s);
    }
}

static void
t_other_operation(void **state)
{
    struct side s;
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct fdk_group_args a = kind(k, n_device < 4 ? 2 : 4);
        a.spin_limit_us = LIMIT_US;
        side_open(&s, &a);
        for (int q = 0; q < s.n; q++)
            (void)launch(&s, q, q == 1 ? 5001 : 5000);
        all_fail(&s, -1, "launched different operations");
        side_close(&s);
    }
}

/* ---- arguments ----------------------------------------------------------------------------- */

static void
no_group(struct side *s, const struct fdk_group_args *a, int rc, const char *why)
{
    struct fdk_group *g = NULL;
    char err[256] = "";
    assert_int_equal(ops->group_new(s->ctx, a, &g, err, sizeof(err)), rc);
    assert_null(g);
    if (strstr(err, why) == NULL)
        fail_msg("%s, not %s", err, why);
}

static void
t_bad_groups(void **state)
{
    static const int32_t twice[] = { 1, 1 }, beyond[] = { 0, 2 };
    const struct fdk_group_args one = { .n_rank = 1 }, many = { .n_rank = 3 },
                                a = { .n_rank = 2, .device = twice },
                                b = { .n_rank = 2, .device = beyond },
                                small = { .n_rank = 2, .bytes = 32 },
                                huge = { .n_rank = 2, .bytes = UINT64_C(1) << 50 };
    const struct fdk_group_args good = { .n_rank = 2 };
    struct side s;
    (void)state;
    side_devices(&s, 2, FDK_EXEC_DEFAULT);
    no_group(&s, &one, -EINVAL, "2 to 8 devices");
    no_group(&s, &many, -EINVAL, "2 to 8 devices");
    no_group(&s, &a, -EINVAL, "listed twice");
    no_group(&s, &b, -EINVAL, "no such device");
    no_group(&s, &small, -EINVAL, "size of the buffers");
    no_group(&s, &huge, -EINVAL, "size of the buffers");
    if (on_cpu) {
        fdk_cpu_limit_memory(s.ctx, 1, 1000);
        no_group(&s, &good, -ENOMEM, "cannot set up a workspace");
        assert_int_equal(fdk_cpu_memory_used(s.ctx, 0), 0);
    }
    side_close(&s);
    if (!on_cpu)
        return;
    side_devices(&s, 2, FDK_EXEC_INLINE);
    no_group(&s, &good, -ENOTSUP, "cannot wait");
    side_close(&s);
}

static void
t_bad_arguments(void **state)
{
    static const int32_t order[] = { 1, 0 };
    const struct fdk_group_args a = { .n_rank = 2, .device = order };
    float *p;
    struct side s;
    (void)state;
    side_open(&s, &a);
    p = put(&s, 0, NULL, 1024);
    const struct fdk_all_reduce_args good = { .group = s.g, .y = p, .x = p, .T = 1, .C = 4 };
    const struct fdk_all_gather_args
        row = { .group = s.g, .y = p, .x = p + 64, .T = 1, .C = 4, .ldy = 8 };
#define BAD(op, from, rc, ...) \
    do { \
        struct fdk_##op##_args b_ = from; \
        __VA_ARGS__; \
        assert_int_equal(ops->op(&b_, s.st[0]), rc); \
    } while (0)
    BAD(all_reduce, good, -EINVAL, b_.group = NULL);
    BAD(all_reduce, good, -EINVAL, b_.y = NULL);
    BAD(all_reduce, good, -EINVAL, b_.x = NULL);
    BAD(all_reduce, good, -EINVAL, b_.T = 0);
    BAD(all_reduce, good, -EINVAL, b_.C = -1);
    BAD(all_reduce, good, -EINVAL, b_.residual = p);
    BAD(all_reduce, good, -EINVAL, b_.w = p);
    BAD(all_reduce, good, -EINVAL, b_.eps = NAN);
    BAD(all_reduce, good, -EINVAL, b_.act = FDK_DTYPE__N);
    BAD(all_reduce, good, -ENOTSUP, b_.act = FDK_I8);
    BAD(all_reduce, good, -EINVAL, b_.x = (char *)p + 2);
    BAD(all_gather, row, -EINVAL, b_.group = NULL);
    BAD(all_gather, row, -EINVAL, b_.ldy = 7);
    BAD(all_gather, row, -EINVAL, b_.y = NULL);
    BAD(all_gather, row, -EINVAL, b_.T = -1);
    BAD(all_gather, row, -ENOTSUP, b_.dtype = FDK_I4);
    BAD(all_gather, row, -EINVAL, b_.y = (char *)p + 1);
    assert_int_equal(ops->all_reduce(&good, NULL), -EINVAL);
    side_sync(&s); /* nothing was launched */
    side_close(&s);
}

/* Ranks are in the order of the list, and a device outside the group has no rank. */
static void
t_order(void **state)
{
    static const int32_t order[] = { 2, 0 };
    const struct fdk_group_args a = { .n_rank = 2, .device = order };
    char err[256];
    int32_t y[3][2], x;
    void *d_y[3];
    struct side s;
    (void)state;
    if (n_device < 3)
        skip();
    side_devices(&s, 3, FDK_EXEC_DEFAULT);
    OK(ops->group_new(s.ctx, &a, &s.g, err, sizeof(err)));
    for (int i = 2; i >= 0; i--) {
        x = 100 + i;
        const struct fdk_all_gather_args g = { .group = s.g,
            .y = put(&s, i, NULL, 8),
            .x = put(&s, i, &x, 4),
            .T = 1,
            .C = 1,
            .ldy = 2,
            .dtype = FDK_I32 };
        d_y[i] = g.y;
        assert_int_equal(ops->all_gather(&g, s.st[i]), i == 1 ? -EINVAL : 0);
    }
    side_sync(&s);
    for (int i = 0; i < 3; i++) /* copies that may wait for the stream */
        get(&s, i, y[i], d_y[i], 8);
    assert_int_equal(y[0][0], 102);
    assert_int_equal(y[0][1], 100);
    assert_memory_equal(y[0], y[2], 8);
    side_close(&s);
}

/* The null backend checks arguments and leaves operands unchanged. */
static void
t_null(void **state)
{
    const struct fdk_group_args a = { .n_rank = 2 };
    const struct fdk_ops *before = ops;
    float x[2] = { 1, 2 };
    struct side s;
    (void)state;
    ops = &fdk_ops_null;
    side_open(&s, &a);
    for (int q = 0; q < 2; q++) {
        struct fdk_all_reduce_args b = { .group = s.g, .y = &x[q], .x = &x[q], .T = 1, .C = 1 };
        OK(ops->all_reduce(&b, s.st[q]));
        b.C = 0;
        assert_int_equal(ops->all_reduce(&b, s.st[q]), -EINVAL);
    }
    side_sync(&s);
    assert_true(x[0] == 1 && x[1] == 2);
    side_close(&s);
    ops = before;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_graphs),
        cmocka_unit_test(t_slow_reader),
        cmocka_unit_test(t_never_comes),
        cmocka_unit_test(t_dies),
        cmocka_unit_test(t_aborted),
        cmocka_unit_test(t_bytes),
        cmocka_unit_test(t_other_operation),
        cmocka_unit_test(t_bad_groups),
        cmocka_unit_test(t_bad_arguments),
        cmocka_unit_test(t_order),
        cmocka_unit_test(t_null),
    };
    return both_backends(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
