/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of the CUDA backend with small batches of x (bf16; y is bf16, or fp32
 * for a vocabulary), in a recorded graph: up to 64 launches with different weights in
 * turn, so that none is in a cache. The device's peak read rate is measured in the same
 * run. The same with many rows, in TFLOP/s.
 * Usage: b_gpu [-d] (-d: opened deterministic)
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/gpu_bench.h"

#define POOL  ((size_t)3 << 30)
#define BYTES ((size_t)3 << 30) /* bytes read by one graph, about */
#define MANY  8192

/* Seconds of one launch, of at most `most` in a graph; the best of several replays. */
static double
timed(struct fdk_gemm_args *a, unsigned char *pool, size_t most)
{
    size_t w_bytes = (size_t)a->N * (size_t)a->K * 2, turns = POOL / w_bytes;
    size_t n = BYTES / w_bytes;

    n = n < 16 ? 16 : n;
    n = n > most ? most : n;
    a->scratch_bytes = ops->gemm_scratch(a);
    a->scratch = a->scratch_bytes > 0 ? gb_device(a->scratch_bytes) : NULL;
    OK(ops->gemm(a, gb.st));
    OK(ops->graph_begin(gb.st));
    for (size_t i = 0; i < n; i++) {
        a->w = pool + i % turns * w_bytes;
        OK(ops->gemm(a, gb.st));
    }
    double s = gb_replay(n);
    if (a->scratch != NULL)
        ops->mem_free(gb.ctx, 0, a->scratch);
    return s;
}

static const int32_t shapes[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
    { 4096, 14336 }, { 128256, 4096 }, { 3072, 2048 }, { 2048, 2048 }, { 16384, 2048 },
    { 2048, 8192 } };

/* Runs the first n_shape shapes with n_row numbers of rows: few, or many. */
static void
table(unsigned char *pool, void *x, void *y, int32_t *live, size_t n_shape,
    const int32_t *rows, size_t n_row, int many)
{
    (void)printf("\nbf16 weights: us (%s)\n%-16s", many ? "TFLOP/s" : "% of peak read",
        "N x K");
    for (size_t k = 0; k < n_row; k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (size_t i = 0; i < n_shape; i++) {
        struct fdk_gemm_args a = { .y = y,
            .x = x,
            .n = live,
            .N = shapes[i][0],
            .K = shapes[i][1],
            .ldy = shapes[i][0],
            .w_dtype = FDK_BF16,
            .w = pool,
            .act = FDK_BF16,
            .y_dtype = shapes[i][0] > 100000 ? FDK_F32 : FDK_BF16 };
        double weights = (double)a.N * a.K;

        (void)printf("\n%6d x %-7d", a.N, a.K);
        for (size_t k = 0; k < n_row; k++) {
            double s;

            a.T = rows[k];
            gb_upload(live, &rows[k], 4);
            s = timed(&a, pool, a.T > 1000 ? 4 : many ? 16 : 64);
            if (many)
                (void)printf("  %7.1f (%4.0f)", s * 1e6, 2e-12 * a.T * weights / s);
            else
                (void)printf("  %7.2f (%3.0f%%)", s * 1e6, 200 * weights / s / gb.read_rate);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

int
main(int argc, char **argv)
{
    static const int32_t few[] = { 1, 8, 16, 32, 64, 128 },
                         many[] = { 256, 512, 2048, MANY };
    const struct fdk_open_args args = { .n_device = 1,
        .deterministic = argc > 1 && strcmp(argv[1], "-d") == 0 };
    unsigned char *pool;
    void *x, *y;
    int32_t *live;
    int rc;

    rc = gb_open("b_gpu", &args);
    if (rc != 0)
        return rc;
    (void)printf("%s, %d multiprocessors%s; peak read %.0f GB/s\n", gb.info.name,
        gb.info.n_proc, args.deterministic ? ", deterministic" : "", gb.read_rate / 1e9);
    pool = gb_device(POOL);
    x = gb_device((size_t)MANY * 14336 * 2);
    y = gb_device((size_t)MANY * 28672 * 2); /* more than 128 rows of logits */
    live = gb_device(4);
    gb_fill(x, (size_t)MANY * 14336 * 2, 0x807f807fu, 0x3f003f00u);
    gb_fill(pool, POOL, 0x807f807fu, 0x3c003c00u); /* finite and small */
    table(pool, x, y, live, sizeof(shapes) / sizeof(shapes[0]), few,
        sizeof(few) / sizeof(few[0]), 0);
    table(pool, x, y, live, 4, many, sizeof(many) / sizeof(many[0]), 1);
    return 0;
}
