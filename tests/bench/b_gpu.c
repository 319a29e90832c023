/*
 * Matrix products of the CUDA backend by few rows of x (bf16; y bf16, of a
 * vocabulary's size fp32), as a recorded graph replays them: up to 64 launches
 * in a row over weights that take turns, so that none is in a cache, beside the
 * device's read ceiling measured in the same run.
 * Usage: b_gpu [-d] (-d: opened deterministic)
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/gpu_bench.h"

#define POOL    ((size_t)3 << 30)
#define BYTES   ((size_t)3 << 30)  /* read by one graph, about */

/* Seconds of one launch, the best of several replays. */
static double
timed(struct fdk_gemm_args *a, unsigned char *pool, size_t w_bytes)
{
    size_t turns = POOL / w_bytes, n = BYTES / w_bytes;

    n = n < 16 ? 16 : n > 64 ? 64 : n;
    OK(ops->gemm(a, gb.st));
    OK(ops->graph_begin(gb.st));
    for (size_t i = 0; i < n; i++) {
        a->w = pool + i % turns * w_bytes;
        OK(ops->gemm(a, gb.st));
    }
    return gb_replay(n);
}

static void
table(unsigned char *pool, void *x, void *y, int32_t *live)
{
    static const int32_t shape[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
        { 4096, 14336 }, { 128256, 4096 }, { 3072, 2048 }, { 2048, 2048 },
        { 16384, 2048 }, { 2048, 8192 } };
    static const int32_t rows[] = { 1, 8, 16, 32, 64, 128 };

    (void)printf("\nbf16 weights: us (share of the read ceiling)\n%-16s", "N x K");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        struct fdk_gemm_args a = { .y = y, .x = x, .n = live, .N = shape[i][0],
            .K = shape[i][1], .ldy = shape[i][0], .w_dtype = FDK_BF16, .w = pool,
            .act = FDK_BF16, .y_dtype = shape[i][0] > 100000 ? FDK_F32 : FDK_BF16 };
        size_t w_bytes = (size_t)a.N * (size_t)a.K * 2;

        (void)printf("\n%6d x %-7d", a.N, a.K);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            double s;

            a.T = rows[k];
            gb_upload(live, &rows[k], 4);
            a.scratch_bytes = ops->gemm_scratch(&a);
            a.scratch = a.scratch_bytes > 0 ? gb_device(a.scratch_bytes) : NULL;
            s = timed(&a, pool, w_bytes);
            (void)printf("  %7.2f (%3.0f%%)", s * 1e6,
                100 * (double)w_bytes / s / gb.read_rate);
            if (a.scratch != NULL)
                ops->mem_free(gb.ctx, 0, a.scratch);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

int
main(int argc, char **argv)
{
    const struct fdk_open_args args = { .n_device = 1,
        .deterministic = argc > 1 && strcmp(argv[1], "-d") == 0 };
    unsigned char *pool;
    void *x, *y;
    int32_t *live;
    int rc;

    rc = gb_open("b_gpu", &args);
    if (rc != 0)
        return rc;
    (void)printf("%s, %d multiprocessors%s; read ceiling %.0f GB/s\n", gb.info.name, gb.info.n_proc,
        args.deterministic ? ", deterministic" : "", gb.read_rate / 1e9);
    pool = gb_device(POOL);
    x = gb_device((size_t)128 * 14336 * 2);
    y = gb_device((size_t)128 * 128256 * 4);
    live = gb_device(4);
    gb_fill(x, (size_t)128 * 14336 * 2, 0x807f807fu, 0x3f003f00u);
    gb_fill(pool, POOL, 0x807f807fu, 0x3c003c00u); /* finite and small */
    table(pool, x, y, live);
    return 0;
}
