/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Acceptance tests of the collectives: b1 to b11 (b12, the first request after a start,
 * is in tests/sim/s_groups). Each prints a summary. FDD_LONG: every size and count;
 * otherwise samples.
 *
 * Usage: k_collective_b [cpu|cuda [RANKS]] [NAME]; cuda: at most RANKS GPUs
 */
#include "config.h"

#include "tests/bench/nccl.h"
#include "tests/kernel/k_ranks.h"

#include <malloc.h>

static int most_ranks = FDK_MAX_RANKS;

static int
is_long(void)
{
    return getenv("FDD_LONG") != NULL && !K_SLOW;
}

/* With FDD_LONG other processes may use the processors for minutes. */
static struct fdk_group_args
slow_kind(int i, int n)
{
    struct fdk_group_args a = kind(i, n);

    a.spin_limit_us = is_long() ? 10u * FREEZE_US : 0;
    return a;
}

static const enum fdk_dtype types[] = { FDK_F32, FDK_F16, FDK_BF16 };

/* Sizes in bytes around the borders between methods of summing. */
struct size {
    size_t bytes;
    int is_long;
};
static const struct size sizes[] = { { 64u << 10, 0 }, { (256u << 10) - 4, 0 },
    { 256u << 10, 0 }, { (256u << 10) + 4, 0 }, { (512u << 10) - 4, 0 },
    { 512u << 10, 0 }, { (512u << 10) + 4, 0 }, { (8u << 20) - 4, 1 }, { 8u << 20, 1 },
    { (8u << 20) + 4, 1 }, { 64u << 20, 1 }, { 256u << 20, 1 } };
#define N_SIZE (sizeof(sizes) / sizeof(sizes[0]))

/* All ranks of virtual devices share the machine's memory. */
static int
is_taken(const struct size *z, int n)
{
    if (z->is_long && !is_long())
        return 0;
    return !on_cpu || (size_t)n * z->bytes <= (size_t)1 << 30;
}

static void
said(const char *what)
{
    printf("             %s, %s, ranks", what, on_cpu ? "virtual devices" : "GPUs");
    for (size_t i = 0; i < 5; i++)
        if (worlds[i] <= n_device)
            printf(" %d", worlds[i]);
    printf("\n");
}

/* ---- b1: sums ------------------------------------------------------------------------------ */

enum { COUNTS = 4096, BATCH = 64, ROOM = COUNTS + 16 };

/* Compares the sum in fp32, in rank order, with that in double. */
static void
near_double(char *const *x, const char *sum, int n_rank, size_t n, enum fdk_dtype t)
{
    size_t eb = fdk_dtype_bytes(t);
    double rel = t == FDK_F32 ? 0x1p-23 : t == FDK_F16 ? 0x1p-10 : 0x1p-7;

    for (size_t i = 0; i < n; i++) {
        double want = 0, most = 0;

        for (int q = 0; q < n_rank; q++) {
            want += f32_of(x[q] + i * eb, t);
            most += fabs((double)f32_of(x[q] + i * eb, t));
        }
        if (most < 60000)
            k_assert_near(f32_of(sum + i * eb, t), want,
                most * n_rank * 0x1p-23 + fabs(want) * rel + 1e-7, "fp64", i);
    }
}

/* Sums of 1 to 4,096 elements that begin at the same place, BATCH in flight. */
static void
counts_case(struct side *s, enum fdk_dtype t, size_t step)
{
    size_t eb = fdk_dtype_bytes(t), region = ROOM * eb;
    char *x[FDK_MAX_RANKS], *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS], *sum;
    char *clean = malloc(region + 1), *got = malloc(region * BATCH);

    assert_true(clean != NULL && got != NULL);
    memset(clean, POISON, region);
    for (int q = 0; q < s->n; q++) {
        x[q] = numbers(s, COUNTS, t);
        d_x[q] = put(s, q, x[q], COUNTS * eb);
        d_y[q] = put(s, q, NULL, region * BATCH);
    }
    sum = sum_of(x, s->n, COUNTS, t);
    near_double(x, sum, s->n, COUNTS, t);
    for (size_t m = 1; m <= COUNTS; m += step * BATCH) {
        for (size_t i = 0; i < BATCH && m + i * step <= COUNTS; i++)
            for (int q = 0; q < s->n; q++) {
                const struct fdk_all_reduce_args a = { .group = s->g,
                    .y = d_y[q] + i * region,
                    .x = d_x[q],
                    .T = 1,
                    .C = (int32_t)(m + i * step),
                    .act = t };
                OK(ops->all_reduce(&a, s->st[q]));
            }
        side_sync(s);
        for (int q = 0; q < s->n; q++) {
            get(s, q, got, d_y[q], region * BATCH);
            for (size_t i = 0; i < BATCH && m + i * step <= COUNTS; i++) {
                size_t n = (m + i * step) * eb;

                same(got + i * region, sum, n, "count", q);
                same(got + i * region + n, clean, region - n, "behind it", q);
            }
            OK(ops->fill(s->st[q], d_y[q], POISON, region * BATCH));
        }
        side_sync(s);
    }
    for (int q = 0; q < s->n; q++)
        free(x[q]);
    free(sum);
    free(clean);
    free(got);
    drop(s, 1);
}

static void
b1_sums(void **state)
{
    size_t step = is_long() ? 1 : K_SLOW ? 173 : 13;
    char line[128];
    int n;

    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = slow_kind(2, n);
        struct side s;

        side_open(&s, &a);
        for (size_t i = 0; i < 3; i++) {
            counts_case(&s, types[i], step);
            for (size_t k = 0; k < N_SIZE; k++)
                if (is_taken(&sizes[k], n) && (is_long() || (k + i) % 3 == 0))
                    sum_case(&s, sizes[k].bytes / fdk_dtype_bytes(types[i]), types[i],
                        k % 2 == 0, 0);
        }
        side_close(&s);
    }
    (void)snprintf(line, sizeof(line),
        "b1: every %zuth of 1..4096 elements, 64 KiB to %s; fp32, f16, bf16; fp64 and bits",
        step, is_long() ? "256 MiB" : "512 KiB + 4");
    said(line);
}

/* The same sums by NCCL, which adds in another order. */
static void
b1_nccl(void **state)
{
    struct nccl c;
    char why[256];

    (void)state;
    if (on_cpu)
        skip();
    if (nccl_open(&c, n_device, why, sizeof(why)) != 0) {
        printf("             b1: no NCCL: %s\n", why);
        skip();
    }
    const struct fdk_group_args a = slow_kind(2, n_device);
    struct side s;
    side_open(&s, &a);
    for (size_t k = 0; k < N_SIZE; k++)
        for (size_t i = 0; i < 3 && is_taken(&sizes[k], n_device); i++) {
            enum fdk_dtype t = types[i];
            size_t eb = fdk_dtype_bytes(t), n = sizes[k].bytes / eb;
            void *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS];
            char *x[FDK_MAX_RANKS], *got = malloc(n * eb);

            assert_non_null(got);
            for (int q = 0; q < s.n; q++) {
                x[q] = numbers(&s, n, t);
                d_x[q] = put(&s, q, x[q], n * eb);
                d_y[q] = put(&s, q, NULL, n * eb);
            }
            OK(nccl_reduce(&c, d_x, d_y, n, t, s.st));
            side_sync(&s);
            get(&s, 0, got, d_y[0], n * eb);
            /* NCCL may add in 16 bits: near the double within that rounding */
            for (size_t j = 0; j < n; j++) {
                double want = 0, most = 0;
                for (int q = 0; q < s.n; q++) {
                    want += f32_of(x[q] + j * eb, t);
                    most += fabs((double)f32_of(x[q] + j * eb, t));
                }
                k_assert_near(f32_of(got + j * eb, t), want,
                    most * s.n *
                            (t == FDK_F32          ? 0x1p-23
                                    : t == FDK_F16 ? 0x1p-10
                                                   : 0x1p-7) +
                        1e-6,
                    "nccl", j);
            }
            for (int q = 0; q < s.n; q++)
                free(x[q]);
            free(got);
            drop(&s, 1);
            sum_case(&s, n, t, 0, 0);
        }
    side_close(&s);
    nccl_close(&c);
    said("b1: the same sizes by NCCL, within rounding");
}

/* ---- b2, b8: graphs ------------------------------------------------------------------------- */

/* Records an all-reduce of n elements on each rank. */
static void
record(struct side *s, char *const *d_x, char *const *d_y, size_t n, enum fdk_dtype t,
    struct fdk_graph **ret)
{
    for (int q = 0; q < s->n; q++) {
        const struct fdk_all_reduce_args a = { .group = s->g,
            .y = d_y[q],
            .x = d_x[q],
            .T = 1,
            .C = (int32_t)n,
            .act = t };
        OK(ops->graph_begin(s->st[q]));
        OK(ops->all_reduce(&a, s->st[q]));
        OK(ops->graph_end(s->st[q], &ret[q]));
    }
}

enum { INPUTS = 4 };

/* One graph with INPUTS inputs in turn; replays must equal the eager results. */
static void
replays_case(struct side *s, size_t n, enum fdk_dtype t, int times)
{
    size_t bytes = n * fdk_dtype_bytes(t);
    char *x[INPUTS][FDK_MAX_RANKS], *want[INPUTS], *d_in[INPUTS][FDK_MAX_RANKS];
    char *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS];
    struct fdk_graph *g[FDK_MAX_RANKS];

    for (int q = 0; q < s->n; q++) {
        d_x[q] = put(s, q, NULL, bytes);
        d_y[q] = put(s, q, NULL, bytes);
    }
    record(s, d_x, d_y, n, t, g);
    for (int i = 0; i < INPUTS; i++) {
        for (int q = 0; q < s->n; q++) {
            x[i][q] = numbers(s, n, t);
            d_in[i][q] = put(s, q, x[i][q], bytes);
        }
        want[i] = sum_of(x[i], s->n, n, t);
    }
    for (int r = 0; r < times + INPUTS; r++) { /* the last are launched, not replayed */
        for (int q = 0; q < s->n; q++) {
            const struct fdk_all_reduce_args a = { .group = s->g,
                .y = d_y[q],
                .x = d_x[q],
                .T = 1,
                .C = (int32_t)n,
                .act = t };
            OK(ops->copy(s->st[q], d_x[q], d_in[r % INPUTS][q], bytes));
            OK(r < times ? ops->graph_launch(g[q], s->st[q])
                         : ops->all_reduce(&a, s->st[q]));
        }
        if (r % 16 != 0 && r < times - 1)
            continue;
        side_sync(s);
        for (int q = 0; q < s->n; q++)
            has(s, q, d_y[q], want[r % INPUTS], bytes, "replay");
    }
    for (int q = 0; q < s->n; q++)
        ops->graph_free(g[q]);
    for (int i = 0; i < INPUTS; i++) {
        for (int q = 0; q < s->n; q++)
            free(x[i][q]);
        free(want[i]);
    }
    drop(s, 1);
}

static void
b2_graphs(void **state)
{
    int n, small = is_long() ? 1000 : K_SLOW ? 20 : 200, large = is_long() ? 100 : 4;
    char line[128];

    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = slow_kind(2, n);
        struct side s;

        side_open(&s, &a);
        replays_case(&s, 1, FDK_F32, small);
        replays_case(&s, 4096, FDK_BF16, small);
        for (size_t k = 0; k < N_SIZE; k++)
            if (is_taken(&sizes[k], n * INPUTS) && (is_long() || k % 3 == 0))
                replays_case(&s, sizes[k].bytes / fdk_dtype_bytes(types[k % 3]),
                    types[k % 3], sizes[k].bytes < 1u << 20 ? large * 10 : large);
        side_close(&s);
    }
    (void)snprintf(line, sizeof(line),
        "b2: %d replays of 1 and 4096 elements, %d to %d of 64 KiB and more, new inputs",
        small, large, large * 10);
    said(line);
}

/* Bytes of this process's heap and mappings. */
static size_t
heap(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void
b8_records_again(void **state)
{
    int times = K_SLOW ? 100 : 1000;
    size_t before[2] = { 0, 0 }, after[2];
    int n = n_device < 3 ? 2 : 3;
    const struct fdk_group_args a = slow_kind(2, n);
    char *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS], line[128];
    struct fdk_device_info info;
    struct side s;

    (void)state;
    side_open(&s, &a);
    for (int q = 0; q < n; q++) {
        d_x[q] = put(&s, q, NULL, 4096 * 4);
        d_y[q] = put(&s, q, NULL, 4096 * 4);
        OK(ops->fill(s.st[q], d_x[q], 0, 4096 * 4));
    }
    for (int i = 0; i < times; i++) {
        struct fdk_graph *g[FDK_MAX_RANKS];

        record(&s, d_x, d_y, (size_t)(1 + i % 4096), FDK_F32, g);
        for (int q = 0; q < n; q++)
            OK(ops->graph_launch(g[q], s.st[q]));
        side_sync(&s);
        for (int q = 0; q < n; q++)
            ops->graph_free(g[q]);
        OK(ops->device_info(s.ctx, 0, &info));
        after[0] = on_cpu ? fdk_cpu_memory_used(s.ctx, 0) : info.mem_free;
        after[1] = heap();
        if (i == times / 10) /* one-time allocations have been made */
            memcpy(before, after, sizeof(before));
    }
    assert_int_equal(before[0], after[0]);
    if (!K_SLOW)
        assert_true(after[1] < before[1] + 65536);
    sum_case(&s, 1000, FDK_F32, 0, 0);
    side_close(&s);
    (void)snprintf(line, sizeof(line), "b8: recorded %d times, %zu bytes of the heap more",
        times, after[1] > before[1] ? after[1] - before[1] : 0);
    said(line);
}

/* ---- b3, b4, b5: rows ------------------------------------------------------------------------- */

/* T rows of C: with a residual and weights all ranks have the same bits,
 * near the result in double. */
static void
prefill_case(struct side *s, int32_t T, int32_t C)
{
    size_t n = (size_t)T * (size_t)C;
    char *x[FDK_MAX_RANKS], *sum, *first;
    float *r = (float *)(void *)numbers(s, n, FDK_F32);
    float *w = (float *)(void *)numbers(s, (size_t)C, FDK_F32);
    void *d_y[FDK_MAX_RANKS], *d_r[FDK_MAX_RANKS];

    for (int q = 0; q < s->n; q++) {
        x[q] = numbers(s, n, FDK_BF16);
        d_y[q] = put(s, q, NULL, n * 2);
        d_r[q] = put(s, q, r, n * 4);
        const struct fdk_all_reduce_args a = { .group = s->g,
            .y = d_y[q],
            .x = put(s, q, x[q], n * 2),
            .residual = d_r[q],
            .w = put(s, q, w, (size_t)C * 4),
            .T = T,
            .C = C,
            .eps = 1e-5f,
            .act = FDK_BF16 };
        OK(ops->all_reduce(&a, s->st[q]));
    }
    side_sync(s);
    sum = sum_of(x, s->n, n, FDK_BF16);
    for (size_t i = 0; i < n; i++)
        r[i] += f32_of(sum + i * 2, FDK_BF16);
    first = malloc(n * 2);
    assert_non_null(first);
    get(s, 0, first, d_y[0], n * 2);
    for (int q = 0; q < s->n; q++) {
        has(s, q, d_r[q], (char *)r, n * 4, "residual");
        has(s, q, d_y[q], first, n * 2, "normed");
        free(x[q]);
    }
    free(sum);
    free(first);
    free(r);
    free(w);
    drop(s, 1);
}

static void
b3_prefill(void **state)
{
    static const int32_t T[] = { 1, 499, 500, 511, 512, 513, 2000, 4000, 8000, 16384 };
    size_t n_T = is_long() ? 10 : K_SLOW ? 1 : 6;
    int32_t C = is_long() ? 8192 : 1024;
    char line[96];
    int n;

    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = slow_kind(2, n);
        struct side s;

        side_open(&s, &a);
        for (size_t i = 0; i < n_T; i++)
            if (!on_cpu || (size_t)n * (size_t)T[i] * (size_t)C <= (size_t)1 << 28) {
                prefill_case(&s, T[i], C);
                sum_case(&s, (size_t)T[i] * (size_t)C, FDK_BF16, 1, 0);
            }
        side_close(&s);
    }
    /* only one form with the greatest width */
    if (!is_long()) {
        const struct fdk_group_args a = slow_kind(2, 2);
        struct side s;

        side_open(&s, &a);
        prefill_case(&s, K_SLOW ? 3 : 65, 8192);
        side_close(&s);
    }
    (void)snprintf(line, sizeof(line), "b3: prefill of 1 to %d tokens, hidden %d, bf16",
        T[n_T - 1], C);
    said(line);
}

/* A row has the same bits alone and among others, at the first and the last place. */
static void
b4_row_alone(void **state)
{
    static const int32_t T[] = { 1, 2, 3, 7, 16, 33, 129 };
    const int32_t C = 520;
    int n;

    (void)state;
    FOR_WORLDS(n)
    for (int k = 0; k < 3; k++)
        for (int fused = 0; fused < 2; fused++) {
            const struct fdk_group_args a = slow_kind(k, n);
            char want[520 * 2];
            struct side s;

            side_open(&s, &a);
            for (size_t i = 0; i < (K_SLOW ? 4 : 7); i++) {
                size_t rows = (size_t)T[i] * (size_t)C, at = (rows - (size_t)C) * (i % 2);
                char *x = NULL, got[520 * 2];
                void *d_y[FDK_MAX_RANKS];
                float *r = (float *)(void *)numbers(&s, rows, FDK_F32);
                float *w = malloc((size_t)C * 4);

                assert_non_null(w);
                for (int32_t c = 0; c < C; c++)
                    w[c] = 1 + (float)c / 64;
                for (size_t c = 0; c < (size_t)C; c++)
                    r[at + c] = (float)c / 8 - 30;
                for (int q = 0; q < n; q++) {
                    x = numbers(&s, rows, FDK_BF16);
                    for (size_t c = 0; c < (size_t)C; c++)
                        rounded(x + (at + c) * 2, (float)(q + 1) * 0.37f + (float)c / 100,
                            FDK_BF16);
                    d_y[q] = put(&s, q, NULL, rows * 2);
                    const struct fdk_all_reduce_args b = { .group = s.g,
                        .y = d_y[q],
                        .x = put(&s, q, x, rows * 2),
                        .residual = fused ? put(&s, q, r, rows * 4) : NULL,
                        .w = fused ? put(&s, q, w, (size_t)C * 4) : NULL,
                        .T = T[i],
                        .C = C,
                        .eps = 1e-5f,
                        .act = FDK_BF16 };
                    OK(ops->all_reduce(&b, s.st[q]));
                    free(x);
                }
                side_sync(&s);
                for (int q = 0; q < n; q++) {
                    get(&s, q, got, (char *)d_y[q] + at * 2, sizeof(got));
                    if (i == 0 && q == 0)
                        memcpy(want, got, sizeof(got));
                    same(got, want, sizeof(got), "row", q);
                }
                free(r);
                free(w);
                drop(&s, 1);
            }
            side_close(&s);
        }
    said("b4: a row of 520 among 1 to 129 rows, first and last, whole, shares and packets");
}

static void
b5_in_place(void **state)
{
    int n;

    (void)state;
    FOR_WORLDS(n)
    for (int k = 0; k < 3; k++) {
        const struct fdk_group_args a = slow_kind(k, n);
        struct side s;

        side_open(&s, &a);
        for (size_t i = 0; i < 3; i++)
            for (size_t m = 1; m < 9000; m = m * 5 + 2)
                sum_case(&s, m, types[i], 1, m % 3);
        side_close(&s);
    }
    said("b5: y = x, 1 to 8,000 elements");
}

/* ---- b6, b7, b9, b11: order ------------------------------------------------------------------- */

enum { MIX = 3, MIX_MOST = 5000 };

struct mix {
    size_t n[MIX];
    char *x[MIX][FDK_MAX_RANKS], *want[MIX];
    char *d_x[MIX][FDK_MAX_RANKS], *d_y[MIX][FDK_MAX_RANKS];
    void *d_nccl[FDK_MAX_RANKS];
    struct fdk_graph *g[2][FDK_MAX_RANKS];
    struct nccl nccl;
};

static void
mix_new(struct side *s, struct mix *m)
{
    char why[256];

    for (int i = 0; i < MIX; i++) {
        for (int q = 0; q < s->n; q++) {
            m->x[i][q] = numbers(s, m->n[i], FDK_F32);
            m->d_x[i][q] = put(s, q, m->x[i][q], m->n[i] * 4);
            m->d_y[i][q] = put(s, q, NULL, m->n[i] * 4);
        }
        m->want[i] = sum_of(m->x[i], s->n, m->n[i], FDK_F32);
        if (i < 2)
            record(s, m->d_x[i], m->d_y[i], m->n[i], FDK_F32, m->g[i]);
    }
    for (int q = 0; q < s->n && !on_cpu; q++)
        m->d_nccl[q] = put(s, q, NULL, m->n[1] * 4);
    m->nccl = (struct nccl){ 0 };
    if (!on_cpu && nccl_open(&m->nccl, s->n, why, sizeof(why)) != 0)
        printf("             b6: no NCCL: %s\n", why);
}

/* Runs operation `what` on all ranks: 0 and 1 are graphs, 2 is launched, 3 uses NCCL. */
static void
mix_launch(struct side *s, struct mix *m, unsigned what)
{
    if (what == 3) {
        void *x[FDK_MAX_RANKS];

        for (int q = 0; q < s->n; q++)
            x[q] = m->d_x[1][q];
        OK(nccl_reduce(&m->nccl, x, m->d_nccl, m->n[1], FDK_F32, s->st));
        return;
    }
    for (int q = 0; q < s->n; q++) {
        const struct fdk_all_reduce_args a = { .group = s->g,
            .y = m->d_y[2][q],
            .x = m->d_x[2][q],
            .T = 1,
            .C = (int32_t)m->n[2] };
        OK(what < 2 ? ops->graph_launch(m->g[what][q], s->st[q])
                    : ops->all_reduce(&a, s->st[q]));
    }
}

/* delay_ms: delay of one rank before an eighth of the operations. */
static void
mixed(struct side *s, int times, unsigned delay_ms, int wipe)
{
    struct mix m = { .n = { 96, MIX_MOST, 601 } };
    unsigned kinds;

    mix_new(s, &m);
    kinds = m.nccl.all_reduce != NULL ? 4 : 3;
    for (int i = 0; i < times; i++) {
        unsigned what = (unsigned)(k_rand(&s->seed) % kinds);
        int q = (int)(k_rand(&s->seed) % (unsigned)s->n);

        if (delay_ms > 0 && k_rand(&s->seed) % 8 == 0)
            OK(ops->stream_delay(s->st[q], k_rand(&s->seed) % (delay_ms * 1000000ull)));
        for (int r = 0; r < s->n && wipe && what < 3; r++)
            OK(ops->fill(s->st[r], m.d_y[what][r], POISON, m.n[what] * 4));
        mix_launch(s, &m, what);
        if (i % 64 != 63 && i + 1 < times)
            continue;
        side_sync(s);
        for (int r = 0; r < s->n && what < 3; r++)
            has(s, r, m.d_y[what][r], m.want[what], m.n[what] * 4, "mixed");
    }
    for (int i = 0; i < MIX; i++) {
        for (int q = 0; q < s->n; q++)
            free(m.x[i][q]);
        free(m.want[i]);
    }
    for (int q = 0; q < 2 * s->n; q++)
        ops->graph_free(m.g[q % 2][q / 2]);
    nccl_close(&m.nccl);
    drop(s, 1);
}

static void
b6_mixed(void **state)
{
    int n, times = is_long() ? 100000 : K_SLOW ? 300 : 4000;
    char line[96];

    (void)state;
    FOR_WORLDS(n)
    {
        struct fdk_group_args a = slow_kind(2, n);
        struct side s;

        if (n > 3 && !is_long())
            times = times > 1000 ? 1000 : times;
        a.one_shot_bytes = 2000;
        side_open(&s, &a);
        mixed(&s, times, 0, 1);
        side_close(&s);
    }
    (void)snprintf(line, sizeof(line),
        "b6: two graphs, launches%s in random order, %d each", on_cpu ? "" : ", NCCL",
        times);
    said(line);
}

static void
b7_wrap(void **state)
{
    int n;

    (void)state;
    if (!on_cpu) {
        printf("             b7: the count of a GPU's pieces cannot be set; virtual devices "
               "share its code (kernels/collective_channel.h)\n");
        skip();
    }
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = slow_kind(1, n);
        struct side s;

        side_open(&s, &a);
        for (int i = 0; i < 2; i++) {
            fdk_cpu_group_seq(s.g, (UINT64_C(1) << (i == 0 ? 32 : 48)) - 4);
            for (size_t m = 1; m < 17; m++)
                sum_case(&s, m, FDK_F32, 0, 0);
        }
        side_close(&s);
    }
    said("b7: 16 operations from the count 2^32 - 4, and from 2^48 - 4");
}

static void
b9_skew(void **state)
{
    int n, times = is_long() ? 2000 : 60;
    char line[96];

    (void)state;
    FOR_WORLDS(n)
    {
        struct fdk_group_args a = slow_kind(2, n);
        struct side s;

        if (n > 3 && !is_long())
            times = 20;
        a.one_shot_bytes = 2000;
        side_open(&s, &a);
        mixed(&s, times, 50, 1);
        side_close(&s);
    }
    (void)snprintf(line, sizeof(line),
        "b9: %d operations, one rank 0 to 50 ms late; one that never comes: k_collective_late",
        times);
    said(line);
}

/* A device without access to others gets no group, with an error that says why. */
static void
b10_no_peer(void **state)
{
    int with = -1;

    (void)state;
    for (int i = 1; i < n_device && !on_cpu && with < 0; i++)
        if (ops->device_peer != NULL && !ops->device_peer(0, i))
            with = i;
    if (with < 0) {
        printf("             b10: all devices reach each other here; u_devices tests those "
               "that do not\n");
        skip();
    }
    const int32_t two[] = { 0, with };
    const struct fdk_group_args a = { .n_rank = 2, .device = two };
    struct fdk_group *g = NULL;
    char err[256] = "";
    struct side s;
    side_devices(&s, with + 1, FDK_EXEC_DEFAULT);
    assert_int_equal(ops->group_new(s.ctx, &a, &g, err, sizeof(err)), -ENOTSUP);
    assert_true(err[0] != '\0');
    side_close(&s);
    said("b10: two devices without peer access, but for workspaces of the host, are refused");
}

/* If a rank launches another size, type or operation, all fail, and none gets a sum. */
static void
b11_disagree(void **state)
{
    int n;

    (void)state;
    FOR_WORLDS(n)
    for (int what = 0; what < 3; what++) {
        struct fdk_group_args a = slow_kind(what, n);
        struct side s;

        a.spin_limit_us = LIMIT_US;
        side_open(&s, &a);
        for (int q = 0; q < n; q++) {
            char *x = put(&s, q, NULL, 8192), *y = put(&s, q, NULL, 8192u * (unsigned)n);
            int odd = q == n - 1;
            const struct fdk_all_reduce_args b = { .group = s.g,
                .y = x,
                .x = x,
                .T = 1,
                .C = odd && what == 0 ? 999 : 1000,
                .act = odd && what == 1 ? FDK_BF16 : FDK_F32 };
            const struct fdk_all_gather_args
                c = { .group = s.g, .y = y, .x = x, .T = 1, .C = 1000, .ldy = 1000 * n };
            OK(odd && what == 2 ? ops->all_gather(&c, s.st[q])
                                : ops->all_reduce(&b, s.st[q]));
        }
        for (int q = 0; q < n; q++) {
            assert_int_equal(ops->stream_sync(s.st[q]), -EIO);
            if (strstr(ops->error_text(s.ctx, q), "launched different operations") == NULL)
                fail_msg("rank %d: %s", q, ops->error_text(s.ctx, q));
        }
        side_close(&s);
    }
    said("b11: another size, type, operation on the last rank");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b1_sums),
        cmocka_unit_test(b1_nccl),
        cmocka_unit_test(b2_graphs),
        cmocka_unit_test(b3_prefill),
        cmocka_unit_test(b4_row_alone),
        cmocka_unit_test(b5_in_place),
        cmocka_unit_test(b6_mixed),
        cmocka_unit_test(b7_wrap),
        cmocka_unit_test(b8_records_again),
        cmocka_unit_test(b9_skew),
        cmocka_unit_test(b10_no_peer),
        cmocka_unit_test(b11_disagree),
    };
    const char *name = "";
    int i = 1;

    if (argc > 1 && (strcmp(argv[1], "cpu") == 0 || strcmp(argv[1], "cuda") == 0))
        name = argv[i++];
    if (name[0] != '\0' && argc > i && argv[i][0] >= '0' && argv[i][0] <= '9')
        most_ranks = atoi(argv[i++]);
    if (most_ranks < 2 || most_ranks > FDK_MAX_RANKS || argc > i + 1) {
        printf("k_collective_b: [cpu|cuda [2..%d]] [NAME]\n", FDK_MAX_RANKS);
        return 64;
    }
    return on_backends(tests, sizeof(tests) / sizeof(tests[0]), name, most_ranks,
        argc > i ? argv[i] : NULL);
}
