/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products with quantized weights, in a recorded graph: launches with different
 * weights and scales in turn, so that none is in a cache. Small batches of x, separately
 * and as the four products of a layer of an 8B shape, with the device's peak read rate of
 * the same run; many rows in TFLOP/s.
 * Usage: b_gpu_quant [-d] (-d: opened deterministic)
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/gpu_bench.h"

#define POOL   ((size_t)2 << 30)
#define SCALES ((size_t)256 << 20) /* bytes */
#define ROWS   8192

static const int32_t layer[4][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
    { 4096, 14336 } };

static unsigned char *pool, *scales;
static void *x, *y, *scratch;
static size_t scratch_bytes;
static int32_t *live;

/* Bytes that one product reads. */
static size_t
w_bytes(enum fdk_dtype t, const int32_t *shape)
{
    return (size_t)shape[0] * fdk_row_bytes(t, (size_t)shape[1]);
}

static size_t
scale_bytes(const int32_t *shape, int32_t group)
{
    return (size_t)shape[0] * (size_t)(group > 0 ? shape[1] / group : 1) * 4;
}

/* Seconds of the n products; the best of several replays of `turns` repetitions. */
static double
timed(enum fdk_dtype t, int32_t group, int32_t T, const int32_t (*shape)[2], int n,
    int turns)
{
    size_t at = 0, scale_at = 0;

    gb_upload(live, &T, 4);
    OK(ops->graph_begin(gb.st));
    for (int i = 0; i < n * turns; i++) {
        const int32_t *s = shape[i % n];
        struct fdk_gemm_args a = { .y = y,
            .x = x,
            .n = live,
            .T = T,
            .N = s[0],
            .K = s[1],
            .ldy = s[0],
            .w_dtype = t,
            .w_group = group > 0 ? group : s[1],
            .act = FDK_BF16,
            .y_dtype = FDK_BF16,
            .scratch = scratch,
            .scratch_bytes = scratch_bytes };

        at = at + w_bytes(t, s) > POOL ? 0 : at;
        scale_at = scale_at + scale_bytes(s, group) > SCALES ? 0 : scale_at;
        a.w = pool + at;
        a.w_scale = (const float *)(const void *)(scales + scale_at);
        at += w_bytes(t, s);
        scale_at += scale_bytes(s, group);
        OK(ops->gemm(&a, gb.st));
    }
    return gb_replay(turns);
}

static void
few_rows(enum fdk_dtype t, int32_t group)
{
    static const int32_t rows[] = { 1, 2, 4, 8, 16, 32, 64, 128 };
    const size_t n = sizeof(rows) / sizeof(rows[0]);

    (void)printf("\n%s weights, a scale per %s: us (%% of peak read)\n%-16s",
        fdk_dtype_name(t), group > 0 ? "128" : "row", "N x K");
    for (size_t k = 0; k < n; k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (int i = 0; i < 5; i++) {
        size_t bytes = 0;

        for (int k = i < 4 ? i : 0; k <= (i < 4 ? i : 3); k++)
            bytes += w_bytes(t, layer[k]) + scale_bytes(layer[k], group);
        if (i < 4)
            (void)printf("\n%6d x %-7d", layer[i][0], layer[i][1]);
        else
            (void)printf("\n%-16s", "the four");
        for (size_t k = 0; k < n; k++) {
            double s =
                timed(t, group, rows[k], i < 4 ? &layer[i] : layer, i < 4 ? 1 : 4, 24);

            (void)printf("  %7.2f (%3.0f%%)", s * 1e6,
                100 * (double)bytes / s / gb.read_rate);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

static void
many_rows(enum fdk_dtype t)
{
    static const int32_t rows[] = { 256, 512, 2048, ROWS };

    (void)printf("\n%s weights, a scale per 128: us (TFLOP/s)\n%-16s", fdk_dtype_name(t),
        "N x K");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        (void)printf("  %9d rows  ", rows[k]);
    for (int i = 0; i < 4; i++) {
        (void)printf("\n%6d x %-7d", layer[i][0], layer[i][1]);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            double s = timed(t, 128, rows[k], &layer[i], 1, 3);

            (void)printf("  %9.1f (%3.0f)", s * 1e6,
                2e-12 * rows[k] * layer[i][0] * layer[i][1] / s);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

int
main(int argc, char **argv)
{
    static const enum fdk_dtype types[] = { FDK_I4, FDK_I8, FDK_F8E4M3 };
    const struct fdk_open_args args = { .n_device = 1,
        .deterministic = argc > 1 && strcmp(argv[1], "-d") == 0 };
    struct fdk_gemm_args most = { .T = ROWS,
        .N = 1,
        .K = 14336,
        .w_group = 128,
        .w_dtype = FDK_I8,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16 };
    int rc;

    rc = gb_open("b_gpu_quant", &args);
    if (rc != 0)
        return rc;
    (void)printf("%s, %d multiprocessors%s; peak read %.0f GB/s\n", gb.info.name,
        gb.info.n_proc, args.deterministic ? ", deterministic" : "", gb.read_rate / 1e9);
    pool = gb_device(POOL);
    scales = gb_device(SCALES);
    x = gb_device((size_t)ROWS * 14336 * 2);
    y = gb_device((size_t)ROWS * 28672 * 2);
    live = gb_device(4);
    most.x = x;
    most.w = pool;
    most.w_scale = (const float *)(const void *)scales;
    scratch_bytes = ops->gemm_scratch(&most);
    scratch = gb_device(scratch_bytes);
    gb_fill(pool, POOL, 0xbfbfbfbfu, 0); /* no NaN among e4m3 */
    gb_fill(scales, SCALES, 0x807fffffu, 0x3c000000u);
    gb_fill(x, (size_t)ROWS * 14336 * 2, 0x807f807fu, 0x3f003f00u);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        few_rows(types[i], 128);
        few_rows(types[i], 0);
        many_rows(types[i]);
    }
    return 0;
}
